/* SPDX-License-Identifier: Apache-2.0 */
/* task: both forms become one shape that reads back as itself; every refusal with its status, code and pointer. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "reactor/base/map.h"
#include "reactor/base/mem.h"
#include "rpc/task/result.h"
#include "rpc/task/task.h"

#define BLOB "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define BLOB_UPPER "0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef"

#define SHORT                                                                                      \
	"{\"language\": \"cpp\", \"source\": \"int main(){}\", \"input\": \"1 2\\n\", "            \
	"\"expected\": \"3\\n\"}"

static struct record *parse_ok(const char *text)
{
	struct record *record = NULL;
	struct problem problem = {0};

	if (task_parse(str_from(text), NULL, &record, &problem))
		fail_msg("%s: %d %s at %s: %s", text, problem.status, problem.code, problem.pointer,
			problem.detail);
	return record;
}

/* Writes the task, and checks that it reads back as the same text, from a text and from a tree. */
static void write_and_reread(struct record *record, struct buf *out)
{
	struct record *again cleanup(record_freep) = NULL, *node cleanup(record_freep) = NULL;
	struct buf second cleanup(buf_fini) = BUF_INIT, third cleanup(buf_fini) = BUF_INIT;
	struct problem problem;
	struct json_tree *tree;
	struct json_error error;

	task_write(record_data(record), out);
	assert_int_equal(task_parse(buf_str(out), NULL, &again, &problem), 0);
	task_write(record_data(again), &second);
	assert_string_equal(second.data, out->data);
	assert_int_equal(json_parse(buf_str(out), NULL, &tree, &error), 0);
	assert_int_equal(task_parse_node(json_root(tree), &node, &problem), 0);
	json_free(tree);
	task_write(record_data(node), &third);
	assert_string_equal(third.data, out->data);
}

static void test_normalised(void **state)
{
	static const struct {
		const char *body, *doc;
	} rows[] = {
		{SHORT, "{\"priority\":0,\"language\":\"cpp\",\"compile\":{\"source\":\"int "
			"main(){}\"},\"execute\":{},"
			"\"cases\":[{\"input\":\"1 2\\n\",\"expected\":\"3\\n\",\"points\":1}],"
			"\"checker\":{\"kind\":\"lines\"},\"stop_on_failure\":false}"},
		{"{\"user\":\"alice\",\"priority\":-100,\"labels\":[\"x\"],\"language\":null,"
		 "\"compile\":{\"files\":[{\"name\":\"main.c\",\"content\":\"...\"}],"
		 "\"command\":\"cc -O2 -o main main.c\",\"limits\":{\"wall_ms\":10000}},"
		 "\"execute\":{\"command\":[\"./"
		 "main\"],\"limits\":{\"cpu_ms\":1000,\"memory_bytes\":268435456}},"
		 "\"cases\":[{\"input\":\"\",\"expected\":\"\",\"points\":0,\"limits\":{\"cpu_ms\":"
		 "5}},{}],"
		 "\"checker\":{\"kind\":\"tokens\"},\"stop_on_failure\":true}",
			"{\"user\":\"alice\",\"priority\":-100,\"labels\":[\"x\"],\"language\":"
			"null,"
			"\"compile\":{\"files\":[{\"name\":\"main.c\",\"content\":\"...\"}],"
			"\"command\":[\"cc\",\"-O2\",\"-o\",\"main\",\"main.c\"],\"limits\":{"
			"\"wall_ms\":10000}},"
			"\"execute\":{\"command\":[\"./main\"],"
			"\"limits\":{\"cpu_ms\":1000,\"memory_bytes\":268435456}},"
			"\"cases\":[{\"input\":\"\",\"expected\":\"\",\"limits\":{\"cpu_ms\":5},"
			"\"points\":0},"
			"{\"points\":1}],\"checker\":{\"kind\":\"tokens\"},\"stop_on_failure\":"
			"true}"},
		/* the long way to say the short form; limits of either place; nulls are absent */
		{"{\"user\":\"\",\"language\":\"c\",\"compile\":{\"source\":{\"base64\":\"/"
		 "w==\"}},\"labels\":null,"
		 "\"execute\":{\"input\":\"\\u0000\",\"command\":\"./a 'b "
		 "c'\"},\"limits\":{\"cpu_ms\":1e3},"
		 "\"cases\":[],\"checker\":null}",
			"{\"priority\":0,\"language\":\"c\",\"compile\":{\"source\":{\"base64\":\"/"
			"w==\"}},"
			"\"execute\":{\"command\":[\"./a\",\"b c\"],\"limits\":{\"cpu_ms\":1000}},"
			"\"cases\":[{\"input\":\"\\u0000\",\"points\":1}],\"checker\":{\"kind\":"
			"\"lines\"},"
			"\"stop_on_failure\":false}"},
		/* an empty program and an empty expectation are given, not absent */
		{"{\"language\":\"c\",\"source\":\"\",\"expected\":\"\"}",
			"{\"priority\":0,\"language\":\"c\",\"compile\":{\"source\":\"\"},"
			"\"execute\":{},"
			"\"cases\":[{\"expected\":\"\",\"points\":1}],\"checker\":{\"kind\":"
			"\"lines\"},"
			"\"stop_on_failure\":false}"},
		/* nothing compiled: a raw command alone */
		{"{\"execute\":{\"command\":\"/bin/true\"}}",
			"{\"priority\":0,\"language\":null,\"compile\":{},\"execute\":{\"command\":"
			"[\"/bin/true\"]},"
			"\"cases\":[{\"points\":1}],\"checker\":{\"kind\":\"lines\"},\"stop_on_"
			"failure\":false}"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct record *record cleanup(record_freep) = parse_ok(rows[i].body);
		struct buf out cleanup(buf_fini) = BUF_INIT;

		write_and_reread(record, &out);
		assert_string_equal(out.data, rows[i].doc);
	}
}

static void test_tolerance(void **state)
{
	static const struct {
		const char *checker;
		double abs, rel;
	} rows[] = {
		{"{\"kind\":\"float\"}", 1e-6, 1e-6},
		{"{\"kind\":\"float\",\"abs\":0.001}", 0.001, 1e-6},
		{"{\"kind\":\"float\",\"abs\":null,\"rel\":0}", 1e-6, 0},
		{"{\"kind\":\"float\",\"abs\":0,\"rel\":1}", 0, 1},
		{"{\"kind\":\"tokens\",\"abs\":null}", -1, -1},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct buf body cleanup(buf_fini) = BUF_INIT, out cleanup(buf_fini) = BUF_INIT;
		struct record *record cleanup(record_freep) = NULL;
		struct task *t;

		buf_addf(
			&body, "{\"execute\":{\"command\":\"x\"},\"checker\":%s}", rows[i].checker);
		record = parse_ok(body.data);
		t = record_data(record);
		assert_true(t->checker->abs == rows[i].abs && t->checker->rel == rows[i].rel);
		write_and_reread(record, &out);
		assert_int_equal(strstr(out.data, "\"abs\"") != NULL, rows[i].abs >= 0);
	}
}

static void note(void *arg, struct content *content, const char *pointer)
{
	buf_addf(arg, "%s=" STR_FMT "\n", pointer,
		STR_ARG(content->blob.p ? content->blob : content->bytes));
}

static void expect_contents(const char *body, const char *expected)
{
	struct record *record = parse_ok(body);
	struct buf seen cleanup(buf_fini) = BUF_INIT;

	buf_add_str(&seen, STR(""));
	task_each_content(record_data(record), note, &seen);
	assert_string_equal(seen.data, expected);
	record_free(record);
}

/* Each is found where the client wrote it, whichever form that was. */
static void test_contents(void **state)
{
	expect_contents("{\"language\":\"c\",\"source\":{\"blob\":\"" BLOB
			"\"},\"input\":\"i\",\"expected\":{\"blob\":\"" BLOB "\"}}",
		"/source=" BLOB "\n/input=i\n/expected=" BLOB "\n");
	expect_contents("{\"language\":\"c\",\"compile\":{\"source\":\"s\"},"
			"\"execute\":{\"input\":{\"blob\":\"" BLOB "\"}}}",
		"/compile/source=s\n/execute/input=" BLOB "\n");
	expect_contents(
		"{\"compile\":{\"files\":[{\"name\":\"a\",\"content\":\"1\"},{\"name\":\"b\","
		"\"content\":\"2\"}],\"command\":\"x\"},\"execute\":{\"command\":\"x\","
		"\"archive\":{\"blob\":\"" BLOB
		"\"}},\"cases\":[{},{\"input\":\"i\",\"expected\":\"e\"}]}",
		"/compile/files/0/content=1\n/compile/files/1/content=2\n/execute/archive=" BLOB
		"\n/cases/1/input=i\n/cases/1/expected=e\n");
}

/* A reference is written as it was read. */
static void test_blob_round_trip(void **state)
{
	struct record *record = parse_ok("{\"language\":\"c\",\"source\":{\"blob\":\"" BLOB
					 "\"},\"input\":{\"blob\":\"" BLOB "\"}}");
	struct buf out cleanup(buf_fini) = BUF_INIT;

	write_and_reread(record, &out);
	assert_non_null(strstr(out.data, "\"source\":{\"blob\":\"" BLOB "\"}"));
	assert_non_null(strstr(out.data, "\"cases\":[{\"input\":{\"blob\":\"" BLOB "\"}"));
	record_free(record);
}

static void test_structures(void **state)
{
	struct record *record = parse_ok(SHORT);
	struct task *t = record_data(record);
	struct task_case *only = codec_item(t->cases, struct task_case, 0);

	assert_null(t->source.bytes.p);
	assert_null(t->input.bytes.p);
	assert_null(t->expected.bytes.p);
	assert_null(t->execute->input.bytes.p);
	assert_int_equal(t->cases.count, 1);
	assert_true(str_is(only->input.bytes, "1 2\n"));
	assert_true(str_is(only->expected.bytes, "3\n"));
	assert_int_equal(task_checker_kind(t), CHECKER_LINES);
	assert_true(str_is(task_queue(t), "cpp"));
	record_free(record);

	record = parse_ok("{\"execute\":{\"command\":\"x\"},\"checker\":{\"kind\":\"exact\"}}");
	t = record_data(record);
	assert_int_equal(task_checker_kind(t), CHECKER_EXACT);
	assert_true(str_is(task_queue(t), LANGUAGE_RAW));
	record_free(record);
}

struct refusal {
	const char *body;
	int status;
	const char *code, *pointer, *detail;
};

static void expect_refusal(struct str body, const struct map *languages, const struct refusal *row)
{
	struct record *record = NULL;
	struct problem problem = {0};

	assert_int_equal(task_parse(body, languages, &record, &problem), -EBADMSG);
	assert_null(record);
	if (problem.status != row->status || strcmp(problem.code, row->code) != 0 ||
		strcmp(problem.pointer, row->pointer) != 0 || !strstr(problem.detail, row->detail))
		fail_msg("%.200s gave %d %s at \"%s\": %s", body.p, problem.status, problem.code,
			problem.pointer, problem.detail);
}

#define C "\"language\":\"c\",\"source\":\"x\""
#define RAW "\"execute\":{\"command\":\"x\"}"
#define FILES(names) "{\"language\":\"c\",\"compile\":{\"files\":[" names "]}}"
#define NAMED(name) "{\"name\":\"" name "\",\"content\":\"\"}"

static void test_refusals(void **state)
{
	static const struct refusal rows[] = {
		{"", 400, "json_syntax", "", ""},
		{"[]", 400, "wrong_type", "", "an object"},
		{"{" C ",\"input\":\"\xff\"}", 400, "json_utf8", "", "UTF-8"},
		{"{" C ",\"sauce\":1}", 400, "unknown_field", "/sauce",
			"`task` has no field `sauce`"},
		{"{" C ",\"id\":1}", 400, "unknown_field", "/id", "id"},
		{"{" C ",\"cases\":[{\"in\":\"\"}]}", 400, "unknown_field", "/cases/0/in", "in"},
		{"{" C ",\"limits\":{\"cpu\":1}}", 400, "unknown_field", "/limits/cpu", "cpu"},
		{"{" C ",\"priority\":\"1\"}", 400, "wrong_type", "/priority",
			"a whole number, got a string"},
		{"{" C ",\"stop_on_failure\":1}", 400, "wrong_type", "/stop_on_failure",
			"a boolean"},
		{"{" C ",\"limits\":{\"cpu_ms\":1.5}}", 400, "wrong_type", "/limits/cpu_ms",
			"whole"},
		{"{" C ",\"checker\":\"lines\"}", 400, "wrong_type", "/checker", "an object"},
		/* both forms */
		{"{" C ",\"compile\":{\"source\":\"y\"}}", 400, "both_forms", "/source",
			"compile.source"},
		{"{" C ",\"input\":\"\",\"execute\":{\"input\":\"\"}}", 400, "both_forms", "/input",
			"execute.input"},
		{"{" C ",\"expected\":\"\",\"execute\":{\"expected\":\"\"}}", 400, "both_forms",
			"/expected", ""},
		{"{" C ",\"limits\":{},\"execute\":{\"limits\":{}}}", 400, "both_forms", "/limits",
			""},
		{"{" C ",\"input\":\"\",\"cases\":[{}]}", 400, "both_forms", "/cases", "cases"},
		{"{" C ",\"execute\":{\"expected\":\"\"},\"cases\":[{}]}", 400, "both_forms",
			"/cases", ""},
		{"{" C ",\"compile\":{\"files\":[" NAMED("a") "]}}", 400, "both_forms",
			"/compile/files", "not both"},
		/* identity */
		{"{" C ",\"priority\":101}", 422, "out_of_range", "/priority", "-100 and 100"},
		{"{" C ",\"user\":\"a\\u0007\"}", 422, "not_printable", "/user", "control"},
		{"{" C ",\"user\":\"a\\u0085\"}", 422, "not_printable", "/user", "control"},
		{"{" C
		 ",\"user\":\"0123456789012345678901234567890123456789012345678901234567890123x\"}",
			422, "out_of_range", "/user", "64 bytes"},
		{"{" C ",\"labels\":[\"a\",\"\"]}", 422, "out_of_range", "/labels/1", "1 and 64"},
		{"{" C ",\"labels\":[\"\\u2028\"]}", 422, "not_printable", "/labels/0", ""},
		{"{" C ",\"labels\":["
		 "\"0123456789012345678901234567890123456789012345678901234567890123x\"]}",
			422, "out_of_range", "/labels/0", "64"},
		{"{" C ",\"labels\":[\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\","
		 "\"\",\"\",\"\",\"\",\"\"]}",
			422, "out_of_range", "/labels", "16 items"},
		/* program */
		{"{}", 422, "missing_command", "/execute/command", "execute.command"},
		{"{\"language\":\"\",\"source\":\"\"}", 422, "unknown_language", "/language",
			"\"\""},
		{"{\"language\":\"raw\",\"source\":\"\"}", 422, "unknown_language", "/language",
			"raw"},
		{"{\"language\":\"c\"}", 422, "missing_source", "/source", "source"},
		{"{\"language\":\"c\",\"compile\":{\"command\":\"x\",\"files\":[]}}", 422,
			"missing_source", "/source", ""},
		{"{\"source\":\"\"," RAW "}", 422, "missing_language", "/language", "language"},
		{"{\"language\":null,\"compile\":{\"source\":\"\"}," RAW "}", 422,
			"missing_language", "/language", ""},
		{"{\"compile\":{\"command\":\"cc\"}," RAW "}", 422, "missing_files",
			"/compile/files", ""},
		{"{\"compile\":{\"files\":[" NAMED("a") "]}}", 422, "missing_command",
			"/execute/command", ""},
		{"{\"execute\":{\"command\":[]}}", 422, "empty_command", "/execute/command",
			"program"},
		{"{\"execute\":{\"command\":\" \"}}", 422, "empty_command", "/execute/command",
			"program"},
		{"{\"execute\":{\"command\":[\"\",\"x\"]}}", 422, "empty_command",
			"/execute/command", ""},
		{"{" C ",\"compile\":{\"command\":\"\"}}", 422, "empty_command", "/compile/command",
			""},
		{"{\"execute\":{\"command\":\"a 'b\"}}", 422, "bad_quoting", "/execute/command",
			""},
		{"{\"execute\":{\"command\":\"a\\u0000b\"}}", 422, "nul_byte", "/execute/command",
			""},
		/* limits */
		{"{" C ",\"limits\":{\"cpu_ms\":0}}", 422, "out_of_range", "/limits/cpu_ms",
			"1 and 60000"},
		{"{" C ",\"limits\":{\"cpu_ms\":-1}}", 422, "out_of_range", "/limits/cpu_ms",
			"1 and 60000"},
		{"{" C ",\"limits\":{\"cpu_ms\":60001}}", 422, "out_of_range", "/limits/cpu_ms",
			"1 and 60000"},
		{"{" C ",\"limits\":{\"cpu_ms\":1e30}}", 422, "out_of_range", "/limits/cpu_ms",
			"1 and 60000"},
		{"{" C ",\"limits\":{\"wall_ms\":300001}}", 422, "out_of_range", "/limits/wall_ms",
			"300000"},
		{"{" C ",\"compile\":{\"limits\":{\"memory_bytes\":4294967297}}}", 422,
			"out_of_range", "/compile/limits/memory_bytes", "1048576 and 4294967296"},
		{"{" C ",\"execute\":{\"limits\":{\"processes\":0}}}", 422, "out_of_range",
			"/execute/limits/processes", "1 and 1024"},
		{"{" C ",\"cases\":[{},{\"limits\":{\"output_bytes\":67108865}}]}", 422,
			"out_of_range", "/cases/1/limits/output_bytes", "67108864"},
		{"{" C ",\"cases\":[{\"limits\":{\"file_bytes\":0}}]}", 422, "out_of_range",
			"/cases/0/limits/file_bytes", ""},
		{"{" C ",\"cases\":[{\"points\":-1}]}", 422, "out_of_range", "/cases/0/points",
			"0 and 1000000"},
		/* files */
		{FILES(NAMED("")), 422, "bad_file_name", "/compile/files/0/name", "relative path"},
		{FILES(NAMED("a") "," NAMED("/a")), 422, "bad_file_name", "/compile/files/1/name",
			""},
		{FILES(NAMED("../a")), 422, "bad_file_name", "/compile/files/0/name", ""},
		{FILES(NAMED("a//b")), 422, "bad_file_name", "/compile/files/0/name", ""},
		{FILES(NAMED("a/./b")), 422, "bad_file_name", "/compile/files/0/name", ""},
		{FILES(NAMED("a") "," NAMED("b") "," NAMED("a")), 422, "duplicate_file",
			"/compile/files/2/name", ""},
		{FILES(NAMED("a/b") "," NAMED("a-") "," NAMED("a")), 422, "duplicate_file",
			"/compile/files/0/name", "directory"},
		{"{" C ",\"execute\":{\"files\":[" NAMED("..") "]}}", 422, "bad_file_name",
			"/execute/files/0/name", ""},
		{"{" C ",\"execute\":{\"files\":[{\"name\":\"a\"}]}}", 422, "missing_field",
			"/execute/files/0/content", "content"},
		/* checker */
		{"{" C ",\"checker\":{\"kind\":\"fuzzy\"}}", 422, "unknown_checker",
			"/checker/kind", "tokens"},
		{"{" C ",\"checker\":{}}", 422, "missing_field", "/checker/kind", ""},
		{"{" C ",\"checker\":{\"kind\":\"float\",\"abs\":-1}}", 422, "out_of_range",
			"/checker/abs", "between 0 and"},
		{"{" C ",\"checker\":{\"kind\":\"float\",\"rel\":1.5}}", 422, "out_of_range",
			"/checker/rel", "between 0 and 1"},
		{"{" C ",\"checker\":{\"kind\":\"float\",\"rel\":1e400}}", 422, "out_of_range",
			"/checker/rel", ""},
		{"{" C ",\"checker\":{\"kind\":\"float\",\"abs\":\"1\"}}", 400, "wrong_type",
			"/checker/abs", "number"},
		{"{" C ",\"checker\":{\"kind\":\"tokens\",\"rel\":0}}", 422, "not_for_checker",
			"/checker/rel", "float"},
		{"{" C ",\"checker\":{\"kind\":\"lines\",\"abs\":0.1}}", 422, "not_for_checker",
			"/checker/abs", "float"},
		/* archives: what is wrong inside one is test_archive's */
		{"{\"language\":\"c\",\"compile\":{\"archive\":\"UEsFBg==\"}}", 422, "bad_archive",
			"/compile/archive", "base64"},
		{"{" C ",\"execute\":{\"archive\":\"x\"}}", 422, "bad_archive", "/execute/archive",
			"no zip"},
		{"{\"language\":\"c\",\"compile\":{\"archive\":\"\"}}", 422, "bad_archive",
			"/compile/archive", "no zip"},
		{"{\"language\":\"c\",\"source\":\"x\",\"compile\":{\"archive\":\"x\"}}", 400,
			"both_forms", "/compile/archive", ""},
		{"{\"language\":\"c\",\"compile\":{\"archive\":\"x\",\"files\":[" NAMED("a") "]}}",
			400, "both_forms", "/compile/archive", "files"},
		{"{" C ",\"execute\":{\"archive\":\"x\",\"files\":[" NAMED("a") "]}}", 400,
			"both_forms", "/execute/archive", "files"},
		/* still to come */
		{"{" C ",\"checker\":{\"kind\":\"program\"}}", 422, "not_supported",
			"/checker/kind", "program"},
		{"{" C ",\"checker\":{\"kind\":\"interactor\"}}", 422, "not_supported",
			"/checker/kind", ""},
		/* blobs: a name is a SHA-256 in lower case and nothing else */
		{"{" C ",\"execute\":{\"archive\":{\"blob\":\"00\"}}}", 422, "bad_blob",
			"/execute/archive/blob", "64 hex"},
		{"{\"language\":\"c\",\"source\":{\"blob\":\"" BLOB_UPPER "\"}}", 422, "bad_blob",
			"/source/blob", "lower case"},
		{"{" C ",\"cases\":[{\"input\":{\"blob\":7}}]}", 400, "wrong_type",
			"/cases/0/input/blob", "SHA-256"},
		{"{" C ",\"cases\":[{\"input\":{\"blob\":\"" BLOB "\",\"base64\":\"\"}}]}", 400,
			"unknown_field", "/cases/0/input/blob", "{\"blob\""},
		{"{\"language\":\"c\",\"source\":\"x\",\"compile\":{\"archive\":{\"blob\":\"" BLOB
		 "\"}}}",
			400, "both_forms", "/compile/archive", ""},
		{"{\"language\":\"c\",\"source\":{\"blob\":\"" BLOB
		 "\"},\"compile\":{\"source\":\"\"}}",
			400, "both_forms", "/source", ""},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		expect_refusal(str_from(rows[i].body), NULL, &rows[i]);
}

static void test_languages(void **state)
{
	struct map languages;
	struct record *record = NULL;
	struct problem problem;
	int present;

	map_init(&languages);
	map_set(&languages, STR("c"), &present);
	map_set(&languages, STR("python3"), &present);
	expect_refusal(STR("{\"language\":\"C\",\"source\":\"\"}"), &languages,
		&(struct refusal){
			NULL, 422, "unknown_language", "/language", "\"C\"; there are c, python3"});
	expect_refusal(STR("{\"language\":\"\",\"source\":\"\"}"), &languages,
		&(struct refusal){NULL, 422, "unknown_language", "/language", "python3"});
	assert_int_equal(task_parse(STR("{\"language\":\"python3\",\"source\":\"\"}"), &languages,
				 &record, &problem),
		0);
	record_free(record);
	assert_int_equal(task_parse(STR("{" RAW "}"), &languages, &record, &problem), 0);
	record_free(record);
	map_fini(&languages);
}

/* {"language":"c","source":"aaa..."} with n bytes of source. */
static struct record *parse_source_of(size_t n, struct problem *problem)
{
	struct buf body cleanup(buf_fini) = BUF_INIT;
	struct record *record = NULL;

	buf_addf(&body, "{\"language\":\"c\",\"source\":\"");
	memset(buf_reserve(&body, n), 'a', n);
	body.len += n;
	buf_addf(&body, "\"}");
	if (task_parse(buf_str(&body), NULL, &record, problem))
		return NULL;
	return record;
}

static void test_sizes(void **state)
{
	struct buf many cleanup(buf_fini) = BUF_INIT, command cleanup(buf_fini) = BUF_INIT;
	struct problem problem;
	struct record *record = parse_source_of(SOURCE_MAX, &problem);

	assert_non_null(record);
	record_free(record);
	assert_null(parse_source_of(SOURCE_MAX + 1, &problem));
	assert_int_equal(problem.status, 413);
	assert_string_equal(problem.code, "too_large");
	assert_string_equal(problem.pointer, "/source");

	buf_addf(&many, "{" C ",\"cases\":[{}");
	for (int i = 1; i < TASK_CASES_MAX + 1; i++)
		buf_addf(&many, ",{}");
	buf_addf(&many, "]}");
	expect_refusal(buf_str(&many), NULL,
		&(struct refusal){NULL, 422, "out_of_range", "/cases", "1000 items"});
	buf_clear(&many);
	buf_addf(&many, "{\"language\":\"c\",\"compile\":{\"files\":[" NAMED("0"));
	for (int i = 1; i < TASK_FILES_MAX + 1; i++)
		buf_addf(&many, ",{\"name\":\"%d\",\"content\":\"\"}", i);
	buf_addf(&many, "]}}");
	expect_refusal(buf_str(&many), NULL,
		&(struct refusal){NULL, 422, "out_of_range", "/compile/files", "1000 items"});

	buf_addf(&command, "{\"execute\":{\"command\":\"x ");
	memset(buf_reserve(&command, TASK_ARGV_BYTES_MAX), 'y', TASK_ARGV_BYTES_MAX);
	command.len += TASK_ARGV_BYTES_MAX;
	buf_addf(&command, "\"}}");
	expect_refusal(buf_str(&command), NULL,
		&(struct refusal){NULL, 422, "out_of_range", "/execute/command", "65536 bytes"});
}

/* A body within its limit whose document would be too large for a message between roles. */
static void test_document_too_large(void **state)
{
	const size_t n = (size_t)32 << 20; /* of base64: 24 MiB of NULs, 144 MiB as JSON */
	struct buf body cleanup(buf_fini) = BUF_INIT;

	buf_addf(&body, "{" C ",\"input\":{\"base64\":\"");
	memset(buf_reserve(&body, n), 'A', n);
	body.len += n;
	buf_addf(&body, "\"}}");
	expect_refusal(
		buf_str(&body), NULL, &(struct refusal){NULL, 413, "too_large", "", "128 MiB"});
}

static void test_body_too_large(void **state)
{
	char *body = mem_alloc(BODY_MAX + 1);

	memset(body, ' ', BODY_MAX + 1);
	expect_refusal((struct str){body, BODY_MAX + 1}, NULL,
		&(struct refusal){NULL, 413, "json_too_large", "", "too large"});
	free(body);
}

/* The fields' tables in the chapter are those of fields.def. */
static void test_chapter_is_up_to_date(void **state)
{
	struct buf chapter cleanup(buf_fini) = BUF_INIT;
	FILE *file = fopen(CONCLAVE_SOURCE_DIR "/rpc/task/README.md", "r");
	size_t n;

	assert_non_null(file);
	while ((n = fread(buf_reserve(&chapter, 4096), 1, 4096, file)) > 0)
		chapter.len += n;
	fclose(file);
	for (size_t i = 0; task_record_at(i); i++) {
		const struct codec_record *type = task_record_at(i);
		struct buf table cleanup(buf_fini) = BUF_INIT;

		buf_addf(&table, "### %s\n\n", type->name);
		codec_doc(type, &table);
		if (!strstr(buf_str(&chapter).p, table.data))
			fail_msg("rpc/task/README.md should have:\n%s", table.data);
	}
	assert_string_equal(task_record_at(0)->name, "limits");
	assert_null(task_record_at(1000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_normalised),
		cmocka_unit_test(test_structures),
		cmocka_unit_test(test_contents),
		cmocka_unit_test(test_blob_round_trip),
		cmocka_unit_test(test_tolerance),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_languages),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_document_too_large),
		cmocka_unit_test(test_body_too_large),
		cmocka_unit_test(test_chapter_is_up_to_date),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
