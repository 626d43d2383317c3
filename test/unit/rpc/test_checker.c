/* SPDX-License-Identifier: Apache-2.0 */
/* checker: each kind's rules, messages, and that neither chunks nor the fast path change an answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "reactor/base/buf.h"
#include "rpc/task/checker.h"

static bool check(enum checker_kind kind, struct str expected, struct str output,
	char message[CHECKER_MESSAGE_MAX])
{
	struct checker *c = checker_new(kind, expected);
	bool accepts;

	checker_feed(c, output);
	accepts = checker_accepts(c, message);
	checker_free(c);
	return accepts;
}

struct row {
	struct str expected, output;
	const char *message; /* NULL = accepted */
};
#define ROW(expected, output, message)                                                             \
	{                                                                                          \
		{expected, sizeof(expected) - 1}, {output, sizeof(output) - 1}, message            \
	}

static void check_rows(enum checker_kind kind, const struct row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char message[CHECKER_MESSAGE_MAX], again[CHECKER_MESSAGE_MAX];
		struct checker *c = checker_new(kind, rows[i].expected);
		bool accepts = check(kind, rows[i].expected, rows[i].output, message);

		if (accepts != !rows[i].message ||
			strcmp(message, accepts ? "" : rows[i].message) != 0)
			fail_msg("row %zu: %d \"%s\"", i, accepts, message);
		for (size_t k = 0; k < rows[i].output.n; k++)
			checker_feed(c, (struct str){rows[i].output.p + k, 1});
		assert_int_equal(checker_accepts(c, again), accepts);
		assert_string_equal(again, message);
		checker_free(c);
	}
}

static void test_lines(void **state)
{
	static const struct row rows[] = {
		ROW("3\n", "3\n", NULL),
		ROW("3\n", "3", NULL),
		ROW("3", "3\n", NULL),
		ROW("3\n", "3 \t\r\n\n \n\n", NULL),
		ROW("3  \r\n\n", "3", NULL),
		ROW("a\nb\n", "a\r\nb\r\n", NULL),
		ROW("a\r\nb", "a\nb\n", NULL),
		ROW("", "", NULL),
		ROW("", "\n \n", NULL),
		ROW("\n \n", "", NULL),
		ROW("a\n\nb", "a\n  \nb", NULL),
		ROW(" a  b", " a  b ", NULL),
		ROW("x\0y\xff", "x\0y\xff\n", NULL),
		ROW("3\n", "4\n", "line 1: expected \"3\", got \"4\""),
		ROW("3\n", "", "line 1: expected \"3\", got end of output"),
		ROW("", "4", "line 1: expected end of output, got \"4\""),
		ROW("a\nb\n", "a\n", "line 2: expected \"b\", got end of output"),
		ROW("a\nb\n", "a", "line 2: expected \"b\", got end of output"),
		ROW("a\n\n\nb\n", "a  ", "line 4: expected \"b\", got end of output"),
		ROW("a\n", "a\nb\n", "line 2: expected end of output, got \"b\""),
		ROW("a", "a\nb\n", "line 2: expected end of output, got \"b\""),
		ROW("a", "a\n\n \nb\n", "line 4: expected end of output, got \"b\""),
		ROW("a", "ab", "line 1: expected \"a\", got \"ab\""),
		ROW("ab", "a", "line 1: expected \"ab\", got \"a\""),
		ROW("ab\nc", "a\nc", "line 1: expected \"ab\", got \"a\""),
		ROW("a\nb", "a\n\nb", "line 2: expected \"b\", got an empty line"),
		ROW("a\n\nb", "a\nb", "line 2: expected an empty line, got \"b\""),
		ROW("a b", "a  b", "line 1: expected \"a b\", got \"a  b\""),
		ROW("a  b", "a b", "line 1: expected \"a  b\", got \"a b\""),
		ROW("a b", "a\tb", "line 1: expected \"a b\", got \"a\\tb\""),
		ROW("a b", "a\n", "line 1: expected \"a b\", got \"a\""),
		ROW("a b", "a  \n", "line 1: expected \"a b\", got \"a\""),
		ROW(" a", "a", "line 1: expected \" a\", got \"a\""),
		ROW("a", "\na", "line 1: expected \"a\", got an empty line"),
		ROW("x\ny\n", "x\n\xff\x00\"\n", "line 2: expected \"y\", got \"\\xff\\x00\\\"\""),
		ROW("\xc3\xa9", "\xc3\xa8", "line 1: expected \"\xc3\xa9\", got \"\xc3\xa8\""),
		ROW("0123456789abcdefghijklmn", "0123456789abcdefghijXlmn",
			"line 1: expected \"...456789abcdefghijklmn\", got "
			"\"...456789abcdefghijXlmn\""),
		ROW("1111111111111111111111111111111111111111",
			"2222222222222222222222222222222222222222",
			"line 1: expected \"11111111111111111111111111111111...\", got "
			"\"22222222222222222222222222222222...\""),
	};

	check_rows(CHECKER_LINES, rows, ARRAY_SIZE(rows));
}

static void test_exact(void **state)
{
	static const struct row rows[] = {
		ROW("a\n", "a\n", NULL),
		ROW("", "", NULL),
		ROW("\0\xff", "\0\xff", NULL),
		ROW("a\n", "a", "line 1: expected \"a\\n\", got \"a\""),
		ROW("a", "a\n", "line 1: expected \"a\", got \"a\\n\""),
		ROW("a\nb", "a\n\n", "line 2: expected \"b\", got \"\\n\""),
		ROW("a\nb", "a\n", "line 2: expected \"b\", got end of output"),
		ROW("a\n", "a\r\n", "line 1: expected \"a\\n\", got \"a\\r\\n\""),
		ROW("", "x", "line 1: expected end of output, got \"x\""),
		ROW("a\n", "a\n\n", "line 2: expected end of output, got \"\\n\""),
		ROW("a \n", "a\n", "line 1: expected \"a \\n\", got \"a\\n\""),
	};

	check_rows(CHECKER_EXACT, rows, ARRAY_SIZE(rows));
}

static void test_tokens(void **state)
{
	static const struct row rows[] = {
		ROW("1 2 3\n", "1\n2\t\r\n 3", NULL),
		ROW("  1 2", "1 2  \n\n", NULL),
		ROW("", " \n", NULL),
		ROW("\n", "", NULL),
		ROW("a\0b \xff", "a\0b\v\f\xff", NULL),
		ROW("1 2", "12", "token 1 (line 1): expected \"1\", got \"12\""),
		ROW("12", "1 2", "token 1 (line 1): expected \"12\", got \"1\""),
		ROW("12", "1", "token 1 (line 1): expected \"12\", got \"1\""),
		ROW("1 2\n3 4", "1 2 3 5", "token 4 (line 2): expected \"4\", got \"5\""),
		ROW("1 2", "1", "token 2 (line 1): expected \"2\", got end of output"),
		ROW("1 2", "1 ", "token 2 (line 1): expected \"2\", got end of output"),
		ROW("1", "1 2", "token 2 (line 1): expected end of output, got \"2\""),
		ROW("1\n", "1 2", "token 2 (line 2): expected end of output, got \"2\""),
		ROW("", "2", "token 1 (line 1): expected end of output, got \"2\""),
		ROW("1 abc", "1 abd x", "token 2 (line 1): expected \"abc\", got \"abd\""),
		ROW("1 abc", "1 xbd x", "token 2 (line 1): expected \"abc\", got \"xbd\""),
	};

	check_rows(CHECKER_TOKENS, rows, ARRAY_SIZE(rows));
}

#define LONG_ZEROS "0000000000000000000000000000000000000000000000000000000000000000"
#define ZEROS_512                                                                                  \
	LONG_ZEROS LONG_ZEROS LONG_ZEROS LONG_ZEROS LONG_ZEROS LONG_ZEROS LONG_ZEROS LONG_ZEROS

static void test_float(void **state)
{
	static const struct row rows[] = {
		ROW("1 2 3\n", "1\n2\t\r\n 3", NULL),
		ROW("", " \n", NULL),
		ROW("1.5", "1.50", NULL),
		ROW("1.50", "1.5", NULL),
		ROW("0.5 yes", ".5 yes\n", NULL),
		ROW("5", "5.", NULL),
		ROW("100", "1e2", NULL),
		ROW("100", "+1.E+2", NULL),
		ROW("0", "-0.0", NULL),
		ROW("1", "1.000001", NULL),
		ROW("0", "0.000001", NULL),
		ROW("0", "0.0000011", "token 1 (line 1): expected \"0\", got \"0.0000011\""),
		ROW("1000000", "1000000.9", NULL),
		ROW("1000000", "1000001.1",
			"token 1 (line 1): expected \"1000000\", got \"1000001.1\""),
		ROW("nan NaN -nan", "NAN -nan nan", NULL),
		ROW("inf -Infinity", "+INFINITY -inf", NULL),
		ROW("inf", "-inf", "token 1 (line 1): expected \"inf\", got \"-inf\""),
		ROW("inf", "1e308", "token 1 (line 1): expected \"inf\", got \"1e308\""),
		ROW("nan", "1", "token 1 (line 1): expected \"nan\", got \"1\""),
		ROW("1", "nan", "token 1 (line 1): expected \"1\", got \"nan\""),
		ROW("inf", "1e400", "token 1 (line 1): expected \"inf\", got \"1e400\""),
		ROW("1e400 2", "1e400 2.0", NULL),
		ROW("1e400", "1e401", "token 1 (line 1): expected \"1e400\", got \"1e401\""),
		ROW("1e308", "-1e308", "token 1 (line 1): expected \"1e308\", got \"-1e308\""),
		ROW("16", "0x10", "token 1 (line 1): expected \"16\", got \"0x10\""),
		ROW("0x10", "0x10", NULL),
		ROW("nan", "nan(1)", "token 1 (line 1): expected \"nan\", got \"nan(1)\""),
		ROW("1", "1,0", "token 1 (line 1): expected \"1\", got \"1,0\""),
		ROW("1", "1.0.0", "token 1 (line 1): expected \"1\", got \"1.0.0\""),
		ROW("1", "1e", "token 1 (line 1): expected \"1\", got \"1e\""),
		ROW("1", "1.0\0", "token 1 (line 1): expected \"1\", got \"1.0\\x00\""),
		ROW("0", ".", "token 1 (line 1): expected \"0\", got \".\""),
		ROW("0", "-", "token 1 (line 1): expected \"0\", got \"-\""),
		ROW("Yes 1.0", "Yes 1", NULL),
		ROW("Yes 1", "yes 1", "token 1 (line 1): expected \"Yes\", got \"yes\""),
		ROW("Yes", "Yess", "token 1 (line 1): expected \"Yes\", got \"Yess\""),
		ROW("Yes", "Ye", "token 1 (line 1): expected \"Yes\", got \"Ye\""),
		ROW("12", "1 2", "token 1 (line 1): expected \"12\", got \"1\""),
		ROW("1\n2 3.5 4", "1 2.0 3.6 4", "token 3 (line 2): expected \"3.5\", got \"3.6\""),
		ROW("1.5 2", "1.50", "token 2 (line 1): expected \"2\", got end of output"),
		ROW("1.5", "1.50 2", "token 2 (line 1): expected end of output, got \"2\""),
		ROW("", "2", "token 1 (line 1): expected end of output, got \"2\""),
		ROW("1" ZEROS_512, "1" ZEROS_512, NULL),
		ROW("0." LONG_ZEROS LONG_ZEROS "1", "0", NULL),
		ROW("0", "0." ZEROS_512,
			"token 1 (line 1): expected \"0\", got "
			"\"0.000000000000000000000000000000...\""),
	};

	check_rows(CHECKER_FLOAT, rows, ARRAY_SIZE(rows));
}

static bool is_near(double abs, double rel, const char *expected, const char *output)
{
	struct checker *c = checker_new(CHECKER_FLOAT, str_from(expected));
	char message[CHECKER_MESSAGE_MAX];
	bool accepts;

	checker_set_tolerance(c, abs, rel);
	checker_feed(c, str_from(output));
	accepts = checker_accepts(c, message);
	checker_free(c);
	return accepts;
}

static void test_tolerance(void **state)
{
	assert_true(is_near(0, 0, "1.50", "1.5"));
	assert_false(is_near(0, 0, "1.5", "1.5000001"));
	assert_true(is_near(0.25, 0, "1000", "1000.25"));
	assert_false(is_near(0.25, 0, "1000", "1000.26"));
	assert_true(is_near(0, 0.5, "-8", "-4"));
	assert_false(is_near(0, 0.5, "-8", "-3.9"));
	/* relative to the expected number, not to the other */
	assert_false(is_near(0, 0.5, "-4", "-8"));
	assert_true(is_near(0.25, 0.5, "0", "-0.25"));
}

/* However the output is cut, the answer is that of the whole. */
static void test_float_in_chunks(void **state)
{
	static const char expected[] = "1.5 abc  2.25\n-3e2 x";
	static const char *const outputs[] = {"1.5 abc  2.25\n-3e2 x", "1.50 abc 2.25 -300 x",
		"1.5 abc  2.26\n-3e2 x", "1.5 abd  2.25\n-3e2 x", "1.5 abc  2.250\n-3e2 xy"};

	for (size_t i = 0; i < ARRAY_SIZE(outputs); i++) {
		struct str output = str_from(outputs[i]);
		char message[CHECKER_MESSAGE_MAX], again[CHECKER_MESSAGE_MAX];
		bool accepts = check(CHECKER_FLOAT, str_from(expected), output, message);

		assert_int_equal(accepts, i < 2);
		for (size_t a = 0; a <= output.n; a++) {
			for (size_t b = a; b <= output.n; b++) {
				struct checker *c = checker_new(CHECKER_FLOAT, str_from(expected));

				checker_feed(c, (struct str){output.p, a});
				checker_feed(c, (struct str){output.p + a, b - a});
				checker_feed(c, (struct str){output.p + b, output.n - b});
				assert_int_equal(checker_accepts(c, again), accepts);
				assert_string_equal(again, message);
				checker_free(c);
			}
		}
	}
}

static void test_nothing_expected(void **state)
{
	for (int kind = 0; kind < CHECKER_KIND_N; kind++) {
		char message[CHECKER_MESSAGE_MAX] = "x";

		assert_true(check((enum checker_kind)kind, STR_NULL, STR("anything"), message));
		assert_string_equal(message, "");
	}
	checker_free(NULL);
}

static void test_names(void **state)
{
	static const char *const names[] = {"lines", "exact", "tokens", "float"};

	for (int kind = 0; kind < CHECKER_KIND_N; kind++) {
		enum checker_kind parsed = CHECKER_KIND_N;

		assert_string_equal(checker_name((enum checker_kind)kind), names[kind]);
		assert_true(checker_parse(str_from(names[kind]), &parsed));
		assert_int_equal(parsed, kind);
		assert_false(checker_parse(STR("double"), &parsed));
		assert_false(checker_parse(STR_NULL, &parsed));
	}
}

/* --- against plain definitions of the rules ------------------------------------------------------ */

static bool is_space(char c)
{
	return c && strchr(" \t\r\v\f\n", c);
}

static void plain_lines(struct str s, struct buf *out)
{
	size_t keep = 0;

	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] == '\n') {
			while (out->len > keep && is_space(out->data[out->len - 1]) &&
				out->data[out->len - 1] != '\n')
				out->len--;
			keep = out->len + 1;
		}
		buf_add_char(out, s.p[i]);
	}
	while (out->len && is_space(out->data[out->len - 1]))
		out->len--;
}

static void plain_tokens(struct str s, struct buf *out)
{
	for (size_t i = 0; i < s.n; i++) {
		if (!is_space(s.p[i]))
			buf_add_char(out, s.p[i]);
		else if (out->len && out->data[out->len - 1] != ' ')
			buf_add_char(out, ' ');
	}
	if (out->len && out->data[out->len - 1] == ' ')
		out->len--;
}

static bool plain_accepts(enum checker_kind kind, struct str expected, struct str output)
{
	struct buf a cleanup(buf_fini) = BUF_INIT, b cleanup(buf_fini) = BUF_INIT;

	if (kind == CHECKER_EXACT)
		return str_eq(expected, output);
	(kind == CHECKER_LINES ? plain_lines : plain_tokens)(expected, &a);
	(kind == CHECKER_LINES ? plain_lines : plain_tokens)(output, &b);
	return str_eq(buf_str(&a), buf_str(&b));
}

static uint32_t draw(uint32_t *seed, uint32_t below)
{
	*seed = *seed * 1664525 + 1013904223;
	return (*seed >> 8) % below;
}

static struct str draw_text(uint32_t *seed, char *p, size_t max)
{
	static const char letters[] = "ab \t\r\n\nb\0\xff";
	size_t n = draw(seed, (uint32_t)max + 1);

	for (size_t i = 0; i < n; i++)
		p[i] = letters[draw(seed, sizeof(letters) - 1)];
	return (struct str){p, n};
}

/* A text that is often equal in the sense of some kind: blanks put in, taken out, a byte changed now and then. */
static struct str vary(uint32_t *seed, struct str from, char *p)
{
	size_t n = 0;

	for (size_t i = 0; i <= from.n; i++) {
		if (draw(seed, 8) == 0 && (i == from.n || is_space(from.p[i])))
			p[n++] = " \t\r\n"[draw(seed, 4)];
		if (i == from.n || (is_space(from.p[i]) && draw(seed, 12) == 0))
			continue;
		p[n++] = draw(seed, 60) == 0 ? 'x' : from.p[i];
	}
	return (struct str){p, n};
}

static void test_any_chunks_give_the_same_answer(void **state)
{
	uint32_t seed = 20261127;
	int accepted = 0;

	for (int round = 0; round < 60000; round++) {
		char a[24], b[64], one[CHECKER_MESSAGE_MAX], many[CHECKER_MESSAGE_MAX];
		enum checker_kind kind = (enum checker_kind)(round % CHECKER_KIND_N);
		struct str expected = draw_text(&seed, a, sizeof(a)), output, rest;
		struct checker *c = checker_new(kind, expected);
		bool accepts;

		output = draw(&seed, 4) ? vary(&seed, expected, b) : draw_text(&seed, b, sizeof(a));
		accepts = check(kind, expected, output, one);
		assert_int_equal(accepts, plain_accepts(kind, expected, output));
		for (rest = output; rest.n;) {
			size_t n = draw(&seed, 6);

			n = n < rest.n ? n : rest.n;
			checker_feed(c, (struct str){rest.p, n});
			rest = (struct str){rest.p + n, rest.n - n};
		}
		assert_int_equal(checker_accepts(c, many), accepts);
		assert_string_equal(one, many);
		assert_true(str_is_utf8(str_from(one)));
		assert_int_equal(one[0] == '\0', accepts);
		checker_free(c);
		accepted += accepts;
	}
	assert_in_range(accepted, 5000, 55000); /* both answers are exercised */
}

/* Constant memory: the output may be far larger than anything that is kept. */
static void test_long_outputs(void **state)
{
	static const char blanks[] =
		"                                                                ";
	char message[CHECKER_MESSAGE_MAX];
	struct checker *c = checker_new(CHECKER_LINES, STR("x"));

	checker_feed(c, STR("x"));
	for (int i = 0; i < 100000; i++)
		checker_feed(c, STR(blanks));
	assert_true(checker_accepts(c, message));
	checker_free(c);

	c = checker_new(CHECKER_LINES, STR("x"));
	checker_feed(c, STR("x"));
	for (int i = 0; i < 100000; i++)
		checker_feed(c, STR(blanks));
	checker_feed(c, STR("y"));
	assert_false(checker_accepts(c, message));
	assert_string_equal(
		message, "line 1: expected \"x\", got \"x                                ...\"");
	checker_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_exact),
		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_float),
		cmocka_unit_test(test_tolerance),
		cmocka_unit_test(test_float_in_chunks),
		cmocka_unit_test(test_nothing_expected),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_any_chunks_give_the_same_answer),
		cmocka_unit_test(test_long_outputs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
