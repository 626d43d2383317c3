/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may do what at a gateway with tokens, and what it says of itself (/metrics, /openapi.json): over real sockets, against a real
 * judicator on a memory store.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <glob.h>
#include <netinet/in.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "cfg/cfg.h"
#include "cfg/language.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/gateway/gateway_int.h"
#include "roles/judicator/judicator.h"
#include "rpc/task/task.h"

#define DEADLINE_US (10 * US_PER_S)
#define BOBS "{\"user\":\"bob\",\"language\":\"cpp\",\"source\":\"int main(){}\"}"
#define TASK "{\"language\":\"cpp\",\"source\":\"int main(){}\"}"
/* SHA-256 of "admin-token" and so on. */
#define FILE_TEXT                                                                                  \
	"root admin " ADMIN_SHA "\n"                                                               \
	"alice submit " ALICE_SHA " open=2\n"                                                      \
	"bob submit " BOB_SHA "\n"                                                                 \
	"prom read " READ_SHA "\n"                                                                 \
	"slow read " SLOW_SHA " rate=2/h\n"
#define ADMIN_SHA "10a4c7c9fc5206d6f36dc6944a81bb6f4a3cb0e25014ae3b12e6c3e52712292a"
#define ALICE_SHA "9c220f200955d76c0a38d308225e0ef10c5f971acaf2f8d1d8f732affa5bd1dc"
#define BOB_SHA "97dd3707015dcf069cf73022ed7173b1165db6eff24b441cb57fd069a8c4e525"
#define READ_SHA "0328587016f9e316b9c31c94f944a2c453e1494a564062b5eab68039c75b58bf"
#define SLOW_SHA "8fca511e871e5afb4ff5d07dfe606a6244d850dd9e7c7305a9cd56d6169179ad"

struct fixture {
	struct loop *loop;
	struct loop_net *net;
	struct transport *t_gateway, *t_judicator;
	struct store *store;
	struct judicator *judicator;
	struct map languages;
	struct gateway *gateway, *other; /* other: a second worker, or NULL */
	struct shared *shared;           /* what they share */
	int fd;
	struct buf in;
	struct json_tree *tree;
	char *body;
};

static void on_changed(void *arg, const struct id *ids, unsigned n_ids, const struct str *languages,
	unsigned n_languages)
{
	judicator_on_changed(
		((struct fixture *)arg)->judicator, ids, n_ids, languages, n_languages);
}

static void give_tokens(struct gateway *gateway, const char *text)
{
	struct cfg_errors errors cleanup(cfg_errors_fini) = {BUF_INIT, 0};
	struct tokens tokens;

	tokens_parse(str_from(text), "tokens", &tokens, &errors);
	assert_int_equal(errors.count, 0);
	gateway_set_tokens(gateway, &tokens);
	assert_int_equal(tokens.n, 0);
}

static void take_tokens(struct fixture *f, const char *text)
{
	give_tokens(f->gateway, text);
}

static int setup_workers(void **state, unsigned n)
{
	struct fixture *f = mem_alloc(sizeof(*f));
	struct store_options store = {.max_retries = 3, .on_changed = on_changed, .arg = f};
	struct loop_net_options quick = {0};
	struct cfg_errors errors = {0};
	struct judicator_options judicator = {
		.name = "j1", .address = "j1:1", .expire_us = 60 * US_PER_S, .leading = true};
	struct gateway_options gateway = {
		.judicators = "j1:1",
		.addresses = "127.0.0.1:0",
		.hosts = "judge",
		.languages = &f->languages,
		.body_max = 4096,
		.blob_max = 1 << 20,
		.read_timeout_us = 5 * US_PER_S,
		.wait_us = 2 * US_PER_S,
		.done_cache = 65536,
	};

	f->fd = -1;
	f->loop = loop_new(NULL);
	f->net = loop_net_new(f->loop, &quick);
	f->t_gateway = transport_loop_new(f->net, "g1");
	f->t_judicator = transport_loop_new(f->net, "j1");
	map_init(&f->languages);
	language_load_dir(CONCLAVE_SOURCE_DIR "/cfg/languages", &f->languages, &errors);
	assert_int_equal(store_memory.open(f->loop, &store, &f->store), 0);
	judicator.transport = f->t_judicator;
	judicator.store = f->store;
	assert_int_equal(judicator_new(f->loop, &judicator, &f->judicator), 0);
	gateway.transport = f->t_gateway;
	if (n > 1)
		assert_int_equal(shared_new(n, &f->shared), 0);
	gateway.shared = f->shared;
	assert_int_equal(gateway_new(f->loop, &gateway, &f->gateway), 0);
	gateway.slot = 1;
	if (n > 1)
		assert_int_equal(gateway_new(f->loop, &gateway, &f->other), 0);
	*state = f;
	return 0;
}

static int setup_open(void **state)
{
	return setup_workers(state, 1);
}

static int setup(void **state)
{
	setup_open(state);
	take_tokens(*state, FILE_TEXT);
	return 0;
}

static int setup_two(void **state)
{
	struct fixture *f;

	setup_workers(state, 2);
	f = *state;
	give_tokens(f->gateway, FILE_TEXT);
	give_tokens(f->other, FILE_TEXT);
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	if (f->fd >= 0)
		close(f->fd);
	gateway_free(f->gateway);
	gateway_free(f->other);
	shared_free(f->shared);
	judicator_free(f->judicator);
	f->store->ops->close(f->store);
	f->t_gateway->ops->free(f->t_gateway);
	f->t_judicator->ops->free(f->t_judicator);
	loop_net_free(f->net);
	loop_free(f->loop);
	language_map_fini(&f->languages);
	json_free(f->tree);
	buf_fini(&f->in);
	free(f);
	return 0;
}

/* --- a client: one connection a request --------------------------------------------------------------------------------- */

static void send_request(struct fixture *f, const char *method, const char *path, const char *token,
	const char *body)
{
	struct sockaddr_in sin = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)gateway_port(f->gateway)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct buf text cleanup(buf_fini) = BUF_INIT;

	if (f->fd >= 0)
		close(f->fd);
	f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(f->fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(fcntl(f->fd, F_SETFL, O_NONBLOCK), 0);
	buf_addf(&text, "%s %s HTTP/1.1\r\nHost: judge\r\nConnection: close\r\n", method, path);
	if (token)
		buf_addf(&text, "Authorization: Bearer %s\r\n", token);
	if (body)
		buf_addf(&text, "Content-Type: application/%s\r\nContent-Length: %zu\r\n",
			strcmp(method, "PUT") ? "json" : "octet-stream", strlen(body));
	buf_addf(&text, "\r\n%s", body ? body : "");
	assert_int_equal(write(f->fd, text.data, text.len), text.len);
	buf_clear(&f->in);
}

static bool is_whole(struct fixture *f)
{
	ssize_t n = read(f->fd, buf_reserve(&f->in, 65536), 65536);
	char *end, *length;

	if (n > 0) {
		f->in.len += (size_t)n;
		f->in.data[f->in.len] = '\0';
	}
	end = f->in.len ? strstr(f->in.data, "\r\n\r\n") : NULL;
	if (!end)
		return false;
	f->body = end + 4;
	length = strcasestr(f->in.data, "\r\nContent-Length:");
	assert_non_null(length);
	return f->in.len >= (size_t)(f->body - f->in.data) + strtoul(length + 17, NULL, 10);
}

/* The status. */
static int ask(struct fixture *f, const char *method, const char *path, const char *token,
	const char *body)
{
	int64_t until_us = loop_now_us(f->loop) + DEADLINE_US;
	struct json_error error;

	send_request(f, method, path, token, body);
	while (!is_whole(f)) {
		if (loop_now_us(f->loop) > until_us)
			fail_msg("%s %s: no answer", method, path);
		loop_turn(f->loop, 1000);
	}
	json_free(take_ptr(&f->tree));
	if (f->body[0] == '{')
		assert_int_equal(json_parse(str_from(f->body), NULL, &f->tree, &error), 0);
	return atoi(f->in.data + 9);
}

static const char *text_of(const struct fixture *f, const char *key)
{
	const struct json *node = json_get(json_root(f->tree), key);

	assert_non_null(node);
	return node->text.p;
}

static void refuses(struct fixture *f, int status, const char *code, const char *method,
	const char *path, const char *token, const char *body)
{
	assert_int_equal(ask(f, method, path, token, body), status);
	assert_string_equal(text_of(f, "code"), code);
}

static void assert_sample(const struct fixture *f, const char *line)
{
	char *at = strstr(f->body, line);

	if (!at || (at != f->body && at[-1] != '\n'))
		fail_msg("no line \"%s\" in\n%s", line, f->body);
}

/* --- who may do what ------------------------------------------------------------------------------------------------------ */

static void without_tokens_all_is_open(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ask(f, "POST", TASKS_PATH, NULL, TASK), 201);
	assert_int_equal(ask(f, "GET", TASKS_PATH, "whatever", NULL), 200);
	assert_int_equal(ask(f, "GET", "/metrics", NULL, NULL), 200);
}

static void each_route_asks_for_its_roles(void **state)
{
	static const struct {
		const char *method, *path, *body;
		int nobody, alice, prom, root;
	} rows[] = {
		{"GET", "/", NULL, 200, 200, 200, 200},
		{"GET", "/healthz", NULL, 200, 200, 200, 200},
		{"GET", "/page/main.js", NULL, 200, 200, 200, 200},
		{"GET", "/openapi.json", NULL, 200, 200, 200, 200},
		{"PUT", "/api/v1/blobs/" ALICE_SHA, "alice-token", 401, 201, 403, 200},
		{"GET", "/api/v1/blobs/" ALICE_SHA, NULL, 401, 200, 403, 200},
		{"GET", "/metrics", NULL, 401, 403, 200, 200},
		{"GET", "/api/v1/executors", NULL, 401, 200, 200, 200},
		{"GET", "/api/v1/judicators", NULL, 401, 200, 200, 200},
		{"GET", "/api/v1/stats", NULL, 401, 200, 200, 200},
		{"GET", "/api/v1/languages", NULL, 401, 200, 200, 200},
		{"GET", TASKS_PATH, NULL, 401, 200, 200, 200},
		{"POST", TASKS_PATH, TASK, 401, 201, 403, 201},
		{"GET", TASKS_PATH "/0123456789abcdef01234567", NULL, 401, 404, 404, 404},
		{"DELETE", TASKS_PATH "/0123456789abcdef01234567", NULL, 401, 404, 403, 404},
		{"GET", TASKS_PATH "/0123456789abcdef01234567/files/x", NULL, 401, 404, 404, 404},
		{"GET", TASKS_PATH "/0123456789abcdef01234567/events", NULL, 401, 404, 404, 404},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *method = rows[i].method, *path = rows[i].path, *body = rows[i].body;

		assert_int_equal(ask(f, method, path, NULL, body), rows[i].nobody);
		assert_int_equal(ask(f, method, path, "wrong", body), rows[i].nobody);
		assert_int_equal(ask(f, method, path, "alice-token", body), rows[i].alice);
		assert_int_equal(ask(f, method, path, "read-token", body), rows[i].prom);
		assert_int_equal(ask(f, method, path, "admin-token", body), rows[i].root);
	}
	refuses(f, 401, "token_unknown", "GET", TASKS_PATH, "", NULL);
	assert_non_null(strstr(f->in.data, "WWW-Authenticate: Bearer"));
	refuses(f, 403, "role_missing", "POST", TASKS_PATH, "read-token", TASK);
	assert_null(gateway_route_at(ARRAY_SIZE(rows))); /* a new route needs a row here */
}

/* alice's blob: bob can neither read it nor refer to it, and is not told that it is there; once he has shown the bytes it is his too. */
static void a_submit_token_has_its_own_blobs(void **state)
{
	static const char path[] = "/api/v1/blobs/" ALICE_SHA;
	static const char task[] = "{\"language\":\"cpp\",\"source\":{\"blob\":\"" ALICE_SHA "\"}}";
	static const char unknown[] = "{\"language\":\"cpp\",\"source\":\"x\",\"cases\":[{},"
				      "{\"expected\":{\"blob\":\"" ADMIN_SHA "\"}}]}";
	struct fixture *f = *state;

	assert_int_equal(ask(f, "PUT", path, "alice-token", "alice-token"), 201);
	assert_int_equal(ask(f, "PUT", path, "alice-token", "alice-token"), 200);
	assert_int_equal(ask(f, "GET", path, "alice-token", NULL), 200);
	assert_string_equal(f->body, "alice-token");
	assert_non_null(strstr(f->in.data, "Content-Type: application/octet-stream"));
	refuses(f, 404, "blob_unknown", "GET", path, "bob-token", NULL);
	refuses(f, 422, "blob_missing", "POST", TASKS_PATH, "bob-token", task);
	assert_string_equal(text_of(f, "pointer"), "/source");
	refuses(f, 422, "blob_missing", "POST", TASKS_PATH, "bob-token", unknown);
	assert_string_equal(text_of(f, "pointer"), "/cases/1/expected");
	assert_int_equal(ask(f, "POST", TASKS_PATH, "alice-token", task), 201);
	assert_int_equal(ask(f, "POST", TASKS_PATH, "admin-token", task), 201);
	refuses(f, 422, "blob_mismatch", "PUT", path, "bob-token", "not alice's");
	refuses(f, 404, "blob_unknown", "GET", path, "bob-token", NULL);
	assert_int_equal(ask(f, "PUT", path, "bob-token", "alice-token"), 200);
	assert_int_equal(ask(f, "GET", path, "bob-token", NULL), 200);
	assert_int_equal(ask(f, "POST", TASKS_PATH, "bob-token", task), 201);
}

static void a_submit_token_has_its_own_tasks(void **state)
{
	struct fixture *f = *state;
	char path[128], waits[160], file[160], events[160];

	assert_int_equal(ask(f, "POST", TASKS_PATH, "alice-token", TASK), 201);
	assert_string_equal(text_of(f, "user"), "alice");
	snprintf(path, sizeof(path), TASKS_PATH "/%s", text_of(f, "id"));
	snprintf(waits, sizeof(waits), "%s?wait=20", path);
	snprintf(file, sizeof(file), "%s/files/compile/main.cpp", path);
	snprintf(events, sizeof(events), "%s/events", path);
	refuses(f, 403, "user_forbidden", "POST", TASKS_PATH, "alice-token", BOBS);
	assert_string_equal(text_of(f, "pointer"), "/user");
	assert_int_equal(ask(f, "GET", path, "alice-token", NULL), 200);
	assert_int_equal(ask(f, "GET", waits, "alice-token", NULL), 200);
	assert_int_equal(ask(f, "GET", path, "read-token", NULL), 200);
	refuses(f, 404, "task_unknown", "GET", path, "bob-token", NULL);
	refuses(f, 404, "task_unknown", "GET", waits, "bob-token", NULL);
	refuses(f, 404, "task_unknown", "DELETE", path, "bob-token", NULL);
	assert_int_equal(ask(f, "GET", file, "alice-token", NULL), 200);
	assert_int_equal(ask(f, "GET", file, "read-token", NULL), 200);
	refuses(f, 404, "task_unknown", "GET", file, "bob-token", NULL);
	refuses(f, 404, "task_unknown", "GET", events, "bob-token", NULL);
	refuses(f, 403, "user_forbidden", "GET", TASKS_PATH "?user=alice", "bob-token", NULL);
	assert_int_equal(ask(f, "GET", TASKS_PATH, "bob-token", NULL), 200);
	assert_int_equal(json_get(json_root(f->tree), "tasks")->count, 0);
	assert_int_equal(ask(f, "GET", TASKS_PATH, "alice-token", NULL), 200);
	assert_int_equal(json_get(json_root(f->tree), "tasks")->count, 1);
	assert_int_equal(ask(f, "POST", TASKS_PATH, "admin-token", BOBS), 201);
	assert_string_equal(text_of(f, "user"), "bob");
	assert_int_equal(ask(f, "DELETE", path, "alice-token", NULL), 200);
	assert_string_equal(text_of(f, "status"), "cancelled");
	/* What is kept of a done task is for the same readers as the task. */
	assert_int_equal(ask(f, "GET", path, "alice-token", NULL), 200);
	assert_int_equal(ask(f, "GET", path, "alice-token", NULL), 200);
	assert_int_equal(ask(f, "GET", waits, "read-token", NULL), 200);
	refuses(f, 404, "task_unknown", "GET", path, "bob-token", NULL);
	refuses(f, 404, "task_unknown", "GET", waits, "bob-token", NULL);
	assert_int_equal(ask(f, "GET", "/metrics", "read-token", NULL), 200);
	assert_sample(f, "conclave_gateway_done_cache_total{result=\"hit\"} 5");
}

static void bounds_the_rate(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ask(f, "GET", TASKS_PATH, "slow-token", NULL), 200);
	assert_int_equal(ask(f, "GET", TASKS_PATH, "slow-token", NULL), 200);
	refuses(f, 429, "rate_exceeded", "GET", TASKS_PATH, "slow-token", NULL);
	assert_non_null(strstr(f->in.data, "Retry-After: 1"));
	assert_int_equal(ask(f, "GET", TASKS_PATH, "read-token", NULL), 200);
}

static void bounds_open_tasks(void **state)
{
	struct fixture *f = *state;
	char path[128];

	assert_int_equal(ask(f, "POST", TASKS_PATH, "alice-token", TASK), 201);
	snprintf(path, sizeof(path), TASKS_PATH "/%s", text_of(f, "id"));
	assert_int_equal(ask(f, "POST", TASKS_PATH, "alice-token", TASK), 201);
	refuses(f, 429, "too_many_open", "POST", TASKS_PATH, "alice-token", TASK);
	assert_non_null(strstr(f->in.data, "Retry-After: "));
	assert_int_equal(ask(f, "POST", TASKS_PATH, "bob-token", TASK), 201);
	assert_int_equal(ask(f, "DELETE", path, "alice-token", NULL), 200);
	assert_int_equal(ask(f, "POST", TASKS_PATH, "alice-token", TASK), 201);
	refuses(f, 429, "too_many_open", "POST", TASKS_PATH, "alice-token", TASK);
}

static void swap_workers(struct fixture *f)
{
	struct gateway *gateway = f->gateway;

	f->gateway = f->other;
	f->other = gateway;
}

/* Whichever worker is asked. */
static void workers_have_one_bound(void **state)
{
	struct fixture *f = *state;
	char path[128];

	assert_int_equal(ask(f, "POST", TASKS_PATH, "alice-token", TASK), 201);
	swap_workers(f);
	assert_int_equal(ask(f, "POST", TASKS_PATH, "alice-token", TASK), 201);
	snprintf(path, sizeof(path), TASKS_PATH "/%s", text_of(f, "id"));
	refuses(f, 429, "too_many_open", "POST", TASKS_PATH, "alice-token", TASK);
	swap_workers(f);
	refuses(f, 429, "too_many_open", "POST", TASKS_PATH, "alice-token", TASK);
	assert_int_equal(ask(f, "DELETE", path, "alice-token", NULL), 200);
	assert_int_equal(ask(f, "POST", TASKS_PATH, "alice-token", TASK), 201);
	swap_workers(f);
	refuses(f, 429, "too_many_open", "POST", TASKS_PATH, "alice-token", TASK);
}

static void workers_have_one_rate(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ask(f, "GET", TASKS_PATH, "slow-token", NULL), 200);
	swap_workers(f);
	assert_int_equal(ask(f, "GET", TASKS_PATH, "slow-token", NULL), 200);
	refuses(f, 429, "rate_exceeded", "GET", TASKS_PATH, "slow-token", NULL);
	swap_workers(f);
	refuses(f, 429, "rate_exceeded", "GET", TASKS_PATH, "slow-token", NULL);
	give_tokens(f->gateway, FILE_TEXT); /* SIGHUP fills no bucket */
	refuses(f, 429, "rate_exceeded", "GET", TASKS_PATH, "slow-token", NULL);
}

static void takes_new_tokens(void **state)
{
	struct fixture *f = *state;

	take_tokens(f, "prom read " ADMIN_SHA "\n");
	assert_int_equal(ask(f, "GET", TASKS_PATH, "read-token", NULL), 401);
	assert_int_equal(ask(f, "GET", TASKS_PATH, "admin-token", NULL), 200);
	assert_int_equal(ask(f, "POST", TASKS_PATH, "admin-token", TASK), 403);
}

/* --- what it says of itself ------------------------------------------------------------------------------------------------- */

static void counts(void **state)
{
	struct fixture *f = *state;
	char large[4098] = "";

	ask(f, "POST", TASKS_PATH, "alice-token", TASK);
	ask(f, "POST", TASKS_PATH, "wrong", TASK);
	ask(f, "GET", "/nothing", NULL, NULL);
	memset(large, ' ', sizeof(large) - 1);
	assert_int_equal(ask(f, "POST", TASKS_PATH, "alice-token", large), 413);
	ask(f, "GET", TASKS_PATH "/0123456789abcdef01234567", "read-token", NULL);
	ask(f, "GET", TASKS_PATH "/0123456789abcdef01234568", "read-token", NULL);
	assert_int_equal(ask(f, "GET", "/metrics", "read-token", NULL), 200);
	assert_non_null(strstr(f->in.data, "Content-Type: text/plain; version=0.0.4"));
	assert_sample(f, "# TYPE conclave_gateway_requests_total counter\n");
	assert_sample(f, "conclave_gateway_requests_total{method=\"POST\",route=\"/api/v1/tasks\","
			 "status=\"201\"} 1\n");
	assert_sample(f, "conclave_gateway_requests_total{method=\"GET\","
			 "route=\"/api/v1/tasks/{id}\",status=\"404\"} 2\n");
	assert_sample(f, "conclave_gateway_requests_total{method=\"\",route=\"other\","
			 "status=\"401\"} 1\n");
	assert_sample(f, "conclave_gateway_requests_total{method=\"\",route=\"other\","
			 "status=\"404\"} 1\n");
	assert_sample(f, "conclave_gateway_requests_total{method=\"\",route=\"other\","
			 "status=\"413\"} 1\n"); /* by the server itself */
	assert_sample(f, "conclave_gateway_request_seconds_count{method=\"GET\","
			 "route=\"/api/v1/tasks/{id}\"} 2\n");
	assert_sample(f, "conclave_gateway_request_seconds_bucket{method=\"GET\","
			 "route=\"/api/v1/tasks/{id}\",le=\"+Inf\"} 2\n");
	assert_sample(f, "conclave_gateway_adds_total{created=\"yes\"} 1\n");
	assert_sample(
		f, "conclave_gateway_judicator_calls_total{method=\"get\",result=\"ok\"} 2\n");
	assert_sample(f, "conclave_judicator_up 1\n");
	assert_sample(f, "conclave_tasks_pending 1\n");
	assert_sample(f, "conclave_executors{state=\"alive\"} 0\n");
	assert_sample(f, "conclave_gateway_waiting_clients 0\n");
}

static void workers_are_counted_together(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < 5; i++, swap_workers(f))
		ask(f, "POST", TASKS_PATH, "bob-token", BOBS);
	shared_set_live(f->shared, 0, true);
	shared_set_live(f->shared, 1, true);
	for (unsigned i = 0; i < 2; i++, swap_workers(f)) {
		assert_int_equal(ask(f, "GET", "/metrics", "read-token", NULL), 200);
		assert_sample(f, "conclave_gateway_adds_total{created=\"yes\"} 5\n");
		assert_sample(f, "conclave_gateway_requests_total{method=\"POST\","
				 "route=\"/api/v1/tasks\",status=\"201\"} 5\n");
		assert_sample(f, "conclave_gateway_workers 2\n");
	}
	/* The first dies (they are swapped now): what it has counted stays. */
	gateway_free(take_ptr(&f->other));
	shared_slot_ended(f->shared, 0, false);
	assert_int_equal(ask(f, "GET", "/metrics", "read-token", NULL), 200);
	assert_sample(f, "conclave_gateway_adds_total{created=\"yes\"} 5\n");
	assert_sample(f, "conclave_gateway_workers 1\n");
	assert_sample(f, "conclave_gateway_worker_restarts_total 1\n");
}

static void counts_without_a_judicator(void **state)
{
	struct fixture *f = *state;

	judicator_free(take_ptr(&f->judicator));
	assert_int_equal(ask(f, "GET", "/metrics", "read-token", NULL), 200);
	assert_sample(f, "conclave_judicator_up 0\n");
	assert_null(strstr(f->body, "\nconclave_tasks_pending "));
}

static const struct json *at(const struct json *node, const char *a, const char *b, const char *c)
{
	node = json_get(node, a);
	node = b ? json_get(node, b) : node;
	return c ? json_get(node, c) : node;
}

/* Every $ref leads somewhere. */
static unsigned follow_refs(const struct json *root, const struct json *node)
{
	static const char start[] = "#/components/schemas/";
	unsigned n = 0;

	if (str_is(node->key, "$ref") && node->type == JSON_STRING) {
		assert_memory_equal(node->text.p, start, sizeof(start) - 1);
		if (!at(root, "components", "schemas", node->text.p + sizeof(start) - 1))
			fail_msg("%s leads nowhere", node->text.p);
		return 1;
	}
	for (const struct json *child = node->first; child; child = child->next)
		n += follow_refs(root, child);
	return n;
}

static void openapi_names_each_route(void **state)
{
	struct fixture *f = *state;
	const struct gateway_route *row;
	const struct json *root;
	size_t n = 0;

	assert_int_equal(ask(f, "GET", "/openapi.json", NULL, NULL), 200);
	root = json_root(f->tree);
	assert_string_equal(text_of(f, "openapi"), "3.1.0");
	for (unsigned i = 0; (row = gateway_route_at(i)); i++) {
		const char *name = row->method == HTTP_GET    ? "get"
				   : row->method == HTTP_POST ? "post"
				   : row->method == HTTP_PUT  ? "put"
							      : "delete";
		char path[128] = "", *star;
		const struct json *operation;

		snprintf(path, sizeof(path), "%s", row->path);
		star = strchr(path, '*'); /* {name*} is ours */
		if (star)
			memmove(star, star + 1, strlen(star));
		operation = at(root, "paths", path, name);
		if (!operation)
			fail_msg("no %s %s", name, row->path);
		assert_non_null(json_get(operation, "responses"));
		assert_int_equal(json_get(operation, "security")->count,
			row->allow & ALLOW_EVERYBODY ? 0 : 1);
		n++;
	}
	for (const struct json *path = at(root, "paths", NULL, NULL)->first; path;
		path = path->next)
		n -= path->count;
	assert_int_equal(n, 0); /* and nothing else */
	assert_true(follow_refs(root, root) > 30);
}

static void openapi_says_what_the_tables_say(void **state)
{
	struct fixture *f = *state;
	const struct json *schemas, *limit;
	int64_t value;

	ask(f, "GET", "/openapi.json", NULL, NULL);
	schemas = at(json_root(f->tree), "components", "schemas", NULL);
	for (size_t i = 0; task_record_at(i); i++) {
		const struct codec_record *r = task_record_at(i);
		const struct json *properties = at(schemas, r->name, "properties", NULL);

		assert_non_null(properties);
		assert_int_equal(properties->count, r->n_fields);
		for (size_t k = 0; k < r->n_fields; k++)
			assert_non_null(json_get(properties, r->fields[k].name));
	}
	limit = at(at(schemas, "limits", "properties", NULL), "cpu_ms", "anyOf", NULL)->first;
	assert_true(json_i64(json_get(limit, "maximum"), &value));
	assert_int_equal(value, LIMIT_CPU_MS_MAX);
	assert_int_equal(at(schemas, "file", "required", NULL)->count, 2);
}

/* Parameters that it names are known where it names them, and no others. */
static void openapi_names_the_parameters(void **state)
{
	struct fixture *f = *state;
	const struct gateway_route *row;

	for (unsigned i = 0; (row = gateway_route_at(i)); i++) {
		struct str rest = str_from(row->query), name;
		char path[256];

		if (row->method != HTTP_GET || strchr(row->path, '{'))
			continue;
		snprintf(path, sizeof(path), "%s?zzz=1", row->path);
		if (strcmp(row->path, "/") != 0)
			refuses(f, 400, "unknown_parameter", "GET", path, NULL, NULL);
		while (str_cut(&rest, ',', &name)) {
			snprintf(path, sizeof(path), "%s?" STR_FMT "=", row->path, STR_ARG(name));
			refuses(f, 400, "bad_parameter", "GET", path, NULL, NULL);
		}
	}
}

/* --- each code that the sources can send is in the description --------------------------------------------------------------- */

static void slurp(const char *path, struct buf *out)
{
	FILE *file = fopen(path, "r");
	size_t n;

	assert_non_null(file);
	while ((n = fread(buf_reserve(out, 65536), 1, 65536, file)) > 0)
		out->len += n;
	fclose(file);
	buf_add_char(out, '\0');
}

static bool is_listed(const struct json *codes, struct str code)
{
	for (const struct json *it = codes->first; it; it = it->next) {
		if (str_eq(it->text, code))
			return true;
	}
	return false;
}

/* 404, "task_unknown" anywhere in the file. */
static unsigned check_codes(const char *path, const regex_t *pattern, const struct json *codes)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;
	regmatch_t found[2];
	const char *p;
	unsigned n = 0;

	slurp(path, &text);
	for (p = text.data; !regexec(pattern, p, 2, found, 0); p += found[0].rm_eo, n++) {
		struct str code = {p + found[1].rm_so, (size_t)(found[1].rm_eo - found[1].rm_so)};

		if (!is_listed(codes, code))
			fail_msg("%s: %.*s is not in /openapi.json", path, STR_ARG(code));
	}
	return n;
}

static void openapi_names_the_codes(void **state)
{
	static const char *const places[] = {"/roles/gateway/*.c", "/rpc/codec.c", "/rpc/task/*.c",
		"/rpc/http/server.c", "/rpc/http/router.c"};
	struct fixture *f = *state;
	regex_t pattern;
	glob_t files;
	unsigned n = 0;

	ask(f, "GET", "/openapi.json", NULL, NULL);
	assert_int_equal(
		regcomp(&pattern, "[45][0-9][0-9],[ \t\n]*\"([a-z0-9_]+)\"", REG_EXTENDED), 0);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		char path[512];

		snprintf(path, sizeof(path), CONCLAVE_SOURCE_DIR "%s", places[i]);
		assert_int_equal(glob(path, 0, NULL, &files), 0);
		for (size_t k = 0; k < files.gl_pathc; k++)
			n += check_codes(files.gl_pathv[k], &pattern,
				at(at(json_root(f->tree), "components", "schemas", NULL),
					"problem_code", "enum", NULL));
		globfree(&files);
	}
	regfree(&pattern);
	assert_true(n > 60);
}

#define with(test, up) cmocka_unit_test_setup_teardown(test, up, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with(without_tokens_all_is_open, setup_open),
		with(each_route_asks_for_its_roles, setup),
		with(a_submit_token_has_its_own_blobs, setup),
		with(a_submit_token_has_its_own_tasks, setup),
		with(bounds_the_rate, setup),
		with(bounds_open_tasks, setup),
		with(workers_have_one_bound, setup_two),
		with(workers_have_one_rate, setup_two),
		with(takes_new_tokens, setup),
		with(counts, setup),
		with(workers_are_counted_together, setup_two),
		with(counts_without_a_judicator, setup),
		with(openapi_names_each_route, setup_open),
		with(openapi_says_what_the_tables_say, setup_open),
		with(openapi_names_the_parameters, setup_open),
		with(openapi_names_the_codes, setup_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
