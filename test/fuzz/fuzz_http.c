/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what a client of the gateway sends: through a real socket into the HTTP server, the gateway's checks and handlers,
 * a judicator and its store. Whatever comes, what comes back is whole answers, whose documents are valid JSON, then the end of the connection; and
 * the next connection finds the gateway healthy.
 *
 * The first byte says how the rest is sent: bits 0-2 choose what is put before it (prefixes), bit 3 that it is sent in two
 * pieces, bit 4 that the client leaves without reading. Behind it all our side is shut, so a server that reads on for ever is found.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cfg/language.h"
#include "reactor/base/check.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/gateway/gateway.h"
#include "roles/judicator/judicator.h"
#include "rpc/json.h"

#define DEADLINE_US (20 * US_PER_S)
#define WORLD_INPUTS 500 /* what is submitted stays in the store: it begins anew */
#define HEALTHY_EVERY 16
#define BODY_MAX 65536
#define HOST "Host: fuzz.example\r\n"
#define POST "POST /api/v1/tasks HTTP/1.1\r\n" HOST
#define POST_JSON POST "Content-Type: application/json\r\n"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct world {
	struct loop *loop;
	struct loop_net *net;
	struct transport *t_gateway, *t_judicator;
	struct store *store;
	struct judicator *judicator;
	struct map languages;
	struct gateway *gateway;
	unsigned n_inputs;
};

static void on_changed(void *arg, const struct id *ids, unsigned n_ids, const struct str *languages,
	unsigned n_languages)
{
	struct world *w = arg;

	judicator_on_changed(w->judicator, ids, n_ids, languages, n_languages);
}

static void world_start(struct world *w)
{
	struct loop_net_options net = {0};
	struct store_options store = {.max_retries = 3, .on_changed = on_changed, .arg = w};
	struct judicator_options judicator = {
		.name = "j1", .address = "j1:1", .expire_us = 60 * US_PER_S, .leading = true};
	struct gateway_options gateway = {
		.judicators = "j1:1",
		.addresses = "127.0.0.1:0",
		.hosts = "fuzz.example",
		.body_max = BODY_MAX,
		.read_timeout_us = 5 * US_PER_S,
		.wait_us = US_PER_S,
		.languages = &w->languages,
	};
	struct cfg_errors errors = {0};

	w->loop = loop_new(NULL);
	w->net = loop_net_new(w->loop, &net);
	gateway.transport = w->t_gateway = transport_loop_new(w->net, "g1");
	judicator.transport = w->t_judicator = transport_loop_new(w->net, "j1");
	map_init(&w->languages);
	language_load_dir(CONCLAVE_SOURCE_DIR "/cfg/languages", &w->languages, &errors);
	CHECK(store_memory.open(w->loop, &store, &w->store) == 0);
	judicator.store = w->store;
	CHECK(judicator_new(w->loop, &judicator, &w->judicator) == 0);
	CHECK(gateway_new(w->loop, &gateway, &w->gateway) == 0);
}

static void world_end(struct world *w)
{
	gateway_free(w->gateway);
	judicator_free(w->judicator);
	w->store->ops->close(w->store);
	w->t_gateway->ops->free(w->t_gateway);
	w->t_judicator->ops->free(w->t_judicator);
	loop_net_free(w->net);
	loop_free(w->loop);
	language_map_fini(&w->languages);
	*w = (struct world){0};
}

/* --- the client -------------------------------------------------------------------------------------------------- */

/* A reset at the close leaves no port behind that waits. */
static int client_connect(struct world *w)
{
	struct sockaddr_in sin = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)gateway_port(w->gateway)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct linger hard = {.l_onoff = 1};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)) == 0);
	CHECK(connect(fd, (struct sockaddr *)&sin, sizeof(sin)) == 0);
	return fd;
}

static void client_send(struct world *w, int fd, struct str bytes)
{
	int64_t end_us = clock_boot_us() + DEADLINE_US;

	while (bytes.n) {
		ssize_t n = send(fd, bytes.p, bytes.n, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno != EAGAIN)
			return; /* the server has ended it */
		if (n > 0)
			bytes = (struct str){bytes.p + n, bytes.n - (size_t)n};
		else
			CHECK(clock_boot_us() < end_us);
		loop_turn(w->loop, n > 0 ? 0 : 1000);
	}
}

/* To the end of the connection. */
static void client_read(struct world *w, int fd, struct buf *in)
{
	int64_t end_us = clock_boot_us() + DEADLINE_US;
	ssize_t n;

	while ((n = recv(fd, buf_reserve(in, 65536), 65536, MSG_DONTWAIT)) != 0) {
		if (n > 0) {
			in->len += (size_t)n;
			continue;
		}
		if (errno != EAGAIN)
			return;
		CHECK(clock_boot_us() < end_us);
		loop_turn(w->loop, 1000);
	}
}

/* --- what came --------------------------------------------------------------------------------------------------- */

static bool cut_line(struct str *rest, struct str *line)
{
	const char *end = memmem(rest->p, rest->n, "\r\n", 2);

	if (!end)
		return false;
	*line = (struct str){rest->p, (size_t)(end - rest->p)};
	*rest = (struct str){end + 2, rest->n - line->n - 2};
	return true;
}

struct head {
	int status;
	int64_t length; /* -1: chunks */
	bool is_json, closes;
};

static void read_field(struct str line, struct head *head)
{
	struct str name;

	CHECK(str_cut(&line, ':', &name) && line.p && name.n > 0);
	line = str_trim(line);
	if (str_is(name, "Content-Length")) {
		CHECK(head->length < 0 && str_to_i64(line, &head->length) && head->length >= 0);
	} else if (str_is(name, "Content-Type")) {
		head->is_json = memmem(line.p, line.n, "json", 4) != NULL;
	} else if (str_is(name, "Connection")) {
		head->closes = str_is(line, "close");
	}
}

static void read_head(struct str *rest, struct head *head)
{
	struct str line;

	*head = (struct head){.length = -1};
	CHECK(cut_line(rest, &line));
	CHECK(line.n > 13 && !memcmp(line.p, "HTTP/1.1 ", 9) && line.p[12] == ' ');
	head->status = atoi(line.p + 9);
	CHECK(head->status >= 100 && head->status < 600 && head->status != 500);
	for (;;) {
		CHECK(cut_line(rest, &line));
		if (!line.n)
			return;
		read_field(line, head);
	}
}

/* Every answer must be whole; HEAD's have no body, and a request that could be one makes that unknown. */
static void check_answers(struct str rest, bool maybe_head)
{
	struct json_error error;
	struct head head;

	while (rest.n) {
		struct json_tree *tree cleanup(json_freep) = NULL;

		read_head(&rest, &head);
		if (head.status < 200 || head.status == 204 || head.status == 304)
			continue;
		if (maybe_head || head.length < 0)
			return; /* chunks of a stream end with its client */
		CHECK(rest.n >= (size_t)head.length);
		if (head.is_json)
			CHECK(json_parse((struct str){rest.p, (size_t)head.length}, NULL, &tree,
				      &error) == 0);
		rest = (struct str){rest.p + head.length, rest.n - (size_t)head.length};
		CHECK(!head.closes || !rest.n);
	}
}

static void check_healthy(struct world *w)
{
	struct buf in cleanup(buf_fini) = BUF_INIT;
	int fd = client_connect(w);

	client_send(w, fd, STR("GET /healthz HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n"));
	client_read(w, fd, &in);
	close(fd);
	CHECK(in.len > 12 && !memcmp(in.data, "HTTP/1.1 200", 12));
	check_answers(buf_str(&in), false);
}

/* --- one input ------------------------------------------------------------------------------------------------------ */

static void build(struct buf *out, unsigned prefix, struct str data)
{
	static const char *const lines[] = {
		"",
		"GET /",
		"GET /api/v1/tasks?",
		POST_JSON "Transfer-Encoding: chunked\r\n\r\n",
		POST_JSON,
		POST_JSON,
		"GET /healthz HTTP/1.1\r\n" HOST "\r\n",
		POST,
	};

	buf_add_str(out, str_from(lines[prefix]));
	if (prefix == 4)
		buf_addf(out, "Content-Length: %zu\r\n\r\n", data.n);
	buf_add_str(out, data);
	if (prefix == 1 || prefix == 2)
		buf_add_str(out, STR(" HTTP/1.1\r\n" HOST "\r\n"));
}

static void one_connection(struct world *w, unsigned how, struct str data)
{
	struct buf out cleanup(buf_fini) = BUF_INIT, in cleanup(buf_fini) = BUF_INIT;
	bool leaves = how & 16;
	int fd = client_connect(w);
	size_t half;

	build(&out, how & 7, data);
	half = how & 8 ? out.len / 2 : out.len;
	client_send(w, fd, (struct str){out.data, half});
	loop_turn(w->loop, 0);
	client_send(w, fd, (struct str){out.data + half, out.len - half});
	if (!leaves) {
		shutdown(fd, SHUT_WR);
		client_read(w, fd, &in);
	}
	close(fd);
	loop_turn(w->loop, 0);
	check_answers(buf_str(&in), memmem(buf_str(&out).p, out.len, "HEAD", 4) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world world;

	if (!size)
		return 0;
	if (!world.gateway)
		world_start(&world);
	one_connection(&world, data[0], (struct str){(const char *)data + 1, size - 1});
	if (++world.n_inputs % HEALTHY_EVERY == 0)
		check_healthy(&world);
	if (world.n_inputs >= WORLD_INPUTS) {
		check_healthy(&world);
		world_end(&world);
	}
	return 0;
}
