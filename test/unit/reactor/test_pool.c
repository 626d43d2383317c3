/* SPDX-License-Identifier: Apache-2.0 */
/* pool: real threads; order, bound, resources, failures at start, and freeing with jobs in it. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/pool.h"
#include "reactor/timer.h"

/* A gate that jobs wait at, so that tests decide when a worker goes on. */
struct gate {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool open;
	unsigned arrived;
};

struct bench {
	struct loop *loop;
	struct pool *pool;
	struct gate gate;
	pthread_t loop_thread;
	unsigned done;
	unsigned done_order[4096];
	/* By workers, under the gate's mutex. */
	unsigned inits, run_order[4096], ran;
	int init_error_at; /* index whose init fails; -1 = none */
};

struct job {
	struct pool_job pool;
	struct bench *bench;
	unsigned number;
	bool waits;
	void *resource;
	bool ran;
};

static void gate_pass(struct gate *g)
{
	pthread_mutex_lock(&g->mutex);
	g->arrived++;
	pthread_cond_broadcast(&g->changed);
	while (!g->open)
		pthread_cond_wait(&g->changed, &g->mutex);
	pthread_mutex_unlock(&g->mutex);
}

static void gate_await(struct gate *g, unsigned arrived)
{
	pthread_mutex_lock(&g->mutex);
	while (g->arrived < arrived)
		pthread_cond_wait(&g->changed, &g->mutex);
	pthread_mutex_unlock(&g->mutex);
}

static void gate_open(struct gate *g)
{
	pthread_mutex_lock(&g->mutex);
	g->open = true;
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->mutex);
}

static int worker_init(void *arg, unsigned index, void **resource)
{
	struct bench *b = arg;

	if ((int)index == b->init_error_at)
		return -ENODEV;
	*resource = mem_alloc(1);
	pthread_mutex_lock(&b->gate.mutex);
	b->inits++;
	pthread_mutex_unlock(&b->gate.mutex);
	return 0;
}

static void worker_fini(void *resource)
{
	free(resource); /* ASan tells when it is not called, or twice */
}

static int bench_init(struct bench *b, unsigned workers, unsigned queue_max, int init_error_at)
{
	memset(b, 0, sizeof(*b));
	b->loop = loop_new(NULL);
	b->loop_thread = pthread_self();
	b->init_error_at = init_error_at;
	pthread_mutex_init(&b->gate.mutex, NULL);
	pthread_cond_init(&b->gate.changed, NULL);
	return pool_new(b->loop,
		&(struct pool_options){
			.name = "test",
			.workers = workers,
			.queue_max = queue_max,
			.worker_init = worker_init,
			.worker_fini = worker_fini,
			.arg = b,
		},
		&b->pool);
}

static void bench_fini(struct bench *b)
{
	loop_free(b->loop);
	pthread_cond_destroy(&b->gate.changed);
	pthread_mutex_destroy(&b->gate.mutex);
}

static void on_run(struct pool_job *pool_job, void *resource)
{
	struct job *job = container_of(pool_job, struct job, pool);
	struct bench *b = job->bench;

	job->resource = resource;
	job->ran = !pthread_equal(pthread_self(), b->loop_thread);
	pthread_mutex_lock(&b->gate.mutex);
	b->run_order[b->ran++] = job->number;
	pthread_mutex_unlock(&b->gate.mutex);
	if (job->waits)
		gate_pass(&b->gate);
}

static void on_done(struct pool_job *pool_job)
{
	struct job *job = container_of(pool_job, struct job, pool);
	struct bench *b = job->bench;

	assert_true(job->ran);
	assert_true(pthread_equal(pthread_self(), b->loop_thread));
	b->done_order[b->done++] = job->number;
	free(job); /* the caller's again */
}

static int submit(struct bench *b, unsigned number, bool waits)
{
	struct job *job = mem_alloc(sizeof(*job));
	int r;

	job->bench = b;
	job->number = number;
	job->waits = waits;
	job->pool.run = on_run;
	job->pool.done = on_done;
	r = pool_submit(b->pool, &job->pool);
	if (r)
		free(job);
	return r;
}

static void turn_until_done(struct bench *b, unsigned done)
{
	int64_t end = clock_boot_us() + 20 * US_PER_S;

	while (b->done < done && clock_boot_us() < end)
		loop_turn(b->loop, US_PER_S / 10);
	assert_int_equal(b->done, done);
}

static void test_new_waits_for_every_init(void **state)
{
	struct bench b;

	assert_int_equal(bench_init(&b, 4, 1, -1), 0);
	assert_int_equal(b.inits, 4);
	assert_int_equal(pool_queued(b.pool), 0);
	pool_free(b.pool);
	pool_free(NULL);
	bench_fini(&b);
}

static void test_init_failure_fails_new(void **state)
{
	for (int at = 0; at < 3; at++) {
		struct bench b;

		assert_int_equal(bench_init(&b, 3, 1, at), -ENODEV);
		assert_null(b.pool);
		bench_fini(&b);
	}
}

static void test_one_worker_keeps_the_order(void **state)
{
	enum { JOBS = 1000 };
	struct bench b;

	assert_int_equal(bench_init(&b, 1, JOBS, -1), 0);
	for (unsigned i = 0; i < JOBS; i++)
		assert_int_equal(submit(&b, i, false), 0);
	assert_int_equal(b.done, 0); /* never before the loop turns */
	assert_int_equal(pool_queued(b.pool), JOBS);
	turn_until_done(&b, JOBS);
	assert_int_equal(pool_queued(b.pool), 0);
	for (unsigned i = 0; i < JOBS; i++) {
		assert_int_equal(b.run_order[i], i);
		assert_int_equal(b.done_order[i], i);
	}
	pool_free(b.pool);
	bench_fini(&b);
}

static void test_many_workers_do_each_job_once(void **state)
{
	enum { JOBS = 4000 };
	struct bench b;
	unsigned char *seen = mem_alloc(JOBS);
	unsigned submitted = 0;

	assert_int_equal(bench_init(&b, 4, 16, -1), 0);
	while (submitted < JOBS) {
		int r = submit(&b, submitted, false);

		if (r == 0)
			submitted++;
		else
			loop_turn(b.loop, US_PER_S / 10);
	}
	turn_until_done(&b, JOBS);
	for (unsigned i = 0; i < JOBS; i++)
		seen[b.done_order[i]]++;
	for (unsigned i = 0; i < JOBS; i++)
		assert_int_equal(seen[i], 1);
	free(seen);
	pool_free(b.pool);
	bench_fini(&b);
}

static void test_full_queue_is_a_condition(void **state)
{
	struct bench b;

	assert_int_equal(bench_init(&b, 2, 3, -1), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(submit(&b, i, true), 0);
	gate_await(&b.gate, 2); /* both workers are busy */
	for (unsigned i = 2; i < 5; i++)
		assert_int_equal(submit(&b, i, false), 0);
	assert_int_equal(submit(&b, 5, false), POOL_E_FULL);
	assert_int_equal(submit(&b, 5, false), POOL_E_FULL);
	assert_int_equal(pool_queued(b.pool), 5);
	gate_open(&b.gate);
	turn_until_done(&b, 5);
	assert_int_equal(submit(&b, 6, false), 0); /* room again */
	turn_until_done(&b, 6);
	pool_free(b.pool);
	bench_fini(&b);
}

/* An idle worker that has not woken up yet must not make an empty queue look full. */
static void test_no_queue_still_takes_one_job_a_worker(void **state)
{
	struct bench b;

	assert_int_equal(bench_init(&b, 2, 0, -1), 0);
	assert_int_equal(submit(&b, 0, true), 0);
	assert_int_equal(submit(&b, 1, true), 0);
	assert_int_equal(submit(&b, 2, true), POOL_E_FULL);
	gate_open(&b.gate);
	turn_until_done(&b, 2);
	pool_free(b.pool);
	bench_fini(&b);
}

static void test_free_runs_what_is_queued(void **state)
{
	struct bench b;

	assert_int_equal(bench_init(&b, 2, 100, -1), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(submit(&b, i, true), 0);
	gate_await(&b.gate, 2);
	for (unsigned i = 2; i < 50; i++)
		assert_int_equal(submit(&b, i, false), 0);
	gate_open(&b.gate);
	pool_free(b.pool);
	assert_int_equal(b.done, 50);
	bench_fini(&b);
}

static void done_and_free_pool(struct pool_job *pool_job)
{
	struct job *job = container_of(pool_job, struct job, pool);
	struct bench *b = job->bench;

	on_done(pool_job);
	pool_free(take_ptr(&b->pool));
}

static void test_free_inside_done(void **state)
{
	struct bench b;
	struct job *first = mem_alloc(sizeof(*first));

	assert_int_equal(bench_init(&b, 1, 100, -1), 0);
	*first = (struct job){{.run = on_run, .done = done_and_free_pool}, .bench = &b};
	assert_int_equal(pool_submit(b.pool, &first->pool), 0);
	for (unsigned i = 1; i < 20; i++)
		assert_int_equal(submit(&b, i, false), 0);
	turn_until_done(&b, 20);
	assert_null(b.pool);
	loop_turn(b.loop, 0);
	bench_fini(&b);
}

static void done_and_submit(struct pool_job *pool_job)
{
	struct job *job = container_of(pool_job, struct job, pool);
	struct bench *b = job->bench;

	if (submit(b, job->number + 1, false) == POOL_E_FULL)
		b->done += 1000;
	on_done(pool_job);
}

/* A job that is submitted by a done() during pool_free() is refused, not lost in the pool. */
static void test_submit_while_closing_is_refused(void **state)
{
	struct bench b;
	struct job *job = mem_alloc(sizeof(*job));

	assert_int_equal(bench_init(&b, 1, 100, -1), 0);
	*job = (struct job){{.run = on_run, .done = done_and_submit}, .bench = &b};
	assert_int_equal(pool_submit(b.pool, &job->pool), 0);
	pool_free(b.pool);
	assert_int_equal(b.done, 1001);
	bench_fini(&b);
}

struct mask_job {
	struct pool_job pool;
	sigset_t mask;
	bool done;
};

static void run_mask(struct pool_job *job, void *resource)
{
	pthread_sigmask(SIG_SETMASK, NULL, &container_of(job, struct mask_job, pool)->mask);
}

static void done_mask(struct pool_job *job)
{
	container_of(job, struct mask_job, pool)->done = true;
}

static void test_workers_leave_signals_to_the_loop(void **state)
{
	struct mask_job job = {.pool = {.run = run_mask, .done = done_mask}};
	struct bench b;
	sigset_t mine;

	assert_int_equal(bench_init(&b, 1, 1, -1), 0);
	assert_int_equal(pool_submit(b.pool, &job.pool), 0);
	pool_free(b.pool);
	assert_true(job.done);
	assert_true(sigismember(&job.mask, SIGTERM));
	assert_true(sigismember(&job.mask, SIGUSR1));
	pthread_sigmask(SIG_SETMASK, NULL, &mine);
	assert_false(sigismember(&mine, SIGTERM));
	bench_fini(&b);
}

/* The loop goes on with other work while a job blocks. */
static void test_loop_never_waits_for_a_job(void **state)
{
	struct bench b;

	assert_int_equal(bench_init(&b, 1, 1, -1), 0);
	assert_int_equal(submit(&b, 0, true), 0);
	gate_await(&b.gate, 1);
	for (unsigned i = 0; i < 10; i++)
		loop_turn(b.loop, 0);
	assert_int_equal(b.done, 0);
	gate_open(&b.gate);
	turn_until_done(&b, 1);
	pool_free(b.pool);
	bench_fini(&b);
}

static void test_no_descriptor_left_fails_new(void **state)
{
	struct rlimit old, none;
	struct bench b;

	assert_int_equal(bench_init(&b, 1, 1, -1), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = (struct rlimit){3, old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	pool_free(b.pool);
	assert_int_equal(pool_new(b.loop, &(struct pool_options){.workers = 1}, &b.pool), -EMFILE);
	assert_null(b.pool);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	bench_fini(&b);
}

/* A fake loop waits for real descriptors in real time, and its own time stands still meanwhile. */
static void test_pool_on_a_fake_clock(void **state)
{
	struct bench b = {.loop_thread = pthread_self(), .init_error_at = -1};

	b.loop = loop_new(&(struct loop_options){.fake_clock = true});
	pthread_mutex_init(&b.gate.mutex, NULL);
	pthread_cond_init(&b.gate.changed, NULL);
	assert_int_equal(
		pool_new(b.loop, &(struct pool_options){.workers = 1, .queue_max = 1}, &b.pool), 0);
	assert_int_equal(submit(&b, 0, false), 0);
	turn_until_done(&b, 1);
	assert_int_equal(loop_now_us(b.loop), US_PER_S);
	pool_free(b.pool);
	bench_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_new_waits_for_every_init),
		cmocka_unit_test(test_init_failure_fails_new),
		cmocka_unit_test(test_one_worker_keeps_the_order),
		cmocka_unit_test(test_many_workers_do_each_job_once),
		cmocka_unit_test(test_full_queue_is_a_condition),
		cmocka_unit_test(test_no_queue_still_takes_one_job_a_worker),
		cmocka_unit_test(test_free_runs_what_is_queued),
		cmocka_unit_test(test_free_inside_done),
		cmocka_unit_test(test_submit_while_closing_is_refused),
		cmocka_unit_test(test_workers_leave_signals_to_the_loop),
		cmocka_unit_test(test_loop_never_waits_for_a_job),
		cmocka_unit_test(test_no_descriptor_left_fails_new),
		cmocka_unit_test(test_pool_on_a_fake_clock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
