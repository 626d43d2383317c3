/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules - the STORE part of the report protocol (rpc/README.md), written once, over rows.
 *
 * A backend gives access to its rows (struct rows_ops); the rules are plain synchronous functions over that. They know nothing of
 * threads, transactions or callbacks: the caller runs each one alone and all or nothing. When a row operation fails, the rule stops
 * where it is and returns that negative errno; the caller then takes back everything the rule wrote.
 */
#pragma once

#include "roles/judicator/store/hour.h"
#include "roles/judicator/store/store.h"

struct buf;
struct rows;

#define ROWS_NONE 1 /* no such row */
#define ROWS_LANGUAGE_MAX 32
#define ROWS_USER_MAX 64
#define ROWS_MESSAGE_MAX 160

struct rows_blob {
	char name[BLOB_NAME_LEN + 1];
	int64_t size, used_us;
};

struct rows_blobs {
	struct rows_blob *items;
	size_t count, cap;
};
void rows_blobs_add(struct rows_blobs *list, const struct rows_blob *blob);
void rows_blobs_fini(struct rows_blobs *list);

/* Where a task is. Exactly one: a task in the queue has no owner, a done one neither waits nor is owned. */
enum rows_place { ROWS_DONE, ROWS_QUEUED, ROWS_OWNED };

struct rows_executor {
	char name[STORE_EXECUTOR_MAX + 1];
	int64_t epoch, last_seq; /* last_seq need not be durable: 0 after a restart */
	bool dead, hidden;
	int64_t slots; /* tasks at the same time, as it said last */
};

struct rows_executors { /* those that are not hidden, together */
	int64_t alive, dead;
	int64_t slots; /* of those alive */
};

struct rows_task {
	/* fixed when added */
	struct id id;
	int64_t add_us; /* unique in a store, increasing: the row's key and the last word in the queue's order */
	int64_t priority;
	char language[ROWS_LANGUAGE_MAX + 1];
	char user[ROWS_USER_MAX + 1];
	/* the rest is what task_put() writes */
	enum rows_place place;
	enum task_status status;
	enum verdict verdict;
	char executor[STORE_EXECUTOR_MAX + 1]; /* OWNED: the owner; DONE: who judged it, or "" */
	int64_t epoch, assign_seq;             /* of the claim */
	int64_t attempt, retries, case_no;
	int64_t start_us, done_us; /* 0 = not yet */
	char message[ROWS_MESSAGE_MAX];
};

struct rows_list {
	struct rows_task *items;
	size_t count, cap;
};
struct rows_task *rows_list_add(struct rows_list *list); /* the new, zeroed last item */
void rows_list_fini(struct rows_list *list);

/* Queue order: priority descending, then add_us, then id. */
bool rows_task_before(const struct rows_task *a, const struct rows_task *b);

/* Labels are kept joined, each with a NUL behind it (they have none inside). */
bool rows_labels_next(struct str *rest, struct str *label); /* false at the end */

enum rows_text { ROWS_DOC, ROWS_RESULT, ROWS_LABELS };

/* Tasks in the order of adding, from the one behind after_us. */
struct rows_walk {
	int64_t after_us; /* exclusive; 0 ascending or INT64_MAX descending = from the beginning */
	bool ascending;
	struct str label;  /* present: only tasks having it; the backend must see to it */
	struct str user;   /* present: the backend may skip other users' tasks */
	struct str status; /* present: the backend may skip tasks of another status */
};
typedef bool rows_visit_fn(void *arg, const struct rows_task *task); /* false ends the walk */
typedef void rows_executor_fn(void *arg, const struct rows_executor *row, int64_t owned);

/* Results: 0, ROWS_NONE where said, or negative errno. */
struct rows_ops {
	int (*executor_get)(
		struct rows *rows, struct str name, struct rows_executor *out); /* or NONE */
	int (*executor_put)(struct rows *rows, const struct rows_executor *row);
	int (*executor_seen)(
		struct rows *rows, const struct rows_executor *row); /* writes last_seq only */
	int (*executor_each)(struct rows *rows, bool hidden_too, rows_executor_fn *visit,
		void *arg); /* by name */
	int (*executors_sum)(struct rows *rows, struct rows_executors *out);
	int (*task_get)(
		struct rows *rows, const struct id *id, struct rows_task *out); /* or NONE */
	int (*task_add)(
		struct rows *rows, const struct rows_task *task, struct str doc, struct str labels);
	int (*task_put)(struct rows *rows, const struct rows_task *task);
	/* Status and case of a claim for readers; need not be durable, need not be seen by the rules before the transaction ends. */
	int (*task_progress)(struct rows *rows, const struct rows_task *task);
	/* Appends the tasks owned by name under an epoch in [first, last], in any order. */
	int (*owned)(struct rows *rows, struct str name, int64_t first, int64_t last,
		struct rows_list *out);
	int (*head)(struct rows *rows, struct str language,
		struct rows_task *out); /* best waiting; or NONE */
	/* add_us of the oldest task with this status; or NONE */
	int (*oldest)(struct rows *rows, enum task_status status, int64_t *add_us);
	/* Memory from the arena, or lent for as long as the answer lives. Absent when there is none. */
	int (*text_get)(struct rows *rows, const struct rows_task *task, enum rows_text what,
		struct record *arena, struct str *out);
	int (*result_put)(struct rows *rows, const struct rows_task *task, struct str result);
	int (*walk)(
		struct rows *rows, const struct rows_walk *walk, rows_visit_fn *visit, void *arg);
	bool (*has_room)(struct rows *rows); /* for new tasks and blobs */
	int (*blob_get)(struct rows *rows, struct str name, struct rows_blob *out); /* or NONE */
	int (*blob_put)(struct rows *rows, const struct rows_blob *blob);
	int (*blob_own)(struct rows *rows, struct str name, struct str user);
	int (*blob_owned)(struct rows *rows, struct str name, struct str user); /* 0 or NONE */
	int (*blob_refer)(struct rows *rows, struct str name, const struct rows_task *task);
	/* Appends those that no task refers to and that were last used before then, at most max. */
	int (*blob_unused)(
		struct rows *rows, int64_t before_us, size_t max, struct rows_blobs *out);
	int (*blob_del)(struct rows *rows, struct str name); /* with its owners */
};

struct rows { /* first member of a backend's own structure */
	const struct rows_ops *ops;
	int64_t last_add_us; /* of all tasks ever added: the backend fills it when it opens */
	struct hour
		hour; /* likewise, for as long as it lives; the backend puts it back when it takes an operation back */
};

/* What readers and waiting executors must hear of. */
struct rules_changes {
	struct id *ids; /* may repeat */
	unsigned n_ids, cap_ids;
	char (*languages)[ROWS_LANGUAGE_MAX + 1]; /* one a task queued */
	unsigned n_languages, cap_languages;
	struct rows_task *ended; /* tasks that became done */
	unsigned n_ended, cap_ended;
};
void rules_changes_fini(struct rules_changes *changes); /* idempotent */
/* Writes a line for each task that ended and counts it, calls on_changed if there is anything, and empties. */
void rules_changes_deliver(struct rules_changes *changes, const struct store_options *options,
	struct store_counters *counters);
/* For taking back what an operation did: what was noted after the mark is forgotten. */
struct rules_mark {
	unsigned n_ids, n_languages, n_ended;
};
struct rules_mark rules_changes_mark(const struct rules_changes *changes);
void rules_changes_back(struct rules_changes *changes, struct rules_mark mark);
/* The log line of a task that is done. The transition is (id, to, done_us): a line is repeated after a restart (repeated=yes), since a
 * process may die between the commit and the line. */
void rules_log_ended(struct log *log, const struct rows_task *task, bool repeated);

/* The surroundings of one operation. */
struct rules {
	struct rows *rows;
	int64_t max_retries;
	int64_t now_us;                /* wall clock when the verb was called */
	struct rules_changes *changes; /* NULL for reads */
	struct record *arena;          /* memory of the answer */
};

/* All return an enum store_status, or a negative errno: take everything back. */
int rules_add(struct rules *r, const struct msg_add_request *request, struct msg_add_reply *reply);
int rules_cancel(struct rules *r, const struct id *id);
int rules_register(
	struct rules *r, struct str name, int64_t base, struct msg_register_reply *reply);
int rules_report(struct rules *r, const struct msg_report_request *request, enum report_mode mode,
	struct store_report *out);
int rules_undo(
	struct rules *r, const struct id *id, struct str name, int64_t epoch, int64_t attempt);
int rules_lose(struct rules *r, struct str name, int64_t epoch, int64_t seq);
int rules_drop(struct rules *r, struct str name);

/* Rows of blobs (blob_rules.c); their bytes are the backend's. */
/* The bytes are kept: the row is there, it is the user's, and used now. *created: it was not there. */
int rules_blob_keep(struct rules *r, struct str name, int64_t size, struct str user, bool *created);
/* The same if it is there already; else UNKNOWN. */
int rules_blob_known(struct rules *r, struct str name, struct str user);
/* A task that is being added refers to these: *missing is the first that is not there, or absent. */
int rules_blobs_check(struct rules *r, const struct msg_add_request *request, struct str *missing);
int rules_blobs_refer(
	struct rules *r, const struct msg_add_request *request, const struct rows_task *task);
/* *size of one that is there, and is the user's if that is present; else UNKNOWN. */
int rules_blob_look(struct rules *r, struct str name, struct str user, int64_t *size);
/* Removes the rows of those not used since; *gone are they. */
int rules_blob_collect(struct rules *r, int64_t unused_us, struct rows_blobs *gone);

/* Reads (reads.c). */
int reads_get(struct rules *r, const struct msg_get_request *request, struct msg_get_reply *reply);
int reads_search(
	struct rules *r, const struct msg_search_request *request, struct msg_search_reply *reply);
/* *list from the arena. */
int reads_executors(struct rules *r, bool hidden_too, struct store_executor **list, unsigned *n);
int reads_stats(struct rules *r, struct msg_stats_reply *reply);
