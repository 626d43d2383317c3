/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cfg_table - what the files of cfg/ share: the rows of options.def as data, the parser of one value,
 * and where a value came from. Not for other folders: they use cfg.h and language.h.
 */
#pragma once

#include "cfg/cfg.h"
#include "cfg/services.h"

struct cfg_row {
	const char *section;
	const char *key;
	enum cfg_type type;
	const char *def;
	int64_t min; /* CFG_STRING: bytes; CFG_ADDRESS: lowest port; else the number itself */
	int64_t max; /* not used by CFG_ADDRESS, CFG_BOOL and CFG_CHOICE */
	const char *unit;
	unsigned services;
	unsigned flags;
	const char *prose;
};

/* Where a value came from, in order of rising strength: a weaker source never replaces a stronger. */
enum cfg_source {
	CFG_FROM_DEFAULT,
	CFG_FROM_PRESET,
	CFG_FROM_FILE,
	CFG_FROM_ENVIRONMENT,
	CFG_FROM_ARGV,
	CFG_FROM_PROGRAM,
};

extern const struct cfg_row cfg_rows[OPT_N]; /* indexed by enum cfg_option */

/* The option's row number, or -1. */
int cfg_find(struct str section, struct str key);
/* Checks value and, if it is right and nothing stronger has set the option, takes it. */
void cfg_put(struct cfg *cfg, enum cfg_option option, struct str value, enum cfg_source source,
	const char *place, struct cfg_errors *errors);

/* A checked value. text is its normal form (owned), number its meaning: int, us, bytes, 0 or 1. */
struct cfg_value {
	char *text;
	int64_t number;
};

void cfg_value_fini(struct cfg_value *value);
/* True: *out is filled (fini it). False: `why` says what is wrong and what would be right. */
bool cfg_value_parse(
	const struct cfg_row *row, struct str text, struct cfg_value *out, struct buf *why);
/* Says which values a row takes: "0 to 100 tasks", "100ms to 10m", "yes or no". */
void cfg_value_range(struct buf *out, const struct cfg_row *row);
/* value as it is written into a file, quoted where the file's grammar needs it. */
void cfg_value_write(struct buf *out, const char *value);
