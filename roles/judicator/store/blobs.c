/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of a blob verb is a `work`: it goes back and forth between the loop and a worker, and ends with one answer.
 *
 *   put      upload found or made -> [write] -> answer, or when it was the last piece
 *                                            -> [finish: hash, durable] -> rows: keep -> answer
 *   get      rows: look -> [read] -> answer
 *   collect  rows: collect -> [remove each] -> answer                              [] = on a worker
 *
 * Bytes come before their row and go after it. So that a collection does not remove the bytes that a put has just brought back, the
 * two exclude each other: none begins to collect while a put is between its bytes and its row, and a put waits there while one
 * collects.
 *
 * An upload lives here and nowhere else: when the process dies, its bytes are removed at the next start, and whoever was sending begins
 * again. One that nobody goes on with is dropped after STORE_UPLOAD_IDLE_US.
 *
 * Writing and reading have a worker each, as an fsync() of a large blob must not hold up those who read.
 */
#include "roles/judicator/store/blobs.h"

#include <errno.h>
#include <stdlib.h>

#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/pool.h"
#include "reactor/timer.h"

#define WRITES_MAX (2 * STORE_UPLOADS_MAX)
#define READS_MAX 128
#define HASH_WRONG 1 /* of finish */

struct blobs {
	struct verbs *verbs;
	const struct blobs_ops *ops;
	void *place;
	struct pool *writes, *reads; /* NULL: inside the call */
	struct list uploads;         /* the longest untouched first */
	unsigned n_uploads;
	struct timer idle;
	unsigned n_finishing; /* between bytes and row */
	bool is_collecting;
	struct list held; /* struct work that must wait for the collection */
	struct list ran;  /* struct work that ran inside the call and are to be told */
	struct list telling;
	struct defer tell;
};

struct work {
	struct pool_job job;
	struct list link; /* held or ran */
	struct blobs *b;
	int (*run)(struct work *w); /* on the worker */
	void (*done)(struct work *w);
	int result; /* of run */
	struct upload *upload;
	const struct msg_blob_put_request *put;
	const struct msg_blob_get_request *get;
	struct str bytes;
	int64_t size, reserve_bytes;
	struct buf out;
	struct rows_blobs gone;
	union {
		store_blob_put_fn *put;
		store_blob_get_fn *get;
		store_count_fn *count;
	} cb;
	void *arg;
};

/* --- work ----------------------------------------------------------------------------------------------------- */

static struct work *work_new(struct blobs *b, void *arg)
{
	struct work *w = mem_alloc(sizeof(*w));

	list_init(&w->link);
	list_init(&w->job.link);
	w->b = b;
	w->arg = arg;
	w->reserve_bytes = b->verbs->options.reserve_bytes;
	return w;
}

static void work_free(struct work *w)
{
	buf_fini(&w->out);
	rows_blobs_fini(&w->gone);
	free(w);
}

static struct work *work_of(struct pool_job *job)
{
	return (struct work *)((char *)job - offsetof(struct work, job));
}

static void on_worker(struct pool_job *job, void *resource unused)
{
	struct work *w = work_of(job);

	w->result = w->run(w);
}

static void on_back(struct pool_job *job)
{
	struct work *w = work_of(job);

	w->done(w);
}

/* Told at the end of the turn, never inside the call. */
static void tell_later(struct work *w)
{
	list_add_tail(&w->b->ran, &w->link);
	loop_defer(w->b->verbs->loop, &w->b->tell);
}

static void go(
	struct work *w, struct pool *pool, int (*run)(struct work *), void (*done)(struct work *))
{
	w->run = run;
	w->done = done;
	w->job.run = on_worker;
	w->job.done = on_back;
	if (pool && pool_submit(pool, &w->job) == 0)
		return;
	if (pool)
		w->result = -EBUSY;
	else
		w->result = run(w);
	tell_later(w);
}

static bool tell_all(struct blobs *b)
{
	struct list *first;
	bool any = false;

	/* An answer may close the store, which empties both lists. */
	list_splice_tail(&b->telling, &b->ran);
	while ((first = list_first(&b->telling))) {
		struct work *w = list_entry(first, struct work, link);

		list_del(first);
		w->done(w);
		any = true;
	}
	return any;
}

static void on_tell(void *arg)
{
	tell_all(arg);
}

static enum store_status status_of(struct work *w, const char *what)
{
	char quoted[LOG_QUOTE_MAX];

	if (w->result == 0)
		return STORE_OK;
	if (w->result == HASH_WRONG)
		return STORE_MISMATCH;
	if (w->result == -EBUSY)
		return STORE_E_BUSY;
	if (w->result == -ENOSPC || w->result == -EDQUOT)
		return STORE_E_FULL;
	log_error(w->b->verbs->options.log, "blob_failed", "doing=%s why=%s", what,
		log_quote(str_from(strerror(-w->result)), quoted));
	return STORE_E_FAILED;
}

/* --- uploads --------------------------------------------------------------------------------------------------- */

static struct upload *upload_find(struct blobs *b, const struct id *id)
{
	list_each (it, &b->uploads) {
		struct upload *u = list_entry(it, struct upload, link);

		if (id_eq(&u->id, id))
			return u;
	}
	return NULL;
}

static void upload_touch(struct blobs *b, struct upload *u)
{
	list_del(&u->link);
	list_add_tail(&b->uploads, &u->link);
	u->seen_us = loop_now_us(b->verbs->loop);
}

static void upload_free(struct upload *u)
{
	blob_hash_free(u->hash);
	buf_fini(&u->bytes);
	free(u);
}

static int run_drop(struct work *w)
{
	w->b->ops->drop(w->b->place, w->upload);
	return 0;
}

static void dropped(struct work *w)
{
	/* A full line of work: the bytes stay until the next start, the descriptor does not. */
	if (w->result)
		w->b->ops->drop(w->b->place, w->upload);
	upload_free(w->upload);
	work_free(w);
}

static void upload_drop(struct blobs *b, struct upload *u)
{
	struct work *w = work_new(b, NULL);

	list_del(&u->link);
	b->n_uploads--;
	w->upload = u;
	go(w, b->writes, run_drop, dropped);
}

static void drop_idle(struct blobs *b)
{
	int64_t before_us = loop_now_us(b->verbs->loop) - STORE_UPLOAD_IDLE_US;

	list_each_safe (it, &b->uploads) {
		struct upload *u = list_entry(it, struct upload, link);

		if (!u->is_busy && u->seen_us <= before_us)
			upload_drop(b, u);
	}
}

static void on_idle(void *arg)
{
	struct blobs *b = arg;

	drop_idle(b);
	if (b->n_uploads)
		timer_start(&b->idle, STORE_UPLOAD_IDLE_US);
}

static struct upload *upload_new(struct blobs *b, const struct msg_blob_put_request *request)
{
	struct upload *u = mem_alloc(sizeof(*u));

	list_init(&u->link);
	u->id = request->upload;
	u->fd = -1;
	memcpy(u->name, request->blob.p, BLOB_NAME_LEN);
	u->hash = blob_hash_new();
	list_add_tail(&b->uploads, &u->link);
	b->n_uploads++;
	if (!timer_is_armed(&b->idle))
		timer_start(&b->idle, STORE_UPLOAD_IDLE_US);
	return u;
}

/* --- put -------------------------------------------------------------------------------------------------------- */

static void put_answer(struct work *w, enum store_status status, bool kept, bool created)
{
	const struct msg_blob_put_reply reply = {.kept = kept, .created = created};

	if (w->cb.put)
		w->cb.put(w->arg, status, &reply);
	work_free(w);
}

static void put_refused(struct work *w)
{
	put_answer(w, (enum store_status)w->size, false, false);
}

static void put_refuse(struct work *w, enum store_status status)
{
	w->size = (int64_t)status;
	w->done = put_refused;
	tell_later(w);
}

/* Without bytes: is it there? */
static void on_known(void *arg, enum store_status status)
{
	struct work *w = arg;

	if (status == STORE_UNKNOWN)
		put_answer(w, w->put->offset ? STORE_LOST : STORE_OK, false, false);
	else
		put_answer(w, status, status == STORE_OK, false);
}

static void on_looked_for(void *arg, enum store_status status, int64_t size unused)
{
	on_known(arg, status);
}

static void on_kept(void *arg, enum store_status status, bool created)
{
	struct work *w = arg;

	w->b->n_finishing--;
	put_answer(w, status, status == STORE_OK, created);
}

static int run_finish(struct work *w)
{
	char name[BLOB_NAME_LEN + 1];
	int r;

	blob_hash_end(w->upload->hash, name);
	r = strcmp(name, w->upload->name) ? HASH_WRONG : w->b->ops->finish(w->b->place, w->upload);
	w->b->ops->drop(w->b->place, w->upload);
	return r;
}

static void finished(struct work *w)
{
	struct blobs *b = w->b;
	struct upload *u = w->upload;
	enum store_status status = status_of(w, "keep");

	w->size = u->next;
	u->is_busy = false;
	upload_drop(b, u);
	if (status == STORE_OK) {
		verbs_blob_keep(&b->verbs->store, w->put->blob, w->size, w->put->user, on_kept, w);
		return;
	}
	b->n_finishing--;
	put_answer(w, status, false, false);
}

static void finish(struct work *w)
{
	w->b->n_finishing++;
	go(w, w->b->writes, run_finish, finished);
}

static int run_write(struct work *w)
{
	struct upload *u = w->upload;

	if (!w->b->ops->has_room(w->b->place, w->reserve_bytes))
		return -ENOSPC;
	blob_hash_add(u->hash, w->bytes);
	return w->b->ops->write(w->b->place, u, w->bytes);
}

static void written(struct work *w)
{
	struct blobs *b = w->b;
	struct upload *u = w->upload;
	enum store_status status = status_of(w, "write");

	if (status == STORE_OK) {
		u->next += (int64_t)w->bytes.n;
		u->last_n = w->bytes.n;
	}
	if (status == STORE_OK && w->put->last) {
		if (b->is_collecting)
			list_add_tail(&b->held, &w->link);
		else
			finish(w);
		return;
	}
	u->is_busy = false;
	if (status != STORE_OK && status != STORE_E_BUSY)
		upload_drop(b, u);
	put_answer(w, status, false, false);
}

/* Comes again: its answer was lost. */
static bool is_repeated(
	const struct upload *u, const struct msg_blob_put_request *r, struct str bytes)
{
	return r->offset == u->next - (int64_t)u->last_n && bytes.n == u->last_n && !r->last;
}

static enum store_status put_check(
	const struct upload *u, const struct msg_blob_put_request *request, struct str bytes)
{
	if (u->is_busy)
		return STORE_E_BUSY;
	if (memcmp(u->name, request->blob.p, BLOB_NAME_LEN) != 0 || request->offset != u->next)
		return STORE_LOST;
	return u->next + (int64_t)bytes.n > BLOB_SIZE_MAX ? STORE_MISMATCH : STORE_OK;
}

static void put_piece(struct blobs *b, struct work *w)
{
	struct upload *u = upload_find(b, &w->put->upload);
	enum store_status status;

	if (!u && w->put->offset) {
		/* The last piece again, or an upload that died with another process. */
		verbs_blob_look(&b->verbs->store, w->put->blob, w->put->user, on_looked_for, w);
		return;
	}
	if (!u && b->n_uploads >= STORE_UPLOADS_MAX)
		drop_idle(b);
	if (!u && b->n_uploads >= STORE_UPLOADS_MAX) {
		put_refuse(w, STORE_E_BUSY);
		return;
	}
	u = u ? u : upload_new(b, w->put);
	upload_touch(b, u);
	status = put_check(u, w->put, w->bytes);
	if (status != STORE_OK) {
		put_refuse(w, !u->is_busy && is_repeated(u, w->put, w->bytes) ? STORE_OK : status);
		return;
	}
	u->is_busy = true;
	w->upload = u;
	go(w, b->writes, run_write, written);
}

void blobs_put(struct blobs *b, const struct msg_blob_put_request *request, struct str bytes,
	store_blob_put_fn *cb, void *arg)
{
	struct work *w = work_new(b, arg);

	CHECK(blob_name_is_valid(request->blob));
	w->put = request;
	w->bytes = bytes;
	w->cb.put = cb;
	if (request->upload.hex[0])
		put_piece(b, w);
	else if (request->known)
		verbs_blob_known(&b->verbs->store, request->blob, request->user, on_known, w);
	else
		verbs_blob_look(&b->verbs->store, request->blob, request->user, on_looked_for, w);
}

/* --- get --------------------------------------------------------------------------------------------------------- */

static void get_answer(struct work *w, enum store_status status)
{
	const struct msg_blob_get_reply reply = {.size = w->size};

	if (w->cb.get)
		w->cb.get(w->arg, status, &reply, buf_str(&w->out));
	work_free(w);
}

static int run_read(struct work *w)
{
	char name[BLOB_NAME_LEN + 1] = "";
	int64_t n = w->size - w->get->offset;

	memcpy(name, w->get->blob.p, BLOB_NAME_LEN);
	if (n > w->get->limit)
		n = w->get->limit;
	return w->b->ops->read(w->b->place, name, w->get->offset, (size_t)n, &w->out);
}

static void read_done(struct work *w)
{
	get_answer(w, status_of(w, "read"));
}

static void on_looked(void *arg, enum store_status status, int64_t size)
{
	struct work *w = arg;

	w->size = size;
	if (status == STORE_OK && w->get->limit && w->get->offset < size)
		go(w, w->b->reads, run_read, read_done);
	else
		get_answer(w, status);
}

void blobs_get(struct blobs *b, const struct msg_blob_get_request *request, store_blob_get_fn *cb,
	void *arg)
{
	struct work *w = work_new(b, arg);

	CHECK(blob_name_is_valid(request->blob) && request->limit <= BLOB_PIECE_MAX);
	w->get = request;
	w->cb.get = cb;
	verbs_blob_look(&b->verbs->store, request->blob, request->user, on_looked, w);
}

/* --- collect ------------------------------------------------------------------------------------------------------- */

static void collect_answer(struct work *w, enum store_status status)
{
	if (w->cb.count)
		w->cb.count(w->arg, status, (int64_t)w->gone.count);
	work_free(w);
}

static void collect_refused(struct work *w)
{
	collect_answer(w, STORE_E_BUSY);
}

static void collect_over(struct work *w, enum store_status status)
{
	struct blobs *b = w->b;
	struct list *first;

	b->is_collecting = false;
	while ((first = list_first(&b->held))) {
		list_del(first);
		finish(list_entry(first, struct work, link));
	}
	collect_answer(w, status);
}

static int run_remove(struct work *w)
{
	for (size_t i = 0; i < w->gone.count; i++)
		w->b->ops->remove(w->b->place, w->gone.items[i].name);
	return 0;
}

static void removed(struct work *w)
{
	/* Without a place in line the bytes stay until the next start: their rows are gone. */
	collect_over(w, STORE_OK);
}

static void on_rows_gone(void *arg, enum store_status status, struct rows_blobs *gone)
{
	struct work *w = arg;

	w->gone = *gone;
	*gone = (struct rows_blobs){0};
	if (status == STORE_OK && w->gone.count)
		go(w, w->b->writes, run_remove, removed);
	else
		collect_over(w, status);
}

void blobs_collect(struct blobs *b, int64_t unused_us, store_count_fn *cb, void *arg)
{
	struct work *w = work_new(b, arg);

	w->cb.count = cb;
	if (b->is_collecting || b->n_finishing) {
		w->done = collect_refused;
		tell_later(w);
		return;
	}
	b->is_collecting = true;
	verbs_blob_collect(&b->verbs->store, unused_us, on_rows_gone, w);
}

/* --- life ------------------------------------------------------------------------------------------------------------ */

int blobs_new(struct verbs *verbs, const struct blobs_ops *ops, void *place, struct blobs **out)
{
	const struct pool_options writes = {
		.name = "blob-write", .workers = 1, .queue_max = WRITES_MAX};
	const struct pool_options reads = {
		.name = "blob-read", .workers = 1, .queue_max = READS_MAX};
	struct blobs *b = mem_alloc(sizeof(*b));
	int err = 0;

	b->verbs = verbs;
	b->ops = ops;
	b->place = place;
	list_init(&b->uploads);
	list_init(&b->held);
	list_init(&b->ran);
	list_init(&b->telling);
	defer_init(&b->tell, on_tell, b);
	timer_init(&b->idle, verbs->loop, on_idle, b);
	if (ops->waits)
		err = pool_new(verbs->loop, &writes, &b->writes);
	if (!err && ops->waits)
		err = pool_new(verbs->loop, &reads, &b->reads);
	if (err) {
		pool_free(b->writes);
		free(b);
		return err;
	}
	*out = b;
	return 0;
}

void blobs_close(struct blobs *b)
{
	/* Gone first: what their last answers bring runs inside the calls. */
	pool_free(take_ptr(&b->writes));
	pool_free(take_ptr(&b->reads));
	timer_stop(&b->idle);
}

bool blobs_settle(struct blobs *b)
{
	return tell_all(b);
}

void blobs_free(struct blobs *b)
{
	struct list *first;

	if (!b)
		return;
	CHECK(list_is_empty(&b->ran) && list_is_empty(&b->telling) && list_is_empty(&b->held));
	timer_stop(&b->idle);
	defer_cancel(&b->tell);
	while ((first = list_first(&b->uploads))) {
		struct upload *u = list_entry(first, struct upload, link);

		list_del(first);
		b->ops->drop(b->place, u);
		upload_free(u);
	}
	/* We may be inside an answer of ours. */
	loop_free_later(b->verbs->loop, free, b);
}
