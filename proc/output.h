/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output - what a service prints, cut into lines and logged.
 *
 * A line that is one of our own log lines (ts= level= role=) passes unchanged to pass_fd, whole and with one
 * write(2). Anything else becomes an `output` event with the service's name and the line in quotes; long
 * lines come in pieces, and nothing is lost.
 */
#pragma once

#include "reactor/base/buf.h"
#include "reactor/base/log.h"

#define OUTPUT_LINE_MAX 8192 /* bytes of a line kept together */
#define OUTPUT_QUOTE_MAX 512 /* bytes of a foreign line in one event */

struct output {
	const char *service;  /* borrowed */
	struct log *log;      /* borrowed */
	int pass_fd;          /* borrowed; -1 = our own lines are logged like any other */
	enum log_level level; /* of foreign lines */
	struct buf part;      /* the line so far */
};

void output_init(
	struct output *o, const char *service, struct log *log, int pass_fd, enum log_level level);
void output_fini(struct output *o); /* drops an unfinished line; idempotent */
void output_add(struct output *o, struct str bytes);
void output_end(struct output *o); /* EOF: logs what has no newline */
/* Is this one of our own log lines? Its level goes to *level. */
bool output_is_log_line(struct str line, enum log_level *level);
