/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box.c on a scripted row and a fake clock: the order of verdicts, deadlines, the stock, and what happens when slots cannot be
 * made. Real processes are test_box.c's matter.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/box/box.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"

/* --- a row whose every step the test takes ------------------------------------------------------------ */

struct box_slot {
	struct box *box;
	const struct box_slot_events *events;
	void *arg;
	int out; /* our copy of the program's stdout */
	bool killed, closed;
};

struct opening {
	struct op op;
	struct box *box;
	void (*on_ready)(void *arg, struct box_slot *slot, const char *why);
	void *arg;
	bool done;
};

#define MANY 2000

struct box {
	struct opening openings[MANY];
	unsigned n_openings, n_answered;
	struct box_slot slots[MANY];
	unsigned n_slots;
	struct box_slot *last; /* the one that was told to run last */
	unsigned n_runs, n_closed;
	int open_error, run_error; /* what slot_open and slot_run say */
	int64_t cpu_us;
};

static void cancel_opening(struct op *op)
{
	container_of(op, struct opening, op)->done = true;
}

static int fake_open(
	struct loop *loop, const struct box_options *options, struct box **out, char **why)
{
	/* The host keeps its box to itself: the test gets it through an option the row has no other use for. */
	struct box **also = (struct box **)(uintptr_t)options->helper;

	*out = *also = mem_alloc(sizeof(**out));
	return 0;
}

static void fake_close(struct box *box)
{
	for (unsigned i = 0; i < box->n_slots; i++)
		assert_true(box->slots[i].closed);
	free(box);
}

static int fake_slot_open(struct box *box,
	void (*on_ready)(void *arg, struct box_slot *slot, const char *why), void *arg,
	struct op **op)
{
	struct opening *o = &box->openings[box->n_openings];

	if (box->open_error)
		return box->open_error;
	assert_true(++box->n_openings <= MANY);
	*o = (struct opening){.op = {cancel_opening}, .box = box, .on_ready = on_ready, .arg = arg};
	*op = &o->op;
	return 0;
}

static int fake_slot_run(struct box_slot *slot, const struct box_start *start,
	const struct box_slot_events *events, void *arg)
{
	int error = slot->box->run_error;

	slot->box->run_error = 0;
	if (error)
		return error;
	slot->events = events;
	slot->arg = arg;
	slot->out = dup(start->stdout_fd);
	slot->box->last = slot;
	slot->box->n_runs++;
	return 0;
}

static void fake_slot_kill(struct box_slot *slot)
{
	slot->killed = true;
}

static bool fake_slot_reset(struct box_slot *slot)
{
	return false;
}

static void fake_slot_close(struct box_slot *slot)
{
	assert_false(slot->closed);
	slot->closed = true;
	slot->box->n_closed++;
	if (slot->out > 0)
		close(slot->out);
	slot->out = 0;
}

static int64_t fake_cpu_us(struct box_slot *slot)
{
	return slot->box->cpu_us;
}

static const struct box_ops fake = {
	.name = "fake",
	.isolation = "fake",
	.open = fake_open,
	.close = fake_close,
	.slot_open = fake_slot_open,
	.slot_run = fake_slot_run,
	.slot_kill = fake_slot_kill,
	.slot_reset = fake_slot_reset,
	.slot_close = fake_slot_close,
	.slot_cpu_us = fake_cpu_us,
};

/* --- the stage ---------------------------------------------------------------------------------------- */

struct stage {
	struct loop *loop;
	struct box_host *host;
	struct box *box;
	struct box_run *run;
	unsigned done, started;
	struct box_result r;
	char failure[128];
	size_t out_bytes;
};

static int set_up(void **state)
{
	struct loop_options loop_options = {.fake_clock = true, .seed = 1};
	struct box_options options = {.slots = 2, .helper_fd = -1};
	struct stage *s = mem_alloc(sizeof(*s));
	char *why = NULL;

	options.helper = (const char *)&s->box;
	s->loop = loop_new(&loop_options);
	assert_int_equal(box_host_open(s->loop, &fake, &options, &s->host, &why), 0);
	*state = s;
	loop_turn(s->loop, 0);
	return 0;
}

static void turns(struct stage *s)
{
	for (int i = 0; i < 5; i++)
		loop_turn(s->loop, 0);
}

static void on_started(void *arg)
{
	struct stage *s = arg;

	s->started++;
}

static void on_output(void *arg, int stream, struct str bytes)
{
	struct stage *s = arg;

	assert_int_equal(s->done, 0);
	s->out_bytes += bytes.n;
}

static void on_done(void *arg, const struct box_result *result)
{
	struct stage *s = arg;

	s->done++;
	s->r = *result;
	snprintf(s->failure, sizeof(s->failure), "%s", result->failure ? result->failure : "");
}

static const struct box_events events = {on_started, on_output, on_done};

static int add_run(struct stage *s, struct box_run **run)
{
	static const char *const argv[] = {"x", NULL};
	struct box_spec spec = {.argv = (char *const *)argv,
		.stdin_fd = -1,
		.files_fd = -1,
		.limits = {1000000, 2000000, 1 << 20, 100, 1 << 20, 4, 1 << 20}};

	return box_run(s->host, &spec, &events, s, run);
}

static int tear_down(void **state)
{
	struct stage *s = *state;

	box_host_close(s->host);
	loop_free(s->loop);
	free(s);
	return 0;
}

static struct box_slot *make_ready(struct box *box)
{
	struct opening *o = &box->openings[box->n_answered++];
	struct box_slot *slot = &box->slots[box->n_slots++];

	slot->box = box;
	o->done = true;
	o->on_ready(o->arg, slot, NULL);
	return slot;
}

/* A run in its slot, started. */
static struct box_slot *begin(struct stage *s)
{
	make_ready(s->box);
	assert_int_equal(add_run(s, &s->run), 0);
	turns(s);
	assert_non_null(s->box->last);
	s->box->last->events->on_started(s->box->last->arg);
	assert_int_equal(s->started, 1);
	return s->box->last;
}

static void end_with(struct stage *s, struct box_slot *slot, struct box_slot_end end)
{
	end.files_fd = -1;
	slot->events->on_ended(slot->arg, &end);
	turns(s);
	assert_int_equal(s->done, 1);
}

/* --- tests -------------------------------------------------------------------------------------------- */

#define MACHINE "the machine ran out of memory"

/* Everything at once is decided by the first in the order; then that one is taken away. */
static void test_verdict_order(void **state)
{
	static const struct {
		struct box_slot_end end;
		size_t printed;
		enum box_end want;
		enum box_limit_name limit;
		int64_t allowed, measured;
		const char *failure; /* not the slot's own */
	} table[] = {
		{{.failure = "ours",
			 .status = -1,
			 .oom_kills = 1,
			 .cpu_us = 9000000,
			 .wall_us = 9000000},
			101, BOX_FAILED, BOX_L_NONE, 0, 0},
		{{.status = -1, .oom_kills = 1, .cpu_us = 9000000, .wall_us = 9000000}, 101,
			BOX_LIMIT, BOX_L_OUTPUT, 100, 101},
		{{.status = 0,
			 .oom_kills = 1,
			 .cpu_us = 9000000,
			 .wall_us = 9000000,
			 .memory_bytes = 1 << 20},
			100, BOX_LIMIT, BOX_L_MEMORY, 1 << 20, 1 << 20},
		/* Killed for memory, but not for its own: ours, and no verdict. */
		{{.status = W_EXITCODE(0, SIGKILL), .oom_kills = 1, .memory_bytes = 786431}, 100,
			BOX_FAILED, BOX_L_NONE, 0, 0, MACHINE},
		{{.status = W_EXITCODE(0, SIGKILL), .oom_kills = 1, .memory_bytes = 786432}, 0,
			BOX_LIMIT, BOX_L_MEMORY, 1 << 20, 786432},
		{{.status = W_EXITCODE(0, SIGKILL), .oom_kills = 1}, 0, BOX_LIMIT, BOX_L_MEMORY,
			1 << 20, 0}, /* no peak is known */
		{{.status = W_EXITCODE(0, SIGKILL),
			 .oom_kills = 1,
			 .has_limit_ooms = true,
			 .memory_bytes = 1 << 20},
			0, BOX_FAILED, BOX_L_NONE, 0, 0, MACHINE},
		{{.status = 0,
			 .oom_kills = 1,
			 .limit_ooms = 2,
			 .has_limit_ooms = true,
			 .memory_bytes = 77},
			0, BOX_LIMIT, BOX_L_MEMORY, 1 << 20, 77},
		{{.status = W_EXITCODE(0, SIGKILL), .oom_kills = 1, .memory_bytes = 77}, 101,
			BOX_LIMIT, BOX_L_OUTPUT, 100, 101},
		{{.status = 0, .cpu_us = 1000001, .wall_us = 9000000}, 100, BOX_LIMIT, BOX_L_CPU,
			1000, 1001},
		{{.status = 0, .cpu_us = 1000000, .wall_us = 2000001}, 0, BOX_LIMIT, BOX_L_WALL,
			2000, 2001},
		{{.status = 0, .cpu_us = 1000000, .wall_us = 2000000}, 0, BOX_EXITED, BOX_L_NONE, 0,
			0},
		{{.status = W_EXITCODE(0, SIGXFSZ)}, 0, BOX_LIMIT, BOX_L_FILE, 1 << 20, 1 << 20},
		{{.status = 0, .files_refused = true}, 0, BOX_LIMIT, BOX_L_FILE, 0, 1},
		{{.status = W_EXITCODE(3, 0), .pids_refused = 2}, 0, BOX_EXITED, BOX_L_PROCESSES, 4,
			4},
		{{.status = W_EXITCODE(0, SIGABRT), .pids_refused = 2}, 0, BOX_SIGNALED,
			BOX_L_PROCESSES, 4, 4},
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		void *one;
		char text[200] = "";
		set_up(&one);
		struct stage *s = one;
		struct box_slot *slot = begin(s);
		if (table[i].printed)
			assert_true(write(slot->out, text, table[i].printed) > 0);
		end_with(s, slot, table[i].end);
		assert_int_equal(s->r.end, table[i].want);
		assert_int_equal(s->r.limit, table[i].limit);
		assert_int_equal(s->r.allowed, table[i].allowed);
		assert_int_equal(s->r.measured, table[i].measured);
		assert_int_equal(s->out_bytes, table[i].printed > 100 ? 100 : table[i].printed);
		assert_int_equal(s->r.stdout_bytes, s->out_bytes);
		const char *failure = table[i].failure ? table[i].failure : table[i].end.failure;
		assert_string_equal(s->failure, failure ? failure : "");
		assert_true(slot->closed);
		tear_down(&one);
	}
}

static void test_wall_timer_kills(void **state)
{
	struct stage *s = *state;
	struct box_slot *slot = begin(s);

	s->box->cpu_us = 10;
	loop_advance_us(s->loop, 2000000 - 1);
	assert_false(slot->killed);
	loop_advance_us(s->loop, 1);
	assert_true(slot->killed);
	assert_int_equal(s->done, 0);
	end_with(s, slot, (struct box_slot_end){.status = -1, .wall_us = 2000001});
	assert_int_equal(s->r.limit, BOX_L_WALL);
	assert_int_equal(s->r.signal, SIGKILL);
}

static void test_cpu_timer_kills_only_over_the_limit(void **state)
{
	struct stage *s = *state;
	struct box_slot *slot = begin(s);

	s->box->cpu_us = 1000000; /* the limit itself is allowed */
	loop_advance_us(s->loop, 1500000);
	assert_false(slot->killed);
	s->box->cpu_us = 1000001;
	loop_advance_us(s->loop, 1000);
	assert_true(slot->killed);
	end_with(s, slot, (struct box_slot_end){.status = -1, .cpu_us = 1000900, .wall_us = 5});
	assert_int_equal(s->r.limit, BOX_L_CPU);
}

static void test_no_timers_while_collecting(void **state)
{
	struct stage *s = *state;
	struct box_slot *slot = begin(s);

	slot->events->on_dead(slot->arg);
	loop_advance_us(s->loop, 5 * US_PER_S);
	assert_false(slot->killed);
	end_with(s, slot, (struct box_slot_end){.status = 0});
	assert_int_equal(s->r.end, BOX_EXITED);
}

/* Each step that does not come is our failure, and the slot is let go. */
static void test_deadlines(void **state)
{
	static const struct {
		bool started, killed, dead;
		const char *step;
	} table[] = {{false, false, false, "starting"}, {true, true, false, "killing"},
		{true, false, true, "dead"}};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		void *one;
		set_up(&one);
		struct stage *s = one;
		make_ready(s->box);
		assert_int_equal(add_run(s, &s->run), 0);
		turns(s);
		struct box_slot *slot = s->box->last;
		if (table[i].started)
			slot->events->on_started(slot->arg);
		if (table[i].killed)
			box_run_kill(s->run);
		if (table[i].dead)
			slot->events->on_dead(slot->arg);
		loop_advance_us(s->loop, 31 * US_PER_S);
		assert_int_equal(s->done, 1);
		assert_int_equal(s->r.end, BOX_FAILED);
		assert_non_null(strstr(s->failure, table[i].step));
		assert_true(slot->closed);
		tear_down(&one);
	}
}

static void test_stock(void **state)
{
	struct stage *s = *state;

	/* two slots and a spare, before anybody asks */
	assert_int_equal(s->box->n_openings, 3);
	for (int i = 0; i < 3; i++)
		make_ready(s->box);
	for (int i = 0; i < 3; i++)
		assert_int_equal(add_run(s, &s->run), 0);
	assert_int_equal(s->box->n_runs, 0); /* never from inside the call */
	turns(s);
	assert_int_equal(s->box->n_runs, 2); /* no more than `slots` at a time */
	assert_int_equal(s->box->n_openings, 5);
	struct box_slot *slot = s->box->last;
	end_with(s, slot, (struct box_slot_end){.status = 0});
	assert_int_equal(s->box->n_runs, 3);
}

static void test_queue_is_bounded(void **state)
{
	struct stage *s = *state;

	for (int i = 0; i < 1024; i++)
		assert_int_equal(add_run(s, &s->run), 0);
	assert_int_equal(add_run(s, &s->run), -EAGAIN);
	assert_null(s->run);
}

static void test_stale_slot_is_replaced(void **state)
{
	struct stage *s = *state;

	make_ready(s->box);
	make_ready(s->box);
	s->box->run_error = -ESTALE;
	assert_int_equal(add_run(s, &s->run), 0);
	turns(s);
	assert_int_equal(s->box->n_closed, 1);
	assert_int_equal(s->box->n_runs, 1);
	end_with(s, s->box->last, (struct box_slot_end){.status = 0});
	assert_int_equal(s->r.end, BOX_EXITED);
}

static void test_start_error_is_ours(void **state)
{
	struct stage *s = *state;

	make_ready(s->box);
	s->box->run_error = -EMFILE;
	assert_int_equal(add_run(s, &s->run), 0);
	turns(s);
	assert_int_equal(s->r.end, BOX_FAILED);
	assert_non_null(strstr(s->failure, strerror(EMFILE)));
}

/* One failure is retried; three in a row with nothing else going on fail who waits, with the reason. */
static void test_slot_failures(void **state)
{
	struct stage *s = *state;

	assert_int_equal(add_run(s, &s->run), 0);
	for (int i = 0; i < 3; i++) {
		struct opening *o = &s->box->openings[s->box->n_answered++];
		assert_int_equal(s->done, 0);
		o->done = true;
		o->on_ready(o->arg, NULL, "no more uids");
	}
	turns(s);
	assert_int_equal(s->done, 1);
	assert_int_equal(s->r.end, BOX_FAILED);
	assert_string_equal(s->failure, "no more uids");
	assert_null(box_host_failure(s->host));
	loop_advance_us(s->loop, 10 * US_PER_S);
	assert_int_equal(s->box->n_openings, 6);
	make_ready(s->box);
	s->done = 0;
	assert_int_equal(add_run(s, &s->run), 0);
	turns(s);
	end_with(s, s->box->last, (struct box_slot_end){.status = 0});
}

static void test_broken_for_good(void **state)
{
	struct stage *s = *state;
	struct opening *o = &s->box->openings[s->box->n_answered++];

	s->box->open_error = -EPIPE;
	assert_int_equal(add_run(s, &s->run), 0);
	o->done = true;
	o->on_ready(o->arg, NULL, "conclave-box died");
	loop_advance_us(s->loop, US_PER_S);
	assert_int_equal(s->done, 1);
	assert_int_equal(s->r.end, BOX_FAILED);
	assert_string_equal(box_host_failure(s->host), "conclave-box died");
	assert_int_equal(add_run(s, &s->run), -EPIPE);
}

static void test_cancel_while_draining(void **state)
{
	struct stage *s = *state;
	struct box_slot *slot = begin(s);

	box_run_cancel(&s->run);
	assert_true(slot->killed);
	slot->events->on_ended(slot->arg, &(struct box_slot_end){.status = -1, .files_fd = -1});
	turns(s);
	assert_int_equal(s->done, 0);
	assert_true(slot->closed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_verdict_order),
		cmocka_unit_test_setup_teardown(test_wall_timer_kills, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_cpu_timer_kills_only_over_the_limit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_timers_while_collecting, set_up, tear_down),
		cmocka_unit_test(test_deadlines),
		cmocka_unit_test_setup_teardown(test_stock, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_queue_is_bounded, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_stale_slot_is_replaced, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_start_error_is_ours, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_slot_failures, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_broken_for_good, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_cancel_while_draining, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
