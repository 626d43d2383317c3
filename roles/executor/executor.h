/* SPDX-License-Identifier: Apache-2.0 */
/*
 * executor - the executor's main: session (the report loop) + one task machine a task, on one loop. Nothing here is global:
 * cluster tests run many on one loop with a fake box and the `loop` transport.
 */
#pragma once

#include "proc/box/box.h"
#include "reactor/base/map.h"
#include "rpc/rpc_client.h"
#include "rpc/task/verdict.h"

struct executor;

enum executor_end {
	EXECUTOR_DRAINED, /* after executor_drain(): every task is finished or handed back, every result accepted */
	/* The box can run nothing any more. Results are delivered, what has not run is handed back; the tasks that ran when it
	 * broke are still owned: the next registration counts the loss, so that one that breaks boxes is not passed on for ever. */
	EXECUTOR_BROKEN,
	EXECUTOR_FENCED, /* another process of this name registered, or we were declared dead: all tasks are killed and reaped */
};

struct executor_options {
	const char *name;
	unsigned slots;
	bool alone;                  /* one task at a time, whatever slots says */
	struct log *log;             /* borrowed */
	struct transport *transport; /* borrowed */
	const char *judicators;      /* "a:1,b:2" */
	struct box_host *box;        /* borrowed */
	const struct map
		*languages;    /* borrowed: name -> struct language *, only those that work here */
	struct str toolchains; /* JSON object language -> version text, or absent */
	int64_t wait_us;       /* long poll */
	const char
		*blob_dir; /* where blobs are cached; NULL = tasks that refer to one cannot run */
	int64_t blob_bytes_max;
	/* Once, from the loop; the executor may be freed inside. */
	void (*on_end)(void *arg, enum executor_end end);
	/* Tests: each transition of each task machine. Must not call back into the executor. May be NULL. */
	void (*on_task_change)(
		void *arg, const char *id, int64_t attempt, const char *from, const char *to);
	void *arg;
};

/* Starts reporting on the next turn. */
struct executor *executor_new(struct loop *loop, const struct executor_options *options) must_check;
/* Takes no more work, finishes what runs (until grace_us, then kills and hands back), keeps reporting until all results are
 * accepted; then on_end(EXECUTOR_DRAINED). */
void executor_drain(struct executor *executor, int64_t grace_us);
/* Kills everything at once, no callback (a death, as far as others can see). NULL is fine. */
void executor_free(struct executor *executor);

/* What a task that is held does. */
enum executor_hold {
	EXECUTOR_WAITING, /* for a slot */
	EXECUTOR_RUNNING, /* compiling too */
	EXECUTOR_KILLING,
	EXECUTOR_RESULT,  /* waits to be accepted */
	EXECUTOR_SUSPECT, /* was alive when the box broke */
	EXECUTOR_HOLDS
};
const char *executor_hold_name(enum executor_hold hold);

struct executor_stats {
	unsigned slots, held[EXECUTOR_HOLDS];
	uint64_t ended[VERDICT_N]; /* tasks that came to a result here */
	uint64_t system_failures;  /* our own, each try */
	uint64_t calls[RPC_METHOD_N][RPC_GARBLED + 1];
	bool registered;
};
void executor_get_stats(const struct executor *executor, struct executor_stats *out);
struct blob_cache_stats;
void executor_blob_stats(const struct executor *executor, struct blob_cache_stats *out);

/* For tests and status: tasks held now, and those whose program is running. */
unsigned executor_held(const struct executor *executor);
unsigned executor_running(const struct executor *executor);
bool executor_runs(
	const struct executor *executor, const char *id); /* a program of this task is alive */
int64_t executor_epoch(const struct executor *executor);
