/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions about runs of bytes. Nothing here allocates but str_dup(), and nothing reads behind `n`: a
 * str often points into a request, a pipe's buffer or a database row. An absent str (p == NULL) is legal
 * everywhere; memcmp() and friends never see its pointer.
 */
#include "reactor/base/str.h"

#include "reactor/base/mem.h"

struct str str_from(const char *s)
{
	return s ? (struct str){s, strlen(s)} : STR_NULL;
}

bool str_eq(struct str a, struct str b)
{
	if (!a.p || !b.p)
		return a.p == b.p;
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool str_is(struct str a, const char *s)
{
	return str_eq(a, str_from(s));
}

int str_cmp(struct str a, struct str b)
{
	size_t n = a.n < b.n ? a.n : b.n;
	int order = n ? memcmp(a.p, b.p, n) : 0;

	if (order != 0)
		return order < 0 ? -1 : 1;
	return (a.n > b.n) - (a.n < b.n);
}

char *str_dup(struct str s)
{
	return s.p ? mem_dup(s.p, s.n) : NULL;
}

static bool char_is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

struct str str_trim(struct str s)
{
	while (s.n && char_is_blank(s.p[0])) {
		s.p++;
		s.n--;
	}
	while (s.n && char_is_blank(s.p[s.n - 1]))
		s.n--;
	return s;
}

bool str_cut(struct str *rest, char sep, struct str *head)
{
	const char *at;

	if (!rest->p) {
		*head = STR_NULL;
		return false;
	}
	at = rest->n ? memchr(rest->p, sep, rest->n) : NULL;
	if (!at) {
		*head = *rest;
		*rest = STR_NULL;
		return true;
	}
	*head = (struct str){rest->p, (size_t)(at - rest->p)};
	*rest = (struct str){at + 1, rest->n - head->n - 1};
	return true;
}

bool str_to_i64(struct str s, int64_t *out)
{
	size_t i = s.n && s.p[0] == '-' ? 1 : 0;
	bool negative = i == 1;
	int64_t value = 0;

	if (i == s.n)
		return false;
	/* Built up on the negative side, which has room for INT64_MIN. */
	for (; i < s.n; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
		if (__builtin_mul_overflow(value, 10, &value) ||
			__builtin_sub_overflow(value, s.p[i] - '0', &value))
			return false;
	}
	if (!negative && __builtin_sub_overflow(0, value, &value))
		return false;
	*out = value;
	return true;
}

/* Rows of table 3-7 of the Unicode standard: lead byte, then the range of the second byte; the bytes
 * behind it are always 80..BF. */
static const struct utf8_row {
	uint8_t lead_min, lead_max, second_min, second_max, length;
} utf8_rows[] = {
	{0xc2, 0xdf, 0x80, 0xbf, 2},
	{0xe0, 0xe0, 0xa0, 0xbf, 3},
	{0xe1, 0xec, 0x80, 0xbf, 3},
	{0xed, 0xed, 0x80, 0x9f, 3},
	{0xee, 0xef, 0x80, 0xbf, 3},
	{0xf0, 0xf0, 0x90, 0xbf, 4},
	{0xf1, 0xf3, 0x80, 0xbf, 4},
	{0xf4, 0xf4, 0x80, 0x8f, 4},
};

/* Bytes of the sequence at p (not ASCII), 0 when there is no valid one within n. */
static size_t utf8_sequence(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(utf8_rows); i++) {
		const struct utf8_row *row = &utf8_rows[i];

		if (p[0] < row->lead_min || p[0] > row->lead_max)
			continue;
		if (n < row->length || p[1] < row->second_min || p[1] > row->second_max)
			return 0;
		for (size_t k = 2; k < row->length; k++)
			if ((p[k] & 0xc0) != 0x80)
				return 0;
		return row->length;
	}
	return 0;
}

bool str_is_utf8(struct str s)
{
	const uint8_t *p = (const uint8_t *)s.p;
	size_t i = 0;

	while (i < s.n) {
		uint64_t eight;
		size_t step;

		if (s.n - i >= sizeof(eight)) {
			memcpy(&eight, p + i, sizeof(eight));
			if ((eight & UINT64_C(0x8080808080808080)) == 0) {
				i += sizeof(eight);
				continue;
			}
		}
		step = p[i] < 0x80 ? 1 : utf8_sequence(p + i, s.n - i);
		if (step == 0)
			return false;
		i += step;
	}
	return true;
}
