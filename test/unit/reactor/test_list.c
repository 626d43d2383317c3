/* SPDX-License-Identifier: Apache-2.0 */
/* list and op: the two header-only modules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "reactor/base/list.h"
#include "reactor/op.h"

struct item {
	int number;
	struct list link;
};

static void assert_numbers(struct list *head, const int *want)
{
	struct list *back = head;

	list_each (it, head) {
		assert_int_equal(list_entry(it, struct item, link)->number, *want);
		assert_ptr_equal(it->prev, back);
		back = it;
		want++;
	}
	assert_ptr_equal(head->prev, back);
	assert_int_equal(*want, 0);
}

static void test_add_and_del(void **state)
{
	struct item item[4] = {{.number = 1}, {.number = 2}, {.number = 3}, {.number = 4}};
	struct list head;

	list_init(&head);
	for (size_t i = 0; i < 4; i++)
		list_init(&item[i].link);
	assert_true(list_is_empty(&head));
	assert_null(list_first(&head));
	assert_false(list_is_linked(&item[0].link));
	list_del(&item[0].link); /* harmless */
	list_add_tail(&head, &item[1].link);
	list_add_tail(&head, &item[3].link);
	list_add_head(&head, &item[0].link);
	list_add_before(&item[3].link, &item[2].link);
	assert_numbers(&head, (const int[]){1, 2, 3, 4, 0});
	assert_true(list_is_linked(&item[2].link));
	list_del(&item[2].link);
	assert_false(list_is_linked(&item[2].link));
	assert_numbers(&head, (const int[]){1, 2, 4, 0});
	assert_ptr_equal(list_first(&head), &item[0].link);
	list_each_safe (it, &head)
		list_del(it);
	assert_true(list_is_empty(&head));
}

static void test_splice(void **state)
{
	struct item item[4] = {{.number = 1}, {.number = 2}, {.number = 3}, {.number = 4}};
	struct list to, from;

	list_init(&to);
	list_init(&from);
	list_splice_tail(&to, &from);
	assert_true(list_is_empty(&to));
	list_add_tail(&from, &item[0].link);
	list_add_tail(&from, &item[1].link);
	list_splice_tail(&to, &from); /* onto an empty list */
	assert_numbers(&to, (const int[]){1, 2, 0});
	assert_true(list_is_empty(&from));
	list_add_tail(&from, &item[2].link);
	list_add_tail(&from, &item[3].link);
	list_splice_tail(&to, &from);
	assert_numbers(&to, (const int[]){1, 2, 3, 4, 0});
	list_splice_tail(&to, &from);
	assert_numbers(&to, (const int[]){1, 2, 3, 4, 0});
}

struct owner {
	struct op op;
	unsigned cancelled;
	struct op **handle;
};

static void owner_cancel(struct op *op)
{
	struct owner *o = container_of(op, struct owner, op);

	o->cancelled++;
	assert_null(*o->handle); /* dropped before the module hears of it */
}

static void test_op_cancel_clears_the_handle(void **state)
{
	struct owner o = {.op = {owner_cancel}};
	struct op *handle = &o.op;

	o.handle = &handle;
	op_cancel(&handle);
	assert_null(handle);
	assert_int_equal(o.cancelled, 1);
	op_cancel(&handle);
	assert_int_equal(o.cancelled, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_add_and_del),
		cmocka_unit_test(test_splice),
		cmocka_unit_test(test_op_cancel_clears_the_handle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
