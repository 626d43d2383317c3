/* SPDX-License-Identifier: Apache-2.0 */
/* Certificate and key: who may own them, what is refused, and how workers get them whole although they are being replaced. */
#include "test/unit/rpc/certificate.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "roles/gateway/tls_files.h"

struct fixture {
	char dir[64];
	char *certificate, *key;
	struct cfg *cfg;
	struct log *log;
	int log_fd;
	struct certificate one, two;
};

static void put(const char *path, struct str text, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text.p, text.n), text.n);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void put_pair(struct fixture *f, struct certificate *certificate, struct certificate *key)
{
	put(f->certificate, buf_str(&certificate->certificate_pem), 0644);
	put(f->key, buf_str(&key->key_pem), 0600);
}

static void set(struct fixture *f, enum cfg_option option, const char *value)
{
	struct cfg_errors errors cleanup(cfg_errors_fini) = {BUF_INIT, 0};

	cfg_set(f->cfg, option, value, "test", &errors);
	assert_int_equal(errors.count, 0);
}

static int setup(void **state)
{
	struct fixture *f = mem_alloc(sizeof(*f));

	strcpy(f->dir, "/tmp/conclave-test-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	f->certificate = mem_printf("%s/certificate", f->dir);
	f->key = mem_printf("%s/key", f->dir);
	f->log_fd = open(f->dir, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	assert_true(f->log_fd >= 0);
	f->log = log_new(f->log_fd, "test", LOG_INFO);
	f->cfg = cfg_new();
	certificate_make(&f->one, "one", "DNS:one", NULL, 30 * 86400);
	certificate_make(&f->two, "two", "DNS:two", NULL, 30 * 86400);
	put_pair(f, &f->one, &f->one);
	set(f, OPT_gateway_tls_certificate, f->certificate);
	set(f, OPT_gateway_tls_key, f->key);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	unlink(f->certificate);
	unlink(f->key);
	rmdir(f->dir);
	free(f->certificate);
	free(f->key);
	log_free(f->log);
	close(f->log_fd);
	cfg_free(f->cfg);
	certificate_fini(&f->one);
	certificate_fini(&f->two);
	free(f);
	return 0;
}

/* What was logged since the last time. */
static void expect_logged(struct fixture *f, const char *word)
{
	char text[4096] = "";

	assert_true(pread(f->log_fd, text, sizeof(text) - 1, 0) >= 0);
	assert_int_equal(ftruncate(f->log_fd, 0), 0);
	assert_int_equal(lseek(f->log_fd, 0, SEEK_SET), 0);
	if (!strstr(text, word))
		fail_msg("wanted \"%s\" in \"%s\"", word, text);
	assert_null(strstr(text, "PRIVATE"));
}

static void reads(struct fixture *f, struct tls_files *files)
{
	assert_true(tls_files_read(f->cfg, geteuid(), f->log, files));
}

static void refuses(struct fixture *f, unsigned owner, const char *word)
{
	struct tls_files files;

	assert_false(tls_files_read(f->cfg, owner, f->log, &files));
	assert_int_equal(files.certificate.len + files.key.len, 0);
	expect_logged(f, word);
}

static void test_good_files(void **state)
{
	struct fixture *f = *state;
	struct tls_files files;

	reads(f, &files);
	assert_true(str_is(buf_str(&files.certificate), f->one.certificate_pem.data));
	assert_true(str_is(buf_str(&files.key), f->one.key_pem.data));
	expect_logged(f, "valid_until=");
	tls_files_fini(&files);
	tls_files_fini(&files);
	/* Without any there is no TLS. */
	set(f, OPT_gateway_tls_certificate, "");
	set(f, OPT_gateway_tls_key, "");
	reads(f, &files);
	assert_int_equal(files.certificate.len, 0);
}

static void test_links_are_followed(void **state)
{
	struct fixture *f = *state;
	struct tls_files files;
	char *real cleanup(mem_freep) = mem_printf("%s/real", f->dir);

	assert_int_equal(rename(f->certificate, real), 0);
	assert_int_equal(symlink(real, f->certificate), 0);
	reads(f, &files);
	tls_files_fini(&files);
	unlink(real);
	refuses(f, 0, "No such file");
}

static void test_soon_over(void **state)
{
	struct fixture *f = *state;
	struct certificate soon;
	struct tls_files files;

	certificate_make(&soon, "soon", "DNS:soon", NULL, 86400);
	put_pair(f, &soon, &soon);
	reads(f, &files);
	expect_logged(f, "level=warn");
	tls_files_fini(&files);
	certificate_fini(&soon);
}

static void test_bad_files(void **state)
{
	struct fixture *f = *state;
	char *large cleanup(mem_freep) = mem_alloc(300 << 10);

	put_pair(f, &f->one, &f->two);
	refuses(f, 0, "the key is not the certificate's");
	put_pair(f, &f->one, &f->one);
	assert_int_equal(chmod(f->key, 0640), 0);
	refuses(f, 0, "chmod 600");
	put(f->certificate, STR("nonsense"), 0644);
	assert_int_equal(chmod(f->key, 0600), 0);
	refuses(f, 0, "the certificate is no PEM");
	memset(large, '\n', 300 << 10);
	put(f->certificate, (struct str){large, 300 << 10}, 0644);
	refuses(f, 0, "larger than 256 KiB");
	unlink(f->certificate);
	assert_int_equal(mkfifo(f->certificate, 0600), 0);
	refuses(f, 0, "is no regular file");
}

/* Only root can make a file somebody else's. */
static void test_owner_of_the_key(void **state)
{
	struct fixture *f = *state;
	struct tls_files files;

	if (geteuid() == 0)
		assert_int_equal(chown(f->key, 12345, 12345), 0);
	if (geteuid() == 0)
		refuses(f, 54321, "must be owned by root or boot.user");
	assert_true(tls_files_read(f->cfg, geteuid() == 0 ? 12345 : geteuid(), f->log, &files));
	tls_files_fini(&files);
}

static void check_says(struct fixture *f, const char *word)
{
	struct cfg_errors errors cleanup(cfg_errors_fini) = {BUF_INIT, 0};

	tls_files_check(f->cfg, &errors);
	if (!word) {
		assert_int_equal(errors.count, 0);
		return;
	}
	assert_true(errors.count > 0);
	if (!strstr(errors.text.data, word))
		fail_msg("wanted \"%s\" in \"%s\"", word, errors.text.data);
}

static void test_check(void **state)
{
	struct fixture *f = *state;

	check_says(f, NULL);
	set(f, OPT_gateway_tls_key, "");
	check_says(f, "gateway.tls_key: is missing");
	set(f, OPT_gateway_tls_key, "key");
	check_says(f, "gateway.tls_key: key: is not an absolute path");
	set(f, OPT_gateway_tls_certificate, "");
	check_says(f, "gateway.tls_certificate: is missing");
	set(f, OPT_gateway_tls_key, "");
	check_says(f, NULL);
}

/* --- memory ---------------------------------------------------------------------------------------------------------------- */

static void test_share(void **state)
{
	struct fixture *f = *state;
	struct tls_files files;
	struct http_tls *tls = NULL;
	int fd = tls_share_new(), reader = tls_share_for_readers(fd);

	assert_int_equal(tls_share_read(reader, &tls), -EINVAL); /* nothing was written */
	reads(f, &files);
	assert_int_equal(tls_share_write(fd, &files), 0);
	assert_int_equal(tls_share_read(reader, &tls), 0);
	assert_non_null(tls);
	http_tls_free(tls);
	assert_int_equal(tls_share_write(reader, &files), -EBADF); /* a worker cannot */
	/* Half of a new one: it is not taken for whole. */
	assert_int_equal(pwrite(fd, "x", 1, 40), 1);
	assert_int_equal(tls_share_read(reader, &tls), -EAGAIN);
	/* A shorter one, and none. */
	tls_files_fini(&files);
	put_pair(f, &f->two, &f->two);
	reads(f, &files);
	assert_int_equal(tls_share_write(fd, &files), 0);
	assert_int_equal(tls_share_read(reader, &tls), 0);
	http_tls_free(tls);
	tls_files_fini(&files);
	assert_int_equal(tls_share_write(fd, &files), 0);
	assert_int_equal(tls_share_read(reader, &tls), 0);
	assert_null(tls);
	/* Lengths that are none. */
	assert_int_equal(pwrite(fd, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, 32), 8);
	assert_int_equal(tls_share_read(reader, &tls), -EAGAIN);
	close(fd);
	close(reader);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_good_files),
		TEST(test_links_are_followed),
		TEST(test_soon_over),
		TEST(test_bad_files),
		TEST(test_owner_of_the_key),
		TEST(test_check),
		TEST(test_share),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
