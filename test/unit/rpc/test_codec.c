/* SPDX-License-Identifier: Apache-2.0 */
/* codec: every kind both ways, every refusal with its status, code and pointer, quoting, documentation. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rpc/codec.h"

struct inner {
	struct str name;
	int64_t n;
};

struct outer {
	bool flag;
	int64_t number, preset, nullable;
	double real;
	struct str text, bytes;
	struct id id;
	struct inner *inner;
	struct codec_list list, texts, argv;
	struct codec_json json;
	struct content content;
	struct str output;
};

static const struct codec_field INNER_FIELDS[] = {
	{"name", CODEC_TEXT, offsetof(struct inner, name), 1, 5, CODEC_REQUIRED, NULL, "A name."},
	{"n", CODEC_I64, offsetof(struct inner, n), 0, 10, CODEC_OMIT, NULL, "A number.", 3},
};
static const struct codec_record INNER = {
	"inner", sizeof(struct inner), INNER_FIELDS, ARRAY_SIZE(INNER_FIELDS)};

#define OPTIONAL (CODEC_OMIT | CODEC_NULLABLE)
#define AT(member) offsetof(struct outer, member)
static const struct codec_field OUTER_FIELDS[] = {
	{"flag", CODEC_BOOL, AT(flag), 0, 0, OPTIONAL, NULL, "Flag."},
	{"number", CODEC_I64, AT(number), -5, 500, OPTIONAL, NULL, "Number."},
	{"preset", CODEC_I64, AT(preset), 0, 0, CODEC_OMIT, NULL, "Preset.", 7},
	{"nullable", CODEC_I64, AT(nullable), 0, 255, CODEC_NULL_PRESET, NULL, "Null when -1.", -1},
	{"real", CODEC_F64, AT(real), 0, 1, OPTIONAL, NULL, "Real."},
	{"text", CODEC_TEXT, AT(text), 2, 4, OPTIONAL, NULL, "Text."},
	{"bytes", CODEC_BYTES, AT(bytes), 0, 4, OPTIONAL, NULL, "Bytes."},
	{"content", CODEC_CONTENT, AT(content), 0, 4, OPTIONAL, NULL, "Content."},
	{"id", CODEC_ID, AT(id), 0, 0, OPTIONAL, NULL, "Id."},
	{"inner", CODEC_RECORD, AT(inner), 0, 0, CODEC_NULLABLE, &INNER, "Nested."},
	{"list", CODEC_LIST, AT(list), 0, 2, OPTIONAL, &INNER, "List."},
	{"texts", CODEC_TEXTS, AT(texts), 1, 2, OPTIONAL, NULL, "Texts."},
	{"argv", CODEC_ARGV, AT(argv), 0, 4, OPTIONAL, NULL, "Command."},
	{"json", CODEC_JSON, AT(json), 0, 0, OPTIONAL, NULL, "Anything."},
	{"output", CODEC_TEXT, AT(output), 0, 0, CODEC_OUTPUT | OPTIONAL, NULL, "Shown only."},
};
static const struct codec_record OUTER = {
	"outer", sizeof(struct outer), OUTER_FIELDS, ARRAY_SIZE(OUTER_FIELDS)};

static struct record *decode_ok(const char *text)
{
	struct record *record = NULL;
	struct problem problem = {0};

	if (codec_decode_text(&OUTER, str_from(text), NULL, &record, &problem))
		fail_msg("%s: %d %s at %s: %s", text, problem.status, problem.code, problem.pointer,
			problem.detail);
	return record;
}

static void expect_text(const void *data, const char *expected)
{
	struct buf out cleanup(buf_fini) = BUF_INIT;

	codec_encode_text(&OUTER, data, &out);
	assert_string_equal(out.data, expected);
}

static void test_every_kind(void **state)
{
	static const char text[] = "{\"flag\":true,\"number\":-5,\"preset\":8,\"nullable\":0,"
				   "\"real\":0.25,\"text\":\"\xc3\xa9\","
				   "\"bytes\":\"a\\u0000\",\"id\":\"0123456789abcdef01234567\","
				   "\"inner\":{\"name\":\"x\",\"n\":4},"
				   "\"list\":[{\"name\":\"a\"},{\"name\":\"b\",\"n\":0}],\"texts\":"
				   "[\"p\",\"\"],\"argv\":[\"a b\",\"\"],"
				   "\"json\":{\"k\":[1e2,null]}}";
	struct record *record = decode_ok(text);
	struct outer *o = record_data(record);

	assert_true(o->flag);
	assert_int_equal(o->number, -5);
	assert_int_equal(o->preset, 8);
	assert_int_equal(o->nullable, 0);
	assert_true(o->real == 0.25);
	assert_true(str_eq(o->bytes, STR("a\0")));
	assert_string_equal(o->id.hex, "0123456789abcdef01234567");
	assert_int_equal(o->inner->n, 4);
	assert_int_equal(o->list.count, 2);
	assert_int_equal(codec_item(o->list, struct inner, 0)->n, 3);
	assert_int_equal(codec_item(o->list, struct inner, 1)->n, 0);
	assert_true(str_is(*codec_item(o->texts, struct str, 0), "p"));
	assert_int_equal(o->argv.count, 2);
	assert_true(str_is(*codec_item(o->argv, struct str, 0), "a b"));
	assert_int_equal(o->json.node->count, 1);
	expect_text(o, text);
	record_free(record);
	record_free(NULL);
}

static void test_absent_and_null(void **state)
{
	static const char nulls[] =
		"{\"flag\":null,\"number\":null,\"nullable\":null,\"real\":null,\"text\":null,"
		"\"bytes\":null,\"id\":null,\"inner\":null,\"list\":null,\"texts\":null,"
		"\"argv\":null,\"json\":null}";
	static const char *const texts[] = {"{}", nulls};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct record *record cleanup(record_freep) = decode_ok(texts[i]);
		struct outer *o = record_data(record);

		assert_int_equal(o->preset, 7);
		assert_int_equal(o->nullable, -1);
		assert_null(o->text.p);
		assert_null(o->bytes.p);
		assert_null(o->inner);
		assert_null(o->list.items);
		assert_null(o->argv.items);
		assert_null(o->json.node);
		expect_text(o, "{\"nullable\":null,\"inner\":null}");
	}
}

/* No bytes and no list are not the same as none given. */
static void test_empty_is_not_absent(void **state)
{
	struct record *record = decode_ok("{\"bytes\":\"\",\"list\":[],\"argv\":\"\"}");
	struct outer *o = record_data(record);

	assert_non_null(o->bytes.p);
	assert_int_equal(o->bytes.n, 0);
	assert_non_null(o->list.items);
	assert_non_null(o->argv.items);
	assert_int_equal(o->argv.count, 0);
	expect_text(o, "{\"nullable\":null,\"bytes\":\"\",\"inner\":null}");
	record_free(record);
}

static void test_base64(void **state)
{
	struct record *record = decode_ok("{\"bytes\":{\"base64\":\"/wBh\"}}");
	struct outer *o = record_data(record);

	assert_true(str_eq(o->bytes, STR("\xff\0a")));
	expect_text(o, "{\"nullable\":null,\"bytes\":{\"base64\":\"/wBh\"},\"inner\":null}");
	record_free(record);
}

static void test_refusals(void **state)
{
	static const struct {
		const char *text;
		int status;
		const char *code, *pointer, *detail;
	} rows[] = {
		{"", 400, "json_syntax", "", "premature EOF"},
		{"{\"flag\":tru}", 400, "json_syntax", "", "byte"},
		{"{\"text\":\"\xff\"}", 400, "json_utf8", "", "UTF-8"},
		{"{\"flag\":true,\"flag\":true}", 400, "json_duplicate_key", "", "flag"},
		{"[]", 400, "wrong_type", "", "expected an object, got an array"},
		{"{\"nope\":1}", 400, "unknown_field", "/nope", "`outer` has no field `nope`"},
		{"{\"inner\":{\"name\":\"x\",\"a/b~\":1}}", 400, "unknown_field", "/inner/a~1b~0",
			"a/b~"},
		{"{\"output\":\"x\"}", 400, "read_only", "/output", "cannot be set"},
		{"{\"flag\":0}", 400, "wrong_type", "/flag", "expected a boolean, got a number"},
		{"{\"number\":\"1\"}", 400, "wrong_type", "/number",
			"expected a whole number, got a string"},
		{"{\"number\":1.5}", 400, "wrong_type", "/number", "fraction"},
		{"{\"number\":501}", 422, "out_of_range", "/number", "between -5 and 500"},
		{"{\"number\":-6}", 422, "out_of_range", "/number", "between -5 and 500"},
		{"{\"number\":1e400}", 422, "out_of_range", "/number", "between -5 and 500"},
		{"{\"preset\":18446744073709551616}", 422, "out_of_range", "/preset", "64 bits"},
		{"{\"preset\":null}", 400, "wrong_type", "/preset", "got null"},
		{"{\"nullable\":256}", 422, "out_of_range", "/nullable", "0 and 255"},
		{"{\"real\":1.5}", 422, "out_of_range", "/real", "0 and 1"},
		{"{\"real\":[]}", 400, "wrong_type", "/real", "a number, got an array"},
		{"{\"text\":1}", 400, "wrong_type", "/text", "a string, got a number"},
		{"{\"text\":\"a\"}", 422, "out_of_range", "/text", "2 and 4 bytes"},
		{"{\"text\":\"abcde\"}", 422, "out_of_range", "/text", "2 and 4 bytes"},
		{"{\"text\":\"a\\u0000b\"}", 422, "nul_byte", "/text", "NUL"},
		{"{\"text\":{\"base64\":\"YWJj\"}}", 400, "wrong_type", "/text",
			"a string, got an object"},
		{"{\"bytes\":\"12345\"}", 413, "too_large", "/bytes", "4 bytes"},
		{"{\"bytes\":{\"base64\":\"MTIzNDU=\"}}", 413, "too_large", "/bytes", "4 bytes"},
		{"{\"bytes\":{\"base64\":\"MTI\"}}", 422, "bad_base64", "/bytes/base64", "padding"},
		{"{\"bytes\":{\"base64\":1}}", 400, "wrong_type", "/bytes/base64", "base64"},
		{"{\"bytes\":{}}", 400, "wrong_type", "/bytes", "base64"},
		{"{\"bytes\":7}", 400, "wrong_type", "/bytes", "got a number"},
		{"{\"bytes\":{\"hex\":\"00\"}}", 400, "unknown_field", "/bytes/hex", "base64"},
		{"{\"bytes\":{\"base64\":\"\",\"x\":1}}", 400, "unknown_field", "/bytes/x",
			"base64"},
		{"{\"bytes\":{\"blob\":\"00\"}}", 400, "unknown_field", "/bytes/blob", "base64"},
		{"{\"content\":{\"blob\":\"00\"}}", 422, "bad_blob", "/content/blob", "64 hex"},
		{"{\"content\":{\"base64\":\"MTIzNDU=\"}}", 413, "too_large", "/content",
			"4 bytes"},
		{"{\"content\":{}}", 400, "wrong_type", "/content", "blob"},
		{"{\"id\":\"0123456789ABCDEF01234567\"}", 422, "bad_id", "/id", "24 hex"},
		{"{\"id\":1}", 400, "wrong_type", "/id", "an id"},
		{"{\"inner\":[]}", 400, "wrong_type", "/inner", "an object, got an array"},
		{"{\"inner\":{}}", 422, "missing_field", "/inner/name", "`name`"},
		{"{\"list\":[{\"name\":\"a\"},{\"name\":\"\"}]}", 422, "out_of_range",
			"/list/1/name", "1 and 5"},
		{"{\"list\":[1]}", 400, "wrong_type", "/list/0", "an object"},
		{"{\"list\":[{},{},{}]}", 422, "out_of_range", "/list", "0 and 2 items"},
		{"{\"list\":{}}", 400, "wrong_type", "/list", "an array, got an object"},
		{"{\"texts\":[]}", 422, "out_of_range", "/texts", "1 and 2 items"},
		{"{\"texts\":[\"a\",null]}", 400, "wrong_type", "/texts/1", "a string, got null"},
		{"{\"texts\":\"a\"}", 400, "wrong_type", "/texts", "an array"},
		{"{\"argv\":[\"a\",\"\\u0000\"]}", 422, "nul_byte", "/argv/1", "NUL"},
		{"{\"argv\":\"a\\u0000\"}", 422, "nul_byte", "/argv", "NUL"},
		{"{\"argv\":\"a b c d e\"}", 422, "out_of_range", "/argv", "0 and 4 items"},
		{"{\"argv\":\"a 'b\"}", 422, "bad_quoting", "/argv", "left open"},
		{"{\"argv\":\"a \\\"b\\\\\\\"\"}", 422, "bad_quoting", "/argv", "left open"},
		{"{\"argv\":\"a \\\\\"}", 422, "bad_quoting", "/argv", "left open"},
		{"{\"argv\":1}", 400, "wrong_type", "/argv", "an array of strings, or a string"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct record *record = NULL;
		struct problem problem = {0};

		assert_int_equal(
			codec_decode_text(&OUTER, str_from(rows[i].text), NULL, &record, &problem),
			-EBADMSG);
		assert_null(record);
		if (problem.status != rows[i].status || strcmp(problem.code, rows[i].code) != 0 ||
			strcmp(problem.pointer, rows[i].pointer) != 0 ||
			!strstr(problem.detail, rows[i].detail))
			fail_msg("%s gave %d %s at \"%s\": %s", rows[i].text, problem.status,
				problem.code, problem.pointer, problem.detail);
	}
}

static void test_json_too_large(void **state)
{
	struct record *record = NULL;
	struct problem problem;

	assert_int_equal(codec_decode_text(&OUTER, STR("{        }"),
				 &(struct json_limits){.bytes = 4}, &record, &problem),
		-EBADMSG);
	assert_int_equal(problem.status, 413);
	assert_string_equal(problem.code, "json_too_large");
}

static void test_quoting(void **state)
{
	static const struct {
		const char *text; /* as JSON */
		const char *words[5];
	} rows[] = {
		{"", {NULL}},
		{"  \\t\\n ", {NULL}},
		{"cc -O2  -o\\tmain.c", {"cc", "-O2", "-o", "main.c"}},
		{"a 'b c' d", {"a", "b c", "d"}},
		{"'a'\\\"b\\\"c", {"abc"}},
		{"'' \\\"\\\"", {"", ""}},
		{"a\\\\ b", {"a b"}},
		{"'a\\\\b'", {"a\\b"}},
		{"\\\"a\\\\\\\"\\\\$\\\\`\\\\\\\\\\\\n\\\"", {"a\"$`\\\\n"}},
		{"a\\\\\\nb", {"ab"}},
		{"\\\\\\n", {NULL}},
		{"\\\"a\\\\\\nb\\\"", {"ab"}},
		{"$HOME `x` *.c ~", {"$HOME", "`x`", "*.c", "~"}},
		{"a;b|c >d #e", {"a;b|c", ">d", "#e"}},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct buf text cleanup(buf_fini) = BUF_INIT;
		struct record *record cleanup(record_freep) = NULL;
		struct outer *o;
		size_t n = 0;

		buf_addf(&text, "{\"argv\":\"%s\"}", rows[i].text);
		record = decode_ok(text.data);
		o = record_data(record);
		while (rows[i].words[n])
			n++;
		assert_int_equal(o->argv.count, n);
		for (size_t k = 0; k < n; k++)
			assert_true(str_is(*codec_item(o->argv, struct str, k), rows[i].words[k]));
	}
}

static void test_record_new(void **state)
{
	struct record *record = record_new(&OUTER);
	struct outer *o = record_data(record);
	struct inner *items = record_alloc(record, 2 * sizeof(*items));
	char text[] = "ab";

	assert_int_equal(o->preset, 7);
	o->text = record_copy(record, str_from(text));
	text[0] = 'X';
	items[0].name = STR("i");
	items[0].n = 3;
	items[1].name = STR_NULL;
	o->list = (struct codec_list){items, 2};
	o->json.text = STR("[1]");
	expect_text(o, "{\"nullable\":null,\"text\":\"ab\",\"inner\":null,"
		       "\"list\":[{\"name\":\"i\"},{\"name\":\"\",\"n\":0}],\"json\":[1]}");
	assert_null(record_copy(record, STR_NULL).p);
	record_free(record);
}

static void test_decode_node_is_its_own(void **state)
{
	struct json_tree *tree = NULL;
	struct json_error error;
	struct record *record = NULL;
	struct problem problem;

	assert_int_equal(json_parse(STR("{\"doc\":{\"text\":\"abc\",\"json\":[true]}}"), NULL,
				 &tree, &error),
		0);
	assert_int_equal(
		codec_decode_node(&OUTER, json_get(json_root(tree), "doc"), &record, &problem), 0);
	assert_int_equal(
		codec_decode_node(&INNER, json_get(json_root(tree), "doc"), &record, &problem),
		-EBADMSG);
	assert_string_equal(problem.pointer, "/text");
	json_free(tree);
	expect_text(record_data(record),
		"{\"nullable\":null,\"text\":\"abc\",\"inner\":null,\"json\":[true]}");
	record_free(record);
}

static void test_problem(void **state)
{
	struct problem problem;
	struct buf out cleanup(buf_fini) = BUF_INIT;
	char longer[400];

	problem_set(&problem, 422, "out_of_range", "/a", "say \"%s\"", "x");
	problem_write(&problem, &out);
	assert_string_equal(out.data,
		"{\"type\":\"urn:conclave:problem:out_of_range\",\"title\":\"Out of range\","
		"\"status\":422,\"code\":\"out_of_range\",\"detail\":\"say \\\"x\\\"\","
		"\"pointer\":\"/a\"}");

	/* cut, but never inside a character; never anything but UTF-8 */
	for (size_t i = 0; i < sizeof(longer) - 1; i++)
		longer[i] = "\xc3\xa9"[i % 2];
	longer[sizeof(longer) - 1] = '\0';
	problem_set(&problem, 400, "wrong_type", longer, "%s", longer);
	assert_int_equal(strlen(problem.pointer), sizeof(problem.pointer) - 2);
	assert_true(str_is_utf8(str_from(problem.pointer)));
	assert_true(str_is_utf8(str_from(problem.detail)));
	problem_set(&problem, 400, "wrong_type", "", "bad \xff");
	assert_string_equal(problem.detail, "bad ");
}

/* Whatever a client calls its fields, the problem stays valid. */
static void test_hostile_field_name(void **state)
{
	struct buf text cleanup(buf_fini) = BUF_INIT, out cleanup(buf_fini) = BUF_INIT;
	struct record *record = NULL;
	struct problem problem;
	struct json_tree *tree = NULL;
	struct json_error error;

	buf_addf(&text, "{\"\\u0000\\n\\\"\xe2\x82\xac");
	for (int i = 0; i < 1000; i++)
		buf_addf(&text, "\xe2\x82\xac");
	buf_addf(&text, "\":1}");
	assert_int_equal(
		codec_decode_text(&OUTER, buf_str(&text), NULL, &record, &problem), -EBADMSG);
	assert_string_equal(problem.code, "unknown_field");
	problem_write(&problem, &out);
	assert_int_equal(json_parse(buf_str(&out), NULL, &tree, &error), 0);
	json_free(tree);
}

static void test_doc(void **state)
{
	struct buf out cleanup(buf_fini) = BUF_INIT;

	codec_doc(&INNER, &out);
	assert_string_equal(out.data,
		"| field | type | range | notes | meaning |\n|---|---|---|---|---|\n"
		"| `name` | text | 1 to 5 bytes | required | A name. |\n"
		"| `n` | whole number | 0 to 10 | default 3 | A number. |\n");
	buf_clear(&out);
	codec_doc(&OUTER, &out);
	assert_non_null(strstr(
		out.data, "| `list` | list of `inner` | 0 to 2 items | may be null | List. |\n"));
	assert_non_null(strstr(
		out.data, "| `output` | text |  | may be null, output only | Shown only. |\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_kind),
		cmocka_unit_test(test_absent_and_null),
		cmocka_unit_test(test_empty_is_not_absent),
		cmocka_unit_test(test_base64),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_json_too_large),
		cmocka_unit_test(test_quoting),
		cmocka_unit_test(test_record_new),
		cmocka_unit_test(test_decode_node_is_its_own),
		cmocka_unit_test(test_problem),
		cmocka_unit_test(test_hostile_field_name),
		cmocka_unit_test(test_doc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
