/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blob - content that is kept once and named by its SHA-256: 64 hex digits in lower case.
 */
#pragma once

#include <stdint.h>

#include "reactor/base/str.h"

#define BLOB_NAME_LEN 64
#define BLOB_PIECE_MAX (INT64_C(1) << 20) /* bytes of one in a message */
#define BLOB_SIZE_MAX (INT64_C(4) << 30)
/* Content over this becomes a blob by itself. */
#define BLOB_INLINE_MAX (INT64_C(64) << 10)

bool blob_name_is_valid(struct str name);

/* The name of bytes that come in pieces. */
struct blob_hash;
struct blob_hash *blob_hash_new(void) must_check;
void blob_hash_add(struct blob_hash *hash, struct str bytes);
void blob_hash_end(
	struct blob_hash *hash, char out[BLOB_NAME_LEN + 1]); /* once, with a NUL behind */
void blob_hash_free(struct blob_hash *hash);                  /* NULL is fine */
