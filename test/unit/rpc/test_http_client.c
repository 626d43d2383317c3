/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http/client against a scripted server (a listening socket on the same loop that answers by rule), so that it meets what a real
 * server does only on a bad day: silence, half replies, closes at the wrong moment, lies about lengths.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "reactor/base/buf.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/io.h"
#include "reactor/loop.h"
#include "rpc/http/address.h"
#include "rpc/http/client.h"

#define DEADLINE_US (30 * US_PER_S)
#define PEERS_MAX 128
#define OK "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"

struct fixture;

struct accepted {
	struct fixture *f;
	int fd;
	struct io_watch *watch;
	struct buf in;
	bool closed; /* the client has */
};

struct fixture {
	struct loop *loop;
	struct http_client *client;
	int listener;
	struct io_watch *watch;
	char address[32];
	const char *reply;    /* sent to each whole request; NULL = silence */
	bool close_after;     /* ... and then the connection is closed */
	bool close_on_second; /* closed instead of answering a connection's later requests */
	struct accepted peers[PEERS_MAX];
	unsigned n_peers, n_requests, n_open, n_closed;
	char last[2048];
};

struct outcome {
	struct fixture *f;
	struct op *op;
	bool fired;
	enum http_failure failure;
	bool stale;
	int status;
	size_t n;
	char body[64], type[64];
	void (*then)(struct outcome *o);
	char pieces[128]; /* each in brackets */
};

/* --- the scripted server --------------------------------------------------------------------------------- */

static void peer_close(struct accepted *peer)
{
	if (peer->fd < 0)
		return;
	io_free(take_ptr(&peer->watch));
	close(peer->fd);
	peer->fd = -1;
	buf_fini(&peer->in);
	peer->f->n_open--;
}

static void answer(struct accepted *peer)
{
	struct fixture *f = peer->f;
	char *end;

	while (peer->fd >= 0 && peer->in.data && (end = strstr(peer->in.data, "\r\n\r\n"))) {
		char *length = strstr(peer->in.data, "Content-Length: ");
		size_t n = (size_t)(end + 4 - peer->in.data);

		if (length && length < end)
			n += strtoul(length + 16, NULL, 10);
		if (peer->in.len < n)
			return;
		snprintf(f->last, sizeof(f->last), "%s", peer->in.data);
		buf_drop(&peer->in, n);
		f->n_requests++;
		if (f->close_on_second && f->n_requests > 1 && peer == &f->peers[0]) {
			peer_close(peer);
			return;
		}
		if (f->reply)
			assert_int_equal(send(peer->fd, f->reply, strlen(f->reply), MSG_NOSIGNAL),
				strlen(f->reply));
		if (f->close_after)
			peer_close(peer);
	}
}

static void on_peer(void *arg, unsigned events)
{
	struct accepted *peer = arg;
	char block[65536];
	ssize_t n = recv(peer->fd, block, sizeof(block), MSG_DONTWAIT);

	if (n > 0) {
		buf_add(&peer->in, block, (size_t)n);
		answer(peer);
	} else if (n == 0 || errno != EAGAIN) {
		peer->closed = true;
		peer->f->n_closed++;
		peer_close(peer);
	}
}

static void on_accept(void *arg, unsigned events)
{
	struct fixture *f = arg;
	struct accepted *peer = &f->peers[f->n_peers];

	assert_true(f->n_peers < PEERS_MAX);
	*peer = (struct accepted){.f = f, .fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC)};
	assert_true(peer->fd >= 0);
	f->n_peers++;
	f->n_open++;
	peer->watch = io_new(f->loop, peer->fd, IO_READ, on_peer, peer);
}

static int setup(void **state)
{
	static const struct http_client_options options = {.connections_max = 4,
		.waiting_max = 3,
		.body_max = 100000,
		.connect_timeout_us = 300 * US_PER_MS};
	struct sockaddr_in sin = {.sin_family = AF_INET};
	socklen_t len = sizeof(sin);
	struct fixture *f = mem_alloc(sizeof(*f));

	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	f->loop = loop_new(NULL);
	f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (bind(f->listener, (struct sockaddr *)&sin, len) || listen(f->listener, 128) ||
		getsockname(f->listener, (struct sockaddr *)&sin, &len))
		return -1;
	snprintf(f->address, sizeof(f->address), "127.0.0.1:%u", ntohs(sin.sin_port));
	f->watch = io_new(f->loop, f->listener, IO_READ, on_accept, f);
	f->client = http_client_new(f->loop, &options);
	f->reply = OK;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	http_client_free(f->client);
	for (unsigned i = 0; i < f->n_peers; i++)
		peer_close(&f->peers[i]);
	io_free(f->watch);
	close(f->listener);
	loop_free(f->loop);
	free(f);
	return 0;
}

/* --- calling ------------------------------------------------------------------------------------------------ */

static void on_reply(void *arg, const struct http_reply *reply)
{
	struct outcome *o = arg;

	assert_false(o->fired);
	o->fired = true;
	o->op = NULL;
	o->failure = reply->failure;
	o->stale = reply->stale;
	o->status = reply->status;
	o->n = reply->body.n;
	snprintf(o->body, sizeof(o->body), "%.*s", (int)(reply->body.n < 60 ? reply->body.n : 60),
		reply->body.p);
	if (reply->content_type.p)
		snprintf(o->type, sizeof(o->type), STR_FMT, STR_ARG(reply->content_type));
	if (o->then)
		o->then(o);
}

static struct http_call a_call(const char *address)
{
	return (struct http_call){.address = address,
		.method = "POST",
		.path = "/x?y=1",
		.body = STR("hi"),
		.timeout_us = 5 * US_PER_S};
}

static int start_call(struct fixture *f, struct outcome *o, const struct http_call *call)
{
	int r;

	o->f = f;
	r = http_client_call(f->client, call, on_reply, o, &o->op);
	assert_false(o->fired);
	return r;
}

static void start(struct fixture *f, struct outcome *o)
{
	const struct http_call call = a_call(f->address);

	assert_int_equal(start_call(f, o, &call), 0);
}

static void await(struct fixture *f, struct outcome *o)
{
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	while (!o->fired && clock_boot_us() < end_us)
		loop_turn(f->loop, 10000);
	assert_true(o->fired);
}

static void await_count(struct fixture *f, const unsigned *counter, unsigned want)
{
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	while (*counter != want && clock_boot_us() < end_us)
		loop_turn(f->loop, 10000);
	assert_int_equal(*counter, want);
}

static void run(struct fixture *f, struct outcome *o)
{
	*o = (struct outcome){0};
	start(f, o);
	await(f, o);
}

static void test_exchange(void **state)
{
	struct fixture *f = *state;
	struct http_call call = a_call(f->address);
	const struct http_header header = {"X-Key", "v"};
	struct outcome o = {0};

	call.headers = &header;
	call.n_headers = 1;
	assert_int_equal(start_call(f, &o, &call), 0);
	await(f, &o);
	assert_int_equal(o.failure, HTTP_OK_REPLY);
	assert_int_equal(o.status, 200);
	assert_string_equal(o.body, "ok");
	assert_string_equal(o.type, "text/plain");
	assert_int_equal(strncmp(f->last, "POST /x?y=1 HTTP/1.1\r\n", 22), 0);
	assert_non_null(strstr(f->last, "X-Key: v\r\n"));
	assert_non_null(strstr(f->last, f->address));
	assert_non_null(strstr(f->last, "\r\n\r\nhi"));
}

static void on_piece(void *arg, struct str piece)
{
	struct outcome *o = arg;
	size_t n = strlen(o->pieces);

	assert_false(o->fired);
	snprintf(o->pieces + n, sizeof(o->pieces) - n, "[" STR_FMT "]", STR_ARG(piece));
}

/* A good answer comes in pieces and leaves nothing; others come whole; what breaks in the middle has shown what it had. */
static void test_pieces(void **state)
{
	static const struct {
		const char *reply;
		bool close_after;
		enum http_failure failure;
		const char *pieces, *body;
	} rows[] = {
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		 "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
			false, HTTP_OK_REPLY, "[abc][de]", ""},
		{OK, false, HTTP_OK_REPLY, "[ok]", ""},
		{"HTTP/1.1 204 No Content\r\n\r\n", false, HTTP_OK_REPLY, "", ""},
		{"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy", false, HTTP_OK_REPLY, "",
			"busy"},
		{"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
			false, HTTP_OK_REPLY, "", "abc"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", true,
			HTTP_BROKEN, "[abc]", ""},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_call call = a_call(f->address);
		struct outcome o = {0};

		f->reply = rows[i].reply;
		f->close_after = rows[i].close_after;
		call.on_piece = on_piece;
		assert_int_equal(start_call(f, &o, &call), 0);
		await(f, &o);
		assert_int_equal(o.failure, rows[i].failure);
		assert_string_equal(o.pieces, rows[i].pieces);
		assert_string_equal(o.body, rows[i].body);
	}
}

static void test_methods(void **state)
{
	static const char *const methods[] = {"GET", "PUT", "DELETE", "POST"};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		struct http_call call = a_call(f->address);
		struct outcome o = {0};

		call.method = methods[i];
		assert_int_equal(start_call(f, &o, &call), 0);
		await(f, &o);
		assert_int_equal(o.failure, HTTP_OK_REPLY);
		assert_int_equal(strncmp(f->last, methods[i], strlen(methods[i])), 0);
	}
}

static void test_error_status_is_a_reply(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	f->reply = "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy";
	run(f, &o);
	assert_int_equal(o.failure, HTTP_OK_REPLY);
	assert_int_equal(o.status, 503);
	assert_string_equal(o.body, "busy");
}

static void test_connection_is_used_again(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	for (int i = 0; i < 5; i++) {
		run(f, &o);
		assert_int_equal(o.failure, HTTP_OK_REPLY);
	}
	assert_int_equal(f->n_peers, 1);
}

static int socket_option(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	assert_int_equal(getsockopt(fd, level, name, &value, &len), 0);
	return value;
}

/* The client's end of the only connection: the descriptor whose peer is the listener. */
static int client_fd(const struct fixture *f)
{
	struct sockaddr_in want, have;
	socklen_t len = sizeof(want);

	assert_int_equal(getsockname(f->listener, (struct sockaddr *)&want, &len), 0);
	for (int fd = 0; fd < 256; fd++) {
		len = sizeof(have);
		if (getpeername(fd, (struct sockaddr *)&have, &len) == 0 &&
			have.sin_family == AF_INET && have.sin_port == want.sin_port)
			return fd;
	}
	fail_msg("no connection");
	return -1;
}

static void test_socket_finds_a_silent_cut(void **state)
{
	struct fixture *f = *state;
	struct outcome o;
	int fd;

	run(f, &o);
	fd = client_fd(f);
	assert_int_equal(socket_option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
	assert_int_equal(socket_option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
	assert_int_equal(socket_option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 1);
	assert_int_equal(socket_option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 1);
	assert_int_equal(socket_option(fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
	assert_int_equal(socket_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 4000);
}

static void test_fresh_call_has_its_own_connection(void **state)
{
	struct fixture *f = *state;
	struct http_call call = a_call(f->address);
	struct outcome o;

	run(f, &o);
	call.fresh = true;
	o = (struct outcome){0};
	assert_int_equal(start_call(f, &o, &call), 0);
	await(f, &o);
	assert_int_equal(f->n_peers, 2);
}

static void test_refused(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	io_free(take_ptr(&f->watch));
	close(f->listener);
	f->listener = socket(AF_INET, SOCK_STREAM, 0);
	run(f, &o);
	assert_int_equal(o.failure, HTTP_REFUSED);
	run(f, &o);
	assert_int_equal(o.failure, HTTP_REFUSED);
}

/* 192.0.2.0/24 answers nothing, or the system says at once that there is no way there. */
static void test_connect_has_its_own_deadline(void **state)
{
	struct fixture *f = *state;
	struct http_call call = a_call("192.0.2.1:9");
	struct outcome o = {0};
	int64_t start_us = clock_boot_us();

	assert_int_equal(start_call(f, &o, &call), 0);
	await(f, &o);
	assert_int_equal(o.failure, HTTP_REFUSED);
	assert_true(clock_boot_us() - start_us < 2 * US_PER_S);
}

static void test_silence_times_out_and_closes(void **state)
{
	struct fixture *f = *state;
	struct http_call call = a_call(f->address);
	struct outcome o = {0};

	f->reply = NULL;
	call.timeout_us =
		400 *
		US_PER_MS; /* beyond the connect deadline: being connected is enough for that */
	assert_int_equal(start_call(f, &o, &call), 0);
	await(f, &o);
	assert_int_equal(o.failure, HTTP_TIMEOUT);
	await_count(f, &f->n_closed, 1);
}

static void test_cancel_closes(void **state)
{
	struct fixture *f = *state;
	struct outcome o = {0};

	f->reply = NULL;
	start(f, &o);
	await_count(f, &f->n_requests, 1);
	op_cancel(&o.op);
	await_count(f, &f->n_closed, 1);
	assert_false(o.fired);
	/* And the next call is on another connection. */
	f->reply = OK;
	run(f, &o);
	assert_int_equal(o.failure, HTTP_OK_REPLY);
	assert_int_equal(f->n_peers, 2);
}

static void test_cancel_before_anything_happened(void **state)
{
	struct fixture *f = *state;
	struct outcome o = {0};

	start(f, &o);
	op_cancel(&o.op);
	for (int i = 0; i < 10; i++)
		loop_turn(f->loop, 1000);
	assert_false(o.fired);
	assert_int_equal(f->n_requests, 0);
}

static void test_broken_replies(void **state)
{
	static const char *const replies[] = {
		"",
		"HTTP/1.1 200 OK\r\nContent-Le",
		"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfive",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
		"garbage\r\n\r\n",
		"\r\n\r\n",
	};
	struct fixture *f = *state;

	f->close_after = true;
	for (size_t i = 0; i < ARRAY_SIZE(replies); i++) {
		struct outcome o;

		f->reply = replies[i];
		run(f, &o);
		if (o.failure != HTTP_BROKEN)
			fail_msg("reply %zu: failure %d status %d", i, o.failure, o.status);
		assert_false(o.stale);
	}
}

static void test_chunked_reply(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	f->reply = "HTTP/1.1 200 OK\r\nTransfer-Encoding: "
		   "chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
	run(f, &o);
	assert_int_equal(o.failure, HTTP_OK_REPLY);
	assert_string_equal(o.body, "abcde");
	run(f, &o);
	assert_int_equal(f->n_peers, 1);
}

static void test_too_large(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	f->reply = "HTTP/1.1 200 OK\r\nContent-Length: 100001\r\n\r\nxxxxxxxx";
	run(f, &o);
	assert_int_equal(o.failure, HTTP_TOO_LARGE);
	f->reply = OK;
	run(f, &o);
	assert_int_equal(o.failure, HTTP_OK_REPLY);
}

static void test_connection_close_is_heard(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	f->reply = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
	f->close_after = true;
	for (int i = 0; i < 3; i++) {
		run(f, &o);
		assert_int_equal(o.failure, HTTP_OK_REPLY);
		assert_string_equal(o.body, "ok");
	}
	assert_int_equal(f->n_peers, 3);
}

/* Closed while idle: noticed, and the next call does not even try the old connection. */
static void test_idle_connection_closed_by_the_server(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	for (int i = 0; i < 3; i++) {
		run(f, &o);
		assert_int_equal(o.failure, HTTP_OK_REPLY);
		peer_close(&f->peers[f->n_peers - 1]);
		for (int j = 0; j < 3; j++)
			loop_turn(f->loop, 1000);
	}
	assert_int_equal(f->n_peers, 3);
}

/* Closed at the moment of re-use: broken, and said to be stale. */
static void test_stale_connection(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	f->close_on_second = true;
	run(f, &o);
	assert_int_equal(o.failure, HTTP_OK_REPLY);
	run(f, &o);
	assert_int_equal(o.failure, HTTP_BROKEN);
	assert_true(o.stale);
	run(f, &o);
	assert_int_equal(o.failure, HTTP_OK_REPLY);
	assert_int_equal(f->n_peers, 2);
}

/* --- the line ------------------------------------------------------------------------------------------------- */

static void test_line(void **state)
{
	struct fixture *f = *state;
	struct outcome o[8] = {0};
	const struct http_call call = a_call(f->address);

	f->reply = NULL;
	for (int i = 0; i < 7; i++)
		start(f, &o[i]);
	assert_int_equal(start_call(f, &o[7], &call), -EAGAIN);
	await_count(f, &f->n_requests, 4);
	assert_int_equal(f->n_peers, 4);
	/* One cancelled in line, one on its connection: the next in line takes its place. */
	op_cancel(&o[5].op);
	op_cancel(&o[0].op);
	await_count(f, &f->n_requests, 5);
	f->reply = OK;
	for (unsigned i = 0; i < f->n_peers; i++) {
		if (f->peers[i].fd >= 0)
			assert_int_equal(
				send(f->peers[i].fd, OK, strlen(OK), MSG_NOSIGNAL), strlen(OK));
	}
	for (int i = 0; i < 7; i++) {
		if (i == 0 || i == 5)
			continue;
		await(f, &o[i]);
		assert_int_equal(o[i].failure, HTTP_OK_REPLY);
	}
	assert_false(o[0].fired || o[5].fired);
}

static void test_time_in_line_counts(void **state)
{
	struct fixture *f = *state;
	struct outcome o[5] = {0};
	struct http_call call = a_call(f->address);

	f->reply = NULL;
	for (int i = 0; i < 4; i++)
		start(f, &o[i]);
	call.timeout_us = 50 * US_PER_MS;
	assert_int_equal(start_call(f, &o[4], &call), 0);
	await(f, &o[4]);
	assert_int_equal(o[4].failure, HTTP_TIMEOUT);
	assert_int_equal(f->n_requests, 4);
	for (int i = 0; i < 4; i++)
		op_cancel(&o[i].op);
}

static void test_bad_calls(void **state)
{
	static const char *const addresses[] = {"localhost:80", "127.0.0.1",
		"127.0.0.1:", "127.0.0.1:0", "1.2.3:4", "127.0.0.1:65536", "[::1]", "[::1:80",
		"::1:80", ""};
	struct fixture *f = *state;
	struct http_call call;
	struct outcome o = {0};

	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
		call = a_call(addresses[i]);
		assert_int_equal(start_call(f, &o, &call), -EINVAL);
	}
	call = a_call(f->address);
	call.method = "BREW";
	assert_int_equal(start_call(f, &o, &call), -EINVAL);
}

static void test_address(void **state)
{
	struct http_address a;

	assert_true(http_address_parse("[::1]:8080", &a));
	assert_string_equal(a.host, "::1");
	assert_int_equal(a.port, 8080);
	assert_int_equal(a.sockaddr.ss_family, AF_INET6);
	assert_true(http_address_parse("0.0.0.0:0", &a));
	assert_int_equal(a.port, 0);
	assert_false(http_address_parse("[127.0.0.1]:80", &a));
	assert_false(http_address_parse("127.0.0.1:-1", &a));
}

/* --- callbacks that do things ------------------------------------------------------------------------------------ */

static void free_client(struct outcome *o)
{
	http_client_free(take_ptr(&o->f->client));
}

static void test_free_inside_a_reply(void **state)
{
	struct fixture *f = *state;
	struct outcome o = {.then = free_client}, other = {0};

	f->reply = NULL;
	start(f, &other);
	await_count(f, &f->n_requests, 1);
	f->reply = OK;
	start(f, &o);
	await(f, &o);
	await_count(f, &f->n_open, 0);
	assert_false(other.fired);
}

static void test_free_inside_a_failure(void **state)
{
	struct fixture *f = *state;
	struct outcome o = {.then = free_client};

	f->reply = "HTTP/1.1 200";
	f->close_after = true;
	start(f, &o);
	await(f, &o);
	assert_int_equal(o.failure, HTTP_BROKEN);
	await_count(f, &f->n_open, 0);
}

static void call_again(struct outcome *o)
{
	o->fired = false;
	o->then = NULL;
	start(o->f, o);
}

static void test_call_inside_a_reply(void **state)
{
	struct fixture *f = *state;
	struct outcome o = {.then = call_again};

	start(f, &o);
	await_count(f, &f->n_requests, 2);
	await(f, &o);
	assert_int_equal(o.failure, HTTP_OK_REPLY);
}

static void test_free_with_calls_in_progress(void **state)
{
	struct fixture *f = *state;
	struct outcome o[7] = {0};

	f->reply = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(o); i++)
		start(f, &o[i]);
	await_count(f, &f->n_requests, 4);
	http_client_free(take_ptr(&f->client));
	await_count(f, &f->n_open, 0);
	for (size_t i = 0; i < ARRAY_SIZE(o); i++)
		assert_false(o[i].fired);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_exchange),
		TEST(test_methods),
		TEST(test_pieces),
		TEST(test_error_status_is_a_reply),
		TEST(test_connection_is_used_again),
		TEST(test_socket_finds_a_silent_cut),
		TEST(test_fresh_call_has_its_own_connection),
		TEST(test_refused),
		TEST(test_connect_has_its_own_deadline),
		TEST(test_silence_times_out_and_closes),
		TEST(test_cancel_closes),
		TEST(test_cancel_before_anything_happened),
		TEST(test_broken_replies),
		TEST(test_chunked_reply),
		TEST(test_too_large),
		TEST(test_connection_close_is_heard),
		TEST(test_idle_connection_closed_by_the_server),
		TEST(test_stale_connection),
		TEST(test_line),
		TEST(test_time_in_line_counts),
		TEST(test_bad_calls),
		cmocka_unit_test(test_address),
		TEST(test_free_inside_a_reply),
		TEST(test_free_inside_a_failure),
		TEST(test_call_inside_a_reply),
		TEST(test_free_with_calls_in_progress),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
