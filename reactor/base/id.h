/* SPDX-License-Identifier: Apache-2.0 */
/*
 * id - a task's identity: 24 lower-case hex digits (96 bits), ObjectId-compatible: 4 bytes of seconds,
 * 8 bytes that the caller draws at random. Passive value, compared and stored as text.
 */
#pragma once

#include "reactor/base/str.h"

#define ID_LEN 24

struct id {
	char hex[ID_LEN + 1];
};

/* From wall seconds and 64 random bits. */
struct id id_make(uint32_t seconds, uint64_t random);
/* From the first 12 bytes at p. */
struct id id_from_bytes(const void *p);
/* Exactly 24 hex digits in lower case. */
bool id_is_valid(struct str s);
/* Copies a valid id; false (out = "") when s is not one. */
bool id_parse(struct str s, struct id *out);
bool id_eq(const struct id *a, const struct id *b);
static inline struct str id_str(const struct id *id)
{
	return (struct str){id->hex, ID_LEN};
}
