/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop_int - what loop.c and timer.c share: the loop owns the heap, the timers are in it. Slot 0 of the
 * heap is unused, so that heap_slot == 0 says "not armed" of a zeroed timer.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct loop;
struct timer;

struct timer_heap {
	struct timer **slots;
	size_t count; /* slots[1 .. count] */
	size_t cap;
	uint64_t order; /* of the next timer armed */
};

struct timer_heap *loop_timer_heap(struct loop *loop);

/* The earliest, or NULL. */
struct timer *timer_heap_first(const struct timer_heap *heap);
/* Takes the earliest out of the heap and calls it. */
void timer_heap_fire(struct timer_heap *heap);
/* Disarms all and frees the heap. */
void timer_heap_fini(struct timer_heap *heap);
