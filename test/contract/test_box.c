/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The promises of box.h, kept by every row. Those about isolation are asked of rows that claim it only.
 *
 * A hostile program (box_victim.c) is compiled here, statically, and brought in as a file of a bundle; what it reports is
 * compared whole. Each test runs on a real loop with a deadline. Must run as root: a sandbox that cannot be opened is a failure
 * of the test, never a reason to pass over it.
 *
 * box_ns comes in five rows: root's, and an ordinary user's with nothing, with subordinate ids, with a delegated control group, and with
 * both. Those run in a child process that has become the user. What a row cannot keep, its fields say, and the test asserts what comes instead.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proc/box/box.h"
#include "proc/box/bundle.h"
#include "proc/box/cgroup.h"
#include "proc/spawn.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"

#define DEADLINE_US (30 * US_PER_S)
#define MIB (INT64_C(1) << 20)

#define NOBODY 65534
#define HERE "test_box-here" /* the name under which we test: elsewhere() */
#define PATH_SIZE 512
#define ORDINARY_GROUP 60 /* newgidmap wants it to be the user's own */
#define ORDINARY 5        /* games: not nobody, whose processes those of box_none count among */

struct row {
	const char *name;
	const struct box_ops *ops;
	const char *isolation;
	bool isolates;
	bool user;             /* an ordinary one */
	bool polled;           /* no control groups */
	bool one_id;           /* the program has the executor's uid */
	void (*prepare)(void); /* as root, in the process that will be the user's */
};

struct fixture {
	const struct row *row;
	struct loop *loop;
	struct box_host *host;
	char dir[64];
	char *victim; /* the program's bytes */
	size_t victim_size;
};

/* What a run did; out and err as delivered. */
struct outcome {
	struct fixture *f;
	struct box_run *run;
	bool started, done;
	int events_after_done;
	struct box_result r;
	char failure[512];
	struct buf out, err;
	int64_t started_us, done_us;
	/* steers the callbacks */
	bool kill_on_output, cancel_on_output, kill_on_start;
};

/* --- running things ----------------------------------------------------------------------------------- */

static void on_started(void *arg)
{
	struct outcome *o = arg;

	assert_false(o->started || o->done);
	o->started = true;
	o->started_us = loop_now_exact_us(o->f->loop);
	if (o->kill_on_start)
		box_run_kill(o->run);
}

static void on_output(void *arg, int stream, struct str bytes)
{
	struct outcome *o = arg;

	assert_false(o->done);
	assert_true(stream == 1 || stream == 2);
	buf_add_str(stream == 1 ? &o->out : &o->err, bytes);
	if (o->kill_on_output)
		box_run_kill(o->run);
	if (o->cancel_on_output)
		box_run_cancel(&o->run);
}

static void on_done(void *arg, const struct box_result *result)
{
	struct outcome *o = arg;

	assert_false(o->done);
	o->done = true;
	o->done_us = loop_now_exact_us(o->f->loop);
	o->r = *result;
	snprintf(o->failure, sizeof(o->failure), "%s", result->failure ? result->failure : "");
}

static const struct box_events events = {
	.on_started = on_started, .on_output = on_output, .on_done = on_done};

static struct box_limits default_limits(void)
{
	return (struct box_limits){.cpu_us = 5 * US_PER_S,
		.wall_us = 10 * US_PER_S,
		.memory_bytes = 256 * MIB,
		.output_bytes = MIB,
		.file_bytes = 16 * MIB,
		.processes = 64,
		.stack_bytes = 8 * MIB};
}

static int make_bundle(struct fixture *f)
{
	int fd;

	assert_int_equal(bundle_create(&fd), 0);
	assert_int_equal(bundle_add(fd, STR("victim"), true, f->victim, f->victim_size), 0);
	assert_int_equal(bundle_add(fd, STR("data/in.txt"), false, "input\n", 6), 0);
	assert_int_equal(bundle_seal(fd), 0);
	return fd;
}

static struct box_spec spec_of(struct fixture *f, const char *const *argv)
{
	return (struct box_spec){.argv = (char *const *)argv,
		.stdin_fd = -1,
		.files_fd = make_bundle(f),
		.files_read_only = true,
		.limits = default_limits()};
}

static void start(struct fixture *f, struct box_spec *spec, struct outcome *o)
{
	o->f = f;
	o->r.files_fd = -1;
	assert_int_equal(box_run(f->host, spec, &events, o, &o->run), 0);
	if (spec->files_fd >= 0)
		close(spec->files_fd);
}

static void wait_done(struct outcome *o)
{
	int64_t end = loop_now_exact_us(o->f->loop) + DEADLINE_US;

	while (!o->done) {
		loop_turn(o->f->loop, 100 * US_PER_MS);
		if (loop_now_exact_us(o->f->loop) > end)
			fail_msg("the run did not end in time");
	}
	if (o->r.end == BOX_FAILED)
		print_message("failure: %s\n", o->failure);
}

static void outcome_fini(struct outcome *o)
{
	buf_fini(&o->out);
	buf_fini(&o->err);
	if (o->r.files_fd >= 0)
		close(o->r.files_fd);
}

#define OUTCOME(name) struct outcome name cleanup(outcome_fini) = {0}

static void run_spec(struct fixture *f, struct box_spec *spec, struct outcome *o)
{
	start(f, spec, o);
	wait_done(o);
}

/* run(f, &o, "word", ...): the victim with default limits. */
#define run(f, o, ...)                                                                             \
	do {                                                                                       \
		const char *argv_[] = {"./victim", __VA_ARGS__, NULL};                             \
		struct box_spec spec_ = spec_of((f), argv_);                                       \
		run_spec((f), &spec_, (o));                                                        \
	} while (0)

static void assert_exit(const struct outcome *o, int code)
{
	if (o->r.end != BOX_EXITED || o->r.exit_code != code)
		fail_msg("end %d exit %d signal %d limit %s, stderr: %s", o->r.end, o->r.exit_code,
			o->r.signal, box_limit_wire_name(o->r.limit),
			o->err.data ? o->err.data : "");
}

static void assert_limit(const struct outcome *o, enum box_limit_name limit)
{
	if (o->r.end != BOX_LIMIT || o->r.limit != limit)
		fail_msg("end %d exit %d signal %d limit '%s' (wanted '%s')", o->r.end,
			o->r.exit_code, o->r.signal, box_limit_wire_name(o->r.limit),
			box_limit_wire_name(limit));
}

static void assert_out(const struct outcome *o, const char *text)
{
	assert_string_equal(o->out.data ? o->out.data : "", text);
}

/* Processes of the whole host with this word in their arguments. */
static int count_processes(const char *word)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	int n = 0;

	while ((e = readdir(dir))) {
		char path[300], text[4096];
		if (e->d_name[0] < '1' || e->d_name[0] > '9' || atoi(e->d_name) == getpid() ||
			atoi(e->d_name) == getppid())
			continue;
		snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
		int fd = open(path, O_RDONLY);
		ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text));
		if (fd >= 0)
			close(fd);
		n += got > 0 && memmem(text, (size_t)got, word, strlen(word)) != NULL;
	}
	closedir(dir);
	return n;
}

/* --- how a program ends ------------------------------------------------------------------------------- */

static void test_exit_code(void **state)
{
	OUTCOME(o);

	run(*state, &o, "exit", "7");
	assert_exit(&o, 7);
	assert_true(o.started);
	assert_int_equal(o.r.limit, BOX_L_NONE);
	assert_true(o.r.wall_us > 0 && o.r.wall_us < 5 * US_PER_S);
	assert_true(o.r.cpu_us > 0 && o.r.cpu_us < US_PER_S);
	assert_true(o.r.memory_bytes >
		    0); /* without isolation not even its own: exec inherits a peak */
	assert_int_equal(o.r.files_fd, -1);
}

static void test_signal(void **state)
{
	OUTCOME(o);

	run(*state, &o, "signal", "11");
	assert_int_equal(o.r.end, BOX_SIGNALED);
	assert_int_equal(o.r.signal, SIGSEGV);
}

static void test_missing_program(void **state)
{
	static const struct {
		const char *program;
		int code;
		const char *text;
	} table[] = {
		{"./absent", 127, "cannot execute ./absent: No such file or directory\n"},
		{"no-such-command", 127,
			"cannot execute no-such-command: No such file or directory\n"},
		{"./data/in.txt", 126, "cannot execute ./data/in.txt: Permission denied\n"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const char *argv[] = {table[i].program, NULL};
		struct box_spec spec = spec_of(*state, argv);
		OUTCOME(o);
		run_spec(*state, &spec, &o);
		assert_exit(&o, table[i].code);
		assert_string_equal(o.err.data, table[i].text);
	}
}

static void test_program_by_name(void **state)
{
	const char *argv[] = {"printf", "%s-%s", "a b", "", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	run_spec(*state, &spec, &o);
	assert_exit(&o, 0);
	assert_out(&o, "a b-");
}

static void test_large_arguments(void **state)
{
	char *large = mem_alloc(100 * 1024 + 1);
	const char *argv[] = {"printf", "%s", large, NULL};
	const char *env[] = {large, NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	memset(large, 'a', 100 * 1024);
	large[1] = '=';
	spec.env = (char *const *)env;
	run_spec(*state, &spec, &o);
	assert_exit(&o, 0);
	assert_int_equal(o.out.len, 100 * 1024);
	free(large);
}

static void test_refused_specs(void **state)
{
	struct fixture *f = *state;
	const char *argv[] = {"./victim", "exit", "0", NULL};
	const char *none[] = {NULL};
	char *huge = mem_alloc(300 * 1024);
	const char *too_large[] = {"x", huge, NULL};
	struct box_run *handle;
	struct box_spec spec = spec_of(f, none);
	int unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(box_run(f->host, &spec, &events, NULL, &handle), -EINVAL);
	spec.argv = (char *const *)argv;
	spec.limits.wall_us = 0;
	assert_int_equal(box_run(f->host, &spec, &events, NULL, &handle), -EINVAL);
	spec.limits.wall_us = 1;
	spec.stdin_fd = unsealed;
	assert_int_equal(box_run(f->host, &spec, &events, NULL, &handle), -EINVAL);
	spec.stdin_fd = -1;
	memset(huge, 'x', 300 * 1024 - 1);
	spec.argv = (char *const *)too_large;
	assert_int_equal(box_run(f->host, &spec, &events, NULL, &handle), -E2BIG);
	assert_null(handle);
	close(spec.files_fd);
	close(unsealed);
	free(huge);
}

/* --- input and output --------------------------------------------------------------------------------- */

static void test_output_is_exact(void **state)
{
	static const struct {
		int64_t cap, printed;
		bool over;
	} table[] = {{1, 0, false}, {1, 1, false}, {1, 2, true}, {100000, 99999, false},
		{100000, 100000, false}, {100000, 100001, true}, {3000000, 3000000, false},
		{3000000, 30000000, true}};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		char count[32];
		const char *argv[] = {"./victim", "print", "1", count, NULL};
		struct box_spec spec = spec_of(*state, argv);
		OUTCOME(o);
		snprintf(count, sizeof(count), "%lld", (long long)table[i].printed);
		spec.limits.output_bytes = table[i].cap;
		run_spec(*state, &spec, &o);
		int64_t want = table[i].over ? table[i].cap : table[i].printed;
		assert_int_equal(o.out.len, want);
		assert_int_equal(o.r.stdout_bytes, want);
		if (!table[i].over) {
			assert_exit(&o, 0);
			continue;
		}
		assert_limit(&o, BOX_L_OUTPUT);
		assert_int_equal(o.r.allowed, table[i].cap);
		assert_int_equal(o.r.measured, table[i].cap + 1);
	}
}

static void test_endless_output(void **state)
{
	const char *argv[] = {"yes", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	spec.limits.output_bytes = 1000;
	run_spec(*state, &spec, &o);
	assert_limit(&o, BOX_L_OUTPUT);
	assert_int_equal(o.out.len, 1000);
}

static void test_stderr_is_no_limit(void **state)
{
	const char *argv[] = {"./victim", "print", "2", "5000000", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	spec.limits.output_bytes = 10;
	run_spec(*state, &spec, &o);
	assert_exit(&o, 0);
	assert_int_equal(o.err.len, 5000000);
	assert_int_equal(o.r.stderr_bytes, 5000000);
	assert_int_equal(o.out.len, 0);
}

static int sealed(const char *text)
{
	int fd = memfd_create("stdin", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	assert_int_equal(
		fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
		0);
	return fd;
}

/* The offset is not shared: two runs of one descriptor, which stands at its end, both see it all. */
static void test_stdin(void **state)
{
	int fd = sealed("hello\n");

	for (int i = 0; i < 2; i++) {
		const char *argv[] = {"./victim", "cat", NULL};
		struct box_spec spec = spec_of(*state, argv);
		OUTCOME(o);
		spec.stdin_fd = fd;
		run_spec(*state, &spec, &o);
		assert_exit(&o, 0);
		assert_out(&o, "hello\n");
	}
	close(fd);
}

static void test_empty_stdin(void **state)
{
	OUTCOME(o);

	run(*state, &o, "cat");
	assert_exit(&o, 0);
	assert_int_equal(o.out.len, 0);
}

static void test_stdin_cannot_be_changed(void **state)
{
	int fd = sealed("keep\n");
	const char *argv[] = {"./victim", "stdin-attack", NULL};
	struct box_spec spec = spec_of(*state, argv);
	char text[8] = "";
	OUTCOME(o);

	spec.stdin_fd = fd;
	run_spec(*state, &spec, &o);
	assert_exit(&o, 0);
	assert_non_null(strstr(o.out.data, "write0 EBADF\n"));
	assert_int_equal(pread(fd, text, sizeof(text), 0), 5);
	assert_string_equal(text, "keep\n");
	close(fd);
}

/* --- limits ------------------------------------------------------------------------------------------- */

static void test_cpu_limit(void **state)
{
	static const char *const programs[] = {"spin", "spin-threads"};
	struct fixture *f = *state;

	for (size_t i = 0; i < (f->row->isolates ? 2 : 1); i++) {
		const char *argv[] = {"./victim", programs[i], NULL};
		struct box_spec spec = spec_of(f, argv);
		OUTCOME(o);
		spec.limits.cpu_us = US_PER_S;
		run_spec(f, &spec, &o);
		assert_limit(&o, BOX_L_CPU);
		assert_int_equal(o.r.allowed, 1000);
		assert_in_range(o.r.measured, 1001, 1060);
		assert_in_range(o.r.cpu_us, US_PER_S, 1060 * US_PER_MS);
		assert_int_equal(o.r.signal, SIGKILL);
	}
}

/* The machine may be busy: one of three must be on time. */
static void test_wall_limit(void **state)
{
	int64_t best = INT64_MAX;

	for (int i = 0; i < 3 && best > 20 * US_PER_MS; i++) {
		const char *argv[] = {"./victim", "sleep", NULL};
		struct box_spec spec = spec_of(*state, argv);
		OUTCOME(o);
		spec.limits.wall_us = 400 * US_PER_MS;
		run_spec(*state, &spec, &o);
		assert_limit(&o, BOX_L_WALL);
		assert_int_equal(o.r.allowed, 400);
		assert_true(o.r.measured >= 400);
		assert_out(&o, "sleeping\n");
		if (o.r.wall_us - spec.limits.wall_us < best)
			best = o.r.wall_us - spec.limits.wall_us;
	}
	assert_in_range(best, 0, 20 * US_PER_MS);
}

static void test_closed_descriptors_still_limited(void **state)
{
	const char *argv[] = {"./victim", "close-all", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	spec.limits.wall_us = 200 * US_PER_MS;
	run_spec(*state, &spec, &o);
	assert_limit(&o, BOX_L_WALL);
}

static void test_file_limit(void **state)
{
	const char *argv[] = {"./victim", "big-file", "3000000", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	spec.limits.file_bytes = 2 * MIB;
	run_spec(*state, &spec, &o);
	assert_limit(&o, BOX_L_FILE);
	assert_int_equal(o.r.signal, SIGXFSZ);
	assert_int_equal(o.r.allowed, 2 * MIB);
}

static void test_file_limit_ignored(void **state)
{
	const char *argv[] = {"./victim", "big-file", "3000000", "ignore", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	spec.limits.file_bytes = 2 * MIB;
	run_spec(*state, &spec, &o);
	assert_exit(&o, 4);
	assert_out(&o, "write EFBIG\n");
}

static void test_kill(void **state)
{
	OUTCOME(o);

	o.kill_on_output = true;
	run(*state, &o, "sleep");
	assert_int_equal(o.r.end, BOX_KILLED);
	assert_int_equal(o.r.signal, SIGKILL);
}

static void test_kill_at_start(void **state)
{
	OUTCOME(o);

	o.kill_on_start = true;
	run(*state, &o, "sleep");
	assert_int_equal(o.r.end, BOX_KILLED);
}

static void test_kill_before_start(void **state)
{
	const char *argv[] = {"./victim", "sleep", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	start(*state, &spec, &o);
	box_run_kill(o.run);
	box_run_kill(o.run);
	assert_false(o.done);
	wait_done(&o);
	assert_int_equal(o.r.end, BOX_KILLED);
	assert_false(o.started);
}

static void test_cancel(void **state)
{
	struct fixture *f = *state;
	const char *argv[] = {"./victim", "sleep", "cancel-marker-4711", NULL};
	struct box_spec spec = spec_of(f, argv);
	OUTCOME(o);

	o.cancel_on_output = true;
	start(f, &spec, &o);
	int64_t end = loop_now_exact_us(f->loop) + DEADLINE_US;
	while (o.run || count_processes("cancel-marker-4711") > 0) {
		loop_turn(f->loop, 10 * US_PER_MS);
		assert_true(loop_now_exact_us(f->loop) < end);
	}
	assert_false(o.done);
}

static void test_cancel_at_once(void **state)
{
	struct fixture *f = *state;
	const char *argv[] = {"./victim", "sleep", NULL};
	struct box_spec spec = spec_of(f, argv);
	OUTCOME(o);
	OUTCOME(after);

	start(f, &spec, &o);
	box_run_cancel(&o.run);
	assert_null(o.run);
	run(f, &after, "exit", "1");
	assert_exit(&after, 1);
	assert_false(o.done || o.started);
}

/* More runs than slots: all end, never more than `slots` at a time. */
static void test_queue(void **state)
{
	struct fixture *f = *state;
	struct outcome o[20];
	size_t n = ARRAY_SIZE(o);

	memset(o, 0, sizeof(o));
	for (size_t i = 0; i < n; i++) {
		char code[8];
		const char *argv[] = {"./victim", "exit", code, NULL};
		struct box_spec spec = spec_of(f, argv);
		snprintf(code, sizeof(code), "%zu", i);
		start(f, &spec, &o[i]);
	}
	for (size_t i = 0; i < n; i++) {
		wait_done(&o[i]);
		assert_exit(&o[i], (int)i);
		outcome_fini(&o[i]);
	}
}

/* --- files -------------------------------------------------------------------------------------------- */

static void assert_bundle(int fd, const char *const *names, unsigned n)
{
	struct bundle b;
	struct bundle_entry e;
	uint64_t pos = 0;
	unsigned found = 0;

	assert_true(fd >= 0);
	assert_int_equal(bundle_open(fd, UINT64_MAX, &b), 0);
	while (bundle_next(&b, &pos, &e)) {
		bool known = false;
		for (unsigned i = 0; i < n; i++)
			known |= str_is(e.name, names[i]);
		if (!known)
			fail_msg("unexpected file " STR_FMT, STR_ARG(e.name));
		found++;
		if (str_is(e.name, "sub/tool")) {
			assert_true(e.executable);
			assert_true(str_is((struct str){e.bytes, e.size}, "tool\n"));
		}
		if (str_is(e.name, "plain.txt"))
			assert_false(e.executable);
	}
	assert_int_equal(found, n);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	bundle_close(&b);
}

static void test_collect_regular_files_only(void **state)
{
	static const char *const names[] = {
		"victim", "data/in.txt", "plain.txt", "sub/tool", "secret"};
	const char *argv[] = {"./victim", "leave-files", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	spec.collect = true;
	spec.collect_max = 16 * MIB;
	spec.files_read_only = false;
	run_spec(*state, &spec, &o);
	assert_exit(&o, 0);
	assert_bundle(o.r.files_fd, names, ARRAY_SIZE(names));
}

static void test_collect_only_after_success(void **state)
{
	const char *argv[] = {"./victim", "exit", "1", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	spec.collect = true;
	spec.collect_max = 16 * MIB;
	run_spec(*state, &spec, &o);
	assert_exit(&o, 1);
	assert_int_equal(o.r.files_fd, -1);
}

static void test_collect_bounds(void **state)
{
	static const char *const table[][3] = {
		{"leave-sparse", "10000000", NULL}, {"deep", NULL, NULL}};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const char *argv[] = {"./victim", table[i][0], table[i][1], NULL};
		struct box_spec spec = spec_of(*state, argv);
		OUTCOME(o);
		spec.files_read_only = false;
		spec.collect = true;
		spec.collect_max = 8 * MIB;
		run_spec(*state, &spec, &o);
		assert_limit(&o, BOX_L_FILE);
		assert_int_equal(o.r.allowed, 8 * MIB);
		assert_int_equal(o.r.files_fd, -1);
	}
}

/* A hole larger than the space itself must be read, not mapped. */
static void test_collect_sparse(void **state)
{
	static const char *const names[] = {"victim", "data/in.txt", "sparse"};
	const char *argv[] = {"./victim", "leave-sparse", "1900000", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	spec.files_read_only = false;
	spec.limits.file_bytes = 2000000;
	spec.collect = true;
	spec.collect_max = 16 * MIB;
	run_spec(*state, &spec, &o);
	assert_exit(&o, 0);
	assert_bundle(o.r.files_fd, names, ARRAY_SIZE(names));
}

/* A gigabyte of nothing, left and laid out again: charged to nobody, so it must not take memory. */
static void test_hole_stays_one(void **state)
{
	const char *argv[] = {"./victim", "leave-sparse", "1000000000", NULL};
	const char *look[] = {
		"sh", "-c", "[ $(du -k sparse | cut -f1) -lt 5000 ] && wc -c <sparse", NULL};
	struct box_spec spec = spec_of(*state, argv);
	struct stat st;
	OUTCOME(o);
	OUTCOME(after);

	spec.files_read_only = false;
	spec.limits.file_bytes = 1000000000;
	spec.collect = true;
	spec.collect_max = 1000000000 + 16 * MIB;
	run_spec(*state, &spec, &o);
	assert_exit(&o, 0);
	assert_int_equal(fstat(o.r.files_fd, &st), 0);
	assert_true(st.st_size > 1000000000);
	assert_in_range(st.st_blocks * 512, 1, 4 * MIB);
	spec.argv = (char *const *)look;
	spec.collect = false;
	spec.files_fd = dup(o.r.files_fd);
	run_spec(*state, &spec, &after);
	assert_exit(&after, 0);
	assert_out(&after, "1000000000\n");
	assert_int_equal(fstat(o.r.files_fd, &st), 0);
	assert_in_range(st.st_blocks * 512, 1, 4 * MIB);
}

static void test_files_of_its_own(void **state)
{
	const char *argv[] = {"./victim", "change-own", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	spec.files_read_only = false;
	run_spec(*state, &spec, &o);
	assert_exit(&o, 0);
	assert_out(&o, "append ok\nnew ok\nunlink ok\n");
}

static void test_bad_bundle(void **state)
{
	const char *argv[] = {"./victim", "exit", "0", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	close(spec.files_fd);
	assert_int_equal(bundle_create(&spec.files_fd), 0);
	assert_int_equal(bundle_add(spec.files_fd, STR("a"), false, "", 0), 0);
	assert_int_equal(bundle_add(spec.files_fd, STR("a/b"), false, "", 0), 0);
	run_spec(*state, &spec, &o);
	assert_int_equal(o.r.end, BOX_FAILED);
	assert_true(strlen(o.failure) > 10);
	assert_false(o.started);
}

/* --- isolation ---------------------------------------------------------------------------------------- */

static void test_memory_limit(void **state)
{
	static const char *const programs[] = {"memory", "memory-in-child"};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		const char *argv[] = {"./victim", programs[i], NULL};
		struct box_spec spec = spec_of(*state, argv);
		OUTCOME(o);
		spec.limits.memory_bytes = 32 * MIB;
		run_spec(*state, &spec, &o);
		assert_limit(&o, BOX_L_MEMORY);
		assert_int_equal(o.r.allowed, 32 * MIB);
		/* Looking now and then finds it a little later; the machine may be busy. */
		if (f->row->polled)
			assert_in_range(o.r.memory_bytes, 32 * MIB + 1, 96 * MIB);
		else
			assert_in_range(o.r.memory_bytes, 30 * MIB, 32 * MIB);
	}
}

static void test_memory_figure(void **state)
{
	OUTCOME(o);
	OUTCOME(empty);

	run(*state, &o, "touch-memory", "67108864");
	assert_exit(&o, 0);
	assert_in_range(o.r.memory_bytes, 64 * MIB, 66 * MIB);
	run(*state, &empty, "exit", "0");
	assert_in_range(empty.r.memory_bytes, 1, 2 * MIB);
}

static void test_fork_bomb(void **state)
{
	const char *argv[] = {"./victim", "fork-bomb", "bomb-marker-4712", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	spec.limits.wall_us = 500 * US_PER_MS;
	/* A fork that is refused has copied page tables by then; a busy kernel frees them late, and they count. */
	spec.limits.memory_bytes = 4096 * MIB;
	run_spec(*state, &spec, &o);
	assert_limit(&o, BOX_L_WALL);
	assert_int_equal(count_processes("bomb-marker-4712"), 0);
}

static void test_processes_are_named(void **state)
{
	const char *argv[] = {"./victim", "fork-some", NULL};
	struct fixture *f = *state;
	struct box_spec spec = spec_of(f, argv);
	OUTCOME(o);

	spec.limits.processes = 5;
	run_spec(*state, &spec, &o);
	assert_exit(&o, 0);
	if (f->row->polled) /* too short to be seen; but they were refused */
		return;
	assert_int_equal(o.r.limit, BOX_L_PROCESSES);
	assert_int_equal(o.r.allowed, 5);
}

static void test_processes_at_the_limit_are_named(void **state)
{
	const char *argv[] = {"./victim", "fork-hold", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	spec.limits.processes = 5;
	run_spec(*state, &spec, &o);
	assert_exit(&o, 0);
	assert_int_equal(o.r.limit, BOX_L_PROCESSES);
	assert_int_equal(o.r.allowed, 5);
}

/* The time of children nobody waits for counts too. */
static void test_cpu_of_the_lost(void **state)
{
	const char *argv[] = {"sh", "-c", "./victim lose-children 40", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	spec.limits.cpu_us = US_PER_S;
	spec.limits.wall_us = 25 * US_PER_S; /* 40 that share what a busy machine leaves */
	run_spec(*state, &spec, &o);
	assert_limit(&o, BOX_L_CPU);
	assert_in_range(o.r.cpu_us, US_PER_S, 1300 * US_PER_MS);
}

/* Many short ones that are waited for count once. */
static void test_cpu_of_the_short(void **state)
{
	const char *argv[] = {"./victim", "short-children", "200", NULL};
	struct box_spec spec = spec_of(*state, argv);
	int64_t told;
	OUTCOME(o);

	spec.limits.wall_us = 25 * US_PER_S; /* 200 forks on a busy machine */

	run_spec(*state, &spec, &o);
	assert_exit(&o, 0);
	told = atoll(o.out.data);
	assert_in_range(o.r.cpu_us, told - 20 * US_PER_MS, told + 30 * US_PER_MS);
}

/* What several processes share after fork() is there once. */
static void test_memory_of_the_forked(void **state)
{
	const char *argv[] = {"./victim", "share-memory", "67108864", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	spec.limits.memory_bytes = 100 * MIB;
	run_spec(*state, &spec, &o);
	assert_exit(&o, 0);
	assert_in_range(o.r.memory_bytes, 64 * MIB, 100 * MIB);
}

/* Files are memory. */
static void test_memory_in_files(void **state)
{
	const char *argv[] = {"dd", "if=/dev/zero", "of=/tmp/large", "bs=1M", "count=200", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	spec.limits.memory_bytes = 64 * MIB;
	spec.limits.file_bytes = 256 * MIB;
	run_spec(*state, &spec, &o);
	assert_limit(&o, BOX_L_MEMORY);
}

static void test_pid1_cannot_be_harmed(void **state)
{
	OUTCOME(o);

	run(*state, &o, "harm-pid1");
	assert_exit(&o, 0);
	assert_out(&o,
		"prlimit EPERM\nprlimit-high EPERM\naffinity EPERM\nscheduler EPERM\nnice EPERM\n"
		"nice-all EPERM\nionice EPERM\npidfd EPERM\ntgkill EPERM\nown-nice ok\nown-limit "
		"ok\n");
}

static void test_isolation_is_named(void **state)
{
	struct fixture *f = *state;

	assert_string_equal(box_host_isolation(f->host), f->row->isolation);
	/* Who got less than there is is told what to type. */
	assert_int_equal(
		strlen(box_host_shortfall(f->host)) > 20, f->row->one_id || f->row->polled);
}

static void test_threads_work(void **state)
{
	OUTCOME(o);

	run(*state, &o, "threads");
	assert_exit(&o, 0);
	assert_out(&o, "thread\n");
}

static void test_daemon_is_dead_before_done(void **state)
{
	OUTCOME(o);

	run(*state, &o, "daemon", "daemon-marker-4713");
	assert_exit(&o, 0);
	assert_true(o.out.len > 0);
	assert_int_equal(count_processes("daemon-marker-4713"), 0);
}

static void test_network(void **state)
{
	OUTCOME(o);

	run(*state, &o, "network");
	assert_out(&o,
		"tcp ENETUNREACH\nudp ENETUNREACH\ntcp ENETUNREACH\nudp ENETUNREACH\ntcp "
		"ENETUNREACH\n"
		"udp ENETUNREACH\nnetlink EAFNOSUPPORT\npacket EAFNOSUPPORT\nvsock EAFNOSUPPORT\n"
		"alg EAFNOSUPPORT\nx25 EAFNOSUPPORT\nbluetooth EAFNOSUPPORT\nvsock-high "
		"EAFNOSUPPORT\n"
		"netlink-high EAFNOSUPPORT\n");
}

static void test_denied_calls(void **state)
{
	struct fixture *f = *state;
	char want[600];
	OUTCOME(o);

	run(f, &o, "denied");
	snprintf(want, sizeof(want),
		"unshare EPERM\nclone EPERM\nclone3 ENOSYS\nsetns EPERM\nmount EPERM\nfsopen "
		"EPERM\n"
		"add_key ENOSYS\nkeyctl ENOSYS\nio_uring ENOSYS\nbpf EPERM\nperf EPERM\n"
		"userfaultfd EPERM\nptrace EPERM\nvmread EPERM\nhandle EPERM\npersonality EPERM\n"
		"statmount EPERM\ntiocsti EPERM\ntiocsti-high EPERM\nkexec EPERM\n"
		"inotify ENOSYS\ninotify-watch ENOSYS\nfanotify ENOSYS\nmmap-huge ENOMEM\n"
		"memfd-huge %s\nshm-huge %s\n",
		f->row->polled ? "ENOSYS" : "EINVAL", f->row->polled ? "ENOSYS" : "EPERM");
	assert_out(&o, want);
}

static void test_no_locks_on_shared_files(void **state)
{
	OUTCOME(o);

	run(*state, &o, "locks");
	assert_out(&o,
		"getlk EPERM\nsetlk EPERM\nsetlkw EPERM\nofd-getlk EPERM\nofd-setlk EPERM\n"
		"ofd-setlkw EPERM\nsetlk-high EPERM\nflock EPERM\nlease EPERM\nnotify EPERM\n"
		"flags ok\n");
}

/* All families, types and protocols are tried: these are what is left, and no other answer makes the kernel look for a module. */
static void test_sockets_are_few(void **state)
{
	OUTCOME(o);

	run(*state, &o, "sockets");
	assert_out(&o,
		"1 1 0\n1 2 0\n2 1 0\n2 1 6\n2 2 0\n2 2 17\n10 1 0\n10 1 6\n10 2 0\n10 2 17\n"
		"nonblock ok\nprotocol-high EPROTONOSUPPORT\ntype-high EPROTONOSUPPORT\n");
}

static void test_outputs_have_names(void **state)
{
	const char *argv[] = {"bash", "-c", "echo x >/dev/stderr; echo y >>/dev/stdout", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);
	OUTCOME(shell);

	run(*state, &o, "named-outputs");
	assert_exit(&o, 0);
	assert_out(&o, "/dev/stdoutread EACCES\nread EACCES\n");
	assert_string_equal(o.err.data, "/dev/stderr");
	run_spec(*state, &spec, &shell);
	assert_exit(&shell, 0);
	assert_out(&shell, "y\n");
	assert_string_equal(shell.err.data, "x\n");
}

/* The limit is one byte and not none: still no file. */
static void test_no_core_file(void **state)
{
	const char *argv[] = {"sh", "-c", "./victim signal 11; echo *", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	run_spec(*state, &spec, &o);
	assert_exit(&o, 0);
	assert_out(&o, "data victim\n");
}

static void test_foreign_calls_kill(void **state)
{
	static const char *const programs[] = {"int80", "x32"};

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		OUTCOME(o);
		run(*state, &o, programs[i]);
		assert_int_equal(o.r.end, BOX_SIGNALED);
		assert_int_equal(o.r.signal, SIGSYS);
		assert_int_equal(o.out.len, 0);
	}
}

static void test_host_files_are_absent(void **state)
{
	char own[64];
	OUTCOME(o);

	snprintf(own, sizeof(own), "%s", ((struct fixture *)*state)->dir);
	run(*state, &o, "open", "/etc/shadow", own, "/proc/1/environ", "/proc/keys", "/sys",
		"/root", "/home", "/srv", "/etc/passwd");
	char want[512];
	snprintf(want, sizeof(want),
		"/etc/shadow ENOENT\n%s ENOENT\n/proc/1/environ ENOENT\n/proc/keys ok\n/sys "
		"ENOENT\n"
		"/root ENOENT\n/home ENOENT\n/srv ENOENT\n/etc/passwd ok\n",
		own);
	assert_out(&o, want); /* keys is /dev/null */
}

static void test_root_directory_is_golden(void **state)
{
	OUTCOME(etc);
	OUTCOME(dev);

	run(*state, &dev, "list", "/dev");
	assert_out(&dev, "fd\nfull\nnull\nrandom\nshm\nstderr\nstdin\nstdout\nurandom\nzero\n");
	run(*state, &etc, "list", "/dev/shm");
	assert_int_equal(etc.out.len, 0);
}

static void test_environment_is_golden(void **state)
{
	OUTCOME(o);

	run(*state, &o, "environment", "a b");
	assert_out(&o, "PATH=/usr/local/bin:/usr/bin:/bin\nLANG=C.UTF-8\nHOME=/w\narg a b\n");
}

static void test_environment_of_ours(void **state)
{
	const char *argv[] = {"./victim", "environment", NULL};
	const char *env[] = {"LANG=de", "X=1", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	spec.env = (char *const *)env;
	run_spec(*state, &spec, &o);
	assert_out(&o, "PATH=/usr/local/bin:/usr/bin:/bin\nHOME=/w\nLANG=de\nX=1\n");
}

static void test_only_three_descriptors(void **state)
{
	OUTCOME(o);

	run(*state, &o, "fds");
	assert_out(&o, "0\n1\n2\n");
}

static void test_ids(void **state)
{
	struct fixture *f = *state;
	char want[200];
	OUTCOME(o);

	run(f, &o, "ids");
	snprintf(want, sizeof(want),
		"uid own gid own groups 0\nnnp 1 bounding 0 dumpable 1 session own\nsetuid %s\n"
		"still own\n",
		f->row->user ? "EINVAL" : "EPERM"); /* no such number there */
	assert_out(&o, want);
}

static void test_host_facts(void **state)
{
	OUTCOME(o);

	run(*state, &o, "host");
	assert_out(&o,
		"host box cwd /w\noom 1000\nproc-write EROFS\nenviron1 ENOENT\nroot1 ENOENT\n"
		"root-write EROFS\nusr-write EROFS\nnull ok\nsys ENOENT\n");
}

static void test_limits_inside(void **state)
{
	OUTCOME(o);

	run(*state, &o, "limits");
	assert_out(&o, "cpu 6 6\ncore 1 1\nnofile 256 256\nfsize 16777216 16777216\nstack 8388608 "
		       "8388608\n");
}

static void test_own_processes_only(void **state)
{
	OUTCOME(o);

	run(*state, &o, "pids");
	assert_exit(&o, 0);
	assert_out(&o, "seen 1 self small\nkill1 EPERM\nkillall ESRCH\nstop1 EPERM\n");
}

/* Two slots at the same time and one after the other: nothing written is seen. */
static void test_other_slots_are_invisible(void **state)
{
	static const char *const paths[] = {"/tmp/mark", "/dev/shm/mark", "/w/mark"};
	struct fixture *f = *state;

	for (int i = 0; i < 6; i++) {
		OUTCOME(o);
		run(f, &o, "create", paths[0], paths[1], paths[2]);
		assert_out(&o, "/tmp/mark ok\n/dev/shm/mark ok\n/w/mark ok\n");
	}
}

static void test_disk_is_bounded(void **state)
{
	const char *argv[] = {"./victim", "fill-disk", NULL};
	struct box_spec spec = spec_of(*state, argv);
	OUTCOME(o);

	spec.limits.file_bytes = 4 * MIB;
	run_spec(*state, &spec, &o);
	assert_exit(&o, 0);
	assert_out(&o, "full ENOSPC\n");
}

static void test_artefacts_cannot_be_changed(void **state)
{
	struct fixture *f = *state;
	OUTCOME(o);
	OUTCOME(again);

	run(f, &o, "change-artefact");
	assert_exit(&o, 0);
	if (f->row->one_id) { /* they are its own; each run has its own copy */
		assert_out(&o, "write EACCES\nchmod ok\nunlink ok\nrename ENOENT\nown-file ok\n"
			       "data ok\ndata-write EACCES\ndata-new ok\ndata-move ok\n");
		run(f, &again, "open", "/w/victim", "/w/data/in.txt");
		assert_out(&again, "/w/victim ok\n/w/data/in.txt ok\n");
		return;
	}
	assert_out(&o,
		"write EACCES\nchmod EPERM\nunlink EPERM\nrename EPERM\nown-file ok\ndata ok\n"
		"data-write EACCES\ndata-new EACCES\ndata-move EPERM\n");
}

static void test_compiler_works(void **state)
{
	const char *argv[] = {"gcc", "-O1", "-o", "hello", "hello.c", NULL};
	const char *program = "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n";
	struct box_spec spec = spec_of(*state, argv);
	struct fixture *f = *state;
	OUTCOME(compiled);
	OUTCOME(o);

	close(spec.files_fd);
	assert_int_equal(bundle_create(&spec.files_fd), 0);
	assert_int_equal(
		bundle_add(spec.files_fd, STR("hello.c"), false, program, strlen(program)), 0);
	assert_int_equal(bundle_seal(spec.files_fd), 0);
	spec.files_read_only = false;
	spec.collect = true;
	spec.collect_max = 16 * MIB;
	run_spec(f, &spec, &compiled);
	assert_exit(&compiled, 0);
	assert_true(compiled.r.files_fd >= 0);
	const char *run_argv[] = {"./hello", NULL};
	spec.argv = (char *const *)run_argv;
	spec.collect = false;
	spec.files_read_only = true;
	spec.files_fd = dup(compiled.r.files_fd);
	run_spec(f, &spec, &o);
	assert_exit(&o, 0);
	assert_out(&o, "hello\n");
}

/* --- deaths ------------------------------------------------------------------------------------------- */

/* Reads a file of /proc/PID; false when there is none. */
static bool read_proc(const char *pid, const char *file, char *out, size_t size)
{
	char path[300];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%s/%s", pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, out, size - 1);
	if (fd >= 0)
		close(fd);
	out[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* A zygote has a number in its own pid namespace besides ours. */
static bool is_zygote(const char *pid)
{
	char status[2048], *line, *end;

	if (!read_proc(pid, "status", status, sizeof(status)) ||
		!(line = strstr(status, "NSpid:\t")))
		return true; /* gone */
	line += strlen("NSpid:\t");
	end = strchr(line, '\n');
	return end && memchr(line, '\t', (size_t)(end - line)) != NULL;
}

/* Those conclave-box that serve run directory `dir`. */
static unsigned find_helpers(const char *dir, pid_t *out, unsigned max)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	unsigned n = 0;

	while (n < max && (e = readdir(proc))) {
		char cmdline[512];
		if (read_proc(e->d_name, "cmdline", cmdline, sizeof(cmdline)) &&
			strstr(cmdline, "conclave-box") &&
			strcmp(cmdline + strlen(cmdline) + 1, dir) == 0 && !is_zygote(e->d_name))
			out[n++] = atoi(e->d_name);
	}
	closedir(proc);
	return n;
}

static pid_t find_helper(const char *dir)
{
	pid_t pid;

	assert_int_equal(find_helpers(dir, &pid, 1), 1);
	return pid;
}

/* "range-0123.lock" among the helper's open files names its control group; an ordinary user's claims nothing by a file. */
static void find_group(const struct fixture *f, pid_t helper, char out[64])
{
	if (f->row->user) {
		out[0] = '\0';
		return;
	}
	char path[400], target[256];
	DIR *dir;
	struct dirent *e;

	snprintf(path, sizeof(path), "/proc/%d/fd", helper);
	dir = opendir(path);
	assert_non_null(dir);
	out[0] = '\0';
	while ((e = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%s", helper, e->d_name);
		ssize_t n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		char *range = strstr(target, "range-");
		if (range)
			snprintf(out, 64, "conclave-box-%.4s", range + 6);
	}
	closedir(dir);
	assert_true(out[0] != '\0');
}

/* Directories inside groups of this name, in all hierarchies. */
static int count_leaves(const char *group)
{
	if (group[0] == '\0')
		return -1;
	char *roots[] = {mem_strdup("/sys/fs/cgroup"), NULL};
	FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	FTSENT *e;
	int n = 0;

	assert_non_null(walk);
	while ((e = fts_read(walk)))
		n += e->fts_info == FTS_D && strcmp(e->fts_parent->fts_name, group) == 0;
	fts_close(walk);
	free(roots[0]);
	return n;
}

/* The test program itself, started as an executor: runs the victim until it is killed. */
static int be_executor(const char *dir);

/* A file that lies beside this program: see elsewhere(). */
static void beside_us(char *out, size_t size, const char *name)
{
	ssize_t n = readlink("/proc/self/exe", out, size - 1);

	assert_true(n > 0);
	out[n] = '\0';
	snprintf(strrchr(out, '/') + 1, size - (size_t)(strrchr(out, '/') + 1 - out), "%s", name);
}

static pid_t start_executor(struct fixture *f, const char *dir)
{
	char self[256] = "";
	const char *argv[] = {self, "--executor", dir, f->dir, NULL};
	struct spawn_spec spec = {.argv = (char *const *)argv, .death_signal = SIGKILL};
	struct spawned child;
	int fds[2];
	char byte = 0;

	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	spec.fds[spec.n_fds++] = (struct spawn_fd){fds[1], 1};
	spec.fds[spec.n_fds++] = (struct spawn_fd){2, 2};
	assert_int_equal(spawn(&spec, &child), 0);
	close(fds[1]);
	close(child.pidfd);
	assert_int_equal(read(fds[0], &byte, 1), 1); /* its runs have started */
	close(fds[0]);
	return child.pid;
}

static int64_t wait_no_process(const char *word, struct fixture *f)
{
	int64_t from = loop_now_exact_us(f->loop);

	while (count_processes(word) > 0) {
		loop_turn(f->loop, US_PER_MS);
		if (loop_now_exact_us(f->loop) - from > DEADLINE_US)
			fail_msg("processes of %s are still there", word);
	}
	return loop_now_exact_us(f->loop) - from;
}

/* "Started" is said within exec, a moment before the arguments can be read. */
static void wait_process(const char *word, struct fixture *f)
{
	int64_t from = loop_now_exact_us(f->loop);

	while (count_processes(word) == 0) {
		loop_turn(f->loop, US_PER_MS);
		if (loop_now_exact_us(f->loop) - from > DEADLINE_US)
			fail_msg("no process of %s is there", word);
	}
}

static void test_executor_killed(void **state)
{
	struct fixture *f = *state;
	char dir[128], group[64];
	pid_t executor, helper;

	snprintf(dir, sizeof(dir), "%s/killed", f->dir);
	executor = start_executor(f, dir);
	helper = find_helper(dir);
	assert_true(helper > 0);
	find_group(f, helper, group);
	assert_true(count_leaves(group) != 0);
	wait_process("executor-marker-4714", f);
	kill(executor, SIGKILL);
	assert_int_equal(waitpid(executor, NULL, 0), executor);
	/* The promise is 100 ms on an idle machine; this one may be anything but. */
	assert_true(wait_no_process("executor-marker-4714", f) < 5 * US_PER_S);
	wait_no_process(dir, f); /* conclave-box itself */
	assert_true(count_leaves(group) <= 0);
}

static void test_helper_killed_and_swept(void **state)
{
	struct fixture *f = *state;
	char dir[128], group[64], again[64];
	pid_t executor, helper;

	snprintf(dir, sizeof(dir), "%s/swept", f->dir);
	executor = start_executor(f, dir);
	helper = find_helper(dir);
	find_group(f, helper, group);
	/* Both at once: nobody is left to clean up. */
	kill(helper, SIGSTOP);
	kill(executor, SIGKILL);
	kill(helper, SIGKILL);
	assert_int_equal(waitpid(executor, NULL, 0), executor);
	wait_no_process("executor-marker-4714", f);
	wait_no_process(dir, f);
	assert_true(count_leaves(group) != 0);
	executor = start_executor(f, dir);
	find_group(f, find_helper(dir), again);
	assert_string_equal(group, again);
	kill(executor, SIGKILL);
	assert_int_equal(waitpid(executor, NULL, 0), executor);
	wait_no_process(dir, f);
	assert_true(count_leaves(group) <= 0);
}

/* conclave-box dies under a run: that run is our failure, and, as we still may start one, the next works again. */
static void test_helper_death(void **state)
{
	struct fixture *f = *state;
	const char *argv[] = {"./victim", "sleep", NULL};
	struct box_spec spec = spec_of(f, argv);
	OUTCOME(o);
	OUTCOME(after);

	start(f, &spec, &o);
	while (o.out.len == 0)
		loop_turn(f->loop, 100 * US_PER_MS);
	kill(find_helper(f->dir), SIGKILL);
	wait_done(&o);
	assert_int_equal(o.r.end, BOX_FAILED);
	assert_string_equal(o.failure, "conclave-box died");
	run(f, &after, "exit", "5");
	assert_exit(&after, 5);
	assert_null(box_host_failure(f->host));
}

static void write_once_only_helper(const char *path)
{
	FILE *f = fopen(path, "we");
	char helper[PATH_SIZE];

	beside_us(helper, sizeof(helper), "conclave-box");
	assert_non_null(f);
	assert_true(fprintf(f,
			    "#!/bin/sh\n[ -e \"$0.used\" ] && exit 1\n: >\"$0.used\"\n"
			    "exec %s \"$@\"\n",
			    helper) > 0);
	assert_int_equal(fchmod(fileno(f), 0755), 0);
	fclose(f);
}

/* It works once, and at no restart: that is not for ever a reason to wait. */
static void test_helper_that_cannot_be_restarted(void **state)
{
	struct fixture *f = *state;
	char dir[128], helper[128];
	const char *argv[] = {"./victim", "exit", "4", NULL};
	struct fixture own = {
		.row = f->row, .loop = f->loop, .victim = f->victim, .victim_size = f->victim_size};
	struct box_options options = {.log = loop_log(f->loop),
		.slots = 1,
		.helper = helper,
		.helper_fd = -1,
		.run_dir = dir};
	struct box_spec spec;
	struct box_run *handle;
	char *why = NULL;
	OUTCOME(before);
	OUTCOME(o);

	snprintf(dir, sizeof(dir), "%s/once", f->dir);
	snprintf(helper, sizeof(helper), "%s/helper", f->dir);
	write_once_only_helper(helper);
	assert_int_equal(mkdir(dir, 0700), 0);
	assert_int_equal(box_host_open(f->loop, f->row->ops, &options, &own.host, &why), 0);
	run(&own, &before, "exit", "4");
	assert_exit(&before, 4);
	kill(find_helper(dir), SIGKILL);
	wait_no_process(dir, f);
	spec = spec_of(&own, argv);
	run_spec(&own, &spec, &o);
	assert_int_equal(o.r.end, BOX_FAILED);
	assert_non_null(box_host_failure(own.host));
	spec = spec_of(&own, argv);
	assert_int_equal(box_run(own.host, &spec, &events, NULL, &handle), -EPIPE);
	close(spec.files_fd);
	box_host_close(own.host);
}

/* Two boxes with one run directory on one host: the second passes the locked range over. */
static void test_two_boxes(void **state)
{
	struct fixture *f = *state;
	char first[64], second[64];
	pid_t executor = start_executor(f, f->dir);
	pid_t helpers[3];
	OUTCOME(o);

	assert_int_equal(find_helpers(f->dir, helpers, 3), 2);
	find_group(f, helpers[0], first);
	find_group(f, helpers[1], second);
	if (!f->row->user)
		assert_string_not_equal(first, second);
	run(f, &o, "exit", "0");
	assert_exit(&o, 0);
	kill(executor, SIGKILL);
	assert_int_equal(waitpid(executor, NULL, 0), executor);
	wait_no_process("executor-marker-4714", f);
}

/* --- set-up ------------------------------------------------------------------------------------------- */

static void load_victim(struct fixture *f)
{
	char path[PATH_SIZE];
	struct stat st;
	int fd;

	beside_us(path, sizeof(path), "victim");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(fstat(fd, &st), 0);
	f->victim_size = (size_t)st.st_size;
	f->victim = mem_alloc(f->victim_size);
	assert_int_equal(read(fd, f->victim, f->victim_size), (ssize_t)f->victim_size);
	close(fd);
}

static struct box_host *open_host(
	struct loop *loop, const struct row *row, const char *dir, unsigned slots)
{
	struct log *log = loop_log(loop);
	char helper[PATH_SIZE];
	struct box_options options = {
		.log = log, .slots = slots, .helper = helper, .helper_fd = -1, .run_dir = dir};
	struct box_host *host;
	char *why = NULL;

	beside_us(helper, sizeof(helper), "conclave-box");
	if (box_host_open(loop, row->ops, &options, &host, &why) < 0)
		fail_msg("cannot open box_%s: %s", row->ops->name, why);
	return host;
}

static int set_up(void **state, const struct row *row)
{
	struct fixture *f = mem_alloc(sizeof(*f));

	f->row = row;
	f->loop = loop_new(NULL);
	snprintf(f->dir, sizeof(f->dir), "/tmp/test-box-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	load_victim(f);
	f->host = open_host(f->loop, row, f->dir, 2);
	*state = f;
	return 0;
}

/* --- an ordinary user's rows -------------------------------------------------------------------------- */

static void must(bool fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "cannot prepare a row: %s: %s\n", what, strerror(errno));
	_exit(1);
}

/* A control group of an ordinary user's, with us in it, in every hierarchy of the row the machine has. */
static void delegate_groups(void)
{
	static const char *const files[] = {
		".", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"};
	struct cgroup g;
	char why[CGROUP_WHY_MAX], name[64], pid[16];
	const struct cgroup_ops *ops;
	unsigned row = 0;

	snprintf(name, sizeof(name), "conclave-test-%d", getpid());
	snprintf(pid, sizeof(pid), "%d", getpid());
	do {
		ops = cgroup_row(row++);
		memset(&g, 0, sizeof(g));
	} while (ops && ops->find(&g, why) < 0);
	must(ops, why);
	for (unsigned t = 0; t < g.n_trees; t++) {
		must(mkdirat(g.parents[t], name, 0755) == 0, name);
		int dir = openat(g.parents[t], name, O_RDONLY | O_DIRECTORY);
		for (size_t i = 0; i < ARRAY_SIZE(files); i++)
			must(fchownat(dir, files[i], ORDINARY, ORDINARY_GROUP, 0) == 0 ||
					errno == ENOENT,
				files[i]);
		must(cgroup_write(dir, "cgroup.procs", pid) == 0, "joining");
		close(dir);
		close(g.parents[t]);
	}
}

static int remove_group(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return type == FTW_DP && rmdir(path) < 0 ? -1 : 0;
}

/* With what killed helpers left in it; the kernel may need a moment to see that it is empty. */
static void remove_groups(pid_t pid)
{
	struct cgroup g;
	char why[CGROUP_WHY_MAX], path[96];
	const struct cgroup_ops *ops;
	struct stat st;

	for (unsigned row = 0; (ops = cgroup_row(row)); row++) {
		memset(&g, 0, sizeof(g));
		if (ops->find(&g, why) < 0)
			continue;
		for (unsigned t = 0; t < g.n_trees; t++) {
			time_t end = time(NULL) + 10;
			snprintf(path, sizeof(path), "/proc/self/fd/%d/conclave-test-%d",
				g.parents[t], pid);
			while (stat(path, &st) == 0 && time(NULL) < end)
				nftw(path, remove_group, 16, FTW_DEPTH | FTW_PHYS);
			must(stat(path, &st) < 0, path);
			close(g.parents[t]);
		}
	}
}

/* /etc/subuid and /etc/subgid as we want them, for us and ours only. */
static void give_ids(const char *line)
{
	static const char *const files[] = {"/etc/subuid", "/etc/subgid"};
	char path[] = "/tmp/test-box-ids-XXXXXX";
	int fd = mkstemp(path);

	must(fd >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line) &&
			fchmod(fd, 0644) == 0,
		path);
	close(fd);
	must(unshare(CLONE_NEWNS) == 0, "unshare");
	must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private mounts");
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		int made = open(files[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		close(made);
		must(mount(path, files[i], NULL, MS_BIND, NULL) == 0, files[i]);
	}
	unlink(path);
}

static void give_no_ids(void)
{
	give_ids("");
}

static void give_some_ids(void)
{
	give_ids("games:1879048192:65536\n");
}

static void give_groups_only(void)
{
	delegate_groups();
	give_ids("");
}

static void give_groups_and_ids(void)
{
	delegate_groups();
	give_some_ids();
}

static const struct row rows[] = {
	{"box_none", &box_none, "none"},
	{"box_ns", &box_ns, "full", .isolates = true},
	{"box_ns (user)", &box_ns, "rootless, one uid, limits polled", .isolates = true,
		.user = true, .polled = true, .one_id = true, .prepare = give_no_ids},
	{"box_ns (user, ids)", &box_ns, "rootless, limits polled", .isolates = true, .user = true,
		.polled = true, .prepare = give_some_ids},
	{"box_ns (user, groups)", &box_ns, "rootless, one uid", .isolates = true, .user = true,
		.one_id = true, .prepare = give_groups_only},
	{"box_ns (user, groups, ids)", &box_ns, "rootless", .isolates = true, .user = true,
		.prepare = give_groups_and_ids},
};

enum { ROW_NONE, ROW_NS, ROW_USER, ROW_IDS, ROW_GROUPS, ROW_ALL };

#define SET_UP(which)                                                                              \
	static int set_up_##which(void **state)                                                    \
	{                                                                                          \
		return set_up(state, &rows[which]);                                                \
	}

SET_UP(ROW_NONE)
SET_UP(ROW_NS)
SET_UP(ROW_USER)
SET_UP(ROW_IDS)
SET_UP(ROW_GROUPS)
SET_UP(ROW_ALL)

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	if (!f) /* the set-up failed */
		return 0;
	box_host_close(f->host);
	wait_no_process(f->dir, f); /* the last test has killed another box of this directory */
	loop_free(f->loop);
	nftw(f->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	free(f->victim);
	free(f);
	return 0;
}

static void on_executor_output(void *arg, int stream, struct str bytes)
{
}

static void on_executor_started(void *arg)
{
	unsigned *n = arg;

	if (++*n == 2 && write(1, "s", 1) != 1)
		_exit(1);
}

static void on_executor_done(void *arg, const struct box_result *result)
{
	_exit(1);
}

/* As an ordinary user: the same input twice, each time from its beginning. */
static bool reads_twice(struct fixture *f)
{
	int fd = sealed("again\n");
	bool fine = true;

	for (int i = 0; i < 2; i++) {
		const char *argv[] = {"./victim", "cat", NULL};
		struct box_spec spec = spec_of(f, argv);
		OUTCOME(o);
		spec.stdin_fd = fd;
		run_spec(f, &spec, &o);
		fine = fine && o.r.end == BOX_EXITED && o.out.len == 6;
	}
	close(fd);
	return fine;
}

static int be_executor(const char *dir)
{
	static const struct box_events executor_events = {.on_started = on_executor_started,
		.on_output = on_executor_output,
		.on_done = on_executor_done};
	const char *argv[] = {"./victim", "fork-bomb", "executor-marker-4714", NULL};
	struct fixture f = {.row = &rows[ROW_NS], .loop = loop_new(NULL)};
	struct box_run *handle;
	unsigned n = 0;

	mkdir(dir, 0700);
	load_victim(&f);
	f.host = open_host(f.loop, f.row, dir, 2);
	/* As an ordinary user it is one already. */
	if ((geteuid() == 0 && (setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
				       setresuid(NOBODY, NOBODY, NOBODY) < 0)) ||
		!reads_twice(&f))
		return 1;
	for (int i = 0; i < 2; i++) {
		struct box_spec spec = spec_of(&f, argv);
		/* It is killed long before: its runs must not end first, however busy the machine is (see test_fork_bomb() for
		 * their memory). */
		spec.limits.cpu_us = spec.limits.wall_us = 60 * US_PER_S;
		spec.limits.memory_bytes = 4096 * MIB;
		if (box_run(f.host, &spec, &executor_events, &n, &handle) < 0)
			return 1;
	}
	loop_run(f.loop);
	return 0;
}

#define COMMON                                                                                     \
	cmocka_unit_test(test_exit_code), cmocka_unit_test(test_signal),                           \
		cmocka_unit_test(test_missing_program), cmocka_unit_test(test_program_by_name),    \
		cmocka_unit_test(test_large_arguments), cmocka_unit_test(test_refused_specs),      \
		cmocka_unit_test(test_output_is_exact), cmocka_unit_test(test_endless_output),     \
		cmocka_unit_test(test_stderr_is_no_limit), cmocka_unit_test(test_stdin),           \
		cmocka_unit_test(test_empty_stdin),                                                \
		cmocka_unit_test(test_stdin_cannot_be_changed), cmocka_unit_test(test_cpu_limit),  \
		cmocka_unit_test(test_wall_limit),                                                 \
		cmocka_unit_test(test_closed_descriptors_still_limited),                           \
		cmocka_unit_test(test_file_limit), cmocka_unit_test(test_file_limit_ignored),      \
		cmocka_unit_test(test_kill), cmocka_unit_test(test_kill_at_start),                 \
		cmocka_unit_test(test_kill_before_start), cmocka_unit_test(test_cancel),           \
		cmocka_unit_test(test_cancel_at_once), cmocka_unit_test(test_queue),               \
		cmocka_unit_test(test_collect_only_after_success),                                 \
		cmocka_unit_test(test_collect_bounds), cmocka_unit_test(test_collect_sparse),      \
		cmocka_unit_test(test_hole_stays_one), cmocka_unit_test(test_files_of_its_own),    \
		cmocka_unit_test(test_bad_bundle), cmocka_unit_test(test_compiler_works)

/* Of rows that isolate. */
#define WALLS                                                                                      \
	cmocka_unit_test(test_isolation_is_named),                                                 \
		cmocka_unit_test(test_collect_regular_files_only),                                 \
		cmocka_unit_test(test_memory_limit), cmocka_unit_test(test_memory_figure),         \
		cmocka_unit_test(test_fork_bomb), cmocka_unit_test(test_processes_are_named),      \
		cmocka_unit_test(test_processes_at_the_limit_are_named),                           \
		cmocka_unit_test(test_cpu_of_the_lost), cmocka_unit_test(test_cpu_of_the_short),   \
		cmocka_unit_test(test_memory_of_the_forked),                                       \
		cmocka_unit_test(test_memory_in_files),                                            \
		cmocka_unit_test(test_pid1_cannot_be_harmed), cmocka_unit_test(test_threads_work), \
		cmocka_unit_test(test_daemon_is_dead_before_done), cmocka_unit_test(test_network), \
		cmocka_unit_test(test_denied_calls),                                               \
		cmocka_unit_test(test_no_locks_on_shared_files),                                   \
		cmocka_unit_test(test_sockets_are_few), cmocka_unit_test(test_outputs_have_names), \
		cmocka_unit_test(test_no_core_file), cmocka_unit_test(test_foreign_calls_kill),    \
		cmocka_unit_test(test_host_files_are_absent),                                      \
		cmocka_unit_test(test_root_directory_is_golden),                                   \
		cmocka_unit_test(test_environment_is_golden),                                      \
		cmocka_unit_test(test_environment_of_ours),                                        \
		cmocka_unit_test(test_only_three_descriptors), cmocka_unit_test(test_ids),         \
		cmocka_unit_test(test_host_facts), cmocka_unit_test(test_limits_inside),           \
		cmocka_unit_test(test_own_processes_only),                                         \
		cmocka_unit_test(test_other_slots_are_invisible),                                  \
		cmocka_unit_test(test_disk_is_bounded),                                            \
		cmocka_unit_test(test_artefacts_cannot_be_changed),                                \
		cmocka_unit_test(test_executor_killed),                                            \
		cmocka_unit_test(test_helper_killed_and_swept),                                    \
		cmocka_unit_test(test_helper_death),                                               \
		cmocka_unit_test(test_helper_that_cannot_be_restarted),                            \
		cmocka_unit_test(test_two_boxes)

/* Becomes an ordinary user in a child and runs the group there; its exit status, 1 for any other end. */
#define AS_USER(which, tests)                                                                      \
	({                                                                                         \
		pid_t child_ = start_user(&rows[which]);                                           \
		if (child_ == 0)                                                                   \
			exit(cmocka_run_group_tests_name(                                          \
				     rows[which].name, tests, set_up_##which, tear_down) != 0);    \
		end_user(child_);                                                                  \
	})

static pid_t start_user(const struct row *row)
{
	pid_t child;

	fflush(NULL);
	child = fork();
	must(child >= 0, "fork");
	if (child > 0)
		return child;
	row->prepare();
	must(setgroups(0, NULL) == 0 &&
			setresgid(ORDINARY_GROUP, ORDINARY_GROUP, ORDINARY_GROUP) == 0 &&
			setresuid(ORDINARY, ORDINARY, ORDINARY) == 0,
		"becoming an ordinary user");
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	return 0;
}

static int end_user(pid_t child)
{
	int status;

	must(waitpid(child, &status, 0) == child, "waitpid");
	remove_groups(child);
	if (WIFSIGNALED(status))
		print_message("a row's process was killed by signal %d\n", WTERMSIG(status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* The tree may be where no ordinary user can come: copies of this program and of conclave-box, and what they run, are put elsewhere, and
 * the copy is what tests. Its status. */
static int elsewhere(char **argv)
{
	char dir[] = "/tmp/test-box-all-XXXXXX", self[PATH_SIZE] = "", command[4 * PATH_SIZE];
	pid_t child;
	int status;

	must(mkdtemp(dir) && chmod(dir, 0755) == 0, dir);
	must(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0, "/proc/self/exe");
	snprintf(command, sizeof(command),
		"cp '%s' %s/test_box && cp '" CONCLAVE_BIN_DIR "/conclave-box' %s && "
		"gcc -w -O1 -static -pthread -D_GNU_SOURCE -o %s/victim "
		"'" CONCLAVE_SOURCE_DIR "/test/contract/box_victim.c'",
		self, dir, dir, dir);
	must(system(command) == 0, command);
	snprintf(self, sizeof(self), "%s/test_box", dir);
	child = fork();
	must(child >= 0, "fork");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		argv[0] = (char *)(uintptr_t)HERE;
		execv(self, argv);
		must(false, self);
	}
	must(waitpid(child, &status, 0) == child, "waitpid");
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	if (WIFSIGNALED(status))
		print_message("killed by signal %d\n", WTERMSIG(status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest none[] = {COMMON};
	const struct CMUnitTest ns[] = {COMMON, WALLS};
	const struct CMUnitTest walls[] = {WALLS};
	int failed = 0;

	if (argc == 4 && strcmp(argv[1], "--executor") == 0)
		return be_executor(argv[2]);
	if (strcmp(argv[0], HERE) != 0)
		return elsewhere(argv);
	if (argc == 2) /* a pattern of test names */
		cmocka_set_test_filter(argv[1]);
	failed += cmocka_run_group_tests_name("box_ns", ns, set_up_ROW_NS, tear_down);
	failed += cmocka_run_group_tests_name("box_none", none, set_up_ROW_NONE, tear_down);
	failed += AS_USER(ROW_USER, ns);
	/* How a program ends does not depend on what these have more. */
	failed += AS_USER(ROW_IDS, walls);
	failed += AS_USER(ROW_GROUPS, walls);
	failed += AS_USER(ROW_ALL, walls);
	return failed;
}
