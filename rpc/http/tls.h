/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http/tls - what a server shows and what a client believes, made of PEM text. TLS 1.2 and later.
 */
#pragma once

#include <stdint.h>

#include "reactor/base/str.h"

struct http_tls;

#define HTTP_TLS_WHY 256

/* A server's: its certificate, the intermediate ones behind it, and its key. 0, or -EINVAL and why, for people. */
int http_tls_server(struct str certificates, struct str key, struct http_tls **out,
	char why[HTTP_TLS_WHY]) must_check;
/* A client's: it believes who is certified by the file's certificates, or (NULL) by those the system trusts. */
int http_tls_client(const char *ca_file, struct http_tls **out, char why[HTTP_TLS_WHY]) must_check;
void http_tls_free(struct http_tls *tls); /* NULL is fine; servers and clients that have it go on */
/* A server's: seconds since 1970 until which its certificate is valid. */
int64_t http_tls_valid_until(const struct http_tls *tls);
