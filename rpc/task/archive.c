/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A zip ends with a record that says where its directory is; the directory has an entry a file (APPNOTE.TXT, 4.3).
 *
 * The directory is read here, by hand and within the bytes given: libzip takes memory for every entry an archive claims to have, and
 * turns the NULs of names into blanks, and both have to be known before anything is believed. Only one reading is allowed: the
 * end record ends the archive, and the directory ends where it begins. Inflating, the local headers and the checksums are libzip's
 * work; as it looks for the directory in its own way, each of its entries must be the one that was checked here, or
 * the archive is refused: so no archive is one thing to the check and another to the unpacking.
 *
 * Sizes are claims until the bytes have been counted: a file is written up to its claim, and must end there.
 */
#include "rpc/task/archive.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <zip.h>

#include "proc/box/bundle.h"
#include "reactor/base/map.h"
#include "reactor/base/mem.h"
#include "rpc/text.h"

#define END_SIZE 22 /* of the end record without its comment */
#define COMMENT_MAX 65535
#define ENTRY_SIZE 46 /* of a directory entry without name, extra field and comment */
#define ZIP64_SIZE 20 /* of the locator that stands before the end record */
#define CHUNK 65536
#define NAME_SHOWN 96 /* of a name in a reason, escaped */

/* Bits of an entry's flags that make it something we cannot read: encrypted, patch data, strongly encrypted, masked. */
#define FLAGS_REFUSED (1u << 0 | 1u << 5 | 1u << 6 | 1u << 13)

struct entry {
	struct str name; /* a directory's without the '/' behind it */
	bool is_directory, executable;
	unsigned flags, method, mode;
	uint64_t packed, size, offset;
};

struct directory {
	struct str zip;
	size_t start, end; /* of the directory in it */
	unsigned n_entries;
	size_t at; /* the next entry */
	char *why;
};

static unsigned u16_at(struct str s, size_t at)
{
	const unsigned char *p = (const unsigned char *)s.p + at;

	return p[0] | (unsigned)p[1] << 8;
}

static uint32_t u32_at(struct str s, size_t at)
{
	return u16_at(s, at) | (uint32_t)u16_at(s, at + 2) << 16;
}

static bool is_signature(struct str s, size_t at, const char *two)
{
	return s.p[at] == 'P' && s.p[at + 1] == 'K' && s.p[at + 2] == two[0] &&
	       s.p[at + 3] == two[1];
}

static int printf_like(2, 3) refuse(char *why, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, ARCHIVE_WHY_MAX, fmt, ap);
	va_end(ap);
	return -EBADMSG;
}

/* The reason begins with the entry's name. */
static int refuse_entry(char *why, const struct entry *entry, const char *what)
{
	char name[NAME_SHOWN];
	bool is_cut = text_escape(entry->name, name, sizeof(name)) < entry->name.n;

	return refuse(why, "\"%s%s\" %s", name, is_cut ? "..." : "", what);
}

/* --- the end record ---------------------------------------------------------------------------- */

/* Its comment ends the archive. False when there is none. */
static bool find_end(struct str zip, size_t *end)
{
	size_t last = zip.n - END_SIZE, first = last > COMMENT_MAX ? last - COMMENT_MAX : 0;

	if (zip.n < END_SIZE)
		return false;
	for (size_t at = last + 1; at-- > first;) {
		if (is_signature(zip, at, "\x05\x06") &&
			u16_at(zip, at + 20) == zip.n - at - END_SIZE) {
			*end = at;
			return true;
		}
	}
	return false;
}

static int open_directory(struct directory *d, struct str zip, char *why)
{
	uint64_t size;
	size_t end;

	if (!find_end(zip, &end))
		return refuse(why, "is no zip archive, or not a whole one");
	if (end >= ZIP64_SIZE && is_signature(zip, end - ZIP64_SIZE, "\x06\x07"))
		return refuse(why, "is a zip64 archive: those are not supported");
	if (u16_at(zip, end + 4) || u16_at(zip, end + 6) ||
		u16_at(zip, end + 8) != u16_at(zip, end + 10))
		return refuse(why, "is a part of a split archive");
	*d = (struct directory){
		.zip = zip, .end = end, .n_entries = u16_at(zip, end + 10), .why = why};
	if (d->n_entries > ARCHIVE_FILES_MAX)
		return refuse(why, "has %u entries; at most %d are allowed", d->n_entries,
			ARCHIVE_FILES_MAX);
	size = u32_at(zip, end + 12);
	if (size > end || u32_at(zip, end + 16) != end - size)
		return refuse(why, "has no list of files where it should be");
	d->start = d->at = end - (size_t)size;
	return 0;
}

/* --- its entries ------------------------------------------------------------------------------- */

/* The next one, not checked yet; n_entries times. */
static int read_entry(struct directory *d, struct entry *out)
{
	struct str zip = d->zip;
	size_t at = d->at, left = d->end - at, name, extra, comment;
	const char *p;

	if (left < ENTRY_SIZE || !is_signature(zip, at, "\x01\x02"))
		return refuse(d->why, "has a malformed list of files");
	name = u16_at(zip, at + 28);
	extra = u16_at(zip, at + 30);
	comment = u16_at(zip, at + 32);
	if (left - ENTRY_SIZE < name + extra + comment)
		return refuse(d->why, "has a malformed list of files");
	p = zip.p + at + ENTRY_SIZE;
	*out = (struct entry){
		.name = {p, name},
		.flags = u16_at(zip, at + 8),
		.method = u16_at(zip, at + 10),
		.packed = u32_at(zip, at + 20),
		.size = u32_at(zip, at + 24),
		.mode = u32_at(zip, at + 38) >> 16,
		.offset = u32_at(zip, at + 42),
	};
	out->is_directory = name > 0 && p[name - 1] == '/';
	out->name.n -= out->is_directory;
	out->executable = out->mode & 0111;
	d->at += ENTRY_SIZE + name + extra + comment;
	return 0;
}

static bool is_plain_text(struct str name)
{
	for (size_t i = 0; i < name.n; i++) {
		unsigned char c = (unsigned char)name.p[i];

		if (c < 0x20 || c == 0x7f || c == '\\')
			return false;
	}
	return str_is_utf8(name);
}

static int check_name(struct directory *d, const struct entry *e)
{
	if (!is_plain_text(e->name))
		return refuse_entry(d->why, e,
			"has a backslash or control character in its name, or is no UTF-8");
	if (!bundle_name_is_valid(e->name))
		return refuse_entry(
			d->why, e, "is no relative path without `.` and `..`, or a too long one");
	return 0;
}

static int check_kind(struct directory *d, const struct entry *e)
{
	mode_t type = e->mode & S_IFMT;

	if (type && type != (e->is_directory ? S_IFDIR : S_IFREG))
		return refuse_entry(d->why, e, "is no regular file");
	if (e->flags & FLAGS_REFUSED)
		return refuse_entry(d->why, e, "is encrypted, or a patch");
	if (e->method != ZIP_CM_STORE && e->method != ZIP_CM_DEFLATE)
		return refuse_entry(d->why, e, "is not packed by deflate");
	if (e->is_directory && e->size)
		return refuse_entry(d->why, e, "is a directory with content");
	if (e->method == ZIP_CM_STORE && e->size != e->packed)
		return refuse_entry(d->why, e, "has two sizes");
	return 0;
}

/* So far together, with this one. */
static int check_sizes(struct directory *d, const struct entry *e, uint64_t *packed, uint64_t *size)
{
	*packed += e->packed;
	*size += e->size;
	if (*size > ARCHIVE_UNPACKED_MAX)
		return refuse(
			d->why, "unpacks to more than %d MiB", (int)(ARCHIVE_UNPACKED_MAX >> 20));
	if (e->offset >= d->start || *packed > d->start)
		return refuse_entry(d->why, e, "is not in the archive, or overlaps another file");
	if (*size > (UINT64_C(1) << 20) + ARCHIVE_RATIO_MAX * *packed)
		return refuse(d->why, "unpacks to more than %d times its size", ARCHIVE_RATIO_MAX);
	return 0;
}

enum { IS_FILE = 1, IS_DIRECTORY };

static void *mark(intptr_t kind)
{
	return (void *)kind;
}

/* The name, and the directories it needs. */
static int claim_names(struct directory *d, const struct entry *e, struct map *names)
{
	void *kind = mark(e->is_directory ? IS_DIRECTORY : IS_FILE);
	void *before;

	for (size_t n = 0; n < e->name.n; n++) {
		if (e->name.p[n] == '/' && map_set(names, (struct str){e->name.p, n},
						   mark(IS_DIRECTORY)) == mark(IS_FILE))
			return refuse_entry(d->why, e, "is in a directory that is a file too");
	}
	before = map_set(names, e->name, kind);
	if (before && !(e->is_directory && before == kind))
		return refuse_entry(d->why, e, "is there twice");
	return 0;
}

static int check_entries(struct directory *d, struct map *names)
{
	uint64_t packed = 0, size = 0;
	unsigned n_files = 0;

	for (unsigned i = 0; i < d->n_entries; i++) {
		struct entry e;
		int error = read_entry(d, &e);

		if (!error)
			error = check_name(d, &e);
		if (!error)
			error = check_kind(d, &e);
		if (!error)
			error = check_sizes(d, &e, &packed, &size);
		if (!error)
			error = claim_names(d, &e, names);
		if (error)
			return error;
		n_files += !e.is_directory;
	}
	if (d->at != d->end)
		return refuse(d->why, "lists more files than it says it has");
	return n_files ? 0 : refuse(d->why, "has no files");
}

int archive_check(struct str zip, char why[ARCHIVE_WHY_MAX])
{
	struct directory d;
	struct map names;
	int error;

	why[0] = '\0';
	error = open_directory(&d, zip, why);
	if (error)
		return error;
	map_init(&names);
	error = check_entries(&d, &names);
	map_fini(&names);
	return error;
}

/* --- unpacking --------------------------------------------------------------------------------- */

/* Memory is ours to find; everything else is wrong with the archive. */
static int zip_failed(char *why, const struct entry *e, zip_error_t *error)
{
	if (zip_error_code_zip(error) == ZIP_ER_MEMORY)
		return -ENOMEM;
	if (e)
		return refuse_entry(why, e, zip_error_strerror(error));
	return refuse(why, "cannot be read: %s", zip_error_strerror(error));
}

static int open_zip(struct str bytes, zip_t **out, char *why)
{
	zip_source_t *source;
	zip_error_t error;
	int failed = 0;

	zip_error_init(&error);
	source = zip_source_buffer_create(bytes.p, bytes.n, 0, &error);
	*out = source ? zip_open_from_source(source, ZIP_RDONLY, &error) : NULL;
	if (!*out) {
		failed = zip_failed(why, NULL, &error);
		zip_source_free(source);
	}
	zip_error_fini(&error);
	return failed;
}

/* libzip's entry is the one that was checked. */
static bool is_same(zip_t *zip, unsigned i, const struct entry *e)
{
	const char *name = zip_get_name(zip, i, ZIP_FL_ENC_RAW);
	zip_stat_t stat;

	return name && strlen(name) == e->name.n + e->is_directory &&
	       memcmp(name, e->name.p, e->name.n) == 0 && zip_stat_index(zip, i, 0, &stat) == 0 &&
	       stat.size == e->size && stat.comp_size == e->packed &&
	       stat.comp_method == e->method && stat.encryption_method == ZIP_EM_NONE;
}

static int copy_out(zip_file_t *file, const struct entry *e, int fd, char *chunk, char *why)
{
	uint64_t body, done = 0;
	zip_int64_t n;
	int error = bundle_begin(fd, e->name, e->executable, e->size, &body);

	while (!error && (n = zip_fread(file, chunk, CHUNK)) != 0) {
		if (n < 0)
			return zip_failed(why, e, zip_file_get_error(file));
		if ((uint64_t)n > e->size - done)
			return refuse_entry(why, e, "unpacks to more than it says");
		error = bundle_write(fd, body + done, chunk, (uint64_t)n);
		done += (uint64_t)n;
	}
	if (!error && done < e->size)
		return refuse_entry(why, e, "unpacks to less than it says");
	return error;
}

static int unpack_file(zip_t *zip, unsigned i, const struct entry *e, int fd, char *why)
{
	zip_file_t *file = zip_fopen_index(zip, i, 0);
	char *chunk;
	int error;

	if (!file)
		return zip_failed(why, e, zip_get_error(zip));
	chunk = mem_alloc(CHUNK);
	error = copy_out(file, e, fd, chunk, why);
	free(chunk);
	zip_fclose(file);
	return error;
}

static int unpack_all(struct directory *d, zip_t *zip, int fd)
{
	int error = 0;

	if (zip_get_num_entries(zip, 0) != d->n_entries)
		return refuse(d->why, "has two lists of files");
	for (unsigned i = 0; !error && i < d->n_entries; i++) {
		struct entry e;

		error = read_entry(d, &e);
		if (!error && !is_same(zip, i, &e))
			error = refuse_entry(d->why, &e, "is something else in a second list");
		if (!error && !e.is_directory)
			error = unpack_file(zip, i, &e, fd, d->why);
	}
	return error;
}

int archive_unpack(struct str bytes, int fd, char why[ARCHIVE_WHY_MAX])
{
	struct directory d;
	zip_t *zip;
	int error = archive_check(bytes, why);

	if (!error)
		error = open_directory(&d, bytes, why);
	if (!error)
		error = open_zip(bytes, &zip, why);
	if (error)
		return error;
	error = unpack_all(&d, zip, fd);
	zip_discard(zip);
	return error;
}
