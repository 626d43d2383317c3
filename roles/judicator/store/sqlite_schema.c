/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in the file: the tables and how older files come to them, the text of each statement, and opening for writing.
 *
 * add_us is unique and increasing, so it is the rowid of everything that belongs to a task: tables grow at their end, and each index
 * ends in the order of adding without storing it twice. The queue is the partial index task_queue: language, priority descending,
 * rowid; its first entry is the head, whatever its length. Documents, results and labels are in tables of their own, so that claiming
 * and searching touch small rows only.
 *
 * Where SQLite could choose another index, a statement names its own: a test explains every row, and none may scan or sort.
 *
 * A file is ours by its application_id, and of the version that its user_version says. It is upgraded in one transaction, so that a
 * process that dies in between leaves the old version whole.
 */
#include "roles/judicator/store/sqlite_int.h"

#include <errno.h>
#include <stdio.h>

#define APPLICATION_ID 0x436e636c /* "Cncl" */
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

/* The first column of the first row, as a number. */
static int ask_number(struct sqlite_rows *s, const char *sql, int64_t *out)
{
	sqlite3_stmt *stmt = NULL;
	int err = 0;

	if (sqlite3_prepare_v2(s->db, sql, -1, &stmt, NULL) != SQLITE_OK ||
		sqlite3_step(stmt) != SQLITE_ROW)
		err = sql_failed(s, "open");
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
	int err = sql_exec(s, "BEGIN IMMEDIATE");

	for (int64_t v = version; err >= 0 && v < VERSION; v++)
		err = sql_exec(s, upgrades[v]);
	snprintf(pragma, sizeof(pragma), "PRAGMA user_version = %lld", (long long)VERSION);
	if (err >= 0)
		err = sql_exec(s, "PRAGMA application_id = " STRING(APPLICATION_ID));
	if (err >= 0)
		err = sql_exec(s, pragma);
	return err < 0 ? err : sql_exec(s, "COMMIT");
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

int sql_set_up_writer(struct sqlite_rows *s, const char *path)
{
	int64_t version = 0;
	int err = check_file(s, path, &version);

	if (err < 0)
		return err;
	err = sql_exec(s,
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
