/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output is compared as it comes, against a position in the expected text; nothing of it is kept but a few bytes
 * behind the first difference, for the message.
 *
 * Most outputs are right, so a chunk that is equal to what stands at the position is taken whole by one memcmp();
 * only another chunk goes through the kind's step, byte by byte. Lines and tokens are counted when a message needs
 * them, by reading the expected text up to the difference once more.
 *
 * lines: a run of blanks in the output may be inside a line (then it must be equal) or end it (then it does not
 * count); which, is known at the next byte. So the run is compared while it comes, with the position left at its
 * start: `run` bytes so far, the first `run_equal` of them as expected. The expected text needs no such care, as
 * all of it is there to look ahead in. Past the expected text only blanks and newlines may come.
 *
 * tokens: `in_token` says whether the last byte belonged to one; between tokens the position may stand anywhere in a
 * run of blanks.
 *
 * float: as tokens, until a token differs. Its bytes up to there are those of the expected token, from `token` on; they and what
 * follows are collected in `number`, `run` counting all of them, and when the token is over both are compared as numbers. So
 * `run` is 0 as long as the token is equal, and equal outputs take the fast way here too.
 */
#include "rpc/task/checker.h"

#include <math.h>
#include <stdio.h>
#include <strings.h>

#include "reactor/base/mem.h"
#include "rpc/text.h"

#define GOT_MAX 32     /* bytes kept of the output behind the difference */
#define BEFORE_MAX 16  /* bytes shown before it */
#define EXCERPT_MAX 88 /* of an excerpt in a message, escaped, with dots */

struct checker {
	enum checker_kind kind;
	struct str expected;
	size_t at;             /* position in expected: everything before is matched */
	size_t run, run_equal; /* lines; float: `run` bytes of a token that differs */
	bool in_token;         /* tokens, float */
	size_t extra;          /* lines or tokens of the output begun behind the end of expected */
	double abs, rel;       /* float, as the next two */
	size_t token;          /* where the expected token begins */
	char number[CHECKER_NUMBER_MAX + 1];
	bool failed;
	size_t diff; /* failed: position in expected of the difference */
	char got[GOT_MAX];
	size_t n_got;
	bool got_all, got_cut; /* no more bytes are wanted for the message; because it is full */
};

/* One byte of output that is not known to be equal. */
typedef void step_fn(struct checker *c, char byte);
/* The output is over. */
typedef void end_fn(struct checker *c);
/* A whole chunk was equal and at is behind it: what the kind has to remember of it. */
typedef void equal_fn(struct checker *c, struct str chunk);

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

static bool is_space(char c)
{
	return is_blank(c) || c == '\n';
}

static bool is_at(const struct checker *c, size_t at, char byte)
{
	return at < c->expected.n && c->expected.p[at] == byte;
}

static void keep_got(struct checker *c, char byte)
{
	if (c->n_got < GOT_MAX)
		c->got[c->n_got++] = byte;
}

static bool is_by_token(const struct checker *c)
{
	return c->kind == CHECKER_TOKENS || c->kind == CHECKER_FLOAT;
}

/* An excerpt ends with its line or token. */
static bool ends_excerpt(const struct checker *c, char byte)
{
	return is_by_token(c) ? is_space(byte) : byte == '\n';
}

/* A byte behind the difference, only for the message. */
static void more_got(struct checker *c, char byte)
{
	bool ends = ends_excerpt(c, byte);

	c->got_cut = c->n_got >= GOT_MAX && !ends;
	c->got_all = c->got_cut || ends;
	if (!ends || c->kind == CHECKER_EXACT) /* where a newline counts, it is shown */
		keep_got(c, byte);
}

static void fail_at(struct checker *c, size_t diff)
{
	c->failed = true;
	c->diff = diff;
}

static void fail_with(struct checker *c, size_t diff, char byte)
{
	fail_at(c, diff);
	more_got(c, byte);
}

/* --- exact ------------------------------------------------------------------------------------- */

static void exact_step(struct checker *c, char byte)
{
	if (is_at(c, c->at, byte))
		c->at++;
	else
		fail_with(c, c->at, byte);
}

static void exact_end(struct checker *c)
{
	if (c->at < c->expected.n)
		fail_at(c, c->at);
}

static void exact_equal(struct checker *c, struct str chunk)
{
}

/* --- lines ------------------------------------------------------------------------------------- */

static void lines_blank(struct checker *c, char byte)
{
	if (c->run == c->run_equal && is_at(c, c->at + c->run, byte))
		c->run_equal++;
	else
		keep_got(c, byte);
	c->run++;
}

/* The output's line is over: so must the expected one be, but for blanks. */
static void lines_newline(struct checker *c)
{
	size_t at = c->at;

	c->run = c->run_equal = c->n_got = 0;
	while (at < c->expected.n && is_blank(c->expected.p[at]))
		at++;
	if (at == c->expected.n) {
		c->at = at; /* a newline or an empty line at the end */
		c->extra++;
	} else if (c->expected.p[at] == '\n') {
		c->at = at + 1;
	} else {
		fail_with(c, c->at, '\n');
	}
}

static void lines_step(struct checker *c, char byte)
{
	if (is_blank(byte)) {
		lines_blank(c, byte);
	} else if (byte == '\n') {
		lines_newline(c);
	} else if (c->run == c->run_equal && is_at(c, c->at + c->run, byte)) {
		c->at += c->run + 1;
		c->run = c->run_equal = 0;
	} else {
		fail_with(c, c->at + c->run_equal, byte);
	}
}

static void lines_end(struct checker *c)
{
	size_t diff = c->at, at = c->at;

	c->n_got = 0;
	for (; at < c->expected.n && is_space(c->expected.p[at]); at++) {
		if (c->expected.p[at] == '\n')
			diff = at + 1; /* the line that is missing */
	}
	if (at < c->expected.n)
		fail_at(c, diff);
}

/* Blanks at the end of the chunk are a run that has begun. */
static void lines_equal(struct checker *c, struct str chunk)
{
	size_t run = 0;

	while (run < chunk.n && is_blank(chunk.p[chunk.n - 1 - run]))
		run++;
	c->at -= run;
	c->run = c->run_equal = run;
}

/* --- tokens ------------------------------------------------------------------------------------ */

static void skip_spaces(struct checker *c)
{
	while (c->at < c->expected.n && is_space(c->expected.p[c->at]))
		c->at++;
}

static void tokens_step(struct checker *c, char byte)
{
	if (is_space(byte)) {
		if (c->in_token && c->at < c->expected.n && !is_space(c->expected.p[c->at]))
			fail_with(c, c->at, byte);
		c->in_token = false;
		return;
	}
	if (!c->in_token) {
		skip_spaces(c);
		c->extra = c->at == c->expected.n;
	}
	c->in_token = true;
	if (is_at(c, c->at, byte))
		c->at++;
	else
		fail_with(c, c->at, byte);
}

static void tokens_end(struct checker *c)
{
	tokens_step(c, ' ');
	if (c->failed)
		return;
	skip_spaces(c);
	if (c->at < c->expected.n)
		fail_at(c, c->at);
}

static void tokens_equal(struct checker *c, struct str chunk)
{
	c->in_token = !is_space(chunk.p[chunk.n - 1]);
}

/* --- float ------------------------------------------------------------------------------------- */

static const char *skip_digits(const char *p)
{
	while (*p >= '0' && *p <= '9')
		p++;
	return p;
}

/* [+-] digits [. digits] [e [+-] digits], with a digit before the exponent. */
static bool is_decimal(const char *p)
{
	const char *whole = p + (*p == '+' || *p == '-'), *point = skip_digits(whole);
	const char *end = *point == '.' ? skip_digits(point + 1) : point;
	const char *exponent;

	if (end - whole == (*point == '.'))
		return false;
	if (*end != 'e' && *end != 'E')
		return *end == '\0';
	exponent = end + 1 + (end[1] == '+' || end[1] == '-');
	end = skip_digits(exponent);
	return end > exponent && *end == '\0';
}

static bool is_named_number(const char *p)
{
	p += *p == '+' || *p == '-';
	return !strcasecmp(p, "inf") || !strcasecmp(p, "infinity") || !strcasecmp(p, "nan");
}

static bool to_number(struct str s, double *out)
{
	char text[CHECKER_NUMBER_MAX + 1];

	if (s.n == 0 || s.n > CHECKER_NUMBER_MAX || memchr(s.p, '\0', s.n))
		return false;
	memcpy(text, s.p, s.n);
	text[s.n] = '\0';
	if (is_named_number(text)) {
		*out = strtod(text, NULL);
		return true;
	}
	if (!is_decimal(text))
		return false;
	*out = strtod(text, NULL);
	return isfinite(*out);
}

static bool is_near(const struct checker *c, double got, double expected)
{
	double apart;

	if (isnan(got) || isnan(expected))
		return isnan(got) && isnan(expected);
	if (isinf(got) || isinf(expected))
		return got == expected;
	apart = fabs(got - expected);
	return apart <= c->abs || apart <= c->rel * fabs(expected);
}

/* A byte of a token that is not the expected one. */
static void collect(struct checker *c, char byte)
{
	if (c->run < CHECKER_NUMBER_MAX)
		c->number[c->run] = byte;
	c->run++;
}

/* The output's token, as far as it is kept. */
static struct str collected(const struct checker *c)
{
	return (struct str){
		c->number, c->run < CHECKER_NUMBER_MAX ? c->run : (size_t)CHECKER_NUMBER_MAX};
}

/* From now on the token is in `number`: what has been equal so far, to begin with. */
static void begin_to_collect(struct checker *c)
{
	size_t end = c->at;

	for (c->at = c->token; c->at < end; c->at++)
		collect(c, c->expected.p[c->at]);
}

static void float_fail(struct checker *c)
{
	struct str got = collected(c);

	fail_at(c, c->token);
	for (size_t i = 0; i < got.n; i++)
		keep_got(c, got.p[i]);
	c->got_cut = c->run > GOT_MAX;
	c->got_all = true;
}

/* The token of the output is over, and it was not equal to the end of the expected one. */
static void compare_numbers(struct checker *c)
{
	double got, expected;
	size_t end = c->token;

	if (!c->run)
		begin_to_collect(c);
	while (end < c->expected.n && !is_space(c->expected.p[end]))
		end++;
	if (c->run <= CHECKER_NUMBER_MAX && to_number(collected(c), &got) &&
		to_number((struct str){c->expected.p + c->token, end - c->token}, &expected) &&
		is_near(c, got, expected)) {
		c->at = end;
		c->run = 0;
	} else {
		float_fail(c);
	}
}

static void float_space(struct checker *c)
{
	bool is_equal = !c->run && (c->at == c->expected.n || is_space(c->expected.p[c->at]));

	if (c->in_token && !is_equal)
		compare_numbers(c);
	c->in_token = false;
}

static void float_step(struct checker *c, char byte)
{
	if (is_space(byte)) {
		float_space(c);
		return;
	}
	if (!c->in_token) {
		skip_spaces(c);
		c->token = c->at;
		c->in_token = true;
	}
	if (c->token == c->expected.n) {
		c->extra = 1;
		fail_with(c, c->at, byte);
	} else if (!c->run && is_at(c, c->at, byte)) {
		c->at++;
	} else {
		if (!c->run)
			begin_to_collect(c);
		collect(c, byte);
	}
}

static void float_end(struct checker *c)
{
	float_step(c, ' ');
	if (c->failed)
		return;
	skip_spaces(c);
	if (c->at < c->expected.n)
		fail_at(c, c->at);
}

/* The token it ends in may have begun in it. */
static void float_equal(struct checker *c, struct str chunk)
{
	size_t begin = c->at - chunk.n, start = c->at;

	while (start > begin && !is_space(c->expected.p[start - 1]))
		start--;
	if (start > begin || !c->in_token)
		c->token = start;
	c->in_token = start < c->at;
}

/* --- the table of kinds ------------------------------------------------------------------------ */

struct kind_row {
	const char *name;
	step_fn *step;
	end_fn *end;
	equal_fn *equal;
};

static const struct kind_row KINDS[CHECKER_KIND_N] = {
	[CHECKER_LINES] = {"lines", lines_step, lines_end, lines_equal},
	[CHECKER_EXACT] = {"exact", exact_step, exact_end, exact_equal},
	[CHECKER_TOKENS] = {"tokens", tokens_step, tokens_end, tokens_equal},
	[CHECKER_FLOAT] = {"float", float_step, float_end, float_equal},
};

const char *checker_name(enum checker_kind kind)
{
	CHECK((unsigned)kind < CHECKER_KIND_N);
	return KINDS[kind].name;
}

bool checker_parse(struct str name, enum checker_kind *out)
{
	for (int i = 0; i < CHECKER_KIND_N; i++) {
		if (str_is(name, KINDS[i].name)) {
			*out = (enum checker_kind)i;
			return true;
		}
	}
	return false;
}

/* --- feeding ----------------------------------------------------------------------------------- */

struct checker *checker_new(enum checker_kind kind, struct str expected)
{
	struct checker *c = mem_alloc(sizeof(*c));

	CHECK((unsigned)kind < CHECKER_KIND_N);
	c->kind = kind;
	c->expected = expected;
	c->abs = c->rel = CHECKER_TOLERANCE;
	return c;
}

void checker_set_tolerance(struct checker *c, double abs, double rel)
{
	CHECK(isfinite(abs) && abs >= 0 && isfinite(rel) && rel >= 0);
	c->abs = abs;
	c->rel = rel;
}

/* With no run of blanks undecided, and inside a token on both sides or on none, equal bytes are all that is needed. */
static bool take_equal(struct checker *c, struct str chunk)
{
	if (c->run || chunk.n > c->expected.n - c->at ||
		memcmp(c->expected.p + c->at, chunk.p, chunk.n) != 0)
		return false;
	c->at += chunk.n;
	KINDS[c->kind].equal(c, chunk);
	return true;
}

void checker_feed(struct checker *c, struct str output)
{
	if (!c->expected.p || c->got_all || !output.n)
		return;
	if (!c->failed && take_equal(c, output))
		return;
	for (size_t i = 0; i < output.n && !c->got_all; i++) {
		if (c->failed)
			more_got(c, output.p[i]);
		else
			KINDS[c->kind].step(c, output.p[i]);
	}
}

void checker_free(struct checker *c)
{
	free(c);
}

/* --- the message ------------------------------------------------------------------------------- */

static size_t count_lines(struct str s)
{
	size_t n = 1;

	for (size_t i = 0; i < s.n; i++)
		n += s.p[i] == '\n';
	return n;
}

/* Number of the token that the difference is in, or that begins there. */
static size_t count_tokens(const struct checker *c)
{
	size_t n = 0;
	bool inside = false;

	for (size_t i = 0; i < c->diff; i++) {
		bool token = !is_space(c->expected.p[i]);

		n += token && !inside;
		inside = token;
	}
	return inside && !c->extra ? n : n + 1;
}

/* Where the line or token with the difference begins, not too far before it, and not inside a character. */
static size_t excerpt_start(const struct checker *c)
{
	size_t start = c->diff, least = c->diff > BEFORE_MAX ? c->diff - BEFORE_MAX : 0;

	if (c->extra)
		return start;
	while (start > least && !ends_excerpt(c, c->expected.p[start - 1]))
		start--;
	if (start > least)
		return start;
	while (start < c->diff && ((unsigned char)c->expected.p[start] & 0xc0) == 0x80)
		start++;
	return start;
}

/* "...text..." in quotes, or words when there is no text. */
static void write_excerpt(const struct checker *c, size_t start, struct str text, bool is_cut,
	const char *none, char out[EXCERPT_MAX])
{
	bool is_begun = start > 0 && !c->extra && !ends_excerpt(c, c->expected.p[start - 1]);
	size_t n = is_begun ? 4 : 1, valid = text_valid_prefix(text), taken;

	if (text.n == 0) {
		snprintf(out, EXCERPT_MAX, "%s", none);
		return;
	}
	if (is_cut && valid + 3 >= text.n)
		text.n = valid; /* the cut has split a character */
	memcpy(out, "\"...", n);
	taken = text_escape(text, out + n, EXCERPT_MAX - n - 4);
	n += strlen(out + n);
	snprintf(out + n, EXCERPT_MAX - n, "%s", is_cut || taken < text.n ? "...\"" : "\"");
}

static void write_expected(const struct checker *c, size_t start, char out[EXCERPT_MAX])
{
	size_t end = start, most = c->diff + GOT_MAX;
	bool is_cut;

	while (end < c->expected.n && end < most && !ends_excerpt(c, c->expected.p[end]))
		end++;
	is_cut = end < c->expected.n && !ends_excerpt(c, c->expected.p[end]);
	if (c->kind == CHECKER_EXACT && end < c->expected.n && !is_cut)
		end++;
	write_excerpt(c, start, (struct str){c->expected.p + start, end - start}, is_cut,
		start < c->expected.n ? "an empty line" : "end of output", out);
}

static void write_got(const struct checker *c, size_t start, char out[EXCERPT_MAX])
{
	char text[BEFORE_MAX + GOT_MAX];
	size_t before = c->diff - start;

	memcpy(text, c->expected.p + start, before);
	memcpy(text + before, c->got, c->n_got);
	write_excerpt(c, start, (struct str){text, before + c->n_got}, c->got_cut,
		c->got_all ? "an empty line" : "end of output", out);
}

static void write_message(const struct checker *c, char message[CHECKER_MESSAGE_MAX])
{
	char expected[EXCERPT_MAX], got[EXCERPT_MAX];
	struct str before = {c->expected.p, c->diff};
	size_t start = excerpt_start(c);
	int n;

	write_expected(c, start, expected);
	write_got(c, start, got);
	if (is_by_token(c))
		n = snprintf(message, CHECKER_MESSAGE_MAX,
			"token %zu (line %zu): ", count_tokens(c), count_lines(before));
	else
		n = snprintf(
			message, CHECKER_MESSAGE_MAX, "line %zu: ", count_lines(before) + c->extra);
	snprintf(message + n, (size_t)(CHECKER_MESSAGE_MAX - n), "expected %s, got %s", expected,
		got);
}

bool checker_accepts(struct checker *c, char message[CHECKER_MESSAGE_MAX])
{
	message[0] = '\0';
	if (!c->expected.p)
		return true;
	if (!c->failed)
		KINDS[c->kind].end(c);
	if (!c->failed)
		return true;
	write_message(c, message);
	return false;
}
