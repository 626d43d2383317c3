/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store that forgets: tasks on maps, queues as heaps. For tests, and for who says so in the configuration.
 *
 * A verb runs inside its call, since nothing here waits or fails, and is answered at the end of the loop's turn; what has changed is
 * told once after the answers of the turn. So a cluster on one loop with a fake clock replays exactly.
 *
 *   mem_data   the rows: shared by the handles on it, freed with the last
 *     tasks      id -> mem_task, never removed; `order` is the same in the order of adding
 *     queues     language -> mem_queue: a binary heap whose order is total, each task knowing its slot, so that claiming the best and
 *                cancelling from the middle both cost O(log n)
 *     executors  name -> mem_executor, with the list of the tasks it owns
 *   mem_store  a handle: its loop's answers to come, its on_changed
 *
 * A task is in a heap exactly when QUEUED, on an executor's list exactly when OWNED; task_put() alone moves it.
 */
#include <errno.h>
#include <stdlib.h>

#include "reactor/base/err.h"
#include "reactor/base/map.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/judicator/store/blobs.h"

struct mem_task {
	struct rows_task row;
	struct list owned; /* on mem_executor.owned while OWNED */
	size_t slot;       /* in its queue while QUEUED */
	struct buf doc, result, labels;
};

struct mem_queue {
	struct mem_task **slots;
	size_t count, cap;
};

struct mem_executor {
	struct rows_executor row;
	struct list owned; /* struct mem_task, oldest claim first */
	int64_t n_owned;
};

struct mem_blob {
	struct rows_blob row;
	struct map owners; /* user -> this */
	int64_t n_tasks;
};

struct mem_data {
	struct rows rows;
	unsigned handles;
	struct map tasks, queues, executors;
	struct map blobs; /* name -> struct mem_blob */
	struct map bytes; /* name -> struct buf *: here before the row is, and after it */
	struct mem_task **order;
	size_t n_order, cap_order;
};

struct mem_store {
	struct verbs verbs;
	struct mem_data *data;
	struct blobs *blobs;
	struct list done,
		answering; /* struct verb_op, to be answered: in the next walk, in this one */
	struct defer answers;
	struct rules_changes changes;
};

static struct mem_data *data_of(struct rows *rows)
{
	return container_of(rows, struct mem_data, rows);
}

/* --- the heap --- */

static void heap_place(struct mem_queue *q, size_t slot, struct mem_task *task)
{
	q->slots[slot] = task;
	task->slot = slot;
}

static void heap_up(struct mem_queue *q, size_t slot, struct mem_task *task)
{
	while (slot > 0) {
		size_t parent = (slot - 1) / 2;

		if (!rows_task_before(&task->row, &q->slots[parent]->row))
			break;
		heap_place(q, slot, q->slots[parent]);
		slot = parent;
	}
	heap_place(q, slot, task);
}

static void heap_down(struct mem_queue *q, size_t slot, struct mem_task *task)
{
	for (;;) {
		size_t child = 2 * slot + 1;

		if (child >= q->count)
			break;
		if (child + 1 < q->count &&
			rows_task_before(&q->slots[child + 1]->row, &q->slots[child]->row))
			child++;
		if (!rows_task_before(&q->slots[child]->row, &task->row))
			break;
		heap_place(q, slot, q->slots[child]);
		slot = child;
	}
	heap_place(q, slot, task);
}

static struct mem_queue *queue_of(struct mem_data *d, const char *language)
{
	struct mem_queue *q = map_get(&d->queues, str_from(language));

	if (!q) {
		q = mem_alloc(sizeof(*q));
		map_set(&d->queues, str_from(language), q);
	}
	return q;
}

static void queue_add(struct mem_data *d, struct mem_task *task)
{
	struct mem_queue *q = queue_of(d, task->row.language);

	if (q->count == q->cap) {
		q->cap = q->cap ? q->cap * 2 : 16;
		q->slots = mem_resize(q->slots, q->cap * sizeof(struct mem_task *));
	}
	heap_up(q, q->count++, task);
}

static void queue_del(struct mem_data *d, struct mem_task *task)
{
	struct mem_queue *q = queue_of(d, task->row.language);
	struct mem_task *last = q->slots[--q->count];
	size_t slot = task->slot;

	if (last == task)
		return;
	heap_down(q, slot, last);
	if (last->slot == slot)
		heap_up(q, slot, last);
}

/* --- executors --- */

static struct mem_executor *executor_find(struct mem_data *d, struct str name)
{
	return map_get(&d->executors, name);
}

static int mem_executor_get(struct rows *rows, struct str name, struct rows_executor *out)
{
	struct mem_executor *e = executor_find(data_of(rows), name);

	if (!e)
		return ROWS_NONE;
	*out = e->row;
	return 0;
}

static int mem_executor_put(struct rows *rows, const struct rows_executor *row)
{
	struct mem_data *d = data_of(rows);
	struct mem_executor *e = executor_find(d, str_from(row->name));

	if (!e) {
		e = mem_alloc(sizeof(*e));
		list_init(&e->owned);
		map_set(&d->executors, str_from(row->name), e);
	}
	e->row = *row;
	return 0;
}

static int mem_executor_seen(struct rows *rows, const struct rows_executor *row)
{
	executor_find(data_of(rows), str_from(row->name))->row.last_seq = row->last_seq;
	return 0;
}

static int executor_cmp(const void *a, const void *b)
{
	const struct mem_executor *const *x = a, *const *y = b;

	return strcmp((*x)->row.name, (*y)->row.name);
}

static int mem_executor_each(struct rows *rows, bool hidden_too, rows_executor_fn *visit, void *arg)
{
	struct mem_data *d = data_of(rows);
	size_t n = map_count(&d->executors), i = 0;
	struct mem_executor **sorted = mem_array(n, sizeof(struct mem_executor *));

	map_each (it, &d->executors)
		sorted[i++] = map_entry_of(it)->value;
	if (n)
		qsort(sorted, n, sizeof(struct mem_executor *), executor_cmp);
	for (i = 0; i < n; i++)
		if (hidden_too || !sorted[i]->row.hidden)
			visit(arg, &sorted[i]->row, sorted[i]->n_owned);
	free(sorted);
	return 0;
}

static int mem_executors_sum(struct rows *rows, struct rows_executors *out)
{
	*out = (struct rows_executors){0};
	map_each (it, &data_of(rows)->executors) {
		const struct mem_executor *e = map_entry_of(it)->value;

		if (e->row.hidden)
			continue;
		out->alive += !e->row.dead;
		out->dead += e->row.dead;
		out->slots += e->row.dead ? 0 : e->row.slots;
	}
	return 0;
}

/* --- tasks --- */

static struct mem_task *task_find(struct mem_data *d, const struct id *id)
{
	return map_get(&d->tasks, id_str(id));
}

static int mem_task_get(struct rows *rows, const struct id *id, struct rows_task *out)
{
	struct mem_task *task = task_find(data_of(rows), id);

	if (!task)
		return ROWS_NONE;
	*out = task->row;
	return 0;
}

/* Puts the task where its row says it is, having left where it was. */
static void task_enter(struct mem_data *d, struct mem_task *task)
{
	if (task->row.place == ROWS_QUEUED)
		queue_add(d, task);
	if (task->row.place == ROWS_OWNED) {
		struct mem_executor *e = executor_find(d, str_from(task->row.executor));

		list_add_tail(&e->owned, &task->owned);
		e->n_owned++;
	}
}

static void task_leave(struct mem_data *d, struct mem_task *task)
{
	if (task->row.place == ROWS_QUEUED)
		queue_del(d, task);
	if (task->row.place == ROWS_OWNED) {
		list_del(&task->owned);
		executor_find(d, str_from(task->row.executor))->n_owned--;
	}
}

static int mem_task_add(
	struct rows *rows, const struct rows_task *row, struct str doc, struct str labels)
{
	struct mem_data *d = data_of(rows);
	struct mem_task *task = mem_alloc(sizeof(*task));

	task->row = *row;
	list_init(&task->owned);
	buf_add_str(&task->doc, doc);
	buf_add_str(&task->labels, labels);
	if (d->n_order == d->cap_order) {
		d->cap_order = d->cap_order ? d->cap_order * 2 : 64;
		d->order = mem_resize(d->order, d->cap_order * sizeof(struct mem_task *));
	}
	d->order[d->n_order++] = task;
	map_set(&d->tasks, id_str(&row->id), task);
	task_enter(d, task);
	return 0;
}

static int mem_task_put(struct rows *rows, const struct rows_task *row)
{
	struct mem_data *d = data_of(rows);
	struct mem_task *task = task_find(d, &row->id);

	task_leave(d, task);
	task->row = *row;
	task_enter(d, task);
	return 0;
}

static int mem_task_progress(struct rows *rows, const struct rows_task *row)
{
	struct mem_task *task = task_find(data_of(rows), &row->id);

	task->row.status = row->status;
	task->row.case_no = row->case_no;
	return 0;
}

static int mem_owned(
	struct rows *rows, struct str name, int64_t first, int64_t last, struct rows_list *out)
{
	struct mem_executor *e = executor_find(data_of(rows), name);

	if (!e)
		return 0;
	list_each (it, &e->owned) {
		struct mem_task *task = list_entry(it, struct mem_task, owned);

		if (task->row.epoch >= first && task->row.epoch <= last)
			*rows_list_add(out) = task->row;
	}
	return 0;
}

static int mem_head(struct rows *rows, struct str language, struct rows_task *out)
{
	struct mem_queue *q = map_get(&data_of(rows)->queues, language);

	if (!q || !q->count)
		return ROWS_NONE;
	*out = q->slots[0]->row;
	return 0;
}

/* As long as many are done, this looks at all of them: a store for tests. */
static int mem_oldest(struct rows *rows, enum task_status status, int64_t *add_us)
{
	const struct mem_data *d = data_of(rows);

	for (size_t i = 0; i < d->n_order; i++) {
		if (d->order[i]->row.status == status) {
			*add_us = d->order[i]->row.add_us;
			return 0;
		}
	}
	return ROWS_NONE;
}

/* Lent: a document never changes, a result only once, and no task is ever removed. */
static int mem_text_get(struct rows *rows, const struct rows_task *row, enum rows_text what,
	struct record *arena, struct str *out)
{
	struct mem_task *task = task_find(data_of(rows), &row->id);
	const struct buf *texts[] = {
		[ROWS_DOC] = &task->doc,
		[ROWS_RESULT] = &task->result,
		[ROWS_LABELS] = &task->labels,
	};

	*out = texts[what]->data ? buf_str(texts[what]) : STR_NULL;
	return 0;
}

static int mem_result_put(struct rows *rows, const struct rows_task *row, struct str result)
{
	if (result.p)
		buf_add_str(&task_find(data_of(rows), &row->id)->result, result);
	return 0;
}

static bool has_label(const struct mem_task *task, struct str wanted)
{
	struct str rest = buf_str(&task->labels), label;

	while (rows_labels_next(&rest, &label)) {
		if (str_eq(label, wanted))
			return true;
	}
	return false;
}

/* How many tasks were added at or before us. */
static size_t order_count(const struct mem_data *d, int64_t us)
{
	size_t low = 0, high = d->n_order;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (d->order[mid]->row.add_us <= us)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static int mem_walk(
	struct rows *rows, const struct rows_walk *walk, rows_visit_fn *visit, void *arg)
{
	struct mem_data *d = data_of(rows);
	size_t at = order_count(d, walk->ascending ? walk->after_us : walk->after_us - 1);
	size_t left = walk->ascending ? d->n_order - at : at;

	for (size_t i = 0; i < left; i++) {
		struct mem_task *task = d->order[walk->ascending ? at + i : at - 1 - i];

		if (walk->label.p && !has_label(task, walk->label))
			continue;
		if (!visit(arg, &task->row))
			break;
	}
	return 0;
}

static bool mem_has_room(struct rows *rows)
{
	return true;
}

/* --- blobs --- */

static struct mem_blob *blob_find(struct rows *rows, struct str name)
{
	return map_get(&data_of(rows)->blobs, name);
}

static int mem_blob_get(struct rows *rows, struct str name, struct rows_blob *out)
{
	struct mem_blob *blob = blob_find(rows, name);

	if (!blob)
		return ROWS_NONE;
	*out = blob->row;
	return 0;
}

static int mem_blob_put(struct rows *rows, const struct rows_blob *row)
{
	struct mem_blob *blob = blob_find(rows, str_from(row->name));

	if (!blob) {
		blob = mem_alloc(sizeof(*blob));
		map_init(&blob->owners);
		map_set(&data_of(rows)->blobs, str_from(row->name), blob);
	}
	blob->row = *row;
	return 0;
}

static int mem_blob_own(struct rows *rows, struct str name, struct str user)
{
	struct mem_blob *blob = blob_find(rows, name);

	map_set(&blob->owners, user, blob);
	return 0;
}

static int mem_blob_owned(struct rows *rows, struct str name, struct str user)
{
	return map_get(&blob_find(rows, name)->owners, user) ? 0 : ROWS_NONE;
}

static int mem_blob_refer(struct rows *rows, struct str name, const struct rows_task *task unused)
{
	blob_find(rows, name)->n_tasks++; /* no task is ever removed */
	return 0;
}

static int mem_blob_unused(struct rows *rows, int64_t before_us, size_t max, struct rows_blobs *out)
{
	map_each (it, &data_of(rows)->blobs) {
		const struct mem_blob *blob = map_entry_of(it)->value;

		if (!blob->n_tasks && blob->row.used_us < before_us && out->count < max)
			rows_blobs_add(out, &blob->row);
	}
	return 0;
}

static void blob_free(struct mem_blob *blob)
{
	map_fini(&blob->owners);
	free(blob);
}

static int mem_blob_del(struct rows *rows, struct str name)
{
	blob_free(map_del(&data_of(rows)->blobs, name));
	return 0;
}

static bool bytes_have_room(void *place unused, int64_t reserve_bytes unused)
{
	return true;
}

static int bytes_write(void *place unused, struct upload *u, struct str bytes)
{
	buf_add_str(&u->bytes, bytes);
	return 0;
}

static void bytes_free(struct buf *bytes)
{
	if (bytes)
		buf_fini(bytes);
	free(bytes);
}

static int bytes_finish(void *place, struct upload *u)
{
	struct mem_data *d = place;
	struct buf *bytes = mem_alloc(sizeof(*bytes));

	*bytes = u->bytes;
	u->bytes = BUF_INIT;
	bytes_free(map_set(&d->bytes, str_from(u->name), bytes));
	return 0;
}

static void bytes_drop(void *place unused, struct upload *u)
{
	buf_fini(&u->bytes);
}

static int bytes_read(void *place, const char *name, int64_t offset, size_t n, struct buf *out)
{
	struct mem_data *d = place;
	const struct buf *bytes = map_get(&d->bytes, str_from(name));

	if (!bytes)
		return -ENOENT;
	buf_add(out, bytes->data + offset, n);
	return 0;
}

/* Another handle may have put it again meanwhile. */
static void bytes_remove(void *place, const char *name)
{
	struct mem_data *d = place;

	if (!map_get(&d->blobs, str_from(name)))
		bytes_free(map_del(&d->bytes, str_from(name)));
}

static const struct blobs_ops mem_bytes_ops = {
	.has_room = bytes_have_room,
	.write = bytes_write,
	.finish = bytes_finish,
	.drop = bytes_drop,
	.read = bytes_read,
	.remove = bytes_remove,
};

static const struct rows_ops mem_rows_ops = {
	.executor_get = mem_executor_get,
	.executor_put = mem_executor_put,
	.executor_seen = mem_executor_seen,
	.executor_each = mem_executor_each,
	.executors_sum = mem_executors_sum,
	.task_get = mem_task_get,
	.task_add = mem_task_add,
	.task_put = mem_task_put,
	.task_progress = mem_task_progress,
	.owned = mem_owned,
	.head = mem_head,
	.oldest = mem_oldest,
	.text_get = mem_text_get,
	.result_put = mem_result_put,
	.walk = mem_walk,
	.has_room = mem_has_room,
	.blob_get = mem_blob_get,
	.blob_put = mem_blob_put,
	.blob_own = mem_blob_own,
	.blob_owned = mem_blob_owned,
	.blob_refer = mem_blob_refer,
	.blob_unused = mem_blob_unused,
	.blob_del = mem_blob_del,
};

/* --- the data's life --- */

static struct mem_data *data_new(void)
{
	struct mem_data *d = mem_alloc(sizeof(*d));

	d->rows.ops = &mem_rows_ops;
	map_init(&d->tasks);
	map_init(&d->queues);
	map_init(&d->executors);
	map_init(&d->blobs);
	map_init(&d->bytes);
	return d;
}

static void data_drop(struct mem_data *d)
{
	if (--d->handles)
		return;
	for (size_t i = 0; i < d->n_order; i++) {
		buf_fini(&d->order[i]->doc);
		buf_fini(&d->order[i]->result);
		buf_fini(&d->order[i]->labels);
		free(d->order[i]);
	}
	free(d->order);
	map_each (it, &d->queues) {
		struct mem_queue *q = map_entry_of(it)->value;

		free(q->slots);
		free(q);
	}
	map_each (it, &d->executors)
		free(map_entry_of(it)->value);
	map_each (it, &d->blobs)
		blob_free(map_entry_of(it)->value);
	map_each (it, &d->bytes)
		bytes_free(map_entry_of(it)->value);
	map_fini(&d->blobs);
	map_fini(&d->bytes);
	map_fini(&d->tasks);
	map_fini(&d->queues);
	map_fini(&d->executors);
	free(d);
}

/* --- handles --- */

static void answers_give(struct mem_store *m)
{
	struct list *link;

	/* A callback may close the store, which empties the list. */
	while ((link = list_first(&m->answering))) {
		list_del(link);
		verb_answer(list_entry(link, struct verb_op, link));
	}
	rules_changes_deliver(&m->changes, &m->verbs.options, &m->verbs.counters);
}

/* What the callbacks call is answered by the next one: a caller that never ends must not hold the loop. */
static void on_answers(void *arg)
{
	struct mem_store *m = arg;

	list_splice_tail(&m->answering, &m->done);
	answers_give(m);
}

static void mem_submit(struct verbs *verbs, struct verb_op *op)
{
	struct mem_store *m = container_of(verbs, struct mem_store, verbs);

	CHECK(verb_run(op, &m->data->rows, m->verbs.options.max_retries, &m->changes) == 0);
	list_add_tail(&m->done, &op->link);
	loop_defer(m->verbs.loop, &m->answers);
}

static struct store *handle_new(
	struct loop *loop, const struct store_options *options, struct mem_data *data)
{
	struct mem_store *m = mem_alloc(sizeof(*m));

	m->verbs.store.ops = &store_memory;
	m->verbs.loop = loop;
	m->verbs.options = *options;
	m->verbs.options.dir = NULL;
	m->verbs.submit = mem_submit;
	m->data = data;
	data->handles++;
	CHECK(blobs_new(&m->verbs, &mem_bytes_ops, data, &m->blobs) == 0);
	list_init(&m->done);
	list_init(&m->answering);
	defer_init(&m->answers, on_answers, m);
	return &m->verbs.store;
}

static int mem_open(struct loop *loop, const struct store_options *options, struct store **out)
{
	*out = handle_new(loop, options, data_new());
	return 0;
}

static void mem_close(struct store *store)
{
	struct mem_store *m = container_of(store, struct mem_store, verbs.store);

	blobs_close(m->blobs);
	do
		on_answers(m);
	while (blobs_settle(m->blobs) || !list_is_empty(&m->done));
	defer_cancel(&m->answers);
	blobs_free(m->blobs);
	rules_changes_fini(&m->changes);
	data_drop(m->data);
	/* on_answers() may be below us on the stack. */
	m->verbs.options.on_changed = NULL;
	loop_free_later(m->verbs.loop, free, m);
}

/* There is no disk that could be full. */
static void mem_set_reserve(struct store *store unused, int64_t reserve_bytes unused)
{
}

static void mem_counters(const struct store *store, struct store_counters *out)
{
	*out = container_of(store, struct mem_store, verbs.store)->verbs.counters;
	out->free_bytes = -1;
}

static struct blobs *blobs_of(struct store *store)
{
	return container_of(store, struct mem_store, verbs.store)->blobs;
}

static void mem_blob_put_call(struct store *store, const struct msg_blob_put_request *request,
	struct str bytes, store_blob_put_fn *cb, void *arg)
{
	blobs_put(blobs_of(store), request, bytes, cb, arg);
}

static void mem_blob_get_call(struct store *store, const struct msg_blob_get_request *request,
	store_blob_get_fn *cb, void *arg)
{
	blobs_get(blobs_of(store), request, cb, arg);
}

static void mem_blob_collect_call(
	struct store *store, int64_t unused_us, store_count_fn *cb, void *arg)
{
	blobs_collect(blobs_of(store), unused_us, cb, arg);
}

int store_memory_share(struct store *store, const struct store_options *options, struct store **out)
{
	struct mem_store *m = container_of(store, struct mem_store, verbs.store);

	if (store->ops != &store_memory)
		return err_origin(-EINVAL);
	*out = handle_new(m->verbs.loop, options, m->data);
	return 0;
}

const struct store_ops store_memory = {
	.name = "memory",
	.open = mem_open,
	.close = mem_close,
	.set_reserve = mem_set_reserve,
	.counters = mem_counters,
	.blob_put = mem_blob_put_call,
	.blob_get = mem_blob_get_call,
	.blob_collect = mem_blob_collect_call,
	VERBS_OPS,
};
