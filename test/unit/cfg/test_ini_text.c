/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of files: what arrives, on which line, and every trap of plain inih refused or defused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cfg/cfg_table.h"
#include "cfg/ini_text.h"
#include "reactor/base/mem.h"

/* Entries as text, one a line: "LINE section" or "LINE section.key=<value>". */
static void note(void *arg, const struct ini_entry *entry)
{
	struct buf *seen = arg;

	if (entry->key)
		buf_addf(seen, "%u %s.%s=<" STR_FMT ">\n", entry->line, entry->section, entry->key,
			STR_ARG(entry->value));
	else
		buf_addf(seen, "%u %s\n", entry->line, entry->section);
}

static void expect(struct str text, const char *entries, const char *problems)
{
	struct buf seen cleanup(buf_fini) = BUF_INIT;
	struct cfg_errors errors = {0};

	buf_add_str(&seen, STR(""));
	buf_add_str(&errors.text, STR(""));
	ini_text_parse(text, "f", note, &seen, &errors);
	assert_string_equal(seen.data, entries);
	assert_string_equal(errors.text.data, problems);
	cfg_errors_fini(&errors);
}

static void entries_arrive_in_order_with_their_lines(void **state unused)
{
	expect(STR(""), "", "");
	expect(STR("\n\n"), "", "");
	expect(STR("[a]"), "1 a\n", "");
	expect(STR("# c\n; c\n[a]\nk = v w \n\n[b]\nk:v\nl =\n"),
		"3 a\n4 a.k=<v w>\n6 b\n7 b.k=<v>\n8 b.l=<>\n", "");
	expect(STR("[a]\r\nk = v\r\n"), "1 a\n2 a.k=<v>\n", "");
	expect(STR("\xEF\xBB\xBF[a]\nk=v"), "1 a\n2 a.k=<v>\n", "");
	expect(STR("[ a ]\nk = a=b:c\n"), "1 a\n2 a.k=<a=b:c>\n", "");
	expect(STR("[a]\nk = 1\nk = 2\n"), "1 a\n2 a.k=<1>\n3 a.k=<2>\n", "");
}

/* inih would take line 3 for a second value of k. */
static void indentation_continues_nothing(void **state unused)
{
	expect(STR("[a]\nk = 1\n  l = 2\n\t[b]\n"), "1 a\n2 a.k=<1>\n3 a.l=<2>\n4 b\n", "");
	expect(STR("[a]\nk = 1\n  2\n"), "1 a\n2 a.k=<1>\n",
		"f:3: \"2\" is neither [section] nor key = value nor a comment\n");
	expect(STR("[a]\nk = 1\n\vl = 2\n"), "1 a\n2 a.k=<1>\n",
		"f:3: the line holds a control character\n");
}

static void comments_behind_values_are_refused(void **state unused)
{
	static const char why[] = "f:2: a comment stands on its own line; if ; or # belongs to the "
				  "value, put the value in double quotes\n";

	expect(STR("[a]\nk = v ; c\n"), "1 a\n", why);
	expect(STR("[a]\nk = v # c\n"), "1 a\n", why);
	expect(STR("[a]\nk = v\t;c\n"), "1 a\n", why);
	expect(STR("[a]\nk = ; c\n"), "1 a\n", why);
	expect(STR("[a]\nk = #c\n"), "1 a\n", why);
	expect(STR("[a]\nk = v;c#d\n"), "1 a\n2 a.k=<v;c#d>\n", "");
}

static void quotes_keep_a_value_as_it_is(void **state unused)
{
	expect(STR("[a]\nk = \" v ; c \"\n"), "1 a\n2 a.k=< v ; c >\n", "");
	expect(STR("[a]\nk = \"\"\n"), "1 a\n2 a.k=<>\n", "");
	expect(STR("[a]\nk = \"a\" \"b\"\n"), "1 a\n2 a.k=<a\" \"b>\n", "");
	expect(STR("[a]\nk = \"a\nl = \"\n"), "1 a\n2 a.k=<\"a>\n3 a.l=<\">\n", "");
}

static void bad_headers_take_their_keys_with_them(void **state unused)
{
	expect(STR("[a]\nk=1\n[b\nk=2\n[c]\nk=3\n"), "1 a\n2 a.k=<1>\n5 c\n6 c.k=<3>\n",
		"f:3: a section is [name] with nothing behind the bracket\n");
	expect(STR("[a] k=1\nk=2\n"), "",
		"f:1: a section is [name] with nothing behind the bracket\n");
	expect(STR("[]\n[a b]\n["), "",
		"f:1: \"\" is not a section name: 1 to 49 letters, digits, _ . or -\n"
		"f:2: \"a b\" is not a section name: 1 to 49 letters, digits, _ . or -\n"
		"f:3: a section is [name] with nothing behind the bracket\n");
}

static void every_problem_has_its_line(void **state unused)
{
	expect(STR("k = 1\n[a]\nfoo\na b = 1\n= 2\nk\0x = 1\n\x7f\nk = 3\n"), "2 a\n8 a.k=<3>\n",
		"f:1: k stands before the first [section]\n"
		"f:3: \"foo\" is neither [section] nor key = value nor a comment\n"
		"f:4: \"a b\" is not a key: 1 to 49 letters, digits, _ . or -\n"
		"f:5: \"\" is not a key: 1 to 49 letters, digits, _ . or -\n"
		"f:6: the line holds a control character\n"
		"f:7: the line holds a control character\n");
}

/* inih would cut the value at 200 bytes and count the rest as another line. */
static void long_lines_are_whole_or_refused(void **state unused)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct buf entries cleanup(buf_fini) = BUF_INIT;
	char *longest cleanup(mem_freep) = mem_alloc(INI_LINE_MAX + 1);

	memset(longest, 'x', INI_LINE_MAX - 2);
	buf_addf(&text, "[a]\nk=%s\nk=%sx\nl=1\n", longest, longest);
	buf_addf(&entries, "1 a\n2 a.k=<%s>\n4 a.l=<1>\n", longest);
	expect(buf_str(&text), entries.data,
		"f:3: the line is 4097 bytes long: at most 4096 are read\n");
}

static void long_names_are_refused_whole(void **state unused)
{
	char longest[INI_NAME_MAX + 1] = "";
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct buf entries cleanup(buf_fini) = BUF_INIT;
	struct buf problems cleanup(buf_fini) = BUF_INIT;

	memset(longest, 'n', INI_NAME_MAX);
	buf_addf(&text, "[%s]\n%s=1\n%sx=2\n[%sx]\n", longest, longest, longest, longest);
	buf_addf(&entries, "1 %s\n2 %s.%s=<1>\n", longest, longest, longest);
	buf_addf(&problems,
		"f:3: \"%sx\" is not a key: 1 to 49 letters, digits, _ . or -\n"
		"f:4: \"%sx\" is not a section name: 1 to 49 letters, digits, _ . or -\n",
		longest, longest);
	expect(buf_str(&text), entries.data, problems.data);
}

/* --- files ----------------------------------------------------------------------------------- */

static int make_dir(void **state)
{
	char *dir = mem_strdup("/tmp/conclave-test-XXXXXX");

	*state = dir;
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	int error = rmdir(*state);

	free(*state);
	return error;
}

static void refuses_to_read(const char *path, size_t max, const char *why)
{
	struct cfg_errors errors = {0};
	struct buf text cleanup(buf_fini) = BUF_INIT;
	char *line cleanup(mem_freep) = mem_printf("%s: %s\n", path, why);

	assert_false(ini_text_read(path, max, &text, &errors));
	assert_string_equal(errors.text.data, line);
	assert_int_equal(errors.count, 1);
	cfg_errors_fini(&errors);
}

static void reads_regular_files_up_to_a_size(void **state)
{
	char *path cleanup(mem_freep) = mem_printf("%s/f", (char *)*state);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	struct cfg_errors errors = {0};
	struct buf text cleanup(buf_fini) = BUF_INIT;

	assert_int_equal(write(fd, "[a]\nk=1\n", 8), 8);
	close(fd);
	assert_true(ini_text_read(path, 8, &text, &errors));
	assert_true(str_is(buf_str(&text), "[a]\nk=1\n"));
	assert_int_equal(errors.count, 0);
	refuses_to_read(path, 7, "is larger than 7 bytes");
	unlink(path);
	refuses_to_read(path, 8, "cannot be read: No such file or directory");
	refuses_to_read(*state, 8, "is not a regular file");
	assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes: must not wait for one */
	refuses_to_read(path, 8, "is not a regular file");
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries_arrive_in_order_with_their_lines),
		cmocka_unit_test(indentation_continues_nothing),
		cmocka_unit_test(comments_behind_values_are_refused),
		cmocka_unit_test(quotes_keep_a_value_as_it_is),
		cmocka_unit_test(bad_headers_take_their_keys_with_them),
		cmocka_unit_test(every_problem_has_its_line),
		cmocka_unit_test(long_lines_are_whole_or_refused),
		cmocka_unit_test(long_names_are_refused_whole),
		cmocka_unit_test_setup_teardown(
			reads_regular_files_up_to_a_size, make_dir, remove_dir),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
