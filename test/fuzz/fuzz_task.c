/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a submission: what is accepted is normalised, and the normalised document reads back as itself. What
 * is refused becomes a problem document that is valid JSON.
 */
#include "reactor/base/check.h"
#include "rpc/blob.h"
#include "rpc/task/task.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_problem(const struct problem *problem)
{
	struct buf out cleanup(buf_fini) = BUF_INIT;
	struct json_tree *tree cleanup(json_freep) = NULL;
	struct json_error error;

	CHECK(problem->status == 400 || problem->status == 413 || problem->status == 422);
	problem_write(problem, &out);
	CHECK(json_parse(buf_str(&out), NULL, &tree, &error) == 0);
}

static void check_content(void *arg, struct content *content, const char *pointer)
{
	CHECK(!content->bytes.p != !content->blob.p && pointer[0] == '/');
	CHECK(!content->blob.p || blob_name_is_valid(content->blob));
}

static void check_task(const struct task *task)
{
	CHECK(task->cases.count >= 1 && task->cases.count <= TASK_CASES_MAX);
	CHECK(task->compile && task->execute && task->checker);
	CHECK(content_is_absent(&task->source) && content_is_absent(&task->input));
	CHECK(content_is_absent(&task->expected) && !task->limits);
	CHECK(content_is_absent(&task->execute->input));
	CHECK(content_is_absent(&task->execute->expected));
	task_each_content(task, check_content, NULL);
	CHECK(task->language.p || task->execute->command.count > 0);
	CHECK(task_checker_kind(task) < CHECKER_KIND_N);
	CHECK(task_queue(task).n > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct record *record cleanup(record_freep) = NULL, *again cleanup(record_freep) = NULL;
	struct buf first cleanup(buf_fini) = BUF_INIT, second cleanup(buf_fini) = BUF_INIT;
	struct problem problem;

	if (task_parse((struct str){(const char *)data, size}, NULL, &record, &problem)) {
		check_problem(&problem);
		return 0;
	}
	check_task(record_data(record));
	task_write(record_data(record), &first);
	CHECK(task_parse(buf_str(&first), NULL, &again, &problem) == 0);
	task_write(record_data(again), &second);
	CHECK(str_eq(buf_str(&first), buf_str(&second)));
	return 0;
}
