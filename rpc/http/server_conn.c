/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_conn - one accepted connection: its states, their deadlines, its end.
 *
 *     IDLE ──first byte────▶ HEADER ──headers──▶ BODY ──whole──▶ READY ──end of turn──▶ WAITING ──reply──▶ REPLIED
 *      ▲                                          │  refused                             │  ▲               │ ▲
 *      │                                          │                                      ▼  │ whole         │ │
 *      │                                          │                                     STREAM ───────────────┘
 *      └──────────── flushed, keep-alive ─────────│────────────────────────────────────────────────────────┘
 *                                                 ▼
 *                                              LINGER (answered; what still comes is read and dropped)
 *
 * With TLS a connection is in HANDSHAKE before its first IDLE.
 *
 * - The library's read timeout counts silence and runs while a client waits, so it is not used: each state has its own
 *   deadline, from its row. Only its write timeout is, for clients that do not read their answer: it runs while something
 *   waits to be sent, and begins anew when some of it has left.
 * - Without evhtp_request_pause() the library keeps reading while a client waits, so a client that leaves (or only shuts
 *   its sending side) is noticed at once: it is "gone".
 * - A socket that is closed over bytes nobody has read is reset, and a reset takes the answer from a client that has not read it
 *   yet. So a connection that is to end and has had such bytes ends by LINGER.
 * - The library frees; we only hear of it, through the fini hooks. What hangs from our side is freed at the end of the turn.
 */
#include "rpc/http/server_int.h"

#include <errno.h>
#include <stdlib.h>

#define LINGER_US (2 * US_PER_S)

/* --- states ---------------------------------------------------------------------------------------------------------- */

static int64_t state_limit_us(const struct http_server *server, enum conn_state state)
{
	const int64_t limits[] = {
		[CONN_IDLE] = server->options.idle_timeout_us,
		[CONN_HANDSHAKE] = server->options.read_timeout_us,
		[CONN_HEADER] = server->options.read_timeout_us,
		[CONN_BODY] = server->options.read_timeout_us, /* pieces begin it anew */
		[CONN_READY] = INT64_MAX,
		[CONN_WAITING] = INT64_MAX, /* the handler answers, or the client goes */
		[CONN_STREAM] = INT64_MAX,  /* likewise, and the write timeout */
		[CONN_REPLIED] = INT64_MAX, /* the write timeout */
		[CONN_LINGER] = LINGER_US,
		[CONN_CLOSING] = LINGER_US,
	};

	return limits[state];
}

static bool state_is_open(enum conn_state state)
{
	return state == CONN_READY || state == CONN_WAITING || state == CONN_STREAM;
}

void conn_set_deadline(struct conn *conn, int64_t limit_us)
{
	if (limit_us == INT64_MAX) {
		conn->deadline_us = INT64_MAX;
		return;
	}
	conn->deadline_us = loop_now_us(conn->server->loop) + limit_us;
	if (!timer_is_armed(&conn->timer) || conn->timer.at_us > conn->deadline_us)
		timer_start_at(&conn->timer, conn->deadline_us);
}

void conn_enter(struct conn *conn, enum conn_state state)
{
	conn->server->n_open +=
		(unsigned)state_is_open(state) - (unsigned)state_is_open(conn->state);
	if (state != CONN_CLOSING)
		body_let_go(conn);
	conn->state = state;
	conn_set_deadline(conn, state_limit_us(conn->server, state));
}

void conn_linger(struct conn *conn)
{
	conn_enter(conn, CONN_LINGER);
	conn_shut_sending(conn);
}

static void on_timer(void *arg)
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

/* --- the end of requests and connections ---------------------------------------------------------------------------- */

/* Does the owner wait for word of this request? */
static bool owner_waits(const struct conn *conn)
{
	if (conn->state == CONN_BODY || conn->state == CONN_READY)
		return conn->request.piece;
	return conn->state == CONN_WAITING || conn->state == CONN_STREAM;
}

void conn_lose(struct conn *conn)
{
	http_gone_fn *gone = conn->request.gone;
	void *gone_arg = conn->request.gone_arg;
	bool told = owner_waits(conn);

	defer_cancel(&conn->run);
	timer_stop(&conn->request.stream.drained);
	conn_enter(conn, CONN_CLOSING);
	conn->request.gone = NULL;
	if (!told || !gone)
		return;
	conn->server->depth++;
	gone(gone_arg);
	conn->server->depth--;
}

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
	tls_on_event(arg, events);
}

/* Output that was queued has left. */
static evhtp_res hook_write(evhtp_connection_t *ev, void *arg)
{
	struct conn *conn = arg;

	if (!conn_is_flushed(conn))
		return EVHTP_RES_OK;
	if (conn->state == CONN_STREAM && conn->request.stream.on_drained)
		timer_start(&conn->request.stream.drained, 0);
	if (conn->state == CONN_LINGER)
		conn_shut_sending(conn);
	if (conn->state == CONN_REPLIED && conn->dropped)
		conn_linger(conn);
	return EVHTP_RES_OK;
}

/* --- its beginning ------------------------------------------------------------------------------------------------------ */

static void set_hooks(struct conn *conn)
{
	const struct {
		evhtp_hook_type type;
		evhtp_hook fn;
	} rows[] = {
		{evhtp_hook_on_request_fini, (evhtp_hook)hook_request_fini},
		{evhtp_hook_on_connection_fini, (evhtp_hook)hook_conn_fini},
		{evhtp_hook_on_write, (evhtp_hook)hook_write},
		{evhtp_hook_on_event, (evhtp_hook)(void (*)(void))hook_event},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		CHECK(evhtp_connection_set_hook(conn->ev, rows[i].type, rows[i].fn, conn) == 0);
}

struct conn *conn_new(struct http_server *server, evhtp_connection_t *ev)
{
	struct conn *conn = mem_alloc(sizeof(*conn));

	conn->server = server;
	conn->ev = ev;
	conn->overload = server->n_conns >= server->options.connections_max;
	timer_init(&conn->timer, server->loop, on_timer, conn);
	defer_init(&conn->run, parse_run_message, conn);
	stream_init(conn);
	list_add_tail(&server->conns, &conn->link);
	server->n_conns++;
	set_hooks(conn);
	parse_set_hooks(conn);
	conn_enter(conn, conn_is_tls(conn) ? CONN_HANDSHAKE : CONN_IDLE);
	return conn;
}
