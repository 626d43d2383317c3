/* SPDX-License-Identifier: Apache-2.0 */
/* The bundle: what is written comes back, and a hostile one is refused whole, whichever byte is wrong. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proc/box/bundle.h"

#define HEADER 18 /* bytes before the name */

static void test_names(void **state)
{
	static const struct {
		struct str name;
		bool valid;
	} table[] = {
		{STR("a"), true},
		{STR("a/b.c"), true},
		{STR("..."), true},
		{STR(".hidden/..x"), true},
		{STR("a b\n\xff"), true},
		{STR("1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16"), true},
		{STR("1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17"), false},
		{STR(""), false},
		{STR("."), false},
		{STR(".."), false},
		{STR("/a"), false},
		{STR("a/"), false},
		{STR("a//b"), false},
		{STR("a/./b"), false},
		{STR("a/../b"), false},
		{STR("../a"), false},
		{STR("a\0b"), false},
		{STR_NULL, false},
	};
	char longest[BUNDLE_NAME_MAX + 1];

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		assert_int_equal(bundle_name_is_valid(table[i].name), table[i].valid);
	memset(longest, 'a', sizeof(longest));
	assert_true(bundle_name_is_valid((struct str){longest, 255}));
	assert_false(bundle_name_is_valid((struct str){longest, 256}));
	for (size_t i = 255; i < sizeof(longest); i += 256)
		longest[i] = '/';
	longest[BUNDLE_NAME_MAX - 1] = 'a';
	longest[BUNDLE_NAME_MAX - 2] = '/';
	longest[BUNDLE_NAME_MAX - 3] = 'b';
	assert_true(bundle_name_is_valid((struct str){longest, BUNDLE_NAME_MAX}));
	longest[BUNDLE_NAME_MAX] = 'a';
	assert_false(bundle_name_is_valid((struct str){longest, BUNDLE_NAME_MAX + 1}));
}

/* Two files, one of them empty. */
static int make_sample(void)
{
	int fd;

	assert_int_equal(bundle_create(&fd), 0);
	assert_int_equal(bundle_add(fd, STR("main.c"), false, "int x;\0y", 8), 0);
	assert_int_equal(bundle_add(fd, STR("bin/run"), true, "", 0), 0);
	return fd;
}

static void test_round_trip(void **state)
{
	int fd = make_sample();
	struct bundle b;
	struct bundle_entry e;
	uint64_t pos = 0;

	assert_int_equal(bundle_add(fd, STR("../escape"), false, "x", 1), -EINVAL);
	assert_int_equal(bundle_seal(fd), 0);
	assert_int_equal(bundle_open(fd, 8, &b), 0);
	assert_int_equal(b.n_files, 2);
	assert_int_equal(b.bytes, 8);
	assert_true(bundle_next(&b, &pos, &e));
	assert_true(str_is(e.name, "main.c"));
	assert_false(e.executable);
	assert_int_equal(e.size, 8);
	assert_memory_equal(e.bytes, "int x;\0y", 8);
	assert_true(bundle_next(&b, &pos, &e));
	assert_true(str_is(e.name, "bin/run"));
	assert_true(e.executable);
	assert_int_equal(e.size, 0);
	assert_false(bundle_next(&b, &pos, &e));
	bundle_close(&b);
	bundle_close(&b);
	close(fd);
}

static void test_empty(void **state)
{
	struct bundle b;
	struct bundle_entry e;
	uint64_t pos = 0;
	int fd;

	assert_int_equal(bundle_create(&fd), 0);
	assert_int_equal(bundle_open(fd, 0, &b), 0);
	assert_false(bundle_next(&b, &pos, &e));
	bundle_close(&b);
	close(fd);
}

/* A gigabyte of holes with three islands, one of them in a page of zeros: through a bundle and out again, and copied from bundle to
 * bundle in odd pieces, it takes the memory of the islands. */
#define GIB (UINT64_C(1) << 30)
#define SPARSE_MAX (INT64_C(1) << 20)

static const struct {
	uint64_t at;
	const char *text;
} islands[] = {{0, "first"}, {(GIB / 2) + 4095, "middle"}, {GIB - 4, "last"}};

static void assert_sparse(int fd, uint64_t at)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	assert_in_range(st.st_blocks * 512, 1, SPARSE_MAX);
	for (size_t i = 0; i < sizeof(islands) / sizeof(islands[0]); i++) {
		char text[8] = "";
		size_t n = strlen(islands[i].text);

		assert_int_equal(pread(fd, text, n, (off_t)(at + islands[i].at)), (ssize_t)n);
		assert_string_equal(text, islands[i].text);
	}
}

static uint64_t only_entry(int fd, struct bundle *b, struct bundle_entry *e)
{
	uint64_t pos = 0;

	assert_int_equal(bundle_open(fd, GIB, b), 0);
	assert_true(bundle_next(b, &pos, e));
	assert_int_equal(e->size, GIB);
	assert_ptr_equal(e->bytes, b->map + e->at);
	assert_int_equal(pos, b->map_size);
	return e->at;
}

static void test_sparse(void **state)
{
	static const char zeros[65536];
	int from = memfd_create("from", MFD_CLOEXEC), out = memfd_create("out", MFD_CLOEXEC);
	int fd, again;
	struct bundle b;
	struct bundle_entry e;
	uint64_t body, done;

	assert_int_equal(ftruncate(from, (off_t)GIB), 0);
	for (size_t i = 0; i < sizeof(islands) / sizeof(islands[0]); i++)
		assert_true(pwrite(from, islands[i].text, strlen(islands[i].text),
				    (off_t)islands[i].at) > 0);
	/* Data, but only zeros: not worth memory either. */
	for (off_t at = 1 << 20; at < 3 << 20; at += (off_t)sizeof(zeros))
		assert_int_equal(pwrite(from, zeros, sizeof(zeros), at), sizeof(zeros));
	assert_int_equal(bundle_create(&fd), 0);
	assert_int_equal(bundle_add_from(fd, STR("sparse"), false, from, GIB), 0);
	assert_int_equal(bundle_seal(fd), 0);
	assert_sparse(fd, only_entry(fd, &b, &e));
	assert_int_equal(bundle_extract(&b, &e, out), 0);
	assert_int_equal(lseek(out, 0, SEEK_END), GIB);
	assert_sparse(out, 0);
	assert_int_equal(bundle_create(&again), 0);
	assert_int_equal(bundle_begin(again, STR("sparse"), false, GIB, &body), 0);
	for (done = 0; done < GIB; done += 100000007)
		assert_int_equal(bundle_copy(again, body + done, fd, e.at + done,
					 GIB - done < 100000007 ? GIB - done : 100000007),
			0);
	bundle_close(&b);
	assert_sparse(fd, e.at); /* looking has not filled it */
	assert_sparse(again, only_entry(again, &b, &e));
	bundle_close(&b);
	assert_int_equal(bundle_add_from(again, STR("short"), false, from, GIB + 1), -EIO);
	assert_sparse(again, only_entry(again, &b, &e)); /* and nothing was left of it */
	bundle_close(&b);
	close(from);
	close(out);
	close(fd);
	close(again);
}

static void test_sealed(void **state)
{
	int fd = make_sample();

	assert_int_equal(bundle_seal(fd), 0);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, 1), -1);
	assert_int_equal(bundle_add(fd, STR("more"), false, "x", 1), -EPERM);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	close(fd);
}

static void test_bounds(void **state)
{
	struct bundle b;
	int fd = make_sample();

	assert_int_equal(bundle_open(fd, 7, &b), -EFBIG);
	assert_null(b.map);
	close(fd);
	assert_int_equal(bundle_create(&fd), 0);
	for (int i = 0; i < BUNDLE_FILES_MAX; i++)
		assert_int_equal(bundle_add(fd, STR("f"), false, "", 0), 0);
	assert_int_equal(bundle_open(fd, 0, &b), 0);
	bundle_close(&b);
	assert_int_equal(bundle_add(fd, STR("f"), false, "", 0), 0);
	assert_int_equal(bundle_open(fd, 0, &b), -EFBIG);
	close(fd);
}

/* Every truncation that does not end on an entry's edge is malformed. */
static void test_truncations(void **state)
{
	int fd = make_sample();
	off_t size = lseek(fd, 0, SEEK_END);
	off_t edge = HEADER + 6 + 8;
	struct bundle b;

	for (off_t cut = size - 1; cut > 0; cut--) {
		assert_int_equal(ftruncate(fd, cut), 0);
		int want = cut == edge ? 0 : -EBADMSG;
		assert_int_equal(bundle_open(fd, 100, &b), want);
		bundle_close(&b);
	}
	close(fd);
}

static void test_hostile_fields(void **state)
{
	static const struct {
		const char *what;
		off_t at;
		size_t n;
		const char *bytes;
	} table[] = {
		{"magic", 0, 1, "X"},
		{"mode", 4, 1, "\2"},
		{"mode", 7, 1, "\1"},
		{"size over the end", 8, 1, "\xff"},
		{"size wraps", 8, 8, "\xff\xff\xff\xff\xff\xff\xff\xff"},
		{"no name", 16, 1, "\0"},
		{"name over the end", 16, 2, "\xff\xff"},
		{"absolute", HEADER, 1, "/"},
		{"dot dot", HEADER, 3, "../"},
		{"NUL", HEADER + 2, 1, "\0"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct bundle b;
		int fd = make_sample();
		assert_int_equal(
			pwrite(fd, table[i].bytes, table[i].n, table[i].at), (ssize_t)table[i].n);
		if (bundle_open(fd, UINT64_MAX, &b) != -EBADMSG)
			fail_msg("%s was accepted", table[i].what);
		assert_null(b.map);
		close(fd);
	}
}

static void test_from_a_file(void **state)
{
	static char zeros[100000];
	struct bundle b;
	struct bundle_entry e;
	uint64_t pos = 0;
	int from = memfd_create("sparse", MFD_CLOEXEC);
	int fd = make_sample();

	assert_int_equal(ftruncate(from, sizeof(zeros)), 0);
	assert_int_equal(bundle_add_from(fd, STR("longer"), false, from, sizeof(zeros) + 1), -EIO);
	assert_int_equal(bundle_add_from(fd, STR("sparse"), true, from, sizeof(zeros)), 0);
	assert_int_equal(bundle_open(fd, sizeof(zeros) + 8, &b), 0);
	assert_int_equal(b.n_files, 3);
	while (bundle_next(&b, &pos, &e))
		continue;
	assert_true(str_is(e.name, "sparse"));
	assert_int_equal(e.size, sizeof(zeros));
	assert_memory_equal(e.bytes, zeros, sizeof(zeros));
	bundle_close(&b);
	close(from);
	close(fd);
}

static void test_not_a_file(void **state)
{
	struct bundle b;
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(bundle_open(fds[0], 1, &b), -EBADMSG);
	close(fds[0]);
	close(fds[1]);
	assert_int_equal(bundle_open(-1, 1, &b), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_sparse),
		cmocka_unit_test(test_sealed),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_truncations),
		cmocka_unit_test(test_hostile_fields),
		cmocka_unit_test(test_from_a_file),
		cmocka_unit_test(test_not_a_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
