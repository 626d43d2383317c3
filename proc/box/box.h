/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box - runs one hostile program under limits and says exactly how it ended.
 *
 * A box has slots. A slot is a ready-made set of namespaces, mounts, uid and cgroups; a run takes a ready slot,
 * spawns into it, and is over when every process in it is dead and reaped. Slots are made ahead, off the
 * run's path. Rows: box_ns (the real one, through conclave-box), box_none (rlimits only: isolates nothing and says so), and
 * a fake for tests. box.c holds what is common: the stock of slots, the queue for them, limits by timer,
 * the verdict's order.
 *
 * "The program failed" (BOX_EXITED, BOX_SIGNALED, BOX_LIMIT) and "we failed" (BOX_FAILED) never mix.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reactor/base/buf.h"
#include "reactor/op.h"

struct box;
struct box_run;
struct log;
struct loop;

struct box_limits { /* all > 0 */
	int64_t cpu_us;
	int64_t wall_us;
	int64_t memory_bytes;
	int64_t output_bytes; /* stdout; stderr is read to the end, never a limit */
	int64_t file_bytes;   /* largest file, and the size of the writable space */
	int64_t processes;    /* threads count */
	int64_t stack_bytes;
};

struct box_spec {
	char *const *argv; /* program by absolute path, or relative to /w; copied */
	char *const *env;  /* NULL-terminated, copied; NULL = only the fixed PATH, LANG, HOME=/w */
	int stdin_fd; /* borrowed during the call (dup'd): sealed memfd or read-only file; -1 = empty */
	int files_fd; /* sealed bundle laid out in /w before the start, or -1; borrowed (dup'd) */
	bool files_read_only; /* owned by root and unwritable (runs) or the program's own (compile) */
	bool collect;         /* a clean exit: give back all regular files of /w as a bundle */
	uint64_t collect_max; /* bytes in all */
	struct box_limits limits;
};

enum box_end { BOX_EXITED, BOX_SIGNALED, BOX_LIMIT, BOX_KILLED, BOX_FAILED };
enum box_limit_name {
	BOX_L_NONE,
	BOX_L_CPU,
	BOX_L_WALL,
	BOX_L_MEMORY,
	BOX_L_OUTPUT,
	BOX_L_FILE,
	BOX_L_PROCESSES,
	BOX_L_STACK
};

struct box_result {
	enum box_end end;
	int exit_code;        /* BOX_EXITED */
	int signal;           /* BOX_SIGNALED, and for BOX_LIMIT the one that ended it, or 0 */
	int64_t cpu_us;       /* all descendants, read after the last is dead */
	int64_t wall_us;      /* exec to death */
	int64_t memory_bytes; /* peak */
	/* The limit that fired. For BOX_LIMIT always; for EXITED and SIGNALED file, processes and stack may be named as
	 * what the program ran into. measured is in the unit of the wire name (cpu_ms: ms). */
	enum box_limit_name limit;
	int64_t allowed, measured;
	int64_t stdout_bytes, stderr_bytes; /* delivered: stdout at most output_bytes */
	int files_fd; /* sealed bundle when collected, else -1; owned by the callee of on_done */
	const char *failure; /* BOX_FAILED: the reason, in words; borrowed */
};

struct box_events {
	void (*on_started)(void *arg); /* the program has been exec'ed; may be NULL */
	void (*on_output)(
		void *arg, int stream, struct str bytes); /* 1, 2; borrowed; capped exactly */
	/* Exactly once, unless box_run_cancel(): nothing of the run is alive any more. The handle is dead. */
	void (*on_done)(void *arg, const struct box_result *result);
};

struct box_options {
	struct log *log; /* borrowed */
	unsigned slots; /* runs at the same time; the stock has as many ready slots and one spare */
	const char *helper; /* box_ns: path of conclave-box; NULL when helper_fd is given */
	int helper_fd; /* box_ns: SEQPACKET to a conclave-box started earlier (as root), or -1; owned */
	const char *
		run_dir; /* box_ns: uid range and cgroup names derive from it, claimed under a lock */
};

struct box_slot;

/* What a slot is told to run. Everything is borrowed during the call. */
struct box_start {
	const struct box_spec *spec; /* its stdin_fd is not for the slot: take the one below */
	int stdin_fd;                /* a fresh description at offset 0, or -1 = empty */
	int stdout_fd, stderr_fd;    /* write ends */
};

/* How it ended, raw: box.c turns this into a box_result. */
struct box_slot_end {
	const char *failure; /* we failed: the reason; borrowed. All else may be unset then */
	int status; /* of waitpid() for the main process; -1: it was killed by slot_kill() before it ended */
	int64_t cpu_us, wall_us, memory_bytes;
	uint64_t
		oom_kills; /* of any process in the slot, by its own limit or because the machine ran out */
	uint64_t limit_ooms;   /* times its own limit was what ran out ... */
	bool has_limit_ooms;   /* ... when that is known; else the peak has to tell */
	uint64_t pids_refused; /* forks refused by the limit on processes */
	int files_fd; /* sealed, checked bundle, owned by the callee; -1 = nothing was collected */
	bool files_refused; /* collecting met a bound: more than collect_max bytes, too many files, too deep */
};

/* Never from inside slot_run() or slot_kill(). */
struct box_slot_events {
	void (*on_started)(void *arg);
	void (*on_dead)(
		void *arg); /* every process is dead and reaped; collecting may follow. Not after a kill */
	void (*on_ended)(void *arg,
		const struct box_slot_end *end); /* once, the last; not after slot_close() */
};

#define BOX_SLOTS_MAX 100u

/* One row a kind of box. Callbacks come from the loop. */
struct box_ops {
	const char *name;
	const char *isolation; /* "full", "none", ... shown in every result (README, "Isolation") */
	/* What an open box came to, where that depends on the machine: its isolation, and why it is not full with what to type ("" when it
	 * is; borrowed). NULL: as above. */
	const char *(*describe)(const struct box *box, const char **why);
	/* May block for some seconds: it is called at boot. On failure *why (free()) says what to do. */
	int (*open)(
		struct loop *loop, const struct box_options *options, struct box **out, char **why);
	void (*close)(struct box *
			box); /* kills everything, waits (bounded) until it is gone; no callbacks */
	/* Starts making a slot; on_ready(arg, slot or NULL, why). -EAGAIN: not now, try again in a moment;
	 * -EPIPE: no slot can ever be made again. The op is cancelled like any other. */
	int (*slot_open)(struct box *box,
		void (*on_ready)(void *arg, struct box_slot *slot, const char *why), void *arg,
		struct op **op);
	/* Starts the program. On -errno nothing was started; close the slot. -ESTALE: it died while it was ready. */
	int (*slot_run)(struct box_slot *slot, const struct box_start *start,
		const struct box_slot_events *events, void *arg);
	/* Everything in the slot dies, on_ended follows. Idempotent. */
	void (*slot_kill)(struct box_slot *slot);
	/* After on_ended: true when the slot may serve again (single-use slots say false). */
	bool (*slot_reset)(struct box_slot *slot);
	void (*slot_close)(struct box_slot
			*slot); /* frees; its processes and cgroups are removed behind the scenes */
	/* CPU used by the run so far, us; negative errno when it cannot be read. */
	int64_t (*slot_cpu_us)(struct box_slot *slot);
};

extern const struct box_ops box_ns;
extern const struct box_ops box_none;
/* By name; NULL when unknown. */
const struct box_ops *box_find(const char *name);

/* --- what the executor uses (box.c) --- */
struct box_host;
/* 0, or -errno with *why set to words that say what to do (free with free()). The stock is filled behind the scenes. */
int box_host_open(struct loop *loop, const struct box_ops *ops, const struct box_options *options,
	struct box_host **out, char **why) must_check;
void box_host_close(
	struct box_host *host); /* runs still alive are killed; no callbacks; NULL is fine */
const char *box_host_isolation(const struct box_host *host);
/* Why it is less than it could be for this user: a line "what is missing: what to type" for each thing; "" when nothing is, or nobody
 * can say. */
const char *box_host_shortfall(const struct box_host *host);
/* NULL while new runs can be taken; else why they never will be again, in words (borrowed). A conclave-box that died is started
 * again only when the process still may do what it could at the start, and at most three times without coming up; otherwise its service should be restarted. */
const char *box_host_failure(const struct box_host *host);
/* Queues the run for a ready slot (at most 1024 wait: then -EAGAIN). Spec is copied, events too. -EINVAL: a limit that is not
 * positive, no argv[0], or a stdin others could write to; -E2BIG: argv and environment over 256 KiB; -EPIPE: the box is broken
 * for good (box_host_failure() says why): runs that were waiting or running have ended with BOX_FAILED. */
int box_run(struct box_host *host, const struct box_spec *spec, const struct box_events *events,
	void *arg, struct box_run **out) must_check;
/* Everything of the run dies; on_done comes with BOX_KILLED (or how it had already ended). Idempotent. */
void box_run_kill(struct box_run *run);
/* Kills and forgets: on_done will not come. *run = NULL. */
void box_run_cancel(struct box_run **run);
/* Limit's wire name: "cpu_ms" ...; "" for BOX_L_NONE. */
const char *box_limit_wire_name(enum box_limit_name limit);
