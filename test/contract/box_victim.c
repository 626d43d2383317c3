/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hostile program of test_box.c: compiled by the test at its start, statically, and brought into the box as a file.
 * argv[1] names what to do; what is seen is printed for the test to compare. An errno is printed by name.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void say(const char *what, long result)
{
	printf("%s %s\n", what, result < 0 ? strerrorname_np(errno) : "ok");
}

static int do_exit(char **argv)
{
	return atoi(argv[0]);
}

static int do_signal(char **argv)
{
	raise(atoi(argv[0]));
	pause();
	return 0;
}

static int do_environment(char **argv)
{
	for (char **e = environ; *e; e++)
		puts(*e);
	for (; *argv; argv++)
		printf("arg %s\n", *argv);
	return 0;
}

/* Exactly n bytes to stdout or stderr, in odd pieces. */
static int do_print(char **argv)
{
	static char piece[7777];
	int fd = atoi(argv[0]);
	long long left = atoll(argv[1]);

	memset(piece, 'x', sizeof(piece));
	while (left > 0) {
		ssize_t n = write(
			fd, piece, left < (long long)sizeof(piece) ? (size_t)left : sizeof(piece));
		if (n < 0)
			return 9;
		left -= n;
	}
	return 0;
}

static int do_cat(char **argv)
{
	char buf[4096];
	ssize_t n;

	while ((n = read(0, buf, sizeof(buf))) > 0) {
		if (write(1, buf, (size_t)n) != n)
			return 1;
	}
	return n < 0;
}

static int do_stdin_attack(char **argv)
{
	int fd = open("/proc/self/fd/0", O_RDWR);

	say("reopen", fd);
	if (fd >= 0) {
		say("write", write(fd, "X", 1));
		say("truncate", ftruncate(fd, 1));
	}
	say("write0", write(0, "X", 1));
	return 0;
}

static int do_spin(char **argv)
{
	for (volatile uint64_t i = 0;; i++)
		continue;
}

static void *spin_thread(void *arg)
{
	for (volatile uint64_t i = 0;; i++)
		continue;
	return NULL;
}

static int do_spin_threads(char **argv)
{
	pthread_t t;

	for (int i = 0; i < 3; i++)
		pthread_create(&t, NULL, spin_thread, NULL);
	spin_thread(NULL);
	return 0;
}

static int do_sleep(char **argv)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	puts("sleeping");
	fflush(stdout);
	for (;;)
		pause();
}

static int do_memory(char **argv)
{
	for (;;) {
		char *p = malloc(1 << 20);
		if (!p)
			return 3;
		memset(p, 1, 1 << 20);
	}
}

static int do_touch_memory(char **argv)
{
	size_t n = (size_t)atoll(argv[0]);
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return 3;
	for (size_t i = 0; i < n; i += 4096)
		p[i] = 1;
	return 0;
}

/* A child dies of memory while the main program goes on happily. */
static int do_memory_in_child(char **argv)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(do_memory(argv));
	waitpid(pid, NULL, 0);
	return 0;
}

static int do_fork_bomb(char **argv)
{
	for (;;) {
		if (fork() == 0)
			setsid();
	}
}

static int do_fork_some(char **argv)
{
	int n = 0;

	while (fork() >= 0) {
		n++;
		if (getppid() != 1 && n > 1000)
			break;
		if (n == 1)
			continue;
	}
	_exit(errno == EAGAIN ? 0 : 1);
}

/* As many as it may, all there at the same time for a while. */
static int do_fork_hold(char **argv)
{
	pid_t child;

	while ((child = fork()) > 0)
		continue;
	if (child == 0)
		pause();
	usleep(200000);
	return errno == EAGAIN ? 0 : 1;
}

/* What pid 1 would suffer by from somebody of the same uid. */
static int do_harm_pid1(char **argv)
{
	struct rlimit limit = {0, 0};
	struct sched_param idle = {0};
	unsigned long cpus = 1;

	if (getuid() == 0 || getpid() >= 1000) {
		printf("not isolated: nothing is done from here\n");
		return 9;
	}
	say("prlimit", prlimit(1, RLIMIT_CPU, &limit, NULL));
	say("prlimit-high", syscall(SYS_prlimit64, 0x100000001ll, RLIMIT_CPU, &limit, NULL));
	say("affinity", syscall(SYS_sched_setaffinity, 1, sizeof(cpus), &cpus));
	say("scheduler", sched_setscheduler(1, SCHED_IDLE, &idle));
	say("nice", setpriority(PRIO_PROCESS, 1, 19));
	say("nice-all", setpriority(PRIO_USER, getuid(), 19));
	say("ionice", syscall(SYS_ioprio_set, 1, 1, 0x6000));
	say("pidfd", syscall(SYS_pidfd_open, 1, 0));
	say("tgkill", syscall(SYS_tgkill, 1, 1, SIGKILL));
	say("own-nice", setpriority(PRIO_PROCESS, 0, 1));
	say("own-limit", prlimit(0, RLIMIT_NOFILE, NULL, &limit));
	return 0;
}

static void burn(int ms)
{
	struct timespec t;

	do
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	while (t.tv_sec * 1000 + t.tv_nsec / 1000000 < ms);
}

/* Children that are waited for by nobody: the kernel adds their time to no parent's. */
static int do_lose_children(char **argv)
{
	signal(SIGCHLD, SIG_IGN);
	for (int i = atoi(argv[0]); i > 0; i--) {
		pid_t child = fork();
		if (child == 0) {
			burn(60);
			_exit(0);
		}
		while (kill(child, 0) == 0)
			usleep(1000);
	}
	return 0;
}

/* Prints what the kernel says was used. */
static int do_short_children(char **argv)
{
	struct rusage self, kids;

	for (int i = atoi(argv[0]); i > 0; i--) {
		if (fork() == 0) {
			burn(3);
			_exit(0);
		}
		wait(NULL);
	}
	getrusage(RUSAGE_SELF, &self);
	getrusage(RUSAGE_CHILDREN, &kids);
	printf("%lld\n", (long long)(self.ru_utime.tv_sec + self.ru_stime.tv_sec +
				     kids.ru_utime.tv_sec + kids.ru_stime.tv_sec) *
					 1000000 +
				 self.ru_utime.tv_usec + self.ru_stime.tv_usec +
				 kids.ru_utime.tv_usec + kids.ru_stime.tv_usec);
	return 0;
}

/* Four children that only look at what they have got. */
static int do_share_memory(char **argv)
{
	int status = do_touch_memory(argv);

	for (int i = 0; i < 4; i++) {
		if (fork() == 0) {
			usleep(200000);
			_exit(0);
		}
	}
	while (wait(NULL) > 0)
		continue;
	return status;
}

/* Main ends at once; what it left behind would live for ever and spin. */
static int do_daemon(char **argv)
{
	int beat[2];
	char byte;

	if (pipe(beat) < 0)
		return 1;
	if (fork() == 0) {
		setsid();
		if (fork() == 0) {
			signal(SIGTERM, SIG_IGN);
			signal(SIGHUP, SIG_IGN);
			for (;;) {
				if (write(1, "h", 1) < 0 || write(beat[1], "h", 1) < 0)
					pause();
				usleep(1000);
			}
		}
		_exit(0);
	}
	wait(NULL);
	return read(beat[0], &byte, 1) == 1 ? 0 : 2;
}

static int do_network(char **argv)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(53)};
	static const struct {
		const char *name;
		int family;
	} families[] = {{"netlink", AF_NETLINK}, {"packet", AF_PACKET}, {"vsock", AF_VSOCK},
		{"alg", AF_ALG}, {"x25", AF_X25}, {"bluetooth", AF_BLUETOOTH}};
	uint32_t addresses[] = {0x7f000001, 0xa9fea9fe, 0x08080808};

	for (int i = 0; i < 3; i++) {
		int s = socket(AF_INET, SOCK_STREAM, 0);
		to.sin_addr.s_addr = htonl(addresses[i]);
		say("tcp", connect(s, (struct sockaddr *)&to, sizeof(to)));
		s = socket(AF_INET, SOCK_DGRAM, 0);
		say("udp", connect(s, (struct sockaddr *)&to, sizeof(to)));
	}
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
		say(families[i].name, socket(families[i].family, SOCK_DGRAM, 0));
	/* high bits of an int argument are not looked at by the kernel */
	say("vsock-high", syscall(SYS_socket, 0x100000000ll | AF_VSOCK, SOCK_DGRAM, 0));
	say("netlink-high", syscall(SYS_socket, 0x100000000ll | AF_NETLINK, SOCK_DGRAM, 0));
	return 0;
}

static int do_open(char **argv)
{
	for (; *argv; argv++)
		say(*argv, open(*argv, O_RDONLY | O_NONBLOCK));
	return 0;
}

static int do_create(char **argv)
{
	for (; *argv; argv++)
		say(*argv, open(*argv, O_WRONLY | O_CREAT | O_EXCL, 0644));
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int do_list(char **argv)
{
	char *names[1000];
	size_t n = 0;
	DIR *dir = opendir(argv[0]);
	struct dirent *e;

	if (!dir)
		return 1;
	while ((e = readdir(dir)) && n < 1000) {
		if (e->d_name[0] != '.')
			names[n++] = strdup(e->d_name);
	}
	qsort(names, n, sizeof(names[0]), compare_names);
	for (size_t i = 0; i < n; i++)
		puts(names[i]);
	return 0;
}

/* Processes that can be seen: by number only. */
static int do_pids(char **argv)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	int n = 0;

	while ((e = readdir(dir)))
		n += e->d_name[0] >= '0' && e->d_name[0] <= '9';
	printf("seen %d self %s\n", n, getpid() < 10 ? "small" : "large");
	if (getuid() == 0 || getpid() >= 1000) {
		printf("not isolated: no signals are sent from here\n");
		return 9;
	}
	say("kill1", kill(1, SIGKILL));
	say("killall", kill(-1, SIGKILL));
	say("stop1", kill(1, SIGSTOP));
	return 0;
}

static int do_fds(char **argv)
{
	for (int fd = 0; fd < 300; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			printf("%d\n", fd);
	}
	return 0;
}

static int do_ids(char **argv)
{
	uid_t u[3];
	gid_t g[3];

	getresuid(&u[0], &u[1], &u[2]);
	getresgid(&g[0], &g[1], &g[2]);
	printf("uid %s gid %s groups %d\n",
		u[0] > 65536 && u[0] == u[1] && u[1] == u[2] ? "own" : "bad",
		g[0] == u[0] && g[0] == g[1] && g[1] == g[2] ? "own" : "bad", getgroups(0, NULL));
	printf("nnp %d bounding %d dumpable %d session %s\n",
		prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_CAPBSET_READ, 21, 0, 0, 0),
		prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), getsid(0) == getpid() ? "own" : "bad");
	say("setuid", setuid(0));
	printf("still %s\n", getuid() == u[0] ? "own" : "bad");
	return 0;
}

static int do_denied(char **argv)
{
	char stack[4096];
	char c = 'x';

	say("unshare", unshare(CLONE_NEWUSER));
	say("clone", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
	say("clone3", syscall(SYS_clone3, stack, 64));
	say("setns", syscall(SYS_setns, 0, 0));
	say("mount", syscall(SYS_mount, "x", "/w", "tmpfs", 0, 0));
	say("fsopen", syscall(430, "tmpfs", 0));
	say("add_key", syscall(SYS_add_key, "user", "n", "v", 1, -4));
	say("keyctl", syscall(SYS_keyctl, 0, -4, 0, 0, 0));
	say("io_uring", syscall(425, 1, stack));
	say("bpf", syscall(SYS_bpf, 0, stack, 64));
	say("perf", syscall(SYS_perf_event_open, stack, 0, -1, -1, 0));
	say("userfaultfd", syscall(SYS_userfaultfd, 0));
	say("ptrace", ptrace(PTRACE_TRACEME, 0, 0, 0));
	say("vmread", syscall(SYS_process_vm_readv, 1, 0, 0, 0, 0, 0));
	say("handle", syscall(SYS_open_by_handle_at, -1, stack, 0));
	say("personality", syscall(SYS_personality, 0x0040000));
	say("statmount", syscall(457, stack, stack, 1, 0));
	say("tiocsti", ioctl(0, TIOCSTI, &c));
	say("tiocsti-high", syscall(SYS_ioctl, 0, 0x100000000ll | TIOCSTI, &c));
	say("kexec", syscall(SYS_kexec_load, 0, 0, 0, 0));
	say("inotify", syscall(SYS_inotify_init1, 0));
	say("inotify-watch", syscall(SYS_inotify_add_watch, 0, "/usr", 1));
	say("fanotify", syscall(SYS_fanotify_init, 0, 0));
	say("mmap-huge", (long)mmap(NULL, 2 << 20, PROT_READ,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0));
	say("memfd-huge", memfd_create("x", MFD_HUGETLB));
	say("shm-huge", shmget(IPC_PRIVATE, 2 << 20, SHM_HUGETLB | IPC_CREAT | 0600));
	return 0;
}

/* Locks on a file that all slots see. */
static int do_locks(char **argv)
{
	static const struct {
		const char *name;
		int command;
	} table[] = {{"getlk", F_GETLK}, {"setlk", F_SETLK}, {"setlkw", F_SETLKW},
		{"ofd-getlk", F_OFD_GETLK}, {"ofd-setlk", F_OFD_SETLK},
		{"ofd-setlkw", F_OFD_SETLKW}};
	int fd = open("/usr/bin/env", O_RDONLY);

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

		say(table[i].name, fcntl(fd, table[i].command, &lock));
	}
	say("setlk-high", syscall(SYS_fcntl, fd, 0x100000000ll | F_SETLK, 0));
	say("flock", flock(fd, LOCK_SH | LOCK_NB));
	say("lease", fcntl(fd, F_SETLEASE, F_RDLCK));
	say("notify", fcntl(fd, F_NOTIFY, 1));
	say("flags", fcntl(fd, F_GETFL));
	return 0;
}

/* Which sockets can be made: the letters of "family type protocol" of all that can. */
static int do_sockets(char **argv)
{
	static const int families[] = {AF_UNIX, AF_INET, AF_INET6};

	for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
		for (int type = 0; type < 16; type++) {
			for (int protocol = 0; protocol < 300; protocol++) {
				int fd = socket(families[f], type | SOCK_CLOEXEC, protocol);

				if (fd >= 0)
					printf("%d %d %d\n", families[f], type, protocol);
				else if (errno != EPROTONOSUPPORT)
					printf("%d %d %d %s\n", families[f], type, protocol,
						strerrorname_np(errno));
				close(fd);
			}
		}
	}
	say("nonblock", socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	say("protocol-high", syscall(SYS_socket, AF_INET, SOCK_STREAM, 0x100000000ll | 132));
	say("type-high", syscall(SYS_socket, AF_INET, 0x100000000ll | SOCK_SEQPACKET, 0));
	return 0;
}

/* The outputs by name; they can be written, and that is all. */
static int do_named_outputs(char **argv)
{
	static const char *const names[] = {"/dev/stdout", "/dev/stderr"};

	for (int i = 0; i < 2; i++) {
		int fd = open(names[i], O_WRONLY | O_APPEND);

		if (fd < 0 || write(fd, names[i], strlen(names[i])) < 0)
			say(names[i], -1);
		say("read", open(names[i], O_RDONLY | O_NONBLOCK));
	}
	return 0;
}

static int do_int80(char **argv)
{
#ifdef __x86_64__
	long result;
	__asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");
	printf("survived %ld\n", result);
#endif
	return 0;
}

static int do_x32(char **argv)
{
	printf("survived %ld\n", syscall(0x40000000 | 39));
	return 0;
}

static int do_leave_files(char **argv)
{
	int fd;

	fd = open("plain.txt", O_WRONLY | O_CREAT, 0644);
	if (write(fd, "plain\n", 6) != 6)
		return 1;
	mkdir("sub", 0755);
	fd = open("sub/tool", O_WRONLY | O_CREAT, 0755);
	if (write(fd, "tool\n", 5) != 5)
		return 1;
	fd = open("secret", O_WRONLY | O_CREAT, 0000);
	say("symlink", symlink("/etc/passwd", "link"));
	say("dirlink", symlink("/usr", "usr"));
	say("fifo", mkfifo("fifo", 0666));
	fd = open("linked", O_WRONLY | O_CREAT, 0644);
	say("hardlink", link("linked", "sub/linked2"));
	say("device", mknod("device", S_IFCHR | 0666, (1 << 8) | 3));
	say("socket", mknod("socket", S_IFSOCK | 0666, 0));
	say("usr-link", link("/usr/bin/env", "env"));
	return 0;
}

static int do_leave_sparse(char **argv)
{
	int fd = open("sparse", O_WRONLY | O_CREAT, 0644);

	return ftruncate(fd, atoll(argv[0])) < 0;
}

static int do_deep(char **argv)
{
	for (int i = 0; i < 40; i++) {
		if (mkdir("d", 0755) < 0 || chdir("d") < 0)
			return 1;
	}
	return 0;
}

static int do_change_artefact(char **argv)
{
	say("write", open("victim", O_WRONLY));
	say("chmod", chmod("victim", 0777));
	say("unlink", unlink("victim"));
	say("rename", rename("victim", "other"));
	say("own-file", open("mine", O_WRONLY | O_CREAT, 0644));
	say("data", open("data/in.txt", O_RDONLY));
	say("data-write", open("data/in.txt", O_WRONLY));
	say("data-new", open("data/new", O_WRONLY | O_CREAT, 0644));
	say("data-move", rename("data", "elsewhere"));
	return 0;
}

static int do_change_own(char **argv)
{
	say("append", open("data/in.txt", O_WRONLY | O_APPEND));
	say("new", open("data/new", O_WRONLY | O_CREAT, 0644));
	say("unlink", unlink("data/in.txt"));
	return 0;
}

static int do_big_file(char **argv)
{
	static char block[65536];
	long long left = atoll(argv[0]);
	int fd = open("big", O_WRONLY | O_CREAT, 0644);

	if (argv[1])
		signal(SIGXFSZ, SIG_IGN);
	while (left > 0) {
		ssize_t n = write(fd, block, sizeof(block));
		if (n < 0) {
			say("write", n);
			return 4;
		}
		left -= n;
	}
	return 0;
}

/* Many files of less than the limit each. */
static int do_fill_disk(char **argv)
{
	static char block[65536];
	char name[32];

	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "/tmp/f%d", i);
		int fd = open(name, O_WRONLY | O_CREAT, 0644);
		if (fd < 0 || write(fd, block, sizeof(block)) < 0) {
			say("full", -1);
			return 0;
		}
		close(fd);
	}
	return 1;
}

static int do_limits(char **argv)
{
	static const struct {
		const char *name;
		int resource;
	} table[] = {{"cpu", RLIMIT_CPU}, {"core", RLIMIT_CORE}, {"nofile", RLIMIT_NOFILE},
		{"fsize", RLIMIT_FSIZE}, {"stack", RLIMIT_STACK}};
	struct rlimit l;

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		getrlimit(table[i].resource, &l);
		printf("%s %lld %lld\n", table[i].name, (long long)l.rlim_cur,
			(long long)l.rlim_max);
	}
	return 0;
}

static int do_host(char **argv)
{
	char name[256];
	char cwd[256];
	FILE *f = fopen("/proc/self/oom_score_adj", "r");
	int adj = -1;

	gethostname(name, sizeof(name));
	printf("host %s cwd %s\n", name, getcwd(cwd, sizeof(cwd)));
	if (fscanf(f, "%d", &adj) == 1)
		printf("oom %d\n", adj);
	say("proc-write", open("/proc/self/oom_score_adj", O_WRONLY));
	say("environ1", open("/proc/1/environ", O_RDONLY));
	say("root1", open("/proc/1/root", O_RDONLY));
	say("root-write", open("/x", O_WRONLY | O_CREAT, 0644));
	say("usr-write", open("/usr/x", O_WRONLY | O_CREAT, 0644));
	say("null", open("/dev/null", O_RDWR));
	say("sys", open("/sys", O_RDONLY));
	return 0;
}

static int do_threads(char **argv)
{
	pthread_t t;
	void *result = (void *)1;

	if (pthread_create(&t, NULL, (void *(*)(void *))(void *)strdup, (void *)"thread") != 0)
		return 1;
	pthread_join(t, &result);
	puts(result);
	return 0;
}

static int do_close_all(char **argv)
{
	for (int fd = 0; fd < 10; fd++)
		close(fd);
	for (;;)
		pause();
}

static const struct {
	const char *name;
	int (*run)(char **argv);
} actions[] = {
	{"big-file", do_big_file},
	{"cat", do_cat},
	{"change-artefact", do_change_artefact},
	{"change-own", do_change_own},
	{"close-all", do_close_all},
	{"create", do_create},
	{"daemon", do_daemon},
	{"deep", do_deep},
	{"denied", do_denied},
	{"environment", do_environment},
	{"exit", do_exit},
	{"fds", do_fds},
	{"fill-disk", do_fill_disk},
	{"fork-bomb", do_fork_bomb},
	{"fork-hold", do_fork_hold},
	{"fork-some", do_fork_some},
	{"harm-pid1", do_harm_pid1},
	{"host", do_host},
	{"ids", do_ids},
	{"int80", do_int80},
	{"leave-files", do_leave_files},
	{"leave-sparse", do_leave_sparse},
	{"limits", do_limits},
	{"list", do_list},
	{"locks", do_locks},
	{"lose-children", do_lose_children},
	{"memory", do_memory},
	{"memory-in-child", do_memory_in_child},
	{"named-outputs", do_named_outputs},
	{"network", do_network},
	{"open", do_open},
	{"pids", do_pids},
	{"print", do_print},
	{"share-memory", do_share_memory},
	{"short-children", do_short_children},
	{"signal", do_signal},
	{"sockets", do_sockets},
	{"sleep", do_sleep},
	{"spin", do_spin},
	{"spin-threads", do_spin_threads},
	{"stdin-attack", do_stdin_attack},
	{"threads", do_threads},
	{"touch-memory", do_touch_memory},
	{"x32", do_x32},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(actions) / sizeof(actions[0]); i++) {
		if (strcmp(actions[i].name, argv[1]) == 0)
			return actions[i].run(argv + 2);
	}
	return 99;
}
