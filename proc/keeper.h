/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper - keeps one service process running: start, restart with backoff, held while somebody has its pid file's
 * lock, ordered stop. Boot has one keeper a service (proc/README.md).
 *
 *   IDLE -> STARTING -> RUNNING -> (death) -> STARTING or BACKOFF -> STARTING ...
 *   STARTING -> HELD (the lock is somebody's; asked again every 100 ms) -> STARTING
 *   any -> STOPPED, over STOPPING (SIGTERM, stop_timeout) and KILLING (SIGKILL) when it runs
 *
 * Backoff (100 ms doubling to 30 s) counts only deaths within a second of the start; a service that exits with
 * KEEPER_EXIT_FENCED takes the longest backoff at once.
 */
#pragma once

#include "proc/child.h"

struct log;
struct keeper;

#define KEEPER_EXIT_FENCED 75 /* "another process of my name is alive": EX_TEMPFAIL */

struct keeper_options {
	const char *name;        /* service name: log lines, pid file; copied */
	const char *pid_file;    /* path; copied */
	struct spawn_spec spawn; /* deep-copied; death_signal is forced to SIGKILL */
	int64_t stop_timeout_us; /* 0 = SIGKILL follows SIGTERM on the next turn */
	struct log *log;         /* borrowed; the service's stderr and stdout lines go there too */
	/* Borrowed: where the service's lines that are our log lines already go as they are (proc/output.h);
	 * -1 = to log, wrapped. */
	int pass_fd;
	/* When it runs (its pid) and when it has ended (-1); not from keeper_free(), and not the place to call that. NULL = nothing. */
	void (*on_change)(void *arg, pid_t pid);
	void *arg;
};

struct keeper_status {
	const char *state; /* fsm state name */
	pid_t pid;         /* -1 when not running */
	unsigned restarts; /* deaths so far that nobody asked for */
};

/* Writes -1 to the pid file and starts keeping on the next turn. */
struct keeper *keeper_new(struct loop *loop, const struct keeper_options *options) must_check;
/* Stops the service; on_stopped(arg) comes once, from the loop, also when it was not running. Once only. */
void keeper_stop(struct keeper *keeper, void (*on_stopped)(void *arg), void *arg);
void keeper_get_status(const struct keeper *keeper, struct keeper_status *out);
/* Kills the service if it still runs, and calls back no more. Legal inside on_stopped. NULL is fine. */
void keeper_free(struct keeper *keeper);
/* For the next stop. */
void keeper_set_stop_timeout(struct keeper *keeper, int64_t stop_timeout_us);
/* Passes a signal on to the running service (SIGHUP). */
void keeper_signal(struct keeper *keeper, int signum);
