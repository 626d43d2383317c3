/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor: what is held, and who may run.
 *
 *   session ──assign──> WAITING ──slot free──> RUNNING ──result──> RESULT ──accepted──> (gone)
 *      │                   │                      │                   │
 *      └──cancel───────────┴──> (gone)            └──> KILLING ──reaped──┴──> (gone)
 *
 * A claim is one task assigned to us once: (id, attempt). It is on exactly the list its state names; counting is walking.
 * `newest` finds a task's latest claim by id: that is the protocol's hold[id]. An older claim of the same id that had
 * to be killed stays on its list until it is reaped, takes its slot, and keeps the newer one waiting, but
 * is reported to nobody.
 *
 * Slots are taken by RUNNING and KILLING; a result keeps none. A lone claim (its task was lost with an executor before)
 * starts only when nothing else is held at all, and while it is held nothing more is asked for.
 *
 * SUSPECT is a claim whose program was alive when the box broke for good. It stays ours, listed as before, until the process
 * ends: the next one's registration then counts the loss, so that a task that breaks boxes runs alone next time, and is an
 * error in the end. What had not run is innocent and goes back uncounted.
 *
 * Ends: drain() drops what waits, stops asking, lets the rest finish (or kills it after the grace), and is over when nothing is
 * held and the store has been told so after every earlier reply: whatever was given to us meanwhile goes back. Fenced:
 * everything is killed, and it is over when the last is reaped, so that the caller may say so by exiting.
 */
#include "roles/executor/executor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/timer.h"
#include "roles/executor/blob_cache.h"
#include "roles/executor/exec_task.h"
#include "roles/executor/session.h"
#include "roles/executor/unpack.h"

/* Results in one report, in bytes: what is over it is listed as executing, and goes with the next. At least one goes. */
#define REPORT_RESULTS_MAX ((size_t)16 << 20)
#define REPORT_ITEMS_MAX 4096 /* messages.def */
/* Held results beyond which no more work is asked for. */
#define RESULTS_HELD_MAX ((size_t)128 << 20)
#define RESULTS_HELD_ITEMS_MAX 2048
#define BROKEN_GRACE_US (10 * US_PER_S)

struct claim {
	struct list link; /* executor->claims[state] */
	enum executor_hold state;
	struct executor *executor;
	struct id id;
	int64_t attempt;
	bool lone;
	struct record *record;     /* of the task; NULL = unreadable */
	char *message;             /* then: why */
	struct exec_task *machine; /* RUNNING, KILLING, RESULT */
};

/* BROKEN drains too: the box can run nothing any more. */
enum executor_life { SERVING, DRAINING, BROKEN, FENCED, OVER };

struct executor {
	struct loop *loop;
	struct log *log;
	struct session *session;
	struct exec_task_env env;
	void (*on_end)(void *arg, enum executor_end end);
	void *arg;
	unsigned slots;
	enum executor_life life;
	struct timer grace;
	struct defer over;
	struct list claims[EXECUTOR_HOLDS];
	uint64_t ended[VERDICT_N], system_failures;
	struct map newest; /* id -> struct claim */
};

/*** The claims ***/

static struct claim *claim_of(struct list *link)
{
	return list_entry(link, struct claim, link);
}

static unsigned count(const struct executor *executor, enum executor_hold state)
{
	unsigned n = 0;

	list_each (it, &executor->claims[state])
		n++;
	return n;
}

static bool is_newest(const struct claim *claim)
{
	return map_get(&claim->executor->newest, id_str(&claim->id)) == claim;
}

static void claim_move(struct claim *claim, enum executor_hold state)
{
	list_del(&claim->link);
	claim->state = state;
	list_add_tail(&claim->executor->claims[state], &claim->link);
}

static void claim_free(struct claim *claim)
{
	if (is_newest(claim))
		map_del(&claim->executor->newest, id_str(&claim->id));
	list_del(&claim->link);
	exec_task_free(claim->machine);
	record_free(claim->record);
	free(claim->message);
	free(claim);
}

static unsigned slots_taken(const struct executor *executor)
{
	return count(executor, EXECUTOR_RUNNING) + count(executor, EXECUTOR_KILLING);
}

static bool a_lone_one_is_held(const struct executor *executor)
{
	for (int state = 0; state < EXECUTOR_HOLDS; state++) {
		list_each (it, &executor->claims[state]) {
			if (claim_of(it)->lone)
				return true;
		}
	}
	return false;
}

/* Judicators that give work and do not accept results must not fill our memory. */
static bool too_much_is_unaccepted(const struct executor *executor)
{
	size_t bytes = 0;

	list_each (it, &executor->claims[EXECUTOR_RESULT])
		bytes += exec_task_outcome(claim_of(it)->machine)->json.n;
	return bytes > RESULTS_HELD_MAX ||
	       count(executor, EXECUTOR_RESULT) > RESULTS_HELD_ITEMS_MAX;
}

static int64_t vacant(const struct executor *executor)
{
	unsigned taken = slots_taken(executor) + count(executor, EXECUTOR_WAITING);

	if (executor->life != SERVING || a_lone_one_is_held(executor) || taken >= executor->slots ||
		too_much_is_unaccepted(executor))
		return 0;
	return executor->slots - taken;
}

/*** The ends ***/

static bool is_draining(const struct executor *executor)
{
	return executor->life == DRAINING || executor->life == BROKEN;
}

static void on_over(void *arg)
{
	static const enum executor_end ends[] = {[DRAINING] = EXECUTOR_DRAINED,
		[BROKEN] = EXECUTOR_BROKEN,
		[FENCED] = EXECUTOR_FENCED};
	struct executor *executor = arg;
	enum executor_end end = ends[executor->life];

	executor->life = OVER;
	executor->on_end(executor->arg, end);
}

static void look_for_the_end(struct executor *executor, bool settled)
{
	if (executor_held(executor) > count(executor, EXECUTOR_SUSPECT))
		return;
	if (executor->life == FENCED || (is_draining(executor) && settled))
		loop_defer(executor->loop, &executor->over);
}

/* Lets go of a claim in whatever state; true when it was gone at once. */
static bool claim_drop(struct claim *claim, const char *cause)
{
	if (claim->state == EXECUTOR_RUNNING)
		claim_move(claim, EXECUTOR_KILLING);
	if (claim->machine)
		exec_task_end(claim->machine, cause);
	if (claim->state == EXECUTOR_KILLING)
		return false;
	claim_free(claim);
	return true;
}

static void drop_all(struct executor *executor, enum executor_hold state, const char *cause)
{
	list_each_safe (it, &executor->claims[state])
		claim_drop(claim_of(it), cause);
}

/*** wait -> run -> result ***/

static void on_task_end(void *arg);
static void on_task_progress(void *arg);

static void claim_run(struct claim *claim)
{
	static const struct exec_task_events events = {on_task_progress, on_task_end};
	struct executor *executor = claim->executor;

	claim_move(claim, EXECUTOR_RUNNING);
	claim->machine = exec_task_new(&executor->env, &claim->id, claim->attempt,
		claim->record ? record_data(claim->record) : NULL, claim->message, &events, claim);
	session_changed(executor->session, SESSION_SOON);
}

/* An older claim of the task is still dying. */
static bool an_older_one_lives(const struct claim *claim)
{
	list_each (it, &claim->executor->claims[EXECUTOR_KILLING]) {
		if (id_eq(&claim_of(it)->id, &claim->id))
			return true;
	}
	return false;
}

static void start_what_may(struct executor *executor)
{
	list_each_safe (it, &executor->claims[EXECUTOR_WAITING]) {
		struct claim *claim = claim_of(it);

		if (slots_taken(executor) >= executor->slots)
			return;
		if ((!claim->lone || executor_held(executor) == 1) && !an_older_one_lives(claim))
			claim_run(claim);
	}
}

static void on_task_progress(void *arg)
{
	struct claim *claim = arg;

	session_changed(claim->executor->session, SESSION_SOON);
}

/* A task came back without a result though nobody had asked for its end. */
static void break_down(struct executor *executor)
{
	if (executor->life != SERVING && executor->life != DRAINING)
		return;
	log_error(executor->log, "box_broken", "held=%u action=\"hand back and end\"",
		executor_held(executor));
	executor->life = BROKEN;
	drop_all(executor, EXECUTOR_WAITING, "box broken");
	drop_all(executor, EXECUTOR_RUNNING, "box broken");
	timer_start(&executor->grace, BROKEN_GRACE_US);
}

/* Its machine has ended without a result: as it was told to, or because the box is broken. */
static void claim_is_over(struct claim *claim)
{
	struct executor *executor = claim->executor;

	if (claim->state == EXECUTOR_RUNNING) {
		claim_move(claim, EXECUTOR_KILLING);
		break_down(executor);
	}
	if (executor->life == BROKEN && exec_task_is_suspect(claim->machine))
		claim_move(claim, EXECUTOR_SUSPECT);
	else
		claim_free(claim);
}

static void count_end(struct executor *executor, const struct exec_task_outcome *outcome)
{
	enum verdict verdict;

	if (verdict_parse(str_from(outcome->verdict), &verdict))
		executor->ended[verdict]++;
}

static void on_task_end(void *arg)
{
	struct claim *claim = arg;
	struct executor *executor = claim->executor;

	record_free(take_ptr(&claim->record)); /* may be large, and results may have to wait */
	if (exec_task_is_held(claim->machine)) {
		count_end(executor, exec_task_outcome(claim->machine));
		claim_move(claim, EXECUTOR_RESULT);
	} else {
		claim_is_over(claim);
	}
	start_what_may(executor);
	session_changed(executor->session, SESSION_NOW);
	look_for_the_end(executor, false);
}

/*** What the session says ***/

static struct claim *find_claim(struct executor *executor, const struct msg_task_ref *ref)
{
	struct claim *claim = map_get(&executor->newest, id_str(&ref->id));

	return claim && claim->attempt == ref->attempt ? claim : NULL;
}

static void on_accepted(void *arg, const struct msg_task_ref *ref)
{
	struct executor *executor = arg;
	struct claim *claim = find_claim(executor, ref);

	if (!claim || claim->state != EXECUTOR_RESULT)
		return;
	claim_drop(claim, "accepted");
	start_what_may(executor); /* a lone one may have waited for this */
	session_changed(executor->session, SESSION_NOW);
}

static void on_cancel(void *arg, const struct msg_task_ref *ref)
{
	struct executor *executor = arg;
	struct claim *claim = find_claim(executor, ref);

	if (!claim || claim->state == EXECUTOR_KILLING)
		return;
	claim_drop(claim, "cancelled");
	start_what_may(executor);
	session_changed(executor->session, SESSION_NOW);
}

static struct claim *claim_new(struct executor *executor, const struct msg_assign_item *item)
{
	struct claim *claim = mem_alloc(sizeof(*claim));
	struct problem problem = {.code = ""};

	claim->executor = executor;
	claim->id = item->id;
	claim->attempt = item->attempt;
	claim->lone = item->lone;
	list_init(&claim->link);
	if (task_parse_node(item->doc.node, &claim->record, &problem)) {
		claim->record = NULL;
		claim->message = mem_printf("the task cannot be read: %s at %s: %s", problem.code,
			problem.pointer, problem.detail);
	}
	return claim;
}

static void on_assign(void *arg, const struct msg_assign_item *item)
{
	struct executor *executor = arg;
	struct claim *older = map_get(&executor->newest, id_str(&item->id)), *claim;

	session_changed(executor->session, SESSION_NOW);
	/* Draining: it is never listed, so it goes back with the reports that follow. */
	if (executor->life != SERVING)
		return;
	if (older && older->attempt >= item->attempt) {
		log_warn(executor->log, "assign", "id=%s attempt=%" PRId64 " ignored=stale",
			item->id.hex, item->attempt);
		return;
	}
	if (older)
		claim_drop(older, "superseded");
	claim = claim_new(executor, item);
	map_set(&executor->newest, id_str(&claim->id), claim);
	claim_move(claim, EXECUTOR_WAITING);
	start_what_may(executor);
}

static void on_reply(void *arg, bool settled)
{
	look_for_the_end(arg, settled);
}

static void on_fenced(void *arg)
{
	struct executor *executor = arg;

	if (executor->life == OVER)
		return;
	log_error(executor->log, "fenced",
		"epoch=%" PRId64 " held=%u why=\"superseded by another process of this name, "
		"or declared dead\"",
		session_epoch(executor->session), executor_held(executor));
	timer_stop(&executor->grace);
	executor->life = FENCED;
	for (int state = 0; state < EXECUTOR_HOLDS; state++)
		drop_all(executor, state, "fenced");
	look_for_the_end(executor, false);
}

/*** The report's body ***/

static void fill_complete(struct claim *claim, struct msg_report_request *request)
{
	const struct exec_task_outcome *outcome = exec_task_outcome(claim->machine);
	struct msg_complete_item *items = request->complete.items;

	items[request->complete.count++] = (struct msg_complete_item){
		.id = claim->id,
		.attempt = claim->attempt,
		.status = str_from(outcome->status),
		.verdict = str_from(outcome->verdict),
		.result = {.text = outcome->json},
	};
}

static void fill_executing(struct claim *claim, struct msg_report_request *request)
{
	struct msg_executing_item *items = request->executing.items;
	enum task_status status = claim->machine ? exec_task_status(claim->machine) : TASK_PENDING;

	items[request->executing.count++] = (struct msg_executing_item){
		.id = claim->id,
		.attempt = claim->attempt,
		.status = str_from(task_status_name(status)),
		.case_no = claim->machine ? exec_task_case_no(claim->machine) : 0,
	};
}

static void fill_results(struct executor *executor, struct msg_report_request *request)
{
	size_t bytes = 0;

	list_each (it, &executor->claims[EXECUTOR_RESULT]) {
		struct claim *claim = claim_of(it);
		size_t n = exec_task_outcome(claim->machine)->json.n;

		if (bytes == 0 || bytes + n <= REPORT_RESULTS_MAX)
			fill_complete(claim, request);
		else
			fill_executing(claim, request);
		bytes += n;
	}
}

static void on_fill(void *arg, struct msg_report_request *request)
{
	static const enum executor_hold others[] = {
		EXECUTOR_RUNNING, EXECUTOR_KILLING, EXECUTOR_WAITING, EXECUTOR_SUSPECT};
	struct executor *executor = arg;
	unsigned held = executor_held(executor);

	CHECK(held <= REPORT_ITEMS_MAX);
	request->complete.items = mem_array(held, sizeof(struct msg_complete_item));
	request->executing.items = mem_array(held, sizeof(struct msg_executing_item));
	fill_results(executor, request);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		list_each (it, &executor->claims[others[i]]) {
			if (is_newest(claim_of(it)))
				fill_executing(claim_of(it), request);
		}
	}
	request->vacant = vacant(executor);
	/* The last word of a drain is not held. */
	if (is_draining(executor) && held == count(executor, EXECUTOR_SUSPECT))
		request->wait_ms = 0;
}

/*** Life ***/

static struct session *open_session(
	struct executor *executor, const struct executor_options *options)
{
	static const struct session_events events = {
		.fill = on_fill,
		.on_accepted = on_accepted,
		.on_cancel = on_cancel,
		.on_assign = on_assign,
		.on_reply = on_reply,
		.on_fenced = on_fenced,
	};
	struct str *names cleanup(mem_freep) =
		mem_array(map_count(options->languages) + 1, sizeof(struct str));
	size_t n = 0;

	names[n++] = STR(LANGUAGE_RAW);
	map_each (it, options->languages)
		names[n++] = str_from(map_entry_of(it)->key);
	return session_new(executor->loop,
		&(struct session_options){
			.name = options->name,
			.judicators = options->judicators,
			.transport = options->transport,
			.log = options->log,
			.wait_us = options->wait_us,
			.slots = executor->slots,
			.isolation = box_host_isolation(options->box),
			.toolchains = options->toolchains,
			.languages = {names, n},
		},
		&events, executor);
}

static void on_grace_over(void *arg)
{
	struct executor *executor = arg;

	if (executor->life ==
		BROKEN) { /* no judicator took our last word; what use is there in waiting */
		loop_defer(executor->loop, &executor->over);
		return;
	}
	drop_all(executor, EXECUTOR_RUNNING, "shutdown");
	session_changed(executor->session, SESSION_NOW);
}

struct executor *executor_new(struct loop *loop, const struct executor_options *options)
{
	struct executor *executor = mem_alloc(sizeof(*executor));

	executor->loop = loop;
	executor->log = options->log;
	executor->slots = options->alone || !options->slots ? 1 : options->slots;
	executor->on_end = options->on_end;
	executor->arg = options->arg;
	executor->env = (struct exec_task_env){
		.loop = loop,
		.log = options->log,
		.box = options->box,
		.unpacker = unpacker_new(loop),
		.blobs = blob_cache_new(loop,
			&(struct blob_cache_options){
				.log = options->log,
				.transport = options->transport,
				.judicators = options->judicators,
				.dir = options->blob_dir,
				.bytes_max = options->blob_bytes_max,
			}),
		.languages = options->languages,
		.on_change = options->on_task_change,
		.arg = options->arg,
		.system_failures = &executor->system_failures,
	};
	for (int state = 0; state < EXECUTOR_HOLDS; state++)
		list_init(&executor->claims[state]);
	map_init(&executor->newest);
	timer_init(&executor->grace, loop, on_grace_over, executor);
	defer_init(&executor->over, on_over, executor);
	executor->session = open_session(executor, options);
	return executor;
}

void executor_drain(struct executor *executor, int64_t grace_us)
{
	if (executor->life != SERVING)
		return;
	executor->life = DRAINING;
	log_info(executor->log, "draining", "held=%u grace_us=%" PRId64, executor_held(executor),
		grace_us);
	drop_all(executor, EXECUTOR_WAITING, "shutdown");
	if (!session_epoch(executor->session)) { /* nothing was ever given to us */
		loop_defer(executor->loop, &executor->over);
		return;
	}
	timer_start(&executor->grace, grace_us);
	session_changed(executor->session, SESSION_NOW);
}

void executor_free(struct executor *executor)
{
	if (!executor)
		return;
	session_free(executor->session);
	timer_stop(&executor->grace);
	defer_cancel(&executor->over);
	for (int state = 0; state < EXECUTOR_HOLDS; state++) {
		list_each_safe (it, &executor->claims[state])
			claim_free(claim_of(it));
	}
	map_fini(&executor->newest);
	unpacker_free(executor->env.unpacker);
	blob_cache_free(executor->env.blobs);
	loop_free_later(executor->loop, free, executor);
}

/*** Questions ***/

const char *executor_hold_name(enum executor_hold hold)
{
	static const char *const names[] = {
		[EXECUTOR_WAITING] = "waiting",
		[EXECUTOR_RUNNING] = "running",
		[EXECUTOR_KILLING] = "killing",
		[EXECUTOR_RESULT] = "result",
		[EXECUTOR_SUSPECT] = "suspect",
	};

	return names[hold];
}

void executor_get_stats(const struct executor *executor, struct executor_stats *out)
{
	*out = (struct executor_stats){
		.slots = executor->slots,
		.system_failures = executor->system_failures,
		.registered = session_epoch(executor->session) > 0,
	};
	for (int hold = 0; hold < EXECUTOR_HOLDS; hold++)
		out->held[hold] = count(executor, hold);
	memcpy(out->ended, executor->ended, sizeof(out->ended));
	for (unsigned method = 0; method < RPC_METHOD_N; method++) {
		for (unsigned failure = 0; failure <= RPC_GARBLED; failure++)
			out->calls[method][failure] = session_calls(executor->session,
				(enum rpc_method)method, (enum rpc_failure)failure);
	}
}

void executor_blob_stats(const struct executor *executor, struct blob_cache_stats *out)
{
	blob_cache_get_stats(executor->env.blobs, out);
}

unsigned executor_held(const struct executor *executor)
{
	unsigned n = 0;

	for (int state = 0; state < EXECUTOR_HOLDS; state++)
		n += count(executor, state);
	return n;
}

static unsigned count_alive(const struct executor *executor, const char *id)
{
	unsigned n = 0;

	for (int state = EXECUTOR_RUNNING; state <= EXECUTOR_KILLING; state++) {
		list_each (it, &executor->claims[state]) {
			const struct claim *claim = claim_of(it);

			n += exec_task_is_alive(claim->machine) &&
			     (!id || strcmp(claim->id.hex, id) == 0);
		}
	}
	return n;
}

unsigned executor_running(const struct executor *executor)
{
	return count_alive(executor, NULL);
}

bool executor_runs(const struct executor *executor, const char *id)
{
	return count_alive(executor, id) > 0;
}

int64_t executor_epoch(const struct executor *executor)
{
	return session_epoch(executor->session);
}
