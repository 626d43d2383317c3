/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_body - what becomes of a body's bytes: they are collected in a block of ours, or given to whom took them, piece by piece.
 *
 * - The library's request buffer stays empty. (A form body left in it would be parsed on the stack, whatever its size.)
 * - What all blocks of a server hold is counted where one grows or goes (body_resize), so that many bodies within the limit cannot take
 *   all memory either. Pieces are not kept, so they do not count.
 * - Who takes pieces faster than it can use them holds the body: nothing more is read from the socket, so the client's kernel waits. The
 *   body's end lets go of it, as otherwise nobody would notice the client's going.
 * - A collected body has one deadline. A taken one may be large and slow, so each piece gives it another read_timeout_us, within upload_us.
 */
#include "rpc/http/server_int.h"

#include <stdlib.h>

#define BODIES_MAX (INT64_C(1) << 30)
#define UPLOAD_US (3600 * US_PER_S)

int64_t body_limit(const struct conn *conn)
{
	return conn->request.piece ? conn->request.piece_max : conn->server->options.body_max;
}

static void refuse_too_large(struct conn *conn)
{
	conn_refuse(conn, 413, "body_too_large", "the body is larger than this server accepts");
}

/* --- collected ---------------------------------------------------------------------------------------------------------- */

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

void body_drop(struct conn *conn)
{
	(void)body_resize(conn, 0);
}

static bool bodies_are_full(const struct conn *conn, size_t cap)
{
	const struct http_server_options *options = &conn->server->options;
	int64_t max = options->bodies_max ? options->bodies_max : BODIES_MAX;

	if (max < 2 * options->body_max)
		max = 2 * options->body_max; /* else a single body could be too many */
	return conn->server->body_bytes - conn->request.body_cap + cap > (uint64_t)max;
}

/* Makes room for n more bytes, or refuses the body. */
static bool body_reserve(struct conn *conn, size_t n)
{
	struct http_request *request = &conn->request;
	size_t max = (size_t)conn->server->options.body_max;
	size_t need = request->body_len + n + 1, cap = request->body_cap ? request->body_cap : 512;

	if (request->body_len + n > max) {
		refuse_too_large(conn);
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

static void collect(struct conn *conn, struct evbuffer *buffer)
{
	struct http_request *request = &conn->request;
	size_t n = evbuffer_get_length(buffer);

	if (!body_reserve(conn, n))
		return;
	evbuffer_remove(buffer, request->body + request->body_len, n);
	request->body_len += n;
	request->body[request->body_len] = '\0';
}

/* --- taken -------------------------------------------------------------------------------------------------------------- */

void http_request_take_body(struct http_request *request, int64_t max, http_piece_fn *fn, void *arg)
{
	struct conn *conn = container_of(request, struct conn, request);
	int64_t upload_us = conn->server->options.upload_us;

	CHECK(conn->state == CONN_BODY && !request->body_len);
	request->piece = fn;
	request->piece_arg = arg;
	request->piece_max = max;
	request->piece_bytes = 0;
	request->upload_deadline_us =
		loop_now_us(conn->server->loop) + (upload_us ? upload_us : UPLOAD_US);
	evhtp_connection_set_max_body_size(conn->ev, body_backstop(max));
}

void body_untake(struct conn *conn)
{
	if (!conn->request.piece)
		return;
	body_let_go(conn);
	conn->request.piece = NULL;
	conn->request.gone = NULL;
	evhtp_connection_set_max_body_size(conn->ev, body_backstop(conn->server->options.body_max));
}

/* How long the next piece may take. */
static void set_piece_deadline(struct conn *conn)
{
	const struct http_request *request = &conn->request;
	int64_t limit_us = request->upload_deadline_us - loop_now_us(conn->server->loop);

	if (!request->is_held && limit_us > conn->server->options.read_timeout_us)
		limit_us = conn->server->options.read_timeout_us;
	conn_set_deadline(conn, limit_us);
}

void http_request_hold_body(struct http_request *request, bool is_held)
{
	struct conn *conn = container_of(request, struct conn, request);

	if (conn->state != CONN_BODY || request->is_held == is_held)
		return;
	body_let_go(conn);
	request->is_held = is_held;
	if (is_held)
		bufferevent_disable(conn_bev(conn), EV_READ);
	set_piece_deadline(conn);
}

void body_let_go(struct conn *conn)
{
	if (conn->request.is_held)
		bufferevent_enable(conn_bev(conn), EV_READ);
	conn->request.is_held = false;
}

static int call_taker(struct conn *conn, struct str piece, struct str *problem)
{
	struct http_request *request = &conn->request;
	int status;

	conn->server->depth++;
	status = request->piece(request->piece_arg, piece, problem);
	conn->server->depth--;
	return status;
}

static void give(struct conn *conn, struct evbuffer *buffer)
{
	struct http_request *request = &conn->request;
	struct str problem = STR_NULL, piece;
	int status;

	piece.n = evbuffer_get_length(buffer);
	piece.p = (const char *)evbuffer_pullup(buffer, -1);
	if ((int64_t)piece.n > request->piece_max - request->piece_bytes) {
		refuse_too_large(conn);
		return;
	}
	request->piece_bytes += (int64_t)piece.n;
	status = call_taker(conn, piece, &problem);
	if (conn->state != CONN_BODY)
		return; /* the server was freed inside */
	if (status)
		conn_refuse_text(conn, status, problem);
	else
		set_piece_deadline(conn);
}

void body_add(struct conn *conn, struct evbuffer *buffer)
{
	if (conn->request.piece)
		give(conn, buffer);
	else
		collect(conn, buffer);
}
