/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http/server in pieces, against raw sockets: answers as streams and from files, and bodies that are taken as they come. Whatever the
 * client and the owner do, what is not whole never looks whole, and the owner hears of the end exactly once.
 */
#include "test/unit/rpc/http_raw.h"

#include <fcntl.h>

#include "reactor/base/mem.h"
#include "rpc/http/server.h"

#define BODY_MAX 1000
#define UPLOAD_MAX (1 << 20)
#define READ_TIMEOUT_US (250 * US_PER_MS)
#define WRITE_TIMEOUT_US (300 * US_PER_MS)
#define UPLOAD_US (600 * US_PER_MS)
#define FILE_BYTES (9 << 20)

struct fixture {
	struct loop *loop;
	struct http_server *server;
	struct raw_tls *tls; /* NULL = plain */
	struct http_stream *stream;
	unsigned n_handled, n_gone, n_drained, n_pieces;
	int refused[8];
	unsigned n_refused;
	uint64_t taken_bytes, taken_sum;
	int refuse_piece;           /* status for the next piece */
	struct http_request *taken; /* whose body is */
	bool hold_in_piece;
	bool free_in_piece, end_in_drained, abort_in_drained, free_in_drained;
	int file, given; /* descriptor given away */
	int64_t file_offset, file_length;
	char *pattern;
};

/* --- the server under test -------------------------------------------------------------------------------- */

static uint64_t sum_of(uint64_t sum, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum = sum * 31 + (unsigned char)p[i];
	return sum;
}

static void on_gone(void *arg)
{
	struct fixture *f = arg;

	f->n_gone++;
	f->stream = NULL;
}

static void on_drained(void *arg)
{
	struct fixture *f = arg;

	f->n_drained++;
	if (f->end_in_drained)
		http_stream_end(take_ptr(&f->stream));
	else if (f->abort_in_drained)
		http_stream_abort(take_ptr(&f->stream));
	else if (f->free_in_drained)
		http_server_free(take_ptr(&f->server));
}

static void start_stream(struct fixture *f, struct http_request *request)
{
	char text[32];
	int64_t length = -1, status = 200;

	if (http_request_param(request, "length", text, sizeof(text)))
		assert_true(str_to_i64(str_from(text), &length));
	if (http_request_param(request, "status", text, sizeof(text)))
		assert_true(str_to_i64(str_from(text), &status));
	http_request_on_gone(request, on_gone, f);
	f->stream = http_request_stream(request, (int)status, "text/plain", length);
	http_stream_on_drained(f->stream, on_drained, f);
}

static void handle(void *arg, struct http_request *request)
{
	struct fixture *f = arg;
	struct str path = http_request_path(request);
	char text[64];

	f->n_handled++;
	if (str_is(path, "/stream")) {
		start_stream(f, request);
	} else if (str_is(path, "/file")) {
		f->given = fcntl(f->file, F_DUPFD_CLOEXEC, 100);
		http_request_on_gone(request, on_gone, f);
		http_request_reply_file(request, 200, "application/octet-stream", f->given,
			f->file_offset, f->file_length);
	} else {
		snprintf(text, sizeof(text), "body=%zu taken=%d", http_request_body(request).n,
			http_request_body_arg(request) == f);
		http_request_reply(request, 200, "text/plain", str_from(text));
	}
}

static int on_piece(void *arg, struct str piece, struct str *problem)
{
	struct fixture *f = arg;

	f->n_pieces++;
	f->taken_bytes += piece.n;
	f->taken_sum = sum_of(f->taken_sum, piece.p, piece.n);
	*problem = STR("{\"code\":\"disk_full\"}");
	if (f->free_in_piece)
		http_server_free(take_ptr(&f->server));
	else if (f->hold_in_piece)
		http_request_hold_body(f->taken, true);
	return f->refuse_piece;
}

static int on_headers(void *arg, struct http_request *request, struct str *problem)
{
	struct fixture *f = arg;
	struct str path = http_request_path(request);

	if (str_is(path, "/upload") || str_is(path, "/upload/refused")) {
		http_request_on_gone(request, on_gone, f);
		f->taken = request;
		http_request_take_body(request, UPLOAD_MAX, on_piece, f);
	}
	*problem = STR("{\"code\":\"no\"}");
	return str_is(path, "/upload/refused") ? 403 : 0;
}

static void on_refused(void *arg, int status)
{
	struct fixture *f = arg;

	if (f->n_refused < ARRAY_SIZE(f->refused))
		f->refused[f->n_refused] = status;
	f->n_refused++;
}

static int setup_with(void **state, int64_t scale)
{
	struct fixture *f = mem_alloc(sizeof(*f));
	const struct http_server_options options = {
		.body_max = BODY_MAX,
		.read_timeout_us = READ_TIMEOUT_US * scale,
		.idle_timeout_us = READ_TIMEOUT_US * scale,
		.write_timeout_us = WRITE_TIMEOUT_US * scale,
		.upload_us = UPLOAD_US * scale,
		.on_headers = on_headers,
		.on_refused = on_refused,
		.handler = handle,
		.arg = f,
	};
	char path[] = "/tmp/conclave-test-XXXXXX";

	f->loop = loop_new(NULL);
	f->pattern = mem_alloc(FILE_BYTES);
	for (size_t i = 0; i < FILE_BYTES; i++)
		f->pattern[i] = (char)(i * 7 + i / 4096);
	f->file = mkstemp(path);
	assert_true(f->file >= 0);
	unlink(path);
	assert_int_equal(write(f->file, f->pattern, FILE_BYTES), FILE_BYTES);
	f->file_length = FILE_BYTES;
	f->given = -1;
	assert_int_equal(http_server_new(f->loop, "127.0.0.1:0", &options, &f->server), 0);
	if (*state) {
		f->tls = raw_tls_new();
		http_server_set_tls(f->server, f->tls->server);
	}
	*state = f;
	return 0;
}

/* Slow machines are no slow clients. */
static int setup(void **state)
{
	return setup_with(state, 100);
}

static int setup_hasty(void **state)
{
	return setup_with(state, 1);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	http_server_free(f->server);
	raw_tls_free(f->tls);
	loop_free(f->loop);
	close(f->file);
	free(f->pattern);
	free(f);
	return 0;
}

/* --- the client --------------------------------------------------------------------------------------------- */

static struct raw raw_open(struct fixture *f)
{
	struct raw raw = raw_open_port(f->loop, http_server_port(f->server));

	if (f->tls)
		raw_start_tls(&raw, f->tls->client);
	return raw;
}

static void await(struct fixture *f, const unsigned *counter, unsigned want)
{
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	while (*counter != want && clock_boot_us() < end_us)
		loop_turn(f->loop, 1000);
	assert_int_equal(*counter, want);
}

static void raw_await_text(struct raw *raw, const char *text)
{
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	while (!raw->closed && !(raw->in.data && strstr(raw->in.data, text)) &&
		clock_boot_us() < end_us)
		raw_pump(raw);
	if (!raw->in.data || !strstr(raw->in.data, text))
		fail_msg("wanted \"%s\" in %.300s", text, raw->in.data ? raw->in.data : "");
}

static struct str body_of(const struct raw *raw)
{
	const char *end = raw->in.data ? strstr(raw->in.data, "\r\n\r\n") : NULL;

	assert_non_null(end);
	return (struct str){end + 4, raw->in.len - (size_t)(end + 4 - raw->in.data)};
}

static void assert_body(const struct raw *raw, const char *text)
{
	struct str body = body_of(raw);

	if (!str_is(body, text))
		fail_msg("wanted \"%s\", got \"" STR_FMT "\"", text, STR_ARG(body));
}

/* A stream that has begun, on a new connection. */
static struct raw open_stream(struct fixture *f, const char *request)
{
	struct raw raw = raw_open(f);
	unsigned handled = f->n_handled;

	raw_text(&raw, request);
	await(f, &f->n_handled, handled + 1);
	assert_non_null(f->stream);
	return raw;
}

static void expect_healthy(struct fixture *f, struct raw *raw)
{
	again(raw);
	raw_text(raw, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok");
	raw_await(raw, false);
	expect_status(raw, 200);
	assert_body(raw, "body=2 taken=0");
}

static void expect_healthy_server(struct fixture *f)
{
	struct raw raw = raw_open(f);

	expect_healthy(f, &raw);
	raw_close(&raw);
	assert_int_equal(http_server_open_requests(f->server), 0);
}

static void assert_refused_once(const struct fixture *f, int status)
{
	assert_int_equal(f->n_refused, 1);
	assert_int_equal(f->refused[0], status);
}

/* --- streams: framing ------------------------------------------------------------------------------------- */

#define GET_STREAM "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"

static void test_chunks(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, GET_STREAM);

	raw_await_text(&raw, "\r\n\r\n"); /* the header does not wait for a body */
	assert_non_null(strstr(raw.in.data, "\r\nTransfer-Encoding: chunked\r\n"));
	assert_null(strstr(raw.in.data, "Content-Length"));
	assert_null(strstr(raw.in.data, "Connection:"));
	assert_int_equal(http_server_open_requests(f->server), 1);
	http_stream_write(f->stream, STR("hello"));
	raw_await_text(&raw, "hello\r\n"); /* nor does a piece for the next */
	assert_int_equal(http_stream_write(f->stream, STR("")), 0); /* would be the end */
	http_stream_write(f->stream, STR("0123456789abcdef"));
	http_stream_end(take_ptr(&f->stream));
	raw_await_text(&raw, "0\r\n\r\n");
	assert_body(&raw, "5\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n");
	assert_int_equal(http_server_open_requests(f->server), 0);
	expect_healthy(f, &raw);
	assert_int_equal(f->n_gone, 0);
	raw_close(&raw);
}

static void test_known_length(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, "GET /stream?length=8 HTTP/1.1\r\nHost: x\r\n\r\n");

	http_stream_write(f->stream, STR("hello"));
	http_stream_write(f->stream, STR("0123456789")); /* more than was announced */
	http_stream_write(f->stream, STR("more"));
	http_stream_end(take_ptr(&f->stream));
	raw_await(&raw, false);
	expect_status(&raw, 200);
	assert_body(&raw, "hello012");
	expect_healthy(f, &raw);
	raw_close(&raw);
}

static void test_http_1_0_until_the_close(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");

	http_stream_write(f->stream, STR("hello"));
	http_stream_end(take_ptr(&f->stream));
	raw_await_close(&raw);
	assert_false(raw.reset);
	assert_body(&raw, "hello");
	assert_null(strstr(raw.in.data, "chunked"));
	assert_non_null(strstr(raw.in.data, "\r\nConnection: close\r\n"));
	raw_close(&raw);
	expect_healthy_server(f);
}

static void test_http_1_0_with_length_stays(void **state)
{
	struct fixture *f = *state;
	struct raw raw =
		open_stream(f, "GET /stream?length=5 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");

	http_stream_write(f->stream, STR("hello"));
	http_stream_end(take_ptr(&f->stream));
	raw_await(&raw, false);
	assert_body(&raw, "hello");
	expect_healthy(f, &raw);
	raw_close(&raw);
}

static void test_connection_close_is_heard(void **state)
{
	struct fixture *f = *state;
	struct raw raw =
		open_stream(f, "GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");

	http_stream_write(f->stream, STR("hello"));
	http_stream_end(take_ptr(&f->stream));
	raw_await_close(&raw);
	assert_body(&raw, "5\r\nhello\r\n0\r\n\r\n");
	raw_close(&raw);
	expect_healthy_server(f);
}

/* To HEAD, and with statuses that have no body. */
static void no_body(struct fixture *f, const char *request)
{
	struct raw raw = open_stream(f, request);

	http_stream_write(f->stream, STR("hello"));
	await(f, &f->n_drained, f->n_drained + 1);
	http_stream_write(f->stream, STR("hello"));
	http_stream_end(take_ptr(&f->stream));
	raw_await_text(&raw, "\r\n\r\n");
	assert_body(&raw, "");
	expect_healthy(f, &raw);
	raw_close(&raw);
}

static void test_head_has_no_body(void **state)
{
	no_body(*state, "HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n");
	no_body(*state, "HEAD /stream?length=100 HTTP/1.1\r\nHost: x\r\n\r\n");
	no_body(*state, "HEAD /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
}

static void test_statuses_without_body(void **state)
{
	no_body(*state, "GET /stream?status=204 HTTP/1.1\r\nHost: x\r\n\r\n");
	no_body(*state, "GET /stream?status=304&length=10 HTTP/1.1\r\nHost: x\r\n\r\n");
}

static void test_empty_streams(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, GET_STREAM);

	http_stream_end(take_ptr(&f->stream));
	raw_await_text(&raw, "0\r\n\r\n");
	assert_body(&raw, "0\r\n\r\n");
	expect_healthy(f, &raw);
	raw_close(&raw);
	raw = open_stream(f, "GET /stream?length=0 HTTP/1.1\r\nHost: x\r\n\r\n");
	http_stream_end(take_ptr(&f->stream));
	raw_await(&raw, false);
	assert_body(&raw, "");
	expect_healthy(f, &raw);
	raw_close(&raw);
}

/* --- streams: what is not whole ------------------------------------------------------------------------------- */

static void test_abort_shows(void **state)
{
	static const struct {
		const char *request;
		bool reset;
	} rows[] = {
		{GET_STREAM, false}, {"GET /stream?length=10 HTTP/1.1\r\nHost: x\r\n\r\n", false},
		{"GET /stream HTTP/1.0\r\n\r\n", true}, /* a close alone would look like the end */
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct raw raw = open_stream(f, rows[i].request);

		http_stream_write(f->stream, STR("hello"));
		raw_await_text(&raw, "hello");
		http_stream_abort(take_ptr(&f->stream));
		raw_await_close(&raw);
		assert_int_equal(raw.reset, rows[i].reset);
		assert_null(strstr(raw.in.data, "\r\n0\r\n\r\n"));
		raw_close(&raw);
		assert_int_equal(f->n_gone, 0);
		expect_healthy_server(f);
	}
}

static void test_end_before_the_announced_length(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, "GET /stream?length=10 HTTP/1.1\r\nHost: x\r\n\r\n");

	http_stream_write(f->stream, STR("hello"));
	http_stream_end(take_ptr(&f->stream));
	raw_await_close(&raw);
	assert_body(&raw, "hello");
	assert_int_equal(f->n_gone, 0);
	raw_close(&raw);
	expect_healthy_server(f);
}

static void test_server_freed(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, GET_STREAM), old;

	old = open_stream(f, "GET /stream HTTP/1.0\r\n\r\n");
	http_stream_write(f->stream, STR("hello"));
	http_server_free(take_ptr(&f->server));
	assert_int_equal(f->n_gone, 2);
	raw_await_close(&raw);
	assert_null(strstr(raw.in.data, "0\r\n\r\n"));
	raw_await_close(&old);
	assert_true(old.reset);
	raw_close(&raw);
	raw_close(&old);
}

/* --- streams: clients -------------------------------------------------------------------------------------------- */

static void test_client_leaves(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, GET_STREAM);

	http_stream_write(f->stream, STR("hello"));
	raw_await_text(&raw, "hello");
	raw_close(&raw);
	await(f, &f->n_gone, 1);
	expect_healthy_server(f);
}

static void test_client_leaves_with_much_pending(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, GET_STREAM);

	while (http_stream_write(f->stream, (struct str){f->pattern, 1 << 16}) <=
		HTTP_STREAM_PENDING)
		;
	raw_close(&raw);
	await(f, &f->n_gone, 1);
	expect_healthy_server(f);
}

/* Hours of little, for all it knows: no deadline of a request concerns a stream. */
static void test_silence_is_no_end(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, GET_STREAM);
	int64_t end_us = clock_boot_us() + 2 * WRITE_TIMEOUT_US;

	while (clock_boot_us() < end_us)
		loop_turn(f->loop, 10000);
	assert_int_equal(f->n_gone, 0);
	http_stream_write(f->stream, STR("hello"));
	http_stream_end(take_ptr(&f->stream));
	raw_await_text(&raw, "0\r\n\r\n");
	expect_healthy(f, &raw);
	raw_close(&raw);
}

/* It is not answered, but it does not harm the stream. */
static void test_next_request_while_streaming(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, GET_STREAM);

	raw_text(&raw, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
	for (int i = 0; i < 5; i++)
		raw_pump(&raw);
	http_stream_write(f->stream, STR("hello"));
	http_stream_end(take_ptr(&f->stream));
	raw_await_close(&raw);
	assert_false(raw.reset);
	assert_body(&raw, "5\r\nhello\r\n0\r\n\r\n");
	assert_int_equal(f->n_handled, 1);
	raw_close(&raw);
	expect_healthy_server(f);
}

static void test_slow_reader(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, "GET /stream?length=9437184 HTTP/1.1\r\nHost: x\r\n\r\n");
	size_t written = 0, n = 0;
	unsigned drained;

	while (n <= HTTP_STREAM_PENDING && written < FILE_BYTES) {
		n = http_stream_write(f->stream, (struct str){f->pattern + written, 1 << 16});
		written += 1 << 16;
	}
	assert_true(written < FILE_BYTES);
	drained = f->n_drained;
	raw_pump(&raw);
	assert_int_equal(f->n_drained, drained); /* not before it is */
	while (written < FILE_BYTES) {
		size_t piece = FILE_BYTES - written < 1 << 19 ? FILE_BYTES - written : 1 << 19;

		while (f->n_drained == drained && !raw.closed)
			raw_pump(&raw);
		drained = f->n_drained;
		http_stream_write(f->stream, (struct str){f->pattern + written, piece});
		assert_int_equal(f->n_drained, drained); /* not from inside */
		written += piece;
	}
	http_stream_end(take_ptr(&f->stream));
	raw_await(&raw, false);
	assert_int_equal(body_of(&raw).n, FILE_BYTES);
	assert_memory_equal(body_of(&raw).p, f->pattern, FILE_BYTES);
	expect_healthy(f, &raw);
	raw_close(&raw);
}

static void test_end_with_much_pending(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, "GET /stream?length=9437184 HTTP/1.1\r\nHost: x\r\n\r\n");

	assert_true(http_stream_write(f->stream, (struct str){f->pattern, FILE_BYTES}) > 0);
	http_stream_end(take_ptr(&f->stream));
	raw_await(&raw, false);
	assert_int_equal(body_of(&raw).n, FILE_BYTES);
	assert_memory_equal(body_of(&raw).p, f->pattern, FILE_BYTES);
	assert_int_equal(f->n_drained, 0);
	expect_healthy(f, &raw);
	raw_close(&raw);
}

static void test_too_much_pending_is_cut(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, GET_STREAM);

	for (int i = 0; i < 4; i++)
		http_stream_write(f->stream, (struct str){f->pattern, FILE_BYTES});
	assert_int_equal(f->n_gone, 0); /* not from inside */
	await(f, &f->n_gone, 1);
	raw_await_close(&raw);
	raw_close(&raw);
	expect_healthy_server(f);
}

static void test_reader_that_does_not_read(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, GET_STREAM);
	int64_t start_us = clock_boot_us();

	assert_true(http_stream_write(f->stream, (struct str){f->pattern, FILE_BYTES}) > 0);
	await(f, &f->n_gone, 1);
	assert_true(clock_boot_us() - start_us >= WRITE_TIMEOUT_US / 2);
	raw_close(&raw);
	expect_healthy_server(f);
}

/* The same for an answer in one piece, and for a file. */
static void test_reader_that_does_not_read_an_end(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, GET_STREAM);
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	assert_true(http_stream_write(f->stream, (struct str){f->pattern, FILE_BYTES}) > 0);
	http_stream_end(take_ptr(&f->stream));
	for (int64_t late_us = clock_boot_us() + 2 * WRITE_TIMEOUT_US; clock_boot_us() < late_us;)
		loop_turn(f->loop, 10000);
	/* What is read now is what the socket held. */
	while (!raw.closed && clock_boot_us() < end_us)
		raw_pump(&raw);
	assert_true(raw.closed);
	assert_true(raw.in.len < FILE_BYTES);
	raw_close(&raw);
	expect_healthy_server(f);
}

/* --- streams: from inside drained ------------------------------------------------------------------------------- */

static void test_end_in_drained(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, GET_STREAM);

	f->end_in_drained = true;
	http_stream_write(f->stream, STR("hello"));
	raw_await_text(&raw, "0\r\n\r\n");
	assert_int_equal(f->n_drained, 1);
	expect_healthy(f, &raw);
	raw_close(&raw);
	/* And once more on one that closes. */
	raw = open_stream(f, "GET /stream HTTP/1.0\r\n\r\n");
	http_stream_write(f->stream, STR("hello"));
	raw_await_close(&raw);
	assert_body(&raw, "hello");
	raw_close(&raw);
}

static void test_abort_in_drained(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, GET_STREAM);

	f->abort_in_drained = true;
	http_stream_write(f->stream, (struct str){f->pattern, FILE_BYTES});
	raw_await_close(&raw);
	assert_true(raw.in.len > FILE_BYTES); /* all that was pending had left */
	assert_int_equal(f->n_gone, 0);
	raw_close(&raw);
	expect_healthy_server(f);
}

static void test_free_in_drained(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, GET_STREAM);

	f->free_in_drained = true;
	http_stream_write(f->stream, STR("hello"));
	raw_await_close(&raw);
	assert_int_equal(f->n_gone, 1);
	raw_close(&raw);
}

static void test_stop_accepting_lets_a_stream_end(void **state)
{
	struct fixture *f = *state;
	struct raw raw = open_stream(f, GET_STREAM);

	http_server_stop_accepting(f->server);
	http_stream_write(f->stream, STR("hello"));
	http_stream_end(take_ptr(&f->stream));
	raw_await_close(&raw);
	assert_body(&raw, "5\r\nhello\r\n0\r\n\r\n");
	raw_close(&raw);
}

/* --- files ----------------------------------------------------------------------------------------------------- */

static bool is_closed(int fd)
{
	return fcntl(fd, F_GETFD) == -1 && errno == EBADF;
}

static void get_file(struct fixture *f, struct raw *raw, const char *method)
{
	char text[64];
	unsigned handled = f->n_handled;

	snprintf(text, sizeof(text), "%s /file HTTP/1.1\r\nHost: x\r\n\r\n", method);
	raw_text(raw, text);
	await(f, &f->n_handled, handled + 1);
}

static void test_files(void **state)
{
	static const struct {
		int64_t offset, length;
	} rows[] = {{0, FILE_BYTES}, {1000001, 3000003}, {0, 5}, {FILE_BYTES, 0}, {0, 256 << 10},
		{1, (256 << 10) + 1}};
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		f->file_offset = rows[i].offset;
		f->file_length = rows[i].length;
		get_file(f, &raw, "GET");
		raw_await(&raw, false);
		expect_status(&raw, 200);
		assert_int_equal(body_of(&raw).n, rows[i].length);
		assert_memory_equal(
			body_of(&raw).p, f->pattern + rows[i].offset, (size_t)rows[i].length);
		assert_true(is_closed(f->given));
		again(&raw);
	}
	get_file(f, &raw, "HEAD");
	raw_await_text(&raw, "\r\n\r\n");
	assert_non_null(strstr(raw.in.data, "\r\nContent-Length: 262145\r\n"));
	assert_body(&raw, "");
	assert_true(is_closed(f->given));
	expect_healthy(f, &raw);
	assert_int_equal(f->n_gone, 0);
	raw_close(&raw);
}

/* A file somebody shortens, from the beginning or while it is sent. */
static void test_shorter_file_is_not_whole(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	f->file_length = FILE_BYTES + 1;
	get_file(f, &raw, "GET");
	raw_await_close(&raw);
	assert_int_equal(body_of(&raw).n, FILE_BYTES);
	assert_true(is_closed(f->given));
	raw_close(&raw);
	raw = raw_open(f);
	f->file_length = FILE_BYTES;
	get_file(f, &raw, "GET");
	assert_int_equal(ftruncate(f->file, 100), 0);
	raw_await_close(&raw);
	assert_true(body_of(&raw).n < FILE_BYTES);
	assert_true(is_closed(f->given));
	raw_close(&raw);
	expect_healthy_server(f);
}

static void test_unreadable_file(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);
	int own = f->file;

	f->file = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	get_file(f, &raw, "GET");
	raw_await_close(&raw);
	assert_body(&raw, "");
	assert_true(is_closed(f->given));
	close(f->file);
	f->file = own;
	raw_close(&raw);
	expect_healthy_server(f);
}

static void await_closed_file(struct fixture *f)
{
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	while (!is_closed(f->given) && clock_boot_us() < end_us)
		loop_turn(f->loop, 1000);
	assert_true(is_closed(f->given));
	assert_int_equal(http_server_open_requests(f->server), 0);
}

static void test_client_leaves_a_file(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	get_file(f, &raw, "GET");
	assert_false(is_closed(f->given));
	raw_close(&raw);
	await_closed_file(f);
	/* Or does not read. */
	raw = raw_open(f);
	get_file(f, &raw, "GET");
	await_closed_file(f);
	raw_close(&raw);
	/* Or the server ends. */
	raw = raw_open(f);
	get_file(f, &raw, "GET");
	http_server_free(take_ptr(&f->server));
	assert_true(is_closed(f->given));
	assert_int_equal(f->n_gone, 0); /* it was the server's by then */
	raw_close(&raw);
}

/* --- bodies that are taken -------------------------------------------------------------------------------------- */

static void upload_head(struct raw *raw, const char *path, size_t n)
{
	char head[128];

	snprintf(head, sizeof(head), "PUT %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
		path, n);
	raw_text(raw, head);
}

static void test_upload(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	for (int i = 0; i < 2; i++) {
		uint64_t held = http_server_body_bytes(f->server);

		f->taken_bytes = f->taken_sum = 0;
		upload_head(&raw, "/upload", UPLOAD_MAX);
		raw_send(&raw, f->pattern, UPLOAD_MAX / 2);
		for (int turn = 0; turn < 3; turn++)
			raw_pump(&raw);
		assert_true(f->taken_bytes > 0); /* before it is whole */
		assert_int_equal(http_server_body_bytes(f->server), held);
		raw_send(&raw, f->pattern + UPLOAD_MAX / 2, UPLOAD_MAX / 2);
		raw_await(&raw, false);
		expect_status(&raw, 200);
		assert_body(&raw, "body=0 taken=1");
		assert_int_equal(f->taken_bytes, UPLOAD_MAX);
		assert_true(f->taken_sum == sum_of(0, f->pattern, UPLOAD_MAX));
		expect_healthy(f, &raw);
		again(&raw);
	}
	assert_int_equal(f->n_gone, 0);
	/* What is not taken has the limit it had. */
	upload_head(&raw, "/other", BODY_MAX + 1);
	raw_await(&raw, false);
	expect_status(&raw, 413);
	raw_close(&raw);
	assert_refused_once(f, 413);
}

static void test_upload_in_chunks(void **state)
{
	static const char text[] =
		"PUT /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
		"3\r\nabc\r\n1\r\nd\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	for (size_t i = 0; i < sizeof(text) - 1; i++) {
		raw_send(&raw, text + i, 1);
		raw_pump(&raw);
	}
	raw_await(&raw, false);
	expect_status(&raw, 200);
	assert_body(&raw, "body=0 taken=1");
	assert_int_equal(f->n_pieces, 14);
	assert_int_equal(f->taken_bytes, 14);
	assert_true(f->taken_sum == sum_of(0, "abcd0123456789", 14));
	expect_healthy(f, &raw);
	raw_close(&raw);
}

static void test_upload_of_nothing(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	upload_head(&raw, "/upload", 0);
	raw_await(&raw, false);
	expect_status(&raw, 200);
	assert_body(&raw, "body=0 taken=1");
	assert_int_equal(f->n_pieces, 0);
	raw_close(&raw);
}

static void test_upload_expects_100(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(&raw, "PUT /upload HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
		       "Content-Length: 2000\r\n\r\n");
	raw_await(&raw, true);
	assert_string_equal(raw.in.data, "HTTP/1.1 100 Continue\r\n\r\n");
	again(&raw);
	raw_send(&raw, f->pattern, 2000);
	raw_await(&raw, false);
	expect_status(&raw, 200);
	raw_close(&raw);
}

/* The whole answer, although the client sends on, then the end; and word to the owner. */
static void expect_upload_refused(struct fixture *f, struct raw *raw, int status)
{
	raw_await(raw, false);
	expect_status(raw, status);
	raw_await_close(raw);
	expect_status(raw, status);
	assert_int_equal(f->n_gone, 1);
	assert_int_equal(f->n_handled, 0);
	assert_refused_once(f, status);
	raw_close(raw);
	expect_healthy_server(f);
}

static void test_upload_announced_too_large(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	upload_head(&raw, "/upload", UPLOAD_MAX + 1);
	expect_upload_refused(f, &raw, 413);
	assert_int_equal(f->n_pieces, 0);
}

static void test_upload_grows_too_large(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(&raw, "PUT /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 40; i++) {
		raw_text(&raw, "8000\r\n");
		raw_send(&raw, f->pattern, 0x8000);
		raw_text(&raw, "\r\n");
	}
	expect_upload_refused(f, &raw, 413);
	assert_true(f->taken_bytes <= UPLOAD_MAX);
}

static void test_piece_is_refused(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	f->refuse_piece = 507;
	upload_head(&raw, "/upload", UPLOAD_MAX);
	raw_send(&raw, f->pattern, UPLOAD_MAX);
	raw_await(&raw, false);
	assert_body(&raw, "{\"code\":\"disk_full\"}");
	expect_upload_refused(f, &raw, 507);
	assert_int_equal(f->n_pieces, 1);
}

static void test_refused_at_the_header(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	upload_head(&raw, "/upload/refused", 100);
	raw_await_close(&raw);
	expect_status(&raw, 403);
	assert_int_equal(f->n_gone, 0); /* it has said so itself */
	assert_int_equal(f->n_pieces, 0);
	assert_refused_once(f, 403);
	raw_close(&raw);
	expect_healthy_server(f);
}

static void test_upload_stalls(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);
	int64_t start_us = clock_boot_us();

	upload_head(&raw, "/upload", 100);
	raw_text(&raw, "hel");
	raw_await(&raw, false);
	assert_true(clock_boot_us() - start_us >= READ_TIMEOUT_US);
	expect_upload_refused(f, &raw, 408);
}

/* Longer than the read timeout in all, as long as it goes on; but not for ever. */
static void test_slow_upload(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);
	int64_t start_us = clock_boot_us(), now_us;
	size_t sent = 0;

	upload_head(&raw, "/upload", 100000);
	while ((now_us = clock_boot_us()) < start_us + READ_TIMEOUT_US * 3 / 2) {
		raw_send(&raw, "x", 1);
		sent++;
		raw_pump(&raw);
	}
	assert_int_equal(raw.in.len, 0);
	raw_send(&raw, f->pattern, 100000 - sent);
	raw_await(&raw, false);
	expect_status(&raw, 200);
	assert_int_equal(f->n_gone, 0);
	raw_close(&raw);
}

static void test_endless_upload(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);
	int64_t start_us = clock_boot_us();

	upload_head(&raw, "/upload", 1000000);
	while (!response_len(&raw, false) && clock_boot_us() < start_us + DEADLINE_US) {
		raw_send(&raw, "x", 1);
		raw_pump(&raw);
	}
	assert_true(clock_boot_us() - start_us >= UPLOAD_US);
	expect_upload_refused(f, &raw, 408);
}

/* Nothing is read and no time is counted against the client while it is held; then it goes on as if nothing had been. */
static void test_held_upload(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);
	int64_t start_us = clock_boot_us();

	f->hold_in_piece = true;
	upload_head(&raw, "/upload", 100);
	raw_text(&raw, "hel");
	await(f, &f->n_pieces, 1);
	raw_send(&raw, f->pattern, 97);
	while (clock_boot_us() < start_us + READ_TIMEOUT_US * 3 / 2)
		raw_pump(&raw);
	assert_int_equal(raw.in.len, 0);
	assert_int_equal(f->n_pieces, 1);
	f->hold_in_piece = false;
	http_request_hold_body(f->taken, false);
	raw_await(&raw, false);
	expect_status(&raw, 200);
	assert_int_equal(f->taken_bytes, 100);
	expect_healthy(f, &raw);
	raw_close(&raw);
}

/* Held in its last piece: there is nothing more to hold, and the connection is as good as any. */
static void test_held_at_the_end(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	f->hold_in_piece = true;
	upload_head(&raw, "/upload", 3);
	raw_text(&raw, "hel");
	raw_await(&raw, false);
	expect_status(&raw, 200);
	expect_healthy(f, &raw);
	raw_close(&raw);
}

static void test_client_leaves_an_upload(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	upload_head(&raw, "/upload", 100);
	raw_text(&raw, "hel");
	await(f, &f->n_pieces, 1);
	raw_close(&raw);
	await(f, &f->n_gone, 1);
	assert_int_equal(f->n_handled, 0);
	assert_int_equal(f->n_refused, 0);
	expect_healthy_server(f);
}

static void test_server_freed_under_an_upload(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	upload_head(&raw, "/upload", 100);
	raw_text(&raw, "hel");
	await(f, &f->n_pieces, 1);
	http_server_free(take_ptr(&f->server));
	assert_int_equal(f->n_gone, 1);
	raw_await_close(&raw);
	raw_close(&raw);
}

static void test_server_freed_inside_a_piece(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	f->free_in_piece = true;
	f->refuse_piece = 507;
	upload_head(&raw, "/upload", 100);
	raw_text(&raw, "hel");
	raw_await_close(&raw);
	assert_int_equal(raw.in.len, 0);
	assert_int_equal(f->n_gone, 1);
	raw_close(&raw);
}

/* --- what the server says by itself is told ------------------------------------------------------------------------- */

static void test_refusals_are_told(void **state)
{
	static const struct {
		const char *text;
		int status;
	} rows[] = {
		{"GET / HTTP/1.1\r\n\r\n", 400},
		{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc", 408},
		{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n", 413},
		{"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 505},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct raw raw = raw_open(f);

		f->n_refused = 0;
		raw_text(&raw, rows[i].text);
		raw_await_close(&raw);
		expect_status(&raw, rows[i].status);
		assert_refused_once(f, rows[i].status);
		raw_close(&raw);
	}
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
#define HASTY(fn) cmocka_unit_test_setup_teardown(fn, setup_hasty, teardown)

int main(void)
{
	struct CMUnitTest tests[] = {
		TEST(test_chunks),
		TEST(test_known_length),
		TEST(test_http_1_0_until_the_close),
		TEST(test_http_1_0_with_length_stays),
		TEST(test_connection_close_is_heard),
		TEST(test_head_has_no_body),
		TEST(test_statuses_without_body),
		TEST(test_empty_streams),
		TEST(test_abort_shows),
		TEST(test_end_before_the_announced_length),
		TEST(test_server_freed),
		TEST(test_client_leaves),
		TEST(test_client_leaves_with_much_pending),
		HASTY(test_silence_is_no_end),
		TEST(test_next_request_while_streaming),
		TEST(test_slow_reader),
		TEST(test_end_with_much_pending),
		TEST(test_too_much_pending_is_cut),
		HASTY(test_reader_that_does_not_read),
		HASTY(test_reader_that_does_not_read_an_end),
		TEST(test_end_in_drained),
		TEST(test_abort_in_drained),
		TEST(test_free_in_drained),
		TEST(test_stop_accepting_lets_a_stream_end),
		TEST(test_files),
		TEST(test_shorter_file_is_not_whole),
		TEST(test_unreadable_file),
		HASTY(test_client_leaves_a_file),
		TEST(test_upload),
		TEST(test_upload_in_chunks),
		TEST(test_upload_of_nothing),
		TEST(test_upload_expects_100),
		TEST(test_upload_announced_too_large),
		TEST(test_upload_grows_too_large),
		TEST(test_piece_is_refused),
		TEST(test_held_upload),
		TEST(test_held_at_the_end),
		TEST(test_refused_at_the_header),
		HASTY(test_upload_stalls),
		HASTY(test_slow_upload),
		HASTY(test_endless_upload),
		TEST(test_client_leaves_an_upload),
		TEST(test_server_freed_under_an_upload),
		TEST(test_server_freed_inside_a_piece),
		HASTY(test_refusals_are_told),
	};

	int failed = cmocka_run_group_tests_name("plain", tests, NULL, NULL);

	for (size_t i = 0; i < ARRAY_SIZE(tests); i++)
		tests[i].initial_state = (void *)"TLS";
	return failed + cmocka_run_group_tests_name("TLS", tests, NULL, NULL);
}
