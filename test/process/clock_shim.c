/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock_shim - preloaded, it moves a program's wall clock and nothing else: clock_gettime() of the realtime clocks, gettimeofday() and
 * time() are off by the microseconds that stand (native, 8 bytes) in the file CONCLAVE_TEST_CLOCK names. The file is mapped, so one write
 * to it sets the clock of all programs that have it, as somebody's `date --set` would. The machine's clock stays as it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define US INT64_C(1000000)

static const volatile int64_t *shift;

__attribute__((constructor)) static void shim_open(void)
{
	const char *path = getenv("CONCLAVE_TEST_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *map;

	if (fd < 0)
		return;
	map = mmap(NULL, sizeof(*shift), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (map != MAP_FAILED)
		shift = map;
}

static void move(struct timespec *ts)
{
	int64_t us = shift ? *shift : 0;

	ts->tv_sec += us / US;
	ts->tv_nsec += us % US * 1000;
	if (ts->tv_nsec < 0) {
		ts->tv_nsec += 1000000000;
		ts->tv_sec--;
	} else if (ts->tv_nsec >= 1000000000) {
		ts->tv_nsec -= 1000000000;
		ts->tv_sec++;
	}
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
	if (syscall(SYS_clock_gettime, id, ts) != 0)
		return -1;
	if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
		move(ts);
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return -1;
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	if (out)
		*out = ts.tv_sec;
	return ts.tv_sec;
}
