/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only TLS has: the handshake and its failures, plain HTTP at the wrong address, certificates that change, ends that must not look like
 * one. (That all else is as without it: test_http_server and test_http_server_stream run with both.)
 */
#include "test/unit/rpc/http_raw.h"

#include "reactor/base/mem.h"

#define READ_TIMEOUT_US (250 * US_PER_MS)
#define BIG ((size_t)8 << 20)

struct fixture {
	struct loop *loop;
	struct http_server *server;
	struct raw_tls *tls;
	struct http_request *held;
	struct http_stream *stream;
	unsigned n_handled, n_gone, n_refused;
	char *big;
};

static void on_gone(void *arg)
{
	struct fixture *f = arg;

	f->n_gone++;
	f->held = NULL;
	f->stream = NULL;
}

static void handle(void *arg, struct http_request *request)
{
	struct fixture *f = arg;
	struct str path = http_request_path(request);

	f->n_handled++;
	if (str_is(path, "/hold")) {
		f->held = request;
		http_request_on_gone(request, on_gone, f);
	} else if (str_is(path, "/stream")) {
		http_request_on_gone(request, on_gone, f);
		f->stream = http_request_stream(request, 200, "text/plain", -1);
	} else if (str_is(path, "/big")) {
		http_request_reply(request, 200, "text/plain", (struct str){f->big, BIG});
	} else {
		http_request_reply(request, 200, "text/plain", STR("ok"));
	}
}

static void on_refused(void *arg, int status)
{
	struct fixture *f = arg;

	f->n_refused += status == 400;
}

static int setup(void **state)
{
	struct fixture *f = mem_alloc(sizeof(*f));
	const struct http_server_options options = {
		.body_max = 1000,
		.read_timeout_us = *state ? READ_TIMEOUT_US : DEADLINE_US,
		.idle_timeout_us = DEADLINE_US,
		.on_refused = on_refused,
		.handler = handle,
		.arg = f,
	};

	f->loop = loop_new(NULL);
	f->tls = raw_tls_new();
	f->big = mem_alloc(BIG);
	for (size_t i = 0; i < BIG; i++)
		f->big[i] = (char)(i * 7 + i / 4096);
	*state = f;
	assert_int_equal(http_server_new(f->loop, "127.0.0.1:0", &options, &f->server), 0);
	http_server_set_tls(f->server, f->tls->server);
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	http_server_free(f->server);
	raw_tls_free(f->tls);
	loop_free(f->loop);
	free(f->big);
	free(f);
	return 0;
}

static struct raw raw_open_plain(struct fixture *f)
{
	return raw_open_port(f->loop, http_server_port(f->server));
}

static struct raw raw_open(struct fixture *f)
{
	struct raw raw = raw_open_plain(f);

	raw_start_tls(&raw, f->tls->client);
	return raw;
}

static void expect_healthy(struct fixture *f)
{
	struct raw raw = raw_open(f);

	assert_false(raw.closed);
	raw_text(&raw, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
	raw_await(&raw, false);
	expect_status(&raw, 200);
	raw_close(&raw);
	assert_int_equal(http_server_open_requests(f->server), 0);
}

static void await(struct fixture *f, const unsigned *counter, unsigned want)
{
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	while (*counter != want && clock_boot_us() < end_us)
		loop_turn(f->loop, 1000);
	assert_int_equal(*counter, want);
}

/* --- the handshake -------------------------------------------------------------------------------------------------- */

static void test_versions(void **state)
{
	struct fixture *f = *state;

	for (int version = TLS1_1_VERSION; version <= TLS1_3_VERSION; version++) {
		struct raw raw = raw_open_plain(f);

		SSL_CTX_set_security_level(f->tls->client, 0);
		SSL_CTX_set_min_proto_version(f->tls->client, version);
		SSL_CTX_set_max_proto_version(f->tls->client, version);
		raw_start_tls(&raw, f->tls->client);
		assert_int_equal(raw.closed, version < TLS1_2_VERSION);
		if (!raw.closed) {
			assert_int_equal(SSL_version(raw.ssl), version);
			raw_text(&raw, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
			raw_await(&raw, false);
			expect_status(&raw, 200);
		}
		raw_close(&raw);
	}
	SSL_CTX_set_max_proto_version(f->tls->client, 0);
	SSL_CTX_set_min_proto_version(f->tls->client, 0);
	expect_healthy(f);
}

static void test_http_1_1_is_chosen(void **state)
{
	static const unsigned char offer[] = "\x02h2\x08http/1.1";
	struct fixture *f = *state;
	const unsigned char *chosen;
	unsigned n;
	struct raw raw;

	SSL_CTX_set_alpn_protos(f->tls->client, offer, sizeof(offer) - 1);
	raw = raw_open(f);
	SSL_get0_alpn_selected(raw.ssl, &chosen, &n);
	assert_int_equal(n, 8);
	assert_memory_equal(chosen, "http/1.1", 8);
	raw_close(&raw);
}

/* The first bytes of a handshake, byte by byte or none: neither may hold a connection for longer than a header. */
static void test_slow_handshake_is_closed(void **state)
{
	static const char hello[] = "\x16\x03\x01\x02";
	struct fixture *f = *state;

	for (size_t n = 0; n < sizeof(hello); n++) {
		struct raw raw = raw_open_plain(f);
		int64_t start_us = clock_boot_us();

		raw_send(&raw, hello, n);
		raw_await_close(&raw);
		assert_true(clock_boot_us() - start_us >= READ_TIMEOUT_US / 2);
		assert_true(clock_boot_us() - start_us < DEADLINE_US / 2);
		raw_close(&raw);
	}
}

static void test_left_in_the_handshake(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open_plain(f);

	raw_text(&raw, "\x16\x03\x01");
	raw_pump(&raw);
	raw_close(&raw);
	expect_healthy(f);
}

static void test_garbage(void **state)
{
	static const char *const texts[] = {"garbage\r\n\r\n", "\x16\x03\x01zzzzzzzzzzzzzzzzzz",
		"\x80\x2e\x01\x03\x01", "\r\n\r\n\r\n"};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct raw raw = raw_open_plain(f);

		raw_text(&raw, texts[i]);
		shutdown(raw.fd, SHUT_WR);
		raw_await_close(&raw);
		assert_true(!raw.in.len || !strstr(raw.in.data, "HTTP"));
		raw_close(&raw);
	}
	expect_healthy(f);
	assert_int_equal(f->n_handled, 1);
}

/* --- plain HTTP --------------------------------------------------------------------------------------------------------- */

static void test_plain_http_is_told(void **state)
{
	static const char *const texts[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
		"PUT /api HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
		"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct raw raw = raw_open_plain(f);

		raw_text(&raw, texts[i]);
		raw_await_close(&raw);
		assert_false(raw.reset);
		expect_status(&raw, 400);
		assert_non_null(strstr(raw.in.data, "\"https_expected\""));
		assert_non_null(strstr(raw.in.data, "https://"));
		raw_close(&raw);
	}
	assert_int_equal(f->n_handled, 0);
	assert_int_equal(f->n_refused, ARRAY_SIZE(texts));
	expect_healthy(f);
}

/* --- ends ------------------------------------------------------------------------------------------------------------- */

static void test_ends_are_told(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(&raw, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
	raw_await_close(&raw);
	expect_status(&raw, 200);
	assert_false(raw.reset); /* with the alert that says so */
	raw_close(&raw);
	/* And behind a refusal, which drops what still comes. */
	raw = raw_open(f);
	raw_text(&raw, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n");
	raw_await_close(&raw);
	expect_status(&raw, 413);
	assert_false(raw.reset);
	raw_close(&raw);
}

/* Without a length and without chunks the alert would be the end of the body. */
static void test_abort_is_no_end(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(&raw, "GET /stream HTTP/1.0\r\n\r\n");
	await(f, &f->n_handled, 1);
	http_stream_write(f->stream, STR("hello"));
	http_stream_abort(take_ptr(&f->stream));
	raw_await_close(&raw);
	assert_true(raw.reset);
	raw_close(&raw);
	raw = raw_open(f);
	raw_text(&raw, "GET /stream HTTP/1.0\r\n\r\n");
	await(f, &f->n_handled, 2);
	http_stream_write(f->stream, STR("hello"));
	http_stream_end(take_ptr(&f->stream));
	raw_await_close(&raw);
	assert_false(raw.reset);
	raw_close(&raw);
}

/* The client says that it leaves, and keeps the socket. */
static void test_client_says_goodbye(void **state)
{
	struct fixture *f = *state;
	struct raw raw = raw_open(f);

	raw_text(&raw, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
	await(f, &f->n_handled, 1);
	SSL_shutdown(raw.ssl);
	await(f, &f->n_gone, 1);
	raw_close(&raw);
	expect_healthy(f);
}

/* Records that are half sent when the socket is full go on where they were. */
static void test_slow_readers_get_every_byte(void **state)
{
	struct fixture *f = *state;
	struct raw many[3];

	for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
		int small = 65536 << i;

		many[i] = raw_open(f);
		setsockopt(many[i].fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
		raw_text(&many[i], "GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
	}
	await(f, &f->n_handled, ARRAY_SIZE(many));
	for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
		raw_await(&many[i], false);
		expect_status(&many[i], 200);
		assert_memory_equal(strstr(many[i].in.data, "\r\n\r\n") + 4, f->big, BIG);
		raw_close(&many[i]);
	}
	expect_healthy(f);
}

/* --- certificates ------------------------------------------------------------------------------------------------------ */

static void test_new_certificate(void **state)
{
	struct fixture *f = *state;
	struct raw_tls *before = f->tls;
	struct raw old, raw;

	old = raw_open(f);
	f->tls = raw_tls_new();
	http_server_set_tls(f->server, f->tls->server);
	http_tls_free(take_ptr(&f->tls->server)); /* the server has it */
	expect_healthy(f);
	raw = raw_open_plain(f);
	raw_start_tls(&raw, before->client); /* which does not know the new one */
	assert_true(raw.closed);
	raw_close(&raw);
	/* A connection that was there goes on with what it had. */
	raw_text(&old, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
	raw_await(&old, false);
	expect_status(&old, 200);
	raw_close(&old);
	raw_tls_free(before);
	/* And plain again. */
	http_server_set_tls(f->server, NULL);
	raw = raw_open_plain(f);
	raw_text(&raw, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
	raw_await(&raw, false);
	expect_status(&raw, 200);
	raw_close(&raw);
}

static void test_chain(void **state)
{
	struct fixture *f = *state;
	struct certificate root, middle, leaf;
	struct buf chain cleanup(buf_fini) = BUF_INIT;
	char why[HTTP_TLS_WHY];

	certificate_make(&root, "root", NULL, NULL, 3600);
	certificate_make(&middle, "middle", NULL, &root, 3600);
	certificate_make(&leaf, "leaf", "IP:127.0.0.1", &middle, 3600);
	buf_add_str(&chain, buf_str(&leaf.certificate_pem));
	buf_add_str(&chain, buf_str(&middle.certificate_pem));
	http_tls_free(take_ptr(&f->tls->server));
	assert_int_equal(
		http_tls_server(buf_str(&chain), buf_str(&leaf.key_pem), &f->tls->server, why), 0);
	http_server_set_tls(f->server, f->tls->server);
	X509_STORE_add_cert(SSL_CTX_get_cert_store(f->tls->client), root.x509);
	expect_healthy(f);
	certificate_fini(&root);
	certificate_fini(&middle);
	certificate_fini(&leaf);
}

static void refuses(struct str certificates, struct str key, const char *word)
{
	struct http_tls *tls = NULL;
	char why[HTTP_TLS_WHY] = "";

	assert_int_equal(http_tls_server(certificates, key, &tls, why), -EINVAL);
	assert_null(tls);
	if (!strstr(why, word))
		fail_msg("wanted \"%s\" in \"%s\"", word, why);
	assert_int_equal(ERR_peek_error(), 0);
}

static void test_bad_certificates(void **state)
{
	struct fixture *f = *state;
	struct certificate other;
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct str own = buf_str(&f->tls->own.certificate_pem), key = buf_str(&f->tls->own.key_pem);
	BIO *bio = BIO_new(BIO_s_mem());

	certificate_make(&other, "other", "DNS:other", NULL, 3600);
	refuses(STR(""), key, "certificate is no PEM");
	refuses(STR("nonsense"), key, "certificate is no PEM");
	refuses(key, key, "certificate is no PEM");
	refuses((struct str){own.p, own.n / 2}, key, "certificate is no PEM");
	refuses(own, STR(""), "key is no PEM");
	refuses(own, own, "key is no PEM");
	refuses(own, buf_str(&other.key_pem), "not the certificate's");
	buf_add_str(&text, own);
	buf_add_str(&text, (struct str){own.p, own.n / 2});
	refuses(buf_str(&text), key, "behind the first");
	/* With a passphrase, which nobody may be asked for. */
	PEM_write_bio_PrivateKey(bio, f->tls->own.key, EVP_aes_128_cbc(),
		(const unsigned char *)"pass", 4, NULL, NULL);
	buf_clear(&text);
	certificate_pem_of(bio, &text);
	refuses(own, buf_str(&text), "passphrase");
	certificate_fini(&other);
}

static void test_validity(void **state)
{
	struct fixture *f = *state;
	int64_t left_s = http_tls_valid_until(f->tls->server) - clock_wall_us() / US_PER_S;

	assert_in_range(left_s, 3600 - 60, 3600);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
#define HASTY(fn)                                                                                  \
	{                                                                                          \
#fn, fn, setup, teardown, (void *)"hasty"                                          \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_versions),
		TEST(test_http_1_1_is_chosen),
		HASTY(test_slow_handshake_is_closed),
		TEST(test_left_in_the_handshake),
		TEST(test_garbage),
		TEST(test_plain_http_is_told),
		TEST(test_ends_are_told),
		TEST(test_abort_is_no_end),
		TEST(test_client_says_goodbye),
		TEST(test_slow_readers_get_every_byte),
		TEST(test_new_certificate),
		TEST(test_chain),
		TEST(test_bad_certificates),
		TEST(test_validity),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
