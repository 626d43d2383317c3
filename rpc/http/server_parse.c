/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_parse - one request, from its first byte until it is whole and its handler runs; and what is refused on that way.
 *
 * What the library's traps ask for:
 * - Its hooks run deep inside its parser, where neither the request nor the connection may be freed. So a whole
 *   request only becomes READY there, and the handler is called at the end of the turn; by then the parser has also
 *   given back its input, and whatever is left in it is a second request sent early. Such a connection gets its one
 *   answer with `Connection: close`, since the library would get stuck on the rest.
 * - A refusal from a hook does not stop the parser, so it is paused as well. The answer is written at once, with `Connection:
 *   close`, our side is shut down, and what still comes is dropped until the client or LINGER's deadline ends. Closing at once instead would
 *   reset the connection under a client that is still sending, and it would never read why.
 * - What is sent early while a client waits would make the library drop the connection, so from a whole message to its answer our own
 *   read callback, which is before the library's, drops it.
 * - The library tells of a request only when its path is whole. What starts the header's deadline is the first byte.
 * - When its input ends inside the request line's URI, its parser takes the byte behind the input for one more of the URI. So it gets
 *   nothing before that line is whole (test_bytewise).
 * - The owner is asked at the header, before the size is looked at: only then is it known whether the body is taken, and up to what size.
 */
#include "rpc/http/server_int.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "rpc/codec.h"

#define BODY_KEEP 4096 /* a larger block is given back after the request */
#define RETRY_AFTER_S "1"
#define LINE_BYTES 9000 /* the library takes URIs up to 8 KiB; what is longer is its to close */

/* --- refusals ------------------------------------------------------------------------------------------------------------ */

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

void tell_refused(struct http_server *server, int status)
{
	if (!server->options.on_refused)
		return;
	server->depth++;
	server->options.on_refused(server->options.arg, status);
	server->depth--;
}

void conn_refuse_text(struct conn *conn, int status, struct str problem)
{
	struct http_server *server = conn->server;

	log_debug(server->options.log, "http_refused", "peer=%s status=%d", conn->peer, status);
	conn_answer(conn, status, "application/problem+json", problem, false);
	body_drop(conn);
	conn_lose(conn);
	conn_enter(conn, CONN_LINGER);
	if (conn_is_flushed(conn))
		conn_shut_sending(conn);
	parser_stop(conn);
	loop_defer(server->loop, &conn->run);
	tell_refused(server, status);
}

void conn_refuse(struct conn *conn, int status, const char *code, const char *detail)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct problem problem = {0};

	if (status == 503)
		http_request_add_header(&conn->request, "Retry-After", RETRY_AFTER_S);
	problem_set(&problem, status, code, "", "%s", detail);
	problem_write(&problem, &text);
	conn_refuse_text(conn, status, buf_str(&text));
}

/* --- the header ------------------------------------------------------------------------------------------------------------ */

void request_clear(struct conn *conn)
{
	struct http_request *request = &conn->request;

	if (request->body_cap > BODY_KEEP)
		body_drop(conn);
	body_untake(conn);
	timer_stop(&request->stream.drained);
	request->ev = NULL;
	request->n_headers = 0;
	request->header_bytes = 0;
	request->body_len = 0;
	if (request->extra.len)
		buf_fini(&request->extra);
	request->gone = NULL;
}

static struct conn *conn_of(const evhtp_connection_t *ev)
{
	return ev->hooks->on_read_arg;
}

/* Nothing of the next request has been given to the library. */
static bool line_is_missing(const struct conn *conn)
{
	return conn->state == CONN_IDLE || conn->state == CONN_REPLIED ||
	       (conn->state == CONN_HEADER && !conn->request.ev);
}

/* True when there is a whole line, or something that will never be one. */
static bool line_has_come(struct evbuffer *in)
{
	char first = '\0';

	while (evbuffer_copyout(in, &first, 1) == 1 && (first == '\r' || first == '\n'))
		evbuffer_drain(in, 1); /* empty lines before it, RFC 9112, 2.2 */
	if (evbuffer_get_length(in) == 0)
		return false;
	return first < 'A' || first > 'Z' || evbuffer_get_length(in) > LINE_BYTES ||
	       evbuffer_search_eol(in, NULL, NULL, EVBUFFER_EOL_LF).pos >= 0;
}

static void drop_input(struct conn *conn)
{
	struct evbuffer *input = bufferevent_get_input(conn_bev(conn));
	size_t n = evbuffer_get_length(input);

	conn->dropped += n;
	evbuffer_drain(input, n);
}

/* In the place of the library's, so with its argument. */
static void on_readable(struct bufferevent *bev, void *arg)
{
	struct conn *conn = conn_of(arg);

	if (conn->dropping) {
		drop_input(conn);
		if (conn->dropped > body_backstop(body_limit(conn)))
			evhtp_connection_free(conn->ev);
		return;
	}
	if (conn->state == CONN_IDLE)
		conn_enter(conn, CONN_HEADER);
	if (line_is_missing(conn) && !line_has_come(bufferevent_get_input(bev)))
		return;
	conn->parse(bev, arg);
}

static void request_begin(struct conn *conn, evhtp_request_t *ev)
{
	if (!line_is_missing(conn))
		return;
	request_clear(conn);
	conn->request.ev = ev;
	if (conn->state != CONN_HEADER)
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
	int64_t bytes; /* announced */
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
static bool framing_is_bad(const struct conn *conn, struct framing *f, struct refusal *out)
{
	bool length_ok = !f->length ||
			 (str_to_i64(str_trim(str_from(f->length)), &f->bytes) && f->bytes >= 0);

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
	body_untake(conn); /* it knows already */
	conn_refuse_text(conn, status, text);
	return true;
}

static bool is_refused(struct conn *conn, struct framing *framing)
{
	struct refusal refusal;

	if (conn->overload)
		refusal = (struct refusal){
			503, "too_many_connections", "too many connections, try again later"};
	else if (!framing_is_bad(conn, framing, &refusal)) {
		if (owner_refuses(conn))
			return true;
		if (framing->bytes <= body_limit(conn))
			return false;
		refusal = (struct refusal){
			413, "body_too_large", "the body is larger than this server accepts"};
	}
	conn_refuse(conn, refusal.status, refusal.code, refusal.detail);
	return true;
}

static evhtp_res hook_headers(evhtp_request_t *ev, evhtp_headers_t *headers, void *arg)
{
	struct conn *conn = arg;
	struct framing framing = {0};

	request_begin(conn, ev);
	if (conn->server->dead)
		return EVHTP_RES_ERROR;
	read_framing(headers, &framing);
	conn_enter(conn, CONN_BODY);
	if (is_refused(conn, &framing))
		return EVHTP_RES_PAUSE;
	if (framing.expect && !strcasecmp(framing.expect, "100-continue"))
		conn_write_text(conn, STR("HTTP/1.1 100 Continue\r\n\r\n"));
	return EVHTP_RES_OK;
}

/* --- the rest -------------------------------------------------------------------------------------------------------------- */

static evhtp_res hook_read(evhtp_request_t *ev, struct evbuffer *buffer, void *arg)
{
	struct conn *conn = arg;

	if (conn->state == CONN_BODY)
		body_add(conn, buffer);
	evbuffer_drain(buffer, evbuffer_get_length(buffer));
	return conn->state == CONN_LINGER ? EVHTP_RES_PAUSE : EVHTP_RES_OK;
}

/* False when the connection has ended meanwhile (the library does not free a paused one). */
static bool parser_go(struct conn *conn)
{
	conn->request.ev->status = EVHTP_RES_OK;
	conn->ev->flags = (uint16_t)(conn->ev->flags & ~EVHTP_CONN_FLAG_PAUSED);
	return !(conn->ev->flags & EVHTP_CONN_FLAG_FREE_CONN);
}

void parse_on_message(evhtp_request_t *ev, void *arg)
{
	struct conn *conn = conn_of(ev->conn); /* the argument is the listener */

	if (conn->state != CONN_BODY)
		return;
	conn_enter(conn, CONN_READY);
	parser_stop(conn);
	loop_defer(conn->server->loop, &conn->run);
}

void parse_run_message(void *arg)
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

void parse_set_hooks(struct conn *conn)
{
	const struct {
		evhtp_hook_type type;
		evhtp_hook fn;
	} rows[] = {
		{evhtp_hook_on_path, (evhtp_hook)hook_path},
		{evhtp_hook_on_header, (evhtp_hook)hook_header},
		{evhtp_hook_on_headers, (evhtp_hook)hook_headers},
		{evhtp_hook_on_read, (evhtp_hook)hook_read},
	};
	bufferevent_data_cb on_writable;
	bufferevent_event_cb on_event;
	void *arg;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		CHECK(evhtp_connection_set_hook(conn->ev, rows[i].type, rows[i].fn, conn) == 0);
	bufferevent_getcb(conn->ev->bev, &conn->parse, &on_writable, &on_event, &arg);
	bufferevent_setcb(conn->ev->bev, on_readable, on_writable, on_event, arg);
}
