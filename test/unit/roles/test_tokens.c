/* SPDX-License-Identifier: Apache-2.0 */
/* The file of gateway.tokens: what it may say, every problem at once, who may own it; the buckets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "cfg/cfg.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "roles/gateway/tokens.h"

/* SHA-256 of "secret" and of "other". */
#define SECRET "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
#define OTHER "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"

static void reads_what_a_line_says(void **state unused)
{
	struct cfg_errors errors cleanup(cfg_errors_fini) = {BUF_INIT, 0};
	struct tokens tokens cleanup(tokens_fini);

	tokens_parse(STR("# who may come\n\n"
			 "  alice submit,read " SECRET " rate=5/s open=20 # a remark\r\n"
			 "root\tadmin\t" OTHER "\tuser=ops rate=2/m"),
		"tokens", &tokens, &errors);
	assert_int_equal(errors.count, 0);
	assert_int_equal(tokens.n, 2);
	assert_string_equal(tokens.items[0].name, "alice");
	assert_string_equal(tokens.items[0].user, "alice");
	assert_int_equal(tokens.items[0].roles, TOKEN_SUBMIT | TOKEN_READ);
	assert_int_equal(tokens.items[0].rate_n, 5);
	assert_int_equal(tokens.items[0].rate_us, US_PER_S);
	assert_int_equal(tokens.items[0].open_max, 20);
	assert_string_equal(tokens.items[1].user, "ops");
	assert_int_equal(tokens.items[1].roles, TOKEN_ADMIN);
	assert_int_equal(tokens.items[1].rate_us, 60 * US_PER_S);
	assert_int_equal(tokens.items[1].open_max, 0);
	assert_ptr_equal(tokens_find(&tokens, STR("secret")), &tokens.items[0]);
	assert_ptr_equal(tokens_find(&tokens, STR("other")), &tokens.items[1]);
	assert_null(tokens_find(&tokens, STR("secre")));
	assert_null(tokens_find(&tokens, STR("")));
	assert_null(tokens_find(&tokens, STR(SECRET)));
}

static void tells_each_problem_with_its_line(void **state unused)
{
	static const struct {
		const char *line, *problem;
	} rows[] = {
		{"", "has no token"},
		{"a/b submit " SECRET, "f:1: expected a name first"},
		{"alice", "f:1: expected the roles behind the name"},
		{"alice write " SECRET, "f:1: expected the roles behind the name"},
		{"alice submit, " SECRET, "f:1: expected the roles behind the name"},
		{"alice submit", "f:1: expected the token's SHA-256"},
		{"alice submit secret", "f:1: expected the token's SHA-256"},
		{"alice submit " SECRET "0", "f:1: expected the token's SHA-256"},
		{"alice submit " SECRET " rate=0/s", "f:1: expected rate=N/s"},
		{"alice submit " SECRET " rate=5", "f:1: expected rate=N/s"},
		{"alice submit " SECRET " rate=5/d", "f:1: expected rate=N/s"},
		{"alice submit " SECRET " open=1001", "f:1: expected open=N"},
		{"alice submit " SECRET " open", "f:1: expected open=N"},
		{"alice submit " SECRET " user=", "f:1: expected user=NAME"},
		{"alice submit " SECRET " open=1 open=2", "f:1: open is given twice"},
		{"alice submit " SECRET " x=1", "f:1: expected rate=N/s, open=N or user=NAME"},
		{"a read " SECRET "\na read " OTHER, "f:2: the name a is taken"},
		{"a read " SECRET "\nb read " SECRET, "f:2: a has this digest already"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct cfg_errors errors cleanup(cfg_errors_fini) = {BUF_INIT, 0};
		struct tokens tokens cleanup(tokens_fini);

		tokens_parse(str_from(rows[i].line), "f", &tokens, &errors);
		if (errors.count != 1 || !strstr(errors.text.data, rows[i].problem))
			fail_msg("\"%s\": %u problems: %s", rows[i].line, errors.count,
				errors.count ? errors.text.data : "");
	}
}

static void tells_all_at_once_and_no_secret(void **state unused)
{
	struct cfg_errors errors cleanup(cfg_errors_fini) = {BUF_INIT, 0};
	struct tokens tokens cleanup(tokens_fini);

	tokens_parse(STR("alice submit hunter2\n\n/ read " SECRET " rate=x open=x\n"), "/t",
		&tokens, &errors);
	assert_int_equal(errors.count, 4);
	assert_non_null(strstr(errors.text.data, "/t:1: "));
	assert_non_null(strstr(errors.text.data, "/t:3: expected a name"));
	assert_non_null(strstr(errors.text.data, "/t:3: expected rate"));
	assert_non_null(strstr(errors.text.data, "/t:3: expected open"));
	assert_null(strstr(errors.text.data, "hunter2"));
}

static void buckets_hold_one_unit(void **state unused)
{
	struct token token = {.rate_n = 2, .rate_us = US_PER_S}, free = {0};
	int64_t now_us = 1000 * US_PER_S, full_at_us = 0;

	assert_int_equal(token_charge(&token, &full_at_us, now_us), 0);
	assert_int_equal(token_charge(&token, &full_at_us, now_us), 0);
	assert_int_equal(token_charge(&token, &full_at_us, now_us), US_PER_S / 2);
	assert_int_equal(token_charge(&token, &full_at_us, now_us + US_PER_S / 2 - 1), 1);
	assert_int_equal(token_charge(&token, &full_at_us, now_us + US_PER_S / 2), 0);
	assert_int_not_equal(token_charge(&token, &full_at_us, now_us + US_PER_S / 2), 0);
	now_us += 100 * US_PER_S; /* no more than two, however long the pause */
	assert_int_equal(token_charge(&token, &full_at_us, now_us), 0);
	assert_int_equal(token_charge(&token, &full_at_us, now_us), 0);
	assert_int_not_equal(token_charge(&token, &full_at_us, now_us), 0);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(token_charge(&free, &full_at_us, now_us), 0);
}

static unsigned load(const char *path, unsigned owner, char problem[256])
{
	struct cfg_errors errors cleanup(cfg_errors_fini) = {BUF_INIT, 0};
	struct tokens tokens cleanup(tokens_fini);

	tokens_load(path, owner, &tokens, &errors);
	snprintf(problem, 256, "%s", errors.count ? errors.text.data : "");
	return tokens.n;
}

static void trusts_only_a_closed_file(void **state unused)
{
	char dir[] = "/tmp/conclave-test-tokens-XXXXXX", path[64], link[64], problem[256];
	FILE *file;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/t", dir);
	snprintf(link, sizeof(link), "%s/l", dir);
	load(path, geteuid(), problem);
	assert_non_null(strstr(problem, "No such file"));
	file = fopen(path, "w");
	assert_non_null(file);
	fputs("alice submit " SECRET "\n", file);
	fclose(file);
	chmod(path, 0640);
	assert_int_equal(load(path, geteuid(), problem), 0);
	assert_non_null(strstr(problem, "chmod 600"));
	chmod(path, 0600);
	assert_int_equal(load(path, geteuid(), problem), 1);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(load(link, geteuid(), problem), 0);
	assert_int_equal(load(dir, geteuid(), problem), 0);
	assert_non_null(strstr(problem, "is no regular file"));
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 12345, 0), 0);
		assert_int_equal(load(path, 12345, problem), 1);
		assert_int_equal(load(path, 12346, problem), 0);
		assert_non_null(strstr(problem, "must be owned by"));
	}
	unlink(link);
	unlink(path);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_what_a_line_says),
		cmocka_unit_test(tells_each_problem_with_its_line),
		cmocka_unit_test(tells_all_at_once_and_no_secret),
		cmocka_unit_test(buckets_hold_one_unit),
		cmocka_unit_test(trusts_only_a_closed_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
