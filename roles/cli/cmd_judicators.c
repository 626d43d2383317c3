/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judicators - who keeps the tasks, and which of them leads.
 */
#include "roles/cli/cli_int.h"

static void row(struct table *t, const struct json *j)
{
	const struct json *leading = json_get(j, "leading");

	table_add(t, member(j, "name"));
	table_add(t, member(j, "address"));
	table_add(t, leading && leading->boolean ? STR("leads") : STR("serves"));
	table_add(t, member(j, "store"));
	table_add(t, member(j, "version"));
}

static int run(struct cli *cli)
{
	static const char *const headings[] = {"name", "address", "role", "store", "version"};

	return cli_list(
		cli, "/api/v1/judicators", "judicators", headings, ARRAY_SIZE(headings), row);
}

const struct command cmd_judicators = {
	.name = "judicators",
	.args = "",
	.summary = "List the judicators",
	.run = run,
};
