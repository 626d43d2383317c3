/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program - the step from pid 1 of a slot to the hostile program, in two halves: a launcher that is made with the slot, joins
 * the control groups (which can take the kernel many milliseconds, so no run should wait for it) and gives up everything;
 * and, with a run, its taking the descriptors and limits, loading the filter and exec.
 */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proc/box/cgroup.h"

struct program {
	/* for program_prepare() */
	const struct cgroup_leaf *leaf;
	uid_t id;           /* uid and gid */
	bool own_namespace; /* it gets a user namespace, in which `id` is ... */
	uid_t outer_id;     /* ... this number of ours */
	bool keeps_groups;  /* the kernel lets nobody drop the user's other groups there */
	int proc_fd;        /* writable view of the slot's /proc */
	/* for program_start() */
	char *const *argv; /* names without a slash are looked up in PROGRAM_PATH */
	char *const *envp;
	int stdio[3];
	int64_t cpu_us, file_bytes, stack_bytes;
	int64_t processes; /* kept by RLIMIT_NPROC; 0: by a control group */
	const struct sock_fprog *filter;

	/* out */
	const char *step;   /* the step of ours that failed; NULL when exec was reached */
	int error;          /* its errno */
	int64_t own_cpu_us; /* what the launcher itself used in the control group */

	/* private: shared with the launcher */
	int64_t unjoined_cpu_us;
	pid_t pid;
	int tid;    /* futex; the kernel clears it at exec or death */
	int mapped; /* futexes */
	int ready;
	int go;
};

#define PROGRAM_PATH "/usr/local/bin", "/usr/bin", "/bin"

/* In pid 1, once: empties the bounding set, locks the secure bits, makes the launcher. 0, or -errno with step set. The
 * struct must stay where it is. The caller is single-threaded. */
int program_prepare(struct program *program) must_check;
/* The program's pid when it runs (or has said on its stderr why it could not be executed and exits 126 or 127, as a
 * shell would); -1 with step and error set when we failed. */
pid_t program_start(struct program *program) must_check;
