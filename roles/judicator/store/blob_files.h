/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blob_files - bytes of blobs as files: DIR/blobs/ab/abcd... , and DIR/blobs/new/ID for those on their way.
 */
#pragma once

#include "roles/judicator/store/blobs.h"

struct blob_files;

extern const struct blobs_ops blob_files_ops; /* their place is a struct blob_files */

/* Makes the directories and removes what a process that died has left: uploads, and files without a row in `rows`. 0, or -errno after
 * logging what to do. */
int blob_files_open(
	const char *dir, struct rows *rows, struct log *log, struct blob_files **out) must_check;
void blob_files_close(struct blob_files *f); /* NULL is fine */
