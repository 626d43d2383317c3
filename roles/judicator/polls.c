/* SPDX-License-Identifier: Apache-2.0 */
/*
 * polls - theory of operation
 *
 * A report is a long poll. It is asked of the store at once (FRESH); if the store has nothing to say, the report is held
 * until something happens, and then the store is asked again with the same report (AGAIN):
 *
 *     report --> FRESH --says something, stale, fenced--> answered
 *                  \--nothing--> HELD --wait over, a newer report of the same executor--> answered, empty
 *                                ^  \--wake--> AGAIN --says something, stale, fenced--> answered
 *                                \--nothing----/
 *
 * The store's verbs take effect in the order they are called, so "store operations of one (name, epoch) run one after another"
 * needs no lock here.
 *
 * What wakes: work queued in a language the poll offers (one waiter a task, in turn, so ten thousand idle executors cost
 * nothing), a task it lists changed (cancelled), its epoch was retired, and the fallback tick for what another judicator did. A claim
 * goes out only in its own report's reply. If the connection is gone when the claim comes back, no byte was written and
 * the claim is undone (trace L9); once answered, it never is.
 *
 * A caller that goes away while held is dropped, with no claim. A poll in FRESH or AGAIN outlives its judicator: the store's callback
 * finds p->j NULL and frees it.
 *
 * Lone tasks (lost with an executor before) need an empty executor. When the best task has been lone for LONE_PATIENCE_US, the
 * next executor that reports is drained: it is given nothing until it is empty, and then the lone task.
 */
#include "roles/judicator/judicator_int.h"

#include <stdlib.h>

#include "reactor/base/mem.h"

#define LONE_PATIENCE_US US_PER_S

enum poll_state { POLL_FRESH, POLL_AGAIN, POLL_HELD };

struct poll {
	struct judicator *j;   /* NULL once the judicator is gone */
	struct list link;      /* j->held in HELD, j->asking otherwise */
	struct rpc_call *call; /* NULL once the caller is gone */
	struct record *record;
	struct msg_report_request *request; /* inside record; vacant is lowered to drain */
	int64_t vacant;                     /* as reported */
	enum poll_state state;
	bool wanted;    /* woken while asking: ask again */
	bool over;      /* wait is over, or a newer report came, while asking */
	unsigned tries; /* waiters left to try for the work that woke this one */
	struct timer wait;
};

static bool poll_wake(struct poll *p);

void polls_init(struct judicator *j)
{
	list_init(&j->held);
	list_init(&j->asking);
	map_init(&j->listed);
	map_init(&j->waiting);
}

/* --- the index id -> poll, for cancels ---------------------------------------------------------------- */

_Static_assert(offsetof(struct msg_complete_item, id) == 0, "poll_index reads the id first");
_Static_assert(offsetof(struct msg_executing_item, id) == 0, "poll_index reads the id first");

static void poll_index(struct poll *p, struct codec_list items, size_t size, bool add)
{
	for (size_t i = 0; i < items.count; i++) {
		const struct id *id = (const void *)((const char *)items.items + i * size);

		if (add)
			map_set(&p->j->listed, id_str(id), p);
		else if (map_get(&p->j->listed, id_str(id)) == p)
			map_del(&p->j->listed, id_str(id));
	}
}

static void poll_index_all(struct poll *p, bool add)
{
	poll_index(p, p->request->complete, sizeof(struct msg_complete_item), add);
	poll_index(p, p->request->executing, sizeof(struct msg_executing_item), add);
}

/* --- life ------------------------------------------------------------------------------------------ */

static void poll_free(struct poll *p)
{
	timer_stop(&p->wait);
	if (p->j) {
		poll_index_all(p, false);
		if (map_get(&p->j->waiting, p->request->executor) == p)
			map_del(&p->j->waiting, p->request->executor);
	}
	list_del(&p->link);
	record_free(p->record);
	free(p);
}

/* NULL = nothing to say. */
static void poll_answer(struct poll *p, const struct msg_report_reply *reply)
{
	struct rpc_call *call = take_ptr(&p->call);
	struct msg_report_reply empty = {.seq = p->request->seq};

	if (call)
		rpc_call_reply(call, reply ? reply : &empty);
}

static void on_wait_over(void *arg)
{
	struct poll *p = arg;

	p->over = true;
	if (p->state != POLL_HELD)
		return; /* the store is at work on it: on_asked() finishes */
	poll_answer(p, NULL);
	poll_free(p);
}

static void on_gone(void *arg)
{
	struct poll *p = arg;

	p->call = NULL;
	if (p->state == POLL_HELD)
		poll_free(p);
}

/* Ten thousand idle executors may wait. Each keeps what the store is asked again with, and nothing of the JSON in which it came. */
static void poll_slim(struct poll *p)
{
	const struct msg_report_request *from = p->request;
	struct msg_report_request *to;
	struct record *record;
	struct str *languages;

	if (from->complete.count || from->executing.count)
		return; /* it works: there are no more of those than tasks */
	record = record_new(&msg_report_request_record);
	languages = record_alloc(record, from->languages.count * sizeof(*languages));
	for (size_t i = 0; i < from->languages.count; i++)
		languages[i] = record_copy(record, *codec_item(from->languages, struct str, i));
	to = record_data(record);
	to->executor = record_copy(record, from->executor);
	to->epoch = from->epoch;
	to->seq = from->seq;
	to->acked = from->acked;
	to->vacant = from->vacant;
	to->slots = from->slots;
	to->languages = (struct codec_list){languages, from->languages.count};
	to->wait_ms = from->wait_ms;
	record_free(p->record);
	p->record = record;
	p->request = to;
}

static void poll_hold(struct poll *p)
{
	if (p->state == POLL_FRESH) {
		/* While it is held its seq stands still: never for as long as looks like death. */
		int64_t max_us =
			p->j->expire_us / 3 < WAIT_MAX_US ? p->j->expire_us / 3 : WAIT_MAX_US;
		int64_t wait_us = p->request->wait_ms * US_PER_MS;

		poll_slim(p);
		poll_index_all(p, true);
		map_set(&p->j->waiting, p->request->executor, p);
		timer_start(&p->wait, wait_us < max_us ? wait_us : max_us);
	}
	p->state = POLL_HELD;
	list_del(&p->link);
	list_add_tail(&p->j->held, &p->link);
	if (p->wanted)
		poll_wake(p);
}

static bool poll_is_of(const struct poll *p, struct str executor)
{
	return str_eq(p->request->executor, executor);
}

/* A later report of the same executor is in: what it held before is answered, empty. (One that the store is being asked of
 * comes back stale.) */
static void polls_supersede(struct judicator *j, const struct poll *newer)
{
	struct poll *p = map_get(&j->waiting, newer->request->executor);

	if (p && p->state == POLL_HELD && p->request->epoch == newer->request->epoch &&
		p->request->seq < newer->request->seq)
		on_wait_over(p);
}

/* --- lone tasks -------------------------------------------------------------------------------------- */

static void lone_note(struct judicator *j, struct poll *p, const struct store_report *report)
{
	bool gave_lone = report->reply.assign.count == 1 &&
			 codec_item(report->reply.assign, struct msg_assign_item, 0)->lone;

	if (!report->lone_waiting || gave_lone) {
		bool busy = p->request->complete.count + p->request->executing.count > 0;

		/* While it is drained it asks for nothing: that says nothing of the queue. */
		if (gave_lone ||
			(!busy && j->draining && str_is(p->request->executor, j->draining))) {
			free(take_ptr(&j->draining));
			j->lone_since_us = 0;
		}
		return;
	}
	if (!j->lone_since_us)
		j->lone_since_us = loop_now_us(j->loop);
	if (!j->draining && loop_now_us(j->loop) - j->lone_since_us >= LONE_PATIENCE_US) {
		j->draining = str_dup(p->request->executor);
		log_info(j->log, "drain", "executor=%s why=\"a task must run alone\"", j->draining);
	}
}

static void lone_limit(struct poll *p)
{
	const struct msg_report_request *r = p->request;
	bool busy = r->complete.count + r->executing.count > 0;
	bool drained = p->j->draining && poll_is_of(p, str_from(p->j->draining));

	p->request->vacant = drained && busy ? 0 : p->vacant;
}

/* --- asking the store -------------------------------------------------------------------------------- */

static void poll_undo(struct poll *p, const struct msg_report_reply *reply)
{
	struct store *store = p->j->store;

	for (size_t i = 0; i < reply->assign.count; i++) {
		const struct msg_assign_item *a =
			codec_item(reply->assign, struct msg_assign_item, i);

		log_info(p->j->log, "undo", "id=%s attempt=%lld executor=" STR_FMT, a->id.hex,
			(long long)a->attempt, STR_ARG(p->request->executor));
		store->ops->undo(store, a->id, p->request->executor, p->request->epoch, a->attempt,
			NULL, NULL);
	}
}

static bool wake_one(struct judicator *j, struct str language, unsigned tries);

/* The waiter that was woken for queued work could not take it: another is tried. */
static void poll_pass_on(struct poll *p, const struct store_report *report)
{
	unsigned tries = p->tries;

	p->tries = 0;
	if (tries && !report->reply.assign.count)
		wake_one(p->j, STR_NULL, tries - 1);
	else if (p->wanted && (report->says_something || !p->call))
		wake_one(p->j, STR_NULL, WAKE_TRIES); /* it was wanted again, and is answered now */
}

static void on_asked(void *arg, const struct store_report *report)
{
	struct poll *p = arg;
	struct judicator *j = p->j;

	if (!j) {
		poll_free(p);
		return;
	}
	poll_pass_on(p, report);
	if (report->status == STORE_OK)
		lone_note(j, p, report);
	if (p->state == POLL_FRESH && report->status == STORE_OK)
		polls_supersede(j, p);

	if (!p->call) {
		poll_undo(p, &report->reply);
		poll_free(p);
	} else if (report->status == STORE_OK && !report->says_something && !p->over &&
		   !j->stopping && p->request->wait_ms > 0) {
		poll_hold(p);
	} else if (report->status == STORE_OK || report->status == STORE_STALE ||
		   report->status == STORE_FENCED) {
		poll_answer(p, &report->reply);
		poll_free(p);
	} else {
		judicator_fail(take_ptr(&p->call), report->status);
		poll_free(p);
	}
	judicator_maybe_stopped(j);
}

static void poll_ask(struct poll *p, enum report_mode mode)
{
	p->wanted = false;
	lone_limit(p);
	list_del(&p->link);
	list_add_tail(&p->j->asking, &p->link);
	p->j->store->ops->report(p->j->store, p->request, mode, on_asked, p);
}

/* True when the store is being asked because of this call. */
static bool poll_wake(struct poll *p)
{
	if (p->state != POLL_HELD) {
		p->wanted = true;
		return false;
	}
	p->state = POLL_AGAIN;
	poll_ask(p, REPORT_AGAIN);
	return true;
}

/* --- the report itself --------------------------------------------------------------------------------- */

static void known_update(struct judicator *j, struct rpc_call *call)
{
	const struct msg_report_request *r = rpc_call_request(call);
	struct known *k = map_get(&j->known, r->executor);

	if (!k) {
		k = mem_alloc(sizeof(*k));
		k->name = str_dup(r->executor);
		map_set(&j->known, r->executor, k);
	}
	k->seen_us = loop_wall_us(j->loop);
	k->vacant = r->vacant;
	k->running = (int64_t)r->executing.count;
	/* Only a new epoch's first reports are kept whole: what is for people does not change within one. */
	if (k->record && k->epoch == r->epoch)
		return;
	k->epoch = r->epoch;
	record_free(k->record);
	k->record = record_new(&msg_executor_view_record);
	k->view = record_data(k->record);
	k->view->isolation = record_copy(k->record, r->isolation);
	k->view->version = record_copy(k->record, r->version);
	if (r->toolchains.node) {
		struct buf text cleanup(buf_fini) = BUF_INIT;
		struct json_writer *w = json_writer_new(&text, false);

		json_node(w, r->toolchains.node);
		json_writer_free(w);
		k->view->toolchains.text = record_copy(k->record, buf_str(&text));
	}
	k->view->languages.count = r->languages.count;
	k->view->languages.items = record_alloc(k->record, r->languages.count * sizeof(struct str));
	for (size_t i = 0; i < r->languages.count; i++)
		*codec_item(k->view->languages, struct str, i) =
			record_copy(k->record, *codec_item(r->languages, struct str, i));
}

void polls_on_report(void *arg, struct rpc_call *call)
{
	struct judicator *j = arg;
	struct poll *p = mem_alloc(sizeof(*p));

	known_update(j, call);
	p->j = j;
	p->call = call;
	p->record = rpc_call_take_request(call);
	p->request = record_data(p->record);
	p->vacant = p->request->vacant;
	p->state = POLL_FRESH;
	list_init(&p->link);
	timer_init(&p->wait, j->loop, on_wait_over, p);
	rpc_call_on_gone(call, on_gone, p);
	poll_ask(p, REPORT_FRESH);
}

/* --- register ------------------------------------------------------------------------------------------ */

static void on_registered(
	void *arg, enum store_status status, const struct msg_register_reply *reply)
{
	struct ask *a = arg;
	const struct msg_register_request *r = record_data(a->record);

	if (a->j && status == STORE_OK && !reply->conflict) {
		log_info(a->j->log, "register", "executor=" STR_FMT " epoch=%lld",
			STR_ARG(r->executor), (long long)reply->epoch);
		polls_epoch_retired(a->j, r->executor);
	}
	if (a->call && status == STORE_OK)
		rpc_call_reply(take_ptr(&a->call), reply);
	ask_finish(a, status);
}

void polls_on_register(void *arg, struct rpc_call *call)
{
	struct ask *a = ask_new(arg, call);
	const struct msg_register_request *r = record_data(a->record);

	a->j->store->ops->enroll(a->j->store, r->executor, r->base, on_registered, a);
}

/* --- wakes --------------------------------------------------------------------------------------------- */

static bool poll_offers(const struct poll *p, struct str language)
{
	if (p->vacant <= 0)
		return false;
	if (!language.p)
		return true;
	for (size_t i = 0; i < p->request->languages.count; i++) {
		if (str_eq(*codec_item(p->request->languages, struct str, i), language))
			return true;
	}
	return false;
}

/* Wakes the longest unasked waiter that offers the language (absent = any). */
static bool wake_one(struct judicator *j, struct str language, unsigned tries)
{
	list_each_safe (it, &j->held) {
		struct poll *p = list_entry(it, struct poll, link);

		if (!poll_offers(p, language))
			continue;
		p->tries = tries;
		return poll_wake(p);
	}
	return false;
}

void polls_work_queued(struct judicator *j, struct str language)
{
	if (wake_one(j, language, WAKE_TRIES))
		return;
	/* Nobody is idle; one whose store verb is under way may have looked before the work was there. */
	list_each_safe (it, &j->asking) {
		struct poll *p = list_entry(it, struct poll, link);

		if (poll_offers(p, language) && !p->wanted) {
			p->wanted = true;
			return;
		}
	}
}

void polls_task_changed(struct judicator *j, const struct id *id)
{
	struct poll *p = map_get(&j->listed, id_str(id));

	if (p)
		poll_wake(p);
}

void polls_epoch_retired(struct judicator *j, struct str executor)
{
	struct poll *p = map_get(&j->waiting, executor);

	if (j->draining && str_is(executor, j->draining))
		free(take_ptr(&j->draining));
	if (p)
		poll_wake(p);
}

/* In turn, a bounded number: a poll that was woken goes to the tail of `held` when it comes back. */
void polls_fallback(struct judicator *j)
{
	for (unsigned i = 0; i < FALLBACK_MAX && !list_is_empty(&j->held); i++)
		poll_wake(list_entry(list_first(&j->held), struct poll, link));
}

void polls_answer_all(struct judicator *j)
{
	list_each_safe (it, &j->held)
		on_wait_over(list_entry(it, struct poll, link));
}

bool polls_are_asking(const struct judicator *j)
{
	return !list_is_empty(&j->asking);
}

static void poll_orphan(struct poll *p)
{
	struct rpc_call *call = take_ptr(&p->call);

	if (call)
		rpc_call_on_gone(call, NULL, NULL);
	timer_stop(&p->wait);
	list_del(&p->link);
	p->j = NULL;
}

void polls_fini(struct judicator *j)
{
	list_each_safe (it, &j->held)
		poll_free(list_entry(it, struct poll, link));
	list_each_safe (it, &j->asking)
		poll_orphan(list_entry(it, struct poll, link));
	map_fini(&j->listed);
	map_fini(&j->waiting);
	free(take_ptr(&j->draining));
}
