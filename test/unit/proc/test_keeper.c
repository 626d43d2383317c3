/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper: real processes under a fake clock, so that thirty seconds of backoff take no time and the order of things is
 * exact. Turning the loop waits for real descriptors; only advance() moves the keeper's time.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/keeper.h"
#include "proc/pidfile.h"
#include "reactor/base/buf.h"
#include "reactor/base/clock.h"
#include "reactor/base/log.h"
#include "reactor/loop.h"

#define DEADLINE_US (20 * US_PER_S)

struct fixture {
	char dir[64], pid_file[96];
	struct buf logged;
	struct log *log;
	struct loop *loop;
	struct keeper *keeper;
	unsigned stopped;
	bool free_when_stopped;
	unsigned changes;
	pid_t last_change;
};

static void sink(void *arg, enum log_level level, const char *line)
{
	struct fixture *f = arg;

	buf_addf(&f->logged, "%s\n", line);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct loop_options options = {.fake_clock = true, .seed = 1};

	strcpy(f->dir, "/tmp/test_keeper.XXXXXX");
	if (!mkdtemp(f->dir))
		return -1;
	snprintf(f->pid_file, sizeof(f->pid_file), "%s/web.pid", f->dir);
	f->log = log_new_sink(sink, f, "boot", LOG_DEBUG);
	options.log = f->log;
	f->loop = loop_new(&options);
	*state = f;
	return 0;
}

static bool has_children(void)
{
	siginfo_t info;

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

#define turn_until(f, condition)                                                                   \
	do {                                                                                       \
		int64_t until_ = clock_boot_us() + DEADLINE_US;                                    \
		while (!(condition)) {                                                             \
			assert_true(clock_boot_us() < until_);                                     \
			loop_turn((f)->loop, 10 * US_PER_MS);                                      \
		}                                                                                  \
	} while (0)

static int teardown(void **state)
{
	struct fixture *f = *state;

	keeper_free(f->keeper);
	turn_until(f, !has_children());
	loop_turn(f->loop, 0);
	loop_free(f->loop);
	log_free(f->log);
	buf_fini(&f->logged);
	unlink(f->pid_file);
	rmdir(f->dir);
	free(f);
	return 0;
}

static void on_change(void *arg, pid_t pid)
{
	struct fixture *f = arg;

	f->changes++;
	f->last_change = pid;
}

static void keep(struct fixture *f, const char *script)
{
	const char *const argv[] = {"/bin/sh", "-c", script, NULL};
	const char *const envp[] = {"PATH=/usr/bin:/bin", NULL};
	const struct keeper_options options = {
		.name = "web",
		.pid_file = f->pid_file,
		.spawn = {.argv = (char *const *)argv, .envp = (char *const *)envp},
		.stop_timeout_us = 5 * US_PER_S,
		.log = f->log,
		.pass_fd = -1,
		.on_change = on_change,
		.arg = f,
	};

	f->keeper = keeper_new(f->loop, &options);
}

static struct keeper_status status(struct fixture *f)
{
	struct keeper_status s;

	keeper_get_status(f->keeper, &s);
	return s;
}

static bool is_in(struct fixture *f, const char *state)
{
	return strcmp(status(f).state, state) == 0;
}

static bool has_logged(struct fixture *f, const char *what)
{
	return f->logged.len > 0 && strstr(f->logged.data, what);
}

static void on_stopped(void *arg)
{
	struct fixture *f = arg;

	f->stopped++;
	if (f->free_when_stopped)
		keeper_free(take_ptr(&f->keeper));
}

/* Never kill(-1): that is everybody. */
static void kill_one(pid_t pid)
{
	assert_true(pid > 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
}

static pid_t running(struct fixture *f)
{
	turn_until(f, is_in(f, "running"));
	return status(f).pid;
}

static void starts_on_the_next_turn(void **state)
{
	struct fixture *f = *state;
	pid_t pid;

	keep(f, "exec sleep 1000");
	assert_true(is_in(f, "idle"));
	assert_int_equal(status(f).pid, -1);
	assert_int_equal(access(f->pid_file, R_OK), 0);
	assert_int_equal(pidfile_read(f->pid_file), -1);
	pid = running(f);
	assert_true(pid > 1);
	assert_int_equal(kill(pid, 0), 0);
	assert_int_equal(pidfile_read(f->pid_file), pid);
	assert_int_equal(
		getpgid(pid), pid); /* a session of its own: the terminal's ^C is boot's alone */
}

/* The lock is not held while the service runs: anybody may take it. */
static void lock_is_free_while_running(void **state)
{
	struct fixture *f = *state;
	int fd;

	keep(f, "exec sleep 1000");
	running(f);
	assert_int_equal(pidfile_lock(f->pid_file, &fd), 0);
	pidfile_unlock(&fd);
}

static void late_death_restarts_at_once(void **state)
{
	struct fixture *f = *state;
	pid_t first, second;

	keep(f, "exec sleep 1000");
	first = running(f);
	loop_advance_us(f->loop, 1 * US_PER_S);
	kill_one(first);
	turn_until(f, status(f).restarts == 1);
	assert_true(is_in(f, "running")); /* and no time has passed */
	second = status(f).pid;
	assert_int_not_equal(first, second);
	assert_int_equal(pidfile_read(f->pid_file), second);
	assert_true(has_logged(f, "event=service-exited service=web"));
	assert_true(has_logged(f, "signal=9 lived_ms=1000"));
}

static void tells_each_change(void **state)
{
	struct fixture *f = *state;
	pid_t first;

	keep(f, "exec sleep 1000");
	first = running(f);
	assert_int_equal(f->changes, 1);
	assert_int_equal(f->last_change, first);
	kill_one(first);
	turn_until(f, is_in(f, "backoff"));
	assert_int_equal(f->changes, 2);
	assert_int_equal(f->last_change, -1);
	loop_advance_us(f->loop, 121 * US_PER_MS);
	assert_int_equal(f->changes, 3);
	assert_int_equal(f->last_change, running(f));
	keeper_stop(f->keeper, on_stopped, f);
	turn_until(f, f->stopped);
	assert_int_equal(f->changes, 4);
	assert_int_equal(f->last_change, -1);
}

/* 100 ms doubling to 30 s, each with its jitter of 20 %. */
static void early_deaths_back_off(void **state)
{
	struct fixture *f = *state;
	int64_t expected_us = 100 * US_PER_MS;

	keep(f, "exit 3");
	for (unsigned i = 1; i <= 12; i++) {
		int64_t began_us, waited_us;

		turn_until(f, status(f).restarts == i);
		assert_true(is_in(f, "backoff"));
		assert_int_equal(status(f).pid, -1);
		assert_int_equal(pidfile_read(f->pid_file), -1);
		began_us = loop_now_us(f->loop);
		assert_true(loop_advance_next(f->loop));
		waited_us = loop_now_us(f->loop) - began_us;
		assert_in_range(waited_us, expected_us * 79 / 100, expected_us * 121 / 100);
		expected_us = expected_us * 2 > 30 * US_PER_S ? 30 * US_PER_S : expected_us * 2;
	}
	assert_true(has_logged(f, "exit_code=3"));
}

static void long_life_resets_the_backoff(void **state)
{
	struct fixture *f = *state;

	keep(f, "exec sleep 1000");
	for (unsigned i = 1; i <= 5; i++) {
		kill_one(running(f));
		turn_until(f, is_in(f, "backoff"));
		loop_advance_next(f->loop);
	}
	running(f);
	loop_advance_us(f->loop, 2 * US_PER_S);
	kill_one(status(f).pid);
	turn_until(f, status(f).restarts == 6);
	kill_one(running(f));
	turn_until(f, is_in(f, "backoff"));
	loop_advance_us(f->loop, 121 * US_PER_MS);
	running(f);
}

static void fenced_takes_the_longest_backoff(void **state)
{
	struct fixture *f = *state;

	keep(f, "exit 75");
	turn_until(f, is_in(f, "backoff"));
	loop_advance_us(f->loop, 23 * US_PER_S);
	assert_int_equal(status(f).restarts, 1);
	assert_true(is_in(f, "backoff"));
	loop_advance_us(f->loop, 14 * US_PER_S);
	turn_until(f, status(f).restarts == 2);
	assert_true(has_logged(f, "to=backoff cause=fenced"));
}

static void missing_program_backs_off(void **state)
{
	struct fixture *f = *state;
	const char *const argv[] = {"/nonexistent/service", NULL};
	const struct keeper_options options = {
		.name = "web",
		.pid_file = f->pid_file,
		.spawn = {.argv = (char *const *)argv},
		.log = f->log,
		.pass_fd = -1,
	};

	f->keeper = keeper_new(f->loop, &options);
	turn_until(f, is_in(f, "backoff"));
	assert_true(has_logged(f, "event=service-failed service=web step=spawn-exec"));
	loop_advance_us(f->loop, 121 * US_PER_MS);
	assert_true(is_in(f, "backoff"));
}

static void held_lock_keeps_it_down(void **state)
{
	struct fixture *f = *state;
	int fd;

	keep(f, "exec sleep 1000");
	running(f);
	assert_int_equal(pidfile_lock(f->pid_file, &fd), 0);
	loop_advance_us(f->loop, 2 * US_PER_S);
	kill_one(status(f).pid);
	turn_until(f, status(f).restarts == 1);
	assert_true(is_in(f, "held"));
	assert_int_equal(pidfile_read(f->pid_file), -1); /* the holder sees that it is down */
	loop_advance_us(f->loop, 60 * US_PER_S);
	assert_true(is_in(f, "held"));
	pidfile_unlock(&fd);
	loop_advance_us(f->loop, 101 * US_PER_MS);
	assert_true(is_in(f, "running"));
	assert_int_equal(pidfile_read(f->pid_file), status(f).pid);
}

static void held_from_the_beginning(void **state)
{
	struct fixture *f = *state;
	int fd;

	assert_int_equal(pidfile_lock(f->pid_file, &fd), 0);
	keep(f, "exec sleep 1000");
	turn_until(f, is_in(f, "held"));
	keeper_stop(f->keeper, on_stopped, f);
	turn_until(f, f->stopped);
	assert_true(is_in(f, "stopped"));
	pidfile_unlock(&fd);
	loop_advance_us(f->loop, 10 * US_PER_S);
	assert_true(is_in(f, "stopped"));
}

static void stop_is_asked_first(void **state)
{
	struct fixture *f = *state;
	pid_t pid;

	keep(f, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done");
	pid = running(f);
	turn_until(f, has_logged(f, "line=\"up\""));
	keeper_stop(f->keeper, on_stopped, f);
	assert_int_equal(f->stopped, 0);
	assert_true(is_in(f, "stopping"));
	turn_until(f, f->stopped);
	assert_true(is_in(f, "stopped"));
	assert_int_equal(kill(pid, 0), -1);
	assert_int_equal(pidfile_read(f->pid_file), -1);
	assert_true(has_logged(f, "line=\"bye\""));
	assert_int_equal(status(f).restarts, 0);
	loop_advance_us(f->loop, 60 * US_PER_S);
	assert_int_equal(f->stopped, 1);
	assert_true(is_in(f, "stopped"));
}

static void stubborn_service_is_killed(void **state)
{
	struct fixture *f = *state;

	keep(f, "trap '' TERM; echo up; while :; do sleep 0.01; done");
	turn_until(f, has_logged(f, "line=\"up\""));
	keeper_stop(f->keeper, on_stopped, f);
	loop_advance_us(f->loop, 4900 * US_PER_MS);
	assert_true(is_in(f, "stopping"));
	loop_advance_us(f->loop, 200 * US_PER_MS);
	turn_until(f, f->stopped);
	assert_true(has_logged(f, "event=service-killed service=web reason=stop_timeout"));
	assert_true(has_logged(f, "signal=9"));
}

static void stop_timeout_may_change(void **state)
{
	struct fixture *f = *state;

	keep(f, "trap '' TERM; echo up; while :; do sleep 0.01; done");
	turn_until(f, has_logged(f, "line=\"up\""));
	keeper_set_stop_timeout(f->keeper, 500 * US_PER_MS);
	keeper_stop(f->keeper, on_stopped, f);
	loop_advance_us(f->loop, 499 * US_PER_MS);
	assert_true(is_in(f, "stopping"));
	loop_advance_us(f->loop, 2 * US_PER_MS);
	turn_until(f, f->stopped);
	assert_true(has_logged(f, "signal=9"));
}

static void stop_in_every_quiet_state(void **state)
{
	struct fixture *f = *state;

	keep(f, "exit 1");
	keeper_stop(f->keeper, on_stopped, f); /* idle */
	assert_int_equal(f->stopped, 0);
	turn_until(f, f->stopped == 1);
	assert_int_equal(status(f).restarts, 0);
	keeper_free(f->keeper);
	keep(f, "exit 1");
	turn_until(f, is_in(f, "backoff"));
	keeper_stop(f->keeper, on_stopped, f);
	turn_until(f, f->stopped == 2);
	loop_advance_us(f->loop, 60 * US_PER_S);
	assert_int_equal(status(f).restarts, 1);
}

static void freed_inside_its_callback(void **state)
{
	struct fixture *f = *state;

	f->free_when_stopped = true;
	keep(f, "exec sleep 1000");
	running(f);
	keeper_stop(f->keeper, on_stopped, f);
	turn_until(f, f->stopped);
	assert_null(f->keeper);
}

static void free_kills(void **state)
{
	struct fixture *f = *state;
	pid_t pid;

	keep(f, "trap '' TERM; while :; do sleep 0.01; done");
	pid = running(f);
	keeper_free(take_ptr(&f->keeper));
	turn_until(f, kill(pid, 0) == -1 && errno == ESRCH);
	assert_int_equal(pidfile_read(f->pid_file), -1);
	keeper_free(NULL);
}

static void signals_are_passed_on(void **state)
{
	struct fixture *f = *state;

	keep(f, "trap 'echo again' HUP; echo up; while :; do sleep 0.01; done");
	keeper_signal(f->keeper, SIGHUP); /* not running: nobody to tell */
	turn_until(f, has_logged(f, "line=\"up\""));
	keeper_signal(f->keeper, SIGHUP);
	turn_until(f, has_logged(f, "line=\"again\""));
	assert_true(is_in(f, "running"));
}

static void output_is_logged_by_line(void **state)
{
	struct fixture *f = *state;

	keep(f, "echo one; echo two >&2; printf three; exec 1>&- 2>&-; exec sleep 1000");
	running(f);
	turn_until(
		f, has_logged(f, "level=info role=boot event=output service=web line=\"one\"") &&
			   has_logged(f,
				   "level=warn role=boot event=output service=web line=\"two\"") &&
			   has_logged(f, "from=running to=closed"));
	assert_false(has_logged(f, "line=\"three\"")); /* no newline yet */
	keeper_stop(f->keeper, on_stopped, f);
	turn_until(f, f->stopped);
	assert_true(has_logged(f, "service=web line=\"three\""));
}

/* When the process that keeps dies, so does the kept: no orphan serves on. */
static void service_dies_with_its_keeper(void **state)
{
	struct fixture *f = *state;
	int64_t until = clock_boot_us() + DEADLINE_US;
	int status_, ready[2];
	pid_t keeping, service = -1;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	keeping = fork();
	assert_true(keeping >= 0);
	if (keeping == 0) {
		keep(f, "exec sleep 1000");
		service = running(f);
		if (write(ready[1], &service, sizeof(service)) != sizeof(service))
			_exit(1);
		for (;;)
			loop_turn(f->loop, US_PER_S);
	}
	assert_int_equal(read(ready[0], &service, sizeof(service)), sizeof(service));
	assert_int_equal(kill(service, 0), 0);
	kill_one(keeping);
	assert_int_equal(waitpid(keeping, NULL, 0), keeping);
	/* We are its reaper now, so its end can be seen for certain. */
	while (waitpid(service, &status_, WNOHANG) == 0)
		assert_true(clock_boot_us() < until);
	assert_true(WIFSIGNALED(status_) && WTERMSIG(status_) == SIGKILL);
	prctl(PR_SET_CHILD_SUBREAPER, 0);
	close(ready[0]);
	close(ready[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(starts_on_the_next_turn, setup, teardown),
		cmocka_unit_test_setup_teardown(lock_is_free_while_running, setup, teardown),
		cmocka_unit_test_setup_teardown(late_death_restarts_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(tells_each_change, setup, teardown),
		cmocka_unit_test_setup_teardown(early_deaths_back_off, setup, teardown),
		cmocka_unit_test_setup_teardown(long_life_resets_the_backoff, setup, teardown),
		cmocka_unit_test_setup_teardown(fenced_takes_the_longest_backoff, setup, teardown),
		cmocka_unit_test_setup_teardown(missing_program_backs_off, setup, teardown),
		cmocka_unit_test_setup_teardown(held_lock_keeps_it_down, setup, teardown),
		cmocka_unit_test_setup_teardown(held_from_the_beginning, setup, teardown),
		cmocka_unit_test_setup_teardown(stop_is_asked_first, setup, teardown),
		cmocka_unit_test_setup_teardown(stubborn_service_is_killed, setup, teardown),
		cmocka_unit_test_setup_teardown(stop_timeout_may_change, setup, teardown),
		cmocka_unit_test_setup_teardown(stop_in_every_quiet_state, setup, teardown),
		cmocka_unit_test_setup_teardown(freed_inside_its_callback, setup, teardown),
		cmocka_unit_test_setup_teardown(free_kills, setup, teardown),
		cmocka_unit_test_setup_teardown(signals_are_passed_on, setup, teardown),
		cmocka_unit_test_setup_teardown(output_is_logged_by_line, setup, teardown),
		cmocka_unit_test_setup_teardown(service_dies_with_its_keeper, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
