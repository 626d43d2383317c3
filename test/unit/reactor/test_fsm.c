/* SPDX-License-Identifier: Apache-2.0 */
/* fsm: moves, chains, deadlines, the log line, and the abort of an illegal move. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test/unit/reactor/forked.h"

#include "reactor/base/clock.h"
#include "reactor/fsm.h"
#include "reactor/loop.h"

enum { IDLE, PREPARE, RUN, KILL, GONE, N_STATES };

struct machine {
	struct fsm fsm;
	struct loop *loop;
	char text[256]; /* entered states by initial, deadlines as '!' */
	bool prepare_fails;
	bool misbehaves;
};

static void tell(struct machine *m, char c)
{
	size_t n = strlen(m->text);

	m->text[n] = c;
	m->text[n + 1] = '\0';
}

static int enter_prepare(void *owner)
{
	struct machine *m = owner;

	tell(m, 'P');
	if (m->misbehaves)
		fsm_go(&m->fsm, RUN, "from inside");
	return m->prepare_fails ? KILL : FSM_WAIT;
}

static int enter_run(void *owner)
{
	tell(owner, 'R');
	return FSM_WAIT;
}

static int enter_kill(void *owner)
{
	tell(owner, 'K');
	return GONE;
}

static void on_run_deadline(void *owner)
{
	struct machine *m = owner;

	tell(m, '!');
	fsm_go(&m->fsm, KILL, "deadline");
}

static const struct fsm_state states[N_STATES] = {
	[IDLE] = {.name = "idle", .next = FSM_BIT(PREPARE)},
	[PREPARE] = {.name = "prepare",
		.enter = enter_prepare,
		.on_deadline = on_run_deadline,
		.next = FSM_BIT(RUN) | FSM_BIT(KILL)},
	[RUN] = {.name = "run",
		.enter = enter_run,
		.on_deadline = on_run_deadline,
		.deadline_us = 1000,
		.next = FSM_BIT(RUN) | FSM_BIT(KILL)},
	[KILL] = {.name = "kill", .enter = enter_kill, .next = FSM_BIT(GONE)},
	[GONE] = {.name = "gone"},
};

static const struct fsm_table table = {
	.machine = "task",
	.states = states,
	.n_states = N_STATES,
};

static void machine_init(struct machine *m, struct log *log)
{
	*m = (struct machine){
		.loop = loop_new(&(struct loop_options){.fake_clock = true, .log = log}),
	};
	fsm_init(&m->fsm, &table, m->loop, log, "6748", m, IDLE);
}

static void machine_fini(struct machine *m)
{
	fsm_fini(&m->fsm);
	loop_free(m->loop);
}

static void test_moves_and_chains(void **state)
{
	struct machine m;

	machine_init(&m, NULL);
	assert_int_equal(m.fsm.state, IDLE);
	assert_string_equal(m.text, ""); /* the first state is not entered */
	fsm_go(&m.fsm, PREPARE, "start");
	assert_string_equal(m.text, "P");
	assert_false(fsm_is_terminal(&m.fsm));
	fsm_go(&m.fsm, RUN, "prepared");
	fsm_go(&m.fsm, RUN, "next case"); /* legal only because the row says so */
	fsm_go(&m.fsm, KILL, "cancel");
	assert_string_equal(m.text, "PRRK");
	assert_int_equal(m.fsm.state, GONE);
	assert_true(fsm_is_terminal(&m.fsm));
	assert_string_equal(fsm_state_name(&m.fsm, m.fsm.state), "gone");
	machine_fini(&m);
}

static void test_enter_names_the_next_state(void **state)
{
	struct machine m;

	machine_init(&m, NULL);
	m.prepare_fails = true;
	fsm_go(&m.fsm, PREPARE, "start");
	assert_string_equal(m.text, "PK");
	assert_int_equal(m.fsm.state, GONE);
	machine_fini(&m);
}

static void test_deadline(void **state)
{
	struct machine m;

	machine_init(&m, NULL);
	fsm_go(&m.fsm, PREPARE, "start");
	loop_advance_us(m.loop, 3600 * US_PER_S); /* prepare has none */
	fsm_go(&m.fsm, RUN, "prepared");
	loop_advance_us(m.loop, 999);
	assert_string_equal(m.text, "PR");
	fsm_go(&m.fsm, RUN, "next case"); /* entering again starts it afresh */
	loop_advance_us(m.loop, 999);
	assert_string_equal(m.text, "PRR");
	loop_advance_us(m.loop, 1);
	assert_string_equal(m.text, "PRR!K");
	loop_advance_us(m.loop, 3600 * US_PER_S);
	assert_string_equal(m.text, "PRR!K");
	machine_fini(&m);
}

static void test_leaving_in_time_disarms_the_deadline(void **state)
{
	struct machine m;

	machine_init(&m, NULL);
	fsm_go(&m.fsm, PREPARE, "start");
	fsm_go(&m.fsm, RUN, "prepared");
	fsm_go(&m.fsm, KILL, "cancel");
	assert_false(loop_advance_next(m.loop));
	assert_string_equal(m.text, "PRK");
	machine_fini(&m);
}

static void test_set_deadline_overrides(void **state)
{
	struct machine m;

	machine_init(&m, NULL);
	fsm_go(&m.fsm, PREPARE, "start");
	fsm_set_deadline(&m.fsm, 50); /* the row has a handler but no time */
	fsm_set_deadline(&m.fsm, 0);
	assert_false(loop_advance_next(m.loop));
	fsm_go(&m.fsm, RUN, "prepared");
	fsm_set_deadline(&m.fsm, 5000);
	loop_advance_us(m.loop, 4999);
	assert_string_equal(m.text, "PR");
	loop_advance_us(m.loop, 1);
	assert_string_equal(m.text, "PR!K");
	machine_fini(&m);
}

static void test_fini_stops_the_deadline(void **state)
{
	struct machine m;

	machine_init(&m, NULL);
	fsm_go(&m.fsm, PREPARE, "start");
	fsm_go(&m.fsm, RUN, "prepared");
	fsm_fini(&m.fsm);
	fsm_fini(&m.fsm);
	assert_false(loop_advance_next(m.loop));
	machine_fini(&m);
}

struct lines {
	unsigned count;
	enum log_level level;
	char text[1024];
};

static void on_log(void *arg, enum log_level level, const char *line)
{
	struct lines *l = arg;

	l->count++;
	l->level = level;
	snprintf(l->text, sizeof(l->text), "%s", line);
}

static void test_each_transition_is_one_line(void **state)
{
	struct lines lines = {0};
	struct log *log = log_new_sink(on_log, &lines, "executor", LOG_DEBUG);
	struct machine m;

	machine_init(&m, log);
	fsm_go(&m.fsm, PREPARE, "start");
	assert_int_equal(lines.count, 1);
	assert_int_equal(lines.level, LOG_DEBUG); /* what a table gets that names no level */
	assert_string_equal(lines.text, "level=debug role=executor event=task id=6748 from=idle "
					"to=prepare cause=start");
	fsm_go(&m.fsm, KILL, "cancel");
	assert_int_equal(lines.count, 3);
	assert_non_null(strstr(lines.text, "from=kill to=gone cause=entered"));
	machine_fini(&m);
	log_free(log);
}

static void on_change(void *arg, struct fsm *fsm, int from, int to)
{
	struct machine *m = arg;

	assert_int_equal(fsm->state, to);
	tell(m, (char)('0' + from));
	tell(m, (char)('0' + to));
}

static void test_observer_comes_before_enter(void **state)
{
	struct machine m;

	machine_init(&m, NULL);
	m.fsm.on_change = on_change;
	m.fsm.on_change_arg = &m;
	fsm_go(&m.fsm, PREPARE, "start");
	fsm_go(&m.fsm, KILL, "cancel");
	assert_string_equal(m.text, "01P13K34");
	machine_fini(&m);
}

static void go_illegal(void *arg)
{
	struct machine m;

	machine_init(&m, NULL);
	fsm_go(&m.fsm, PREPARE, "start");
	for (unsigned i = 0; i < 20; i++)
		fsm_go(&m.fsm, RUN, i == 3 ? "dropped" : "case");
	fsm_go(&m.fsm, *(const int *)arg, "oops");
}

static void test_illegal_move_prints_the_ring_and_aborts(void **state)
{
	static const int back = PREPARE, beyond = N_STATES, below = -7;
	char said[8192];
	unsigned moves = 0;

	assert_true(forked_aborts(go_illegal, (void *)&back, said, sizeof(said)));
	assert_non_null(strstr(said, "fsm task id=6748: illegal move run -> prepare cause=oops\n"));
	for (const char *p = said; (p = strstr(p, "fsm   at_us=")); p++)
		moves++;
	assert_int_equal(moves, FSM_RING);
	assert_non_null(strstr(said, "run -> run cause=case\n"));
	assert_null(strstr(said, "cause=start")); /* older than the ring */
	assert_null(strstr(said, "cause=dropped"));
	assert_true(forked_aborts(go_illegal, (void *)&beyond, said, sizeof(said)));
	assert_non_null(strstr(said, "illegal move run -> ? cause=oops"));
	assert_true(forked_aborts(go_illegal, (void *)&below, said, sizeof(said)));
}

static void go_from_inside(void *arg)
{
	struct machine m;

	machine_init(&m, NULL);
	m.misbehaves = true;
	fsm_go(&m.fsm, PREPARE, "start");
}

static void test_go_from_inside_enter_aborts(void **state)
{
	char said[1024];

	assert_true(forked_aborts(go_from_inside, NULL, said, sizeof(said)));
	assert_non_null(strstr(said, "!fsm->entering"));
}

static void deadline_without_handler(void *arg)
{
	struct machine m;

	machine_init(&m, NULL);
	fsm_set_deadline(&m.fsm, 10);
}

static void test_deadline_needs_a_handler(void **state)
{
	char said[1024];

	assert_true(forked_aborts(deadline_without_handler, NULL, said, sizeof(said)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moves_and_chains),
		cmocka_unit_test(test_enter_names_the_next_state),
		cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_leaving_in_time_disarms_the_deadline),
		cmocka_unit_test(test_set_deadline_overrides),
		cmocka_unit_test(test_fini_stops_the_deadline),
		cmocka_unit_test(test_each_transition_is_one_line),
		cmocka_unit_test(test_observer_comes_before_enter),
		cmocka_unit_test(test_illegal_move_prints_the_ring_and_aborts),
		cmocka_unit_test(test_go_from_inside_enter_aborts),
		cmocka_unit_test(test_deadline_needs_a_handler),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
