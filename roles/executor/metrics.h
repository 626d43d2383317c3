/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics - what an executor tells Prometheus.
 */
#pragma once

#include "reactor/base/buf.h"

struct box_host;
struct executor;
struct loop;

/* Appends the page; executor NULL: languages are still being probed. */
void executor_metrics(const struct executor *executor, const struct box_host *box,
	const struct loop *loop, struct buf *out);
