/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_int - what the server's files share: its structures, and the verbs between them. Nobody else includes it, and its files
 * include it first: it pulls in OpenSSL's headers, in which `unused` is a name and not yet our attribute.
 *
 *   server.c          life: listening, accepting, limits
 *   server_conn.c     a connection's states and deadlines, its end
 *   server_parse.c    a request from its first byte until it is whole, and what is refused on that way
 *   server_body.c     what becomes of a body's bytes
 *   server_write.c    answers
 *   server_stream.c   answers in pieces
 *   server_file.c     answers from a file
 *   server_tls.c      what is different with TLS
 *   server_request.c  what a handler asks of a request
 */
#pragma once

#include <evhtp/evhtp.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>

#include "rpc/http/tls_int.h"

#include "reactor/base/buf.h"
#include "reactor/base/clock.h"
#include "reactor/base/list.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/timer.h"
#include "rpc/http/server.h"

struct iovec;

enum conn_state {
	CONN_IDLE,
	CONN_HANDSHAKE,
	CONN_HEADER,
	CONN_BODY,
	CONN_READY,
	CONN_WAITING,
	CONN_STREAM,
	CONN_REPLIED,
	CONN_LINGER,
	CONN_CLOSING, /* the library is letting go of it */
};

struct http_stream {
	int64_t left; /* of the announced length; -1 = none was */
	bool chunked;
	bool until_close; /* the client knows the end by the close */
	bool silent;      /* no body may be sent */
	bool keep;        /* the connection, after it */
	bool cut;         /* too much has waited: it is about to be aborted */
	struct timer drained;
	http_stream_fn *on_drained;
	void *on_drained_arg;
};

struct http_request {
	evhtp_request_t *ev;
	unsigned n_headers;
	size_t header_bytes;
	char *body;
	size_t body_len, body_cap;
	http_piece_fn *piece; /* takes the body instead; NULL = nobody */
	void *piece_arg;
	int64_t piece_max, piece_bytes;
	int64_t upload_deadline_us;
	bool is_held;     /* nothing more is read for now */
	struct buf extra; /* response headers */
	http_gone_fn *gone;
	void *gone_arg;
	struct http_stream stream;
};

struct conn {
	struct http_server *server;
	struct list link;
	evhtp_connection_t *ev; /* NULL once the library has let go of it */
	enum conn_state state;
	bool dropping;    /* what comes is not read as HTTP */
	uint64_t dropped; /* bytes behind a message; then the connection ends with its answer */
	size_t retry;     /* bytes of a TLS record that waits for the socket */
	bufferevent_data_cb parse; /* the library's read callback, behind ours */
	bool overload;             /* over connections_max: its first request hears 503 */
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
	SSL_CTX *tls;    /* NULL = plain */
	struct buf head; /* scratch */
	char *piece;     /* scratch of server_file.c */
	int64_t date_s;
	char date[40];
};

/* --- server.c ------------------------------------------------------------------------------------------------------ */

/* The library's own limit for a body of at most max bytes, above ours: it only ends a connection that LINGER is draining. */
uint64_t body_backstop(int64_t max);

/* --- server_conn.c ------------------------------------------------------------------------------------------------- */

struct conn *conn_new(struct http_server *server, evhtp_connection_t *ev);
/* The one place where a connection's state is assigned. */
void conn_enter(struct conn *conn, enum conn_state state);
/* From now on. */
void conn_set_deadline(struct conn *conn, int64_t limit_us);
/* Its answer has left: nothing more is sent, and what still comes is dropped. */
void conn_linger(struct conn *conn);
/* Its request will not be answered any more: the owner is told if he waits for that. */
void conn_lose(struct conn *conn);

/* --- server_parse.c ------------------------------------------------------------------------------------------------ */

void parse_set_hooks(struct conn *conn);
/* The library's callback for a whole message. */
void parse_on_message(evhtp_request_t *ev, void *arg);
/* At the end of the parser's turn: the message is whole, or it was refused. */
void parse_run_message(void *arg);
void request_clear(struct conn *conn);
void tell_refused(struct http_server *server, int status);
/* Answers a message that is not whole yet; what is left of it will be dropped. */
void conn_refuse(struct conn *conn, int status, const char *code, const char *detail);
void conn_refuse_text(struct conn *conn, int status, struct str problem);

/* --- server_body.c ------------------------------------------------------------------------------------------------- */

void body_add(struct conn *conn, struct evbuffer *buffer);
void body_drop(struct conn *conn);
/* Of this request. */
int64_t body_limit(const struct conn *conn);
/* Nobody takes its body any more, nor waits for word of it. */
void body_untake(struct conn *conn);
/* Reads on, if it was held. */
void body_let_go(struct conn *conn);

/* --- server_write.c ------------------------------------------------------------------------------------------------ */

struct bufferevent *conn_bev(const struct conn *conn);
bool conn_is_flushed(const struct conn *conn);
/* Straight to the socket when nothing is queued before it; the rest through the library's buffer. */
void conn_write(struct conn *conn, struct iovec *iov, int n);
void conn_write_text(struct conn *conn, struct str text);
const char *server_date(struct http_server *server);
/* No more will be written. */
void conn_shut_sending(struct conn *conn);
/* Builds server->head. length -1 = chunked, or until the close. */
void conn_build_head(struct conn *conn, int status, const char *type, int64_t length, bool keep);
void conn_answer(struct conn *conn, int status, const char *type, struct str body, bool keep);
bool conn_sends_body(const struct conn *conn, int status);
bool conn_may_stay(const struct conn *conn);
/* All of the answer has been written. It frees the request, perhaps the connection. */
void conn_finish(struct conn *conn, bool keep);

/* --- server_stream.c ----------------------------------------------------------------------------------------------- */

void stream_init(struct conn *conn);

/* --- server_tls.c -------------------------------------------------------------------------------------------------- */

bool conn_is_tls(const struct conn *conn);
/* Like writev(): how much was taken; SIZE_MAX when nothing can be sent any more. Only while nothing is queued. */
size_t tls_write(struct conn *conn, const struct iovec *iov, int n);
/* Behind it, when the rest is queued. */
void tls_prepare_retry(struct conn *conn);
/* Tells the client that nothing more comes. */
void tls_shut(struct conn *conn);
/* Whether a close, by whomever, is to look like the end of the connection and not of what was sent. */
void tls_end_without_alert(const struct conn *conn, bool on);
/* Of the handshake: that it is done, or has failed. */
void tls_on_event(struct conn *conn, short events);
/* A listener makes connections as the server does now. */
void tls_set_listener(struct listener *listener);
