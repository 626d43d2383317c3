/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared - the memory that the web workers of one service have in common: what each has counted, the buckets of the tokens' rates, how
 * many tasks each user may have open, and who of them serves. The service makes it and hands it to each worker it starts, so a worker's death loses nothing of it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reactor/base/check.h"

struct metrics_slot;
struct shared;

#define SHARED_SLOTS_MAX 64

/* Memory for so many workers, all of it zero. 0 or -errno. */
int shared_new(unsigned n_slots, struct shared **out) must_check;
/* What another process made, by its descriptor, which stays the caller's. -EINVAL: it is no such memory. */
int shared_open(int fd, struct shared **out) must_check;
int shared_fd(const struct shared *shared); /* borrowed */
void shared_free(struct shared *shared);    /* NULL is fine */

unsigned shared_n_slots(const struct shared *shared);
/* Only the worker of that number writes there; all read. */
struct metrics_slot *shared_slot(const struct shared *shared, unsigned slot);

/* Who serves: a bit a worker. Returns what is so now. */
uint64_t shared_set_live(struct shared *shared, unsigned slot, bool live);
uint64_t shared_live(const struct shared *shared);
/* A worker has ended: what it held is gone, what it counted stays. Unless it was asked to, that is a restart more. */
void shared_slot_ended(struct shared *shared, unsigned slot, bool asked);
uint64_t shared_restarts(const struct shared *shared);

/* An upper bound of a user's open tasks is base + added (access.c). All of it is read and written by every worker, but `adding` by its
 * own. */
struct shared_user {
	uint64_t key; /* 0 = nobody's, and so are all behind it */
	int64_t base;
	int64_t added; /* let through, ever */
	uint32_t adding
		[SHARED_SLOTS_MAX]; /* by each worker: let through, and not in the store yet */
};

struct shared_user *shared_user(struct shared *shared, const char *name);
int64_t shared_user_adding(const struct shared_user *user);

/* The bucket of this token (the SHA-256 of the secret): for token_charge(), from any worker. */
int64_t *shared_bucket(struct shared *shared, const unsigned char digest[32], int64_t now_us);
