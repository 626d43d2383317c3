/* SPDX-License-Identifier: Apache-2.0 */
/*
 * language - the profiles of cfg/languages/NAME.ini: how a language is compiled and run.
 *
 *   [language]   title = C++17 (g++)     source = main.cpp     extensions = cpp cc (optional)
 *   [compile]    argv = one argument a line (repeat the key); absent for languages that are not compiled
 *                limits: cpu_factor = 1.5, memory_bytes = 2GiB (optional overrides of the defaults)
 *   [run]        argv = one argument a line; cpu_factor, processes, memory_extra = 64MiB (optional)
 *   [version]    argv = command whose first line of output tells the toolchain's version
 *   [environment] NAME = value
 *
 * {source} and {memory_mb} in an argument are replaced; there is no shell and no search in PATH: the first
 * argument of each command holds a slash. The name `raw` is taken. Adding a language is adding a
 * file. All problems of a file are reported at once with file and line, as cfg does.
 */
#pragma once

#include "cfg/cfg.h"
#include "reactor/base/map.h"

#define LANGUAGE_ARGV_MAX 64 /* arguments of a command, variables of an environment, extensions */

struct language {
	char *name; /* file name without .ini: [a-z0-9_+-]{1,32} */
	char *title;
	char *source;      /* file name the source is written to: [A-Za-z0-9._-]{1,64} */
	char **extensions; /* without the dot, NULL-terminated, may be empty */
	char **compile;    /* NULL-terminated, or NULL when nothing is compiled */
	char **run;
	char **version;               /* NULL when absent */
	char **environment;           /* "NAME=value", NULL-terminated, may be empty */
	unsigned cpu_percent;         /* factor on the run's default CPU limit, 100 = as is */
	unsigned compile_cpu_percent; /* factor on the compile's default CPU limit */
	int64_t compile_memory_bytes; /* 0 = the default */
	int64_t run_processes;        /* 0 = the default */
	int64_t run_memory_extra;     /* added to the memory limit for the runtime itself; 0 */
};

/* Loads every *.ini of dir into languages (name -> struct language *), in the order of the names; a profile
 * already there is replaced. A directory without a profile is a problem. */
void language_load_dir(const char *dir, struct map *languages, struct cfg_errors *errors);
/* One file's text; `place` names it in errors. NULL when it has errors. */
struct language *language_parse(
	const char *name, struct str text, const char *place, struct cfg_errors *errors);
void language_free(struct language *language);
void language_map_fini(struct map *languages); /* frees the profiles too */
/* argv (one of language's own) with the placeholders replaced; free with language_argv_free(). */
char **language_argv(const struct language *language, char **argv, int64_t memory_bytes) must_check;
void language_argv_free(char **argv);
