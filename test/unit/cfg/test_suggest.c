/* SPDX-License-Identifier: Apache-2.0 */
/* Edit distance against values worked out by hand, and when a candidate is near enough to be offered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cfg/suggest.h"

static void distance_is_the_number_of_edits(void **state unused)
{
	static const struct {
		const char *a, *b;
		unsigned distance;
	} rows[] = {
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"slots", "slots", 0},
		{"slot", "slots", 1}, {"sltos", "slots", 1}, /* neighbours swapped */
		{"slits", "slots", 1}, {"SLOTS", "slots", 0}, {"kitten", "sitting", 3},
		{"ca", "abc", 3}, /* a swapped pair is not edited again */
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(suggest_distance(str_from(rows[i].a), str_from(rows[i].b)),
			rows[i].distance);
		assert_int_equal(suggest_distance(str_from(rows[i].b), str_from(rows[i].a)),
			rows[i].distance);
	}
}

static void longest_names_are_compared_longer_ones_are_far(void **state unused)
{
	char a[SUGGEST_MAX + 1], b[SUGGEST_MAX + 1];

	memset(a, 'a', sizeof a);
	memset(b, 'b', sizeof b);
	assert_int_equal(
		suggest_distance((struct str){a, SUGGEST_MAX}, (struct str){b, SUGGEST_MAX}),
		SUGGEST_MAX);
	assert_int_equal(
		suggest_distance((struct str){a, SUGGEST_MAX + 1}, STR("a")), SUGGEST_MAX + 1);
}

static const char *best_of(const char *given, const char *const *names, size_t n)
{
	struct suggest s;

	suggest_init(&s, str_from(given));
	for (size_t i = 0; i < n; i++)
		suggest_offer(&s, str_from(names[i]), names[i]);
	return suggest_best(&s);
}

static void only_the_near_is_offered(void **state unused)
{
	static const char *const names[] = {"box", "slots", "helper", "read_timeout"};

	assert_string_equal(best_of("slot", names, 4), "slots");
	assert_string_equal(best_of("bxo", names, 4), "box");
	assert_string_equal(best_of("readtimeout", names, 4), "read_timeout");
	assert_null(best_of("zzz", names, 4));
	assert_null(best_of("lot", names, 4)); /* two edits of three letters */
	assert_null(best_of("slots", names, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(distance_is_the_number_of_edits),
		cmocka_unit_test(longest_names_are_compared_longer_ones_are_far),
		cmocka_unit_test(only_the_near_is_offered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
