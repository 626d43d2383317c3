/* SPDX-License-Identifier: Apache-2.0 */
/*
 * executor_role - the executor as a service.
 *
 *   prepare (root)  reads the profiles, which may be where only root can go, and opens the box: conclave-box is started
 *                   here, because it must keep what we give up; started by an ordinary user there is nothing to give up, and conclave-box
 *                   does what it can
 *   start           reads the secret, and probes the languages in the box
 *   on_probed       has its answer: only now do we register and ask for work
 *   stop            drains; on_stopped when everything is accepted, or shortly before boot loses patience
 *   on_ended        box broken: the process ends, and the next one, root again, starts a new conclave-box;
 *                   fenced: the process ends with KEEPER_EXIT_FENCED, and boot waits its longest backoff before the
 *                   next one, since two installations of one name would otherwise fence each other for ever
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cfg/language.h"
#include "proc/box/box.h"
#include "proc/keeper.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/timer.h"
#include "roles/box_program.h"
#include "roles/executor/executor.h"
#include "roles/executor/metrics.h"
#include "roles/executor/probe.h"
#include "roles/languages.h"
#include "roles/metrics.h"
#include "roles/role.h"
#include "roles/secret.h"

#define FAILED_EXIT 1
#define USAGE_EXIT 2
/* Before boot's stop_timeout: our tasks are killed, our process is gone. At most half and a quarter of it. */
#define KILL_MARGIN_US (2 * US_PER_S)
#define STOP_MARGIN_US (1 * US_PER_S)

struct executor_state {
	struct role_env env; /* its cfg is not ours after start() */
	struct loop *loop;
	struct log *log;
	struct box_host *box;
	unsigned slots;
	struct map languages; /* all profiles; owns them */
	/* start() */
	struct transport *transport;
	struct map works; /* those that work here */
	struct op *probing;
	char *name, *judicators, *blob_dir;
	bool alone;
	struct metrics_server *metrics; /* NULL = not served */
	int64_t wait_us, stop_timeout_us, blob_bytes_max;
	/* on_probed() */
	struct executor *executor;
	/* stop() */
	struct timer impatience;
	struct defer stopped;
};

/*** prepare: still root ***/

static unsigned processors(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) < 1)
		return 1;
	return CPU_COUNT(&set) < (int)BOX_SLOTS_MAX ? (unsigned)CPU_COUNT(&set) : BOX_SLOTS_MAX;
}

/* Why it isolates less than it could, and what to type. */
static void log_shortfall(struct log *log, const struct box_host *box)
{
	const char *why = box_host_shortfall(box);
	char quoted[LOG_QUOTE_MAX];

	if (*why)
		log_warn(log, "box", "isolation=\"%s\" why=%s fix=\"conclave doctor\"",
			box_host_isolation(box), log_quote(str_from(why), quoted));
}

static int open_box(struct executor_state *s, const struct role_env *env)
{
	const char *kind = cfg_str(env->cfg, OPT_executor_box);
	const char *helper_set = cfg_str(env->cfg, OPT_executor_helper);
	const struct box_ops *ops = box_find(strcmp(kind, "auto") == 0 ? "ns" : kind);
	char *helper cleanup(mem_freep) =
		*helper_set ? mem_strdup(helper_set) : box_program_find(env->program);
	char *why cleanup(mem_freep) = NULL;
	char quoted[LOG_QUOTE_MAX];
	struct box_options options = {
		.log = env->log,
		.slots = s->slots,
		.helper = helper,
		.helper_fd = -1,
		.run_dir = env->run_dir,
	};

	CHECK(ops); /* options.def names only boxes there are */
	if (ops == &box_ns && !helper) {
		log_error(env->log, "box",
			"why=\"conclave-box is neither beside this program nor in $PATH\" "
			"fix=\"set executor.helper\"");
		return FAILED_EXIT;
	}
	if (box_host_open(env->loop, ops, &options, &s->box, &why) == 0) {
		log_shortfall(env->log, s->box);
		return 0;
	}
	log_error(env->log, "box",
		"kind=%s why=%s fix=\"executor.box = none needs nothing, and isolates nothing\"",
		ops->name, log_quote(str_from(why), quoted));
	return FAILED_EXIT;
}

static void on_stopped(void *arg);
static void on_impatience(void *arg);

static int prepare(const struct role_env *env, void **state)
{
	struct executor_state *s = mem_alloc(sizeof(*s));
	int64_t slots = cfg_int(env->cfg, OPT_executor_slots);

	*state = s;
	s->env = *env;
	s->loop = env->loop;
	s->log = env->log;
	s->slots = slots ? (unsigned)slots : processors();
	map_init(&s->languages);
	map_init(&s->works);
	defer_init(&s->stopped, on_stopped, s);
	timer_init(&s->impatience, env->loop, on_impatience, s);
	if (languages_load(env, &s->languages))
		return USAGE_EXIT;
	return open_box(s, env);
}

/*** Ends ***/

static void on_stopped(void *arg)
{
	struct executor_state *s = arg;

	s->env.on_stopped(s->env.arg);
}

static void on_impatience(void *arg)
{
	struct executor_state *s = arg;

	log_warn(s->log, "stop", "held=%u why=\"no judicator took the last results in time\"",
		executor_held(s->executor));
	executor_free(take_ptr(&s->executor));
	loop_defer(s->loop, &s->stopped);
}

static void on_ended(void *arg, enum executor_end end)
{
	struct executor_state *s = arg;

	timer_stop(&s->impatience);
	if (end == EXECUTOR_DRAINED) {
		loop_defer(s->loop, &s->stopped);
		return;
	}
	if (end == EXECUTOR_BROKEN) {
		char quoted[LOG_QUOTE_MAX];

		log_error(s->log, "stop", "exit=%d why=%s fix=\"boot starts the box anew\"",
			FAILED_EXIT, log_quote(str_from(box_host_failure(s->box)), quoted));
		s->env.on_failed(s->env.arg, FAILED_EXIT);
		return;
	}
	log_error(s->log, "stop",
		"exit=%d why=\"another executor registered as %s, or this one was silent for "
		"longer than judicator.expire; every task was killed\" fix=\"give each executor a "
		"name of its own\"",
		KEEPER_EXIT_FENCED, s->name);
	s->env.on_failed(s->env.arg, KEEPER_EXIT_FENCED);
}

static int64_t before(int64_t timeout_us, int64_t margin_us, int64_t part_us)
{
	return timeout_us - (margin_us < part_us ? margin_us : part_us);
}

static void stop(void *state)
{
	struct executor_state *s = state;
	int64_t timeout_us = s->stop_timeout_us;

	if (!s->executor) {
		op_cancel(&s->probing);
		loop_defer(s->loop, &s->stopped);
		return;
	}
	timer_start(&s->impatience, before(timeout_us, STOP_MARGIN_US, timeout_us / 4));
	executor_drain(s->executor, before(timeout_us, KILL_MARGIN_US, timeout_us / 2));
}

/*** start ***/

static void on_probed(void *arg, const struct probe_result *result)
{
	struct executor_state *s = arg;

	s->probing = NULL;
	map_each (it, &result->works)
		map_set(&s->works, str_from(map_entry_of(it)->key), map_entry_of(it)->value);
	log_info(s->log, "languages", "offered=%zu left_out=%u toolchains=" STR_FMT,
		map_count(&s->works), result->failed, STR_ARG(result->toolchains));
	s->executor = executor_new(s->loop, &(struct executor_options){
						    .name = s->name,
						    .slots = s->slots,
						    .alone = s->alone,
						    .log = s->log,
						    .transport = s->transport,
						    .judicators = s->judicators,
						    .box = s->box,
						    .languages = &s->works,
						    .toolchains = result->toolchains,
						    .wait_us = s->wait_us,
						    .blob_dir = s->blob_dir,
						    .blob_bytes_max = s->blob_bytes_max,
						    .on_end = on_ended,
						    .arg = s,
					    });
}

static void copy_options(struct executor_state *s, const struct cfg *cfg)
{
	const char *name = cfg_str(cfg, OPT_executor_name);
	char host[65] = "executor";

	if (!*name && gethostname(host, sizeof(host)) == 0)
		host[sizeof(host) - 1] = '\0';
	s->name = mem_strdup(*name ? name : host);
	s->judicators = mem_strdup(cfg_str(cfg, OPT_judicator_addresses));
	s->alone = cfg_bool(cfg, OPT_executor_alone);
	s->wait_us = cfg_int(cfg, OPT_rpc_wait);
	s->blob_dir = mem_printf("%s/executor/blobs", s->env.dir);
	s->blob_bytes_max = cfg_int(cfg, OPT_executor_blob_cache_bytes);
	s->stop_timeout_us = cfg_int(cfg, OPT_boot_stop_timeout);
}

/* While languages are probed there is no executor, and a page without it. */
static void on_scrape(void *arg, struct metrics_scrape *scrape)
{
	struct executor_state *s = arg;
	struct buf text cleanup(buf_fini) = BUF_INIT;

	executor_metrics(s->executor, s->box, s->loop, &text);
	metrics_scrape_reply(scrape, buf_str(&text));
}

static int metrics_open(struct executor_state *s, const char *address)
{
	if (!address[0])
		return 0;
	return metrics_server_new(s->loop, s->log, address, on_scrape, s, &s->metrics);
}

static int start(const struct role_env *env, void **state)
{
	struct executor_state *s = *state;

	s->env = *env;
	copy_options(s, env->cfg);
	if (!*s->judicators) {
		log_error(s->log, "start", "why=\"judicator.addresses is empty\"");
		return USAGE_EXIT;
	}
	s->transport = secret_transport(env);
	if (!s->transport)
		return FAILED_EXIT;
	if (metrics_open(s, cfg_str(env->cfg, OPT_executor_metrics_address)))
		return FAILED_EXIT;
	if (probe_start(s->loop, s->log, s->box, &s->languages, on_probed, s, &s->probing))
		return FAILED_EXIT;
	log_info(s->log, "start", "name=%s slots=%u alone=%s box=\"%s\" judicators=%s", s->name,
		s->slots, s->alone ? "yes" : "no", box_host_isolation(s->box), s->judicators);
	return 0;
}

static void reload(void *state, const struct cfg *cfg)
{
	struct executor_state *s = state;

	s->stop_timeout_us = cfg_int(cfg, OPT_boot_stop_timeout);
}

static void state_free(void *state)
{
	struct executor_state *s = state;

	if (!s)
		return;
	op_cancel(&s->probing);
	metrics_server_free(s->metrics);
	executor_free(s->executor);
	timer_stop(&s->impatience);
	defer_cancel(&s->stopped);
	if (s->transport)
		s->transport->ops->free(s->transport);
	box_host_close(s->box);
	map_fini(&s->works);
	language_map_fini(&s->languages);
	free(s->name);
	free(s->judicators);
	free(s->blob_dir);
	free(s);
}

const struct role executor_role = {
	.name = "executor",
	.summary = "compiles and runs tasks in a sandbox, for the judicators",
	.service = CFG_EXECUTOR,
	.prepare = prepare,
	.start = start,
	.stop = stop,
	.reload = reload,
	.free = state_free,
};
