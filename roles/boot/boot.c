/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * Everything before the first service is a list of steps that run once, in order, and may wait for the disk: nothing
 * listens yet. The order matters:
 *
 *   directories -> boot.lock -> secret -> leftovers killed -> NAME.conf written -> one keeper a service
 *
 * Only after the lock is ours may anything of the run directory be touched; the lock is an open-file-description lock, so
 * a SIGKILLed boot drops it with its last breath. Such a boot takes its services along (PR_SET_PDEATHSIG); whatever
 * survived that is found by its pid file and killed before the files are written anew.
 *
 * From then on boot only waits: the keepers do the work. Stopping walks them from the last to the first, each
 * keeper's on_stopped asking the next; `stopping` is the index of the one that is being stopped, n while none is.
 */
#include "roles/boot/boot.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proc/keeper.h"
#include "proc/pidfile.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/boot/dirs.h"
#include "roles/boot/secret_file.h"
#include "roles/boot/user.h"
#include "roles/role.h"

struct boot {
	struct loop *loop;
	struct log *log;
	const struct service *services;
	size_t n;
	char *program, *run_dir;
	struct user user;
	int lock_fd;
	struct keeper **keepers; /* one a service, NULL until started */
	size_t stopping;
	void (*on_stopped)(void *arg);
	void *on_stopped_arg;
	struct defer stopped;
};

static int fail(struct boot *boot, const char *step, const char *what, int error)
{
	log_error(boot->log, "boot-failed", "step=%s path=\"%s\" error=\"%s\"", step, what,
		strerror(-error));
	return BOOT_EXIT_FAILED;
}

static char *run_path(const struct boot *boot, const char *name, const char *suffix)
{
	return mem_printf("%s/%s%s", boot->run_dir, name, suffix);
}

/* --- the steps before the services --------------------------------------------------------------- */

static int find_user(struct boot *boot, const struct cfg *cfg)
{
	const char *name = cfg_str(cfg, OPT_boot_user);

	if (geteuid() != 0) {
		boot->user = (struct user){.uid = geteuid(), .gid = getegid()};
		return 0;
	}
	if (user_find(name, &boot->user)) {
		log_error(boot->log, "boot-failed",
			"step=user error=\"boot.user: no such user\" user=\"%s\"", name);
		return BOOT_EXIT_USAGE;
	}
	if (boot->user.uid == 0)
		log_warn(boot->log, "boot", "warning=\"boot.user is root: services keep root\"");
	return 0;
}

static int take_lock(struct boot *boot)
{
	char *path cleanup(mem_freep) = run_path(boot, "boot", ".lock");
	int error = pidfile_lock(path, &boot->lock_fd);

	if (error == PIDFILE_E_LOCKED) {
		log_error(boot->log, "boot-failed",
			"step=lock path=\"%s\" pid=%d error=\"another boot runs on this run "
			"directory\" "
			"hint=\"stop process %d, or give this one its own --dir or boot.run_dir\"",
			path, (int)pidfile_read(path), (int)pidfile_read(path));
		return BOOT_EXIT_FAILED;
	}
	if (!error)
		error = pidfile_write(boot->lock_fd, getpid());
	return error ? fail(boot, "lock", path, error) : 0;
}

static int ensure_secret(struct boot *boot, const struct cfg *cfg)
{
	const char *path = cfg_str(cfg, OPT_rpc_secret_file);
	int error = secret_file_make(boot->loop, path, &boot->user);

	if (error < 0)
		return fail(boot, "secret", path, error);
	if (error == SECRET_FILE_E_EXISTS && secret_file_is_exposed(path))
		log_warn(boot->log, "secret",
			"path=\"%s\" warning=\"others can read it: chmod 600\"", path);
	if (!error)
		log_info(boot->log, "secret",
			"path=\"%s\" made=yes hint=\"judicators, executors and gateways on other "
			"machines "
			"need a copy\"",
			path);
	return 0;
}

static void kill_leftover(struct boot *boot, const char *pid_name)
{
	size_t stem = strlen(pid_name) - strlen(".pid");
	char *path cleanup(mem_freep) = run_path(boot, pid_name, "");
	/* NAME.N.pid is a worker of NAME, with its service's file. */
	char *conf cleanup(mem_freep) =
		mem_printf("%s/%.*s.conf", boot->run_dir, (int)strcspn(pid_name, "."), pid_name);
	pid_t pid = pidfile_read(path);

	if (pidfile_kill_leftover(path, boot->program, conf))
		log_warn(boot->log, "leftover-killed", "service=%.*s pid=%d", (int)stem, pid_name,
			(int)pid);
}

/* All pid files, not only those of our services: the configuration may have changed since the crash. */
static int kill_leftovers(struct boot *boot)
{
	DIR *dir = opendir(boot->run_dir);
	struct dirent *entry;

	if (!dir)
		return fail(boot, "read-directory", boot->run_dir, -errno);
	while ((entry = readdir(dir))) {
		size_t n = strlen(entry->d_name);

		if (n > 4 && strcmp(entry->d_name + n - 4, ".pid") == 0)
			kill_leftover(boot, entry->d_name);
	}
	closedir(dir);
	return 0;
}

/* Root's, and readable by boot.user's group: the service reads it again at SIGHUP, after it has dropped its privileges. It must
 * never be able to write it: the next start of the service reads the file as root, and runs the helper it names. */
static int hand_to_service(const struct boot *boot, const char *path)
{
	if (geteuid() != 0)
		return 0;
	return lchown(path, 0, boot->user.gid) < 0 || chmod(path, 0640) < 0 ? -errno : 0;
}

static int write_config(struct boot *boot, const struct cfg *cfg, const struct service *service)
{
	char *path cleanup(mem_freep) = run_path(boot, service->name, ".conf");
	/* boot's own options too: a service that drains must know its stop_timeout. */
	int error = cfg_write_file(cfg, path, service->role->service | CFG_BOOT);

	if (!error)
		error = hand_to_service(boot, path);
	return error ? fail(boot, "write-configuration", path, error) : 0;
}

static int write_configs(struct boot *boot, const struct cfg *cfg)
{
	int rc = 0;

	for (size_t i = 0; i < boot->n && !rc; i++)
		rc = write_config(boot, cfg, &boot->services[i]);
	return rc;
}

static int prepare(struct boot *boot, const struct cfg *cfg)
{
	int rc = find_user(boot, cfg);

	if (!rc && dirs_make(cfg, boot->services, boot->n, &boot->user, boot->log))
		rc = BOOT_EXIT_FAILED;
	if (!rc)
		rc = take_lock(boot);
	if (!rc)
		rc = ensure_secret(boot, cfg);
	if (!rc)
		rc = kill_leftovers(boot);
	if (!rc)
		rc = write_configs(boot, cfg);
	return rc;
}

/* --- the services -------------------------------------------------------------------------------- */

/* Options come from the generated file alone; what might be secret in the environment goes no further. */
static char **service_environment(char **environment)
{
	size_t n = 0, kept = 0;
	char **out;

	while (environment[n])
		n++;
	out = mem_array(n + 1, sizeof(*out));
	for (size_t i = 0; i < n; i++)
		if (strncmp(environment[i], "CONCLAVE_", 9) != 0 ||
			strncmp(environment[i], "CONCLAVE_TEST_", 14) == 0)
			out[kept++] = environment[i];
	return out;
}

static struct keeper *start_keeper(struct boot *boot, const struct service *service,
	const struct boot_options *from, char **environment)
{
	char *conf cleanup(mem_freep) = run_path(boot, service->name, ".conf");
	char *pid_file cleanup(mem_freep) = run_path(boot, service->name, ".pid");
	const char *const argv[] = {boot->program, "--service", service->name, "-c", conf, NULL};
	const struct keeper_options options = {
		.name = service->name,
		.pid_file = pid_file,
		.spawn = {.path = boot->program, .argv = (char *const *)argv, .envp = environment},
		.stop_timeout_us = cfg_int(from->cfg, OPT_boot_stop_timeout),
		.log = boot->log,
		.pass_fd = from->pass_fd,
	};

	return keeper_new(boot->loop, &options);
}

static void start_keepers(struct boot *boot, const struct boot_options *options)
{
	char **environment = service_environment(options->environment);

	for (size_t i = 0; i < boot->n; i++)
		boot->keepers[i] = start_keeper(boot, &boot->services[i], options, environment);
	free(environment);
}

/* --- stopping ------------------------------------------------------------------------------------ */

static void report_stopped(void *arg)
{
	struct boot *boot = arg;

	log_info(boot->log, "boot-stopped", "pid=%d", (int)getpid());
	boot->on_stopped(boot->on_stopped_arg);
}

static void stop_next(void *arg)
{
	struct boot *boot = arg;

	if (boot->stopping == 0) {
		loop_defer(boot->loop, &boot->stopped);
		return;
	}
	boot->stopping--;
	keeper_stop(boot->keepers[boot->stopping], stop_next, boot);
}

void boot_stop(struct boot *boot, void (*on_stopped)(void *arg), void *arg)
{
	if (boot->on_stopped) {
		log_info(boot->log, "boot-stopping", "note=\"already stopping\"");
		return;
	}
	log_info(boot->log, "boot-stopping", "pid=%d", (int)getpid());
	boot->on_stopped = on_stopped;
	boot->on_stopped_arg = arg;
	stop_next(boot);
}

/* --- life ---------------------------------------------------------------------------------------- */

int boot_start(struct loop *loop, const struct boot_options *options, struct boot **out)
{
	struct boot *boot = mem_alloc(sizeof(*boot));
	int rc;

	*out = NULL;
	boot->loop = loop;
	boot->log = options->log;
	boot->services = options->services;
	boot->n = boot->stopping = options->n_services;
	boot->program = mem_strdup(options->program);
	boot->run_dir = mem_strdup(cfg_str(options->cfg, OPT_boot_run_dir));
	boot->lock_fd = -1;
	boot->keepers = mem_array(boot->n, sizeof(struct keeper *));
	defer_init(&boot->stopped, report_stopped, boot);
	rc = prepare(boot, options->cfg);
	if (rc) {
		boot_free(boot);
		return rc;
	}
	log_info(boot->log, "boot-started", "pid=%d dir=\"%s\" run_dir=\"%s\"", (int)getpid(),
		cfg_str(options->cfg, OPT_boot_dir), boot->run_dir);
	start_keepers(boot, options);
	*out = boot;
	return 0;
}

void boot_reload(struct boot *boot, const struct cfg *cfg)
{
	if (write_configs(boot, cfg))
		return; /* logged; the services keep what they have */
	for (size_t i = 0; i < boot->n; i++) {
		keeper_set_stop_timeout(boot->keepers[i], cfg_int(cfg, OPT_boot_stop_timeout));
		keeper_signal(boot->keepers[i], SIGHUP);
	}
	log_info(boot->log, "boot-reloaded", "services=%zu", boot->n);
}

void boot_free(struct boot *boot)
{
	if (!boot)
		return;
	defer_cancel(&boot->stopped);
	for (size_t i = boot->n; i > 0; i--)
		keeper_free(boot->keepers[i - 1]);
	if (boot->lock_fd >= 0 && pidfile_write(boot->lock_fd, -1))
		log_warn(boot->log, "boot", "warning=\"cannot clear boot.lock\"");
	pidfile_unlock(&boot->lock_fd);
	free(boot->keepers);
	free(boot->program);
	free(boot->run_dir);
	free(boot);
}
