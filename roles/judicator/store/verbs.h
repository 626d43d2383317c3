/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs - a call of a store's verb as an object, so that backends only say where and when it runs.
 *
 * The functions of struct store_ops make a verb_op and give it to the backend's submit(). The backend runs it (verb_run), on any
 * thread, alone and all or nothing, later answers it on the loop (verb_answer), which frees it. Whoever runs an op may run it again
 * after verb_reset(): what it did not keep, it did not do.
 */
#pragma once

#include "reactor/base/list.h"
#include "roles/judicator/store/rules.h"

struct verb_op;

/* What a verb needs of the rows. */
enum verb_kind {
	VERB_WRITES,
	VERB_READS, /* rows only: may run on another handle */
	VERB_OBSERVES /* changes nothing, but looks at what only the writing side knows (last_seq, hour) */
};

struct verb {
	const char *name;
	enum verb_kind kind;
	const struct codec_record *reply; /* whose arena the answer needs, or NULL */
	int (*run)(struct rules *r, struct verb_op *op);
	void (*answer)(struct verb_op *op);
};

typedef void verbs_blob_keep_fn(void *arg, enum store_status status, bool created);
typedef void verbs_blob_look_fn(void *arg, enum store_status status, int64_t size);
/* The list may be taken. */
typedef void verbs_blob_collect_fn(void *arg, enum store_status status, struct rows_blobs *gone);

struct verb_op {
	struct list link; /* the backend's */
	const struct verb *verb;
	int64_t now_us; /* wall clock at the call */
	int status;     /* enum store_status once run */
	struct record *arena;
	/* inputs */
	const void *request;
	struct id id;
	char executor[STORE_EXECUTOR_MAX + 1];
	int64_t epoch, number; /* number: base, attempt or seq */
	enum report_mode mode;
	bool hidden_too;
	struct str name, user; /* of a blob; borrowed */
	int64_t size;
	struct rows_blobs gone; /* an answer too */
	/* the answer */
	union {
		struct msg_add_reply add;
		struct msg_register_reply enroll;
		struct store_report report;
		struct msg_get_reply get;
		struct msg_search_reply search;
		struct {
			struct store_executor *list;
			unsigned n;
		} executors;
		int64_t pending;
		struct msg_stats_reply stats;
		int64_t size;
		bool created;
	} out;
	/* whom to tell */
	union {
		store_add_fn *add;
		store_done_fn *done;
		store_register_fn *enroll;
		store_report_fn *report;
		store_get_fn *get;
		store_search_fn *search;
		store_executors_fn *executors;
		store_count_fn *count;
		store_stats_fn *stats;
		verbs_blob_keep_fn *blob_keep;
		verbs_blob_look_fn *blob_look;
		verbs_blob_collect_fn *blob_collect;
	} cb;
	void *arg;
};

/* First member of each backend's structure. */
struct verbs {
	struct store store;
	struct loop *loop;
	struct store_options options;
	struct store_counters counters;
	void (*submit)(struct verbs *verbs, struct verb_op *op);
};

#define VERBS_OPS                                                                                  \
	.add = verbs_add, .cancel = verbs_cancel, .enroll = verbs_enroll, .report = verbs_report,  \
	.undo = verbs_undo, .lose = verbs_lose, .drop = verbs_drop, .executors = verbs_executors,  \
	.get = verbs_get, .search = verbs_search, .pending = verbs_pending, .stats = verbs_stats

/* Runs the op; 0, or the negative errno of a row operation (the op is then reset and marked STORE_E_FAILED). */
int verb_run(
	struct verb_op *op, struct rows *rows, int64_t max_retries, struct rules_changes *changes);
/* As if never run, to be answered with status. */
void verb_reset(struct verb_op *op, enum store_status status);
/* Calls back and frees. */
void verb_answer(struct verb_op *op);

void verbs_add(
	struct store *store, const struct msg_add_request *request, store_add_fn *cb, void *arg);
void verbs_cancel(struct store *store, struct id id, store_done_fn *cb, void *arg);
void verbs_enroll(
	struct store *store, struct str executor, int64_t base, store_register_fn *cb, void *arg);
void verbs_report(struct store *store, const struct msg_report_request *request,
	enum report_mode mode, store_report_fn *cb, void *arg);
void verbs_undo(struct store *store, struct id id, struct str executor, int64_t epoch,
	int64_t attempt, store_done_fn *cb, void *arg);
void verbs_lose(struct store *store, struct str executor, int64_t epoch, int64_t seq,
	store_done_fn *cb, void *arg);
void verbs_drop(struct store *store, struct str executor, store_done_fn *cb, void *arg);
void verbs_executors(struct store *store, bool hidden_too, store_executors_fn *cb, void *arg);
void verbs_get(
	struct store *store, const struct msg_get_request *request, store_get_fn *cb, void *arg);
void verbs_search(struct store *store, const struct msg_search_request *request,
	store_search_fn *cb, void *arg);
void verbs_pending(struct store *store, store_count_fn *cb, void *arg);
void verbs_stats(struct store *store, store_stats_fn *cb, void *arg);

/* Rows of blobs, for blobs.c: rules.h says what each does. Names and users are borrowed until the answer. */
void verbs_blob_known(
	struct store *store, struct str name, struct str user, store_done_fn *cb, void *arg);
void verbs_blob_keep(struct store *store, struct str name, int64_t size, struct str user,
	verbs_blob_keep_fn *cb, void *arg);
void verbs_blob_look(
	struct store *store, struct str name, struct str user, verbs_blob_look_fn *cb, void *arg);
void verbs_blob_collect(
	struct store *store, int64_t unused_us, verbs_blob_collect_fn *cb, void *arg);
