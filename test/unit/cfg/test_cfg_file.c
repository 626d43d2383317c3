/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration file: everything wrong in it is said at once, with its line and what would be right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cfg/cfg_table.h"

static struct cfg *load(struct str text, const char *problems)
{
	struct cfg *cfg = cfg_new();
	struct cfg_errors errors = {0};

	buf_add_str(&errors.text, STR(""));
	cfg_load_text(cfg, text, "judicator.conf", &errors);
	assert_string_equal(errors.text.data, problems);
	cfg_errors_fini(&errors);
	return cfg;
}

static void a_right_file_sets_what_it_names(void **state unused)
{
	struct cfg *cfg = load(STR("# two services\n"
				   "[judicator]\n"
				   "address = 10.0.0.1:4000\n"
				   "expire = 1m\n"
				   "\n"
				   "[executor]\n"
				   "slots = 4\n"
				   "[judicator]\n" /* a section may come again */
				   "reserve: 1GiB\n"),
		"");

	assert_string_equal(cfg_str(cfg, OPT_judicator_address), "10.0.0.1:4000");
	assert_int_equal(cfg_int(cfg, OPT_judicator_expire), 60000000);
	assert_int_equal(cfg_int(cfg, OPT_executor_slots), 4);
	assert_int_equal(cfg_int(cfg, OPT_judicator_reserve), 1 << 30);
	assert_true(cfg_is_set(cfg, OPT_executor_slots));
	assert_false(cfg_is_set(cfg, OPT_executor_name));
	cfg_free(cfg);
}

static void all_problems_are_reported_at_once(void **state unused)
{
	struct cfg *cfg = load(STR("[judicatr]\n"
				   "address = 10.0.0.1:4000\n"
				   "[executor]\n"
				   "slot = 4\n"
				   "level = debug\n"
				   "wibble = 1\n"
				   "name = e1\n"
				   "name = e2\n"
				   "slots = 1000\n"
				   "[rpc]\n"
				   "wait = 5\n"
				   "[log]\n"
				   "level = verbose\n"),
		"judicator.conf:1: unknown section [judicatr]; did you mean [judicator]?\n"
		"judicator.conf:4: unknown key slot in [executor]; did you mean slots?\n"
		"judicator.conf:5: unknown key level in [executor]; it belongs to [log]\n"
		"judicator.conf:6: unknown key wibble in [executor]\n"
		"judicator.conf:8: executor.name is set again: line 7 has set it already, keep "
		"one\n"
		"judicator.conf:9: executor.slots: \"1000\" is out of range: 0 to 100 tasks\n"
		"judicator.conf:11: rpc.wait: \"5\" is not a duration: write 5s or 5ms\n"
		"judicator.conf:13: log.level: \"verbose\" is not a choice: write error, warn, "
		"info "
		"or debug\n");

	assert_string_equal(cfg_str(cfg, OPT_executor_name), "e1"); /* what is right is taken */
	assert_false(cfg_is_set(cfg, OPT_judicator_address));
	cfg_free(cfg);
}

static void an_unknown_section_like_no_other_gets_the_list(void **state unused)
{
	struct cfg *cfg = cfg_new();
	struct cfg_errors errors = {0};

	cfg_load_text(cfg, STR("[web]\nlisten = 80\n"), "f", &errors);
	assert_int_equal(errors.count, 1);
	assert_int_equal(
		strncmp(errors.text.data, "f:1: unknown section [web]; there are [boot] ", 45), 0);
	for (size_t i = 0; i < OPT_N; i++) {
		struct buf name cleanup(buf_fini) = BUF_INIT;
		const char *first;

		buf_addf(&name, " [%s]", cfg_rows[i].section);
		first = strstr(errors.text.data, name.data);
		assert_non_null(first);
		assert_null(strstr(first + 1, name.data));
	}
	cfg_errors_fini(&errors);
	cfg_free(cfg);
}

static void a_missing_file_is_a_problem(void **state unused)
{
	struct cfg *cfg = cfg_new();
	struct cfg_errors errors = {0};

	cfg_load_file(cfg, "/nonexistent/judicator.conf", &errors);
	assert_string_equal(errors.text.data,
		"/nonexistent/judicator.conf: cannot be read: No such file or directory\n");
	cfg_errors_fini(&errors);
	cfg_free(cfg);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_right_file_sets_what_it_names),
		cmocka_unit_test(all_problems_are_reported_at_once),
		cmocka_unit_test(an_unknown_section_like_no_other_gets_the_list),
		cmocka_unit_test(a_missing_file_is_a_problem),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
