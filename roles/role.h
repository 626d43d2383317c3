/* SPDX-License-Identifier: Apache-2.0 */
/*
 * role - one service's body: a row in roles/main.c's table. roles/service.c runs it: parse -> log -> loop -> signals ->
 * prepare -> drop privileges -> start -> run -> stop -> free; a role never sees argv and owns no globals, so any number
 * of roles live on one loop in a test.
 *
 * start() begins serving (listening sockets are open when it returns 0). stop() asks it to drain and end: it
 * calls env->on_stopped(env->arg) exactly once, from the loop, when everything is closed, or when its own deadline passed.
 */
#pragma once

#include "cfg/cfg.h"
#include "cfg/services.h"

struct log;
struct loop;

struct role_env {
	struct loop *loop; /* borrowed */
	struct log *log;   /* borrowed */
	/* Borrowed for prepare() and start() only: copy what you need. boot.dir, boot.run_dir, judicator.data_dir and
	 * rpc.secret_file are filled in, absolute. */
	const struct cfg *cfg;
	const char *dir; /* state directory: exists, shared by the services, ours */
	/* This service's own directory below the run directory: exists, ours, 0700. */
	const char *run_dir;
	const char *
		program; /* path of this executable, to find conclave-box beside it, and to start workers */
	const char *service; /* the service's name, which its workers share */
	const char *conf;    /* the file boot generated for it */
	unsigned worker;     /* 0: the service itself; else its worker of that number */
	/* Ends the process with exit code; `why` was logged already. For fatal failures after start(). */
	void (*on_failed)(void *arg, int exit_code);
	void (*on_stopped)(void *arg);
	void *arg;
};

struct role {
	const char *name;    /* "judicator", "executor", "gateway" */
	const char *summary; /* for --help */
	unsigned service;    /* enum cfg_service: which options it reads */
	/* What a process of this service with --worker N is: the service starts and keeps those. NULL = it has none. */
	const struct role *worker;
	bool keeps_root; /* it starts processes that prepare as root and then drop by themselves, and serves nobody */
	/* What no single row of the options can check: adds to errors. Before anything is started, at --check and at each
	 * reload, so it looks at nothing but cfg. NULL = nothing. */
	void (*check)(const struct cfg *cfg, struct cfg_errors *errors);
	/* 0, or an exit code after logging what to do about it. *state is the role's own (NULL, or what prepare() left). */
	int (*start)(const struct role_env *env, void **state);
	/* Still root (if we were), before start(): what must happen before the privileges are dropped and no_new_privs is set
	 * (conclave-box), and what is read that boot.user need not be able to reach (language profiles). 0, or an exit
	 * code after logging. NULL = nothing. */
	int (*prepare)(const struct role_env *env, void **state);
	void (*stop)(void *state); /* once, only after start() returned 0 */
	/* Every SIGHUP; cfg is borrowed for the call; only CFG_RELOADABLE options have changed, perhaps none: files that options
	 * name may have. NULL = nothing to reload. */
	void (*reload)(void *state, const struct cfg *cfg);
	/* Whenever *state is not NULL, also after a failed prepare() or start(). */
	void (*free)(void *state);
};

/* A service of a program: the process that boot keeps running under this name. */
struct service {
	const char *name; /* pid file, generated file, --service NAME */
	const struct role *role;
};

extern const struct role executor_role;
extern const struct role gateway_role;
extern const struct role judicator_role;
extern const struct role web_role; /* keeps gateway_role's running */
