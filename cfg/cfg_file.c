/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From INI text to options. ini_text has dealt with the grammar; here a header must be a section of
 * options.def, a key one of its keys, once a file. An unknown section is one problem: its keys are not
 * reported again one by one.
 */
#include "cfg/cfg_table.h"
#include "cfg/ini_text.h"
#include "cfg/suggest.h"

#define CFG_FILE_MAX (256 * 1024)

struct file_load {
	struct cfg *cfg;
	struct cfg_errors *errors;
	bool unknown_section;
	unsigned lines[OPT_N]; /* where each option was set; 0: not yet */
};

static bool section_is_known(const char *section)
{
	for (size_t i = 0; i < OPT_N; i++) {
		if (strcmp(cfg_rows[i].section, section) == 0)
			return true;
	}
	return false;
}

static void refuse_section(struct file_load *load, const struct ini_entry *entry)
{
	struct buf hint cleanup(buf_fini) = BUF_INIT;
	struct suggest near;
	const char *section = "";

	suggest_init(&near, str_from(entry->section));
	for (size_t i = 0; i < OPT_N; i++)
		suggest_offer(&near, str_from(cfg_rows[i].section), cfg_rows[i].section);
	if (suggest_best(&near)) {
		buf_addf(&hint, "did you mean [%s]?", (const char *)suggest_best(&near));
	} else {
		buf_add_str(&hint, STR("there are"));
		for (size_t i = 0; i < OPT_N; i++) {
			if (strcmp(section, cfg_rows[i].section) != 0)
				buf_addf(&hint, " [%s]", cfg_rows[i].section);
			section = cfg_rows[i].section;
		}
	}
	cfg_errors_add(load->errors, entry->place, "unknown section [%s]; " STR_FMT, entry->section,
		STR_ARG(buf_str(&hint)));
}

/* Nearest key of the section; else the same key in another section; else no hint. */
static void refuse_key(struct file_load *load, const struct ini_entry *entry)
{
	struct suggest near;
	const struct cfg_row *row;

	suggest_init(&near, str_from(entry->key));
	for (size_t i = 0; i < OPT_N; i++) {
		if (strcmp(cfg_rows[i].section, entry->section) == 0)
			suggest_offer(&near, str_from(cfg_rows[i].key), &cfg_rows[i]);
	}
	row = suggest_best(&near);
	for (size_t i = 0; i < OPT_N && !row; i++) {
		if (strcmp(cfg_rows[i].key, entry->key) == 0)
			row = &cfg_rows[i];
	}
	if (!row)
		cfg_errors_add(load->errors, entry->place, "unknown key %s in [%s]", entry->key,
			entry->section);
	else if (strcmp(row->section, entry->section) == 0)
		cfg_errors_add(load->errors, entry->place,
			"unknown key %s in [%s]; did you mean %s?", entry->key, entry->section,
			row->key);
	else
		cfg_errors_add(load->errors, entry->place,
			"unknown key %s in [%s]; it belongs to [%s]", entry->key, entry->section,
			row->section);
}

static void on_entry(void *arg, const struct ini_entry *entry)
{
	struct file_load *load = arg;
	int option;

	if (!entry->key) {
		load->unknown_section = !section_is_known(entry->section);
		if (load->unknown_section)
			refuse_section(load, entry);
		return;
	}
	if (load->unknown_section)
		return;
	option = cfg_find(str_from(entry->section), str_from(entry->key));
	if (option < 0) {
		refuse_key(load, entry);
		return;
	}
	if (load->lines[option]) {
		cfg_errors_add(load->errors, entry->place,
			"%s.%s is set again: line %u has set it already, keep one", entry->section,
			entry->key, load->lines[option]);
		return;
	}
	load->lines[option] = entry->line;
	cfg_put(load->cfg, (enum cfg_option)option, entry->value, CFG_FROM_FILE, entry->place,
		load->errors);
}

void cfg_load_text(struct cfg *cfg, struct str text, const char *place, struct cfg_errors *errors)
{
	struct file_load load = {.cfg = cfg, .errors = errors};

	ini_text_parse(text, place, on_entry, &load, errors);
}

void cfg_load_file(struct cfg *cfg, const char *path, struct cfg_errors *errors)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;

	if (ini_text_read(path, CFG_FILE_MAX, &text, errors))
		cfg_load_text(cfg, buf_str(&text), path, errors);
}
