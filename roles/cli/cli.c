/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli - the program: which commands there are, and what surrounds each of them.
 *
 * A command is a function from arguments to an exit code. It owns nothing beyond its own call: the loop and the HTTP client are made
 * when the first question is asked, and go when the program ends. Commands wait by turning the loop until what they wait for has
 * come (ask.c, follow.c), since one person waits for one thing; ^C ends the waiting, never the task.
 */
#include "roles/cli/cli_int.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/signal.h"
#include "reactor/timer.h"

static const struct command *const commands[] = {
	&cmd_cancel,
	&cmd_completion,
	&cmd_doctor,
	&cmd_executors,
	&cmd_get,
	&cmd_hold,
	&cmd_judicators,
	&cmd_languages,
	&cmd_list,
	&cmd_services,
	&cmd_submit,
	&cmd_watch,
};

const struct command *command_at(size_t i)
{
	return i < ARRAY_SIZE(commands) ? commands[i] : NULL;
}

int cli_fail(const struct cli *cli, int code, const char *fmt, ...)
{
	struct buf text cleanup(buf_fini) = BUF_INIT, safe cleanup(buf_fini) = BUF_INIT;
	va_list ap;

	va_start(ap, fmt);
	buf_vaddf(&text, fmt, ap);
	va_end(ap);
	text_safe(buf_str(&text), true, &safe);
	fprintf(cli->env->err, "conclave: %s\n", safe.data ? safe.data : "");
	return code;
}

static void on_signal(void *arg, int signum unused)
{
	struct cli *cli = arg;

	cli->interrupted = true;
}

struct loop *cli_loop(struct cli *cli)
{
	if (cli->loop)
		return cli->loop;
	cli->loop = loop_new(NULL);
	if (cli->env->signals) {
		cli->on_int = signal_new(cli->loop, SIGINT, on_signal, cli);
		cli->on_term = signal_new(cli->loop, SIGTERM, on_signal, cli);
	}
	return cli->loop;
}

static void on_time(void *arg)
{
	*(bool *)arg = true;
}

bool cli_pause(struct cli *cli, int64_t us)
{
	struct loop *loop = cli_loop(cli);
	struct timer timer;
	bool over = false;

	timer_init(&timer, loop, on_time, &over);
	timer_start(&timer, us);
	while (!over && !cli->interrupted)
		loop_turn(loop, US_PER_S);
	timer_stop(&timer);
	return !cli->interrupted;
}

void cli_print(const struct cli *cli, const struct buf *text)
{
	fwrite(text->data, 1, text->len, cli->env->out);
	fflush(cli->env->out);
}

/* --- what is only printed ------------------------------------------------------------------------ */

static void doc_version(struct buf *out)
{
	buf_add_str(out, STR("conclave " CONCLAVE_VERSION "\n"));
}

/* True when a text was asked for and nothing else. */
static bool print_wanted(const struct cli *cli)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;

	if (cli_has(cli, "--help"))
		doc_help(cli->command, &text);
	else if (cli_has(cli, "--man"))
		doc_man(&text);
	else if (cli_has(cli, "--version"))
		doc_version(&text);
	else
		return false;
	cli_print(cli, &text);
	return true;
}

static int set_color(struct cli *cli)
{
	const char *when = cli_value(cli, "--color");

	if (!when || strcmp(when, "auto") == 0)
		cli->color = cli->env->out_is_terminal;
	else if (strcmp(when, "always") == 0)
		cli->color = true;
	else if (strcmp(when, "never") != 0)
		return cli_fail(cli, CLI_USAGE, "--color %s: auto, always or never", when);
	return 0;
}

static int run(struct cli *cli)
{
	int rc = set_color(cli);

	cli->json = cli_has(cli, "--json");
	if (rc || print_wanted(cli))
		return rc;
	if (cli->command)
		return cli->command->run(cli);
	return cli_fail(cli, CLI_USAGE,
		"which command? conclave --help lists them; to begin: conclave "
		"doctor, conclave submit FILE");
}

static void cli_fini(struct cli *cli)
{
	http_client_free(cli->client);
	signal_free(cli->on_int);
	signal_free(cli->on_term);
	loop_free(cli->loop);
	for (size_t i = 0; i < cli->n_addresses; i++)
		free(cli->addresses[i]);
	http_tls_free(cli->tls);
	free(cli->host);
	free(cli->authority);
	free(cli->prefix);
	free(cli->authorization);
	cli_args_fini(&cli->args);
}

int cli_run(const struct cli_env *env, int argc, char **argv)
{
	struct cli cli = {.env = env};
	int rc = cli_parse(&cli, argc, argv);

	if (!rc)
		rc = run(&cli);
	if (fflush(env->out) != 0 && !rc)
		rc = cli_fail(&cli, CLI_OURS, "the output could not be written");
	cli_fini(&cli);
	return rc;
}
