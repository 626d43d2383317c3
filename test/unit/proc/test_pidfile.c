/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pidfile: the lock follows the descriptor and dies with it, the number is whole at every moment, and a leftover is
 * killed only when both its executable and its argument say that it is ours.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/pidfile.h"

#define DEADLINE_MS 10000

struct place {
	char dir[64], path[96];
};

static int setup(void **state)
{
	struct place *p = calloc(1, sizeof(*p));

	strcpy(p->dir, "/tmp/test_pidfile.XXXXXX");
	if (!mkdtemp(p->dir))
		return -1;
	snprintf(p->path, sizeof(p->path), "%s/main.pid", p->dir);
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	struct place *p = *state;

	unlink(p->path);
	rmdir(p->dir);
	free(p);
	return 0;
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void locks_exclude_within_one_process(void **state)
{
	struct place *p = *state;
	int first, second;

	assert_int_equal(pidfile_lock(p->path, &first), 0);
	assert_int_equal(pidfile_lock(p->path, &second), PIDFILE_E_LOCKED);
	assert_int_equal(second, -1);
	pidfile_unlock(&first);
	assert_int_equal(first, -1);
	assert_int_equal(pidfile_lock(p->path, &second), 0);
	pidfile_unlock(&second);
	pidfile_unlock(&second);
}

/* Whoever may read the file may lock it. An earlier version made it 0644. */
static void others_cannot_open_it(void **state)
{
	struct place *p = *state;
	struct stat st;
	int fd;

	assert_int_equal(pidfile_lock(p->path, &fd), 0);
	pidfile_unlock(&fd);
	assert_int_equal(stat(p->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(chmod(p->path, 0644), 0);
	assert_int_equal(pidfile_clear(p->path), 0);
	assert_int_equal(stat(p->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(chmod(p->path, 0644), 0);
	assert_int_equal(pidfile_lock(p->path, &fd), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	pidfile_unlock(&fd);
}

static void unlock_ends_it_for_every_copy(void **state)
{
	struct place *p = *state;
	int first, copy, second;

	assert_int_equal(pidfile_lock(p->path, &first), 0);
	copy = dup(first);
	assert_true(copy >= 0);
	pidfile_unlock(&first);
	assert_int_equal(pidfile_lock(p->path, &second), 0);
	pidfile_unlock(&second);
	close(copy);
}

static void lock_dies_with_its_holder(void **state)
{
	struct place *p = *state;
	int fd, ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int held;

		if (pidfile_lock(p->path, &held) || write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(pidfile_lock(p->path, &fd), PIDFILE_E_LOCKED);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(pidfile_lock(p->path, &fd), 0);
	pidfile_unlock(&fd);
	close(ready[0]);
	close(ready[1]);
}

static void file_is_made_empty(void **state)
{
	struct place *p = *state;
	int fd;

	assert_int_equal(pidfile_lock(p->path, &fd), 0);
	assert_int_equal(pidfile_read(p->path), -1);
	pidfile_unlock(&fd);
}

static void errors_are_negative(void **state)
{
	struct place *p = *state;
	int fd;

	assert_int_equal(pidfile_lock("/nonexistent/x.pid", &fd), -ENOENT);
	assert_int_equal(pidfile_clear("/nonexistent/x.pid"), -ENOENT);
	assert_int_equal(symlink("/etc/passwd", p->path), 0);
	assert_int_equal(pidfile_lock(p->path, &fd), -ELOOP);
	assert_int_equal(pidfile_clear(p->path), -ELOOP);
}

static void number_comes_back(void **state)
{
	static const pid_t pids[] = {1, 4194304, 7, INT_MAX, 42};
	struct place *p = *state;
	struct stat st;
	int fd;

	assert_int_equal(pidfile_lock(p->path, &fd), 0);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		assert_int_equal(pidfile_write(fd, pids[i]), 0);
		assert_int_equal(pidfile_read(p->path), pids[i]);
	}
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 3);             /* "42\n": nothing of the longer ones */
	assert_int_equal(pidfile_clear(p->path), 0); /* while locked */
	assert_int_equal(pidfile_read(p->path), -1);
	pidfile_unlock(&fd);
}

static void garbage_is_no_pid(void **state)
{
	static const char *const texts[] = {"", "\n", "-1\n", "0\n", "12x\n", "x", " 12\n",
		"99999999999999999999\n", "4294967297\n"};
	struct place *p = *state;

	assert_int_equal(pidfile_read(p->path), -1);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		put(p->path, texts[i]);
		assert_int_equal(pidfile_read(p->path), -1);
	}
	put(p->path, "12");
	assert_int_equal(pidfile_read(p->path), 12);
	put(p->path, "-1\n45\n"); /* the moment between write and cut */
	assert_int_equal(pidfile_read(p->path), -1);
}

/* A sleeping process of a known program, with `arg` among its arguments; its pid is in the file. */
static pid_t start_sleeper(const char *path, const char *arg, char exe[PATH_MAX])
{
	int ready[2];
	char byte, text[32];
	pid_t pid;

	assert_non_null(realpath("/bin/sh", exe));
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		/* Reads a pipe that never ends; the close of `ready` by exec says that it runs. */
		int never[2];

		if (pipe(never) < 0 || dup2(never[0], 0) < 0)
			_exit(1);
		execl(exe, "sh", "-c", "read x", "--service", arg, (char *)NULL);
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 0);
	close(ready[0]);
	snprintf(text, sizeof(text), "%d\n", (int)pid);
	put(path, text);
	return pid;
}

static bool is_alive(pid_t pid)
{
	return waitpid(pid, NULL, WNOHANG) == 0;
}

static void leftover_is_killed(void **state)
{
	struct place *p = *state;
	char exe[PATH_MAX];
	pid_t pid = start_sleeper(p->path, "/run/x/main.conf", exe);
	int status;

	assert_true(pidfile_kill_leftover(p->path, exe, "/run/x/main.conf"));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_false(pidfile_kill_leftover(p->path, exe, "/run/x/main.conf"));
}

static void *end_a_moment_later(void *arg)
{
	char byte;

	if (read(*(int *)arg, &byte, 1) == 1)
		poll(NULL, 0, 200);
	return NULL;
}

/* A process whose first thread has ended: like every one on its way out it has no executable, and is not gone. */
static pid_t start_ending(int go[2])
{
	pthread_t thread;
	pid_t pid;

	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		if (pthread_create(&thread, NULL, end_a_moment_later, &go[0]) != 0)
			_exit(1);
		syscall(SYS_exit, 0);
	}
	assert_true(pid > 0);
	return pid;
}

static bool is_zombie(pid_t pid)
{
	char path[64], text[512] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	return strstr(text, ") Z ");
}

static void ending_leftover_is_waited_for(void **state)
{
	struct place *p = *state;
	int go[2], waited_ms = 0;
	pid_t pid = start_ending(go);
	siginfo_t info = {0};
	char text[32];

	while (!is_zombie(pid) && waited_ms++ < DEADLINE_MS)
		poll(NULL, 0, 1);
	snprintf(text, sizeof(text), "%d\n", (int)pid);
	put(p->path, text);
	assert_int_equal(write(go[1], "g", 1), 1);
	assert_false(pidfile_kill_leftover(p->path, "/usr/bin/judicator", "/run/x/main.conf"));
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG), 0);
	assert_int_equal(info.si_pid, pid);
	close(go[0]);
	close(go[1]);
}

static void strangers_are_left_alone(void **state)
{
	struct place *p = *state;
	char exe[PATH_MAX];
	pid_t pid = start_sleeper(p->path, "/run/x/main.conf", exe);

	assert_false(pidfile_kill_leftover(p->path, exe, "/run/y/main.conf"));
	assert_false(pidfile_kill_leftover(p->path, exe, "/run/x/main"));
	assert_false(pidfile_kill_leftover(p->path, "/usr/bin/judicator", "/run/x/main.conf"));
	assert_false(pidfile_kill_leftover("/nonexistent", exe, "/run/x/main.conf"));
	assert_true(is_alive(pid));
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void own_process_is_never_killed(void **state)
{
	struct place *p = *state;
	char exe[PATH_MAX] = "", cmdline[4096] = "", text[32];
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);

	assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
	assert_true(read(fd, cmdline, sizeof(cmdline) - 1) > 0);
	close(fd);
	snprintf(text, sizeof(text), "%d\n", (int)getpid());
	put(p->path, text);
	assert_false(pidfile_kill_leftover(p->path, exe, cmdline));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(locks_exclude_within_one_process, setup, teardown),
		cmocka_unit_test_setup_teardown(others_cannot_open_it, setup, teardown),
		cmocka_unit_test_setup_teardown(unlock_ends_it_for_every_copy, setup, teardown),
		cmocka_unit_test_setup_teardown(lock_dies_with_its_holder, setup, teardown),
		cmocka_unit_test_setup_teardown(file_is_made_empty, setup, teardown),
		cmocka_unit_test_setup_teardown(errors_are_negative, setup, teardown),
		cmocka_unit_test_setup_teardown(number_comes_back, setup, teardown),
		cmocka_unit_test_setup_teardown(garbage_is_no_pid, setup, teardown),
		cmocka_unit_test_setup_teardown(leftover_is_killed, setup, teardown),
		cmocka_unit_test_setup_teardown(ending_leftover_is_waited_for, setup, teardown),
		cmocka_unit_test_setup_teardown(strangers_are_left_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(own_process_is_never_killed, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
