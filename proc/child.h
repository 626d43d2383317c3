/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child - one running child process as a loop object: done when it is reaped and its pipes are at EOF (or
 * the group is known dead), both. Exit comes by pidfd; there is no SIGCHLD handler and no child table.
 *
 * When the child ends, what is left of its process group is killed before it is reaped: nothing it started runs on
 * behind our back, unless it left the group (setsid), which only a box can prevent.
 */
#pragma once

#include <stdint.h>

#include "proc/spawn.h"
#include "reactor/base/str.h"

struct loop;
struct child;

struct child_exit {
	bool signaled;
	int code;       /* exit code, or the signal */
	int64_t cpu_us; /* rusage of the child and the descendants it waited for */
	int64_t max_rss_bytes;
};

struct child_options {
	/* new_session is forced on, so that the whole group can be killed. */
	struct spawn_spec spawn;
	int stdin_fd; /* borrowed, -1 = /dev/null */
	/* By pipe, to on_output. */
	bool capture_out, capture_err;
	/* Bytes; the byte after it is counted, on_full is called once, and the rest is read and dropped; 0 = no
	 * limit. */
	int64_t out_max, err_max;
};

struct child_events {
	/* stream 1 or 2; never more than max bytes in all. */
	void (*on_output)(void *arg, int stream, struct str bytes);
	void (*on_full)(void *arg, int stream);
	/* Once, when reaped and drained. The child may be freed inside (it is still the owner's to free). */
	void (*on_exit)(void *arg, const struct child_exit *exit);
};

/* 0, or -errno (step names what failed, may be NULL). Inputs are copied. */
int child_start(struct loop *loop, const struct child_options *options,
	const struct child_events *events, void *arg, struct child **out,
	const char **step) must_check;
pid_t child_pid(const struct child *child);
/* Signal to the child only. */
void child_signal(struct child *child, int signum);
/* SIGKILL to the child and its whole session's group; on_exit still comes. Pipes held open by escaped
 * grandchildren are given up 1 s after the reaping. */
void child_kill(struct child *child);
/* Kills and forgets: no callback; reaping goes on behind the scenes until done (some turns of the loop). Legal inside
 * the callbacks. NULL is fine. */
void child_free(struct child *child);
