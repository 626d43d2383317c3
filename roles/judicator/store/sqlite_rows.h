/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sqlite_rows - rows (rules.h) in a SQLite file: one connection, its prepared statements, its transactions.
 *
 * One thread at a time. A handle either writes (there is one, holding the store's lock) or reads (a snapshot at a time). Failures
 * are negative errnos; sqlite_rows_error() has SQLite's words for the last one.
 */
#pragma once

#include "roles/judicator/store/rules.h"

struct sqlite_rows;

struct sqlite_rows_options {
	const char *path; /* of the database file */
	bool writes;      /* creates and upgrades the file */
	const char *dir;  /* whose file system must have room */
};

#define SQLITE_ROWS_ERROR_MAX 400
/* 0, or negative errno with what is wrong, and what to do, in error: -ENOTSUP the file is of a newer program, -EINVAL it is not ours,
 * -EUCLEAN it is damaged. */
int sqlite_rows_open(const struct sqlite_rows_options *options, struct sqlite_rows **out,
	char error[SQLITE_ROWS_ERROR_MAX]) must_check;
void sqlite_rows_close(struct sqlite_rows *s); /* NULL is fine */
struct rows *sqlite_rows_base(struct sqlite_rows *s);
const char *sqlite_rows_error(const struct sqlite_rows *s);
/* What time it is (loop_now_us), for how long the free space is believed. */
void sqlite_rows_set_now(struct sqlite_rows *s, int64_t now_us);
/* How much free space there must be for a new task; 0 = never ask, as at first. */
void sqlite_rows_set_reserve(struct sqlite_rows *s, int64_t reserve_bytes);

/* --- a writing transaction: begin, then for each operation save and either keep or undo, then commit or abort --- */
int sqlite_rows_begin(struct sqlite_rows *s) must_check;
int sqlite_rows_save(struct sqlite_rows *s) must_check;
int sqlite_rows_keep(struct sqlite_rows *s) must_check;
/* Takes back what was written since save. Fails when the whole transaction is gone (disk full, I/O error): abort then. */
int sqlite_rows_undo(struct sqlite_rows *s) must_check;

enum sqlite_commit {
	SQLITE_COMMIT_NONE,    /* nothing had been written */
	SQLITE_COMMIT_SOFT,    /* progress only: written without an fsync */
	SQLITE_COMMIT_DURABLE, /* on disk */
};
int sqlite_rows_commit(
	struct sqlite_rows *s, enum sqlite_commit *kind) must_check; /* on failure: abort */
void sqlite_rows_abort(struct sqlite_rows *s);                       /* as if never begun */

/* --- a snapshot for reading --- */
int sqlite_rows_snapshot(struct sqlite_rows *s) must_check;
void sqlite_rows_snapshot_end(struct sqlite_rows *s);

/* Every statement that is used, for tests of the query plans; NULL behind the last. */
const char *sqlite_rows_sql(unsigned index);
