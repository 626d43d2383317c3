/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box_none - no sandbox: rlimits, a session and a temporary directory. It isolates nothing, and every result says so.
 * For machines where the real one cannot work and everybody's programs are trusted.
 *
 * Theory of operation.
 *
 * A slot gets a fresh directory under /tmp when it is used; what a crash leaves there is removed by the next start with
 * the same run directory. A run is laid out in it, spawned as the leader of a new session, and over when the leader has
 * been reaped; the rest of its process group is killed then. What left the group (setsid, double fork) escapes: nothing
 * here can hold it.
 *
 * CPU and memory are what the kernel reports for the leader and the children it has waited for. memory_bytes becomes
 * RLIMIT_AS and processes RLIMIT_NPROC (no limit for root), so going over either is an error the program sees, not a
 * verdict. Laying out, collecting and removing happen on the loop's thread.
 *
 * When we are root the program is not: it runs as nobody, which keeps it from killing every process of the machine, and no more.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proc/box/box.h"
#include "proc/box/bundle.h"
#include "proc/box/layout.h"
#include "proc/spawn.h"
#include "reactor/base/clock.h"
#include "reactor/base/list.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "reactor/io.h"
#include "reactor/loop.h"

#define BASE "/tmp"
#define DIR_SIZE 64
#define DEPTH_MAX 64
#define EXIT_CANNOT 126
#define EXIT_MISSING 127
#define NOBODY 65534

struct box {
	struct loop *loop;
	struct log *log;
	struct list slots;
	char prefix[40]; /* of our directories' names: follows from the run directory */
};

struct box_slot {
	struct list link;
	struct box *box;
	struct op op;
	struct defer ready, failed_exec;
	void (*on_ready)(void *arg, struct box_slot *slot, const char *why);
	const struct box_slot_events *events;
	void *arg;
	char dir[DIR_SIZE]; /* "" = not made yet */
	int dir_fd;
	pid_t pid;
	int pidfd;
	struct io_watch *watch;
	bool announced; /* on_started has been called */
	int64_t started_us;
	bool collect;
	uint64_t collect_max;
	bool killed;
	struct box_slot_end end;
};

/* --- the directory ------------------------------------------------------------------------------------ */

/* By descriptors, never by path: what escaped from a run may still be moving things about. Owns fd. */
static bool remove_contents(int fd, unsigned depth)
{
	DIR *dir = fdopendir(fd);
	struct dirent *entry;
	bool clean = true;

	if (!dir) {
		close(fd);
		return false;
	}
	while ((entry = readdir(dir))) {
		const char *name = entry->d_name;
		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || unlinkat(fd, name, 0) == 0)
			continue;
		int below = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (below < 0 || depth == DEPTH_MAX) {
			if (below >= 0)
				close(below);
			clean = false;
			continue;
		}
		clean = remove_contents(below, depth + 1) && clean;
		clean = unlinkat(fd, name, AT_REMOVEDIR) == 0 && clean;
	}
	closedir(dir);
	return clean;
}

static void remove_tree(struct box *box, const char *name)
{
	int tmp = open(BASE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd = tmp < 0 ? -1 : openat(tmp, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || !remove_contents(fd, 0) || unlinkat(tmp, name, AT_REMOVEDIR) < 0)
		log_warn(box->log, "box_none", "left=" BASE "/%s", name);
	if (tmp >= 0)
		close(tmp);
}

/* Removes the directories of an earlier start with our run directory. */
static void sweep(struct box *box)
{
	DIR *dir = opendir(BASE);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		if (strncmp(entry->d_name, box->prefix, strlen(box->prefix)) == 0)
			remove_tree(box, entry->d_name);
	}
	if (dir)
		closedir(dir);
}

static int make_directory(struct box_slot *slot)
{
	snprintf(slot->dir, sizeof(slot->dir), BASE "/%sXXXXXX", slot->box->prefix);
	if (!mkdtemp(slot->dir)) {
		slot->dir[0] = '\0';
		return -errno;
	}
	slot->dir_fd = open(slot->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return slot->dir_fd < 0 ? -errno : 0;
}

static void slot_free(void *p)
{
	free(p);
}

static void slot_release(struct box_slot *slot)
{
	defer_cancel(&slot->ready);
	defer_cancel(&slot->failed_exec);
	io_free(slot->watch);
	slot->watch = NULL;
	if (slot->pidfd >= 0)
		close(slot->pidfd);
	if (slot->dir_fd >= 0)
		close(slot->dir_fd);
	slot->pidfd = slot->dir_fd = -1;
	if (slot->dir[0])
		remove_tree(slot->box, slot->dir + strlen(BASE "/"));
	slot->dir[0] = '\0';
	list_del(&slot->link);
	loop_free_later(slot->box->loop, slot_free, slot);
}

/* --- the end of a run --------------------------------------------------------------------------------- */

static int64_t timeval_us(const struct timeval *t)
{
	return (int64_t)t->tv_sec * US_PER_S + t->tv_usec;
}

static void collect(struct box_slot *slot)
{
	char why[LAYOUT_WHY_MAX];
	int fd, error;

	error = bundle_create(&fd);
	if (error == 0) {
		error = layout_collect(slot->dir_fd, fd, slot->collect_max, why);
		if (error == 0)
			error = bundle_seal(fd);
		if (error == 0)
			slot->end.files_fd = fd;
		else
			close(fd);
	}
	slot->end.files_refused = error == -EFBIG;
	if (error < 0 && error != -EFBIG)
		slot->end.failure = "the files the program left cannot be collected";
}

/* Reaps the leader (raw call: libc's waitid() does not give the usage) and kills what is left of its group. */
static void reap(struct box_slot *slot)
{
	struct rusage usage = {0};
	siginfo_t info = {0};

	killpg(slot->pid, SIGKILL);
	if (syscall(SYS_waitid, P_PIDFD, slot->pidfd, &info, WEXITED, &usage) < 0)
		log_error(slot->box->log, "box_none", "waitid_error=%d", errno);
	slot->end.cpu_us = timeval_us(&usage.ru_utime) + timeval_us(&usage.ru_stime);
	slot->end.memory_bytes = (int64_t)usage.ru_maxrss * 1024;
	slot->end.wall_us = loop_now_exact_us(slot->box->loop) - slot->started_us;
	if (info.si_code == CLD_EXITED)
		slot->end.status = W_EXITCODE(info.si_status, 0);
	else
		slot->end.status = slot->killed && info.si_status == SIGKILL
					   ? -1
					   : W_EXITCODE(0, info.si_status);
	slot->pid = 0;
}

static void on_pidfd(void *arg, unsigned events)
{
	struct box_slot *slot = arg;

	if (!slot->announced) {
		slot->announced = true;
		slot->events->on_started(slot->arg);
	}
	io_free(slot->watch);
	slot->watch = NULL;
	reap(slot);
	if (slot->collect && slot->end.status == 0)
		collect(slot);
	slot->events->on_ended(slot->arg, &slot->end);
}

/* --- starting ----------------------------------------------------------------------------------------- */

static const char *const fixed_env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"};
static const char *const search[] = {"/usr/local/bin", "/usr/bin", "/bin"};

static char **make_env(const struct box_slot *slot, char *const *env)
{
	size_t n = 0, at = 0;
	char **list;

	while (env && env[n])
		n++;
	list = mem_array(n + ARRAY_SIZE(fixed_env) + 2, sizeof(*list));
	for (size_t i = 0; i < n; i++)
		list[at++] = mem_strdup(env[i]);
	/* Behind the caller's: getenv() finds the first. */
	for (size_t i = 0; i < ARRAY_SIZE(fixed_env); i++)
		list[at++] = mem_strdup(fixed_env[i]);
	list[at] = mem_printf("HOME=%s", slot->dir);
	return list;
}

static void free_env(char **env)
{
	for (size_t i = 0; env[i]; i++)
		free(env[i]);
	free(env);
}

static void add_limit(struct spawn_spec *spec, int resource, uint64_t value)
{
	struct rlimit now;

	if (getrlimit(resource, &now) == 0 && value > now.rlim_max)
		value = now.rlim_max;
	spec->limits[spec->n_limits++] = (struct spawn_limit){resource, value, value};
}

static void add_limits(struct spawn_spec *spec, const struct box_limits *l)
{
	add_limit(spec, RLIMIT_CPU, (uint64_t)(l->cpu_us + US_PER_S - 1) / US_PER_S + 1);
	add_limit(spec, RLIMIT_CORE, 0);
	add_limit(spec, RLIMIT_FSIZE, (uint64_t)l->file_bytes);
	add_limit(spec, RLIMIT_STACK, (uint64_t)l->stack_bytes);
	add_limit(spec, RLIMIT_AS, (uint64_t)l->memory_bytes);
	add_limit(spec, RLIMIT_NPROC, (uint64_t)l->processes);
	add_limit(spec, RLIMIT_NOFILE, 256);
}

static int try_spawn(struct spawn_spec *spec, struct spawned *child)
{
	char *path cleanup(mem_freep) = NULL;
	int error = -ENOENT;

	if (strchr(spec->argv[0], '/'))
		return spawn(spec, child);
	for (size_t i = 0; i < ARRAY_SIZE(search) && error == -ENOENT; i++) {
		free(path);
		path = mem_printf("%s/%s", search[i], spec->argv[0]);
		spec->path = path;
		error = spawn(spec, child);
	}
	return error;
}

static void on_failed_exec(void *arg)
{
	struct box_slot *slot = arg;

	slot->events->on_started(slot->arg);
	slot->events->on_ended(slot->arg, &slot->end);
}

/* A program that cannot be executed is the program's failure: said on its stderr, with a shell's exit code. */
static int fail_exec(struct box_slot *slot, const struct box_start *start, int error)
{
	dprintf(start->stderr_fd, "cannot execute %s: %s\n", start->spec->argv[0],
		strerror(-error));
	slot->end.status =
		W_EXITCODE(error == -ENOENT || error == -ENOTDIR ? EXIT_MISSING : EXIT_CANNOT, 0);
	loop_defer(slot->box->loop, &slot->failed_exec);
	return 0;
}

static bool is_root(void)
{
	return geteuid() == 0;
}

static int lay_out(struct box_slot *slot, const struct box_spec *spec)
{
	const struct layout_owner owner = {.read_only = spec->files_read_only,
		.uid = is_root() ? NOBODY : (uid_t)-1,
		.gid = is_root() ? NOBODY : (gid_t)-1};
	char why[LAYOUT_WHY_MAX];
	int error = 0;

	if (spec->files_fd >= 0)
		error = layout_unpack(slot->dir_fd, spec->files_fd, &owner, why);
	if (error < 0) {
		log_error(slot->box->log, "box_none", "layout=\"%s\"", why);
		return error;
	}
	if (!is_root())
		return 0;
	/* Read-only files can be neither removed nor replaced in a sticky directory of root's. */
	if (spec->files_read_only ? fchmod(slot->dir_fd, 01777)
				  : fchown(slot->dir_fd, NOBODY, NOBODY))
		return -errno;
	return 0;
}

static int none_slot_run(struct box_slot *slot, const struct box_start *start,
	const struct box_slot_events *events, void *arg)
{
	const struct box_spec *spec = start->spec;
	char **env;
	struct spawn_spec s = {.argv = spec->argv,
		.dir = slot->dir,
		.fds = {{start->stdout_fd, 1}, {start->stderr_fd, 2}, {start->stdin_fd, 0}},
		.n_fds = start->stdin_fd >= 0 ? 3 : 2,
		.new_session = true,
		.drop = is_root(),
		.uid = NOBODY,
		.gid = NOBODY,
		.death_signal = SIGKILL};
	struct spawned child;
	int error = make_directory(slot);

	if (error == 0)
		error = lay_out(slot, spec);
	if (error < 0)
		return error;
	slot->events = events;
	slot->arg = arg;
	slot->collect = spec->collect;
	slot->collect_max = spec->collect_max;
	env = make_env(slot, spec->env);
	s.envp = env;
	add_limits(&s, &spec->limits);
	error = try_spawn(&s, &child);
	free_env(env);
	if (error < 0)
		return strcmp(child.step, "exec") == 0 ? fail_exec(slot, start, error) : error;
	slot->pid = child.pid;
	slot->pidfd = child.pidfd;
	slot->started_us = loop_now_exact_us(slot->box->loop);
	slot->watch = io_new(slot->box->loop, slot->pidfd, IO_READ, on_pidfd, slot);
	loop_defer(slot->box->loop, &slot->ready); /* says 'started' */
	return 0;
}

static void none_slot_kill(struct box_slot *slot)
{
	if (slot->pid <= 0)
		return;
	slot->killed = true;
	killpg(slot->pid, SIGKILL);
}

/* --- slots and the box -------------------------------------------------------------------------------- */

/* First use: the slot is ready. Second: its program has started. */
static void on_deferred(void *arg)
{
	struct box_slot *slot = arg;
	void (*ready)(void *, struct box_slot *, const char *) = slot->on_ready;

	slot->on_ready = NULL;
	if (ready) {
		ready(slot->arg, slot, NULL);
	} else if (!slot->announced) {
		slot->announced = true;
		slot->events->on_started(slot->arg);
	}
}

static void cancel_open(struct op *op)
{
	slot_release(container_of(op, struct box_slot, op));
}

static int none_slot_open(struct box *box,
	void (*ready)(void *arg, struct box_slot *slot, const char *why), void *arg, struct op **op)
{
	struct box_slot *slot = mem_alloc(sizeof(*slot));

	slot->box = box;
	slot->pidfd = slot->dir_fd = slot->end.files_fd = -1;
	slot->on_ready = ready;
	slot->arg = arg;
	slot->op.cancel = cancel_open;
	defer_init(&slot->ready, on_deferred, slot);
	defer_init(&slot->failed_exec, on_failed_exec, slot);
	list_init(&slot->link);
	list_add_tail(&box->slots, &slot->link);
	loop_defer(box->loop, &slot->ready);
	*op = &slot->op;
	return 0;
}

static bool none_slot_reset(struct box_slot *slot)
{
	return false; /* a fresh directory for every run */
}

static void none_slot_close(struct box_slot *slot)
{
	if (slot->pid > 0)
		reap(slot);
	slot_release(slot);
}

static int64_t none_slot_cpu_us(struct box_slot *slot)
{
	struct timespec t;
	clockid_t clock;

	if (slot->pid <= 0 || clock_getcpuclockid(slot->pid, &clock) != 0 ||
		clock_gettime(clock, &t) < 0)
		return -ESRCH;
	return (int64_t)t.tv_sec * US_PER_S + t.tv_nsec / 1000;
}

/* FNV-1a */
static uint64_t hash(const char *s)
{
	uint64_t h = UINT64_C(14695981039346656037);

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
	return h;
}

static int none_open(
	struct loop *loop, const struct box_options *options, struct box **out, char **why)
{
	struct box *box = mem_alloc(sizeof(*box));

	box->loop = loop;
	box->log = options->log;
	list_init(&box->slots);
	snprintf(box->prefix, sizeof(box->prefix), "conclave-none-%016llx-",
		(unsigned long long)hash(options->run_dir ? options->run_dir : ""));
	if (options->run_dir)
		sweep(box);
	log_warn(box->log, "box_none", "isolation=none");
	*out = box;
	return 0;
}

static void none_close(struct box *box)
{
	list_each_safe (it, &box->slots) {
		none_slot_close(list_entry(it, struct box_slot, link));
	}
	free(box);
}

const struct box_ops box_none = {
	.name = "none",
	.isolation = "none",
	.open = none_open,
	.close = none_close,
	.slot_open = none_slot_open,
	.slot_run = none_slot_run,
	.slot_kill = none_slot_kill,
	.slot_reset = none_slot_reset,
	.slot_close = none_slot_close,
	.slot_cpu_us = none_slot_cpu_us,
};
