/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http/client - HTTP/1.1 client on evhttp: a pool of keep-alive connections per address, one request in flight on each. A request
 * that is cancelled closes its connection and that connection is never used again.
 *
 * With TLS every connection of a client speaks it, and nothing is sent before the server's certificate is believed.
 *
 * Addresses are IP literals (resolving names would block the loop). TCP keepalive 1 s x 3 finds a silent cut.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reactor/base/str.h"
#include "reactor/op.h"

struct http_client;
struct http_tls;
struct log;
struct loop;

struct http_client_options {
	struct log *log; /* borrowed */
	unsigned
		connections_max; /* per address, over it requests wait in line (bounded by waiting_max); 0 = 64 */
	unsigned waiting_max;       /* 0 = 1024 */
	int64_t body_max;           /* of a response; 0 = 256 MiB */
	int64_t connect_timeout_us; /* 0 = 2 s */
	const struct http_tls *tls; /* borrowed for the client's life; NULL = plain HTTP */
	const char *
		tls_name; /* whom the certificate must name: a host name or an IP literal. Borrowed likewise */
};

struct http_header {
	const char *name, *value;
};

struct http_call {
	const char *address;               /* "IP:PORT" */
	const char *method;                /* "GET" "POST" "PUT" "DELETE" */
	const char *path;                  /* with query */
	const struct http_header *headers; /* without Host there, it is the address */
	unsigned n_headers;
	struct str body;    /* copied */
	int64_t timeout_us; /* whole call, waiting in line included */
	bool fresh;         /* on a connection of its own, never on a kept one */
	/* A good answer (2xx) in pieces, as they come; the reply is empty then, and comes behind the last. What it says may neither cancel
	 * this call nor free the client. body_max counts them all. NULL: whole, in the reply. */
	void (*on_piece)(void *arg, struct str piece);
};

enum http_failure {
	HTTP_OK_REPLY, /* a whole reply came, whatever its status */
	HTTP_REFUSED,  /* could not connect */
	HTTP_TIMEOUT,
	HTTP_BROKEN, /* closed or garbled before the reply was whole */
	HTTP_TOO_LARGE,
	HTTP_UNTRUSTED, /* connected, but no TLS came about, or the certificate is not believed: nothing was sent */
};

struct http_reply { /* borrowed for the callback */
	enum http_failure failure;
	bool stale; /* with HTTP_BROKEN: a kept connection ended before a byte of the reply came. The server may just have closed it
		     * for being idle, or may have had the request: a caller whose call is safe to repeat does so, `fresh` */
	const char *why; /* with HTTP_UNTRUSTED: OpenSSL's words */
	int status;
	struct str content_type;
	struct str body;
};

typedef void http_reply_fn(void *arg, const struct http_reply *reply);

struct http_client *http_client_new(
	struct loop *loop, const struct http_client_options *options) must_check;
/* See reactor/op.h. -EAGAIN when the line is full, -EINVAL for a bad address. */
int http_client_call(struct http_client *client, const struct http_call *call, http_reply_fn *cb,
	void *arg, struct op **op) must_check;
void http_client_free(struct http_client *client); /* cancels everything; NULL is fine */
