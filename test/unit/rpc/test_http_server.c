/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http/server against raw sockets: whatever is sent, exactly one whole answer or a clean close comes back, and the server goes on
 * serving. The raw client lives on the same loop: it sends, turns the loop, and reads.
 */
#include "test/unit/rpc/http_raw.h"

#include <fcntl.h>
#include <time.h>

#include "reactor/base/mem.h"
#include "reactor/timer.h"
#include "rpc/http/server.h"

#define BODY_MAX 65536
#define READ_TIMEOUT_US (250 * US_PER_MS)
#define IDLE_TIMEOUT_US (400 * US_PER_MS)
#define BIG ((size_t)8 << 20)
#ifndef PSEUDORANDOM_ROUNDS
#define PSEUDORANDOM_ROUNDS 400
#endif

struct fixture {
	struct loop *loop;
	struct http_server *server;
	struct raw_tls *tls; /* NULL = plain */
	struct http_request *held;
	struct timer later;
	unsigned n_handled, n_gone;
	char *big;
};

/* --- the server under test -------------------------------------------------------------------------------- */

static void on_gone(void *arg)
{
	struct fixture *f = arg;

	f->n_gone++;
	f->held = NULL;
}

static void answer_later(void *arg)
{
	struct fixture *f = arg;

	http_request_reply(take_ptr(&f->held), 200, "text/plain", STR("late"));
}

static void handle_echo(struct fixture *f, struct http_request *request)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct str query = http_request_query(request);

	buf_addf(&text, "%s " STR_FMT "?" STR_FMT " ", http_request_method_name(request),
		STR_ARG(http_request_path(request)), STR_ARG(query.p ? query : STR("")));
	buf_add_str(&text, http_request_body(request));
	http_request_add_header(request, "X-Evil", "a\r\nInjected: yes");
	http_request_reply(request, 200, "text/plain", buf_str(&text));
}

static void handle(void *arg, struct http_request *request)
{
	struct fixture *f = arg;
	struct str path = http_request_path(request);

	f->n_handled++;
	if (str_is(path, "/wait")) {
		f->held = request;
		http_request_on_gone(request, on_gone, f);
	} else if (str_is(path, "/later")) {
		f->held = request;
		http_request_on_gone(request, on_gone, f);
		timer_start(&f->later, 20 * US_PER_MS);
	} else if (str_is(path, "/big")) {
		http_request_reply(request, 200, "text/plain", (struct str){f->big, BIG});
	} else if (str_is(path, "/empty")) {
		http_request_reply(request, 204, NULL, STR(""));
	} else if (str_is(path, "/forget")) {
		assert_non_null(http_request_header(request, "Host").p);
		http_request_drop_body(request);
		http_request_drop_headers(request);
		assert_int_equal(http_request_body(request).n, 0);
		assert_null(http_request_header(request, "Host").p);
		f->held = request;
		http_request_on_gone(request, on_gone, f);
	} else if (str_is(path, "/size")) {
		char text[32];

		snprintf(text, sizeof(text), "%zu", http_request_body(request).n);
		http_request_reply(request, 200, "text/plain", str_from(text));
	} else if (str_is(path, "/free")) {
		http_request_reply(request, 200, "text/plain", STR("bye"));
		http_server_free(take_ptr(&f->server));
	} else if (str_is(path, "/drop")) {
		http_server_free(take_ptr(&f->server));
	} else {
		handle_echo(f, request);
	}
}

static int on_headers(void *arg, struct http_request *request, struct str *problem)
{
	if (!str_is(http_request_path(request), "/secret") ||
		str_is(http_request_header(request, "x-key"), "right"))
		return 0;
	*problem = STR("{\"code\":\"unauthorized\"}");
	return 401;
}

static const struct http_server_options options = {
	.body_max = BODY_MAX,
	.read_timeout_us = READ_TIMEOUT_US,
	.idle_timeout_us = IDLE_TIMEOUT_US,
	.connections_max = 40,
	.on_headers = on_headers,
	.handler = handle,
};

static int setup_with(void **state, struct http_server_options o)
{
	struct fixture *f = mem_alloc(sizeof(*f));

	f->loop = loop_new(NULL);
	f->big = mem_alloc(BIG);
	memset(f->big, 'b', BIG);
	timer_init(&f->later, f->loop, answer_later, f);
	o.arg = f;
	assert_int_equal(http_server_new(f->loop, "127.0.0.1:0", &o, &f->server), 0);
	if (*state) {
		f->tls = raw_tls_new();
		http_server_set_tls(f->server, f->tls->server);
	}
	*state = f;
	return 0;
}

static int setup(void **state)
{
	return setup_with(state, options);
}

/* Nothing ends before it is whole, and four bodies are one too many. */
static int setup_bounded(void **state)
{
	struct http_server_options o = options;

	o.bodies_max = 4 * BODY_MAX - 1;
	o.read_timeout_us = DEADLINE_US;
	o.idle_timeout_us = DEADLINE_US;
	return setup_with(state, o);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	http_server_free(f->server);
	raw_tls_free(f->tls);
	timer_stop(&f->later);
	loop_free(f->loop);
	free(f->big);
	free(f);
	return 0;
}

static struct raw raw_open(struct fixture *f)
{
	struct raw raw = raw_open_port(f->loop, http_server_port(f->server));

	if (f->tls)
		raw_start_tls(&raw, f->tls->client);
	return raw;
}

static void pump_until(struct fixture *f, const unsigned *counter, unsigned want)
{
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	while (*counter != want && clock_boot_us() < end_us)
		loop_turn(f->loop, 1000);
	assert_int_equal(*counter, want);
}

static void expect_healthy(struct fixture *f)
{
	struct raw raw = raw_open(f);

	raw_text(&raw, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
	expect_status(&raw, 200);
	expect_text(&raw, "GET /health?");
	raw_close(&raw);
}

/* --- what works --------------------------------------------------------------------------------------------- */

static void test_keep_alive(void **state)
{
	struct raw raw = raw_open(*state);

	for (int i = 0; i < 3; i++) {
		raw_text(&raw,
			"POST /echo?a=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
		expect_status(&raw, 200);
		expect_text(&raw, "POST /echo?a=1 hello");
		again(&raw);
		/* A request without a body behind one with: nothing of the first may stick. */
		raw_text(&raw, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
		expect_status(&raw, 200);
		expect_text(&raw, "GET /echo? ");
		assert_null(strstr(raw.in.data, "Connection: close"));
		again(&raw);
	}
	raw_close(&raw);
}

static void test_headers_cannot_be_injected(void **state)
{
	struct raw raw = raw_open(*state);

	raw_text(&raw, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
	expect_status(&raw, 200);
	expect_text(&raw, "X-Evil: a  Injected: yes\r\n");
	raw_close(&raw);
}

static void test_head_has_no_body(void **state)
{
	struct raw raw = raw_open(*state);

	raw_text(&raw, "HEAD /echo HTTP/1.1\r\nHost: x\r\n\r\n");
	raw_await(&raw, true);
	expect_text(&raw, "\r\nContent-Length: 12\r\n");
	assert_int_equal(response_len(&raw, true), raw.in.len);
	again(&raw);
	raw_text(&raw, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
	expect_status(&raw, 200);
	raw_close(&raw);
}

static void test_no_content(void **state)
{
	struct raw raw = raw_open(*state);

	raw_text(&raw, "GET /empty HTTP/1.1\r\nHost: x\r\n\r\n");
	expect_status(&raw, 204);
	assert_null(strstr(raw.in.data, "Content-Length"));
	raw_close(&raw);
}

static void test_http_1_0_closes(void **state)
{
	struct raw raw = raw_open(*state);

	raw_text(&raw, "GET /echo HTTP/1.0\r\n\r\n");
	raw_await_close(&raw);
	expect_status(&raw, 200);
	raw_close(&raw);
}

static void test_connection_close_is_heard(void **state)
{
	struct raw raw = raw_open(*state);

	raw_text(&raw, "GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
	raw_await_close(&raw);
	expect_status(&raw, 200);
	expect_text(&raw, "\r\nConnection: close\r\n");
	raw_close(&raw);
}

static void test_big_reply_to_a_slow_reader(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(&raw, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
	/* Nothing is read until the server has filled the socket. */
	pump_until(f, &f->n_handled, 1);
	for (int i = 0; i < 20; i++)
		loop_turn(f->loop, 1000);
	expect_status(&raw, 200);
	assert_true(raw.in.len > BIG);
	again(&raw);
	raw_text(&raw, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
	expect_status(&raw, 200);
	raw_close(&raw);
}

static void test_reply_from_a_timer(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	for (int i = 0; i < 2; i++) {
		raw_text(&raw, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
		pump_until(f, &f->n_handled, (unsigned)i + 1);
		assert_int_equal(http_server_open_requests(f->server), 1);
		expect_status(&raw, 200);
		assert_int_equal(http_server_open_requests(f->server), 0);
		again(&raw);
	}
	raw_close(&raw);
}

static void test_bytewise(void **state)
{
	static const char *const methods[] = {"GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"};
	char text[128], want[64];

	for (size_t m = 0; m < ARRAY_SIZE(methods); m++) {
		struct raw raw = raw_open(*state);

		snprintf(text, sizeof(text),
			"%s /echo/path?query=1 HTTP/1.1\r\nHost: x\r\nContent-Length: "
			"5\r\n\r\nhello",
			methods[m]);
		snprintf(want, sizeof(want), "\r\n\r\n%s /echo/path?query=1 hello", methods[m]);
		for (size_t i = 0; text[i]; i++) {
			raw_send(&raw, text + i, 1);
			raw_pump(&raw);
		}
		expect_status(&raw, 200);
		expect_text(&raw, want);
		raw_close(&raw);
	}
}

/* More than the library reads at once. */
static void test_long_uri(void **state)
{
	struct raw raw = raw_open(*state);
	char text[8100], *at;

	for (size_t n = 4000; n < 8000; n += 999) {
		memset(text, 'u', sizeof(text));
		memcpy(text, "GET /", 5);
		strcpy(text + n, "?last=1 HTTP/1.1\r\nHost: x\r\n\r\n");
		raw_text(&raw, text);
		expect_status(&raw, 200);
		at = strstr(raw.in.data, "\r\n\r\nGET /u");
		assert_non_null(at);
		assert_memory_equal(at + 4, text, n + 7);
		again(&raw);
	}
	raw_close(&raw);
}

static void test_empty_lines_before_a_request(void **state)
{
	struct raw raw = raw_open(*state);

	raw_text(&raw, "\r\n");
	raw_pump(&raw);
	raw_text(&raw, "\r\n\nGET /e");
	raw_pump(&raw);
	raw_text(&raw, "cho HTTP/1.1\r\nHost: x\r\n\r\n");
	expect_status(&raw, 200);
	expect_text(&raw, "\r\n\r\nGET /echo? ");
	raw_close(&raw);
}

static void test_chunked_upload_bytewise(void **state)
{
	static const char text[] =
		"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
		"3\r\nabc\r\n1\r\nd\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
	struct raw raw = raw_open(*state);

	for (size_t i = 0; i < sizeof(text) - 1; i++) {
		raw_send(&raw, text + i, 1);
		raw_pump(&raw);
	}
	expect_status(&raw, 200);
	expect_text(&raw, " abcd0123456789");
	raw_close(&raw);
}

static void send_post(struct raw *raw, const char *path, const char *headers, size_t n)
{
	char head[512];
	char *body = mem_alloc(n + 1);

	memset(body, 'a', n);
	snprintf(head, sizeof(head), "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %zu\r\n\r\n",
		path, headers, n);
	raw_text(raw, head);
	raw_send(raw, body, n);
	free(body);
}

static void test_body_at_the_limit(void **state)
{
	struct raw raw = raw_open(*state);

	send_post(&raw, "/size", "", BODY_MAX);
	expect_status(&raw, 200);
	expect_text(&raw, "\r\n\r\n65536");
	raw_close(&raw);
}

/* The library would parse a form it has buffered on its stack. */
static void test_large_form_is_just_bytes(void **state)
{
	struct fixture *f = *state;
	struct http_server_options o = options;
	struct http_server *large;
	struct raw raw;

	o.arg = f;
	o.body_max = 64 << 20;
	o.read_timeout_us = DEADLINE_US;
	assert_int_equal(http_server_new(f->loop, "127.0.0.1:0", &o, &large), 0);
	raw = raw_open_port(f->loop, http_server_port(large));
	send_post(&raw, "/size", "Content-Type: application/x-www-form-urlencoded\r\n",
		(size_t)20 << 20);
	expect_status(&raw, 200);
	expect_text(&raw, "\r\n\r\n20971520");
	raw_close(&raw);
	http_server_free(large);
}

static void test_expect_100_continue(void **state)
{
	struct raw raw = raw_open(*state);

	raw_text(&raw, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: "
		       "2\r\n\r\n");
	raw_await(&raw, true);
	assert_string_equal(raw.in.data, "HTTP/1.1 100 Continue\r\n\r\n");
	again(&raw);
	raw_text(&raw, "ok");
	expect_status(&raw, 200);
	expect_text(&raw, " ok");
	raw_close(&raw);
}

static void test_expect_is_refused_without_100(void **state)
{
	struct raw raw = raw_open(*state);

	raw_text(&raw, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: "
		       "99999\r\n\r\n");
	expect_status(&raw, 413);
	raw_close(&raw);
}

/* --- refusals: one whole problem document, then the end ---------------------------------------------------- */

struct bad_input {
	const char *text;
	int status; /* 0 = a clean close without answer */
};

static const struct bad_input bad_inputs[] = {
	{"\x16\x03\x01\x02\x01\x01", 0},
	{"garbage\r\n\r\n", 0},
	{"GET\r\n\r\n", 0},
	{"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 505},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 0},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", 0},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n", 0},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\ncontent-length: 3\r\n\r\nabc", 400},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: "
	 "chunked\r\n\r\n0\r\n\r\n",
		400},
	{"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: "
	 "3\r\n\r\n0\r\n\r\n",
		400},
	{"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n", 413},
	{"GET / HTTP/1.1\r\n\r\n", 400},
	{"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\nhello", 400},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length\t: 5\r\n\r\nhello", 400},
	{"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\nContent-Length: "
	 "5\r\n\r\n0\r\n\r\n",
		400},
	{"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400},
	{"GET / HTTP/1.1\r\nHost: x\r\nX Y: z\r\n\r\n", 400},
	{"GET / HTTP/1.1\r\nHost: x\r\nX(Y): z\r\n\r\n", 400},
	{"GET / HTTP/1.1\r\nHost: x\r\n: z\r\n\r\n", 0},
	{"POST /secret HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 401},
	{"POST /secret HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n", 401},
	{"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 0},
};

static void test_bad_inputs(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(bad_inputs); i++) {
		struct raw raw = raw_open(f);
		unsigned handled = f->n_handled;

		raw_text(&raw, bad_inputs[i].text);
		raw_await_close(&raw);
		/* Either the parser gives up at once or we answer: never both, never a handler. */
		if (bad_inputs[i].status)
			expect_status(&raw, bad_inputs[i].status);
		else if (raw.in.len)
			fail_msg("input %zu: %.200s", i, raw.in.data);
		assert_int_equal(f->n_handled, handled);
		raw_close(&raw);
		expect_healthy(f);
	}
}

static void test_blank_behind_a_header_name(void **state)
{
	struct raw raw = raw_open(*state);

	raw_text(&raw, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\nhello");
	raw_await_close(&raw);
	expect_status(&raw, 400);
	expect_text(&raw, "\"header_name_invalid\"");
	raw_close(&raw);
}

static void test_right_key_is_let_in(void **state)
{
	struct raw raw = raw_open(*state);

	raw_text(&raw,
		"POST /secret HTTP/1.1\r\nHost: x\r\nX-Key: right\r\nContent-Length: 3\r\n\r\nabc");
	expect_status(&raw, 200);
	raw_close(&raw);
}

/* The client sends all of a refused body before it reads: the answer must survive that. */
static void test_answer_survives_a_body_still_being_sent(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	send_post(&raw, "/echo", "", (size_t)4 << 20);
	raw_await_close(&raw);
	expect_status(&raw, 413);
	assert_int_equal(f->n_handled, 0);
	raw_close(&raw);
	expect_healthy(f);
}

static void test_chunks_over_the_limit(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);
	char chunk[4096 + 16];
	int head = snprintf(chunk, sizeof(chunk), "1000\r\n");

	memset(chunk + head, 'c', 4096);
	memcpy(chunk + head + 4096, "\r\n", 2);
	raw_text(&raw, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 100; i++)
		raw_send(&raw, chunk, (size_t)head + 4096 + 2);
	raw_text(&raw, "0\r\n\r\n");
	raw_await_close(&raw);
	expect_status(&raw, 413);
	assert_int_equal(f->n_handled, 0);
	raw_close(&raw);
	expect_healthy(f);
}

static void test_slow_body_gets_408(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);
	int64_t start_us = clock_boot_us();

	raw_text(&raw, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel");
	expect_status(&raw, 408);
	assert_true(clock_boot_us() - start_us >= READ_TIMEOUT_US);
	raw_await_close(&raw);
	expect_status(&raw, 408);
	assert_int_equal(f->n_handled, 0);
	raw_close(&raw);
	expect_healthy(f);
}

/* Dribbling does not extend the deadline. */
static void test_dribbled_body_gets_408(void **state)
{
	struct raw raw = raw_open(*state);
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	raw_text(&raw, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
	while (!response_len(&raw, false) && clock_boot_us() < end_us) {
		raw_send(&raw, "x", 1);
		raw_pump(&raw);
	}
	expect_status(&raw, 408);
	raw_close(&raw);
}

static void test_slow_header_is_closed(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(&raw, "GET /echo HTTP/1.1\r\nHost: x\r\nX-");
	raw_await_close(&raw);
	assert_int_equal(raw.in.len, 0);
	raw_close(&raw);
	expect_healthy(f);
}

/* As a header, not as an idle connection: whatever the piece that came. */
static void test_slow_request_line_is_closed(void **state)
{
	static const char *const pieces[] = {
		"G", "GET /ec", "GET /echo\r\n", "\r\n", "\r\n\r\nGET"};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		struct raw raw = raw_open(f);
		int64_t start_us = clock_boot_us();

		raw_text(&raw, pieces[i]);
		raw_await_close(&raw);
		assert_int_equal(raw.in.len, 0);
		assert_in_range(clock_boot_us() - start_us, READ_TIMEOUT_US, IDLE_TIMEOUT_US - 1);
		raw_close(&raw);
	}
	expect_healthy(f);
}

static void test_blank_lines_before_a_request(void **state)
{
	struct raw raw = raw_open(*state);

	raw_text(&raw, "\r\n\n\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n");
	expect_status(&raw, 200);
	again(&raw);
	raw_text(&raw, "\r\n");
	raw_pump(&raw);
	raw_text(&raw, "\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n");
	expect_status(&raw, 200);
	expect_text(&raw, "GET /b?");
	raw_close(&raw);
}

static void test_idle_connection_is_closed(void **state)
{
	struct raw raw = raw_open(*state);

	raw_text(&raw, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
	expect_status(&raw, 200);
	raw_await_close(&raw);
	expect_status(&raw, 200);
	raw_close(&raw);
}

static void test_too_many_headers(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(&raw, "GET /echo HTTP/1.1\r\nHost: x\r\n");
	for (int i = 0; i < 10000; i++)
		raw_text(&raw, "X-A: b\r\n");
	raw_text(&raw, "\r\n");
	raw_await_close(&raw);
	assert_int_equal(raw.in.len, 0);
	assert_int_equal(f->n_handled, 0);
	raw_close(&raw);
	expect_healthy(f);
}

static void test_too_long_headers(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);
	char line[8000];

	memset(line, 'v', sizeof(line));
	memcpy(line, "X-A: ", 5);
	memcpy(line + sizeof(line) - 3, "\r\n", 3);
	raw_text(&raw, "GET /echo HTTP/1.1\r\nHost: x\r\n");
	for (int i = 0; i < 20; i++)
		raw_text(&raw, line);
	raw_text(&raw, "\r\n");
	raw_await_close(&raw);
	assert_int_equal(raw.in.len, 0);
	raw_close(&raw);
	expect_healthy(f);
}

static void test_endless_header_line(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);
	char block[65536];

	memset(block, 'a', sizeof(block));
	raw_text(&raw, "GET /");
	raw_send(&raw, block, sizeof(block));
	raw_await_close(&raw);
	assert_int_equal(raw.in.len, 0);
	raw_close(&raw);
	expect_healthy(f);
}

/* --- requests that overlap --------------------------------------------------------------------------------- */

static void test_pipelined_requests_get_one_answer_and_a_close(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(&raw, "GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\nGET /c "
		       "HTTP/1.1\r\nHost: x\r\n\r\n");
	raw_await_close(&raw);
	expect_status(&raw, 200);
	expect_text(&raw, "GET /a?");
	expect_text(&raw, "Connection: close");
	assert_int_equal(f->n_handled, 1);
	raw_close(&raw);
	expect_healthy(f);
}

static void test_pipelined_posts_get_one_answer_and_a_close(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(&raw, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1"
		       "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n2");
	raw_await_close(&raw);
	expect_status(&raw, 200);
	expect_text(&raw, "Connection: close");
	assert_int_equal(f->n_handled, 1);
	raw_close(&raw);
}

static void test_body_larger_than_announced(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(&raw, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcdefgh");
	raw_await_close(&raw);
	expect_status(&raw, 200);
	expect_text(&raw, " abc");
	assert_int_equal(f->n_handled, 1);
	raw_close(&raw);
	expect_healthy(f);
}

static void test_next_request_while_waiting_is_dropped(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(&raw, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
	pump_until(f, &f->n_handled, 1);
	raw_text(&raw, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
	raw_await_close(&raw);
	expect_status(&raw, 200);
	expect_text(&raw, "Connection: close");
	assert_int_equal(f->n_handled, 1);
	assert_int_equal(f->n_gone, 0);
	raw_close(&raw);
	expect_healthy(f);
}

static void test_next_request_does_not_hide_a_leave(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(
		&raw, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\nGET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
	pump_until(f, &f->n_handled, 1);
	raw_text(&raw, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
	raw_close(&raw);
	pump_until(f, &f->n_gone, 1);
	expect_healthy(f);
}

/* More than one read takes: closing over the rest would reset the connection, and take the answer with it. */
static void pipeline(struct fixture *f, const char *first, size_t answer_min)
{
	struct raw raw = raw_open(f);
	struct buf all cleanup(buf_fini) = BUF_INIT;

	buf_add_str(&all, str_from(first));
	for (int i = 0; i < 40000; i++)
		buf_add_str(&all, STR("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"));
	raw_send(&raw, all.data, all.len);
	raw_await_close(&raw);
	expect_status(&raw, 200);
	assert_true(raw.in.len > answer_min);
	assert_int_equal(f->n_handled, 1);
	raw_close(&raw);
	f->n_handled = 0;
	expect_healthy(f);
	f->n_handled = 0;
}

static void test_a_megabyte_of_requests_gets_one_answer(void **state)
{
	pipeline(*state, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", 0);
	pipeline(*state, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n", 0);
	pipeline(*state, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n", BIG);
}

/* --- clients that leave --------------------------------------------------------------------------------------- */

static void wait_then(struct fixture *f, bool reset, bool half)
{
	struct raw raw = raw_open(f);
	struct linger hard = {.l_onoff = 1};
	unsigned handled = f->n_handled, gone = f->n_gone;

	raw_text(&raw, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
	pump_until(f, &f->n_handled, handled + 1);
	/* A wait is not bound by the read timeout. */
	for (int64_t end_us = clock_boot_us() + READ_TIMEOUT_US + 50 * US_PER_MS;
		clock_boot_us() < end_us;)
		loop_turn(f->loop, 10000);
	assert_int_equal(f->n_gone, gone);
	if (reset)
		setsockopt(raw.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	if (half)
		shutdown(raw.fd, SHUT_WR);
	else
		raw_close(&raw);
	pump_until(f, &f->n_gone, gone + 1);
	assert_int_equal(http_server_open_requests(f->server), 0);
	if (half)
		raw_close(&raw);
	expect_healthy(f);
}

static void test_closed_while_waiting(void **state)
{
	wait_then(*state, false, false);
}

static void test_reset_while_waiting(void **state)
{
	wait_then(*state, true, false);
}

static void test_half_closed_while_waiting(void **state)
{
	wait_then(*state, false, true);
}

/* The library looks at errno on an end of file, where nobody has set it. */
static void test_closed_while_errno_says_again(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(&raw, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
	pump_until(f, &f->n_handled, 1);
	raw_close(&raw);
	for (int i = 0; i < 1000 && !f->n_gone; i++) {
		errno = EAGAIN;
		loop_turn(f->loop, 1000);
	}
	assert_int_equal(f->n_gone, 1);
}

static void test_half_close_right_behind_the_request(void **state)
{
	struct raw raw = raw_open(*state);

	raw_text(&raw, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
	shutdown(raw.fd, SHUT_WR);
	raw_await_close(&raw);
	expect_status(&raw, 200);
	raw_close(&raw);
}

static void test_left_in_mid_body(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(&raw, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nabc");
	raw_pump(&raw);
	raw_close(&raw);
	expect_healthy(f);
	assert_int_equal(f->n_handled, 1);
	assert_int_equal(f->n_gone, 0);
}

static void test_left_before_a_big_reply_is_read(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(&raw, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
	pump_until(f, &f->n_handled, 1);
	raw_close(&raw);
	expect_healthy(f);
	assert_int_equal(http_server_open_requests(f->server), 0);
}

/* --- bodies together ---------------------------------------------------------------------------------------------- */

/* A header that announces BODY_MAX bytes, and n of them. */
static void send_part(struct fixture *f, struct raw *raw, size_t n)
{
	char head[128];

	snprintf(head, sizeof(head), "POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
		BODY_MAX);
	raw_text(raw, head);
	raw_send(raw, f->big, n);
}

static void await_body_bytes(struct fixture *f, uint64_t want)
{
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	while (http_server_body_bytes(f->server) != want && clock_boot_us() < end_us)
		loop_turn(f->loop, 1000);
	assert_int_equal(http_server_body_bytes(f->server), want);
}

static void test_bodies_together_are_bounded(void **state)
{
	struct fixture *f = *state;
	const uint64_t whole = BODY_MAX; /* with the NUL, as a byte is missing */
	struct raw some[3], late;

	for (size_t i = 0; i < ARRAY_SIZE(some); i++) {
		some[i] = raw_open(f);
		send_part(f, &some[i], BODY_MAX - 1);
		await_body_bytes(f, (i + 1) * whole);
	}
	late = raw_open(f);
	send_part(f, &late, BODY_MAX - 1);
	raw_await(&late, false);
	expect_status(&late, 503);
	expect_text(&late, "\"busy\"");
	await_body_bytes(f, 3 * whole); /* although it is still being read */
	raw_close(&late);
	/* An answer gives back, and so does leaving. */
	raw_text(&some[0], "!");
	expect_status(&some[0], 200);
	expect_text(&some[0], "\r\n\r\n65536");
	await_body_bytes(f, 2 * whole);
	raw_close(&some[1]);
	await_body_bytes(f, whole);
	again(&some[0]);
	send_part(f, &some[0], BODY_MAX);
	expect_status(&some[0], 200);
	raw_close(&some[0]);
	raw_close(&some[2]);
	await_body_bytes(f, 0);
	expect_healthy(f);
}

static void test_small_body_keeps_its_block(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	for (int i = 0; i < 3; i++) {
		send_post(&raw, "/size", "", 1000);
		expect_status(&raw, 200);
		assert_int_equal(http_server_body_bytes(f->server), 1024);
		again(&raw);
	}
	raw_close(&raw);
	await_body_bytes(f, 0);
}

static void test_dropped_body_is_given_back(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	send_post(&raw, "/forget", "", BODY_MAX);
	pump_until(f, &f->n_handled, 1);
	assert_int_equal(http_server_body_bytes(f->server), 0);
	answer_later(f);
	expect_status(&raw, 200);
	again(&raw);
	send_post(&raw, "/size", "", 5);
	expect_status(&raw, 200);
	expect_text(&raw, "\r\n\r\n5");
	/* And once more for one that leaves. */
	again(&raw);
	send_post(&raw, "/forget", "", BODY_MAX);
	pump_until(f, &f->n_handled, 3);
	raw_close(&raw);
	pump_until(f, &f->n_gone, 1);
	await_body_bytes(f, 0);
}

/* --- limits that change ------------------------------------------------------------------------------------------- */

static void test_limits_change(void **state)
{
	struct fixture *f = *state;
	struct raw old = raw_open(f), fresh;

	send_post(&old, "/size", "", BODY_MAX);
	expect_status(&old, 200);
	again(&old);
	/* More than the library's own limit for a connection that was there before. */
	http_server_set_limits(f->server, 80 << 20, DEADLINE_US);
	send_post(&old, "/size", "", 70 << 20);
	expect_status(&old, 200);
	expect_text(&old, "\r\n\r\n73400320");
	again(&old);
	http_server_set_limits(f->server, 1000, READ_TIMEOUT_US);
	send_post(&old, "/size", "", 1000);
	expect_status(&old, 200);
	again(&old);
	send_post(&old, "/size", "", 1001);
	expect_status(&old, 413);
	raw_close(&old);
	fresh = raw_open(f);
	send_post(&fresh, "/size", "", 1001);
	expect_status(&fresh, 413);
	raw_close(&fresh);
}

static void test_limits_change_under_a_body(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	send_part(f, &raw, 2000);
	await_body_bytes(f, 2048);
	http_server_set_limits(f->server, 1000, READ_TIMEOUT_US);
	raw_text(&raw, "x");
	raw_await(&raw, false);
	expect_status(&raw, 413);
	raw_close(&raw);
	/* The time for the next one is new as well. */
	raw = raw_open(f);
	raw_text(&raw, "POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel");
	expect_status(&raw, 408);
	raw_close(&raw);
}

/* --- many ------------------------------------------------------------------------------------------------------ */

static void test_too_many_connections_hear_503(void **state)
{
	struct fixture *f = *state;
	struct raw many[40], one;

	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = raw_open(f);
	one = raw_open(f);
	raw_text(&one, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
	raw_await_close(&one);
	expect_status(&one, 503);
	raw_close(&one);
	raw_text(&many[0], "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
	expect_status(&many[0], 200);
	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		raw_close(&many[i]);
	for (int i = 0; i < 10; i++)
		loop_turn(f->loop, 1000);
	expect_healthy(f);
}

/* Far over the maximum nobody is heard any more, but nothing else suffers. */
static void test_flood_of_connections(void **state)
{
	struct fixture *f = *state;
	struct raw many[320];
	unsigned closed = 0;

	for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
		many[i] = raw_open(f);
		raw_pump(&many[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
		raw_pump(&many[i]);
		closed += many[i].closed;
		assert_int_equal(many[i].in.len, 0);
	}
	assert_true(closed > 0);
	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		raw_close(&many[i]);
	for (int i = 0; i < 50; i++)
		loop_turn(f->loop, 1000);
	expect_healthy(f);
}

/* Words of the protocol in any order behind a plausible start, in pieces of any size. */
static void send_pseudorandom(struct raw *raw, uint64_t *seed)
{
	static const char *const words[] = {"GET ", "POST ", "/", " HTTP/1.1\r\n", "Host: x\r\n",
		"\r\n", "\r\n\r\n", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n",
		"5\r\n", "hello", "0\r\n\r\n", ": ", "?a=%zz", "\n", "\t", "#",
		"Expect: 100-continue\r\n", "Connection: keep-alive\r\n", " HTTP/1.0\r\n"};
	static const char *const starts[] = {"GET ", "POST /", "GET / HTTP/1.1\r\nHost: x\r\n",
		"POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"};

	for (int i = 0; i < 12; i++) {
		unsigned draw;
		char c;

		*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		draw = (unsigned)(*seed >> 33);
		c = (char)(*seed >> 40);
		if (i == 0)
			raw_text(raw, starts[draw % ARRAY_SIZE(starts)]);
		else if ((*seed >> 60) == 0)
			raw_send(raw, &c, 1);
		else
			raw_text(raw, words[draw % ARRAY_SIZE(words)]);
		if ((*seed >> 58 & 7) == 0)
			raw_pump(raw);
	}
}

static void test_pseudorandom_bytes(void **state)
{
	struct fixture *f = *state;
	uint64_t seed = 20261128;

	for (int round = 0; round < PSEUDORANDOM_ROUNDS; round++) {
		struct raw raw = raw_open(f);

		send_pseudorandom(&raw, &seed);
		for (int i = 0; i < 3; i++)
			raw_pump(&raw);
		if (raw.in.len)
			assert_int_equal(strncmp(raw.in.data, "HTTP/1.1 ", 9), 0);
		raw_close(&raw);
	}
	expect_healthy(f);
	assert_int_equal(http_server_open_requests(f->server), 0);
}

/* --- the server's own life --------------------------------------------------------------------------------------- */

static void test_addresses(void **state)
{
	struct fixture *f = *state;
	struct http_server *other = NULL;
	char address[32];

	snprintf(address, sizeof(address), "127.0.0.1:%u", http_server_port(f->server));
	assert_int_equal(http_server_new(f->loop, address, &options, &other), -EADDRINUSE);
	assert_int_equal(http_server_new(f->loop, "nonsense", &options, &other), -EINVAL);
	assert_int_equal(http_server_listen(f->server, "127.0.0.2:0"), 0);
}

/* What a worker that died has not accepted, the next one at the same socket does. */
static void test_takes_over_a_socket(void **state)
{
	struct fixture *f = *state;
	struct http_server_options o = options;
	struct http_server *a = NULL, *b = NULL;
	struct sockaddr_in sin = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct raw raw;
	unsigned port;

	o.arg = f;
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(listen(fd, 16), 0);
	assert_int_equal(http_server_new(f->loop, NULL, &o, &a), 0);
	assert_int_equal(http_server_port(a), 0);
	http_server_listen_fd(a, fcntl(fd, F_DUPFD_CLOEXEC, 3));
	port = http_server_port(a);
	raw = raw_open_port(f->loop, port);
	raw_text(&raw, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
	expect_status(&raw, 200);
	raw_close(&raw);
	http_server_free(a);
	loop_turn(f->loop, 0);
	raw = raw_open_port(f->loop, port);
	raw_text(&raw, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
	assert_int_equal(http_server_new(f->loop, NULL, &o, &b), 0);
	http_server_listen_fd(b, fd);
	assert_int_equal(http_server_port(b), port);
	expect_status(&raw, 200);
	raw_close(&raw);
	http_server_free(b);
}

static int try_connect(unsigned port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	r = connect(fd, (struct sockaddr *)&sin, sizeof(sin));
	close(fd);
	return r;
}

static void test_stop_accepting(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);
	unsigned port = http_server_port(f->server);

	raw_text(&raw, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
	pump_until(f, &f->n_handled, 1);
	http_server_stop_accepting(f->server);
	assert_int_equal(try_connect(port), -1);
	answer_later(f);
	raw_await_close(&raw);
	expect_status(&raw, 200);
	expect_text(&raw, "Connection: close");
	raw_close(&raw);
}

static void test_free_with_waiting_requests(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(&raw, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
	pump_until(f, &f->n_handled, 1);
	http_server_free(take_ptr(&f->server));
	assert_int_equal(f->n_gone, 1);
	raw_await_close(&raw);
	assert_int_equal(raw.in.len, 0);
	raw_close(&raw);
}

static void test_free_inside_the_handler(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f), other = raw_open(f);

	raw_text(&other, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
	pump_until(f, &f->n_handled, 1);
	raw_text(&raw, "GET /free HTTP/1.1\r\nHost: x\r\n\r\n");
	raw_await_close(&raw);
	expect_status(&raw, 200);
	assert_int_equal(f->n_gone, 1);
	raw_await_close(&other);
	raw_close(&raw);
	raw_close(&other);
}

static void test_free_inside_the_handler_unanswered(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(&raw, "GET /drop HTTP/1.1\r\nHost: x\r\n\r\n");
	raw_await_close(&raw);
	assert_int_equal(raw.in.len, 0);
	raw_close(&raw);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
#define BOUNDED(fn) cmocka_unit_test_setup_teardown(fn, setup_bounded, teardown)

int main(void)
{
	struct CMUnitTest tests[] = {
		TEST(test_keep_alive),
		TEST(test_headers_cannot_be_injected),
		TEST(test_head_has_no_body),
		TEST(test_no_content),
		TEST(test_http_1_0_closes),
		TEST(test_connection_close_is_heard),
		TEST(test_big_reply_to_a_slow_reader),
		TEST(test_reply_from_a_timer),
		TEST(test_bytewise),
		TEST(test_long_uri),
		TEST(test_empty_lines_before_a_request),
		TEST(test_chunked_upload_bytewise),
		TEST(test_body_at_the_limit),
		TEST(test_large_form_is_just_bytes),
		TEST(test_expect_100_continue),
		TEST(test_expect_is_refused_without_100),
		TEST(test_bad_inputs),
		TEST(test_blank_behind_a_header_name),
		TEST(test_right_key_is_let_in),
		TEST(test_answer_survives_a_body_still_being_sent),
		TEST(test_chunks_over_the_limit),
		TEST(test_slow_body_gets_408),
		TEST(test_dribbled_body_gets_408),
		TEST(test_slow_header_is_closed),
		TEST(test_slow_request_line_is_closed),
		TEST(test_blank_lines_before_a_request),
		TEST(test_idle_connection_is_closed),
		TEST(test_too_many_headers),
		TEST(test_too_long_headers),
		TEST(test_endless_header_line),
		TEST(test_pipelined_requests_get_one_answer_and_a_close),
		TEST(test_pipelined_posts_get_one_answer_and_a_close),
		TEST(test_body_larger_than_announced),
		TEST(test_next_request_while_waiting_is_dropped),
		TEST(test_next_request_does_not_hide_a_leave),
		TEST(test_a_megabyte_of_requests_gets_one_answer),
		TEST(test_closed_while_waiting),
		TEST(test_reset_while_waiting),
		TEST(test_half_closed_while_waiting),
		TEST(test_closed_while_errno_says_again),
		TEST(test_half_close_right_behind_the_request),
		TEST(test_left_in_mid_body),
		TEST(test_left_before_a_big_reply_is_read),
		BOUNDED(test_bodies_together_are_bounded),
		BOUNDED(test_small_body_keeps_its_block),
		BOUNDED(test_dropped_body_is_given_back),
		BOUNDED(test_limits_change),
		BOUNDED(test_limits_change_under_a_body),
		TEST(test_too_many_connections_hear_503),
		TEST(test_flood_of_connections),
		TEST(test_pseudorandom_bytes),
		TEST(test_addresses),
		TEST(test_takes_over_a_socket),
		TEST(test_stop_accepting),
		TEST(test_free_with_waiting_requests),
		TEST(test_free_inside_the_handler),
		TEST(test_free_inside_the_handler_unanswered),
	};

	int failed = cmocka_run_group_tests_name("plain", tests, NULL, NULL);

	for (size_t i = 0; i < ARRAY_SIZE(tests); i++)
		tests[i].initial_state = (void *)"TLS";
	return failed + cmocka_run_group_tests_name("TLS", tests, NULL, NULL);
}
