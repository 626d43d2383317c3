/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main - the process around cli_run(): streams, terminals, environment.
 */
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "roles/cli/cli.h"

static const char *own_path(char path[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);

	if (n < 0)
		return NULL;
	path[n] = '\0';
	return path;
}

int main(int argc, char **argv)
{
	char path[PATH_MAX];
	const struct cli_env env = {
		.in = stdin,
		.out = stdout,
		.err = stderr,
		.out_is_terminal = isatty(STDOUT_FILENO),
		.err_is_terminal = isatty(STDERR_FILENO),
		.url = getenv("CONCLAVE_URL"),
		.token = getenv("CONCLAVE_TOKEN"),
		.program = own_path(path),
		.signals = true,
	};

	return cli_run(&env, argc, argv);
}
