/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A flag is a row: its names, the word its value is shown as (none: it is a switch), where it goes in struct args, and
 * its prose. --section.key options never come here.
 */
#include "roles/args.h"

#include <stddef.h>

#define VALUE_LONGEST 4096

enum { FLAG_STANDALONE = 1, FLAG_INTERNAL = 2 };

struct flag {
	const char *name;
	const char *letter; /* or NULL */
	const char *value;  /* how its value is called; NULL = a switch */
	size_t at;          /* in struct args: const char *, or bool for a switch */
	unsigned marks;
	const char *prose;
};

#define AT(field) offsetof(struct args, field)

static const struct flag flags[] = {
	{"--check", NULL, NULL, AT(check), 0,
		"Read the whole configuration, report every error in it, start nothing."},
	{"--config", "-c", "FILE", AT(config), 0,
		"Configuration file. Without one the defaults and the environment count."},
	{"--dir", NULL, "DIR", AT(dir), 0,
		"State directory, with the run directory inside; the same as --boot.dir=DIR."},
	{"--help", "-h", NULL, AT(help), 0, "This text."},
	{"--man", NULL, NULL, AT(man), 0, "Print the manual page (mdoc)."},
	{"--sample", NULL, NULL, AT(sample), 0,
		"Print a configuration file with every option, its default and its meaning."},
	{"--service", NULL, "NAME", AT(service), FLAG_INTERNAL,
		"Run one service; boot starts its services so."},
	{"--standalone", NULL, NULL, AT(standalone), FLAG_STANDALONE,
		"One machine, nothing else installed: judicator, executor and gateway together."},
	{"--version", "-V", NULL, AT(version), 0, "Print the version."},
	{"--worker", NULL, "N", AT(worker), FLAG_INTERNAL,
		"Run worker N of the service; the service starts its workers so."},
};

static bool is_flag(const struct flag *flag, struct str word, bool standalone)
{
	if (flag->marks & FLAG_STANDALONE && !standalone)
		return false;
	return str_is(word, flag->name) || (flag->letter && str_is(word, flag->letter));
}

static const struct flag *flag_find(struct str word, bool standalone)
{
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		if (is_flag(&flags[i], word, standalone))
			return &flags[i];
	return NULL;
}

static void set_switch(
	struct args *args, const struct flag *flag, const char *value, struct cfg_errors *errors)
{
	if (value)
		cfg_errors_add(errors, flag->name, "takes no value");
	*(bool *)((char *)args + flag->at) = true;
}

/* True when argv[1] was used as the value. */
static bool set_value(struct args *args, const struct flag *flag, const char *value,
	const char *following, struct cfg_errors *errors)
{
	bool used = !value && following && following[0] != '-';

	if (used)
		value = following;
	if (!value || !value[0] || strlen(value) > VALUE_LONGEST)
		cfg_errors_add(errors, flag->name, "needs a value: %s %s", flag->name, flag->value);
	else
		*(const char **)((char *)args + flag->at) = value;
	return used;
}

void args_parse(
	struct args *args, int argc, char **argv, bool standalone, struct cfg_errors *errors)
{
	*args = (struct args){0};
	for (int i = 1; i < argc; i++) {
		size_t n = argv[i][0] == '-' && argv[i][1] == '-' ? strcspn(argv[i], "=")
								  : strlen(argv[i]);
		const char *value = argv[i][n] == '=' ? argv[i] + n + 1 : NULL;
		const struct flag *flag = flag_find((struct str){argv[i], n}, standalone);

		if (!flag)
			cfg_errors_add(
				errors, argv[i], "no such argument; --help shows what there is");
		else if (!flag->value)
			set_switch(args, flag, value, errors);
		else
			i += set_value(args, flag, value, argv[i + 1], errors);
	}
}

void args_doc_help(struct buf *out, bool standalone)
{
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		const struct flag *f = &flags[i];

		if (f->marks & FLAG_INTERNAL || (f->marks & FLAG_STANDALONE && !standalone))
			continue;
		buf_addf(out, "  %s%s%s%s%s\n      %s\n", f->letter ? f->letter : "",
			f->letter ? ", " : "", f->name, f->value ? " " : "",
			f->value ? f->value : "", f->prose);
	}
}

void args_doc_man(struct buf *out, bool standalone)
{
	buf_add_str(out, STR(".Bl -tag -width Ds\n"));
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		const struct flag *f = &flags[i];

		if (f->marks & FLAG_INTERNAL || (f->marks & FLAG_STANDALONE && !standalone))
			continue;
		buf_add_str(out, STR(".It"));
		if (f->letter)
			buf_addf(out, " Fl %s ,", f->letter + 1);
		buf_addf(out, " Fl Fl %s%s%s\n", f->name + 2, f->value ? " Ar " : "",
			f->value ? f->value : "");
		cfg_doc_mdoc(out, str_from(f->prose));
	}
	buf_add_str(out, STR(".El\n"));
}
