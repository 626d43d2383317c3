/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls_files - theory of operation
 *
 * A key belongs where only root can read it, and certificates are renewed every few weeks. Workers have dropped root, so they never read
 * these files: the service does, which keeps root (web_role.c), at its start and at each SIGHUP. What can be used it writes to memory that the
 * workers have as a descriptor, before it sends them on their SIGHUP. A worker that is started later finds the same there.
 *
 *     service  files --> check --> SHA-256, lengths, certificate, key --> memory --> SIGHUP
 *     worker                                                              memory --> digest right? --> context
 *
 * A worker may look while the service writes: then the digest is wrong, and it looks again. Workers can only read there.
 */
/* First: OpenSSL has a parameter that is called `unused`, which is an attribute with us. */
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "roles/gateway/tls_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "reactor/base/clock.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"

#define FILE_MAX ((size_t)256 << 10)
#define LOOKS 1000 /* the service writes in less than one */
#define SOON_S (int64_t)(7 * 86400)

struct head {
	unsigned char digest[SHA256_DIGEST_LENGTH]; /* of all behind it */
	uint32_t certificate_n, key_n;
};

void tls_files_fini(struct tls_files *files)
{
	if (files->key.data)
		OPENSSL_cleanse(files->key.data, files->key.cap);
	buf_fini(&files->certificate);
	buf_fini(&files->key);
}

/* --- files ----------------------------------------------------------------------------------------------------------- */

void tls_files_check(const struct cfg *cfg, struct cfg_errors *errors)
{
	const struct {
		const char *name, *path, *other;
	} rows[] = {
		{"gateway.tls_certificate", cfg_str(cfg, OPT_gateway_tls_certificate),
			cfg_str(cfg, OPT_gateway_tls_key)},
		{"gateway.tls_key", cfg_str(cfg, OPT_gateway_tls_key),
			cfg_str(cfg, OPT_gateway_tls_certificate)},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].path[0] && rows[i].path[0] != '/')
			cfg_errors_add(
				errors, rows[i].name, "%s: is not an absolute path", rows[i].path);
		if (!rows[i].path[0] && rows[i].other[0])
			cfg_errors_add(errors, rows[i].name,
				"is missing: TLS needs both, %s and %s", rows[0].name,
				rows[1].name);
	}
}

/* Why it is not to be trusted, or NULL. A certificate is no secret. */
static const char *file_problem(int fd, bool is_key, unsigned owner)
{
	struct stat st;

	if (fstat(fd, &st))
		return strerror(errno);
	if (!S_ISREG(st.st_mode))
		return "is no regular file";
	if ((size_t)st.st_size > FILE_MAX)
		return "is larger than 256 KiB";
	if (!is_key)
		return NULL;
	if (st.st_mode & 077)
		return "others may read or write it: chmod 600";
	if (st.st_uid != 0 && st.st_uid != owner && st.st_uid != geteuid())
		return "must be owned by root or boot.user";
	return NULL;
}

static const char *read_all(int fd, struct buf *out)
{
	char *block = buf_reserve(out, FILE_MAX + 1);
	ssize_t n = 0;

	while (out->len <= FILE_MAX &&
		(n = read(fd, block + out->len, FILE_MAX + 1 - out->len)) > 0)
		out->len += (size_t)n;
	if (out->len > FILE_MAX)
		return "is larger than 256 KiB";
	return n < 0 ? strerror(errno) : NULL;
}

static bool read_file(
	const char *path, bool is_key, unsigned owner, struct log *log, struct buf *out)
{
	/* Renewed certificates are often reached by symbolic links. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	const char *why = fd < 0 ? strerror(errno) : file_problem(fd, is_key, owner);

	if (!why)
		why = read_all(fd, out);
	if (fd >= 0)
		close(fd);
	if (why)
		log_error(log, "tls", "file=\"%s\" problem=\"%s\"", path, why);
	return !why;
}

/* Can it be used, and for how long? */
static bool try_files(const struct cfg *cfg, struct log *log, const struct tls_files *files)
{
	const char *path = cfg_str(cfg, OPT_gateway_tls_certificate);
	char why[HTTP_TLS_WHY], until[CLOCK_TEXT_MAX];
	struct http_tls *tls = NULL;
	int64_t until_s;

	if (http_tls_server(buf_str(&files->certificate), buf_str(&files->key), &tls, why)) {
		log_error(log, "tls", "certificate=\"%s\" key=\"%s\" problem=\"%s\"", path,
			cfg_str(cfg, OPT_gateway_tls_key), why);
		return false;
	}
	until_s = http_tls_valid_until(tls);
	http_tls_free(tls);
	clock_text(until_s * US_PER_S, until);
	if (until_s < clock_wall_us() / US_PER_S + SOON_S)
		log_warn(log, "tls",
			"certificate=\"%s\" valid_until=%s fix=\"renew it, then send SIGHUP\"",
			path, until);
	else
		log_info(log, "tls", "certificate=\"%s\" valid_until=%s", path, until);
	return true;
}

bool tls_files_read(const struct cfg *cfg, unsigned owner, struct log *log, struct tls_files *out)
{
	const char *certificate = cfg_str(cfg, OPT_gateway_tls_certificate);

	*out = TLS_FILES_NULL;
	if (!certificate[0])
		return true;
	if (read_file(certificate, false, owner, log, &out->certificate) &&
		read_file(cfg_str(cfg, OPT_gateway_tls_key), true, owner, log, &out->key) &&
		try_files(cfg, log, out))
		return true;
	tls_files_fini(out);
	return false;
}

/* --- memory ------------------------------------------------------------------------------------------------------------ */

int tls_share_new(void)
{
	int fd = memfd_create("conclave-tls", MFD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int tls_share_for_readers(int fd)
{
	char path[32];
	int reader;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	reader = open(path, O_RDONLY | O_CLOEXEC);
	return reader < 0 ? -errno : reader;
}

static void digest_of(const struct buf *all, unsigned char out[SHA256_DIGEST_LENGTH])
{
	size_t skip = offsetof(struct head, certificate_n);

	SHA256((const unsigned char *)all->data + skip, all->len - skip, out);
}

int tls_share_write(int fd, const struct tls_files *files)
{
	struct head head = {.certificate_n = (uint32_t)files->certificate.len,
		.key_n = (uint32_t)files->key.len};
	struct buf all = BUF_INIT;
	ssize_t n;

	buf_add(&all, &head, sizeof(head));
	buf_add(&all, files->certificate.data, files->certificate.len);
	buf_add(&all, files->key.data, files->key.len);
	digest_of(&all, head.digest);
	memcpy(all.data, &head, sizeof(head));
	n = pwrite(fd, all.data, all.len, 0);
	n = n == (ssize_t)all.len ? 0 : n < 0 ? -errno : -ENOSPC;
	OPENSSL_cleanse(all.data, all.cap);
	buf_fini(&all);
	return (int)n;
}

/* All that is there, when it is whole. */
static int look(int fd, struct buf *all)
{
	unsigned char digest[SHA256_DIGEST_LENGTH];
	struct head head;
	ssize_t n = pread(
		fd, buf_reserve(all, sizeof(head) + 2 * FILE_MAX), sizeof(head) + 2 * FILE_MAX, 0);

	if (n < (ssize_t)sizeof(head))
		return n < 0 ? -errno : -EINVAL;
	memcpy(&head, all->data, sizeof(head));
	all->len = sizeof(head) + (size_t)head.certificate_n + head.key_n;
	if (head.certificate_n > FILE_MAX || head.key_n > FILE_MAX || all->len > (size_t)n) {
		all->len = 0;
		return -EAGAIN;
	}
	digest_of(all, digest);
	return memcmp(digest, head.digest, sizeof(digest)) ? -EAGAIN : 0;
}

static int make_context(const struct buf *all, struct http_tls **out)
{
	struct head head;
	char why[HTTP_TLS_WHY];

	memcpy(&head, all->data, sizeof(head));
	*out = NULL;
	if (!head.certificate_n)
		return 0;
	return http_tls_server((struct str){all->data + sizeof(head), head.certificate_n},
		(struct str){all->data + sizeof(head) + head.certificate_n, head.key_n}, out, why);
}

int tls_share_read(int fd, struct http_tls **out)
{
	struct buf all = BUF_INIT;
	int r = -EAGAIN;

	for (int i = 0; i < LOOKS && r == -EAGAIN; i++)
		r = look(fd, &all);
	if (!r)
		r = make_context(&all, out);
	if (all.data)
		OPENSSL_cleanse(all.data, all.cap);
	buf_fini(&all);
	return r;
}
