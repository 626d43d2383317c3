/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A result is written by its rows in fields.def; there is nothing to add.
 *
 * A capture keeps both ends of a stream. Bytes fill the head first; what comes after goes into a ring of the same
 * size, where tail_start is the oldest byte once the ring is full (so the end of the ring and its start are joined
 * when written). The ring's memory is taken only when the head is full, so a short output costs its own size.
 *
 * Between the ends stands a line that says how much is left out. Text stays text: a character that a cut has
 * split is left out whole, since one stray byte would turn all of it into base64 on the wire.
 */
#include "rpc/task/result.h"

#include <inttypes.h>

void capture_init(struct capture *c)
{
	*c = (struct capture){BUF_INIT, BUF_INIT, 0, 0};
}

/* The last bytes of what came: older ones are overwritten. */
static void ring_add(struct capture *c, struct str bytes)
{
	size_t room = OUTPUT_HEAD - c->tail.len, n;

	if (bytes.n > OUTPUT_HEAD) {
		bytes.p += bytes.n - OUTPUT_HEAD;
		bytes.n = OUTPUT_HEAD;
	}
	n = bytes.n < room ? bytes.n : room;
	buf_add(&c->tail, bytes.p, n);
	bytes.p += n;
	bytes.n -= n;
	while (bytes.n) {
		n = OUTPUT_HEAD - c->tail_start;
		if (n > bytes.n)
			n = bytes.n;
		memcpy(c->tail.data + c->tail_start, bytes.p, n);
		c->tail_start = (c->tail_start + n) % OUTPUT_HEAD;
		bytes.p += n;
		bytes.n -= n;
	}
}

void capture_add(struct capture *c, struct str bytes)
{
	size_t room = OUTPUT_HEAD - c->head.len;
	size_t n = bytes.n < room ? bytes.n : room;

	if (bytes.n == 0)
		return;
	c->total += (int64_t)bytes.n;
	buf_add(&c->head, bytes.p, n);
	if (n < bytes.n)
		ring_add(c, (struct str){bytes.p + n, bytes.n - n});
}

bool capture_is_truncated(const struct capture *c)
{
	return c->total > 2 * OUTPUT_HEAD;
}

static bool is_continuation(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

/* Length of s without a character at its end that goes on behind it. */
static size_t whole_end(struct str s)
{
	for (size_t back = 1; back <= 3 && back <= s.n; back++) {
		unsigned char c = (unsigned char)s.p[s.n - back];
		size_t length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;

		if (!is_continuation((char)c))
			return length > back ? s.n - back : s.n;
	}
	return s.n;
}

void capture_write(const struct capture *c, struct buf *out)
{
	struct str head = buf_str(&c->head);
	struct buf tail cleanup(buf_fini) = BUF_INIT;
	size_t skip = 0;

	if (c->tail.len) {
		buf_add(&tail, c->tail.data + c->tail_start, c->tail.len - c->tail_start);
		buf_add(&tail, c->tail.data, c->tail_start);
	}
	if (capture_is_truncated(c)) {
		head.n = whole_end(head);
		while (skip < 3 && is_continuation(tail.data[skip]))
			skip++;
	}
	buf_add_str(out, head);
	if (capture_is_truncated(c))
		buf_addf(out, "\n... %" PRId64 " bytes left out ...\n",
			c->total - (int64_t)(head.n + tail.len - skip));
	if (tail.len)
		buf_add(out, tail.data + skip, tail.len - skip);
}

void capture_fini(struct capture *c)
{
	buf_fini(&c->head);
	buf_fini(&c->tail);
	capture_init(c);
}

void result_write(const struct result *result, struct buf *out)
{
	codec_encode_text(&result_record, result, out);
}
