/* SPDX-License-Identifier: Apache-2.0 */
/*
 * follow - waits for a task to be done, and tells how it gets on.
 *
 * Who wants a line a change is told by a stream of events. One that breaks is asked for again, naming the last event, so nothing is shown
 * twice; a gateway that has no streams, or none to spare, is asked as below.
 *
 * Else the task is asked for with ?wait, so its end is known at once; a person who looks on is shown its status twice a second. A judge that
 * stops answering, or answers "not now", is asked again with a pause until it has been away for half a minute: a restart of the judge
 * loses nothing, so it should not end a wait. What the judge refuses ends it.
 */
#include "roles/cli/cli_int.h"

#include <string.h>

#include "reactor/base/clock.h"
#include "reactor/base/id.h"
#include "reactor/loop.h"
#include "roles/cli/events.h"
#include "rpc/task/verdict.h"

#define LOOK_MS 500
#define WAIT_MS 20000
#define GRACE_MS 15000
#define STREAM_US (24 * 3600 * US_PER_S)
#define AWAY_US (30 * US_PER_S)
#define AWAY_PAUSE_US (500 * US_PER_MS)

int verdict_exit(const struct json *task)
{
	struct str word = member(task, "verdict");
	enum verdict verdict;

	if (!verdict_parse(word, &verdict) || verdict == VERDICT_SYSTEM_ERROR)
		return CLI_OURS;
	return verdict == VERDICT_ACCEPTED ? CLI_OK : CLI_NOT_ACCEPTED;
}

bool cli_id_is_valid(const struct cli *cli, const char *id)
{
	if (id_is_valid(str_from(id)))
		return true;
	cli_fail(cli, CLI_USAGE,
		"%s: not a task id (24 hexadecimal digits, lower case); conclave list shows them",
		id);
	return false;
}

static bool is_done(const struct json *task)
{
	const struct json *done = json_get(task, "done");

	return done && done->type == JSON_BOOL && done->boolean;
}

struct follow {
	struct cli *cli;
	const char *id;
	enum follow_mode mode;
	struct buf shown; /* the last line */
	int64_t begin_us, away_us;
	/* by events */
	struct sse sse;
	struct answer *answer; /* of `done` */
	char last[65];         /* id of the last event, "" = none */
	bool ended;
};

static void line_of(const struct json *task, struct buf *out)
{
	struct str executor = member(task, "executor"), number = member(task, "case");

	text_safe(member(task, "status"), false, out);
	if (number.n) {
		buf_add_str(out, STR(", case "));
		text_safe(number, false, out);
	}
	if (executor.n) {
		buf_add_str(out, STR(" on "));
		text_safe(executor, false, out);
	}
	if (member_i64(task, "retries") > 0)
		buf_addf(out, ", retry %lld", (long long)member_i64(task, "retries"));
}

/* True when the line is another one than the last. */
static bool changed(struct follow *f, const struct json *task)
{
	struct buf line cleanup(buf_fini) = BUF_INIT;
	bool same;

	line_of(task, &line);
	same = f->shown.data && str_eq(buf_str(&line), buf_str(&f->shown));
	if (!same) {
		buf_clear(&f->shown);
		buf_add_str(&f->shown, buf_str(&line));
	}
	return !same;
}

static void show(struct follow *f, const struct answer *answer)
{
	FILE *err = f->cli->env->err;
	int64_t us = loop_now_us(f->cli->loop) - f->begin_us;
	bool is_new = changed(f, answer->json);

	if (f->mode == FOLLOW_PROGRESS) {
		fprintf(err, "\r\033[K%s: " STR_FMT "  %.1f s", f->id, STR_ARG(buf_str(&f->shown)),
			(double)us / US_PER_S);
	} else if (f->mode == FOLLOW_LINES && is_new) {
		if (f->cli->json)
			answer_print(f->cli, answer);
		else
			fprintf(err, "%7.1f s  " STR_FMT "\n", (double)us / US_PER_S,
				STR_ARG(buf_str(&f->shown)));
	}
	fflush(err);
}

/* The judge is away: true when it is worth asking again. */
static bool be_patient(struct follow *f)
{
	int64_t now = loop_now_us(f->cli->loop);

	if (!f->away_us) {
		f->away_us = now;
		if (f->mode != FOLLOW_QUIET)
			fprintf(f->cli->env->err,
				"%sthe judge does not answer; asking again for %d s\n",
				f->mode == FOLLOW_PROGRESS ? "\r\033[K" : "",
				(int)(AWAY_US / US_PER_S));
	}
	return now - f->away_us < AWAY_US && cli_pause(f->cli, AWAY_PAUSE_US);
}

static int ask_task(struct follow *f, struct answer *answer)
{
	int wait_ms = f->mode == FOLLOW_QUIET ? WAIT_MS : LOOK_MS;
	struct buf path cleanup(buf_fini) = BUF_INIT;
	struct question question = {.method = "GET"};

	buf_addf(&path, "/api/v1/tasks/%s?wait=%d", f->id, wait_ms);
	question.path = path.data;
	question.timeout_us = (wait_ms + GRACE_MS) * US_PER_MS;
	return cli_ask(f->cli, &question, answer);
}

/* --- by events ----------------------------------------------------------------------------------------------------- */

/* An event is shown as an answer is, and the last one is the answer. */
static void on_event(void *arg, struct str event, struct str id, struct str data)
{
	struct follow *f = arg;
	struct answer one = {.status = 200};
	struct json_error error;

	if (id.n < sizeof(f->last)) {
		memcpy(f->last, id.p, id.n);
		f->last[id.n] = '\0';
	}
	if (f->ended || json_parse(data, NULL, &one.tree, &error) != 0)
		return;
	one.json = json_root(one.tree);
	buf_add_str(&one.body, data);
	show(f, &one);
	f->ended = str_is(event, "done");
	if (!f->ended) {
		answer_fini(&one);
		return;
	}
	answer_fini(f->answer);
	*f->answer = one;
}

static void on_piece(void *arg, struct str piece)
{
	struct follow *f = arg;

	f->away_us = 0;
	sse_feed(&f->sse, piece);
}

static int ask_events(struct follow *f, struct answer *answer)
{
	struct buf path cleanup(buf_fini) = BUF_INIT;
	struct question question = {
		.method = "GET",
		.timeout_us = STREAM_US,
		.on_piece = on_piece,
		.arg = f,
		.last_event = f->last[0] ? f->last : NULL,
	};

	sse_reset(&f->sse);
	buf_addf(&path, "/api/v1/tasks/%s/events", f->id);
	question.path = path.data;
	return cli_ask(f->cli, &question, answer);
}

/* No streams there, none to spare, or one that has nothing more to say. */
static bool has_no_events(const struct answer *answer)
{
	static const char *const codes[] = {"not_found", "method_not_allowed", "too_many_waiting"};

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		if (str_is(member(answer->json, "code"), codes[i]))
			return true;
	}
	return answer->status == 204;
}

/* -1: it must be asked for in the other way. */
static int listen_to(struct follow *f, struct answer *answer)
{
	f->sse = (struct sse){.fn = on_event, .arg = f};
	f->answer = answer;
	for (;;) {
		struct answer stream;
		bool none;
		int rc = ask_events(f, &stream);

		if (f->ended) {
			answer_fini(&stream);
			return verdict_exit(answer->json);
		}
		none = has_no_events(&stream);
		if (rc && !none && (rc != CLI_UNREACHABLE || !be_patient(f))) {
			*answer = stream;
			return f->cli->interrupted ? CLI_INTERRUPTED
						   : cli_explain(f->cli, answer, rc);
		}
		answer_fini(&stream);
		if (none)
			return -1;
		if (!rc && !be_patient(f)) /* it ended whole: the gateway stops */
			return f->cli->interrupted ? CLI_INTERRUPTED : -1;
	}
}

/* --- by asking again and again ----------------------------------------------------------------------------------------- */

static int follow(struct follow *f, struct answer *answer)
{
	for (;;) {
		int rc = ask_task(f, answer);

		if (!rc) {
			f->away_us = 0;
			show(f, answer);
			if (is_done(answer->json))
				return verdict_exit(answer->json);
		} else if (rc != CLI_UNREACHABLE || !be_patient(f)) {
			return f->cli->interrupted ? CLI_INTERRUPTED
						   : cli_explain(f->cli, answer, rc);
		}
		answer_fini(answer);
	}
}

int cli_follow(struct cli *cli, const char *id, enum follow_mode mode, struct answer *answer)
{
	struct follow f = {.cli = cli, .id = id, .mode = mode};
	int rc;

	f.begin_us = loop_now_us(cli_loop(cli));
	*answer = (struct answer){0};
	rc = mode == FOLLOW_LINES ? listen_to(&f, answer) : -1;
	if (rc < 0)
		rc = follow(&f, answer);
	if (mode == FOLLOW_PROGRESS)
		fputs("\r\033[K", cli->env->err);
	if (rc == CLI_INTERRUPTED)
		cli_fail(cli, rc,
			"%s goes on; to wait again: conclave watch %s; to end it: conclave cancel "
			"%s",
			id, id, id);
	buf_fini(&f.shown);
	sse_fini(&f.sse);
	return rc;
}
