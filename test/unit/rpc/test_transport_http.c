/* SPDX-License-Identifier: Apache-2.0 */
/* transport_http on real sockets: the secret, the routes, who notices whose leaving, and the one repetition it allows itself. */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/io.h"
#include "reactor/loop.h"
#include "rpc/http/client.h"
#include "rpc/rpc_client.h"
#include "rpc/rpc_server.h"
#include "rpc/transport.h"

#define DEADLINE_US (30 * US_PER_S)
#define SECRET STR("correct horse battery staple")

struct fixture {
	struct loop *loop;
	struct transport *node, *client;
	struct transport_server *server;
	struct transport_request *held;
	struct http_client *plain;
	char address[32];
	bool hold;
	unsigned n_served, n_gone;
};

struct outcome {
	struct fixture *f;
	struct op *op;
	bool fired;
	enum transport_failure failure;
	int status;
	size_t n;
	char body[256];
};

static void on_gone(void *arg)
{
	struct fixture *f = arg;

	f->n_gone++;
	f->held = NULL;
}

static void on_request(
	void *arg, struct transport_request *request, struct str method, struct str body)
{
	struct fixture *f = arg;

	f->n_served++;
	assert_true(str_is(method, "ping"));
	if (!f->hold) {
		f->node->ops->reply(request, 200, body);
		return;
	}
	f->held = request;
	f->node->ops->on_gone(request, on_gone, f);
}

static int setup(void **state)
{
	struct fixture *f = mem_alloc(sizeof(*f));

	f->loop = loop_new(NULL);
	f->node = transport_http_new(f->loop, NULL, SECRET);
	f->client = transport_http_new(f->loop, NULL, SECRET);
	f->plain = http_client_new(f->loop, NULL);
	*state = f;
	if (f->node->ops->serve(f->node, "127.0.0.1:0", on_request, f, &f->server))
		return -1;
	snprintf(f->address, sizeof(f->address), "127.0.0.1:%u",
		f->node->ops->server_port(f->server));
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	if (f->client)
		f->client->ops->free(f->client);
	f->node->ops->server_free(f->server);
	f->node->ops->free(f->node);
	http_client_free(f->plain);
	loop_free(f->loop);
	free(f);
	return 0;
}

static void on_reply(void *arg, const struct transport_reply *reply)
{
	struct outcome *o = arg;

	assert_false(o->fired);
	o->fired = true;
	o->op = NULL;
	o->failure = reply->failure;
	o->status = reply->status;
	o->n = reply->body.n;
	snprintf(o->body, sizeof(o->body), "%.*s", (int)(reply->body.n < 250 ? reply->body.n : 250),
		reply->body.p);
}

static void start(struct fixture *f, struct outcome *o, struct str body)
{
	*o = (struct outcome){.f = f};
	assert_int_equal(f->client->ops->call(f->client, f->address, "ping", body, 5 * US_PER_S,
				 on_reply, o, &o->op),
		0);
	assert_false(o->fired);
}

static void await(struct fixture *f, const bool *flag)
{
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	while (!*flag && clock_boot_us() < end_us)
		loop_turn(f->loop, 10000);
	assert_true(*flag);
}

static void await_count(struct fixture *f, const unsigned *counter, unsigned want)
{
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	while (*counter != want && clock_boot_us() < end_us)
		loop_turn(f->loop, 10000);
	assert_int_equal(*counter, want);
}

static void test_call(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	for (int i = 0; i < 5; i++) {
		start(f, &o, STR("hello"));
		await(f, &o.fired);
		assert_int_equal(o.failure, TRANSPORT_OK);
		assert_int_equal(o.status, 200);
		assert_string_equal(o.body, "hello");
	}
}

static void test_large_body_both_ways(void **state)
{
	struct fixture *f = *state;
	struct outcome o;
	size_t n = (size_t)24 << 20;
	char *body = mem_alloc(n);

	memset(body, 'x', n);
	start(f, &o, (struct str){body, n});
	await(f, &o.fired);
	assert_int_equal(o.failure, TRANSPORT_OK);
	assert_int_equal(o.n, n);
	free(body);
}

static void test_many_at_once(void **state)
{
	struct fixture *f = *state;
	struct outcome o[200];
	char body[16];

	for (int i = 0; i < 200; i++) {
		snprintf(body, sizeof(body), "%d", i);
		start(f, &o[i], str_from(body));
	}
	for (int i = 0; i < 200; i++) {
		await(f, &o[i].fired);
		snprintf(body, sizeof(body), "%d", i);
		assert_string_equal(o[i].body, body);
	}
}

static void test_cancelled_call_is_gone_at_the_server(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	f->hold = true;
	start(f, &o, STR("x"));
	await_count(f, &f->n_served, 1);
	op_cancel(&o.op);
	await_count(f, &f->n_gone, 1);
	assert_false(o.fired);
}

static void test_freed_transport_is_gone_at_the_server(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	f->hold = true;
	start(f, &o, STR("x"));
	await_count(f, &f->n_served, 1);
	f->client->ops->free(take_ptr(&f->client));
	await_count(f, &f->n_gone, 1);
	assert_false(o.fired);
	op_cancel(&o.op); /* the handle outlives the transport */
}

static void test_freed_server_breaks_its_callers(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	f->hold = true;
	start(f, &o, STR("x"));
	await_count(f, &f->n_served, 1);
	f->node->ops->server_free(take_ptr(&f->server));
	assert_int_equal(f->n_gone, 1);
	await(f, &o.fired);
	assert_int_equal(o.failure, TRANSPORT_BROKEN);
	start(f, &o, STR("x"));
	await(f, &o.fired);
	assert_int_equal(o.failure, TRANSPORT_REFUSED);
}

static void test_timeout(void **state)
{
	struct fixture *f = *state;
	struct outcome o = {.f = f};

	f->hold = true;
	assert_int_equal(f->client->ops->call(f->client, f->address, "ping", STR("x"),
				 50 * US_PER_MS, on_reply, &o, &o.op),
		0);
	await(f, &o.fired);
	assert_int_equal(o.failure, TRANSPORT_TIMEOUT);
	await_count(f, &f->n_gone, 1);
}

static void test_bad_address(void **state)
{
	struct fixture *f = *state;
	struct outcome o = {.f = f};
	struct transport_server *server;

	assert_int_equal(f->client->ops->call(
				 f->client, "nowhere", "ping", STR("x"), 1, on_reply, &o, &o.op),
		-EINVAL);
	assert_int_equal(
		f->node->ops->serve(f->node, f->address, on_request, f, &server), -EADDRINUSE);
}

/* --- what does not come from one of us --------------------------------------------------------------------- */

struct plain {
	bool fired;
	int status;
	char type[64], body[512];
};

static void on_plain(void *arg, const struct http_reply *reply)
{
	struct plain *p = arg;

	p->fired = true;
	p->status = reply->status;
	snprintf(p->type, sizeof(p->type), STR_FMT, STR_ARG(reply->content_type));
	snprintf(p->body, sizeof(p->body), STR_FMT, STR_ARG(reply->body));
}

static void expect_plain(struct fixture *f, const char *method, const char *path,
	const char *authorization, int status, const char *code)
{
	const struct http_header header = {"Authorization", authorization};
	const struct http_call call = {.address = f->address,
		.method = method,
		.path = path,
		.headers = &header,
		.n_headers = authorization ? 1 : 0,
		.body = STR("{}"),
		.timeout_us = 5 * US_PER_S};
	struct plain p = {0};
	struct op *op;

	assert_int_equal(http_client_call(f->plain, &call, on_plain, &p, &op), 0);
	await(f, &p.fired);
	assert_int_equal(p.status, status);
	assert_string_equal(p.type, "application/problem+json");
	if (!strstr(p.body, code))
		fail_msg("no %s in %s", code, p.body);
}

static void test_strangers_are_refused(void **state)
{
	static const char *const wrong[] = {NULL, "", "Bearer", "Bearer ", "Bearer wrong",
		"Bearer correct horse battery stapl", "Bearer correct horse battery staple2",
		"bearer correct horse battery staple", "Basic correct horse battery staple",
		"correct horse battery staple"};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		expect_plain(f, "POST", "/rpc/ping", wrong[i], 401, "\"unauthorized\"");
	assert_int_equal(f->n_served, 0);
}

static void test_paths_and_methods(void **state)
{
	static const char right[] = "Bearer correct horse battery staple";
	struct fixture *f = *state;

	expect_plain(f, "POST", "/", right, 404, "\"not_found\"");
	expect_plain(f, "POST", "/rpc/", right, 404, "\"not_found\"");
	expect_plain(f, "POST", "/rpcping", right, 404, "\"not_found\"");
	expect_plain(f, "GET", "/rpc/ping", right, 405, "\"method_not_allowed\"");
	assert_int_equal(f->n_served, 0);
}

/* --- a connection that ends at the wrong moment ----------------------------------------------------------------- */

/* Answers the first request of its first connection, closes on the second; serves later connections, or closes them too. */
struct moody {
	struct loop *loop;
	int listener, fds[8];
	struct io_watch *watch, *watches[8];
	unsigned n_connections, n_requests;
	bool always;
};

struct moody_peer {
	struct moody *m;
	unsigned index, served;
};

static void on_moody(void *arg, unsigned events)
{
	static const char reply[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
	struct moody_peer *peer = arg;
	struct moody *m = peer->m;
	char block[4096];
	ssize_t n = recv(m->fds[peer->index], block, sizeof(block), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n > 0)
		m->n_requests++;
	if (n <= 0 || (peer->served && (peer->index == 0 || m->always)) ||
		(m->always && peer->index)) {
		io_free(take_ptr(&m->watches[peer->index]));
		close(m->fds[peer->index]);
		free(peer);
		return;
	}
	peer->served++;
	assert_int_equal(send(m->fds[peer->index], reply, sizeof(reply) - 1, MSG_NOSIGNAL),
		sizeof(reply) - 1);
}

static void on_moody_accept(void *arg, unsigned events)
{
	struct moody *m = arg;
	struct moody_peer *peer = mem_alloc(sizeof(*peer));
	int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC);

	assert_true(fd >= 0 && m->n_connections < ARRAY_SIZE(m->fds));
	*peer = (struct moody_peer){.m = m, .index = m->n_connections++};
	m->fds[peer->index] = fd;
	m->watches[peer->index] = io_new(m->loop, fd, IO_READ, on_moody, peer);
}

static void moody_start(struct moody *m, struct fixture *f, bool always)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	socklen_t len = sizeof(sin);

	*m = (struct moody){.loop = f->loop, .always = always};
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	m->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(m->listener, (struct sockaddr *)&sin, len), 0);
	assert_int_equal(listen(m->listener, 8), 0);
	assert_int_equal(getsockname(m->listener, (struct sockaddr *)&sin, &len), 0);
	snprintf(f->address, sizeof(f->address), "127.0.0.1:%u", ntohs(sin.sin_port));
	m->watch = io_new(f->loop, m->listener, IO_READ, on_moody_accept, m);
}

/* The client goes first, so that every connection ends and is freed by its own watch. */
static void moody_stop(struct moody *m, struct fixture *f)
{
	int64_t end_us = clock_boot_us() + DEADLINE_US;
	bool open = true;

	f->client->ops->free(take_ptr(&f->client));
	while (open && clock_boot_us() < end_us) {
		open = false;
		loop_turn(f->loop, 1000);
		for (unsigned i = 0; i < m->n_connections; i++)
			open = open || m->watches[i];
	}
	assert_false(open);
	io_free(m->watch);
	close(m->listener);
}

static void test_stale_connection_is_tried_once_more(void **state)
{
	struct fixture *f = *state;
	struct moody m;
	struct outcome o;

	moody_start(&m, f, false);
	start(f, &o, STR("{}"));
	await(f, &o.fired);
	start(f, &o, STR("{}"));
	await(f, &o.fired);
	assert_int_equal(o.failure, TRANSPORT_OK);
	assert_string_equal(o.body, "ok");
	assert_int_equal(m.n_connections, 2);
	assert_int_equal(m.n_requests, 3);
	moody_stop(&m, f);
}

static void test_but_not_twice(void **state)
{
	struct fixture *f = *state;
	struct moody m;
	struct outcome o;

	moody_start(&m, f, true);
	start(f, &o, STR("{}"));
	await(f, &o.fired);
	assert_int_equal(o.failure, TRANSPORT_OK);
	start(f, &o, STR("{}"));
	await(f, &o.fired);
	assert_int_equal(o.failure, TRANSPORT_BROKEN);
	assert_int_equal(m.n_requests, 3);
	moody_stop(&m, f);
}

/* --- the whole stack --------------------------------------------------------------------------------------------- */

static void handle_ping(void *arg, struct rpc_call *call)
{
	struct msg_ping_reply reply = {.name = STR("j1")};

	rpc_call_reply(call, &reply);
}

static void on_answer(void *arg, struct rpc_answer *answer)
{
	struct outcome *o = arg;

	o->fired = true;
	assert_int_equal(answer->failure, RPC_OK);
	assert_true(str_is(((const struct msg_ping_reply *)answer->reply)->name, "j1"));
}

static void test_rpc_over_http(void **state)
{
	static rpc_handler_fn *const handlers[RPC_METHOD_N] = {[RPC_ping] = handle_ping};
	const struct msg_ping_request request = {.from = STR("e1")};
	struct fixture *f = *state;
	struct rpc_server *server;
	struct outcome o = {0};
	char address[32];

	assert_int_equal(
		rpc_server_new(f->loop, NULL, f->node, "127.0.0.1:0", handlers, f, &server), 0);
	snprintf(address, sizeof(address), "127.0.0.1:%u", rpc_server_port(server));
	assert_int_equal(
		rpc_call(f->loop, f->client, address, RPC_ping, &request, 0, on_answer, &o, &o.op),
		0);
	await(f, &o.fired);
	rpc_server_free(server);
}

static void handle_put(void *arg, struct rpc_call *call)
{
	*(struct rpc_call **)arg = call;
}

static bool is_filled(struct str bytes, char c, size_t n)
{
	for (size_t i = 0; i < bytes.n; i++) {
		if (bytes.p[i] != c)
			return false;
	}
	return bytes.n == n;
}

/* What a call carries is there until it is answered, however long that takes. */
static void test_carried_bytes_stay(void **state)
{
	enum { N = 100000 };
	static rpc_handler_fn *const handlers[RPC_METHOD_N] = {
		[RPC_blob_put] = handle_put, [RPC_ping] = handle_ping};
	const struct msg_ping_request ping = {.from = STR("e1")};
	struct fixture *f = *state;
	const struct msg_blob_put_request put = {
		.blob = STR("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
		.last = true};
	char *bytes = mem_alloc(N), *others[4];
	struct rpc_call *call = NULL;
	struct rpc_server *server;
	int64_t until_us = clock_boot_us() + 30 * US_PER_S;
	struct outcome other = {0};
	struct op *op = NULL;
	char address[32];

	memset(bytes, 'x', N);
	assert_int_equal(
		rpc_server_new(f->loop, NULL, f->node, "127.0.0.1:0", handlers, &call, &server), 0);
	snprintf(address, sizeof(address), "127.0.0.1:%u", rpc_server_port(server));
	assert_int_equal(rpc_call_carrying(f->loop, f->client, address, RPC_blob_put, &put,
				 (struct str){bytes, N}, 0, on_answer, NULL, &op),
		0);
	free(bytes);
	while (!call && clock_boot_us() < until_us)
		loop_turn(f->loop, 10000);
	assert_non_null(call);
	/* Meanwhile others come and go, and take what memory there is. */
	for (unsigned i = 0; i < ARRAY_SIZE(others); i++) {
		others[i] = mem_alloc(N);
		memset(others[i], 'y', N);
		other = (struct outcome){0};
		assert_int_equal(rpc_call(f->loop, f->client, address, RPC_ping, &ping, 0,
					 on_answer, &other, &other.op),
			0);
		await(f, &other.fired);
	}
	assert_true(is_filled(rpc_call_carried(call), 'x', N));
	for (unsigned i = 0; i < ARRAY_SIZE(others); i++)
		free(others[i]);
	op_cancel(&op);
	rpc_server_free(server);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_call),
		TEST(test_large_body_both_ways),
		TEST(test_many_at_once),
		TEST(test_cancelled_call_is_gone_at_the_server),
		TEST(test_freed_transport_is_gone_at_the_server),
		TEST(test_freed_server_breaks_its_callers),
		TEST(test_timeout),
		TEST(test_bad_address),
		TEST(test_strangers_are_refused),
		TEST(test_paths_and_methods),
		TEST(test_stale_connection_is_tried_once_more),
		TEST(test_but_not_twice),
		TEST(test_rpc_over_http),
		TEST(test_carried_bytes_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
