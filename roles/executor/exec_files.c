/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PREPARE and ADD: the files of a task become bundles, before the compiler runs and before the program does.
 *
 * Both work in slices, one a turn of the loop (`slice`), so that no task's files hold up the others; an archive goes to the worker
 * instead (`unpack`) and comes back as a bundle, or as the submission's fault. What follows each is decided here: a step that has
 * nothing to do is left out, so a bundle goes from `sources` to `built` to `program` without a copy where nothing changes it.
 */
#include "roles/executor/exec_task_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cfg/language.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "roles/executor/blob_cache.h"
#include "roles/executor/unpack.h"
#include "rpc/task/archive.h"

#define UNPACK_BUSY_US (20 * US_PER_MS) /* until the worker is asked again */

/*** Archives ***/

static void on_unpacked(void *arg, int error, int fd, const char *why);

static int unpack(struct exec_task *task, const struct content *archive)
{
	const struct blob *blob = exec_blob_of(task, archive);
	int error = unpack_start(task->env.unpacker, archive->bytes, blob ? blob->fd : -1,
		on_unpacked, task, &task->unpack);

	if (error == UNPACK_E_BUSY)
		timer_start(&task->slice, UNPACK_BUSY_US);
	else if (error)
		return exec_we_failed(task, "unpacking the archive", strerror(-error));
	return FSM_WAIT;
}

/* The gateway has looked into it, but only its bytes tell all. */
static int archive_is_bad(struct exec_task *task, const char *why)
{
	return exec_submission_is_bad(
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

void exec_drop_added(struct exec_task *task)
{
	bundle_close(&task->added);
	files_close(&task->added_fd);
	free(task->added_files.items);
	task->added_files = (struct codec_list){NULL, 0};
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
int exec_step_to_run(struct exec_task *task)
{
	const struct task_execute *execute = task->task->execute;

	if (execute && (execute->files.count || !content_is_absent(&execute->archive)))
		return ADD;
	task->program = take_fd(&task->built);
	return RUN;
}

static int sources_are_written(struct exec_task *task)
{
	exec_step_succeeded(task);
	if (has_compile_step(task))
		return COMPILE;
	task->built = take_fd(&task->sources.fd);
	return exec_step_to_run(task);
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
		return exec_we_failed(task, "writing the sources", strerror(-error));
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
		return exec_we_failed(task, "adding the files of the run", strerror(-error));
	if (!done) {
		timer_start(&task->slice, 0);
		return FSM_WAIT;
	}
	exec_step_succeeded(task);
	task->program = take_fd(&task->merge.out.fd);
	files_merge_fini(&task->merge);
	exec_drop_added(task);
	files_close(&task->built);
	return RUN;
}

void exec_on_slice(void *arg)
{
	struct exec_task *task = arg;
	int next;

	if (task->verdict == VERDICT_SYSTEM_ERROR) {
		fsm_go(&task->fsm, COLLECT, "refused");
		return;
	}
	next = task->fsm.state == FETCH ? exec_fetch_next(task)
	       : task->fsm.state == ADD ? add_slice(task)
					: prepare_slice(task);
	if (next != FSM_WAIT)
		fsm_go(&task->fsm, next, "written");
}

int exec_enter_prepare(void *owner)
{
	struct exec_task *task = owner;

	timer_start(&task->slice, 0);
	return FSM_WAIT;
}

/*** ADD ***/

int exec_enter_add(void *owner)
{
	struct exec_task *task = owner;
	int error;

	if (is_still_packed(task))
		return unpack(task, &task->task->execute->archive);
	error = files_merge_start(&task->merge, task->built, LIMIT_FILE_MAX + TASK_FILES_BYTES_MAX,
		files_to_add(task));
	if (error == -EBADMSG || error == -EFBIG)
		return exec_we_failed(task, "what was compiled", "came back malformed");
	if (error)
		return exec_we_failed(task, "adding the files of the run", strerror(-error));
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
		next = exec_we_failed(task, "unpacking the archive", strerror(-error));
	else
		next = task->fsm.state == ADD ? exec_enter_add(task) : sources_are_written(task);
	if (next != FSM_WAIT)
		fsm_go(&task->fsm, next, "unpacked");
}
