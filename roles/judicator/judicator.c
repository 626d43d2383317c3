/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judicator - theory of operation
 *
 * One store, one RPC server, one table of handlers. A short call is one store verb: its `ask` keeps the request alive until the
 * store answers, and knows whether the caller (call) and the judicator (j) are still there. Held reports are polls.c's, held
 * gets watches.c's, a leader's duties duties.c's.
 *
 *     rpc_server --call--> handler --ask--> store --callback--> reply
 *     store --on_changed(ids, languages)--> polls (work, cancels), watches (readers)
 *
 * Stopping: no call is held any more, waiters are answered empty, and when the store has answered the last ask the server is
 * closed. Dying (judicator_free) drops everything; what the store still works on finds j NULL.
 */
#include "roles/judicator/judicator_int.h"

#include <stdlib.h>

#include "reactor/base/mem.h"

#define BLOB_AGE_US (24 * 3600 * US_PER_S)

/* --- asks ------------------------------------------------------------------------------------------------ */

static void ask_on_gone(void *arg)
{
	((struct ask *)arg)->call = NULL;
}

struct ask *ask_new(struct judicator *j, struct rpc_call *call)
{
	struct ask *a = mem_alloc(sizeof(*a));

	a->j = j;
	a->call = call;
	if (call) {
		a->record = rpc_call_take_request(call);
		rpc_call_on_gone(call, ask_on_gone, a);
	}
	list_init(&a->link);
	list_add_tail(&j->asks, &a->link);
	return a;
}

/* What a caller is told when the store did not do it: a row a status. */
static const struct {
	int http;
	const char *code, *detail;
} store_problem[] = {
	[STORE_UNKNOWN] = {404, "task_unknown", "There is no such task."},
	[STORE_CONFLICT] = {409, "task_conflict", "A task with this id and other content exists."},
	[STORE_DONE] = {409, "task_done", "The task is done already."},
	[STORE_STALE] = {409, "stale", "A newer request was seen."},
	[STORE_FENCED] = {409, "fenced", "Another process of this name has registered."},
	[STORE_LOST] = {409, "blob_upload_lost",
		"This is not the next piece of an upload known here: begin again."},
	[STORE_MISMATCH] = {422, "blob_mismatch",
		"The bytes do not have the SHA-256 that they were sent under."},
	[STORE_E_BUSY] = {503, "busy", "Too much work is waiting. Try again in a moment."},
	[STORE_E_FULL] = {503, "disk_full",
		"The disk with the data directory is nearly full: new tasks are refused so that "
		"results of accepted ones still "
		"fit. Free some space or lower judicator.reserve."},
	[STORE_E_FAILED] = {503, "store_failed",
		"The store failed; the judicator's log says why. Nothing was changed."},
};

void judicator_fail(struct rpc_call *call, enum store_status status)
{
	rpc_call_fail(call, store_problem[status].http, store_problem[status].code, "%s",
		store_problem[status].detail);
}

void ask_finish(struct ask *a, enum store_status status)
{
	struct judicator *j = a->j;

	if (a->call) {
		CHECK(status != STORE_OK);
		judicator_fail(a->call, status);
	}
	list_del(&a->link);
	record_free(a->record);
	free(a->text);
	buf_fini(&a->bytes);
	free(a);
	if (j)
		judicator_maybe_stopped(j);
}

/* --- short calls ------------------------------------------------------------------------------------------- */

static void on_added(void *arg, enum store_status status, const struct msg_add_reply *reply)
{
	struct ask *a = arg;

	if (a->j && status == STORE_OK && reply->created) {
		a->j->added++;
		log_info(a->j->log, "task", "id=%s to=pending", reply->id.hex);
	}
	if (a->call && status == STORE_OK)
		rpc_call_reply(take_ptr(&a->call), reply);
	ask_finish(a, status);
}

static void on_add(void *arg, struct rpc_call *call)
{
	struct judicator *j = arg;
	struct ask *a = ask_new(j, call);

	j->store->ops->add(j->store, record_data(a->record), on_added, a);
}

static void on_cancelled(void *arg, enum store_status status)
{
	struct ask *a = arg;
	const struct msg_cancel_request *r = record_data(a->record);
	struct msg_cancel_reply reply = {.id = r->id, .status = STR("cancelled")};

	if (a->call && status == STORE_OK)
		rpc_call_reply(take_ptr(&a->call), &reply);
	ask_finish(a, status);
}

static void on_cancel(void *arg, struct rpc_call *call)
{
	struct judicator *j = arg;
	struct ask *a = ask_new(j, call);
	const struct msg_cancel_request *r = record_data(a->record);

	j->store->ops->cancel(j->store, r->id, on_cancelled, a);
}

static void on_searched(void *arg, enum store_status status, const struct msg_search_reply *reply)
{
	struct ask *a = arg;

	if (a->call && status == STORE_OK)
		rpc_call_reply(take_ptr(&a->call), reply);
	else if (a->call && status == STORE_UNKNOWN)
		rpc_call_fail(take_ptr(&a->call), 400, "bad_after",
			"`after` is no `next` of a page before.");
	ask_finish(a, status);
}

static void on_search(void *arg, struct rpc_call *call)
{
	struct judicator *j = arg;
	struct ask *a = ask_new(j, call);

	j->store->ops->search(j->store, record_data(a->record), on_searched, a);
}

static void on_counted(void *arg, enum store_status status, int64_t pending)
{
	struct ask *a = arg;

	if (a->j && a->call && status == STORE_OK) {
		struct msg_ping_reply reply = {.name = str_from(a->j->name),
			.version = STR(CONCLAVE_VERSION),
			.pending = pending};

		rpc_call_reply(take_ptr(&a->call), &reply);
	}
	ask_finish(a, status == STORE_OK ? STORE_E_FAILED : status);
}

static void on_summed(void *arg, enum store_status status, const struct msg_stats_reply *reply)
{
	struct ask *a = arg;

	if (a->call && status == STORE_OK)
		rpc_call_reply(take_ptr(&a->call), reply);
	ask_finish(a, status);
}

static void on_stats(void *arg, struct rpc_call *call)
{
	struct judicator *j = arg;

	j->store->ops->stats(j->store, on_summed, ask_new(j, call));
}

static void on_ping(void *arg, struct rpc_call *call)
{
	struct judicator *j = arg;

	j->store->ops->pending(j->store, on_counted, ask_new(j, call));
}

static void on_judicators(void *arg, struct rpc_call *call)
{
	struct judicator *j = arg;
	struct msg_judicator_view me = {
		.name = str_from(j->name),
		.address = str_from(j->address),
		.leading = j->leading,
		.store = str_from(j->store->ops->name),
		.version = STR(CONCLAVE_VERSION),
	};
	struct msg_judicators_reply reply = {.judicators = {&me, 1}};

	rpc_call_reply(call, &reply);
}

/* --- executors: what the store knows, and what they told us ---------------------------------------------------- */

static struct msg_executor_view executor_view(
	const struct judicator *j, const struct store_executor *e)
{
	struct known *k = map_get(&j->known, str_from(e->name));
	struct msg_executor_view view = {0};

	if (k) {
		view = *k->view;
		view.seen_us = k->seen_us;
		view.vacant = k->vacant;
	}
	view.name = str_from(e->name);
	view.epoch = e->epoch;
	view.seq = e->last_seq;
	view.dead = e->dead;
	view.running = e->owned;
	view.slots = e->slots;
	return view;
}

static void on_listed(
	void *arg, enum store_status status, const struct store_executor *list, unsigned n)
{
	struct ask *a = arg;

	if (a->j && a->call && status == STORE_OK) {
		const struct msg_executors_request *r = record_data(a->record);
		struct msg_executor_view *views = mem_array(n + 1, sizeof(*views));
		struct msg_executors_reply reply = {.executors = {views, 0}};

		for (unsigned i = 0; i < n; i++) {
			if (r->dead || !list[i].dead)
				views[reply.executors.count++] = executor_view(a->j, &list[i]);
		}
		rpc_call_reply(take_ptr(&a->call), &reply);
		free(views);
	}
	ask_finish(a, status == STORE_OK ? STORE_E_FAILED : status);
}

static void on_executors(void *arg, struct rpc_call *call)
{
	struct judicator *j = arg;

	j->store->ops->executors(j->store, false, on_listed, ask_new(j, call));
}

static rpc_handler_fn *const handlers[RPC_METHOD_N] = {
	[RPC_add] = on_add,
	[RPC_blob_get] = pieces_on_get,
	[RPC_blob_put] = pieces_on_put,
	[RPC_cancel] = on_cancel,
	[RPC_executors] = on_executors,
	[RPC_get] = watches_on_get,
	[RPC_judicators] = on_judicators,
	[RPC_ping] = on_ping,
	[RPC_register] = polls_on_register,
	[RPC_report] = polls_on_report,
	[RPC_search] = on_search,
	[RPC_stats] = on_stats,
};

/* --- changes in the store ------------------------------------------------------------------------------------------ */

void judicator_on_changed(void *arg, const struct id *ids, unsigned n_ids,
	const struct str *languages, unsigned n_languages)
{
	struct judicator *j = arg;

	if (!j)
		return;
	for (unsigned i = 0; i < n_ids; i++) {
		polls_task_changed(j, &ids[i]);
		watches_task_changed(j, &ids[i]);
	}
	for (unsigned i = 0; i < n_languages; i++)
		polls_work_queued(j, languages[i]);
}

static void on_fallback(void *arg)
{
	struct judicator *j = arg;

	timer_start(&j->fallback, FALLBACK_US);
	polls_fallback(j);
	watches_fallback(j);
}

/* --- life ---------------------------------------------------------------------------------------------------------- */

int judicator_new(
	struct loop *loop, const struct judicator_options *options, struct judicator **out)
{
	struct judicator *j = mem_alloc(sizeof(*j));
	int r;

	j->loop = loop;
	j->log = options->log;
	j->name = mem_strdup(options->name);
	j->address = mem_strdup(options->address);
	j->store = options->store;
	j->expire_us = options->expire_us;
	j->drop_us = options->drop_us ? options->drop_us : 600 * US_PER_S;
	j->blob_age_us = options->blob_age_us ? options->blob_age_us : BLOB_AGE_US;
	list_init(&j->asks);
	list_init(&j->scrapes);
	map_init(&j->known);
	polls_init(j);
	watches_init(j);
	duties_init(j);
	timer_init(&j->fallback, loop, on_fallback, j);
	defer_init(&j->stopped, NULL, NULL);

	r = rpc_server_new(loop, j->log, options->transport, j->address, handlers, j, &j->server);
	if (r) {
		log_error(
			j->log, "listen_failed", "address=%s why=\"%s\"", j->address, strerror(-r));
		judicator_free(j);
		return r;
	}
	r = metrics_open(j, options->metrics_address);
	if (r) {
		judicator_free(j);
		return r;
	}
	timer_start(&j->fallback, FALLBACK_US);
	duties_set(j, options->leading);
	log_info(j->log, "serving", "name=%s address=%s leading=%s", j->name, j->address,
		j->leading ? "yes" : "no");
	*out = j;
	return 0;
}

static void on_all_answered(void *arg)
{
	struct judicator *j = arg;
	void (*fn)(void *) = j->on_stopped;

	if (fn) {
		j->on_stopped = NULL;
		rpc_server_free(take_ptr(&j->server));
		fn(j->on_stopped_arg);
	}
}

void judicator_maybe_stopped(struct judicator *j)
{
	if (!j->stopping || !list_is_empty(&j->asks) || polls_are_asking(j) ||
		watches_are_asking(j))
		return;
	loop_defer(j->loop, &j->stopped);
}

void judicator_stop(struct judicator *j, void (*on_stopped)(void *arg), void *arg)
{
	j->stopping = true;
	rpc_server_refuse(j->server);
	j->on_stopped = on_stopped;
	j->on_stopped_arg = arg;
	defer_init(&j->stopped, on_all_answered, j);
	timer_stop(&j->fallback);
	timer_stop(&j->duties.timer);
	polls_answer_all(j);
	watches_answer_all(j);
	judicator_maybe_stopped(j);
}

static void known_free(struct known *k)
{
	if (!k)
		return;
	record_free(k->record);
	free(k->name);
	free(k);
}

void judicator_forget(struct judicator *j, struct str executor)
{
	known_free(map_del(&j->known, executor));
}

void judicator_free(struct judicator *j)
{
	if (!j)
		return;
	defer_cancel(&j->stopped);
	timer_stop(&j->fallback);
	metrics_close(j);
	rpc_server_free(
		take_ptr(&j->server)); /* every gone callback fires: no call is left after it */
	polls_fini(j);
	watches_fini(j);
	duties_fini(j);
	list_each_safe (it, &j->asks) {
		struct ask *a = list_entry(it, struct ask, link);

		list_del(&a->link);
		a->j = NULL;
	}
	map_each (it, &j->known)
		known_free(map_entry_of(it)->value);
	map_fini(&j->known);
	free(j->name);
	free(j->address);
	free(j);
}

unsigned judicator_port(const struct judicator *j)
{
	return rpc_server_port(j->server);
}

void judicator_set_leading(struct judicator *j, bool leading)
{
	if (j->leading != leading)
		duties_set(j, leading);
}
