/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hand - one allocation a call; the answer's record is taken over, so a test can look at it at leisure.
 */
#include "test/fake/hand.h"

#include <stdlib.h>

#include "reactor/base/mem.h"

static void on_answer(void *arg, struct rpc_answer *answer)
{
	struct sent *s = arg;

	s->op = NULL;
	s->answered = true;
	s->failure = answer->failure;
	s->problem = answer->problem;
	s->reply = answer->reply;
	s->record = take_ptr(&answer->record);
}

struct sent *hand_send(struct hand *hand, const char *address, enum rpc_method method,
	const void *request, int64_t wait_us)
{
	struct sent *s = mem_alloc(sizeof(*s));
	int r = rpc_call(hand->loop, hand->transport, address, method, request, wait_us, on_answer,
		s, &s->op);

	CHECK(r == 0);
	return s;
}

void sent_give_up(struct sent *sent)
{
	op_cancel(&sent->op);
}

void sent_free(struct sent *sent)
{
	op_cancel(&sent->op);
	record_free(sent->record);
	free(sent);
}
