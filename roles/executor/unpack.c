/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job owns a copy of its archive, as the task it came from may be cancelled and gone before the worker has read it. A
 * cancelled job cannot be taken from the worker: it forgets whom to tell, runs to its end, which the limits of an archive keep
 * near, and is freed by its done() like any other.
 *
 * One worker is enough: archives are few, and two cores busy with inflating would be missing for the programs that are judged.
 */
#include "roles/executor/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proc/box/bundle.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/pool.h"
#include "rpc/task/archive.h"

#define QUEUE_MAX 128 /* more than an executor has slots */

struct unpacker {
	struct loop *loop;
	struct pool *pool; /* NULL until there is an archive */
};

struct unpack {
	struct pool_job job;
	struct str archive; /* ours; absent when it is in `from` */
	int from;           /* ours; -1 = none */
	unpack_done_fn *on_done;
	void *arg; /* with on_done NULL: cancelled */
	int error, fd;
	char why[ARCHIVE_WHY_MAX];
};

struct unpacker *unpacker_new(struct loop *loop)
{
	struct unpacker *unpacker = mem_alloc(sizeof(*unpacker));

	unpacker->loop = loop;
	return unpacker;
}

void unpacker_free(struct unpacker *unpacker)
{
	if (!unpacker)
		return;
	pool_free(unpacker->pool);
	free(unpacker);
}

static struct unpack *unpack_of(struct pool_job *job)
{
	return (struct unpack *)((char *)job - offsetof(struct unpack, job));
}

static void unpack_free(struct unpack *unpack)
{
	if (unpack->fd >= 0)
		close(unpack->fd);
	if (unpack->from >= 0)
		close(unpack->from);
	free((char *)unpack->archive.p);
	free(unpack);
}

/* Read through a mapping: a blob does not change, and may be larger than what we want to copy. */
static int unpack_file(struct unpack *unpack)
{
	struct stat st;
	char *map;
	int error;

	if (fstat(unpack->from, &st) < 0)
		return -errno;
	if (!st.st_size)
		return archive_unpack(STR(""), unpack->fd, unpack->why);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, unpack->from, 0);
	if (map == MAP_FAILED)
		return -errno;
	error = archive_unpack((struct str){map, (size_t)st.st_size}, unpack->fd, unpack->why);
	munmap(map, (size_t)st.st_size);
	return error;
}

/* On the worker. */
static void run(struct pool_job *job, void *resource)
{
	struct unpack *unpack = unpack_of(job);

	unpack->error = bundle_create(&unpack->fd);
	if (!unpack->error)
		unpack->error = unpack->from >= 0
					? unpack_file(unpack)
					: archive_unpack(unpack->archive, unpack->fd, unpack->why);
	if (!unpack->error)
		unpack->error = bundle_seal(unpack->fd);
}

static void done(struct pool_job *job)
{
	struct unpack *unpack = unpack_of(job);
	int fd = unpack->fd;

	if (unpack->on_done && !unpack->error)
		unpack->fd = -1;
	if (unpack->on_done)
		unpack->on_done(unpack->arg, unpack->error, unpack->error ? -1 : fd, unpack->why);
	unpack_free(unpack);
}

static int make_pool(struct unpacker *unpacker)
{
	struct pool_options options = {.name = "unpack", .workers = 1, .queue_max = QUEUE_MAX};

	return unpacker->pool ? 0 : pool_new(unpacker->loop, &options, &unpacker->pool);
}

static char *copy(struct str archive)
{
	char *p = mem_try(archive.n + 1);

	if (p && archive.n)
		memcpy(p, archive.p, archive.n);
	return p;
}

int unpack_start(struct unpacker *unpacker, struct str archive, int fd, unpack_done_fn *on_done,
	void *arg, struct unpack **out)
{
	struct unpack *unpack;
	int error = make_pool(unpacker);

	if (error)
		return error;
	unpack = mem_alloc(sizeof(*unpack));
	*unpack = (struct unpack){.job = {run, done, {NULL, NULL}},
		.archive = {fd < 0 ? copy(archive) : NULL, archive.n},
		.from = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3),
		.on_done = on_done,
		.arg = arg,
		.fd = -1};
	if (fd < 0 ? !unpack->archive.p : unpack->from < 0)
		error = fd < 0 ? -ENOMEM : -EMFILE;
	else if (pool_submit(unpacker->pool, &unpack->job))
		error = UNPACK_E_BUSY;
	if (error)
		unpack_free(unpack);
	else
		*out = unpack;
	return error;
}

void unpack_cancel(struct unpack **unpackp)
{
	struct unpack *unpack = take_ptr(unpackp);

	if (unpack)
		unpack->on_done = NULL;
}
