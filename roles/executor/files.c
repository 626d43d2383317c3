/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why on the loop and not on a worker: a memfd takes under 1 ms a MiB, and the bytes have just been through the JSON decoder,
 * which takes twenty times as long; ordinary sources and inputs are a few KiB. Only a single file or input of tens of MiB makes a
 * turn noticeable, and then once.
 */
#include "roles/executor/files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proc/box/bundle.h"
#include "reactor/base/map.h"

void files_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void files_fini(struct files *f)
{
	files_close(&f->fd);
}

static struct task_file *file_at(const struct codec_list *files, size_t i)
{
	return codec_item(*files, struct task_file, i);
}

int files_write_slice(struct files *f, struct str source_name, struct str source,
	const struct codec_list *files, bool *done)
{
	size_t n_source = source.p ? 1 : 0;
	int64_t written = 0;
	int error = 0;

	*done = false;
	if (f->fd < 0)
		error = bundle_create(&f->fd);
	if (!error && n_source && f->at == 0) {
		error = bundle_add(f->fd, source_name, false, source.p, source.n);
		written = (int64_t)source.n;
		f->at++;
	}
	while (!error && f->at < n_source + files->count && written < FILES_SLICE) {
		const struct task_file *file = file_at(files, f->at++ - n_source);

		error = bundle_add(
			f->fd, file->name, file->executable, file->content.p, file->content.n);
		written += (int64_t)file->content.n;
	}
	if (error || f->at < n_source + files->count)
		return error;
	*done = true;
	return bundle_seal(f->fd);
}

/* Names the new files take, and the directories they need. */
enum { IS_FILE = 1, IS_DIRECTORY };

static void *mark(intptr_t kind)
{
	return (void *)kind;
}

static void claim_names(struct map *taken, const struct codec_list *files)
{
	for (size_t i = 0; i < files->count; i++) {
		struct str name = file_at(files, i)->name;

		map_set(taken, name, mark(IS_FILE));
		for (size_t n = 0; n < name.n; n++)
			if (name.p[n] == '/')
				map_set(taken, (struct str){name.p, n}, mark(IS_DIRECTORY));
	}
}

/* The name itself is taken, or a directory in it is a file now. */
static bool is_in_the_way(const struct map *taken, struct str name)
{
	if (map_get(taken, name))
		return true;
	for (size_t n = 0; n < name.n; n++)
		if (name.p[n] == '/' && map_get(taken, (struct str){name.p, n}) == mark(IS_FILE))
			return true;
	return false;
}

static int add_kept(int fd, const struct bundle *under, const struct map *taken)
{
	struct bundle_entry entry;
	uint64_t pos = 0;
	int error = 0;

	while (!error && bundle_next(under, &pos, &entry))
		if (!is_in_the_way(taken, entry.name))
			error = bundle_add(
				fd, entry.name, entry.executable, entry.bytes, entry.size);
	return error;
}

static int add_files(int fd, const struct codec_list *files)
{
	int error = 0;

	for (size_t i = 0; !error && i < files->count; i++) {
		const struct task_file *file = file_at(files, i);

		error = bundle_add(
			fd, file->name, file->executable, file->content.p, file->content.n);
	}
	return error;
}

int files_merge(int under, uint64_t bytes_max, const struct codec_list *over, int *out)
{
	struct bundle bundle = {0};
	struct map taken;
	int fd = -1;
	int error = bundle_open(under, bytes_max, &bundle);

	map_init(&taken);
	claim_names(&taken, over);
	if (!error)
		error = bundle_create(&fd);
	if (!error)
		error = add_kept(fd, &bundle, &taken);
	if (!error)
		error = add_files(fd, over);
	if (!error)
		error = bundle_seal(fd);
	bundle_close(&bundle);
	map_fini(&taken);
	if (error)
		files_close(&fd);
	*out = fd;
	return error;
}

static int write_all(int fd, struct str bytes)
{
	while (bytes.n) {
		ssize_t n = write(fd, bytes.p, bytes.n);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		bytes.p += n;
		bytes.n -= (size_t)n;
	}
	return 0;
}

int files_input(struct str input, int *out)
{
	int error = 0, fd;

	*out = -1;
	if (!input.p || !input.n)
		return 0;
	fd = memfd_create("input", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	error = write_all(fd, input);
	if (!error &&
		(lseek(fd, 0, SEEK_SET) < 0 ||
			fcntl(fd, F_ADD_SEALS,
				F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0))
		error = -errno;
	if (error)
		files_close(&fd);
	*out = fd;
	return error;
}
