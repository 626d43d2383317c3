/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_client - one call of a method: encode, send, wait, decode, say whether trying again makes sense.
 *
 * A `struct rpc_pending` lives from rpc_call() to its callback or its cancel; it holds the transport's operation and
 * the buffers an answer borrows. Temporary against permanent is decided here and nowhere else: from
 * the transport's failure, or from the status of the reply (the table in classify()).
 */
#include "rpc/rpc_client.h"

#include <errno.h>
#include <stdio.h>

#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "rpc/frame.h"

#define CODE_MAX 64

struct rpc_pending {
	struct op op;
	struct op *inner;
	enum rpc_method method;
	rpc_answer_fn *cb;
	void *arg;
};

/* --- what came back ------------------------------------------------------------------------------------- */

static enum rpc_failure failure_of(enum transport_failure failure)
{
	static const enum rpc_failure map[] = {
		[TRANSPORT_OK] = RPC_OK,
		[TRANSPORT_REFUSED] = RPC_REFUSED,
		[TRANSPORT_TIMEOUT] = RPC_TIMED_OUT,
		[TRANSPORT_BROKEN] = RPC_BROKEN,
	};

	return map[failure];
}

static enum rpc_failure classify(int status)
{
	if (status == 200)
		return RPC_OK;
	/* Overload and a request that came too slowly are matters of the moment. */
	if (status == 503 || status == 429 || status == 408)
		return RPC_UNAVAILABLE;
	if (status >= 400 && status < 500)
		return RPC_REJECTED;
	return RPC_GARBLED;
}

static void copy_text(const struct json *root, const char *key, char *out, size_t cap)
{
	const struct json *node = json_get(root, key);

	if (node && node->type == JSON_STRING)
		snprintf(out, cap, STR_FMT, STR_ARG(node->text));
}

/* A problem document, as far as it is one; code lives in `code`. */
static void read_problem(int status, struct str body, char code[CODE_MAX], struct problem *problem)
{
	struct json_tree *tree cleanup(json_freep) = NULL;
	struct json_error error;

	problem->status = status;
	problem->code = code;
	if (json_parse(body, NULL, &tree, &error))
		return;
	copy_text(json_root(tree), "code", code, CODE_MAX);
	copy_text(json_root(tree), "pointer", problem->pointer, sizeof(problem->pointer));
	copy_text(json_root(tree), "detail", problem->detail, sizeof(problem->detail));
}

static void read_reply(enum rpc_method method, struct str body, struct rpc_answer *answer)
{
	struct str text = body;
	const struct json_limits limits = {
		.bytes = (size_t)256 << 20, .depth = 72, .values = 4000000};

	if (rpc_method_carries(method))
		frame_split(body, &text, &answer->carried);
	if (codec_decode_text(
		    rpc_methods[method].reply, text, &limits, &answer->record, &answer->problem)) {
		answer->failure = RPC_GARBLED;
		return;
	}
	answer->reply = record_data(answer->record);
}

static void on_reply(void *arg, const struct transport_reply *reply)
{
	struct rpc_pending *p = arg;
	struct rpc_answer answer = {.failure = failure_of(reply->failure), .problem = {.code = ""}};
	char code[CODE_MAX] = "";

	p->inner = NULL;
	if (reply->failure == TRANSPORT_OK) {
		answer.bytes = reply->body.n;
		answer.failure = classify(reply->status);
		if (answer.failure == RPC_OK)
			read_reply(p->method, reply->body, &answer);
		else
			read_problem(reply->status, reply->body, code, &answer.problem);
	}
	p->cb(p->arg, &answer);
	record_free(answer.record);
	free(p);
}

/* --- calls ------------------------------------------------------------------------------------------------- */

static void pending_cancel(struct op *op)
{
	struct rpc_pending *p = container_of(op, struct rpc_pending, op);

	op_cancel(&p->inner);
	free(p);
}

int rpc_call(struct loop *loop, struct transport *transport, const char *address,
	enum rpc_method method, const void *request, int64_t wait_us, rpc_answer_fn *cb, void *arg,
	struct op **op)
{
	return rpc_call_carrying(
		loop, transport, address, method, request, STR_NULL, wait_us, cb, arg, op);
}

int rpc_call_carrying(struct loop *loop, struct transport *transport, const char *address,
	enum rpc_method method, const void *request, struct str bytes, int64_t wait_us,
	rpc_answer_fn *cb, void *arg, struct op **op)
{
	struct buf body cleanup(buf_fini) = BUF_INIT;
	struct rpc_pending *p;
	int r;

	if (!address)
		return -EDESTADDRREQ;
	codec_encode_text(rpc_methods[method].request, request, &body);
	CHECK(!bytes.n || rpc_method_carries(method));
	frame_add(&body, bytes);
	p = mem_alloc(sizeof(*p));
	p->op.cancel = pending_cancel;
	p->method = method;
	p->cb = cb;
	p->arg = arg;
	r = transport->ops->call(transport, address, rpc_methods[method].name, buf_str(&body),
		rpc_methods[method].timeout_us + wait_us, on_reply, p, &p->inner);
	if (r) {
		free(p);
		return r;
	}
	*op = &p->op;
	return 0;
}

bool rpc_failure_is_temporary(enum rpc_failure failure)
{
	return failure != RPC_OK && failure != RPC_REJECTED;
}

const char *rpc_failure_name(enum rpc_failure failure)
{
	static const char *const names[] = {
		[RPC_OK] = "ok",
		[RPC_REFUSED] = "refused",
		[RPC_BROKEN] = "broken",
		[RPC_TIMED_OUT] = "timed_out",
		[RPC_UNAVAILABLE] = "unavailable",
		[RPC_REJECTED] = "rejected",
		[RPC_GARBLED] = "garbled",
	};

	return names[failure];
}

/* --- peers --------------------------------------------------------------------------------------------------- */

void peers_init(struct peers *peers, struct loop *loop, const char *addresses)
{
	struct str rest = str_from(addresses), head;

	*peers = (struct peers){0};
	while (str_cut(&rest, ',', &head)) {
		head = str_trim(head);
		if (!head.n)
			continue;
		peers->addresses = mem_resize(peers->addresses, (peers->n + 1) * sizeof(char *));
		peers->addresses[peers->n++] = str_dup(head);
	}
	if (peers->n)
		peers->at = (unsigned)loop_random_below(loop, peers->n);
}

const char *peers_current(const struct peers *peers)
{
	return peers->n ? peers->addresses[peers->at] : NULL;
}

void peers_failed(struct peers *peers, const char *failed)
{
	if (peers->n && !strcmp(peers->addresses[peers->at], failed))
		peers->at = (peers->at + 1) % peers->n;
}

void peers_fini(struct peers *peers)
{
	for (unsigned i = 0; i < peers->n; i++)
		free(peers->addresses[i]);
	free(peers->addresses);
	*peers = (struct peers){0};
}
