/* SPDX-License-Identifier: Apache-2.0 */
/* router: exact segments, parameters, 404 and 405, and the request's query parameters; through a real server and client. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "rpc/codec.h"
#include "rpc/http/client.h"
#include "rpc/http/router.h"

struct fixture {
	struct loop *loop;
	struct http_server *server;
	struct http_client *client;
	char address[32];
};

struct answer {
	bool fired;
	int status;
	char body[512];
};

static void reply_with(
	struct http_request *request, const char *row, const struct route_match *match)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;
	char value[16];

	assert_string_equal(match->arg, "arg");
	buf_addf(&text, "%s", row);
	for (unsigned i = 0; i < ROUTE_PARAMS_MAX && match->params[i].p; i++)
		buf_addf(&text, " [" STR_FMT "]", STR_ARG(match->params[i]));
	if (http_request_param(request, "wait", value, sizeof(value)))
		buf_addf(&text, " wait=%s", value);
	http_request_reply(request, 200, "text/plain", buf_str(&text));
}

static void handle_root(const struct route_match *match, struct http_request *request)
{
	reply_with(request, "root", match);
}

static void handle_list(const struct route_match *match, struct http_request *request)
{
	reply_with(request, "list", match);
}

static void handle_add(const struct route_match *match, struct http_request *request)
{
	reply_with(request, "add", match);
}

static void handle_special(const struct route_match *match, struct http_request *request)
{
	reply_with(request, "special", match);
}

static void handle_one(const struct route_match *match, struct http_request *request)
{
	reply_with(request, "one", match);
}

static void handle_file(const struct route_match *match, struct http_request *request)
{
	reply_with(request, "file", match);
}

static void handle_rest(const struct route_match *match, struct http_request *request)
{
	reply_with(request, "rest", match);
}

static const struct route routes[] = {
	{HTTP_GET, "/", handle_root},
	{HTTP_GET, "/tasks", handle_list},
	{HTTP_POST, "/tasks", handle_add},
	{HTTP_GET, "/tasks/special", handle_special},
	{HTTP_GET, "/tasks/{id}", handle_one},
	{HTTP_PUT, "/tasks/{id}/files/{name}", handle_file},
	{HTTP_GET, "/rest/{id}/of/{path*}", handle_rest},
};

static void handle(void *arg, struct http_request *request)
{
	char text[] = "arg";

	router_dispatch(routes, ARRAY_SIZE(routes), text, request);
}

static int setup(void **state)
{
	const struct http_server_options options = {.body_max = 1000,
		.read_timeout_us = 5 * US_PER_S,
		.idle_timeout_us = 5 * US_PER_S,
		.handler = handle};
	struct fixture *f = mem_alloc(sizeof(*f));

	f->loop = loop_new(NULL);
	f->client = http_client_new(f->loop, NULL);
	*state = f;
	if (http_server_new(f->loop, "127.0.0.1:0", &options, &f->server))
		return -1;
	snprintf(f->address, sizeof(f->address), "127.0.0.1:%u", http_server_port(f->server));
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	http_client_free(f->client);
	http_server_free(f->server);
	loop_free(f->loop);
	free(f);
	return 0;
}

static void on_reply(void *arg, const struct http_reply *reply)
{
	struct answer *a = arg;

	a->fired = true;
	a->status = reply->status;
	snprintf(a->body, sizeof(a->body), STR_FMT, STR_ARG(reply->body));
}

static struct answer ask(struct fixture *f, const char *method, const char *path)
{
	const struct http_call call = {
		.address = f->address, .method = method, .path = path, .timeout_us = 5 * US_PER_S};
	int64_t end_us = clock_boot_us() + 10 * US_PER_S;
	struct answer a = {0};
	struct op *op;

	assert_int_equal(http_client_call(f->client, &call, on_reply, &a, &op), 0);
	while (!a.fired && clock_boot_us() < end_us)
		loop_turn(f->loop, 10000);
	assert_true(a.fired);
	return a;
}

struct row {
	const char *method, *path;
	int status;
	const char *body; /* whole for 200, else a part of the problem document */
};

static const struct row rows[] = {
	{"GET", "/", 200, "root"},
	{"GET", "/tasks", 200, "list"},
	{"POST", "/tasks", 200, "add"},
	{"GET", "/tasks/special", 200, "special"},
	{"GET", "/tasks/specially", 200, "one [specially]"},
	{"GET", "/tasks/%2e%2e", 200, "one [%2e%2e]"},
	{"PUT", "/tasks/7/files/a.c", 200, "file [7] [a.c]"},
	{"GET", "/rest/7/of/a", 200, "rest [7] [a]"},
	{"GET", "/rest/7/of/a/b//../c%2f", 200, "rest [7] [a/b//../c%2f]"},
	{"GET", "/rest/7/of//", 200, "rest [7] [/]"},
	{"GET", "/rest/7/of/", 404, "\"not_found\""},
	{"GET", "/rest/7/of", 404, "\"not_found\""},
	{"GET", "/rest//of/a", 404, "\"not_found\""},
	{"PUT", "/rest/7/of/a/b", 405, "GET, HEAD"},
	{"GET", "/tasks/", 404, "\"not_found\""},
	{"GET", "/tasksX", 404, "\"not_found\""},
	{"GET", "/task", 404, "\"not_found\""},
	{"GET", "//tasks", 404, "\"not_found\""},
	{"GET", "/tasks/7/", 404, "\"not_found\""},
	{"GET", "/tasks/7/files", 404, "\"not_found\""},
	{"PUT", "/tasks//files/a", 404, "\"not_found\""},
	{"PUT", "/tasks/7/files/a/b", 404, "\"not_found\""},
	{"DELETE", "/tasks", 405, "GET, HEAD, POST"},
	{"GET", "/tasks/7/files/a", 405, "allowed here: PUT"},
	{"POST", "/tasks/special", 405, "GET, HEAD"},
};

static void test_rows(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct answer a = ask(*state, rows[i].method, rows[i].path);

		if (a.status != rows[i].status)
			fail_msg("%s %s: %d", rows[i].method, rows[i].path, a.status);
		if (a.status == 200)
			assert_string_equal(a.body, rows[i].body);
		else if (!strstr(a.body, rows[i].body))
			fail_msg("%s %s: %s", rows[i].method, rows[i].path, a.body);
	}
}

static const struct row params[] = {
	{"GET", "/tasks?wait=10", 200, "list wait=10"},
	{"GET", "/tasks?a=b&wait=10&wait=11", 200, "list wait=10"},
	{"GET", "/tasks?wait=%31+%41%7a", 200, "list wait=1 Az"},
	{"GET", "/tasks?wait=", 200, "list wait="},
	{"GET", "/tasks?await=1", 200, "list"},
	{"GET", "/tasks?wait=123456789012345", 200, "list wait=123456789012345"},
	{"GET", "/tasks?wait=1234567890123456", 200, "list"}, /* too long */
	{"GET", "/tasks?wait=%00", 200, "list"},
	{"GET", "/tasks?wait=%4", 200, "list"},
	{"GET", "/tasks?wait=%zz", 200, "list"},
};

static void test_query_parameters(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(params); i++) {
		struct answer a = ask(*state, params[i].method, params[i].path);

		if (a.status != 200 || strcmp(a.body, params[i].body) != 0)
			fail_msg("%s: %d %s", params[i].path, a.status, a.body);
	}
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_rows),
		TEST(test_query_parameters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
