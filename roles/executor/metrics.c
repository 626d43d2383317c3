/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of an executor: a row a metric, all of them from the executor's own counters at the moment of the scrape.
 */
#include "roles/executor/metrics.h"

#include "roles/executor/blob_cache.h"
#include "roles/executor/executor.h"
#include "roles/metrics.h"

struct page {
	struct executor_stats stats;
	struct blob_cache_stats blobs;
	const struct box_host *box;
};

static const struct page *page_of(const struct metrics_page *p)
{
	return p->of;
}

static void write_blob_bytes(struct metrics_page *p)
{
	metrics_number(p, (double)page_of(p)->blobs.bytes);
}

static void write_blob_evicted(struct metrics_page *p)
{
	metrics_number(p, (double)page_of(p)->blobs.evicted);
}

static void write_blobs(struct metrics_page *p)
{
	metrics_labelled(p, (double)page_of(p)->blobs.hits, "result=\"hit\"");
	metrics_labelled(p, (double)page_of(p)->blobs.fetched, "result=\"fetched\"");
}

static void write_box(struct metrics_page *p)
{
	metrics_labelled(p, box_host_failure(page_of(p)->box) == NULL, "isolation=\"%s\"",
		box_host_isolation(page_of(p)->box));
}

static void write_calls(struct metrics_page *p)
{
	static const enum rpc_method methods[] = {RPC_register, RPC_report};

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		for (unsigned failure = 0; failure <= RPC_GARBLED; failure++)
			metrics_labelled(p, (double)page_of(p)->stats.calls[methods[i]][failure],
				"method=\"%s\",result=\"%s\"", rpc_methods[methods[i]].name,
				rpc_failure_name((enum rpc_failure)failure));
	}
}

static void write_held(struct metrics_page *p)
{
	for (unsigned hold = 0; hold < EXECUTOR_HOLDS; hold++)
		metrics_labelled(p, page_of(p)->stats.held[hold], "state=\"%s\"",
			executor_hold_name((enum executor_hold)hold));
}

static void write_registered(struct metrics_page *p)
{
	metrics_number(p, page_of(p)->stats.registered);
}

static void write_slots(struct metrics_page *p)
{
	metrics_number(p, page_of(p)->stats.slots);
}

static void write_failures(struct metrics_page *p)
{
	metrics_number(p, (double)page_of(p)->stats.system_failures);
}

static void write_tasks(struct metrics_page *p)
{
	for (unsigned i = VERDICT_NONE + 1; i < VERDICT_N; i++)
		metrics_labelled(p, (double)page_of(p)->stats.ended[i], "verdict=\"%s\"",
			verdict_name((enum verdict)i));
}

static const struct metrics_row rows[] = {
	{"conclave_executor_blob_cache_bytes", "gauge", "Blobs that are kept here.",
		write_blob_bytes},
	{"conclave_executor_blob_evictions_total", "counter", "Blobs that made room for others.",
		write_blob_evicted},
	{"conclave_executor_blobs_total", "counter",
		"Blobs that tasks wanted: here already, or fetched.", write_blobs},
	{"conclave_executor_box_up", "gauge", "Whether the sandbox can run programs.", write_box},
	{"conclave_executor_held", "gauge",
		"Tasks it holds, by what they do; running and killing take a slot.", write_held},
	{"conclave_executor_judicator_calls_total", "counter",
		"Calls of judicators, by method and what came of them.", write_calls},
	{"conclave_executor_registered", "gauge",
		"Whether it has registered; not while it probes languages.", write_registered},
	{"conclave_executor_slots", "gauge", "Tasks at the same time.", write_slots},
	{"conclave_executor_system_failures_total", "counter",
		"Failures of ours, the sandbox's most of all; the step is tried again.",
		write_failures},
	{"conclave_executor_tasks_total", "counter", "Tasks that came to a result, by verdict.",
		write_tasks},
};

void executor_metrics(const struct executor *executor, const struct box_host *box,
	const struct loop *loop, struct buf *out)
{
	struct page page = {.box = box};
	struct metrics_page to = {.out = out, .of = &page};

	if (executor) {
		executor_get_stats(executor, &page.stats);
		executor_blob_stats(executor, &page.blobs);
	}
	metrics_write(&to, rows, ARRAY_SIZE(rows));
	metrics_write_common(&to, loop);
}
