/* SPDX-License-Identifier: Apache-2.0 */
/*
 * task - a submission as C structures, decoded from a client's JSON (short or full form) or from the stored document,
 * which is the full form normalised: so there is one parser, and the executor reads what the client meant.
 *
 * Fields, limits and visibility come from fields.def. All structures live in one record (see codec.h).
 */
#pragma once

#include "rpc/codec.h"
#include "rpc/task/checker.h"
#include "rpc/task/limits.h"
#include "rpc/task/verdict.h"

struct map;

#define TASK_CASES_MAX 1000
#define TASK_FILES_MAX 1000
#define TASK_USER_MAX 64
#define TASK_PRIORITY_MIN (-100)
#define TASK_PRIORITY_MAX 100
#define TASK_LABELS_MAX 16
#define TASK_LABEL_MAX 64
#define TASK_LANGUAGE_MAX 32
#define TASK_ARGV_MAX 256         /* words of a command ... */
#define TASK_ARGV_BYTES_MAX 65536 /* ... and bytes of all of them: an exec has room for it */
#define TASK_POINTS_MAX 1000000
#define TASK_WRITTEN_MAX (128 << 20)     /* content of a task as JSON: half of an RPC message */
#define TASK_FILES_BYTES_MAX (256 << 20) /* of all files of a phase, blobs included */
#define LANGUAGE_RAW "raw"               /* what executors offer for tasks without a language */

struct task_file {
	struct str name; /* a valid bundle name */
	struct content content;
	bool executable;
};

struct task_compile {
	struct content source;     /* absent, or the one source file of a language; or files */
	struct codec_list files;   /* struct task_file */
	struct content archive;    /* absent, or a zip in place of files */
	struct codec_list command; /* struct str; empty = the profile's, or nothing to compile */
	struct limits *limits;     /* NULL = defaults */
};

struct task_execute {
	struct codec_list command;      /* empty = the profile's */
	struct content input, expected; /* only until normalised: moved to the one case */
	struct codec_list files;
	struct content archive;
	struct limits *limits;
};

struct task_case {
	struct content input, expected; /* expected absent = any output is right */
	struct limits *limits;          /* over execute.limits, field by field */
	int64_t points;                 /* 1 when not given; 0 is allowed */
};

struct task_checker {
	struct str kind;
	double abs, rel; /* -1 = absent; normalised: given for `float`, absent for all others */
};

struct task {
	struct str user; /* absent = "" */
	int64_t priority;
	struct codec_list labels;     /* struct str */
	struct str language;          /* absent = raw commands */
	struct task_compile *compile; /* normalised: never NULL, as execute and checker */
	struct task_execute *execute;
	struct codec_list cases; /* struct task_case; normalised: at least one */
	struct task_checker *checker;
	bool stop_on_failure;
	/* the short form: only until normalised, then absent */
	struct content source, input, expected;
	struct limits *limits;
	struct { /* where the client wrote what is moved when normalised; no fields */
		const char *source, *input, *expected;
		bool is_only_case;
	} at;
};

extern const struct codec_record task_record;

/* All records of fields.def in order, for documentation; NULL behind the last. */
const struct codec_record *task_record_at(size_t i);

/* Client's body -> normalised task. `languages` (name -> anything) is what exists, NULL = accept any name (executor, store).
 * 0, or -EBADMSG with *problem: status 400 not JSON, wrong type, unknown field, both forms; 413 too large; 422 meaning: unknown
 * language, missing source, empty command, limit out of range, a bad archive, program checkers (not supported yet). The codes
 * beside those of the codec: both_forms (400); bad_archive, bad_file_name, duplicate_file, empty_command, missing_command, missing_files,
 * missing_language, missing_source, not_for_checker, not_printable, not_supported, unknown_checker, unknown_language (422). */
int task_parse(struct str body, const struct map *languages, struct record **out,
	struct problem *problem) must_check;
/* The same from an already decoded subtree of a message (the stored document). Archives are not looked into: whoever unpacks one
 * checks it anyway, and what is wrong with it then is the submission's fault, not the document's. */
int task_parse_node(
	const struct json *node, struct record **out, struct problem *problem) must_check;
/* The normalised full form: what the store keeps as `doc`. */
void task_write(const struct task *task, struct buf *out);
/* Every content of a normalised task that is there, with the JSON pointer to where the client wrote it. */
typedef void task_content_fn(void *arg, struct content *content, const char *pointer);
void task_each_content(const struct task *task, task_content_fn *fn, void *arg);
enum checker_kind task_checker_kind(const struct task *task);
/* What the task's checker is: for one case. */
struct checker *task_checker_new(const struct task *task, struct str expected) must_check;
/* The language queue the task waits in: its language or LANGUAGE_RAW. */
struct str task_queue(const struct task *task);
