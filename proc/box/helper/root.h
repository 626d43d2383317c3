/* SPDX-License-Identifier: Apache-2.0 */
/*
 * root - what a program sees of the host: built once, in a mount namespace of our own that we then live in. A slot's
 * mount namespace is a copy of it, so making a slot costs only the mounts that are its own.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "reactor/base/check.h"

#define ROOT_WHY_MAX 256

/* Unshares our mount namespace, builds the tree over `base` (a directory, which stays as it is for everybody else; NULL: root's own),
 * makes it our root and lets go of the host's file systems. passwd gets a line for each of n uids from uid_base. A user namespace
 * may mount a proc of its own only where it sees one: with_proc leaves the host's there, for root_finish_slot() to take away.
 * 0, or -errno with *why in words. */
int root_enter(const char *base, bool with_proc, uid_t uid_base, unsigned n,
	char why[ROOT_WHY_MAX]) must_check;
/* In a slot's fresh namespaces (mount, pid, uts): proc, the writable space, the host's name. On success *proc_fd is
 * a writable view of the slot's /proc that nobody else can reach. with_proc as for root_enter(). */
int root_finish_slot(bool with_proc, int *proc_fd, char why[ROOT_WHY_MAX]) must_check;
/* Resizes the writable space. */
int root_resize(long long bytes, long inodes) must_check;
