/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bundle - a set of regular files in one memfd: how files get into a box and how what was built comes out.
 *
 * Format, little-endian, repeated: u32 magic, u32 mode (0 or 1 = executable), u64 size, u16 name length, name, bytes.
 * Names are relative: components of at most 255 bytes other than "." and "..", joined by single '/', no
 * NUL, at most BUNDLE_NAME_MAX bytes and BUNDLE_DEPTH_MAX components. A bundle from a box is hostile: the reader checks everything
 * again and refuses the whole bundle at the first violation. Compiled into conclave-box too, so libc only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reactor/base/check.h"
#include "reactor/base/str.h"

#define BUNDLE_NAME_MAX 1024
#define BUNDLE_DEPTH_MAX 16
#define BUNDLE_FILES_MAX 10000

struct bundle_entry {
	struct str name;
	bool executable;
	uint64_t size;
	const char *bytes; /* borrowed from the mapping */
};

bool bundle_name_is_valid(struct str name);

/* Writer: an unsealed memfd. */
int bundle_create(int *fd) must_check;
int bundle_add(
	int fd, struct str name, bool executable, const void *bytes, uint64_t size) must_check;
/* The same with `size` bytes read from the start of `from` (-EIO when it is shorter): never maps it, so holes cost nothing. */
int bundle_add_from(int fd, struct str name, bool executable, int from, uint64_t size) must_check;
/* Seals against every change; after it the descriptor can be given to any box. */
int bundle_seal(int fd) must_check;

/* Reader: maps fd (which must be sealed or ours alone) and checks everything; bytes_max bounds the sum of sizes.
 * 0; -EBADMSG when malformed, -EFBIG when over a bound. */
struct bundle {
	const char *map;
	uint64_t map_size;
	unsigned n_files;
	uint64_t bytes; /* sum of sizes */
};
int bundle_open(int fd, uint64_t bytes_max, struct bundle *out) must_check;
void bundle_close(struct bundle *b); /* unmaps; idempotent */
/* Iteration: *pos starts at 0; false at the end. */
bool bundle_next(const struct bundle *b, uint64_t *pos, struct bundle_entry *out);
