/* SPDX-License-Identifier: Apache-2.0 */
/*
 * languages - what may be submitted: the profiles, the extensions they go by, and the executors that offer them.
 */
#include "roles/cli/cli_int.h"

static void row(struct table *t, const struct json *l)
{
	const struct json *extensions = json_get(l, "extensions");
	const struct json *executors = json_get(l, "executors");
	struct buf text cleanup(buf_fini) = BUF_INIT;

	for (const struct json *e = extensions ? extensions->first : NULL; e; e = e->next) {
		buf_add_str(&text, text.len ? STR(" .") : STR("."));
		buf_add_str(&text, e->text);
	}
	table_add(t, member(l, "name"));
	table_add(t, member(l, "title"));
	table_add(t, buf_str(&text));
	table_addf(t, "%zu", executors ? executors->count : 0);
	table_add(t, executors && executors->first ? member(executors->first, "version") : STR(""));
}

static int run(struct cli *cli)
{
	static const char *const headings[] = {
		"name", "title", "extensions", "executors", "version"};

	return cli_list(cli, "/api/v1/languages", "languages", headings, ARRAY_SIZE(headings), row);
}

const struct command cmd_languages = {
	.name = "languages",
	.args = "",
	.summary = "List the languages, with versions and who offers them",
	.run = run,
};
