/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judicator_role - the judicator as a service: options -> store, transport, judicator; and their end in reverse order.
 *
 * The store's on_changed needs the judicator and the judicator needs the store: the role is the argument in between.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "roles/judicator/judicator.h"
#include "roles/role.h"
#include "roles/secret.h"

struct judicator_state {
	struct role_env env;
	struct store *store;
	struct transport *transport;
	struct judicator *judicator;
};

static void on_changed(void *arg, const struct id *ids, unsigned n_ids, const struct str *languages,
	unsigned n_languages)
{
	struct judicator_state *s = arg;

	judicator_on_changed(s->judicator, ids, n_ids, languages, n_languages);
}

static void state_free(void *state)
{
	struct judicator_state *s = state;

	if (!s)
		return;
	judicator_free(s->judicator);
	s->judicator = NULL;
	if (s->store)
		s->store->ops->close(s->store);
	if (s->transport)
		s->transport->ops->free(s->transport);
	free(s);
}

static int open_store(struct judicator_state *s, const struct cfg *cfg)
{
	const char *set = cfg_str(cfg, OPT_judicator_data_dir);
	char *dir cleanup(mem_freep) =
		*set ? mem_strdup(set) : mem_printf("%s/judicator", s->env.dir);
	const struct store_ops *ops = store_find(str_from(cfg_str(cfg, OPT_judicator_store)));
	struct store_options options = {
		.log = s->env.log,
		.dir = dir,
		.reserve_bytes = cfg_int(cfg, OPT_judicator_reserve),
		.max_retries = cfg_int(cfg, OPT_judicator_max_retries),
		.on_changed = on_changed,
		.arg = s,
	};

	if (mkdir(dir, 0700) && errno != EEXIST) {
		log_error(s->env.log, "data_dir",
			"dir=%s why=\"%s\" fix=\"make it, owned by boot.user\"", dir,
			strerror(errno));
		return -errno;
	}
	return ops->open(s->env.loop, &options, &s->store);
}

static int start(const struct role_env *env, void **state)
{
	struct judicator_state *s = mem_alloc(sizeof(*s));
	const struct cfg *cfg = env->cfg;
	char host[65] = "judicator";
	const char *name = cfg_str(cfg, OPT_judicator_name);
	struct judicator_options options = {
		.address = cfg_str(cfg, OPT_judicator_address),
		.log = env->log,
		.leading = cfg_bool(cfg, OPT_judicator_leading),
		.expire_us = cfg_int(cfg, OPT_judicator_expire),
		.metrics_address = cfg_str(cfg, OPT_judicator_metrics_address),
		.blob_age_us = cfg_int(cfg, OPT_judicator_blob_age),
	};

	s->env = *env;
	*state = s;
	if (!*name && !gethostname(host, sizeof(host) - 1))
		name = host;
	options.name = *name ? name : host;
	s->transport = secret_transport(env);
	if (!s->transport || open_store(s, cfg))
		return 1;
	options.transport = s->transport;
	options.store = s->store;
	return judicator_new(env->loop, &options, &s->judicator) ? 1 : 0;
}

static void on_stopped(void *arg)
{
	struct judicator_state *s = arg;

	s->env.on_stopped(s->env.arg);
}

static void stop(void *state)
{
	struct judicator_state *s = state;

	judicator_stop(s->judicator, on_stopped, s);
}

static void reload(void *state, const struct cfg *cfg)
{
	struct judicator_state *s = state;

	s->store->ops->set_reserve(s->store, cfg_int(cfg, OPT_judicator_reserve));
}

const struct role judicator_role = {
	.name = "judicator",
	.summary = "keeps the tasks, gives them to executors, and tells what came of them",
	.service = CFG_JUDICATOR,
	.start = start,
	.stop = stop,
	.reload = reload,
	.free = state_free,
};
