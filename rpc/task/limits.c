/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Defaults and how they are filled in. A limit is settled in this order: given for the case, given for the phase,
 * derived (wall time from CPU time, stack from memory), default. So what a client gives is never replaced, and
 * what it leaves out follows from what it gave.
 */
#include "rpc/task/limits.h"

#include <stddef.h>

#define MIB (INT64_C(1) << 20)

static const struct limits DEFAULTS[] = {
	[PHASE_COMPILE] = {.cpu_ms = 10000,
		.wall_ms = 30000,
		.memory_bytes = 1024 * MIB,
		.output_bytes = 1 * MIB,
		.file_bytes = 512 * MIB,
		.processes = 128},
	[PHASE_RUN] = {.cpu_ms = 2000,
		.memory_bytes = 256 * MIB,
		.output_bytes = 1 * MIB,
		.file_bytes = 64 * MIB,
		.processes = 64},
};

static int64_t or_else(int64_t value, int64_t otherwise)
{
	return value > 0 ? value : otherwise;
}

static int64_t at_most(int64_t value, int64_t max)
{
	return value < max ? value : max;
}

/* A run has three times its CPU time and a second to start; a compile the ratio of its defaults, and never less than them. */
static int64_t wall_for(int64_t cpu_ms, enum phase phase)
{
	int64_t wall_ms = 3 * cpu_ms;

	if (phase == PHASE_RUN)
		wall_ms += 1000;
	else if (wall_ms < DEFAULTS[PHASE_COMPILE].wall_ms)
		wall_ms = DEFAULTS[PHASE_COMPILE].wall_ms;
	return at_most(wall_ms, LIMIT_WALL_MS_MAX);
}

static int64_t scaled_cpu(enum phase phase, unsigned cpu_percent)
{
	int64_t cpu_ms = DEFAULTS[phase].cpu_ms * (int64_t)cpu_percent / 100;

	return at_most(or_else(cpu_ms, 1), LIMIT_CPU_MS_MAX);
}

static void fill_given(struct limits *l, const struct limits *over)
{
	l->cpu_ms = or_else(l->cpu_ms, over->cpu_ms);
	l->wall_ms = or_else(l->wall_ms, over->wall_ms);
	l->memory_bytes = or_else(l->memory_bytes, over->memory_bytes);
	l->output_bytes = or_else(l->output_bytes, over->output_bytes);
	l->file_bytes = or_else(l->file_bytes, over->file_bytes);
	l->processes = or_else(l->processes, over->processes);
	l->stack_bytes = or_else(l->stack_bytes, over->stack_bytes);
}

void limits_fill(
	struct limits *limits, const struct limits *over, enum phase phase, unsigned cpu_percent)
{
	const struct limits *d = &DEFAULTS[phase];

	if (over)
		fill_given(limits, over);
	limits->cpu_ms = or_else(limits->cpu_ms, scaled_cpu(phase, cpu_percent));
	limits->wall_ms = or_else(limits->wall_ms, wall_for(limits->cpu_ms, phase));
	limits->memory_bytes = or_else(limits->memory_bytes, d->memory_bytes);
	limits->output_bytes = or_else(limits->output_bytes, d->output_bytes);
	limits->file_bytes = or_else(limits->file_bytes, d->file_bytes);
	limits->processes = or_else(limits->processes, d->processes);
	limits->stack_bytes = or_else(limits->stack_bytes, limits->memory_bytes);
}

struct limits limits_default(enum phase phase, unsigned cpu_percent)
{
	struct limits limits = {.cpu_ms = 0};

	limits_fill(&limits, NULL, phase, cpu_percent);
	return limits;
}
