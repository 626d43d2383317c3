/* SPDX-License-Identifier: Apache-2.0 */
/*
 * executors - who runs programs, and how busy they are.
 */
#include "roles/cli/cli_int.h"

static void add_languages(struct table *t, const struct json *list)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;

	for (const struct json *l = list ? list->first : NULL; l; l = l->next) {
		buf_add_str(&text, text.len ? STR(" ") : STR(""));
		buf_add_str(&text, l->text);
	}
	table_add(t, buf_str(&text));
}

static void row(struct table *t, const struct json *e)
{
	const struct json *alive = json_get(e, "alive");

	table_add(t, member(e, "name"));
	table_add(t, alive && alive->boolean ? STR("alive") : STR("lost"));
	table_addf(t, "%lld/%lld", (long long)member_i64(e, "running"),
		(long long)member_i64(e, "slots"));
	table_add(t, member(e, "isolation"));
	table_add(t, member(e, "version"));
	add_languages(t, json_get(e, "languages"));
}

static int run(struct cli *cli)
{
	static const char *const headings[] = {
		"name", "state", "running", "isolation", "version", "languages"};

	return cli_list(cli, "/api/v1/executors", "executors", headings, ARRAY_SIZE(headings), row);
}

const struct command cmd_executors = {
	.name = "executors",
	.args = "",
	.summary = "List the executors, with load and languages",
	.run = run,
};
