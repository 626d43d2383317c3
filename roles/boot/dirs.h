/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dirs - where state and run-time files live: the defaults of options.def made real, and the directories made.
 *
 *   DIR      0755, boot's own:  secret (0600), judicator/ and so on (a directory a role, 0700): these boot.user's
 *   RUN      0755, boot's own:  boot.lock, NAME.pid (0600), NAME.conf (0640, group boot.user's), NAME/ (0700, boot.user's)
 *
 * Both belong to boot and not to the services' user, so that a service can never choose which files root opens there. RUN may be in DIR.
 */
#pragma once

#include "cfg/cfg.h"
#include "roles/boot/user.h"

struct log;
struct service;

/* The environment as far as it matters, so that tests need not change ours. */
struct dirs_env {
	bool root;
	const char
		*program; /* its run directory is its own, so that programs may share a machine */
	const char *home, *state_home, *runtime_dir, *cwd; /* NULL or "" = not set */
};

void dirs_env_get(struct dirs_env *env, const char *program,
	struct buf *space); /* of this process; space owns what it points to */
/* Fills boot.dir, boot.run_dir, judicator.data_dir and rpc.secret_file in, absolute. */
void dirs_resolve(struct cfg *cfg, const struct dirs_env *env, struct cfg_errors *errors);
/* Makes what is missing and gives the roles' and services' directories to user (root only; what exists is left as it is, but must be a
 * directory). As root -EPERM when RUN or its parent is not root's, or when user or others could replace something on the way there.
 * 0 or -errno after logging. */
int dirs_make(const struct cfg *cfg, const struct service *services, size_t n,
	const struct user *user, struct log *log) must_check;
