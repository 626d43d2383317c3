/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs at a gateway, over real sockets, against a real judicator on a memory store: uploads that come in pieces, are held back, are
 * wrong, or end too early; and large content of a submission that becomes blobs.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "cfg/language.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/gateway/gateway.h"
#include "roles/judicator/judicator.h"

#define DEADLINE_US (20 * US_PER_S)
#define MIB ((size_t)1 << 20)
#define BLOB_MAX (8 * MIB)
#define LARGE (5 * MIB + 77)

struct fixture {
	struct loop *loop;
	struct loop_net *net;
	struct transport *t_gateway, *t_judicator;
	struct store *store;
	struct judicator *judicator;
	struct map languages;
	struct gateway *gateway;
	int fd;
	struct buf in;
	const char *body; /* of the answer */
	size_t body_len;
	char *large; /* LARGE bytes */
	char name[BLOB_NAME_LEN + 1];
	unsigned n_gets, n_puts;
};

static void on_changed(void *arg, const struct id *ids, unsigned n_ids, const struct str *languages,
	unsigned n_languages)
{
	judicator_on_changed(
		((struct fixture *)arg)->judicator, ids, n_ids, languages, n_languages);
}

static void name_bytes(struct str bytes, char name[BLOB_NAME_LEN + 1])
{
	struct blob_hash *hash = blob_hash_new();

	blob_hash_add(hash, bytes);
	blob_hash_end(hash, name);
	blob_hash_free(hash);
}

static void start_judicator(struct fixture *f)
{
	struct judicator_options judicator = {.name = "j1",
		.address = "j1:1",
		.expire_us = 60 * US_PER_S,
		.leading = true,
		.transport = f->t_judicator,
		.store = f->store};

	assert_int_equal(judicator_new(f->loop, &judicator, &f->judicator), 0);
}

static int setup(void **state)
{
	struct fixture *f = mem_alloc(sizeof(*f));
	struct store_options store = {.max_retries = 3, .on_changed = on_changed, .arg = f};
	struct loop_net_options quick = {0};
	struct cfg_errors errors = {0};
	struct gateway_options gateway = {
		.judicators = "j1:1",
		.addresses = "127.0.0.1:0",
		.hosts = "judge",
		.languages = &f->languages,
		.body_max = (int64_t)(2 * MIB),
		.blob_max = (int64_t)BLOB_MAX,
		.read_timeout_us = 5 * US_PER_S,
		.wait_us = 2 * US_PER_S,
	};

	f->fd = -1;
	f->loop = loop_new(NULL);
	f->net = loop_net_new(f->loop, &quick);
	f->t_gateway = transport_loop_new(f->net, "g1");
	f->t_judicator = transport_loop_new(f->net, "j1");
	map_init(&f->languages);
	language_load_dir(CONCLAVE_SOURCE_DIR "/cfg/languages", &f->languages, &errors);
	assert_int_equal(store_memory.open(f->loop, &store, &f->store), 0);
	start_judicator(f);
	gateway.transport = f->t_gateway;
	assert_int_equal(gateway_new(f->loop, &gateway, &f->gateway), 0);
	f->large = mem_alloc(LARGE);
	for (size_t i = 0; i < LARGE; i++)
		f->large[i] = (char)(i * 5 + i / 1009);
	name_bytes((struct str){f->large, LARGE}, f->name);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	if (f->fd >= 0)
		close(f->fd);
	gateway_free(f->gateway);
	judicator_free(f->judicator);
	f->store->ops->close(f->store);
	f->t_gateway->ops->free(f->t_gateway);
	f->t_judicator->ops->free(f->t_judicator);
	loop_net_free(f->net);
	loop_free(f->loop);
	language_map_fini(&f->languages);
	buf_fini(&f->in);
	free(f->large);
	free(f);
	return 0;
}

/* --- a client -------------------------------------------------------------------------------------------------------- */

static void dial(struct fixture *f)
{
	struct sockaddr_in sin = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)gateway_port(f->gateway)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	if (f->fd >= 0)
		close(f->fd);
	f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(f->fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(fcntl(f->fd, F_SETFL, O_NONBLOCK), 0);
	buf_clear(&f->in);
}

static void read_some(struct fixture *f)
{
	ssize_t n = read(f->fd, buf_reserve(&f->in, 65536), 65536);

	if (n > 0)
		f->in.len += (size_t)n;
	f->in.data[f->in.len] = '\0';
}

/* As much as the gateway takes; an answer that comes too early ends it. */
static void send_all(struct fixture *f, struct str bytes)
{
	int64_t until_us = loop_now_us(f->loop) + DEADLINE_US;

	while (bytes.n && !f->in.len) {
		ssize_t n = send(f->fd, bytes.p, bytes.n, MSG_NOSIGNAL);

		assert_true(loop_now_us(f->loop) < until_us);
		if (n < 0 && errno != EAGAIN)
			break;
		bytes.p += n > 0 ? n : 0;
		bytes.n -= n > 0 ? (size_t)n : 0;
		loop_turn(f->loop, n > 0 ? 0 : 1000);
		read_some(f);
	}
}

static bool is_whole(struct fixture *f)
{
	const char *end = f->in.len ? strstr(f->in.data, "\r\n\r\n") : NULL;
	const char *length;

	if (!end)
		return false;
	length = strcasestr(f->in.data, "\r\nContent-Length:");
	assert_non_null(length);
	f->body = end + 4;
	f->body_len = f->in.len - (size_t)(f->body - f->in.data);
	return f->body_len >= strtoul(length + 17, NULL, 10);
}

/* The status. */
static int answer(struct fixture *f)
{
	int64_t until_us = loop_now_us(f->loop) + DEADLINE_US;

	for (read_some(f); !is_whole(f); read_some(f)) {
		if (loop_now_us(f->loop) > until_us)
			fail_msg("no answer: %s", f->in.data);
		loop_turn(f->loop, 1000);
	}
	return atoi(f->in.data + 9);
}

static void begin(struct fixture *f, const char *method, const char *path, const char *headers)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;

	dial(f);
	buf_addf(&text, "%s %s HTTP/1.1\r\nHost: judge\r\nConnection: close\r\n%s\r\n", method,
		path, headers);
	send_all(f, buf_str(&text));
}

static void begin_put(struct fixture *f, const char *name, size_t n)
{
	char *path cleanup(mem_freep) = mem_printf("/api/v1/blobs/%s", name);
	char *headers cleanup(mem_freep) = mem_printf("Content-Length: %zu\r\n", n);

	begin(f, "PUT", path, headers);
}

static int put(struct fixture *f, const char *name, struct str bytes)
{
	begin_put(f, name, bytes.n);
	send_all(f, bytes);
	return answer(f);
}

static int get(struct fixture *f, const char *method, const char *name)
{
	char *path cleanup(mem_freep) = mem_printf("/api/v1/blobs/%s", name);

	begin(f, method, path, "");
	if (strcmp(method, "HEAD") != 0)
		return answer(f);
	while (!f->in.len || !strstr(f->in.data, "\r\n\r\n")) {
		loop_turn(f->loop, 1000);
		read_some(f);
	}
	return atoi(f->in.data + 9);
}

static void assert_code(const struct fixture *f, const char *code)
{
	char *member cleanup(mem_freep) = mem_printf("\"code\":\"%s\"", code);

	if (!strstr(f->body, member))
		fail_msg("not %s: %s", code, f->body);
}

static struct str large(const struct fixture *f)
{
	return (struct str){f->large, LARGE};
}

static int64_t count(void *arg, const char *from, const char *to, const char *method, bool is_reply,
	struct str body)
{
	struct fixture *f = arg;

	if (!is_reply && !strcmp(method, "blob_put"))
		f->n_puts++;
	return 0;
}

static void count_methods(struct fixture *f)
{
	f->n_puts = 0;
	loop_net_set_fate(f->net, count, f);
}

/* --- up and down ------------------------------------------------------------------------------------------------------- */

static void a_large_one_goes_up_and_comes_down(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(get(f, "GET", f->name), 404);
	assert_code(f, "blob_unknown");
	assert_int_equal(put(f, f->name, large(f)), 201);
	assert_non_null(strstr(f->body, "\"created\":true"));
	assert_int_equal(get(f, "GET", f->name), 200);
	assert_int_equal(f->body_len, LARGE);
	assert_memory_equal(f->body, f->large, LARGE);
	assert_int_equal(put(f, f->name, large(f)), 200);
	assert_non_null(strstr(f->body, "\"created\":false"));
	assert_int_equal(get(f, "HEAD", f->name), 200);
	assert_non_null(strcasestr(f->in.data, "Content-Length: 5242957\r\n"));
	assert_string_equal(strstr(f->in.data, "\r\n\r\n"), "\r\n\r\n");
}

static void sizes_at_the_edges(void **state)
{
	static const size_t sizes[] = {0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB, 3 * MIB - 1};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct str bytes = {f->large, sizes[i]};
		char name[BLOB_NAME_LEN + 1];

		name_bytes(bytes, name);
		assert_int_equal(put(f, name, bytes), 201);
		assert_int_equal(get(f, "GET", name), 200);
		assert_int_equal(f->body_len, bytes.n);
		assert_memory_equal(f->body, bytes.p, bytes.n);
	}
}

static void chunks_are_as_good(void **state)
{
	struct fixture *f = *state;
	char *path cleanup(mem_freep) = mem_printf("/api/v1/blobs/%s", f->name);

	begin(f, "PUT", path, "Transfer-Encoding: chunked\r\n");
	for (size_t at = 0; at < LARGE;) {
		size_t n = LARGE - at < 300000 ? LARGE - at : 300000;
		char size[24];

		snprintf(size, sizeof(size), "%zx\r\n", n);
		send_all(f, str_from(size));
		send_all(f, (struct str){f->large + at, n});
		send_all(f, STR("\r\n"));
		at += n;
	}
	send_all(f, STR("0\r\n\r\n"));
	assert_int_equal(answer(f), 201);
	assert_int_equal(get(f, "GET", f->name), 200);
	assert_memory_equal(f->body, f->large, LARGE);
}

/* A judicator that is slow must not make the gateway take the whole blob into its memory: the client has to wait. */
static void the_client_is_held_back(void **state)
{
	struct fixture *f = *state;
	struct loop_net_options slow = {.delay_min_us = 30000, .delay_max_us = 30000};
	struct str rest = large(f);
	int small = 65536, stalled = 0;
	size_t most = 0;

	loop_net_set(f->net, &slow);
	begin_put(f, f->name, LARGE);
	setsockopt(f->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	/* no piece has been answered yet: two pieces and what sockets hold is all that goes */
	for (int64_t until_us = loop_now_us(f->loop) + 25000; loop_now_us(f->loop) < until_us;) {
		ssize_t n = send(f->fd, rest.p, rest.n, MSG_NOSIGNAL);

		rest.p += n > 0 ? n : 0;
		rest.n -= n > 0 ? (size_t)n : 0;
		stalled = n > 0 ? 0 : stalled + 1;
		loop_turn(f->loop, 0);
	}
	most = LARGE - rest.n;
	send_all(f, rest);
	assert_int_equal(answer(f), 201);
	if (stalled)
		assert_true(most < LARGE);
	assert_int_equal(get(f, "GET", f->name), 200);
	assert_memory_equal(f->body, f->large, LARGE);
}

/* The network doubles requests and lets them overtake each other: a piece that comes twice is one piece. */
static void doubled_and_late_pieces_are_harmless(void **state)
{
	struct fixture *f = *state;
	struct loop_net_options odd = {
		.delay_min_us = 0, .delay_max_us = 3000, .duplicate_percent = 50};

	loop_net_set(f->net, &odd);
	for (unsigned i = 0; i < 5; i++) {
		f->large[0] = (char)i;
		name_bytes(large(f), f->name);
		assert_in_range(put(f, f->name, large(f)), 200, 201);
		assert_int_equal(get(f, "GET", f->name), 200);
		assert_int_equal(f->body_len, LARGE);
		assert_memory_equal(f->body, f->large, LARGE);
	}
}

/* --- what is wrong ------------------------------------------------------------------------------------------------------- */

static void wrong_bytes_are_refused(void **state)
{
	struct fixture *f = *state;

	f->large[LARGE - 1] ^= 1;
	assert_int_equal(put(f, f->name, large(f)), 422);
	assert_code(f, "blob_mismatch");
	assert_int_equal(get(f, "GET", f->name), 404);
	f->large[LARGE - 1] ^= 1;
	assert_int_equal(put(f, f->name, large(f)), 201);
}

static void bad_names_and_types_are_refused(void **state)
{
	static const struct {
		const char *name, *headers, *code;
		int status;
	} rows[] = {
		{"abc", "Content-Length: 1\r\n", "bad_blob", 422},
		{"0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef",
			"Content-Length: 1\r\n", "bad_blob", 422},
		{"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef/x",
			"Content-Length: 1\r\n", "bad_blob", 422},
		{"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			"Content-Length: 1\r\nContent-Type: application/json\r\n",
			"unsupported_type", 415},
		{"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			"Content-Length: 1\r\nContent-Encoding: gzip\r\n", "unsupported_encoding",
			415},
		{"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			"Content-Length: 8388609\r\n", "body_too_large", 413},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char *path cleanup(mem_freep) = mem_printf("/api/v1/blobs/%s", rows[i].name);

		begin(f, "PUT", path, rows[i].headers);
		assert_int_equal(answer(f), rows[i].status);
		assert_code(f, rows[i].code);
	}
	assert_int_equal(get(f, "GET", "abc"), 422);
	assert_int_equal(get(f, "GET", f->name), 404);
}

static void who_leaves_leaves_nothing(void **state)
{
	struct fixture *f = *state;

	for (size_t n = 0; n <= LARGE - MIB; n += MIB) {
		begin_put(f, f->name, LARGE);
		send_all(f, (struct str){f->large, n});
		close(f->fd);
		f->fd = -1;
		for (int i = 0; i < 50; i++)
			loop_turn(f->loop, 1000);
		assert_int_equal(get(f, "GET", f->name), 404);
	}
	assert_int_equal(put(f, f->name, large(f)), 201);
}

/* Its answer is told at once, or with what the client sends next. */
static void a_judicator_that_begins_anew_ends_the_upload(void **state)
{
	struct fixture *f = *state;
	struct store_options store = {.max_retries = 3, .on_changed = on_changed, .arg = f};

	count_methods(f);
	begin_put(f, f->name, LARGE);
	send_all(f, (struct str){f->large, 3 * MIB});
	while (f->n_puts < 2) /* the first piece has been taken */
		loop_turn(f->loop, 1000);
	judicator_free(take_ptr(&f->judicator));
	f->store->ops->close(f->store);
	assert_int_equal(store_memory.open(f->loop, &store, &f->store), 0);
	start_judicator(f);
	send_all(f, (struct str){f->large + 3 * MIB, LARGE - 3 * MIB});
	assert_int_equal(answer(f), 503);
	assert_code(f, "blob_upload_lost");
	assert_non_null(strstr(f->in.data, "Retry-After:"));
	assert_int_equal(put(f, f->name, large(f)), 201);
}

static void uploads_are_bounded(void **state)
{
	enum { MANY = 64 };
	struct fixture *f = *state;
	int fds[MANY];

	for (int i = 0; i < MANY; i++) {
		begin_put(f, f->name, LARGE);
		send_all(f, STR("x"));
		for (int k = 0; k < 5; k++)
			loop_turn(f->loop, 1000);
		fds[i] = f->fd;
		f->fd = -1;
	}
	begin_put(f, f->name, LARGE);
	assert_int_equal(answer(f), 503);
	assert_code(f, "busy");
	close(fds[0]);
	for (int k = 0; k < 50; k++)
		loop_turn(f->loop, 1000);
	assert_int_equal(put(f, f->name, large(f)), 201);
	for (int i = 1; i < MANY; i++)
		close(fds[i]);
}

/* --- large content of a submission ----------------------------------------------------------------------------------------- */

static int post(struct fixture *f, const char *key, size_t n_input, char letter)
{
	struct buf body cleanup(buf_fini) = BUF_INIT;
	char *headers cleanup(mem_freep) = NULL;

	buf_addf(&body, "{\"language\":\"cpp\",\"source\":\"x\",\"input\":\"");
	for (size_t i = 0; i < n_input; i++)
		buf_add_char(&body, letter);
	buf_addf(&body, "\"}");
	headers = mem_printf("Content-Type: application/json\r\nContent-Length: %zu\r\n"
			     "Idempotency-Key: %s\r\n",
		body.len, key);
	begin(f, "POST", "/api/v1/tasks", headers);
	send_all(f, buf_str(&body));
	return answer(f);
}

static void large_content_becomes_a_blob(void **state)
{
	struct fixture *f = *state;
	char *bytes cleanup(mem_freep) = mem_alloc(MIB + MIB / 2);
	char name[BLOB_NAME_LEN + 1];

	memset(bytes, 'a', MIB + MIB / 2);
	name_bytes((struct str){bytes, MIB + MIB / 2}, name);
	count_methods(f);
	assert_int_equal(post(f, "small", 65536, 'a'), 201);
	assert_int_equal(f->n_puts, 0);
	assert_int_equal(post(f, "k", MIB + MIB / 2, 'a'), 201);
	assert_int_equal(f->n_puts, 3); /* is it known? and two pieces */
	assert_int_equal(get(f, "GET", name), 200);
	assert_int_equal(f->body_len, MIB + MIB / 2);
	assert_memory_equal(f->body, bytes, f->body_len);
	assert_int_equal(post(f, "k", MIB + MIB / 2, 'a'), 200); /* the same task */
	assert_int_equal(f->n_puts, 4);
	assert_int_equal(post(f, "k", MIB + MIB / 2, 'b'), 409);
	assert_code(f, "task_conflict");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_large_one_goes_up_and_comes_down),
		TEST(sizes_at_the_edges),
		TEST(chunks_are_as_good),
		TEST(the_client_is_held_back),
		TEST(doubled_and_late_pieces_are_harmless),
		TEST(wrong_bytes_are_refused),
		TEST(bad_names_and_types_are_refused),
		TEST(who_leaves_leaves_nothing),
		TEST(a_judicator_that_begins_anew_ends_the_upload),
		TEST(uploads_are_bounded),
		TEST(large_content_becomes_a_blob),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
