/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json - a small read-only tree over yajl's parser, and a writer over yajl_gen.
 *
 * Bytes, not strings: text of a string is any valid UTF-8 including NUL (\u0000). Raw invalid UTF-8 in the input
 * is an error. Depth, size and number of values are limited, duplicate keys and trailing garbage refused,
 * numbers kept as their text so nothing is rounded.
 *
 * A tree lives in one arena: json_parse() makes it, json_free() frees all at once; nodes are borrowed.
 * Texts of strings, numbers and keys have a NUL behind them that is not counted.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reactor/base/buf.h"

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
	enum json_type type;
	bool boolean;              /* JSON_BOOL */
	struct str text;           /* STRING: decoded bytes; NUMBER: as written */
	struct str key;            /* name inside the parent object, else absent */
	struct json *first, *next; /* children in order */
	size_t count;              /* of children */
	struct json *parent;
	size_t index; /* inside the parent */
};

struct json_limits {   /* 0 = the default */
	size_t bytes;  /* 64 MiB */
	size_t depth;  /* 64 */
	size_t values; /* 1 000 000 */
};

struct json_error {
	/* literal: "json_syntax" "json_depth" "json_duplicate_key" "json_utf8" "json_too_large" */
	const char *code;
	size_t offset;    /* byte in the input where it was noticed */
	char detail[160]; /* for people; valid UTF-8 */
};

struct json_tree;
/* 0 and *out (free it), or -EBADMSG with *error filled. Text is copied. */
int json_parse(struct str text, const struct json_limits *limits, struct json_tree **out,
	struct json_error *error) must_check;
void json_free(struct json_tree *tree); /* NULL is fine; also cleanup(json_freep) */
void json_freep(void *treep);
const struct json *json_root(const struct json_tree *tree);
/* A tree of its own whose root is a copy of node; free it. Never fails. */
struct json_tree *json_clone(const struct json *node) must_check;

const struct json *json_get(
	const struct json *object, const char *key); /* NULL when absent or no object */
/* Whole number in int64 (1.0 and 1e3 are whole; 1.5, 1e400, 2^64 are not). */
bool json_i64(const struct json *node, int64_t *out);
bool json_double(const struct json *node, double *out); /* finite only */
/* RFC 6901 pointer of the node from its root, "" for the root, appended to out. */
void json_pointer(const struct json *node, struct buf *out);

/* --- writer: appends to a buf; keys (valid UTF-8) and values in order, at most 120 deep; CHECKs on misuse.
 * Nothing else may add to the buf before json_writer_free(). --- */
struct json_writer;
struct json_writer *json_writer_new(struct buf *out, bool pretty);
void json_writer_free(struct json_writer *w); /* the text is complete in out after it */
void json_begin_object(struct json_writer *w);
void json_end_object(struct json_writer *w);
void json_begin_array(struct json_writer *w);
void json_end_array(struct json_writer *w);
void json_key(struct json_writer *w, const char *key);
void json_key_str(struct json_writer *w, struct str key);
void json_null(struct json_writer *w);
void json_bool(struct json_writer *w, bool value);
void json_int(struct json_writer *w, int64_t value);
void json_number(struct json_writer *w, double value);    /* NaN and Inf become null */
void json_text(struct json_writer *w, const char *value); /* as json_bytes(); NULL becomes null */
/* The 8-bit clean value: a string when it is valid UTF-8, else {"base64": "..."}; absent becomes null. */
void json_bytes(struct json_writer *w, struct str value);
/* Splices text that is already one JSON value. */
void json_raw(struct json_writer *w, struct str text);
void json_node(struct json_writer *w, const struct json *node);

/* Base64 (RFC 4648, with padding), appended. Decoding ignores ASCII white space; false when malformed, out unchanged. */
void base64_encode(struct str bytes, struct buf *out);
bool base64_decode(struct str text, struct buf *out);
