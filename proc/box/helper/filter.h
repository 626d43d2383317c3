/* SPDX-License-Identifier: Apache-2.0 */
/* filter - the seccomp program every run gets: built once at start, loaded raw by each program. */
#pragma once

#include <linux/filter.h>

#include "reactor/base/check.h"

/* 0 and a program on the heap (never freed: it lives as long as we do), or -errno. */
int filter_build(struct sock_fprog *out) must_check;
