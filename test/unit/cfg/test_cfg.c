/* SPDX-License-Identifier: Apache-2.0 */
/* Values, which source wins, reload, and the file that is written and read back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cfg/cfg_table.h"
#include "reactor/base/mem.h"

struct fixture {
	struct cfg *cfg;
	struct cfg_errors errors;
	char *dir;
};

static int set_up(void **state)
{
	struct fixture *f = mem_alloc(sizeof *f);

	f->cfg = cfg_new();
	f->dir = mem_strdup("/tmp/conclave-test-XXXXXX");
	*state = f;
	return mkdtemp(f->dir) ? 0 : -1;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	int error = rmdir(f->dir);

	cfg_free(f->cfg);
	cfg_errors_fini(&f->errors);
	free(f->dir);
	free(f);
	return error;
}

static void starts_with_the_defaults(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < OPT_N; i++) {
		assert_string_equal(cfg_str(f->cfg, i), cfg_rows[i].def);
		assert_false(cfg_is_set(f->cfg, i));
	}
	assert_int_equal(cfg_int(f->cfg, OPT_boot_stop_timeout), 20000000);
	assert_int_equal(cfg_int(f->cfg, OPT_gateway_body_max), 64 << 20);
	assert_int_equal(cfg_int(f->cfg, OPT_judicator_max_retries), 3);
	assert_false(cfg_bool(f->cfg, OPT_etcd_enabled));
	assert_true(cfg_bool(f->cfg, OPT_judicator_leading));
	cfg_free(NULL);
}

static void takes_what_is_right_and_reports_what_is_not(void **state)
{
	struct fixture *f = *state;

	cfg_set(f->cfg, OPT_executor_slots, "8", "test", &f->errors);
	cfg_set(f->cfg, OPT_executor_slots, "300", "test", &f->errors);
	cfg_set(f->cfg, OPT_etcd_enabled, "maybe", "other", &f->errors);
	assert_int_equal(cfg_int(f->cfg, OPT_executor_slots), 8);
	assert_true(cfg_is_set(f->cfg, OPT_executor_slots));
	assert_false(cfg_is_set(f->cfg, OPT_etcd_enabled));
	assert_int_equal(f->errors.count, 2);
	assert_string_equal(f->errors.text.data,
		"test: executor.slots: \"300\" is out of range: 0 to 100 tasks\n"
		"other: etcd.enabled: \"maybe\" is neither yes nor no (true, false, on and off are "
		"understood too)\n");
}

static const char *value_after(const int order[5])
{
	static const char *const values[] = {"preset", "file", "env", "argv", "program"};
	struct cfg_errors errors = {0};
	struct cfg *cfg = cfg_new();
	char *argv[] = {(char *)"p", (char *)"--executor.name=argv", NULL};
	char *env[] = {(char *)"CONCLAVE_EXECUTOR_NAME=env", NULL};
	const char *found = "default";
	int argc = 2;

	for (int i = 0; i < 5 && order[i] >= 0; i++) {
		if (order[i] == 0)
			cfg_set_default(cfg, OPT_executor_name, "preset", "p", &errors);
		else if (order[i] == 1)
			cfg_load_text(cfg, STR("[executor]\nname = file\n"), "f", &errors);
		else if (order[i] == 2)
			cfg_load_env(cfg, env, &errors);
		else if (order[i] == 3)
			cfg_load_argv(cfg, &argc, argv, &errors);
		else
			cfg_set(cfg, OPT_executor_name, "program", "p", &errors);
	}
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		if (strcmp(cfg_str(cfg, OPT_executor_name), values[i]) == 0)
			found = values[i];
	}
	assert_int_equal(errors.count, 0);
	cfg_free(cfg);
	return found;
}

static void the_strongest_source_wins_in_any_order(void **state unused)
{
	assert_string_equal(value_after((int[5]){0, -1}), "preset");
	assert_string_equal(value_after((int[5]){0, 1, -1}), "file");
	assert_string_equal(value_after((int[5]){1, 0, -1}), "file");
	assert_string_equal(value_after((int[5]){1, 2, -1}), "env");
	assert_string_equal(value_after((int[5]){2, 1, 0, -1}), "env");
	assert_string_equal(value_after((int[5]){3, 2, 1, 0, -1}), "argv");
	assert_string_equal(value_after((int[5]){0, 1, 2, 3, -1}), "argv");
	assert_string_equal(value_after((int[5]){4, 3, 2, 1, 0}), "program");
}

static void wrong_values_of_weaker_sources_are_reported_too(void **state)
{
	struct fixture *f = *state;

	cfg_set(f->cfg, OPT_executor_slots, "8", "test", &f->errors);
	cfg_load_text(f->cfg, STR("[executor]\nslots = many\n"), "f", &f->errors);
	assert_int_equal(f->errors.count, 1);
	assert_int_equal(cfg_int(f->cfg, OPT_executor_slots), 8);
}

static void problems_are_counted_and_bounded(void **state)
{
	struct fixture *f = *state;
	size_t lines = 0;

	for (int i = 0; i < 1000; i++)
		cfg_errors_add(&f->errors, "f", "problem %d", i);
	assert_int_equal(f->errors.count, 1000);
	for (size_t i = 0; i < f->errors.text.len; i++)
		lines += f->errors.text.data[i] == '\n';
	assert_int_equal(lines, 101);
	assert_non_null(strstr(f->errors.text.data, "f: problem 99\n(more problems"));
	cfg_errors_fini(&f->errors);
	assert_int_equal(f->errors.count, 0);
}

static void reload_takes_the_reloadable_and_names_the_rest(void **state)
{
	struct fixture *f = *state;
	struct cfg *fresh = cfg_new();
	struct buf ignored cleanup(buf_fini) = BUF_INIT;

	cfg_set(f->cfg, OPT_gateway_body_max, "1MiB", "test", &f->errors);
	cfg_load_text(fresh, STR("[log]\nlevel = debug\n[executor]\nslots = 4\nname = e2\n"), "f",
		&f->errors);
	assert_int_equal(cfg_reload(f->cfg, fresh, &ignored), 2);
	assert_string_equal(cfg_str(f->cfg, OPT_log_level), "debug");
	assert_int_equal(cfg_int(f->cfg, OPT_gateway_body_max), 64 << 20); /* back to the default */
	assert_false(cfg_is_set(f->cfg, OPT_gateway_body_max));
	assert_int_equal(cfg_int(f->cfg, OPT_executor_slots), 0);
	assert_string_equal(ignored.data, "executor.name executor.slots");
	buf_clear(&ignored);
	assert_int_equal(cfg_reload(f->cfg, fresh, &ignored), 0);
	cfg_free(fresh);
}

/* --- the written file ---------------------------------------------------------------------- */

static size_t files_in(const char *dir)
{
	DIR *d = opendir(dir);
	size_t n = 0;

	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static void written_files_read_back_the_same(void **state)
{
	static const char *const names[] = {"plain", "two words", " edges ", "a ; b", "a # b",
		"#hash", ";semi", "\"quoted\"", "\"", "a\"", "\ttab\t", "a;b", "k = v", "[s]",
		"\xC3\xA4", ""};
	struct fixture *f = *state;
	char *path cleanup(mem_freep) = mem_printf("%s/written.conf", f->dir);

	cfg_set(f->cfg, OPT_gateway_hosts, "a.example, b.example", "test", &f->errors);
	cfg_set_default(f->cfg, OPT_boot_stop_timeout, "90s", "preset", &f->errors);
	cfg_set(f->cfg, OPT_etcd_enabled, "off", "test", &f->errors);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct cfg *again = cfg_new();

		cfg_set(f->cfg, OPT_executor_name, names[i], "test", &f->errors);
		assert_int_equal(cfg_write_file(f->cfg, path, CFG_ALL), 0);
		cfg_load_file(again, path, &f->errors);
		if (f->errors.count)
			fail_msg("%s", f->errors.text.data);
		for (size_t o = 0; o < OPT_N; o++) {
			assert_string_equal(cfg_str(again, o), cfg_str(f->cfg, o));
			assert_int_equal(cfg_is_set(again, o), cfg_is_set(f->cfg, o));
		}
		cfg_free(again);
	}
	assert_int_equal(files_in(f->dir), 1);
	unlink(path);
}

static void written_files_are_private_and_hold_only_their_services(void **state)
{
	struct fixture *f = *state;
	char *path cleanup(mem_freep) = mem_printf("%s/written.conf", f->dir);
	struct cfg *again = cfg_new();
	struct stat st;

	umask(0);
	cfg_set(f->cfg, OPT_executor_name, "e1", "test", &f->errors);
	cfg_set(f->cfg, OPT_gateway_hosts, "a", "test", &f->errors);
	cfg_set(f->cfg, OPT_log_level, "warn", "test", &f->errors);
	assert_int_equal(cfg_write_file(f->cfg, path, CFG_EXECUTOR), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	cfg_load_file(again, path, &f->errors);
	assert_int_equal(f->errors.count, 0);
	assert_string_equal(cfg_str(again, OPT_executor_name), "e1");
	assert_string_equal(cfg_str(again, OPT_log_level), "warn"); /* for all services */
	assert_false(cfg_is_set(again, OPT_gateway_hosts));
	cfg_free(again);
	unlink(path);
}

static void a_failed_write_says_why_and_leaves_nothing(void **state)
{
	struct fixture *f = *state;
	char *missing cleanup(mem_freep) = mem_printf("%s/no/written.conf", f->dir);
	char *taken cleanup(mem_freep) = mem_printf("%s/taken", f->dir);

	assert_int_equal(cfg_write_file(f->cfg, missing, CFG_ALL), -ENOENT);
	assert_int_equal(mkdir(taken, 0700), 0); /* rename over a directory fails */
	assert_int_equal(cfg_write_file(f->cfg, taken, CFG_ALL), -EISDIR);
	assert_int_equal(files_in(f->dir), 1);
	rmdir(taken);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(starts_with_the_defaults),
		TEST(takes_what_is_right_and_reports_what_is_not),
		TEST(the_strongest_source_wins_in_any_order),
		TEST(wrong_values_of_weaker_sources_are_reported_too),
		TEST(problems_are_counted_and_bounded),
		TEST(reload_takes_the_reloadable_and_names_the_rest),
		TEST(written_files_read_back_the_same),
		TEST(written_files_are_private_and_hold_only_their_services),
		TEST(a_failed_write_says_why_and_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
