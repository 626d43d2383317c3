/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena - memory that is freed all at once: JSON trees and decoded records. Sizes are bounded by the limits checked
 * before (bytes and values of a text, fields of a record), so running out is fatal here as in mem.h, but for
 * arena_try().
 */
#pragma once

#include "reactor/base/str.h"

struct arena_chunk;
struct arena {                      /* zero-initialised = empty */
	struct arena_chunk *chunks; /* the newest first */
	size_t used;                /* of the newest */
	size_t next_size;
};

void *arena_alloc(struct arena *arena, size_t n) must_check; /* zeroed, aligned for anything */
void *arena_try(struct arena *arena, size_t n) must_check;   /* or NULL */
/* Copies with a NUL behind; a present string stays present, an absent one absent. */
struct str arena_copy(struct arena *arena, struct str s) must_check;
void arena_fini(struct arena *arena); /* idempotent */
