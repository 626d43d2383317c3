/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why on the loop and not on a worker: a memfd takes under 1 ms a MiB, and the bytes of a task have just been through the JSON decoder,
 * which takes twenty times as long; ordinary sources and inputs are a few KiB. But what a compiler leaves may be a gigabyte, and a
 * neighbour's kill must not wait for that: files are written in slices, from memory or, when kept, from bundle to bundle with
 * their holes. Only an input of tens of MiB still makes a turn noticeable, and then once.
 */
#include "roles/executor/files.h"

#include "roles/executor/blob_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* What an entry costs besides its bytes: header, name, looking it up. */
#define ENTRY_COST 4096

void files_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void files_fini(struct files *f)
{
	files_close(&f->fd);
	*f = (struct files){.fd = -1};
}

static struct task_file *file_at(const struct codec_list *files, size_t i)
{
	return codec_item(*files, struct task_file, i);
}

/* One file to be written: from memory, or when `bytes` is NULL from a descriptor. */
struct piece {
	struct str name;
	bool executable;
	uint64_t size;
	const char *bytes;
	int from;
	uint64_t from_at;
};

/* Goes on with the piece as far as *room allows, at least with its header; once it is whole, f->at has moved on. */
static int put_some(struct files *f, const struct piece *piece, int64_t *room)
{
	uint64_t n;
	int error = 0;

	if (!f->is_begun) {
		error = bundle_begin(f->fd, piece->name, piece->executable, piece->size, &f->body);
		f->is_begun = !error;
		f->done = 0;
		*room -= ENTRY_COST;
	}
	n = piece->size - f->done;
	if (*room < 0 || n > (uint64_t)*room)
		n = *room < 0 ? 0 : (uint64_t)*room;
	if (!error && piece->bytes)
		error = bundle_write(f->fd, f->body + f->done, piece->bytes + f->done, n);
	else if (!error)
		error = bundle_copy(
			f->fd, f->body + f->done, piece->from, piece->from_at + f->done, n);
	f->done += n;
	*room -= (int64_t)n;
	if (!error && f->done == piece->size) {
		f->is_begun = false;
		f->at++;
	}
	return error;
}

static struct piece piece_of(
	struct str name, bool executable, const struct content *content, const struct map *blobs)
{
	const struct blob *blob = content->blob.p ? map_get(blobs, content->blob) : NULL;

	if (blob)
		return (struct piece){.name = name,
			.executable = executable,
			.size = (uint64_t)blob->size,
			.from = blob->fd};
	return (struct piece){.name = name,
		.executable = executable,
		.size = content->bytes.n,
		.bytes = content->bytes.p ? content->bytes.p : ""};
}

/* Those behind the first n_before. */
static int put_list(struct files *f, size_t n_before, const struct codec_list *files,
	const struct map *blobs, int64_t *room)
{
	int error = 0;

	while (!error && *room > 0 && f->at < n_before + files->count) {
		const struct task_file *file = file_at(files, f->at - n_before);
		struct piece piece = piece_of(file->name, file->executable, &file->content, blobs);

		error = put_some(f, &piece, room);
	}
	return error;
}

int files_write_slice(struct files *f, struct str source_name, const struct content *source,
	const struct codec_list *files, const struct map *blobs, bool *done)
{
	struct piece first = piece_of(source_name, false, source, blobs);
	size_t n_source = content_is_absent(source) ? 0 : 1;
	int64_t room = FILES_SLICE;
	int error = 0;

	*done = false;
	if (f->fd < 0)
		error = bundle_create(&f->fd);
	if (!error && f->at < n_source)
		error = put_some(f, &first, &room);
	if (!error && f->at >= n_source)
		error = put_list(f, n_source, files, blobs, &room);
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

void files_merge_init(struct files_merge *m)
{
	*m = (struct files_merge){.out.fd = -1};
	map_init(&m->taken);
}

void files_merge_fini(struct files_merge *m)
{
	files_fini(&m->out);
	bundle_close(&m->under);
	map_fini(&m->taken);
	files_merge_init(m);
}

int files_merge_start(
	struct files_merge *m, int under, uint64_t bytes_max, const struct codec_list *over)
{
	int error;

	files_merge_fini(m);
	error = bundle_open(under, bytes_max, &m->under);
	if (error)
		return error;
	claim_names(&m->taken, over);
	return bundle_create(&m->out.fd);
}

/* The next entry that is kept; looking at one costs too, as there may be thousands in the way. */
static bool find_kept(struct files_merge *m, int64_t *room)
{
	while (!m->is_kept && *room > 0 && bundle_next(&m->under, &m->pos, &m->kept)) {
		m->is_kept = !is_in_the_way(&m->taken, m->kept.name);
		*room -= ENTRY_COST;
	}
	return m->is_kept;
}

static int put_kept(struct files_merge *m, int64_t *room)
{
	int error = 0;

	while (!error && *room > 0 && find_kept(m, room)) {
		struct piece piece = {.name = m->kept.name,
			.executable = m->kept.executable,
			.size = m->kept.size,
			.from = m->under.fd,
			.from_at = m->kept.at};
		size_t before = m->out.at;

		error = put_some(&m->out, &piece, room);
		m->is_kept = m->out.at == before;
	}
	if (!error && !m->is_kept && m->pos == m->under.map_size) {
		m->is_under_done = true;
		m->n_kept = m->out.at;
	}
	return error;
}

int files_merge_slice(
	struct files_merge *m, const struct codec_list *over, const struct map *blobs, bool *done)
{
	int64_t room = FILES_SLICE;
	int error = 0;

	*done = false;
	if (!m->is_under_done)
		error = put_kept(m, &room);
	if (!error && m->is_under_done)
		error = put_list(&m->out, m->n_kept, over, blobs, &room);
	if (error || !m->is_under_done || m->out.at < m->n_kept + over->count)
		return error;
	*done = true;
	return bundle_seal(m->out.fd);
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
