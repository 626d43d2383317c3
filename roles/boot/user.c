/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * A service starts as root so that its role can prepare what needs root (the sandbox helper), then drops. The order is
 * the only one that works: groups while still root, gid, uid, and a proof that there is no way back. Changing
 * credentials clears PR_SET_PDEATHSIG, so that is set again afterwards, and then the parent is compared: a boot
 * that died in between would otherwise leave us behind as an orphan.
 *
 * Dropping leaves the process not dumpable, and we keep it so: a program that runs under the same uid without a
 * box must not be able to read the shared secret or other people's submissions out of our memory. Builds with the
 * address sanitizer are dumpable, because the leak check traces its own process.
 */
#include "roles/boot/user.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "reactor/base/str.h"

#if defined(__SANITIZE_ADDRESS__)
#define KEEP_DUMPABLE 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KEEP_DUMPABLE 1
#endif
#endif
#ifndef KEEP_DUMPABLE
#define KEEP_DUMPABLE 0
#endif

int user_find(const char *text, struct user *out)
{
	struct passwd entry, *found = NULL;
	char space[4096];
	int64_t number;
	bool is_number = str_to_i64(str_from(text), &number) && number >= 0 && number < UINT32_MAX;

	if (strlen(text) >= sizeof(out->name) || !text[0])
		return USER_E_UNKNOWN;
	if (is_number)
		getpwuid_r((uid_t)number, &entry, space, sizeof(space), &found);
	else
		getpwnam_r(text, &entry, space, sizeof(space), &found);
	if (!found && !is_number)
		return USER_E_UNKNOWN;
	snprintf(out->name, sizeof(out->name), "%s", text);
	out->uid = found ? found->pw_uid : (uid_t)number;
	out->gid = found ? found->pw_gid : (gid_t)number;
	return 0;
}

static int set_groups(const struct user *user)
{
	struct passwd entry, *found = NULL;
	char space[4096];

	getpwuid_r(user->uid, &entry, space, sizeof(space), &found);
	if (found)
		return initgroups(found->pw_name, user->gid) < 0 ? -errno : 0;
	return setgroups(0, NULL) < 0 ? -errno : 0;
}

static bool is_dropped(const struct user *user)
{
	uid_t r, e, s;
	gid_t gr, ge, gs;

	if (getresuid(&r, &e, &s) < 0 || getresgid(&gr, &ge, &gs) < 0)
		return false;
	return r == user->uid && e == user->uid && s == user->uid && gr == user->gid &&
	       ge == user->gid && gs == user->gid && setuid(0) < 0;
}

static int change(const struct user *user)
{
	int error = set_groups(user);

	if (error)
		return error;
	if (setresgid(user->gid, user->gid, user->gid) < 0 ||
		setresuid(user->uid, user->uid, user->uid) < 0)
		return -errno;
	return is_dropped(user) ? 0 : -EPERM;
}

int user_drop(const struct user *user, pid_t parent, bool *orphaned)
{
	int error = geteuid() == 0 && user->uid != 0 ? change(user) : 0;

	if (error)
		return error;
	if (prctl(PR_SET_DUMPABLE, KEEP_DUMPABLE) < 0 ||
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return -errno;
	*orphaned = getppid() != parent;
	return 0;
}
