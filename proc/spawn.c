/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation.
 *
 * The child is a clone with CLONE_VM | CLONE_VFORK: it borrows our memory and we are suspended until it has
 * exec'ed or exited, so its cost does not depend on our size. Because the memory is shared, an error needs no
 * pipe: the child writes it into `struct launch` and exits, and we read it when we run again.
 *
 *   parent: block all signals -> clone -> (suspended) -> restore signals -> error? reap : return
 *   child:  default handlers -> descriptors -> session, limits, directory, ids -> death signal -> exec
 *
 * Invariants of the child, which runs on a stack of its own in our address space:
 * - only raw system calls: libc's setuid() would signal our threads, and sanitizers intercept the rest;
 * - it writes to nothing but its stack, struct launch and errno (which is our thread's: we look at it no more);
 * - all signals stay blocked until every handler is SIG_DFL, so none of ours can run there. SIGPIPE, which we
 *   ignore, is default again in the child.
 *
 * Descriptors: sources are first copied above every target, so that no target can overwrite a source; then
 * everything from 3 up is marked close-on-exec, and dup2() to the targets takes the mark off again.
 */
#include "proc/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/close_range.h>

#define STACK_SIZE (64 * 1024)
#define GUARD_SIZE 4096
#define SIGNALS 64

/* Sanitizers know nothing of a second task on a stack of its own. */
#define in_child __attribute__((no_sanitize("address", "undefined", "thread")))

struct launch {
	const struct spawn_spec *spec;
	pid_t parent;
	int path_fd;
	int error; /* positive errno of the failed step */
	const char *step;
};

static in_child bool failed(struct launch *launch, const char *step, long result)
{
	if (result >= 0)
		return false;
	launch->error = errno;
	launch->step = step;
	return true;
}

/* The kernel's own view: libc hides two signals and may keep state. */
struct kernel_sigaction {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

static in_child bool reset_signals(struct launch *launch)
{
	struct kernel_sigaction action = {SIG_DFL, 0, NULL, 0};
	uint64_t none = 0;

	for (int signum = 1; signum <= SIGNALS; signum++) {
		if (signum != SIGKILL && signum != SIGSTOP)
			syscall(SYS_rt_sigaction, signum, &action, NULL, sizeof(action.mask));
	}
	return !failed(launch, "sigmask",
		syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none)));
}

static in_child int highest_target(const struct spawn_spec *spec)
{
	int highest = 2;

	for (unsigned i = 0; i < spec->n_fds; i++) {
		if (spec->fds[i].to > highest)
			highest = spec->fds[i].to;
	}
	return highest;
}

static in_child bool is_target(const struct spawn_spec *spec, int fd)
{
	for (unsigned i = 0; i < spec->n_fds; i++) {
		if (spec->fds[i].to == fd)
			return true;
	}
	return false;
}

static in_child bool fill_with_null(struct launch *launch, long null_fd)
{
	for (int fd = 0; fd <= 2; fd++) {
		if (!is_target(launch->spec, fd) &&
			failed(launch, "dup", syscall(SYS_dup3, null_fd, fd, 0)))
			return false;
	}
	return true;
}

static in_child bool place_descriptors(struct launch *launch)
{
	const struct spawn_spec *spec = launch->spec;
	int above = highest_target(spec) + 1;
	long copies[SPAWN_FDS_MAX];
	long null_low, null_fd;

	for (unsigned i = 0; i < spec->n_fds; i++) {
		copies[i] = syscall(SYS_fcntl, spec->fds[i].from, F_DUPFD_CLOEXEC, above);
		if (failed(launch, "dup", copies[i]))
			return false;
	}
	if (spec->path_fd > 0) {
		long copy = syscall(SYS_fcntl, spec->path_fd, F_DUPFD_CLOEXEC, above);
		if (failed(launch, "dup", copy))
			return false;
		launch->path_fd = (int)copy;
	}
	null_low = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR);
	if (failed(launch, "open /dev/null", null_low))
		return false;
	null_fd = syscall(SYS_fcntl, null_low, F_DUPFD_CLOEXEC, above);
	if (failed(launch, "dup", null_fd))
		return false;
	if (failed(launch, "close_range", syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC)))
		return false;
	for (unsigned i = 0; i < spec->n_fds; i++) {
		if (failed(launch, "dup", syscall(SYS_dup3, copies[i], spec->fds[i].to, 0)))
			return false;
	}
	return fill_with_null(launch, null_fd);
}

static in_child bool set_limits(struct launch *launch)
{
	const struct spawn_spec *spec = launch->spec;

	for (unsigned i = 0; i < spec->n_limits; i++) {
		const struct spawn_limit *limit = &spec->limits[i];
		const uint64_t pair[2] = {limit->soft, limit->hard};
		if (failed(launch, "setrlimit",
			    syscall(SYS_prlimit64, 0, limit->resource, pair, NULL)))
			return false;
	}
	return true;
}

static in_child bool drop_privileges(struct launch *launch)
{
	const struct spawn_spec *spec = launch->spec;

	if (!spec->drop)
		return true;
	return !failed(launch, "setgroups", syscall(SYS_setgroups, 0, NULL)) &&
	       !failed(launch, "setresgid",
		       syscall(SYS_setresgid, spec->gid, spec->gid, spec->gid)) &&
	       !failed(launch, "setresuid",
		       syscall(SYS_setresuid, spec->uid, spec->uid, spec->uid));
}

/* Last before exec: a change of credentials clears the signal. The parent may have died before it was set. */
static in_child bool die_with_parent(struct launch *launch)
{
	int signum = launch->spec->death_signal;

	if (signum == 0)
		return true;
	if (failed(launch, "pdeathsig", syscall(SYS_prctl, PR_SET_PDEATHSIG, signum, 0, 0, 0)))
		return false;
	if (syscall(SYS_getppid) == launch->parent)
		return true;
	errno = ESRCH;
	return !failed(launch, "parent", -1);
}

static in_child void exec_program(struct launch *launch)
{
	static char *const empty[] = {NULL};
	const struct spawn_spec *spec = launch->spec;
	char *const *envp = spec->envp ? spec->envp : empty;
	long result;

	if (launch->path_fd > 0)
		result =
			syscall(SYS_execveat, launch->path_fd, "", spec->argv, envp, AT_EMPTY_PATH);
	else
		result = syscall(
			SYS_execve, spec->path ? spec->path : spec->argv[0], spec->argv, envp);
	failed(launch, "exec", result);
}

static in_child int child_main(void *arg)
{
	struct launch *launch = arg;
	const struct spawn_spec *spec = launch->spec;

	if (reset_signals(launch) && place_descriptors(launch) &&
		!(spec->new_session && failed(launch, "setsid", syscall(SYS_setsid))) &&
		set_limits(launch) &&
		!(spec->dir && failed(launch, "chdir", syscall(SYS_chdir, spec->dir))) &&
		drop_privileges(launch) && die_with_parent(launch))
		exec_program(launch);
	syscall(SYS_exit_group, 127);
	return 0;
}

/* Runs child_main() to its exec or its end; negative errno when there was no clone. */
static int launch_child(struct launch *launch, struct spawned *out)
{
	sigset_t all, before;
	char *stack;
	int pidfd = -1;
	int error = 0;

	stack = mmap(NULL, STACK_SIZE + GUARD_SIZE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (stack == MAP_FAILED)
		return -errno;
	if (mprotect(stack, GUARD_SIZE, PROT_NONE) < 0) {
		error = -errno;
		munmap(stack, STACK_SIZE + GUARD_SIZE);
		return error;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	out->pid = clone(child_main, stack + GUARD_SIZE + STACK_SIZE,
		CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, launch, &pidfd);
	if (out->pid < 0)
		error = -errno;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	munmap(stack, STACK_SIZE + GUARD_SIZE);
	out->pidfd = pidfd;
	return error;
}

static void reap(struct spawned *out)
{
	while (waitpid(out->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	close(out->pidfd);
	out->pid = -1;
	out->pidfd = -1;
}

int spawn(const struct spawn_spec *spec, struct spawned *out)
{
	struct launch launch = {.spec = spec, .parent = getpid(), .step = NULL};
	int error;

	CHECK(spec->n_fds <= SPAWN_FDS_MAX);
	CHECK(spec->n_limits <= ARRAY_SIZE(spec->limits));
	CHECK(spec->argv && spec->argv[0]);
	*out = (struct spawned){.pid = -1, .pidfd = -1, .step = NULL};
	error = launch_child(&launch, out);
	if (error < 0) {
		out->step = "clone";
		return error;
	}
	if (launch.error == 0)
		return 0;
	reap(out);
	out->step = launch.step;
	return -launch.error;
}
