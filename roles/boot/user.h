/* SPDX-License-Identifier: Apache-2.0 */
/*
 * user - the account services run as when they were started as root, and how the root is given up for good.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "reactor/base/check.h"

struct user {
	char name[65]; /* as written: a name or a number */
	uid_t uid;
	gid_t gid;
};

#define USER_E_UNKNOWN 1

/* A name of the password file, or a uid in digits (its group is the account's, or the same number). */
int user_find(const char *text, struct user *out) must_check;
/* For good, verified: groups, gid and uid; nothing when we are not root or user is root. Then no_new_privs. The
 * parent-death signal is cleared by the kernel on the way and set again; *orphaned = the parent died meanwhile (exit!).
 * 0 or -errno, and then the process must end: it may be half way. */
int user_drop(const struct user *user, pid_t parent, bool *orphaned) must_check;
