/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page is made anew at each scrape from counters that their owners keep; nothing is kept here. The server is one http_server
 * with one path and small limits: it has no bodies, and somebody who asks every second is the most it expects.
 *
 * A scrape is the HTTP request under another name: whoever makes the page needs to know nothing of HTTP.
 */
#include "roles/metrics.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "rpc/codec.h"
#include "rpc/http/router.h"

#define TYPE_METRICS "text/plain; version=0.0.4; charset=utf-8"
#define READ_TIMEOUT_US (5 * US_PER_S)
#define IDLE_TIMEOUT_US (75 * US_PER_S)
#define BODY_MAX 1024
#define CONNECTIONS_MAX 64

/* --- the format ------------------------------------------------------------------------------------------------------------ */

void metrics_write(struct metrics_page *page, const struct metrics_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		page->name = rows[i].name;
		buf_addf(page->out, "# HELP %s %s\n# TYPE %s %s\n", rows[i].name, rows[i].help,
			rows[i].name, rows[i].type);
		rows[i].write(page);
	}
}

void metrics_number(struct metrics_page *page, double value)
{
	buf_addf(page->out, "%s %.15g\n", page->name, value);
}

void metrics_labelled(struct metrics_page *page, double value, const char *fmt, ...)
{
	char labels[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(labels, sizeof(labels), fmt, ap);
	va_end(ap);
	buf_addf(page->out, "%s{%s} %.15g\n", page->name, labels, value);
}

/* --- what every program has --------------------------------------------------------------------------------------------------- */

static void write_build(struct metrics_page *page)
{
	metrics_labelled(page, 1, "version=\"%s\"", CONCLAVE_VERSION);
}

static struct loop_stats loop_stats_of(const struct metrics_page *page)
{
	struct loop_stats stats;

	loop_get_stats(page->of, &stats);
	return stats;
}

static void write_longest_turn(struct metrics_page *page)
{
	metrics_number(page, (double)loop_stats_of(page).longest_turn_us / US_PER_S);
}

static void write_slow_turns(struct metrics_page *page)
{
	metrics_number(page, (double)loop_stats_of(page).slow_turns);
}

static void write_turns(struct metrics_page *page)
{
	metrics_number(page, (double)loop_stats_of(page).turns);
}

/* Number n (from 1) of a line of /proc, behind the name in parentheses, which may hold anything; 0 when there is none. */
static double proc_number(const char *path, unsigned n)
{
	char line[1024], *at, *end;
	FILE *file = fopen(path, "re");
	size_t length = file ? fread(line, 1, sizeof(line) - 1, file) : 0;

	if (file)
		fclose(file);
	line[length] = '\0';
	end = strrchr(line, ')');
	at = end ? end + 1 : line;
	for (at = strtok_r(at, " ", &end); at && n > 1; n--)
		at = strtok_r(NULL, " ", &end);
	return at ? strtod(at, NULL) : 0;
}

static void write_cpu(struct metrics_page *page)
{
	struct rusage use;

	if (getrusage(RUSAGE_SELF, &use) == 0)
		metrics_number(page,
			(double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
				(double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / US_PER_S);
}

static void write_fds(struct metrics_page *page)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = -3; /* . and .. and the directory itself */

	if (!dir)
		return;
	while (readdir(dir))
		n++;
	closedir(dir);
	metrics_number(page, n);
}

static void write_resident(struct metrics_page *page)
{
	metrics_number(page, proc_number("/proc/self/statm", 2) * (double)sysconf(_SC_PAGESIZE));
}

/* In ticks since the machine booted: field 22 of stat, the 20th behind the name. */
static void write_start(struct metrics_page *page)
{
	double ticks = proc_number("/proc/self/stat", 20);
	double booted = (double)(clock_wall_us() - clock_boot_us()) / US_PER_S;

	metrics_number(page, booted + ticks / (double)sysconf(_SC_CLK_TCK));
}

static const struct metrics_row common[] = {
	{"conclave_build_info", "gauge", "The version of this program.", write_build},
	{"conclave_loop_longest_turn_seconds", "gauge", "The longest turn of the loop.",
		write_longest_turn},
	{"conclave_loop_slow_turns_total", "counter", "Turns of the loop over 20 ms.",
		write_slow_turns},
	{"conclave_loop_turns_total", "counter", "Turns of the loop.", write_turns},
	{"process_cpu_seconds_total", "counter", "CPU time of this process.", write_cpu},
	{"process_open_fds", "gauge", "Descriptors open in this process.", write_fds},
	{"process_resident_memory_bytes", "gauge", "Resident memory of this process.",
		write_resident},
	{"process_start_time_seconds", "gauge",
		"When this process was started, since 1970: it changes at a restart.", write_start},
};

void metrics_write_common(struct metrics_page *page, const struct loop *loop)
{
	const void *of = page->of;

	page->of = loop;
	metrics_write(page, common, ARRAY_SIZE(common));
	page->of = of;
}

/* --- the server ------------------------------------------------------------------------------------------------------------- */

struct metrics_server {
	struct loop *loop;
	struct http_server *http;
	metrics_fn *fn;
	void *arg;
	bool at_loopback;
};

static bool begins_with(struct str s, const char *prefix)
{
	size_t n = strlen(prefix);

	return s.n >= n && strncasecmp(s.p, prefix, n) == 0;
}

static bool is_loopback(struct str host)
{
	return begins_with(host, "127.") || begins_with(host, "[::1]") ||
	       str_is(host, "localhost") || begins_with(host, "localhost:");
}

/* A page of another site may have its own name resolve to our address; it cannot make its browser send another Host. */
static void on_metrics(const struct route_match *match, struct http_request *http)
{
	struct metrics_server *server = match->arg;
	struct str host = http_request_header(http, "Host");
	struct problem problem = {0};

	if (server->at_loopback && host.p && !is_loopback(host)) {
		problem_set(&problem, 400, "bad_host", "",
			"The Host header names no loopback address, and nothing else is served "
			"here.");
		http_request_problem(http, &problem);
		return;
	}
	server->fn(server->arg, (struct metrics_scrape *)http);
}

static const struct route routes[] = {
	{HTTP_GET, "/metrics", on_metrics},
};

static void on_request(void *arg, struct http_request *http)
{
	router_dispatch(routes, ARRAY_SIZE(routes), arg, http);
}

int metrics_server_new(struct loop *loop, struct log *log, const char *address, metrics_fn *fn,
	void *arg, struct metrics_server **out)
{
	struct metrics_server *server = mem_alloc(sizeof(*server));
	struct http_server_options options = {
		.log = log,
		.body_max = BODY_MAX,
		.read_timeout_us = READ_TIMEOUT_US,
		.idle_timeout_us = IDLE_TIMEOUT_US,
		.connections_max = CONNECTIONS_MAX,
		.handler = on_request,
		.arg = server,
	};
	int r;

	server->loop = loop;
	server->fn = fn;
	server->arg = arg;
	server->at_loopback = is_loopback(str_from(address));
	r = http_server_new(loop, address, &options, &server->http);
	if (r) {
		log_error(log, "listen_failed", "address=%s why=\"%s\" for=metrics", address,
			strerror(-r));
		free(server);
		return r;
	}
	log_info(log, "metrics", "address=%s port=%u", address, http_server_port(server->http));
	*out = server;
	return 0;
}

void metrics_server_free(struct metrics_server *server)
{
	if (!server)
		return;
	http_server_free(server->http);
	loop_free_later(server->loop, free, server);
}

unsigned metrics_server_port(const struct metrics_server *server)
{
	return http_server_port(server->http);
}

void metrics_scrape_reply(struct metrics_scrape *scrape, struct str page)
{
	http_request_reply((struct http_request *)scrape, 200, TYPE_METRICS, page);
}

void metrics_scrape_on_gone(struct metrics_scrape *scrape, void (*fn)(void *arg), void *arg)
{
	http_request_on_gone((struct http_request *)scrape, fn, arg);
}
