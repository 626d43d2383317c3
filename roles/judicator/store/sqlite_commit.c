/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions: what a commit writes along, and what is taken back.
 *
 * Progress (sqlite_tasks.c) is written along when the transaction is durable anyway, and otherwise in a transaction of its own with
 * synchronous=NORMAL: in WAL mode that appends to the log without an fsync, survives the death of the process, and becomes durable with
 * the next fsync. So progress is visible to readers at once, and costs microseconds instead of a disk's turn.
 *
 * The last hour is written along too: the minutes that the transaction has changed, so the counts are true to the tasks.
 *
 * Taking back. What SQLite does not know of (hour, last_add_us, seqs, notes) is marked at begin and at each savepoint, and put back.
 * A disk that is full or fails may end the whole transaction, not only the savepoint: undo says so and the caller starts again, an
 * operation at a time.
 */
#include "roles/judicator/store/sqlite_int.h"

#include <errno.h>
#include <string.h>

static void mark_set(struct sqlite_rows *s, struct mark *mark, struct hour *hour)
{
	*mark = s->now;
	mark->last_add_us = s->rows.last_add_us;
	*hour = s->rows.hour;
}

static void mark_restore(struct sqlite_rows *s, const struct mark *mark, const struct hour *hour)
{
	sql_heads_forget(s);
	while (s->now.n_undos > mark->n_undos) {
		const struct seq_undo *undo = &s->undos[--s->now.n_undos];

		undo->seq->last = undo->was;
	}
	s->now.n_notes = mark->n_notes;
	s->rows.last_add_us = mark->last_add_us;
	s->rows.hour = *hour;
}

static int minute_put(struct sqlite_rows *s, const struct hour_minute *m)
{
	const int64_t columns[] = {hour_slot(m->start_us), m->start_us, m->added, m->done,
		m->accepted, m->last.queued, m->last.owned, m->first.queued, m->first.owned};

	for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
		sqlite3_bind_int64(s->stmts[SQL_HOUR_PUT], (int)i + 1, columns[i]);
	return sql_run(s, SQL_HOUR_PUT);
}

/* The minutes that have changed since the transaction began: one row, or two at the turn of a minute. */
static int hour_put(struct sqlite_rows *s)
{
	int err = 0;

	for (unsigned i = 0; err >= 0 && i < HOUR_MINUTES; i++) {
		const struct hour_minute *m = &s->rows.hour.minutes[i];

		if (memcmp(m, &s->hour_begun.minutes[i], sizeof(*m)) != 0)
			err = minute_put(s, m);
	}
	return err;
}

int sql_hour_get(struct sqlite_rows *s)
{
	sqlite3_stmt *stmt = s->stmts[SQL_HOUR_GET];
	int code;

	while ((code = sqlite3_step(stmt)) == SQLITE_ROW) {
		int64_t start_us = sqlite3_column_int64(stmt, 0);

		if (start_us <= 0)
			continue;
		s->rows.hour.minutes[hour_slot(start_us)] = (struct hour_minute){
			.start_us = start_us,
			.added = sqlite3_column_int64(stmt, 1),
			.done = sqlite3_column_int64(stmt, 2),
			.accepted = sqlite3_column_int64(stmt, 3),
			.last = {sqlite3_column_int64(stmt, 4), sqlite3_column_int64(stmt, 5)},
			.first = {sqlite3_column_int64(stmt, 6), sqlite3_column_int64(stmt, 7)},
		};
	}
	sqlite3_reset(stmt);
	return code == SQLITE_DONE ? 0 : sql_failed(s, "hour");
}

/* An administrator may have changed the queue with other tools. */
static int see_others(struct sqlite_rows *s)
{
	int err = sql_step_one(s, SQL_OTHERS);
	int64_t others;

	if (err)
		return err < 0 ? err : -EIO;
	others = sqlite3_column_int64(s->stmts[SQL_OTHERS], 0);
	sql_reset(s, SQL_OTHERS);
	if (others != s->others)
		sql_heads_forget(s);
	s->others = others;
	return 0;
}

int sqlite_rows_begin(struct sqlite_rows *s)
{
	int err;

	s->now.n_undos = s->now.n_notes = 0;
	mark_set(s, &s->begun, &s->hour_begun);
	s->changes_begun = sqlite3_total_changes(s->db);
	err = sql_run(s, SQL_BEGIN);
	return err < 0 ? err : see_others(s);
}

int sqlite_rows_save(struct sqlite_rows *s)
{
	mark_set(s, &s->saved, &s->hour_saved);
	return sql_run(s, SQL_SAVE);
}

int sqlite_rows_keep(struct sqlite_rows *s)
{
	return sql_run(s, SQL_KEEP);
}

int sqlite_rows_undo(struct sqlite_rows *s)
{
	int err;

	mark_restore(s, &s->saved, &s->hour_saved);
	if (sqlite3_get_autocommit(s->db))
		return -EIO; /* the words are those of the error that ended it */
	err = sql_run(s, SQL_UNDO);
	return err < 0 ? err : sql_run(s, SQL_KEEP);
}

/* Progress alone, in a transaction of its own: see the top. */
static int commit_soft(struct sqlite_rows *s)
{
	int err = sql_exec(s, "PRAGMA synchronous = NORMAL");

	if (err >= 0)
		err = sql_run(s, SQL_BEGIN);
	if (err >= 0)
		err = sql_notes_write(s);
	if (err >= 0)
		err = sql_run(s, SQL_COMMIT);
	if (err < 0 && !sqlite3_get_autocommit(s->db))
		sql_exec(s, "ROLLBACK");
	if (sql_exec(s, "PRAGMA synchronous = FULL") < 0)
		return -EIO;
	return err;
}

int sqlite_rows_commit(struct sqlite_rows *s, enum sqlite_commit *kind)
{
	bool has_written = sqlite3_total_changes(s->db) != s->changes_begun;
	int err = has_written ? sql_notes_write(s) : 0;

	if (err >= 0 && has_written)
		err = hour_put(s);
	*kind = has_written ? SQLITE_COMMIT_DURABLE : SQLITE_COMMIT_NONE;
	if (err >= 0)
		err = sql_run(s, SQL_COMMIT);
	if (err >= 0 && !has_written && s->now.n_notes) {
		*kind = SQLITE_COMMIT_SOFT;
		err = commit_soft(s);
	}
	return err;
}

void sqlite_rows_abort(struct sqlite_rows *s)
{
	char error[SQLITE_ROWS_ERROR_MAX];

	mark_restore(s, &s->begun, &s->hour_begun);
	if (sqlite3_get_autocommit(s->db))
		return;
	memcpy(error, s->error, sizeof(error));
	sql_run(s, SQL_ROLLBACK);
	memcpy(s->error, error, sizeof(error));
}

int sqlite_rows_snapshot(struct sqlite_rows *s)
{
	return sql_run(s, SQL_SNAPSHOT);
}

void sqlite_rows_snapshot_end(struct sqlite_rows *s)
{
	sql_run(s, SQL_COMMIT);
}
