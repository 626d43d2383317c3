/* SPDX-License-Identifier: Apache-2.0 */
/* archive: what a zip may hold, what is refused and why, and that unpacking believes no claim. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zip.h>

#include <cmocka.h>

#include "proc/box/bundle.h"
#include "rpc/task/archive.h"
#include "test/unit/zip_maker.h"

#define ENTRIES_MAX 4

static int unpack(struct str zip, struct bundle *out, char why[ARCHIVE_WHY_MAX])
{
	int fd, error;

	assert_int_equal(bundle_create(&fd), 0);
	error = archive_unpack(zip, fd, why);
	if (!error && out) {
		assert_int_equal(bundle_seal(fd), 0);
		assert_int_equal(bundle_open(fd, ARCHIVE_UNPACKED_MAX, out), 0);
	}
	close(fd); /* the mapping stays */
	return error;
}

static void expect_refused(struct str zip, const char *reason)
{
	char why[ARCHIVE_WHY_MAX];

	if (archive_check(zip, why) != -EBADMSG || !strstr(why, reason) ||
		!str_is_utf8(str_from(why)))
		fail_msg("not \"%s\": \"%s\"", reason, why);
	assert_int_equal(unpack(zip, NULL, why), -EBADMSG);
}

/* The list of files is in order, what it lists is not. */
static void expect_no_unpacking(struct str zip, const char *reason)
{
	char why[ARCHIVE_WHY_MAX];

	if (archive_check(zip, why))
		fail_msg("refused too early: %s", why);
	if (unpack(zip, NULL, why) != -EBADMSG || !strstr(why, reason))
		fail_msg("not \"%s\": \"%s\"", reason, why);
}

static void expect_file(
	struct bundle *b, uint64_t *pos, const char *name, const char *content, bool executable)
{
	struct bundle_entry e;

	assert_true(bundle_next(b, pos, &e));
	assert_true(str_is(e.name, name));
	assert_true(str_is((struct str){e.bytes, (size_t)e.size}, content));
	assert_int_equal(e.executable, executable);
}

static void test_files(void **state)
{
	struct zip_maker z = {BUF_INIT, BUF_INIT, 0};
	char why[ARCHIVE_WHY_MAX];
	struct bundle b = {0};
	uint64_t pos = 0;
	struct str zip;

	zip_put(&z, &(struct zip_entry){.name = "src/", .mode = 040755, .content = STR("")});
	zip_put_file(&z, "src/main.c", "int main;");
	zip_put(&z, &(struct zip_entry){
			    .name = "run.sh", .mode = 0100755, .content = STR("#!/bin/sh\n")});
	zip_put(&z,
		&(struct zip_entry){
			.name = "with space \xc3\xa9.txt", .mode = 0100644, .content = STR("")});
	zip_put_file(&z, "inner.zip", "PK\x05\x06 is only a file");
	zip = zip_finish(&z, z.n);
	if (archive_check(zip, why))
		fail_msg("%s", why);
	if (unpack(zip, &b, why))
		fail_msg("%s", why);
	expect_file(&b, &pos, "src/main.c", "int main;", false);
	expect_file(&b, &pos, "run.sh", "#!/bin/sh\n", true);
	expect_file(&b, &pos, "with space \xc3\xa9.txt", "", false);
	expect_file(&b, &pos, "inner.zip", "PK\x05\x06 is only a file", false);
	assert_int_equal(b.n_files, 4);
	bundle_close(&b);
	zip_fini(&z);
}

static void test_names(void **state)
{
	static const struct {
		struct str name;
		const char *reason;
	} rows[] = {
		{STR("/etc/passwd"), "relative"},
		{STR("../x"), "relative"},
		{STR("../../x"), "relative"},
		{STR("a/../../x"), "relative"},
		{STR("./x"), "relative"},
		{STR("a//x"), "relative"},
		{STR(".."), "relative"},
		{STR("/"), "relative"},
		{STR("a/../"), "relative"},
		{STR("1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/x"), "too long"},
		{STR("..\\x"), "backslash"},
		{STR("C:\\x"), "backslash"},
		{STR("a\nb"), "\"a\\nb\" has a backslash or control"},
		{STR("a\0b"), "\"a\\x00b\" has a backslash or control"},
		{STR("a\x7f"), "control"},
		{STR("\xff\xfe"), "no UTF-8"},
		{STR("\xc3"), "no UTF-8"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct zip_maker z = {BUF_INIT, BUF_INIT, 0};

		zip_put_file(&z, "good", "x");
		zip_put(&z, &(struct zip_entry){.name = rows[i].name.p,
				    .name_len = rows[i].name.n,
				    .content = STR("")});
		expect_refused(zip_finish(&z, z.n), rows[i].reason);
		zip_fini(&z);
	}
}

static void test_entries(void **state)
{
	static const struct {
		struct zip_entry entries[ENTRIES_MAX];
		const char *reason;
	} rows[] = {
		{{{.name = "l", .content = STR("/etc/passwd"), .mode = 0120777}},
			"\"l\" is no regular"},
		{{{.name = "d", .content = STR(""), .mode = 0060600}}, "no regular file"},
		{{{.name = "d", .content = STR(""), .mode = 0020600}}, "no regular file"},
		{{{.name = "p", .content = STR(""), .mode = 0010600}}, "no regular file"},
		{{{.name = "d/", .content = STR(""), .mode = 0120777}}, "no regular file"},
		{{{.name = "d", .content = STR(""), .mode = 0040755}}, "no regular file"},
		{{{.name = "e", .content = STR("x"), .flags = 1}}, "encrypted"},
		{{{.name = "e", .content = STR("x"), .flags = 1 << 6}}, "encrypted"},
		{{{.name = "e", .content = STR("x"), .flags = 1 << 13}}, "encrypted"},
		{{{.name = "b", .content = STR("x"), .method = 12}}, "deflate"},
		{{{.name = "d/", .content = STR("x")}}, "directory with content"},
		{{{.name = "s", .content = STR("x"), .size = 2}}, "two sizes"},
		{{{.name = "d/", .content = STR(""), .mode = 040755}}, "no files"},
		{{{.name = "a", .content = STR("x")}, {.name = "a", .content = STR("y")}},
			"\"a\" is there twice"},
		{{{.name = "a", .content = STR("x")}, {.name = "a/b", .content = STR("y")}},
			"in a directory that is a file"},
		{{{.name = "a/b", .content = STR("x")}, {.name = "a", .content = STR("y")}},
			"\"a\" is there twice"},
		{{{.name = "a", .content = STR("x")}, {.name = "a/", .content = STR("")}},
			"\"a\" is there twice"},
		{{{.name = "a", .content = STR("x"), .method = 8, .size = 0x04000001}},
			"more than 64 MiB"},
		{{{.name = "a", .content = STR("x"), .method = 8, .size = 0xffffffff}},
			"more than 64 MiB"},
		{{{.name = "a", .content = STR("x"), .method = 8, .size = 0x00200000}},
			"more than 200 times"},
		{{{.name = "a", .content = STR("x"), .no_data = true, .offset = 5000}},
			"not in the archive"},
		{{{.name = "a", .content = STR("0123456789012345678901234567890")},
			 {.name = "b",
				 .content = STR("0123456789012345678901234567890"),
				 .no_data = true},
			 {.name = "c",
				 .content = STR("0123456789012345678901234567890"),
				 .no_data = true}},
			"overlaps"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct zip_maker z = {BUF_INIT, BUF_INIT, 0};

		for (size_t k = 0; k < ENTRIES_MAX && rows[i].entries[k].name; k++)
			zip_put(&z, &rows[i].entries[k]);
		expect_refused(zip_finish(&z, z.n), rows[i].reason);
		zip_fini(&z);
	}
}

static void test_no_zip(void **state)
{
	static const char garbage[200] = "PK\x03\x04 and nothing behind it";
	struct zip_maker z = {BUF_INIT, BUF_INIT, 0};
	struct str zip;

	expect_refused(STR(""), "no zip archive");
	expect_refused(STR("PK\x05\x06"), "no zip archive");
	expect_refused((struct str){garbage, sizeof(garbage)}, "no zip archive");
	zip_put_file(&z, "a", "some bytes");
	zip_put_file(&z, "b", "other bytes");
	zip = zip_finish(&z, z.n);
	for (size_t n = 0; n < zip.n; n++) /* cut off anywhere */
		expect_refused((struct str){zip.p, n}, "no zip archive");
	for (size_t n = 1; n < 40; n++) /* and without its beginning */
		expect_refused((struct str){zip.p + n, zip.n - n}, "no list of files");
	buf_add_char(&z.bytes, 'x');
	expect_refused(buf_str(&z.bytes), "no zip archive");
	zip_fini(&z);
	/* An archive of nothing. */
	expect_refused(zip_finish(&z, 0), "no files");
	zip_fini(&z);
}

static struct str patched(struct zip_maker *z, size_t from_end, unsigned value)
{
	struct str zip;

	zip_fini(z);
	zip_put_file(z, "a", "x");
	zip_put_file(z, "b", "y");
	zip = zip_finish(z, z->n);
	z->bytes.data[zip.n - from_end] = (char)value;
	return zip;
}

static void test_end_record(void **state)
{
	struct zip_maker z = {BUF_INIT, BUF_INIT, 0};
	char why[ARCHIVE_WHY_MAX];
	struct str zip;

	expect_refused(patched(&z, 22 - 4, 1), "split");
	expect_refused(patched(&z, 22 - 6, 1), "split");
	expect_refused(patched(&z, 22 - 8, 1), "split");
	expect_refused(patched(&z, 22 - 12, 0), "no list of files");
	expect_refused(patched(&z, 22 - 16, 0), "no list of files");
	expect_refused(patched(&z, 22 - 20, 1), "no zip archive");
	expect_refused(patched(&z, 23, 1), "\"\\x01\" has a");
	zip_fini(&z);
	zip_put_file(&z, "a", "x");
	zip_put_file(&z, "b", "y");
	expect_refused(zip_finish(&z, 1), "more files than it says");
	zip_fini(&z);
	zip_put_file(&z, "a", "x");
	expect_refused(zip_finish(&z, 2), "malformed");
	zip_fini(&z);
	expect_refused(zip_finish(&z, ARCHIVE_FILES_MAX), "malformed");
	zip_fini(&z);
	/* A comment is fine. */
	zip_put_file(&z, "a", "x");
	zip = zip_finish(&z, 1);
	z.bytes.data[zip.n - 2] = 5;
	zip_bytes(&z.bytes, "hello", 5);
	assert_int_equal(archive_check(buf_str(&z.bytes), why), 0);
	assert_int_equal(unpack(buf_str(&z.bytes), NULL, why), 0);
	zip_fini(&z);
}

static void test_zip64(void **state)
{
	struct zip_maker z = {BUF_INIT, BUF_INIT, 0};

	zip_put_file(&z, "a", "x");
	/* The locator as the last thing before the end record. */
	zip_u32(&z.directory, 0x07064b50);
	zip_bytes(&z.directory, "0123456789abcdef", 16);
	expect_refused(zip_finish(&z, 0xffff), "zip64");
	zip_fini(&z);
}

static void test_many_entries(void **state)
{
	struct zip_maker z = {BUF_INIT, BUF_INIT, 0};
	char why[ARCHIVE_WHY_MAX], name[32];

	for (unsigned i = 0; i <= ARCHIVE_FILES_MAX; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		zip_put_file(&z, name, "");
		if (i == ARCHIVE_FILES_MAX - 1) {
			struct zip_maker most = {BUF_INIT, BUF_INIT, i + 1};

			zip_bytes(&most.bytes, z.bytes.data, z.bytes.len);
			zip_bytes(&most.directory, z.directory.data, z.directory.len);
			assert_int_equal(unpack(zip_finish(&most, most.n), NULL, why), 0);
			zip_fini(&most);
		}
	}
	expect_refused(zip_finish(&z, z.n), "1001 entries");
	zip_fini(&z);
	zip_put_file(&z, "a", "");
	expect_refused(zip_finish(&z, 1000000 & 0xffff), "16960 entries");
	zip_fini(&z);
}

/* What only unpacking tells. */
static void test_lies(void **state)
{
	/* "hello" by deflate, in one stored block: final, length 5, its complement. */
	static const char deflated[] = "\x01\x05\x00\xfa\xffhello";
	struct zip_entry good = {
		.name = "a", .content = {deflated, 10}, .method = 8, .size = 5, .crc = 0x3610a686};
	struct zip_maker z = {BUF_INIT, BUF_INIT, 0};
	struct zip_entry bad;
	struct bundle b = {0};
	char why[ARCHIVE_WHY_MAX];
	uint64_t pos = 0;

	zip_put(&z, &good);
	if (unpack(zip_finish(&z, 1), &b, why))
		fail_msg("%s", why);
	expect_file(&b, &pos, "a", "hello", false);
	bundle_close(&b);
	zip_fini(&z);

	bad = good;
	bad.size = 4;
	zip_put(&z, &bad);
	expect_no_unpacking(zip_finish(&z, 1), "\"a\" ");
	zip_fini(&z);
	bad.size = 6;
	zip_put(&z, &bad);
	expect_no_unpacking(zip_finish(&z, 1), "\"a\" ");
	zip_fini(&z);
	bad = good;
	bad.crc = 1;
	zip_put(&z, &bad);
	expect_no_unpacking(zip_finish(&z, 1), "CRC");
	zip_fini(&z);
	bad = good;
	bad.content.n = 7; /* the data end too early */
	zip_put(&z, &bad);
	expect_no_unpacking(zip_finish(&z, 1), "\"a\" ");
	zip_fini(&z);
	zip_put(&z, &(struct zip_entry){
			    .name = "a", .content = STR("\xff\xff\xff"), .method = 8, .size = 3});
	expect_no_unpacking(zip_finish(&z, 1), "\"a\" ");
	zip_fini(&z);
	/* The list points to something that is no local header. */
	zip_put_file(&z, "a", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
	zip_put(&z, &(struct zip_entry){
			    .name = "b", .content = STR("xx"), .no_data = true, .offset = 7});
	expect_no_unpacking(zip_finish(&z, 2), "\"b\" ");
	zip_fini(&z);
}

/* An archive by libzip, of one file of n zeros. */
static struct str pack_zeros(size_t n, char **out)
{
	char *zeros = calloc(1, n);
	zip_source_t *file = zip_source_buffer_create(NULL, 0, 0, NULL), *content;
	zip_t *zip = zip_open_from_source(file, ZIP_TRUNCATE, NULL);
	zip_stat_t stat;
	char *bytes;

	assert_non_null(zip);
	zip_source_keep(file);
	content = zip_source_buffer(zip, zeros, n, 0);
	assert_int_equal(zip_file_add(zip, "zeros", content, 0), 0);
	assert_int_equal(zip_close(zip), 0);
	assert_int_equal(zip_source_open(file), 0);
	assert_int_equal(zip_source_stat(file, &stat), 0);
	bytes = malloc(stat.size);
	assert_int_equal(zip_source_read(file, bytes, stat.size), stat.size);
	zip_source_close(file);
	zip_source_free(file);
	free(zeros);
	*out = bytes;
	return (struct str){bytes, stat.size};
}

static void test_bombs(void **state)
{
	char why[ARCHIVE_WHY_MAX], *bytes;
	struct bundle b = {0};
	struct bundle_entry e;
	uint64_t pos = 0;

	/* a MiB is let pass, however it is packed */
	if (unpack(pack_zeros(1 << 20, &bytes), &b, why))
		fail_msg("%s", why);
	assert_true(bundle_next(&b, &pos, &e));
	assert_int_equal(e.size, 1 << 20);
	assert_int_equal(e.bytes[0] | e.bytes[(1 << 20) - 1], 0);
	bundle_close(&b);
	free(bytes);
	expect_refused(pack_zeros(16 << 20, &bytes), "more than 200 times");
	free(bytes);
	expect_refused(pack_zeros((64 << 20) + 1, &bytes), "more than 64 MiB");
	free(bytes);
}

/* libzip takes the directory with the better checksum of its own; whatever it takes must be ours. */
static void test_two_directories(void **state)
{
	struct zip_maker inner = {BUF_INIT, BUF_INIT, 0}, z = {BUF_INIT, BUF_INIT, 0};
	char why[ARCHIVE_WHY_MAX];
	struct bundle b = {0};
	uint64_t pos = 0;
	struct str first;
	int error;

	zip_put_file(&inner, "inner", "not this one");
	first = zip_finish(&inner, 1);
	zip_put(&z, &(struct zip_entry){.name = "outer", .content = first});
	error = unpack(zip_finish(&z, 1), &b, why);
	if (error)
		fail_msg("%s", why);
	assert_true(pos == 0 && b.n_files == 1);
	bundle_close(&b);
	/* In the comment: it is the last end record, so it counts, and its directory is not where it should be. */
	z.bytes.data[z.bytes.len - 2] = (char)first.n;
	zip_bytes(&z.bytes, first.p, first.n);
	expect_refused(buf_str(&z.bytes), "no list of files");
	zip_fini(&z);
	zip_fini(&inner);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_entries),
		cmocka_unit_test(test_no_zip),
		cmocka_unit_test(test_end_record),
		cmocka_unit_test(test_zip64),
		cmocka_unit_test(test_many_entries),
		cmocka_unit_test(test_lies),
		cmocka_unit_test(test_bombs),
		cmocka_unit_test(test_two_directories),
	};

	return cmocka_run_group_tests_name("archive", tests, NULL, NULL);
}
