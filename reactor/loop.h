/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop - the reactor: libevent's event_base, the time, chance, and work deferred to the end of a turn.
 *
 * One loop, one thread. Everything of a process (or, in tests, of a whole cluster) hangs from one.
 * A turn is: wait for descriptors and the earliest timer, dispatch, then run the deferred work in the
 * order it was added (work added meanwhile too, up to a bound). A turn longer than `slow_turn_us` is
 * logged and counted: a slow callback is a bug.
 *
 * With `fake_clock` the time stands still until loop_advance_us() moves it, and chance comes from `seed`
 * only; nobody reads a clock or a random source but through the loop, so a test replays exactly.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reactor/base/list.h"
#include "reactor/base/log.h"

struct event_base;
struct loop;

struct loop_options {
	struct log *log;      /* borrowed; NULL = silence */
	bool fake_clock;      /* tests: loop_advance_us() moves the time */
	uint64_t seed;        /* with fake_clock: the only source of chance */
	int64_t slow_turn_us; /* 0 = 20 ms */
};

struct loop_stats {
	uint64_t turns, slow_turns;
	int64_t longest_turn_us;
};

/* NULL options = real clock, silence. Aborts only when memory or descriptors are out at boot. */
struct loop *loop_new(const struct loop_options *options) must_check;
/* Runs what is still deferred, then frees. Timers still armed are simply dropped. NULL is fine. */
void loop_free(struct loop *loop);

/* Runs turns until loop_stop(); returns at once when that came before. With a fake clock only descriptors
 * and deferred work make progress here. */
void loop_run(struct loop *loop);
/* Ends loop_run() after the current turn. */
void loop_stop(struct loop *loop);
/* One turn: waits at most max_wait_us of real time for something to happen (0 = only what is ready; work
 * already deferred or timers already due = no wait). Not from inside a callback. A fake loop that
 * watches no descriptor does not wait. */
void loop_turn(struct loop *loop, int64_t max_wait_us);

/* CLOCK_BOOTTIME in us: one instant a turn, sampled when its first callback asks; outside a turn the
 * clock itself (fake: what advance made it; starts at 1 s). */
int64_t loop_now_us(const struct loop *loop);
/* The same clock read afresh, for measuring inside a turn. */
int64_t loop_now_exact_us(const struct loop *loop);
/* Wall clock in us since 1970, for display and the queue's order only, never for liveness. */
int64_t loop_wall_us(const struct loop *loop);

/* Fake clock: moves the time forward by us, firing each timer at its own moment in order, with deferred
 * work and ready descriptors handled before the first and after each. Not from inside a callback. A timer
 * that re-arms itself with delay 0 must stop some time: the clock waits for it. */
void loop_advance_us(struct loop *loop, int64_t us);
/* Fake clock: jumps to the next timer and fires it; false when no timer is armed (what was ready or
 * deferred has been handled even then). */
bool loop_advance_next(struct loop *loop);

/* 64 random bits: from the kernel, or from the seed. */
uint64_t loop_random(struct loop *loop);
/* Uniform in [0, n), n > 0. */
uint64_t loop_random_below(struct loop *loop, uint64_t n);
void loop_random_bytes(struct loop *loop, void *out, size_t n);

/* Work for the end of this turn (FIFO). Embedded; idempotent while queued; may be cancelled. */
typedef void defer_fn(void *arg);
struct defer {
	struct list link;
	defer_fn *fn;
	void *arg;
};
/* An owner cancels its defers before it frees them. */
void defer_init(struct defer *d, defer_fn *fn, void *arg);
void loop_defer(struct loop *loop, struct defer *d);
void defer_cancel(struct defer *d); /* harmless when not queued */

/* Calls fn(p) at the end of the turn, behind the deferred work: how callbacks free their own object. */
void loop_free_later(struct loop *loop, void (*fn)(void *), void *p);

struct log *loop_log(const struct loop *loop); /* borrowed, may be NULL */
void loop_get_stats(const struct loop *loop, struct loop_stats *out);

/* libevent's base: only for reactor/ and rpc/http/. A fake loop makes it at the first call, and is cheap
 * without. Never run it (event_base_loop, event_base_dispatch): loop_turn() does. */
struct event_base *loop_event_base(struct loop *loop);
