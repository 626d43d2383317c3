/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status - where a task is in its life, and which steps are legal: one table, tested exhaustively.
 */
#pragma once

#include "reactor/base/str.h"

enum task_status {
	TASK_PENDING,
	TASK_COMPILING,
	TASK_COMPILE_FAILED,
	TASK_RUNNING,
	TASK_RUN_FAILED,
	TASK_SUCCESS,
	TASK_RETRYING,
	TASK_CANCELLED,
	TASK_ERROR,
	TASK_STATUS_N
};

const char *task_status_name(enum task_status status); /* "compile_failed" */
bool task_status_parse(struct str name, enum task_status *out);
bool task_status_is_done(enum task_status status);
/* from == to is legal except for done states. pending never follows anything: a task that is claimed again stays
 * `retrying` while its executor reports it as pending (waiting for a slot), until it reports compiling or running. A task
 * that goes back to the queue is `retrying`, but one whose claim was undone before anything ran of it keeps its status. */
bool task_status_may_follow(enum task_status from, enum task_status to);
/* What an executor may report while it works (pending compiling running), and as a result. */
bool task_status_is_progress(enum task_status status);
bool task_status_is_result(enum task_status status); /* compile_failed run_failed success error */
