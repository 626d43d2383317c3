/* SPDX-License-Identifier: Apache-2.0 */
/* str: comparison, trimming, cutting, numbers and UTF-8, by table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "reactor/base/str.h"

static void test_equality_and_order(void **state)
{
	static const char nul_inside[] = "a\0b";

	assert_true(str_eq(STR("abc"), str_from("abc")));
	assert_false(str_eq(STR("abc"), STR("abd")));
	assert_false(str_eq(STR("abc"), STR("ab")));
	assert_true(str_eq(STR(""), STR("")));
	assert_true(str_eq(STR_NULL, str_from(NULL)));
	assert_false(str_eq(STR_NULL, STR("")));
	assert_false(str_eq((struct str){nul_inside, 3}, STR("a\0c")));
	assert_true(str_is(STR("x"), "x"));
	assert_false(str_is(STR_NULL, ""));
	assert_int_equal(str_cmp(STR("a"), STR("b")), -1);
	assert_int_equal(str_cmp(STR("b"), STR("a")), 1);
	assert_int_equal(str_cmp(STR("ab"), STR("a")), 1);
	assert_int_equal(str_cmp(STR("a"), STR("ab")), -1);
	assert_int_equal(str_cmp(STR("a"), STR("a")), 0);
	assert_int_equal(str_cmp(STR("\xff"), STR("a")), 1); /* bytes are unsigned */
	assert_int_equal(str_cmp(STR_NULL, STR("")), 0);
}

static void test_dup(void **state)
{
	char *copy = str_dup((struct str){"hello", 4});
	char *empty = str_dup(STR(""));

	assert_string_equal(copy, "hell");
	assert_string_equal(empty, "");
	assert_null(str_dup(STR_NULL));
	free(copy);
	free(empty);
}

static void test_trim(void **state)
{
	static const struct {
		struct str in, out;
	} rows[] = {
		{STR("  a b \t\r\n"), STR("a b")},
		{STR("a"), STR("a")},
		{STR(" \n\t "), STR("")},
		{STR(""), STR("")},
		{STR("\va\f"), STR("\va\f")},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_true(str_eq(str_trim(rows[i].in), rows[i].out));
	assert_null(str_trim(STR_NULL).p);
}

/* Cuts at ',' and joins the pieces with '|'. */
static const char *cut_all(struct str rest, char *out)
{
	struct str head;
	char *at = out;

	for (bool first = true; str_cut(&rest, ',', &head); first = false) {
		if (!first)
			*at++ = '|';
		if (head.n)
			memcpy(at, head.p, head.n);
		at += head.n;
	}
	*at = '\0';
	return out;
}

static void test_cut(void **state)
{
	struct str rest = STR("only"), head;
	char out[64];

	assert_string_equal(cut_all(STR("a,b,c"), out), "a|b|c");
	assert_string_equal(cut_all(STR(",a,,"), out), "|a||");
	assert_true(str_cut(&rest, ',', &head));
	assert_true(str_is(head, "only"));
	assert_null(rest.p);
	assert_false(str_cut(&rest, ',', &head));
	assert_null(head.p);
	rest = STR("");
	assert_true(str_cut(&rest, ',', &head));
	assert_non_null(head.p);
	assert_int_equal(head.n, 0);
	assert_null(rest.p);
}

static void test_to_i64(void **state)
{
	static const struct {
		struct str text;
		int64_t value;
	} good[] = {
		{STR("0"), 0},
		{STR("-0"), 0},
		{STR("007"), 7},
		{STR("-12"), -12},
		{STR("9223372036854775807"), INT64_MAX},
		{STR("-9223372036854775808"), INT64_MIN},
	};
	static const struct str bad[] = {
		STR(""),
		STR("-"),
		STR("+1"),
		STR(" 1"),
		STR("1 "),
		STR("1a"),
		STR("0x1"),
		STR("--1"),
		STR("1.0"),
		STR("1\0"),
		STR("9223372036854775808"),
		STR("-9223372036854775809"),
		STR("99999999999999999999999"),
		STR_NULL,
	};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		int64_t value = 77;

		assert_true(str_to_i64(good[i].text, &value));
		assert_true(value == good[i].value);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		int64_t value = 77;

		assert_false(str_to_i64(bad[i], &value));
		assert_true(value == 77);
	}
}

static void test_utf8_table(void **state)
{
	static const struct {
		struct str text;
		bool valid;
	} rows[] = {
		{STR(""), true},
		{STR("plain ascii, longer than eight bytes"), true},
		{STR("a\0b"), true},
		{STR("\x7f"), true},
		{STR("\xc2\x80"), true},             /* U+0080, first of two bytes */
		{STR("\xdf\xbf"), true},             /* U+07FF */
		{STR("\xe0\xa0\x80"), true},         /* U+0800, first of three */
		{STR("\xed\x9f\xbf"), true},         /* U+D7FF, before the surrogates */
		{STR("\xee\x80\x80"), true},         /* U+E000, behind them */
		{STR("\xef\xbf\xbf"), true},         /* U+FFFF */
		{STR("\xf0\x90\x80\x80"), true},     /* U+10000, first of four */
		{STR("\xf4\x8f\xbf\xbf"), true},     /* U+10FFFF, the last */
		{STR("12345678\xe2\x82\xac"), true}, /* behind the fast path */
		{STR("1234567\xe2\x82\xac"
		     "99"),
			true},        /* across its edge */
		{STR("\x80"), false}, /* continuation alone */
		{STR("\xbf"), false},
		{STR("\xc0\x80"), false},                 /* overlong NUL */
		{STR("\xc1\xbf"), false},                 /* overlong U+007F */
		{STR("\xe0\x80\x80"), false},             /* overlong NUL, three bytes */
		{STR("\xe0\x9f\xbf"), false},             /* overlong U+07FF */
		{STR("\xf0\x80\x80\x80"), false},         /* overlong NUL, four bytes */
		{STR("\xf0\x8f\xbf\xbf"), false},         /* overlong U+FFFF */
		{STR("\xed\xa0\x80"), false},             /* U+D800, first surrogate */
		{STR("\xed\xbf\xbf"), false},             /* U+DFFF, last surrogate */
		{STR("\xed\xa0\xbd\xed\xb8\x80"), false}, /* a pair of them (CESU-8) */
		{STR("\xf4\x90\x80\x80"), false},         /* U+110000 */
		{STR("\xf5\x80\x80\x80"), false},
		{STR("\xf8\x88\x80\x80\x80"), false}, /* five bytes */
		{STR("\xfe"), false},
		{STR("\xff"), false},
		{STR("\xc2"), false}, /* cut short */
		{STR("\xe2\x82"), false},
		{STR("\xf0\x9f\x98"), false},
		{STR("\xc2\x41"), false}, /* continuation missing */
		{STR("\xe2\x82\x41"), false},
		{STR("\xe2\x41\xac"), false},
		{STR("\xf0\x9f\x98\xc0"), false},
		{STR("12345678\xff"), false},
		{STR("1234567\xff"), false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (str_is_utf8(rows[i].text) != rows[i].valid)
			fail_msg("row %zu", i);
	assert_true(str_is_utf8(STR_NULL));
}

/* Against a decoder written the other way round: every code point, encoded by hand. */
static void test_utf8_every_code_point(void **state)
{
	for (uint32_t c = 0x80; c < 0x120000; c++) {
		char e[4];
		size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
		static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
		bool valid = c <= 0x10ffff && !(c >= 0xd800 && c <= 0xdfff);

		for (size_t k = n - 1, rest = c; k > 0; k--, rest >>= 6)
			e[k] = (char)(0x80 | (rest & 0x3f));
		e[0] = (char)(lead[n] | (c >> (6 * (n - 1))));
		if (str_is_utf8((struct str){e, n}) != valid)
			fail_msg("U+%04X", c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equality_and_order),
		cmocka_unit_test(test_dup),
		cmocka_unit_test(test_trim),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_to_i64),
		cmocka_unit_test(test_utf8_table),
		cmocka_unit_test(test_utf8_every_code_point),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
