/* SPDX-License-Identifier: Apache-2.0 */
/*
 * str - a borrowed run of bytes (8-bit clean, not NUL-terminated), and what is asked of one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "reactor/base/check.h"

struct str {
	const char *p; /* NULL means absent; an empty present string has p != NULL, n == 0 */
	size_t n;
};

#define STR(lit) ((struct str){(lit), sizeof(lit) - 1})
#define STR_NULL ((struct str){NULL, 0})
#define STR_FMT "%.*s"
#define STR_ARG(s) (int)(s).n, (s).p

/* From a C string; NULL gives STR_NULL. */
struct str str_from(const char *s);
bool str_eq(struct str a, struct str b);
bool str_is(struct str a, const char *s);
/* Byte order, shorter first when one is a prefix. */
int str_cmp(struct str a, struct str b);
/* Fresh NUL-terminated copy, freed with free(); NULL when absent. */
char *str_dup(struct str s);
/* Without leading and trailing spaces, tabs, CR, LF. */
struct str str_trim(struct str s);
/* Cuts the part before the first `sep` off *rest and stores it in *head; false when *rest is absent.
 * The last piece leaves *rest absent. */
bool str_cut(struct str *rest, char sep, struct str *head);
/* Whole string is a decimal int64 (optional '-'); false and *out untouched otherwise. */
bool str_to_i64(struct str s, int64_t *out);
/* Whole string is valid UTF-8 (no surrogates, no overlong forms, <= U+10FFFF; NUL is valid). */
bool str_is_utf8(struct str s);
