/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bundles written in slices: whatever the sizes, no slice takes more than its share, and what comes out is what went in.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proc/box/bundle.h"
#include "reactor/base/mem.h"
#include "roles/executor/files.h"

#define MIB ((size_t)1 << 20)
#define MANY 3000
/* Pages are taken whole, at both ends of each piece. */
#define SLACK (FILES_SLICE / 4)
#define SLICES_MAX 1000

static char *make_bytes(size_t n, unsigned seed)
{
	char *bytes = mem_alloc(n);

	for (size_t i = 0; i < n; i++)
		bytes[i] = (char)(i * 31 + i / 4096 + seed);
	return bytes;
}

static int64_t memory_of(int fd)
{
	struct stat st;

	if (fd < 0)
		return 0;
	assert_int_equal(fstat(fd, &st), 0);
	return (int64_t)st.st_blocks * 512;
}

/* One slice may do this much; returns what there is now. */
static int64_t check_slice(int64_t before, int fd)
{
	int64_t now = memory_of(fd);

	assert_true(now - before <= FILES_SLICE + SLACK);
	return now;
}

static void assert_entry(
	const struct bundle *b, uint64_t *pos, const char *name, bool executable, struct str bytes)
{
	struct bundle_entry e;

	assert_true(bundle_next(b, pos, &e));
	assert_true(str_is(e.name, name));
	assert_int_equal(e.executable, executable);
	assert_int_equal(e.size, bytes.n);
	assert_memory_equal(e.bytes, bytes.p, bytes.n);
}

static void sources_come_in_slices(void **state)
{
	char *large = make_bytes(5 * MIB + 7, 1), *source = make_bytes(3 * MIB, 2);
	struct task_file list[] = {
		{.name = STR("empty"), .content = {.bytes = STR("")}},
		{.name = STR("d/large"),
			.content = {.bytes = {large, 5 * MIB + 7}},
			.executable = true},
		{.name = STR("small"), .content = {.bytes = STR("x")}},
	};
	struct codec_list files = {list, ARRAY_SIZE(list)};
	struct files f = {.fd = -1};
	struct bundle b;
	uint64_t pos = 0;
	int64_t memory = 0;
	unsigned slices = 0;
	bool done = false;

	for (; !done; slices++) {
		assert_true(slices < SLICES_MAX);
		assert_int_equal(
			files_write_slice(&f, STR("main.c"),
				&(struct content){.bytes = {source, 3 * MIB}}, &files, NULL, &done),
			0);
		memory = check_slice(memory, f.fd);
	}
	assert_in_range(slices, 8, 10);
	assert_int_equal(bundle_open(f.fd, 16 * MIB, &b), 0);
	assert_entry(&b, &pos, "main.c", false, (struct str){source, 3 * MIB});
	assert_entry(&b, &pos, "empty", false, STR(""));
	assert_entry(&b, &pos, "d/large", true, (struct str){large, 5 * MIB + 7});
	assert_entry(&b, &pos, "small", false, STR("x"));
	assert_int_equal(pos, b.map_size);
	assert_int_equal(pwrite(f.fd, "x", 1, 0), -1); /* sealed */
	bundle_close(&b);
	files_fini(&f);
	files_fini(&f);
	free(large);
	free(source);
}

/* What a compiler left: a large file, a hole of 200 MiB, very many small ones, and some that have to give way. */
static int make_under(const char *large, size_t n)
{
	FILE *hole = tmpfile();
	char name[32];
	int fd;

	assert_non_null(hole);
	assert_int_equal(ftruncate(fileno(hole), (off_t)(200 * MIB)), 0);
	assert_int_equal(bundle_create(&fd), 0);
	assert_int_equal(bundle_add(fd, STR("prog"), true, large, n), 0);
	assert_int_equal(bundle_add(fd, STR("file"), false, large, n), 0);
	assert_int_equal(bundle_add_from(fd, STR("hole"), false, fileno(hole), 200 * MIB), 0);
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "d%d/x", i);
		assert_int_equal(bundle_add(fd, str_from(name), false, "", 0), 0);
	}
	assert_int_equal(bundle_seal(fd), 0);
	fclose(hole);
	return fd;
}

static void run_files_are_added_in_slices(void **state)
{
	char *large = make_bytes(6 * MIB, 3), *added = make_bytes(2 * MIB + 1, 4), name[32];
	struct task_file list[] = {
		{.name = STR("file/new"), .content = {.bytes = {added, 2 * MIB + 1}}},
		{.name = STR("d7"), .content = {.bytes = STR("a file now")}},
	};
	struct codec_list over = {list, ARRAY_SIZE(list)};
	int under = make_under(large, 6 * MIB);
	struct files_merge m;
	struct bundle b;
	struct bundle_entry e;
	uint64_t pos = 0;
	int64_t memory = 0;
	unsigned slices = 0;
	bool done = false;

	files_merge_init(&m);
	assert_int_equal(files_merge_start(&m, under, 400 * MIB, &over), 0);
	for (; !done; slices++) {
		assert_true(slices < SLICES_MAX);
		assert_int_equal(files_merge_slice(&m, &over, NULL, &done), 0);
		memory = check_slice(memory, m.out.fd);
	}
	assert_true(slices > MANY / (FILES_SLICE / 4096)); /* the many small ones cost too */
	assert_true(memory < (int64_t)(16 * MIB));         /* the hole is one still */
	assert_int_equal(bundle_open(m.out.fd, 400 * MIB, &b), 0);
	assert_entry(&b, &pos, "prog", true, (struct str){large, 6 * MIB});
	assert_true(bundle_next(&b, &pos, &e));
	assert_true(str_is(e.name, "hole") && e.size == 200 * MIB);
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "d%d/x", i);
		if (i != 7)
			assert_entry(&b, &pos, name, false, STR(""));
	}
	assert_entry(&b, &pos, "file/new", false, (struct str){added, 2 * MIB + 1});
	assert_entry(&b, &pos, "d7", false, STR("a file now"));
	assert_int_equal(pos, b.map_size);
	bundle_close(&b);
	files_merge_fini(&m);
	files_merge_fini(&m);
	close(under);
	free(large);
	free(added);
}

static void nothing_to_keep(void **state)
{
	struct task_file list[] = {{.name = STR("a"), .content = {.bytes = STR("new")}}};
	struct codec_list over = {list, 1};
	struct files_merge m;
	struct bundle b;
	uint64_t pos;
	int under;

	files_merge_init(&m);
	for (int i = 0; i < 2; i++) {
		bool done = false;

		assert_int_equal(bundle_create(&under), 0);
		if (i == 1)
			assert_int_equal(bundle_add(under, STR("a"), false, "old", 3), 0);
		assert_int_equal(files_merge_start(&m, under, MIB, &over), 0);
		assert_int_equal(files_merge_slice(&m, &over, NULL, &done), 0);
		assert_true(done);
		assert_int_equal(bundle_open(m.out.fd, MIB, &b), 0);
		pos = 0;
		assert_entry(&b, &pos, "a", false, STR("new"));
		assert_int_equal(pos, b.map_size);
		bundle_close(&b);
		close(under);
	}
	files_merge_fini(&m);
}

static void bad_bundles_are_refused(void **state)
{
	struct codec_list over = {0};
	struct files_merge m;
	int under;

	files_merge_init(&m);
	assert_int_equal(bundle_create(&under), 0);
	assert_int_equal(bundle_add(under, STR("a"), false, "12345", 5), 0);
	assert_int_equal(files_merge_start(&m, under, 4, &over), -EFBIG);
	assert_int_equal(pwrite(under, "X", 1, 0), 1);
	assert_int_equal(files_merge_start(&m, under, 5, &over), -EBADMSG);
	files_merge_fini(&m);
	close(under);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sources_come_in_slices),
		cmocka_unit_test(run_files_are_added_in_slices),
		cmocka_unit_test(nothing_to_keep),
		cmocka_unit_test(bad_bundles_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
