/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Base64 as RFC 4648 section 4 writes it: padded, and strict in both directions: one byte string has one
 * encoding, so padding must be there and the bits behind the last byte must be zero. White space is skipped because
 * people paste the output of base64(1).
 */
#include "rpc/json.h"

static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(struct str bytes, struct buf *out)
{
	const unsigned char *p = (const unsigned char *)bytes.p;
	char *to = buf_reserve(out, (bytes.n + 2) / 3 * 4);
	size_t left = bytes.n;

	for (; left > 0; p += 3, to += 4, out->len += 4) {
		size_t n = left < 3 ? left : 3;
		uint32_t v = (uint32_t)p[0] << 16;

		if (n > 1)
			v |= (uint32_t)p[1] << 8;
		if (n > 2)
			v |= p[2];
		to[0] = ALPHABET[v >> 18];
		to[1] = ALPHABET[v >> 12 & 63];
		to[2] = n > 1 ? ALPHABET[v >> 6 & 63] : '=';
		to[3] = n > 2 ? ALPHABET[v & 63] : '=';
		left -= n;
	}
	buf_add(out, "", 0); /* puts the NUL behind */
}

static int digit_value(unsigned char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

struct decode {
	char *to;
	uint32_t bits;
	unsigned digits, padding; /* of the current group of four */
	bool ended;               /* a padded group was the last */
};

static bool decode_char(struct decode *d, unsigned char c)
{
	int value = digit_value(c);

	if (d->ended)
		return false;
	if (c == '=' && d->digits >= 2)
		d->padding++;
	else if (value < 0 || d->padding)
		return false;
	else
		d->digits++;
	d->bits = d->bits << 6 | (value < 0 ? 0 : (uint32_t)value);
	if (d->digits + d->padding < 4)
		return true;
	if (d->bits & ((1u << 8 * d->padding) - 1))
		return false; /* stray bits behind the last byte */
	for (unsigned i = 0; i < 3 - d->padding; i++)
		*d->to++ = (char)(d->bits >> (16 - 8 * i) & 0xff);
	d->ended = d->padding > 0;
	d->bits = d->digits = d->padding = 0;
	return true;
}

bool base64_decode(struct str text, struct buf *out)
{
	struct decode d = {.to = buf_reserve(out, text.n / 4 * 3 + 3)};
	char *start = d.to;

	for (size_t i = 0; i < text.n; i++) {
		unsigned char c = (unsigned char)text.p[i];

		if (c == ' ' || (c >= '\t' && c <= '\r'))
			continue;
		if (!decode_char(&d, c))
			return false;
	}
	if (d.digits)
		return false;
	out->len += (size_t)(d.to - start);
	buf_add(out, "", 0); /* puts the NUL behind */
	return true;
}
