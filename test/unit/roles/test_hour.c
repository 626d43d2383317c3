/* SPDX-License-Identifier: Apache-2.0 */
/* hour: counted by minute, gaps filled from what came next, a ring that forgets, a clock that jumps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "reactor/base/check.h"
#include "reactor/base/clock.h"
#include "roles/judicator/store/hour.h"

#define MINUTE_US (60 * US_PER_S)
#define BEGIN_US (1000 * MINUTE_US)

static const struct hour_change add = {.queued = 1, .added = true};
static const struct hour_change claim = {.queued = -1, .owned = 1};
static const struct hour_change accept = {.owned = -1, .done = true, .accepted = true};

static void minutes_are_counted(void **state)
{
	struct hour hour = {0};
	struct hour_minute out[HOUR_MINUTES];

	hour_note(&hour, BEGIN_US, &add);
	hour_note(&hour, BEGIN_US + MINUTE_US - 1, &add);
	hour_note(&hour, BEGIN_US + MINUTE_US, &claim);
	hour_note(&hour, BEGIN_US + 5 * MINUTE_US, &accept);
	hour_read(&hour, BEGIN_US + 7 * MINUTE_US + 3, out);
	assert_int_equal(out[HOUR_MINUTES - 1].start_us, BEGIN_US + 7 * MINUTE_US);
	assert_int_equal(out[0].start_us, BEGIN_US - 52 * MINUTE_US);
	assert_int_equal(out[51].last.queued, 0);
	assert_int_equal(out[52].added, 2);
	assert_int_equal(out[52].last.queued, 2);
	assert_int_equal(out[53].last.queued, 1);
	assert_int_equal(out[53].last.owned, 1);
	assert_int_equal(out[56].last.owned, 1); /* nothing happened: as it was */
	assert_int_equal(out[57].done, 1);
	assert_int_equal(out[57].accepted, 1);
	assert_int_equal(out[57].last.owned, 0);
	assert_int_equal(out[59].last.queued, 1);
}

static void an_hour_later_it_is_forgotten(void **state)
{
	struct hour hour = {0};
	struct hour_minute out[HOUR_MINUTES];

	hour_note(&hour, BEGIN_US, &add);
	hour_read(&hour, BEGIN_US + 59 * MINUTE_US, out);
	assert_int_equal(out[0].added, 1);
	hour_read(&hour, BEGIN_US + 60 * MINUTE_US, out);
	for (unsigned i = 0; i < HOUR_MINUTES; i++) {
		assert_int_equal(out[i].added, 0);
		assert_int_equal(out[i].last.queued, 1); /* it waits still */
	}
	hour_note(&hour, BEGIN_US + 60 * MINUTE_US, &add); /* the same slot, begun anew */
	hour_read(&hour, BEGIN_US + 60 * MINUTE_US, out);
	assert_int_equal(out[59].added, 1);
	assert_int_equal(out[59].last.queued, 2);
	assert_int_equal(out[58].last.queued, 1);
}

/* The minutes of the future are not shown, and their slots are used again. */
static void a_clock_set_back_is_survived(void **state)
{
	struct hour hour = {0};
	struct hour_minute out[HOUR_MINUTES];
	int64_t later_us = BEGIN_US + 24 * 60 * MINUTE_US;

	hour_note(&hour, later_us, &add);
	hour_note(&hour, BEGIN_US, &add);
	hour_read(&hour, BEGIN_US, out);
	assert_int_equal(out[59].added, 1);
	assert_int_equal(out[59].last.queued, 2);
	assert_int_equal(out[58].last.queued, 1);
	hour_note(&hour, BEGIN_US + MINUTE_US, &claim);
	hour_read(&hour, BEGIN_US + MINUTE_US, out);
	assert_int_equal(out[59].last.owned, 1);
	assert_int_equal(out[58].added, 1);
}

static void the_unknown_stays_unknown(void **state)
{
	struct hour hour = {.now = {4, 2}};
	struct hour_minute out[HOUR_MINUTES];

	hour.minutes[hour_slot(BEGIN_US)] = (struct hour_minute){
		.start_us = BEGIN_US,
		.first = {HOUR_UNKNOWN, HOUR_UNKNOWN},
		.last = {4, 2},
	};
	hour_read(&hour, BEGIN_US + 2 * MINUTE_US, out);
	assert_int_equal(out[56].last.queued, HOUR_UNKNOWN);
	assert_int_equal(out[57].last.queued, 4);
	assert_int_equal(out[59].last.owned, 2);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(minutes_are_counted),
		cmocka_unit_test(an_hour_later_it_is_forgotten),
		cmocka_unit_test(a_clock_set_back_is_survived),
		cmocka_unit_test(the_unknown_stays_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
