/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text - what JSON and messages for people ask of UTF-8.
 */
#pragma once

#include "reactor/base/str.h"

/* Bytes of the longest prefix that is valid UTF-8 (as str_is_utf8() means it). */
size_t text_valid_prefix(struct str s);
/* At most max bytes of s, not cutting a character of valid UTF-8 in two. */
struct str text_cut(struct str s, size_t max);
/* Valid UTF-8 without control characters (C0, DEL, C1, line and paragraph separators). */
bool text_is_printable(struct str s);
/* s for people: valid UTF-8, quotes, backslashes, control characters and stray bytes escaped (\" \n \x9f). Whole characters and
 * escapes only, at most size - 1 bytes and a NUL. Returns how many bytes of s went in. */
size_t text_escape(struct str s, char *out, size_t size);
