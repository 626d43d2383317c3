/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signal - signals as loop events. SIGPIPE is ignored by the first signal_new() of a process.
 */
#pragma once

struct loop;
struct signal_watch;
typedef void signal_fn(void *arg, int signum);

/* fn runs on the loop for each delivery (several may merge). Never NULL. */
struct signal_watch *signal_new(struct loop *loop, int signum, signal_fn *fn, void *arg);
void signal_free(struct signal_watch *w); /* NULL is fine; legal inside fn */
