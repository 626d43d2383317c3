/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hold - keeps a service from being started, by holding its pid file's advisory lock until ^C.
 *
 * The lock does not end the service: one that runs goes on, and stays down once it has ended. Boot holds the lock for a moment at
 * each start, so a lock that is taken is asked for again for a while.
 */
#include "roles/cli/cli_int.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proc/pidfile.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"

#define TRIES 100
#define PAUSE_US (20 * US_PER_MS)

static const struct cli_flag flags[] = {
	{"--dir", NULL, "DIR", FLAG_FILE, "State directory the judge was started with."},
	{"--run-dir", NULL, "DIR", FLAG_FILE,
		"Its run directory; needed where several have a service of that name."},
};

struct search {
	struct cli *cli;
	char *path; /* the pid file found first */
	unsigned n;
};

static void on_run_dir(void *arg, const char *dir)
{
	struct search *s = arg;
	char *path = mem_printf("%s/%s.pid", dir, s->cli->args.words[0]);

	if (access(path, F_OK) != 0) {
		free(path);
		return;
	}
	s->n++;
	free(s->path);
	s->path = path;
}

static int lock(struct cli *cli, const char *path, int *fd)
{
	int error = PIDFILE_E_LOCKED;

	for (int i = 0; i < TRIES && error == PIDFILE_E_LOCKED; i++) {
		error = pidfile_lock(path, fd);
		if (error == PIDFILE_E_LOCKED && !cli_pause(cli, PAUSE_US))
			return CLI_INTERRUPTED;
	}
	if (error == PIDFILE_E_LOCKED)
		return cli_fail(cli, CLI_NOT_ACCEPTED, "%s: somebody else holds it", path);
	if (error)
		return cli_fail(cli, CLI_USAGE, "%s: %s; hold as the user that started boot", path,
			strerror(-error));
	return 0;
}

static void say_held(const struct cli *cli, const char *path)
{
	const char *name = cli->args.words[0];
	pid_t pid = pidfile_read(path);

	fprintf(cli->env->out, "%s is held: boot does not start it until this ends (^C)\n", name);
	if (pid > 1)
		fprintf(cli->env->out, "it runs on as pid %ld; to end it: kill %ld\n", (long)pid,
			(long)pid);
	fflush(cli->env->out);
}

static int hold(struct cli *cli, const char *path)
{
	int fd = -1;
	int rc = lock(cli, path, &fd);

	if (rc)
		return rc;
	say_held(cli, path);
	while (cli_pause(cli, 3600 * US_PER_S))
		;
	pidfile_unlock(&fd);
	fprintf(cli->env->out, "released\n");
	return CLI_OK;
}

static int run(struct cli *cli)
{
	const char *name = cli->args.words[0];
	struct search s = {.cli = cli};
	int rc;

	if (strchr(name, '/'))
		return cli_fail(cli, CLI_USAGE, "%s: the name of a service has no slash", name);
	machine_run_dirs(cli, on_run_dir, &s);
	if (!s.n)
		rc = cli_fail(cli, CLI_USAGE,
			"%s: no such service here; conclave services lists them (--dir, --run-dir: "
			"where)",
			name);
	else if (s.n > 1)
		rc = cli_fail(cli, CLI_USAGE,
			"%s: several programs have a service of that name; give --run-dir", name);
	else
		rc = hold(cli, s.path);
	free(s.path);
	return rc;
}

const struct command cmd_hold = {
	.name = "hold",
	.args = "SERVICE",
	.summary = "Keep a service of this machine from being started, until ^C",
	.prose = "A service that runs goes on; once it has ended, boot waits for the release to "
		 "start it.",
	.flags = {flags, ARRAY_SIZE(flags)},
	.words_min = 1,
	.words_max = 1,
	.run = run,
};
