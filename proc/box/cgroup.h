/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup - the leaf control groups that hold one slot's programs: memory and process limits, and the counters the
 * verdict is made from. One row a kernel interface: v1 (also on hybrid hosts) and v2; and one, "polled", that does without, for an
 * ordinary user to whom nothing was delegated.
 *
 * Three parties use it. conclave-box makes and removes leaves. The pid 1 of a slot sets the limits of a run through
 * descriptors it inherited, and the program joins through inherited cgroup.procs descriptors (by a
 * launcher, ahead of the run): pid 1 itself stays outside, so its work is not charged to the program. The executor, as an ordinary user, reads the counters
 * through descriptors passed to it. libc only: conclave-box is built from these files too.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reactor/base/check.h"

#define CGROUP_TREES_MAX 3
#define CGROUP_WHY_MAX 512

enum cgroup_reading { CGROUP_CPU, CGROUP_PEAK, CGROUP_OOM, CGROUP_PIDS, CGROUP_READINGS };
enum cgroup_limit { CGROUP_MEMORY_MAX, CGROUP_SWAP_MAX, CGROUP_PIDS_MAX, CGROUP_LIMITS };

struct cgroup_sample {
	int64_t cpu_us;
	int64_t memory_bytes;  /* peak */
	uint64_t oom_kills;    /* of members, by whichever limit or shortage */
	uint64_t limit_ooms;   /* times the leaf's own limit left no way out ... */
	bool has_limit_ooms;   /* ... if the kernel counts that */
	uint64_t pids_refused; /* forks refused by the limit */
};

/* Descriptors of one leaf; -1 where the kernel has no such file. */
struct cgroup_leaf {
	int procs[CGROUP_TREES_MAX]; /* writing "0" moves the writer in */
	int limits[CGROUP_LIMITS];
	int readings[CGROUP_READINGS];
	int meter; /* written by the slot's pid 1, which counts; -1: the kernel does */
};

struct cgroup {
	const struct cgroup_ops *ops;
	unsigned n_trees;
	int parents[CGROUP_TREES_MAX]; /* where our group is made, in each hierarchy */
	int groups[CGROUP_TREES_MAX];  /* our group, holding the leaves */
	char name[64];
};

/* Which file of a leaf is what; `tree` indexes parents[] and groups[]. */
struct cgroup_file {
	unsigned tree;
	const char *name;
	int kind; /* of enum cgroup_reading or cgroup_limit */
};

struct cgroup_ops {
	const char *name; /* "v1", "v2", "polled" */
	/* Finds the hierarchies and fills n_trees and parents[]; -ENOENT when this kernel interface is not there,
	 * another -errno when it is but cannot be used: both with *why in words. */
	int (*find)(struct cgroup *g, char why[CGROUP_WHY_MAX]);
	/* Runs after our groups were made, to switch controllers on for leaves; may be NULL. */
	int (*enable)(struct cgroup *g, char why[CGROUP_WHY_MAX]);
	/* A leaf that is no directory; NULL: it is one. */
	int (*leaf_open)(struct cgroup_leaf *leaf);
	const struct cgroup_file *readings, *limits;
	unsigned n_readings, n_limits;
	const char *cpu_key; /* line of the CPU file holding us; NULL: the file is nanoseconds */
	/* Line of the OOM file that counts the leaf's own out-of-memory states only; NULL: there is none. */
	const char *limit_oom_key;
	bool swap_is_total; /* the swap limit counts memory too (v1), or swap alone (v2) */
};

extern const struct cgroup_ops cgroup_v1;
extern const struct cgroup_ops cgroup_v2;
extern const struct cgroup_ops cgroup_polled;
/* Rows by number (what the wire carries); NULL past the end. */
const struct cgroup_ops *cgroup_row(unsigned index);
unsigned cgroup_row_index(const struct cgroup_ops *ops);

/* conclave-box: takes the first usable row, makes our group `name` in it and removes whatever an earlier owner of
 * the name left behind (its processes are killed). 0, or -errno with *why saying what to do. */
int cgroup_open(struct cgroup *g, const char *name, char why[CGROUP_WHY_MAX]) must_check;
/* The row without control groups; cannot fail. */
void cgroup_open_polled(struct cgroup *g);
/* Removes our groups if they are empty, closes. Idempotent. */
void cgroup_close(struct cgroup *g);
/* A fresh leaf; nothing is left behind on failure. */
int cgroup_leaf_open(struct cgroup *g, unsigned index, struct cgroup_leaf *out) must_check;
void cgroup_leaf_close(struct cgroup_leaf *leaf); /* descriptors only; idempotent */
/* 0 when it is gone; -EBUSY while something still dies in it. */
int cgroup_leaf_remove(struct cgroup *g, unsigned index) must_check;

/* pid 1 of the slot, before the program joins. */
int cgroup_leaf_limit(const struct cgroup_ops *ops, const struct cgroup_leaf *leaf,
	int64_t memory_bytes, int64_t processes) must_check;

/* Anybody with the descriptors. Files the kernel lacks read as 0. */
int cgroup_sample(const struct cgroup_ops *ops, const int readings[CGROUP_READINGS],
	struct cgroup_sample *out) must_check;
int cgroup_cpu_us(const struct cgroup_ops *ops, int fd, int64_t *out) must_check;

/* Row "polled", by the slot's pid 1: what it has counted so far. */
int cgroup_meter_write(int meter, const struct cgroup_sample *sample) must_check;

/* For rows. */
struct cgroup_mount {
	char point[256];
	char root[256];
};
/* The mount of file system `type` whose options include `option` (NULL = any); false when there is none. */
bool cgroup_find_mount(const char *type, const char *option, struct cgroup_mount *out) must_check;
/* Path of our own process in the hierarchy of `controller` ("" = v2); false when not listed. */
bool cgroup_own_path(const char *controller, char out[256]) must_check;
/* Opens the directory of our own process under the mount, or the mount's root when that is not visible. */
int cgroup_open_own(const struct cgroup_mount *m, const char *controller) must_check;
int cgroup_write(int dir, const char *file, const char *value) must_check;
int cgroup_read(int dir, const char *file, char *out, size_t size) must_check;
