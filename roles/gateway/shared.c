/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared - theory of operation
 *
 *     memfd:  head (who serves, restarts) | buckets | users | slot 0 | slot 1 | ...
 *
 * Made once by the service, inherited by its workers at each start, sealed against a change of its size so that no access can fail. There
 * are no locks, since a process may be killed at any instruction: every word is whole by itself.
 *
 * - A slot has one writer, its worker, who goes on from what is there: counters do not go back when a worker dies.
 * - A bucket is a word for whose it is and one for when it is full again. Its place is one of WINDOW that follow from the key. Whoever
 *   does not find his takes the first that is nobody's or full, for a full one says nothing: that is how those of tokens that are gone
 *   are used again. Two processes at once may so give one token a request more than its rate, never fewer.
 * - Users are a list that only grows: who is found once stays where he is.
 */
#include "roles/gateway/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reactor/base/mem.h"
#include "roles/gateway/gateway_int.h"

#define MAGIC UINT64_C(0x65766c636e6f4301) /* and the layout's number */
#define BUCKETS 8192                       /* four times TOKENS_MAX */
#define WINDOW 64
#define USERS 4096 /* names since the service was started; those beyond share the last place */

struct bucket {
	uint64_t key; /* 0 = nobody's */
	int64_t full_at_us;
};

struct head {
	uint64_t magic;
	uint64_t live; /* a bit a slot */
	uint64_t restarts;
	struct bucket buckets[BUCKETS];
	struct shared_user users[USERS];
};

struct shared {
	int fd;
	unsigned n_slots;
	size_t size;
	struct head *head;
};

static size_t size_of(unsigned n_slots)
{
	return sizeof(struct head) + n_slots * sizeof(struct metrics_slot);
}

/* --- life ------------------------------------------------------------------------------------------------------------ */

static int map_memory(int fd, size_t size, struct shared **out)
{
	struct shared *s;
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		return -errno;
	s = mem_alloc(sizeof(*s));
	s->fd = fd;
	s->size = size;
	s->n_slots = (unsigned)((size - sizeof(struct head)) / sizeof(struct metrics_slot));
	s->head = memory;
	*out = s;
	return 0;
}

static int fill(int fd, unsigned n_slots, struct shared **out)
{
	size_t size = size_of(n_slots);
	int r;

	if (ftruncate(fd, (off_t)size) < 0 ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	r = map_memory(fd, size, out);
	if (!r)
		(*out)->head->magic = MAGIC;
	return r;
}

int shared_new(unsigned n_slots, struct shared **out)
{
	int fd = memfd_create("conclave-web", MFD_CLOEXEC | MFD_ALLOW_SEALING), r;

	CHECK(n_slots >= 1 && n_slots <= SHARED_SLOTS_MAX);
	if (fd < 0)
		return -errno;
	r = fill(fd, n_slots, out);
	if (r)
		close(fd);
	return r;
}

static bool is_ours(int fd, size_t *size)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) < 0)
		return false;
	*size = (size_t)st.st_size;
	for (unsigned n = 1; n <= SHARED_SLOTS_MAX; n++)
		if (size_of(n) == *size)
			return true;
	return false;
}

int shared_open(int fd, struct shared **out)
{
	size_t size;
	int own, r;

	if (!is_ours(fd, &size))
		return -EINVAL;
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return -errno;
	r = map_memory(own, size, out);
	if (r) {
		close(own);
		return r;
	}
	if ((*out)->head->magic == MAGIC)
		return 0;
	shared_free(*out);
	return -EINVAL;
}

int shared_fd(const struct shared *s)
{
	return s->fd;
}

void shared_free(struct shared *s)
{
	if (!s)
		return;
	munmap(s->head, s->size);
	close(s->fd);
	free(s);
}

/* --- slots ------------------------------------------------------------------------------------------------------------ */

unsigned shared_n_slots(const struct shared *s)
{
	return s->n_slots;
}

struct metrics_slot *shared_slot(const struct shared *s, unsigned slot)
{
	CHECK(slot < s->n_slots);
	return (struct metrics_slot *)(s->head + 1) + slot;
}

uint64_t shared_set_live(struct shared *s, unsigned slot, bool live)
{
	uint64_t bit = UINT64_C(1) << slot;

	CHECK(slot < s->n_slots);
	return live ? __atomic_or_fetch(&s->head->live, bit, __ATOMIC_SEQ_CST)
		    : __atomic_and_fetch(&s->head->live, ~bit, __ATOMIC_SEQ_CST);
}

uint64_t shared_live(const struct shared *s)
{
	return __atomic_load_n(&s->head->live, __ATOMIC_SEQ_CST);
}

void shared_slot_ended(struct shared *s, unsigned slot, bool asked)
{
	shared_set_live(s, slot, false);
	metrics_slot_clear_now(shared_slot(s, slot));
	for (unsigned i = 0; i < USERS && s->head->users[i].key; i++)
		__atomic_store_n(&s->head->users[i].adding[slot], 0, __ATOMIC_SEQ_CST);
	if (!asked)
		__atomic_fetch_add(&s->head->restarts, 1, __ATOMIC_RELAXED);
}

uint64_t shared_restarts(const struct shared *s)
{
	return __atomic_load_n(&s->head->restarts, __ATOMIC_RELAXED);
}

/* --- users -------------------------------------------------------------------------------------------------------------- */

/* FNV-1a. Never 0. */
static uint64_t hash_of(const char *name)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	return h + !h;
}

struct shared_user *shared_user(struct shared *s, const char *name)
{
	uint64_t key = hash_of(name);

	for (unsigned i = 0; i < USERS; i++) {
		struct shared_user *user = &s->head->users[i];
		uint64_t owner = 0;

		if (__atomic_compare_exchange_n(
			    &user->key, &owner, key, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) ||
			owner == key)
			return user;
	}
	return &s->head->users[USERS - 1];
}

int64_t shared_user_adding(const struct shared_user *user)
{
	int64_t n = 0;

	for (unsigned i = 0; i < SHARED_SLOTS_MAX; i++)
		n += __atomic_load_n(&user->adding[i], __ATOMIC_SEQ_CST);
	return n;
}

/* --- buckets ------------------------------------------------------------------------------------------------------------ */

static struct bucket *bucket_find(struct head *head, uint64_t key)
{
	for (unsigned i = 0; i < WINDOW; i++) {
		struct bucket *b = &head->buckets[(key + i) % BUCKETS];

		if (__atomic_load_n(&b->key, __ATOMIC_ACQUIRE) == key)
			return b;
	}
	return NULL;
}

/* One that is nobody's, or full: his key goes in. NULL: all of the window are in use. */
static struct bucket *bucket_take(struct head *head, uint64_t key, int64_t now_us)
{
	for (unsigned i = 0; i < WINDOW; i++) {
		struct bucket *b = &head->buckets[(key + i) % BUCKETS];
		uint64_t owner = __atomic_load_n(&b->key, __ATOMIC_ACQUIRE);

		if (owner == key)
			return b; /* another worker was faster */
		if (owner && __atomic_load_n(&b->full_at_us, __ATOMIC_RELAXED) > now_us)
			continue;
		if (__atomic_compare_exchange_n(
			    &b->key, &owner, key, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
			owner == key)
			return b;
	}
	return NULL;
}

int64_t *shared_bucket(struct shared *s, const unsigned char digest[32], int64_t now_us)
{
	struct bucket *b;
	uint64_t key;

	memcpy(&key, digest, sizeof(key));
	key += !key;
	b = bucket_find(s->head, key);
	if (!b)
		b = bucket_take(s->head, key, now_us);
	if (!b)
		b = &s->head->buckets
			     [key % BUCKETS]; /* shared with its owner: slower for both, never free */
	return &b->full_at_us;
}
