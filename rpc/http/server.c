/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http/server - HTTP/1.1 on libevhtp, with what that library leaves open closed here.
 *
 * A `conn` is one accepted connection, a `listener` one address (an evhtp_t each, because that library's listener is
 * one per context). A connection has at most one request at a time, embedded in it: no pipelining. The states:
 *
 *     IDLE ──first byte────▶ HEADER ──headers──▶ BODY ──whole──▶ READY ──end of turn──▶ WAITING ──reply──▶ REPLIED
 *      ▲                                           │  refused                                                 │
 *      └──────────── flushed, keep-alive ──────────│──────────────────────────────────────────────────────────┘
 *                                                  ▼
 *                                               LINGER (answered; what still comes is read and dropped)
 *
 * What the library's traps ask for:
 * - Its hooks run deep inside its parser, where neither the request nor the connection may be freed. So a whole
 *   request only becomes READY there, and the handler is called at the end of the turn; by then the parser has also
 *   given back its input, and whatever is left in it is a second request sent early. Such a connection gets its one
 *   answer with `Connection: close`, since the library would get stuck on the rest.
 * - A refusal from a hook does not stop the parser, so it is paused as well. The answer is written at once, with `Connection:
 *   close`, our side is shut down, and what still comes is dropped until the client or LINGER_US ends. Closing at once instead would
 *   reset the connection under a client that is still sending, and it would never read why.
 * - The library's request buffer stays empty: the body goes into our own block, within the limit. (A form body left in
 *   its buffer would be parsed on the stack, whatever its size.) What all blocks of a server hold is counted where one grows
 *   or goes (body_resize), so that many bodies within the limit cannot take all memory either.
 * - The library's read timeout counts silence and runs while a client waits, so it is not used: each state has its own
 *   deadline, from its row. Only its write timeout is, for clients that do not read their answer.
 * - Without evhtp_request_pause() the library keeps reading while a client waits, so a client that leaves (or only shuts
 *   its sending side) is noticed at once: it is "gone". What is sent early meanwhile would make the library drop the connection,
 *   so from a whole message to its answer our own read callback, which is before the library's, drops it.
 * - A socket that is closed over bytes nobody has read is reset, and a reset takes the answer from a client that has not read it
 *   yet. So a connection that is to end and has had such bytes ends by LINGER.
 * - The library tells of a request only when its path is whole. What starts the header's deadline is the first byte.
 *
 * An answer is one writev() of header and body straight to the socket; only what the socket does not take is copied.
 */
/* First: it pulls in OpenSSL's headers, in which `unused` is a name and not yet our attribute. */
#include <evhtp/evhtp.h>

#include "rpc/http/server.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <arpa/inet.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>

#include "reactor/base/buf.h"
#include "reactor/base/clock.h"
#include "reactor/base/list.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/timer.h"
#include "rpc/codec.h"
#include "rpc/http/address.h"

#define CONNECTIONS_MAX 20000
#define OVERLOAD_EXTRA 256 /* connections over the maximum that still hear their 503 */
#define BACKLOG 4096
#define LINGER_US (2 * US_PER_S)
#define WRITE_TIMEOUT_S 30
#define ACCEPT_PAUSE_US (100 * US_PER_MS)
#define BODY_KEEP 4096 /* a larger block is given back after the request */
#define BODIES_MAX (INT64_C(1) << 30)
#define RETRY_AFTER_S "1"
#define WRITE_BYTES ((size_t)1 << 20) /* at once; the default of 16 KiB is a turn each */
#define LINGER_BYTES ((uint64_t)64 << 20)

enum conn_state {
	CONN_IDLE,
	CONN_HEADER,
	CONN_BODY,
	CONN_READY,
	CONN_WAITING,
	CONN_REPLIED,
	CONN_LINGER,
	CONN_CLOSING, /* the library is letting go of it */
};

struct http_request {
	evhtp_request_t *ev;
	unsigned n_headers;
	size_t header_bytes;
	char *body;
	size_t body_len, body_cap;
	struct buf extra; /* response headers */
	http_gone_fn *gone;
	void *gone_arg;
};

struct conn {
	struct http_server *server;
	struct list link;
	evhtp_connection_t *ev; /* NULL once the library has let go of it */
	enum conn_state state;
	bool overload;    /* over connections_max: its first request hears 503 */
	bool dropping;    /* what comes is not read as HTTP */
	uint64_t dropped; /* bytes behind a message; then the connection ends with its answer */
	bufferevent_data_cb parse; /* the library's read callback, behind ours */
	struct timer timer;
	int64_t deadline_us; /* the timer may be armed for earlier and then looks again */
	struct defer run;
	struct http_request request;
	char peer[64];
};

struct listener {
	struct list link;
	struct http_server *server;
	evhtp_t *htp;
	unsigned port;
	struct timer resume; /* after accept() failed for want of descriptors */
};

struct http_server {
	struct loop *loop;
	struct http_server_options options;
	struct list listeners, conns;
	unsigned n_conns, n_open;
	uint64_t body_bytes; /* sum of body_cap */
	unsigned depth;      /* user's functions being called from inside the library */
	bool dead, stopping;
	struct buf head; /* scratch */
	int64_t date_s;
	char date[40];
};

static void on_conn_timer(void *arg);

/* --- states ------------------------------------------------------------------------------------------------- */

static int64_t state_limit_us(const struct http_server *server, enum conn_state state)
{
	const int64_t limits[] = {
		[CONN_IDLE] = server->options.idle_timeout_us,
		[CONN_HEADER] = server->options.read_timeout_us,
		[CONN_BODY] = server->options.read_timeout_us,
		[CONN_READY] = INT64_MAX,
		[CONN_WAITING] = INT64_MAX, /* the handler answers, or the client goes */
		[CONN_REPLIED] = INT64_MAX, /* the write timeout */
		[CONN_LINGER] = LINGER_US,
		[CONN_CLOSING] = LINGER_US,
	};

	return limits[state];
}

static void conn_set_deadline(struct conn *conn, int64_t limit_us)
{
	if (limit_us == INT64_MAX) {
		conn->deadline_us = INT64_MAX;
		return;
	}
	conn->deadline_us = loop_now_us(conn->server->loop) + limit_us;
	if (!timer_is_armed(&conn->timer) || conn->timer.at_us > conn->deadline_us)
		timer_start_at(&conn->timer, conn->deadline_us);
}

/* The one place where a connection's state is assigned. */
static void conn_enter(struct conn *conn, enum conn_state state)
{
	bool was_open = conn->state == CONN_READY || conn->state == CONN_WAITING;
	bool is_open = state == CONN_READY || state == CONN_WAITING;

	conn->server->n_open += (unsigned)is_open - (unsigned)was_open;
	conn->state = state;
	conn_set_deadline(conn, state_limit_us(conn->server, state));
}

/* --- writing ------------------------------------------------------------------------------------------------- */

static struct bufferevent *conn_bev(const struct conn *conn)
{
	return evhtp_connection_get_bev(conn->ev);
}

static struct conn *conn_of(const evhtp_connection_t *ev)
{
	return ev->hooks->on_read_arg;
}

static bool conn_is_flushed(const struct conn *conn)
{
	return evbuffer_get_length(bufferevent_get_output(conn_bev(conn))) == 0;
}

/* Straight to the socket when nothing is queued before it; the rest through the library's buffer. */
static void conn_write(struct conn *conn, struct str head, struct str body)
{
	struct iovec iov[2] = {{(void *)head.p, head.n}, {(void *)body.p, body.n}};
	size_t written = 0;
	ssize_t n = 0;

	if (conn_is_flushed(conn)) {
		n = writev(conn->ev->sock, iov, body.n ? 2 : 1);
		/* A dead socket: the library is about to hear of it and frees the connection. */
		written = n > 0 ? (size_t)n : n < 0 && errno != EAGAIN ? head.n + body.n : 0;
	}
	if (written < head.n) {
		bufferevent_write(conn_bev(conn), head.p + written, head.n - written);
		written = head.n;
	}
	if (body.n && written < head.n + body.n)
		bufferevent_write(
			conn_bev(conn), body.p + (written - head.n), head.n + body.n - written);
}

static const char *server_date(struct http_server *server)
{
	time_t now = (time_t)(loop_wall_us(server->loop) / US_PER_S);
	struct tm tm;

	if (now != server->date_s || !server->date[0]) {
		server->date_s = now;
		gmtime_r(&now, &tm);
		strftime(server->date, sizeof(server->date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
	}
	return server->date;
}

static bool status_has_body(int status)
{
	return status >= 200 && status != 204 && status != 304;
}

static void build_head(struct conn *conn, int status, const char *type, size_t body_len, bool keep)
{
	struct buf *head = &conn->server->head;

	buf_clear(head);
	buf_addf(head, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, http_status_text(status),
		server_date(conn->server));
	if (type && status_has_body(status))
		buf_addf(head, "Content-Type: %s\r\n", type);
	if (status_has_body(status))
		buf_addf(head, "Content-Length: %zu\r\n", body_len);
	if (status == 401)
		buf_add_str(head, STR("WWW-Authenticate: Bearer\r\n"));
	if (!keep)
		buf_add_str(head, STR("Connection: close\r\n"));
	else if (conn->request.ev->proto == EVHTP_PROTO_10)
		buf_add_str(head, STR("Connection: keep-alive\r\n"));
	buf_add_str(head, buf_str(&conn->request.extra));
	buf_add_str(head, STR("\r\n"));
}

static void conn_answer(struct conn *conn, int status, const char *type, struct str body, bool keep)
{
	build_head(conn, status, type, body.n, keep);
	if (conn->request.ev->method == htp_method_HEAD || !status_has_body(status))
		body = STR_NULL;
	conn_write(conn, buf_str(&conn->server->head), body);
}

/* --- bodies -------------------------------------------------------------------------------------------------- */

/* The one place where a block grows or goes (cap 0). False when there is no memory. */
static bool body_resize(struct conn *conn, size_t cap)
{
	struct http_request *request = &conn->request;
	char *body = NULL;

	if (cap) {
		body = realloc(request->body, cap);
		if (!body)
			return false;
	} else {
		free(request->body);
		request->body_len = 0;
	}
	conn->server->body_bytes += cap;
	conn->server->body_bytes -= request->body_cap;
	request->body = body;
	request->body_cap = cap;
	return true;
}

static void body_drop(struct conn *conn)
{
	(void)body_resize(conn, 0);
}

static bool bodies_are_full(const struct conn *conn, size_t cap)
{
	const struct http_server_options *options = &conn->server->options;
	int64_t max = options->bodies_max;

	if (max < 2 * options->body_max)
		max = 2 * options->body_max; /* else a single body could be too many */
	return conn->server->body_bytes - conn->request.body_cap + cap > (uint64_t)max;
}

/* --- refusals ------------------------------------------------------------------------------------------------- */

static void conn_shut_sending(struct conn *conn)
{
	shutdown(conn->ev->sock, SHUT_WR);
}

/*
 * The library's pause as its parser sees it: with input left over behind this message it would otherwise "resume" what was never
 * paused, and print a line about it to stderr for every such request. Reading itself stays enabled, so that a client that leaves is noticed;
 * parser_go() ends the pause before anything else can happen to the connection but its end.
 */
static void parser_stop(struct conn *conn)
{
	conn->request.ev->status = EVHTP_RES_PAUSE;
	conn->ev->flags |= EVHTP_CONN_FLAG_PAUSED;
}

/* Answers a message that is not whole yet; what is left of it will be dropped. */
static void conn_refuse_text(struct conn *conn, int status, struct str problem)
{
	log_debug(
		conn->server->options.log, "http_refused", "peer=%s status=%d", conn->peer, status);
	conn_answer(conn, status, "application/problem+json", problem, false);
	body_drop(conn);
	conn_enter(conn, CONN_LINGER);
	if (conn_is_flushed(conn))
		conn_shut_sending(conn);
	parser_stop(conn);
	loop_defer(conn->server->loop, &conn->run);
}

static void conn_refuse(struct conn *conn, int status, const char *code, const char *detail)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct problem problem = {0};

	if (status == 503)
		http_request_add_header(&conn->request, "Retry-After", RETRY_AFTER_S);
	problem_set(&problem, status, code, "", "%s", detail);
	problem_write(&problem, &text);
	conn_refuse_text(conn, status, buf_str(&text));
}

/* --- one request, from its first byte: the library's hooks ----------------------------------------------------- */

static void request_clear(struct conn *conn)
{
	struct http_request *request = &conn->request;

	if (request->body_cap > BODY_KEEP)
		body_drop(conn);
	request->ev = NULL;
	request->n_headers = 0;
	request->header_bytes = 0;
	request->body_len = 0;
	if (request->extra.len)
		buf_fini(&request->extra);
	request->gone = NULL;
}

static void request_begin(struct conn *conn, evhtp_request_t *ev)
{
	bool is_first = conn->state == CONN_IDLE || conn->state == CONN_REPLIED;

	if (!is_first && (conn->state != CONN_HEADER || conn->request.ev))
		return;
	request_clear(conn);
	conn->request.ev = ev;
	if (is_first)
		conn_enter(conn, CONN_HEADER);
}

static evhtp_res hook_path(evhtp_request_t *ev, evhtp_path_t *path, void *arg)
{
	request_begin(arg, ev);
	return EVHTP_RES_OK;
}

static evhtp_res hook_header(evhtp_request_t *ev, evhtp_header_t *header, void *arg)
{
	struct conn *conn = arg;
	struct http_request *request = &conn->request;

	request_begin(conn, ev);
	request->n_headers++;
	request->header_bytes += header->klen + header->vlen + 4;
	/* The parser cannot be told to answer here, only to close. */
	if (request->n_headers > HTTP_HEADERS_MAX || request->header_bytes > HTTP_HEADER_BYTES_MAX)
		return EVHTP_RES_ERROR;
	return EVHTP_RES_OK;
}

struct framing {
	bool bad_name;
	unsigned lengths, encodings, hosts;
	const char *length, *encoding, *expect;
};

/* RFC 9112, 5.1: "Content-Length : 5" is a length for some readers and nothing for others. */
static bool name_is_token(const char *name)
{
	static const char others[] = "!#$%&'*+-.^_`|~";
	const char *p = name;

	while (isalnum((unsigned char)*p) || (*p && strchr(others, *p)))
		p++;
	return p != name && !*p;
}

static void read_framing(evhtp_headers_t *headers, struct framing *framing)
{
	const evhtp_header_t *header;

	for (header = headers->tqh_first; header; header = header->next.tqe_next) {
		if (!name_is_token(header->key))
			framing->bad_name = true;
		if (!strcasecmp(header->key, "Content-Length")) {
			framing->lengths++;
			framing->length = header->val;
		} else if (!strcasecmp(header->key, "Transfer-Encoding")) {
			framing->encodings++;
			framing->encoding = header->val;
		} else if (!strcasecmp(header->key, "Host")) {
			framing->hosts++;
		} else if (!strcasecmp(header->key, "Expect")) {
			framing->expect = header->val;
		}
	}
}

struct refusal {
	int status;
	const char *code, *detail;
};

/* What no handler may ever see: two readers could disagree where such a message ends. */
static bool framing_is_bad(const struct conn *conn, const struct framing *f, struct refusal *out)
{
	int64_t length = 0;
	bool length_ok =
		!f->length || (str_to_i64(str_trim(str_from(f->length)), &length) && length >= 0);

	if (htparser_get_major(conn->ev->parser) != 1)
		*out = (struct refusal){505, "version_unsupported", "HTTP/1.1 is spoken here"};
	else if (f->bad_name)
		*out = (struct refusal){400, "header_name_invalid",
			"a header's name is letters, digits and some marks, right before the "
			"colon"};
	else if (f->lengths > 1)
		*out = (struct refusal){
			400, "content_length_twice", "more than one Content-Length"};
	else if (f->lengths && f->encodings)
		*out = (struct refusal){
			400, "framing_ambiguous", "Content-Length and Transfer-Encoding together"};
	else if (!length_ok)
		*out = (struct refusal){
			400, "content_length_invalid", "Content-Length is not a number of bytes"};
	else if (f->encodings > 1 || (f->encodings && strcasecmp(f->encoding, "chunked") != 0))
		*out = (struct refusal){
			501, "transfer_encoding_unknown", "only chunked is understood"};
	else if (f->hosts > 1 || (!f->hosts && conn->request.ev->proto == EVHTP_PROTO_11))
		*out = (struct refusal){400, "host_missing", "exactly one Host header is needed"};
	else if (length > conn->server->options.body_max)
		*out = (struct refusal){
			413, "body_too_large", "the body is larger than this server accepts"};
	else
		return false;
	return true;
}

/* Asks the owner. True when the request has been refused. */
static bool owner_refuses(struct conn *conn)
{
	struct http_server *server = conn->server;
	struct str text = STR_NULL;
	int status;

	if (!server->options.on_headers)
		return false;
	server->depth++;
	status = server->options.on_headers(server->options.arg, &conn->request, &text);
	server->depth--;
	if (!status)
		return false;
	conn_refuse_text(conn, status, text);
	return true;
}

static evhtp_res hook_headers(evhtp_request_t *ev, evhtp_headers_t *headers, void *arg)
{
	struct conn *conn = arg;
	struct framing framing = {0};
	struct refusal refusal;

	request_begin(conn, ev);
	if (conn->server->dead)
		return EVHTP_RES_ERROR;
	read_framing(headers, &framing);
	conn_enter(conn, CONN_BODY);
	if (conn->overload)
		refusal = (struct refusal){
			503, "too_many_connections", "too many connections, try again later"};
	else if (!framing_is_bad(conn, &framing, &refusal))
		refusal.status = 0;
	if (refusal.status) {
		conn_refuse(conn, refusal.status, refusal.code, refusal.detail);
		return EVHTP_RES_OK;
	}
	if (owner_refuses(conn))
		return EVHTP_RES_OK;
	if (framing.expect && !strcasecmp(framing.expect, "100-continue"))
		conn_write(conn, STR("HTTP/1.1 100 Continue\r\n\r\n"), STR_NULL);
	return EVHTP_RES_OK;
}

/* Makes room for n more bytes of a body, or refuses it. */
static bool body_reserve(struct conn *conn, size_t n)
{
	struct http_request *request = &conn->request;
	size_t max = (size_t)conn->server->options.body_max;
	size_t need = request->body_len + n + 1, cap = request->body_cap ? request->body_cap : 512;

	if (request->body_len + n > max) {
		conn_refuse(
			conn, 413, "body_too_large", "the body is larger than this server accepts");
		return false;
	}
	if (need <= request->body_cap)
		return true;
	while (cap < need)
		cap *= 2;
	if (cap > max + 1)
		cap = max + 1; /* need is not more */
	if (bodies_are_full(conn, cap)) {
		conn_refuse(
			conn, 503, "busy", "too much is being sent here, try again in a moment");
		return false;
	}
	if (!body_resize(conn, cap)) {
		conn_refuse(conn, 503, "out_of_memory", "no memory for the body, try again later");
		return false;
	}
	return true;
}

static evhtp_res hook_read(evhtp_request_t *ev, struct evbuffer *buffer, void *arg)
{
	struct conn *conn = arg;
	struct http_request *request = &conn->request;
	size_t n = evbuffer_get_length(buffer);

	if (conn->state == CONN_BODY && body_reserve(conn, n)) {
		evbuffer_remove(buffer, request->body + request->body_len, n);
		request->body_len += n;
		request->body[request->body_len] = '\0';
	}
	evbuffer_drain(buffer, evbuffer_get_length(buffer));
	return EVHTP_RES_OK;
}

/* --- what comes from the client ---------------------------------------------------------------------------------- */

/* Of a body, for the library, whose limit is above ours; and of what is dropped. */
static uint64_t body_backstop(const struct http_server *server)
{
	return 2 * (uint64_t)server->options.body_max + LINGER_BYTES;
}

static void drop_input(struct conn *conn)
{
	struct evbuffer *input = bufferevent_get_input(conn_bev(conn));
	size_t n = evbuffer_get_length(input);

	conn->dropped += n;
	evbuffer_drain(input, n);
}

/* RFC 9112, 2.2: blank lines before a request are to be ignored. The library takes one byte of them at a time and then waits. */
static void skip_blank_lines(struct evbuffer *input)
{
	char c;

	while (evbuffer_copyout(input, &c, 1) == 1 && (c == '\r' || c == '\n'))
		evbuffer_drain(input, 1);
}

/* In the place of the library's, so with its argument. */
static void on_read(struct bufferevent *bev, void *arg)
{
	struct conn *conn = conn_of(arg);

	if (conn->dropping) {
		drop_input(conn);
		if (conn->dropped > body_backstop(conn->server))
			evhtp_connection_free(conn->ev);
		return;
	}
	if (conn->state == CONN_IDLE)
		conn_enter(conn, CONN_HEADER);
	if (!conn->request.ev)
		skip_blank_lines(bufferevent_get_input(bev));
	conn->parse(bev, arg);
}

static void put_on_read(struct conn *conn)
{
	struct bufferevent *bev = conn_bev(conn);
	bufferevent_data_cb write;
	bufferevent_event_cb event;
	void *arg;

	bufferevent_getcb(bev, &conn->parse, &write, &event, &arg);
	bufferevent_setcb(bev, on_read, write, event, arg);
}

static void on_message(evhtp_request_t *ev, void *arg)
{
	struct conn *conn = conn_of(ev->conn); /* the argument is the listener */

	if (conn->state != CONN_BODY)
		return;
	conn_enter(conn, CONN_READY);
	parser_stop(conn);
	loop_defer(conn->server->loop, &conn->run);
}

/* --- the end of the parser's turn ------------------------------------------------------------------------------------ */

/* False when the connection has ended meanwhile (the library does not free a paused one). */
static bool parser_go(struct conn *conn)
{
	conn->request.ev->status = EVHTP_RES_OK;
	conn->ev->flags = (uint16_t)(conn->ev->flags & ~EVHTP_CONN_FLAG_PAUSED);
	return !(conn->ev->flags & EVHTP_CONN_FLAG_FREE_CONN);
}

/* The message is whole, or it was refused. */
static void run_message(void *arg)
{
	struct conn *conn = arg;
	struct http_server *server = conn->server;

	if (!parser_go(conn)) {
		evhtp_connection_free(conn->ev);
		return;
	}
	conn->dropping = true;
	drop_input(conn);
	if (conn->state == CONN_LINGER) {
		if (conn_is_flushed(conn))
			conn_shut_sending(conn);
		return;
	}
	conn_enter(conn, CONN_WAITING);
	server->options.handler(server->options.arg, &conn->request);
}

static void conn_lose(struct conn *conn)
{
	http_gone_fn *gone = conn->request.gone;
	void *gone_arg = conn->request.gone_arg;
	bool told = conn->state == CONN_WAITING;

	defer_cancel(&conn->run);
	conn_enter(conn, CONN_CLOSING);
	conn->request.gone = NULL;
	if (!told || !gone)
		return;
	conn->server->depth++;
	gone(gone_arg);
	conn->server->depth--;
}

static bool conn_may_stay(const struct conn *conn)
{
	return (conn->request.ev->flags & EVHTP_REQ_FLAG_KEEPALIVE) && !conn->server->stopping &&
	       !conn->dropped;
}

static void conn_linger(struct conn *conn)
{
	conn_enter(conn, CONN_LINGER);
	conn_shut_sending(conn);
}

void http_request_reply(
	struct http_request *request, int status, const char *content_type, struct str body)
{
	struct conn *conn = container_of(request, struct conn, request);
	evhtp_request_t *ev = request->ev;
	bool keep = conn_may_stay(conn);

	CHECK(conn->state == CONN_WAITING);
	conn_answer(conn, status, content_type, body, keep);
	conn_enter(conn, CONN_REPLIED);
	if (conn->dropped) { /* the library's end would be at once */
		if (conn_is_flushed(conn))
			conn_linger(conn);
		return;
	}
	if (keep)
		conn->dropping = false;
	else
		ev->flags = (uint16_t)(ev->flags & ~EVHTP_REQ_FLAG_KEEPALIVE);
	ev->flags |= EVHTP_REQ_FLAG_FINISHED;
	/* Nothing left to write: the library's own end of a request, now. It frees the request, perhaps the connection. */
	if (conn_is_flushed(conn))
		bufferevent_trigger(conn_bev(conn), EV_WRITE, 0);
}

/* --- the end of requests and connections ---------------------------------------------------------------------------- */

static evhtp_res hook_request_fini(evhtp_request_t *ev, void *arg)
{
	struct conn *conn = arg;

	if (!conn->ev || conn->request.ev != ev)
		return EVHTP_RES_OK;
	if (conn->state != CONN_REPLIED)
		conn_lose(conn);
	request_clear(conn);
	if (conn->state == CONN_REPLIED)
		conn_enter(conn, CONN_IDLE);
	return EVHTP_RES_OK;
}

static void conn_free(void *arg)
{
	struct conn *conn = arg;

	buf_fini(&conn->request.extra);
	free(conn);
}

static evhtp_res hook_conn_fini(evhtp_connection_t *ev, void *arg)
{
	struct conn *conn = arg;
	struct http_server *server = conn->server;

	conn_lose(conn);
	timer_stop(&conn->timer);
	body_drop(conn);
	conn->ev = NULL;
	list_del(&conn->link);
	server->n_conns--;
	loop_free_later(server->loop, conn_free, conn);
	return EVHTP_RES_OK;
}

/* On an end of file the library looks at errno, which no call has set: a stale EAGAIN would make it read again, for ever. */
static void hook_event(evhtp_connection_t *ev, short events, void *arg)
{
	if (events & BEV_EVENT_EOF)
		errno = 0;
}

/* Output that was queued has left. */
static evhtp_res hook_write(evhtp_connection_t *ev, void *arg)
{
	struct conn *conn = arg;

	if (!conn_is_flushed(conn))
		return EVHTP_RES_OK;
	if (conn->state == CONN_LINGER)
		conn_shut_sending(conn);
	if (conn->state == CONN_REPLIED && conn->dropped)
		conn_linger(conn);
	return EVHTP_RES_OK;
}

static void on_conn_timer(void *arg)
{
	struct conn *conn = arg;

	if (conn->deadline_us > loop_now_us(conn->server->loop)) {
		if (conn->deadline_us != INT64_MAX)
			timer_start_at(&conn->timer, conn->deadline_us);
		return;
	}
	if (conn->state == CONN_BODY) {
		conn_refuse(conn, 408, "request_timeout", "the body did not come in time");
		return;
	}
	evhtp_connection_free(conn->ev);
}

/* --- accepting --------------------------------------------------------------------------------------------------------- */

static evhtp_res on_pre_accept(evhtp_connection_t *ev, void *arg)
{
	struct listener *listener = arg;
	struct http_server *server = listener->server;

	if (server->dead || server->n_conns >= server->options.connections_max + OVERLOAD_EXTRA)
		return EVHTP_RES_ERROR;
	return EVHTP_RES_OK;
}

static void set_hooks(struct conn *conn)
{
	const struct {
		evhtp_hook_type type;
		evhtp_hook fn;
	} rows[] = {
		{evhtp_hook_on_path, (evhtp_hook)hook_path},
		{evhtp_hook_on_header, (evhtp_hook)hook_header},
		{evhtp_hook_on_headers, (evhtp_hook)hook_headers},
		{evhtp_hook_on_read, (evhtp_hook)hook_read},
		{evhtp_hook_on_request_fini, (evhtp_hook)hook_request_fini},
		{evhtp_hook_on_connection_fini, (evhtp_hook)hook_conn_fini},
		{evhtp_hook_on_write, (evhtp_hook)hook_write},
		{evhtp_hook_on_event, (evhtp_hook)(void (*)(void))hook_event},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		CHECK(evhtp_connection_set_hook(conn->ev, rows[i].type, rows[i].fn, conn) == 0);
}

static void read_peer(const struct sockaddr *sa, char out[64])
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)sa;

		inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		snprintf(out, 64, "%s:%u", host, ntohs(in->sin_port));
	} else if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;

		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
		snprintf(out, 64, "[%s]:%u", host, ntohs(in6->sin6_port));
	}
}

static evhtp_res on_post_accept(evhtp_connection_t *ev, void *arg)
{
	struct listener *listener = arg;
	struct http_server *server = listener->server;
	struct conn *conn = mem_alloc(sizeof(*conn));
	int on = 1;

	conn->server = server;
	conn->ev = ev;
	conn->overload = server->n_conns >= server->options.connections_max;
	timer_init(&conn->timer, server->loop, on_conn_timer, conn);
	defer_init(&conn->run, run_message, conn);
	list_add_tail(&server->conns, &conn->link);
	server->n_conns++;
	setsockopt(ev->sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(ev->sock, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	fcntl(ev->sock, F_SETFD, FD_CLOEXEC);
	bufferevent_set_max_single_write(ev->bev, WRITE_BYTES);
	read_peer(ev->saddr, conn->peer);
	set_hooks(conn);
	put_on_read(conn);
	conn_enter(conn, CONN_IDLE);
	return EVHTP_RES_OK;
}

/* Out of descriptors: accepting again at once would spin. */
static void on_accept_error(struct evconnlistener *ev, void *arg)
{
	struct listener *listener = arg;

	log_warn(listener->server->options.log, "http_accept", "error=\"%s\"", strerror(errno));
	evconnlistener_disable(ev);
	timer_start(&listener->resume, ACCEPT_PAUSE_US);
}

static void on_accept_resume(void *arg)
{
	struct listener *listener = arg;

	if (listener->htp->server)
		evconnlistener_enable(listener->htp->server);
}

/* --- listening ------------------------------------------------------------------------------------------------------------ */

static int open_socket(const struct sockaddr *sa, socklen_t len)
{
	int on = 1, e;
	int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (sa->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(fd, sa, len) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	e = errno;
	close(fd);
	return -e;
}

static unsigned socket_port(int fd)
{
	struct sockaddr_storage ss = {0};
	socklen_t len = sizeof(ss);

	if (getsockname(fd, (struct sockaddr *)&ss, &len))
		return 0;
	if (ss.ss_family == AF_INET6)
		return ntohs(((struct sockaddr_in6 *)&ss)->sin6_port);
	return ntohs(((struct sockaddr_in *)&ss)->sin_port);
}

static void configure(struct listener *listener)
{
	evhtp_t *htp = listener->htp;
	const struct timeval write_timeout = {.tv_sec = WRITE_TIMEOUT_S};

	evhtp_set_bev_flags(htp, BEV_OPT_CLOSE_ON_FREE);
	evhtp_disable_flag(htp, EVHTP_FLAG_ENABLE_100_CONT); /* ours knows what is refused */
	evhtp_enable_flag(htp, EVHTP_FLAG_ENABLE_NODELAY);
	evhtp_set_timeouts(htp, NULL, &write_timeout);
	evhtp_set_max_body_size(htp, body_backstop(listener->server));
	evhtp_set_gencb(htp, on_message, listener);
	evhtp_set_pre_accept_cb(htp, on_pre_accept, listener);
	evhtp_set_post_accept_cb(htp, on_post_accept, listener);
	evconnlistener_set_error_cb(htp->server, on_accept_error);
}

static void listener_close(struct listener *listener)
{
	int fd;

	timer_stop(&listener->resume);
	if (!listener->htp->server)
		return;
	fd = evconnlistener_get_fd(listener->htp->server);
	evhtp_unbind_socket(listener->htp);
	/* Whether the library closes it depends on how it was given; never close another's descriptor. */
	if (fcntl(fd, F_GETFD) != -1)
		close(fd);
}

int http_server_listen(struct http_server *server, const char *address)
{
	struct http_address parsed;
	int fd;

	if (!http_address_parse(address, &parsed))
		return -EINVAL;
	fd = open_socket((struct sockaddr *)&parsed.sockaddr, parsed.len);
	if (fd < 0)
		return fd;
	http_server_listen_fd(server, fd);
	return 0;
}

void http_server_listen_fd(struct http_server *server, int fd)
{
	struct listener *listener = mem_alloc(sizeof(*listener));

	listener->server = server;
	listener->port = socket_port(fd);
	timer_init(&listener->resume, server->loop, on_accept_resume, listener);
	listener->htp = evhtp_new(loop_event_base(server->loop), NULL);
	CHECK(listener->htp);
	CHECK(evhtp_accept_socket(listener->htp, fd, BACKLOG) == 0);
	configure(listener);
	list_add_tail(&server->listeners, &listener->link);
}

int http_server_new(struct loop *loop, const char *address,
	const struct http_server_options *options, struct http_server **out)
{
	struct http_server *server = mem_alloc(sizeof(*server));
	int r;

	signal(SIGPIPE, SIG_IGN);
	server->loop = loop;
	server->options = *options;
	if (!server->options.connections_max)
		server->options.connections_max = CONNECTIONS_MAX;
	if (!server->options.bodies_max)
		server->options.bodies_max = BODIES_MAX;
	list_init(&server->listeners);
	list_init(&server->conns);
	r = address ? http_server_listen(server, address) : 0;
	if (r) {
		free(server);
		return r;
	}
	*out = server;
	return 0;
}

unsigned http_server_port(const struct http_server *server)
{
	if (list_is_empty(&server->listeners))
		return 0;
	return list_entry(server->listeners.next, struct listener, link)->port;
}

void http_server_set_limits(struct http_server *server, int64_t body_max, int64_t read_timeout_us)
{
	server->options.body_max = body_max;
	server->options.read_timeout_us = read_timeout_us;
	list_each (it, &server->listeners)
		evhtp_set_max_body_size(
			list_entry(it, struct listener, link)->htp, body_backstop(server));
	list_each (it, &server->conns)
		evhtp_connection_set_max_body_size(
			list_entry(it, struct conn, link)->ev, body_backstop(server));
}

void http_server_stop_accepting(struct http_server *server)
{
	server->stopping = true;
	list_each (it, &server->listeners)
		listener_close(list_entry(it, struct listener, link));
}

unsigned http_server_open_requests(const struct http_server *server)
{
	return server->n_open;
}

uint64_t http_server_body_bytes(const struct http_server *server)
{
	return server->body_bytes;
}

static void server_destroy(void *arg)
{
	struct http_server *server = arg;
	struct list *first;

	while ((first = list_first(&server->conns)))
		evhtp_connection_free(list_entry(first, struct conn, link)->ev);
	while ((first = list_first(&server->listeners))) {
		struct listener *listener = list_entry(first, struct listener, link);

		list_del(&listener->link);
		evhtp_free(listener->htp);
		free(listener);
	}
	buf_fini(&server->head);
	free(server);
}

void http_server_free(struct http_server *server)
{
	if (!server || server->dead)
		return;
	server->dead = true;
	http_server_stop_accepting(server);
	list_each_safe (it, &server->conns)
		conn_lose(list_entry(it, struct conn, link));
	if (server->depth)
		loop_free_later(server->loop, server_destroy, server);
	else
		server_destroy(server);
}

/* --- what a handler asks of a request ------------------------------------------------------------------------------------------ */

enum http_method http_request_method(const struct http_request *request)
{
	static const enum http_method map[] = {
		[htp_method_GET] = HTTP_GET,
		[htp_method_HEAD] = HTTP_HEAD,
		[htp_method_POST] = HTTP_POST,
		[htp_method_PUT] = HTTP_PUT,
		[htp_method_DELETE] = HTTP_DELETE,
		[htp_method_OPTIONS] = HTTP_OPTIONS,
	};
	htp_method method = request->ev->method;

	if (method == htp_method_GET)
		return HTTP_GET;
	return method < (htp_method)ARRAY_SIZE(map) && map[method] ? map[method] : HTTP_OTHER;
}

const char *http_request_method_name(const struct http_request *request)
{
	const char *name = htparser_get_methodstr_m(request->ev->method);

	return name ? name : "?";
}

struct str http_request_path(const struct http_request *request)
{
	const evhtp_uri_t *uri = request->ev->uri;

	return uri && uri->path && uri->path->full ? str_from(uri->path->full) : STR("");
}

struct str http_request_query(const struct http_request *request)
{
	const evhtp_uri_t *uri = request->ev->uri;

	return uri ? str_from((const char *)uri->query_raw) : STR_NULL;
}

struct str http_request_header(const struct http_request *request, const char *name)
{
	return str_from(evhtp_header_find(request->ev->headers_in, name));
}

struct str http_request_body(const struct http_request *request)
{
	return request->body_len ? (struct str){request->body, request->body_len} : STR("");
}

void http_request_drop_body(struct http_request *request)
{
	body_drop(container_of(request, struct conn, request));
}

const char *http_request_peer(const struct http_request *request)
{
	return container_of(request, struct conn, request)->peer;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Percent-decodes s into out; false when malformed, too long or with a NUL. */
static bool decode_param(struct str s, char *out, size_t cap)
{
	size_t n = 0;

	for (size_t i = 0; i < s.n; i++) {
		int c = s.p[i] == '+' ? ' ' : (unsigned char)s.p[i];

		if (c == '%') {
			int high = i + 2 < s.n ? hex_digit(s.p[i + 1]) : -1;
			int low = i + 2 < s.n ? hex_digit(s.p[i + 2]) : -1;

			if (high < 0 || low < 0)
				return false;
			c = high * 16 + low;
			i += 2;
		}
		if (!c || n + 1 >= cap)
			return false;
		out[n++] = (char)c;
	}
	out[n] = '\0';
	return true;
}

bool http_request_param(const struct http_request *request, const char *name, char *out, size_t cap)
{
	struct str rest = http_request_query(request), value, key;

	while (str_cut(&rest, '&', &value)) {
		if (!str_cut(&value, '=', &key) || !str_is(key, name))
			continue;
		return decode_param(value.p ? value : STR(""), out, cap);
	}
	return false;
}

void http_request_add_header(struct http_request *request, const char *name, const char *value)
{
	struct buf *extra = &request->extra;
	size_t start;

	buf_addf(extra, "%s: ", name);
	start = extra->len;
	buf_addf(extra, "%s", value);
	for (size_t i = start; i < extra->len; i++) {
		if ((unsigned char)extra->data[i] < ' ')
			extra->data[i] = ' '; /* a value never starts a new header */
	}
	buf_add_str(extra, STR("\r\n"));
}

void http_request_on_gone(struct http_request *request, http_gone_fn *fn, void *arg)
{
	request->gone = fn;
	request->gone_arg = arg;
}

const char *http_status_text(int status)
{
	static const struct {
		int status;
		const char *text;
	} rows[] = {
		{200, "OK"},
		{201, "Created"},
		{202, "Accepted"},
		{204, "No Content"},
		{206, "Partial Content"},
		{301, "Moved Permanently"},
		{302, "Found"},
		{303, "See Other"},
		{304, "Not Modified"},
		{307, "Temporary Redirect"},
		{308, "Permanent Redirect"},
		{400, "Bad Request"},
		{401, "Unauthorized"},
		{403, "Forbidden"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{406, "Not Acceptable"},
		{408, "Request Timeout"},
		{409, "Conflict"},
		{410, "Gone"},
		{411, "Length Required"},
		{412, "Precondition Failed"},
		{413, "Content Too Large"},
		{414, "URI Too Long"},
		{415, "Unsupported Media Type"},
		{416, "Range Not Satisfiable"},
		{421, "Misdirected Request"},
		{422, "Unprocessable Content"},
		{429, "Too Many Requests"},
		{431, "Request Header Fields Too Large"},
		{500, "Internal Server Error"},
		{501, "Not Implemented"},
		{502, "Bad Gateway"},
		{503, "Service Unavailable"},
		{504, "Gateway Timeout"},
		{505, "HTTP Version Not Supported"},
		{507, "Insufficient Storage"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].status == status)
			return rows[i].text;
	}
	return "Status";
}
