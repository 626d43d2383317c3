/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table for people, three times: --help, a sample file, the manual. Every form shows section, key,
 * default, range and prose of each row whose services meet the mask, in the table's order, so a new row is
 * documented the moment it exists.
 */
#include "cfg/cfg_table.h"

#define COLUMNS 96
#define MDOC_COLUMNS 78

/* prose broken at blanks into lines of at most COLUMNS, each behind indent. */
static void add_wrapped(struct buf *out, const char *indent, struct str prose)
{
	size_t room = COLUMNS - strlen(indent), used = 0;
	struct str word;

	while (str_cut(&prose, ' ', &word)) {
		if (used > 0 && used + 1 + word.n > room) {
			buf_add_char(out, '\n');
			used = 0;
		}
		buf_add_str(out, used ? STR(" ") : str_from(indent));
		buf_add_str(out, word);
		used += word.n + (used > 0);
	}
	buf_add_char(out, '\n');
}

/* "0 to 100 tasks; default 0; SIGHUP reloads it" */
static void add_facts(struct buf *out, const struct cfg_row *row)
{
	cfg_value_range(out, row);
	if (row->type == CFG_STRING && row->flags & CFG_MANY)
		buf_add_str(out, STR(", several by comma"));
	buf_addf(out, "; default %s", row->def[0] ? row->def : "empty");
	if (row->flags & CFG_RELOADABLE)
		buf_add_str(out, STR("; SIGHUP reloads it"));
	if (row->flags & CFG_SECRET)
		buf_add_str(out, STR("; never printed"));
}

static void help_row(struct buf *out, const struct cfg_row *row, bool first unused)
{
	struct buf facts cleanup(buf_fini) = BUF_INIT;

	add_facts(&facts, row);
	buf_addf(out, "  --%s.%s=VALUE\n", row->section, row->key);
	add_wrapped(out, "      ", str_from(row->prose));
	buf_addf(out, "      (" STR_FMT ")\n", STR_ARG(buf_str(&facts)));
}

static void sample_row(struct buf *out, const struct cfg_row *row, bool first)
{
	struct buf facts cleanup(buf_fini) = BUF_INIT;

	if (first)
		buf_addf(out, "\n[%s]\n", row->section);
	add_facts(&facts, row);
	buf_add_char(out, '\n');
	add_wrapped(out, "# ", str_from(row->prose));
	buf_addf(out, "# (" STR_FMT ")\n#%s =%s", STR_ARG(buf_str(&facts)), row->key,
		row->def[0] ? " " : "");
	cfg_value_write(out, row->def);
	buf_add_char(out, '\n');
}

/* mdoc reads a line that starts with . or ' as a request, and \ as an escape everywhere. */
static void add_mdoc_word(struct buf *out, struct str word, bool line_start)
{
	if (line_start && word.n > 0 && (word.p[0] == '.' || word.p[0] == '\''))
		buf_add_str(out, STR("\\&"));
	for (size_t i = 0; i < word.n; i++) {
		if (word.p[i] == '\\')
			buf_add_str(out, STR("\\e"));
		else
			buf_add_char(out, word.p[i]);
	}
}

void cfg_doc_mdoc(struct buf *out, struct str prose)
{
	size_t used = 0;
	bool sentence_ended = false;
	struct str word;

	while (str_cut(&prose, ' ', &word)) {
		if (used > 0 && (sentence_ended || used + 1 + word.n > MDOC_COLUMNS)) {
			buf_add_char(out, '\n');
			used = 0;
		}
		if (used > 0)
			buf_add_char(out, ' ');
		add_mdoc_word(out, word, used == 0);
		used += word.n + (used > 0);
		sentence_ended = word.n > 0 && word.p[word.n - 1] == '.';
	}
	buf_add_char(out, '\n');
}

static const struct {
	unsigned service;
	const char *name;
} readers[] = {
	{CFG_BOOT, "boot"},
	{CFG_EXECUTOR, "executor"},
	{CFG_GATEWAY, "gateway"},
	{CFG_JUDICATOR, "judicator"},
};

/* "Read by executor, gateway." */
static void add_readers(struct buf *out, const struct cfg_row *row)
{
	const char *between = "Read by ";

	if ((row->services & CFG_ALL) == CFG_ALL) {
		buf_add_str(out, STR("Read by all."));
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(readers); i++) {
		if (!(row->services & readers[i].service))
			continue;
		buf_addf(out, "%s%s", between, readers[i].name);
		between = ", ";
	}
	buf_add_char(out, '.');
}

static void man_row(struct buf *out, const struct cfg_row *row, bool first unused)
{
	struct buf facts cleanup(buf_fini) = BUF_INIT;

	buf_add_char(&facts, '(');
	add_facts(&facts, row);
	buf_add_str(&facts, STR("). "));
	add_readers(&facts, row);
	buf_addf(out, ".It Cm %s.%s\n", row->section, row->key);
	cfg_doc_mdoc(out, str_from(row->prose));
	buf_add_str(out, STR(".br\n"));
	cfg_doc_mdoc(out, buf_str(&facts));
}

static void each_row(struct buf *out, unsigned services,
	void (*write)(struct buf *, const struct cfg_row *, bool first))
{
	const char *section = "";

	for (size_t i = 0; i < OPT_N; i++) {
		const struct cfg_row *row = &cfg_rows[i];

		if (!(row->services & services))
			continue;
		write(out, row, strcmp(section, row->section) != 0);
		section = row->section;
	}
}

void cfg_doc_help(struct buf *out, unsigned services)
{
	each_row(out, services, help_row);
}

void cfg_doc_sample(struct buf *out, unsigned services)
{
	each_row(out, services, sample_row);
}

void cfg_doc_man(struct buf *out, unsigned services)
{
	buf_add_str(out, STR(".Bl -tag -width Ds\n"));
	each_row(out, services, man_row);
	buf_add_str(out, STR(".El\n"));
}
