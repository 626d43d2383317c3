/* SPDX-License-Identifier: Apache-2.0 */
/* One row a verdict: its word, and the status of a task that ended with it. */
#include "rpc/task/verdict.h"

struct verdict_row {
	const char *name;
	enum task_status status;
};

static const struct verdict_row ROWS[VERDICT_N] = {
	[VERDICT_ACCEPTED] = {"accepted", TASK_SUCCESS},
	[VERDICT_WRONG_ANSWER] = {"wrong_answer", TASK_SUCCESS},
	[VERDICT_TIME_LIMIT] = {"time_limit", TASK_RUN_FAILED},
	[VERDICT_WALL_LIMIT] = {"wall_limit", TASK_RUN_FAILED},
	[VERDICT_MEMORY_LIMIT] = {"memory_limit", TASK_RUN_FAILED},
	[VERDICT_OUTPUT_LIMIT] = {"output_limit", TASK_RUN_FAILED},
	[VERDICT_RUNTIME_ERROR] = {"runtime_error", TASK_RUN_FAILED},
	[VERDICT_COMPILE_ERROR] = {"compile_error", TASK_COMPILE_FAILED},
	[VERDICT_CANCELLED] = {"cancelled", TASK_CANCELLED},
	[VERDICT_SYSTEM_ERROR] = {"system_error", TASK_ERROR},
};

const char *verdict_name(enum verdict verdict)
{
	CHECK((unsigned)verdict < VERDICT_N);
	return ROWS[verdict].name;
}

bool verdict_parse(struct str name, enum verdict *out)
{
	if (!name.p)
		return false;
	for (int i = VERDICT_NONE + 1; i < VERDICT_N; i++) {
		if (str_is(name, ROWS[i].name)) {
			*out = (enum verdict)i;
			return true;
		}
	}
	return false;
}

enum task_status verdict_status(enum verdict verdict)
{
	CHECK(verdict > VERDICT_NONE && verdict < VERDICT_N);
	return ROWS[verdict].status;
}
