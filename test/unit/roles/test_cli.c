/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client without a judge: what it makes of arguments, the submission it builds of files, and what it says of answers.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proc/pidfile.h"
#include "reactor/base/mem.h"
#include "roles/cli/cli_int.h"
#include "roles/cli/doctor.h"
#include "roles/cli/events.h"

#define WORDS_MAX 16
#define NOBODY "http://127.0.0.1:1" /* a port nobody listens on */

struct said {
	int code;
	char *out, *err;
};

static struct said said(const char *in, const char *const *words)
{
	char *argv[WORDS_MAX + 2] = {(char *)(uintptr_t) "conclave"};
	struct said s = {0};
	size_t out_size, err_size;
	struct cli_env env = {.url = NOBODY};
	int argc = 1;

	for (; words[argc - 1]; argc++)
		argv[argc] = (char *)(uintptr_t)words[argc - 1];
	env.in = fmemopen((void *)(uintptr_t)in, strlen(in), "r");
	env.out = open_memstream(&s.out, &out_size);
	env.err = open_memstream(&s.err, &err_size);
	s.code = cli_run(&env, argc, argv);
	fclose(env.in);
	fclose(env.out);
	fclose(env.err);
	return s;
}

static void expect(int code, const char *out, const char *err, const char *const *words)
{
	struct said s = said(" ", words);

	if (!strstr(s.out, out) || !strstr(s.err, err))
		print_error("out: %s\nerr: %s\n", s.out, s.err);
	assert_int_equal(s.code, code);
	assert_non_null(strstr(s.out, out));
	assert_non_null(strstr(s.err, err));
	free(s.out);
	free(s.err);
}

#define W(...) ((const char *const[]){__VA_ARGS__, NULL})
#define ID "0123456789abcdef01234567"

/* --- arguments ------------------------------------------------------------------------------------------ */

static void wrong_arguments_say_what_is_right(void **state unused)
{
	expect(2, "", "which command?", (const char *const[]){NULL});
	expect(2, "", "did you mean submit?", W("submti", "x"));
	expect(2, "", "no such command; try", W("frobnicate"));
	expect(2, "", "did you mean --input?", W("submit", "--inptu", "x"));
	expect(2, "", "before the command", W("--input", "x", "submit"));
	expect(2, "", "--input needs a value: --input FILE", W("submit", "x", "--input"));
	expect(2, "", "--input needs a value", W("submit", "x", "--input", "--wait"));
	expect(2, "", "--wait takes no value", W("submit", "--wait=1", "x"));
	expect(2, "", "one argument too many", W("get", ID, ID));
	expect(2, "", "usage: conclave get ID", W("get"));
	expect(2, "", "not a task id", W("get", "12"));
	expect(2, "", "not a task id", W("watch", "0123456789ABCDEF01234567"));
	expect(2, "", "auto, always or never", W("--color", "blue", "list"));
	expect(2, "", "either --wait or --no-wait", W("submit", "--wait", "--no-wait", "x"));
	expect(2, "", "only bash is known", W("completion", "csh"));
	expect(2, "", "write NAME=VALUE", W("list", "--filter", "x"));
	expect(2, "", "has no slash", W("hold", "../x"));
}

static void urls_are_checked(void **state unused)
{
	expect(3, "", "nobody listens there", W("list", "--url", "https://127.0.0.1:1"));
	expect(2, "", "not a URL like", W("list", "--url", "https://"));
	expect(2, "", "--cacert is for https", W("list", "--url", "127.0.0.1:1", "--cacert", "/x"));
	expect(2, "", "/dev/null: no certificates",
		W("list", "--url", "https://127.0.0.1:1", "--cacert", "/dev/null"));
	expect(2, "", "not a URL like", W("list", "--url", "http://127.0.0.1:x"));
	expect(2, "", "not a URL like", W("list", "--url", "http://"));
	expect(2, "", "no token in it", W("list", "--token-file", "/dev/null"));
	expect(3, "", "nobody listens there", W("list"));
	expect(3, "", "http://localhost:1/judge/", W("list", "--url", "http://localhost:1/judge/"));
	expect(3, "", "judicator --standalone", W("get", ID));
	expect(3, "", "nobody listens there", W("list", "--url", "127.0.0.1:1"));
	expect(3, "", "nobody listens there", W("cancel", ID, ID));
}

static void texts_come_from_the_rows(void **state unused)
{
	expect(0, "usage: conclave COMMAND", "", W("--help"));
	expect(0, "usage: conclave submit [FLAG ...] FILE|DIRECTORY|-", "", W("submit", "--help"));
	expect(0, "conclave " CONCLAVE_VERSION "\n", "", W("-V"));
	expect(0, "complete -F _conclave conclave", "", W("completion", "bash"));
	expect(0, ".Dt CONCLAVE 1\n", "", W("--man"));
}

static void every_row_is_in_every_text(void **state unused)
{
	struct buf help cleanup(buf_fini) = BUF_INIT, man cleanup(buf_fini) = BUF_INIT;
	struct buf bash cleanup(buf_fini) = BUF_INIT;
	const struct command *c, *last = NULL;

	doc_help(NULL, &help);
	doc_man(&man);
	doc_bash(&bash);
	for (size_t i = 0; (c = command_at(i)); i++) {
		struct buf own cleanup(buf_fini) = BUF_INIT;

		assert_true(!last || strcmp(last->name, c->name) < 0);
		last = c;
		doc_help(c, &own);
		assert_non_null(strstr(help.data, c->summary));
		assert_non_null(strstr(man.data, c->name));
		assert_non_null(strstr(bash.data, c->name));
		for (size_t f = 0; f < c->flags.n; f++) {
			assert_non_null(strstr(own.data, c->flags.rows[f].prose));
			assert_non_null(strstr(man.data, c->flags.rows[f].name + 2));
			assert_non_null(strstr(bash.data, c->flags.rows[f].name));
			assert_true(f == 0 ||
				    strcmp(c->flags.rows[f - 1].name, c->flags.rows[f].name) < 0);
		}
	}
}

static void values_are_written_in_each_form(void **state unused)
{
	struct cli_env env = {.err = stderr};
	const char *const words[] = {"conclave", "--json", "submit", "-i", "-", "--priority", "-5",
		"--label=a", "--label", "b", "--input=x=y", "--", "--file"};
	char *argv[ARRAY_SIZE(words)];
	struct cli cli = {.env = &env};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		argv[i] = (char *)(uintptr_t)words[i];
	assert_int_equal(cli_parse(&cli, ARRAY_SIZE(argv), argv), 0);
	assert_true(cli.command == &cmd_submit);
	assert_true(cli_has(&cli, "--json"));
	assert_false(cli_has(&cli, "--wait"));
	assert_string_equal(cli_value(&cli, "--input"), "x=y");
	assert_string_equal(cli_value(&cli, "--priority"), "-5");
	assert_string_equal(cli_value_at(&cli, "--label", 0), "a");
	assert_string_equal(cli_value_at(&cli, "--label", 1), "b");
	assert_null(cli_value_at(&cli, "--label", 2));
	assert_int_equal(cli.args.n_words, 1);
	assert_string_equal(cli.args.words[0], "--file");
	cli_args_fini(&cli.args);
}

/* --- a submission --------------------------------------------------------------------------------------- */

static const char languages[] =
	"{\"languages\":["
	"{\"name\":\"c\",\"source\":\"main.c\",\"extensions\":[\"c\"],\"executors\":[{\"name\":"
	"\"e\"}]},"
	"{\"name\":\"rust\",\"source\":\"main.rs\",\"extensions\":[\"rs\"],\"executors\":[]},"
	"{\"name\":\"cpp\",\"source\":\"main.cpp\",\"extensions\":[\"cpp\",\"cc\"]},"
	"{\"name\":\"python\",\"source\":\"main.py\",\"extensions\":[\"py\"]}]}";

struct place {
	char dir[32], old[4096];
};

static int remove_entry(
	const char *path, const struct stat *st unused, int kind unused, struct FTW *ftw unused)
{
	return remove(path);
}

static int set_up(void **state)
{
	struct place *p = mem_alloc(sizeof(*p));

	strcpy(p->dir, "/tmp/test-cli.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	assert_non_null(getcwd(p->old, sizeof(p->old)));
	assert_int_equal(chdir(p->dir), 0);
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;

	assert_int_equal(chdir(p->old), 0);
	nftw(p->dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
	free(p);
	return 0;
}

static void put(const char *name, const char *content, mode_t mode)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, mode);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, strlen(content)), strlen(content));
	close(fd);
}

/* The body of `submit WORDS` and what it remarks, or with code != 0 the complaint. */
static void body_and_remark_are(
	int code, const char *text, const char *remark, const char *const *words)
{
	char *argv[WORDS_MAX + 2] = {(char *)(uintptr_t) "conclave", (char *)(uintptr_t) "submit"};
	struct json_tree *tree cleanup(json_freep) = NULL;
	struct buf body cleanup(buf_fini) = BUF_INIT;
	struct json_error error;
	struct cli_env env = {0};
	struct cli cli = {.env = &env};
	char *err = NULL;
	size_t size;
	int argc = 2;

	for (; words[argc - 2]; argc++)
		argv[argc] = (char *)(uintptr_t)words[argc - 2];
	assert_int_equal(json_parse(STR(languages), NULL, &tree, &error), 0);
	env.in = fmemopen((void *)(uintptr_t) "typed\n", 6, "r");
	env.err = open_memstream(&err, &size);
	assert_int_equal(cli_parse(&cli, argc, argv), 0);
	assert_int_equal(submit_body(&cli, json_root(tree), &body), code);
	fclose(env.in);
	fclose(env.err);
	if (code) {
		if (!strstr(err, text))
			print_error("%s", err);
		assert_non_null(strstr(err, text));
	} else {
		assert_string_equal(body.data, text);
		assert_string_equal(err, remark);
	}
	cli_args_fini(&cli.args);
	free(err);
}

static void body_is(int code, const char *text, const char *const *words)
{
	body_and_remark_are(code, text, "", words);
}

#define PY(more_compile, execute, rest)                                                            \
	"{\"language\":\"python\",\"compile\":{\"source\":\"print(3)\\n\",\"limits\":"             \
	"{" more_compile "}},\"execute\":{" execute "\"limits\":{}}" rest "}"

static void a_file_is_a_source(void **state unused)
{
	put("a.py", "print(3)\n", 0644);
	put("in", "1 2\n", 0644);
	put("out", "\xff", 0644);
	body_is(0, PY("", "", ""), W("a.py"));
	body_is(0, PY("", "\"input\":\"1 2\\n\",\"expected\":{\"base64\":\"/w==\"},", ""),
		W("a.py", "-i", "in", "-e", "out"));
	body_is(0, PY("", "\"input\":\"typed\\n\",", ""), W("a.py", "--input", "-"));
	body_is(0,
		PY("", "",
			",\"cases\":[{\"input\":\"1 2\\n\",\"expected\":{\"base64\":\"/w==\"}},"
			"{\"input\":\"1 2\\n\"}]"),
		W("a.py", "--case", "in:out", "--case", "in:"));
	body_is(0,
		PY("", "",
			",\"user\":\"u\",\"priority\":-5,\"labels\":[\"x\",\"y\"],\"stop_on_"
			"failure\":"
			"true,\"checker\":{\"kind\":\"float\",\"abs\":0.5}"),
		W("a.py", "--user", "u", "--priority", "-5", "--label", "x", "--label", "y",
			"--stop-on-failure", "--checker", "float,abs=0.5"));
	body_is(0, PY("\"wall_ms\":2000", "", ""), W("a.py", "--limit", "compile.wall_ms=2s"));
	body_is(0,
		"{\"language\":\"c\",\"compile\":{\"source\":\"typed\\n\",\"limits\":{}},"
		"\"execute\":{"
		"\"limits\":{\"cpu_ms\":1000,\"memory_bytes\":67108864}}}",
		W("-", "-l", "c", "--limit", "cpu_ms=1s", "--limit", "memory_bytes=64MiB"));
}

static void a_language_nobody_offers_is_remarked(void **state unused)
{
	put("a.rs", "fn main(){}", 0644);
	body_and_remark_are(0,
		"{\"language\":\"rust\",\"compile\":{\"source\":\"fn main(){}\",\"limits\":{}},"
		"\"execute\":{\"limits\":{}}}",
		"conclave: no executor offers rust now: the task waits until one does; on its "
		"machine, conclave doctor says what is missing\n",
		W("a.rs"));
}

static void programs_are_found_in_arguments(void **state unused)
{
	static const struct {
		const char *argument, *missing;
	} rows[] = {
		{"/usr/bin/env", NULL},
		{"/usr/bin/", NULL},
		{"-O2", NULL},
		{"/tmp/no-such-program", NULL},
		{"/usr/bin/no-such-program", "/usr/bin/no-such-program"},
		{"/usr/bin/no-such++ -o a", "/usr/bin/no-such++"},
		{"[ -e \"$(/usr/bin/no-such.1 env)\" ] && /usr/bin/env", "/usr/bin/no-such.1"},
		{"/usr/bin/env && /usr/bin/no-such;", "/usr/bin/no-such"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char *missing cleanup(mem_freep) = doctor_missing_program(rows[i].argument);

		if (!rows[i].missing)
			assert_null(missing);
		else
			assert_string_equal(missing, rows[i].missing);
	}
}

static void what_cannot_be_sent_is_named(void **state unused)
{
	put("a.py", "print(3)\n", 0644);
	put("a.zig", "x", 0644);
	body_is(2, "missing.py: No such file", W("missing.py"));
	body_is(2, "no language has this extension; give --language (c rust cpp python)",
		W("a.zig"));
	body_is(2, "standard input has no extension", W("-"));
	body_is(2, "no such language", W("a.py", "-l", "cobol"));
	body_is(2, "nothing: No such file", W("a.py", "-i", "nothing"));
	body_is(2, "is a directory", W("a.py", "-e", "."));
	body_is(2, "write IN:OUT", W("a.py", "--case", "in"));
	body_is(2, "either --case, or", W("a.py", "--case", ":", "-i", "a.py"));
	body_is(2, "only one of", W("-", "-l", "c", "-i", "-"));
	body_is(2, "a whole number", W("a.py", "--priority", "high"));
	body_is(2, "--limit cpu_ms: write", W("a.py", "--limit", "cpu_ms"));
	body_is(2, "--limit cpu_ms=1GiB", W("a.py", "--limit", "cpu_ms=1GiB"));
	body_is(2, "write KIND", W("a.py", "--checker", "float,abs=x"));
}

static void a_directory_is_its_files(void **state unused)
{
	assert_int_equal(mkdir("d", 0755), 0);
	body_is(2, "d: no file in it", W("d"));
	assert_int_equal(mkdir("d/lib", 0755), 0);
	assert_int_equal(mkdir("d/.git", 0755), 0);
	put("d/.git/config", "x", 0644);
	put("d/lib/x.py", "X = 1\n", 0755);
	body_is(2, "no source of a known language", W("d"));
	put("d/go.py", "import lib.x\n", 0644);
	body_is(0,
		"{\"language\":\"python\",\"compile\":{\"files\":[{\"name\":\"main.py\","
		"\"content\":"
		"\"import lib.x\\n\"},{\"name\":\"lib/x.py\",\"content\":\"X = "
		"1\\n\",\"executable\":true}],"
		"\"limits\":{}},\"execute\":{\"limits\":{}}}",
		W("d"));
	put("d/other.py", "", 0644);
	body_is(2, "several sources in it", W("d"));
	body_is(2, "name its main source main.py", W("d", "-l", "python"));
	put("d/main.c", "", 0644);
	put("d/main.cpp", "", 0644);
	body_is(2, "sources of several languages", W("d"));
}

static void a_command_needs_no_language(void **state unused)
{
	put("run.sh", "echo 3\n", 0755);
	body_is(0,
		"{\"language\":null,\"compile\":{\"limits\":{}},\"execute\":{\"command\":\"bash "
		"run.sh\",\"files\":[{\"name\":\"run.sh\",\"content\":\"echo "
		"3\\n\",\"executable\":true}"
		"],\"limits\":{}}}",
		W("run.sh", "--command", "bash run.sh"));
	body_is(0,
		"{\"language\":null,\"compile\":{\"files\":[{\"name\":\"run.sh\",\"content\":"
		"\"echo "
		"3\\n\",\"executable\":true}],\"command\":\"cp run.sh "
		"x\",\"limits\":{}},\"execute\":{"
		"\"command\":\"./x\",\"limits\":{}}}",
		W("run.sh", "--command", "./x", "--compile-command", "cp run.sh x"));
}

static void limits_have_units(void **state unused)
{
	static const struct {
		const char *name, *text;
		bool right;
		int64_t value;
	} rows[] = {
		{"cpu_ms", "250", true, 250},
		{"cpu_ms", "2s", true, 2000},
		{"wall_ms", "3ms", true, 3},
		{"memory_bytes", "64MiB", true, 67108864},
		{"file_bytes", "1B", true, 1},
		{"stack_bytes", "4GiB", true, INT64_C(4) << 30},
		{"processes", "64", true, 64},
		{"processes", "64s", false, 0},
		{"cpu_ms", "", false, 0},
		{"cpu_ms", "-1", false, 0},
		{"cpu_ms", "1.5s", false, 0},
		{"cpu_ms", "99999999999999999999", false, 0},
		{"memory_bytes", "9000000000GiB", false, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int64_t value = 0;

		assert_int_equal(
			limit_value(str_from(rows[i].name), str_from(rows[i].text), &value),
			rows[i].right);
		if (rows[i].right)
			assert_int_equal(value, rows[i].value);
	}
}

/* --- answers --------------------------------------------------------------------------------------------- */

static void hostile_text_is_harmless(void **state unused)
{
	struct buf out cleanup(buf_fini) = BUF_INIT;

	text_safe(STR("a\033[2Jb\n\tc\x7f\xff\xc2\x9b\xc3\xa9\0d"), true, &out);
	assert_string_equal(out.data, "a\\x1b[2Jb\n\tc\\x7f\\xff\\xc2\\x9b\xc3\xa9\\x00d");
	buf_clear(&out);
	text_safe(STR("a\nb\t"), false, &out);
	assert_string_equal(out.data, "a\\x0ab\\x09");
}

static void sizes_and_times_are_short(void **state unused)
{
	struct buf out cleanup(buf_fini) = BUF_INIT;

	text_duration(1480, &out);
	text_duration(412000, &out);
	text_duration(1204000, &out);
	text_bytes(1023, &out);
	text_bytes(655360, &out);
	text_bytes(1572864, &out);
	assert_string_equal(out.data, "1.5 ms412 ms1.20 s1023 B640 KiB1.5 MiB");
	buf_clear(&out);
	url_escape(STR("a b&c/\xc3\xa9-._~9"), &out);
	assert_string_equal(out.data, "a%20b%26c%2F%C3%A9-._~9");
}

static void rendered(bool color, bool output, const char *text, struct buf *out)
{
	struct json_tree *tree cleanup(json_freep) = NULL;
	struct json_error error;
	struct cli cli = {.color = color};

	assert_int_equal(json_parse(str_from(text), NULL, &tree, &error), 0);
	render_task(&cli, json_root(tree), output, out);
}

#define USAGE "\"cpu_us\":1480,\"wall_us\":2000,\"memory_bytes\":655360"

static void a_task_says_what_happened(void **state unused)
{
	static const char task[] =
		"{\"id\":\"" ID
		"\",\"status\":\"run_failed\",\"verdict\":\"time_limit\",\"language\":"
		"\"c\",\"user\":\"x\\u001b\",\"score\":1,\"max_score\":2,\"retries\":0,"
		"\"isolation\":\"none\",\"compile\":{" USAGE
		",\"exit_code\":0,\"stderr\":\"warn\\n\"},"
		"\"cases\":[{\"verdict\":\"accepted\"," USAGE
		",\"exit_code\":0,\"signal\":null,\"stdout\":\"3\\n\"},"
		"{\"verdict\":\"time_limit\"," USAGE ",\"exit_code\":null,\"signal\":9,\"limit\":{"
		"\"name\":\"cpu_ms\",\"allowed\":1000,\"measured\":1002},\"stdout\":{\"base64\":"
		"\"/wo=\"},\"stdout_truncated\":true,\"message\":\"too slow\"}]}";
	struct buf out cleanup(buf_fini) = BUF_INIT;

	rendered(false, false, task, &out);
	assert_string_equal(out.data,
		"time_limit  " ID "\n"
		"  language    c\n"
		"  user        x\\x1b\n"
		"  isolation   none\n"
		"  score       1 of 2\n"
		"         verdict     cpu     wall    memory   remarks\n"
		"compile  ok          1.5 ms  2.0 ms  640 KiB  -\n"
		"case 1   accepted    1.5 ms  2.0 ms  640 KiB  -\n"
		"case 2   time_limit  1.5 ms  2.0 ms  640 KiB  limit cpu_ms: 1002 measured, 1000 "
		"allowed; signal 9 (Killed); too slow\n"
		"compiler stderr:\n  warn\n");
	buf_clear(&out);
	rendered(true, true, task, &out);
	assert_non_null(strstr(out.data, "\033[31mtime_limit\033[0m  " ID));
	assert_non_null(strstr(out.data, "\033[32maccepted\033[0m"));
	assert_non_null(strstr(out.data, "case 1 stdout:\033[0m\n  3\n"));
	assert_non_null(
		strstr(out.data, "case 2 stdout (its middle is left out):\033[0m\n  \\xff\n"));
}

static void a_task_that_waits_has_no_verdict(void **state unused)
{
	struct buf out cleanup(buf_fini) = BUF_INIT;

	rendered(false, false,
		"{\"id\":\"" ID
		"\",\"status\":\"pending\",\"verdict\":null,\"compile\":null,\"cases\":"
		"null,\"score\":null,\"message\":null}",
		&out);
	assert_string_equal(out.data, "pending  " ID "\n");
}

static void the_verdict_is_the_exit_code(void **state unused)
{
	static const struct {
		const char *task;
		int code;
	} rows[] = {
		{"{\"verdict\":\"accepted\"}", CLI_OK},
		{"{\"verdict\":\"wrong_answer\"}", CLI_NOT_ACCEPTED},
		{"{\"verdict\":\"compile_error\"}", CLI_NOT_ACCEPTED},
		{"{\"verdict\":\"cancelled\"}", CLI_NOT_ACCEPTED},
		{"{\"verdict\":\"system_error\"}", CLI_OURS},
		{"{\"verdict\":null}", CLI_OURS},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct json_tree *tree cleanup(json_freep) = NULL;
		struct json_error error;

		assert_int_equal(json_parse(str_from(rows[i].task), NULL, &tree, &error), 0);
		assert_int_equal(verdict_exit(json_root(tree)), rows[i].code);
	}
}

/* --- this machine ---------------------------------------------------------------------------------------- */

static void services_are_read_and_not_touched(void **state unused)
{
	int fd;

	expect(1, "", "no judge has been started here", W("services", "--dir", "nowhere"));
	assert_int_equal(mkdir("run", 0755), 0);
	put("run/boot.lock", "-1\n", 0600);
	put("run/web.pid", "-1\n", 0600);
	expect(1, "web      down   -", "", W("services", "--run-dir", "run"));
	expect(1, "{\"name\":\"web\",\"state\":\"down\",\"pid\":null", "",
		W("services", "--dir", ".", "--json"));
	assert_int_equal(pidfile_lock("run/web.pid", &fd), 0);
	expect(1, "web      held   -", "", W("services", "--dir", "."));
	expect(2, "", "no such service here", W("hold", "wbe", "--dir", "."));
	pidfile_unlock(&fd);
	assert_true(machine_lock_state("run/web.pid") == LOCK_FREE);
	assert_true(machine_lock_state("run/none.pid") == LOCK_UNREADABLE);
}

/* --- events ---------------------------------------------------------------------------------------------------------------- */

static void on_event(void *arg, struct str event, struct str id, struct str data)
{
	buf_addf(arg, "<" STR_FMT "|" STR_FMT "|" STR_FMT ">", STR_ARG(event), STR_ARG(id),
		STR_ARG(data));
}

/* Wherever the pieces end. */
static void events_come_in_any_pieces(void **state)
{
	static const char text[] = "retry: 1000\n\n"
				   "event: task\nid: pending.0.0\ndata: {\"a\":\"b: c\"}\n\n"
				   ":\n\n"
				   ": a comment\nunknown: x\ndata:1\nother\n\n"
				   "event: none\n\n"
				   "event: done\nid: x\ndata: {}\n\n"
				   "event: cut\ndata: {";
	static const char expected[] = "<task|pending.0.0|{\"a\":\"b: c\"}><||1><done|x|{}>";

	for (size_t size = 1; size <= sizeof(text); size++) {
		struct buf out cleanup(buf_fini) = BUF_INIT;
		struct sse sse = {.fn = on_event, .arg = &out};

		for (size_t at = 0; at < sizeof(text) - 1; at += size) {
			size_t left = sizeof(text) - 1 - at;

			sse_feed(&sse, (struct str){text + at, left < size ? left : size});
		}
		assert_string_equal(out.data, expected);
		sse_reset(&sse); /* what was cut off is not part of the next stream */
		sse_feed(&sse, STR("}\n\ndata: 2\n\n"));
		assert_string_equal(out.data + sizeof(expected) - 1, "<||2>");
		sse_fini(&sse);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong_arguments_say_what_is_right),
		cmocka_unit_test(urls_are_checked),
		cmocka_unit_test(events_come_in_any_pieces),
		cmocka_unit_test(texts_come_from_the_rows),
		cmocka_unit_test(every_row_is_in_every_text),
		cmocka_unit_test(values_are_written_in_each_form),
		cmocka_unit_test_setup_teardown(a_file_is_a_source, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_language_nobody_offers_is_remarked, set_up, tear_down),
		cmocka_unit_test(programs_are_found_in_arguments),
		cmocka_unit_test_setup_teardown(what_cannot_be_sent_is_named, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_directory_is_its_files, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_command_needs_no_language, set_up, tear_down),
		cmocka_unit_test(limits_have_units),
		cmocka_unit_test(hostile_text_is_harmless),
		cmocka_unit_test(sizes_and_times_are_short),
		cmocka_unit_test(a_task_says_what_happened),
		cmocka_unit_test(a_task_that_waits_has_no_verdict),
		cmocka_unit_test(the_verdict_is_the_exit_code),
		cmocka_unit_test_setup_teardown(
			services_are_read_and_not_touched, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
