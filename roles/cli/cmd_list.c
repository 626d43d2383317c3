/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list - tasks, newest first. A page at a time, or with --all page after page until the end: pages are printed as they come, so
 * memory does not grow with the list.
 */
#include "roles/cli/cli_int.h"

#include <string.h>

static const struct cli_flag flags[] = {
	{"--after", NULL, "CURSOR", 0, "The page behind; what the page before named."},
	{"--all", NULL, NULL, 0, "All pages."},
	{"--count", "-n", "N", 0, "Tasks a page, 1 to 1000; 50 without."},
	{"--filter", NULL, "NAME=VALUE", FLAG_MANY, "Any other filter the gateway knows."},
	{"--label", NULL, "LABEL", 0, "With this label."},
	{"--language", "-l", "NAME", 0, "Of this language."},
	{"--order", NULL, "ORDER", 0, "desc (newest first; the default) or asc."},
	{"--status", NULL, "STATUS", 0, "In this state: pending, running, success, ..."},
	{"--user", NULL, "NAME", 0, "Submitted by this user."},
};

static const struct {
	const char *flag, *parameter;
} filters[] = {
	{"--count", "limit"},
	{"--label", "label"},
	{"--language", "language"},
	{"--order", "order"},
	{"--status", "status"},
	{"--user", "user"},
};

static void add_parameter(struct str name, struct str value, struct buf *path)
{
	buf_add_char(path, strchr(path->data, '?') ? '&' : '?');
	url_escape(name, path);
	buf_add_char(path, '=');
	url_escape(value, path);
}

static int build_path(const struct cli *cli, struct str after, struct buf *path)
{
	const char *value;

	buf_add_str(path, STR("/api/v1/tasks"));
	for (size_t i = 0; i < ARRAY_SIZE(filters); i++) {
		value = cli_value(cli, filters[i].flag);
		if (value)
			add_parameter(str_from(filters[i].parameter), str_from(value), path);
	}
	for (size_t i = 0; (value = cli_value_at(cli, "--filter", i)); i++) {
		struct str rest = str_from(value), name;

		if (!str_cut(&rest, '=', &name) || !rest.p || !name.n)
			return cli_fail(cli, CLI_USAGE, "--filter %s: write NAME=VALUE", value);
		add_parameter(name, rest, path);
	}
	if (after.n)
		add_parameter(STR("after"), after, path);
	return 0;
}

static void add_row(struct table *t, const struct json *task)
{
	static const char *const columns[] = {
		"id", "status", "verdict", "language", "user", "executor", "add_time"};

	for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
		table_add(t, member(task, columns[i]));
}

static void print_page(const struct cli *cli, const struct json *page)
{
	static const char *const headings[] = {
		"id", "status", "verdict", "language", "user", "executor", "added"};
	const struct json *tasks = json_get(page, "tasks");
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct table t = {.columns = ARRAY_SIZE(headings)};

	for (size_t i = 0; i < ARRAY_SIZE(headings); i++)
		table_add(&t, str_from(headings[i]));
	for (const struct json *task = tasks ? tasks->first : NULL; task; task = task->next)
		add_row(&t, task);
	if (tasks && tasks->count)
		table_print(cli, &t, &text);
	if (text.len)
		cli_print(cli, &text);
	table_fini(&t);
}

/* One page; *next = where the following begins, empty at the end. */
static int page(struct cli *cli, struct str after, struct buf *next)
{
	struct buf path cleanup(buf_fini) = BUF_INIT;
	struct question question = {.method = "GET"};
	struct answer answer;
	int rc = build_path(cli, after, &path);

	if (rc)
		return rc;
	question.path = path.data;
	rc = cli_ask(cli, &question, &answer);
	if (rc)
		rc = cli_explain(cli, &answer, rc);
	else if (cli->json)
		answer_print(cli, &answer);
	else
		print_page(cli, answer.json);
	buf_add_str(next, rc ? STR("") : member(answer.json, "next"));
	answer_fini(&answer);
	return rc;
}

static int run(struct cli *cli)
{
	struct buf after cleanup(buf_fini) = BUF_INIT;
	bool all = cli_has(cli, "--all");
	int rc;

	buf_add_str(&after, str_from(cli_value(cli, "--after")));
	do {
		struct buf next cleanup(buf_fini) = BUF_INIT;

		rc = page(cli, buf_str(&after), &next);
		buf_clear(&after);
		buf_add_str(&after, buf_str(&next));
	} while (!rc && all && after.len);
	if (!rc && !all && after.len && !cli->json)
		fprintf(cli->env->err, "there are more: --all, or --after '%s'\n", after.data);
	return rc;
}

const struct command cmd_list = {
	.name = "list",
	.args = "",
	.summary = "List tasks",
	.flags = {flags, ARRAY_SIZE(flags)},
	.run = run,
};
