/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip_maker - zip archives byte by byte, so that every field can lie. zip_begin(), zip_put() a file, zip_finish().
 */
#pragma once

#include "reactor/base/buf.h"

struct zip_maker {
	struct buf bytes, directory;
	unsigned n;
};

/* What an entry says; zeros are the truth: a stored, regular file. */
struct zip_entry {
	const char *name;
	size_t name_len;    /* 0 = strlen(name) */
	struct str content; /* as it stands in the archive */
	unsigned mode;      /* of unix */
	unsigned flags, method;
	uint32_t size, crc; /* 0 = of content */
	const char *local;  /* the name in the local header, as long as name */
	bool no_data;       /* only the directory has it; `offset` is its place */
	uint32_t offset;
};

static inline void zip_u16(struct buf *b, unsigned value)
{
	buf_add_char(b, (char)(value & 0xff));
	buf_add_char(b, (char)(value >> 8 & 0xff));
}

static inline void zip_u32(struct buf *b, uint32_t value)
{
	zip_u16(b, value & 0xffff);
	zip_u16(b, value >> 16);
}

static inline void zip_bytes(struct buf *b, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_add_char(b, p[i]);
}

static inline uint32_t zip_crc(struct str s)
{
	uint32_t crc = 0xffffffff;

	for (size_t i = 0; i < s.n; i++) {
		crc ^= (unsigned char)s.p[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

/* What both headers share: flags, method, time, crc, sizes, length of the name. */
static inline void zip_common(struct buf *b, const struct zip_entry *e, size_t name_len)
{
	zip_u16(b, e->flags);
	zip_u16(b, e->method);
	zip_u32(b, 0x58210000);
	zip_u32(b, e->crc ? e->crc : zip_crc(e->content));
	zip_u32(b, (uint32_t)e->content.n);
	zip_u32(b, e->size ? e->size : (uint32_t)e->content.n);
	zip_u16(b, (unsigned)name_len);
	zip_u16(b, 0);
}

static inline void zip_put(struct zip_maker *z, const struct zip_entry *e)
{
	size_t name_len = e->name_len ? e->name_len : strlen(e->name);
	uint32_t offset = e->no_data ? e->offset : (uint32_t)z->bytes.len;

	if (!e->no_data) {
		zip_u32(&z->bytes, 0x04034b50);
		zip_u16(&z->bytes, 20);
		zip_common(&z->bytes, e, name_len);
		zip_bytes(&z->bytes, e->local ? e->local : e->name, name_len);
		zip_bytes(&z->bytes, e->content.p, e->content.n);
	}
	zip_u32(&z->directory, 0x02014b50);
	zip_u16(&z->directory, 3 << 8 | 20);
	zip_u16(&z->directory, 20);
	zip_common(&z->directory, e, name_len);
	zip_u16(&z->directory, 0);
	zip_u16(&z->directory, 0);
	zip_u16(&z->directory, 0);
	zip_u32(&z->directory, (uint32_t)e->mode << 16);
	zip_u32(&z->directory, offset);
	zip_bytes(&z->directory, e->name, name_len);
	z->n++;
}

/* A stored file of a name and content. */
static inline void zip_put_file(struct zip_maker *z, const char *name, const char *content)
{
	zip_put(z, &(struct zip_entry){.name = name, .content = str_from(content)});
}

/* The archive, in z->bytes; n_entries is what the end record says. */
static inline struct str zip_finish(struct zip_maker *z, unsigned n_entries)
{
	uint32_t start = (uint32_t)z->bytes.len;

	zip_bytes(&z->bytes, z->directory.data, z->directory.len);
	zip_u32(&z->bytes, 0x06054b50);
	zip_u32(&z->bytes, 0);
	zip_u16(&z->bytes, n_entries);
	zip_u16(&z->bytes, n_entries);
	zip_u32(&z->bytes, (uint32_t)z->directory.len);
	zip_u32(&z->bytes, start);
	zip_u16(&z->bytes, 0);
	return buf_str(&z->bytes);
}

static inline void zip_fini(struct zip_maker *z)
{
	buf_fini(&z->bytes);
	buf_fini(&z->directory);
	*z = (struct zip_maker){BUF_INIT, BUF_INIT, 0};
}
