/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blob_cache - the executor's copies of blobs: files in a directory, bounded, those not used for the longest time going first.
 *
 * It is a cache and nothing else: losing it costs time only.
 */
#pragma once

#include "rpc/blob.h"
#include "rpc/rpc_client.h"

struct log;
struct loop;

struct blob_cache;

struct blob_cache_options {
	struct log *log;             /* borrowed */
	struct transport *transport; /* borrowed */
	const char *judicators;      /* "a:1,b:2" */
	const char *dir;             /* made; NULL = there is no cache, and no blob can be had */
	int64_t bytes_max;
};

struct blob_cache_stats {
	uint64_t hits, fetched, fetched_bytes, evicted;
	int64_t bytes; /* kept now */
};

struct blob_cache *blob_cache_new(
	struct loop *loop, const struct blob_cache_options *options) must_check;
/* Nothing may be pinned or waited for any more. NULL is fine. */
void blob_cache_free(struct blob_cache *cache);
void blob_cache_get_stats(const struct blob_cache *cache, struct blob_cache_stats *out);

/* A blob that is here, whole, with the right hash, and stays until it is released. */
struct blob {
	const char *name;
	int fd; /* open for reading; its offset is nobody's: use pread, or reopen it */
	int64_t size;
};
/* All of it as memory, read from the file as it is touched; absent when there is no room. Borrowed until the release. */
struct str blob_map(struct blob *blob);
void blob_release(struct blob **blobp); /* NULL is fine; leaves NULL */

struct blob_wait;
/* From the loop, once (see reactor/op.h). blob: the callee's to release. NULL: it cannot be had, and `why` says why; is_missing: the
 * judicator does not know it, so trying again is of no use. */
typedef void blob_ready_fn(void *arg, struct blob *blob, bool is_missing, const char *why);
/* A judicator that cannot be reached is asked again, without end: whoever waits decides how long. */
struct blob_wait *blob_cache_want(
	struct blob_cache *cache, struct str name, blob_ready_fn *fn, void *arg) must_check;
void blob_wait_cancel(struct blob_wait **waitp); /* NULL is fine; leaves NULL */
