/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child: done means reaped and drained, output is capped exactly, the group dies with its leader, and the object may
 * be freed in any of its callbacks. Children are /bin/sh; every wait turns the loop under a deadline.
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
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/child.h"
#include "reactor/base/buf.h"
#include "reactor/base/clock.h"
#include "reactor/loop.h"

#define DEADLINE_US (20 * US_PER_S)

enum { FREE_NEVER, FREE_IN_OUTPUT, FREE_IN_FULL, FREE_IN_EXIT };

struct fixture {
	struct loop *loop;
	struct child *child;
	struct buf out[3]; /* by stream */
	unsigned full[3], exits, outputs;
	struct child_exit exit;
	int free_in;
	int64_t out_max;
	int stdin_fd;
};

static void free_child(struct fixture *f, int where)
{
	if (f->free_in == where)
		child_free(take_ptr(&f->child));
}

static void on_output(void *arg, int stream, struct str bytes)
{
	struct fixture *f = arg;

	assert_true(bytes.n > 0);
	f->outputs++;
	buf_add_str(&f->out[stream], bytes);
	free_child(f, FREE_IN_OUTPUT);
}

static void on_full(void *arg, int stream)
{
	struct fixture *f = arg;

	f->full[stream]++;
	free_child(f, FREE_IN_FULL);
}

static void on_exit_child(void *arg, const struct child_exit *exit)
{
	struct fixture *f = arg;

	f->exits++;
	f->exit = *exit;
	free_child(f, FREE_IN_EXIT);
}

static const struct child_events events = {on_output, on_full, on_exit_child};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->loop = loop_new(NULL);
	f->stdin_fd = -1;
	*state = f;
	return 0;
}

/* Grace is measured on a clock that stands still: only advancing it can end a wait. */
static int setup_fake_clock(void **state)
{
	const struct loop_options options = {.fake_clock = true};
	struct fixture *f;

	setup(state);
	f = *state;
	loop_free(f->loop);
	f->loop = loop_new(&options);
	return 0;
}

/* No child of ours, running or zombie, is left. */
static bool has_children(void)
{
	siginfo_t info;

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void turn_until_childless(struct fixture *f)
{
	int64_t until = clock_boot_us() + DEADLINE_US;

	while (has_children()) {
		assert_true(clock_boot_us() < until);
		loop_turn(f->loop, 10 * US_PER_MS);
	}
	loop_turn(f->loop, 0);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	child_free(f->child);
	turn_until_childless(f);
	loop_free(f->loop);
	for (int i = 0; i < 3; i++)
		buf_fini(&f->out[i]);
	free(f);
	return 0;
}

static void start(struct fixture *f, const char *script)
{
	const char *const argv[] = {"/bin/sh", "-c", script, NULL};
	const char *const envp[] = {"PATH=/usr/bin:/bin", NULL};
	const struct child_options options = {
		.spawn = {.argv = (char *const *)argv, .envp = (char *const *)envp},
		.stdin_fd = f->stdin_fd,
		.capture_out = true,
		.capture_err = true,
		.out_max = f->out_max,
	};
	const char *step = "untouched";

	assert_int_equal(child_start(f->loop, &options, &events, f, &f->child, &step), 0);
	assert_non_null(f->child);
	assert_int_equal(f->exits, 0);
}

#define turn_until(f, condition)                                                                   \
	do {                                                                                       \
		int64_t until_ = clock_boot_us() + DEADLINE_US;                                    \
		while (!(condition)) {                                                             \
			assert_true(clock_boot_us() < until_);                                     \
			loop_turn((f)->loop, 10 * US_PER_MS);                                      \
		}                                                                                  \
	} while (0)

static const char *text(struct fixture *f, int stream)
{
	return f->out[stream].len ? f->out[stream].data : "";
}

static void output_and_exit_code(void **state)
{
	struct fixture *f = *state;

	start(f, "echo out; echo err >&2; exit 7");
	turn_until(f, f->exits);
	assert_string_equal(text(f, 1), "out\n");
	assert_string_equal(text(f, 2), "err\n");
	assert_false(f->exit.signaled);
	assert_int_equal(f->exit.code, 7);
	loop_turn(f->loop, 0);
	assert_int_equal(f->exits, 1);
}

static void signal_and_usage(void **state)
{
	struct fixture *f = *state;

	start(f, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; kill -TERM $$");
	turn_until(f, f->exits);
	assert_true(f->exit.signaled);
	assert_int_equal(f->exit.code, SIGTERM);
	assert_true(f->exit.cpu_us > 1000);
	assert_true(f->exit.max_rss_bytes > 100 * 1024);
}

static void nothing_captured(void **state)
{
	struct fixture *f = *state;
	const char *const argv[] = {"/bin/sh", "-c", "echo lost; exit 3", NULL};
	const struct child_options options = {
		.spawn = {.argv = (char *const *)argv},
		.stdin_fd = -1,
	};

	assert_int_equal(child_start(f->loop, &options, &events, f, &f->child, NULL), 0);
	turn_until(f, f->exits);
	assert_int_equal(f->exit.code, 3);
	assert_int_equal(f->outputs, 0);
}

static void failing_start_names_the_step(void **state)
{
	struct fixture *f = *state;
	const char *const argv[] = {"/nonexistent/program", NULL};
	const struct child_options options = {
		.spawn = {.argv = (char *const *)argv},
		.stdin_fd = -1,
		.capture_out = true,
	};
	const char *step = NULL;
	int before = dup(0), after;

	assert_int_equal(child_start(f->loop, &options, &events, f, &f->child, &step), -ENOENT);
	assert_null(f->child);
	assert_string_equal(step, "exec");
	close(before);
	after = dup(0);
	assert_int_equal(after, before); /* no descriptor was leaked */
	close(after);
	assert_false(has_children());
}

static void stdin_is_the_callers(void **state)
{
	struct fixture *f = *state;
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(write(fds[1], "given\n", 6), 6);
	close(fds[1]);
	f->stdin_fd = fds[0];
	start(f, "cat");
	close(fds[0]);
	turn_until(f, f->exits);
	assert_string_equal(text(f, 1), "given\n");
}

static void output_is_capped_exactly(void **state)
{
	static const struct {
		int64_t max, printed, kept;
		unsigned full;
	} rows[] = {
		{10, 9, 9, 0},
		{10, 10, 10, 0},
		{10, 11, 10, 1},
		{100000, 1000000, 100000, 1},
		{0, 300000, 300000, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fixture *f = *state;
		char script[96];

		f->out_max = rows[i].max;
		f->exits = 0;
		f->full[1] = 0;
		buf_clear(&f->out[1]);
		snprintf(script, sizeof(script), "head -c %lld /dev/zero",
			(long long)rows[i].printed);
		start(f, script);
		turn_until(f, f->exits);
		assert_int_equal(f->exit.code, 0); /* it was never blocked by us */
		assert_int_equal(f->out[1].len, rows[i].kept);
		assert_int_equal(f->full[1], rows[i].full);
		child_free(take_ptr(&f->child));
	}
}

/* The orphans of a group come to us, so that their end can be seen whatever init does. */
static void adopt_orphans(bool yes)
{
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, yes), 0);
}

static bool is_group_gone(pid_t leader)
{
	while (waitpid(-leader, NULL, WNOHANG) > 0)
		;
	return kill(-leader, 0) == -1 && errno == ESRCH;
}

static void kill_takes_the_whole_group(void **state)
{
	struct fixture *f = *state;
	pid_t leader;

	adopt_orphans(true);
	start(f, "sleep 1000 & sleep 1000 & echo up; wait");
	turn_until(f, f->out[1].len > 0);
	leader = child_pid(f->child);
	assert_true(leader > 1);
	child_kill(f->child);
	turn_until(f, f->exits);
	assert_true(f->exit.signaled);
	assert_int_equal(f->exit.code, SIGKILL);
	turn_until(f, is_group_gone(leader));
	adopt_orphans(false);
}

static void group_ends_with_its_leader(void **state)
{
	struct fixture *f = *state;
	pid_t leader;

	adopt_orphans(true);
	start(f, "sleep 1000 & exit 0");
	leader = child_pid(f->child);
	assert_true(leader > 1);
	turn_until(f, f->exits);
	/* The pipe's other holder died with the leader, so no grace had to pass. */
	assert_int_equal(f->exit.code, 0);
	turn_until(f, is_group_gone(leader));
	adopt_orphans(false);
}

static void signal_goes_to_the_child_alone(void **state)
{
	struct fixture *f = *state;

	start(f, "trap 'echo hup; exit 4' HUP; echo up; while :; do sleep 0.01; done");
	turn_until(f, f->out[1].len > 0);
	child_signal(f->child, SIGHUP);
	turn_until(f, f->exits);
	assert_string_equal(text(f, 1), "up\nhup\n");
	assert_int_equal(f->exit.code, 4);
	child_signal(f->child, SIGHUP); /* harmless when it has gone */
	child_kill(f->child);
}

static void closed_pipes_are_not_the_end(void **state)
{
	struct fixture *f = *state;
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	f->stdin_fd = fds[0];
	start(f, "echo x; exec >&- 2>&-; read line; exit 5");
	close(fds[0]);
	turn_until(f, f->out[1].len > 0);
	for (int i = 0; i < 20; i++)
		loop_turn(f->loop, US_PER_MS);
	assert_int_equal(f->exits, 0);
	close(fds[1]);
	turn_until(f, f->exits);
	assert_int_equal(f->exit.code, 5);
}

/* A leader that has ended and a grandchild that left its group and holds the pipe; returns the latter. */
static pid_t start_with_escaped_holder(struct fixture *f)
{
	int fds[2];
	pid_t escaped;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	f->stdin_fd = fds[0];
	start(f, "setsid sh -c 'echo $$; exec sleep 1000' 2>&- & exec 2>&-; read x; exit 0");
	close(fds[0]);
	turn_until(f, f->out[1].len > 0);
	escaped = (pid_t)atoi(text(f, 1));
	assert_true(escaped > 1);
	close(fds[1]);
	return escaped;
}

/* Given up a second after the reaping, not sooner, not never. */
static void escaped_holder_is_given_up(void **state)
{
	struct fixture *f = *state;
	pid_t escaped = start_with_escaped_holder(f);

	turn_until(f, !has_children());
	loop_advance_us(f->loop, 999 * US_PER_MS);
	assert_int_equal(f->exits, 0);
	loop_advance_us(f->loop, 1 * US_PER_MS);
	assert_int_equal(f->exits, 1);
	kill(escaped, SIGKILL);
	assert_int_equal(f->exit.code, 0);
}

static void free_in_every_callback(void **state)
{
	static const int where[] = {FREE_IN_OUTPUT, FREE_IN_FULL, FREE_IN_EXIT};

	for (size_t i = 0; i < ARRAY_SIZE(where); i++) {
		struct fixture *f = *state;

		f->free_in = where[i];
		f->out_max = 5;
		f->exits = 0;
		start(f, "echo 123456789; echo more >&2; exit 0");
		turn_until(f, !f->child);
		turn_until_childless(f);
		assert_int_equal(f->exits, where[i] == FREE_IN_EXIT);
	}
}

static void freed_child_is_reaped_silently(void **state)
{
	struct fixture *f = *state;

	start(f, "echo up; sleep 1000");
	turn_until(f, f->outputs);
	child_free(take_ptr(&f->child));
	turn_until_childless(f);
	assert_int_equal(f->exits, 0);
	assert_int_equal(f->outputs, 1);
	child_free(NULL);
}

/* Freed between reaping and drained: the escaped holder keeps the pipe open. */
static void freed_while_draining(void **state)
{
	struct fixture *f = *state;
	pid_t escaped = start_with_escaped_holder(f);

	turn_until(f, !has_children());
	assert_int_equal(f->exits, 0);
	child_free(take_ptr(&f->child));
	loop_turn(f->loop, 0);
	assert_int_equal(f->exits, 0);
	kill(escaped, SIGKILL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(output_and_exit_code, setup, teardown),
		cmocka_unit_test_setup_teardown(signal_and_usage, setup, teardown),
		cmocka_unit_test_setup_teardown(nothing_captured, setup, teardown),
		cmocka_unit_test_setup_teardown(failing_start_names_the_step, setup, teardown),
		cmocka_unit_test_setup_teardown(stdin_is_the_callers, setup, teardown),
		cmocka_unit_test_setup_teardown(output_is_capped_exactly, setup, teardown),
		cmocka_unit_test_setup_teardown(kill_takes_the_whole_group, setup, teardown),
		cmocka_unit_test_setup_teardown(
			group_ends_with_its_leader, setup_fake_clock, teardown),
		cmocka_unit_test_setup_teardown(signal_goes_to_the_child_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(closed_pipes_are_not_the_end, setup, teardown),
		cmocka_unit_test_setup_teardown(
			escaped_holder_is_given_up, setup_fake_clock, teardown),
		cmocka_unit_test_setup_teardown(free_in_every_callback, setup, teardown),
		cmocka_unit_test_setup_teardown(freed_child_is_reaped_silently, setup, teardown),
		cmocka_unit_test_setup_teardown(freed_while_draining, setup_fake_clock, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
