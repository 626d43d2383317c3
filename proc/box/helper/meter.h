/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meter - what control groups would count, counted by the pid 1 of a slot: CPU time and memory of everything in its pid namespace.
 * Second best (meter.c says where): it looks every few milliseconds, so it is late by so much.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proc/box/cgroup.h"
#include "reactor/base/check.h"

struct meter_process {
	pid_t pid;
	int64_t own_us;  /* of its threads, those that ended too */
	int64_t kids_us; /* of the children it has waited for; whole clock ticks */
};

struct meter_list {
	struct meter_process *of;
	unsigned n, room;
};

struct meter_limits {
	int64_t cpu_us; /* ours, in the counter before the program's, included */
	int64_t memory_bytes;
	int64_t processes;
};

struct meter {
	int proc_fd;
	int out; /* where figures are published; borrowed */
	struct meter_limits limits;
	int64_t given_bytes; /* in the writable space before the program started */
	struct meter_list seen, before;
	/* CPU time of those that have gone, as last seen, and what has come back of it through their parents */
	int64_t gone_us, returned_us;
	int64_t reaped_us;    /* by us, at the last look */
	int64_t file_bytes;   /* most file pages seen mapped: in ru_maxrss, but nobody's memory */
	int64_t machine_ooms; /* of the whole machine, before */
	unsigned calls;
	struct cgroup_sample sample;
};

/* Before the program starts, with its files laid out. Its memory goes with the process. */
void meter_init(struct meter *m, int proc_fd, int out, const struct meter_limits *limits);
/* Looks, and publishes. Microseconds until the next look; 0: a limit has been passed, everything must be killed. */
int64_t meter_look(struct meter *m) must_check;
/* After the last process has been reaped: the final figures. `killed`: the program ended by a SIGKILL. */
void meter_finish(struct meter *m, bool killed);
