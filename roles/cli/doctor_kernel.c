/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_kernel - what the kernel offers us: rights, namespaces, control groups, seccomp, core dumps. What the sandbox truly can do
 * is tried in doctor_judge.c; these checks say why not.
 */
#include "roles/cli/doctor.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proc/box/cgroup.h"
#include "reactor/base/mem.h"

#define LINE_MAX_BYTES 512

void doctor_user(struct doctor *d)
{
	if (geteuid() == 0)
		doctor_add(d, FINDING_OK, NULL,
			"root: boot keeps root, the services drop it. What an ordinary user would "
			"get, doctor tells when he runs it");
	else
		doctor_add(d, FINDING_WARN, "sudo judicator --standalone",
			"uid %ld: a judge of yours works through user namespaces; the lines below "
			"say how well",
			(long)geteuid());
}

/* A sysctl that must not be the value. */
static bool refuse_sysctl(struct doctor *d, enum finding finding, const char *path, const char *bad,
	const char *what, const char *advice)
{
	char line[LINE_MAX_BYTES];

	if (!doctor_read_line(path, line, sizeof(line)) || strcmp(line, bad) != 0)
		return false;
	doctor_add(d, finding, advice, "%s", what);
	return true;
}

static bool user_namespaces_are_refused(struct doctor *d)
{
	bool refused = false;

	refused |= refuse_sysctl(d, FINDING_FAIL, "/proc/sys/user/max_user_namespaces", "0",
		"user namespaces are switched off",
		"sudo sysctl -w user.max_user_namespaces=15000");
	refused |= refuse_sysctl(d, FINDING_FAIL, "/proc/sys/kernel/unprivileged_userns_clone", "0",
		"user namespaces are for root only",
		"sudo sysctl -w kernel.unprivileged_userns_clone=1");
	refused |= refuse_sysctl(d, FINDING_WARN,
		"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
		"AppArmor may refuse user namespaces to programs without a profile",
		"sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
	return refused;
}

void doctor_namespaces(struct doctor *d)
{
	static const char *const kinds[] = {"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"};
	struct buf missing cleanup(buf_fini) = BUF_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		char *path cleanup(mem_freep) = mem_printf("/proc/self/ns/%s", kinds[i]);

		if (access(path, F_OK) != 0)
			buf_addf(&missing, " %s", kinds[i]);
	}
	if (missing.len)
		doctor_add(d, FINDING_FAIL, "mount /proc, or use a kernel with namespaces",
			"this kernel lacks:%s", missing.data);
	else if (geteuid() == 0 || !user_namespaces_are_refused(d))
		doctor_add(d, FINDING_OK, NULL, "cgroup ipc mnt net pid user uts");
}

/* systemd delegates v2 only; a group of v1 has to be given by hand. */
static const char *cgroup_advice(void)
{
	struct cgroup_mount mount;

	if (cgroup_find_mount("cgroup", "memory", &mount))
		return "for c in memory pids cpuacct; do g=/sys/fs/cgroup/$c/conclave-$USER; sudo "
		       "mkdir -p "
		       "$g && sudo chown -R $USER $g && echo $$ | sudo tee $g/cgroup.procs; done; "
		       "then "
		       "from the same shell: judicator --standalone";
	return "loginctl enable-linger; systemd-run --user --scope -p Delegate=yes judicator "
	       "--standalone";
}

/* Which hierarchy a slot's groups will be made in, as conclave-box chooses it; nothing is made. */
void doctor_cgroups(struct doctor *d)
{
	struct buf reasons cleanup(buf_fini) = BUF_INIT;
	const struct cgroup_ops *ops;

	for (unsigned i = 0; (ops = cgroup_row(i)) && !ops->leaf_open; i++) {
		struct cgroup g = {.ops = ops};
		char why[CGROUP_WHY_MAX] = "";
		int rc = ops->find(&g, why);
		bool writable = true;

		for (unsigned t = 0; !rc && t < g.n_trees; t++) {
			writable &= faccessat(g.parents[t], "cgroup.procs", W_OK, AT_EACCESS) == 0;
			close(g.parents[t]);
		}
		if (!rc && writable) {
			doctor_add(d, FINDING_OK, NULL, "%s: memory and processes can be limited",
				ops->name);
			return;
		}
		buf_addf(&reasons, "%s%s: %s", reasons.len ? "; " : "", ops->name,
			rc ? why : "our own group is not ours to write");
	}
	if (geteuid() == 0)
		doctor_add(d, FINDING_FAIL, "mount -t cgroup2 none /sys/fs/cgroup", "%s",
			reasons.len ? reasons.data : "none");
	else
		doctor_add(d, FINDING_WARN, cgroup_advice(), "%s",
			reasons.len ? reasons.data : "none");
}

void doctor_seccomp(struct doctor *d)
{
	char line[LINE_MAX_BYTES];

	if (!doctor_read_line("/proc/sys/kernel/seccomp/actions_avail", line, sizeof(line)))
		doctor_add(d, FINDING_FAIL, "use a kernel with CONFIG_SECCOMP_FILTER",
			"this kernel filters no system calls");
	else
		doctor_add(d, FINDING_OK, NULL, "%s", line);
}

void doctor_core_pattern(struct doctor *d)
{
	char line[LINE_MAX_BYTES];

	if (!doctor_read_line("/proc/sys/kernel/core_pattern", line, sizeof(line)))
		doctor_add(d, FINDING_WARN, "mount /proc", "core_pattern cannot be read");
	else if (line[0] == '|')
		doctor_add(d, FINDING_WARN, "sysctl -w kernel.core_pattern=core",
			"go to a program of the host (%s); the sandbox keeps submissions from it, "
			"executor.box = none does not",
			line);
	else
		doctor_add(
			d, FINDING_OK, NULL, "go to files (%s), and the sandbox writes none", line);
}
