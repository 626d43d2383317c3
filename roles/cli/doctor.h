/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor - a finding of `conclave doctor`, and the checks that make them. A check is a row in cmd_doctor.c.
 */
#pragma once

#include "roles/cli/cli_int.h"

enum finding { FINDING_OK, FINDING_WARN, FINDING_FAIL };

struct doctor;

/* Adds a line. `advice`: what to type, or NULL. */
void doctor_add(struct doctor *d, enum finding finding, const char *advice, const char *fmt, ...)
	printf_like(4, 5);
struct cli *doctor_cli(struct doctor *d);

/* doctor_kernel.c */
void doctor_user(struct doctor *d);
void doctor_namespaces(struct doctor *d);
void doctor_cgroups(struct doctor *d);
void doctor_seccomp(struct doctor *d);
void doctor_core_pattern(struct doctor *d);
/* doctor_judge.c */
void doctor_sandbox(struct doctor *
		d); /* conclave-box is there, a program runs in it, and what it comes to for this user */
void doctor_languages(struct doctor *d);
/* The first /usr/bin/PROGRAM that an argument names, itself or in a line for a shell, and that is not there: free(). Or NULL. */
char *doctor_missing_program(const char *argument) must_check;
void doctor_disk(struct doctor *d);
void doctor_ports(struct doctor *d);

/* The first line of a small file, without its end, into out; false when it cannot be read. */
bool doctor_read_line(const char *path, char *out, size_t size);
