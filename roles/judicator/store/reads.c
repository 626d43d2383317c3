/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What readers are shown: tasks by id and by condition, and the executors; the last hour. Written once over rows, like the rules, and never writing.
 *
 * The state of a task, as readers compare it, is "STATUS.ATTEMPT.CASE": every change that a reader could see moves one of the three
 * (a result, a verdict and a message come with a done status, which is final).
 *
 * Nothing here is unbounded: a page has a limit and a search a number of steps; a reply stops growing at STORE_REPLY_BYTES.
 */
#include <stdio.h>
#include <stdlib.h>

#include "reactor/base/mem.h"
#include "roles/judicator/store/rules.h"

#define STATE_MAX 64

static struct str state_text(const struct rows_task *t, char out[STATE_MAX])
{
	int n = snprintf(out, STATE_MAX, "%s.%lld.%lld", task_status_name(t->status),
		(long long)t->attempt, (long long)t->case_no);

	return (struct str){out, (size_t)n};
}

static struct str copy(struct rules *r, const char *text)
{
	return text[0] ? record_copy(r->arena, str_from(text)) : STR_NULL;
}

static struct codec_list labels_split(struct rules *r, struct str joined)
{
	struct codec_list list = {NULL, 0};
	struct str rest = joined, label;

	while (rows_labels_next(&rest, &label))
		list.count++;
	if (!list.count)
		return list;
	list.items = record_alloc(r->arena, list.count * sizeof(struct str));
	rest = joined;
	for (size_t i = 0; rows_labels_next(&rest, &label); i++)
		*codec_item(list, struct str, i) = record_copy(r->arena, label);
	return list;
}

static int view_fill(struct rules *r, const struct rows_task *t, struct msg_task_view *v)
{
	char state[STATE_MAX];
	struct str labels;
	int err = r->rows->ops->text_get(r->rows, t, ROWS_LABELS, r->arena, &labels);

	if (err < 0)
		return err;
	*v = (struct msg_task_view){
		.id = t->id,
		.user = copy(r, t->user),
		.language = copy(r, t->language),
		.priority = t->priority,
		.labels = labels_split(r, labels),
		.status = str_from(task_status_name(t->status)),
		.verdict = str_from(verdict_name(t->verdict)),
		.executor = copy(r, t->executor),
		.epoch = t->epoch,
		.assign_seq = t->assign_seq,
		.attempt = t->attempt,
		.retries = t->retries,
		.case_no = t->case_no,
		.add_time_us = t->add_us,
		.start_time_us = t->start_us,
		.done_time_us = t->done_us,
		.state = record_copy(r->arena, state_text(t, state)),
		.message = copy(r, t->message),
	};
	return 0;
}

/* --- get --- */

static bool is_wanted(const struct msg_get_request *request, const struct msg_get_item *item,
	const struct rows_task *t)
{
	char state[STATE_MAX];

	if (request->done_only && t->place != ROWS_DONE)
		return false;
	return !str_eq(item->known, state_text(t, state));
}

static int texts_fill(struct rules *r, const struct msg_get_request *request,
	const struct rows_task *t, struct msg_task_view *v)
{
	int err = 0;

	if (t->place == ROWS_DONE)
		err = r->rows->ops->text_get(r->rows, t, ROWS_RESULT, r->arena, &v->result.text);
	if (err >= 0 && request->doc)
		err = r->rows->ops->text_get(r->rows, t, ROWS_DOC, r->arena, &v->doc.text);
	return err;
}

int reads_get(struct rules *r, const struct msg_get_request *request, struct msg_get_reply *reply)
{
	size_t n = request->items.count;
	struct msg_task_view *views = record_alloc(r->arena, n * sizeof(*views));
	struct str *missing = record_alloc(r->arena, n * sizeof(*missing));
	int64_t bytes = 0;

	*reply = (struct msg_get_reply){.tasks.items = views, .missing.items = missing};
	for (size_t i = 0; i < n && bytes < STORE_REPLY_BYTES; i++) {
		const struct msg_get_item *item =
			codec_item(request->items, struct msg_get_item, i);
		struct rows_task t;
		int err = r->rows->ops->task_get(r->rows, &item->id, &t);

		if (err == ROWS_NONE)
			missing[reply->missing.count++] = record_copy(r->arena, id_str(&item->id));
		if (err == 0 && is_wanted(request, item, &t)) {
			struct msg_task_view *v = &views[reply->tasks.count++];

			err = view_fill(r, &t, v);
			if (err >= 0)
				err = texts_fill(r, request, &t, v);
			bytes += (int64_t)(v->result.text.n + v->doc.text.n);
		}
		if (err < 0)
			return err;
	}
	return STORE_OK;
}

/* --- search --- */

struct search {
	struct rules *r;
	const struct msg_search_request *request;
	struct msg_search_reply *reply;
	int64_t steps;
	int64_t last_us; /* the last task looked at */
	bool has_more;
	int err;
};

static bool is_any(struct str condition)
{
	return !condition.n;
}

static bool is_match(const struct msg_search_request *q, const struct rows_task *t)
{
	return (is_any(q->user) || str_is(q->user, t->user)) &&
	       (is_any(q->status) || str_is(q->status, task_status_name(t->status))) &&
	       (is_any(q->language) || str_is(q->language, t->language));
}

static bool on_search_step(void *arg, const struct rows_task *t)
{
	struct search *s = arg;
	struct msg_task_view *views = s->reply->tasks.items;

	if (s->steps == STORE_SEARCH_STEPS) {
		s->has_more = true;
		return false;
	}
	if (is_match(s->request, t)) {
		if (s->reply->tasks.count == (size_t)s->request->limit) {
			s->has_more = true;
			return false;
		}
		s->err = view_fill(s->r, t, &views[s->reply->tasks.count++]);
	}
	s->steps++;
	s->last_us = t->add_us;
	return s->err >= 0;
}

static bool walk_start(const struct msg_search_request *q, struct rows_walk *walk)
{
	*walk = (struct rows_walk){
		.after_us = q->ascending ? 0 : INT64_MAX,
		.ascending = q->ascending,
		.label = is_any(q->label) ? STR_NULL : q->label,
		.user = is_any(q->user) ? STR_NULL : q->user,
		.status = is_any(q->status) ? STR_NULL : q->status,
	};
	return is_any(q->after) || (str_to_i64(q->after, &walk->after_us) && walk->after_us > 0);
}

int reads_search(
	struct rules *r, const struct msg_search_request *request, struct msg_search_reply *reply)
{
	struct search s = {.r = r, .request = request, .reply = reply};
	struct rows_walk walk;
	char next[24];
	int err;

	*reply = (struct msg_search_reply){0};
	if (!walk_start(request, &walk))
		return STORE_UNKNOWN;
	reply->tasks.items =
		record_alloc(r->arena, (size_t)request->limit * sizeof(struct msg_task_view));
	err = r->rows->ops->walk(r->rows, &walk, on_search_step, &s);
	if (err < 0 || s.err < 0)
		return err < 0 ? err : s.err;
	if (s.has_more) {
		int n = snprintf(next, sizeof(next), "%lld", (long long)s.last_us);

		reply->next = record_copy(r->arena, (struct str){next, (size_t)n});
	}
	return STORE_OK;
}

/* --- executors --- */

struct listing {
	struct store_executor *items;
	size_t count, cap;
};

static void on_executor(void *arg, const struct rows_executor *row, int64_t owned)
{
	struct listing *l = arg;
	struct store_executor *e;

	if (l->count == l->cap) {
		l->cap = l->cap ? l->cap * 2 : 16;
		l->items = mem_resize(l->items, l->cap * sizeof(*l->items));
	}
	e = &l->items[l->count++];
	*e = (struct store_executor){
		.epoch = row->epoch,
		.last_seq = row->last_seq,
		.dead = row->dead,
		.hidden = row->hidden,
		.slots = row->slots,
		.owned = owned,
	};
	memcpy(e->name, row->name, sizeof(e->name));
}

int reads_executors(struct rules *r, bool hidden_too, struct store_executor **list, unsigned *n)
{
	struct listing l = {0};
	int err = r->rows->ops->executor_each(r->rows, hidden_too, on_executor, &l);

	*n = 0;
	*list = NULL;
	if (err >= 0 && l.count) {
		*list = record_alloc(r->arena, l.count * sizeof(**list));
		memcpy(*list, l.items, l.count * sizeof(**list));
		*n = (unsigned)l.count;
	}
	free(l.items);
	return err < 0 ? err : STORE_OK;
}

/* --- the last hour --- */

/* When the oldest task was added that no program of has begun; 0 = there is none. */
static int oldest_read(struct rules *r, int64_t *out)
{
	static const enum task_status waiting[] = {TASK_PENDING, TASK_RETRYING};

	*out = 0;
	for (size_t i = 0; i < ARRAY_SIZE(waiting); i++) {
		int64_t add_us = 0;
		int err = r->rows->ops->oldest(r->rows, waiting[i], &add_us);

		if (err < 0)
			return err;
		if (err == 0 && (!*out || add_us < *out))
			*out = add_us;
	}
	return 0;
}

int reads_stats(struct rules *r, struct msg_stats_reply *reply)
{
	struct hour_minute minutes[HOUR_MINUTES];
	struct msg_stats_minute *items =
		record_alloc(r->arena, HOUR_MINUTES * sizeof(struct msg_stats_minute));
	struct rows_executors sum;
	int64_t oldest_us = 0;
	int err = r->rows->ops->executors_sum(r->rows, &sum);

	if (err >= 0)
		err = oldest_read(r, &oldest_us);
	if (err < 0)
		return err;
	hour_read(&r->rows->hour, r->now_us, minutes);
	for (unsigned i = 0; i < HOUR_MINUTES; i++)
		items[i] = (struct msg_stats_minute){
			.added = minutes[i].added,
			.done = minutes[i].done,
			.accepted = minutes[i].accepted,
			.pending = minutes[i].last.queued,
			.running = minutes[i].last.owned,
		};
	*reply = (struct msg_stats_reply){
		.time_us = r->now_us,
		.start_us = minutes[0].start_us,
		.minutes = {items, HOUR_MINUTES},
		.pending = r->rows->hour.now.queued,
		.running = r->rows->hour.now.owned,
		.alive = sum.alive,
		.dead = sum.dead,
		.slots = sum.slots,
		.oldest_us = oldest_us,
	};
	return STORE_OK;
}
