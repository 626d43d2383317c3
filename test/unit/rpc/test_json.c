/* SPDX-License-Identifier: Apache-2.0 */
/* json: what is refused and where, exact numbers, pointers, and that what is written reads back the same. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "reactor/base/mem.h"
#include "rpc/json.h"

static struct json_tree *parse_ok(struct str text)
{
	struct json_tree *tree = NULL;
	struct json_error error = {0};

	if (json_parse(text, NULL, &tree, &error))
		fail_msg(STR_FMT ": %s %s at %zu", STR_ARG(text), error.code, error.detail,
			error.offset);
	return tree;
}

static struct json_tree *parse_c(const char *text)
{
	return parse_ok(str_from(text));
}

static void expect_error(
	struct str text, const struct json_limits *limits, const char *code, size_t offset)
{
	struct json_tree *tree = NULL;
	struct json_error error = {0};

	assert_int_equal(json_parse(text, limits, &tree, &error), -EBADMSG);
	assert_null(tree);
	assert_string_equal(error.code, code);
	if (offset != SIZE_MAX)
		assert_int_equal(error.offset, offset);
	assert_true(error.offset <= text.n);
	assert_true(error.detail[0] != '\0');
	assert_true(str_is_utf8(str_from(error.detail)));
	assert_null(strchr(error.detail, '\n'));
}

static void test_tree(void **state)
{
	struct json_tree *tree =
		parse_c(" {\"a\": [1, true, null, \"x\\u0000y\\n\"], \"b\": {}, \"\": -0.5e+3} ");
	const struct json *root = json_root(tree), *a, *node;

	assert_int_equal(root->type, JSON_OBJECT);
	assert_int_equal(root->count, 3);
	assert_null(root->parent);
	a = json_get(root, "a");
	assert_int_equal(a->type, JSON_ARRAY);
	assert_int_equal(a->count, 4);
	assert_ptr_equal(a->parent, root);
	assert_true(str_is(a->key, "a"));
	node = a->first;
	assert_int_equal(node->type, JSON_NUMBER);
	node = node->next;
	assert_int_equal(node->type, JSON_BOOL);
	assert_true(node->boolean);
	node = node->next;
	assert_int_equal(node->type, JSON_NULL);
	assert_int_equal(node->index, 2);
	node = node->next;
	assert_true(str_eq(node->text, STR("x\0y\n")));
	assert_null(node->next);
	assert_int_equal(json_get(root, "b")->count, 0);
	assert_true(str_is(json_get(root, "")->text, "-0.5e+3"));
	assert_null(json_get(root, "c"));
	assert_null(json_get(a, "a"));
	assert_null(json_get(NULL, "a"));
	json_free(tree);
	json_free(NULL);
}

static void test_scalars_at_the_root(void **state)
{
	static const char *const texts[] = {"12", "\"s\"", "null", "true", "false", "[]", " -1 "};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct json_tree *tree cleanup(json_freep) = parse_c(texts[i]);

		assert_non_null(json_root(tree));
	}
}

static void test_syntax_errors(void **state)
{
	static const char *const texts[] = {
		"",
		" ",
		"{",
		"[1",
		"[1,]",
		"{\"a\"}",
		"{\"a\":}",
		"{\"a\":1,}",
		"{a:1}",
		"[1] x",
		"[1][2]",
		"nul",
		"\"abc",
		"01",
		"1.",
		".5",
		"+1",
		"-",
		"1e",
		"NaN",
		"Infinity",
		"'a'",
		"\"\\x\"",
		"\"\\u12\"",
		"\"\\u12g4\"",
		"\"a\nb\"",
		"[1 2]",
		"/* c */ 1",
		"{\"a\":1 \"b\":2}",
		"]",
		"\\",
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		expect_error(str_from(texts[i]), NULL, "json_syntax", SIZE_MAX);
	expect_error(STR_NULL, NULL, "json_syntax", 0);
	expect_error(STR("[1, 2"), NULL, "json_syntax", 6 - 1);
	expect_error(STR("[1]\0"), NULL, "json_syntax", SIZE_MAX);
}

static void test_utf8(void **state)
{
	struct json_tree *tree;

	expect_error(STR("\"ab\xff\""), NULL, "json_utf8", 3);
	expect_error(STR("{\"k\xc3\": 1}"), NULL, "json_utf8", 3);
	expect_error(STR("\"\xc0\x80\""), NULL, "json_utf8", 1);         /* overlong NUL */
	expect_error(STR("\"\xe0\x80\xaf\""), NULL, "json_utf8", 1);     /* overlong '/' */
	expect_error(STR("\"\xed\xa0\x80\""), NULL, "json_utf8", 1);     /* surrogate */
	expect_error(STR("\"\xf4\x90\x80\x80\""), NULL, "json_utf8", 1); /* > U+10FFFF */
	expect_error(STR("\"abcdefghijkl\xe2\x82"), NULL, "json_utf8", 13);
	expect_error(STR("\"\\ud800\""), NULL, "json_utf8", 1);
	expect_error(STR("\"x\\udc00\""), NULL, "json_utf8", 2);
	expect_error(STR("\"\\ud83dA\""), NULL, "json_utf8", 1);
	expect_error(STR("\"\\ud83d\\u0041\""), NULL, "json_utf8", 1);
	expect_error(STR("\"\\ud83d\\ud83d\""), NULL, "json_utf8", 1);
	expect_error(STR("\"\\ud83d\\"), NULL, "json_utf8", 1);
	tree = parse_c(
		"[\"\\ud83d\\ude00\", \"\xf0\x9f\x98\x80\", \"\\\\ud800\", \"\\u00e9\xc3\xa9\"]");
	assert_true(str_is(json_root(tree)->first->text, "\xf0\x9f\x98\x80"));
	assert_true(str_is(json_root(tree)->first->next->text, "\xf0\x9f\x98\x80"));
	assert_true(str_is(json_root(tree)->first->next->next->text, "\\ud800"));
	json_free(tree);
}

static void test_limits(void **state)
{
	struct buf deep cleanup(buf_fini) = BUF_INIT;
	struct json_limits limits = {.bytes = 8, .depth = 2, .values = 4};
	struct json_tree *tree = NULL;
	struct json_error error;

	for (size_t i = 0; i < 100000; i++)
		buf_add_char(&deep, '[');
	expect_error(buf_str(&deep), NULL, "json_depth", SIZE_MAX);
	deep.len = 65;
	expect_error(buf_str(&deep), NULL, "json_depth", SIZE_MAX);
	deep.len = 64;
	for (size_t i = 0; i < 64; i++)
		buf_add_char(&deep, ']');
	json_free(parse_ok(buf_str(&deep)));

	expect_error(STR("[1,2,3,4]"), &limits, "json_too_large", 8);
	expect_error(STR("[1,[[]]]"), &limits, "json_depth", SIZE_MAX);
	expect_error(
		STR("[1,2,[]]"), &(struct json_limits){.values = 3}, "json_too_large", SIZE_MAX);
	assert_int_equal(json_parse(STR("[1,2,[]]"), &limits, &tree, &error), 0);
	json_free(tree);
}

static void test_duplicate_keys(void **state)
{
	struct buf many cleanup(buf_fini) = BUF_INIT;

	expect_error(STR("{\"a\":1,\"b\":2,\"a\":3}"), NULL, "json_duplicate_key", SIZE_MAX);
	expect_error(STR("{\"a\":1,\"\\u0061\":3}"), NULL, "json_duplicate_key", SIZE_MAX);
	expect_error(STR("[{\"\":1,\"\":3}]"), NULL, "json_duplicate_key", SIZE_MAX);
	json_free(parse_c("[{\"a\":{\"a\":1}},{\"a\":2}]"));

	/* many keys: the same answer, and fast enough to be run here at all */
	buf_add_char(&many, '{');
	for (int i = 0; i < 200000; i++)
		buf_addf(&many, "\"k%d\":0,", i);
	buf_addf(&many, "\"last\":0}");
	json_free(parse_ok(buf_str(&many)));
	many.len--;
	buf_addf(&many, ",\"k77\":0}");
	expect_error(buf_str(&many), NULL, "json_duplicate_key", SIZE_MAX);
}

static void test_whole_numbers(void **state)
{
	static const struct {
		const char *text;
		bool whole;
		int64_t value;
	} rows[] = {
		{"0", true, 0},
		{"-0", true, 0},
		{"0.0", true, 0},
		{"0e99999999999", true, 0},
		{"1", true, 1},
		{"-17", true, -17},
		{"1.0", true, 1},
		{"1e3", true, 1000},
		{"1E+3", true, 1000},
		{"1500e-2", true, 15},
		{"0.001e3", true, 1},
		{"12.50e1", true, 125},
		{"9223372036854775807", true, INT64_MAX},
		{"-9223372036854775808", true, INT64_MIN},
		{"922337203685477580700e-2", true, INT64_MAX},
		{"0.9223372036854775807e19", true, INT64_MAX},
		{"9223372036854775808", false, 0},
		{"-9223372036854775809", false, 0},
		{"18446744073709551616", false, 0},
		{"1.5", false, 0},
		{"1e-1", false, 0},
		{"1e400", false, 0},
		{"1e19", false, 0},
		{"-1e99999999999999999999", false, 0},
		{"1e-99999999999999999999", false, 0},
		{"0.1", false, 0},
		{"100000000000000000000", false, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct json_tree *tree cleanup(json_freep) = parse_c(rows[i].text);
		int64_t value = -77;

		assert_int_equal(json_i64(json_root(tree), &value), rows[i].whole);
		assert_int_equal(value, rows[i].whole ? rows[i].value : -77);
		assert_true(str_is(json_root(tree)->text, rows[i].text));
	}
	assert_false(json_i64(NULL, &(int64_t){0}));
}

static void test_doubles(void **state)
{
	struct json_tree *tree = parse_c("[1.5, 1e400, -1e-400, \"1\"]");
	const struct json *node = json_root(tree)->first;
	double value;

	assert_true(json_double(node, &value) && value == 1.5);
	assert_false(json_double(node->next, &value));
	assert_true(json_double(node->next->next, &value) && value == 0);
	assert_false(json_double(node->next->next->next, &value));
	assert_false(json_double(NULL, &value));
	json_free(tree);
}

static void test_pointer(void **state)
{
	struct json_tree *tree = parse_c("{\"a/b\": [0, {\"m~n\": [\"x\"]}]}");
	struct buf out cleanup(buf_fini) = BUF_INIT;

	json_pointer(json_root(tree), &out);
	assert_int_equal(out.len, 0);
	json_pointer(json_root(tree)->first->first->next->first->first, &out);
	assert_string_equal(out.data, "/a~1b/1/m~0n/0");
	json_free(tree);
}

static void test_clone(void **state)
{
	static const char text[] = "{\"a\":[1,{\"b\":\"c\\u0000\"},null],\"d\":true}";
	struct json_tree *tree = parse_c(text);
	struct json_tree *whole = json_clone(json_root(tree));
	struct json_tree *part = json_clone(json_get(json_root(tree), "a"));
	struct buf out cleanup(buf_fini) = BUF_INIT;
	struct json_writer *w;

	json_free(tree);
	w = json_writer_new(&out, false);
	json_node(w, json_root(whole));
	json_writer_free(w);
	assert_string_equal(out.data, text);
	buf_clear(&out);
	assert_null(json_root(part)->parent);
	assert_null(json_root(part)->key.p);
	assert_null(json_root(part)->next);
	json_pointer(json_root(part)->first->next->first, &out);
	assert_string_equal(out.data, "/1/b");
	json_free(whole);
	json_free(part);
}

static void test_writer(void **state)
{
	struct buf out cleanup(buf_fini) = BUF_INIT;
	struct json_writer *w;

	buf_addf(&out, "before ");
	w = json_writer_new(&out, false);
	json_begin_object(w);
	json_key(w, "a");
	json_begin_array(w);
	json_null(w);
	json_bool(w, false);
	json_int(w, INT64_MIN);
	json_number(w, 0.1);
	json_number(w, 3);
	json_number(w, NAN);
	json_number(w, -INFINITY);
	json_text(w, "q\"\\/\n\x01");
	json_text(w, NULL);
	json_text(w, "\xff");
	json_bytes(w, STR("a\0b"));
	json_bytes(w, STR_NULL);
	json_bytes(w, STR(""));
	json_bytes(w, STR("\xc3\x28"));
	json_raw(w, STR("{\"raw\":[1]}"));
	json_end_array(w);
	json_key_str(w, STR("\xc3\xa9"));
	json_int(w, 1);
	json_end_object(w);
	json_writer_free(w);
	assert_string_equal(out.data,
		"before {\"a\":[null,false,-9223372036854775808,0.1,3,null,null,"
		"\"q\\\"\\\\/\\n\\u0001\",null,{\"base64\":\"/w==\"},\"a\\u0000b\",null,"
		"\"\",{\"base64\":\"wyg=\"},{\"raw\":[1]}],\"\xc3\xa9\":1}");
}

static void test_writer_pretty(void **state)
{
	struct buf out cleanup(buf_fini) = BUF_INIT;
	struct json_tree *tree = parse_c("{\"a\":[1,\"b\"],\"c\":{}}"), *again;
	struct json_writer *w = json_writer_new(&out, true);

	json_node(w, json_root(tree));
	json_writer_free(w);
	assert_non_null(strstr(out.data, "\n  \"a\": [\n    1,\n"));
	again = parse_ok(buf_str(&out));
	json_free(again);
	json_free(tree);
}

/* Whatever double is written reads back as itself. */
static void test_number_round_trip(void **state)
{
	static const double values[] = {
		0, -1, 0.1, 1.0 / 3, 1e21, 1e-7, DBL_MAX, DBL_MIN, 5e-324, 123456789.125};

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		struct buf out cleanup(buf_fini) = BUF_INIT;
		struct json_writer *w = json_writer_new(&out, false);
		struct json_tree *tree cleanup(json_freep) = NULL;
		double back = 7;

		json_number(w, values[i]);
		json_writer_free(w);
		tree = parse_ok(buf_str(&out));
		assert_true(json_double(json_root(tree), &back));
		assert_true(back == values[i]);
	}
}

/* Any bytes at all pass through a document unchanged. */
static void test_bytes_round_trip(void **state)
{
	uint32_t seed = 12345;

	for (int round = 0; round < 2000; round++) {
		struct buf out cleanup(buf_fini) = BUF_INIT, decoded cleanup(buf_fini) = BUF_INIT;
		struct json_tree *tree cleanup(json_freep) = NULL;
		char bytes[16];
		struct str value = {bytes, (size_t)round % (sizeof(bytes) + 1)};
		struct json_writer *w = json_writer_new(&out, false);
		const struct json *root;

		for (size_t i = 0; i < value.n; i++) {
			seed = seed * 1664525 + 1013904223;
			bytes[i] = (char)(round % 3 ? seed >> 24 & 0x7f : seed >> 24);
		}
		json_bytes(w, value);
		json_writer_free(w);
		tree = parse_ok(buf_str(&out));
		root = json_root(tree);
		assert_int_equal(root->type, str_is_utf8(value) ? JSON_STRING : JSON_OBJECT);
		if (root->type == JSON_OBJECT) {
			assert_true(base64_decode(json_get(root, "base64")->text, &decoded));
			assert_true(str_eq(buf_str(&decoded), value));
		} else {
			assert_true(str_eq(root->text, value));
		}
	}
}

static void test_base64(void **state)
{
	static const struct {
		const char *bytes, *text;
	} good[] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="},
		{"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}, {"\xfb\xff\xbf", "+/+/"}};
	static const char *const bad[] = {"Z", "Zg", "Zg=", "Zm8", "Zg==Zg==", "Zg==a",
		"Z===", "====", "=", "Zh==", "Zm9=", "Zm-v", "Zm9v!", "Z=g=", "Zm8=="};
	struct buf out cleanup(buf_fini) = BUF_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		buf_clear(&out);
		base64_encode(str_from(good[i].bytes), &out);
		assert_true(str_is(buf_str(&out), good[i].text));
		buf_clear(&out);
		assert_true(base64_decode(str_from(good[i].text), &out));
		assert_true(str_is(buf_str(&out), good[i].bytes));
	}
	buf_clear(&out);
	buf_add(&out, "x", 1);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_false(base64_decode(str_from(bad[i]), &out));
		assert_true(str_is(buf_str(&out), "x"));
	}
	assert_true(base64_decode(STR(" Zm9v\r\n YmF\ty\n"), &out));
	assert_true(str_is(buf_str(&out), "xfoobar"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tree),
		cmocka_unit_test(test_scalars_at_the_root),
		cmocka_unit_test(test_syntax_errors),
		cmocka_unit_test(test_utf8),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_duplicate_keys),
		cmocka_unit_test(test_whole_numbers),
		cmocka_unit_test(test_doubles),
		cmocka_unit_test(test_pointer),
		cmocka_unit_test(test_clone),
		cmocka_unit_test(test_writer),
		cmocka_unit_test(test_writer_pretty),
		cmocka_unit_test(test_number_round_trip),
		cmocka_unit_test(test_bytes_round_trip),
		cmocka_unit_test(test_base64),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
