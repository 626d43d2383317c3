/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_hand - a store played by hand: each verb as a synchronous call that turns the loop until the answer is there and copies it
 * out of the callback, and as a call_...() that only starts. Tasks are numbers, 1 and up. A deadline that passes fails the test.
 */
#pragma once

#include "roles/judicator/store/hour.h"
#include "roles/judicator/store/store.h"

#define HAND_LIST_MAX 64
#define HAND_TEXT_MAX 512
#define HAND_NAMES 7

struct loop;
struct log;

struct view { /* of a task; texts are cut at HAND_TEXT_MAX - 1 */
	struct id id;
	char user[70], language[40], status[40], verdict[40], executor[70], state[70], message[200];
	char labels[200]; /* each with a comma behind */
	int64_t epoch, assign_seq, attempt, retries, case_no, add_us, start_us, done_us;
	char doc[HAND_TEXT_MAX], result[HAND_TEXT_MAX];
	size_t doc_bytes, result_bytes;
};

struct store_hand {
	const struct store_ops *ops;
	struct store *store; /* NULL once closed */
	struct loop *loop;
	struct log *log;
	char dir[64]; /* a fresh one, removed at the end */
	int64_t max_retries, reserve_bytes;
	struct str raw_doc; /* present: what add_task() sends, whatever its words say */
	/* answers */
	struct store_executor executors[HAND_LIST_MAX];
	unsigned found[4096], n_found; /* by search(): appended */
	unsigned page;
	char next[70];
	/* told by on_changed */
	struct id told_ids[1024];
	unsigned n_told_ids;
	char told_languages[16][40];
	unsigned n_told_languages;
	char logged[1024]; /* the last line of an error */
	char ended[1024];  /* the last line of a task that ended */
	unsigned n_ended;
	/* for tests to keep what executors hold */
	unsigned held[HAND_NAMES][HAND_LIST_MAX], n_held[HAND_NAMES];
};

static const char *const names[HAND_NAMES] = {"e", "f", "g", "h", "i", "j", "k"};

struct store_hand *store_hand_new(const struct store_ops *ops); /* opened */
void store_hand_free(struct store_hand *h);
int store_hand_open(struct store_hand *h); /* again, after close, on the same directory */
void store_hand_close(struct store_hand *h);

struct id number_id(unsigned n);
unsigned number_of(const struct id *id);
#define assert_id(id, n) assert_int_equal(number_of(id), (n))
#define assert_ref(ref, n, a)                                                                      \
	do {                                                                                       \
		assert_id(&(ref)->id, (n));                                                        \
		assert_int_equal((ref)->attempt, (a));                                             \
	} while (0)

/* Turns the loop until *waiting is 0. */
void wait_zero(struct store_hand *h, const unsigned *waiting);

/* --- add --- */
struct task_words {
	unsigned n;
	const char *doc, *user, *language; /* NULL: {}, nobody, raw */
	int64_t priority;
	const char *labels[4];
};
struct added {
	enum store_status status;
	bool created;
	char task_status[40];
	int64_t add_us;
};
struct added add_task(struct store_hand *h, const struct task_words *words);
void call_add(struct store_hand *h, unsigned n, const char *language,
	unsigned *waiting); /* must succeed */
void add_many(struct store_hand *h, unsigned first, unsigned count, const char *language);

/* --- executors --- */
int64_t enroll(struct store_hand *h, const char *name,
	int64_t base); /* the epoch, or - the last one on conflict */
void call_enroll(struct store_hand *h, const char *name, int64_t base, unsigned *waiting);
enum store_status lose(struct store_hand *h, const char *name, int64_t epoch, int64_t seq);
enum store_status drop(struct store_hand *h, const char *name);
unsigned list_executors(struct store_hand *h, bool hidden_too);

/* --- report --- */
struct says {
	struct msg_report_request r;
	struct msg_complete_item complete[HAND_LIST_MAX];
	struct msg_executing_item executing[HAND_LIST_MAX];
	struct str languages[HAND_LIST_MAX];
	const char *offered; /* separated by commas */
};
struct answer {
	enum store_status status;
	int64_t seq;
	bool fenced, says_something, lone_waiting;
	struct msg_task_ref accepted[HAND_LIST_MAX], cancel[HAND_LIST_MAX];
	struct {
		struct id id;
		int64_t attempt;
		bool lone;
		char doc[HAND_TEXT_MAX];
		size_t doc_bytes;
	} assign[HAND_LIST_MAX];
	unsigned n_accepted, n_cancel, n_assign;
};
struct says says(const char *name, int64_t epoch, int64_t seq, int64_t acked, int64_t vacant,
	const char *offered);
struct says says_running(
	struct says s, unsigned n, int64_t attempt, const char *status, int64_t case_no);
struct msg_complete_item *says_complete(struct says *s, unsigned n, int64_t attempt,
	const char *status, const char *verdict, const char *result);
struct answer report(struct store_hand *h, struct says s);
struct answer report_again(struct store_hand *h, struct says s);
/* *s and *a must live until *waiting was counted down. */
void call_report(struct store_hand *h, struct says *s, enum report_mode mode, struct answer *a,
	unsigned *waiting);

/* --- tasks --- */
enum store_status cancel(struct store_hand *h, unsigned n);
enum store_status undo(
	struct store_hand *h, unsigned n, const char *name, int64_t epoch, int64_t attempt);
struct get_words {
	struct {
		unsigned n;
		const char *known;
	} items[8];
	unsigned n_items;
	bool done_only, doc;
};
struct gets {
	enum store_status status;
	struct view views[8];
	unsigned n;
	struct id missing[8];
	unsigned n_missing;
};
struct gets get(struct store_hand *h, const struct get_words *words);
struct view get_task(struct store_hand *h, unsigned n); /* must exist; with its document */
void call_get(struct store_hand *h, unsigned n, unsigned *waiting);

struct search_words {
	const char *user, *status, *language, *label;
	bool ascending;
	unsigned limit;
};
/* Appends to h->found; the page's size to h->page, where the next begins to h->next. */
enum store_status search(struct store_hand *h, const struct search_words *words, const char *after);
int64_t pending(struct store_hand *h);
/* The last hour; its minutes stand in *minutes. */
struct msg_stats_reply hour_stats(
	struct store_hand *h, struct msg_stats_minute minutes[HOUR_MINUTES]);

/* --- who was told --- */
void told_reset(struct store_hand *h);
bool told_id(const struct store_hand *h, unsigned n);
unsigned told_language(const struct store_hand *h, const char *language); /* how often */
