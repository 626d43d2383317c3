/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check - broken invariants, and the attributes every header uses.
 *
 * CHECK() is for bugs only: it prints file, line and expression to stderr and aborts. Bad input, full
 * disks and dead peers are conditions (see err.h), never a CHECK.
 */
#pragma once

#include <stddef.h>

#define must_check __attribute__((warn_unused_result))
#define cleanup(fn) __attribute__((cleanup(fn)))
#define printf_like(fmt, args) __attribute__((format(printf, fmt, args)))
#define unused __attribute__((unused))

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (__builtin_expect(!(cond), 0))                                                  \
			check_failed(__FILE__, __LINE__, __func__, #cond);                         \
	} while (0)

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* Hands an owned pointer over: returns *pp and leaves NULL there, so a cleanup attribute does nothing. */
#define take_ptr(pp)                                                                               \
	({                                                                                         \
		__typeof__(*(pp)) taken_ = *(pp);                                                  \
		*(pp) = NULL;                                                                      \
		taken_;                                                                            \
	})

/* Prints the broken invariant to stderr and aborts. Never returns. */
_Noreturn void check_failed(const char *file, int line, const char *fn, const char *what);
