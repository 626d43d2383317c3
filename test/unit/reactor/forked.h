/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forked - runs what is meant to abort in a child, and gives back what it said on stderr. The child has a
 * deadline (alarm), writes no core, and ends with _exit() when it does not abort, so that nothing of the
 * parent's test program runs twice.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* True when fn(arg) ended by SIGABRT; said[] is its stderr, cut and NUL-terminated. */
static bool forked_aborts(void (*fn)(void *), void *arg, char *said, size_t size)
{
	int fds[2], status = 0;
	size_t have = 0;
	ssize_t n;
	pid_t pid;

	if (pipe(fds) < 0 || (pid = fork()) < 0)
		return false;
	if (pid == 0) {
		const struct rlimit none = {0, 0};

		setrlimit(RLIMIT_CORE, &none);
		dup2(fds[1], STDERR_FILENO);
		close(fds[0]);
		close(fds[1]);
		signal(SIGABRT, SIG_DFL); /* cmocka catches it to fail the test */
		alarm(20);
		fn(arg);
		_exit(0);
	}
	close(fds[1]);
	while (have + 1 < size && (n = read(fds[0], said + have, size - have - 1)) > 0)
		have += (size_t)n;
	said[have] = '\0';
	close(fds[0]);
	return waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) &&
	       WTERMSIG(status) == SIGABRT;
}
