/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One row a status: its name, what it is, and which statuses may come next. Progress only goes forward (pending,
 * compiling, running); short phases may be skipped, since an executor reports a change at most every 100 ms and a
 * task without a compile phase never compiles. A task that comes back to the queue after something was known of it is
 * `retrying` until its next run says otherwise: pending means that no executor ever reported work on it. Any task
 * that is not done may be cancelled, and may end as `error` (lost too often, or the fault was ours).
 */
#include "rpc/task/status.h"

#define BIT(status) (1u << (status))
#define ENDS (BIT(TASK_COMPILE_FAILED) | BIT(TASK_RUN_FAILED) | BIT(TASK_SUCCESS) | BIT(TASK_ERROR))

struct status_row {
	const char *name;
	bool is_done, is_progress, is_result;
	unsigned next; /* bits of the statuses that may follow, itself not counted */
};

static const struct status_row ROWS[TASK_STATUS_N] = {
	[TASK_PENDING] = {"pending", .is_progress = true,
		.next = BIT(TASK_COMPILING) | BIT(TASK_RUNNING) | BIT(TASK_RETRYING) |
			BIT(TASK_CANCELLED) | ENDS},
	[TASK_COMPILING] = {"compiling", .is_progress = true,
		.next = BIT(TASK_RUNNING) | BIT(TASK_RETRYING) | BIT(TASK_CANCELLED) | ENDS},
	[TASK_COMPILE_FAILED] = {"compile_failed", .is_done = true, .is_result = true},
	[TASK_RUNNING] = {"running", .is_progress = true,
		.next = BIT(TASK_RETRYING) | BIT(TASK_CANCELLED) |
			(ENDS & ~BIT(TASK_COMPILE_FAILED))},
	[TASK_RUN_FAILED] = {"run_failed", .is_done = true, .is_result = true},
	[TASK_SUCCESS] = {"success", .is_done = true, .is_result = true},
	[TASK_RETRYING] = {"retrying",
		.next = BIT(TASK_COMPILING) | BIT(TASK_RUNNING) | BIT(TASK_CANCELLED) | ENDS},
	[TASK_CANCELLED] = {"cancelled", .is_done = true},
	[TASK_ERROR] = {"error", .is_done = true, .is_result = true},
};

static const struct status_row *row_of(enum task_status status)
{
	CHECK((unsigned)status < TASK_STATUS_N);
	return &ROWS[status];
}

const char *task_status_name(enum task_status status)
{
	return row_of(status)->name;
}

bool task_status_parse(struct str name, enum task_status *out)
{
	for (int i = 0; i < TASK_STATUS_N; i++) {
		if (str_is(name, ROWS[i].name)) {
			*out = (enum task_status)i;
			return true;
		}
	}
	return false;
}

bool task_status_is_done(enum task_status status)
{
	return row_of(status)->is_done;
}

bool task_status_may_follow(enum task_status from, enum task_status to)
{
	const struct status_row *row = row_of(from);

	CHECK((unsigned)to < TASK_STATUS_N);
	return !row->is_done && (from == to || (row->next & BIT(to)));
}

bool task_status_is_progress(enum task_status status)
{
	return row_of(status)->is_progress;
}

bool task_status_is_result(enum task_status status)
{
	return row_of(status)->is_result;
}
