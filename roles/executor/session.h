/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session - the executor's side of the report protocol (rpc/README.md): it takes an epoch of the executor's name, then
 * keeps one or two numbered reports open at a judicator and applies each reply exactly once.
 *
 * The session knows epochs, numbers and connections; what is held lives with its owner, who describes it in fill()
 * and is told what to do by the on_...() calls, in this order a reply: accepted, cancel, assign, then on_reply.
 */
#pragma once

#include "reactor/base/str.h"
#include "rpc/rpc_client.h"

struct loop;
struct log;
struct session;

/* All from the loop. The session may be freed inside on_reply and on_fenced only. */
struct session_events {
	/* Describes what is held now: complete, executing (arrays from mem_array(), the session frees them; what they
	 * point to must live until fill's caller returns), vacant; wait_ms may be lowered. Everything else is set. */
	void (*fill)(void *arg, struct msg_report_request *request);
	void (*on_accepted)(void *arg, const struct msg_task_ref *claim);
	void (*on_cancel)(void *arg, const struct msg_task_ref *claim);
	void (*on_assign)(void *arg, const struct msg_assign_item *item); /* item is borrowed */
	/* A reply has been applied. `settled`: no report is open, the one answered told the store that every earlier reply is
	 * applied or closed, and nothing was changed since it was filled: the store knows what we hold, and we
	 * know all it gave us. */
	void (*on_reply)(void *arg, bool settled);
	/* Once: superseded or declared dead; everything is closed and no report will be sent. */
	void (*on_fenced)(void *arg);
};

struct session_options {
	const char *name;            /* of the executor; copied */
	const char *judicators;      /* "a:1,b:2"; copied */
	struct transport *transport; /* borrowed */
	struct log *log;             /* borrowed */
	int64_t wait_us;             /* long poll */
	int64_t slots;
	const char *isolation;       /* for people; copied */
	struct str toolchains;       /* JSON object, or absent; copied */
	struct codec_list languages; /* struct str: what is offered; copied */
};

enum session_change {
	SESSION_SOON, /* progress: within 100 ms, together with what else changes until then */
	SESSION_NOW,  /* a result, or room for more: at the end of this turn */
};

/* Registers on the next turn. */
struct session *session_new(struct loop *loop, const struct session_options *options,
	const struct session_events *events, void *arg) must_check;
/* What fill() would say has changed since it was last asked. */
void session_changed(struct session *session, enum session_change change);
int64_t session_epoch(const struct session *session); /* 0 = not registered yet */
/* Calls of judicators of this kind that came to this, since it was made. */
uint64_t session_calls(
	const struct session *session, enum rpc_method method, enum rpc_failure failure);
unsigned session_open(const struct session *session); /* reports open now */
/* Closes everything; no more calls. NULL is fine. */
void session_free(struct session *session);
