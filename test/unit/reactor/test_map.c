/* SPDX-License-Identifier: Apache-2.0 */
/* map: set, get, del, growth, and iteration in insertion order with changes on the way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "reactor/base/map.h"

static int value[20000];

static struct str key_of(unsigned i, char *out)
{
	snprintf(out, 16, "k%u", i);
	return str_from(out);
}

static void test_set_get_del(void **state)
{
	struct map m;

	map_init(&m);
	assert_null(map_get(&m, STR("a")));
	assert_null(map_del(&m, STR("a")));
	assert_null(map_set(&m, STR("a"), &value[1]));
	assert_null(map_set(&m, STR(""), &value[2]));
	assert_null(map_set(&m, STR("a\0b"), &value[3]));
	assert_ptr_equal(map_get(&m, STR("a")), &value[1]);
	assert_ptr_equal(map_get(&m, STR("")), &value[2]);
	assert_ptr_equal(map_get(&m, STR_NULL), &value[2]);
	assert_ptr_equal(map_get(&m, STR("a\0b")), &value[3]);
	assert_ptr_equal(map_set(&m, STR("a"), &value[4]), &value[1]);
	assert_int_equal(map_count(&m), 3);
	assert_ptr_equal(map_del(&m, STR("a")), &value[4]);
	assert_null(map_get(&m, STR("a")));
	assert_int_equal(map_count(&m), 2);
	map_fini(&m);
	map_fini(&m);
	assert_int_equal(map_count(&m), 0);
	assert_null(map_get(&m, STR("")));
}

static void test_keys_are_copied(void **state)
{
	struct map m;
	char key[] = "here";

	map_init(&m);
	map_set(&m, str_from(key), &value[0]);
	memset(key, 'x', 4);
	assert_ptr_equal(map_get(&m, STR("here")), &value[0]);
	assert_string_equal(map_entry_of(m.order.next)->key, "here");
	map_fini(&m);
}

/* Keys of every length around the hash's words, each differing in its last byte only. */
static void test_key_lengths(void **state)
{
	struct map m;
	char key[64];

	map_init(&m);
	for (unsigned n = 1; n < 64; n++)
		for (unsigned last = 0; last < 256; last += 51) {
			memset(key, 'k', n);
			key[n - 1] = (char)last;
			assert_null(map_set(&m, (struct str){key, n}, &value[n * 256 + last]));
		}
	for (unsigned n = 1; n < 64; n++)
		for (unsigned last = 0; last < 256; last += 51) {
			memset(key, 'k', n);
			key[n - 1] = (char)last;
			assert_ptr_equal(map_get(&m, (struct str){key, n}), &value[n * 256 + last]);
		}
	map_fini(&m);
}

static void test_many_against_a_model(void **state)
{
	const unsigned n = ARRAY_SIZE(value);
	char key[16];
	struct map m;
	unsigned seen = 0;

	map_init(&m);
	for (unsigned i = 0; i < n; i++)
		assert_null(map_set(&m, key_of(i, key), &value[i]));
	for (unsigned i = 0; i < n; i += 3)
		assert_ptr_equal(map_del(&m, key_of(i, key)), &value[i]);
	for (unsigned i = 0; i < n; i++)
		assert_ptr_equal(map_get(&m, key_of(i, key)), i % 3 ? &value[i] : NULL);
	map_each (it, &m) {
		while (seen % 3 == 0)
			seen++;
		assert_ptr_equal(map_entry_of(it)->value, &value[seen]);
		seen++;
	}
	assert_int_equal(map_count(&m), n - (n + 2) / 3);
	map_fini(&m);
}

static void test_no_slot_is_crowded(void **state)
{
	char key[16];
	struct map m;

	map_init(&m);
	for (unsigned i = 0; i < ARRAY_SIZE(value); i++)
		map_set(&m, key_of(i, key), &value[i]);
	assert_true(m.n_slots / 4 * 3 >= m.count);
	for (size_t i = 0; i < m.n_slots; i++) {
		unsigned length = 0;

		for (struct map_entry *e = m.slots[i]; e; e = e->chain)
			length++;
		assert_true(length < 16);
	}
	map_fini(&m);
}

static void test_hash_key_differs_from_map_to_map(void **state)
{
	struct map a, b;

	map_init(&a);
	map_init(&b);
	map_set(&a, STR("same"), &value[0]);
	map_set(&b, STR("same"), &value[0]);
	assert_true(map_entry_of(a.order.next)->hash != map_entry_of(b.order.next)->hash);
	map_fini(&a);
	map_fini(&b);
}

static void test_delete_and_set_while_iterating(void **state)
{
	char key[16];
	struct map m;
	unsigned i = 0, visits = 0;

	map_init(&m);
	for (unsigned k = 0; k < 100; k++)
		map_set(&m, key_of(k, key), &value[k]);
	map_each (it, &m) {
		struct map_entry *e = map_entry_of(it);
		struct str k = {e->key, e->key_len};

		assert_ptr_equal(e->value, &value[i]);
		if (i % 2)
			assert_ptr_equal(map_del(&m, k), &value[i]);
		else
			assert_ptr_equal(map_set(&m, k, &value[1000 + i]), &value[i]);
		i++;
	}
	assert_int_equal(i, 100);
	assert_int_equal(map_count(&m), 50);
	map_each (it, &m) { /* replacing kept the places */
		assert_ptr_equal(map_entry_of(it)->value, &value[1000 + 2 * visits]);
		visits++;
	}
	assert_int_equal(visits, 50);
	map_each (it, &m) {
		struct map_entry *e = map_entry_of(it);

		map_del(&m, (struct str){e->key, e->key_len});
	}
	assert_int_equal(map_count(&m), 0);
	map_fini(&m);
}

/* The table grows under the iteration; the walk still sees each old entry once. */
static void test_add_while_iterating(void **state)
{
	char key[16];
	struct map m;
	unsigned visits = 0;

	map_init(&m);
	for (unsigned k = 0; k < 5; k++)
		map_set(&m, key_of(k, key), &value[k]);
	map_each (it, &m) {
		if (visits < 5)
			for (unsigned k = 0; k < 20; k++)
				map_set(&m, key_of(1000 + visits * 20 + k, key), &value[99]);
		visits++;
	}
	assert_true(visits >= 5);
	assert_int_equal(map_count(&m), 105);
	map_fini(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_set_get_del),
		cmocka_unit_test(test_keys_are_copied),
		cmocka_unit_test(test_key_lengths),
		cmocka_unit_test(test_many_against_a_model),
		cmocka_unit_test(test_no_slot_is_crowded),
		cmocka_unit_test(test_hash_key_differs_from_map_to_map),
		cmocka_unit_test(test_delete_and_set_while_iterating),
		cmocka_unit_test(test_add_while_iterating),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
