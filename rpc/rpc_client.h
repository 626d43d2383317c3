/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_client - calls methods of methods.def over any transport: encodes, sends, decodes, tells temporary from permanent.
 */
#pragma once

#include "rpc/messages.h"
#include "rpc/transport.h"

enum rpc_failure {
	RPC_OK,
	RPC_REFUSED, /* nobody there: try another at once */
	RPC_BROKEN,  /* connection lost before the answer */
	RPC_TIMED_OUT,
	RPC_UNAVAILABLE, /* 503: temporary, try later or another */
	RPC_REJECTED,    /* 4xx: permanent; problem says why */
	RPC_GARBLED,     /* an answer that is none, or a 500 */
};

struct rpc_answer { /* borrowed for the callback */
	enum rpc_failure failure;
	const void *reply;      /* struct msg_..._reply, for RPC_OK */
	struct record *record;  /* owns reply; take_ptr() it to keep it */
	struct problem problem; /* otherwise; code "" when the other side said nothing */
	size_t bytes;           /* of the reply's body */
	struct str carried;     /* for RPC_OK of a method that carries bytes: those of the reply */
};

typedef void rpc_answer_fn(void *arg, struct rpc_answer *answer);

/* wait_us is added to the method's timeout (long polls). See reactor/op.h. */
int rpc_call(struct loop *loop, struct transport *transport, const char *address,
	enum rpc_method method, const void *request, int64_t wait_us, rpc_answer_fn *cb, void *arg,
	struct op **op) must_check;
/* The same with bytes that go along (copied), for a method that carries them. */
int rpc_call_carrying(struct loop *loop, struct transport *transport, const char *address,
	enum rpc_method method, const void *request, struct str bytes, int64_t wait_us,
	rpc_answer_fn *cb, void *arg, struct op **op) must_check;
bool rpc_failure_is_temporary(enum rpc_failure failure);
const char *rpc_failure_name(enum rpc_failure failure);

/* The judicators one knows, and which to use now: starts at a random one, moves on at each failure. */
struct peers {
	char **addresses;
	unsigned n, at;
};
/* "a:1,b:2" -> peers. */
void peers_init(struct peers *peers, struct loop *loop, const char *addresses);
const char *peers_current(const struct peers *peers);
/* Moves on, if `failed` is still the current one. */
void peers_failed(struct peers *peers, const char *failed);
void peers_fini(struct peers *peers);
