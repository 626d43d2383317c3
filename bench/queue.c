/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue - question (e): what does a task cost while a thousand, a hundred thousand, a million others wait?
 *
 *   bench-queue DIR ROUNDS [LENGTH ...]
 *
 * For each length (1000, 100000, 1000000) a store is filled with so many tasks in all languages. Then rounds alternate between the
 * stores: ROUND_TASKS times a task is added, and one is claimed and completed, by EXECUTORS who each report as soon as they are answered,
 * so the length stays as it is. The cost of a task is what this process needs for all three, CPU and wall time.
 * Prints lines "name value": medians over the rounds in us a task; ratios are to the shortest queue in the same round.
 */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "bench/bench.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/judicator/store/store.h"

#define ROUNDS_MAX 1000
#define ROUND_TASKS 2000
#define EXECUTORS 32
#define FILLING 1024 /* adds under way while a store is filled */
#define LENGTHS_MAX 8
#define DOC_BYTES 512
#define RESULT                                                                                     \
	"{\"verdict\":\"accepted\",\"cases\":[{\"verdict\":\"accepted\",\"cpu_us\":1000,"          \
	"\"stdout\":\"3\\n\"}]}"

static const char *const languages[] = {"bash", "c", "cpp", "csharp", "go", "java", "javascript",
	"lua", "pascal", "php", "python", "ruby", "rust"};

struct queue;

struct executor {
	struct queue *queue;
	char name[8];
	struct msg_report_request report;
	struct msg_complete_item done; /* what it holds; none while report.complete.count is 0 */
};

struct queue {
	struct loop *loop;
	struct store *store;
	unsigned length;
	struct str offered[ARRAY_SIZE(languages)];
	char doc[DOC_BYTES + 1];
	struct executor executors[EXECUTORS];
	unsigned to_add, to_judge, open; /* left of this round, and verbs under way */
	double cpu[ROUNDS_MAX], wall[ROUNDS_MAX];
};

static void die(const char *what, const char *why)
{
	fprintf(stderr, "bench-queue: %s: %s\n", what, why);
	exit(1);
}

/* --- adding --- */

struct adding {
	struct queue *queue;
	struct msg_add_request request;
};

static void add_next(struct adding *a);

static void on_added(void *arg, enum store_status status, const struct msg_add_reply *reply)
{
	struct adding *a = arg;

	(void)reply;
	if (status != STORE_OK)
		die("add", "was refused");
	a->queue->open--;
	add_next(a);
}

/* Ends with the round. */
static void add_next(struct adding *a)
{
	struct queue *q = a->queue;

	if (!q->to_add) {
		free(a);
		return;
	}
	q->to_add--;
	q->open++;
	a->request.id = id_make((uint32_t)(loop_wall_us(q->loop) / US_PER_S), loop_random(q->loop));
	a->request.language = q->offered[loop_random_below(q->loop, ARRAY_SIZE(languages))];
	q->store->ops->add(q->store, &a->request, on_added, a);
}

static void add_start(struct queue *q, unsigned under_way)
{
	for (unsigned i = 0; i < under_way; i++) {
		struct adding *a = mem_alloc(sizeof(*a));

		a->queue = q;
		a->request.user = STR("bench");
		a->request.doc.text = (struct str){q->doc, DOC_BYTES};
		add_next(a);
	}
}

/* --- judging --- */

static void report_next(struct executor *e);

static void on_reported(void *arg, const struct store_report *report)
{
	struct executor *e = arg;
	struct queue *q = e->queue;

	q->open--;
	if (report->status != STORE_OK || report->reply.accepted.count != e->report.complete.count)
		die("report", "was not accepted");
	e->report.complete.count = 0;
	e->report.acked = e->report.seq;
	if (report->reply.assign.count) {
		const struct msg_assign_item *a =
			codec_item(report->reply.assign, struct msg_assign_item, 0);

		e->done.id = a->id;
		e->done.attempt = a->attempt;
		e->report.complete.count = 1;
	}
	report_next(e);
}

/* Reports what it has done and takes another, until the round's tasks are taken and all results told. */
static void report_next(struct executor *e)
{
	struct queue *q = e->queue;

	e->report.vacant = q->to_judge ? 1 : 0;
	q->to_judge -= e->report.vacant;
	if (!e->report.vacant && !e->report.complete.count)
		return;
	e->report.seq++;
	q->open++;
	q->store->ops->report(q->store, &e->report, REPORT_FRESH, on_reported, e);
}

static void on_enrolled(void *arg, enum store_status status, const struct msg_register_reply *reply)
{
	struct executor *e = arg;

	if (status != STORE_OK || reply->conflict)
		die("register", "was refused");
	e->report.epoch = reply->epoch;
	e->queue->open--;
}

/* --- a queue --- */

static void wait_for_all(struct queue *q)
{
	while (q->open)
		loop_turn(q->loop, US_PER_S);
}

static void executors_init(struct queue *q)
{
	for (unsigned i = 0; i < EXECUTORS; i++) {
		struct executor *e = &q->executors[i];

		e->queue = q;
		snprintf(e->name, sizeof(e->name), "e%u", i);
		e->done.status = STR("success");
		e->done.verdict = STR("accepted");
		e->done.result.text = STR(RESULT);
		e->report.executor = str_from(e->name);
		e->report.languages = (struct codec_list){q->offered, ARRAY_SIZE(languages)};
		e->report.complete.items = &e->done;
		q->open++;
		q->store->ops->enroll(q->store, e->report.executor, 0, on_enrolled, e);
	}
	wait_for_all(q);
}

static struct queue *queue_new(struct loop *loop, const char *dir, unsigned length)
{
	struct queue *q = mem_alloc(sizeof(*q));
	char *path cleanup(mem_freep) = mem_printf("%s/queue%u", dir, length);
	struct store_options options = {.dir = path, .max_retries = 3};
	int64_t begun;

	q->loop = loop;
	q->length = length;
	for (size_t i = 0; i < ARRAY_SIZE(languages); i++)
		q->offered[i] = str_from(languages[i]);
	memset(q->doc, 'x', DOC_BYTES);
	q->doc[0] = q->doc[DOC_BYTES - 1] = '"';
	if (mkdir(path, 0700) || store_sqlite.open(loop, &options, &q->store))
		die(path, "no store can be opened there: it must be new");
	executors_init(q);
	begun = clock_boot_us();
	q->to_add = length;
	add_start(q, length < FILLING ? length : FILLING);
	wait_for_all(q);
	printf("queue%u_fill %.0f\n", length,
		(double)length * 1e6 / (double)(clock_boot_us() - begun));
	return q;
}

static double own_cpu_us(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void round_run(struct queue *q, unsigned number)
{
	int64_t begun = clock_boot_us();
	double cpu = own_cpu_us();

	q->to_add = q->to_judge = ROUND_TASKS;
	add_start(q, EXECUTORS);
	for (unsigned i = 0; i < EXECUTORS; i++)
		report_next(&q->executors[i]);
	wait_for_all(q);
	q->cpu[number] = (own_cpu_us() - cpu) / ROUND_TASKS;
	q->wall[number] = (double)(clock_boot_us() - begun) / ROUND_TASKS;
}

static void show(const struct queue *q, const struct queue *shortest, unsigned rounds)
{
	double cpu[ROUNDS_MAX], wall[ROUNDS_MAX], cpu_ratio[ROUNDS_MAX], wall_ratio[ROUNDS_MAX];

	for (unsigned i = 0; i < rounds; i++) {
		cpu[i] = q->cpu[i];
		wall[i] = q->wall[i];
		cpu_ratio[i] = q->cpu[i] / shortest->cpu[i];
		wall_ratio[i] = q->wall[i] / shortest->wall[i];
	}
	printf("queue%u_cpu %.1f\nqueue%u_wall %.1f\nqueue%u_cpu_ratio %.2f\nqueue%u_wall_ratio "
	       "%.2f\n",
		q->length, bench_quantile(cpu, rounds, 500), q->length,
		bench_quantile(wall, rounds, 500), q->length,
		bench_quantile(cpu_ratio, rounds, 500), q->length,
		bench_quantile(wall_ratio, rounds, 500));
}

/* The lengths asked for; 0 = one of them is none. */
static unsigned read_lengths(char **texts, unsigned n, unsigned out[LENGTHS_MAX])
{
	for (unsigned i = 0; i < n; i++) {
		out[i] = n <= LENGTHS_MAX ? bench_number(texts[i], 100000000) : 0;
		if (!out[i])
			return 0;
	}
	return n;
}

int main(int argc, char **argv)
{
	unsigned lengths[LENGTHS_MAX] = {1000, 100000, 1000000};
	unsigned rounds = argc >= 3 ? bench_number(argv[2], ROUNDS_MAX) : 0;
	unsigned n = argc > 3 ? read_lengths(argv + 3, (unsigned)argc - 3, lengths) : 3;
	struct queue *queues[LENGTHS_MAX];
	struct loop *loop;

	if (!rounds || !n) {
		fprintf(stderr, "usage: bench-queue DIR ROUNDS [LENGTH ...]\n");
		return 2;
	}
	loop = loop_new(NULL);
	for (unsigned i = 0; i < n; i++)
		queues[i] = queue_new(loop, argv[1], lengths[i]);
	for (unsigned round = 0; round < rounds; round++) {
		for (unsigned i = 0; i < n; i++)
			round_run(queues[i], round);
	}
	for (unsigned i = 0; i < n; i++)
		show(queues[i], queues[0], rounds);
	for (unsigned i = 0; i < n; i++) {
		queues[i]->store->ops->close(queues[i]->store);
		free(queues[i]);
	}
	loop_free(loop);
	return 0;
}
