/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op - the asynchronous contract, written here once and cited everywhere.
 *
 * A call that starts an operation returns 0 and a handle, or a negative errno (or a documented positive
 * condition) and then never calls back. The callback fires exactly once, never before the starting call
 * has returned (it comes from the loop), and never after op_cancel(). Inputs are copied or explicitly
 * handed over; results are borrowed for the duration of the callback. The handle is valid until the
 * callback begins or op_cancel() returns, whichever is first: drop your pointer in both. Freeing the
 * owner of an operation cancels it. Memory is released between loop turns, never under a caller's feet.
 */
#pragma once

#include <stddef.h>

struct op {
	void (*cancel)(struct op *op); /* set by the module that embeds the op */
};

/* Cancels *opp if it is running and leaves NULL there: the callback will not fire. NULL is fine. */
static inline void op_cancel(struct op **opp)
{
	struct op *op = *opp;

	*opp = NULL;
	if (op)
		op->cancel(op);
}
