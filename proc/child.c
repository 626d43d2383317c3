/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * A child has two facts to wait for: it was reaped, and each captured pipe is at EOF. They come in any order:
 *
 *   RUNNING --pipes at EOF--> CLOSED --exit--> DONE        (no captured pipe: starts CLOSED)
 *      |                                         ^
 *      +------exit------> REAPED --EOF, or 1 s---+
 *
 * The exit comes as a readable pidfd. Before reaping, while the zombie still guards the number, what is left of the
 * child's process group is killed; after reaping the number may belong to anybody and is never used again. Whoever
 * left the group (setsid) can still hold a pipe: REAPED's deadline gives those up.
 *
 * Owner gone (child_free) is not a state of the process: the events are cleared, the pipes closed, and the same
 * machine runs on to DONE, where the memory goes between turns. The object is therefore valid through every callback,
 * and after each the code only asks whether there is still somebody to call.
 */
#include "proc/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/fsm.h"
#include "reactor/io.h"
#include "reactor/loop.h"

#define GRACE_US (1 * US_PER_S)
#define READ_SIZE 16384
#define READS_A_TURN 4

enum child_state { CHILD_RUNNING, CHILD_CLOSED, CHILD_REAPED, CHILD_DONE };

struct stream {
	struct child *child;
	int number; /* 1 or 2 */
	int fd;     /* -1 = not captured, or at its end */
	struct io_watch *watch;
	int64_t max, total; /* total counts to max + 1 */
};

struct child {
	struct fsm fsm;
	struct loop *loop;
	char id[16]; /* the pid, for the log */
	pid_t pid;
	int pidfd;
	struct io_watch *exit_watch;
	struct stream streams[2];
	struct child_events events; /* all NULL once the owner has gone */
	void *arg;
	struct child_exit exit;
	bool owned; /* child_free() not called: the owner holds a pointer */
};

/* --- states -------------------------------------------------------------------------------------- */

static void stream_close(struct stream *s)
{
	io_free(s->watch);
	s->watch = NULL;
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

static void streams_close(struct child *child)
{
	stream_close(&child->streams[0]);
	stream_close(&child->streams[1]);
}

static bool streams_at_end(const struct child *child)
{
	return child->streams[0].fd < 0 && child->streams[1].fd < 0;
}

static void child_release(void *p)
{
	struct child *child = p;

	fsm_fini(&child->fsm);
	free(child);
}

static int enter_done(void *owner)
{
	struct child *child = owner;

	if (child->owned && child->events.on_exit)
		child->events.on_exit(child->arg, &child->exit);
	else if (!child->owned)
		loop_free_later(child->loop, child_release, child);
	return FSM_WAIT;
}

static void on_grace_over(void *owner)
{
	struct child *child = owner;

	streams_close(child);
	fsm_go(&child->fsm, CHILD_DONE, "grace-over");
}

static const struct fsm_state child_states[] = {
	[CHILD_RUNNING] =
		{
			.name = "running",
			.next = FSM_BIT(CHILD_CLOSED) | FSM_BIT(CHILD_REAPED),
		},
	[CHILD_CLOSED] =
		{
			.name = "closed",
			.next = FSM_BIT(CHILD_DONE),
		},
	[CHILD_REAPED] =
		{
			.name = "reaped",
			.deadline_us = GRACE_US,
			.on_deadline = on_grace_over,
			.next = FSM_BIT(CHILD_DONE),
		},
	[CHILD_DONE] =
		{
			.name = "done",
			.enter = enter_done,
		},
};

static const struct fsm_table child_table = {
	.machine = "child",
	.states = child_states,
	.n_states = ARRAY_SIZE(child_states),
	.level = LOG_DEBUG,
};

/* --- the pipes ----------------------------------------------------------------------------------- */

static void stream_deliver(struct stream *s, struct str bytes)
{
	struct child *child = s->child;
	int64_t room = s->max > 0 ? s->max - s->total : (int64_t)bytes.n;
	bool over;

	if (s->max > 0 && s->total > s->max)
		return; /* full, and said so */
	over = (int64_t)bytes.n > room;
	if (over)
		bytes.n = (size_t)room;
	s->total += (int64_t)bytes.n + over;
	if (bytes.n > 0 && child->events.on_output)
		child->events.on_output(child->arg, s->number, bytes);
	if (over && child->events.on_full)
		child->events.on_full(child->arg, s->number);
}

static void stream_end(struct stream *s)
{
	struct child *child = s->child;

	stream_close(s);
	if (!streams_at_end(child))
		return;
	fsm_go(&child->fsm, child->fsm.state == CHILD_RUNNING ? CHILD_CLOSED : CHILD_DONE,
		"drained");
}

static void on_readable(void *arg, unsigned events)
{
	struct stream *s = arg;
	char bytes[READ_SIZE];

	for (int i = 0; i < READS_A_TURN && s->fd >= 0; i++) {
		ssize_t n = read(s->fd, bytes, sizeof(bytes));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			stream_end(s);
			return;
		}
		stream_deliver(s, (struct str){bytes, (size_t)n});
	}
}

/* --- the exit ------------------------------------------------------------------------------------ */

/* The number is ours until the child is reaped. */
static void kill_group(struct child *child)
{
	if (child->pidfd >= 0)
		kill(-child->pid, SIGKILL);
}

static void note_exit(struct child_exit *out, const siginfo_t *info, const struct rusage *usage)
{
	out->signaled = info->si_code != CLD_EXITED;
	out->code = info->si_status;
	out->cpu_us = (usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * US_PER_S +
		      usage->ru_utime.tv_usec + usage->ru_stime.tv_usec;
	out->max_rss_bytes = (int64_t)usage->ru_maxrss * 1024;
}

static void on_exit_ready(void *arg, unsigned events)
{
	struct child *child = arg;
	siginfo_t info = {0};
	struct rusage usage = {0};
	long rc;

	kill_group(child);
	/* The raw call: glibc's waitid() does not pass the rusage out. */
	rc = syscall(SYS_waitid, P_PIDFD, child->pidfd, &info, WEXITED | WNOHANG, &usage);
	if (rc < 0 && errno == EINTR)
		return;
	if (rc == 0 && info.si_pid == 0)
		return; /* not yet: level-triggered, we come again */
	CHECK(rc == 0); /* somebody else reaped our child: a bug */
	note_exit(&child->exit, &info, &usage);
	io_free(take_ptr(&child->exit_watch));
	close(child->pidfd);
	child->pidfd = -1;
	fsm_go(&child->fsm, child->fsm.state == CHILD_RUNNING ? CHILD_REAPED : CHILD_DONE, "exit");
}

/* --- start --------------------------------------------------------------------------------------- */

static int add_fd(struct spawn_spec *spec, int from, int to)
{
	if (spec->n_fds == SPAWN_FDS_MAX)
		return -E2BIG;
	spec->fds[spec->n_fds++] = (struct spawn_fd){.from = from, .to = to};
	return 0;
}

/* Our end goes to the stream, the child's into the spec and *theirs. */
static int stream_open(struct stream *s, struct spawn_spec *spec, int *theirs)
{
	int fds[2], error;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	s->fd = fds[0];
	*theirs = fds[1];
	error = io_set_nonblocking(s->fd);
	return error ? error : add_fd(spec, *theirs, s->number);
}

static int plumb(struct child *child, const struct child_options *options, struct spawn_spec *spec,
	int theirs[2])
{
	int error = options->stdin_fd >= 0 ? add_fd(spec, options->stdin_fd, 0) : 0;

	if (!error && options->capture_out)
		error = stream_open(&child->streams[0], spec, &theirs[0]);
	if (!error && options->capture_err)
		error = stream_open(&child->streams[1], spec, &theirs[1]);
	return error;
}

static int launch(struct child *child, const struct child_options *options, const char **step)
{
	struct spawn_spec spec = options->spawn;
	struct spawned spawned = {.pidfd = -1};
	int theirs[2] = {-1, -1}, error;

	spec.new_session = true;
	*step = "pipe";
	error = plumb(child, options, &spec, theirs);
	if (!error) {
		error = spawn(&spec, &spawned);
		*step = error ? spawned.step : NULL;
	}
	for (int i = 0; i < 2; i++)
		if (theirs[i] >= 0)
			close(theirs[i]);
	child->pid = spawned.pid;
	child->pidfd = error ? -1 : spawned.pidfd;
	return error;
}

static void watch(struct child *child)
{
	for (int i = 0; i < 2; i++) {
		struct stream *s = &child->streams[i];

		if (s->fd >= 0)
			s->watch = io_new(child->loop, s->fd, IO_READ, on_readable, s);
	}
	child->exit_watch = io_new(child->loop, child->pidfd, IO_READ, on_exit_ready, child);
}

int child_start(struct loop *loop, const struct child_options *options,
	const struct child_events *events, void *arg, struct child **out, const char **step)
{
	struct child *child = mem_alloc(sizeof(*child));
	const char *failed;
	int error;

	*out = NULL;
	child->loop = loop;
	child->events = *events;
	child->arg = arg;
	child->owned = true;
	child->streams[0] = (struct stream){child, 1, -1, NULL, options->out_max, 0};
	child->streams[1] = (struct stream){child, 2, -1, NULL, options->err_max, 0};
	error = launch(child, options, step ? step : &failed);
	if (error) {
		streams_close(child);
		free(child);
		return error;
	}
	CHECK(child->pid > 1); /* kill(-pid) of 0 or 1 would be our own group, or everybody */
	snprintf(child->id, sizeof(child->id), "%d", (int)child->pid);
	fsm_init(&child->fsm, &child_table, loop, loop_log(loop), child->id, child,
		streams_at_end(child) ? CHILD_CLOSED : CHILD_RUNNING);
	watch(child);
	*out = child;
	return 0;
}

pid_t child_pid(const struct child *child)
{
	return child->pid;
}

void child_signal(struct child *child, int signum)
{
	if (child->pidfd >= 0)
		syscall(SYS_pidfd_send_signal, child->pidfd, signum, NULL, 0);
}

void child_kill(struct child *child)
{
	kill_group(child);
}

void child_free(struct child *child)
{
	if (!child)
		return;
	CHECK(child->owned);
	child->owned = false;
	child->events = (struct child_events){0};
	kill_group(child);
	streams_close(child);
	if (child->fsm.state == CHILD_RUNNING)
		fsm_go(&child->fsm, CHILD_CLOSED, "forgotten");
	else if (child->fsm.state == CHILD_REAPED)
		fsm_go(&child->fsm, CHILD_DONE, "forgotten");
	else if (child->fsm.state == CHILD_DONE)
		loop_free_later(child->loop, child_release, child);
}
