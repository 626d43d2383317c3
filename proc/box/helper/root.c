/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   /            tmpfs, read-only, shared by all slots (nothing in it can be written)
 *     usr        the host's, read-only nosuid nodev, with every mount below it
 *     bin sbin lib lib32 lib64 libx32    as on the host: links into usr, or directories treated like usr
 *     etc        only what compilers and interpreters read, and stubs of passwd, group and hosts
 *     dev        null zero full random urandom, links into /proc/self/fd
 *     empty      what masks directories
 *     proc w tmp dev/shm                 empty; each slot mounts its own
 *
 * In each slot: proc of its own pid namespace (hidepid=2, read-only, parts masked), and one tmpfs whose three
 * subdirectories are bound to /w, /tmp and /dev/shm, so one size and one count of inodes bound everything
 * writable.
 *
 * Nothing of /sys is there: no control groups can be seen.
 *
 * A bind of a mount that was copied from the host's namespace is not locked itself, so an ordinary user's slot can take the host's /proc
 * away, which nobody in it has seen by then.
 */
#include "proc/box/helper/root.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proc/box/helper/claim.h"

#define BASE CLAIM_DIR "/root"
#define SYSTEM_ATTR (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define DEVICE_ATTR (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)
#define QUIET (MS_NOSUID | MS_NODEV)
#define WRITABLE_OPTIONS "size=64k,nr_inodes=16,mode=755"

static int failed(char why[ROOT_WHY_MAX], const char *what, const char *name)
{
	int error = -errno;

	snprintf(why, ROOT_WHY_MAX, "cannot %s %.120s: %s", what, name, strerror(-error));
	return error;
}

/* --- the shared tree ---------------------------------------------------------------------------------- */

/* Binds a directory or file of the host, with what is mounted below it, to `to` (relative to our directory). */
static int bind_tree(const char *from, const char *to, uint64_t attr, char why[ROOT_WHY_MAX])
{
	struct mount_attr set = {.attr_set = attr};
	int error = 0;
	int fd = open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);

	if (fd < 0)
		return failed(why, "open", from);
	if (mount_setattr(fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &set, sizeof(set)) < 0)
		error = failed(why, "restrict", from);
	else if (move_mount(fd, "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		error = failed(why, "bind", from);
	close(fd);
	return error;
}

static int make_file(const char *name, const char *text, char why[ROOT_WHY_MAX])
{
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	size_t n = strlen(text);

	if (fd < 0 || write(fd, text, n) != (ssize_t)n) {
		int error = failed(why, "write", name);
		if (fd >= 0)
			close(fd);
		return error;
	}
	close(fd);
	return 0;
}

/* `name` as the host has it under /: a link is copied, a directory or file bound; absent is fine. */
static int mirror(const char *name, char why[ROOT_WHY_MAX])
{
	char from[300], target[300];
	struct stat st;
	ssize_t n;

	snprintf(from, sizeof(from), "/%s", name);
	if (lstat(from, &st) < 0)
		return errno == ENOENT ? 0 : failed(why, "look at", from);
	if (S_ISLNK(st.st_mode)) {
		n = readlink(from, target, sizeof(target) - 1);
		if (n < 0)
			return failed(why, "read link", from);
		target[n] = '\0';
		return symlink(target, name) < 0 ? failed(why, "link", name) : 0;
	}
	if (S_ISDIR(st.st_mode)) {
		if (mkdir(name, 0755) < 0)
			return failed(why, "make", name);
	} else {
		int error = make_file(name, "", why);
		if (error < 0)
			return error;
	}
	return bind_tree(from, name, SYSTEM_ATTR, why);
}

static const char *const system_names[] = {
	"usr",
	"bin",
	"sbin",
	"lib",
	"lib32",
	"lib64",
	"libx32",
	/* what the dynamic linker and the interpreters of distributions read at start */
	"etc/alternatives",
	"etc/ld.so.cache",
	"etc/ld.so.conf",
	"etc/ld.so.conf.d",
	"etc/fpc.cfg",
	"etc/ghc",
	"etc/mono",
	"etc/perl",
	"etc/php", /* which extensions the command line loads */
	"etc/python3",
};

/* Names in /etc that hold a version: Java's directory; the file that fpc.cfg is a link to, through alternatives. */
static const char *const versioned[] = {"fpc-", "java"};

static const char *const directories[] = {"etc", "dev", "dev/shm", "empty", "proc", "w", "tmp"};
static const char *const devices[] = {"null", "zero", "full", "random", "urandom"};

static const char *const links[][2] = {
	{"/proc/self/fd", "dev/fd"},
	{"/proc/self/fd/0", "dev/stdin"},
	{"/proc/self/fd/1", "dev/stdout"},
	{"/proc/self/fd/2", "dev/stderr"},
};

static bool is_versioned(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(versioned); i++) {
		if (strncmp(name, versioned[i], strlen(versioned[i])) == 0)
			return true;
	}
	return false;
}

static int mirror_versioned(char why[ROOT_WHY_MAX])
{
	DIR *dir = opendir("/etc");
	struct dirent *entry;
	int error = 0;

	if (!dir)
		return errno == ENOENT ? 0 : failed(why, "list", "/etc");
	while (error == 0 && (entry = readdir(dir))) {
		char name[300];
		if (!is_versioned(entry->d_name))
			continue;
		snprintf(name, sizeof(name), "etc/%s", entry->d_name);
		error = mirror(name, why);
	}
	closedir(dir);
	return error;
}

static int make_passwd(uid_t uid_base, unsigned n, char why[ROOT_WHY_MAX])
{
	FILE *passwd = fopen("etc/passwd", "wxe");
	FILE *group = fopen("etc/group", "wxe");
	bool fine = passwd && group;

	if (fine) {
		fprintf(passwd, "root:x:0:0:root:/:/bin/sh\n");
		fprintf(group, "root:x:0:\n");
	}
	for (unsigned i = 0; i < n && fine; i++) {
		fprintf(passwd, "box:x:%u:%u::/w:/bin/sh\n", uid_base + i, uid_base + i);
		fprintf(group, "box:x:%u:\n", uid_base + i);
	}
	if (passwd)
		fine = fclose(passwd) == 0 && fine;
	if (group)
		fine = fclose(group) == 0 && fine;
	return fine ? 0 : failed(why, "write", "etc/passwd");
}

static int make_devices(char why[ROOT_WHY_MAX])
{
	int error = 0;

	for (size_t i = 0; i < ARRAY_SIZE(devices) && error == 0; i++) {
		char from[32];
		snprintf(from, sizeof(from), "/dev/%s", devices[i]);
		error = make_file(from + 1, "", why);
		if (error == 0)
			error = bind_tree(from, from + 1, DEVICE_ATTR, why);
	}
	for (size_t i = 0; i < ARRAY_SIZE(links) && error == 0; i++) {
		if (symlink(links[i][0], links[i][1]) < 0)
			error = failed(why, "link", links[i][1]);
	}
	return error;
}

static int build(bool with_proc, uid_t uid_base, unsigned n, char why[ROOT_WHY_MAX])
{
	int error = 0;

	for (size_t i = 0; i < ARRAY_SIZE(directories) && error == 0; i++) {
		if (mkdir(directories[i], 0755) < 0)
			error = failed(why, "make", directories[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(system_names) && error == 0; i++)
		error = mirror(system_names[i], why);
	if (error == 0)
		error = mirror_versioned(why);
	if (error == 0)
		error = make_passwd(uid_base, n, why);
	if (error == 0)
		error = make_file("etc/hosts", "127.0.0.1 localhost\n", why);
	if (error == 0)
		error = make_devices(why);
	if (error == 0 && with_proc)
		error = bind_tree("/proc", "proc", 0, why);
	return error;
}

/* Where the tree is built; only we see it there. */
static int enter_base(const char *base, char why[ROOT_WHY_MAX])
{
	if (mount("box", base, "tmpfs", QUIET, "size=1m,nr_inodes=1024,mode=755") < 0)
		return failed(why, "mount a tmpfs on", base);
	return chdir(base) < 0 ? failed(why, "enter", base) : 0;
}

int root_enter(const char *base, bool with_proc, uid_t uid_base, unsigned n, char why[ROOT_WHY_MAX])
{
	int error;

	umask(022);
	if (unshare(CLONE_NEWNS) < 0)
		return failed(why, "unshare", "the mount namespace (run as root)");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return failed(why, "make private", "/");
	if (!base && mkdir(BASE, 0700) < 0 && errno != EEXIST)
		return failed(why, "make", BASE);
	error = enter_base(base ? base : BASE, why);
	if (error == 0)
		error = build(with_proc, uid_base, n, why);
	if (error < 0)
		return error;
	/* Puts the old root on top of the new one, where it is taken off. */
	if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return failed(why, "pivot to", "the new root");
	if (mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | QUIET, NULL) < 0)
		return failed(why, "make read-only", "/");
	return 0;
}

/* --- a slot's own mounts ------------------------------------------------------------------------------ */

static const char *const masked[] = {
	"/proc/acpi",
	"/proc/fs",
	"/proc/irq",
	"/proc/kallsyms",
	"/proc/kcore",
	"/proc/keys",
	"/proc/key-users",
	"/proc/kmsg",
	"/proc/kpagecgroup",
	"/proc/kpagecount",
	"/proc/kpageflags",
	"/proc/latency_stats",
	"/proc/modules",
	"/proc/sched_debug",
	"/proc/scsi",
	"/proc/slabinfo",
	"/proc/sysrq-trigger",
	"/proc/timer_list",
	"/proc/timer_stats",
	"/proc/vmallocinfo",
};

static int mask(const char *name, char why[ROOT_WHY_MAX])
{
	struct stat st;
	const char *with;

	if (lstat(name, &st) < 0)
		return errno == ENOENT ? 0 : failed(why, "look at", name);
	with = S_ISDIR(st.st_mode) ? "/empty" : "/dev/null";
	return mount(with, name, NULL, MS_BIND, NULL) < 0 ? failed(why, "mask", name) : 0;
}

static int mount_fresh_proc(const char *at, char why[ROOT_WHY_MAX])
{
	if (mount("proc", at, "proc", QUIET | MS_NOEXEC, "hidepid=2") == 0)
		return 0;
	if (errno != EPERM)
		return failed(why, "mount proc on", at);
	return failed(why,
		"mount a proc of its own (the one outside must have nothing mounted over it) on",
		at);
}

/* The host's is what allows ours; then it goes. */
static int replace_proc(char why[ROOT_WHY_MAX])
{
	int error = mount_fresh_proc("/empty", why);

	if (error < 0)
		return error;
	if (umount2("/proc", MNT_DETACH) < 0)
		return failed(why, "unmount", "the host's /proc");
	return mount("/empty", "/proc", NULL, MS_MOVE, NULL) < 0 ? failed(why, "move", "/proc") : 0;
}

static int mount_proc(bool with_proc, int *proc_fd, char why[ROOT_WHY_MAX])
{
	int error = with_proc ? replace_proc(why) : mount_fresh_proc("/proc", why);

	if (error < 0)
		return error;
	*proc_fd = open_tree(AT_FDCWD, "/proc", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (*proc_fd < 0)
		return failed(why, "open", "/proc");
	if (mount(NULL, "/proc", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | QUIET | MS_NOEXEC, NULL) <
		0)
		return failed(why, "make read-only", "/proc");
	for (size_t i = 0; i < ARRAY_SIZE(masked) && error == 0; i++)
		error = mask(masked[i], why);
	return error;
}

/* {directory in the writable space, where it is bound, its mode}; the last covers the space itself. */
static const struct {
	const char *in, *at;
	mode_t mode;
} writable[] = {
	{"/tmp/w", "/w", 0755},
	{"/tmp/shm", "/dev/shm", 01777},
	{"/tmp/tmp", "/tmp", 01777},
};

static int mount_writable(char why[ROOT_WHY_MAX])
{
	/* Large folios halve the cost of laying out a program; kernels without them refuse the option. */
	if (mount("w", "/tmp", "tmpfs", QUIET, WRITABLE_OPTIONS ",huge=within_size") < 0 &&
		mount("w", "/tmp", "tmpfs", QUIET, WRITABLE_OPTIONS) < 0)
		return failed(why, "mount a tmpfs on", "/tmp");
	for (size_t i = 0; i < ARRAY_SIZE(writable); i++) {
		if (mkdir(writable[i].in, 0755) < 0 || chmod(writable[i].in, writable[i].mode) < 0)
			return failed(why, "make", writable[i].in);
	}
	for (size_t i = 0; i < ARRAY_SIZE(writable); i++) {
		if (mount(writable[i].in, writable[i].at, NULL, MS_BIND, NULL) < 0)
			return failed(why, "bind", writable[i].at);
	}
	return 0;
}

int root_finish_slot(bool with_proc, int *proc_fd, char why[ROOT_WHY_MAX])
{
	int error;

	umask(022);
	if (sethostname("box", 3) < 0 || setdomainname("", 0) < 0)
		return failed(why, "set", "the host name");
	error = mount_proc(with_proc, proc_fd, why);
	if (error == 0)
		error = mount_writable(why);
	return error;
}

int root_resize(long long bytes, long inodes)
{
	char options[80];

	snprintf(options, sizeof(options), "size=%lld,nr_inodes=%ld", bytes, inodes);
	return mount(NULL, "/w", NULL, MS_REMOUNT | QUIET, options) < 0 ? -errno : 0;
}
