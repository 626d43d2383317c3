/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handle: one connection with its statements, prepared once when it opens and finalized when it closes, and how they are run.
 *
 * The verbs of struct rows_ops are in a file for each kind of row (sqlite_int.h says which), what makes a transaction of them is in
 * sqlite_commit.c, the tables and texts are in sqlite_schema.c. Here is the table that joins them.
 *
 * What SQLite reports passes through sql_failed(), which keeps SQLite's words and gives the number that the store acts upon: a full disk, a
 * damaged file and somebody else's lock are told apart there and nowhere else.
 */
#include "roles/judicator/store/sqlite_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"

#define BUSY_MS 5000 /* somebody looks into the file with other tools */
#define ROOM_BELIEVED_US (100 * US_PER_MS)

struct rows *sqlite_rows_base(struct sqlite_rows *s)
{
	return &s->rows;
}

const char *sqlite_rows_error(const struct sqlite_rows *s)
{
	return s->error;
}

void sqlite_rows_set_now(struct sqlite_rows *s, int64_t now_us)
{
	s->now_us = now_us;
}

void sqlite_rows_set_reserve(struct sqlite_rows *s, int64_t reserve_bytes)
{
	if (s->reserve_bytes == reserve_bytes)
		return;
	s->reserve_bytes = reserve_bytes;
	/* What was believed is the answer to another question. */
	s->was_room_asked = false;
	s->has_room = true;
}

/* --- statements --- */

static const struct {
	int code, error;
} errors[] = {
	{SQLITE_BUSY, -EBUSY},
	{SQLITE_CORRUPT, -EUCLEAN},
	{SQLITE_FULL, -ENOSPC},
	{SQLITE_LOCKED, -EBUSY},
	{SQLITE_NOMEM, -ENOMEM},
	{SQLITE_NOTADB, -EUCLEAN},
	{SQLITE_READONLY, -EROFS},
};

int sql_failed(struct sqlite_rows *s, const char *what)
{
	int code = sqlite3_extended_errcode(s->db);

	snprintf(s->error, sizeof(s->error), "%s: %s (SQLite %d)", what, sqlite3_errmsg(s->db),
		code);
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		if (errors[i].code == (code & 0xff))
			return errors[i].error;
	}
	return -EIO;
}

void sql_bind_str(sqlite3_stmt *stmt, int at, struct str s)
{
	sqlite3_bind_text64(stmt, at, s.n ? s.p : "", s.n, SQLITE_STATIC, SQLITE_UTF8);
}

void sql_bind_blob(sqlite3_stmt *stmt, int at, struct str s)
{
	sqlite3_bind_blob64(stmt, at, s.n ? s.p : "", s.n, SQLITE_STATIC);
}

int sql_step_one(struct sqlite_rows *s, enum sql sql)
{
	int code = sqlite3_step(s->stmts[sql]);
	int err;

	if (code == SQLITE_ROW)
		return 0;
	err = code == SQLITE_DONE ? ROWS_NONE : sql_failed(s, "store");
	sqlite3_reset(s->stmts[sql]);
	return err;
}

void sql_reset(struct sqlite_rows *s, enum sql sql)
{
	sqlite3_reset(s->stmts[sql]);
}

int sql_run(struct sqlite_rows *s, enum sql sql)
{
	int err = sql_step_one(s, sql);

	if (err == 0)
		sql_reset(s, sql);
	return err == ROWS_NONE ? 0 : err;
}

int sql_exec(struct sqlite_rows *s, const char *sql)
{
	return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : sql_failed(s, "store");
}

void sql_column_text(sqlite3_stmt *stmt, int at, char *field, size_t n)
{
	const char *text = (const char *)sqlite3_column_text(stmt, at);

	snprintf(field, n, "%s", text ? text : "");
}

/* --- verbs --- */

/* Asked at most every 100 ms; what cannot be asked is no reason to refuse. */
static bool sql_has_room(struct rows *rows)
{
	struct sqlite_rows *s = sql_self(rows);
	struct statvfs fs;

	if (!s->reserve_bytes ||
		(s->was_room_asked && s->now_us - s->room_asked_us < ROOM_BELIEVED_US))
		return s->has_room;
	s->was_room_asked = true;
	s->room_asked_us = s->now_us;
	s->has_room = statvfs(s->dir, &fs) < 0 ||
		      (uint64_t)fs.f_bavail * fs.f_frsize >= (uint64_t)s->reserve_bytes;
	return s->has_room;
}

static const struct rows_ops sqlite_rows_ops = {
	.executor_get = sql_executor_get,
	.executor_put = sql_executor_put,
	.executor_seen = sql_executor_seen,
	.executor_each = sql_executor_each,
	.executors_sum = sql_executors_sum,
	.task_get = sql_task_get,
	.task_add = sql_task_add,
	.task_put = sql_task_put,
	.task_progress = sql_task_progress,
	.owned = sql_owned,
	.head = sql_head,
	.oldest = sql_oldest,
	.text_get = sql_text_get,
	.result_put = sql_result_put,
	.walk = sql_walk,
	.has_room = sql_has_room,
	.blob_get = sql_blob_get,
	.blob_put = sql_blob_put,
	.blob_own = sql_blob_own,
	.blob_owned = sql_blob_owned,
	.blob_refer = sql_blob_refer,
	.blob_unused = sql_blob_unused,
	.blob_del = sql_blob_del,
};

/* --- opening and closing --- */

static int prepare_all(struct sqlite_rows *s)
{
	for (unsigned i = 0; i < SQL_N; i++) {
		if (sqlite3_prepare_v3(s->db, sqlite_rows_sql(i), -1, SQLITE_PREPARE_PERSISTENT,
			    &s->stmts[i], NULL) != SQLITE_OK)
			return sql_failed(s, sqlite_rows_sql(i));
	}
	return 0;
}

/* The file is made by us and not by SQLite, for its mode: it holds people's programs. Log and index take the same mode. */
static int make_file(struct sqlite_rows *s, const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0) {
		int err = -errno;

		snprintf(s->error, sizeof(s->error), "%s cannot be opened: %s", path,
			strerror(errno));
		return err;
	}
	close(fd);
	return 0;
}

static int open_into(struct sqlite_rows *s, const struct sqlite_rows_options *options)
{
	int flags = SQLITE_OPEN_NOMUTEX |
		    (options->writes ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY);
	int err = options->writes ? make_file(s, options->path) : 0;

	if (err < 0)
		return err;
	if (sqlite3_open_v2(options->path, &s->db, flags, NULL) != SQLITE_OK)
		return sql_failed(s, options->path);
	sqlite3_extended_result_codes(s->db, 1);
	sqlite3_busy_timeout(s->db, BUSY_MS);
	if (options->writes)
		err = sql_set_up_writer(s, options->path);
	else
		err = sql_exec(s, "PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY");
	if (err >= 0)
		err = prepare_all(s);
	return err < 0 || !options->writes ? err : sql_hour_get(s);
}

int sqlite_rows_open(const struct sqlite_rows_options *options, struct sqlite_rows **out,
	char error[SQLITE_ROWS_ERROR_MAX])
{
	struct sqlite_rows *s = mem_alloc(sizeof(*s));
	int err;

	s->rows.ops = &sqlite_rows_ops;
	s->dir = mem_strdup(options->dir);
	s->has_room = true;
	map_init(&s->seqs);
	map_init(&s->heads);
	s->writes = options->writes;
	err = open_into(s, options);
	if (err == -EUCLEAN)
		snprintf(error, SQLITE_ROWS_ERROR_MAX,
			"%s is damaged or not a database (%.100s): put a good copy there, or move "
			"it away to start empty",
			options->path, s->error);
	else if (err < 0)
		memcpy(error, s->error, sizeof(s->error));
	if (err < 0) {
		sqlite_rows_close(s);
		return err;
	}
	*out = s;
	return 0;
}

void sqlite_rows_close(struct sqlite_rows *s)
{
	if (!s)
		return;
	for (int i = 0; i < SQL_N; i++)
		sqlite3_finalize(s->stmts[i]);
	sqlite3_close(s->db);
	map_each (it, &s->seqs)
		free(map_entry_of(it)->value);
	map_fini(&s->seqs);
	map_each (it, &s->heads)
		free(map_entry_of(it)->value);
	map_fini(&s->heads);
	free(s->undos);
	free(s->notes);
	free(s->dir);
	free(s);
}
