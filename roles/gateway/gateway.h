/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gateway - one web worker: the HTTP API for people and programs over the judicators' RPC. Stateless but for the clients that wait.
 */
#pragma once

#include "reactor/base/map.h"
#include "rpc/http/server.h"
#include "rpc/rpc_client.h"

struct gateway;
struct http_tls;
struct shared;
struct tokens;

struct gateway_options {
	struct log *log;             /* borrowed */
	struct transport *transport; /* borrowed */
	const char *judicators;      /* "a:1,b:2" */
	const char *addresses;       /* to serve at, by comma */
	/* When several workers serve there: one socket an address, in their order, which listen already; taken over. NULL = the
	 * gateway opens its own. */
	const int *listen_fds;
	unsigned n_listen_fds;
	struct shared *shared; /* borrowed: what the workers have in common; NULL = there is one */
	unsigned slot;         /* ours in there */
	int64_t beat_us;       /* between two comments in a quiet stream of events; 0 = 15 s */
	const char *hosts;     /* further names the Host header may carry, by comma */
	const struct map
		*languages; /* borrowed: the profiles that exist (name -> struct language *) */
	int64_t body_max;   /* bytes */
	int64_t blob_max;   /* bytes of a blob that is uploaded */
	int64_t read_timeout_us;
	int64_t wait_us;      /* longest hold of one get towards a judicator */
	unsigned waiting_max; /* clients that wait at the same time; 0 = 20000 */
	int64_t done_cache;   /* bytes kept of answers about done tasks; 0 = none */
};

/* 0, or -errno (address in use, no judicator named: logged). Texts are copied. */
int gateway_new(
	struct loop *loop, const struct gateway_options *options, struct gateway **out) must_check;
unsigned gateway_port(const struct gateway *gateway);
/* At the start and at SIGHUP: who may do what from the next request on. Moves *tokens in. Without
 * (or with none) everybody may do everything. */
void gateway_set_tokens(struct gateway *gateway, struct tokens *tokens);
/* SIGHUP: from the next upload on. */
void gateway_set_blob_max(struct gateway *gateway, int64_t blob_max);
/* At the start and at SIGHUP: TLS from the next connection on; NULL: plain HTTP. Borrowed for the call. */
void gateway_set_tls(struct gateway *gateway, const struct http_tls *tls);
/* SIGHUP: from the next header or piece of a body on. Harmless when it has stopped. */
void gateway_set_limits(struct gateway *gateway, int64_t body_max, int64_t read_timeout_us);
/* Stops accepting, answers the waiters with what there is, then on_stopped once (after 5 s in any case);
 * the gateway may be freed inside. */
void gateway_stop(struct gateway *gateway, void (*on_stopped)(void *arg), void *arg);
void gateway_free(struct gateway *gateway); /* NULL is fine */
