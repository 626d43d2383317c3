/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock - the two clocks of the kernel, in microseconds. Only reactor/loop reads them (everybody else
 * asks loop_now_us() and loop_wall_us(), which tests can fake) and benches.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

int64_t clock_boot_us(void); /* CLOCK_BOOTTIME: monotonic, counts suspend */
int64_t clock_wall_us(void); /* CLOCK_REALTIME since 1970 */

#define CLOCK_TEXT_MAX 32
/* "2026-11-27T21:00:00.000Z" (UTC, ms) into out; returns out. wall_us <= 0 gives "". */
char *clock_text(int64_t wall_us, char out[CLOCK_TEXT_MAX]);

#define US_PER_MS INT64_C(1000)
#define US_PER_S INT64_C(1000000)
