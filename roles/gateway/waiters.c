/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waiters - theory of operation
 *
 * Clients that wait for a task to be done cost the judicators one held `get`, not one each; so do those that listen to every change of one,
 * whose gets are others. Actors:
 *
 *   entry    one id and the visits that wait for it
 *   watcher  up to WATCH_MAX entries and the get that is held for them; its random name is the get's `watcher`
 *   held     one get under way; a watcher has at most two
 *   look     one get that is not held, for visits whose wait is over
 *
 *     visit --joins--> entry --in--> watcher: the set has grown; at the end of the turn the get is sent anew, on a second
 *     connection. The judicator then answers the older one, empty, so soon there is one again; what joins meanwhile
 *     goes out together.
 *
 *     a get answers   the tasks in it are done: their visits are answered. If it was the newest, the rest is asked for anew.
 *     a get fails     the next judicator, after a pause that grows; the entries stay
 *     a get is not superseded within SUPERSEDE_US    its judicator is silent: the same as a failure
 *
 * A watcher of those that listen names what is known of each task, so a get answers any change. Its entries stay when they were told of one,
 * and the next get goes out LISTEN_PAUSE_US after the last at the soonest: changes that come faster become one, and a set is not sent
 * for each. Who joins with another state than the entry's makes it unknown, so everybody is told what is so now; streams know themselves
 * what they have told.
 *
 * A set that shrinks (clients that leave) is not sent anew: the judicator's answer about an id nobody waits for is dropped.
 * An answer of the newest get that brings nothing, long before its time, comes from a judicator that stops: the next one is asked.
 *
 * A visit whose wait is over leaves its entry for g->due; at the end of the turn all of those are looked up together.
 *
 * WATCH_MAX is below the 4096 items of a get because each growth sends the whole set again: it bounds that cost to some
 * twenty kilobytes, and twenty thousand waiting clients still hold no more than eighty connections (forty watchers, two each).
 */
#include "roles/gateway/gateway_int.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "reactor/base/mem.h"

#define WATCH_MAX 512
#define LOOK_MAX 512
#define LET_GO_MAX                                                                                 \
	2 /* early empty answers in a row, until a judicator is taken for one that stops */
#define LOOK_BUDGET_US (2 * US_PER_S) /* shorter than a stop */
#define SUPERSEDE_US (2 * US_PER_S)
#define LISTEN_PAUSE_US (50 * US_PER_MS)
#define HELD_MARGIN_US (5 * US_PER_S) /* on top of the hold, until a get counts as lost */
#define PAUSE_MIN_US (20 * US_PER_MS)
#define PAUSE_MAX_US (1 * US_PER_S)

struct watcher;

struct held {
	struct watcher *watcher;
	struct op *op; /* NULL = free */
	const char *address;
	int64_t sent_us;
};

struct watcher {
	struct gateway *g;
	struct list link;    /* g->waiters.watchers */
	struct list entries; /* struct wait_entry */
	bool listens;        /* to every change */
	unsigned n;
	char name[24];
	struct held held[2];
	struct held *newest; /* names every entry unless `grown`; NULL = none */
	bool grown;
	int64_t sent_us; /* the last one */
	unsigned let_go; /* early empty answers in a row */
	struct defer send;
	struct timer pause;     /* after a failure */
	struct timer supersede; /* two are under way */
	struct backoff backoff;
};

struct wait_entry {
	struct id id;
	struct map *map;         /* that it is in: of the waiters, or of a look */
	struct watcher *watcher; /* NULL in a look */
	struct list link;        /* watcher->entries */
	struct list visits;      /* struct visit */
	char known[65];          /* state, where it is listened to; "" = none */
};

struct look {
	struct gateway *g;
	struct list link; /* g->waiters.looks */
	struct map entries;
	struct msg_get_item *items;
	struct msg_get_request request;
	struct ask ask;
};

/* --- entries ----------------------------------------------------------------------------------------------------- */

static struct wait_entry *entry_new(struct map *map, const struct id *id)
{
	struct wait_entry *e = mem_alloc(sizeof(*e));

	e->id = *id;
	e->map = map;
	list_init(&e->link);
	list_init(&e->visits);
	map_set(map, id_str(id), e);
	return e;
}

static void entry_free(struct wait_entry *e)
{
	map_del(e->map, id_str(&e->id));
	if (e->watcher)
		e->watcher->n--;
	list_del(&e->link);
	free(e);
}

static void entry_add(struct wait_entry *e, struct visit *v)
{
	v->entry = e;
	list_add_tail(&e->visits, &v->wait_link);
}

/* Out of its entry or of g->due; an entry without visits is no more. */
static void visit_leave(struct visit *v)
{
	struct wait_entry *e = take_ptr(&v->entry);

	list_del(&v->wait_link);
	if (e && list_is_empty(&e->visits))
		entry_free(e);
}

/* --- answers for clients ------------------------------------------------------------------------------------------- */

static struct visit *entry_take(struct wait_entry *e, bool *last)
{
	struct visit *v = list_entry(e->visits.next, struct visit, wait_link);

	*last = v->wait_link.next == &e->visits;
	waiters_remove(v);
	return v;
}

static void entry_answer(struct wait_entry *e, struct str body)
{
	for (bool last = false; !last;)
		tasks_reply(entry_take(e, &last), body);
}

static void entry_answer_missing(struct wait_entry *e)
{
	for (bool last = false; !last;)
		tasks_reply_missing(entry_take(e, &last));
}

/* Everybody who listens is told; what is told last may end the entry. */
static void entry_tell(struct wait_entry *e, struct str state, bool done, struct str view)
{
	struct list *it = e->visits.next, *next;
	bool last = false;

	for (; !last; it = next) {
		next = it->next;
		last = next == &e->visits;
		events_tell(list_entry(it, struct visit, wait_link), state, done, view);
	}
}

static void entry_end(struct wait_entry *e)
{
	struct list *it = e->visits.next, *next;
	bool last = false;

	for (; !last; it = next) {
		next = it->next;
		last = next == &e->visits;
		events_end(list_entry(it, struct visit, wait_link));
	}
}

static void deliver_change(
	struct wait_entry *e, const struct msg_task_view *task, struct buf *scratch)
{
	bool done = view_is_done(task);

	CHECK(task->state.n < sizeof(e->known));
	memcpy(e->known, task->state.p, task->state.n);
	e->known[task->state.n] = '\0';
	buf_clear(scratch);
	if (done)
		view_text(task, scratch);
	else
		view_text_short(task, scratch);
	entry_tell(e, task->state, done, buf_str(scratch));
}

/* To those that listen. */
static void deliver_changes(struct gateway *g, const struct msg_get_reply *reply)
{
	struct buf scratch cleanup(buf_fini) = BUF_INIT;

	for (size_t i = 0; i < reply->tasks.count; i++) {
		const struct msg_task_view *task =
			codec_item(reply->tasks, struct msg_task_view, i);
		struct wait_entry *e = map_get(&g->waiters.listened, id_str(&task->id));

		if (e)
			deliver_change(e, task, &scratch);
	}
	for (size_t i = 0; i < reply->missing.count; i++) {
		struct wait_entry *e =
			map_get(&g->waiters.listened, *codec_item(reply->missing, struct str, i));

		if (e)
			entry_end(e);
	}
}

/* Returns how many tasks somebody waited for. */
static unsigned deliver(
	struct gateway *g, const struct map *entries, const struct msg_get_reply *reply)
{
	struct buf body cleanup(buf_fini) = BUF_INIT;
	unsigned n = 0;

	for (size_t i = 0; i < reply->tasks.count; i++) {
		const struct msg_task_view *task =
			codec_item(reply->tasks, struct msg_task_view, i);
		struct wait_entry *e = map_get(entries, id_str(&task->id));

		if (!e)
			continue;
		n++;
		metrics_verdict(g, task);
		buf_clear(&body);
		view_text(task, &body);
		done_cache_put(&g->done_cache, task, buf_str(&body));
		entry_answer(e, buf_str(&body));
	}
	for (size_t i = 0; i < reply->missing.count; i++) {
		struct wait_entry *e = map_get(entries, *codec_item(reply->missing, struct str, i));

		if (!e)
			continue;
		n++;
		entry_answer_missing(e);
	}
	return n;
}

/* --- watchers -------------------------------------------------------------------------------------------------------- */

static struct held *held_free(struct watcher *w)
{
	for (size_t i = 0; i < ARRAY_SIZE(w->held); i++) {
		if (!w->held[i].op)
			return &w->held[i];
	}
	return NULL;
}

static struct held *held_older(struct watcher *w)
{
	struct held *other = w->newest == &w->held[0] ? &w->held[1] : &w->held[0];

	return other->op ? other : NULL;
}

static void watcher_free(struct watcher *w)
{
	for (size_t i = 0; i < ARRAY_SIZE(w->held); i++)
		op_cancel(&w->held[i].op);
	timer_stop(&w->pause);
	timer_stop(&w->supersede);
	defer_cancel(&w->send);
	list_del(&w->link);
	free(w);
}

/* The set must be sent (again). */
static void watcher_touch(struct watcher *w)
{
	int64_t us = w->sent_us + LISTEN_PAUSE_US - loop_now_us(w->g->loop);

	w->grown = true;
	if (timer_is_armed(&w->pause))
		return;
	if (w->listens && us > 0)
		timer_start(&w->pause, us);
	else
		loop_defer(w->g->loop, &w->send);
}

/* Its get is over without an answer; what it was for is sent again, after a pause. */
static void watcher_again(struct watcher *w, struct held *held, const char *why)
{
	log_debug(
		w->g->log, "watch_failed", "judicator=%s ids=%u why=%s", held->address, w->n, why);
	if (held != w->newest)
		return;
	w->newest = NULL;
	w->grown = true;
	if (w->n && !timer_is_armed(&w->pause))
		timer_start(&w->pause, backoff_next(&w->backoff, w->g->loop));
}

static void watcher_failed(struct watcher *w, struct held *held, const char *why)
{
	peers_failed(&w->g->peers, held->address);
	watcher_again(w, held, why);
}

/* The newest has been answered. Nothing in it although its time was not over: the two came to the judicator in the other order, or
 * it holds nothing any more. */
static void newest_answered(struct watcher *w, struct held *held, bool empty)
{
	struct gateway *g = w->g;

	if (!empty || loop_now_us(g->loop) - held->sent_us >= g->wait_us / 2)
		w->let_go = 0;
	else if (!held_older(w) && ++w->let_go >= LET_GO_MAX) {
		watcher_failed(w, held, "let_go");
		return;
	}
	backoff_reset(&w->backoff);
	w->newest = NULL;
	if (w->n)
		watcher_touch(w);
}

static void on_answer(void *arg, struct rpc_answer *answer)
{
	struct held *held = arg;
	struct watcher *w = held->watcher;
	const struct msg_get_reply *reply = answer->reply;

	held->op = NULL;
	timer_stop(&w->supersede);
	metrics_call(w->g, RPC_get, answer->failure);
	if (answer->failure == RPC_REJECTED)
		log_error(w->g->log, "rejected", "judicator=%s method=get status=%d code=%s",
			held->address, answer->problem.status, answer->problem.code);
	if (answer->failure != RPC_OK) {
		watcher_failed(w, held, rpc_failure_name(answer->failure));
	} else {
		if (w->listens)
			deliver_changes(w->g, reply);
		else
			deliver(w->g, &w->g->waiters.entries, reply);
		if (held == w->newest)
			newest_answered(w, held, !reply->tasks.count && !reply->missing.count);
	}
	if (!w->n && !w->held[0].op && !w->held[1].op)
		watcher_free(w);
	else if (w->n && w->grown)
		watcher_touch(w);
}

static void on_supersede(void *arg)
{
	struct watcher *w = arg;
	struct held *older = held_older(w);

	if (!older || !w->newest)
		return;
	op_cancel(&older->op);
	op_cancel(&w->newest->op);
	watcher_failed(w, w->newest, "silent");
}

static struct msg_get_item *watcher_items(const struct watcher *w)
{
	struct msg_get_item *items = mem_array(w->n, sizeof(*items));
	size_t n = 0;

	list_each (it, &w->entries) {
		const struct wait_entry *e = list_entry(it, struct wait_entry, link);

		items[n++] = (struct msg_get_item){e->id, str_from(e->known)};
	}
	return items;
}

/* One that is held elsewhere will not be superseded: it goes. False: two are under way, wait for the older. */
static bool make_room(struct watcher *w)
{
	struct held *older = held_older(w);

	if (held_free(w))
		return true;
	if (older && older->address != peers_current(&w->g->peers)) {
		op_cancel(&older->op);
		timer_stop(&w->supersede);
		return true;
	}
	return false;
}

static void watcher_send(struct watcher *w)
{
	struct gateway *g = w->g;
	struct msg_get_item *items cleanup(mem_freep) = NULL;
	struct held *held, *older;
	struct msg_get_request request = {.watcher = str_from(w->name),
		.wait_ms = g->wait_us / US_PER_MS,
		.done_only = !w->listens};
	int r;

	if (!w->n || !w->grown || !make_room(w))
		return;
	held = held_free(w);
	items = watcher_items(w);
	request.items = (struct codec_list){items, w->n};
	held->address = peers_current(&g->peers);
	held->sent_us = w->sent_us = loop_now_us(g->loop);
	w->newest = held;
	r = rpc_call(g->loop, g->transport, held->address, RPC_get, &request,
		g->wait_us + HELD_MARGIN_US - rpc_methods[RPC_get].timeout_us, on_answer, held,
		&held->op);
	if (r == -EAGAIN) { /* our own line is full: that says nothing about the judicator */
		watcher_again(w, held, "line_full");
		return;
	}
	if (r) {
		watcher_failed(w, held, strerror(-r));
		return;
	}
	w->grown = false;
	older = held_older(w);
	if (older && older->address == held->address)
		timer_start(&w->supersede, SUPERSEDE_US);
}

static void on_send(void *arg)
{
	watcher_send(arg);
}

static struct watcher *watcher_new(struct gateway *g, bool listens)
{
	struct watcher *w = mem_alloc(sizeof(*w));

	w->g = g;
	w->listens = listens;
	w->sent_us = loop_now_us(g->loop) - LISTEN_PAUSE_US;
	w->held[0].watcher = w->held[1].watcher = w;
	w->backoff = (struct backoff){.min_us = PAUSE_MIN_US, .max_us = PAUSE_MAX_US};
	snprintf(w->name, sizeof(w->name), "%016" PRIx64, loop_random(g->loop));
	list_init(&w->link);
	list_init(&w->entries);
	timer_init(&w->pause, g->loop, on_send, w);
	timer_init(&w->supersede, g->loop, on_supersede, w);
	defer_init(&w->send, on_send, w);
	list_add_tail(&g->waiters.watchers, &w->link);
	return w;
}

static struct watcher *watcher_with_room(struct gateway *g, bool listens)
{
	list_each (it, &g->waiters.watchers) {
		struct watcher *w = list_entry(it, struct watcher, link);

		if (w->listens == listens && w->n < WATCH_MAX)
			return w;
	}
	return watcher_new(g, listens);
}

/* --- looks: the wait is over -------------------------------------------------------------------------------------------- */

static void look_free(struct look *l)
{
	ask_stop(&l->ask);
	map_fini(&l->entries);
	list_del(&l->link);
	free(l->items);
	free(l);
}

static void look_fail(struct look *l, const struct problem *problem)
{
	map_each (it, &l->entries) {
		struct wait_entry *e = map_entry_of(it)->value;

		for (bool last = false; !last;)
			tasks_reply_unknown(entry_take(e, &last), problem);
	}
}

static void look_start(struct look *l);

static void on_looked(void *arg, struct rpc_answer *answer)
{
	struct look *l = arg;

	if (answer->failure != RPC_OK) {
		look_fail(l, &answer->problem);
	} else if (!deliver(l->g, &l->entries, answer->reply)) {
		struct problem problem = {0};

		problem_set(&problem, 503, "unavailable", "",
			"The judicator's answer left the task out.");
		look_fail(l, &problem);
	}
	if (map_count(&l->entries))
		look_start(l); /* replies have a size: the rest in the next */
	else
		look_free(l);
}

static void look_start(struct look *l)
{
	size_t n = 0;

	map_each (it, &l->entries)
		l->items[n++] = (struct msg_get_item){
			.id = ((struct wait_entry *)map_entry_of(it)->value)->id};
	l->request = (struct msg_get_request){.items = {l->items, n}};
	ask_start(&l->ask, l->g, RPC_get, &l->request, LOOK_BUDGET_US, on_looked, l);
}

static void on_due(void *arg)
{
	struct gateway *g = arg;
	struct list *first;

	while (!list_is_empty(&g->waiters.due)) {
		struct look *l = mem_alloc(sizeof(*l));

		l->g = g;
		l->items = mem_array(LOOK_MAX, sizeof(*l->items));
		map_init(&l->entries);
		list_init(&l->link);
		list_add_tail(&g->waiters.looks, &l->link);
		while (map_count(&l->entries) < LOOK_MAX && (first = list_first(&g->waiters.due))) {
			struct visit *v = list_entry(first, struct visit, wait_link);
			struct wait_entry *e = map_get(&l->entries, id_str(&v->id));

			list_del(&v->wait_link);
			entry_add(e ? e : entry_new(&l->entries, &v->id), v);
		}
		look_start(l);
	}
}

static void visit_due(struct visit *v)
{
	timer_stop(&v->wait);
	visit_leave(v);
	list_add_tail(&v->g->waiters.due, &v->wait_link);
	loop_defer(v->g->loop, &v->g->waiters.look);
}

static void on_wait_over(void *arg)
{
	visit_due(arg);
}

/* --- visits ------------------------------------------------------------------------------------------------------------- */

bool waiters_are_full(const struct gateway *g)
{
	return g->waiters.count >= g->waiting_max;
}

/* A place for the visit among those of its id. */
static struct wait_entry *join(struct visit *v, struct map *map)
{
	struct wait_entry *e = map_get(map, id_str(&v->id));

	if (!e) {
		e = entry_new(map, &v->id);
		e->watcher = watcher_with_room(v->g, map == &v->g->waiters.listened);
		e->watcher->n++;
		list_add_tail(&e->watcher->entries, &e->link);
		watcher_touch(e->watcher);
	}
	entry_add(e, v);
	return e;
}

void waiters_listen(struct visit *v, struct str state)
{
	struct gateway *g = v->g;
	bool is_new = !map_get(&g->waiters.listened, id_str(&v->id));
	struct wait_entry *e = join(v, &g->waiters.listened);

	g->waiters.count++;
	v->waits = true;
	timer_init(&v->wait, g->loop, NULL, v);
	CHECK(state.n < sizeof(e->known));
	if (is_new) {
		memcpy(e->known, state.p, state.n);
	} else if (!str_is(state, e->known)) {
		e->known[0] = '\0';
		watcher_touch(e->watcher);
	}
}

void waiters_add(struct visit *v)
{
	struct gateway *g = v->g;

	g->waiters.count++;
	v->waits = true;
	timer_init(&v->wait, g->loop, on_wait_over, v);
	if (g->stopping) {
		visit_due(v);
		return;
	}
	timer_start_at(&v->wait, v->until_us);
	join(v, &g->waiters.entries);
}

void waiters_remove(struct visit *v)
{
	if (!v->waits)
		return;
	v->waits = false;
	v->g->waiters.count--;
	timer_stop(&v->wait);
	visit_leave(v);
}

void waiters_end_all(struct gateway *g)
{
	map_each (it, &g->waiters.entries) {
		struct wait_entry *e = map_entry_of(it)->value;

		for (bool last = false; !last;) {
			struct visit *v = list_entry(e->visits.next, struct visit, wait_link);

			last = v->wait_link.next == &e->visits;
			visit_due(v);
		}
	}
}

/* --- life ----------------------------------------------------------------------------------------------------------------- */

void waiters_init(struct gateway *g)
{
	struct waiters *ws = &g->waiters;

	map_init(&ws->entries);
	map_init(&ws->listened);
	list_init(&ws->watchers);
	list_init(&ws->looks);
	list_init(&ws->due);
	defer_init(&ws->look, on_due, g);
}

void waiters_fini(struct gateway *g)
{
	struct waiters *ws = &g->waiters;

	CHECK(!ws->count);
	defer_cancel(&ws->look);
	list_each_safe (it, &ws->watchers)
		watcher_free(list_entry(it, struct watcher, link));
	list_each_safe (it, &ws->looks)
		look_free(list_entry(it, struct look, link));
	map_fini(&ws->entries);
	map_fini(&ws->listened);
}
