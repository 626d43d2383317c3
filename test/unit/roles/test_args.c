/* SPDX-License-Identifier: Apache-2.0 */
/*
 * args: every way a flag is written, and every way it is written wrong.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdint.h>
#include <string.h>

#include "roles/args.h"

#define WORDS_MAX 6

static unsigned parse(
	struct args *args, const char *const *words, bool standalone, struct buf *errors_text)
{
	struct cfg_errors errors = {BUF_INIT, 0};
	char *argv[WORDS_MAX + 2] = {(char *)(uintptr_t) "program"};
	unsigned count;
	int argc = 1;

	for (; words[argc - 1]; argc++)
		argv[argc] = (char *)(uintptr_t)words[argc - 1];
	args_parse(args, argc, argv, standalone, &errors);
	count = errors.count;
	if (errors_text)
		buf_add_str(errors_text, buf_str(&errors.text));
	cfg_errors_fini(&errors);
	return count;
}

static void flags_in_every_form(void **state unused)
{
	static const char *const apart[] = {"-c", "x.conf", "--dir", "/d", "--check", NULL};
	static const char *const joined[] = {"--config=x.conf", "--dir=/d", "--check", NULL};
	static const char *const *const forms[] = {apart, joined};

	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		struct args args;

		assert_int_equal(parse(&args, forms[i], false, NULL), 0);
		assert_string_equal(args.config, "x.conf");
		assert_string_equal(args.dir, "/d");
		assert_true(args.check);
		assert_false(args.help || args.version || args.sample || args.man);
		assert_null(args.service);
	}
}

static void nothing_is_right_too(void **state unused)
{
	static const char *const none[] = {NULL};
	struct args args;

	assert_int_equal(parse(&args, none, false, NULL), 0);
	assert_null(args.config);
	assert_false(args.standalone);
}

static void values_may_hold_anything(void **state unused)
{
	static const char *const words[] = {"--dir=a=b", "--service", "main", "-h", "-V", NULL};
	struct args args;

	assert_int_equal(parse(&args, words, false, NULL), 0);
	assert_string_equal(args.dir, "a=b");
	assert_string_equal(args.service, "main");
	assert_true(args.help && args.version);
}

static void standalone_only_where_it_is_known(void **state unused)
{
	static const char *const words[] = {"--standalone", NULL};
	struct args args;

	assert_int_equal(parse(&args, words, true, NULL), 0);
	assert_true(args.standalone);
	assert_int_equal(parse(&args, words, false, NULL), 1);
	assert_false(args.standalone);
}

static void every_mistake_is_reported(void **state unused)
{
	static const struct {
		const char *words[WORDS_MAX];
		unsigned errors;
		const char *text;
	} rows[] = {
		{{"--frob"}, 1, "--frob: no such argument"},
		{{"stray"}, 1, "stray: no such argument"},
		{{"-x", "-y"}, 2, "-y: no such argument"},
		{{"-c"}, 1, "--config: needs a value: --config FILE"},
		{{"--dir", "--check"}, 1, "--dir: needs a value"},
		{{"--dir="}, 1, "--dir: needs a value"},
		{{"--check=yes"}, 1, "--check: takes no value"},
		{{"--", "x"}, 2, "--: no such argument"},
		{{""}, 1, ": no such argument"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct buf text cleanup(buf_fini) = BUF_INIT;
		struct args args;

		assert_int_equal(parse(&args, rows[i].words, true, &text), rows[i].errors);
		assert_non_null(strstr(text.data, rows[i].text));
	}
}

static void help_shows_what_people_may_use(void **state unused)
{
	struct buf help cleanup(buf_fini) = BUF_INIT, man cleanup(buf_fini) = BUF_INIT;

	args_doc_help(&help, false);
	args_doc_man(&man, true);
	assert_non_null(strstr(help.data, "  -c, --config FILE\n"));
	assert_null(strstr(help.data, "--service"));
	assert_null(strstr(help.data, "--standalone"));
	assert_non_null(strstr(man.data, ".It Fl Fl standalone\n"));
	assert_non_null(strstr(man.data, ".It Fl c , Fl Fl config Ar FILE\n"));
	assert_null(strstr(man.data, "service NAME"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flags_in_every_form),
		cmocka_unit_test(nothing_is_right_too),
		cmocka_unit_test(values_may_hold_anything),
		cmocka_unit_test(standalone_only_where_it_is_known),
		cmocka_unit_test(every_mistake_is_reported),
		cmocka_unit_test(help_shows_what_people_may_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
