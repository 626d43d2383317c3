/* SPDX-License-Identifier: Apache-2.0 */
/* result: the wire form that rpc/task/README.md shows, and exact capture of both ends of a stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rpc/task/result.h"

static void test_wire_form(void **state)
{
	struct result_limit limit = {STR("cpu_ms"), 1000, 1002};
	struct result_phase compile = {.verdict = STR("accepted"), /* of cases only: not shown */
		.cpu_us = 412000,
		.wall_us = 430000,
		.memory_bytes = 88211456,
		.out = STR(""),
		.points = 9};
	struct result_phase cases[] = {
		{.verdict = STR("accepted"),
			.cpu_us = 900,
			.wall_us = 1200,
			.memory_bytes = 655360,
			.out = STR("3\n"),
			.out_bytes = 2,
			.points = 1},
		{.verdict = STR("time_limit"),
			.exit_code = -1,
			.signal = 9,
			.limit = &limit,
			.err = STR("\xff"),
			.err_bytes = 70000,
			.err_truncated = true,
			.message = STR("m")},
	};
	struct result result = {.verdict = STR("time_limit"),
		.compile = &compile,
		.cases = {cases, 2},
		.score = 1,
		.max_score = 2,
		.isolation = STR("full")};
	struct buf out cleanup(buf_fini) = BUF_INIT;
	struct record *record = NULL;
	struct problem problem;
	struct result *back;

	result_write(&result, &out);
	assert_string_equal(out.data,
		"{\"verdict\":\"time_limit\",\"compile\":{\"exit_code\":0,\"signal\":null,\"cpu_"
		"us\":412000,"
		"\"wall_us\":430000,\"memory_bytes\":88211456,\"limit\":null,\"stdout\":\"\","
		"\"stdout_bytes\":0,"
		"\"stdout_truncated\":false,\"stderr\":\"\",\"stderr_bytes\":0,\"stderr_"
		"truncated\":false},"
		"\"cases\":[{\"verdict\":\"accepted\",\"exit_code\":0,\"signal\":null,\"cpu_us\":"
		"900,"
		"\"wall_us\":1200,\"memory_bytes\":655360,\"limit\":null,\"stdout\":\"3\\n\","
		"\"stdout_bytes\":2,"
		"\"stdout_truncated\":false,\"stderr\":\"\",\"stderr_bytes\":0,\"stderr_"
		"truncated\":false,"
		"\"points\":1},{\"verdict\":\"time_limit\",\"exit_code\":null,\"signal\":9,\"cpu_"
		"us\":0,"
		"\"wall_us\":0,\"memory_bytes\":0,\"limit\":{\"name\":\"cpu_ms\",\"allowed\":1000,"
		"\"measured\":1002},\"stdout\":\"\",\"stdout_bytes\":0,\"stdout_truncated\":false,"
		"\"stderr\":{\"base64\":\"/w==\"},\"stderr_bytes\":70000,\"stderr_truncated\":true,"
		"\"message\":\"m\",\"points\":0}],\"score\":1,\"max_score\":2,\"isolation\":"
		"\"full\"}");

	assert_int_equal(
		codec_decode_text(&result_record, buf_str(&out), NULL, &record, &problem), 0);
	back = record_data(record);
	assert_int_equal(codec_item(back->cases, struct result_phase, 1)->exit_code, -1);
	assert_int_equal(codec_item(back->cases, struct result_phase, 0)->signal, 0);
	assert_int_equal(codec_item(back->cases, struct result_phase, 1)->limit->measured, 1002);
	record_free(record);
}

static void test_empty_result(void **state)
{
	struct result result = {.message = STR("no sandbox")};
	struct buf out cleanup(buf_fini) = BUF_INIT;

	result_write(&result, &out);
	assert_string_equal(out.data,
		"{\"verdict\":null,\"compile\":null,\"cases\":[],\"score\":0,"
		"\"max_score\":0,\"isolation\":\"\",\"message\":\"no sandbox\"}");
}

/* The stream of a test: byte i is a function of i, and always ASCII. */
static void fill(struct buf *b, size_t n)
{
	char *p = buf_reserve(b, n);

	for (size_t i = 0; i < n; i++)
		p[i] = (char)('!' + (i * 7 + i / 251) % 90);
	b->len += n;
}

static void check_capture(size_t total, size_t chunk)
{
	struct buf all cleanup(buf_fini) = BUF_INIT, out cleanup(buf_fini) = BUF_INIT;
	struct buf expected cleanup(buf_fini) = BUF_INIT;
	struct capture c;

	fill(&all, total);
	capture_init(&c);
	for (size_t i = 0; i < total; i += chunk)
		capture_add(&c, (struct str){all.data + i, total - i < chunk ? total - i : chunk});
	assert_int_equal(c.total, total);
	assert_int_equal(capture_is_truncated(&c), total > 2 * OUTPUT_HEAD);
	if (total <= 2 * OUTPUT_HEAD) {
		buf_add(&expected, all.data, total);
	} else {
		buf_add(&expected, all.data, OUTPUT_HEAD);
		buf_addf(&expected, "\n... %zu bytes left out ...\n", total - 2 * OUTPUT_HEAD);
		buf_add(&expected, all.data + total - OUTPUT_HEAD, OUTPUT_HEAD);
	}
	buf_addf(&out, "before:");
	capture_write(&c, &out);
	assert_true(out.len - 7 <= RESULT_OUTPUT_MAX);
	buf_drop(&out, 7);
	assert_true(str_eq(buf_str(&out), buf_str(&expected)));
	capture_fini(&c);
	assert_int_equal(c.total, 0);
	capture_fini(&c);
}

static void test_capture_is_exact(void **state)
{
	static const size_t totals[] = {0, 1, OUTPUT_HEAD - 1, OUTPUT_HEAD, OUTPUT_HEAD + 1,
		2 * OUTPUT_HEAD - 1, 2 * OUTPUT_HEAD, 2 * OUTPUT_HEAD + 1, 3 * OUTPUT_HEAD,
		3 * OUTPUT_HEAD + 5, 7 * OUTPUT_HEAD + 123};
	static const size_t chunks[] = {
		1, 999, 4096, OUTPUT_HEAD, OUTPUT_HEAD + 1, 3 * OUTPUT_HEAD, 1 << 20};

	for (size_t i = 0; i < ARRAY_SIZE(totals); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(chunks); k++)
			check_capture(totals[i], chunks[k]);
	}
}

/* Both cuts fall inside a character: text stays text, and the line between counts right. */
static void test_capture_keeps_text(void **state)
{
	static const char *const characters[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};

	for (size_t i = 0; i < ARRAY_SIZE(characters); i++) {
		for (size_t shift = 0; shift < 4; shift++) {
			struct buf out cleanup(buf_fini) = BUF_INIT;
			struct capture c;
			const char *middle;
			long long left_out = 0;

			capture_init(&c);
			capture_add(&c, (struct str){"xxxx", shift});
			for (int k = 0; k < 60000; k++)
				capture_add(&c, str_from(characters[i]));
			capture_write(&c, &out);
			assert_true(str_is_utf8(buf_str(&out)));
			middle = strstr(out.data, "\n... ");
			assert_non_null(middle);
			left_out = atoll(middle + 5);
			assert_int_equal(left_out + (long long)out.len,
				c.total + snprintf(NULL, 0, "\n... %lld bytes left out ...\n",
						  left_out));
			capture_fini(&c);
		}
	}
}

/* Binary output is not mistaken for cut text. */
static void test_capture_of_binary(void **state)
{
	struct buf out cleanup(buf_fini) = BUF_INIT;
	struct capture c;

	capture_init(&c);
	for (int i = 0; i < 100000; i++)
		capture_add(&c, STR("\x80"));
	capture_write(&c, &out);
	assert_true(out.len > 2 * OUTPUT_HEAD - 8);
	assert_true(out.len <= RESULT_OUTPUT_MAX);
	capture_fini(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wire_form),
		cmocka_unit_test(test_empty_result),
		cmocka_unit_test(test_capture_is_exact),
		cmocka_unit_test(test_capture_keeps_text),
		cmocka_unit_test(test_capture_of_binary),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
