/* SPDX-License-Identifier: Apache-2.0 */
/*
 * done_cache - theory of operation
 *
 * A task that is done never changes, so what one reader was shown may be shown to the next without asking a judicator. The cache holds
 * the text of the answer and whose task it is: who asks is looked at each time.
 *
 *     a done task is shown  --> put: to the front of by_use; over the bound the least recently used go
 *     GET of an id in it    --> to the front, answered
 *     GET of another        --> as ever, by a judicator
 *
 * A task that is not done is never in it. The bound counts what an entry costs, its bookkeeping included; an answer larger than a share of
 * it is not kept, so that one large result does not push out thousands of small ones.
 */
#include "roles/gateway/gateway_int.h"

#include <stdlib.h>

#include "reactor/base/mem.h"

#define ENTRY_OVERHEAD 256 /* of the map, and of malloc */
#define ENTRY_SHARE 16     /* no entry takes more than this part of the bound */

struct done_entry {
	struct list link; /* cache->by_use */
	struct id id;
	char user[65];
	size_t n;
	char text[];
};

static size_t cost_of(size_t n)
{
	return sizeof(struct done_entry) + ENTRY_OVERHEAD + n;
}

void done_cache_init(struct done_cache *cache, int64_t bytes_max)
{
	*cache = (struct done_cache){.bytes_max = (size_t)bytes_max};
	map_init(&cache->entries);
	list_init(&cache->by_use);
}

static void entry_drop(struct done_cache *cache, struct done_entry *e)
{
	cache->bytes -= cost_of(e->n);
	map_del(&cache->entries, id_str(&e->id));
	list_del(&e->link);
	free(e);
}

void done_cache_fini(struct done_cache *cache)
{
	list_each_safe (it, &cache->by_use)
		entry_drop(cache, list_entry(it, struct done_entry, link));
	map_fini(&cache->entries);
}

void done_cache_put(struct done_cache *cache, const struct msg_task_view *task, struct str text)
{
	size_t cost = cost_of(text.n);
	struct done_entry *e;

	if (!view_is_done(task) || cost > cache->bytes_max / ENTRY_SHARE ||
		task->user.n >= sizeof(e->user) || map_get(&cache->entries, id_str(&task->id)))
		return;
	while (cache->bytes + cost > cache->bytes_max)
		entry_drop(cache, list_entry(cache->by_use.prev, struct done_entry, link));
	e = mem_alloc(sizeof(*e) + text.n);
	e->id = task->id;
	if (task->user.n)
		memcpy(e->user, task->user.p, task->user.n);
	e->n = text.n;
	memcpy(e->text, text.p, text.n);
	list_add_head(&cache->by_use, &e->link);
	map_set(&cache->entries, id_str(&e->id), e);
	cache->bytes += cost;
}

bool done_cache_get(
	struct done_cache *cache, const struct id *id, struct str *user, struct str *text)
{
	struct done_entry *e = map_get(&cache->entries, id_str(id));

	cache->asked[e != NULL]++;
	if (!e)
		return false;
	list_del(&e->link);
	list_add_head(&cache->by_use, &e->link);
	*user = str_from(e->user);
	*text = (struct str){e->text, e->n};
	return true;
}
