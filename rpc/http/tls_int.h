/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls_int - tls.h's inside, for http/server and http/client. Included before our own headers: in OpenSSL's `unused` is a name.
 */
#pragma once

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "rpc/http/tls.h"

struct http_tls {
	SSL_CTX *ctx;
	int64_t valid_until;
};
