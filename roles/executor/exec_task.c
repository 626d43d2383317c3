/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One task, from its document to its result.
 *
 *   PREPARE ──> COMPILE ──> RUN ─┐ next case      any of FETCH PREPARE COMPILE ADD RUN RETRY ──> KILL ──> GONE
 *      │           │  └──────│<──┘                     (cancel, shutdown, fenced)
 *      └───────────│─────────┤                    FETCH PREPARE COMPILE ADD RUN <──> RETRY   our failure: again, 3 times
 *                  └─────> COLLECT ──> HELD ──> GONE
 *                                                 FETCH comes first when the task refers to blobs
 *                                                 ADD is on the way to RUN when the run has files of its own
 *
 * FETCH    every blob the task refers to is had from the cache, one after the other, and stays until the end: so no run waits for a
 *          network. It has no deadline, as the claim has one: without a judicator nobody could take the result either, and a cancel
 *          or a fence ends it.
 * PREPARE  writes the sources into a bundle (a sealed memfd), slice by slice: nothing of ours is on a disk. An archive becomes
 *          one on a worker, within the limits of archives, which take the place of a deadline.
 * COMPILE  the compiler runs in the box on that bundle, and what it leaves comes back as another one (`built`).
 * ADD      copies `built`, slice by slice, with the files the task adds for the run over it; an archive is unpacked first.
 * RUN      the program runs on `built`, made read-only, with one case's input; once a case, in order.
 * COLLECT  the result becomes JSON; everything else is let go.
 * HELD     the result waits until a judicator has accepted it.
 * KILL     ends only when the box says that everything of the run is dead and reaped.
 *
 * At most one program is alive at any time (`run`), only in COMPILE, RUN and KILL. Nothing survives a crash of the executor:
 * the box dies with it, and the judicator gives the task to another.
 *
 * "The task failed" is a verdict and comes from judge_case(), compile_is_done() and exec_submission_is_bad(). "We failed" is a
 * reason in words and goes through exec_we_failed() only: the step is repeated after a pause, and after SYSTEM_TRIES it is a
 * system_error with that reason; when the box is broken for good the task ends without a result, so that another executor gets
 * it. Neither can become the other.
 *
 * Here are the table of the states, failures, and the machine's life; the steps are in the files that exec_task_int.h lists.
 */
#include "roles/executor/exec_task_int.h"

#include <inttypes.h>
#include <stdlib.h>

#include "cfg/language.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/executor/blob_cache.h"
#include "roles/executor/unpack.h"

#define SYSTEM_TRIES 4 /* the first and three more */
/* The box ends every run at its wall limit; longer than this it is broken. */
#define BOX_DEADLINE_US ((LIMIT_WALL_MS_MAX + 60 * 1000) * US_PER_MS)

/*** Failures, the submission's and our own ***/

/* What is compiled or laid out is at fault. */
int exec_submission_is_bad(
	struct exec_task *task, const char *phase, const char *what, const char *why)
{
	exec_step_succeeded(task);
	if (!task->compiled) {
		task->compiled = mem_alloc(sizeof(*task->compiled));
		task->compiled->exit_code = -1;
	}
	task->compiled->message = str_from(mem_printf("%s.%s: %s", phase, what, why));
	task->verdict = VERDICT_COMPILE_ERROR;
	return COLLECT;
}

/* Names the next state: the same step again, or the end with a system_error. */
int exec_we_failed(struct exec_task *task, const char *what, const char *why)
{
	char quoted[LOG_QUOTE_MAX];

	free(task->reason);
	task->reason = mem_printf("%s: %s", what, why);
	task->tries++;
	if (task->env.system_failures)
		++*task->env.system_failures;
	log_warn(task->env.log, "system_failure", "id=%s try=%u reason=%s", task->label,
		task->tries, log_quote(str_from(task->reason), quoted));
	/* Nothing will ever run here again: the task has no result of ours, it must go to another executor. */
	if (box_host_failure(task->env.box))
		return KILL;
	if (task->tries >= SYSTEM_TRIES) {
		task->verdict = VERDICT_SYSTEM_ERROR;
		return COLLECT;
	}
	task->back_to = task->fsm.state;
	return RETRY;
}

static int enter_retry(void *owner)
{
	struct exec_task *task = owner;

	fsm_set_deadline(&task->fsm, backoff_next(&task->backoff, task->env.loop));
	return FSM_WAIT;
}

static void retry_is_due(void *owner)
{
	struct exec_task *task = owner;

	fsm_go(&task->fsm, task->back_to, "retry");
}

void exec_step_succeeded(struct exec_task *task)
{
	task->tries = 0;
	task->suspect = false;
	backoff_reset(&task->backoff);
}

/*** HELD, KILL, GONE ***/

void exec_let_go_of_all_but_the_result(struct exec_task *task)
{
	task->task = NULL;
	timer_stop(&task->slice);
	unpack_cancel(&task->unpack);
	files_fini(&task->sources);
	exec_drop_added(task);
	files_merge_fini(&task->merge);
	files_close(&task->built);
	files_close(&task->program);
	exec_captures_reset(task); /* the checker looks into a blob */
	exec_drop_blobs(task);
	if (task->compiled)
		exec_phase_fini(task->compiled);
	free(take_ptr(&task->compiled));
	for (size_t i = 0; i < task->n_cases; i++)
		exec_phase_fini(&task->cases[i]);
	task->n_cases = 0;
}

static void on_notify(void *arg)
{
	struct exec_task *task = arg;

	task->notified = true;
	task->events.on_end(task->arg);
}

static int enter_held(void *owner)
{
	struct exec_task *task = owner;

	loop_defer(task->env.loop, &task->notify);
	return FSM_WAIT;
}

static int enter_kill(void *owner)
{
	struct exec_task *task = owner;

	timer_stop(&task->slice);
	unpack_cancel(&task->unpack);
	blob_wait_cancel(&task->blob_wait);
	if (!task->run)
		return GONE;
	box_run_kill(task->run);
	return FSM_WAIT;
}

/* Nothing may say "gone" before the box does; all there is to do is to tell somebody. */
static void kill_is_late(void *owner)
{
	struct exec_task *task = owner;

	log_error(task->env.log, "task_unkillable", "id=%s", task->label);
	box_run_kill(task->run);
	fsm_set_deadline(&task->fsm, 10 * US_PER_S);
}

static int enter_gone(void *owner)
{
	struct exec_task *task = owner;

	exec_let_go_of_all_but_the_result(task);
	if (!task->notified)
		loop_defer(task->env.loop, &task->notify);
	return FSM_WAIT;
}

static const struct fsm_state states[] = {
	[FETCH] = {"FETCH", exec_enter_fetch, NULL, 0,
		FSM_BIT(PREPARE) | FSM_BIT(RETRY) | FSM_BIT(COLLECT) | FSM_BIT(KILL)},
	[PREPARE] = {"PREPARE", exec_enter_prepare, NULL, 0,
		FSM_BIT(COMPILE) | FSM_BIT(ADD) | FSM_BIT(RUN) | FSM_BIT(RETRY) | FSM_BIT(COLLECT) |
			FSM_BIT(KILL)},
	[COMPILE] = {"COMPILE", exec_enter_compile, exec_box_is_late, BOX_DEADLINE_US,
		FSM_BIT(ADD) | FSM_BIT(RUN) | FSM_BIT(RETRY) | FSM_BIT(COLLECT) | FSM_BIT(KILL)},
	[ADD] = {"ADD", exec_enter_add, NULL, 0,
		FSM_BIT(RUN) | FSM_BIT(RETRY) | FSM_BIT(COLLECT) | FSM_BIT(KILL)},
	[RUN] = {"RUN", exec_enter_run, exec_box_is_late, BOX_DEADLINE_US,
		FSM_BIT(RUN) | FSM_BIT(RETRY) | FSM_BIT(COLLECT) | FSM_BIT(KILL)},
	[RETRY] = {"RETRY", enter_retry, retry_is_due, 0,
		FSM_BIT(FETCH) | FSM_BIT(PREPARE) | FSM_BIT(COMPILE) | FSM_BIT(ADD) | FSM_BIT(RUN) |
			FSM_BIT(KILL)},
	[COLLECT] = {"COLLECT", exec_enter_collect, NULL, 0, FSM_BIT(HELD)},
	[KILL] = {"KILL", enter_kill, kill_is_late, 10 * US_PER_S, FSM_BIT(GONE)},
	[HELD] = {"HELD", enter_held, NULL, 0, FSM_BIT(GONE)},
	[GONE] = {"GONE", enter_gone, NULL, 0, 0},
};

static const struct fsm_table table = {
	.machine = "task", .states = states, .n_states = ARRAY_SIZE(states)};

/*** From outside ***/

static void on_change(void *arg, struct fsm *fsm, int from, int to)
{
	const struct exec_task *task = arg;

	if (task->env.on_change)
		task->env.on_change(task->env.arg, task->id.hex, task->attempt,
			fsm_state_name(fsm, from), fsm_state_name(fsm, to));
}

/* What makes further work pointless. */
static const char *refusal(struct exec_task *task, const char *message)
{
	struct str language = task->task ? task->task->language : STR_NULL;

	if (!task->task)
		return message ? message : "the task cannot be read";
	if (language.p && !str_is(language, LANGUAGE_RAW))
		task->language = map_get(task->env.languages, language);
	if (language.p && !str_is(language, LANGUAGE_RAW) && !task->language)
		return "this executor does not have the task's language";
	if (!task->language && (!task->task->execute || !task->task->execute->command.count))
		return "there is nothing to run: the task has neither a language nor a command";
	return NULL;
}

struct exec_task *exec_task_new(const struct exec_task_env *env, const struct id *id,
	int64_t attempt, const struct task *task_read, const char *message,
	const struct exec_task_events *events, void *arg)
{
	struct exec_task *task = mem_alloc(sizeof(*task));
	const char *refused;

	task->env = *env;
	task->events = *events;
	task->arg = arg;
	task->id = *id;
	task->attempt = attempt;
	task->label = mem_printf("%s attempt=%" PRId64, id->hex, attempt);
	task->task = task_read;
	task->status = TASK_COMPILING;
	task->built = task->program = task->sources.fd = task->added_fd = -1;
	files_merge_init(&task->merge);
	task->cases = mem_array(task_read ? task_read->cases.count : 0, sizeof(*task->cases));
	task->backoff = (struct backoff){.min_us = 50 * US_PER_MS, .max_us = 2 * US_PER_S};
	capture_init(&task->out);
	capture_init(&task->err);
	defer_init(&task->notify, on_notify, task);
	timer_init(&task->slice, env->loop, exec_on_slice, task);
	exec_list_wanted(task);
	fsm_init(&task->fsm, &table, env->loop, env->log, task->label, task,
		task->n_wanted ? FETCH : PREPARE);
	task->fsm.on_change = on_change;
	task->fsm.on_change_arg = task;
	refused = refusal(task, message);
	if (refused) {
		task->verdict = VERDICT_SYSTEM_ERROR;
		task->reason = mem_strdup(refused);
	}
	exec_enter_prepare(task); /* a slice, in which a FETCH begins too */
	return task;
}

void exec_task_end(struct exec_task *task, const char *cause)
{
	if (task->fsm.state == HELD)
		fsm_go(&task->fsm, GONE, cause);
	else if (task->fsm.state != KILL && task->fsm.state != GONE)
		fsm_go(&task->fsm, KILL, cause);
}

enum task_status exec_task_status(const struct exec_task *task)
{
	return task->status;
}

int64_t exec_task_case_no(const struct exec_task *task)
{
	return (int64_t)task->case_no;
}

bool exec_task_is_held(const struct exec_task *task)
{
	return task->fsm.state == HELD;
}

bool exec_task_is_alive(const struct exec_task *task)
{
	return task->started;
}

bool exec_task_is_suspect(const struct exec_task *task)
{
	return task->suspect;
}

const struct exec_task_outcome *exec_task_outcome(const struct exec_task *task)
{
	CHECK(exec_task_is_held(task));
	return &task->outcome;
}

void exec_task_free(struct exec_task *task)
{
	if (!task)
		return;
	if (task->run)
		box_run_cancel(&task->run);
	defer_cancel(&task->notify);
	fsm_fini(&task->fsm);
	exec_let_go_of_all_but_the_result(task);
	capture_fini(&task->out);
	capture_fini(&task->err);
	buf_fini(&task->json);
	free(task->cases);
	free(task->reason);
	free(task->label);
	loop_free_later(task->env.loop, free, task);
}
