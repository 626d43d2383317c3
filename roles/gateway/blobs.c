/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blobs - theory of operation
 *
 * Neither way is a blob whole in our memory: it travels in pieces of BLOB_PIECE_MAX, and a piece is not fetched before the one before it
 * was taken.
 *
 *   PUT  client --pieces--> coming --a piece at a time--> blob_put (an `upload`) ... last --> judicator: hash, disk --> 201 | 200
 *            ^- held back while two pieces wait
 *   GET  blob_get --a piece--> stream --drained--> blob_get ... end
 *
 * An upload begins with the request's header and belongs to the body until that has ended, then to the visit that the handler makes; the
 * client may go at any time. What goes wrong before the end of the body is told with the next piece of it. The judicator compares the
 * hash, as it must anyway.
 *
 * An answer that has begun can only be broken off, so that the client sees it is not whole; before its first byte the first piece is
 * here.
 */
#include "roles/gateway/gateway_int.h"

#include <stdio.h>
#include <string.h>

#include "reactor/base/mem.h"

#define UPLOADS_MAX 64 /* at the same time, a worker */
#define TYPE_BYTES "application/octet-stream"

/* What the client can do about it is to repeat. */
static const char lost[] = "The judicator was changed during the upload. Try again.";

static void lost_is_temporary(struct problem *problem)
{
	if (!strcmp(problem->code, "blob_upload_lost"))
		problem_set(problem, 503, "blob_upload_lost", "", "%s", lost);
}

void blobs_tell(struct visit *v, const struct problem *problem)
{
	struct problem told = *problem;

	lost_is_temporary(&told);
	visit_problem(v, &told);
}

static bool name_is_bad(struct str name, struct problem *problem)
{
	if (blob_name_is_valid(name))
		return false;
	problem_set(problem, 422, "bad_blob", "",
		"A blob's name is the SHA-256 of its bytes: 64 hexadecimal digits, in lower case.");
	return true;
}

/* --- PUT --------------------------------------------------------------------------------------------------------- */

struct upload {
	struct gateway *g;
	struct list link;          /* g->uploads */
	struct http_request *http; /* NULL once the body has ended: it is the visit's then */
	struct visit *visit;
	struct grant grant;
	char name[BLOB_NAME_LEN + 1];
	struct buf coming, going; /* what has arrived; the piece that is being sent */
	int64_t sent;
	bool is_last, is_held;
	struct ask ask;
	struct msg_blob_put_request request;
	struct problem problem; /* status 0 = all is well */
	char code[64];          /* of problem */
	struct buf text;        /* of problem, for the server */
};

void blobs_upload_free(struct upload *u)
{
	if (!u)
		return;
	ask_stop(&u->ask);
	list_del(&u->link);
	u->g->n_uploads--;
	if (!u->visit)
		gateway_maybe_stopped(u->g);
	buf_fini(&u->coming);
	buf_fini(&u->going);
	buf_fini(&u->text);
	free(u);
}

static void on_upload_gone(void *arg)
{
	blobs_upload_free(arg);
}

static void hold(struct upload *u, bool is_held)
{
	if (!u->http || u->is_held == is_held)
		return;
	u->is_held = is_held;
	http_request_hold_body(u->http, is_held);
}

static void upload_failed(struct upload *u, const struct problem *problem)
{
	u->problem = *problem;
	snprintf(u->code, sizeof(u->code), "%s", problem->code);
	u->problem.code = u->code;
	lost_is_temporary(&u->problem);
	if (u->visit)
		visit_problem(u->visit, &u->problem);
	else
		hold(u, false); /* it is told when more comes, or ends */
}

static void upload_go_on(struct upload *u);

static void on_put(void *arg, struct rpc_answer *answer)
{
	struct upload *u = arg;
	const struct msg_blob_put_reply *reply = answer->reply;

	if (answer->failure != RPC_OK) {
		upload_failed(u, &answer->problem);
		return;
	}
	u->sent += (int64_t)u->going.len;
	buf_clear(&u->going);
	if (!u->is_last) {
		upload_go_on(u);
		return;
	}
	log_info(u->g->log, "blob_put", "blob=%s bytes=%lld created=%s", u->name,
		(long long)u->sent, reply->created ? "yes" : "no");
	visit_reply(u->visit, reply->created ? 201 : 200, TYPE_JSON,
		str_from(reply->created ? "{\"created\":true}" : "{\"created\":false}"));
}

static void send_piece(struct upload *u, size_t n)
{
	buf_add(&u->going, u->coming.data, n);
	buf_drop(&u->coming, n);
	u->request.blob = str_from(u->name);
	u->request.user = str_from(access_user_name(&u->grant));
	u->request.offset = u->sent;
	u->request.last = u->is_last;
	ask_start_carrying(&u->ask, u->g, RPC_blob_put, &u->request, buf_str(&u->going),
		ASK_BUDGET_US, on_put, u);
}

/* Nothing is being sent. */
static void upload_go_on(struct upload *u)
{
	size_t n = u->coming.len;

	if (n >= (size_t)BLOB_PIECE_MAX)
		n = (size_t)BLOB_PIECE_MAX;
	else if (!u->visit) {
		hold(u, false);
		return; /* more comes, or the end */
	}
	u->is_last = u->visit && n == u->coming.len;
	if (n || u->is_last)
		send_piece(u, n);
	hold(u, u->coming.len >= (size_t)BLOB_PIECE_MAX);
}

/* What visit_problem() does, for who is refused before there is a visit. */
static void come_again(struct http_request *http, const struct problem *problem)
{
	if (problem->status == 503)
		http_request_add_header(http, "Retry-After", "1");
}

static int on_piece(void *arg, struct str piece, struct str *problem)
{
	struct upload *u = arg;

	if (u->problem.status) {
		come_again(u->http, &u->problem);
		buf_clear(&u->text);
		problem_write(&u->problem, &u->text);
		*problem = buf_str(&u->text);
		return u->problem.status;
	}
	buf_add_str(&u->coming, piece);
	if (!u->going.len)
		upload_go_on(u);
	else
		hold(u, u->coming.len >= (size_t)BLOB_PIECE_MAX);
	return 0;
}

static bool type_is_bytes(struct str type)
{
	struct str media;

	return str_cut(&type, ';', &media) && str_is(str_trim(media), TYPE_BYTES);
}

static bool put_is_bad(struct gateway *g, const struct http_request *http, struct problem *problem)
{
	struct str encoding = http_request_header(http, "Content-Encoding");
	struct str type = http_request_header(http, "Content-Type");

	if (g->stopping)
		problem_set(problem, 503, "stopping", "",
			"This gateway is stopping. Try again in a moment.");
	else if (g->n_uploads >= UPLOADS_MAX)
		problem_set(problem, 503, "busy", "",
			"Too many blobs are being uploaded here. Try again in a moment.");
	else if (type.p && !type_is_bytes(type))
		problem_set(problem, 415, "unsupported_type", "",
			"A blob is sent with Content-Type: " TYPE_BYTES ".");
	else if (encoding.p && !str_is(encoding, "identity"))
		problem_set(problem, 415, "unsupported_encoding", "",
			"A blob is sent without Content-Encoding: its hash is that of the bytes "
			"sent.");
	else
		return false;
	return true;
}

bool blobs_take_body(struct gateway *g, struct http_request *http, const struct grant *grant,
	struct problem *problem)
{
	struct str path = http_request_path(http), name = path;
	struct upload *u;

	name.p += sizeof(BLOBS_PATH);
	name.n -= sizeof(BLOBS_PATH);
	if (name_is_bad(name, problem) || put_is_bad(g, http, problem)) {
		come_again(http, problem);
		return false;
	}
	u = mem_alloc(sizeof(*u));
	u->g = g;
	u->http = http;
	u->grant = *grant;
	memcpy(u->name, name.p, BLOB_NAME_LEN);
	u->request.upload =
		id_make((uint32_t)(loop_wall_us(g->loop) / US_PER_S), loop_random(g->loop));
	list_init(&u->link);
	list_add_tail(&g->uploads, &u->link);
	g->n_uploads++;
	http_request_on_gone(http, on_upload_gone, u);
	http_request_take_body(http, g->blob_max, on_piece, u);
	return true;
}

bool blobs_is_put(const struct http_request *http)
{
	struct str path = http_request_path(http);

	return http_request_method(http) == HTTP_PUT && path.n > sizeof(BLOBS_PATH) &&
	       !memcmp(path.p, BLOBS_PATH "/", sizeof(BLOBS_PATH));
}

/* The body has ended. */
void blobs_on_put(const struct route_match *match, struct http_request *http)
{
	struct upload *u = http_request_body_arg(http);
	struct problem problem = {0};
	struct visit *v;

	CHECK(u);
	http_request_on_gone(http, NULL, NULL);
	v = visit_new(match->arg, http);
	if (!v) {
		blobs_upload_free(u);
		return;
	}
	v->upload = u;
	u->visit = v;
	u->http = NULL;
	if (u->problem.status)
		visit_problem(v, &u->problem);
	else if (!query_read(http, NULL, 0, &problem))
		visit_problem(v, &problem);
	else if (!u->going.len)
		upload_go_on(u);
}

/* --- GET ---------------------------------------------------------------------------------------------------------------- */

static void fetch(struct visit *v);

/* The answer has begun: all that is left is to break it off. */
static void send_failed(struct visit *v, const char *why)
{
	log_warn(v->g->log, "blob_get", "blob=%s sent=%lld why=\"%s\"", v->send.name,
		(long long)v->send.sent, why);
	http_stream_abort(v->send.stream);
	visit_answered(v, 200, (size_t)v->send.sent);
}

static void on_drained(void *arg)
{
	struct visit *v = arg;

	http_stream_on_drained(v->send.stream, NULL, NULL);
	fetch(v);
}

static void send_bytes(struct visit *v, struct str bytes)
{
	v->send.sent += (int64_t)bytes.n;
	if (v->send.sent < v->send.size)
		http_stream_on_drained(v->send.stream, on_drained, v);
	http_stream_write(v->send.stream, bytes);
	if (v->send.sent < v->send.size)
		return;
	http_stream_end(v->send.stream);
	visit_answered(v, 200, (size_t)v->send.sent);
}

static void on_more(void *arg, struct rpc_answer *answer)
{
	struct visit *v = arg;
	const struct msg_blob_get_reply *reply = answer->reply;

	if (answer->failure != RPC_OK)
		send_failed(v, answer->problem.code);
	else if (!answer->carried.n || reply->size != v->send.size)
		send_failed(v, "the judicator has another blob of this name");
	else
		send_bytes(v, answer->carried);
}

static void ask_piece(struct visit *v, ask_done_fn *done)
{
	v->request.blob_get = (struct msg_blob_get_request){
		.blob = str_from(v->send.name),
		.user = v->send.any ? STR_NULL : str_from(access_user_name(&v->grant)),
		.offset = v->send.sent,
		.limit = v->send.is_head ? 0 : BLOB_PIECE_MAX,
	};
	ask_start(&v->ask, v->g, RPC_blob_get, &v->request.blob_get, READ_BUDGET_US, done, v);
}

static void fetch(struct visit *v)
{
	ask_piece(v, on_more);
}

static void on_first(void *arg, struct rpc_answer *answer)
{
	struct visit *v = arg;
	const struct msg_blob_get_reply *reply = answer->reply;

	if (answer->failure != RPC_OK) {
		if (answer->problem.status == 404)
			problem_set(&answer->problem, 404, "blob_unknown", "",
				"There is no such blob, or it is another user's.");
		visit_problem(v, &answer->problem);
		return;
	}
	v->send.size = reply->size;
	v->send.stream = http_request_stream(v->http, 200, TYPE_BYTES, reply->size);
	if (v->send.is_head) {
		http_stream_end(v->send.stream);
		visit_answered(v, 200, 0);
		return;
	}
	send_bytes(v, answer->carried);
}

void blobs_send(struct visit *v, struct str name, bool any)
{
	v->send.is_head = http_request_method(v->http) == HTTP_HEAD;
	v->send.any = any;
	snprintf(v->send.name, sizeof(v->send.name), STR_FMT, STR_ARG(name));
	ask_piece(v, on_first);
}

void blobs_on_get(const struct route_match *match, struct http_request *http)
{
	struct visit *v = visit_new(match->arg, http);
	struct problem problem = {0};

	if (!v)
		return;
	if (name_is_bad(match->params[0], &problem) || !query_read(http, NULL, 0, &problem)) {
		visit_problem(v, &problem);
		return;
	}
	blobs_send(v, match->params[0], v->grant.roles & TOKEN_ADMIN);
}
