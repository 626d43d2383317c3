/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of executors.
 *
 * last_seq is not in the file but in the map `seqs` of the writing handle: after a restart it is 0, which lets old reports move
 * progress backwards once, and nothing else (rpc/README.md). A report that changes nothing therefore writes nothing. Since SQLite does
 * not know of it, each change is noted in `undos` with what was before, for sqlite_commit.c to take back.
 */
#include "roles/judicator/store/sqlite_int.h"

#include "reactor/base/mem.h"

static int64_t seq_get(struct sqlite_rows *s, const char *name)
{
	struct seq *seq = map_get(&s->seqs, str_from(name));

	return seq ? seq->last : 0;
}

static void seq_set(struct sqlite_rows *s, const char *name, int64_t last)
{
	struct seq *seq = map_get(&s->seqs, str_from(name));

	if (!seq) {
		seq = mem_alloc(sizeof(*seq));
		map_set(&s->seqs, str_from(name), seq);
	}
	if (s->now.n_undos == s->cap_undos) {
		s->cap_undos = s->cap_undos ? s->cap_undos * 2 : 64;
		s->undos = mem_resize(s->undos, s->cap_undos * sizeof(*s->undos));
	}
	s->undos[s->now.n_undos++] = (struct seq_undo){seq, seq->last};
	seq->last = last;
}

static void executor_read(struct sqlite_rows *s, sqlite3_stmt *stmt, struct rows_executor *out)
{
	*out = (struct rows_executor){
		.epoch = sqlite3_column_int64(stmt, 1),
		.dead = sqlite3_column_int(stmt, 2),
		.hidden = sqlite3_column_int(stmt, 3),
		.slots = sqlite3_column_int64(stmt, 4),
	};
	sql_column_text(stmt, 0, out->name, sizeof(out->name));
	out->last_seq = seq_get(s, out->name);
}

int sql_executor_get(struct rows *rows, struct str name, struct rows_executor *out)
{
	struct sqlite_rows *s = sql_self(rows);
	int err;

	sql_bind_str(s->stmts[SQL_EXECUTOR_GET], 1, name);
	err = sql_step_one(s, SQL_EXECUTOR_GET);
	if (err)
		return err;
	executor_read(s, s->stmts[SQL_EXECUTOR_GET], out);
	sql_reset(s, SQL_EXECUTOR_GET);
	return 0;
}

int sql_executor_put(struct rows *rows, const struct rows_executor *row)
{
	struct sqlite_rows *s = sql_self(rows);
	sqlite3_stmt *stmt = s->stmts[SQL_EXECUTOR_PUT];

	sql_bind_str(stmt, 1, str_from(row->name));
	sqlite3_bind_int64(stmt, 2, row->epoch);
	sqlite3_bind_int(stmt, 3, row->dead);
	sqlite3_bind_int(stmt, 4, row->hidden);
	sqlite3_bind_int64(stmt, 5, row->slots);
	seq_set(s, row->name, row->last_seq);
	return sql_run(s, SQL_EXECUTOR_PUT);
}

int sql_executor_seen(struct rows *rows, const struct rows_executor *row)
{
	seq_set(sql_self(rows), row->name, row->last_seq);
	return 0;
}

int sql_executor_each(struct rows *rows, bool hidden_too, rows_executor_fn *visit, void *arg)
{
	struct sqlite_rows *s = sql_self(rows);
	sqlite3_stmt *stmt = s->stmts[SQL_EXECUTOR_EACH];
	int code, err;

	sqlite3_bind_int(stmt, 1, hidden_too);
	while ((code = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct rows_executor row;

		executor_read(s, stmt, &row);
		visit(arg, &row, sqlite3_column_int64(stmt, 5));
	}
	err = code == SQLITE_DONE ? 0 : sql_failed(s, "executors");
	sqlite3_reset(stmt);
	return err;
}

int sql_executors_sum(struct rows *rows, struct rows_executors *out)
{
	struct sqlite_rows *s = sql_self(rows);
	sqlite3_stmt *stmt = s->stmts[SQL_EXECUTORS_SUM];
	int err = sql_step_one(s, SQL_EXECUTORS_SUM);

	if (err)
		return err;
	*out = (struct rows_executors){
		.alive = sqlite3_column_int64(stmt, 0),
		.dead = sqlite3_column_int64(stmt, 1),
		.slots = sqlite3_column_int64(stmt, 2),
	};
	sql_reset(s, SQL_EXECUTORS_SUM);
	return 0;
}
