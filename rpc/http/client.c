/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http/client - HTTP/1.1 client on evhttp.
 *
 * A `pending` is one call, from http_client_call() to its callback or cancel. A `peer` is one address: its idle
 * connections, its busy ones, and the calls waiting in line for one. A `link` is one connection (an evhttp_connection)
 * with at most one request in flight, because evhttp would let further ones wait behind a hung server in turn.
 *
 * - Time is ours: one timer a call covers waiting in line, connecting and the whole exchange; evhttp's own timeouts count
 *   silence and are set out of the way. When the connect deadline passes, the timer asks the socket whether it is connected.
 * - A call that is cancelled, late or broken takes its connection with it: whatever still arrives there belongs to nobody. The
 *   server sees the connection close.
 * - evhttp calls us from deep inside a connection, which must not be freed there: a link whose `calling` is set is freed after
 *   the turn. It also goes back to the idle ones only when the callback has returned.
 * - evhttp may call back from inside evhttp_make_request() (no descriptors left): then the outcome is kept and told from the timer.
 * - With TLS a connection is evhttp's all the same, over an encrypting bufferevent, which serves for one connection: it is not
 *   connected again. The name is checked by OpenSSL as part of the handshake.
 * - An idle connection that the server closes is noticed through the close callback and dropped. If the close crosses our next request,
 *   the reply is broken and `stale` says that this may be why.
 */
/* First: it includes OpenSSL, in which `unused` is a name and not yet our attribute. */
#include "rpc/http/tls_int.h"

#include "rpc/http/client.h"

#include <errno.h>
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>

#include "reactor/base/clock.h"
#include "reactor/base/list.h"
#include "reactor/base/log.h"
#include "reactor/base/map.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/timer.h"
#include "rpc/http/address.h"

#define CONNECTIONS_MAX 64
#define WAITING_MAX 1024
#define BODY_MAX (INT64_C(256) << 20)
#define CONNECT_TIMEOUT_US (2 * US_PER_S)
#define HEADER_BYTES_MAX 65536
#define WRITE_BYTES ((size_t)1 << 20) /* at once; the default of 16 KiB is a turn each */
/* A silent cut is found within this: unacknowledged data, or keepalive probes (1 s x 3) without an answer. */
#define CUT_MS 4000

struct http_client {
	struct loop *loop;
	struct http_client_options options;
	struct map peers; /* address -> struct peer */
};

struct peer {
	struct http_client *client;
	struct http_address address;
	struct list idle, busy, waiting; /* links, links, pendings */
	unsigned n_links, n_waiting;
};

struct link {
	struct list link; /* peer->idle or peer->busy; unlinked once dead */
	struct peer *peer;
	struct evhttp_connection *ev;
	SSL *ssl;                /* ev's; NULL = plain */
	struct pending *pending; /* NULL when idle */
	bool tuned;              /* the socket has our options */
	bool used;               /* has brought a whole reply: kept alive since */
	bool calling;            /* inside the owner's callback */
};

struct pending {
	struct op op;
	struct peer *peer;
	struct list link;               /* peer->waiting while in line */
	struct link *on;                /* the connection, once it has one */
	struct evhttp_request *request; /* ours while in line, evhttp's after */
	enum evhttp_cmd_type method;
	char *path;
	struct timer timer;
	int64_t deadline_us;
	bool fresh;
	bool kept;      /* the connection had brought a reply before this call */
	bool starting;  /* inside evhttp_make_request() */
	bool connected; /* as far as we have looked */
	bool answering; /* the reply's header has come */
	enum evhttp_request_error error;
	bool has_error;
	bool failed_early;
	http_reply_fn *cb;
	void (*on_piece)(void *arg, struct str piece);
	void *arg;
};

static void peer_start_waiting(struct peer *peer);

/* --- connections --------------------------------------------------------------------------------------------- */

static void link_free(void *arg)
{
	struct link *link = arg;

	evhttp_connection_set_closecb(link->ev, NULL, NULL);
	evhttp_connection_free(link->ev);
	free(link);
}

static void link_kill(struct link *link)
{
	struct loop *loop = link->peer->client->loop;

	list_del(&link->link);
	link->peer->n_links--;
	link->pending = NULL;
	if (link->calling)
		loop_free_later(loop, link_free, link);
	else
		link_free(link);
}

/* The socket is closed, by whomever: its options are gone with it, and an idle link is of no more use. */
static void on_link_closed(struct evhttp_connection *ev, void *arg)
{
	struct link *link = arg;

	link->tuned = false;
	link->used = false;
	if (link->pending || link->calling || !list_is_linked(&link->link))
		return;
	link->calling = true; /* we are inside evhttp */
	link_kill(link);
}

/* Who must be at the other end. */
static void expect_name(SSL *ssl, const char *name)
{
	struct in6_addr ip;
	X509_VERIFY_PARAM *param = SSL_get0_param(ssl);

	if (inet_pton(AF_INET, name, &ip) == 1 || inet_pton(AF_INET6, name, &ip) == 1) {
		CHECK(X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1);
		return;
	}
	CHECK(SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1);
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
}

static struct evhttp_connection *connection_new(struct peer *peer, SSL **ssl)
{
	struct http_client *client = peer->client;
	struct event_base *base = loop_event_base(client->loop);
	struct bufferevent *bev = NULL;

	*ssl = NULL;
	if (client->options.tls) {
		*ssl = SSL_new(client->options.tls->ctx);
		if (!*ssl)
			return NULL;
		expect_name(*ssl, client->options.tls_name);
		bev = bufferevent_openssl_socket_new(
			base, -1, *ssl, BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
		if (!bev) {
			SSL_free(*ssl);
			return NULL;
		}
	}
	return evhttp_connection_base_bufferevent_new(
		base, NULL, bev, peer->address.host, (uint16_t)peer->address.port);
}

static struct link *link_new(struct peer *peer)
{
	struct http_client *client = peer->client;
	const struct timeval never = {.tv_sec = 30 * 24 * 3600};
	SSL *ssl;
	struct evhttp_connection *ev = connection_new(peer, &ssl);
	struct link *link;

	if (!ev)
		return NULL;
	link = mem_alloc(sizeof(*link));
	list_init(&link->link);
	link->peer = peer;
	link->ev = ev;
	link->ssl = ssl;
	peer->n_links++;
	evhttp_connection_set_timeout_tv(ev, &never);
	evhttp_connection_set_retries(ev, 0);
	bufferevent_set_max_single_write(evhttp_connection_get_bufferevent(ev), WRITE_BYTES);
	evhttp_connection_set_max_headers_size(ev, HEADER_BYTES_MAX);
	evhttp_connection_set_max_body_size(ev, client->options.body_max);
	evhttp_connection_set_closecb(ev, on_link_closed, link);
	return link;
}

static int link_fd(const struct link *link)
{
	return bufferevent_getfd(evhttp_connection_get_bufferevent(link->ev));
}

static void link_tune(struct link *link)
{
	const struct {
		int level, name, value;
	} rows[] = {
		{IPPROTO_TCP, TCP_NODELAY, 1},
		{SOL_SOCKET, SO_KEEPALIVE, 1},
		{IPPROTO_TCP, TCP_KEEPIDLE, 1},
		{IPPROTO_TCP, TCP_KEEPINTVL, 1},
		{IPPROTO_TCP, TCP_KEEPCNT, 3},
		{IPPROTO_TCP, TCP_USER_TIMEOUT, CUT_MS},
	};
	int fd = link_fd(link);

	if (link->tuned || fd < 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		setsockopt(fd, rows[i].level, rows[i].name, &rows[i].value, sizeof(rows[i].value));
	link->tuned = true;
}

static bool link_is_connected(const struct link *link)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	int fd = link_fd(link);

	return fd >= 0 && getpeername(fd, (struct sockaddr *)&ss, &len) == 0;
}

/* --- the end of a call ------------------------------------------------------------------------------------------ */

static void pending_free(struct pending *p)
{
	timer_stop(&p->timer);
	if (list_is_linked(&p->link)) {
		list_del(&p->link);
		p->peer->n_waiting--;
	}
	if (p->request && !p->on)
		evhttp_request_free(p->request);
	free(p->path);
	free(p);
}

/* The connection, if any, goes too. */
static void pending_fail_why(
	struct pending *p, enum http_failure failure, bool stale, const char *why)
{
	const struct http_reply reply = {.failure = failure, .stale = stale, .why = why};
	struct peer *peer = p->peer;
	http_reply_fn *cb = p->cb;
	void *arg = p->arg;

	if (p->on)
		link_kill(p->on);
	pending_free(p);
	peer_start_waiting(peer);
	cb(arg, &reply);
}

static void pending_fail(struct pending *p, enum http_failure failure, bool stale)
{
	pending_fail_why(p, failure, stale, NULL);
}

static void pending_cancel(struct op *op)
{
	struct pending *p = container_of(op, struct pending, op);
	struct peer *peer = p->peer;

	if (p->on)
		link_kill(p->on);
	pending_free(p);
	peer_start_waiting(peer);
}

static void on_timer(void *arg)
{
	struct pending *p = arg;
	int64_t now_us = loop_now_us(p->peer->client->loop);

	if (p->failed_early) {
		pending_fail(p, HTTP_REFUSED, false);
		return;
	}
	if (now_us >= p->deadline_us) {
		pending_fail(p, HTTP_TIMEOUT, false);
		return;
	}
	p->connected = p->connected || (p->on && link_is_connected(p->on));
	if (p->on && !p->connected) {
		pending_fail(p, HTTP_REFUSED, false);
		return;
	}
	timer_start_at(&p->timer, p->deadline_us);
}

/* --- what evhttp says ----------------------------------------------------------------------------------------------- */

/* evhttp drops each piece when this returns. */
static void on_chunk(struct evhttp_request *request, void *arg)
{
	struct pending *p = arg;
	struct evbuffer *in = evhttp_request_get_input_buffer(request);
	size_t n = evbuffer_get_length(in);

	if (n)
		p->on_piece(p->arg, (struct str){(const char *)evbuffer_pullup(in, -1), n});
}

static int on_header(struct evhttp_request *request, void *arg)
{
	struct pending *p = arg;

	p->answering = true;
	if (p->on_piece && evhttp_request_get_response_code(request) / 100 == 2)
		evhttp_request_set_chunked_cb(request, on_chunk);
	return 0;
}

static void on_error(enum evhttp_request_error error, void *arg)
{
	struct pending *p = arg;

	p->error = error;
	p->has_error = true;
}

static void fill_reply(struct evhttp_request *request, struct http_reply *reply)
{
	struct evbuffer *in = evhttp_request_get_input_buffer(request);
	const char *type =
		evhttp_find_header(evhttp_request_get_input_headers(request), "Content-Type");
	size_t n = evbuffer_get_length(in);

	reply->failure = HTTP_OK_REPLY;
	reply->status = evhttp_request_get_response_code(request);
	reply->content_type = str_from(type);
	reply->body = n ? (struct str){(const char *)evbuffer_pullup(in, -1), n} : STR("");
}

/* A whole reply: the connection is kept, but not before the owner has seen what it brought. */
static void pending_succeed(struct pending *p, struct evhttp_request *request)
{
	struct link *link = p->on;
	struct peer *peer = p->peer;
	struct http_reply reply = {0};
	http_reply_fn *cb = p->cb;
	void *arg = p->arg;

	fill_reply(request, &reply);
	link->pending = NULL;
	link->used = link->tuned; /* unless the reply ended the connection */
	link->calling = true;
	p->request = NULL;
	pending_free(p);
	cb(arg, &reply);
	link->calling = false;
	if (!list_is_linked(&link->link))
		return;                 /* the client was freed: the link goes after this turn */
	if (link->ssl && !link->used) { /* evhttp would connect again with what has ended */
		link->calling = true;
		link_kill(link);
	} else {
		list_del(&link->link);
		list_add_head(&peer->idle, &link->link);
	}
	peer_start_waiting(peer);
}

static enum http_failure failure_of(const struct pending *p, const struct evhttp_request *request)
{
	if (request && !p->has_error)
		return HTTP_REFUSED; /* code 0: the connect failed */
	if (p->has_error && p->error == EVREQ_HTTP_DATA_TOO_LONG)
		return HTTP_TOO_LARGE;
	return HTTP_BROKEN;
}

/* Why there is no TLS, or NULL: then it is not for that. */
static const char *tls_problem(const struct link *link)
{
	unsigned long error;
	long verified;

	if (!link->ssl || SSL_is_init_finished(link->ssl))
		return NULL;
	verified = SSL_get_verify_result(link->ssl);
	if (verified != X509_V_OK)
		return X509_verify_cert_error_string(verified);
	error = bufferevent_get_openssl_error(evhttp_connection_get_bufferevent(link->ev));
	return error ? ERR_reason_error_string(error) : NULL;
}

static void on_done(struct evhttp_request *request, void *arg)
{
	struct pending *p = arg;
	struct link *link = p->on;
	const char *why;
	enum http_failure failure;

	p->request = NULL; /* evhttp frees it */
	if (p->starting) {
		p->failed_early = true;
		timer_start(&p->timer, 0);
		return;
	}
	if (request && evhttp_request_get_response_code(request)) {
		pending_succeed(p, request);
		return;
	}
	why = tls_problem(link);
	failure = why ? HTTP_UNTRUSTED : failure_of(p, request);
	link->calling = true;
	if (why)
		pending_fail_why(p, failure, false, why);
	else
		pending_fail(p, failure, failure == HTTP_BROKEN && p->kept && !p->answering);
}

/* --- starting a call --------------------------------------------------------------------------------------------------- */

static void pending_start(struct pending *p, struct link *link)
{
	struct peer *peer = p->peer;
	int64_t connect_us =
		loop_now_us(peer->client->loop) + peer->client->options.connect_timeout_us;
	int r;

	if (list_is_linked(&p->link)) {
		list_del(&p->link);
		peer->n_waiting--;
	}
	list_del(&link->link);
	list_add_tail(&peer->busy, &link->link);
	link->pending = p;
	p->on = link;
	p->connected = link->tuned;
	p->kept = link->used;
	p->starting = true;
	/* From here on the request is evhttp's. */
	r = evhttp_make_request(link->ev, p->request, p->method, p->path);
	p->starting = false;
	if (r || p->failed_early) {
		p->failed_early = true;
		timer_start(&p->timer, 0);
		return;
	}
	link_tune(link);
	timer_start_at(&p->timer,
		!p->connected && connect_us < p->deadline_us ? connect_us : p->deadline_us);
}

/* A connection for p, or NULL when all are busy. */
static struct link *peer_take_link(struct peer *peer, bool fresh)
{
	struct list *idle = list_first(&peer->idle);

	if (idle && !fresh)
		return list_entry(idle, struct link, link);
	if (peer->n_links < peer->client->options.connections_max)
		return link_new(peer);
	if (!idle)
		return NULL;
	link_kill(list_entry(
		peer->idle.prev, struct link, link)); /* the one idle longest makes room */
	return link_new(peer);
}

static void peer_start_waiting(struct peer *peer)
{
	struct list *first;

	while ((first = list_first(&peer->waiting))) {
		struct pending *p = list_entry(first, struct pending, link);
		struct link *link = peer_take_link(peer, p->fresh);

		if (!link)
			return;
		pending_start(p, link);
	}
}

static bool method_parse(const char *name, enum evhttp_cmd_type *out)
{
	static const struct {
		const char *name;
		enum evhttp_cmd_type type;
	} rows[] = {
		{"DELETE", EVHTTP_REQ_DELETE},
		{"GET", EVHTTP_REQ_GET},
		{"POST", EVHTTP_REQ_POST},
		{"PUT", EVHTTP_REQ_PUT},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (!strcmp(rows[i].name, name)) {
			*out = rows[i].type;
			return true;
		}
	}
	return false;
}

static struct peer *client_peer(struct http_client *client, const char *address)
{
	struct peer *peer = map_get(&client->peers, str_from(address));
	struct http_address parsed;

	if (peer)
		return peer;
	if (!http_address_parse(address, &parsed) || !parsed.port)
		return NULL;
	peer = mem_alloc(sizeof(*peer));
	peer->client = client;
	peer->address = parsed;
	list_init(&peer->idle);
	list_init(&peer->busy);
	list_init(&peer->waiting);
	map_set(&client->peers, str_from(address), peer);
	return peer;
}

static struct evhttp_request *build_request(struct pending *p, const struct http_call *call)
{
	struct evhttp_request *request = evhttp_request_new(on_done, p);
	struct evkeyvalq *headers;
	char length[24];

	CHECK(request);
	headers = evhttp_request_get_output_headers(request);
	evhttp_request_set_error_cb(request, on_error);
	evhttp_request_set_header_cb(request, on_header);
	for (unsigned i = 0; i < call->n_headers; i++)
		evhttp_add_header(headers, call->headers[i].name, call->headers[i].value);
	if (!evhttp_find_header(headers, "Host"))
		evhttp_add_header(headers, "Host", call->address);
	if (!call->body.n)
		return request;
	/* evhttp adds the length of POST and PUT only, but sends the body of any method. */
	snprintf(length, sizeof(length), "%zu", call->body.n);
	evhttp_add_header(headers, "Content-Length", length);
	evbuffer_add(evhttp_request_get_output_buffer(request), call->body.p, call->body.n);
	return request;
}

int http_client_call(struct http_client *client, const struct http_call *call, http_reply_fn *cb,
	void *arg, struct op **op)
{
	struct peer *peer = client_peer(client, call->address);
	enum evhttp_cmd_type method;
	struct pending *p;
	struct link *link;

	if (!peer || !method_parse(call->method, &method))
		return -EINVAL;
	link = list_is_empty(&peer->waiting) ? peer_take_link(peer, call->fresh) : NULL;
	if (!link && peer->n_waiting >= client->options.waiting_max)
		return -EAGAIN;
	p = mem_alloc(sizeof(*p));
	p->op.cancel = pending_cancel;
	p->peer = peer;
	list_init(&p->link);
	p->method = method;
	p->path = mem_strdup(call->path);
	p->fresh = call->fresh;
	p->cb = cb;
	p->on_piece = call->on_piece;
	p->arg = arg;
	p->request = build_request(p, call);
	p->deadline_us = loop_now_us(client->loop) + call->timeout_us;
	timer_init(&p->timer, client->loop, on_timer, p);
	*op = &p->op;
	if (link) {
		pending_start(p, link);
		return 0;
	}
	list_add_tail(&peer->waiting, &p->link);
	peer->n_waiting++;
	timer_start_at(&p->timer, p->deadline_us);
	return 0;
}

/* --- the client's life ----------------------------------------------------------------------------------------------------- */

struct http_client *http_client_new(struct loop *loop, const struct http_client_options *options)
{
	struct http_client *client = mem_alloc(sizeof(*client));
	struct http_client_options *o = &client->options;

	signal(SIGPIPE, SIG_IGN);
	client->loop = loop;
	if (options)
		*o = *options;
	o->connections_max = o->connections_max ? o->connections_max : CONNECTIONS_MAX;
	o->waiting_max = o->waiting_max ? o->waiting_max : WAITING_MAX;
	o->body_max = o->body_max ? o->body_max : BODY_MAX;
	o->connect_timeout_us = o->connect_timeout_us ? o->connect_timeout_us : CONNECT_TIMEOUT_US;
	map_init(&client->peers);
	return client;
}

static void client_destroy(void *arg)
{
	struct http_client *client = arg;

	map_each (it, &client->peers)
		free(map_entry_of(it)->value);
	map_fini(&client->peers);
	free(client);
}

static void peer_close(struct peer *peer)
{
	struct list *first;

	while ((first = list_first(&peer->waiting)))
		pending_free(list_entry(first, struct pending, link));
	while ((first = list_first(&peer->busy))) {
		struct link *link = list_entry(first, struct link, link);
		struct pending *p = link->pending;

		link_kill(link);
		if (p)
			pending_free(p);
	}
	while ((first = list_first(&peer->idle)))
		link_kill(list_entry(first, struct link, link));
}

void http_client_free(struct http_client *client)
{
	if (!client)
		return;
	map_each (it, &client->peers)
		peer_close(map_entry_of(it)->value);
	/* We may be inside a reply's callback, which still looks at its peer. */
	loop_free_later(client->loop, client_destroy, client);
}
