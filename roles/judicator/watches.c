/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watches - theory of operation
 *
 * A get with wait_ms is held until one of its tasks differs from what the caller knows. Each such get is a watch with one
 * item an id; `watched` maps an id to the items that wait for it. An item is dirty when it must be read (again), reading while the
 * store is at it, else clean. A task that changes makes its items dirty, and at the end of the turn each watch that is not reading
 * reads its dirty items, only those. Items are entered before the first read, and one that changes while it is read is
 * dirty again after it, so no change is ever missed.
 *
 * A gateway holds one get for all ids its clients wait on, and sends it anew when the set grows: "a later get of the same watcher
 * makes the held one answer at once". What the older watch had read and found unchanged need not be read again: it
 * enters the newer one clean. So a growing set costs a look into a hash, not a read, for each id it had.
 */
#include "roles/judicator/judicator_int.h"

#include <stdlib.h>

#include "reactor/base/mem.h"
#include "rpc/task/status.h"

struct watch_item {
	struct list same; /* watched[id] */
	struct list todo; /* watch->dirty or watch->reading; unlinked = clean */
	struct watch *watch;
	const struct msg_get_item *item; /* in the watch's record */
	bool changed;                    /* while it was read */
};

struct watch_refs { /* value of j->watched */
	struct list items;
};

struct watch {
	struct judicator *j; /* NULL once the judicator is gone */
	struct list link;    /* j->watches */
	struct rpc_call *call;
	struct record *record;
	const struct msg_get_request *request;
	struct watch_item *items;
	struct list dirty, reading;  /* struct watch_item */
	bool busy;                   /* a read is under way */
	bool over;                   /* answered or gone; freed when the read is back */
	struct msg_get_request part; /* of the read under way; owns part.items.items */
	struct timer wait;
};

/* --- items --------------------------------------------------------------------------------------------- */

static struct watch_refs *watched_get(struct judicator *j, const struct id *id)
{
	return map_get(&j->watched, id_str(id));
}

static void item_touch(struct watch_item *it)
{
	struct judicator *j = it->watch->j;

	if (list_is_linked(&it->todo))
		it->changed = true; /* matters only in `reading` */
	else
		list_add_tail(&it->watch->dirty, &it->todo);
	loop_defer(j->loop, &j->wake_watches);
}

/* Another watch of the same watcher knows that this id has not changed. */
static bool item_is_known(
	const struct watch *w, const struct watch_refs *refs, const struct msg_get_item *item)
{
	if (!w->request->watcher.p)
		return false;
	for (struct list *l = refs->items.next; l != &refs->items; l = l->next) {
		const struct watch_item *other = list_entry(l, struct watch_item, same);

		if (other->watch != w && !list_is_linked(&other->todo) &&
			other->watch->request->done_only == w->request->done_only &&
			str_eq(other->watch->request->watcher, w->request->watcher) &&
			str_eq(other->item->known, item->known))
			return true;
	}
	return false;
}

static void item_enter(struct watch *w, struct watch_item *it, const struct msg_get_item *item)
{
	struct watch_refs *refs = watched_get(w->j, &item->id);

	if (!refs) {
		refs = mem_alloc(sizeof(*refs));
		list_init(&refs->items);
		map_set(&w->j->watched, id_str(&item->id), refs);
	}
	it->watch = w;
	it->item = item;
	list_init(&it->todo);
	list_init(&it->same);
	if (!item_is_known(w, refs, item))
		list_add_tail(&w->dirty, &it->todo);
	list_add_tail(&refs->items, &it->same);
}

static void item_leave(struct judicator *j, struct watch_item *it)
{
	struct watch_refs *refs = watched_get(j, &it->item->id);

	list_del(&it->todo);
	list_del(&it->same);
	if (refs && list_is_empty(&refs->items)) {
		map_del(&j->watched, id_str(&it->item->id));
		free(refs);
	}
}

/* --- life ------------------------------------------------------------------------------------------------ */

static void watch_free(struct watch *w)
{
	timer_stop(&w->wait);
	for (size_t i = 0; w->j && i < w->request->items.count; i++)
		item_leave(w->j, &w->items[i]);
	list_del(&w->link);
	record_free(w->record);
	free(w->items);
	free(w->part.items.items);
	free(w);
}

/* Answers (NULL = nothing new) and ends the watch, at once or when its read is back. */
static void watch_answer(struct watch *w, const struct msg_get_reply *reply)
{
	struct rpc_call *call = take_ptr(&w->call);
	struct msg_get_reply empty = {0};

	if (call)
		rpc_call_reply(call, reply ? reply : &empty);
	w->over = true;
	if (!w->busy)
		watch_free(w);
}

static void on_wait_over(void *arg)
{
	watch_answer(arg, NULL);
}

static void on_gone(void *arg)
{
	struct watch *w = arg;

	w->call = NULL;
	w->over = true;
	if (!w->busy)
		watch_free(w);
}

/* --- reading ---------------------------------------------------------------------------------------------- */

/* Leaves the done tasks only; returns how many. The reply is borrowed, so its list is copied into `kept`. */
static size_t keep_done(const struct msg_get_reply *reply, struct msg_task_view *kept)
{
	size_t n = 0;

	for (size_t i = 0; i < reply->tasks.count; i++) {
		const struct msg_task_view *view =
			codec_item(reply->tasks, struct msg_task_view, i);
		enum task_status status;

		if (task_status_parse(view->status, &status) && task_status_is_done(status))
			kept[n++] = *view;
	}
	return n;
}

static void watch_read(struct watch *w);

static void watch_judge(struct watch *w, const struct msg_get_reply *reply)
{
	struct msg_get_reply news = *reply;
	struct msg_task_view *kept = NULL;

	if (w->request->done_only) {
		kept = mem_array(reply->tasks.count + 1, sizeof(*kept));
		news.tasks = (struct codec_list){kept, keep_done(reply, kept)};
	}
	if (news.tasks.count || news.missing.count || w->request->wait_ms <= 0 || w->j->stopping)
		watch_answer(w, &news);
	else
		watch_read(w); /* what became dirty meanwhile */
	free(kept);
}

/* What was read is clean, unless it changed meanwhile. */
static void reading_back(struct watch *w)
{
	list_each_safe (it, &w->reading) {
		struct watch_item *item = list_entry(it, struct watch_item, todo);

		list_del(&item->todo);
		if (item->changed)
			list_add_tail(&w->dirty, &item->todo);
	}
}

static void on_read(void *arg, enum store_status status, const struct msg_get_reply *reply)
{
	struct watch *w = arg;
	struct judicator *j = w->j;

	w->busy = false;
	reading_back(w);
	if (!j || w->over) {
		watch_free(w);
	} else if (status != STORE_OK) {
		judicator_fail(take_ptr(&w->call), status);
		watch_free(w);
	} else {
		watch_judge(w, reply);
	}
	if (j)
		judicator_maybe_stopped(j);
}

/* Reads the dirty items, if any and if no read is under way. */
static void watch_read(struct watch *w)
{
	struct msg_get_item *items;
	size_t n = 0;

	if (w->busy || list_is_empty(&w->dirty))
		return;
	items = w->part.items.items;
	if (!items)
		items = mem_array(w->request->items.count, sizeof(*items));
	list_each_safe (it, &w->dirty) {
		struct watch_item *item = list_entry(it, struct watch_item, todo);

		list_del(&item->todo);
		list_add_tail(&w->reading, &item->todo);
		item->changed = false;
		items[n++] = *item->item;
	}
	w->part = *w->request;
	w->part.items = (struct codec_list){items, n};
	w->busy = true;
	w->j->store->ops->get(w->j->store, &w->part, on_read, w);
}

static void on_wake(void *arg)
{
	struct judicator *j = arg;

	list_each_safe (it, &j->watches) {
		struct watch *w = list_entry(it, struct watch, link);

		watch_read(w);
	}
}

/* --- the call ----------------------------------------------------------------------------------------------- */

static void watches_supersede(struct judicator *j, const struct watch *newer)
{
	if (!newer->request->watcher.p)
		return;
	list_each_safe (it, &j->watches) {
		struct watch *w = list_entry(it, struct watch, link);

		if (w != newer && !w->over && str_eq(w->request->watcher, newer->request->watcher))
			watch_answer(w, NULL);
	}
}

void watches_on_get(void *arg, struct rpc_call *call)
{
	struct judicator *j = arg;
	struct watch *w = mem_alloc(sizeof(*w));
	int64_t wait_us;

	w->j = j;
	w->call = call;
	w->record = rpc_call_take_request(call);
	w->request = record_data(w->record);
	w->items = mem_array(w->request->items.count, sizeof(*w->items));
	list_init(&w->dirty);
	list_init(&w->reading);
	list_init(&w->link);
	list_add_tail(&j->watches, &w->link);
	timer_init(&w->wait, j->loop, on_wait_over, w);
	rpc_call_on_gone(call, on_gone, w);
	for (size_t i = 0; i < w->request->items.count; i++)
		item_enter(w, &w->items[i], codec_item(w->request->items, struct msg_get_item, i));
	watches_supersede(j, w);
	wait_us = w->request->wait_ms * US_PER_MS;
	if (wait_us > 0)
		timer_start(&w->wait, wait_us < WAIT_MAX_US ? wait_us : WAIT_MAX_US);
	watch_read(w);
	if (wait_us <= 0 && !w->busy)
		watch_answer(w, NULL); /* all is known to be as it was */
}

/* --- wakes ---------------------------------------------------------------------------------------------------- */

void watches_task_changed(struct judicator *j, const struct id *id)
{
	struct watch_refs *refs = watched_get(j, id);

	if (!refs)
		return;
	list_each (it, &refs->items)
		item_touch(list_entry(it, struct watch_item, same));
}

/* What another judicator changed: a bounded number of ids is read again each tick, in turn. */
void watches_fallback(struct judicator *j)
{
	unsigned left = FALLBACK_MAX;

	list_each_safe (it, &j->watched.order) {
		struct map_entry *e = map_entry_of(it);
		struct watch_refs *refs = e->value;

		if (!left--)
			break;
		list_each (ref, &refs->items)
			item_touch(list_entry(ref, struct watch_item, same));
		list_del(&e->order); /* to the tail: its turn is over */
		list_add_tail(&j->watched.order, &e->order);
	}
}

void watches_answer_all(struct judicator *j)
{
	list_each_safe (it, &j->watches) {
		struct watch *w = list_entry(it, struct watch, link);

		if (!w->over)
			watch_answer(w, NULL);
	}
}

bool watches_are_asking(const struct judicator *j)
{
	return !list_is_empty(&j->watches);
}

void watches_init(struct judicator *j)
{
	list_init(&j->watches);
	map_init(&j->watched);
	defer_init(&j->wake_watches, on_wake, j);
}

void watches_fini(struct judicator *j)
{
	defer_cancel(&j->wake_watches);
	list_each_safe (it, &j->watches) {
		struct watch *w = list_entry(it, struct watch, link);

		if (!w->busy) {
			watch_free(w);
			continue;
		}
		for (size_t i = 0; i < w->request->items.count; i++)
			item_leave(j, &w->items[i]);
		timer_stop(&w->wait);
		list_del(&w->link);
		w->j = NULL;
	}
	map_fini(&j->watched);
}
