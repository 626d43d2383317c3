/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of blobs: what is there and when it was used last (blob), who has sent it (blob_owner), which tasks refer to it (blob_task).
 *
 * The bytes are not here (blob_files.c), nor is who may do what (blob_rules.c). Removing a blob removes its owners with it, in the
 * same transaction; references need no removing, since only a blob without any is removed.
 */
#include "roles/judicator/store/sqlite_int.h"

static void blob_read(sqlite3_stmt *stmt, struct rows_blob *out)
{
	sql_column_text(stmt, 0, out->name, sizeof(out->name));
	out->size = sqlite3_column_int64(stmt, 1);
	out->used_us = sqlite3_column_int64(stmt, 2);
}

int sql_blob_get(struct rows *rows, struct str name, struct rows_blob *out)
{
	struct sqlite_rows *s = sql_self(rows);
	int err;

	sql_bind_str(s->stmts[SQL_BLOB_GET], 1, name);
	err = sql_step_one(s, SQL_BLOB_GET);
	if (err)
		return err;
	blob_read(s->stmts[SQL_BLOB_GET], out);
	sql_reset(s, SQL_BLOB_GET);
	return 0;
}

int sql_blob_put(struct rows *rows, const struct rows_blob *blob)
{
	struct sqlite_rows *s = sql_self(rows);
	sqlite3_stmt *stmt = s->stmts[SQL_BLOB_PUT];

	sql_bind_str(stmt, 1, str_from(blob->name));
	sqlite3_bind_int64(stmt, 2, blob->size);
	sqlite3_bind_int64(stmt, 3, blob->used_us);
	return sql_run(s, SQL_BLOB_PUT);
}

int sql_blob_own(struct rows *rows, struct str name, struct str user)
{
	struct sqlite_rows *s = sql_self(rows);

	sql_bind_str(s->stmts[SQL_BLOB_OWN], 1, name);
	sql_bind_str(s->stmts[SQL_BLOB_OWN], 2, user);
	return sql_run(s, SQL_BLOB_OWN);
}

int sql_blob_owned(struct rows *rows, struct str name, struct str user)
{
	struct sqlite_rows *s = sql_self(rows);
	int err;

	sql_bind_str(s->stmts[SQL_BLOB_OWNED], 1, name);
	sql_bind_str(s->stmts[SQL_BLOB_OWNED], 2, user);
	err = sql_step_one(s, SQL_BLOB_OWNED);
	if (!err)
		sql_reset(s, SQL_BLOB_OWNED);
	return err;
}

int sql_blob_refer(struct rows *rows, struct str name, const struct rows_task *t)
{
	struct sqlite_rows *s = sql_self(rows);

	sql_bind_str(s->stmts[SQL_BLOB_REFER], 1, name);
	sqlite3_bind_int64(s->stmts[SQL_BLOB_REFER], 2, t->add_us);
	return sql_run(s, SQL_BLOB_REFER);
}

int sql_blob_unused(struct rows *rows, int64_t before_us, size_t max, struct rows_blobs *out)
{
	struct sqlite_rows *s = sql_self(rows);
	sqlite3_stmt *stmt = s->stmts[SQL_BLOB_UNUSED];
	int code, err;

	sqlite3_bind_int64(stmt, 1, before_us);
	sqlite3_bind_int64(stmt, 2, (int64_t)max);
	while ((code = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct rows_blob blob;

		blob_read(stmt, &blob);
		rows_blobs_add(out, &blob);
	}
	err = code == SQLITE_DONE ? 0 : sql_failed(s, "blobs");
	sqlite3_reset(stmt);
	return err;
}

int sql_blob_del(struct rows *rows, struct str name)
{
	struct sqlite_rows *s = sql_self(rows);
	int err;

	sql_bind_str(s->stmts[SQL_BLOB_DISOWN], 1, name);
	sql_bind_str(s->stmts[SQL_BLOB_DEL], 1, name);
	err = sql_run(s, SQL_BLOB_DISOWN);
	return err < 0 ? err : sql_run(s, SQL_BLOB_DEL);
}
