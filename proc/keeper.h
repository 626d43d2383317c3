/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper - keeps one service process running: start, restart with backoff, held while somebody has its pid file's
 * lock, ordered stop. The algorithm of design section 7; boot has one keeper a service.
 *
 *   IDLE -> STARTING -> RUNNING -> (death) -> BACKOFF -> STARTING ...        HELD: the lock is somebody's
 *   any -> STOPPING (SIGTERM, after stop_timeout SIGKILL) -> STOPPED
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
	const char *name;      /* service name: log lines, pid file */
	const char *pid_file;  /* path */
	struct spawn_spec spawn; /* deep-copied; death_signal is forced to SIGKILL */
	int64_t stop_timeout_us;
	struct log *log; /* borrowed; the service's stderr and stdout lines go there too */
};

struct keeper_status {
	const char *state; /* fsm state name */
	pid_t pid;         /* -1 when not running */
	unsigned restarts;
};

/* Writes -1 to the pid file and starts keeping on the next turn. */
struct keeper *keeper_new(struct loop *loop, const struct keeper_options *options);
/* Stops the service; on_stopped(arg) comes once, also when it was not running. */
void keeper_stop(struct keeper *keeper, void (*on_stopped)(void *arg), void *arg);
void keeper_get_status(const struct keeper *keeper, struct keeper_status *out);
void keeper_free(struct keeper *keeper); /* kills the service if it still runs; NULL is fine */
/* Passes a signal on to the running service (SIGHUP). */
void keeper_signal(struct keeper *keeper, int signum);
