/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_write - answers. Header and body are one writev() straight to the socket; only what the socket does not take is copied
 * and left to the library, which also has the last word: it frees the request of an answer that has left, and the connection when it
 * may not stay.
 */
#include "rpc/http/server_int.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

/* --- bytes -------------------------------------------------------------------------------------------------------------- */

struct bufferevent *conn_bev(const struct conn *conn)
{
	return evhtp_connection_get_bev(conn->ev);
}

bool conn_is_flushed(const struct conn *conn)
{
	return evbuffer_get_length(bufferevent_get_output(conn_bev(conn))) == 0;
}

/* How much of it needs no further care. */
static size_t write_now(struct conn *conn, const struct iovec *iov, int n)
{
	ssize_t written;

	if (!conn_is_flushed(conn))
		return 0;
	if (conn_is_tls(conn))
		return tls_write(conn, iov, n);
	written = writev(conn->ev->sock, iov, n);
	if (written >= 0)
		return (size_t)written;
	/* A dead socket: the library is about to hear of it and frees the connection. */
	return errno == EAGAIN ? 0 : SIZE_MAX;
}

void conn_write(struct conn *conn, struct iovec *iov, int n)
{
	size_t written = write_now(conn, iov, n);

	for (int i = 0; i < n; i++) {
		size_t skip = written < iov[i].iov_len ? written : iov[i].iov_len;

		written -= skip;
		if (skip < iov[i].iov_len)
			bufferevent_write(conn_bev(conn), (char *)iov[i].iov_base + skip,
				iov[i].iov_len - skip);
	}
	if (conn_is_tls(conn))
		tls_prepare_retry(conn);
}

void conn_write_text(struct conn *conn, struct str text)
{
	struct iovec iov = {(void *)text.p, text.n};

	conn_write(conn, &iov, 1);
}

void conn_shut_sending(struct conn *conn)
{
	if (conn_is_tls(conn))
		tls_shut(conn);
	shutdown(conn->ev->sock, SHUT_WR);
}

/* --- heads -------------------------------------------------------------------------------------------------------------- */

const char *server_date(struct http_server *server)
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

bool conn_sends_body(const struct conn *conn, int status)
{
	return conn->request.ev->method != htp_method_HEAD && status_has_body(status);
}

void conn_build_head(struct conn *conn, int status, const char *type, int64_t length, bool keep)
{
	struct buf *head = &conn->server->head;
	bool is_1_0 = conn->request.ev->proto == EVHTP_PROTO_10;

	buf_clear(head);
	buf_addf(head, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, http_status_text(status),
		server_date(conn->server));
	if (type && status_has_body(status))
		buf_addf(head, "Content-Type: %s\r\n", type);
	if (status_has_body(status) && length >= 0)
		buf_addf(head, "Content-Length: %" PRId64 "\r\n", length);
	else if (status_has_body(status) && !is_1_0)
		buf_add_str(head, STR("Transfer-Encoding: chunked\r\n"));
	if (status == 401)
		buf_add_str(head, STR("WWW-Authenticate: Bearer\r\n"));
	if (!keep)
		buf_add_str(head, STR("Connection: close\r\n"));
	else if (is_1_0)
		buf_add_str(head, STR("Connection: keep-alive\r\n"));
	buf_add_str(head, buf_str(&conn->request.extra));
	buf_add_str(head, STR("\r\n"));
}

/* --- answers ------------------------------------------------------------------------------------------------------------ */

void conn_answer(struct conn *conn, int status, const char *type, struct str body, bool keep)
{
	struct buf *head = &conn->server->head;
	struct iovec iov[2];

	conn_build_head(conn, status, type, (int64_t)body.n, keep);
	iov[0] = (struct iovec){head->data, head->len};
	iov[1] = (struct iovec){(void *)body.p, body.n};
	conn_write(conn, iov, body.n && conn_sends_body(conn, status) ? 2 : 1);
}

bool conn_may_stay(const struct conn *conn)
{
	return (conn->request.ev->flags & EVHTP_REQ_FLAG_KEEPALIVE) && !conn->server->stopping &&
	       !conn->dropped;
}

void conn_finish(struct conn *conn, bool keep)
{
	evhtp_request_t *ev = conn->request.ev;

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
	/* Nothing left to write: the library's own end of a request, now. */
	if (conn_is_flushed(conn))
		bufferevent_trigger(conn_bev(conn), EV_WRITE, 0);
}

void http_request_reply(
	struct http_request *request, int status, const char *content_type, struct str body)
{
	struct conn *conn = container_of(request, struct conn, request);
	bool keep = conn_may_stay(conn);

	CHECK(conn->state == CONN_WAITING);
	conn_answer(conn, status, content_type, body, keep);
	conn_finish(conn, keep);
}
