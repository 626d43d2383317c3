/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept of each program's end, and COLLECT: the result made of it.
 *
 * Output is what makes a result large. Each stream is captured within a bound of its own; past RESULT_TEXT_MAX in one result the
 * later ones are cut short, never left out, and never within a character. The result's status and verdict are not the same
 * question: one asks whether every program ran, the other what was wrong first.
 */
#include "roles/executor/exec_task_int.h"

#include <inttypes.h>
#include <stdlib.h>

#include "reactor/base/mem.h"

/* What one result may hold of outputs: it travels in one message, where a byte may take six. Past it each output keeps its
 * first SHORT_TEXT bytes. */
#define RESULT_TEXT_MAX ((size_t)4 << 20)
#define SHORT_TEXT 1024

const struct task_case *exec_case_at(const struct exec_task *task, size_t i)
{
	return codec_item(task->task->cases, struct task_case, i);
}

void exec_captures_reset(struct exec_task *task)
{
	capture_fini(&task->out);
	capture_fini(&task->err);
	capture_init(&task->out);
	capture_init(&task->err);
	checker_free(take_ptr(&task->checker));
}

/*** What is kept of a run ***/

static size_t cut_at_character(const struct buf *text, size_t at)
{
	while (at > 0 && ((unsigned char)text->data[at] & 0xc0) == 0x80)
		at--;
	return at;
}

static struct str keep_text(struct exec_task *task, const struct capture *capture, bool *truncated)
{
	struct buf text = BUF_INIT;
	size_t n;

	capture_write(capture, &text);
	*truncated = capture_is_truncated(capture);
	n = text.len;
	if (n > SHORT_TEXT && task->kept_text + n > RESULT_TEXT_MAX) {
		n = cut_at_character(&text, SHORT_TEXT);
		*truncated = true;
	}
	task->kept_text += n;
	return (struct str){buf_take(&text), n};
}

void exec_keep_phase(
	struct exec_task *task, struct result_phase *phase, const struct box_result *result)
{
	phase->exit_code = result->end == BOX_EXITED ? result->exit_code : -1;
	phase->signal = result->end == BOX_EXITED ? 0 : result->signal;
	phase->cpu_us = result->cpu_us;
	phase->wall_us = result->wall_us;
	phase->memory_bytes = result->memory_bytes;
	if (result->limit != BOX_L_NONE) {
		phase->limit = mem_alloc(sizeof(*phase->limit));
		phase->limit->name = str_from(box_limit_wire_name(result->limit));
		phase->limit->allowed = result->allowed;
		phase->limit->measured = result->measured;
	}
	phase->out_bytes = task->out.total;
	phase->err_bytes = task->err.total;
	phase->out = keep_text(task, &task->out, &phase->out_truncated);
	phase->err = keep_text(task, &task->err, &phase->err_truncated);
	exec_captures_reset(task);
}

void exec_phase_fini(struct result_phase *phase)
{
	free((char *)phase->out.p);
	free((char *)phase->err.p);
	free((char *)phase->message.p);
	free(phase->limit);
	*phase = (struct result_phase){0};
}

/*** COLLECT ***/

static void sum_up(const struct exec_task *task, struct result *result)
{
	for (size_t i = 0; i < task->task->cases.count; i++)
		result->max_score += exec_case_at(task, i)->points;
	for (size_t i = 0; i < task->n_cases; i++)
		result->score += task->cases[i].points;
}

/* The verdict is the first case's that is not accepted; the status says whether every program ran: a wrong answer first and a crash
 * later is wrong_answer, run_failed. */
static enum task_status final_status(const struct exec_task *task)
{
	enum task_status status = verdict_status(task->verdict);

	for (size_t i = 0; i < task->n_cases && status == TASK_SUCCESS; i++) {
		enum verdict verdict;

		if (verdict_parse(task->cases[i].verdict, &verdict))
			status = verdict_status(verdict);
	}
	return status;
}

/* The one line to find a task's end by: its most expensive case. */
static void log_outcome(const struct exec_task *task, const struct result *result)
{
	int64_t cpu_us = 0, wall_us = 0, memory_bytes = 0;

	for (size_t i = 0; i < task->n_cases; i++) {
		const struct result_phase *one = &task->cases[i];

		cpu_us = one->cpu_us > cpu_us ? one->cpu_us : cpu_us;
		wall_us = one->wall_us > wall_us ? one->wall_us : wall_us;
		memory_bytes = one->memory_bytes > memory_bytes ? one->memory_bytes : memory_bytes;
	}
	log_info(task->env.log, "task_done",
		"id=%s status=%s verdict=%s score=%" PRId64 " cases=%zu cpu_us=%" PRId64
		" wall_us=%" PRId64 " memory_bytes=%" PRId64,
		task->label, task->outcome.status, task->outcome.verdict, result->score,
		task->n_cases, cpu_us, wall_us, memory_bytes);
}

int exec_enter_collect(void *owner)
{
	struct exec_task *task = owner;
	struct result result = {
		.compile = task->compiled,
		.cases = {task->cases, task->n_cases},
		.isolation = str_from(box_host_isolation(task->env.box)),
	};

	if (task->verdict == VERDICT_NONE)
		task->verdict = VERDICT_ACCEPTED;
	if (task->verdict == VERDICT_SYSTEM_ERROR)
		result.message = str_from(task->reason);
	if (task->task)
		sum_up(task, &result);
	task->outcome.status = task_status_name(final_status(task));
	task->outcome.verdict = verdict_name(task->verdict);
	result.verdict = str_from(task->outcome.verdict);
	result_write(&result, &task->json);
	task->outcome.json = buf_str(&task->json);
	log_outcome(task, &result);
	exec_let_go_of_all_but_the_result(task);
	return HELD;
}
