/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs: pieces come and go in short calls, so nothing is held here; the store keeps what belongs together.
 *
 * A piece is copied out of its call, since the store needs it to the end even when the caller has gone meanwhile.
 */
#include "roles/judicator/judicator_int.h"

#include "reactor/base/mem.h"

static bool name_is_bad(struct rpc_call *call, struct str name)
{
	if (blob_name_is_valid(name))
		return false;
	rpc_call_fail(call, 422, "bad_blob", "A blob's name is 64 hex digits in lower case.");
	return true;
}

static void on_put(void *arg, enum store_status status, const struct msg_blob_put_reply *reply)
{
	struct ask *a = arg;

	if (a->call && status == STORE_OK)
		rpc_call_reply(take_ptr(&a->call), reply);
	ask_finish(a, status);
}

void pieces_on_put(void *arg, struct rpc_call *call)
{
	const struct msg_blob_put_request *request = rpc_call_request(call);
	struct str bytes = rpc_call_carried(call);
	struct judicator *j = arg;
	struct ask *a;

	if (name_is_bad(call, request->blob))
		return;
	if (bytes.n > (size_t)BLOB_PIECE_MAX) {
		rpc_call_fail(call, 413, "too_large", "A piece has at most %lld bytes.",
			(long long)BLOB_PIECE_MAX);
		return;
	}
	a = ask_new(j, call);
	buf_add_str(&a->bytes, bytes);
	j->store->ops->blob_put(j->store, record_data(a->record), buf_str(&a->bytes), on_put, a);
}

static void on_got(void *arg, enum store_status status, const struct msg_blob_get_reply *reply,
	struct str bytes)
{
	struct ask *a = arg;

	if (a->call && status == STORE_OK)
		rpc_call_reply_carrying(take_ptr(&a->call), reply, bytes);
	else if (a->call && status == STORE_UNKNOWN)
		rpc_call_fail(take_ptr(&a->call), 404, "blob_missing", "There is no such blob.");
	ask_finish(a, status);
}

void pieces_on_get(void *arg, struct rpc_call *call)
{
	const struct msg_blob_get_request *request = rpc_call_request(call);
	struct judicator *j = arg;
	struct ask *a;

	if (name_is_bad(call, request->blob))
		return;
	a = ask_new(j, call);
	j->store->ops->blob_get(j->store, record_data(a->record), on_got, a);
}
