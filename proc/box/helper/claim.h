/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim - which uids and cgroup names are ours: a range of CLAIM_SLOTS uids, locked for as long as we live. The first
 * choice follows from the run directory, so the next start with the same one finds and sweeps what a crash left;
 * a range taken by somebody else is passed over.
 */
#pragma once

#include <sys/types.h>

#include "reactor/base/check.h"

#define CLAIM_DIR "/run/conclave-box" /* root's alone */
#define CLAIM_SLOTS 256u
#define CLAIM_RANGES 1024u
#define CLAIM_UID_BASE                                                                             \
	2000000000u /* far above users, containers' subuids and systemd's dynamic ranges */
#define CLAIM_WHY_MAX 256

struct claim {
	int lock_fd; /* flock()ed: closing it gives the range up */
	unsigned range;
	uid_t uid_base; /* slot i runs as uid and gid uid_base + i */
	char group[64]; /* name of our control group */
};

/* 0, or -errno with *why in words. Makes CLAIM_DIR. */
int claim_open(struct claim *claim, const char *run_dir, char why[CLAIM_WHY_MAX]) must_check;
