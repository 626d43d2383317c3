/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hour - what went in and out of a store, minute by minute, for the last hour: 60 slots, each of the minute that used it last.
 *
 * A minute also remembers how many tasks waited and were held as it began and as it ended. Between two minutes with a slot nothing
 * has changed, so the whole hour follows from them; only what was before the first is unknown where a backend says so.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HOUR_MINUTES 60
#define HOUR_UNKNOWN (-1)

struct hour_level {
	int64_t queued, owned; /* tasks waiting, tasks held by executors */
};

struct hour_minute {
	int64_t start_us; /* wall clock; 0 = never used */
	int64_t added, done, accepted;
	struct hour_level first, last; /* first may be HOUR_UNKNOWN */
};

struct hour {
	struct hour_level now;
	struct hour_minute minutes[HOUR_MINUTES]; /* at (start_us / minute) % 60 */
};

struct hour_change { /* by one task */
	int queued, owned;
	bool added, done, accepted;
};

/* At now_us the levels change, and the counters with them. */
void hour_note(struct hour *hour, int64_t now_us, const struct hour_change *change);
/* The slot that a minute has. */
unsigned hour_slot(int64_t start_us);
/* The minutes up to that of now_us, oldest first, without gaps; unknown levels are HOUR_UNKNOWN. */
void hour_read(const struct hour *hour, int64_t now_us, struct hour_minute out[HOUR_MINUTES]);
