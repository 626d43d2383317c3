/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blobs - the blob verbs of the vtable over two things a backend has: rows (through verbs.h) and a place for bytes (struct blobs_ops).
 *
 * The functions of blobs_ops may wait for a disk: they run on a worker, or, where a backend says that nothing waits, inside the call.
 */
#pragma once

#include "roles/judicator/store/verbs.h"

struct blobs;

/* Bytes on their way. While `is_busy` all of it is the worker's, but for the link. */
struct upload {
	struct list link; /* blobs->uploads */
	struct id id;
	char name[BLOB_NAME_LEN + 1];
	int64_t next;  /* where the next piece begins */
	size_t last_n; /* bytes of the piece before it */
	int64_t seen_us;
	bool is_busy;
	struct blob_hash *hash;
	int fd;           /* blob_files: -1 = not yet */
	struct buf bytes; /* memory */
};

/* 0 or -errno. `place` is the backend's. */
struct blobs_ops {
	bool waits; /* on a disk: wants workers */
	/* Room for new blobs beside the reserve. */
	bool (*has_room)(void *place, int64_t reserve_bytes);
	int (*write)(void *place, struct upload *u, struct str bytes); /* behind what it has */
	int (*finish)(void *place, struct upload *u);                  /* durable, under its name */
	void (*drop)(void *place, struct upload *u); /* what is left of it; idempotent */
	int (*read)(void *place, const char *name, int64_t offset, size_t n, struct buf *out);
	void (*remove)(void *place, const char *name); /* its row is gone */
};

/* verbs and place are borrowed. 0 or -errno: no threads. */
int blobs_new(struct verbs *verbs, const struct blobs_ops *ops, void *place,
	struct blobs **out) must_check;
/* From here on everything runs inside the calls, and blobs_settle() ends what is under way. */
void blobs_close(struct blobs *b);
/* Tells what has run; false when there was nothing. The rows' answers may bring more. */
bool blobs_settle(struct blobs *b);
void blobs_free(struct blobs *b); /* closed and settled; NULL is fine */

void blobs_put(struct blobs *b, const struct msg_blob_put_request *request, struct str bytes,
	store_blob_put_fn *cb, void *arg);
void blobs_get(struct blobs *b, const struct msg_blob_get_request *request, store_blob_get_fn *cb,
	void *arg);
void blobs_collect(struct blobs *b, int64_t unused_us, store_count_fn *cb, void *arg);
