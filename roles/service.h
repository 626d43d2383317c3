/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service - the life of one service process: everything around a role (roles/role.h) that is the same for all of them.
 */
#pragma once

struct service;

#define SERVICE_WORKERS_MAX 64

/* Runs the service, or its worker of that number (1 to SERVICE_WORKERS_MAX; 0 = the service itself), until it was told to
 * stop; `conf` is the file boot generated, `program` the path of this executable. Returns the exit code: 0 after an ordered
 * stop, 2 when conf is wrong, else what the role says. */
int service_run(
	const struct service *service, unsigned worker, const char *conf, const char *program);
