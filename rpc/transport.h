/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport - how RPC bytes travel: rows `http` (real) and `loop` (inside one process, order, delay, loss and duplication from the
 * loop's seed, so cluster tests replay). Both carry the same encoded bytes, so the codec is in every test.
 *
 * A call is one connection: cancelling it (op_cancel) closes that connection; its reply is never seen, and the server learns
 * that the client is gone.
 */
#pragma once

#include "reactor/base/buf.h"
#include "reactor/op.h"

struct log;
struct loop;
struct transport;
struct transport_server;
struct transport_request; /* server side: one call to be answered once */

enum transport_failure { TRANSPORT_OK, TRANSPORT_REFUSED, TRANSPORT_TIMEOUT, TRANSPORT_BROKEN };

struct transport_reply { /* borrowed for the callback */
	enum transport_failure failure;
	int status; /* HTTP's: 200, or an error with a problem document */
	struct str body;
};

typedef void transport_reply_fn(void *arg, const struct transport_reply *reply);
/* body is borrowed until the request is answered or gone, or dropped. */
typedef void transport_serve_fn(
	void *arg, struct transport_request *request, struct str method, struct str body);

struct transport_ops {
	const char *name;
	int (*call)(struct transport *t, const char *address, const char *method, struct str body,
		int64_t timeout_us, transport_reply_fn *cb, void *arg, struct op **op);
	int (*serve)(struct transport *t, const char *address, transport_serve_fn *serve, void *arg,
		struct transport_server **out);
	/* Stops listening and drops what is unanswered (gone callbacks fire). */
	void (*server_free)(struct transport_server *server);
	unsigned (*server_port)(const struct transport_server *server);
	void (*reply)(struct transport_request *request, int status, struct str body);
	void (*on_gone)(struct transport_request *request, void (*fn)(void *arg), void *arg);
	/* All of it has been read: its memory is given back before the answer. NULL = there is nothing to give. */
	void (*drop)(struct transport_request *request);
	void (*free)(struct transport *t);
};

struct transport {
	const struct transport_ops *ops; /* first member of every row's own structure */
};

/* http: requests carry the shared secret in a header, compared in constant time by the server (401 otherwise). secret is copied. */
struct transport *transport_http_new(
	struct loop *loop, struct log *log, struct str secret) must_check;

/* loop: one network shared by all who live on the loop. Each node (name) makes its own transport on it. */
struct loop_net;
struct loop_net_options {
	int64_t delay_min_us, delay_max_us; /* each way */
	unsigned
		loss_percent; /* of messages (each way): the caller sees nothing until its timeout */
	unsigned
		duplicate_percent; /* of requests: the server sees them twice; the second reply goes nowhere */
};
struct loop_net *loop_net_new(struct loop *loop, const struct loop_net_options *options) must_check;
void loop_net_set(struct loop_net *net, const struct loop_net_options *options);
/* A trace hook: decides the fate of each message, for tests that play one exact order. Returns the delay in us, or -1 = lost. */
typedef int64_t loop_net_fate_fn(void *arg, const char *from, const char *to, const char *method,
	bool is_reply, struct str body);
void loop_net_set_fate(struct loop_net *net, loop_net_fate_fn *fn, void *arg);
/* Cuts or heals the link between two nodes (names), both ways: messages are lost, connections stay silent. */
void loop_net_cut(struct loop_net *net, const char *a, const char *b, bool cut);
/* A node dies: its servers stop (callers see BROKEN after the delay), its calls are forgotten. Done by freeing its transport. */
void loop_net_free(struct loop_net *net);
struct transport *transport_loop_new(struct loop_net *net, const char *node) must_check;
