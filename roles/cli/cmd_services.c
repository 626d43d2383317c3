/* SPDX-License-Identifier: Apache-2.0 */
/*
 * services - what boot runs on this machine, by the pid files of its run directories. Read-only.
 *
 *   running   the pid file names a living process that has NAME.conf in its arguments
 *   held      none, and somebody holds the lock (conclave hold): boot waits
 *   down      none: boot is about to start it, or there is no boot
 *   hidden    the file cannot be read: pid files are their owner's alone
 *
 * Workers of a service are rows too: NAME.N.
 *
 * boot itself is a row too: it lives exactly while boot.lock is locked.
 */
#include "roles/cli/cli_int.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proc/pidfile.h"
#include "reactor/base/mem.h"

#define ARGUMENTS_MAX 8192

static const struct cli_flag flags[] = {
	{"--dir", NULL, "DIR", FLAG_FILE, "State directory the judge was started with."},
	{"--run-dir", NULL, "DIR", FLAG_FILE, "Its run directory, when that lies elsewhere."},
};

struct view {
	struct cli *cli;
	struct table table;
	struct json_writer *json;
	unsigned n, not_running;
};

static void add(struct view *v, const char *dir, const char *name, const char *state, pid_t pid)
{
	v->n++;
	v->not_running += strcmp(state, "running") != 0;
	table_add(&v->table, str_from(name));
	table_add(&v->table, str_from(state));
	table_addf(&v->table, pid > 1 ? "%ld" : "-", (long)pid);
	table_add(&v->table, str_from(dir));
	json_begin_object(v->json);
	json_key(v->json, "name");
	json_text(v->json, name);
	json_key(v->json, "state");
	json_text(v->json, state);
	json_key(v->json, "pid");
	if (pid > 1)
		json_int(v->json, pid);
	else
		json_null(v->json);
	json_key(v->json, "run_dir");
	json_text(v->json, dir);
	json_end_object(v->json);
}

/* The process lives and is that service's: a number may have been given to another process since. */
static bool is_service(pid_t pid, const char *conf)
{
	char *path cleanup(mem_freep) = mem_printf("/proc/%ld/cmdline", (long)pid);
	char *text cleanup(mem_freep) = mem_alloc(ARGUMENTS_MAX);
	FILE *file = pid > 1 ? fopen(path, "re") : NULL;
	struct str rest, word;
	size_t n;

	if (!file)
		return false;
	n = fread(text, 1, ARGUMENTS_MAX, file);
	fclose(file);
	rest = (struct str){text, n};
	while (str_cut(&rest, '\0', &word))
		if (str_is(word, conf))
			return true;
	return false;
}

static void add_service(struct view *v, const char *dir, const char *name)
{
	char *path cleanup(mem_freep) = mem_printf("%s/%s.pid", dir, name);
	/* NAME.N is a worker of NAME, with its service's file. */
	char *conf cleanup(mem_freep) =
		mem_printf("%s/%.*s.conf", dir, (int)strcspn(name, "."), name);
	enum lock_state lock = machine_lock_state(path);
	pid_t pid = pidfile_read(path);

	if (lock == LOCK_UNREADABLE)
		add(v, dir, name, "hidden", -1);
	else if (is_service(pid, conf))
		add(v, dir, name, "running", pid);
	else
		add(v, dir, name, lock == LOCK_HELD ? "held" : "down", -1);
}

static void add_boot(struct view *v, const char *dir)
{
	char *path cleanup(mem_freep) = mem_printf("%s/boot.lock", dir);
	enum lock_state lock = machine_lock_state(path);

	if (lock == LOCK_HELD)
		add(v, dir, "boot", "running", pidfile_read(path));
	else if (lock == LOCK_FREE)
		add(v, dir, "boot", "down", -1);
	else if (access(path, F_OK) == 0)
		add(v, dir, "boot", "hidden", -1);
}

static int is_pid_file(const struct dirent *entry)
{
	size_t n = strlen(entry->d_name);

	return n > 4 && strcmp(entry->d_name + n - 4, ".pid") == 0;
}

/* A service before its workers, and those by number. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
	char names[2][sizeof((*a)->d_name)];
	const struct dirent *const entries[2] = {*a, *b};

	for (size_t i = 0; i < 2; i++)
		snprintf(names[i], sizeof(names[i]), "%.*s",
			(int)(strlen(entries[i]->d_name) - strlen(".pid")), entries[i]->d_name);
	return strverscmp(names[0], names[1]);
}

static void on_run_dir(void *arg, const char *dir)
{
	struct view *v = arg;
	struct dirent **entries = NULL;
	int n = scandir(dir, &entries, is_pid_file, by_name);

	if (n < 0) {
		cli_fail(v->cli, 0, "%s: %s", dir, strerror(errno));
		return;
	}
	add_boot(v, dir);
	for (int i = 0; i < n; i++) {
		entries[i]->d_name[strlen(entries[i]->d_name) - 4] = '\0';
		add_service(v, dir, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
}

static void fill(struct view *v)
{
	static const char *const headings[] = {"service", "state", "pid", "run directory"};

	v->table.columns = ARRAY_SIZE(headings);
	for (size_t i = 0; i < ARRAY_SIZE(headings); i++)
		table_add(&v->table, str_from(headings[i]));
	json_begin_object(v->json);
	json_key(v->json, "services");
	json_begin_array(v->json);
	machine_run_dirs(v->cli, on_run_dir, v);
	json_end_array(v->json);
	json_end_object(v->json);
}

static int run(struct cli *cli)
{
	struct buf text cleanup(buf_fini) = BUF_INIT, json cleanup(buf_fini) = BUF_INIT;
	struct view v = {.cli = cli, .json = json_writer_new(&json, false)};

	fill(&v);
	json_writer_free(v.json);
	buf_add_char(&json, '\n');
	if (cli->json)
		cli_print(cli, &json);
	else if (v.n) {
		table_print(cli, &v.table, &text);
		cli_print(cli, &text);
	}
	table_fini(&v.table);
	if (!v.n)
		return cli_fail(cli, CLI_NOT_ACCEPTED,
			"no judge has been started here; to start one: judicator --standalone; if "
			"it "
			"was started with --dir, give that too");
	return v.not_running ? CLI_NOT_ACCEPTED : CLI_OK;
}

const struct command cmd_services = {
	.name = "services",
	.args = "",
	.summary = "List the services that run on this machine",
	.prose = "By the pid files of the run directories; needs no gateway. The exit code is 0 "
		 "when all of "
		 "them run, else 1.",
	.flags = {flags, ARRAY_SIZE(flags)},
	.run = run,
};
