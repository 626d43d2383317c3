/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table of kinds does everything: how a value is decoded into the C structure, encoded from it, and called in
 * messages and documentation. A record's table (struct codec_record) says which kinds stand where.
 *
 * Decoding walks the JSON tree beside the tables and stops at the first thing that is wrong, which becomes the
 * problem. It recurses only as deep as the tables nest. The record owns the tree, so texts are borrowed from it;
 * only structures, lists and decoded base64 are new memory, in the record's arena, and each list is held against
 * its bound before memory is taken for it.
 */
#include "rpc/codec.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "reactor/base/mem.h"
#include "rpc/arena.h"
#include "rpc/blob.h"
#include "rpc/text.h"

struct record {
	struct arena arena;
	struct json_tree *tree;
	void *data;
};

struct decode {
	struct record *record;
	struct problem *problem;
};

/* --- problems ---------------------------------------------------------------------------------- */

static void copy_cut(char *to, size_t size, struct str text)
{
	text = text_cut(text, size - 1);
	if (text.n)
		memcpy(to, text.p, text.n);
	to[text.n] = '\0';
}

static void printf_like(5, 0) problem_vset(struct problem *problem, int status, const char *code,
	struct str pointer, const char *fmt, va_list ap)
{
	struct buf detail cleanup(buf_fini) = BUF_INIT;

	problem->status = status;
	problem->code = code;
	copy_cut(problem->pointer, sizeof(problem->pointer), pointer);
	buf_vaddf(&detail, fmt, ap);
	detail.len = text_valid_prefix(buf_str(&detail));
	copy_cut(problem->detail, sizeof(problem->detail), buf_str(&detail));
}

void problem_set(struct problem *problem, int status, const char *code, const char *pointer,
	const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	problem_vset(problem, status, code, str_from(pointer), fmt, ap);
	va_end(ap);
}

void problem_at(struct problem *problem, int status, const char *code, const struct json *node,
	const char *fmt, ...)
{
	struct buf pointer cleanup(buf_fini) = BUF_INIT;
	va_list ap;

	json_pointer(node, &pointer);
	va_start(ap, fmt);
	problem_vset(problem, status, code, buf_str(&pointer), fmt, ap);
	va_end(ap);
}

/* "unknown_field" -> "Unknown field". */
static void write_title(struct json_writer *w, const char *code)
{
	char title[64];

	snprintf(title, sizeof(title), "%s", code);
	for (char *p = title; *p; p++) {
		if (*p == '_')
			*p = ' ';
	}
	if (title[0] >= 'a' && title[0] <= 'z')
		title[0] = (char)(title[0] - 'a' + 'A');
	json_text(w, title);
}

void problem_write(const struct problem *problem, struct buf *out)
{
	struct json_writer *w = json_writer_new(out, false);
	char type[96];

	snprintf(type, sizeof(type), "urn:conclave:problem:%s", problem->code);
	json_begin_object(w);
	json_key(w, "type");
	json_text(w, type);
	json_key(w, "title");
	write_title(w, problem->code);
	json_key(w, "status");
	json_int(w, problem->status);
	json_key(w, "code");
	json_text(w, problem->code);
	json_key(w, "detail");
	json_text(w, problem->detail);
	json_key(w, "pointer");
	json_text(w, problem->pointer);
	json_end_object(w);
	json_writer_free(w);
}

/* --- records ----------------------------------------------------------------------------------- */

void *record_data(struct record *record)
{
	return record->data;
}

void record_free(struct record *record)
{
	if (!record)
		return;
	arena_fini(&record->arena);
	json_free(record->tree);
	free(record);
}

void record_freep(void *recordp)
{
	record_free(*(struct record **)recordp);
}

void *record_alloc(struct record *record, size_t n)
{
	return arena_alloc(&record->arena, n);
}

struct str record_copy(struct record *record, struct str s)
{
	return arena_copy(&record->arena, s);
}

static void fill_presets(const struct codec_record *type, void *data)
{
	for (size_t i = 0; i < type->n_fields; i++) {
		const struct codec_field *f = &type->fields[i];

		if (f->kind == CODEC_I64)
			memcpy((char *)data + f->offset, &f->preset, sizeof(f->preset));
		else if (f->kind == CODEC_F64)
			*(double *)((char *)data + f->offset) = (double)f->preset;
	}
}

struct record *record_new(const struct codec_record *type)
{
	struct record *record = mem_alloc(sizeof(*record));

	record->data = arena_alloc(&record->arena, type->size);
	fill_presets(type, record->data);
	return record;
}

/* --- decoding, a function a kind --------------------------------------------------------------- */

typedef bool decode_fn(
	struct decode *d, const struct codec_field *f, const struct json *node, void *to);

static bool decode_object(
	struct decode *d, const struct codec_record *type, const struct json *node, void *to);

static bool is_bounded(const struct codec_field *f)
{
	return f->min || f->max;
}

static bool wrong_type(struct decode *d, const struct json *node, const char *expected)
{
	static const char *const names[] = {[JSON_NULL] = "null",
		[JSON_BOOL] = "a boolean",
		[JSON_NUMBER] = "a number",
		[JSON_STRING] = "a string",
		[JSON_ARRAY] = "an array",
		[JSON_OBJECT] = "an object"};

	problem_at(d->problem, 400, "wrong_type", node, "expected %s, got %s", expected,
		names[node->type]);
	return false;
}

static bool out_of_range(
	struct decode *d, const struct codec_field *f, const struct json *node, const char *unit)
{
	if (is_bounded(f))
		problem_at(d->problem, 422, "out_of_range", node,
			"must be between %" PRId64 " and %" PRId64 "%s", f->min, f->max, unit);
	else
		problem_at(d->problem, 422, "out_of_range", node, "must fit into 64 bits");
	return false;
}

static bool decode_bool(
	struct decode *d, const struct codec_field *f, const struct json *node, void *to)
{
	if (node->type != JSON_BOOL)
		return wrong_type(d, node, "a boolean");
	*(bool *)to = node->boolean;
	return true;
}

/* A number that is no int64: too large for one, or not whole. */
static bool not_an_i64(struct decode *d, const struct codec_field *f, const struct json *node)
{
	double value = 0;

	if (node->type != JSON_NUMBER)
		return wrong_type(d, node, "a whole number");
	if (json_double(node, &value) && fabs(value) < 9.2e18) {
		problem_at(d->problem, 400, "wrong_type", node,
			"expected a whole number, got one with a fraction");
		return false;
	}
	return out_of_range(d, f, node, "");
}

static bool decode_i64(
	struct decode *d, const struct codec_field *f, const struct json *node, void *to)
{
	int64_t value;

	if (!json_i64(node, &value))
		return not_an_i64(d, f, node);
	if (is_bounded(f) && (value < f->min || value > f->max))
		return out_of_range(d, f, node, "");
	*(int64_t *)to = value;
	return true;
}

static bool decode_f64(
	struct decode *d, const struct codec_field *f, const struct json *node, void *to)
{
	double value;

	if (node->type != JSON_NUMBER)
		return wrong_type(d, node, "a number");
	if (!json_double(node, &value) ||
		(is_bounded(f) && (value < (double)f->min || value > (double)f->max)))
		return out_of_range(d, f, node, "");
	*(double *)to = value;
	return true;
}

static bool check_no_nul(struct decode *d, const struct json *node)
{
	if (!memchr(node->text.p, '\0', node->text.n))
		return true;
	problem_at(d->problem, 422, "nul_byte", node, "must not contain a NUL character");
	return false;
}

static bool decode_text(
	struct decode *d, const struct codec_field *f, const struct json *node, void *to)
{
	if (node->type != JSON_STRING)
		return wrong_type(d, node, "a string");
	if (!check_no_nul(d, node))
		return false;
	if (is_bounded(f) && (node->text.n < (size_t)f->min || node->text.n > (size_t)f->max))
		return out_of_range(d, f, node, " bytes long");
	*(struct str *)to = node->text;
	return true;
}

static bool check_bytes(
	struct decode *d, const struct codec_field *f, const struct json *node, size_t n)
{
	if (!is_bounded(f))
		return true;
	if (n > (size_t)f->max) {
		problem_at(d->problem, 413, "too_large", node, "has more than %" PRId64 " bytes",
			f->max);
		return false;
	}
	return n >= (size_t)f->min || out_of_range(d, f, node, " bytes long");
}

static bool decode_base64(
	struct decode *d, const struct codec_field *f, const struct json *node, struct str *to)
{
	struct buf bytes cleanup(buf_fini) = BUF_INIT;

	if (node->type != JSON_STRING)
		return wrong_type(d, node, "a string of base64");
	if (!base64_decode(node->text, &bytes)) {
		problem_at(d->problem, 422, "bad_base64", node,
			"must be base64 with padding (RFC 4648, section 4)");
		return false;
	}
	if (!check_bytes(d, f, node->parent, bytes.len))
		return false;
	*to = record_copy(d->record, buf_str(&bytes));
	return true;
}

static bool decode_blob(struct decode *d, const struct json *node, struct str *to)
{
	if (node->type != JSON_STRING)
		return wrong_type(d, node, "the SHA-256 of a blob: a string of 64 hex digits");
	if (!blob_name_is_valid(node->text)) {
		problem_at(d->problem, 422, "bad_blob", node,
			"must be a SHA-256: 64 hex digits in lower case");
		return false;
	}
	*to = node->text;
	return true;
}

/* blob NULL: none may stand here. Of an object's keys no two are equal, so a second one is unknown. */
static bool decode_string_or(struct decode *d, const struct codec_field *f, const struct json *node,
	const char *expected, struct str *bytes, struct str *blob)
{
	if (node->type == JSON_STRING) {
		*bytes = node->text;
		return check_bytes(d, f, node, node->text.n);
	}
	if (node->type != JSON_OBJECT || node->count == 0)
		return wrong_type(d, node, expected);
	if (blob && node->count == 1 && str_is(node->first->key, "blob"))
		return decode_blob(d, node->first, blob);
	for (const struct json *child = node->first; child; child = child->next) {
		if (!str_is(child->key, "base64")) {
			problem_at(
				d->problem, 400, "unknown_field", child, "expected %s", expected);
			return false;
		}
	}
	return decode_base64(d, f, node->first, bytes);
}

static bool decode_bytes(
	struct decode *d, const struct codec_field *f, const struct json *node, void *to)
{
	return decode_string_or(d, f, node, "a string or {\"base64\": \"...\"}", to, NULL);
}

static bool decode_content(
	struct decode *d, const struct codec_field *f, const struct json *node, void *to)
{
	struct content *content = to;

	return decode_string_or(d, f, node,
		"a string, {\"base64\": \"...\"} or {\"blob\": \"SHA-256\"}", &content->bytes,
		&content->blob);
}

static bool decode_id(
	struct decode *d, const struct codec_field *f, const struct json *node, void *to)
{
	if (node->type != JSON_STRING)
		return wrong_type(d, node, "an id: a string of 24 hex digits");
	if (id_parse(node->text, to))
		return true;
	problem_at(d->problem, 422, "bad_id", node, "must be 24 hex digits in lower case");
	return false;
}

static bool decode_record(
	struct decode *d, const struct codec_field *f, const struct json *node, void *to)
{
	void *nested = record_alloc(d->record, f->record->size);

	*(void **)to = nested;
	return decode_object(d, f->record, node, nested);
}

/* The list's memory, when the array may have so many items. */
static bool begin_list(struct decode *d, const struct codec_field *f, const struct json *node,
	size_t count, size_t item_size, struct codec_list *list)
{
	if (is_bounded(f) && (count < (size_t)f->min || count > (size_t)f->max))
		return out_of_range(d, f, node, " items");
	list->items = record_alloc(d->record, (count ? count : 1) * item_size);
	list->count = count;
	return true;
}

static bool decode_list(
	struct decode *d, const struct codec_field *f, const struct json *node, void *to)
{
	struct codec_list *list = to;
	size_t size = f->record->size;
	char *item;

	if (node->type != JSON_ARRAY)
		return wrong_type(d, node, "an array");
	if (!begin_list(d, f, node, node->count, size, list))
		return false;
	item = list->items;
	for (const struct json *child = node->first; child; child = child->next, item += size) {
		if (!decode_object(d, f->record, child, item))
			return false;
	}
	return true;
}

static bool decode_texts(
	struct decode *d, const struct codec_field *f, const struct json *node, void *to)
{
	struct codec_list *list = to;
	struct str *item;

	if (node->type != JSON_ARRAY)
		return wrong_type(d, node, "an array of strings");
	if (!begin_list(d, f, node, node->count, sizeof(struct str), list))
		return false;
	item = list->items;
	for (const struct json *child = node->first; child; child = child->next) {
		if (child->type != JSON_STRING)
			return wrong_type(d, child, "a string");
		if (!check_no_nul(d, child))
			return false;
		*item++ = child->text;
	}
	return true;
}

static bool decode_json(
	struct decode *d, const struct codec_field *f, const struct json *node, void *to)
{
	((struct codec_json *)to)->node = node;
	return true;
}

/* --- command lines ----------------------------------------------------------------------------- */

static bool is_separator(char c)
{
	return c == ' ' || c == '\t' || c == '\n';
}

/* A quoted part, from behind the opening quote; false when it does not end. */
static bool take_quoted(struct str *rest, char quote, char **to)
{
	while (rest->n) {
		char c = *rest->p++;

		rest->n--;
		if (c == quote)
			return true;
		if (quote == '"' && c == '\\' && rest->n && strchr("$`\"\\\n", *rest->p)) {
			c = *rest->p++;
			rest->n--;
			if (c == '\n')
				continue;
		}
		*(*to)++ = c;
	}
	return false;
}

/* The next word without its quotes into out, which has room for all of rest and a NUL. 1 and *out moved behind the
 * NUL, 0 at the end, -1 when a quote or a backslash is left open. */
static int take_word(struct str *rest, char **out)
{
	bool begun = false;

	while (rest->n) {
		char c = *rest->p;

		if (is_separator(c) && begun)
			break;
		rest->p++;
		rest->n--;
		if (is_separator(c))
			continue;
		if (c == '\\') {
			if (!rest->n)
				return -1;
			c = *rest->p++;
			rest->n--;
			if (c == '\n')
				continue;
			*(*out)++ = c;
		} else if (c == '\'' || c == '"') {
			if (!take_quoted(rest, c, out))
				return -1;
		} else {
			*(*out)++ = c;
		}
		begun = true;
	}
	if (begun)
		*(*out)++ = '\0';
	return begun;
}

/* Words lie one behind the other in one piece of memory: quotes and separators become the NULs between. */
static bool split_command(struct decode *d, const struct codec_field *f, const struct json *node,
	struct codec_list *list)
{
	char *words = record_alloc(d->record, node->text.n + 1), *out = words;
	struct str rest = node->text, *item;
	size_t count = 0;
	int r;

	while ((r = take_word(&rest, &out)) > 0)
		count++;
	if (r < 0) {
		problem_at(d->problem, 422, "bad_quoting", node,
			"a quote or a backslash is left open at the end");
		return false;
	}
	if (!begin_list(d, f, node, count, sizeof(struct str), list))
		return false;
	item = list->items;
	for (const char *word = words; count > 0; count--, word += strlen(word) + 1)
		*item++ = str_from(word);
	return true;
}

static bool decode_argv(
	struct decode *d, const struct codec_field *f, const struct json *node, void *to)
{
	if (node->type == JSON_ARRAY)
		return decode_texts(d, f, node, to);
	if (node->type != JSON_STRING)
		return wrong_type(d, node, "an array of strings, or a string");
	return check_no_nul(d, node) && split_command(d, f, node, to);
}

/* --- encoding, a function a kind --------------------------------------------------------------- */

typedef void encode_fn(struct json_writer *w, const struct codec_field *f, const void *from);
/* Says nothing, so CODEC_OMIT leaves it out. */
typedef bool empty_fn(const struct codec_field *f, const void *from);

static void encode_bool(struct json_writer *w, const struct codec_field *f, const void *from)
{
	json_bool(w, *(const bool *)from);
}

static bool bool_is_empty(const struct codec_field *f, const void *from)
{
	return !*(const bool *)from;
}

static bool i64_is_empty(const struct codec_field *f, const void *from)
{
	return *(const int64_t *)from == f->preset;
}

static void encode_i64(struct json_writer *w, const struct codec_field *f, const void *from)
{
	if ((f->flags & CODEC_NULL_PRESET) && i64_is_empty(f, from))
		json_null(w);
	else
		json_int(w, *(const int64_t *)from);
}

static void encode_f64(struct json_writer *w, const struct codec_field *f, const void *from)
{
	if ((f->flags & CODEC_NULL_PRESET) && *(const double *)from == (double)f->preset)
		json_null(w);
	else
		json_number(w, *(const double *)from);
}

static bool f64_is_empty(const struct codec_field *f, const void *from)
{
	return *(const double *)from == (double)f->preset;
}

static void encode_str(struct json_writer *w, const struct codec_field *f, const void *from)
{
	const struct str *s = from;

	if (s->p)
		json_bytes(w, *s);
	else if (f->flags & CODEC_NULLABLE)
		json_null(w);
	else
		json_bytes(w, STR(""));
}

static bool text_is_empty(const struct codec_field *f, const void *from)
{
	return ((const struct str *)from)->n == 0;
}

static bool bytes_is_empty(const struct codec_field *f, const void *from)
{
	return ((const struct str *)from)->p == NULL;
}

static void encode_content(struct json_writer *w, const struct codec_field *f, const void *from)
{
	const struct content *content = from;

	if (!content->blob.p) {
		encode_str(w, f, &content->bytes);
		return;
	}
	json_begin_object(w);
	json_key(w, "blob");
	json_bytes(w, content->blob);
	json_end_object(w);
}

static bool content_is_empty(const struct codec_field *f, const void *from)
{
	return content_is_absent(from);
}

static void encode_id(struct json_writer *w, const struct codec_field *f, const void *from)
{
	const struct id *id = from;

	json_text(w, id->hex[0] ? id->hex : NULL);
}

static bool id_is_empty(const struct codec_field *f, const void *from)
{
	return ((const struct id *)from)->hex[0] == '\0';
}

static void encode_record(struct json_writer *w, const struct codec_field *f, const void *from)
{
	const void *nested = *(void *const *)from;

	if (nested)
		codec_encode(f->record, nested, w);
	else
		json_null(w);
}

static bool record_is_empty(const struct codec_field *f, const void *from)
{
	return *(void *const *)from == NULL;
}

static void encode_list(struct json_writer *w, const struct codec_field *f, const void *from)
{
	const struct codec_list *list = from;

	json_begin_array(w);
	for (size_t i = 0; i < list->count; i++)
		codec_encode(f->record, (const char *)list->items + i * f->record->size, w);
	json_end_array(w);
}

static bool list_is_absent(const struct codec_field *f, const void *from)
{
	return ((const struct codec_list *)from)->count == 0;
}

static void encode_texts(struct json_writer *w, const struct codec_field *f, const void *from)
{
	const struct codec_list *list = from;

	json_begin_array(w);
	for (size_t i = 0; i < list->count; i++)
		json_bytes(w, *codec_item(*list, struct str, i));
	json_end_array(w);
}

static void encode_json(struct json_writer *w, const struct codec_field *f, const void *from)
{
	const struct codec_json *value = from;

	if (value->node)
		json_node(w, value->node);
	else if (value->text.p)
		json_raw(w, value->text);
	else
		json_null(w);
}

static bool json_is_empty(const struct codec_field *f, const void *from)
{
	const struct codec_json *value = from;

	return !value->node && !value->text.p;
}

/* --- the table of kinds ------------------------------------------------------------------------ */

struct kind_row {
	decode_fn *decode;
	encode_fn *encode;
	empty_fn *is_empty;
	bool is_optional; /* has no empty value: left out when absent and not nullable */
	const char *name; /* for the documentation */
	const char *unit; /* of min and max */
};

static const struct kind_row KINDS[CODEC_KIND_N] = {
	[CODEC_BOOL] = {decode_bool, encode_bool, bool_is_empty, false, "boolean", ""},
	[CODEC_I64] = {decode_i64, encode_i64, i64_is_empty, false, "whole number", ""},
	[CODEC_F64] = {decode_f64, encode_f64, f64_is_empty, false, "number", ""},
	[CODEC_TEXT] = {decode_text, encode_str, text_is_empty, false, "text", " bytes"},
	[CODEC_BYTES] = {decode_bytes, encode_str, bytes_is_empty, false,
		"bytes: a string or {`base64`}", " bytes"},
	[CODEC_CONTENT] = {decode_content, encode_content, content_is_empty, false,
		"bytes: a string, {`base64`} or {`blob`}", " bytes"},
	[CODEC_ID] = {decode_id, encode_id, id_is_empty, true, "id", ""},
	[CODEC_RECORD] = {decode_record, encode_record, record_is_empty, true, "", ""},
	[CODEC_LIST] = {decode_list, encode_list, list_is_absent, false, "list of ", " items"},
	[CODEC_TEXTS] = {decode_texts, encode_texts, list_is_absent, false, "list of texts",
		" items"},
	[CODEC_JSON] = {decode_json, encode_json, json_is_empty, true, "any JSON value", ""},
	[CODEC_ARGV] = {decode_argv, encode_texts, list_is_absent, false,
		"command: an array, or a string split by POSIX quoting", " items"},
};

/* --- whole records ----------------------------------------------------------------------------- */

static const struct codec_field *find_field(const struct codec_record *type, struct str name)
{
	for (size_t i = 0; i < type->n_fields; i++) {
		if (str_is(name, type->fields[i].name))
			return &type->fields[i];
	}
	return NULL;
}

static bool is_given(const struct codec_field *f, const struct json *node)
{
	return node &&
	       (node->type != JSON_NULL || !(f->flags & (CODEC_NULLABLE | CODEC_NULL_PRESET)));
}

static bool check_required(
	struct decode *d, const struct codec_record *type, const struct json *node)
{
	for (size_t i = 0; i < type->n_fields; i++) {
		const struct codec_field *f = &type->fields[i];
		struct buf pointer cleanup(buf_fini) = BUF_INIT;

		if (!(f->flags & CODEC_REQUIRED) || is_given(f, json_get(node, f->name)))
			continue;
		json_pointer(node, &pointer);
		buf_addf(&pointer, "/%s", f->name);
		problem_set(d->problem, 422, "missing_field", pointer.data, "`%s` is required",
			f->name);
		return false;
	}
	return true;
}

static bool decode_field(
	struct decode *d, const struct codec_record *type, const struct json *node, void *data)
{
	const struct codec_field *f = find_field(type, node->key);
	char name[64];

	if (!f) {
		text_escape(node->key, name, sizeof(name));
		problem_at(d->problem, 400, "unknown_field", node, "`%s` has no field `%s`",
			type->name, name);
		return false;
	}
	if (f->flags & CODEC_OUTPUT) {
		problem_at(d->problem, 400, "read_only", node, "`%s` cannot be set", f->name);
		return false;
	}
	if (!is_given(f, node))
		return true;
	return KINDS[f->kind].decode(d, f, node, (char *)data + f->offset);
}

static bool decode_object(
	struct decode *d, const struct codec_record *type, const struct json *node, void *to)
{
	if (node->type != JSON_OBJECT)
		return wrong_type(d, node, "an object");
	fill_presets(type, to);
	for (const struct json *child = node->first; child; child = child->next) {
		if (!decode_field(d, type, child, to))
			return false;
	}
	return check_required(d, type, node);
}

int codec_decode(const struct codec_record *type, struct json_tree *tree, struct record **out,
	struct problem *problem)
{
	struct decode d = {mem_alloc(sizeof(struct record)), problem};

	d.record->tree = tree;
	d.record->data = record_alloc(d.record, type->size);
	if (!decode_object(&d, type, json_root(tree), d.record->data)) {
		record_free(d.record);
		return -EBADMSG;
	}
	*out = d.record;
	return 0;
}

int codec_decode_node(const struct codec_record *type, const struct json *node, struct record **out,
	struct problem *problem)
{
	return codec_decode(type, json_clone(node), out, problem);
}

void problem_from_json(struct problem *problem, const struct json_error *error)
{
	problem_set(problem, strcmp(error->code, "json_too_large") == 0 ? 413 : 400, error->code,
		"", "%s (byte %zu of the text)", error->detail, error->offset);
}

int codec_decode_text(const struct codec_record *type, struct str text,
	const struct json_limits *limits, struct record **out, struct problem *problem)
{
	struct json_error error;
	struct json_tree *tree;

	if (json_parse(text, limits, &tree, &error)) {
		problem_from_json(problem, &error);
		return -EBADMSG;
	}
	return codec_decode(type, tree, out, problem);
}

static void encode_field(const struct codec_field *f, const void *data, struct json_writer *w)
{
	const struct kind_row *row = &KINDS[f->kind];
	const void *from = (const char *)data + f->offset;

	if (row->is_empty(f, from) &&
		((f->flags & CODEC_OMIT) || (row->is_optional && !(f->flags & CODEC_NULLABLE))))
		return;
	json_key(w, f->name);
	row->encode(w, f, from);
}

void codec_encode(const struct codec_record *type, const void *data, struct json_writer *w)
{
	json_begin_object(w);
	for (size_t i = 0; i < type->n_fields; i++)
		encode_field(&type->fields[i], data, w);
	json_end_object(w);
}

void codec_encode_text(const struct codec_record *type, const void *data, struct buf *out)
{
	struct json_writer *w = json_writer_new(out, false);

	codec_encode(type, data, w);
	json_writer_free(w);
}

/* --- documentation ----------------------------------------------------------------------------- */

static void doc_notes(const struct codec_field *f, struct buf *out)
{
	static const struct {
		unsigned flag;
		const char *text;
	} notes[] = {
		{CODEC_REQUIRED, "required"},
		{CODEC_NULLABLE | CODEC_NULL_PRESET, "may be null"},
		{CODEC_OUTPUT, "output only"},
		{CODEC_DEPRECATED, "deprecated"},
	};
	const char *separator = "";

	for (size_t i = 0; i < ARRAY_SIZE(notes); i++) {
		if (f->flags & notes[i].flag) {
			buf_addf(out, "%s%s", separator, notes[i].text);
			separator = ", ";
		}
	}
	if (f->preset && !(f->flags & CODEC_NULL_PRESET))
		buf_addf(out, "%sdefault %" PRId64, separator, f->preset);
}

void codec_doc(const struct codec_record *type, struct buf *out)
{
	buf_addf(out, "| field | type | range | notes | meaning |\n|---|---|---|---|---|\n");
	for (size_t i = 0; i < type->n_fields; i++) {
		const struct codec_field *f = &type->fields[i];
		const struct kind_row *row = &KINDS[f->kind];

		buf_addf(out, "| `%s` | %s", f->name, row->name);
		if (f->record)
			buf_addf(out, "`%s`", f->record->name);
		buf_addf(out, " | ");
		if (is_bounded(f))
			buf_addf(out, "%" PRId64 " to %" PRId64 "%s", f->min, f->max, row->unit);
		buf_addf(out, " | ");
		doc_notes(f, out);
		buf_addf(out, " | %s |\n", f->doc);
	}
}
