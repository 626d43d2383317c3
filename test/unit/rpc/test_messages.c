/* SPDX-License-Identifier: Apache-2.0 */
/*
 * messages: the tables unfold consistently, every message survives its own codec, and rpc/methods.md is what the tables say.
 * `test_messages --write` writes that file anew.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "reactor/base/mem.h"
#include "rpc/messages.h"

#define METHODS_MD CONCLAVE_SOURCE_DIR "/rpc/methods.md"

static void test_methods_are_found_by_name(void **state)
{
	assert_int_equal(rpc_method_find(STR("report")), RPC_report);
	assert_int_equal(rpc_method_find(STR("add")), RPC_add);
	assert_int_equal(rpc_method_find(STR("")), -1);
	assert_int_equal(rpc_method_find(STR("reports")), -1);
	assert_int_equal(rpc_method_find(STR("REPORT")), -1);
}

static void test_rows_are_whole(void **state)
{
	for (int i = 0; i < RPC_METHOD_N; i++) {
		assert_non_null(rpc_methods[i].name);
		assert_non_null(rpc_methods[i].request);
		assert_non_null(rpc_methods[i].reply);
		assert_true(rpc_methods[i].timeout_us >= 1000000);
		if (i)
			assert_true(strcmp(rpc_methods[i - 1].name, rpc_methods[i].name) < 0);
	}
}

static void test_fields_lie_inside_their_structure(void **state)
{
	for (int i = 0; i < RPC_METHOD_N; i++) {
		const struct codec_record *record = rpc_methods[i].request;

		for (size_t j = 0; j < record->n_fields; j++) {
			assert_true(record->fields[j].offset < record->size);
			if (j)
				assert_true(
					record->fields[j].offset > record->fields[j - 1].offset);
		}
	}
}

static void test_report_survives_its_codec(void **state)
{
	struct msg_complete_item complete = {.attempt = 2,
		.status = STR("success"),
		.verdict = STR("accepted"),
		.result = {.text = STR("{\"a\":[1]}")}};
	struct msg_executing_item executing = {
		.attempt = 1, .status = STR("running"), .case_no = 3};
	struct str languages[] = {STR("cpp"), STR("raw")};
	struct msg_report_request out = {
		.executor = STR("e1"),
		.epoch = 7,
		.seq = 9,
		.acked = 8,
		.complete = {&complete, 1},
		.executing = {&executing, 1},
		.vacant = 2,
		.languages = {languages, 2},
		.wait_ms = 5000,
	};
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct record *record cleanup(record_freep) = NULL;
	struct problem problem = {0};
	const struct msg_report_request *in;

	assert_true(id_parse(STR("0123456789abcdef01234567"), &complete.id));
	assert_true(id_parse(STR("0123456789abcdef01234568"), &executing.id));
	codec_encode_text(&msg_report_request_record, &out, &text);
	assert_int_equal(codec_decode_text(&msg_report_request_record, buf_str(&text), NULL,
				 &record, &problem),
		0);
	in = record_data(record);
	assert_true(str_is(in->executor, "e1"));
	assert_int_equal(in->epoch, 7);
	assert_int_equal(in->acked, 8);
	assert_int_equal(in->complete.count, 1);
	assert_true(
		id_eq(&codec_item(in->complete, struct msg_complete_item, 0)->id, &complete.id));
	assert_non_null(codec_item(in->complete, struct msg_complete_item, 0)->result.node);
	assert_int_equal(codec_item(in->executing, struct msg_executing_item, 0)->case_no, 3);
	assert_int_equal(in->languages.count, 2);
	assert_true(str_is(*codec_item(in->languages, struct str, 1), "raw"));
	assert_int_equal(in->wait_ms, 5000);
}

static void expect_problem(
	const struct codec_record *type, const char *text, const char *code, const char *pointer)
{
	struct record *record = NULL;
	struct problem problem = {0};

	assert_int_not_equal(codec_decode_text(type, str_from(text), NULL, &record, &problem), 0);
	assert_string_equal(problem.code, code);
	assert_string_equal(problem.pointer, pointer);
}

static void test_bad_requests_are_named(void **state)
{
	expect_problem(&msg_cancel_request_record, "{}", "missing_field", "/id");
	expect_problem(&msg_register_request_record, "{\"executor\":\"e\",\"bas\":1}",
		"unknown_field", "/bas");
	expect_problem(&msg_register_request_record, "{\"executor\":\"e\",\"base\":-1}",
		"out_of_range", "/base");
	expect_problem(&msg_register_request_record, "{\"executor\":7}", "wrong_type", "/executor");
}

/* --- methods.md --------------------------------------------------------------------------------------------- */

static char *read_file(const char *path)
{
	struct buf text = BUF_INIT;
	char block[4096];
	size_t n;
	FILE *f = fopen(path, "r");

	if (!f)
		return mem_strdup("");
	while ((n = fread(block, 1, sizeof(block), f)) > 0)
		buf_add(&text, block, n);
	fclose(f);
	return buf_take(&text);
}

static void test_methods_md_is_current(void **state)
{
	struct buf want cleanup(buf_fini) = BUF_INIT;
	char *have cleanup(mem_freep) = read_file(METHODS_MD);

	rpc_methods_doc(&want);
	if (strcmp(have, want.data) != 0)
		fail_msg("%s is not what messages.def and methods.def say: run test_messages "
			 "--write",
			METHODS_MD);
}

static int write_methods_md(void)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;
	FILE *f = fopen(METHODS_MD, "w");

	rpc_methods_doc(&text);
	if (!f || fwrite(text.data, 1, text.len, f) != text.len || fclose(f)) {
		perror(METHODS_MD);
		return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_methods_are_found_by_name),
		cmocka_unit_test(test_rows_are_whole),
		cmocka_unit_test(test_fields_lie_inside_their_structure),
		cmocka_unit_test(test_report_survives_its_codec),
		cmocka_unit_test(test_bad_requests_are_named),
		cmocka_unit_test(test_methods_md_is_current),
	};

	if (argc == 2 && !strcmp(argv[1], "--write"))
		return write_methods_md();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
