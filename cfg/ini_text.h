/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ini_text - INI text, line by line, with every line's number: the grammar of configuration files and
 * language profiles.
 *
 *   [section]            letters, digits, _ . -; nothing may follow the bracket
 *   key = value          or key: value; the value is the rest of the line, blanks around it dropped
 *   key = " value "      in double quotes it is exactly what stands between them (no escapes)
 *   # comment            or ; comment, on a line of its own
 *
 * Indentation means nothing, a value never continues on the next line, a BOM is skipped. Refused, each with
 * place:line: lines over INI_LINE_MAX bytes, control characters, anything else, and a comment behind a
 * value, because one reader's comment is another's password.
 */
#pragma once

#include "cfg/cfg.h"

#define INI_LINE_MAX 4096
#define INI_NAME_MAX 49

struct ini_entry {
	const char *section;
	const char *key; /* NULL: this is the section's header */
	struct str value;
	unsigned line;
	const char *place; /* "judicator.conf:12" */
};

/* Called once a header and once a key, in the order of the text; everything is borrowed for the call. */
typedef void ini_entry_fn(void *arg, const struct ini_entry *entry);

/* Adds what the grammar refuses to errors; keys under a refused header are skipped. */
void ini_text_parse(struct str text, const char *place, ini_entry_fn *on_entry, void *arg,
	struct cfg_errors *errors);
/* A regular file of at most max bytes into out; false with the reason added to errors. */
bool ini_text_read(const char *path, size_t max, struct buf *out, struct cfg_errors *errors);
