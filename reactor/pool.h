/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool - blocking work off the loop; the only file with threads. Fixed workers, a bounded queue;
 * completions come back through one eventfd.
 *
 * A job owns copies of its inputs: run() executes on a worker and may touch only the job and the
 * worker's own resource (a SQLite handle, a MongoDB client); done() executes on the loop, exactly once,
 * after run(). The job's memory belongs to the caller from done() on. Jobs start in the order submitted
 * (with one worker they also finish so).
 */
#pragma once

#include "reactor/base/list.h"

struct loop;
struct pool;
struct pool_job;

#define POOL_E_FULL 1

struct pool_options {
	const char *name;
	unsigned workers;   /* >= 1 */
	unsigned queue_max; /* jobs waiting, not counting those running */
	/* On each worker before its first job: makes the worker's resource; negative errno fails pool_new(). */
	int (*worker_init)(void *arg, unsigned index, void **resource);
	void (*worker_fini)(void *resource); /* on the worker, at the end */
	void *arg;
};

struct pool_job {
	void (*run)(struct pool_job *job, void *resource); /* on a worker */
	void (*done)(struct pool_job *job);                /* on the loop */
	struct list link;                                  /* pool's while submitted */
};

/* Starts the workers and waits until each has run worker_init. */
int pool_new(struct loop *loop, const struct pool_options *options, struct pool **out) must_check;
/* 0, or POOL_E_FULL (also while pool_free() runs): nothing was taken; the caller answers "busy" or tries
 * later. Never waits. */
int pool_submit(struct pool *pool, struct pool_job *job) must_check;
/* Waits for all jobs (queued ones run too), calls their done(), ends the workers. NULL is fine; legal
 * inside a done(). Blocks the loop for as long as the jobs take: for the end of a process only. */
void pool_free(struct pool *pool);
unsigned pool_queued(
	const struct pool *pool); /* waiting + running + completed but not yet done() */
