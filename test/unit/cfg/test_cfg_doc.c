/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The documentation that comes from the table, and cfg/conf/: each file there is a header, then
 * cfg_doc_sample() with a few settings uncommented. A row that is changed without its files fails here;
 * CONCLAVE_TEST_UPDATE=1 in the environment writes the files anew.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "cfg/cfg_table.h"
#include "reactor/base/mem.h"

static bool has_line(const struct buf *text, const char *line)
{
	struct str rest = buf_str(text), found;

	while (str_cut(&rest, '\n', &found)) {
		if (str_is(found, line))
			return true;
	}
	return false;
}

static size_t longest_line(const struct buf *text)
{
	struct str rest = buf_str(text), line;
	size_t longest = 0;

	while (str_cut(&rest, '\n', &line)) {
		if (line.n > longest)
			longest = line.n;
	}
	return longest;
}

static void help_shows_each_option_of_the_services(void **state unused)
{
	struct buf help cleanup(buf_fini) = BUF_INIT;

	cfg_doc_help(&help, CFG_EXECUTOR);
	for (size_t i = 0; i < OPT_N; i++) {
		char *line cleanup(mem_freep) =
			mem_printf("  --%s.%s=VALUE", cfg_rows[i].section, cfg_rows[i].key);

		assert_int_equal(has_line(&help, line), (cfg_rows[i].services & CFG_EXECUTOR) != 0);
	}
	assert_true(has_line(&help, "      (0 to 100 tasks; default 0)"));
	assert_true(has_line(&help, "      (auto, ns or none; default auto)"));
	assert_true(has_line(&help, "      (error, warn, info or debug; default info; SIGHUP "
				    "reloads it)"));
	assert_true(longest_line(&help) <= 100);
}

static void the_manual_lists_each_option(void **state unused)
{
	struct buf man cleanup(buf_fini) = BUF_INIT;

	cfg_doc_man(&man, CFG_ALL);
	for (size_t i = 0; i < OPT_N; i++) {
		char *line cleanup(mem_freep) =
			mem_printf(".It Cm %s.%s", cfg_rows[i].section, cfg_rows[i].key);

		assert_true(has_line(&man, line));
	}
	assert_true(has_line(&man, ".Bl -tag -width Ds"));
	assert_true(has_line(&man, ".El"));
	assert_true(has_line(&man, "(0 to 100 tasks; default 0)."));
	assert_true(has_line(&man, "Read by executor, gateway."));
	assert_true(has_line(&man, "Read by all."));
	assert_true(longest_line(&man) <= 80);
}

static void prose_becomes_mdoc(void **state unused)
{
	static const char *const rows[][2] = {
		{"one two", "one two\n"},
		{"One. Two three.", "One.\nTwo three.\n"},
		{".so and 'so", "\\&.so and 'so\n"},
		{"First. 'then", "First.\n\\&'then\n"},
		{"C:\\dir", "C:\\edir\n"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct buf man cleanup(buf_fini) = BUF_INIT;

		cfg_doc_mdoc(&man, str_from(rows[i][0]));
		buf_add_char(&man, '\0');
		assert_string_equal(man.data, rows[i][1]);
	}
}

/* The sample with every option uncommented is a file that sets everything to its default. */
static void the_sample_is_a_file_of_the_defaults(void **state unused)
{
	struct buf sample cleanup(buf_fini) = BUF_INIT;
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct cfg *cfg = cfg_new();
	struct cfg_errors errors = {0};
	struct str rest, line;

	cfg_doc_sample(&sample, CFG_ALL);
	assert_true(longest_line(&sample) <= 100);
	for (rest = buf_str(&sample); str_cut(&rest, '\n', &line);) {
		bool setting = line.n > 1 && line.p[0] == '#' && line.p[1] != ' ';

		buf_addf(&text, STR_FMT "\n", (int)(line.n - setting), line.p + setting);
	}
	cfg_load_text(cfg, buf_str(&text), "sample", &errors);
	if (errors.count)
		fail_msg("%s", errors.text.data);
	for (size_t i = 0; i < OPT_N; i++) {
		assert_true(cfg_is_set(cfg, i));
		assert_string_equal(cfg_str(cfg, i), cfg_rows[i].def);
	}
	cfg_free(cfg);
}

/* --- cfg/conf/ ------------------------------------------------------------------------------- */

struct conf_setting {
	enum cfg_option option;
	const char *value;
};

struct conf {
	const char *file;
	const char *header;
	unsigned services;
	struct conf_setting settings[8]; /* ends at the first without a value */
};

static const struct conf confs[] = {
	{
		.file = "judicator.conf",
		.header = "# judicator.conf - keeps the tasks: judicator -c judicator.conf\n"
			  "# Without a cluster: one judicator at a fixed address that does the "
			  "leader's duties.\n",
		.services = CFG_BOOT | CFG_JUDICATOR | CFG_ETCD | CFG_MONGODB,
		.settings = {{OPT_etcd_enabled, "no"}, {OPT_judicator_address, "127.0.0.1:4000"},
			{OPT_judicator_leading, "yes"}, {OPT_judicator_name, "j1"},
			{OPT_judicator_store, "sqlite"}},
	},
	{
		.file = "executor.conf",
		.header =
			"# executor.conf - compiles and runs the tasks: executor -c "
			"executor.conf\n"
			"# Without a cluster: the judicator is at a fixed address. Every executor "
			"needs its own name.\n",
		.services = CFG_BOOT | CFG_EXECUTOR | CFG_ETCD,
		.settings = {{OPT_etcd_enabled, "no"}, {OPT_executor_name, "e1"},
			{OPT_judicator_addresses, "127.0.0.1:4000"}},
	},
	{
		.file = "gateway.conf",
		.header = "# gateway.conf - serves people and programs over HTTP: gateway -c "
			  "gateway.conf\n"
			  "# Without a cluster: the judicator is at a fixed "
			  "address.\n",
		.services = CFG_BOOT | CFG_GATEWAY | CFG_ETCD,
		.settings = {{OPT_etcd_enabled, "no"}, {OPT_gateway_addresses, "127.0.0.1:7000"},
			{OPT_judicator_addresses, "127.0.0.1:4000"}},
	},
};

static const char *setting_of(const struct conf *conf, enum cfg_option option)
{
	for (const struct conf_setting *s = conf->settings; s->value; s++) {
		if (s->option == option)
			return s->value;
	}
	return NULL;
}

/* What the file should be: its header, then the sample with conf's settings in place of the comments. */
static void generate(const struct conf *conf, struct buf *out)
{
	struct buf sample cleanup(buf_fini) = BUF_INIT;
	struct str rest, line, section = STR_NULL;

	buf_addf(out, "# SPDX-License-Identifier: Apache-2.0\n%s", conf->header);
	cfg_doc_sample(&sample, conf->services);
	rest = buf_str(&sample);
	while (str_cut(&rest, '\n', &line) && rest.p) {
		const char *value = NULL;

		if (line.n > 2 && line.p[0] == '[')
			section = (struct str){line.p + 1, line.n - 2};
		if (line.n > 1 && line.p[0] == '#' && line.p[1] != ' ') {
			struct str key = {line.p + 1, strcspn(line.p + 1, " ")};
			int option = cfg_find(section, key);

			assert_true(option >= 0);
			value = setting_of(conf, (enum cfg_option)option);
		}
		if (value)
			buf_addf(out, STR_FMT " %s\n", (int)strcspn(line.p + 1, "=") + 1,
				line.p + 1, value);
		else
			buf_addf(out, STR_FMT "\n", STR_ARG(line));
	}
}

static void compare_file(const char *path, const struct buf *expected)
{
	struct buf found cleanup(buf_fini) = BUF_INIT;
	FILE *file = fopen(path, "re");

	if (!file)
		fail_msg("%s is missing", path);
	size_t n = fread(buf_reserve(&found, 1 << 20), 1, 1 << 20, file);

	found.len = n;
	fclose(file);
	if (!str_eq(buf_str(&found), buf_str(expected)))
		fail_msg("%s is not what options.def gives: run this test with "
			 "CONCLAVE_TEST_UPDATE=1",
			path);
}

static void update_file(const char *path, const struct buf *text)
{
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	assert_int_equal(fwrite(text->data, 1, text->len, file), text->len);
	assert_int_equal(fclose(file), 0);
}

static void the_sample_files_are_up_to_date_and_load(void **state unused)
{
	for (size_t i = 0; i < ARRAY_SIZE(confs); i++) {
		char *path cleanup(mem_freep) =
			mem_printf("%s/cfg/conf/%s", CONCLAVE_SOURCE_DIR, confs[i].file);
		struct buf text cleanup(buf_fini) = BUF_INIT;
		struct cfg_errors errors = {0};
		struct cfg *cfg = cfg_new();

		generate(&confs[i], &text);
		if (getenv("CONCLAVE_TEST_UPDATE"))
			update_file(path, &text);
		compare_file(path, &text);
		cfg_load_file(cfg, path, &errors);
		if (errors.count)
			fail_msg("%s", errors.text.data);
		for (size_t o = 0; o < OPT_N; o++) {
			const char *value = setting_of(&confs[i], (enum cfg_option)o);
			char *key cleanup(mem_freep) = mem_printf("%s =", cfg_rows[o].key);

			assert_int_equal(cfg_is_set(cfg, o), value != NULL);
			assert_string_equal(cfg_str(cfg, o), value ? value : cfg_rows[o].def);
			if (cfg_rows[o].services & confs[i].services)
				assert_non_null(strstr(text.data, key));
		}
		cfg_free(cfg);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(help_shows_each_option_of_the_services),
		cmocka_unit_test(the_manual_lists_each_option),
		cmocka_unit_test(prose_becomes_mdoc),
		cmocka_unit_test(the_sample_is_a_file_of_the_defaults),
		cmocka_unit_test(the_sample_files_are_up_to_date_and_load),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
