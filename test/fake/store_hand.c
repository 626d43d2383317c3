/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each synchronous call has its request and its answer on the stack: it does not return before the callback has come. The call_...()
 * ones own a `started` each, freed by the callback.
 */
#include "test/fake/store_hand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"

#define PATIENCE_US (60 * US_PER_S)

/* --- life --- */

static void on_line(void *arg, enum log_level level, const char *line)
{
	struct store_hand *h = arg;

	if (level == LOG_ERROR)
		snprintf(h->logged, sizeof(h->logged), "%s", line);
	if (strstr(line, "event=task ")) {
		snprintf(h->ended, sizeof(h->ended), "%s", line);
		h->n_ended++;
	}
}

static void on_changed(void *arg, const struct id *ids, unsigned n_ids, const struct str *languages,
	unsigned n_languages)
{
	struct store_hand *h = arg;

	for (unsigned i = 0; i < n_ids && h->n_told_ids < ARRAY_SIZE(h->told_ids); i++)
		h->told_ids[h->n_told_ids++] = ids[i];
	for (unsigned i = 0; i < n_languages && h->n_told_languages < ARRAY_SIZE(h->told_languages);
		i++)
		snprintf(h->told_languages[h->n_told_languages++], sizeof(h->told_languages[0]),
			STR_FMT, STR_ARG(languages[i]));
}

int store_hand_open(struct store_hand *h)
{
	struct store_options options = {
		.log = h->log,
		.dir = h->dir,
		.reserve_bytes = h->reserve_bytes,
		.max_retries = h->max_retries,
		.on_changed = on_changed,
		.arg = h,
	};

	return h->ops->open(h->loop, &options, &h->store);
}

void store_hand_close(struct store_hand *h)
{
	h->store->ops->close(take_ptr(&h->store));
}

struct store_hand *store_hand_new(const struct store_ops *ops)
{
	struct store_hand *h = mem_alloc(sizeof(*h));
	const char *tmp = getenv("TMPDIR");

	h->ops = ops;
	h->max_retries = 3;
	snprintf(h->dir, sizeof(h->dir), "%s/store.XXXXXX", tmp && strlen(tmp) < 40 ? tmp : "/tmp");
	assert_non_null(mkdtemp(h->dir));
	h->log = log_new_sink(on_line, h, "store", LOG_INFO);
	h->loop = loop_new(NULL);
	assert_int_equal(store_hand_open(h), 0);
	return h;
}

static void dir_remove(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		char *below cleanup(mem_freep) = mem_printf("%s/%s", path, e->d_name);

		if (e->d_name[0] != '.' && unlinkat(dirfd(dir), e->d_name, 0) < 0)
			dir_remove(below);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

void store_hand_free(struct store_hand *h)
{
	if (h->store)
		store_hand_close(h);
	loop_free(h->loop);
	log_free(h->log);
	dir_remove(h->dir);
	free(h);
}

struct id number_id(unsigned n)
{
	return id_make(n, n);
}

unsigned number_of(const struct id *id)
{
	char seconds[9] = "";

	memcpy(seconds, id->hex, 8);
	return (unsigned)strtoul(seconds, NULL, 16);
}

void wait_zero(struct store_hand *h, const unsigned *waiting)
{
	int64_t until_us = clock_boot_us() + PATIENCE_US;

	while (*waiting) {
		if (clock_boot_us() > until_us)
			fail_msg("%u answers are missing", *waiting);
		loop_turn(h->loop, 100 * US_PER_MS);
	}
}

static struct str text(const char *s)
{
	return s ? str_from(s) : STR_NULL;
}

static void copy_text(char *to, size_t n, struct str s)
{
	size_t take = s.n < n - 1 ? s.n : n - 1;

	if (take)
		memcpy(to, s.p, take);
	to[take] = '\0';
}

struct done {
	enum store_status status;
	unsigned waiting;
};

static void on_done(void *arg, enum store_status status)
{
	struct done *d = arg;

	d->status = status;
	d->waiting--;
}

/* --- add --- */

struct adding {
	struct added out;
	unsigned waiting;
};

static void on_added(void *arg, enum store_status status, const struct msg_add_reply *reply)
{
	struct adding *a = arg;

	a->out = (struct added){
		.status = status, .created = reply->created, .add_us = reply->add_time_us};
	copy_text(a->out.task_status, sizeof(a->out.task_status), reply->status);
	a->waiting--;
}

struct added add_task(struct store_hand *h, const struct task_words *words)
{
	struct str labels[4];
	struct msg_add_request request = {
		.id = number_id(words->n),
		.user = text(words->user),
		.language = words->language ? text(words->language) : STR("raw"),
		.priority = words->priority,
		.labels.items = labels,
		.doc.text = h->raw_doc.p ? h->raw_doc
			    : words->doc ? text(words->doc)
					 : STR("{}"),
	};
	struct adding a = {.waiting = 1};

	while (request.labels.count < 4 && words->labels[request.labels.count]) {
		labels[request.labels.count] = text(words->labels[request.labels.count]);
		request.labels.count++;
	}
	h->store->ops->add(h->store, &request, on_added, &a);
	assert_int_equal(a.waiting, 1);
	wait_zero(h, &a.waiting);
	return a.out;
}

struct started_add {
	struct msg_add_request request;
	unsigned *waiting;
};

static void on_started_add(void *arg, enum store_status status, const struct msg_add_reply *reply)
{
	struct started_add *s = arg;

	assert_int_equal(status, STORE_OK);
	assert_true(reply->created);
	assert_true(id_eq(&reply->id, &s->request.id));
	--*s->waiting;
	free(s);
}

void call_add(struct store_hand *h, unsigned n, const char *language, unsigned *waiting)
{
	struct started_add *s = mem_alloc(sizeof(*s));

	s->request = (struct msg_add_request){
		.id = number_id(n), .language = text(language), .doc.text = STR("{}")};
	s->waiting = waiting;
	h->store->ops->add(h->store, &s->request, on_started_add, s);
}

void add_many(struct store_hand *h, unsigned first, unsigned count, const char *language)
{
	unsigned waiting = count;

	for (unsigned i = 0; i < count; i++)
		call_add(h, first + i, language, &waiting);
	wait_zero(h, &waiting);
}

/* --- executors --- */

struct enrolling {
	int64_t epoch;
	unsigned *waiting;
	bool is_owned;
};

static void on_enrolled(void *arg, enum store_status status, const struct msg_register_reply *reply)
{
	struct enrolling *e = arg;

	assert_int_equal(status, STORE_OK);
	e->epoch = reply->conflict ? -reply->epoch : reply->epoch;
	--*e->waiting;
	if (e->is_owned)
		free(e);
}

int64_t enroll(struct store_hand *h, const char *name, int64_t base)
{
	unsigned waiting = 1;
	struct enrolling e = {.waiting = &waiting};

	h->store->ops->enroll(h->store, text(name), base, on_enrolled, &e);
	wait_zero(h, &waiting);
	return e.epoch;
}

void call_enroll(struct store_hand *h, const char *name, int64_t base, unsigned *waiting)
{
	struct enrolling *e = mem_alloc(sizeof(*e));

	*e = (struct enrolling){.waiting = waiting, .is_owned = true};
	h->store->ops->enroll(h->store, text(name), base, on_enrolled, e);
}

enum store_status lose(struct store_hand *h, const char *name, int64_t epoch, int64_t seq)
{
	struct done d = {.waiting = 1};

	h->store->ops->lose(h->store, text(name), epoch, seq, on_done, &d);
	wait_zero(h, &d.waiting);
	return d.status;
}

enum store_status drop(struct store_hand *h, const char *name)
{
	struct done d = {.waiting = 1};

	h->store->ops->drop(h->store, text(name), on_done, &d);
	wait_zero(h, &d.waiting);
	return d.status;
}

struct listing {
	struct store_hand *h;
	unsigned n, waiting;
};

static void on_listed(
	void *arg, enum store_status status, const struct store_executor *list, unsigned n)
{
	struct listing *l = arg;

	assert_int_equal(status, STORE_OK);
	assert_true(n <= HAND_LIST_MAX);
	if (n)
		memcpy(l->h->executors, list, n * sizeof(*list));
	l->n = n;
	l->waiting--;
}

unsigned list_executors(struct store_hand *h, bool hidden_too)
{
	struct listing l = {.h = h, .waiting = 1};

	h->store->ops->executors(h->store, hidden_too, on_listed, &l);
	wait_zero(h, &l.waiting);
	return l.n;
}

/* --- report --- */

struct says says(const char *name, int64_t epoch, int64_t seq, int64_t acked, int64_t vacant,
	const char *offered)
{
	struct says s = {
		.r = {.executor = text(name),
			.epoch = epoch,
			.seq = seq,
			.acked = acked,
			.vacant = vacant},
		.offered = offered,
	};

	return s;
}

struct says says_running(
	struct says s, unsigned n, int64_t attempt, const char *status, int64_t case_no)
{
	assert_true(s.r.executing.count < HAND_LIST_MAX);
	s.executing[s.r.executing.count++] = (struct msg_executing_item){
		.id = number_id(n), .attempt = attempt, .status = text(status), .case_no = case_no};
	return s;
}

struct msg_complete_item *says_complete(struct says *s, unsigned n, int64_t attempt,
	const char *status, const char *verdict, const char *result)
{
	struct msg_complete_item *item = &s->complete[s->r.complete.count++];

	assert_true(s->r.complete.count <= HAND_LIST_MAX);
	*item = (struct msg_complete_item){
		.id = number_id(n),
		.attempt = attempt,
		.status = text(status),
		.verdict = text(verdict),
		.result.text = text(result),
	};
	return item;
}

struct reporting {
	struct answer *out;
	unsigned *waiting;
};

static void on_reported(void *arg, const struct store_report *report)
{
	struct reporting *r = arg;
	struct answer *a = r->out;
	const struct msg_report_reply *reply = &report->reply;

	*a = (struct answer){
		.status = report->status,
		.seq = reply->seq,
		.fenced = reply->fenced,
		.says_something = report->says_something,
		.lone_waiting = report->lone_waiting,
		.n_accepted = (unsigned)reply->accepted.count,
		.n_cancel = (unsigned)reply->cancel.count,
		.n_assign = (unsigned)reply->assign.count,
	};
	assert_true(a->n_accepted <= HAND_LIST_MAX && a->n_cancel <= HAND_LIST_MAX &&
		    a->n_assign <= HAND_LIST_MAX);
	for (unsigned i = 0; i < a->n_accepted; i++)
		a->accepted[i] = *codec_item(reply->accepted, struct msg_task_ref, i);
	for (unsigned i = 0; i < a->n_cancel; i++)
		a->cancel[i] = *codec_item(reply->cancel, struct msg_task_ref, i);
	for (unsigned i = 0; i < a->n_assign; i++) {
		const struct msg_assign_item *item =
			codec_item(reply->assign, struct msg_assign_item, i);

		a->assign[i].id = item->id;
		a->assign[i].attempt = item->attempt;
		a->assign[i].lone = item->lone;
		a->assign[i].doc_bytes = item->doc.text.n;
		copy_text(a->assign[i].doc, HAND_TEXT_MAX, item->doc.text);
	}
	--*r->waiting;
	free(r);
}

void call_report(struct store_hand *h, struct says *s, enum report_mode mode, struct answer *a,
	unsigned *waiting)
{
	struct reporting *r = mem_alloc(sizeof(*r));
	struct str rest = text(s->offered), language;

	s->r.languages = (struct codec_list){s->languages, 0};
	while (rest.n && str_cut(&rest, ',', &language))
		s->languages[s->r.languages.count++] = language;
	s->r.complete.items = s->complete;
	s->r.executing.items = s->executing;
	*r = (struct reporting){a, waiting};
	h->store->ops->report(h->store, &s->r, mode, on_reported, r);
}

static struct answer report_mode(struct store_hand *h, struct says *s, enum report_mode mode)
{
	struct answer a;
	unsigned waiting = 1;

	call_report(h, s, mode, &a, &waiting);
	wait_zero(h, &waiting);
	return a;
}

struct answer report(struct store_hand *h, struct says s)
{
	return report_mode(h, &s, REPORT_FRESH);
}

struct answer report_again(struct store_hand *h, struct says s)
{
	return report_mode(h, &s, REPORT_AGAIN);
}

/* --- tasks --- */

enum store_status cancel(struct store_hand *h, unsigned n)
{
	struct done d = {.waiting = 1};

	h->store->ops->cancel(h->store, number_id(n), on_done, &d);
	wait_zero(h, &d.waiting);
	return d.status;
}

enum store_status undo(
	struct store_hand *h, unsigned n, const char *name, int64_t epoch, int64_t attempt)
{
	struct done d = {.waiting = 1};

	h->store->ops->undo(h->store, number_id(n), text(name), epoch, attempt, on_done, &d);
	wait_zero(h, &d.waiting);
	return d.status;
}

static void view_copy(struct view *v, const struct msg_task_view *m)
{
	*v = (struct view){
		.id = m->id,
		.epoch = m->epoch,
		.assign_seq = m->assign_seq,
		.attempt = m->attempt,
		.retries = m->retries,
		.case_no = m->case_no,
		.add_us = m->add_time_us,
		.start_us = m->start_time_us,
		.done_us = m->done_time_us,
		.doc_bytes = m->doc.text.n,
		.result_bytes = m->result.text.n,
	};
	copy_text(v->user, sizeof(v->user), m->user);
	copy_text(v->language, sizeof(v->language), m->language);
	copy_text(v->status, sizeof(v->status), m->status);
	copy_text(v->verdict, sizeof(v->verdict), m->verdict);
	copy_text(v->executor, sizeof(v->executor), m->executor);
	copy_text(v->state, sizeof(v->state), m->state);
	copy_text(v->message, sizeof(v->message), m->message);
	copy_text(v->doc, sizeof(v->doc), m->doc.text);
	copy_text(v->result, sizeof(v->result), m->result.text);
	for (size_t i = 0; i < m->labels.count; i++) {
		size_t n = strlen(v->labels);

		snprintf(v->labels + n, sizeof(v->labels) - n, STR_FMT ",",
			STR_ARG(*codec_item(m->labels, struct str, i)));
	}
}

struct getting {
	struct gets *out;
	unsigned waiting;
};

static void on_got(void *arg, enum store_status status, const struct msg_get_reply *reply)
{
	struct getting *g = arg;

	g->out->status = status;
	for (size_t i = 0; i < reply->tasks.count; i++)
		view_copy(&g->out->views[g->out->n++],
			codec_item(reply->tasks, struct msg_task_view, i));
	for (size_t i = 0; i < reply->missing.count; i++)
		assert_true(id_parse(*codec_item(reply->missing, struct str, i),
			&g->out->missing[g->out->n_missing++]));
	g->waiting--;
}

struct gets get(struct store_hand *h, const struct get_words *words)
{
	struct msg_get_item items[8] = {0};
	struct msg_get_request request = {
		.items = {items, words->n_items},
		.done_only = words->done_only,
		.doc = words->doc,
	};
	struct gets out = {0};
	struct getting g = {.out = &out, .waiting = 1};

	for (unsigned i = 0; i < words->n_items; i++)
		items[i] = (struct msg_get_item){
			number_id(words->items[i].n), text(words->items[i].known)};
	h->store->ops->get(h->store, &request, on_got, &g);
	wait_zero(h, &g.waiting);
	assert_int_equal(out.status, STORE_OK);
	return out;
}

struct view get_task(struct store_hand *h, unsigned n)
{
	struct gets got =
		get(h, &(struct get_words){.n_items = 1, .items = {{n, NULL}}, .doc = true});

	assert_int_equal(got.n, 1);
	return got.views[0];
}

struct started_get {
	struct msg_get_request request;
	struct msg_get_item item;
	unsigned *waiting;
};

static void on_started_get(void *arg, enum store_status status, const struct msg_get_reply *reply)
{
	struct started_get *s = arg;

	assert_int_equal(status, STORE_OK);
	--*s->waiting;
	free(s);
}

void call_get(struct store_hand *h, unsigned n, unsigned *waiting)
{
	struct started_get *s = mem_alloc(sizeof(*s));

	s->item.id = number_id(n);
	s->request.items = (struct codec_list){&s->item, 1};
	s->waiting = waiting;
	h->store->ops->get(h->store, &s->request, on_started_get, s);
}

struct searching {
	struct store_hand *h;
	enum store_status status;
	unsigned waiting;
};

static void on_searched(void *arg, enum store_status status, const struct msg_search_reply *reply)
{
	struct searching *s = arg;
	struct store_hand *h = s->h;

	s->status = status;
	h->page = (unsigned)reply->tasks.count;
	copy_text(h->next, sizeof(h->next), reply->next);
	for (size_t i = 0; i < reply->tasks.count; i++) {
		const struct msg_task_view *v = codec_item(reply->tasks, struct msg_task_view, i);

		assert_true(h->n_found < ARRAY_SIZE(h->found));
		assert_null(v->doc.text.p);
		assert_null(v->result.text.p);
		h->found[h->n_found++] = number_of(&v->id);
	}
	s->waiting--;
}

enum store_status search(struct store_hand *h, const struct search_words *words, const char *after)
{
	char begin[70];
	struct msg_search_request request = {
		.user = text(words->user),
		.status = text(words->status),
		.language = text(words->language),
		.label = text(words->label),
		.ascending = words->ascending,
		.limit = words->limit,
	};
	struct searching s = {.h = h, .waiting = 1};

	copy_text(begin, sizeof(begin), text(after)); /* after may be h->next */
	request.after = text(begin);
	h->store->ops->search(h->store, &request, on_searched, &s);
	wait_zero(h, &s.waiting);
	return s.status;
}

struct counting {
	int64_t pending;
	unsigned waiting;
};

static void on_counted(void *arg, enum store_status status, int64_t n)
{
	struct counting *c = arg;

	assert_int_equal(status, STORE_OK);
	c->pending = n;
	c->waiting--;
}

int64_t pending(struct store_hand *h)
{
	struct counting c = {.waiting = 1};

	h->store->ops->pending(h->store, on_counted, &c);
	wait_zero(h, &c.waiting);
	return c.pending;
}

struct summing {
	struct msg_stats_reply reply;
	struct msg_stats_minute *minutes;
	unsigned waiting;
};

static void on_summed(void *arg, enum store_status status, const struct msg_stats_reply *reply)
{
	struct summing *s = arg;

	assert_int_equal(status, STORE_OK);
	assert_int_equal(reply->minutes.count, HOUR_MINUTES);
	memcpy(s->minutes, reply->minutes.items, HOUR_MINUTES * sizeof(*s->minutes));
	s->reply = *reply;
	s->reply.minutes.items = s->minutes;
	s->waiting--;
}

struct msg_stats_reply hour_stats(
	struct store_hand *h, struct msg_stats_minute minutes[HOUR_MINUTES])
{
	struct summing s = {.minutes = minutes, .waiting = 1};

	h->store->ops->stats(h->store, on_summed, &s);
	wait_zero(h, &s.waiting);
	return s.reply;
}

/* --- who was told --- */

void told_reset(struct store_hand *h)
{
	/* what is told after the last answer belongs to what was before */
	loop_turn(h->loop, 0);
	h->n_told_ids = h->n_told_languages = 0;
}

bool told_id(const struct store_hand *h, unsigned n)
{
	for (unsigned i = 0; i < h->n_told_ids; i++) {
		if (number_of(&h->told_ids[i]) == n)
			return true;
	}
	return false;
}

unsigned told_language(const struct store_hand *h, const char *language)
{
	unsigned n = 0;

	for (unsigned i = 0; i < h->n_told_languages; i++)
		n += strcmp(h->told_languages[i], language) == 0;
	return n;
}
