/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls - contexts of OpenSSL. A context is shared by all connections that were made with it, and each keeps it alive; so a new certificate
 * is a new context, and the old one goes with its last connection.
 *
 * What is set, and why:
 * - a passphrase is never asked for: the library would ask the terminal, and wait
 * - no cache of sessions: clients keep theirs (tickets), so no client can make us keep something
 * - buffers are given back between records: a client that waits costs a third
 * - ALPN says http/1.1 to whoever asks, so nobody begins with HTTP/2
 */
#include "rpc/http/tls_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "reactor/base/mem.h"

/* --- errors ------------------------------------------------------------------------------------------------------------- */

/* The oldest error of the library is the cause. */
static int fail(char why[HTTP_TLS_WHY], const char *what)
{
	unsigned long code = ERR_get_error();
	const char *reason = code ? ERR_reason_error_string(code) : NULL;

	snprintf(why, HTTP_TLS_WHY, "%s%s%s", what, reason ? ": " : "", reason ? reason : "");
	ERR_clear_error();
	return -EINVAL;
}

static int no_passphrase(char *out, int n, int writing, void *arg)
{
	return -1;
}

/* --- contexts ------------------------------------------------------------------------------------------------------------ */

static struct http_tls *new_context(const SSL_METHOD *method)
{
	struct http_tls *tls = mem_alloc(sizeof(*tls));

	ERR_clear_error();
	tls->ctx = SSL_CTX_new(method);
	CHECK(tls->ctx);
	CHECK(SSL_CTX_set_min_proto_version(tls->ctx, TLS1_2_VERSION) == 1);
	SSL_CTX_set_options(tls->ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_mode(tls->ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_session_cache_mode(tls->ctx, SSL_SESS_CACHE_OFF);
	return tls;
}

void http_tls_free(struct http_tls *tls)
{
	if (!tls)
		return;
	SSL_CTX_free(tls->ctx);
	free(tls);
}

int64_t http_tls_valid_until(const struct http_tls *tls)
{
	return tls->valid_until;
}

/* --- a server's ------------------------------------------------------------------------------------------------------------ */

static int select_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_n,
	const unsigned char *in, unsigned in_n, void *arg)
{
	static const unsigned char ours[] = "\x08http/1.1";
	unsigned char *found;

	if (SSL_select_next_proto(&found, out_n, ours, sizeof(ours) - 1, in, in_n) !=
		OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_NOACK;
	*out = found;
	return SSL_TLSEXT_ERR_OK;
}

static int64_t valid_until(const X509 *certificate)
{
	struct tm tm;

	if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &tm) != 1)
		return 0;
	return timegm(&tm);
}

static int use_certificates(struct http_tls *tls, BIO *bio, char *why)
{
	X509 *certificate = PEM_read_bio_X509_AUX(bio, NULL, no_passphrase, NULL);
	int ok;

	if (!certificate)
		return fail(why, "the certificate is no PEM");
	tls->valid_until = valid_until(certificate);
	ok = SSL_CTX_use_certificate(tls->ctx, certificate);
	X509_free(certificate);
	if (ok != 1)
		return fail(why, "the certificate cannot be used");
	while ((certificate = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL))) {
		if (SSL_CTX_add0_chain_cert(tls->ctx, certificate) == 1)
			continue;
		X509_free(certificate);
		return fail(why, "a certificate behind the first cannot be used");
	}
	if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		return fail(why, "a certificate behind the first is no PEM");
	ERR_clear_error(); /* the end of the text */
	return 0;
}

static int use_key(struct http_tls *tls, BIO *bio, char *why)
{
	EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
	int ok;

	if (!key)
		return fail(why, "the key is no PEM, or has a passphrase");
	ok = SSL_CTX_use_PrivateKey(tls->ctx, key);
	EVP_PKEY_free(key);
	if (ok != 1 || SSL_CTX_check_private_key(tls->ctx) != 1)
		return fail(why, "the key is not the certificate's");
	return 0;
}

static int use_text(struct http_tls *tls, struct str text,
	int (*use)(struct http_tls *tls, BIO *bio, char *why), char *why)
{
	BIO *bio = BIO_new_mem_buf(text.p, (int)text.n);
	int r = bio ? use(tls, bio, why) : fail(why, "no memory");

	BIO_free(bio);
	return r;
}

int http_tls_server(
	struct str certificates, struct str key, struct http_tls **out, char why[HTTP_TLS_WHY])
{
	struct http_tls *tls = new_context(TLS_server_method());
	int r = use_text(tls, certificates, use_certificates, why);

	if (!r)
		r = use_text(tls, key, use_key, why);
	if (r) {
		http_tls_free(tls);
		return r;
	}
	SSL_CTX_set_alpn_select_cb(tls->ctx, select_protocol, NULL);
	*out = tls;
	return 0;
}

/* --- a client's ------------------------------------------------------------------------------------------------------------ */

int http_tls_client(const char *ca_file, struct http_tls **out, char why[HTTP_TLS_WHY])
{
	struct http_tls *tls = new_context(TLS_client_method());
	int ok = ca_file ? SSL_CTX_load_verify_file(tls->ctx, ca_file)
			 : SSL_CTX_set_default_verify_paths(tls->ctx);

	if (ok != 1) {
		http_tls_free(tls);
		return fail(why, ca_file ? "no certificates can be read there"
					 : "the system's certificates cannot be read");
	}
	SSL_CTX_set_verify(tls->ctx, SSL_VERIFY_PEER, NULL);
	*out = tls;
	return 0;
}
