/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a bundle from a box: what is accepted has valid names, sizes that add up, and can be written again into a bundle that
 * reads the same.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "proc/box/bundle.h"

#define BYTES_MAX (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(int fd, const struct bundle *first)
{
	struct bundle second = {0};
	struct bundle_entry a, b;
	uint64_t at = 0, at_again = 0;

	CHECK(bundle_seal(fd) == 0);
	CHECK(bundle_open(fd, BYTES_MAX, &second) == 0);
	CHECK(second.n_files == first->n_files && second.bytes == first->bytes);
	while (bundle_next(first, &at, &a)) {
		CHECK(bundle_next(&second, &at_again, &b));
		CHECK(str_eq(a.name, b.name) && a.executable == b.executable && a.size == b.size);
		CHECK(!a.size || memcmp(a.bytes, b.bytes, a.size) == 0);
	}
	bundle_close(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING), again = -1;
	struct bundle bundle = {0};
	struct bundle_entry e;
	uint64_t at = 0, bytes = 0;
	unsigned n = 0;

	CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	if (bundle_open(fd, BYTES_MAX, &bundle) == 0) {
		CHECK(bundle_create(&again) == 0);
		while (bundle_next(&bundle, &at, &e)) {
			CHECK(bundle_name_is_valid(e.name));
			CHECK(bundle_add(again, e.name, e.executable, e.bytes, e.size) == 0);
			bytes += e.size;
			n++;
		}
		CHECK(n == bundle.n_files && bytes == bundle.bytes && bytes <= BYTES_MAX);
		check_again(again, &bundle);
		close(again);
		bundle_close(&bundle);
	}
	close(fd);
	return 0;
}
