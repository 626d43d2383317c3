/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load - drives any running system over HTTP and says whether anything was lost, doubled or blamed on the judge.
 *
 *   bench/load URL [--clients N] [--count N] [--mix FILE] [--ids FILE] [--deadline SECONDS]
 *
 * N clients, one loop. Each client takes the next task of the mix, POSTs it with an Idempotency-Key (so a retry after a broken connection
 * adds nothing twice) and ?wait, reads again with ?wait until the task is done, and notes the time from the first POST to the verdict.
 *
 *     NEXT -> POST -> (not done) -> GET ... -> done -> NEXT          any failure: the same again after a backoff
 *
 * At the end every id is read once more: a task that is not there or not done is lost, one whose verdict or attempt is another than
 * the one first answered is double. And every task of the run carries a label of its own, under which the judge is asked for all it
 * has: those and no others, each once, or they are lost or double too. Exit: 0; 1 lost, double, system_error or an unexpected
 * verdict; 2 bad usage.
 *
 * A mix file has one JSON object a line: {"weight": 3, "expect": "accepted", "task": {...}}; expect may be absent. Each line is submitted
 * once, and then they are drawn by weight.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "reactor/base/buf.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/signal.h"
#include "reactor/timer.h"
#include "rpc/http/client.h"
#include "rpc/json.h"
#include "rpc/task/verdict.h"

#define MIX_MAX 256
#define WAIT_MS 20000
#define CALL_US (30 * US_PER_S)

struct kind {       /* a line of the mix */
	char *body; /* with the run's label */
	int64_t weight;
	enum verdict expect; /* VERDICT_NONE = anything but system_error */
};

struct outcome { /* a task submitted */
	char id[32];
	enum verdict verdict;
	int64_t attempt;
	int64_t took_us;
	const struct kind *kind;
};

struct load;
struct client {
	struct load *load;
	struct op *op;
	struct timer retry;
	struct backoff backoff;
	struct outcome *task; /* NULL = idle */
	int64_t started_us;
	char key[40];
	bool rereading;
};

struct listing { /* all tasks of the run, page by page */
	struct op *op;
	struct timer retry;
	struct backoff backoff;
	int64_t started_us;
	char after[80];
	struct outcome **by_id; /* sorted, those that have an id */
	bool *seen;
	size_t n;
};

struct load {
	struct loop *loop;
	struct http_client *http;
	char *address;
	const char *ids_file;
	struct kind mix[MIX_MAX];
	unsigned n_mix, n_drawn; /* drawn: in order, each once */
	int64_t weights;
	unsigned n_clients;
	size_t count, next, done, reread;
	struct client *clients;
	struct outcome *tasks;
	int64_t begun_us, ended_us, deadline_us;
	uint64_t retries, lost, doubled, unexpected;
	uint64_t verdicts[VERDICT_N];
	struct timer progress;
	struct listing listing;
	char label[40];
	bool second_pass, interrupted;
};

static void client_next(struct client *c);
static void client_send(struct client *c);

/* --- usage and the mix ---------------------------------------------------------------------------------- */

static int usage(const char *why)
{
	fprintf(stderr,
		"bench/load: %s\n"
		"usage: bench/load URL [--clients N] [--count N] [--mix FILE] [--ids FILE] "
		"[--deadline SECONDS]\n"
		"  URL        http://IP:PORT of a gateway\n"
		"  --clients  submissions under way at the same time (16)\n"
		"  --count    submissions in all (200)\n"
		"  --mix      file with one JSON object a line: weight, expect, task "
		"(bench/mixes/trivial.jsonl)\n"
		"  --ids      writes each id as it is accepted\n"
		"  --deadline seconds for a task before it counts as lost (120)\n",
		why);
	return 2;
}

/* The task with one more label. */
static void write_labelled(struct json_writer *w, const struct json *task, const char *label)
{
	const struct json *labels = json_get(task, "labels");

	json_begin_object(w);
	for (const struct json *member = task->first; member; member = member->next) {
		if (member == labels)
			continue;
		json_key_str(w, member->key);
		json_node(w, member);
	}
	json_key(w, "labels");
	json_begin_array(w);
	for (const struct json *one = labels ? labels->first : NULL; one; one = one->next)
		json_node(w, one);
	json_text(w, label);
	json_end_array(w);
	json_end_object(w);
}

static bool kind_parse(struct load *l, struct str line, unsigned number, const char *file)
{
	struct json_tree *tree cleanup(json_freep) = NULL;
	struct json_error error;
	struct kind *k = &l->mix[l->n_mix];
	const struct json *task, *expect;
	struct buf body = BUF_INIT;
	struct json_writer *w;

	if (json_parse(line, NULL, &tree, &error)) {
		fprintf(stderr, "%s:%u: %s\n", file, number, error.detail);
		return false;
	}
	task = json_get(json_root(tree), "task");
	expect = json_get(json_root(tree), "expect");
	if (!json_i64(json_get(json_root(tree), "weight"), &k->weight))
		k->weight = 1;
	if (!task || k->weight < 1 || (expect && !verdict_parse(expect->text, &k->expect))) {
		fprintf(stderr,
			"%s:%u: need \"task\", a weight >= 1 and a known verdict in \"expect\"\n",
			file, number);
		return false;
	}
	w = json_writer_new(&body, false);
	write_labelled(w, task, l->label);
	json_writer_free(w);
	k->body = buf_take(&body);
	l->weights += k->weight;
	l->n_mix++;
	return true;
}

static bool mix_load(struct load *l, const char *file)
{
	FILE *f = fopen(file, "re");
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;
	unsigned number = 0;
	bool good = true;

	if (!f) {
		fprintf(stderr, "%s: %s\n", file, strerror(errno));
		return false;
	}
	while (good && (n = getline(&line, &cap, f)) > 0 && l->n_mix < MIX_MAX) {
		struct str text = str_trim((struct str){line, (size_t)n});

		number++;
		if (text.n && text.p[0] != '#')
			good = kind_parse(l, text, number, file);
	}
	free(line);
	fclose(f);
	if (good && !l->n_mix)
		fprintf(stderr, "%s: no task in it\n", file);
	return good && l->n_mix;
}

static const struct kind *mix_draw(struct load *l)
{
	int64_t at = (int64_t)loop_random_below(l->loop, (uint64_t)l->weights);
	unsigned i = 0;

	while (at >= l->mix[i].weight)
		at -= l->mix[i++].weight;
	return &l->mix[i];
}

/* Each line of the mix once, if there are enough submissions for that, then by weight. */
static const struct kind *kind_next(struct load *l)
{
	if (l->count >= l->n_mix && l->n_drawn < l->n_mix)
		return &l->mix[l->n_drawn++];
	return mix_draw(l);
}

/* --- a client --------------------------------------------------------------------------------------------- */

static void client_retry(struct client *c)
{
	struct load *l = c->load;

	if (loop_now_us(l->loop) - c->started_us > l->deadline_us) {
		fprintf(stderr, "\nlost: %s (%s)\n",
			c->task->id[0] ? c->task->id : "never accepted", c->key);
		l->lost++;
		client_next(c);
		return;
	}
	l->retries++;
	timer_start(&c->retry, backoff_next(&c->backoff, l->loop));
}

static void note_id(struct load *l, const struct outcome *t)
{
	FILE *f = l->ids_file ? fopen(l->ids_file, "ae") : NULL;

	if (f) {
		fprintf(f, "%s\n", t->id);
		fclose(f);
	}
}

static void client_done(struct client *c, enum verdict verdict, int64_t attempt)
{
	struct load *l = c->load;
	struct outcome *t = c->task;

	if (c->rereading) {
		l->reread++;
		if (t->verdict != VERDICT_NONE &&
			(t->verdict != verdict || t->attempt != attempt)) {
			fprintf(stderr,
				"\ndouble: %s was %s (attempt %lld), is %s (attempt %lld)\n", t->id,
				verdict_name(t->verdict), (long long)t->attempt,
				verdict_name(verdict), (long long)attempt);
			l->doubled++;
		}
		client_next(c);
		return;
	}
	t->verdict = verdict;
	t->attempt = attempt;
	t->took_us = loop_now_exact_us(l->loop) - c->started_us;
	l->verdicts[verdict]++;
	l->done++;
	if (t->kind->expect ? verdict != t->kind->expect : verdict == VERDICT_SYSTEM_ERROR) {
		fprintf(stderr, "\nunexpected: %s is %s\n", t->id, verdict_name(verdict));
		l->unexpected++;
	}
	client_next(c);
}

static void on_reply(void *arg, const struct http_reply *reply)
{
	struct client *c = arg;
	struct json_tree *tree cleanup(json_freep) = NULL;
	struct json_error error;
	const struct json *id, *done;
	enum verdict verdict = VERDICT_NONE;
	int64_t attempt = 0;

	c->op = NULL;
	if (c->task->id[0] && reply->failure == HTTP_OK_REPLY && reply->status == 404) {
		fprintf(stderr, "\nlost: %s is not there any more\n", c->task->id);
		c->load->lost++;
		client_next(c);
		return;
	}
	if (reply->failure != HTTP_OK_REPLY || reply->status / 100 != 2 ||
		json_parse(reply->body, NULL, &tree, &error)) {
		if (reply->failure == HTTP_OK_REPLY && reply->status / 100 == 4) {
			fprintf(stderr, "\nrefused with %d: " STR_FMT "\n", reply->status,
				STR_ARG(reply->body));
			exit(1);
		}
		client_retry(c);
		return;
	}
	id = json_get(json_root(tree), "id");
	done = json_get(json_root(tree), "done");
	if (id && id->text.n < sizeof(c->task->id) && !c->task->id[0]) {
		memcpy(c->task->id, id->text.p, id->text.n);
		note_id(c->load, c->task);
	}
	if (!done || !done->boolean) {
		if (loop_now_us(c->load->loop) - c->started_us > c->load->deadline_us)
			client_retry(c);
		else
			client_send(c);
		return;
	}
	json_i64(json_get(json_root(tree), "attempt"), &attempt);
	if (json_get(json_root(tree), "verdict"))
		verdict_parse(json_get(json_root(tree), "verdict")->text, &verdict);
	client_done(c, verdict, attempt);
}

static void client_send(struct client *c)
{
	struct load *l = c->load;
	char path[96];
	const struct http_header headers[] = {
		{"Content-Type", "application/json"}, {"Idempotency-Key", c->key}};
	struct http_call call = {.address = l->address,
		.headers = headers,
		.n_headers = ARRAY_SIZE(headers),
		.timeout_us = CALL_US,
		.path = path};

	if (c->task->id[0]) {
		snprintf(path, sizeof(path), "/api/v1/tasks/%s?wait=%d", c->task->id, WAIT_MS);
		call.method = "GET";
	} else {
		snprintf(path, sizeof(path), "/api/v1/tasks?wait=%d", WAIT_MS);
		call.method = "POST";
		call.body = str_from(c->task->kind->body);
	}
	if (http_client_call(l->http, &call, on_reply, c, &c->op))
		client_retry(c);
}

static void on_retry(void *arg)
{
	client_send(arg);
}

/* --- the judge's own list -------------------------------------------------------------------------------------- */

static void list_page(struct load *l);

static int by_id(const void *a, const void *b)
{
	return strcmp((*(struct outcome *const *)a)->id, (*(struct outcome *const *)b)->id);
}

static void count_double(struct load *l, const char *id, const char *why)
{
	fprintf(stderr, "\ndouble: %s %s\n", id, why);
	l->doubled++;
}

static void list_start(struct load *l)
{
	struct listing *list = &l->listing;

	list->by_id = mem_array(l->count, sizeof(struct outcome *));
	list->seen = mem_array(l->count, sizeof(bool));
	for (size_t i = 0; i < l->count; i++) {
		if (l->tasks[i].id[0])
			list->by_id[list->n++] = &l->tasks[i];
	}
	qsort(list->by_id, list->n, sizeof(struct outcome *), by_id);
	for (size_t i = 1; i < list->n; i++) {
		if (!by_id(&list->by_id[i - 1], &list->by_id[i]))
			count_double(l, list->by_id[i]->id, "was given to two submissions");
	}
	list->started_us = loop_now_us(l->loop);
	list_page(l);
}

static void list_end(struct load *l)
{
	for (size_t i = 0; i < l->listing.n; i++) {
		if (l->listing.seen[i])
			continue;
		fprintf(stderr, "\nlost: %s is not in the judge's list\n", l->listing.by_id[i]->id);
		l->lost++;
	}
	loop_stop(l->loop);
}

static void list_see(struct load *l, const struct json *task)
{
	struct listing *list = &l->listing;
	struct outcome key = {0}, *wanted = &key, **found;
	const struct json *id = json_get(task, "id");

	if (!id || id->text.n >= sizeof(key.id))
		return;
	memcpy(key.id, id->text.p, id->text.n);
	found = bsearch(&wanted, list->by_id, list->n, sizeof(struct outcome *), by_id);
	if (!found)
		count_double(l, key.id, "was added, and no client was told of it");
	else if (list->seen[found - list->by_id])
		count_double(l, key.id, "stands in the judge's list twice");
	else
		list->seen[found - list->by_id] = true;
}

static void list_retry(struct load *l)
{
	struct listing *list = &l->listing;

	if (loop_now_us(l->loop) - list->started_us > l->deadline_us) {
		fprintf(stderr, "\nthe judge's list cannot be read\n");
		list_end(l);
		return;
	}
	l->retries++;
	timer_start(&list->retry, backoff_next(&list->backoff, l->loop));
}

static void on_list(void *arg, const struct http_reply *reply)
{
	struct load *l = arg;
	struct json_tree *tree cleanup(json_freep) = NULL;
	const struct json *tasks, *next;
	struct json_error error;

	l->listing.op = NULL;
	if (reply->failure != HTTP_OK_REPLY || reply->status != 200 ||
		json_parse(reply->body, NULL, &tree, &error)) {
		list_retry(l);
		return;
	}
	tasks = json_get(json_root(tree), "tasks");
	for (const struct json *task = tasks ? tasks->first : NULL; task; task = task->next)
		list_see(l, task);
	next = json_get(json_root(tree), "next");
	if (!next || next->type != JSON_STRING || next->text.n >= sizeof(l->listing.after)) {
		list_end(l);
		return;
	}
	snprintf(l->listing.after, sizeof(l->listing.after), STR_FMT, STR_ARG(next->text));
	list_page(l);
}

static void list_page(struct load *l)
{
	struct listing *list = &l->listing;
	char path[192];
	struct http_call call = {
		.address = l->address, .method = "GET", .path = path, .timeout_us = CALL_US};

	snprintf(path, sizeof(path), "/api/v1/tasks?label=%s&limit=1000%s%s", l->label,
		list->after[0] ? "&after=" : "", list->after);
	if (http_client_call(l->http, &call, on_list, l, &list->op))
		list_retry(l);
}

static void on_list_retry(void *arg)
{
	list_page(arg);
}

static void all_done(struct load *l)
{
	if (!l->second_pass) {
		l->ended_us = loop_now_us(l->loop);
		l->second_pass = true;
		l->next = 0;
		for (unsigned i = 0; i < l->n_clients; i++)
			client_next(&l->clients[i]);
		return;
	}
	if (!l->listing.by_id)
		list_start(l);
}

static void client_next(struct client *c)
{
	struct load *l = c->load;

	c->task = NULL;
	backoff_reset(&c->backoff);
	while (l->second_pass && l->next < l->count && !l->tasks[l->next].id[0])
		l->next++;
	if (l->next == l->count) {
		for (unsigned i = 0; i < l->n_clients; i++) {
			if (l->clients[i].task)
				return;
		}
		all_done(l);
		return;
	}
	c->task = &l->tasks[l->next++];
	c->rereading = l->second_pass;
	c->started_us = loop_now_exact_us(l->loop);
	if (!c->rereading) {
		c->task->kind = kind_next(l);
		snprintf(c->key, sizeof(c->key), "%016llx%016llx",
			(unsigned long long)loop_random(l->loop),
			(unsigned long long)loop_random(l->loop));
	}
	client_send(c);
}

/* --- report -------------------------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void show_progress(void *arg)
{
	struct load *l = arg;
	double s = (double)(loop_now_us(l->loop) - l->begun_us) / 1e6;

	fprintf(stderr, "\r%zu of %zu done, %.0f/s, %llu retries ",
		l->second_pass ? l->reread : l->done, l->count, s > 0 ? (double)l->done / s : 0,
		(unsigned long long)l->retries);
	timer_start(&l->progress, isatty(2) ? US_PER_S / 4 : 5 * US_PER_S);
}

static int show_report(struct load *l)
{
	int64_t *times = mem_array(l->count + 1, sizeof(*times));
	double s = (double)(l->ended_us - l->begun_us) / 1e6;
	int64_t attempts = 0;
	size_t n = 0;
	bool bad;

	for (size_t i = 0; i < l->count; i++) {
		if (l->tasks[i].verdict == VERDICT_NONE)
			continue;
		times[n++] = l->tasks[i].took_us;
		attempts += l->tasks[i].attempt;
	}
	qsort(times, n, sizeof(*times), by_time);
	printf("\nclients %u  tasks %zu  seconds %.2f  rate %.1f/s  p50 %.2f ms  p99 %.2f ms  max "
	       "%.2f ms\n",
		l->n_clients, l->done, s, s > 0 ? (double)l->done / s : 0,
		n ? (double)times[n / 2] / 1e3 : 0, n ? (double)times[n - 1 - n / 100] / 1e3 : 0,
		n ? (double)times[n - 1] / 1e3 : 0);
	for (int v = VERDICT_ACCEPTED; v < VERDICT_N; v++) {
		if (l->verdicts[v])
			printf("%s %llu  ", verdict_name((enum verdict)v),
				(unsigned long long)l->verdicts[v]);
	}
	printf("\nattempts %lld  (%lld more than tasks)  retries of calls %llu\n",
		(long long)attempts, (long long)(attempts - (int64_t)n),
		(unsigned long long)l->retries);
	printf("lost %llu  double %llu  unexpected %llu  system_error %llu\n",
		(unsigned long long)l->lost, (unsigned long long)l->doubled,
		(unsigned long long)l->unexpected,
		(unsigned long long)l->verdicts[VERDICT_SYSTEM_ERROR]);
	free(times);
	bad = l->interrupted || l->lost || l->doubled || l->unexpected ||
	      l->verdicts[VERDICT_SYSTEM_ERROR] || l->done != l->count;
	return bad ? 1 : 0;
}

/* --- main ------------------------------------------------------------------------------------------------------ */

static void on_signal(void *arg, int signum)
{
	struct load *l = arg;

	(void)signum;
	l->interrupted = true;
	loop_stop(l->loop);
}

static int run(struct load *l)
{
	struct http_client_options ho = {
		.connections_max = l->n_clients + 1, .waiting_max = l->n_clients + 1};
	struct signal_watch *interrupt;
	int r;

	l->http = http_client_new(l->loop, &ho);
	l->clients = mem_array(l->n_clients, sizeof(*l->clients));
	l->tasks = mem_array(l->count, sizeof(*l->tasks));
	interrupt = signal_new(l->loop, SIGINT, on_signal, l);
	timer_init(&l->progress, l->loop, show_progress, l);
	timer_init(&l->listing.retry, l->loop, on_list_retry, l);
	l->listing.backoff = (struct backoff){.min_us = 20 * US_PER_MS, .max_us = US_PER_S};
	timer_start(&l->progress, US_PER_S);
	l->begun_us = loop_now_us(l->loop);
	for (unsigned i = 0; i < l->n_clients; i++) {
		struct client *c = &l->clients[i];

		c->load = l;
		c->backoff = (struct backoff){.min_us = 20 * US_PER_MS, .max_us = US_PER_S};
		timer_init(&c->retry, l->loop, on_retry, c);
	}
	for (unsigned i = 0; i < l->n_clients; i++)
		client_next(&l->clients[i]);
	loop_run(l->loop);
	if (!l->ended_us)
		l->ended_us = loop_now_us(l->loop);
	r = show_report(l);
	signal_free(interrupt);
	http_client_free(l->http);
	loop_free(l->loop);
	free(l->clients);
	free(l->tasks);
	free(l->listing.by_id);
	free(l->listing.seen);
	return r;
}

static bool number(const char *text, int64_t min, int64_t max, int64_t *out)
{
	return text && str_to_i64(str_from(text), out) && *out >= min && *out <= max;
}

int main(int argc, char **argv)
{
	struct load l = {.n_clients = 16, .count = 200, .deadline_us = 120 * US_PER_S};
	const char *mix = "bench/mixes/trivial.jsonl";
	int64_t n;
	int r;

	if (argc < 2 || strncmp(argv[1], "http://", 7))
		return usage("the first argument is the gateway's URL");
	l.address = mem_dup(argv[1] + 7, strcspn(argv[1] + 7, "/"));
	for (int i = 2; i < argc; i += 2) {
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;

		if (!strcmp(argv[i], "--clients") && number(value, 1, 4096, &n))
			l.n_clients = (unsigned)n;
		else if (!strcmp(argv[i], "--count") && number(value, 1, 10000000, &n))
			l.count = (size_t)n;
		else if (!strcmp(argv[i], "--deadline") && number(value, 1, 100000, &n))
			l.deadline_us = n * US_PER_S;
		else if (!strcmp(argv[i], "--mix") && value)
			mix = value;
		else if (!strcmp(argv[i], "--ids") && value)
			l.ids_file = value;
		else
			return usage(argv[i]);
	}
	if (l.n_clients > l.count)
		l.n_clients = (unsigned)l.count;
	l.loop = loop_new(NULL);
	snprintf(l.label, sizeof(l.label), "load-%016llx", (unsigned long long)loop_random(l.loop));
	if (!mix_load(&l, mix))
		return 2;
	r = run(&l);
	for (unsigned i = 0; i < l.n_mix; i++)
		free(l.mix[i].body);
	free(l.address);
	return r;
}
