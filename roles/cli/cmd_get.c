/* SPDX-License-Identifier: Apache-2.0 */
/*
 * get - a task as it is now.
 */
#include "roles/cli/cli_int.h"

static const struct cli_flag flags[] = {
	{"--output", "-o", NULL, 0, "Show what was printed in every case."},
};

static int run(struct cli *cli)
{
	struct buf path cleanup(buf_fini) = BUF_INIT, text cleanup(buf_fini) = BUF_INIT;
	struct question question = {.method = "GET"};
	struct answer answer;
	int rc;

	if (!cli_id_is_valid(cli, cli->args.words[0]))
		return CLI_USAGE;
	buf_addf(&path, "/api/v1/tasks/%s", cli->args.words[0]);
	question.path = path.data;
	rc = cli_ask(cli, &question, &answer);
	if (rc) {
		rc = cli_explain(cli, &answer, rc);
	} else if (cli->json) {
		answer_print(cli, &answer);
	} else {
		render_task(cli, answer.json, cli_has(cli, "--output"), &text);
		cli_print(cli, &text);
	}
	answer_fini(&answer);
	return rc;
}

const struct command cmd_get = {
	.name = "get",
	.args = "ID",
	.summary = "Show a task as it is now",
	.prose = "The exit code is 0 whatever the verdict; that of watch tells it.",
	.flags = {flags, ARRAY_SIZE(flags)},
	.words_min = 1,
	.words_max = 1,
	.run = run,
};
