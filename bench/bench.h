/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench - what the programs here share: order statistics, and what a process has used. All figures of one comparison come from one run,
 * in rounds that alternate, and the median is shown: the machine is never quiet.
 */
#pragma once

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "reactor/base/str.h"
#include "rpc/transport.h"

static inline int bench_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts; per_mille 500 = the median. 0 of nothing. */
static inline double bench_quantile(double *values, size_t n, unsigned per_mille)
{
	if (!n)
		return 0;
	qsort(values, n, sizeof(*values), bench_by_value);
	return values[(n - 1) * per_mille / 1000];
}

/* CPU time of all threads of a process so far in us: finer than the ticks of its stat file. 0 when it is not there. */
static inline double bench_cpu_us(long pid)
{
	char path[64];
	DIR *dir;
	struct dirent *entry;
	double ns = 0;

	snprintf(path, sizeof(path), "/proc/%ld/task", pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		char file[384];
		unsigned long long one = 0;
		FILE *f;

		snprintf(file, sizeof(file), "%s/%s/schedstat", path, entry->d_name);
		f = entry->d_name[0] == '.' ? NULL : fopen(file, "re");
		if (f && fscanf(f, "%llu", &one) == 1)
			ns += (double)one;
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return ns / 1e3;
}

/* A positive number of the command line, at most max; 0 when it is none. */
static inline unsigned bench_number(const char *text, int64_t max)
{
	int64_t n;

	return str_to_i64(str_from(text), &n) && n > 0 && n <= max ? (unsigned)n : 0;
}

/* Ten thousand connections need as many descriptors: as many as we may have. */
static inline void bench_raise_files(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
}

/* RPC with the secret of that file; ends the program when there is none. */
static inline struct transport *bench_transport(struct loop *loop, const char *secret_file)
{
	char text[257] = "";
	FILE *f = fopen(secret_file, "re");
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

	if (f)
		fclose(f);
	if (!n) {
		fprintf(stderr, "%s: no secret in it\n", secret_file);
		exit(1);
	}
	return transport_http_new(loop, NULL, str_trim((struct str){text, n}));
}
