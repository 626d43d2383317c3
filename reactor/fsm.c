/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsm_assign() is the only place where a state changes: it checks the move against the table, records it
 * in the ring, logs it, arms the deadline of the new state and tells the observer. fsm_go() is the driver:
 * it enters states for as long as their enter() names the next one.
 *
 * enter() may be the end of its owner, but not at once: the driver looks at its answer. Owners free
 * themselves with loop_free_later(), which is what makes a terminal state's enter() a good place for it.
 */
#include "reactor/fsm.h"

#include <stdio.h>

#include "reactor/base/buf.h"
#include "reactor/loop.h"

static const char *state_name(const struct fsm *fsm, int state)
{
	return state >= 0 && state < fsm->table->n_states ? fsm_state_name(fsm, state) : "?";
}

/* The path that led to a bug, oldest first, then the end. */
static _Noreturn void fsm_abort(const struct fsm *fsm, int to, const char *cause)
{
	unsigned n = fsm->ring_next < FSM_RING ? fsm->ring_next : FSM_RING;

	fprintf(stderr, "fsm %s id=%s: illegal move %s -> %s cause=%s\n", fsm->table->machine,
		fsm->id, state_name(fsm, fsm->state), state_name(fsm, to), cause);
	for (unsigned i = fsm->ring_next - n; i != fsm->ring_next; i++)
		fprintf(stderr, "fsm   at_us=%lld %s -> %s cause=%s\n",
			(long long)fsm->ring[i % FSM_RING].at_us,
			state_name(fsm, fsm->ring[i % FSM_RING].from),
			state_name(fsm, fsm->ring[i % FSM_RING].to), fsm->ring[i % FSM_RING].cause);
	check_failed(__FILE__, __LINE__, __func__, "legal move");
}

static void on_deadline(void *arg)
{
	struct fsm *fsm = arg;

	fsm->table->states[fsm->state].on_deadline(fsm->owner);
}

void fsm_init(struct fsm *fsm, const struct fsm_table *table, struct loop *loop, struct log *log,
	const char *id, void *owner, int state)
{
	CHECK(table->n_states > 0 && table->n_states <= 64);
	CHECK(state >= 0 && state < table->n_states);
	*fsm = (struct fsm){
		.table = table,
		.loop = loop,
		.log = log,
		.owner = owner,
		.id = id ? id : "-",
		.state = state,
	};
	timer_init(&fsm->deadline, loop, on_deadline, fsm);
}

void fsm_set_deadline(struct fsm *fsm, int64_t us)
{
	timer_stop(&fsm->deadline);
	if (us <= 0)
		return;
	CHECK(fsm->table->states[fsm->state].on_deadline);
	timer_start(&fsm->deadline, us);
}

static void fsm_assign(struct fsm *fsm, int to, const char *cause)
{
	const struct fsm_table *table = fsm->table;
	int from = fsm->state;

	if (to < 0 || to >= table->n_states || !(table->states[from].next & FSM_BIT(to)))
		fsm_abort(fsm, to, cause);
	fsm->ring[fsm->ring_next % FSM_RING].from = from;
	fsm->ring[fsm->ring_next % FSM_RING].to = to;
	fsm->ring[fsm->ring_next % FSM_RING].cause = cause;
	fsm->ring[fsm->ring_next % FSM_RING].at_us = loop_now_us(fsm->loop);
	fsm->ring_next++;
	fsm->state = to;
	log_at(fsm->log, table->level == LOG_ERROR ? LOG_DEBUG : table->level, table->machine,
		"id=%s from=%s to=%s cause=%s", fsm->id, fsm_state_name(fsm, from),
		fsm_state_name(fsm, to), cause);
	fsm_set_deadline(fsm, table->states[to].deadline_us);
	if (fsm->on_change)
		fsm->on_change(fsm->on_change_arg, fsm, from, to);
}

void fsm_go(struct fsm *fsm, int state, const char *cause)
{
	CHECK(!fsm->entering);
	fsm->entering = true;
	while (state != FSM_WAIT) {
		int (*enter)(void *owner);

		fsm_assign(fsm, state, cause);
		enter = fsm->table->states[state].enter;
		state = enter ? enter(fsm->owner) : FSM_WAIT;
		cause = "entered";
	}
	fsm->entering = false;
}

void fsm_fini(struct fsm *fsm)
{
	timer_stop(&fsm->deadline);
}

bool fsm_is_terminal(const struct fsm *fsm)
{
	return fsm->table->states[fsm->state].next == 0;
}
