/* SPDX-License-Identifier: Apache-2.0 */
/*
 * certificate - certificates for tests, made when they are needed: of an authority, and of who is certified by it.
 */
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "reactor/base/buf.h"
#include "reactor/base/check.h"

struct certificate {
	X509 *x509;
	EVP_PKEY *key;
	struct buf certificate_pem, key_pem;
};

static inline void certificate_fini(struct certificate *c)
{
	X509_free(c->x509);
	EVP_PKEY_free(c->key);
	buf_fini(&c->certificate_pem);
	buf_fini(&c->key_pem);
}

static inline void certificate_extend(struct certificate *c, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *extension;

	X509V3_set_ctx_nodb(&ctx);
	extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, (char *)value);
	CHECK(extension && X509_add_ext(c->x509, extension, -1));
	X509_EXTENSION_free(extension);
}

static inline void certificate_pem_of(BIO *bio, struct buf *out)
{
	char *text;
	long n = BIO_get_mem_data(bio, &text);

	buf_add(out, text, (size_t)n);
	BIO_free(bio);
}

/* names: "IP:127.0.0.1,DNS:judge"; NULL = an authority. By NULL: certified by itself. Valid from a day ago for so many seconds from now. */
static inline void certificate_make(struct certificate *c, const char *common_name,
	const char *names, const struct certificate *by, long seconds)
{
	BIO *bio = BIO_new(BIO_s_mem());

	*c = (struct certificate){.x509 = X509_new(), .key = EVP_EC_gen("P-256")};
	CHECK(c->x509 && c->key);
	X509_set_version(c->x509, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(c->x509), 1 + (long)(uintptr_t)c % 1000000);
	X509_gmtime_adj(X509_getm_notBefore(c->x509), -86400);
	X509_gmtime_adj(X509_getm_notAfter(c->x509), seconds);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(c->x509), "CN", MBSTRING_ASC,
		(const unsigned char *)common_name, -1, -1, 0);
	X509_set_issuer_name(c->x509, X509_get_subject_name(by ? by->x509 : c->x509));
	X509_set_pubkey(c->x509, c->key);
	certificate_extend(
		c, NID_basic_constraints, names ? "critical,CA:FALSE" : "critical,CA:TRUE");
	if (names)
		certificate_extend(c, NID_subject_alt_name, names);
	CHECK(X509_sign(c->x509, by ? by->key : c->key, EVP_sha256()) > 0);
	PEM_write_bio_X509(bio, c->x509);
	certificate_pem_of(bio, &c->certificate_pem);
	bio = BIO_new(BIO_s_mem());
	PEM_write_bio_PrivateKey(bio, c->key, NULL, NULL, 0, NULL, NULL);
	certificate_pem_of(bio, &c->key_pem);
}
