/* SPDX-License-Identifier: Apache-2.0 */
/*
 * render - answers in words for people.
 *
 * Everything here comes from elsewhere: programs print what they like, and users name themselves as they like. So every text goes
 * through text_safe() on its way out, and no answer can move a cursor or retitle a window. Colours mark what the words say anyway.
 */
#include "roles/cli/cli_int.h"

#include <stdarg.h>
#include <string.h>

#include "reactor/base/clock.h"
#include "rpc/task/verdict.h"

/* --- words ------------------------------------------------------------------------------------------------------------ */

/* Bytes of the UTF-8 character at the start, 0 when there is none. */
static size_t character(struct str text)
{
	for (size_t n = 2; n <= 4 && n <= text.n; n++)
		if (str_is_utf8((struct str){text.p, n}))
			return n;
	return 0;
}

static bool is_c1(struct str c)
{
	return c.n == 2 && (unsigned char)c.p[0] == 0xc2 && (unsigned char)c.p[1] < 0xa0;
}

void text_safe(struct str text, bool lines, struct buf *out)
{
	for (size_t i = 0; i < text.n;) {
		unsigned char c = (unsigned char)text.p[i];
		struct str rest = {text.p + i, text.n - i};
		size_t n = c < 0x80 ? 1 : character(rest);

		if ((c >= ' ' && c < 0x7f) || (lines && (c == '\n' || c == '\t')) ||
			(n > 1 && !is_c1((struct str){rest.p, n}))) {
			buf_add(out, rest.p, n);
			i += n;
		} else {
			buf_addf(out, "\\x%02x", c);
			i++;
		}
	}
}

bool text_of(const struct json *node, struct buf *out)
{
	const struct json *inner = json_get(node, "base64");

	if (node && node->type == JSON_STRING) {
		buf_add_str(out, node->text);
		return true;
	}
	return inner && inner->type == JSON_STRING && base64_decode(inner->text, out);
}

struct str member(const struct json *object, const char *key)
{
	const struct json *node = json_get(object, key);
	bool is_text = node && (node->type == JSON_STRING || node->type == JSON_NUMBER);

	return is_text ? node->text : STR("");
}

int64_t member_i64(const struct json *object, const char *key)
{
	int64_t value = 0;

	return json_i64(json_get(object, key), &value) ? value : 0;
}

static bool member_is_true(const struct json *object, const char *key)
{
	const struct json *node = json_get(object, key);

	return node && node->type == JSON_BOOL && node->boolean;
}

void text_duration(int64_t us, struct buf *out)
{
	if (us < 10 * US_PER_MS)
		buf_addf(out, "%.1f ms", (double)us / US_PER_MS);
	else if (us < US_PER_S)
		buf_addf(out, "%.0f ms", (double)us / US_PER_MS);
	else
		buf_addf(out, "%.2f s", (double)us / US_PER_S);
}

void text_bytes(int64_t bytes, struct buf *out)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 1024 && unit + 1 < ARRAY_SIZE(units)) {
		value /= 1024;
		unit++;
	}
	buf_addf(out, unit && value < 100 ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

static const char *const inks[] = {
	[INK_PLAIN] = "",
	[INK_GOOD] = "\033[32m",
	[INK_BAD] = "\033[31m",
	[INK_WARN] = "\033[33m",
	[INK_DIM] = "\033[2m",
	[INK_BOLD] = "\033[1m",
};

void ink_add(const struct cli *cli, enum ink ink, struct str text, struct buf *out)
{
	bool on = cli->color && ink != INK_PLAIN;

	if (on)
		buf_add_str(out, str_from(inks[ink]));
	buf_add_str(out, text);
	if (on)
		buf_add_str(out, STR("\033[0m"));
}

enum ink verdict_ink(struct str verdict)
{
	enum verdict v;

	if (!verdict_parse(verdict, &v) || v == VERDICT_NONE)
		return INK_PLAIN;
	if (v == VERDICT_ACCEPTED)
		return INK_GOOD;
	return v == VERDICT_CANCELLED || v == VERDICT_SYSTEM_ERROR ? INK_WARN : INK_BAD;
}

/* --- tables ------------------------------------------------------------------------------------------------------------ */

void table_add(struct table *t, struct str cell)
{
	if (cell.n)
		text_safe(cell, false, &t->cells);
	else
		buf_add_char(&t->cells, '-');
	buf_add_char(&t->cells, '\0');
}

void table_addf(struct table *t, const char *fmt, ...)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;
	va_list ap;

	va_start(ap, fmt);
	buf_vaddf(&text, fmt, ap);
	va_end(ap);
	table_add(t, buf_str(&text));
}

/* Characters, not bytes. */
static size_t width_of(struct str cell)
{
	size_t n = 0;

	for (size_t i = 0; i < cell.n; i++)
		n += ((unsigned char)cell.p[i] & 0xc0) != 0x80;
	return n;
}

#define COLUMNS_MAX 12

static void measure(const struct table *t, size_t widths[COLUMNS_MAX])
{
	struct str rest = buf_str(&t->cells), cell;

	for (unsigned i = 0; str_cut(&rest, '\0', &cell); i++) {
		size_t width = width_of(cell);

		if (width > widths[i % t->columns])
			widths[i % t->columns] = width;
	}
}

void table_print(const struct cli *cli, const struct table *t, struct buf *out)
{
	struct str rest = buf_str(&t->cells), cell;
	size_t widths[COLUMNS_MAX] = {0};

	CHECK(t->columns && t->columns <= COLUMNS_MAX);
	measure(t, widths);
	for (unsigned i = 0; str_cut(&rest, '\0', &cell) && rest.p; i++) {
		unsigned column = i % t->columns;
		bool last = column + 1 == t->columns;

		ink_add(cli, i < t->columns ? INK_DIM : verdict_ink(cell), cell, out);
		for (size_t w = width_of(cell); !last && w < widths[column] + 2; w++)
			buf_add_char(out, ' ');
		if (last)
			buf_add_char(out, '\n');
	}
}

void table_fini(struct table *t)
{
	buf_fini(&t->cells);
}

int cli_list(struct cli *cli, const char *path, const char *name, const char *const *headings,
	unsigned columns, void (*row)(struct table *t, const struct json *item))
{
	const struct question question = {.method = "GET", .path = path};
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct table table = {.columns = columns};
	struct answer answer;
	const struct json *items;
	int rc = cli_ask(cli, &question, &answer);

	items = json_get(answer.json, name);
	if (rc) {
		rc = cli_explain(cli, &answer, rc);
	} else if (cli->json) {
		answer_print(cli, &answer);
	} else {
		for (unsigned i = 0; i < columns; i++)
			table_add(&table, str_from(headings[i]));
		for (const struct json *i = items ? items->first : NULL; i; i = i->next)
			row(&table, i);
		table_print(cli, &table, &text);
		cli_print(cli, &text);
	}
	table_fini(&table);
	answer_fini(&answer);
	return rc;
}

/* --- a task ------------------------------------------------------------------------------------------------------------ */

/* "limit cpu_ms: 1002 of 1000" */
static void add_limit(const struct json *limit, struct buf *out)
{
	struct str name = member(limit, "name");
	int64_t allowed = member_i64(limit, "allowed"), measured = member_i64(limit, "measured");
	bool bytes = name.n > 6 && str_is((struct str){name.p + name.n - 6, 6}, "_bytes");

	if (!name.n)
		return;
	buf_add_str(out, STR("limit "));
	text_safe(name, false, out);
	buf_addf(out, ": %lld measured, %lld allowed", (long long)measured, (long long)allowed);
	if (bytes) {
		buf_add_str(out, STR(" ("));
		text_bytes(allowed, out);
		buf_add_char(out, ')');
	}
}

static void add_part(struct buf *out, const char *separator, struct str part)
{
	if (out->len)
		buf_add_str(out, str_from(separator));
	buf_add_str(out, part);
}

/* How a run ended, beyond its verdict. */
static void add_end(const struct json *run, struct buf *out)
{
	struct str message = member(run, "message");
	int64_t code = member_i64(run, "exit_code"), sig = member_i64(run, "signal");
	struct buf part cleanup(buf_fini) = BUF_INIT;

	add_limit(json_get(run, "limit"), out);
	if (sig > 0)
		buf_addf(&part, "signal %lld (%s)", (long long)sig, strsignal((int)sig));
	else if (code != 0)
		buf_addf(&part, "exit code %lld", (long long)code);
	if (part.len)
		add_part(out, "; ", buf_str(&part));
	if (message.n)
		add_part(out, "; ", message);
}

static void add_usage(const struct json *run, struct table *t)
{
	static const char *const times[] = {"cpu_us", "wall_us"};
	struct buf text cleanup(buf_fini) = BUF_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		buf_clear(&text);
		text_duration(member_i64(run, times[i]), &text);
		table_add(t, buf_str(&text));
	}
	buf_clear(&text);
	text_bytes(member_i64(run, "memory_bytes"), &text);
	table_add(t, buf_str(&text));
}

static void add_run(struct table *t, const char *label, struct str verdict, const struct json *run)
{
	struct buf end cleanup(buf_fini) = BUF_INIT;

	table_addf(t, "%s", label);
	table_add(t, verdict);
	add_usage(run, t);
	add_end(run, &end);
	table_add(t, buf_str(&end));
}

static void render_runs(const struct cli *cli, const struct json *task, struct buf *out)
{
	static const char *const headings[] = {"", "verdict", "cpu", "wall", "memory", "remarks"};
	const struct json *compile = json_get(task, "compile"), *cases = json_get(task, "cases");
	struct table t = {.columns = ARRAY_SIZE(headings)};
	char label[32];

	for (size_t i = 0; i < ARRAY_SIZE(headings); i++)
		table_add(&t, str_from(i ? headings[i] : " "));
	if (compile && compile->type == JSON_OBJECT)
		add_run(&t, "compile",
			str_is(member(task, "verdict"), "compile_error") ? STR("compile_error")
									 : STR("ok"),
			compile);
	for (const struct json *c = cases ? cases->first : NULL; c; c = c->next) {
		snprintf(label, sizeof(label), "case %zu", c->index + 1);
		add_run(&t, label, member(c, "verdict"), c);
	}
	if ((compile && compile->type == JSON_OBJECT) || (cases && cases->count))
		table_print(cli, &t, out);
	table_fini(&t);
}

/* An output of a run, indented, with what was left out of it said. */
static void render_stream(const struct cli *cli, const struct json *run, const char *stream,
	const char *label, struct buf *out)
{
	struct buf raw cleanup(buf_fini) = BUF_INIT, safe cleanup(buf_fini) = BUF_INIT;
	struct buf key cleanup(buf_fini) = BUF_INIT, head cleanup(buf_fini) = BUF_INIT;
	struct str rest, line;

	if (!text_of(json_get(run, stream), &raw) || !raw.len)
		return;
	buf_addf(&key, "%s_truncated", stream);
	buf_addf(&head, "%s %s%s:", label, stream,
		member_is_true(run, key.data) ? " (its middle is left out)" : "");
	ink_add(cli, INK_DIM, buf_str(&head), out);
	buf_add_char(out, '\n');
	text_safe(buf_str(&raw), true, &safe);
	rest = buf_str(&safe);
	while (str_cut(&rest, '\n', &line))
		if (line.n || rest.p)
			buf_addf(out, "  " STR_FMT "\n", STR_ARG(line));
}

static void render_outputs(
	const struct cli *cli, const struct json *task, bool output, struct buf *out)
{
	const struct json *compile = json_get(task, "compile"), *cases = json_get(task, "cases");
	size_t n = cases ? cases->count : 0;
	char label[32];

	render_stream(cli, compile, "stdout", "compiler", out);
	render_stream(cli, compile, "stderr", "compiler", out);
	for (const struct json *c = n == 1 || output ? (cases ? cases->first : NULL) : NULL; c;
		c = c->next) {
		snprintf(label, sizeof(label), n == 1 ? "program" : "case %zu", c->index + 1);
		render_stream(cli, c, "stdout", label, out);
		render_stream(cli, c, "stderr", label, out);
	}
}

/* What is known about it, a line each; unknown ones are left out. */
static void render_facts(const struct json *task, struct buf *out)
{
	static const char *const facts[] = {"language", "user", "priority", "executor", "retries",
		"add_time", "start_time", "done_time", "isolation", "message"};

	for (size_t i = 0; i < ARRAY_SIZE(facts); i++) {
		struct str value = member(task, facts[i]);

		if (!value.n || str_is(value, "0") ||
			(strcmp(facts[i], "isolation") == 0 && str_is(value, "full")))
			continue;
		buf_addf(out, "  %-11s ", facts[i]);
		text_safe(value, false, out);
		buf_add_char(out, '\n');
	}
	if (member_i64(task, "max_score") > 0)
		buf_addf(out, "  %-11s %lld of %lld\n", "score",
			(long long)member_i64(task, "score"),
			(long long)member_i64(task, "max_score"));
}

void render_task(const struct cli *cli, const struct json *task, bool output, struct buf *out)
{
	struct str verdict = member(task, "verdict"), status = member(task, "status");
	struct buf word cleanup(buf_fini) = BUF_INIT;

	text_safe(verdict.n ? verdict : status, false, &word);
	ink_add(cli, verdict_ink(verdict), buf_str(&word), out);
	buf_add_str(out, STR("  "));
	text_safe(member(task, "id"), false, out);
	buf_add_char(out, '\n');
	render_facts(task, out);
	render_runs(cli, task, out);
	render_outputs(cli, task, output, out);
}
