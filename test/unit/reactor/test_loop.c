/* SPDX-License-Identifier: Apache-2.0 */
/* loop: order within a turn, deferred work and frees, both clocks, chance, statistics. */
#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "test/unit/reactor/forked.h"

#include "reactor/base/clock.h"
#include "reactor/io.h"
#include "reactor/loop.h"
#include "reactor/timer.h"

struct note {
	struct story *story;
	char letter;
};

/* What happened, in order: each event appends its letter. */
struct story {
	struct loop *loop;
	char text[256];
	struct defer defer[4];
	struct timer timer[4];
	struct note note[8];
};

static void tell(struct story *s, char letter)
{
	size_t n = strlen(s->text);

	assert_true(n + 1 < sizeof(s->text));
	s->text[n] = letter;
	s->text[n + 1] = '\0';
}

static void on_note(void *arg)
{
	struct note *note = arg;

	tell(note->story, note->letter);
}

/* defer[i] tells 'a' + i, timer[i] tells 'A' + i. */
static void story_init(struct story *s, const struct loop_options *options)
{
	memset(s, 0, sizeof(*s));
	s->loop = loop_new(options);
	for (size_t i = 0; i < 8; i++) {
		s->note[i].story = s;
		s->note[i].letter = (char)(i < 4 ? 'a' + i : 'A' + i - 4);
	}
	for (size_t i = 0; i < 4; i++) {
		defer_init(&s->defer[i], on_note, &s->note[i]);
		timer_init(&s->timer[i], s->loop, on_note, &s->note[4 + i]);
	}
}

static const struct loop_options fake = {.fake_clock = true, .seed = 1};

static void test_defer_order_and_idempotence(void **state)
{
	struct story s;

	story_init(&s, &fake);
	loop_defer(s.loop, &s.defer[1]);
	loop_defer(s.loop, &s.defer[0]);
	loop_defer(s.loop, &s.defer[1]);
	loop_defer(s.loop, &s.defer[2]);
	defer_cancel(&s.defer[2]);
	defer_cancel(&s.defer[3]);
	assert_string_equal(s.text, "");
	loop_turn(s.loop, 0);
	assert_string_equal(s.text, "ba");
	loop_turn(s.loop, 0);
	assert_string_equal(s.text, "ba");
	loop_free(s.loop);
}

static void defer_the_rest(void *arg)
{
	struct story *s = arg;

	tell(s, 'x');
	loop_defer(s->loop, &s->defer[1]);
	loop_defer(s->loop, &s->defer[2]);
	defer_cancel(&s->defer[3]);
}

static void test_work_added_meanwhile_runs_in_the_same_turn(void **state)
{
	struct story s;

	story_init(&s, &fake);
	defer_init(&s.defer[0], defer_the_rest, &s);
	loop_defer(s.loop, &s.defer[0]);
	loop_defer(s.loop, &s.defer[3]); /* cancelled by the one before it */
	loop_turn(s.loop, 0);
	assert_string_equal(s.text, "xbc");
	loop_free(s.loop);
}

struct again {
	struct loop *loop;
	struct defer defer;
	unsigned runs;
	unsigned freed_at;
};

static void run_again(void *arg)
{
	struct again *a = arg;

	if (++a->runs < 250000)
		loop_defer(a->loop, &a->defer);
}

static void note_free(void *arg)
{
	struct again *a = arg;

	a->freed_at = a->runs;
}

/* The bound ends the turn, the rest goes on in the next, and no free overtakes deferred work. */
static void test_defer_bound(void **state)
{
	struct again a = {.loop = loop_new(&fake)};
	unsigned turns = 0;

	defer_init(&a.defer, run_again, &a);
	loop_defer(a.loop, &a.defer);
	loop_free_later(a.loop, note_free, &a);
	for (; a.freed_at == 0 && turns < 10; turns++)
		loop_turn(a.loop, 0);
	assert_int_equal(turns, 3);
	assert_int_equal(a.freed_at, 250000);
	loop_free(a.loop);
}

static void run_for_ever(void *arg)
{
	struct again *a = arg;

	a->runs++;
	loop_defer(a->loop, &a->defer);
}

/* Work without end and the free behind it are dropped in the end; the memory of both is not leaked. */
static void test_free_of_loop_ends_endless_work(void **state)
{
	struct again a = {.loop = loop_new(&fake)};

	defer_init(&a.defer, run_for_ever, &a);
	loop_defer(a.loop, &a.defer);
	loop_free_later(a.loop, note_free, &a);
	loop_free(a.loop);
	assert_true(a.runs > 100000);
	assert_int_equal(a.freed_at, 0);
	defer_cancel(&a.defer); /* harmless though the loop is gone */
}

struct mortal {
	struct story *story;
	struct timer timer;
	struct defer defer;
	struct mortal *child;
};

static void mortal_free(void *p)
{
	struct mortal *m = p;

	tell(m->story, 'F');
	timer_stop(&m->timer);
	defer_cancel(&m->defer);
	if (m->child)
		loop_free_later(m->story->loop, mortal_free, m->child);
	free(m);
}

static void mortal_die(void *arg)
{
	struct mortal *m = arg;

	loop_free_later(m->story->loop, mortal_free, m);
	loop_defer(m->story->loop, &m->defer);
	tell(m->story, m->child ? 'p' : 'q');
}

static void mortal_touch(void *arg)
{
	struct mortal *m = arg;

	tell(m->story, 't');
}

static struct mortal *mortal_new(struct story *s)
{
	struct mortal *m = calloc(1, sizeof(*m));

	assert_non_null(m);
	m->story = s;
	timer_init(&m->timer, s->loop, mortal_die, m);
	defer_init(&m->defer, mortal_touch, m);
	return m;
}

/* An object frees itself inside its own callback; work deferred after that still finds it whole. */
static void test_free_later_is_behind_deferred_work(void **state)
{
	struct story s;
	struct mortal *m;

	story_init(&s, &fake);
	m = mortal_new(&s);
	m->child = mortal_new(&s);
	timer_start(&m->timer, 10);
	loop_advance_us(s.loop, 10);
	assert_string_equal(s.text, "ptFF");
	loop_free(s.loop);
}

static void test_free_of_loop_runs_what_is_deferred(void **state)
{
	struct story s;

	story_init(&s, &fake);
	loop_defer(s.loop, &s.defer[0]);
	loop_free_later(s.loop, mortal_free, mortal_new(&s));
	timer_start(&s.timer[0], 5);
	loop_free(s.loop);
	assert_string_equal(s.text, "aF");
	assert_false(timer_is_armed(&s.timer[0]));
	timer_stop(&s.timer[0]); /* harmless though the loop is gone */
	loop_free(NULL);
}

/* --- the fake clock --- */

static void defer_b(void *arg)
{
	struct story *s = arg;

	tell(s, 'A');
	loop_defer(s->loop, &s->defer[1]);
}

static void test_advance_fires_each_at_its_moment(void **state)
{
	struct story s;

	story_init(&s, &fake);
	assert_int_equal(loop_now_us(s.loop), US_PER_S);
	timer_init(&s.timer[0], s.loop, defer_b, &s);
	loop_defer(s.loop, &s.defer[0]);
	timer_start(&s.timer[2], 20);
	timer_start(&s.timer[1], 10);
	timer_start(&s.timer[0], 10);
	timer_start(&s.timer[3], 31);
	loop_advance_us(s.loop, 30);
	/* Deferred first, then by time, equal times as armed, each followed by its deferred work. */
	assert_string_equal(s.text, "aBAbC");
	assert_int_equal(loop_now_us(s.loop), US_PER_S + 30);
	assert_int_equal(loop_now_exact_us(s.loop), US_PER_S + 30);
	loop_advance_us(s.loop, 1);
	assert_string_equal(s.text, "aBAbCD");
	loop_free(s.loop);
}

struct ladder {
	struct timer timer;
	int64_t fired_at[5];
	unsigned steps;
};

static void climb(void *arg)
{
	struct ladder *l = arg;

	l->fired_at[l->steps++] = loop_now_us(l->timer.loop);
	if (l->steps < 5)
		timer_start(&l->timer, 100);
}

static void test_advance_sees_timers_armed_on_the_way(void **state)
{
	struct loop *loop = loop_new(&fake);
	struct ladder l = {0};

	timer_init(&l.timer, loop, climb, &l);
	timer_start(&l.timer, 100);
	loop_advance_us(loop, 350);
	assert_int_equal(l.steps, 3);
	for (unsigned i = 0; i < l.steps; i++)
		assert_int_equal(l.fired_at[i], US_PER_S + 100 * (i + 1));
	assert_true(loop_advance_next(loop));
	assert_int_equal(loop_now_us(loop), US_PER_S + 400);
	assert_true(loop_advance_next(loop));
	assert_false(loop_advance_next(loop));
	assert_int_equal(loop_now_us(loop), US_PER_S + 500);
	loop_free(loop);
}

static void test_advance_next_settles_even_without_timers(void **state)
{
	struct story s;

	story_init(&s, &fake);
	loop_defer(s.loop, &s.defer[0]);
	assert_false(loop_advance_next(s.loop));
	assert_string_equal(s.text, "a");
	loop_free(s.loop);
}

struct pipe_story {
	struct story story;
	int fds[2];
	struct timer writer;
};

static void write_byte(void *arg)
{
	struct pipe_story *p = arg;

	tell(&p->story, 'W');
	assert_int_equal(write(p->fds[1], "x", 1), 1);
}

static void read_byte(void *arg, unsigned events)
{
	struct pipe_story *p = arg;
	char c;

	tell(&p->story, 'r');
	assert_int_equal(read(p->fds[0], &c, 1), 1);
}

/* Between two timers of one advance, what the first made ready is handled. */
static void test_advance_handles_descriptors_between_timers(void **state)
{
	struct pipe_story p;
	struct io_watch *w;

	story_init(&p.story, &fake);
	assert_int_equal(pipe(p.fds), 0);
	w = io_new(p.story.loop, p.fds[0], IO_READ, read_byte, &p);
	timer_init(&p.writer, p.story.loop, write_byte, &p);
	timer_start(&p.writer, 10);
	timer_start(&p.story.timer[0], 11);
	loop_advance_us(p.story.loop, 20);
	assert_string_equal(p.story.text, "WrA");
	io_free(w);
	close(p.fds[0]);
	close(p.fds[1]);
	loop_free(p.story.loop);
}

static unsigned open_descriptors(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += lseek(fd, 0, SEEK_CUR) >= 0 || errno != EBADF;
	return n;
}

static void test_fake_loops_are_cheap_until_one_watches(void **state)
{
	unsigned before = open_descriptors();
	struct loop *loops[500];

	for (unsigned i = 0; i < 500; i++) {
		loops[i] = loop_new(&fake);
		loop_advance_us(loops[i], 10);
		loop_turn(loops[i], US_PER_S); /* nothing to wait for */
	}
	assert_int_equal(open_descriptors(), before);
	assert_non_null(loop_event_base(loops[0]));
	assert_true(open_descriptors() > before);
	for (unsigned i = 0; i < 500; i++)
		loop_free(loops[i]);
	assert_int_equal(open_descriptors(), before);
}

/* --- the real clock --- */

static void stop_loop(void *arg)
{
	loop_stop(arg);
}

static void test_deferred_before_run_needs_no_event(void **state)
{
	struct story s;

	story_init(&s, NULL);
	loop_defer(s.loop, &s.defer[0]);
	defer_init(&s.defer[1], stop_loop, s.loop);
	loop_defer(s.loop, &s.defer[1]);
	loop_run(s.loop); /* would hang if the turn waited */
	assert_string_equal(s.text, "a");
	loop_stop(s.loop);
	loop_run(s.loop); /* stopped before it began */
	loop_free(s.loop);
}

static void test_stop_ends_after_the_turn(void **state)
{
	struct story s;

	story_init(&s, NULL);
	timer_init(&s.timer[0], s.loop, stop_loop, s.loop);
	timer_start(&s.timer[0], 1000);
	timer_start(&s.timer[1], 1000);
	loop_run(s.loop);
	assert_string_equal(s.text, "B");
	loop_free(s.loop);
}

static void on_ready_stop(void *arg, unsigned events)
{
	loop_stop(arg);
}

struct poke {
	int fd;
	pthread_t thread;
};

static void *poke_from_outside(void *arg)
{
	struct poke *p = arg;

	return write(p->fd, "x", 1) == 1 ? p : NULL;
}

/* No timer at all: the wait has no end but the descriptor. A short wait before it leaves no alarm. */
static void test_run_waits_for_a_descriptor_alone(void **state)
{
	struct loop *loop = loop_new(NULL);
	struct loop_stats stats;
	struct io_watch *w;
	struct poke p;
	int fds[2];
	void *result;

	assert_int_equal(pipe(fds), 0);
	p.fd = fds[1];
	w = io_new(loop, fds[0], IO_READ, on_ready_stop, loop);
	loop_turn(loop, 1000);
	loop_turn(loop, 100);
	assert_int_equal(pthread_create(&p.thread, NULL, poke_from_outside, &p), 0);
	loop_run(loop);
	loop_get_stats(loop, &stats);
	assert_int_equal(stats.turns, 3);
	assert_int_equal(pthread_join(p.thread, &result), 0);
	assert_ptr_equal(result, &p);
	io_free(w);
	close(fds[0]);
	close(fds[1]);
	loop_free(loop);
}

struct sample {
	struct loop *loop;
	int64_t first, second, exact;
};

static void sample_twice(void *arg)
{
	struct sample *s = arg;

	s->first = loop_now_us(s->loop);
	while (loop_now_exact_us(s->loop) < s->first + 3000)
		;
	s->second = loop_now_us(s->loop);
	s->exact = loop_now_exact_us(s->loop);
}

static void test_now_stands_still_within_a_turn(void **state)
{
	struct sample s = {.loop = loop_new(NULL)};
	struct timer t;
	int64_t before = clock_boot_us();

	timer_init(&t, s.loop, sample_twice, &s);
	timer_start(&t, 2000);
	while (timer_is_armed(&t))
		loop_turn(s.loop, US_PER_S);
	assert_true(s.first >= before + 2000);
	assert_int_equal(s.first, s.second);
	assert_true(s.exact >= s.first + 3000);
	assert_true(loop_now_us(s.loop) >= s.exact); /* outside a turn: the clock itself */
	loop_free(s.loop);
}

static void test_turn_waits_no_longer_than_asked(void **state)
{
	struct loop *loop = loop_new(NULL);
	int64_t begin = clock_boot_us(), took;

	loop_turn(loop, 5000);
	took = clock_boot_us() - begin;
	assert_true(took >= 5000);
	begin = clock_boot_us();
	for (unsigned i = 0; i < 100; i++)
		loop_turn(loop, 0);
	assert_true(clock_boot_us() - begin < US_PER_S);
	loop_free(loop);
}

static void on_slow_log(void *arg, enum log_level level, const char *line)
{
	if (strstr(line, "event=slow_turn us="))
		++*(unsigned *)arg;
}

static void burn_3ms(void *arg)
{
	int64_t end = clock_boot_us() + 3000;

	while (clock_boot_us() < end)
		;
}

static void test_slow_turns_are_logged_and_counted(void **state)
{
	unsigned lines = 0;
	struct log *log = log_new_sink(on_slow_log, &lines, "t", LOG_WARN);
	struct loop *loop = loop_new(&(struct loop_options){.log = log, .slow_turn_us = 2000});
	struct loop_stats stats;
	struct defer d;

	assert_ptr_equal(loop_log(loop), log);
	defer_init(&d, burn_3ms, NULL);
	loop_defer(loop, &d);
	loop_turn(loop, 0);
	loop_get_stats(loop, &stats);
	assert_int_equal(stats.turns, 1);
	assert_int_equal(stats.slow_turns, 1);
	assert_true(stats.longest_turn_us >= 3000);
	assert_int_equal(lines, 1);
	loop_free(loop);
	log_free(log);
}

static int64_t thread_cpu_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (int64_t)ts.tv_sec * US_PER_S + ts.tv_nsec / 1000;
}

static void on_raw_event(evutil_socket_t fd, short what, void *arg)
{
	int64_t end = thread_cpu_us() + 3000;

	while (thread_cpu_us() < end)
		;
}

/* rpc/http's callbacks come from libevent directly and may never ask for the time. */
static void test_slow_callback_that_asks_no_time_is_counted(void **state)
{
	struct loop *loop = loop_new(&(struct loop_options){.slow_turn_us = 2000});
	struct loop_stats stats;
	struct event *event;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	event = event_new(loop_event_base(loop), fds[1], EV_WRITE, on_raw_event, NULL);
	assert_int_equal(event_add(event, NULL), 0);
	loop_turn(loop, US_PER_S);
	loop_get_stats(loop, &stats);
	assert_int_equal(stats.slow_turns, 1);
	event_free(event);
	/* Waiting is not work. (One wait may be followed by a stretch without the CPU; not each.) */
	for (unsigned i = 0; i < 10; i++)
		loop_turn(loop, 3000);
	loop_get_stats(loop, &stats);
	assert_int_equal(stats.turns, 11);
	assert_true(stats.slow_turns < 11);
	close(fds[0]);
	close(fds[1]);
	loop_free(loop);
}

/* --- chance --- */

static void test_seed_replays(void **state)
{
	struct loop *a = loop_new(&fake), *b = loop_new(&fake);
	struct loop *c = loop_new(&(struct loop_options){.fake_clock = true, .seed = 2});
	char x[37], y[37];

	for (unsigned i = 0; i < 100; i++) {
		uint64_t bits = loop_random(a);

		assert_true(bits == loop_random(b));
		assert_true(bits != loop_random(c));
	}
	loop_random_bytes(a, x, sizeof(x));
	loop_random_bytes(b, y, sizeof(y));
	assert_memory_equal(x, y, sizeof(x));
	assert_true(loop_wall_us(a) == loop_wall_us(b));
	loop_free(a);
	loop_free(b);
	loop_free(c);
}

static void test_random_below_is_uniform(void **state)
{
	struct loop *loop = loop_new(&fake);
	unsigned count[7] = {0};

	for (unsigned i = 0; i < 70000; i++)
		count[loop_random_below(loop, 7)]++;
	for (unsigned i = 0; i < 7; i++)
		assert_in_range(count[i], 9500, 10500);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(loop_random_below(loop, 1), 0);
		assert_true(loop_random_below(loop, UINT64_MAX) < UINT64_MAX);
	}
	loop_free(loop);
}

static void test_kernel_random(void **state)
{
	struct loop *loop = loop_new(NULL);
	static const char zero[64];
	char bytes[64] = {0};

	assert_true(loop_random(loop) != loop_random(loop));
	loop_random_bytes(loop, bytes, sizeof(bytes));
	assert_memory_not_equal(bytes, zero, sizeof(bytes));
	assert_true(loop_random_below(loop, 10) < 10);
	loop_free(loop);
}

static void turn_inside(void *arg)
{
	loop_turn(arg, 0);
}

static void nest_turns(void *arg)
{
	struct loop *loop = loop_new(&fake);
	struct defer d;

	defer_init(&d, turn_inside, loop);
	loop_defer(loop, &d);
	loop_turn(loop, 0);
}

static void test_nested_turn_aborts(void **state)
{
	char said[1024];

	assert_true(forked_aborts(nest_turns, NULL, said, sizeof(said)));
	assert_non_null(strstr(said, "!loop->in_turn"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defer_order_and_idempotence),
		cmocka_unit_test(test_work_added_meanwhile_runs_in_the_same_turn),
		cmocka_unit_test(test_defer_bound),
		cmocka_unit_test(test_free_later_is_behind_deferred_work),
		cmocka_unit_test(test_free_of_loop_runs_what_is_deferred),
		cmocka_unit_test(test_free_of_loop_ends_endless_work),
		cmocka_unit_test(test_advance_fires_each_at_its_moment),
		cmocka_unit_test(test_advance_sees_timers_armed_on_the_way),
		cmocka_unit_test(test_advance_next_settles_even_without_timers),
		cmocka_unit_test(test_advance_handles_descriptors_between_timers),
		cmocka_unit_test(test_fake_loops_are_cheap_until_one_watches),
		cmocka_unit_test(test_deferred_before_run_needs_no_event),
		cmocka_unit_test(test_stop_ends_after_the_turn),
		cmocka_unit_test(test_run_waits_for_a_descriptor_alone),
		cmocka_unit_test(test_now_stands_still_within_a_turn),
		cmocka_unit_test(test_turn_waits_no_longer_than_asked),
		cmocka_unit_test(test_slow_turns_are_logged_and_counted),
		cmocka_unit_test(test_slow_callback_that_asks_no_time_is_counted),
		cmocka_unit_test(test_seed_replays),
		cmocka_unit_test(test_random_below_is_uniform),
		cmocka_unit_test(test_kernel_random),
		cmocka_unit_test(test_nested_turn_aborts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
