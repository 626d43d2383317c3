/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doc - help, manual and completion, made of the rows of commands and flags, so they cannot say anything else than the program does.
 */
#include "roles/cli/cli_int.h"

#include <string.h>

static const struct {
	int code;
	const char *prose;
} exits[] = {
	{CLI_OK, "accepted; or the command did what it was told"},
	{CLI_NOT_ACCEPTED, "the task ended with another verdict; doctor: something must be mended; "
			   "hold: somebody else holds it"},
	{CLI_USAGE, "the arguments are wrong, or the judge refused the request"},
	{CLI_UNREACHABLE, "the judge cannot be reached, or not now"},
	{CLI_OURS, "the judge (system_error) or this client failed, not the submission"},
	{CLI_INTERRUPTED, "interrupted while waiting; the task goes on"},
};

static const struct {
	const char *name, *prose;
} variables[] = {
	{"CONCLAVE_TOKEN", "The token to show when there is no --token-file."},
	{"CONCLAVE_URL", "The gateway when there is no --url."},
};

static void help_flags(const struct cli_flags *flags, struct buf *out)
{
	for (size_t i = 0; i < flags->n; i++) {
		const struct cli_flag *f = &flags->rows[i];

		buf_addf(out, "  %s%s%s%s%s%s\n      %s\n", f->letter ? f->letter : "",
			f->letter ? ", " : "", f->name, f->value ? " " : "",
			f->value ? f->value : "", f->marks & FLAG_MANY ? " ..." : "", f->prose);
	}
}

static void help_command(const struct command *c, struct buf *out)
{
	buf_addf(out, "usage: conclave %s%s%s%s\n\n%s.\n", c->name, c->flags.n ? " [FLAG ...]" : "",
		*c->args ? " " : "", c->args, c->summary);
	if (c->prose)
		buf_addf(out, "\n%s\n", c->prose);
	if (c->flags.n) {
		buf_add_str(out, STR("\nflags:\n"));
		help_flags(&c->flags, out);
	}
	buf_add_str(out, STR("\nflags of every command:\n"));
	help_flags(&cli_common_flags, out);
}

static void help_program(struct buf *out)
{
	const struct command *c;

	buf_add_str(out, STR("conclave - command-line client of a Conclave judge\n\n"
			     "usage: conclave COMMAND [FLAG ...] [ARGUMENT ...]\n\ncommands:\n"));
	for (size_t i = 0; (c = command_at(i)); i++)
		buf_addf(out, "  %-11s %s\n", c->name, c->summary);
	buf_add_str(out, STR("\nconclave COMMAND --help says more of one.\n\nflags of every "
			     "command:\n"));
	help_flags(&cli_common_flags, out);
	buf_add_str(out, STR("\nenvironment:\n"));
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
		buf_addf(out, "  %s\n      %s\n", variables[i].name, variables[i].prose);
	buf_add_str(out, STR("\nexit status:\n"));
	for (size_t i = 0; i < ARRAY_SIZE(exits); i++)
		buf_addf(out, "  %-3d %s\n", exits[i].code, exits[i].prose);
}

void doc_help(const struct command *command, struct buf *out)
{
	if (command)
		help_command(command, out);
	else
		help_program(out);
}

/* --- the manual -------------------------------------------------------------------------------------------------------- */

/* Prose as mdoc text: no line may begin with a dot or a quote, no backslash means anything. */
static void man_text(const char *text, struct buf *out)
{
	bool start = true;

	for (; *text; text++) {
		if (start && (*text == '.' || *text == '\''))
			buf_add_str(out, STR("\\&"));
		if (*text == '\\')
			buf_add_str(out, STR("\\e"));
		else if (*text == '-')
			buf_add_str(out, STR("\\-"));
		else
			buf_add_char(out, *text);
		start = *text == '\n';
	}
	buf_add_char(out, '\n');
}

static void man_flags(const struct cli_flags *flags, struct buf *out)
{
	if (!flags->n)
		return;
	buf_add_str(out, STR(".Bl -tag -width Ds\n"));
	for (size_t i = 0; i < flags->n; i++) {
		const struct cli_flag *f = &flags->rows[i];

		buf_addf(out, ".It Fl Fl %s%s%s\n", f->name + 2, f->value ? " Ar " : "",
			f->value ? f->value : "");
		man_text(f->prose, out);
	}
	buf_add_str(out, STR(".El\n"));
}

static void man_command(const struct command *c, struct buf *out)
{
	buf_addf(out, ".Ss conclave %s%s%s\n", c->name, *c->args ? " " : "", c->args);
	man_text(c->summary, out);
	if (c->prose) {
		buf_add_str(out, STR(".Pp\n"));
		man_text(c->prose, out);
	}
	man_flags(&c->flags, out);
}

void doc_man(struct buf *out)
{
	const struct command *c;

	buf_add_str(
		out, STR(".Dd $Mdocdate$\n.Dt CONCLAVE 1\n.Os Conclave\n.Sh NAME\n.Nm conclave\n"
			 ".Nd command-line client of a Conclave judge\n.Sh SYNOPSIS\n.Nm\n"
			 ".Ar COMMAND\n.Op Ar FLAG ...\n.Op Ar ARGUMENT ...\n"
			 ".Sh DESCRIPTION\nSubmits programs to a judge, shows what came of "
			 "them, and looks after a judge on this machine.\n.Sh COMMANDS\n"));
	for (size_t i = 0; (c = command_at(i)); i++)
		man_command(c, out);
	buf_add_str(out, STR(".Sh OPTIONS\nThose of every command:\n"));
	man_flags(&cli_common_flags, out);
	buf_add_str(out, STR(".Sh ENVIRONMENT\n.Bl -tag -width Ds\n"));
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
		buf_addf(out, ".It Ev %s\n", variables[i].name);
		man_text(variables[i].prose, out);
	}
	buf_add_str(out, STR(".El\n.Sh EXIT STATUS\n.Bl -tag -width Ds\n"));
	for (size_t i = 0; i < ARRAY_SIZE(exits); i++)
		buf_addf(out, ".It %d\n%s\n", exits[i].code, exits[i].prose);
	buf_add_str(out, STR(".El\n"));
}

/* --- bash ---------------------------------------------------------------------------------------------------------------- */

static void bash_names(const struct cli_flags *flags, struct buf *out)
{
	for (size_t i = 0; i < flags->n; i++)
		buf_addf(out, " %s", flags->rows[i].name);
}

/* A case of the flags with a value: files are completed, other values are the user's. */
static void bash_values(const struct cli_flags *flags, struct buf *out)
{
	for (size_t i = 0; i < flags->n; i++) {
		const struct cli_flag *f = &flags->rows[i];

		if (f->value)
			buf_addf(out, "\t%s) %sreturn ;;\n", f->name,
				f->marks & FLAG_FILE
					? "compopt -o filenames; COMPREPLY=($(compgen -f -- "
					  "\"$word\")); "
					: "");
	}
}

void doc_bash(struct buf *out)
{
	const struct command *c;

	buf_add_str(
		out, STR("# bash completion of conclave; made by: conclave completion bash\n"
			 "_conclave()\n{\n"
			 "\tlocal word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-"
			 "1]} command= names i\n"
			 "\tCOMPREPLY=()\n"
			 "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
			 "\t\tcase ${COMP_WORDS[i]} in\n\t\t"));
	for (size_t i = 0; (c = command_at(i)); i++)
		buf_addf(out, "%s%s", i ? "|" : "", c->name);
	buf_add_str(out, STR(") command=${COMP_WORDS[i]}; break ;;\n\t\tesac\n\tdone\n"
			     "\tcase $before in\n"));
	bash_values(&cli_common_flags, out);
	buf_add_str(out, STR("\tesac\n\tcase $command,$before in\n"));
	for (size_t i = 0; (c = command_at(i)); i++) {
		struct buf rows cleanup(buf_fini) = BUF_INIT;
		struct str rest, line;

		bash_values(&c->flags, &rows);
		rest = buf_str(&rows);
		while (rows.len && str_cut(&rest, '\n', &line))
			if (line.n)
				buf_addf(out, "\t%s," STR_FMT "\n", c->name, (int)line.n - 1,
					line.p + 1);
	}
	buf_add_str(out, STR("\tesac\n\tcase $command in\n\t\"\") names=\""));
	for (size_t i = 0; (c = command_at(i)); i++)
		buf_addf(out, "%s%s", i ? " " : "", c->name);
	bash_names(&cli_common_flags, out);
	buf_add_str(out, STR("\" ;;\n"));
	for (size_t i = 0; (c = command_at(i)); i++) {
		buf_addf(out, "\t%s) names=\"", c->name);
		if (c == &cmd_completion)
			buf_add_str(out, STR("bash"));
		bash_names(&c->flags, out);
		bash_names(&cli_common_flags, out);
		buf_add_str(out, STR("\" ;;\n"));
	}
	buf_add_str(out, STR("\tesac\n"
			     "\tCOMPREPLY=($(compgen -W \"$names\" -- \"$word\"))\n"
			     "\tif [[ $command == submit && $word != -* ]]; then\n"
			     "\t\tcompopt -o filenames\n"
			     "\t\tCOMPREPLY=($(compgen -f -- \"$word\"))\n"
			     "\tfi\n}\ncomplete -F _conclave conclave\n"));
}
