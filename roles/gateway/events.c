/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events - theory of operation
 *
 * A client that follows a task has a stream of server-sent events: `task` with the short view at each change of status, attempt or case,
 * `done` with the whole task, and then the end.
 *
 *     GET --get--> judicator: the task as it is, and whether this client may see it
 *          done             `done`, the end
 *          else             `task`, and the visit listens (waiters.c): held gets that wait for any change, shared by all who listen
 *     a change              the same view to everybody who listens to that task, unless it has been told already
 *     now and then         a comment, so that a client and what is between can tell a quiet stream from a dead one
 *     the gateway stops     the end; clients come again, to another worker or the next gateway
 *
 * The id of an event is the task's state, STATUS.ATTEMPT.CASE. A client that comes again names the last one it has (Last-Event-ID) and is told
 * what has changed since, if anything has; one that has the end already gets 204, which tells a browser not to come again.
 *
 * Changes that come faster than they are asked for become one. A whole task can be large: it is written in pieces, the next when the
 * one before has left.
 */
#include "roles/gateway/gateway_int.h"

#include <stdio.h>

#include "reactor/base/mem.h"

#define TYPE_EVENTS "text/event-stream"
#define PIECE_MAX ((size_t)256 << 10)
/* Until a client whose stream has ended comes again. */
#define HELLO "retry: 1000\n\n"
#define BEAT ":\n\n"

/* --- a stream ----------------------------------------------------------------------------------------------------------- */

static void stream_end(struct visit *v)
{
	http_stream_end(take_ptr(&v->stream));
	visit_free(v);
}

static void stream_start(struct visit *v)
{
	struct events *events = &v->g->events;

	http_request_add_header(v->http, "Cache-Control", "no-store");
	/* A proxy that collects answers before it sends them would hold every event back. */
	http_request_add_header(v->http, "X-Accel-Buffering", "no");
	visit_stream(v, 200, TYPE_EVENTS);
	list_add_tail(&events->streams, &v->stream_link);
	events->count++;
	if (!timer_is_armed(&events->beat))
		timer_start(&events->beat, v->g->beat_us);
	http_stream_write(v->stream, STR(HELLO));
}

/* The rest of v->plain, as fast as the client takes it; then the end. */
static void write_rest(void *arg)
{
	struct visit *v = arg;

	while (v->sent < v->plain.len) {
		size_t n = v->plain.len - v->sent < PIECE_MAX ? v->plain.len - v->sent : PIECE_MAX;
		size_t waiting =
			http_stream_write(v->stream, (struct str){v->plain.data + v->sent, n});

		v->sent += n;
		if (waiting > HTTP_STREAM_PENDING) {
			http_stream_on_drained(v->stream, write_rest, v);
			return;
		}
	}
	stream_end(v);
}

static void add_event(struct buf *out, const char *name, struct str state, struct str data)
{
	buf_addf(out, "event: %s\nid: " STR_FMT "\ndata: ", name, STR_ARG(state));
	buf_add_str(out, data);
	buf_add_str(out, STR("\n\n"));
}

static bool has_been_told(const struct visit *v, struct str state)
{
	return str_is(state, v->last_state);
}

void events_tell(struct visit *v, struct str state, bool done, struct str view)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;

	CHECK(state.n < sizeof(v->last_state));
	if (done) {
		waiters_remove(v);
		add_event(&v->plain, "done", state, view);
		write_rest(v);
		return;
	}
	if (has_been_told(v, state))
		return;
	memcpy(v->last_state, state.p, state.n);
	v->last_state[state.n] = '\0';
	add_event(&text, "task", state, view);
	http_stream_write(v->stream, buf_str(&text));
}

void events_end(struct visit *v)
{
	stream_end(v);
}

void events_forget(struct visit *v)
{
	if (!list_is_linked(&v->stream_link))
		return;
	list_del(&v->stream_link);
	v->g->events.count--;
}

/* --- its beginning -------------------------------------------------------------------------------------------------------- */

static void begin(struct visit *v, const struct msg_task_view *task)
{
	struct buf view cleanup(buf_fini) = BUF_INIT;
	bool is_head = http_request_method(v->http) == HTTP_HEAD, done = view_is_done(task);

	if (done && has_been_told(v, task->state)) {
		visit_reply(v, 204, TYPE_EVENTS, STR(""));
		return;
	}
	if (done)
		view_text(task, &view);
	else
		view_text_short(task, &view);
	stream_start(v);
	if (is_head || (v->g->stopping && !done)) {
		stream_end(v);
		return;
	}
	if (!done)
		waiters_listen(v, task->state);
	events_tell(v, task->state, done, buf_str(&view));
}

static void on_got(void *arg, struct rpc_answer *answer)
{
	struct visit *v = arg;
	const struct msg_get_reply *reply = answer->reply;
	const struct msg_task_view *task;

	if (answer->failure != RPC_OK) {
		visit_problem(v, &answer->problem);
		return;
	}
	task = reply->tasks.count ? codec_item(reply->tasks, struct msg_task_view, 0) : NULL;
	if (!task || !access_may_read(v, task->user))
		tasks_reply_missing(v);
	else
		begin(v, task);
}

void events_on_get(const struct route_match *match, struct http_request *http)
{
	struct visit *v = visit_new(match->arg, http);
	struct str last = http_request_header(http, "Last-Event-ID");

	if (!v || !tasks_read_plain(v, match))
		return;
	if (v->g->events.count >= v->g->waiting_max / EVENTS_SHARE || waiters_are_full(v->g)) {
		visit_fail(v, 503, "too_many_waiting",
			"Too many clients follow tasks here. Try again in a moment, or ask for the "
			"task with `wait`.");
		return;
	}
	if (last.n < sizeof(v->last_state) && last.n) /* what is longer is not ours */
		memcpy(v->last_state, last.p, last.n);
	v->item = (struct msg_get_item){.id = v->id};
	v->request.get = (struct msg_get_request){.items = {&v->item, 1}};
	ask_start(&v->ask, v->g, RPC_get, &v->request.get, READ_BUDGET_US, on_got, v);
}

/* --- all of them ------------------------------------------------------------------------------------------------------------ */

static bool is_writing(const struct visit *v)
{
	return v->sent < v->plain.len;
}

static void on_beat(void *arg)
{
	struct gateway *g = arg;

	list_each (it, &g->events.streams) {
		struct visit *v = list_entry(it, struct visit, stream_link);

		if (!is_writing(v))
			http_stream_write(v->stream, STR(BEAT));
	}
	if (g->events.count)
		timer_start(&g->events.beat, g->beat_us);
}

/* One in the middle of a `done` may go on until the gateway loses patience. */
void events_end_all(struct gateway *g)
{
	list_each_safe (it, &g->events.streams) {
		struct visit *v = list_entry(it, struct visit, stream_link);

		if (!is_writing(v))
			stream_end(v);
	}
}

void events_init(struct gateway *g)
{
	list_init(&g->events.streams);
	timer_init(&g->events.beat, g->loop, on_beat, g);
}

void events_fini(struct gateway *g)
{
	CHECK(!g->events.count);
	timer_stop(&g->events.beat);
}
