/* SPDX-License-Identifier: Apache-2.0 */
/*
 * body - a submission out of files and flags.
 *
 * First the program is settled (struct program): which files, which language, which commands. Then the JSON is written from it, in the
 * full form; what is larger than UPLOAD_MIN is uploaded meanwhile, and referred to. What a field means and may be is the gateway's to judge; here only what it cannot know is refused: files that cannot be
 * read, and arguments that say two things.
 *
 *   one file, a language     compile.source; the language by --language, else by the file's extension
 *   a directory, a language  compile.files; the language's own source file name must be there, or exactly one file at the top that
 *                            some language's extension fits: it is sent under the name the language wants
 *   --command, no language   raw: the files beside the command, or with --compile-command compiled first
 */
#include "roles/cli/cli_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reactor/base/clock.h"
#include "reactor/base/list.h"
#include "reactor/base/mem.h"
#include "rpc/blob.h"

#define FILE_MAX                                                                                   \
	((size_t)256 << 20) /* what a gateway takes as a blob, unless it is told otherwise */
#define TOTAL_MAX ((size_t)256 << 20) /* files of a phase have no more */
#define UPLOAD_MIN ((size_t)1 << 20)  /* what is larger is uploaded as a blob of its own */
#define UPLOAD_TIMEOUT_US (600 * US_PER_S)
#define FILES_MAX 1000
#define DEPTH_MAX 16

struct source {
	struct list link;
	char *name; /* relative, as it is sent */
	struct buf content;
	bool executable;
};

struct program {
	struct cli *cli;
	const struct json *languages; /* the list */
	const struct json *language;  /* the item, or NULL = raw */
	const char *command, *compile_command;
	struct list files; /* of struct source */
	size_t n_files, total;
	bool single; /* one file was named, not a directory */
};

/* --- reading ------------------------------------------------------------------------------------------------------------ */

static int read_stream(const struct cli *cli, FILE *file, const char *name, struct buf *out)
{
	size_t n;

	buf_add_str(out, STR(""));
	do {
		n = fread(buf_reserve(out, 65536), 1, 65536, file);
		out->len += n;
		if (out->len > FILE_MAX)
			return cli_fail(cli, CLI_USAGE, "%s: over %zu MiB; that is too large", name,
				FILE_MAX >> 20);
	} while (n > 0);
	if (ferror(file))
		return cli_fail(cli, CLI_USAGE, "%s: %s", name, strerror(errno));
	return 0;
}

/* FILE, or "-" for standard input. */
static int read_file(const struct cli *cli, const char *path, struct buf *out)
{
	struct stat st;
	FILE *file;
	int rc;

	if (strcmp(path, "-") == 0)
		return read_stream(cli, cli->env->in, "standard input", out);
	file = fopen(path, "re");
	if (!file)
		return cli_fail(cli, CLI_USAGE, "%s: %s", path, strerror(errno));
	if (fstat(fileno(file), &st) == 0 && S_ISDIR(st.st_mode))
		rc = cli_fail(cli, CLI_USAGE, "%s: is a directory", path);
	else
		rc = read_stream(cli, file, path, out);
	fclose(file);
	return rc;
}

static int add_file(struct program *p, const char *path, const char *name, bool executable)
{
	struct source *s;
	int rc;

	if (!str_is_utf8(str_from(name)))
		return cli_fail(p->cli, CLI_USAGE, "%s: file names must be UTF-8", path);
	if (p->n_files == FILES_MAX)
		return cli_fail(p->cli, CLI_USAGE,
			"%s: more than %d files; submit a smaller directory", path, FILES_MAX);
	s = mem_alloc(sizeof(*s));
	s->name = mem_strdup(name);
	s->executable = executable;
	list_add_tail(&p->files, &s->link);
	p->n_files++;
	rc = read_file(p->cli, path, &s->content);
	p->total += s->content.len;
	if (!rc && p->total > TOTAL_MAX)
		rc = cli_fail(p->cli, CLI_USAGE, "%s: over %zu MiB in all", path, TOTAL_MAX >> 20);
	return rc;
}

static int add_directory(struct program *p, const char *path, const char *prefix, unsigned depth);

static int add_entry(
	struct program *p, const char *path, const char *prefix, const char *entry, unsigned depth)
{
	char *full cleanup(mem_freep) = mem_printf("%s/%s", path, entry);
	char *name cleanup(mem_freep) = mem_printf("%s%s", prefix, entry);
	struct stat st;

	if (stat(full, &st) != 0)
		return cli_fail(p->cli, CLI_USAGE, "%s: %s", full, strerror(errno));
	if (S_ISDIR(st.st_mode)) {
		char *inner cleanup(mem_freep) = mem_printf("%s/", name);

		return add_directory(p, full, inner, depth + 1);
	}
	if (!S_ISREG(st.st_mode))
		return cli_fail(p->cli, CLI_USAGE, "%s: neither a file nor a directory", full);
	return add_file(p, full, name, st.st_mode & S_IXUSR);
}

static int is_shown(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* In the order of the names; what begins with a dot (.git) stays at home. */
static int add_directory(struct program *p, const char *path, const char *prefix, unsigned depth)
{
	struct dirent **entries = NULL;
	int n, rc = 0;

	if (depth > DEPTH_MAX)
		return cli_fail(
			p->cli, CLI_USAGE, "%s: more than %d directories deep", path, DEPTH_MAX);
	n = scandir(path, &entries, is_shown, alphasort);
	if (n < 0)
		return cli_fail(p->cli, CLI_USAGE, "%s: %s", path, strerror(errno));
	for (int i = 0; i < n; i++) {
		if (!rc)
			rc = add_entry(p, path, prefix, entries[i]->d_name, depth);
		free(entries[i]);
	}
	free(entries);
	return rc;
}

/* --- the language ---------------------------------------------------------------------------------------------------------- */

static bool has_extension(const struct json *language, const char *name)
{
	const struct json *list = json_get(language, "extensions");
	const char *base = strrchr(name, '/'), *dot = strrchr(base ? base : name, '.');

	for (const struct json *e = list && dot ? list->first : NULL; e; e = e->next)
		if (str_is(e->text, dot + 1))
			return true;
	return false;
}

static const struct json *language_for(const struct program *p, const char *name)
{
	for (const struct json *l = p->languages->first; l; l = l->next)
		if (has_extension(l, name))
			return l;
	return NULL;
}

static const struct json *language_named(const struct program *p, const char *name)
{
	for (const struct json *l = p->languages->first; l; l = l->next)
		if (str_is(member(l, "name"), name))
			return l;
	return NULL;
}

static void name_all(const struct program *p, struct buf *out)
{
	for (const struct json *l = p->languages->first; l; l = l->next) {
		buf_add_str(out, out->len ? STR(" ") : STR(""));
		text_safe(member(l, "name"), false, out);
	}
}

static int refuse_language(const struct program *p, const char *what, const char *why)
{
	struct buf names cleanup(buf_fini) = BUF_INIT;

	buf_add_str(&names, STR(""));
	name_all(p, &names);
	return cli_fail(p->cli, CLI_USAGE, "%s: %s; give --language (%s) or --command", what, why,
		names.data);
}

static struct source *file_named(const struct program *p, struct str name)
{
	list_each (it, &p->files) {
		struct source *s = list_entry(it, struct source, link);

		if (str_is(name, s->name))
			return s;
	}
	return NULL;
}

/* The one file at the top that fits `language` (NULL: any language). NULL with *n of them otherwise. */
static struct source *only_source(const struct program *p, const struct json *language, unsigned *n)
{
	struct source *found = NULL;

	*n = 0;
	list_each (it, &p->files) {
		struct source *s = list_entry(it, struct source, link);

		if (strchr(s->name, '/'))
			continue;
		if (language ? has_extension(language, s->name)
			     : language_for(p, s->name) != NULL) {
			found = s;
			++*n;
		}
	}
	return *n == 1 ? found : NULL;
}

static void rename_source(struct source *s, struct str name)
{
	free(s->name);
	s->name = str_dup(name);
}

/* A directory's main source: what some language calls it, or the only one there is. */
static int find_main(struct program *p, const char *path)
{
	struct source *s;
	unsigned n = 0;

	for (const struct json *l = p->languages->first; l && !p->language; l = l->next) {
		if (file_named(p, member(l, "source"))) {
			n++;
			p->language = n == 1 ? l : NULL;
		}
	}
	for (const struct json *l = p->language ? p->language->next : NULL; l; l = l->next)
		n += file_named(p, member(l, "source")) != NULL;
	if (n > 1)
		return refuse_language(p, path, "sources of several languages in it");
	if (p->language)
		return 0;
	s = only_source(p, NULL, &n);
	if (!s)
		return refuse_language(p, path,
			n ? "several sources in it, and none is named main"
			  : "no source of a known language in it");
	p->language = language_for(p, s->name);
	rename_source(s, member(p->language, "source"));
	return 0;
}

/* --language is given: the directory must hold its source under its name. */
static int find_source(struct program *p, const char *path)
{
	struct str name = member(p->language, "source");
	struct source *s;
	unsigned n;

	if (file_named(p, name) || p->compile_command)
		return 0;
	s = only_source(p, p->language, &n);
	if (!s)
		return cli_fail(p->cli, CLI_USAGE, "%s: name its main source " STR_FMT, path,
			STR_ARG(name));
	rename_source(s, name);
	return 0;
}

static int choose_language(struct program *p, const char *path)
{
	const char *name = cli_value(p->cli, "--language");

	if (name) {
		p->language = language_named(p, name);
		if (!p->language)
			return refuse_language(p, name, "no such language");
		return p->single ? 0 : find_source(p, path);
	}
	if (p->command)
		return 0;
	if (!p->single)
		return find_main(p, path);
	if (strcmp(path, "-") != 0)
		p->language = language_for(p, path);
	return p->language ? 0
			   : refuse_language(p, path,
				     strcmp(path, "-") == 0 ? "standard input has no extension"
							    : "no language has this extension");
}

static int load_program(struct program *p, const char *path)
{
	const char *base = strrchr(path, '/');
	struct stat st = {0};
	int rc;

	if (strcmp(path, "-") != 0 && stat(path, &st) != 0)
		return cli_fail(p->cli, CLI_USAGE, "%s: %s", path, strerror(errno));
	p->single = !S_ISDIR(st.st_mode);
	if (p->single)
		rc = add_file(p, path,
			strcmp(path, "-") == 0 ? "stdin"
			: base                 ? base + 1
					       : path,
			st.st_mode & S_IXUSR);
	else
		rc = add_directory(p, path, "", 0);
	if (!rc && !p->n_files)
		rc = cli_fail(p->cli, CLI_USAGE, "%s: no file in it", path);
	return rc ? rc : choose_language(p, path);
}

/* --- limits and the checker ---------------------------------------------------------------------------------------------------- */

static const struct {
	const char *suffix, *unit;
	int64_t factor;
} units[] = {
	{"_bytes", "B", 1},
	{"_bytes", "KiB", INT64_C(1) << 10},
	{"_bytes", "MiB", INT64_C(1) << 20},
	{"_bytes", "GiB", INT64_C(1) << 30},
	{"_ms", "ms", 1},
	{"_ms", "s", 1000},
};

static bool ends_in(struct str s, const char *end)
{
	size_t n = strlen(end);

	return s.n >= n && memcmp(s.p + s.n - n, end, n) == 0;
}

bool limit_value(struct str name, struct str text, int64_t *out)
{
	size_t digits = 0;
	int64_t value;

	while (digits < text.n && text.p[digits] >= '0' && text.p[digits] <= '9')
		digits++;
	if (!str_to_i64((struct str){text.p, digits}, &value))
		return false;
	struct str unit = {text.p + digits, text.n - digits};

	if (!unit.n) {
		*out = value;
		return true;
	}
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (ends_in(name, units[i].suffix) && str_is(unit, units[i].unit))
			return !__builtin_mul_overflow(value, units[i].factor, out);
	return false;
}

#define COMPILE_PREFIX "compile."

/* --limit NAME=VALUE of one phase. */
static int write_limits(const struct cli *cli, bool compile, struct json_writer *w)
{
	const char *given;

	json_key(w, "limits");
	json_begin_object(w);
	for (size_t i = 0; (given = cli_value_at(cli, "--limit", i)); i++) {
		struct str text = str_from(given), name;
		size_t prefix = strlen(COMPILE_PREFIX);
		int64_t value;

		if (!str_cut(&text, '=', &name) || !text.p)
			text = STR("");
		bool is_compile = name.n > prefix && memcmp(name.p, COMPILE_PREFIX, prefix) == 0;

		if (is_compile)
			name = (struct str){name.p + prefix, name.n - prefix};
		if (!limit_value(name, text, &value))
			return cli_fail(cli, CLI_USAGE,
				"--limit %s: write NAME=NUMBER, like cpu_ms=1000, wall_ms=5s, "
				"memory_bytes=256MiB; compile.NAME is for the compiler",
				given);
		if (is_compile != compile)
			continue;
		json_key_str(w, name);
		json_int(w, value);
	}
	json_end_object(w);
	return 0;
}

/* KIND[,NAME=NUMBER ...] */
static int write_checker(const struct cli *cli, struct json_writer *w)
{
	const char *given = cli_value(cli, "--checker");
	struct str rest = str_from(given), part;
	bool first = true;

	if (!given)
		return 0;
	json_key(w, "checker");
	json_begin_object(w);
	for (; str_cut(&rest, ',', &part); first = false) {
		struct str name;
		char *number cleanup(mem_freep) = NULL, *end;
		double value;

		if (first) {
			json_key(w, "kind");
			json_bytes(w, part);
			continue;
		}
		str_cut(&part, '=', &name);
		number = part.p ? str_dup(part) : mem_strdup("");
		value = strtod(number, &end);
		if (!name.n || end == number || *end)
			return cli_fail(cli, CLI_USAGE,
				"--checker %s: write KIND or KIND,NAME=NUMBER, like "
				"float,abs=1e-6",
				given);
		json_key_str(w, name);
		json_number(w, value);
	}
	json_end_object(w);
	return 0;
}

/* --- contents ------------------------------------------------------------------------------------------------------------- */

static void name_bytes(struct str bytes, char name[BLOB_NAME_LEN + 1])
{
	struct blob_hash *hash = blob_hash_new();

	blob_hash_add(hash, bytes);
	blob_hash_end(hash, name);
	blob_hash_free(hash);
}

static int upload(struct cli *cli, struct str bytes, const char *name)
{
	char *path cleanup(mem_freep) = mem_printf("/api/v1/blobs/%s", name);
	const struct question question = {
		.method = "PUT",
		.path = path,
		.body = bytes,
		.type = "application/octet-stream",
		.timeout_us = UPLOAD_TIMEOUT_US,
	};
	struct answer answer;
	int rc = cli_ask(cli, &question, &answer);

	rc = rc ? cli_explain(cli, &answer, rc) : 0;
	answer_fini(&answer);
	return rc;
}

/* The value of a content: itself, or when it is large a reference to what has just been uploaded. */
static int write_bytes(struct cli *cli, struct str bytes, struct json_writer *w)
{
	char name[BLOB_NAME_LEN + 1];
	int rc;

	if (bytes.n <= UPLOAD_MIN) {
		json_bytes(w, bytes);
		return 0;
	}
	name_bytes(bytes, name);
	rc = upload(cli, bytes, name);
	if (rc)
		return rc;
	json_begin_object(w);
	json_key(w, "blob");
	json_text(w, name);
	json_end_object(w);
	return 0;
}

/* --- writing -------------------------------------------------------------------------------------------------------------- */

static int write_files(const struct program *p, struct json_writer *w)
{
	int rc = 0;

	json_key(w, "files");
	json_begin_array(w);
	list_each (it, &p->files) {
		const struct source *s = list_entry(it, struct source, link);

		if (rc)
			break;
		json_begin_object(w);
		json_key(w, "name");
		json_text(w, s->name);
		json_key(w, "content");
		rc = write_bytes(p->cli, buf_str(&s->content), w);
		if (s->executable) {
			json_key(w, "executable");
			json_bool(w, true);
		}
		json_end_object(w);
	}
	json_end_array(w);
	return rc;
}

static bool is_compiled(const struct program *p)
{
	return p->language || p->compile_command;
}

static int write_compile(const struct program *p, struct json_writer *w)
{
	int rc = 0;

	json_key(w, "compile");
	json_begin_object(w);
	if (p->language && p->single) {
		json_key(w, "source");
		rc = write_bytes(p->cli,
			buf_str(&list_entry(p->files.next, struct source, link)->content), w);
	} else if (is_compiled(p)) {
		rc = write_files(p, w);
	}
	if (p->compile_command) {
		json_key(w, "command");
		json_text(w, p->compile_command);
	}
	if (!rc)
		rc = write_limits(p->cli, true, w);
	json_end_object(w);
	return rc;
}

static int write_content(struct cli *cli, struct json_writer *w, const char *key, const char *path)
{
	struct buf content cleanup(buf_fini) = BUF_INIT;
	int rc;

	if (!path || !*path)
		return 0;
	rc = read_file(cli, path, &content);
	if (rc)
		return rc;
	json_key(w, key);
	return write_bytes(cli, buf_str(&content), w);
}

static int write_execute(const struct program *p, struct json_writer *w)
{
	int rc = 0;

	json_key(w, "execute");
	json_begin_object(w);
	if (p->command) {
		json_key(w, "command");
		json_text(w, p->command);
	}
	if (!is_compiled(p))
		rc = write_files(p, w);
	if (!rc)
		rc = write_content(p->cli, w, "input", cli_value(p->cli, "--input"));
	if (!rc)
		rc = write_content(p->cli, w, "expected", cli_value(p->cli, "--expect"));
	if (!rc)
		rc = write_limits(p->cli, false, w);
	json_end_object(w);
	return rc;
}

/* IN:OUT, either may be empty; the last colon counts. */
static int write_case(struct cli *cli, const char *given, struct json_writer *w)
{
	const char *colon = strrchr(given, ':');
	char *input cleanup(mem_freep) = NULL;
	int rc;

	if (!colon)
		return cli_fail(cli, CLI_USAGE,
			"--case %s: write IN:OUT, two files (OUT empty: any output is right)",
			given);
	input = mem_dup(given, (size_t)(colon - given));
	json_begin_object(w);
	rc = write_content(cli, w, "input", input);
	if (!rc)
		rc = write_content(cli, w, "expected", colon + 1);
	json_end_object(w);
	return rc;
}

static int write_cases(struct cli *cli, struct json_writer *w)
{
	const char *given;
	int rc = 0;

	if (!cli_has(cli, "--case"))
		return 0;
	if (cli_has(cli, "--input") || cli_has(cli, "--expect"))
		return cli_fail(cli, CLI_USAGE,
			"either --case, or --input and --expect: write them as one --case IN:OUT");
	json_key(w, "cases");
	json_begin_array(w);
	for (size_t i = 0; !rc && (given = cli_value_at(cli, "--case", i)); i++)
		rc = write_case(cli, given, w);
	json_end_array(w);
	return rc;
}

static int write_options(const struct cli *cli, struct json_writer *w)
{
	const char *user = cli_value(cli, "--user"), *priority = cli_value(cli, "--priority");
	const char *label;
	int64_t number;

	if (user) {
		json_key(w, "user");
		json_text(w, user);
	}
	if (priority) {
		if (!str_to_i64(str_from(priority), &number))
			return cli_fail(cli, CLI_USAGE, "--priority %s: a whole number", priority);
		json_key(w, "priority");
		json_int(w, number);
	}
	if (cli_has(cli, "--label")) {
		json_key(w, "labels");
		json_begin_array(w);
		for (size_t i = 0; (label = cli_value_at(cli, "--label", i)); i++)
			json_text(w, label);
		json_end_array(w);
	}
	if (cli_has(cli, "--stop-on-failure")) {
		json_key(w, "stop_on_failure");
		json_bool(w, true);
	}
	return write_checker(cli, w);
}

static int write_task(const struct program *p, struct json_writer *w)
{
	int rc;

	json_begin_object(w);
	json_key(w, "language");
	json_bytes(w, p->language ? member(p->language, "name") : STR_NULL);
	rc = write_compile(p, w);
	if (!rc)
		rc = write_execute(p, w);
	if (!rc)
		rc = write_cases(p->cli, w);
	if (!rc)
		rc = write_options(p->cli, w);
	json_end_object(w);
	return rc;
}

static void program_fini(struct program *p)
{
	list_each_safe (it, &p->files) {
		struct source *s = list_entry(it, struct source, link);

		buf_fini(&s->content);
		free(s->name);
		free(s);
	}
}

/* At most one of the things may be standard input. */
static int check_stdin(const struct cli *cli)
{
	const char *input = cli_value(cli, "--input"), *expect = cli_value(cli, "--expect");
	unsigned n = strcmp(cli->args.words[0], "-") == 0;

	n += input && strcmp(input, "-") == 0;
	n += expect && strcmp(expect, "-") == 0;
	if (n > 1)
		return cli_fail(cli, CLI_USAGE, "only one of FILE, --input and --expect can be -");
	return 0;
}

/* Nobody would tell who waits for its verdict. A list without executors says nothing about them. */
static void warn_unoffered(const struct program *p)
{
	const struct json *executors = json_get(p->language, "executors");
	struct str name = member(p->language, "name");

	if (executors && !executors->first)
		cli_fail(p->cli, 0,
			"no executor offers " STR_FMT
			" now: the task waits until one does; on its machine, conclave "
			"doctor says what is missing",
			STR_ARG(name));
}

int submit_body(struct cli *cli, const struct json *languages, struct buf *out)
{
	struct program p = {
		.cli = cli,
		.languages = json_get(languages, "languages"),
		.command = cli_value(cli, "--command"),
		.compile_command = cli_value(cli, "--compile-command"),
	};
	struct json_writer *w;
	int rc = check_stdin(cli);

	if (rc)
		return rc;
	if (!p.languages)
		return cli_fail(cli, CLI_UNREACHABLE, "%s: answers without a list of languages",
			cli_url(cli));
	list_init(&p.files);
	rc = load_program(&p, cli->args.words[0]);
	if (!rc) {
		warn_unoffered(&p);
		w = json_writer_new(out, false);
		rc = write_task(&p, w);
		json_writer_free(w);
	}
	program_fini(&p);
	return rc;
}
