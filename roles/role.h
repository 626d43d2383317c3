/* SPDX-License-Identifier: Apache-2.0 */
/*
 * role - one service's body: a row in roles/main.c's table. main() is parse -> log -> loop -> signals -> start -> run
 * -> stop; a role never sees argv and owns no globals, so any number of roles live on one loop in a test.
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
	struct loop *loop;     /* borrowed */
	struct log *log;       /* borrowed */
	const struct cfg *cfg; /* borrowed for start() only: copy what you need */
	const char *dir;       /* state directory, exists, ours */
	const char *run_dir;   /* run directory, exists, ours */
	const char *program;   /* path of this executable, to find conclave-box beside it */
	/* Ends the process with exit code; `why` was logged already. For fatal failures after start(). */
	void (*on_failed)(void *arg, int exit_code);
	void (*on_stopped)(void *arg);
	void *arg;
};

struct role {
	const char *name;    /* "judicator", "executor", "gateway" */
	const char *summary; /* for --help */
	unsigned service;    /* enum cfg_service: which options it reads */
	/* 0, or an exit code after logging what to do about it. *state is the role's own. */
	int (*start)(const struct role_env *env, void **state);
	/* Still root: what must happen before the privileges are dropped (conclave-box). NULL = nothing. */
	int (*prepare)(const struct role_env *env, void **state);
	void (*stop)(void *state);
	void (*reload)(void *state, const struct cfg *cfg); /* SIGHUP; NULL = nothing to reload */
	void (*free)(void *state);
};

extern const struct role executor_role;
extern const struct role gateway_role;
extern const struct role judicator_role;
