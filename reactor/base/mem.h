/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem - allocation of things whose size we choose. These abort when memory is out; anything a client
 * can size is checked against a limit first and allocated with mem_try().
 */
#pragma once

#include <stdlib.h>

#include "reactor/base/check.h"

/* Zeroed memory of n bytes (n may be 0); never NULL. Free with free(). */
void *mem_alloc(size_t n) must_check;
/* Zeroed array of n items; aborts on overflow too. */
void *mem_array(size_t n, size_t size) must_check;
/* realloc that aborts; new bytes are not zeroed. */
void *mem_resize(void *p, size_t n) must_check;
/* Zeroed memory, or NULL when there is none: for sizes that came from outside. */
void *mem_try(size_t n) must_check;
/* Copies n bytes and adds a NUL behind them; never NULL. */
char *mem_dup(const void *p, size_t n) must_check;
/* Copies a C string; NULL stays NULL. */
char *mem_strdup(const char *s);
/* printf into fresh memory; never NULL. */
char *mem_printf(const char *fmt, ...) printf_like(1, 2) must_check;
/* Overwrites before freeing, for secrets. NULL is fine. */
void mem_wipe_free(void *p, size_t n);

/* For `char *p cleanup(mem_freep) = NULL;` */
void mem_freep(void *pp);
