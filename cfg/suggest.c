/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimal string alignment over three rows of the usual matrix. Names are short (SUGGEST_MAX), so the
 * rows live on the stack and a byte a cell is enough. Letters are compared without case: options are
 * lower case, their environment variables upper case.
 */
#include "cfg/suggest.h"

#include <ctype.h>

static unsigned char fold(char c)
{
	return (unsigned char)tolower((unsigned char)c);
}

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

unsigned suggest_distance(struct str a, struct str b)
{
	unsigned char rows[3][SUGGEST_MAX + 1];
	unsigned char *before = rows[0], *above = rows[1], *row = rows[2];

	if (a.n > SUGGEST_MAX || b.n > SUGGEST_MAX)
		return SUGGEST_MAX + 1;
	for (size_t j = 0; j <= b.n; j++)
		above[j] = (unsigned char)j;
	for (size_t i = 1; i <= a.n; i++) {
		row[0] = (unsigned char)i;
		for (size_t j = 1; j <= b.n; j++) {
			unsigned char x = fold(a.p[i - 1]), y = fold(b.p[j - 1]);
			unsigned d = least(above[j] + 1u, row[j - 1] + 1u);

			d = least(d, above[j - 1] + (x != y));
			if (i > 1 && j > 1 && x == fold(b.p[j - 2]) && y == fold(a.p[i - 2]))
				d = least(d, before[j - 2] + 1u);
			row[j] = (unsigned char)d;
		}
		unsigned char *oldest = before;

		before = above;
		above = row;
		row = oldest;
	}
	return above[b.n];
}

void suggest_init(struct suggest *s, struct str given)
{
	*s = (struct suggest){.given = given, .best = NULL, .distance = SUGGEST_MAX + 1};
}

void suggest_offer(struct suggest *s, struct str candidate, const void *tag)
{
	unsigned d = suggest_distance(s->given, candidate);

	if (d >= s->distance)
		return;
	s->distance = d;
	s->best = tag;
}

const void *suggest_best(const struct suggest *s)
{
	size_t allowed = s->given.n / 3 < 1 ? 1 : s->given.n / 3;

	return s->distance <= least((unsigned)allowed, 4) ? s->best : NULL;
}
