/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gateway_int - what the gateway's files share: the owner structure, a visit, a question, and the verbs between them. Nobody else
 * includes it.
 *
 *   gateway.c  life, the table of routes, what is checked of every request
 *   visit.c    one HTTP request while it is worked on: its parameters, its answer
 *   ask.c      one question to the judicators, repeated until one answers
 *   tasks.c    POST, GET and DELETE of tasks
 *   events.c   clients that follow a task
 *   files.c    the bytes of what belongs to a task
 *   waiters.c  clients that wait for a task to be done
 *   lists.c    what else can be looked at: executors, judicators, languages, health
 *   access.c   who may do what: tokens, rates, open tasks
 *   metrics.c  counters, and the page that shows them
 *   openapi.c  the description of the interface, made of the tables
 *   view.c     a task as JSON for people
 *   done_cache.c  answers about done tasks, which never change
 *   page.c     the web page
 *   blobs.c    PUT and GET of blobs
 *   offload.c  large content of a submission becomes blobs
 */
#pragma once

#include "reactor/base/clock.h"
#include "reactor/base/list.h"
#include "reactor/base/log.h"
#include "reactor/base/map.h"
#include "reactor/loop.h"
#include "reactor/timer.h"
#include "roles/gateway/gateway.h"
#include "roles/gateway/shared.h"
#include "roles/gateway/tokens.h"
#include "rpc/http/router.h"
#include "rpc/http/server.h"
#include "rpc/rpc_client.h"
#include "rpc/task/verdict.h"

#define ASK_BUDGET_US (10 * US_PER_S) /* for what changes something */
#define READ_BUDGET_US (5 * US_PER_S) /* for what only looks */
#define WAIT_MS_MAX 300000
#define WAITING_MAX 20000
#define TASKS_PATH "/api/v1/tasks"
#define BLOBS_PATH "/api/v1/blobs"

struct access_user;
struct visit;
struct wait_entry;

/* What the token of a request allows; without tokens everything. */
struct grant {
	unsigned roles;           /* enum token_role; TOKEN_ADMIN has them all */
	struct access_user *user; /* whose tasks it submits and sees; NULL = no tokens */
	int64_t open_max;         /* of that user; 0 = without limit */
};

/* --- ask.c: one question ---------------------------------------------------------------------------------- */

/* answer->failure is RPC_OK, or answer->problem is what the client should be told (complete). Once. The ask may be freed inside. */
typedef void ask_done_fn(void *arg, struct rpc_answer *answer);

struct ask { /* embedded; zero-initialised = idle */
	struct gateway *g;
	enum rpc_method method;
	const void *request; /* struct msg_..._request, valid until done */
	struct str carried;  /* bytes that go along, valid until done */
	int64_t deadline_us; /* loop time */
	const char *address; /* asked now; g->peers owns it */
	unsigned failures;
	struct backoff backoff;
	struct timer pause;
	int not_sent; /* why the transport did not take it (-errno); 0 = it did */
	struct op *op;
	ask_done_fn *done;
	void *arg;
};

void ask_start(struct ask *ask, struct gateway *g, enum rpc_method method, const void *request,
	int64_t budget_us, ask_done_fn *done, void *arg);
void ask_start_carrying(struct ask *ask, struct gateway *g, enum rpc_method method,
	const void *request, struct str bytes, int64_t budget_us, ask_done_fn *done, void *arg);
void ask_stop(struct ask *ask); /* never calls back after it; harmless when idle */

/* --- visit.c: one HTTP request ---------------------------------------------------------------------------- */

struct offload {                        /* offload.c */
	void (*go_on)(struct visit *v); /* NULL = it has not begun */
	struct content **contents;      /* the large ones, in the task */
	size_t n, at;
	struct timer slice;
	struct blob_hash *hash;
	size_t done; /* of the current one: hashed, or sent */
	size_t piece;
	char name[BLOB_NAME_LEN + 1];
	struct id upload;
	unsigned tries;
};

struct upload;

struct visit {
	struct gateway *g;
	struct list link; /* g->visits */
	struct http_request *http;
	struct ask ask;
	int64_t started_us;
	char what[96];    /* method and path, for the log; filled when debug is on */
	int64_t wait_us;  /* how long the client waits; 0 = not at all */
	int64_t until_us; /* loop time of its end */

	/* tasks.c */
	struct id id;
	int status;          /* of a good answer */
	bool keyed;          /* came with an Idempotency-Key */
	struct record *task; /* POST, until it is added */
	struct buf doc;      /* likewise */
	struct offload offload;
	struct codec_list blobs; /* struct str: what the task refers to; POST */
	struct upload *upload;   /* PUT of a blob */
	struct {                 /* GET of a blob */
		struct http_stream *stream;
		char name[BLOB_NAME_LEN + 1];
		int64_t size, sent;
		bool is_head, any;
	} send;
	struct buf
		plain; /* answer when the waiting is over and nobody can be asked; POST with wait */
	union {
		struct msg_add_request add;
		struct msg_cancel_request cancel;
		struct msg_get_request get;
		struct msg_search_request search;
		struct msg_executors_request executors;
		struct msg_judicators_request judicators;
		struct msg_ping_request ping;
		struct msg_stats_request stats;
		struct msg_blob_put_request blob_put;
		struct msg_blob_get_request blob_get;
	} request;
	struct msg_get_item item;
	char texts[5][65]; /* query parameters that the request points at */

	struct grant grant;
	unsigned route; /* for metrics */

	/* access.c */
	void (*let_through)(struct visit *v);
	bool adding;
	int64_t adding_then, added_then;

	/* events.c */
	struct http_stream *stream; /* the answer has begun; http is NULL */
	struct list stream_link;    /* g->events.streams */
	char last_state[65];        /* the client knows */
	size_t sent;                /* of plain */

	unsigned list; /* lists.c */

	struct { /* metrics.c */
		bool is_up;
		int64_t pending;
		unsigned alive, dead;
	} scrape;

	/* waiters.c */
	struct list wait_link;    /* entry->visits */
	bool waits;               /* counted there */
	struct wait_entry *entry; /* NULL = on the list of those whose wait is over */
	struct timer wait;
};

/* NULL when it has been answered already: the gateway stops. */
struct visit *visit_new(struct gateway *g, struct http_request *http);
/* Answers and frees. */
void visit_reply(struct visit *v, int status, const char *type, struct str body);
void visit_problem(struct visit *v, const struct problem *problem);
void visit_fail(struct visit *v, int status, const char *code, const char *fmt, ...)
	printf_like(4, 5);
/* Begins an answer whose length is not known, as v->stream; whoever ends that frees the visit. */
void visit_stream(struct visit *v, int status, const char *type);
/* The answer has been given already, as a stream. Frees. */
void visit_answered(struct visit *v, int status, size_t bytes);
/* Without an answer: the client is gone. */
void visit_free(struct visit *v);
/* That it has no parameters; false when answered. */
bool visit_is_plain(struct visit *v);

#define TYPE_JSON "application/json"

struct query_param {
	const char *name;
	char *out; /* "" when absent */
	size_t cap;
};
/* Reads the query: each parameter at most once and no others. False: problem says which. */
bool query_read(const struct http_request *http, const struct query_param *params, size_t n,
	struct problem *problem);
/* "wait" in ms -> *wait_us (0 when absent, text ""). */
bool query_wait(const char *text, int64_t *wait_us, struct problem *problem);

/* --- the table of routes (gateway.c) -------------------------------------------------------------------------- */

/* Beside the roles (enum token_role) that may use a route: no token is needed. A row without anything is for admin. */
#define ALLOW_EVERYBODY 8u
#define ALLOW_ANY (TOKEN_SUBMIT | TOKEN_READ)

struct gateway_route {
	enum http_method method;
	const char *path;
	void (*handle)(const struct route_match *match, struct http_request *http);
	unsigned allow;
	const char *summary; /* for openapi.json, as all below */
	const char *query;   /* parameters, by comma; NULL = none */
	const char *request; /* schema of the body; NULL = none */
	int status;          /* of the good answer */
	const char *answer;  /* its schema; NULL = `type` is not JSON */
	const char *type;    /* NULL = application/json */
};

const struct gateway_route *gateway_route_at(unsigned i); /* NULL behind the last */

/* --- access.c ------------------------------------------------------------------------------------------------- */

struct access {
	struct tokens tokens;
	struct map users; /* name -> struct access_user *; stay until the end */
};

void access_init(struct gateway *g);
void access_fini(struct gateway *g);
/* Takes them over. */
void access_set_tokens(struct gateway *g, struct tokens *tokens);
/* True: *grant is what the request's token allows. False: *problem (401, 403, 429); the header that goes with it is set. */
bool access_check(struct gateway *g, struct http_request *http, unsigned allow, bool charge,
	struct grant *grant, struct problem *problem);
const char *access_user_name(const struct grant *grant); /* NULL without tokens */
/* A task of this user: may it be shown, may it be cancelled? Others' are as good as unknown. */
bool access_may_read(const struct visit *v, struct str user);
bool access_may_change(const struct visit *v, struct str user);
/* Calls fn, now or once the user's open tasks are counted; or answers. */
void access_admit(struct visit *v, void (*fn)(struct visit *v));
/* What it let through is in the store, or will never be. Harmless otherwise. */
void access_added(struct visit *v);

/* --- metrics.c ------------------------------------------------------------------------------------------------ */

#define METRICS_STATUSES 20 /* the last: any other */
#define METRICS_BUCKETS 15  /* the last: without bound */
#define METRICS_FAILURES (RPC_GARBLED + 1)

enum metrics_limit { METRICS_OPEN, METRICS_RATE, METRICS_LIMITS };

#define METRICS_ROUTES 64 /* as many as the table may have, and one more: no route */

struct metrics_route {
	uint64_t statuses[METRICS_STATUSES];
	uint64_t buckets[METRICS_BUCKETS];
	uint64_t us;
};

/* What only grows. Words of 64 bits and nothing else: all workers' are added up word by word. */
struct metrics {
	struct metrics_route routes[METRICS_ROUTES];
	uint64_t adds[2]; /* created: no, yes */
	uint64_t verdicts[VERDICT_N];
	uint64_t calls[RPC_METHOD_N][METRICS_FAILURES];
	uint64_t limited[METRICS_LIMITS];
	uint64_t done_cache[2]; /* was it there: no, yes; this and the rest by metrics_publish() */
	uint64_t turns, slow_turns;
};

/* What is so now, likewise. */
struct metrics_now {
	uint64_t waiting, body_bytes, done_cache_bytes;
};

/* A worker's place in shared memory: it writes, everybody reads. */
struct metrics_slot {
	struct metrics metrics;
	struct metrics_now now;
	uint64_t longest_turn_us;
};

/* One writer a word, and readers in other processes. */
static inline void metrics_set(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static inline void metrics_add(uint64_t *word, uint64_t n)
{
	metrics_set(word, *word + n);
}

void metrics_init(struct gateway *g, unsigned n_routes);
void metrics_fini(struct gateway *g);
/* Its worker has ended. */
void metrics_slot_clear_now(struct metrics_slot *slot);
void metrics_request(struct gateway *g, unsigned route, int status, int64_t us);
void metrics_verdict(struct gateway *g, const struct msg_task_view *task);
void metrics_call(struct gateway *g, enum rpc_method method, enum rpc_failure failure);
void metrics_on_get(const struct route_match *match, struct http_request *http);

/* --- openapi.c ------------------------------------------------------------------------------------------------ */

/* The document, built from the tables of routes, fields and problems. */
void openapi_write(struct buf *out);
void openapi_on_get(const struct route_match *match, struct http_request *http);

/* --- tasks.c ------------------------------------------------------------------------------------------------- */

void tasks_on_post(const struct route_match *match, struct http_request *http);
void tasks_on_list(const struct route_match *match, struct http_request *http);
void tasks_on_get(const struct route_match *match, struct http_request *http);
void tasks_on_delete(const struct route_match *match, struct http_request *http);
/* Answers with the whole task; body is its view. */
void tasks_reply(struct visit *v, struct str body);
/* Nobody can tell how the task is: a POST answers what it knows, others the problem. */
void tasks_reply_unknown(struct visit *v, const struct problem *problem);
void tasks_reply_missing(struct visit *v);
/* The {id} of the path into v->id, of a request that takes no parameters. False when answered. */
bool tasks_read_plain(struct visit *v, const struct route_match *match);

/* --- files.c --------------------------------------------------------------------------------------------------- */

void files_on_get(const struct route_match *match, struct http_request *http);

/* --- blobs.c, offload.c ---------------------------------------------------------------------------------------- */

/* At the header of a request for which blobs_is_put(): its body will come here. False: *problem. */
bool blobs_is_put(const struct http_request *http);
bool blobs_take_body(struct gateway *g, struct http_request *http, const struct grant *grant,
	struct problem *problem);
void blobs_upload_free(struct upload *u); /* NULL is fine */
void blobs_on_put(const struct route_match *match, struct http_request *http);
void blobs_on_get(const struct route_match *match, struct http_request *http);
/* Answers with the blob's bytes; any: whosever it is. */
void blobs_send(struct visit *v, struct str name, bool any);
/* A judicator did not take a blob. Answers. */
void blobs_tell(struct visit *v, const struct problem *problem);
/* Makes blobs of what is too large to be sent with v->task, then calls go_on (at once when there is nothing); or answers. */
void offload_start(struct visit *v, void (*go_on)(struct visit *v));
void offload_fini(struct visit *v); /* harmless when it has not begun */

/* --- waiters.c ------------------------------------------------------------------------------------------------ */

struct waiters {
	/* id -> struct wait_entry, all that held gets are for: of those that wait for the end, and of those that listen */
	struct map entries, listened;
	struct list watchers; /* struct watcher, the oldest first */
	struct list looks;    /* struct look */
	struct list due;      /* struct visit (wait_link): their wait is over */
	struct defer look;
	unsigned count; /* of visits that wait */
};

void waiters_init(struct gateway *g);
void waiters_fini(struct gateway *g); /* when no visit waits any more */
bool waiters_are_full(const struct gateway *g);
/* The visit is answered by tasks_reply...() when its task is done, or when v->until_us has come. */
void waiters_add(struct visit *v);
/* The visit has a stream, and knows the task's state: events_tell() at each change, until it is removed. */
void waiters_listen(struct visit *v, struct str state);
void waiters_remove(struct visit *v); /* harmless when it does not wait */
/* Everybody's wait is over; those that listen stay. */
void waiters_end_all(struct gateway *g);

/* --- events.c -------------------------------------------------------------------------------------------------- */

/* Streams are at most this part of those that may wait: each change of a task that is followed costs a get. */
#define EVENTS_SHARE 10

struct events {
	struct list streams; /* struct visit (stream_link) */
	unsigned count;
	struct timer beat;
};

void events_init(struct gateway *g);
void events_fini(struct gateway *g); /* when there is no stream any more */
void events_on_get(const struct route_match *match, struct http_request *http);
/* A change: view is short, or whole when the task is done; then the visit is over soon, or at once. */
void events_tell(struct visit *v, struct str state, bool done, struct str view);
/* There is no such task any more. Frees the visit. */
void events_end(struct visit *v);
/* A visit that ends has no stream any more; harmless when it had none. */
void events_forget(struct visit *v);
void events_end_all(struct gateway *g);

/* --- lists.c -------------------------------------------------------------------------------------------------- */

void lists_on_executors(const struct route_match *match, struct http_request *http);
void lists_on_judicators(const struct route_match *match, struct http_request *http);
void lists_on_languages(const struct route_match *match, struct http_request *http);
void lists_on_health(const struct route_match *match, struct http_request *http);
void lists_on_stats(const struct route_match *match, struct http_request *http);

/* --- page.c --------------------------------------------------------------------------------------------------- */

void page_on_root(const struct route_match *match, struct http_request *http);
void page_on_file(const struct route_match *match, struct http_request *http);

/* --- done_cache.c ---------------------------------------------------------------------------------------------- */

struct done_cache {
	struct map entries;      /* id -> struct done_entry, owned */
	struct list by_use;      /* the last used first */
	size_t bytes, bytes_max; /* what the entries cost */
	uint64_t asked[2];       /* was it there: no, yes */
};

void done_cache_init(struct done_cache *cache, int64_t bytes_max);
void done_cache_fini(struct done_cache *cache);
/* Keeps the answer about a task that is done (another is not kept); both are copied. */
void done_cache_put(struct done_cache *cache, const struct msg_task_view *task, struct str text);
/* Borrowed until the next put. The caller looks at who may see it. */
bool done_cache_get(
	struct done_cache *cache, const struct id *id, struct str *user, struct str *text);

/* --- view.c --------------------------------------------------------------------------------------------------- */

bool view_is_done(const struct msg_task_view *task);
/* The whole task, appended to w's text as an object. */
void view_write(const struct msg_task_view *task, struct json_writer *w);
/* Without result, for lists. */
void view_write_short(const struct msg_task_view *task, struct json_writer *w);
void view_text(const struct msg_task_view *task, struct buf *out);
void view_text_short(const struct msg_task_view *task, struct buf *out);
/* Member `key`: the time as UTC text, or null. */
void view_time(struct json_writer *w, const char *key, int64_t us);

/* --- gateway.c ------------------------------------------------------------------------------------------------- */

struct gateway {
	struct loop *loop;
	struct log *log;
	struct transport *transport;
	const struct map *languages;
	struct peers peers;
	struct http_server *server;
	char **hosts; /* what the Host header may be */
	unsigned n_hosts;
	char **names; /* likewise, at any port */
	unsigned n_names;
	int64_t wait_us, beat_us;
	unsigned waiting_max;
	struct buf refusal; /* scratch: a problem document given to the server */
	struct route *routes;
	unsigned n_routes;
	struct buf openapi;
	struct access access;
	struct shared *shared; /* with the other workers */
	bool owns_shared;      /* there are none */
	unsigned slot;
	struct metrics *metrics; /* in shared: ours */
	struct {
		struct timer timer;
		uint64_t done_cache[2], turns, slow_turns; /* as they were told the last time */
	} publish;
	struct { /* of the request whose handler runs, for its visit */
		struct grant grant;
		unsigned route;
	} now;

	struct list visits;
	struct list uploads; /* struct upload */
	unsigned n_uploads;
	int64_t blob_max;
	struct waiters waiters;
	struct events events;
	struct done_cache done_cache;

	bool stopping;
	struct timer stop_deadline;
	struct defer stopped;
	void (*on_stopped)(void *arg);
	void *on_stopped_arg;
};

void gateway_maybe_stopped(struct gateway *g);
