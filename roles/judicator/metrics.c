/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a judicator tells Prometheus: of itself (calls, the store's work, who is held) from counters in memory, and of the
 * store (queue, executors) by one verb a scrape. When the store does not answer that, its rows have no samples and
 * conclave_judicator_store_up is 0: a scrape itself never fails.
 *
 * A scrape may outlive its client (request NULL) and the judicator (j NULL), as the verb cannot be cancelled.
 */
#include "roles/judicator/judicator_int.h"

#include <stdlib.h>

#include "reactor/base/mem.h"

struct scrape {
	struct judicator *j;
	struct list link; /* j->scrapes */
	struct metrics_scrape *request;
};

struct page {
	const struct judicator *j;
	const struct msg_stats_reply *stats; /* NULL: the store did not answer */
	struct store_counters counters;
};

static const struct page *page_of(const struct metrics_page *page)
{
	return page->of;
}

/* --- rows ------------------------------------------------------------------------------------------------------------------ */

static void write_executors(struct metrics_page *p)
{
	const struct msg_stats_reply *stats = page_of(p)->stats;

	if (!stats)
		return;
	metrics_labelled(p, (double)stats->alive, "state=\"alive\"");
	metrics_labelled(p, (double)stats->dead, "state=\"dead\"");
}

static void write_added(struct metrics_page *p)
{
	metrics_number(p, (double)page_of(p)->j->added);
}

static void write_free(struct metrics_page *p)
{
	if (page_of(p)->counters.free_bytes >= 0)
		metrics_number(p, (double)page_of(p)->counters.free_bytes);
}

static void write_reserve(struct metrics_page *p)
{
	if (page_of(p)->counters.free_bytes >= 0)
		metrics_number(p, (double)page_of(p)->counters.reserve_bytes);
}

static void write_ended(struct metrics_page *p)
{
	for (unsigned i = VERDICT_NONE + 1; i < VERDICT_N; i++)
		metrics_labelled(p, (double)page_of(p)->counters.ended[i], "verdict=\"%s\"",
			verdict_name((enum verdict)i));
}

static unsigned length(const struct list *list)
{
	unsigned n = 0;

	list_each (it, list)
		n++;
	return n;
}

static void write_held_gets(struct metrics_page *p)
{
	metrics_number(p, length(&page_of(p)->j->watches));
}

static void write_held_reports(struct metrics_page *p)
{
	metrics_number(p, length(&page_of(p)->j->held));
}

static void write_leading(struct metrics_page *p)
{
	metrics_number(p, page_of(p)->j->leading);
}

static void write_calls(struct metrics_page *p)
{
	for (unsigned method = 0; method < RPC_METHOD_N; method++) {
		for (unsigned result = 0; result < RPC_R_N; result++) {
			uint64_t n = rpc_server_count(page_of(p)->j->server,
				(enum rpc_method)method, (enum rpc_result)result);

			if (n || result == RPC_R_OK)
				metrics_labelled(p, (double)n, "method=\"%s\",result=\"%s\"",
					rpc_methods[method].name,
					rpc_result_name((enum rpc_result)result));
		}
	}
}

static void write_batches(struct metrics_page *p)
{
	metrics_number(p, (double)page_of(p)->counters.batches);
}

static void write_commits(struct metrics_page *p)
{
	metrics_labelled(p, (double)page_of(p)->counters.commits, "durable=\"yes\"");
	metrics_labelled(p, (double)page_of(p)->counters.soft_commits, "durable=\"no\"");
}

static void write_failed(struct metrics_page *p)
{
	metrics_number(p, (double)page_of(p)->counters.failed);
}

static void write_operations(struct metrics_page *p)
{
	metrics_number(p, (double)page_of(p)->counters.operations);
}

static void write_up(struct metrics_page *p)
{
	metrics_number(p, page_of(p)->stats != NULL);
}

static void write_slots(struct metrics_page *p)
{
	if (page_of(p)->stats)
		metrics_number(p, (double)page_of(p)->stats->slots);
}

static void write_oldest(struct metrics_page *p)
{
	const struct msg_stats_reply *stats = page_of(p)->stats;
	int64_t us = stats && stats->oldest_us ? stats->time_us - stats->oldest_us : 0;

	if (stats)
		metrics_number(p, us > 0 ? (double)us / US_PER_S : 0);
}

static void write_pending(struct metrics_page *p)
{
	if (page_of(p)->stats)
		metrics_number(p, (double)page_of(p)->stats->pending);
}

static void write_running(struct metrics_page *p)
{
	if (page_of(p)->stats)
		metrics_number(p, (double)page_of(p)->stats->running);
}

static const struct metrics_row rows[] = {
	{"conclave_executors", "gauge", "Executors known to the store.", write_executors},
	{"conclave_judicator_added_total", "counter", "New tasks.", write_added},
	{"conclave_judicator_disk_free_bytes", "gauge", "Free space where the data directory is.",
		write_free},
	{"conclave_judicator_disk_reserve_bytes", "gauge",
		"Free space below which new tasks are refused.", write_reserve},
	{"conclave_judicator_ended_total", "counter", "Tasks that became done, by verdict.",
		write_ended},
	{"conclave_judicator_held_gets", "gauge", "Gets that wait for a change.", write_held_gets},
	{"conclave_judicator_held_reports", "gauge", "Reports of executors that wait for work.",
		write_held_reports},
	{"conclave_judicator_leading", "gauge", "Whether it does the leader's duties.",
		write_leading},
	{"conclave_judicator_rpc_calls_total", "counter",
		"Calls served, by method and what came of them.", write_calls},
	{"conclave_judicator_store_batches_total", "counter", "Transactions of the store's writer.",
		write_batches},
	{"conclave_judicator_store_commits_total", "counter", "Commits; durable: with an fsync.",
		write_commits},
	{"conclave_judicator_store_failed_total", "counter",
		"Operations that the store could not do.", write_failed},
	{"conclave_judicator_store_operations_total", "counter", "Operations of the writer.",
		write_operations},
	{"conclave_judicator_store_up", "gauge", "Whether the store answered this scrape.",
		write_up},
	{"conclave_slots", "gauge", "Tasks that the living executors can run at the same time.",
		write_slots},
	{"conclave_tasks_oldest_seconds", "gauge",
		"Since when the oldest task waits that has not begun; 0: there is none.",
		write_oldest},
	{"conclave_tasks_pending", "gauge", "Tasks that wait for an executor.", write_pending},
	{"conclave_tasks_running", "gauge", "Tasks held by executors.", write_running},
};

/* --- a scrape --------------------------------------------------------------------------------------------------------------- */

static void on_gone(void *arg)
{
	((struct scrape *)arg)->request = NULL;
}

static void reply_page(struct scrape *scrape, const struct msg_stats_reply *stats)
{
	struct judicator *j = scrape->j;
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct page page = {.j = j, .stats = stats};
	struct metrics_page out = {.out = &text, .of = &page};

	j->store->ops->counters(j->store, &page.counters);
	metrics_write(&out, rows, ARRAY_SIZE(rows));
	metrics_write_common(&out, j->loop);
	metrics_scrape_reply(take_ptr(&scrape->request), buf_str(&text));
}

static void on_stats(void *arg, enum store_status status, const struct msg_stats_reply *reply)
{
	struct scrape *scrape = arg;

	if (scrape->j && scrape->request)
		reply_page(scrape, status == STORE_OK ? reply : NULL);
	list_del(&scrape->link);
	free(scrape);
}

static void on_scrape(void *arg, struct metrics_scrape *request)
{
	struct judicator *j = arg;
	struct scrape *scrape = mem_alloc(sizeof(*scrape));

	scrape->j = j;
	scrape->request = request;
	list_init(&scrape->link);
	list_add_tail(&j->scrapes, &scrape->link);
	metrics_scrape_on_gone(request, on_gone, scrape);
	j->store->ops->stats(j->store, on_stats, scrape);
}

int metrics_open(struct judicator *j, const char *address)
{
	if (!address || !address[0])
		return 0;
	return metrics_server_new(j->loop, j->log, address, on_scrape, j, &j->metrics);
}

void metrics_close(struct judicator *j)
{
	metrics_server_free(take_ptr(&j->metrics));
	list_each_safe (it, &j->scrapes) {
		struct scrape *scrape = list_entry(it, struct scrape, link);

		list_del(&scrape->link);
		scrape->j = NULL;
	}
}

unsigned judicator_metrics_port(const struct judicator *j)
{
	return metrics_server_port(j->metrics);
}
