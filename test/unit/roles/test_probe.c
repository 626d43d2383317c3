/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which languages work here: version commands in a fake box.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "cfg/language.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/executor/probe.h"
#include "test/fake/box_fake.h"

struct world {
	struct buf log;
	struct log *logger;
	struct loop *loop;
	struct box_host *box;
	struct map languages;
	struct op *op;
	unsigned n_answers, failed;
	struct buf works; /* names, each behind a blank */
	struct buf toolchains;
};

static void on_line(void *arg, enum log_level level, const char *line)
{
	struct world *w = arg;

	if (level == LOG_WARN)
		buf_addf(&w->log, "%s\n", line);
}

static void on_probed(void *arg, const struct probe_result *result)
{
	struct world *w = arg;

	w->op = NULL;
	w->n_answers++;
	w->failed = result->failed;
	map_each (it, &result->works) {
		const struct language *language = map_entry_of(it)->value;

		buf_addf(&w->works, " %s", language->name);
	}
	buf_add_str(&w->toolchains, result->toolchains);
}

static void add(struct world *w, const char *name, const char *version_script)
{
	struct cfg_errors errors = {BUF_INIT, 0};
	char *text = mem_printf("[language]\ntitle = T\nsource = a.txt\n[run]\nargv = ./x\n"
				"[version]\nargv = ./x\nargv = %s\n",
		version_script);
	struct language *language = language_parse(name, str_from(text), name, &errors);

	assert_int_equal(errors.count, 0);
	map_set(&w->languages, str_from(name), language);
	free(text);
}

static int setup(void **state)
{
	struct world *w = mem_alloc(sizeof(*w));
	char *why = NULL;

	w->logger = log_new_sink(on_line, w, "test", LOG_INFO);
	w->loop = loop_new(&(struct loop_options){.fake_clock = true, .seed = 5});
	map_init(&w->languages);
	assert_int_equal(box_host_open(w->loop, &box_fake,
				 &(struct box_options){.slots = 2, .helper_fd = -1}, &w->box, &why),
		0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	op_cancel(&w->op);
	box_host_close(w->box);
	language_map_fini(&w->languages);
	loop_free(w->loop);
	log_free(w->logger);
	buf_fini(&w->log);
	buf_fini(&w->works);
	buf_fini(&w->toolchains);
	free(w);
	return 0;
}

static void start(struct world *w)
{
	assert_int_equal(
		probe_start(w->loop, w->logger, w->box, &w->languages, on_probed, w, &w->op), 0);
	assert_int_equal(w->n_answers, 0);
}

static void those_that_work_are_offered(void **state)
{
	struct world *w = *state;

	add(w, "c", "out=gcc%20(Debian)%2012.2.0%0aCopyright");
	add(w, "java", "err=openjdk%2017%0amore");
	add(w, "gone", "exit=127 ");
	add(w, "slow", "run_us=60000000");
	add(w, "crash", "signal=11");
	start(w);
	loop_advance_us(w->loop, 70 * US_PER_S);
	assert_int_equal(w->n_answers, 1);
	assert_string_equal(w->works.data, " c java");
	assert_int_equal(w->failed, 3);
	assert_string_equal(
		w->toolchains.data, "{\"c\":\"gcc (Debian) 12.2.0\",\"java\":\"openjdk 17\"}");
	/* one line each, with the reason */
	assert_non_null(strstr(w->log.data, "name=gone offered=no why=\"exit code 127\""));
	assert_non_null(strstr(w->log.data, "name=slow offered=no why=\"limit cpu_ms\""));
	assert_non_null(strstr(w->log.data, "name=crash offered=no why=\"signal 11\""));
}

static void the_boxs_failure_is_repeated(void **state)
{
	struct world *w = *state;

	add(w, "b", "out=1");
	add(w, "c", "fail_first=2");
	add(w, "d", "fail=no%20slot");
	start(w);
	loop_advance_us(w->loop, 5 * US_PER_S);
	assert_int_equal(w->n_answers, 1);
	assert_string_equal(w->works.data, " b c");
	assert_non_null(strstr(w->log.data, "name=d offered=no why=\"the sandbox: no slot\""));
}

static void none_is_an_answer_too(void **state)
{
	struct world *w = *state;

	start(w);
	loop_advance_us(w->loop, US_PER_MS);
	assert_int_equal(w->n_answers, 1);
	assert_string_equal(w->toolchains.data, "{}");
}

static void cancelled_it_is_silent(void **state)
{
	struct world *w = *state;

	add(w, "c", "run_us=5000");
	add(w, "d", "fail=x");
	start(w);
	loop_advance_us(w->loop, 3000);
	op_cancel(&w->op);
	loop_advance_us(w->loop, US_PER_S);
	assert_int_equal(w->n_answers, 0);
}

/* Two slots, four languages of 100 ms: two rounds, not four. */
static void as_many_at_once_as_there_are_slots(void **state)
{
	struct world *w = *state;

	add(w, "a", "run_us=100000");
	add(w, "b", "run_us=100000");
	add(w, "c", "run_us=100000");
	add(w, "d", "run_us=100000");
	start(w);
	loop_advance_us(w->loop, 150 * US_PER_MS);
	assert_int_equal(w->n_answers, 0);
	loop_advance_us(w->loop, 60 * US_PER_MS);
	assert_int_equal(w->n_answers, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(those_that_work_are_offered),
		TEST(the_boxs_failure_is_repeated),
		TEST(none_is_an_answer_too),
		TEST(cancelled_it_is_silent),
		TEST(as_many_at_once_as_there_are_slots),
	};
#undef TEST

	return cmocka_run_group_tests(tests, NULL, NULL);
}
