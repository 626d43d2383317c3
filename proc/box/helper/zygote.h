/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zygote - pid 1 of a slot: finishes its mounts, says READY, takes one RUN from the executor, and stays until it is
 * killed. Everything in the slot dies with it.
 */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proc/box/cgroup.h"

struct zygote {
	int socket;     /* the slot's end */
	int life;       /* read end of a pipe whose write end only conclave-box has */
	uid_t id;       /* of the programs, as they see themselves */
	uid_t outer_id; /* the same in our numbers: another one in a user namespace */
	bool user;      /* an ordinary user's: in a user namespace */
	bool one_id;    /* ... in which we are number 0 and so is the program */
	int stop; /* read end: EOF asks to kill everything, publish what it used, and exit. -1: we are killed instead */
	const struct cgroup_ops *cgroup;
	struct cgroup_leaf leaf;
	struct sock_fprog filter;
};

/* Runs in the fresh namespaces. */
_Noreturn void zygote_main(struct zygote *z);
