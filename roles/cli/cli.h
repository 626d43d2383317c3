/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli - the command-line client `conclave`: a person's or a script's way to a gateway, and to what runs on this machine.
 *
 * cli_run() is the whole program but for the process around it (main.c), so tests call it with streams of their own.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#define CLI_URL "http://127.0.0.1:7000" /* where `judicator --standalone` answers */

/* What the exit code says. */
enum cli_exit {
	CLI_OK = 0,           /* accepted; or the command did what it was told */
	CLI_NOT_ACCEPTED = 1, /* the task ended with another verdict */
	CLI_USAGE = 2,        /* the arguments, or the judge refused the request */
	CLI_UNREACHABLE = 3,  /* nobody answers, or not now */
	CLI_OURS = 4, /* system_error: the judge failed, not the submission; or this client did */
	CLI_INTERRUPTED = 130 /* ^C while waiting; what was submitted goes on */
};

/* The process as the commands see it; all borrowed. */
struct cli_env {
	FILE *in, *out, *err;
	bool out_is_terminal, err_is_terminal;
	const char *url;     /* CONCLAVE_URL, or NULL */
	const char *token;   /* CONCLAVE_TOKEN, or NULL */
	const char *program; /* path of this executable: what belongs to it is found beside it */
	bool signals;        /* take SIGINT and SIGTERM while waiting */
};

/* argv[0] is the program's name. Returns an enum cli_exit; everything there is to say has been printed. */
int cli_run(const struct cli_env *env, int argc, char **argv);
