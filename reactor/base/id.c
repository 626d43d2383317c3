/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids are kept as text: that is how they are stored, logged, sent and compared, and 25 bytes are cheap.
 * Seconds come first and big-endian, so ids sort by the time they were made.
 */
#include "reactor/base/id.h"

#include <stdio.h>

struct id id_make(uint32_t seconds, uint64_t random)
{
	struct id id;

	snprintf(id.hex, sizeof(id.hex), "%08lx%016llx", (unsigned long)seconds,
		(unsigned long long)random);
	return id;
}

struct id id_from_bytes(const void *p)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *bytes = p;
	struct id id;

	for (size_t i = 0; i < ID_LEN / 2; i++) {
		id.hex[2 * i] = digits[bytes[i] >> 4];
		id.hex[2 * i + 1] = digits[bytes[i] & 15];
	}
	id.hex[ID_LEN] = '\0';
	return id;
}

bool id_is_valid(struct str s)
{
	if (!s.p || s.n != ID_LEN)
		return false;
	for (size_t i = 0; i < s.n; i++)
		if (!(s.p[i] >= '0' && s.p[i] <= '9') && !(s.p[i] >= 'a' && s.p[i] <= 'f'))
			return false;
	return true;
}

bool id_parse(struct str s, struct id *out)
{
	*out = (struct id){{0}};
	if (!id_is_valid(s))
		return false;
	memcpy(out->hex, s.p, ID_LEN);
	return true;
}

bool id_eq(const struct id *a, const struct id *b)
{
	return memcmp(a->hex, b->hex, ID_LEN) == 0;
}
