/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a process that found itself impossible. The line goes out with write(2), not stdio: the heap
 * or a lock of stdio may be what is broken, and a worker thread may be the one that found it.
 */
#include "reactor/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

_Noreturn void check_failed(const char *file, int line, const char *fn, const char *what)
{
	char text[512];
	int n = snprintf(text, sizeof(text), "check failed %s:%d %s: %s\n", file, line, fn, what);

	if (n >= (int)sizeof(text))
		n = (int)sizeof(text) - 1;
	if (n > 0 && write(STDERR_FILENO, text, (size_t)n) < 0)
		abort();
	abort();
}
