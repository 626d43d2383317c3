/* SPDX-License-Identifier: Apache-2.0 */
/*
 * traces - L1 to L13 of the report protocol (rpc/README.md), each a named test: two judicators on one memory store, executors
 * played by hand over the `loop` transport on a fake clock, messages lost or late exactly where the trace says so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/judicator/judicator.h"
#include "test/fake/hand.h"

#define EXPIRE_US (30 * US_PER_S)
#define REFS_MAX 8
#define SENT_MAX 64

struct world {
	struct loop *loop;
	struct loop_net *net;
	struct transport *nodes[3]; /* j1, j2, e */
	struct store *stores[2];
	struct judicator *judicators[2];
	struct hand hand; /* as node "e" */
	struct sent *sent[SENT_MAX];
	unsigned n_sent;
	/* the next message of this method and direction is late by late_us, or lost when -1 */
	const char *late_method;
	bool late_reply;
	int64_t late_us;
	unsigned ids;
};

/* --- the world ---------------------------------------------------------------------------------------- */

static void on_changed(void *arg, const struct id *ids, unsigned n_ids, const struct str *languages,
	unsigned n_languages)
{
	struct judicator **j = arg;

	judicator_on_changed(*j, ids, n_ids, languages, n_languages);
}

static int64_t fate(void *arg, const char *from, const char *to, const char *method, bool is_reply,
	struct str body)
{
	struct world *w = arg;

	(void)from, (void)to, (void)body;
	if (!w->late_method || strcmp(method, w->late_method) || is_reply != w->late_reply)
		return US_PER_MS;
	w->late_method = NULL;
	return w->late_us;
}

/* The next `method` request (or reply) takes us, or is lost when us is -1. */
static void be_late(struct world *w, const char *method, bool reply, int64_t us)
{
	w->late_method = method;
	w->late_reply = reply;
	w->late_us = us;
}

static void run_ms(struct world *w, int64_t ms)
{
	loop_advance_us(w->loop, ms * US_PER_MS);
}

static int setup(void **state)
{
	struct world *w = mem_alloc(sizeof(*w));
	struct loop_options lo = {.fake_clock = true, .seed = 1};
	struct loop_net_options no = {.delay_min_us = 1000, .delay_max_us = 1000};
	const char *names[] = {"j1", "j2"};

	w->loop = loop_new(&lo);
	w->net = loop_net_new(w->loop, &no);
	loop_net_set_fate(w->net, fate, w);
	for (unsigned i = 0; i < 2; i++) {
		struct store_options so = {
			.max_retries = 3, .on_changed = on_changed, .arg = &w->judicators[i]};
		struct judicator_options jo = {.name = names[i],
			.address = names[i],
			.leading = i == 0,
			.expire_us = EXPIRE_US};

		w->nodes[i] = transport_loop_new(w->net, names[i]);
		assert_int_equal(i ? store_memory_share(w->stores[0], &so, &w->stores[1])
				   : store_memory.open(w->loop, &so, &w->stores[0]),
			0);
		jo.transport = w->nodes[i];
		jo.store = w->stores[i];
		assert_int_equal(judicator_new(w->loop, &jo, &w->judicators[i]), 0);
	}
	w->nodes[2] = transport_loop_new(w->net, "e");
	w->hand = (struct hand){w->loop, w->nodes[2]};
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	for (unsigned i = 0; i < w->n_sent; i++)
		sent_free(w->sent[i]);
	for (unsigned i = 0; i < 2; i++)
		judicator_free(w->judicators[i]);
	for (unsigned i = 2; i-- > 0;)
		w->stores[i]->ops->close(w->stores[i]);
	for (unsigned i = 0; i < 3; i++)
		w->nodes[i]->ops->free(w->nodes[i]);
	loop_net_free(w->net);
	loop_free(w->loop);
	free(w);
	return 0;
}

/* --- what is said ------------------------------------------------------------------------------------------ */

static struct sent *say(struct world *w, const char *to, enum rpc_method method,
	const void *request, int64_t wait_ms)
{
	struct sent *s = hand_send(&w->hand, to, method, request, wait_ms * US_PER_MS);

	assert_true(w->n_sent < SENT_MAX);
	w->sent[w->n_sent++] = s;
	return s;
}

static struct id add(struct world *w, const char *to)
{
	struct id id = id_make(++w->ids, 7);
	struct msg_add_request r = {
		.id = id, .language = STR("raw"), .doc = {.text = STR("{\"n\":1}")}};
	struct sent *s = say(w, to, RPC_add, &r, 0);

	run_ms(w, 5);
	assert_true(s->answered);
	assert_int_equal(s->failure, RPC_OK);
	return id;
}

static struct id add_urgent(struct world *w)
{
	struct id id = id_make(++w->ids, 9);
	struct msg_add_request r = {
		.id = id, .language = STR("raw"), .priority = 5, .doc = {.text = STR("{}")}};

	say(w, "j1", RPC_add, &r, 0);
	run_ms(w, 5);
	return id;
}

static const struct msg_register_reply *enroll(
	struct world *w, const char *to, const char *name, int64_t base)
{
	struct msg_register_request r = {.executor = str_from(name), .base = base};
	struct sent *s = say(w, to, RPC_register, &r, 0);

	run_ms(w, 5);
	assert_true(s->answered);
	return s->reply;
}

/* A report of the executor "e"; listed tasks are given after it by list_*(). */
struct words {
	struct msg_report_request r;
	struct str language;
	struct msg_complete_item complete[REFS_MAX];
	struct msg_executing_item executing[REFS_MAX];
};

static struct words *words(
	struct words *x, int64_t epoch, int64_t seq, int64_t acked, int64_t vacant)
{
	*x = (struct words){0};
	x->language = STR("raw");
	x->r = (struct msg_report_request){.executor = STR("e"),
		.epoch = epoch,
		.seq = seq,
		.acked = acked,
		.vacant = vacant,
		.wait_ms = 5000,
		.slots = 2};
	x->r.languages = (struct codec_list){&x->language, 1};
	x->r.complete.items = x->complete;
	x->r.executing.items = x->executing;
	return x;
}

static struct words *running(struct words *x, struct id id, int64_t attempt)
{
	x->executing[x->r.executing.count++] =
		(struct msg_executing_item){.id = id, .attempt = attempt, .status = STR("running")};
	return x;
}

static struct words *finished(struct words *x, struct id id, int64_t attempt)
{
	x->complete[x->r.complete.count++] = (struct msg_complete_item){.id = id,
		.attempt = attempt,
		.status = STR("success"),
		.verdict = STR("accepted"),
		.result = {.text = STR("{\"verdict\":\"accepted\"}")}};
	return x;
}

static struct sent *report(struct world *w, const char *to, struct words *x)
{
	struct sent *s = say(w, to, RPC_report, &x->r, x->r.wait_ms);

	run_ms(w, 5);
	return s;
}

/* --- what is seen ------------------------------------------------------------------------------------------- */

static const struct msg_report_reply *answer(const struct sent *s)
{
	assert_true(s->answered);
	assert_int_equal(s->failure, RPC_OK);
	return s->reply;
}

static void answer_is(
	const struct sent *s, bool fenced, size_t accepted, size_t cancel, size_t assign)
{
	const struct msg_report_reply *r = answer(s);

	assert_int_equal(r->fenced, fenced);
	assert_int_equal(r->accepted.count, accepted);
	assert_int_equal(r->cancel.count, cancel);
	assert_int_equal(r->assign.count, assign);
}

static const struct msg_assign_item *assigned(const struct sent *s)
{
	return codec_item(answer(s)->assign, struct msg_assign_item, 0);
}

static const struct msg_task_view *see(struct world *w, struct id id)
{
	struct msg_get_item item = {.id = id};
	struct msg_get_request r = {.items = {&item, 1}};
	struct sent *s = say(w, "j1", RPC_get, &r, 0);
	const struct msg_get_reply *reply;

	run_ms(w, 5);
	assert_true(s->answered);
	assert_int_equal(s->failure, RPC_OK);
	reply = s->reply;
	assert_int_equal(reply->tasks.count, 1);
	return codec_item(reply->tasks, struct msg_task_view, 0);
}

static void task_is(
	struct world *w, struct id id, const char *status, int64_t attempt, int64_t retries)
{
	const struct msg_task_view *v = see(w, id);

	assert_memory_equal(v->status.p, status, v->status.n);
	assert_int_equal(v->status.n, strlen(status));
	assert_int_equal(v->attempt, attempt);
	assert_int_equal(v->retries, retries);
}

/* Epoch 1 of "e" holds one running task. */
static struct id one_running(struct world *w, struct words *x)
{
	struct id id = add(w, "j1");
	struct sent *s;

	assert_int_equal(enroll(w, "j1", "e", 0)->epoch, 1);
	s = report(w, "j1", words(x, 1, 1, 0, 1));
	answer_is(s, false, 0, 0, 1);
	assert_true(id_eq(&assigned(s)->id, &id));
	assert_int_equal(assigned(s)->attempt, 1);
	return id;
}

/* --- the traces ------------------------------------------------------------------------------------------------- */

static void l1_a_registration_given_up_on_arrives_late(void **state)
{
	struct world *w = *state;
	struct msg_register_request r = {.executor = STR("e"), .base = 0};
	struct words x;
	struct sent *late;

	be_late(w, "register", false, 8 * US_PER_S);
	late = say(w, "j1", RPC_register, &r, 0);
	run_ms(w, 5);
	sent_give_up(late);
	assert_int_equal(enroll(w, "j2", "e", 0)->epoch, 1);
	run_ms(w, 10000); /* the late one is in, by now */
	late = report(w, "j2", words(&x, 1, 1, 0, 0));
	run_ms(w, 6000);
	answer_is(late, false, 0, 0, 0);
}

static void l1_an_unconditional_register_is_answered_with_the_last_epoch(void **state)
{
	struct world *w = *state;
	const struct msg_register_reply *reply;

	assert_int_equal(enroll(w, "j1", "e", 0)->epoch, 1);
	reply = enroll(w, "j2", "e", 0);
	assert_true(reply->conflict);
	assert_int_equal(reply->epoch, 1);
	reply = enroll(w, "j2", "e", 1);
	assert_false(reply->conflict);
	assert_int_equal(reply->epoch, 2);
}

static void l2_back_before_expiry_is_counted(void **state)
{
	struct world *w = *state;
	struct words x;
	struct id id = one_running(w, &x);

	assert_int_equal(enroll(w, "j2", "e", 1)->epoch, 2);
	task_is(w, id, "retrying", 1, 1);
}

static void l2_a_poison_task_ends_as_error(void **state)
{
	struct world *w = *state;
	struct words x;
	struct id id = one_running(w, &x);

	for (int64_t epoch = 1; epoch <= 4; epoch++) {
		assert_int_equal(enroll(w, "j1", "e", epoch)->epoch, epoch + 1);
		if (epoch < 4)
			answer_is(report(w, "j1", words(&x, epoch + 1, 1, 0, 1)), false, 0, 0, 1);
	}
	task_is(w, id, "error", 4, 4);
}

static void l3_register_claims_nothing(void **state)
{
	struct world *w = *state;
	struct id id = add(w, "j1");

	assert_int_equal(enroll(w, "j1", "e", 0)->epoch, 1);
	assert_int_equal(enroll(w, "j1", "e", 1)->epoch, 2);
	task_is(w, id, "pending", 0, 0);
}

static void l4_a_poll_of_a_retired_epoch_claims_nothing(void **state)
{
	struct world *w = *state;
	struct words x;
	struct sent *old;
	struct id id;

	enroll(w, "j1", "e", 0);
	old = report(w, "j1", words(&x, 1, 1, 0, 1));
	assert_false(old->answered);
	enroll(w, "j2", "e", 1); /* j1 is not told */
	id = add(w, "j1");
	run_ms(w, 400);
	answer_is(old, true, 0, 0, 0);
	task_is(w, id, "pending", 0, 0);
	answer_is(report(w, "j2", words(&x, 2, 1, 0, 1)), false, 0, 0, 1);
}

static void l4_a_poll_of_a_dead_executor_is_fenced(void **state)
{
	struct world *w = *state;
	struct words x;
	struct id id = one_running(w, &x);
	unsigned i;

	for (i = 0; i < 40; i++)
		run_ms(w, 1000);
	task_is(w, id, "retrying", 1, 1);
	answer_is(report(w, "j1", running(words(&x, 1, 2, 1, 1), id, 1)), true, 0, 0, 0);
	task_is(w, id, "retrying", 1, 1);
}

static void note_status(void *arg, enum store_status status)
{
	*(enum store_status *)arg = status;
}

static void l5_lose_takes_exactly_what_was_seen(void **state)
{
	struct world *w = *state;
	struct words x;
	struct id id = one_running(w, &x);
	enum store_status status = STORE_OK;

	answer_is(report(w, "j1", finished(words(&x, 1, 2, 1, 1), id, 1)), false, 1, 0, 0);
	id = add(w, "j1");
	answer_is(report(w, "j1", words(&x, 1, 3, 2, 1)), false, 0, 0, 1);
	/* the leader saw seq 1, and its statement arrives only now */
	w->stores[1]->ops->lose(w->stores[1], STR("e"), 1, 1, note_status, &status);
	run_ms(w, 5);
	assert_int_equal(status, STORE_STALE);
	answer_is(report(w, "j1", finished(words(&x, 1, 4, 3, 1), id, 1)), false, 1, 0, 0);
	task_is(w, id, "success", 1, 0);
}

static void l6_an_epoch_is_kept_for_ever(void **state)
{
	struct world *w = *state;
	struct words x;
	struct id id = one_running(w, &x);
	enum store_status status = STORE_E_FAILED;
	const struct msg_register_reply *reply;

	w->stores[0]->ops->lose(w->stores[0], STR("e"), 1, 1, note_status, &status);
	run_ms(w, 5);
	assert_int_equal(status, STORE_OK);
	w->stores[0]->ops->drop(w->stores[0], STR("e"), note_status, &status);
	run_ms(w, 5);
	assert_int_equal(status, STORE_OK);
	reply = enroll(w, "j1", "e", 0);
	assert_true(reply->conflict);
	assert_int_equal(reply->epoch, 1);
	assert_int_equal(enroll(w, "j1", "e", 1)->epoch, 2);
	answer_is(report(w, "j2", running(words(&x, 1, 9, 8, 1), id, 1)), true, 0, 0, 0);
}

static void l7_a_result_whose_acceptance_was_lost_is_cancelled(void **state)
{
	struct world *w = *state;
	struct words x;
	struct id id = one_running(w, &x);
	struct sent *lost;

	be_late(w, "report", true, -1);
	lost = report(w, "j1", finished(words(&x, 1, 2, 1, 0), id, 1));
	assert_false(lost->answered);
	sent_give_up(lost);
	answer_is(report(w, "j2", finished(words(&x, 1, 3, 2, 0), id, 1)), false, 0, 1, 0);
	task_is(w, id, "success", 1, 0);
}

static void l8_a_claim_goes_out_in_its_own_reports_reply(void **state)
{
	struct world *w = *state;
	struct words x;
	struct sent *first, *second;
	struct id id;

	enroll(w, "j1", "e", 0);
	first = report(w, "j1", words(&x, 1, 1, 0, 1));
	assert_false(first->answered);
	second = report(w, "j1", words(&x, 1, 2, 0, 1));
	answer_is(first, false, 0, 0, 0);
	assert_int_equal(answer(first)->seq, 1);
	assert_false(second->answered);
	id = add(w, "j1");
	answer_is(second, false, 0, 0, 1);
	assert_int_equal(answer(second)->seq, 2);
	assert_true(id_eq(&assigned(second)->id, &id));
}

static void l8_an_older_report_does_not_empty_a_newer_reply(void **state)
{
	struct world *w = *state;
	struct words x;
	struct sent *newer;

	enroll(w, "j1", "e", 0);
	newer = report(w, "j1", words(&x, 1, 2, 0, 1));
	answer_is(report(w, "j1", words(&x, 1, 1, 0, 1)), false, 0, 0, 0);
	assert_false(newer->answered);
	add(w, "j1");
	answer_is(newer, false, 0, 0, 1);
}

static void l9_no_undo_once_the_reply_is_out(void **state)
{
	struct world *w = *state;
	struct words x;
	struct id id = one_running(w, &x);

	sent_give_up(w->sent[w->n_sent - 1]); /* the connection closes after the reply */
	run_ms(w, 1000);
	answer_is(report(w, "j1", finished(words(&x, 1, 2, 1, 1), id, 1)), false, 1, 0, 0);
}

static void l9_an_undo_of_one_claim_leaves_another(void **state)
{
	struct world *w = *state;
	struct words x;
	struct id id = one_running(w, &x);
	enum store_status status;

	/* not listed though acked: back, uncounted; and claimed again by the same report */
	answer_is(report(w, "j1", words(&x, 1, 2, 1, 1)), false, 0, 0, 1);
	task_is(w, id, "retrying", 2, 0);
	w->stores[0]->ops->undo(w->stores[0], id, STR("e"), 1, 1, note_status, &status);
	run_ms(w, 5);
	answer_is(report(w, "j1", finished(words(&x, 1, 3, 2, 0), id, 2)), false, 1, 0, 0);
}

static void l9_a_caller_gone_before_the_claim_gets_it_undone(void **state)
{
	struct world *w = *state;
	struct words x;
	struct sent *held;
	struct id id;

	enroll(w, "j1", "e", 0);
	held = report(w, "j1", words(&x, 1, 1, 0, 1));
	sent_give_up(held);
	run_ms(w, 5);
	id = add(w, "j1");
	run_ms(w, 600);
	task_is(w, id, "pending", 0, 0); /* dropped while held: no claim at all */
}

static void l10_two_open_reports_bring_one_task_for_one_slot(void **state)
{
	struct world *w = *state;
	struct words x;
	struct sent *first, *second;
	struct id a = add(w, "j1"), b = add(w, "j1");

	enroll(w, "j1", "e", 0);
	be_late(w, "report", true, 2 * US_PER_S); /* the claim is in a reply still under way */
	first = report(w, "j1", words(&x, 1, 1, 0, 1));
	second = report(w, "j1", words(&x, 1, 2, 0, 1));
	run_ms(w, 1000);
	assert_false(first->answered);
	assert_false(second->answered);
	task_is(w, b, "pending", 0, 0);
	run_ms(w, 1500);
	answer_is(first, false, 0, 0, 1);
	assert_true(id_eq(&assigned(first)->id, &a));
}

static void l11_a_lone_task_is_the_sole_claim(void **state)
{
	struct world *w = *state;
	struct words x;
	struct id lone = one_running(w, &x), other;
	struct sent *s;

	enroll(w, "j1", "e", 1);
	other = add(w, "j1");
	s = report(w, "j1", words(&x, 2, 1, 0, 4));
	answer_is(s, false, 0, 0, 1);
	assert_true(id_eq(&assigned(s)->id, &lone));
	assert_true(assigned(s)->lone);
	/* while it is held nothing else is given */
	s = report(w, "j1", running(words(&x, 2, 2, 1, 3), lone, 2));
	assert_false(s->answered);
	s = report(w, "j1", finished(words(&x, 2, 3, 2, 4), lone, 2));
	answer_is(s, false, 1, 0, 1);
	assert_true(id_eq(&assigned(s)->id, &other));
	assert_false(assigned(s)->lone);
}

static void l11_a_lone_task_waits_for_an_empty_executor_and_gets_one(void **state)
{
	struct world *w = *state;
	struct words x;
	struct id lone = one_running(w, &x), busy;
	struct sent *s;

	enroll(w, "j1", "e", 1); /* lone is back, counted */
	enroll(w, "j1", "f", 0);
	busy = add_urgent(w); /* it goes first, so that the executor is busy */
	s = report(w, "j1", words(&x, 2, 1, 0, 1));
	answer_is(s, false, 0, 0, 1);
	assert_true(id_eq(&assigned(s)->id, &busy));
	s = report(w, "j1", running(words(&x, 2, 2, 1, 1), busy, 1));
	run_ms(w, 100);
	assert_false(s->answered);
	task_is(w, lone, "retrying", 1, 1);
	s = report(w, "j1", finished(words(&x, 2, 3, 2, 2), busy, 1));
	answer_is(s, false, 1, 0, 0); /* something is listed still */
	s = report(w, "j1", words(&x, 2, 4, 3, 2));
	answer_is(s, false, 0, 0, 1);
	assert_true(id_eq(&assigned(s)->id, &lone));
}

static void l12_a_late_report_claims_for_nobody(void **state)
{
	struct world *w = *state;
	struct words x;
	struct sent *late, *next;
	struct id id;

	enroll(w, "j1", "e", 0);
	be_late(w, "report", false, 3 * US_PER_S);
	late = report(w, "j1", words(&x, 1, 1, 0, 2));
	sent_give_up(late);
	next = report(w, "j2", words(&x, 1, 2, 1, 0));
	id = add(w, "j1");
	run_ms(w, 4000);
	task_is(w, id, "pending", 0, 0);
	assert_false(next->answered);
}

static void l12_progress_does_not_move_backwards(void **state)
{
	struct world *w = *state;
	struct words x;
	struct id id = one_running(w, &x);

	report(w, "j1", running(words(&x, 1, 3, 1, 0), id, 1));
	running(words(&x, 1, 2, 1, 0), id, 1);
	x.executing[0].status = STR("compiling");
	answer_is(report(w, "j1", &x), false, 0, 0, 0);
	task_is(w, id, "running", 1, 0);
}

static void l13_check_and_claim_are_one_transaction(void **state)
{
	struct world *w = *state;
	struct words x;
	struct sent *old;
	struct id id;

	/* the poll is held by j1; register, and the new work, come in through j2 in the same moment */
	enroll(w, "j1", "e", 0);
	old = report(w, "j1", words(&x, 1, 1, 0, 1));
	{
		struct msg_register_request r = {.executor = STR("e"), .base = 1};
		struct msg_add_request a = {
			.id = id_make(99, 7), .language = STR("raw"), .doc = {.text = STR("{}")}};

		id = a.id;
		say(w, "j2", RPC_register, &r, 0);
		say(w, "j1", RPC_add, &a, 0);
		run_ms(w, 500);
	}
	answer_is(old, true, 0, 0, 0);
	task_is(w, id, "pending", 0, 0);
}

/* --- beside the traces: what the judicator adds --------------------------------------------------------------- */

static void a_held_report_never_looks_like_death(void **state)
{
	struct world *w = *state;
	struct words x;
	struct sent *s;

	enroll(w, "j1", "e", 0);
	words(&x, 1, 1, 0, 1)->r.wait_ms = 60000; /* longer than expire */
	s = report(w, "j1", &x);
	run_ms(w, EXPIRE_US / 1000 / 3 + 100);
	answer_is(s, false, 0, 0, 0);
}

static unsigned losses;

static void lose_badly(struct store *store, struct str executor, int64_t epoch, int64_t seq,
	store_done_fn *cb, void *arg)
{
	if (losses++)
		store_memory.lose(store, executor, epoch, seq, cb, arg);
	else
		cb(arg, STORE_E_FAILED);
}

static void a_duty_the_store_could_not_do_is_done_later(void **state)
{
	struct world *w = *state;
	struct words x;
	struct id id = one_running(w, &x);
	struct store_ops ops = store_memory;

	losses = 0;
	ops.lose = lose_badly;
	w->stores[0]->ops = &ops;
	run_ms(w, 35000);
	assert_int_equal(losses, 1);
	task_is(w, id, "pending", 1, 0);
	run_ms(w, 35000);
	assert_true(losses > 1);
	task_is(w, id, "retrying", 1, 1);
	w->stores[0]->ops = &store_memory;
}

static void an_executor_is_drained_for_a_lone_task(void **state)
{
	struct world *w = *state;
	struct words x;
	struct id lone = one_running(w, &x), busy, other;
	struct sent *s;

	enroll(w, "j1", "e", 1);
	busy = add_urgent(w);
	s = report(w, "j1", words(&x, 2, 1, 0, 1));
	answer_is(s, false, 0, 0, 1);
	report(w, "j1", running(words(&x, 2, 2, 1, 1), busy, 1));
	run_ms(w, 1500); /* the fallback tick asks again: lone has waited for over a second */
	other = add_urgent(w);
	s = report(w, "j1", running(words(&x, 2, 3, 2, 1), busy, 1));
	run_ms(w, 400);
	assert_false(s->answered); /* it is given nothing, not even what is urgent */
	task_is(w, other, "pending", 0, 0);
	s = report(w, "j1", finished(words(&x, 2, 4, 3, 2), busy, 1));
	answer_is(s, false, 1, 0, 0);
	s = report(w, "j1", words(&x, 2, 5, 4, 2));
	answer_is(s, false, 0, 0, 1); /* empty: now the best, which is urgent */
	assert_true(id_eq(&assigned(s)->id, &other));
	answer_is(report(w, "j1", finished(words(&x, 2, 6, 5, 2), other, 1)), false, 1, 0, 0);
	s = report(w, "j1", words(&x, 2, 7, 6, 2));
	answer_is(s, false, 0, 0, 1);
	assert_true(id_eq(&assigned(s)->id, &lone));
}

static void a_stopping_judicator_sends_callers_elsewhere(void **state)
{
	struct world *w = *state;
	struct words x;
	struct sent *s, *held;

	enroll(w, "j1", "e", 0);
	held = report(w, "j1", words(&x, 1, 1, 0, 1));
	judicator_stop(w->judicators[0], NULL, NULL);
	run_ms(w, 5);
	answer_is(held, false, 0, 0, 0);
	s = report(w, "j1", words(&x, 1, 2, 1, 1));
	assert_true(s->answered);
	assert_true(rpc_failure_is_temporary(s->failure));
	assert_false(report(w, "j2", words(&x, 1, 3, 2, 1))->answered);
}

#define TRACE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TRACE(l1_a_registration_given_up_on_arrives_late),
		TRACE(l1_an_unconditional_register_is_answered_with_the_last_epoch),
		TRACE(l2_back_before_expiry_is_counted),
		TRACE(l2_a_poison_task_ends_as_error),
		TRACE(l3_register_claims_nothing),
		TRACE(l4_a_poll_of_a_retired_epoch_claims_nothing),
		TRACE(l4_a_poll_of_a_dead_executor_is_fenced),
		TRACE(l5_lose_takes_exactly_what_was_seen),
		TRACE(l6_an_epoch_is_kept_for_ever),
		TRACE(l7_a_result_whose_acceptance_was_lost_is_cancelled),
		TRACE(l8_a_claim_goes_out_in_its_own_reports_reply),
		TRACE(l8_an_older_report_does_not_empty_a_newer_reply),
		TRACE(l9_no_undo_once_the_reply_is_out),
		TRACE(l9_an_undo_of_one_claim_leaves_another),
		TRACE(l9_a_caller_gone_before_the_claim_gets_it_undone),
		TRACE(l10_two_open_reports_bring_one_task_for_one_slot),
		TRACE(l11_a_lone_task_is_the_sole_claim),
		TRACE(l11_a_lone_task_waits_for_an_empty_executor_and_gets_one),
		TRACE(l12_a_late_report_claims_for_nobody),
		TRACE(l12_progress_does_not_move_backwards),
		TRACE(l13_check_and_claim_are_one_transaction),
		TRACE(a_held_report_never_looks_like_death),
		TRACE(a_duty_the_store_could_not_do_is_done_later),
		TRACE(an_executor_is_drained_for_a_lone_task),
		TRACE(a_stopping_judicator_sends_callers_elsewhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
