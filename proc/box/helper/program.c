/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launcher shares our memory until exec (CLONE_VM, like a vfork, but waiting): it costs no page table, its page
 * faults are not charged to the program's control group, and its errors are plain assignments. Nothing untrusted
 * has run in it. It shares our descriptors too, until it is told to go, so it sees those a run brings.
 *
 * The two hand over to each other through futexes and never run at the same time, which matters as they share errno:
 *   pid 1: clone, (map,) wait `ready` ....... (a run) set `go`, wait for `tid` to be cleared: exec or death
 *   launcher: get_ready(), set `ready`, wait `go` .............. launch()
 *
 * When we are an ordinary user's, the launcher has a user namespace of its own with one number in it, given by pid 1: whatever pid 1
 * owns (mounts, processes, network) belongs to the one above, and RLIMIT_NPROC counts in it the program alone. A new namespace comes with all
 * capabilities and no secure bits, so those are dropped there once more.
 *
 * Why a launcher: joining takes the kernel's lock on all thread groups, whose writer may wait for an RCU grace
 * period (10 to 20 ms on a busy machine), and a new session is a new scheduling group. Made ahead, they cost a run nothing.
 *
 * Order matters, each line depends on those above it. Ahead:
 *   control groups   while we may still write there
 *   oom_score_adj    through pid 1's private view of /proc; raising needs no privilege, lowering would
 *   ids              groups, gid, uid, then looked at again: a program with a forgotten group is the classic hole
 *   capabilities     none are left by then; emptied explicitly and inheritable too
 *   no_new_privs
 * With the run:
 *   descriptors      the program gets 0, 1, 2 and nothing else
 *   limits           only ever lowered: we are nobody already
 *   filter, exec
 *
 * RLIMIT_CPU is a second past the limit: the executor's timer is exact, this one works when the executor does not.
 */
#include "proc/box/helper/program.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proc/box/helper/userns.h"

#define STACK_SIZE (64 * 1024)
#define NOFILE_MAX 256
#define NAME_MAX_BYTES 4096
/* Files of this size are never written, as with 0. But a core_pattern that is a pipe starts its handler, as root of the host, for
 * every limit but 1, which is the kernel's own sign for "no"; and it may become a pipe at any time. */
#define CORE_MAX 1
#define EXIT_CANNOT 126
#define EXIT_MISSING 127

static bool failed(struct program *p, const char *step, long result)
{
	if (result >= 0)
		return false;
	p->error = errno;
	p->step = step;
	return true;
}

static int64_t own_cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static bool join_groups(struct program *p)
{
	bool joined = false;

	for (unsigned i = 0; i < CGROUP_TREES_MAX; i++) {
		int fd = p->leaf->procs[i];
		if (fd >= 0 && failed(p, "joining the control group", write(fd, "0", 1)))
			return false;
		joined = joined || fd >= 0;
	}
	if (joined) /* else all we ever used counts */
		p->unjoined_cpu_us = own_cpu_us();
	return true;
}

static bool place_descriptors(struct program *p)
{
	/* stdio[] may itself hold 0, 1 or 2 (then /dev/null of pid 1): copy above, then down. */
	int copies[3];

	for (int i = 0; i < 3; i++) {
		copies[i] = fcntl(p->stdio[i], F_DUPFD_CLOEXEC, 3);
		if (failed(p, "copying descriptors", copies[i]))
			return false;
	}
	for (int i = 0; i < 3; i++) {
		if (failed(p, "placing descriptors", dup2(copies[i], i)))
			return false;
	}
	return true;
}

static bool volunteer_for_oom(struct program *p)
{
	int fd = openat(p->proc_fd, "self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (failed(p, "opening oom_score_adj", fd) ||
		failed(p, "writing oom_score_adj", write(fd, "1000", 4)))
		return false;
	close(fd);
	return true;
}

/* Never above what we have ourselves. */
static bool set_limit(struct program *p, int resource, uint64_t value)
{
	struct rlimit limit;

	if (failed(p, "getrlimit", getrlimit(resource, &limit)))
		return false;
	if (value > limit.rlim_max)
		value = limit.rlim_max;
	limit.rlim_cur = limit.rlim_max = value;
	return !failed(p, "setrlimit", setrlimit(resource, &limit));
}

static bool set_limits(struct program *p)
{
	uint64_t cpu_s = (uint64_t)(p->cpu_us + 999999) / 1000000 + 1;

	if (p->processes > 0 && !set_limit(p, RLIMIT_NPROC, (uint64_t)p->processes))
		return false;
	return set_limit(p, RLIMIT_CPU, cpu_s) && set_limit(p, RLIMIT_CORE, CORE_MAX) &&
	       set_limit(p, RLIMIT_FSIZE, (uint64_t)p->file_bytes) &&
	       set_limit(p, RLIMIT_STACK, (uint64_t)p->stack_bytes) &&
	       set_limit(p, RLIMIT_NOFILE, NOFILE_MAX) && set_limit(p, RLIMIT_MEMLOCK, 0) &&
	       set_limit(p, RLIMIT_MSGQUEUE, 0);
}

static bool become_nobody(struct program *p)
{
	uid_t uid[3];
	gid_t gid[3];

	if ((!p->keeps_groups && failed(p, "setgroups", syscall(SYS_setgroups, 0, NULL))) ||
		failed(p, "setresgid", syscall(SYS_setresgid, p->id, p->id, p->id)) ||
		failed(p, "setresuid", syscall(SYS_setresuid, p->id, p->id, p->id)) ||
		failed(p, "getresuid", getresuid(&uid[0], &uid[1], &uid[2])) ||
		failed(p, "getresgid", getresgid(&gid[0], &gid[1], &gid[2])))
		return false;
	for (int i = 0; i < 3; i++) {
		if (uid[i] != p->id || gid[i] != p->id) {
			errno = EPERM;
			return !failed(p, "checking ids", -1);
		}
	}
	if (!p->keeps_groups && getgroups(0, NULL) != 0) {
		errno = EPERM;
		return !failed(p, "checking groups", -1);
	}
	return true;
}

static bool drop_capabilities(struct program *p)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};

	return !failed(p, "capset", syscall(SYS_capset, &header, none));
}

static bool load_filter(struct program *p)
{
	return !failed(p, "seccomp", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, p->filter));
}

/* Tries each directory; the most telling error wins: a file found but not executable over none found. */
static int exec_by_name(struct program *p)
{
	static const char *const path[] = {PROGRAM_PATH};
	char full[NAME_MAX_BYTES];
	int error = ENOENT;

	for (size_t i = 0; i < ARRAY_SIZE(path); i++) {
		int n = snprintf(full, sizeof(full), "%s/%s", path[i], p->argv[0]);
		if (n < 0 || (size_t)n >= sizeof(full))
			return ENAMETOOLONG;
		execve(full, p->argv, p->envp);
		if (errno != ENOENT && errno != ENOTDIR)
			error = errno;
	}
	return error;
}

static void say(const char *text)
{
	/* stderr may be a full pipe or closed at the other end: then nobody wanted to know */
	if (write(2, text, strlen(text)) < 0)
		return;
}

static void exec_program(struct program *p)
{
	int error;

	if (strchr(p->argv[0], '/')) {
		execve(p->argv[0], p->argv, p->envp);
		error = errno;
	} else if (p->argv[0][0] == '\0') {
		error = ENOENT;
	} else {
		error = exec_by_name(p);
	}
	say("cannot execute ");
	say(p->argv[0]);
	say(": ");
	say(strerrordesc_np(error) ? strerrordesc_np(error) : "unknown error");
	say("\n");
	_exit(error == ENOENT || error == ENOTDIR ? EXIT_MISSING : EXIT_CANNOT);
}

static void futex_wait(int *word, int while_it_is)
{
	/* Not private: the kernel's own wake at exec is not. */
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == while_it_is)
		syscall(SYS_futex, word, FUTEX_WAIT, while_it_is, NULL, NULL, 0);
}

static void futex_set(int *word, int value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Inherited by the launcher, but not into a user namespace. */
static bool drop_bounding_set(struct program *p)
{
	/* Not NO_SETUID_FIXUP itself: leaving uid 0 must go on clearing capabilities. All of it locked. */
	const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED |
				   SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
				   SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

	if (failed(p, "securebits", prctl(PR_SET_SECUREBITS, bits, 0, 0, 0)))
		return false;
	for (unsigned long cap = 0; cap < 64; cap++) {
		if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) < 0)
			break; /* past the kernel's last */
		if (failed(p, "dropping the bounding set", prctl(PR_CAPBSET_DROP, cap, 0, 0, 0)))
			return false;
	}
	return true;
}

static bool get_ready(struct program *p)
{
	umask(022);
	if (p->own_namespace) {
		futex_wait(&p->mapped, 0);
		if (!drop_bounding_set(p))
			return false;
	}
	return join_groups(p) && !failed(p, "setsid", setsid()) && volunteer_for_oom(p) &&
	       !failed(p, "entering /w", chdir("/w")) && become_nobody(p) && drop_capabilities(p) &&
	       !failed(p, "no_new_privs", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

static void launch(struct program *p)
{
	if (!failed(p, "unshare", unshare(CLONE_FILES)) && place_descriptors(p) &&
		!failed(p, "close_range", close_range(3, ~0U, 0)) && set_limits(p)) {
		p->own_cpu_us = own_cpu_us() - p->unjoined_cpu_us;
		if (load_filter(p))
			exec_program(p);
	}
}

static int launcher_main(void *arg)
{
	struct program *p = arg;
	bool fine = get_ready(p);

	futex_set(&p->ready, 1);
	if (fine) {
		futex_wait(&p->go, 0);
		launch(p);
	}
	_exit(EXIT_CANNOT);
}

pid_t program_start(struct program *p)
{
	futex_set(&p->go, 1);
	for (int tid = p->pid; tid != 0; tid = __atomic_load_n(&p->tid, __ATOMIC_ACQUIRE))
		futex_wait(&p->tid, tid);
	if (!p->step)
		return p->pid;
	while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	return -1;
}

static bool map_launcher(struct program *p)
{
	int error = 0;

	if (p->own_namespace)
		error = userns_map_one(p->proc_fd, p->pid, p->id, p->outer_id);
	errno = -error;
	return !failed(p, "mapping ids", error);
}

static int start_launcher(struct program *p)
{
	const int own = p->own_namespace ? CLONE_NEWUSER : 0;
	char *stack = malloc(STACK_SIZE);

	if (!stack) {
		p->step = "malloc";
		return -ENOMEM;
	}
	p->pid = clone(launcher_main, stack + STACK_SIZE,
		own | CLONE_VM | CLONE_FILES | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD,
		p, &p->tid, NULL, &p->tid);
	if (failed(p, "clone", p->pid))
		return -p->error;
	if (!map_launcher(p))
		return -p->error; /* the slot dies of it, and the launcher with it */
	futex_set(&p->mapped, 1);
	futex_wait(&p->ready, 0);
	return p->step ? -p->error : 0;
}

int program_prepare(struct program *p)
{
	return drop_bounding_set(p) ? start_launcher(p) : -p->error;
}
