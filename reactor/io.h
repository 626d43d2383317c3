/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io - descriptors as loop events (level-triggered), and a reader that cuts a stream into lines.
 */
#pragma once

#include <stdbool.h>

#include "reactor/base/str.h"

struct loop;

enum io_event { IO_READ = 1, IO_WRITE = 2 };

/* events = what is ready now, a mask of io_event; EOF and errors show as IO_READ (as IO_WRITE when only
 * that is watched: the write then fails). Regular files and the like are always ready. */
struct io_watch;
typedef void io_fn(void *arg, unsigned events);

/* Watches fd (borrowed: close it yourself, after io_free) for the mask `events` (0 = paused). */
struct io_watch *io_new(struct loop *loop, int fd, unsigned events, io_fn *fn, void *arg);
void io_set(struct io_watch *w, unsigned events); /* changes the mask; 0 pauses */
/* NULL is fine; legal inside fn, which is then not called again. */
void io_free(struct io_watch *w);

/* Line reader: owns fd, sets it non-blocking, calls on_line for each line (without its newline; a line
 * over max bytes comes in pieces with `whole` false for all but the last; one that EOF or an error cuts
 * short counts as whole), then on_end once at EOF or error (negative errno, 0 at EOF). At most 64 KiB
 * are read a turn, so a flood cannot hold the loop. */
struct io_lines;
typedef void io_line_fn(void *arg, struct str line, bool whole);
typedef void io_end_fn(void *arg, int error);
struct io_lines *io_lines_new(
	struct loop *loop, int fd, size_t max, io_line_fn *on_line, io_end_fn *on_end, void *arg);
void io_lines_free(struct io_lines *l); /* closes fd; NULL is fine; legal inside its callbacks */

/* O_NONBLOCK on; negative errno on failure. */
int io_set_nonblocking(int fd);
