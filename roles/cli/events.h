/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events - server-sent events as they come in pieces: lines of fields, an event at each empty line (the part of the format that
 * a gateway writes: \n, one line of data).
 */
#pragma once

#include "reactor/base/buf.h"

/* Borrowed for the call. Absent fields are empty. */
typedef void sse_fn(void *arg, struct str event, struct str id, struct str data);

struct sse {
	sse_fn *fn;
	void *arg;
	struct buf line; /* that has not ended */
	struct buf event, id, data;
};

void sse_feed(struct sse *sse, struct str piece);
/* What began is not continued: a new stream comes. */
void sse_reset(struct sse *sse);
void sse_fini(struct sse *sse);
