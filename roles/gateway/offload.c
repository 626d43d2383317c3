/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload - content that a client gave inside its submission, and that is too large to travel with it, becomes blobs first.
 *
 *     the next large content -> hash, a slice a turn -> blob_put "known"? -- kept --> refer to it -> the next
 *                                                            \-- no --> blob_put, piece by piece -- kept --^
 *     none left -> go on
 *
 * It is worth it from BLOB_INLINE_MAX on: the store keeps such content once, and so does an executor, however often it is submitted. The same
 * bytes always become the same reference, so a submission that is repeated is still the same.
 *
 * The content stays in the visit's record until the task is added, so a piece that has to be sent again is there.
 */
#include "roles/gateway/gateway_int.h"

#include <string.h>

#include "reactor/base/mem.h"
#include "rpc/task/task.h"

#define SLICE ((size_t)1 << 20) /* hashed in one turn */
#define UPLOAD_TRIES 3

static void next_content(struct visit *v);
static void send_piece(struct visit *v);

static void note_large(void *arg, struct content *content, const char *pointer)
{
	struct offload *o = arg;

	if (content->bytes.n <= (size_t)BLOB_INLINE_MAX)
		return;
	o->contents = mem_resize(o->contents, (o->n + 1) * sizeof(struct content *));
	o->contents[o->n++] = content;
}

static struct content *current(const struct offload *o)
{
	return o->contents[o->at];
}

/* --- the judicators' side ----------------------------------------------------------------------------------------- */

static void kept(struct visit *v)
{
	struct offload *o = &v->offload;

	*current(o) = (struct content){.blob = record_copy(v->task, str_from(o->name))};
	o->at++;
	next_content(v);
}

static void begin_upload(struct visit *v)
{
	struct loop *loop = v->g->loop;
	struct offload *o = &v->offload;

	o->upload = id_make((uint32_t)(loop_wall_us(loop) / US_PER_S), loop_random(loop));
	o->done = 0;
	send_piece(v);
}

static void on_piece(void *arg, struct rpc_answer *answer)
{
	struct visit *v = arg;
	struct offload *o = &v->offload;
	const struct msg_blob_put_reply *reply = answer->reply;

	if (answer->failure == RPC_OK && reply->kept) {
		kept(v);
	} else if (answer->failure == RPC_OK) {
		o->done += o->piece;
		send_piece(v);
	} else if (!strcmp(answer->problem.code, "blob_upload_lost") && ++o->tries < UPLOAD_TRIES) {
		begin_upload(v); /* the judicator is another one, or has begun anew */
	} else {
		blobs_tell(v, &answer->problem);
	}
}

static void send_piece(struct visit *v)
{
	struct offload *o = &v->offload;
	struct str bytes = current(o)->bytes;
	size_t left = bytes.n - o->done;

	o->piece = left < (size_t)BLOB_PIECE_MAX ? left : (size_t)BLOB_PIECE_MAX;
	v->request.blob_put = (struct msg_blob_put_request){
		.blob = str_from(o->name),
		.user = str_from(access_user_name(&v->grant)),
		.upload = o->upload,
		.offset = (int64_t)o->done,
		.last = o->piece == left,
	};
	ask_start_carrying(&v->ask, v->g, RPC_blob_put, &v->request.blob_put,
		(struct str){bytes.p + o->done, o->piece}, ASK_BUDGET_US, on_piece, v);
}

static void on_known(void *arg, struct rpc_answer *answer)
{
	struct visit *v = arg;
	const struct msg_blob_put_reply *reply = answer->reply;

	if (answer->failure != RPC_OK)
		blobs_tell(v, &answer->problem);
	else if (reply->kept)
		kept(v);
	else
		begin_upload(v);
}

/* --- hashing -------------------------------------------------------------------------------------------------------- */

static void on_slice(void *arg)
{
	struct visit *v = arg;
	struct offload *o = &v->offload;
	struct str bytes = current(o)->bytes;
	size_t left = bytes.n - o->done, n = left < SLICE ? left : SLICE;

	blob_hash_add(o->hash, (struct str){bytes.p + o->done, n});
	o->done += n;
	if (n < left) {
		timer_start(&o->slice, 0);
		return;
	}
	blob_hash_end(o->hash, o->name);
	blob_hash_free(take_ptr(&o->hash));
	v->request.blob_put = (struct msg_blob_put_request){
		.blob = str_from(o->name),
		.user = str_from(access_user_name(&v->grant)),
		.known = true,
	};
	ask_start(&v->ask, v->g, RPC_blob_put, &v->request.blob_put, ASK_BUDGET_US, on_known, v);
}

static void next_content(struct visit *v)
{
	struct offload *o = &v->offload;

	if (o->at == o->n) {
		o->go_on(v);
		return;
	}
	o->hash = blob_hash_new();
	o->done = 0;
	o->tries = 0;
	timer_start(&o->slice, 0);
}

void offload_start(struct visit *v, void (*go_on)(struct visit *v))
{
	struct offload *o = &v->offload;

	o->go_on = go_on;
	timer_init(&o->slice, v->g->loop, on_slice, v);
	task_each_content(record_data(v->task), note_large, o);
	next_content(v);
}

void offload_fini(struct visit *v)
{
	struct offload *o = &v->offload;

	if (o->go_on)
		timer_stop(&o->slice);
	blob_hash_free(o->hash);
	free(o->contents);
}
