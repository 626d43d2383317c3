/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_raw - a client of raw bytes for tests of http/server. It lives on the server's loop: it sends, turns the loop, and reads. With
 * TLS the same bytes go through it, and the tests are the same.
 */
#pragma once

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "reactor/base/buf.h"
#include "reactor/base/clock.h"
#include "reactor/io.h"
#include "reactor/loop.h"
#include "rpc/http/server.h"
#include "rpc/http/tls.h"
#include "test/unit/rpc/certificate.h"

#define DEADLINE_US (30 * US_PER_S)

struct raw {
	struct loop *loop;
	int fd;
	SSL *ssl;    /* NULL = plain */
	bool closed; /* by the server */
	bool reset;  /* without saying so: a reset, or with TLS an end without its alert */
	struct buf in;
};

static inline struct raw raw_open_port(struct loop *loop, unsigned port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	struct raw raw = {.loop = loop, .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	int on = 1;

	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(connect(raw.fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	setsockopt(raw.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	assert_int_equal(io_set_nonblocking(raw.fd), 0);
	return raw;
}

/* recv() and send() of both kinds: bytes, 0 at the end, -1 and errno. */
static inline ssize_t raw_result(struct raw *raw, int n)
{
	int error = SSL_get_error(raw->ssl, n);
	bool wait = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;

	ERR_clear_error();
	if (n > 0)
		return n;
	errno = wait ? EAGAIN : ECONNRESET;
	return error == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

static inline ssize_t raw_recv(struct raw *raw, void *p, size_t n)
{
	if (!raw->ssl)
		return recv(raw->fd, p, n, MSG_DONTWAIT);
	return raw_result(raw, SSL_read(raw->ssl, p, (int)n));
}

static inline ssize_t raw_write(struct raw *raw, const void *p, size_t n)
{
	if (!raw->ssl)
		return send(raw->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
	return raw_result(raw, SSL_write(raw->ssl, p, (int)n));
}

static inline void raw_close(struct raw *raw)
{
	SSL_free(raw->ssl);
	close(raw->fd);
	buf_fini(&raw->in);
}

/* One turn; takes what has come. */
static inline void raw_pump(struct raw *raw)
{
	char block[65536];
	ssize_t n;

	loop_turn(raw->loop, 1000);
	while (!raw->closed && (n = raw_recv(raw, block, sizeof(block))) != -1) {
		if (n == 0)
			raw->closed = true;
		buf_add(&raw->in, block, (size_t)n);
	}
	if (!raw->closed && errno != EAGAIN)
		raw->closed = raw->reset = true;
}

static inline void raw_send(struct raw *raw, const void *p, size_t n)
{
	const char *at = p;
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	while (n && clock_boot_us() < end_us) {
		ssize_t sent = raw_write(raw, at, n);

		if (sent > 0) {
			at += sent;
			n -= (size_t)sent;
			continue;
		}
		if (errno != EAGAIN)
			return; /* the server has closed */
		raw_pump(raw);
	}
	assert_int_equal(n, 0);
}

/* Shakes hands, unless the server hangs up. */
static inline void raw_start_tls(struct raw *raw, SSL_CTX *ctx)
{
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	raw->ssl = SSL_new(ctx);
	SSL_set_fd(raw->ssl, raw->fd);
	SSL_set_connect_state(raw->ssl);
	while (!SSL_is_init_finished(raw->ssl) && !raw->closed && clock_boot_us() < end_us) {
		if (raw_result(raw, SSL_do_handshake(raw->ssl)) == -1 && errno != EAGAIN)
			raw->closed = raw->reset = true;
		loop_turn(raw->loop, 1000);
	}
}

/* Both ends of a test's TLS. */
struct raw_tls {
	struct certificate own;
	struct http_tls *server;
	SSL_CTX *client;
};

static inline struct raw_tls *raw_tls_new(void)
{
	struct raw_tls *tls = calloc(1, sizeof(*tls));
	char why[HTTP_TLS_WHY];

	certificate_make(&tls->own, "test", "IP:127.0.0.1", NULL, 3600);
	assert_int_equal(http_tls_server(buf_str(&tls->own.certificate_pem),
				 buf_str(&tls->own.key_pem), &tls->server, why),
		0);
	tls->client = SSL_CTX_new(TLS_client_method());
	SSL_CTX_set_mode(
		tls->client, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	X509_STORE_add_cert(SSL_CTX_get_cert_store(tls->client), tls->own.x509);
	SSL_CTX_set_verify(tls->client, SSL_VERIFY_PEER, NULL);
	return tls;
}

static inline void raw_tls_free(struct raw_tls *tls)
{
	if (!tls)
		return;
	http_tls_free(tls->server);
	SSL_CTX_free(tls->client);
	certificate_fini(&tls->own);
	free(tls);
}

static inline void raw_text(struct raw *raw, const char *text)
{
	raw_send(raw, text, strlen(text));
}

/* Length of one whole response at the start of what has come, or 0. */
static inline size_t response_len(const struct raw *raw, bool head)
{
	const char *end = raw->in.data ? strstr(raw->in.data, "\r\n\r\n") : NULL;
	const char *length;
	size_t n;

	if (!end)
		return 0;
	n = (size_t)(end + 4 - raw->in.data);
	length = strstr(raw->in.data, "\r\nContent-Length: ");
	if (length && length < end && !head)
		n += strtoul(length + 18, NULL, 10);
	return raw->in.len >= n ? n : 0;
}

static inline void raw_await(struct raw *raw, bool head)
{
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	while (!raw->closed && !response_len(raw, head) && clock_boot_us() < end_us)
		raw_pump(raw);
}

static inline void raw_await_close(struct raw *raw)
{
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	while (!raw->closed && clock_boot_us() < end_us)
		raw_pump(raw);
	assert_true(raw->closed);
}

/* The whole answer to one input, which must be the only one. */
static inline void expect_status(struct raw *raw, int status)
{
	char line[32];

	raw_await(raw, false);
	snprintf(line, sizeof(line), "HTTP/1.1 %d ", status);
	assert_non_null(raw->in.data);
	if (strncmp(raw->in.data, line, strlen(line)) != 0)
		fail_msg("wanted %s, got %.200s", line, raw->in.data);
	assert_int_equal(response_len(raw, false), raw->in.len);
	assert_non_null(strstr(raw->in.data, "\r\nDate: "));
	if (status == 503)
		assert_non_null(strstr(raw->in.data, "\r\nRetry-After: 1\r\n"));
	if (status >= 400)
		assert_non_null(
			strstr(raw->in.data, "\r\nContent-Type: application/problem+json\r\n"));
}

static inline void expect_text(struct raw *raw, const char *text)
{
	if (!strstr(raw->in.data, text))
		fail_msg("wanted %s in %.500s", text, raw->in.data);
}

static inline void again(struct raw *raw)
{
	buf_clear(&raw->in);
}
