/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checker - compares the contestant's output with the expected one while it streams in, over the full output,
 * in constant memory. `lines`: trailing blanks of each line and trailing empty lines are ignored (CR is a blank);
 * `exact`: byte for byte; `tokens`: runs of non-blanks must be equal; `float`: as tokens, but two numbers a (of the output) and b
 * (expected) need only be near: |a - b| <= abs, or <= rel * |b|. All 8-bit clean.
 *
 * A number is decimal: [+-] digits with at most one point before, among or behind them, and an exponent (e or E, [+-],
 * digits) if you like; or [+-] and `inf`, `infinity` or `nan` in any case. A NaN is near every NaN and nothing else, whatever its sign;
 * an infinity is near the infinity of its sign. What is too large for a double, longer than CHECKER_NUMBER_MAX bytes, or
 * hexadecimal is no number: it must be equal, as any other token.
 */
#pragma once

#include "reactor/base/str.h"

enum checker_kind { CHECKER_LINES, CHECKER_EXACT, CHECKER_TOKENS, CHECKER_FLOAT, CHECKER_KIND_N };

#define CHECKER_NUMBER_MAX 512
#define CHECKER_ABS_MAX 1000000000
#define CHECKER_TOLERANCE 1e-6 /* abs and rel, when nothing else is said */

const char *checker_name(enum checker_kind kind);
bool checker_parse(struct str name, enum checker_kind *out);

struct checker;
/* expected is borrowed for the checker's life; absent = everything is right (nothing is compared). */
struct checker *checker_new(enum checker_kind kind, struct str expected);
/* For `float`, before the first feed; both finite and >= 0. */
void checker_set_tolerance(struct checker *checker, double abs, double rel);
void checker_feed(struct checker *checker, struct str output); /* any chunks */
/* After the last feed. On a difference, `message` (size CHECKER_MESSAGE_MAX, valid UTF-8) says where: "line 3: expected ..., got ...". */
#define CHECKER_MESSAGE_MAX 256
bool checker_accepts(struct checker *checker, char message[CHECKER_MESSAGE_MAX]);
void checker_free(struct checker *checker); /* NULL is fine */
