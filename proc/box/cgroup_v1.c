/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup v1: three hierarchies (memory, pids, cpuacct), which may be mounted together or apart; also right
 * for hybrid hosts, whose controllers are here.
 *
 * Facts the choice of files rests on: cpuacct.usage counts every descendant in nanoseconds; the oom_kill line of
 * memory.oom_control is the only exact sign of an OOM kill (failcnt stays 0 when memory and memsw limits are equal,
 * and counts plain reclaim otherwise); a peak at the limit is no sign, page cache reaches it too. But the line counts members killed by any OOM killer, and a
 * peak far from the limit does tell that it was not the limit's.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proc/box/cgroup.h"

enum tree { MEMORY, PIDS, CPUACCT, TREES };

static const char *const controllers[TREES] = {"memory", "pids", "cpuacct"};

static const struct cgroup_file readings[] = {
	{CPUACCT, "cpuacct.usage", CGROUP_CPU},
	{MEMORY, "memory.max_usage_in_bytes", CGROUP_PEAK},
	{MEMORY, "memory.oom_control", CGROUP_OOM},
	{PIDS, "pids.events", CGROUP_PIDS},
};

static const struct cgroup_file limits[] = {
	{MEMORY, "memory.limit_in_bytes", CGROUP_MEMORY_MAX},
	{MEMORY, "memory.memsw.limit_in_bytes", CGROUP_SWAP_MAX},
	{PIDS, "pids.max", CGROUP_PIDS_MAX},
};

static int find(struct cgroup *g, char why[CGROUP_WHY_MAX])
{
	struct cgroup_mount mount;

	for (unsigned t = 0; t < TREES; t++) {
		if (!cgroup_find_mount("cgroup", controllers[t], &mount)) {
			snprintf(why, CGROUP_WHY_MAX, "controller %s is not mounted",
				controllers[t]);
			return -ENOENT;
		}
		g->parents[t] = cgroup_open_own(&mount, controllers[t]);
		if (g->parents[t] < 0) {
			int error = g->parents[t];
			snprintf(why, CGROUP_WHY_MAX, "cannot open our %s group under %.200s: %s",
				controllers[t], mount.point, strerror(-error));
			return error;
		}
		g->n_trees = t + 1;
	}
	return 0;
}

const struct cgroup_ops cgroup_v1 = {
	.name = "v1",
	.find = find,
	.readings = readings,
	.n_readings = ARRAY_SIZE(readings),
	.limits = limits,
	.n_limits = ARRAY_SIZE(limits),
	.cpu_key = NULL,
	.limit_oom_key = NULL,
	.swap_is_total = true,
};
