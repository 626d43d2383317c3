/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The task machine, on a box whose programs are scripts (test/fake/box_fake.h) and a clock moved by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cfg/language.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/executor/blob_cache.h"
#include "roles/executor/exec_task.h"
#include "roles/executor/unpack.h"
#include "rpc/rpc_server.h"
#include "test/fake/box_fake.h"
#include "test/unit/zip_maker.h"

#define ID "aaaaaaaaaaaaaaaaaaaaaaaa"
#define TRACE_MAX 4096

struct world {
	struct loop *loop;
	struct box_host *box;
	struct map languages;
	struct exec_task_env env;
	struct record *record;
	struct exec_task *task;
	struct json_tree *result;
	char trace[TRACE_MAX]; /* states entered, by blanks */
	char state[16];        /* the last one */
	unsigned n_end, n_progress;
	int64_t end_us;
};

static void on_change(void *arg, const char *id, int64_t attempt, const char *from, const char *to)
{
	struct world *w = arg;
	size_t n = strlen(w->trace);

	assert_string_equal(id, ID);
	assert_int_equal(attempt, 3);
	snprintf(w->trace + n, sizeof(w->trace) - n, "%s ", to);
	snprintf(w->state, sizeof(w->state), "%s", to);
}

static void on_progress(void *arg)
{
	((struct world *)arg)->n_progress++;
}

static void on_end(void *arg)
{
	struct world *w = arg;

	w->n_end++;
	w->end_us = loop_now_us(w->loop);
	assert_false(exec_task_is_alive(w->task));
}

static void add_language(struct world *w, const char *name, const char *text)
{
	struct cfg_errors errors = {BUF_INIT, 0};
	struct language *language = language_parse(name, str_from(text), name, &errors);

	if (errors.count)
		print_error("%s", errors.text.data);
	assert_int_equal(errors.count, 0);
	map_set(&w->languages, str_from(name), language);
	cfg_errors_fini(&errors);
}

static int setup(void **state)
{
	struct world *w = mem_alloc(sizeof(*w));
	char *why = NULL;

	w->loop = loop_new(&(struct loop_options){.fake_clock = true, .seed = 3});
	assert_int_equal(box_host_open(w->loop, &box_fake,
				 &(struct box_options){.slots = 1, .helper_fd = -1}, &w->box, &why),
		0);
	map_init(&w->languages);
	add_language(w, "script",
		"[language]\ntitle = Script\nsource = main.txt\n"
		"[run]\nargv = ./script\nargv = @{source}\n"
		"[version]\nargv = ./script\nargv = out=1\n");
	/* The source is the compiler's script; what it leaves as `prog` is the program's. */
	add_language(w, "compiled",
		"[language]\ntitle = Compiled\nsource = main.txt\n"
		"[compile]\nargv = ./cc\nargv = @{source}\n"
		"[run]\nargv = ./prog\nargv = @prog\ncpu_factor = 2\nprocesses = 77\n"
		"[version]\nargv = ./cc\nargv = out=1\n");
	w->env = (struct exec_task_env){
		.loop = w->loop,
		.box = w->box,
		.unpacker = unpacker_new(w->loop),
		.languages = &w->languages,
		.on_change = on_change,
		.arg = w,
	};
	*state = w;
	return 0;
}

static void forget(struct world *w)
{
	exec_task_free(take_ptr(&w->task));
	record_free(take_ptr(&w->record));
	json_free(take_ptr(&w->result));
	w->trace[0] = '\0';
	w->n_end = w->n_progress = 0;
	loop_turn(w->loop, 0);
}

static int teardown(void **state)
{
	struct world *w = *state;

	forget(w);
	unpacker_free(w->env.unpacker);
	box_host_close(w->box);
	language_map_fini(&w->languages);
	loop_free(w->loop);
	free(w);
	return 0;
}

static void begin(struct world *w, const char *json)
{
	static const struct exec_task_events events = {on_progress, on_end};
	struct problem problem;
	struct id id;

	forget(w);
	assert_true(id_parse(STR(ID), &id));
	if (task_parse(str_from(json), NULL, &w->record, &problem)) {
		print_error("%s: %s %s %s\n", json, problem.code, problem.pointer, problem.detail);
		fail();
	}
	w->task = exec_task_new(&w->env, &id, 3, record_data(w->record), NULL, &events, w);
}

/* Until it has ended, at most ten minutes of its time. */
static void finish(struct world *w)
{
	struct json_error error;
	int64_t limit_us = loop_now_us(w->loop) + 600 * US_PER_S;

	while (!w->n_end && loop_now_us(w->loop) < limit_us)
		if (!loop_advance_next(w->loop)) /* what was deferred has been done even then */
			break;
	assert_int_equal(w->n_end, 1);
	if (!exec_task_is_held(w->task))
		return;
	if (json_parse(exec_task_outcome(w->task)->json, NULL, &w->result, &error))
		fail_msg("the result is no JSON: %s", error.detail);
}

static void judge(struct world *w, const char *json)
{
	begin(w, json);
	finish(w);
	assert_true(exec_task_is_held(w->task));
}

/* "/cases/0/limit/name": the node, or NULL. */
static const struct json *node(struct world *w, const char *path)
{
	const struct json *at = json_root(w->result);
	struct str rest = str_from(path + 1), key;

	while (at && str_cut(&rest, '/', &key)) {
		int64_t index;
		char name[64];

		snprintf(name, sizeof(name), STR_FMT, STR_ARG(key));
		if (at->type != JSON_ARRAY) {
			at = json_get(at, name);
			continue;
		}
		assert_true(str_to_i64(key, &index));
		for (at = at->first; at && index > 0; index--)
			at = at->next;
	}
	return at;
}

static void assert_text(struct world *w, const char *path, const char *expected)
{
	const struct json *at = node(w, path);

	if (!at || at->type != JSON_STRING || !str_is(at->text, expected))
		fail_msg("%s is %.*s, not %s", path, at ? (int)at->text.n : 6,
			at && at->text.p ? at->text.p : "absent", expected);
}

static int64_t number(struct world *w, const char *path)
{
	int64_t value = 0;

	if (!node(w, path) || !json_i64(node(w, path), &value))
		fail_msg("%s is no number", path);
	return value;
}

static void assert_outcome(struct world *w, const char *verdict, const char *status)
{
	const struct exec_task_outcome *outcome = exec_task_outcome(w->task);

	assert_string_equal(outcome->verdict, verdict);
	assert_string_equal(outcome->status, status);
	assert_text(w, "/verdict", verdict);
}

/*** Ordinary ends ***/

static void accepted(void **state)
{
	struct world *w = *state;

	judge(w, "{\"language\":\"script\",\"source\":\"run_us=5000 cpu_us=3000 out=3%0a\","
		 "\"input\":\"1 2\",\"expected\":\"3\"}");
	assert_outcome(w, "accepted", "success");
	assert_string_equal(w->trace, "RUN COLLECT HELD ");
	assert_text(w, "/isolation", "fake");
	assert_text(w, "/cases/0/verdict", "accepted");
	assert_text(w, "/cases/0/stdout", "3\n");
	assert_int_equal(number(w, "/cases/0/exit_code"), 0);
	assert_int_equal(number(w, "/cases/0/cpu_us"), 3000);
	assert_int_equal(number(w, "/cases/0/wall_us"), 5000);
	assert_int_equal(number(w, "/cases/0/memory_bytes"), 1048576);
	assert_int_equal(number(w, "/score"), 1);
	assert_int_equal(number(w, "/max_score"), 1);
	assert_true(!node(w, "/compile") || node(w, "/compile")->type == JSON_NULL);
	assert_true(w->n_progress >= 1);
}

static void input_reaches_the_program(void **state)
{
	struct world *w = *state;

	judge(w, "{\"language\":\"script\",\"source\":\"echo=1\",\"input\":\"1 "
		 "2\\n\",\"expected\":\"1 2\"}");
	assert_outcome(w, "accepted", "success");
}

static void wrong_answer(void **state)
{
	struct world *w = *state;

	judge(w, "{\"language\":\"script\",\"source\":\"out=4\",\"expected\":\"3\"}");
	assert_outcome(w, "wrong_answer", "success");
	assert_text(w, "/cases/0/verdict", "wrong_answer");
	assert_true(node(w, "/cases/0/message")->text.n > 0);
	assert_int_equal(number(w, "/score"), 0);
}

static void compiled_then_run(void **state)
{
	struct world *w = *state;

	begin(w, "{\"language\":\"compiled\",\"source\":\"cpu_us=700 err=warning "
		 "file=prog:out=ok%20exit=0\",\"expected\":\"ok\"}");
	assert_int_equal(exec_task_status(w->task), TASK_COMPILING);
	finish(w);
	assert_outcome(w, "accepted", "success");
	assert_string_equal(w->trace, "COMPILE RUN COLLECT HELD ");
	assert_int_equal(exec_task_status(w->task), TASK_RUNNING);
	assert_int_equal(number(w, "/compile/cpu_us"), 700);
	assert_text(w, "/compile/stderr", "warning");
	assert_text(w, "/cases/0/stdout", "ok");
}

static void compile_error(void **state)
{
	struct world *w = *state;

	judge(w, "{\"language\":\"compiled\",\"source\":\"exit=1 out=x err=no%20semicolon\"}");
	assert_outcome(w, "compile_error", "compile_failed");
	assert_string_equal(w->trace, "COMPILE COLLECT HELD ");
	assert_text(w, "/compile/stderr", "no semicolon");
	assert_text(w, "/compile/stdout", "x");
	assert_int_equal(number(w, "/compile/exit_code"), 1);
	assert_int_equal(node(w, "/compile/limit")->type, JSON_NULL);
	assert_true(!node(w, "/cases") || node(w, "/cases")->count == 0);
}

static void compile_limits(void **state)
{
	struct world *w = *state;

	judge(w, "{\"language\":\"compiled\",\"compile\":{\"source\":\"run_us=900000\","
		 "\"limits\":{\"cpu_ms\":100}}}");
	assert_outcome(w, "compile_error", "compile_failed");
	assert_text(w, "/compile/limit/name", "cpu_ms");
	assert_int_equal(number(w, "/compile/limit/allowed"), 100);
	assert_true(number(w, "/compile/limit/measured") > 100);
	judge(w, "{\"language\":\"compiled\",\"source\":\"too_much=1\"}");
	assert_outcome(w, "compile_error", "compile_failed");
	assert_text(w, "/compile/limit/name", "file_bytes");
}

static void raw_commands(void **state)
{
	struct world *w = *state;

	judge(w, "{\"compile\":{\"files\":[{\"name\":\"a.txt\",\"content\":\"file=b:out=7\"}],"
		 "\"command\":[\"cc\",\"@a.txt\"]},"
		 "\"execute\":{\"command\":\"./b @b\",\"expected\":\"7\"}}");
	assert_outcome(w, "accepted", "success");
	assert_string_equal(w->trace, "COMPILE RUN COLLECT HELD ");
	judge(w, "{\"compile\":{\"files\":[{\"name\":\"a.txt\",\"content\":\"out=8\"}]},"
		 "\"execute\":{\"command\":[\"run\",\"@a.txt\"],\"expected\":\"8\"}}");
	assert_outcome(w, "accepted", "success");
	assert_string_equal(w->trace, "RUN COLLECT HELD ");
}

/* The run's own files come over what was compiled: a file, a file in place of a directory, a directory in place of a file. */
static void files_of_the_run(void **state)
{
	struct world *w = *state;

	judge(w, "{\"compile\":{\"files\":[{\"name\":\"a\",\"content\":\"out=old\"},"
		 "{\"name\":\"d/x\",\"content\":\"out=x\"},{\"name\":\"f\",\"content\":\"out=f\"},"
		 "{\"name\":\"keep\",\"content\":\"err=kept\"}]},"
		 "\"execute\":{\"command\":[\"run\",\"@d/x\",\"@f\",\"@f/y\",\"@a\",\"@keep\"],"
		 "\"files\":[{\"name\":\"a\",\"content\":\"exit=0\"},{\"name\":\"d\",\"content\":"
		 "\"\"},"
		 "{\"name\":\"f/y\",\"content\":\"out=new\"}],\"expected\":\"new\"}}");
	assert_outcome(w, "accepted", "success");
	assert_text(w, "/cases/0/stderr", "kept");
	assert_string_equal(w->trace, "ADD RUN COLLECT HELD ");
	judge(w, "{\"language\":\"compiled\",\"source\":\"file=prog:out=1\","
		 "\"execute\":{\"files\":[{\"name\":\"prog\",\"content\":\"out=2\"}],\"expected\":"
		 "\"2\"}}");
	assert_outcome(w, "accepted", "success");
	assert_string_equal(w->trace, "COMPILE ADD RUN COLLECT HELD ");
}

/*** Limits ***/

static void each_limit_has_its_verdict(void **state)
{
	static const struct {
		const char *script, *limits, *verdict, *status, *limit;
		int64_t allowed;
	} rows[] = {
		{"run_us=500000", "\"cpu_ms\":100", "time_limit", "run_failed", "cpu_ms", 100},
		{"run_us=9000000 cpu_us=0", "\"wall_ms\":200", "wall_limit", "run_failed",
			"wall_ms", 200},
		{"oom=1 memory=3000000", "\"memory_bytes\":2000000", "memory_limit", "run_failed",
			"memory_bytes", 2000000},
		{"out_bytes=5000", "\"output_bytes\":4000", "output_limit", "run_failed",
			"output_bytes", 4000},
		{"signal=25", "\"file_bytes\":5000", "output_limit", "run_failed", "file_bytes",
			5000},
		{"forks_refused=2 exit=1", "\"processes\":5", "runtime_error", "run_failed",
			"processes", 5},
		{"forks_refused=2 out=1", "\"processes\":5", "accepted", "success", "processes", 5},
		{"forks_refused=2 out=2", "\"processes\":5", "wrong_answer", "success", "processes",
			5},
		{"exit=3 out=1", "\"cpu_ms\":100", "runtime_error", "run_failed", NULL, 0},
		{"signal=11 out=1", "\"cpu_ms\":100", "runtime_error", "run_failed", NULL, 0},
		{"run_us=100000 out=1", "\"cpu_ms\":100", "accepted", "success", NULL, 0},
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char *json =
			mem_printf("{\"language\":\"script\",\"source\":\"%s\",\"expected\":\"1\","
				   "\"limits\":{%s}}",
				rows[i].script, rows[i].limits);

		judge(w, json);
		free(json);
		assert_outcome(w, rows[i].verdict, rows[i].status);
		assert_text(w, "/cases/0/verdict", rows[i].verdict);
		if (!rows[i].limit) {
			assert_int_equal(node(w, "/cases/0/limit")->type, JSON_NULL);
			continue;
		}
		assert_text(w, "/cases/0/limit/name", rows[i].limit);
		assert_int_equal(number(w, "/cases/0/limit/allowed"), rows[i].allowed);
	}
	judge(w, "{\"language\":\"script\",\"source\":\"signal=11\"}");
	assert_int_equal(number(w, "/cases/0/signal"), 11);
	assert_int_equal(node(w, "/cases/0/exit_code")->type, JSON_NULL);
}

static void output_is_cut_exactly(void **state)
{
	struct world *w = *state;

	judge(w, "{\"language\":\"script\",\"source\":\"out_bytes=5000\",\"limits\":{\"output_"
		 "bytes\":4000}}");
	assert_int_equal(number(w, "/cases/0/stdout_bytes"), 4000);
	assert_int_equal(number(w, "/cases/0/limit/measured"), 4001);
}

/* The profile doubles the default (2 s) and sets processes; an own limit is taken as it is. */
static void factors_of_the_language(void **state)
{
	struct world *w = *state;

	judge(w, "{\"language\":\"compiled\",\"source\":\"file=prog:run_us=3900000%20forks_refused="
		 "1\"}");
	assert_outcome(w, "accepted", "success");
	assert_int_equal(number(w, "/cases/0/limit/allowed"), 77);
	judge(w, "{\"language\":\"compiled\",\"source\":\"file=prog:run_us=4100000\"}");
	assert_outcome(w, "time_limit", "run_failed");
	assert_int_equal(number(w, "/cases/0/limit/allowed"), 4000);
	judge(w, "{\"language\":\"compiled\",\"source\":\"file=prog:run_us=1100000%20forks_refused="
		 "1\","
		 "\"limits\":{\"cpu_ms\":1000,\"processes\":3}}");
	assert_outcome(w, "time_limit", "run_failed");
	judge(w, "{\"language\":\"compiled\",\"source\":\"file=prog:forks_refused=1\","
		 "\"limits\":{\"processes\":3}}");
	assert_int_equal(number(w, "/cases/0/limit/allowed"), 3);
}

/*** Cases ***/

#define RUN_INPUT "\"execute\":{\"command\":[\"run\",\"@-\"],\"limits\":{\"cpu_ms\":50}}"

static void cases_in_order_with_own_limits(void **state)
{
	struct world *w = *state;

	judge(w, "{" RUN_INPUT ",\"cases\":["
		 "{\"input\":\"run_us=60000 out=a\",\"expected\":\"a\",\"limits\":{\"cpu_ms\":80},"
		 "\"points\":5},"
		 "{\"input\":\"run_us=60000 out=b\",\"expected\":\"b\",\"points\":3},"
		 "{\"input\":\"run_us=40000 out=c\",\"expected\":\"c\",\"points\":2},"
		 "{\"input\":\"run_us=9000 cpu_us=0\",\"limits\":{\"wall_ms\":7},\"points\":1},"
		 "{\"input\":\"out=x\",\"expected\":\"e\"}]}");
	assert_outcome(w, "time_limit", "run_failed"); /* the first that is not accepted */
	assert_string_equal(w->trace, "RUN RUN RUN RUN RUN COLLECT HELD ");
	assert_text(w, "/cases/0/verdict", "accepted");
	assert_text(w, "/cases/1/verdict", "time_limit");
	assert_int_equal(number(w, "/cases/1/limit/allowed"), 50);
	assert_text(w, "/cases/2/verdict", "accepted");
	assert_text(w, "/cases/3/verdict", "wall_limit");
	assert_int_equal(number(w, "/cases/3/limit/allowed"), 7);
	assert_text(w, "/cases/4/verdict", "wrong_answer");
	assert_int_equal(number(w, "/score"), 7);
	assert_int_equal(number(w, "/max_score"), 12);
	assert_int_equal(number(w, "/cases/0/points"), 5);
	assert_int_equal(number(w, "/cases/1/points"), 0);
}

/* The verdict is the first failure's, the status knows that not every program ran. */
static void a_wrong_answer_and_a_crash(void **state)
{
	struct world *w = *state;

	judge(w,
		"{" RUN_INPUT ",\"cases\":["
		"{\"input\":\"out=a\",\"expected\":\"a\"},{\"input\":\"out=b\",\"expected\":\"x\"},"
		"{\"input\":\"exit=3\",\"expected\":\"c\"}]}");
	assert_outcome(w, "wrong_answer", "run_failed");
}

static void stop_on_failure(void **state)
{
	struct world *w = *state;

	judge(w,
		"{" RUN_INPUT ",\"stop_on_failure\":true,\"cases\":["
		"{\"input\":\"out=a\",\"expected\":\"a\"},{\"input\":\"out=b\",\"expected\":\"x\"},"
		"{\"input\":\"out=c\",\"expected\":\"c\"}]}");
	assert_outcome(w, "wrong_answer", "success");
	assert_int_equal(node(w, "/cases")->count, 2);
	assert_int_equal(number(w, "/score"), 1);
	assert_int_equal(number(w, "/max_score"), 3);
	assert_int_equal(exec_task_case_no(w->task), 1);
}

/* What is kept is bounded whatever a task prints, and the totals stay true. */
static void a_result_is_bounded(void **state)
{
	struct world *w = *state;
	struct buf json cleanup(buf_fini) = BUF_INIT;

	buf_addf(&json, "{" RUN_INPUT ",\"cases\":[");
	for (int i = 0; i < 150; i++)
		buf_addf(&json, "%s{\"input\":\"out_bytes=70000 err=e\"}", i ? "," : "");
	buf_addf(&json, "]}");
	judge(w, json.data);
	assert_outcome(w, "accepted", "success");
	assert_in_range(exec_task_outcome(w->task)->json.n, 3 << 20, 6 << 20);
	assert_int_equal(number(w, "/cases/149/stdout_bytes"), 70000);
	assert_true(node(w, "/cases/149/stdout_truncated")->boolean);
	assert_int_equal(node(w, "/cases/149/stdout")->text.n, 1024);
	assert_text(w, "/cases/149/stderr", "e");
}

/*** We failed ***/

static void our_failure_is_repeated(void **state)
{
	struct world *w = *state;

	judge(w, "{\"language\":\"script\",\"source\":\"fail_first=3 out=1\",\"expected\":\"1\"}");
	assert_outcome(w, "accepted", "success");
	assert_string_equal(w->trace, "RUN RETRY RUN RETRY RUN RETRY RUN COLLECT HELD ");
	judge(w, "{\"language\":\"compiled\",\"source\":\"fail_first=2 "
		 "file=prog:out=1%20fail_first=1\",\"expected\":\"1\"}");
	assert_outcome(w, "accepted", "success");
	assert_string_equal(
		w->trace, "COMPILE RETRY COMPILE RETRY COMPILE RUN RETRY RUN COLLECT HELD ");
}

static void our_failure_is_never_blamed_on_the_program(void **state)
{
	struct world *w = *state;

	judge(w, "{\"language\":\"script\",\"source\":\"fail=the%20helper%20died\",\"expected\":"
		 "\"1\"}");
	assert_outcome(w, "system_error", "error");
	assert_string_equal(w->trace, "RUN RETRY RUN RETRY RUN RETRY RUN COLLECT HELD ");
	assert_non_null(strstr(node(w, "/message")->text.p, "the helper died"));
	judge(w, "{\"language\":\"nowhere\",\"source\":\"out=1\"}");
	assert_outcome(w, "system_error", "error");
	assert_non_null(strstr(node(w, "/message")->text.p, "language"));
}

static void an_unreadable_task_is_an_error(void **state)
{
	static const struct exec_task_events events = {on_progress, on_end};
	struct world *w = *state;
	struct id id;

	assert_true(id_parse(STR(ID), &id));
	w->task = exec_task_new(&w->env, &id, 3, NULL, "it makes no sense", &events, w);
	assert_int_equal(w->n_end, 0); /* never before the call has returned */
	finish(w);
	assert_outcome(w, "system_error", "error");
	assert_text(w, "/message", "it makes no sense");
}

/*** The end from outside ***/

#define LONG_TASK                                                                                  \
	"{\"language\":\"compiled\",\"source\":\"run_us=300000 kill_us=7000 fail_first=%d "        \
	"file=prog:run_us=300000%%20kill_us=7000\"}"

static void reach(struct world *w, const char *state)
{
	while (strcmp(w->state, state) != 0)
		assert_true(loop_advance_next(w->loop));
}

static void killed_in(struct world *w, const char *state, int fail_first, bool alive)
{
	char json[512];
	int64_t asked_us;

	snprintf(json, sizeof(json), LONG_TASK, fail_first);
	begin(w, json);
	snprintf(w->state, sizeof(w->state), "PREPARE");
	reach(w, state);
	if (alive)
		loop_advance_us(w->loop, 50000);
	assert_true(exec_task_is_alive(w->task) == alive);
	asked_us = loop_now_us(w->loop);
	exec_task_end(w->task, "cancelled");
	exec_task_end(w->task, "cancelled");
	assert_int_equal(w->n_end, 0);
	assert_true(exec_task_is_alive(w->task) == alive); /* not before it is reaped */
	if (alive) {
		loop_advance_us(w->loop, 6900);
		assert_int_equal(w->n_end, 0);
		assert_true(exec_task_is_alive(w->task));
	}
	finish(w);
	assert_false(exec_task_is_held(w->task));
	assert_int_equal(w->end_us - asked_us, alive ? 7000 : 0);
	assert_string_equal(w->state, "GONE");
	loop_advance_us(w->loop, 5 * US_PER_S);
	assert_int_equal(w->n_end, 1);
}

static void cancelled_in_each_state(void **state)
{
	struct world *w = *state;

	loop_advance_us(w->loop, US_PER_S); /* slots are ready */
	killed_in(w, "PREPARE", 0, false);
	assert_string_equal(w->trace, "KILL GONE ");
	killed_in(w, "COMPILE", 0, true);
	assert_string_equal(w->trace, "COMPILE KILL GONE ");
	killed_in(w, "RUN", 0, true);
	assert_string_equal(w->trace, "COMPILE RUN KILL GONE ");
	killed_in(w, "RETRY", 99, false);
	assert_string_equal(w->trace, "COMPILE RETRY KILL GONE ");
}

static void ended_while_files_are_added(void **state)
{
	static const char json[] = "{\"language\":\"compiled\",\"source\":\"file=prog:out=1\","
				   "\"execute\":{\"files\":[{\"name\":\"a\",\"content\":\"b\"}]}}";
	struct world *w = *state;

	begin(w, json);
	reach(w, "ADD");
	exec_task_end(w->task, "cancelled");
	finish(w);
	assert_false(exec_task_is_held(w->task));
	assert_string_equal(w->trace, "COMPILE ADD KILL GONE ");
	begin(w, json);
	reach(w, "ADD");
	exec_task_free(take_ptr(&w->task));
	loop_advance_us(w->loop, US_PER_S);
	assert_int_equal(w->n_end, 0);
}

/*** Archives ***/

/* Lets the worker do what it has been given, at most a minute of real time; no time passes in the loop but that of slices. */
static void finish_unpacking(struct world *w)
{
	for (int i = 0; i < 6000 && !w->n_end; i++) {
		loop_turn(w->loop, 10 * US_PER_MS);
		loop_advance_next(w->loop);
	}
	finish(w);
}

/* {"base64": "..."} of an archive of one file; `crc` 0 = the right one. */
static char *archive_of(const char *name, const char *content, uint32_t crc)
{
	struct zip_maker z = {BUF_INIT, BUF_INIT, 0};
	struct buf out = BUF_INIT;

	zip_put(&z, &(struct zip_entry){.name = name, .content = str_from(content), .crc = crc});
	buf_addf(&out, "{\"base64\":\"");
	base64_encode(zip_finish(&z, 1), &out);
	buf_addf(&out, "\"}");
	zip_fini(&z);
	return buf_take(&out);
}

/* `json` has %s where the archive stands. */
static void begin_with(struct world *w, const char *json, char *archive)
{
	const char *at = strstr(json, "%s");
	char *text = mem_printf("%.*s%s%s", (int)(at - json), json, archive, at + 2);

	begin(w, text);
	free(text);
	free(archive);
}

#define COMPILE_ARCHIVE                                                                            \
	"{\"compile\":{\"archive\":%s,\"command\":\"cc @a.txt\"},"                                 \
	"\"execute\":{\"command\":\"run @b\",\"expected\":\"7\"}}"
#define EXECUTE_ARCHIVE                                                                            \
	"{\"language\":\"compiled\",\"source\":\"file=prog:out=1 out=log\","                       \
	"\"execute\":{\"archive\":%s,\"expected\":\"2\"}}"

static void an_archive_is_unpacked(void **state)
{
	struct world *w = *state;

	begin_with(w, COMPILE_ARCHIVE, archive_of("a.txt", "file=b:out=7", 0));
	finish_unpacking(w);
	assert_outcome(w, "accepted", "success");
	assert_string_equal(w->trace, "COMPILE RUN COLLECT HELD ");
	begin_with(w, EXECUTE_ARCHIVE, archive_of("prog", "out=2", 0));
	finish_unpacking(w);
	assert_outcome(w, "accepted", "success");
	assert_string_equal(w->trace, "COMPILE ADD RUN COLLECT HELD ");
}

/* Damaged where only unpacking tells: the submission's fault, at the first try. */
static void a_damaged_archive_is_the_tasks_fault(void **state)
{
	struct world *w = *state;

	begin_with(w, COMPILE_ARCHIVE, archive_of("a.txt", "file=b:out=7", 1));
	finish_unpacking(w);
	assert_outcome(w, "compile_error", "compile_failed");
	assert_text(w, "/compile/message", "compile.archive: \"a.txt\" CRC error");
	assert_int_equal(node(w, "/compile/exit_code")->type, JSON_NULL);
	assert_string_equal(w->trace, "COLLECT HELD ");
	begin_with(w, EXECUTE_ARCHIVE, archive_of("prog", "out=2", 1));
	finish_unpacking(w);
	assert_outcome(w, "compile_error", "compile_failed");
	assert_text(w, "/compile/message", "execute.archive: \"prog\" CRC error");
	assert_text(w, "/compile/stdout", "log");
	assert_string_equal(w->trace, "COMPILE ADD COLLECT HELD ");
}

/*** Blobs ***/

#define BLOB "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define WITH_BLOB "{\"language\":\"script\",\"source\":\"out=1\",\"input\":{\"blob\":\"" BLOB "\"}}"

static void on_blob_get(void *arg, struct rpc_call *call)
{
	unsigned *n_asked = arg;

	++*n_asked;
	rpc_call_fail(call, 404, "blob_missing", "There is no such blob.");
}

/* The store has lost it: ours, at once, as no second try could help. */
static void a_missing_blob_is_our_error(void **state)
{
	static rpc_handler_fn *const handlers[RPC_METHOD_N] = {[RPC_blob_get] = on_blob_get};
	struct world *w = *state;
	struct loop_net *net = loop_net_new(w->loop, &(struct loop_net_options){0});
	struct transport *judicator = transport_loop_new(net, "j");
	struct transport *executor = transport_loop_new(net, "e");
	struct rpc_server *server;
	unsigned n_asked = 0;

	assert_int_equal(
		rpc_server_new(w->loop, NULL, judicator, "j:1", handlers, &n_asked, &server), 0);
	w->env.blobs = blob_cache_new(w->loop,
		&(struct blob_cache_options){
			.transport = executor, .judicators = "j:1", .dir = "/proc/nonexistent"});
	judge(w, WITH_BLOB);
	assert_outcome(w, "system_error", "error");
	assert_text(w, "/message", "the blob " BLOB " is not in the judicators' store any more");
	assert_string_equal(w->trace, "COLLECT HELD ");
	assert_int_equal(n_asked, 1);
	forget(w);
	blob_cache_free(take_ptr(&w->env.blobs));
	rpc_server_free(server);
	executor->ops->free(executor);
	judicator->ops->free(judicator);
	loop_net_free(net);
}

static void a_blob_that_cannot_be_kept_is_our_error(void **state)
{
	struct world *w = *state;

	w->env.blobs = blob_cache_new(w->loop, &(struct blob_cache_options){.judicators = "j:1"});
	judge(w, WITH_BLOB);
	assert_outcome(w, "system_error", "error");
	assert_text(w, "/message", "fetching a blob: this executor has no place for blobs");
	assert_string_equal(w->trace, "RETRY FETCH RETRY FETCH RETRY FETCH COLLECT HELD ");
	forget(w);
	blob_cache_free(take_ptr(&w->env.blobs));
}

/* Nobody answers: it is waited for, until somebody ends it. */
static void ended_while_fetching(void **state)
{
	struct world *w = *state;
	struct loop_net *net = loop_net_new(w->loop, &(struct loop_net_options){0});
	struct transport *executor = transport_loop_new(net, "e");

	w->env.blobs = blob_cache_new(w->loop,
		&(struct blob_cache_options){
			.transport = executor, .judicators = "j:1", .dir = "/proc/nonexistent"});
	begin(w, WITH_BLOB);
	loop_advance_us(w->loop, 3600 * US_PER_S);
	assert_int_equal(w->n_end, 0);
	assert_string_equal(w->trace, "");
	assert_int_equal(exec_task_status(w->task), TASK_COMPILING);
	exec_task_end(w->task, "cancelled");
	finish(w);
	assert_false(exec_task_is_held(w->task));
	assert_string_equal(w->trace, "KILL GONE ");
	begin(w, WITH_BLOB);
	loop_advance_us(w->loop, US_PER_S);
	exec_task_free(take_ptr(&w->task));
	loop_advance_us(w->loop, US_PER_S);
	assert_int_equal(w->n_end, 0);
	forget(w);
	blob_cache_free(take_ptr(&w->env.blobs));
	executor->ops->free(executor);
	loop_net_free(net);
}

static void ended_while_unpacking(void **state)
{
	struct world *w = *state;

	/* The worker may be faster, on a busy machine: then it is the next try's turn. */
	for (int i = 0; i < 1000; i++) {
		begin_with(w, COMPILE_ARCHIVE, archive_of("a.txt", "file=b:out=7", 0));
		loop_advance_next(w->loop); /* it is with the worker */
		exec_task_end(w->task, "cancelled");
		finish_unpacking(w);
		assert_false(exec_task_is_held(w->task));
		if (strcmp(w->trace, "KILL GONE ") == 0)
			break;
		assert_string_equal(w->trace, "COMPILE KILL GONE ");
	}
	assert_string_equal(w->trace, "KILL GONE ");
	begin_with(w, EXECUTE_ARCHIVE, archive_of("prog", "out=2", 0));
	reach(w, "ADD");
	exec_task_free(take_ptr(&w->task));
	unpacker_free(w->env.unpacker); /* waits for the worker */
	w->env.unpacker = unpacker_new(w->loop);
	assert_int_equal(w->n_end, 0);
}

static void a_held_result_is_dropped_at_once(void **state)
{
	struct world *w = *state;

	judge(w, "{\"language\":\"script\",\"source\":\"out=1\"}");
	exec_task_end(w->task, "accepted");
	assert_false(exec_task_is_held(w->task));
	loop_advance_us(w->loop, US_PER_S);
	assert_int_equal(w->n_end, 1); /* no second time */
}

/* The kill comes between the program's end and the news of it: one end, without a result. */
static void a_kill_meets_the_result(void **state)
{
	struct world *w = *state;

	begin(w, "{\"language\":\"script\",\"source\":\"run_us=1000 kill_us=0\"}");
	reach(w, "RUN");
	loop_advance_us(w->loop, 1000);
	if (!w->n_end)
		exec_task_end(w->task, "cancelled");
	finish(w);
	assert_int_equal(w->n_end, 1);
}

/* Freed in every state of its life: nothing leaks, nothing calls back. */
static void freed_at_any_moment(void **state)
{
	struct world *w = *state;
	char json[512];

	snprintf(json, sizeof(json), LONG_TASK, 1);
	for (int64_t at_us = 0; at_us < 900000; at_us += 37000) {
		unsigned n_end;

		begin(w, json);
		loop_advance_us(w->loop, at_us);
		n_end = w->n_end;
		exec_task_free(take_ptr(&w->task));
		loop_advance_us(w->loop, US_PER_S);
		assert_int_equal(w->n_end, n_end);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(accepted),
		TEST(input_reaches_the_program),
		TEST(wrong_answer),
		TEST(compiled_then_run),
		TEST(compile_error),
		TEST(compile_limits),
		TEST(raw_commands),
		TEST(files_of_the_run),
		TEST(each_limit_has_its_verdict),
		TEST(output_is_cut_exactly),
		TEST(factors_of_the_language),
		TEST(cases_in_order_with_own_limits),
		TEST(a_wrong_answer_and_a_crash),
		TEST(stop_on_failure),
		TEST(a_result_is_bounded),
		TEST(our_failure_is_repeated),
		TEST(our_failure_is_never_blamed_on_the_program),
		TEST(an_unreadable_task_is_an_error),
		TEST(cancelled_in_each_state),
		TEST(ended_while_files_are_added),
		TEST(an_archive_is_unpacked),
		TEST(a_damaged_archive_is_the_tasks_fault),
		TEST(ended_while_unpacking),
		TEST(a_missing_blob_is_our_error),
		TEST(a_blob_that_cannot_be_kept_is_our_error),
		TEST(ended_while_fetching),
		TEST(a_held_result_is_dropped_at_once),
		TEST(a_kill_meets_the_result),
		TEST(freed_at_any_moment),
	};
#undef TEST

	return cmocka_run_group_tests(tests, NULL, NULL);
}
