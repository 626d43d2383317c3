/* SPDX-License-Identifier: Apache-2.0 */
/* check, err and mem: what aborts, what it prints, and what the error verbs give back. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test/unit/reactor/forked.h"

#include "reactor/base/err.h"
#include "reactor/base/mem.h"

static void break_invariant(void *arg)
{
	int one = 1;

	CHECK(one == 1);
	CHECK(one + 1 == 3);
}

static void test_check_says_where_and_aborts(void **state)
{
	char said[1024];

	assert_true(forked_aborts(break_invariant, NULL, said, sizeof(said)));
	assert_non_null(strstr(said, "check failed"));
	assert_non_null(strstr(said, "test_check.c:"));
	assert_non_null(strstr(said, "break_invariant: one + 1 == 3\n"));
}

static void print_errors(void *arg)
{
	errno = EPERM;
	if (err_origin(-ENOENT) != -ENOENT || err_trace(-ENOENT) != -ENOENT)
		return;
	if (err_fold(7) != -ENOTRECOVERABLE || err_fold(-EIO) != -EIO || err_fold(0) != 0)
		return;
	if (err_origin(-99999) != -99999 || errno != EPERM)
		return;
	abort();
}

static void test_err_prints_its_path(void **state)
{
	char said[2048];

	assert_true(forked_aborts(print_errors, NULL, said, sizeof(said)));
	assert_non_null(strstr(said, "err "));
	assert_non_null(strstr(said, "print_errors: No such file or directory (origin)\n"));
	assert_non_null(strstr(said, "print_errors: No such file or directory (trace)\n"));
	assert_non_null(strstr(said, "print_errors: unhandled condition 7 (fold)\n"));
	assert_non_null(strstr(said, "print_errors: unknown error (origin)\n"));
	assert_null(strstr(said, "Input/output"));
}

static void array_overflow(void *arg)
{
	volatile size_t many = SIZE_MAX / 2;
	void *p = mem_array(many, 4);

	free(p);
}

static void test_mem_array_refuses_overflow(void **state)
{
	char said[8192];

	assert_true(forked_aborts(array_overflow, NULL, said, sizeof(said)));
	assert_non_null(strstr(said, "out of memory"));
}

static void test_mem_is_zeroed_and_never_null(void **state)
{
	static const char zero[64];
	char *p = mem_alloc(64);
	int *array = mem_array(8, sizeof(int));
	void *none = mem_alloc(0), *tried = mem_try(0), *empty = mem_array(0, 8);

	assert_memory_equal(p, zero, 64);
	assert_memory_equal(array, zero, 8 * sizeof(int));
	assert_non_null(none);
	assert_non_null(tried);
	assert_non_null(empty);
	p = mem_resize(p, 128);
	assert_memory_equal(p, zero, 64);
	free(p);
	free(array);
	free(none);
	free(tried);
	free(empty);
}

static void test_mem_copies(void **state)
{
	char *d = mem_dup("a\0b", 3), *e = mem_dup(NULL, 0), *s = mem_strdup("text");
	char *f = mem_printf("%d-%s", 42, "x");

	assert_memory_equal(d, "a\0b\0", 4);
	assert_string_equal(e, "");
	assert_string_equal(s, "text");
	assert_null(mem_strdup(NULL));
	assert_string_equal(f, "42-x");
	free(d);
	free(e);
	free(f);
	mem_wipe_free(s, 4);
	mem_wipe_free(NULL, 0);
}

static char *hand_over(char **watch)
{
	char *p cleanup(mem_freep) = mem_strdup("mine");

	*watch = p;
	return take_ptr(&p);
}

static void test_take_ptr_disarms_cleanup(void **state)
{
	char *watch = NULL;
	char *p = hand_over(&watch);

	assert_ptr_equal(p, watch);
	assert_string_equal(p, "mine");
	mem_freep(&p);
	assert_null(p);
	mem_freep(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_check_says_where_and_aborts),
		cmocka_unit_test(test_err_prints_its_path),
		cmocka_unit_test(test_mem_array_refuses_overflow),
		cmocka_unit_test(test_mem_is_zeroed_and_never_null),
		cmocka_unit_test(test_mem_copies),
		cmocka_unit_test(test_take_ptr_disarms_cleanup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
