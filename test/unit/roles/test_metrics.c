/* SPDX-License-Identifier: Apache-2.0 */
/* metrics: the text format; a scrape whose client leaves, and one whose judicator dies, while the store is asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/judicator/judicator.h"
#include "roles/metrics.h"

#define PATIENCE_US (20 * US_PER_S)

static void write_one(struct metrics_page *page)
{
	metrics_number(page, 1.5);
}

static void write_two(struct metrics_page *page)
{
	metrics_labelled(page, 9007199254740991.0, "a=\"%s\"", "x");
	metrics_labelled(page, 0, "a=\"%s\"", "y");
}

static void write_none(struct metrics_page *page)
{
}

static void a_page_is_rows(void **state)
{
	static const struct metrics_row rows[] = {
		{"one", "gauge", "One.", write_one},
		{"two_total", "counter", "Two.", write_two},
		{"unknown", "gauge", "None.", write_none},
	};
	struct buf out cleanup(buf_fini) = BUF_INIT;
	struct metrics_page page = {.out = &out};

	metrics_write(&page, rows, ARRAY_SIZE(rows));
	assert_string_equal(out.data,
		"# HELP one One.\n# TYPE one gauge\none 1.5\n"
		"# HELP two_total Two.\n# TYPE two_total counter\n"
		"two_total{a=\"x\"} 9.00719925474099e+15\ntwo_total{a=\"y\"} 0\n"
		"# HELP unknown None.\n# TYPE unknown gauge\n");
}

/* --- a judicator on a memory store --- */

struct fixture {
	struct loop *loop;
	struct loop_net *net;
	struct transport *transport;
	struct store *store;
	struct judicator *judicator;
};

static int setup(void **state)
{
	static const struct loop_net_options calm = {0};
	struct fixture *f = mem_alloc(sizeof(*f));
	struct store_options store = {.max_retries = 3};
	struct judicator_options options = {.name = "j",
		.address = "j:1",
		.expire_us = US_PER_S,
		.metrics_address = "127.0.0.1:0"};

	f->loop = loop_new(NULL);
	f->net = loop_net_new(f->loop, &calm);
	f->transport = transport_loop_new(f->net, "j");
	assert_int_equal(store_memory.open(f->loop, &store, &f->store), 0);
	options.store = f->store;
	options.transport = f->transport;
	assert_int_equal(judicator_new(f->loop, &options, &f->judicator), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	judicator_free(f->judicator);
	f->store->ops->close(f->store);
	f->transport->ops->free(f->transport);
	loop_net_free(f->net);
	loop_free(f->loop);
	free(f);
	return 0;
}

static int ask(struct fixture *f)
{
	static const char request[] = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: "
				      "close\r\n\r\n";
	struct sockaddr_in address = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)judicator_metrics_port(f->judicator)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(write(fd, request, sizeof(request) - 1), (ssize_t)sizeof(request) - 1);
	return fd;
}

/* All that comes until the other side closes; turns the loop. */
static void read_all(struct fixture *f, int fd, struct buf *out)
{
	int64_t until_us = clock_boot_us() + PATIENCE_US;
	char piece[4096];

	for (;;) {
		ssize_t n = recv(fd, piece, sizeof(piece), MSG_DONTWAIT);

		if (n == 0 || (n < 0 && errno != EAGAIN))
			break;
		if (n > 0)
			buf_add(out, piece, (size_t)n);
		else
			loop_turn(f->loop, 10 * US_PER_MS);
		assert_true(clock_boot_us() < until_us);
	}
	close(fd);
}

static void a_judicator_is_scraped(void **state)
{
	struct fixture *f = *state;
	struct buf answer cleanup(buf_fini) = BUF_INIT;

	read_all(f, ask(f), &answer);
	assert_non_null(strstr(answer.data, "HTTP/1.1 200 "));
	assert_non_null(strstr(answer.data, "\nconclave_judicator_store_up 1\n"));
	assert_non_null(strstr(answer.data, "\nconclave_tasks_pending 0\n"));
	assert_null(strstr(answer.data, "\nconclave_judicator_disk_free_bytes ")); /* no disk */
	assert_non_null(strstr(answer.data, "\nprocess_open_fds "));
}

/* However far the scrape has come when it is left alone. */
static void clients_leave(void **state)
{
	struct fixture *f = *state;
	struct buf answer cleanup(buf_fini) = BUF_INIT;

	for (unsigned turns = 0; turns < 8; turns++) {
		int fd = ask(f);

		for (unsigned i = 0; i < turns; i++)
			loop_turn(f->loop, 0);
		close(fd);
	}
	read_all(f, ask(f), &answer);
	assert_non_null(strstr(answer.data, "\nconclave_judicator_store_up 1\n"));
}

struct dying {
	struct fixture *f;
	struct defer end;
};

static void die(void *arg)
{
	struct dying *d = arg;

	judicator_free(take_ptr(&d->f->judicator));
}

/* In the very turn in which the store was asked, before it answers. */
static void its_judicator_dies(void **state)
{
	struct fixture *f = *state;
	struct buf answer cleanup(buf_fini) = BUF_INIT;
	struct dying d = {.f = f};
	int fd = ask(f);

	defer_init(&d.end, die, &d);
	for (unsigned i = 0; i < 2; i++)
		loop_turn(f->loop, US_PER_MS);
	loop_defer(f->loop, &d.end);
	read_all(f, fd, &answer);
	assert_null(f->judicator);
}

static void an_address_in_use_is_said(void **state)
{
	struct fixture *f = *state;
	char address[32];
	struct metrics_server *other = NULL;

	snprintf(address, sizeof(address), "127.0.0.1:%u", judicator_metrics_port(f->judicator));
	assert_int_equal(
		metrics_server_new(f->loop, NULL, address, NULL, NULL, &other), -EADDRINUSE);
	assert_null(other);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_page_is_rows),
		cmocka_unit_test_setup_teardown(a_judicator_is_scraped, setup, teardown),
		cmocka_unit_test_setup_teardown(clients_leave, setup, teardown),
		cmocka_unit_test_setup_teardown(its_judicator_dies, setup, teardown),
		cmocka_unit_test_setup_teardown(an_address_in_use_is_said, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
