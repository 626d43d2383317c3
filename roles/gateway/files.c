/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files - the bytes of what belongs to a task, one at a time and raw: what was submitted and what was printed.
 *
 *     compile/NAME, execute/NAME      a submitted file; the source of a language under the file name of its profile
 *     compile/archive.zip, ...        a submitted archive, as it came
 *     compile/stdout, stderr          what the compiler printed, as far as it was kept
 *     cases/N/input, expected         of case N, from 0
 *     cases/N/stdout, stderr          what the program printed there, as far as it was kept
 *
 * A name is percent-decoded once and then compared byte by byte with names that the task has; nothing is ever looked up by it
 * anywhere else, so there is nothing that dots or slashes in it could reach. A submitted file goes before a fixed name.
 *
 * Whatever a submission holds is sent as bytes to be saved, never as something that a browser would show or run in our name.
 */
#include "roles/gateway/gateway_int.h"

#include <stdio.h>

#include "cfg/language.h"

#define TYPE_BYTES "application/octet-stream"

/* --- names ------------------------------------------------------------------------------------------------------------- */

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 32;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* False when a % is not followed by two hexadecimal digits. */
static bool percent_decode(struct str text, struct buf *out)
{
	for (size_t i = 0; i < text.n; i++) {
		int high, low;

		if (text.p[i] != '%') {
			buf_add_char(out, text.p[i]);
			continue;
		}
		high = i + 2 < text.n ? hex_value(text.p[i + 1]) : -1;
		low = i + 2 < text.n ? hex_value(text.p[i + 2]) : -1;
		if (high < 0 || low < 0)
			return false;
		buf_add_char(out, (char)(high << 4 | low));
		i += 2;
	}
	return true;
}

/* --- where a name leads ---------------------------------------------------------------------------------------------------- */

struct parts {
	const struct json *doc, *result; /* result NULL: not done */
	const char *source;              /* file name of the task's language; NULL = raw commands */
};

static const struct json *file_named(const struct json *phase, struct str name)
{
	const struct json *files = json_get(phase, "files");

	for (const struct json *file = files ? files->first : NULL; file; file = file->next) {
		const struct json *its = json_get(file, "name");

		if (its && str_eq(its->text, name))
			return json_get(file, "content");
	}
	return NULL;
}

static const struct json *printed(const struct json *phase, struct str name)
{
	if (str_is(name, "stdout") || str_is(name, "stderr"))
		return json_get(phase, name.p[3] == 'o' ? "stdout" : "stderr");
	return NULL;
}

static const struct json *in_compile(const struct parts *parts, struct str name)
{
	const struct json *phase = json_get(parts->doc, "compile"), *found;

	found = file_named(phase, name);
	if (!found && parts->source && str_is(name, parts->source))
		found = json_get(phase, "source");
	if (!found && str_is(name, "archive.zip"))
		found = json_get(phase, "archive");
	return found ? found : printed(json_get(parts->result, "compile"), name);
}

static const struct json *in_execute(const struct parts *parts, struct str name)
{
	const struct json *phase = json_get(parts->doc, "execute");
	const struct json *found = file_named(phase, name);

	return !found && str_is(name, "archive.zip") ? json_get(phase, "archive") : found;
}

/* Item `number` of the list, written without signs and zeros before it. */
static const struct json *item_at(const struct json *list, struct str number)
{
	char digits[24];
	size_t i = 0;

	for (const struct json *it = list ? list->first : NULL; it; it = it->next, i++) {
		snprintf(digits, sizeof(digits), "%zu", i);
		if (str_is(number, digits))
			return it;
	}
	return NULL;
}

static const struct json *in_cases(const struct parts *parts, struct str name)
{
	const struct json *task_case, *its_result;
	struct str number;

	if (!str_cut(&name, '/', &number) || !name.p)
		return NULL;
	task_case = item_at(json_get(parts->doc, "cases"), number);
	its_result = item_at(json_get(parts->result, "cases"), number);
	if (str_is(name, "input"))
		return json_get(task_case, "input");
	if (str_is(name, "expected"))
		return json_get(task_case, "expected");
	return printed(its_result, name);
}

static const struct {
	const char *folder;
	const struct json *(*find)(const struct parts *parts, struct str name);
} folders[] = {
	{"cases", in_cases},
	{"compile", in_compile},
	{"execute", in_execute},
};

static const struct json *find_content(const struct parts *parts, struct str name)
{
	struct str folder;

	if (!str_cut(&name, '/', &folder) || !name.n)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		if (str_is(folder, folders[i].folder))
			return folders[i].find(parts, name);
	}
	return NULL;
}

/* --- the answer -------------------------------------------------------------------------------------------------------------- */

/* How a browser should call it: the last part of its name (RFC 8187). */
static void add_name(struct visit *v, struct str name)
{
	static const char plain[] = "!#$&+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct str last;

	while (str_cut(&name, '/', &last) && name.p)
		;
	buf_add_str(&text, STR("attachment; filename*=UTF-8''"));
	for (size_t i = 0; i < last.n; i++) {
		if (memchr(plain, last.p[i], sizeof(plain) - 1))
			buf_add_char(&text, last.p[i]);
		else
			buf_addf(&text, "%%%02X", (unsigned char)last.p[i]);
	}
	http_request_add_header(v->http, "Content-Disposition", text.data);
	http_request_add_header(v->http, "X-Content-Type-Options", "nosniff");
}

static void reply_missing(struct visit *v)
{
	visit_fail(v, 404, "file_unknown",
		"The task has no such file (yet): see the names in the description of this "
		"interface.");
}

/* Content is a string, or an object that says how else it is written. */
static void reply_content(struct visit *v, const struct json *content, struct str name)
{
	const struct json *base64 = json_get(content, "base64");
	const struct json *blob = json_get(content, "blob");
	struct buf bytes cleanup(buf_fini) = BUF_INIT;

	if (content && content->type == JSON_STRING) {
		add_name(v, name);
		visit_reply(v, 200, TYPE_BYTES, content->text);
	} else if (blob) {
		add_name(v, name);
		blobs_send(v, blob->text, true); /* who may see the task may see it */
	} else if (base64 && base64_decode(base64->text, &bytes)) {
		add_name(v, name);
		visit_reply(v, 200, TYPE_BYTES, buf_str(&bytes));
	} else {
		reply_missing(v);
	}
}

static void on_got(void *arg, struct rpc_answer *answer)
{
	struct visit *v = arg;
	const struct msg_get_reply *reply = answer->reply;
	const struct msg_task_view *task;
	const struct language *language;
	struct str name = buf_str(&v->plain);
	struct parts parts;

	if (answer->failure != RPC_OK) {
		visit_problem(v, &answer->problem);
		return;
	}
	task = reply->tasks.count ? codec_item(reply->tasks, struct msg_task_view, 0) : NULL;
	if (!task || !access_may_read(v, task->user)) {
		tasks_reply_missing(v);
		return;
	}
	language = map_get(v->g->languages, task->language);
	parts = (struct parts){
		task->doc.node, task->result.node, language ? language->source : NULL};
	reply_content(v, find_content(&parts, name), name);
}

void files_on_get(const struct route_match *match, struct http_request *http)
{
	struct visit *v = visit_new(match->arg, http);

	if (!v || !tasks_read_plain(v, match))
		return;
	if (!percent_decode(match->params[1], &v->plain)) {
		reply_missing(v);
		return;
	}
	v->item = (struct msg_get_item){.id = v->id};
	v->request.get = (struct msg_get_request){.items = {&v->item, 1}, .doc = true};
	ask_start(&v->ask, v->g, RPC_get, &v->request.get, READ_BUDGET_US, on_got, v);
}
