/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_server - methods of methods.def served over any transport: decodes the request, calls the row's handler, encodes the reply.
 */
#pragma once

#include "rpc/messages.h"
#include "rpc/transport.h"

struct rpc_call; /* one request to be answered once */
struct rpc_server;

/* What came of a call. */
enum rpc_result {
	RPC_R_OK,
	RPC_R_REFUSED, /* 4xx: the caller is wrong */
	RPC_R_FAILED,  /* 5xx: we could not */
	RPC_R_GONE,    /* the caller left before the answer */
	RPC_R_N
};

typedef void rpc_handler_fn(void *arg, struct rpc_call *call);

/* handlers[method] may be NULL: 404. The table is borrowed. */
int rpc_server_new(struct loop *loop, struct log *log, struct transport *transport,
	const char *address, rpc_handler_fn *const handlers[RPC_METHOD_N], void *arg,
	struct rpc_server **out) must_check;
unsigned rpc_server_port(const struct rpc_server *server);
/* From now on calls are answered with 503 "stopping", so that callers move on; those under way go on. */
void rpc_server_refuse(struct rpc_server *server);
/* How many calls of a method came to this, since the server was made; those to unknown methods are not counted. */
uint64_t rpc_server_count(
	const struct rpc_server *server, enum rpc_method method, enum rpc_result result);
const char *rpc_result_name(enum rpc_result result);
void rpc_server_free(struct rpc_server *server); /* unanswered calls: their gone callback fires */

/* The decoded request: struct msg_..._request of the method; borrowed until the call is answered or gone. */
const void *rpc_call_request(const struct rpc_call *call);
/* The bytes that came with it, absent when there are none or the method carries none; borrowed until the call is answered or gone. */
struct str rpc_call_carried(const struct rpc_call *call);
/* Takes the request's ownership (once): free with record_free(). For handlers that outlive the call. */
struct record *rpc_call_take_request(struct rpc_call *call) must_check;
enum rpc_method rpc_call_method(const struct rpc_call *call);
/* Answers with struct msg_..._reply of the method; the call is dead after it. */
void rpc_call_reply(struct rpc_call *call, const void *reply);
/* The same with bytes behind it. */
void rpc_call_reply_carrying(struct rpc_call *call, const void *reply, struct str bytes);
/* Answers with a problem document. */
void rpc_call_fail(struct rpc_call *call, int status, const char *code, const char *fmt, ...)
	printf_like(4, 5);
/* Once, if the caller goes away before the answer; the call is dead then. Replaces an earlier one. NULL fn = none. */
void rpc_call_on_gone(struct rpc_call *call, void (*fn)(void *arg), void *arg);
