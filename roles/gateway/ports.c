/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ports - theory of operation
 *
 * Each worker has a socket of its own at each address (SO_REUSEPORT), so the kernel deals connections out and workers do not fight
 * for them. The service holds all of them open too: what a worker that dies has not accepted stays in its queue, and its successor, who
 * gets the same socket, accepts it. Only what was accepted dies with it.
 *
 * The kernel would go on to deal to a socket whose worker is dead, held or draining. So all sockets of an address have a filter that
 * picks one of those that are live (shared.h), by chance. Whoever changes that, the service when a worker has ended and a worker when it
 * begins or stops to serve, puts a new filter in; it looks again afterwards whether what it put in is still right, so whoever
 * is last leaves the right one. The order of the workers is the order in which their sockets began to listen.
 *
 * SO_REUSEPORT lets any process of the same user in. So the first socket is bound without it, which fails when the port is
 * anybody's, and gets it afterwards; and where the service is root's, the sockets are too.
 */
#include "roles/gateway/ports.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/filter.h>

#include "cfg/cfg.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "reactor/base/str.h"
#include "roles/gateway/shared.h"
#include "rpc/http/address.h"

#define BACKLOG 4096

/* --- addresses -------------------------------------------------------------------------------------------------------- */

/* The next that is not empty. */
static bool next_address(struct str *rest, struct str *address)
{
	while (str_cut(rest, ',', address)) {
		*address = str_trim(*address);
		if (address->n)
			return true;
	}
	return false;
}

static unsigned count_addresses(const char *addresses)
{
	struct str rest = str_from(addresses), address;
	unsigned n = 0;

	while (next_address(&rest, &address))
		n++;
	return n;
}

void ports_check(const char *addresses, struct cfg_errors *errors)
{
	if (count_addresses(addresses) > PORTS_ADDRESSES_MAX)
		cfg_errors_add(errors, "gateway.addresses",
			"%u addresses; %d are the most; serve at 0.0.0.0 or [::] to serve at all",
			count_addresses(addresses), PORTS_ADDRESSES_MAX);
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static int share(int fd)
{
	int on = 1;

	return setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) < 0 ? -errno : 0;
}

/* The first of an address: nobody else may be there. The others join it. */
static int bind_one(const struct http_address *at, bool first, int *out)
{
	int on = 1, error = 0;
	int fd = socket(at->sockaddr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (at->sockaddr.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (!first)
		error = share(fd);
	if (!error && bind(fd, (const struct sockaddr *)&at->sockaddr, at->len) < 0)
		error = -errno;
	if (!error && first)
		error = share(fd);
	if (!error) {
		*out = fd;
		return 0;
	}
	close(fd);
	return error;
}

/* The port may have been 0: the others get what the first got. */
static int bind_all(struct ports *ports, unsigned address, struct http_address *at)
{
	int error = 0;

	for (unsigned i = 0; i < ports->n_workers && !error; i++) {
		int *fd = &ports->fds[i * ports->n_addresses + address];

		error = bind_one(at, i == 0, fd);
		if (!error && i == 0 &&
			getsockname(*fd, (struct sockaddr *)&at->sockaddr, &at->len) < 0)
			error = -errno;
	}
	for (unsigned i = 0; i < ports->n_workers && !error; i++)
		if (listen(ports->fds[i * ports->n_addresses + address], BACKLOG) < 0)
			error = -errno;
	return error;
}

static const char *advice_on(int error)
{
	static const struct {
		int error;
		const char *advice;
	} rows[] = {
		{-EACCES, "ports below 1024 need root, or CAP_NET_BIND_SERVICE"},
		{-EADDRINUSE, "stop what serves there, or set gateway.addresses"},
		{-EADDRNOTAVAIL, "no interface of this machine has that address"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].error == error)
			return rows[i].advice;
	return "set gateway.addresses";
}

int ports_open(struct ports *ports, const char *addresses, unsigned n_workers, struct log *log)
{
	struct str rest = str_from(addresses), text;
	unsigned n = count_addresses(addresses), i = 0;
	int error = n >= 1 && n <= PORTS_ADDRESSES_MAX ? 0 : -EINVAL;

	*ports = (struct ports){.n_workers = n_workers, .n_addresses = n};
	ports->fds = mem_array((size_t)n_workers * n + 1, sizeof(int));
	for (unsigned k = 0; k < n_workers * n; k++)
		ports->fds[k] = -1;
	while (!error && next_address(&rest, &text)) {
		char *address cleanup(mem_freep) = str_dup(text);
		struct http_address at;

		error = http_address_parse(address, &at) ? bind_all(ports, i++, &at) : -EINVAL;
		if (error)
			log_error(log, "listen_failed", "address=%s why=\"%s\" fix=\"%s\"", address,
				strerror(-error), advice_on(error));
	}
	if (!n)
		log_error(log, "listen_failed", "why=\"gateway.addresses is empty\"");
	if (error)
		ports_close(ports);
	return error;
}

void ports_close(struct ports *ports)
{
	for (unsigned i = 0; ports->fds && i < ports->n_workers * ports->n_addresses; i++)
		if (ports->fds[i] >= 0)
			close(ports->fds[i]);
	free(ports->fds);
	*ports = (struct ports){0};
}

static bool listens(int fd)
{
	int on = 0;
	socklen_t len = sizeof(on);

	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) == 0 && on &&
	       fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

int ports_inherit(const char *addresses, int fds[PORTS_ADDRESSES_MAX], unsigned *n)
{
	*n = count_addresses(addresses);
	if (*n < 1 || *n > PORTS_ADDRESSES_MAX)
		return -EINVAL;
	for (unsigned i = 0; i < *n; i++) {
		fds[i] = PORTS_FD_LISTEN + (int)i;
		if (!listens(fds[i]))
			return -ENOTSOCK;
	}
	return 0;
}

/* --- steering ------------------------------------------------------------------------------------------------------------ */

/* A number below the count of bits, by chance -> the number of that bit. Returns the filter's length. */
static unsigned write_filter(uint64_t mask, struct sock_filter *code)
{
	unsigned n = 0, nth = 0;

	code[n++] = (struct sock_filter)BPF_STMT(
		BPF_LD | BPF_W | BPF_ABS, (unsigned)(SKF_AD_OFF + SKF_AD_RANDOM));
	code[n++] = (struct sock_filter)BPF_STMT(
		BPF_ALU | BPF_MOD | BPF_K, (unsigned)__builtin_popcountll(mask));
	for (unsigned i = 0; i < SHARED_SLOTS_MAX; i++) {
		if (!(mask >> i & 1))
			continue;
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nth++, 0, 1);
		code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, i);
	}
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
	return n;
}

/* Where it cannot be done the kernel deals to all, as ever. */
static void put_filter(const int *fds, unsigned n, uint64_t mask)
{
	struct sock_filter code[2 * SHARED_SLOTS_MAX + 3];
	struct sock_fprog filter = {(unsigned short)write_filter(mask, code), code};

	for (unsigned i = 0; i < n; i++)
		(void)setsockopt(
			fds[i], SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &filter, sizeof(filter));
}

void ports_steer(const int *fds, unsigned n, const struct shared *shared)
{
	uint64_t all = ~UINT64_C(0) >> (SHARED_SLOTS_MAX - shared_n_slots(shared)), live;

	do {
		live = shared_live(shared) & all;
		put_filter(fds, n, live ? live : all);
	} while ((shared_live(shared) & all) != live);
}
