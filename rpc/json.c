/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parsing: yajl's SAX callbacks hang nodes into a tree. What yajl leaves open is settled here:
 *
 *   UTF-8        The whole text is checked first (yajl's own check lets overlong forms and surrogates through), and
 *                escaped surrogates must come in pairs (yajl turns a lone one into "?" and swallows the
 *                character behind it, or into invalid UTF-8). After that every decoded string is valid UTF-8.
 *   depth        yajl has no limit; counted in the callbacks, with one frame per open container.
 *   numbers      Only yajl_number is given, so yajl never converts: the text is kept.
 *   keys         Duplicates are looked for when an object ends, by sorting pointers to its keys when there are
 *                many: n log n whatever a client chose as keys.
 *   truncation   Only yajl_complete_parse() tells; always called.
 *
 * A callback that refuses fills the error and returns 0, which ends the parse (yajl_status_client_canceled).
 *
 * Writing: yajl_gen with a print callback that appends to the caller's buf. It is never given what it could
 * refuse: strings are checked, numbers go in as text; so a status other than ok is a caller's bug, and a CHECK.
 * yajl_gen counts no deeper than 128 levels: the parser's 64 leave room for an envelope around a spliced tree.
 */
#include "rpc/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <yajl/yajl_gen.h>
#include <yajl/yajl_parse.h>

#include "reactor/base/mem.h"
#include "rpc/arena.h"
#include "rpc/text.h"

#define BYTES_DEFAULT ((size_t)64 << 20)
#define DEPTH_DEFAULT 64
#define VALUES_DEFAULT 1000000
#define KEYS_COMPARED 16 /* up to so many keys are compared each with each */

struct json_tree {
	struct arena arena;
	struct json *root;
};

/* --- parser ------------------------------------------------------------------------------------ */

struct frame { /* an open container */
	struct json *node, *last;
};

struct parse {
	struct json_tree *tree;
	struct json_limits limits;
	struct json_error *error;
	yajl_handle yajl;
	struct frame *stack;
	size_t depth;
	struct str key; /* of the value to come */
	size_t values;
};

static int refuse(struct parse *p, const char *code, const char *detail)
{
	p->error->code = code;
	p->error->offset = yajl_get_bytes_consumed(p->yajl);
	snprintf(p->error->detail, sizeof(p->error->detail), "%s", detail);
	return 0;
}

static int refuse_memory(struct parse *p)
{
	return refuse(p, "json_too_large", "not enough memory for this text");
}

/* The new node as the next child of the open container, or as the root; NULL when refused. */
static struct json *add_node(struct parse *p, enum json_type type)
{
	struct frame *frame = p->depth ? &p->stack[p->depth - 1] : NULL;
	struct json *node;

	if (p->values >= p->limits.values) {
		refuse(p, "json_too_large", "too many values");
		return NULL;
	}
	p->values++;
	node = arena_try(&p->tree->arena, sizeof(*node));
	if (!node) {
		refuse_memory(p);
		return NULL;
	}
	node->type = type;
	if (!frame) {
		p->tree->root = node;
		return node;
	}
	node->key = p->key;
	p->key = STR_NULL;
	node->parent = frame->node;
	node->index = frame->node->count++;
	if (frame->last)
		frame->last->next = node;
	else
		frame->node->first = node;
	frame->last = node;
	return node;
}

static bool copy_text(struct parse *p, const unsigned char *text, size_t n, struct str *out)
{
	char *copy = arena_try(&p->tree->arena, n + 1);

	if (!copy)
		return refuse_memory(p);
	if (n)
		memcpy(copy, text, n);
	*out = (struct str){copy, n};
	return true;
}

static int on_null(void *arg)
{
	return add_node(arg, JSON_NULL) != NULL;
}

static int on_boolean(void *arg, int value)
{
	struct json *node = add_node(arg, JSON_BOOL);

	if (!node)
		return 0;
	node->boolean = value;
	return 1;
}

static int on_number(void *arg, const char *text, size_t n)
{
	struct json *node = add_node(arg, JSON_NUMBER);

	return node && copy_text(arg, (const unsigned char *)text, n, &node->text);
}

static int on_string(void *arg, const unsigned char *text, size_t n)
{
	struct json *node = add_node(arg, JSON_STRING);

	return node && copy_text(arg, text, n, &node->text);
}

static int on_key(void *arg, const unsigned char *text, size_t n)
{
	struct parse *p = arg;

	return copy_text(p, text, n, &p->key);
}

static int open_container(struct parse *p, enum json_type type)
{
	struct json *node;

	if (p->depth >= p->limits.depth)
		return refuse(p, "json_depth", "nested too deeply");
	node = add_node(p, type);
	if (!node)
		return 0;
	p->stack[p->depth++] = (struct frame){node, NULL};
	return 1;
}

static int on_start_object(void *arg)
{
	return open_container(arg, JSON_OBJECT);
}

static int on_start_array(void *arg)
{
	return open_container(arg, JSON_ARRAY);
}

static int on_end_array(void *arg)
{
	struct parse *p = arg;

	p->depth--;
	return 1;
}

/* Any total order will do; lengths first is cheap against long common prefixes. */
static int compare_keys(const void *a, const void *b)
{
	const struct json *x = *(const struct json *const *)a, *y = *(const struct json *const *)b;

	if (x->key.n != y->key.n)
		return x->key.n < y->key.n ? -1 : 1;
	return memcmp(x->key.p, y->key.p, x->key.n);
}

static const struct json *duplicate_among_few(const struct json *object)
{
	for (const struct json *a = object->first; a; a = a->next) {
		for (const struct json *b = a->next; b; b = b->next) {
			if (str_eq(a->key, b->key))
				return b;
		}
	}
	return NULL;
}

static const struct json *duplicate_among_many(const struct json *object)
{
	const struct json **all = mem_array(object->count, sizeof(const struct json *));
	const struct json *found = NULL;
	size_t n = 0;

	for (const struct json *node = object->first; node; node = node->next)
		all[n++] = node;
	qsort(all, n, sizeof(const struct json *), compare_keys);
	for (size_t i = 1; i < n && !found; i++) {
		if (compare_keys(&all[i - 1], &all[i]) == 0)
			found = all[i];
	}
	free(all);
	return found;
}

static int on_end_object(void *arg)
{
	struct parse *p = arg;
	const struct json *object = p->stack[--p->depth].node, *twice;
	char key[64], detail[128];

	twice = object->count <= KEYS_COMPARED ? duplicate_among_few(object)
					       : duplicate_among_many(object);
	if (!twice)
		return 1;
	text_escape(twice->key, key, sizeof(key));
	snprintf(detail, sizeof(detail), "the key \"%s\" stands twice in one object", key);
	return refuse(p, "json_duplicate_key", detail);
}

static const yajl_callbacks CALLBACKS = {
	.yajl_null = on_null,
	.yajl_boolean = on_boolean,
	.yajl_number = on_number,
	.yajl_string = on_string,
	.yajl_start_map = on_start_object,
	.yajl_map_key = on_key,
	.yajl_end_map = on_end_object,
	.yajl_start_array = on_start_array,
	.yajl_end_array = on_end_array,
};

static bool hex4(struct str s, size_t at, unsigned *out)
{
	*out = 0;
	for (size_t i = at; i < at + 4; i++) {
		int c = i < s.n ? s.p[i] : 0;

		if (c >= '0' && c <= '9')
			c -= '0';
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			c = (c | 0x20) - 'a' + 10;
		else
			return false;
		*out = *out << 4 | (unsigned)c;
	}
	return true;
}

/* Offset of the first escape that is half of a surrogate pair, or s.n. Outside strings a backslash is an error anyway. */
static size_t lone_surrogate(struct str s)
{
	size_t i = 0;

	while (i < s.n) {
		const char *slash = memchr(s.p + i, '\\', s.n - i);
		unsigned high, low;

		if (!slash)
			return s.n;
		i = (size_t)(slash - s.p);
		if (i + 1 >= s.n || s.p[i + 1] != 'u' || !hex4(s, i + 2, &high)) {
			i += 2;
			continue;
		}
		if (high >= 0xdc00 && high <= 0xdfff)
			return i;
		if (high >= 0xd800 && high <= 0xdbff) {
			if (i + 7 >= s.n || s.p[i + 6] != '\\' || s.p[i + 7] != 'u' ||
				!hex4(s, i + 8, &low) || low < 0xdc00 || low > 0xdfff)
				return i;
			i += 6;
		}
		i += 6;
	}
	return s.n;
}

static int text_error(struct json_error *error, const char *code, size_t offset, const char *detail)
{
	error->code = code;
	error->offset = offset;
	snprintf(error->detail, sizeof(error->detail), "%s", detail);
	return -EBADMSG;
}

/* What can be said of the text before it is parsed. */
static int check_text(struct str text, const struct json_limits *limits, struct json_error *error)
{
	size_t valid;

	if (text.n > limits->bytes)
		return text_error(error, "json_too_large", limits->bytes, "the text is too large");
	valid = text_valid_prefix(text);
	if (valid < text.n)
		return text_error(error, "json_utf8", valid, "the text is not valid UTF-8");
	valid = lone_surrogate(text);
	if (valid < text.n)
		return text_error(
			error, "json_utf8", valid, "an escape is half of a surrogate pair");
	return 0;
}

/* yajl's own words: ASCII, with a newline at the end. */
static void syntax_error(struct parse *p)
{
	unsigned char *words = yajl_get_error(p->yajl, 0, NULL, 0);
	struct str text = str_trim(str_from((const char *)words));

	snprintf(p->error->detail, sizeof(p->error->detail), STR_FMT, STR_ARG(text_cut(text, 150)));
	p->error->code = "json_syntax";
	p->error->offset = yajl_get_bytes_consumed(p->yajl);
	yajl_free_error(p->yajl, words);
}

static int run_parser(struct parse *p, struct str text)
{
	const unsigned char *bytes = (const unsigned char *)text.p;
	yajl_status status = yajl_status_ok;

	if (text.n)
		status = yajl_parse(p->yajl, bytes, text.n);
	if (status == yajl_status_ok) {
		status = yajl_complete_parse(p->yajl);
		if (status == yajl_status_error) {
			syntax_error(p);
			p->error->offset = text.n;
			return -EBADMSG;
		}
	}
	if (status == yajl_status_error)
		syntax_error(p);
	return status == yajl_status_ok ? 0 : -EBADMSG;
}

static struct json_limits limits_or_default(const struct json_limits *given)
{
	struct json_limits limits = given ? *given : (struct json_limits){0, 0, 0};

	limits.bytes = limits.bytes ? limits.bytes : BYTES_DEFAULT;
	limits.depth = limits.depth ? limits.depth : DEPTH_DEFAULT;
	limits.values = limits.values ? limits.values : VALUES_DEFAULT;
	return limits;
}

int json_parse(struct str text, const struct json_limits *limits, struct json_tree **out,
	struct json_error *error)
{
	struct parse p = {.limits = limits_or_default(limits), .error = error};
	int r = check_text(text, &p.limits, error);

	if (r)
		return r;
	p.tree = mem_alloc(sizeof(*p.tree));
	p.stack = mem_array(p.limits.depth, sizeof(*p.stack));
	p.yajl = yajl_alloc(&CALLBACKS, NULL, &p);
	CHECK(p.yajl != NULL);
	yajl_config(p.yajl, yajl_dont_validate_strings, 1);
	r = run_parser(&p, text);
	yajl_free(p.yajl);
	free(p.stack);
	if (r) {
		json_free(p.tree);
		return r;
	}
	*out = p.tree;
	return 0;
}

/* --- tree -------------------------------------------------------------------------------------- */

void json_free(struct json_tree *tree)
{
	if (!tree)
		return;
	arena_fini(&tree->arena);
	free(tree);
}

void json_freep(void *treep)
{
	json_free(*(struct json_tree **)treep);
}

const struct json *json_root(const struct json_tree *tree)
{
	return tree->root;
}

/* Recursion is as deep as the tree, which a parser's limit has bounded. */
static struct json *clone_node(struct arena *arena, const struct json *from, struct json *parent)
{
	struct json *node = arena_alloc(arena, sizeof(*node)), **tail = &node->first;

	*node = *from;
	node->text = arena_copy(arena, from->text);
	node->key = arena_copy(arena, from->key);
	node->parent = parent;
	node->first = node->next = NULL;
	for (const struct json *child = from->first; child; child = child->next) {
		*tail = clone_node(arena, child, node);
		tail = &(*tail)->next;
	}
	return node;
}

struct json_tree *json_clone(const struct json *node)
{
	struct json_tree *tree = mem_alloc(sizeof(*tree));

	tree->root = clone_node(&tree->arena, node, NULL);
	tree->root->key = STR_NULL;
	tree->root->index = 0;
	return tree;
}

const struct json *json_get(const struct json *object, const char *key)
{
	struct str wanted = str_from(key);

	if (!object || object->type != JSON_OBJECT)
		return NULL;
	for (const struct json *node = object->first; node; node = node->next) {
		if (str_eq(node->key, wanted))
			return node;
	}
	return NULL;
}

void json_pointer(const struct json *node, struct buf *out)
{
	if (!node->parent)
		return;
	json_pointer(node->parent, out);
	buf_add_char(out, '/');
	if (node->parent->type == JSON_ARRAY) {
		buf_addf(out, "%zu", node->index);
		return;
	}
	for (size_t i = 0; i < node->key.n; i++) {
		if (node->key.p[i] == '~')
			buf_add(out, "~0", 2);
		else if (node->key.p[i] == '/')
			buf_add(out, "~1", 2);
		else
			buf_add_char(out, node->key.p[i]);
	}
}

/* --- numbers ----------------------------------------------------------------------------------- */

/* A number's text taken apart: whole.fraction x 10^exponent. */
struct decimal {
	bool negative;
	struct str whole, fraction; /* digits before and behind the '.' */
	int64_t exponent;
};

#define EXPONENT_MAX 1000000000 /* far beyond any number of digits that fits into a text */

static struct str take_digits(struct str *s)
{
	struct str digits = {s->p, 0};

	while (digits.n < s->n && s->p[digits.n] >= '0' && s->p[digits.n] <= '9')
		digits.n++;
	s->p += digits.n;
	s->n -= digits.n;
	return digits;
}

static bool take_char(struct str *s, char a, char b)
{
	if (!s->n || (*s->p != a && *s->p != b))
		return false;
	s->p++;
	s->n--;
	return true;
}

static struct decimal decimal_of(struct str s)
{
	struct decimal d = {.fraction = STR("")};

	d.negative = take_char(&s, '-', '-');
	d.whole = take_digits(&s);
	if (take_char(&s, '.', '.'))
		d.fraction = take_digits(&s);
	if (take_char(&s, 'e', 'E')) {
		bool negative = take_char(&s, '-', '-');
		struct str digits;

		if (!negative)
			take_char(&s, '+', '+');
		digits = take_digits(&s);
		for (size_t i = 0; i < digits.n && d.exponent < EXPONENT_MAX; i++)
			d.exponent = d.exponent * 10 + (digits.p[i] - '0');
		if (negative)
			d.exponent = -d.exponent;
	}
	return d;
}

static int digit_at(const struct decimal *d, size_t i)
{
	return (i < d->whole.n ? d->whole.p[i] : d->fraction.p[i - d->whole.n]) - '0';
}

bool json_i64(const struct json *node, int64_t *out)
{
	struct decimal d;
	size_t first = 0, end;
	int64_t point, value = 0;

	if (!node || node->type != JSON_NUMBER)
		return false;
	d = decimal_of(node->text);
	end = d.whole.n + d.fraction.n;
	while (first < end && digit_at(&d, first) == 0)
		first++;
	while (end > first && digit_at(&d, end - 1) == 0)
		end--;
	if (first == end) {
		*out = 0;
		return true;
	}
	point = (int64_t)d.whole.n + d.exponent; /* index of the digit behind the point */
	if (point < (int64_t)end || point - (int64_t)first > 19)
		return false;
	for (int64_t i = (int64_t)first; i < point; i++) {
		int digit = i < (int64_t)end ? digit_at(&d, (size_t)i) : 0;

		/* negative all along, as INT64_MIN has no positive */
		if (__builtin_mul_overflow(value, 10, &value) ||
			__builtin_sub_overflow(value, digit, &value))
			return false;
	}
	if (!d.negative && value == INT64_MIN)
		return false;
	*out = d.negative ? value : -value;
	return true;
}

bool json_double(const struct json *node, double *out)
{
	double value;

	if (!node || node->type != JSON_NUMBER)
		return false;
	value = strtod(node->text.p, NULL); /* a NUL stands behind the text */
	if (!isfinite(value))
		return false;
	*out = value;
	return true;
}

/* --- writer ------------------------------------------------------------------------------------ */

struct json_writer {
	yajl_gen gen;
	struct buf *out;
};

static void print(void *arg, const char *text, size_t n)
{
	buf_add(arg, text, n);
}

struct json_writer *json_writer_new(struct buf *out, bool pretty)
{
	struct json_writer *w = mem_alloc(sizeof(*w));

	w->out = out;
	w->gen = yajl_gen_alloc(NULL);
	CHECK(w->gen != NULL);
	yajl_gen_config(w->gen, yajl_gen_print_callback, print, (void *)out);
	if (pretty) {
		yajl_gen_config(w->gen, yajl_gen_beautify, 1);
		yajl_gen_config(w->gen, yajl_gen_indent_string, "  ");
	}
	return w;
}

void json_writer_free(struct json_writer *w)
{
	if (!w)
		return;
	yajl_gen_free(w->gen);
	free(w);
}

#define GEN(call) CHECK((call) == yajl_gen_status_ok)

void json_begin_object(struct json_writer *w)
{
	GEN(yajl_gen_map_open(w->gen));
}

void json_end_object(struct json_writer *w)
{
	GEN(yajl_gen_map_close(w->gen));
}

void json_begin_array(struct json_writer *w)
{
	GEN(yajl_gen_array_open(w->gen));
}

void json_end_array(struct json_writer *w)
{
	GEN(yajl_gen_array_close(w->gen));
}

static void put_string(struct json_writer *w, struct str s)
{
	GEN(yajl_gen_string(w->gen, (const unsigned char *)s.p, s.n));
}

void json_key(struct json_writer *w, const char *key)
{
	json_key_str(w, str_from(key));
}

void json_key_str(struct json_writer *w, struct str key)
{
	CHECK(key.p && text_valid_prefix(key) == key.n);
	put_string(w, key);
}

void json_null(struct json_writer *w)
{
	GEN(yajl_gen_null(w->gen));
}

void json_bool(struct json_writer *w, bool value)
{
	GEN(yajl_gen_bool(w->gen, value));
}

void json_int(struct json_writer *w, int64_t value)
{
	GEN(yajl_gen_integer(w->gen, value));
}

/* The shortest text that reads back as the same double. */
void json_number(struct json_writer *w, double value)
{
	char text[32];

	if (!isfinite(value)) {
		json_null(w);
		return;
	}
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	json_raw(w, str_from(text));
}

void json_text(struct json_writer *w, const char *value)
{
	json_bytes(w, str_from(value));
}

void json_bytes(struct json_writer *w, struct str value)
{
	if (!value.p) {
		json_null(w);
		return;
	}
	if (text_valid_prefix(value) == value.n) {
		put_string(w, value);
		return;
	}
	json_begin_object(w);
	json_key(w, "base64");
	/* straight into the buffer, between quotes that yajl_gen takes for a number's text */
	json_raw(w, STR("\""));
	base64_encode(value, w->out);
	buf_add_char(w->out, '"');
	json_end_object(w);
}

void json_raw(struct json_writer *w, struct str text)
{
	CHECK(text.p && text.n);
	GEN(yajl_gen_number(w->gen, text.p, text.n));
}

void json_node(struct json_writer *w, const struct json *node)
{
	switch (node->type) {
	case JSON_NULL:
		json_null(w);
		return;
	case JSON_BOOL:
		json_bool(w, node->boolean);
		return;
	case JSON_NUMBER:
		json_raw(w, node->text);
		return;
	case JSON_STRING:
		put_string(w, node->text);
		return;
	case JSON_ARRAY:
		json_begin_array(w);
		break;
	case JSON_OBJECT:
		json_begin_object(w);
		break;
	}
	for (const struct json *child = node->first; child; child = child->next) {
		if (node->type == JSON_OBJECT)
			json_key_str(w, child->key);
		json_node(w, child);
	}
	if (node->type == JSON_ARRAY)
		json_end_array(w);
	else
		json_end_object(w);
}
