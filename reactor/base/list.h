/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list - an intrusive doubly linked ring. A link is either unlinked (points at itself) or on exactly
 * one list. Embed `struct list` in what you link; a head is a `struct list` too.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "reactor/base/check.h"

struct list {
	struct list *prev, *next;
};

static inline void list_init(struct list *l)
{
	l->prev = l->next = l;
}

static inline bool list_is_empty(const struct list *head)
{
	return head->next == head;
}

static inline bool list_is_linked(const struct list *link)
{
	return link->next != link;
}

static inline void list_add_before(struct list *at, struct list *link)
{
	link->prev = at->prev;
	link->next = at;
	at->prev->next = link;
	at->prev = link;
}

static inline void list_add_tail(struct list *head, struct list *link)
{
	list_add_before(head, link);
}

static inline void list_add_head(struct list *head, struct list *link)
{
	list_add_before(head->next, link);
}

/* Unlinks; harmless on an unlinked link. */
static inline void list_del(struct list *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	list_init(link);
}

/* First link, or NULL when empty. */
static inline struct list *list_first(struct list *head)
{
	return list_is_empty(head) ? NULL : head->next;
}

/* Moves all of `from` behind the tail of `to`; `from` is empty after it. */
static inline void list_splice_tail(struct list *to, struct list *from)
{
	if (list_is_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#define list_entry(link, type, member) container_of(link, type, member)
#define list_each(it, head) for (struct list *it = (head)->next; it != (head); it = it->next)
/* The current link may be unlinked or freed in the body. */
#define list_each_safe(it, head)                                                                   \
	for (struct list *it = (head)->next, *it##_next = it->next; it != (head);                  \
		it = it##_next, it##_next = it->next)
