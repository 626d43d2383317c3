/* SPDX-License-Identifier: Apache-2.0 */
/* status: every pair of statuses against the table drawn out below. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rpc/task/status.h"

/* Columns in the order of the rows: pending compiling compile_failed running run_failed success retrying cancelled error. */
static const struct {
	const char *next, *name;
	bool is_done, is_progress, is_result;
} TABLE[TASK_STATUS_N] = {
	/*to p c C r R s y x e     from */
	{"1 1 1 1 1 1 1 1 1", "pending", false, true, false},
	{"0 1 1 1 1 1 1 1 1", "compiling", false, true, false},
	{"0 0 0 0 0 0 0 0 0", "compile_failed", true, false, true},
	{"0 0 0 1 1 1 1 1 1", "running", false, true, false},
	{"0 0 0 0 0 0 0 0 0", "run_failed", true, false, true},
	{"0 0 0 0 0 0 0 0 0", "success", true, false, true},
	{"0 1 1 1 1 1 1 1 1", "retrying", false, false, false},
	{"0 0 0 0 0 0 0 0 0", "cancelled", true, false, false},
	{"0 0 0 0 0 0 0 0 0", "error", true, false, true},
};

static void test_transitions(void **state)
{
	for (int from = 0; from < TASK_STATUS_N; from++) {
		for (int to = 0; to < TASK_STATUS_N; to++) {
			bool expected = TABLE[from].next[2 * to] == '1';

			if (task_status_may_follow((enum task_status)from, (enum task_status)to) !=
				expected)
				fail_msg("%s -> %s", TABLE[from].name, TABLE[to].name);
		}
	}
}

static void test_rows(void **state)
{
	for (int i = 0; i < TASK_STATUS_N; i++) {
		enum task_status status = (enum task_status)i, parsed = TASK_STATUS_N;

		assert_string_equal(task_status_name(status), TABLE[i].name);
		assert_true(task_status_parse(str_from(TABLE[i].name), &parsed));
		assert_int_equal(parsed, status);
		assert_int_equal(task_status_is_done(status), TABLE[i].is_done);
		assert_int_equal(task_status_is_progress(status), TABLE[i].is_progress);
		assert_int_equal(task_status_is_result(status), TABLE[i].is_result);
	}
}

static void test_unknown_names(void **state)
{
	static const char *const names[] = {"", "done", "Pending", "pending ", "retry"};
	enum task_status status = TASK_ERROR;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_false(task_status_parse(str_from(names[i]), &status));
	assert_false(task_status_parse(STR_NULL, &status));
	assert_int_equal(status, TASK_ERROR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_transitions),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_unknown_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
