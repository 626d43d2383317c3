/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A buffer grows by doubling, so n bytes cost O(n) in all. Invariant: data == NULL and len == cap == 0,
 * or cap > len. Whoever raises len after buf_reserve() may leave no NUL behind it, so buf_str() and
 * buf_take() write it again: `const` there protects the contents, not the byte behind them.
 */
#include "reactor/base/buf.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "reactor/base/mem.h"

#define BUF_CAP_MIN 64

void buf_fini(struct buf *b)
{
	free(b->data);
	*b = BUF_INIT;
}

void buf_clear(struct buf *b)
{
	b->len = 0;
	if (b->data)
		b->data[0] = '\0';
}

char *buf_reserve(struct buf *b, size_t n)
{
	CHECK(n < SIZE_MAX / 2 - b->len);
	if (b->cap - b->len <= n) {
		size_t cap = b->cap ? b->cap : BUF_CAP_MIN;

		while (cap - b->len <= n)
			cap *= 2;
		b->data = mem_resize(b->data, cap);
		b->cap = cap;
	}
	b->data[b->len] = '\0';
	return b->data + b->len;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
	char *room = buf_reserve(b, n);

	if (n)
		memcpy(room, p, n);
	b->len += n;
	b->data[b->len] = '\0';
}

void buf_add_str(struct buf *b, struct str s)
{
	buf_add(b, s.p, s.n);
}

void buf_add_char(struct buf *b, char c)
{
	buf_add(b, &c, 1);
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	buf_vaddf(b, fmt, ap);
	va_end(ap);
}

void buf_vaddf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	char *room = buf_reserve(b, BUF_CAP_MIN - 1);
	int n;

	va_copy(again, ap);
	n = vsnprintf(room, b->cap - b->len, fmt, ap);
	CHECK(n >= 0);
	if ((size_t)n >= b->cap - b->len) {
		room = buf_reserve(b, (size_t)n);
		n = vsnprintf(room, b->cap - b->len, fmt, again);
	}
	va_end(again);
	b->len += (size_t)n;
}

struct str buf_str(const struct buf *b)
{
	if (!b->data)
		return STR("");
	b->data[b->len] = '\0';
	return (struct str){b->data, b->len};
}

char *buf_take(struct buf *b)
{
	char *data;

	buf_reserve(b, 0);
	data = b->data;
	*b = BUF_INIT;
	return data;
}

void buf_drop(struct buf *b, size_t n)
{
	CHECK(n <= b->len);
	if (n == 0)
		return;
	b->len -= n;
	memmove(b->data, b->data + n, b->len);
	b->data[b->len] = '\0';
}
