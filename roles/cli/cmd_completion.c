/* SPDX-License-Identifier: Apache-2.0 */
/*
 * completion - prints what teaches a shell our commands and flags.
 */
#include "roles/cli/cli_int.h"

#include <string.h>

static int run(struct cli *cli)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;

	if (strcmp(cli->args.words[0], "bash") != 0)
		return cli_fail(cli, CLI_USAGE, "%s: only bash is known: conclave completion bash",
			cli->args.words[0]);
	doc_bash(&text);
	cli_print(cli, &text);
	return CLI_OK;
}

const struct command cmd_completion = {
	.name = "completion",
	.args = "bash",
	.summary = "Print the completion for a shell",
	.prose = "To use it: source <(conclave completion bash)",
	.words_min = 1,
	.words_max = 1,
	.run = run,
};
