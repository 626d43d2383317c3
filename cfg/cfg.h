/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cfg - one table of options (options.def), filled from defaults, a file, the environment and argv, in
 * that order of rising strength.
 *
 * Every problem of every source is collected (struct cfg_errors) and reported at once, each with its
 * place ("judicator.conf:12", "environment CONCLAVE_WEB_LISTEN", "--executor.slots") and what would be
 * right. Modules below roles/ never see struct cfg: roles copy values into the module's own options.
 *
 * Names: section.key. In a file [section] key = value; in the environment CONCLAVE_SECTION_KEY; on the
 * command line --section.key=value or --section.key value.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reactor/base/buf.h"
#include "reactor/base/check.h"

/* How a value is written and checked. */
enum cfg_type {
	CFG_STRING,   /* min..max bytes */
	CFG_INT,      /* min..max */
	CFG_BOOL,     /* yes no true false on off */
	CFG_DURATION, /* "250ms" "5s" "2m" "1h", kept in us; a unit is required unless 0 */
	CFG_BYTES, /* "64KiB" "256MiB" "1GiB" "100B", kept in bytes; a unit is required unless 0 */
	CFG_ADDRESS, /* IP:PORT or [IPV6]:PORT, or several by comma where the row says so; min: lowest port; empty where that is the
			default */
	CFG_CHOICE,  /* one of the words in the row's unit column, "a|b|c" */
};

enum cfg_flag {
	CFG_RELOADABLE = 1, /* SIGHUP may change it */
	CFG_SECRET = 2,     /* never printed */
	CFG_MANY = 4,       /* comma-separated list */
};

/* One enumerator an option: OPT_executor_slots for [executor] slots. */
enum cfg_option {
#define OPTION(section, key, type, def, min, max, unit, services, flags, prose)                    \
	OPT_##section##_##key,
#include "cfg/options.def"
#undef OPTION
	OPT_N
};

struct cfg;
struct cfg_errors {
	struct buf text; /* one line a problem */
	unsigned count;
};

struct cfg *cfg_new(void) must_check; /* all defaults */
void cfg_free(struct cfg *cfg);
void cfg_errors_fini(struct cfg_errors *errors);
/* One more problem, without a newline; roles add what no single row can check. The first 100 are kept. */
void cfg_errors_add(struct cfg_errors *errors, const char *place, const char *fmt, ...)
	printf_like(3, 4);

/* Each adds what is wrong to errors and takes what is right. A source never replaces a value of a stronger
 * one, so the order of the calls does not matter. */
void cfg_load_file(struct cfg *cfg, const char *path, struct cfg_errors *errors);
/* A file's text that is in memory; `place` names it in errors. */
void cfg_load_text(struct cfg *cfg, struct str text, const char *place, struct cfg_errors *errors);
/* Every CONCLAVE_* name must be an option, but CONCLAVE_TEST_* and the client's CONCLAVE_URL and CONCLAVE_TOKEN. */
void cfg_load_env(struct cfg *cfg, char **environ_list, struct cfg_errors *errors);
/* Takes --section.key options out of argv (argc is lowered, order kept); leaves everything else. */
void cfg_load_argv(struct cfg *cfg, int *argc, char **argv, struct cfg_errors *errors);
/* Programmatic: a preset's or a test's value, same checks. `place` names who sets it in errors. */
void cfg_set(struct cfg *cfg, enum cfg_option option, const char *value, const char *place,
	struct cfg_errors *errors);
/* Like cfg_set, but only when nothing stronger than the default has set it (presets). */
void cfg_set_default(struct cfg *cfg, enum cfg_option option, const char *value, const char *place,
	struct cfg_errors *errors);

const char *cfg_str(const struct cfg *cfg, enum cfg_option option); /* never NULL; borrowed */
int64_t cfg_int(const struct cfg *cfg, enum cfg_option option);     /* int, bytes, duration in us */
bool cfg_bool(const struct cfg *cfg, enum cfg_option option);
bool cfg_is_set(
	const struct cfg *cfg, enum cfg_option option); /* by a file, environment, argv or preset */

/* SIGHUP: takes the CFG_RELOADABLE values of `fresh` (loaded from the same sources, without errors) and
 * returns how many changed. Names of other options that differ are added to `ignored`, blanks between: they
 * need a restart. Pointers from cfg_str() of what changed are gone. */
unsigned cfg_reload(struct cfg *cfg, const struct cfg *fresh, struct buf *ignored);

/* Writes the effective values of the options whose services mask meets `services` as a file that
 * cfg_load_file() reads back the same (mode 0600, written aside, fsynced and renamed). Values nobody has set
 * stand there as comments. Blocks: for boot, before and between services. */
int cfg_write_file(const struct cfg *cfg, const char *path, unsigned services) must_check;

/* Documentation from the table: for --help, cfg/conf/ and the manual. */
void cfg_doc_help(struct buf *out, unsigned services);
void cfg_doc_sample(
	struct buf *out, unsigned services);          /* every option, commented, with its prose */
void cfg_doc_man(struct buf *out, unsigned services); /* mdoc list of the options */
/* Prose as mdoc text: escaped, a sentence a line at least, wrapped; ends with a newline. */
void cfg_doc_mdoc(struct buf *out, struct str prose);
