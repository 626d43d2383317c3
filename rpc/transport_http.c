/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport_http - RPC over HTTP/1.1: a call is `POST /rpc/METHOD` with the shared secret in its Authorization header.
 *
 * Client side: a `call` forwards to the HTTP client. A kept connection that ended before any byte of the reply came has most
 * likely been closed by the server for being idle, at the very moment of re-use. Since every method is safe to repeat, such a call
 * is tried once more, on a connection of its own, within the time it still has. Nothing else is repeated here. A call whose transport
 * is freed is over, but stays until its owner cancels it, who still has the handle.
 *
 * Server side: a `transport_server` is an HTTP server with one handler. The secret is looked at before a body is read; compared
 * are SHA-256 digests, in constant time, so neither the secret's length nor its start can be guessed by measuring. A request in the
 * handler's hands is a `transport_request`, which is the HTTP request under another name.
 */
/* First: `unused` is a name in these and not yet our attribute. */
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "rpc/transport.h"

#include "reactor/base/clock.h"
#include "reactor/base/list.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "rpc/codec.h"
#include "rpc/http/client.h"
#include "rpc/http/router.h"
#include "rpc/http/server.h"

#define RPC_BODY_MAX (INT64_C(256) << 20)
#define RPC_READ_TIMEOUT_US (30 * US_PER_S)
/* Longer than any client leaves a connection idle between two reports. */
#define RPC_IDLE_TIMEOUT_US (120 * US_PER_S)
#define RPC_PATH "/rpc/"
#define RPC_PATH_MAX 128
#define BEARER "Bearer "

struct transport_http {
	struct transport base;
	struct loop *loop;
	struct log *log;
	struct http_client *client;
	struct list calls;
	char *authorization; /* "Bearer SECRET" */
	size_t authorization_len;
};

struct transport_server {
	struct http_server *http;
	struct log *log;
	unsigned char secret[SHA256_DIGEST_LENGTH]; /* of the whole Authorization value */
	transport_serve_fn *serve;
	void *arg;
	struct buf refusal; /* the 401's text */
};

struct call {
	struct op op;
	struct list link; /* t->calls */
	struct transport_http *t;
	struct op *inner;
	char *address, *path;
	struct buf body;
	int64_t deadline_us;
	bool again; /* this is the second try */
	transport_reply_fn *cb;
	void *arg;
};

/* --- calling --------------------------------------------------------------------------------------------------- */

static void call_free(struct call *call)
{
	list_del(&call->link);
	free(call->address);
	free(call->path);
	buf_fini(&call->body);
	free(call);
}

static void call_cancel(struct op *op)
{
	struct call *call = container_of(op, struct call, op);

	op_cancel(&call->inner);
	call_free(call);
}

static enum transport_failure failure_of(enum http_failure failure)
{
	static const enum transport_failure map[] = {
		[HTTP_OK_REPLY] = TRANSPORT_OK,
		[HTTP_REFUSED] = TRANSPORT_REFUSED,
		[HTTP_TIMEOUT] = TRANSPORT_TIMEOUT,
		[HTTP_BROKEN] = TRANSPORT_BROKEN,
		[HTTP_TOO_LARGE] = TRANSPORT_BROKEN,
		[HTTP_UNTRUSTED] = TRANSPORT_REFUSED,
	};

	return map[failure];
}

static int call_send(struct call *call);

static void on_reply(void *arg, const struct http_reply *http)
{
	struct call *call = arg;
	const struct transport_reply reply = {
		.failure = failure_of(http->failure), .status = http->status, .body = http->body};
	transport_reply_fn *cb = call->cb;
	void *cb_arg = call->arg;

	call->inner = NULL;
	if (http->failure == HTTP_BROKEN && http->stale && !call->again) {
		call->again = true;
		if (call_send(call) == 0)
			return;
	}
	/* The bytes are the HTTP client's, so the call may go first. */
	call_free(call);
	cb(cb_arg, &reply);
}

static int call_send(struct call *call)
{
	struct transport_http *t = call->t;
	const struct http_header headers[] = {
		{"Authorization", t->authorization},
		{"Content-Type", "application/json"},
	};
	const struct http_call http = {
		.address = call->address,
		.method = "POST",
		.path = call->path,
		.headers = headers,
		.n_headers = ARRAY_SIZE(headers),
		.body = buf_str(&call->body),
		.timeout_us = call->deadline_us - loop_now_us(t->loop),
		.fresh = call->again,
	};

	return http_client_call(t->client, &http, on_reply, call, &call->inner);
}

static int http_transport_call(struct transport *base, const char *address, const char *method,
	struct str body, int64_t timeout_us, transport_reply_fn *cb, void *arg, struct op **op)
{
	struct transport_http *t = container_of(base, struct transport_http, base);
	struct call *call = mem_alloc(sizeof(*call));
	int r;

	call->op.cancel = call_cancel;
	call->t = t;
	list_add_tail(&t->calls, &call->link);
	call->address = mem_strdup(address);
	call->path = mem_printf(RPC_PATH "%s", method);
	buf_add_str(&call->body, body);
	call->deadline_us = loop_now_us(t->loop) + timeout_us;
	call->cb = cb;
	call->arg = arg;
	r = call_send(call);
	if (r) {
		call_free(call);
		return r;
	}
	*op = &call->op;
	return 0;
}

/* --- serving ---------------------------------------------------------------------------------------------------- */

static bool is_authorized(const struct transport_server *server, const struct http_request *request)
{
	struct str given = http_request_header(request, "Authorization");
	unsigned char digest[SHA256_DIGEST_LENGTH];

	if (!given.p)
		return false;
	SHA256((const unsigned char *)given.p, given.n, digest);
	return CRYPTO_memcmp(digest, server->secret, sizeof(digest)) == 0;
}

static int on_headers(void *arg, struct http_request *request, struct str *problem)
{
	struct transport_server *server = arg;

	if (is_authorized(server, request))
		return 0;
	log_warn(server->log, "rpc_unauthorized", "peer=%s", http_request_peer(request));
	*problem = buf_str(&server->refusal);
	return 401;
}

static void refuse(struct http_request *request, int status, const char *code, const char *detail)
{
	struct problem problem = {0};

	problem_set(&problem, status, code, "", "%s", detail);
	http_request_problem(request, &problem);
}

static void on_request(void *arg, struct http_request *request)
{
	struct transport_server *server = arg;
	struct str path = http_request_path(request);
	size_t prefix = sizeof(RPC_PATH) - 1;

	if (path.n <= prefix || path.n > RPC_PATH_MAX || memcmp(path.p, RPC_PATH, prefix) != 0) {
		refuse(request, 404, "not_found", "methods are at /rpc/NAME");
		return;
	}
	if (http_request_method(request) != HTTP_POST) {
		http_request_add_header(request, "Allow", "POST");
		refuse(request, 405, "method_not_allowed", "methods are called with POST");
		return;
	}
	server->serve(server->arg, (struct transport_request *)request,
		(struct str){path.p + prefix, path.n - prefix}, http_request_body(request));
}

static void write_refusal(struct buf *out)
{
	struct problem problem = {0};

	problem_set(&problem, 401, "unauthorized", "", "the shared secret is missing or wrong");
	problem_write(&problem, out);
}

static void server_destroy(void *arg)
{
	struct transport_server *server = arg;

	buf_fini(&server->refusal);
	free(server);
}

static int http_transport_serve(struct transport *base, const char *address,
	transport_serve_fn *serve, void *arg, struct transport_server **out)
{
	struct transport_http *t = container_of(base, struct transport_http, base);
	struct transport_server *server = mem_alloc(sizeof(*server));
	const struct http_server_options options = {
		.log = t->log,
		.body_max = RPC_BODY_MAX,
		.read_timeout_us = RPC_READ_TIMEOUT_US,
		.idle_timeout_us = RPC_IDLE_TIMEOUT_US,
		.on_headers = on_headers,
		.handler = on_request,
		.arg = server,
	};
	int r;

	server->log = t->log;
	server->serve = serve;
	server->arg = arg;
	SHA256((const unsigned char *)t->authorization, t->authorization_len, server->secret);
	write_refusal(&server->refusal);
	r = http_server_new(t->loop, address, &options, &server->http);
	if (r) {
		server_destroy(server);
		return r;
	}
	*out = server;
	return 0;
}

static void http_transport_server_free(struct transport_server *server)
{
	if (!server)
		return;
	http_server_free(server->http);
	server_destroy(server);
}

static unsigned http_transport_server_port(const struct transport_server *server)
{
	return http_server_port(server->http);
}

static void http_transport_reply(struct transport_request *request, int status, struct str body)
{
	http_request_reply((struct http_request *)request, status,
		status == 200 ? "application/json" : "application/problem+json", body);
}

static void http_transport_on_gone(
	struct transport_request *request, void (*fn)(void *arg), void *arg)
{
	http_request_on_gone((struct http_request *)request, fn, arg);
}

static void http_transport_drop(struct transport_request *request)
{
	http_request_drop_body((struct http_request *)request);
	http_request_drop_headers((struct http_request *)request);
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static void http_transport_free(struct transport *base)
{
	struct transport_http *t = container_of(base, struct transport_http, base);
	struct list *first;

	while ((first = list_first(&t->calls))) {
		list_del(first);
		op_cancel(&list_entry(first, struct call, link)->inner);
	}
	http_client_free(t->client);
	mem_wipe_free(t->authorization, t->authorization_len);
	free(t);
}

static const struct transport_ops http_ops = {
	.name = "http",
	.call = http_transport_call,
	.serve = http_transport_serve,
	.server_free = http_transport_server_free,
	.server_port = http_transport_server_port,
	.reply = http_transport_reply,
	.on_gone = http_transport_on_gone,
	.drop = http_transport_drop,
	.free = http_transport_free,
};

struct transport *transport_http_new(struct loop *loop, struct log *log, struct str secret)
{
	struct transport_http *t = mem_alloc(sizeof(*t));
	const struct http_client_options options = {
		.log = log, .connections_max = 256, .body_max = RPC_BODY_MAX};

	t->base.ops = &http_ops;
	t->loop = loop;
	t->log = log;
	list_init(&t->calls);
	t->client = http_client_new(loop, &options);
	t->authorization = mem_printf(BEARER "%.*s", STR_ARG(secret));
	t->authorization_len = strlen(t->authorization);
	return &t->base;
}
