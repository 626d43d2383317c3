/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store - where tasks live: one vtable, a row a backend (sqlite, memory; mongodb later), one contract suite for all.
 *
 * Each verb is one atomic transaction and follows rpc's report protocol (rpc/README.md) exactly; the rules themselves are
 * written once in rules.c over row access, so backends cannot differ. Verbs are asynchronous: the callback comes once, from the loop,
 * never before the call has returned; it comes after what was written is durable (sqlite: after the commit's fsync).
 * Verbs that write take effect in the order called; get and search see at least everything answered before they were called.
 * Verbs cannot be cancelled; requests (struct msg_*) and everything they point at must stay valid until the callback: the caller
 * hands the record over for that long (names given as struct str are copied). Answers are borrowed for the callback. A store_done_fn may be NULL:
 * nobody wants to know.
 *
 * A store that cannot take more work answers STORE_E_BUSY (bounded queue); the caller answers 503.
 */
#pragma once

#include "rpc/messages.h"
#include "rpc/task/verdict.h"

struct log;
struct loop;
struct store;

enum store_status {
	STORE_OK,       /* add: look at reply->missing */
	STORE_UNKNOWN,  /* no such task, executor or blob */
	STORE_CONFLICT, /* add: same id, other content */
	STORE_DONE,     /* cancel: done already */
	STORE_STALE,    /* report: an older seq, touch nothing; lose: (epoch, seq) moved on */
	STORE_FENCED,   /* report: older or dead epoch */
	STORE_LOST,     /* blob_put: no such upload (any more), or this is not its next piece */
	STORE_MISMATCH, /* blob_put: the bytes have another hash; all of them are forgotten */
	STORE_E_BUSY,   /* queue full: nothing happened, try later */
	STORE_E_FULL,   /* add, blob_put: below the reserve of free disk */
	STORE_E_FAILED, /* the store itself failed; nothing happened (logged) */
};

struct store_options {
	struct log *log;       /* borrowed */
	const char *dir;       /* sqlite: directory, exists */
	int64_t reserve_bytes; /* sqlite: add is refused below this much free space; 0 = never */
	int64_t max_retries;   /* counted losses before error */
	/* Called from the loop behind the answers of verbs that changed tasks: ids whose readers would see a difference (one may
	 * stand there twice), and a language for each task queued in it, added or returned: as many waiters as entries have
	 * something to do. Local changes only. May be NULL. */
	void (*on_changed)(void *arg, const struct id *ids, unsigned n_ids,
		const struct str *languages, unsigned n_languages);
	void *arg;
};

/* What report() did, besides the reply. */
struct store_report {
	enum store_status status;      /* OK, STALE, FENCED, E_* */
	struct msg_report_reply reply; /* seq, fenced, accepted, cancel, assign (docs as text) */
	bool says_something;           /* fenced, or any list not empty */
	/* There was room, and the best task offered has been lost with an executor before (it must run alone) but could not be given:
	 * this executor holds something else. The judicator drains an executor for it (rpc/README.md). */
	bool lone_waiting;
};

enum report_mode { REPORT_FRESH, REPORT_AGAIN };

/* Durable facts about an executor, for the leader's duty and the list. */
struct store_executor {
	char name[65];
	int64_t epoch, last_seq;
	bool dead, hidden;
	int64_t slots; /* as it reported last */
	int64_t owned; /* tasks it holds */
};

typedef void store_add_fn(void *arg, enum store_status status, const struct msg_add_reply *reply);
typedef void store_done_fn(void *arg, enum store_status status);
typedef void store_register_fn(
	void *arg, enum store_status status, const struct msg_register_reply *reply);
typedef void store_report_fn(void *arg, const struct store_report *report);
typedef void store_get_fn(void *arg, enum store_status status, const struct msg_get_reply *reply);
typedef void store_search_fn(
	void *arg, enum store_status status, const struct msg_search_reply *reply);
typedef void store_executors_fn(
	void *arg, enum store_status status, const struct store_executor *list, unsigned n);
typedef void store_blob_put_fn(
	void *arg, enum store_status status, const struct msg_blob_put_reply *reply);
/* bytes: the piece asked for, empty behind the end. */
typedef void store_blob_get_fn(void *arg, enum store_status status,
	const struct msg_blob_get_reply *reply, struct str bytes);
typedef void store_count_fn(void *arg, enum store_status status, int64_t pending);
typedef void store_stats_fn(
	void *arg, enum store_status status, const struct msg_stats_reply *reply);

/* What a handle has done since it was opened. */
struct store_counters {
	uint64_t ended[VERDICT_N]; /* tasks that became done */
	/* where there are batches and a disk, else 0 */
	uint64_t batches, operations;      /* writing ones */
	uint64_t commits;                  /* durable: one fsync each */
	uint64_t soft_commits;             /* progress only: no fsync */
	uint64_t failed;                   /* operations answered STORE_E_FAILED */
	int64_t free_bytes, reserve_bytes; /* of the disk, now; free: -1 = there is none */
};

struct store_ops {
	const char *name;
	/* 0, or -errno after logging what to do. */
	int (*open)(struct loop *loop, const struct store_options *options, struct store **out);
	void (*close)(
		struct store *store); /* finishes what was called (callbacks fire), then frees */
	/* store_options.reserve_bytes anew, for all that has not begun to run: 0 = never refuse. No verb: it cannot fail and tells
	 * nobody. */
	void (*set_reserve)(struct store *store, int64_t reserve_bytes);
	void (*add)(struct store *store, const struct msg_add_request *request, store_add_fn *cb,
		void *arg);
	void (*cancel)(struct store *store, struct id id, store_done_fn *cb, void *arg);
	void (*enroll)(struct store *store, struct str executor, int64_t base,
		store_register_fn *cb, void *arg);
	void (*report)(struct store *store, const struct msg_report_request *request,
		enum report_mode mode, store_report_fn *cb, void *arg);
	/* Gives a claim back that never left: still exactly (executor, epoch, attempt) -> back, uncounted. STALE otherwise. */
	void (*undo)(struct store *store, struct id id, struct str executor, int64_t epoch,
		int64_t attempt, store_done_fn *cb, void *arg);
	/* Row == (epoch, alive, seq) -> dead, its tasks return, counted. STALE otherwise; UNKNOWN: no such name. */
	void (*lose)(struct store *store, struct str executor, int64_t epoch, int64_t seq,
		store_done_fn *cb, void *arg);
	/* Hides a dead executor from the list; epoch and dead are kept for ever. STALE: it lives (again). */
	void (*drop)(struct store *store, struct str executor, store_done_fn *cb, void *arg);
	void (*executors)(struct store *store, bool hidden_too, store_executors_fn *cb, void *arg);
	/* Each item whose state differs from `known` (done_only: and which is done); `missing` for unknown ids. Does not wait
	 * (the judicator does). A reply ends early once it holds STORE_REPLY_BYTES: what is left out still differs, ask again. */
	void (*get)(struct store *store, const struct msg_get_request *request, store_get_fn *cb,
		void *arg);
	/* A page may be shorter than its limit, even empty, while `next` is present: a search stops after having looked at
	 * STORE_SEARCH_STEPS tasks. UNKNOWN: `after` is not a `next` of ours. */
	void (*search)(struct store *store, const struct msg_search_request *request,
		store_search_fn *cb, void *arg);
	void (*pending)(struct store *store, store_count_fn *cb, void *arg); /* tasks waiting */
	/* The last hour by minute, and now: of the store, whoever wrote it, and not of this handle. Costs the same however many tasks
	 * there are. It survives the process as the tasks do. */
	void (*stats)(struct store *store, store_stats_fn *cb, void *arg);
	/* No verb: at once. Asks the file system. */
	void (*counters)(const struct store *store, struct store_counters *out);
	/* Blobs (see blobs in README.md). Bytes come in order, a piece after the answer to the one before; the last one is answered when all
	 * of it is durable, and has the hash that is its name: no half a blob is ever seen. A piece may be sent again. Bytes are
	 * borrowed until the answer. BUSY: too many uploads, or the piece before is still being written. An upload without a piece for
	 * STORE_UPLOAD_IDLE_US makes room for another one. */
	void (*blob_put)(struct store *store, const struct msg_blob_put_request *request,
		struct str bytes, store_blob_put_fn *cb, void *arg);
	/* UNKNOWN: no such blob, or not the user's. */
	void (*blob_get)(struct store *store, const struct msg_blob_get_request *request,
		store_blob_get_fn *cb, void *arg);
	/* Removes blobs that no task refers to and that nobody has put, or has referred to, for so long; the count is of those removed. At
	 * most STORE_COLLECT_MAX at a time. BUSY: one is at work. */
	void (*blob_collect)(struct store *store, int64_t unused_us, store_count_fn *cb, void *arg);
};

#define STORE_REPLY_BYTES                                                                          \
	(INT64_C(64) << 20) /* documents and results in one reply, before the one that crosses it */
#define STORE_SEARCH_STEPS 50000
#define STORE_UPLOADS_MAX 256
#define STORE_UPLOAD_IDLE_US (60 * INT64_C(1000000))
#define STORE_COLLECT_MAX 1000
#define STORE_EXECUTOR_MAX 64 /* bytes of a name: longer is a bug of the caller */

struct store { /* first member of every row's own structure */
	const struct store_ops *ops;
};

extern const struct store_ops store_memory;
extern const struct store_ops store_sqlite;
/* By name; NULL when unknown. */
const struct store_ops *store_find(struct str name);
/* Memory only: a second handle on the same data (several judicators on one store, tests). on_changed is per handle. */
int store_memory_share(
	struct store *store, const struct store_options *options, struct store **out) must_check;
