/* SPDX-License-Identifier: Apache-2.0 */
/* Command line and environment: what is taken, what is left alone, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cfg/cfg_table.h"

#define ARGS_MAX 16

struct line {
	struct cfg *cfg;
	int argc;
	const char *argv[ARGS_MAX];
	char *list[ARGS_MAX];
	struct cfg_errors errors;
};

static void run_argv(struct line *line)
{
	line->cfg = cfg_new();
	buf_add_str(&line->errors.text, STR(""));
	while (line->argv[line->argc]) {
		line->list[line->argc] = (char *)line->argv[line->argc];
		line->argc++;
	}
	cfg_load_argv(line->cfg, &line->argc, line->list, &line->errors);
}

static void expect_argv(const struct line *line, const char *const *left)
{
	int n = 0;

	for (; left[n]; n++)
		assert_string_equal(line->list[n], left[n]);
	assert_int_equal(line->argc, n);
	assert_null(line->list[n]);
}

static void fini(struct line *line)
{
	cfg_free(line->cfg);
	cfg_errors_fini(&line->errors);
}

static void options_are_taken_out_the_rest_keeps_its_order(void **state unused)
{
	struct line line = {.argv = {"p", "-c", "x.conf", "--executor.slots=4", "--standalone",
				    "--executor.name", "e 1", "task.cpp", "--source=a.cpp",
				    "--log.level=debug", "--log.level=warn", NULL}};

	run_argv(&line);
	assert_string_equal(line.errors.text.data, "");
	expect_argv(&line, (const char *const[]){"p", "-c", "x.conf", "--standalone", "task.cpp",
				   "--source=a.cpp", NULL});
	assert_int_equal(cfg_int(line.cfg, OPT_executor_slots), 4);
	assert_string_equal(cfg_str(line.cfg, OPT_executor_name), "e 1");
	assert_string_equal(cfg_str(line.cfg, OPT_log_level), "warn"); /* the last counts */
	fini(&line);
}

static void two_dashes_end_the_options(void **state unused)
{
	struct line line = {.argv = {"--executor.slots=1", "--executor.slots=2", "--",
				    "--executor.slots=3", NULL}};

	run_argv(&line);
	assert_string_equal(line.errors.text.data, "");
	expect_argv(&line,
		(const char *const[]){"--executor.slots=1", "--", "--executor.slots=3", NULL});
	assert_int_equal(cfg_int(line.cfg, OPT_executor_slots), 2);
	fini(&line);
}

static void wrong_arguments_are_all_reported(void **state unused)
{
	struct line line = {.argv = {"p", "--executor.slot=4", "--executor.slots", "--rpc.wait=5",
				    "--a.b", "c", "--judicator.name", NULL}};

	run_argv(&line);
	assert_string_equal(line.errors.text.data,
		"--executor.slot: no such option; did you mean --executor.slots?\n"
		"--executor.slots: needs a value: 0 to 100 tasks\n"
		"--rpc.wait: rpc.wait: \"5\" is not a duration: write 5s or 5ms\n"
		"--a.b: no such option\n"
		"--judicator.name: needs a value: name, 0 to 64 bytes\n");
	expect_argv(&line, (const char *const[]){"p", NULL});
	fini(&line);
}

static void empty_values_are_values(void **state unused)
{
	struct line line = {.argv = {"p", "--boot.user=", "--boot.dir", "", NULL}};

	run_argv(&line);
	assert_string_equal(line.errors.text.data, "");
	assert_string_equal(cfg_str(line.cfg, OPT_boot_user), "");
	assert_true(cfg_is_set(line.cfg, OPT_boot_dir));
	fini(&line);
}

static void no_arguments_at_all(void **state unused)
{
	struct line line = {.argv = {NULL}};

	run_argv(&line);
	assert_int_equal(line.argc, 0);
	assert_string_equal(line.errors.text.data, "");
	fini(&line);
}

static void load_env(char **list, struct cfg *cfg, const char *problems)
{
	struct cfg_errors errors = {0};

	buf_add_str(&errors.text, STR(""));
	cfg_load_env(cfg, list, &errors);
	assert_string_equal(errors.text.data, problems);
	cfg_errors_fini(&errors);
}

#define ENV(...) ((char **)(const char *[]){__VA_ARGS__, NULL})

static void variables_set_options(void **state unused)
{
	struct cfg *cfg = cfg_new();

	load_env(ENV("HOME=/root", "CONCLAVE_EXECUTOR_SLOTS=4", "CONCLAVE_BOOT_STOP_TIMEOUT=5s",
			 "CONCLAVE_EXECUTOR_NAME=a=b", "CONCLAVE_TEST_ETCD=/x", "CONCLAVE=1",
			 "conclave_log_level=x"),
		cfg, "");
	assert_int_equal(cfg_int(cfg, OPT_executor_slots), 4);
	assert_int_equal(cfg_int(cfg, OPT_boot_stop_timeout), 5000000);
	assert_string_equal(cfg_str(cfg, OPT_executor_name), "a=b");
	load_env(NULL, cfg, "");
	cfg_free(cfg);
}

static void wrong_variables_are_all_reported(void **state unused)
{
	struct cfg *cfg = cfg_new();

	load_env(ENV("CONCLAVE_EXECUTOR_SLOT=4", "CONCLAVE_FOO_BAR=1", "CONCLAVE_RPC_WAIT=5",
			 "CONCLAVE_executor_slots=1", "CONCLAVE_A\nB=1"),
		cfg,
		"environment CONCLAVE_EXECUTOR_SLOT: no such option; did you mean "
		"CONCLAVE_EXECUTOR_SLOTS?\n"
		"environment CONCLAVE_FOO_BAR: no such option\n"
		"environment CONCLAVE_RPC_WAIT: rpc.wait: \"5\" is not a duration: write 5s or "
		"5ms\n"
		"environment CONCLAVE_executor_slots: no such option; did you mean "
		"CONCLAVE_EXECUTOR_SLOTS?\n"
		"environment CONCLAVE_A?B: no such option\n");
	cfg_free(cfg);
}

static void the_clients_variables_are_no_options(void **state unused)
{
	struct cfg *cfg = cfg_new();

	load_env(
		ENV("CONCLAVE_URL=http://127.0.0.1:7000", "CONCLAVE_TOKEN=secret", "CONCLAVE_URL="),
		cfg, "");
	load_env(ENV("CONCLAVE_URLS=x", "CONCLAVE_TOKEN_FILE=x"), cfg,
		"environment CONCLAVE_URLS: no such option\n"
		"environment CONCLAVE_TOKEN_FILE: no such option\n");
	cfg_free(cfg);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_are_taken_out_the_rest_keeps_its_order),
		cmocka_unit_test(two_dashes_end_the_options),
		cmocka_unit_test(wrong_arguments_are_all_reported),
		cmocka_unit_test(empty_values_are_values),
		cmocka_unit_test(no_arguments_at_all),
		cmocka_unit_test(variables_set_options),
		cmocka_unit_test(the_clients_variables_are_no_options),
		cmocka_unit_test(wrong_variables_are_all_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
