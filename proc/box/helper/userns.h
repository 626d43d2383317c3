/* SPDX-License-Identifier: Apache-2.0 */
/*
 * userns - what conclave-box is when an ordinary user starts it: root of a user namespace of its own. Number 0 in it is that
 * user; numbers from 1 on are his subordinate ids, when he has any and newuidmap is there to hand them out. Programs get one
 * more namespace each, which has a single number in it.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "reactor/base/check.h"

#define USERNS_WHY_MAX 512

struct userns {
	bool entered; /* false: we are the host's root, and nothing below matters */
	uid_t uid;    /* who started us, in numbers of the host */
	unsigned
		n_ids; /* numbers 1 to n_ids are ours too; 0: programs run as number 0, with nothing to tell them from us */
	char why_one_id[200]; /* with n_ids 0: "what is missing: what to type" */
};

/* Nothing for root. Else enters one; afterwards we have every right over what is made in it and none over the host. 0, or -errno
 * with *why saying what to type. The process is single-threaded and dumpable (the kernel gives /proc/self to root otherwise). */
int userns_enter(struct userns *u, char why[USERNS_WHY_MAX]) must_check;
/* Gives the fresh namespace of process `pid` its only number: `inner` there is `outer` here, user and group. proc_fd is our /proc.
 * 0 or -errno. */
int userns_map_one(int proc_fd, pid_t pid, uid_t inner, uid_t outer) must_check;
