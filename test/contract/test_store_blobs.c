/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store, blobs - what store.h promises of them, run over every row of the table; then what only files can break: a process that died
 * with an upload open, a file without a row, a row without a file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "test/fake/store_hand.h"

#define BLOB_OF_ZEROS "0000000000000000000000000000000000000000000000000000000000000000"
#define LARGE ((size_t)3 * BLOB_PIECE_MAX + 12345)

static int setup(void **state)
{
	*state = store_hand_new(*state);
	return 0;
}

static int teardown(void **state)
{
	store_hand_free(*state);
	return 0;
}

/* --- calls that wait ----------------------------------------------------------------------------------------------- */

struct put {
	const char *user;
	unsigned upload; /* 0 = none */
	int64_t offset;
	bool last, known;
	/* the answer */
	enum store_status status;
	bool kept, created;
	unsigned waiting;
	struct msg_blob_put_request request;
};

static void on_put(void *arg, enum store_status status, const struct msg_blob_put_reply *reply)
{
	struct put *p = arg;

	p->status = status;
	p->kept = reply->kept;
	p->created = reply->created;
	p->waiting--;
}

static void call_put(struct store_hand *h, struct put *p, const char *name, struct str bytes)
{
	p->waiting = 1;
	p->request = (struct msg_blob_put_request){
		.blob = str_from(name),
		.user = str_from(p->user),
		.upload = p->upload ? number_id(p->upload) : (struct id){.hex = ""},
		.offset = p->offset,
		.last = p->last,
		.known = p->known,
	};
	h->store->ops->blob_put(h->store, &p->request, bytes, on_put, p);
	assert_int_equal(p->waiting, 1); /* never inside the call */
}

static struct put put(struct store_hand *h, struct put p, const char *name, struct str bytes)
{
	call_put(h, &p, name, bytes);
	wait_zero(h, &p.waiting);
	return p;
}

struct got {
	enum store_status status;
	int64_t size;
	struct buf bytes;
	unsigned waiting;
};

static void on_got(void *arg, enum store_status status, const struct msg_blob_get_reply *reply,
	struct str bytes)
{
	struct got *g = arg;

	g->status = status;
	g->size = reply->size;
	buf_add_str(&g->bytes, bytes);
	g->waiting--;
}

static struct got get_piece(
	struct store_hand *h, const char *name, const char *user, int64_t offset, int64_t limit)
{
	const struct msg_blob_get_request request = {
		.blob = str_from(name), .user = str_from(user), .offset = offset, .limit = limit};
	struct got g = {.waiting = 1};

	h->store->ops->blob_get(h->store, &request, on_got, &g);
	assert_int_equal(g.waiting, 1);
	wait_zero(h, &g.waiting);
	return g;
}

static enum store_status look(struct store_hand *h, const char *name, const char *user)
{
	struct got g = get_piece(h, name, user, 0, 0);

	assert_int_equal(g.bytes.len, 0);
	buf_fini(&g.bytes);
	return g.status;
}

struct collected {
	enum store_status status;
	int64_t count;
	unsigned waiting;
};

static void on_collected(void *arg, enum store_status status, int64_t count)
{
	struct collected *c = arg;

	c->status = status;
	c->count = count;
	c->waiting--;
}

static int64_t collect(struct store_hand *h, int64_t unused_us)
{
	struct collected c = {.waiting = 1};

	h->store->ops->blob_collect(h->store, unused_us, on_collected, &c);
	wait_zero(h, &c.waiting);
	assert_int_equal(c.status, STORE_OK);
	return c.count;
}

static void name_of(struct str bytes, char out[BLOB_NAME_LEN + 1])
{
	struct blob_hash *hash = blob_hash_new();

	blob_hash_add(hash, bytes);
	blob_hash_end(hash, out);
	blob_hash_free(hash);
}

/* Kept whole, as the user's. */
static void keep(
	struct store_hand *h, const char *user, const char *text, char name[BLOB_NAME_LEN + 1])
{
	static unsigned upload = 1000;
	struct put p;

	name_of(str_from(text), name);
	p = put(h, (struct put){.user = user, .upload = ++upload, .last = true}, name,
		str_from(text));
	assert_int_equal(p.status, STORE_OK);
	assert_true(p.kept);
}

struct adding {
	enum store_status status;
	bool created;
	char missing[BLOB_NAME_LEN + 1];
	unsigned waiting;
};

static void on_added(void *arg, enum store_status status, const struct msg_add_reply *reply)
{
	struct adding *a = arg;

	a->status = status;
	a->created = reply->created;
	snprintf(a->missing, sizeof(a->missing), STR_FMT, STR_ARG(reply->missing));
	a->waiting--;
}

static struct adding add(struct store_hand *h, unsigned n, const char *user, bool any,
	const char *blob, const char *other)
{
	struct str blobs[] = {str_from(blob), str_from(other)};
	const struct msg_add_request request = {
		.id = number_id(n),
		.user = str_from(user),
		.language = STR("raw"),
		.doc.text = STR("{}"),
		.blobs = {blobs, other ? 2 : 1},
		.any_blob = any,
	};
	struct adding a = {.waiting = 1};

	h->store->ops->add(h->store, &request, on_added, &a);
	wait_zero(h, &a.waiting);
	assert_int_equal(a.status, STORE_OK);
	return a;
}

/* --- promises --------------------------------------------------------------------------------------------------------- */

static void a_blob_comes_back_as_it_went(void **state)
{
	struct store_hand *h = *state;
	char *bytes = mem_alloc(LARGE), name[BLOB_NAME_LEN + 1];
	struct put p = {0};
	struct got g;

	for (size_t i = 0; i < LARGE; i++)
		bytes[i] = (char)(i * 7 + i / 1000);
	name_of((struct str){bytes, LARGE}, name);
	for (size_t at = 0; at < LARGE; at += (size_t)BLOB_PIECE_MAX) {
		size_t n =
			LARGE - at < (size_t)BLOB_PIECE_MAX ? LARGE - at : (size_t)BLOB_PIECE_MAX;

		assert_int_equal(look(h, name, NULL), STORE_UNKNOWN); /* never a half of it */
		p = put(h,
			(struct put){.user = "ann",
				.upload = 1,
				.offset = (int64_t)at,
				.last = at + n == LARGE},
			name, (struct str){bytes + at, n});
		assert_int_equal(p.status, STORE_OK);
		assert_int_equal(p.kept, at + n == LARGE);
	}
	assert_true(p.created);
	for (size_t at = 0; at < LARGE + 5000; at += 700000) {
		g = get_piece(h, name, "ann", (int64_t)at, 700000);
		assert_int_equal(g.status, STORE_OK);
		assert_int_equal(g.size, LARGE);
		assert_int_equal(g.bytes.len, at >= LARGE           ? 0
					      : LARGE - at < 700000 ? LARGE - at
								    : 700000);
		assert_memory_equal(g.bytes.data, bytes + at, g.bytes.len);
		buf_fini(&g.bytes);
	}
	free(bytes);
}

static void no_bytes_are_a_blob(void **state)
{
	struct store_hand *h = *state;
	char name[BLOB_NAME_LEN + 1];
	struct got g;

	keep(h, "ann", "", name);
	g = get_piece(h, name, "ann", 0, 100);
	assert_int_equal(g.status, STORE_OK);
	assert_int_equal(g.size, 0);
	assert_int_equal(g.bytes.len, 0);
	buf_fini(&g.bytes);
}

static void a_wrong_hash_is_forgotten(void **state)
{
	struct store_hand *h = *state;
	char name[BLOB_NAME_LEN + 1], other[BLOB_NAME_LEN + 1];
	struct put p;

	name_of(STR("right"), name);
	name_of(STR("wrong"), other);
	p = put(h, (struct put){.upload = 1, .last = true}, name, STR("wrong"));
	assert_int_equal(p.status, STORE_MISMATCH);
	assert_false(p.kept);
	assert_int_equal(look(h, name, NULL), STORE_UNKNOWN);
	assert_int_equal(look(h, other, NULL), STORE_UNKNOWN);
	/* the upload is over: its next piece is lost, and it can be begun again */
	p = put(h, (struct put){.upload = 1, .offset = 5, .last = true}, name, STR("x"));
	assert_int_equal(p.status, STORE_LOST);
	p = put(h, (struct put){.upload = 1, .last = true}, name, STR("right"));
	assert_int_equal(p.status, STORE_OK);
	assert_true(p.kept && p.created);
}

static void pieces_may_be_sent_again(void **state)
{
	struct store_hand *h = *state;
	char name[BLOB_NAME_LEN + 1];
	struct put first = {.upload = 1}, second = {.upload = 1, .offset = 2, .last = true}, p;

	name_of(STR("abcd"), name);
	assert_int_equal(put(h, first, name, STR("ab")).status, STORE_OK);
	p = put(h, first, name, STR("ab"));
	assert_int_equal(p.status, STORE_OK);
	assert_false(p.kept);
	p = put(h, second, name, STR("cd"));
	assert_true(p.kept && p.created);
	p = put(h, second, name, STR("cd")); /* its answer was lost */
	assert_int_equal(p.status, STORE_OK);
	assert_true(p.kept);
	assert_false(p.created);
}

static void pieces_come_in_order(void **state)
{
	struct store_hand *h = *state;
	char name[BLOB_NAME_LEN + 1];

	name_of(STR("abcdef"), name);
	assert_int_equal(
		put(h, (struct put){.upload = 1, .offset = 2}, name, STR("cd")).status, STORE_LOST);
	assert_int_equal(put(h, (struct put){.upload = 1}, name, STR("ab")).status, STORE_OK);
	assert_int_equal(
		put(h, (struct put){.upload = 1, .offset = 4}, name, STR("ef")).status, STORE_LOST);
	assert_int_equal(
		put(h, (struct put){.upload = 2, .offset = 2}, name, STR("cd")).status, STORE_LOST);
	/* and an upload is of one blob */
	assert_int_equal(
		put(h, (struct put){.upload = 1, .offset = 2}, BLOB_OF_ZEROS, STR("cd")).status,
		STORE_LOST);
	assert_true(put(h, (struct put){.upload = 1, .offset = 2, .last = true}, name, STR("cdef"))
			    .kept);
}

static void a_piece_waits_for_the_one_before(void **state)
{
	struct store_hand *h = *state;
	char name[BLOB_NAME_LEN + 1];
	struct put first = {.upload = 1}, again = {.upload = 1};

	name_of(STR("ab"), name);
	call_put(h, &first, name, STR("a"));
	call_put(h, &again, name, STR("a"));
	wait_zero(h, &first.waiting);
	wait_zero(h, &again.waiting);
	assert_int_equal(first.status, STORE_OK);
	assert_int_equal(again.status, STORE_E_BUSY);
}

static void uploads_are_bounded(void **state)
{
	struct store_hand *h = *state;
	char name[BLOB_NAME_LEN + 1];

	name_of(STR("ab"), name);
	for (unsigned i = 1; i <= STORE_UPLOADS_MAX; i++)
		assert_int_equal(
			put(h, (struct put){.upload = i}, name, STR("a")).status, STORE_OK);
	assert_int_equal(put(h, (struct put){.upload = 9999}, name, STR("a")).status, STORE_E_BUSY);
	assert_true(
		put(h, (struct put){.upload = 7, .offset = 1, .last = true}, name, STR("b")).kept);
	assert_int_equal(put(h, (struct put){.upload = 9999}, name, STR("a")).status, STORE_OK);
}

static void a_blob_is_its_uploaders(void **state)
{
	struct store_hand *h = *state;
	char name[BLOB_NAME_LEN + 1];
	struct put p;

	keep(h, "ann", "ann's tests", name);
	assert_int_equal(look(h, name, "ann"), STORE_OK);
	assert_int_equal(look(h, name, NULL), STORE_OK);
	assert_int_equal(look(h, name, "bob"), STORE_UNKNOWN);
	/* who has the bytes too is as good as the first */
	p = put(h, (struct put){.user = "bob", .upload = 1, .last = true}, name,
		STR("ann's tests"));
	assert_true(p.kept);
	assert_false(p.created);
	assert_int_equal(look(h, name, "bob"), STORE_OK);
	assert_int_equal(look(h, name, "ann"), STORE_OK);
}

static void known_bytes_need_not_be_sent(void **state)
{
	struct store_hand *h = *state;
	char name[BLOB_NAME_LEN + 1];
	struct put p;

	name_of(STR("bytes"), name);
	p = put(h, (struct put){.user = "bob", .known = true}, name, STR_NULL);
	assert_int_equal(p.status, STORE_OK);
	assert_false(p.kept);
	keep(h, "ann", "bytes", name);
	p = put(h, (struct put){.user = "bob"}, name, STR_NULL); /* only asked: nothing is shown */
	assert_false(p.kept);
	assert_int_equal(look(h, name, "bob"), STORE_UNKNOWN);
	p = put(h, (struct put){.user = "bob", .known = true}, name, STR_NULL);
	assert_true(p.kept);
	assert_false(p.created);
	assert_int_equal(look(h, name, "bob"), STORE_OK);
}

static void a_task_needs_its_blobs(void **state)
{
	struct store_hand *h = *state;
	char mine[BLOB_NAME_LEN + 1], yours[BLOB_NAME_LEN + 1];
	struct adding a;

	keep(h, "ann", "mine", mine);
	keep(h, "bob", "yours", yours);
	a = add(h, 1, "ann", false, mine, BLOB_OF_ZEROS);
	assert_false(a.created);
	assert_string_equal(a.missing, BLOB_OF_ZEROS);
	a = add(h, 1, "ann", false, yours, mine);
	assert_false(a.created);
	assert_string_equal(a.missing, yours);
	assert_int_equal(pending(h), 0);
	a = add(h, 1, "ann", true, yours, mine);
	assert_true(a.created);
	a = add(h, 2, "ann", false, mine, mine);
	assert_true(a.created);
	/* what is there already needs nothing any more */
	a = add(h, 2, "ann", false, mine, mine);
	assert_false(a.created);
	assert_string_equal(a.missing, "");
}

static void only_what_nothing_refers_to_is_collected(void **state)
{
	struct store_hand *h = *state;
	char used[BLOB_NAME_LEN + 1], spare[BLOB_NAME_LEN + 1];
	struct got g;

	keep(h, "ann", "used", used);
	keep(h, "ann", "unused", spare);
	assert_true(add(h, 1, "ann", false, used, NULL).created);
	cancel(h, 1);
	assert_int_equal(collect(h, 3600 * US_PER_S), 0); /* too young */
	loop_turn(h->loop, 2000);
	assert_int_equal(collect(h, 1), 1);
	assert_int_equal(look(h, spare, NULL), STORE_UNKNOWN);
	g = get_piece(h, used, "ann", 0, 100);
	assert_int_equal(g.bytes.len, 4);
	buf_fini(&g.bytes);
	/* gone is gone, for its owner too; and it may come back */
	assert_string_equal(add(h, 2, "ann", false, spare, NULL).missing, spare);
	keep(h, "ann", "unused", spare);
	assert_true(add(h, 2, "ann", false, spare, NULL).created);
	assert_int_equal(collect(h, 1), 0);
}

static void a_put_and_a_collection_do_not_meet(void **state)
{
	struct store_hand *h = *state;
	char name[BLOB_NAME_LEN + 1];

	keep(h, "ann", "again and again", name);
	for (unsigned i = 0; i < 50; i++) {
		struct collected c = {.waiting = 1};
		struct put p = {.user = "ann", .upload = i + 1, .last = true};
		struct got g;

		loop_turn(h->loop, 100);
		if (i % 2)
			call_put(h, &p, name, STR("again and again"));
		h->store->ops->blob_collect(h->store, 1, on_collected, &c);
		if (!(i % 2))
			call_put(h, &p, name, STR("again and again"));
		wait_zero(h, &c.waiting);
		wait_zero(h, &p.waiting);
		assert_true(p.kept);
		/* either it went before it came, or it stayed: there is no row without its bytes */
		g = get_piece(h, name, "ann", 0, 100);
		if (g.status == STORE_OK)
			assert_int_equal(g.bytes.len, 15);
		else
			assert_int_equal(g.status, STORE_UNKNOWN);
		buf_fini(&g.bytes);
	}
}

static void closing_ends_what_was_called(void **state)
{
	struct store_hand *h = *state;
	char name[BLOB_NAME_LEN + 1];
	struct put p = {.upload = 1, .last = true}, q = {.upload = 2};

	name_of(STR("bytes"), name);
	call_put(h, &p, name, STR("bytes"));
	call_put(h, &q, name, STR("by"));
	store_hand_close(h);
	assert_int_equal(p.waiting, 0);
	assert_int_equal(q.waiting, 0);
	assert_true(p.kept);
}

/* --- files ------------------------------------------------------------------------------------------------------------------ */

static bool exists(const struct store_hand *h, const char *below)
{
	char path[200];
	struct stat st;

	snprintf(path, sizeof(path), "%s/blobs/%s", h->dir, below);
	return stat(path, &st) == 0;
}

static void make(const struct store_hand *h, const char *below)
{
	char path[200];
	FILE *file;

	snprintf(path, sizeof(path), "%s/blobs/%s", h->dir, below);
	file = fopen(path, "w");
	assert_non_null(file);
	fclose(file);
}

static void files_outlive_the_store(void **state)
{
	struct store_hand *h = *state;
	char name[BLOB_NAME_LEN + 1], path[BLOB_NAME_LEN + 4];
	struct got g;

	keep(h, "ann", "kept", name);
	snprintf(path, sizeof(path), "%.2s/%s", name, name);
	assert_true(exists(h, path));
	store_hand_close(h);
	assert_int_equal(store_hand_open(h), 0);
	g = get_piece(h, name, "ann", 1, 2);
	assert_int_equal(g.size, 4);
	assert_memory_equal(g.bytes.data, "ep", 2);
	buf_fini(&g.bytes);
	assert_int_equal(look(h, name, "bob"), STORE_UNKNOWN);
}

static void what_a_death_left_is_removed(void **state)
{
	struct store_hand *h = *state;
	char name[BLOB_NAME_LEN + 1], path[BLOB_NAME_LEN + 4];

	keep(h, "ann", "kept", name);
	snprintf(path, sizeof(path), "%.2s/%s", name, name);
	store_hand_close(h);
	make(h, "new/0123456789abcdef01234567");
	snprintf(path, sizeof(path), "%.2s/%.62sff", name,
		name); /* renamed, its row never written */
	make(h, path);
	assert_int_equal(store_hand_open(h), 0);
	assert_false(exists(h, "new/0123456789abcdef01234567"));
	assert_false(exists(h, path));
	assert_int_equal(look(h, name, "ann"), STORE_OK);
}

static void a_file_that_is_gone_is_our_failure(void **state)
{
	struct store_hand *h = *state;
	char name[BLOB_NAME_LEN + 1], path[300];
	struct got g;

	keep(h, "ann", "kept", name);
	snprintf(path, sizeof(path), "%s/blobs/%.2s/%s", h->dir, name, name);
	assert_int_equal(unlink(path), 0);
	g = get_piece(h, name, "ann", 0, 10);
	assert_int_equal(g.status, STORE_E_FAILED);
	assert_non_null(strstr(h->logged, "blob_failed"));
	buf_fini(&g.bytes);
}

static void a_full_disk_refuses(void **state)
{
	struct store_hand *h = *state;
	char name[BLOB_NAME_LEN + 1];

	name_of(STR("ab"), name);
	assert_int_equal(put(h, (struct put){.upload = 1}, name, STR("a")).status, STORE_OK);
	h->store->ops->set_reserve(h->store, INT64_MAX);
	assert_int_equal(
		put(h, (struct put){.upload = 1, .offset = 1, .last = true}, name, STR("b")).status,
		STORE_E_FULL);
	assert_false(exists(h, "new/00000001000000000000000001"));
	h->store->ops->set_reserve(h->store, 0);
	keep(h, "ann", "ab", name);
}

static void collected_files_are_removed(void **state)
{
	struct store_hand *h = *state;
	char name[BLOB_NAME_LEN + 1], path[BLOB_NAME_LEN + 4];

	keep(h, "ann", "short-lived", name);
	snprintf(path, sizeof(path), "%.2s/%s", name, name);
	assert_true(exists(h, path));
	loop_turn(h->loop, 2000);
	assert_int_equal(collect(h, 1), 1);
	assert_false(exists(h, path));
}

/* --- the table ---------------------------------------------------------------------------------------------------------------- */

#define PROMISE(name)                                                                              \
	{                                                                                          \
#name, name                                                                        \
	}
static const struct {
	const char *name;
	CMUnitTestFunction fn;
} promises[] = {
	PROMISE(a_blob_comes_back_as_it_went),
	PROMISE(no_bytes_are_a_blob),
	PROMISE(a_wrong_hash_is_forgotten),
	PROMISE(pieces_may_be_sent_again),
	PROMISE(pieces_come_in_order),
	PROMISE(a_piece_waits_for_the_one_before),
	PROMISE(uploads_are_bounded),
	PROMISE(a_blob_is_its_uploaders),
	PROMISE(known_bytes_need_not_be_sent),
	PROMISE(a_task_needs_its_blobs),
	PROMISE(only_what_nothing_refers_to_is_collected),
	PROMISE(a_put_and_a_collection_do_not_meet),
	PROMISE(closing_ends_what_was_called),
	/* files only */
	PROMISE(files_outlive_the_store),
	PROMISE(what_a_death_left_is_removed),
	PROMISE(a_file_that_is_gone_is_our_failure),
	PROMISE(a_full_disk_refuses),
	PROMISE(collected_files_are_removed),
};
#define FILES_ONLY 5

static int run_row(const struct store_ops *ops, size_t n)
{
	struct CMUnitTest tests[ARRAY_SIZE(promises)] = {0};
	char *texts[ARRAY_SIZE(promises)];
	int failures;

	for (size_t i = 0; i < n; i++) {
		texts[i] = mem_printf("%s: %s", ops->name, promises[i].name);
		tests[i] =
			(struct CMUnitTest){texts[i], promises[i].fn, setup, teardown, (void *)ops};
	}
	failures = _cmocka_run_group_tests(ops->name, tests, n, NULL, NULL);
	for (size_t i = 0; i < n; i++)
		free(texts[i]);
	return failures;
}

int main(void)
{
	return run_row(&store_memory, ARRAY_SIZE(promises) - FILES_ONLY) +
	       run_row(&store_sqlite, ARRAY_SIZE(promises));
}
