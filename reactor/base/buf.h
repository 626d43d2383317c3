/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf - a growing byte buffer. `data` is never NULL after the first add and always has a NUL behind
 * `len` (not counted), so text can be printed. Zero-initialised (BUF_INIT) is a valid empty buffer.
 */
#pragma once

#include <stdarg.h>

#include "reactor/base/str.h"

struct buf {
	char *data;
	size_t len;
	size_t cap;
};

#define BUF_INIT ((struct buf){NULL, 0, 0})

void buf_fini(struct buf *b); /* idempotent; also usable as cleanup(buf_fini) */
void buf_clear(struct buf *b);
/* Room for n more bytes; returns where they go. The caller then raises len itself
 * (buf_str() and buf_take() see to the NUL). */
char *buf_reserve(struct buf *b, size_t n);
void buf_add(struct buf *b, const void *p, size_t n);
void buf_add_str(struct buf *b, struct str s);
void buf_add_char(struct buf *b, char c);
void buf_addf(struct buf *b, const char *fmt, ...) printf_like(2, 3);
void buf_vaddf(struct buf *b, const char *fmt, va_list ap) printf_like(2, 0);
/* Borrowed until the next change; present even when empty. */
struct str buf_str(const struct buf *b);
/* Moves the memory out (never NULL, NUL-terminated; free() it) and leaves the buffer empty. */
char *buf_take(struct buf *b);
/* Drops the first n bytes. */
void buf_drop(struct buf *b, size_t n);
