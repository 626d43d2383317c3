/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_tls - what is different when a server speaks TLS. A listener then has a context (tls.h), and the library makes an encrypting
 * connection of each that it accepts; all above that is the same, but
 *
 * - the handshake comes first, as a state with a deadline (HANDSHAKE)
 * - what is written is encrypted in pieces of RECORD_BYTES. Like writev() it goes to the socket at once; but when that is full, a record is half way, and
 *   OpenSSL wants to be given the same bytes again, in one piece. The library will do that, if they are the first of its buffer, in one piece.
 * - "nothing more will be sent" is an alert and then the socket's half-close; without the alert a client must take the end for an
 *   attack, which is what an answer that is cut off before its end wants
 * - who speaks plain HTTP is told so, in plain HTTP. The handshake has failed by then and the library is about to close, so what has come
 *   is read and dropped: a close over it would be a reset, which takes the answer away.
 */
#include "rpc/http/server_int.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/sslerr.h>

#include "rpc/codec.h"

#define DRAIN_BYTES 65536
#define RECORD_BYTES 8192 /* the library gives up to 15 000 at once */

bool conn_is_tls(const struct conn *conn)
{
	return conn->ev->ssl;
}

/* Copies the bytes from offset on, as many as fit; returns how many. */
static size_t gather(const struct iovec *iov, int n, size_t offset, char *out, size_t cap)
{
	size_t got = 0;

	for (int i = 0; i < n && got < cap; i++) {
		size_t skip = offset < iov[i].iov_len ? offset : iov[i].iov_len;
		size_t take = iov[i].iov_len - skip < cap - got ? iov[i].iov_len - skip : cap - got;

		offset -= skip;
		memcpy(out + got, (const char *)iov[i].iov_base + skip, take);
		got += take;
	}
	return got;
}

size_t tls_write(struct conn *conn, const struct iovec *iov, int n)
{
	char block[RECORD_BYTES];
	size_t done = 0, len;
	int written = 0;

	ERR_clear_error();
	while ((len = gather(iov, n, done, block, sizeof(block))) > 0) {
		written = SSL_write(conn->ev->ssl, block, (int)len);
		if (written <= 0)
			break;
		done += (size_t)written;
	}
	if (written > 0 || !len)
		return done;
	if (SSL_get_error(conn->ev->ssl, written) != SSL_ERROR_WANT_WRITE) {
		ERR_clear_error();
		return SIZE_MAX; /* the library is about to hear of it */
	}
	conn->retry = len;
	return done;
}

void tls_prepare_retry(struct conn *conn)
{
	if (conn->retry)
		evbuffer_pullup(bufferevent_get_output(conn_bev(conn)), (ev_ssize_t)conn->retry);
	conn->retry = 0;
}

void tls_shut(struct conn *conn)
{
	SSL_shutdown(conn->ev->ssl);
	ERR_clear_error();
}

void tls_end_without_alert(const struct conn *conn, bool on)
{
	SSL_set_quiet_shutdown(conn->ev->ssl, on);
}

/* --- plain HTTP where TLS is spoken --------------------------------------------------------------------------------------- */

static void drain_socket(int fd)
{
	char block[4096];

	for (size_t n = 0; n < DRAIN_BYTES; n += sizeof(block)) {
		if (recv(fd, block, sizeof(block), MSG_DONTWAIT) <= 0)
			return;
	}
}

static void say_https(struct conn *conn)
{
	struct buf text cleanup(buf_fini) = BUF_INIT, body cleanup(buf_fini) = BUF_INIT;
	struct problem problem = {0};

	problem_set(&problem, 400, "https_expected", "",
		"TLS is spoken at this address; begin the URL with https://");
	problem_write(&problem, &body);
	buf_addf(&text,
		"HTTP/1.1 400 %s\r\nContent-Type: application/problem+json\r\nContent-Length: "
		"%zu\r\nDate: %s\r\nConnection: close\r\n\r\n" STR_FMT,
		http_status_text(400), body.len, server_date(conn->server),
		STR_ARG(buf_str(&body)));
	drain_socket(conn->ev->sock);
	if (send(conn->ev->sock, text.data, text.len, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		shutdown(conn->ev->sock, SHUT_WR);
	drain_socket(conn->ev->sock);
	tell_refused(conn->server, 400);
}

/* --- the handshake ------------------------------------------------------------------------------------------------------- */

void tls_on_event(struct conn *conn, short events)
{
	unsigned long error;

	if (conn->state != CONN_HANDSHAKE)
		return;
	if (events & BEV_EVENT_CONNECTED) {
		conn_enter(conn, CONN_IDLE);
		return;
	}
	error = bufferevent_get_openssl_error(conn_bev(conn));
	log_debug(conn->server->options.log, "http_handshake", "peer=%s error=\"%s\"", conn->peer,
		error ? ERR_reason_error_string(error) : "left");
	if (error && ERR_GET_REASON(error) == SSL_R_HTTP_REQUEST)
		say_https(conn);
}

/* --- contexts --------------------------------------------------------------------------------------------------------------- */

void tls_set_listener(struct listener *listener)
{
	SSL_CTX *ctx = listener->server->tls;

	SSL_CTX_free(listener->htp->ssl_ctx);
	if (ctx)
		CHECK(SSL_CTX_up_ref(ctx) == 1);
	listener->htp->ssl_ctx = ctx;
}

void http_server_set_tls(struct http_server *server, const struct http_tls *tls)
{
	SSL_CTX_free(server->tls);
	server->tls = tls ? tls->ctx : NULL;
	if (tls)
		CHECK(SSL_CTX_up_ref(tls->ctx) == 1);
	list_each (it, &server->listeners)
		tls_set_listener(list_entry(it, struct listener, link));
}
