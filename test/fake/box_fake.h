/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box_fake - a box whose programs are scripts on the loop's clock: for unit and cluster tests. Nothing is executed.
 *
 * The script is the words of argv behind the program's name; "@NAME" stands for the words of that file of the bundle,
 * "@-" for those of the standard input. A word is key=value; in a value %XX is a byte; a number may be A..B: uniform, from the
 * loop's seed. Words without '=' are ignored; later ones win.
 *
 *   run_us=1000     start to end                     exit=0  signal=0    how it ends
 *   cpu_us=RUN_US   CPU used, evenly over the run    out= err=           printed at the end
 *   memory=1048576  peak                             out_bytes=0         so many x more on stdout
 *   kill_us=1000    from a kill to being reaped      echo=0              1: stdin to stdout
 *   oom=0           1: killed for its memory         forks_refused=0     so many forks were refused
 *   fail=WHY        the box itself fails             fail_first=0        only the first so many runs of the same argv
 *   file=NAME:TEXT  a file left behind (may repeat); a collecting run also gives its input files back
 *   too_much=0      1: what it leaves is over collect_max
 *   break=0         1: at its end the box breaks for good: everything that runs fails, no slot can be made from now on
 *
 * The limits on CPU, wall time and output are box.c's own work, on what the script says.
 */
#pragma once

#include "proc/box/box.h"

extern const struct box_ops box_fake;
