/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hand - an RPC peer played by hand: tests send exactly the messages they mean, in the order they mean, over any transport, and look
 * at each answer.
 */
#pragma once

#include "rpc/rpc_client.h"

struct loop;

struct sent { /* one call; free with sent_free() */
	struct op *op;
	bool answered;
	enum rpc_failure failure;
	struct problem problem;
	struct record *record; /* owns reply */
	const void *reply;     /* struct msg_..._reply, or NULL */
};

struct hand {
	struct loop *loop;
	struct transport *transport; /* borrowed */
};

/* Starts a call; wait_us as rpc_call(). */
struct sent *hand_send(struct hand *hand, const char *address, enum rpc_method method,
	const void *request, int64_t wait_us);
/* Closes the connection: as if the caller gave up. */
void sent_give_up(struct sent *sent);
void sent_free(struct sent *sent);
