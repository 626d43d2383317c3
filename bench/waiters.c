/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waiters - question (d): what does a judicator alone do with so many executors?
 *
 *   bench-waiters IP:PORT SECRET_FILE PID EXECUTORS TASKS
 *
 * EXECUTORS simulated executors of SLOTS slots each speak the report protocol over HTTP from this process, a connection each, with the
 * judicator at IP:PORT (PID: its service process), on an empty store. What is given to one is completed by its next report.
 *
 *   memory    proportional set size of the judicator with all of them waiting, less that before they came
 *   latency   Add -> assign: from the call of `add` to the arrival of the task at an executor, one task at a time, all others waiting
 *   rate      TASKS tasks, added by ADDERS clients as fast as they are answered: each is durably added, claimed and completed
 *
 * Prints lines "name value": us, bytes, assignments a second.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/timer.h"
#include "rpc/rpc_client.h"

#define SLOTS 4
#define ADDERS 64
#define REGISTERING 64
#define A_TRANSPORT 128 /* executors on one: a transport keeps at most 256 connections an address */
#define WAIT_MS 60000
#define LATENCIES 500
#define ASK_AGAIN_US (20 * US_PER_MS)
#define RESULT "{\"verdict\":\"accepted\",\"cases\":[{\"verdict\":\"accepted\",\"cpu_us\":1000}]}"

struct bench;

struct executor {
	struct bench *bench;
	struct transport *transport;
	struct op *op;
	char name[16];
	struct msg_register_request hello;
	struct msg_report_request report;
	struct msg_complete_item done[SLOTS];
};

struct adder {
	struct bench *bench;
	struct op *op;
	struct msg_add_request request;
};

struct bench {
	struct loop *loop;
	const char *address;
	struct transport *transport, **transports;
	unsigned n_executors, n_transports, n_greeted, n_registered, n_waiting;
	struct executor *executors;
	struct str language;
	struct adder adders[ADDERS];
	uint64_t to_add, assigned, accepted;
	int64_t added_us; /* latency: when the task under way was added */
	double latencies[LATENCIES];
	unsigned n_latencies;
	struct op *op; /* of the questions how many wait */
	struct timer ask;
};

static void die(const char *what, const char *why)
{
	fprintf(stderr, "bench-waiters: %s: %s\n", what, why);
	exit(1);
}

static void must_call(struct bench *b, struct transport *transport, enum rpc_method method,
	const void *request, int64_t wait_us, rpc_answer_fn *cb, void *arg, struct op **op)
{
	int r = rpc_call(b->loop, transport, b->address, method, request, wait_us, cb, arg, op);

	if (r)
		die(rpc_methods[method].name, strerror(-r));
}

static void must_answer(const char *what, const struct rpc_answer *answer)
{
	if (answer->failure != RPC_OK)
		die(what, answer->problem.code[0] ? answer->problem.code
						  : rpc_failure_name(answer->failure));
}

/* --- an executor --- */

static void executor_report(struct executor *e);

static void note_latency(struct bench *b)
{
	if (b->added_us && b->n_latencies < LATENCIES)
		b->latencies[b->n_latencies++] = (double)(clock_boot_us() - b->added_us);
	b->added_us = 0;
}

static void on_report(void *arg, struct rpc_answer *answer)
{
	struct executor *e = arg;
	const struct msg_report_reply *reply = answer->reply;

	e->op = NULL;
	must_answer("report", answer);
	if (reply->fenced || reply->accepted.count != e->report.complete.count ||
		reply->assign.count > SLOTS)
		die("report", "was not accepted as a whole");
	e->bench->accepted += reply->accepted.count;
	e->bench->assigned += reply->assign.count;
	e->report.complete.count = reply->assign.count;
	for (size_t i = 0; i < reply->assign.count; i++) {
		const struct msg_assign_item *a =
			codec_item(reply->assign, struct msg_assign_item, i);

		e->done[i].id = a->id;
		e->done[i].attempt = a->attempt;
		note_latency(e->bench);
	}
	e->report.acked = e->report.seq;
	executor_report(e);
}

static void executor_report(struct executor *e)
{
	e->report.seq++;
	must_call(e->bench, e->transport, RPC_report, &e->report, WAIT_MS * US_PER_MS, on_report, e,
		&e->op);
}

static void executor_register(struct executor *e);

static void on_registered(void *arg, struct rpc_answer *answer)
{
	struct executor *e = arg;
	struct bench *b = e->bench;
	const struct msg_register_reply *reply = answer->reply;

	e->op = NULL;
	must_answer("register", answer);
	if (reply->conflict)
		die("register", "the store is not empty");
	e->report.epoch = reply->epoch;
	b->n_registered++;
	executor_report(e);
	if (b->n_greeted < b->n_executors)
		executor_register(&b->executors[b->n_greeted++]);
}

static void executor_register(struct executor *e)
{
	must_call(e->bench, e->transport, RPC_register, &e->hello, 0, on_registered, e, &e->op);
}

static void executor_init(struct bench *b, unsigned i)
{
	struct executor *e = &b->executors[i];

	e->bench = b;
	e->transport = b->transports[i / A_TRANSPORT];
	snprintf(e->name, sizeof(e->name), "bench%u", i);
	e->hello.executor = e->report.executor = str_from(e->name);
	e->report.languages = (struct codec_list){&b->language, 1};
	e->report.vacant = e->report.slots = SLOTS;
	e->report.wait_ms = WAIT_MS;
	e->report.complete.items = e->done;
	for (unsigned k = 0; k < SLOTS; k++) {
		e->done[k].status = STR("success");
		e->done[k].verdict = STR("accepted");
		e->done[k].result.text = STR(RESULT);
	}
}

/* --- adding --- */

static void adder_next(struct adder *a);

static void on_added(void *arg, struct rpc_answer *answer)
{
	struct adder *a = arg;

	a->op = NULL;
	must_answer("add", answer);
	adder_next(a);
}

static void adder_next(struct adder *a)
{
	struct bench *b = a->bench;

	if (!b->to_add)
		return;
	b->to_add--;
	a->request.id = id_make((uint32_t)(loop_wall_us(b->loop) / US_PER_S), loop_random(b->loop));
	must_call(b, b->transport, RPC_add, &a->request, 0, on_added, a, &a->op);
}

/* Adds n by `adders` at the same time, and turns until all are given and their results accepted. */
static void run_tasks(struct bench *b, uint64_t n, unsigned adders)
{
	uint64_t until = b->accepted + n;

	b->to_add = n;
	for (unsigned i = 0; i < adders; i++)
		adder_next(&b->adders[i]);
	while (b->accepted < until)
		loop_turn(b->loop, US_PER_S);
}

/* --- how many wait, as the judicator sees it --- */

static void on_listed(void *arg, struct rpc_answer *answer)
{
	struct bench *b = arg;
	const struct msg_executors_reply *reply = answer->reply;

	b->op = NULL;
	must_answer("executors", answer);
	b->n_waiting = 0;
	for (size_t i = 0; i < reply->executors.count; i++)
		b->n_waiting +=
			codec_item(reply->executors, struct msg_executor_view, i)->vacant == SLOTS;
	timer_start(&b->ask, ASK_AGAIN_US);
}

static void on_ask(void *arg)
{
	static const struct msg_executors_request all = {.dead = false};
	struct bench *b = arg;

	if (b->n_waiting < b->n_executors)
		must_call(b, b->transport, RPC_executors, &all, 0, on_listed, b, &b->op);
}

/* Proportional set size of a process in bytes. */
static double pss_of(long pid)
{
	char path[64], line[256];
	unsigned long long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%ld/smaps_rollup", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f) && sscanf(line, "Pss: %llu", &kib) != 1)
		continue;
	if (f)
		fclose(f);
	if (!kib)
		die(path, "cannot be read");
	return (double)kib * 1024;
}

static void all_wait(struct bench *b)
{
	for (unsigned i = 0; i < REGISTERING && b->n_greeted < b->n_executors; i++)
		executor_register(&b->executors[b->n_greeted++]);
	while (b->n_registered < b->n_executors)
		loop_turn(b->loop, US_PER_S);
	on_ask(b);
	while (b->n_waiting < b->n_executors)
		loop_turn(b->loop, US_PER_S);
}

/* --- main --- */

static void measure(struct bench *b, long pid, unsigned tasks)
{
	double pss = pss_of(pid), cpu;
	int64_t begun;

	all_wait(b);
	printf("waiters%u_bytes %.0f\nwaiters%u_all_bytes %.0f\n", b->n_executors,
		(pss_of(pid) - pss) / b->n_executors, b->n_executors, pss_of(pid));
	for (unsigned i = 0; i < LATENCIES; i++) {
		b->added_us = clock_boot_us();
		run_tasks(b, 1, 1);
	}
	printf("waiters%u_assign_p50 %.0f\nwaiters%u_assign_p99 %.0f\n", b->n_executors,
		bench_quantile(b->latencies, b->n_latencies, 500), b->n_executors,
		bench_quantile(b->latencies, b->n_latencies, 990));
	begun = clock_boot_us();
	cpu = bench_cpu_us(pid);
	run_tasks(b, tasks, ADDERS);
	printf("waiters%u_rate %.0f\nwaiters%u_cpu %.1f\n", b->n_executors,
		(double)tasks * 1e6 / (double)(clock_boot_us() - begun), b->n_executors,
		(bench_cpu_us(pid) - cpu) / tasks);
}

static void open_all(struct bench *b, const char *secret_file)
{
	b->loop = loop_new(NULL);
	b->language = STR("cpp");
	timer_init(&b->ask, b->loop, on_ask, b);
	b->n_transports = (b->n_executors + A_TRANSPORT - 1) / A_TRANSPORT;
	b->transports = mem_array(b->n_transports, sizeof(struct transport *));
	b->executors = mem_array(b->n_executors, sizeof(*b->executors));
	b->transport = bench_transport(b->loop, secret_file);
	for (unsigned i = 0; i < b->n_transports; i++)
		b->transports[i] = bench_transport(b->loop, secret_file);
	for (unsigned i = 0; i < b->n_executors; i++)
		executor_init(b, i);
	for (unsigned i = 0; i < ADDERS; i++) {
		b->adders[i].bench = b;
		b->adders[i].request = (struct msg_add_request){.language = b->language,
			.user = STR("bench"),
			.doc.text = STR("{\"language\":\"cpp\",\"source\":\"int main(){}\"}")};
	}
}

static void close_all(struct bench *b)
{
	timer_stop(&b->ask);
	op_cancel(&b->op);
	for (unsigned i = 0; i < ADDERS; i++)
		op_cancel(&b->adders[i].op);
	for (unsigned i = 0; i < b->n_executors; i++)
		op_cancel(&b->executors[i].op);
	for (unsigned i = 0; i < b->n_transports; i++)
		b->transports[i]->ops->free(b->transports[i]);
	b->transport->ops->free(b->transport);
	loop_free(b->loop);
	free(b->transports);
	free(b->executors);
}

int main(int argc, char **argv)
{
	static struct bench b;
	unsigned pid, tasks;

	pid = argc == 6 ? bench_number(argv[3], INT32_MAX) : 0;
	b.n_executors = argc == 6 ? bench_number(argv[4], 1000000) : 0;
	tasks = argc == 6 ? bench_number(argv[5], 100000000) : 0;
	if (!pid || !b.n_executors || !tasks) {
		fprintf(stderr, "usage: bench-waiters IP:PORT SECRET_FILE PID EXECUTORS TASKS\n");
		return 2;
	}
	b.address = argv[1];
	bench_raise_files();
	open_all(&b, argv[2]);
	measure(&b, pid, tasks);
	close_all(&b);
	return 0;
}
