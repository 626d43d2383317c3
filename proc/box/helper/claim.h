/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim - which uids and cgroup names are ours: a range of CLAIM_SLOTS uids, locked for as long as we live. The first
 * choice follows from the run directory, so the next start with the same one finds and sweeps what a crash left;
 * a range taken by somebody else is passed over.
 *
 * An ordinary user claims by an abstract socket instead of a file: there is no directory that is his before anything of his runs.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "reactor/base/check.h"

#define CLAIM_DIR "/run/conclave-box" /* root's alone */
#define CLAIM_SLOTS 256u
#define CLAIM_RANGES 1024u
#define CLAIM_UID_BASE                                                                             \
	2000000000u /* far above users, containers' subuids and systemd's dynamic ranges */
#define CLAIM_WHY_MAX 256

struct claim {
	int lock_fd; /* flock()ed, or bound: closing it gives the range up */
	unsigned range;
	uid_t uid_base; /* slot i runs as uid and gid uid_base + i, as it sees itself */
	char group[64]; /* name of our control group */
};

/* 0, or -errno with *why in words. Root: makes CLAIM_DIR. */
int claim_open(struct claim *claim, const char *run_dir, char why[CLAIM_WHY_MAX]) must_check;
/* The same for an ordinary user, whose numbers allow `ranges` of them. */
int claim_open_user(struct claim *claim, const char *run_dir, uid_t user, unsigned ranges,
	char why[CLAIM_WHY_MAX]) must_check;
