/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sqlite_int - what the files of sqlite_rows share: the handle, the statements' names, and the verbs between them. Nobody else
 * includes it.
 *
 *   sqlite_rows.c       a handle's life, running statements, the table of verbs
 *   sqlite_schema.c     what is in the file: tables, upgrades, the text of each statement
 *   sqlite_executors.c  rows of executors, and last_seq, which is not in the file
 *   sqlite_tasks.c      rows of tasks with their texts, progress, heads of queues, walks
 *   sqlite_blobs.c      rows of blobs
 *   sqlite_commit.c     transactions: what they write along, and taking back
 */
#pragma once

#include <sqlite3.h>

#include "reactor/base/map.h"
#include "roles/judicator/store/sqlite_rows.h"

/* A statement each, prepared once; its text is a row in sqlite_schema.c. */
enum sql {
	SQL_BEGIN,
	SQL_COMMIT,
	SQL_ROLLBACK,
	SQL_SAVE,
	SQL_KEEP,
	SQL_UNDO,
	SQL_SNAPSHOT,
	SQL_OTHERS,
	SQL_EXECUTOR_GET,
	SQL_EXECUTOR_PUT,
	SQL_EXECUTOR_EACH,
	SQL_EXECUTORS_SUM,
	SQL_HOUR_GET,
	SQL_HOUR_PUT,
	SQL_TASK_GET,
	SQL_TASK_ADD,
	SQL_TASK_PUT,
	SQL_TASK_PROGRESS,
	SQL_OWNED,
	SQL_HEAD,
	SQL_OLDEST,
	SQL_DOC_GET,
	SQL_DOC_PUT,
	SQL_RESULT_GET,
	SQL_RESULT_PUT,
	SQL_LABELS_GET,
	SQL_LABELS_PUT,
	SQL_LABEL_PUT,
	SQL_BLOB_GET,
	SQL_BLOB_PUT,
	SQL_BLOB_OWN,
	SQL_BLOB_OWNED,
	SQL_BLOB_REFER,
	SQL_BLOB_UNUSED,
	SQL_BLOB_DEL,
	SQL_BLOB_DISOWN,
	/* walks: descending, then ascending */
	SQL_WALK,
	SQL_WALK_ASC,
	SQL_WALK_USER,
	SQL_WALK_USER_ASC,
	SQL_WALK_STATUS,
	SQL_WALK_STATUS_ASC,
	SQL_WALK_LABEL,
	SQL_WALK_LABEL_ASC,
	SQL_N
};

struct seq {
	int64_t last;
};

struct seq_undo {
	struct seq *seq;
	int64_t was;
};

struct note { /* progress of a claim */
	int64_t add_us, epoch, attempt, case_no;
	enum task_status status;
	char executor[STORE_EXECUTOR_MAX + 1];
};

struct head { /* of a language's queue, as it was found last */
	bool is_known, is_there;
	struct rows_task task;
};

struct mark {
	int64_t last_add_us;
	size_t n_undos, n_notes;
};

struct sqlite_rows {
	struct rows rows;
	sqlite3 *db;
	sqlite3_stmt *stmts[SQL_N];
	char error[SQLITE_ROWS_ERROR_MAX];
	char *dir;
	int64_t reserve_bytes, now_us, room_asked_us;
	bool has_room, was_room_asked;
	struct map seqs; /* executor -> struct seq, owned */
	struct map
		heads; /* language -> struct head, owned; unused by a reader, whose snapshots change */
	bool writes;
	int64_t others; /* a number that changes with each commit that is not ours */
	/* of the transaction */
	struct seq_undo *undos;
	struct note *notes;
	size_t cap_undos, cap_notes;
	struct mark now, begun, saved; /* now: only the two counts are kept up */
	struct hour hour_begun, hour_saved;
	int changes_begun; /* sqlite3_total_changes() at begin */
};

static inline struct sqlite_rows *sql_self(struct rows *rows)
{
	return container_of(rows, struct sqlite_rows, rows);
}

/* --- statements (sqlite_rows.c) --- */

/* SQLite's words, behind what, into error, and our number for what has just gone wrong: a negative errno. */
int sql_failed(struct sqlite_rows *s, const char *what);
/* Neither copies: s must stay until the statement has run. NULL is bound as the empty value. */
void sql_bind_str(sqlite3_stmt *stmt, int at, struct str s);
void sql_bind_blob(sqlite3_stmt *stmt, int at, struct str s);
/* Runs a statement that has at most one row: 0 with the row under the cursor (sql_reset() then), ROWS_NONE, or negative errno. */
int sql_step_one(struct sqlite_rows *s, enum sql sql) must_check;
void sql_reset(struct sqlite_rows *s, enum sql sql);
/* Runs a statement without rows: 0 or negative errno. */
int sql_run(struct sqlite_rows *s, enum sql sql);
/* Runs text, which may be several statements, none prepared: 0 or negative errno. */
int sql_exec(struct sqlite_rows *s, const char *sql);
/* Copies a column of the row under the cursor, cut to n - 1 bytes; NULL is copied as "". */
void sql_column_text(sqlite3_stmt *stmt, int at, char *field, size_t n);

/* --- the file (sqlite_schema.c) --- */

/* Checks that the file at path is ours, sets its modes, brings it to this version, reads what the writer counts on from there.
 * Conditions as sqlite_rows_open(). */
int sql_set_up_writer(struct sqlite_rows *s, const char *path) must_check;

/* --- verbs of struct rows_ops, whose contracts are in rules.h --- */

int sql_executor_get(struct rows *rows, struct str name, struct rows_executor *out) must_check;
int sql_executor_put(struct rows *rows, const struct rows_executor *row) must_check;
int sql_executor_seen(struct rows *rows, const struct rows_executor *row) must_check;
int sql_executor_each(
	struct rows *rows, bool hidden_too, rows_executor_fn *visit, void *arg) must_check;
int sql_executors_sum(struct rows *rows, struct rows_executors *out) must_check;

int sql_task_get(struct rows *rows, const struct id *id, struct rows_task *out) must_check;
int sql_task_add(
	struct rows *rows, const struct rows_task *t, struct str doc, struct str labels) must_check;
int sql_task_put(struct rows *rows, const struct rows_task *t) must_check;
int sql_task_progress(struct rows *rows, const struct rows_task *t) must_check;
int sql_owned(struct rows *rows, struct str name, int64_t first, int64_t last,
	struct rows_list *out) must_check;
int sql_head(struct rows *rows, struct str language, struct rows_task *out) must_check;
int sql_oldest(struct rows *rows, enum task_status status, int64_t *add_us) must_check;
int sql_text_get(struct rows *rows, const struct rows_task *t, enum rows_text what,
	struct record *arena, struct str *out) must_check;
int sql_result_put(struct rows *rows, const struct rows_task *t, struct str result) must_check;
int sql_walk(struct rows *rows, const struct rows_walk *walk, rows_visit_fn *visit,
	void *arg) must_check;

int sql_blob_get(struct rows *rows, struct str name, struct rows_blob *out) must_check;
int sql_blob_put(struct rows *rows, const struct rows_blob *blob) must_check;
int sql_blob_own(struct rows *rows, struct str name, struct str user) must_check;
int sql_blob_owned(struct rows *rows, struct str name, struct str user) must_check;
int sql_blob_refer(struct rows *rows, struct str name, const struct rows_task *t) must_check;
int sql_blob_unused(
	struct rows *rows, int64_t before_us, size_t max, struct rows_blobs *out) must_check;
int sql_blob_del(struct rows *rows, struct str name) must_check;

/* --- transactions --- */

/* Writes the progress noted in this transaction: 0 or negative errno. */
int sql_notes_write(struct sqlite_rows *s) must_check;
/* No head is known any more: each is looked up when somebody asks. */
void sql_heads_forget(struct sqlite_rows *s);
/* Reads the last hour from the file into rows.hour, when a writer opens: 0 or negative errno (sqlite_commit.c). */
int sql_hour_get(struct sqlite_rows *s) must_check;
