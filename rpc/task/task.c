/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A submission becomes a task in three moves: what is not supported yet is looked for in the tree and refused by
 * name; the codec decodes by the rows of fields.def (types, ranges, unknown fields); then the steps below, in their order,
 * give it one shape and check what it means. The first thing wrong ends it.
 *
 * The normalised shape: the short form's fields are absent; compile, execute and checker are there; input and expected
 * stand in cases only. task_write() of it and the same steps again give the same text, so the stored document is
 * read by this very parser.
 */
#include "rpc/task/task.h"

#include <errno.h>
#include <stdio.h>

#include "proc/box/bundle.h"
#include "reactor/base/map.h"
#include "rpc/blob.h"
#include "rpc/task/archive.h"
#include "rpc/text.h"

struct norm {
	struct record *record;
	struct task *task;
	const struct map *languages;
	struct problem *problem;
	bool is_stored; /* it has been checked when it came in */
};

#define refuse(n, status, code, pointer, ...)                                                      \
	(problem_set((n)->problem, status, code, pointer, __VA_ARGS__), false)

/* --- the short form ---------------------------------------------------------------------------- */

static bool both_forms(struct norm *n, const char *pointer, const char *other)
{
	return refuse(n, 400, "both_forms", pointer, "stands for `%s`, which is given too", other);
}

/* *at: where the client wrote it. */
static bool merge_content(struct norm *n, struct content *from, struct content *to,
	const char *pointer, const char *other, const char **at)
{
	if (content_is_absent(from))
		return true;
	if (!content_is_absent(to))
		return both_forms(n, pointer, other);
	*to = *from;
	*from = (struct content){STR_NULL, STR_NULL};
	*at = pointer;
	return true;
}

static bool merge_short_form(struct norm *n)
{
	struct task *t = n->task;

	if (!t->compile)
		t->compile = record_alloc(n->record, sizeof(*t->compile));
	if (!t->execute)
		t->execute = record_alloc(n->record, sizeof(*t->execute));
	t->at.source = "/compile/source";
	t->at.input = "/execute/input";
	t->at.expected = "/execute/expected";
	if (!merge_content(n, &t->source, &t->compile->source, "/source", "compile.source",
		    &t->at.source) ||
		!merge_content(n, &t->input, &t->execute->input, "/input", "execute.input",
			&t->at.input) ||
		!merge_content(n, &t->expected, &t->execute->expected, "/expected",
			"execute.expected", &t->at.expected))
		return false;
	if (t->limits && t->execute->limits)
		return both_forms(n, "/limits", "execute.limits");
	if (t->limits)
		t->execute->limits = t->limits;
	t->limits = NULL;
	return true;
}

/* --- identity ---------------------------------------------------------------------------------- */

static bool check_identity(struct norm *n)
{
	struct task *t = n->task;
	char pointer[32];

	if (t->user.n == 0)
		t->user = STR_NULL;
	if (!text_is_printable(t->user))
		return refuse(
			n, 422, "not_printable", "/user", "must not contain control characters");
	for (size_t i = 0; i < t->labels.count; i++) {
		struct str label = *codec_item(t->labels, struct str, i);

		snprintf(pointer, sizeof(pointer), "/labels/%zu", i);
		if (label.n == 0 || label.n > TASK_LABEL_MAX)
			return refuse(n, 422, "out_of_range", pointer,
				"must be between 1 and %d bytes long", TASK_LABEL_MAX);
		if (!text_is_printable(label))
			return refuse(n, 422, "not_printable", pointer,
				"must not contain control characters");
	}
	return true;
}

static bool unknown_language(struct norm *n)
{
	struct buf known cleanup(buf_fini) = BUF_INIT;
	char name[2 * TASK_LANGUAGE_MAX];

	text_escape(n->task->language, name, sizeof(name));
	if (n->languages) {
		map_each (it, n->languages)
			buf_addf(&known, "%s%s", known.len ? ", " : "; there are ",
				map_entry_of(it)->key);
	}
	return refuse(n, 422, "unknown_language", "/language",
		"there is no language \"%s\"" STR_FMT, name, STR_ARG(buf_str(&known)));
}

static bool check_language(struct norm *n)
{
	struct str language = n->task->language;

	if (!language.p)
		return true;
	if (n->languages ? !map_get(n->languages, language)
			 : !language.n || str_is(language, LANGUAGE_RAW))
		return unknown_language(n);
	return true;
}

/* --- what is compiled and run ------------------------------------------------------------------ */

static bool check_command(struct norm *n, const struct codec_list *command, const char *pointer)
{
	size_t bytes = 0;

	if (!command->items)
		return true;
	if (command->count == 0 || codec_item(*command, struct str, 0)->n == 0)
		return refuse(n, 422, "empty_command", pointer, "must name a program");
	for (size_t i = 0; i < command->count; i++)
		bytes += codec_item(*command, struct str, i)->n + 1;
	if (bytes > TASK_ARGV_BYTES_MAX)
		return refuse(n, 422, "out_of_range", pointer, "must be at most %d bytes in all",
			TASK_ARGV_BYTES_MAX);
	return true;
}

static bool check_commands(struct norm *n)
{
	return check_command(n, &n->task->compile->command, "/compile/command") &&
	       check_command(n, &n->task->execute->command, "/execute/command");
}

static bool check_program(struct norm *n)
{
	const struct task *t = n->task;
	bool has_archive = !content_is_absent(&t->compile->archive);
	bool has_source = !content_is_absent(&t->compile->source);
	bool has_files = t->compile->files.count || has_archive;

	if (has_source && has_files)
		return refuse(n, 400, "both_forms",
			has_archive ? "/compile/archive" : "/compile/files",
			"give either the source or files, not both");
	if (t->language.p) {
		if (!has_source && !has_files)
			return refuse(n, 422, "missing_source", "/source",
				"a language needs `source`, `compile.files` or "
				"`compile.archive`");
		return true;
	}
	if (has_source)
		return refuse(n, 422, "missing_language", "/language",
			"`source` needs a language; without one give `compile.files`");
	if (!t->execute->command.count)
		return refuse(n, 422, "missing_command", "/execute/command",
			"without a language `execute.command` says what to run");
	if (t->compile->command.count && !has_files)
		return refuse(n, 422, "missing_files", "/compile/files",
			"`compile.command` needs files to compile");
	return true;
}

/* --- files ------------------------------------------------------------------------------------- */

/* No name may be there twice, nor be a directory of another. */
static bool name_is_taken(const struct map *names, struct str name)
{
	for (size_t i = 0; i < name.n; i++) {
		if (name.p[i] == '/' && map_get(names, (struct str){name.p, i}))
			return true;
	}
	return false;
}

static bool check_names(
	struct norm *n, const struct codec_list *files, const char *where, struct map *names)
{
	char pointer[64];

	for (size_t i = 0; i < files->count; i++) {
		struct task_file *file = codec_item(*files, struct task_file, i);

		snprintf(pointer, sizeof(pointer), "%s/%zu/name", where, i);
		if (!bundle_name_is_valid(file->name))
			return refuse(n, 422, "bad_file_name", pointer,
				"must be a relative path without `.` and `..`, at most %d bytes "
				"and %d "
				"components",
				BUNDLE_NAME_MAX, BUNDLE_DEPTH_MAX);
		if (map_set(names, file->name, file))
			return refuse(
				n, 422, "duplicate_file", pointer, "another file has this name");
	}
	for (size_t i = 0; i < files->count; i++) {
		snprintf(pointer, sizeof(pointer), "%s/%zu/name", where, i);
		if (name_is_taken(names, codec_item(*files, struct task_file, i)->name))
			return refuse(n, 422, "duplicate_file", pointer,
				"a directory of this path is a file of the list");
	}
	return true;
}

static bool check_list_of_files(struct norm *n, const struct codec_list *files, const char *where)
{
	struct map names;
	bool good;

	map_init(&names);
	good = check_names(n, files, where, &names);
	map_fini(&names);
	return good;
}

/* One that is a blob is looked into where it is unpacked. */
static bool check_archive(struct norm *n, const struct content *archive,
	const struct codec_list *files, const char *where, const char *other)
{
	struct str bytes = archive->bytes;
	char why[ARCHIVE_WHY_MAX];

	if (content_is_absent(archive))
		return true;
	if (files->count)
		return both_forms(n, where, other);
	if (n->is_stored || !bytes.p || archive_check(bytes, why) == 0)
		return true;
	return refuse(n, 422, "bad_archive", where, "%s%s", why,
		bytes.n > 2 && memcmp(bytes.p, "UE", 2) == 0
			? ": base64 is given as {\"base64\": \"...\"}"
			: "");
}

static bool check_files(struct norm *n)
{
	const struct task_compile *compile = n->task->compile;
	const struct task_execute *execute = n->task->execute;

	return check_list_of_files(n, &compile->files, "/compile/files") &&
	       check_list_of_files(n, &execute->files, "/execute/files") &&
	       check_archive(n, &compile->archive, &compile->files, "/compile/archive",
		       "compile.files") &&
	       check_archive(
		       n, &execute->archive, &execute->files, "/execute/archive", "execute.files");
}

/* --- cases and checker ------------------------------------------------------------------------- */

static bool make_cases(struct norm *n)
{
	struct task *t = n->task;
	struct task_execute *e = t->execute;
	struct task_case *only;

	t->at.is_only_case = !t->cases.count;
	if (t->cases.count) {
		if (!content_is_absent(&e->input) || !content_is_absent(&e->expected))
			return refuse(n, 400, "both_forms", "/cases",
				"give either `cases` or the input and expected output of the only "
				"one");
		return true;
	}
	only = record_alloc(n->record, sizeof(*only));
	*only = (struct task_case){.input = e->input, .expected = e->expected, .points = 1};
	e->input = e->expected = (struct content){STR_NULL, STR_NULL};
	t->cases = (struct codec_list){only, 1};
	return true;
}

static bool check_tolerance(struct norm *n, enum checker_kind kind)
{
	struct task_checker *c = n->task->checker;

	if (kind != CHECKER_FLOAT && (c->abs >= 0 || c->rel >= 0))
		return refuse(n, 422, "not_for_checker",
			c->abs >= 0 ? "/checker/abs" : "/checker/rel",
			"is for the checker `float` only");
	if (kind == CHECKER_FLOAT && c->abs < 0)
		c->abs = CHECKER_TOLERANCE;
	if (kind == CHECKER_FLOAT && c->rel < 0)
		c->rel = CHECKER_TOLERANCE;
	return true;
}

static bool check_checker(struct norm *n)
{
	struct task *t = n->task;
	enum checker_kind kind = CHECKER_LINES;

	if (!t->checker) {
		t->checker = record_alloc(n->record, sizeof(*t->checker));
		t->checker->abs = t->checker->rel = -1;
	} else if (!checker_parse(t->checker->kind, &kind)) {
		return refuse(n, 422, "unknown_checker", "/checker/kind",
			"must be lines, exact, tokens or float");
	}
	t->checker->kind = str_from(checker_name(kind));
	return check_tolerance(n, kind);
}

/* --- size -------------------------------------------------------------------------------------- */

/* Bytes of s in JSON, at most: control characters take six each, so 48 MiB of NULs given as base64 become 288. */
static size_t written_size(const struct content *content)
{
	struct str s = content->bytes;
	size_t escapes = 0;

	if (content->blob.p)
		return BLOB_NAME_LEN + 16;
	if (!str_is_utf8(s))
		return s.n / 3 * 4 + 20;
	for (size_t i = 0; i < s.n; i++)
		escapes += (unsigned char)s.p[i] < 0x20 ? 5 : s.p[i] == '"' || s.p[i] == '\\';
	return s.n + escapes + 2;
}

static size_t written_files(const struct codec_list *files)
{
	size_t bytes = 0;

	for (size_t i = 0; i < files->count; i++)
		bytes += written_size(&codec_item(*files, struct task_file, i)->content);
	return bytes;
}

/* The document goes to the store and to executors in one message, so it must not outgrow one. */
static bool check_size(struct norm *n)
{
	const struct task *t = n->task;
	size_t bytes = written_size(&t->compile->source) + written_size(&t->compile->archive) +
		       written_size(&t->execute->archive) + written_files(&t->compile->files) +
		       written_files(&t->execute->files);

	for (size_t i = 0; i < t->cases.count; i++) {
		const struct task_case *one = codec_item(t->cases, struct task_case, i);

		bytes += written_size(&one->input) + written_size(&one->expected);
	}
	if (bytes > TASK_WRITTEN_MAX)
		return refuse(n, 413, "too_large", "",
			"its content takes more than %d MiB when written as JSON",
			TASK_WRITTEN_MAX >> 20);
	return true;
}

/* --- the whole --------------------------------------------------------------------------------- */

typedef bool step_fn(struct norm *n);

static step_fn *const STEPS[] = {
	merge_short_form,
	check_identity,
	check_language,
	check_commands,
	check_program,
	check_files,
	make_cases,
	check_checker,
	check_size,
};

static bool normalise(
	struct record *record, const struct map *languages, bool is_stored, struct problem *problem)
{
	struct norm n = {record, record_data(record), languages, problem, is_stored};

	for (size_t i = 0; i < ARRAY_SIZE(STEPS); i++) {
		if (!STEPS[i](&n))
			return false;
	}
	return true;
}

/* Things that are still to come, so that they are refused for what they are and not as unknown. */
static bool refuse_unsupported(const struct json *root, struct problem *problem)
{
	static const char *const kinds[] = {"program", "interactor"};
	const struct json *kind = json_get(json_get(root, "checker"), "kind");

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (kind && kind->type == JSON_STRING && str_is(kind->text, kinds[i])) {
			problem_at(problem, 422, "not_supported", kind,
				"checkers of kind %s are not supported yet: there are lines, "
				"exact, "
				"tokens and float",
				kinds[i]);
			return true;
		}
	}
	return false;
}

/* Takes the tree over. */
static int parse_tree(struct json_tree *tree, const struct map *languages, bool is_stored,
	struct record **out, struct problem *problem)
{
	struct record *record;

	if (refuse_unsupported(json_root(tree), problem)) {
		json_free(tree);
		return -EBADMSG;
	}
	if (codec_decode(&task_record, tree, &record, problem))
		return -EBADMSG;
	if (!normalise(record, languages, is_stored, problem)) {
		record_free(record);
		return -EBADMSG;
	}
	*out = record;
	return 0;
}

int task_parse(
	struct str body, const struct map *languages, struct record **out, struct problem *problem)
{
	struct json_limits limits = {.bytes = BODY_MAX};
	struct json_error error;
	struct json_tree *tree;

	if (json_parse(body, &limits, &tree, &error)) {
		problem_from_json(problem, &error);
		return -EBADMSG;
	}
	return parse_tree(tree, languages, false, out, problem);
}

int task_parse_node(const struct json *node, struct record **out, struct problem *problem)
{
	return parse_tree(json_clone(node), NULL, true, out, problem);
}

void task_write(const struct task *task, struct buf *out)
{
	codec_encode_text(&task_record, task, out);
}

/* --- all contents ------------------------------------------------------------------------------ */

struct visit {
	task_content_fn *fn;
	void *arg;
};

static void visit(const struct visit *v, struct content *content, const char *pointer)
{
	if (!content_is_absent(content))
		v->fn(v->arg, content, pointer);
}

static void visit_files(const struct visit *v, const struct codec_list *files, const char *where)
{
	char pointer[64];

	for (size_t i = 0; i < files->count; i++) {
		snprintf(pointer, sizeof(pointer), "%s/%zu/content", where, i);
		visit(v, &codec_item(*files, struct task_file, i)->content, pointer);
	}
}

static void visit_cases(const struct visit *v, const struct task *task)
{
	char pointer[64];

	for (size_t i = 0; i < task->cases.count; i++) {
		struct task_case *one = codec_item(task->cases, struct task_case, i);

		snprintf(pointer, sizeof(pointer), "/cases/%zu/input", i);
		visit(v, &one->input, task->at.is_only_case ? task->at.input : pointer);
		snprintf(pointer, sizeof(pointer), "/cases/%zu/expected", i);
		visit(v, &one->expected, task->at.is_only_case ? task->at.expected : pointer);
	}
}

void task_each_content(const struct task *task, task_content_fn *fn, void *arg)
{
	const struct visit v = {fn, arg};

	visit(&v, &task->compile->source, task->at.source);
	visit_files(&v, &task->compile->files, "/compile/files");
	visit(&v, &task->compile->archive, "/compile/archive");
	visit_files(&v, &task->execute->files, "/execute/files");
	visit(&v, &task->execute->archive, "/execute/archive");
	visit_cases(&v, task);
}

enum checker_kind task_checker_kind(const struct task *task)
{
	enum checker_kind kind = CHECKER_LINES;

	if (task->checker)
		CHECK(checker_parse(task->checker->kind, &kind));
	return kind;
}

struct checker *task_checker_new(const struct task *task, struct str expected)
{
	enum checker_kind kind = task_checker_kind(task);
	struct checker *checker = checker_new(kind, expected);

	if (kind == CHECKER_FLOAT)
		checker_set_tolerance(checker, task->checker->abs, task->checker->rel);
	return checker;
}

struct str task_queue(const struct task *task)
{
	return task->language.p ? task->language : STR(LANGUAGE_RAW);
}
