/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adds - question (c): how many durable adds a second, beside what SQLite itself does with the same group commit?
 *
 *   bench-adds DIR ROUNDS [IP:PORT SECRET_FILE]
 *
 * For 1, 16 and 64 clients, each with one add under way, rounds alternate between
 *
 *   least  SQLite with the least that could be called a queue: one table with a unique id
 *   bare   SQLite with our tables and indexes (the queue, the lists by user and status, documents apart from small rows), and
 *          the inserts an add comes to. Both: one thread, the same pragmas; a transaction holds what each client adds, and when
 *          it is durable all of them are there again
 *   store  the store's own interface, in this process: `add`, and the next one in its callback
 *   rpc    the same over HTTP from this process, with a judicator at IP:PORT: two JSON codecs and two HTTP ends more
 *
 * All are on the file system of DIR (a judicator's is where it was started). Documents are of DOC_BYTES, ids are new ones.
 * Prints lines "name value": medians over the rounds of adds a second, and of the ratio to `bare` in the same round.
 */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/bench.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/judicator/store/store.h"
#include "rpc/rpc_client.h"

#define ROUND_US (US_PER_S / 2)
#define ROUNDS_MAX 1000
#define CLIENTS_MAX 64
#define DOC_BYTES 512

struct bench;

struct client {
	struct bench *bench;
	struct msg_add_request request;
	struct op *op; /* rpc */
};

struct raw { /* SQLite as it is */
	sqlite3 *db;
	sqlite3_stmt *begin, *insert, *insert_doc, *commit;
	int64_t last_add_us;
};

struct bench {
	struct loop *loop;
	struct store *store;
	struct transport *transport;
	const char *address;
	struct raw least, bare;
	char doc[DOC_BYTES + 1];
	struct client clients[CLIENTS_MAX];
	void (*add)(struct client *c); /* of the round */
	uint64_t done;
	unsigned open;
	int64_t until_us;
};

static void die(const char *what, const char *why)
{
	fprintf(stderr, "bench-adds: %s: %s\n", what, why);
	exit(1);
}

/* --- ours: store and rpc --- */

static struct store *store_open(struct bench *b, const char *path)
{
	struct store_options options = {.dir = path, .max_retries = 3};
	struct store *store = NULL;

	if (mkdir(path, 0700) || store_sqlite.open(b->loop, &options, &store))
		die(path, "no store can be opened there: it must be new");
	return store;
}

static void client_add(struct client *c)
{
	struct loop *loop = c->bench->loop;

	c->request.id = id_make((uint32_t)(loop_wall_us(loop) / US_PER_S), loop_random(loop));
	c->bench->add(c);
}

static void client_done(struct client *c, bool good)
{
	struct bench *b = c->bench;

	if (!good)
		die("add", "was refused");
	b->done++;
	if (clock_boot_us() < b->until_us)
		client_add(c);
	else
		b->open--;
}

static void on_stored(void *arg, enum store_status status, const struct msg_add_reply *reply)
{
	client_done(arg, status == STORE_OK && reply->created);
}

static void add_to_store(struct client *c)
{
	struct store *store = c->bench->store;

	store->ops->add(store, &c->request, on_stored, c);
}

static void on_answer(void *arg, struct rpc_answer *answer)
{
	struct client *c = arg;

	c->op = NULL;
	client_done(c, answer->failure == RPC_OK);
}

static void add_by_rpc(struct client *c)
{
	struct bench *b = c->bench;

	if (rpc_call(b->loop, b->transport, b->address, RPC_add, &c->request, 0, on_answer, c,
		    &c->op))
		die("add", "was not sent");
}

static double round_ours(struct bench *b, unsigned clients, void (*add)(struct client *c))
{
	int64_t begun = clock_boot_us();

	b->add = add;
	b->done = 0;
	b->open = clients;
	b->until_us = begun + ROUND_US;
	for (unsigned i = 0; i < clients; i++)
		client_add(&b->clients[i]);
	while (b->open)
		loop_turn(b->loop, US_PER_S);
	return (double)b->done * 1e6 / (double)(clock_boot_us() - begun);
}

/* --- SQLite as it is --- */

#define PRAGMAS                                                                                    \
	"PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"           \
	"PRAGMA wal_autocheckpoint = 4000; PRAGMA cache_size = -65536;"

static void must(struct raw *raw, int code)
{
	if (code != SQLITE_OK && code != SQLITE_DONE)
		die("sqlite", sqlite3_errmsg(raw->db));
}

static void raw_open(struct raw *raw, const char *path, const char *schema, const char *insert,
	const char *insert_doc)
{
	must(raw, sqlite3_open(path, &raw->db));
	must(raw, sqlite3_exec(raw->db, PRAGMAS, NULL, NULL, NULL));
	must(raw, sqlite3_exec(raw->db, schema, NULL, NULL, NULL));
	must(raw, sqlite3_prepare_v2(raw->db, "BEGIN IMMEDIATE", -1, &raw->begin, NULL));
	must(raw, sqlite3_prepare_v2(raw->db, insert, -1, &raw->insert, NULL));
	must(raw, sqlite3_prepare_v2(raw->db, insert_doc, -1, &raw->insert_doc, NULL));
	must(raw, sqlite3_prepare_v2(raw->db, "COMMIT", -1, &raw->commit, NULL));
}

static void raw_close(struct raw *raw)
{
	sqlite3_finalize(raw->begin);
	sqlite3_finalize(raw->insert);
	sqlite3_finalize(raw->insert_doc);
	sqlite3_finalize(raw->commit);
	sqlite3_close(raw->db);
}

static void least_open(struct bench *b, const char *dir)
{
	char *path cleanup(mem_freep) = mem_printf("%s/least.db", dir);

	raw_open(&b->least, path,
		"CREATE TABLE task(add_us INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,"
		" language TEXT, user TEXT, priority INTEGER, status TEXT, doc BLOB)",
		"INSERT INTO task VALUES(?1, ?2, 'cpp', 'bench', 0, 'pending', ?3)", "");
}

/* The store makes its tables; it is closed again before SQLite has them for itself. */
static void bare_open(struct bench *b, const char *dir)
{
	char *path cleanup(mem_freep) = mem_printf("%s/bare", dir);
	char *file cleanup(mem_freep) = mem_printf("%s/store.db", path);
	struct store *store = store_open(b, path);

	store->ops->close(store);
	raw_open(&b->bare, file, "",
		"INSERT INTO task(add_us, id, language, user, priority, place, status, verdict,"
		" executor, epoch, assign_seq, attempt, retries, case_no, start_us, done_us,"
		" message)"
		" VALUES(?1, ?2, 'cpp', 'bench', 0, 1, 'pending', NULL, '', 0, 0, 0, 0, 0, 0, 0, "
		"'')",
		"INSERT INTO doc(add_us, text) VALUES(?1, ?3)");
}

static void step(struct raw *raw, sqlite3_stmt *stmt)
{
	must(raw, sqlite3_step(stmt));
	must(raw, sqlite3_reset(stmt));
}

static void raw_add(struct bench *b, struct raw *raw)
{
	int64_t now_us = loop_wall_us(b->loop);
	struct id id = id_make((uint32_t)(now_us / US_PER_S), loop_random(b->loop));
	sqlite3_stmt *doc = raw->insert_doc ? raw->insert_doc : raw->insert;

	raw->last_add_us = now_us > raw->last_add_us ? now_us : raw->last_add_us + 1;
	sqlite3_bind_int64(raw->insert, 1, raw->last_add_us);
	sqlite3_bind_text(raw->insert, 2, id.hex, ID_LEN, SQLITE_STATIC);
	sqlite3_bind_int64(doc, 1, raw->last_add_us);
	sqlite3_bind_blob(doc, 3, b->doc, DOC_BYTES, SQLITE_STATIC);
	step(raw, raw->insert);
	if (raw->insert_doc)
		step(raw, raw->insert_doc);
}

static double round_raw(struct bench *b, struct raw *raw, unsigned clients)
{
	int64_t begun = clock_boot_us();
	uint64_t done = 0;

	while (clock_boot_us() < begun + ROUND_US) {
		step(raw, raw->begin);
		for (unsigned i = 0; i < clients; i++)
			raw_add(b, raw);
		step(raw, raw->commit);
		done += clients;
	}
	return (double)done * 1e6 / (double)(clock_boot_us() - begun);
}

/* --- main --- */

enum row { LEAST, BARE, STORE, RPC, ROWS };

static void compare(struct bench *b, unsigned clients, unsigned rounds)
{
	static const char *const names[ROWS] = {"least", "bare", "store", "rpc"};
	static double rates[ROWS][ROUNDS_MAX], ratios[ROWS][ROUNDS_MAX];

	for (unsigned i = 0; i < rounds; i++) {
		rates[LEAST][i] = round_raw(b, &b->least, clients);
		rates[BARE][i] = round_raw(b, &b->bare, clients);
		rates[STORE][i] = round_ours(b, clients, add_to_store);
		rates[RPC][i] = b->transport ? round_ours(b, clients, add_by_rpc) : 0;
		for (unsigned row = 0; row < ROWS; row++)
			ratios[row][i] = rates[row][i] / rates[BARE][i];
	}
	for (unsigned row = 0; row < ROWS; row++)
		printf("adds%u_%s %.0f\nadds%u_%s_ratio %.2f\n", clients, names[row],
			bench_quantile(rates[row], rounds, 500), clients, names[row],
			bench_quantile(ratios[row], rounds, 500));
}

static void clients_init(struct bench *b)
{
	memset(b->doc, 'x', DOC_BYTES);
	b->doc[0] = b->doc[DOC_BYTES - 1] = '"';
	for (unsigned i = 0; i < CLIENTS_MAX; i++) {
		b->clients[i].bench = b;
		b->clients[i].request = (struct msg_add_request){.user = STR("bench"),
			.language = STR("cpp"),
			.doc.text = {b->doc, DOC_BYTES}};
	}
}

int main(int argc, char **argv)
{
	static const unsigned clients[] = {1, 16, 64};
	static struct bench b;
	unsigned rounds = argc == 3 || argc == 5 ? bench_number(argv[2], ROUNDS_MAX) : 0;
	char *path cleanup(mem_freep) = NULL;

	if (!rounds) {
		fprintf(stderr, "usage: bench-adds DIR ROUNDS [IP:PORT SECRET_FILE]\n");
		return 2;
	}
	path = mem_printf("%s/store", argv[1]);
	b.loop = loop_new(NULL);
	clients_init(&b);
	least_open(&b, argv[1]);
	bare_open(&b, argv[1]);
	b.store = store_open(&b, path);
	if (argc == 5) {
		b.address = argv[3];
		b.transport = bench_transport(b.loop, argv[4]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++)
		compare(&b, clients[i], rounds);
	if (b.transport)
		b.transport->ops->free(b.transport);
	raw_close(&b.least);
	raw_close(&b.bare);
	b.store->ops->close(b.store);
	loop_free(b.loop);
	return 0;
}
