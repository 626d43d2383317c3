/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot and its steps: where things are kept, what is made, which start is refused, in which order it stops. The
 * program that boot starts is a shell script here, so that each service can be watched from outside.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/pidfile.h"
#include "reactor/base/clock.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/boot/boot.h"
#include "roles/boot/dirs.h"
#include "roles/boot/secret_file.h"
#include "roles/boot/user.h"
#include "roles/role.h"

#define DEADLINE_US (20 * US_PER_S)

static const struct role first_role = {.name = "judicator", .service = CFG_JUDICATOR};
static const struct role second_role = {.name = "executor", .service = CFG_EXECUTOR};
static const struct service services[] = {{"first", &first_role}, {"second", &second_role}};

/* Prints its arguments and what it knows of its environment, then waits to be stopped. */
static const char script[] = "#!/bin/sh\n"
			     "trap 'echo bye $2; exit 0' TERM\n"
			     "trap 'echo hup $2' HUP\n"
			     "echo args $* secret=${CONCLAVE_RPC_SECRET_FILE-unset} "
			     "test=${CONCLAVE_TEST_X-unset}\n"
			     "while :; do sleep 0.01; done\n";

struct fixture {
	char dir[64], program[96];
	char *state, *run;
	struct buf logged;
	struct log *log;
	struct loop *loop;
	struct cfg *cfg;
	struct boot *boot;
	unsigned stopped;
};

static void sink(void *arg, enum log_level level, const char *line)
{
	struct fixture *f = arg;

	buf_addf(&f->logged, "%s\n", line);
}

static const struct dirs_env no_env = {.root = false, .home = "/home/u", .cwd = "/somewhere"};

static void set(struct fixture *f, enum cfg_option option, const char *value)
{
	struct cfg_errors errors = {BUF_INIT, 0};

	cfg_set(f->cfg, option, value, "test", &errors);
	assert_int_equal(errors.count, 0);
	cfg_errors_fini(&errors);
}

static void resolve(struct fixture *f, const struct dirs_env *env, unsigned expected_errors)
{
	struct cfg_errors errors = {BUF_INIT, 0};

	dirs_resolve(f->cfg, env, &errors);
	assert_int_equal(errors.count, expected_errors);
	cfg_errors_fini(&errors);
}

static void write_program(struct fixture *f)
{
	int fd = open(f->program, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, script, sizeof(script) - 1), sizeof(script) - 1);
	close(fd);
}

static int setup(void **state)
{
	struct fixture *f = mem_alloc(sizeof(*f));
	struct loop_options options = {0};

	strcpy(f->dir, "/tmp/test_boot.XXXXXX");
	if (!mkdtemp(f->dir) || chmod(f->dir, 0755) < 0)
		return -1;
	snprintf(f->program, sizeof(f->program), "%s/program", f->dir);
	f->state = mem_printf("%s/state", f->dir);
	f->run = mem_printf("%s/run", f->state);
	f->log = log_new_sink(sink, f, "boot", LOG_INFO);
	options.log = f->log;
	f->loop = loop_new(&options);
	f->cfg = cfg_new();
	write_program(f);
	*state = f;
	return 0;
}

static bool has_children(void)
{
	siginfo_t info;

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

#define turn_until(f, condition)                                                                   \
	do {                                                                                       \
		int64_t until_ = clock_boot_us() + DEADLINE_US;                                    \
		while (!(condition)) {                                                             \
			assert_true(clock_boot_us() < until_);                                     \
			loop_turn((f)->loop, 10 * US_PER_MS);                                      \
		}                                                                                  \
	} while (0)

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	return remove(path);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	boot_free(f->boot);
	turn_until(f, !has_children());
	loop_turn(f->loop, 0);
	loop_free(f->loop);
	cfg_free(f->cfg);
	log_free(f->log);
	buf_fini(&f->logged);
	nftw(f->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	free(f->state);
	free(f->run);
	free(f);
	return 0;
}

static bool has_logged(struct fixture *f, const char *what)
{
	return f->logged.len > 0 && strstr(f->logged.data, what);
}

/* --- where things are kept ----------------------------------------------------------------------- */

static void directories_by_the_rules(void **state)
{
	static const struct {
		struct dirs_env env;
		const char *dir, *run; /* set, "" = not */
		const char *expected_dir, *expected_run;
	} rows[] = {
		{{.root = true, .program = "executor", .cwd = "/"}, "", "", "/var/lib/conclave",
			"/run/conclave/executor"},
		{{.root = true, .program = "executor", .cwd = "/"}, "/d", "", "/d", "/d/run"},
		{{.root = true, .program = "executor", .cwd = "/"}, "", "/r", "/var/lib/conclave",
			"/r"},
		{{.root = true, .program = "executor", .cwd = "/w"}, "d", "r", "/w/d", "/w/r"},
		{{.program = "executor", .home = "/h", .cwd = "/"}, "", "",
			"/h/.local/state/conclave", "/h/.local/state/conclave/run/executor"},
		{{.program = "executor",
			 .home = "/h",
			 .state_home = "/s",
			 .runtime_dir = "/run/user/7",
			 .cwd = "/"},
			"", "", "/s/conclave", "/run/user/7/conclave/executor"},
		{{.program = "executor", .home = "/h", .runtime_dir = "/run/user/7", .cwd = "/"},
			"/d", "", "/d", "/d/run"},
		{{.program = "executor",
			 .home = "/h",
			 .state_home = "relative",
			 .runtime_dir = "",
			 .cwd = "/"},
			"", "", "/h/.local/state/conclave",
			"/h/.local/state/conclave/run/executor"},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char *data cleanup(mem_freep) = mem_printf("%s/judicator", rows[i].expected_dir);
		char *secret cleanup(mem_freep) = mem_printf("%s/secret", rows[i].expected_dir);

		cfg_free(f->cfg);
		f->cfg = cfg_new();
		set(f, OPT_boot_dir, rows[i].dir);
		set(f, OPT_boot_run_dir, rows[i].run);
		resolve(f, &rows[i].env, 0);
		assert_string_equal(cfg_str(f->cfg, OPT_boot_dir), rows[i].expected_dir);
		assert_string_equal(cfg_str(f->cfg, OPT_boot_run_dir), rows[i].expected_run);
		assert_string_equal(cfg_str(f->cfg, OPT_judicator_data_dir), data);
		assert_string_equal(cfg_str(f->cfg, OPT_rpc_secret_file), secret);
	}
}

static void set_paths_are_kept_and_made_absolute(void **state)
{
	struct fixture *f = *state;

	set(f, OPT_judicator_data_dir, "data");
	set(f, OPT_rpc_secret_file, "/etc/conclave/secret");
	resolve(f, &no_env, 0);
	assert_string_equal(cfg_str(f->cfg, OPT_judicator_data_dir), "/somewhere/data");
	assert_string_equal(cfg_str(f->cfg, OPT_rpc_secret_file), "/etc/conclave/secret");
}

static void no_home_is_an_error(void **state)
{
	struct dirs_env nowhere = {.root = false, .cwd = "/"};

	resolve(*state, &nowhere, 1);
}

static void own_environment_is_complete(void **state unused)
{
	struct buf space cleanup(buf_fini) = BUF_INIT;
	struct dirs_env env;

	dirs_env_get(&env, "executor", &space);
	assert_int_equal(env.root, geteuid() == 0);
	assert_non_null(env.home);
	assert_int_equal(env.cwd[0], '/');
}

/* --- the pieces ---------------------------------------------------------------------------------- */

static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_mode & 07777;
}

static void users_are_found(void **state unused)
{
	struct user user;

	assert_int_equal(user_find("root", &user), 0);
	assert_int_equal(user.uid, 0);
	assert_int_equal(user_find("0", &user), 0);
	assert_int_equal(user.uid, 0);
	assert_int_equal(user_find("3999999999", &user), 0);
	assert_int_equal(user.uid, 3999999999);
	assert_int_equal(user.gid, 3999999999);
	assert_int_equal(user_find("", &user), USER_E_UNKNOWN);
	assert_int_equal(user_find("no-such-user-here", &user), USER_E_UNKNOWN);
	assert_int_equal(user_find("-1", &user), USER_E_UNKNOWN);
	assert_int_equal(
		user_find("4294967295", &user), USER_E_UNKNOWN); /* "no change" to the kernel */
}

/* In a process of its own: there is no way back. */
static void drop_is_for_good(void **state unused)
{
	struct user user = {.uid = geteuid(), .gid = getegid()};
	pid_t parent = getpid(), pid;
	int status;

	if (geteuid() == 0)
		assert_int_equal(user_find("nobody", &user), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		bool orphaned = true;

		if (user_drop(&user, parent, &orphaned) || orphaned)
			_exit(1);
		if (getuid() != user.uid || getgid() != user.gid || getgroups(0, NULL) > 1)
			_exit(2);
		if (user.uid != 0 && (setuid(0) == 0 || seteuid(0) == 0))
			_exit(3);
		if (user_drop(&user, parent + 1, &orphaned) || !orphaned)
			_exit(4);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void secret_is_made_once(void **state)
{
	struct fixture *f = *state;
	struct user user = {.uid = geteuid(), .gid = getegid()};
	char *path cleanup(mem_freep) = mem_printf("%s/secret", f->dir);
	char first[128] = "", second[128] = "";
	int fd;

	assert_int_equal(secret_file_make(f->loop, path, &user), 0);
	assert_int_equal(mode_of(path), 0600);
	assert_false(secret_file_is_exposed(path));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, first, sizeof(first)), 65);
	close(fd);
	assert_int_equal(strspn(first, "0123456789abcdef"), 64);
	assert_int_equal(first[64], '\n');
	assert_int_equal(secret_file_make(f->loop, path, &user), SECRET_FILE_E_EXISTS);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, second, sizeof(second)), 65);
	close(fd);
	assert_string_equal(first, second);
	assert_int_equal(chmod(path, 0640), 0);
	assert_true(secret_file_is_exposed(path));
	assert_int_equal(secret_file_make(f->loop, "/nonexistent/secret", &user), -ENOENT);
}

/* --- boot ---------------------------------------------------------------------------------------- */

static int start(struct fixture *f, struct boot **out)
{
	static char *environment[] = {(char *)(uintptr_t) "PATH=/usr/bin:/bin",
		(char *)(uintptr_t) "CONCLAVE_RPC_SECRET_FILE=/x",
		(char *)(uintptr_t) "CONCLAVE_TEST_X=kept", NULL};
	const struct boot_options options = {
		.cfg = f->cfg,
		.services = services,
		.n_services = ARRAY_SIZE(services),
		.program = f->program,
		.environment = environment,
		.log = f->log,
		.pass_fd = -1,
	};

	set(f, OPT_boot_dir, f->state);
	set(f, OPT_boot_run_dir, f->run);
	resolve(f, &no_env, 0);
	return boot_start(f->loop, &options, out);
}

static pid_t pid_of(struct fixture *f, const char *service)
{
	char *path cleanup(mem_freep) = mem_printf("%s/%s.pid", f->run, service);

	return pidfile_read(path);
}

static void start_and_wait(struct fixture *f)
{
	assert_int_equal(start(f, &f->boot), 0);
	turn_until(
		f, has_logged(f, "args --service first") && has_logged(f, "args --service second"));
}

static void on_stopped(void *arg)
{
	((struct fixture *)arg)->stopped++;
}

static void services_get_their_file(void **state)
{
	struct fixture *f = *state;
	char *expected cleanup(mem_freep) = mem_printf(
		"args --service second -c %s/second.conf secret=unset test=kept", f->run);
	char *conf cleanup(mem_freep) = mem_printf("%s/second.conf", f->run);
	struct cfg_errors errors = {BUF_INIT, 0};
	struct cfg *cfg = cfg_new();

	set(f, OPT_executor_slots, "3");
	set(f, OPT_boot_stop_timeout, "7s"); /* what a draining service must know */
	start_and_wait(f);
	assert_true(has_logged(f, expected));
	assert_int_equal(mode_of(conf), geteuid() == 0 ? 0640 : 0600);
	cfg_load_file(cfg, conf, &errors);
	assert_int_equal(errors.count, 0);
	assert_int_equal(cfg_int(cfg, OPT_executor_slots), 3);
	assert_int_equal(cfg_int(cfg, OPT_boot_stop_timeout), 7 * US_PER_S);
	assert_string_equal(cfg_str(cfg, OPT_boot_dir), f->state);
	assert_false(cfg_is_set(cfg, OPT_judicator_data_dir)); /* not an executor's option */
	cfg_free(cfg);
	cfg_errors_fini(&errors);
}

static void directories_are_made(void **state)
{
	static const struct {
		const char *name;
		mode_t mode;
	} rows[] = {{"", 0755}, {"/run", 0755}, {"/judicator", 0700}, {"/executor", 0700},
		{"/run/first", 0700}, {"/run/second", 0700}, {"/secret", 0600}};
	struct fixture *f = *state;

	start_and_wait(f);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char *path cleanup(mem_freep) = mem_printf("%s%s", f->state, rows[i].name);

		assert_int_equal(mode_of(path), rows[i].mode);
	}
}

/* What a service is told belongs to root, at the start and after a reload; what leads to it too. */
static void user_can_change_nothing_of_boots(void **state)
{
	static const char *const names[] = {
		"", "/run", "/run/first.conf", "/run/first.pid", "/run/boot.lock"};
	struct fixture *f = *state;
	struct user nobody;
	struct stat st;

	if (geteuid() != 0)
		skip();
	assert_int_equal(user_find("nobody", &nobody), 0);
	start_and_wait(f);
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
			char *path cleanup(mem_freep) = mem_printf("%s%s", f->state, names[i]);

			assert_int_equal(stat(path, &st), 0);
			assert_int_equal(st.st_uid, 0);
			assert_int_equal(st.st_mode & 022, 0);
			if (strstr(path, ".conf"))
				assert_int_equal(st.st_gid, nobody.gid);
			else if (i > 2)
				assert_int_equal(st.st_mode & 077, 0);
		}
		boot_reload(f->boot, f->cfg);
	}
}

static void run_below_a_users_directory_is_refused(void **state)
{
	static const struct {
		const char *name; /* below the test's directory */
		bool given;       /* to boot.user */
		mode_t mode;
		bool refused;
	} rows[] = {
		{"/state/run", false, 0755, false},
		{"/state/run", true, 0755, true},
		{"/state/run", false, 0777, true},
		{"/state", true, 0755, true},
		{"/state", false, 0777, true},
		{"/state", false, 01777, false},
		{"", true, 0755, true},
		{"", false, 0777, true},
	};
	struct fixture *f = *state;
	struct user nobody;

	if (geteuid() != 0)
		skip();
	assert_int_equal(user_find("nobody", &nobody), 0);
	assert_int_equal(mkdir(f->state, 0755), 0);
	assert_int_equal(mkdir(f->run, 0755), 0);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char *path cleanup(mem_freep) = mem_printf("%s%s", f->dir, rows[i].name);

		assert_int_equal(chmod(path, rows[i].mode), 0);
		assert_int_equal(chown(path, rows[i].given ? nobody.uid : 0, 0), 0);
		assert_int_equal(start(f, &f->boot), rows[i].refused ? BOOT_EXIT_FAILED : 0);
		assert_int_equal(has_logged(f, "step=check-directory"), rows[i].refused);
		assert_int_equal(has_logged(f, "chown root:root"), rows[i].refused);
		boot_free(take_ptr(&f->boot));
		turn_until(f, !has_children());
		f->logged.len = 0;
		assert_int_equal(chmod(path, 0755), 0);
		assert_int_equal(chown(path, 0, 0), 0);
	}
}

/* The link itself lies in a directory of boot.user's, who could make it point elsewhere. */
static void run_through_a_users_link_is_refused(void **state)
{
	struct fixture *f = *state;
	char *real cleanup(mem_freep) = mem_printf("%s/real", f->dir);
	struct user nobody;

	if (geteuid() != 0)
		skip();
	assert_int_equal(user_find("nobody", &nobody), 0);
	assert_int_equal(mkdir(f->state, 0755), 0);
	assert_int_equal(mkdir(real, 0755), 0);
	assert_int_equal(symlink(real, f->run), 0);
	assert_int_equal(chown(f->state, nobody.uid, nobody.gid), 0);
	assert_int_equal(start(f, &f->boot), BOOT_EXIT_FAILED);
	assert_true(has_logged(f, "step=check-directory"));
}

static void second_boot_is_refused(void **state)
{
	struct fixture *f = *state;
	struct boot *second;
	char pid[32];

	start_and_wait(f);
	assert_int_equal(start(f, &second), BOOT_EXIT_FAILED);
	assert_null(second);
	snprintf(pid, sizeof(pid), "stop process %d,", (int)getpid());
	assert_true(has_logged(f, pid));
	boot_free(take_ptr(&f->boot));
	turn_until(f, !has_children());
	assert_int_equal(start(f, &f->boot), 0);
}

static void stops_in_reverse_order(void **state)
{
	struct fixture *f = *state;
	const char *first, *second;

	start_and_wait(f);
	boot_stop(f->boot, on_stopped, f);
	boot_stop(f->boot, on_stopped, f); /* an impatient one */
	assert_int_equal(f->stopped, 0);
	turn_until(f, f->stopped);
	second = strstr(f->logged.data, "event=service-exited service=second");
	first = strstr(f->logged.data, "event=service-exited service=first");
	assert_true(second && first && second < first);
	assert_true(has_logged(f, "line=\"bye second\""));
	assert_true(has_logged(f, "already stopping"));
	assert_int_equal(pid_of(f, "first"), -1);
	loop_turn(f->loop, 0);
	assert_int_equal(f->stopped, 1);
	assert_false(has_children());
}

/* A shell that waits, with the arguments of a service or of its worker. */
static pid_t start_leftover(const char *exe, const char *conf)
{
	int ready[2];
	pid_t pid;
	char byte;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int never[2];

		if (pipe(never) < 0 || dup2(never[0], 0) < 0)
			_exit(1);
		execl(exe, "sh", "-c", "read x", "--service", "old", "-c", conf, (char *)NULL);
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 0);
	close(ready[0]);
	return pid;
}

static void leftovers_are_killed(void **state)
{
	static const char *const names[] = {"old", "old.2"}; /* a service, and a worker of it */
	struct fixture *f = *state;
	char exe[4096] = "", *conf cleanup(mem_freep) = mem_printf("%s/old.conf", f->run);
	pid_t pids[ARRAY_SIZE(names)];

	/* A shell's executable is the shell, so boot is told that it is the program. */
	assert_non_null(realpath("/bin/sh", exe));
	assert_int_equal(mkdir(f->state, 0755), 0);
	assert_int_equal(mkdir(f->run, 0755), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char *pid_file cleanup(mem_freep) = mem_printf("%s/%s.pid", f->run, names[i]);
		int fd;

		pids[i] = start_leftover(exe, conf);
		assert_int_equal(pidfile_lock(pid_file, &fd), 0);
		assert_int_equal(pidfile_write(fd, pids[i]), 0);
		pidfile_unlock(&fd);
	}
	assert_true(strlen(exe) < sizeof(f->program));
	strcpy(f->program, exe);
	assert_int_equal(start(f, &f->boot), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char *line cleanup(mem_freep) =
			mem_printf("event=leftover-killed service=%s pid=", names[i]);
		int status;

		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		assert_true(has_logged(f, line));
	}
}

static void reload_rewrites_and_signals(void **state)
{
	struct fixture *f = *state;
	char *conf cleanup(mem_freep) = mem_printf("%s/first.conf", f->run);
	struct cfg_errors errors = {BUF_INIT, 0};
	struct cfg *cfg = cfg_new();

	start_and_wait(f);
	set(f, OPT_log_level, "debug");
	boot_reload(f->boot, f->cfg);
	turn_until(f, has_logged(f, "line=\"hup first\"") && has_logged(f, "line=\"hup second\""));
	cfg_load_file(cfg, conf, &errors);
	assert_string_equal(cfg_str(cfg, OPT_log_level), "debug");
	cfg_free(cfg);
	cfg_errors_fini(&errors);
}

static void unusable_places_are_refused(void **state)
{
	struct fixture *f = *state;
	char *blocked = mem_printf("%s/program/state", f->dir); /* below a file */

	free(f->state);
	f->state = blocked;
	free(f->run);
	f->run = mem_printf("%s/run", f->dir);
	assert_int_equal(start(f, &f->boot), BOOT_EXIT_FAILED);
	assert_null(f->boot);
	assert_true(has_logged(f, "event=boot-failed step=make-directory"));
	assert_true(has_logged(f, "choose another place with --dir"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(directories_by_the_rules, setup, teardown),
		cmocka_unit_test_setup_teardown(
			set_paths_are_kept_and_made_absolute, setup, teardown),
		cmocka_unit_test_setup_teardown(no_home_is_an_error, setup, teardown),
		cmocka_unit_test(own_environment_is_complete),
		cmocka_unit_test(users_are_found),
		cmocka_unit_test(drop_is_for_good),
		cmocka_unit_test_setup_teardown(secret_is_made_once, setup, teardown),
		cmocka_unit_test_setup_teardown(services_get_their_file, setup, teardown),
		cmocka_unit_test_setup_teardown(directories_are_made, setup, teardown),
		cmocka_unit_test_setup_teardown(user_can_change_nothing_of_boots, setup, teardown),
		cmocka_unit_test_setup_teardown(
			run_below_a_users_directory_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(
			run_through_a_users_link_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(second_boot_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(stops_in_reverse_order, setup, teardown),
		cmocka_unit_test_setup_teardown(leftovers_are_killed, setup, teardown),
		cmocka_unit_test_setup_teardown(reload_rewrites_and_signals, setup, teardown),
		cmocka_unit_test_setup_teardown(unusable_places_are_refused, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
