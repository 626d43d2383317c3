/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box_ns and a conclave-box that the test plays itself, on the other end of the control socket. What real programs do in it is
 * test_box.c's matter.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proc/box/box.h"
#include "proc/box/wire.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"

#define DEADLINE_US (20 * US_PER_S)
#define MANY 50

struct stage {
	struct loop *loop;
	struct box *box;
	int helper;                                  /* conclave-box's end */
	unsigned opened[MANY + 1], closed[MANY + 1]; /* times heard, by id */
	unsigned n_closed;
};

/* As small as the kernel lets it be: a few messages. */
static void make_narrow(int fd)
{
	int bytes = 1;

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
}

static int set_up(void **state)
{
	struct stage *s = mem_alloc(sizeof(*s));
	struct wire hello = {.magic = WIRE_MAGIC, .type = WIRE_HELLO};
	struct box_options options = {.slots = 1};
	char *why = NULL;
	int pair[2];

	s->loop = loop_new(NULL);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	make_narrow(pair[0]);
	s->helper = pair[1];
	assert_int_equal(wire_send(s->helper, &hello, NULL, 0), 0);
	options.helper_fd = pair[0];
	options.log = loop_log(s->loop);
	assert_int_equal(box_ns.open(s->loop, &options, &s->box, &why), 0);
	*state = s;
	return 0;
}

static int tear_down(void **state)
{
	struct stage *s = *state;

	close(s->helper);
	box_ns.close(s->box);
	loop_free(s->loop);
	free(s);
	return 0;
}

/* What conclave-box has been told so far. */
static void listen_to(struct stage *s)
{
	struct wire message;
	char byte;

	while (recv(s->helper, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
		int fds[WIRE_FDS_MAX];
		unsigned n_fds;

		assert_int_equal(wire_receive(s->helper, &message, fds, &n_fds), 0);
		assert_in_range(message.id, 1, MANY);
		if (message.type == WIRE_SLOT_OPEN) {
			s->opened[message.id]++;
		} else {
			assert_int_equal(message.type, WIRE_SLOT_CLOSE);
			s->closed[message.id]++;
			s->n_closed++;
		}
	}
}

static void never_ready(void *arg, struct box_slot *slot, const char *why)
{
	fail_msg("a slot was answered for that nobody waits for");
}

/* The socket takes a few only; the others follow as it empties, each once. */
static void test_no_close_is_lost(void **state)
{
	struct stage *s = *state;
	struct op *ops[MANY];
	int64_t until = loop_now_exact_us(s->loop) + DEADLINE_US;

	for (unsigned i = 0; i < MANY; i++) {
		assert_int_equal(box_ns.slot_open(s->box, never_ready, s, &ops[i]), 0);
		listen_to(s);
		assert_int_equal(s->opened[i + 1], 1);
	}
	for (unsigned i = 0; i < MANY; i++)
		op_cancel(&ops[i]);
	listen_to(s);
	assert_in_range(s->n_closed, 1, MANY - 1);
	while (s->n_closed < MANY) {
		assert_true(loop_now_exact_us(s->loop) < until);
		loop_turn(s->loop, 10 * US_PER_MS);
		listen_to(s);
	}
	loop_turn(s->loop, 0);
	listen_to(s);
	for (unsigned i = 1; i <= MANY; i++)
		assert_int_equal(s->closed[i], 1);
}

/* A request to open is no kill: it is refused, for the host to try again. */
static void test_full_socket_refuses_to_open(void **state)
{
	struct stage *s = *state;
	struct op *op;
	int error = 0;

	for (unsigned i = 0; i < MANY && !error; i++)
		error = box_ns.slot_open(s->box, never_ready, s, &op);
	assert_int_equal(error, -EAGAIN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_no_close_is_lost, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_full_socket_refuses_to_open, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
