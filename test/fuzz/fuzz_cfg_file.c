/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a configuration file and as a language profile. Besides not crashing: what was taken must
 * survive being written and read back, and a profile is given out exactly when it has no problem.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cfg/cfg_table.h"
#include "cfg/language.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* cfg's set values as text of a file, as cfg_write_file() would write them. */
static void write_back(const struct cfg *cfg, struct buf *out)
{
	for (int i = 0; i < OPT_N; i++) {
		if (!cfg_is_set(cfg, (enum cfg_option)i))
			continue;
		buf_addf(out, "[%s]\n%s = ", cfg_rows[i].section, cfg_rows[i].key);
		cfg_value_write(out, cfg_str(cfg, (enum cfg_option)i));
		buf_add_char(out, '\n');
	}
}

static void fuzz_options(struct str text)
{
	struct cfg *cfg = cfg_new(), *again = cfg_new();
	struct cfg_errors errors = {0}, none = {0};
	struct buf written cleanup(buf_fini) = BUF_INIT;

	cfg_load_text(cfg, text, "fuzz.conf", &errors);
	CHECK((errors.count == 0) == (errors.text.len == 0));
	write_back(cfg, &written);
	cfg_load_text(again, buf_str(&written), "again.conf", &none);
	CHECK(none.count == 0);
	for (int i = 0; i < OPT_N; i++)
		CHECK(strcmp(cfg_str(cfg, (enum cfg_option)i),
			      cfg_str(again, (enum cfg_option)i)) == 0);
	cfg_errors_fini(&errors);
	cfg_errors_fini(&none);
	cfg_free(cfg);
	cfg_free(again);
}

static void fuzz_profile(struct str text)
{
	struct cfg_errors errors = {0};
	struct language *language = language_parse("fuzz", text, "fuzz.ini", &errors);

	CHECK((language != NULL) == (errors.count == 0));
	if (language) {
		CHECK(language->title && language->source && language->run);
		language_argv_free(language_argv(language, language->run, INT64_C(256) << 20));
		if (language->compile)
			language_argv_free(language_argv(language, language->compile, INT64_MAX));
	}
	language_free(language);
	cfg_errors_fini(&errors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* present even when empty */
	struct str text = {size ? (const char *)data : "", size};

	fuzz_options(text);
	fuzz_profile(text);
	return 0;
}
