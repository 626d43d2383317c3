/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judicator - the judicator's main: the RPCs over one store, held reports and gets, the leader's duties. Nothing here is
 * global: cluster tests run several on one loop over one memory store.
 */
#pragma once

#include "roles/judicator/store/store.h"
#include "rpc/rpc_server.h"

struct judicator;

struct judicator_options {
	const char *name;
	const char *address;         /* to serve at */
	struct log *log;             /* borrowed */
	struct transport *transport; /* borrowed */
	struct store *
		store; /* borrowed; its on_changed must be judicator_on_changed with the judicator as arg */
	bool leading;                /* does the leader's duties (by configuration) */
	int64_t expire_us;           /* an executor silent for this long is declared dead */
	const char *metrics_address; /* GET /metrics; NULL or "" = not served */
	int64_t drop_us;             /* a dead executor is hidden this long after; 0 = 10 min */
	int64_t blob_age_us;         /* an unused blob is removed after this; 0 = a day */
};

/* 0, or -errno (address in use: logged). */
int judicator_new(struct loop *loop, const struct judicator_options *options,
	struct judicator **out) must_check;
/* Told by the store (store_options.on_changed). arg = struct judicator *, may be called before judicator_new() has returned with NULL. */
void judicator_on_changed(void *arg, const struct id *ids, unsigned n_ids,
	const struct str *languages, unsigned n_languages);
/* Answers the waiters (empty) and stops accepting; on_stopped once when the last answer is out. */
void judicator_stop(struct judicator *judicator, void (*on_stopped)(void *arg), void *arg);
/* A death: everything dropped at once. NULL is fine. The store is not closed. */
void judicator_free(struct judicator *judicator);
unsigned judicator_metrics_port(const struct judicator *judicator); /* where they are served */
unsigned judicator_port(const struct judicator *judicator);
void judicator_set_leading(struct judicator *judicator, bool leading);
