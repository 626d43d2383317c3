/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_stream - answers in pieces. The header leaves at once, with the framing the client can read: the length when it is known,
 * chunks for HTTP/1.1, the close of the connection for HTTP/1.0. The request stays WAITING's twin STREAM, so a client that leaves is noticed
 * at once; the end makes it REPLIED like any other.
 *
 * - What waits for the client is in the library's output buffer. Its writer is told how much that is and stops; one that does not is cut off
 *   at HTTP_STREAM_PENDING_MAX. A client that takes nothing for write_timeout_us is cut off by the library.
 * - Owners are never called from inside their own calls: `drained` comes from a timer of the next turn, so that one
 *   stream cannot keep the loop, and a stream that must be cut off gets a deadline that has passed.
 * - A body that is not whole must not look whole. With a length or with chunks a close shows it; without either only a reset does.
 */
#include "rpc/http/server_int.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>

static struct conn *stream_conn(struct http_stream *stream)
{
	return container_of(stream, struct conn, request.stream);
}

static size_t pending(const struct conn *conn)
{
	return evbuffer_get_length(bufferevent_get_output(conn_bev(conn)));
}

/* Whether any close, by whomever, is to be a reset. */
static void reset_on_close(const struct conn *conn, bool on)
{
	const struct linger linger = {.l_onoff = on};

	setsockopt(conn->ev->sock, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	if (conn_is_tls(conn))
		tls_end_without_alert(conn, on);
}

static void on_drained(void *arg)
{
	struct http_stream *stream = arg;

	if (conn_is_flushed(stream_conn(stream)))
		stream->on_drained(stream->on_drained_arg);
}

void stream_init(struct conn *conn)
{
	struct http_stream *stream = &conn->request.stream;

	timer_init(&stream->drained, conn->server->loop, on_drained, stream);
}

struct http_stream *http_request_stream(
	struct http_request *request, int status, const char *content_type, int64_t length)
{
	struct conn *conn = container_of(request, struct conn, request);
	struct http_stream *stream = &request->stream;
	bool is_1_0 = request->ev->proto == EVHTP_PROTO_10;

	CHECK(conn->state == CONN_WAITING);
	stream->silent = !conn_sends_body(conn, status);
	stream->left = length < 0 ? -1 : length;
	stream->chunked = length < 0 && !is_1_0;
	stream->until_close = length < 0 && is_1_0 && !stream->silent;
	stream->cut = false;
	stream->on_drained = NULL;
	if (stream->until_close)
		reset_on_close(conn, true);
	stream->keep = conn_may_stay(conn) && !stream->until_close;
	conn_build_head(conn, status, content_type, stream->left, stream->keep);
	conn_enter(conn, CONN_STREAM);
	conn_write_text(conn, buf_str(&conn->server->head));
	return stream;
}

static void write_piece(struct conn *conn, struct str piece)
{
	char size[24];
	struct iovec iov[3] = {{size, 0}, {(void *)piece.p, piece.n}, {(void *)"\r\n", 2}};

	if (!conn->request.stream.chunked) {
		conn_write(conn, iov + 1, 1);
		return;
	}
	iov[0].iov_len = (size_t)snprintf(size, sizeof(size), "%zx\r\n", piece.n);
	conn_write(conn, iov, 3);
}

size_t http_stream_write(struct http_stream *stream, struct str piece)
{
	struct conn *conn = stream_conn(stream);

	CHECK(conn->state == CONN_STREAM);
	if (stream->left >= 0) {
		piece.n = piece.n < (uint64_t)stream->left ? piece.n : (size_t)stream->left;
		stream->left -= (int64_t)piece.n;
	}
	if (piece.n && !stream->silent && !stream->cut)
		write_piece(conn, piece);
	if (pending(conn) > HTTP_STREAM_PENDING_MAX && !stream->cut) {
		log_warn(conn->server->options.log, "http_stream",
			"peer=%s pending=%zu why=\"too much waits for the client\"", conn->peer,
			pending(conn));
		stream->cut = true;
		conn_set_deadline(conn, 0);
	}
	if (!pending(conn) && stream->on_drained)
		timer_start(&stream->drained, 0);
	return pending(conn);
}

void http_stream_on_drained(struct http_stream *stream, http_stream_fn *fn, void *arg)
{
	stream->on_drained = fn;
	stream->on_drained_arg = arg;
	if (!fn)
		timer_stop(&stream->drained);
}

void http_stream_on_gone(struct http_stream *stream, http_gone_fn *fn, void *arg)
{
	http_request_on_gone(&stream_conn(stream)->request, fn, arg);
}

void http_stream_end(struct http_stream *stream)
{
	struct conn *conn = stream_conn(stream);

	CHECK(conn->state == CONN_STREAM);
	if ((stream->left > 0 && !stream->silent) || stream->cut) {
		http_stream_abort(stream);
		return;
	}
	timer_stop(&stream->drained);
	if (stream->until_close)
		reset_on_close(conn, false);
	if (stream->chunked && !stream->silent)
		conn_write_text(conn, STR("0\r\n\r\n"));
	conn_finish(conn, stream->keep && !conn->server->stopping);
}

void http_stream_abort(struct http_stream *stream)
{
	struct conn *conn = stream_conn(stream);

	CHECK(conn->state == CONN_STREAM);
	conn->request.gone = NULL;
	evhtp_connection_free(conn->ev);
}
