/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacking walks each name component by component from the directory's descriptor with O_NOFOLLOW, and creates
 * with O_EXCL, so a name can neither leave the directory nor be taken twice.
 *
 * Collecting is a depth-first walk that keeps its path in one buffer. Each file is opened anew from the top
 * with openat2(BENEATH | NO_SYMLINKS | NO_MAGICLINKS | NO_XDEV), O_NONBLOCK, then judged by fstat() of what was
 * opened: the directory listing is only a hint. Nothing alive can change the tree meanwhile, but nothing here
 * depends on that. Tests: "collect takes regular files only" in test/contract/test_box.c.
 */
#include "proc/box/layout.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proc/box/bundle.h"

/* --- into a directory --------------------------------------------------------------------------------- */

static int give_to(int fd, const struct layout_owner *owner)
{
	if (owner->read_only || owner->uid == (uid_t)-1)
		return 0;
	return fchown(fd, owner->uid, owner->gid) < 0 ? -errno : 0;
}

/* Opens (and makes, if need be) the directory `name` in `dir`. */
static int enter_directory(int dir, const char *name, const struct layout_owner *owner)
{
	bool made = mkdirat(dir, name, 0755) == 0;
	int fd, error;

	if (!made && errno != EEXIST)
		return -errno;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	error = made ? give_to(fd, owner) : 0;
	if (error < 0)
		close(fd);
	return error < 0 ? error : fd;
}

static int write_file(int dir, const char *name, const struct bundle *bundle,
	const struct bundle_entry *entry, const struct layout_owner *owner)
{
	mode_t mode = (owner->read_only ? 0444 : 0644) | (entry->executable ? 0111 : 0);
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int error;

	if (fd < 0)
		return -errno;
	error = bundle_extract(bundle, entry, fd);
	if (error == 0)
		error = give_to(fd, owner);
	if (error == 0 && fchmod(fd, mode) < 0)
		error = -errno;
	close(fd);
	return error;
}

static int unpack_entry(int dir, const struct bundle *bundle, const struct bundle_entry *entry,
	const struct layout_owner *owner)
{
	char name[BUNDLE_NAME_MAX + 1];
	char *rest = name, *slash;
	int at = dir, error = 0;

	memcpy(name, entry->name.p, entry->name.n);
	name[entry->name.n] = '\0';
	while (error == 0 && (slash = strchr(rest, '/'))) {
		*slash = '\0';
		int next = enter_directory(at, rest, owner);
		if (at != dir)
			close(at);
		at = next;
		error = next < 0 ? next : 0;
		rest = slash + 1;
	}
	if (error == 0)
		error = write_file(at, rest, bundle, entry, owner);
	if (at != dir && at >= 0)
		close(at);
	return error;
}

int layout_unpack(
	int dir, int bundle_fd, const struct layout_owner *owner, char why[LAYOUT_WHY_MAX])
{
	struct bundle bundle;
	struct bundle_entry entry;
	uint64_t pos = 0;
	int error = bundle_open(bundle_fd, UINT64_MAX, &bundle);

	if (error < 0) {
		snprintf(why, LAYOUT_WHY_MAX, "the bundle of files is malformed: %s",
			strerror(-error));
		return error;
	}
	while (error == 0 && bundle_next(&bundle, &pos, &entry)) {
		error = unpack_entry(dir, &bundle, &entry, owner);
		if (error < 0)
			snprintf(why, LAYOUT_WHY_MAX, "cannot write file %.*s: %s",
				(int)(entry.name.n < 100 ? entry.name.n : 100), entry.name.p,
				strerror(-error));
	}
	bundle_close(&bundle);
	return error;
}

/* --- out of one --------------------------------------------------------------------------------------- */

struct walk {
	int top;
	int out_fd;
	uint64_t bytes_left;
	unsigned files_left;
	size_t len; /* of path */
	char path[BUNDLE_NAME_MAX + 1];
	char *why;
};

static int over(struct walk *w, const char *what)
{
	snprintf(w->why, LAYOUT_WHY_MAX, "%s", what);
	return -EFBIG;
}

static int open_beneath(const struct walk *w, int flags)
{
	struct open_how how = {
		.flags = (unsigned)(O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC |
				    flags),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
			   RESOLVE_NO_XDEV,
	};

	return (int)syscall(SYS_openat2, w->top, w->len ? w->path : ".", &how, sizeof(how));
}

static int add_file(struct walk *w, int fd, const struct stat *st)
{
	uint64_t size = (uint64_t)st->st_size;
	struct str name = {w->path, w->len};
	int error;

	if (size > w->bytes_left)
		return over(w, "the files left in /w are larger than allowed");
	if (w->files_left == 0)
		return over(w, "too many files were left in /w");
	error = bundle_add_from(w->out_fd, name, (st->st_mode & 0111) != 0, fd, size);
	if (error < 0)
		snprintf(w->why, LAYOUT_WHY_MAX, "cannot copy a file out of /w: %s",
			strerror(-error));
	w->bytes_left -= size;
	w->files_left--;
	return error;
}

static int collect_directory(struct walk *w, unsigned depth, int fd);

/* Whatever is neither a directory nor a plain file with one name is passed over. */
static int collect_entry(struct walk *w, unsigned depth)
{
	struct stat st;
	int error = 0;
	int fd = open_beneath(w, 0);

	if (fd < 0) /* a link, a socket, a device without a driver */
		return 0;
	if (fstat(fd, &st) < 0)
		error = -errno;
	else if (S_ISDIR(st.st_mode))
		return collect_directory(w, depth + 1, fd);
	else if (S_ISREG(st.st_mode) && st.st_nlink == 1)
		error = add_file(w, fd, &st);
	close(fd);
	return error;
}

/* Owns fd. */
static int collect_directory(struct walk *w, unsigned depth, int fd)
{
	size_t base = w->len;
	struct dirent *entry;
	int error = 0;
	DIR *dir;

	if (depth >= BUNDLE_DEPTH_MAX) {
		close(fd);
		return over(w, "directories left in /w are nested too deeply");
	}
	dir = fdopendir(fd);
	if (!dir) {
		error = -errno;
		close(fd);
		return error;
	}
	while (error == 0 && (entry = readdir(dir))) {
		size_t n = strlen(entry->d_name);
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (base + 1 + n > BUNDLE_NAME_MAX) {
			error = over(w, "a file left in /w has too long a name");
			break;
		}
		w->len = base;
		if (base > 0)
			w->path[w->len++] = '/';
		memcpy(w->path + w->len, entry->d_name, n + 1);
		w->len += n;
		error = collect_entry(w, depth);
	}
	w->len = base;
	w->path[base] = '\0';
	closedir(dir);
	return error;
}

int layout_collect(int dir, int out_fd, uint64_t bytes_max, char why[LAYOUT_WHY_MAX])
{
	struct walk walk = {.top = dir,
		.out_fd = out_fd,
		.bytes_left = bytes_max,
		.files_left = BUNDLE_FILES_MAX,
		.why = why};
	int fd = open_beneath(&walk, O_DIRECTORY);

	why[0] = '\0';
	return fd < 0 ? -errno : collect_directory(&walk, 0, fd);
}
