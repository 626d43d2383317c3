/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output: our own log lines pass byte for byte, everything else is quoted, nothing is lost however it is cut.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proc/output.h"
#include "reactor/base/mem.h"

#define OURS "ts=2026-11-27T21:00:00.000Z level=warn role=executor event=x k=\"a b\""

struct fixture {
	struct buf logged; /* lines of the sink */
	struct log *log;
	struct output out;
	int pass_fd;
};

static void sink(void *arg, enum log_level level, const char *line)
{
	struct fixture *f = arg;

	buf_addf(&f->logged, "%s\n", line);
}

static int setup(void **state)
{
	struct fixture *f = mem_alloc(sizeof(*f));

	f->log = log_new_sink(sink, f, "boot", LOG_DEBUG);
	f->pass_fd = memfd_create("passed", MFD_CLOEXEC);
	output_init(&f->out, "web", f->log, f->pass_fd, LOG_WARN);
	*state = f;
	return f->pass_fd < 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	output_fini(&f->out);
	log_free(f->log);
	buf_fini(&f->logged);
	close(f->pass_fd);
	free(f);
	return 0;
}

static void add(struct fixture *f, const char *text)
{
	output_add(&f->out, str_from(text));
}

static const char *logged(struct fixture *f)
{
	buf_str(&f->logged);
	return f->logged.len ? f->logged.data : "";
}

static const char *passed(struct fixture *f, char out[4096])
{
	ssize_t n = pread(f->pass_fd, out, 4095, 0);

	assert_true(n >= 0);
	out[n] = '\0';
	return out;
}

static void own_lines_pass_unchanged(void **state)
{
	struct fixture *f = *state;
	char text[4096];

	add(f, OURS "\n" OURS "\n");
	assert_string_equal(passed(f, text), OURS "\n" OURS "\n");
	assert_string_equal(logged(f), "");
}

static void foreign_lines_are_quoted(void **state)
{
	struct fixture *f = *state;
	char text[4096];

	add(f, "hello \"world\"\n\r\n\nsecond\r\n");
	assert_string_equal(logged(f),
		"level=warn role=boot event=output service=web line=\"hello \\\"world\\\"\"\n"
		"level=warn role=boot event=output service=web line=\"second\"\n");
	assert_string_equal(passed(f, text), "");
}

static void lines_come_in_any_pieces(void **state)
{
	struct fixture *f = *state;
	const char *all = OURS "\nforeign\n";
	char text[4096];

	for (size_t i = 0; all[i]; i++)
		output_add(&f->out, (struct str){all + i, 1});
	assert_string_equal(passed(f, text), OURS "\n");
	assert_string_equal(
		logged(f), "level=warn role=boot event=output service=web line=\"foreign\"\n");
}

static void unfinished_line_comes_at_the_end(void **state)
{
	struct fixture *f = *state;

	add(f, "panic: out of");
	assert_string_equal(logged(f), "");
	add(f, " luck");
	output_end(&f->out);
	output_end(&f->out);
	assert_string_equal(logged(f),
		"level=warn role=boot event=output service=web line=\"panic: out of luck\"\n");
}

/* All bytes of a line far over every limit are there, in order. */
static void long_lines_come_in_pieces(void **state)
{
	struct fixture *f = *state;
	size_t n = 3 * OUTPUT_LINE_MAX + 700, found = 0;
	char *line cleanup(mem_freep) = mem_alloc(n + 2);

	for (size_t i = 0; i < n; i++)
		line[i] = (char)('a' + i % 26);
	line[n] = '\n';
	output_add(&f->out, (struct str){line, n + 1});
	add(f, "next\n");
	for (const char *p = strstr(logged(f), "line=\""); p; p = strstr(p, "line=\"")) {
		size_t piece = strcspn(p + 6, "\"");

		assert_true(piece <= OUTPUT_QUOTE_MAX);
		p += 6;
		if (found < n)
			assert_memory_equal(p, line + found, piece);
		else
			assert_memory_equal(p, "next", 4);
		found += piece;
	}
	assert_int_equal(found, n + 4);
}

static void what_is_one_of_ours(void **state unused)
{
	static const struct {
		const char *line;
		bool is_ours;
		enum log_level level;
	} rows[] = {
		{OURS, true, LOG_WARN},
		{"ts=1 level=error role=boot event=x", true, LOG_ERROR},
		{"ts=1 level=debug role=- event=x", true, LOG_DEBUG},
		{"level=info role=boot event=x", false, 0},
		{"ts=1 level=shout role=boot", false, 0},
		{"ts=1 level=info event=x role=late", false, 0},
		{"ts=1 msg=\"level=info role=x\"", false, 0},
		{"ts=", false, 0},
		{"", false, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		enum log_level level = LOG_INFO;

		assert_int_equal(
			output_is_log_line(str_from(rows[i].line), &level), rows[i].is_ours);
		if (rows[i].is_ours)
			assert_int_equal(level, rows[i].level);
	}
}

static void without_descriptor_all_is_wrapped(void **state)
{
	struct fixture *f = *state;

	f->out.pass_fd = -1;
	add(f, OURS "\n");
	assert_non_null(strstr(logged(f), "event=output service=web line=\"ts=2026"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(own_lines_pass_unchanged, setup, teardown),
		cmocka_unit_test_setup_teardown(foreign_lines_are_quoted, setup, teardown),
		cmocka_unit_test_setup_teardown(lines_come_in_any_pieces, setup, teardown),
		cmocka_unit_test_setup_teardown(unfinished_line_comes_at_the_end, setup, teardown),
		cmocka_unit_test_setup_teardown(long_lines_come_in_pieces, setup, teardown),
		cmocka_unit_test(what_is_one_of_ours),
		cmocka_unit_test_setup_teardown(without_descriptor_all_is_wrapped, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
