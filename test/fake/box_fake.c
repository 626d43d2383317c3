/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slot is OPENING, READY, STARTING, RUNNING, PRINTING, DYING (killed, not yet reaped: alive as far as anybody can
 * tell) or ENDED (until it is reset). Its one timer is what it waits for in that state. A program prints at its end,
 * into real pipes: what does not fit is tried again each time the loop has looked at its descriptors.
 */
#include "test/fake/box_fake.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/box/bundle.h"
#include "reactor/base/clock.h"
#include "reactor/base/map.h"
#include "reactor/base/mem.h"
#include "reactor/io.h"
#include "reactor/loop.h"
#include "reactor/timer.h"

#define OPEN_US 300
#define SCRIPT_MAX 65536

enum slot_state { OPENING, READY, STARTING, RUNNING, PRINTING, DYING, ENDED };

struct box {
	struct loop *loop;
	struct list slots;
	bool broken;
	struct map runs; /* argv, joined -> number of runs + 1 */
};

struct script {
	int64_t run_us, cpu_us, memory, kill_us, exit, signal, out_bytes, echo, oom, forks_refused,
		fail_first, too_much, breaks;
	struct buf out, err, fail;
	struct buf files; /* u64 length, name, u64 length, text; repeated */
};

struct box_slot {
	struct list link; /* box->slots */
	struct op op;     /* OPENING */
	struct box *box;
	enum slot_state state;
	struct timer timer;
	void (*on_ready)(void *arg, struct box_slot *slot, const char *why);
	void *ready_arg;
	/* a run */
	struct box_slot_events events;
	void *arg;
	bool collect;
	int files_fd, out_fd, err_fd;
	struct buf input, argv_text;
	struct script script;
	int64_t started_us;
};

/*** Scripts ***/

static int hex(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = c ? strchr(digits, c | 0x20) : NULL;

	return at ? (int)(at - digits) : -1;
}

static void add_decoded(struct buf *out, struct str text)
{
	for (size_t i = 0; i < text.n; i++) {
		if (text.p[i] == '%' && i + 2 < text.n && hex(text.p[i + 1]) >= 0 &&
			hex(text.p[i + 2]) >= 0) {
			buf_add_char(out, (char)(hex(text.p[i + 1]) << 4 | hex(text.p[i + 2])));
			i += 2;
		} else {
			buf_add_char(out, text.p[i]);
		}
	}
}

static int64_t number(struct loop *loop, struct str text)
{
	const char *dots = memmem(text.p, text.n, "..", 2);
	struct str low = text, high;
	int64_t a = 0, b = 0;

	if (!dots) {
		CHECK(str_to_i64(text, &a));
		return a;
	}
	low.n = (size_t)(dots - text.p);
	high = (struct str){dots + 2, text.n - low.n - 2};
	CHECK(str_to_i64(low, &a) && str_to_i64(high, &b) && b >= a);
	return a + (int64_t)loop_random_below(loop, (uint64_t)(b - a) + 1);
}

static void add_file(struct script *script, struct str value)
{
	const char *colon = memchr(value.p, ':', value.n);
	size_t n = colon ? (size_t)(colon - value.p) : value.n;
	size_t at;
	uint64_t size;

	buf_add(&script->files, &(uint64_t){n}, sizeof(uint64_t));
	buf_add(&script->files, value.p, n);
	at = script->files.len;
	buf_add(&script->files, &(uint64_t){0}, sizeof(uint64_t));
	if (colon)
		add_decoded(&script->files, (struct str){colon + 1, value.n - n - 1});
	size = script->files.len - at - sizeof(uint64_t);
	memcpy(script->files.data + at, &size, sizeof(size));
}

static void set_text(struct buf *to, struct str value)
{
	buf_clear(to);
	add_decoded(to, value);
}

static void take_word(struct loop *loop, struct script *script, struct str key, struct str value)
{
	const struct {
		const char *key;
		int64_t *number;
		struct buf *text;
	} rows[] = {
		{"run_us", &script->run_us},
		{"cpu_us", &script->cpu_us},
		{"memory", &script->memory},
		{"kill_us", &script->kill_us},
		{"exit", &script->exit},
		{"signal", &script->signal},
		{"out_bytes", &script->out_bytes},
		{"echo", &script->echo},
		{"oom", &script->oom},
		{"forks_refused", &script->forks_refused},
		{"fail_first", &script->fail_first},
		{"too_much", &script->too_much},
		{"break", &script->breaks},
		{"out", .text = &script->out},
		{"err", .text = &script->err},
		{"fail", .text = &script->fail},
	};

	if (str_is(key, "file"))
		add_file(script, value);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (!str_is(key, rows[i].key))
			continue;
		if (rows[i].number)
			*rows[i].number = number(loop, value);
		else
			set_text(rows[i].text, value);
	}
}

static void take_assignment(struct loop *loop, struct script *script, struct str word)
{
	struct str key;

	if (word.n && memchr(word.p, '=', word.n) && str_cut(&word, '=', &key))
		take_word(loop, script, key, word);
}

/* Words of a file: no quoting, any white space between. */
static void take_words(struct loop *loop, struct script *script, struct str text)
{
	size_t from = 0;

	for (size_t i = 0; i <= text.n; i++) {
		if (i < text.n && !strchr(" \t\r\n", text.p[i]))
			continue;
		take_assignment(loop, script, (struct str){text.p + from, i - from});
		from = i + 1;
	}
}

static void take_bundled(struct box_slot *slot, struct str name)
{
	struct bundle bundle;
	struct bundle_entry entry;
	uint64_t pos = 0;

	if (slot->files_fd < 0 || bundle_open(slot->files_fd, UINT64_MAX, &bundle))
		return;
	while (bundle_next(&bundle, &pos, &entry))
		if (str_eq(entry.name, name))
			take_words(slot->box->loop, &slot->script,
				(struct str){entry.bytes, entry.size});
	bundle_close(&bundle);
}

static void read_script(struct box_slot *slot, char *const *argv)
{
	slot->script = (struct script){
		.run_us = 1000, .cpu_us = -1, .memory = 1048576, .kill_us = 1000, .fail_first = -1};
	buf_clear(&slot->argv_text);
	for (size_t i = 0; argv[i]; i++) {
		struct str word = str_from(argv[i]);

		buf_addf(&slot->argv_text, "%s ", argv[i]);
		if (i == 0)
			continue;
		if (str_is(word, "@-"))
			take_words(slot->box->loop, &slot->script, buf_str(&slot->input));
		else if (word.n && word.p[0] == '@')
			take_bundled(slot, (struct str){word.p + 1, word.n - 1});
		else
			take_assignment(slot->box->loop, &slot->script, word);
	}
	if (slot->script.cpu_us < 0)
		slot->script.cpu_us = slot->script.run_us;
}

static void script_fini(struct script *script)
{
	buf_fini(&script->out);
	buf_fini(&script->err);
	buf_fini(&script->fail);
	buf_fini(&script->files);
}

/*** What a program leaves behind ***/

static void add_left_files(int fd, const struct buf *files)
{
	const char *p = files->data;
	const char *end = p + files->len;

	while (p < end) {
		uint64_t n, size;
		struct str name;

		memcpy(&n, p, sizeof(n));
		name = (struct str){p + sizeof(n), n};
		p = name.p + n;
		memcpy(&size, p, sizeof(size));
		p += sizeof(size);
		CHECK(bundle_add(fd, name, true, p, size) == 0);
		p += size;
	}
}

static bool is_left(const struct buf *files, struct str name)
{
	const char *p = files->data;
	const char *end = p + files->len;

	while (p < end) {
		uint64_t n, size;

		memcpy(&n, p, sizeof(n));
		if (str_eq(name, (struct str){p + sizeof(n), n}))
			return true;
		p += sizeof(n) + n;
		memcpy(&size, p, sizeof(size));
		p += sizeof(size) + size;
	}
	return false;
}

static int collect(struct box_slot *slot)
{
	struct bundle bundle = {0};
	struct bundle_entry entry;
	uint64_t pos = 0;
	int fd;

	CHECK(bundle_create(&fd) == 0);
	if (slot->files_fd >= 0) {
		CHECK(bundle_open(slot->files_fd, UINT64_MAX, &bundle) == 0);
		while (bundle_next(&bundle, &pos, &entry))
			if (!is_left(&slot->script.files, entry.name))
				CHECK(bundle_add(fd, entry.name, entry.executable, entry.bytes,
					      entry.size) == 0);
		bundle_close(&bundle);
	}
	add_left_files(fd, &slot->script.files);
	CHECK(bundle_seal(fd) == 0);
	return fd;
}

/*** The run ***/

static int64_t cpu_us(struct box_slot *slot)
{
	const struct script *script = &slot->script;
	int64_t elapsed = loop_now_us(slot->box->loop) - slot->started_us;

	if (slot->state < RUNNING)
		return 0;
	if (elapsed >= script->run_us)
		return script->cpu_us;
	return (int64_t)((double)script->cpu_us * (double)elapsed / (double)script->run_us);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_fds(struct box_slot *slot)
{
	close_fd(&slot->files_fd);
	close_fd(&slot->out_fd);
	close_fd(&slot->err_fd);
}

static void run_over(struct box_slot *slot, struct box_slot_end *end)
{
	const struct box_slot_events *events = &slot->events;

	end->cpu_us = cpu_us(slot);
	end->wall_us = loop_now_us(slot->box->loop) - slot->started_us;
	end->memory_bytes = slot->script.memory;
	slot->state = ENDED;
	timer_stop(&slot->timer);
	close_fds(slot);
	/* The slot may be reset, used again or closed inside. */
	events->on_ended(slot->arg, end);
}

/* The n-th run of the same argv, from 1. */
static int64_t count_run(struct box_slot *slot)
{
	struct str key = buf_str(&slot->argv_text);
	intptr_t n = (intptr_t)map_get(&slot->box->runs, key) + 1;

	map_set(&slot->box->runs, key, (void *)n);
	return n;
}

static bool fails(struct box_slot *slot, int64_t nth)
{
	const struct script *script = &slot->script;

	if (script->fail_first >= 0)
		return nth <= script->fail_first;
	return script->fail.len > 0;
}

static void program_starts(struct box_slot *slot)
{
	if (fails(slot, count_run(slot))) {
		char *why cleanup(mem_freep) =
			mem_strdup(slot->script.fail.len ? slot->script.fail.data : "fake failure");
		struct box_slot_end end = {.failure = why, .files_fd = -1};

		run_over(slot, &end);
		return;
	}
	slot->state = RUNNING;
	slot->started_us = loop_now_us(slot->box->loop);
	timer_start(&slot->timer, slot->script.run_us);
	slot->events.on_started(slot->arg);
}

/* True when all is written, or nobody reads any more. */
static bool print_some(int fd, struct buf *text)
{
	ssize_t n = text->len ? write(fd, text->data, text->len) : 0;

	if (n < 0 && errno == EAGAIN)
		return false;
	if (n < 0)
		buf_clear(text);
	else
		buf_drop(text, (size_t)n);
	return text->len == 0;
}

static int status_of(const struct script *script)
{
	if (script->oom)
		return SIGKILL;
	return script->signal ? (int)script->signal : W_EXITCODE((int)script->exit, 0);
}

static void program_prints(struct box_slot *slot)
{
	struct script *script = &slot->script;
	struct box_slot_end end = {
		.status = status_of(script),
		.oom_kills = (uint64_t)script->oom,
		.limit_ooms = (uint64_t)script->oom,
		.has_limit_ooms = true,
		.pids_refused = (uint64_t)script->forks_refused,
		.files_fd = -1,
	};

	if (!print_some(slot->err_fd, &script->err) || !print_some(slot->out_fd, &script->out)) {
		timer_start(&slot->timer, 1);
		return;
	}
	slot->events.on_dead(slot->arg);
	if (slot->collect && end.status == 0 && !script->too_much)
		end.files_fd = collect(slot);
	end.files_refused = slot->collect && end.status == 0 && script->too_much;
	run_over(slot, &end);
}

static void break_down(struct box *box)
{
	box->broken = true;
	list_each_safe (it, &box->slots) {
		struct box_slot *slot = list_entry(it, struct box_slot, link);
		struct box_slot_end end = {.failure = "the helper died", .files_fd = -1};

		if (slot->state >= STARTING && slot->state <= DYING)
			run_over(slot, &end);
	}
}

static void program_ends(struct box_slot *slot)
{
	struct script *script = &slot->script;

	if (script->breaks) {
		break_down(slot->box);
		return;
	}
	if (script->echo)
		buf_add_str(&script->out, buf_str(&slot->input));
	if (script->out_bytes) {
		memset(buf_reserve(&script->out, (size_t)script->out_bytes), 'x',
			(size_t)script->out_bytes);
		script->out.len += (size_t)script->out_bytes;
	}
	slot->state = PRINTING;
	program_prints(slot);
}

static void is_ready(struct box_slot *slot)
{
	slot->state = READY;
	slot->on_ready(slot->ready_arg, slot, NULL);
}

static void is_reaped(struct box_slot *slot)
{
	struct box_slot_end end = {.status = -1, .files_fd = -1};

	run_over(slot, &end);
}

static void on_timer(void *arg)
{
	static void (*const rows[])(struct box_slot *) = {
		[OPENING] = is_ready,
		[STARTING] = program_starts,
		[RUNNING] = program_ends,
		[PRINTING] = program_prints,
		[DYING] = is_reaped,
	};
	struct box_slot *slot = arg;

	CHECK(slot->state < ARRAY_SIZE(rows) && rows[slot->state]);
	rows[slot->state](slot);
}

static int dup_writer(int fd)
{
	int copy = dup(fd);

	CHECK(copy >= 0 && io_set_nonblocking(copy) == 0);
	return copy;
}

static void read_input(struct box_slot *slot, int fd)
{
	struct stat st;

	buf_clear(&slot->input);
	if (fd < 0)
		return;
	CHECK(fstat(fd, &st) == 0);
	if (st.st_size == 0)
		return;
	CHECK(pread(fd, buf_reserve(&slot->input, (size_t)st.st_size), (size_t)st.st_size, 0) ==
		st.st_size);
	slot->input.len = (size_t)st.st_size;
}

static int slot_run(struct box_slot *slot, const struct box_start *start,
	const struct box_slot_events *events, void *arg)
{
	const struct box_spec *spec = start->spec;

	CHECK(slot->state == READY);
	slot->state = STARTING;
	slot->events = *events;
	slot->arg = arg;
	slot->collect = spec->collect;
	slot->files_fd = spec->files_fd >= 0 ? dup(spec->files_fd) : -1;
	slot->out_fd = dup_writer(start->stdout_fd);
	slot->err_fd = dup_writer(start->stderr_fd);
	read_input(slot, start->stdin_fd);
	read_script(slot, spec->argv);
	slot->started_us = loop_now_us(slot->box->loop);
	timer_start(&slot->timer, 0);
	return 0;
}

static void slot_kill(struct box_slot *slot)
{
	if (slot->state < STARTING || slot->state > PRINTING)
		return;
	slot->state = DYING;
	timer_start(&slot->timer, slot->script.kill_us);
}

static bool slot_reset(struct box_slot *slot)
{
	CHECK(slot->state == ENDED);
	script_fini(&slot->script);
	slot->state = READY;
	return true;
}

/*** Slots and the box ***/

static void slot_close(struct box_slot *slot)
{
	timer_stop(&slot->timer);
	list_del(&slot->link);
	close_fds(slot);
	script_fini(&slot->script);
	buf_fini(&slot->input);
	buf_fini(&slot->argv_text);
	loop_free_later(slot->box->loop, free, slot);
}

static void slot_open_cancel(struct op *op)
{
	slot_close(container_of(op, struct box_slot, op));
}

static int slot_open(struct box *box,
	void (*on_ready)(void *arg, struct box_slot *slot, const char *why), void *arg,
	struct op **op)
{
	struct box_slot *slot;

	if (box->broken)
		return -EPIPE;
	slot = mem_alloc(sizeof(*slot));
	slot->op.cancel = slot_open_cancel;
	slot->box = box;
	slot->state = OPENING;
	slot->on_ready = on_ready;
	slot->ready_arg = arg;
	slot->files_fd = slot->out_fd = slot->err_fd = -1;
	list_add_tail(&box->slots, &slot->link);
	timer_init(&slot->timer, box->loop, on_timer, slot);
	timer_start(&slot->timer, OPEN_US);
	*op = &slot->op;
	return 0;
}

static int fake_open(
	struct loop *loop, const struct box_options *options, struct box **out, char **why)
{
	struct box *box = mem_alloc(sizeof(*box));

	signal(SIGPIPE, SIG_IGN); /* programs print into pipes that a kill may have closed */
	box->loop = loop;
	list_init(&box->slots);
	map_init(&box->runs);
	*out = box;
	return 0;
}

static void fake_close(struct box *box)
{
	list_each_safe (it, &box->slots)
		slot_close(list_entry(it, struct box_slot, link));
	map_fini(&box->runs);
	loop_free_later(box->loop, free, box);
}

const struct box_ops box_fake = {
	.name = "fake",
	.isolation = "fake",
	.open = fake_open,
	.close = fake_close,
	.slot_open = slot_open,
	.slot_run = slot_run,
	.slot_kill = slot_kill,
	.slot_reset = slot_reset,
	.slot_close = slot_close,
	.slot_cpu_us = cpu_us,
};
