/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rows share: finding mounts, our group and its leaves, and reading counters.
 *
 *   <our own cgroup>/<name>/s<index>      one leaf a slot, in each hierarchy the row uses
 *
 * The directories are opened once, at start, and everything later goes through these descriptors: conclave-box
 * gives up its view of the host's file systems, and paths could have been replaced.
 */
#include "proc/box/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SWEEP_MS 5000

static const struct cgroup_ops *const rows[] = {&cgroup_v1, &cgroup_v2, &cgroup_polled};

const struct cgroup_ops *cgroup_row(unsigned index)
{
	return index < ARRAY_SIZE(rows) ? rows[index] : NULL;
}

unsigned cgroup_row_index(const struct cgroup_ops *ops)
{
	unsigned i = 0;

	while (i < ARRAY_SIZE(rows) && rows[i] != ops)
		i++;
	return i;
}

/* --- finding ------------------------------------------------------------------------------------------ */

static bool has_option(const char *options, const char *want)
{
	size_t n = strlen(want);

	for (const char *p = options; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
		if (strncmp(p, want, n) == 0 && (p[n] == ',' || p[n] == '\0' || p[n] == '\n'))
			return true;
	}
	return false;
}

/* One line of mountinfo: "id parent dev root point opts tags... - type source superopts". */
static bool parse_mount(char *line, const char *type, const char *option, struct cgroup_mount *out)
{
	char *tail = strstr(line, " - ");
	char found_type[64], source[256], options[512];

	if (!tail || sscanf(line, "%*d %*d %*s %255s %255s", out->root, out->point) != 2 ||
		sscanf(tail + 3, "%63s %255s %511s", found_type, source, options) != 3)
		return false;
	return strcmp(found_type, type) == 0 && (!option || has_option(options, option));
}

bool cgroup_find_mount(const char *type, const char *option, struct cgroup_mount *out)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[2048];
	bool found = false;

	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f))
		found = parse_mount(line, type, option, out);
	fclose(f);
	return found;
}

bool cgroup_own_path(const char *controller, char out[256])
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[1024];
	bool found = false;

	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f)) {
		char *names = strchr(line, ':');
		char *path = names ? strchr(names + 1, ':') : NULL;
		if (!path)
			continue;
		*path++ = '\0';
		names++;
		path[strcspn(path, "\n")] = '\0';
		found = controller[0] == '\0' ? names[0] == '\0' : has_option(names, controller);
		if (found)
			found = (size_t)snprintf(out, 256, "%s", path) < 256;
	}
	fclose(f);
	return found;
}

int cgroup_open_own(const struct cgroup_mount *m, const char *controller)
{
	char own[256], path[1024];
	const char *below = own;
	size_t root = strlen(m->root);
	int fd;

	if (!cgroup_own_path(controller, own))
		return -ENOENT;
	/* The mount may show only a part of the hierarchy: our path counts from its root. */
	if (strcmp(m->root, "/") != 0)
		below = strncmp(own, m->root, root) == 0 ? own + root : "";
	if (strncmp(below, "/..", 3) == 0)
		below = "";
	snprintf(path, sizeof(path), "%s%s", m->point, below);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		fd = open(m->point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* --- files -------------------------------------------------------------------------------------------- */

int cgroup_write(int dir, const char *file, const char *value)
{
	int fd = openat(dir, file, O_WRONLY | O_CLOEXEC);
	int error = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, value, strlen(value)) < 0)
		error = -errno;
	close(fd);
	return error;
}

int cgroup_read(int dir, const char *file, char *out, size_t size)
{
	int fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, out, size - 1);
	if (n < 0)
		n = -errno;
	else
		out[n] = '\0';
	close(fd);
	return n < 0 ? (int)n : 0;
}

static int read_text(int fd, char *out, size_t size)
{
	ssize_t n = pread(fd, out, size - 1, 0);

	if (n < 0)
		return -errno;
	out[n] = '\0';
	return 0;
}

/* "key N" on a line of its own; 0 when absent. */
static int64_t keyed_number(const char *text, const char *key)
{
	size_t n = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, n) == 0 && line[n] == ' ')
			return strtoll(line + n + 1, NULL, 10);
	}
	return 0;
}

int cgroup_cpu_us(const struct cgroup_ops *ops, int fd, int64_t *out)
{
	char text[1024];
	int error = read_text(fd, text, sizeof(text));

	if (error < 0)
		return error;
	*out = ops->cpu_key ? keyed_number(text, ops->cpu_key) : strtoll(text, NULL, 10) / 1000;
	return 0;
}

static int read_reading(int fd, const char *key, int64_t *out)
{
	char text[1024];
	int error;

	*out = 0;
	if (fd < 0)
		return 0;
	error = read_text(fd, text, sizeof(text));
	if (error == 0)
		*out = key ? keyed_number(text, key) : strtoll(text, NULL, 10);
	return error;
}

int cgroup_sample(const struct cgroup_ops *ops, const int readings[CGROUP_READINGS],
	struct cgroup_sample *out)
{
	int64_t peak = 0, oom = 0, own = 0, pids = 0;
	int error;

	*out = (struct cgroup_sample){0};
	error = cgroup_cpu_us(ops, readings[CGROUP_CPU], &out->cpu_us);
	if (error == 0)
		error = read_reading(readings[CGROUP_PEAK], NULL, &peak);
	if (error == 0)
		error = read_reading(readings[CGROUP_OOM], "oom_kill", &oom);
	if (error == 0 && ops->limit_oom_key)
		error = read_reading(readings[CGROUP_OOM], ops->limit_oom_key, &own);
	if (error == 0)
		error = read_reading(readings[CGROUP_PIDS], "max", &pids);
	out->memory_bytes = peak;
	out->oom_kills = (uint64_t)oom;
	out->limit_ooms = (uint64_t)own;
	out->has_limit_ooms = ops->limit_oom_key != NULL;
	out->pids_refused = (uint64_t)pids;
	return error;
}

/* --- leaves ------------------------------------------------------------------------------------------- */

static void leaf_init(struct cgroup_leaf *leaf)
{
	memset(leaf, 0xff, sizeof(*leaf)); /* every descriptor -1 */
}

static void close_fds(int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

void cgroup_leaf_close(struct cgroup_leaf *leaf)
{
	close_fds(leaf->procs, CGROUP_TREES_MAX);
	close_fds(leaf->limits, CGROUP_LIMITS);
	close_fds(leaf->readings, CGROUP_READINGS);
	close_fds(&leaf->meter, 1);
}

static int open_files(
	const int dirs[], const struct cgroup_file *files, unsigned n, int flags, int *out)
{
	for (unsigned i = 0; i < n; i++) {
		int fd = openat(dirs[files[i].tree], files[i].name, flags | O_CLOEXEC);
		if (fd < 0 && errno != ENOENT) /* older kernels lack some: the reader copes */
			return -errno;
		out[files[i].kind] = fd;
	}
	return 0;
}

static int open_leaf_files(struct cgroup *g, const int dirs[], struct cgroup_leaf *out)
{
	int error;

	for (unsigned t = 0; t < g->n_trees; t++) {
		out->procs[t] = openat(dirs[t], "cgroup.procs", O_WRONLY | O_CLOEXEC);
		if (out->procs[t] < 0)
			return -errno;
	}
	error = open_files(dirs, g->ops->readings, g->ops->n_readings, O_RDONLY, out->readings);
	if (error == 0)
		error = open_files(dirs, g->ops->limits, g->ops->n_limits, O_WRONLY, out->limits);
	if (error < 0)
		return error;
	if (out->readings[CGROUP_CPU] < 0 || out->readings[CGROUP_OOM] < 0 ||
		out->limits[CGROUP_MEMORY_MAX] < 0 || out->limits[CGROUP_PIDS_MAX] < 0)
		return -ENOENT;
	return 0;
}

int cgroup_leaf_open(struct cgroup *g, unsigned index, struct cgroup_leaf *out)
{
	int dirs[CGROUP_TREES_MAX] = {-1, -1, -1};
	char name[16];
	int error = 0;

	leaf_init(out);
	if (g->ops->leaf_open) {
		error = g->ops->leaf_open(out);
		if (error < 0)
			cgroup_leaf_close(out);
		return error;
	}
	snprintf(name, sizeof(name), "s%u", index);
	for (unsigned t = 0; t < g->n_trees && error == 0; t++) {
		if (mkdirat(g->groups[t], name, 0755) < 0) {
			error = -errno;
			break;
		}
		dirs[t] = openat(g->groups[t], name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (dirs[t] < 0)
			error = -errno;
	}
	if (error == 0)
		error = open_leaf_files(g, dirs, out);
	close_fds(dirs, CGROUP_TREES_MAX);
	if (error < 0) {
		cgroup_leaf_close(out);
		if (cgroup_leaf_remove(g, index) < 0)
			return error;
	}
	return error;
}

int cgroup_leaf_remove(struct cgroup *g, unsigned index)
{
	char name[16];
	int error = 0;

	snprintf(name, sizeof(name), "s%u", index);
	for (unsigned t = 0; t < g->n_trees; t++) {
		if (unlinkat(g->groups[t], name, AT_REMOVEDIR) < 0 && errno != ENOENT)
			error = -errno;
	}
	return error;
}

static int write_number(int fd, int64_t value)
{
	char text[32];
	int n = snprintf(text, sizeof(text), "%lld", (long long)value);

	return pwrite(fd, text, (size_t)n, 0) < 0 ? -errno : 0;
}

int cgroup_leaf_limit(const struct cgroup_ops *ops, const struct cgroup_leaf *leaf,
	int64_t memory_bytes, int64_t processes)
{
	int error;

	if (ops->leaf_open) /* pid 1 itself watches */
		return 0;
	error = write_number(leaf->limits[CGROUP_MEMORY_MAX], memory_bytes);
	/* Behind the memory limit: in v1 the sum may not be smaller than it. */
	if (error == 0 && leaf->limits[CGROUP_SWAP_MAX] >= 0)
		error = write_number(
			leaf->limits[CGROUP_SWAP_MAX], ops->swap_is_total ? memory_bytes : 0);
	if (error == 0)
		error = write_number(leaf->limits[CGROUP_PIDS_MAX], processes);
	return error;
}

/* --- our group ---------------------------------------------------------------------------------------- */

static void kill_members(int leaf)
{
	int fd = openat(leaf, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	long pid;

	if (!f)
		return;
	while (fscanf(f, "%ld", &pid) == 1) {
		if (pid > 1)
			kill((pid_t)pid, SIGKILL);
	}
	fclose(f);
}

/* Kills and removes every leaf in `group`; true when none is left. */
static bool sweep_once(int group)
{
	int fd = openat(group, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	bool clean = true;

	if (!dir)
		return false;
	while ((entry = readdir(dir))) {
		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		if (unlinkat(group, entry->d_name, AT_REMOVEDIR) == 0)
			continue;
		clean = false;
		int leaf = openat(group, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (leaf >= 0) {
			kill_members(leaf);
			close(leaf);
		}
	}
	closedir(dir);
	return clean;
}

static bool sweep(int group)
{
	const struct timespec pause = {.tv_nsec = 1000 * 1000};

	for (int ms = 0; ms < SWEEP_MS; ms++) {
		if (sweep_once(group))
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

static int make_group(struct cgroup *g, unsigned t, char why[CGROUP_WHY_MAX])
{
	if (mkdirat(g->parents[t], g->name, 0755) < 0 && errno != EEXIST) {
		int error = -errno;
		snprintf(why, CGROUP_WHY_MAX, "cannot make a %s control group: %s; %s",
			g->ops->name, strerror(-error),
			geteuid() == 0 ? "mount the cgroup file systems read-write (in a "
					 "container: --privileged)"
				       : "run as root, or have one delegated");
		return error;
	}
	g->groups[t] = openat(g->parents[t], g->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (g->groups[t] < 0)
		return -errno;
	if (sweep(g->groups[t]))
		return 0;
	snprintf(why, CGROUP_WHY_MAX,
		"control group %s still holds processes of an earlier start that do not die",
		g->name);
	return -EBUSY;
}

static int open_row(
	struct cgroup *g, const struct cgroup_ops *ops, const char *name, char why[CGROUP_WHY_MAX])
{
	int error;

	memset(g, 0, sizeof(*g));
	g->ops = ops;
	for (unsigned t = 0; t < CGROUP_TREES_MAX; t++)
		g->parents[t] = g->groups[t] = -1;
	snprintf(g->name, sizeof(g->name), "%s", name);
	error = ops->find(g, why);
	for (unsigned t = 0; t < g->n_trees && error == 0; t++)
		error = make_group(g, t, why);
	if (error == 0 && ops->enable)
		error = ops->enable(g, why);
	if (error < 0)
		cgroup_close(g);
	return error;
}

int cgroup_open(struct cgroup *g, const char *name, char why[CGROUP_WHY_MAX])
{
	char missing[ARRAY_SIZE(rows)][CGROUP_WHY_MAX];
	int error = -ENOENT;

	for (unsigned i = 0; i < ARRAY_SIZE(rows) && error == -ENOENT; i++) {
		snprintf(missing[i], CGROUP_WHY_MAX, "%s", "not tried");
		error = open_row(g, rows[i], name, missing[i]);
		if (error < 0)
			snprintf(why, CGROUP_WHY_MAX, "%.*s", CGROUP_WHY_MAX - 1, missing[i]);
	}
	if (error == -ENOENT)
		snprintf(why, CGROUP_WHY_MAX,
			"no usable cgroup hierarchy: v1: %.150s; v2: %.150s. Mount cgroup2 on "
			"/sys/fs/cgroup with the "
			"memory and pids controllers, or v1 memory, pids and cpuacct",
			missing[0], missing[1]);
	return error;
}

void cgroup_open_polled(struct cgroup *g)
{
	memset(g, 0, sizeof(*g));
	g->ops = &cgroup_polled;
}

void cgroup_close(struct cgroup *g)
{
	for (unsigned t = 0; t < g->n_trees; t++) {
		if (g->parents[t] >= 0 && g->groups[t] >= 0)
			unlinkat(g->parents[t], g->name, AT_REMOVEDIR);
	}
	close_fds(g->groups, CGROUP_TREES_MAX);
	close_fds(g->parents, CGROUP_TREES_MAX);
	g->n_trees = 0;
}
