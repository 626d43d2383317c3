/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 *   parse -> log -> loop -> signals -> prepare (root) -> drop privileges -> start -> run -> free
 *
 * A role that keeps_root starts others: its process drops nothing, but gains no privileges any more and dies with its parent like
 * all. Its workers go through the same steps, with the worker's role.
 *
 * The parent-death signal was set by the spawn that made us; dropping privileges clears it and sets it again.
 * Signals are events from the start, so a SIGTERM that comes while the role starts is waiting when the loop runs.
 * A role ends the process in two ways, by on_stopped after stop(), and by on_failed at any time; whichever is
 * first names the exit code.
 */
#include "roles/service.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/signal.h"
#include "roles/boot/boot.h"
#include "roles/boot/user.h"
#include "roles/role.h"

struct process {
	const struct service *service;
	const struct role *role; /* the service's, or its worker's */
	unsigned worker;
	const char *conf;
	pid_t parent;
	struct cfg *cfg;
	struct log *log;
	struct loop *loop;
	struct signal_watch *on_term, *on_int, *on_hup;
	char *run_dir;
	struct role_env env;
	void *state; /* the role's */
	bool stopping, ended;
	int exit_code;
};

/* --- events -------------------------------------------------------------------------------------- */

static void end(struct process *p, int exit_code)
{
	if (!p->ended)
		p->exit_code = exit_code;
	p->ended = true;
	loop_stop(p->loop);
}

static void on_role_failed(void *arg, int exit_code)
{
	end(arg, exit_code);
}

static void on_role_stopped(void *arg)
{
	end(arg, 0);
}

static void on_stop_signal(void *arg, int signum)
{
	struct process *p = arg;

	if (p->stopping)
		return; /* impatience is no crash; boot's stop_timeout is the deadline */
	p->stopping = true;
	log_info(p->log, "stopping", "signal=%d", signum);
	p->role->stop(p->state);
}

static enum log_level level_of(const struct cfg *cfg)
{
	enum log_level level = LOG_INFO;

	/* The table has checked the word. */
	CHECK(log_level_parse(str_from(cfg_str(cfg, OPT_log_level)), &level));
	return level;
}

static void take_config(struct process *p, struct cfg *fresh)
{
	struct buf ignored cleanup(buf_fini) = BUF_INIT;
	unsigned changed = cfg_reload(p->cfg, fresh, &ignored);

	log_set_level(p->log, level_of(p->cfg));
	log_info(p->log, "reloaded", "changed=%u needs_restart=\"" STR_FMT "\"", changed,
		STR_ARG(buf_str(&ignored)));
	if (p->role->reload)
		p->role->reload(p->state, p->cfg);
}

static void on_reload_signal(void *arg, int signum unused)
{
	struct process *p = arg;
	struct cfg_errors errors cleanup(cfg_errors_fini) = {BUF_INIT, 0};
	struct cfg *fresh = cfg_new();

	cfg_load_file(fresh, p->conf, &errors);
	if (errors.count > 0)
		log_error(p->log, "reload-failed", "path=\"%s\" errors=%u", p->conf, errors.count);
	else
		take_config(p, fresh);
	cfg_free(fresh);
}

/* --- the steps ----------------------------------------------------------------------------------- */

static int parse(struct process *p)
{
	struct cfg_errors errors cleanup(cfg_errors_fini) = {BUF_INIT, 0};

	p->cfg = cfg_new();
	cfg_load_file(p->cfg, p->conf, &errors);
	/* Boot has checked; whoever starts a service without it gets the same answer. */
	if (p->role->check)
		p->role->check(p->cfg, &errors);
	if (errors.count == 0)
		return 0;
	fprintf(stderr, STR_FMT, STR_ARG(buf_str(&errors.text)));
	return BOOT_EXIT_USAGE;
}

/* Ten thousand waiting peers are ten thousand descriptors. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static void open_loop(struct process *p, const char *program)
{
	char *worker cleanup(mem_freep) = mem_printf("%s.%u", p->role->name, p->worker);
	struct loop_options options = {0};

	p->log = log_new(STDERR_FILENO, p->worker ? worker : p->role->name, level_of(p->cfg));
	options.log = p->log;
	p->loop = loop_new(&options);
	p->on_term = signal_new(p->loop, SIGTERM, on_stop_signal, p);
	p->on_int = signal_new(p->loop, SIGINT, on_stop_signal, p);
	p->on_hup = signal_new(p->loop, SIGHUP, on_reload_signal, p);
	p->run_dir = mem_printf("%s/%s", cfg_str(p->cfg, OPT_boot_run_dir), p->service->name);
	p->env = (struct role_env){
		.loop = p->loop,
		.log = p->log,
		.cfg = p->cfg,
		.dir = cfg_str(p->cfg, OPT_boot_dir),
		.run_dir = p->run_dir,
		.program = program,
		.service = p->service->name,
		.conf = p->conf,
		.worker = p->worker,
		.on_failed = on_role_failed,
		.on_stopped = on_role_stopped,
		.arg = p,
	};
}

static int drop_privileges(struct process *p)
{
	const char *name = cfg_str(p->cfg, OPT_boot_user);
	struct user user = {.uid = geteuid(), .gid = getegid()};
	bool orphaned = false;
	int error;

	if (geteuid() == 0 && !p->role->keeps_root && user_find(name, &user)) {
		log_error(p->log, "start-failed",
			"step=user error=\"boot.user: no such user\" user=\"%s\"", name);
		return BOOT_EXIT_USAGE;
	}
	error = user_drop(&user, p->parent, &orphaned);
	if (error)
		log_error(p->log, "start-failed", "step=drop-privileges user=\"%s\" error=\"%s\"",
			name, strerror(-error));
	if (error || orphaned)
		return BOOT_EXIT_FAILED;
	return 0;
}

/* Parents of the directories may be closed to the user we have become; better said here than by a role. */
static int check_directories(struct process *p)
{
	const char *const paths[] = {p->env.dir, p->env.run_dir};

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		if (access(paths[i], X_OK) < 0) {
			log_error(p->log, "start-failed",
				"step=directories path=\"%s\" uid=%d error=\"%s\" hint=\"let that "
				"user "
				"enter it and its parents, or set boot.user\"",
				paths[i], (int)getuid(), strerror(errno));
			return BOOT_EXIT_FAILED;
		}
	return 0;
}

static int prepare_role(struct process *p)
{
	return p->role->prepare ? p->role->prepare(&p->env, &p->state) : 0;
}

static int start_role(struct process *p)
{
	return p->role->start(&p->env, &p->state);
}

static int run(struct process *p)
{
	if (!p->ended)
		loop_run(p->loop);
	return p->exit_code;
}

static void close_process(struct process *p)
{
	if (p->state)
		p->role->free(p->state);
	signal_free(p->on_term);
	signal_free(p->on_int);
	signal_free(p->on_hup);
	loop_free(p->loop);
	log_free(p->log);
	cfg_free(p->cfg);
	free(p->run_dir);
}

int service_run(
	const struct service *service, unsigned worker, const char *conf, const char *program)
{
	struct process p = {
		.service = service,
		.role = worker ? service->role->worker : service->role,
		.worker = worker,
		.conf = conf,
		.parent = getppid(),
	};
	int rc = parse(&p);

	if (rc) {
		cfg_free(p.cfg);
		return rc;
	}
	raise_descriptor_limit();
	open_loop(&p, program);
	rc = prepare_role(&p);
	if (!rc)
		rc = drop_privileges(&p);
	if (!rc)
		rc = check_directories(&p);
	if (!rc)
		rc = start_role(&p);
	if (!rc)
		rc = run(&p);
	close_process(&p);
	return rc;
}
