/* SPDX-License-Identifier: Apache-2.0 */
/* One spelling of a name only, so that a blob has one name. */
/* First: `unused` is a name in these and not yet our attribute. */
#include <openssl/evp.h>

#include "rpc/blob.h"

#include "reactor/base/mem.h"

struct blob_hash {
	EVP_MD_CTX *context;
};

static bool is_digit(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

bool blob_name_is_valid(struct str name)
{
	if (name.n != BLOB_NAME_LEN)
		return false;
	for (size_t i = 0; i < name.n; i++) {
		if (!is_digit(name.p[i]))
			return false;
	}
	return true;
}

struct blob_hash *blob_hash_new(void)
{
	struct blob_hash *hash = mem_alloc(sizeof(*hash));

	hash->context = EVP_MD_CTX_new();
	CHECK(hash->context && EVP_DigestInit_ex(hash->context, EVP_sha256(), NULL));
	return hash;
}

void blob_hash_add(struct blob_hash *hash, struct str bytes)
{
	if (bytes.n)
		CHECK(EVP_DigestUpdate(hash->context, bytes.p, bytes.n));
}

void blob_hash_end(struct blob_hash *hash, char out[BLOB_NAME_LEN + 1])
{
	static const char digits[] = "0123456789abcdef";
	unsigned char digest[EVP_MAX_MD_SIZE];

	CHECK(EVP_DigestFinal_ex(hash->context, digest, NULL));
	for (size_t i = 0; i < BLOB_NAME_LEN / 2; i++) {
		out[2 * i] = digits[digest[i] >> 4];
		out[2 * i + 1] = digits[digest[i] & 15];
	}
	out[BLOB_NAME_LEN] = '\0';
}

void blob_hash_free(struct blob_hash *hash)
{
	if (!hash)
		return;
	EVP_MD_CTX_free(hash->context);
	free(hash);
}
