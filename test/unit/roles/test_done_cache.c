/* SPDX-License-Identifier: Apache-2.0 */
/*
 * done_cache: what is kept, for how long, and that it never holds more than it may.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "reactor/base/mem.h"
#include "roles/gateway/gateway_int.h"

#define BOUND 65536

static struct msg_task_view task_of(unsigned n, const char *status, const char *user)
{
	return (struct msg_task_view){
		.id = id_make(1, n), .status = str_from(status), .user = str_from(user)};
}

static bool is_kept(struct done_cache *cache, unsigned n)
{
	const struct id id = id_make(1, n);
	struct str user, text;

	return done_cache_get(cache, &id, &user, &text);
}

static void put(struct done_cache *cache, unsigned n, size_t bytes)
{
	struct msg_task_view task = task_of(n, "success", "alice");
	char *text = mem_alloc(bytes);

	memset(text, 'x', bytes);
	done_cache_put(cache, &task, (struct str){text, bytes});
	free(text);
}

static void keeps_what_is_done(void **state)
{
	static const struct {
		const char *status;
		bool kept;
	} rows[] = {
		{"pending", false},
		{"compiling", false},
		{"running", false},
		{"retrying", false},
		{"success", true},
		{"compile_failed", true},
		{"run_failed", true},
		{"error", true},
		{"cancelled", true},
	};
	struct done_cache cache;
	struct str user, text;

	done_cache_init(&cache, BOUND);
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct msg_task_view task = task_of(i, rows[i].status, i % 2 ? "bob" : "");

		done_cache_put(&cache, &task, str_from(rows[i].status));
		assert_int_equal(done_cache_get(&cache, &task.id, &user, &text), rows[i].kept);
		if (!rows[i].kept)
			continue;
		assert_true(str_is(user, i % 2 ? "bob" : ""));
		assert_true(str_is(text, rows[i].status));
	}
	assert_int_equal(cache.asked[0], 4);
	assert_int_equal(cache.asked[1], 5);
	done_cache_fini(&cache);
}

static void lets_the_least_used_go(void **state)
{
	struct done_cache cache;
	unsigned kept = 0;

	done_cache_init(&cache, BOUND);
	put(&cache, 0, 1000);
	for (unsigned i = 1; i < 500; i++) {
		put(&cache, i, 1000 + i % 50);
		assert_true(cache.bytes <= BOUND);
		assert_true(is_kept(&cache, i));
		assert_true(is_kept(&cache, 0)); /* used all the time */
	}
	for (unsigned i = 1; i < 500; i++)
		kept += is_kept(&cache, i);
	assert_in_range(kept, BOUND / 2 / 1400, BOUND / 1000);
	assert_true(is_kept(&cache, 499));
	assert_false(is_kept(&cache, 1));
	done_cache_fini(&cache);
	assert_int_equal(cache.bytes, 0);
}

static void refuses_what_is_too_large(void **state)
{
	struct done_cache cache;

	done_cache_init(&cache, BOUND);
	put(&cache, 1, 100);
	put(&cache, 2, BOUND / 16);
	put(&cache, 3, 2 * BOUND);
	assert_true(is_kept(&cache, 1));
	assert_false(is_kept(&cache, 2));
	assert_false(is_kept(&cache, 3));
	put(&cache, 1, 200); /* there already, and it does not change */
	assert_int_equal(map_count(&cache.entries), 1);
	done_cache_fini(&cache);
}

static void keeps_nothing_without_memory(void **state)
{
	struct done_cache cache;

	done_cache_init(&cache, 0);
	put(&cache, 1, 0);
	assert_false(is_kept(&cache, 1));
	assert_int_equal(cache.bytes, 0);
	done_cache_fini(&cache);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keeps_what_is_done),
		cmocka_unit_test(lets_the_least_used_go),
		cmocka_unit_test(refuses_what_is_too_large),
		cmocka_unit_test(keeps_nothing_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
