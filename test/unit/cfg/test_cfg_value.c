/* SPDX-License-Identifier: Apache-2.0 */
/* Each type's right and wrong values, with the words in which a wrong one is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cfg/cfg_table.h"
#include "reactor/base/mem.h"

#define ROW(unit_, ...)                                                                            \
	{                                                                                          \
		.section = "s", .key = "k", .unit = unit_, .def = "x", .prose = "", __VA_ARGS__    \
	}

static const struct cfg_row string = ROW("", .type = CFG_STRING, .min = 1, .max = 8);
static const struct cfg_row strings =
	ROW("", .type = CFG_STRING, .min = 0, .max = 20, .flags = CFG_MANY);
static const struct cfg_row number = ROW("tasks", .type = CFG_INT, .min = 0, .max = 256);
static const struct cfg_row boolean = ROW("", .type = CFG_BOOL);
static const struct cfg_row duration =
	ROW("", .type = CFG_DURATION, .min = 100000, .max = 600000000);
static const struct cfg_row any_duration =
	ROW("", .type = CFG_DURATION, .min = 0, .max = INT64_MAX);
static const struct cfg_row size = ROW("", .type = CFG_BYTES, .min = 0, .max = INT64_C(1) << 40);
static const struct cfg_row address = ROW("", .type = CFG_ADDRESS, .min = 1);
static const struct cfg_row any_port = ROW("", .type = CFG_ADDRESS, .min = 0);
static const struct cfg_row optional = {.def = "", .unit = "", .type = CFG_ADDRESS, .min = 1};
static const struct cfg_row addresses = ROW("", .type = CFG_ADDRESS, .min = 1, .flags = CFG_MANY);
static const struct cfg_row choice = ROW("auto|ns|none", .type = CFG_CHOICE);
static const struct cfg_row secret = ROW("", .type = CFG_INT, .max = 9, .flags = CFG_SECRET);

static void right_values_are_taken_in_normal_form(void **state unused)
{
	static const struct {
		const struct cfg_row *row;
		const char *text, *normal;
		int64_t number;
	} rows[] = {
		{&string, "a", "a", 0},
		{&string, " x ; #\"", " x ; #\"", 0}, /* not for this layer to trim or interpret */
		{&string, "12345678", "12345678", 0},
		{&string, "\xC3\xA4", "\xC3\xA4", 0},
		{&strings, "", "", 0},
		{&strings, " a ,b", "a,b", 0},
		{&number, "0", "0", 0},
		{&number, " 256 ", "256", 256},
		{&boolean, "yes", "yes", 1},
		{&boolean, "on", "yes", 1},
		{&boolean, "true", "yes", 1},
		{&boolean, "no", "no", 0},
		{&boolean, "off", "no", 0},
		{&boolean, "false", "no", 0},
		{&duration, "100ms", "100ms", 100000},
		{&duration, "5s", "5s", 5000000},
		{&duration, "10m", "10m", 600000000},
		{&any_duration, "2h", "2h", INT64_C(7200000000)},
		{&any_duration, "0", "0", 0},
		{&any_duration, "0s", "0s", 0},
		{&size, "0", "0", 0},
		{&size, "100B", "100B", 100},
		{&size, "64KiB", "64KiB", 65536},
		{&size, "256MiB", "256MiB", 268435456},
		{&size, "1GiB", "1GiB", 1073741824},
		{&size, "1TiB", "1TiB", INT64_C(1) << 40},
		{&address, "127.0.0.1:4000", "127.0.0.1:4000", 0},
		{&optional, "", "", 0},
		{&optional, " 127.0.0.1:9 ", "127.0.0.1:9", 0},
		{&address, "[::1]:65535", "[::1]:65535", 0},
		{&any_port, "0.0.0.0:0", "0.0.0.0:0", 0},
		{&addresses, "10.0.0.1:1 , [fe80::1]:2", "10.0.0.1:1,[fe80::1]:2", 0},
		{&choice, "none", "none", 0},
		{&choice, " ns", "ns", 0},
		{&secret, "7", "7", 7},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct cfg_value value = {0};
		struct buf why cleanup(buf_fini) = BUF_INIT;

		if (!cfg_value_parse(rows[i].row, str_from(rows[i].text), &value, &why))
			fail_msg("%s: " STR_FMT, rows[i].text, STR_ARG(buf_str(&why)));
		assert_string_equal(value.text, rows[i].normal);
		assert_int_equal(value.number, rows[i].number);
		assert_int_equal(why.len, 0);
		cfg_value_fini(&value);
		cfg_value_fini(&value); /* idempotent */
	}
}

static void wrong_values_are_refused_with_what_would_be_right(void **state unused)
{
	static const struct {
		const struct cfg_row *row;
		const char *text, *why;
	} rows[] = {
		{&string, "", "\"\" is 0 bytes long: 1 to 8 are allowed"},
		{&string, "123456789", "\"123456789\" is 9 bytes long: 1 to 8 are allowed"},
		{&string, "a\nb", "\"a\\nb\" holds a control character"},
		{&strings, "a,,b", "\"a,,b\" has an empty item between its commas"},
		{&strings, "a,b,", "\"a,b,\" has an empty item between its commas"},
		{&strings, "a,b,a", "\"a\" is listed twice"},
		{&number, "-1", "\"-1\" is out of range: 0 to 256 tasks"},
		{&number, "257", "\"257\" is out of range: 0 to 256 tasks"},
		{&number, "99999999999999999999",
			"\"99999999999999999999\" is out of range: 0 to 256 tasks"},
		{&number, "4 tasks", "\"4 tasks\" is not a number: write 0 to 256 tasks"},
		{&number, "", "\"\" is not a number: write 0 to 256 tasks"},
		{&number, "0x10", "\"0x10\" is not a number: write 0 to 256 tasks"},
		{&boolean, "1",
			"\"1\" is neither yes nor no (true, false, on and off are understood too)"},
		{&boolean, "",
			"\"\" is neither yes nor no (true, false, on and off are understood too)"},
		{&duration, "5", "\"5\" is not a duration: write 5s or 5ms"},
		{&duration, "5sec", "\"5sec\" is not a duration: write 5s"},
		{&duration, "5 s", "\"5 s\" is not a duration: write 5s"},
		{&duration, "5msec", "\"5msec\" is not a duration: write 5ms"},
		{&duration, "5min", "\"5min\" is not a duration: write 5m"},
		{&duration, "5H", "\"5H\" is not a duration: write 5h"},
		{&duration, "5x", "\"5x\" is not a duration: write 5 and a unit (ms, s, m or h)"},
		{&duration, "1.5s",
			"\"1.5s\" is not a duration: write a whole number and a unit (ms, s, m or "
			"h)"},
		{&duration, "-5s",
			"\"-5s\" is not a duration: write a whole number and a unit (ms, s, m or "
			"h)"},
		{&duration, "s",
			"\"s\" is not a duration: write a whole number and a unit (ms, s, m or h)"},
		{&duration, "",
			"\"\" is not a duration: write a whole number and a unit (ms, s, m or h)"},
		{&duration, "0", "\"0\" is out of range: 100ms to 10m"},
		{&duration, "99ms", "\"99ms\" is out of range: 100ms to 10m"},
		{&duration, "11m", "\"11m\" is out of range: 100ms to 10m"},
		{&duration, "9223372036854775807h",
			"\"9223372036854775807h\" is out of range: 100ms to 10m"},
		{&duration, "99999999999999999999s",
			"\"99999999999999999999s\" is out of range: 100ms to 10m"},
		{&size, "64", "\"64\" is not a size: write 64KiB or 64MiB"},
		{&size, "64MB", "\"64MB\" is not a size: write 64MiB"},
		{&size, "64k", "\"64k\" is not a size: write 64KiB"},
		{&size, "2TiB", "\"2TiB\" is out of range: 0 to 1TiB"},
		/* 2^64 + 2^40 bytes: must not wrap to the 1TiB that is allowed */
		{&size, "16777217TiB", "\"16777217TiB\" is out of range: 0 to 1TiB"},
		{&address, "", "is empty: write IP:PORT or [IPV6]:PORT"},
		{&address, "127.0.0.1",
			"\"127.0.0.1\" has no port: write 127.0.0.1:4000 or [::1]:4000"},
		{&address, "127.0.0.1:", "\"127.0.0.1:\" has no good port: 1 to 65535"},
		{&address, "127.0.0.1:0", "\"127.0.0.1:0\" has no good port: 1 to 65535"},
		{&any_port, "127.0.0.1:65536", "\"127.0.0.1:65536\" has no good port: 0 to 65535"},
		{&address, "127.0.0.1:+1", "\"127.0.0.1:+1\" has no good port: 1 to 65535"},
		{&address, "::1:4000",
			"\"::1:4000\" is not an address: write IP:PORT or [IPV6]:PORT, no host "
			"names"},
		{&address, "[127.0.0.1]:1",
			"\"[127.0.0.1]:1\" is not an address: write IP:PORT or [IPV6]:PORT, no "
			"host names"},
		{&address, "localhost:1",
			"\"localhost:1\" is not an address: write IP:PORT or [IPV6]:PORT, no host "
			"names"},
		{&address, "1.1.1.1:1,1.1.1.2:1",
			"\"1.1.1.1:1,1.1.1.2:1\" is not an address: write "
			"IP:PORT or [IPV6]:PORT, no host names"},
		{&addresses, "1.1.1.1:1,1.1.1.1:1", "\"1.1.1.1:1\" is listed twice"},
		{&choice, "non", "\"non\" is not a choice: write none (one of auto, ns or none)"},
		{&choice, "docker", "\"docker\" is not a choice: write auto, ns or none"},
		{&choice, "", "\"\" is not a choice: write auto, ns or none"},
		{&choice, "auto|ns", "\"auto|ns\" is not a choice: write auto, ns or none"},
		{&secret, "hunter2",
			"the value (not shown, it is a secret) is wrong: write 0 to 9"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct cfg_value value = {0};
		struct buf why cleanup(buf_fini) = BUF_INIT;

		assert_false(cfg_value_parse(rows[i].row, str_from(rows[i].text), &value, &why));
		assert_string_equal(why.data, rows[i].why);
		assert_null(value.text);
	}
}

static void lists_are_bounded(void **state unused)
{
	struct cfg_row row = ROW("", .type = CFG_STRING, .max = 1000, .flags = CFG_MANY);
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct buf why cleanup(buf_fini) = BUF_INIT;
	struct cfg_value value = {0};

	for (int i = 0; i < 64; i++)
		buf_addf(&text, "%s%d", i ? "," : "", i);
	assert_true(cfg_value_parse(&row, buf_str(&text), &value, &why));
	cfg_value_fini(&value);
	buf_add_str(&text, STR(",64"));
	assert_false(cfg_value_parse(&row, buf_str(&text), &value, &why));
	assert_non_null(strstr(why.data, "lists more than 64 items"));
}

/* Rows of options.def: every default is right (cfg_new checks), sorted, unique, documented. */
static void the_table_is_in_order(void **state unused)
{
	for (size_t i = 0; i < OPT_N; i++) {
		const struct cfg_row *row = &cfg_rows[i];

		assert_non_null(row->section);
		assert_true(strlen(row->prose) > 10);
		assert_int_not_equal(row->services & CFG_ALL, 0);
		assert_int_equal(row->services & ~(unsigned)CFG_ALL, 0);
		assert_int_equal(cfg_find(str_from(row->section), str_from(row->key)), (int)i);
		if (i == 0)
			continue;
		int order = strcmp(cfg_rows[i - 1].section, row->section);

		assert_true(order < 0 || (order == 0 && strcmp(cfg_rows[i - 1].key, row->key) < 0));
	}
	assert_int_equal(cfg_find(STR("executor"), STR("slot")), -1);
	assert_int_equal(cfg_find(STR("slots"), STR("executor")), -1);
}

/* CONCLAVE_A_B_C could be [a] b_c or [a_b] c: the table must not hold both. */
static void environment_names_are_unique(void **state unused)
{
	for (size_t i = 0; i < OPT_N; i++) {
		char *a cleanup(mem_freep) =
			mem_printf("%s_%s", cfg_rows[i].section, cfg_rows[i].key);

		for (size_t k = i + 1; k < OPT_N; k++) {
			char *b cleanup(mem_freep) =
				mem_printf("%s_%s", cfg_rows[k].section, cfg_rows[k].key);

			assert_string_not_equal(a, b);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(right_values_are_taken_in_normal_form),
		cmocka_unit_test(wrong_values_are_refused_with_what_would_be_right),
		cmocka_unit_test(lists_are_bounded),
		cmocka_unit_test(the_table_is_in_order),
		cmocka_unit_test(environment_names_are_unique),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
