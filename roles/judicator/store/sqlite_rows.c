/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema, the statements (a row each, prepared once), and access to rows through them.
 *
 * add_us is unique and increasing, so it is the rowid of everything that belongs to a task: tables grow at their end, and each index
 * ends in the order of adding without storing it twice. The queue is the partial index task_queue: language, priority descending,
 * rowid; its first entry is the head, whatever its length. Documents, results and labels are in tables of their own, so that claiming
 * and searching touch small rows only.
 *
 * What is not in the file. last_seq is in the map `seqs` of the writing handle: after a restart it is 0, which lets old reports
 * move progress backwards once, and nothing else (rpc/README.md). A report that changes nothing therefore writes nothing.
 *
 * What is in the file but need not be durable: status and case of a claim at work. task_progress() only notes it; commit writes the
 * notes along when the transaction is durable anyway, and otherwise in a transaction with synchronous=NORMAL: in WAL mode that appends
 * to the log without an fsync, survives the death of the process, and becomes durable with the next fsync. So progress is visible to
 * readers at once, and costs microseconds instead of a disk's turn. A note is written only where its claim still owns the task, since
 * the same batch may have ended it.
 *
 * Heads. A report with room asks for the head of every language it offers, and most of those have not changed since the last report asked.
 * The writing handle keeps what it found until it writes a task of that language, takes anything back, or sees at begin that another
 * program has written to the file.
 *
 * Taking back. What SQLite does not know of (hour, last_add_us, seqs, notes) is marked at begin and at each savepoint, and put back.
 * A disk that is full or fails may end the whole transaction, not only the savepoint: undo says so and the caller starts again, an
 * operation at a time.
 */
#include "roles/judicator/store/sqlite_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "reactor/base/clock.h"
#include "reactor/base/map.h"
#include "reactor/base/mem.h"

#define APPLICATION_ID 0x436e636c /* "Cncl" */
#define HEADS_MAX 1024 /* languages are named by clients; the others are looked up each time */
#define BUSY_MS 5000   /* somebody looks into the file with other tools */
#define ROOM_BELIEVED_US (100 * US_PER_MS)
#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)

/* Upgrade i brings a file of version i to i + 1; version 0 is an empty file. */
static const char *const upgrades[] = {
	"CREATE TABLE executor("
	" name TEXT PRIMARY KEY, epoch INTEGER NOT NULL, dead INTEGER NOT NULL, hidden INTEGER NOT "
	"NULL"
	") WITHOUT ROWID;"
	"CREATE TABLE task("
	" add_us INTEGER PRIMARY KEY,"
	" id TEXT NOT NULL, language TEXT NOT NULL, user TEXT NOT NULL, priority INTEGER NOT NULL,"
	" place INTEGER NOT NULL," /* enum rows_place: 0 done, 1 queued, 2 owned */
	" status TEXT NOT NULL, verdict TEXT, executor TEXT NOT NULL, epoch INTEGER NOT NULL,"
	" assign_seq INTEGER NOT NULL, attempt INTEGER NOT NULL, retries INTEGER NOT NULL,"
	" case_no INTEGER NOT NULL, start_us INTEGER NOT NULL, done_us INTEGER NOT NULL,"
	" message TEXT NOT NULL);"
	"CREATE UNIQUE INDEX task_id ON task(id);"
	"CREATE INDEX task_queue ON task(language, priority DESC) WHERE place = 1;"
	"CREATE INDEX task_owner ON task(executor, epoch) WHERE place = 2;"
	"CREATE INDEX task_user ON task(user);"
	"CREATE INDEX task_status ON task(status);"
	"CREATE TABLE doc(add_us INTEGER PRIMARY KEY, text BLOB NOT NULL);"
	"CREATE TABLE result(add_us INTEGER PRIMARY KEY, text BLOB NOT NULL);"
	"CREATE TABLE labels(add_us INTEGER PRIMARY KEY, text BLOB NOT NULL);" /* joined, in order */
	"CREATE TABLE label(label TEXT NOT NULL, add_us INTEGER NOT NULL, PRIMARY KEY(label, "
	"add_us))"
	" WITHOUT ROWID;",
	/* struct hour; what was before a file had it is not known */
	"CREATE TABLE hour("
	" slot INTEGER PRIMARY KEY, start_us INTEGER NOT NULL, added INTEGER NOT NULL,"
	" done INTEGER NOT NULL, accepted INTEGER NOT NULL, queued INTEGER NOT NULL,"
	" owned INTEGER NOT NULL, queued_first INTEGER NOT NULL, owned_first INTEGER NOT NULL);"
	"INSERT INTO hour SELECT unixepoch() / 60 % 60, unixepoch() / 60 * 60000000, 0, 0, 0,"
	" (SELECT count(*) FROM task WHERE place = 1), (SELECT count(*) FROM task WHERE place = 2),"
	" -1, -1 WHERE EXISTS (SELECT 1 FROM task);"
	"ALTER TABLE executor ADD COLUMN slots INTEGER NOT NULL DEFAULT 0;",
	"CREATE TABLE blob(name TEXT PRIMARY KEY, size INTEGER NOT NULL, used_us INTEGER NOT NULL)"
	" WITHOUT ROWID;"
	"CREATE INDEX blob_used ON blob(used_us);"
	"CREATE TABLE blob_owner(name TEXT NOT NULL, user TEXT NOT NULL, PRIMARY KEY(name, user))"
	" WITHOUT ROWID;"
	"CREATE TABLE blob_task(name TEXT NOT NULL, add_us INTEGER NOT NULL, PRIMARY KEY(name, "
	"add_us))"
	" WITHOUT ROWID;",
};

#define VERSION ((int64_t)ARRAY_SIZE(upgrades))

/* In the order task_read() takes them. */
#define COLUMNS                                                                                    \
	"t.add_us, t.id, t.language, t.user, t.priority, t.place, t.status, t.verdict, "           \
	"t.executor, "                                                                             \
	"t.epoch, t.assign_seq, t.attempt, t.retries, t.case_no, t.start_us, t.done_us, t.message"
#define TASK(where) "SELECT " COLUMNS " FROM task t " where

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

static const char *const sqls[SQL_N] = {
	[SQL_BEGIN] = "BEGIN IMMEDIATE",
	[SQL_COMMIT] = "COMMIT",
	[SQL_ROLLBACK] = "ROLLBACK",
	[SQL_SAVE] = "SAVEPOINT operation",
	[SQL_KEEP] = "RELEASE operation",
	[SQL_UNDO] = "ROLLBACK TO operation",
	[SQL_SNAPSHOT] = "BEGIN",
	[SQL_OTHERS] = "PRAGMA data_version",
	[SQL_EXECUTOR_GET] =
		"SELECT name, epoch, dead, hidden, slots FROM executor WHERE name = ?1",
	[SQL_EXECUTOR_PUT] =
		"INSERT INTO executor(name, epoch, dead, hidden, slots) VALUES(?1, ?2, ?3, ?4, ?5)"
		" ON CONFLICT(name) DO UPDATE SET epoch = ?2, dead = ?3, hidden = ?4, slots = ?5",
	[SQL_EXECUTOR_EACH] =
		"SELECT name, epoch, dead, hidden, slots, (SELECT count(*) FROM task t"
		" INDEXED BY task_owner WHERE t.place = 2 AND t.executor = e.name)"
		" FROM executor e WHERE name > '' AND (?1 OR hidden = 0) ORDER BY name",
	[SQL_EXECUTORS_SUM] = "SELECT ifnull(sum(dead = 0), 0), ifnull(sum(dead <> 0), 0), "
			      "ifnull(sum(iif(dead, 0,"
			      " slots)), 0) FROM executor WHERE name > '' AND hidden = 0",
	[SQL_HOUR_GET] = "SELECT start_us, added, done, accepted, queued, owned, queued_first,"
			 " owned_first FROM hour WHERE slot >= 0",
	[SQL_HOUR_PUT] =
		"INSERT OR REPLACE INTO hour(slot, start_us, added, done, accepted, queued,"
		" owned, queued_first, owned_first)"
		" VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
	[SQL_TASK_GET] = TASK("WHERE t.id = ?1"),
	[SQL_TASK_ADD] =
		"INSERT INTO task(add_us, id, language, user, priority, place, status, verdict,"
		" executor, epoch, assign_seq, attempt, retries, case_no, start_us, done_us, "
		"message)"
		" VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, "
		"?17)",
	[SQL_TASK_PUT] =
		"UPDATE task SET place = ?6, status = ?7, verdict = ?8, executor = ?9, epoch = ?10,"
		" assign_seq = ?11, attempt = ?12, retries = ?13, case_no = ?14, start_us = ?15,"
		" done_us = ?16, message = ?17 WHERE add_us = ?1",
	[SQL_TASK_PROGRESS] = "UPDATE task SET status = ?5, case_no = ?6 WHERE add_us = ?1"
			      " AND place = 2 AND executor = ?2 AND epoch = ?3 AND attempt = ?4",
	[SQL_OWNED] = TASK("INDEXED BY task_owner WHERE t.place = 2 AND t.executor = ?1"
			   " AND t.epoch BETWEEN ?2 AND ?3"),
	[SQL_HEAD] = TASK("INDEXED BY task_queue WHERE t.place = 1 AND t.language = ?1"
			  " ORDER BY t.priority DESC, t.add_us LIMIT 1"),
	[SQL_OLDEST] = "SELECT t.add_us FROM task t INDEXED BY task_status WHERE t.status = ?1"
		       " ORDER BY t.add_us LIMIT 1",
	[SQL_DOC_GET] = "SELECT text FROM doc WHERE add_us = ?1",
	[SQL_DOC_PUT] = "INSERT INTO doc(add_us, text) VALUES(?1, ?2)",
	[SQL_RESULT_GET] = "SELECT text FROM result WHERE add_us = ?1",
	[SQL_RESULT_PUT] = "INSERT OR REPLACE INTO result(add_us, text) VALUES(?1, ?2)",
	[SQL_LABELS_GET] = "SELECT text FROM labels WHERE add_us = ?1",
	[SQL_LABELS_PUT] = "INSERT INTO labels(add_us, text) VALUES(?1, ?2)",
	[SQL_LABEL_PUT] = "INSERT OR IGNORE INTO label(add_us, label) VALUES(?1, ?2)",
	[SQL_BLOB_GET] = "SELECT name, size, used_us FROM blob WHERE name = ?1",
	[SQL_BLOB_PUT] = "INSERT INTO blob(name, size, used_us) VALUES(?1, ?2, ?3)"
			 " ON CONFLICT(name) DO UPDATE SET used_us = ?3",
	[SQL_BLOB_OWN] = "INSERT OR IGNORE INTO blob_owner(name, user) VALUES(?1, ?2)",
	[SQL_BLOB_OWNED] = "SELECT 1 FROM blob_owner WHERE name = ?1 AND user = ?2",
	[SQL_BLOB_REFER] = "INSERT OR IGNORE INTO blob_task(name, add_us) VALUES(?1, ?2)",
	[SQL_BLOB_UNUSED] =
		"SELECT name, size, used_us FROM blob INDEXED BY blob_used WHERE used_us < ?1"
		" AND NOT EXISTS (SELECT 1 FROM blob_task t WHERE t.name = blob.name)"
		" ORDER BY used_us LIMIT ?2",
	[SQL_BLOB_DEL] = "DELETE FROM blob WHERE name = ?1",
	[SQL_BLOB_DISOWN] = "DELETE FROM blob_owner WHERE name = ?1",
	[SQL_WALK] = TASK("WHERE t.add_us < ?1 ORDER BY t.add_us DESC"),
	[SQL_WALK_ASC] = TASK("WHERE t.add_us > ?1 ORDER BY t.add_us"),
	[SQL_WALK_USER] = TASK(
		"INDEXED BY task_user WHERE t.user = ?2 AND t.add_us < ?1 ORDER BY t.add_us DESC"),
	[SQL_WALK_USER_ASC] =
		TASK("INDEXED BY task_user WHERE t.user = ?2 AND t.add_us > ?1 ORDER BY t.add_us"),
	[SQL_WALK_STATUS] = TASK("INDEXED BY task_status WHERE t.status = ?2 AND t.add_us < ?1 "
				 "ORDER BY t.add_us DESC"),
	[SQL_WALK_STATUS_ASC] = TASK(
		"INDEXED BY task_status WHERE t.status = ?2 AND t.add_us > ?1 ORDER BY t.add_us"),
	[SQL_WALK_LABEL] =
		"SELECT " COLUMNS " FROM label l CROSS JOIN task t ON t.add_us = l.add_us"
		" WHERE l.label = ?2 AND l.add_us < ?1 ORDER BY l.add_us DESC",
	[SQL_WALK_LABEL_ASC] =
		"SELECT " COLUMNS " FROM label l CROSS JOIN task t ON t.add_us = l.add_us"
		" WHERE l.label = ?2 AND l.add_us > ?1 ORDER BY l.add_us",
};

const char *sqlite_rows_sql(unsigned index)
{
	return index < SQL_N ? sqls[index] : NULL;
}

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

static struct sqlite_rows *self(struct rows *rows)
{
	return container_of(rows, struct sqlite_rows, rows);
}

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

/* SQLite's words and our number for what has just gone wrong. */
static int failed(struct sqlite_rows *s, const char *what)
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

static void bind_str(sqlite3_stmt *stmt, int at, struct str s)
{
	sqlite3_bind_text64(stmt, at, s.n ? s.p : "", s.n, SQLITE_STATIC, SQLITE_UTF8);
}

static void bind_blob(sqlite3_stmt *stmt, int at, struct str s)
{
	sqlite3_bind_blob64(stmt, at, s.n ? s.p : "", s.n, SQLITE_STATIC);
}

/* Runs a statement that has at most one row: 0 with the row under the cursor (reset() then), ROWS_NONE, or negative errno. */
static int step_one(struct sqlite_rows *s, enum sql sql)
{
	int code = sqlite3_step(s->stmts[sql]);
	int err;

	if (code == SQLITE_ROW)
		return 0;
	err = code == SQLITE_DONE ? ROWS_NONE : failed(s, "store");
	sqlite3_reset(s->stmts[sql]);
	return err;
}

static void reset(struct sqlite_rows *s, enum sql sql)
{
	sqlite3_reset(s->stmts[sql]);
}

/* Runs a statement without rows. */
static int run(struct sqlite_rows *s, enum sql sql)
{
	int err = step_one(s, sql);

	if (err == 0)
		reset(s, sql);
	return err == ROWS_NONE ? 0 : err;
}

static int exec(struct sqlite_rows *s, const char *sql)
{
	return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : failed(s, "store");
}

static void column_text(sqlite3_stmt *stmt, int at, char *field, size_t n)
{
	const char *text = (const char *)sqlite3_column_text(stmt, at);

	snprintf(field, n, "%s", text ? text : "");
}

/* --- executors --- */

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
	column_text(stmt, 0, out->name, sizeof(out->name));
	out->last_seq = seq_get(s, out->name);
}

static int sql_executor_get(struct rows *rows, struct str name, struct rows_executor *out)
{
	struct sqlite_rows *s = self(rows);
	int err;

	bind_str(s->stmts[SQL_EXECUTOR_GET], 1, name);
	err = step_one(s, SQL_EXECUTOR_GET);
	if (err)
		return err;
	executor_read(s, s->stmts[SQL_EXECUTOR_GET], out);
	reset(s, SQL_EXECUTOR_GET);
	return 0;
}

static int sql_executor_put(struct rows *rows, const struct rows_executor *row)
{
	struct sqlite_rows *s = self(rows);
	sqlite3_stmt *stmt = s->stmts[SQL_EXECUTOR_PUT];

	bind_str(stmt, 1, str_from(row->name));
	sqlite3_bind_int64(stmt, 2, row->epoch);
	sqlite3_bind_int(stmt, 3, row->dead);
	sqlite3_bind_int(stmt, 4, row->hidden);
	sqlite3_bind_int64(stmt, 5, row->slots);
	seq_set(s, row->name, row->last_seq);
	return run(s, SQL_EXECUTOR_PUT);
}

static int sql_executor_seen(struct rows *rows, const struct rows_executor *row)
{
	seq_set(self(rows), row->name, row->last_seq);
	return 0;
}

static int sql_executor_each(struct rows *rows, bool hidden_too, rows_executor_fn *visit, void *arg)
{
	struct sqlite_rows *s = self(rows);
	sqlite3_stmt *stmt = s->stmts[SQL_EXECUTOR_EACH];
	int code, err;

	sqlite3_bind_int(stmt, 1, hidden_too);
	while ((code = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct rows_executor row;

		executor_read(s, stmt, &row);
		visit(arg, &row, sqlite3_column_int64(stmt, 5));
	}
	err = code == SQLITE_DONE ? 0 : failed(s, "executors");
	sqlite3_reset(stmt);
	return err;
}

static int sql_executors_sum(struct rows *rows, struct rows_executors *out)
{
	struct sqlite_rows *s = self(rows);
	sqlite3_stmt *stmt = s->stmts[SQL_EXECUTORS_SUM];
	int err = step_one(s, SQL_EXECUTORS_SUM);

	if (err)
		return err;
	*out = (struct rows_executors){
		.alive = sqlite3_column_int64(stmt, 0),
		.dead = sqlite3_column_int64(stmt, 1),
		.slots = sqlite3_column_int64(stmt, 2),
	};
	reset(s, SQL_EXECUTORS_SUM);
	return 0;
}

/* --- tasks --- */

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
	column_text(stmt, 1, id, sizeof(id));
	column_text(stmt, 2, t->language, sizeof(t->language));
	column_text(stmt, 3, t->user, sizeof(t->user));
	column_text(stmt, 6, status, sizeof(status));
	column_text(stmt, 7, verdict, sizeof(verdict));
	column_text(stmt, 8, t->executor, sizeof(t->executor));
	column_text(stmt, 16, t->message, sizeof(t->message));
	if (id_parse(str_from(id), &t->id) && task_status_parse(str_from(status), &t->status) &&
		(!verdict[0] || verdict_parse(str_from(verdict), &t->verdict)))
		return 0;
	snprintf(s->error, sizeof(s->error), "task row %lld is damaged", (long long)t->add_us);
	return -EUCLEAN;
}

static int task_one(struct sqlite_rows *s, enum sql sql, struct rows_task *out)
{
	int err = step_one(s, sql);

	if (err)
		return err;
	err = task_read(s, s->stmts[sql], out);
	reset(s, sql);
	return err;
}

static int sql_task_get(struct rows *rows, const struct id *id, struct rows_task *out)
{
	struct sqlite_rows *s = self(rows);

	bind_str(s->stmts[SQL_TASK_GET], 1, id_str(id));
	return task_one(s, SQL_TASK_GET, out);
}

/* Parameters 6 and up, which insert and update share. */
static void task_bind(sqlite3_stmt *stmt, const struct rows_task *t)
{
	sqlite3_bind_int64(stmt, 1, t->add_us);
	sqlite3_bind_int(stmt, 6, (int)t->place);
	bind_str(stmt, 7, str_from(task_status_name(t->status)));
	if (t->verdict == VERDICT_NONE)
		sqlite3_bind_null(stmt, 8);
	else
		bind_str(stmt, 8, str_from(verdict_name(t->verdict)));
	bind_str(stmt, 9, str_from(t->executor));
	sqlite3_bind_int64(stmt, 10, t->epoch);
	sqlite3_bind_int64(stmt, 11, t->assign_seq);
	sqlite3_bind_int64(stmt, 12, t->attempt);
	sqlite3_bind_int64(stmt, 13, t->retries);
	sqlite3_bind_int64(stmt, 14, t->case_no);
	sqlite3_bind_int64(stmt, 15, t->start_us);
	sqlite3_bind_int64(stmt, 16, t->done_us);
	bind_str(stmt, 17, str_from(t->message));
}

static int text_put(struct sqlite_rows *s, enum sql sql, const struct rows_task *t, struct str text)
{
	sqlite3_bind_int64(s->stmts[sql], 1, t->add_us);
	bind_blob(s->stmts[sql], 2, text);
	return run(s, sql);
}

static int labels_add(struct sqlite_rows *s, const struct rows_task *t, struct str labels)
{
	struct str rest = labels, label;
	int err = labels.n ? text_put(s, SQL_LABELS_PUT, t, labels) : 0;

	while (err >= 0 && rows_labels_next(&rest, &label)) {
		sqlite3_bind_int64(s->stmts[SQL_LABEL_PUT], 1, t->add_us);
		bind_str(s->stmts[SQL_LABEL_PUT], 2, label);
		err = run(s, SQL_LABEL_PUT);
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

static void heads_forget(struct sqlite_rows *s)
{
	map_each (it, &s->heads)
		((struct head *)map_entry_of(it)->value)->is_known = false;
}

static int sql_task_add(
	struct rows *rows, const struct rows_task *t, struct str doc, struct str labels)
{
	struct sqlite_rows *s = self(rows);
	sqlite3_stmt *stmt = s->stmts[SQL_TASK_ADD];
	int err;

	head_forget(s, t->language);
	task_bind(stmt, t);
	bind_str(stmt, 2, id_str(&t->id));
	bind_str(stmt, 3, str_from(t->language));
	bind_str(stmt, 4, str_from(t->user));
	sqlite3_bind_int64(stmt, 5, t->priority);
	err = run(s, SQL_TASK_ADD);
	if (err >= 0)
		err = text_put(s, SQL_DOC_PUT, t, doc);
	if (err >= 0)
		err = labels_add(s, t, labels);
	return err;
}

static int sql_task_put(struct rows *rows, const struct rows_task *t)
{
	struct sqlite_rows *s = self(rows);

	head_forget(s, t->language);
	task_bind(s->stmts[SQL_TASK_PUT], t);
	return run(s, SQL_TASK_PUT);
}

static int sql_task_progress(struct rows *rows, const struct rows_task *t)
{
	struct sqlite_rows *s = self(rows);
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

static int notes_write(struct sqlite_rows *s)
{
	sqlite3_stmt *stmt = s->stmts[SQL_TASK_PROGRESS];
	int err = 0;

	for (size_t i = 0; err >= 0 && i < s->now.n_notes; i++) {
		const struct note *note = &s->notes[i];

		sqlite3_bind_int64(stmt, 1, note->add_us);
		bind_str(stmt, 2, str_from(note->executor));
		sqlite3_bind_int64(stmt, 3, note->epoch);
		sqlite3_bind_int64(stmt, 4, note->attempt);
		bind_str(stmt, 5, str_from(task_status_name(note->status)));
		sqlite3_bind_int64(stmt, 6, note->case_no);
		err = run(s, SQL_TASK_PROGRESS);
	}
	return err;
}

static int sql_owned(
	struct rows *rows, struct str name, int64_t first, int64_t last, struct rows_list *out)
{
	struct sqlite_rows *s = self(rows);
	sqlite3_stmt *stmt = s->stmts[SQL_OWNED];
	int code = SQLITE_DONE, err = 0;

	bind_str(stmt, 1, name);
	sqlite3_bind_int64(stmt, 2, first);
	sqlite3_bind_int64(stmt, 3, last);
	while (err >= 0 && (code = sqlite3_step(stmt)) == SQLITE_ROW)
		err = task_read(s, stmt, rows_list_add(out));
	if (err >= 0 && code != SQLITE_DONE)
		err = failed(s, "owned");
	sqlite3_reset(stmt);
	return err;
}

static int head_read(struct sqlite_rows *s, struct str language, struct rows_task *out)
{
	bind_str(s->stmts[SQL_HEAD], 1, language);
	return task_one(s, SQL_HEAD, out);
}

static int sql_head(struct rows *rows, struct str language, struct rows_task *out)
{
	struct sqlite_rows *s = self(rows);
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

static int sql_oldest(struct rows *rows, enum task_status status, int64_t *add_us)
{
	struct sqlite_rows *s = self(rows);
	int err;

	bind_str(s->stmts[SQL_OLDEST], 1, str_from(task_status_name(status)));
	err = step_one(s, SQL_OLDEST);
	if (err)
		return err;
	*add_us = sqlite3_column_int64(s->stmts[SQL_OLDEST], 0);
	reset(s, SQL_OLDEST);
	return 0;
}

static int sql_text_get(struct rows *rows, const struct rows_task *t, enum rows_text what,
	struct record *arena, struct str *out)
{
	static const enum sql by_text[] = {
		[ROWS_DOC] = SQL_DOC_GET,
		[ROWS_RESULT] = SQL_RESULT_GET,
		[ROWS_LABELS] = SQL_LABELS_GET,
	};
	struct sqlite_rows *s = self(rows);
	sqlite3_stmt *stmt = s->stmts[by_text[what]];
	const char *text;
	int err;

	*out = STR_NULL;
	sqlite3_bind_int64(stmt, 1, t->add_us);
	err = step_one(s, by_text[what]);
	if (err)
		return err == ROWS_NONE ? 0 : err;
	text = sqlite3_column_blob(stmt, 0);
	*out = record_copy(
		arena, (struct str){text ? text : "", (size_t)sqlite3_column_bytes(stmt, 0)});
	sqlite3_reset(stmt);
	return 0;
}

static int sql_result_put(struct rows *rows, const struct rows_task *t, struct str result)
{
	return result.p ? text_put(self(rows), SQL_RESULT_PUT, t, result) : 0;
}

static int sql_walk(
	struct rows *rows, const struct rows_walk *walk, rows_visit_fn *visit, void *arg)
{
	struct sqlite_rows *s = self(rows);
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
		bind_str(stmt, 2, key);
	while (goes_on && err >= 0 && (code = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct rows_task t;

		err = task_read(s, stmt, &t);
		if (err >= 0)
			goes_on = visit(arg, &t);
	}
	if (err >= 0 && code != SQLITE_DONE && code != SQLITE_ROW)
		err = failed(s, "search");
	sqlite3_reset(stmt);
	return err;
}

/* Asked at most every 100 ms; what cannot be asked is no reason to refuse. */
static bool sql_has_room(struct rows *rows)
{
	struct sqlite_rows *s = self(rows);
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

/* --- blobs --- */

static void blob_read(sqlite3_stmt *stmt, struct rows_blob *out)
{
	column_text(stmt, 0, out->name, sizeof(out->name));
	out->size = sqlite3_column_int64(stmt, 1);
	out->used_us = sqlite3_column_int64(stmt, 2);
}

static int sql_blob_get(struct rows *rows, struct str name, struct rows_blob *out)
{
	struct sqlite_rows *s = self(rows);
	int err;

	bind_str(s->stmts[SQL_BLOB_GET], 1, name);
	err = step_one(s, SQL_BLOB_GET);
	if (err)
		return err;
	blob_read(s->stmts[SQL_BLOB_GET], out);
	reset(s, SQL_BLOB_GET);
	return 0;
}

static int sql_blob_put(struct rows *rows, const struct rows_blob *blob)
{
	struct sqlite_rows *s = self(rows);
	sqlite3_stmt *stmt = s->stmts[SQL_BLOB_PUT];

	bind_str(stmt, 1, str_from(blob->name));
	sqlite3_bind_int64(stmt, 2, blob->size);
	sqlite3_bind_int64(stmt, 3, blob->used_us);
	return run(s, SQL_BLOB_PUT);
}

static int sql_blob_own(struct rows *rows, struct str name, struct str user)
{
	struct sqlite_rows *s = self(rows);

	bind_str(s->stmts[SQL_BLOB_OWN], 1, name);
	bind_str(s->stmts[SQL_BLOB_OWN], 2, user);
	return run(s, SQL_BLOB_OWN);
}

static int sql_blob_owned(struct rows *rows, struct str name, struct str user)
{
	struct sqlite_rows *s = self(rows);
	int err;

	bind_str(s->stmts[SQL_BLOB_OWNED], 1, name);
	bind_str(s->stmts[SQL_BLOB_OWNED], 2, user);
	err = step_one(s, SQL_BLOB_OWNED);
	if (!err)
		reset(s, SQL_BLOB_OWNED);
	return err;
}

static int sql_blob_refer(struct rows *rows, struct str name, const struct rows_task *t)
{
	struct sqlite_rows *s = self(rows);

	bind_str(s->stmts[SQL_BLOB_REFER], 1, name);
	sqlite3_bind_int64(s->stmts[SQL_BLOB_REFER], 2, t->add_us);
	return run(s, SQL_BLOB_REFER);
}

static int sql_blob_unused(struct rows *rows, int64_t before_us, size_t max, struct rows_blobs *out)
{
	struct sqlite_rows *s = self(rows);
	sqlite3_stmt *stmt = s->stmts[SQL_BLOB_UNUSED];
	int code, err;

	sqlite3_bind_int64(stmt, 1, before_us);
	sqlite3_bind_int64(stmt, 2, (int64_t)max);
	while ((code = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct rows_blob blob;

		blob_read(stmt, &blob);
		rows_blobs_add(out, &blob);
	}
	err = code == SQLITE_DONE ? 0 : failed(s, "blobs");
	sqlite3_reset(stmt);
	return err;
}

static int sql_blob_del(struct rows *rows, struct str name)
{
	struct sqlite_rows *s = self(rows);
	int err;

	bind_str(s->stmts[SQL_BLOB_DISOWN], 1, name);
	bind_str(s->stmts[SQL_BLOB_DEL], 1, name);
	err = run(s, SQL_BLOB_DISOWN);
	return err < 0 ? err : run(s, SQL_BLOB_DEL);
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

/* --- transactions --- */

static void mark_set(struct sqlite_rows *s, struct mark *mark, struct hour *hour)
{
	*mark = s->now;
	mark->last_add_us = s->rows.last_add_us;
	*hour = s->rows.hour;
}

static void mark_restore(struct sqlite_rows *s, const struct mark *mark, const struct hour *hour)
{
	heads_forget(s);
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
	return run(s, SQL_HOUR_PUT);
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

static int hour_get(struct sqlite_rows *s)
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
	return code == SQLITE_DONE ? 0 : failed(s, "hour");
}

/* An administrator may have changed the queue with other tools. */
static int see_others(struct sqlite_rows *s)
{
	int err = step_one(s, SQL_OTHERS);
	int64_t others;

	if (err)
		return err < 0 ? err : -EIO;
	others = sqlite3_column_int64(s->stmts[SQL_OTHERS], 0);
	reset(s, SQL_OTHERS);
	if (others != s->others)
		heads_forget(s);
	s->others = others;
	return 0;
}

int sqlite_rows_begin(struct sqlite_rows *s)
{
	int err;

	s->now.n_undos = s->now.n_notes = 0;
	mark_set(s, &s->begun, &s->hour_begun);
	s->changes_begun = sqlite3_total_changes(s->db);
	err = run(s, SQL_BEGIN);
	return err < 0 ? err : see_others(s);
}

int sqlite_rows_save(struct sqlite_rows *s)
{
	mark_set(s, &s->saved, &s->hour_saved);
	return run(s, SQL_SAVE);
}

int sqlite_rows_keep(struct sqlite_rows *s)
{
	return run(s, SQL_KEEP);
}

int sqlite_rows_undo(struct sqlite_rows *s)
{
	int err;

	mark_restore(s, &s->saved, &s->hour_saved);
	if (sqlite3_get_autocommit(s->db))
		return -EIO; /* the words are those of the error that ended it */
	err = run(s, SQL_UNDO);
	return err < 0 ? err : run(s, SQL_KEEP);
}

/* Progress alone, in a transaction of its own: see the top. */
static int commit_soft(struct sqlite_rows *s)
{
	int err = exec(s, "PRAGMA synchronous = NORMAL");

	if (err >= 0)
		err = run(s, SQL_BEGIN);
	if (err >= 0)
		err = notes_write(s);
	if (err >= 0)
		err = run(s, SQL_COMMIT);
	if (err < 0 && !sqlite3_get_autocommit(s->db))
		exec(s, "ROLLBACK");
	if (exec(s, "PRAGMA synchronous = FULL") < 0)
		return -EIO;
	return err;
}

int sqlite_rows_commit(struct sqlite_rows *s, enum sqlite_commit *kind)
{
	bool has_written = sqlite3_total_changes(s->db) != s->changes_begun;
	int err = has_written ? notes_write(s) : 0;

	if (err >= 0 && has_written)
		err = hour_put(s);
	*kind = has_written ? SQLITE_COMMIT_DURABLE : SQLITE_COMMIT_NONE;
	if (err >= 0)
		err = run(s, SQL_COMMIT);
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
	run(s, SQL_ROLLBACK);
	memcpy(s->error, error, sizeof(error));
}

int sqlite_rows_snapshot(struct sqlite_rows *s)
{
	return run(s, SQL_SNAPSHOT);
}

void sqlite_rows_snapshot_end(struct sqlite_rows *s)
{
	run(s, SQL_COMMIT);
}

/* --- opening --- */

/* The first column of the first row, as a number. */
static int ask_number(struct sqlite_rows *s, const char *sql, int64_t *out)
{
	sqlite3_stmt *stmt = NULL;
	int err = 0;

	if (sqlite3_prepare_v2(s->db, sql, -1, &stmt, NULL) != SQLITE_OK ||
		sqlite3_step(stmt) != SQLITE_ROW)
		err = failed(s, "open");
	else
		*out = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	return err;
}

/* Ours and of a version we know? *version of an empty file is 0. */
static int check_file(struct sqlite_rows *s, const char *path, int64_t *version)
{
	int64_t application = 0, n_tables = 0;
	int err = ask_number(s, "PRAGMA application_id", &application);

	if (err >= 0)
		err = ask_number(s, "PRAGMA user_version", version);
	if (err >= 0)
		err = ask_number(s, "SELECT count(*) FROM sqlite_schema", &n_tables);
	if (err < 0)
		return err;
	if (n_tables == 0 && application == 0 && *version == 0)
		return 0;
	if (application != APPLICATION_ID) {
		snprintf(s->error, sizeof(s->error),
			"%s is a database of another program: use another directory", path);
		return -EINVAL;
	}
	if (*version > VERSION) {
		snprintf(s->error, sizeof(s->error),
			"%s was written by a newer program (schema %lld, this one knows %lld): "
			"upgrade this program",
			path, (long long)*version, (long long)VERSION);
		return -ENOTSUP;
	}
	return 0;
}

static int upgrade(struct sqlite_rows *s, int64_t version)
{
	char pragma[64];
	int err = exec(s, "BEGIN IMMEDIATE");

	for (int64_t v = version; err >= 0 && v < VERSION; v++)
		err = exec(s, upgrades[v]);
	snprintf(pragma, sizeof(pragma), "PRAGMA user_version = %lld", (long long)VERSION);
	if (err >= 0)
		err = exec(s, "PRAGMA application_id = " STRING(APPLICATION_ID));
	if (err >= 0)
		err = exec(s, pragma);
	return err < 0 ? err : exec(s, "COMMIT");
}

/* Some file systems cannot share memory between processes: then there is no log, and nothing here would hold. */
static int check_wal(struct sqlite_rows *s, const char *path)
{
	int64_t is_wal = 0;
	int err = ask_number(s, "SELECT journal_mode = 'wal' FROM pragma_journal_mode", &is_wal);

	if (err < 0 || is_wal)
		return err;
	snprintf(s->error, sizeof(s->error),
		"%s: its file system cannot hold a write-ahead log: use a local disk", path);
	return -ENOTSUP;
}

static int set_up_writer(struct sqlite_rows *s, const char *path)
{
	int64_t version = 0;
	int err = check_file(s, path, &version);

	if (err < 0)
		return err;
	err = exec(s,
		"PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
		"PRAGMA wal_autocheckpoint = 4000; PRAGMA journal_size_limit = 67108864;"
		"PRAGMA cache_size = -65536; PRAGMA foreign_keys = OFF; PRAGMA temp_store = "
		"MEMORY");
	if (err >= 0)
		err = check_wal(s, path);
	if (err >= 0 && version < VERSION)
		err = upgrade(s, version);
	if (err >= 0)
		err = ask_number(
			s, "SELECT ifnull(max(add_us), 0) FROM task", &s->rows.last_add_us);
	if (err >= 0)
		err = ask_number(s,
			"SELECT count(*) FROM task INDEXED BY task_queue WHERE place = 1",
			&s->rows.hour.now.queued);
	if (err >= 0)
		err = ask_number(s,
			"SELECT count(*) FROM task INDEXED BY task_owner WHERE place = 2",
			&s->rows.hour.now.owned);
	return err;
}

static int prepare_all(struct sqlite_rows *s)
{
	for (int i = 0; i < SQL_N; i++) {
		if (sqlite3_prepare_v3(s->db, sqls[i], -1, SQLITE_PREPARE_PERSISTENT, &s->stmts[i],
			    NULL) != SQLITE_OK)
			return failed(s, sqls[i]);
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
		return failed(s, options->path);
	sqlite3_extended_result_codes(s->db, 1);
	sqlite3_busy_timeout(s->db, BUSY_MS);
	if (options->writes)
		err = set_up_writer(s, options->path);
	else
		err = exec(s, "PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY");
	if (err >= 0)
		err = prepare_all(s);
	return err < 0 || !options->writes ? err : hour_get(s);
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
