/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot - the role every program starts as: makes the directories, the lock, the secret and each service's effective
 * configuration, then keeps each service running (proc/keeper.h) until it is told to stop. Several boots live on one
 * loop, each on its own run directory.
 */
#pragma once

#include <stddef.h>

#include "cfg/cfg.h"

struct boot;
struct log;
struct loop;
struct service;

struct boot_options {
	const struct cfg *cfg;          /* dirs_resolve()d; borrowed for the call */
	const struct service *services; /* in start order; borrowed */
	size_t n_services;
	const char *program; /* real path of the executable that knows --service; copied */
	char **environment; /* of the services, without CONCLAVE_*: their files say it all; copied */
	struct log *log;    /* borrowed */
	int pass_fd;        /* where services' own log lines go, see keeper.h */
};

#define BOOT_EXIT_FAILED 1 /* the machine is not ready: a directory, the lock, the disk */
#define BOOT_EXIT_USAGE 2  /* the configuration or the command line is wrong */

/* 0, or an exit code after logging what to do about it; the services start on the next turn. */
int boot_start(struct loop *loop, const struct boot_options *options, struct boot **out) must_check;
/* Stops the services in reverse order, one after the other; on_stopped(arg) once, from the loop. A second call while it
 * stops only writes a log line. */
void boot_stop(struct boot *boot, void (*on_stopped)(void *arg), void *arg);
/* Writes the services' files anew from cfg and sends them SIGHUP. */
void boot_reload(struct boot *boot, const struct cfg *cfg);
/* Kills what still runs, releases the lock. NULL is fine. */
void boot_free(struct boot *boot);
