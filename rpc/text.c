/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One decoder of a UTF-8 character; everything else walks with it. Runs of ASCII, which most texts are, are
 * skipped eight bytes at a time.
 */
#include "rpc/text.h"

#include <stdio.h>

/* Length of the valid character at p (1..4) and its code point, or 0. n > 0. */
static size_t utf8_decode(const unsigned char *p, size_t n, uint32_t *code)
{
	static const uint32_t least[] = {
		0, 0, 0x80, 0x800, 0x10000}; /* shorter forms are overlong */
	size_t len;

	if (p[0] < 0x80) {
		*code = p[0];
		return 1;
	}
	if (p[0] >= 0xc2 && p[0] <= 0xdf)
		len = 2;
	else if (p[0] >= 0xe0 && p[0] <= 0xef)
		len = 3;
	else if (p[0] >= 0xf0 && p[0] <= 0xf4)
		len = 4;
	else
		return 0;
	if (len > n)
		return 0;
	*code = p[0] & (0x7fu >> len);
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		*code = *code << 6 | (p[i] & 0x3fu);
	}
	if (*code < least[len] || *code > 0x10ffff || (*code >= 0xd800 && *code <= 0xdfff))
		return 0;
	return len;
}

size_t text_valid_prefix(struct str s)
{
	size_t i = 0;

	while (i < s.n) {
		uint64_t word;
		uint32_t code;
		size_t len;

		if (s.n - i >= sizeof(word)) {
			memcpy(&word, s.p + i, sizeof(word));
			if ((word & UINT64_C(0x8080808080808080)) == 0) {
				i += sizeof(word);
				continue;
			}
		}
		len = utf8_decode((const unsigned char *)s.p + i, s.n - i, &code);
		if (len == 0)
			return i;
		i += len;
	}
	return i;
}

struct str text_cut(struct str s, size_t max)
{
	if (s.n <= max)
		return s;
	s.n = max;
	while (s.n && ((unsigned char)s.p[s.n] & 0xc0) == 0x80)
		s.n--;
	return s;
}

static bool code_is_control(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029;
}

bool text_is_printable(struct str s)
{
	for (size_t i = 0; i < s.n;) {
		uint32_t code;
		size_t len = utf8_decode((const unsigned char *)s.p + i, s.n - i, &code);

		if (len == 0 || code_is_control(code))
			return false;
		i += len;
	}
	return true;
}

/* One character as its escape; returns its length. */
static size_t escape_char(unsigned char c, char out[8])
{
	static const char named[] = "\"\"\\\\\nn\tt\rr";

	for (size_t i = 0; i < sizeof(named) - 1; i += 2) {
		if ((unsigned char)named[i] == c) {
			out[0] = '\\';
			out[1] = named[i + 1];
			return 2;
		}
	}
	return (size_t)snprintf(out, 8, "\\x%02x", c);
}

size_t text_escape(struct str s, char *out, size_t size)
{
	size_t i = 0, used = 0;

	while (i < s.n) {
		const unsigned char *p = (const unsigned char *)s.p + i;
		char escape[8];
		const char *piece = (const char *)p;
		uint32_t code = 0;
		size_t len = utf8_decode(p, s.n - i, &code), step = len ? len : 1, n = step;

		if (len == 0 || *p == '"' || *p == '\\' || code_is_control(code)) {
			step = 1;
			n = escape_char(*p, escape);
			piece = escape;
		}
		if (used + n >= size)
			break;
		memcpy(out + used, piece, n);
		used += n;
		i += step;
	}
	out[used] = '\0';
	return i;
}
