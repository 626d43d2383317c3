/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gateway_role - the gateway as a service: options -> profiles, transport, gateway; and their end in reverse order.
 *
 *   prepare (root)  reads the profiles and tokens: they may be where only root can go
 *   start           the rest, which is what boot.user may see
 *
 * This is one worker. The service (web_role.c) starts it with what the workers share as descriptors; it takes its place among those that
 * are sent connections once it serves, and leaves it before it stops to accept.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cfg/language.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "roles/boot/user.h"
#include "roles/gateway/gateway.h"
#include "roles/gateway/ports.h"
#include "roles/gateway/shared.h"
#include "roles/gateway/tls_files.h"
#include "roles/gateway/tokens.h"
#include "roles/languages.h"
#include "roles/role.h"
#include "roles/secret.h"

#define FAILED_EXIT 1
#define USAGE_EXIT 2

struct gateway_state {
	struct role_env env;
	struct map languages; /* owns the profiles */
	struct tokens tokens; /* until the gateway has them */
	struct transport *transport;
	struct shared *shared;
	int tls_fd;                   /* memory that the service writes: certificate and key */
	int fds[PORTS_ADDRESSES_MAX]; /* the gateway's, until it stops */
	unsigned n_fds, slot;
	struct gateway *gateway;
};

static void state_free(void *state)
{
	struct gateway_state *s = state;

	if (!s)
		return;
	gateway_free(s->gateway);
	if (s->transport)
		s->transport->ops->free(s->transport);
	shared_free(s->shared);
	if (s->tls_fd >= 0)
		close(s->tls_fd);
	language_map_fini(&s->languages);
	tokens_fini(&s->tokens);
	free(s);
}

static bool is_loopback(struct str address)
{
	static const char *const prefixes[] = {"127.", "[::1]:", "localhost:"};

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		size_t n = strlen(prefixes[i]);

		if (address.n > n && !memcmp(address.p, prefixes[i], n))
			return true;
	}
	return false;
}

/* Whoever reaches a gateway may run programs and read everybody's: without tokens that is for this machine only. */
static void check(const struct cfg *cfg, struct cfg_errors *errors)
{
	struct str rest = str_from(cfg_str(cfg, OPT_gateway_addresses)), address;
	const char *tokens = cfg_str(cfg, OPT_gateway_tokens);

	if (tokens[0] && tokens[0] != '/')
		cfg_errors_add(errors, "gateway.tokens", "%s: is not an absolute path", tokens);
	tls_files_check(cfg, errors);
	while (str_cut(&rest, ',', &address)) {
		address = str_trim(address);
		if (!address.n || tokens[0] || is_loopback(address))
			continue;
		cfg_errors_add(errors, "gateway.addresses",
			STR_FMT ": beyond loopback a gateway needs tokens; set gateway.tokens, or "
				"serve at 127.0.0.1 behind a proxy that asks who comes",
			STR_ARG(address));
	}
}

/* False when the file is wrong: logged, *out is empty. */
static bool load_tokens(const struct role_env *env, const struct cfg *cfg, struct tokens *out)
{
	struct cfg_errors errors cleanup(cfg_errors_fini) = {BUF_INIT, 0};
	const char *path = cfg_str(cfg, OPT_gateway_tokens);
	struct user user = {.uid = geteuid()};
	struct str rest, line;

	*out = (struct tokens){0};
	if (!path[0])
		return true;
	if (geteuid() == 0 && user_find(cfg_str(cfg, OPT_boot_user), &user))
		user.uid = 0; /* dropping the privileges will say so */
	tokens_load(path, user.uid, out, &errors);
	rest = str_trim(buf_str(&errors.text));
	while (errors.count && str_cut(&rest, '\n', &line)) {
		char quoted[LOG_QUOTE_MAX];

		log_error(env->log, "tokens", "problem=%s", log_quote(line, quoted));
	}
	if (errors.count)
		tokens_fini(out);
	else
		log_info(env->log, "tokens", "file=\"%s\" n=%u", path, out->n);
	return !errors.count;
}

static int prepare(const struct role_env *env, void **state)
{
	struct gateway_state *s = mem_alloc(sizeof(*s));

	s->tls_fd = -1;
	map_init(&s->languages);
	*state = s;
	if (languages_load(env, &s->languages) || !load_tokens(env, env->cfg, &s->tokens))
		return USAGE_EXIT;
	return 0;
}

/* What the service has left open for us. */
static int inherit(struct gateway_state *s, const struct role_env *env)
{
	int r = shared_open(PORTS_FD_SHARED, &s->shared);

	close(PORTS_FD_SHARED);
	s->tls_fd = PORTS_FD_TLS;
	s->slot = env->worker - 1;
	if (!r && s->slot >= shared_n_slots(s->shared))
		r = -EINVAL;
	if (!r)
		r = ports_inherit(cfg_str(env->cfg, OPT_gateway_addresses), s->fds, &s->n_fds);
	if (r)
		log_error(env->log, "start",
			"worker=%u why=\"what the service hands over does not fit: %s\" "
			"fix=\"if the programs were replaced, restart the service\"",
			env->worker, strerror(-r));
	return r;
}

/* What the service has read. At a reload a context more, which is the same if nothing has changed. */
static bool take_tls(struct gateway_state *s)
{
	struct http_tls *tls = NULL;
	int r = tls_share_read(s->tls_fd, &tls);

	if (r)
		log_error(s->env.log, "tls",
			"problem=\"what the service hands over cannot be used: %s\"", strerror(-r));
	else
		gateway_set_tls(s->gateway, tls);
	http_tls_free(tls);
	return !r;
}

static int start(const struct role_env *env, void **state)
{
	struct gateway_state *s = *state;
	const struct cfg *cfg = env->cfg;
	struct gateway_options options = {
		.log = env->log,
		.judicators = cfg_str(cfg, OPT_judicator_addresses),
		.addresses = cfg_str(cfg, OPT_gateway_addresses),
		.hosts = cfg_str(cfg, OPT_gateway_hosts),
		.languages = &s->languages,
		.body_max = cfg_int(cfg, OPT_gateway_body_max),
		.blob_max = cfg_int(cfg, OPT_gateway_blob_max),
		.read_timeout_us = cfg_int(cfg, OPT_gateway_read_timeout),
		.wait_us = cfg_int(cfg, OPT_rpc_wait),
		.done_cache = cfg_int(cfg, OPT_gateway_done_cache),
	};

	s->env = *env;
	s->transport = secret_transport(env);
	if (!s->transport)
		return FAILED_EXIT;
	options.transport = s->transport;
	if (inherit(s, env))
		return FAILED_EXIT;
	options.listen_fds = s->fds;
	options.n_listen_fds = s->n_fds;
	options.shared = s->shared;
	options.slot = s->slot;
	if (gateway_new(env->loop, &options, &s->gateway) || !take_tls(s))
		return FAILED_EXIT;
	gateway_set_tokens(s->gateway, &s->tokens);
	shared_set_live(s->shared, s->slot, true);
	ports_steer(s->fds, s->n_fds, s->shared);
	return 0;
}

static void on_stopped(void *arg)
{
	struct gateway_state *s = arg;

	s->env.on_stopped(s->env.arg);
}

static void stop(void *state)
{
	struct gateway_state *s = state;

	shared_set_live(s->shared, s->slot, false);
	ports_steer(s->fds, s->n_fds, s->shared);
	gateway_stop(s->gateway, on_stopped, s);
}

static void reload(void *state, const struct cfg *cfg)
{
	struct gateway_state *s = state;
	struct tokens tokens;

	if (load_tokens(&s->env, cfg, &tokens))
		gateway_set_tokens(s->gateway, &tokens);
	else
		log_error(s->env.log, "tokens", "note=\"those of before stay\"");
	gateway_set_blob_max(s->gateway, cfg_int(cfg, OPT_gateway_blob_max));
	take_tls(s);
	gateway_set_limits(s->gateway, cfg_int(cfg, OPT_gateway_body_max),
		cfg_int(cfg, OPT_gateway_read_timeout));
}

const struct role gateway_role = {
	.name = "gateway",
	.summary = "serves the HTTP interface for people and programs",
	.service = CFG_GATEWAY,
	.check = check,
	.prepare = prepare,
	.start = start,
	.stop = stop,
	.reload = reload,
	.free = state_free,
};
