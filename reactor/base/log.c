/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line is built whole in memory and goes out in one write(2), so lines of processes that share a pipe
 * do not mix (up to PIPE_BUF). A reader of the log finds one event a line whatever a caller passed in:
 * control bytes that slipped past log_quote() are turned into '?'.
 *
 * The loop must not wait for its log. When the descriptor would block (a non-blocking pipe whose reader
 * is stuck) the line is lost, counted, and the next line that gets through ends with lost=N. A line longer
 * than PIPE_BUF may be lost in the middle: the next one then starts with a newline of its own.
 *
 * A sink gets the line without its time: with a fake clock, two runs of one seed log the same bytes.
 */
#include "reactor/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "reactor/base/buf.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"

#define LOG_QUOTE_CUT 512

struct log {
	int fd;
	log_sink_fn *sink;
	void *sink_arg;
	char *role;
	enum log_level level;
	uint64_t lost;
	bool is_torn; /* the last byte written is not a newline */
};

static const char *const level_names[LOG_LEVEL_N] = {
	[LOG_ERROR] = "error",
	[LOG_WARN] = "warn",
	[LOG_INFO] = "info",
	[LOG_DEBUG] = "debug",
};

struct log *log_new(int fd, const char *role, enum log_level level)
{
	struct log *log = mem_alloc(sizeof(*log));

	log->fd = fd;
	log->role = mem_strdup(role ? role : "-");
	log->level = level;
	return log;
}

struct log *log_new_sink(log_sink_fn *sink, void *arg, const char *role, enum log_level level)
{
	struct log *log = log_new(-1, role, level);

	CHECK(sink);
	log->sink = sink;
	log->sink_arg = arg;
	return log;
}

struct log *log_derive(const struct log *log, const char *role)
{
	struct log *derived;

	if (!log)
		return NULL;
	derived = log_new(log->fd, role, log->level);
	derived->sink = log->sink;
	derived->sink_arg = log->sink_arg;
	return derived;
}

void log_free(struct log *log)
{
	if (!log)
		return;
	free(log->role);
	free(log);
}

void log_set_level(struct log *log, enum log_level level)
{
	if (log)
		log->level = level;
}

bool log_is_on(const struct log *log, enum log_level level)
{
	return log && level <= log->level;
}

static bool log_write(struct log *log, struct str line)
{
	while (line.n) {
		ssize_t n = write(log->fd, line.p, line.n);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		line.p += n;
		line.n -= (size_t)n;
		log->is_torn = line.n > 0;
	}
	return true;
}

static void log_emit(struct log *log, enum log_level level, struct buf *line)
{
	for (size_t i = 0; i < line->len; i++)
		if ((unsigned char)line->data[i] < ' ' || line->data[i] == 0x7f)
			line->data[i] = '?';
	if (log->sink) {
		log->sink(log->sink_arg, level, line->data);
		return;
	}
	if (log->lost)
		buf_addf(line, " lost=%llu", (unsigned long long)log->lost);
	buf_add_char(line, '\n');
	if ((!log->is_torn || log_write(log, STR("\n"))) && log_write(log, buf_str(line)))
		log->lost = 0;
	else
		log->lost++;
}

void log_line(struct log *log, enum log_level level, const char *event, const char *fmt, ...)
{
	struct buf line cleanup(buf_fini) = BUF_INIT;
	char ts[CLOCK_TEXT_MAX];
	int saved = errno;
	va_list ap;

	if (!log_is_on(log, level))
		return;
	if (!log->sink)
		buf_addf(&line, "ts=%s ", clock_text(clock_wall_us(), ts));
	buf_addf(&line, "level=%s role=%s event=%s", level_names[level], log->role, event);
	if (fmt[0]) {
		buf_add_char(&line, ' ');
		va_start(ap, fmt);
		buf_vaddf(&line, fmt, ap);
		va_end(ap);
	}
	log_emit(log, level, &line);
	errno = saved;
}

bool log_level_parse(struct str name, enum log_level *out)
{
	for (size_t i = 0; i < LOG_LEVEL_N; i++) {
		if (str_is(name, level_names[i])) {
			*out = (enum log_level)i;
			return true;
		}
	}
	return false;
}

const char *log_level_name(enum log_level level)
{
	return level_names[level];
}

const char *log_quote(struct str s, char out[LOG_QUOTE_MAX])
{
	static const char digits[] = "0123456789abcdef";
	size_t n = s.n < LOG_QUOTE_CUT ? s.n : LOG_QUOTE_CUT;
	char *at = out;

	*at++ = '"';
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if (c == '"' || c == '\\' || c == '\n') {
			*at++ = '\\';
			*at++ = c == '\n' ? 'n' : (char)c;
		} else if (c >= ' ' && c < 0x7f) {
			*at++ = (char)c;
		} else {
			*at++ = '\\';
			*at++ = 'x';
			*at++ = digits[c >> 4];
			*at++ = digits[c & 15];
		}
	}
	if (n < s.n)
		at = mempcpy(at, "...", 3);
	*at++ = '"';
	*at = '\0';
	return out;
}
