/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * Resolving is pure: configuration and environment in, four options out, so that boot, --check and the services (which
 * read the generated files) can never disagree. Making happens once, in boot, before anything else runs. A
 * directory that exists is somebody's decision and is left alone; one that we make gets its mode and owner on
 * creation, through its descriptor.
 *
 * One decision is not left alone: started as root, boot and the services read files in RUN as root, so nobody but root may be able to
 * put others there, whether in RUN itself or by renaming what is on the way to it. A state directory made by an
 * earlier version may belong to boot.user and hold RUN: that is refused before anything is opened there.
 */
#include "roles/boot/dirs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "roles/role.h"

#define DEFAULT_STATE "/var/lib/conclave"
#define DEFAULT_RUN "/run/conclave"
#define PLACE "boot"

/* --- resolving ----------------------------------------------------------------------------------- */

static bool is_given(const char *s)
{
	return s && s[0];
}

static const char *home_of_user(struct buf *space)
{
	struct passwd entry, *found = NULL;
	char text[4096];

	getpwuid_r(geteuid(), &entry, text, sizeof(text), &found);
	buf_add_str(space, str_from(found ? found->pw_dir : ""));
	buf_add_char(space, '\0');
	return space->data;
}

void dirs_env_get(struct dirs_env *env, const char *program, struct buf *space)
{
	char cwd[PATH_MAX];

	env->root = geteuid() == 0;
	env->program = program;
	env->home = getenv("HOME");
	env->state_home = getenv("XDG_STATE_HOME");
	env->runtime_dir = getenv("XDG_RUNTIME_DIR");
	/* One growth, so that the pointers stay. */
	buf_reserve(space, 2 * PATH_MAX);
	if (!is_given(env->home))
		env->home = home_of_user(space);
	env->cwd = space->data + space->len;
	buf_add_str(space, str_from(getcwd(cwd, sizeof(cwd)) ? cwd : "/"));
	buf_add_char(space, '\0');
}

static char *absolute(const char *path, const struct dirs_env *env)
{
	return path[0] == '/' ? mem_strdup(path) : mem_printf("%s/%s", env->cwd, path);
}

static char *state_dir(const struct cfg *cfg, const struct dirs_env *env)
{
	const char *set = cfg_str(cfg, OPT_boot_dir);

	if (set[0])
		return absolute(set, env);
	if (env->root)
		return mem_strdup(DEFAULT_STATE);
	if (is_given(env->state_home) && env->state_home[0] == '/')
		return mem_printf("%s/conclave", env->state_home);
	return is_given(env->home) ? mem_printf("%s/.local/state/conclave", env->home) : NULL;
}

static char *run_dir(const struct cfg *cfg, const struct dirs_env *env, const char *dir)
{
	const char *set = cfg_str(cfg, OPT_boot_run_dir);

	if (set[0])
		return absolute(set, env);
	if (!cfg_str(cfg, OPT_boot_dir)[0]) {
		if (env->root)
			return mem_printf("%s/%s", DEFAULT_RUN, env->program);
		if (is_given(env->runtime_dir) && env->runtime_dir[0] == '/')
			return mem_printf("%s/conclave/%s", env->runtime_dir, env->program);
		return mem_printf("%s/run/%s", dir, env->program);
	}
	return mem_printf("%s/run", dir);
}

static void fill_in(struct cfg *cfg, enum cfg_option option, const struct dirs_env *env,
	const char *dir, const char *name, struct cfg_errors *errors)
{
	const char *set = cfg_str(cfg, option);
	char *path cleanup(mem_freep) =
		set[0] ? absolute(set, env) : mem_printf("%s/%s", dir, name);

	cfg_set(cfg, option, path, PLACE, errors);
}

void dirs_resolve(struct cfg *cfg, const struct dirs_env *env, struct cfg_errors *errors)
{
	char *dir cleanup(mem_freep) = state_dir(cfg, env);
	char *run cleanup(mem_freep) = NULL;

	if (!dir) {
		cfg_errors_add(errors, "boot.dir",
			"no home directory to keep state in: give --dir DIR or set HOME");
		return;
	}
	run = run_dir(cfg, env, dir);
	cfg_set(cfg, OPT_boot_dir, dir, PLACE, errors);
	cfg_set(cfg, OPT_boot_run_dir, run, PLACE, errors);
	fill_in(cfg, OPT_judicator_data_dir, env, dir, "judicator", errors);
	fill_in(cfg, OPT_rpc_secret_file, env, dir, "secret", errors);
}

/* --- making -------------------------------------------------------------------------------------- */

static int log_made(struct log *log, const char *path, int error)
{
	char quoted[LOG_QUOTE_MAX];

	if (error)
		log_error(log, "boot-failed",
			"step=make-directory path=%s error=\"%s\" hint=\"%s\"",
			log_quote(str_from(path), quoted), strerror(-error),
			"make it, or choose another place with --dir or boot.run_dir");
	return error;
}

/* owner NULL = ours. */
static int make_one(const char *path, mode_t mode, const struct user *owner)
{
	struct stat st;
	int fd, error = 0;

	if (mkdir(path, mode) < 0) {
		if (errno != EEXIST)
			return -errno;
		if (stat(path, &st) < 0)
			return -errno;
		return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
	}
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fchmod(fd, mode) < 0 ||
		(owner && geteuid() == 0 && fchown(fd, owner->uid, owner->gid) < 0))
		error = -errno;
	close(fd);
	return error;
}

/* With the parents that are missing, which stay ours and 0755. */
static int make_path(const char *path, mode_t mode, const struct user *owner, struct log *log)
{
	char *partial cleanup(mem_freep) = mem_strdup(path);
	int error = 0;

	for (char *slash = strchr(partial + 1, '/'); slash && !error;
		slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		error = make_one(partial, 0755, NULL);
		*slash = '/';
	}
	if (!error)
		error = make_one(path, mode, owner);
	return log_made(log, path, error);
}

static int log_unsafe(struct log *log, const char *run, const char *path, const char *why)
{
	char quoted[LOG_QUOTE_MAX], run_quoted[LOG_QUOTE_MAX];

	log_error(log, "boot-failed",
		"step=check-directory path=%s run_dir=%s error=\"%s: whoever can change it could "
		"have "
		"root run anything\" hint=\"look through it, then: chown root:root '%s' && chmod "
		"755 "
		"'%s'; or choose another place with boot.run_dir\"",
		log_quote(str_from(path), quoted), log_quote(str_from(run), run_quoted), why, path,
		path);
	return -EPERM;
}

/* NULL, or what is wrong with the directory `level` steps above RUN. Further up they may be an ordinary user's: whoever starts us as
 * root from his home trusts himself. boot.user is the one who must not. */
static const char *weakness(const struct stat *st, unsigned level, const struct user *user)
{
	bool by_all = st->st_mode & S_IWOTH && (level == 0 || !(st->st_mode & S_ISVTX));
	bool by_group = st->st_mode & S_IWGRP && (level == 0 || st->st_gid == user->gid);

	if (st->st_uid != 0 && level < 2)
		return "it is not root's";
	if (st->st_uid != 0 && st->st_uid == user->uid)
		return "it is boot.user's";
	return by_all || (by_group && st->st_gid != 0) ? "others may write there" : NULL;
}

static int check_way(const char *run, const char *way, const struct user *user, struct log *log)
{
	char *path cleanup(mem_freep) = mem_strdup(way);
	struct stat st;

	for (unsigned level = 0;; level++) {
		char *slash = strrchr(path, '/');
		const char *why;

		if (stat(path, &st) < 0)
			return log_made(log, path, -errno);
		why = weakness(&st, level, user);
		if (why)
			return log_unsafe(log, run, path, why);
		if (path[1] == '\0')
			return 0;
		slash[slash == path] = '\0';
	}
}

/* As it is written and as it really is: links on the way lie in directories too. */
static int check_run_dir(const char *run, const struct user *user, struct log *log)
{
	char *real cleanup(mem_freep) = realpath(run, NULL);
	int error = real ? check_way(run, real, user, log) : log_made(log, run, -errno);

	return error ? error : check_way(run, run, user, log);
}

static int make_service_dirs(const struct cfg *cfg, const struct service *service,
	const struct user *user, struct log *log)
{
	char *state cleanup(mem_freep) =
		mem_printf("%s/%s", cfg_str(cfg, OPT_boot_dir), service->role->name);
	char *run cleanup(mem_freep) =
		mem_printf("%s/%s", cfg_str(cfg, OPT_boot_run_dir), service->name);
	int error = make_path(state, 0700, user, log);

	if (!error && service->role->service & CFG_JUDICATOR)
		error = make_path(cfg_str(cfg, OPT_judicator_data_dir), 0700, user, log);
	return error ? error : make_path(run, 0700, user, log);
}

int dirs_make(const struct cfg *cfg, const struct service *services, size_t n,
	const struct user *user, struct log *log)
{
	const char *run = cfg_str(cfg, OPT_boot_run_dir);
	int error = make_path(cfg_str(cfg, OPT_boot_dir), 0755, NULL, log);

	if (!error)
		error = make_path(run, 0755, NULL, log);
	if (!error && geteuid() == 0)
		error = check_run_dir(run, user, log);
	for (size_t i = 0; i < n && !error; i++)
		error = make_service_dirs(cfg, &services[i], user, log);
	return error;
}
