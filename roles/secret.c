/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secret - reads the secret once, at start, into the transport; refuses a file that others can read.
 */
#include "roles/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "roles/role.h"
#include "rpc/transport.h"

#define SECRET_MIN 16
#define SECRET_MAX 256

/* Bytes read, or -errno; -EPERM when others may read the file. */
static int secret_read(const char *path, char out[SECRET_MAX + 1])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		n = -errno;
	else if (st.st_mode & 077)
		n = -EPERM;
	else if ((n = read(fd, out, SECRET_MAX)) < 0)
		n = -errno;
	close(fd);
	return (int)n;
}

struct transport *secret_transport(const struct role_env *env)
{
	const char *set = cfg_str(env->cfg, OPT_rpc_secret_file);
	char *path cleanup(mem_freep) = *set ? mem_strdup(set) : mem_printf("%s/secret", env->dir);
	char text[SECRET_MAX + 1];
	struct transport *transport = NULL;
	struct str secret;
	int n = secret_read(path, text);

	if (n == -EPERM) {
		log_error(env->log, "secret",
			"file=%s why=\"others may read it\" fix=\"chmod 600\"", path);
		return NULL;
	}
	if (n < 0) {
		log_error(env->log, "secret",
			"file=%s why=\"%s\" fix=\"copy it from a judicator's state directory, "
			"owned by boot.user\"",
			path, strerror(-n));
		return NULL;
	}
	secret = str_trim((struct str){text, (size_t)n});
	if (secret.n < SECRET_MIN)
		log_error(env->log, "secret", "file=%s why=\"shorter than %d bytes\"", path,
			SECRET_MIN);
	else
		transport = transport_http_new(env->loop, env->log, secret);
	explicit_bzero(text, sizeof(text));
	return transport;
}
