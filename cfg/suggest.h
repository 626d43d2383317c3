/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suggest - "did you mean": the candidate nearest to what was given, by edit distance (insert, delete,
 * replace, swap of neighbours). Offer every candidate, then ask for the best.
 */
#pragma once

#include "reactor/base/str.h"

#define SUGGEST_MAX 64 /* longer names are never near anything */

struct suggest {
	struct str given;  /* borrowed */
	const void *best;  /* tag of the nearest so far, or NULL */
	unsigned distance; /* of best */
};

void suggest_init(struct suggest *s, struct str given);
/* tag (not NULL, borrowed) is what suggest_best() returns if this candidate wins; first wins a tie. */
void suggest_offer(struct suggest *s, struct str candidate, const void *tag);
/* The tag of the nearest candidate, or NULL when none is near enough to be meant. */
const void *suggest_best(const struct suggest *s);
unsigned suggest_distance(struct str a, struct str b); /* SUGGEST_MAX + 1 when one is too long */
