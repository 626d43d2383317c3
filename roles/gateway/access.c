/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access - who may do what: the token of a request against the roles of its route, its rate, and its user's open tasks.
 *
 *     a request with a body:  on_headers --access_check--> charged, refused before the body is read
 *     any other:              dispatch   --access_check--> charged
 *     both:                   g->now.grant = what the token grants, which the visit made next copies
 *
 * Without tokens everybody is granted everything. A visit keeps a copy of its grant, since SIGHUP replaces the table; what
 * it keeps a pointer to, the user, stays until the end.
 *
 * Open tasks. Asking the store at each POST how many tasks of a user are not done would cost more than the POST. So a user has an upper
 * bound: what was counted last, plus all that was added since, by any worker (shared.c). Only when that would be over the token's
 * `open` is the truth asked for, by one search of the user's LOOK_MAX latest tasks; then the bound is what was counted, plus
 * what was being added when the question was sent, plus what was added since. So bound = base + added, and only `base` is ever set.
 *
 * Workers do this at the same time and without locks: a place is taken first and given back when it was one too many; what is being
 * added is counted before what was added, and read after it. The bound may be too high for a moment, never too low.
 */
#include "roles/gateway/gateway_int.h"

#include <stdio.h>
#include <strings.h>

#include "reactor/base/mem.h"
#include "rpc/task/status.h"

#define LOOK_MAX 1000

struct access_user {
	struct shared_user *shared;
	char name[];
};

/* --- tokens ------------------------------------------------------------------------------------------------------ */

static bool bearer_of(struct str header, struct str *secret)
{
	static const char scheme[] = "Bearer ";

	if (header.n < sizeof(scheme) || strncasecmp(header.p, scheme, sizeof(scheme) - 1) != 0)
		return false;
	*secret = str_trim(
		(struct str){header.p + sizeof(scheme) - 1, header.n - (sizeof(scheme) - 1)});
	return secret->n > 0;
}

static struct access_user *user_get(struct gateway *g, const char *name)
{
	struct access *a = &g->access;
	struct access_user *user = map_get(&a->users, str_from(name));
	size_t size = strlen(name) + 1;

	if (user)
		return user;
	user = mem_alloc(sizeof(*user) + size);
	memcpy(user->name, name, size);
	user->shared = shared_user(g->shared, name);
	map_set(&a->users, str_from(name), user);
	return user;
}

static void set_grant(struct gateway *g, const struct token *token, struct grant *grant)
{
	*grant = (struct grant){.roles = token->roles, .open_max = token->open_max};
	if (token->roles & TOKEN_ADMIN)
		grant->roles = TOKEN_ADMIN | TOKEN_READ | TOKEN_SUBMIT;
	grant->user = user_get(g, token->user);
}

static bool rate_refuses(struct gateway *g, const struct token *token, struct http_request *http,
	struct problem *problem)
{
	int64_t now_us = loop_now_us(g->loop);
	int64_t wait_us =
		token_charge(token, shared_bucket(g->shared, token->digest, now_us), now_us);
	char seconds[24];

	if (!wait_us)
		return false;
	snprintf(
		seconds, sizeof(seconds), "%lld", (long long)((wait_us + US_PER_S - 1) / US_PER_S));
	http_request_add_header(http, "Retry-After", seconds);
	problem_set(problem, 429, "rate_exceeded", "",
		"This token makes more requests than its rate allows. Try again in %s s.", seconds);
	metrics_add(&g->metrics->limited[METRICS_RATE], 1);
	return true;
}

bool access_check(struct gateway *g, struct http_request *http, unsigned allow, bool charge,
	struct grant *grant, struct problem *problem)
{
	struct access *a = &g->access;
	const struct token *token;
	struct str secret;

	*grant = (struct grant){.roles = TOKEN_ADMIN | TOKEN_READ | TOKEN_SUBMIT};
	if (!a->tokens.n || allow & ALLOW_EVERYBODY)
		return true;
	*grant = (struct grant){0};
	token = bearer_of(http_request_header(http, "Authorization"), &secret)
			? tokens_find(&a->tokens, secret)
			: NULL;
	if (!token) {
		problem_set(problem, 401, "token_unknown", "",
			"This needs the header `Authorization: Bearer TOKEN` with a token that is "
			"known here.");
		return false;
	}
	set_grant(g, token, grant);
	if (!(grant->roles & (allow | TOKEN_ADMIN))) {
		problem_set(problem, 403, "role_missing", "",
			"The token's roles do not include what this needs.");
		return false;
	}
	return !charge || !rate_refuses(g, token, http, problem);
}

void access_set_tokens(struct gateway *g, struct tokens *tokens)
{
	tokens_fini(&g->access.tokens);
	g->access.tokens = *tokens;
	*tokens = (struct tokens){0};
}

/* --- whose tasks -------------------------------------------------------------------------------------------------- */

const char *access_user_name(const struct grant *grant)
{
	return grant->user ? grant->user->name : NULL;
}

bool access_may_read(const struct visit *v, struct str user)
{
	return v->grant.roles & TOKEN_READ || str_is(user, v->grant.user->name);
}

bool access_may_change(const struct visit *v, struct str user)
{
	return v->grant.roles & TOKEN_ADMIN || str_is(user, v->grant.user->name);
}

/* --- open tasks ------------------------------------------------------------------------------------------------------ */

static uint32_t *adding_here(struct visit *v)
{
	return &v->grant.user->shared->adding[v->g->slot];
}

/* False: the user has no place left, as far as is known. */
static bool let_through(struct visit *v)
{
	struct shared_user *user = v->grant.user->shared;
	int64_t added;

	__atomic_fetch_add(adding_here(v), 1, __ATOMIC_SEQ_CST);
	added = __atomic_add_fetch(&user->added, 1, __ATOMIC_SEQ_CST);
	v->adding = true;
	if (__atomic_load_n(&user->base, __ATOMIC_SEQ_CST) + added <= v->grant.open_max) {
		v->let_through(v);
		return true;
	}
	__atomic_fetch_sub(&user->added, 1, __ATOMIC_SEQ_CST);
	access_added(v);
	return false;
}

static int64_t count_open(const struct msg_search_reply *reply)
{
	int64_t n = 0;

	for (size_t i = 0; i < reply->tasks.count; i++) {
		enum task_status status;

		if (task_status_parse(
			    codec_item(reply->tasks, struct msg_task_view, i)->status, &status) &&
			!task_status_is_done(status))
			n++;
	}
	return n;
}

static void on_counted(void *arg, struct rpc_answer *answer)
{
	struct visit *v = arg;
	struct shared_user *user = v->grant.user->shared;

	if (answer->failure != RPC_OK) {
		visit_problem(v, &answer->problem);
		return;
	}
	__atomic_store_n(&user->base, count_open(answer->reply) + v->adding_then - v->added_then,
		__ATOMIC_SEQ_CST);
	if (let_through(v))
		return;
	metrics_add(&v->g->metrics->limited[METRICS_OPEN], 1);
	visit_fail(v, 429, "too_many_open",
		"The user of this token has as many tasks open as it may: %lld. Try again when one "
		"is done.",
		(long long)v->grant.open_max);
}

void access_admit(struct visit *v, void (*fn)(struct visit *v))
{
	struct access_user *user = v->grant.user;

	v->let_through = fn;
	if (!v->grant.open_max) {
		fn(v);
		return;
	}
	if (let_through(v))
		return;
	v->added_then = __atomic_load_n(&user->shared->added, __ATOMIC_SEQ_CST);
	v->adding_then = shared_user_adding(user->shared);
	v->request.search =
		(struct msg_search_request){.user = str_from(user->name), .limit = LOOK_MAX};
	ask_start(&v->ask, v->g, RPC_search, &v->request.search, READ_BUDGET_US, on_counted, v);
}

void access_added(struct visit *v)
{
	if (v->adding)
		__atomic_fetch_sub(adding_here(v), 1, __ATOMIC_SEQ_CST);
	v->adding = false;
}

/* --- life --------------------------------------------------------------------------------------------------------------- */

void access_init(struct gateway *g)
{
	map_init(&g->access.users);
}

void access_fini(struct gateway *g)
{
	map_each (it, &g->access.users)
		free(map_entry_of(it)->value);
	map_fini(&g->access.users);
	tokens_fini(&g->access.tokens);
}
