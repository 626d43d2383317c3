/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What holds of blobs, over rows; where their bytes are is the backend's business.
 *
 *   put, known  -> a row (name, size, used), and (name, user): the user has shown the bytes
 *   add         -> used = now, and (name, task), in the transaction that adds the task
 *   collect     -> rows go that no task refers to and whose `used` is old; then, and only then, the bytes
 *
 * Bytes are there before their row and go after it, so a row always has its bytes. A user who has not shown the bytes is told the
 * same as if there were none: a hash alone reads nobody's tests, and does not even tell that somebody has them.
 */
#include "roles/judicator/store/rules.h"

#include <stdlib.h>

#include "reactor/base/mem.h"

void rows_blobs_add(struct rows_blobs *list, const struct rows_blob *blob)
{
	if (list->count == list->cap) {
		list->cap = list->cap ? list->cap * 2 : 8;
		list->items = mem_resize(list->items, list->cap * sizeof(*list->items));
	}
	list->items[list->count++] = *blob;
}

void rows_blobs_fini(struct rows_blobs *list)
{
	free(list->items);
	*list = (struct rows_blobs){0};
}

static struct str owner(struct str user)
{
	return user.p ? user : STR("");
}

/* Used now; never backwards, whatever the wall clock does. */
static int touch(struct rules *r, struct rows_blob *blob)
{
	if (blob->used_us >= r->now_us)
		return 0;
	blob->used_us = r->now_us;
	return r->rows->ops->blob_put(r->rows, blob);
}

int rules_blob_known(struct rules *r, struct str name, struct str user)
{
	const struct rows_ops *ops = r->rows->ops;
	struct rows_blob blob;
	int err = ops->blob_get(r->rows, name, &blob);

	if (err)
		return err < 0 ? err : STORE_UNKNOWN;
	err = touch(r, &blob);
	if (err >= 0)
		err = ops->blob_own(r->rows, name, owner(user));
	return err < 0 ? err : STORE_OK;
}

int rules_blob_keep(struct rules *r, struct str name, int64_t size, struct str user, bool *created)
{
	struct rows_blob blob = {.size = size, .used_us = r->now_us};
	int status = rules_blob_known(r, name, user);

	*created = status == STORE_UNKNOWN;
	if (!*created)
		return status;
	CHECK(name.n == BLOB_NAME_LEN);
	memcpy(blob.name, name.p, name.n);
	status = r->rows->ops->blob_put(r->rows, &blob);
	if (status >= 0)
		status = r->rows->ops->blob_own(r->rows, name, owner(user));
	return status < 0 ? status : STORE_OK;
}

int rules_blob_look(struct rules *r, struct str name, struct str user, int64_t *size)
{
	struct rows_blob blob;
	int err = r->rows->ops->blob_get(r->rows, name, &blob);

	if (!err && user.p)
		err = r->rows->ops->blob_owned(r->rows, name, user);
	if (err)
		return err < 0 ? err : STORE_UNKNOWN;
	*size = blob.size;
	return STORE_OK;
}

/* 0, ROWS_NONE or negative. */
static int use(struct rules *r, const struct msg_add_request *request, struct str name)
{
	struct rows_blob blob;
	int err = r->rows->ops->blob_get(r->rows, name, &blob);

	if (!err && !request->any_blob)
		err = r->rows->ops->blob_owned(r->rows, name, owner(request->user));
	return err ? err : touch(r, &blob);
}

int rules_blobs_check(struct rules *r, const struct msg_add_request *request, struct str *missing)
{
	for (size_t i = 0; i < request->blobs.count; i++) {
		struct str name = *codec_item(request->blobs, struct str, i);
		int err = use(r, request, name);

		if (err < 0)
			return err;
		if (err == ROWS_NONE) {
			*missing = record_copy(r->arena, name);
			return 0;
		}
	}
	return 0;
}

int rules_blobs_refer(
	struct rules *r, const struct msg_add_request *request, const struct rows_task *task)
{
	int err = 0;

	for (size_t i = 0; err >= 0 && i < request->blobs.count; i++)
		err = r->rows->ops->blob_refer(
			r->rows, *codec_item(request->blobs, struct str, i), task);
	return err;
}

int rules_blob_collect(struct rules *r, int64_t unused_us, struct rows_blobs *gone)
{
	const struct rows_ops *ops = r->rows->ops;
	int err = ops->blob_unused(r->rows, r->now_us - unused_us, STORE_COLLECT_MAX, gone);

	for (size_t i = 0; err >= 0 && i < gone->count; i++)
		err = ops->blob_del(r->rows, str_from(gone->items[i].name));
	return err < 0 ? err : STORE_OK;
}
