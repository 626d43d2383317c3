/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http/server - HTTP/1.1 server on libevhtp, with what that library leaves open closed: limits with their right status (413, 408,
 * 400), two Content-Length or TE + CL refused, no pipelining, a client that leaves is noticed at once while it waits, every
 * response has a Date. One handler gets every request whole and answers it in one piece, from a file, or as a stream; a body that is too
 * large for memory is taken in pieces. Routing is router.h's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reactor/base/str.h"

struct http_request;
struct http_server;
struct http_stream;
struct http_tls;
struct log;
struct loop;

#define HTTP_HEADER_BYTES_MAX 65536
#define HTTP_HEADERS_MAX 100
#define HTTP_STREAM_PENDING                                                                        \
	((size_t)1 << 20) /* over it the writer of a stream waits until it is drained */
#define HTTP_STREAM_PENDING_MAX ((size_t)16 << 20) /* over it the stream is aborted */

enum http_method {
	HTTP_GET,
	HTTP_HEAD,
	HTTP_POST,
	HTTP_PUT,
	HTTP_DELETE,
	HTTP_OPTIONS,
	HTTP_OTHER
};

typedef void http_handler_fn(void *arg, struct http_request *request);
typedef void http_gone_fn(void *arg);
typedef void http_stream_fn(void *arg);
/* The next bytes of a body, in order: 0 to go on, or a status with *problem_body (borrowed text, application/problem+json) to refuse. */
typedef int http_piece_fn(void *arg, struct str piece, struct str *problem_body);

struct http_server_options {
	struct log *log;  /* borrowed */
	int64_t body_max; /* bytes; over it 413 */
	/* Bytes of memory for the bodies of all connections together; over it 503 "busy". 0 = 1 GiB. At least 2 * body_max. */
	int64_t bodies_max;
	int64_t read_timeout_us; /* handshake, whole header, and whole body: 408 for a body, a clean close for others */
	int64_t idle_timeout_us; /* keep-alive connections without a request */
	int64_t write_timeout_us; /* a client that takes nothing of its answer for so long is given up; 0 = 30 s */
	int64_t upload_us;        /* whole body that is taken in pieces; 0 = 1 h */
	unsigned connections_max; /* over it new ones get 503 and are closed; 0 = 20000 */
	/* Before a body is read: 0 to go on, or a status (413, 415, 401 ...) with *problem_body (borrowed text, application/problem+json)
	 * to refuse without reading it. May be NULL. */
	int (*on_headers)(void *arg, struct http_request *request, struct str *problem_body);
	http_handler_fn *handler; /* each request, whole; must reply now or later */
	/* A status was sent for which no handler runs: 413, 408, 400 ..., and what on_headers and pieces refuse. Only counts. May be NULL. */
	void (*on_refused)(void *arg, int status);
	void *arg;
};

/* Listens on "IP:PORT" or "[IPV6]:PORT" (port 0 = any free); NULL: nowhere yet. 0, or -errno (EADDRINUSE ...). */
int http_server_new(struct loop *loop, const char *address,
	const struct http_server_options *options, struct http_server **out) must_check;
/* More addresses for the same handler. */
int http_server_listen(struct http_server *server, const char *address) must_check;
/* The same at a socket that listens already and does not block; takes it over. Another process may have it open too, and then
 * accepts what is not accepted here when we are gone. */
void http_server_listen_fd(struct http_server *server, int fd);
unsigned http_server_port(const struct http_server *server); /* of the first address; 0 without */
/* From the next header or piece of a body on; a deadline that runs already stays. */
void http_server_set_limits(struct http_server *server, int64_t body_max, int64_t read_timeout_us);
/* All addresses speak TLS, from the next connection on; NULL: plain HTTP. Borrowed for the call. */
void http_server_set_tls(struct http_server *server, const struct http_tls *tls);
/* Stops accepting; requests in progress go on. */
void http_server_stop_accepting(struct http_server *server);
unsigned http_server_open_requests(
	const struct http_server *server); /* not answered, or not to their end */
uint64_t http_server_body_bytes(const struct http_server *server); /* what bodies_max bounds, now */
/* Closes everything; gone callbacks fire for unanswered requests. NULL is fine. */
void http_server_free(struct http_server *server);

/* Of a request; all borrowed until it is answered or gone. */
enum http_method http_request_method(const struct http_request *request);
const char *http_request_method_name(const struct http_request *request);
struct str http_request_path(
	const struct http_request *request); /* as sent, not decoded, without the query */
struct str http_request_query(const struct http_request *request); /* without '?'; may be absent */
struct str http_request_header(const struct http_request *request,
	const char *name); /* case-insensitive; absent if none */
struct str http_request_body(const struct http_request *request);
/* Gives the body's memory back before the answer: whoever waits has read it. It is empty from here on. */
void http_request_drop_body(struct http_request *request);
/* The same of its header: no name is found from here on. */
void http_request_drop_headers(struct http_request *request);
const char *http_request_peer(const struct http_request *request); /* "127.0.0.1:50312" */
/* Value of a query parameter, percent-decoded into out (cap bytes, NUL-terminated); false when absent or too long. */
bool http_request_param(
	const struct http_request *request, const char *name, char *out, size_t cap);

/* Before the reply: an extra response header. */
void http_request_add_header(struct http_request *request, const char *name, const char *value);
/* Answers and ends the request (the pointer is dead after it). body is copied; HEAD sends none. */
void http_request_reply(
	struct http_request *request, int status, const char *content_type, struct str body);
/* Answers and ends the request, like http_request_reply(). fd is taken over (and closed, whatever happens): length bytes of it from offset
 * on. When they cannot be read the connection is closed, so the client sees that it is not whole. */
void http_request_reply_file(struct http_request *request, int status, const char *content_type,
	int fd, int64_t offset, int64_t length);
/* Called once if the client goes away (or the server is freed) before the whole answer; request and stream are dead then. One at a time. */
void http_request_on_gone(struct http_request *request, http_gone_fn *fn, void *arg);

/*
 * Only in on_headers: the body will not be collected but given to fn as it arrives, whatever its framing, up to max bytes (413 beyond;
 * body_max and bodies_max do not count it). The handler then finds an empty body, and arg by http_request_body_arg().
 * In time means: never read_timeout_us without a piece, and upload_us for all of it; else 408.
 * Once on_headers has returned 0, either the handler is called or gone (http_request_on_gone(), best set beside this): the client has left in
 * mid-body, or it was refused, also by fn itself.
 */
void http_request_take_body(
	struct http_request *request, int64_t max, http_piece_fn *fn, void *arg);
/* While it is held, no more of a taken body is read than has arrived already, and its time stands still but for upload_us; the client is kept
 * waiting by TCP, and its going is noticed when it is let go. Not behind the end of the body. */
void http_request_hold_body(struct http_request *request, bool is_held);
void *http_request_body_arg(const struct http_request *request); /* NULL when it was not taken */

/*
 * Answers with a body in pieces; the request is dead after it, but what was given to http_request_on_gone() stays. length in bytes, or
 * -1 = not known: chunked, and for HTTP/1.0 until the close. The stream lives until http_stream_end(), _abort() or gone. To HEAD, and with a status
 * that has no body, nothing of it is sent.
 */
struct http_stream *http_request_stream(struct http_request *request, int status,
	const char *content_type, int64_t length) must_check;
/* Copied; what is beyond the announced length is cut off. Returns the bytes that wait for the client, now: see HTTP_STREAM_PENDING. */
size_t http_stream_write(struct http_stream *stream, struct str piece);
/* Called once in a later turn after writing, when nothing waits any more. */
void http_stream_on_drained(struct http_stream *stream, http_stream_fn *fn, void *arg);
void http_stream_on_gone(struct http_stream *stream, http_gone_fn *fn, void *arg);
/* The body is whole. With bytes of the announced length missing it is an abort. */
void http_stream_end(struct http_stream *stream);
/* Closes the connection in such a way that the client sees: it is not whole. No gone. */
void http_stream_abort(struct http_stream *stream);
const char *http_status_text(int status);
