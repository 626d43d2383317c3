/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawn(): what the child sees is exactly what the spec says, and every failing step is named.
 * The children are /bin/sh and this program itself; all waits are on descriptors and have a deadline.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/spawn.h"

#define DEADLINE_MS 10000

/* exec's historic type: the strings are not written to. */
static char *const *strings(const char *const *list)
{
	return (char *const *)list;
}

/* Everything the other side writes until EOF. */
static size_t read_all(int fd, char *out, size_t size)
{
	size_t n = 0;

	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
		ssize_t got = read(fd, out + n, size - 1 - n);
		assert_true(got >= 0);
		if (got == 0)
			break;
		n += (size_t)got;
	}
	out[n] = '\0';
	return n;
}

/* Waits for the end through the pidfd and returns the wait status as si_code, si_status. */
static siginfo_t wait_end(struct spawned *child)
{
	struct pollfd p = {.fd = child->pidfd, .events = POLLIN};
	siginfo_t info = {0};

	assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
	assert_int_equal(waitid(P_PIDFD, (id_t)child->pidfd, &info, WEXITED), 0);
	close(child->pidfd);
	return info;
}

/* Runs `script` in sh with stdout to a pipe; returns what it printed. */
static void run_script(struct spawn_spec *spec, const char *script, char *out, size_t size)
{
	const char *argv[] = {"sh", "-c", script, NULL};
	struct spawned child;
	siginfo_t info;
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	spec->path = "/bin/sh";
	spec->argv = strings(argv);
	spec->fds[spec->n_fds++] = (struct spawn_fd){fds[1], 1};
	assert_int_equal(spawn(spec, &child), 0);
	close(fds[1]);
	read_all(fds[0], out, size);
	close(fds[0]);
	info = wait_end(&child);
	assert_int_equal(info.si_code, CLD_EXITED);
	assert_int_equal(info.si_status, 0);
}

static void test_environment_and_arguments(void **state)
{
	const char *env[] = {"A=1", NULL};
	struct spawn_spec spec = {.envp = strings(env), .dir = "/usr"};
	char out[256];

	run_script(&spec, "echo $A $HOME; pwd", out, sizeof(out));
	assert_string_equal(out, "1\n/usr\n");
}

static void test_exit_status(void **state)
{
	const char *argv[] = {"/bin/sh", "-c", "exit 7", NULL};
	struct spawn_spec spec = {.argv = strings(argv)};
	struct spawned child;
	siginfo_t info;

	assert_int_equal(spawn(&spec, &child), 0);
	assert_true(fcntl(child.pidfd, F_GETFD) & FD_CLOEXEC);
	info = wait_end(&child);
	assert_int_equal(info.si_pid, child.pid);
	assert_int_equal(info.si_code, CLD_EXITED);
	assert_int_equal(info.si_status, 7);
}

static void test_only_listed_descriptors(void **state)
{
	struct spawn_spec spec = {0};
	char out[256];
	int leaked = dup(2); /* without close-on-exec */

	assert_true(leaked > 2);
	run_script(&spec,
		"readlink /proc/self/fd/0 /proc/self/fd/2; n=0; "
		"while [ $n -lt 100 ]; do [ -e /proc/$$/fd/$n ] && echo $n; n=$((n + 1)); done; :",
		out, sizeof(out));
	assert_string_equal(out, "/dev/null\n/dev/null\n0\n1\n2\n");
	close(leaked);
}

static void test_swapped_descriptors(void **state)
{
	struct spawn_spec spec = {0};
	char out[64];
	int a = memfd_create("a", MFD_CLOEXEC), b = memfd_create("b", MFD_CLOEXEC);

	assert_int_equal(write(a, "alpha\n", 6), 6);
	assert_int_equal(write(b, "beta\n", 5), 5);
	lseek(a, 0, SEEK_SET);
	lseek(b, 0, SEEK_SET);
	/* Each target is the other's source. */
	spec.fds[spec.n_fds++] = (struct spawn_fd){a, b};
	spec.fds[spec.n_fds++] = (struct spawn_fd){b, a};
	char script[64];
	snprintf(script, sizeof(script), "cat <&%d; cat <&%d", a, b);
	run_script(&spec, script, out, sizeof(out));
	assert_string_equal(out, "beta\nalpha\n");
	close(a);
	close(b);
}

static void test_session_and_limits(void **state)
{
	struct spawn_spec spec = {.new_session = true,
		.limits = {{RLIMIT_NOFILE, 33, 44}, {RLIMIT_CORE, 0, 0}},
		.n_limits = 2};
	char out[256], want[64];

	run_script(&spec,
		"ulimit -Sn; ulimit -Hn; ulimit -c; "
		"set -- $(cat /proc/$$/stat); [ $1 = $6 ] && echo leader",
		out, sizeof(out));
	snprintf(want, sizeof(want), "33\n44\n0\nleader\n");
	assert_string_equal(out, want);
}

static void test_drop(void **state)
{
	struct spawn_spec spec = {.drop = true, .uid = 54321, .gid = 54322};
	char out[512];

	if (geteuid() != 0)
		fail_msg("this test must run as root");
	run_script(&spec, "grep -E '^(Uid|Gid|Groups)' /proc/self/status", out, sizeof(out));
	assert_string_equal(out,
		"Uid:\t54321\t54321\t54321\t54321\nGid:\t54322\t54322\t54322\t54322\n"
		"Groups:\t \n");
}

static void on_signal(int signum)
{
}

/* Ignored and handled signals are default in the child, and its mask is empty. */
static void test_signals_are_default(void **state)
{
	struct spawn_spec spec = {0};
	struct sigaction handled = {.sa_handler = on_signal};
	char out[512];
	sigset_t block, before;

	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGUSR1, &handled, NULL);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR2);
	sigprocmask(SIG_BLOCK, &block, &before);
	run_script(&spec, "cat /proc/self/status | grep -E '^Sig(Blk|Ign|Cgt)'", out, sizeof(out));
	sigprocmask(SIG_SETMASK, &before, NULL);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGUSR1, SIG_DFL);
	assert_string_equal(out, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
				 "SigCgt:\t0000000000000000\n");
}

static void test_exec_by_descriptor(void **state)
{
	const char *argv[] = {"named", "-c", "exit 3", NULL};
	struct spawn_spec spec = {.argv = strings(argv)};
	struct spawned child;

	spec.path_fd = open("/bin/sh", O_PATH | O_CLOEXEC);
	assert_int_equal(spawn(&spec, &child), 0);
	close(spec.path_fd);
	assert_int_equal(wait_end(&child).si_status, 3);
}

struct failure {
	struct spawn_spec spec;
	int error;
	const char *step;
};

static void test_failures_are_named(void **state)
{
	const char *argv[] = {"/bin/true", NULL};
	const struct failure table[] = {
		{{.path = "/nonexistent", .argv = strings(argv)}, ENOENT, "exec"},
		{{.path = "/etc/passwd", .argv = strings(argv)}, EACCES, "exec"},
		{{.argv = strings(argv), .dir = "/nonexistent"}, ENOENT, "chdir"},
		{{.argv = strings(argv), .fds = {{9999, 1}}, .n_fds = 1}, EBADF, "dup"},
		{{.argv = strings(argv), .limits = {{RLIMIT_NOFILE, 2, 1}}, .n_limits = 1}, EINVAL,
			"setrlimit"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct spawned child;
		assert_int_equal(spawn(&table[i].spec, &child), -table[i].error);
		assert_string_equal(child.step, table[i].step);
		assert_int_equal(child.pid, -1);
		assert_int_equal(child.pidfd, -1);
	}
	/* Nothing is left to be reaped. */
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

/* A parent in between spawns a child that holds a pipe, and dies: the pipe must come to EOF. */
static void test_dies_with_parent(void **state)
{
	const char *argv[] = {"sleep", "1000", NULL};
	int fds[2];
	char byte;
	pid_t middle;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	middle = fork();
	if (middle == 0) {
		struct spawn_spec spec = {.path = "/bin/sleep",
			.argv = strings(argv),
			.fds = {{fds[1], 1}},
			.n_fds = 1,
			.drop = true,
			.uid = 54321,
			.gid = 54321,
			.death_signal = SIGKILL};
		struct spawned child;
		if (spawn(&spec, &child) == 0 && write(fds[1], "x", 1) == 1)
			raise(SIGKILL);
		_exit(1);
	}
	close(fds[1]);
	assert_int_equal(read(fds[0], &byte, 1), 1);
	assert_int_equal(waitpid(middle, NULL, 0), middle);
	struct pollfd p = {.fd = fds[0], .events = POLLIN};
	assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
	assert_int_equal(read(fds[0], &byte, 1), 0);
	close(fds[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_environment_and_arguments),
		cmocka_unit_test(test_exit_status),
		cmocka_unit_test(test_only_listed_descriptors),
		cmocka_unit_test(test_swapped_descriptors),
		cmocka_unit_test(test_session_and_limits),
		cmocka_unit_test(test_drop),
		cmocka_unit_test(test_signals_are_default),
		cmocka_unit_test(test_exec_by_descriptor),
		cmocka_unit_test(test_failures_are_named),
		cmocka_unit_test(test_dies_with_parent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
