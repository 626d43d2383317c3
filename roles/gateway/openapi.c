/* SPDX-License-Identifier: Apache-2.0 */
/*
 * openapi - the description of the interface (OpenAPI 3.1, so schemas are JSON Schema 2020-12), built once at the start.
 *
 *     gateway_routes        -> paths: who may use them, parameters, body, answer
 *     task_record_at(i)     -> components.schemas of what is submitted and of results: the same rows that decode and encode
 *     params, answers,      -> the rest, which no other table says: query parameters, what the gateway wraps around a
 *     problems                 task, the codes of problems
 *
 * Nothing here decides anything: what a row says wrongly a test finds, as each parameter is tried, each route is asked for, and each code
 * that the sources can send is looked up in /openapi.json.
 */
#include "roles/gateway/gateway_int.h"

#include <ctype.h>
#include <stdio.h>

#include "rpc/task/status.h"
#include "rpc/task/task.h"

/* --- problems ------------------------------------------------------------------------------------------------------ */

static const struct problem_row {
	int status;
	const char *codes; /* by comma */
} problem_rows[] = {
	{400, "bad_after,bad_host,bad_id,bad_idempotency_key,bad_parameter,both_forms,"
	      "content_length_invalid,content_length_twice,framing_ambiguous,header_name_invalid,"
	      "host_missing,https_expected,json_depth,json_duplicate_key,json_syntax,json_utf8,"
	      "read_only,"
	      "repeated_parameter,unknown_field,unknown_parameter,wrong_type"},
	{401, "token_unknown"},
	{403, "role_missing,user_forbidden"},
	{404, "blob_unknown,file_unknown,not_found,task_unknown"},
	{405, "method_not_allowed"},
	{408, "request_timeout"},
	{409, "task_conflict,task_done"},
	{413, "body_too_large,json_too_large,too_large"},
	{415, "unsupported_encoding,unsupported_type"},
	{422, "bad_archive,bad_base64,bad_blob,bad_file_name,blob_mismatch,blob_missing,bad_"
	      "quoting,duplicate_file,empty_command,"
	      "missing_command,missing_field,missing_files,missing_language,missing_source,"
	      "not_for_checker,not_printable,not_supported,nul_byte,out_of_range,"
	      "unknown_checker,unknown_language"},
	{429, "rate_exceeded,too_many_open"},
	{501, "transfer_encoding_unknown"},
	{502, "judicator_refused,secret_refused"},
	{503, "blob_upload_lost,busy,disk_full,no_judicator,out_of_memory,stopping,store_failed,"
	      "too_many_connections,too_many_waiting,unavailable"},
	{505, "version_unsupported"},
};

/* --- query parameters ------------------------------------------------------------------------------------------------ */

static const struct param_row {
	const char *name, *schema, *doc;
} param_rows[] = {
	{"after", "{\"type\":\"string\",\"pattern\":\"^[0-9]+$\"}",
		"The `next` of the page before."},
	{"label", "{\"type\":\"string\",\"maxLength\":64}", "Tasks with this label."},
	{"language", "{\"type\":\"string\",\"maxLength\":32}", "Tasks in this language."},
	{"limit", "{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000,\"default\":50}",
		"Tasks a page."},
	{"order", "{\"enum\":[\"asc\",\"desc\"],\"default\":\"desc\"}", "Oldest or newest first."},
	{"status", "{\"$ref\":\"#/components/schemas/status\"}", "Tasks with this status."},
	{"user", "{\"type\":\"string\",\"maxLength\":64}", "Tasks of this user."},
	{"wait", "{\"type\":\"integer\",\"minimum\":1,\"maximum\":300000}",
		"Milliseconds to wait for the end of the task."},
};

/* --- what the gateway answers with ------------------------------------------------------------------------------------ */

#define REF(name) "{\"$ref\":\"#/components/schemas/" name "\"}"
#define OR_NULL(schema) "{\"anyOf\":[" schema ",{\"type\":\"null\"}]}"
#define LIST_OF(schema) "{\"type\":\"array\",\"items\":" schema "}"
#define SHA256 "{\"type\":\"string\",\"pattern\":\"^[0-9a-f]{64}$\"}"
#define TEXT "{\"type\":\"string\"}"
#define TEXT_OR_NULL "{\"type\":[\"string\",\"null\"]}"
#define COUNT "{\"type\":\"integer\",\"minimum\":0}"
#define LEVELS "{\"type\":\"array\",\"items\":{\"type\":[\"integer\",\"null\"],\"minimum\":0}}"
#define TRUTH "{\"type\":\"boolean\"}"
#define TIME "{\"type\":[\"string\",\"null\"],\"format\":\"date-time\"}"
#define ANY "{}"

static const struct member_row {
	const char *schema, *name, *type, *doc;
} member_rows[] = {
	/* the rows of a schema stand together */
	{"executor", "name", TEXT, "Its name."},
	{"executor", "alive", TRUTH, "False: declared dead, soon hidden."},
	{"executor", "slots", COUNT, "Tasks at the same time."},
	{"executor", "running", COUNT, "Tasks it holds."},
	{"executor", "vacant", COUNT, "Room for more."},
	{"executor", "languages", LIST_OF(TEXT), "Offered."},
	{"executor", "toolchains", ANY, "Language -> version, as probed."},
	{"executor", "isolation", TEXT_OR_NULL, "What its sandbox isolates."},
	{"executor", "version", TEXT_OR_NULL, "Of the program."},
	{"executor", "seen", TIME, "Its last report."},
	{"executors", "executors", LIST_OF(REF("executor")), "By name."},
	{"blob", "created", TRUTH, "It was not here before."},
	{"health", "status", TEXT, "`ok`"},
	{"health", "version", TEXT, "Of this gateway."},
	{"health", "judicator", TEXT, "Who answered."},
	{"health", "pending", COUNT, "Tasks that wait for an executor."},
	{"health", "waiting", COUNT, "Clients that wait here."},
	{"judicator", "name", TEXT, "Its name."},
	{"judicator", "address", TEXT_OR_NULL, "Where it serves."},
	{"judicator", "leading", TRUTH, "Does the leader's duties."},
	{"judicator", "store", TEXT_OR_NULL, "Where it keeps tasks."},
	{"judicator", "version", TEXT_OR_NULL, "Of the program."},
	{"judicators", "judicators", LIST_OF(REF("judicator")), "Known to the one asked."},
	{"language", "name", TEXT, "As `language` of a task."},
	{"language", "title", TEXT_OR_NULL, "For people."},
	{"language", "source", TEXT_OR_NULL, "File name of the source."},
	{"language", "extensions", LIST_OF(TEXT), "Of such files."},
	{"language", "compiled", TRUTH, "Has a compile phase."},
	{"language", "executors", LIST_OF(ANY), "Who offers it, and in which version."},
	{"languages", "languages", LIST_OF(REF("language")), "All profiles."},
	{"openapi", "openapi", TEXT, "3.1.0"},
	{"problem", "type", TEXT, "urn:conclave:problem:CODE"},
	{"problem", "title", TEXT, "The code in words."},
	{"problem", "status", COUNT, "The HTTP status."},
	{"problem", "code", REF("problem_code"), "Stable."},
	{"problem", "detail", TEXT, "What would be right."},
	{"problem", "pointer", TEXT, "Into the body (RFC 6901); empty = the whole."},
	{"stats", "time", TIME, "Now."},
	{"stats", "start", TIME, "When the first minute began."},
	{"stats", "step_s", COUNT, "60"},
	{"stats", "accepted", LIST_OF(COUNT),
		"Tasks accepted, of 60 minutes, the running one last."},
	{"stats", "added", LIST_OF(COUNT), "Tasks added."},
	{"stats", "done", LIST_OF(COUNT), "Tasks that became done, cancelled ones too."},
	{"stats", "pending", LEVELS, "Tasks waiting at the end of each minute; null: not known."},
	{"stats", "running", LEVELS, "Tasks held by executors, likewise."},
	{"stats", "now", REF("stats_now"), "How it is now."},
	{"stats_now", "pending", COUNT, "Tasks that wait for an executor."},
	{"stats_now", "running", COUNT, "Tasks held by executors."},
	{"stats_now", "slots", COUNT, "Tasks that the living executors run at the same time."},
	{"stats_now", "oldest", TIME, "When the oldest task was added that has not begun."},
	{"stats_now", "executors", REF("stats_executors"), "How many."},
	{"stats_executors", "alive", COUNT, "Executors that report."},
	{"stats_executors", "dead", COUNT, "Declared dead, soon hidden."},
	{"task_page", "tasks", LIST_OF(REF("task_view")), "Without results."},
	{"task_page", "next", TEXT_OR_NULL, "`after` of the next page; null at the end."},
	{"task_view", "id", "{\"type\":\"string\",\"pattern\":\"^[0-9a-f]{24}$\"}", "The task."},
	{"task_view", "user", TEXT, "Who submitted it, when known."},
	{"task_view", "language", TEXT_OR_NULL, "Null: raw commands."},
	{"task_view", "priority", "{\"type\":\"integer\"}", "When not 0."},
	{"task_view", "labels", LIST_OF(TEXT), "When there are some."},
	{"task_view", "status", REF("status"), "How far it is."},
	{"task_view", "done", TRUTH, "Nothing will change any more."},
	{"task_view", "verdict", OR_NULL(REF("verdict")), "Once it is done."},
	{"task_view", "score", "{\"type\":[\"integer\",\"null\"]}", "Points of accepted cases."},
	{"task_view", "max_score", COUNT, "Points of all cases."},
	{"task_view", "attempt", COUNT, "How often it was given to an executor."},
	{"task_view", "retries", COUNT, "How often it was lost with one."},
	{"task_view", "case", COUNT, "The case it is at."},
	{"task_view", "executor", TEXT_OR_NULL, "Who judges, or judged it."},
	{"task_view", "add_time", TIME, "Accepted."},
	{"task_view", "start_time", TIME, "Last given to an executor."},
	{"task_view", "done_time", TIME, "Done."},
	{"task_view", "compile", OR_NULL(REF("result_compile")), "What came of the compiler."},
	{"task_view", "cases", "{\"type\":[\"array\",\"null\"],\"items\":" REF("result_case") "}",
		"What came of the cases."},
	{"task_view", "isolation", TEXT_OR_NULL, "What the sandbox isolated."},
	{"task_view", "message", TEXT_OR_NULL, "Why, when something went wrong."},
};

/* --- writing ------------------------------------------------------------------------------------------------------------ */

static void write_text(struct json_writer *w, const char *key, const char *value)
{
	json_key(w, key);
	json_text(w, value);
}

static void write_ref(struct json_writer *w, const char *name)
{
	char ref[96];

	snprintf(ref, sizeof(ref), "#/components/schemas/%s", name);
	json_begin_object(w);
	write_text(w, "$ref", ref);
	json_end_object(w);
}

static void begin(struct json_writer *w, const char *key)
{
	json_key(w, key);
	json_begin_object(w);
}

/* Each word between the commas, as a value. */
static void write_words(struct json_writer *w, const char *words)
{
	struct str rest = str_from(words), word;

	while (str_cut(&rest, ',', &word))
		json_bytes(w, word);
}

/* --- schemas from the fields of tasks --------------------------------------------------------------------------------------- */

static void kind_bool(struct json_writer *w, const struct codec_field *f unused)
{
	write_text(w, "type", "boolean");
}

static void kind_i64(struct json_writer *w, const struct codec_field *f)
{
	write_text(w, "type", "integer");
	if (f->min == 0 && f->max == 0)
		return;
	json_key(w, "minimum");
	json_int(w, f->min);
	json_key(w, "maximum");
	json_int(w, f->max);
}

static void kind_f64(struct json_writer *w, const struct codec_field *f unused)
{
	write_text(w, "type", "number");
}

static void kind_text(struct json_writer *w, const struct codec_field *f)
{
	write_text(w, "type", "string");
	if (f->max > 0) {
		json_key(w, "maxLength");
		json_int(w, f->max);
	}
}

static void kind_bytes(struct json_writer *w, const struct codec_field *f unused)
{
	write_text(w, "$ref", "#/components/schemas/bytes");
}

static void kind_content(struct json_writer *w, const struct codec_field *f unused)
{
	write_text(w, "$ref", "#/components/schemas/content");
}

static void kind_id(struct json_writer *w, const struct codec_field *f unused)
{
	write_text(w, "type", "string");
	write_text(w, "pattern", "^[0-9a-f]{24}$");
}

static void kind_record(struct json_writer *w, const struct codec_field *f)
{
	char ref[96];

	snprintf(ref, sizeof(ref), "#/components/schemas/%s", f->record->name);
	write_text(w, "$ref", ref);
}

static void write_max_items(struct json_writer *w, const struct codec_field *f)
{
	if (f->max > 0) {
		json_key(w, "maxItems");
		json_int(w, f->max);
	}
}

static void kind_list(struct json_writer *w, const struct codec_field *f)
{
	write_text(w, "type", "array");
	json_key(w, "items");
	write_ref(w, f->record->name);
	write_max_items(w, f);
}

static void kind_texts(struct json_writer *w, const struct codec_field *f)
{
	write_text(w, "type", "array");
	json_key(w, "items");
	json_raw(w, STR(TEXT));
	write_max_items(w, f);
}

static void kind_json(struct json_writer *w unused, const struct codec_field *f unused)
{
}

/* An array of words, or one text that is split into words. */
static void kind_argv(struct json_writer *w, const struct codec_field *f)
{
	json_key(w, "oneOf");
	json_begin_array(w);
	json_raw(w, STR(TEXT));
	json_begin_object(w);
	kind_texts(w, f);
	json_end_object(w);
	json_end_array(w);
}

static void (*const kinds[CODEC_KIND_N])(struct json_writer *w, const struct codec_field *f) = {
	[CODEC_BOOL] = kind_bool,
	[CODEC_I64] = kind_i64,
	[CODEC_F64] = kind_f64,
	[CODEC_TEXT] = kind_text,
	[CODEC_BYTES] = kind_bytes,
	[CODEC_CONTENT] = kind_content,
	[CODEC_ID] = kind_id,
	[CODEC_RECORD] = kind_record,
	[CODEC_LIST] = kind_list,
	[CODEC_TEXTS] = kind_texts,
	[CODEC_JSON] = kind_json,
	[CODEC_ARGV] = kind_argv,
};

static void write_field(struct json_writer *w, const struct codec_field *f)
{
	bool nullable = f->flags & (CODEC_NULLABLE | CODEC_NULL_PRESET);

	begin(w, f->name);
	write_text(w, "description", f->doc);
	if (f->flags & CODEC_OUTPUT) {
		json_key(w, "readOnly");
		json_bool(w, true);
	}
	if (nullable) {
		json_key(w, "anyOf");
		json_begin_array(w);
		json_begin_object(w);
	}
	kinds[f->kind](w, f);
	if (nullable) {
		json_end_object(w);
		json_raw(w, STR("{\"type\":\"null\"}"));
		json_end_array(w);
	}
	json_end_object(w);
}

static void write_record(struct json_writer *w, const struct codec_record *record)
{
	begin(w, record->name);
	write_text(w, "type", "object");
	begin(w, "properties");
	for (size_t i = 0; i < record->n_fields; i++)
		write_field(w, &record->fields[i]);
	json_end_object(w);
	json_key(w, "required");
	json_begin_array(w);
	for (size_t i = 0; i < record->n_fields; i++) {
		if (record->fields[i].flags & CODEC_REQUIRED)
			json_text(w, record->fields[i].name);
	}
	json_end_array(w);
	json_end_object(w);
}

/* --- schemas from the tables here --------------------------------------------------------------------------------------------- */

static void write_member_schemas(struct json_writer *w)
{
	const char *open = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(member_rows); i++) {
		const struct member_row *row = &member_rows[i];

		if (!open || strcmp(open, row->schema) != 0) {
			if (open) {
				json_end_object(w);
				json_end_object(w);
			}
			begin(w, row->schema);
			write_text(w, "type", "object");
			begin(w, "properties");
			open = row->schema;
		}
		begin(w, row->name);
		write_text(w, "description", row->doc);
		json_key(w, "allOf");
		json_begin_array(w);
		json_raw(w, str_from(row->type));
		json_end_array(w);
		json_end_object(w);
	}
	json_end_object(w);
	json_end_object(w);
}

static void begin_enum(struct json_writer *w, const char *name)
{
	begin(w, name);
	json_key(w, "enum");
	json_begin_array(w);
}

static void end_enum(struct json_writer *w)
{
	json_end_array(w);
	json_end_object(w);
}

static void write_enums(struct json_writer *w)
{
	begin_enum(w, "status");
	for (unsigned i = 0; i < TASK_STATUS_N; i++)
		json_text(w, task_status_name((enum task_status)i));
	end_enum(w);
	begin_enum(w, "verdict");
	for (unsigned i = VERDICT_NONE + 1; i < VERDICT_N; i++)
		json_text(w, verdict_name((enum verdict)i));
	end_enum(w);
	begin_enum(w, "problem_code");
	for (size_t i = 0; i < ARRAY_SIZE(problem_rows); i++)
		write_words(w, problem_rows[i].codes);
	end_enum(w);
}

static void write_components(struct json_writer *w)
{
	begin(w, "components");
	begin(w, "securitySchemes");
	begin(w, "token");
	write_text(w, "type", "http");
	write_text(w, "scheme", "bearer");
	json_end_object(w);
	json_end_object(w);
	begin(w, "schemas");
	json_key(w, "bytes");
	json_raw(w, STR("{\"description\":\"Text, or any bytes.\",\"oneOf\":[" TEXT
			",{\"type\":\"object\",\"properties\":{\"base64\":" TEXT
			"},\"required\":[\"base64\"],\"additionalProperties\":false}]}"));
	json_key(w, "content");
	json_raw(
		w, STR("{\"description\":\"Bytes, or a blob that was uploaded before.\",\"oneOf\":["
		       "{\"$ref\":\"#/components/schemas/bytes\"},{\"type\":\"object\","
		       "\"properties\":{\"blob\":" SHA256
		       "},\"required\":[\"blob\"],\"additionalProperties\":false}]}"));
	for (size_t i = 0; task_record_at(i); i++)
		write_record(w, task_record_at(i));
	write_member_schemas(w);
	write_enums(w);
	json_end_object(w);
	json_end_object(w);
}

/* --- paths ------------------------------------------------------------------------------------------------------------------------ */

static void write_param(struct json_writer *w, const char *in, const char *name, const char *schema,
	const char *doc)
{
	json_begin_object(w);
	write_text(w, "name", name);
	write_text(w, "in", in);
	if (!strcmp(in, "path")) {
		json_key(w, "required");
		json_bool(w, true);
	}
	write_text(w, "description", doc);
	json_key(w, "schema");
	json_raw(w, str_from(schema));
	json_end_object(w);
}

static void write_query_param(struct json_writer *w, struct str name)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(param_rows) && !str_is(name, param_rows[i].name))
		i++;
	CHECK(i < ARRAY_SIZE(param_rows));
	write_param(w, "query", param_rows[i].name, param_rows[i].schema, param_rows[i].doc);
}

static void write_path_params(struct json_writer *w, const char *path)
{
	struct str rest = str_from(path), piece;

	while (str_cut(&rest, '/', &piece)) {
		char name[32];

		if (piece.n < 2 || piece.p[0] != '{')
			continue;
		snprintf(name, sizeof(name), STR_FMT, (int)piece.n - 2, piece.p + 1);
		name[strcspn(name, "*")] = '\0';
		write_param(w, "path", name, TEXT, "Part of the path.");
	}
}

static void write_params(struct json_writer *w, const struct gateway_route *row)
{
	struct str rest = str_from(row->query), name;

	json_key(w, "parameters");
	json_begin_array(w);
	write_path_params(w, row->path);
	while (str_cut(&rest, ',', &name))
		write_query_param(w, name);
	if (row->method == HTTP_POST)
		write_param(w, "header", "Idempotency-Key",
			"{\"type\":\"string\",\"minLength\":1,\"maxLength\":255}",
			"A repeated request with the same key adds nothing.");
	json_end_array(w);
}

static void write_content(struct json_writer *w, const char *type, const char *schema)
{
	begin(w, "content");
	begin(w, type);
	json_key(w, "schema");
	if (schema)
		write_ref(w, schema);
	else
		json_raw(w, STR(TEXT));
	json_end_object(w);
	json_end_object(w);
}

static void write_responses(struct json_writer *w, const struct gateway_route *row)
{
	char status[16];

	snprintf(status, sizeof(status), "%d", row->status);
	begin(w, "responses");
	begin(w, status);
	write_text(w, "description", "Done.");
	write_content(w, row->type ? row->type : TYPE_JSON, row->answer);
	json_end_object(w);
	begin(w, "default");
	write_text(w, "description", "A problem (RFC 9457).");
	write_content(w, "application/problem+json", "problem");
	json_end_object(w);
	json_end_object(w);
}

static void write_security(struct json_writer *w, const struct gateway_route *row)
{
	json_key(w, "security");
	json_begin_array(w);
	if (!(row->allow & ALLOW_EVERYBODY)) {
		json_begin_object(w);
		json_key(w, "token");
		json_begin_array(w);
		json_text(w, "admin");
		if (row->allow & TOKEN_READ)
			json_text(w, "read");
		if (row->allow & TOKEN_SUBMIT)
			json_text(w, "submit");
		json_end_array(w);
		json_end_object(w);
	}
	json_end_array(w);
}

static void write_operation(struct json_writer *w, const struct gateway_route *row)
{
	char method[16];
	size_t n = 0;

	for (const char *p = http_method_name(row->method); *p && n + 1 < sizeof(method); p++)
		method[n++] = (char)tolower((unsigned char)*p);
	method[n] = '\0';
	begin(w, method);
	write_text(w, "summary", row->summary);
	write_security(w, row);
	write_params(w, row);
	if (row->request) {
		begin(w, "requestBody");
		json_key(w, "required");
		json_bool(w, true);
		write_content(w, TYPE_JSON, row->request);
		json_end_object(w);
	}
	write_responses(w, row);
	json_end_object(w);
}

/* {name*} is ours. */
static void begin_path(struct json_writer *w, const char *path)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;

	for (; *path; path++) {
		if (*path != '*')
			buf_add_char(&text, *path);
	}
	begin(w, text.data);
}

/* The rows of a path stand together. */
static void write_paths(struct json_writer *w)
{
	const struct gateway_route *row;
	const char *open = NULL;

	begin(w, "paths");
	for (unsigned i = 0; (row = gateway_route_at(i)); i++) {
		if (!open || strcmp(open, row->path) != 0) {
			if (open)
				json_end_object(w);
			begin_path(w, row->path);
			open = row->path;
		}
		write_operation(w, row);
	}
	json_end_object(w);
	json_end_object(w);
}

void openapi_write(struct buf *out)
{
	struct json_writer *w = json_writer_new(out, false);

	json_begin_object(w);
	write_text(w, "openapi", "3.1.0");
	begin(w, "info");
	write_text(w, "title", "Conclave");
	write_text(w, "summary", "Judges programs.");
	write_text(w, "version", CONCLAVE_VERSION);
	json_end_object(w);
	write_paths(w);
	write_components(w);
	json_end_object(w);
	json_writer_free(w);
}

void openapi_on_get(const struct route_match *match, struct http_request *http)
{
	struct visit *v = visit_new(match->arg, http);
	struct problem problem = {0};

	if (!v)
		return;
	if (query_read(http, NULL, 0, &problem))
		visit_reply(v, 200, TYPE_JSON, buf_str(&v->g->openapi));
	else
		visit_problem(v, &problem);
}
