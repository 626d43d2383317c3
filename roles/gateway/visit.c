/* SPDX-License-Identifier: Apache-2.0 */
/*
 * visit - theory of operation
 *
 * A visit is one HTTP request from the handler's turn to its answer. It owns all that works for it (a question to the judicators,
 * a place among the waiters), so its end ends all of that: an answer, or the client's going (the server's gone callback).
 * An answer that is a stream goes on after its beginning: the visit lives until the stream ends, and has no request any more.
 * Each visit is on g->visits; a gateway that stops has stopped when that list is empty.
 */
#include "roles/gateway/gateway_int.h"

#include <stdarg.h>
#include <stdio.h>

#include "reactor/base/mem.h"

#define RETRY_AFTER_S "1"

static void on_gone(void *arg)
{
	struct visit *v = arg;

	log_debug(v->g->log, "gone", "request=\"%s\" ms=%lld", v->what,
		(long long)((loop_now_us(v->g->loop) - v->started_us) / US_PER_MS));
	visit_free(v);
}

/* Method and path for the log: what is not plain is left out. */
static void note_what(struct visit *v)
{
	struct str path = http_request_path(v->http);
	int n = snprintf(v->what, sizeof(v->what), "%s ", http_request_method_name(v->http));

	for (size_t i = 0; i < path.n && (size_t)n + 1 < sizeof(v->what); i++)
		v->what[n++] =
			path.p[i] > ' ' && path.p[i] < 127 && path.p[i] != '"' ? path.p[i] : '?';
	v->what[n] = '\0';
}

struct visit *visit_new(struct gateway *g, struct http_request *http)
{
	struct visit *v = mem_alloc(sizeof(*v));

	v->g = g;
	v->http = http;
	v->status = 200;
	v->grant = g->now.grant;
	v->route = g->now.route;
	v->started_us = loop_now_us(g->loop);
	list_init(&v->link);
	list_init(&v->wait_link);
	list_init(&v->stream_link);
	list_add_tail(&g->visits, &v->link);
	if (log_is_on(g->log, LOG_DEBUG))
		note_what(v);
	if (g->stopping) {
		visit_fail(v, 503, "stopping", "This gateway is stopping. Try again in a moment.");
		return NULL;
	}
	http_request_on_gone(http, on_gone, v);
	return v;
}

void visit_free(struct visit *v)
{
	struct gateway *g = v->g;

	ask_stop(&v->ask);
	offload_fini(v);
	blobs_upload_free(v->upload);
	access_added(v);
	waiters_remove(v);
	events_forget(v);
	list_del(&v->link);
	record_free(v->task);
	buf_fini(&v->doc);
	free(v->blobs.items);
	buf_fini(&v->plain);
	free(v);
	gateway_maybe_stopped(g);
}

/* --- answers --------------------------------------------------------------------------------------------------- */

static void note_answer(struct visit *v, int status, size_t bytes)
{
	log_debug(v->g->log, "request", "request=\"%s\" status=%d bytes=%zu ms=%lld", v->what,
		status, bytes, (long long)((loop_now_us(v->g->loop) - v->started_us) / US_PER_MS));
	metrics_request(v->g, v->route, status, loop_now_us(v->g->loop) - v->started_us);
}

void visit_reply(struct visit *v, int status, const char *type, struct str body)
{
	note_answer(v, status, body.n);
	http_request_reply(v->http, status, type, body);
	visit_free(v);
}

void visit_stream(struct visit *v, int status, const char *type)
{
	log_debug(v->g->log, "request", "request=\"%s\" status=%d stream=yes", v->what, status);
	metrics_request(v->g, v->route, status, loop_now_us(v->g->loop) - v->started_us);
	v->stream = http_request_stream(take_ptr(&v->http), status, type, -1);
}

void visit_answered(struct visit *v, int status, size_t bytes)
{
	note_answer(v, status, bytes);
	visit_free(v);
}

void visit_problem(struct visit *v, const struct problem *problem)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;

	if (problem->status == 503 || problem->status == 429)
		http_request_add_header(v->http, "Retry-After", RETRY_AFTER_S);
	problem_write(problem, &text);
	visit_reply(v, problem->status, "application/problem+json", buf_str(&text));
}

void visit_fail(struct visit *v, int status, const char *code, const char *fmt, ...)
{
	struct problem problem = {0};
	char detail[sizeof(problem.detail)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(detail, sizeof(detail), fmt, ap);
	va_end(ap);
	problem_set(&problem, status, code, "", "%s", detail);
	visit_problem(v, &problem);
}

/* --- query parameters -------------------------------------------------------------------------------------------- */

static const struct query_param *find_param(
	const struct query_param *params, size_t n, struct str name)
{
	for (size_t i = 0; i < n; i++) {
		if (str_is(name, params[i].name))
			return &params[i];
	}
	return NULL;
}

/* Names come from outside: escaped by problem_set()'s caller, which is here. */
static void name_problem(
	struct problem *problem, const char *code, struct str name, const char *what)
{
	char quoted[LOG_QUOTE_MAX];

	if (name.n > 64)
		name.n = 64;
	problem_set(problem, 400, code, "", "The query parameter %s %s.", log_quote(name, quoted),
		what);
}

bool query_read(const struct http_request *http, const struct query_param *params, size_t n,
	struct problem *problem)
{
	struct str rest = http_request_query(http), piece, name;
	unsigned seen = 0;

	CHECK(n < 32);
	for (size_t i = 0; i < n; i++)
		params[i].out[0] = '\0';
	while (str_cut(&rest, '&', &piece)) {
		const struct query_param *p;

		if (!piece.n)
			continue;
		if (!str_cut(&piece, '=', &name))
			name = STR("");
		p = find_param(params, n, name);
		if (!p) {
			name_problem(problem, "unknown_parameter", name, "is unknown here");
			return false;
		}
		if (seen & 1u << (p - params)) {
			name_problem(
				problem, "repeated_parameter", name, "is given more than once");
			return false;
		}
		seen |= 1u << (p - params);
		if (!http_request_param(http, p->name, p->out, p->cap) || !p->out[0] ||
			!str_is_utf8(str_from(p->out))) {
			name_problem(problem, "bad_parameter", name,
				"is empty, too long or not UTF-8 in percent-encoding");
			return false;
		}
	}
	return true;
}

bool query_wait(const char *text, int64_t *wait_us, struct problem *problem)
{
	int64_t ms = 0;

	*wait_us = 0;
	if (!text[0])
		return true;
	if (!str_to_i64(str_from(text), &ms) || ms < 1 || ms > WAIT_MS_MAX) {
		problem_set(problem, 400, "bad_parameter", "",
			"The query parameter \"wait\" is milliseconds to wait for the end of the "
			"task: 1 to %d.",
			WAIT_MS_MAX);
		return false;
	}
	*wait_us = ms * US_PER_MS;
	return true;
}

bool visit_is_plain(struct visit *v)
{
	struct problem problem = {0};

	if (query_read(v->http, NULL, 0, &problem))
		return true;
	visit_problem(v, &problem);
	return false;
}
