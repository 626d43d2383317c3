/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine - where a judge on this machine keeps its things, found as boot finds it (roles/boot/dirs), and who holds a lock there.
 *
 * Looking changes nothing: a lock is asked about with F_OFD_GETLK, never taken, for boot would see it taken.
 */
#include "roles/cli/cli_int.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cfg/cfg.h"
#include "reactor/base/mem.h"
#include "roles/boot/dirs.h"

static const char *const programs[] = {"judicator", "executor", "gateway"};

/* The configuration of a program started with our --dir and --run-dir and nothing else; free it. */
static struct cfg *resolve(const struct cli *cli, const char *program, bool *found)
{
	const char *dir = cli_value(cli, "--dir"), *run_dir = cli_value(cli, "--run-dir");
	struct cfg_errors errors cleanup(cfg_errors_fini) = {BUF_INIT, 0};
	struct buf space cleanup(buf_fini) = BUF_INIT;
	struct cfg *cfg = cfg_new();
	struct dirs_env env;

	if (dir)
		cfg_set(cfg, OPT_boot_dir, dir, "--dir", &errors);
	if (run_dir)
		cfg_set(cfg, OPT_boot_run_dir, run_dir, "--run-dir", &errors);
	dirs_env_get(&env, program, &space);
	dirs_resolve(cfg, &env, &errors);
	*found = errors.count == 0;
	return cfg;
}

unsigned machine_run_dirs(struct cli *cli, void (*each)(void *arg, const char *path), void *arg)
{
	bool given = cli_value(cli, "--dir") || cli_value(cli, "--run-dir");
	unsigned count = 0;

	for (size_t i = 0; i < (given ? 1 : ARRAY_SIZE(programs)); i++) {
		bool found;
		struct cfg *cfg = resolve(cli, programs[i], &found);
		struct stat st;

		if (found && stat(cfg_str(cfg, OPT_boot_run_dir), &st) == 0 &&
			S_ISDIR(st.st_mode)) {
			each(arg, cfg_str(cfg, OPT_boot_run_dir));
			count++;
		}
		cfg_free(cfg);
	}
	return count;
}

char *machine_state_dir(struct cli *cli)
{
	bool found;
	struct cfg *cfg = resolve(cli, programs[0], &found);
	char *dir = found ? mem_strdup(cfg_str(cfg, OPT_boot_dir)) : NULL;

	cfg_free(cfg);
	return dir;
}

enum lock_state machine_lock_state(const char *path)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	int rc;

	if (fd < 0)
		return LOCK_UNREADABLE;
	rc = fcntl(fd, F_OFD_GETLK, &lock);
	close(fd);
	if (rc != 0)
		return LOCK_UNREADABLE;
	return lock.l_type == F_UNLCK ? LOCK_FREE : LOCK_HELD;
}
