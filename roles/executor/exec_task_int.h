/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_task_int - what the task machine's files share: the machine, its states, and the verbs between them. Nobody else includes it.
 *
 *   exec_task.c     the machine: the table of its states, failures, how it ends, what is asked of it from outside
 *   exec_fetch.c    FETCH: the blobs
 *   exec_files.c    PREPARE, ADD: files become bundles
 *   exec_program.c  COMPILE, RUN: programs in the box, and how their end is judged
 *   exec_result.c   what is kept of them; COLLECT: the result
 *
 * An exec_enter_*() is the enter function of its state's row (see reactor/fsm.h). A verb that "names the next state" returns it,
 * or FSM_WAIT, and its caller hands that on: only an event's outermost function calls fsm_go().
 */
#pragma once

#include "reactor/fsm.h"
#include "reactor/loop.h"
#include "reactor/timer.h"
#include "roles/executor/exec_task.h"
#include "roles/executor/files.h"

enum { FETCH, PREPARE, COMPILE, ADD, RUN, RETRY, COLLECT, KILL, HELD, GONE };

struct exec_task {
	struct fsm fsm;
	struct exec_task_env env;
	struct exec_task_events events;
	void *arg;
	struct id id;
	int64_t attempt;
	char *label; /* for the log: id and attempt */
	const struct task *task;
	const struct language *language; /* NULL = raw */
	struct defer notify;
	bool notified;
	enum verdict verdict;
	/* FETCH */
	struct str *wanted; /* names, each once */
	size_t n_wanted, n_had;
	struct map blobs; /* name -> struct blob, pinned */
	struct blob_wait *blob_wait;
	/* PREPARE */
	struct timer slice;
	struct files sources;
	/* PREPARE, ADD */
	struct unpack *unpack;
	/* COMPILE, RUN: the program in the box */
	struct box_run *run;
	bool started; /* it has been exec'ed */
	bool suspect; /* the box failed under it, and no try since has succeeded */
	struct capture out, err;
	struct checker *checker; /* RUN */
	struct limits limits;
	/* RETRY, and our failures */
	int back_to;
	unsigned tries;
	struct backoff backoff;
	char *reason;
	/* ADD */
	struct files_merge merge;
	int added_fd; /* execute.archive, unpacked; -1 = not, or there is none */
	struct bundle added;
	struct codec_list added_files; /* ours; their bytes are in `added` */
	/* COMPILE -> RUN */
	enum task_status status; /* as readers see it: TASK_COMPILING until the first case runs */
	int built;               /* bundle: what was compiled, or the sources */
	int program;             /* bundle: what the cases run */
	size_t case_no;
	/* what is known so far */
	struct result_phase *compiled; /* NULL = nothing was, so far */
	struct result_phase *cases;
	size_t n_cases;
	size_t kept_text;
	/* HELD */
	struct buf json;
	struct exec_task_outcome outcome;
};

/*** exec_task.c ***/

/* It is our failure; names the next state: the same step again, the end with a system_error, or KILL when the box is broken for
 * good. `what` we did and `why` it failed, in words. */
int exec_we_failed(struct exec_task *task, const char *what, const char *why) must_check;
/* The step worked: the tries of the next one are counted anew, and the task is no suspect. */
void exec_step_succeeded(struct exec_task *task);
/* What is to be compiled or laid out is at fault: a compile_error, whose message says `phase`.`what`: `why`. Names the next
 * state. */
int exec_submission_is_bad(
	struct exec_task *task, const char *phase, const char *what, const char *why) must_check;
/* Frees whatever the work needed, the blobs' pins included. Idempotent. */
void exec_let_go_of_all_but_the_result(struct exec_task *task);

/*** exec_fetch.c ***/

int exec_enter_fetch(void *owner);
/* Asks for the next blob; names the next state. */
int exec_fetch_next(struct exec_task *task) must_check;
/* Fills `wanted`, once, before anything else of the blobs is used. */
void exec_list_wanted(struct exec_task *task);
/* Ends a fetch under way and the pins. Idempotent. */
void exec_drop_blobs(struct exec_task *task);
/* What a content refers to, after FETCH; NULL when it is inline. */
struct blob *exec_blob_of(const struct exec_task *task, const struct content *content);
/* Its bytes, valid while the blob is pinned. Absent when the content is, or when there is no memory to look at it. */
struct str exec_bytes_of(const struct exec_task *task, const struct content *content);

/*** exec_files.c ***/

int exec_enter_prepare(void *owner);
int exec_enter_add(void *owner);
/* The timer `slice`: goes on with FETCH, PREPARE or ADD. */
void exec_on_slice(void *arg);
/* Everything is built, in `built`; names the next state, for RUN with `program` in place. */
int exec_step_to_run(struct exec_task *task) must_check;
/* Frees what ADD has unpacked. Idempotent. */
void exec_drop_added(struct exec_task *task);

/*** exec_program.c ***/

int exec_enter_compile(void *owner);
int exec_enter_run(void *owner);
/* The deadline of both. */
void exec_box_is_late(void *owner);

/*** exec_result.c ***/

int exec_enter_collect(void *owner);
const struct task_case *exec_case_at(const struct exec_task *task, size_t i);
/* Nothing is captured any more, and nothing checked. */
void exec_captures_reset(struct exec_task *task);
/* Fills `phase` with how a program ended, and takes what was captured of it. */
void exec_keep_phase(
	struct exec_task *task, struct result_phase *phase, const struct box_result *result);
void exec_phase_fini(struct result_phase *phase);
