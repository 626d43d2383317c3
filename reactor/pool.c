/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only file with threads. Two queues under one mutex:
 *
 *	loop                         mutex                       workers
 *	pool_submit ---> waiting (unfinished < workers + queue_max) ---> run()
 *	done()      <--- completed <------------------------------------  |
 *	     ^                                                            |
 *	     +------ eventfd, written when `completed` stops being empty -+
 *
 * A job belongs to the loop before pool_submit(), to the pool until run() has returned, and to the loop
 * again when on_completed() has spliced it into `ready`; the mutex orders the hand-overs. Completions are
 * signalled through an eventfd, not by polling or a libevent wake-up, so libevent needs no locks.
 *
 * The bound counts jobs submitted and not yet run to the end: an idle worker that has not woken up yet
 * does not make the queue look full.
 *
 * Workers block all signals: those of the process arrive on the loop's thread.
 *
 * pool_free() may come from a done(): `is_closing` then stops the completion loop below it on the stack,
 * and the memory goes at the end of the turn.
 */
#include "reactor/pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "reactor/base/err.h"
#include "reactor/base/mem.h"
#include "reactor/io.h"
#include "reactor/loop.h"

struct pool_worker {
	struct pool *pool; /* borrowed */
	unsigned index;
	pthread_t thread;
	void *resource;
	int error; /* of worker_init; written before `started` is raised */
};

struct pool {
	struct loop *loop; /* borrowed */
	struct pool_options options;
	struct io_watch *watch;
	int event_fd;
	struct list ready;    /* loop's: completed, done() still to call */
	unsigned outstanding; /* loop's: submitted, done() still to call */
	bool is_closing;      /* loop's */

	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t work;   /* waiting or stopping changed */
	pthread_cond_t start;  /* started changed */
	struct list waiting, completed;
	unsigned unfinished; /* waiting or running */
	unsigned started;
	bool stopping;

	unsigned n_workers; /* threads that exist */
	struct pool_worker workers[];
};

/* --- on a worker --- */

static void worker_begin(struct pool_worker *w)
{
	struct pool *pool = w->pool;
	char name[16];

	snprintf(name, sizeof(name), "%.10s/%u", pool->options.name ? pool->options.name : "pool",
		w->index % 10000);
	pthread_setname_np(pthread_self(), name);
	if (pool->options.worker_init)
		w->error = pool->options.worker_init(pool->options.arg, w->index, &w->resource);
	pthread_mutex_lock(&pool->mutex);
	pool->started++;
	pthread_cond_signal(&pool->start);
	pthread_mutex_unlock(&pool->mutex);
}

/* The next job, or NULL when there will be none. */
static struct pool_job *worker_take(struct pool *pool)
{
	struct list *link;

	pthread_mutex_lock(&pool->mutex);
	while (!(link = list_first(&pool->waiting)) && !pool->stopping)
		pthread_cond_wait(&pool->work, &pool->mutex);
	if (link)
		list_del(link);
	pthread_mutex_unlock(&pool->mutex);
	return link ? list_entry(link, struct pool_job, link) : NULL;
}

static void worker_complete(struct pool *pool, struct pool_job *job)
{
	const uint64_t one = 1;
	bool was_empty;

	pthread_mutex_lock(&pool->mutex);
	was_empty = list_is_empty(&pool->completed);
	list_add_tail(&pool->completed, &job->link);
	pool->unfinished--;
	pthread_mutex_unlock(&pool->mutex);
	if (was_empty)
		CHECK(write(pool->event_fd, &one, sizeof(one)) == sizeof(one));
}

static void *worker_main(void *arg)
{
	struct pool_worker *w = arg;
	struct pool_job *job;

	worker_begin(w);
	if (w->error)
		return NULL;
	while ((job = worker_take(w->pool))) {
		job->run(job, w->resource);
		worker_complete(w->pool, job);
	}
	if (w->pool->options.worker_fini)
		w->pool->options.worker_fini(w->resource);
	return NULL;
}

/* --- on the loop --- */

static void ready_fetch(struct pool *pool)
{
	pthread_mutex_lock(&pool->mutex);
	list_splice_tail(&pool->ready, &pool->completed);
	pthread_mutex_unlock(&pool->mutex);
}

static void ready_finish_one(struct pool *pool)
{
	struct list *link = list_first(&pool->ready);
	struct pool_job *job = list_entry(link, struct pool_job, link);

	list_del(link);
	pool->outstanding--;
	job->done(job);
}

static void on_completed(void *arg, unsigned events)
{
	struct pool *pool = arg;
	uint64_t count;

	/* Emptied before the list is taken: a completion in between writes again. */
	if (read(pool->event_fd, &count, sizeof(count)) < 0)
		return;
	ready_fetch(pool);
	while (!pool->is_closing && !list_is_empty(&pool->ready))
		ready_finish_one(pool);
}

static int workers_create(struct pool *pool)
{
	sigset_t all, old;
	int error = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (unsigned i = 0; i < pool->options.workers && !error; i++) {
		struct pool_worker *w = &pool->workers[i];

		w->pool = pool;
		w->index = i;
		error = -pthread_create(&w->thread, NULL, worker_main, w);
		if (!error)
			pool->n_workers++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return error;
}

static int workers_await(struct pool *pool)
{
	pthread_mutex_lock(&pool->mutex);
	while (pool->started < pool->n_workers)
		pthread_cond_wait(&pool->start, &pool->mutex);
	pthread_mutex_unlock(&pool->mutex);
	for (unsigned i = 0; i < pool->n_workers; i++)
		if (pool->workers[i].error)
			return pool->workers[i].error;
	return 0;
}

static void workers_join(struct pool *pool)
{
	pthread_mutex_lock(&pool->mutex);
	pool->stopping = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->mutex);
	for (unsigned i = 0; i < pool->n_workers; i++)
		CHECK(pthread_join(pool->workers[i].thread, NULL) == 0);
}

static void pool_release(void *p)
{
	struct pool *pool = p;

	pthread_cond_destroy(&pool->start);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->mutex);
	free(pool);
}

int pool_new(struct loop *loop, const struct pool_options *options, struct pool **out)
{
	struct pool *pool;
	int error;

	CHECK(options->workers >= 1);
	*out = NULL;
	pool = mem_alloc(sizeof(*pool) + options->workers * sizeof(pool->workers[0]));
	pool->loop = loop;
	pool->options = *options;
	list_init(&pool->ready);
	list_init(&pool->waiting);
	list_init(&pool->completed);
	CHECK(pthread_mutex_init(&pool->mutex, NULL) == 0);
	CHECK(pthread_cond_init(&pool->work, NULL) == 0);
	CHECK(pthread_cond_init(&pool->start, NULL) == 0);
	pool->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pool->event_fd < 0) {
		error = err_origin(-errno);
		pool_release(pool);
		return error;
	}
	pool->watch = io_new(loop, pool->event_fd, IO_READ, on_completed, pool);
	error = workers_create(pool);
	if (error)
		error = err_origin(error);
	else if ((error = workers_await(pool)))
		error = err_trace(error);
	if (error) {
		pool_free(pool);
		return error;
	}
	*out = pool;
	return 0;
}

int pool_submit(struct pool *pool, struct pool_job *job)
{
	bool is_full;

	if (pool->is_closing)
		return POOL_E_FULL;
	pthread_mutex_lock(&pool->mutex);
	is_full = pool->unfinished >= pool->options.queue_max + pool->options.workers;
	if (!is_full) {
		pool->unfinished++;
		list_add_tail(&pool->waiting, &job->link);
		pthread_cond_signal(&pool->work);
	}
	pthread_mutex_unlock(&pool->mutex);
	if (is_full)
		return POOL_E_FULL;
	pool->outstanding++;
	return 0;
}

void pool_free(struct pool *pool)
{
	if (!pool)
		return;
	CHECK(!pool->is_closing);
	pool->is_closing = true;
	workers_join(pool);
	ready_fetch(pool);
	while (!list_is_empty(&pool->ready))
		ready_finish_one(pool);
	io_free(pool->watch);
	close(pool->event_fd);
	loop_free_later(pool->loop, pool_release, pool);
}

unsigned pool_queued(const struct pool *pool)
{
	return pool->outstanding;
}
