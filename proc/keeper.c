/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * One keeper, one service, at most one child. The keeper is the only writer of the pid file. It holds the file's lock
 * from the moment it decides to start until the new pid is in the file, so whoever takes the lock afterwards (an
 * administrator with `conclave hold`) reads the pid of the running process, and knows that no other will be
 * started until the lock is dropped. Locks have no unlock event: HELD asks again every HOLD_POLL_US.
 *
 * A death is known at once, by the child's pidfd. The next state depends on how long the service had lived: a second
 * or more, and it starts again immediately; less, and BACKOFF waits, each time longer. A spawn that fails
 * counts as such a death.
 *
 * The lock is held inside enter_starting() and nowhere else; a death is written without it, since what it guards is
 * the start, and its holder should see that the service has gone.
 */
#include "proc/keeper.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "proc/output.h"
#include "proc/pidfile.h"
#include "reactor/base/clock.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "reactor/fsm.h"
#include "reactor/loop.h"

#define HOLD_POLL_US (100 * US_PER_MS)
#define BACKOFF_MIN_US (100 * US_PER_MS)
#define BACKOFF_MAX_US (30 * US_PER_S)
#define EARLY_US (1 * US_PER_S)
#define KILL_TIMEOUT_US (10 * US_PER_S)

enum keeper_state {
	KEEPER_IDLE,
	KEEPER_STARTING,
	KEEPER_HELD,
	KEEPER_RUNNING,
	KEEPER_BACKOFF,
	KEEPER_STOPPING,
	KEEPER_KILLING,
	KEEPER_STOPPED,
};

struct keeper {
	struct fsm fsm;
	struct loop *loop;
	struct log *log;
	char *name, *pid_file;
	struct spawn_spec spawn;
	int64_t stop_timeout_us;
	struct defer start;     /* IDLE */
	struct child *child;    /* RUNNING, STOPPING, KILLING */
	int64_t started_us;     /* RUNNING */
	struct backoff backoff; /* how long BACKOFF waits the next time */
	struct output out, err;
	unsigned restarts;
	void (*on_change)(void *arg, pid_t pid);
	void *on_change_arg;
	void (*on_stopped)(void *arg); /* set by keeper_stop(), until called */
	void *on_stopped_arg;
	struct defer stopped; /* STOPPED */
};

/* --- the pid file -------------------------------------------------------------------------------- */

static void log_failure(struct keeper *k, const char *step, int error)
{
	log_error(k->log, "service-failed", "service=%s step=%s error=\"%s\"", k->name, step,
		strerror(-error));
}

static void clear_pid(struct keeper *k)
{
	int error = pidfile_clear(k->pid_file);

	if (error)
		log_failure(k, "clear-pid-file", error);
}

/* --- starting ------------------------------------------------------------------------------------ */

static void on_output(void *arg, int stream, struct str bytes)
{
	struct keeper *k = arg;

	output_add(stream == 1 ? &k->out : &k->err, bytes);
}

static void on_exit_child(void *arg, const struct child_exit *exit);

static const struct child_events keeper_child_events = {
	.on_output = on_output,
	.on_exit = on_exit_child,
};

static int start_child(struct keeper *k)
{
	struct child_options options = {
		.spawn = k->spawn,
		.stdin_fd = -1,
		.capture_out = true,
		.capture_err = true,
	};
	const char *step = "";
	int error = child_start(k->loop, &options, &keeper_child_events, k, &k->child, &step);

	if (error)
		log_error(k->log, "service-failed", "service=%s step=spawn-%s error=\"%s\"",
			k->name, step ? step : "", strerror(-error));
	return error;
}

static int back_off(struct keeper *k, bool longest)
{
	if (longest)
		k->backoff.next_us = BACKOFF_MAX_US;
	return KEEPER_BACKOFF;
}

static int enter_starting(void *owner)
{
	struct keeper *k = owner;
	int lock, error = pidfile_lock(k->pid_file, &lock);

	if (error == PIDFILE_E_LOCKED)
		return KEEPER_HELD;
	if (error) {
		log_failure(k, "lock", error);
		return back_off(k, false);
	}
	error = start_child(k);
	if (!error) {
		/* A full disk must not keep a service down: say it and go on. */
		error = pidfile_write(lock, child_pid(k->child));
		if (error)
			log_failure(k, "write-pid-file", error);
		error = 0;
	}
	pidfile_unlock(&lock);
	return error ? back_off(k, false) : KEEPER_RUNNING;
}

static int enter_held(void *owner)
{
	struct keeper *k = owner;

	log_info(k->log, "service-held", "service=%s pid_file=%s", k->name, k->pid_file);
	return FSM_WAIT;
}

static void on_hold_poll(void *owner)
{
	struct keeper *k = owner;
	int lock, error = pidfile_lock(k->pid_file, &lock);

	pidfile_unlock(&lock);
	if (error == PIDFILE_E_LOCKED)
		fsm_set_deadline(&k->fsm, HOLD_POLL_US);
	else
		fsm_go(&k->fsm, KEEPER_STARTING, "released");
}

/* --- running, and its end ------------------------------------------------------------------------ */

static void report_change(struct keeper *k, pid_t pid)
{
	if (k->on_change)
		k->on_change(k->on_change_arg, pid);
}

static int enter_running(void *owner)
{
	struct keeper *k = owner;

	k->started_us = loop_now_exact_us(k->loop);
	log_info(k->log, "service-started", "service=%s pid=%d", k->name, (int)child_pid(k->child));
	report_change(k, child_pid(k->child));
	return FSM_WAIT;
}

static void log_exit(struct keeper *k, const struct child_exit *exit, int64_t lived_us)
{
	bool wanted = k->fsm.state == KEEPER_STOPPING || k->fsm.state == KEEPER_KILLING;

	log_at(k->log, wanted ? LOG_INFO : LOG_WARN, "service-exited",
		"service=%s pid=%d %s=%d lived_ms=%lld cpu_ms=%lld max_rss_kb=%lld", k->name,
		(int)child_pid(k->child), exit->signaled ? "signal" : "exit_code", exit->code,
		(long long)(lived_us / US_PER_MS), (long long)(exit->cpu_us / US_PER_MS),
		(long long)(exit->max_rss_bytes / 1024));
}

static void after_death(struct keeper *k, const struct child_exit *exit, int64_t lived_us)
{
	bool fenced = !exit->signaled && exit->code == KEEPER_EXIT_FENCED;

	k->restarts++;
	if (fenced) {
		fsm_go(&k->fsm, back_off(k, true), "fenced");
		return;
	}
	if (lived_us < EARLY_US) {
		fsm_go(&k->fsm, back_off(k, false), "early-death");
		return;
	}
	backoff_reset(&k->backoff);
	fsm_go(&k->fsm, KEEPER_STARTING, "death");
}

static void drop_child(struct keeper *k)
{
	output_end(&k->out);
	output_end(&k->err);
	child_free(take_ptr(&k->child));
	clear_pid(k);
}

static void on_exit_child(void *arg, const struct child_exit *exit)
{
	struct keeper *k = arg;
	int64_t lived_us = loop_now_exact_us(k->loop) - k->started_us;

	log_exit(k, exit, lived_us);
	drop_child(k);
	report_change(k, -1);
	if (k->fsm.state == KEEPER_RUNNING)
		after_death(k, exit, lived_us);
	else
		fsm_go(&k->fsm, KEEPER_STOPPED, "exit");
}

static int enter_backoff(void *owner)
{
	struct keeper *k = owner;
	int64_t delay_us = backoff_next(&k->backoff, k->loop);

	log_warn(k->log, "service-backoff", "service=%s delay_ms=%lld", k->name,
		(long long)(delay_us / US_PER_MS));
	fsm_set_deadline(&k->fsm, delay_us);
	return FSM_WAIT;
}

static void on_backoff_over(void *owner)
{
	struct keeper *k = owner;

	fsm_go(&k->fsm, KEEPER_STARTING, "backoff-over");
}

/* --- stopping ------------------------------------------------------------------------------------ */

static int enter_stopping(void *owner)
{
	struct keeper *k = owner;

	child_signal(k->child, SIGTERM);
	fsm_set_deadline(&k->fsm, k->stop_timeout_us > 0 ? k->stop_timeout_us : 1);
	return FSM_WAIT;
}

static void on_stop_timeout(void *owner)
{
	struct keeper *k = owner;

	log_warn(k->log, "service-killed", "service=%s reason=stop_timeout", k->name);
	fsm_go(&k->fsm, KEEPER_KILLING, "stop-timeout");
}

static int enter_killing(void *owner)
{
	struct keeper *k = owner;

	child_kill(k->child);
	return FSM_WAIT;
}

/* Only a process stuck in the kernel outlives SIGKILL this long; it may not hold up the others' stop. */
static void on_kill_timeout(void *owner)
{
	struct keeper *k = owner;

	log_error(k->log, "service-stuck", "service=%s pid=%d", k->name, (int)child_pid(k->child));
	drop_child(k);
	report_change(k, -1);
	fsm_go(&k->fsm, KEEPER_STOPPED, "kill-timeout");
}

static int enter_stopped(void *owner)
{
	struct keeper *k = owner;

	loop_defer(k->loop, &k->stopped);
	return FSM_WAIT;
}

static void report_stopped(void *arg)
{
	struct keeper *k = arg;

	k->on_stopped(k->on_stopped_arg);
}

/* --- the table ----------------------------------------------------------------------------------- */

static const struct fsm_state keeper_states[] = {
	[KEEPER_IDLE] =
		{
			.name = "idle",
			.next = FSM_BIT(KEEPER_STARTING) | FSM_BIT(KEEPER_STOPPED),
		},
	[KEEPER_STARTING] =
		{
			.name = "starting",
			.enter = enter_starting,
			.next = FSM_BIT(KEEPER_HELD) | FSM_BIT(KEEPER_RUNNING) |
				FSM_BIT(KEEPER_BACKOFF),
		},
	[KEEPER_HELD] =
		{
			.name = "held",
			.enter = enter_held,
			.deadline_us = HOLD_POLL_US,
			.on_deadline = on_hold_poll,
			.next = FSM_BIT(KEEPER_STARTING) | FSM_BIT(KEEPER_STOPPED),
		},
	[KEEPER_RUNNING] =
		{
			.name = "running",
			.enter = enter_running,
			.next = FSM_BIT(KEEPER_STARTING) | FSM_BIT(KEEPER_BACKOFF) |
				FSM_BIT(KEEPER_STOPPING),
		},
	[KEEPER_BACKOFF] =
		{
			.name = "backoff",
			.enter = enter_backoff,
			.deadline_us = BACKOFF_MAX_US,
			.on_deadline = on_backoff_over,
			.next = FSM_BIT(KEEPER_STARTING) | FSM_BIT(KEEPER_STOPPED),
		},
	[KEEPER_STOPPING] =
		{
			.name = "stopping",
			.enter = enter_stopping,
			.deadline_us = KILL_TIMEOUT_US,
			.on_deadline = on_stop_timeout,
			.next = FSM_BIT(KEEPER_KILLING) | FSM_BIT(KEEPER_STOPPED),
		},
	[KEEPER_KILLING] =
		{
			.name = "killing",
			.enter = enter_killing,
			.deadline_us = KILL_TIMEOUT_US,
			.on_deadline = on_kill_timeout,
			.next = FSM_BIT(KEEPER_STOPPED),
		},
	[KEEPER_STOPPED] =
		{
			.name = "stopped",
			.enter = enter_stopped,
		},
};

static const struct fsm_table keeper_table = {
	.machine = "service",
	.states = keeper_states,
	.n_states = ARRAY_SIZE(keeper_states),
	.level =
		LOG_DEBUG, /* what a person wants to know of each is logged by the enter functions */
};

/* --- life ---------------------------------------------------------------------------------------- */

static char **strings_copy(char *const *strings)
{
	size_t n = 0;
	char **copy;

	while (strings && strings[n])
		n++;
	copy = mem_array(n + 1, sizeof(*copy));
	for (size_t i = 0; i < n; i++)
		copy[i] = mem_strdup(strings[i]);
	return copy;
}

static void strings_free(char *const *strings)
{
	for (size_t i = 0; strings[i]; i++)
		free(strings[i]);
	free((void *)strings);
}

static void spec_copy(struct spawn_spec *to, const struct spawn_spec *from)
{
	*to = *from;
	to->path = mem_strdup(from->path);
	to->argv = strings_copy(from->argv);
	to->envp = strings_copy(from->envp);
	to->dir = mem_strdup(from->dir);
	to->death_signal = SIGKILL;
}

static void spec_free(struct spawn_spec *spec)
{
	free((void *)spec->path);
	strings_free(spec->argv);
	strings_free(spec->envp);
	free((void *)spec->dir);
}

static void start_keeping(void *arg)
{
	struct keeper *k = arg;

	fsm_go(&k->fsm, KEEPER_STARTING, "new");
}

struct keeper *keeper_new(struct loop *loop, const struct keeper_options *options)
{
	struct keeper *k = mem_alloc(sizeof(*k));

	k->loop = loop;
	k->log = options->log;
	k->name = mem_strdup(options->name);
	k->pid_file = mem_strdup(options->pid_file);
	spec_copy(&k->spawn, &options->spawn);
	k->stop_timeout_us = options->stop_timeout_us;
	k->on_change = options->on_change;
	k->on_change_arg = options->arg;
	k->backoff = (struct backoff){.min_us = BACKOFF_MIN_US, .max_us = BACKOFF_MAX_US};
	output_init(&k->out, k->name, k->log, options->pass_fd, LOG_INFO);
	output_init(&k->err, k->name, k->log, options->pass_fd, LOG_WARN);
	fsm_init(&k->fsm, &keeper_table, loop, k->log, k->name, k, KEEPER_IDLE);
	defer_init(&k->start, start_keeping, k);
	defer_init(&k->stopped, report_stopped, k);
	clear_pid(k);
	loop_defer(loop, &k->start);
	return k;
}

void keeper_stop(struct keeper *k, void (*on_stopped)(void *arg), void *arg)
{
	CHECK(!k->on_stopped && on_stopped);
	k->on_stopped = on_stopped;
	k->on_stopped_arg = arg;
	defer_cancel(&k->start);
	fsm_go(&k->fsm, k->child ? KEEPER_STOPPING : KEEPER_STOPPED, "stop");
}

void keeper_get_status(const struct keeper *k, struct keeper_status *out)
{
	out->state = fsm_state_name(&k->fsm, k->fsm.state);
	out->pid = k->child ? child_pid(k->child) : -1;
	out->restarts = k->restarts;
}

void keeper_set_stop_timeout(struct keeper *k, int64_t stop_timeout_us)
{
	k->stop_timeout_us = stop_timeout_us;
}

void keeper_signal(struct keeper *k, int signum)
{
	if (k->child)
		child_signal(k->child, signum);
}

static void keeper_release(void *p)
{
	struct keeper *k = p;

	output_fini(&k->out);
	output_fini(&k->err);
	spec_free(&k->spawn);
	free(k->name);
	free(k->pid_file);
	free(k);
}

void keeper_free(struct keeper *k)
{
	if (!k)
		return;
	defer_cancel(&k->start);
	defer_cancel(&k->stopped);
	fsm_fini(&k->fsm);
	if (k->child)
		drop_child(k);
	/* We may be inside one of its own callbacks. */
	loop_free_later(k->loop, keeper_release, k);
}
