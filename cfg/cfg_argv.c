/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two sources a process is started with. Both name an option in one word, section and key joined by
 * '.' (argv) or '_' (environment, upper case), so an unknown one is compared with all names.
 *
 * argv: only what looks like an option of this table (two dashes, and a dot in the name) is taken out;
 * the rest is the program's. "--" ends the search. A repeated option is no mistake: the last one
 * counts, as users of shells expect.
 */
#include <ctype.h>

#include "cfg/cfg_table.h"
#include "cfg/suggest.h"
#include "reactor/base/mem.h"

#define ENV_PREFIX "CONCLAVE_"
#define ENV_TESTS "CONCLAVE_TEST_" /* the test suite's own, never options */
#define NAME_SHOWN 128             /* bytes of an unknown name that a message repeats */

/* "executor.slots", or for the environment "EXECUTOR_SLOTS" */
static struct str name_option(const struct cfg_row *row, bool environment, struct buf *out)
{
	buf_clear(out);
	buf_addf(out, environment ? "%s_%s" : "%s.%s", row->section, row->key);
	for (size_t i = 0; environment && i < out->len; i++)
		out->data[i] = (char)toupper((unsigned char)out->data[i]);
	return buf_str(out);
}

/* The option named so, or -1 with the nearest one (or NULL) in *near. */
static int find_option(struct str name, bool environment, const struct cfg_row **near)
{
	struct buf candidate cleanup(buf_fini) = BUF_INIT;
	struct suggest suggest;

	suggest_init(&suggest, name);
	for (int i = 0; i < OPT_N; i++) {
		struct str known = name_option(&cfg_rows[i], environment, &candidate);

		if (str_eq(known, name))
			return i;
		suggest_offer(&suggest, known, &cfg_rows[i]);
	}
	*near = suggest_best(&suggest);
	return -1;
}

static void refuse_name(
	const char *place, const struct cfg_row *near, bool environment, struct cfg_errors *errors)
{
	struct buf name cleanup(buf_fini) = BUF_INIT;

	if (!near)
		cfg_errors_add(errors, place, "no such option");
	else
		cfg_errors_add(errors, place, "no such option; did you mean %s" STR_FMT "?",
			environment ? ENV_PREFIX : "--",
			STR_ARG(name_option(near, environment, &name)));
}

/* A name from outside as it may stand in a message: cut, and without what would break the line. */
static char *printable(const char *prefix, struct str name)
{
	char *place = mem_printf(
		"%s" STR_FMT, prefix, (int)(name.n < NAME_SHOWN ? name.n : NAME_SHOWN), name.p);

	for (char *c = place; *c; c++) {
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	}
	return place;
}

static bool starts_with(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

static void load_variable(struct cfg *cfg, const char *variable, struct cfg_errors *errors)
{
	const char *equals = strchr(variable, '=');
	const struct cfg_row *near = NULL;
	int option;

	if (!equals)
		return;
	variable += strlen(ENV_PREFIX);
	struct str name = {variable, (size_t)(equals - variable)};
	char *place cleanup(mem_freep) = printable("environment " ENV_PREFIX, name);

	option = find_option(name, true, &near);
	if (option < 0)
		refuse_name(place, near, true, errors);
	else
		cfg_put(cfg, (enum cfg_option)option, str_from(equals + 1), CFG_FROM_ENVIRONMENT,
			place, errors);
}

/* Variables of others: the test suite's, and those of the client (`conclave`), which a person may well have set where a daemon starts. */
static bool is_foreign(const char *variable)
{
	static const char *const foreign[] = {ENV_TESTS, "CONCLAVE_TOKEN=", "CONCLAVE_URL="};

	for (size_t i = 0; i < ARRAY_SIZE(foreign); i++)
		if (starts_with(variable, foreign[i]))
			return true;
	return false;
}

void cfg_load_env(struct cfg *cfg, char **environ_list, struct cfg_errors *errors)
{
	for (char **variable = environ_list; variable && *variable; variable++) {
		if (starts_with(*variable, ENV_PREFIX) && !is_foreign(*variable))
			load_variable(cfg, *variable, errors);
	}
}

/* The name of --section.key[=value]; absent when arg is none of ours. */
static struct str option_name(const char *arg)
{
	struct str name;

	if (!arg || !starts_with(arg, "--"))
		return STR_NULL;
	name = (struct str){arg + 2, strcspn(arg + 2, "=")};
	return memchr(name.p, '.', name.n) ? name : STR_NULL;
}

/* One option at argv[0]; returns how many arguments it was, 1 or 2. */
static int load_argument(struct cfg *cfg, char **argv, struct str name, struct cfg_errors *errors)
{
	char *place cleanup(mem_freep) = printable("--", name);
	const char *value = name.p[name.n] == '=' ? name.p + name.n + 1 : NULL;
	const struct cfg_row *near = NULL;
	int option = find_option(name, false, &near);
	int used = 1;

	if (!value && argv[1] && !starts_with(argv[1], "--")) {
		value = argv[1];
		used = 2;
	}
	if (option < 0) {
		refuse_name(place, near, false, errors);
	} else if (!value) {
		struct buf range cleanup(buf_fini) = BUF_INIT;

		cfg_value_range(&range, &cfg_rows[option]);
		cfg_errors_add(errors, place, "needs a value: " STR_FMT, STR_ARG(buf_str(&range)));
	} else {
		cfg_put(cfg, (enum cfg_option)option, str_from(value), CFG_FROM_ARGV, place,
			errors);
	}
	return used;
}

void cfg_load_argv(struct cfg *cfg, int *argc, char **argv, struct cfg_errors *errors)
{
	int kept = 0, i = 0;

	while (i < *argc) {
		struct str name = i > 0 ? option_name(argv[i]) : STR_NULL;

		if (i > 0 && strcmp(argv[i], "--") == 0)
			break;
		if (name.p)
			i += load_argument(cfg, argv + i, name, errors);
		else
			argv[kept++] = argv[i++];
	}
	while (i < *argc)
		argv[kept++] = argv[i++];
	argv[kept] = NULL;
	*argc = kept;
}
