/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics - theory of operation
 *
 * Counters, and the page that shows them in Prometheus's text format (0.0.4). A metric is a row of `rows`: name, type, help, and who
 * writes its samples.
 *
 * Workers share a port, so a scrape meets any of them: the page is about all. Each worker counts in its slot of the shared memory
 * (shared.c), and whoever is asked adds the slots up. Counters so begin at zero with the service, not with a worker. What is counted
 * elsewhere (turns of the loop, the cache) or is only so now (clients that wait) goes to the slot every PUBLISH_US, and before a page.
 *
 *     GET /metrics --ping--> judicator --executors--> judicator --> the page
 *
 * What is not ours to know, how many tasks are pending and which executors there are, is asked at each scrape. When nobody answers, those
 * rows have no samples and conclave_judicator_up is 0: a scrape itself never fails for that.
 *
 * Requests are counted by the row of the routes table, not by the path that was sent, so no client can make a new series.
 */
#include "roles/gateway/gateway_int.h"

#include <inttypes.h>

#include "reactor/base/mem.h"
#include "rpc/task/verdict.h"

#define SCRAPE_BUDGET_US (2 * US_PER_S)
#define PUBLISH_US (1 * US_PER_S)
#define TYPE_METRICS "text/plain; version=0.0.4; charset=utf-8"

static const int statuses[METRICS_STATUSES - 1] = {200, 201, 204, 400, 401, 403, 404, 405, 408, 409,
	413, 415, 422, 429, 501, 502, 503, 505, 507};
static const int64_t bounds_us[METRICS_BUCKETS - 1] = {1000, 2500, 5000, 10000, 25000, 50000,
	100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000, 30000000};

/* --- counting ---------------------------------------------------------------------------------------------------- */

static unsigned status_index(int status)
{
	unsigned i = 0;

	while (i < ARRAY_SIZE(statuses) && statuses[i] != status)
		i++;
	return i;
}

static unsigned bucket_index(int64_t us)
{
	unsigned i = 0;

	while (i < ARRAY_SIZE(bounds_us) && us > bounds_us[i])
		i++;
	return i;
}

void metrics_request(struct gateway *g, unsigned route, int status, int64_t us)
{
	struct metrics_route *m = &g->metrics->routes[route];

	metrics_add(&m->statuses[status_index(status)], 1);
	metrics_add(&m->buckets[bucket_index(us)], 1);
	metrics_add(&m->us, (uint64_t)us);
}

void metrics_verdict(struct gateway *g, const struct msg_task_view *task)
{
	enum verdict verdict;

	if (verdict_parse(task->verdict, &verdict))
		metrics_add(&g->metrics->verdicts[verdict], 1);
}

void metrics_call(struct gateway *g, enum rpc_method method, enum rpc_failure failure)
{
	metrics_add(&g->metrics->calls[method][failure], 1);
}

/* total has grown since *told. */
static void publish_more(uint64_t *word, uint64_t *told, uint64_t total)
{
	metrics_add(word, total - *told);
	*told = total;
}

static void publish(struct gateway *g)
{
	struct metrics_slot *slot = shared_slot(g->shared, g->slot);
	struct loop_stats stats;

	loop_get_stats(g->loop, &stats);
	publish_more(&g->metrics->turns, &g->publish.turns, stats.turns);
	publish_more(&g->metrics->slow_turns, &g->publish.slow_turns, stats.slow_turns);
	for (unsigned i = 0; i < 2; i++)
		publish_more(&g->metrics->done_cache[i], &g->publish.done_cache[i],
			g->done_cache.asked[i]);
	if ((uint64_t)stats.longest_turn_us > slot->longest_turn_us)
		metrics_set(&slot->longest_turn_us, (uint64_t)stats.longest_turn_us);
	metrics_set(&slot->now.waiting, g->waiters.count);
	metrics_set(&slot->now.body_bytes, g->server ? http_server_body_bytes(g->server) : 0);
	metrics_set(&slot->now.done_cache_bytes, g->done_cache.bytes);
}

static void on_publish(void *arg)
{
	struct gateway *g = arg;

	publish(g);
	timer_start(&g->publish.timer, PUBLISH_US);
}

void metrics_slot_clear_now(struct metrics_slot *slot)
{
	metrics_set(&slot->now.waiting, 0);
	metrics_set(&slot->now.body_bytes, 0);
	metrics_set(&slot->now.done_cache_bytes, 0);
}

/* --- adding up ------------------------------------------------------------------------------------------------------- */

static void add_words(void *sum, const void *from, size_t size)
{
	const uint64_t *word = from;
	uint64_t *out = sum;

	for (size_t i = 0; i < size / sizeof(*word); i++)
		out[i] += __atomic_load_n(&word[i], __ATOMIC_RELAXED);
}

/* Of all workers. */
static void add_up(const struct shared *shared, struct metrics_slot *sum)
{
	for (unsigned i = 0; i < shared_n_slots(shared); i++) {
		const struct metrics_slot *slot = shared_slot(shared, i);
		uint64_t longest = __atomic_load_n(&slot->longest_turn_us, __ATOMIC_RELAXED);

		add_words(&sum->metrics, &slot->metrics, sizeof(sum->metrics));
		add_words(&sum->now, &slot->now, sizeof(sum->now));
		if (longest > sum->longest_turn_us)
			sum->longest_turn_us = longest;
	}
}

/* --- the page ------------------------------------------------------------------------------------------------------ */

struct page {
	struct gateway *g;
	const struct visit *v;
	struct buf *out;
	const char *name; /* of the metric being written */
	struct metrics_slot *sum;
};

static void write_labels_of(struct page *p, const char *suffix, unsigned route)
{
	const struct gateway_route *row = gateway_route_at(route);

	buf_addf(p->out, "%s%s{method=\"%s\",route=\"%s\"", p->name, suffix,
		row ? http_method_name(row->method) : "", row ? row->path : "other");
}

static void write_requests(struct page *p)
{
	for (unsigned route = 0; route <= p->g->n_routes; route++) {
		const struct metrics_route *m = &p->sum->metrics.routes[route];

		for (unsigned i = 0; i < METRICS_STATUSES; i++) {
			if (!m->statuses[i])
				continue;
			write_labels_of(p, "", route);
			if (i < ARRAY_SIZE(statuses))
				buf_addf(p->out, ",status=\"%d\"}", statuses[i]);
			else
				buf_addf(p->out, ",status=\"other\"}");
			buf_addf(p->out, " %" PRIu64 "\n", m->statuses[i]);
		}
	}
}

static void write_seconds(struct page *p)
{
	for (unsigned route = 0; route <= p->g->n_routes; route++) {
		const struct metrics_route *m = &p->sum->metrics.routes[route];
		uint64_t n = 0;

		for (unsigned i = 0; i < ARRAY_SIZE(bounds_us); i++) {
			n += m->buckets[i];
			write_labels_of(p, "_bucket", route);
			buf_addf(p->out, ",le=\"%g\"} %" PRIu64 "\n",
				(double)bounds_us[i] / US_PER_S, n);
		}
		n += m->buckets[ARRAY_SIZE(bounds_us)];
		write_labels_of(p, "_bucket", route);
		buf_addf(p->out, ",le=\"+Inf\"} %" PRIu64 "\n", n);
		write_labels_of(p, "_sum", route);
		buf_addf(p->out, "} %.6f\n", (double)m->us / US_PER_S);
		write_labels_of(p, "_count", route);
		buf_addf(p->out, "} %" PRIu64 "\n", n);
	}
}

static void write_adds(struct page *p)
{
	buf_addf(p->out, "%s{created=\"yes\"} %" PRIu64 "\n%s{created=\"no\"} %" PRIu64 "\n",
		p->name, p->sum->metrics.adds[1], p->name, p->sum->metrics.adds[0]);
}

static void write_verdicts(struct page *p)
{
	for (unsigned i = VERDICT_NONE + 1; i < VERDICT_N; i++)
		buf_addf(p->out, "%s{verdict=\"%s\"} %" PRIu64 "\n", p->name,
			verdict_name((enum verdict)i), p->sum->metrics.verdicts[i]);
}

static void write_calls(struct page *p)
{
	for (unsigned method = 0; method < RPC_METHOD_N; method++) {
		for (unsigned failure = 0; failure < METRICS_FAILURES; failure++) {
			uint64_t n = p->sum->metrics.calls[method][failure];

			if (n)
				buf_addf(p->out, "%s{method=\"%s\",result=\"%s\"} %" PRIu64 "\n",
					p->name, rpc_methods[method].name,
					rpc_failure_name((enum rpc_failure)failure), n);
		}
	}
}

static void write_limited(struct page *p)
{
	buf_addf(p->out, "%s{limit=\"open\"} %" PRIu64 "\n%s{limit=\"rate\"} %" PRIu64 "\n",
		p->name, p->sum->metrics.limited[METRICS_OPEN], p->name,
		p->sum->metrics.limited[METRICS_RATE]);
}

static void write_done_cache(struct page *p)
{
	const uint64_t *asked = p->sum->metrics.done_cache;

	buf_addf(p->out, "%s{result=\"hit\"} %" PRIu64 "\n%s{result=\"miss\"} %" PRIu64 "\n",
		p->name, asked[1], p->name, asked[0]);
}

static void write_number(struct page *p, double value)
{
	buf_addf(p->out, "%s %.15g\n", p->name, value);
}

static void write_waiting(struct page *p)
{
	write_number(p, (double)p->sum->now.waiting);
}

static void write_body_bytes(struct page *p)
{
	write_number(p, (double)p->sum->now.body_bytes);
}

static void write_done_cache_bytes(struct page *p)
{
	write_number(p, (double)p->sum->now.done_cache_bytes);
}

static void write_build(struct page *p)
{
	buf_addf(p->out, "%s{version=\"%s\"} 1\n", p->name, CONCLAVE_VERSION);
}

static void write_turns(struct page *p)
{
	write_number(p, (double)p->sum->metrics.turns);
}

static void write_slow_turns(struct page *p)
{
	write_number(p, (double)p->sum->metrics.slow_turns);
}

static void write_longest_turn(struct page *p)
{
	write_number(p, (double)p->sum->longest_turn_us / US_PER_S);
}

static void write_workers(struct page *p)
{
	write_number(p, __builtin_popcountll(shared_live(p->g->shared)));
}

static void write_worker_restarts(struct page *p)
{
	write_number(p, (double)shared_restarts(p->g->shared));
}

static void write_up(struct page *p)
{
	write_number(p, p->v->scrape.is_up);
}

static void write_pending(struct page *p)
{
	if (p->v->scrape.is_up)
		write_number(p, (double)p->v->scrape.pending);
}

static void write_executors(struct page *p)
{
	if (p->v->scrape.is_up)
		buf_addf(p->out, "%s{state=\"alive\"} %u\n%s{state=\"dead\"} %u\n", p->name,
			p->v->scrape.alive, p->name, p->v->scrape.dead);
}

static const struct {
	const char *name, *type, *help;
	void (*write)(struct page *p);
} rows[] = {
	{"conclave_build_info", "gauge", "The version of this gateway.", write_build},
	{"conclave_executors", "gauge", "Executors known to the judicator.", write_executors},
	{"conclave_gateway_adds_total", "counter",
		"Submissions taken; created=no: repeated with the same Idempotency-Key.",
		write_adds},
	{"conclave_gateway_body_bytes", "gauge", "Memory that request bodies hold.",
		write_body_bytes},
	{"conclave_gateway_done_cache_bytes", "gauge",
		"Memory that kept answers about done tasks hold.", write_done_cache_bytes},
	{"conclave_gateway_done_cache_total", "counter",
		"Reads of a task; hit: answered without a judicator.", write_done_cache},
	{"conclave_gateway_judicator_calls_total", "counter",
		"Calls of judicators, by method and what came of them.", write_calls},
	{"conclave_gateway_limited_total", "counter",
		"Requests refused since a token's rate or its user's open tasks are used up.",
		write_limited},
	{"conclave_gateway_loop_longest_turn_seconds", "gauge", "The longest turn of the loop.",
		write_longest_turn},
	{"conclave_gateway_loop_slow_turns_total", "counter", "Turns of the loop over 20 ms.",
		write_slow_turns},
	{"conclave_gateway_loop_turns_total", "counter", "Turns of the loop.", write_turns},
	{"conclave_gateway_request_seconds", "histogram",
		"Time from a whole request to its answer, waiting included.", write_seconds},
	{"conclave_gateway_requests_total", "counter",
		"Requests answered; route=other: refused before one was found, also by size, time "
		"or form.",
		write_requests},
	{"conclave_gateway_verdicts_total", "counter", "Verdicts of tasks that clients waited for.",
		write_verdicts},
	{"conclave_gateway_waiting_clients", "gauge", "Clients that wait for a task.",
		write_waiting},
	{"conclave_gateway_worker_restarts_total", "counter",
		"Web workers that ended and were started again.", write_worker_restarts},
	{"conclave_gateway_workers", "gauge", "Web workers that serve.", write_workers},
	{"conclave_judicator_up", "gauge", "Whether a judicator answered this scrape.", write_up},
	{"conclave_tasks_pending", "gauge", "Tasks that wait for an executor.", write_pending},
};

static void reply_page(struct visit *v)
{
	struct buf body cleanup(buf_fini) = BUF_INIT;
	struct page page = {.g = v->g, .v = v, .out = &body, .sum = mem_alloc(sizeof(*page.sum))};

	publish(v->g);
	add_up(v->g->shared, page.sum);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		page.name = rows[i].name;
		buf_addf(&body, "# HELP %s %s\n# TYPE %s %s\n", rows[i].name, rows[i].help,
			rows[i].name, rows[i].type);
		rows[i].write(&page);
	}
	free(page.sum);
	visit_reply(v, 200, TYPE_METRICS, buf_str(&body));
}

/* --- a scrape ------------------------------------------------------------------------------------------------------- */

static void on_executors(void *arg, struct rpc_answer *answer)
{
	struct visit *v = arg;
	const struct msg_executors_reply *reply = answer->reply;

	v->scrape.is_up = answer->failure == RPC_OK;
	for (size_t i = 0; v->scrape.is_up && i < reply->executors.count; i++) {
		if (codec_item(reply->executors, struct msg_executor_view, i)->dead)
			v->scrape.dead++;
		else
			v->scrape.alive++;
	}
	reply_page(v);
}

static void on_ping(void *arg, struct rpc_answer *answer)
{
	struct visit *v = arg;

	if (answer->failure != RPC_OK) {
		reply_page(v);
		return;
	}
	v->scrape.pending = ((const struct msg_ping_reply *)answer->reply)->pending;
	v->request.executors = (struct msg_executors_request){.dead = true};
	ask_start(&v->ask, v->g, RPC_executors, &v->request.executors, SCRAPE_BUDGET_US,
		on_executors, v);
}

void metrics_on_get(const struct route_match *match, struct http_request *http)
{
	struct visit *v = visit_new(match->arg, http);

	if (!v || !visit_is_plain(v))
		return;
	v->request.ping = (struct msg_ping_request){.from = STR_NULL};
	ask_start(&v->ask, v->g, RPC_ping, &v->request.ping, SCRAPE_BUDGET_US, on_ping, v);
}

/* --- life ------------------------------------------------------------------------------------------------------------ */

void metrics_init(struct gateway *g, unsigned n_routes)
{
	CHECK(n_routes < METRICS_ROUTES);
	g->metrics = &shared_slot(g->shared, g->slot)->metrics;
	timer_init(&g->publish.timer, g->loop, on_publish, g);
	if (shared_n_slots(g->shared) > 1)
		timer_start(&g->publish.timer, PUBLISH_US);
}

void metrics_fini(struct gateway *g)
{
	if (g->metrics)
		timer_stop(&g->publish.timer);
}
