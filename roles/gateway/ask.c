/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask - theory of operation
 *
 * One question to the judicators. They all answer from the same store and every method may be repeated, so a failure that is of the
 * moment (nobody there, connection lost, silence, 503) sends the same question to the next of them: at once while some
 * have not been tried, then after a growing pause, until the budget is spent.
 *
 *     ask_start -> asking -> done(RPC_OK | what the client should be told)
 *                   ^  |
 *                   |  v  temporary failure, and time for another try
 *                  pausing
 *
 * With a choice of judicators none may keep a question for longer than ATTEMPT_US: a silent one must not eat the whole budget.
 * A question that our own transport does not take, since its line is full, says nothing about a judicator: the same one is asked
 * again after a pause, and the client is told "busy".
 * The end of the budget is decided when an attempt fails, never in the pause, so the last answer's reason can be passed on.
 *
 * Not every refusal is the client's: only those in `passed` are handed on as they are.
 */
#include "roles/gateway/gateway_int.h"

#include <errno.h>

#define ATTEMPT_US (3 * US_PER_S)
#define ATTEMPT_MIN_US (100 * US_PER_MS)
#define PAUSE_MIN_US (20 * US_PER_MS)
#define PAUSE_MAX_US (1 * US_PER_S)

static const char *const passed[] = {"bad_after", "blob_mismatch", "blob_missing",
	"blob_upload_lost", "task_conflict", "task_done", "task_unknown"};

/* What will not pass within the budget, though it is a 503. */
static const char *const lasting[] = {"disk_full"};

static bool is_among(const char *const *codes, size_t n, const char *code)
{
	for (size_t i = 0; i < n; i++) {
		if (!strcmp(codes[i], code))
			return true;
	}
	return false;
}

/* --- what the client is told ----------------------------------------------------------------------------------- */

static void tell_rejected(struct ask *ask, struct rpc_answer *answer)
{
	struct problem *p = &answer->problem;

	if (is_among(passed, ARRAY_SIZE(passed), p->code))
		return;
	log_error(ask->g->log, "rejected", "judicator=%s method=%s status=%d code=%s", ask->address,
		rpc_methods[ask->method].name, p->status, p->code);
	if (p->status == 401)
		problem_set(p, 502, "secret_refused", "",
			"The judicator does not know this gateway's secret: both need the same "
			"rpc.secret_file.");
	else
		problem_set(p, 502, "judicator_refused", "",
			"The judicator refused this with status %d.", p->status);
}

static void tell_temporary(struct ask *ask, struct rpc_answer *answer)
{
	struct problem *p = &answer->problem;

	if (answer->failure == RPC_UNAVAILABLE && p->code[0]) {
		p->status = 503; /* and its own code and words */
		return;
	}
	if (answer->failure == RPC_REFUSED)
		problem_set(p, 503, "no_judicator", "",
			"No judicator can be reached. Try again in a moment.");
	else
		problem_set(p, 503, "unavailable", "",
			"No judicator answered (%s). Try again in a moment; repeating is harmless "
			"with an Idempotency-Key.",
			rpc_failure_name(answer->failure));
}

static void ask_finish(struct ask *ask, struct rpc_answer *answer)
{
	if (answer->failure == RPC_REJECTED)
		tell_rejected(ask, answer);
	else if (answer->failure != RPC_OK)
		tell_temporary(ask, answer);
	ask->done(ask->arg, answer); /* ask may be gone */
}

/* --- attempts -------------------------------------------------------------------------------------------------- */

/* The budget allows another try after the pause. */
static bool has_time(const struct ask *ask, int64_t pause_us)
{
	return loop_now_us(ask->g->loop) + pause_us + ATTEMPT_MIN_US <= ask->deadline_us;
}

/* How long to wait before the next try, or -1: there is none. */
static int64_t next_pause_us(struct ask *ask, const struct rpc_answer *answer)
{
	struct gateway *g = ask->g;
	int64_t pause_us = 0;

	if (!rpc_failure_is_temporary(answer->failure))
		return -1;
	ask->failures++;
	if (ask->failures >= g->peers.n &&
		is_among(lasting, ARRAY_SIZE(lasting), answer->problem.code))
		return -1;
	if (ask->failures % g->peers.n == 0)
		pause_us = backoff_next(&ask->backoff, g->loop);
	return has_time(ask, pause_us) ? pause_us : -1;
}

static void pause_or_finish(struct ask *ask, int64_t pause_us, struct rpc_answer *answer)
{
	if (pause_us < 0)
		ask_finish(ask, answer);
	else
		timer_start(&ask->pause, pause_us);
}

static void on_answer(void *arg, struct rpc_answer *answer)
{
	struct ask *ask = arg;

	ask->op = NULL;
	metrics_call(ask->g, ask->method, answer->failure);
	if (answer->failure != RPC_OK && answer->failure != RPC_REJECTED) {
		log_debug(ask->g->log, "ask_failed", "judicator=%s method=%s why=%s", ask->address,
			rpc_methods[ask->method].name, rpc_failure_name(answer->failure));
		peers_failed(&ask->g->peers, ask->address);
	}
	pause_or_finish(ask, next_pause_us(ask, answer), answer);
}

static void on_not_sent(struct ask *ask)
{
	struct rpc_answer answer = {.failure = RPC_REFUSED, .problem = {.code = ""}};
	int error = ask->not_sent;
	int64_t pause_us;

	ask->not_sent = 0;
	if (error != -EAGAIN) { /* an address that is none: the next may be one */
		on_answer(ask, &answer);
		return;
	}
	answer.failure = RPC_UNAVAILABLE;
	problem_set(&answer.problem, 503, "busy", "",
		"This gateway has too many questions open. Try again in a moment.");
	pause_us = backoff_next(&ask->backoff, ask->g->loop);
	pause_or_finish(ask, has_time(ask, pause_us) ? pause_us : -1, &answer);
}

static void attempt(struct ask *ask)
{
	struct gateway *g = ask->g;
	int64_t limit_us = ask->deadline_us - loop_now_us(g->loop);
	int r;

	if (g->peers.n > 1 && limit_us > ATTEMPT_US)
		limit_us = ATTEMPT_US;
	if (limit_us < ATTEMPT_MIN_US)
		limit_us = ATTEMPT_MIN_US;
	ask->address = peers_current(&g->peers);
	r = rpc_call_carrying(g->loop, g->transport, ask->address, ask->method, ask->request,
		ask->carried, limit_us - rpc_methods[ask->method].timeout_us, on_answer, ask,
		&ask->op);
	if (r) {
		ask->not_sent = r; /* told from the loop, like every failure */
		timer_start(&ask->pause, 0);
	}
}

static void on_pause_over(void *arg)
{
	struct ask *ask = arg;

	if (ask->not_sent)
		on_not_sent(ask);
	else
		attempt(ask);
}

void ask_start(struct ask *ask, struct gateway *g, enum rpc_method method, const void *request,
	int64_t budget_us, ask_done_fn *done, void *arg)
{
	ask_start_carrying(ask, g, method, request, STR_NULL, budget_us, done, arg);
}

void ask_start_carrying(struct ask *ask, struct gateway *g, enum rpc_method method,
	const void *request, struct str bytes, int64_t budget_us, ask_done_fn *done, void *arg)
{
	*ask = (struct ask){
		.g = g,
		.method = method,
		.request = request,
		.carried = bytes,
		.deadline_us = loop_now_us(g->loop) + budget_us,
		.backoff = {.min_us = PAUSE_MIN_US, .max_us = PAUSE_MAX_US},
		.done = done,
		.arg = arg,
	};
	timer_init(&ask->pause, g->loop, on_pause_over, ask);
	attempt(ask);
}

void ask_stop(struct ask *ask)
{
	if (!ask->g)
		return;
	op_cancel(&ask->op);
	timer_stop(&ask->pause);
}
