/* SPDX-License-Identifier: Apache-2.0 */
/*
 * args - the command line of the daemons, what is left of it after cfg_load_argv() has taken the options. One row a flag
 * in args.c; --help and the manual come from the rows.
 */
#pragma once

#include "cfg/cfg.h"

struct args {
	const char *config;  /* -c FILE, or NULL */
	const char *dir;     /* --dir DIR, or NULL */
	const char *service; /* --service NAME, or NULL: we are boot */
	const char *worker;  /* --worker N, or NULL: the service itself */
	bool standalone, check, sample, man, help, version;
};

/* What is wrong is added to errors. Values are borrowed from argv. `standalone` = this program knows --standalone. */
void args_parse(
	struct args *args, int argc, char **argv, bool standalone, struct cfg_errors *errors);
void args_doc_help(struct buf *out, bool standalone);
void args_doc_man(struct buf *out, bool standalone); /* mdoc list */
