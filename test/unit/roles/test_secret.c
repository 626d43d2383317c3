/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared secret at a service's start: read once, and refused with the right words when others could have read it too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reactor/base/buf.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/role.h"
#include "roles/secret.h"
#include "rpc/transport.h"

#define LONG "0123456789abcdef0123456789abcdef\n"

struct place {
	char dir[64], *path;
	struct buf logged;
	struct loop *loop;
	struct role_env env;
	struct cfg *cfg;
};

static void sink(void *arg, enum log_level level, const char *line)
{
	struct place *p = arg;

	buf_addf(&p->logged, "%s\n", line);
}

static int setup(void **state)
{
	struct place *p = mem_alloc(sizeof(*p));

	strcpy(p->dir, "/tmp/test_secret.XXXXXX");
	if (!mkdtemp(p->dir))
		return -1;
	p->path = mem_printf("%s/secret", p->dir);
	p->loop = loop_new(NULL);
	p->cfg = cfg_new();
	p->env = (struct role_env){.loop = p->loop,
		.log = log_new_sink(sink, p, "test", LOG_INFO),
		.cfg = p->cfg,
		.dir = p->dir};
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	struct place *p = *state;

	unlink(p->path);
	rmdir(p->dir);
	log_free(p->env.log);
	cfg_free(p->cfg);
	loop_free(p->loop);
	buf_fini(&p->logged);
	free(p->path);
	free(p);
	return 0;
}

/* text NULL: no file. */
static void put(struct place *p, const char *text, mode_t mode)
{
	int fd;

	unlink(p->path);
	if (!text)
		return;
	fd = open(p->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void only_a_private_secret_is_taken(void **state)
{
	static const struct {
		const char *text;
		mode_t mode;
		const char *refusal; /* NULL: taken */
	} rows[] = {
		{LONG, 0600, NULL},
		{LONG, 0400, NULL},
		{LONG, 0644, "why=\"others may read it\" fix=\"chmod 600\""},
		{LONG, 0640, "why=\"others may read it\" fix=\"chmod 600\""},
		{LONG, 0602, "why=\"others may read it\" fix=\"chmod 600\""},
		{"short\n", 0600, "why=\"shorter than 16 bytes\""},
		{"", 0600, "why=\"shorter than 16 bytes\""},
		{NULL, 0, "why=\"No such file or directory\""},
	};
	struct place *p = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct transport *transport;

		buf_clear(&p->logged);
		put(p, rows[i].text, rows[i].mode);
		transport = secret_transport(&p->env);
		assert_int_equal(transport != NULL, rows[i].refusal == NULL);
		if (rows[i].refusal)
			assert_non_null(strstr(p->logged.data, rows[i].refusal));
		if (transport)
			transport->ops->free(transport);
	}
}

static void what_cannot_be_read_is_refused(void **state)
{
	struct place *p = *state;

	unlink(p->path);
	assert_int_equal(mkdir(p->path, 0700), 0);
	assert_null(secret_transport(&p->env));
	assert_non_null(strstr(p->logged.data, "why=\"Is a directory\""));
	rmdir(p->path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(only_a_private_secret_is_taken, setup, teardown),
		cmocka_unit_test_setup_teardown(what_cannot_be_read_is_refused, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
