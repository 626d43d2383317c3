/* SPDX-License-Identifier: Apache-2.0 */
/* buf: growth, the NUL behind the text, taking and dropping. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reactor/base/buf.h"

static void test_empty(void **state)
{
	struct buf b = BUF_INIT;
	char *taken;

	assert_non_null(buf_str(&b).p);
	assert_int_equal(buf_str(&b).n, 0);
	buf_clear(&b);
	buf_drop(&b, 0);
	taken = buf_take(&b);
	assert_string_equal(taken, "");
	free(taken);
	buf_fini(&b);
	buf_fini(&b);
}

static void test_adds(void **state)
{
	struct buf b cleanup(buf_fini) = BUF_INIT;

	buf_add_str(&b, STR("ab"));
	buf_add_char(&b, 'c');
	buf_add(&b, "\0d", 2);
	buf_addf(&b, "%d%s", 42, "x");
	buf_add(&b, NULL, 0);
	buf_add_str(&b, STR_NULL);
	assert_int_equal(b.len, 8);
	assert_memory_equal(b.data, "abc\0d42x\0", 9);
	buf_clear(&b);
	assert_string_equal(b.data, "");
}

static void test_growth_keeps_the_bytes(void **state)
{
	struct buf b cleanup(buf_fini) = BUF_INIT;

	for (unsigned i = 0; i < 100000; i++) {
		buf_add_char(&b, (char)('a' + i % 26));
		assert_true(b.cap > b.len);
	}
	for (unsigned i = 0; i < 100000; i++)
		assert_int_equal(b.data[i], 'a' + i % 26);
	assert_int_equal(b.data[b.len], 0);
}

/* Around the size of the first allocation, printf must come out whole. */
static void test_addf_at_every_length(void **state)
{
	char want[300];

	memset(want, 'x', sizeof(want));
	for (int n = 0; n < 299; n++) {
		struct buf b cleanup(buf_fini) = BUF_INIT;

		buf_add_str(&b, STR("pre"));
		buf_addf(&b, "%.*s", n, want);
		assert_int_equal(b.len, 3 + n);
		assert_int_equal(strlen(b.data), 3 + n);
		assert_memory_equal(b.data + 3, want, n);
	}
}

static void test_reserve_then_raise_len(void **state)
{
	struct buf b cleanup(buf_fini) = BUF_INIT;
	char *room = buf_reserve(&b, 1000);

	memset(room, 'z', 1000);
	b.len += 5;
	assert_int_equal(buf_str(&b).n, 5);
	assert_string_equal(buf_str(&b).p, "zzzzz");
	b.len += 1;
	room = buf_take(&b);
	assert_string_equal(room, "zzzzz");
	assert_null(b.data);
	free(room);
}

static void test_drop(void **state)
{
	struct buf b cleanup(buf_fini) = BUF_INIT;

	buf_add_str(&b, STR("0123456789"));
	buf_drop(&b, 0);
	buf_drop(&b, 4);
	assert_string_equal(b.data, "456789");
	assert_int_equal(b.len, 6);
	buf_drop(&b, 6);
	assert_string_equal(b.data, "");
	assert_int_equal(b.len, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_adds),
		cmocka_unit_test(test_growth_keeps_the_bytes),
		cmocka_unit_test(test_addf_at_every_length),
		cmocka_unit_test(test_reserve_then_raise_len),
		cmocka_unit_test(test_drop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
