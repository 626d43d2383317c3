/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A turn, in the order it happens (turn_run() reads the same):
 *
 *      +--> wait      descriptors, or the earliest timer, or at once when work is left over
 *      |    dispatch  libevent calls back whoever's descriptor or signal is ready
 *      |    timers    all that are due at the turn's time, earliest first
 *      |    deferred  FIFO until empty, then the frees, until both are empty or the bound is reached
 *      +--- account   turns, slow turns
 *
 * Descriptors come before timers: an answer that arrived in the same turn as its deadline counts.
 *
 * Time. loop_now_us() inside a turn is one instant, taken when the first callback (or the first question)
 * of the turn comes; outside a turn it is the clock itself. libevent 2.1 has no hook between its poll and
 * its dispatch, so callbacks that reactor/ makes ask for the time first of all. The wait uses a timerfd on
 * CLOCK_BOOTTIME, armed only when the earliest timer changes: libevent's own timers count neither suspend
 * nor microseconds.
 *
 * A turn's length is counted from that instant, or as the CPU time of the dispatch if that is longer (a
 * slow HTTP callback that never asked for the time).
 *
 * Fake clock. The time moves only in loop_advance_*(); each timer gets a turn of its own. Such a loop has
 * no event_base until somebody watches a descriptor: a test can have thousands.
 *
 * Invariant of the deferred work: a free runs only when no deferred work is left, so nothing deferred can
 * find its object freed. Work that queues itself for ever is cut off by the bound, goes on in the next
 * turn (which does not wait), and is logged.
 */
#include "reactor/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop_int.h"
#include "reactor/timer.h"

#define SLOW_TURN_US (20 * US_PER_MS)
#define DEFER_BOUND 100000 /* items a turn */
#define FINAL_PASSES 16    /* of DEFER_BOUND, when the loop is freed */
#define FAKE_START_US US_PER_S
#define FAKE_WALL_START_US (INT64_C(1700000000) * US_PER_S)

struct late_free {
	struct list link;
	void (*fn)(void *);
	void *p;
};

struct loop {
	struct log *log;
	bool fake;
	bool stopping;
	bool in_turn;
	bool is_sampled; /* now_us holds the time of this turn */
	int64_t now_us;
	int64_t slow_turn_us;
	uint64_t seed;
	struct timer_heap heap;
	struct list deferred; /* struct defer */
	struct list frees;    /* struct late_free */
	struct loop_stats stats;
	/* NULL and -1 in a fake loop until a descriptor is watched. */
	struct event_base *base;
	int alarm_fd;
	int64_t alarm_at_us; /* what alarm_fd is armed for, 0 = not */
	struct event alarm;
};

/* --- life --- */

static void on_alarm(evutil_socket_t fd, short what, void *arg)
{
	struct loop *loop = arg;
	uint64_t expirations;

	loop_now_us(loop);
	/* The timers are fired by the turn; here only the descriptor is made quiet again. */
	if (read(fd, &expirations, sizeof(expirations)) < 0)
		return;
	loop->alarm_at_us = 0;
}

static void base_open(struct loop *loop)
{
	struct event_config *config = event_config_new();

	CHECK(config);
	CHECK(event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV) ==
		0);
	loop->base = event_base_new_with_config(config);
	CHECK(loop->base);
	event_config_free(config);
	loop->alarm_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	CHECK(loop->alarm_fd >= 0);
	CHECK(event_assign(&loop->alarm, loop->base, loop->alarm_fd, EV_READ | EV_PERSIST, on_alarm,
		      loop) == 0);
	CHECK(event_add(&loop->alarm, NULL) == 0);
}

struct loop *loop_new(const struct loop_options *options)
{
	static const struct loop_options defaults = {0};
	const struct loop_options *o = options ? options : &defaults;
	struct loop *loop = mem_alloc(sizeof(*loop));

	loop->log = o->log;
	loop->fake = o->fake_clock;
	loop->seed = o->seed;
	loop->slow_turn_us = o->slow_turn_us ? o->slow_turn_us : SLOW_TURN_US;
	loop->now_us = FAKE_START_US;
	loop->alarm_fd = -1;
	list_init(&loop->deferred);
	list_init(&loop->frees);
	if (!loop->fake)
		base_open(loop);
	return loop;
}

static bool deferred_is_empty(const struct loop *loop);
static void deferred_run(struct loop *loop);

void loop_free(struct loop *loop)
{
	if (!loop)
		return;
	CHECK(!loop->in_turn);
	for (int pass = 0; pass < FINAL_PASSES && !deferred_is_empty(loop); pass++)
		deferred_run(loop);
	timer_heap_fini(&loop->heap);
	while (!list_is_empty(&loop->deferred))
		list_del(list_first(&loop->deferred));
	while (!list_is_empty(&loop->frees)) {
		struct late_free *f = list_entry(list_first(&loop->frees), struct late_free, link);

		list_del(&f->link);
		free(f);
	}
	if (loop->base) {
		event_del(&loop->alarm);
		event_base_free(loop->base);
		close(loop->alarm_fd);
	}
	free(loop);
}

struct event_base *loop_event_base(struct loop *loop)
{
	if (!loop->base)
		base_open(loop);
	return loop->base;
}

struct timer_heap *loop_timer_heap(struct loop *loop)
{
	return &loop->heap;
}

struct log *loop_log(const struct loop *loop)
{
	return loop->log;
}

void loop_get_stats(const struct loop *loop, struct loop_stats *out)
{
	*out = loop->stats;
}

/* --- time and chance --- */

int64_t loop_now_us(const struct loop *loop)
{
	struct loop *l =
		(struct loop *)loop; /* the sample is a cache: asking does not change the loop */

	if (loop->fake || loop->is_sampled)
		return loop->now_us;
	l->now_us = clock_boot_us();
	l->is_sampled = loop->in_turn;
	return l->now_us;
}

int64_t loop_now_exact_us(const struct loop *loop)
{
	return loop->fake ? loop->now_us : clock_boot_us();
}

int64_t loop_wall_us(const struct loop *loop)
{
	return loop->fake ? FAKE_WALL_START_US + loop->now_us : clock_wall_us();
}

/* SplitMix64: every seed, 0 too, gives a full-period sequence. */
static uint64_t seed_next(uint64_t *seed)
{
	uint64_t x = *seed += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static void kernel_random(void *out, size_t n)
{
	char *at = out;

	while (n) {
		ssize_t got = getrandom(at, n, 0);

		CHECK(got > 0 || errno == EINTR);
		if (got > 0) {
			at += got;
			n -= (size_t)got;
		}
	}
}

uint64_t loop_random(struct loop *loop)
{
	uint64_t bits;

	if (loop->fake)
		return seed_next(&loop->seed);
	kernel_random(&bits, sizeof(bits));
	return bits;
}

uint64_t loop_random_below(struct loop *loop, uint64_t n)
{
	uint64_t bits, rest;

	CHECK(n > 0);
	/* Draws from the last, incomplete run of n are thrown away: they would favour small results. */
	rest = (UINT64_MAX % n + 1) % n;
	do
		bits = loop_random(loop);
	while (bits > UINT64_MAX - rest);
	return bits % n;
}

void loop_random_bytes(struct loop *loop, void *out, size_t n)
{
	char *at = out;

	if (!loop->fake) {
		kernel_random(out, n);
		return;
	}
	while (n) {
		uint64_t bits = seed_next(&loop->seed);
		size_t take = n < sizeof(bits) ? n : sizeof(bits);

		memcpy(at, &bits, take);
		at += take;
		n -= take;
	}
}

/* --- deferred work --- */

void defer_init(struct defer *d, defer_fn *fn, void *arg)
{
	list_init(&d->link);
	d->fn = fn;
	d->arg = arg;
}

void loop_defer(struct loop *loop, struct defer *d)
{
	if (!list_is_linked(&d->link))
		list_add_tail(&loop->deferred, &d->link);
}

void defer_cancel(struct defer *d)
{
	list_del(&d->link);
}

void loop_free_later(struct loop *loop, void (*fn)(void *), void *p)
{
	struct late_free *f = mem_alloc(sizeof(*f));

	f->fn = fn;
	f->p = p;
	list_add_tail(&loop->frees, &f->link);
}

static bool deferred_is_empty(const struct loop *loop)
{
	return list_is_empty(&loop->deferred) && list_is_empty(&loop->frees);
}

/* Runs the oldest piece of work, or the oldest free when there is none. */
static void deferred_run_one(struct loop *loop)
{
	struct list *link = list_first(&loop->deferred);

	if (link) {
		struct defer *d = list_entry(link, struct defer, link);

		list_del(link);
		d->fn(d->arg);
	} else {
		struct late_free *f = list_entry(list_first(&loop->frees), struct late_free, link);
		struct late_free now = *f;

		list_del(&f->link);
		free(f);
		now.fn(now.p);
	}
}

static void deferred_run(struct loop *loop)
{
	for (unsigned done = 0; !deferred_is_empty(loop); done++) {
		if (done == DEFER_BOUND) {
			log_warn(loop->log, "loop", "deferred_over=%d", DEFER_BOUND);
			return;
		}
		deferred_run_one(loop);
	}
}

/* --- turns --- */

/* When the earliest timer is due; INT64_MAX = never. */
static int64_t next_due_us(const struct loop *loop)
{
	const struct timer *first = timer_heap_first(&loop->heap);

	return first ? first->at_us : INT64_MAX;
}

static void alarm_set(struct loop *loop, int64_t at_us)
{
	struct itimerspec at = {{0, 0}, {0, 0}};

	if (at_us == INT64_MAX)
		at_us = 0;
	if (at_us == loop->alarm_at_us)
		return;
	at.it_value.tv_sec = at_us / US_PER_S;
	at.it_value.tv_nsec = at_us % US_PER_S * 1000;
	CHECK(timerfd_settime(loop->alarm_fd, TFD_TIMER_ABSTIME, &at, NULL) == 0);
	loop->alarm_at_us = at_us;
}

/* Waits for a descriptor, at most max_wait_us and (real clock) not beyond the earliest timer, and
 * dispatches what is ready. */
static void turn_poll(struct loop *loop, int64_t max_wait_us)
{
	int64_t now_us = clock_boot_us(), until_us, due_us;

	if (!loop->base)
		return;
	due_us = loop->fake ? INT64_MAX : next_due_us(loop);
	if (loop->fake && next_due_us(loop) <= loop->now_us)
		max_wait_us = 0;
	if (__builtin_add_overflow(now_us, max_wait_us, &until_us))
		until_us = INT64_MAX;
	if (due_us < until_us)
		until_us = due_us;
	if (until_us <= now_us || !deferred_is_empty(loop)) {
		/* NONBLOCK alone polls again for as long as anything is ready. */
		CHECK(event_base_loop(loop->base, EVLOOP_ONCE | EVLOOP_NONBLOCK) >= 0);
		return;
	}
	alarm_set(loop, until_us);
	CHECK(event_base_loop(loop->base, EVLOOP_ONCE) >= 0);
}

/* Timers armed by these very timers wait for the next turn, so a timer of 0 cannot hold the loop. */
static void turn_timers(struct loop *loop)
{
	uint64_t armed_before = loop->heap.order;
	int64_t now_us = loop_now_us(loop);
	struct timer *first;

	while ((first = timer_heap_first(&loop->heap)) && first->at_us <= now_us &&
		first->order < armed_before)
		timer_heap_fire(&loop->heap);
}

static int64_t thread_cpu_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (int64_t)ts.tv_sec * US_PER_S + ts.tv_nsec / 1000;
}

static void turn_account(struct loop *loop, int64_t cpu_us)
{
	int64_t took_us = clock_boot_us() - loop->now_us;

	if (took_us < cpu_us)
		took_us = cpu_us;
	if (took_us > loop->stats.longest_turn_us)
		loop->stats.longest_turn_us = took_us;
	if (took_us <= loop->slow_turn_us)
		return;
	loop->stats.slow_turns++;
	log_warn(loop->log, "slow_turn", "us=%lld", (long long)took_us);
}

void loop_turn(struct loop *loop, int64_t max_wait_us)
{
	int64_t cpu_us = loop->fake ? 0 : thread_cpu_us();

	CHECK(!loop->in_turn);
	loop->in_turn = true;
	loop->is_sampled = false;
	turn_poll(loop, max_wait_us > 0 ? max_wait_us : 0);
	turn_timers(loop);
	deferred_run(loop);
	loop->stats.turns++;
	if (!loop->fake)
		turn_account(loop, thread_cpu_us() - cpu_us);
	loop->in_turn = false;
	loop->is_sampled = false;
}

void loop_run(struct loop *loop)
{
	loop_event_base(loop);
	while (!loop->stopping)
		loop_turn(loop, INT64_MAX);
	loop->stopping = false;
}

void loop_stop(struct loop *loop)
{
	loop->stopping = true;
}

/* --- the fake clock --- */

/* A turn at the time that is: what is ready and what is deferred, but no timers. */
static void fake_settle(struct loop *loop)
{
	loop->in_turn = true;
	turn_poll(loop, 0);
	deferred_run(loop);
	loop->stats.turns++;
	loop->in_turn = false;
}

/* A turn for the earliest timer alone, at its moment. */
static void fake_fire_first(struct loop *loop)
{
	int64_t due_us = next_due_us(loop);

	if (due_us > loop->now_us)
		loop->now_us = due_us;
	loop->in_turn = true;
	timer_heap_fire(&loop->heap);
	deferred_run(loop);
	loop->in_turn = false;
	fake_settle(loop);
}

void loop_advance_us(struct loop *loop, int64_t us)
{
	int64_t until_us;

	CHECK(loop->fake && !loop->in_turn && us >= 0);
	if (__builtin_add_overflow(loop->now_us, us, &until_us))
		until_us = INT64_MAX;
	fake_settle(loop);
	while (next_due_us(loop) <= until_us && timer_heap_first(&loop->heap))
		fake_fire_first(loop);
	loop->now_us = until_us;
}

bool loop_advance_next(struct loop *loop)
{
	CHECK(loop->fake && !loop->in_turn);
	fake_settle(loop);
	if (!timer_heap_first(&loop->heap))
		return false;
	fake_fire_first(loop);
	return true;
}
