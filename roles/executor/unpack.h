/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unpack - archives become bundles on a worker, as inflating takes up to a second.
 */
#pragma once

#include "reactor/base/str.h"

struct loop;

/* The worker of an executor; its thread starts with the first archive. */
struct unpacker;
struct unpacker *unpacker_new(struct loop *loop) must_check;
/* No unpack of it may be running but cancelled ones, which it waits for. NULL is fine. */
void unpacker_free(struct unpacker *unpacker);

struct unpack;
/* From the loop (see reactor/op.h). 0: fd is a sealed bundle, the callee's. -EBADMSG: the archive is at fault, `why` says how and is
 * valid UTF-8. Another -errno: it is our failure. */
typedef void unpack_done_fn(void *arg, int error, int fd, const char *why);

#define UNPACK_E_BUSY 1 /* try again later */
/* The archive's bytes (copied), or with fd >= 0 all of that file (the descriptor is duplicated). 0; UNPACK_E_BUSY; -errno: there is no memory, or no thread. */
int unpack_start(struct unpacker *unpacker, struct str archive, int fd, unpack_done_fn *on_done,
	void *arg, struct unpack **out) must_check;
/* on_done will not come. NULL is fine; leaves NULL. */
void unpack_cancel(struct unpack **unpackp);
