/* SPDX-License-Identifier: Apache-2.0 */
/* The parts shared with conclave-box: messages with descriptors, counters of both cgroup kinds, files in and out. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proc/box/box.h"
#include "proc/box/bundle.h"
#include "proc/box/cgroup.h"
#include "proc/box/layout.h"
#include "proc/box/wire.h"
#include "reactor/base/mem.h"

/* --- wire --------------------------------------------------------------------------------------------- */

struct sockets {
	int a, b;
};

static struct sockets make_sockets(void)
{
	int pair[2];

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	return (struct sockets){pair[0], pair[1]};
}

static void test_wire_round_trip(void **state)
{
	struct sockets s = make_sockets();
	struct wire out = {.magic = WIRE_MAGIC, .type = WIRE_RUN, .id = 77}, in;
	int fds[WIRE_FDS_MAX], got[WIRE_FDS_MAX];
	unsigned n;

	for (int i = 0; i < WIRE_FDS_MAX; i++)
		fds[i] = memfd_create("x", 0);
	memset(out.text, 'a', sizeof(out.text)); /* without its NUL: the reader adds it */
	assert_int_equal(wire_receive(s.b, &in, got, &n), -EAGAIN);
	assert_int_equal(wire_send(s.a, &out, fds, WIRE_FDS_MAX), 0);
	assert_int_equal(wire_send(s.a, &out, fds, WIRE_FDS_MAX + 1), -EINVAL);
	assert_int_equal(wire_receive(s.b, &in, got, &n), 0);
	assert_int_equal(n, WIRE_FDS_MAX);
	assert_int_equal(in.id, 77);
	assert_int_equal(strlen(in.text), WIRE_TEXT_MAX - 1);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(fcntl(got[i], F_GETFD), FD_CLOEXEC);
	wire_close_fds(got, n);
	assert_int_equal(got[0], -1);
	wire_close_fds(fds, WIRE_FDS_MAX);
	close(s.a);
	assert_int_equal(wire_receive(s.b, &in, got, &n), -ECONNRESET);
	close(s.b);
}

/* What is refused leaves no descriptor behind. */
static void test_wire_refuses(void **state)
{
	struct sockets s = make_sockets();
	struct wire out = {.magic = WIRE_MAGIC + 1, .type = WIRE_RUN}, in;
	int before = dup(0), after, got[WIRE_FDS_MAX];
	unsigned n;

	close(before);
	assert_int_equal(wire_send(s.a, &out, &s.a, 1), 0);
	assert_int_equal(wire_receive(s.b, &in, got, &n), -EPROTO);
	assert_int_equal(n, 0);
	assert_int_equal(send(s.a, "short", 5, 0), 5);
	assert_int_equal(wire_receive(s.b, &in, got, &n), -EPROTO);
	after = dup(0);
	assert_int_equal(after, before);
	close(after);
	close(s.a);
	close(s.b);
}

/* --- cgroup ------------------------------------------------------------------------------------------- */

static int text_fd(const char *text)
{
	int fd = memfd_create("counter", MFD_CLOEXEC);

	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	return fd;
}

static void assert_same_sample(const struct cgroup_sample *a, const struct cgroup_sample *b)
{
	assert_int_equal(a->cpu_us, b->cpu_us);
	assert_int_equal(a->memory_bytes, b->memory_bytes);
	assert_int_equal(a->oom_kills, b->oom_kills);
	assert_int_equal(a->limit_ooms, b->limit_ooms);
	assert_int_equal(a->has_limit_ooms, b->has_limit_ooms);
	assert_int_equal(a->pids_refused, b->pids_refused);
}

static void test_cgroup_samples(void **state)
{
	static const struct {
		const struct cgroup_ops *ops;
		const char *files[CGROUP_READINGS]; /* NULL: the kernel has none */
		struct cgroup_sample want;
	} table[] = {
		{&cgroup_v1,
			{"1234567890\n", "67108864\n",
				"oom_kill_disable 0\nunder_oom 1\noom_kill 3\n", "max 7\n"},
			{1234567, 67108864, 3, 0, false, 7}},
		{&cgroup_v1, {"999\n", NULL, "oom_kill_disable 1\nunder_oom 1\n", NULL}, {0}},
		{&cgroup_v2,
			{"usage_usec 1000001\nuser_usec 5\nsystem_usec 6\n", "4096\n",
				"low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n",
				"max 2\n"},
			{1000001, 4096, 1, 2, true, 2}},
		{&cgroup_v2,
			{"user_usec 5\nusage_usec 9", NULL, "low 0\nmax 12\noom_kill 0\n", NULL},
			{.cpu_us = 9, .has_limit_ooms = true}},
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct cgroup_sample got;
		int fds[CGROUP_READINGS];
		for (int k = 0; k < CGROUP_READINGS; k++)
			fds[k] = table[i].files[k] ? text_fd(table[i].files[k]) : -1;
		for (int again = 0; again < 2; again++) {
			assert_int_equal(cgroup_sample(table[i].ops, fds, &got), 0);
			assert_same_sample(&got, &table[i].want);
		}
		wire_close_fds(fds, CGROUP_READINGS);
		assert_int_equal(cgroup_sample(table[i].ops, fds, &got), -EBADF);
	}
}

static void test_cgroup_limits(void **state)
{
	static const struct {
		const struct cgroup_ops *ops;
		const char *swap;
	} table[] = {{&cgroup_v1, "1000000"}, {&cgroup_v2, "0"}};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct cgroup_leaf leaf = {.limits = {text_fd(""), text_fd(""), text_fd("")}};
		const char *want[] = {"1000000", table[i].swap, "17"};
		assert_int_equal(cgroup_leaf_limit(table[i].ops, &leaf, 1000000, 17), 0);
		for (int k = 0; k < CGROUP_LIMITS; k++) {
			char text[32] = "";
			assert_true(pread(leaf.limits[k], text, sizeof(text) - 1, 0) > 0);
			assert_string_equal(text, want[k]);
			close(leaf.limits[k]);
		}
	}
}

static void test_cgroup_rows(void **state)
{
	assert_ptr_equal(cgroup_row(cgroup_row_index(&cgroup_v1)), &cgroup_v1);
	assert_ptr_equal(cgroup_row(cgroup_row_index(&cgroup_v2)), &cgroup_v2);
	assert_ptr_equal(cgroup_row(cgroup_row_index(&cgroup_polled)), &cgroup_polled);
	assert_null(cgroup_row(3));
}

/* What pid 1 has counted is read as from files of the kernel. */
static void test_cgroup_polled(void **state)
{
	const struct cgroup_sample counted = {.cpu_us = 1234567,
		.memory_bytes = 7 << 20,
		.oom_kills = 1,
		.limit_ooms = 1,
		.pids_refused = 2};
	struct cgroup_sample sample;
	struct cgroup_leaf leaf;
	struct cgroup g;
	int64_t us;

	cgroup_open_polled(&g);
	assert_int_equal(cgroup_leaf_open(&g, 0, &leaf), 0);
	assert_int_equal(cgroup_leaf_limit(g.ops, &leaf, 1, 1), 0);
	assert_int_equal(cgroup_sample(g.ops, leaf.readings, &sample), 0);
	assert_true(sample.cpu_us == 0 && sample.memory_bytes == 0 && sample.oom_kills == 0);
	assert_int_equal(cgroup_meter_write(leaf.meter, &counted), 0);
	assert_int_equal(cgroup_sample(g.ops, leaf.readings, &sample), 0);
	assert_int_equal(sample.cpu_us, 1234567);
	assert_int_equal(sample.memory_bytes, 7 << 20);
	assert_int_equal(sample.oom_kills, 1);
	assert_int_equal(sample.limit_ooms, 1);
	assert_true(sample.has_limit_ooms);
	assert_int_equal(sample.pids_refused, 2);
	assert_int_equal(cgroup_cpu_us(g.ops, leaf.readings[CGROUP_CPU], &us), 0);
	assert_int_equal(us, 1234567);
	cgroup_leaf_close(&leaf);
	assert_int_equal(cgroup_leaf_remove(&g, 0), 0);
	cgroup_close(&g);
}

/* --- layout ------------------------------------------------------------------------------------------- */

static int fresh_directory(void **state)
{
	*state = mem_strdup("/tmp/test-layout-XXXXXX");
	return mkdtemp(*state) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static int remove_directory(void **state)
{
	int result = nftw(*state, remove_one, 32, FTW_DEPTH | FTW_PHYS);

	free(*state);
	return result;
}

static int open_base(void **state)
{
	int dir = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(dir >= 0);
	return dir;
}

static mode_t mode_of(int dir, const char *name)
{
	struct stat st;

	assert_int_equal(fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_mode & 07777;
}

static void test_layout_unpack(void **state)
{
	static const mode_t modes[2][2] = {{0644, 0755}, {0444, 0555}};
	char why[LAYOUT_WHY_MAX];
	int dir = open_base(state), fd;

	for (int read_only = 0; read_only < 2; read_only++) {
		struct layout_owner owner = {.read_only = read_only, .uid = (uid_t)-1};
		char name[2][32];
		snprintf(name[0], 32, "%d/a/file", read_only);
		snprintf(name[1], 32, "%d/tool", read_only);
		assert_int_equal(bundle_create(&fd), 0);
		for (int i = 0; i < 2; i++)
			assert_int_equal(bundle_add(fd, str_from(name[i]), i == 1, "x", 1), 0);
		assert_int_equal(layout_unpack(dir, fd, &owner, why), 0);
		for (int i = 0; i < 2; i++)
			assert_int_equal(mode_of(dir, name[i]), modes[read_only][i]);
		/* nothing is overwritten */
		assert_int_equal(layout_unpack(dir, fd, &owner, why), -EEXIST);
		close(fd);
	}
	close(dir);
}

/* A link in the way is not followed, whether it stands for a directory or the file. */
static void test_layout_unpack_follows_no_link(void **state)
{
	static const char *const names[] = {"link/file", "link"};
	const struct layout_owner owner = {.uid = (uid_t)-1};
	char why[LAYOUT_WHY_MAX];
	int dir = open_base(state), fd;

	assert_int_equal(symlinkat("/tmp", dir, "link"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		assert_int_equal(bundle_create(&fd), 0);
		assert_int_equal(bundle_add(fd, str_from(names[i]), false, "x", 1), 0);
		assert_true(layout_unpack(dir, fd, &owner, why) < 0);
		assert_non_null(strstr(why, names[i]));
		close(fd);
	}
	close(dir);
}

static void test_layout_collect(void **state)
{
	char why[LAYOUT_WHY_MAX];
	struct bundle b;
	struct bundle_entry e;
	uint64_t pos = 0;
	int dir = open_base(state), fd;

	assert_int_equal(mkdirat(dir, "d", 0755), 0);
	fd = openat(dir, "d/plain", O_WRONLY | O_CREAT, 0755);
	assert_int_equal(write(fd, "12345", 5), 5);
	close(fd);
	close(openat(dir, "twice", O_WRONLY | O_CREAT, 0644));
	assert_int_equal(linkat(dir, "twice", dir, "d/twice", 0), 0);
	assert_int_equal(symlinkat("plain", dir, "d/link"), 0);
	assert_int_equal(symlinkat("/usr", dir, "usr"), 0);
	assert_int_equal(mkfifoat(dir, "fifo", 0666), 0);
	assert_int_equal(bundle_create(&fd), 0);
	assert_int_equal(layout_collect(dir, fd, 4, why), -EFBIG);
	assert_true(strlen(why) > 0);
	close(fd);
	assert_int_equal(bundle_create(&fd), 0);
	assert_int_equal(layout_collect(dir, fd, 5, why), 0);
	assert_int_equal(bundle_open(fd, 5, &b), 0);
	assert_int_equal(b.n_files, 1);
	assert_true(bundle_next(&b, &pos, &e));
	assert_true(str_is(e.name, "d/plain"));
	assert_true(e.executable);
	bundle_close(&b);
	close(fd);
	close(dir);
}

/* A name of BUNDLE_DEPTH_MAX components is taken; a directory that could only hold longer ones is too deep. */
static void test_layout_collect_depth(void **state)
{
	char why[LAYOUT_WHY_MAX];
	int top = open_base(state), at = dup(top), fd;

	for (int depth = 1; depth <= BUNDLE_DEPTH_MAX; depth++) {
		close(openat(at, "f", O_WRONLY | O_CREAT, 0644));
		assert_int_equal(bundle_create(&fd), 0);
		assert_int_equal(layout_collect(top, fd, 1, why), 0);
		close(fd);
		assert_int_equal(mkdirat(at, "d", 0755), 0);
		int next = openat(at, "d", O_RDONLY | O_DIRECTORY);
		close(at);
		at = next;
	}
	assert_int_equal(bundle_create(&fd), 0);
	assert_int_equal(layout_collect(top, fd, 1, why), -EFBIG);
	close(fd);
	close(at);
	close(top);
}

static void test_names(void **state)
{
	assert_ptr_equal(box_find("ns"), &box_ns);
	assert_ptr_equal(box_find("none"), &box_none);
	assert_null(box_find("jail"));
	assert_string_equal(box_limit_wire_name(BOX_L_NONE), "");
	assert_string_equal(box_limit_wire_name(BOX_L_STACK), "stack_bytes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wire_round_trip),
		cmocka_unit_test(test_wire_refuses),
		cmocka_unit_test(test_cgroup_samples),
		cmocka_unit_test(test_cgroup_limits),
		cmocka_unit_test(test_cgroup_rows),
		cmocka_unit_test(test_cgroup_polled),
		cmocka_unit_test_setup_teardown(
			test_layout_unpack, fresh_directory, remove_directory),
		cmocka_unit_test_setup_teardown(
			test_layout_unpack_follows_no_link, fresh_directory, remove_directory),
		cmocka_unit_test_setup_teardown(
			test_layout_collect, fresh_directory, remove_directory),
		cmocka_unit_test_setup_teardown(
			test_layout_collect_depth, fresh_directory, remove_directory),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
