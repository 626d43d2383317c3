/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ports - the listening sockets of a gateway's workers: one a worker and address, opened by the service before there is any worker,
 * and sent connections only while their worker serves.
 */
#pragma once

#include "reactor/base/check.h"

struct cfg_errors;
struct log;
struct shared;

#define PORTS_ADDRESSES_MAX 11

/* Descriptors of a worker: the memory (shared.h), certificate and key (tls_files.h), and behind them a socket for each address. */
#define PORTS_FD_SHARED 3
#define PORTS_FD_TLS 4
#define PORTS_FD_LISTEN 5

struct ports {
	unsigned n_workers, n_addresses;
	int *fds; /* [worker * n_addresses + address] */
};

void ports_check(const char *addresses, struct cfg_errors *errors);
/* Opens and listens; `addresses` by comma. 0, or -errno after logging, with nothing left open. */
int ports_open(
	struct ports *ports, const char *addresses, unsigned n_workers, struct log *log) must_check;
void ports_close(struct ports *ports); /* idempotent */
/* In a worker: the sockets it was given, one an address. 0, or -errno when they are no listening sockets. */
int ports_inherit(const char *addresses, int fds[PORTS_ADDRESSES_MAX], unsigned *n) must_check;
/* New connections go to those who are live in `shared` from here on; to all when none is. fds: a socket of each address, anyone's. */
void ports_steer(const int *fds, unsigned n, const struct shared *shared);
