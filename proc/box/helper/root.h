/* SPDX-License-Identifier: Apache-2.0 */
/*
 * root - what a program sees of the host: built once, in a mount namespace of our own that we then live in. A slot's
 * mount namespace is a copy of it, so making a slot costs only the mounts that are its own.
 */
#pragma once

#include <sys/types.h>

#include "reactor/base/check.h"

#define ROOT_WHY_MAX 256

/* Unshares our mount namespace, builds the tree, makes it our root and lets go of the host's file systems.
 * passwd gets a line for each of n uids from uid_base. 0, or -errno with *why in words. */
int root_enter(uid_t uid_base, unsigned n, char why[ROOT_WHY_MAX]) must_check;
/* In a slot's fresh namespaces (mount, pid, uts): proc, the writable space, the host's name. On success *proc_fd is
 * a writable view of the slot's /proc that nobody else can reach. */
int root_finish_slot(int *proc_fd, char why[ROOT_WHY_MAX]) must_check;
/* Resizes the writable space. */
int root_resize(long long bytes, long inodes) must_check;
