/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file is written aside and linked into place: link() refuses when the name exists, so an existing secret is never
 * replaced, and a crash never leaves a short one for the services to trip over.
 */
#include "roles/boot/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reactor/base/mem.h"
#include "reactor/loop.h"

#define SECRET_BYTES 32

static void fill(struct loop *loop, char text[2 * SECRET_BYTES + 1])
{
	static const char digits[] = "0123456789abcdef";
	unsigned char bytes[SECRET_BYTES];

	loop_random_bytes(loop, bytes, sizeof(bytes));
	for (size_t i = 0; i < SECRET_BYTES; i++) {
		text[2 * i] = digits[bytes[i] >> 4];
		text[2 * i + 1] = digits[bytes[i] & 15];
	}
	text[2 * SECRET_BYTES] = '\n';
	explicit_bzero(bytes, sizeof(bytes));
}

static int write_secret(struct loop *loop, int fd, const struct user *user)
{
	char text[2 * SECRET_BYTES + 1];
	ssize_t n;
	int error;

	fill(loop, text);
	n = write(fd, text, sizeof(text));
	error = n < 0 ? -errno : n != (ssize_t)sizeof(text) ? -ENOSPC : 0;
	explicit_bzero(text, sizeof(text));
	if (!error && geteuid() == 0 && fchown(fd, user->uid, user->gid) < 0)
		error = -errno;
	if (!error && fsync(fd) < 0)
		error = -errno;
	return error;
}

int secret_file_make(struct loop *loop, const char *path, const struct user *user)
{
	char *aside cleanup(mem_freep) = mem_printf("%s.XXXXXX", path);
	int fd, error;

	if (access(path, F_OK) == 0)
		return SECRET_FILE_E_EXISTS;
	fd = mkostemp(aside, O_CLOEXEC); /* 0600 */
	if (fd < 0)
		return -errno;
	error = write_secret(loop, fd, user);
	close(fd);
	if (!error && link(aside, path) < 0)
		error = errno == EEXIST ? SECRET_FILE_E_EXISTS : -errno;
	unlink(aside);
	return error;
}

bool secret_file_is_exposed(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && st.st_mode & 077;
}
