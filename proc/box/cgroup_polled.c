/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Second best: no control groups. The pid 1 of each slot counts itself (helper/meter.c) and writes what it has counted into a memfd,
 * in the form of the kernel's files, so that whoever reads counters need not know. Every number has its full width: a
 * reader in the middle of a write sees digits of both, never half a line.
 *
 * Nothing here can fail to be there, so the row is taken only by who says so (cgroup_open_polled()).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proc/box/cgroup.h"

static int find(struct cgroup *g, char why[CGROUP_WHY_MAX])
{
	snprintf(why, CGROUP_WHY_MAX, "control groups are not used");
	return -ENOENT;
}

static int leaf_open(struct cgroup_leaf *leaf)
{
	const struct cgroup_sample nothing = {.has_limit_ooms = true};
	int error;

	leaf->meter = memfd_create("meter", MFD_CLOEXEC);
	if (leaf->meter < 0)
		return -errno;
	error = cgroup_meter_write(leaf->meter, &nothing);
	for (unsigned i = 0; i < CGROUP_READINGS && error == 0; i++) {
		leaf->readings[i] = fcntl(leaf->meter, F_DUPFD_CLOEXEC, 3);
		if (leaf->readings[i] < 0)
			error = -errno;
	}
	return error;
}

int cgroup_meter_write(int meter, const struct cgroup_sample *sample)
{
	char text[512];
	int n = snprintf(text, sizeof(text),
		"%020lld\nusage_usec %020lld\noom_kill %020llu\noom %020llu\nmax %020llu\n",
		(long long)sample->memory_bytes, (long long)sample->cpu_us,
		(unsigned long long)sample->oom_kills, (unsigned long long)sample->limit_ooms,
		(unsigned long long)sample->pids_refused);

	return pwrite(meter, text, (size_t)n, 0) == n ? 0 : -EIO;
}

const struct cgroup_ops cgroup_polled = {
	.name = "polled",
	.find = find,
	.leaf_open = leaf_open,
	.cpu_key = "usage_usec",
	.limit_oom_key = "oom",
};
