/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls_files - certificate and key of gateway.tls_certificate and gateway.tls_key: read by the service, handed to its workers.
 */
#pragma once

#include "cfg/cfg.h"
#include "reactor/base/buf.h"
#include "rpc/http/tls.h"

struct log;

struct tls_files {
	struct buf certificate, key; /* as in the files; empty = no TLS */
};

#define TLS_FILES_NULL ((struct tls_files){BUF_INIT, BUF_INIT})

/* Both or neither, absolute: all that can be said without looking. */
void tls_files_check(const struct cfg *cfg, struct cfg_errors *errors);
/* Reads what cfg names, and sees that it can be used. owner: whose the key may be, beside root's and ours. False after logging: *out is
 * empty. */
bool tls_files_read(
	const struct cfg *cfg, unsigned owner, struct log *log, struct tls_files *out) must_check;
void tls_files_fini(
	struct tls_files *files); /* idempotent; no trace of the key is left in memory */

/* Memory to hand them over in: a descriptor, or -errno. */
int tls_share_new(void) must_check;
/* The same memory for those who only read, or -errno. */
int tls_share_for_readers(int fd) must_check;
/* Replaces what is there. 0 or -errno. */
int tls_share_write(int fd, const struct tls_files *files) must_check;
/* What was written last, whole, ready to serve with: *out, NULL = no TLS. 0, or -errno: -EAGAIN when none was whole. */
int tls_share_read(int fd, struct http_tls **out) must_check;
