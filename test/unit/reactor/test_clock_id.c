/* SPDX-License-Identifier: Apache-2.0 */
/* clock and id: the text of a moment, the clocks' direction, the forms of an identity. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "reactor/base/clock.h"
#include "reactor/base/id.h"

static void test_clock_text(void **state)
{
	static const struct {
		int64_t us;
		const char *text;
	} rows[] = {
		{0, ""},
		{-5, ""},
		{1, "1970-01-01T00:00:00.000Z"},
		{INT64_C(1795813200000000), "2026-11-27T21:00:00.000Z"},
		{INT64_C(1795813200123999), "2026-11-27T21:00:00.123Z"},
		{INT64_C(1709164800000000), "2024-02-29T00:00:00.000Z"},
		{INT64_C(253402300799999999), "9999-12-31T23:59:59.999Z"},
	};
	char out[CLOCK_TEXT_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_string_equal(clock_text(rows[i].us, out), rows[i].text);
	clock_text(INT64_MAX, out); /* the year 294247 fits or is cut, never overruns */
	assert_true(strlen(out) < CLOCK_TEXT_MAX);
}

static void test_clocks_run(void **state)
{
	int64_t boot = clock_boot_us(), wall = clock_wall_us();
	struct timespec ts;

	for (int i = 0; i < 1000; i++) {
		int64_t now = clock_boot_us();

		assert_true(now >= boot);
		boot = now;
	}
	clock_gettime(CLOCK_REALTIME, &ts);
	assert_true(wall / US_PER_S <= ts.tv_sec + 1 && wall / US_PER_S >= ts.tv_sec - 60);
	clock_gettime(CLOCK_BOOTTIME, &ts);
	assert_true(boot / US_PER_S <= ts.tv_sec && boot / US_PER_S >= ts.tv_sec - 60);
}

static void test_id_make(void **state)
{
	struct id id = id_make(0x6748a0b1, UINT64_C(0x00ffee0102030405));
	struct id zero = id_make(0, 0);

	assert_string_equal(id.hex, "6748a0b100ffee0102030405");
	assert_string_equal(zero.hex, "000000000000000000000000");
	assert_true(id_is_valid(id_str(&id)));
	assert_false(id_eq(&id, &zero));
	assert_true(id_eq(&id, &id));
}

static void test_id_from_bytes(void **state)
{
	static const uint8_t bytes[] = {0, 1, 0x0f, 0xf0, 0xff, 0xab, 0xcd, 0xef, 9, 10, 11, 12};
	struct id id = id_from_bytes(bytes);

	assert_string_equal(id.hex, "00010ff0ffabcdef090a0b0c");
}

static void test_id_parse(void **state)
{
	static const struct {
		struct str text;
		bool valid;
	} rows[] = {
		{STR("6748a0b100ffee0102030405"), true},
		{STR("6748A0B100FFEE0102030405"), false},
		{STR("6748a0b100ffee010203040"), false},
		{STR("6748a0b100ffee01020304055"), false},
		{STR("6748a0b100ffee010203040g"), false},
		{STR("6748a0b100ffee01020304 5"), false},
		{STR("6748a0b100ffee0102030\0005"), false},
		{STR(""), false},
		{STR_NULL, false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct id id = {"junk"};

		assert_int_equal(id_is_valid(rows[i].text), rows[i].valid);
		assert_int_equal(id_parse(rows[i].text, &id), rows[i].valid);
		if (rows[i].valid)
			assert_true(str_eq(id_str(&id), rows[i].text));
		else
			assert_string_equal(id.hex, "");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clock_text),
		cmocka_unit_test(test_clocks_run),
		cmocka_unit_test(test_id_make),
		cmocka_unit_test(test_id_from_bytes),
		cmocka_unit_test(test_id_parse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
