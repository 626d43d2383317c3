/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CLOCK_BOOTTIME rather than CLOCK_MONOTONIC: a lease or a deadline that ran out while the machine slept
 * has run out. Both reads are served by the vDSO, without entering the kernel.
 */
#include "reactor/base/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t clock_us(clockid_t which)
{
	struct timespec ts;

	clock_gettime(which, &ts);
	return (int64_t)ts.tv_sec * US_PER_S + ts.tv_nsec / 1000;
}

int64_t clock_boot_us(void)
{
	return clock_us(CLOCK_BOOTTIME);
}

int64_t clock_wall_us(void)
{
	return clock_us(CLOCK_REALTIME);
}

char *clock_text(int64_t wall_us, char out[CLOCK_TEXT_MAX])
{
	time_t seconds = (time_t)(wall_us / US_PER_S);
	struct tm tm;
	size_t n;

	out[0] = '\0';
	if (wall_us <= 0 || !gmtime_r(&seconds, &tm))
		return out;
	n = strftime(out, CLOCK_TEXT_MAX - 6, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, CLOCK_TEXT_MAX - n, ".%03uZ",
		(unsigned)(wall_us % US_PER_S / US_PER_MS) % 1000);
	return out;
}
