/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submit - sends a program to be judged, and waits for its verdict when a person looks on or --wait is given.
 *
 * Three questions: which languages there are (the extension says which one it is), the submission itself, and, when waiting, how it
 * gets on. The submission always carries an idempotency key, chosen here unless given, so asking twice never makes two tasks.
 */
#include "roles/cli/cli_int.h"

#include "reactor/loop.h"

static const struct cli_flag flags[] = {
	{"--case", NULL, "IN:OUT", FLAG_MANY | FLAG_FILE,
		"A case: a file of input and one of expected output; an empty OUT takes any "
		"output."},
	{"--checker", NULL, "KIND", 0,
		"How outputs are compared: lines (the default), exact, tokens; parameters follow "
		"as "
		",NAME=NUMBER."},
	{"--command", NULL, "COMMAND", 0,
		"What is run, split like a shell would but without one; without --language the "
		"files "
		"lie beside it."},
	{"--compile-command", NULL, "COMMAND", 0, "What compiles, in place of the language's own."},
	{"--expect", "-e", "FILE", FLAG_FILE, "Expected output; - is standard input."},
	{"--input", "-i", "FILE", FLAG_FILE, "Standard input of the program; - is ours."},
	{"--key", NULL, "KEY", 0,
		"Idempotency key: submitting again with the same one gives the same task."},
	{"--label", NULL, "LABEL", FLAG_MANY, "A word to find the task by."},
	{"--language", "-l", "NAME", 0, "The language; else by the file's extension."},
	{"--limit", NULL, "NAME=VALUE", FLAG_MANY,
		"A limit of the run, like cpu_ms=1000, wall_ms=5s or memory_bytes=256MiB; "
		"compile.NAME is one of the compiler."},
	{"--no-wait", NULL, NULL, 0,
		"Print the id and end; the default when no terminal looks on."},
	{"--output", "-o", NULL, 0, "Show what was printed in every case."},
	{"--priority", NULL, "N", 0, "-100 to 100; higher is run earlier."},
	{"--stop-on-failure", NULL, NULL, 0,
		"Do not run the cases behind the first that is not accepted."},
	{"--user", NULL, "NAME", 0, "Who submits."},
	{"--wait", "-w", NULL, 0, "Wait for the verdict; the default on a terminal."},
};

static int ask_languages(struct cli *cli, struct answer *answer)
{
	const struct question question = {.method = "GET", .path = "/api/v1/languages"};
	int rc = cli_ask(cli, &question, answer);

	return rc ? cli_explain(cli, answer, rc) : 0;
}

static int build(struct cli *cli, struct buf *body)
{
	struct answer answer;
	int rc = ask_languages(cli, &answer);

	if (!rc)
		rc = submit_body(cli, answer.json, body);
	answer_fini(&answer);
	return rc;
}

static int add(struct cli *cli, const struct buf *body, struct answer *answer)
{
	char random[40];
	const char *key = cli_value(cli, "--key");
	struct question question = {
		.method = "POST",
		.path = "/api/v1/tasks",
		.body = buf_str(body),
		.key = key ? key : random,
	};
	int rc;

	snprintf(random, sizeof(random), "cli-%016llx%016llx",
		(unsigned long long)loop_random(cli_loop(cli)),
		(unsigned long long)loop_random(cli_loop(cli)));
	rc = cli_ask(cli, &question, answer);
	if (!rc && !member(answer->json, "id").n)
		rc = CLI_UNREACHABLE;
	return rc ? cli_explain(cli, answer, rc) : 0;
}

static int print_added(struct cli *cli, const struct answer *answer)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;

	if (cli->json) {
		answer_print(cli, answer);
		return CLI_OK;
	}
	text_safe(member(answer->json, "id"), false, &text);
	buf_add_char(&text, '\n');
	cli_print(cli, &text);
	return CLI_OK;
}

static int wait_for(struct cli *cli, const char *id)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct answer answer;
	int rc = cli_follow(
		cli, id, cli->env->err_is_terminal ? FOLLOW_PROGRESS : FOLLOW_QUIET, &answer);

	if (answer.json && answer.status == 200) {
		if (cli->json) {
			answer_print(cli, &answer);
		} else {
			render_task(cli, answer.json, cli_has(cli, "--output"), &text);
			cli_print(cli, &text);
		}
	}
	answer_fini(&answer);
	return rc;
}

static bool waits(const struct cli *cli)
{
	if (cli_has(cli, "--no-wait"))
		return false;
	return cli_has(cli, "--wait") || cli->env->out_is_terminal;
}

static int run(struct cli *cli)
{
	struct buf body cleanup(buf_fini) = BUF_INIT;
	struct answer answer = {0};
	int rc;

	if (cli_has(cli, "--wait") && cli_has(cli, "--no-wait"))
		return cli_fail(cli, CLI_USAGE, "either --wait or --no-wait");
	rc = build(cli, &body);
	if (!rc)
		rc = add(cli, &body, &answer);
	if (!rc && waits(cli))
		rc = wait_for(cli, member(answer.json, "id").p);
	else if (!rc)
		rc = print_added(cli, &answer);
	answer_fini(&answer);
	return rc;
}

const struct command cmd_submit = {
	.name = "submit",
	.args = "FILE|DIRECTORY|-",
	.summary = "Send a program to be judged",
	.prose =
		"A file is the source of the language its extension tells. Of a directory "
		"everything is "
		"sent but names with a dot in front; its main source is the one the language calls "
		"so "
		"(main.cpp), or the only one there is. The exit code says whether it was accepted.",
	.flags = {flags, ARRAY_SIZE(flags)},
	.words_min = 1,
	.words_max = 1,
	.run = run,
};
