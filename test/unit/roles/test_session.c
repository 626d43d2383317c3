/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor's side of the report protocol, against a judicator played by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/executor/session.h"
#include "test/fake/judge.h"

#define ID_A "aaaaaaaaaaaaaaaaaaaaaaaa"
#define WAIT_US (2 * US_PER_S)
#define MS US_PER_MS

struct world {
	struct loop *loop;
	struct loop_net *net;
	struct transport *j1_transport, *j2_transport, *e_transport;
	struct judge j1, j2;
	struct session *session;
	/* what the session said */
	unsigned n_fill, n_accepted, n_cancel, n_assign, n_reply, n_settled, n_fenced;
	int64_t vacant;
	/* fate of messages */
	int64_t report_reply_delay_us, register_delay_us;
};

static void on_fill(void *arg, struct msg_report_request *request)
{
	struct world *w = arg;

	w->n_fill++;
	request->vacant = w->vacant;
}

static void on_accepted(void *arg, const struct msg_task_ref *claim)
{
	((struct world *)arg)->n_accepted++;
}

static void on_cancel(void *arg, const struct msg_task_ref *claim)
{
	((struct world *)arg)->n_cancel++;
}

static void on_assign(void *arg, const struct msg_assign_item *item)
{
	((struct world *)arg)->n_assign++;
}

static void on_reply(void *arg, bool settled)
{
	struct world *w = arg;

	w->n_reply++;
	w->n_settled += settled;
}

static void on_fenced(void *arg)
{
	((struct world *)arg)->n_fenced++;
}

static struct session *new_session(struct world *w, const char *judicators)
{
	static const struct session_events events = {
		.fill = on_fill,
		.on_accepted = on_accepted,
		.on_cancel = on_cancel,
		.on_assign = on_assign,
		.on_reply = on_reply,
		.on_fenced = on_fenced,
	};
	struct str languages[] = {STR("raw"), STR("c")};

	return session_new(w->loop,
		&(struct session_options){
			.name = "e1",
			.judicators = judicators,
			.transport = w->e_transport,
			.wait_us = WAIT_US,
			.slots = 3,
			.isolation = "fake",
			.toolchains = STR("{\"c\":\"gcc 12\"}"),
			.languages = {languages, 2},
		},
		&events, w);
}

static int64_t fate(void *arg, const char *from, const char *to, const char *method, bool is_reply,
	struct str body)
{
	struct world *w = arg;

	if (strcmp(method, "register") == 0)
		return w->register_delay_us;
	return is_reply ? w->report_reply_delay_us : 1 * MS;
}

static int setup(void **state)
{
	struct world *w = mem_alloc(sizeof(*w));

	w->loop = loop_new(&(struct loop_options){.fake_clock = true, .seed = 7});
	w->net = loop_net_new(w->loop, NULL);
	w->report_reply_delay_us = w->register_delay_us = 1 * MS;
	loop_net_set_fate(w->net, fate, w);
	w->j1_transport = transport_loop_new(w->net, "j1");
	w->j2_transport = transport_loop_new(w->net, "j2");
	w->e_transport = transport_loop_new(w->net, "e1");
	judge_open(&w->j1, w->loop, w->j1_transport, "j1:1");
	w->j1.hold_all = true;
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	session_free(w->session);
	judge_close(&w->j1);
	judge_close(&w->j2);
	w->e_transport->ops->free(w->e_transport);
	w->j1_transport->ops->free(w->j1_transport);
	w->j2_transport->ops->free(w->j2_transport);
	loop_net_free(w->net);
	loop_free(w->loop);
	free(w);
	return 0;
}

static void pass(struct world *w, int64_t us)
{
	loop_advance_us(w->loop, us);
}

static const struct msg_report_reply nothing = {0};

static void registers_by_conflict(void **state)
{
	struct world *w = *state;
	const struct msg_report_request *request;

	w->j1.epoch = 5;
	w->vacant = 3;
	w->session = new_session(w, "j1:1");
	assert_int_equal(w->j1.n_registers, 0);
	pass(w, 20 * MS);
	assert_int_equal(w->j1.n_registers, 2);
	assert_int_equal(session_epoch(w->session), 6);
	assert_int_equal(w->j1.n_reports, 1);
	request = judge_last(&w->j1)->request;
	assert_true(str_is(request->executor, "e1"));
	assert_int_equal(request->epoch, 6);
	assert_int_equal(request->seq, 1);
	assert_int_equal(request->acked, 0);
	assert_int_equal(request->vacant, 3);
	assert_int_equal(request->slots, 3);
	assert_int_equal(request->wait_ms, WAIT_US / MS);
	assert_int_equal(request->languages.count, 2);
	assert_true(str_is(request->isolation, "fake"));
}

/* L1: a registration that got no answer is closed before the next; its late answer is nobody's. */
static void a_lost_registration_is_closed_first(void **state)
{
	struct world *w = *state;

	w->j1.ignore = 1; /* taken (epoch 1), never answered */
	w->session = new_session(w, "j1:1");
	pass(w, 4 * US_PER_S);
	assert_int_equal(w->j1.n_registers, 1);
	assert_int_equal(session_epoch(w->session), 0);
	pass(w, 3 * US_PER_S);
	/* base 0 is no longer right: conflict, then base 1 */
	assert_int_equal(w->j1.n_registers, 3);
	assert_int_equal(session_epoch(w->session), 2);
}

/* The answer comes after the try was given up on: it must not be taken for the answer to the next. */
static void a_late_registration_is_not_applied(void **state)
{
	struct world *w = *state;

	w->register_delay_us = 3 * US_PER_S; /* 6 s there and back, given up after 5 */
	w->session = new_session(w, "j1:1");
	pass(w, 5500 * MS);
	w->register_delay_us = 1 * MS;
	pass(w, 10 * US_PER_S);
	assert_true(session_epoch(w->session) == w->j1.epoch);
	assert_int_equal(w->n_fenced, 0);
	assert_int_equal(judge_last(&w->j1)->request->epoch, w->j1.epoch);
}

static void start(struct world *w)
{
	w->session = new_session(w, "j1:1");
	pass(w, 10 * MS);
	assert_int_equal(w->j1.n_reports, 1);
}

static void at_most_two_are_open(void **state)
{
	struct world *w = *state;

	start(w);
	pass(w, 500 * MS);
	assert_int_equal(w->j1.n_reports, 1); /* nothing to say */
	session_changed(w->session, SESSION_NOW);
	pass(w, 2 * MS);
	assert_int_equal(w->j1.n_reports, 2);
	assert_int_equal(w->j1.reports[1].request->acked, 0); /* #1 is open */
	session_changed(w->session, SESSION_NOW);
	pass(w, 200 * MS);
	assert_int_equal(w->j1.n_reports, 2);
	assert_int_equal(session_open(w->session), 2);
	judge_answer(&w->j1, &w->j1.reports[0], nothing);
	pass(w, 3 * MS);
	assert_int_equal(w->j1.n_reports, 3);
	assert_int_equal(w->j1.reports[2].request->acked, 1); /* #2 is still open */
	judge_answer(&w->j1, &w->j1.reports[1], nothing);
	pass(w, 200 * MS);
	assert_int_equal(w->j1.n_reports, 3); /* #3 is open and says all */
}

static void a_newest_report_is_always_open(void **state)
{
	struct world *w = *state;

	start(w);
	session_changed(w->session, SESSION_NOW);
	pass(w, 2 * MS);
	judge_answer(&w->j1, &w->j1.reports[1], nothing); /* #2, while #1 is open */
	pass(w, 3 * MS);
	assert_int_equal(w->j1.n_reports, 3);
	assert_int_equal(w->j1.reports[2].request->seq, 3);
	assert_int_equal(w->j1.reports[2].request->acked, 0);
}

static void progress_waits_results_do_not(void **state)
{
	struct world *w = *state;

	start(w);
	session_changed(w->session, SESSION_SOON);
	pass(w, 60 * MS);
	session_changed(w->session, SESSION_SOON); /* together with the first */
	assert_int_equal(w->j1.n_reports, 1);
	pass(w, 45 * MS);
	assert_int_equal(w->j1.n_reports, 2);
	judge_answer(&w->j1, &w->j1.reports[0], nothing);
	pass(w, 2 * MS);
	session_changed(w->session, SESSION_SOON);
	pass(w, 10 * MS);
	session_changed(w->session, SESSION_NOW); /* takes the progress along */
	pass(w, 2 * MS);
	assert_int_equal(w->j1.n_reports, 3);
	judge_answer(&w->j1, &w->j1.reports[1], nothing);
	pass(w, 300 * MS);
	assert_int_equal(w->j1.n_reports, 3);
}

/* The reply was on its way for longer than we waited: its claims are not ours (the store takes them back by `acked`). */
static void a_late_reply_is_never_applied(void **state)
{
	struct world *w = *state;
	struct msg_assign_item item = {.attempt = 1, .doc = {.text = STR("{}")}};
	struct msg_report_reply reply = {.assign = {&item, 1}};

	assert_true(id_parse(STR(ID_A), &item.id));
	start(w);
	w->report_reply_delay_us = 8 * US_PER_S;
	judge_answer(&w->j1, &w->j1.reports[0], reply);
	w->report_reply_delay_us = 1 * MS;
	pass(w, WAIT_US + 5 * US_PER_S + 300 * MS);
	assert_int_equal(w->j1.n_reports, 2);
	assert_int_equal(w->j1.reports[1].request->seq, 2);
	assert_int_equal(w->j1.reports[1].request->acked, 1); /* closed for good */
	pass(w, 5 * US_PER_S);
	assert_int_equal(w->n_assign, 0);
	assert_int_equal(w->n_reply, 0);
}

static void each_part_of_a_reply_is_applied(void **state)
{
	struct world *w = *state;
	struct msg_task_ref ref = {.attempt = 1};
	struct msg_assign_item item = {.attempt = 1, .doc = {.text = STR("{}")}};
	struct msg_report_reply reply = {
		.accepted = {&ref, 1}, .cancel = {&ref, 1}, .assign = {&item, 1}};

	assert_true(id_parse(STR(ID_A), &item.id));
	ref.id = item.id;
	start(w);
	judge_answer(&w->j1, &w->j1.reports[0], reply);
	pass(w, 2 * MS);
	assert_int_equal(w->n_accepted, 1);
	assert_int_equal(w->n_cancel, 1);
	assert_int_equal(w->n_assign, 1);
	assert_int_equal(w->n_reply, 1);
	pass(w, 2 * MS);
	assert_int_equal(w->j1.n_reports, 2); /* at once: it brought something new */
	assert_int_equal(w->j1.reports[1].request->acked, 1);
}

static void an_answer_to_another_report_is_not_applied(void **state)
{
	struct world *w = *state;
	struct msg_task_ref ref = {.attempt = 1};
	struct msg_report_reply reply = {.seq = 9, .accepted = {&ref, 1}};

	assert_true(id_parse(STR(ID_A), &ref.id));
	start(w);
	judge_answer(&w->j1, &w->j1.reports[0], reply);
	pass(w, 300 * MS);
	assert_int_equal(w->n_accepted, 0);
	assert_true(w->j1.n_reports >= 2); /* and it goes on */
}

static void settled_means_the_store_knows_all(void **state)
{
	struct world *w = *state;

	start(w);
	session_changed(w->session, SESSION_NOW);
	pass(w, 2 * MS);
	judge_answer(&w->j1, &w->j1.reports[0], nothing);
	judge_answer(&w->j1, &w->j1.reports[1], nothing); /* it said acked = 0 */
	pass(w, 2 * MS);
	assert_int_equal(w->n_reply, 2);
	assert_int_equal(w->n_settled, 0);
	pass(w, 2 * MS);
	assert_int_equal(w->j1.n_reports, 3);
	judge_answer(&w->j1, &w->j1.reports[2], nothing); /* acked = 2, alone */
	pass(w, 2 * MS);
	assert_int_equal(w->n_settled, 1);
}

/* A judicator that answers at once with nothing must not make us spin. */
static void early_empty_replies_do_not_spin(void **state)
{
	struct world *w = *state;
	int64_t end_us;
	unsigned n;

	start(w);
	end_us = loop_now_us(w->loop) + 1 * US_PER_S;
	while (loop_now_us(w->loop) < end_us) {
		if (judge_last(&w->j1)->call)
			judge_answer(&w->j1, judge_last(&w->j1), nothing);
		pass(w, 1 * MS);
	}
	assert_in_range(w->j1.n_reports, 9, 12);
	/* but what is new goes out at once all the same */
	while (!judge_last(&w->j1)->call)
		pass(w, 1 * MS);
	judge_answer(&w->j1, judge_last(&w->j1), nothing);
	pass(w, 2 * MS);
	n = w->j1.n_reports;
	session_changed(w->session, SESSION_NOW);
	pass(w, 2 * MS);
	assert_int_equal(w->j1.n_reports, n + 1);
}

/* The same while an older report is stuck: its reply was lost, say. */
static void a_stuck_report_does_not_make_us_spin(void **state)
{
	struct world *w = *state;

	start(w);
	for (int i = 0; i < 1000; i++) {
		if (w->j1.n_reports > 1 && judge_last(&w->j1)->call)
			judge_answer(&w->j1, judge_last(&w->j1), nothing);
		if (i == 0)
			session_changed(w->session, SESSION_NOW);
		pass(w, 1 * MS);
	}
	assert_in_range(w->j1.n_reports, 9, 14);
}

static void a_refusal_moves_to_the_next_at_once(void **state)
{
	struct world *w = *state;
	unsigned before;

	judge_open(&w->j2, w->loop, w->j2_transport, "j2:1");
	judge_close(&w->j1); /* nobody there */
	w->session = new_session(w, "j1:1,j2:1,j3:1");
	pass(w, 50 * MS);
	assert_int_equal(session_epoch(w->session), 1);
	assert_int_equal(w->j2.n_reports, 1);
	/* it dies; all refuse: tried again with backoff, neither spinning nor giving up */
	judge_close(&w->j2);
	pass(w, 60 * US_PER_S);
	before = w->n_fill;
	assert_in_range(before, 30, 100);
	judge_open(&w->j2, w->loop, w->j2_transport, "j2:1");
	w->j2.epoch = 1;
	pass(w, 4 * US_PER_S);
	assert_true(w->j2.n_reports >= 1);
	assert_int_equal(judge_last(&w->j2)->request->epoch, 1);
}

static void a_silent_cut_is_noticed(void **state)
{
	struct world *w = *state;

	judge_open(&w->j2, w->loop, w->j2_transport, "j2:1");
	w->session = new_session(w, "j1:1,j2:1");
	pass(w, 50 * MS);
	assert_int_equal(session_epoch(w->session), 1);
	w->j1.epoch = w->j2.epoch = 1; /* one store */
	loop_net_cut(w->net, "e1", w->j1.n_reports ? "j1" : "j2", true);
	pass(w, WAIT_US + 5 * US_PER_S + 100 * MS);
	assert_int_equal(w->j1.n_reports, 1);
	assert_int_equal(w->j2.n_reports, 1);
}

static void fenced_is_the_end(void **state)
{
	struct world *w = *state;
	struct msg_report_reply reply = {.fenced = true};
	struct msg_task_ref ref = {.attempt = 1};

	assert_true(id_parse(STR(ID_A), &ref.id));
	start(w);
	session_changed(w->session, SESSION_NOW);
	pass(w, 2 * MS);
	judge_answer(&w->j1, &w->j1.reports[1], reply);
	judge_answer(&w->j1, &w->j1.reports[0],
		(struct msg_report_reply){.accepted = {&ref, 1}}); /* on its way: closed */
	pass(w, 2 * MS);
	session_changed(w->session, SESSION_NOW);
	pass(w, 60 * US_PER_S);
	assert_int_equal(w->n_fenced, 1);
	assert_int_equal(w->n_accepted, 0);
	assert_int_equal(w->j1.n_reports, 2);
	assert_int_equal(w->j1.n_registers, 1);
	assert_int_equal(session_open(w->session), 0);
}

static void free_closes_everything(void **state)
{
	struct world *w = *state;

	start(w);
	session_changed(w->session, SESSION_NOW);
	pass(w, 2 * MS);
	session_free(take_ptr(&w->session));
	pass(w, 2 * MS);
	assert_true(w->j1.reports[0].gone && w->j1.reports[1].gone);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(registers_by_conflict),
		TEST(a_lost_registration_is_closed_first),
		TEST(a_late_registration_is_not_applied),
		TEST(at_most_two_are_open),
		TEST(a_newest_report_is_always_open),
		TEST(progress_waits_results_do_not),
		TEST(a_late_reply_is_never_applied),
		TEST(each_part_of_a_reply_is_applied),
		TEST(an_answer_to_another_report_is_not_applied),
		TEST(settled_means_the_store_knows_all),
		TEST(early_empty_replies_do_not_spin),
		TEST(a_stuck_report_does_not_make_us_spin),
		TEST(a_refusal_moves_to_the_next_at_once),
		TEST(a_silent_cut_is_noticed),
		TEST(fenced_is_the_end),
		TEST(free_closes_everything),
	};
#undef TEST

	return cmocka_run_group_tests(tests, NULL, NULL);
}
