/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport_loop - a network inside one process: what a cluster test runs on instead of sockets.
 *
 * Actors. A `loop_net` is the wire; each node has a `struct transport` on it; a node's servers are
 * `transport_server`s. A call is a `loop_call` (the client's end), the `transport_request`s its request became (the
 * server's end: one, or two when the request was duplicated) and the `conn` that joins them. What travels is a
 * `message` with a timer of its own:
 *
 *        call ──REQUEST──▶ request(s)          each delay is drawn from the loop's seed, or decided by the fate
 *        call ◀──REPLY──── request             hook, so messages of different connections overtake each other and
 *        call ──CLOSE────▶ request(s)          a printed seed brings the very same order back
 *        call ◀──BROKEN─── server that died, REFUSED where nobody listens
 *
 * Rules. A REPLY or REQUEST may be lost (the caller then sees nothing until its timeout); CLOSE, BROKEN and REFUSED
 * are what TCP repeats until they arrive, so only a cut link loses them. Within a connection CLOSE never overtakes
 * the request. A request given up on is still delivered: a late message is what the protocol must survive. A cut is
 * looked at when a message leaves and again when it arrives. The first reply to arrive ends the call; what a
 * duplicate answers goes nowhere.
 *
 * Lifetimes. `conn` is counted: the call, each request and each message in flight hold it. A call that its node's
 * death ended stays in the net's graveyard until it is cancelled (its owner still has the handle) or the net goes.
 * Each request has a body of its own, which goes when it is dropped, as over HTTP: who still reads it then is found by a sanitizer.
 * A server outlives its node, deaf, until its owner frees it.
 */
#include "rpc/transport.h"

#include <errno.h>
#include <stdio.h>

#include "reactor/base/list.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/timer.h"

#define FIRST_PORT 1000

struct loop_net {
	struct loop *loop;
	struct loop_net_options options;
	loop_net_fate_fn *fate;
	void *fate_arg;
	struct list nodes, messages, cuts, graveyard;
	unsigned next_port;
};

struct loop_node {
	struct transport base;
	struct loop_net *net;
	struct list link; /* net->nodes */
	char *name;
	struct list calls, servers;
};

struct transport_server {
	struct loop_net *net;
	struct loop_node *node; /* NULL once the node is dead */
	struct list link;       /* node->servers */
	char *address;
	unsigned port;
	transport_serve_fn *serve;
	void *arg;
	struct list requests;
};

struct conn {
	unsigned refs;
	struct loop_call *call; /* NULL once it is over */
	char *from, *to;        /* node names */
	char *address, *method;
	struct buf body;
	struct list requests;   /* on the server's side */
	int64_t requests_at_us; /* when the last REQUEST arrives */
};

struct loop_call {
	struct op op;
	struct loop_net *net;
	struct loop_node *node; /* NULL in the graveyard */
	struct list link;       /* node->calls or net->graveyard */
	struct conn *conn;
	struct timer timeout;
	transport_reply_fn *cb;
	void *arg;
};

struct transport_request {
	struct transport_server *server;
	struct list link, conn_link; /* server->requests, conn->requests */
	struct conn *conn;
	struct buf body;
	void (*gone)(void *arg);
	void *gone_arg;
};

enum message_kind {
	MESSAGE_REQUEST,
	MESSAGE_REPLY,
	MESSAGE_CLOSE,
	MESSAGE_BROKEN,
	MESSAGE_REFUSED
};

struct message {
	struct loop_net *net;
	struct list link; /* net->messages */
	struct timer timer;
	enum message_kind kind;
	struct conn *conn;
	int status;
	struct buf body;
};

struct cut {
	struct list link;
	char *a, *b;
};

/* --- the wire ------------------------------------------------------------------------------------------------ */

static void conn_unref(struct conn *conn)
{
	if (--conn->refs)
		return;
	CHECK(list_is_empty(&conn->requests));
	free(conn->from);
	free(conn->to);
	free(conn->address);
	free(conn->method);
	buf_fini(&conn->body);
	free(conn);
}

static struct cut *find_cut(const struct loop_net *net, const char *a, const char *b)
{
	list_each (it, (struct list *)&net->cuts) {
		struct cut *cut = list_entry(it, struct cut, link);

		if ((!strcmp(cut->a, a) && !strcmp(cut->b, b)) ||
			(!strcmp(cut->a, b) && !strcmp(cut->b, a)))
			return cut;
	}
	return NULL;
}

static bool percent(struct loop_net *net, unsigned chance)
{
	return chance && loop_random_below(net->loop, 100) < chance;
}

static int64_t draw_delay(struct loop_net *net)
{
	const struct loop_net_options *o = &net->options;

	if (o->delay_max_us <= o->delay_min_us)
		return o->delay_min_us;
	return o->delay_min_us + (int64_t)loop_random_below(net->loop,
					 (uint64_t)(o->delay_max_us - o->delay_min_us) + 1);
}

/* Delay of a request or reply, or -1 when it is lost on the way. */
static int64_t decide_fate(
	struct loop_net *net, const struct conn *conn, bool is_reply, struct str body)
{
	const char *from = is_reply ? conn->to : conn->from;
	const char *to = is_reply ? conn->from : conn->to;

	if (net->fate)
		return net->fate(net->fate_arg, from, to, conn->method, is_reply, body);
	if (percent(net, net->options.loss_percent))
		return -1;
	return draw_delay(net);
}

static void message_free(struct message *m)
{
	timer_stop(&m->timer);
	list_del(&m->link);
	conn_unref(m->conn);
	buf_fini(&m->body);
	free(m);
}

static void on_arrival(void *arg);

static struct message *send_message(
	struct loop_net *net, struct conn *conn, enum message_kind kind, int64_t delay_us)
{
	struct message *m = mem_alloc(sizeof(*m));

	m->net = net;
	m->kind = kind;
	m->conn = conn;
	conn->refs++;
	list_add_tail(&net->messages, &m->link);
	timer_init(&m->timer, net->loop, on_arrival, m);
	timer_start(&m->timer, delay_us);
	return m;
}

static void send_request(struct loop_net *net, struct conn *conn)
{
	int64_t delay_us = decide_fate(net, conn, false, buf_str(&conn->body));
	int64_t at_us = loop_now_us(net->loop) + delay_us;

	if (delay_us < 0 || find_cut(net, conn->from, conn->to))
		return;
	if (at_us > conn->requests_at_us)
		conn->requests_at_us = at_us;
	send_message(net, conn, MESSAGE_REQUEST, delay_us);
}

/* What the peer's kernel says by itself: neither lost nor subject to fate, but not through a cut. */
static void send_control(struct loop_net *net, struct conn *conn, enum message_kind kind)
{
	int64_t now_us = loop_now_us(net->loop), at_us = now_us + draw_delay(net);

	if (find_cut(net, conn->from, conn->to))
		return;
	if (kind == MESSAGE_CLOSE && at_us < conn->requests_at_us)
		at_us = conn->requests_at_us;
	send_message(net, conn, kind, at_us - now_us);
}

/* --- the client's end ------------------------------------------------------------------------------------------ */

static void call_free(struct loop_call *call)
{
	timer_stop(&call->timeout);
	list_del(&call->link);
	if (call->conn) {
		call->conn->call = NULL;
		conn_unref(call->conn);
	}
	free(call);
}

static void call_finish(struct loop_call *call, const struct transport_reply *reply)
{
	transport_reply_fn *cb = call->cb;
	void *arg = call->arg;

	call_free(call);
	cb(arg, reply);
}

static void call_fail(struct loop_call *call, enum transport_failure failure)
{
	const struct transport_reply reply = {.failure = failure};

	call_finish(call, &reply);
}

static void on_timeout(void *arg)
{
	struct loop_call *call = arg;

	send_control(call->net, call->conn, MESSAGE_CLOSE);
	call_fail(call, TRANSPORT_TIMEOUT);
}

static void call_cancel(struct op *op)
{
	struct loop_call *call = container_of(op, struct loop_call, op);

	if (call->conn)
		send_control(call->net, call->conn, MESSAGE_CLOSE);
	call_free(call);
}

/* The node dies under the call: its owner may still cancel it, nothing else will happen to it. */
static void call_bury(struct loop_call *call)
{
	send_control(call->net, call->conn, MESSAGE_CLOSE);
	timer_stop(&call->timeout);
	call->conn->call = NULL;
	conn_unref(take_ptr(&call->conn));
	call->node = NULL;
	list_del(&call->link);
	list_add_tail(&call->net->graveyard, &call->link);
}

static struct transport_server *find_server(const struct loop_net *net, const char *address);
static struct loop_node *find_node(const struct loop_net *net, const char *name);

static int loop_transport_call(struct transport *t, const char *address, const char *method,
	struct str body, int64_t timeout_us, transport_reply_fn *cb, void *arg, struct op **op)
{
	struct loop_node *node = container_of(t, struct loop_node, base);
	struct loop_net *net = node->net;
	struct transport_server *server = find_server(net, address);
	struct loop_call *call = mem_alloc(sizeof(*call));
	struct conn *conn = mem_alloc(sizeof(*conn));

	conn->refs = 1;
	conn->call = call;
	conn->from = mem_strdup(node->name);
	conn->to = mem_strdup(server ? server->node->name : address);
	conn->address = mem_strdup(address);
	conn->method = mem_strdup(method);
	buf_add_str(&conn->body, body);
	list_init(&conn->requests);
	call->op.cancel = call_cancel;
	call->net = net;
	call->node = node;
	call->conn = conn;
	call->cb = cb;
	call->arg = arg;
	list_add_tail(&node->calls, &call->link);
	timer_init(&call->timeout, net->loop, on_timeout, call);
	timer_start(&call->timeout, timeout_us);
	send_request(net, conn);
	if (percent(net, net->options.duplicate_percent))
		send_request(net, conn);
	*op = &call->op;
	return 0;
}

/* --- the server's end ------------------------------------------------------------------------------------------ */

static struct loop_node *find_node(const struct loop_net *net, const char *name)
{
	list_each (it, (struct list *)&net->nodes) {
		struct loop_node *node = list_entry(it, struct loop_node, link);

		if (!strcmp(node->name, name) && !list_is_empty(&node->servers))
			return node;
	}
	return NULL;
}

/* By its own address, else by the name of its node. */
static struct transport_server *find_server(const struct loop_net *net, const char *address)
{
	struct loop_node *named;

	list_each (it, (struct list *)&net->nodes) {
		struct loop_node *node = list_entry(it, struct loop_node, link);

		list_each (jt, &node->servers) {
			struct transport_server *server =
				list_entry(jt, struct transport_server, link);

			if (!strcmp(server->address, address))
				return server;
		}
	}
	named = find_node(net, address);
	return named ? list_entry(list_first(&named->servers), struct transport_server, link)
		     : NULL;
}

static void request_free(struct transport_request *request)
{
	list_del(&request->link);
	list_del(&request->conn_link);
	conn_unref(request->conn);
	buf_fini(&request->body);
	free(request);
}

static void request_go(struct transport_request *request)
{
	void (*gone)(void *) = request->gone;
	void *gone_arg = request->gone_arg;

	request_free(request);
	if (gone)
		gone(gone_arg);
}

static void loop_transport_reply(struct transport_request *request, int status, struct str body)
{
	struct loop_net *net = request->server->net;
	struct conn *conn = request->conn;
	int64_t delay_us = decide_fate(net, conn, true, body);

	if (delay_us >= 0 && !find_cut(net, conn->from, conn->to)) {
		struct message *m = send_message(net, conn, MESSAGE_REPLY, delay_us);

		m->status = status;
		buf_add_str(&m->body, body);
	}
	request_free(request);
}

static void loop_transport_on_gone(
	struct transport_request *request, void (*fn)(void *arg), void *arg)
{
	request->gone = fn;
	request->gone_arg = arg;
}

static void loop_transport_drop(struct transport_request *request)
{
	buf_fini(&request->body);
}

/* "host:0" becomes "host:PORT" with a port nobody has. */
static char *own_address(
	struct loop_net *net, const struct loop_node *node, const char *address, unsigned *port)
{
	const char *colon;

	if (!address || !*address)
		address = node->name;
	colon = strrchr(address, ':');
	if (!colon || strcmp(colon, ":0")) {
		int64_t given = 0;

		*port = colon && str_to_i64(str_from(colon + 1), &given) ? (unsigned)given : 0;
		return mem_strdup(address);
	}
	*port = net->next_port++;
	return mem_printf("%.*s:%u", (int)(colon - address), address, *port);
}

static int loop_transport_serve(struct transport *t, const char *address, transport_serve_fn *serve,
	void *arg, struct transport_server **out)
{
	struct loop_node *node = container_of(t, struct loop_node, base);
	struct transport_server *server;
	unsigned port;
	char *own = own_address(node->net, node, address, &port);

	list_each (it, &node->net->nodes) {
		list_each (jt, &list_entry(it, struct loop_node, link)->servers) {
			if (!strcmp(list_entry(jt, struct transport_server, link)->address, own)) {
				free(own);
				return -EADDRINUSE;
			}
		}
	}
	server = mem_alloc(sizeof(*server));
	server->net = node->net;
	server->node = node;
	server->address = own;
	server->port = port;
	server->serve = serve;
	server->arg = arg;
	list_init(&server->requests);
	list_add_tail(&node->servers, &server->link);
	*out = server;
	return 0;
}

/* Nobody answers here any more: the callers learn it after the delay, the handlers at once. */
static void server_silence(struct transport_server *server)
{
	struct list *first;

	list_del(&server->link);
	server->node = NULL;
	while ((first = list_first(&server->requests))) {
		struct transport_request *request =
			list_entry(first, struct transport_request, link);

		send_control(server->net, request->conn, MESSAGE_BROKEN);
		request_go(request);
	}
}

static void loop_transport_server_free(struct transport_server *server)
{
	if (!server)
		return;
	if (server->node)
		server_silence(server);
	free(server->address);
	free(server);
}

static unsigned loop_transport_server_port(const struct transport_server *server)
{
	return server->port;
}

/* --- arrivals --------------------------------------------------------------------------------------------------- */

static void arrive_request(struct loop_net *net, struct message *m)
{
	struct conn *conn = m->conn;
	struct transport_server *server = find_server(net, conn->address);
	struct transport_request *request;

	if (!server) {
		send_control(net, conn, MESSAGE_REFUSED);
		return;
	}
	request = mem_alloc(sizeof(*request));
	request->server = server;
	request->conn = conn;
	conn->refs++;
	list_add_tail(&server->requests, &request->link);
	list_add_tail(&conn->requests, &request->conn_link);
	buf_add_str(&request->body, buf_str(&conn->body));
	server->serve(server->arg, request, str_from(conn->method), buf_str(&request->body));
}

static void arrive_reply(struct loop_net *net, struct message *m)
{
	const struct transport_reply reply = {
		.failure = TRANSPORT_OK, .status = m->status, .body = buf_str(&m->body)};

	if (m->conn->call)
		call_finish(m->conn->call, &reply);
}

static void arrive_close(struct loop_net *net, struct message *m)
{
	struct list *first;

	while ((first = list_first(&m->conn->requests)))
		request_go(list_entry(first, struct transport_request, conn_link));
}

static void arrive_broken(struct loop_net *net, struct message *m)
{
	if (m->conn->call)
		call_fail(m->conn->call, TRANSPORT_BROKEN);
}

static void arrive_refused(struct loop_net *net, struct message *m)
{
	if (m->conn->call)
		call_fail(m->conn->call, TRANSPORT_REFUSED);
}

static void on_arrival(void *arg)
{
	static void (*const rows[])(struct loop_net * net, struct message * m) = {
		[MESSAGE_REQUEST] = arrive_request,
		[MESSAGE_REPLY] = arrive_reply,
		[MESSAGE_CLOSE] = arrive_close,
		[MESSAGE_BROKEN] = arrive_broken,
		[MESSAGE_REFUSED] = arrive_refused,
	};
	struct message *m = arg;

	/* Off the list first: what it causes may free the whole net. */
	list_del(&m->link);
	if (!find_cut(m->net, m->conn->from, m->conn->to))
		rows[m->kind](m->net, m);
	message_free(m);
}

/* --- nodes ------------------------------------------------------------------------------------------------------- */

static void loop_transport_free(struct transport *t)
{
	struct loop_node *node = container_of(t, struct loop_node, base);
	struct list *first;

	while ((first = list_first(&node->calls)))
		call_bury(list_entry(first, struct loop_call, link));
	while ((first = list_first(&node->servers)))
		server_silence(list_entry(first, struct transport_server, link));
	list_del(&node->link);
	free(node->name);
	free(node);
}

static const struct transport_ops loop_ops = {
	.name = "loop",
	.call = loop_transport_call,
	.serve = loop_transport_serve,
	.server_free = loop_transport_server_free,
	.server_port = loop_transport_server_port,
	.reply = loop_transport_reply,
	.on_gone = loop_transport_on_gone,
	.drop = loop_transport_drop,
	.free = loop_transport_free,
};

struct transport *transport_loop_new(struct loop_net *net, const char *name)
{
	struct loop_node *node = mem_alloc(sizeof(*node));

	node->base.ops = &loop_ops;
	node->net = net;
	node->name = mem_strdup(name);
	list_init(&node->calls);
	list_init(&node->servers);
	list_add_tail(&net->nodes, &node->link);
	return &node->base;
}

/* --- the net ------------------------------------------------------------------------------------------------------ */

struct loop_net *loop_net_new(struct loop *loop, const struct loop_net_options *options)
{
	struct loop_net *net = mem_alloc(sizeof(*net));

	net->loop = loop;
	net->next_port = FIRST_PORT;
	list_init(&net->nodes);
	list_init(&net->messages);
	list_init(&net->cuts);
	list_init(&net->graveyard);
	if (options)
		net->options = *options;
	return net;
}

void loop_net_set(struct loop_net *net, const struct loop_net_options *options)
{
	net->options = *options;
}

void loop_net_set_fate(struct loop_net *net, loop_net_fate_fn *fn, void *arg)
{
	net->fate = fn;
	net->fate_arg = arg;
}

static void cut_free(struct cut *cut)
{
	list_del(&cut->link);
	free(cut->a);
	free(cut->b);
	free(cut);
}

void loop_net_cut(struct loop_net *net, const char *a, const char *b, bool is_cut)
{
	struct cut *cut = find_cut(net, a, b);

	if (cut && !is_cut)
		cut_free(cut);
	if (cut || !is_cut)
		return;
	cut = mem_alloc(sizeof(*cut));
	cut->a = mem_strdup(a);
	cut->b = mem_strdup(b);
	list_add_tail(&net->cuts, &cut->link);
}

void loop_net_free(struct loop_net *net)
{
	struct list *first;

	if (!net)
		return;
	CHECK(list_is_empty(&net->nodes));
	while ((first = list_first(&net->messages)))
		message_free(list_entry(first, struct message, link));
	while ((first = list_first(&net->graveyard)))
		call_free(list_entry(first, struct loop_call, link));
	while ((first = list_first(&net->cuts)))
		cut_free(list_entry(first, struct cut, link));
	free(net);
}
