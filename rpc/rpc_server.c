/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_server - methods over any transport.
 *
 * A transport request becomes a `struct rpc_call` once its method is known, served and its body decoded; whatever is
 * wrong with it before that is answered here, as a problem document, and no handler hears of it. The call lives
 * from there to exactly one of: an answer (rpc_call_reply, rpc_call_fail) or the caller's going (the transport says
 * so, also when the server is freed). In both cases the call is unlinked and freed here, and what a handler still
 * needs of the request it has taken with rpc_call_take_request().
 *
 * The transport may die before the server does (a node of a test's network is killed), so the row's functions are
 * kept apart from the transport's own memory.
 */
#include "rpc/rpc_server.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "reactor/base/list.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "rpc/frame.h"

/* Larger than a client's limits: whole tasks with their own depth stand inside a message. */
#define RPC_BODY_MAX ((size_t)256 << 20)
#define RPC_DEPTH_MAX 72
#define RPC_VALUES_MAX 4000000
/* A reply's buffer over this is given back after use. */
#define SCRATCH_KEEP ((size_t)1 << 20)

struct rpc_server {
	struct loop *loop;
	struct log *log;
	const struct transport_ops *ops;
	struct transport_server *transport;
	rpc_handler_fn *const *handlers;
	void *arg;
	struct list calls;
	bool refusing;
	struct buf scratch; /* the reply being encoded */
	uint64_t counts[RPC_METHOD_N][RPC_R_N];
};

struct rpc_call {
	struct rpc_server *server;
	struct list link;
	struct transport_request *request;
	enum rpc_method method;
	struct record *record; /* NULL once taken */
	const void *data;
	struct str carried;
	void (*gone)(void *arg);
	void *gone_arg;
};

static void count(struct rpc_server *server, enum rpc_method method, int status)
{
	enum rpc_result result = status < 400   ? RPC_R_OK
				 : status < 500 ? RPC_R_REFUSED
						: RPC_R_FAILED;

	server->counts[method][result]++;
}

static void server_trim(struct rpc_server *server)
{
	if (server->scratch.cap > SCRATCH_KEEP)
		buf_fini(&server->scratch);
}

/* --- a request comes -------------------------------------------------------------------------------- */

static void answer_problem(
	struct rpc_server *server, struct transport_request *request, const struct problem *problem)
{
	buf_clear(&server->scratch);
	problem_write(problem, &server->scratch);
	server->ops->reply(request, problem->status, buf_str(&server->scratch));
}

static void call_free(struct rpc_call *call)
{
	list_del(&call->link);
	record_free(call->record);
	free(call);
}

static void on_gone(void *arg)
{
	struct rpc_call *call = arg;
	void (*gone)(void *) = call->gone;
	void *gone_arg = call->gone_arg;

	log_debug(call->server->log, "rpc_gone", "method=%s", rpc_methods[call->method].name);
	call->server->counts[call->method][RPC_R_GONE]++;
	list_del(&call->link);
	if (gone)
		gone(gone_arg);
	call_free(call);
}

static int decode(
	enum rpc_method method, struct str body, struct record **out, struct problem *problem)
{
	const struct json_limits limits = {
		.bytes = RPC_BODY_MAX, .depth = RPC_DEPTH_MAX, .values = RPC_VALUES_MAX};

	return codec_decode_text(rpc_methods[method].request, body, &limits, out, problem);
}

static void on_request(
	void *arg, struct transport_request *request, struct str method_name, struct str body)
{
	struct rpc_server *server = arg;
	struct problem problem = {0};
	struct record *record = NULL;
	struct str carried = STR_NULL;
	int method = rpc_method_find(method_name);
	struct rpc_call *call;

	if (server->refusing) {
		problem_set(&problem, 503, "stopping", "", "this one is stopping: ask another");
		answer_problem(server, request, &problem);
		return;
	}
	if (method < 0 || !server->handlers[method]) {
		problem_set(&problem, 404, "method_unknown", "", "no such method here");
		answer_problem(server, request, &problem);
		return;
	}
	if (rpc_method_carries((enum rpc_method)method))
		frame_split(body, &body, &carried);
	if (decode((enum rpc_method)method, body, &record, &problem)) {
		log_warn(server->log, "rpc_refused", "method=%s status=%d code=%s pointer=%s",
			rpc_methods[method].name, problem.status, problem.code, problem.pointer);
		count(server, (enum rpc_method)method, problem.status);
		answer_problem(server, request, &problem);
		return;
	}
	/* The record has all of it but what is carried, which lies in the body; ten thousand may wait. */
	if (server->ops->drop && !carried.p)
		server->ops->drop(request);
	call = mem_alloc(sizeof(*call));
	call->server = server;
	call->request = request;
	call->method = (enum rpc_method)method;
	call->record = record;
	call->data = record_data(record);
	call->carried = carried;
	list_add_tail(&server->calls, &call->link);
	server->ops->on_gone(request, on_gone, call);
	server->handlers[method](server->arg, call);
}

/* --- the handler's side -------------------------------------------------------------------------------- */

const void *rpc_call_request(const struct rpc_call *call)
{
	return call->data;
}

struct str rpc_call_carried(const struct rpc_call *call)
{
	return call->carried;
}

struct record *rpc_call_take_request(struct rpc_call *call)
{
	CHECK(call->record);
	return take_ptr(&call->record);
}

enum rpc_method rpc_call_method(const struct rpc_call *call)
{
	return call->method;
}

void rpc_call_reply(struct rpc_call *call, const void *reply)
{
	rpc_call_reply_carrying(call, reply, STR_NULL);
}

void rpc_call_reply_carrying(struct rpc_call *call, const void *reply, struct str bytes)
{
	struct rpc_server *server = call->server;
	struct transport_request *request = call->request;

	count(server, call->method, 200);
	buf_clear(&server->scratch);
	codec_encode_text(rpc_methods[call->method].reply, reply, &server->scratch);
	frame_add(&server->scratch, bytes);
	call_free(call);
	server->ops->reply(request, 200, buf_str(&server->scratch));
	server_trim(server);
}

void rpc_call_fail(struct rpc_call *call, int status, const char *code, const char *fmt, ...)
{
	struct rpc_server *server = call->server;
	struct transport_request *request = call->request;
	struct problem problem = {0};
	char detail[sizeof(problem.detail)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(detail, sizeof(detail), fmt, ap);
	va_end(ap);
	count(server, call->method, status);
	problem_set(&problem, status, code, "", "%s", detail);
	call_free(call);
	answer_problem(server, request, &problem);
}

void rpc_call_on_gone(struct rpc_call *call, void (*fn)(void *arg), void *arg)
{
	call->gone = fn;
	call->gone_arg = arg;
}

/* --- the server's life ---------------------------------------------------------------------------------- */

int rpc_server_new(struct loop *loop, struct log *log, struct transport *transport,
	const char *address, rpc_handler_fn *const handlers[RPC_METHOD_N], void *arg,
	struct rpc_server **out)
{
	struct rpc_server *server = mem_alloc(sizeof(*server));
	int r;

	server->loop = loop;
	server->log = log;
	server->ops = transport->ops;
	server->handlers = handlers;
	server->arg = arg;
	list_init(&server->calls);
	r = server->ops->serve(transport, address, on_request, server, &server->transport);
	if (r) {
		free(server);
		return r;
	}
	*out = server;
	return 0;
}

unsigned rpc_server_port(const struct rpc_server *server)
{
	return server->ops->server_port(server->transport);
}

static void server_destroy(void *arg)
{
	struct rpc_server *server = arg;

	buf_fini(&server->scratch);
	free(server);
}

uint64_t rpc_server_count(
	const struct rpc_server *server, enum rpc_method method, enum rpc_result result)
{
	return server->counts[method][result];
}

const char *rpc_result_name(enum rpc_result result)
{
	static const char *const names[] = {
		[RPC_R_OK] = "ok",
		[RPC_R_REFUSED] = "refused",
		[RPC_R_FAILED] = "failed",
		[RPC_R_GONE] = "gone",
	};

	return names[result];
}

void rpc_server_refuse(struct rpc_server *server)
{
	server->refusing = true;
}

void rpc_server_free(struct rpc_server *server)
{
	if (!server)
		return;
	server->ops->server_free(take_ptr(&server->transport));
	CHECK(list_is_empty(&server->calls));
	/* A handler may free us from inside a call: our memory stays until the turn ends. */
	loop_free_later(server->loop, server_destroy, server);
}
