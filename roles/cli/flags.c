/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flags - the command line, read by the rows of the command's flags and of those common to all.
 *
 * `conclave [FLAG ...] COMMAND [FLAG ... | WORD ...]`: the first word that is no flag is the command; before it only the common flags
 * are known. A value stands behind "=" or in the next argument, which may begin with one dash ("-" is standard input, "-5"
 * a priority), not with two. "--" ends the flags. All values are kept as they were given; what they mean is the command's
 * affair. Nothing is copied: argv outlives us.
 */
#include "roles/cli/cli_int.h"

#include <stdlib.h>
#include <string.h>

#include "cfg/suggest.h"
#include "reactor/base/mem.h"

static const struct cli_flag common[] = {
	{"--cacert", NULL, "FILE", FLAG_FILE,
		"Believe a gateway (https) whose certificate these certify (PEM), instead of those "
		"the system trusts."},
	{"--color", NULL, "WHEN", 0, "Colours: auto (on a terminal; the default), always, never."},
	{"--help", "-h", NULL, 0, "What there is, or how the command is used."},
	{"--json", NULL, NULL, 0, "Print the judge's answers as they came."},
	{"--man", NULL, NULL, 0, "Print the manual page (mdoc)."},
	{"--token-file", NULL, "FILE", FLAG_FILE,
		"File whose first line is the token to show; else CONCLAVE_TOKEN of the "
		"environment."},
	{"--url", NULL, "URL", 0,
		"The gateway, http:// or https://; else CONCLAVE_URL of the environment, "
		"else " CLI_URL "."},
	{"--version", "-V", NULL, 0, "Print the version."},
};

const struct cli_flags cli_common_flags = {common, ARRAY_SIZE(common)};

static const struct cli_flag *find_in(const struct cli_flags *flags, struct str word)
{
	for (size_t i = 0; i < flags->n; i++) {
		const struct cli_flag *f = &flags->rows[i];

		if (str_is(word, f->name) || (f->letter && str_is(word, f->letter)))
			return f;
	}
	return NULL;
}

static const struct cli_flag *find(const struct cli *cli, struct str word)
{
	const struct cli_flag *flag = cli->command ? find_in(&cli->command->flags, word) : NULL;

	return flag ? flag : find_in(&cli_common_flags, word);
}

static void offer_all(struct suggest *s, const struct cli_flags *flags)
{
	for (size_t i = 0; i < flags->n; i++)
		suggest_offer(s, str_from(flags->rows[i].name), &flags->rows[i]);
}

static int refuse_flag(const struct cli *cli, struct str word)
{
	const char *command = cli->command ? cli->command->name : "";
	const struct cli_flag *near;
	struct suggest s;

	suggest_init(&s, word);
	offer_all(&s, &cli_common_flags);
	if (cli->command)
		offer_all(&s, &cli->command->flags);
	near = suggest_best(&s);
	if (near)
		return cli_fail(cli, CLI_USAGE, STR_FMT ": no such flag; did you mean %s?",
			STR_ARG(word), near->name);
	return cli_fail(cli, CLI_USAGE, STR_FMT ": no such flag%s; try: conclave %s%s--help",
		STR_ARG(word), cli->command ? "" : " before the command", command,
		*command ? " " : "");
}

static int refuse_command(const struct cli *cli, struct str word)
{
	const struct command *near, *c;
	struct suggest s;

	suggest_init(&s, word);
	for (size_t i = 0; (c = command_at(i)); i++)
		suggest_offer(&s, str_from(c->name), c);
	near = suggest_best(&s);
	if (near)
		return cli_fail(cli, CLI_USAGE, STR_FMT ": no such command; did you mean %s?",
			STR_ARG(word), near->name);
	return cli_fail(
		cli, CLI_USAGE, STR_FMT ": no such command; try: conclave --help", STR_ARG(word));
}

static int take_word(struct cli *cli, const char *word)
{
	const struct command *c;

	if (cli->command) {
		cli->args.words[cli->args.n_words++] = word;
		return 0;
	}
	for (size_t i = 0; (c = command_at(i)); i++) {
		if (strcmp(c->name, word) == 0) {
			cli->command = c;
			return 0;
		}
	}
	return refuse_command(cli, str_from(word));
}

/* argv[i] is a flag; *i moves on when its value is the next argument. */
static int take_flag(struct cli *cli, int argc, char **argv, int *i)
{
	const char *arg = argv[*i];
	size_t n = arg[1] == '-' ? strcspn(arg, "=") : strlen(arg);
	const char *value = arg[n] == '=' ? arg + n + 1 : NULL;
	const struct cli_flag *flag = find(cli, (struct str){arg, n});

	if (!flag)
		return refuse_flag(cli, (struct str){arg, n});
	if (!flag->value && value)
		return cli_fail(cli, CLI_USAGE, "%s takes no value", flag->name);
	if (flag->value && !value) {
		if (*i + 1 >= argc || strncmp(argv[*i + 1], "--", 2) == 0)
			return cli_fail(cli, CLI_USAGE, "%s needs a value: %s %s", flag->name,
				flag->name, flag->value);
		value = argv[++*i];
	}
	cli->args.given[cli->args.n_given++] = (struct cli_given){flag, value};
	return 0;
}

static int check_words(const struct cli *cli)
{
	const struct command *c = cli->command;
	size_t n = cli->args.n_words;

	if (!c || cli_has(cli, "--help") || (n >= c->words_min && n <= c->words_max))
		return 0;
	if (n > c->words_max)
		return cli_fail(cli, CLI_USAGE, "%s: one argument too many; usage: conclave %s%s%s",
			cli->args.words[c->words_max], c->name, *c->args ? " " : "", c->args);
	return cli_fail(
		cli, CLI_USAGE, "something is missing; usage: conclave %s %s", c->name, c->args);
}

int cli_parse(struct cli *cli, int argc, char **argv)
{
	bool flags = true;
	int rc = 0;

	cli->args.given = mem_array((size_t)argc + 1, sizeof(*cli->args.given));
	cli->args.words = mem_array((size_t)argc + 1, sizeof(*cli->args.words));
	for (int i = 1; i < argc && !rc; i++) {
		if (flags && strcmp(argv[i], "--") == 0)
			flags = false;
		else if (flags && argv[i][0] == '-' && argv[i][1])
			rc = take_flag(cli, argc, argv, &i);
		else
			rc = take_word(cli, argv[i]);
	}
	return rc ? rc : check_words(cli);
}

void cli_args_fini(struct cli_args *args)
{
	free(args->given);
	free(args->words);
	*args = (struct cli_args){0};
}

bool cli_has(const struct cli *cli, const char *flag)
{
	for (size_t i = 0; i < cli->args.n_given; i++)
		if (strcmp(cli->args.given[i].flag->name, flag) == 0)
			return true;
	return false;
}

const char *cli_value(const struct cli *cli, const char *flag)
{
	const char *value = NULL;

	for (size_t i = 0; i < cli->args.n_given; i++)
		if (strcmp(cli->args.given[i].flag->name, flag) == 0)
			value = cli->args.given[i].value;
	return value;
}

const char *cli_value_at(const struct cli *cli, const char *flag, size_t n)
{
	for (size_t i = 0; i < cli->args.n_given; i++)
		if (strcmp(cli->args.given[i].flag->name, flag) == 0 && n-- == 0)
			return cli->args.given[i].value;
	return NULL;
}
