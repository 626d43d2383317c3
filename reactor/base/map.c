/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Separate chaining over a power of two of slots, kept at most 3/4 full. Keys come from clients (header
 * names, task ids, labels), so the hash is keyed SipHash-1-3 with a key drawn for each map at its first
 * entry: nobody outside can line up collisions. Chance does not disturb a replay, because nothing that
 * can be seen depends on the slots: iteration walks the ring `order`, which is insertion order.
 *
 * Replacing a value keeps the entry's place in that order. An empty map owns no memory.
 */
#include "reactor/base/map.h"

#include <stdlib.h>
#include <sys/random.h>

#include "reactor/base/mem.h"

#define MAP_SLOTS_MIN 8

static inline uint64_t rotl(uint64_t x, int by)
{
	return (x << by) | (x >> (64 - by));
}

static inline void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = rotl(v[1], 13) ^ v[0];
	v[0] = rotl(v[0], 32);
	v[2] += v[3];
	v[3] = rotl(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotl(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotl(v[1], 17) ^ v[2];
	v[2] = rotl(v[2], 32);
}

static uint64_t map_hash(const struct map *m, struct str key)
{
	uint64_t v[4] = {
		m->hash_key[0] ^ UINT64_C(0x736f6d6570736575),
		m->hash_key[1] ^ UINT64_C(0x646f72616e646f6d),
		m->hash_key[0] ^ UINT64_C(0x6c7967656e657261),
		m->hash_key[1] ^ UINT64_C(0x7465646279746573),
	};
	size_t whole = key.n & ~(size_t)7;

	for (size_t i = 0; i <= whole; i += 8) {
		/* The last word holds the odd bytes and the length. */
		uint64_t word = i == whole ? (uint64_t)key.n << 56 : 0;
		size_t take = i == whole ? key.n - whole : 8;

		for (size_t k = 0; k < take; k++)
			word |= (uint64_t)(uint8_t)key.p[i + k] << (8 * k);
		v[3] ^= word;
		sip_round(v);
		v[0] ^= word;
	}
	v[2] ^= 0xff;
	sip_round(v);
	sip_round(v);
	sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void map_init(struct map *m)
{
	*m = (struct map){0};
	list_init(&m->order);
}

void map_fini(struct map *m)
{
	map_each (it, m)
		free(map_entry_of(it));
	free(m->slots);
	map_init(m);
}

static void map_grow(struct map *m)
{
	size_t n_slots = m->n_slots ? m->n_slots * 2 : MAP_SLOTS_MIN;
	struct map_entry **slots = mem_array(n_slots, sizeof(struct map_entry *));

	map_each (it, m) {
		struct map_entry *e = map_entry_of(it);
		struct map_entry **slot = &slots[e->hash & (n_slots - 1)];

		e->chain = *slot;
		*slot = e;
	}
	free(m->slots);
	m->slots = slots;
	m->n_slots = n_slots;
}

/* Where the pointer to key's entry is, or would be put. The map has slots. */
static struct map_entry **map_slot(const struct map *m, struct str key, uint64_t hash)
{
	struct map_entry **at = &m->slots[hash & (m->n_slots - 1)];

	while (*at) {
		struct map_entry *e = *at;

		if (e->hash == hash && e->key_len == key.n &&
			(key.n == 0 || memcmp(e->key, key.p, key.n) == 0))
			break;
		at = &e->chain;
	}
	return at;
}

void *map_set(struct map *m, struct str key, void *value)
{
	struct map_entry **at, *e;
	uint64_t hash;

	CHECK(value);
	if (!m->slots)
		CHECK(getrandom(m->hash_key, sizeof(m->hash_key), 0) == sizeof(m->hash_key));
	if (m->count >= m->n_slots / 4 * 3)
		map_grow(m);
	hash = map_hash(m, key);
	at = map_slot(m, key, hash);
	if (*at) {
		void *old = (*at)->value;

		(*at)->value = value;
		return old;
	}
	CHECK(key.n < SIZE_MAX - sizeof(*e));
	e = mem_alloc(sizeof(*e) + key.n + 1);
	e->hash = hash;
	e->value = value;
	e->key_len = key.n;
	if (key.n)
		memcpy(e->key, key.p, key.n);
	list_add_tail(&m->order, &e->order);
	*at = e;
	m->count++;
	return NULL;
}

void *map_get(const struct map *m, struct str key)
{
	struct map_entry *e = m->count ? *map_slot(m, key, map_hash(m, key)) : NULL;

	return e ? e->value : NULL;
}

void *map_del(struct map *m, struct str key)
{
	struct map_entry **at = m->count ? map_slot(m, key, map_hash(m, key)) : NULL;
	struct map_entry *e = at ? *at : NULL;
	void *value;

	if (!e)
		return NULL;
	*at = e->chain;
	list_del(&e->order);
	value = e->value;
	free(e);
	m->count--;
	return value;
}
