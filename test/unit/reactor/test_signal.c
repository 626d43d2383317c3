/* SPDX-License-Identifier: Apache-2.0 */
/* signal: delivery through the loop, freeing inside the callback, SIGPIPE. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "reactor/base/clock.h"
#include "reactor/loop.h"
#include "reactor/signal.h"

struct seen {
	struct signal_watch *watch;
	unsigned calls;
	int signum;
	bool free_self;
};

static void on_signal(void *arg, int signum)
{
	struct seen *s = arg;

	s->calls++;
	s->signum = signum;
	if (s->free_self)
		signal_free(take_ptr(&s->watch));
}

static void turn_until(struct loop *loop, const unsigned *flag)
{
	int64_t end = clock_boot_us() + 10 * US_PER_S;

	while (!*flag && clock_boot_us() < end)
		loop_turn(loop, US_PER_S / 10);
	assert_true(*flag);
}

static void test_delivery_is_on_the_loop(void **state)
{
	struct loop *loop = loop_new(NULL);
	struct seen a = {0}, b = {0};

	a.watch = signal_new(loop, SIGUSR1, on_signal, &a);
	b.watch = signal_new(loop, SIGHUP, on_signal, &b);
	raise(SIGUSR1);
	assert_int_equal(a.calls, 0);
	turn_until(loop, &a.calls);
	assert_int_equal(a.signum, SIGUSR1);
	assert_int_equal(b.calls, 0);
	raise(SIGHUP);
	turn_until(loop, &b.calls);
	assert_int_equal(b.signum, SIGHUP);
	raise(SIGUSR1);
	a.calls = 0;
	turn_until(loop, &a.calls);
	signal_free(a.watch);
	signal_free(b.watch);
	signal_free(NULL);
	loop_free(loop);
}

static void test_several_deliveries_then_free_inside(void **state)
{
	struct loop *loop = loop_new(NULL);
	struct seen s = {.free_self = true};

	s.watch = signal_new(loop, SIGUSR2, on_signal, &s);
	for (unsigned i = 0; i < 5; i++)
		raise(SIGUSR2);
	turn_until(loop, &s.calls);
	loop_turn(loop, 0);
	assert_int_equal(s.calls, 1); /* freed at the first of the five */
	assert_null(s.watch);
	loop_free(loop);
}

static void test_default_action_is_back_after_free(void **state)
{
	struct loop *loop = loop_new(NULL);
	struct seen s = {0};
	struct sigaction now;

	s.watch = signal_new(loop, SIGUSR1, on_signal, &s);
	assert_int_equal(sigaction(SIGUSR1, NULL, &now), 0);
	assert_true(now.sa_handler != SIG_DFL);
	signal_free(s.watch);
	assert_int_equal(sigaction(SIGUSR1, NULL, &now), 0);
	assert_true(now.sa_handler == SIG_DFL);
	loop_free(loop);
}

static void test_sigpipe_is_ignored(void **state)
{
	struct loop *loop;
	struct seen s = {0};
	int fds[2];

	signal(SIGPIPE, SIG_DFL);
	loop = loop_new(NULL);
	s.watch = signal_new(loop, SIGHUP, on_signal, &s);
	assert_int_equal(pipe(fds), 0);
	close(fds[0]);
	assert_int_equal(write(fds[1], "x", 1), -1);
	assert_int_equal(errno, EPIPE);
	close(fds[1]);
	signal_free(s.watch);
	loop_free(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_delivery_is_on_the_loop),
		cmocka_unit_test(test_several_deliveries_then_free_inside),
		cmocka_unit_test(test_default_action_is_back_after_free),
		cmocka_unit_test(test_sigpipe_is_ignored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
