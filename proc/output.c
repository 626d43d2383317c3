/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * One output a stream of a service. Bytes arrive as the pipe gives them; `part` holds the beginning of a line
 * whose newline has not come, never more than OUTPUT_LINE_MAX bytes, and is empty most of the time: complete
 * lines are logged straight from the caller's bytes.
 */
#include "proc/output.h"

#include <errno.h>
#include <unistd.h>

#include "reactor/base/check.h"

void output_init(
	struct output *o, const char *service, struct log *log, int pass_fd, enum log_level level)
{
	*o = (struct output){
		.service = service,
		.log = log,
		.pass_fd = pass_fd,
		.level = level,
	};
}

void output_fini(struct output *o)
{
	buf_fini(&o->part);
}

/* Value of " key=" in the head of a logfmt line; absent when it is not there. */
static struct str head_field(struct str line, const char *key)
{
	struct str word;
	size_t n = strlen(key);

	for (int i = 0; i < 3 && str_cut(&line, ' ', &word); i++)
		if (word.n > n && memcmp(word.p, key, n) == 0)
			return (struct str){word.p + n, word.n - n};
	return STR_NULL;
}

bool output_is_log_line(struct str line, enum log_level *level)
{
	return line.n > 3 && memcmp(line.p, "ts=", 3) == 0 && head_field(line, "role=").p &&
	       log_level_parse(head_field(line, "level="), level);
}

static void write_all(int fd, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t done = write(fd, p, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return; /* nobody reads our log any more: nowhere to say it */
		p += done;
		n -= (size_t)done;
	}
}

static void log_foreign(struct output *o, struct str line)
{
	char quoted[LOG_QUOTE_MAX];

	do {
		struct str piece = {line.p, line.n < OUTPUT_QUOTE_MAX ? line.n : OUTPUT_QUOTE_MAX};

		line.p += piece.n;
		line.n -= piece.n;
		log_at(o->log, o->level, "output", "service=%s line=%s", o->service,
			log_quote(piece, quoted));
	} while (line.n > 0);
}

static void log_one_line(struct output *o, struct str line)
{
	char whole[OUTPUT_LINE_MAX + 1];
	enum log_level level;

	if (line.n > 0 && line.p[line.n - 1] == '\r')
		line.n--;
	if (line.n == 0)
		return;
	if (o->pass_fd < 0 || !output_is_log_line(line, &level)) {
		log_foreign(o, line);
		return;
	}
	memcpy(whole, line.p, line.n);
	whole[line.n] = '\n';
	write_all(o->pass_fd, whole, line.n + 1);
}

static void flush_part(struct output *o)
{
	log_one_line(o, buf_str(&o->part));
	buf_clear(&o->part);
}

/* Keeps the beginning of a line, in pieces of at most OUTPUT_LINE_MAX. */
static void keep(struct output *o, struct str bytes)
{
	while (bytes.n > 0) {
		size_t room = OUTPUT_LINE_MAX - o->part.len;
		size_t n = bytes.n < room ? bytes.n : room;

		buf_add(&o->part, bytes.p, n);
		bytes.p += n;
		bytes.n -= n;
		if (o->part.len == OUTPUT_LINE_MAX)
			flush_part(o);
	}
}

void output_add(struct output *o, struct str bytes)
{
	while (bytes.n > 0) {
		const char *newline = memchr(bytes.p, '\n', bytes.n);
		struct str line = {bytes.p, newline ? (size_t)(newline - bytes.p) : bytes.n};

		if (!newline) {
			keep(o, line);
			return;
		}
		bytes.n -= line.n + 1;
		bytes.p = newline + 1;
		if (o->part.len == 0 && line.n <= OUTPUT_LINE_MAX) {
			log_one_line(o, line);
			continue;
		}
		keep(o, line);
		flush_part(o);
	}
}

void output_end(struct output *o)
{
	if (o->part.len > 0)
		flush_part(o);
}
