/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsm - a state machine from a const table: the one place where a state is assigned.
 *
 * Each state is a row: a name, an enter function that starts exactly one operation and returns FSM_WAIT,
 * or names the next state at once; a deadline after which on_deadline() is called; the mask of states that
 * may follow. Every transition writes one debug (or info) line "id from to cause" and goes into a ring of
 * the last 16, printed when a transition is illegal (which is a bug and aborts).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reactor/base/log.h"
#include "reactor/timer.h"

#define FSM_WAIT (-1)
#define FSM_BIT(state) (UINT64_C(1) << (state))
#define FSM_RING 16

struct fsm;

struct fsm_state {
	const char *name;
	/* Called on entry; returns FSM_WAIT or the next state. NULL = just wait. Frees its owner, if at
	 * all, with loop_free_later(). */
	int (*enter)(void *owner);
	/* Called deadline_us after entry if still there (once: it moves on or sets another deadline);
	 * deadline_us 0 = none until fsm_set_deadline(). */
	void (*on_deadline)(void *owner);
	int64_t deadline_us;
	uint64_t next; /* mask of FSM_BIT() of the legal next states; 0 = terminal */
};

struct fsm_table {
	const char *machine; /* "task", "service": the log line's event */
	const struct fsm_state *states;
	int n_states;         /* <= 64 */
	enum log_level level; /* of the transition lines; left out = LOG_DEBUG */
};

struct fsm {
	const struct fsm_table *table;
	struct loop *loop;
	struct log *log; /* borrowed */
	void *owner;
	const char *id; /* borrowed: what the log line shows */
	int state;
	bool entering;
	struct timer deadline;
	struct {
		int from, to;
		const char *cause;
		int64_t at_us;
	} ring[FSM_RING];
	unsigned ring_next;
	/* Called after each transition, before enter(); tests trace and kill here. May be NULL. */
	void (*on_change)(void *arg, struct fsm *fsm, int from, int to);
	void *on_change_arg;
};

/* Starts in `state` without entering it. */
void fsm_init(struct fsm *fsm, const struct fsm_table *table, struct loop *loop, struct log *log,
	const char *id, void *owner, int state);
/* Moves to `state` because of `cause` (a literal), runs enter() and follows while it names a next state.
 * Illegal moves abort with the ring. From inside an enter() return the next state instead. */
void fsm_go(struct fsm *fsm, int state, const char *cause);
/* Overrides the deadline of the current state (us from now; 0 = none). */
void fsm_set_deadline(struct fsm *fsm, int64_t us);
void fsm_fini(struct fsm *fsm); /* stops the deadline */
bool fsm_is_terminal(const struct fsm *fsm);
static inline const char *fsm_state_name(const struct fsm *fsm, int state)
{
	return fsm->table->states[state].name;
}
