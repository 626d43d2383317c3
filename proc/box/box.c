/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation.
 *
 *   box_run() -> waiting -> (a slot is ready) -> STARTING -> RUNNING -> DEAD (collecting) -> DRAINING -> on_done
 *                                  \\___________ kill ___________/-> KILLING -------------------^
 *
 * The host keeps `slots + 1` slots ready or being made, and lets `slots` runs have one each; a slot that cannot be
 * reset is closed after its run. Making slots that fails is retried with backoff; three failures in a row with nothing
 * running fail the runs that wait, so nobody waits for ever.
 *
 * A run owns copies of everything in its spec, the read ends of two pipes, and from STARTING on a slot. Each state has
 * a deadline: RUNNING has the wall limit, the others STEP_US; a step that misses its deadline is our failure,
 * the slot is closed and the log says so.
 *
 * Limits. Output is counted here, to the byte. Wall time is a timer from on_started. CPU time is a timer that
 * reads the counter and sleeps for what is left divided by the CPUs the program can use, so it fires a handful of times
 * however long the limit; the kernel folds running time in at each tick, so a kill comes at most a tick late. The
 * verdict is made from the final counters alone, in one order (judge()), never from who asked for the kill first.
 *
 * When the slot has ended no writer is left, so what is in the pipes is all there is: they are read until empty
 * or EOF, at most a quarter of a megabyte a turn.
 *
 * A slot that died while it was ready is noticed by slot_run() (-ESTALE); the run goes back to the head of the queue.
 *
 * Callbacks may kill or cancel the run: after each one the state is looked at again. A cancelled run has no
 * events any more; it goes on until its slot has ended. Memory goes between turns.
 */
#include "proc/box/box.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/box/wire.h"
#include "reactor/base/clock.h"
#include "reactor/base/list.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "reactor/io.h"
#include "reactor/loop.h"
#include "reactor/timer.h"

#define WAITING_MAX 1024
#define STEP_US (10 * US_PER_S)
#define COLLECT_US (30 * US_PER_S)
#define CPU_TIMER_MIN_US US_PER_MS
#define PIPE_BYTES (1024 * 1024)
#define READ_TURN (256 * 1024)
#define READ_CHUNK (64 * 1024)
#define STDERR_DELIVERED_MAX (INT64_C(64) * 1024 * 1024)
#define FAILURES_MAX 3
#define RETRY_MIN_US (100 * US_PER_MS)
#define RETRY_MAX_US (5 * US_PER_S)

enum run_state {
	RUN_WAITING,
	RUN_STARTING,
	RUN_RUNNING,
	RUN_DEAD,
	RUN_KILLING,
	RUN_DRAINING,
	RUN_DONE
};

static const char *const state_names[] = {
	"waiting", "starting", "running", "dead", "killing", "draining", "done"};

struct stream {
	struct box_run *run;
	int fd; /* read end; -1 = finished */
	struct io_watch *watch;
	int number;      /* 1, 2 */
	int64_t allowed; /* bytes delivered at most */
	int64_t seen;    /* bytes read; for stdout at most allowed + 1 */
	int64_t delivered;
};

struct box_run {
	struct list link; /* host->waiting, or host->active */
	struct box_host *host;
	enum run_state state;
	struct box_spec spec; /* all of it ours */
	struct box_events events;
	void *arg;
	bool cancelled;
	bool killed;               /* by box_run_kill() */
	enum box_limit_name cause; /* the limit we killed for */
	struct box_slot *slot;
	struct stream streams[2];
	struct timer deadline, wall, cpu;
	struct box_slot_end end;
	char *failure; /* owned copy of end.failure */
};

struct ready_slot {
	struct list link;
	struct box_slot *slot;
};

struct making {
	struct list link;
	struct box_host *host;
	struct op *op;
};

struct box_host {
	struct loop *loop;
	struct log *log;
	const struct box_ops *ops;
	struct box *box;
	unsigned slots;
	unsigned n_waiting, n_active, n_ready, n_making;
	struct list waiting, active, ready, making;
	struct defer dispatch;
	struct timer retry;
	struct backoff backoff;
	unsigned failures; /* of making slots, in a row */
	char *why;         /* the last one's reason */
	char *broken;      /* for good */
};

static const char *const limit_names[] = {
	[BOX_L_NONE] = "",
	[BOX_L_CPU] = "cpu_ms",
	[BOX_L_WALL] = "wall_ms",
	[BOX_L_MEMORY] = "memory_bytes",
	[BOX_L_OUTPUT] = "output_bytes",
	[BOX_L_FILE] = "file_bytes",
	[BOX_L_PROCESSES] = "processes",
	[BOX_L_STACK] = "stack_bytes",
};

const char *box_limit_wire_name(enum box_limit_name limit)
{
	CHECK((size_t)limit < ARRAY_SIZE(limit_names));
	return limit_names[limit];
}

const struct box_ops *box_find(const char *name)
{
	static const struct box_ops *const rows[] = {&box_none, &box_ns};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (strcmp(rows[i]->name, name) == 0)
			return rows[i];
	}
	return NULL;
}

/* --- a run's own things ------------------------------------------------------------------------------- */

static size_t count_strings(char *const *list, size_t *bytes)
{
	size_t n = 0;

	for (; list && list[n]; n++)
		*bytes += strlen(list[n]) + 1;
	return n;
}

static char **copy_strings(char *const *list)
{
	size_t bytes = 0;
	size_t n = count_strings(list, &bytes);
	char **copy;

	if (!list)
		return NULL;
	copy = mem_array(n + 1, sizeof(*copy));
	for (size_t i = 0; i < n; i++)
		copy[i] = mem_strdup(list[i]);
	return copy;
}

static void free_strings(char *const *list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free((void *)(uintptr_t)list);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Others must not be able to change an input that several runs read: sealed, or closed by its mode, or no file. */
static bool stdin_is_safe(int fd)
{
	struct stat st;
	int seals;

	if (fstat(fd, &st) < 0)
		return false;
	if (!S_ISREG(st.st_mode))
		return true;
	seals = fcntl(fd, F_GET_SEALS);
	return (seals >= 0 && (seals & F_SEAL_WRITE)) || (st.st_mode & 0022) == 0;
}

/* A description of our own, so that the offset is not shared with other runs of the same input. After giving up
 * root this may be refused, then box_ns's pid 1 does it. */
static int reopen_stdin(int fd)
{
	char path[40];
	struct stat st;
	int fresh = -1;

	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		fresh = open(path, O_RDONLY | O_CLOEXEC);
	}
	if (fresh < 0)
		fresh = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return fresh;
}

static int check_spec(const struct box_spec *spec)
{
	const struct box_limits *l = &spec->limits;
	const int64_t limits[] = {l->cpu_us, l->wall_us, l->memory_bytes, l->output_bytes,
		l->file_bytes, l->processes, l->stack_bytes};
	size_t bytes = 0;

	if (!spec->argv || !spec->argv[0])
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		if (limits[i] <= 0)
			return -EINVAL;
	}
	if (spec->stdin_fd >= 0 && !stdin_is_safe(spec->stdin_fd))
		return -EINVAL;
	count_strings(spec->argv, &bytes);
	count_strings(spec->env, &bytes);
	return bytes > WIRE_PAYLOAD_MAX - 1024 ? -E2BIG : 0;
}

/* Only the descriptors can fail. */
static int copy_spec(struct box_spec *to, const struct box_spec *from)
{
	*to = *from;
	to->argv = NULL;
	to->env = NULL;
	to->stdin_fd = to->files_fd = -1;
	if (from->stdin_fd >= 0) {
		to->stdin_fd = reopen_stdin(from->stdin_fd);
		if (to->stdin_fd < 0)
			return -errno;
	}
	if (from->files_fd >= 0) {
		to->files_fd = fcntl(from->files_fd, F_DUPFD_CLOEXEC, 3);
		if (to->files_fd < 0) {
			int error = -errno;
			close_fd(&to->stdin_fd);
			return error;
		}
	}
	to->argv = copy_strings(from->argv);
	to->env = copy_strings(from->env);
	return 0;
}

static void stream_close(struct stream *s)
{
	io_free(s->watch);
	s->watch = NULL;
	close_fd(&s->fd);
}

static void run_free(void *p)
{
	struct box_run *run = p;

	free_strings(run->spec.argv);
	free_strings(run->spec.env);
	close_fd(&run->spec.stdin_fd);
	close_fd(&run->spec.files_fd);
	close_fd(&run->end.files_fd);
	free(run->failure);
	free(run);
}

/* Stops everything that could call back. */
static void run_quiet(struct box_run *run)
{
	timer_stop(&run->deadline);
	timer_stop(&run->wall);
	timer_stop(&run->cpu);
	stream_close(&run->streams[0]);
	stream_close(&run->streams[1]);
}

static void enter(struct box_run *run, enum run_state state)
{
	log_debug(run->host->log, "box_run", "from=%s to=%s", state_names[run->state],
		state_names[state]);
	run->state = state;
}

/* --- the verdict -------------------------------------------------------------------------------------- */

static void blame(
	struct box_result *r, enum box_limit_name limit, int64_t allowed, int64_t measured)
{
	r->limit = limit;
	r->allowed = allowed;
	r->measured = measured;
}

static void over_limit(
	struct box_result *r, enum box_limit_name limit, int64_t allowed, int64_t measured)
{
	r->end = BOX_LIMIT;
	blame(r, limit, allowed, measured);
}

/* Rounded up, so that what is over a limit also reads so. */
static int64_t to_ms(int64_t us)
{
	return (us + US_PER_MS - 1) / US_PER_MS;
}

static void judge_time(const struct box_run *run, struct box_result *r, enum box_limit_name limit)
{
	const struct box_limits *l = &run->spec.limits;

	if (limit == BOX_L_CPU)
		over_limit(r, limit, l->cpu_us / US_PER_MS, to_ms(r->cpu_us));
	else
		over_limit(r, limit, l->wall_us / US_PER_MS, to_ms(r->wall_us));
}

static void judge_own_end(const struct box_run *run, struct box_result *r)
{
	const struct box_limits *l = &run->spec.limits;
	int status = run->end.status;

	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) {
		over_limit(r, BOX_L_FILE, l->file_bytes, l->file_bytes);
		return;
	}
	if (run->end.files_refused) {
		over_limit(r, BOX_L_FILE, (int64_t)run->spec.collect_max,
			(int64_t)run->spec.collect_max + 1);
		return;
	}
	r->end = WIFSIGNALED(status) ? BOX_SIGNALED : BOX_EXITED;
	if (WIFEXITED(status))
		r->exit_code = WEXITSTATUS(status);
	if (run->end.pids_refused > 0)
		blame(r, BOX_L_PROCESSES, l->processes, l->processes);
}

/* Somebody else's memory killed it: other processes of the machine, or a limit on all of us. Without a count of its own that is so
 * when the peak was nowhere near the limit. */
static bool machine_ran_out(const struct box_slot_end *end, int64_t limit)
{
	if (end->oom_kills == 0)
		return false;
	if (end->has_limit_ooms)
		return end->limit_ooms == 0;
	return end->memory_bytes > 0 && end->memory_bytes < limit - limit / 4;
}

static void we_failed(struct box_result *r, const char *why)
{
	r->end = BOX_FAILED;
	r->failure = why;
}

/* failed > output > memory > cpu > wall > killed > its own end */
static void judge(const struct box_run *run, struct box_result *r)
{
	const struct box_limits *l = &run->spec.limits;
	const struct box_slot_end *end = &run->end;

	if (end->failure) {
		we_failed(r, end->failure);
		return;
	}
	if (end->status == -1)
		r->signal = SIGKILL;
	else if (WIFSIGNALED(end->status))
		r->signal = WTERMSIG(end->status);
	if (run->streams[0].seen > l->output_bytes)
		over_limit(r, BOX_L_OUTPUT, l->output_bytes, l->output_bytes + 1);
	else if (machine_ran_out(end, l->memory_bytes))
		we_failed(r, "the machine ran out of memory");
	else if (end->oom_kills > 0)
		over_limit(r, BOX_L_MEMORY, l->memory_bytes, end->memory_bytes);
	else if (end->cpu_us > l->cpu_us)
		judge_time(run, r, BOX_L_CPU);
	else if (end->wall_us > l->wall_us)
		judge_time(run, r, BOX_L_WALL);
	else if (end->status != -1)
		judge_own_end(run, r);
	else if (run->cause != BOX_L_NONE && !run->killed)
		judge_time(run, r, run->cause);
	else
		r->end = BOX_KILLED;
}

static void finish(struct box_run *run)
{
	struct box_host *host = run->host;
	struct box_result result = {.cpu_us = run->end.cpu_us,
		.wall_us = run->end.wall_us,
		.memory_bytes = run->end.memory_bytes,
		.stdout_bytes = run->streams[0].delivered,
		.stderr_bytes = run->streams[1].delivered,
		.files_fd = -1};

	run_quiet(run);
	enter(run, RUN_DONE);
	list_del(&run->link);
	host->n_active--;
	loop_defer(host->loop, &host->dispatch);
	loop_free_later(host->loop, run_free, run);
	if (run->cancelled)
		return;
	judge(run, &result);
	if (result.end == BOX_EXITED) {
		result.files_fd = run->end.files_fd;
		run->end.files_fd = -1;
	}
	run->events.on_done(run->arg, &result);
}

/* --- slots -------------------------------------------------------------------------------------------- */

static void keep_slot(struct box_host *host, struct box_slot *slot)
{
	struct ready_slot *ready = mem_alloc(sizeof(*ready));

	ready->slot = slot;
	list_add_tail(&host->ready, &ready->link);
	host->n_ready++;
}

static struct box_slot *take_slot(struct box_host *host)
{
	struct ready_slot *ready = list_entry(list_first(&host->ready), struct ready_slot, link);
	struct box_slot *slot = ready->slot;

	list_del(&ready->link);
	host->n_ready--;
	free(ready);
	return slot;
}

static void release_slot(struct box_run *run)
{
	struct box_host *host = run->host;

	if (!run->slot)
		return;
	if (!run->end.failure && host->ops->slot_reset(run->slot))
		keep_slot(host, run->slot);
	else
		host->ops->slot_close(run->slot);
	run->slot = NULL;
}

/* --- output ------------------------------------------------------------------------------------------- */

static void kill_slot(struct box_run *run);

static bool is_over(const struct stream *s)
{
	return s->number == 1 && s->seen > s->allowed;
}

/* Delivers what is allowed of n bytes; false when the run is no longer to be touched. */
static bool take_bytes(struct stream *s, const char *bytes, size_t n)
{
	struct box_run *run = s->run;
	int64_t room = s->allowed - s->delivered;
	size_t deliver = room < (int64_t)n ? (size_t)room : n;

	s->seen += (int64_t)n;
	s->delivered += (int64_t)deliver;
	if (deliver > 0 && !run->cancelled)
		run->events.on_output(run->arg, s->number, (struct str){bytes, deliver});
	if (run->state == RUN_DONE || s->fd < 0)
		return false;
	if (is_over(s) && (run->state == RUN_RUNNING || run->state == RUN_STARTING)) {
		run->cause = BOX_L_OUTPUT;
		kill_slot(run);
	}
	return !is_over(s);
}

static void settle(struct box_run *run);

static void on_readable(void *arg, unsigned events)
{
	struct stream *s = arg;
	struct box_run *run = s->run;
	char chunk[READ_CHUNK];
	size_t turn = 0;

	while (turn < READ_TURN) {
		ssize_t n = read(s->fd, chunk, sizeof(chunk));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			if (run->state == RUN_DRAINING)
				stream_close(s); /* no writer is left */
			break;
		}
		if (n <= 0) {
			stream_close(s);
			break;
		}
		turn += (size_t)n;
		if (!take_bytes(s, chunk, (size_t)n)) {
			if (run->state != RUN_DONE)
				stream_close(s);
			break;
		}
	}
	settle(run);
}

/* The run is over when its slot has ended and both streams are. */
static void settle(struct box_run *run)
{
	if (run->state == RUN_DRAINING && run->streams[0].fd < 0 && run->streams[1].fd < 0)
		finish(run);
}

/* --- a run's life ------------------------------------------------------------------------------------- */

static void fail(struct box_run *run, const char *why)
{
	free(run->failure);
	run->failure = mem_strdup(why);
	close_fd(&run->end.files_fd);
	run->end = (struct box_slot_end){.failure = run->failure, .files_fd = -1};
}

static void on_deadline(void *arg)
{
	struct box_run *run = arg;
	char *why cleanup(mem_freep) =
		mem_printf("the box did not finish step '%s' in time", state_names[run->state]);

	log_error(run->host->log, "box_deadline", "state=%s action=abandon_slot",
		state_names[run->state]);
	fail(run, why);
	release_slot(run);
	enter(run, RUN_DRAINING);
	finish(run);
}

static void kill_slot(struct box_run *run)
{
	struct box_host *host = run->host;

	timer_stop(&run->wall);
	timer_stop(&run->cpu);
	enter(run, RUN_KILLING);
	timer_start(&run->deadline, STEP_US);
	host->ops->slot_kill(run->slot);
}

static void on_wall(void *arg)
{
	struct box_run *run = arg;

	run->cause = BOX_L_WALL;
	kill_slot(run);
}

static int64_t usable_cpus(const struct box_run *run)
{
	int64_t online = sysconf(_SC_NPROCESSORS_ONLN);

	if (online < 1)
		online = 1;
	return online < run->spec.limits.processes ? online : run->spec.limits.processes;
}

static void on_cpu(void *arg)
{
	struct box_run *run = arg;
	int64_t limit = run->spec.limits.cpu_us;
	int64_t used = run->host->ops->slot_cpu_us(run->slot);
	int64_t wait;

	if (used > limit) {
		run->cause = BOX_L_CPU;
		kill_slot(run);
		return;
	}
	/* A counter that cannot be read leaves RLIMIT_CPU and the wall limit. */
	wait = used < 0 ? limit : (limit - used) / usable_cpus(run);
	timer_start(&run->cpu, wait > CPU_TIMER_MIN_US ? wait : CPU_TIMER_MIN_US);
}

static void on_started(void *arg)
{
	struct box_run *run = arg;

	if (run->state != RUN_STARTING) /* being killed already */
		return;
	enter(run, RUN_RUNNING);
	timer_stop(&run->deadline);
	/* From this very moment, not from the turn's start: wall_us is measured so too. */
	timer_start_at(&run->wall, loop_now_exact_us(run->host->loop) + run->spec.limits.wall_us);
	timer_start(&run->cpu, run->spec.limits.cpu_us / usable_cpus(run));
	if (run->events.on_started && !run->cancelled)
		run->events.on_started(run->arg);
}

static void on_dead(void *arg)
{
	struct box_run *run = arg;

	if (run->state != RUN_RUNNING)
		return;
	timer_stop(&run->wall);
	timer_stop(&run->cpu);
	enter(run, RUN_DEAD);
	timer_start(&run->deadline, COLLECT_US);
}

static void on_ended(void *arg, const struct box_slot_end *end)
{
	struct box_run *run = arg;

	timer_stop(&run->wall);
	timer_stop(&run->cpu);
	run->end = *end;
	if (end->failure)
		fail(run, end->failure);
	release_slot(run);
	enter(run, RUN_DRAINING);
	timer_start(&run->deadline, STEP_US);
	/* Each stream sees EOF or an empty pipe by its watch; one that was closed early is not waited for. */
	for (int i = 0; i < 2; i++) {
		if (run->streams[i].fd >= 0)
			on_readable(&run->streams[i], IO_READ);
		if (run->state == RUN_DONE)
			return;
	}
	settle(run);
}

static const struct box_slot_events slot_events = {
	.on_started = on_started, .on_dead = on_dead, .on_ended = on_ended};

static int open_stream(struct box_run *run, int i, int *write_fd)
{
	struct stream *s = &run->streams[i];
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	s->fd = fds[0];
	*write_fd = fds[1];
	fcntl(s->fd, F_SETPIPE_SZ, PIPE_BYTES); /* best effort: users have a quota */
	s->watch = NULL;
	return io_set_nonblocking(s->fd);
}

static int start_in_slot(struct box_run *run)
{
	struct box_host *host = run->host;
	int write_fds[2] = {-1, -1};
	int error = open_stream(run, 0, &write_fds[0]);

	if (error == 0)
		error = open_stream(run, 1, &write_fds[1]);
	if (error == 0) {
		struct box_start start = {.spec = &run->spec,
			.stdin_fd = run->spec.stdin_fd,
			.stdout_fd = write_fds[0],
			.stderr_fd = write_fds[1]};
		error = host->ops->slot_run(run->slot, &start, &slot_events, run);
	}
	close_fd(&write_fds[0]);
	close_fd(&write_fds[1]);
	if (error < 0)
		return error;
	close_fd(&run->spec.files_fd); /* the slot has them */
	close_fd(&run->spec.stdin_fd);
	for (int i = 0; i < 2; i++) {
		struct stream *s = &run->streams[i];
		s->watch = io_new(host->loop, s->fd, IO_READ, on_readable, s);
	}
	return 0;
}

static void activate(struct box_run *run)
{
	struct box_host *host = run->host;

	list_del(&run->link);
	host->n_waiting--;
	list_add_tail(&host->active, &run->link);
	host->n_active++;
}

/* Its slot had died on the shelf: first in the queue again. */
static void put_back(struct box_run *run)
{
	struct box_host *host = run->host;

	run_quiet(run);
	host->ops->slot_close(run->slot);
	run->slot = NULL;
	list_del(&run->link);
	host->n_active--;
	list_add_head(&host->waiting, &run->link);
	host->n_waiting++;
	enter(run, RUN_WAITING);
}

static void start(struct box_run *run)
{
	int error;

	activate(run);
	enter(run, RUN_STARTING);
	timer_start(&run->deadline, STEP_US);
	run->slot = take_slot(run->host);
	error = start_in_slot(run);
	if (error == 0)
		return;
	if (error == -ESTALE) {
		put_back(run);
		return;
	}
	char *why cleanup(mem_freep) = mem_printf("cannot start in the box: %s", strerror(-error));
	fail(run, why);
	release_slot(run);
	finish(run);
}

/* --- the stock ---------------------------------------------------------------------------------------- */

static void fail_waiting(struct box_host *host, const char *why)
{
	struct list all;

	list_init(&all);
	list_splice_tail(&all, &host->waiting);
	while (!list_is_empty(&all)) {
		struct box_run *run = list_entry(list_first(&all), struct box_run, link);
		activate(run);
		fail(run, why);
		finish(run);
	}
}

static void on_slot_failure(struct box_host *host, const char *why)
{
	log_error(host->log, "box_slot", "failed=%u why=\"%s\"", host->failures + 1, why);
	free(host->why);
	host->why = mem_strdup(why);
	host->failures++;
	timer_start(&host->retry, backoff_next(&host->backoff, host->loop));
	if (host->failures >= FAILURES_MAX && host->n_active == 0 && host->n_ready == 0)
		fail_waiting(host, host->why);
}

static void on_slot_ready(void *arg, struct box_slot *slot, const char *why)
{
	struct making *making = arg;
	struct box_host *host = making->host;

	list_del(&making->link);
	host->n_making--;
	free(making);
	if (slot) {
		host->failures = 0;
		backoff_reset(&host->backoff);
		keep_slot(host, slot);
		loop_defer(host->loop, &host->dispatch);
	} else {
		on_slot_failure(host, why);
	}
}

static void break_down(struct box_host *host, const char *why)
{
	log_error(host->log, "box_broken", "why=\"%s\"", why);
	host->broken = mem_strdup(why);
	fail_waiting(host, host->broken);
}

/* Starts making one slot; false when it was not started. */
static bool make_slot(struct box_host *host)
{
	struct making *making = mem_alloc(sizeof(*making));
	int error;

	making->host = host;
	list_init(&making->link);
	error = host->ops->slot_open(host->box, on_slot_ready, making, &making->op);
	if (error == 0) {
		list_add_tail(&host->making, &making->link);
		host->n_making++;
		return true;
	}
	free(making);
	if (error == -EPIPE)
		break_down(host, host->why ? host->why : "the sandbox's helper has ended");
	else if (error == -EAGAIN)
		timer_start(&host->retry, backoff_next(&host->backoff, host->loop));
	else
		on_slot_failure(host, strerror(-error));
	return false;
}

static void refill(struct box_host *host)
{
	while (!host->broken && !timer_is_armed(&host->retry) &&
		host->n_ready + host->n_making < host->slots + 1) {
		if (!make_slot(host))
			return;
	}
}

static void on_dispatch(void *arg)
{
	struct box_host *host = arg;

	while (host->n_waiting > 0 && host->n_ready > 0 && host->n_active < host->slots)
		start(list_entry(list_first(&host->waiting), struct box_run, link));
	refill(host);
}

static void on_retry(void *arg)
{
	struct box_host *host = arg;

	refill(host);
}

/* --- public ------------------------------------------------------------------------------------------- */

int box_host_open(struct loop *loop, const struct box_ops *ops, const struct box_options *options,
	struct box_host **out, char **why)
{
	struct box_host *host;
	int error;

	*out = NULL;
	*why = NULL;
	if (options->slots == 0 || options->slots > BOX_SLOTS_MAX) {
		*why = mem_printf("slots must be 1 to %u", BOX_SLOTS_MAX);
		return -EINVAL;
	}
	host = mem_alloc(sizeof(*host));
	host->loop = loop;
	host->log = options->log;
	host->ops = ops;
	host->slots = options->slots;
	list_init(&host->waiting);
	list_init(&host->active);
	list_init(&host->ready);
	list_init(&host->making);
	defer_init(&host->dispatch, on_dispatch, host);
	timer_init(&host->retry, loop, on_retry, host);
	host->backoff = (struct backoff){.min_us = RETRY_MIN_US, .max_us = RETRY_MAX_US};
	error = ops->open(loop, options, &host->box, why);
	if (error < 0) {
		if (!*why)
			*why = mem_printf("cannot open the sandbox: %s", strerror(-error));
		free(host);
		return error;
	}
	loop_defer(loop, &host->dispatch);
	*out = host;
	return 0;
}

static void forget_runs(struct list *runs)
{
	list_each_safe (it, runs) {
		struct box_run *run = list_entry(it, struct box_run, link);
		run_quiet(run);
		list_del(&run->link);
		loop_free_later(run->host->loop, run_free, run);
	}
}

void box_host_close(struct box_host *host)
{
	if (!host)
		return;
	defer_cancel(&host->dispatch);
	timer_stop(&host->retry);
	list_each_safe (it, &host->making) {
		struct making *making = list_entry(it, struct making, link);
		op_cancel(&making->op);
		list_del(&making->link);
		free(making);
	}
	while (host->n_ready > 0)
		host->ops->slot_close(take_slot(host));
	list_each (it, &host->active) {
		struct box_run *run = list_entry(it, struct box_run, link);
		if (run->slot)
			host->ops->slot_close(run->slot);
		run->slot = NULL;
	}
	host->ops->close(host->box);
	forget_runs(&host->active);
	forget_runs(&host->waiting);
	free(host->why);
	free(host->broken);
	free(host);
}

const char *box_host_isolation(const struct box_host *host)
{
	const char *why;

	return host->ops->describe ? host->ops->describe(host->box, &why) : host->ops->isolation;
}

const char *box_host_shortfall(const struct box_host *host)
{
	const char *why = "";

	if (host->ops->describe)
		host->ops->describe(host->box, &why);
	return why;
}

const char *box_host_failure(const struct box_host *host)
{
	return host->broken;
}

static void init_stream(struct box_run *run, int number, int64_t allowed)
{
	struct stream *s = &run->streams[number - 1];

	s->run = run;
	s->fd = -1;
	s->number = number;
	s->allowed = allowed;
}

int box_run(struct box_host *host, const struct box_spec *spec, const struct box_events *events,
	void *arg, struct box_run **out)
{
	struct box_run *run;
	int error = check_spec(spec);

	*out = NULL;
	if (error < 0)
		return error;
	if (host->broken)
		return -EPIPE;
	if (host->n_waiting >= WAITING_MAX)
		return -EAGAIN;
	run = mem_alloc(sizeof(*run));
	run->host = host;
	run->events = *events;
	run->arg = arg;
	run->end.files_fd = -1;
	error = copy_spec(&run->spec, spec);
	if (error < 0) {
		free(run);
		return error;
	}
	init_stream(run, 1, spec->limits.output_bytes);
	init_stream(run, 2, STDERR_DELIVERED_MAX);
	timer_init(&run->deadline, host->loop, on_deadline, run);
	timer_init(&run->wall, host->loop, on_wall, run);
	timer_init(&run->cpu, host->loop, on_cpu, run);
	list_init(&run->link);
	list_add_tail(&host->waiting, &run->link);
	host->n_waiting++;
	loop_defer(host->loop, &host->dispatch);
	*out = run;
	return 0;
}

static void on_finish_soon(void *arg)
{
	finish(arg);
}

/* From the loop, like every completion. */
static void finish_soon(struct box_run *run)
{
	timer_stop(&run->deadline);
	timer_init(&run->deadline, run->host->loop, on_finish_soon, run);
	timer_start(&run->deadline, 0);
}

void box_run_kill(struct box_run *run)
{
	if (run->killed)
		return;
	run->killed = true;
	if (run->state == RUN_WAITING) {
		activate(run);
		run->end.status = -1;
		enter(run, RUN_DRAINING);
		finish_soon(run);
	} else if (run->state == RUN_STARTING || run->state == RUN_RUNNING ||
		   run->state == RUN_DEAD) {
		kill_slot(run);
	}
}

void box_run_cancel(struct box_run **runp)
{
	struct box_run *run = *runp;

	*runp = NULL;
	if (!run)
		return;
	run->cancelled = true;
	stream_close(&run->streams[0]);
	stream_close(&run->streams[1]);
	if (run->state == RUN_DRAINING)
		finish_soon(run);
	else
		box_run_kill(run);
}
