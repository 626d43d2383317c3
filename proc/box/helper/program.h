/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program - the step from pid 1 of a slot to the hostile program: a vfork-style child that joins the control groups,
 * gives up everything, loads the filter and execs.
 */
#pragma once

#include <linux/filter.h>
#include <stdint.h>
#include <sys/types.h>

#include "proc/box/cgroup.h"

struct program {
	char *const *argv; /* "" and names without a slash are looked up in PROGRAM_PATH */
	char *const *envp;
	int stdio[3];
	int64_t cpu_us, file_bytes, stack_bytes;
	uint64_t core_limit;
	uid_t id; /* uid and gid */
	const struct cgroup_leaf *leaf;
	const struct sock_fprog *filter;
	int proc_fd; /* writable view of the slot's /proc */

	/* out: the step of ours that failed, and its errno; NULL when exec was reached */
	const char *step;
	int error;
};

#define PROGRAM_PATH "/usr/local/bin", "/usr/bin", "/bin"

/* Returns the child's pid when the program runs (or has said on its stderr why it could not be executed and exits
 * 126 or 127, as a shell would); -1 with step and error set when we failed. The caller is single-threaded. */
pid_t program_start(struct program *program) must_check;
/* In pid 1, once: what needs no repetition for each program. Empties the bounding set, locks the secure bits. 0 or -errno. */
int program_prepare(void) must_check;
