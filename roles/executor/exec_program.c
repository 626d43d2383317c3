/* SPDX-License-Identifier: Apache-2.0 */
/*
 * COMPILE and RUN: the program in the box, the compiler first and then the task's own, once a case.
 *
 * Each begins with enter_*(), which puts together command, limits and input and hands them to the box; on_done() is where every
 * program ends, whichever it was. There what the box says becomes a verdict, by one table (case_verdict()) and the checker, or it
 * becomes a failure of ours; what the box gives back of files is ours in each case.
 */
#include "roles/executor/exec_task_int.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "cfg/language.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "roles/executor/blob_cache.h"

/*** The program in the box ***/

/* The task's own command if it has one, else the profile's; NULL when there is neither. A name without a slash is
 * looked for by the box, where its programs are. */
static char **make_argv(const struct exec_task *task, const struct codec_list *command,
	char **profile, int64_t memory_bytes)
{
	char **argv;

	if (!command || !command->count)
		return profile ? language_argv(task->language, profile, memory_bytes) : NULL;
	argv = mem_array(command->count + 1, sizeof(char *));
	for (size_t i = 0; i < command->count; i++)
		argv[i] = str_dup(*codec_item(*command, struct str, i));
	return argv;
}

static struct box_limits box_limits_of(const struct limits *limits, int64_t memory_extra)
{
	return (struct box_limits){
		.cpu_us = limits->cpu_ms * US_PER_MS,
		.wall_us = limits->wall_ms * US_PER_MS,
		.memory_bytes = limits->memory_bytes + memory_extra,
		.output_bytes = limits->output_bytes,
		.file_bytes = limits->file_bytes,
		.processes = limits->processes,
		.stack_bytes = limits->stack_bytes,
	};
}

static void on_started(void *arg)
{
	struct exec_task *task = arg;

	task->started = true;
}

static void on_output(void *arg, int stream, struct str bytes)
{
	struct exec_task *task = arg;

	capture_add(stream == 1 ? &task->out : &task->err, bytes);
	if (stream == 1 && task->checker)
		checker_feed(task->checker, bytes);
}

static void on_done(void *arg, const struct box_result *result);

/* A result's bundle is ours, wanted or not. */
static void drop_files(const struct box_result *result)
{
	int fd = result->files_fd;

	files_close(&fd);
}

static int start_program(
	struct exec_task *task, char **argv, int stdin_fd, const struct box_spec *rest)
{
	static const struct box_events events = {on_started, on_output, on_done};
	struct box_spec spec = *rest;
	int error;

	spec.argv = argv;
	spec.env = task->language ? task->language->environment : NULL;
	spec.stdin_fd = stdin_fd;
	task->started = false;
	error = box_run(task->env.box, &spec, &events, task, &task->run);
	return error ? exec_we_failed(task, "the sandbox took no program", strerror(-error))
		     : FSM_WAIT;
}

/* A run that outlived every limit: the box does not do its work. */
void exec_box_is_late(void *owner)
{
	struct exec_task *task = owner;

	box_run_cancel(&task->run);
	task->started = false;
	fsm_go(&task->fsm, exec_we_failed(task, "the sandbox", "did not end a program in time"),
		"late");
}

/*** COMPILE ***/

int exec_enter_compile(void *owner)
{
	struct exec_task *task = owner;
	const struct task_compile *compile = task->task->compile;
	const struct language *language = task->language;
	struct box_spec spec = {.files_fd = task->sources.fd, .collect = true};
	char **argv;
	int next;

	task->limits = compile && compile->limits ? *compile->limits : (struct limits){0};
	if (language && !task->limits.memory_bytes)
		task->limits.memory_bytes = language->compile_memory_bytes;
	limits_fill(
		&task->limits, NULL, PHASE_COMPILE, language ? language->compile_cpu_percent : 100);
	spec.limits = box_limits_of(&task->limits, 0);
	spec.collect_max = (uint64_t)task->limits.file_bytes;
	argv = make_argv(task, compile ? &compile->command : NULL,
		language ? language->compile : NULL, task->limits.memory_bytes);
	exec_captures_reset(task);
	next = start_program(task, argv, -1, &spec);
	language_argv_free(argv);
	return next;
}

static int compile_is_done(struct exec_task *task, const struct box_result *result)
{
	bool good = result->end == BOX_EXITED && result->exit_code == 0;

	if (good && result->files_fd < 0)
		return exec_we_failed(
			task, "the sandbox", "gave back nothing of what was compiled");
	exec_step_succeeded(task);
	task->compiled = mem_alloc(sizeof(*task->compiled));
	exec_keep_phase(task, task->compiled, result);
	files_fini(&task->sources);
	if (good) {
		task->built = result->files_fd;
		return exec_step_to_run(task);
	}
	drop_files(result);
	task->verdict = VERDICT_COMPILE_ERROR;
	return COLLECT;
}

/*** RUN ***/

static void fill_case_limits(struct exec_task *task)
{
	const struct task_execute *execute = task->task->execute;
	const struct task_case *one = exec_case_at(task, task->case_no);
	const struct limits *over = execute ? execute->limits : NULL;
	struct limits *limits = &task->limits;

	*limits = one->limits ? *one->limits : (struct limits){0};
	if (task->language && !limits->processes && !(over && over->processes))
		limits->processes = task->language->run_processes;
	limits_fill(limits, over, PHASE_RUN, task->language ? task->language->cpu_percent : 100);
}

/* A blob is given as it is: a file nobody can write to. */
static int case_input(const struct exec_task *task, const struct task_case *one, int *fd)
{
	const struct blob *blob = exec_blob_of(task, &one->input);

	if (!blob)
		return files_input(one->input.bytes, fd);
	*fd = blob->size ? fcntl(blob->fd, F_DUPFD_CLOEXEC, 3) : -1;
	return blob->size && *fd < 0 ? -errno : 0;
}

static int start_case(struct exec_task *task)
{
	const struct task_execute *execute = task->task->execute;
	const struct task_case *one = exec_case_at(task, task->case_no);
	const struct language *language = task->language;
	struct box_spec spec = {.files_fd = task->program, .files_read_only = true};
	char **argv;
	struct str expected = exec_bytes_of(task, &one->expected);
	int input, next;
	int error = case_input(task, one, &input);

	if (error)
		return exec_we_failed(task, "writing the input", strerror(-error));
	if (!expected.p && !content_is_absent(&one->expected)) {
		files_close(&input);
		return exec_we_failed(task, "reading the expected output", "out of memory");
	}
	fill_case_limits(task);
	spec.limits = box_limits_of(&task->limits, language ? language->run_memory_extra : 0);
	exec_captures_reset(task);
	task->checker = task_checker_new(task->task, expected);
	argv = make_argv(task, execute ? &execute->command : NULL, language ? language->run : NULL,
		task->limits.memory_bytes);
	next = start_program(task, argv, input, &spec);
	language_argv_free(argv);
	files_close(&input);
	return next;
}

int exec_enter_run(void *owner)
{
	struct exec_task *task = owner;

	task->status = TASK_RUNNING;
	if (task->events.on_progress)
		task->events.on_progress(task->arg);
	return start_case(task);
}

/* VERDICT_NONE: it ended well, the checker decides. */
static enum verdict case_verdict(const struct box_result *result)
{
	static const enum verdict of_limit[] = {
		[BOX_L_NONE] = VERDICT_RUNTIME_ERROR,
		[BOX_L_CPU] = VERDICT_TIME_LIMIT,
		[BOX_L_WALL] = VERDICT_WALL_LIMIT,
		[BOX_L_MEMORY] = VERDICT_MEMORY_LIMIT,
		[BOX_L_OUTPUT] = VERDICT_OUTPUT_LIMIT,
		[BOX_L_FILE] = VERDICT_OUTPUT_LIMIT,
		[BOX_L_PROCESSES] = VERDICT_RUNTIME_ERROR,
		[BOX_L_STACK] = VERDICT_RUNTIME_ERROR,
	};

	/* A program that ran into file_bytes has not written all it wanted, however it then ended. */
	if (result->end == BOX_LIMIT || result->limit == BOX_L_FILE)
		return of_limit[result->limit];
	if (result->end == BOX_SIGNALED || result->exit_code != 0)
		return VERDICT_RUNTIME_ERROR;
	return VERDICT_NONE;
}

static enum verdict judge_case(struct exec_task *task, const struct box_result *result)
{
	struct result_phase *phase = &task->cases[task->case_no];
	enum verdict verdict = case_verdict(result);
	char message[CHECKER_MESSAGE_MAX] = "";

	if (verdict == VERDICT_NONE)
		verdict = checker_accepts(task->checker, message) ? VERDICT_ACCEPTED
								  : VERDICT_WRONG_ANSWER;
	exec_keep_phase(task, phase, result);
	phase->verdict = str_from(verdict_name(verdict));
	if (verdict == VERDICT_WRONG_ANSWER)
		phase->message = str_from(mem_strdup(message));
	if (verdict == VERDICT_ACCEPTED)
		phase->points = exec_case_at(task, task->case_no)->points;
	return verdict;
}

static int case_is_done(struct exec_task *task, const struct box_result *result)
{
	enum verdict verdict = judge_case(task, result);

	exec_step_succeeded(task);
	drop_files(result);
	task->n_cases = task->case_no + 1;
	if (verdict != VERDICT_ACCEPTED && task->verdict == VERDICT_NONE)
		task->verdict = verdict;
	if (task->n_cases == task->task->cases.count ||
		(task->task->stop_on_failure && verdict != VERDICT_ACCEPTED))
		return COLLECT;
	task->case_no++;
	return RUN;
}

static void on_done(void *arg, const struct box_result *result)
{
	struct exec_task *task = arg;
	int next;

	task->run = NULL;
	if (result->end == BOX_FAILED && task->started)
		task->suspect = true;
	task->started = false;
	if (task->fsm.state == KILL) {
		drop_files(result);
		fsm_go(&task->fsm, GONE, "reaped");
		return;
	}
	if (result->end == BOX_FAILED || result->end == BOX_KILLED) {
		drop_files(result);
		next = exec_we_failed(task, "the sandbox",
			result->failure ? result->failure : "killed the program unasked");
	} else if (task->fsm.state == COMPILE) {
		next = compile_is_done(task, result);
	} else {
		next = case_is_done(task, result);
	}
	fsm_go(&task->fsm, next, "ended");
}
