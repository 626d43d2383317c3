/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe - which languages work on this machine: each profile's version command is run inside the box.
 *
 * Inside, because that is where submissions will run: a compiler that is installed but not visible in the box is not there. A
 * language whose command fails is not offered, and one line of the log says why; the others are reported with the
 * first line the command printed. All run at the same time, as far as the box has slots.
 */
#pragma once

#include "proc/box/box.h"
#include "reactor/base/map.h"

struct probe_result { /* borrowed for the callback */
	struct map
		works; /* name -> struct language *, in the order of the profiles; the values are the caller's */
	struct str toolchains; /* JSON object: language -> version */
	unsigned failed;       /* languages left out */
};
typedef void probe_fn(void *arg, const struct probe_result *result);

/* See reactor/op.h. `languages` (name -> struct language *) is borrowed until the callback. */
int probe_start(struct loop *loop, struct log *log, struct box_host *box,
	const struct map *languages, probe_fn *cb, void *arg, struct op **op) must_check;
