/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of chunks that double from 128 bytes to 256 KiB, so a small message costs one allocation and a large one few. What
 * does not fit into a quarter of a chunk gets a chunk of its own behind the newest, so no room is lost.
 */
#include "rpc/arena.h"

#include "reactor/base/mem.h"

#include <stdalign.h>
#include <stdint.h>

#define CHUNK_MIN 128
#define CHUNK_MAX (256 * 1024)

struct arena_chunk {
	struct arena_chunk *next;
	size_t size;
	alignas(max_align_t) char bytes[];
};

static struct arena_chunk *chunk_new(size_t size)
{
	struct arena_chunk *chunk = NULL;

	if (size <= SIZE_MAX - sizeof(*chunk))
		chunk = mem_try(sizeof(*chunk) + size);
	if (chunk)
		chunk->size = size;
	return chunk;
}

static void *alloc_alone(struct arena *arena, size_t n)
{
	struct arena_chunk *chunk = chunk_new(n);

	if (!chunk)
		return NULL;
	if (arena->chunks) {
		chunk->next = arena->chunks->next;
		arena->chunks->next = chunk;
	} else {
		arena->chunks = chunk;
		arena->used = n;
	}
	return chunk->bytes;
}

static bool grow(struct arena *arena)
{
	struct arena_chunk *chunk = chunk_new(arena->next_size);

	if (!chunk)
		return false;
	chunk->next = arena->chunks;
	arena->chunks = chunk;
	arena->used = 0;
	if (arena->next_size < CHUNK_MAX)
		arena->next_size *= 2;
	return true;
}

void *arena_try(struct arena *arena, size_t n)
{
	const size_t align = alignof(max_align_t);
	char *p;

	if (n > SIZE_MAX - align)
		return NULL;
	n = (n + align - 1) / align * align;
	if (arena->next_size == 0)
		arena->next_size = CHUNK_MIN;
	if (!arena->chunks || n > arena->chunks->size - arena->used) {
		if (n > arena->next_size / 4)
			return alloc_alone(arena, n);
		if (!grow(arena))
			return NULL;
	}
	p = arena->chunks->bytes + arena->used;
	arena->used += n;
	return p;
}

void *arena_alloc(struct arena *arena, size_t n)
{
	void *p = arena_try(arena, n);

	CHECK(p != NULL);
	return p;
}

struct str arena_copy(struct arena *arena, struct str s)
{
	char *p;

	if (!s.p)
		return STR_NULL;
	p = arena_alloc(arena, s.n + 1);
	if (s.n)
		memcpy(p, s.p, s.n);
	return (struct str){p, s.n};
}

void arena_fini(struct arena *arena)
{
	while (arena->chunks) {
		struct arena_chunk *chunk = arena->chunks;

		arena->chunks = chunk->next;
		free(chunk);
	}
	*arena = (struct arena){NULL, 0, 0};
}
