/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What web workers have in common: the memory (shared) and the listening sockets with their steering (ports).
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "cfg/cfg.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "roles/gateway/gateway_int.h"
#include "roles/gateway/ports.h"

#define NOW_US (1000 * US_PER_S)

/* --- memory ------------------------------------------------------------------------------------------------------------ */

struct pair {
	struct shared *mine, *other; /* the same memory, mapped twice */
};

static int setup(void **state)
{
	struct pair *p = mem_alloc(sizeof(*p));

	assert_int_equal(shared_new(3, &p->mine), 0);
	assert_int_equal(shared_open(shared_fd(p->mine), &p->other), 0);
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	struct pair *p = *state;

	shared_free(p->other);
	shared_free(p->mine);
	free(p);
	return 0;
}

static void counters_outlive_a_worker(void **state)
{
	struct pair *p = *state;
	struct metrics_slot *slot = shared_slot(p->other, 1);

	assert_int_equal(shared_n_slots(p->other), 3);
	metrics_add(&slot->metrics.adds[1], 7);
	metrics_set(&slot->now.waiting, 5);
	metrics_set(&slot->now.body_bytes, 5);
	metrics_set(&slot->now.done_cache_bytes, 5);
	shared_slot_ended(p->mine, 1, false);
	assert_int_equal(slot->metrics.adds[1], 7);
	assert_int_equal(slot->now.waiting + slot->now.body_bytes + slot->now.done_cache_bytes, 0);
	assert_int_equal(shared_restarts(p->other), 1);
	shared_slot_ended(p->mine, 1, true);
	assert_int_equal(shared_restarts(p->other), 1);
	assert_int_equal(shared_slot(p->mine, 0)->metrics.adds[1], 0);
}

static void knows_who_serves(void **state)
{
	struct pair *p = *state;

	assert_int_equal(shared_live(p->mine), 0);
	assert_int_equal(shared_set_live(p->mine, 0, true), 1);
	assert_int_equal(shared_set_live(p->other, 2, true), 5);
	shared_slot_ended(p->mine, 0, false);
	assert_int_equal(shared_live(p->other), 4);
}

static int64_t charge(struct shared *s, const struct token *token, int64_t now_us)
{
	return token_charge(token, shared_bucket(s, token->digest, now_us), now_us);
}

static void a_rate_is_one_for_all_workers(void **state)
{
	struct pair *p = *state;
	struct token a = {.digest = {1, 2, 3}, .rate_n = 3, .rate_us = US_PER_S};
	struct token b = {.digest = {1, 2, 4}, .rate_n = 3, .rate_us = US_PER_S};

	assert_int_equal(charge(p->mine, &a, NOW_US), 0);
	assert_int_equal(charge(p->other, &a, NOW_US), 0);
	assert_int_equal(charge(p->mine, &a, NOW_US), 0);
	assert_int_not_equal(charge(p->other, &a, NOW_US), 0);
	assert_int_equal(charge(p->other, &b, NOW_US), 0);
	assert_int_equal(charge(p->other, &a, NOW_US + US_PER_S), 0);
}

/* A token whose rate was slower before is not made to wait by what it owes from then. */
static void a_new_rate_counts_at_once(void **state)
{
	struct pair *p = *state;
	struct token token = {.digest = {9}, .rate_n = 1, .rate_us = 3600 * US_PER_S};

	assert_int_equal(charge(p->mine, &token, NOW_US), 0);
	assert_int_not_equal(charge(p->mine, &token, NOW_US), 0);
	token.rate_us = US_PER_S;
	assert_true(charge(p->mine, &token, NOW_US) <= US_PER_S);
	assert_int_equal(charge(p->mine, &token, NOW_US), US_PER_S);
}

static void digest_of(unsigned i, unsigned generation, unsigned char out[TOKEN_DIGEST])
{
	uint64_t word = (i + UINT64_C(100000) * generation + 1) * UINT64_C(0x9e3779b97f4a7c15);

	memset(out, 0, TOKEN_DIGEST);
	memcpy(out, &word, sizeof(word));
}

/* As many tokens as a file may have, many files in a row: each has a bucket of its own. */
static void as_many_buckets_as_tokens(void **state)
{
	struct pair *p = *state;
	int64_t now_us = NOW_US;

	for (unsigned generation = 0; generation < 20; generation++, now_us += 10 * US_PER_S) {
		struct token token = {.rate_n = 1, .rate_us = US_PER_S};

		for (unsigned i = 0; i < TOKENS_MAX; i++) {
			digest_of(i, generation, token.digest);
			assert_int_equal(charge(i % 2 ? p->mine : p->other, &token, now_us), 0);
		}
		for (unsigned i = 0; i < TOKENS_MAX; i++) {
			digest_of(i, generation, token.digest);
			assert_int_equal(charge(p->mine, &token, now_us), US_PER_S);
		}
	}
}

static void users_are_the_same_for_all(void **state)
{
	struct pair *p = *state;
	struct shared_user *alice = shared_user(p->mine, "alice");
	struct shared_user *bob = shared_user(p->other, "bob");

	assert_ptr_not_equal(alice, shared_user(p->mine, "bob"));
	alice->added = 3;
	alice->adding[0] = 1;
	alice->adding[2] = 2;
	bob->adding[0] = 4;
	assert_int_equal(shared_user(p->other, "alice")->added, 3);
	assert_int_equal(shared_user_adding(shared_user(p->other, "alice")), 3);
	shared_slot_ended(p->mine, 0, false);
	assert_int_equal(shared_user_adding(alice), 2);
	assert_int_equal(shared_user_adding(bob), 0);
	assert_int_equal(alice->added, 3);
}

static void strangers_are_refused(void **state)
{
	struct pair *p = *state;
	struct shared *s = NULL;
	int fd = memfd_create("stranger", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct shared *other;
	off_t size;

	assert_int_equal(shared_open(fd, &s), -EINVAL);
	assert_int_equal(shared_open(-1, &s), -EINVAL);
	assert_int_equal(shared_new(2, &other), 0);
	size = lseek(shared_fd(other), 0, SEEK_END);
	shared_free(other);
	assert_int_equal(ftruncate(fd, size), 0);
	assert_int_equal(shared_open(fd, &s), -EINVAL); /* it could shrink */
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	assert_int_equal(shared_open(fd, &s), -EINVAL); /* nothing in it */
	close(fd);
	assert_int_equal(ftruncate(shared_fd(p->mine), 0), -1);
}

/* --- sockets --------------------------------------------------------------------------------------------------------------- */

#define WORKERS 3
#define TRIES 120

struct deal {
	struct shared *shared;
	struct ports ports;
	unsigned port;
	int clients[TRIES];
};

static int setup_ports(void **state)
{
	struct deal *d = mem_alloc(sizeof(*d));
	struct sockaddr_in at;
	socklen_t len = sizeof(at);

	assert_int_equal(shared_new(WORKERS, &d->shared), 0);
	assert_int_equal(ports_open(&d->ports, "127.0.0.1:0, 127.0.0.2:0", WORKERS, NULL), 0);
	assert_int_equal(d->ports.n_addresses, 2);
	assert_int_equal(getsockname(d->ports.fds[0], (struct sockaddr *)&at, &len), 0);
	d->port = ntohs(at.sin_port);
	*state = d;
	return 0;
}

static int teardown_ports(void **state)
{
	struct deal *d = *state;

	ports_close(&d->ports);
	ports_close(&d->ports);
	shared_free(d->shared);
	free(d);
	return 0;
}

static void connect_all(struct deal *d)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)d->port)};

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (unsigned i = 0; i < TRIES; i++) {
		d->clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(d->clients[i], (struct sockaddr *)&at, sizeof(at)), 0);
	}
}

static unsigned accept_all(const struct deal *d, unsigned worker)
{
	unsigned n = 0;
	int fd;

	while ((fd = accept4(d->ports.fds[worker * d->ports.n_addresses], NULL, NULL,
			SOCK_CLOEXEC)) >= 0) {
		close(fd);
		n++;
	}
	assert_int_equal(errno, EAGAIN);
	return n;
}

/* How many connections each worker was dealt. */
static void deal(struct deal *d, unsigned got[WORKERS])
{
	ports_steer(d->ports.fds, d->ports.n_addresses, d->shared);
	connect_all(d);
	for (unsigned i = 0; i < WORKERS; i++)
		got[i] = accept_all(d, i);
	for (unsigned i = 0; i < TRIES; i++)
		close(d->clients[i]);
}

static void deals_to_those_who_serve(void **state)
{
	struct deal *d = *state;
	unsigned got[WORKERS];

	shared_set_live(d->shared, 1, true);
	deal(d, got);
	assert_int_equal(got[1], TRIES);
	shared_set_live(d->shared, 0, true);
	shared_set_live(d->shared, 2, true);
	shared_set_live(d->shared, 1, false);
	deal(d, got);
	assert_int_equal(got[1], 0);
	assert_int_equal(got[0] + got[2], TRIES);
	assert_true(got[0] > 0 && got[2] > 0);
}

static void deals_to_all_while_nobody_serves(void **state)
{
	struct deal *d = *state;
	unsigned got[WORKERS];

	deal(d, got);
	assert_int_equal(got[0] + got[1] + got[2], TRIES);
	assert_true(got[0] > 0 && got[1] > 0 && got[2] > 0);
}

static void nobody_else_gets_in(void **state)
{
	struct deal *d = *state;
	struct ports other;
	char address[32];

	snprintf(address, sizeof(address), "127.0.0.1:%u", d->port);
	assert_int_equal(ports_open(&other, address, 2, NULL), -EADDRINUSE);
	assert_null(other.fds);
	assert_int_equal(ports_open(&other, "192.0.2.1:0", 2, NULL), -EADDRNOTAVAIL);
	assert_int_equal(ports_open(&other, " , ", 2, NULL), -EINVAL);
}

static void addresses_are_bounded(void **state)
{
	struct cfg_errors errors cleanup(cfg_errors_fini) = {BUF_INIT, 0};
	struct buf list cleanup(buf_fini) = BUF_INIT;

	for (unsigned i = 1; i <= PORTS_ADDRESSES_MAX; i++)
		buf_addf(&list, "127.0.0.%u:7000,", i);
	ports_check(list.data, &errors);
	assert_int_equal(errors.count, 0);
	buf_addf(&list, "127.0.0.99:7000");
	ports_check(list.data, &errors);
	assert_int_equal(errors.count, 1);
}

#define memory(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define sockets(test) cmocka_unit_test_setup_teardown(test, setup_ports, teardown_ports)

int main(void)
{
	const struct CMUnitTest tests[] = {
		memory(counters_outlive_a_worker),
		memory(knows_who_serves),
		memory(a_rate_is_one_for_all_workers),
		memory(a_new_rate_counts_at_once),
		memory(as_many_buckets_as_tokens),
		memory(users_are_the_same_for_all),
		memory(strangers_are_refused),
		sockets(deals_to_those_who_serve),
		sockets(deals_to_all_while_nobody_serves),
		sockets(nobody_else_gets_in),
		cmocka_unit_test(addresses_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
