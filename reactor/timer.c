/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A binary heap of pointers to timers that live inside their owners; each timer knows its slot, so
 * stopping is O(log n) and needs no search. The key is (at_us, order): equal times fire as armed, in a
 * test and in production alike.
 *
 * Arming wakes nobody: there is one thread, and the loop looks at the earliest timer before each wait.
 * at_us is never before now: a timer that keeps re-arming itself "in the past" stays behind those that
 * were due already, and so cannot starve them.
 */
#include "reactor/timer.h"

#include <stdlib.h>

#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/loop_int.h"

#define HEAP_CAP_MIN 16
#define BACKOFF_JITTER_PERCENT 20

static bool timer_is_before(const struct timer *a, const struct timer *b)
{
	return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void heap_put(struct timer_heap *heap, size_t slot, struct timer *t)
{
	heap->slots[slot] = t;
	t->heap_slot = slot;
}

/* Puts t into the free slot, or above it. */
static void heap_sift_up(struct timer_heap *heap, size_t slot, struct timer *t)
{
	for (; slot > 1 && timer_is_before(t, heap->slots[slot / 2]); slot /= 2)
		heap_put(heap, slot, heap->slots[slot / 2]);
	heap_put(heap, slot, t);
}

/* Puts t into the free slot, or below it. */
static void heap_sift_down(struct timer_heap *heap, size_t slot, struct timer *t)
{
	for (size_t child; (child = 2 * slot) <= heap->count; slot = child) {
		if (child < heap->count &&
			timer_is_before(heap->slots[child + 1], heap->slots[child]))
			child++;
		if (!timer_is_before(heap->slots[child], t))
			break;
		heap_put(heap, slot, heap->slots[child]);
	}
	heap_put(heap, slot, t);
}

static void heap_add(struct timer_heap *heap, struct timer *t)
{
	if (heap->count + 1 >= heap->cap) {
		heap->cap = heap->cap ? heap->cap * 2 : HEAP_CAP_MIN;
		heap->slots = mem_resize(heap->slots, heap->cap * sizeof(struct timer *));
	}
	t->order = heap->order++;
	heap->count++;
	heap_sift_up(heap, heap->count, t);
}

static void heap_del(struct timer_heap *heap, struct timer *t)
{
	size_t slot = t->heap_slot;
	struct timer *last = heap->slots[heap->count];

	CHECK(slot <= heap->count && heap->slots[slot] == t);
	heap->count--;
	t->heap_slot = 0;
	if (last == t)
		return;
	if (slot > 1 && timer_is_before(last, heap->slots[slot / 2]))
		heap_sift_up(heap, slot, last);
	else
		heap_sift_down(heap, slot, last);
}

struct timer *timer_heap_first(const struct timer_heap *heap)
{
	return heap->count ? heap->slots[1] : NULL;
}

void timer_heap_fire(struct timer_heap *heap)
{
	struct timer *t = timer_heap_first(heap);

	heap_del(heap, t);
	t->fn(t->arg); /* may free t */
}

void timer_heap_fini(struct timer_heap *heap)
{
	for (size_t i = 1; i <= heap->count; i++)
		heap->slots[i]->heap_slot = 0;
	free(heap->slots);
	*heap = (struct timer_heap){0};
}

void timer_init(struct timer *t, struct loop *loop, timer_fn *fn, void *arg)
{
	*t = (struct timer){.loop = loop, .fn = fn, .arg = arg};
}

void timer_start(struct timer *t, int64_t delay_us)
{
	int64_t at_us;

	if (__builtin_add_overflow(loop_now_us(t->loop), delay_us, &at_us))
		at_us = delay_us > 0 ? INT64_MAX : 0;
	timer_start_at(t, at_us);
}

void timer_start_at(struct timer *t, int64_t at_us)
{
	int64_t now_us = loop_now_us(t->loop);

	timer_stop(t);
	t->at_us = at_us > now_us ? at_us : now_us;
	heap_add(loop_timer_heap(t->loop), t);
}

void timer_stop(struct timer *t)
{
	if (t->heap_slot)
		heap_del(loop_timer_heap(t->loop), t);
}

bool timer_is_armed(const struct timer *t)
{
	return t->heap_slot != 0;
}

int64_t timer_jitter(struct loop *loop, int64_t us, unsigned percent)
{
	int64_t spread = us / 100 * percent + us % 100 * percent / 100;

	if (spread <= 0)
		return us;
	return us - spread + (int64_t)loop_random_below(loop, (uint64_t)spread * 2 + 1);
}

int64_t backoff_next(struct backoff *b, struct loop *loop)
{
	int64_t us = b->next_us ? b->next_us : b->min_us;

	if (us > b->max_us)
		us = b->max_us;
	b->next_us = us > b->max_us / 2 ? b->max_us : us * 2;
	return timer_jitter(loop, us, BACKOFF_JITTER_PERCENT);
}

void backoff_reset(struct backoff *b)
{
	b->next_us = 0;
}
