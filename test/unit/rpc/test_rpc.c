/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_server and rpc_client over the loop transport: answers, refusals, what is temporary, and who lets go of what when. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "rpc/rpc_client.h"
#include "rpc/rpc_server.h"

struct fixture {
	struct loop *loop;
	struct loop_net *net;
	struct transport *client, *node;
	struct rpc_server *server;
	struct rpc_call *held;
	struct record *taken;
	unsigned n_calls, n_gone;
	bool hold;
};

struct outcome {
	struct op *op;
	bool fired;
	enum rpc_failure failure;
	struct record *record;
	int status;
	char code[64], pointer[64], name[64], detail[128];
};

static void on_gone(void *arg)
{
	struct fixture *f = arg;

	f->n_gone++;
	f->held = NULL;
}

static void on_ping(void *arg, struct rpc_call *call)
{
	struct fixture *f = arg;
	const struct msg_ping_request *request = rpc_call_request(call);
	struct msg_ping_reply reply = {.name = request->from, .pending = 3};

	f->n_calls++;
	assert_int_equal(rpc_call_method(call), RPC_ping);
	if (f->hold) {
		f->held = call;
		rpc_call_on_gone(call, on_gone, f);
		return;
	}
	rpc_call_reply(call, &reply);
}

static void on_cancel(void *arg, struct rpc_call *call)
{
	rpc_call_fail(call, 409, "task_done", "it is %s", "done");
}

static void on_search(void *arg, struct rpc_call *call)
{
	rpc_call_fail(call, 503, "busy", "try later");
}

static void on_get(void *arg, struct rpc_call *call)
{
	struct fixture *f = arg;

	f->taken = rpc_call_take_request(call);
	rpc_call_fail(call, 500, "broken", "we failed");
}

static rpc_handler_fn *const handlers[RPC_METHOD_N] = {
	[RPC_cancel] = on_cancel,
	[RPC_get] = on_get,
	[RPC_ping] = on_ping,
	[RPC_search] = on_search,
};

static int setup(void **state)
{
	const struct loop_options lo = {.fake_clock = true, .seed = 1};
	const struct loop_net_options no = {.delay_min_us = 1000, .delay_max_us = 1000};
	struct fixture *f = mem_alloc(sizeof(*f));

	f->loop = loop_new(&lo);
	f->net = loop_net_new(f->loop, &no);
	f->client = transport_loop_new(f->net, "e1");
	f->node = transport_loop_new(f->net, "j1");
	*state = f;
	return rpc_server_new(f->loop, NULL, f->node, "j1:1", handlers, f, &f->server);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	rpc_server_free(f->server);
	record_free(f->taken);
	f->client->ops->free(f->client);
	if (f->node)
		f->node->ops->free(f->node);
	loop_net_free(f->net);
	loop_free(f->loop);
	free(f);
	return 0;
}

static void on_answer(void *arg, struct rpc_answer *answer)
{
	struct outcome *o = arg;

	assert_false(o->fired);
	o->fired = true;
	o->op = NULL;
	o->failure = answer->failure;
	o->status = answer->problem.status;
	snprintf(o->code, sizeof(o->code), "%s", answer->problem.code);
	snprintf(o->pointer, sizeof(o->pointer), "%.60s", answer->problem.pointer);
	snprintf(o->detail, sizeof(o->detail), "%.120s", answer->problem.detail);
	if (answer->failure == RPC_OK) {
		const struct msg_ping_reply *reply = answer->reply;

		snprintf(o->name, sizeof(o->name), STR_FMT, STR_ARG(reply->name));
		assert_true(answer->bytes > 0);
		o->record = take_ptr(&answer->record);
	}
}

static void start(struct fixture *f, struct outcome *o, enum rpc_method method, const void *request)
{
	*o = (struct outcome){0};
	assert_int_equal(
		rpc_call(f->loop, f->client, "j1:1", method, request, 0, on_answer, o, &o->op), 0);
	assert_false(o->fired);
}

static void run(struct fixture *f, struct outcome *o, enum rpc_method method, const void *request)
{
	start(f, o, method, request);
	loop_advance_us(f->loop, 20 * US_PER_S);
	assert_true(o->fired);
}

static const struct msg_ping_request ping = {.from = {"me", 2}};

static void test_answer(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	run(f, &o, RPC_ping, &ping);
	assert_int_equal(o.failure, RPC_OK);
	assert_string_equal(o.name, "me");
	/* Kept beyond the callback. */
	assert_int_equal(((struct msg_ping_reply *)record_data(o.record))->pending, 3);
	record_free(o.record);
}

static void test_refusals_are_final(void **state)
{
	struct fixture *f = *state;
	struct outcome o;
	struct msg_cancel_request request = {.id = id_make(1, 2)};

	run(f, &o, RPC_cancel, &request);
	assert_int_equal(o.failure, RPC_REJECTED);
	assert_int_equal(o.status, 409);
	assert_string_equal(o.code, "task_done");
	assert_string_equal(o.detail, "it is done");
	assert_false(rpc_failure_is_temporary(o.failure));
}

static void test_busy_is_temporary(void **state)
{
	struct fixture *f = *state;
	struct outcome o;
	struct msg_search_request request = {.limit = 10};

	run(f, &o, RPC_search, &request);
	assert_int_equal(o.failure, RPC_UNAVAILABLE);
	assert_string_equal(o.code, "busy");
	assert_true(rpc_failure_is_temporary(o.failure));
}

static void test_internal_error_is_garbled(void **state)
{
	struct fixture *f = *state;
	struct outcome o;
	struct msg_get_item item = {.id = id_make(1, 2)};
	struct msg_get_request request = {.items = {&item, 1}, .wait_ms = 7};

	run(f, &o, RPC_get, &request);
	assert_int_equal(o.failure, RPC_GARBLED);
	/* The handler took the request with it. */
	assert_int_equal(((struct msg_get_request *)record_data(f->taken))->wait_ms, 7);
}

static void test_unserved_method(void **state)
{
	struct fixture *f = *state;
	struct outcome o;
	struct msg_executors_request request = {0};

	run(f, &o, RPC_executors, &request);
	assert_int_equal(o.failure, RPC_REJECTED);
	assert_int_equal(o.status, 404);
	assert_string_equal(o.code, "method_unknown");
}

static void test_invalid_request_never_reaches_a_handler(void **state)
{
	struct fixture *f = *state;
	struct outcome o;
	struct msg_search_request request = {.limit = 0};

	run(f, &o, RPC_search, &request);
	assert_int_equal(o.failure, RPC_REJECTED);
	assert_string_equal(o.code, "out_of_range");
	assert_string_equal(o.pointer, "/limit");
}

static void on_raw_reply(void *arg, const struct transport_reply *reply)
{
	struct outcome *o = arg;

	o->fired = true;
	o->status = reply->status;
	snprintf(o->detail, sizeof(o->detail), "%.*s", (int)reply->body.n, reply->body.p);
}

static void test_garbage_is_answered_with_a_problem(void **state)
{
	static const char *const garbage[] = {
		"", "{", "[]", "{\"from\":\"\xff\"}", "{\"from\":1}", "null", "{}x"};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(garbage); i++) {
		struct outcome o = {0};

		assert_int_equal(f->client->ops->call(f->client, "j1", "ping", str_from(garbage[i]),
					 US_PER_S, on_raw_reply, &o, &o.op),
			0);
		loop_advance_us(f->loop, US_PER_S / 2);
		assert_true(o.fired);
		assert_true(o.status == 400 || o.status == 422);
		assert_non_null(strstr(o.detail, "\"code\""));
	}
	assert_int_equal(f->n_calls, 0);
}

static void test_nobody_there(void **state)
{
	struct fixture *f = *state;
	struct outcome o = {0};

	assert_int_equal(
		rpc_call(f->loop, f->client, "j9", RPC_ping, &ping, 0, on_answer, &o, &o.op), 0);
	loop_advance_us(f->loop, 10000);
	assert_int_equal(o.failure, RPC_REFUSED);
	assert_string_equal(o.code, "");
	assert_int_equal(
		rpc_call(f->loop, f->client, NULL, RPC_ping, &ping, 0, on_answer, &o, &o.op),
		-EDESTADDRREQ);
}

/* The timeout is the row's plus what the caller said it would wait. */
static void test_timeout_includes_the_wait(void **state)
{
	struct fixture *f = *state;
	struct outcome o = {0};
	int64_t limit_us = rpc_methods[RPC_ping].timeout_us + 7 * US_PER_S;

	f->hold = true;
	assert_int_equal(rpc_call(f->loop, f->client, "j1", RPC_ping, &ping, 7 * US_PER_S,
				 on_answer, &o, &o.op),
		0);
	loop_advance_us(f->loop, limit_us - 1);
	assert_false(o.fired);
	loop_advance_us(f->loop, 1);
	assert_int_equal(o.failure, RPC_TIMED_OUT);
	loop_advance_us(f->loop, 1000);
	assert_int_equal(f->n_gone, 1);
}

static void test_cancelled_call_is_gone_for_the_handler(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	f->hold = true;
	start(f, &o, RPC_ping, &ping);
	loop_advance_us(f->loop, 1500);
	assert_non_null(f->held);
	op_cancel(&o.op);
	loop_advance_us(f->loop, 1000);
	assert_int_equal(f->n_gone, 1);
	loop_advance_us(f->loop, 20 * US_PER_S);
	assert_false(o.fired);
}

static void test_held_call_is_answered_later(void **state)
{
	struct fixture *f = *state;
	struct outcome o;
	struct msg_ping_reply reply = {.name = STR("later")};

	f->hold = true;
	start(f, &o, RPC_ping, &ping);
	loop_advance_us(f->loop, 2 * US_PER_S);
	rpc_call_reply(f->held, &reply);
	loop_advance_us(f->loop, 1000);
	assert_string_equal(o.name, "later");
	assert_int_equal(f->n_gone, 0);
	record_free(o.record);
}

static void test_freed_server_breaks_its_callers(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	f->hold = true;
	start(f, &o, RPC_ping, &ping);
	loop_advance_us(f->loop, 1000);
	rpc_server_free(take_ptr(&f->server));
	assert_int_equal(f->n_gone, 1);
	loop_advance_us(f->loop, 1000);
	assert_int_equal(o.failure, RPC_BROKEN);
}

static void test_server_outlives_its_node(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	f->hold = true;
	start(f, &o, RPC_ping, &ping);
	loop_advance_us(f->loop, 1000);
	f->node->ops->free(take_ptr(&f->node));
	assert_int_equal(f->n_gone, 1);
	loop_advance_us(f->loop, 1000);
	assert_int_equal(o.failure, RPC_BROKEN);
}

static void test_peers_go_round(void **state)
{
	struct fixture *f = *state;
	struct peers peers;
	const char *first, *second;

	peers_init(&peers, f->loop, " a:1, b:2,,");
	assert_int_equal(peers.n, 2);
	first = peers_current(&peers);
	peers_failed(&peers, first);
	second = peers_current(&peers);
	assert_string_not_equal(first, second);
	peers_failed(&peers, first); /* old news: another call failed there too */
	assert_string_equal(peers_current(&peers), second);
	peers_failed(&peers, second);
	assert_string_equal(peers_current(&peers), first);
	peers_fini(&peers);
	peers_init(&peers, f->loop, "");
	assert_null(peers_current(&peers));
	peers_failed(&peers, "a:1");
	peers_fini(&peers);
}

static void test_failures_have_names(void **state)
{
	for (enum rpc_failure i = RPC_OK; i <= RPC_GARBLED; i++)
		assert_non_null(rpc_failure_name(i));
	assert_true(rpc_failure_is_temporary(RPC_REFUSED));
	assert_true(rpc_failure_is_temporary(RPC_BROKEN));
	assert_true(rpc_failure_is_temporary(RPC_TIMED_OUT));
	assert_false(rpc_failure_is_temporary(RPC_OK));
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_answer),
		TEST(test_refusals_are_final),
		TEST(test_busy_is_temporary),
		TEST(test_internal_error_is_garbled),
		TEST(test_unserved_method),
		TEST(test_invalid_request_never_reaches_a_handler),
		TEST(test_garbage_is_answered_with_a_problem),
		TEST(test_nobody_there),
		TEST(test_timeout_includes_the_wait),
		TEST(test_cancelled_call_is_gone_for_the_handler),
		TEST(test_held_call_is_answered_later),
		TEST(test_freed_server_breaks_its_callers),
		TEST(test_server_outlives_its_node),
		TEST(test_peers_go_round),
		TEST(test_failures_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
