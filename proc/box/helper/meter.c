/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation.
 *
 * CPU time. Of a living process the kernel tells the exact time of its threads (its CPU clock), and in clock ticks that of the children
 * it has waited for; of the dead we get exactly what pid 1 has reaped, itself or through those it reaped:
 *
 *     RUSAGE_CHILDREN + sum over the living (clock + children)  +  what was lost
 *
 * Lost is the time of children nobody waits for (SIGCHLD ignored): the kernel adds it to no parent. So what a process had when it was last
 * seen is remembered, and when it has gone and no parent has got as much back, the difference counts. A tick is 10 ms, so less than one a
 * process is not believed: the sum errs on the program's side, and is exact at the end for whoever waits for his children.
 *
 * Memory. The anonymous and shared memory, page tables and swap of every process, and what has been written to the slot's file systems.
 * Pages shared after fork() would count once a process: when the plain sum is over the limit the proportional one decides,
 * which costs the kernel a walk through the page tables. The peak is the largest sum seen or, for a program too short to be seen, what the
 * kernel remembers of the largest process, less the file pages.
 *
 * How often. Memory cannot grow faster than FASTEST, CPU time not faster than all CPUs: that gives the time until a limit can be reached,
 * kept between LOOK_MIN and LOOK_MAX; and never more than one part in COST of the time is spent on looking.
 *
 * What nobody sees here: shared memory that no process maps any more, kernel memory other than page tables, and forks that were refused (only
 * that all allowed processes were there at once). The first is why the filter refuses memfd_create and System V memory. A shared mapping of no
 * file, dropped by madvise or unmapped but for a page, cannot be refused without refusing /dev/zero and no file can be asked for its
 * size: the machine's OOM killer, which takes our programs first, is what is left.
 */
#include "proc/box/helper/meter.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MIN_US 1000
#define LOOK_MAX_US 10000
#define COST 8
#define FASTEST_BYTES_US 4096 /* 4 GB/s, more than a core can touch */
#define KIB 1024

/* --- reading ------------------------------------------------------------------------------------------ */

static bool read_file(int dir, const char *name, char *out, size_t size)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

	if (fd >= 0)
		close(fd);
	out[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* "Key:  N kB" in a text of lines; 0 when it is not there. */
static int64_t field(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? strtoll(at + strlen(key), NULL, 10) : 0;
}

/* MAKE_PROCESS_CPUCLOCK of the kernel; libc's function asks for more than we need. */
static int64_t process_clock_us(pid_t pid)
{
	const unsigned sched = 2;
	struct timespec t;

	if (clock_gettime((clockid_t)(~(unsigned)pid << 3 | sched), &t) < 0)
		return -1;
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int64_t ticks_us(long long ticks)
{
	return (int64_t)(ticks * 1000000 / sysconf(_SC_CLK_TCK));
}

static bool read_cpu(int dir, struct meter_process *p)
{
	char name[32], text[1024], *rest;
	long long own[2], kids[2];

	snprintf(name, sizeof(name), "%d/stat", p->pid);
	if (!read_file(dir, name, text, sizeof(text)) || !(rest = strrchr(text, ')')))
		return false;
	if (sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld %lld %lld",
		    &own[0], &own[1], &kids[0], &kids[1]) != 4)
		return false;
	p->kids_us = ticks_us(kids[0] + kids[1]);
	p->own_us = process_clock_us(p->pid);
	if (p->own_us < 0)
		p->own_us = ticks_us(own[0] + own[1]);
	return true;
}

struct memory {
	int64_t bytes;
	int64_t file_bytes;
	int64_t threads;
};

static void add_memory(int dir, pid_t pid, struct memory *sum)
{
	char name[32], text[4096];
	int64_t file;

	snprintf(name, sizeof(name), "%d/status", pid);
	if (!read_file(dir, name, text, sizeof(text)))
		return;
	file = field(text, "\nRssFile:") * KIB;
	sum->bytes += (field(text, "\nRssAnon:") + field(text, "\nRssShmem:") +
			      field(text, "\nVmPTE:") + field(text, "\nVmSwap:")) *
		      KIB;
	if (file > sum->file_bytes)
		sum->file_bytes = file;
	sum->threads += field(text, "\nThreads:");
}

/* Each page divided by those who map it. */
static int64_t proportional_bytes(const struct meter *m)
{
	int64_t sum = 0;

	for (unsigned i = 0; i < m->seen.n; i++) {
		char name[40], text[2048];
		snprintf(name, sizeof(name), "%d/smaps_rollup", m->seen.of[i].pid);
		if (read_file(m->proc_fd, name, text, sizeof(text)))
			sum += (field(text, "\nPss_Anon:") + field(text, "\nPss_Shmem:") +
				       field(text, "\nSwapPss:")) *
			       KIB;
		snprintf(name, sizeof(name), "%d/status", m->seen.of[i].pid);
		if (read_file(m->proc_fd, name, text, sizeof(text)))
			sum += field(text, "\nVmPTE:") * KIB;
	}
	return sum;
}

static int64_t written_bytes(void)
{
	struct statvfs st;

	if (statvfs("/w", &st) < 0)
		return 0;
	return (int64_t)(st.f_blocks - st.f_bfree) * (int64_t)st.f_frsize;
}

static int64_t usage_us(int who)
{
	struct rusage usage;

	getrusage(who, &usage);
	return (int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
	       usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

/* --- one look ----------------------------------------------------------------------------------------- */

static void list_add(struct meter_list *list, const struct meter_process *p)
{
	if (list->n == list->room) {
		unsigned room = list->room ? 2 * list->room : 64;
		struct meter_process *more = realloc(list->of, room * sizeof(*more));
		if (!more) /* not counted by us; the executor's own limits remain */
			return;
		list->of = more;
		list->room = room;
	}
	list->of[list->n++] = *p;
}

/* Everything in the namespace but us; the kernel lists by number. */
static void scan(struct meter *m, struct memory *memory)
{
	int fd = openat(m->proc_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	m->seen.n = 0;
	while (dir && (entry = readdir(dir))) {
		struct meter_process p = {
			.pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0};
		if (p.pid <= 1 || !read_cpu(m->proc_fd, &p))
			continue;
		add_memory(m->proc_fd, p.pid, memory);
		list_add(&m->seen, &p);
	}
	if (dir)
		closedir(dir);
}

/* What went with those that were there at the last look, and what came back through those still there. Both lists are sorted. */
static void settle_gone(struct meter *m)
{
	unsigned k = 0;

	for (unsigned i = 0; i < m->before.n; i++) {
		const struct meter_process *was = &m->before.of[i];
		while (k < m->seen.n && m->seen.of[k].pid < was->pid)
			k++;
		if (k < m->seen.n && m->seen.of[k].pid == was->pid &&
			m->seen.of[k].own_us >= was->own_us)
			m->returned_us += m->seen.of[k].kids_us - was->kids_us;
		else /* its children's time was back already, and goes with it */
			m->gone_us += was->own_us + was->kids_us;
	}
}

static void count_cpu(struct meter *m, int64_t reaped_us, int64_t reaped_before_us)
{
	int64_t total = reaped_us, lost;

	settle_gone(m);
	m->returned_us += reaped_us - reaped_before_us;
	lost = m->gone_us - m->returned_us - (m->seen.n + 1) * ticks_us(1);
	for (unsigned i = 0; i < m->seen.n; i++)
		total += m->seen.of[i].own_us + m->seen.of[i].kids_us;
	if (lost > 0)
		total += lost;
	if (total > m->sample.cpu_us)
		m->sample.cpu_us = total;
}

static void count_memory(struct meter *m, const struct memory *memory)
{
	int64_t written = written_bytes() - m->given_bytes;
	int64_t bytes = memory->bytes + (written > 0 ? written : 0);

	if (memory->file_bytes > m->file_bytes)
		m->file_bytes = memory->file_bytes;
	if (bytes > m->limits.memory_bytes && m->seen.n > 1)
		bytes = proportional_bytes(m) + (written > 0 ? written : 0);
	if (bytes > m->sample.memory_bytes)
		m->sample.memory_bytes = bytes;
	if (bytes > m->limits.memory_bytes)
		m->sample.oom_kills = m->sample.limit_ooms = 1;
	if (memory->threads >= m->limits.processes)
		m->sample.pids_refused = 1;
}

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* When a limit can have been reached, at the earliest. */
static int64_t next_look_us(const struct meter *m, int64_t bytes, int64_t cost_us)
{
	int64_t cpus = smaller(sysconf(_SC_NPROCESSORS_ONLN), m->limits.processes);
	int64_t wait = (m->limits.memory_bytes - bytes) / FASTEST_BYTES_US;

	wait = smaller(wait, (m->limits.cpu_us - m->sample.cpu_us) / (cpus > 0 ? cpus : 1));
	wait = smaller(wait, LOOK_MAX_US);
	if (m->calls < LOOK_MAX_US / LOOK_MIN_US) /* short programs are seen too */
		wait = smaller(wait, (int64_t)m->calls * LOOK_MIN_US);
	if (wait < cost_us * COST)
		wait = cost_us * COST;
	return wait > LOOK_MIN_US ? wait : LOOK_MIN_US;
}

static void publish(struct meter *m)
{
	/* A reader that finds old figures is no worse off than one that came a moment earlier. */
	if (cgroup_meter_write(m->out, &m->sample) < 0)
		return;
}

int64_t meter_look(struct meter *m)
{
	struct memory memory = {0};
	int64_t from = now_us(), reaped_before_us = m->reaped_us;
	struct meter_list last = m->before;

	m->before = m->seen;
	m->seen = last;
	/* Before the scan: who dies meanwhile is missed, not counted twice. */
	m->reaped_us = usage_us(RUSAGE_CHILDREN);
	scan(m, &memory);
	count_cpu(m, m->reaped_us, reaped_before_us);
	count_memory(m, &memory);
	m->calls++;
	publish(m);
	if (m->sample.oom_kills > 0 || m->sample.cpu_us > m->limits.cpu_us)
		return 0;
	return next_look_us(m, memory.bytes, now_us() - from);
}

/* --- beginning and end -------------------------------------------------------------------------------- */

/* Kills by the machine's OOM killer, whoever died of them. */
static int64_t count_machine_ooms(int proc_fd)
{
	char text[16384];

	return read_file(proc_fd, "vmstat", text, sizeof(text)) ? field(text, "\noom_kill ") : 0;
}

void meter_init(struct meter *m, int proc_fd, int out, const struct meter_limits *limits)
{
	memset(m, 0, sizeof(*m));
	m->proc_fd = proc_fd;
	m->out = out;
	m->limits = *limits;
	m->given_bytes = written_bytes();
	m->reaped_us = usage_us(RUSAGE_CHILDREN);
	m->machine_ooms = count_machine_ooms(proc_fd);
	m->sample.has_limit_ooms = true;
}

/* Nobody is left to look at: all that was ever seen has gone, and what was waited for has come back. */
void meter_finish(struct meter *m, bool killed)
{
	int64_t reaped_before_us = m->reaped_us;
	struct meter_list last = m->before;
	struct rusage usage;
	int64_t largest;

	m->before = m->seen;
	m->seen = last;
	m->seen.n = 0;
	m->reaped_us = usage_us(RUSAGE_CHILDREN);
	count_cpu(m, m->reaped_us, reaped_before_us);
	getrusage(RUSAGE_CHILDREN, &usage);
	largest = (int64_t)usage.ru_maxrss * KIB - m->file_bytes;
	if (largest > m->sample.memory_bytes)
		m->sample.memory_bytes = largest;
	if (m->file_bytes > 0 && largest > m->limits.memory_bytes)
		m->sample.oom_kills = m->sample.limit_ooms = 1;
	/* Nobody here has killed it; a control group would know whether the machine did. */
	if (killed && m->sample.oom_kills == 0 && m->sample.cpu_us <= m->limits.cpu_us &&
		count_machine_ooms(m->proc_fd) > m->machine_ooms)
		m->sample.oom_kills = 1;
	publish(m);
}
