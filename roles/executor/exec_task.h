/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_task - one claimed task from its document to its result: compiles and runs it in the box, case by case.
 *
 * It owns everything the task has on this machine (programs, memfds, captured output) and holds its result until it is
 * told to let go. Waiting for a slot is the executor's business: a machine that exists works.
 */
#pragma once

#include "proc/box/box.h"
#include "reactor/base/map.h"
#include "rpc/task/result.h"
#include "rpc/task/task.h"

struct blob_cache;
struct exec_task;
struct log;
struct loop;
struct unpacker;

struct exec_task_env { /* shared by all machines of an executor; borrowed for their life */
	struct loop *loop;
	struct log *log;
	struct box_host *box;
	struct unpacker *unpacker;   /* NULL only where no task has an archive */
	struct blob_cache *blobs;    /* NULL only where no task refers to one */
	const struct map *languages; /* name -> struct language * */
	/* Each transition. Must not free the executor or the machine. May be NULL. */
	void (*on_change)(
		void *arg, const char *id, int64_t attempt, const char *from, const char *to);
	void *arg;
	uint64_t *system_failures; /* counted up at each of our own failures. May be NULL */
};

struct exec_task_events {
	/* Status or case has changed. May be NULL. */
	void (*on_progress)(void *arg);
	/* Once, from the loop: nothing of the task is alive any more, and there is a result (exec_task_is_held()) or, after
	 * exec_task_end() or because the box is broken for good, none. The machine may be freed inside. */
	void (*on_end)(void *arg);
};

struct exec_task_outcome {
	const char *status, *verdict; /* wire names */
	struct str json;              /* the result, see rpc/task/result.h */
};

/* Starts on the next turn. `task` is borrowed until on_end (or the machine's end); NULL = it could not be read: `message` says
 * why and the result is a system_error. */
struct exec_task *exec_task_new(const struct exec_task_env *env, const struct id *id,
	int64_t attempt, const struct task *task, const char *message,
	const struct exec_task_events *events, void *arg) must_check;
/* Makes it go away: kills what runs; on_end comes when it is reaped (a held result is dropped at once, without
 * another on_end). Idempotent. cause is a literal: "cancelled", "accepted", "shutdown" ... */
void exec_task_end(struct exec_task *task, const char *cause);

enum task_status exec_task_status(
	const struct exec_task *task); /* compiling or running while it works */
int64_t exec_task_case_no(const struct exec_task *task);
bool exec_task_is_held(const struct exec_task *task);
bool exec_task_is_alive(
	const struct exec_task *task); /* a program of it has been started and not yet reaped */
/* A program of it was alive when the box failed, and nothing has succeeded since: it may be why. */
bool exec_task_is_suspect(const struct exec_task *task);
/* While held; borrowed. */
const struct exec_task_outcome *exec_task_outcome(const struct exec_task *task);
/* Kills and forgets; no more calls. NULL is fine. */
void exec_task_free(struct exec_task *task);
