/* SPDX-License-Identifier: Apache-2.0 */
/* limits: the defaults of the design, and in which order a limit is settled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "reactor/base/check.h"
#include "rpc/task/limits.h"

#define MIB (INT64_C(1) << 20)

static void test_defaults(void **state)
{
	struct limits compile = limits_default(PHASE_COMPILE, 100),
		      run = limits_default(PHASE_RUN, 100);

	assert_int_equal(compile.cpu_ms, 10000);
	assert_int_equal(compile.wall_ms, 30000);
	assert_int_equal(compile.memory_bytes, 1024 * MIB);
	assert_int_equal(compile.processes, 128);
	assert_int_equal(run.cpu_ms, 2000);
	assert_int_equal(run.wall_ms, 7000);
	assert_int_equal(run.memory_bytes, 256 * MIB);
	assert_int_equal(run.output_bytes, MIB);
	assert_int_equal(run.processes, 64);
	assert_int_equal(run.stack_bytes, 256 * MIB);
}

/* Nothing is unlimited, whatever the factor of a language. */
static void test_all_within_their_maxima(void **state)
{
	static const unsigned percents[] = {0, 1, 50, 100, 250, 1000000};

	for (size_t i = 0; i < ARRAY_SIZE(percents); i++) {
		for (int phase = PHASE_COMPILE; phase <= PHASE_RUN; phase++) {
			struct limits l = limits_default((enum phase)phase, percents[i]);

			assert_in_range(l.cpu_ms, 1, LIMIT_CPU_MS_MAX);
			assert_in_range(l.wall_ms, 1, LIMIT_WALL_MS_MAX);
			assert_in_range(l.memory_bytes, LIMIT_MEMORY_MIN, LIMIT_MEMORY_MAX);
			assert_in_range(l.output_bytes, 1, LIMIT_OUTPUT_MAX);
			assert_in_range(l.file_bytes, 1, LIMIT_FILE_MAX);
			assert_in_range(l.processes, 1, LIMIT_PROCESSES_MAX);
			assert_in_range(l.stack_bytes, 1, LIMIT_STACK_MAX);
			assert_true(l.wall_ms > l.cpu_ms);
		}
	}
}

static void test_factor(void **state)
{
	assert_int_equal(limits_default(PHASE_RUN, 250).cpu_ms, 5000);
	assert_int_equal(limits_default(PHASE_RUN, 250).wall_ms, 16000);
	assert_int_equal(limits_default(PHASE_COMPILE, 200).cpu_ms, 20000);
	assert_int_equal(limits_default(PHASE_COMPILE, 200).wall_ms, 60000);
	assert_int_equal(limits_default(PHASE_COMPILE, 50).wall_ms, 30000);
}

static void test_given_cpu_makes_wall(void **state)
{
	static const struct {
		enum phase phase;
		int64_t cpu_ms, wall_ms;
	} rows[] = {
		{PHASE_RUN, 1000, 4000},
		{PHASE_RUN, 1, 1003},
		{PHASE_RUN, 60000, 181000},
		{PHASE_COMPILE, 1000, 30000},
		{PHASE_COMPILE, 10000, 30000},
		{PHASE_COMPILE, 60000, 180000},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct limits l = {.cpu_ms = rows[i].cpu_ms};

		limits_fill(&l, NULL, rows[i].phase, 300);
		assert_int_equal(l.cpu_ms, rows[i].cpu_ms); /* what is given is not scaled */
		assert_int_equal(l.wall_ms, rows[i].wall_ms);
	}
}

static void test_case_over_phase_over_default(void **state)
{
	struct limits phase = {
		.cpu_ms = 500, .memory_bytes = 64 * MIB, .processes = 4, .wall_ms = 900};
	struct limits l = {.cpu_ms = 700, .stack_bytes = 8 * MIB};

	limits_fill(&l, &phase, PHASE_RUN, 100);
	assert_int_equal(l.cpu_ms, 700);
	assert_int_equal(l.wall_ms, 900);
	assert_int_equal(l.memory_bytes, 64 * MIB);
	assert_int_equal(l.processes, 4);
	assert_int_equal(l.output_bytes, MIB);
	assert_int_equal(l.stack_bytes, 8 * MIB);
	assert_int_equal(phase.cpu_ms, 500);

	l = (struct limits){.memory_bytes = 32 * MIB};
	limits_fill(&l, NULL, PHASE_RUN, 100);
	assert_int_equal(l.stack_bytes, 32 * MIB); /* the stack may take all of the memory */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_all_within_their_maxima),
		cmocka_unit_test(test_factor),
		cmocka_unit_test(test_given_cpu_makes_wall),
		cmocka_unit_test(test_case_over_phase_over_default),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
