/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box_program - where conclave-box is: the executor starts it, `conclave doctor` tries it, and both must mean the same file.
 */
#pragma once

#include "reactor/base/check.h"

/* Beside `program` (path of this executable, may be NULL), then in the absolute directories of $PATH: root runs it, so a relative one
 * counts for nothing. Free with free(); NULL when it is nowhere. */
char *box_program_find(const char *program) must_check;
