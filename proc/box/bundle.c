/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation.
 *
 * A bundle is written once, front to back, sealed, and then only mapped. The reader walks the whole mapping in
 * bundle_open() and checks every header against what is left, so that bundle_next() may trust it; both use
 * the same decode_entry(). Nothing is allocated and nothing is copied: an entry points into the mapping.
 *
 * libc only: conclave-box is built from this file too.
 */
#include "proc/box/bundle.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAGIC UINT32_C(0x31424e43) /* "CNB1" */
#define COMPONENT_MAX 255
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

struct header {
	uint32_t magic;
	uint32_t mode;
	uint64_t size;
	uint16_t name_len;
} __attribute__((packed));

static bool component_is_valid(const char *p, size_t n)
{
	if (n == 0 || n > COMPONENT_MAX)
		return false;
	if (p[0] != '.')
		return true;
	return n != 1 && !(n == 2 && p[1] == '.');
}

bool bundle_name_is_valid(struct str name)
{
	unsigned depth = 0;
	size_t start = 0;

	if (!name.p || name.n == 0 || name.n > BUNDLE_NAME_MAX || memchr(name.p, '\0', name.n))
		return false;
	while (start <= name.n) {
		const char *slash = memchr(name.p + start, '/', name.n - start);
		size_t end = slash ? (size_t)(slash - name.p) : name.n;
		if (++depth > BUNDLE_DEPTH_MAX || !component_is_valid(name.p + start, end - start))
			return false;
		start = end + 1;
	}
	return true;
}

int bundle_create(int *fd)
{
	*fd = memfd_create("bundle", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return *fd < 0 ? -errno : 0;
}

static int write_at(int fd, const void *bytes, uint64_t size, off_t at)
{
	const char *p = bytes;

	while (size > 0) {
		size_t chunk = size > (1 << 30) ? 1 << 30 : (size_t)size;
		ssize_t n = pwrite(fd, p, chunk, at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ENOSPC;
		p += n;
		at += n;
		size -= (uint64_t)n;
	}
	return 0;
}

static int copy_at(int fd, int from, uint64_t size, off_t at)
{
	char chunk[65536];
	off_t from_at = 0;
	int error = 0;

	while (size > 0 && error == 0) {
		size_t want = size < sizeof(chunk) ? (size_t)size : sizeof(chunk);
		ssize_t n = pread(from, chunk, want, from_at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		error = write_at(fd, chunk, (uint64_t)n, at);
		from_at += n;
		at += n;
		size -= (uint64_t)n;
	}
	return error;
}

/* From memory, or from a file when `bytes` is NULL. All or nothing: a half-written entry would spoil the rest. */
static int add_entry(
	int fd, struct str name, bool executable, const void *bytes, int from, uint64_t size)
{
	struct header header = {
		htole32(MAGIC), htole32(executable), htole64(size), htole16((uint16_t)name.n)};
	off_t at, body;
	int error;

	if (!bundle_name_is_valid(name))
		return -EINVAL;
	at = lseek(fd, 0, SEEK_END);
	if (at < 0)
		return -errno;
	body = at + (off_t)(sizeof(header) + name.n);
	error = write_at(fd, &header, sizeof(header), at);
	if (error == 0)
		error = write_at(fd, name.p, name.n, at + (off_t)sizeof(header));
	if (error == 0)
		error = bytes ? write_at(fd, bytes, size, body) : copy_at(fd, from, size, body);
	if (error < 0 && ftruncate(fd, at) < 0)
		return -errno;
	return error;
}

int bundle_add(int fd, struct str name, bool executable, const void *bytes, uint64_t size)
{
	return add_entry(fd, name, executable, bytes ? bytes : "", -1, size);
}

int bundle_add_from(int fd, struct str name, bool executable, int from, uint64_t size)
{
	return add_entry(fd, name, executable, NULL, from, size);
}

int bundle_seal(int fd)
{
	return fcntl(fd, F_ADD_SEALS, SEALS) < 0 ? -errno : 0;
}

/* The entry at *pos; false when there is no whole, valid one. */
static bool decode_entry(const struct bundle *b, uint64_t *pos, struct bundle_entry *out)
{
	uint64_t left = b->map_size - *pos;
	struct header header;
	const char *p = b->map + *pos;

	if (left < sizeof(header))
		return false;
	memcpy(&header, p, sizeof(header));
	left -= sizeof(header);
	p += sizeof(header);
	out->name = (struct str){p, le16toh(header.name_len)};
	out->executable = le32toh(header.mode) == 1;
	out->size = le64toh(header.size);
	if (le32toh(header.magic) != MAGIC || le32toh(header.mode) > 1 || out->name.n > left ||
		!bundle_name_is_valid(out->name))
		return false;
	left -= out->name.n;
	if (out->size > left)
		return false;
	out->bytes = p + out->name.n;
	*pos += sizeof(header) + out->name.n + out->size;
	return true;
}

static int check_all(struct bundle *b, uint64_t bytes_max)
{
	struct bundle_entry entry;

	for (uint64_t pos = 0; pos < b->map_size;) {
		if (!decode_entry(b, &pos, &entry))
			return -EBADMSG;
		b->n_files++;
		b->bytes += entry.size;
		if (b->n_files > BUNDLE_FILES_MAX || b->bytes > bytes_max)
			return -EFBIG;
	}
	return 0;
}

int bundle_open(int fd, uint64_t bytes_max, struct bundle *out)
{
	struct stat st;
	void *map;
	int error;

	*out = (struct bundle){0};
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	if (st.st_size == 0)
		return 0;
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	out->map = map;
	out->map_size = (uint64_t)st.st_size;
	error = check_all(out, bytes_max);
	if (error < 0)
		bundle_close(out);
	return error;
}

void bundle_close(struct bundle *b)
{
	if (b->map)
		munmap((void *)(uintptr_t)b->map, (size_t)b->map_size);
	*b = (struct bundle){0};
}

bool bundle_next(const struct bundle *b, uint64_t *pos, struct bundle_entry *out)
{
	return *pos < b->map_size && decode_entry(b, pos, out);
}
