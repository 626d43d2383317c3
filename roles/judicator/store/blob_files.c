/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A blob is written to new/ID, synced, renamed to ab/abcd..., and the directory synced: whoever finds a file under its name finds all
 * of it, whenever the power went. Files are 0400: nothing of ours writes to one that has its name.
 *
 * At open nobody is sending, so all of new/ is left over; and a file without a row is one whose row was never written, or has been
 * removed already.
 */
#include "roles/judicator/store/blob_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "reactor/base/log.h"
#include "reactor/base/mem.h"

#define NEW_DIR "new"
#define PATH_LEN (3 + BLOB_NAME_LEN + 1) /* ab/abcd... */

struct blob_files {
	int dir; /* DIR/blobs */
};

/* --- paths ------------------------------------------------------------------------------------------------------- */

static void blob_path(const char *name, char out[PATH_LEN])
{
	snprintf(out, PATH_LEN, "%.2s/%.64s", name, name);
}

static void upload_path(const struct upload *u, char out[PATH_LEN])
{
	snprintf(out, PATH_LEN, NEW_DIR "/%s", u->id.hex);
}

static int sync_dir(int at, const char *path)
{
	int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = fd >= 0 && fsync(fd) == 0 ? 0 : -errno;

	if (fd >= 0)
		close(fd);
	return r;
}

static int make_dir(int at, const char *path)
{
	if (mkdirat(at, path, 0700) == 0)
		return sync_dir(at, ".");
	return errno == EEXIST ? 0 : -errno;
}

/* --- bytes (on a worker) ------------------------------------------------------------------------------------------ */

static bool files_have_room(void *place, int64_t reserve_bytes)
{
	struct blob_files *f = place;
	struct statvfs fs;

	return !reserve_bytes || fstatvfs(f->dir, &fs) < 0 ||
	       (uint64_t)fs.f_bavail * fs.f_frsize >= (uint64_t)reserve_bytes;
}

static int files_write(void *place, struct upload *u, struct str bytes)
{
	struct blob_files *f = place;
	char path[PATH_LEN];

	upload_path(u, path);
	if (u->fd < 0)
		u->fd = openat(f->dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0400);
	if (u->fd < 0)
		return -errno;
	for (size_t done = 0; done < bytes.n;) {
		ssize_t n = pwrite(
			u->fd, bytes.p + done, bytes.n - done, (off_t)(u->next + (int64_t)done));

		if (n < 0 && errno != EINTR)
			return -errno;
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int files_finish(void *place, struct upload *u)
{
	struct blob_files *f = place;
	char from[PATH_LEN], to[PATH_LEN], dir[3] = {u->name[0], u->name[1]};
	int r = make_dir(f->dir, dir);

	upload_path(u, from);
	blob_path(u->name, to);
	if (r == 0 && fsync(u->fd) < 0)
		r = -errno;
	if (r == 0 && renameat(f->dir, from, f->dir, to) < 0)
		r = -errno;
	return r ? r : sync_dir(f->dir, dir);
}

/* After a rename there is nothing of it in new/. */
static void files_drop(void *place, struct upload *u)
{
	struct blob_files *f = place;
	char path[PATH_LEN];

	if (u->fd < 0)
		return;
	close(u->fd);
	u->fd = -1;
	upload_path(u, path);
	unlinkat(f->dir, path, 0);
}

static int read_all(int fd, int64_t offset, size_t n, struct buf *out)
{
	char *to = buf_reserve(out, n);

	while (out->len < n) {
		ssize_t got =
			pread(fd, to + out->len, n - out->len, (off_t)(offset + (int64_t)out->len));

		if (got == 0)
			return -EIO; /* shorter than its row says */
		if (got < 0 && errno != EINTR)
			return -errno;
		out->len += got > 0 ? (size_t)got : 0;
	}
	return 0;
}

static int files_read(void *place, const char *name, int64_t offset, size_t n, struct buf *out)
{
	struct blob_files *f = place;
	char path[PATH_LEN];
	int fd, r;

	blob_path(name, path);
	fd = openat(f->dir, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = read_all(fd, offset, n, out);
	close(fd);
	return r;
}

static void files_remove(void *place, const char *name)
{
	struct blob_files *f = place;
	char path[PATH_LEN];

	blob_path(name, path);
	unlinkat(f->dir, path, 0);
}

const struct blobs_ops blob_files_ops = {
	.waits = true,
	.has_room = files_have_room,
	.write = files_write,
	.finish = files_finish,
	.drop = files_drop,
	.read = files_read,
	.remove = files_remove,
};

/* --- opening ---------------------------------------------------------------------------------------------------------- */

static bool is_dot(const char *name)
{
	return name[0] == '.';
}

/* Calls fn for each name in a directory; what is removed meanwhile may be. */
static int each_name(
	int at, const char *path, int (*fn)(void *arg, int dir, const char *name), void *arg)
{
	int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	if (!dir) {
		r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	while (r >= 0 && (entry = readdir(dir))) {
		if (!is_dot(entry->d_name))
			r = fn(arg, fd, entry->d_name);
	}
	closedir(dir);
	return r < 0 ? r : 0;
}

static int remove_upload(void *arg unused, int dir, const char *name)
{
	unlinkat(dir, name, 0);
	return 0;
}

static int remove_unknown(void *arg, int dir, const char *name)
{
	struct rows *rows = arg;
	struct rows_blob blob;
	int r = rows->ops->blob_get(rows, str_from(name), &blob);

	if (r == ROWS_NONE)
		unlinkat(dir, name, 0);
	return r < 0 ? r : 0;
}

static int sweep_dir(void *arg, int dir, const char *name)
{
	if (strlen(name) != 2)
		return 0;
	return each_name(dir, name, remove_unknown, arg);
}

static int prepare(struct blob_files *f, const char *path, struct rows *rows)
{
	int r;

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return -errno;
	f->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (f->dir < 0)
		return -errno;
	r = make_dir(f->dir, NEW_DIR);
	if (!r)
		r = each_name(f->dir, NEW_DIR, remove_upload, NULL);
	return r ? r : each_name(f->dir, ".", sweep_dir, rows);
}

int blob_files_open(const char *dir, struct rows *rows, struct log *log, struct blob_files **out)
{
	char *path cleanup(mem_freep) = mem_printf("%s/blobs", dir);
	struct blob_files *f = mem_alloc(sizeof(*f));
	int r;

	f->dir = -1;
	r = prepare(f, path, rows);
	if (r) {
		log_error(log, "store",
			"path=%s problem=\"cannot be used for blobs: %s\" fix=\"give it to "
			"boot.user, mode 0700\"",
			path, strerror(-r));
		blob_files_close(f);
		return r;
	}
	*out = f;
	return 0;
}

void blob_files_close(struct blob_files *f)
{
	if (!f)
		return;
	if (f->dir >= 0)
		close(f->dir);
	free(f);
}
