/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_sqlite - what only a store on a disk promises: it survives, it groups its commits, it says clearly what it cannot open, a full
 * disk costs nobody a task, its queries go by index; and it does exactly what the memory store does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reactor/base/buf.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/judicator/store/sqlite_rows.h"
#include "test/fake/store_hand.h"

/* SQLite's calls come here first, and are counted: whether a commit is durable cannot be seen otherwise. By both threads. */
static atomic_uint n_syncs;

int fdatasync(int fd)
{
	n_syncs++;
	return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
	n_syncs++;
	return (int)syscall(SYS_fsync, fd);
}

static int setup(void **state)
{
	*state = store_hand_new(&store_sqlite);
	return 0;
}

static int teardown(void **state)
{
	store_hand_free(*state);
	return 0;
}

static char *path_of(const struct store_hand *h, const char *file)
{
	return mem_printf("%s/%s", h->dir, file);
}

/* Opens the file beside the store, as an administrator would. */
static sqlite3 *peek(const struct store_hand *h)
{
	char *path cleanup(mem_freep) = path_of(h, "store.db");
	sqlite3 *db;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	sqlite3_busy_timeout(db, 5000);
	return db;
}

static void run_sql(const struct store_hand *h, const char *sql)
{
	sqlite3 *db = peek(h);

	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

/* The number that a query answers. */
static int64_t ask(const struct store_hand *h, const char *sql)
{
	sqlite3 *db = peek(h);
	sqlite3_stmt *stmt;
	int64_t n;

	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	n = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	return n;
}

static struct store_counters stats(const struct store_hand *h)
{
	struct store_counters s;

	h->store->ops->counters(h->store, &s);
	return s;
}

static void reopen(struct store_hand *h)
{
	if (h->store)
		store_hand_close(h);
	assert_int_equal(store_hand_open(h), 0);
}

/* --- survival ------------------------------------------------------------------------------------------------------ */

static void reopening_keeps_everything(void **state)
{
	struct store_hand *h = *state;
	struct says s = says_running(says("e", 1, 2, 1, 0, "raw"), 2, 1, "running", 7);
	struct view before[5];

	add_task(h, &(struct task_words){.n = 1,
			    .user = "ann",
			    .priority = 9,
			    .doc = "{\"x\":1}",
			    .labels = {"l1", "l2"}});
	add_many(h, 2, 3, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 3, "raw"));
	says_complete(&s, 1, 1, "success", "wrong_answer", "{\"r\":1}");
	report(h, s); /* 1 done, 2 runs, 3 back, 4 waits */
	enroll(h, "f", 0);
	lose(h, "f", 1, 0);
	drop(h, "f");
	for (unsigned i = 1; i <= 4; i++)
		before[i] = get_task(h, i);
	reopen(h);
	for (unsigned i = 1; i <= 4; i++) {
		struct view after = get_task(h, i);

		assert_memory_equal(&after, &before[i], sizeof(after));
	}
	assert_string_equal(before[1].labels, "l1,l2,");
	assert_string_equal(before[2].state, "running.1.7");
	assert_int_equal(pending(h), 2);
	assert_int_equal(list_executors(h, true), 2);
	assert_int_equal(h->executors[0].epoch, 1);
	assert_int_equal(h->executors[0].owned, 1);
	assert_true(h->executors[1].dead && h->executors[1].hidden);
	assert_false(add_task(h, &(struct task_words){.n = 1,
					 .user = "ann",
					 .priority = 9,
					 .doc = "{\"x\":1}",
					 .labels = {"l1", "l2"}})
			     .created);
	search(h, &(struct search_words){.label = "l2", .limit = 9}, "");
	assert_int_equal(h->n_found, 1);
}

static void the_hour_survives_a_restart(void **state)
{
	struct store_hand *h = *state;
	struct msg_stats_minute before[HOUR_MINUTES], after[HOUR_MINUTES];
	struct says s = says("e", 1, 1, 0, 2, "raw");
	struct msg_stats_reply was, is;

	add_many(h, 1, 3, "raw");
	enroll(h, "e", 0);
	s.r.slots = 2;
	report(h, s);
	cancel(h, 3);
	was = hour_stats(h, before);
	reopen(h);
	is = hour_stats(h, after);
	assert_int_equal(is.pending, was.pending);
	assert_int_equal(is.running, 2);
	assert_int_equal(is.slots, 2);
	if (is.start_us == was.start_us)
		assert_memory_equal(before, after, sizeof(before));
	/* A minute of a quarter of an hour ago, when more was waiting; between it and the running one nothing changed. */
	store_hand_close(h);
	run_sql(h, "DELETE FROM hour");
	run_sql(h, "INSERT INTO hour SELECT (unixepoch() / 60 - 15) % 60,"
		   " (unixepoch() / 60 - 15) * 60000000, 7, 6, 5, 4, 3, -1, -1");
	reopen(h);
	is = hour_stats(h, after);
	for (unsigned i = 0, found = 0; i < HOUR_MINUTES; i++) {
		if (after[i].added == 7) {
			found = i;
			assert_in_range(i, HOUR_MINUTES - 17, HOUR_MINUTES - 16);
			assert_int_equal(after[i].done, 6);
			assert_int_equal(after[i].accepted, 5);
			assert_int_equal(after[i].pending, 4);
			assert_int_equal(after[i].running, 3);
		} else {
			assert_int_equal(after[i].added, 0);
			assert_int_equal(after[i].pending, found ? 0 : HOUR_UNKNOWN);
			assert_int_equal(after[i].running, found ? 2 : HOUR_UNKNOWN);
		}
	}
	assert_int_equal(after[HOUR_MINUTES - 1].running, 2);
}

/* A file of the first schema keeps its tasks; what was before is not known. */
static void an_old_file_is_upgraded(void **state)
{
	struct store_hand *h = *state;
	struct msg_stats_minute minutes[HOUR_MINUTES];

	add_many(h, 1, 2, "raw");
	enroll(h, "e", 0);
	store_hand_close(h);
	run_sql(h, "DROP TABLE hour");
	run_sql(h, "ALTER TABLE executor DROP COLUMN slots");
	run_sql(h, "DROP TABLE blob; DROP TABLE blob_owner; DROP TABLE blob_task");
	run_sql(h, "PRAGMA user_version = 1");
	reopen(h);
	assert_int_equal(hour_stats(h, minutes).pending, 2);
	assert_int_equal(minutes[HOUR_MINUTES - 1].pending, 2);
	assert_int_equal(minutes[0].pending, HOUR_UNKNOWN);
	assert_int_equal(minutes[0].running, HOUR_UNKNOWN);
	assert_int_equal(report(h, says("e", 1, 1, 0, 2, "raw")).n_assign, 2);
	assert_int_equal(hour_stats(h, minutes).running, 2);
}

static void last_seq_starts_anew_after_a_restart(void **state)
{
	struct store_hand *h = *state;

	add_many(h, 1, 2, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 9, 0, 1, "raw"));
	reopen(h);
	list_executors(h, false);
	assert_int_equal(h->executors[0].last_seq, 0);
	assert_int_equal(report_again(h, says("e", 1, 9, 8, 1, "raw")).status, STORE_STALE);
	/* the executor goes on in its epoch; its claim is where it was */
	assert_int_equal(
		report(h, says_running(says("e", 1, 10, 9, 1, "raw"), 1, 1, "running", 0)).n_assign,
		1);
	assert_int_equal(report_again(h, says("e", 1, 9, 8, 1, "raw")).status, STORE_STALE);
	assert_int_equal(lose(h, "e", 1, 9), STORE_STALE);
	assert_int_equal(lose(h, "e", 1, 10), STORE_OK);
}

static void add_time_goes_on_where_it_was(void **state)
{
	/* The wall clock was ahead by a century when the last task was added. */
	struct store_hand *h = *state;
	int64_t ahead;

	add_many(h, 1, 1, "raw");
	store_hand_close(h);
	run_sql(h, "UPDATE task SET add_us = add_us + 3000000000000000; UPDATE doc SET add_us = "
		   "add_us + 3000000000000000");
	reopen(h);
	ahead = get_task(h, 1).add_us;
	assert_int_equal(add_task(h, &(struct task_words){.n = 2}).add_us, ahead + 1);
}

static void the_last_ends_are_logged_again(void **state)
{
	struct store_hand *h = *state;

	add_many(h, 1, 4, "raw");
	cancel(h, 1);
	cancel(h, 2);
	loop_turn(h->loop, 0);
	assert_int_equal(h->n_ended, 2);
	assert_null(strstr(h->ended, "repeated"));
	reopen(h);
	assert_int_equal(h->n_ended, 4);
	assert_non_null(strstr(h->ended, "repeated=yes"));
}

/* The child: 64 adds in flight, an executor that takes and finishes; each answered fact goes into the pipe. */
struct storm {
	struct store_hand *h;
	int fd;
	unsigned next, in_flight;
	unsigned no_wait;
};

struct storm_add {
	struct storm *storm;
	struct msg_add_request request;
	unsigned n;
};

static void storm_say(struct storm *s, int fact)
{
	assert_int_equal(write(s->fd, &fact, sizeof(fact)), sizeof(fact));
}

static void on_storm_added(void *arg, enum store_status status, const struct msg_add_reply *reply)
{
	struct storm_add *a = arg;

	assert_int_equal(status, STORE_OK);
	storm_say(a->storm, (int)a->n);
	a->storm->in_flight--;
	free(a);
}

static void storm_add_one(struct storm *s)
{
	struct storm_add *a = mem_alloc(sizeof(*a));

	a->storm = s;
	a->n = ++s->next;
	a->request = (struct msg_add_request){
		.id = number_id(a->n), .language = STR("raw"), .doc.text = STR("{\"k\":1}")};
	s->in_flight++;
	s->h->store->ops->add(s->h->store, &a->request, on_storm_added, a);
}

_Noreturn static void storm_child(struct store_hand *h, int fd)
{
	struct storm s = {.h = h, .fd = fd};
	unsigned held[8], n_held = 0;

	h->loop = loop_new(NULL);
	if (store_hand_open(h) != 0)
		_exit(1);
	enroll(h, "e", 0);
	for (int64_t seq = 1;; seq++) {
		struct says words = says("e", 1, seq, seq - 1, 8, "raw");
		struct answer a;

		while (s.in_flight < 64)
			storm_add_one(&s);
		for (unsigned i = 0; i < n_held; i++)
			says_complete(&words, held[i], 1, "success", "accepted", "{\"done\":1}");
		a = report(h, words);
		for (unsigned i = 0; i < a.n_accepted; i++)
			storm_say(&s, -(int)number_of(&a.accepted[i].id));
		n_held = a.n_assign;
		for (unsigned i = 0; i < a.n_assign; i++)
			held[i] = number_of(&a.assign[i].id);
	}
}

static void sigkill_loses_nothing_that_was_answered(void **state)
{
	struct store_hand *h = *state;
	int ends[2], fact, status;
	unsigned n_added = 0, n_done = 0;
	bool is_killed = false;
	pid_t pid;

	store_hand_close(h);
	assert_int_equal(pipe(ends), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(ends[0]);
		storm_child(h, ends[1]);
	}
	close(ends[1]);
	int *facts = mem_array(1 << 20, sizeof(int));
	size_t n_facts = 0;

	/* In the middle of the load; what it had answered until it died is read to the end. */
	while (read(ends[0], &fact, sizeof(fact)) == sizeof(fact)) {
		assert_true(n_facts < 1 << 20);
		facts[n_facts++] = fact;
		n_added += fact > 0;
		n_done += fact < 0;
		if (n_added >= 700 && n_done >= 80 && !is_killed) {
			kill(pid, SIGKILL);
			is_killed = true;
		}
	}
	close(ends[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	reopen(h); /* the lock went with the process */
	for (size_t i = 0; i < n_facts; i++) {
		struct view v = get_task(h, (unsigned)abs(facts[i]));

		assert_string_equal(v.doc, "{\"k\":1}");
		if (facts[i] < 0) {
			assert_string_equal(v.verdict, "accepted");
			assert_string_equal(v.result, "{\"done\":1}");
		}
	}
	free(facts);
	/* What the dead one held comes back, counted, and all else is whole. */
	assert_int_equal(enroll(h, "e", 1), 2);
	list_executors(h, false);
	assert_int_equal(h->executors[0].owned, 0);
	assert_int_equal(ask(h, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"), 1);
}

/* --- commits ---------------------------------------------------------------------------------------------------------- */

static void verbs_of_a_turn_share_a_commit(void **state)
{
	struct store_hand *h = *state;
	struct store_counters before = stats(h), after;

	add_many(h, 1, 200, "raw");
	after = stats(h);
	assert_int_equal(after.operations - before.operations, 200);
	assert_int_equal(after.commits - before.commits, 1);
	assert_int_equal(after.batches - before.batches, 1);
	add_many(h, 201, 1000, "raw"); /* 256 a batch */
	assert_int_equal(stats(h).commits - after.commits, 4);
	assert_int_equal(stats(h).failed, 0);
}

static void a_heartbeat_writes_nothing(void **state)
{
	struct store_hand *h = *state;
	struct store_counters before, after;

	add_many(h, 1, 1, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	report(h, says_running(says("e", 1, 2, 1, 0, "raw"), 1, 1, "running", 0));
	before = stats(h);
	for (int64_t seq = 3; seq < 13; seq++) {
		report(h, says_running(says("e", 1, seq, seq - 1, 2, "raw"), 1, 1, "running", 0));
		report_again(
			h, says_running(says("e", 1, seq, seq - 1, 2, "raw"), 1, 1, "running", 0));
	}
	assert_int_equal(report(h, says("e", 1, 3, 2, 1, "raw")).status, STORE_STALE);
	assert_int_equal(report(h, says("e", 9, 3, 2, 1, "raw")).status, STORE_FENCED);
	after = stats(h);
	assert_int_equal(after.operations - before.operations, 22);
	assert_int_equal(after.commits, before.commits);
	assert_int_equal(after.soft_commits, before.soft_commits);
}

static void progress_costs_no_fsync_and_is_read_at_once(void **state)
{
	struct store_hand *h = *state;
	struct store_counters before, after;

	add_many(h, 1, 1, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	before = stats(h);
	for (int64_t i = 0; i < 10; i++) {
		char state_text[32];

		report(h, says_running(says("e", 1, 2 + i, 1 + i, 0, "raw"), 1, 1, "running", i));
		snprintf(state_text, sizeof(state_text), "running.1.%lld", (long long)i);
		assert_string_equal(get_task(h, 1).state, state_text);
	}
	after = stats(h);
	assert_int_equal(after.commits, before.commits);
	assert_int_equal(after.soft_commits - before.soft_commits, 10);
	h->n_found = 0;
	search(h, &(struct search_words){.status = "running", .limit = 5}, "");
	assert_int_equal(h->n_found, 1);
	cancel(h, 1); /* full durability is back */
	assert_int_equal(stats(h).commits - after.commits, 1);
}

static void a_durable_commit_is_one_fsync(void **state)
{
	struct store_hand *h = *state;
	unsigned before;

	add_many(h, 1, 1, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	before = n_syncs;
	add_many(h, 2, 200, "raw");
	assert_int_equal(n_syncs - before, 1);
	before = n_syncs;
	report(h, says_running(says("e", 1, 2, 1, 0, "raw"), 1, 1, "running", 0));
	report(h, says_running(says("e", 1, 3, 2, 0, "raw"), 1, 1, "running", 0));
	report(h, says_running(says("e", 1, 4, 3, 0, "raw"), 1, 1, "running", 1));
	assert_int_equal(n_syncs - before, 0);
	/* and after a soft commit they are durable again */
	add_task(h, &(struct task_words){.n = 1000});
	assert_int_equal(n_syncs - before, 1);
	cancel(h, 1000);
	assert_int_equal(n_syncs - before, 2);
	get_task(h, 1000);
	assert_int_equal(n_syncs - before, 2);
}

struct tally {
	unsigned waiting, busy, good;
};

static void on_tally(void *arg, enum store_status status, int64_t n)
{
	struct tally *t = arg;

	t->busy += status == STORE_E_BUSY;
	t->good += status == STORE_OK;
	t->waiting--;
}

static void a_full_queue_is_said(void **state)
{
	enum { CALLS = 65536 + 10 };
	struct store_hand *h = *state;
	struct tally t = {.waiting = CALLS};

	for (unsigned i = 0; i < CALLS; i++)
		h->store->ops->pending(h->store, on_tally, &t);
	assert_int_equal(t.waiting, CALLS);
	wait_zero(h, &t.waiting);
	assert_int_equal(t.busy, 10);
	assert_int_equal(t.good, 65536);
	assert_int_equal(add_task(h, &(struct task_words){.n = 1}).status, STORE_OK);
}

/* --- the disk ------------------------------------------------------------------------------------------------------------ */

static void below_the_reserve_only_adds_are_refused(void **state)
{
	struct store_hand *h = *state;
	struct says s = says("e", 1, 2, 1, 1, "raw");

	add_many(h, 1, 3, "raw");
	h->reserve_bytes = INT64_MAX / 2;
	reopen(h);
	assert_int_equal(add_task(h, &(struct task_words){.n = 4}).status, STORE_E_FULL);
	assert_int_equal(
		get(h, &(struct get_words){.n_items = 1, .items = {{4, NULL}}}).n_missing, 1);
	/* a retry of what is in is no new task */
	assert_int_equal(add_task(h, &(struct task_words){.n = 1}).status, STORE_OK);
	enroll(h, "e", 0);
	assert_int_equal(report(h, says("e", 1, 1, 0, 1, "raw")).n_assign, 1);
	says_complete(&s, 1, 1, "success", "accepted", "{}");
	assert_int_equal(report(h, s).n_accepted, 1);
	assert_int_equal(cancel(h, 3), STORE_OK);
	assert_int_equal(pending(h), 0);
	h->reserve_bytes = 4096;
	reopen(h);
	assert_int_equal(add_task(h, &(struct task_words){.n = 4}).status, STORE_OK);
}

static void the_reserve_changes_while_open(void **state)
{
	struct store_hand *h = *state;
	static const struct {
		int64_t reserve_bytes;
		enum store_status status;
	} steps[] = {
		{INT64_MAX / 2, STORE_E_FULL},
		{4096, STORE_OK},
		{INT64_MAX / 2, STORE_E_FULL},
		{0, STORE_OK},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(steps); i++) {
		h->store->ops->set_reserve(h->store, steps[i].reserve_bytes);
		assert_int_equal(
			add_task(h, &(struct task_words){.n = i + 1}).status, steps[i].status);
	}
}

static void limit_files(rlim_t bytes)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static rlim_t wal_bytes(const struct store_hand *h)
{
	char *path cleanup(mem_freep) = path_of(h, "store.db-wal");
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return (rlim_t)st.st_size;
}

struct mixed {
	enum store_status status[8];
	unsigned waiting;
};

struct mixed_add {
	struct mixed *all;
	unsigned at;
	struct msg_add_request request;
};

static void on_mixed(void *arg, enum store_status status, const struct msg_add_reply *reply)
{
	struct mixed_add *a = arg;

	a->all->status[a->at] = status;
	a->all->waiting--;
}

static void a_full_disk_fails_only_what_does_not_fit(void **state)
{
	struct store_hand *h = *state;
	char *big = mem_alloc(4 << 20);
	struct mixed all = {.waiting = 8};
	struct mixed_add adds[8];
	int64_t last_us;

	memset(big, 'x', (4 << 20) - 1);
	signal(SIGXFSZ, SIG_IGN);
	add_many(h, 1, 10, "raw");
	last_us = get_task(h, 10).add_us;
	told_reset(h);
	limit_files(wal_bytes(h) + (1 << 20));
	/* one batch: the fifth does not fit */
	for (unsigned i = 0; i < 8; i++) {
		adds[i] = (struct mixed_add){&all, i,
			{.id = number_id(100 + i),
				.language = STR("c"),
				.doc.text = i == 4 ? str_from(big) : STR("{}")}};
		h->store->ops->add(h->store, &adds[i].request, on_mixed, &adds[i]);
	}
	wait_zero(h, &all.waiting);
	limit_files(RLIM_INFINITY);
	signal(SIGXFSZ, SIG_DFL);
	free(big);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(all.status[i], i == 4 ? STORE_E_FAILED : STORE_OK);
	assert_int_equal(stats(h).failed, 1);
	assert_non_null(strstr(h->logged, "store_failed"));
	loop_turn(h->loop, 0);
	assert_true(told_id(h, 103));
	assert_false(told_id(h, 104));
	assert_int_equal(pending(h), 17);
	assert_int_equal(
		get(h, &(struct get_words){.n_items = 1, .items = {{104, NULL}}}).n_missing, 1);
	assert_true(get_task(h, 107).add_us > last_us);
	assert_int_equal(add_task(h, &(struct task_words){.n = 104}).status, STORE_OK);
	reopen(h);
	assert_int_equal(pending(h), 18);
}

static void a_failed_report_has_not_happened(void **state)
{
	struct store_hand *h = *state;
	char *big = mem_alloc(4 << 20);
	struct says s = says("e", 1, 2, 1, 0, "raw");
	struct answer a;

	memset(big, 'x', (4 << 20) - 1);
	signal(SIGXFSZ, SIG_IGN);
	add_many(h, 1, 1, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	says_complete(&s, 1, 1, "success", "accepted", big);
	limit_files(wal_bytes(h) + (1 << 20));
	a = report(h, s);
	limit_files(RLIM_INFINITY);
	signal(SIGXFSZ, SIG_DFL);
	assert_int_equal(a.status, STORE_E_FAILED);
	assert_int_equal(a.n_accepted, 0);
	assert_string_equal(get_task(h, 1).status, "pending");
	list_executors(h, false);
	assert_int_equal(h->executors[0].last_seq, 1);
	assert_int_equal(h->executors[0].owned, 1);
	/* so the very same report may come again */
	assert_int_equal(report(h, s).n_accepted, 1);
	assert_int_equal(get_task(h, 1).result_bytes, (4 << 20) - 1);
	free(big);
}

/* --- heads of queues, which the writer remembers ------------------------------------------------------------------------ */

static void a_batch_that_runs_again_looks_again_for_its_heads(void **state)
{
	struct store_hand *h = *state;
	struct mixed all = {.waiting = 1};
	struct mixed_add add = {
		&all, 0, {.id = number_id(9), .language = STR("c"), .doc.text = STR("{}")}};
	struct says s = says("e", 1, 1, 0, 1, "raw");
	struct answer a;
	unsigned waiting = 1;

	add_many(h, 1, 3, "raw");
	enroll(h, "e", 0);
	run_sql(h, "CREATE TRIGGER no BEFORE INSERT ON task WHEN NEW.language = 'c'"
		   " BEGIN SELECT RAISE(ABORT, 'no'); END");
	/* The report takes 1 and finds 2 behind it; then the add fails, and all of it has not happened. */
	call_report(h, &s, REPORT_FRESH, &a, &waiting);
	h->store->ops->add(h->store, &add.request, on_mixed, &add);
	wait_zero(h, &waiting);
	wait_zero(h, &all.waiting);
	assert_int_equal(all.status[0], STORE_E_FAILED);
	assert_int_equal(a.status, STORE_OK);
	assert_int_equal(a.n_assign, 1);
	assert_id(&a.assign[0].id, 1);
	assert_int_equal(a.assign[0].attempt, 1);
	assert_int_equal(pending(h), 2);
}

static void claims_that_failed_are_the_heads_again(void **state)
{
	struct store_hand *h = *state;
	struct answer a;

	add_task(h, &(struct task_words){.n = 1, .priority = 5});
	add_task(h, &(struct task_words){.n = 2, .priority = 4, .language = "c"});
	enroll(h, "e", 0);
	enroll(h, "f", 0);
	run_sql(h,
		"CREATE TRIGGER no BEFORE UPDATE ON task WHEN NEW.executor = 'e' AND NEW.language"
		" = 'c' BEGIN SELECT RAISE(ABORT, 'no'); END");
	/* It takes 1, nothing is behind that; then it fails with 2. */
	assert_int_equal(report(h, says("e", 1, 1, 0, 2, "raw,c")).status, STORE_E_FAILED);
	a = report(h, says("f", 1, 1, 0, 2, "raw,c"));
	assert_int_equal(a.n_assign, 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_id(&a.assign[i].id, i + 1);
		assert_int_equal(a.assign[i].attempt, 1);
	}
}

static void what_others_write_into_the_queue_is_seen(void **state)
{
	struct store_hand *h = *state;
	struct answer a;

	add_many(h, 1, 4, "raw");
	enroll(h, "e", 0);
	assert_id(&report(h, says("e", 1, 1, 0, 1, "raw")).assign[0].id, 1);
	run_sql(h, "UPDATE task SET priority = 9 WHERE add_us = (SELECT max(add_us) FROM task)");
	a = report(h, says_running(says("e", 1, 2, 1, 1, "raw"), 1, 1, "running", 0));
	assert_int_equal(a.n_assign, 1);
	assert_id(&a.assign[0].id, 4);
	run_sql(h,
		"DELETE FROM task WHERE add_us = (SELECT min(add_us) FROM task WHERE place = 1)");
	a = report(h, says("e", 1, 3, 2, 1, "raw")); /* has neither: 4 is before 1 */
	assert_int_equal(a.n_assign, 1);
	assert_id(&a.assign[0].id, 4);
	run_sql(h, "DELETE FROM task WHERE place = 1");
	assert_int_equal(
		report(h, says_running(says("e", 1, 4, 3, 1, "raw"), 4, 2, "running", 0)).n_assign,
		0);
}

/* --- opening -------------------------------------------------------------------------------------------------------------- */

static void one_directory_has_one_store(void **state)
{
	struct store_hand *h = *state;
	struct store_options options = {.log = h->log, .dir = h->dir, .max_retries = 3};
	struct store *other = NULL;

	assert_int_equal(store_sqlite.open(h->loop, &options, &other), -EBUSY);
	assert_non_null(strstr(h->logged, "another judicator"));
	assert_non_null(strstr(h->logged, h->dir));
	add_many(h, 1, 1, "raw"); /* the first is unharmed */
	store_hand_close(h);
	assert_int_equal(store_sqlite.open(h->loop, &options, &other), 0);
	other->ops->close(other);
}

static void a_missing_directory_is_said(void **state)
{
	struct store_hand *h = *state;
	struct store_options options = {
		.log = h->log, .dir = "/nonexistent/place", .max_retries = 3};
	struct store *other = NULL;

	assert_int_equal(store_sqlite.open(h->loop, &options, &other), -ENOENT);
	assert_non_null(strstr(h->logged, "/nonexistent/place"));
}

static void a_newer_file_is_left_alone(void **state)
{
	struct store_hand *h = *state;
	char back[64];

	snprintf(back, sizeof(back), "PRAGMA user_version = %lld",
		(long long)ask(h, "PRAGMA user_version"));
	store_hand_close(h);
	run_sql(h, "PRAGMA user_version = 99");
	assert_int_equal(store_hand_open(h), -ENOTSUP);
	assert_non_null(strstr(h->logged, "newer program (schema 99"));
	run_sql(h, back);
	reopen(h);
}

static void another_programs_file_is_left_alone(void **state)
{
	struct store_hand *h = *state;
	char *path cleanup(mem_freep) = path_of(h, "store.db");

	store_hand_close(h);
	assert_int_equal(unlink(path), 0);
	run_sql(h, "CREATE TABLE recipes(name)");
	assert_int_equal(store_hand_open(h), -EINVAL);
	assert_non_null(strstr(h->logged, "another program"));
	run_sql(h, "INSERT INTO recipes VALUES('soup')");
}

static void a_damaged_file_is_said(void **state)
{
	static const off_t damages[] = {0, 8192}; /* the header; the tables */
	struct store_hand *h = *state;
	char *path cleanup(mem_freep) = path_of(h, "store.db");
	char junk[8192];

	memset(junk, 0x5a, sizeof(junk));
	for (size_t i = ARRAY_SIZE(damages); i-- > 0;) {
		struct stat st;
		int fd;

		if (h->store) {
			add_many(h, 1, 200, "raw");
			store_hand_close(h);
		}
		fd = open(path, O_RDWR | O_CLOEXEC);
		assert_true(fd >= 0);
		assert_int_equal(fstat(fd, &st), 0);
		for (off_t at = damages[i]; at < st.st_size; at += (off_t)sizeof(junk))
			assert_int_equal(pwrite(fd, junk, sizeof(junk), at), sizeof(junk));
		close(fd);
		assert_int_equal(store_hand_open(h), -EUCLEAN);
		assert_non_null(strstr(h->logged, "damaged"));
		assert_non_null(strstr(h->logged, path));
	}
}

static void a_row_that_is_damaged_fails_its_verb_only(void **state)
{
	struct store_hand *h = *state;

	add_many(h, 1, 2, "raw");
	store_hand_close(h);
	run_sql(h, "UPDATE task SET status = 'gone fishing' WHERE language = 'raw' AND add_us = "
		   "(SELECT min(add_us) FROM task)");
	reopen(h);
	assert_int_equal(cancel(h, 1), STORE_E_FAILED);
	assert_non_null(strstr(h->logged, "damaged"));
	assert_int_equal(cancel(h, 2), STORE_OK);
}

static void a_verb_that_fails_half_way_has_done_nothing(void **state)
{
	struct store_hand *h = *state;
	struct says s = says("e", 1, 2, 1, 1, "raw");
	struct answer a;
	unsigned waiting = 2;

	add_many(h, 1, 2, "raw");
	enroll(h, "e", 0);
	report(h, says("e", 1, 1, 0, 1, "raw"));
	store_hand_close(h);
	run_sql(h, "UPDATE task SET status = 'gone fishing' WHERE place = 1");
	reopen(h);
	told_reset(h);
	/* accepts a result, then finds the head of the queue damaged; the add in the same batch is another matter */
	says_complete(&s, 1, 1, "success", "accepted", "{}");
	call_report(h, &s, REPORT_FRESH, &a, &waiting);
	call_add(h, 3, "c", &waiting);
	wait_zero(h, &waiting);
	loop_turn(h->loop, 0);
	assert_int_equal(a.status, STORE_E_FAILED);
	assert_false(told_id(h, 1));
	assert_true(told_id(h, 3));
	assert_int_equal(h->n_ended, 0);
	assert_string_equal(get_task(h, 1).status, "pending");
	assert_string_equal(get_task(h, 1).executor, "e");
	assert_int_equal(pending(h), 2);
	assert_int_equal(stats(h).commits, 1);
	run_sql(h, "UPDATE task SET status = 'pending' WHERE place = 1");
	a = report(h, s); /* the same number: it has not been seen */
	assert_int_equal(a.n_accepted, 1);
	assert_int_equal(a.n_assign, 1);
}

static void the_file_is_as_designed(void **state)
{
	static const char *const files[] = {
		"store.db", "store.db-wal", "store.db-shm", "store.lock"};
	struct store_hand *h = *state;

	add_many(h, 1, 1, "raw");
	assert_int_equal(ask(h, "SELECT page_size FROM pragma_page_size"), 8192);
	assert_int_equal(ask(h, "SELECT journal_mode = 'wal' FROM pragma_journal_mode"), 1);
	assert_int_equal(ask(h, "SELECT application_id FROM pragma_application_id"), 0x436e636c);
	assert_int_equal(ask(h, "SELECT user_version FROM pragma_user_version"), 3);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		char *path cleanup(mem_freep) = path_of(h, files[i]);
		struct stat st;

		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 0777, 0600); /* people's programs are in it */
	}
}

static void every_query_goes_by_index(void **state)
{
	struct store_hand *h = *state;
	sqlite3 *db;
	const char *sql;
	unsigned n_plans = 0;

	add_many(h, 1, 300, "raw");
	db = peek(h);
	for (unsigned i = 0; (sql = sqlite_rows_sql(i)); i++) {
		char *explain cleanup(mem_freep) = mem_printf("EXPLAIN QUERY PLAN %s", sql);
		sqlite3_stmt *stmt;

		assert_int_equal(sqlite3_prepare_v2(db, explain, -1, &stmt, NULL), SQLITE_OK);
		while (sqlite3_step(stmt) == SQLITE_ROW) {
			const char *detail = (const char *)sqlite3_column_text(stmt, 3);

			n_plans++;
			if (strstr(detail, "TEMP B-TREE") ||
				(strstr(detail, "SCAN") && !strstr(detail, "CONSTANT")))
				fail_msg("%s: %s", sql, detail);
		}
		sqlite3_finalize(stmt);
	}
	assert_true(n_plans >= 15);
	sqlite3_close(db);
}

/* --- the same as memory ----------------------------------------------------------------------------------------------------- */

/* One walk, two stores. What executors were answered is remembered, so that most of what they say next is true, and some is not. */
struct walk {
	uint64_t seed;
	unsigned n_tasks;
	struct walker {
		int64_t epoch, seq, acked;
		struct {
			unsigned n;
			int64_t attempt;
		} held[HAND_LIST_MAX];
		unsigned n_held;
	} walkers[3];
	unsigned n_accepted, n_claims, n_lone, n_cancelled, n_errors;
};

enum step_verb {
	STEP_ADD,
	STEP_REPORT,
	STEP_AGAIN,
	STEP_CANCEL,
	STEP_ENROLL,
	STEP_UNDO,
	STEP_LOSE,
	STEP_DROP
};

struct step {
	enum step_verb verb;
	unsigned n; /* task */
	unsigned who;
	int64_t epoch, number;
	struct task_words words;
	struct says says;
};

static unsigned chance(struct walk *w, unsigned below)
{
	w->seed = w->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (unsigned)((w->seed >> 33) % below);
}

static void step_report(struct walk *w, struct step *step)
{
	static const char *const offers[] = {"raw", "c", "raw,c", "c,raw,c", ""};
	static const char *const progress[] = {"pending", "compiling", "running"};
	struct walker *k = &w->walkers[step->who];

	step->says = says(names[step->who], k->epoch, step->verb == STEP_AGAIN ? k->seq : ++k->seq,
		k->acked, (int64_t)chance(w, 5), offers[chance(w, ARRAY_SIZE(offers))]);
	for (unsigned i = k->n_held; i-- > 0;) {
		unsigned fate = chance(w, 10);

		if (fate == 0)
			continue; /* forgotten */
		if (fate < 4)
			says_complete(&step->says, k->held[i].n, k->held[i].attempt, "success",
				"accepted", "{\"ok\":1}");
		else
			step->says = says_running(step->says, k->held[i].n, k->held[i].attempt,
				progress[chance(w, 3)], (int64_t)chance(w, 3));
	}
	if (chance(w, 5) == 0 && w->n_tasks) /* a lie */
		step->says = says_running(
			step->says, 1 + chance(w, w->n_tasks), 1 + chance(w, 3), "running", 1);
}

static struct step step_make(struct walk *w)
{
	static const char *const users[] = {NULL, "ann", "bob"};
	static const enum step_verb verbs[] = {STEP_ADD, STEP_ADD, STEP_ADD, STEP_REPORT,
		STEP_REPORT, STEP_REPORT, STEP_REPORT, STEP_REPORT, STEP_REPORT, STEP_AGAIN,
		STEP_CANCEL, STEP_UNDO};
	unsigned rare = chance(w, 40);
	struct step step = {
		.verb = rare == 0   ? STEP_LOSE
			: rare == 1 ? STEP_DROP
			: rare == 2 ? STEP_ENROLL
				    : verbs[chance(w, ARRAY_SIZE(verbs))],
		.n = 1 + chance(w, w->n_tasks + 1),
		.who = chance(w, 3),
	};
	struct walker *k = &w->walkers[step.who];

	step.epoch = chance(w, 10) ? k->epoch : k->epoch + 1;
	step.number = step.verb == STEP_UNDO ? 1 + chance(w, 2) : k->seq;
	if (step.verb == STEP_ADD && chance(w, 8))
		step.n = w->n_tasks + 1;
	if (step.verb == STEP_ADD && step.n > w->n_tasks)
		w->n_tasks = step.n;
	step.words = (struct task_words){.n = step.n,
		.user = users[chance(w, 3)],
		.language = chance(w, 2) ? "c" : "raw",
		.priority = (int64_t)chance(w, 3)};
	if (step.verb == STEP_REPORT || step.verb == STEP_AGAIN)
		step_report(w, &step);
	return step;
}

/* What the executor makes of the answer. A process that is fenced is started again. */
static void walk_hear(struct walk *w, const struct step *step, const struct answer *a)
{
	struct walker *k = &w->walkers[step->who];

	if (a->status == STORE_FENCED) {
		k->n_held = 0;
		k->seq = k->acked = 0;
		k->epoch = 0;
		return;
	}
	if (a->status != STORE_OK)
		return;
	w->n_accepted += a->n_accepted;
	w->n_cancelled += a->n_cancel;
	w->n_claims += a->n_assign;
	k->n_held = 0;
	for (size_t i = 0; i < step->says.r.executing.count; i++) {
		k->held[k->n_held].n = number_of(&step->says.executing[i].id);
		k->held[k->n_held++].attempt = step->says.executing[i].attempt;
	}
	if (chance(w, 8) == 0)
		return; /* the reply is lost */
	k->acked = k->seq;
	for (unsigned i = 0; i < a->n_assign && k->n_held < 20; i++) {
		w->n_lone += a->assign[i].lone;
		k->held[k->n_held].n = number_of(&a->assign[i].id);
		k->held[k->n_held++].attempt = a->assign[i].attempt;
	}
}

static void say_answer(struct buf *b, const struct answer *a)
{
	buf_addf(b, "report %d seq=%lld fenced=%d says=%d lone=%d", a->status, (long long)a->seq,
		a->fenced, a->says_something, a->lone_waiting);
	for (unsigned i = 0; i < a->n_accepted; i++)
		buf_addf(b, " +%u.%lld", number_of(&a->accepted[i].id),
			(long long)a->accepted[i].attempt);
	for (unsigned i = 0; i < a->n_cancel; i++)
		buf_addf(b, " -%u.%lld", number_of(&a->cancel[i].id),
			(long long)a->cancel[i].attempt);
	for (unsigned i = 0; i < a->n_assign; i++)
		buf_addf(b, " =%u.%lld%s%s", number_of(&a->assign[i].id),
			(long long)a->assign[i].attempt, a->assign[i].lone ? "!" : "",
			a->assign[i].doc);
}

static void say_task(struct store_hand *h, struct buf *b, unsigned n)
{
	struct gets g =
		get(h, &(struct get_words){.n_items = 1, .items = {{n, NULL}}, .doc = true});
	const struct view *v = &g.views[0];

	if (g.n)
		buf_addf(b, " task %s %s %s %s %s epoch=%lld seq=%lld retries=%lld %s %s %s%s%s",
			v->state, v->user, v->language, v->verdict, v->executor,
			(long long)v->epoch, (long long)v->assign_seq, (long long)v->retries,
			v->labels, v->message, v->result, v->start_us ? "s" : "",
			v->done_us ? "d" : "");
}

static void say_executors(struct store_hand *h, struct buf *b)
{
	unsigned count = list_executors(h, true);

	for (unsigned i = 0; i < count; i++)
		buf_addf(b, " %s %lld %lld %d %d %lld", h->executors[i].name,
			(long long)h->executors[i].epoch, (long long)h->executors[i].last_seq,
			h->executors[i].dead, h->executors[i].hidden,
			(long long)h->executors[i].owned);
}

static int64_t step_do(
	struct store_hand *h, const struct step *step, struct answer *a, struct buf *said)
{
	const char *name = names[step->who];
	int64_t epoch = 0;

	buf_clear(said);
	if (step->verb == STEP_ADD) {
		struct added d = add_task(h, &step->words);

		buf_addf(said, "add %d %d %s", d.status, d.created, d.task_status);
	} else if (step->verb == STEP_REPORT || step->verb == STEP_AGAIN) {
		*a = step->verb == STEP_AGAIN ? report_again(h, step->says) : report(h, step->says);
		say_answer(said, a);
	} else if (step->verb == STEP_CANCEL) {
		buf_addf(said, "cancel %d", cancel(h, step->n));
	} else if (step->verb == STEP_UNDO) {
		buf_addf(said, "undo %d", undo(h, step->n, name, step->epoch, step->number));
	} else if (step->verb == STEP_LOSE) {
		buf_addf(said, "lose %d", lose(h, name, step->epoch, step->number));
	} else if (step->verb == STEP_DROP) {
		buf_addf(said, "drop %d", drop(h, name));
	} else {
		epoch = enroll(h, name, step->epoch);
		buf_addf(said, "enroll %lld", (long long)epoch);
	}
	buf_addf(said, " pending=%lld", (long long)pending(h));
	say_task(h, said, step->n);
	say_executors(h, said);
	return epoch;
}

/* Takes the next epoch, as a starting process does. */
static void walk_enroll(struct walk *w, struct store_hand *a, struct store_hand *b, unsigned who)
{
	int64_t epoch = enroll(a, names[who], w->walkers[who].epoch);

	assert_int_equal(enroll(b, names[who], w->walkers[who].epoch), epoch);
	if (epoch < 0) {
		w->walkers[who].epoch = -epoch;
		walk_enroll(w, a, b, who);
		return;
	}
	w->walkers[who] = (struct walker){.epoch = epoch};
}

static void it_does_what_memory_does(void **state)
{
	enum { STEPS = 3000 };
	struct store_hand *sqlite = *state, *memory = store_hand_new(&store_memory);
	struct walk w = {.seed = (uint64_t)clock_boot_us()};
	struct buf said cleanup(buf_fini) = BUF_INIT, expected cleanup(buf_fini) = BUF_INIT;

	print_message("seed %llu\n", (unsigned long long)w.seed);
	for (unsigned i = 0; i < 3; i++)
		walk_enroll(&w, sqlite, memory, i);
	for (unsigned i = 1; i <= STEPS; i++) {
		struct step step = step_make(&w);
		struct answer a = {0}, b = {0};
		int64_t epoch = step_do(sqlite, &step, &a, &said);

		step_do(memory, &step, &b, &expected);
		if (!str_eq(buf_str(&said), buf_str(&expected)))
			fail_msg("step %u\nsqlite: %s\nmemory: %s", i, said.data, expected.data);
		if (step.verb == STEP_REPORT || step.verb == STEP_AGAIN)
			walk_hear(&w, &step, &a);
		w.n_errors += strstr(said.data, "lost with its executor") != NULL;
		if (epoch > 0)
			w.walkers[step.who] = (struct walker){.epoch = epoch};
		if (!w.walkers[step.who].epoch)
			walk_enroll(&w, sqlite, memory, step.who);
	}
	print_message("claims %u accepted %u cancelled %u lone %u lost %u\n", w.n_claims,
		w.n_accepted, w.n_cancelled, w.n_lone, w.n_errors);
	/* The walk must have been where it is interesting. */
	assert_true(w.n_claims > 100 && w.n_accepted > 50 && w.n_cancelled > 50 && w.n_lone > 5);
	store_hand_free(memory);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(reopening_keeps_everything),
		TEST(the_hour_survives_a_restart),
		TEST(an_old_file_is_upgraded),
		TEST(last_seq_starts_anew_after_a_restart),
		TEST(add_time_goes_on_where_it_was),
		TEST(the_last_ends_are_logged_again),
		TEST(sigkill_loses_nothing_that_was_answered),
		TEST(verbs_of_a_turn_share_a_commit),
		TEST(a_heartbeat_writes_nothing),
		TEST(progress_costs_no_fsync_and_is_read_at_once),
		TEST(a_durable_commit_is_one_fsync),
		TEST(a_full_queue_is_said),
		TEST(below_the_reserve_only_adds_are_refused),
		TEST(the_reserve_changes_while_open),
		TEST(a_full_disk_fails_only_what_does_not_fit),
		TEST(a_failed_report_has_not_happened),
		TEST(a_batch_that_runs_again_looks_again_for_its_heads),
		TEST(claims_that_failed_are_the_heads_again),
		TEST(what_others_write_into_the_queue_is_seen),
		TEST(one_directory_has_one_store),
		TEST(a_missing_directory_is_said),
		TEST(a_newer_file_is_left_alone),
		TEST(another_programs_file_is_left_alone),
		TEST(a_damaged_file_is_said),
		TEST(a_row_that_is_damaged_fails_its_verb_only),
		TEST(a_verb_that_fails_half_way_has_done_nothing),
		TEST(the_file_is_as_designed),
		TEST(every_query_goes_by_index),
		TEST(it_does_what_memory_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
