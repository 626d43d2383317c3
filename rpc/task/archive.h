/* SPDX-License-Identifier: Apache-2.0 */
/*
 * archive - a zip of a submission's files: what it lists, whether that may be unpacked, and unpacking it into a bundle.
 *
 * What is accepted is what `files` could carry too: regular files whose names are valid bundle names, at most
 * ARCHIVE_FILES_MAX entries and ARCHIVE_UNPACKED_MAX bytes. Directories are listed by most tools; they are let pass and not
 * needed. Refused are absolute names, "." and "..", empty components, backslashes, control characters and names that are no
 * UTF-8; two files of one name, or a file where another needs a directory; symbolic links and devices; what is encrypted, split, zip64,
 * or packed by another method than none and deflate; files that overlap; and what unpacks to more than ARCHIVE_RATIO_MAX times
 * its packed size and another MiB. An archive inside the archive is a file like any other. A file is executable when its unix
 * mode says so for anybody.
 */
#pragma once

#include "reactor/base/str.h"

#define ARCHIVE_FILES_MAX 1000
#define ARCHIVE_UNPACKED_MAX (UINT64_C(64) << 20)
#define ARCHIVE_RATIO_MAX 200
#define ARCHIVE_WHY_MAX 200 /* of a reason, with its NUL; valid UTF-8 */

/* Reads the list of files only, which takes far under a millisecond and no memory that the archive could size. 0, or -EBADMSG and
 * why. */
int archive_check(struct str zip, char why[ARCHIVE_WHY_MAX]) must_check;

/* Checks again, then unpacks into the new bundle `fd` (see bundle_create(); it is not sealed). Inflating takes up to a second: for a worker.
 * Touches nothing but its arguments. 0; -EBADMSG and why: it is the archive's fault; another -errno: ours. After an error the
 * bundle is good for nothing. */
int archive_unpack(struct str zip, int fd, char why[ARCHIVE_WHY_MAX]) must_check;
