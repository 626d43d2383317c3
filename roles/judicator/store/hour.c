/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring by the minute's number, so its size is fixed and nothing has to be thrown away: a slot whose minute is another one is
 * begun anew. When the clock is set back, the minutes of the future stay in their slots until their turn comes, and are not shown.
 *
 * Reading goes from now backwards: a minute without a slot had the level that the next one began with.
 */
#include "roles/judicator/store/hour.h"

#include "reactor/base/clock.h"

#define MINUTE_US (60 * US_PER_S)

static int64_t minute_of(int64_t now_us)
{
	return now_us - now_us % MINUTE_US;
}

unsigned hour_slot(int64_t start_us)
{
	return (unsigned)(start_us / MINUTE_US % HOUR_MINUTES);
}

void hour_note(struct hour *hour, int64_t now_us, const struct hour_change *change)
{
	int64_t start_us = minute_of(now_us);
	struct hour_minute *m = &hour->minutes[hour_slot(start_us)];

	if (m->start_us != start_us)
		*m = (struct hour_minute){.start_us = start_us, .first = hour->now};
	hour->now.queued += change->queued;
	hour->now.owned += change->owned;
	m->added += change->added;
	m->done += change->done;
	m->accepted += change->accepted;
	m->last = hour->now;
}

void hour_read(const struct hour *hour, int64_t now_us, struct hour_minute out[HOUR_MINUTES])
{
	struct hour_level level = hour->now;

	for (int i = HOUR_MINUTES - 1; i >= 0; i--) {
		int64_t start_us = minute_of(now_us) - (HOUR_MINUTES - 1 - i) * MINUTE_US;
		const struct hour_minute *m = &hour->minutes[hour_slot(start_us)];

		out[i] = (struct hour_minute){.start_us = start_us, .first = level, .last = level};
		if (m->start_us == start_us)
			out[i] = *m;
		level = out[i].first;
	}
}
