/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checker - compares the contestant's output with the expected one while it streams in, over the full output,
 * in constant memory. `lines`: trailing blanks of each line and trailing empty lines are ignored (CR is a blank);
 * `exact`: byte for byte; `tokens`: runs of non-blanks must be equal. Both 8-bit clean.
 */
#pragma once

#include "reactor/base/str.h"

enum checker_kind { CHECKER_LINES, CHECKER_EXACT, CHECKER_TOKENS, CHECKER_KIND_N };

const char *checker_name(enum checker_kind kind);
bool checker_parse(struct str name, enum checker_kind *out);

struct checker;
/* expected is borrowed for the checker's life; absent = everything is right (nothing is compared). */
struct checker *checker_new(enum checker_kind kind, struct str expected);
void checker_feed(struct checker *checker, struct str output); /* any chunks */
/* After the last feed. On a difference, `message` (size CHECKER_MESSAGE_MAX, valid UTF-8) says where: "line 3: expected ..., got ...". */
#define CHECKER_MESSAGE_MAX 256
bool checker_accepts(struct checker *checker, char message[CHECKER_MESSAGE_MAX]);
void checker_free(struct checker *checker); /* NULL is fine */
