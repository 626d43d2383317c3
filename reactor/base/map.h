/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map - hash map from bytes to one pointer. Keys are copied; values are borrowed. Iteration is in
 * insertion order, so tests replay exactly; set and del are legal for the current entry while iterating
 * (a key added meanwhile goes to the end; the walk may or may not come to it).
 */
#pragma once

#include "reactor/base/list.h"
#include "reactor/base/str.h"

struct map_entry {
	struct list order;
	struct map_entry *chain;
	uint64_t hash;
	void *value;
	size_t key_len;
	char key[]; /* NUL-terminated copy */
};

struct map {
	struct map_entry **slots;
	size_t n_slots;
	size_t count;
	uint64_t hash_key[2]; /* drawn at the first entry: clients cannot aim at one slot */
	struct list order;
};

void map_init(struct map *m);
void map_fini(struct map *m); /* frees entries and keys, not values; idempotent after init */
/* Stores value (not NULL) under key; returns the value replaced, or NULL. */
void *map_set(struct map *m, struct str key, void *value);
void *map_get(const struct map *m, struct str key); /* or NULL */
void *map_del(struct map *m, struct str key);       /* the value taken out, or NULL */

static inline size_t map_count(const struct map *m)
{
	return m->count;
}

static inline struct map_entry *map_entry_of(struct list *link)
{
	return list_entry(link, struct map_entry, order);
}

/* map_each(it, m) { struct foo *f = map_entry_of(it)->value; ... } */
#define map_each(it, m) list_each_safe (it, &(m)->order)
