/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line a hop, each written whole, so the lines of a failing process and those of its children do not
 * mix. strerrordesc_np() rather than strerror(): it is safe on the pool's workers.
 */
#include "reactor/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void err_print(
	const char *kind, const char *text, const char *file, int line, const char *fn)
{
	char out[512];
	int n = snprintf(out, sizeof(out), "err %s:%d %s: %s (%s)\n", file, line, fn, text, kind);

	if (n >= (int)sizeof(out))
		n = (int)sizeof(out) - 1;
	/* Nothing can be done when stderr is gone, and nothing must fail because of it. */
	if (n > 0 && write(STDERR_FILENO, out, (size_t)n) < 0)
		return;
}

int err_note(const char *kind, int error, const char *file, int line, const char *fn)
{
	int saved = errno;
	const char *text = strerrordesc_np(error < 0 ? -error : error);

	err_print(kind, text ? text : "unknown error", file, line, fn);
	errno = saved;
	return error;
}

int err_fold_note(int error, const char *file, int line, const char *fn)
{
	char text[48];
	int saved = errno;

	if (error <= 0)
		return error;
	snprintf(text, sizeof(text), "unhandled condition %d", error);
	err_print("fold", text, file, line, fn);
	errno = saved;
	return -ENOTRECOVERABLE;
}
