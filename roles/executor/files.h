/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files - a task's bytes as descriptors for the box: bundles of files, and inputs. All results are sealed memfds.
 */
#pragma once

#include "proc/box/bundle.h"
#include "reactor/base/map.h"
#include "rpc/task/task.h"

/* A bundle under construction: zero-initialised with fd = -1. Each slice moves at most FILES_SLICE bytes (an entry costs some, however
 * small it is), be it a part of a file, so that neither many files nor a large one hold the loop. After an error: files_fini(), and
 * from the start again. */
#define FILES_SLICE (INT64_C(1) << 20)
struct files {
	int fd;
	size_t at;           /* files written whole, of all the lists in turn */
	bool is_begun;       /* the next one has its header, and `done` of its bytes */
	uint64_t body, done; /* `body`: where its bytes begin */
};

/* Contents that are blobs are looked up in `blobs`: name -> struct blob *, all of them there; NULL = there are none. */
/* source (absent = none) under source_name, then files (the parser has refused equal names). *done when all is
 * written and sealed. 0 or -errno. */
int files_write_slice(struct files *f, struct str source_name, const struct content *source,
	const struct codec_list *files, const struct map *blobs, bool *done) must_check;

/* A new bundle of `over`, and of those files of `under` that are not in its way: a file there gives way to a file or directory of
 * the same name here. */
struct files_merge {
	struct files out;
	struct bundle under;
	uint64_t pos; /* of the next entry of `under` */
	bool is_kept; /* `kept` is being copied */
	bool is_under_done;
	size_t n_kept; /* of `under`, when it is done */
	struct bundle_entry kept;
	struct map taken; /* what the names of `over` occupy */
};

void files_merge_init(struct files_merge *m);
/* `under` is a bundle of at most bytes_max, borrowed until the end. 0; -EBADMSG or -EFBIG: `under` is malformed or too big; another
 * -errno. */
int files_merge_start(struct files_merge *m, int under, uint64_t bytes_max,
	const struct codec_list *over) must_check;
/* As files_write_slice(), with the same `over`; the result is out.fd. */
int files_merge_slice(struct files_merge *m, const struct codec_list *over, const struct map *blobs,
	bool *done) must_check;
void files_merge_fini(struct files_merge *m); /* closes, and is as after init; idempotent */
/* *fd = -1 for an empty or absent input. */
int files_input(struct str input, int *fd) must_check;
void files_fini(struct files *f); /* closes, and is at the start again; idempotent */
/* Closes *fd if >= 0 and leaves -1. */
void files_close(int *fd);
