/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of the report protocol, in the words of rpc/README.md: register, report, undo, lose, drop, cancel, and back().
 *
 * Actors. An executor is a name with an epoch that only grows. A task is in exactly one place: in the queue of its language, owned
 * by one claim (executor, epoch, attempt), or done. Only claim() makes an owner; only back(), complete and cancel end one.
 *
 *                 add                    claim: attempt + 1
 *              --------->  QUEUED  ---------------------------->  OWNED
 *                             ^   <------- back(): retries + 1 ------' |
 *                             |             when its executor was lost |
 *                             '-- cancel, retries > max --> DONE <-----'  complete, cancel, retries > max
 *
 * Invariants. attempt is raised by claims only, retries by counted losses only. retries of an owned task never change, so "a lone
 * task is owned" is "retries > 0 and owned": no mark is kept. Each rule writes a row at most once for one cause, and tells
 * `changes` of every task whose readers would see a difference and of every language whose queue grew.
 *
 * A report first fetches all tasks of its claimant (one probe of the owner's index); what is listed is then looked up in that array.
 * A task struck off it (accepted, returned) is no longer owned by the time the lone rule and the claims look.
 */
#include "roles/judicator/store/rules.h"

#include <stdio.h>
#include <stdlib.h>

#include "reactor/base/log.h"
#include "reactor/base/mem.h"

#define CLAIMS_MAX 4096 /* report_reply.assign's bound */

/* --- rows --- */

struct rows_task *rows_list_add(struct rows_list *list)
{
	struct rows_task *task;

	if (list->count == list->cap) {
		list->cap = list->cap ? list->cap * 2 : 8;
		list->items = mem_resize(list->items, list->cap * sizeof(*list->items));
	}
	task = &list->items[list->count++];
	*task = (struct rows_task){0};
	return task;
}

void rows_list_fini(struct rows_list *list)
{
	free(list->items);
	*list = (struct rows_list){0};
}

static int id_cmp(const struct id *a, const struct id *b)
{
	return memcmp(a->hex, b->hex, ID_LEN);
}

bool rows_task_before(const struct rows_task *a, const struct rows_task *b)
{
	if (a->priority != b->priority)
		return a->priority > b->priority;
	if (a->add_us != b->add_us)
		return a->add_us < b->add_us;
	return id_cmp(&a->id, &b->id) < 0;
}

bool rows_labels_next(struct str *rest, struct str *label)
{
	size_t n;

	if (!rest->n)
		return false;
	n = strnlen(rest->p, rest->n);
	*label = (struct str){rest->p, n};
	n += n < rest->n; /* the NUL behind it */
	rest->p += n;
	rest->n -= n;
	return true;
}

/* Copies what the codec has limited already into a field of size n. */
static void text_set(char *field, size_t n, struct str s)
{
	CHECK(s.n < n);
	if (s.n)
		memcpy(field, s.p, s.n);
	field[s.n] = '\0';
}

/* --- changes --- */

/* Room for one more item behind n. */
static void *grown(void *items, unsigned n, unsigned *cap, size_t size)
{
	if (n < *cap)
		return items;
	*cap = *cap ? *cap * 2 : 8;
	return mem_resize(items, *cap * size);
}

static void changed_id(struct rules *r, const struct id *id)
{
	struct rules_changes *c = r->changes;

	c->ids = grown(c->ids, c->n_ids, &c->cap_ids, sizeof(*c->ids));
	c->ids[c->n_ids++] = *id;
}

static void changed_language(struct rules *r, const char *language)
{
	struct rules_changes *c = r->changes;

	c->languages =
		grown(c->languages, c->n_languages, &c->cap_languages, sizeof(*c->languages));
	text_set(c->languages[c->n_languages++], sizeof(*c->languages), str_from(language));
}

static void changed_ended(struct rules *r, const struct rows_task *t)
{
	struct rules_changes *c = r->changes;

	c->ended = grown(c->ended, c->n_ended, &c->cap_ended, sizeof(*c->ended));
	c->ended[c->n_ended++] = *t;
}

struct rules_mark rules_changes_mark(const struct rules_changes *changes)
{
	return (struct rules_mark){changes->n_ids, changes->n_languages, changes->n_ended};
}

void rules_changes_back(struct rules_changes *changes, struct rules_mark mark)
{
	changes->n_ids = mark.n_ids;
	changes->n_languages = mark.n_languages;
	changes->n_ended = mark.n_ended;
}

void rules_log_ended(struct log *log, const struct rows_task *t, bool repeated)
{
	const char *verdict = verdict_name(t->verdict);

	log_info(log, "task",
		"id=%s to=%s verdict=%s attempt=%lld retries=%lld executor=%s done_us=%lld%s",
		t->id.hex, task_status_name(t->status), verdict ? verdict : "none",
		(long long)t->attempt, (long long)t->retries, t->executor[0] ? t->executor : "none",
		(long long)t->done_us, repeated ? " repeated=yes" : "");
}

void rules_changes_fini(struct rules_changes *changes)
{
	free(changes->ids);
	free(changes->languages);
	free(changes->ended);
	*changes = (struct rules_changes){0};
}

void rules_changes_deliver(struct rules_changes *changes, const struct store_options *options,
	struct store_counters *counters)
{
	struct rules_changes now = *changes;
	struct str *languages;

	if (!now.n_ids && !now.n_languages)
		return;
	/* The callback may call verbs, which change anew. */
	*changes = (struct rules_changes){0};
	for (unsigned i = 0; i < now.n_ended; i++) {
		rules_log_ended(options->log, &now.ended[i], false);
		counters->ended[now.ended[i].verdict]++;
	}
	languages = mem_array(now.n_languages, sizeof(*languages));
	for (unsigned i = 0; i < now.n_languages; i++)
		languages[i] = str_from(now.languages[i]);
	if (options->on_changed)
		options->on_changed(options->arg, now.ids, now.n_ids, languages, now.n_languages);
	free(languages);
	rules_changes_fini(&now);
}

/* --- writing a task --- */

/* A task is now at t->place; before it was queued, owned, or neither. */
static void count(struct rules *r, const struct rows_task *t, bool was_queued, bool was_owned)
{
	struct hour_change change = {
		.queued = (t->place == ROWS_QUEUED) - was_queued,
		.owned = (t->place == ROWS_OWNED) - was_owned,
		.added = t->place != ROWS_DONE && !was_queued && !was_owned,
		.done = t->place == ROWS_DONE,
		.accepted = t->place == ROWS_DONE && t->verdict == VERDICT_ACCEPTED,
	};

	hour_note(&r->rows->hour, r->now_us, &change);
}

/* The one way by which a task that exists is written: `from` is where it was. */
static int task_write(struct rules *r, const struct rows_task *t, enum rows_place from)
{
	int err = r->rows->ops->task_put(r->rows, t);

	if (err < 0)
		return err;
	count(r, t, from == ROWS_QUEUED, from == ROWS_OWNED);
	changed_id(r, &t->id);
	if (t->place == ROWS_QUEUED)
		changed_language(r, t->language);
	if (t->place == ROWS_DONE && from != ROWS_DONE)
		changed_ended(r, t);
	return 0;
}

static void disown(struct rows_task *t)
{
	t->executor[0] = '\0';
	t->epoch = t->assign_seq = 0;
}

enum back_why {
	BACK_UNDONE, /* the claim never left here: as if it had not been, but for the attempt */
	BACK_UNHELD, /* the executor does not have it; uncounted too */
	BACK_LOST,   /* lost with its executor: counted */
};

/* Gives an owned task back to the queue, or up. */
static int back(struct rules *r, struct rows_task *t, enum back_why why)
{
	t->retries += why == BACK_LOST;
	t->case_no = 0;
	if (why == BACK_LOST && t->retries > r->max_retries) {
		t->place = ROWS_DONE;
		t->status = TASK_ERROR;
		t->verdict = VERDICT_SYSTEM_ERROR;
		t->done_us = r->now_us;
		snprintf(t->message, sizeof(t->message),
			"lost with its executor %lld times, the last time with %s",
			(long long)t->retries, t->executor);
	} else {
		t->place = ROWS_QUEUED;
		if (why != BACK_UNDONE || t->status != TASK_PENDING)
			t->status = TASK_RETRYING;
		if (t->status == TASK_PENDING)
			t->start_us = 0; /* nobody has begun */
	}
	disown(t);
	return task_write(r, t, ROWS_OWNED);
}

/* All that name owns under an epoch in [first, last], counted. */
static int back_all(struct rules *r, struct str name, int64_t first, int64_t last)
{
	struct rows_list owned cleanup(rows_list_fini) = {0};
	int err = r->rows->ops->owned(r->rows, name, first, last, &owned);

	for (size_t i = 0; err >= 0 && i < owned.count; i++)
		err = back(r, &owned.items[i], BACK_LOST);
	return err;
}

/* --- add and cancel --- */

static struct str json_text_of(struct rules *r, const struct codec_json *json)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct json_writer *w;

	if (json->text.p || !json->node)
		return json->text;
	w = json_writer_new(&text, false);
	json_node(w, json->node);
	json_writer_free(w);
	return record_copy(r->arena, buf_str(&text));
}

static void labels_join(const struct codec_list *labels, struct buf *out)
{
	for (size_t i = 0; i < labels->count; i++) {
		buf_add_str(out, *codec_item(*labels, struct str, i));
		buf_add_char(out, '\0');
	}
}

static bool bytes_eq(struct str a, struct str b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* An add that comes again: the same content is as good as done, other content is a conflict. */
static int add_again(struct rules *r, const struct msg_add_request *request, struct str doc,
	struct str labels, const struct rows_task *t, struct msg_add_reply *reply)
{
	struct str old_doc, old_labels;
	int err = r->rows->ops->text_get(r->rows, t, ROWS_DOC, r->arena, &old_doc);

	if (err >= 0)
		err = r->rows->ops->text_get(r->rows, t, ROWS_LABELS, r->arena, &old_labels);
	if (err < 0)
		return err;
	reply->status = str_from(task_status_name(t->status));
	reply->add_time_us = t->add_us;
	if (!bytes_eq(old_doc, doc) || !bytes_eq(old_labels, labels) ||
		t->priority != request->priority ||
		!bytes_eq(str_from(t->language), request->language) ||
		!bytes_eq(str_from(t->user), request->user))
		return STORE_CONFLICT;
	return STORE_OK;
}

static int add_new(struct rules *r, const struct msg_add_request *request, struct str doc,
	struct str labels, struct msg_add_reply *reply)
{
	struct rows_task t = {
		.id = request->id,
		.priority = request->priority,
		.place = ROWS_QUEUED,
		.status = TASK_PENDING,
	};
	int err;

	if (!r->rows->ops->has_room(r->rows))
		return STORE_E_FULL;
	text_set(t.language, sizeof(t.language), request->language);
	text_set(t.user, sizeof(t.user), request->user);
	t.add_us = r->now_us > r->rows->last_add_us ? r->now_us : r->rows->last_add_us + 1;
	err = rules_blobs_check(r, request, &reply->missing);
	if (err < 0 || reply->missing.p)
		return err < 0 ? err : STORE_OK;
	err = r->rows->ops->task_add(r->rows, &t, doc, labels);
	if (err >= 0)
		err = rules_blobs_refer(r, request, &t);
	if (err < 0)
		return err;
	r->rows->last_add_us = t.add_us;
	count(r, &t, false, false);
	changed_id(r, &t.id);
	changed_language(r, t.language);
	reply->status = str_from(task_status_name(t.status));
	reply->created = true;
	reply->add_time_us = t.add_us;
	return STORE_OK;
}

int rules_add(struct rules *r, const struct msg_add_request *request, struct msg_add_reply *reply)
{
	struct buf joined cleanup(buf_fini) = BUF_INIT;
	struct str doc = json_text_of(r, &request->doc);
	struct rows_task t;
	int err;

	*reply = (struct msg_add_reply){.id = request->id};
	labels_join(&request->labels, &joined);
	err = r->rows->ops->task_get(r->rows, &request->id, &t);
	if (err < 0)
		return err;
	if (err == ROWS_NONE)
		return add_new(r, request, doc, buf_str(&joined), reply);
	return add_again(r, request, doc, buf_str(&joined), &t, reply);
}

int rules_cancel(struct rules *r, const struct id *id)
{
	struct rows_task t;
	enum rows_place from;
	int err = r->rows->ops->task_get(r->rows, id, &t);

	if (err < 0)
		return err;
	if (err == ROWS_NONE)
		return STORE_UNKNOWN;
	if (t.place == ROWS_DONE)
		return t.status == TASK_CANCELLED ? STORE_OK : STORE_DONE; /* safe to repeat */
	from = t.place;
	t.place = ROWS_DONE;
	t.status = TASK_CANCELLED;
	t.verdict = VERDICT_CANCELLED;
	t.done_us = r->now_us;
	disown(&t);
	err = task_write(r, &t, from);
	return err < 0 ? err : STORE_OK;
}

/* --- an executor's row --- */

int rules_register(struct rules *r, struct str name, int64_t base, struct msg_register_reply *reply)
{
	struct rows_executor row;
	int err = r->rows->ops->executor_get(r->rows, name, &row);

	if (err < 0)
		return err;
	if (err == ROWS_NONE) {
		row = (struct rows_executor){0};
		text_set(row.name, sizeof(row.name), name);
	}
	*reply = (struct msg_register_reply){.epoch = row.epoch};
	if (row.epoch != base) {
		reply->conflict = true;
		return STORE_OK;
	}
	reply->epoch = row.epoch = base + 1;
	row.last_seq = 0;
	row.dead = row.hidden = false;
	err = r->rows->ops->executor_put(r->rows, &row);
	if (err >= 0)
		err = back_all(r, name, 0, base);
	return err < 0 ? err : STORE_OK;
}

int rules_lose(struct rules *r, struct str name, int64_t epoch, int64_t seq)
{
	struct rows_executor row;
	int err = r->rows->ops->executor_get(r->rows, name, &row);

	if (err < 0)
		return err;
	if (err == ROWS_NONE)
		return STORE_UNKNOWN;
	if (row.epoch != epoch || row.dead || row.last_seq != seq)
		return STORE_STALE;
	row.dead = true;
	err = r->rows->ops->executor_put(r->rows, &row);
	if (err >= 0)
		err = back_all(r, name, epoch, epoch);
	return err < 0 ? err : STORE_OK;
}

int rules_drop(struct rules *r, struct str name)
{
	struct rows_executor row;
	int err = r->rows->ops->executor_get(r->rows, name, &row);

	if (err < 0)
		return err;
	if (err == ROWS_NONE)
		return STORE_UNKNOWN;
	if (!row.dead)
		return STORE_STALE;
	if (row.hidden)
		return STORE_OK;
	row.hidden = true;
	err = r->rows->ops->executor_put(r->rows, &row);
	return err < 0 ? err : STORE_OK;
}

int rules_undo(
	struct rules *r, const struct id *id, struct str name, int64_t epoch, int64_t attempt)
{
	struct rows_task t;
	int err = r->rows->ops->task_get(r->rows, id, &t);

	if (err < 0)
		return err;
	if (err == ROWS_NONE)
		return STORE_UNKNOWN;
	if (t.place != ROWS_OWNED || !bytes_eq(str_from(t.executor), name) || t.epoch != epoch ||
		t.attempt != attempt)
		return STORE_STALE;
	err = back(r, &t, BACK_UNDONE);
	return err < 0 ? err : STORE_OK;
}

/* --- report --- */

/* What an executor is seen to be changes rarely: its number of slots once an epoch. */
static int executor_note(
	struct rules *r, struct rows_executor *row, const struct msg_report_request *request)
{
	row->last_seq = request->seq;
	if (!request->slots || row->slots == request->slots)
		return r->rows->ops->executor_seen(r->rows, row);
	row->slots = request->slots;
	return r->rows->ops->executor_put(r->rows, row);
}

struct report {
	struct rules *r;
	const struct msg_report_request *request;
	struct store_report *out;
	struct rows_list owned; /* by (name, epoch), sorted by id */
	bool *listed;           /* of owned: the executor has it */
	struct msg_task_ref *accepted, *cancel;
	struct msg_assign_item *assign;
	int64_t in_flight;
};

static int owned_cmp(const void *a, const void *b)
{
	return id_cmp(&((const struct rows_task *)a)->id, &((const struct rows_task *)b)->id);
}

/* The task if this very claim of it is still owned, else NULL. */
static struct rows_task *owned_find(struct report *p, const struct id *id, int64_t attempt)
{
	struct rows_task key = {.id = *id}, *t;

	if (!p->owned.count)
		return NULL;
	t = bsearch(&key, p->owned.items, p->owned.count, sizeof(key), owned_cmp);
	return t && t->place == ROWS_OWNED && t->attempt == attempt ? t : NULL;
}

static void tell_cancel(struct report *p, const struct id *id, int64_t attempt)
{
	p->cancel[p->out->reply.cancel.count++] = (struct msg_task_ref){*id, attempt};
}

static void complete_fill(
	struct rules *r, struct rows_task *t, const struct msg_complete_item *item)
{
	bool is_known = task_status_parse(item->status, &t->status) &&
			task_status_is_result(t->status) &&
			verdict_parse(item->verdict, &t->verdict) && t->verdict != VERDICT_NONE;

	t->place = ROWS_DONE;
	t->done_us = r->now_us;
	t->message[0] = '\0';
	if (is_known)
		return;
	/* An executor that speaks another language than we: refusing would make it send the same for ever. */
	t->status = TASK_ERROR;
	t->verdict = VERDICT_SYSTEM_ERROR;
	snprintf(t->message, sizeof(t->message), "%s sent a result that was not understood",
		t->executor);
}

/* for (id, a) complete: owned by (name, epoch, a) -> done, accepted; else cancel */
static int step_complete(struct report *p)
{
	const struct codec_list *list = &p->request->complete;
	struct rows *rows = p->r->rows;

	for (size_t i = 0; i < list->count; i++) {
		const struct msg_complete_item *item =
			codec_item(*list, struct msg_complete_item, i);
		struct rows_task *t = owned_find(p, &item->id, item->attempt);
		int err;

		if (!t) {
			tell_cancel(p, &item->id, item->attempt);
			continue;
		}
		complete_fill(p->r, t, item);
		err = task_write(p->r, t, ROWS_OWNED);
		if (err >= 0)
			err = rows->ops->result_put(rows, t, json_text_of(p->r, &item->result));
		if (err < 0)
			return err;
		p->accepted[p->out->reply.accepted.count++] =
			(struct msg_task_ref){item->id, item->attempt};
	}
	return 0;
}

/* Progress for the readers: steps that the status table does not know are not shown. */
static int keep_status(struct report *p, struct rows_task *t, const struct msg_executing_item *item)
{
	struct rows *rows = p->r->rows;
	enum task_status status;

	if (!task_status_parse(item->status, &status) || !task_status_is_progress(status) ||
		(status != t->status && !task_status_may_follow(t->status, status)))
		return 0;
	if (status == t->status && item->case_no == t->case_no)
		return 0;
	t->status = status;
	t->case_no = item->case_no;
	changed_id(p->r, &t->id);
	return rows->ops->task_progress(rows, t);
}

/* for (id, a) executing: owned by (name, epoch, a) -> keep status; else cancel */
static int step_executing(struct report *p)
{
	const struct codec_list *list = &p->request->executing;

	for (size_t i = 0; i < list->count; i++) {
		const struct msg_executing_item *item =
			codec_item(*list, struct msg_executing_item, i);
		struct rows_task *t = owned_find(p, &item->id, item->attempt);
		int err;

		if (!t) {
			tell_cancel(p, &item->id, item->attempt);
			continue;
		}
		p->listed[t - p->owned.items] = true;
		err = keep_status(p, t, item);
		if (err < 0)
			return err;
	}
	return 0;
}

/* for t owned, not listed: its reply was applied or given up -> back; else it is still on its way */
static int step_unlisted(struct report *p)
{
	for (size_t i = 0; i < p->owned.count; i++) {
		struct rows_task *t = &p->owned.items[i];
		int err;

		if (t->place != ROWS_OWNED || p->listed[i])
			continue;
		if (t->assign_seq > p->request->acked) {
			p->in_flight++;
			continue;
		}
		err = back(p->r, t, BACK_UNHELD);
		if (err < 0)
			return err;
	}
	return 0;
}

static bool owns_lone(const struct report *p)
{
	for (size_t i = 0; i < p->owned.count; i++) {
		if (p->owned.items[i].place == ROWS_OWNED && p->owned.items[i].retries > 0)
			return true;
	}
	return false;
}

/* --- claims: the heads of the offered languages' queues are fetched once, and again where a task was taken --- */

struct head {
	struct rows_task task;
	bool is_there;
};

static int head_fetch(struct report *p, size_t i, struct head *head)
{
	struct str language = *codec_item(p->request->languages, struct str, i);
	int err = p->r->rows->ops->head(p->r->rows, language, &head->task);

	head->is_there = err == 0;
	return err < 0 ? err : 0;
}

static struct head *heads_best(struct head *heads, size_t n)
{
	struct head *best = NULL;

	for (size_t i = 0; i < n; i++) {
		if (heads[i].is_there && (!best || rows_task_before(&heads[i].task, &best->task)))
			best = &heads[i];
	}
	return best;
}

/* Makes the claim; *bytes grows by the document's length. */
static int claim(struct report *p, struct rows_task *t, int64_t *bytes)
{
	struct rows *rows = p->r->rows;
	struct msg_assign_item *item;
	struct str doc;
	int err;

	t->place = ROWS_OWNED;
	text_set(t->executor, sizeof(t->executor), p->request->executor);
	t->epoch = p->request->epoch;
	t->assign_seq = p->request->seq;
	t->attempt++;
	t->case_no = 0;
	t->start_us = p->r->now_us;
	err = task_write(p->r, t, ROWS_QUEUED);
	if (err >= 0)
		err = rows->ops->text_get(rows, t, ROWS_DOC, p->r->arena, &doc);
	if (err < 0)
		return err;
	*bytes += (int64_t)doc.n;
	item = &p->assign[p->out->reply.assign.count++];
	*item = (struct msg_assign_item){t->id, t->attempt, t->retries > 0, {.text = doc}};
	return 0;
}

static int claim_best(struct report *p, struct head *heads, size_t n, int64_t free_slots)
{
	size_t n_listed = p->request->complete.count + p->request->executing.count;
	int64_t bytes = 0;

	while (free_slots > 0) {
		struct head *best = heads_best(heads, n);
		struct rows_task t;
		int err;

		if (!best)
			return 0;
		t = best->task;
		if (t.retries > 0 && (p->in_flight > 0 || n_listed || p->out->reply.assign.count)) {
			p->out->lone_waiting = true;
			return 0;
		}
		err = claim(p, &t, &bytes);
		/* A language offered twice has two heads: both are the task just taken. */
		for (size_t i = 0; err >= 0 && i < n; i++) {
			if (heads[i].is_there && id_eq(&heads[i].task.id, &t.id))
				err = head_fetch(p, i, &heads[i]);
		}
		if (err < 0)
			return err;
		free_slots--;
		/* Claiming less than there is room for is always safe: the next report asks again. */
		if (t.retries > 0 || bytes >= STORE_REPLY_BYTES)
			return 0;
	}
	return 0;
}

static int step_claim(struct report *p)
{
	size_t n = p->request->languages.count;
	int64_t vacant = p->request->vacant < CLAIMS_MAX ? p->request->vacant : CLAIMS_MAX;
	int64_t free_slots = vacant - p->in_flight;
	struct head *heads cleanup(mem_freep) = NULL;
	int err = 0;

	if (free_slots <= 0 || owns_lone(p))
		return 0;
	heads = mem_array(n, sizeof(*heads));
	for (size_t i = 0; err >= 0 && i < n; i++)
		err = head_fetch(p, i, &heads[i]);
	if (err < 0)
		return err;
	p->assign = record_alloc(p->r->arena, (size_t)free_slots * sizeof(*p->assign));
	p->out->reply.assign.items = p->assign;
	return claim_best(p, heads, n, free_slots);
}

static int report_steps(struct report *p)
{
	const struct msg_report_request *q = p->request;
	int err = p->r->rows->ops->owned(p->r->rows, q->executor, q->epoch, q->epoch, &p->owned);

	if (err < 0)
		return err;
	if (p->owned.count)
		qsort(p->owned.items, p->owned.count, sizeof(*p->owned.items), owned_cmp);
	p->listed = record_alloc(p->r->arena, p->owned.count + 1);
	memset(p->listed, 0, p->owned.count + 1);
	p->accepted = record_alloc(p->r->arena, (q->complete.count + 1) * sizeof(*p->accepted));
	p->cancel = record_alloc(
		p->r->arena, (q->complete.count + q->executing.count + 1) * sizeof(*p->cancel));
	p->out->reply.accepted.items = p->accepted;
	p->out->reply.cancel.items = p->cancel;
	err = step_complete(p);
	if (err >= 0)
		err = step_executing(p);
	if (err >= 0)
		err = step_unlisted(p);
	if (err >= 0)
		err = step_claim(p);
	return err;
}

int rules_report(struct rules *r, const struct msg_report_request *request, enum report_mode mode,
	struct store_report *out)
{
	struct report p = {.r = r, .request = request, .out = out};
	struct rows_executor row;
	int err = r->rows->ops->executor_get(r->rows, request->executor, &row);

	*out = (struct store_report){.status = STORE_OK, .reply.seq = request->seq};
	if (err < 0)
		return err;
	if (err == ROWS_NONE || row.epoch != request->epoch || row.dead) {
		out->reply.fenced = out->says_something = true;
		return STORE_FENCED;
	}
	if (mode == REPORT_FRESH ? request->seq <= row.last_seq : request->seq != row.last_seq)
		return STORE_STALE;
	err = executor_note(r, &row, request);
	if (err >= 0)
		err = report_steps(&p);
	rows_list_fini(&p.owned);
	if (err < 0)
		return err;
	out->says_something =
		out->reply.accepted.count || out->reply.cancel.count || out->reply.assign.count;
	return STORE_OK;
}
