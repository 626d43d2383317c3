/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine: JOIN (register is open) <-> REST (waiting before the next try) -> SERVE -> FENCED.
 *
 *   JOIN    register(name, base), base = 0 at first, then the epoch a conflict answers. ok -> SERVE with that epoch,
 *           n = 0. A try that is lost is closed before the next is sent; should it arrive late all the same, its base
 *           no longer holds and it changes nothing.
 *   SERVE   report_is_due() is the protocol's "when" clause, send_report() its body, on_report_answer() the reply.
 *           `open` has at most two entries, in the order of their numbers.
 *   FENCED  terminal: all closed.
 *
 * One report is one connection (rpc/transport.h). Giving it up is removing it from `open` and op_cancel(), in one act: so
 * a reply is applied only while its report is in `open`, at most once, and "acked" (everything below the lowest
 * open number is applied or closed for good) is true when it is written. A failed report is never sent
 * again: the next one is a full snapshot with its own number.
 *
 * When reports go out: at the end of the turn (so that what one reply starts is in one report), or up to PROGRESS_US
 * later for mere progress. Two brakes: after a round of failures, one of every judicator known, backoff (`retry`); and when
 * a report without news had an early reply without news (say, the cancel of a task that is still dying), the next one
 * waits until PROGRESS_US after its sending, so that the two sides cannot spin. Both only delay, which the
 * protocol allows anywhere.
 */
#include "roles/executor/session.h"

#include <inttypes.h>
#include <stdlib.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/fsm.h"
#include "reactor/loop.h"
#include "rpc/rpc_client.h"

#define REGISTER_TIMEOUT_US (5 * US_PER_S)
#define REPORT_GRACE_US (5 * US_PER_S) /* on top of the long poll */
#define PROGRESS_US (100 * US_PER_MS)
#define OPEN_MAX 2

enum { JOIN, REST, SERVE, FENCED };

struct report {
	struct list link; /* session.open */
	struct session *session;
	struct op *op;
	int64_t seq, acked;
	int64_t sent_us;
	bool news;           /* something had changed when it was sent */
	const char *address; /* peers' own */
	struct timer late;
};

struct session {
	struct fsm fsm;
	struct loop *loop;
	struct log *log;
	struct transport *transport;
	struct session_events events;
	void *arg;
	/* what never changes */
	char *name, *isolation, *toolchains;
	struct str *languages; /* each p is ours */
	size_t n_languages;
	int64_t slots, wait_us;
	/* whom we talk to */
	struct peers peers;
	struct backoff backoff;
	unsigned failures; /* of different judicators since the last answer */
	/* JOIN, REST */
	int64_t base;
	struct op *registering;
	const char *asked; /* peers' own */
	int64_t rest_us;
	struct defer start;
	/* SERVE */
	int64_t epoch, n; /* n = number of the last report sent */
	struct list open;
	bool changed;          /* what fill() would say, since it was last asked */
	struct defer look;     /* sends a report if one is due */
	struct timer progress; /* SESSION_SOON: `changed` when it fires */
	struct timer brake;    /* no report before it fires, unless something changes */
	struct timer retry;    /* no report before it fires */
	uint64_t calls[RPC_METHOD_N][RPC_GARBLED + 1];
};

/*** Failures ***/

/* Moves on to another judicator; returns how long to wait before asking it: only after a whole round of them. A judicator
 * counts once, however many of our calls it fails. */
static int64_t peer_failed(struct session *session, const char *address,
	const struct rpc_answer *answer, const char *call)
{
	const char *why = answer ? rpc_failure_name(answer->failure) : "late";
	enum log_level level = session->failures ? LOG_DEBUG : LOG_WARN;

	if (answer && answer->failure == RPC_REJECTED) {
		char quoted[LOG_QUOTE_MAX];

		log_error(session->log, "judicator", "address=%s call=%s rejected=%s detail=%s",
			address, call, answer->problem.code,
			log_quote(str_from(answer->problem.detail), quoted));
	} else {
		log_at(session->log, level, "judicator", "address=%s call=%s failed=%s", address,
			call, why);
	}
	if (address != peers_current(&session->peers))
		return 0;
	peers_failed(&session->peers, address);
	if (++session->failures % session->peers.n)
		return 0;
	return backoff_next(&session->backoff, session->loop);
}

static void peer_answered(struct session *session, const char *address)
{
	if (session->failures)
		log_info(session->log, "judicator", "address=%s answers=yes", address);
	session->failures = 0;
	backoff_reset(&session->backoff);
}

/*** JOIN, REST ***/

static void rest(struct session *session, int64_t us, const char *cause)
{
	session->rest_us = us;
	fsm_go(&session->fsm, REST, cause);
}

static void on_registered(void *arg, struct rpc_answer *answer)
{
	struct session *session = arg;
	const struct msg_register_reply *reply = answer->reply;

	session->registering = NULL;
	session->calls[RPC_register][answer->failure]++;
	if (answer->failure != RPC_OK) {
		rest(session, peer_failed(session, session->asked, answer, "register"), "failed");
		return;
	}
	peer_answered(session, session->asked);
	if (reply->conflict) {
		/* A conflict that names our own base makes no sense: at least do not spin. */
		bool odd = reply->epoch == session->base;

		session->base = reply->epoch;
		rest(session, odd ? backoff_next(&session->backoff, session->loop) : 0, "conflict");
		return;
	}
	session->epoch = reply->epoch;
	session->n = 0;
	log_info(session->log, "registered", "executor=%s epoch=%" PRId64 " judicator=%s",
		session->name, session->epoch, session->asked);
	fsm_go(&session->fsm, SERVE, "registered");
}

static int enter_join(void *owner)
{
	struct session *session = owner;
	struct msg_register_request request = {
		.executor = str_from(session->name),
		.base = session->base,
	};

	session->asked = peers_current(&session->peers);
	if (rpc_call(session->loop, session->transport, session->asked, RPC_register, &request, 0,
		    on_registered, session, &session->registering) == 0)
		return FSM_WAIT;
	peer_failed(session, session->asked, NULL, "register");
	session->rest_us = backoff_next(&session->backoff, session->loop);
	return REST;
}

static void join_is_late(void *owner)
{
	struct session *session = owner;

	op_cancel(&session->registering);
	rest(session, peer_failed(session, session->asked, NULL, "register"), "late");
}

static int enter_rest(void *owner)
{
	struct session *session = owner;

	fsm_set_deadline(&session->fsm, session->rest_us > 0 ? session->rest_us : 1);
	return FSM_WAIT;
}

static void rest_is_over(void *owner)
{
	struct session *session = owner;

	fsm_go(&session->fsm, JOIN, "again");
}

static void on_start(void *arg)
{
	struct session *session = arg;

	fsm_go(&session->fsm, JOIN, "start");
}

/*** SERVE: when to report ***/

static struct report *report_of(struct list *link)
{
	return list_entry(link, struct report, link);
}

/* The protocol's "when". */
static bool report_is_due(struct session *session)
{
	if (session->fsm.state != SERVE || timer_is_armed(&session->retry) ||
		session_open(session) >= OPEN_MAX)
		return false;
	if (session->changed)
		return true;
	if (timer_is_armed(&session->brake))
		return false;
	return list_is_empty(&session->open) || report_of(session->open.prev)->seq != session->n;
}

void session_changed(struct session *session, enum session_change change)
{
	if (change == SESSION_SOON) {
		if (!session->changed && !timer_is_armed(&session->progress))
			timer_start(&session->progress, PROGRESS_US);
		return;
	}
	session->changed = true;
	timer_stop(&session->progress);
	timer_stop(&session->brake);
	loop_defer(session->loop, &session->look);
}

static void on_progress(void *arg)
{
	session_changed(arg, SESSION_NOW);
}

static void look_again(void *arg)
{
	struct session *session = arg;

	loop_defer(session->loop, &session->look);
}

static void hold_off(struct session *session, int64_t us)
{
	if (us > 0)
		timer_start(&session->retry, us);
	loop_defer(session->loop, &session->look);
}

/*** SERVE: the report ***/

/* Everything below the lowest open number is applied or closed. */
static int64_t acked_now(struct session *session)
{
	struct list *first = list_first(&session->open);

	return first ? report_of(first)->seq - 1 : session->n;
}

static void report_close(struct report *report)
{
	list_del(&report->link);
	timer_stop(&report->late);
	op_cancel(&report->op);
	loop_free_later(report->session->loop, free, report);
}

/* Giving up: one act. */
static void report_is_late(void *arg)
{
	struct report *report = arg;
	struct session *session = report->session;

	report_close(report);
	hold_off(session, peer_failed(session, report->address, NULL, "report"));
}

static void on_report_answer(void *arg, struct rpc_answer *answer);

static void describe(
	struct session *session, const struct report *report, struct msg_report_request *request)
{
	*request = (struct msg_report_request){
		.executor = str_from(session->name),
		.epoch = session->epoch,
		.seq = report->seq,
		.acked = report->acked,
		.languages = {session->languages, session->n_languages},
		.wait_ms = session->wait_us / US_PER_MS,
		.slots = session->slots,
		.isolation = str_from(session->isolation),
		.version = STR(CONCLAVE_VERSION),
		.toolchains = {.text = str_from(session->toolchains)},
	};
	session->events.fill(session->arg, request);
	session->changed = false;
	timer_stop(&session->progress);
}

static void send_report(struct session *session)
{
	struct report *report = mem_alloc(sizeof(*report));
	struct msg_report_request request;
	int error;

	report->session = session;
	report->acked = acked_now(session);
	report->seq = ++session->n;
	report->sent_us = loop_now_us(session->loop);
	report->news = session->changed;
	report->address = peers_current(&session->peers);
	timer_init(&report->late, session->loop, report_is_late, report);
	list_init(&report->link);
	describe(session, report, &request);
	error = rpc_call(session->loop, session->transport, report->address, RPC_report, &request,
		session->wait_us, on_report_answer, report, &report->op);
	free(request.complete.items);
	free(request.executing.items);
	if (error) {
		peer_failed(session, report->address, NULL, "report");
		hold_off(session, backoff_next(&session->backoff, session->loop));
		free(report);
		return;
	}
	list_add_tail(&session->open, &report->link);
	timer_start(&report->late, session->wait_us + REPORT_GRACE_US);
}

static void on_look(void *arg)
{
	struct session *session = arg;

	if (report_is_due(session))
		send_report(session);
}

static int enter_serve(void *owner)
{
	struct session *session = owner;

	loop_defer(session->loop, &session->look);
	return FSM_WAIT;
}

/*** SERVE: the reply ***/

static void apply(struct session *session, const struct msg_report_reply *reply)
{
	const struct session_events *events = &session->events;

	for (size_t i = 0; i < reply->accepted.count; i++)
		events->on_accepted(
			session->arg, codec_item(reply->accepted, struct msg_task_ref, i));
	for (size_t i = 0; i < reply->cancel.count; i++)
		events->on_cancel(session->arg, codec_item(reply->cancel, struct msg_task_ref, i));
	for (size_t i = 0; i < reply->assign.count; i++)
		events->on_assign(
			session->arg, codec_item(reply->assign, struct msg_assign_item, i));
}

/* An early reply without news to a report without news: ask again, but not at once. */
static void brake_if_idle(
	struct session *session, const struct report *report, const struct msg_report_reply *reply)
{
	int64_t wait_us = report->sent_us + PROGRESS_US - loop_now_us(session->loop);
	bool news =
		report->news || reply->accepted.count || reply->assign.count || session->changed;

	/* An older report is answered because of the newer one. */
	if (!news && wait_us > 0 && report->seq == session->n)
		timer_start(&session->brake, wait_us);
}

static void on_report_answer(void *arg, struct rpc_answer *answer)
{
	struct report *report = arg; /* freed later, so still here after report_close() */
	struct session *session = report->session;
	const struct msg_report_reply *reply = answer->reply;
	bool settled;

	report->op = NULL;
	report_close(report);
	if (answer->failure == RPC_OK && reply->seq != report->seq)
		answer->failure = RPC_GARBLED;
	session->calls[RPC_report][answer->failure]++;
	if (answer->failure != RPC_OK) {
		hold_off(session, peer_failed(session, report->address, answer, "report"));
		return;
	}
	peer_answered(session, report->address);
	if (reply->fenced) {
		fsm_go(&session->fsm, FENCED, "fenced");
		session->events.on_fenced(session->arg);
		return;
	}
	apply(session, reply);
	brake_if_idle(session, report, reply);
	loop_defer(session->loop, &session->look);
	settled = list_is_empty(&session->open) && report->acked == report->seq - 1 &&
		  !session->changed && !timer_is_armed(&session->progress);
	session->events.on_reply(session->arg, settled);
}

/*** FENCED ***/

static void close_all(struct session *session)
{
	op_cancel(&session->registering);
	list_each_safe (it, &session->open)
		report_close(report_of(it));
	timer_stop(&session->progress);
	timer_stop(&session->brake);
	timer_stop(&session->retry);
	defer_cancel(&session->look);
	defer_cancel(&session->start);
}

static int enter_fenced(void *owner)
{
	close_all(owner);
	return FSM_WAIT;
}

static const struct fsm_state states[] = {
	[JOIN] = {"JOIN", enter_join, join_is_late, REGISTER_TIMEOUT_US,
		FSM_BIT(REST) | FSM_BIT(SERVE)},
	[REST] = {"REST", enter_rest, rest_is_over, 0, FSM_BIT(JOIN)},
	[SERVE] = {"SERVE", enter_serve, NULL, 0, FSM_BIT(FENCED)},
	[FENCED] = {"FENCED", enter_fenced, NULL, 0, 0},
};

static const struct fsm_table table = {
	.machine = "session", .states = states, .n_states = ARRAY_SIZE(states)};

/*** Life ***/

struct session *session_new(struct loop *loop, const struct session_options *options,
	const struct session_events *events, void *arg)
{
	struct session *session = mem_alloc(sizeof(*session));

	session->loop = loop;
	session->log = options->log;
	session->transport = options->transport;
	session->events = *events;
	session->arg = arg;
	session->name = mem_strdup(options->name);
	session->isolation = mem_strdup(options->isolation);
	session->toolchains = str_dup(options->toolchains);
	session->slots = options->slots;
	session->wait_us = options->wait_us;
	session->n_languages = options->languages.count;
	session->languages = mem_array(session->n_languages, sizeof(struct str));
	for (size_t i = 0; i < session->n_languages; i++)
		session->languages[i] =
			str_from(str_dup(*codec_item(options->languages, struct str, i)));
	session->backoff = (struct backoff){.min_us = 100 * US_PER_MS, .max_us = 3 * US_PER_S};
	list_init(&session->open);
	peers_init(&session->peers, loop, options->judicators);
	timer_init(&session->progress, loop, on_progress, session);
	timer_init(&session->brake, loop, look_again, session);
	timer_init(&session->retry, loop, look_again, session);
	defer_init(&session->look, on_look, session);
	defer_init(&session->start, on_start, session);
	/* REST without a deadline: nothing is sent before the caller is back in its loop. */
	fsm_init(&session->fsm, &table, loop, session->log, session->name, session, REST);
	loop_defer(loop, &session->start);
	return session;
}

int64_t session_epoch(const struct session *session)
{
	return session->epoch;
}

uint64_t session_calls(
	const struct session *session, enum rpc_method method, enum rpc_failure failure)
{
	return session->calls[method][failure];
}

unsigned session_open(const struct session *session)
{
	unsigned n = 0;

	list_each (it, &session->open)
		n++;
	return n;
}

void session_free(struct session *session)
{
	if (!session)
		return;
	close_all(session);
	fsm_fini(&session->fsm);
	peers_fini(&session->peers);
	for (size_t i = 0; i < session->n_languages; i++)
		free((char *)session->languages[i].p);
	free(session->languages);
	free(session->name);
	free(session->isolation);
	free(session->toolchains);
	loop_free_later(session->loop, free, session);
}
