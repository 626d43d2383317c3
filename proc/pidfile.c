/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * The file belongs to whoever writes it (boot) and lives as long as the run directory; it is never renamed
 * or unlinked, so the inode that is locked is the inode everybody opens. The number is written with one
 * pwrite() over the old one and cut behind it, and readers take the first line: at any moment they see the old
 * number or the new one.
 *
 * Killing a leftover first opens a pidfd and only then looks at /proc/PID: whatever happens to the number
 * afterwards, the signal goes to the process that was looked at or to nobody. /proc/PID/exe of a process that is
 * not dumpable (services are not) can be read by root only; the command line can be read by anyone and is then
 * all there is, which is why a match on `arg` is always demanded.
 */
#include "proc/pidfile.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "reactor/base/err.h"
#include "reactor/base/str.h"

#define KILL_WAIT_MS 2000
#define CMDLINE_MAX 8192

/* A read lock needs no more than reading, and keeps our write lock out: nobody else may open the file, one that an earlier version
 * left open to all included. */
static int pidfile_open(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_mode & 077 && st.st_uid == geteuid() &&
		fchmod(fd, 0600) < 0) {
		int error = errno;

		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

int pidfile_lock(const char *path, int *out)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = pidfile_open(path);

	*out = -1;
	if (fd < 0)
		return -errno;
	if (fcntl(fd, F_OFD_SETLK, &lock) < 0) {
		int error = errno;

		close(fd);
		return error == EAGAIN || error == EACCES ? PIDFILE_E_LOCKED : -error;
	}
	*out = fd;
	return 0;
}

int pidfile_write(int fd, pid_t pid)
{
	char text[24];
	int n = snprintf(text, sizeof(text), "%d\n", (int)pid);
	ssize_t written = pwrite(fd, text, (size_t)n, 0);

	if (written < 0)
		return -errno;
	if (written != n)
		return -ENOSPC;
	return ftruncate(fd, n) < 0 ? -errno : 0;
}

/* Closing is not enough: a process that was just spawned has a copy of the descriptor for a moment after the spawn has
 * returned (exec releases us first and closes then), and the lock lives as long as any copy. Unlocking ends it
 * for all (test_pidfile: unlock_ends_it_for_every_copy). */
void pidfile_unlock(int *fd)
{
	struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

	if (*fd >= 0) {
		fcntl(*fd, F_OFD_SETLK, &lock);
		close(*fd);
	}
	*fd = -1;
}

int pidfile_clear(const char *path)
{
	int fd = pidfile_open(path), error;

	if (fd < 0)
		return -errno;
	error = pidfile_write(fd, -1);
	close(fd);
	return error;
}

/* Up to n - 1 bytes of a file and a NUL; the length, or -1. */
static ssize_t read_some(const char *path, char *out, size_t n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	ssize_t got = -1;

	if (fd >= 0) {
		got = read(fd, out, n - 1);
		close(fd);
	}
	out[got < 0 ? 0 : got] = '\0';
	return got;
}

pid_t pidfile_read(const char *path)
{
	char text[32];
	ssize_t n = read_some(path, text, sizeof(text));
	struct str rest = {text, n < 0 ? 0 : (size_t)n}, line;
	int64_t pid;

	if (n <= 0 || !str_cut(&rest, '\n', &line) || !str_to_i64(line, &pid))
		return -1;
	return pid > 0 && pid <= INT32_MAX ? (pid_t)pid : -1;
}

/* An unreadable link (we are not root, it is not dumpable) is no mismatch: the arguments decide then. */
static bool exe_matches(pid_t pid, const char *exe)
{
	char link[64], target[4096];
	size_t want = strlen(exe);
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
	n = readlink(link, target, sizeof(target) - 1);
	if (n < 0)
		return errno == EACCES || errno == EPERM;
	target[n] = '\0';
	return strncmp(target, exe, want) == 0 &&
	       (target[want] == '\0' || strcmp(target + want, " (deleted)") == 0);
}

static bool has_argument(pid_t pid, const char *arg)
{
	char path[64], args[CMDLINE_MAX];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	n = read_some(path, args, sizeof(args));
	for (const char *p = args; n > 0 && p < args + n; p += strlen(p) + 1)
		if (strcmp(p, arg) == 0)
			return true;
	return false;
}

/* On its way out it has no executable any more, but its descriptors still. */
static bool is_ending(pid_t pid)
{
	enum { PF_EXITING = 4 };
	char path[64], text[1024];
	const char *behind_name;
	unsigned flags = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (read_some(path, text, sizeof(text)) <= 0)
		return false;
	behind_name = strrchr(text, ')');
	return behind_name && sscanf(behind_name, ") %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
	       (flags & PF_EXITING);
}

/* Before the loop runs: the one place that may wait in place, with its deadline. */
static bool is_gone_in_time(int pidfd)
{
	struct pollfd gone = {.fd = pidfd, .events = POLLIN};

	return poll(&gone, 1, KILL_WAIT_MS) == 1;
}

bool pidfile_kill_leftover(const char *path, const char *exe, const char *arg)
{
	pid_t pid = pidfile_read(path);
	bool killed = false;
	int pidfd;

	if (pid <= 1 || pid == getpid())
		return false;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return false;
	if (exe_matches(pid, exe) && has_argument(pid, arg) &&
		syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) == 0)
		killed = is_gone_in_time(pidfd);
	else if (is_ending(pid))
		(void)is_gone_in_time(pidfd);
	close(pidfd);
	return killed;
}
