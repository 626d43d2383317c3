/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire - what the executor, conclave-box and the pid 1 of each slot say to each other: one fixed-size message a
 * packet over SOCK_SEQPACKET, with descriptors beside it. Both ends are ours and from the same build (`magic`
 * carries the version), so it is a plain struct. libc only: conclave-box is built from this file too.
 *
 *   control socket                                       slot socket
 *   helper   -> HELLO (once; error: why not)             slot     -> READY | FAILED
 *   executor -> SLOT_OPEN id                             executor -> RUN + payload, stdout, stderr, ...
 *   helper   -> SLOT_MADE id + slot socket, readings     slot     -> STARTED
 *   executor -> SLOT_CLOSE id                            slot     -> ENDED (everything is dead) | FAILED
 *   helper   -> SLOT_GONE id, last readings              slot     -> COLLECTED, if RUN asked for it
 */
#pragma once

#include <stdint.h>

#include "proc/box/cgroup.h"
#include "reactor/base/check.h"

#define WIRE_MAGIC UINT32_C(0x434e4234) /* raise the last byte with every change of struct wire */
#define WIRE_TEXT_MAX 512
#define WIRE_FDS_MAX 8
#define WIRE_PAYLOAD_MAX (256 * 1024) /* argv and environment, with their NULs */

enum wire_type {
	WIRE_HELLO = 1,
	WIRE_SLOT_OPEN,
	WIRE_SLOT_MADE,
	WIRE_SLOT_CLOSE,
	WIRE_SLOT_GONE,
	WIRE_READY,
	WIRE_RUN,
	WIRE_STARTED,
	WIRE_ENDED,
	WIRE_COLLECTED,
	WIRE_FAILED,
};

/* What conclave-box is, and so what its slots are. */
enum wire_tier {
	WIRE_TIER_ROOT,
	WIRE_TIER_IDS,    /* an ordinary user's, with an id for each slot */
	WIRE_TIER_ONE_ID, /* ... with his own id for everything */
	WIRE_TIERS,
};

enum wire_run_flags {
	WIRE_RUN_STDIN = 1,     /* a descriptor for it is there; else /dev/null */
	WIRE_RUN_FILES = 2,     /* a bundle is there */
	WIRE_RUN_COLLECT = 4,   /* a memfd to collect into is there */
	WIRE_RUN_READ_ONLY = 8, /* the bundle's files belong to root */
};

/* Descriptors of RUN: payload, stdout, stderr, then those of the flags, in the order of the flags. */
struct wire_run {
	uint32_t flags;
	uint32_t n_argv, n_env; /* strings in the payload, one behind the other */
	uint32_t payload_size;
	uint64_t collect_max;
	int64_t cpu_us, memory_bytes, file_bytes, processes, stack_bytes;
};

struct wire {
	uint32_t magic;
	uint32_t type;
	uint64_t id;
	int32_t error;       /* negative errno, with `text` in words; 0 */
	uint32_t cgroup_row; /* HELLO: which rules the readings follow */
	union {
		struct wire_run run;
		uint32_t tier; /* HELLO; with an ordinary user, `text` is why it is no better */
		struct {
			uint32_t
				readings; /* bits of enum cgroup_reading whose descriptors follow the socket */
		} made;
		struct cgroup_sample sample; /* SLOT_GONE */
		int64_t own_cpu_us; /* STARTED: in the counter, but ours, not the program's */
		struct {
			int64_t wall_us;
			int32_t status; /* of waitpid() */
		} ended;
	};
	char text[WIRE_TEXT_MAX];
};

/* 0, -EAGAIN when the socket is full, -errno. Descriptors stay the caller's. */
int wire_send(int socket, const struct wire *message, const int *fds, unsigned n_fds) must_check;
/* 0 with a whole message of the right version and its descriptors (now owned by the caller; close-on-exec);
 * -EAGAIN on a non-blocking socket, -ECONNRESET at EOF, -EPROTO for anything else than our messages. */
int wire_receive(
	int socket, struct wire *message, int fds[WIRE_FDS_MAX], unsigned *n_fds) must_check;
void wire_close_fds(int *fds, unsigned n_fds); /* closes those >= 0 and leaves -1 */
