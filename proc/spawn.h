/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawn - starts a process without ever fork()ing the caller's memory: a vfork-style clone
 * (CLONE_VM | CLONE_VFORK | CLONE_PIDFD, own stack, signal handlers cleared), whose cost does not grow with
 * our size. All code between clone and exec is in spawn.c and async-signal-safe; what fails there comes
 * back to the caller as a negative errno with the step's name.
 *
 * Only from the loop's thread. The child dies with its parent: PR_SET_PDEATHSIG is set last before exec (credentials
 * changes clear it) and getppid() is checked after it.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "reactor/base/check.h"

#define SPAWN_FDS_MAX 16

struct spawn_fd {
	int from; /* our descriptor (borrowed) */
	int to;   /* its number in the child */
};

struct spawn_limit {
	int resource; /* RLIMIT_* */
	unsigned long long soft, hard;
};

struct spawn_spec {
	const char *path;  /* program; NULL = argv[0]; no PATH search */
	int path_fd;       /* executed with execveat when > 0, instead of path */
	char *const *argv; /* NULL-terminated */
	char *const *envp; /* NULL-terminated; NULL = empty environment */
	const char *dir;   /* working directory, or NULL */
	struct spawn_fd
		fds[SPAWN_FDS_MAX]; /* all others are closed; 0, 1, 2 default to /dev/null */
	unsigned n_fds;
	struct spawn_limit limits[8];
	unsigned n_limits;
	bool new_session; /* setsid() */
	bool drop;        /* setgroups(0), setresgid, setresuid to uid and gid below */
	uid_t uid;
	gid_t gid;
	int death_signal; /* to the child when we die; 0 = none */
};

struct spawned {
	pid_t pid;
	int pidfd;        /* owned by the caller; CLOEXEC */
	const char *step; /* on failure: what failed ("exec", "chdir", ...); literal */
};

/* 0 when the exec has happened; -errno otherwise (out->step says where), and then nothing is left behind. */
int spawn(const struct spawn_spec *spec, struct spawned *out) must_check;
