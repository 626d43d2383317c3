/* SPDX-License-Identifier: Apache-2.0 */
/*
 * get - question (f): how does GET of a task compare with bare libevhtp that answers the same bytes?
 *
 *   bench-get IP:PORT PATH CLIENTS ROUNDS [PID]
 *
 * A child process serves, with libevhtp and nothing else, the body that IP:PORT answers at PATH. Then rounds alternate: CLIENTS
 * keep-alive connections ask the one, then the other, each with one request under way. The client is as plain as it can be (epoll, a
 * fixed request, no parser but for the length), so that it takes as little of the machine as possible from whom it measures.
 * With PID, the gateway's, CPU time a request is compared too: on a machine shared with others it is the steadier figure.
 * Prints lines "name value" for bench/run: medians over the rounds; times in us.
 */
/* First: it pulls in OpenSSL's headers, in which `unused` is a name and not yet our attribute. */
#include <evhtp/evhtp.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <event2/buffer.h>

#include "bench/bench.h"
#include "reactor/base/buf.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "rpc/http/address.h"

#define ROUND_US US_PER_S
#define ROUNDS_MAX 1000
#define LATENCIES_MAX 1000000

struct connection {
	int fd;
	char in[65536];
	size_t len, whole; /* whole: of the answer, 0 = not known yet */
	int64_t asked_us;
};

struct target {
	const char *name;
	struct http_address address;
	long pid; /* 0 = not known */
	struct buf request;
	struct connection *connections;
	int epoll;
	double *latencies; /* of all rounds */
	size_t n_latencies;
	double rates[ROUNDS_MAX], cpus[ROUNDS_MAX];
};

static void die(const char *what)
{
	fprintf(stderr, "bench-get: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* --- the client --- */

static int dial(const struct http_address *address)
{
	int on = 1, fd = socket(address->sockaddr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (const struct sockaddr *)&address->sockaddr, address->len))
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static void ask(struct target *t, struct connection *c)
{
	c->len = c->whole = 0;
	c->asked_us = clock_boot_us();
	if (write(c->fd, t->request.data, t->request.len) != (ssize_t)t->request.len)
		die("write");
}

/* The whole answer's length once its header is there. */
static size_t answer_length(const struct connection *c)
{
	static const char length[] = "\r\nContent-Length:";
	const char *end = memmem(c->in, c->len, "\r\n\r\n", 4), *at = c->in;

	if (!end)
		return 0;
	if (c->len < 12 || memcmp(c->in + 8, " 200", 4))
		die("answer is not 200");
	for (; at < end; at++) {
		if (*at == '\r' && !strncasecmp(at, length, sizeof(length) - 1))
			return (size_t)(end + 4 - c->in) +
			       (size_t)strtoul(at + sizeof(length) - 1, NULL, 10);
	}
	die("answer without Content-Length");
	return 0;
}

/* True once the answer is whole. */
static bool take(struct connection *c)
{
	ssize_t n = read(c->fd, c->in + c->len, sizeof(c->in) - c->len);

	if (n <= 0)
		die("read");
	c->len += (size_t)n;
	if (!c->whole)
		c->whole = answer_length(c);
	return c->whole && c->len >= c->whole;
}

static void open_all(struct target *t, unsigned clients)
{
	t->epoll = epoll_create1(EPOLL_CLOEXEC);
	t->connections = mem_array(clients, sizeof(*t->connections));
	t->latencies = mem_array(LATENCIES_MAX, sizeof(*t->latencies));
	for (unsigned i = 0; i < clients; i++) {
		struct connection *c = &t->connections[i];
		struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};

		c->fd = dial(&t->address);
		if (epoll_ctl(t->epoll, EPOLL_CTL_ADD, c->fd, &event))
			die("epoll");
	}
}

static void answered(struct target *t, struct connection *c, int64_t now_us)
{
	if (t->n_latencies < LATENCIES_MAX)
		t->latencies[t->n_latencies++] = (double)(now_us - c->asked_us);
}

static void round_run(struct target *t, unsigned clients, unsigned number)
{
	int64_t begun = clock_boot_us(), now = begun;
	double cpu = bench_cpu_us(t->pid), count = 0;
	unsigned open = clients;

	for (unsigned i = 0; i < clients; i++)
		ask(t, &t->connections[i]);
	while (open) {
		struct epoll_event events[256];
		int n = epoll_wait(t->epoll, events, ARRAY_SIZE(events), -1);

		now = clock_boot_us();
		for (int i = 0; i < n; i++) {
			struct connection *c = events[i].data.ptr;

			if (!take(c))
				continue;
			answered(t, c, now);
			count++;
			if (now - begun < ROUND_US)
				ask(t, c);
			else
				open--;
		}
	}
	t->rates[number] = count * 1e6 / (double)(now - begun);
	t->cpus[number] = (bench_cpu_us(t->pid) - cpu) / count;
}

/* --- bare libevhtp --- */

static void bare_answer(evhtp_request_t *request, void *arg)
{
	const struct buf *body = arg;

	evhtp_headers_add_header(
		request->headers_out, evhtp_header_new("Content-Type", "application/json", 0, 0));
	evbuffer_add(request->buffer_out, body->data, body->len);
	evhtp_send_reply(request, EVHTP_RES_OK);
}

/* Serves body in a child of its own, at *address. */
static pid_t bare_start(struct buf *body, struct http_address *address)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)&address->sockaddr;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct event_base *base;
	evhtp_t *htp;
	pid_t pid;

	*address = (struct http_address){.len = sizeof(*sin)};
	sin->sin_family = AF_INET;
	sin->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)sin, sizeof(*sin)) || listen(fd, 4096) ||
		getsockname(fd, (struct sockaddr *)&address->sockaddr, &address->len))
		die("listen");
	pid = fork();
	if (pid < 0)
		die("fork");
	if (pid) {
		close(fd);
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	base = event_base_new();
	htp = evhtp_new(base, NULL);
	evhtp_enable_flag(htp, EVHTP_FLAG_ENABLE_NODELAY);
	evhtp_set_gencb(htp, bare_answer, body);
	if (evhtp_accept_socket(htp, fd, 4096))
		die("bare libevhtp");
	event_base_loop(base, 0);
	_exit(1);
}

/* --- main --- */

static void fetch(struct target *t, struct buf *body)
{
	struct connection *c = mem_alloc(sizeof(*c));
	const char *end;

	c->fd = dial(&t->address);
	ask(t, c);
	while (!take(c))
		continue;
	end = memmem(c->in, c->len, "\r\n\r\n", 4);
	buf_add(body, end + 4, (size_t)(c->in + c->len - end - 4));
	close(c->fd);
	free(c);
}

static void show(struct target *t, unsigned rounds)
{
	printf("%s_rate %.0f\n%s_p50 %.0f\n%s_p99 %.0f\n", t->name,
		bench_quantile(t->rates, rounds, 500), t->name,
		bench_quantile(t->latencies, t->n_latencies, 500), t->name,
		bench_quantile(t->latencies, t->n_latencies, 990));
	if (t->pid)
		printf("%s_cpu %.1f\n", t->name, bench_quantile(t->cpus, rounds, 500));
}

static void target_free(struct target *t, unsigned clients)
{
	for (unsigned i = 0; i < clients; i++)
		close(t->connections[i].fd);
	close(t->epoll);
	free(t->connections);
	free(t->latencies);
	buf_fini(&t->request);
}

int main(int argc, char **argv)
{
	static struct target ours = {.name = "ours"}, bare = {.name = "bare"};
	unsigned clients = argc >= 5 ? bench_number(argv[3], 4096) : 0;
	unsigned rounds = argc >= 5 ? bench_number(argv[4], ROUNDS_MAX) : 0;
	double ratios[ROUNDS_MAX];
	struct buf body = BUF_INIT;

	if (!clients || !rounds || !http_address_parse(argv[1], &ours.address)) {
		fprintf(stderr, "usage: bench-get IP:PORT PATH CLIENTS ROUNDS [PID]\n");
		return 2;
	}
	bench_raise_files();
	signal(SIGPIPE, SIG_IGN);
	ours.pid = argc > 5 ? (long)bench_number(argv[5], INT32_MAX) : 0;
	buf_addf(&ours.request, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", argv[2], argv[1]);
	buf_add_str(&bare.request, buf_str(&ours.request));
	fetch(&ours, &body);
	bare.pid = bare_start(&body, &bare.address);
	open_all(&ours, clients);
	open_all(&bare, clients);
	for (unsigned i = 0; i < rounds; i++) {
		round_run(&ours, clients, i);
		round_run(&bare, clients, i);
		ratios[i] = ours.rates[i] / bare.rates[i];
	}
	show(&ours, rounds);
	show(&bare, rounds);
	printf("ratio %.2f\n", bench_quantile(ratios, rounds, 500));
	kill((pid_t)bare.pid, SIGKILL);
	waitpid((pid_t)bare.pid, NULL, 0);
	target_free(&ours, clients);
	target_free(&bare, clients);
	buf_fini(&body);
	return 0;
}
