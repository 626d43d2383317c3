/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http/client by TLS, against http/server on the same loop: it speaks only with whom it can believe, and otherwise sends nothing; and
 * all else is as without TLS.
 */
#include "test/unit/rpc/http_raw.h"

#include "reactor/base/mem.h"
#include "rpc/http/client.h"

#define BIG ((size_t)3 << 20)

struct fixture {
	struct loop *loop;
	struct http_server *server;
	struct http_client *client;
	struct http_tls *server_tls, *client_tls;
	struct certificate ca, other;
	char ca_file[32];
	char address[32];
	char *big;
	unsigned n_handled;
	char peer[64]; /* of the last request */
	uint64_t big_bytes;
};

struct outcome {
	bool over;
	enum http_failure failure;
	int status;
	char why[128];
	struct buf body;
};

/* --- the server --------------------------------------------------------------------------------------------------------- */

static void handle(void *arg, struct http_request *request)
{
	struct fixture *f = arg;
	struct str path = http_request_path(request);

	f->n_handled++;
	snprintf(f->peer, sizeof(f->peer), "%s", http_request_peer(request));
	f->big_bytes = http_request_body(request).n;
	if (str_is(path, "/big"))
		http_request_reply(request, 200, "text/plain", (struct str){f->big, BIG});
	else if (str_is(path, "/drop"))
		http_server_free(take_ptr(&f->server));
	else
		http_request_reply(
			request, 200, "text/plain", http_request_header(request, "host"));
}

/* A certificate for these names, by the authority that the client believes. */
static void serve_as(
	struct fixture *f, const char *names, const struct certificate *by, long seconds)
{
	struct certificate own;
	struct http_tls *tls;
	char why[HTTP_TLS_WHY];

	certificate_make(&own, "server", names, by, seconds);
	assert_int_equal(
		http_tls_server(buf_str(&own.certificate_pem), buf_str(&own.key_pem), &tls, why),
		0);
	http_server_set_tls(f->server, tls);
	http_tls_free(tls);
	certificate_fini(&own);
}

static void trust(struct fixture *f, const struct certificate *ca)
{
	char why[HTTP_TLS_WHY];
	FILE *file = fopen(f->ca_file, "we");

	assert_non_null(file);
	assert_int_equal(fwrite(ca->certificate_pem.data, 1, ca->certificate_pem.len, file),
		ca->certificate_pem.len);
	fclose(file);
	http_tls_free(f->client_tls);
	assert_int_equal(http_tls_client(f->ca_file, &f->client_tls, why), 0);
}

static void new_client(struct fixture *f, const char *name)
{
	struct http_client_options options = {.tls = f->client_tls, .tls_name = name};

	http_client_free(f->client);
	f->client = http_client_new(f->loop, &options);
}

static int setup(void **state)
{
	struct fixture *f = mem_alloc(sizeof(*f));
	const struct http_server_options options = {
		.body_max = 8 << 20,
		.read_timeout_us = DEADLINE_US,
		.idle_timeout_us = DEADLINE_US,
		.handler = handle,
		.arg = f,
	};

	f->loop = loop_new(NULL);
	f->big = mem_alloc(BIG);
	for (size_t i = 0; i < BIG; i++)
		f->big[i] = (char)(i * 7 + i / 4096);
	strcpy(f->ca_file, "/tmp/conclave-test-XXXXXX");
	close(mkstemp(f->ca_file));
	certificate_make(&f->ca, "ca", NULL, NULL, 3600);
	certificate_make(&f->other, "another ca", NULL, NULL, 3600);
	assert_int_equal(http_server_new(f->loop, "127.0.0.1:0", &options, &f->server), 0);
	snprintf(f->address, sizeof(f->address), "127.0.0.1:%u", http_server_port(f->server));
	serve_as(f, "IP:127.0.0.1,DNS:judge.example", &f->ca, 3600);
	trust(f, &f->ca);
	new_client(f, "127.0.0.1");
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	http_client_free(f->client);
	http_server_free(f->server);
	loop_free(f->loop);
	http_tls_free(f->client_tls);
	certificate_fini(&f->ca);
	certificate_fini(&f->other);
	unlink(f->ca_file);
	free(f->big);
	free(f);
	return 0;
}

/* --- calls ------------------------------------------------------------------------------------------------------------------ */

static void on_reply(void *arg, const struct http_reply *reply)
{
	struct outcome *o = arg;

	assert_false(o->over);
	o->over = true;
	o->failure = reply->failure;
	o->status = reply->status;
	snprintf(o->why, sizeof(o->why), "%s", reply->why ? reply->why : "");
	buf_add_str(&o->body, reply->body);
}

static struct op *start(struct fixture *f, struct outcome *o, struct http_call call)
{
	struct op *op = NULL;

	buf_fini(&o->body);
	*o = (struct outcome){0};
	call.address = call.address ? call.address : f->address;
	call.method = call.method ? call.method : "GET";
	call.path = call.path ? call.path : "/";
	call.timeout_us = call.timeout_us ? call.timeout_us : DEADLINE_US;
	assert_int_equal(http_client_call(f->client, &call, on_reply, o, &op), 0);
	return op;
}

static void finish(struct fixture *f, struct outcome *o)
{
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	while (!o->over && clock_boot_us() < end_us)
		loop_turn(f->loop, 1000);
	assert_true(o->over);
}

static void call(struct fixture *f, struct outcome *o, struct http_call call)
{
	start(f, o, call);
	finish(f, o);
}

static void expect_answer(struct fixture *f)
{
	struct outcome o = {0};

	call(f, &o, (struct http_call){.path = "/"});
	if (o.failure != HTTP_OK_REPLY)
		fail_msg("failure %d: %s", o.failure, o.why);
	assert_int_equal(o.status, 200);
	buf_fini(&o.body);
}

/* Not a byte of a request may have been sent. */
static void expect_distrust(struct fixture *f, const char *word)
{
	struct outcome o = {0};
	unsigned handled = f->n_handled;

	call(f, &o, (struct http_call){.path = "/"});
	assert_int_equal(o.failure, HTTP_UNTRUSTED);
	if (!strstr(o.why, word))
		fail_msg("wanted \"%s\" in \"%s\"", word, o.why);
	assert_int_equal(f->n_handled, handled);
	buf_fini(&o.body);
}

/* --- tests ---------------------------------------------------------------------------------------------------------------------- */

static void test_connections_are_kept(void **state)
{
	struct fixture *f = *state;
	char first[64];

	expect_answer(f);
	strcpy(first, f->peer);
	for (int i = 0; i < 5; i++)
		expect_answer(f);
	assert_string_equal(f->peer, first);
	assert_int_equal(f->n_handled, 6);
}

static void test_connection_that_ends_is_made_anew(void **state)
{
	struct fixture *f = *state;
	static const struct http_header close[] = {{"Connection", "close"}};
	struct outcome o = {0};
	char first[64];

	for (int i = 0; i < 3; i++) {
		call(f, &o, (struct http_call){.headers = close, .n_headers = 1});
		assert_int_equal(o.failure, HTTP_OK_REPLY);
		strcpy(first, f->peer);
		expect_answer(f);
		assert_string_not_equal(f->peer, first);
	}
	buf_fini(&o.body);
}

static void test_host_is_the_callers(void **state)
{
	struct fixture *f = *state;
	static const struct http_header host[] = {{"Host", "judge.example:7000"}};
	struct outcome o = {0};

	call(f, &o, (struct http_call){.headers = host, .n_headers = 1});
	assert_int_equal(o.status, 200);
	assert_true(str_is(buf_str(&o.body), "judge.example:7000"));
	call(f, &o, (struct http_call){0});
	assert_true(str_is(buf_str(&o.body), f->address));
	buf_fini(&o.body);
}

static void test_large_bodies(void **state)
{
	struct fixture *f = *state;
	struct outcome o = {0};

	call(f, &o, (struct http_call){.path = "/big"});
	assert_int_equal(o.failure, HTTP_OK_REPLY);
	assert_int_equal(o.body.len, BIG);
	assert_memory_equal(o.body.data, f->big, BIG);
	call(f, &o, (struct http_call){.method = "POST", .path = "/x", .body = {f->big, BIG}});
	assert_int_equal(o.failure, HTTP_OK_REPLY);
	assert_int_equal(f->big_bytes, BIG);
	buf_fini(&o.body);
}

static void test_names(void **state)
{
	struct fixture *f = *state;

	new_client(f, "judge.example");
	expect_answer(f);
	new_client(f, "other.example");
	expect_distrust(f, "hostname mismatch");
	new_client(f, "127.0.0.2");
	expect_distrust(f, "IP address mismatch");
	new_client(f, "127.0.0.1");
	expect_answer(f);
	serve_as(f, "DNS:*.judge.example", &f->ca, 3600);
	new_client(f, "a.judge.example");
	expect_answer(f);
	new_client(f, "a.b.judge.example");
	expect_distrust(f, "hostname mismatch");
}

static void test_authorities(void **state)
{
	struct fixture *f = *state;
	struct http_tls *system;
	char why[HTTP_TLS_WHY];

	serve_as(f, "IP:127.0.0.1", &f->other, 3600);
	expect_distrust(f, "issuer certificate");
	serve_as(f, "IP:127.0.0.1", NULL, 3600);
	expect_distrust(f, "self-signed certificate");
	serve_as(f, "IP:127.0.0.1", &f->ca, -60);
	expect_distrust(f, "expired");
	serve_as(f, "IP:127.0.0.1", &f->ca, 3600);
	expect_answer(f);
	/* The system's do not know this one. */
	assert_int_equal(http_tls_client(NULL, &system, why), 0);
	http_tls_free(f->client_tls);
	f->client_tls = system;
	new_client(f, "127.0.0.1");
	expect_distrust(f, "certificate");
}

static void test_no_authorities(void **state)
{
	struct fixture *f = *state;
	struct http_tls *tls = NULL;
	char why[HTTP_TLS_WHY];

	assert_int_equal(http_tls_client("/nowhere", &tls, why), -EINVAL);
	assert_int_equal(truncate(f->ca_file, 0), 0);
	assert_int_equal(http_tls_client(f->ca_file, &tls, why), -EINVAL);
	assert_null(tls);
	assert_true(why[0]);
}

static void test_plain_server(void **state)
{
	struct fixture *f = *state;

	http_server_set_tls(f->server, NULL);
	expect_distrust(f, "eof"); /* it closes: those are no requests */
	assert_int_equal(f->n_handled, 0);
}

static void test_nobody_listens(void **state)
{
	struct fixture *f = *state;
	struct outcome o = {0};

	http_server_free(take_ptr(&f->server));
	call(f, &o, (struct http_call){0});
	assert_int_equal(o.failure, HTTP_REFUSED);
	buf_fini(&o.body);
}

static void test_server_ends(void **state)
{
	struct fixture *f = *state;
	struct outcome o = {0};

	expect_answer(f);
	call(f, &o, (struct http_call){.path = "/drop"});
	assert_int_equal(o.failure, HTTP_BROKEN);
	buf_fini(&o.body);
}

/* Somebody who accepts and says nothing. */
static int listen_silent(char address[32])
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(sin);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(listen(fd, 16), 0);
	getsockname(fd, (struct sockaddr *)&sin, &len);
	snprintf(address, 32, "127.0.0.1:%u", ntohs(sin.sin_port));
	return fd;
}

static void test_silent_handshake(void **state)
{
	struct fixture *f = *state;
	struct outcome o = {0};
	char address[32];
	int fd = listen_silent(address);
	struct op *op;

	call(f, &o, (struct http_call){.address = address, .timeout_us = 200 * US_PER_MS});
	assert_int_equal(o.failure, HTTP_TIMEOUT);
	/* Cancelled in the middle of it, or left to the client's end. */
	op = start(f, &o, (struct http_call){.address = address});
	loop_turn(f->loop, 1000);
	op_cancel(&op);
	start(f, &o, (struct http_call){.address = address});
	loop_turn(f->loop, 1000);
	http_client_free(take_ptr(&f->client));
	for (int i = 0; i < 3; i++)
		loop_turn(f->loop, 1000);
	assert_false(o.over);
	close(fd);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_connections_are_kept),
		TEST(test_connection_that_ends_is_made_anew),
		TEST(test_host_is_the_callers),
		TEST(test_large_bodies),
		TEST(test_names),
		TEST(test_authorities),
		TEST(test_no_authorities),
		TEST(test_plain_server),
		TEST(test_nobody_listens),
		TEST(test_server_ends),
		TEST(test_silent_handshake),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
