/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A deny-list: compilers and language runtimes use hundreds of calls, and what a program may do is already bounded
 * by namespaces, ids and control groups. Denied is what reaches around those (keyrings and vsock are not in any of
 * our namespaces), what has a record of kernel holes and no use in a judged program, and whatever makes new
 * namespaces. Other architectures' entries (int 0x80, x32) kill: their numbers would bypass the list.
 *
 * ENOSYS where a library falls back to something harmless (glibc's clone3), EPERM elsewhere.
 *
 * The kernel looks at the low 32 bits of int arguments only, so 32-bit arguments are compared under a mask:
 * an exact comparison of the whole register could be dodged by setting high bits.
 */
#include "proc/box/helper/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

struct denied_call {
	const char *name;
	int error;
};

static const struct denied_call calls[] = {
	/* flags behind a pointer cannot be judged; libc falls back to clone */
	{"clone3", ENOSYS},
	/* keyrings are per uid, not per namespace */
	{"add_key", ENOSYS},
	{"keyctl", ENOSYS},
	{"request_key", ENOSYS},
	/* can open sockets of any family behind the filter's back */
	{"io_uring_enter", ENOSYS},
	{"io_uring_register", ENOSYS},
	{"io_uring_setup", ENOSYS},
	/* watching the shared read-only files tells what other programs open; callers fall back to polling */
	{"fanotify_init", ENOSYS},
	{"inotify_add_watch", ENOSYS},
	{"inotify_init", ENOSYS},
	{"inotify_init1", ENOSYS},
	/* locks on the shared read-only files would be a channel between slots */
	{"flock", EPERM},
	/* namespaces and mounts */
	{"chroot", EPERM},
	{"fsconfig", EPERM},
	{"fsmount", EPERM},
	{"fsopen", EPERM},
	{"fspick", EPERM},
	{"mount", EPERM},
	{"mount_setattr", EPERM},
	{"move_mount", EPERM},
	{"open_tree", EPERM},
	{"pivot_root", EPERM},
	{"setns", EPERM},
	{"umount", EPERM},
	{"umount2", EPERM},
	{"unshare", EPERM},
	/* other processes */
	{"kcmp", EPERM},
	{"move_pages", EPERM},
	{"pidfd_getfd", EPERM},
	{"process_vm_readv", EPERM},
	{"process_vm_writev", EPERM},
	{"ptrace", EPERM},
	/* wide kernel surface */
	{"acct", EPERM},
	{"bpf", EPERM},
	{"lookup_dcookie", EPERM},
	{"memfd_secret", ENOSYS},
	{"modify_ldt", EPERM},
	{"name_to_handle_at", EPERM},
	{"nfsservctl", ENOSYS},
	{"open_by_handle_at", EPERM},
	{"perf_event_open", EPERM},
	{"quotactl", EPERM},
	{"quotactl_fd", EPERM},
	{"userfaultfd", EPERM},
	{"uselib", ENOSYS},
	{"vm86", ENOSYS},
	{"vm86old", ENOSYS},
	/* the machine */
	{"adjtimex", EPERM},
	{"clock_adjtime", EPERM},
	{"clock_settime", EPERM},
	{"delete_module", EPERM},
	{"finit_module", EPERM},
	{"init_module", EPERM},
	{"ioperm", EPERM},
	{"iopl", EPERM},
	{"kexec_file_load", EPERM},
	{"kexec_load", EPERM},
	{"reboot", EPERM},
	{"sethostname", EPERM},
	{"setdomainname", EPERM},
	{"settimeofday", EPERM},
	{"stime", EPERM},
	{"swapoff", EPERM},
	{"swapon", EPERM},
	{"syslog", EPERM},
	{"vhangup", EPERM},
};

/* Without control groups. */
static const struct denied_call polled_calls[] = {
	{"memfd_create", ENOSYS},
	{"msgget", ENOSYS},
	{"semget", ENOSYS},
	{"shmget", ENOSYS},
};

struct denied_number {
	int number;
	int error;
};

/* Younger than the library's tables; numbers since 5.1 are the same on all architectures. */
static const struct denied_number numbers[] = {
	{457, EPERM}, /* statmount */
	{458, EPERM}, /* listmount */
	{459, EPERM}, /* lsm_get_self_attr */
	{460, EPERM}, /* lsm_set_self_attr */
	{467, EPERM}, /* open_tree_attr */
};

struct denied_argument {
	const char *name;
	int error;
	struct scmp_arg_cmp when;
	struct scmp_arg_cmp also; /* zero: no second condition */
};

#define LOW32 UINT64_C(0xffffffff)
#define FLAG(index, bit)                                                                           \
	{                                                                                          \
		(index), SCMP_CMP_MASKED_EQ, (bit), (bit)                                          \
	}
#define IS(index, value)                                                                           \
	{                                                                                          \
		(index), SCMP_CMP_MASKED_EQ, LOW32, (value)                                        \
	}

/* The kernel's SOCK_TYPE_MASK: flags are above it. */
#define TYPE_IS(value)                                                                             \
	{                                                                                          \
		1, SCMP_CMP_MASKED_EQ, 0xf, (value)                                                \
	}

static const struct denied_argument arguments[] = {
	{"clone", EPERM, FLAG(0, CLONE_NEWNS)},
	{"clone", EPERM, FLAG(0, CLONE_NEWCGROUP)},
	{"clone", EPERM, FLAG(0, CLONE_NEWUTS)},
	{"clone", EPERM, FLAG(0, CLONE_NEWIPC)},
	{"clone", EPERM, FLAG(0, CLONE_NEWUSER)},
	{"clone", EPERM, FLAG(0, CLONE_NEWPID)},
	{"clone", EPERM, FLAG(0, CLONE_NEWNET)},
	/* locks and leases on shared read-only files, as flock above */
	{"fcntl", EPERM, IS(1, F_GETLK)},
	{"fcntl", EPERM, IS(1, F_SETLK)},
	{"fcntl", EPERM, IS(1, F_SETLKW)},
	{"fcntl", EPERM, IS(1, F_OFD_GETLK)},
	{"fcntl", EPERM, IS(1, F_OFD_SETLK)},
	{"fcntl", EPERM, IS(1, F_OFD_SETLKW)},
	{"fcntl", EPERM, IS(1, F_SETLEASE)},
	{"fcntl", EPERM, IS(1, F_NOTIFY)},
	/* pid 1 of the slot: signals do nothing to it, but with an ordinary user's single uid the rest would be allowed */
	{"ioprio_set", EPERM, IS(0, 1), IS(1, 1)}, /* IOPRIO_WHO_PROCESS */
	{"ioprio_set", EPERM, IS(0, 3)},           /* IOPRIO_WHO_USER */
	{"kill", EPERM, IS(0, 1)},
	{"pidfd_open", EPERM, IS(0, 1)},
	{"prlimit64", EPERM, IS(0, 1)},
	{"sched_setaffinity", EPERM, IS(0, 1)},
	{"sched_setattr", EPERM, IS(0, 1)},
	{"sched_setparam", EPERM, IS(0, 1)},
	{"sched_setscheduler", EPERM, IS(0, 1)},
	{"setpriority", EPERM, IS(0, PRIO_PROCESS), IS(1, 1)},
	{"setpriority", EPERM, IS(0, PRIO_USER)},
	{"tgkill", EPERM, IS(0, 1)},
	{"tkill", EPERM, IS(0, 1)},
	/* huge pages are the machine's, charged to no memory limit of ours */
	{"memfd_create", EINVAL, FLAG(1, MFD_HUGETLB)},
	{"mmap", ENOMEM, FLAG(3, MAP_HUGETLB)},
	{"shmget", EPERM, FLAG(2, SHM_HUGETLB)},
	/* typing into somebody's terminal */
	{"ioctl", EPERM, IS(1, TIOCSTI)},
	{"ioctl", EPERM, IS(1, TIOCLINUX)},
	/* asking is harmless, changing turns address randomisation off */
	{"personality", EPERM, {0, SCMP_CMP_NE, LOW32, 0}},
	/* only UNIX and INET (which goes nowhere here); vsock, netlink and the rest are no program's business */
	{"socket", EAFNOSUPPORT, {0, SCMP_CMP_GT, AF_INET6, 0}},
	{"socket", EAFNOSUPPORT, IS(0, AF_UNSPEC)},
	{"socket", EAFNOSUPPORT, IS(0, AF_AX25)},
	{"socket", EAFNOSUPPORT, IS(0, AF_IPX)},
	{"socket", EAFNOSUPPORT, IS(0, AF_APPLETALK)},
	{"socket", EAFNOSUPPORT, IS(0, AF_NETROM)},
	{"socket", EAFNOSUPPORT, IS(0, AF_BRIDGE)},
	{"socket", EAFNOSUPPORT, IS(0, AF_ATMPVC)},
	{"socket", EAFNOSUPPORT, IS(0, AF_X25)},
	/* of these, streams and datagrams of the usual protocols: the kernel answers for others by loading their module */
	{"socket", EPROTONOSUPPORT, TYPE_IS(0)},
	{"socket", EPROTONOSUPPORT, TYPE_IS(SOCK_RAW)},
	{"socket", EPROTONOSUPPORT, FLAG(1, 4)}, /* 4 to 7: RDM, SEQPACKET, DCCP */
	{"socket", EPROTONOSUPPORT, FLAG(1, 8)}, /* 8 to 15: PACKET, and none yet */
	{"socket", EPROTONOSUPPORT, IS(2, IPPROTO_TCP), TYPE_IS(SOCK_DGRAM)},
	{"socket", EPROTONOSUPPORT, IS(2, IPPROTO_UDP), TYPE_IS(SOCK_STREAM)},
	{"socket", EPROTONOSUPPORT, IS(2, 1)}, /* every number but 0, TCP and UDP */
	{"socket", EPROTONOSUPPORT, IS(2, 2)},
	{"socket", EPROTONOSUPPORT, IS(2, 3)},
	{"socket", EPROTONOSUPPORT, IS(2, 4)},
	{"socket", EPROTONOSUPPORT, IS(2, 5)},
	{"socket", EPROTONOSUPPORT, {2, SCMP_CMP_MASKED_EQ, 0xfffffff8, 8}}, /* 8 to 15 */
	{"socket", EPROTONOSUPPORT, IS(2, 7)},
	{"socket", EPROTONOSUPPORT, IS(2, 16)},
	{"socket", EPROTONOSUPPORT, {2, SCMP_CMP_GT, IPPROTO_UDP, 0}},
	{"socketpair", EAFNOSUPPORT, {0, SCMP_CMP_NE, AF_UNIX, 0}},
};

static int add_argument_rule(scmp_filter_ctx filter, const struct denied_argument *denied)
{
	const struct scmp_arg_cmp when[] = {denied->when, denied->also};
	int number = seccomp_syscall_resolve_name(denied->name);

	if (number < 0) /* not on this architecture */
		return 0;
	return seccomp_rule_add_array(filter, SCMP_ACT_ERRNO((unsigned)denied->error), number,
		denied->also.op ? 2 : 1, when);
}

static int add_calls(scmp_filter_ctx filter, const struct denied_call *denied, size_t n)
{
	int error = 0;

	for (size_t i = 0; i < n && error == 0; i++) {
		int number = seccomp_syscall_resolve_name(denied[i].name);
		if (number >= 0) /* negative: not on this architecture */
			error = seccomp_rule_add(
				filter, SCMP_ACT_ERRNO((unsigned)denied[i].error), number, 0);
	}
	return error;
}

static int add_rules(bool polled, scmp_filter_ctx filter)
{
	int error = add_calls(filter, calls, ARRAY_SIZE(calls));

	if (error == 0 && polled)
		error = add_calls(filter, polled_calls, ARRAY_SIZE(polled_calls));
	for (size_t i = 0; i < ARRAY_SIZE(numbers) && error == 0; i++)
		error = seccomp_rule_add(
			filter, SCMP_ACT_ERRNO((unsigned)numbers[i].error), numbers[i].number, 0);
	for (size_t i = 0; i < ARRAY_SIZE(arguments) && error == 0; i++)
		error = add_argument_rule(filter, &arguments[i]);
	return error;
}

/* The library writes programs to descriptors only. */
static int export_program(scmp_filter_ctx filter, struct sock_fprog *out)
{
	int fd = memfd_create("filter", MFD_CLOEXEC);
	struct stat st;
	int error;

	if (fd < 0)
		return -errno;
	error = seccomp_export_bpf(filter, fd);
	if (error == 0 && fstat(fd, &st) < 0)
		error = -errno;
	if (error == 0) {
		out->len = (unsigned short)((size_t)st.st_size / sizeof(struct sock_filter));
		out->filter = malloc((size_t)st.st_size);
		if (!out->filter)
			error = -ENOMEM;
		else if (pread(fd, out->filter, (size_t)st.st_size, 0) != st.st_size)
			error = -EIO;
	}
	close(fd);
	return error;
}

int filter_build(bool polled, struct sock_fprog *out)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	int error;

	if (!filter)
		return -ENOMEM;
	error = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (error == 0)
		error = add_rules(polled, filter);
	if (error == 0)
		error = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (error == 0)
		error = export_program(filter, out);
	seccomp_release(filter);
	return error;
}
