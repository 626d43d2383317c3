/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libevent's signal events: the handler writes the number to a socketpair, the loop reads it. libevent
 * serves the signals of one loop at a time in a process; that is how programs are built here (main owns
 * the only loop that watches signals), and tests make their loops one after the other.
 *
 * SIGPIPE is ignored, not watched: a peer that went away is EPIPE at the write. What is ignored stays
 * ignored across exec, so proc/spawn puts it back in a child.
 */
#include "reactor/signal.h"

#include <event2/event.h>
#include <event2/event_struct.h>
#include <signal.h>
#include <stdlib.h>

#include "reactor/base/mem.h"
#include "reactor/loop.h"

struct signal_watch {
	struct event event;
	struct loop *loop; /* borrowed */
	signal_fn *fn;
	void *arg;
};

static void on_signal(evutil_socket_t signum, short what, void *arg)
{
	struct signal_watch *w = arg;

	loop_now_us(w->loop);
	w->fn(w->arg, (int)signum); /* may free w */
}

static void ignore_sigpipe(void)
{
	struct sigaction old, ignore = {.sa_handler = SIG_IGN};

	CHECK(sigaction(SIGPIPE, NULL, &old) == 0);
	if (old.sa_handler == SIG_DFL)
		CHECK(sigaction(SIGPIPE, &ignore, NULL) == 0);
}

struct signal_watch *signal_new(struct loop *loop, int signum, signal_fn *fn, void *arg)
{
	struct signal_watch *w = mem_alloc(sizeof(*w));

	ignore_sigpipe();
	w->loop = loop;
	w->fn = fn;
	w->arg = arg;
	CHECK(evsignal_assign(&w->event, loop_event_base(loop), signum, on_signal, w) == 0);
	CHECK(evsignal_add(&w->event, NULL) == 0);
	return w;
}

void signal_free(struct signal_watch *w)
{
	if (!w)
		return;
	evsignal_del(&w->event);
	free(w);
}
