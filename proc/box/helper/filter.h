/* SPDX-License-Identifier: Apache-2.0 */
/* filter - the seccomp program every run gets: built once at start, loaded raw by each program. */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>

#include "reactor/base/check.h"

/* 0 and a program on the heap (never freed: it lives as long as we do), or -errno. `polled`: memory that no process maps would be
 * seen by nobody, so what makes it is refused. */
int filter_build(bool polled, struct sock_fprog *out) must_check;
