/* SPDX-License-Identifier: Apache-2.0 */
/* Language profiles: what a file may say, all of what may be wrong with it, and the profiles we ship. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cfg/language.h"
#include "reactor/base/mem.h"

static const char full[] = "[language]\n"
			   "title = Fancy 1.0 \xC3\xA4\n"
			   "source = Main-1.fy\n"
			   "extensions = fy  fancy\n"
			   "[compile]\n"
			   "argv = /usr/bin/fancyc\n"
			   "argv = -Xmx{memory_mb}m\n"
			   "argv = {source}:{source}\n"
			   "argv =\n"
			   "argv = \"a # b\"\n"
			   "cpu_factor = 0.5\n"
			   "memory_bytes = 2GiB\n"
			   "[run]\n"
			   "argv = ./main\n"
			   "cpu_factor = 2\n"
			   "processes = 16\n"
			   "memory_extra = 64MiB\n"
			   "[version]\n"
			   "argv = /usr/bin/fancyc\n"
			   "argv = --version\n"
			   "[environment]\n"
			   "PATH = /usr/bin:/bin\n"
			   "EMPTY =\n";

static const char least[] = "[language]\ntitle = T\nsource = main.t\n[run]\nargv = /bin/t\n";

static void expect_list(char **list, const char *const *expected)
{
	size_t n = 0;

	assert_non_null(list);
	for (; expected[n]; n++) {
		assert_non_null(list[n]);
		assert_string_equal(list[n], expected[n]);
	}
	assert_null(list[n]);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define EMPTY_LIST ((const char *const[]){NULL})

static struct language *parse(const char *text)
{
	struct cfg_errors errors = {0};
	struct language *l = language_parse("fancy", str_from(text), "fancy.ini", &errors);

	if (!l)
		fail_msg("%s", errors.text.data);
	assert_int_equal(errors.count, 0);
	return l;
}

static void a_full_profile_is_read(void **state unused)
{
	struct language *l = parse(full);

	assert_string_equal(l->name, "fancy");
	assert_string_equal(l->title, "Fancy 1.0 \xC3\xA4");
	assert_string_equal(l->source, "Main-1.fy");
	expect_list(l->extensions, LIST("fy", "fancy"));
	expect_list(l->compile,
		LIST("/usr/bin/fancyc", "-Xmx{memory_mb}m", "{source}:{source}", "", "a # b"));
	expect_list(l->run, LIST("./main"));
	expect_list(l->version, LIST("/usr/bin/fancyc", "--version"));
	expect_list(l->environment, LIST("PATH=/usr/bin:/bin", "EMPTY="));
	assert_int_equal(l->cpu_percent, 200);
	assert_int_equal(l->compile_cpu_percent, 50);
	assert_int_equal(l->compile_memory_bytes, INT64_C(2) << 30);
	assert_int_equal(l->run_processes, 16);
	assert_int_equal(l->run_memory_extra, 64 << 20);
	language_free(l);
	language_free(NULL);
}

static void what_is_absent_has_its_default(void **state unused)
{
	struct language *l = parse(least);

	assert_null(l->compile);
	assert_null(l->version);
	expect_list(l->extensions, EMPTY_LIST);
	expect_list(l->environment, EMPTY_LIST);
	assert_int_equal(l->cpu_percent, 100);
	assert_int_equal(l->compile_cpu_percent, 100);
	assert_int_equal(l->compile_memory_bytes, 0);
	assert_int_equal(l->run_processes, 0);
	assert_int_equal(l->run_memory_extra, 0);
	language_free(l);
}

static void placeholders_are_replaced(void **state unused)
{
	struct language *l = parse(full);
	char **argv = language_argv(l, l->compile, (INT64_C(256) << 20) + 7);

	expect_list(argv, LIST("/usr/bin/fancyc", "-Xmx256m", "Main-1.fy:Main-1.fy", "", "a # b"));
	language_argv_free(argv);
	language_argv_free(NULL);
	language_free(l);
}

/* Braces around anything but a lower-case word are the program's own. */
static void other_braces_stay(void **state unused)
{
	struct language *l = parse("[language]\ntitle=T\nsource=s\n[run]\nargv = /bin/t\n"
				   "argv = {}{1}{A}{{source}}{ source}{source\n");
	char **argv = language_argv(l, l->run, 0);

	expect_list(argv, LIST("/bin/t", "{}{1}{A}{s}{ source}{source"));
	language_argv_free(argv);
	language_free(l);
}

static void all_problems_are_reported_at_once(void **state unused)
{
	static const struct {
		const char *name, *text, *problems;
	} rows[] = {
		{"x", "",
			"f: [language] needs title\nf: [language] needs source\n"
			"f: [run] needs argv\n"},
		{"x",
			"[language]\ntitle =\nsource = ../etc/passwd\nextensions = .x\n"
			"[run]\nargv = t\n",
			"f:2: a title is 1 to 100 bytes of UTF-8 text\n"
			"f:3: \"../etc/passwd\" is not a file name for the source: 1 to 64 "
			"letters, "
			"digits, . _ or -, the first a letter, digit or _\n"
			"f:4: \".x\" is not an extension: write them without dot, blanks between\n"
			"f:6: the first argument is the program: an absolute path, or ./NAME for "
			"what "
			"was compiled\n"},
		{"x",
			"[language]\ntitle = \xFF\nsource = -o\nsource = b\n"
			"[run]\nargv = /t\nargv = {sorce}\n",
			"f:2: a title is 1 to 100 bytes of UTF-8 text\n"
			"f:3: \"-o\" is not a file name for the source: 1 to 64 letters, digits, . "
			"_ "
			"or -, the first a letter, digit or _\n"
			"f:4: language.source is set again: line 3 has set it already, keep one\n"
			"f:7: {sorce} is not replaced by anything; there are {source} and "
			"{memory_mb}\n"},
		{"x",
			"[language]\ntitle=T\nsource=s\ntitel=U\n[run]\nargv=/t\nprocesses=0\n"
			"memory_extra=64MB\ncpu_factor=fast\nfoo=1\n[compile]\ncpu_factor=21\n"
			"memory_bytes=1MiB\n[rum]\nargv=/x\n",
			"f:4: unknown key titel in [language]; did you mean title?\n"
			"f:7: run.processes: \"0\" is out of range: 1 to 4096 processes\n"
			"f:8: run.memory_extra: \"64MB\" is not a size: write 64MiB\n"
			"f:9: \"fast\" is not a factor: write 0.1 to 20, for example 1.5\n"
			"f:10: unknown key foo in [run]\n"
			"f:12: \"21\" is not a factor: write 0.1 to 20, for example 1.5\n"
			"f:13: compile.memory_bytes: \"1MiB\" is out of range: 16MiB to 4GiB\n"
			"f:14: unknown section [rum]; there are [language] [compile] [run] "
			"[version] "
			"[environment]\n"},
		{"x",
			"[language]\ntitle=T\nsource=s\n[run]\nargv=/t\n"
			"[environment]\nA=1\nAB=1\nA=2\n1A=1\nA.B=1\n",
			"f:9: environment.A is set already, keep one\n"
			"f:10: 1A is not a variable's name: letters, digits and _\n"
			"f:11: A.B is not a variable's name: letters, digits and _\n"},
		{"raw", least,
			"f: \"raw\" is not a language's name: 1 to 32 of a-z 0-9 _ + -, and not "
			"raw\n"},
		{"C", least,
			"f: \"C\" is not a language's name: 1 to 32 of a-z 0-9 _ + -, and not "
			"raw\n"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct cfg_errors errors = {0};

		assert_null(language_parse(rows[i].name, str_from(rows[i].text), "f", &errors));
		assert_string_equal(errors.text.data, rows[i].problems);
		cfg_errors_fini(&errors);
	}
}

static void factors_are_decimal_numbers(void **state unused)
{
	static const struct {
		const char *text;
		unsigned percent; /* 0: refused */
	} rows[] = {{"1", 100}, {"1.5", 150}, {"0.25", 25}, {"0.1", 10}, {"20", 2000},
		{"20.0", 2000}, {"0.05", 0}, {"20.01", 0}, {"1.", 0}, {".5", 0}, {"1.555", 0},
		{"-1", 0}, {"1.-5", 0}, {"-0.5", 0}, {"1,5", 0}, {"", 0},
		{"99999999999999999999", 0}};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct cfg_errors errors = {0};
		char *text cleanup(mem_freep) =
			mem_printf("%scpu_factor = %s\n", least, rows[i].text);
		struct language *l = language_parse("x", str_from(text), "f", &errors);

		assert_int_equal(l ? l->cpu_percent : 0, rows[i].percent);
		assert_int_equal(errors.count, rows[i].percent ? 0 : 1);
		language_free(l);
		cfg_errors_fini(&errors);
	}
}

static void lists_are_bounded(void **state unused)
{
	struct cfg_errors errors = {0};
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct language *l;

	buf_addf(&text, "%s", least);
	for (int i = 1; i < LANGUAGE_ARGV_MAX; i++)
		buf_addf(&text, "argv = %d\n", i);
	l = language_parse("x", buf_str(&text), "f", &errors);
	assert_non_null(l);
	assert_string_equal(l->run[LANGUAGE_ARGV_MAX - 1], "63");
	assert_null(l->run[LANGUAGE_ARGV_MAX]);
	language_free(l);
	buf_addf(&text, "argv = one too many\n");
	assert_null(language_parse("x", buf_str(&text), "f", &errors));
	assert_string_equal(errors.text.data, "f:69: more than 64 arguments\n");
	cfg_errors_fini(&errors);
}

/* --- directories ------------------------------------------------------------------------------- */

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

static char *put_file(const char *dir, const char *name, const char *text)
{
	char *path = mem_printf("%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	return path;
}

static void directories_load_in_the_order_of_names(void **state)
{
	static const char *const names[] = {
		"b.ini", "a.ini", ".hidden.ini", "notes.txt", "Bad.ini"};
	const char *dir = *state;
	char *paths[ARRAY_SIZE(names)];
	struct cfg_errors errors = {0};
	struct map languages;
	struct buf order cleanup(buf_fini) = BUF_INIT;
	char *problem cleanup(mem_freep) =
		mem_printf("%s/Bad.ini: \"Bad\" is not a language's name: 1 to 32 of a-z 0-9 _ + "
			   "-, and not raw\n",
			dir);

	map_init(&languages);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		paths[i] = put_file(dir, names[i], least);
	language_load_dir(dir, &languages, &errors);
	map_each (it, &languages) {
		struct language *l = map_entry_of(it)->value;

		buf_addf(&order, "%s:%s ", map_entry_of(it)->key, l->name);
	}
	assert_string_equal(order.data, "a:a b:b ");
	assert_string_equal(errors.text.data, problem);
	cfg_errors_fini(&errors);
	unlink(paths[4]);
	language_load_dir(dir, &languages, &errors); /* again: replaced, not doubled */
	assert_int_equal(map_count(&languages), 2);
	assert_int_equal(errors.count, 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		unlink(paths[i]);
		free(paths[i]);
	}
	language_map_fini(&languages);
}

static void directories_without_profiles_are_problems(void **state)
{
	const char *dir = *state;
	char *missing cleanup(mem_freep) = mem_printf("%s/no", dir);
	char *problems cleanup(mem_freep) =
		mem_printf("%s: holds no language profile (*.ini)\n"
			   "%s: language profiles cannot be read: No such file or directory\n",
			dir, missing);
	struct cfg_errors errors = {0};
	struct map languages;

	map_init(&languages);
	language_load_dir(dir, &languages, &errors);
	language_load_dir(missing, &languages, &errors);
	assert_string_equal(errors.text.data, problems);
	assert_int_equal(map_count(&languages), 0);
	cfg_errors_fini(&errors);
	language_map_fini(&languages);
}

static bool is_in_the_box(const char *program)
{
	return strncmp(program, "/usr/bin/", 9) == 0 || strncmp(program, "/bin/", 5) == 0;
}

static void our_profiles_load(void **state unused)
{
	static const char *const names[] = {"bash", "c", "cpp", "csharp", "go", "java",
		"javascript", "lua", "pascal", "php", "python", "ruby", "rust"};
	struct cfg_errors errors = {0};
	struct map languages;

	map_init(&languages);
	language_load_dir(CONCLAVE_SOURCE_DIR "/cfg/languages", &languages, &errors);
	if (errors.count)
		fail_msg("%s", errors.text.data);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_non_null(map_get(&languages, str_from(names[i])));
	map_each (it, &languages) {
		const struct language *l = map_entry_of(it)->value;

		assert_non_null(l->compile); /* so that a syntax error is a compile_error */
		assert_non_null(l->version);
		assert_true(l->extensions[0] != NULL);
		/* only the system's own directories are visible in the sandbox */
		assert_true(is_in_the_box(l->compile[0]));
		assert_true(is_in_the_box(l->version[0]));
		assert_true(is_in_the_box(l->run[0]) || strcmp(l->run[0], "./main") == 0);
	}
	language_map_fini(&languages);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_full_profile_is_read),
		cmocka_unit_test(what_is_absent_has_its_default),
		cmocka_unit_test(placeholders_are_replaced),
		cmocka_unit_test(other_braces_stay),
		cmocka_unit_test(all_problems_are_reported_at_once),
		cmocka_unit_test(factors_are_decimal_numbers),
		cmocka_unit_test(lists_are_bounded),
		cmocka_unit_test_setup_teardown(
			directories_load_in_the_order_of_names, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(
			directories_without_profiles_are_problems, make_dir, remove_dir),
		cmocka_unit_test(our_profiles_load),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
