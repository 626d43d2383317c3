/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict - what is said of a submission, as a word of the field.
 */
#pragma once

#include "reactor/base/str.h"
#include "rpc/task/status.h"

enum verdict {
	VERDICT_NONE, /* not judged yet; null on the wire */
	VERDICT_ACCEPTED,
	VERDICT_WRONG_ANSWER,
	VERDICT_TIME_LIMIT,
	VERDICT_WALL_LIMIT,
	VERDICT_MEMORY_LIMIT,
	VERDICT_OUTPUT_LIMIT,
	VERDICT_RUNTIME_ERROR,
	VERDICT_COMPILE_ERROR,
	VERDICT_CANCELLED,
	VERDICT_SYSTEM_ERROR,
	VERDICT_N
};

const char *verdict_name(enum verdict verdict); /* NULL for VERDICT_NONE */
bool verdict_parse(struct str name, enum verdict *out);
/* The status of a task that ended with this verdict: accepted, wrong_answer -> success; limits, runtime_error -> run_failed;
 * compile_error -> compile_failed; cancelled -> cancelled; system_error -> error. */
enum task_status verdict_status(enum verdict verdict);
