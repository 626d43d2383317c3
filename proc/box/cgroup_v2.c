/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup v2: one hierarchy; memory and pids must be delegated to our own group (systemd: Delegate=yes).
 *
 *   <our own cgroup>                 subtree_control +memory +pids
 *     conclave-daemon                we ourselves, moved here if need be
 *     conclave-box-<range>           subtree_control +memory +pids
 *       s<index>                     one leaf a slot: the program only; its pid 1 stays where we are
 *
 * A group that hands controllers to its children may hold no processes itself, so when the kernel answers EBUSY
 * everything in our own group moves into conclave-daemon first. A second conclave-box started from there finds
 * itself in that leaf and works in its parent.
 *
 * Leaves are never reused after a kill, and programs join by cgroup.procs, not by CLONE_INTO_CGROUP: after one write
 * to cgroup.kill kernels of 2025 kill every later child cloned into that group at birth.
 *
 * oom_kill counts members killed by any OOM killer, the whole machine's included; oom counts in the group whose limit was
 * reached.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proc/box/cgroup.h"

#define DAEMON_LEAF "conclave-daemon"
#define ENABLE "+memory +pids"
#define MOVE_ROUNDS 10

static const struct cgroup_file readings[] = {
	{0, "cpu.stat", CGROUP_CPU},
	{0, "memory.peak", CGROUP_PEAK},
	{0, "memory.events", CGROUP_OOM},
	{0, "pids.events", CGROUP_PIDS},
};

static const struct cgroup_file limits[] = {
	{0, "memory.max", CGROUP_MEMORY_MAX},
	{0, "memory.swap.max", CGROUP_SWAP_MAX},
	{0, "pids.max", CGROUP_PIDS_MAX},
};

static bool has_word(const char *words, const char *want)
{
	size_t n = strlen(want);

	for (const char *p = words; (p = strstr(p, want)); p += n) {
		if ((p == words || p[-1] == ' ') && strchr(" \n", p[n]))
			return true;
	}
	return false;
}

/* Moves every process of `from` into `to`; a few rounds, as some may fork meanwhile. */
static int move_members(int from, int to)
{
	char text[4096];
	int error = 0;

	for (int round = 0; round < MOVE_ROUNDS; round++) {
		char *save = NULL;
		error = cgroup_read(from, "cgroup.procs", text, sizeof(text));
		if (error < 0 || text[0] == '\0')
			return error;
		for (char *pid = strtok_r(text, "\n", &save); pid;
			pid = strtok_r(NULL, "\n", &save)) {
			error = cgroup_write(to, "cgroup.procs", pid);
			if (error < 0 && error != -ESRCH)
				return error;
		}
	}
	return -EBUSY;
}

static int enable_in(int dir, char why[CGROUP_WHY_MAX])
{
	int error = cgroup_write(dir, "cgroup.subtree_control", ENABLE);

	if (error == -EBUSY) {
		int leaf;
		if (mkdirat(dir, DAEMON_LEAF, 0755) < 0 && errno != EEXIST)
			return -errno;
		leaf = openat(dir, DAEMON_LEAF, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (leaf < 0)
			return -errno;
		error = move_members(dir, leaf);
		close(leaf);
		if (error == 0)
			error = cgroup_write(dir, "cgroup.subtree_control", ENABLE);
	}
	if (error < 0)
		snprintf(why, CGROUP_WHY_MAX,
			"cannot hand memory and pids to our own cgroup's children: %s; "
			"run as root in a group of our own (systemd: Delegate=yes)",
			strerror(-error));
	return error;
}

/* Our own group, or its parent when we already sit in the leaf for daemons. */
static int open_own(const struct cgroup_mount *mount)
{
	char own[256];
	size_t leaf = strlen("/" DAEMON_LEAF), n;
	int fd = cgroup_open_own(mount, "");
	int up;

	if (fd < 0 || !cgroup_own_path("", own))
		return fd;
	n = strlen(own);
	if (n < leaf || strcmp(own + n - leaf, "/" DAEMON_LEAF) != 0)
		return fd;
	up = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	close(fd);
	return up < 0 ? -errno : up;
}

static int find(struct cgroup *g, char why[CGROUP_WHY_MAX])
{
	struct cgroup_mount mount;
	char controllers[512];
	int error;

	if (!cgroup_find_mount("cgroup2", NULL, &mount)) {
		snprintf(why, CGROUP_WHY_MAX, "cgroup2 is not mounted");
		return -ENOENT;
	}
	g->parents[0] = open_own(&mount);
	if (g->parents[0] < 0) {
		error = g->parents[0];
		snprintf(why, CGROUP_WHY_MAX, "cannot open our own group under %.200s: %s",
			mount.point, strerror(-error));
		return error;
	}
	g->n_trees = 1;
	error = cgroup_read(g->parents[0], "cgroup.controllers", controllers, sizeof(controllers));
	if (error == 0 && (!has_word(controllers, "memory") || !has_word(controllers, "pids")))
		error = -ENOENT;
	if (error < 0) {
		snprintf(why, CGROUP_WHY_MAX,
			"our own group under %.200s has no memory and pids controllers",
			mount.point);
		return error;
	}
	return enable_in(g->parents[0], why);
}

static int enable(struct cgroup *g, char why[CGROUP_WHY_MAX])
{
	return enable_in(g->groups[0], why);
}

const struct cgroup_ops cgroup_v2 = {
	.name = "v2",
	.find = find,
	.enable = enable,
	.readings = readings,
	.n_readings = ARRAY_SIZE(readings),
	.limits = limits,
	.n_limits = ARRAY_SIZE(limits),
	.cpu_key = "usage_usec",
	.limit_oom_key = "oom",
	.swap_is_total = false,
};
