/* SPDX-License-Identifier: Apache-2.0 */
/* transport_loop: delay, loss, duplication, cuts, deaths and cancels, and that a seed brings it all back. */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/timer.h"
#include "rpc/transport.h"

#define HELD_MAX 16
#define TIMEOUT_US (5 * US_PER_S)

struct fixture {
	struct loop *loop;
	struct loop_net *net;
	struct transport *client, *node;
	struct transport_server *server;
	bool hold; /* keep requests instead of echoing them */
	struct transport_request *held[HELD_MAX];
	unsigned n_held, n_served, n_gone;
	struct buf trace;
};

struct outcome {
	struct fixture *f;
	struct op *op;
	bool fired;
	enum transport_failure failure;
	int status;
	char body[64];
	int64_t at_us;
};

static void on_gone(void *arg)
{
	struct fixture *f = arg;

	f->n_gone++;
}

static void on_request(
	void *arg, struct transport_request *request, struct str method, struct str body)
{
	struct fixture *f = arg;

	f->n_served++;
	buf_addf(&f->trace, "%" PRId64 " " STR_FMT " " STR_FMT "\n", loop_now_us(f->loop),
		STR_ARG(method), STR_ARG(body));
	if (!f->hold) {
		f->node->ops->reply(request, 200, body);
		return;
	}
	assert_true(f->n_held < HELD_MAX);
	f->held[f->n_held++] = request;
	f->node->ops->on_gone(request, on_gone, f);
}

static void on_reply(void *arg, const struct transport_reply *reply)
{
	struct outcome *o = arg;

	assert_false(o->fired);
	o->fired = true;
	o->op = NULL;
	o->failure = reply->failure;
	o->status = reply->status;
	o->at_us = loop_now_us(o->f->loop);
	snprintf(o->body, sizeof(o->body), STR_FMT, STR_ARG(reply->body));
	buf_addf(&o->f->trace, "%" PRId64 " reply %s\n", o->at_us, o->body);
}

static void start(struct fixture *f, uint64_t seed, const struct loop_net_options *options)
{
	const struct loop_options lo = {.fake_clock = true, .seed = seed};

	*f = (struct fixture){0};
	f->loop = loop_new(&lo);
	f->net = loop_net_new(f->loop, options);
	f->client = transport_loop_new(f->net, "e1");
	f->node = transport_loop_new(f->net, "j1");
	assert_int_equal(
		f->node->ops->serve(f->node, "10.0.0.1:4000", on_request, f, &f->server), 0);
}

static void stop(struct fixture *f)
{
	if (f->node)
		f->node->ops->server_free(f->server);
	if (f->client)
		f->client->ops->free(f->client);
	if (f->node)
		f->node->ops->free(f->node);
	loop_net_free(f->net);
	loop_free(f->loop);
	buf_fini(&f->trace);
}

static void call(struct fixture *f, struct outcome *o, const char *address, const char *body)
{
	*o = (struct outcome){.f = f};
	assert_int_equal(f->client->ops->call(f->client, address, "ping", str_from(body),
				 TIMEOUT_US, on_reply, o, &o->op),
		0);
	assert_false(o->fired);
}

static const struct loop_net_options steady = {.delay_min_us = 1000, .delay_max_us = 1000};

static void test_reply_after_both_delays(void **state)
{
	struct fixture f;
	struct outcome o;

	start(&f, 1, &steady);
	call(&f, &o, "10.0.0.1:4000", "hello");
	loop_advance_us(f.loop, 1999);
	assert_int_equal(f.n_served, 1);
	assert_false(o.fired);
	loop_advance_us(f.loop, 1);
	assert_true(o.fired);
	assert_int_equal(o.failure, TRANSPORT_OK);
	assert_int_equal(o.status, 200);
	assert_string_equal(o.body, "hello");
	stop(&f);
}

static void test_node_name_is_an_address(void **state)
{
	struct fixture f;
	struct outcome o;

	start(&f, 1, &steady);
	call(&f, &o, "j1", "by name");
	loop_advance_us(f.loop, 2000);
	assert_string_equal(o.body, "by name");
	stop(&f);
}

static void test_addresses(void **state)
{
	struct fixture f;
	struct outcome o;
	struct transport_server *any, *again;
	char address[32];

	start(&f, 1, &steady);
	assert_int_equal(f.node->ops->server_port(f.server), 4000);
	assert_int_equal(
		f.node->ops->serve(f.client, "10.0.0.1:4000", on_request, &f, &again), -EADDRINUSE);
	assert_int_equal(f.node->ops->serve(f.node, "127.0.0.1:0", on_request, &f, &any), 0);
	assert_int_not_equal(f.node->ops->server_port(any), 0);
	snprintf(address, sizeof(address), "127.0.0.1:%u", f.node->ops->server_port(any));
	call(&f, &o, address, "x");
	loop_advance_us(f.loop, 2000);
	assert_int_equal(o.failure, TRANSPORT_OK);
	f.node->ops->server_free(any);
	call(&f, &o, address, "x");
	loop_advance_us(f.loop, 2000);
	assert_int_equal(o.failure, TRANSPORT_REFUSED);
	stop(&f);
}

static void test_refused(void **state)
{
	struct fixture f;
	struct outcome o;

	start(&f, 1, &steady);
	call(&f, &o, "nobody:1", "x");
	loop_advance_us(f.loop, 2000);
	assert_true(o.fired);
	assert_int_equal(o.failure, TRANSPORT_REFUSED);
	assert_int_equal(f.n_served, 0);
	stop(&f);
}

static void test_loss_is_silence_until_the_timeout(void **state)
{
	struct fixture f;
	struct outcome o;
	const struct loop_net_options all_lost = {
		.delay_min_us = 1, .delay_max_us = 1, .loss_percent = 100};

	start(&f, 1, &all_lost);
	call(&f, &o, "j1", "x");
	loop_advance_us(f.loop, TIMEOUT_US - 1);
	assert_false(o.fired);
	loop_advance_us(f.loop, 1);
	assert_true(o.fired);
	assert_int_equal(o.failure, TRANSPORT_TIMEOUT);
	assert_int_equal(f.n_served, 0);
	stop(&f);
}

static void test_timeout_is_seen_by_the_server(void **state)
{
	struct fixture f;
	struct outcome o;

	start(&f, 1, &steady);
	f.hold = true;
	call(&f, &o, "j1", "x");
	loop_advance_us(f.loop, TIMEOUT_US);
	assert_int_equal(o.failure, TRANSPORT_TIMEOUT);
	assert_int_equal(f.n_gone, 0);
	loop_advance_us(f.loop, 1000);
	assert_int_equal(f.n_gone, 1);
	stop(&f);
}

static void test_cancel_is_seen_by_the_server(void **state)
{
	struct fixture f;
	struct outcome o;

	start(&f, 1, &steady);
	f.hold = true;
	call(&f, &o, "j1", "x");
	loop_advance_us(f.loop, 1500);
	op_cancel(&o.op);
	loop_advance_us(f.loop, 999);
	assert_int_equal(f.n_gone, 0);
	loop_advance_us(f.loop, 1);
	assert_int_equal(f.n_gone, 1);
	loop_advance_us(f.loop, 2 * TIMEOUT_US);
	assert_false(o.fired);
	stop(&f);
}

/* A request given up on still arrives, and its end only after it. */
static void test_cancelled_request_arrives_late(void **state)
{
	struct fixture f;
	struct outcome o;

	start(&f, 1, &steady);
	f.hold = true;
	call(&f, &o, "j1", "late");
	op_cancel(&o.op);
	loop_advance_us(f.loop, 1000);
	assert_int_equal(f.n_served, 1);
	assert_int_equal(f.n_gone, 1);
	assert_false(o.fired);
	stop(&f);
}

static void test_duplicate_is_served_twice_and_answered_once(void **state)
{
	struct fixture f;
	struct outcome o;
	const struct loop_net_options twice = {
		.delay_min_us = 10, .delay_max_us = 5000, .duplicate_percent = 100};

	start(&f, 7, &twice);
	call(&f, &o, "j1", "x");
	loop_advance_us(f.loop, 20000);
	assert_int_equal(f.n_served, 2);
	assert_true(o.fired);
	assert_string_equal(o.body, "x");
	stop(&f);
}

/* Both copies are held; the reply to the second comes first and ends the call. */
static void test_second_of_a_duplicate_may_answer_first(void **state)
{
	struct fixture f;
	struct outcome o;
	const struct loop_net_options twice = {
		.delay_min_us = 100, .delay_max_us = 100, .duplicate_percent = 100};

	start(&f, 7, &twice);
	f.hold = true;
	call(&f, &o, "j1", "x");
	loop_advance_us(f.loop, 100);
	assert_int_equal(f.n_held, 2);
	f.node->ops->reply(f.held[1], 200, STR("second"));
	loop_advance_us(f.loop, 100);
	assert_string_equal(o.body, "second");
	f.node->ops->reply(f.held[0], 200, STR("first"));
	loop_advance_us(f.loop, 1000);
	assert_string_equal(o.body, "second");
	stop(&f);
}

static void test_cut_loses_both_ways_and_heals(void **state)
{
	struct fixture f;
	struct outcome o, p;

	start(&f, 1, &steady);
	f.hold = true;
	call(&f, &o, "j1", "x");
	loop_advance_us(f.loop, 1000);
	loop_net_cut(f.net, "j1", "e1", true);
	f.node->ops->reply(f.held[0], 200, STR("lost"));
	call(&f, &p, "j1", "y");
	loop_advance_us(f.loop, TIMEOUT_US + 1000);
	assert_int_equal(o.failure, TRANSPORT_TIMEOUT);
	assert_int_equal(p.failure, TRANSPORT_TIMEOUT);
	assert_int_equal(f.n_served, 1);
	assert_int_equal(f.n_gone, 0);
	loop_net_cut(f.net, "e1", "j1", false);
	f.hold = false;
	call(&f, &o, "j1", "z");
	loop_advance_us(f.loop, 2000);
	assert_string_equal(o.body, "z");
	stop(&f);
}

static void test_cut_drops_what_is_under_way(void **state)
{
	struct fixture f;
	struct outcome o;

	start(&f, 1, &steady);
	call(&f, &o, "j1", "x");
	loop_advance_us(f.loop, 500);
	loop_net_cut(f.net, "e1", "j1", true);
	loop_advance_us(f.loop, 10000);
	assert_int_equal(f.n_served, 0);
	op_cancel(&o.op);
	stop(&f);
}

static void test_death_of_a_server_breaks_its_callers(void **state)
{
	struct fixture f;
	struct outcome o, p;
	struct transport_server *server;

	start(&f, 1, &steady);
	f.hold = true;
	call(&f, &o, "j1", "x");
	loop_advance_us(f.loop, 1000);
	server = f.server;
	f.node->ops->free(f.node);
	assert_int_equal(f.n_gone, 1);
	assert_false(o.fired);
	loop_advance_us(f.loop, 1000);
	assert_int_equal(o.failure, TRANSPORT_BROKEN);
	call(&f, &p, "j1", "y");
	loop_advance_us(f.loop, 2000);
	assert_int_equal(p.failure, TRANSPORT_REFUSED);
	f.client->ops->server_free(server);
	f.node = NULL;
	stop(&f);
}

static void test_death_of_a_caller_is_seen_by_the_server(void **state)
{
	struct fixture f;
	struct outcome o;

	start(&f, 1, &steady);
	f.hold = true;
	call(&f, &o, "j1", "x");
	loop_advance_us(f.loop, 1000);
	f.client->ops->free(take_ptr(&f.client));
	loop_advance_us(f.loop, 1000);
	assert_int_equal(f.n_gone, 1);
	loop_advance_us(f.loop, 2 * TIMEOUT_US);
	assert_false(o.fired);
	op_cancel(&o.op); /* the handle outlives the node */
	stop(&f);
}

static void test_restarted_node_serves_again(void **state)
{
	struct fixture f;
	struct outcome o;

	start(&f, 1, &steady);
	f.node->ops->server_free(f.server);
	f.node->ops->free(f.node);
	f.node = transport_loop_new(f.net, "j1");
	assert_int_equal(f.node->ops->serve(f.node, "10.0.0.1:4000", on_request, &f, &f.server), 0);
	call(&f, &o, "10.0.0.1:4000", "again");
	loop_advance_us(f.loop, 2000);
	assert_string_equal(o.body, "again");
	stop(&f);
}

/* --- the fate hook ---------------------------------------------------------------------------------------- */

static int64_t fate_first_lost(void *arg, const char *from, const char *to, const char *method,
	bool is_reply, struct str body)
{
	unsigned *n = arg;

	assert_string_equal(from, is_reply ? "j1" : "e1");
	assert_string_equal(to, is_reply ? "e1" : "j1");
	assert_string_equal(method, "ping");
	if ((*n)++ == 0)
		return -1;
	return is_reply ? 7 : 300;
}

static void test_fate_decides(void **state)
{
	struct fixture f;
	struct outcome o, p;
	unsigned n = 0;

	start(&f, 1, &steady);
	loop_net_set_fate(f.net, fate_first_lost, &n);
	call(&f, &o, "j1", "lost");
	call(&f, &p, "j1", "kept");
	loop_advance_us(f.loop, 306);
	assert_false(p.fired);
	loop_advance_us(f.loop, 1);
	assert_string_equal(p.body, "kept");
	assert_int_equal(n, 3);
	assert_int_equal(f.n_served, 1);
	op_cancel(&o.op);
	stop(&f);
}

/* --- replay ------------------------------------------------------------------------------------------------- */

static char *play(uint64_t seed)
{
	struct fixture f;
	struct outcome o[HELD_MAX];
	char body[8], *trace;
	const struct loop_net_options rough = {.delay_min_us = 10,
		.delay_max_us = 30000,
		.loss_percent = 20,
		.duplicate_percent = 20};

	start(&f, seed, &rough);
	for (unsigned i = 0; i < HELD_MAX; i++) {
		snprintf(body, sizeof(body), "%u", i);
		call(&f, &o[i], "j1", body);
		loop_advance_us(f.loop, 500);
	}
	loop_advance_us(f.loop, 2 * TIMEOUT_US);
	for (unsigned i = 0; i < HELD_MAX; i++)
		assert_true(o[i].fired);
	trace = buf_take(&f.trace);
	stop(&f);
	return trace;
}

static void test_a_seed_replays(void **state)
{
	char *a = play(42), *b = play(42), *c = play(43);

	assert_string_equal(a, b);
	assert_string_not_equal(a, c);
	free(a);
	free(b);
	free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reply_after_both_delays),
		cmocka_unit_test(test_node_name_is_an_address),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_loss_is_silence_until_the_timeout),
		cmocka_unit_test(test_timeout_is_seen_by_the_server),
		cmocka_unit_test(test_cancel_is_seen_by_the_server),
		cmocka_unit_test(test_cancelled_request_arrives_late),
		cmocka_unit_test(test_duplicate_is_served_twice_and_answered_once),
		cmocka_unit_test(test_second_of_a_duplicate_may_answer_first),
		cmocka_unit_test(test_cut_loses_both_ways_and_heals),
		cmocka_unit_test(test_cut_drops_what_is_under_way),
		cmocka_unit_test(test_death_of_a_server_breaks_its_callers),
		cmocka_unit_test(test_death_of_a_caller_is_seen_by_the_server),
		cmocka_unit_test(test_restarted_node_serves_again),
		cmocka_unit_test(test_fate_decides),
		cmocka_unit_test(test_a_seed_replays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
