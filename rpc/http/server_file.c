/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_file - answers from a file: a stream that is fed from a descriptor, a piece whenever the one before has left.
 *
 * Why not sendfile(): it would be a second way beside TLS, mapped files would be a SIGBUS when somebody shortens one, and the
 * library takes its EAGAIN for the end of the connection. A piece is read into one block of the server and written from there at once, so a
 * client that reads costs no memory, and one that does not at most a piece.
 */
#include "rpc/http/server_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)256 << 10)

struct file_reply {
	struct http_server *server;
	struct http_stream *stream;
	int fd;
	int64_t offset, left;
};

static void file_free(struct file_reply *file)
{
	close(file->fd);
	free(file);
}

static void on_gone(void *arg)
{
	file_free(arg);
}

static void send_next(void *arg)
{
	struct file_reply *file = arg;
	struct http_server *server = file->server;
	size_t want = file->left < (int64_t)PIECE_BYTES ? (size_t)file->left : PIECE_BYTES;
	ssize_t n;

	if (!server->piece)
		server->piece = mem_alloc(PIECE_BYTES);
	n = want ? pread(file->fd, server->piece, want, file->offset) : 0;
	if (want && n <= 0) {
		log_warn(server->options.log, "http_file", "missing=%lld why=\"%s\"",
			(long long)file->left, n ? strerror(errno) : "the file has become shorter");
		http_stream_abort(file->stream);
		file_free(file);
		return;
	}
	file->offset += n;
	file->left -= n;
	http_stream_write(file->stream, (struct str){server->piece, (size_t)n});
	if (file->left)
		return;
	http_stream_end(file->stream);
	file_free(file);
}

void http_request_reply_file(struct http_request *request, int status, const char *content_type,
	int fd, int64_t offset, int64_t length)
{
	struct conn *conn = container_of(request, struct conn, request);
	struct file_reply *file = mem_alloc(sizeof(*file));

	*file = (struct file_reply){
		.server = conn->server, .fd = fd, .offset = offset, .left = length};
	http_request_on_gone(request, on_gone, file);
	file->stream = http_request_stream(request, status, content_type, length);
	if (!conn_sends_body(conn, status))
		file->left = 0;
	http_stream_on_drained(file->stream, send_next, file);
	send_next(file);
}
