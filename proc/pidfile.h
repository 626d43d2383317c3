/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pidfile - a pid in a file, and the advisory lock that says who may touch the service.
 *
 * Locks are open-file-description locks (fcntl F_OFD_SETLK): they follow the descriptor, not the process, and
 * do not survive it. Locks have no unlock event: try again. The file is its owner's alone (0600): whoever may read it may lock it.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "reactor/base/check.h"

#define PIDFILE_E_LOCKED 1

/* Takes the lock (the file is made when missing, and made 0600 when it is ours); the descriptor holds it. 0, PIDFILE_E_LOCKED or -errno. */
int pidfile_lock(const char *path, int *fd) must_check;
/* Writes pid and a newline through a locked descriptor; a reader never sees half a number. */
int pidfile_write(int fd, pid_t pid) must_check;
void pidfile_unlock(int *fd); /* closes; -1 after it; -1 is fine */
/* Writes "-1" without taking the lock: what the lock guards is the start of the service, not the number, and a
 * holder must be able to see that the service is dead. Makes the file when missing. */
int pidfile_clear(const char *path) must_check;
/* The pid in the file, or -1 when there is none (missing, empty, "-1", garbage). */
pid_t pidfile_read(const char *path);
/* Kills (SIGKILL, and waits until it is gone, at most 2 s) the process named in the file, if its executable is
 * `exe` (real path, also when replaced on disk since) and `arg` is one of its arguments (so a recycled pid
 * never hits another instance): what a crashed boot left. One that is on its way out already, whosever, is waited for
 * likewise: it may have an address until it is gone. True when something was killed. */
bool pidfile_kill_leftover(const char *path, const char *exe, const char *arg);
