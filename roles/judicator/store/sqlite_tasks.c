/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of tasks, with their documents, results and labels.
 *
 * What is in the file but need not be durable: status and case of a claim at work. sql_task_progress() only notes it, and the commit
 * writes the notes (sqlite_commit.c). A note is written only where its claim still owns the task, since the same batch may have
 * ended it.
 *
 * Heads. A report with room asks for the head of every language it offers, and most of those have not changed since the last report asked.
 * The writing handle keeps what it found until it writes a task of that language, takes anything back, or sees at begin that another
 * program has written to the file.
 */
#include "roles/judicator/store/sqlite_int.h"

#include <errno.h>
#include <stdio.h>

#include "reactor/base/mem.h"

#define HEADS_MAX 1024 /* languages are named by clients; the others are looked up each time */

/* A word that this program does not know is damage, or another program's: never a reason to crash. */
static int task_read(struct sqlite_rows *s, sqlite3_stmt *stmt, struct rows_task *t)
{
	char id[ID_LEN + 2], status[32], verdict[32];

	*t = (struct rows_task){
		.add_us = sqlite3_column_int64(stmt, 0),
		.priority = sqlite3_column_int64(stmt, 4),
		.place = (enum rows_place)sqlite3_column_int(stmt, 5),
		.epoch = sqlite3_column_int64(stmt, 9),
		.assign_seq = sqlite3_column_int64(stmt, 10),
		.attempt = sqlite3_column_int64(stmt, 11),
		.retries = sqlite3_column_int64(stmt, 12),
		.case_no = sqlite3_column_int64(stmt, 13),
		.start_us = sqlite3_column_int64(stmt, 14),
		.done_us = sqlite3_column_int64(stmt, 15),
	};
	sql_column_text(stmt, 1, id, sizeof(id));
	sql_column_text(stmt, 2, t->language, sizeof(t->language));
	sql_column_text(stmt, 3, t->user, sizeof(t->user));
	sql_column_text(stmt, 6, status, sizeof(status));
	sql_column_text(stmt, 7, verdict, sizeof(verdict));
	sql_column_text(stmt, 8, t->executor, sizeof(t->executor));
	sql_column_text(stmt, 16, t->message, sizeof(t->message));
	if (id_parse(str_from(id), &t->id) && task_status_parse(str_from(status), &t->status) &&
		(!verdict[0] || verdict_parse(str_from(verdict), &t->verdict)))
		return 0;
	snprintf(s->error, sizeof(s->error), "task row %lld is damaged", (long long)t->add_us);
	return -EUCLEAN;
}

static int task_one(struct sqlite_rows *s, enum sql sql, struct rows_task *out)
{
	int err = sql_step_one(s, sql);

	if (err)
		return err;
	err = task_read(s, s->stmts[sql], out);
	sql_reset(s, sql);
	return err;
}

int sql_task_get(struct rows *rows, const struct id *id, struct rows_task *out)
{
	struct sqlite_rows *s = sql_self(rows);

	sql_bind_str(s->stmts[SQL_TASK_GET], 1, id_str(id));
	return task_one(s, SQL_TASK_GET, out);
}

/* Parameters 6 and up, which insert and update share. */
static void task_bind(sqlite3_stmt *stmt, const struct rows_task *t)
{
	sqlite3_bind_int64(stmt, 1, t->add_us);
	sqlite3_bind_int(stmt, 6, (int)t->place);
	sql_bind_str(stmt, 7, str_from(task_status_name(t->status)));
	if (t->verdict == VERDICT_NONE)
		sqlite3_bind_null(stmt, 8);
	else
		sql_bind_str(stmt, 8, str_from(verdict_name(t->verdict)));
	sql_bind_str(stmt, 9, str_from(t->executor));
	sqlite3_bind_int64(stmt, 10, t->epoch);
	sqlite3_bind_int64(stmt, 11, t->assign_seq);
	sqlite3_bind_int64(stmt, 12, t->attempt);
	sqlite3_bind_int64(stmt, 13, t->retries);
	sqlite3_bind_int64(stmt, 14, t->case_no);
	sqlite3_bind_int64(stmt, 15, t->start_us);
	sqlite3_bind_int64(stmt, 16, t->done_us);
	sql_bind_str(stmt, 17, str_from(t->message));
}

static int text_put(struct sqlite_rows *s, enum sql sql, const struct rows_task *t, struct str text)
{
	sqlite3_bind_int64(s->stmts[sql], 1, t->add_us);
	sql_bind_blob(s->stmts[sql], 2, text);
	return sql_run(s, sql);
}

static int labels_add(struct sqlite_rows *s, const struct rows_task *t, struct str labels)
{
	struct str rest = labels, label;
	int err = labels.n ? text_put(s, SQL_LABELS_PUT, t, labels) : 0;

	while (err >= 0 && rows_labels_next(&rest, &label)) {
		sqlite3_bind_int64(s->stmts[SQL_LABEL_PUT], 1, t->add_us);
		sql_bind_str(s->stmts[SQL_LABEL_PUT], 2, label);
		err = sql_run(s, SQL_LABEL_PUT);
	}
	return err;
}

/* A task of the language was written: whatever is its head now is looked up when somebody asks. */
static void head_forget(struct sqlite_rows *s, const char *language)
{
	struct head *head = map_get(&s->heads, str_from(language));

	if (head)
		head->is_known = false;
}

void sql_heads_forget(struct sqlite_rows *s)
{
	map_each (it, &s->heads)
		((struct head *)map_entry_of(it)->value)->is_known = false;
}

int sql_task_add(struct rows *rows, const struct rows_task *t, struct str doc, struct str labels)
{
	struct sqlite_rows *s = sql_self(rows);
	sqlite3_stmt *stmt = s->stmts[SQL_TASK_ADD];
	int err;

	head_forget(s, t->language);
	task_bind(stmt, t);
	sql_bind_str(stmt, 2, id_str(&t->id));
	sql_bind_str(stmt, 3, str_from(t->language));
	sql_bind_str(stmt, 4, str_from(t->user));
	sqlite3_bind_int64(stmt, 5, t->priority);
	err = sql_run(s, SQL_TASK_ADD);
	if (err >= 0)
		err = text_put(s, SQL_DOC_PUT, t, doc);
	if (err >= 0)
		err = labels_add(s, t, labels);
	return err;
}

int sql_task_put(struct rows *rows, const struct rows_task *t)
{
	struct sqlite_rows *s = sql_self(rows);

	head_forget(s, t->language);
	task_bind(s->stmts[SQL_TASK_PUT], t);
	return sql_run(s, SQL_TASK_PUT);
}

int sql_task_progress(struct rows *rows, const struct rows_task *t)
{
	struct sqlite_rows *s = sql_self(rows);
	struct note *note;

	if (s->now.n_notes == s->cap_notes) {
		s->cap_notes = s->cap_notes ? s->cap_notes * 2 : 64;
		s->notes = mem_resize(s->notes, s->cap_notes * sizeof(*s->notes));
	}
	note = &s->notes[s->now.n_notes++];
	*note = (struct note){t->add_us, t->epoch, t->attempt, t->case_no, t->status, ""};
	memcpy(note->executor, t->executor, sizeof(note->executor));
	return 0;
}

int sql_notes_write(struct sqlite_rows *s)
{
	sqlite3_stmt *stmt = s->stmts[SQL_TASK_PROGRESS];
	int err = 0;

	for (size_t i = 0; err >= 0 && i < s->now.n_notes; i++) {
		const struct note *note = &s->notes[i];

		sqlite3_bind_int64(stmt, 1, note->add_us);
		sql_bind_str(stmt, 2, str_from(note->executor));
		sqlite3_bind_int64(stmt, 3, note->epoch);
		sqlite3_bind_int64(stmt, 4, note->attempt);
		sql_bind_str(stmt, 5, str_from(task_status_name(note->status)));
		sqlite3_bind_int64(stmt, 6, note->case_no);
		err = sql_run(s, SQL_TASK_PROGRESS);
	}
	return err;
}

int sql_owned(
	struct rows *rows, struct str name, int64_t first, int64_t last, struct rows_list *out)
{
	struct sqlite_rows *s = sql_self(rows);
	sqlite3_stmt *stmt = s->stmts[SQL_OWNED];
	int code = SQLITE_DONE, err = 0;

	sql_bind_str(stmt, 1, name);
	sqlite3_bind_int64(stmt, 2, first);
	sqlite3_bind_int64(stmt, 3, last);
	while (err >= 0 && (code = sqlite3_step(stmt)) == SQLITE_ROW)
		err = task_read(s, stmt, rows_list_add(out));
	if (err >= 0 && code != SQLITE_DONE)
		err = sql_failed(s, "owned");
	sqlite3_reset(stmt);
	return err;
}

static int head_read(struct sqlite_rows *s, struct str language, struct rows_task *out)
{
	sql_bind_str(s->stmts[SQL_HEAD], 1, language);
	return task_one(s, SQL_HEAD, out);
}

int sql_head(struct rows *rows, struct str language, struct rows_task *out)
{
	struct sqlite_rows *s = sql_self(rows);
	struct head *head = s->writes ? map_get(&s->heads, language) : NULL;
	int err;

	if (head && head->is_known) {
		if (head->is_there)
			*out = head->task;
		return head->is_there ? 0 : ROWS_NONE;
	}
	err = head_read(s, language, out);
	if (err < 0 || !s->writes || (!head && map_count(&s->heads) >= HEADS_MAX))
		return err;
	if (!head) {
		head = mem_alloc(sizeof(*head));
		map_set(&s->heads, language, head);
	}
	head->is_known = true;
	head->is_there = err == 0;
	if (err == 0)
		head->task = *out;
	return err;
}

int sql_oldest(struct rows *rows, enum task_status status, int64_t *add_us)
{
	struct sqlite_rows *s = sql_self(rows);
	int err;

	sql_bind_str(s->stmts[SQL_OLDEST], 1, str_from(task_status_name(status)));
	err = sql_step_one(s, SQL_OLDEST);
	if (err)
		return err;
	*add_us = sqlite3_column_int64(s->stmts[SQL_OLDEST], 0);
	sql_reset(s, SQL_OLDEST);
	return 0;
}

int sql_text_get(struct rows *rows, const struct rows_task *t, enum rows_text what,
	struct record *arena, struct str *out)
{
	static const enum sql by_text[] = {
		[ROWS_DOC] = SQL_DOC_GET,
		[ROWS_RESULT] = SQL_RESULT_GET,
		[ROWS_LABELS] = SQL_LABELS_GET,
	};
	struct sqlite_rows *s = sql_self(rows);
	sqlite3_stmt *stmt = s->stmts[by_text[what]];
	const char *text;
	int err;

	*out = STR_NULL;
	sqlite3_bind_int64(stmt, 1, t->add_us);
	err = sql_step_one(s, by_text[what]);
	if (err)
		return err == ROWS_NONE ? 0 : err;
	text = sqlite3_column_blob(stmt, 0);
	*out = record_copy(
		arena, (struct str){text ? text : "", (size_t)sqlite3_column_bytes(stmt, 0)});
	sqlite3_reset(stmt);
	return 0;
}

int sql_result_put(struct rows *rows, const struct rows_task *t, struct str result)
{
	return result.p ? text_put(sql_self(rows), SQL_RESULT_PUT, t, result) : 0;
}

int sql_walk(struct rows *rows, const struct rows_walk *walk, rows_visit_fn *visit, void *arg)
{
	struct sqlite_rows *s = sql_self(rows);
	struct str key = walk->label.p ? walk->label : walk->user.p ? walk->user : walk->status;
	enum sql sql = walk->label.p    ? SQL_WALK_LABEL
		       : walk->user.p   ? SQL_WALK_USER
		       : walk->status.p ? SQL_WALK_STATUS
					: SQL_WALK;
	sqlite3_stmt *stmt = s->stmts[sql + walk->ascending];
	int code = SQLITE_DONE, err = 0;
	bool goes_on = true;

	sqlite3_bind_int64(stmt, 1, walk->after_us);
	if (key.p)
		sql_bind_str(stmt, 2, key);
	while (goes_on && err >= 0 && (code = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct rows_task t;

		err = task_read(s, stmt, &t);
		if (err >= 0)
			goes_on = visit(arg, &t);
	}
	if (err >= 0 && code != SQLITE_DONE && code != SQLITE_ROW)
		err = sql_failed(s, "search");
	sqlite3_reset(stmt);
	return err;
}
