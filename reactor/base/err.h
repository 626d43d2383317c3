/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err - how functions of this project say that something went wrong.
 *
 * An `int` result is
 *   0         done;
 *   positive  a documented condition (MODULE_E_REASON): the direct caller must handle it;
 *   negative  -errno: fatal here, forwarded unchanged.
 *
 * err_origin(e) raises a negative errno, err_trace(e) forwards one: each prints one line
 * "err file:line function: text" to stderr, so a fatal error prints its own path. Both return `e`.
 * err_fold(e) turns an unhandled (positive) condition into -ENOTRECOVERABLE and prints it too.
 */
#pragma once

#include "reactor/base/check.h"

#define err_origin(e) err_note("origin", (e), __FILE__, __LINE__, __func__)
#define err_trace(e) err_note("trace", (e), __FILE__, __LINE__, __func__)
#define err_fold(e) err_fold_note((e), __FILE__, __LINE__, __func__)

int err_note(const char *kind, int error, const char *file, int line, const char *fn);
int err_fold_note(int error, const char *file, int line, const char *fn);
