/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout - a bundle becomes files in a directory, and what a program left there becomes a bundle again.
 *
 * Laying out happens in a fresh, empty directory before anything untrusted has run. Collecting happens in a hostile
 * tree: names are resolved beneath the directory without links of any kind, only plain files with one name are
 * taken, opening never blocks, and everything is bounded. libc only: conclave-box is built from this file too.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "reactor/base/check.h"

#define LAYOUT_WHY_MAX 200

struct layout_owner {
	bool read_only; /* files are root's: 0444, executables 0555, directories 0755; else the ids' below */
	uid_t uid; /* (uid_t)-1: leave as created */
	gid_t gid;
};

/* 0, or -errno and *why in words; what was made so far stays. */
int layout_unpack(int dir, int bundle_fd, const struct layout_owner *owner,
	char why[LAYOUT_WHY_MAX]) must_check;
/* Appends all regular files beneath dir to the bundle in out_fd; 0, -EFBIG over bytes_max or a bound of bundles
 * (files, depth), or -errno; *why in words. */
int layout_collect(int dir, int out_fd, uint64_t bytes_max, char why[LAYOUT_WHY_MAX]) must_check;
