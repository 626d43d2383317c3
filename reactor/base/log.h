/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log - one logfmt line an event, written whole with one write(2):
 *
 *   ts=2026-11-27T21:00:00.000Z level=info role=judicator event=task id=6748... from=pending to=success
 *
 * A log is an object, not a global: loops and roles are given one. Arguments of a level that is off are
 * not evaluated. Never put a secret into a line. Values with spaces or quotes go through log_quote().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reactor/base/str.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_LEVEL_N };

struct log;

/* fd is borrowed (2 for stderr); role is copied. A line that would block is lost; the next says lost=N. */
struct log *log_new(int fd, const char *role, enum log_level level);
/* Lines go to sink instead of a descriptor (tests; sink gets the line without newline and without ts=,
 * so that two runs on a fake clock can be compared byte by byte). */
typedef void log_sink_fn(void *arg, enum log_level level, const char *line);
struct log *log_new_sink(log_sink_fn *sink, void *arg, const char *role, enum log_level level);
void log_free(struct log *log); /* NULL is fine */
void log_set_level(struct log *log, enum log_level level);
/* Same destination, another role name; independent lifetime (free both). NULL gives NULL. */
struct log *log_derive(const struct log *log, const char *role);
bool log_is_on(const struct log *log, enum log_level level); /* false for NULL */
void log_line(struct log *log, enum log_level level, const char *event, const char *fmt, ...)
	printf_like(4, 5);
/* "error" ... "debug" -> level; false when unknown. */
bool log_level_parse(struct str name, enum log_level *out);
const char *log_level_name(enum log_level level);
/* s in quotes with \" \\ \n \xNN escapes (all but printable ASCII), cut at 512 bytes (then it ends in
 * ...); returns out (size LOG_QUOTE_MAX). */
#define LOG_QUOTE_MAX 2100
const char *log_quote(struct str s, char out[LOG_QUOTE_MAX]);

/* log_info(log, "event", "k=%s", v): NULL log is silence. */
#define log_at(log, level, event, ...)                                                             \
	do {                                                                                       \
		if (log_is_on((log), (level)))                                                     \
			log_line((log), (level), (event), __VA_ARGS__);                            \
	} while (0)
#define log_error(log, event, ...) log_at(log, LOG_ERROR, event, __VA_ARGS__)
#define log_warn(log, event, ...) log_at(log, LOG_WARN, event, __VA_ARGS__)
#define log_info(log, event, ...) log_at(log, LOG_INFO, event, __VA_ARGS__)
#define log_debug(log, event, ...) log_at(log, LOG_DEBUG, event, __VA_ARGS__)
