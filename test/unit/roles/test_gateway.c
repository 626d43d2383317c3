/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway over real sockets on loopback, against a real judicator on a memory store (loop transport), with an executor
 * played by hand; and against a scripted judicator where the trouble is the judicator's.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "cfg/language.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/gateway/gateway.h"
#include "roles/judicator/judicator.h"

#define DEADLINE_US (10 * US_PER_S)
#define CPP "{\"language\":\"cpp\",\"source\":\"int main(){}\",\"expected\":\"3\\n\"}"
#define RESULT                                                                                     \
	"{\"verdict\":\"accepted\",\"compile\":{\"exit_code\":0,\"stdout\":\"\"},"                 \
	"\"cases\":[{\"verdict\":\"accepted\",\"stdout\":\"3\\n\"},"                               \
	"{\"verdict\":\"accepted\",\"stdout\":{\"base64\":\"/wA=\"}}],"                            \
	"\"score\":2,\"max_score\":2,\"isolation\":\"full\"}"

struct fixture {
	struct loop *loop;
	struct loop_net *net;
	struct transport *t_gateway, *t_judicator, *t_executor;
	struct store *store;
	struct judicator *judicator;
	struct rpc_server *script;
	struct map languages;
	struct gateway *gateway;
	int64_t epoch, seq;
	/* what a scripted judicator saw and does */
	unsigned n_adds, n_gets, n_held, fail_adds;
	/* a transport whose line is full for so many calls */
	struct transport narrow;
	unsigned n_refused, refusals;
	char asked[32]; /* the judicator it was given last */
	struct rpc_call *held[8];
	char ids[8][ID_LEN + 1];
	bool stopped;
};

/* --- the world ------------------------------------------------------------------------------------------------ */

static void on_changed(void *arg, const struct id *ids, unsigned n_ids, const struct str *languages,
	unsigned n_languages)
{
	struct fixture *f = arg;

	judicator_on_changed(f->judicator, ids, n_ids, languages, n_languages);
}

static void start_judicator(struct fixture *f)
{
	struct judicator_options options = {
		.name = "j1",
		.address = "j1:1",
		.expire_us = 60 * US_PER_S,
		.leading = true,
	};

	f->t_judicator = transport_loop_new(f->net, "j1");
	options.transport = f->t_judicator;
	options.store = f->store;
	assert_int_equal(judicator_new(f->loop, &options, &f->judicator), 0);
}

static int narrow_call(struct transport *t, const char *address, const char *method,
	struct str body, int64_t timeout_us, transport_reply_fn *cb, void *arg, struct op **op)
{
	struct fixture *f = container_of(t, struct fixture, narrow);

	if (f->n_refused && strcmp(f->asked, address) != 0)
		fail_msg("moved from %s to %s", f->asked, address);
	snprintf(f->asked, sizeof(f->asked), "%s", address);
	if (f->n_refused < f->refusals) {
		f->n_refused++;
		return -EAGAIN;
	}
	return f->t_gateway->ops->call(
		f->t_gateway, address, method, body, timeout_us, cb, arg, op);
}

static const struct transport_ops narrow_ops = {.name = "narrow", .call = narrow_call};

static void start_gateway(
	struct fixture *f, const char *judicators, int64_t body_max, unsigned waiting_max)
{
	struct gateway_options options = {
		.transport = f->narrow.ops ? &f->narrow : f->t_gateway,
		.judicators = judicators,
		.addresses = "127.0.0.1:0",
		.hosts = "judge.example, exact.example:8443",
		.languages = &f->languages,
		.body_max = body_max,
		.read_timeout_us = 5 * US_PER_S,
		.wait_us = 2 * US_PER_S,
		.waiting_max = waiting_max,
		.done_cache = 256 << 10,
		.beat_us = 200 * US_PER_MS,
	};

	assert_int_equal(gateway_new(f->loop, &options, &f->gateway), 0);
}

static struct fixture *world(void)
{
	struct fixture *f = mem_alloc(sizeof(*f));
	struct store_options options = {.max_retries = 3, .on_changed = on_changed, .arg = f};
	struct loop_net_options quick = {0};
	struct cfg_errors errors = {0};

	f->loop = loop_new(NULL);
	f->net = loop_net_new(f->loop, &quick);
	f->t_gateway = transport_loop_new(f->net, "g1");
	f->t_executor = transport_loop_new(f->net, "e1");
	map_init(&f->languages);
	language_load_dir(CONCLAVE_SOURCE_DIR "/cfg/languages", &f->languages, &errors);
	assert_int_not_equal(map_count(&f->languages), 0);
	assert_int_equal(store_memory.open(f->loop, &options, &f->store), 0);
	return f;
}

static int setup(void **state)
{
	struct fixture *f = world();

	start_judicator(f);
	start_gateway(f, "j1:1", 4096, 0);
	*state = f;
	return 0;
}

/* No judicator yet. */
static int setup_alone(void **state)
{
	*state = world();
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	gateway_free(f->gateway);
	judicator_free(f->judicator);
	rpc_server_free(f->script);
	f->store->ops->close(f->store);
	f->t_gateway->ops->free(f->t_gateway);
	f->t_executor->ops->free(f->t_executor);
	if (f->t_judicator)
		f->t_judicator->ops->free(f->t_judicator);
	loop_net_free(f->net);
	loop_free(f->loop);
	language_map_fini(&f->languages);
	free(f);
	return 0;
}

static void turn_until(struct fixture *f, bool (*is)(void *arg), void *arg)
{
	int64_t until_us = loop_now_us(f->loop) + DEADLINE_US;

	while (!is(arg)) {
		if (loop_now_us(f->loop) > until_us)
			fail_msg("nothing came of it in %lld s",
				(long long)(DEADLINE_US / US_PER_S));
		loop_turn(f->loop, 1000);
	}
}

static void on_stopped(void *arg)
{
	((struct fixture *)arg)->stopped = true;
}

static bool is_stopped(void *arg)
{
	return ((struct fixture *)arg)->stopped;
}

/* --- a client over a socket --------------------------------------------------------------------------------------- */

struct client {
	int fd;
	bool closed, is_head;
	struct buf in;
	/* of the last answer */
	int status;
	struct str head, body;
	struct json_tree *tree;
};

static struct client *client_new(struct fixture *f)
{
	struct client *c = mem_alloc(sizeof(*c));
	struct sockaddr_in sin = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)gateway_port(f->gateway)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(c->fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(fcntl(c->fd, F_SETFL, O_NONBLOCK), 0);
	return c;
}

static void client_free(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	json_free(c->tree);
	buf_fini(&c->in);
	free(c);
}

static void client_write(struct client *c, struct str bytes)
{
	assert_int_equal(write(c->fd, bytes.p, bytes.n), bytes.n);
	buf_clear(&c->in);
	c->status = 0;
}

/* headers: extra lines, each with CRLF. */
static void client_send_at(struct client *c, const char *host, const char *method, const char *path,
	const char *headers, struct str body)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;

	buf_addf(&text, "%s %s HTTP/1.1\r\nHost: %s\r\n%s", method, path, host, headers);
	if (body.p)
		buf_addf(&text, "Content-Length: %zu\r\n", body.n);
	buf_addf(&text, "\r\n");
	buf_add_str(&text, body);
	c->is_head = !strcmp(method, "HEAD");
	client_write(c, buf_str(&text));
}

static void client_send(struct fixture *f, struct client *c, const char *method, const char *path,
	const char *headers, struct str body)
{
	char host[32];

	snprintf(host, sizeof(host), "127.0.0.1:%u", gateway_port(f->gateway));
	client_send_at(c, host, method, path, headers, body);
}

static void client_parse(struct client *c)
{
	char *end = c->in.len ? strstr(c->in.data, "\r\n\r\n") : NULL;
	char *length;
	size_t n;

	if (!end)
		return;
	length = strcasestr(c->in.data, "\r\nContent-Length:");
	if (!length)
		assert_int_equal(atoi(c->in.data + 9), 304);
	n = c->is_head || !length ? 0 : strtoul(length + 17, NULL, 10);
	c->head = (struct str){c->in.data, (size_t)(end - c->in.data) + 2};
	c->body = (struct str){end + 4, n};
	if (c->in.len >= (size_t)(end + 4 - c->in.data) + n)
		c->status = atoi(c->in.data + 9);
}

static bool client_is_answered(void *arg)
{
	struct client *c = arg;
	ssize_t n = read(c->fd, buf_reserve(&c->in, 65536), 65536);

	if (n == 0)
		c->closed = true;
	if (n > 0) {
		c->in.len += (size_t)n;
		c->in.data[c->in.len] = '\0';
	}
	client_parse(c);
	return c->status || c->closed;
}

static void client_receive(struct fixture *f, struct client *c)
{
	struct json_error error;

	turn_until(f, client_is_answered, c);
	assert_int_not_equal(c->status, 0);
	json_free(take_ptr(&c->tree));
	if (memmem(c->head.p, c->head.n, "json", 4) && c->body.n)
		assert_int_equal(json_parse(c->body, NULL, &c->tree, &error), 0);
}

static bool has_header(const struct client *c, const char *line)
{
	struct buf head cleanup(buf_fini) = BUF_INIT;

	buf_add_str(&head, c->head);
	return strcasestr(head.data, line) != NULL;
}

/* One request; the status. */
static int ask(
	struct fixture *f, struct client *c, const char *method, const char *path, const char *body)
{
	client_send(f, c, method, path, body ? "Content-Type: application/json\r\n" : "",
		str_from(body));
	client_receive(f, c);
	return c->status;
}

static const struct json *member(const struct client *c, const char *key)
{
	return json_get(json_root(c->tree), key);
}

static const char *text_of(const struct client *c, const char *key)
{
	const struct json *node = member(c, key);

	assert_non_null(node);
	assert_int_equal(node->type, JSON_STRING);
	return node->text.p;
}

static void assert_null_member(const struct client *c, const char *key)
{
	const struct json *node = member(c, key);

	assert_non_null(node);
	assert_int_equal(node->type, JSON_NULL);
}

static void assert_problem(const struct client *c, int status, const char *code)
{
	int64_t in_body = 0;

	if (c->status != status || !c->tree || strcmp(text_of(c, "code"), code) != 0)
		fail_msg(
			"wanted %d %s, got %d " STR_FMT, status, code, c->status, STR_ARG(c->body));
	assert_true(has_header(c, "Content-Type: application/problem+json"));
	assert_true(json_i64(member(c, "status"), &in_body));
	assert_int_equal(in_body, status);
	assert_int_not_equal(strlen(text_of(c, "detail")), 0);
	assert_int_equal(has_header(c, "Retry-After:"), status == 503);
}

/* --- an executor by hand ------------------------------------------------------------------------------------------------ */

struct sent {
	bool answered;
	struct op *op;
	struct record *record;
};

static void on_answer(void *arg, struct rpc_answer *answer)
{
	struct sent *s = arg;

	s->answered = true;
	s->op = NULL;
	assert_int_equal(answer->failure, RPC_OK);
	s->record = take_ptr(&answer->record);
}

static bool sent_is_answered(void *arg)
{
	return ((struct sent *)arg)->answered;
}

static struct record *call(struct fixture *f, enum rpc_method method, const void *request)
{
	struct sent s = {0};

	assert_int_equal(
		rpc_call(f->loop, f->t_executor, "j1:1", method, request, 0, on_answer, &s, &s.op),
		0);
	turn_until(f, sent_is_answered, &s);
	return s.record;
}

static void enroll(struct fixture *f)
{
	struct msg_register_request hello = {.executor = STR("e1"), .base = f->epoch};
	struct record *r;

	if (f->epoch)
		return;
	r = call(f, RPC_register, &hello);
	f->epoch = ((const struct msg_register_reply *)record_data(r))->epoch;
	record_free(r);
}

/* Takes one task, and reports that it runs this case; what it held before goes back. */
static void run_case(struct fixture *f, const char *id, int64_t attempt, int64_t case_no)
{
	struct str languages[] = {STR("cpp")};
	struct msg_executing_item item = {
		.attempt = attempt, .status = STR("running"), .case_no = case_no};
	struct msg_report_request report = {.executor = STR("e1"), .languages = {languages, 1}};

	enroll(f);
	assert_true(id_parse(str_from(id), &item.id));
	for (unsigned i = 0; i < 2; i++) {
		report.epoch = f->epoch;
		report.acked = f->seq;
		report.seq = ++f->seq;
		report.vacant = case_no == 0 && i == 0;
		if (i > 0 || case_no > 0)
			report.executing = (struct codec_list){&item, 1};
		record_free(call(f, RPC_report, &report));
	}
}

/* Reports the task that runs as accepted. */
static void end_case(struct fixture *f, const char *id, int64_t attempt, struct str result)
{
	struct msg_complete_item done = {.attempt = attempt,
		.status = STR("success"),
		.verdict = STR("accepted"),
		.result.text = result};
	struct msg_report_request report = {
		.executor = STR("e1"), .epoch = f->epoch, .acked = f->seq, .complete = {&done, 1}};

	assert_true(id_parse(str_from(id), &done.id));
	report.seq = ++f->seq;
	record_free(call(f, RPC_report, &report));
}

/* Takes all that waits, and reports it as accepted. Returns how many. */
static size_t judge_all(struct fixture *f)
{
	struct str languages[] = {STR("cpp"), STR("raw")};
	struct msg_report_request report = {.executor = STR("e1"), .languages = {languages, 2}};
	struct record *claimed, *accepted;
	const struct msg_report_reply *reply;
	struct msg_complete_item *done;
	size_t n;

	enroll(f);
	report.epoch = f->epoch;
	report.acked = f->seq;
	report.seq = ++f->seq;
	report.vacant = 2000;
	report.slots = 4;
	report.toolchains.text = STR("{\"cpp\":\"g++ 12.2\"}");
	claimed = call(f, RPC_report, &report);
	reply = record_data(claimed);
	n = reply->assign.count;
	done = mem_array(n + 1, sizeof(*done));
	for (size_t i = 0; i < n; i++) {
		const struct msg_assign_item *a =
			codec_item(reply->assign, struct msg_assign_item, i);

		done[i] = (struct msg_complete_item){.id = a->id,
			.attempt = a->attempt,
			.status = STR("success"),
			.verdict = STR("accepted"),
			.result.text = STR(RESULT)};
	}
	report.acked = f->seq;
	report.seq = ++f->seq;
	report.vacant = 0;
	report.complete = (struct codec_list){done, n};
	accepted = call(f, RPC_report, &report);
	assert_int_equal(
		((const struct msg_report_reply *)record_data(accepted))->accepted.count, n);
	record_free(accepted);
	record_free(claimed);
	free(done);
	return n;
}

static void task_path(const struct client *c, char out[128], const char *query)
{
	snprintf(out, 128, "/api/v1/tasks/%s%s", text_of(c, "id"), query);
}

/* --- tasks ----------------------------------------------------------------------------------------------------------------- */

static void assert_judged(const struct client *c)
{
	const struct json *cases = member(c, "cases");
	int64_t n = 0;

	assert_string_equal(text_of(c, "status"), "success");
	assert_true(member(c, "done")->boolean);
	assert_string_equal(text_of(c, "verdict"), "accepted");
	assert_string_equal(text_of(c, "executor"), "e1");
	assert_string_equal(text_of(c, "isolation"), "full");
	assert_string_equal(text_of(c, "language"), "cpp");
	assert_true(json_i64(member(c, "score"), &n));
	assert_int_equal(n, 2);
	assert_true(json_i64(member(c, "attempt"), &n));
	assert_int_equal(n, 1);
	assert_int_equal(strlen(text_of(c, "add_time")), strlen("2026-11-27T21:00:00.000Z"));
	assert_int_equal(strlen(text_of(c, "start_time")), strlen("2026-11-27T21:00:00.000Z"));
	assert_int_equal(strlen(text_of(c, "done_time")), strlen("2026-11-27T21:00:00.000Z"));
	assert_int_equal(cases->count, 2);
	assert_string_equal(json_get(cases->first, "stdout")->text.p, "3\n");
	assert_string_equal(
		json_get(json_get(cases->first->next, "stdout"), "base64")->text.p, "/wA=");
	assert_true(json_i64(json_get(member(c, "compile"), "exit_code"), &n));
}

static void submits_and_reads(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f);
	char path[128], location[160];

	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	assert_true(has_header(c, "Content-Type: application/json"));
	assert_true(id_is_valid(str_from(text_of(c, "id"))));
	assert_string_equal(text_of(c, "status"), "pending");
	assert_false(member(c, "done")->boolean);
	assert_null_member(c, "verdict");
	assert_null_member(c, "start_time");
	assert_null_member(c, "cases");
	task_path(c, path, "");
	snprintf(location, sizeof(location), "Location: %s\r\n", path);
	assert_true(has_header(c, location));

	assert_int_equal(ask(f, c, "GET", path, NULL), 200);
	assert_string_equal(text_of(c, "status"), "pending");
	assert_false(has_header(c, "Location:"));
	assert_int_equal(judge_all(f), 1);
	assert_int_equal(ask(f, c, "GET", path, NULL), 200);
	assert_judged(c);
	task_path(c, path, "?wait=5000");
	assert_int_equal(ask(f, c, "GET", path, NULL), 200);
	assert_judged(c);
	client_free(c);
}

static void shows_done_tasks_without_a_judicator(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f);
	char read[128], waited[128], waits[160];

	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	task_path(c, read, "");
	assert_int_equal(ask(f, c, "GET", read, NULL), 200); /* not done: nothing to keep */
	assert_int_equal(judge_all(f), 1);
	assert_int_equal(ask(f, c, "GET", read, NULL), 200);
	assert_judged(c);
	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	task_path(c, waited, "");
	assert_int_equal(judge_all(f), 1);
	task_path(c, waits, "?wait=5000");
	assert_int_equal(ask(f, c, "GET", waits, NULL), 200);
	assert_judged(c);

	judicator_free(take_ptr(&f->judicator));
	assert_int_equal(ask(f, c, "GET", read, NULL), 200);
	assert_judged(c);
	assert_int_equal(ask(f, c, "GET", waited, NULL), 200);
	assert_judged(c);
	assert_int_equal(ask(f, c, "GET", waits, NULL), 200);
	assert_judged(c);
	client_free(c);
}

static void shows_what_was_set(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f);
	char path[128];

	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks",
				 "{\"user\":\"zo\\u00eb\",\"priority\":-3,\"labels\":[\"a\",\"b\"],"
				 "\"execute\":{\"command\":\"/bin/true\"}}"),
		201);
	task_path(c, path, "");
	assert_int_equal(ask(f, c, "GET", path, NULL), 200);
	assert_string_equal(text_of(c, "user"), "zo\xc3\xab");
	assert_null_member(c, "language");
	assert_int_equal(member(c, "labels")->count, 2);
	assert_string_equal(member(c, "priority")->text.p, "-3");
	client_free(c);
}

static void on_counted(void *arg, enum store_status status, int64_t n)
{
	*(int64_t *)arg = n;
}

static int64_t pending(struct fixture *f)
{
	int64_t n = -1;

	f->store->ops->pending(f->store, on_counted, &n);
	while (n < 0)
		loop_turn(f->loop, 1000);
	return n;
}

static bool one_is_pending(void *arg)
{
	return pending(arg) == 1;
}

static void waits_for_the_verdict(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f), *other = client_new(f);
	char path[128];

	client_send(f, c, "POST", "/api/v1/tasks?wait=60000",
		"Content-Type: application/json; charset=utf-8\r\n", STR(CPP));
	turn_until(f, one_is_pending, f);
	assert_false(client_is_answered(c));
	assert_int_equal(ask(f, other, "GET", "/api/v1/tasks", NULL), 200);
	snprintf(path, sizeof(path), "/api/v1/tasks/" STR_FMT "?wait=60000",
		STR_ARG(json_get(member(other, "tasks")->first, "id")->text));
	client_send(f, other, "GET", path, "", STR_NULL);
	assert_int_equal(judge_all(f), 1);
	client_receive(f, c);
	assert_int_equal(c->status, 201);
	assert_judged(c);
	assert_true(has_header(c, "Location: /api/v1/tasks/"));
	client_receive(f, other);
	assert_int_equal(other->status, 200);
	assert_judged(other);
	client_free(c);
	client_free(other);
}

static void answers_when_the_wait_is_over(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f);
	int64_t from_us = loop_now_us(f->loop);
	char path[128];

	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks?wait=50", CPP), 201);
	assert_true(loop_now_us(f->loop) - from_us >= 50 * US_PER_MS);
	assert_string_equal(text_of(c, "status"), "pending");
	task_path(c, path, "?wait=20");
	assert_int_equal(ask(f, c, "GET", path, NULL), 200);
	assert_string_equal(text_of(c, "status"), "pending");
	client_free(c);
}

static void cancels(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f), *waiter = client_new(f);
	char path[128], wait[128];

	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	task_path(c, path, "");
	task_path(c, wait, "?wait=60000");
	client_send(f, waiter, "GET", wait, "", STR_NULL);
	assert_int_equal(ask(f, c, "DELETE", path, NULL), 200);
	assert_string_equal(text_of(c, "status"), "cancelled");
	assert_true(member(c, "done")->boolean);
	client_receive(f, waiter);
	assert_int_equal(waiter->status, 200);
	assert_string_equal(text_of(waiter, "status"), "cancelled");
	assert_int_equal(ask(f, c, "DELETE", path, NULL), 200); /* safe to repeat */
	assert_string_equal(text_of(c, "status"), "cancelled");
	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	task_path(c, path, "");
	assert_int_equal(judge_all(f), 1);
	ask(f, c, "DELETE", path, NULL);
	assert_problem(c, 409, "task_done");
	ask(f, c, "DELETE", "/api/v1/tasks/0123456789abcdef01234567", NULL);
	assert_problem(c, 404, "task_unknown");
	client_free(c);
	client_free(waiter);
}

static void submit_keyed(
	struct fixture *f, struct client *c, const char *query, const char *key, const char *body)
{
	char path[64], headers[400];

	snprintf(path, sizeof(path), "/api/v1/tasks%s", query);
	snprintf(headers, sizeof(headers),
		"Content-Type: application/json\r\nIdempotency-Key: %s\r\n", key);
	client_send(f, c, "POST", path, headers, str_from(body));
	client_receive(f, c);
}

static void repeats_by_key(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f);
	char id[ID_LEN + 1];

	submit_keyed(f, c, "", "k1", CPP);
	assert_int_equal(c->status, 201);
	snprintf(id, sizeof(id), "%s", text_of(c, "id"));
	submit_keyed(f, c, "", "k1", CPP);
	assert_int_equal(c->status, 200);
	assert_string_equal(text_of(c, "id"), id);
	assert_int_equal(pending(f), 1);
	judge_all(f);
	submit_keyed(f, c, "?wait=60000", "k1", CPP);
	assert_int_equal(c->status, 200);
	assert_judged(c);
	submit_keyed(f, c, "", "k1", "{\"language\":\"cpp\",\"source\":\"other\"}");
	assert_problem(c, 409, "task_conflict");
	submit_keyed(f, c, "", "k1", "{\"user\":\"u\",\"language\":\"cpp\",\"source\":\"other\"}");
	assert_int_equal(c->status, 201);
	assert_string_not_equal(text_of(c, "id"), id);
	submit_keyed(f, c, "", "k\xc3\xa9", CPP);
	assert_problem(c, 400, "bad_idempotency_key");
	client_free(c);
}

/* --- bad input --------------------------------------------------------------------------------------------------------------- */

static void refuses_bad_submissions(void **state)
{
	static const struct {
		const char *body;
		int status;
		const char *code, *pointer;
	} rows[] = {
		{"", 400, "json_syntax", ""},
		{"{", 400, "json_syntax", ""},
		{"source=1", 400, "json_syntax", ""},
		{"{\"language\":\"cpp\",\"source\":\"\xff\"}", 400, "json_utf8", ""},
		{"{\"language\":\"cpp\",\"language\":\"cpp\"}", 400, "json_duplicate_key", ""},
		{"[]", 400, "wrong_type", ""},
		{"{\"language\":\"cpp\",\"source\":1}", 400, "wrong_type", "/source"},
		{"{\"language\":\"cpp\",\"source\":\"\",\"sauce\":1}", 400, "unknown_field",
			"/sauce"},
		{"{\"language\":\"klingon\",\"source\":\"\"}", 422, "unknown_language",
			"/language"},
		{"{\"language\":\"cpp\"}", 422, "missing_source", NULL},
		{"{\"execute\":{\"command\":[]}}", 422, "empty_command", "/execute/command"},
		{"{\"language\":\"cpp\",\"source\":\"\",\"limits\":{\"cpu_ms\":0}}", 422,
			"out_of_range", "/limits/cpu_ms"},
		{"{\"language\":\"cpp\",\"source\":\"\",\"limits\":{\"cpu_ms\":60001}}", 422,
			"out_of_range", "/limits/cpu_ms"},
		{"{\"language\":\"cpp\",\"source\":\"\",\"limits\":{\"cpu_ms\":-1}}", 422,
			"out_of_range", "/limits/cpu_ms"},
	};
	struct fixture *f = *state;
	struct client *c = client_new(f);

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		ask(f, c, "POST", "/api/v1/tasks", rows[i].body);
		assert_problem(c, rows[i].status, rows[i].code);
		if (rows[i].pointer)
			assert_string_equal(text_of(c, "pointer"), rows[i].pointer);
	}
	assert_int_equal(pending(f), 0);
	assert_int_equal(
		ask(f, c, "POST", "/api/v1/tasks", CPP), 201); /* the connection is still good */
	client_free(c);
}

static void refuses_by_headers(void **state)
{
	static const struct {
		const char *host, *headers;
		int status;
		const char *code;
	} rows[] = {
		{"127.0.0.1:PORT", "", 415, "unsupported_type"},
		{"127.0.0.1:PORT", "Content-Type: text/plain\r\n", 415, "unsupported_type"},
		{"127.0.0.1:PORT", "Content-Type: application/jsonp\r\n", 415, "unsupported_type"},
		{"127.0.0.1:PORT", "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
			415, "unsupported_encoding"},
		{"evil.example", "Content-Type: application/json\r\n", 400, "bad_host"},
		{"127.0.0.1:1", "Content-Type: application/json\r\n", 400, "bad_host"},
		{"exact.example:1", "Content-Type: application/json\r\n", 400, "bad_host"},
		{"127.0.0.1:PORT", "Content-Type: application/json\r\n", 201, NULL},
		{"127.0.0.1:PORT", "Content-Type: Application/JSON ; charset=UTF-8\r\n", 201, NULL},
		{"LOCALHOST:PORT", "Content-Type: application/json\r\n", 201, NULL},
		{"judge.example", "Content-Type: application/json\r\n", 201, NULL},
		{"judge.example:99", "Content-Type: application/json\r\n", 201, NULL},
		{"exact.example:8443", "Content-Type: application/json\r\n", 201, NULL},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct client *c = client_new(f);
		const char *port = strstr(rows[i].host, "PORT");
		char host[64];

		snprintf(host, sizeof(host), "%s", rows[i].host);
		if (port)
			snprintf(host + (port - rows[i].host), 8, "%u", gateway_port(f->gateway));
		client_send_at(c, host, "POST", "/api/v1/tasks", rows[i].headers, STR(CPP));
		client_receive(f, c);
		if (rows[i].code)
			assert_problem(c, rows[i].status, rows[i].code);
		else
			assert_int_equal(c->status, rows[i].status);
		client_free(c);
	}
	struct client *c = client_new(f);

	client_send_at(c, "evil.example", "GET", "/api/v1/tasks", "", STR_NULL);
	client_receive(f, c);
	assert_problem(c, 400, "bad_host");
	client_free(c);
}

static void refuses_large_bodies(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f);
	struct buf body cleanup(buf_fini) = BUF_INIT;

	memset(buf_reserve(&body, 5000), 'x', 5000);
	body.len = 5000;
	client_send(f, c, "POST", "/api/v1/tasks", "Content-Type: application/json\r\n",
		buf_str(&body));
	client_receive(f, c);
	assert_int_equal(c->status, 413);
	assert_true(has_header(c, "application/problem+json"));
	client_free(c);
}

static void refuses_bad_requests(void **state)
{
	static const struct {
		const char *method, *path;
		int status;
		const char *code;
	} rows[] = {
		{"GET", "/api/v1/tasks/0123456789abcdef01234567", 404, "task_unknown"},
		{"GET", "/api/v1/tasks/0123456789abcdef01234567?wait=60000", 404, "task_unknown"},
		{"GET", "/api/v1/tasks/0123", 400, "bad_id"},
		{"GET", "/api/v1/tasks/0123456789ABCDEF01234567", 400, "bad_id"},
		{"DELETE", "/api/v1/tasks/..%2f..%2fetc%2fpasswd0", 400, "bad_id"},
		{"GET", "/api/v1/tasks/0123456789abcdef01234567?wait=0", 400, "bad_parameter"},
		{"GET", "/api/v1/tasks/0123456789abcdef01234567?wait=300001", 400, "bad_parameter"},
		{"GET", "/api/v1/tasks/0123456789abcdef01234567?wait=5s", 400, "bad_parameter"},
		{"GET", "/api/v1/tasks/0123456789abcdef01234567?wait=", 400, "bad_parameter"},
		{"GET", "/api/v1/tasks/0123456789abcdef01234567?wait=1&wait=2", 400,
			"repeated_parameter"},
		{"GET", "/api/v1/tasks/0123456789abcdef01234567?weight=1", 400,
			"unknown_parameter"},
		{"GET", "/api/v1/tasks?limit=0", 400, "bad_parameter"},
		{"GET", "/api/v1/tasks?limit=1001", 400, "bad_parameter"},
		{"GET", "/api/v1/tasks?limit=ten", 400, "bad_parameter"},
		{"GET", "/api/v1/tasks?order=up", 400, "bad_parameter"},
		{"GET", "/api/v1/tasks?status=odd", 400, "bad_parameter"},
		{"GET", "/api/v1/tasks?after=x", 400, "bad_parameter"},
		{"GET", "/api/v1/tasks?user=%ff", 400, "bad_parameter"},
		{"GET", "/api/v1/tasks?user=%zz", 400, "bad_parameter"},
		{"GET", "/api/v1/tasks?=1", 400, "unknown_parameter"},
		{"GET", "/api/v1/tasks?%0d%0aX=1", 400, "unknown_parameter"},
		{"GET", "/api/v1/executors?x=1", 400, "unknown_parameter"},
		{"GET", "/api/v1/nothing", 404, "not_found"},
		{"GET", "/api/v1/tasks/", 404, "not_found"},
		{"PUT", "/api/v1/tasks", 405, "method_not_allowed"},
		{"OPTIONS", "/api/v1/tasks", 405, "method_not_allowed"},
	};
	struct fixture *f = *state;
	struct client *c = client_new(f);

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		ask(f, c, rows[i].method, rows[i].path, NULL);
		assert_problem(c, rows[i].status, rows[i].code);
	}
	assert_true(has_header(c, "Allow: GET, HEAD, POST\r\n"));
	client_free(c);
}

/* --- lists --------------------------------------------------------------------------------------------------------------------- */

static void lists_tasks(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f);
	char body[200], path[128];

	for (int i = 0; i < 5; i++) {
		snprintf(body, sizeof(body),
			"{\"user\":\"u%d\",\"labels\":[\"l "
			"%d\"],\"language\":\"cpp\",\"source\":\"\"}",
			i % 2, i);
		assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", body), 201);
	}
	assert_int_equal(ask(f, c, "GET", "/api/v1/tasks?limit=2", NULL), 200);
	assert_int_equal(member(c, "tasks")->count, 2);
	assert_string_equal(json_get(member(c, "tasks")->first, "labels")->first->text.p, "l 4");
	snprintf(path, sizeof(path), "/api/v1/tasks?limit=10&after=%s", text_of(c, "next"));
	assert_int_equal(ask(f, c, "GET", path, NULL), 200);
	assert_int_equal(member(c, "tasks")->count, 3);
	assert_null_member(c, "next");
	assert_int_equal(ask(f, c, "GET", "/api/v1/tasks?order=asc&user=u1", NULL), 200);
	assert_int_equal(member(c, "tasks")->count, 2);
	assert_string_equal(json_get(member(c, "tasks")->first, "labels")->first->text.p, "l 1");
	assert_int_equal(
		ask(f, c, "GET", "/api/v1/tasks?label=l%203&language=cpp&status=pending", NULL),
		200);
	assert_int_equal(member(c, "tasks")->count, 1);
	assert_ptr_equal(json_get(member(c, "tasks")->first, "cases"), NULL); /* not in lists */
	client_free(c);
}

static void lists_the_rest(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f);
	const struct json *node, *offers = NULL;

	judge_all(f);
	assert_int_equal(ask(f, c, "GET", "/api/v1/executors", NULL), 200);
	node = member(c, "executors")->first;
	assert_string_equal(json_get(node, "name")->text.p, "e1");
	assert_true(json_get(node, "alive")->boolean);
	assert_int_equal(json_get(node, "languages")->count, 2);
	assert_string_equal(json_get(json_get(node, "toolchains"), "cpp")->text.p, "g++ 12.2");
	assert_int_equal(ask(f, c, "GET", "/api/v1/judicators", NULL), 200);
	assert_string_equal(json_get(member(c, "judicators")->first, "name")->text.p, "j1");
	assert_int_equal(ask(f, c, "GET", "/api/v1/languages", NULL), 200);
	assert_int_equal(member(c, "languages")->count, map_count(&f->languages));
	for (node = member(c, "languages")->first; node; node = node->next) {
		if (str_is(json_get(node, "name")->text, "cpp"))
			offers = json_get(node, "executors");
	}
	assert_non_null(offers);
	assert_string_equal(json_get(offers->first, "name")->text.p, "e1");
	assert_string_equal(json_get(offers->first, "version")->text.p, "g++ 12.2");
	assert_int_equal(ask(f, c, "GET", "/healthz", NULL), 200);
	assert_string_equal(text_of(c, "status"), "ok");
	assert_int_equal(ask(f, c, "HEAD", "/healthz", NULL), 200);
	client_free(c);
}

static int ask_again(struct fixture *f, struct client *c, const char *path, const char *tags)
{
	char header[256];

	snprintf(header, sizeof(header), "If-None-Match: %s\r\n", tags);
	client_send(f, c, "GET", path, header, STR_NULL);
	client_receive(f, c);
	return c->status;
}

static void serves_the_page(void **state)
{
	static const struct {
		const char *path, *type, *holds;
	} rows[] = {
		{"/", "text/html; charset=utf-8", "<!DOCTYPE html>"},
		{"/page/page.css", "text/css; charset=utf-8", ":root"},
		{"/page/main.js", "text/javascript; charset=utf-8", "import"},
		{"/page/icon.svg", "image/svg+xml", "<svg"},
	};
	struct fixture *f = *state;
	struct client *c = client_new(f);
	char line[128], tag[64], tags[128];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t n;

		assert_int_equal(ask(f, c, "GET", rows[i].path, NULL), 200);
		snprintf(line, sizeof(line), "\r\nContent-Type: %s\r\n", rows[i].type);
		assert_true(has_header(c, line));
		assert_true(has_header(c, "\r\nCache-Control: no-cache\r\n"));
		assert_true(has_header(c, "\r\nContent-Security-Policy: default-src 'none'; "));
		assert_true(has_header(c, "\r\nX-Content-Type-Options: nosniff\r\n"));
		assert_non_null(memmem(c->body.p, c->body.n, rows[i].holds, strlen(rows[i].holds)));
		assert_int_equal(sscanf(strcasestr(c->in.data, "\r\nETag: ") + 8, "%63s", tag), 1);
		n = c->body.n;
		assert_int_equal(ask(f, c, "HEAD", rows[i].path, NULL), 200);
		snprintf(line, sizeof(line), "\r\nContent-Length: %zu\r\n", n);
		assert_true(has_header(c, line));
		assert_int_equal(ask_again(f, c, rows[i].path, tag), 304);
		assert_true(has_header(c, tag));
		assert_true(has_header(c, "\r\nContent-Security-Policy: "));
		snprintf(tags, sizeof(tags), "\"other\", W/%s", tag);
		assert_int_equal(ask_again(f, c, rows[i].path, tags), 304);
		assert_int_equal(ask_again(f, c, rows[i].path, "*"), 304);
		assert_int_equal(ask_again(f, c, rows[i].path, "\"other\""), 200);
	}
	assert_int_equal(ask(f, c, "GET", "/page/nothing.js", NULL), 404);
	assert_problem(c, 404, "not_found");
	assert_int_equal(ask(f, c, "GET", "/page/..%2findex.html", NULL), 404);
	assert_int_equal(ask(f, c, "POST", "/", NULL), 405);
	client_free(c);
}

/* --- files ------------------------------------------------------------------------------------------------------------------- */

/* After the judge: RESULT has the outputs. */
static const struct {
	const char *name;
	int status;
	const char *bytes; /* NULL: none, by code file_unknown */
	size_t n;
	const char *called;
} file_rows[] = {
	{"compile/main.c", 200, "int main;", 9, "main.c"},
	{"compile/a%20b%0A%c3%a9.txt", 200, "\xff\0", 2, "a%20b%0A%C3%A9.txt"},
	{"compile/dir/deep.h", 200, "", 0, "deep.h"},
	{"compile/dir%2Fdeep.h", 200, "", 0, "deep.h"},
	{"compile/stdout", 200, "", 0, "stdout"},
	{"execute/data", 200, "data", 4, "data"},
	{"cases/0/input", 200, "1 2", 3, "input"},
	{"cases/0/expected", 200, "3", 1, "expected"},
	{"cases/0/stdout", 200, "3\n", 2, "stdout"},
	{"cases/1/stdout", 200, "\xff\0", 2, "stdout"},
	{"c%61ses/1/input", 200, "\x80", 1, "input"},
	{"cases/1/expected", 404, NULL, 0, NULL},
	{"cases/0/stderr", 404, NULL, 0, NULL}, /* this result has none */
	{"cases/2/input", 404, NULL, 0, NULL},
	{"cases/00/input", 404, NULL, 0, NULL},
	{"cases/+0/input", 404, NULL, 0, NULL},
	{"cases/0", 404, NULL, 0, NULL},
	{"cases/0/", 404, NULL, 0, NULL},
	{"cases//input", 404, NULL, 0, NULL},
	{"cases/0/input/", 404, NULL, 0, NULL},
	{"compile", 404, NULL, 0, NULL},
	{"compile/", 404, NULL, 0, NULL},
	{"compile/main", 404, NULL, 0, NULL},
	{"compile/main.c%00", 404, NULL, 0, NULL},
	{"compile/./main.c", 404, NULL, 0, NULL},
	{"compile/../compile/main.c", 404, NULL, 0, NULL},
	{"compile//main.c", 404, NULL, 0, NULL},
	{"compile/main%2ec%", 404, NULL, 0, NULL},
	{"compile/main%2", 404, NULL, 0, NULL},
	{"compile/main%252ec", 404, NULL, 0, NULL}, /* once */
	{"compile/archive.zip", 404, NULL, 0, NULL},
	{"compile/main.cpp", 404, NULL, 0, NULL}, /* no source, but files */
	{"execute/main.c", 404, NULL, 0, NULL},
	{"../../../etc/passwd", 404, NULL, 0, NULL},
	{"%2fetc%2fpasswd", 404, NULL, 0, NULL},
};

static void serves_what_belongs_to_a_task(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f);
	char base[128], path[256], line[128];

	assert_int_equal(
		ask(f, c, "POST", "/api/v1/tasks",
			"{\"language\":\"cpp\",\"compile\":{\"files\":["
			"{\"name\":\"main.c\",\"content\":\"int main;\"},"
			"{\"name\":\"a b\\n\\u00e9.txt\",\"content\":{\"base64\":\"/wA=\"}},"
			"{\"name\":\"dir/deep.h\",\"content\":\"\"}]},"
			"\"execute\":{\"files\":[{\"name\":\"data\",\"content\":\"data\"}]},"
			"\"cases\":[{\"input\":\"1 2\",\"expected\":\"3\"},"
			"{\"input\":{\"base64\":\"gA==\"}}]}"),
		201);
	task_path(c, base, "/files/");
	snprintf(path, sizeof(path), "%scases/0/stdout", base);
	assert_int_equal(ask(f, c, "GET", path, NULL), 404); /* not yet */
	judge_all(f);
	for (size_t i = 0; i < ARRAY_SIZE(file_rows); i++) {
		snprintf(path, sizeof(path), "%s%s", base, file_rows[i].name);
		ask(f, c, "GET", path, NULL);
		if (c->status != file_rows[i].status)
			fail_msg("%s: %d", file_rows[i].name, c->status);
		if (!file_rows[i].bytes) {
			assert_problem(c, 404, "file_unknown");
			continue;
		}
		assert_int_equal(c->body.n, file_rows[i].n);
		assert_memory_equal(c->body.p, file_rows[i].bytes, c->body.n);
		assert_true(has_header(c, "Content-Type: application/octet-stream\r\n"));
		assert_true(has_header(c, "X-Content-Type-Options: nosniff\r\n"));
		snprintf(line, sizeof(line),
			"Content-Disposition: attachment; filename*=UTF-8''%s\r\n",
			file_rows[i].called);
		assert_true(has_header(c, line));
	}
	snprintf(path, sizeof(path), "%scases/0/input", base);
	assert_int_equal(ask(f, c, "HEAD", path, NULL), 200);
	assert_true(has_header(c, "Content-Length: 3\r\n"));
	snprintf(path, sizeof(path), "%scases/0/input?x=1", base);
	assert_int_equal(ask(f, c, "GET", path, NULL), 400);
	assert_int_equal(ask(f, c, "GET", "/api/v1/tasks/abc/files/compile/x", NULL), 400);
	ask(f, c, "GET", "/api/v1/tasks/0123456789abcdef01234567/files/compile/x", NULL);
	assert_problem(c, 404, "task_unknown");
	client_free(c);
}

/* The source stands under the file name of its language; an archive under its own. */
static void serves_a_source(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f);
	char path[128];

	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks",
				 "{\"language\":\"cpp\",\"source\":\"int main(){}\"}"),
		201);
	task_path(c, path, "/files/compile/main.cpp");
	assert_int_equal(ask(f, c, "GET", path, NULL), 200);
	assert_true(str_is(c->body, "int main(){}"));
	client_free(c);
}

static void assert_number(const struct json *node, int64_t value)
{
	int64_t n = -1;

	assert_true(json_i64(node, &n));
	assert_int_equal(n, value);
}

static void assert_last(struct client *c, const char *name, int64_t value)
{
	const struct json *node = member(c, name)->first;

	assert_int_equal(member(c, name)->count, 60);
	while (node->next)
		node = node->next;
	assert_number(node, value);
}

static void shows_the_last_hour(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f);
	const struct json *now;

	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks",
				 "{\"language\":\"cpp\",\"source\":\"x\",\"user\":\"ann\"}"),
		201);
	judge_all(f);
	assert_int_equal(ask(f, c, "GET", "/api/v1/stats", NULL), 200);
	assert_number(member(c, "step_s"), 60);
	assert_int_equal(member(c, "time")->type, JSON_STRING);
	assert_int_equal(member(c, "start")->type, JSON_STRING);
	assert_last(c, "added", 1);
	assert_last(c, "done", 1);
	assert_last(c, "accepted", 1);
	assert_last(c, "pending", 0);
	assert_last(c, "running", 0);
	assert_number(member(c, "pending")->first, 0);
	now = member(c, "now");
	assert_number(json_get(now, "pending"), 0);
	assert_number(json_get(now, "running"), 0);
	assert_number(json_get(json_get(now, "executors"), "alive"), 1);
	assert_number(json_get(json_get(now, "executors"), "dead"), 0);
	assert_number(json_get(now, "slots"), 4);
	assert_int_equal(ask(f, c, "GET", "/api/v1/stats?x=1", NULL), 400);
	client_free(c);
}

/* --- trouble with judicators -------------------------------------------------------------------------------------------------------- */

static void says_that_nobody_is_there(void **state)
{
	struct fixture *f = *state;
	struct client *health, *read;

	start_gateway(f, "j1:1,j2:1", 4096, 0);
	health = client_new(f);
	read = client_new(f);
	client_send(f, read, "GET", "/api/v1/tasks/0123456789abcdef01234567", "", STR_NULL);
	ask(f, health, "GET", "/healthz", NULL);
	assert_problem(health, 503, "no_judicator");
	client_receive(f, read);
	assert_problem(read, 503, "no_judicator");
	client_free(health);
	client_free(read);
}

static bool two_held(void *arg)
{
	return ((struct fixture *)arg)->n_held >= 2;
}

static void on_script_add(void *arg, struct rpc_call *rpc)
{
	struct fixture *f = arg;
	const struct msg_add_request *r = rpc_call_request(rpc);
	struct msg_add_reply reply = {
		.id = r->id, .status = STR("pending"), .created = true, .add_time_us = 1};

	memcpy(f->ids[f->n_adds++ % 8], r->id.hex, ID_LEN + 1);
	if (f->fail_adds) {
		f->fail_adds--;
		rpc_call_fail(rpc, 503, "busy", "not now");
		return;
	}
	rpc_call_reply(rpc, &reply);
}

/* Holds every get that waits, as it comes. */
static void on_script_get(void *arg, struct rpc_call *rpc)
{
	struct fixture *f = arg;
	const struct msg_get_request *r = rpc_call_request(rpc);

	f->n_gets++;
	if (!r->wait_ms) {
		rpc_call_fail(rpc, 503, "busy", "not now");
		return;
	}
	assert_true(r->done_only);
	assert_int_not_equal(r->watcher.n, 0);
	f->held[f->n_held++ % 8] = rpc;
}

static void on_script_full(void *arg, struct rpc_call *rpc)
{
	rpc_call_fail(rpc, 503, "disk_full", "no room");
}

static void on_script_secret(void *arg, struct rpc_call *rpc)
{
	rpc_call_fail(rpc, 401, "unauthorized", "who are you");
}

static rpc_handler_fn *const script[RPC_METHOD_N] = {
	[RPC_add] = on_script_add,
	[RPC_get] = on_script_get,
	[RPC_search] = on_script_secret,
	[RPC_cancel] = on_script_full,
};

static void start_script(struct fixture *f)
{
	f->t_judicator = transport_loop_new(f->net, "j1");
	assert_int_equal(
		rpc_server_new(f->loop, NULL, f->t_judicator, "j1:1", script, f, &f->script), 0);
}

static void repeats_an_add_with_the_same_id(void **state)
{
	struct fixture *f = *state;
	struct client *c;

	start_script(f);
	start_gateway(f, "j0:1,j1:1", 4096, 0); /* nobody is at j0 */
	f->fail_adds = 2;
	c = client_new(f);
	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	assert_int_equal(f->n_adds, 3);
	assert_string_equal(f->ids[0], f->ids[2]);
	assert_string_equal(f->ids[0], text_of(c, "id"));
	client_free(c);
}

static void passes_on_why(void **state)
{
	struct fixture *f = *state;
	struct client *c;

	start_script(f);
	start_gateway(f, "j1:1", 4096, 0);
	c = client_new(f);
	ask(f, c, "DELETE", "/api/v1/tasks/0123456789abcdef01234567", NULL);
	assert_problem(c, 503, "disk_full");
	ask(f, c, "GET", "/api/v1/tasks", NULL);
	assert_problem(c, 502, "secret_refused");
	ask(f, c, "GET", "/api/v1/executors", NULL); /* not served by the script */
	assert_int_equal(c->status, 502);
	client_free(c);
}

static void says_busy_when_its_own_line_is_full(void **state)
{
	struct fixture *f = *state;
	struct client *c;

	f->narrow.ops = &narrow_ops;
	f->refusals = UINT_MAX;
	start_gateway(f, "j1:1,j2:1", 4096, 0);
	c = client_new(f);
	ask(f, c, "GET", "/healthz", NULL);
	assert_problem(c, 503, "busy");
	assert_in_range(f->n_refused, 3, 60); /* again, with pauses, and always the same one */
	client_free(c);
}

static bool all_refused(void *arg)
{
	const struct fixture *f = arg;

	return f->n_refused == f->refusals;
}

static void waits_for_its_own_line(void **state)
{
	struct fixture *f = *state;
	struct client *c, *waiting;
	char path[128];

	start_judicator(f);
	f->narrow.ops = &narrow_ops;
	f->refusals = 3;
	start_gateway(f, "j1:1", 4096, 0);
	c = client_new(f);
	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	assert_int_equal(f->n_refused, 3);
	waiting = client_new(f);
	f->refusals = 6;
	task_path(c, path, "?wait=10000");
	client_send(f, waiting, "GET", path, "", STR_NULL);
	turn_until(f, all_refused, f);
	assert_int_equal(judge_all(f), 1);
	client_receive(f, waiting);
	assert_judged(waiting);
	client_free(c);
	client_free(waiting);
}

static void takes_new_limits(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f);

	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	gateway_set_limits(f->gateway, 20, 5 * US_PER_S);
	ask(f, c, "POST", "/api/v1/tasks", CPP);
	assert_problem(c, 413, "body_too_large");
	client_free(c);
	c = client_new(f);
	gateway_set_limits(f->gateway, 4096, 200 * US_PER_MS);
	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	client_write(c, STR("POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\n"));
	turn_until(f, client_is_answered, c);
	assert_true(c->closed); /* a header that does not come in time */
	client_free(c);
}

static void one_get_for_all_who_wait(void **state)
{
	struct fixture *f = *state;
	struct client *a, *b, *c;
	const struct msg_get_request *r;
	struct msg_get_reply none = {0};
	struct msg_task_view done = {.status = STR("success"), .verdict = STR("accepted")};
	struct msg_get_reply some = {.tasks = {&done, 1}};

	start_script(f);
	start_gateway(f, "j1:1", 4096, 0);
	a = client_new(f);
	b = client_new(f);
	c = client_new(f);
	client_send(f, a, "POST", "/api/v1/tasks?wait=60000", "Content-Type: application/json\r\n",
		STR(CPP));
	while (f->n_held < 1)
		loop_turn(f->loop, 1000);
	client_send(f, b, "GET", "/api/v1/tasks/0123456789abcdef01234567?wait=60000", "", STR_NULL);
	turn_until(f, two_held, f);
	r = rpc_call_request(f->held[1]);
	assert_int_equal(r->items.count, 2);
	assert_true(str_eq(r->watcher,
		((const struct msg_get_request *)rpc_call_request(f->held[0]))->watcher));
	/* A third client: two gets are open, so it has to wait for the older to come back. */
	client_send(f, c, "GET", "/api/v1/tasks/1123456789abcdef01234567?wait=60000", "", STR_NULL);
	for (int i = 0; i < 50; i++)
		loop_turn(f->loop, 1000);
	assert_int_equal(f->n_held, 2);
	rpc_call_reply(f->held[0], &none);
	while (f->n_held < 3)
		loop_turn(f->loop, 1000);
	assert_int_equal(
		((const struct msg_get_request *)rpc_call_request(f->held[2]))->items.count, 3);
	/* What an older get brings is good too. */
	assert_true(id_parse(STR("0123456789abcdef01234567"), &done.id));
	rpc_call_reply(f->held[1], &some);
	client_receive(f, b);
	assert_string_equal(text_of(b, "verdict"), "accepted");
	assert_true(id_parse(str_from(f->ids[0]), &done.id));
	rpc_call_reply(f->held[2], &some);
	client_receive(f, a);
	assert_int_equal(a->status, 201);
	assert_string_equal(text_of(a, "verdict"), "accepted");
	while (f->n_held < 4)
		loop_turn(f->loop, 1000);
	assert_int_equal(
		((const struct msg_get_request *)rpc_call_request(f->held[3]))->items.count, 1);
	client_free(a);
	client_free(b);
	client_free(c);
}

static bool held_elsewhere(void *arg)
{
	return ((struct fixture *)arg)->n_held >= 1;
}

static void waits_on_through_a_death(void **state)
{
	struct fixture *f = *state;
	struct client *c;
	char path[128];

	start_judicator(f);
	start_gateway(f, "j1:1", 4096, 0);
	c = client_new(f);
	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	task_path(c, path, "?wait=60000");
	client_send(f, c, "GET", path, "", STR_NULL);
	while (pending(f) != 1)
		loop_turn(f->loop, 1000);
	judicator_free(take_ptr(&f->judicator));
	f->t_judicator->ops->free(take_ptr(&f->t_judicator));
	for (int i = 0; i < 20; i++)
		loop_turn(f->loop, 1000);
	assert_false(client_is_answered(c));
	start_judicator(f);
	assert_int_equal(judge_all(f), 1);
	client_receive(f, c);
	assert_judged(c);
	client_free(c);
}

static void a_post_is_answered_though_nobody_can_tell(void **state)
{
	struct fixture *f = *state;
	struct client *c;

	start_script(f);
	start_gateway(f, "j1:1", 4096, 0);
	c = client_new(f);
	client_send(f, c, "POST", "/api/v1/tasks?wait=60000", "Content-Type: application/json\r\n",
		STR(CPP));
	turn_until(f, held_elsewhere, f);
	/* Stopping ends every wait; the script refuses to tell how the task is. */
	gateway_stop(f->gateway, on_stopped, f);
	client_receive(f, c);
	assert_int_equal(c->status, 201);
	assert_string_equal(text_of(c, "status"), "pending");
	assert_string_equal(text_of(c, "id"), f->ids[0]);
	turn_until(f, is_stopped, f);
	client_free(c);
}

/* --- many, and those that leave -------------------------------------------------------------------------------------------------------- */

static void five_hundred_wait(void **state)
{
	enum { N = 500 };
	struct fixture *f = *state;
	struct client **c = mem_array(N, sizeof(*c));
	struct rlimit files;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = files.rlim_max < 4096 ? files.rlim_max : 4096;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	for (int i = 0; i < N; i++) {
		c[i] = client_new(f);
		client_send(f, c[i], "POST", "/api/v1/tasks?wait=60000",
			"Content-Type: application/json\r\n", STR(CPP));
	}
	while (pending(f) != N)
		loop_turn(f->loop, 1000);
	assert_int_equal(judge_all(f), N);
	for (int i = 0; i < N; i++) {
		client_receive(f, c[i]);
		assert_int_equal(c[i]->status, 201);
		assert_judged(c[i]);
		client_free(c[i]);
	}
	free(c);
}

static int64_t waiting(struct fixture *f, struct client *c)
{
	int64_t n = -1;

	assert_int_equal(ask(f, c, "GET", "/healthz", NULL), 200);
	assert_true(json_i64(member(c, "waiting"), &n));
	return n;
}

static void wait_for_waiting(struct fixture *f, struct client *c, int64_t n)
{
	int64_t until_us = loop_now_us(f->loop) + DEADLINE_US;

	while (waiting(f, c) != n)
		assert_true(loop_now_us(f->loop) < until_us);
}

static void forgets_who_leaves(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f), *leaver = client_new(f), *stayer = client_new(f);
	char path[128];

	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	task_path(c, path, "?wait=60000");
	client_send(f, leaver, "GET", path, "", STR_NULL);
	client_send(f, stayer, "GET", path, "", STR_NULL);
	wait_for_waiting(f, c, 2);
	client_free(leaver);
	wait_for_waiting(f, c, 1);
	judge_all(f);
	client_receive(f, stayer);
	assert_judged(stayer);
	client_send(f, stayer, "GET", "/api/v1/tasks", "", STR_NULL); /* gone before its answer */
	client_free(stayer);
	wait_for_waiting(f, c, 0);
	client_free(c);
}

static void bounds_who_wait(void **state)
{
	struct fixture *f = *state;
	struct client *c, *waiter;
	char path[128];

	start_judicator(f);
	start_gateway(f, "j1:1", 4096, 1);
	c = client_new(f);
	waiter = client_new(f);
	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	task_path(c, path, "?wait=60000");
	client_send(f, waiter, "GET", path, "", STR_NULL);
	wait_for_waiting(f, c, 1);
	ask(f, c, "GET", path, NULL);
	assert_problem(c, 503, "too_many_waiting");
	ask(f, c, "POST", "/api/v1/tasks?wait=1000", CPP);
	assert_problem(c, 503, "too_many_waiting");
	assert_int_equal(pending(f), 1); /* nothing was added */
	client_free(c);
	client_free(waiter);
}

static void stops_politely(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f), *waiter = client_new(f);
	char path[128];

	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	task_path(c, path, "?wait=60000");
	client_send(f, waiter, "GET", path, "", STR_NULL);
	wait_for_waiting(f, c, 1);
	gateway_stop(f->gateway, on_stopped, f);
	assert_false(f->stopped);
	client_receive(f, waiter);
	assert_int_equal(waiter->status, 200);
	assert_string_equal(text_of(waiter, "status"), "pending");
	turn_until(f, is_stopped, f);
	client_free(c);
	client_free(waiter);
}

/* --- events ------------------------------------------------------------------------------------------------------------------ */

struct reading {
	struct client *c;
	const char *text; /* NULL: all of it, to the end of the body */
};

static bool has_read(void *arg)
{
	struct reading *r = arg;
	struct client *c = r->c;
	ssize_t n = read(c->fd, buf_reserve(&c->in, 65536), 65536);

	if (n == 0)
		c->closed = true;
	if (n > 0) {
		c->in.len += (size_t)n;
		c->in.data[c->in.len] = '\0';
	}
	return c->closed || (c->in.len && strstr(c->in.data, r->text ? r->text : "\r\n0\r\n\r\n"));
}

static void read_until(struct fixture *f, struct client *c, const char *text)
{
	struct reading r = {c, text};

	turn_until(f, has_read, &r);
	if (c->closed)
		fail_msg("closed before %s: %s", text ? text : "the end",
			c->in.len ? c->in.data : "");
}

static unsigned times(const struct client *c, const char *text)
{
	unsigned n = 0;

	for (const char *at = c->in.data; at && (at = strstr(at, text)); at++)
		n++;
	return n;
}

static void follow(struct fixture *f, struct client *c, const char *id, const char *headers)
{
	char path[128];

	snprintf(path, sizeof(path), "/api/v1/tasks/%s/events", id);
	client_send(f, c, "GET", path, headers, STR_NULL);
}

static void tells_each_change_and_the_end(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f), *events = client_new(f), *late = client_new(f);
	char id[ID_LEN + 1];

	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	snprintf(id, sizeof(id), "%s", text_of(c, "id"));
	follow(f, events, id, "");
	read_until(f, events, "event: task\nid: pending.0.0\ndata: {\"id\":\"");
	assert_non_null(strstr(events->in.data, "HTTP/1.1 200 "));
	assert_non_null(strstr(events->in.data, "Content-Type: text/event-stream\r\n"));
	assert_non_null(strstr(events->in.data, "Cache-Control: no-store\r\n"));
	assert_non_null(strstr(events->in.data, "retry: 1000\n\n"));
	run_case(f, id, 1, 0);
	read_until(f, events, "event: task\nid: running.1.0\ndata: {");
	follow(f, late, id, ""); /* joins one who listens already */
	read_until(f, late, "event: task\nid: running.1.0\ndata: {");
	run_case(f, id, 1, 1);
	read_until(f, events, "event: task\nid: running.1.1\ndata: {");
	read_until(f, late, "event: task\nid: running.1.1\ndata: {");
	wait_for_waiting(f, c, 2);
	end_case(f, id, 1, STR(RESULT));
	read_until(f, events, NULL);
	read_until(f, late, NULL);
	assert_non_null(strstr(events->in.data, "event: done\nid: success.1.1\ndata: {\"id\":\""));
	assert_non_null(strstr(events->in.data, "\"stdout\":{\"base64\":\"/wA=\"}"));
	assert_int_equal(times(events, "event: done"), 1);
	assert_int_equal(times(late, "event: done"), 1);
	assert_int_equal(times(events, "id: running.1.0\n"), 1);
	assert_int_equal(times(events, "id: running.1.1\n"), 1);
	assert_int_equal(times(late, "event: task"), 2);
	wait_for_waiting(f, c, 0);
	/* The connection may be used again. */
	assert_int_equal(ask(f, events, "GET", "/healthz", NULL), 200);
	client_free(late);
	client_free(events);
	client_free(c);
}

static void says_the_end_at_once(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f);
	char id[ID_LEN + 1];

	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	snprintf(id, sizeof(id), "%s", text_of(c, "id"));
	judge_all(f);
	follow(f, c, id, "");
	read_until(f, c, NULL);
	assert_int_equal(times(c, "event: "), 1);
	assert_non_null(strstr(c->in.data, "event: done\nid: success.1.0\n"));
	follow(f, c, id, "Last-Event-ID: running.1.0\r\n");
	read_until(f, c, NULL);
	assert_int_equal(times(c, "event: done"), 1);
	/* Who has it is told not to come again. */
	follow(f, c, id, "Last-Event-ID: success.1.0\r\n");
	read_until(f, c, "\r\n\r\n");
	assert_non_null(strstr(c->in.data, "HTTP/1.1 204 "));
	client_free(c);
}

static void does_not_repeat_what_is_known(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f), *again = client_new(f), *odd = client_new(f);
	char id[ID_LEN + 1], headers[300] = "Last-Event-ID: ";

	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	snprintf(id, sizeof(id), "%s", text_of(c, "id"));
	follow(f, again, id, "Last-Event-ID: pending.0.0\r\n");
	read_until(f, again, "\n:\n\n"); /* a comment: it has listened for a while */
	assert_int_equal(times(again, "event: "), 0);
	memset(headers + 15, 'x', 200); /* what is not ours is no reason to fail */
	strcpy(headers + 215, "\r\n");
	follow(f, odd, id, headers);
	read_until(f, odd, "event: task\nid: pending.0.0\n");
	run_case(f, id, 1, 0);
	read_until(f, again, "event: task\nid: running.1.0\n");
	read_until(f, odd, "event: task\nid: running.1.0\n");
	assert_int_equal(times(again, "id: pending.0.0\n"), 0);
	assert_int_equal(times(odd, "id: pending.0.0\n"), 1);
	client_free(odd);
	client_free(again);
	client_free(c);
}

/* Larger than what may wait for a client at a time, to one who reads late. */
static void ends_with_a_large_task(void **state)
{
	enum { N = 6 << 20 };
	struct fixture *f = *state;
	struct client *c = client_new(f), *events = client_new(f);
	struct buf result cleanup(buf_fini) = BUF_INIT;
	char id[ID_LEN + 1];

	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	snprintf(id, sizeof(id), "%s", text_of(c, "id"));
	follow(f, events, id, "");
	read_until(f, events, "event: task\n");
	run_case(f, id, 1, 0);
	read_until(f, events, "id: running.1.0\n");
	buf_add_str(&result, STR("{\"verdict\":\"accepted\",\"cases\":[{\"stdout\":\""));
	memset(buf_reserve(&result, N), 'x', N);
	result.len += N;
	result.data[result.len] = '\0';
	buf_add_str(&result, STR("\"}]}"));
	end_case(f, id, 1, buf_str(&result));
	for (unsigned i = 0; i < 50; i++)
		loop_turn(f->loop, US_PER_MS);
	read_until(f, events, NULL);
	assert_true(events->in.len > N);
	assert_int_equal(times(events, "event: done"), 1);
	client_free(events);
	client_free(c);
}

static void streams_have_a_bound_and_an_end(void **state)
{
	struct fixture *f = *state;
	struct client *c, *one, *two;
	char id[ID_LEN + 1];

	start_judicator(f);
	start_gateway(f, "j1:1", 4096, 10); /* so one may follow */
	c = client_new(f);
	one = client_new(f);
	two = client_new(f);
	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	snprintf(id, sizeof(id), "%s", text_of(c, "id"));
	follow(f, one, id, "");
	read_until(f, one, "event: task\n");
	follow(f, two, id, "");
	client_receive(f, two);
	assert_problem(two, 503, "too_many_waiting");
	client_free(one); /* leaves: its place is free at once */
	wait_for_waiting(f, c, 0);
	follow(f, two, id, "");
	read_until(f, two, "event: task\n");
	follow(f, c, "0123456789abcdef01234567", "");
	client_receive(f, c);
	assert_problem(c, 503, "too_many_waiting");
	/* A gateway that stops ends it whole. */
	gateway_stop(f->gateway, on_stopped, f);
	read_until(f, two, NULL);
	assert_int_equal(times(two, "event: done"), 0);
	turn_until(f, is_stopped, f);
	client_free(two);
	client_free(c);
}

static void follows_nothing_else(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f);
	char path[128];

	follow(f, c, "0123456789abcdef01234567", "");
	client_receive(f, c);
	assert_problem(c, 404, "task_unknown");
	follow(f, c, "xyz", "");
	client_receive(f, c);
	assert_problem(c, 400, "bad_id");
	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	task_path(c, path, "/events?x=1");
	assert_int_equal(ask(f, c, "GET", path, NULL), 400);
	path[strlen(path) - 4] = '\0';
	client_send(f, c, "HEAD", path, "", STR_NULL);
	read_until(f, c, "\r\n\r\n");
	assert_non_null(strstr(c->in.data, "Content-Type: text/event-stream\r\n"));
	assert_int_equal(ask(f, c, "GET", "/healthz", NULL), 200); /* nothing came behind it */
	client_free(c);
}

/* The judicator dies under a stream, and comes back on the same store: the client notices nothing. */
static void streams_outlive_a_judicator(void **state)
{
	struct fixture *f = *state;
	struct client *c = client_new(f), *events = client_new(f);
	char id[ID_LEN + 1];

	assert_int_equal(ask(f, c, "POST", "/api/v1/tasks", CPP), 201);
	snprintf(id, sizeof(id), "%s", text_of(c, "id"));
	follow(f, events, id, "");
	read_until(f, events, "event: task\nid: pending.0.0\n");
	judicator_free(take_ptr(&f->judicator));
	f->t_judicator->ops->free(take_ptr(&f->t_judicator));
	for (unsigned i = 0; i < 100; i++)
		loop_turn(f->loop, US_PER_MS);
	start_judicator(f);
	run_case(f, id, 1, 0);
	read_until(f, events, "event: task\nid: running.1.0\n");
	end_case(f, id, 1, STR(RESULT));
	read_until(f, events, NULL);
	assert_int_equal(times(events, "event: task\n"), 2);
	assert_int_equal(times(events, "event: done\n"), 1);
	client_free(events);
	client_free(c);
}

#define with(test, up) cmocka_unit_test_setup_teardown(test, up, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with(submits_and_reads, setup),
		with(shows_done_tasks_without_a_judicator, setup),
		with(shows_what_was_set, setup),
		with(waits_for_the_verdict, setup),
		with(answers_when_the_wait_is_over, setup),
		with(cancels, setup),
		with(repeats_by_key, setup),
		with(refuses_bad_submissions, setup),
		with(refuses_by_headers, setup),
		with(refuses_large_bodies, setup),
		with(refuses_bad_requests, setup),
		with(lists_tasks, setup),
		with(lists_the_rest, setup),
		with(serves_the_page, setup),
		with(shows_the_last_hour, setup),
		with(serves_what_belongs_to_a_task, setup),
		with(serves_a_source, setup),
		with(tells_each_change_and_the_end, setup),
		with(says_the_end_at_once, setup),
		with(does_not_repeat_what_is_known, setup),
		with(ends_with_a_large_task, setup),
		with(streams_have_a_bound_and_an_end, setup_alone),
		with(follows_nothing_else, setup),
		with(streams_outlive_a_judicator, setup),
		with(says_that_nobody_is_there, setup_alone),
		with(repeats_an_add_with_the_same_id, setup_alone),
		with(passes_on_why, setup_alone),
		with(says_busy_when_its_own_line_is_full, setup_alone),
		with(waits_for_its_own_line, setup_alone),
		with(takes_new_limits, setup),
		with(one_get_for_all_who_wait, setup_alone),
		with(waits_on_through_a_death, setup_alone),
		with(a_post_is_answered_though_nobody_can_tell, setup_alone),
		with(five_hundred_wait, setup),
		with(forgets_who_leaves, setup),
		with(bounds_who_wait, setup_alone),
		with(stops_politely, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
