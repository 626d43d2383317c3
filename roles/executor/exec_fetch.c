/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FETCH: every blob the task refers to is had before anything runs, and pinned until the end.
 *
 * `wanted` names each blob once, `n_had` says how many of them are here; one is asked for at a time. A blob that the judicators do
 * not know ends the task at once, as no further try would bring it; any other trouble is ours and is tried again. Sizes are known
 * only when all are here, so this is where files too large to be laid out in memory are found.
 */
#include "roles/executor/exec_task_int.h"

#include <stdlib.h>

#include "reactor/base/mem.h"
#include "roles/executor/blob_cache.h"

/* What a content refers to; NULL when it is inline. */
struct blob *exec_blob_of(const struct exec_task *task, const struct content *content)
{
	return content->blob.p ? map_get(&task->blobs, content->blob) : NULL;
}

/* Absent when the content is, or when there is no memory to look at it. */
struct str exec_bytes_of(const struct exec_task *task, const struct content *content)
{
	struct blob *blob = exec_blob_of(task, content);

	return blob ? blob_map(blob) : content->bytes;
}

static void note_wanted(void *arg, struct content *content, const char *pointer)
{
	struct exec_task *task = arg;

	if (!content->blob.p || map_set(&task->blobs, content->blob, task))
		return;
	task->wanted = mem_resize(task->wanted, (task->n_wanted + 1) * sizeof(*task->wanted));
	task->wanted[task->n_wanted++] = content->blob;
}

/* Before anything else: the map holds marks only here. */
void exec_list_wanted(struct exec_task *task)
{
	map_init(&task->blobs);
	if (task->task)
		task_each_content(task->task, note_wanted, task);
	map_fini(&task->blobs);
	map_init(&task->blobs);
}

void exec_drop_blobs(struct exec_task *task)
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
	const struct blob *blob = exec_blob_of(task, content);

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

	exec_step_succeeded(task);
	_Static_assert(TASK_FILES_BYTES_MAX == 256 << 20, "said above");
	if (are_too_large(task, &task->task->compile->files, &task->task->compile->source))
		return exec_submission_is_bad(task, "compile", "files", why);
	if (are_too_large(task, &task->task->execute->files, NULL))
		return exec_submission_is_bad(task, "execute", "files", why);
	return PREPARE;
}

static int no_blob(struct exec_task *task, bool is_missing, const char *why)
{
	struct str name = task->wanted[task->n_had];

	if (!is_missing)
		return exec_we_failed(task, "fetching a blob", why);
	free(task->reason);
	task->reason = mem_printf(
		"the blob " STR_FMT " is not in the judicators' store any more", STR_ARG(name));
	task->verdict = VERDICT_SYSTEM_ERROR;
	return COLLECT;
}

static void on_blob(void *arg, struct blob *blob, bool is_missing, const char *why)
{
	struct exec_task *task = arg;
	int next;

	task->blob_wait = NULL;
	if (blob) {
		map_set(&task->blobs, task->wanted[task->n_had++], blob);
		next = exec_fetch_next(task);
	} else {
		next = no_blob(task, is_missing, why);
	}
	if (next != FSM_WAIT)
		fsm_go(&task->fsm, next, blob ? "fetched" : "failed");
}

int exec_fetch_next(struct exec_task *task)
{
	if (task->n_had == task->n_wanted)
		return all_are_here(task);
	task->blob_wait =
		blob_cache_want(task->env.blobs, task->wanted[task->n_had], on_blob, task);
	return FSM_WAIT;
}

int exec_enter_fetch(void *owner)
{
	return exec_fetch_next(owner);
}
