/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits - the limits of a phase: wire names, defaults, maxima (rpc/task/README.md). In a decoded task an absent limit
 * is 0; limits_fill() puts the defaults there. Nothing is unlimited.
 */
#pragma once

#include <stdint.h>

struct limits {
	int64_t cpu_ms, wall_ms, memory_bytes, output_bytes, file_bytes, processes, stack_bytes;
};

enum phase { PHASE_COMPILE, PHASE_RUN };

/* The defaults of a phase, where a language profile may scale CPU by cpu_percent (100 = as is). */
struct limits limits_default(enum phase phase, unsigned cpu_percent);
/* Fills what is 0 in limits: first from `over` (the limits of the phase the case belongs to; may be NULL), then from
 * defaults. A cpu_ms without wall_ms makes wall 3 x cpu + 1 s (run) or 3 x cpu but at least 30 s (compile), capped by the maximum.
 * The stack may take all of the memory. */
void limits_fill(
	struct limits *limits, const struct limits *over, enum phase phase, unsigned cpu_percent);

/* Maxima, used by fields.def too. */
#define LIMIT_CPU_MS_MAX 60000
#define LIMIT_WALL_MS_MAX 300000
#define LIMIT_MEMORY_MAX (INT64_C(4) << 30)
#define LIMIT_MEMORY_MIN (INT64_C(1) << 20)
#define LIMIT_OUTPUT_MAX (INT64_C(64) << 20)
#define LIMIT_FILE_MAX (INT64_C(1) << 30)
#define LIMIT_PROCESSES_MAX 1024
#define LIMIT_STACK_MAX (INT64_C(4) << 30)
#define SOURCE_MAX (INT64_C(1) << 20)
#define BODY_MAX (INT64_C(64) << 20)
#define OUTPUT_HEAD 32768 /* bytes kept of the start and of the end of an output */
