/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics - Prometheus's text format, and a small server for it: what judicators and executors have of their own. A gateway
 * shows its page among its other paths.
 *
 * A metric is a row of a table: name, type, help, and who writes its samples. What every program has (its version, turns of its
 * loop, its process) is written by metrics_write_common().
 */
#pragma once

#include "reactor/base/buf.h"
#include "reactor/base/log.h"

struct loop;

struct metrics_page {
	struct buf *out;
	const char *name; /* of the metric being written */
	const void *of;   /* the owner's */
};

struct metrics_row {
	const char *name, *type, *help;
	void (*write)(struct metrics_page *page); /* may write nothing: not known */
};

void metrics_write(struct metrics_page *page, const struct metrics_row *rows, size_t n);
void metrics_write_common(struct metrics_page *page, const struct loop *loop);
/* A sample of page->name. */
void metrics_number(struct metrics_page *page, double value);
/* The same with labels: fmt gives what stands between the braces. Label values are ours: no quotes, no backslashes in them. */
void metrics_labelled(struct metrics_page *page, double value, const char *fmt, ...)
	printf_like(3, 4);

/* --- the server: GET /metrics at an address of its own, no tokens --- */

struct metrics_server;
struct metrics_scrape; /* one request: answer it, now or later */
typedef void metrics_fn(void *arg, struct metrics_scrape *scrape);

/* 0, or -errno (logged). At loopback a Host header must name loopback, so that no page of another site reads it. */
int metrics_server_new(struct loop *loop, struct log *log, const char *address, metrics_fn *fn,
	void *arg, struct metrics_server **out) must_check;
/* Scrapes that were not answered are gone: their callback fires. NULL is fine. */
void metrics_server_free(struct metrics_server *server);
unsigned metrics_server_port(const struct metrics_server *server);
/* Answers; the scrape is dead after it. */
void metrics_scrape_reply(struct metrics_scrape *scrape, struct str page);
/* Once, if who asked goes away before the answer; the scrape is dead then. */
void metrics_scrape_on_gone(struct metrics_scrape *scrape, void (*fn)(void *arg), void *arg);
