/* SPDX-License-Identifier: Apache-2.0 */
/* io: masks, freeing inside callbacks, files, and the line reader's cuts and ends. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "reactor/base/buf.h"
#include "reactor/base/clock.h"
#include "reactor/io.h"
#include "reactor/loop.h"
#include "reactor/timer.h"

#define DEADLINE_US (10 * US_PER_S)

/* Turns until *flag, at most ten seconds. */
static void turn_until(struct loop *loop, const unsigned *flag)
{
	int64_t end = clock_boot_us() + DEADLINE_US;

	while (!*flag && clock_boot_us() < end)
		loop_turn(loop, US_PER_S / 10);
	assert_true(*flag);
}

struct seen {
	struct loop *loop;
	struct io_watch *watch, *other;
	unsigned calls, events;
	bool free_self, free_other;
};

static void on_ready(void *arg, unsigned events)
{
	struct seen *s = arg;

	s->calls++;
	s->events = events;
	if (s->free_other)
		io_free(take_ptr(&s->other));
	if (s->free_self)
		io_free(take_ptr(&s->watch));
}

static void test_masks(void **state)
{
	struct seen s = {.loop = loop_new(NULL)};
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	s.watch = io_new(s.loop, fds[0], 0, on_ready, &s);
	assert_int_equal(write(fds[1], "x", 1), 1);
	loop_turn(s.loop, 0);
	assert_int_equal(s.calls, 0); /* paused */
	io_set(s.watch, IO_READ);
	io_set(s.watch, IO_READ);
	loop_turn(s.loop, 0);
	assert_int_equal(s.events, IO_READ);
	io_set(s.watch, IO_WRITE);
	loop_turn(s.loop, 0);
	assert_int_equal(s.events, IO_WRITE);
	io_set(s.watch, IO_READ | IO_WRITE);
	loop_turn(s.loop, 0);
	assert_int_equal(s.events, IO_READ | IO_WRITE);
	assert_int_equal(s.calls, 3);
	loop_turn(s.loop, 0); /* level-triggered: nobody read, so it comes again */
	assert_int_equal(s.calls, 4);
	io_set(s.watch, 0);
	loop_turn(s.loop, 0);
	assert_int_equal(s.calls, 4);
	io_free(s.watch);
	io_free(NULL);
	close(fds[0]);
	close(fds[1]);
	loop_free(s.loop);
}

static void test_eof_shows_as_read(void **state)
{
	struct seen s = {.loop = loop_new(NULL)};
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	s.watch = io_new(s.loop, fds[0], IO_READ, on_ready, &s);
	loop_turn(s.loop, 0);
	assert_int_equal(s.calls, 0);
	close(fds[1]);
	loop_turn(s.loop, DEADLINE_US);
	assert_int_equal(s.events, IO_READ);
	io_free(s.watch);
	close(fds[0]);
	loop_free(s.loop);
}

static void test_free_inside_callback(void **state)
{
	struct seen s = {.loop = loop_new(NULL), .free_self = true};
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	s.watch = io_new(s.loop, fds[1], IO_WRITE, on_ready, &s);
	loop_turn(s.loop, DEADLINE_US);
	loop_turn(s.loop, 0);
	assert_int_equal(s.calls, 1);
	assert_null(s.watch);
	close(fds[0]);
	close(fds[1]);
	loop_free(s.loop);
}

/* Two are ready in one poll; the first to be called frees the other, which must stay silent. */
static void test_freed_by_another_in_the_same_turn(void **state)
{
	struct loop *loop = loop_new(NULL);
	struct seen a = {.loop = loop, .free_other = true}, b = a;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	a.watch = b.other = io_new(loop, fds[0], IO_WRITE, on_ready, &a);
	b.watch = a.other = io_new(loop, fds[1], IO_WRITE, on_ready, &b);
	loop_turn(loop, 0);
	loop_turn(loop, 0);
	assert_true((a.calls == 0) != (b.calls == 0));
	io_free(a.calls ? a.watch : b.watch);
	close(fds[0]);
	close(fds[1]);
	loop_free(loop);
}

/* What epoll refuses is always ready, once a turn. */
static void test_regular_file_and_null(void **state)
{
	static const char *const paths[] = {"/proc/self/exe", "/dev/null", "/"};

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		struct seen s = {.loop = loop_new(NULL)};
		int fd = open(paths[i], O_RDONLY | O_CLOEXEC);

		assert_true(fd >= 0);
		s.watch = io_new(s.loop, fd, IO_READ, on_ready, &s);
		loop_turn(s.loop, 0);
		loop_turn(s.loop, 0);
		assert_int_equal(s.calls, 2);
		assert_int_equal(s.events, IO_READ);
		io_set(s.watch, 0);
		loop_turn(s.loop, 0);
		assert_int_equal(s.calls, 2);
		io_set(s.watch, IO_READ);
		s.free_self = true;
		loop_turn(s.loop, 0);
		loop_turn(s.loop, 0);
		assert_int_equal(s.calls, 3);
		close(fd);
		loop_free(s.loop);
	}
}

/* The end of a child is a readable pidfd: no SIGCHLD, no polling. */
static void test_pidfd_is_the_exit_event(void **state)
{
	struct seen s = {.loop = loop_new(NULL)};
	siginfo_t info;
	int gate[2], pidfd;
	pid_t pid;
	char c;

	assert_int_equal(pipe(gate), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(gate[1]);
		_exit(read(gate[0], &c, 1) == 0 ? 7 : 1);
	}
	pidfd = pidfd_open(pid, 0);
	assert_true(pidfd >= 0);
	s.watch = io_new(s.loop, pidfd, IO_READ, on_ready, &s);
	loop_turn(s.loop, 0);
	assert_int_equal(s.calls, 0);
	close(gate[0]);
	close(gate[1]);
	turn_until(s.loop, &s.calls);
	memset(&info, 0, sizeof(info));
	assert_int_equal(waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED), 0);
	assert_int_equal(info.si_status, 7);
	io_free(s.watch);
	close(pidfd);
	loop_free(s.loop);
}

/* --- lines --- */

struct reader {
	struct loop *loop;
	struct io_lines *lines;
	struct buf text; /* each line as "<line>" when whole, "<line+" when a piece */
	unsigned n_lines, ended;
	int error;
	unsigned free_at_line; /* 0 = never */
	bool free_at_end;
	size_t longest;
};

static void on_line(void *arg, struct str line, bool whole)
{
	struct reader *r = arg;

	assert_false(r->ended);
	assert_non_null(r->lines); /* nothing comes after the free */
	buf_addf(&r->text, "<" STR_FMT "%c", STR_ARG(line), whole ? '>' : '+');
	r->longest = line.n > r->longest ? line.n : r->longest;
	if (++r->n_lines == r->free_at_line)
		io_lines_free(take_ptr(&r->lines));
}

static void on_end(void *arg, int error)
{
	struct reader *r = arg;

	r->ended++;
	r->error = error;
	if (r->free_at_end)
		io_lines_free(take_ptr(&r->lines));
}

static int reader_init(struct reader *r, size_t max)
{
	int fds[2];

	*r = (struct reader){.loop = loop_new(NULL)};
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	r->lines = io_lines_new(r->loop, fds[0], max, on_line, on_end, r);
	return fds[1];
}

static void reader_fini(struct reader *r)
{
	io_lines_free(r->lines);
	buf_fini(&r->text);
	loop_free(r->loop);
}

static void put(int fd, const char *text)
{
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void test_lines_table(void **state)
{
	static const struct {
		const char *in, *out;
	} rows[] = {
		{"", ""},
		{"\n", "<>"},
		{"a\nb\n", "<a><b>"},
		{"a\n\n\nb", "<a><><><b>"},
		{"abcd\n", "<abcd>"},               /* exactly max */
		{"abcde\n", "<abcd+<e>"},           /* one over */
		{"abcdefgh\n", "<abcd+<efgh>"},     /* twice max */
		{"abcdefghi\n", "<abcd+<efgh+<i>"}, /* */
		{"abcdefghi", "<abcd+<efgh+<i>"},   /* cut short by EOF */
		{"abcd", "<abcd>"},                 /* */
		{"abcdefgh", "<abcd+<efgh>"},       /* */
		{"abcde\nx\nabcdef", "<abcd+<e><x><abcd+<ef>"},
		{"a\rb\r\n", "<a\rb\r>"},
	};

	/* In one piece, and byte by byte. */
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		for (int bytewise = 0; bytewise < 2; bytewise++) {
			struct reader r;
			int fd = reader_init(&r, 4);

			if (!bytewise)
				put(fd, rows[i].in);
			for (const char *p = rows[i].in; bytewise && *p; p++) {
				assert_int_equal(write(fd, p, 1), 1);
				loop_turn(r.loop, 0);
			}
			close(fd);
			turn_until(r.loop, &r.ended);
			assert_string_equal(buf_str(&r.text).p, rows[i].out);
			assert_int_equal(r.error, 0);
			for (int turns = 0; turns < 3; turns++)
				loop_turn(r.loop, 0);
			assert_int_equal(r.ended, 1);
			reader_fini(&r);
		}
	}
}

static void test_lines_come_as_they_are_written(void **state)
{
	struct reader r;
	int fd = reader_init(&r, 100);

	put(fd, "one\ntw");
	turn_until(r.loop, &r.n_lines);
	assert_string_equal(r.text.data, "<one>");
	put(fd, "o\n");
	loop_turn(r.loop, DEADLINE_US);
	assert_string_equal(r.text.data, "<one><two>");
	close(fd);
	reader_fini(&r); /* before the end was seen */
}

static void test_bytes_are_8_bit_clean(void **state)
{
	struct reader r;
	int fd = reader_init(&r, 100);

	assert_int_equal(write(fd, "a\0\xff\n", 4), 4);
	turn_until(r.loop, &r.n_lines);
	assert_int_equal(r.longest, 3);
	close(fd);
	reader_fini(&r);
}

static void test_free_inside_on_line(void **state)
{
	struct reader r;
	int fd = reader_init(&r, 100);

	r.free_at_line = 2;
	put(fd, "a\nb\nc\nd");
	close(fd);
	turn_until(r.loop, &r.n_lines);
	loop_turn(r.loop, 0);
	assert_string_equal(r.text.data, "<a><b>");
	assert_int_equal(r.ended, 0);
	reader_fini(&r);
}

static void test_free_inside_the_last_line_and_on_end(void **state)
{
	struct reader r;
	int fd = reader_init(&r, 100);

	r.free_at_line = 1;
	put(fd, "unfinished");
	close(fd);
	turn_until(r.loop, &r.n_lines);
	loop_turn(r.loop, 0);
	assert_string_equal(r.text.data, "<unfinished>");
	assert_int_equal(r.ended, 0);
	reader_fini(&r);

	fd = reader_init(&r, 100);
	r.free_at_end = true;
	put(fd, "x");
	close(fd);
	turn_until(r.loop, &r.ended);
	assert_null(r.lines);
	reader_fini(&r);
}

static void test_read_error_is_told(void **state)
{
	struct reader r = {.loop = loop_new(NULL)};
	int fd = open("/", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	r.lines = io_lines_new(r.loop, fd, 10, on_line, on_end, &r);
	turn_until(r.loop, &r.ended);
	assert_int_equal(r.error, -EISDIR);
	reader_fini(&r);
	assert_int_equal(fcntl(fd, F_GETFD), -1); /* it was owned */
}

static void test_reads_a_regular_file(void **state)
{
	struct reader r = {.loop = loop_new(NULL)};
	char path[] = "/tmp/conclave-test-io-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	unlink(path);
	put(fd, "first\nsecond\n");
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	r.lines = io_lines_new(r.loop, fd, 10, on_line, on_end, &r);
	turn_until(r.loop, &r.ended);
	assert_string_equal(r.text.data, "<first><second>");
	reader_fini(&r);
}

/* A flood without a newline is delivered piece by piece, and a turn ends after 64 KiB of it. */
static void test_flood_does_not_hold_the_loop(void **state)
{
	enum { FLOOD = 1 << 20 };
	struct reader r = {.loop = loop_new(NULL)};
	char path[] = "/tmp/conclave-test-io-XXXXXX", *flood = malloc(FLOOD);
	int fd = mkstemp(path);
	unsigned turns = 0;

	assert_non_null(flood);
	assert_true(fd >= 0);
	unlink(path);
	memset(flood, 'x', FLOOD);
	assert_int_equal(write(fd, flood, FLOOD), FLOOD);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	r.lines = io_lines_new(r.loop, fd, 1000, on_line, on_end, &r);
	for (; !r.ended && turns < 1000; turns++)
		loop_turn(r.loop, 0);
	assert_int_equal(turns, FLOOD / (64 * 1024) + 1);
	assert_int_equal(r.longest, 1000);
	assert_int_equal(r.n_lines, (FLOOD + 999) / 1000);
	free(flood);
	reader_fini(&r);
}

static void test_set_nonblocking(void **state)
{
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(io_set_nonblocking(fds[0]), 0);
	assert_true(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
	assert_false(fcntl(fds[1], F_GETFL) & O_NONBLOCK);
	close(fds[0]);
	close(fds[1]);
	assert_int_equal(io_set_nonblocking(fds[0]), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_masks),
		cmocka_unit_test(test_eof_shows_as_read),
		cmocka_unit_test(test_free_inside_callback),
		cmocka_unit_test(test_freed_by_another_in_the_same_turn),
		cmocka_unit_test(test_regular_file_and_null),
		cmocka_unit_test(test_pidfd_is_the_exit_event),
		cmocka_unit_test(test_lines_table),
		cmocka_unit_test(test_lines_come_as_they_are_written),
		cmocka_unit_test(test_bytes_are_8_bit_clean),
		cmocka_unit_test(test_free_inside_on_line),
		cmocka_unit_test(test_free_inside_the_last_line_and_on_end),
		cmocka_unit_test(test_read_error_is_told),
		cmocka_unit_test(test_reads_a_regular_file),
		cmocka_unit_test(test_flood_does_not_hold_the_loop),
		cmocka_unit_test(test_set_nonblocking),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
