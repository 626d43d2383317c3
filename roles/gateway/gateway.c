/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gateway - theory of operation
 *
 *     client --HTTP--> http_server --on_headers--> check (host, token, type) --whole--> check (host) --> router --> check (token) --> a visit
 *                                                                                             |
 *     client <--HTTP-- visit_reply <-- answer <--- judicator <-- rpc <-- ask, or a watcher <--+
 *
 * The gateway keeps nothing that matters: tasks are in the judicators' store, and when a gateway dies only its connections are
 * lost. One worker is one struct gateway on one loop. Workers of one service know each other only by the memory they share (shared.c).
 *
 * Stopping: no new connections; whoever waits is answered with the task as it is; what is under way ends by itself. When the last
 * visit is over, or STOP_US later, the server is closed and on_stopped called.
 */
#include "roles/gateway/gateway_int.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <strings.h>

#include "reactor/base/mem.h"

#define IDLE_TIMEOUT_US (75 * US_PER_S)
#define STOP_US (5 * US_PER_S)
#define BEAT_US (15 * US_PER_S)
#define CONNECTIONS_SPARE 1000        /* beyond those that wait */
#define BODIES_MAX (INT64_C(1) << 30) /* of all workers together */

static const struct gateway_route gateway_routes[] = {
	{.method = HTTP_GET,
		.path = "/",
		.handle = page_on_root,
		.allow = ALLOW_EVERYBODY,
		.summary = "The web page.",
		.status = 200,
		.type = "text/html"},
	{.method = HTTP_GET,
		.path = BLOBS_PATH "/{blob}",
		.handle = blobs_on_get,
		.allow = TOKEN_SUBMIT,
		.summary = "The bytes of a blob that this user has uploaded.",
		.status = 200,
		.type = "application/octet-stream"},
	{.method = HTTP_PUT,
		.path = BLOBS_PATH "/{blob}",
		.handle = blobs_on_put,
		.allow = TOKEN_SUBMIT,
		.summary =
			"Uploads the bytes whose SHA-256 the name is, for tasks to refer to; 200 "
			"when they are here already.",
		.request = "bytes",
		.status = 201,
		.answer = "blob"},
	{.method = HTTP_GET,
		.path = "/api/v1/executors",
		.handle = lists_on_executors,
		.allow = ALLOW_ANY,
		.summary = "The executors and their load.",
		.status = 200,
		.answer = "executors"},
	{.method = HTTP_GET,
		.path = "/api/v1/judicators",
		.handle = lists_on_judicators,
		.allow = ALLOW_ANY,
		.summary = "The judicators.",
		.status = 200,
		.answer = "judicators"},
	{.method = HTTP_GET,
		.path = "/api/v1/languages",
		.handle = lists_on_languages,
		.allow = ALLOW_ANY,
		.summary = "The languages and who offers them.",
		.status = 200,
		.answer = "languages"},
	{.method = HTTP_GET,
		.path = "/api/v1/stats",
		.handle = lists_on_stats,
		.allow = ALLOW_ANY,
		.summary = "The last hour by minute, and now.",
		.status = 200,
		.answer = "stats"},
	{.method = HTTP_GET,
		.path = TASKS_PATH,
		.handle = tasks_on_list,
		.allow = ALLOW_ANY,
		.summary = "Tasks by conditions, a page at a time; with a submit token the user's "
			   "own.",
		.query = "after,label,language,limit,order,status,user",
		.status = 200,
		.answer = "task_page"},
	{.method = HTTP_POST,
		.path = TASKS_PATH,
		.handle = tasks_on_post,
		.allow = TOKEN_SUBMIT,
		.summary = "Submits a task; with `wait` the answer is the task once it is done.",
		.query = "wait",
		.request = "task",
		.status = 201,
		.answer = "task_view"},
	{.method = HTTP_DELETE,
		.path = TASKS_PATH "/{id}",
		.handle = tasks_on_delete,
		.allow = TOKEN_SUBMIT,
		.summary = "Cancels a task.",
		.status = 200,
		.answer = "task_view"},
	{.method = HTTP_GET,
		.path = TASKS_PATH "/{id}",
		.handle = tasks_on_get,
		.allow = ALLOW_ANY,
		.summary = "One task with its result; with `wait` once it is done.",
		.query = "wait",
		.status = 200,
		.answer = "task_view"},
	{.method = HTTP_GET,
		.path = TASKS_PATH "/{id}/events",
		.handle = events_on_get,
		.allow = ALLOW_ANY,
		.summary = "Server-sent events: `task` at each change, then `done` with the whole "
			   "task. 204: the client has that already (Last-Event-ID).",
		.status = 200,
		.type = "text/event-stream"},
	{.method = HTTP_GET,
		.path = TASKS_PATH "/{id}/files/{name*}",
		.handle = files_on_get,
		.allow = ALLOW_ANY,
		.summary = "The bytes of what belongs to a task: compile/NAME, execute/NAME "
			   "(submitted files, the source, archive.zip), compile/stdout, "
			   "compile/stderr, cases/N/input, cases/N/expected, cases/N/stdout, "
			   "cases/N/stderr.",
		.status = 200,
		.type = "application/octet-stream"},
	{.method = HTTP_GET,
		.path = "/healthz",
		.handle = lists_on_health,
		.allow = ALLOW_EVERYBODY,
		.summary = "Whether a judicator answers.",
		.status = 200,
		.answer = "health"},
	{.method = HTTP_GET,
		.path = "/metrics",
		.handle = metrics_on_get,
		.allow = TOKEN_READ,
		.summary = "Counters for Prometheus.",
		.status = 200,
		.type = "text/plain"},
	{.method = HTTP_GET,
		.path = "/openapi.json",
		.handle = openapi_on_get,
		.allow = ALLOW_EVERYBODY,
		.summary = "This description.",
		.status = 200,
		.answer = "openapi"},
	{.method = HTTP_GET,
		.path = "/page/{name}",
		.handle = page_on_file,
		.allow = ALLOW_EVERYBODY,
		.summary = "A script, a style or a picture of the web page.",
		.status = 200,
		.type = "*/*"},
};

const struct gateway_route *gateway_route_at(unsigned i)
{
	return i < ARRAY_SIZE(gateway_routes) ? &gateway_routes[i] : NULL;
}

/* --- what is checked of every request ------------------------------------------------------------------------------ */

static bool str_is_nocase(struct str s, const char *text)
{
	return s.n == strlen(text) && !strncasecmp(s.p, text, s.n);
}

/* "name:port" -> "name"; "[::1]:port" -> "[::1]". */
static struct str without_port(struct str host)
{
	size_t n = host.n;

	while (n && isdigit((unsigned char)host.p[n - 1]))
		n--;
	return n && n < host.n && host.p[n - 1] == ':' ? (struct str){host.p, n - 1} : host;
}

/* Pages of other sites must not reach us by a name of theirs that resolves to our address. */
static bool host_is_ours(const struct gateway *g, struct str host)
{
	struct str name = without_port(host);

	if (!host.p)
		return true; /* HTTP/1.0 only, so no browser */
	for (unsigned i = 0; i < g->n_hosts; i++) {
		if (str_is_nocase(host, g->hosts[i]))
			return true;
	}
	for (unsigned i = 0; i < g->n_names; i++) {
		if (str_is_nocase(name, g->names[i]))
			return true;
	}
	return false;
}

static bool is_json(struct str type)
{
	struct str media;

	return str_cut(&type, ';', &media) && str_is_nocase(str_trim(media), TYPE_JSON);
}

static bool host_is_bad(
	const struct gateway *g, const struct http_request *http, struct problem *problem)
{
	if (host_is_ours(g, http_request_header(http, "Host")))
		return false;
	problem_set(problem, 400, "bad_host", "",
		"The Host header names none of the addresses served here; gateway.hosts lists "
		"further names.");
	return true;
}

static bool submission_is_bad(const struct http_request *http, struct problem *problem)
{
	struct str encoding = http_request_header(http, "Content-Encoding");

	if (http_request_method(http) != HTTP_POST || !str_is(http_request_path(http), TASKS_PATH))
		return false;
	if (!is_json(http_request_header(http, "Content-Type")))
		problem_set(problem, 415, "unsupported_type", "",
			"A task is sent with Content-Type: application/json.");
	else if (encoding.p && !str_is_nocase(encoding, "identity"))
		problem_set(problem, 415, "unsupported_encoding", "",
			"A task is sent without Content-Encoding.");
	else
		return false;
	return true;
}

/* --- from the router to the handlers ------------------------------------------------------------------------------------ */

static bool has_body(enum http_method method)
{
	return method == HTTP_POST || method == HTTP_PUT;
}

/* Who may use the path; any token where the router will find nothing, or a path with parameters. */
static unsigned allowed_at(enum http_method method, struct str path)
{
	for (size_t i = 0; i < ARRAY_SIZE(gateway_routes); i++) {
		if (gateway_routes[i].method == method && str_is(path, gateway_routes[i].path))
			return gateway_routes[i].allow;
	}
	return ALLOW_ANY;
}

/* Only what has a body: others are answered by their handler's turn, without closing the connection. */
static int on_headers(void *arg, struct http_request *http, struct str *problem_body)
{
	struct gateway *g = arg;
	struct problem problem = {0};
	enum http_method method = http_request_method(http);
	bool is_blob = blobs_is_put(http);
	unsigned allow = is_blob ? TOKEN_SUBMIT : allowed_at(method, http_request_path(http));
	struct grant grant;

	if (!has_body(method))
		return 0;
	if (!host_is_bad(g, http, &problem) &&
		access_check(g, http, allow, true, &grant, &problem) &&
		!submission_is_bad(http, &problem) &&
		(!is_blob || blobs_take_body(g, http, &grant, &problem)))
		return 0;
	buf_clear(&g->refusal);
	problem_write(&problem, &g->refusal);
	*problem_body = buf_str(&g->refusal);
	return problem.status;
}

/* Here, or by the server itself. */
static void on_refused(void *arg, int status)
{
	struct gateway *g = arg;

	metrics_request(g, g->n_routes, status, 0);
}

static void refuse(struct gateway *g, struct http_request *http, const struct problem *problem)
{
	blobs_upload_free(http_request_body_arg(http));
	metrics_request(g, g->n_routes, problem->status, 0);
	http_request_problem(http, problem);
}

/* Of every row. What has a body was charged at its header. */
static void on_route(const struct route_match *match, struct http_request *http)
{
	struct gateway *g = match->arg;
	unsigned i = (unsigned)(match->route - g->routes);
	const struct gateway_route *row = &gateway_routes[i];
	struct problem problem = {0};

	g->now.route = i;
	if (access_check(g, http, row->allow, !has_body(row->method), &g->now.grant, &problem))
		row->handle(match, http);
	else
		refuse(g, http, &problem);
}

static void on_request(void *arg, struct http_request *http)
{
	struct gateway *g = arg;
	struct problem problem = {0};
	int status;

	if (host_is_bad(g, http, &problem)) {
		refuse(g, http, &problem);
		return;
	}
	status = router_dispatch(g->routes, g->n_routes, g, http);
	if (status)
		metrics_request(g, g->n_routes, status, 0);
}

static void routes_init(struct gateway *g)
{
	g->n_routes = ARRAY_SIZE(gateway_routes);
	g->routes = mem_array(g->n_routes, sizeof(*g->routes));
	for (unsigned i = 0; i < g->n_routes; i++)
		g->routes[i] =
			(struct route){gateway_routes[i].method, gateway_routes[i].path, on_route};
	metrics_init(g, g->n_routes);
	openapi_write(&g->openapi);
}

/* --- names of ours --------------------------------------------------------------------------------------------------- */

static void texts_add(char ***texts, unsigned *n, char *text)
{
	*texts = mem_resize(*texts, (*n + 1) * sizeof(char *));
	(*texts)[(*n)++] = text;
}

static void texts_fini(char ***texts, unsigned *n)
{
	for (unsigned i = 0; i < *n; i++)
		free((*texts)[i]);
	free(*texts);
	*texts = NULL;
	*n = 0;
}

static void add_host(struct gateway *g, struct str name, unsigned port)
{
	texts_add(&g->hosts, &g->n_hosts, mem_printf(STR_FMT ":%u", STR_ARG(name), port));
	if (port == 80 || port == 443)
		texts_add(&g->hosts, &g->n_hosts, str_dup(name));
}

static void add_address(struct gateway *g, struct str address)
{
	struct str name = without_port(address);
	int64_t port = 0;

	if (name.n < address.n)
		str_to_i64((struct str){address.p + name.n + 1, address.n - name.n - 1}, &port);
	if (!port)
		port = gateway_port(g);
	add_host(g, name, (unsigned)port);
	add_host(g, STR("localhost"), (unsigned)port);
}

/* gateway.hosts: "name" at any port, "name:port" at that one. */
static void add_name(struct gateway *g, struct str name)
{
	if (without_port(name).n < name.n)
		texts_add(&g->hosts, &g->n_hosts, str_dup(name));
	else
		texts_add(&g->names, &g->n_names, str_dup(name));
}

static void each_piece(
	struct gateway *g, const char *list, void (*fn)(struct gateway *g, struct str piece))
{
	struct str rest = str_from(list), piece;

	while (str_cut(&rest, ',', &piece)) {
		piece = str_trim(piece);
		if (piece.n)
			fn(g, piece);
	}
}

/* --- life ------------------------------------------------------------------------------------------------------------- */

static int listen_all(struct gateway *g, const struct gateway_options *options)
{
	struct http_server_options server = {
		.log = g->log,
		.body_max = options->body_max,
		.bodies_max = BODIES_MAX / shared_n_slots(g->shared),
		.read_timeout_us = options->read_timeout_us,
		.idle_timeout_us = IDLE_TIMEOUT_US,
		.connections_max = g->waiting_max + CONNECTIONS_SPARE,
		.on_headers = on_headers,
		.handler = on_request,
		.on_refused = on_refused,
		.arg = g,
	};
	struct str rest = str_from(options->addresses), piece;
	int r = http_server_new(g->loop, NULL, &server, &g->server);

	for (unsigned i = 0; i < options->n_listen_fds && !r; i++)
		http_server_listen_fd(g->server, options->listen_fds[i]);
	while (!r && !options->listen_fds && str_cut(&rest, ',', &piece)) {
		char *address cleanup(mem_freep) = str_dup(str_trim(piece));

		if (!*address)
			continue;
		r = http_server_listen(g->server, address);
		if (r)
			log_error(g->log, "listen_failed", "address=%s why=\"%s\"", address,
				strerror(-r));
	}
	if (r || http_server_port(g->server))
		return r;
	log_error(g->log, "listen_failed", "why=\"gateway.addresses is empty\"");
	return -EINVAL;
}

static void on_all_over(void *arg)
{
	struct gateway *g = arg;
	void (*fn)(void *) = take_ptr(&g->on_stopped);

	if (!fn)
		return;
	timer_stop(&g->stop_deadline);
	http_server_free(take_ptr(&g->server)); /* what is left is gone: every visit with it */
	fn(g->on_stopped_arg);
}

static void on_stop_deadline(void *arg)
{
	struct gateway *g = arg;

	log_warn(g->log, "stop", "unanswered=%u why=\"took too long\"",
		http_server_open_requests(g->server));
	loop_defer(g->loop, &g->stopped);
}

/* With the others, or alone. */
static int share(struct gateway *g, const struct gateway_options *options)
{
	int r = 0;

	g->shared = options->shared;
	g->slot = options->slot;
	if (!g->shared) {
		r = shared_new(1, &g->shared);
		g->owns_shared = !r;
	}
	if (r)
		log_error(g->log, "start", "why=\"no shared memory: %s\"", strerror(-r));
	else if (g->owns_shared)
		shared_set_live(g->shared, g->slot, true);
	return r;
}

int gateway_new(struct loop *loop, const struct gateway_options *options, struct gateway **out)
{
	struct gateway *g = mem_alloc(sizeof(*g));
	int r;

	g->loop = loop;
	g->log = options->log;
	r = share(g, options);
	if (r) {
		free(g);
		return r;
	}
	g->transport = options->transport;
	g->languages = options->languages;
	g->wait_us = options->wait_us;
	g->beat_us = options->beat_us ? options->beat_us : BEAT_US;
	g->waiting_max = options->waiting_max ? options->waiting_max : WAITING_MAX;
	list_init(&g->visits);
	list_init(&g->uploads);
	g->blob_max = options->blob_max;
	waiters_init(g);
	events_init(g);
	done_cache_init(&g->done_cache, options->done_cache);
	access_init(g);
	routes_init(g);
	timer_init(&g->stop_deadline, loop, on_stop_deadline, g);
	defer_init(&g->stopped, on_all_over, g);
	peers_init(&g->peers, loop, options->judicators);
	if (!g->peers.n) {
		log_error(g->log, "start", "why=\"judicator.addresses is empty\"");
		r = -EINVAL;
	} else {
		r = listen_all(g, options);
	}
	if (r) {
		gateway_free(g);
		return r;
	}
	each_piece(g, options->addresses, add_address);
	each_piece(g, options->hosts, add_name);
	log_info(g->log, "serving", "addresses=%s port=%u judicators=%s", options->addresses,
		gateway_port(g), options->judicators);
	*out = g;
	return 0;
}

unsigned gateway_port(const struct gateway *g)
{
	return http_server_port(g->server);
}

void gateway_set_limits(struct gateway *g, int64_t body_max, int64_t read_timeout_us)
{
	if (g->server)
		http_server_set_limits(g->server, body_max, read_timeout_us);
}

void gateway_set_blob_max(struct gateway *g, int64_t blob_max)
{
	g->blob_max = blob_max;
}

void gateway_set_tls(struct gateway *g, const struct http_tls *tls)
{
	if (g->server)
		http_server_set_tls(g->server, tls);
}

void gateway_set_tokens(struct gateway *g, struct tokens *tokens)
{
	access_set_tokens(g, tokens);
}

void gateway_maybe_stopped(struct gateway *g)
{
	if (g->stopping && list_is_empty(&g->visits) && list_is_empty(&g->uploads))
		loop_defer(g->loop, &g->stopped);
}

void gateway_stop(struct gateway *g, void (*on_stopped)(void *arg), void *arg)
{
	g->stopping = true;
	g->on_stopped = on_stopped;
	g->on_stopped_arg = arg;
	http_server_stop_accepting(g->server);
	timer_start(&g->stop_deadline, STOP_US);
	waiters_end_all(g);
	events_end_all(g);
	gateway_maybe_stopped(g);
}

void gateway_free(struct gateway *g)
{
	if (!g)
		return;
	g->on_stopped = NULL;
	http_server_free(take_ptr(&g->server));
	CHECK(list_is_empty(&g->visits) && list_is_empty(&g->uploads));
	defer_cancel(&g->stopped);
	timer_stop(&g->stop_deadline);
	events_fini(g);
	waiters_fini(g);
	done_cache_fini(&g->done_cache);
	access_fini(g);
	metrics_fini(g);
	if (g->owns_shared)
		shared_free(g->shared);
	buf_fini(&g->openapi);
	free(g->routes);
	peers_fini(&g->peers);
	texts_fini(&g->hosts, &g->n_hosts);
	texts_fini(&g->names, &g->n_names);
	buf_fini(&g->refusal);
	free(g);
}
