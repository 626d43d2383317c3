/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation.
 *
 * A map may name more than its writer's own number only when it is written by somebody with rights over the numbers: that is
 * what the setuid programs newuidmap and newgidmap are, and they look into /etc/subuid and /etc/subgid. They must be started from
 * outside the namespace, so a child is forked before it is entered, waits until it is, and runs both on its parent:
 *
 *   we:     fork ------ unshare(NEWUSER) -- close the pipe -------------- wait ----- no map yet? write the one-number map
 *   child:       wait for the pipe to close --- newuidmap, newgidmap --- exit
 *
 * Everything that keeps this from working (no tool, no range, no_new_privs) leaves the map empty, and the one-number map is written then.
 */
#include "proc/box/helper/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/box/helper/claim.h"

#define NEWUIDMAP "/usr/bin/newuidmap"
#define NEWGIDMAP "/usr/bin/newgidmap"
#define LINE_MAX_BYTES 512
#define FREE_IDS "1879048192-1879113727"

struct range {
	unsigned long start, count;
};

/* --- what the user may have --------------------------------------------------------------------------- */

/* The login name of a uid; /etc/passwd only, for a static program has no other. False when it is not there. */
static bool find_name(uid_t uid, char out[LINE_MAX_BYTES])
{
	FILE *f = fopen("/etc/passwd", "re");
	char line[LINE_MAX_BYTES];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		char *password = strchr(line, ':');
		char *number = password ? strchr(password + 1, ':') : NULL;
		if (!number || strtoul(number + 1, NULL, 10) != uid)
			continue;
		*password = '\0';
		memcpy(out, line, sizeof(line));
		found = true;
	}
	if (f)
		fclose(f);
	return found;
}

/* The first range of "who:start:count" in /etc/subuid or /etc/subgid that has room for a claim. */
static bool find_range(const char *file, uid_t uid, struct range *out)
{
	char number[32], name[LINE_MAX_BYTES] = "", line[LINE_MAX_BYTES], who[LINE_MAX_BYTES];
	FILE *f = fopen(file, "re");
	bool found = false;

	snprintf(number, sizeof(number), "%u", uid);
	if (!find_name(uid, name))
		name[0] = '\0';
	while (f && !found && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%511[^:]:%lu:%lu", who, &out->start, &out->count) != 3)
			continue;
		found = (strcmp(who, number) == 0 || strcmp(who, name) == 0) &&
			out->count >= CLAIM_SLOTS;
	}
	if (f)
		fclose(f);
	return found;
}

/* Both ranges, or false with what to type. A range nobody has by default: above those that useradd gives away. */
static bool find_ranges(struct userns *u, struct range *uids, struct range *gids)
{
	const char *const tools[] = {NEWUIDMAP, NEWGIDMAP};
	char name[LINE_MAX_BYTES];

	for (size_t i = 0; i < ARRAY_SIZE(tools); i++) {
		if (access(tools[i], X_OK) == 0)
			continue;
		snprintf(u->why_one_id, sizeof(u->why_one_id),
			"%s is not there: sudo apt-get install uidmap", tools[i]);
		return false;
	}
	if (find_range("/etc/subuid", u->uid, uids) && find_range("/etc/subgid", u->uid, gids))
		return true;
	if (!find_name(u->uid, name))
		snprintf(name, sizeof(name), "USER");
	snprintf(u->why_one_id, sizeof(u->why_one_id),
		"no subordinate ids: sudo usermod --add-subuids " FREE_IDS
		" --add-subgids " FREE_IDS " %.32s",
		name);
	return false;
}

/* --- maps --------------------------------------------------------------------------------------------- */

/* One write a map: the kernel takes no second. */
static int write_map(int dir, const char *path, const char *text)
{
	int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);
	int error = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		error = -errno;
	close(fd);
	return error;
}

static bool is_mapped(const char *map)
{
	char text[8];
	int fd = open(map, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));

	if (fd >= 0)
		close(fd);
	return n > 0;
}

/* newuidmap may have done its part when newgidmap refused: what is written stays. */
static int map_only_us(uid_t uid, gid_t gid)
{
	char text[64];
	/* Else a group that denies could be left. */
	int error = write_map(AT_FDCWD, "/proc/self/setgroups", "deny");

	snprintf(text, sizeof(text), "0 %u 1", gid);
	if (error == 0)
		error = write_map(AT_FDCWD, "/proc/self/gid_map", text);
	snprintf(text, sizeof(text), "0 %u 1", uid);
	if (error == 0 && !is_mapped("/proc/self/uid_map"))
		error = write_map(AT_FDCWD, "/proc/self/uid_map", text);
	return error;
}

int userns_map_one(int proc_fd, pid_t pid, uid_t inner, uid_t outer)
{
	static const char *const maps[] = {"gid_map", "uid_map"};
	char path[32], text[64];
	int error = 0;

	snprintf(text, sizeof(text), "%u %u 1", inner, outer);
	for (size_t i = 0; i < ARRAY_SIZE(maps) && error == 0; i++) {
		snprintf(path, sizeof(path), "%d/%s", pid, maps[i]);
		error = write_map(proc_fd, path, text);
	}
	return error;
}

/* --- the child that hands out numbers ----------------------------------------------------------------- */

/* "TOOL PID 0 OWN 1 1 START COUNT": us as 0, the range from 1 on. True when it exits with 0. */
static bool run_tool(const char *tool, pid_t target, unsigned own, const struct range *range)
{
	char pid[16], self[16], start[24], count[24];
	const char *argv[] = {tool, pid, "0", self, "1", "1", start, count, NULL};
	char *const none[] = {NULL};
	int status;
	pid_t child;

	snprintf(pid, sizeof(pid), "%d", target);
	snprintf(self, sizeof(self), "%u", own);
	snprintf(start, sizeof(start), "%lu", range->start);
	snprintf(count, sizeof(count), "%lu", range->count);
	child = fork();
	if (child == 0) {
		int null = open("/dev/null", O_RDWR);
		if (null >= 0)
			dup2(null, 2); /* the fall-back says what was missing */
		execve(tool, (char **)(uintptr_t)argv, none);
		_exit(127);
	}
	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static _Noreturn void hand_out(int ready, pid_t target, uid_t uid, gid_t gid,
	const struct range *uids, const struct range *gids)
{
	char byte;

	while (read(ready, &byte, 1) < 0 && errno == EINTR)
		continue;
	_exit(run_tool(NEWUIDMAP, target, uid, uids) && run_tool(NEWGIDMAP, target, gid, gids) ? 0
											       : 1);
}

/* The child, waiting for *entered to be closed; -1 when there is none. */
static pid_t start_hand_out(
	uid_t uid, gid_t gid, const struct range *uids, const struct range *gids, int *entered)
{
	pid_t self = getpid(), child;
	int ends[2];

	*entered = -1;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	child = fork();
	if (child == 0) {
		close(ends[1]);
		hand_out(ends[0], self, uid, gid, uids, gids);
	}
	close(ends[0]);
	*entered = ends[1];
	return child;
}

/* --- entering ----------------------------------------------------------------------------------------- */

static int refused(int error, char why[USERNS_WHY_MAX])
{
	snprintf(why, USERNS_WHY_MAX,
		"cannot make a user namespace: %s. As root, one of: sysctl -w "
		"user.max_user_namespaces=15000; sysctl -w kernel.unprivileged_userns_clone=1; "
		"sysctl -w kernel.apparmor_restrict_unprivileged_userns=0; or start the judge as "
		"root",
		strerror(-error));
	return error;
}

int userns_enter(struct userns *u, char why[USERNS_WHY_MAX])
{
	struct range uids, gids;
	gid_t gid = getegid();
	pid_t child = -1;
	int entered = -1, error = 0, status = -1;
	bool has_ranges;

	memset(u, 0, sizeof(*u));
	u->uid = geteuid();
	if (u->uid == 0)
		return 0;
	has_ranges = find_ranges(u, &uids, &gids);
	if (has_ranges)
		child = start_hand_out(u->uid, gid, &uids, &gids, &entered);
	if (unshare(CLONE_NEWUSER) < 0)
		error = -errno;
	if (entered >= 0)
		close(entered);
	if (child > 0)
		waitpid(child, &status, 0);
	if (error < 0)
		return refused(error, why);
	if (status == 0 && is_mapped("/proc/self/gid_map")) {
		u->n_ids = (unsigned)(uids.count < gids.count ? uids.count : gids.count);
	} else {
		if (has_ranges)
			snprintf(u->why_one_id, sizeof(u->why_one_id),
				"newuidmap or newgidmap refused the ids of /etc/subuid and "
				"/etc/subgid: chmod u+s /usr/bin/newuidmap /usr/bin/newgidmap, and "
				"start without no_new_privs");
		error = map_only_us(u->uid, gid);
	}
	if (error < 0)
		return refused(error, why);
	u->entered = true;
	return 0;
}
