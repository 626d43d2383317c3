/* SPDX-License-Identifier: Apache-2.0 */
/* verdict: names both ways, and the status each ends a task with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rpc/task/verdict.h"

static void test_table(void **state)
{
	static const struct {
		enum verdict verdict;
		const char *name;
		enum task_status status;
	} rows[] = {
		{VERDICT_ACCEPTED, "accepted", TASK_SUCCESS},
		{VERDICT_WRONG_ANSWER, "wrong_answer", TASK_SUCCESS},
		{VERDICT_TIME_LIMIT, "time_limit", TASK_RUN_FAILED},
		{VERDICT_WALL_LIMIT, "wall_limit", TASK_RUN_FAILED},
		{VERDICT_MEMORY_LIMIT, "memory_limit", TASK_RUN_FAILED},
		{VERDICT_OUTPUT_LIMIT, "output_limit", TASK_RUN_FAILED},
		{VERDICT_RUNTIME_ERROR, "runtime_error", TASK_RUN_FAILED},
		{VERDICT_COMPILE_ERROR, "compile_error", TASK_COMPILE_FAILED},
		{VERDICT_CANCELLED, "cancelled", TASK_CANCELLED},
		{VERDICT_SYSTEM_ERROR, "system_error", TASK_ERROR},
	};

	assert_int_equal(ARRAY_SIZE(rows), VERDICT_N - 1);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		enum verdict parsed = VERDICT_NONE;

		assert_string_equal(verdict_name(rows[i].verdict), rows[i].name);
		assert_true(verdict_parse(str_from(rows[i].name), &parsed));
		assert_int_equal(parsed, rows[i].verdict);
		assert_int_equal(verdict_status(rows[i].verdict), rows[i].status);
		assert_true(task_status_is_done(verdict_status(rows[i].verdict)));
	}
}

static void test_none_and_unknown(void **state)
{
	enum verdict verdict = VERDICT_ACCEPTED;

	assert_null(verdict_name(VERDICT_NONE));
	assert_false(verdict_parse(STR_NULL, &verdict));
	assert_false(verdict_parse(STR(""), &verdict));
	assert_false(verdict_parse(STR("AC"), &verdict));
	assert_int_equal(verdict, VERDICT_ACCEPTED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_none_and_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
