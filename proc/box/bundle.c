/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation.
 *
 * A bundle is written once, front to back, sealed, and then only mapped. The reader walks the whole mapping in
 * bundle_open() and checks every header against what is left, so that bundle_next() may trust it; both use
 * the same decode_entry(). Nothing is allocated and nothing is copied: an entry points into the mapping.
 *
 * What a program leaves may be a gigabyte of hole, charged to nobody. It stays one all the way: a memfd's memory is nobody's limit
 * either. So files are copied by their ranges of data, pages of zeros are left out, and holes are not read through a mapping,
 * which would fill them (test_bundle: test_sparse).
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
#define PAGE 4096
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

int bundle_write(int fd, uint64_t at, const char *bytes, uint64_t size)
{
	while (size > 0) {
		size_t chunk = size > (1 << 30) ? 1 << 30 : (size_t)size;
		ssize_t n = pwrite(fd, bytes, chunk, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ENOSPC;
		bytes += n;
		at += (uint64_t)n;
		size -= (uint64_t)n;
	}
	return 0;
}

static bool is_zero(const char *p, size_t n)
{
	return p[0] == 0 && memcmp(p, p + 1, n - 1) == 0;
}

static size_t page_length(size_t left)
{
	return left < PAGE ? left : PAGE;
}

/* Those of the n bytes' pages that are not all zero. */
static int write_pages(int fd, uint64_t at, const char *p, size_t n)
{
	int error = 0;

	for (size_t from = 0, to = 0; from < n && error == 0; from = to) {
		bool zero = is_zero(p + from, page_length(n - from));
		do {
			to += page_length(n - to);
		} while (to < n && is_zero(p + to, page_length(n - to)) == zero);
		if (!zero)
			error = bundle_write(fd, at + from, p + from, to - from);
	}
	return error;
}

/* The first range in [at, end) that is no hole; false when there is none. Where holes are unknown all of it is one. Moves the
 * offset of fd, which nobody here uses. */
static bool next_data(int fd, uint64_t at, uint64_t end, uint64_t *from, uint64_t *to)
{
	off_t data = at < end ? lseek(fd, (off_t)at, SEEK_DATA) : -1;
	off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);

	if (at >= end || (data < 0 && errno == ENXIO))
		return false;
	*from = data < 0 ? at : (uint64_t)data;
	*to = hole < 0 || (uint64_t)hole > end ? end : (uint64_t)hole;
	return *from < end;
}

static int copy_data(int fd, uint64_t at, int from, uint64_t from_at, uint64_t size)
{
	char chunk[65536];
	int error = 0;

	while (size > 0 && error == 0) {
		size_t want = size < sizeof(chunk) ? (size_t)size : sizeof(chunk);
		ssize_t n = pread(from, chunk, want, (off_t)from_at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		error = write_pages(fd, at, chunk, (size_t)n);
		from_at += (uint64_t)n;
		at += (uint64_t)n;
		size -= (uint64_t)n;
	}
	return error;
}

int bundle_copy(int fd, uint64_t at, int from, uint64_t from_at, uint64_t size)
{
	uint64_t end = from_at + size, pos = from_at, data = 0, stop = 0;
	struct stat st;
	int error = 0;

	if (fstat(from, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size < end)
		return -EIO;
	for (; error == 0 && next_data(from, pos, end, &data, &stop); pos = stop)
		error = copy_data(fd, at + (data - from_at), from, data, stop - data);
	return error;
}

/* All or nothing: half an entry would spoil the rest. */
static int begin_at(int fd, uint64_t at, struct str name, bool executable, uint64_t size)
{
	struct header header = {
		htole32(MAGIC), htole32(executable), htole64(size), htole16((uint16_t)name.n)};
	int error = bundle_write(fd, at, (const char *)&header, sizeof(header));

	at += sizeof(header);
	if (error == 0)
		error = bundle_write(fd, at, name.p, name.n);
	if (error == 0 && ftruncate(fd, (off_t)(at + name.n + size)) < 0)
		error = -errno;
	return error;
}

static int take_back(int fd, uint64_t at, int error)
{
	return ftruncate(fd, (off_t)at) < 0 ? -errno : error;
}

int bundle_begin(int fd, struct str name, bool executable, uint64_t size, uint64_t *body)
{
	off_t at = lseek(fd, 0, SEEK_END);
	int error;

	if (!bundle_name_is_valid(name))
		return -EINVAL;
	if (at < 0)
		return -errno;
	*body = (uint64_t)at + sizeof(struct header) + name.n;
	error = begin_at(fd, (uint64_t)at, name, executable, size);
	return error < 0 ? take_back(fd, (uint64_t)at, error) : 0;
}

/* From memory, or from a file when `bytes` is NULL. */
static int add_entry(
	int fd, struct str name, bool executable, const char *bytes, int from, uint64_t size)
{
	uint64_t body;
	int error = bundle_begin(fd, name, executable, size, &body);

	if (error < 0)
		return error;
	error = bytes ? bundle_write(fd, body, bytes, size) : bundle_copy(fd, body, from, 0, size);
	return error < 0 ? take_back(fd, body - name.n - sizeof(struct header), error) : 0;
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
	out->at = (uint64_t)(out->bytes - b->map);
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

	*out = (struct bundle){.fd = fd};
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
	*b = (struct bundle){.fd = -1};
}

bool bundle_next(const struct bundle *b, uint64_t *pos, struct bundle_entry *out)
{
	return *pos < b->map_size && decode_entry(b, pos, out);
}

int bundle_extract(const struct bundle *b, const struct bundle_entry *entry, int to)
{
	uint64_t end = entry->at + entry->size, pos = entry->at, data = 0, stop = 0;
	int error = ftruncate(to, (off_t)entry->size) < 0 ? -errno : 0;

	for (; error == 0 && next_data(b->fd, pos, end, &data, &stop); pos = stop)
		error = bundle_write(to, data - entry->at, b->map + data, stop - data);
	return error;
}
