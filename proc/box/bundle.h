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
	uint64_t at;       /* of its bytes in the descriptor */
	const char *bytes; /* borrowed from the mapping */
};

bool bundle_name_is_valid(struct str name);

/* Writer: an unsealed memfd. */
int bundle_create(int *fd) must_check;
int bundle_add(
	int fd, struct str name, bool executable, const void *bytes, uint64_t size) must_check;
/* The same with `size` bytes read from the start of `from` (-EIO when it is shorter). Holes, and pages of zeros, stay holes: a sparse
 * file costs no more here than there. */
int bundle_add_from(int fd, struct str name, bool executable, int from, uint64_t size) must_check;
/* The same in pieces: makes an entry of `size` zeros, none of which takes memory yet, and says where they begin. The bytes follow by
 * bundle_write() and bundle_copy(), in any pieces; the bundle is whole at every moment. */
int bundle_begin(
	int fd, struct str name, bool executable, uint64_t size, uint64_t *body) must_check;
int bundle_write(int fd, uint64_t at, const char *bytes, uint64_t size) must_check;
/* From descriptor to descriptor, where `fd` is a hole so far and no shorter than that. -EIO when `from` is too short. */
int bundle_copy(int fd, uint64_t at, int from, uint64_t from_at, uint64_t size) must_check;
/* Seals against every change; after it the descriptor can be given to any box. */
int bundle_seal(int fd) must_check;

/* Reader: maps fd (which must be sealed or ours alone) and checks everything; bytes_max bounds the sum of sizes.
 * 0; -EBADMSG when malformed, -EFBIG when over a bound. */
struct bundle {
	int fd; /* borrowed */
	const char *map;
	uint64_t map_size;
	unsigned n_files;
	uint64_t bytes; /* sum of sizes */
};
int bundle_open(int fd, uint64_t bytes_max, struct bundle *out) must_check;
void bundle_close(struct bundle *b); /* unmaps; idempotent */
/* Iteration: *pos starts at 0; false at the end. */
bool bundle_next(const struct bundle *b, uint64_t *pos, struct bundle_entry *out);
/* The entry's bytes into the empty file `to`, holes as holes. The mapping is not touched where there is nothing: reading a hole
 * through a mapping would fill it. */
int bundle_extract(const struct bundle *b, const struct bundle_entry *entry, int to) must_check;
