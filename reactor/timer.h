/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timer - one-shot timers on the loop's clock, kept in a heap of the loop (one timerfd serves the
 * earliest, to some 30 us and never early). Embedded by value. Also: jitter and exponential backoff for
 * retries.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;
typedef void timer_fn(void *arg);

struct timer {
	struct loop *loop; /* borrowed */
	timer_fn *fn;
	void *arg;
	int64_t at_us;
	uint64_t order;   /* among equal times: first armed fires first */
	size_t heap_slot; /* 0 = not armed */
};

void timer_init(struct timer *t, struct loop *loop, timer_fn *fn, void *arg);
/* Arms (or re-arms) for delay_us from loop_now_us(); a negative delay counts as 0. Fires from the loop,
 * and when armed by another timer's fn not before the next turn. fn may free the timer. */
void timer_start(struct timer *t, int64_t delay_us);
/* Arms for an absolute loop time; one that has passed counts as now. */
void timer_start_at(struct timer *t, int64_t at_us);
/* Disarms; harmless when not armed. A stopped timer does not fire, even if due in this very turn. */
void timer_stop(struct timer *t);
bool timer_is_armed(const struct timer *t);

/* us +- percent, uniformly. */
int64_t timer_jitter(struct loop *loop, int64_t us, unsigned percent);

/* min, 2 min, 4 min ... max, each with 20 % jitter. */
struct backoff {
	int64_t min_us, max_us;
	int64_t next_us; /* 0 = start at min */
};
int64_t backoff_next(struct backoff *b, struct loop *loop);
void backoff_reset(struct backoff *b);
