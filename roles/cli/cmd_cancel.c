/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cancel - ends tasks. Each is tried; the first failure is the exit code.
 */
#include "roles/cli/cli_int.h"

static int cancel(struct cli *cli, const char *id)
{
	struct buf path cleanup(buf_fini) = BUF_INIT, text cleanup(buf_fini) = BUF_INIT;
	struct question question = {.method = "DELETE"};
	struct answer answer;
	int rc;

	if (!cli_id_is_valid(cli, id))
		return CLI_USAGE;
	buf_addf(&path, "/api/v1/tasks/%s", id);
	question.path = path.data;
	rc = cli_ask(cli, &question, &answer);
	if (rc) {
		rc = cli_explain(cli, &answer, rc);
	} else if (cli->json) {
		answer_print(cli, &answer);
	} else {
		ink_add(cli, INK_WARN, STR("cancelled"), &text);
		buf_addf(&text, "  %s\n", id);
		cli_print(cli, &text);
	}
	answer_fini(&answer);
	return rc;
}

static int run(struct cli *cli)
{
	int first = CLI_OK;

	for (size_t i = 0; i < cli->args.n_words; i++) {
		int rc = cancel(cli, cli->args.words[i]);

		if (!first)
			first = rc;
		if (rc == CLI_UNREACHABLE || rc == CLI_INTERRUPTED)
			break;
	}
	return first;
}

const struct command cmd_cancel = {
	.name = "cancel",
	.args = "ID ...",
	.summary = "Cancel tasks",
	.prose = "What has been cancelled may be cancelled again; what had ended otherwise is "
		 "refused.",
	.words_min = 1,
	.words_max = 1000,
	.run = run,
};
