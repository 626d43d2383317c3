/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web_role - the gateway as a service: N workers at the same addresses, kept running.
 *
 *     prepare (root)  what the workers would refuse is refused here, once; certificate and key read; leftovers killed; sockets opened
 *     start           shared memory, one keeper a worker (proc/keeper.h)
 *     run             a worker ends: out of the dealing (ports.h); its keeper starts it again, at the same socket
 *     stop            sockets closed, SIGTERM to all at once; ended when they have
 *
 * A worker is this program again, with --worker N beside the service's own arguments. It goes through a service's steps: as root it reads what
 * only root may, then it drops. Since a worker may be started at any time, this process keeps root for as long as it lives, as boot does; it
 * reads nothing that a client sends.
 *
 * A worker's pid file is RUN/NAME.N.pid, beside the service's: root's, so that no service can choose what root opens; and
 * `conclave services` and `hold` know workers like services.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proc/keeper.h"
#include "proc/pidfile.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/boot/user.h"
#include "roles/gateway/ports.h"
#include "roles/gateway/shared.h"
#include "roles/gateway/tls_files.h"
#include "roles/role.h"
#include "roles/service.h"

#define FAILED_EXIT 1
#define USAGE_EXIT 2

struct web;

struct worker {
	struct web *web;
	unsigned slot;
	struct keeper *keeper;
};

struct web {
	struct role_env env;
	unsigned n;
	struct ports ports;
	struct shared *shared;
	struct tls_files tls; /* until the workers' memory has them */
	int tls_fd, tls_readers_fd;
	struct worker *workers;
	unsigned running; /* keepers that have not stopped */
	bool stopping;
};

static unsigned count_workers(const struct cfg *cfg)
{
	unsigned set = (unsigned)cfg_int(cfg, OPT_gateway_workers);
	cpu_set_t cpus;

	if (set)
		return set;
	if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0 || CPU_COUNT(&cpus) < 1)
		return 1;
	return CPU_COUNT(&cpus) < SERVICE_WORKERS_MAX ? (unsigned)CPU_COUNT(&cpus)
						      : SERVICE_WORKERS_MAX;
}

static char *pid_file(const struct role_env *env, unsigned number)
{
	return mem_printf(
		"%s/%s.%u.pid", cfg_str(env->cfg, OPT_boot_run_dir), env->service, number);
}

static void check(const struct cfg *cfg, struct cfg_errors *errors)
{
	ports_check(cfg_str(cfg, OPT_gateway_addresses), errors);
}

/* --- before the first worker ------------------------------------------------------------------------------------------- */

/* What a worker would refuse at its start. */
static int try_prepare(const struct role_env *env)
{
	void *state = NULL;
	int rc = gateway_role.prepare(env, &state);

	gateway_role.free(state);
	return rc;
}

/* A service that was killed takes its workers along, but they may need a moment to go, and have its sockets until then. Files
 * of workers that there are no more would be shown as services that are down. */
static void clear_leftovers(const struct web *web, const struct role_env *env)
{
	for (unsigned i = 1; i <= SERVICE_WORKERS_MAX; i++) {
		char *path cleanup(mem_freep) = pid_file(env, i);

		if (access(path, F_OK) != 0)
			continue;
		pidfile_kill_leftover(path, env->program, env->conf);
		if (i > web->n)
			unlink(path);
	}
}

/* Whose a key may be. */
static unsigned owner_of(const struct cfg *cfg)
{
	struct user user = {.uid = geteuid()};

	if (geteuid() == 0 && user_find(cfg_str(cfg, OPT_boot_user), &user))
		user.uid = 0; /* the workers will say so */
	return user.uid;
}

static int prepare(const struct role_env *env, void **state)
{
	struct web *web = mem_alloc(sizeof(*web));
	int rc = try_prepare(env);

	*state = web;
	web->tls_fd = web->tls_readers_fd = -1;
	web->n = count_workers(env->cfg);
	if (rc)
		return rc;
	if (!tls_files_read(env->cfg, owner_of(env->cfg), env->log, &web->tls))
		return USAGE_EXIT;
	clear_leftovers(web, env);
	return ports_open(&web->ports, cfg_str(env->cfg, OPT_gateway_addresses), web->n, env->log)
		       ? FAILED_EXIT
		       : 0;
}

/* --- workers ---------------------------------------------------------------------------------------------------------------- */

static void on_worker_change(void *arg, pid_t pid)
{
	struct worker *w = arg;
	struct web *web = w->web;

	if (pid > 0)
		return; /* it says by itself when it serves */
	shared_slot_ended(web->shared, w->slot, web->stopping);
	if (!web->stopping)
		ports_steer(web->ports.fds, web->ports.n_addresses, web->shared);
}

/* A little less than boot gives us. */
static int64_t stop_timeout_of(const struct cfg *cfg)
{
	return cfg_int(cfg, OPT_boot_stop_timeout) / 10 * 9;
}

static void give_descriptors(const struct web *web, unsigned slot, struct spawn_spec *spec)
{
	spec->fds[spec->n_fds++] =
		(struct spawn_fd){.from = shared_fd(web->shared), .to = PORTS_FD_SHARED};
	spec->fds[spec->n_fds++] =
		(struct spawn_fd){.from = web->tls_readers_fd, .to = PORTS_FD_TLS};
	for (unsigned i = 0; i < web->ports.n_addresses; i++)
		spec->fds[spec->n_fds++] = (struct spawn_fd){
			.from = web->ports.fds[slot * web->ports.n_addresses + i],
			.to = PORTS_FD_LISTEN + (int)i,
		};
}

static void start_worker(struct web *web, const struct role_env *env, unsigned slot)
{
	struct worker *w = &web->workers[slot];
	char *number cleanup(mem_freep) = mem_printf("%u", slot + 1);
	char *name cleanup(mem_freep) = mem_printf("%s.%u", env->service, slot + 1);
	char *path cleanup(mem_freep) = pid_file(env, slot + 1);
	const char *const argv[] = {
		env->program, "--service", env->service, "--worker", number, "-c", env->conf, NULL};
	struct keeper_options options = {
		.name = name,
		.pid_file = path,
		.spawn = {.path = env->program, .argv = (char *const *)argv, .envp = environ},
		.stop_timeout_us = stop_timeout_of(env->cfg),
		.log = env->log,
		.pass_fd = STDERR_FILENO,
		.on_change = on_worker_change,
		.arg = w,
	};

	w->web = web;
	w->slot = slot;
	give_descriptors(web, slot, &options.spawn);
	w->keeper = keeper_new(env->loop, &options);
}

/* For the workers: what they count, and what they serve with. */
static int make_memory(struct web *web)
{
	int error = shared_new(web->n, &web->shared);

	if (error)
		return error;
	web->tls_fd = tls_share_new();
	if (web->tls_fd < 0)
		return web->tls_fd;
	web->tls_readers_fd = tls_share_for_readers(web->tls_fd);
	if (web->tls_readers_fd < 0)
		return web->tls_readers_fd;
	error = tls_share_write(web->tls_fd, &web->tls);
	tls_files_fini(&web->tls);
	return error;
}

static int start(const struct role_env *env, void **state)
{
	struct web *web = *state;
	int error = make_memory(web);

	web->env = *env;
	if (error) {
		log_error(env->log, "start", "why=\"no shared memory: %s\"", strerror(-error));
		return FAILED_EXIT;
	}
	web->workers = mem_array(web->n, sizeof(*web->workers));
	for (unsigned i = 0; i < web->n; i++)
		start_worker(web, env, i);
	web->running = web->n;
	log_info(env->log, "start", "workers=%u addresses=%s", web->n,
		cfg_str(env->cfg, OPT_gateway_addresses));
	return 0;
}

/* A renewed certificate; one that cannot be used changes nothing. */
static void reload_tls(struct web *web, const struct cfg *cfg)
{
	struct tls_files tls;
	int error;

	if (!tls_files_read(cfg, owner_of(cfg), web->env.log, &tls)) {
		log_error(web->env.log, "tls", "note=\"the certificate of before stays\"");
		return;
	}
	error = tls_share_write(web->tls_fd, &tls);
	if (error)
		log_error(web->env.log, "tls", "problem=\"the workers' memory: %s\"",
			strerror(-error));
	tls_files_fini(&tls);
}

static void reload(void *state, const struct cfg *cfg)
{
	struct web *web = state;

	reload_tls(web, cfg);
	for (unsigned i = 0; i < web->n; i++) {
		keeper_set_stop_timeout(web->workers[i].keeper, stop_timeout_of(cfg));
		keeper_signal(web->workers[i].keeper, SIGHUP);
	}
}

/* --- the end ----------------------------------------------------------------------------------------------------------------- */

static void on_worker_stopped(void *arg)
{
	struct worker *w = arg;

	if (--w->web->running == 0)
		w->web->env.on_stopped(w->web->env.arg);
}

static void stop(void *state)
{
	struct web *web = state;

	web->stopping = true;
	ports_close(
		&web->ports); /* while we hold them they would take connections that nobody accepts */
	for (unsigned i = 0; i < web->n; i++)
		keeper_stop(web->workers[i].keeper, on_worker_stopped, &web->workers[i]);
}

static void web_free(void *state)
{
	struct web *web = state;

	if (!web)
		return;
	for (unsigned i = 0; web->workers && i < web->n; i++)
		keeper_free(web->workers[i].keeper);
	free(web->workers);
	ports_close(&web->ports);
	shared_free(web->shared);
	tls_files_fini(&web->tls);
	if (web->tls_fd >= 0)
		close(web->tls_fd);
	if (web->tls_readers_fd >= 0)
		close(web->tls_readers_fd);
	free(web);
}

const struct role web_role = {
	.name = "gateway",
	.summary = "serves the HTTP interface for people and programs",
	.service = CFG_GATEWAY,
	.worker = &gateway_role,
	.keeps_root = true,
	.check = check,
	.prepare = prepare,
	.start = start,
	.stop = stop,
	.reload = reload,
	.free = web_free,
};
