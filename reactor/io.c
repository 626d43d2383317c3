/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_watch is a thin cover of one libevent event. Two things are added: changing the mask in place, and
 * descriptors that epoll refuses (regular files, /dev/null), which are always ready: those are served
 * by a timer of 0 each turn, so whoever reads a pipe may be given a file.
 *
 * io_lines reads once a turn (64 KiB), cuts what it has, and keeps at most `max` bytes of an unfinished
 * line. Freeing it inside a callback closes the descriptor at once, marks it dead and leaves the memory
 * to the end of the turn, because the cutting loop is still on the stack.
 *
 *	buf:  [ ........ | ........ ]     at = cut so far, seen = searched for a newline so far
 *	      0     at      seen   len
 */
#include "reactor/io.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reactor/base/buf.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/timer.h"

#define LINES_READ_MAX (64 * 1024)

struct io_watch {
	struct event event;
	struct timer always; /* in place of the event when epoll cannot watch fd */
	bool is_always;
	struct loop *loop; /* borrowed */
	int fd;            /* borrowed */
	unsigned events;
	io_fn *fn;
	void *arg;
};

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
	struct io_watch *w = arg;

	loop_now_us(w->loop);
	w->fn(w->arg, (what & EV_READ ? IO_READ : 0u) | (what & EV_WRITE ? IO_WRITE : 0u));
}

static void on_always(void *arg)
{
	struct io_watch *w = arg;

	timer_start(&w->always, 0);
	w->fn(w->arg, w->events); /* may free w */
}

/* Asked of the kernel before libevent is: libevent prints a warning when it is refused. Pipes and sockets
 * skip the question; a pidfd does not, some kernels call it a regular file. */
static bool fd_is_always_ready(int fd)
{
	struct epoll_event want = {.events = EPOLLIN};
	struct stat st;
	bool refused;
	int probe;

	CHECK(fstat(fd, &st) == 0);
	if (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode))
		return false;
	probe = epoll_create1(EPOLL_CLOEXEC);
	CHECK(probe >= 0);
	refused = epoll_ctl(probe, EPOLL_CTL_ADD, fd, &want) < 0 && errno == EPERM;
	close(probe);
	return refused;
}

static bool event_try_add(struct io_watch *w)
{
	short what = EV_PERSIST;

	if (w->events & IO_READ)
		what |= EV_READ;
	if (w->events & IO_WRITE)
		what |= EV_WRITE;
	CHECK(event_assign(&w->event, loop_event_base(w->loop), w->fd, what, on_ready, w) == 0);
	return event_add(&w->event, NULL) == 0;
}

struct io_watch *io_new(struct loop *loop, int fd, unsigned events, io_fn *fn, void *arg)
{
	struct io_watch *w = mem_alloc(sizeof(*w));

	w->loop = loop;
	w->fd = fd;
	w->fn = fn;
	w->arg = arg;
	w->is_always = fd_is_always_ready(fd);
	timer_init(&w->always, loop, on_always, w);
	io_set(w, events);
	return w;
}

void io_set(struct io_watch *w, unsigned events)
{
	CHECK((events & ~(unsigned)(IO_READ | IO_WRITE)) == 0);
	if (events == w->events)
		return;
	if (w->is_always) {
		timer_stop(&w->always);
		w->events = events;
		if (events)
			timer_start(&w->always, 0);
		return;
	}
	if (w->events)
		event_del(&w->event);
	w->events = events;
	if (events)
		CHECK(event_try_add(w));
}

void io_free(struct io_watch *w)
{
	if (!w)
		return;
	io_set(w, 0);
	free(w);
}

int io_set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

/* --- lines --- */

struct io_lines {
	struct loop *loop; /* borrowed */
	struct io_watch *watch;
	int fd;
	size_t max;
	struct buf buf;
	size_t at, seen;
	bool is_dead;
	io_line_fn *on_line;
	io_end_fn *on_end;
	void *arg;
};

/* Finds the next line or piece; false when more bytes are needed. */
static bool lines_cut(struct io_lines *l, struct str *line, bool *whole)
{
	const char *start = l->buf.data + l->at;
	size_t have = l->buf.len - l->at;
	size_t limit = have < l->max + 1 ? have : l->max + 1;
	size_t from = l->seen - l->at;
	const char *newline = from < limit ? memchr(start + from, '\n', limit - from) : NULL;

	if (newline) {
		*line = (struct str){start, (size_t)(newline - start)};
		l->at += line->n + 1;
	} else if (have > l->max) {
		*line = (struct str){start, l->max};
		l->at += l->max;
	} else {
		l->seen = l->buf.len;
		return false;
	}
	*whole = newline != NULL;
	l->seen = l->at;
	return true;
}

static void lines_deliver(struct io_lines *l)
{
	struct str line;
	bool whole;

	while (!l->is_dead && lines_cut(l, &line, &whole))
		l->on_line(l->arg, line, whole);
	if (l->is_dead)
		return;
	buf_drop(&l->buf, l->at);
	l->seen -= l->at;
	l->at = 0;
}

static void lines_end(struct io_lines *l, int error)
{
	io_free(take_ptr(&l->watch));
	if (l->buf.len)
		l->on_line(l->arg, buf_str(&l->buf), true);
	if (!l->is_dead)
		l->on_end(l->arg, error);
}

static void on_lines_ready(void *arg, unsigned events)
{
	struct io_lines *l = arg;
	ssize_t n = read(l->fd, buf_reserve(&l->buf, LINES_READ_MAX), LINES_READ_MAX);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		lines_end(l, n < 0 ? -errno : 0);
		return;
	}
	l->buf.len += (size_t)n;
	lines_deliver(l);
}

struct io_lines *io_lines_new(
	struct loop *loop, int fd, size_t max, io_line_fn *on_line, io_end_fn *on_end, void *arg)
{
	struct io_lines *l = mem_alloc(sizeof(*l));

	CHECK(max > 0 && max < SIZE_MAX / 4);
	CHECK(io_set_nonblocking(fd) == 0);
	l->loop = loop;
	l->fd = fd;
	l->max = max;
	l->on_line = on_line;
	l->on_end = on_end;
	l->arg = arg;
	l->watch = io_new(loop, fd, IO_READ, on_lines_ready, l);
	return l;
}

static void lines_release(void *p)
{
	struct io_lines *l = p;

	buf_fini(&l->buf);
	free(l);
}

void io_lines_free(struct io_lines *l)
{
	if (!l)
		return;
	l->is_dead = true;
	io_free(take_ptr(&l->watch));
	close(l->fd);
	loop_free_later(l->loop, lines_release, l);
}
