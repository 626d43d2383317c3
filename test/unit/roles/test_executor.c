/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole executor against a judicator played by hand: what is held, who may run, and how it ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/executor/executor.h"
#include "test/fake/box_fake.h"
#include "test/fake/judge.h"

#define A "aaaaaaaaaaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbbbbbbbbbb"
#define C "cccccccccccccccccccccccc"
#define D "dddddddddddddddddddddddd"
#define MS US_PER_MS
#define WAIT_US (5 * US_PER_S)

struct world {
	struct loop *loop;
	struct loop_net *net;
	struct transport *j_transport, *e_transport;
	struct judge judge;
	struct box_host *box;
	struct map languages;
	struct executor *executor;
	unsigned n_drained, n_fenced, n_broken;
	unsigned alive_at_end;
	bool lose_replies, free_inside;
};

static void on_end(void *arg, enum executor_end end)
{
	struct world *w = arg;

	w->n_drained += end == EXECUTOR_DRAINED;
	w->n_broken += end == EXECUTOR_BROKEN;
	w->n_fenced += end == EXECUTOR_FENCED;
	w->alive_at_end = executor_running(w->executor) + executor_held(w->executor);
	if (w->free_inside)
		executor_free(take_ptr(&w->executor));
}

static int64_t fate(void *arg, const char *from, const char *to, const char *method, bool is_reply,
	struct str body)
{
	struct world *w = arg;

	return is_reply && w->lose_replies ? -1 : 500;
}

static int setup(void **state)
{
	struct world *w = mem_alloc(sizeof(*w));
	char *why = NULL;

	w->loop = loop_new(&(struct loop_options){.fake_clock = true, .seed = 11});
	w->net = loop_net_new(w->loop, NULL);
	loop_net_set_fate(w->net, fate, w);
	w->j_transport = transport_loop_new(w->net, "j");
	w->e_transport = transport_loop_new(w->net, "e");
	judge_open(&w->judge, w->loop, w->j_transport, "j:1");
	map_init(&w->languages);
	assert_int_equal(box_host_open(w->loop, &box_fake,
				 &(struct box_options){.slots = 4, .helper_fd = -1}, &w->box, &why),
		0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	executor_free(w->executor);
	judge_close(&w->judge);
	w->e_transport->ops->free(w->e_transport);
	w->j_transport->ops->free(w->j_transport);
	loop_net_free(w->net);
	box_host_close(w->box);
	map_fini(&w->languages);
	loop_free(w->loop);
	free(w);
	return 0;
}

static void pass(struct world *w, int64_t us)
{
	loop_advance_us(w->loop, us);
}

static void start(struct world *w, unsigned slots, bool alone)
{
	w->executor = executor_new(w->loop, &(struct executor_options){
						    .name = "e1",
						    .slots = slots,
						    .alone = alone,
						    .transport = w->e_transport,
						    .judicators = "j:1",
						    .box = w->box,
						    .languages = &w->languages,
						    .wait_us = WAIT_US,
						    .on_end = on_end,
						    .arg = w,
					    });
	pass(w, 20 * MS);
}

/*** What the judicator says ***/

struct words { /* a reply in the making */
	struct msg_task_ref accepted[4], cancel[4];
	struct msg_assign_item assign[4];
	char docs[4][256];
	struct msg_report_reply reply;
};

static struct id id_of(const char *hex)
{
	struct id id;

	assert_true(id_parse(str_from(hex), &id));
	return id;
}

static void say_accepted(struct words *words, const char *id, int64_t attempt)
{
	words->reply.accepted.items = words->accepted;
	words->accepted[words->reply.accepted.count++] = (struct msg_task_ref){id_of(id), attempt};
}

static void say_cancel(struct words *words, const char *id, int64_t attempt)
{
	words->reply.cancel.items = words->cancel;
	words->cancel[words->reply.cancel.count++] = (struct msg_task_ref){id_of(id), attempt};
}

static void say_assign(
	struct words *words, const char *id, int64_t attempt, bool lone, const char *script)
{
	size_t i = words->reply.assign.count++;

	snprintf(words->docs[i], sizeof(words->docs[i]),
		"{\"execute\":{\"command\":[\"./p\",\"@-\"]},\"cases\":[{\"input\":\"%s\"}]}",
		script);
	words->reply.assign.items = words->assign;
	words->assign[i] = (struct msg_assign_item){
		.id = id_of(id),
		.attempt = attempt,
		.lone = lone,
		.doc = {.text = str_from(words->docs[i])},
	};
}

/* Answers the newest report, and lets the executor take it in and report again. */
static void answer(struct world *w, const struct words *words)
{
	judge_answer(&w->judge, judge_last(&w->judge), words->reply);
	pass(w, 2 * MS);
}

static void assign(struct world *w, const char *id, int64_t attempt, bool lone, const char *script)
{
	struct words words = {.reply = {0}};

	say_assign(&words, id, attempt, lone, script);
	answer(w, &words);
}

static void accept_result(struct world *w, const char *id, int64_t attempt)
{
	struct words words = {.reply = {0}};

	say_accepted(&words, id, attempt);
	answer(w, &words);
}

static void cancel(struct world *w, const char *id, int64_t attempt)
{
	struct words words = {.reply = {0}};

	say_cancel(&words, id, attempt);
	answer(w, &words);
}

static const struct msg_report_request *last(struct world *w)
{
	return judge_last(&w->judge)->request;
}

static void assert_listed(struct world *w, const char *id, int64_t attempt, const char *status)
{
	const struct msg_executing_item *item = judge_executing(judge_last(&w->judge), id);

	if (!item)
		fail_msg("%s is not listed", id);
	assert_int_equal(item->attempt, attempt);
	assert_true(str_is(item->status, status));
}

static void assert_complete(struct world *w, const char *id, int64_t attempt, const char *verdict)
{
	const struct msg_complete_item *item = judge_complete(judge_last(&w->judge), id);

	if (!item)
		fail_msg("%s is not complete", id);
	assert_int_equal(item->attempt, attempt);
	assert_true(str_is(item->verdict, verdict));
	assert_non_null(json_get(item->result.node, "cases"));
	assert_null(judge_executing(judge_last(&w->judge), id));
}

/*** Work ***/

static void a_task_from_claim_to_acceptance(void **state)
{
	struct world *w = *state;

	start(w, 3, false);
	assert_int_equal(last(w)->vacant, 3);
	assert_int_equal(last(w)->languages.count, 1); /* raw */
	assign(w, A, 1, false, "run_us=300000");
	assert_listed(w, A, 1, "compiling");
	assert_int_equal(last(w)->vacant, 2);
	assert_int_equal(executor_held(w->executor), 1);
	assert_true(executor_runs(w->executor, A));
	assert_false(executor_runs(w->executor, B));
	pass(w, 150 * MS);
	assert_listed(w, A, 1, "running");
	pass(w, 160 * MS);
	assert_complete(w, A, 1, "accepted");
	assert_true(str_is(judge_complete(judge_last(&w->judge), A)->status, "success"));
	assert_int_equal(last(w)->vacant, 3); /* a result takes no slot */
	assert_int_equal(executor_running(w->executor), 0);
	assert_int_equal(executor_held(w->executor), 1);
	accept_result(w, A, 1);
	assert_int_equal(executor_held(w->executor), 0);
	assert_int_equal(last(w)->complete.count, 0);
}

static void a_quick_task_reports_no_progress(void **state)
{
	struct world *w = *state;
	unsigned n;

	start(w, 1, false);
	n = w->judge.n_reports;
	assign(w, A, 1, false, "run_us=50000");
	pass(w, 60 * MS);
	assert_complete(w, A, 1, "accepted");
	assert_int_equal(w->judge.n_reports, n + 2); /* that it came, that it is done */
}

/* L7: the reply that accepted a result is lost; told again, the store says "not owned": dropped, at last. */
static void a_result_is_kept_until_we_know(void **state)
{
	struct world *w = *state;
	struct words words = {.reply = {0}};

	start(w, 1, false);
	assign(w, A, 1, false, "run_us=1000");
	pass(w, 5 * MS);
	assert_complete(w, A, 1, "accepted");
	say_accepted(&words, A, 1);
	w->lose_replies = true;
	judge_answer(&w->judge, judge_last(&w->judge), words.reply);
	w->lose_replies = false;
	pass(w, WAIT_US + 6 * US_PER_S);
	assert_int_equal(executor_held(w->executor), 1);
	assert_complete(w, A, 1, "accepted"); /* in a new report, with a new number */
	cancel(w, A, 1);
	assert_int_equal(executor_held(w->executor), 0);
}

static void answers_of_another_attempt_are_not_ours(void **state)
{
	struct world *w = *state;

	start(w, 1, false);
	assign(w, A, 2, false, "run_us=20000");
	cancel(w, A, 1);
	assert_true(executor_runs(w->executor, A));
	pass(w, 120 * MS);
	assert_complete(w, A, 2, "accepted");
	accept_result(w, A, 1);
	assert_int_equal(executor_held(w->executor), 1);
	assign(w, A, 2, false, "run_us=1000"); /* the same again */
	assign(w, A, 1, false, "run_us=1000"); /* older */
	assert_int_equal(executor_held(w->executor), 1);
	assert_int_equal(executor_running(w->executor), 0);
}

static void a_cancelled_task_keeps_its_slot_until_reaped(void **state)
{
	struct world *w = *state;

	start(w, 1, false);
	assign(w, A, 1, false, "run_us=9000000 cpu_us=0 kill_us=400000");
	assert_int_equal(last(w)->vacant, 0);
	cancel(w, A, 1);
	assert_true(executor_runs(w->executor, A));
	assert_listed(w, A, 1, "running");
	assert_int_equal(last(w)->vacant, 0);
	pass(w, 390 * MS);
	assert_true(executor_runs(w->executor, A));
	pass(w, 20 * MS);
	assert_int_equal(executor_held(w->executor), 0);
	assert_int_equal(last(w)->vacant, 1);
	assert_null(judge_executing(judge_last(&w->judge), A));
}

/* The judicator repeats the cancel with each report while the task dies: neither side may spin. */
static void a_dying_task_does_not_make_us_spin(void **state)
{
	struct world *w = *state;
	struct words words = {.reply = {0}};
	unsigned n;

	start(w, 1, false);
	assign(w, A, 1, false, "run_us=9000000 cpu_us=0 kill_us=1000000");
	n = w->judge.n_reports;
	say_cancel(&words, A, 1);
	for (int i = 0; i < 1000; i++) {
		if (judge_last(&w->judge)->call)
			judge_answer(&w->judge, judge_last(&w->judge), words.reply);
		pass(w, 1 * MS);
	}
	assert_in_range(w->judge.n_reports - n, 9, 14);
}

static void a_waiting_task_is_dropped_at_once(void **state)
{
	struct world *w = *state;
	struct words words = {.reply = {0}};

	start(w, 1, false);
	say_assign(&words, A, 1, false, "run_us=50000");
	say_assign(&words, B, 1, false, "run_us=50000");
	answer(w, &words);
	assert_listed(w, A, 1, "compiling");
	assert_listed(w, B, 1, "pending");
	assert_int_equal(executor_running(w->executor), 1);
	cancel(w, B, 1);
	assert_int_equal(executor_held(w->executor), 1);
	assert_null(judge_executing(judge_last(&w->judge), B));
}

static void slots_are_filled_in_order(void **state)
{
	struct world *w = *state;
	struct words words = {.reply = {0}};

	start(w, 2, false);
	say_assign(&words, A, 1, false, "run_us=50000");
	say_assign(&words, B, 1, false, "run_us=80000");
	say_assign(&words, C, 1, false, "run_us=20000");
	answer(w, &words);
	assert_int_equal(executor_running(w->executor), 2);
	assert_false(executor_runs(w->executor, C));
	pass(w, 52 * MS);
	assert_true(executor_runs(w->executor, B) && executor_runs(w->executor, C));
	pass(w, 100 * MS);
	assert_complete(w, C, 1, "accepted");
	assert_int_equal(last(w)->complete.count, 3);
}

static void alone_means_one_slot(void **state)
{
	struct world *w = *state;
	struct words words = {.reply = {0}};

	start(w, 4, true);
	assert_int_equal(last(w)->vacant, 1);
	assert_int_equal(last(w)->slots, 1);
	say_assign(&words, A, 1, false, "run_us=50000");
	say_assign(&words, B, 1, false, "run_us=50000");
	answer(w, &words);
	assert_int_equal(executor_running(w->executor), 1);
	pass(w, 52 * MS);
	assert_int_equal(executor_running(w->executor), 1);
	assert_true(executor_runs(w->executor, B));
}

/* The task comes back to us while its older claim still runs here: killed first, and never both at once. */
static void a_newer_attempt_waits_for_the_older_one(void **state)
{
	struct world *w = *state;

	start(w, 2, false);
	assign(w, A, 1, false, "run_us=9000000 cpu_us=0 kill_us=300000");
	assign(w, A, 2, false, "run_us=50000");
	assert_int_equal(executor_held(w->executor), 2);
	assert_int_equal(executor_running(w->executor), 1);
	assert_listed(w, A, 2, "pending");
	assert_int_equal(last(w)->executing.count, 1); /* the old claim is nobody's business */
	assert_int_equal(last(w)->vacant, 0);
	pass(w, 290 * MS);
	assert_int_equal(executor_running(w->executor), 1);
	assert_listed(w, A, 2, "pending");
	pass(w, 10 * MS);
	assert_int_equal(executor_held(w->executor), 1);
	pass(w, 60 * MS);
	assert_complete(w, A, 2, "accepted");
}

/*** Lone ***/

/* L11: it starts only when nothing else is held, unaccepted results included; and nothing more is asked for. */
static void a_lone_task_runs_alone(void **state)
{
	struct world *w = *state;
	struct words words = {.reply = {0}};

	start(w, 3, false);
	say_assign(&words, A, 1, false, "run_us=50000");
	say_assign(&words, B, 2, true, "run_us=50000");
	answer(w, &words);
	assert_true(executor_runs(w->executor, A));
	assert_false(executor_runs(w->executor, B));
	assert_int_equal(last(w)->vacant, 0);
	pass(w, 60 * MS);
	assert_complete(w, A, 1, "accepted");
	assert_false(executor_runs(w->executor, B)); /* the result is not accepted yet */
	assert_int_equal(last(w)->vacant, 0);
	accept_result(w, A, 1);
	assert_true(executor_runs(w->executor, B));
	pass(w, 60 * MS);
	assert_complete(w, B, 2, "accepted");
	assert_int_equal(last(w)->vacant, 0); /* until it is accepted */
	accept_result(w, B, 2);
	assert_int_equal(last(w)->vacant, 3);
}

/*** Ends ***/

static void fenced_kills_everything(void **state)
{
	struct world *w = *state;
	struct words words = {.reply = {0}};

	start(w, 2, false);
	say_assign(&words, A, 1, false, "run_us=1000");
	say_assign(&words, B, 1, false, "run_us=9000000 cpu_us=0 kill_us=200000");
	say_assign(&words, C, 1, false, "run_us=9000000 cpu_us=0 kill_us=100000");
	answer(w, &words);
	pass(w, 10 * MS);
	assert_int_equal(executor_held(w->executor), 3);
	judge_answer(&w->judge, judge_last(&w->judge), (struct msg_report_reply){.fenced = true});
	pass(w, 150 * MS);
	assert_int_equal(w->n_fenced, 0); /* B is not reaped yet */
	assert_int_equal(executor_held(w->executor), 1);
	pass(w, 60 * MS);
	assert_int_equal(w->n_fenced, 1);
	assert_int_equal(w->alive_at_end, 0);
	pass(w, 60 * US_PER_S);
	assert_int_equal(w->n_fenced, 1);
}

static void drained_when_the_last_result_is_accepted(void **state)
{
	struct world *w = *state;
	struct words words = {.reply = {0}};

	start(w, 1, false);
	say_assign(&words, A, 1, false, "run_us=500000");
	say_assign(&words, B, 1, false, "run_us=500000");
	answer(w, &words);
	executor_drain(w->executor, 10 * US_PER_S);
	pass(w, 2 * MS);
	assert_int_equal(last(w)->vacant, 0);
	assert_null(judge_executing(judge_last(&w->judge), B)); /* handed back */
	assert_listed(w, A, 1, "running");
	pass(w, 510 * MS);
	assert_complete(w, A, 1, "accepted");
	assert_int_equal(w->n_drained, 0);
	accept_result(w, A, 1);
	assert_int_equal(w->n_drained, 0); /* that reply may not have been the last */
	assert_int_equal(last(w)->wait_ms, 0);
	assert_int_equal(last(w)->acked, last(w)->seq - 1);
	judge_answer(&w->judge, judge_last(&w->judge), (struct msg_report_reply){.seq = 0});
	pass(w, 1 * MS);
	assert_int_equal(w->n_drained, 1);
	assert_int_equal(w->alive_at_end, 0);
}

static void a_claim_that_comes_while_draining_goes_back(void **state)
{
	struct world *w = *state;
	struct judged *poll;
	struct words words = {.reply = {0}};

	start(w, 2, false);
	w->judge.hold_all = true;
	poll = judge_last(&w->judge);
	executor_drain(w->executor, US_PER_S);
	pass(w, 2 * MS);
	assert_int_equal(last(w)->acked, 0); /* the poll is still open: not the last word */
	judge_answer(&w->judge, judge_last(&w->judge), (struct msg_report_reply){.seq = 0});
	pass(w, 2 * MS);
	assert_int_equal(w->n_drained, 0);
	say_assign(&words, A, 1, false, "run_us=1000");
	judge_answer(&w->judge, poll, words.reply);
	pass(w, 2 * MS);
	assert_int_equal(executor_held(w->executor), 0);
	w->judge.hold_all = false;
	for (int i = 0; i < 20 && !w->n_drained; i++) {
		assert_int_equal(last(w)->executing.count, 0);
		for (unsigned j = 0; j < w->judge.n_reports; j++)
			if (w->judge.reports[j].call)
				judge_answer(&w->judge, &w->judge.reports[j],
					(struct msg_report_reply){.seq = 0});
		pass(w, 1 * MS);
	}
	assert_int_equal(w->n_drained, 1);
	/* the store was told, with everything before it closed: A goes back to the queue, not counted */
	assert_int_equal(last(w)->acked, last(w)->seq - 1);
	assert_int_equal(last(w)->vacant, 0);
}

static void the_grace_has_an_end(void **state)
{
	struct world *w = *state;

	start(w, 1, false);
	assign(w, A, 1, false, "run_us=9000000 cpu_us=0 kill_us=50000");
	executor_drain(w->executor, 300 * MS);
	pass(w, 290 * MS);
	assert_true(executor_runs(w->executor, A));
	pass(w, 70 * MS);
	assert_int_equal(executor_held(w->executor), 0);
	assert_null(
		judge_executing(judge_last(&w->judge), A)); /* handed back, after it was reaped */
	assert_int_equal(w->n_drained, 0);
	for (int i = 0; i < 4 && !w->n_drained; i++) {
		if (judge_last(&w->judge)->call)
			judge_answer(&w->judge, judge_last(&w->judge),
				(struct msg_report_reply){.seq = 0});
		pass(w, 2 * MS);
	}
	assert_int_equal(w->n_drained, 1);
}

/* The helper has died for good: no verdict is made of that, the tasks go to others, and the process ends. */
static void a_broken_box_hands_back_what_never_ran(void **state)
{
	struct world *w = *state;
	struct words words = {.reply = {0}};

	start(w, 2, false);
	say_assign(&words, A, 1, false, "run_us=1000");
	say_assign(&words, B, 1, false, "run_us=9000000 cpu_us=0");
	say_assign(&words, C, 1, false, "run_us=50000 break=1");
	say_assign(&words, D, 1, false, "run_us=1000");
	answer(w, &words);
	pass(w, 200 * MS);
	assert_complete(w, A, 1, "accepted"); /* what is finished is delivered */
	assert_int_equal(last(w)->complete.count, 1);
	assert_listed(w, B, 1,
		"running"); /* ran when it broke: still ours when the process ends, so counted */
	assert_listed(w, C, 1, "running");
	assert_int_equal(last(w)->executing.count, 2); /* D never ran: handed back */
	assert_int_equal(last(w)->vacant, 0);
	assert_int_equal(executor_running(w->executor), 0);
	accept_result(w, A, 1);
	judge_answer(&w->judge, judge_last(&w->judge), (struct msg_report_reply){.seq = 0});
	pass(w, 1 * MS);
	assert_int_equal(w->n_broken, 1);
	assert_int_equal(w->n_drained, 0);
	assert_int_equal(executor_held(w->executor), 2);
}

static void a_broken_box_does_not_wait_for_ever(void **state)
{
	struct world *w = *state;

	start(w, 1, false);
	assign(w, A, 1, false, "break=1");
	w->lose_replies = true;
	pass(w, 11 * US_PER_S);
	assert_int_equal(w->n_broken, 1);
}

static void drained_before_it_has_begun(void **state)
{
	struct world *w = *state;

	judge_close(&w->judge);
	start(w, 1, false);
	executor_drain(w->executor, US_PER_S);
	pass(w, 1 * MS);
	assert_int_equal(w->n_drained, 1);
}

/* A process's death, as far as others can see: no callback, nothing left behind, whatever was going on. */
static void freed_at_any_moment(void **state)
{
	struct world *w = *state;
	struct words words = {.reply = {0}};

	say_assign(&words, A, 1, false, "run_us=20000 kill_us=3000");
	say_assign(&words, B, 1, false, "run_us=5000");
	say_assign(&words, C, 1, false, "run_us=40000");
	for (int64_t us = 0; us < 80 * MS; us += 1700) {
		start(w, 2, false);
		answer(w, &words);
		pass(w, us);
		executor_free(take_ptr(&w->executor));
		pass(w, US_PER_S);
		judge_close(&w->judge);
		judge_open(&w->judge, w->loop, w->j_transport, "j:1");
	}
	assert_int_equal(w->n_drained + w->n_fenced, 0);
}

static void freed_inside_its_own_end(void **state)
{
	struct world *w = *state;

	w->free_inside = true;
	start(w, 1, false);
	assign(w, A, 1, false, "run_us=9000000 cpu_us=0");
	judge_answer(&w->judge, judge_last(&w->judge), (struct msg_report_reply){.fenced = true});
	pass(w, US_PER_S);
	assert_int_equal(w->n_fenced, 1);
	start(w, 1, false);
	executor_drain(w->executor, 0);
	pass(w, 5 * MS);
	while (!w->n_drained) {
		judge_answer(&w->judge, judge_last(&w->judge), (struct msg_report_reply){.seq = 0});
		pass(w, 2 * MS);
	}
	assert_null(w->executor);
}

/* A task that cannot be read here (a newer gateway's, say) is answered, not lost. */
static void an_unreadable_task_is_answered(void **state)
{
	struct world *w = *state;
	struct msg_assign_item item = {
		.id = id_of(A), .attempt = 1, .doc = {.text = STR("{\"surprise\":1}")}};

	start(w, 1, false);
	judge_answer(
		&w->judge, judge_last(&w->judge), (struct msg_report_reply){.assign = {&item, 1}});
	pass(w, 5 * MS);
	assert_complete(w, A, 1, "system_error");
	assert_true(str_is(judge_complete(judge_last(&w->judge), A)->status, "error"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_task_from_claim_to_acceptance),
		TEST(a_quick_task_reports_no_progress),
		TEST(a_result_is_kept_until_we_know),
		TEST(answers_of_another_attempt_are_not_ours),
		TEST(a_cancelled_task_keeps_its_slot_until_reaped),
		TEST(a_dying_task_does_not_make_us_spin),
		TEST(a_waiting_task_is_dropped_at_once),
		TEST(slots_are_filled_in_order),
		TEST(alone_means_one_slot),
		TEST(a_newer_attempt_waits_for_the_older_one),
		TEST(a_lone_task_runs_alone),
		TEST(fenced_kills_everything),
		TEST(drained_when_the_last_result_is_accepted),
		TEST(a_claim_that_comes_while_draining_goes_back),
		TEST(the_grace_has_an_end),
		TEST(drained_before_it_has_begun),
		TEST(a_broken_box_hands_back_what_never_ran),
		TEST(a_broken_box_does_not_wait_for_ever),
		TEST(freed_at_any_moment),
		TEST(freed_inside_its_own_end),
		TEST(an_unreadable_task_is_answered),
	};
#undef TEST

	return cmocka_run_group_tests(tests, NULL, NULL);
}
