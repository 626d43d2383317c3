/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box - question (a): what does a run in the box cost beside a bare posix_spawn + waitid of the same child?
 *
 *   bench-box HELPER RUN_DIR PROGRAM ROUNDS
 *
 * Alternates: one bare spawn, one box run, ROUNDS times, after 20 to warm up. Bare = posix_spawn to waitid. Box = box_run() to on_done() with
 * a warm stock of single-use slots, and, since the machine has to make a new slot for each, also the rate when runs follow each
 * other without a pause. A program outside /bin and /usr is not visible in the box and is brought in as a file.
 * Prints lines "name value" in microseconds, for bench/run.
 */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/box/box.h"
#include "proc/box/bundle.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/timer.h"

#define WARM_UP 20

struct bench {
	struct loop *loop;
	struct box_host *host;
	const char *program; /* bare */
	const char *inside;  /* in the box */
	int files_fd;
	bool done;
	unsigned failed;
	struct timer pause;
};

static int64_t bare_spawn(const char *program)
{
	char *argv[] = {(char *)(uintptr_t)program, NULL}, *envp[] = {NULL};
	int64_t begun = clock_boot_us();
	siginfo_t info;
	pid_t pid;

	if (posix_spawn(&pid, program, NULL, NULL, argv, envp) ||
		waitid(P_PID, (id_t)pid, &info, WEXITED)) {
		fprintf(stderr, "bench-box: cannot run %s\n", program);
		exit(1);
	}
	return clock_boot_us() - begun;
}

static void on_output(void *arg, int stream, struct str bytes)
{
	(void)arg, (void)stream, (void)bytes;
}

static void on_done(void *arg, const struct box_result *result)
{
	struct bench *b = arg;

	b->done = true;
	if (result->end != BOX_EXITED || result->exit_code) {
		b->failed++;
		fprintf(stderr, "bench-box: end %d, %s\n", (int)result->end,
			result->failure ? result->failure : "");
	}
}

static int64_t box_spawn(struct bench *b)
{
	static const struct box_events events = {.on_output = on_output, .on_done = on_done};
	char *argv[] = {(char *)(uintptr_t)b->inside, NULL};
	struct box_spec spec = {
		.argv = argv,
		.stdin_fd = -1,
		.files_fd = b->files_fd,
		.files_read_only = true,
		.limits = {.cpu_us = US_PER_S,
			.wall_us = 4 * US_PER_S,
			.memory_bytes = 256 << 20,
			.output_bytes = 1 << 20,
			.file_bytes = 16 << 20,
			.processes = 64,
			.stack_bytes = 8 << 20},
	};
	int64_t begun = clock_boot_us();
	struct box_run *run;

	b->done = false;
	if (box_run(b->host, &spec, &events, b, &run)) {
		fprintf(stderr, "bench-box: no run\n");
		exit(1);
	}
	while (!b->done)
		loop_turn(b->loop, US_PER_S);
	return clock_boot_us() - begun;
}

static void on_pause(void *arg)
{
	((struct bench *)arg)->done = true;
}

/* Lets the stock fill up again. */
static void settle(struct bench *b, int64_t us)
{
	b->done = false;
	timer_start(&b->pause, us);
	while (!b->done)
		loop_turn(b->loop, US_PER_S);
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void show(const char *name, int64_t *us, unsigned n)
{
	qsort(us, n, sizeof(*us), by_value);
	printf("%s_min %lld\n%s_p50 %lld\n%s_p99 %lld\n", name, (long long)us[0], name,
		(long long)us[n / 2], name, (long long)us[n - 1 - n / 100]);
}

/* The program as a sealed bundle with one file, "child". */
static int bring_in(const char *program)
{
	FILE *f = fopen(program, "re");
	char *bytes = mem_alloc(64 << 20);
	size_t n = f ? fread(bytes, 1, 64 << 20, f) : 0;
	int fd = -1;

	if (!n || bundle_create(&fd) || bundle_add(fd, STR("child"), true, bytes, n) ||
		bundle_seal(fd)) {
		fprintf(stderr, "bench-box: cannot read %s\n", program);
		exit(1);
	}
	fclose(f);
	free(bytes);
	return fd;
}

int main(int argc, char **argv)
{
	struct bench b = {0};
	struct box_options options = {.slots = 2, .helper_fd = -1};
	unsigned rounds = argc == 5 ? (unsigned)atoi(argv[4]) : 0;
	int64_t *bare, *box, begun;
	char *why = NULL;

	if (!rounds) {
		fprintf(stderr, "usage: bench-box HELPER RUN_DIR PROGRAM ROUNDS\n");
		return 2;
	}
	options.helper = argv[1];
	options.run_dir = argv[2];
	b.program = argv[3];
	b.inside = argv[3];
	b.files_fd = -1;
	if (strncmp(argv[3], "/bin/", 5) && strncmp(argv[3], "/usr/", 5)) {
		b.files_fd = bring_in(argv[3]);
		b.inside = "./child";
	}
	b.loop = loop_new(NULL);
	timer_init(&b.pause, b.loop, on_pause, &b);
	if (box_host_open(b.loop, &box_ns, &options, &b.host, &why)) {
		fprintf(stderr, "bench-box: %s\n", why ? why : "no box");
		return 1;
	}
	bare = mem_array(rounds, sizeof(*bare));
	box = mem_array(rounds, sizeof(*box));
	for (unsigned i = 0; i < WARM_UP; i++) {
		bare_spawn(b.program);
		box_spawn(&b);
	}
	for (unsigned i = 0; i < rounds; i++) {
		bare[i] = bare_spawn(b.program);
		settle(&b, 5 * US_PER_MS);
		box[i] = box_spawn(&b);
	}
	show("bare", bare, rounds);
	show("box", box, rounds);
	begun = clock_boot_us();
	for (unsigned i = 0; i < rounds; i++)
		box_spawn(&b);
	printf("box_after_each_other %lld\n", (long long)((clock_boot_us() - begun) / rounds));
	begun = clock_boot_us();
	for (unsigned i = 0; i < rounds; i++)
		bare_spawn(b.program);
	printf("bare_after_each_other %lld\n", (long long)((clock_boot_us() - begun) / rounds));
	box_host_close(b.host);
	loop_free(b.loop);
	free(bare);
	free(box);
	return b.failed ? 1 : 0;
}
