/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An `entry` is one blob, on its way or here:
 *
 *   want ──> FETCHING: ask ──piece──> [write, hash] ──> ask ... last ──> [rename] ──> READY
 *                 ^   \── no judicator: pause, the next one                            │ want: pinned
 *                 │                                                                    v
 *   start ──> FOUND ──want──> [read, hash]: right ──────────────────────────────────> READY ──room is needed──> gone
 *                 └── wrong: as if it had not been there                             [] = on the worker
 *
 * Whoever wants it is a `blob_wait` on the entry; when there are none left the fetch ends. A READY entry that is pinned has its file
 * open, so that nothing can take it away, and is not counted among those that may go.
 *
 * What a start finds has been written by an earlier process, and its hash is looked at before it is believed, once. What a fetch brings
 * is hashed while it is written. At each use the size is compared with what it was: a file that was cut or grown is fetched again.
 *
 * Pieces are asked for one after the other, so a blob costs a few MiB of memory at most, however large it is, and any judicator may send
 * any piece. Files are not synced: what a power failure takes is found out by the hash.
 *
 * A job of the worker may outlive its entry: it then only cleans up. Each writes to a file of its own, since the next fetch of the
 * same blob may have begun by then.
 */
#include "roles/executor/blob_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reactor/base/clock.h"
#include "reactor/base/log.h"
#include "reactor/base/map.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/pool.h"
#include "reactor/timer.h"

#define JOBS_MAX 512
#define PART ".part"
#define PAUSE_MIN_US (50 * US_PER_MS)
#define PAUSE_MAX_US (2 * US_PER_S)
#define HASH_WRONG 1

enum entry_state { FOUND, FETCHING, READY };

struct blob_cache {
	struct loop *loop;
	struct log *log;
	struct transport *transport;
	struct peers peers;
	char *dir;
	int64_t bytes_max;
	struct pool *pool; /* NULL until there is work */
	uint64_t n_jobs;
	struct map entries;
	struct list order; /* struct entry, the longest unused first */
	struct blob_cache_stats stats;
};

struct entry {
	struct blob blob; /* first: what is lent. fd is -1 unless pinned */
	struct blob_cache *cache;
	struct list link; /* cache->order */
	enum entry_state state;
	char name[BLOB_NAME_LEN + 1];
	unsigned pins;
	char *map;
	struct list waits; /* struct blob_wait */
	struct defer tell; /* READY: those on waits get it */
	/* FETCHING */
	struct op *op;
	struct msg_blob_get_request request;
	const char *asked;
	struct timer pause;
	struct backoff backoff;
	struct job *job;
	int64_t started_us;
};

struct blob_wait {
	struct list link;    /* entry->waits */
	struct entry *entry; /* NULL: it has failed, and this one is about to hear it */
	blob_ready_fn *fn;
	void *arg;
};

/* On the worker: one file, from its first byte to its name. */
struct job {
	struct pool_job job;
	struct blob_cache *cache;
	struct entry *entry; /* NULL: nobody wants it any more */
	int (*run)(struct job *job);
	void (*done)(struct job *job);
	char *path, *part;
	char name[BLOB_NAME_LEN + 1];
	struct blob_hash *hash;
	int fd;
	struct buf piece;
	int64_t at;
	bool is_last;
	bool is_away; /* with the worker; else it is the entry's */
	int result;   /* 0, HASH_WRONG, -errno */
};

static void fetch(struct entry *e);
static void ask(struct entry *e);

/* --- jobs ------------------------------------------------------------------------------------------------------- */

static struct job *job_new(struct blob_cache *cache, struct entry *entry, const char *name)
{
	struct job *job = mem_alloc(sizeof(*job));

	list_init(&job->job.link);
	job->cache = cache;
	job->entry = entry;
	job->fd = -1;
	job->path = mem_printf("%s/%s", cache->dir, name);
	job->part = mem_printf(
		"%s/%s" PART "%llu", cache->dir, name, (unsigned long long)cache->n_jobs++);
	snprintf(job->name, sizeof(job->name), "%s", name);
	job->hash = blob_hash_new();
	return job;
}

static void job_free(struct job *job)
{
	if (job->fd >= 0)
		close(job->fd);
	blob_hash_free(job->hash);
	buf_fini(&job->piece);
	free(job->path);
	free(job->part);
	free(job);
}

static struct job *job_of(struct pool_job *job)
{
	return (struct job *)((char *)job - offsetof(struct job, job));
}

static void on_worker(struct pool_job *pool_job, void *resource unused)
{
	struct job *job = job_of(pool_job);

	job->result = job->run(job);
}

static void on_back(struct pool_job *pool_job)
{
	struct job *job = job_of(pool_job);

	job->is_away = false;
	job->done(job);
}

/* False: no thread, or a full line. */
static bool job_start(struct job *job, int (*run)(struct job *), void (*done)(struct job *))
{
	struct blob_cache *cache = job->cache;
	const struct pool_options options = {.name = "blobs", .workers = 1, .queue_max = JOBS_MAX};

	if (!cache->pool && pool_new(cache->loop, &options, &cache->pool) < 0)
		return false;
	job->run = run;
	job->done = done;
	job->job.run = on_worker;
	job->job.done = on_back;
	job->is_away = pool_submit(cache->pool, &job->job) == 0;
	return job->is_away;
}

static bool hash_is_right(struct job *job)
{
	char name[BLOB_NAME_LEN + 1];

	blob_hash_end(job->hash, name);
	return strcmp(name, job->name) == 0;
}

static int write_all(int fd, struct str bytes, int64_t at)
{
	while (bytes.n) {
		ssize_t n = pwrite(fd, bytes.p, bytes.n, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		at += n;
		bytes.p += n;
		bytes.n -= (size_t)n;
	}
	return 0;
}

static int run_write(struct job *job)
{
	int r;

	if (job->fd < 0)
		job->fd = open(job->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0400);
	if (job->fd < 0)
		return -errno;
	blob_hash_add(job->hash, buf_str(&job->piece));
	r = write_all(job->fd, buf_str(&job->piece), job->at);
	if (r || !job->is_last)
		return r;
	if (!hash_is_right(job))
		return HASH_WRONG;
	return rename(job->part, job->path) < 0 ? -errno : 0;
}

static int run_verify(struct job *job)
{
	char chunk[65536];
	ssize_t n;

	job->fd = open(job->path, O_RDONLY | O_CLOEXEC);
	if (job->fd < 0)
		return -errno;
	while ((n = read(job->fd, chunk, sizeof(chunk))) > 0)
		blob_hash_add(job->hash, (struct str){chunk, (size_t)n});
	if (n < 0)
		return -errno;
	return hash_is_right(job) ? 0 : HASH_WRONG;
}

static int run_remove(struct job *job)
{
	unlink(job->path);
	return 0;
}

static int run_give_up(struct job *job)
{
	unlink(job->part);
	return 0;
}

/* A file that could not be removed is found by the next start. */
static void remove_file(struct blob_cache *cache, const char *name)
{
	struct job *job = job_new(cache, NULL, name);

	if (!job_start(job, run_remove, job_free))
		job_free(job);
}

static void job_give_up(struct job *job)
{
	if (!job_start(job, run_give_up, job_free))
		job_free(job);
}

/* --- entries ------------------------------------------------------------------------------------------------------ */

static void on_tell(void *arg);
static void on_pause_over(void *arg);

static struct entry *entry_new(struct blob_cache *cache, struct str name, enum entry_state state)
{
	struct entry *e = mem_alloc(sizeof(*e));

	e->cache = cache;
	e->state = state;
	memcpy(e->name, name.p, BLOB_NAME_LEN);
	e->blob = (struct blob){.name = e->name, .fd = -1};
	e->backoff = (struct backoff){.min_us = PAUSE_MIN_US, .max_us = PAUSE_MAX_US};
	list_init(&e->link);
	list_init(&e->waits);
	defer_init(&e->tell, on_tell, e);
	timer_init(&e->pause, cache->loop, on_pause_over, e);
	list_add_tail(&cache->order, &e->link);
	map_set(&cache->entries, name, e);
	return e;
}

static void unpin_file(struct entry *e)
{
	if (e->map)
		munmap(take_ptr(&e->map), (size_t)e->blob.size);
	if (e->blob.fd >= 0)
		close(e->blob.fd);
	e->blob.fd = -1;
}

/* One that is away cleans up when it is back. */
static void leave_job(struct entry *e)
{
	struct job *job = take_ptr(&e->job);

	if (!job)
		return;
	job->entry = NULL;
	if (!job->is_away)
		job_give_up(job);
}

static void entry_free(struct entry *e)
{
	CHECK(list_is_empty(&e->waits) && !e->pins);
	op_cancel(&e->op);
	timer_stop(&e->pause);
	defer_cancel(&e->tell);
	leave_job(e);
	unpin_file(e);
	list_del(&e->link);
	map_del(&e->cache->entries, str_from(e->name));
	free(e);
}

static void forget(struct entry *e)
{
	e->cache->stats.bytes -= e->state == FETCHING ? 0 : e->blob.size;
	entry_free(e);
}

/* The longest unused go until `bytes` more fit, as far as none is needed now. */
static void make_room(struct blob_cache *cache, int64_t bytes)
{
	list_each_safe (it, &cache->order) {
		struct entry *e = list_entry(it, struct entry, link);

		if (cache->stats.bytes + bytes <= cache->bytes_max)
			return;
		if (e->state == FETCHING || e->pins || !list_is_empty(&e->waits))
			continue;
		log_info(cache->log, "blob_evicted", "blob=%s bytes=%lld", e->name,
			(long long)e->blob.size);
		remove_file(cache, e->name);
		cache->stats.evicted++;
		forget(e);
	}
}

/* --- the end of waiting --------------------------------------------------------------------------------------------- */

static struct blob_wait *wait_first(struct entry *e)
{
	struct list *first = list_first(&e->waits);

	return first ? list_entry(first, struct blob_wait, link) : NULL;
}

static void wait_end(struct blob_wait *wait, struct blob *blob, bool is_missing, const char *why)
{
	blob_ready_fn *fn = wait->fn;
	void *arg = wait->arg;

	list_del(&wait->link);
	free(wait);
	fn(arg, blob, is_missing, why);
}

/* Nobody can have it. */
static void fail(struct entry *e, bool is_missing, const char *why)
{
	struct list waits;

	log_warn(e->cache->log, "blob_failed", "blob=%s why=\"%s\"", e->name, why);
	list_init(&waits);
	list_splice_tail(&waits, &e->waits);
	list_each (it, &waits)
		list_entry(it, struct blob_wait, link)->entry = NULL;
	entry_free(e);
	while (!list_is_empty(&waits))
		wait_end(list_entry(list_first(&waits), struct blob_wait, link), NULL, is_missing,
			why);
}

/* Opens the file for whoever has it pinned; false: it is not what it was. */
static bool pin_file(struct entry *e)
{
	char *path cleanup(mem_freep) = mem_printf("%s/%s", e->cache->dir, e->name);
	struct stat st;

	if (e->blob.fd >= 0)
		return true;
	e->blob.fd = open(path, O_RDONLY | O_CLOEXEC);
	if (e->blob.fd >= 0 && fstat(e->blob.fd, &st) == 0 && st.st_size == e->blob.size)
		return true;
	unpin_file(e);
	return false;
}

static void on_tell(void *arg)
{
	struct entry *e = arg;
	struct blob_wait *wait;

	if (!pin_file(e)) {
		log_warn(
			e->cache->log, "blob_damaged", "blob=%s action=\"fetched again\"", e->name);
		e->cache->stats.bytes -= e->blob.size;
		fetch(e);
		return;
	}
	e->pins++; /* ours, so that a release inside does not close it */
	while ((wait = wait_first(e))) {
		e->pins++;
		wait_end(wait, &e->blob, false, "");
	}
	struct blob *own = &e->blob;

	blob_release(&own);
}

static void ready(struct entry *e)
{
	e->state = READY;
	list_del(&e->link);
	list_add_tail(&e->cache->order, &e->link);
	if (!list_is_empty(&e->waits))
		loop_defer(e->cache->loop, &e->tell);
}

/* --- fetching --------------------------------------------------------------------------------------------------------- */

static void on_pause_over(void *arg)
{
	struct entry *e = arg;

	if (e->job)
		ask(e);
	else
		fail(e, false, "this executor has no place for blobs");
}

static void fetched(struct entry *e)
{
	struct blob_cache *cache = e->cache;

	cache->stats.fetched++;
	cache->stats.fetched_bytes += (uint64_t)e->blob.size;
	cache->stats.bytes += e->blob.size;
	log_info(cache->log, "blob_fetched", "blob=%s bytes=%lld ms=%lld", e->name,
		(long long)e->blob.size,
		(long long)((loop_now_us(cache->loop) - e->started_us) / US_PER_MS));
	ready(e);
	make_room(cache, 0);
}

/* Nobody wanted it any more. If it was whole by then it has its name, and is counted like the others. */
static void on_written_for_nobody(struct job *job)
{
	struct blob_cache *cache = job->cache;
	struct str name = str_from(job->name);
	struct entry *e;

	if (job->result || !job->is_last) {
		job_give_up(job);
		return;
	}
	if (!map_get(&cache->entries, name)) {
		e = entry_new(cache, name, READY);
		e->blob.size = job->at + (int64_t)job->piece.len;
		cache->stats.bytes += e->blob.size;
	}
	job_free(job);
	make_room(cache, 0);
}

static void on_written(struct job *job)
{
	struct entry *e = job->entry;

	if (!e) {
		on_written_for_nobody(job);
		return;
	}
	if (job->result) {
		fail(e, false,
			job->result == HASH_WRONG ? "it came with another hash"
						  : strerror(-job->result));
		return;
	}
	job->at += (int64_t)job->piece.len;
	buf_clear(&job->piece);
	if (!job->is_last) {
		ask(e);
		return;
	}
	e->job = NULL;
	job_free(job);
	fetched(e);
}

static void pause_and_ask(struct entry *e)
{
	timer_start(&e->pause, backoff_next(&e->backoff, e->cache->loop));
}

static void on_piece(void *arg, struct rpc_answer *answer)
{
	struct entry *e = arg;
	struct job *job = e->job;
	const struct msg_blob_get_reply *reply = answer->reply;

	e->op = NULL;
	if (answer->failure == RPC_REJECTED) {
		fail(e, !strcmp(answer->problem.code, "blob_missing"),
			answer->problem.detail[0] ? answer->problem.detail : answer->problem.code);
		return;
	}
	if (answer->failure != RPC_OK || (job->at && reply->size != e->blob.size) ||
		(!answer->carried.n && job->at < reply->size) ||
		(int64_t)answer->carried.n > reply->size - job->at) {
		peers_failed(&e->cache->peers, e->asked);
		pause_and_ask(e);
		return;
	}
	backoff_reset(&e->backoff);
	if (!job->at)
		make_room(e->cache, reply->size);
	e->blob.size = reply->size;
	buf_add_str(&job->piece, answer->carried);
	job->is_last = job->at + (int64_t)answer->carried.n == reply->size;
	if (!job_start(job, run_write, on_written))
		fail(e, false, "there is too much work for the cache's thread");
}

static void ask(struct entry *e)
{
	struct blob_cache *cache = e->cache;

	e->request = (struct msg_blob_get_request){
		.blob = str_from(e->name), .offset = e->job->at, .limit = BLOB_PIECE_MAX};
	e->asked = peers_current(&cache->peers);
	if (rpc_call(cache->loop, cache->transport, e->asked, RPC_blob_get, &e->request, 0,
		    on_piece, e, &e->op))
		pause_and_ask(e);
}

static void fetch(struct entry *e)
{
	e->state = FETCHING;
	e->blob.size = 0;
	e->started_us = loop_now_us(e->cache->loop);
	if (!e->cache->dir) {
		timer_start(&e->pause, 0);
		return;
	}
	e->job = job_new(e->cache, e, e->name);
	ask(e);
}

static void on_verified(struct job *job)
{
	struct entry *e = job->entry;
	int result = job->result;

	job_free(job);
	if (!e)
		return;
	e->job = NULL;
	if (result == 0) {
		ready(e);
		return;
	}
	e->cache->stats.bytes -= e->blob.size;
	if (!list_is_empty(&e->waits)) {
		fetch(e);
		return;
	}
	remove_file(e->cache, e->name);
	entry_free(e);
}

static void verify(struct entry *e)
{
	e->job = job_new(e->cache, e, e->name);
	if (!job_start(e->job, run_verify, on_verified)) {
		job_free(take_ptr(&e->job));
		e->cache->stats.bytes -= e->blob.size;
		fetch(e);
	}
}

/* --- from outside ------------------------------------------------------------------------------------------------------- */

struct blob_wait *blob_cache_want(
	struct blob_cache *cache, struct str name, blob_ready_fn *fn, void *arg)
{
	struct entry *e = map_get(&cache->entries, name);
	struct blob_wait *wait = mem_alloc(sizeof(*wait));
	bool is_new = !e;

	CHECK(blob_name_is_valid(name));
	e = e ? e : entry_new(cache, name, FETCHING);
	wait->entry = e;
	wait->fn = fn;
	wait->arg = arg;
	list_init(&wait->link);
	list_add_tail(&e->waits, &wait->link);
	if (is_new) {
		fetch(e);
		return wait;
	}
	cache->stats.hits += e->state != FETCHING;
	log_debug(cache->log, "blob_hit", "blob=%s", e->name);
	if (e->state == READY)
		ready(e);
	else if (e->state == FOUND && !e->job)
		verify(e);
	return wait;
}

void blob_wait_cancel(struct blob_wait **waitp)
{
	struct blob_wait *wait = take_ptr(waitp);
	struct entry *e;

	if (!wait)
		return;
	e = wait->entry;
	list_del(&wait->link);
	free(wait);
	if (e && e->state == FETCHING && list_is_empty(&e->waits))
		entry_free(e);
}

struct str blob_map(struct blob *blob)
{
	struct entry *e = container_of(blob, struct entry, blob);

	if (!blob->size)
		return STR("");
	if (!e->map) {
		void *map = mmap(NULL, (size_t)blob->size, PROT_READ, MAP_PRIVATE, blob->fd, 0);

		if (map == MAP_FAILED)
			return STR_NULL;
		e->map = map;
	}
	return (struct str){e->map, (size_t)blob->size};
}

void blob_release(struct blob **blobp)
{
	struct blob *blob = take_ptr(blobp);
	struct entry *e;

	if (!blob)
		return;
	e = container_of(blob, struct entry, blob);
	CHECK(e->pins);
	if (--e->pins)
		return;
	unpin_file(e);
	make_room(e->cache, 0);
}

void blob_cache_get_stats(const struct blob_cache *cache, struct blob_cache_stats *out)
{
	*out = cache->stats;
}

/* --- life ------------------------------------------------------------------------------------------------------------------ */

static void take_found(struct blob_cache *cache, int dir, const char *name)
{
	struct str text = str_from(name);
	struct stat st;
	struct entry *e;

	if (!blob_name_is_valid(text) || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		!S_ISREG(st.st_mode)) {
		unlinkat(dir, name, 0);
		return;
	}
	e = entry_new(cache, text, FOUND);
	e->blob.size = st.st_size;
	cache->stats.bytes += st.st_size;
}

static void look_around(struct blob_cache *cache)
{
	DIR *dir;
	struct dirent *entry;

	if (mkdir(cache->dir, 0700) < 0 && errno != EEXIST)
		log_warn(
			cache->log, "blob_cache", "dir=%s why=\"%s\"", cache->dir, strerror(errno));
	dir = opendir(cache->dir);
	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] != '.')
			take_found(cache, dirfd(dir), entry->d_name);
	}
	closedir(dir);
	make_room(cache, 0);
}

struct blob_cache *blob_cache_new(struct loop *loop, const struct blob_cache_options *options)
{
	struct blob_cache *cache = mem_alloc(sizeof(*cache));

	cache->loop = loop;
	cache->log = options->log;
	cache->transport = options->transport;
	cache->bytes_max = options->bytes_max;
	cache->dir = mem_strdup(options->dir);
	peers_init(&cache->peers, loop, options->judicators);
	map_init(&cache->entries);
	list_init(&cache->order);
	if (cache->dir)
		look_around(cache);
	return cache;
}

static void free_entries(struct blob_cache *cache)
{
	list_each_safe (it, &cache->order)
		entry_free(list_entry(it, struct entry, link));
}

void blob_cache_free(struct blob_cache *cache)
{
	if (!cache)
		return;
	free_entries(cache);
	pool_free(cache->pool);
	free_entries(cache); /* what its last jobs have brought */
	map_fini(&cache->entries);
	peers_fini(&cache->peers);
	free(cache->dir);
	free(cache);
}
