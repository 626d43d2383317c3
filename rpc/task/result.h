/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result - what came of a task: the JSON an executor sends, the store keeps as it is and the gateway shows.
 * Field list in fields.def, shown in rpc/task/README.md.
 */
#pragma once

#include "rpc/codec.h"
#include "rpc/task/limits.h"
#include "rpc/task/verdict.h"

#define RESULT_OUTPUT_MAX (2 * OUTPUT_HEAD + 64) /* head, the line between, tail */
#define RESULT_MESSAGE_MAX 4096

struct result_limit {
	struct str name; /* "cpu_ms" */
	int64_t allowed, measured;
};

struct result_phase {       /* the compile phase, and the common part of a case */
	struct str verdict; /* cases only */
	int64_t exit_code;  /* -1 = none: null on the wire */
	int64_t signal;     /* 0 = none: null on the wire */
	int64_t cpu_us, wall_us, memory_bytes;
	struct result_limit *limit;   /* NULL = null on the wire */
	struct str out, err;          /* first and last 32 KiB */
	int64_t out_bytes, err_bytes; /* total length */
	bool out_truncated, err_truncated;
	struct str message;
	int64_t points; /* cases: points given */
};

struct result {
	struct str verdict;
	struct result_phase *compile; /* NULL when nothing was compiled */
	struct codec_list cases;      /* struct result_phase */
	int64_t score, max_score;
	struct str isolation;
	struct str message; /* system_error: the reason */
};

extern const struct codec_record result_record;

/* Keeps the first and last OUTPUT_HEAD bytes of a stream with its total length. */
struct capture {
	struct buf head, tail;
	size_t tail_start; /* ring */
	int64_t total;
};
void capture_init(struct capture *c);
void capture_add(struct capture *c, struct str bytes);
/* head and tail joined with a line "\n... N bytes left out ...\n" between when truncated. Appended to out. */
void capture_write(const struct capture *c, struct buf *out);
bool capture_is_truncated(const struct capture *c);
void capture_fini(struct capture *c);
/* Null-on-the-wire handling included: writes the result as JSON. */
void result_write(const struct result *result, struct buf *out);
