/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor's cache of blobs against a judicator played by hand, which serves pieces of whatever it is told to have: what is
 * fetched, believed, kept and let go.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reactor/base/clock.h"
#include "reactor/base/map.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/executor/blob_cache.h"
#include "rpc/rpc_server.h"

#define DEADLINE_US (20 * US_PER_S)
#define MIB ((size_t)1 << 20)

struct fixture {
	struct loop *loop;
	struct loop_net *net;
	struct transport *t_cache, *t_judicator;
	struct rpc_server *server;
	struct blob_cache *cache;
	char dir[64];
	int64_t bytes_max;
	struct map kept;  /* name -> struct buf *: what the judicator has */
	unsigned n_asked; /* pieces */
	bool damages, hangs, refuses;
	struct rpc_call *hanging;
};

static void forget_hanging(void *arg)
{
	((struct fixture *)arg)->hanging = NULL;
}

static void on_get(void *arg, struct rpc_call *call)
{
	struct fixture *f = arg;
	const struct msg_blob_get_request *request = rpc_call_request(call);
	const struct buf *bytes = map_get(&f->kept, request->blob);
	struct msg_blob_get_reply reply = {0};
	struct buf piece cleanup(buf_fini) = BUF_INIT;

	f->n_asked++;
	if (f->hangs) {
		f->hanging = call;
		rpc_call_on_gone(call, forget_hanging, f);
		return;
	}
	if (f->refuses) {
		rpc_call_fail(call, 503, "busy", "not now");
		return;
	}
	if (!bytes) {
		rpc_call_fail(call, 404, "blob_missing", "There is no such blob.");
		return;
	}
	assert_true(request->limit <= BLOB_PIECE_MAX);
	reply.size = (int64_t)bytes->len;
	if (request->offset < reply.size) {
		size_t n = bytes->len - (size_t)request->offset;

		buf_add(&piece, bytes->data + request->offset,
			n < (size_t)request->limit ? n : (size_t)request->limit);
		if (f->damages)
			piece.data[0] ^= 1;
	}
	rpc_call_reply_carrying(call, &reply, buf_str(&piece));
}

static void open_cache(struct fixture *f)
{
	f->cache = blob_cache_new(f->loop, &(struct blob_cache_options){
						   .transport = f->t_cache,
						   .judicators = "j1:1",
						   .dir = f->dir,
						   .bytes_max = f->bytes_max,
					   });
}

static void serve(struct fixture *f)
{
	static rpc_handler_fn *const handlers[RPC_METHOD_N] = {[RPC_blob_get] = on_get};

	assert_int_equal(
		rpc_server_new(f->loop, NULL, f->t_judicator, "j1:1", handlers, f, &f->server), 0);
}

static int setup(void **state)
{
	struct fixture *f = mem_alloc(sizeof(*f));
	struct loop_net_options quick = {0};

	snprintf(f->dir, sizeof(f->dir), "/tmp/blob-cache.XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	f->bytes_max = (int64_t)(10 * MIB);
	f->loop = loop_new(NULL);
	f->net = loop_net_new(f->loop, &quick);
	f->t_cache = transport_loop_new(f->net, "e1");
	f->t_judicator = transport_loop_new(f->net, "j1");
	map_init(&f->kept);
	serve(f);
	open_cache(f);
	*state = f;
	return 0;
}

static void each_file(const struct fixture *f, void (*fn)(const char *path))
{
	DIR *dir = opendir(f->dir);
	struct dirent *entry;

	while ((entry = readdir(dir))) {
		char *path cleanup(mem_freep) = mem_printf("%s/%s", f->dir, entry->d_name);

		if (entry->d_name[0] != '.')
			fn(path);
	}
	closedir(dir);
}

static void remove_it(const char *path)
{
	assert_int_equal(unlink(path), 0);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	blob_cache_free(f->cache);
	rpc_server_free(f->server);
	f->t_cache->ops->free(f->t_cache);
	f->t_judicator->ops->free(f->t_judicator);
	loop_net_free(f->net);
	loop_free(f->loop);
	map_each (it, &f->kept) {
		buf_fini(map_entry_of(it)->value);
		free(map_entry_of(it)->value);
	}
	map_fini(&f->kept);
	each_file(f, remove_it);
	assert_int_equal(rmdir(f->dir), 0);
	free(f);
	return 0;
}

/* The judicator has n bytes of a kind; their name. */
static void keep(struct fixture *f, unsigned kind, size_t n, char name[BLOB_NAME_LEN + 1])
{
	struct buf *bytes = mem_alloc(sizeof(*bytes));
	struct blob_hash *hash = blob_hash_new();

	for (size_t i = 0; i < n; i++)
		buf_add_char(bytes, (char)(i * 3 + i / 997 + kind));
	blob_hash_add(hash, buf_str(bytes));
	blob_hash_end(hash, name);
	blob_hash_free(hash);
	assert_null(map_set(&f->kept, str_from(name), bytes));
}

struct wanted {
	struct blob_wait *wait;
	struct blob *blob;
	bool has_failed, is_missing;
	char why[128];
};

static void on_ready(void *arg, struct blob *blob, bool is_missing, const char *why)
{
	struct wanted *w = arg;

	assert_non_null(w->wait); /* never inside the call */
	w->wait = NULL;
	w->blob = blob;
	w->has_failed = !blob;
	w->is_missing = is_missing;
	snprintf(w->why, sizeof(w->why), "%s", why);
}

static void want(struct fixture *f, struct wanted *w, const char *name)
{
	*w = (struct wanted){0};
	w->wait = blob_cache_want(f->cache, str_from(name), on_ready, w);
}

static void turn_until(struct fixture *f, bool (*is)(void *arg), void *arg)
{
	int64_t until_us = loop_now_us(f->loop) + DEADLINE_US;

	while (!is(arg)) {
		if (loop_now_us(f->loop) > until_us)
			fail_msg("nothing came of it");
		loop_turn(f->loop, 1000);
	}
}

static bool is_over(void *arg)
{
	return !((struct wanted *)arg)->wait;
}

static struct wanted get(struct fixture *f, const char *name)
{
	struct wanted w;

	want(f, &w, name);
	turn_until(f, is_over, &w);
	return w;
}

/* Has the bytes, both ways. */
static void assert_right(struct fixture *f, const struct wanted *w, const char *name)
{
	const struct buf *bytes = map_get(&f->kept, str_from(name));
	struct str map;
	char *read_back = mem_alloc(bytes->len + 1);

	assert_non_null(w->blob);
	assert_int_equal(w->blob->size, bytes->len);
	map = blob_map(w->blob);
	assert_int_equal(map.n, bytes->len);
	assert_memory_equal(map.p, bytes->len ? bytes->data : "", bytes->len);
	assert_int_equal(pread(w->blob->fd, read_back, bytes->len + 1, 0), bytes->len);
	assert_memory_equal(read_back, bytes->len ? bytes->data : "", bytes->len);
	free(read_back);
}

static struct blob_cache_stats stats(const struct fixture *f)
{
	struct blob_cache_stats s;

	blob_cache_get_stats(f->cache, &s);
	return s;
}

static char *path_of(const struct fixture *f, const char *name, const char *suffix)
{
	return mem_printf("%s/%s%s", f->dir, name, suffix);
}

/* A suffix may have more behind it. */
static bool exists(const struct fixture *f, const char *name, const char *suffix)
{
	char *begin cleanup(mem_freep) = mem_printf("%s%s", name, suffix);
	DIR *dir = opendir(f->dir);
	struct dirent *entry;
	bool found = false;

	while (!found && (entry = readdir(dir)))
		found = suffix[0] ? strncmp(entry->d_name, begin, strlen(begin)) == 0
				  : strcmp(entry->d_name, begin) == 0;
	closedir(dir);
	return found;
}

struct file_gone {
	const struct fixture *f;
	const char *name, *suffix;
};

static bool is_file_gone(void *arg)
{
	const struct file_gone *g = arg;

	return !exists(g->f, g->name, g->suffix);
}

static void wait_gone(struct fixture *f, const char *name, const char *suffix)
{
	struct file_gone g = {f, name, suffix};

	turn_until(f, is_file_gone, &g);
}

/* --- fetching ---------------------------------------------------------------------------------------------------- */

static void comes_in_pieces_and_is_kept(void **state)
{
	struct fixture *f = *state;
	char name[BLOB_NAME_LEN + 1];
	struct wanted w;
	struct stat st;
	char *path cleanup(mem_freep) = NULL;

	keep(f, 1, 3 * MIB + 5, name);
	w = get(f, name);
	assert_right(f, &w, name);
	assert_int_equal(f->n_asked, 4);
	path = path_of(f, name, "");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0400);
	blob_release(&w.blob);
	w = get(f, name);
	assert_right(f, &w, name);
	blob_release(&w.blob);
	assert_int_equal(f->n_asked, 4);
	assert_int_equal(stats(f).fetched, 1);
	assert_int_equal(stats(f).hits, 1);
	assert_int_equal(stats(f).bytes, 3 * MIB + 5);
}

static void sizes_at_the_edges(void **state)
{
	static const size_t sizes[] = {0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB};
	struct fixture *f = *state;
	char name[BLOB_NAME_LEN + 1];

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct wanted w;

		keep(f, (unsigned)i, sizes[i], name);
		w = get(f, name);
		assert_right(f, &w, name);
		blob_release(&w.blob);
	}
}

static void all_who_want_it_share_one_fetch(void **state)
{
	struct fixture *f = *state;
	char name[BLOB_NAME_LEN + 1];
	struct wanted w[5];

	keep(f, 1, 2 * MIB, name);
	for (size_t i = 0; i < ARRAY_SIZE(w); i++)
		want(f, &w[i], name);
	blob_wait_cancel(&w[2].wait);
	for (size_t i = 0; i < ARRAY_SIZE(w); i++)
		turn_until(f, is_over, &w[i]);
	assert_null(w[2].blob);
	w[2].blob = w[1].blob;
	for (size_t i = 0; i < ARRAY_SIZE(w); i++)
		assert_right(f, &w[i], name);
	w[2].blob = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(w); i++)
		blob_release(&w[i].blob);
	assert_int_equal(f->n_asked, 2);
}

static void what_nobody_has_is_missing(void **state)
{
	struct fixture *f = *state;
	char name[BLOB_NAME_LEN + 1];
	struct wanted w;

	memset(name, 'a', BLOB_NAME_LEN);
	name[BLOB_NAME_LEN] = '\0';
	w = get(f, name);
	assert_true(w.has_failed && w.is_missing);
	w = get(f, name); /* asked anew: it may have come meanwhile */
	assert_true(w.has_failed && w.is_missing);
	assert_int_equal(f->n_asked, 2);
}

static void damage_on_the_way_is_found(void **state)
{
	struct fixture *f = *state;
	char name[BLOB_NAME_LEN + 1];
	struct wanted w;

	keep(f, 1, MIB + 1, name);
	f->damages = true;
	w = get(f, name);
	assert_true(w.has_failed && !w.is_missing);
	assert_non_null(strstr(w.why, "hash"));
	assert_false(exists(f, name, ""));
	wait_gone(f, name, ".part");
	f->damages = false;
	w = get(f, name);
	assert_right(f, &w, name);
	blob_release(&w.blob);
}

static void a_judicator_that_is_away_is_asked_again(void **state)
{
	struct fixture *f = *state;
	char name[BLOB_NAME_LEN + 1];
	struct wanted w;

	keep(f, 1, MIB + 1, name);
	rpc_server_free(take_ptr(&f->server));
	want(f, &w, name);
	for (int i = 0; i < 300; i++)
		loop_turn(f->loop, 1000);
	assert_non_null(w.wait);
	serve(f);
	turn_until(f, is_over, &w);
	assert_right(f, &w, name);
	blob_release(&w.blob);
}

static void a_busy_one_too(void **state)
{
	struct fixture *f = *state;
	char name[BLOB_NAME_LEN + 1];
	struct wanted w;

	keep(f, 1, 10, name);
	f->refuses = true;
	want(f, &w, name);
	while (f->n_asked < 3)
		loop_turn(f->loop, 1000);
	assert_non_null(w.wait);
	f->refuses = false;
	turn_until(f, is_over, &w);
	assert_right(f, &w, name);
	blob_release(&w.blob);
}

/* No file is half written, and the sizes of the others come to what the cache says. */
static bool all_files_are_counted(void *arg)
{
	struct fixture *f = arg;
	DIR *dir = opendir(f->dir);
	struct dirent *entry;
	int64_t bytes = 0;
	bool is_whole = true;

	while ((entry = readdir(dir))) {
		struct stat st;

		if (entry->d_name[0] == '.' || fstatat(dirfd(dir), entry->d_name, &st, 0) < 0)
			continue;
		bytes += st.st_size;
		is_whole = is_whole && !strstr(entry->d_name, ".part");
	}
	closedir(dir);
	return is_whole && bytes == stats(f).bytes;
}

static bool is_hanging(void *arg)
{
	return ((struct fixture *)arg)->hanging;
}

static bool is_not_hanging(void *arg)
{
	return !is_hanging(arg);
}

static void when_nobody_wants_it_the_fetch_ends(void **state)
{
	struct fixture *f = *state;
	char name[BLOB_NAME_LEN + 1];
	struct wanted w;

	keep(f, 1, 3 * MIB, name);
	want(f, &w, name);
	while (f->n_asked < 2)
		loop_turn(f->loop, 1000);
	f->hangs = true;
	turn_until(f, is_hanging, f);
	assert_true(exists(f, name, ".part"));
	blob_wait_cancel(&w.wait);
	turn_until(f, is_not_hanging, f);
	wait_gone(f, name, ".part");
	f->hangs = false;
	w = get(f, name);
	assert_right(f, &w, name);
	blob_release(&w.blob);
	/* and between two pieces, wherever it is; what was whole is kept, and counted */
	for (int turns = 0; turns < 30; turns++) {
		char other[BLOB_NAME_LEN + 1];

		keep(f, 100 + (unsigned)turns, 2 * MIB, other);
		want(f, &w, other);
		for (int i = 0; i < turns; i++)
			loop_turn(f->loop, 0);
		blob_wait_cancel(&w.wait);
		blob_release(&w.blob);
	}
	turn_until(f, all_files_are_counted, f);
}

static void reopen(struct fixture *f)
{
	blob_cache_free(take_ptr(&f->cache));
	open_cache(f);
}

static void some_turns(struct fixture *f)
{
	for (int i = 0; i < 50; i++)
		loop_turn(f->loop, 1000);
}

static void abandoned_in_its_last_piece(void **state)
{
	struct fixture *f = *state;
	char slow[BLOB_NAME_LEN + 1], name[BLOB_NAME_LEN + 1];
	char *path cleanup(mem_freep) = NULL;
	struct wanted w, abandoned;
	int fd;

	keep(f, 1, 10, slow);
	keep(f, 2, 1000, name);
	w = get(f, slow);
	blob_release(&w.blob);
	reopen(f);
	path = path_of(f, slow, "");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	want(f, &w, slow);
	want(f, &abandoned, name);
	some_turns(f);
	assert_int_equal(f->n_asked, 2);
	blob_wait_cancel(&abandoned.wait);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	close(fd);
	turn_until(f, is_over, &w);
	blob_release(&w.blob);
	turn_until(f, all_files_are_counted, f);
	assert_int_equal(stats(f).bytes, 1010);
	w = get(f, name);
	assert_right(f, &w, name);
	blob_release(&w.blob);
	assert_int_equal(f->n_asked, 3); /* the slow one's, again; this one was there */
}

/* What an abandoned fetch still does on the worker is no business of the next one's. */
static void wanted_again_while_the_worker_is_slow(void **state)
{
	struct fixture *f = *state;
	char slow[BLOB_NAME_LEN + 1], name[BLOB_NAME_LEN + 1];
	char *path cleanup(mem_freep) = NULL;
	struct wanted w, again;
	int fd;

	keep(f, 1, 10, slow);
	keep(f, 2, 2 * MIB, name);
	w = get(f, slow);
	blob_release(&w.blob);
	reopen(f);
	/* The worker looks at its hash, and hangs until somebody writes. */
	path = path_of(f, slow, "");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	want(f, &w, slow);
	want(f, &again, name);
	some_turns(f); /* the first piece is in line */
	blob_wait_cancel(&again.wait);
	want(f, &again, name);
	some_turns(f); /* and once more */
	assert_int_equal(f->n_asked, 3);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	close(fd);
	turn_until(f, is_over, &again);
	assert_string_equal(again.why, "");
	assert_right(f, &again, name);
	turn_until(f, is_over, &w);
	assert_right(f, &w, slow);
	blob_release(&w.blob);
	blob_release(&again.blob);
	wait_gone(f, name, ".part");
}

/* --- the bound --------------------------------------------------------------------------------------------------------- */

static void the_longest_unused_goes_first(void **state)
{
	struct fixture *f = *state;
	char a[BLOB_NAME_LEN + 1], b[BLOB_NAME_LEN + 1], c[BLOB_NAME_LEN + 1];
	struct wanted w;

	keep(f, 1, 4 * MIB, a);
	keep(f, 2, 4 * MIB, b);
	keep(f, 3, 4 * MIB, c);
	w = get(f, a);
	blob_release(&w.blob);
	w = get(f, b);
	blob_release(&w.blob);
	w = get(f, a); /* used again: b is the one now */
	blob_release(&w.blob);
	w = get(f, c);
	assert_right(f, &w, c);
	blob_release(&w.blob);
	wait_gone(f, b, "");
	assert_true(exists(f, a, ""));
	assert_int_equal(stats(f).evicted, 1);
	assert_int_equal(stats(f).bytes, 8 * MIB);
}

static void what_is_pinned_stays(void **state)
{
	struct fixture *f = *state;
	char names[4][BLOB_NAME_LEN + 1];
	struct wanted w[4];

	for (unsigned i = 0; i < 4; i++) {
		keep(f, i, 4 * MIB, names[i]);
		w[i] = get(f, names[i]);
	}
	assert_int_equal(stats(f).bytes, 16 * MIB); /* over the bound, as all are needed */
	for (unsigned i = 0; i < 4; i++)
		assert_right(f, &w[i], names[i]);
	blob_release(&w[3].blob);
	assert_int_equal(stats(f).bytes, 12 * MIB);
	blob_release(&w[0].blob);
	assert_int_equal(stats(f).bytes, 8 * MIB);
	assert_right(f, &w[1], names[1]);
	assert_right(f, &w[2], names[2]);
	blob_release(&w[1].blob);
	blob_release(&w[2].blob);
	assert_int_equal(stats(f).bytes, 8 * MIB);
}

static void one_larger_than_all_is_lent_and_goes(void **state)
{
	struct fixture *f = *state;
	char name[BLOB_NAME_LEN + 1];
	struct wanted w;

	keep(f, 1, 11 * MIB, name);
	w = get(f, name);
	assert_right(f, &w, name);
	blob_release(&w.blob);
	assert_int_equal(stats(f).bytes, 0);
	wait_gone(f, name, "");
}

/* --- what is there already ---------------------------------------------------------------------------------------------- */

static void overwrite(
	const struct fixture *f, const char *name, const char *suffix, const char *mode)
{
	char *path cleanup(mem_freep) = path_of(f, name, suffix);
	FILE *file;

	chmod(path, 0600);
	file = fopen(path, mode);
	assert_non_null(file);
	assert_int_equal(fputc('!', file), '!');
	fclose(file);
}

static void a_restart_keeps_what_is_right(void **state)
{
	struct fixture *f = *state;
	char good[BLOB_NAME_LEN + 1], bad[BLOB_NAME_LEN + 1];
	struct wanted w;

	keep(f, 1, MIB, good);
	keep(f, 2, MIB, bad);
	w = get(f, good);
	blob_release(&w.blob);
	w = get(f, bad);
	blob_release(&w.blob);
	overwrite(f, bad, "", "r+");
	overwrite(f, good, ".part", "w");
	overwrite(f, "foreign", "", "w");
	f->n_asked = 0;
	reopen(f);
	assert_false(exists(f, good, ".part"));
	assert_false(exists(f, "foreign", ""));
	assert_int_equal(stats(f).bytes, 2 * MIB);
	w = get(f, good);
	assert_right(f, &w, good);
	blob_release(&w.blob);
	assert_int_equal(f->n_asked, 0);
	w = get(f, bad); /* one byte is wrong: the hash says so */
	assert_right(f, &w, bad);
	blob_release(&w.blob);
	assert_int_equal(f->n_asked, 1);
	assert_int_equal(stats(f).bytes, 2 * MIB);
}

static void a_restart_keeps_no_more_than_may_be(void **state)
{
	struct fixture *f = *state;
	char name[BLOB_NAME_LEN + 1];
	struct wanted w;

	for (unsigned i = 0; i < 5; i++) {
		keep(f, i, 2 * MIB, name);
		w = get(f, name);
		blob_release(&w.blob);
	}
	f->bytes_max = (int64_t)(5 * MIB);
	reopen(f);
	assert_int_equal(stats(f).bytes, 4 * MIB);
}

static void a_file_of_another_size_is_fetched_again(void **state)
{
	struct fixture *f = *state;
	char name[BLOB_NAME_LEN + 1];
	char *path cleanup(mem_freep) = NULL;
	struct wanted w;

	keep(f, 1, MIB, name);
	w = get(f, name);
	blob_release(&w.blob);
	overwrite(f, name, "", "a");
	w = get(f, name);
	assert_right(f, &w, name);
	blob_release(&w.blob);
	path = path_of(f, name, "");
	assert_int_equal(unlink(path), 0);
	w = get(f, name);
	assert_right(f, &w, name);
	blob_release(&w.blob);
	assert_int_equal(stats(f).fetched, 3);
	assert_int_equal(stats(f).bytes, MIB);
}

static void without_a_place_there_are_none(void **state)
{
	struct fixture *f = *state;
	char name[BLOB_NAME_LEN + 1];
	struct blob_cache *kept = f->cache;
	struct wanted w;

	keep(f, 1, 10, name);
	f->cache = blob_cache_new(f->loop,
		&(struct blob_cache_options){.transport = f->t_cache, .judicators = "j1:1"});
	w = get(f, name);
	assert_true(w.has_failed && !w.is_missing);
	blob_cache_free(f->cache);
	f->cache = kept;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(comes_in_pieces_and_is_kept),
		TEST(sizes_at_the_edges),
		TEST(all_who_want_it_share_one_fetch),
		TEST(what_nobody_has_is_missing),
		TEST(damage_on_the_way_is_found),
		TEST(a_judicator_that_is_away_is_asked_again),
		TEST(a_busy_one_too),
		TEST(when_nobody_wants_it_the_fetch_ends),
		TEST(abandoned_in_its_last_piece),
		TEST(wanted_again_while_the_worker_is_slow),
		TEST(the_longest_unused_goes_first),
		TEST(what_is_pinned_stays),
		TEST(one_larger_than_all_is_lent_and_goes),
		TEST(a_restart_keeps_what_is_right),
		TEST(a_restart_keeps_no_more_than_may_be),
		TEST(a_file_of_another_size_is_fetched_again),
		TEST(without_a_place_there_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
