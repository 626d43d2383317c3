/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chaos - two judicators on one memory store, four executors and a client in one process, on a fake clock, over the `loop` transport: for each
 * seed, delay, loss, duplication, cut links, and deaths of executors and judicators for a while; then all is healed and must end well.
 *
 * What must hold, for every seed:
 *   none lost             every task whose add was answered is done at the end: accepted, or cancelled if a cancel was answered
 *   none accepted twice   over all replies of all judicators each id is accepted at most once
 *   not in two places     a healthy executor (its row in the store has its epoch and is alive) runs only what it owns, or what is done
 *   nothing held          at the end no executor holds anything
 *
 * CONCLAVE_TEST_SEED=N plays one seed; CONCLAVE_TEST_SEEDS=N how many (1000). The seed is printed on failure.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reactor/base/clock.h"
#include "reactor/base/map.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/timer.h"
#include "roles/executor/executor.h"
#include "roles/judicator/judicator.h"
#include "test/fake/box_fake.h"
#include "test/fake/hand.h"
#include "rpc/task/status.h"
#include "rpc/task/task.h"

#define JUDICATORS 2
#define EXECUTORS 4
#define TASKS 24
#define SLOTS 2
#define CHAOS_US (15 * US_PER_S)
#define END_US (240 * US_PER_S)
#define EXPIRE_US (3 * US_PER_S)

/* A broken promise prints its seed and ends the process of this seed's share. */
#define HOLD(w, cond, ...)                                                                         \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "seed %llu at %.6f s: ", (unsigned long long)(w)->seed,    \
				(double)loop_now_us((w)->loop) / 1e6);                             \
			fprintf(stderr, __VA_ARGS__);                                              \
			fprintf(stderr, "\n");                                                     \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

struct world;

struct jnode {
	struct world *w;
	char name[8];
	struct transport *transport;
	struct store *store;
	struct judicator *judicator; /* NULL while dead */
	struct timer back;
};

struct enode {
	struct world *w;
	char name[8];
	struct transport *transport;
	struct box_host *box;
	struct executor *executor; /* NULL while dead */
	struct timer back, heal;
	bool ended; /* fenced: to be freed and started again */
};

struct tnode { /* a task of the client */
	struct world *w;
	struct id id;
	char *doc;
	int64_t priority;
	bool added, wants_cancel, asked_cancel, cancelled;
	unsigned accepted;
	struct op *op;
	struct timer again;
	unsigned at; /* judicator to ask */
};

struct world {
	uint64_t seed;
	struct loop *loop;
	struct loop_net *net;
	struct jnode j[JUDICATORS];
	struct enode e[EXECUTORS];
	struct tnode t[TASKS];
	struct transport *client;
	struct map languages, by_id;
	struct timer chaos;
	int64_t chaos_until_us;
	unsigned kills;
};

/* --- the nodes -------------------------------------------------------------------------------------------- */

static void on_changed(void *arg, const struct id *ids, unsigned n_ids, const struct str *languages,
	unsigned n_languages)
{
	struct jnode *j = arg;

	judicator_on_changed(j->judicator, ids, n_ids, languages, n_languages);
}

static void j_start(void *arg)
{
	struct jnode *j = arg;
	struct judicator_options o = {
		.name = j->name, .address = j->name, .store = j->store, .expire_us = EXPIRE_US};

	o.leading = j == &j->w->j[0];
	o.transport = j->transport = transport_loop_new(j->w->net, j->name);
	CHECK(judicator_new(j->w->loop, &o, &j->judicator) == 0);
}

static void j_kill(struct jnode *j)
{
	if (!j->judicator)
		return;
	j->w->kills++;
	judicator_free(take_ptr(&j->judicator));
	j->transport->ops->free(j->transport);
	timer_start(&j->back, (int64_t)loop_random_below(j->w->loop, 3 * US_PER_S));
}

static void e_stop(struct enode *e)
{
	executor_free(take_ptr(&e->executor));
	box_host_close(e->box);
	e->transport->ops->free(e->transport);
}

static void on_end(void *arg, enum executor_end end)
{
	struct enode *e = arg;

	(void)end;
	e->ended = true;
	timer_start(&e->back, (int64_t)loop_random_below(e->w->loop, US_PER_S));
}

static void on_task_change(
	void *arg, const char *id, int64_t attempt, const char *from, const char *to);

static void e_start(void *arg)
{
	struct enode *e = arg;
	struct box_options bo = {.slots = SLOTS, .helper_fd = -1};
	struct executor_options o = {.name = e->name,
		.slots = SLOTS,
		.judicators = "j0,j1",
		.languages = &e->w->languages,
		.wait_us = 2 * US_PER_S,
		.on_end = on_end,
		.on_task_change = on_task_change,
		.arg = e};
	char *why = NULL;

	if (e->ended) {
		e->ended = false;
		e_stop(e);
	}
	CHECK(box_host_open(e->w->loop, &box_fake, &bo, &e->box, &why) == 0);
	o.transport = e->transport = transport_loop_new(e->w->net, e->name);
	o.box = e->box;
	e->executor = executor_new(e->w->loop, &o);
}

static void e_kill(struct enode *e)
{
	if (!e->executor || e->ended)
		return;
	e->w->kills++;
	e_stop(e);
	timer_start(&e->back, (int64_t)loop_random_below(e->w->loop, 6 * US_PER_S));
}

/* --- not in two places ---------------------------------------------------------------------------------------- */

struct look { /* who runs one task, and what the store says of it, in one moment */
	struct world *w;
	struct id id;
	bool runs[EXECUTORS];
	int64_t epoch[EXECUTORS];
	bool healthy[EXECUTORS];
};

static void on_row(
	void *arg, enum store_status status, const struct store_executor *list, unsigned n)
{
	struct look *l = arg;

	(void)status;
	for (unsigned i = 0; i < EXECUTORS; i++) {
		for (unsigned k = 0; k < n; k++) {
			if (!strcmp(list[k].name, l->w->e[i].name))
				l->healthy[i] = list[k].epoch == l->epoch[i] && !list[k].dead;
		}
	}
}

static void on_view(void *arg, enum store_status status, const struct msg_get_reply *reply)
{
	struct look *l = arg;
	const struct msg_task_view *v = codec_item(reply->tasks, struct msg_task_view, 0);
	enum task_status at;

	(void)status;
	HOLD(l->w, reply->tasks.count == 1 && task_status_parse(v->status, &at), "%s is not there",
		l->id.hex);
	for (unsigned i = 0; i < EXECUTORS && !task_status_is_done(at); i++) {
		HOLD(l->w,
			!l->runs[i] || !l->healthy[i] ||
				(str_is(v->executor, l->w->e[i].name) && v->epoch == l->epoch[i]),
			"%s runs on %s (epoch %lld), which does not own it: " STR_FMT
			" (epoch %lld) does, status " STR_FMT,
			l->id.hex, l->w->e[i].name, (long long)l->epoch[i], STR_ARG(v->executor),
			(long long)v->epoch, STR_ARG(v->status));
	}
	free(l);
}

static void on_task_change(
	void *arg, const char *id, int64_t attempt, const char *from, const char *to)
{
	struct enode *e = arg;
	struct world *w = e->w;
	struct look *l = mem_alloc(sizeof(*l));
	struct msg_get_item item;
	struct msg_get_request r = {.items = {&item, 1}};
	struct store *store = w->j[0].store;

	(void)attempt, (void)from, (void)to;
	l->w = w;
	CHECK(id_parse(str_from(id), &l->id));
	for (unsigned i = 0; i < EXECUTORS; i++) {
		l->runs[i] = w->e[i].executor && executor_runs(w->e[i].executor, id);
		l->epoch[i] = w->e[i].executor ? executor_epoch(w->e[i].executor) : -1;
	}
	item = (struct msg_get_item){.id = l->id};
	store->ops->executors(store, true, on_row, l);
	store->ops->get(store, &r, on_view, l);
}

/* --- none accepted twice ------------------------------------------------------------------------------------------ */

static void count_accepted(struct world *w, struct str body)
{
	struct record *record cleanup(record_freep) = NULL;
	struct problem problem;
	const struct msg_report_reply *reply;

	if (codec_decode_text(&msg_report_reply_record, body, NULL, &record, &problem))
		return;
	reply = record_data(record);
	for (size_t i = 0; i < reply->accepted.count; i++) {
		const struct msg_task_ref *ref =
			codec_item(reply->accepted, struct msg_task_ref, i);
		struct tnode *t = map_get(&w->by_id, id_str(&ref->id));

		HOLD(w, t, "an unknown task is accepted: %s", ref->id.hex);
		HOLD(w, ++t->accepted == 1, "%s is accepted twice", ref->id.hex);
	}
}

static int64_t fate(void *arg, const char *from, const char *to, const char *method, bool is_reply,
	struct str body)
{
	struct world *w = arg;
	bool wild = loop_now_us(w->loop) < w->chaos_until_us;

	(void)from, (void)to;
	if (is_reply && !strcmp(method, "report"))
		count_accepted(w, body);
	if (wild && loop_random_below(w->loop, 100) < 4)
		return -1;
	if (wild && loop_random_below(w->loop, 100) < 3)
		return (int64_t)loop_random_below(w->loop, 4 * US_PER_S);
	return 200 + (int64_t)loop_random_below(w->loop, wild ? 20000 : 2000);
}

/* --- the client ------------------------------------------------------------------------------------------------------ */

static void t_send(void *arg);

static void on_answer(void *arg, struct rpc_answer *answer)
{
	struct tnode *t = arg;

	t->op = NULL;
	if (answer->failure == RPC_OK) {
		if (!t->added)
			t->added = true;
		else
			t->cancelled = true;
		if (t->wants_cancel && !t->cancelled)
			timer_start(
				&t->again, (int64_t)loop_random_below(t->w->loop, 2 * US_PER_S));
	} else if (answer->failure == RPC_REJECTED) {
		HOLD(t->w, t->added, "an add is rejected: %s", answer->problem.code);
		t->wants_cancel = false; /* done already */
	} else {
		t->at++;
		timer_start(&t->again, 50 * US_PER_MS);
	}
}

static void t_send(void *arg)
{
	struct tnode *t = arg;
	struct msg_add_request add = {.id = t->id,
		.language = STR("raw"),
		.priority = t->priority,
		.doc = {.text = str_from(t->doc)}};
	struct msg_cancel_request cancel = {.id = t->id};
	const char *to = t->at % 2 ? "j1" : "j0";

	t->asked_cancel = t->added;
	CHECK(rpc_call(t->w->loop, t->w->client, to, t->added ? RPC_cancel : RPC_add,
		      t->added ? (const void *)&cancel : &add, 0, on_answer, t, &t->op) == 0);
}

static void t_start(struct world *w, struct tnode *t)
{
	struct record *record cleanup(record_freep) = NULL;
	struct problem problem;
	struct buf doc = BUF_INIT;
	char body[200];

	t->w = w;
	t->id = id_make((uint32_t)w->seed, loop_random(w->loop));
	t->priority = (int64_t)loop_random_below(w->loop, 3);
	t->wants_cancel = loop_random_below(w->loop, 8) == 0;
	snprintf(body, sizeof(body),
		"{\"execute\":{\"command\":[\"/"
		"x\",\"run_us=%llu\",\"cpu_us=1000\",\"kill_us=%llu\"],"
		"\"limits\":{\"cpu_ms\":5000,\"wall_ms\":20000}}}",
		(unsigned long long)(1000 + loop_random_below(w->loop, loop_random_below(w->loop, 4)
									       ? 300000
									       : 4000000)),
		(unsigned long long)loop_random_below(w->loop, 200000));
	HOLD(w, task_parse(str_from(body), NULL, &record, &problem) == 0, "%s %s", problem.code,
		problem.detail);
	task_write(record_data(record), &doc);
	t->doc = buf_take(&doc);
	map_set(&w->by_id, id_str(&t->id), t);
	timer_init(&t->again, w->loop, t_send, t);
	timer_start(&t->again, (int64_t)loop_random_below(w->loop, CHAOS_US * 2 / 3));
}

/* --- chaos -------------------------------------------------------------------------------------------------------------- */

static void e_cut(struct enode *e, bool cut)
{
	loop_net_cut(e->w->net, e->name, "j0", cut);
	loop_net_cut(e->w->net, e->name, "j1", cut);
}

static void on_heal(void *arg)
{
	e_cut(arg, false);
}

static void on_chaos(void *arg)
{
	struct world *w = arg;
	struct enode *e = &w->e[loop_random_below(w->loop, EXECUTORS)];

	switch (loop_random_below(w->loop, 5)) {
	case 0:
	case 1:
		e_kill(e);
		break;
	case 2:
		j_kill(&w->j[loop_random_below(w->loop, JUDICATORS)]);
		break;
	case 3: /* silent for longer than expire, often: declared dead while it lives */
		e_cut(e, true);
		timer_start(&e->heal, (int64_t)loop_random_below(w->loop, 8 * US_PER_S));
		break;
	default: /* half a network */
		loop_net_cut(w->net, e->name, "j0", true);
		timer_start(&e->heal, (int64_t)loop_random_below(w->loop, 8 * US_PER_S));
	}
	if (loop_now_us(w->loop) < w->chaos_until_us)
		timer_start(&w->chaos, (int64_t)loop_random_below(w->loop, 1500 * US_PER_MS));
}

/* --- the end -------------------------------------------------------------------------------------------------------------- */

static void on_last_view(void *arg, enum store_status status, const struct msg_get_reply *reply)
{
	struct tnode *t = arg;
	const struct msg_task_view *v = codec_item(reply->tasks, struct msg_task_view, 0);

	HOLD(t->w, status == STORE_OK && reply->tasks.count == 1, "%s is lost", t->id.hex);
	HOLD(t->w,
		str_is(v->verdict, "accepted") ? !t->cancelled
					       : str_is(v->verdict, "cancelled") && t->asked_cancel,
		"%s ended as " STR_FMT " (cancel answered: %d, asked for: %d), message " STR_FMT,
		t->id.hex, STR_ARG(v->verdict), t->cancelled, t->asked_cancel, STR_ARG(v->message));
}

static void on_pending(void *arg, enum store_status status, int64_t pending)
{
	CHECK(status == STORE_OK);
	*(int64_t *)arg = pending;
}

static bool all_quiet(struct world *w)
{
	int64_t pending = -1;
	struct store *store = w->j[0].store;

	for (unsigned i = 0; i < TASKS; i++) {
		if (!w->t[i].added || w->t[i].op || timer_is_armed(&w->t[i].again))
			return false;
	}
	for (unsigned i = 0; i < EXECUTORS; i++) {
		if (!w->e[i].executor || w->e[i].ended || executor_held(w->e[i].executor))
			return false;
	}
	store->ops->pending(store, on_pending, &pending);
	loop_advance_us(w->loop, 0);
	return pending == 0;
}

static void world_start(struct world *w, uint64_t seed)
{
	struct loop_options lo = {.fake_clock = true, .seed = seed};
	struct loop_net_options no = {
		.delay_min_us = 200, .delay_max_us = 20000, .duplicate_percent = 3};

	*w = (struct world){.seed = seed};
	w->loop = loop_new(&lo);
	w->net = loop_net_new(w->loop, &no);
	loop_net_set_fate(w->net, fate, w);
	w->chaos_until_us = loop_now_us(w->loop) + CHAOS_US;
	map_init(&w->languages);
	map_init(&w->by_id);
	for (unsigned i = 0; i < JUDICATORS; i++) {
		struct jnode *j = &w->j[i];
		struct store_options so = {.max_retries = 1000, .on_changed = on_changed, .arg = j};

		j->w = w;
		snprintf(j->name, sizeof(j->name), "j%u", i);
		timer_init(&j->back, w->loop, j_start, j);
		CHECK((i ? store_memory_share(w->j[0].store, &so, &j->store)
			 : store_memory.open(w->loop, &so, &j->store)) == 0);
		j_start(j);
	}
	for (unsigned i = 0; i < EXECUTORS; i++) {
		struct enode *e = &w->e[i];

		e->w = w;
		snprintf(e->name, sizeof(e->name), "e%u", i);
		timer_init(&e->back, w->loop, e_start, e);
		timer_init(&e->heal, w->loop, on_heal, e);
		e_start(e);
	}
	w->client = transport_loop_new(w->net, "client");
	for (unsigned i = 0; i < TASKS; i++)
		t_start(w, &w->t[i]);
	timer_init(&w->chaos, w->loop, on_chaos, w);
	timer_start(&w->chaos, US_PER_S);
}

static void world_end(struct world *w)
{
	for (unsigned i = 0; i < TASKS; i++) {
		op_cancel(&w->t[i].op);
		free(w->t[i].doc);
	}
	for (unsigned i = 0; i < EXECUTORS; i++)
		e_stop(&w->e[i]);
	for (unsigned i = 0; i < JUDICATORS; i++) {
		judicator_free(w->j[i].judicator);
		w->j[i].transport->ops->free(w->j[i].transport);
	}
	loop_advance_us(w->loop, 0);
	for (unsigned i = JUDICATORS; i-- > 0;)
		w->j[i].store->ops->close(w->j[i].store);
	w->client->ops->free(w->client);
	loop_net_free(w->net);
	map_fini(&w->languages);
	map_fini(&w->by_id);
	loop_free(w->loop);
}

static void play(uint64_t seed)
{
	struct world *w = mem_alloc(sizeof(*w));

	world_start(w, seed);
	while (!all_quiet(w) || loop_now_us(w->loop) < w->chaos_until_us + 10 * US_PER_S) {
		loop_advance_us(w->loop, US_PER_S / 4);
		HOLD(w, loop_now_us(w->loop) < END_US, "work is left 225 s after the chaos");
	}
	for (unsigned i = 0; i < TASKS; i++) {
		struct msg_get_item item = {.id = w->t[i].id};
		struct msg_get_request r = {.items = {&item, 1}};

		w->j[1].store->ops->get(w->j[1].store, &r, on_last_view, &w->t[i]);
		loop_advance_us(w->loop, 0);
	}
	world_end(w);
	free(w);
}

/* One share of the seeds a processor. */
static void every_seed_ends_well(void **state)
{
	const char *one = getenv("CONCLAVE_TEST_SEED"), *many = getenv("CONCLAVE_TEST_SEEDS");
	uint64_t n = many ? strtoull(many, NULL, 10) : 1000;
	long shares = sysconf(_SC_NPROCESSORS_ONLN);
	bool good = true;
	int status;

	(void)state;
	if (one) {
		play(strtoull(one, NULL, 10));
		return;
	}
	for (long share = 0; share < shares; share++) {
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (pid == 0) {
			for (uint64_t seed = 1 + (uint64_t)share; seed <= n;
				seed += (uint64_t)shares)
				play(seed);
			exit(0);
		}
	}
	while (wait(&status) > 0)
		good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
	assert_true(good);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_seed_ends_well)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
