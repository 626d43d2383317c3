/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch - follows a task until it is done: a line a change on standard error, the result at the end. With --json every changed
 * answer is a line on standard output, the last one being the result.
 */
#include "roles/cli/cli_int.h"

static const struct cli_flag flags[] = {
	{"--output", "-o", NULL, 0, "Show what was printed in every case."},
};

static int run(struct cli *cli)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct answer answer;
	int rc;

	if (!cli_id_is_valid(cli, cli->args.words[0]))
		return CLI_USAGE;
	rc = cli_follow(cli, cli->args.words[0], FOLLOW_LINES, &answer);
	if (answer.json && answer.status == 200 && !cli->json) {
		render_task(cli, answer.json, cli_has(cli, "--output"), &text);
		cli_print(cli, &text);
	}
	answer_fini(&answer);
	return rc;
}

const struct command cmd_watch = {
	.name = "watch",
	.args = "ID",
	.summary = "Follow a task until it is done",
	.prose = "The exit code says whether it was accepted.",
	.flags = {flags, ARRAY_SIZE(flags)},
	.words_min = 1,
	.words_max = 1,
	.run = run,
};
