/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A verb is a row: what runs it and what answers it, next to the function of the vtable that makes its op.
 *
 * Life of an op: made by the caller on the loop, lent to the backend, run at least once by whoever has the rows (its arena is made
 * then, on that thread), answered and freed on the loop. The request is borrowed from the caller until the answer.
 */
#include "roles/judicator/store/verbs.h"

#include <stdlib.h>

#include "reactor/base/mem.h"
#include "reactor/loop.h"

static struct verb_op *op_new(struct store *store, const struct verb *verb, void *arg)
{
	struct verbs *verbs = (struct verbs *)store;
	struct verb_op *op = mem_alloc(sizeof(*op));

	list_init(&op->link);
	op->verb = verb;
	op->now_us = loop_wall_us(verbs->loop);
	op->arg = arg;
	return op;
}

static void submit(struct store *store, struct verb_op *op)
{
	struct verbs *verbs = (struct verbs *)store;

	verbs->submit(verbs, op);
}

static void name_set(struct verb_op *op, struct str executor)
{
	CHECK(executor.n <= STORE_EXECUTOR_MAX);
	if (executor.n)
		memcpy(op->executor, executor.p, executor.n);
}

int verb_run(
	struct verb_op *op, struct rows *rows, int64_t max_retries, struct rules_changes *changes)
{
	struct rules rules = {
		.rows = rows,
		.max_retries = max_retries,
		.now_us = op->now_us,
		.changes = changes,
	};
	int status;

	if (op->verb->reply)
		op->arena = rules.arena = record_new(op->verb->reply);
	status = op->verb->run(&rules, op);
	if (status < 0) {
		verb_reset(op, STORE_E_FAILED);
		return status;
	}
	op->status = status;
	return 0;
}

void verb_reset(struct verb_op *op, enum store_status status)
{
	record_free(take_ptr(&op->arena));
	memset(&op->out, 0, sizeof(op->out));
	rows_blobs_fini(&op->gone);
	op->status = (int)status;
}

void verb_answer(struct verb_op *op)
{
	op->verb->answer(op);
	record_free(op->arena);
	rows_blobs_fini(&op->gone);
	free(op);
}

static void answer_done(struct verb_op *op)
{
	if (op->cb.done)
		op->cb.done(op->arg, (enum store_status)op->status);
}

/* --- add --- */

static int run_add(struct rules *r, struct verb_op *op)
{
	return rules_add(r, op->request, &op->out.add);
}

static void answer_add(struct verb_op *op)
{
	op->cb.add(op->arg, (enum store_status)op->status, &op->out.add);
}

static const struct verb verb_add = {
	"add", VERB_WRITES, &msg_add_reply_record, run_add, answer_add};

void verbs_add(
	struct store *store, const struct msg_add_request *request, store_add_fn *cb, void *arg)
{
	struct verb_op *op = op_new(store, &verb_add, arg);

	op->request = request;
	op->cb.add = cb;
	submit(store, op);
}

/* --- cancel --- */

static int run_cancel(struct rules *r, struct verb_op *op)
{
	return rules_cancel(r, &op->id);
}

static const struct verb verb_cancel = {"cancel", VERB_WRITES, NULL, run_cancel, answer_done};

void verbs_cancel(struct store *store, struct id id, store_done_fn *cb, void *arg)
{
	struct verb_op *op = op_new(store, &verb_cancel, arg);

	op->id = id;
	op->cb.done = cb;
	submit(store, op);
}

/* --- enroll: the RPC `register`, which is a word of C --- */

static int run_enroll(struct rules *r, struct verb_op *op)
{
	return rules_register(r, str_from(op->executor), op->number, &op->out.enroll);
}

static void answer_enroll(struct verb_op *op)
{
	op->cb.enroll(op->arg, (enum store_status)op->status, &op->out.enroll);
}

static const struct verb verb_enroll = {"register", VERB_WRITES, NULL, run_enroll, answer_enroll};

void verbs_enroll(
	struct store *store, struct str executor, int64_t base, store_register_fn *cb, void *arg)
{
	struct verb_op *op = op_new(store, &verb_enroll, arg);

	name_set(op, executor);
	op->number = base;
	op->cb.enroll = cb;
	submit(store, op);
}

/* --- report --- */

static int run_report(struct rules *r, struct verb_op *op)
{
	return rules_report(r, op->request, op->mode, &op->out.report);
}

static void answer_report(struct verb_op *op)
{
	struct store_report report = op->out.report;

	report.status = (enum store_status)op->status;
	op->cb.report(op->arg, &report);
}

static const struct verb verb_report = {
	"report", VERB_WRITES, &msg_report_reply_record, run_report, answer_report};

void verbs_report(struct store *store, const struct msg_report_request *request,
	enum report_mode mode, store_report_fn *cb, void *arg)
{
	struct verb_op *op = op_new(store, &verb_report, arg);

	op->request = request;
	op->mode = mode;
	op->cb.report = cb;
	submit(store, op);
}

/* --- undo --- */

static int run_undo(struct rules *r, struct verb_op *op)
{
	return rules_undo(r, &op->id, str_from(op->executor), op->epoch, op->number);
}

static const struct verb verb_undo = {"undo", VERB_WRITES, NULL, run_undo, answer_done};

void verbs_undo(struct store *store, struct id id, struct str executor, int64_t epoch,
	int64_t attempt, store_done_fn *cb, void *arg)
{
	struct verb_op *op = op_new(store, &verb_undo, arg);

	op->id = id;
	name_set(op, executor);
	op->epoch = epoch;
	op->number = attempt;
	op->cb.done = cb;
	submit(store, op);
}

/* --- lose and drop --- */

static int run_lose(struct rules *r, struct verb_op *op)
{
	return rules_lose(r, str_from(op->executor), op->epoch, op->number);
}

static const struct verb verb_lose = {"lose", VERB_WRITES, NULL, run_lose, answer_done};

void verbs_lose(struct store *store, struct str executor, int64_t epoch, int64_t seq,
	store_done_fn *cb, void *arg)
{
	struct verb_op *op = op_new(store, &verb_lose, arg);

	name_set(op, executor);
	op->epoch = epoch;
	op->number = seq;
	op->cb.done = cb;
	submit(store, op);
}

static int run_drop(struct rules *r, struct verb_op *op)
{
	return rules_drop(r, str_from(op->executor));
}

static const struct verb verb_drop = {"drop", VERB_WRITES, NULL, run_drop, answer_done};

void verbs_drop(struct store *store, struct str executor, store_done_fn *cb, void *arg)
{
	struct verb_op *op = op_new(store, &verb_drop, arg);

	name_set(op, executor);
	op->cb.done = cb;
	submit(store, op);
}

/* --- reads --- */

static int run_executors(struct rules *r, struct verb_op *op)
{
	return reads_executors(r, op->hidden_too, &op->out.executors.list, &op->out.executors.n);
}

static void answer_executors(struct verb_op *op)
{
	op->cb.executors(op->arg, (enum store_status)op->status, op->out.executors.list,
		op->out.executors.n);
}

static const struct verb verb_executors = {
	"executors", VERB_OBSERVES, &msg_executors_reply_record, run_executors, answer_executors};

void verbs_executors(struct store *store, bool hidden_too, store_executors_fn *cb, void *arg)
{
	struct verb_op *op = op_new(store, &verb_executors, arg);

	op->hidden_too = hidden_too;
	op->cb.executors = cb;
	submit(store, op);
}

static int run_get(struct rules *r, struct verb_op *op)
{
	return reads_get(r, op->request, &op->out.get);
}

static void answer_get(struct verb_op *op)
{
	op->cb.get(op->arg, (enum store_status)op->status, &op->out.get);
}

static const struct verb verb_get = {"get", VERB_READS, &msg_get_reply_record, run_get, answer_get};

void verbs_get(
	struct store *store, const struct msg_get_request *request, store_get_fn *cb, void *arg)
{
	struct verb_op *op = op_new(store, &verb_get, arg);

	op->request = request;
	op->cb.get = cb;
	submit(store, op);
}

static int run_search(struct rules *r, struct verb_op *op)
{
	return reads_search(r, op->request, &op->out.search);
}

static void answer_search(struct verb_op *op)
{
	op->cb.search(op->arg, (enum store_status)op->status, &op->out.search);
}

static const struct verb verb_search = {
	"search", VERB_READS, &msg_search_reply_record, run_search, answer_search};

void verbs_search(struct store *store, const struct msg_search_request *request,
	store_search_fn *cb, void *arg)
{
	struct verb_op *op = op_new(store, &verb_search, arg);

	op->request = request;
	op->cb.search = cb;
	submit(store, op);
}

static int run_pending(struct rules *r, struct verb_op *op)
{
	op->out.pending = r->rows->hour.now.queued;
	return STORE_OK;
}

static void answer_pending(struct verb_op *op)
{
	op->cb.count(op->arg, (enum store_status)op->status, op->out.pending);
}

static const struct verb verb_pending = {
	"pending", VERB_OBSERVES, NULL, run_pending, answer_pending};

void verbs_pending(struct store *store, store_count_fn *cb, void *arg)
{
	struct verb_op *op = op_new(store, &verb_pending, arg);

	op->cb.count = cb;
	submit(store, op);
}

static int run_stats(struct rules *r, struct verb_op *op)
{
	return reads_stats(r, &op->out.stats);
}

static void answer_stats(struct verb_op *op)
{
	op->cb.stats(op->arg, (enum store_status)op->status, &op->out.stats);
}

static const struct verb verb_stats = {
	"stats", VERB_OBSERVES, &msg_stats_reply_record, run_stats, answer_stats};

void verbs_stats(struct store *store, store_stats_fn *cb, void *arg)
{
	struct verb_op *op = op_new(store, &verb_stats, arg);

	op->cb.stats = cb;
	submit(store, op);
}

/* --- rows of blobs --- */

static struct verb_op *blob_op(
	struct store *store, const struct verb *verb, struct str name, struct str user, void *arg)
{
	struct verb_op *op = op_new(store, verb, arg);

	op->name = name;
	op->user = user;
	return op;
}

static int run_blob_known(struct rules *r, struct verb_op *op)
{
	return rules_blob_known(r, op->name, op->user);
}

static const struct verb verb_blob_known = {
	"blob_known", VERB_WRITES, NULL, run_blob_known, answer_done};

void verbs_blob_known(
	struct store *store, struct str name, struct str user, store_done_fn *cb, void *arg)
{
	struct verb_op *op = blob_op(store, &verb_blob_known, name, user, arg);

	op->cb.done = cb;
	submit(store, op);
}

static int run_blob_keep(struct rules *r, struct verb_op *op)
{
	return rules_blob_keep(r, op->name, op->size, op->user, &op->out.created);
}

static void answer_blob_keep(struct verb_op *op)
{
	op->cb.blob_keep(op->arg, (enum store_status)op->status, op->out.created);
}

static const struct verb verb_blob_keep = {
	"blob_keep", VERB_WRITES, NULL, run_blob_keep, answer_blob_keep};

void verbs_blob_keep(struct store *store, struct str name, int64_t size, struct str user,
	verbs_blob_keep_fn *cb, void *arg)
{
	struct verb_op *op = blob_op(store, &verb_blob_keep, name, user, arg);

	op->size = size;
	op->cb.blob_keep = cb;
	submit(store, op);
}

static int run_blob_look(struct rules *r, struct verb_op *op)
{
	return rules_blob_look(r, op->name, op->user, &op->out.size);
}

static void answer_blob_look(struct verb_op *op)
{
	op->cb.blob_look(op->arg, (enum store_status)op->status, op->out.size);
}

static const struct verb verb_blob_look = {
	"blob_look", VERB_READS, NULL, run_blob_look, answer_blob_look};

void verbs_blob_look(
	struct store *store, struct str name, struct str user, verbs_blob_look_fn *cb, void *arg)
{
	struct verb_op *op = blob_op(store, &verb_blob_look, name, user, arg);

	op->cb.blob_look = cb;
	submit(store, op);
}

static int run_blob_collect(struct rules *r, struct verb_op *op)
{
	return rules_blob_collect(r, op->number, &op->gone);
}

static void answer_blob_collect(struct verb_op *op)
{
	op->cb.blob_collect(op->arg, (enum store_status)op->status, &op->gone);
}

static const struct verb verb_blob_collect = {
	"blob_collect", VERB_WRITES, NULL, run_blob_collect, answer_blob_collect};

void verbs_blob_collect(
	struct store *store, int64_t unused_us, verbs_blob_collect_fn *cb, void *arg)
{
	struct verb_op *op = op_new(store, &verb_blob_collect, arg);

	op->number = unused_us;
	op->cb.blob_collect = cb;
	submit(store, op);
}
