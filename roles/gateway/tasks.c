/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tasks - theory of operation
 *
 *     POST    parse -> offload -> add -------------------> 201 the task as it was added
 *                       \-> (wait) waiters ---> 201 the task once it is done, or as it is when the wait is over
 *                       \-> (there already) get or waiters -> 200 the task
 *     GET     (seen done before) -------------> 200 from the done cache
 *             get ----------------------------> 200 | 404
 *             (wait) waiters -----------------> the same, once it is done
 *     DELETE  cancel -> get ------------------> 200 | 404 | 409
 *
 * The gateway chooses the id before it asks anybody, so `add` may be sent again and again, to any judicator: the task is
 * there once. With an Idempotency-Key the id follows from user and key, so the client may repeat as well.
 *
 * A submission can be large: its body is dropped as soon as it is parsed, the task as soon as it is added; a waiting client
 * costs little.
 */
#include "roles/gateway/gateway_int.h"

#include <stdio.h>

#include <openssl/sha.h>

#include "reactor/base/mem.h"
#include "rpc/task/status.h"
#include "rpc/task/task.h"

#define KEY_MAX 255
#define PAGE_DEFAULT 50
#define PAGE_MAX 1000

/* --- answers ------------------------------------------------------------------------------------------------------ */

static void add_location(struct visit *v)
{
	char path[sizeof(TASKS_PATH) + 1 + ID_LEN];

	snprintf(path, sizeof(path), TASKS_PATH "/%s", v->id.hex);
	http_request_add_header(v->http, "Location", path);
}

void tasks_reply(struct visit *v, struct str body)
{
	if (v->status == 201)
		add_location(v);
	visit_reply(v, v->status, TYPE_JSON, body);
}

void tasks_reply_unknown(struct visit *v, const struct problem *problem)
{
	if (v->plain.len)
		tasks_reply(v, buf_str(&v->plain));
	else
		visit_problem(v, problem);
}

void tasks_reply_missing(struct visit *v)
{
	visit_fail(v, 404, "task_unknown", "There is no task %s.", v->id.hex);
}

/* --- one task, as it is ---------------------------------------------------------------------------------------------- */

static void on_got(void *arg, struct rpc_answer *answer)
{
	struct visit *v = arg;
	const struct msg_get_reply *reply = answer->reply;
	struct buf body cleanup(buf_fini) = BUF_INIT;
	const struct msg_task_view *task;

	if (answer->failure != RPC_OK) {
		tasks_reply_unknown(v, &answer->problem);
		return;
	}
	if (!reply->tasks.count) {
		tasks_reply_missing(v);
		return;
	}
	task = codec_item(reply->tasks, struct msg_task_view, 0);
	if (!access_may_read(v, task->user)) {
		tasks_reply_missing(v);
		return;
	}
	if (v->wait_us && !view_is_done(task)) {
		waiters_add(v);
		return;
	}
	view_text(task, &body);
	done_cache_put(&v->g->done_cache, task, buf_str(&body));
	tasks_reply(v, buf_str(&body));
}

static void tasks_get(struct visit *v, ask_done_fn *done)
{
	v->item = (struct msg_get_item){.id = v->id};
	v->request.get = (struct msg_get_request){.items = {&v->item, 1}};
	ask_start(&v->ask, v->g, RPC_get, &v->request.get, READ_BUDGET_US, done, v);
}

static void tasks_look(struct visit *v)
{
	tasks_get(v, on_got);
}

/* Now, or once it is done. Who may see only some tasks is not let among the waiters, who are answered alike, before it is known
 * whose the task is. */
static void tasks_show(struct visit *v)
{
	if (v->wait_us && (v->grant.roles & TOKEN_READ || v->status == 201))
		waiters_add(v);
	else
		tasks_look(v);
}

static bool waiting_refused(struct visit *v)
{
	if (!v->wait_us || !waiters_are_full(v->g))
		return false;
	visit_fail(v, 503, "too_many_waiting",
		"Too many clients wait here. Try again in a moment, or without `wait`.");
	return true;
}

/* --- POST ---------------------------------------------------------------------------------------------------------- */

/* The id that user and key stand for. */
static struct id key_id(struct str user, struct str key)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;
	unsigned char digest[SHA256_DIGEST_LENGTH];

	buf_add_str(&text, user);
	buf_add_char(&text, '\0'); /* neither holds one */
	buf_add_str(&text, key);
	SHA256((const unsigned char *)text.data, text.len, digest);
	return id_from_bytes(digest);
}

static bool key_is_good(struct str key)
{
	for (size_t i = 0; i < key.n; i++) {
		if (key.p[i] < ' ' || key.p[i] > '~')
			return false;
	}
	return key.n >= 1 && key.n <= KEY_MAX;
}

/* False when answered. */
static bool choose_id(struct visit *v, struct str user)
{
	struct loop *loop = v->g->loop;
	struct str key = http_request_header(v->http, "Idempotency-Key");

	v->keyed = key.p != NULL;
	if (!v->keyed) {
		v->id = id_make((uint32_t)(loop_wall_us(loop) / US_PER_S), loop_random(loop));
		return true;
	}
	if (!key_is_good(key)) {
		visit_fail(v, 400, "bad_idempotency_key",
			"Idempotency-Key is 1 to %d printable ASCII characters.", KEY_MAX);
		return false;
	}
	v->id = key_id(user.p ? user : STR(""), key);
	return true;
}

/* The task as the judicator has just taken it. */
static void write_added(struct visit *v, const struct msg_add_reply *reply)
{
	const struct msg_add_request *add = &v->request.add;
	struct msg_task_view view = {
		.id = v->id,
		.user = add->user,
		.language = add->language,
		.priority = add->priority,
		.labels = add->labels,
		.status = reply->status,
		.add_time_us = reply->add_time_us,
	};

	view_text(&view, &v->plain);
}

struct missing {
	struct str name;
	struct problem problem;
};

static void look_for_missing(void *arg, struct content *content, const char *pointer)
{
	struct missing *m = arg;

	if (!m->problem.status && content->blob.p && str_eq(content->blob, m->name))
		problem_set(&m->problem, 422, "blob_missing", pointer,
			"There is no such blob, or it is another user's: PUT it to " BLOBS_PATH
			"/" STR_FMT " first.",
			STR_ARG(m->name));
}

static void tell_missing(struct visit *v, struct str name)
{
	struct missing m = {.name = name};

	task_each_content(record_data(v->task), look_for_missing, &m);
	if (!m.problem.status)
		problem_set(&m.problem, 502, "judicator_refused", "",
			"The judicator missed a blob that the task does not refer to.");
	visit_problem(v, &m.problem);
}

static void on_added(void *arg, struct rpc_answer *answer)
{
	struct visit *v = arg;
	const struct msg_add_reply *reply = answer->reply;

	access_added(v);
	if (answer->failure != RPC_OK) {
		log_info(v->g->log, "add_failed", "id=%s code=%s", v->id.hex, answer->problem.code);
		visit_problem(v, &answer->problem);
		return;
	}
	if (reply->missing.n) {
		tell_missing(v, reply->missing);
		return;
	}
	metrics_add(&v->g->metrics->adds[reply->created], 1);
	log_info(v->g->log, "add", "id=%s created=%s", v->id.hex, reply->created ? "yes" : "no");
	v->status = v->keyed && !reply->created ? 200 : 201;
	write_added(v, reply);
	if (v->status == 201 && !v->wait_us) {
		tasks_reply(v, buf_str(&v->plain));
		return;
	}
	record_free(take_ptr(&v->task));
	buf_fini(&v->doc);
	tasks_show(v);
}

static void note_blob(void *arg, struct content *content, const char *pointer)
{
	struct codec_list *blobs = arg;

	if (!content->blob.p)
		return;
	blobs->items = mem_resize(blobs->items, (blobs->count + 1) * sizeof(struct str));
	*codec_item(*blobs, struct str, blobs->count) = content->blob;
	blobs->count++;
}

static void tasks_add_now(struct visit *v)
{
	const struct task *task = record_data(v->task);

	task_each_content(task, note_blob, &v->blobs);
	task_write(task, &v->doc);
	v->request.add = (struct msg_add_request){
		.id = v->id,
		.user = task->user,
		.language = task_queue(task),
		.priority = task->priority,
		.labels = task->labels,
		.doc.text = buf_str(&v->doc),
		.blobs = v->blobs,
		.any_blob = v->grant.roles & TOKEN_ADMIN,
	};
	ask_start(&v->ask, v->g, RPC_add, &v->request.add, ASK_BUDGET_US, on_added, v);
}

static void tasks_add(struct visit *v)
{
	offload_start(v, tasks_add_now);
}

/* With tokens the user of a task is the token's; only admin may name another. False when answered. */
static bool choose_user(struct visit *v)
{
	const char *own = access_user_name(&v->grant);
	struct task *task = record_data(v->task);
	struct problem problem = {0};

	if (!own)
		return true;
	if (!task->user.n)
		task->user = record_copy(v->task, str_from(own));
	if (v->grant.roles & TOKEN_ADMIN || str_is(task->user, own))
		return true;
	problem_set(&problem, 403, "user_forbidden", "/user",
		"This token submits as another user: leave `user` out.");
	visit_problem(v, &problem);
	return false;
}

void tasks_on_post(const struct route_match *match, struct http_request *http)
{
	struct visit *v = visit_new(match->arg, http);
	struct problem problem = {0};
	char wait[16];
	const struct query_param params[] = {{"wait", wait, sizeof(wait)}};
	const struct task *task;

	if (!v)
		return;
	if (!query_read(http, params, ARRAY_SIZE(params), &problem) ||
		!query_wait(wait, &v->wait_us, &problem) ||
		task_parse(http_request_body(http), v->g->languages, &v->task, &problem)) {
		visit_problem(v, &problem);
		return;
	}
	http_request_drop_body(http);
	v->until_us = loop_now_us(v->g->loop) + v->wait_us;
	if (!choose_user(v))
		return;
	task = record_data(v->task);
	if (!waiting_refused(v) && choose_id(v, task->user))
		access_admit(v, tasks_add);
}

/* --- GET and DELETE of one --------------------------------------------------------------------------------------------- */

static bool tasks_read_id(struct visit *v, const struct route_match *match)
{
	if (id_parse(match->params[0], &v->id))
		return true;
	visit_fail(v, 400, "bad_id", "A task's id is 24 hexadecimal digits, in lower case.");
	return false;
}

bool tasks_read_plain(struct visit *v, const struct route_match *match)
{
	return tasks_read_id(v, match) && visit_is_plain(v);
}

/* False when the judicators have to be asked. */
static bool tasks_show_done(struct visit *v)
{
	struct str user, text;

	if (!done_cache_get(&v->g->done_cache, &v->id, &user, &text))
		return false;
	if (access_may_read(v, user))
		tasks_reply(v, text);
	else
		tasks_reply_missing(v);
	return true;
}

void tasks_on_get(const struct route_match *match, struct http_request *http)
{
	struct visit *v = visit_new(match->arg, http);
	struct problem problem = {0};
	char wait[16];
	const struct query_param params[] = {{"wait", wait, sizeof(wait)}};

	if (!v || !tasks_read_id(v, match))
		return;
	if (!query_read(http, params, ARRAY_SIZE(params), &problem) ||
		!query_wait(wait, &v->wait_us, &problem)) {
		visit_problem(v, &problem);
		return;
	}
	v->until_us = loop_now_us(v->g->loop) + v->wait_us;
	if (!tasks_show_done(v) && !waiting_refused(v))
		tasks_show(v);
}

static void on_cancelled(void *arg, struct rpc_answer *answer)
{
	struct visit *v = arg;

	if (answer->failure != RPC_OK) {
		visit_problem(v, &answer->problem);
		return;
	}
	log_info(v->g->log, "cancel", "id=%s", v->id.hex);
	tasks_look(v);
}

static void tasks_cancel(struct visit *v)
{
	v->request.cancel = (struct msg_cancel_request){.id = v->id};
	ask_start(&v->ask, v->g, RPC_cancel, &v->request.cancel, ASK_BUDGET_US, on_cancelled, v);
}

static void on_owner_known(void *arg, struct rpc_answer *answer)
{
	struct visit *v = arg;
	const struct msg_get_reply *reply = answer->reply;

	if (answer->failure != RPC_OK)
		visit_problem(v, &answer->problem);
	else if (!reply->tasks.count ||
		 !access_may_change(v, codec_item(reply->tasks, struct msg_task_view, 0)->user))
		tasks_reply_missing(v);
	else
		tasks_cancel(v);
}

void tasks_on_delete(const struct route_match *match, struct http_request *http)
{
	struct visit *v = visit_new(match->arg, http);

	if (!v || !tasks_read_plain(v, match))
		return;
	if (v->grant.roles & TOKEN_ADMIN)
		tasks_cancel(v);
	else
		tasks_get(v, on_owner_known);
}

/* --- GET of many ------------------------------------------------------------------------------------------------------- */

static void on_searched(void *arg, struct rpc_answer *answer)
{
	struct visit *v = arg;
	const struct msg_search_reply *reply = answer->reply;
	struct buf body cleanup(buf_fini) = BUF_INIT;
	struct json_writer *w;

	if (answer->failure != RPC_OK) {
		visit_problem(v, &answer->problem);
		return;
	}
	w = json_writer_new(&body, false);
	json_begin_object(w);
	json_key(w, "tasks");
	json_begin_array(w);
	for (size_t i = 0; i < reply->tasks.count; i++)
		view_write_short(codec_item(reply->tasks, struct msg_task_view, i), w);
	json_end_array(w);
	json_key(w, "next");
	json_bytes(w, reply->next.n ? reply->next : STR_NULL);
	json_end_object(w);
	json_writer_free(w);
	visit_reply(v, 200, TYPE_JSON, buf_str(&body));
}

enum { LIST_AFTER, LIST_LABEL, LIST_LANGUAGE, LIST_STATUS, LIST_USER, LIST_TEXTS };

static struct str condition(const struct visit *v, int which)
{
	return v->texts[which][0] ? str_from(v->texts[which]) : STR_NULL;
}

/* Who sees only its own tasks gets those. */
static bool restrict_list(struct visit *v, struct problem *problem)
{
	const char *own = access_user_name(&v->grant);

	if (v->grant.roles & TOKEN_READ)
		return true;
	if (v->request.search.user.p && !str_is(v->request.search.user, own)) {
		problem_set(problem, 403, "user_forbidden", "",
			"This token sees only its own tasks: leave the query parameter \"user\" "
			"out.");
		return false;
	}
	v->request.search.user = str_from(own);
	return true;
}

/* The values that are not free text. */
static bool read_list(
	struct visit *v, const char *limit, const char *order, struct problem *problem)
{
	struct msg_search_request *q = &v->request.search;
	enum task_status status;
	int64_t after;

	*q = (struct msg_search_request){
		.user = condition(v, LIST_USER),
		.status = condition(v, LIST_STATUS),
		.language = condition(v, LIST_LANGUAGE),
		.label = condition(v, LIST_LABEL),
		.after = condition(v, LIST_AFTER),
		.ascending = !strcmp(order, "asc"),
		.limit = PAGE_DEFAULT,
	};
	if (q->status.p && !task_status_parse(q->status, &status))
		problem_set(problem, 400, "bad_parameter", "",
			"The query parameter \"status\" is pending, compiling, compile_failed, "
			"running, run_failed, success, retrying, "
			"cancelled or error.");
	else if (order[0] && !q->ascending && strcmp(order, "desc") != 0)
		problem_set(problem, 400, "bad_parameter", "",
			"The query parameter \"order\" is asc or desc.");
	else if (limit[0] &&
		 (!str_to_i64(str_from(limit), &q->limit) || q->limit < 1 || q->limit > PAGE_MAX))
		problem_set(problem, 400, "bad_parameter", "",
			"The query parameter \"limit\" is 1 to %d.", PAGE_MAX);
	else if (q->after.p && (!str_to_i64(q->after, &after) || after < 1))
		problem_set(problem, 400, "bad_parameter", "",
			"The query parameter \"after\" is the `next` of the page before.");
	else
		return true;
	return false;
}

void tasks_on_list(const struct route_match *match, struct http_request *http)
{
	struct visit *v = visit_new(match->arg, http);
	struct problem problem = {0};
	char limit[8], order[8];

	if (!v)
		return;
	const struct query_param params[] = {
		{"after", v->texts[LIST_AFTER], 65},
		{"label", v->texts[LIST_LABEL], TASK_LABEL_MAX + 1},
		{"language", v->texts[LIST_LANGUAGE], TASK_LANGUAGE_MAX + 1},
		{"limit", limit, sizeof(limit)},
		{"order", order, sizeof(order)},
		{"status", v->texts[LIST_STATUS], 33},
		{"user", v->texts[LIST_USER], TASK_USER_MAX + 1},
	};

	if (!query_read(http, params, ARRAY_SIZE(params), &problem) ||
		!read_list(v, limit, order, &problem) || !restrict_list(v, &problem)) {
		visit_problem(v, &problem);
		return;
	}
	ask_start(&v->ask, v->g, RPC_search, &v->request.search, READ_BUDGET_US, on_searched, v);
}
