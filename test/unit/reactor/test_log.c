/* SPDX-License-Identifier: Apache-2.0 */
/* log: the grammar of a line, levels, quoting, and a descriptor that would block. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "reactor/base/log.h"

struct seen {
	unsigned count;
	enum log_level level;
	char line[4096];
};

static void on_line(void *arg, enum log_level level, const char *line)
{
	struct seen *seen = arg;

	seen->count++;
	seen->level = level;
	snprintf(seen->line, sizeof(seen->line), "%s", line);
}

static void test_sink_line(void **state)
{
	struct seen seen = {0};
	struct log *log = log_new_sink(on_line, &seen, "judicator", LOG_INFO);

	log_info(log, "task", "id=%s to=%s", "6748", "success");
	assert_string_equal(seen.line, "level=info role=judicator event=task id=6748 to=success");
	assert_int_equal(seen.level, LOG_INFO);
	log_error(log, "bare", "%s", "");
	assert_int_equal(seen.level, LOG_ERROR);
	assert_int_equal(seen.count, 2);
	log_free(log);
}

static unsigned evaluated(unsigned *count)
{
	return ++*count;
}

static void test_levels(void **state)
{
	struct seen seen = {0};
	struct log *log = log_new_sink(on_line, &seen, "r", LOG_WARN);
	unsigned count = 0;

	log_debug(log, "e", "n=%u", evaluated(&count));
	log_info(log, "e", "n=%u", evaluated(&count));
	assert_int_equal(seen.count, 0);
	assert_int_equal(count, 0); /* arguments of a level that is off are not evaluated */
	log_warn(log, "e", "n=%u", evaluated(&count));
	log_error(log, "e", "n=%u", evaluated(&count));
	assert_int_equal(seen.count, 2);
	log_set_level(log, LOG_DEBUG);
	log_debug(log, "e", "n=%u", evaluated(&count));
	assert_int_equal(seen.count, 3);
	assert_false(log_is_on(NULL, LOG_ERROR));
	log_error((struct log *)NULL, "e", "n=%u", evaluated(&count));
	assert_int_equal(count, 3);
	log_free(log);
	log_free(NULL);
}

static void test_level_names(void **state)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		enum log_level level = LOG_LEVEL_N;

		assert_true(log_level_parse(str_from(names[i]), &level));
		assert_int_equal(level, i);
		assert_string_equal(log_level_name(level), names[i]);
	}
	assert_false(log_level_parse(STR("Info"), &(enum log_level){0}));
	assert_false(log_level_parse(STR("information"), &(enum log_level){0}));
	assert_false(log_level_parse(STR_NULL, &(enum log_level){0}));
}

static void test_one_event_is_one_line(void **state)
{
	struct seen seen = {0};
	struct log *log = log_new_sink(on_line, &seen, "r", LOG_INFO);

	log_info(log, "e", "text=%s", "a\nlevel=error\tb\x7f\x1b");
	assert_string_equal(seen.line, "level=info role=r event=e text=a?level=error?b??");
	log_free(log);
}

static void test_derive_is_independent(void **state)
{
	struct seen seen = {0};
	struct log *log = log_new_sink(on_line, &seen, "boot", LOG_INFO);
	struct log *derived = log_derive(log, "main");

	log_free(log);
	log_info(derived, "e", "x=%d", 1);
	assert_string_equal(seen.line, "level=info role=main event=e x=1");
	log_free(derived);
	assert_null(log_derive(NULL, "x"));
}

static void test_quote(void **state)
{
	char out[LOG_QUOTE_MAX], all[600];

	assert_string_equal(log_quote(STR("plain text"), out), "\"plain text\"");
	assert_string_equal(log_quote(STR("a\"b\\c\nd"), out), "\"a\\\"b\\\\c\\nd\"");
	assert_string_equal(
		log_quote(STR("\0\x1b\x7f\xff\t"), out), "\"\\x00\\x1b\\x7f\\xff\\x09\"");
	assert_string_equal(log_quote(STR(""), out), "\"\"");
	assert_string_equal(log_quote(STR_NULL, out), "\"\"");
	memset(all, 0xee, sizeof(all));
	log_quote((struct str){all, 512}, out);
	assert_int_equal(strlen(out), 512 * 4 + 2);
	log_quote((struct str){all, 513}, out); /* the longest there is */
	assert_int_equal(strlen(out), 512 * 4 + 5);
	assert_string_equal(out + strlen(out) - 8, "\\xee...\"");
	assert_true(strlen(out) < LOG_QUOTE_MAX);
}

static size_t drain(int fd, char *out, size_t size)
{
	size_t have = 0;
	ssize_t n;

	while (have + 1 < size && (n = read(fd, out + have, size - have - 1)) > 0)
		have += (size_t)n;
	out[have] = '\0';
	return have;
}

static void test_descriptor_line_has_time_and_newline(void **state)
{
	int fds[2];
	char out[256];
	struct log *log;

	assert_int_equal(pipe2(fds, O_NONBLOCK), 0);
	log = log_new(fds[1], "executor", LOG_INFO);
	errno = ENOSPC;
	log_info(log, "e", "k=%s", "v");
	assert_int_equal(errno, ENOSPC);
	drain(fds[0], out, sizeof(out));
	assert_memory_equal(out, "ts=20", 5);
	assert_true(isdigit((unsigned char)out[5]));
	assert_int_equal(out[27 - 1], 'Z');
	assert_string_equal(out + 27, " level=info role=executor event=e k=v\n");
	log_free(log);
	close(fds[0]);
	close(fds[1]);
}

/* A stuck reader costs lines, never time; the loss is told when it reads again. */
static void test_full_pipe_loses_and_counts(void **state)
{
	enum { SIZE = 1 << 17 };
	char *out = malloc(SIZE);
	int fds[2];
	struct log *log;

	assert_non_null(out);
	assert_int_equal(pipe2(fds, O_NONBLOCK), 0);
	log = log_new(fds[1], "r", LOG_INFO);
	memset(out, 'x', SIZE);
	while (write(fds[1], out, 4096) > 0)
		;
	while (write(fds[1], out, 1) > 0)
		;
	log_info(log, "lost", "n=%d", 1);
	log_info(log, "lost", "n=%d", 2);
	drain(fds[0], out, SIZE);
	log_info(log, "kept", "n=%d", 3);
	log_info(log, "kept", "n=%d", 4);
	drain(fds[0], out, SIZE);
	assert_null(strstr(out, "event=lost"));
	assert_non_null(strstr(out, "event=kept n=3 lost=2\n"));
	assert_non_null(strstr(out, "event=kept n=4\n"));
	log_free(log);
	close(fds[0]);
	close(fds[1]);
	free(out);
}

/* A line of many pages that is cut off by a full pipe does not swallow the one behind it. */
static void test_torn_line_is_ended(void **state)
{
	enum { LONG = 1 << 20 };
	char *text = malloc(LONG + 1), *out = malloc(LONG);
	int fds[2];
	struct log *log;

	assert_non_null(text);
	assert_non_null(out);
	memset(text, 'x', LONG);
	text[LONG] = '\0';
	assert_int_equal(pipe2(fds, O_NONBLOCK), 0);
	log = log_new(fds[1], "r", LOG_INFO);
	log_info(log, "long", "text=%s", text);
	assert_true(drain(fds[0], out, LONG) > 4096);
	assert_null(strchr(out, '\n'));
	log_info(log, "next", "n=%d", 1);
	drain(fds[0], out, LONG);
	assert_memory_equal(out, "\nts=", 4);
	assert_non_null(strstr(out, "event=next n=1 lost=1\n"));
	log_free(log);
	close(fds[0]);
	close(fds[1]);
	free(text);
	free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sink_line),
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_level_names),
		cmocka_unit_test(test_one_event_is_one_line),
		cmocka_unit_test(test_derive_is_independent),
		cmocka_unit_test(test_quote),
		cmocka_unit_test(test_descriptor_line_has_time_and_newline),
		cmocka_unit_test(test_full_pipe_loses_and_counts),
		cmocka_unit_test(test_torn_line_is_ended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
