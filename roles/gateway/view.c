/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view - a task as people see it: what the store says of it, and the members of the result lifted into the same object.
 *
 * The result was written by an executor and is kept as it came; here its members are copied token for token, not interpreted, so
 * whatever a program printed comes out as it went in ({"base64"} where it is not UTF-8).
 */
#include "roles/gateway/gateway_int.h"

#include "rpc/task/status.h"
#include "rpc/task/task.h"

void view_time(struct json_writer *w, const char *key, int64_t us)
{
	char text[CLOCK_TEXT_MAX];

	json_key(w, key);
	if (us > 0)
		json_text(w, clock_text(us, text));
	else
		json_null(w);
}

static void write_text(struct json_writer *w, const char *key, struct str text)
{
	json_key(w, key);
	json_bytes(w, text.n ? text : STR_NULL);
}

static void write_labels(struct json_writer *w, const struct codec_list *labels)
{
	json_key(w, "labels");
	json_begin_array(w);
	for (size_t i = 0; i < labels->count; i++)
		json_bytes(w, *codec_item(*labels, struct str, i));
	json_end_array(w);
}

bool view_is_done(const struct msg_task_view *task)
{
	enum task_status status;

	return task_status_parse(task->status, &status) && task_status_is_done(status);
}

/* Who and what. */
static void write_identity(const struct msg_task_view *task, struct json_writer *w)
{
	json_key(w, "id");
	json_bytes(w, id_str(&task->id));
	if (task->user.n)
		write_text(w, "user", task->user);
	write_text(w, "language", str_is(task->language, LANGUAGE_RAW) ? STR_NULL : task->language);
	if (task->priority) {
		json_key(w, "priority");
		json_int(w, task->priority);
	}
	if (task->labels.count)
		write_labels(w, &task->labels);
}

/* The member of the result, or null. */
static void lift(struct json_writer *w, const struct json *result, const char *key)
{
	const struct json *node = json_get(result, key);

	json_key(w, key);
	if (node)
		json_node(w, node);
	else
		json_null(w);
}

/* How far it is. */
static void write_progress(const struct msg_task_view *task, bool whole, struct json_writer *w)
{
	const struct json *result = task->result.node;

	write_text(w, "status", task->status);
	json_key(w, "done");
	json_bool(w, view_is_done(task));
	write_text(w, "verdict", task->verdict);
	if (whole)
		lift(w, result, "score");
	if (json_get(result, "max_score"))
		lift(w, result, "max_score");
	json_key(w, "attempt");
	json_int(w, task->attempt);
	json_key(w, "retries");
	json_int(w, task->retries);
	if (task->case_no) {
		json_key(w, "case");
		json_int(w, task->case_no);
	}
	write_text(w, "executor", task->executor);
	view_time(w, "add_time", task->add_time_us);
	view_time(w, "start_time", task->start_time_us);
	view_time(w, "done_time", task->done_time_us);
}

static void write_result(
	const struct msg_task_view *task, const struct json *result, struct json_writer *w)
{
	lift(w, result, "compile");
	lift(w, result, "cases");
	lift(w, result, "isolation");
	if (task->message.n)
		write_text(w, "message", task->message);
	else
		lift(w, result, "message");
}

void view_write(const struct msg_task_view *task, struct json_writer *w)
{
	const struct json *result = task->result.node;

	json_begin_object(w);
	write_identity(task, w);
	write_progress(task, true, w);
	write_result(task, result, w);
	json_end_object(w);
}

void view_write_short(const struct msg_task_view *task, struct json_writer *w)
{
	json_begin_object(w);
	write_identity(task, w);
	write_progress(task, false, w);
	json_end_object(w);
}

void view_text(const struct msg_task_view *task, struct buf *out)
{
	struct json_writer *w = json_writer_new(out, false);

	view_write(task, w);
	json_writer_free(w);
}

void view_text_short(const struct msg_task_view *task, struct buf *out)
{
	struct json_writer *w = json_writer_new(out, false);

	view_write_short(task, w);
	json_writer_free(w);
}
