/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec - records described by tables: one description gives the decoder (with limits, unknown-field and type
 * errors, each with its JSON pointer), the encoder and the documentation. Task fields (task/fields.def) and RPC messages
 * (messages.def) are such records.
 *
 * A decoded record is one arena (struct record): the C structure and everything it points at. Field kinds and
 * their C types:
 *   CODEC_BOOL bool | CODEC_I64 int64_t | CODEC_F64 double | CODEC_TEXT struct str (valid UTF-8, no NUL)
 *   CODEC_BYTES struct str (string or {"base64"}; 8-bit clean) | CODEC_ID struct id
 *   CODEC_CONTENT struct content (as CODEC_BYTES, or {"blob": NAME}: bytes that are kept elsewhere; no bound applies to those)
 *   CODEC_RECORD pointer to the nested structure, NULL when absent
 *   CODEC_LIST struct codec_list of nested structures | CODEC_TEXTS struct codec_list of struct str
 *   CODEC_JSON struct codec_json (any value, kept)
 *   CODEC_ARGV struct codec_list of struct str: an array of strings, or one string split by POSIX quoting without
 *              any expansion (quotes and backslashes only; an unfinished quote is an error); no NUL inside
 * A list that was given, even an empty one, has items != NULL; an absent list has items == NULL. Texts and bytes have a NUL
 * behind them that is not counted.
 *
 * Statuses of problems: 400 for what can never be right (unknown_field, wrong_type, read_only, and the json_ codes), 413 for
 * bytes over a maximum (too_large), 422 for the rest (missing_field, out_of_range, bad_base64, bad_quoting, nul_byte, bad_id, bad_blob).
 */
#pragma once

#include "reactor/base/id.h"
#include "rpc/json.h"

enum codec_kind {
	CODEC_BOOL,
	CODEC_I64,
	CODEC_F64,
	CODEC_TEXT,
	CODEC_BYTES,
	CODEC_CONTENT,
	CODEC_ID,
	CODEC_RECORD,
	CODEC_LIST,
	CODEC_TEXTS,
	CODEC_JSON,
	CODEC_ARGV,
	CODEC_KIND_N
};

enum codec_flag {
	CODEC_REQUIRED = 1, /* absent is an error */
	CODEC_NULLABLE = 2, /* null is as good as absent */
	CODEC_OUTPUT = 4,   /* never accepted from a client */
	/* The encoder leaves it out when it says nothing: false, the preset, an empty text or list; BYTES and CONTENT only
	 * when absent, as no bytes are a value too. */
	CODEC_OMIT = 8,
	CODEC_DEPRECATED = 16,
	CODEC_NULL_PRESET = 32, /* I64, F64: the preset is null on the wire, both ways */
};

struct codec_record;
struct codec_field {
	const char *name;
	enum codec_kind kind;
	size_t offset;
	/* I64, F64: range. TEXT, BYTES, CONTENT: bytes. LIST, TEXTS, ARGV: items. Both 0 = no bound of its own. */
	int64_t min, max;
	unsigned flags;
	const struct codec_record *record; /* RECORD, LIST */
	const char *doc;
	int64_t preset; /* I64, F64: the value when absent */
};

struct codec_record {
	const char *name;
	size_t size; /* of the C structure */
	const struct codec_field *fields;
	size_t n_fields;
};

struct codec_list {
	void *items; /* array of the nested structure, or of struct str */
	size_t count;
};

struct content { /* one of the two is present; both absent = field absent */
	struct str bytes;
	struct str blob; /* a valid name, see blob.h */
};

static inline bool content_is_absent(const struct content *content)
{
	return !content->bytes.p && !content->blob.p;
}

struct codec_json {              /* one of the two is set; both absent = field absent */
	const struct json *node; /* borrowed from the record's own tree after decoding */
	struct str text;         /* already encoded JSON, for the encoder */
};

/* What is wrong with an input: becomes a problem document. */
struct problem {
	int status;        /* HTTP status: 400, 413, 422 ... */
	const char *code;  /* stable, literal: "unknown_field" "wrong_type" "out_of_range" ... */
	char pointer[256]; /* RFC 6901, "" = the whole */
	char detail[256];  /* for people, says what would be right; valid UTF-8 */
};
void problem_set(struct problem *problem, int status, const char *code, const char *pointer,
	const char *fmt, ...) printf_like(5, 6);
/* The pointer is that of a node. */
void problem_at(struct problem *problem, int status, const char *code, const struct json *node,
	const char *fmt, ...) printf_like(5, 6);
/* What json_parse() found wrong: 413 for json_too_large, else 400. */
void problem_from_json(struct problem *problem, const struct json_error *error);
/* RFC 9457: {"type","title","status","code","detail","pointer"}; `type` and `title` from the code. */
void problem_write(const struct problem *problem, struct buf *out);

struct record; /* an owned decoded record */
/* Decodes the tree (ownership of tree moves in, also on error). 0, or -EBADMSG with *problem. */
int codec_decode(const struct codec_record *type, struct json_tree *tree, struct record **out,
	struct problem *problem) must_check;
/* The same from a copy of a subtree that stays its owner's; pointers count from node. */
int codec_decode_node(const struct codec_record *type, const struct json *node, struct record **out,
	struct problem *problem) must_check;
/* The same from text: parse errors become problems too (400). */
int codec_decode_text(const struct codec_record *type, struct str text,
	const struct json_limits *limits, struct record **out, struct problem *problem) must_check;
void *record_data(struct record *record); /* the C structure; valid as long as the record */
void record_free(struct record *record);  /* NULL is fine; cleanup(record_freep) */
void record_freep(void *recordp);
/* Memory with the record's lifetime, for values filled in later. */
void *record_alloc(struct record *record, size_t n);
struct str record_copy(struct record *record, struct str s);
/* An empty record of a type (all absent, numbers at their presets), to fill and encode. */
struct record *record_new(const struct codec_record *type) must_check;

/* Absent values that are not left out (CODEC_OMIT) are written as null when CODEC_NULLABLE, else as empty; an absent ID,
 * RECORD or JSON that may not be null is left out. */
void codec_encode(const struct codec_record *type, const void *data, struct json_writer *w);
void codec_encode_text(const struct codec_record *type, const void *data, struct buf *out);
/* Markdown table of the fields. */
void codec_doc(const struct codec_record *type, struct buf *out);

#define codec_item(list, type, i) (&((type *)(list).items)[i])
