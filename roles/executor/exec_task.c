/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One task, from its document to its result.
 *
 *   PREPARE ──> COMPILE ──> RUN ─┐ next case      any of FETCH PREPARE COMPILE ADD RUN RETRY ──> KILL ──> GONE
 *      │           │  └──────│<──┘                     (cancel, shutdown, fenced)
 *      └───────────│─────────┤                    FETCH PREPARE COMPILE ADD RUN <──> RETRY   our failure: again, 3 times
 *                  └─────> COLLECT ──> HELD ──> GONE
 *                                                 FETCH comes first when the task refers to blobs
 *                                                 ADD is on the way to RUN when the run has files of its own
 *
 * FETCH    every blob the task refers to is had from the cache, one after the other, and stays until the end: so no run waits for a
 *          network. It has no deadline, as the claim has one: without a judicator nobody could take the result either, and a cancel
 *          or a fence ends it.
 * PREPARE  writes the sources into a bundle (a sealed memfd), slice by slice: nothing of ours is on a disk. An archive becomes
 *          one on a worker, within the limits of archives, which take the place of a deadline.
 * COMPILE  the compiler runs in the box on that bundle, and what it leaves comes back as another one (`built`).
 * ADD      copies `built`, slice by slice, with the files the task adds for the run over it; an archive is unpacked first.
 * RUN      the program runs on `built`, made read-only, with one case's input; once a case, in order.
 * COLLECT  the result becomes JSON; everything else is let go.
 * HELD     the result waits until a judicator has accepted it.
 * KILL     ends only when the box says that everything of the run is dead and reaped.
 *
 * At most one program is alive at any time (`run`), only in COMPILE, RUN and KILL. Nothing survives a crash of the executor:
 * the box dies with it, and the judicator gives the task to another.
 *
 * "The task failed" is a verdict and comes from judge_case(), compile_is_done() and archive_is_bad(). "We failed" is a reason in words and goes
 * through we_failed() only: the step is repeated after a pause, and after SYSTEM_TRIES it is a system_error with
 * that reason; when the box is broken for good the task ends without a result, so that another executor gets it. Neither
 * can become the other.
 */
#include "roles/executor/exec_task.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cfg/language.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/fsm.h"
#include "reactor/loop.h"
#include "roles/executor/blob_cache.h"
#include "roles/executor/files.h"
#include "roles/executor/unpack.h"
#include "rpc/task/archive.h"

#define SYSTEM_TRIES 4 /* the first and three more */
/* What one result may hold of outputs: it travels in one message, where a byte may take six. Past it each output keeps its
 * first SHORT_TEXT bytes. */
#define RESULT_TEXT_MAX ((size_t)4 << 20)
#define SHORT_TEXT 1024
#define UNPACK_BUSY_US (20 * US_PER_MS) /* until the worker is asked again */
/* The box ends every run at its wall limit; longer than this it is broken. */
#define BOX_DEADLINE_US ((LIMIT_WALL_MS_MAX + 60 * 1000) * US_PER_MS)

enum { FETCH, PREPARE, COMPILE, ADD, RUN, RETRY, COLLECT, KILL, HELD, GONE };

struct exec_task {
	struct fsm fsm;
	struct exec_task_env env;
	struct exec_task_events events;
	void *arg;
	struct id id;
	int64_t attempt;
	char *label; /* for the log: id and attempt */
	const struct task *task;
	const struct language *language; /* NULL = raw */
	struct defer notify;
	bool notified;
	enum verdict verdict;
	/* FETCH */
	struct str *wanted; /* names, each once */
	size_t n_wanted, n_had;
	struct map blobs; /* name -> struct blob, pinned */
	struct blob_wait *blob_wait;
	/* PREPARE */
	struct timer slice;
	struct files sources;
	/* PREPARE, ADD */
	struct unpack *unpack;
	/* COMPILE, RUN: the program in the box */
	struct box_run *run;
	bool started; /* it has been exec'ed */
	bool suspect; /* the box failed under it, and no try since has succeeded */
	struct capture out, err;
	struct checker *checker; /* RUN */
	struct limits limits;
	/* RETRY, and our failures */
	int back_to;
	unsigned tries;
	struct backoff backoff;
	char *reason;
	/* ADD */
	struct files_merge merge;
	int added_fd; /* execute.archive, unpacked; -1 = not, or there is none */
	struct bundle added;
	struct codec_list added_files; /* ours; their bytes are in `added` */
	/* COMPILE -> RUN */
	enum task_status status; /* as readers see it: TASK_COMPILING until the first case runs */
	int built;               /* bundle: what was compiled, or the sources */
	int program;             /* bundle: what the cases run */
	size_t case_no;
	/* what is known so far */
	struct result_phase *compiled; /* NULL = nothing was, so far */
	struct result_phase *cases;
	size_t n_cases;
	size_t kept_text;
	/* HELD */
	struct buf json;
	struct exec_task_outcome outcome;
};

static const struct task_case *case_at(const struct exec_task *task, size_t i)
{
	return codec_item(task->task->cases, struct task_case, i);
}

/* What a content refers to; NULL when it is inline. */
static struct blob *blob_of(const struct exec_task *task, const struct content *content)
{
	return content->blob.p ? map_get(&task->blobs, content->blob) : NULL;
}

/* Absent when the content is, or when there is no memory to look at it. */
static struct str bytes_of(const struct exec_task *task, const struct content *content)
{
	struct blob *blob = blob_of(task, content);

	return blob ? blob_map(blob) : content->bytes;
}

/*** Our own failures ***/

/* Names the next state: the same step again, or the end with a system_error. */
static int we_failed(struct exec_task *task, const char *what, const char *why)
{
	char quoted[LOG_QUOTE_MAX];

	free(task->reason);
	task->reason = mem_printf("%s: %s", what, why);
	task->tries++;
	if (task->env.system_failures)
		++*task->env.system_failures;
	log_warn(task->env.log, "system_failure", "id=%s try=%u reason=%s", task->label,
		task->tries, log_quote(str_from(task->reason), quoted));
	/* Nothing will ever run here again: the task has no result of ours, it must go to another executor. */
	if (box_host_failure(task->env.box))
		return KILL;
	if (task->tries >= SYSTEM_TRIES) {
		task->verdict = VERDICT_SYSTEM_ERROR;
		return COLLECT;
	}
	task->back_to = task->fsm.state;
	return RETRY;
}

static int enter_retry(void *owner)
{
	struct exec_task *task = owner;

	fsm_set_deadline(&task->fsm, backoff_next(&task->backoff, task->env.loop));
	return FSM_WAIT;
}

static void retry_is_due(void *owner)
{
	struct exec_task *task = owner;

	fsm_go(&task->fsm, task->back_to, "retry");
}

static void step_succeeded(struct exec_task *task)
{
	task->tries = 0;
	task->suspect = false;
	backoff_reset(&task->backoff);
}

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

static void captures_reset(struct exec_task *task)
{
	capture_fini(&task->out);
	capture_fini(&task->err);
	capture_init(&task->out);
	capture_init(&task->err);
	checker_free(take_ptr(&task->checker));
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
	return error ? we_failed(task, "the sandbox took no program", strerror(-error)) : FSM_WAIT;
}

/* A run that outlived every limit: the box does not do its work. */
static void box_is_late(void *owner)
{
	struct exec_task *task = owner;

	box_run_cancel(&task->run);
	task->started = false;
	fsm_go(&task->fsm, we_failed(task, "the sandbox", "did not end a program in time"), "late");
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

static void keep_phase(
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
	captures_reset(task);
}

static void phase_fini(struct result_phase *phase)
{
	free((char *)phase->out.p);
	free((char *)phase->err.p);
	free((char *)phase->message.p);
	free(phase->limit);
	*phase = (struct result_phase){0};
}

/*** Archives ***/

static void on_unpacked(void *arg, int error, int fd, const char *why);

static int unpack(struct exec_task *task, const struct content *archive)
{
	const struct blob *blob = blob_of(task, archive);
	int error = unpack_start(task->env.unpacker, archive->bytes, blob ? blob->fd : -1,
		on_unpacked, task, &task->unpack);

	if (error == UNPACK_E_BUSY)
		timer_start(&task->slice, UNPACK_BUSY_US);
	else if (error)
		return we_failed(task, "unpacking the archive", strerror(-error));
	return FSM_WAIT;
}

/* What is compiled or laid out is at fault. */
static int submission_is_bad(
	struct exec_task *task, const char *phase, const char *what, const char *why)
{
	step_succeeded(task);
	if (!task->compiled) {
		task->compiled = mem_alloc(sizeof(*task->compiled));
		task->compiled->exit_code = -1;
	}
	task->compiled->message = str_from(mem_printf("%s.%s: %s", phase, what, why));
	task->verdict = VERDICT_COMPILE_ERROR;
	return COLLECT;
}

/* The gateway has looked into it, but only its bytes tell all. */
static int archive_is_bad(struct exec_task *task, const char *why)
{
	return submission_is_bad(
		task, task->fsm.state == ADD ? "execute" : "compile", "archive", why);
}

/* The bundle's entries as the files to add. */
static int list_added(struct exec_task *task, int fd)
{
	struct bundle_entry entry;
	struct task_file *file;
	uint64_t pos = 0;
	int error = bundle_open(fd, ARCHIVE_UNPACKED_MAX, &task->added);

	if (error)
		return error;
	file = mem_array(task->added.n_files, sizeof(*file));
	task->added_files = (struct codec_list){file, task->added.n_files};
	for (; bundle_next(&task->added, &pos, &entry); file++)
		*file = (struct task_file){.name = entry.name,
			.content.bytes = {entry.bytes, (size_t)entry.size},
			.executable = entry.executable};
	return 0;
}

static void drop_added(struct exec_task *task)
{
	bundle_close(&task->added);
	files_close(&task->added_fd);
	free(task->added_files.items);
	task->added_files = (struct codec_list){NULL, 0};
}

/*** FETCH ***/

static void note_wanted(void *arg, struct content *content, const char *pointer)
{
	struct exec_task *task = arg;

	if (!content->blob.p || map_set(&task->blobs, content->blob, task))
		return;
	task->wanted = mem_resize(task->wanted, (task->n_wanted + 1) * sizeof(*task->wanted));
	task->wanted[task->n_wanted++] = content->blob;
}

/* Before anything else: the map holds marks only here. */
static void list_wanted(struct exec_task *task)
{
	map_init(&task->blobs);
	if (task->task)
		task_each_content(task->task, note_wanted, task);
	map_fini(&task->blobs);
	map_init(&task->blobs);
}

static void drop_blobs(struct exec_task *task)
{
	blob_wait_cancel(&task->blob_wait);
	map_each (it, &task->blobs) {
		struct blob *blob = map_entry_of(it)->value;

		blob_release(&blob);
	}
	map_fini(&task->blobs);
	map_init(&task->blobs);
	free(take_ptr(&task->wanted));
	task->n_wanted = task->n_had = 0;
}

static int64_t size_of(const struct exec_task *task, const struct content *content)
{
	const struct blob *blob = blob_of(task, content);

	return blob ? blob->size : (int64_t)content->bytes.n;
}

/* Files are laid out in memory. What is inline has been held against the body's limit. */
static bool are_too_large(
	const struct exec_task *task, const struct codec_list *files, const struct content *source)
{
	int64_t bytes = source ? size_of(task, source) : 0;

	for (size_t i = 0; i < files->count; i++)
		bytes += size_of(task, &codec_item(*files, struct task_file, i)->content);
	return bytes > TASK_FILES_BYTES_MAX;
}

static int all_are_here(struct exec_task *task)
{
	static const char why[] = "they have more than 256 MiB";

	step_succeeded(task);
	_Static_assert(TASK_FILES_BYTES_MAX == 256 << 20, "said above");
	if (are_too_large(task, &task->task->compile->files, &task->task->compile->source))
		return submission_is_bad(task, "compile", "files", why);
	if (are_too_large(task, &task->task->execute->files, NULL))
		return submission_is_bad(task, "execute", "files", why);
	return PREPARE;
}

static int no_blob(struct exec_task *task, bool is_missing, const char *why)
{
	struct str name = task->wanted[task->n_had];

	if (!is_missing)
		return we_failed(task, "fetching a blob", why);
	free(task->reason);
	task->reason = mem_printf(
		"the blob " STR_FMT " is not in the judicators' store any more", STR_ARG(name));
	task->verdict = VERDICT_SYSTEM_ERROR;
	return COLLECT;
}

static int fetch_next(struct exec_task *task);

static void on_blob(void *arg, struct blob *blob, bool is_missing, const char *why)
{
	struct exec_task *task = arg;
	int next;

	task->blob_wait = NULL;
	if (blob) {
		map_set(&task->blobs, task->wanted[task->n_had++], blob);
		next = fetch_next(task);
	} else {
		next = no_blob(task, is_missing, why);
	}
	if (next != FSM_WAIT)
		fsm_go(&task->fsm, next, blob ? "fetched" : "failed");
}

static int fetch_next(struct exec_task *task)
{
	if (task->n_had == task->n_wanted)
		return all_are_here(task);
	task->blob_wait =
		blob_cache_want(task->env.blobs, task->wanted[task->n_had], on_blob, task);
	return FSM_WAIT;
}

static int enter_fetch(void *owner)
{
	return fetch_next(owner);
}

/*** PREPARE ***/

static bool has_compile_step(const struct exec_task *task)
{
	const struct task_compile *compile = task->task->compile;

	return (compile && compile->command.count) || (task->language && task->language->compile);
}

static int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

/* Everything is built: the program, if there is nothing to add to it. */
static int step_to_run(struct exec_task *task)
{
	const struct task_execute *execute = task->task->execute;

	if (execute && (execute->files.count || !content_is_absent(&execute->archive)))
		return ADD;
	task->program = take_fd(&task->built);
	return RUN;
}

static int sources_are_written(struct exec_task *task)
{
	step_succeeded(task);
	if (has_compile_step(task))
		return COMPILE;
	task->built = take_fd(&task->sources.fd);
	return step_to_run(task);
}

static int write_sources(struct exec_task *task)
{
	static const struct codec_list none;
	static const struct content nothing;
	const struct task_compile *compile = task->task->compile;
	const char *name = task->language ? task->language->source : "source";
	bool done;
	int error = files_write_slice(&task->sources, str_from(name),
		compile ? &compile->source : &nothing, compile ? &compile->files : &none,
		&task->blobs, &done);

	if (error) {
		files_fini(&task->sources);
		return we_failed(task, "writing the sources", strerror(-error));
	}
	if (!done) {
		timer_start(&task->slice, 0);
		return FSM_WAIT;
	}
	return sources_are_written(task);
}

static int prepare_slice(struct exec_task *task)
{
	const struct task_compile *compile = task->task->compile;

	return compile && !content_is_absent(&compile->archive) ? unpack(task, &compile->archive)
								: write_sources(task);
}

/* What makes further work pointless. */
static const char *refusal(struct exec_task *task, const char *message)
{
	struct str language = task->task ? task->task->language : STR_NULL;

	if (!task->task)
		return message ? message : "the task cannot be read";
	if (language.p && !str_is(language, LANGUAGE_RAW))
		task->language = map_get(task->env.languages, language);
	if (language.p && !str_is(language, LANGUAGE_RAW) && !task->language)
		return "this executor does not have the task's language";
	if (!task->language && (!task->task->execute || !task->task->execute->command.count))
		return "there is nothing to run: the task has neither a language nor a command";
	return NULL;
}

/* What the run has of its own. */
static const struct codec_list *files_to_add(const struct exec_task *task)
{
	return task->added_fd >= 0 ? &task->added_files : &task->task->execute->files;
}

static bool is_still_packed(const struct exec_task *task)
{
	return !content_is_absent(&task->task->execute->archive) && task->added_fd < 0;
}

static int add_slice(struct exec_task *task)
{
	bool done;
	int error;

	if (is_still_packed(task))
		return unpack(task, &task->task->execute->archive);
	error = files_merge_slice(&task->merge, files_to_add(task), &task->blobs, &done);
	if (error)
		return we_failed(task, "adding the files of the run", strerror(-error));
	if (!done) {
		timer_start(&task->slice, 0);
		return FSM_WAIT;
	}
	step_succeeded(task);
	task->program = take_fd(&task->merge.out.fd);
	files_merge_fini(&task->merge);
	drop_added(task);
	files_close(&task->built);
	return RUN;
}

static void on_slice(void *arg)
{
	struct exec_task *task = arg;
	int next;

	if (task->verdict == VERDICT_SYSTEM_ERROR) {
		fsm_go(&task->fsm, COLLECT, "refused");
		return;
	}
	next = task->fsm.state == FETCH ? fetch_next(task)
	       : task->fsm.state == ADD ? add_slice(task)
					: prepare_slice(task);
	if (next != FSM_WAIT)
		fsm_go(&task->fsm, next, "written");
}

static int enter_prepare(void *owner)
{
	struct exec_task *task = owner;

	timer_start(&task->slice, 0);
	return FSM_WAIT;
}

/*** COMPILE ***/

static int enter_compile(void *owner)
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
	captures_reset(task);
	next = start_program(task, argv, -1, &spec);
	language_argv_free(argv);
	return next;
}

static int compile_is_done(struct exec_task *task, const struct box_result *result)
{
	bool good = result->end == BOX_EXITED && result->exit_code == 0;

	if (good && result->files_fd < 0)
		return we_failed(task, "the sandbox", "gave back nothing of what was compiled");
	step_succeeded(task);
	task->compiled = mem_alloc(sizeof(*task->compiled));
	keep_phase(task, task->compiled, result);
	files_fini(&task->sources);
	if (good) {
		task->built = result->files_fd;
		return step_to_run(task);
	}
	drop_files(result);
	task->verdict = VERDICT_COMPILE_ERROR;
	return COLLECT;
}

/*** ADD ***/

static int enter_add(void *owner)
{
	struct exec_task *task = owner;
	int error;

	if (is_still_packed(task))
		return unpack(task, &task->task->execute->archive);
	error = files_merge_start(&task->merge, task->built, LIMIT_FILE_MAX + TASK_FILES_BYTES_MAX,
		files_to_add(task));
	if (error == -EBADMSG || error == -EFBIG)
		return we_failed(task, "what was compiled", "came back malformed");
	if (error)
		return we_failed(task, "adding the files of the run", strerror(-error));
	timer_start(&task->slice, 0);
	return FSM_WAIT;
}

static void on_unpacked(void *arg, int error, int fd, const char *why)
{
	struct exec_task *task = arg;
	int next;

	task->unpack = NULL;
	if (!error && task->fsm.state == ADD) {
		task->added_fd = fd;
		error = list_added(task, fd);
	} else if (!error) {
		task->sources.fd = fd;
	}
	if (error == -EBADMSG && why[0])
		next = archive_is_bad(task, why);
	else if (error)
		next = we_failed(task, "unpacking the archive", strerror(-error));
	else
		next = task->fsm.state == ADD ? enter_add(task) : sources_are_written(task);
	if (next != FSM_WAIT)
		fsm_go(&task->fsm, next, "unpacked");
}

/*** RUN ***/

static void fill_case_limits(struct exec_task *task)
{
	const struct task_execute *execute = task->task->execute;
	const struct task_case *one = case_at(task, task->case_no);
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
	const struct blob *blob = blob_of(task, &one->input);

	if (!blob)
		return files_input(one->input.bytes, fd);
	*fd = blob->size ? fcntl(blob->fd, F_DUPFD_CLOEXEC, 3) : -1;
	return blob->size && *fd < 0 ? -errno : 0;
}

static int start_case(struct exec_task *task)
{
	const struct task_execute *execute = task->task->execute;
	const struct task_case *one = case_at(task, task->case_no);
	const struct language *language = task->language;
	struct box_spec spec = {.files_fd = task->program, .files_read_only = true};
	char **argv;
	struct str expected = bytes_of(task, &one->expected);
	int input, next;
	int error = case_input(task, one, &input);

	if (error)
		return we_failed(task, "writing the input", strerror(-error));
	if (!expected.p && !content_is_absent(&one->expected)) {
		files_close(&input);
		return we_failed(task, "reading the expected output", "out of memory");
	}
	fill_case_limits(task);
	spec.limits = box_limits_of(&task->limits, language ? language->run_memory_extra : 0);
	captures_reset(task);
	task->checker = task_checker_new(task->task, expected);
	argv = make_argv(task, execute ? &execute->command : NULL, language ? language->run : NULL,
		task->limits.memory_bytes);
	next = start_program(task, argv, input, &spec);
	language_argv_free(argv);
	files_close(&input);
	return next;
}

static int enter_run(void *owner)
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
	keep_phase(task, phase, result);
	phase->verdict = str_from(verdict_name(verdict));
	if (verdict == VERDICT_WRONG_ANSWER)
		phase->message = str_from(mem_strdup(message));
	if (verdict == VERDICT_ACCEPTED)
		phase->points = case_at(task, task->case_no)->points;
	return verdict;
}

static int case_is_done(struct exec_task *task, const struct box_result *result)
{
	enum verdict verdict = judge_case(task, result);

	step_succeeded(task);
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
		next = we_failed(task, "the sandbox",
			result->failure ? result->failure : "killed the program unasked");
	} else if (task->fsm.state == COMPILE) {
		next = compile_is_done(task, result);
	} else {
		next = case_is_done(task, result);
	}
	fsm_go(&task->fsm, next, "ended");
}

/*** COLLECT ***/

static void sum_up(const struct exec_task *task, struct result *result)
{
	for (size_t i = 0; i < task->task->cases.count; i++)
		result->max_score += case_at(task, i)->points;
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

static void let_go_of_all_but_the_result(struct exec_task *task)
{
	task->task = NULL;
	timer_stop(&task->slice);
	unpack_cancel(&task->unpack);
	files_fini(&task->sources);
	drop_added(task);
	files_merge_fini(&task->merge);
	files_close(&task->built);
	files_close(&task->program);
	captures_reset(task); /* the checker looks into a blob */
	drop_blobs(task);
	if (task->compiled)
		phase_fini(task->compiled);
	free(take_ptr(&task->compiled));
	for (size_t i = 0; i < task->n_cases; i++)
		phase_fini(&task->cases[i]);
	task->n_cases = 0;
}

static int enter_collect(void *owner)
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
	let_go_of_all_but_the_result(task);
	return HELD;
}

/*** HELD, KILL, GONE ***/

static void on_notify(void *arg)
{
	struct exec_task *task = arg;

	task->notified = true;
	task->events.on_end(task->arg);
}

static int enter_held(void *owner)
{
	struct exec_task *task = owner;

	loop_defer(task->env.loop, &task->notify);
	return FSM_WAIT;
}

static int enter_kill(void *owner)
{
	struct exec_task *task = owner;

	timer_stop(&task->slice);
	unpack_cancel(&task->unpack);
	blob_wait_cancel(&task->blob_wait);
	if (!task->run)
		return GONE;
	box_run_kill(task->run);
	return FSM_WAIT;
}

/* Nothing may say "gone" before the box does; all there is to do is to tell somebody. */
static void kill_is_late(void *owner)
{
	struct exec_task *task = owner;

	log_error(task->env.log, "task_unkillable", "id=%s", task->label);
	box_run_kill(task->run);
	fsm_set_deadline(&task->fsm, 10 * US_PER_S);
}

static int enter_gone(void *owner)
{
	struct exec_task *task = owner;

	let_go_of_all_but_the_result(task);
	if (!task->notified)
		loop_defer(task->env.loop, &task->notify);
	return FSM_WAIT;
}

static const struct fsm_state states[] = {
	[FETCH] = {"FETCH", enter_fetch, NULL, 0,
		FSM_BIT(PREPARE) | FSM_BIT(RETRY) | FSM_BIT(COLLECT) | FSM_BIT(KILL)},
	[PREPARE] = {"PREPARE", enter_prepare, NULL, 0,
		FSM_BIT(COMPILE) | FSM_BIT(ADD) | FSM_BIT(RUN) | FSM_BIT(RETRY) | FSM_BIT(COLLECT) |
			FSM_BIT(KILL)},
	[COMPILE] = {"COMPILE", enter_compile, box_is_late, BOX_DEADLINE_US,
		FSM_BIT(ADD) | FSM_BIT(RUN) | FSM_BIT(RETRY) | FSM_BIT(COLLECT) | FSM_BIT(KILL)},
	[ADD] = {"ADD", enter_add, NULL, 0,
		FSM_BIT(RUN) | FSM_BIT(RETRY) | FSM_BIT(COLLECT) | FSM_BIT(KILL)},
	[RUN] = {"RUN", enter_run, box_is_late, BOX_DEADLINE_US,
		FSM_BIT(RUN) | FSM_BIT(RETRY) | FSM_BIT(COLLECT) | FSM_BIT(KILL)},
	[RETRY] = {"RETRY", enter_retry, retry_is_due, 0,
		FSM_BIT(FETCH) | FSM_BIT(PREPARE) | FSM_BIT(COMPILE) | FSM_BIT(ADD) | FSM_BIT(RUN) |
			FSM_BIT(KILL)},
	[COLLECT] = {"COLLECT", enter_collect, NULL, 0, FSM_BIT(HELD)},
	[KILL] = {"KILL", enter_kill, kill_is_late, 10 * US_PER_S, FSM_BIT(GONE)},
	[HELD] = {"HELD", enter_held, NULL, 0, FSM_BIT(GONE)},
	[GONE] = {"GONE", enter_gone, NULL, 0, 0},
};

static const struct fsm_table table = {
	.machine = "task", .states = states, .n_states = ARRAY_SIZE(states)};

/*** From outside ***/

static void on_change(void *arg, struct fsm *fsm, int from, int to)
{
	const struct exec_task *task = arg;

	if (task->env.on_change)
		task->env.on_change(task->env.arg, task->id.hex, task->attempt,
			fsm_state_name(fsm, from), fsm_state_name(fsm, to));
}

struct exec_task *exec_task_new(const struct exec_task_env *env, const struct id *id,
	int64_t attempt, const struct task *task_read, const char *message,
	const struct exec_task_events *events, void *arg)
{
	struct exec_task *task = mem_alloc(sizeof(*task));
	const char *refused;

	task->env = *env;
	task->events = *events;
	task->arg = arg;
	task->id = *id;
	task->attempt = attempt;
	task->label = mem_printf("%s attempt=%" PRId64, id->hex, attempt);
	task->task = task_read;
	task->status = TASK_COMPILING;
	task->built = task->program = task->sources.fd = task->added_fd = -1;
	files_merge_init(&task->merge);
	task->cases = mem_array(task_read ? task_read->cases.count : 0, sizeof(*task->cases));
	task->backoff = (struct backoff){.min_us = 50 * US_PER_MS, .max_us = 2 * US_PER_S};
	capture_init(&task->out);
	capture_init(&task->err);
	defer_init(&task->notify, on_notify, task);
	timer_init(&task->slice, env->loop, on_slice, task);
	list_wanted(task);
	fsm_init(&task->fsm, &table, env->loop, env->log, task->label, task,
		task->n_wanted ? FETCH : PREPARE);
	task->fsm.on_change = on_change;
	task->fsm.on_change_arg = task;
	refused = refusal(task, message);
	if (refused) {
		task->verdict = VERDICT_SYSTEM_ERROR;
		task->reason = mem_strdup(refused);
	}
	enter_prepare(task); /* a slice, in which a FETCH begins too */
	return task;
}

void exec_task_end(struct exec_task *task, const char *cause)
{
	if (task->fsm.state == HELD)
		fsm_go(&task->fsm, GONE, cause);
	else if (task->fsm.state != KILL && task->fsm.state != GONE)
		fsm_go(&task->fsm, KILL, cause);
}

enum task_status exec_task_status(const struct exec_task *task)
{
	return task->status;
}

int64_t exec_task_case_no(const struct exec_task *task)
{
	return (int64_t)task->case_no;
}

bool exec_task_is_held(const struct exec_task *task)
{
	return task->fsm.state == HELD;
}

bool exec_task_is_alive(const struct exec_task *task)
{
	return task->started;
}

bool exec_task_is_suspect(const struct exec_task *task)
{
	return task->suspect;
}

const struct exec_task_outcome *exec_task_outcome(const struct exec_task *task)
{
	CHECK(exec_task_is_held(task));
	return &task->outcome;
}

void exec_task_free(struct exec_task *task)
{
	if (!task)
		return;
	if (task->run)
		box_run_cancel(&task->run);
	defer_cancel(&task->notify);
	fsm_fini(&task->fsm);
	let_go_of_all_but_the_result(task);
	capture_fini(&task->out);
	capture_fini(&task->err);
	buf_fini(&task->json);
	free(task->cases);
	free(task->reason);
	free(task->label);
	loop_free_later(task->env.loop, free, task);
}
