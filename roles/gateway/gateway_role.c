/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gateway_role - the gateway as a service: options -> profiles, transport, gateway; and their end in reverse order.
 *
 *   prepare (root)  reads the profiles: they may be where only root can go
 *   start           the rest, which is what boot.user may see
 *
 * One worker a process. Several would be several such processes that share the port: gateway_options.reuseport.
 */
#include <stdlib.h>

#include "cfg/language.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "roles/gateway/gateway.h"
#include "roles/languages.h"
#include "roles/role.h"
#include "roles/secret.h"

#define FAILED_EXIT 1
#define USAGE_EXIT 2

struct gateway_state {
	struct role_env env;
	struct map languages; /* owns the profiles */
	struct transport *transport;
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
	language_map_fini(&s->languages);
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

	while (str_cut(&rest, ',', &address)) {
		address = str_trim(address);
		if (!address.n || is_loopback(address))
			continue;
		cfg_errors_add(errors, "gateway.addresses",
			STR_FMT ": beyond loopback a gateway needs tokens, which this version does "
				"not have; serve at 127.0.0.1 behind a proxy that asks who comes",
			STR_ARG(address));
	}
}

static int prepare(const struct role_env *env, void **state)
{
	struct gateway_state *s = mem_alloc(sizeof(*s));

	map_init(&s->languages);
	*state = s;
	return languages_load(env, &s->languages) ? USAGE_EXIT : 0;
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
		.read_timeout_us = cfg_int(cfg, OPT_gateway_read_timeout),
		.wait_us = cfg_int(cfg, OPT_rpc_wait),
	};

	s->env = *env;
	s->transport = secret_transport(env);
	if (!s->transport)
		return FAILED_EXIT;
	options.transport = s->transport;
	return gateway_new(env->loop, &options, &s->gateway) ? FAILED_EXIT : 0;
}

static void on_stopped(void *arg)
{
	struct gateway_state *s = arg;

	s->env.on_stopped(s->env.arg);
}

static void stop(void *state)
{
	struct gateway_state *s = state;

	gateway_stop(s->gateway, on_stopped, s);
}

static void reload(void *state, const struct cfg *cfg)
{
	struct gateway_state *s = state;

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
