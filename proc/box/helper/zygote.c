/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation.
 *
 * A copy of conclave-box (a few dozen private pages), in namespaces of its own, root in them but not dumpable, so
 * nothing in the slot can look into it, and with only the capabilities it uses. It talks to the executor only, over
 * the slot's socket:
 *
 *   mounts, launcher -> READY       RUN -> lay out files, set limits, start the program -> STARTED
 *   program's main process dies -> kill(-1) and reap until nothing is left -> ENDED -> collect -> COLLECTED
 *
 * "Nothing is left" is the kernel's word: kill(-1) reaches every process of the pid namespace but us, racing forks
 * included, and orphans become our children, so waitpid() says ECHILD only when all are gone. The executor may
 * therefore read final counters on ENDED.
 *
 * A slot serves one run. Serving more means undoing: fresh tmpfs, emptied control groups, the emptiness proof again; a
 * second RUN is refused until then.
 *
 * Without control groups it counts too (meter.c): while the program runs it wakes up to look, it kills for memory and CPU time itself, and before
 * it goes at somebody's wish (`stop`) it says what was used, which a SIGKILL would take along.
 *
 * It ends by SIGKILL from conclave-box (the usual way), by the death of conclave-box (PDEATHSIG), or by EOF from the
 * executor. It has no other deadline: the executor has them all.
 */
#include "proc/box/helper/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proc/box/bundle.h"
#include "proc/box/helper/meter.h"
#include "proc/box/helper/program.h"
#include "proc/box/helper/root.h"
#include "proc/box/layout.h"
#include "proc/box/wire.h"

#define INODES_SPARE 1024
#define INODES_MAX 65536
#define PAGE 4096

enum { FD_PAYLOAD, FD_STDOUT, FD_STDERR, FDS_FIXED };

/* One RUN, unpacked: -1 where a descriptor was not sent. */
struct run {
	struct wire_run request;
	int fds[WIRE_FDS_MAX];
	unsigned n_fds;
	int stdin_fd, files_fd, collect_fd; /* borrowed from fds */
	char *payload;
	char **argv, **envp;
};

static _Noreturn void give_up(struct zygote *z, const char *text)
{
	struct wire message = {.magic = WIRE_MAGIC, .type = WIRE_FAILED, .error = -EIO};

	snprintf(message.text, sizeof(message.text), "%s", text);
	if (wire_send(z->socket, &message, NULL, 0) < 0)
		_exit(2);
	_exit(1);
}

static void tell(struct zygote *z, const struct wire *message)
{
	if (wire_send(z->socket, message, NULL, 0) < 0)
		_exit(2); /* nobody is there any more */
}

static void tell_failure(struct zygote *z, int error, const char *text)
{
	struct wire message = {.magic = WIRE_MAGIC, .type = WIRE_FAILED, .error = error};

	snprintf(message.text, sizeof(message.text), "%s", text);
	tell(z, &message);
}

static bool is_metered(const struct zygote *z)
{
	return z->leaf.meter >= 0;
}

/* --- becoming pid 1 ----------------------------------------------------------------------------------- */

static void reset_signals(void)
{
	sigset_t none;

	for (int signum = 1; signum < NSIG; signum++)
		signal(signum, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static int compare_fds(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Closes everything but stdio and what the struct names. */
static void keep_only_ours(struct zygote *z)
{
	int keep[4 + CGROUP_TREES_MAX + CGROUP_LIMITS];
	unsigned n = 0, from = 3;

	keep[n++] = z->socket;
	keep[n++] = z->life;
	keep[n++] = z->stop;
	keep[n++] = z->leaf.meter;
	for (unsigned i = 0; i < CGROUP_TREES_MAX; i++)
		keep[n++] = z->leaf.procs[i];
	for (unsigned i = 0; i < CGROUP_LIMITS; i++)
		keep[n++] = z->leaf.limits[i];
	qsort(keep, n, sizeof(keep[0]), compare_fds);
	for (unsigned i = 0; i < n; i++) {
		if (keep[i] < 3)
			continue;
		if ((unsigned)keep[i] > from)
			close_range(from, (unsigned)keep[i] - 1, 0);
		from = (unsigned)keep[i] + 1;
	}
	close_range(from, ~0U, 0);
}

/* The signal is for the death of our parent from now on; it may have died before. */
static void die_with_helper(struct zygote *z)
{
	struct pollfd life = {.fd = z->life};

	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		give_up(z, "cannot set the death signal");
	if (poll(&life, 1, 0) != 0)
		_exit(3);
	close(z->life);
}

static void use_null_stdio(struct zygote *z)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd < 0 || dup2(fd, 0) < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
		give_up(z, "cannot open /dev/null");
	close(fd);
}

/* What is used from here on: files of others, ids, kill, remounting the writable space; to count, those who hide from /proc. */
static void keep_few_capabilities(struct zygote *z)
{
	const uint32_t see = is_metered(z) ? 1u << CAP_SYS_PTRACE : 0;
	const uint32_t few = see | 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER |
			     1u << CAP_KILL | 1u << CAP_SETGID | 1u << CAP_SETUID |
			     1u << CAP_SYS_ADMIN;
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2] = {{few, few, 0}, {0, 0, 0}};

	if (syscall(SYS_capset, &header, data) < 0)
		give_up(z, "cannot drop capabilities");
}

static void become_pid1(struct zygote *z, struct program *program)
{
	char why[ROOT_WHY_MAX];

	reset_signals();
	keep_only_ours(z);
	die_with_helper(z);
	/* The map of the launcher's ids is written through /proc, which gives files of the undumpable to the host's root. */
	if (prctl(PR_SET_DUMPABLE, z->user ? 1 : 0, 0, 0, 0) < 0)
		give_up(z, "cannot become undumpable");
	prctl(PR_SET_NAME, "conclave-slot", 0, 0, 0);
	use_null_stdio(z);
	if (root_finish_slot(z->user, &program->proc_fd, why) < 0)
		give_up(z, why);
	program->leaf = &z->leaf;
	program->filter = &z->filter;
	program->id = z->id;
	program->own_namespace = z->user;
	program->outer_id = z->outer_id;
	program->keeps_groups = z->one_id;
	if (program_prepare(program) < 0) {
		snprintf(why, sizeof(why), "cannot prepare a program: %s: %s", program->step,
			strerror(program->error));
		give_up(z, why);
	}
	/* Undone by the launcher's change of ids where fs.suid_dumpable is 1, and by ourselves above. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		give_up(z, "cannot become undumpable");
	keep_few_capabilities(z);
}

/* --- one run ------------------------------------------------------------------------------------------ */

static int take_descriptors(struct run *run)
{
	static const struct {
		uint32_t flag;
		size_t to;
	} optional[] = {
		{WIRE_RUN_STDIN, offsetof(struct run, stdin_fd)},
		{WIRE_RUN_FILES, offsetof(struct run, files_fd)},
		{WIRE_RUN_COLLECT, offsetof(struct run, collect_fd)},
	};
	unsigned next = FDS_FIXED;

	run->stdin_fd = run->files_fd = run->collect_fd = -1;
	if (run->n_fds < FDS_FIXED)
		return -EPROTO;
	for (size_t i = 0; i < ARRAY_SIZE(optional); i++) {
		if (!(run->request.flags & optional[i].flag))
			continue;
		if (next == run->n_fds)
			return -EPROTO;
		*(int *)((char *)run + optional[i].to) = run->fds[next++];
	}
	return next == run->n_fds ? 0 : -EPROTO;
}

/* n strings from *at on; NULL-terminated array, or NULL when they are not all there. */
static char **take_strings(char **at, const char *end, uint32_t n)
{
	char **list = calloc((size_t)n + 1, sizeof(*list));

	for (uint32_t i = 0; list && i < n; i++) {
		char *stop = memchr(*at, '\0', (size_t)(end - *at));
		if (!stop) {
			free(list);
			return NULL;
		}
		list[i] = *at;
		*at = stop + 1;
	}
	return list;
}

static int read_payload(struct run *run)
{
	uint32_t size = run->request.payload_size;
	char *at;

	if (size > WIRE_PAYLOAD_MAX || run->request.n_argv == 0 || run->request.n_argv > size ||
		run->request.n_env > size)
		return -EPROTO;
	run->payload = malloc((size_t)size + 1);
	if (!run->payload)
		return -ENOMEM;
	if (pread(run->fds[FD_PAYLOAD], run->payload, size, 0) != (ssize_t)size)
		return -EPROTO;
	at = run->payload;
	run->argv = take_strings(&at, run->payload + size, run->request.n_argv);
	run->envp = take_strings(&at, run->payload + size, run->request.n_env);
	return run->argv && run->envp ? 0 : -EPROTO;
}

/* The program may fill file_bytes; what it is given comes on top. */
static int size_writable(const struct run *run)
{
	struct bundle bundle = {0};
	long long bytes = run->request.file_bytes;
	long inodes;
	int error = 0;

	if (run->files_fd >= 0)
		error = bundle_open(run->files_fd, UINT64_MAX, &bundle);
	if (error < 0)
		return error;
	bytes += (long long)bundle.bytes + (long long)(bundle.n_files + 16) * PAGE;
	inodes = bytes / PAGE + INODES_SPARE;
	if (inodes >
		INODES_MAX) /* of its own making; what it is given has its place whatever that comes to */
		inodes = INODES_MAX;
	inodes += (long)bundle.n_files * BUNDLE_DEPTH_MAX;
	bundle_close(&bundle);
	return root_resize(bytes, inodes);
}

static int lay_out(struct zygote *z, const struct run *run, char why[LAYOUT_WHY_MAX])
{
	bool read_only = run->request.flags & WIRE_RUN_READ_ONLY;
	struct layout_owner owner = {
		.read_only = read_only, .uid = z->outer_id, .gid = z->outer_id};
	int dir = open("/w", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int error = 0;

	snprintf(why, LAYOUT_WHY_MAX, "cannot prepare /w");
	if (dir < 0)
		return -errno;
	if (run->files_fd >= 0)
		error = layout_unpack(dir, run->files_fd, &owner, why);
	/* Read-only files can be neither removed nor replaced in a sticky directory of root's. */
	if (error == 0 &&
		(read_only ? fchmod(dir, 01777) : fchown(dir, z->outer_id, z->outer_id)) < 0)
		error = -errno;
	close(dir);
	return error;
}

/* A description of the program's own, at offset 0: others may read the same input. Done here because the executor
 * cannot: after giving up root its /proc/self is not its own. */
static int reopen_stdin(struct run *run, int proc_fd)
{
	char path[40];
	struct stat st;
	int fresh;

	if (run->stdin_fd < 0 || fstat(run->stdin_fd, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	snprintf(path, sizeof(path), "self/fd/%d", run->stdin_fd);
	fresh = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
	if (fresh < 0)
		return -errno;
	if (dup3(fresh, run->stdin_fd, O_CLOEXEC) < 0) {
		int error = -errno;
		close(fresh);
		return error;
	}
	close(fresh);
	return 0;
}

/* /dev/stdout and /dev/stderr are the pipes by name, and opening them asks their mode: 0600 and the executor's, as made. The
 * program may write to them anyway. */
static int open_up_outputs(const struct zygote *z, const struct run *run)
{
	/* With one id they are the program's own, which shall not read them either. */
	const mode_t mode = z->one_id ? 0222 : 0622;

	return fchmod(run->fds[FD_STDOUT], mode) < 0 || fchmod(run->fds[FD_STDERR], mode) < 0
		       ? -errno
		       : 0;
}

static int prepare(struct zygote *z, struct run *run, int proc_fd, char why[LAYOUT_WHY_MAX])
{
	int error = take_descriptors(run);

	snprintf(why, LAYOUT_WHY_MAX, "malformed request");
	if (error == 0)
		error = read_payload(run);
	if (error < 0)
		return error;
	snprintf(why, LAYOUT_WHY_MAX, "cannot open the standard input");
	error = reopen_stdin(run, proc_fd);
	if (error < 0)
		return error;
	snprintf(why, LAYOUT_WHY_MAX, "cannot open the outputs up");
	error = open_up_outputs(z, run);
	if (error < 0)
		return error;
	snprintf(why, LAYOUT_WHY_MAX, "cannot size the writable space");
	error = size_writable(run);
	if (error < 0)
		return error;
	error = lay_out(z, run, why);
	if (error < 0)
		return error;
	error = cgroup_leaf_limit(
		z->cgroup, &z->leaf, run->request.memory_bytes, run->request.processes);
	if (error < 0)
		snprintf(why, LAYOUT_WHY_MAX, "cannot set the control group's limits: %s",
			strerror(-error));
	return error;
}

static pid_t start(
	struct zygote *z, struct program *program, const struct run *run, char why[LAYOUT_WHY_MAX])
{
	pid_t pid;

	program->argv = run->argv;
	program->envp = run->envp;
	program->stdio[0] = run->stdin_fd >= 0 ? run->stdin_fd : 0;
	program->stdio[1] = run->fds[FD_STDOUT];
	program->stdio[2] = run->fds[FD_STDERR];
	program->cpu_us = run->request.cpu_us;
	program->file_bytes = run->request.file_bytes;
	program->stack_bytes = run->request.stack_bytes;
	program->processes = is_metered(z) ? run->request.processes : 0;
	pid = program_start(program);
	if (pid < 0)
		snprintf(why, LAYOUT_WHY_MAX, "cannot start the program: %s: %s", program->step,
			strerror(program->error));
	return pid;
}

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Reaps whoever ends until `pid` does; its wait status. */
static int wait_for(pid_t pid)
{
	int status = 0;
	pid_t ended;

	do {
		ended = waitpid(-1, &status, 0);
	} while (ended != pid && (ended > 0 || errno == EINTR));
	return status;
}

static void kill_the_rest(struct zygote *z)
{
	/* Anywhere else than in a pid namespace of our own, as its first process, this would end the machine's. */
	if (getpid() != 1)
		give_up(z, "the slot's first process is not pid 1");
	do {
		while (waitpid(-1, NULL, WNOHANG) > 0)
			continue;
		if (kill(-1, SIGKILL) < 0 && errno == ESRCH)
			break;
	} while (waitpid(-1, NULL, 0) > 0 || errno == EINTR);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		continue;
}

/* --- counting ----------------------------------------------------------------------------------------- */

static struct meter new_meter(
	struct zygote *z, const struct program *program, const struct run *run)
{
	const struct meter_limits limits = {
		.cpu_us = run->request.cpu_us, /* and the launcher's, when that is known */
		.memory_bytes = run->request.memory_bytes,
		.processes = run->request.processes,
	};
	struct meter meter;

	meter_init(&meter, program->proc_fd, z->leaf.meter, &limits);
	return meter;
}

/* A descriptor that is readable when a child has ended. The launcher is out already: no program inherits the mask. */
static int watch_children(struct zygote *z)
{
	sigset_t child;
	int fd;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	fd = sigprocmask(SIG_BLOCK, &child, NULL) < 0
		     ? -1
		     : signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		give_up(z, "cannot watch for the program's end");
	return fd;
}

/* Reaps all that have ended; true when `pid` was among them, with its status. */
static bool reap_ended(pid_t pid, int *status)
{
	bool found = false;
	pid_t ended;
	int s;

	while ((ended = waitpid(-1, &s, WNOHANG)) > 0) {
		if (ended != pid)
			continue;
		*status = s;
		found = true;
	}
	return found;
}

static _Noreturn void stop_metered(struct zygote *z, struct meter *meter)
{
	kill_the_rest(z);
	meter_finish(meter, false);
	_exit(0);
}

/* As wait_for(), looking now and then; what is over a limit is killed here. */
static int wait_metered(struct zygote *z, pid_t pid, struct meter *meter)
{
	struct pollfd polled[] = {
		{.fd = watch_children(z), .events = POLLIN},
		{.fd = z->stop, .events = POLLIN},
	};
	struct signalfd_siginfo info;
	int status = 0;

	while (!reap_ended(pid, &status)) {
		int64_t wait_us = meter_look(meter);
		struct timespec wait = {.tv_nsec = wait_us * 1000};
		if (wait_us == 0 && kill(-1, SIGKILL) < 0 && errno != ESRCH)
			give_up(z, "cannot kill the program");
		if (ppoll(polled, ARRAY_SIZE(polled), wait_us ? &wait : NULL, NULL) < 0)
			continue;
		if (polled[1].revents)
			stop_metered(z, meter);
		while (polled[0].revents && read(polled[0].fd, &info, sizeof(info)) > 0)
			continue;
	}
	close(polled[0].fd);
	return status;
}

static void collect(struct zygote *z, const struct run *run)
{
	struct wire message = {.magic = WIRE_MAGIC, .type = WIRE_COLLECTED};
	char why[LAYOUT_WHY_MAX] = "cannot open /w";
	int dir = open("/w", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	message.error =
		dir < 0 ? -errno
			: layout_collect(dir, run->collect_fd, run->request.collect_max, why);
	if (message.error < 0)
		snprintf(message.text, sizeof(message.text), "%s", why);
	tell(z, &message);
}

static void serve(struct zygote *z, struct run *run, struct program *program)
{
	struct wire message = {.magic = WIRE_MAGIC, .type = WIRE_STARTED};
	char why[LAYOUT_WHY_MAX];
	int error = prepare(z, run, program->proc_fd, why);
	struct meter meter = {0};
	int64_t started;
	pid_t pid;

	if (error < 0) {
		tell_failure(z, error, why);
		return;
	}
	if (is_metered(z))
		meter = new_meter(z, program, run);
	started =
		now_us(); /* exec and its page faults are in the CPU time, so in the wall time too */
	pid = start(z, program, run, why);
	if (pid < 0) {
		tell_failure(z, -EIO, why);
		return;
	}
	message.own_cpu_us = program->own_cpu_us;
	meter.limits.cpu_us += program->own_cpu_us;
	tell(z, &message);
	wire_close_fds(&run->fds[FD_STDOUT], 2); /* the readers' EOF must not wait for us */
	message.type = WIRE_ENDED;
	message.ended.status = is_metered(z) ? wait_metered(z, pid, &meter) : wait_for(pid);
	message.ended.wall_us = now_us() - started;
	kill_the_rest(z);
	if (is_metered(z))
		meter_finish(&meter, WIFSIGNALED(message.ended.status) &&
					     WTERMSIG(message.ended.status) == SIGKILL);
	tell(z, &message);
	if (run->collect_fd >= 0 && WIFEXITED(message.ended.status) &&
		WEXITSTATUS(message.ended.status) == 0)
		collect(z, run);
}

/* The next RUN from the executor; returns only with one. */
static void receive(struct zygote *z, struct run *run)
{
	struct pollfd polled[] = {
		{.fd = z->socket, .events = POLLIN},
		{.fd = z->stop, .events = POLLIN}, /* poll() passes over -1 */
	};
	struct wire message;

	memset(run, 0, sizeof(*run));
	if (poll(polled, ARRAY_SIZE(polled), -1) < 0 || polled[1].revents)
		_exit(0);
	if (wire_receive(z->socket, &message, run->fds, &run->n_fds) < 0)
		_exit(0);
	if (message.type != WIRE_RUN)
		give_up(z, "unexpected message");
	run->request = message.run;
}

void zygote_main(struct zygote *z)
{
	struct wire ready = {.magic = WIRE_MAGIC, .type = WIRE_READY};
	struct program program = {0};
	struct run run;

	become_pid1(z, &program);
	tell(z, &ready);
	receive(z, &run);
	serve(z, &run, &program);
	wire_close_fds(run.fds, run.n_fds);
	receive(z, &run);
	give_up(z, "this slot has been used");
}
