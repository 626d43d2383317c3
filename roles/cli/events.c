/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line is kept until it is whole, wherever the pieces end; a field takes the rest of its line behind a colon and one blank. Lines that begin
 * with a colon are comments, unknown fields are left out, and an event without data is none: so `retry` and the heartbeat pass.
 */
#include "roles/cli/events.h"

static void set_field(struct sse *sse, struct str line)
{
	struct {
		const char *name;
		struct buf *value;
	} fields[] = {
		{"data", &sse->data},
		{"event", &sse->event},
		{"id", &sse->id},
	};
	struct str name;

	str_cut(&line, ':', &name);
	if (line.n && line.p[0] == ' ') {
		line.p++;
		line.n--;
	}
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		if (!str_is(name, fields[i].name))
			continue;
		buf_clear(fields[i].value);
		buf_add_str(fields[i].value, line);
	}
}

static void end_line(struct sse *sse)
{
	if (sse->line.len) {
		set_field(sse, buf_str(&sse->line));
		buf_clear(&sse->line);
		return;
	}
	if (sse->data.len)
		sse->fn(sse->arg, buf_str(&sse->event), buf_str(&sse->id), buf_str(&sse->data));
	sse_reset(sse);
}

void sse_feed(struct sse *sse, struct str piece)
{
	while (piece.n) {
		const char *end = memchr(piece.p, '\n', piece.n);
		size_t n = end ? (size_t)(end - piece.p) : piece.n;

		buf_add_str(&sse->line, (struct str){piece.p, n});
		if (end)
			end_line(sse);
		n += end != NULL;
		piece.p += n;
		piece.n -= n;
	}
}

void sse_reset(struct sse *sse)
{
	buf_clear(&sse->line);
	buf_clear(&sse->event);
	buf_clear(&sse->id);
	buf_clear(&sse->data);
}

void sse_fini(struct sse *sse)
{
	buf_fini(&sse->line);
	buf_fini(&sse->event);
	buf_fini(&sse->id);
	buf_fini(&sse->data);
}
