/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The embedded store: one file, one writing thread, one reading thread, group commit.
 *
 *    loop                                   writer (pool of 1)                    reader (pool of 1)
 *    verb -> waiting --(end of turn)--> batch: BEGIN                              verb_read: BEGIN
 *            (<= 65536)   <= 256 ops      the ops, one after the other              run
 *    answers <---------------------------  COMMIT: one fsync, or none            COMMIT --> answer
 *    on_changed
 *
 * The writer is given a batch as soon as it is idle and the turn has ended; what is called meanwhile forms the next one. So a lone
 * verb waits for one fsync, and under load a batch of verbs shares one. Nothing is answered before the commit. Readers see what was
 * answered, since their snapshot begins after the commit they could know of.
 *
 * Failures are rare and savepoints are dear (each keeps an image of the pages its operation touches), so a batch is run without. When an
 * operation fails, nothing of the batch has happened and it is run again with a savepoint each: that operation is taken back to
 * its own and answered STORE_E_FAILED, the others go on. When the whole transaction is lost even so (a full or failing disk may do that),
 * the batch is run once more, an operation a transaction, so that only those fail that must. `add` alone is refused before the disk is full (reserve_bytes), so there is room for what was accepted.
 *
 * One directory, one judicator: store.lock is held with flock() as long as the store is open; it goes with the process.
 *
 * Threads. `writer` and `reader` (struct sqlite_rows) are touched by their worker only, between open and close; a batch and its ops
 * belong to the worker while submitted. Everything else is the loop's.
 *
 * Closing runs to the end what was called, on the caller's thread once the workers are gone, and may come from a callback: the
 * structure is freed at the end of the turn.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "reactor/base/clock.h"
#include "reactor/base/err.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/pool.h"
#include "roles/judicator/store/blob_files.h"
#include "roles/judicator/store/sqlite_rows.h"

#define WAITING_MAX 65536
#define READS_MAX 65536
#define BATCH_MAX 256

#define TXN_E_BEGIN 1 /* could not even begin: running it again would wait again */

struct sqlite_store {
	struct verbs verbs;
	struct log *log;
	char *dir; /* what options.dir points at */
	int lock_fd;
	struct sqlite_rows *writer, *reader;
	struct pool *write_pool, *read_pool;
	struct blob_files *blob_files;
	struct blobs *blobs;
	struct list waiting; /* struct verb_op to be written */
	unsigned n_waiting;
	struct list answers;   /* struct verb_op that have run, or were refused */
	struct list answering; /* those being answered in this turn */
	struct defer turn_end;
	bool is_writing, is_closing;
};

struct batch {
	struct pool_job job;
	struct sqlite_store *store;
	struct list ops;
	int64_t now_us;
	int64_t max_retries, reserve_bytes;
	struct rules_changes changes;
	struct store_counters stats;
	char error[SQLITE_ROWS_ERROR_MAX]; /* of the last failure, "" = none */
};

struct reading {
	struct pool_job job;
	struct sqlite_store *store;
	struct verb_op *op;
	char error[SQLITE_ROWS_ERROR_MAX];
};

static struct sqlite_store *self(struct store *store)
{
	return container_of(store, struct sqlite_store, verbs.store);
}

static struct verb_op *op_first(struct list *ops)
{
	struct list *link = list_first(ops);

	return link ? list_entry(link, struct verb_op, link) : NULL;
}

/* --- on the writer --- */

static void batch_note(struct batch *b, struct sqlite_rows *rows)
{
	memcpy(b->error, sqlite_rows_error(rows), sizeof(b->error));
}

/* Without a savepoint: an operation that fails takes the transaction with it. */
static int op_write(struct batch *b, struct sqlite_rows *rows, struct verb_op *op)
{
	int err = verb_run(op, sqlite_rows_base(rows), b->max_retries, &b->changes);

	return err < 0 ? err : 0;
}

/* Negative when the transaction is lost; an operation that failed alone is marked and taken back. */
static int op_write_saved(struct batch *b, struct sqlite_rows *rows, struct verb_op *op)
{
	struct rules_mark mark = rules_changes_mark(&b->changes);
	int err = sqlite_rows_save(rows);

	if (err < 0)
		return err;
	if (verb_run(op, sqlite_rows_base(rows), b->max_retries, &b->changes) == 0)
		return sqlite_rows_keep(rows);
	batch_note(b, rows);
	rules_changes_back(&b->changes, mark);
	return sqlite_rows_undo(rows);
}

static void count_commit(struct store_counters *stats, enum sqlite_commit kind)
{
	stats->commits += kind == SQLITE_COMMIT_DURABLE;
	stats->soft_commits += kind == SQLITE_COMMIT_SOFT;
}

typedef int op_write_fn(struct batch *b, struct sqlite_rows *rows, struct verb_op *op);

/* Runs all operations of the batch, or `only` that one, as one transaction. 0; negative: it is lost, nothing happened; TXN_E_BEGIN. */
static int batch_txn(
	struct batch *b, struct sqlite_rows *rows, op_write_fn *write, struct verb_op *only)
{
	struct rules_mark mark = rules_changes_mark(&b->changes);
	enum sqlite_commit kind = SQLITE_COMMIT_NONE;
	bool has_begun;
	int err = sqlite_rows_begin(rows);

	has_begun = err >= 0;
	list_each (it, &b->ops) {
		struct verb_op *op = list_entry(it, struct verb_op, link);

		if (err >= 0 && (!only || op == only))
			err = write(b, rows, op);
	}
	if (err >= 0)
		err = sqlite_rows_commit(rows, &kind);
	if (err >= 0) {
		count_commit(&b->stats, kind);
		return 0;
	}
	batch_note(b, rows);
	sqlite_rows_abort(rows);
	rules_changes_back(&b->changes, mark);
	list_each (it, &b->ops) {
		struct verb_op *op = list_entry(it, struct verb_op, link);

		if (!only || op == only)
			verb_reset(op, STORE_E_FAILED);
	}
	return has_begun ? err : TXN_E_BEGIN;
}

static void batch_run(struct pool_job *job, void *resource)
{
	struct batch *b = container_of(job, struct batch, job);
	struct sqlite_rows *rows = resource;
	int err;

	sqlite_rows_set_now(rows, b->now_us);
	sqlite_rows_set_reserve(rows, b->reserve_bytes);
	err = batch_txn(b, rows, op_write, NULL);
	if (err < 0)
		err = batch_txn(b, rows, op_write_saved, NULL);
	if (err >= 0)
		return;
	list_each (it, &b->ops) {
		struct verb_op *op = list_entry(it, struct verb_op, link);

		if (batch_txn(b, rows, op_write, op) == TXN_E_BEGIN)
			return; /* the rest is marked as failed already */
	}
}

/* --- answers --- */

static void answers_give(struct sqlite_store *s)
{
	struct verb_op *op;

	/* What the callbacks make (a refusal) waits for the next turn; one may close the store, which empties both lists. */
	list_splice_tail(&s->answering, &s->answers);
	while ((op = op_first(&s->answering))) {
		list_del(&op->link);
		verb_answer(op);
	}
}

static void batch_start(struct sqlite_store *s);

static void batch_account(struct sqlite_store *s, struct batch *b)
{
	struct store_counters *counters = &s->verbs.counters;
	char quoted[LOG_QUOTE_MAX];

	list_each (it, &b->ops)
		b->stats.failed += list_entry(it, struct verb_op, link)->status == STORE_E_FAILED;
	counters->batches++;
	counters->operations += b->stats.operations;
	counters->commits += b->stats.commits;
	counters->soft_commits += b->stats.soft_commits;
	counters->failed += b->stats.failed;
	if (b->error[0])
		log_error(s->log, "store_failed", "failed=%llu of=%llu why=%s",
			(unsigned long long)b->stats.failed,
			(unsigned long long)b->stats.operations,
			log_quote(str_from(b->error), quoted));
}

static void batch_done(struct pool_job *job)
{
	struct batch *b = container_of(job, struct batch, job);
	struct sqlite_store *s = b->store;

	s->is_writing = false;
	batch_account(s, b);
	list_splice_tail(&s->answers, &b->ops);
	/* The writer goes on while the loop answers. */
	batch_start(s);
	answers_give(s);
	rules_changes_deliver(&b->changes, &s->verbs.options, &s->verbs.counters);
	rules_changes_fini(&b->changes);
	free(b);
}

static struct batch *batch_take(struct sqlite_store *s)
{
	struct batch *b = mem_alloc(sizeof(*b));
	struct verb_op *op;

	b->job = (struct pool_job){.run = batch_run, .done = batch_done};
	b->store = s;
	b->now_us = loop_now_us(s->verbs.loop);
	b->max_retries = s->verbs.options.max_retries;
	b->reserve_bytes = s->verbs.options.reserve_bytes;
	list_init(&b->job.link);
	list_init(&b->ops);
	while (b->stats.operations < BATCH_MAX && (op = op_first(&s->waiting))) {
		list_del(&op->link);
		list_add_tail(&b->ops, &op->link);
		b->stats.operations++;
		s->n_waiting--;
	}
	return b;
}

static void batch_start(struct sqlite_store *s)
{
	struct batch *b;

	if (s->is_writing || s->is_closing || list_is_empty(&s->waiting))
		return;
	b = batch_take(s);
	s->is_writing = true;
	/* One batch at a time in a queue of one: it cannot be full. */
	CHECK(pool_submit(s->write_pool, &b->job) == 0);
}

static void on_turn_end(void *arg)
{
	struct sqlite_store *s = arg;

	batch_start(s);
	answers_give(s);
}

/* --- reading --- */

static void reading_run(struct pool_job *job, void *resource)
{
	struct reading *r = container_of(job, struct reading, job);
	struct sqlite_rows *rows = resource;
	int err = sqlite_rows_snapshot(rows);

	if (err >= 0) {
		err = verb_run(r->op, sqlite_rows_base(rows), 0, NULL);
		if (err < 0)
			memcpy(r->error, sqlite_rows_error(rows), sizeof(r->error));
		sqlite_rows_snapshot_end(rows);
		return;
	}
	memcpy(r->error, sqlite_rows_error(rows), sizeof(r->error));
	verb_reset(r->op, STORE_E_FAILED);
}

static void reading_done(struct pool_job *job)
{
	struct reading *r = container_of(job, struct reading, job);
	char quoted[LOG_QUOTE_MAX];

	if (r->error[0])
		log_error(r->store->log, "store_failed", "verb=%s why=%s", r->op->verb->name,
			log_quote(str_from(r->error), quoted));
	verb_answer(r->op);
	free(r);
}

static struct reading *reading_new(struct sqlite_store *s, struct verb_op *op)
{
	struct reading *r = mem_alloc(sizeof(*r));

	r->job = (struct pool_job){.run = reading_run, .done = reading_done};
	list_init(&r->job.link);
	r->store = s;
	r->op = op;
	return r;
}

/* --- calls --- */

static void refuse(struct sqlite_store *s, struct verb_op *op)
{
	verb_reset(op, STORE_E_BUSY);
	list_add_tail(&s->answers, &op->link);
	loop_defer(s->verbs.loop, &s->turn_end);
}

static void sqlite_submit(struct verbs *verbs, struct verb_op *op)
{
	struct sqlite_store *s = container_of(verbs, struct sqlite_store, verbs);

	if (op->verb->kind == VERB_READS && !s->is_closing) {
		struct reading *r = reading_new(s, op);

		if (pool_submit(s->read_pool, &r->job) == 0)
			return;
		free(r);
		refuse(s, op);
		return;
	}
	if (s->n_waiting == WAITING_MAX) {
		refuse(s, op);
		return;
	}
	list_add_tail(&s->waiting, &op->link);
	s->n_waiting++;
	if (!s->is_closing)
		loop_defer(s->verbs.loop, &s->turn_end);
}

/* --- life --- */

static char *path_of(const struct store_options *options, const char *file)
{
	return mem_printf("%s/%s", options->dir, file);
}

static int lock_take(struct sqlite_store *s)
{
	char *path cleanup(mem_freep) = path_of(&s->verbs.options, "store.lock");
	int err;

	s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (s->lock_fd >= 0 && flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	err = -errno;
	if (err == -EWOULDBLOCK)
		log_error(s->log, "store",
			"path=%s problem=\"another judicator has this directory open: stop it, or "
			"give this one a data_dir of its own\"",
			path);
	else
		log_error(s->log, "store", "path=%s problem=\"cannot be locked: %s\"", path,
			strerror(-err));
	return err == -EWOULDBLOCK ? -EBUSY : err;
}

static int rows_open(struct sqlite_store *s, bool writes, struct sqlite_rows **out)
{
	char *path cleanup(mem_freep) = path_of(&s->verbs.options, "store.db");
	struct sqlite_rows_options options = {
		.path = path,
		.writes = writes,
		.dir = s->verbs.options.dir,
	};
	char error[SQLITE_ROWS_ERROR_MAX], quoted[LOG_QUOTE_MAX];
	int err = sqlite_rows_open(&options, out, error);

	if (err < 0)
		log_error(s->log, "store", "problem=%s", log_quote(str_from(error), quoted));
	return err;
}

/* The worker's resource was opened by us; the pool hands it over. */
static int worker_init(void *arg, unsigned index, void **resource)
{
	*resource = arg;
	return 0;
}

static int pools_start(struct sqlite_store *s)
{
	struct pool_options writes = {
		.name = "store-write",
		.workers = 1,
		.queue_max = 1,
		.worker_init = worker_init,
		.arg = s->writer,
	};
	struct pool_options reads = {
		.name = "store-read",
		.workers = 1,
		.queue_max = READS_MAX,
		.worker_init = worker_init,
		.arg = s->reader,
	};
	int err = pool_new(s->verbs.loop, &writes, &s->write_pool);

	return err < 0 ? err : pool_new(s->verbs.loop, &reads, &s->read_pool);
}

static void release(struct sqlite_store *s)
{
	blob_files_close(take_ptr(&s->blob_files));
	sqlite_rows_close(take_ptr(&s->reader));
	sqlite_rows_close(take_ptr(&s->writer));
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	s->lock_fd = -1;
	free(take_ptr(&s->dir));
	/* Who closed it from a callback is not told of changes any more. */
	s->verbs.options.on_changed = NULL;
}

/* Runs on this thread what was called and not submitted. */
static void run_rest(struct sqlite_store *s)
{
	struct verb_op *op;

	answers_give(s);
	while ((op = op_first(&s->waiting)) || !list_is_empty(&s->answers)) {
		if (op && op->verb->kind == VERB_READS) {
			struct reading *r = reading_new(s, op);

			list_del(&op->link);
			s->n_waiting--;
			reading_run(&r->job, s->reader);
			reading_done(&r->job);
		} else if (op) {
			struct batch *b = batch_take(s);

			batch_run(&b->job, s->writer);
			batch_done(&b->job);
		}
		answers_give(s);
	}
}

static void sqlite_close(struct store *store)
{
	struct sqlite_store *s = self(store);

	CHECK(!s->is_closing);
	s->is_closing = true;
	blobs_close(s->blobs);
	pool_free(take_ptr(&s->write_pool));
	pool_free(take_ptr(&s->read_pool));
	do
		run_rest(s);
	while (blobs_settle(s->blobs));
	defer_cancel(&s->turn_end);
	blobs_free(take_ptr(&s->blobs));
	release(s);
	loop_free_later(s->verbs.loop, free, s);
}

/* The writer hears of it with its next batch. */
static void sqlite_set_reserve(struct store *store, int64_t reserve_bytes)
{
	self(store)->verbs.options.reserve_bytes = reserve_bytes;
}

static void sqlite_blob_put(struct store *store, const struct msg_blob_put_request *request,
	struct str bytes, store_blob_put_fn *cb, void *arg)
{
	blobs_put(self(store)->blobs, request, bytes, cb, arg);
}

static void sqlite_blob_get(struct store *store, const struct msg_blob_get_request *request,
	store_blob_get_fn *cb, void *arg)
{
	blobs_get(self(store)->blobs, request, cb, arg);
}

static void sqlite_blob_collect(
	struct store *store, int64_t unused_us, store_count_fn *cb, void *arg)
{
	blobs_collect(self(store)->blobs, unused_us, cb, arg);
}

/* --- the last lines of the log, again --- */

/* The last lines of a process that died may be missing: those of tasks that ended within LOG_AGAIN_US of the last end are written
 * again, looking at the LOG_AGAIN_TASKS added last. */
#define LOG_AGAIN_US (2 * US_PER_S)
#define LOG_AGAIN_TASKS 10000

struct log_again {
	struct log *log;
	unsigned left;
	int64_t last_us; /* 0 = looking for it */
};

static bool log_again_find(void *arg, const struct rows_task *task)
{
	struct log_again *a = arg;

	if (task->place == ROWS_DONE && task->done_us > a->last_us)
		a->last_us = task->done_us;
	return --a->left;
}

static bool log_again_write(void *arg, const struct rows_task *task)
{
	struct log_again *a = arg;

	if (task->place == ROWS_DONE && task->done_us > a->last_us - LOG_AGAIN_US)
		rules_log_ended(a->log, task, true);
	return --a->left;
}

/* What cannot be read is not repeated: only the log is poorer for it. */
static void log_again(struct sqlite_store *s)
{
	struct rows *rows = sqlite_rows_base(s->reader);
	const struct rows_walk newest = {.after_us = INT64_MAX};
	struct log_again a = {.log = s->log, .left = LOG_AGAIN_TASKS};
	int err = sqlite_rows_snapshot(s->reader);

	if (err < 0)
		return;
	err = rows->ops->walk(rows, &newest, log_again_find, &a);
	a.left = LOG_AGAIN_TASKS;
	if (err >= 0 && a.last_us)
		err = rows->ops->walk(rows, &newest, log_again_write, &a);
	sqlite_rows_snapshot_end(s->reader);
	if (err < 0)
		log_warn(s->log, "log_again", "why=\"a task's row cannot be read\"");
}

static int sqlite_open(struct loop *loop, const struct store_options *options, struct store **out)
{
	struct sqlite_store *s = mem_alloc(sizeof(*s));
	int err;

	s->verbs.store.ops = &store_sqlite;
	s->verbs.loop = loop;
	s->verbs.options = *options;
	s->verbs.options.dir = s->dir = mem_strdup(options->dir);
	s->verbs.submit = sqlite_submit;
	s->log = options->log;
	s->lock_fd = -1;
	list_init(&s->waiting);
	list_init(&s->answers);
	list_init(&s->answering);
	defer_init(&s->turn_end, on_turn_end, s);
	err = lock_take(s);
	if (err >= 0)
		err = rows_open(s, true, &s->writer);
	if (err >= 0)
		err = rows_open(s, false, &s->reader);
	if (err >= 0)
		err = blob_files_open(
			options->dir, sqlite_rows_base(s->writer), s->log, &s->blob_files);
	if (err >= 0)
		log_again(s);
	if (err >= 0)
		err = pools_start(s);
	if (err >= 0)
		err = blobs_new(&s->verbs, &blob_files_ops, s->blob_files, &s->blobs);
	if (err < 0) {
		pool_free(s->write_pool);
		pool_free(s->read_pool);
		release(s);
		free(s);
		return err_trace(err);
	}
	*out = &s->verbs.store;
	return 0;
}

/* Cheap: the file system answers from memory. */
static void sqlite_counters(const struct store *store, struct store_counters *out)
{
	const struct verbs *verbs = container_of(store, struct verbs, store);
	struct statvfs fs;

	*out = verbs->counters;
	out->reserve_bytes = verbs->options.reserve_bytes;
	out->free_bytes = statvfs(verbs->options.dir, &fs) < 0
				  ? -1
				  : (int64_t)((uint64_t)fs.f_bavail * fs.f_frsize);
}

const struct store_ops store_sqlite = {
	.name = "sqlite",
	.open = sqlite_open,
	.close = sqlite_close,
	.set_reserve = sqlite_set_reserve,
	.counters = sqlite_counters,
	.blob_put = sqlite_blob_put,
	.blob_get = sqlite_blob_get,
	.blob_collect = sqlite_blob_collect,
	VERBS_OPS,
};
