/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files - a task's bytes as descriptors for the box: bundles of files, and inputs. All results are sealed memfds.
 */
#pragma once

#include "rpc/task/task.h"

/* A bundle under construction: zero-initialised with fd = -1. Each slice writes at least one file and stops after FILES_SLICE
 * bytes, so that a task with many files does not hold the loop. */
#define FILES_SLICE (INT64_C(1) << 20)
struct files {
	int fd;
	size_t at; /* files written so far, of all the lists in turn */
};

/* source (absent = none) under source_name, then files (the parser has refused equal names). *done when all is
 * written and sealed. 0 or -errno. */
int files_write_slice(struct files *f, struct str source_name, struct str source,
	const struct codec_list *files, bool *done) must_check;
/* A new bundle: `over`, and those files of `under` (a bundle of at most bytes_max) that are not in its way: a file
 * there gives way to a file or directory of the same name here. 0; -EBADMSG or -EFBIG: `under` is malformed or too
 * big; another -errno. */
int files_merge(int under, uint64_t bytes_max, const struct codec_list *over, int *out) must_check;
/* *fd = -1 for an empty or absent input. */
int files_input(struct str input, int *fd) must_check;
void files_fini(struct files *f); /* closes; idempotent */
/* Closes *fd if >= 0 and leaves -1. */
void files_close(int *fd);
