/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One `inquiry` a language: a run of its version command, repeated when the box itself failed (twice: slots are being
 * made while we start). The probe is over when none is open; it then reports and frees itself.
 */
#include "roles/executor/probe.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cfg/language.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/timer.h"
#include "rpc/json.h"

#define PROBE_TRIES 3
#define PROBE_PAUSE_US (200 * US_PER_MS)
#define VERSION_MAX 200 /* bytes kept of the first line */
#define OUTPUT_MAX 65536

struct inquiry {
	struct probe *probe;
	const struct language *language;
	struct box_run *run;
	struct timer again;
	unsigned tries;
	struct buf out, err;
	char *version; /* NULL = does not work, or not known yet */
};

struct probe {
	struct op op;
	struct loop *loop;
	struct log *log;
	struct box_host *box;
	probe_fn *cb;
	void *arg;
	struct inquiry *inquiries;
	unsigned n, n_open;
	struct defer over;
};

static void inquiry_ended(struct inquiry *inquiry, char *version)
{
	inquiry->version = version;
	if (--inquiry->probe->n_open == 0)
		loop_defer(inquiry->probe->loop, &inquiry->probe->over);
}

static void inquiry_failed(struct inquiry *inquiry, const char *why)
{
	char reason[LOG_QUOTE_MAX], said[LOG_QUOTE_MAX];
	struct str err = str_trim(buf_str(&inquiry->err));

	log_warn(inquiry->probe->log, "language", "name=%s offered=no why=%s command=%s stderr=%s",
		inquiry->language->name, log_quote(str_from(why), reason),
		inquiry->language->version[0], log_quote(err, said));
	inquiry_ended(inquiry, NULL);
}

/*** The run ***/

static void start_run(struct inquiry *inquiry);

static void start_again(void *arg)
{
	start_run(arg);
}

static void we_failed(struct inquiry *inquiry, const char *why)
{
	char *reason cleanup(mem_freep) = mem_printf("the sandbox: %s", why);

	if (inquiry->tries < PROBE_TRIES)
		timer_start(&inquiry->again, PROBE_PAUSE_US);
	else
		inquiry_failed(inquiry, reason);
}

/* Java and its like say their version on stderr. */
static struct str first_line(const struct inquiry *inquiry)
{
	const struct buf *said = inquiry->out.len ? &inquiry->out : &inquiry->err;
	struct str rest = str_trim(buf_str(said)), line = STR_NULL;

	if (!str_cut(&rest, '\n', &line))
		return STR("");
	line = str_trim(line);
	if (line.n > VERSION_MAX)
		line.n = VERSION_MAX;
	return str_is_utf8(line) ? line : STR("not UTF-8");
}

static void on_output(void *arg, int stream, struct str bytes)
{
	struct inquiry *inquiry = arg;
	struct buf *to = stream == 1 ? &inquiry->out : &inquiry->err;

	if (to->len + bytes.n > OUTPUT_MAX)
		bytes.n = OUTPUT_MAX - to->len;
	buf_add_str(to, bytes);
}

static void on_done(void *arg, const struct box_result *result)
{
	struct inquiry *inquiry = arg;
	char *why cleanup(mem_freep) = NULL;

	inquiry->run = NULL;
	if (result->files_fd >= 0)
		close(result->files_fd);
	switch (result->end) {
	case BOX_FAILED:
	case BOX_KILLED:
		we_failed(inquiry, result->failure ? result->failure : "killed");
		return;
	case BOX_EXITED:
		if (result->exit_code == 0) {
			inquiry_ended(inquiry, str_dup(first_line(inquiry)));
			return;
		}
		why = mem_printf("exit code %d", result->exit_code);
		break;
	case BOX_SIGNALED:
		why = mem_printf("signal %d", result->signal);
		break;
	case BOX_LIMIT:
		why = mem_printf("limit %s", box_limit_wire_name(result->limit));
		break;
	}
	inquiry_failed(inquiry, why);
}

static void start_run(struct inquiry *inquiry)
{
	static const struct box_events events = {.on_output = on_output, .on_done = on_done};
	const struct language *language = inquiry->language;
	const struct box_spec spec = {
		.argv = language->version,
		.env = language->environment,
		.stdin_fd = -1,
		.files_fd = -1,
		.limits =
			{
				.cpu_us = 10 * US_PER_S,
				.wall_us = 30 * US_PER_S,
				.memory_bytes = INT64_C(1) << 30,
				.output_bytes = OUTPUT_MAX,
				.file_bytes = INT64_C(16) << 20,
				.processes = 128,
				.stack_bytes = INT64_C(64) << 20,
			},
	};
	int error;

	buf_clear(&inquiry->out);
	buf_clear(&inquiry->err);
	inquiry->tries++;
	error = box_run(inquiry->probe->box, &spec, &events, inquiry, &inquiry->run);
	if (error)
		we_failed(inquiry, strerror(-error));
}

/*** The answer ***/

static void probe_free(struct probe *probe)
{
	for (unsigned i = 0; i < probe->n; i++) {
		struct inquiry *inquiry = &probe->inquiries[i];

		if (inquiry->run)
			box_run_cancel(&inquiry->run);
		timer_stop(&inquiry->again);
		buf_fini(&inquiry->out);
		buf_fini(&inquiry->err);
		free(inquiry->version);
	}
	defer_cancel(&probe->over);
	free(probe->inquiries);
	loop_free_later(probe->loop, free, probe);
}

static void on_over(void *arg)
{
	struct probe *probe = arg;
	struct probe_result result = {.failed = 0};
	struct buf json cleanup(buf_fini) = BUF_INIT;
	struct json_writer *w = json_writer_new(&json, false);

	map_init(&result.works);
	json_begin_object(w);
	for (unsigned i = 0; i < probe->n; i++) {
		const struct inquiry *inquiry = &probe->inquiries[i];

		if (!inquiry->version) {
			result.failed++;
			continue;
		}
		map_set(&result.works, str_from(inquiry->language->name),
			(void *)inquiry->language);
		json_key(w, inquiry->language->name);
		json_text(w, inquiry->version);
	}
	json_end_object(w);
	json_writer_free(w);
	result.toolchains = buf_str(&json);
	probe->cb(probe->arg, &result);
	map_fini(&result.works);
	probe_free(probe);
}

static void on_cancel(struct op *op)
{
	probe_free(container_of(op, struct probe, op));
}

int probe_start(struct loop *loop, struct log *log, struct box_host *box,
	const struct map *languages, probe_fn *cb, void *arg, struct op **op)
{
	struct probe *probe = mem_alloc(sizeof(*probe));

	probe->op.cancel = on_cancel;
	probe->loop = loop;
	probe->log = log;
	probe->box = box;
	probe->cb = cb;
	probe->arg = arg;
	probe->inquiries = mem_array(map_count(languages), sizeof(*probe->inquiries));
	defer_init(&probe->over, on_over, probe);
	probe->n_open = (unsigned)map_count(languages) + 1; /* one more until all are started */
	map_each (it, languages) {
		struct inquiry *inquiry = &probe->inquiries[probe->n++];

		inquiry->probe = probe;
		inquiry->language = map_entry_of(it)->value;
		timer_init(&inquiry->again, loop, start_again, inquiry);
		if (inquiry->language->version)
			start_run(inquiry);
		else
			inquiry_ended(inquiry, mem_strdup(""));
	}
	if (--probe->n_open == 0)
		loop_defer(loop, &probe->over);
	*op = &probe->op;
	return 0;
}
