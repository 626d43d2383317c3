/* SPDX-License-Identifier: Apache-2.0 */
/*
 * malloc that does not fail. Everything allocated here is small and sized by us; running out of it means
 * the process cannot even log, so it ends where a supervisor sees it. Sizes from outside go through
 * mem_try(), whose caller answers with a condition.
 */
#include "reactor/base/mem.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static void *mem_need(void *p)
{
	if (!p)
		check_failed(__FILE__, __LINE__, __func__, "out of memory");
	return p;
}

void *mem_alloc(size_t n)
{
	return mem_need(calloc(1, n ? n : 1));
}

void *mem_array(size_t n, size_t size)
{
	size_t bytes;

	return mem_need(__builtin_mul_overflow(n, size, &bytes) ? NULL : mem_alloc(bytes));
}

void *mem_resize(void *p, size_t n)
{
	return mem_need(realloc(p, n ? n : 1));
}

void *mem_try(size_t n)
{
	return calloc(1, n ? n : 1);
}

char *mem_dup(const void *p, size_t n)
{
	char *copy;

	CHECK(n < SIZE_MAX);
	copy = mem_need(malloc(n + 1));
	if (n)
		memcpy(copy, p, n);
	copy[n] = '\0';
	return copy;
}

char *mem_strdup(const char *s)
{
	return s ? mem_dup(s, strlen(s)) : NULL;
}

char *mem_printf(const char *fmt, ...)
{
	char *out = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&out, fmt, ap);
	va_end(ap);
	return mem_need(n < 0 ? NULL : out);
}

void mem_wipe_free(void *p, size_t n)
{
	if (p)
		explicit_bzero(p, n);
	free(p);
}

void mem_freep(void *pp)
{
	void **p = pp;

	free(*p);
	*p = NULL;
}
