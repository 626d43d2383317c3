/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lock file a range, never removed: removing a lock file while another start opens it would let both have it.
 * flock() belongs to the open description, so the kernel gives the range up when the last process of ours
 * dies, whatever killed it. So does a socket's name; that anybody may take such a name only means that the next one is taken.
 */
#include "proc/box/helper/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* FNV-1a: the same run directory starts looking at the same range. */
static uint64_t hash(const char *s)
{
	uint64_t h = UINT64_C(14695981039346656037);

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
	return h ^ (h >> 32);
}

static int open_directory(char why[CLAIM_WHY_MAX])
{
	struct stat st;
	int dir;

	if (mkdir(CLAIM_DIR, 0700) < 0 && errno != EEXIST) {
		int error = -errno;
		snprintf(why, CLAIM_WHY_MAX, "cannot make " CLAIM_DIR ": %s; run as root",
			strerror(-error));
		return error;
	}
	dir = open(CLAIM_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0 || fstat(dir, &st) < 0) {
		int error = -errno;
		snprintf(why, CLAIM_WHY_MAX, "cannot open " CLAIM_DIR ": %s", strerror(-error));
		if (dir >= 0)
			close(dir);
		return error;
	}
	if (st.st_uid != 0 || (st.st_mode & 0077) != 0) {
		snprintf(why, CLAIM_WHY_MAX, CLAIM_DIR " must belong to root with mode 0700");
		close(dir);
		return -EPERM;
	}
	return dir;
}

static int try_range(int dir, unsigned range)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "range-%04u.lock", range);
	fd = openat(dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		int error = -errno;
		close(fd);
		return error;
	}
	return fd;
}

/* Where a run directory looks first. */
static unsigned first_choice(const char *run_dir, unsigned ranges)
{
	char real[PATH_MAX];

	return (unsigned)(hash(realpath(run_dir, real) ? real : run_dir) % ranges);
}

static void take(struct claim *claim, int fd)
{
	claim->lock_fd = fd;
	claim->uid_base = CLAIM_UID_BASE + claim->range * CLAIM_SLOTS;
	snprintf(claim->group, sizeof(claim->group), "conclave-box-%04u", claim->range);
}

static int try_name(uid_t user, unsigned range)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	/* The first byte stays 0: not a file. */
	int n = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "conclave-box-%u-%04u",
		user, range);
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)&address, size) < 0) {
		int error = -errno;
		close(fd);
		return error == -EADDRINUSE ? -EWOULDBLOCK : error;
	}
	return fd;
}

int claim_open_user(struct claim *claim, const char *run_dir, uid_t user, unsigned ranges,
	char why[CLAIM_WHY_MAX])
{
	unsigned first;
	int fd = -EWOULDBLOCK;

	if (ranges == 0 || ranges > CLAIM_RANGES)
		ranges = CLAIM_RANGES;
	first = first_choice(run_dir, ranges);
	for (unsigned i = 0; i < ranges && fd == -EWOULDBLOCK; i++) {
		claim->range = (first + i) % ranges;
		fd = try_name(user, claim->range);
	}
	if (fd < 0) {
		snprintf(why, CLAIM_WHY_MAX,
			"cannot claim one of %u ranges of slots: %s; other judges of this user "
			"have "
			"them",
			ranges, strerror(-fd));
		return fd;
	}
	take(claim, fd);
	return 0;
}

int claim_open(struct claim *claim, const char *run_dir, char why[CLAIM_WHY_MAX])
{
	unsigned first = first_choice(run_dir, CLAIM_RANGES);
	int dir = open_directory(why);
	int fd = -EWOULDBLOCK;

	if (dir < 0)
		return dir;
	for (unsigned i = 0; i < CLAIM_RANGES && fd == -EWOULDBLOCK; i++) {
		claim->range = (first + i) % CLAIM_RANGES;
		fd = try_range(dir, claim->range);
	}
	close(dir);
	if (fd < 0) {
		snprintf(why, CLAIM_WHY_MAX, "cannot lock a range of uids in " CLAIM_DIR ": %s",
			strerror(-fd));
		return fd;
	}
	take(claim, fd);
	return 0;
}
