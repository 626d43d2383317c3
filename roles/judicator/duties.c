/* SPDX-License-Identifier: Apache-2.0 */
/*
 * duties - theory of operation
 *
 * The leader judges executors, not tasks: an executor whose (epoch, seq) has not moved for `expire` on this process's own clock
 * is declared dead by the store's `lose`, which is conditional on exactly that (epoch, seq), so a report that came in between saves it
 * (trace L5). No wall clock and no heartbeat row take part.
 *
 * A new leader starts counting afresh, and so does one whose store was away, or that was away itself (its tick came
 * late): silence that nobody could have heard is no silence. Every duty is a compare-and-set and so is safe under two leaders.
 *
 * Blobs that nothing refers to are collected when they have not been used for blob_age: looked for every quarter of that, and at
 * least every COLLECT_MAX_US, or at once again when there were more than one go takes. Here the wall clock counts, as it must be the
 * same for all judicators; one that jumps ahead costs blobs that were put and not referred to yet, and the client hears blob_missing.
 *
 * A dead executor is hidden from the list after drop_us; its epoch is kept for ever (trace L6).
 */
#include "roles/judicator/judicator_int.h"

#include <stdlib.h>

#include "reactor/base/log.h"
#include "reactor/base/mem.h"

#define COLLECT_MAX_US (600 * US_PER_S)

struct sighting {
	int64_t epoch, seq;
	int64_t since_us; /* when this (epoch, seq, dead) was first seen */
	bool dead;
	bool told; /* a verb about it is under way or done */
};

static int64_t duties_period(const struct judicator *j)
{
	int64_t period = j->expire_us / 10;

	return period < US_PER_S ? period : US_PER_S;
}

static void duties_forget(struct judicator *j)
{
	map_each (it, &j->duties.seen) {
		struct map_entry *e = map_entry_of(it);

		free(map_del(&j->duties.seen, (struct str){e->key, e->key_len}));
	}
}

/* --- duties towards executors ------------------------------------------------------------------------------------- */

static void on_lost(void *arg, enum store_status status)
{
	struct ask *a = arg;

	if (a->j && status == STORE_OK) {
		log_warn(a->j->log, "executor_dead", "executor=%s", a->text);
		polls_epoch_retired(a->j, str_from(a->text));
	} else if (a->j && status != STORE_STALE) {
		/* The store could not: count afresh, and ask again. */
		free(map_del(&a->j->duties.seen, str_from(a->text)));
	}
	ask_finish(a, status);
}

static void on_dropped(void *arg, enum store_status status)
{
	struct ask *a = arg;

	if (a->j && status == STORE_OK)
		judicator_forget(a->j, str_from(a->text));
	if (a->j && status != STORE_STALE) /* gone, or to be tried again */
		free(map_del(&a->j->duties.seen, str_from(a->text)));
	ask_finish(a, status);
}

static void duty_lose(struct judicator *j, const struct store_executor *e)
{
	struct ask *a = ask_new(j, NULL);

	a->text = mem_strdup(e->name);
	j->store->ops->lose(j->store, str_from(a->text), e->epoch, e->last_seq, on_lost, a);
}

static void duty_drop(struct judicator *j, const struct store_executor *e)
{
	struct ask *a = ask_new(j, NULL);

	a->text = mem_strdup(e->name);
	j->store->ops->drop(j->store, str_from(a->text), on_dropped, a);
}

/* --- blobs ------------------------------------------------------------------------------------------------------- */

static void on_collected(void *arg, enum store_status status, int64_t count)
{
	struct ask *a = arg;

	if (a->j && status == STORE_OK && count)
		log_info(a->j->log, "blobs_collected", "count=%lld", (long long)count);
	if (a->j && (status == STORE_E_BUSY || count == STORE_COLLECT_MAX))
		a->j->duties.collected_us = 0; /* again with the next tick */
	ask_finish(a, status);
}

static void duty_collect(struct judicator *j)
{
	int64_t period_us = j->blob_age_us / 4;

	if (period_us > COLLECT_MAX_US)
		period_us = COLLECT_MAX_US;
	if (j->duties.collected_us && loop_now_us(j->loop) - j->duties.collected_us < period_us)
		return;
	j->duties.collected_us = loop_now_us(j->loop);
	j->store->ops->blob_collect(j->store, j->blob_age_us, on_collected, ask_new(j, NULL));
}

/* --- watching ------------------------------------------------------------------------------------------------ */

static void duties_look(struct judicator *j, const struct store_executor *e)
{
	struct sighting *s = map_get(&j->duties.seen, str_from(e->name));
	int64_t silent;

	if (!s) {
		s = mem_alloc(sizeof(*s));
		s->epoch = -1;
		map_set(&j->duties.seen, str_from(e->name), s);
	}
	if (s->epoch != e->epoch || s->seq != e->last_seq || s->dead != e->dead) {
		*s = (struct sighting){e->epoch, e->last_seq, loop_now_us(j->loop), e->dead, false};
		return;
	}
	silent = loop_now_us(j->loop) - s->since_us;
	if (s->told || silent < (e->dead ? j->drop_us : j->expire_us))
		return;
	s->told = true;
	(e->dead ? duty_drop : duty_lose)(j, e);
}

static void on_executors(
	void *arg, enum store_status status, const struct store_executor *list, unsigned n)
{
	struct ask *a = arg;
	struct judicator *j = a->j;

	if (j) {
		j->duties.asking = false;
		/* An answer that took long, or none, means that reports could not be heard either. */
		if (status != STORE_OK ||
			loop_now_us(j->loop) - j->duties.asked_us > j->expire_us / 2)
			duties_forget(j);
		else
			for (unsigned i = 0; i < n && j->leading && !j->stopping; i++)
				duties_look(j, &list[i]);
	}
	ask_finish(a, status);
}

static void on_tick(void *arg)
{
	struct judicator *j = arg;

	timer_start(&j->duties.timer, duties_period(j));
	/* We were away ourselves (suspended, stopped): nobody could be heard meanwhile. */
	if (loop_now_us(j->loop) - j->duties.ticked_us > j->expire_us / 2)
		duties_forget(j);
	j->duties.ticked_us = loop_now_us(j->loop);
	if (j->stopping)
		return;
	duty_collect(j);
	if (j->duties.asking)
		return;
	j->duties.asking = true;
	j->duties.asked_us = loop_now_us(j->loop);
	j->store->ops->executors(j->store, false, on_executors, ask_new(j, NULL));
}

void duties_set(struct judicator *j, bool leading)
{
	j->leading = leading;
	j->duties.ticked_us = loop_now_us(j->loop);
	duties_forget(j);
	if (leading)
		timer_start(&j->duties.timer, 0);
	else
		timer_stop(&j->duties.timer);
}

void duties_init(struct judicator *j)
{
	map_init(&j->duties.seen);
	timer_init(&j->duties.timer, j->loop, on_tick, j);
}

void duties_fini(struct judicator *j)
{
	timer_stop(&j->duties.timer);
	duties_forget(j);
	map_fini(&j->duties.seen);
}
