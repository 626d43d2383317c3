/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame - a message and the bytes that go with it, as one body: the JSON text and, when there are bytes, a NUL and they. A JSON text
 * never holds a NUL, so nothing has to be counted or escaped, and both transports carry the same.
 */
#pragma once

#include "reactor/base/buf.h"

/* Behind the JSON text in body; absent or empty bytes add nothing. */
void frame_add(struct buf *body, struct str bytes);
/* Cuts at the NUL: *bytes is absent when there is none. Both are borrowed from body. */
void frame_split(struct str body, struct str *json, struct str *bytes);
