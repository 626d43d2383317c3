/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judicator_int - what the judicator's files share: the owner structure and the verbs between them. Nobody else includes it.
 *
 *   judicator.c  life, the handlers' table, the short calls (add, cancel, search, ping, lists)
 *   polls.c      held reports: the JUDICATOR part of the report protocol
 *   watches.c    held gets
 *   duties.c     what a leader does
 *   metrics.c    what Prometheus is told
 *   pieces.c     pieces of blobs
 */
#pragma once

#include "reactor/base/clock.h"
#include "reactor/base/list.h"
#include "reactor/base/map.h"
#include "reactor/loop.h"
#include "reactor/timer.h"
#include "roles/judicator/judicator.h"
#include "roles/metrics.h"

/* A wake may be lost (another judicator's change): every held poll and get is asked again by and by. */
#define FALLBACK_US (250 * US_PER_MS)
/* Held polls and watched ids asked again in one fallback tick, in turn: bounds its cost with 10 000 waiters. */
#define FALLBACK_MAX 64
/* A queued task wakes one waiter; if that one could not take it, so many others are tried at once. */
#define WAKE_TRIES 4
#define WAIT_MAX_US (60 * US_PER_S)

/* One store verb under way for a call: survives the call's going and the judicator's. */
struct ask {
	struct judicator *j;   /* NULL once the judicator is gone */
	struct list link;      /* j->asks */
	struct rpc_call *call; /* NULL once the caller is gone */
	struct record *record; /* the request; kept valid for the store */
	char *text;            /* a name kept valid for the store, owned */
	struct buf bytes;      /* likewise a piece of a blob */
};

/* What an executor told this judicator last; for people, not for the protocol. */
struct known {
	char *name;
	int64_t seen_us; /* wall */
	int64_t epoch, running, vacant;
	struct record *record;          /* owns view */
	struct msg_executor_view *view; /* languages, isolation, version, toolchains */
};

struct duties {
	struct timer timer;
	struct map seen; /* name -> struct sighting */
	bool asking;
	int64_t asked_us, ticked_us;
	int64_t collected_us; /* when blobs were looked through last */
};

struct judicator {
	struct loop *loop;
	struct log *log;
	char *name;
	char *address;
	struct store *store;
	struct rpc_server *server;
	bool leading;
	int64_t expire_us, drop_us, blob_age_us;

	struct list asks; /* struct ask */
	struct map known; /* name -> struct known */

	struct list held;      /* struct poll: idle waiters, the longest unasked first */
	struct list asking;    /* struct poll: with a store verb under way */
	struct map listed;     /* id -> struct poll that lists it, among the held */
	struct map waiting;    /* executor -> its newest held poll */
	int64_t lone_since_us; /* best task has been lone since; 0 = it is not */
	char *draining;        /* executor that gets nothing until it is empty, or NULL */

	struct list watches; /* struct watch */
	struct map watched;  /* id -> struct watch_refs */
	struct defer wake_watches;

	struct timer fallback;
	struct duties duties;

	struct metrics_server *metrics; /* NULL = not served */
	struct list scrapes;            /* struct scrape: the store is asked */
	uint64_t added;                 /* tasks that were new */

	bool stopping;
	void (*on_stopped)(void *arg);
	void *on_stopped_arg;
	struct defer stopped;
};

/* judicator.c */
struct ask *ask_new(struct judicator *j, struct rpc_call *call) must_check;
/* Fails the call if it is still unanswered and status is no success, then frees. */
void ask_finish(struct ask *a, enum store_status status);
/* What this executor told is not needed any more: it is hidden. */
void judicator_forget(struct judicator *j, struct str executor);
void judicator_maybe_stopped(struct judicator *j);
/* Fails the call for a store status that is no success. */
void judicator_fail(struct rpc_call *call, enum store_status status);

/* polls.c */
void polls_init(struct judicator *j);
void polls_fini(struct judicator *j);
rpc_handler_fn polls_on_report;
rpc_handler_fn polls_on_register;
void polls_work_queued(struct judicator *j, struct str language);
void polls_task_changed(struct judicator *j, const struct id *id);
/* An epoch of this executor was retired: its held polls learn it. */
void polls_epoch_retired(struct judicator *j, struct str executor);
void polls_fallback(struct judicator *j);
void polls_answer_all(struct judicator *j);
bool polls_are_asking(const struct judicator *j);

/* watches.c */
void watches_init(struct judicator *j);
void watches_fini(struct judicator *j);
rpc_handler_fn watches_on_get;
void watches_task_changed(struct judicator *j, const struct id *id);
void watches_fallback(struct judicator *j);
void watches_answer_all(struct judicator *j);
bool watches_are_asking(const struct judicator *j);

/* metrics.c */
int metrics_open(struct judicator *j, const char *address) must_check;
void metrics_close(struct judicator *j); /* harmless when it is not open */
/* pieces.c */
rpc_handler_fn pieces_on_put;
rpc_handler_fn pieces_on_get;

/* duties.c */
void duties_init(struct judicator *j);
void duties_fini(struct judicator *j);
void duties_set(struct judicator *j, bool leading);
