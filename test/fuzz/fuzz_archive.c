/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an archive: what is refused says why in UTF-8; what is unpacked was accepted before, and is a bundle of valid names
 * within the bounds. Nothing is our fault.
 */
#include <errno.h>
#include <unistd.h>

#include "proc/box/bundle.h"
#include "rpc/task/archive.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_reason(const char *why)
{
	CHECK(why[0] && strlen(why) < ARCHIVE_WHY_MAX && str_is_utf8(str_from(why)));
}

static void check_bundle(int fd, size_t size)
{
	struct bundle bundle = {0};
	struct bundle_entry e;
	uint64_t at = 0;
	unsigned n = 0;

	CHECK(bundle_seal(fd) == 0);
	CHECK(bundle_open(fd, ARCHIVE_UNPACKED_MAX, &bundle) == 0);
	while (bundle_next(&bundle, &at, &e)) {
		CHECK(bundle_name_is_valid(e.name) && str_is_utf8(e.name));
		n++;
	}
	CHECK(n > 0 && n <= ARCHIVE_FILES_MAX);
	CHECK(bundle.bytes <= (1 << 20) + (uint64_t)size * ARCHIVE_RATIO_MAX);
	bundle_close(&bundle);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str zip = {(const char *)data, size};
	char why[ARCHIVE_WHY_MAX];
	int fd, error = archive_check(zip, why);
	bool is_good = !error;

	CHECK(is_good || error == -EBADMSG);
	if (!is_good)
		check_reason(why);
	CHECK(bundle_create(&fd) == 0);
	error = archive_unpack(zip, fd, why);
	CHECK(is_good || error == -EBADMSG);
	if (error == 0) {
		check_bundle(fd, size);
	} else {
		CHECK(error == -EBADMSG);
		check_reason(why);
	}
	close(fd);
	return 0;
}
