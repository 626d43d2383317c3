/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store - every promise of store.h and every rule of the report protocol, run over every row of the table; then what only SQLite
 * promises (test_store_sqlite.c). L1 to L13 are the traces of rpc/README.md, as far as the store alone can break them.
 *
 * A real loop turns until the answer is there, or a deadline has passed. Verbs are called through small synchronous helpers, which
 * copy the answer out of the callback.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "test/fake/store_hand.h"

static int setup(void **state)
{
	*state = store_hand_new(*state);
	return 0;
}

static int teardown(void **state)
{
	store_hand_free(*state);
	return 0;
}

/* --- add -------------------------------------------------------------------------------------------------- */

static void add_answers_and_is_idempotent(void **state)
{
	struct store_hand *h = *state;
	struct added first = add_task(
		h, &(struct task_words){.n = 1, .doc = "{\"a\":1}", .user = "ann", .priority = 3});
	struct added again;

	assert_int_equal(first.status, STORE_OK);
	assert_true(first.created);
	assert_string_equal(first.task_status, "pending");
	assert_true(first.add_us > 0);
	again = add_task(
		h, &(struct task_words){.n = 1, .doc = "{\"a\":1}", .user = "ann", .priority = 3});
	assert_int_equal(again.status, STORE_OK);
	assert_false(again.created);
	assert_int_equal(again.add_us, first.add_us);
	assert_int_equal(pending(h), 1);
	cancel(h, 1);
	again = add_task(
		h, &(struct task_words){.n = 1, .doc = "{\"a\":1}", .user = "ann", .priority = 3});
	assert_int_equal(again.status, STORE_OK);
	assert_string_equal(again.task_status, "cancelled");
	assert_int_equal(pending(h), 0);
}

static void add_with_other_content_conflicts(void **state)
{
	struct store_hand *h = *state;
	const struct task_words base = {
		.n = 1, .doc = "{}", .user = "ann", .priority = 3, .labels = {"x", "y"}};
	struct task_words other[] = {base, base, base, base, base, base};

	assert_int_equal(add_task(h, &base).status, STORE_OK);
	other[0].doc = "{\"b\":1}";
	other[1].user = "bob";
	other[2].priority = 4;
	other[3].language = "c";
	other[4].labels[1] = "z";
	other[5].labels[1] = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(other); i++)
		assert_int_equal(add_task(h, &other[i]).status, STORE_CONFLICT);
	assert_int_equal(add_task(h, &base).status, STORE_OK);
	assert_int_equal(pending(h), 1);
}

static void add_time_strictly_increases(void **state)
{
	struct store_hand *h = *state;
	int64_t last = 0;

	add_many(h, 1, 300, "raw"); /* called in one turn: one reading of the clock */
	for (unsigned i = 1; i <= 300; i++) {
		struct view v = get_task(h, i);

		assert_true(v.add_us > last);
		last = v.add_us;
	}
}

/* --- claims --------------------------------------------------------------------------------------------------- */

static void claims_come_in_the_queues_order(void **state)
{
	struct store_hand *h = *state;
	static const unsigned expected[] = {4, 6, 2, 5, 1, 3};
	struct answer a;

	add_task(h, &(struct task_words){.n = 1, .priority = 0});
	add_task(h, &(struct task_words){.n = 2, .priority = 5});
	add_task(h, &(struct task_words){.n = 3, .priority = -100});
	add_task(h, &(struct task_words){.n = 4, .priority = 100, .language = "c"});
	add_task(h, &(struct task_words){.n = 5, .priority = 5, .language = "c"});
	add_task(h, &(struct task_words){.n = 6, .priority = 100});
	enroll(h, "e", 0);
	a = report(h, says("e", 1, 1, 0, 10, "raw,c"));
	assert_int_equal(a.n_assign, 6);
	for (unsigned i = 0; i < 6; i++) {
		assert_id(&a.assign[i].id, expected[i]);
		assert_int_equal(a.assign[i].attempt, 1);
		assert_false(a.assign[i].lone);
		assert_string_equal(a.assign[i].doc, "{}");
	}
	assert_true(a.says_something);
	assert_false(a.lone_waiting);
	assert_int_equal(a.seq, 1);
}

static void claims_keep_to_the_languages_offered(void **state)
{
	struct store_hand *h = *state;
	struct answer a;

	add_task(h, &(struct task_words){.n = 1, .language = "c"});
	add_task(h, &(struct task_words){.n = 2, .language = "c"});
	enroll(h, "e", 0);
	a = report(h, says("e", 1, 1, 0, 4, "raw,never seen"));
	assert_int_equal(a.n_assign, 0);
	assert_false(a.says_something);
	a = report(h, says("e", 1, 2, 1, 4, ""));
	assert_int_equal(a.n_assign, 0);
	/* offered twice is claimed once */
	a = report(h, says("e", 1, 3, 2, 4, "c,c,never seen,c"));
	assert_int_equal(a.n_assign, 2);
	assert_id(&a.assign[0].id, 1);
	assert_id(&a.assign[1].id, 2);
}

static void claims_are_exclusive_and_marked(void **state)
{
	struct store_hand *h = *state;
	struct answer a;
	struct view v;

	add_many(h, 1, 3, "raw");
	enroll(h, "e", 0);
	enroll(h, "f", 0);
	a = report(h, says("e", 1, 7, 0, 2, "raw"));
	assert_int_equal(a.n_assign, 2);
	a = report(h, says("f", 1, 1, 0, 2, "raw"));
	assert_int_equal(a.n_assign, 1);
	assert_id(&a.assign[0].id, 3);
	assert_int_equal(pending(h), 0);
	v = get_task(h, 1);
	assert_string_equal(v.status, "pending");
	assert_string_equal(v.executor, "e");
	assert_int_equal(v.epoch, 1);
	assert_int_equal(v.assign_seq, 7);
	assert_int_equal(v.attempt, 1);
	assert_int_equal(v.retries, 0);
	assert_true(v.start_us >= v.add_us - US_PER_S);
	assert_int_equal(v.done_us, 0);
}

static void claims_of_many_executors_never_meet(void **state)
{
	enum { TASKS = 20000, EXECUTORS = 7, ROOM = 32 };
	struct store_hand *h = *state;
	bool *seen = mem_array(TASKS + 1, 1);
	unsigned total = 0, last = 0, got = 1;

	add_many(h, 1, TASKS, "raw");
	for (unsigned e = 0; e < EXECUTORS; e++)
		enroll(h, names[e], 0);
	for (unsigned seq = 1; got; seq++) {
		got = 0;
		for (unsigned e = 0; e < EXECUTORS; e++) {
			struct says s = says(names[e], 1, seq, seq - 1, ROOM, "raw");
			struct answer a;

			/* what the last one brought is done */
			for (unsigned i = 0; i < h->n_held[e]; i++)
				says_complete(&s, h->held[e][i], 1, "success", "accepted", "{}");
			a = report(h, s);
			assert_int_equal(a.n_accepted, h->n_held[e]);
			h->n_held[e] = 0;
			for (unsigned i = 0; i < a.n_assign; i++) {
				unsigned n = number_of(&a.assign[i].id);

				assert_true(n > last); /* equal priority: in the order of adding */
				assert_false(seen[n]);
				seen[n] = true;
				last = n;
				h->held[e][h->n_held[e]++] = n;
			}
			got += a.n_assign;
			total += a.n_assign;
		}
	}
	assert_int_equal(total, TASKS);
	assert_int_equal(pending(h), 0);
	free(seen);
}

static void a_reply_is_not_without_bound(void **state)
{
	struct store_hand *h = *state;
	size_t n = (size_t)STORE_REPLY_BYTES + 16;
	char *doc = mem_alloc(n + 1);
	struct answer a;

	memset(doc, 'x', n);
	doc[0] = doc[n - 1] = '"';
	add_task(h, &(struct task_words){.n = 1, .doc = doc});
	free(doc);
	add_task(h, &(struct task_words){.n = 2});
	enroll(h, "e", 0);
	a = report(h, says("e", 1, 1, 0, 4, "raw"));
	assert_int_equal(a.n_assign, 1);
	assert_int_equal(a.assign[0].doc_bytes, n);
	a = report(h, says("e", 1, 2, 0, 4, "raw"));
	assert_int_equal(a.n_assign, 1);
	assert_id(&a.assign[0].id, 2);
}

/* --- epochs ------------------------------------------------------------------------------------------------ */

static void l1_register_names_the_last_epoch(void **state)
{
	struct store_hand *h = *state;

	assert_int_equal(enroll(h, "e", 0), 1);
	assert_int_equal(enroll(h, "e", 0), -1); /* late: conflict, the last is 1 */
	assert_int_equal(enroll(h, "e", 5), -1);
	assert_int_equal(report(h, says("e", 1, 1, 0, 0, "raw")).status, STORE_OK);
	assert_int_equal(enroll(h, "e", 1), 2);
	assert_int_equal(enroll(h, "new", 3), 0); /* no row is epoch 0 */
	assert_int_equal(enroll(h, "new", 0), 1);
}

static void l2_register_counts_what_was_lost(void **state)
{
	struct store_hand *h = *state;
	struct view v;

	add_many(h, 1, 2, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	enroll(h, "e", 1);
	v = get_task(h, 1);
	assert_string_equal(v.status, "retrying");
	assert_string_equal(v.executor, "");
	assert_int_equal(v.attempt, 1);
	assert_int_equal(v.retries, 1);
	assert_int_equal(get_task(h, 2).retries, 0);
	assert_int_equal(pending(h), 2);
}

static void l3_register_claims_nothing(void **state)
{
	struct store_hand *h = *state;

	add_many(h, 1, 2, "raw");
	enroll(h, "e", 0);
	enroll(h, "e", 1);
	assert_int_equal(pending(h), 2);
	assert_int_equal(get_task(h, 1).attempt, 0);
}

static void l4_only_the_living_epoch_is_heard(void **state)
{
	struct store_hand *h = *state;
	struct answer a;

	assert_int_equal(report(h, says("nobody", 1, 1, 0, 1, "raw")).status, STORE_FENCED);
	enroll(h, "e", 0);
	assert_int_equal(report(h, says("e", 1, 1, 0, 1, "raw")).status, STORE_OK);
	enroll(h, "e", 1);
	add_many(h, 1, 1, "raw");
	a = report_again(h, says("e", 1, 1, 0, 1, "raw"));
	assert_int_equal(a.status, STORE_FENCED);
	assert_true(a.fenced);
	assert_true(a.says_something);
	assert_int_equal(a.n_assign, 0);
	assert_int_equal(report(h, says("e", 3, 1, 0, 1, "raw")).status, STORE_FENCED);
	assert_int_equal(report(h, says("e", 2, 1, 0, 1, "raw")).n_assign, 1);
	assert_int_equal(lose(h, "e", 2, 1), STORE_OK);
	assert_int_equal(report(h, says("e", 2, 2, 1, 1, "raw")).status, STORE_FENCED);
	assert_int_equal(report_again(h, says("e", 2, 1, 1, 1, "raw")).status, STORE_FENCED);
}

static void l5_lose_takes_exactly_what_was_seen(void **state)
{
	struct store_hand *h = *state;
	struct view v;

	add_many(h, 1, 2, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	assert_int_equal(lose(h, "nobody", 1, 1), STORE_UNKNOWN);
	assert_int_equal(lose(h, "e", 1, 0), STORE_STALE);
	assert_int_equal(lose(h, "e", 2, 1), STORE_STALE);
	report(h, says_running(says("e", 1, 2, 1, 1, "raw"), 1, 1, "running", 0));
	assert_int_equal(lose(h, "e", 1, 1), STORE_STALE);
	assert_int_equal(get_task(h, 1).retries, 0);
	assert_int_equal(lose(h, "e", 1, 2), STORE_OK);
	assert_int_equal(lose(h, "e", 1, 2), STORE_STALE);
	for (unsigned i = 1; i <= 2; i++) {
		v = get_task(h, i);
		assert_string_equal(v.status, "retrying");
		assert_int_equal(v.retries, 1);
		assert_int_equal(v.attempt, 1);
	}
	/* the tasks of another executor, and of none, stay */
	assert_int_equal(pending(h), 2);
}

static void l6_an_epoch_is_kept_for_ever(void **state)
{
	struct store_hand *h = *state;

	enroll(h, "e", 0);
	enroll(h, "f", 0);
	assert_int_equal(drop(h, "nobody"), STORE_UNKNOWN);
	assert_int_equal(drop(h, "e"), STORE_STALE); /* it lives */
	assert_int_equal(lose(h, "e", 1, 0), STORE_OK);
	assert_int_equal(list_executors(h, false), 2);
	assert_string_equal(h->executors[0].name, "e");
	assert_true(h->executors[0].dead);
	assert_int_equal(drop(h, "e"), STORE_OK);
	assert_int_equal(drop(h, "e"), STORE_OK);
	assert_int_equal(list_executors(h, false), 1);
	assert_string_equal(h->executors[0].name, "f");
	assert_int_equal(list_executors(h, true), 2);
	assert_true(h->executors[0].hidden);
	assert_int_equal(report(h, says("e", 1, 1, 0, 1, "raw")).status, STORE_FENCED);
	assert_int_equal(enroll(h, "e", 0), -1);
	assert_int_equal(enroll(h, "e", 1), 2);
	assert_int_equal(list_executors(h, false), 2);
	assert_false(h->executors[0].dead);
	assert_int_equal(report(h, says("e", 1, 9, 0, 1, "raw")).status, STORE_FENCED);
}

static void executors_are_listed_by_name_with_what_they_hold(void **state)
{
	struct store_hand *h = *state;

	add_many(h, 1, 3, "raw");
	enroll(h, "zoe", 0);
	enroll(h, "bob", 0);
	enroll(h, "amy", 0);
	report(h, says("bob", 1, 4, 0, 2, "raw"));
	assert_int_equal(list_executors(h, false), 3);
	assert_string_equal(h->executors[0].name, "amy");
	assert_string_equal(h->executors[1].name, "bob");
	assert_string_equal(h->executors[2].name, "zoe");
	assert_int_equal(h->executors[1].epoch, 1);
	assert_int_equal(h->executors[1].last_seq, 4);
	assert_int_equal(h->executors[1].owned, 2);
	assert_int_equal(h->executors[0].owned, 0);
}

/* --- seq --------------------------------------------------------------------------------------------------- */

static void l12_fresh_and_again(void **state)
{
	struct store_hand *h = *state;
	struct answer a;

	enroll(h, "e", 0);
	assert_int_equal(report(h, says("e", 1, 5, 0, 1, "raw")).status, STORE_OK);
	add_many(h, 1, 2, "raw");
	a = report(h, says("e", 1, 5, 0, 1, "raw"));
	assert_int_equal(a.status, STORE_STALE);
	assert_false(a.says_something);
	assert_false(a.fenced);
	assert_int_equal(a.seq, 5);
	assert_int_equal(report(h, says("e", 1, 4, 0, 1, "raw")).status, STORE_STALE);
	assert_int_equal(report_again(h, says("e", 1, 4, 0, 1, "raw")).status, STORE_STALE);
	assert_int_equal(report_again(h, says("e", 1, 6, 0, 1, "raw")).status, STORE_STALE);
	assert_int_equal(pending(h), 2); /* nobody of these has claimed */
	assert_int_equal(report_again(h, says("e", 1, 5, 0, 1, "raw")).n_assign, 1);
	/* the claim is on its way: the same report has no more room */
	assert_int_equal(report_again(h, says("e", 1, 5, 0, 1, "raw")).n_assign, 0);
	assert_int_equal(enroll(h, "e", 1), 2);
	assert_int_equal(
		report(h, says("e", 2, 1, 0, 0, "raw")).status, STORE_OK); /* counted anew */
}

static void l12_a_stale_report_touches_nothing(void **state)
{
	struct store_hand *h = *state;
	struct says s = says("e", 1, 1, 1, 4, "raw");

	add_many(h, 1, 2, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	report(h, says_running(says("e", 1, 2, 1, 0, "raw"), 1, 1, "running", 3));
	says_complete(&s, 1, 1, "success", "accepted", "{}");
	assert_int_equal(report(h, s).status, STORE_STALE);
	assert_int_equal(
		report(h, says_running(says("e", 1, 1, 1, 0, "raw"), 1, 1, "compiling", 0)).status,
		STORE_STALE);
	assert_string_equal(get_task(h, 1).state, "running.1.3");
	assert_int_equal(pending(h), 1);
}

static void l13_verbs_take_effect_in_the_order_called(void **state)
{
	struct store_hand *h = *state;
	struct says s = says("e", 1, 2, 1, 1, "raw");
	struct answer a = {.status = STORE_E_FAILED};
	unsigned waiting = 2;

	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 0, "raw"));
	add_many(h, 1, 1, "raw");
	/* both in one turn: the report must see that its epoch has ended, whatever is committed when */
	call_enroll(h, "e", 1, &waiting);
	call_report(h, &s, REPORT_FRESH, &a, &waiting);
	assert_int_equal(waiting, 2); /* never before the call has returned */
	wait_zero(h, &waiting);
	assert_int_equal(a.status, STORE_FENCED);
	assert_int_equal(get_task(h, 1).attempt, 0);
}

/* --- results and progress ------------------------------------------------------------------------------------- */

static void a_result_is_accepted_once(void **state)
{
	struct store_hand *h = *state;
	struct says s = says("e", 1, 2, 1, 0, "raw");
	struct answer a;
	struct view v;

	add_many(h, 1, 2, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 2, "raw"));
	says_complete(&s, 1, 1, "run_failed", "time_limit", "{\"verdict\":\"time_limit\"}");
	says_complete(&s, 1, 1, "success", "accepted", "{}");  /* twice in one report */
	says_complete(&s, 2, 9, "success", "accepted", "{}");  /* another claim */
	says_complete(&s, 77, 1, "success", "accepted", "{}"); /* never added */
	s = says_running(s, 2, 1, "running", 0);
	a = report(h, s);
	assert_int_equal(a.n_accepted, 1);
	assert_ref(&a.accepted[0], 1, 1);
	assert_int_equal(a.n_cancel, 3);
	assert_ref(&a.cancel[0], 1, 1);
	assert_ref(&a.cancel[1], 2, 9);
	assert_ref(&a.cancel[2], 77, 1);
	v = get_task(h, 1);
	assert_string_equal(v.status, "run_failed");
	assert_string_equal(v.verdict, "time_limit");
	assert_string_equal(v.executor, "e"); /* who judged it */
	assert_string_equal(v.result, "{\"verdict\":\"time_limit\"}");
	assert_true(v.done_us > 0);
	assert_string_equal(get_task(h, 2).status, "running");
	assert_int_equal(pending(h), 0);
}

static void l7_what_is_not_owned_is_cancelled(void **state)
{
	struct store_hand *h = *state;
	struct says s = says("e", 1, 2, 1, 0, "raw"), s2 = says("e", 1, 3, 2, 0, "raw");
	struct answer a;

	add_many(h, 1, 1, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	says_complete(&s, 1, 1, "success", "accepted", "{}");
	assert_int_equal(report(h, s).n_accepted, 1);
	/* the reply was lost: the same result comes again, and must end somehow */
	says_complete(&s2, 1, 1, "success", "wrong_answer", "{\"other\":1}");
	a = report(h, s2);
	assert_int_equal(a.n_accepted, 0);
	assert_int_equal(a.n_cancel, 1);
	assert_ref(&a.cancel[0], 1, 1);
	assert_string_equal(get_task(h, 1).verdict, "accepted");
	assert_string_equal(get_task(h, 1).result, "{}");
	/* and so for what it says it runs */
	a = report(h, says_running(says("e", 1, 4, 3, 0, "raw"), 1, 1, "running", 0));
	assert_int_equal(a.n_cancel, 1);
	assert_true(a.says_something);
}

static void a_result_of_another_executor_is_refused(void **state)
{
	struct store_hand *h = *state;
	struct says s = says("f", 1, 1, 0, 0, "raw");
	struct answer a;

	add_many(h, 1, 1, "raw");
	enroll(h, "e", 0);
	enroll(h, "f", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	says_complete(&s, 1, 1, "success", "accepted", "{}");
	a = report(h, s);
	assert_int_equal(a.n_accepted, 0);
	assert_int_equal(a.n_cancel, 1);
	assert_string_equal(get_task(h, 1).executor, "e");
}

static void a_result_not_understood_is_our_error(void **state)
{
	static const char *const words[][2] = {
		{"cooked", "accepted"}, {"running", "accepted"}, {"success", "splendid"}};
	struct store_hand *h = *state;
	struct says s = says("e", 1, 2, 1, 0, "raw");

	add_many(h, 1, 3, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 3, "raw"));
	for (unsigned i = 0; i < 3; i++)
		says_complete(&s, i + 1, 1, words[i][0], words[i][1], "{}");
	assert_int_equal(report(h, s).n_accepted, 3);
	for (unsigned i = 1; i <= 3; i++) {
		struct view v = get_task(h, i);

		assert_string_equal(v.status, "error");
		assert_string_equal(v.verdict, "system_error");
		assert_non_null(strstr(v.message, "not understood"));
	}
}

static void progress_is_shown_and_goes_forward(void **state)
{
	static const struct {
		const char *status;
		int64_t case_no;
		const char *shown;
	} steps[] = {
		{"pending", 0, "pending.1.0"},
		{"compiling", 0, "compiling.1.0"},
		{"pending", 0, "compiling.1.0"}, /* no such step */
		{"running", 0, "running.1.0"},
		{"running", 2, "running.1.2"},
		{"compiling", 0, "running.1.2"},
		{"success", 0, "running.1.2"}, /* not progress */
		{"dancing", 0, "running.1.2"},
	};
	struct store_hand *h = *state;
	struct answer a;

	add_many(h, 1, 1, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		int64_t seq = 2 + (int64_t)i;

		a = report(h, says_running(says("e", 1, seq, seq - 1, 0, "raw"), 1, 1,
				      steps[i].status, steps[i].case_no));
		assert_int_equal(a.status, STORE_OK);
		assert_false(a.says_something);
		assert_string_equal(get_task(h, 1).state, steps[i].shown);
	}
}

static void progress_of_a_claim_that_ends_in_the_same_turn_is_dropped(void **state)
{
	struct store_hand *h = *state;
	struct says s = says_running(says("e", 1, 2, 1, 0, "raw"), 1, 1, "running", 4);
	struct answer a;
	unsigned waiting = 2;

	add_many(h, 1, 1, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	call_report(h, &s, REPORT_FRESH, &a, &waiting);
	call_enroll(h, "e", 1, &waiting);
	wait_zero(h, &waiting);
	assert_string_equal(get_task(h, 1).state, "retrying.1.0");
	assert_int_equal(pending(h), 1);
}

static void progress_of_one_claim_is_not_that_of_the_next(void **state)
{
	struct store_hand *h = *state;
	struct says first = says_running(says("e", 1, 2, 1, 0, "raw"), 1, 1, "running", 4);
	struct says next = says(
		"e", 1, 3, 2, 1, "raw"); /* does not hold it any more: back, and claimed again */
	struct answer a, b;
	unsigned waiting = 2;

	add_many(h, 1, 1, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	call_report(h, &first, REPORT_FRESH, &a, &waiting);
	call_report(h, &next, REPORT_FRESH, &b, &waiting);
	wait_zero(h, &waiting);
	assert_int_equal(b.n_assign, 1);
	assert_int_equal(b.assign[0].attempt, 2);
	assert_string_equal(get_task(h, 1).state, "retrying.2.0");
}

/* --- returns --------------------------------------------------------------------------------------------------- */

static void l8_a_claim_is_in_flight_until_its_reply_is_acked(void **state)
{
	struct store_hand *h = *state;
	struct answer a;

	add_many(h, 1, 1, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 3, 0, 1, "raw"));
	/* replies up to 2 are applied, the one that carries the claim is not: it may still come */
	a = report(h, says("e", 1, 4, 2, 1, "raw"));
	assert_int_equal(a.n_assign, 0);
	assert_string_equal(get_task(h, 1).executor, "e");
	/* 3 is applied or given up, and it is not held: it never came */
	a = report(h, says("e", 1, 5, 3, 1, "raw"));
	assert_int_equal(a.n_assign, 1);
	assert_int_equal(a.assign[0].attempt, 2);
	assert_false(a.assign[0].lone); /* not counted */
	assert_int_equal(get_task(h, 1).retries, 0);
	assert_string_equal(get_task(h, 1).status, "retrying");
}

static void a_task_dropped_by_its_executor_returns_uncounted(void **state)
{
	struct store_hand *h = *state;
	struct view v;

	add_many(h, 1, 1, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	report(h, says_running(says("e", 1, 2, 1, 0, "raw"), 1, 1, "running", 5));
	report(h, says("e", 1, 3, 2, 0, "raw"));
	v = get_task(h, 1);
	assert_string_equal(v.state, "retrying.1.0");
	assert_string_equal(v.executor, "");
	assert_int_equal(v.epoch, 0);
	assert_int_equal(v.retries, 0);
	assert_int_equal(pending(h), 1);
}

static void l9_undo_is_exact(void **state)
{
	struct store_hand *h = *state;
	struct view v;

	add_many(h, 1, 1, "raw");
	enroll(h, "e", 0);
	assert_int_equal(undo(h, 1, "e", 1, 0), STORE_STALE); /* nobody's */
	report(h, says("e", 1, 1, 0, 1, "raw"));
	assert_int_equal(undo(h, 77, "e", 1, 1), STORE_UNKNOWN);
	assert_int_equal(undo(h, 1, "f", 1, 1), STORE_STALE);
	assert_int_equal(undo(h, 1, "e", 2, 1), STORE_STALE);
	assert_int_equal(undo(h, 1, "e", 1, 2), STORE_STALE);
	assert_string_equal(get_task(h, 1).executor, "e");
	assert_int_equal(undo(h, 1, "e", 1, 1), STORE_OK);
	assert_int_equal(undo(h, 1, "e", 1, 1), STORE_STALE);
	v = get_task(h, 1);
	assert_string_equal(v.status, "pending");
	assert_string_equal(v.executor, "");
	assert_int_equal(v.attempt, 1); /* only ever raised */
	assert_int_equal(v.retries, 0);
	assert_int_equal(v.start_us, 0);
	assert_int_equal(report(h, says("e", 1, 2, 1, 1, "raw")).assign[0].attempt, 2);
	assert_int_equal(undo(h, 1, "e", 1, 1), STORE_STALE); /* the undo of attempt 1, late */
}

static void l10_what_is_in_flight_takes_room(void **state)
{
	struct store_hand *h = *state;

	add_many(h, 1, 6, "raw");
	enroll(h, "e", 0);
	assert_int_equal(report(h, says("e", 1, 1, 0, 2, "raw")).n_assign, 2);
	/* a second report, sent before the reply of the first came in */
	assert_int_equal(report(h, says("e", 1, 2, 0, 2, "raw")).n_assign, 0);
	assert_int_equal(report(h, says("e", 1, 3, 0, 3, "raw")).n_assign, 1);
	assert_int_equal(report(h, says("e", 1, 4, 0, 0, "raw")).n_assign, 0);
	assert_int_equal(pending(h), 3);
}

/* --- lone tasks ---------------------------------------------------------------------------------------------- */

/* Task 1 has been lost once with "x"; it is the oldest. */
static void lose_once(struct store_hand *h)
{
	add_many(h, 1, 1, "raw");
	enroll(h, "x", 0);
	assert_int_equal(report(h, says("x", 1, 1, 0, 1, "raw")).n_assign, 1);
	assert_int_equal(lose(h, "x", 1, 1), STORE_OK);
}

static void l11_a_lone_task_is_the_sole_claim(void **state)
{
	struct store_hand *h = *state;
	struct answer a;

	lose_once(h);
	add_many(h, 2, 3, "raw");
	enroll(h, "e", 0);
	a = report(h, says("e", 1, 1, 0, 8, "raw"));
	assert_int_equal(a.n_assign, 1);
	assert_id(&a.assign[0].id, 1);
	assert_true(a.assign[0].lone);
	assert_int_equal(a.assign[0].attempt, 2);
	/* in flight, then held: nothing beside it */
	assert_int_equal(report(h, says("e", 1, 2, 0, 8, "raw")).n_assign, 0);
	a = report(h, says_running(says("e", 1, 3, 2, 8, "raw"), 1, 2, "running", 0));
	assert_int_equal(a.n_assign, 0);
	assert_false(a.lone_waiting); /* it is not waiting: it runs */
}

static void l11_a_lone_task_is_not_given_beside_others(void **state)
{
	struct store_hand *h = *state;
	struct says s = says("e", 1, 4, 3, 4, "raw");
	struct answer a;

	lose_once(h);
	add_task(h, &(struct task_words){.n = 2, .priority = 1});
	enroll(h, "e", 0);
	/* after another claim of the same report */
	a = report(h, says("e", 1, 1, 0, 4, "raw"));
	assert_int_equal(a.n_assign, 1);
	assert_id(&a.assign[0].id, 2);
	assert_true(a.lone_waiting);
	assert_true(a.says_something);
	/* in flight */
	a = report(h, says("e", 1, 2, 0, 4, "raw"));
	assert_int_equal(a.n_assign, 0);
	assert_true(a.lone_waiting);
	assert_false(a.says_something);
	/* held */
	a = report(h, says_running(says("e", 1, 3, 2, 3, "raw"), 2, 1, "running", 0));
	assert_int_equal(a.n_assign, 0);
	assert_true(a.lone_waiting);
	/* a result listed counts as something, even when accepted by this very report */
	says_complete(&s, 2, 1, "success", "accepted", "{}");
	a = report(h, s);
	assert_int_equal(a.n_accepted, 1);
	assert_int_equal(a.n_assign, 0);
	assert_true(a.lone_waiting);
	/* no room: not asked */
	assert_false(report(h, says("e", 1, 5, 4, 0, "raw")).lone_waiting);
	a = report(h, says("e", 1, 6, 5, 4, "raw"));
	assert_int_equal(a.n_assign, 1);
	assert_true(a.assign[0].lone);
	assert_false(a.lone_waiting);
}

static void l11_a_lone_task_returned_uncounted_stays_lone(void **state)
{
	struct store_hand *h = *state;
	struct answer a;

	lose_once(h);
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	assert_int_equal(undo(h, 1, "e", 1, 2), STORE_OK);
	assert_string_equal(get_task(h, 1).status, "retrying");
	a = report(h, says("e", 1, 2, 1, 1, "raw"));
	assert_true(a.assign[0].lone);
	assert_int_equal(a.assign[0].attempt, 3);
	assert_int_equal(get_task(h, 1).retries, 1);
}

static void a_poison_task_ends_as_error(void **state)
{
	struct store_hand *h = *state;
	struct view v;

	add_many(h, 1, 1, "raw");
	for (int64_t epoch = 1; epoch <= h->max_retries + 1; epoch++) {
		assert_int_equal(enroll(h, "e", epoch - 1), epoch);
		assert_int_equal(report(h, says("e", epoch, 1, 0, 1, "raw")).n_assign, 1);
	}
	assert_int_equal(lose(h, "e", h->max_retries + 1, 1), STORE_OK);
	v = get_task(h, 1);
	assert_string_equal(v.status, "error");
	assert_string_equal(v.verdict, "system_error");
	assert_int_equal(v.retries, h->max_retries + 1);
	assert_int_equal(v.attempt, h->max_retries + 1);
	assert_string_equal(v.executor, "");
	assert_true(v.done_us > 0);
	assert_string_equal(v.message, "lost with its executor 4 times, the last time with e");
	assert_int_equal(pending(h), 0);
	assert_int_equal(cancel(h, 1), STORE_DONE);
}

/* --- cancel ---------------------------------------------------------------------------------------------------- */

static void cancel_is_final_at_once(void **state)
{
	struct store_hand *h = *state;
	struct says s = says("e", 1, 2, 1, 1, "raw");
	struct answer a;
	struct view v;

	add_many(h, 1, 3, "raw");
	assert_int_equal(cancel(h, 77), STORE_UNKNOWN);
	assert_int_equal(cancel(h, 2), STORE_OK); /* from the middle of the queue */
	assert_int_equal(cancel(h, 2), STORE_OK); /* safe to repeat */
	assert_int_equal(pending(h), 2);
	enroll(h, "e", 0);
	a = report(h, says("e", 1, 1, 0, 4, "raw"));
	assert_int_equal(a.n_assign, 2);
	assert_id(&a.assign[0].id, 1);
	assert_id(&a.assign[1].id, 3);
	assert_int_equal(cancel(h, 1), STORE_OK);
	v = get_task(h, 1);
	assert_string_equal(v.status, "cancelled");
	assert_string_equal(v.verdict, "cancelled");
	assert_string_equal(v.executor, "");
	assert_true(v.done_us > 0);
	assert_int_equal(v.attempt, 1);
	/* its result comes too late */
	says_complete(&s, 1, 1, "success", "accepted", "{}");
	a = report(h, says_running(s, 3, 1, "running", 0));
	assert_int_equal(a.n_accepted, 0);
	assert_int_equal(a.n_cancel, 1);
	assert_ref(&a.cancel[0], 1, 1);
	assert_string_equal(get_task(h, 1).status, "cancelled");
	assert_string_equal(get_task(h, 1).result, "");
	/* and a loss does not bring it back */
	assert_int_equal(lose(h, "e", 1, 2), STORE_OK);
	assert_string_equal(get_task(h, 1).status, "cancelled");
	assert_int_equal(pending(h), 1);
}

static void cancel_of_what_is_done_is_refused(void **state)
{
	struct store_hand *h = *state;
	struct says s = says("e", 1, 2, 1, 0, "raw");

	add_many(h, 1, 1, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	says_complete(&s, 1, 1, "compile_failed", "compile_error", "{}");
	report(h, s);
	assert_int_equal(cancel(h, 1), STORE_DONE);
	assert_string_equal(get_task(h, 1).status, "compile_failed");
}

static void the_queue_survives_cancels_from_anywhere(void **state)
{
	enum { TASKS = 400 };
	struct store_hand *h = *state;
	unsigned last_n = 0, left = TASKS;
	int64_t last_priority = 100;
	struct answer a;

	for (unsigned i = 1; i <= TASKS; i++)
		add_task(h, &(struct task_words){.n = i, .priority = (int64_t)(i * 7919 % 5)});
	for (unsigned i = 3; i <= TASKS; i += 3, left--)
		assert_int_equal(cancel(h, i * 101 % 401), STORE_OK);
	assert_int_equal(pending(h), left);
	enroll(h, "e", 0);
	for (int64_t seq = 1; left; seq++) {
		a = report(h, says("e", 1, seq, 0, 1 + (int64_t)(TASKS - TASKS / 3 - left), "raw"));
		assert_int_equal(a.n_assign, 1);
		unsigned n = number_of(&a.assign[0].id);
		int64_t priority = (int64_t)(n * 7919 % 5);

		assert_true(priority < last_priority || (priority == last_priority && n > last_n));
		last_priority = priority;
		last_n = n;
		left--;
	}
}

/* --- reading ------------------------------------------------------------------------------------------------------- */

static void get_answers_what_differs(void **state)
{
	struct store_hand *h = *state;
	struct says s = says("e", 1, 1, 0, 1, "raw");
	struct get_words g = {.n_items = 3, .items = {{1, NULL}, {2, "pending.0.0"}, {77, NULL}}};
	struct gets got;

	add_many(h, 1, 2, "raw");
	got = get(h, &g);
	assert_int_equal(got.n, 1);
	assert_id(&got.views[0].id, 1);
	assert_int_equal(got.n_missing, 1);
	assert_id(&got.missing[0], 77);
	assert_string_equal(got.views[0].state, "pending.0.0");
	assert_string_equal(got.views[0].doc, ""); /* not asked for */
	g.items[0].known = "pending.0.0";
	assert_int_equal(get(h, &g).n, 0);
	enroll(h, "e", 0);
	report(h, s); /* claims 1 */
	got = get(h, &g);
	assert_int_equal(got.n, 1);
	assert_string_equal(got.views[0].state, "pending.1.0");
	g.done_only = true;
	assert_int_equal(get(h, &g).n, 0);
	cancel(h, 1);
	g.doc = true;
	got = get(h, &g);
	assert_int_equal(got.n, 1);
	assert_string_equal(got.views[0].doc, "{}");
	g.items[0].known = "cancelled.1.0";
	assert_int_equal(get(h, &g).n, 0);
}

static void texts_are_8_bit_clean(void **state)
{
	/* The store keeps what it is given: here every byte, NUL too, as a document and as a result. */
	struct store_hand *h = *state;
	char bytes[256];
	struct says s = says("e", 1, 2, 1, 0, "raw");
	struct msg_complete_item *item;
	struct view v;

	for (unsigned i = 0; i < 256; i++)
		bytes[i] = (char)i;
	h->raw_doc = (struct str){bytes, 256};
	assert_int_equal(add_task(h,
				 &(struct task_words){
					 .n = 1, .user = "\xc3\xa4", .labels = {"\xe2\x82\xac"}})
				 .status,
		STORE_OK);
	assert_false(add_task(
		h, &(struct task_words){.n = 1, .user = "\xc3\xa4", .labels = {"\xe2\x82\xac"}})
			     .created);
	h->raw_doc = (struct str){bytes, 255};
	assert_int_equal(add_task(h,
				 &(struct task_words){
					 .n = 1, .user = "\xc3\xa4", .labels = {"\xe2\x82\xac"}})
				 .status,
		STORE_CONFLICT);
	h->raw_doc = STR_NULL;
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	item = says_complete(&s, 1, 1, "success", "accepted", "");
	item->result.text = (struct str){bytes, 256};
	assert_int_equal(report(h, s).n_accepted, 1);
	v = get_task(h, 1);
	assert_int_equal(v.doc_bytes, 256);
	assert_memory_equal(v.doc, bytes, 256);
	assert_int_equal(v.result_bytes, 256);
	assert_memory_equal(v.result, bytes, 256);
	assert_string_equal(v.user, "\xc3\xa4");
	assert_string_equal(v.labels, "\xe2\x82\xac,");
}

/* Collects all pages of a search; the numbers of the tasks go to h->found. */
static unsigned search_all(struct store_hand *h, struct search_words w)
{
	char after[70] = "";
	unsigned pages = 0;

	h->n_found = 0;
	do {
		assert_int_equal(search(h, &w, after), STORE_OK);
		assert_true(h->page <= w.limit);
		assert_true(++pages < 10000);
		snprintf(after, sizeof(after), "%s", h->next);
	} while (after[0]);
	return h->n_found;
}

static void search_pages_both_ways(void **state)
{
	struct store_hand *h = *state;

	assert_int_equal(search_all(h, (struct search_words){.limit = 10}), 0);
	add_many(h, 1, 53, "raw"); /* all alike: only the order of adding tells them apart */
	for (unsigned limit = 1; limit <= 54; limit += 1 + limit / 3) {
		assert_int_equal(search_all(h, (struct search_words){.limit = limit}), 53);
		for (unsigned i = 0; i < 53; i++)
			assert_int_equal(h->found[i], 53 - i);
		assert_int_equal(
			search_all(h, (struct search_words){.limit = limit, .ascending = true}),
			53);
		for (unsigned i = 0; i < 53; i++)
			assert_int_equal(h->found[i], 1 + i);
	}
	/* exactly a page, and no empty one behind */
	assert_int_equal(search(h, &(struct search_words){.limit = 53}, ""), STORE_OK);
	assert_string_equal(h->next, "");
	/* tasks added meanwhile do not disturb the pages of older ones */
	search(h, &(struct search_words){.limit = 50}, "");
	add_many(h, 54, 5, "raw");
	h->n_found = 0;
	search(h, &(struct search_words){.limit = 50}, h->next);
	assert_int_equal(h->n_found, 3);
	assert_int_equal(h->found[2], 1);
	assert_int_equal(search(h, &(struct search_words){.limit = 50}, "not ours"), STORE_UNKNOWN);
	assert_int_equal(search(h, &(struct search_words){.limit = 50}, "-4"), STORE_UNKNOWN);
}

static void search_by_conditions(void **state)
{
	struct store_hand *h = *state;

	for (unsigned i = 1; i <= 24; i++) {
		struct task_words w = {
			.n = i, .user = i % 2 ? "ann" : "bob", .language = i % 3 ? "c" : "raw"};

		if (i % 4 == 0)
			w.labels[0] = "four";
		w.labels[i % 4 == 0] = i % 5 ? "x" : "five";
		add_task(h, &w);
	}
	for (unsigned i = 1; i <= 6; i++)
		cancel(h, i);
	assert_int_equal(search_all(h, (struct search_words){.limit = 4, .user = "ann"}), 12);
	assert_int_equal(search_all(h, (struct search_words){.limit = 4, .user = "nobody"}), 0);
	assert_int_equal(search_all(h, (struct search_words){.limit = 4, .language = "raw"}), 8);
	assert_int_equal(
		search_all(h, (struct search_words){.limit = 1, .status = "cancelled"}), 6);
	assert_int_equal(search_all(h, (struct search_words){.limit = 5, .status = "pending"}), 18);
	assert_int_equal(search_all(h, (struct search_words){.limit = 5, .status = "no such"}), 0);
	assert_int_equal(
		search_all(
			h, (struct search_words){.limit = 2, .label = "four", .ascending = true}),
		6);
	assert_int_equal(h->found[0], 4);
	assert_int_equal(search_all(h, (struct search_words){.limit = 2, .label = "five"}), 4);
	assert_int_equal(h->found[0], 20);
	assert_int_equal(search_all(h, (struct search_words){.limit = 2, .label = "fou"}), 0);
	/* all at once: even, by three, by four */
	assert_int_equal(search_all(h, (struct search_words){.limit = 1,
					       .user = "bob",
					       .language = "raw",
					       .status = "pending",
					       .label = "four"}),
		2);
	assert_int_equal(h->found[0], 24);
	assert_int_equal(h->found[1], 12);
	assert_int_equal(search_all(h, (struct search_words){.limit = 3,
					       .user = "bob",
					       .status = "cancelled",
					       .ascending = true}),
		3);
	assert_int_equal(h->found[2], 6);
}

static void pending_counts_what_waits(void **state)
{
	struct store_hand *h = *state;
	struct says s = says("e", 1, 2, 1, 0, "raw");

	assert_int_equal(pending(h), 0);
	add_many(h, 1, 4, "raw");
	add_many(h, 5, 1, "c");
	assert_int_equal(pending(h), 5);
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 3, "raw"));
	assert_int_equal(pending(h), 2);
	cancel(h, 1); /* owned */
	cancel(h, 5); /* waiting */
	assert_int_equal(pending(h), 1);
	says_complete(&s, 2, 1, "success", "accepted", "{}");
	report(h, s); /* and 3 is not held: back */
	assert_int_equal(pending(h), 2);
	lose(h, "e", 1, 2);
	assert_int_equal(pending(h), 2);
}

/* --- who is told ------------------------------------------------------------------------------------------------------ */

static void changes_are_told(void **state)
{
	struct store_hand *h = *state;
	struct says s = says("e", 1, 4, 3, 0, "c,raw");

	told_reset(h);
	add_task(h, &(struct task_words){.n = 1, .language = "c"});
	assert_true(told_id(h, 1));
	assert_int_equal(told_language(h, "c"), 1);
	told_reset(h);
	add_task(h, &(struct task_words){.n = 1, .language = "c"}); /* again: nothing new */
	assert_false(told_id(h, 1));
	assert_false(told_language(h, "c"));
	enroll(h, "e", 0);
	told_reset(h);
	report(h, says("e", 1, 1, 0, 1, "c"));
	assert_true(told_id(h, 1)); /* its attempt is another */
	assert_false(told_language(h, "c"));
	told_reset(h);
	report(h, says_running(says("e", 1, 2, 1, 0, "c"), 1, 1, "running", 0));
	assert_true(told_id(h, 1));
	told_reset(h);
	report(h, says_running(says("e", 1, 3, 2, 0, "c"), 1, 1, "running", 0));
	assert_false(told_id(h, 1)); /* a heartbeat */
	add_many(h, 2, 1, "raw");
	told_reset(h);
	report(h, s); /* 1 is not held any more */
	assert_true(told_id(h, 1));
	assert_true(told_language(h, "c"));
	assert_false(told_language(h, "raw"));
	told_reset(h);
	cancel(h, 1);
	assert_true(told_id(h, 1));
	assert_false(told_language(h, "c"));
}

/* The sums over the hour: a test may meet the turn of a minute. */
static struct msg_stats_minute hour_sum(const struct msg_stats_minute minutes[HOUR_MINUTES])
{
	struct msg_stats_minute sum = minutes[HOUR_MINUTES - 1];

	for (unsigned i = 0; i < HOUR_MINUTES - 1; i++) {
		sum.added += minutes[i].added;
		sum.done += minutes[i].done;
		sum.accepted += minutes[i].accepted;
	}
	return sum;
}

static void stats_count_what_happened(void **state)
{
	struct store_hand *h = *state;
	struct msg_stats_minute minutes[HOUR_MINUTES], sum;
	struct says s = says("e", 1, 2, 1, 0, "raw");
	struct msg_stats_reply r = hour_stats(h, minutes);
	struct store_counters counters;

	assert_int_equal(r.pending + r.running + r.alive + r.dead + r.slots, 0);
	assert_int_equal(minutes[0].pending, 0); /* a new store knows that nothing was */
	add_many(h, 1, 6, "raw");
	assert_false(add_task(h, &(struct task_words){.n = 1}).created); /* not counted */
	enroll(h, "e", 0);
	enroll(h, "f", 0);
	s.r.slots = 4;
	s.r.seq = 1;
	s.r.vacant = 4;
	report(h, s);
	s.r.seq = 2;
	s.r.vacant = 0;
	says_complete(&s, 1, 1, "success", "accepted", "{}");
	says_complete(&s, 2, 1, "success", "wrong_answer", "{}");
	says_complete(&s, 3, 1, "success", "accepted", "{}");
	s = says_running(s, 4, 1, "running", 0);
	report(h, s);
	cancel(h, 5);
	r = hour_stats(h, minutes);
	sum = hour_sum(minutes);
	assert_int_equal(sum.added, 6);
	assert_int_equal(sum.done, 4);
	assert_int_equal(sum.accepted, 2);
	assert_int_equal(sum.pending, 1);
	assert_int_equal(sum.running, 1);
	assert_int_equal(r.pending, 1);
	assert_int_equal(r.running, 1);
	assert_int_equal(r.alive, 2);
	assert_int_equal(r.dead, 0);
	assert_int_equal(r.slots, 4);
	assert_int_equal(r.start_us % (60 * US_PER_S), 0);
	assert_int_equal(r.oldest_us, get_task(h, 6).add_us); /* 4 has begun */
	assert_true(r.time_us - r.start_us >= 59 * 60 * US_PER_S);
	assert_true(r.time_us - r.start_us < 60 * 60 * US_PER_S);
	lose(h, "e", 1, 2); /* its task waits again, and its slots are gone */
	r = hour_stats(h, minutes);
	assert_int_equal(r.oldest_us, get_task(h, 4).add_us);
	assert_int_equal(r.pending, 2);
	assert_int_equal(r.running, 0);
	assert_int_equal(r.alive, 1);
	assert_int_equal(r.dead, 1);
	assert_int_equal(r.slots, 0);
	cancel(h, 4);
	cancel(h, 6);
	assert_int_equal(hour_stats(h, minutes).oldest_us, 0);
	h->store->ops->counters(h->store, &counters);
	assert_int_equal(counters.ended[VERDICT_ACCEPTED], 2);
	assert_int_equal(counters.ended[VERDICT_WRONG_ANSWER], 1);
	assert_int_equal(counters.ended[VERDICT_CANCELLED], 3);
	drop(h, "e");
	assert_int_equal(hour_stats(h, minutes).dead, 0);
	assert_int_equal(hour_sum(minutes).done, 6);
	assert_int_equal(minutes[0].pending, 0);
	assert_int_equal(minutes[0].running, 0);
}

static void the_list_has_the_slots_that_were_said(void **state)
{
	struct store_hand *h = *state;
	struct says s = says("e", 1, 1, 0, 0, "raw");

	enroll(h, "e", 0);
	s.r.slots = 3;
	report(h, s);
	list_executors(h, false);
	assert_int_equal(h->executors[0].slots, 3);
	s.r.seq = 2;
	s.r.slots = 2;
	report(h, s);
	list_executors(h, false);
	assert_int_equal(h->executors[0].slots, 2);
	assert_int_equal(h->executors[0].last_seq, 2);
	s.r.seq = 3;
	s.r.slots = 0; /* says nothing of it */
	report(h, s);
	list_executors(h, false);
	assert_int_equal(h->executors[0].slots, 2);
}

static void a_language_is_told_once_for_each_task_queued(void **state)
{
	struct store_hand *h = *state;

	add_many(h, 1, 3, "c");
	add_many(h, 4, 2, "raw");
	loop_turn(h->loop, 0);
	assert_int_equal(told_language(h, "c"), 3);
	assert_int_equal(told_language(h, "raw"), 2);
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 5, "c,raw"));
	told_reset(h);
	lose(h, "e", 1, 1);
	loop_turn(h->loop, 0);
	assert_int_equal(told_language(h, "c"), 3);
	assert_int_equal(told_language(h, "raw"), 2);
}

static void each_end_of_a_task_is_logged_once(void **state)
{
	struct store_hand *h = *state;
	struct says s = says("e", 1, 2, 1, 0, "raw");

	add_many(h, 1, 2, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	loop_turn(h->loop, 0);
	assert_int_equal(h->n_ended, 0);
	says_complete(&s, 1, 1, "success", "accepted", "{}");
	says_complete(&s, 1, 1, "success", "accepted", "{}");
	report(h, s);
	loop_turn(h->loop, 0);
	assert_int_equal(h->n_ended, 1);
	assert_non_null(
		strstr(h->ended, "to=success verdict=accepted attempt=1 retries=0 executor=e"));
	assert_non_null(strstr(h->ended, number_id(1).hex));
	cancel(h, 2);
	cancel(h, 2);
	loop_turn(h->loop, 0);
	assert_int_equal(h->n_ended, 2);
	assert_non_null(strstr(h->ended, "to=cancelled"));
}

static void closing_answers_what_was_called(void **state)
{
	struct store_hand *h = *state;
	struct says s = says("e", 1, 1, 0, 2, "raw");
	struct answer a = {0};
	unsigned waiting = 12;

	enroll(h, "e", 0);
	for (unsigned i = 1; i <= 10; i++)
		call_add(h, i, "raw", &waiting);
	call_report(h, &s, REPORT_FRESH, &a, &waiting);
	call_get(h, 1, &waiting);
	assert_int_equal(waiting, 12);
	store_hand_close(h);
	assert_int_equal(waiting, 0);
	assert_int_equal(a.n_assign, 2);
}

struct closer {
	struct store_hand *h;
	unsigned *waiting;
};

static void on_cancel_close(void *arg, enum store_status status)
{
	struct closer *c = arg;

	assert_int_equal(status, STORE_UNKNOWN);
	store_hand_close(c->h);
}

static void closing_from_a_callback(void **state)
{
	struct store_hand *h = *state;
	unsigned waiting = 6;
	struct closer c = {h, &waiting};

	for (unsigned i = 1; i <= 3; i++)
		call_add(h, i, "raw", &waiting);
	h->store->ops->cancel(h->store, number_id(77), on_cancel_close, &c);
	for (unsigned i = 4; i <= 6; i++)
		call_add(h, i, "raw", &waiting);
	wait_zero(h, &waiting);
	assert_null(h->store);
}

static void a_name_is_found(void **state)
{
	struct store_hand *h = *state;

	assert_ptr_equal(store_find(str_from(h->ops->name)), h->ops);
	assert_null(store_find(STR("paper")));
}

/* --- two handles on one memory ------------------------------------------------------------------------------------------ */

static void shared_memory_is_one_store(void **state)
{
	struct store_hand *h = *state;
	struct store_options options = {.max_retries = 3};
	struct store *mine = h->store, *other;

	if (h->ops != &store_memory) {
		assert_int_equal(store_memory_share(h->store, &options, &other), -EINVAL);
		return;
	}
	assert_int_equal(store_memory_share(h->store, &options, &other), 0);
	add_many(h, 1, 2, "raw");
	told_reset(h);
	h->store = other;
	assert_int_equal(pending(h), 2);
	enroll(h, "e", 0);
	assert_int_equal(report(h, says("e", 1, 1, 0, 1, "raw")).n_assign, 1);
	assert_false(told_id(h, 1)); /* each handle tells its own changes only */
	h->store = mine;
	assert_string_equal(get_task(h, 1).executor, "e");
	assert_int_equal(report(h, says("e", 1, 1, 0, 1, "raw")).status, STORE_STALE);
	other->ops->close(other);
	assert_int_equal(pending(h), 1);
}

static void the_reserve_may_be_set_at_any_time(void **state)
{
	struct store_hand *h = *state;

	h->store->ops->set_reserve(h->store, 1);
	add_many(h, 1, 2, "raw");
	h->store->ops->set_reserve(h->store, 0);
	add_many(h, 3, 1, "raw");
	assert_int_equal(pending(h), 3);
}

/* --- the table ---------------------------------------------------------------------------------------------------------- */

#define PROMISE(name)                                                                              \
	{                                                                                          \
#name, name                                                                        \
	}
static const struct {
	const char *name;
	CMUnitTestFunction fn;
} promises[] = {
	PROMISE(add_answers_and_is_idempotent),
	PROMISE(add_with_other_content_conflicts),
	PROMISE(add_time_strictly_increases),
	PROMISE(claims_come_in_the_queues_order),
	PROMISE(claims_keep_to_the_languages_offered),
	PROMISE(claims_are_exclusive_and_marked),
	PROMISE(claims_of_many_executors_never_meet),
	PROMISE(a_reply_is_not_without_bound),
	PROMISE(l1_register_names_the_last_epoch),
	PROMISE(l2_register_counts_what_was_lost),
	PROMISE(l3_register_claims_nothing),
	PROMISE(l4_only_the_living_epoch_is_heard),
	PROMISE(l5_lose_takes_exactly_what_was_seen),
	PROMISE(l6_an_epoch_is_kept_for_ever),
	PROMISE(executors_are_listed_by_name_with_what_they_hold),
	PROMISE(l12_fresh_and_again),
	PROMISE(l12_a_stale_report_touches_nothing),
	PROMISE(l13_verbs_take_effect_in_the_order_called),
	PROMISE(a_result_is_accepted_once),
	PROMISE(l7_what_is_not_owned_is_cancelled),
	PROMISE(a_result_of_another_executor_is_refused),
	PROMISE(a_result_not_understood_is_our_error),
	PROMISE(progress_is_shown_and_goes_forward),
	PROMISE(progress_of_a_claim_that_ends_in_the_same_turn_is_dropped),
	PROMISE(progress_of_one_claim_is_not_that_of_the_next),
	PROMISE(l8_a_claim_is_in_flight_until_its_reply_is_acked),
	PROMISE(a_task_dropped_by_its_executor_returns_uncounted),
	PROMISE(l9_undo_is_exact),
	PROMISE(l10_what_is_in_flight_takes_room),
	PROMISE(l11_a_lone_task_is_the_sole_claim),
	PROMISE(l11_a_lone_task_is_not_given_beside_others),
	PROMISE(l11_a_lone_task_returned_uncounted_stays_lone),
	PROMISE(a_poison_task_ends_as_error),
	PROMISE(cancel_is_final_at_once),
	PROMISE(cancel_of_what_is_done_is_refused),
	PROMISE(the_queue_survives_cancels_from_anywhere),
	PROMISE(get_answers_what_differs),
	PROMISE(texts_are_8_bit_clean),
	PROMISE(search_pages_both_ways),
	PROMISE(search_by_conditions),
	PROMISE(pending_counts_what_waits),
	PROMISE(changes_are_told),
	PROMISE(a_language_is_told_once_for_each_task_queued),
	PROMISE(stats_count_what_happened),
	PROMISE(the_list_has_the_slots_that_were_said),
	PROMISE(each_end_of_a_task_is_logged_once),
	PROMISE(closing_answers_what_was_called),
	PROMISE(closing_from_a_callback),
	PROMISE(a_name_is_found),
	PROMISE(shared_memory_is_one_store),
	PROMISE(the_reserve_may_be_set_at_any_time),
};

static int run_row(const struct store_ops *ops)
{
	struct CMUnitTest tests[ARRAY_SIZE(promises)];
	char *texts[ARRAY_SIZE(promises)];
	int failures;

	for (size_t i = 0; i < ARRAY_SIZE(promises); i++) {
		texts[i] = mem_printf("%s: %s", ops->name, promises[i].name);
		tests[i] =
			(struct CMUnitTest){texts[i], promises[i].fn, setup, teardown, (void *)ops};
	}
	failures = cmocka_run_group_tests_name(ops->name, tests, NULL, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(promises); i++)
		free(texts[i]);
	return failures;
}

int main(void)
{
	return run_row(&store_memory) + run_row(&store_sqlite);
}
