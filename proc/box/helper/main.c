/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conclave-box RUN_DIR - makes and removes the slots in which programs run.
 *
 * Theory of operation.
 *
 *   executor (ordinary user) --control socket, fd 3--> conclave-box (root) --clone--> zygote = pid 1 of each slot
 *      \______________________ slot socket, made here and passed to both _______________/
 *
 * It is started with an empty environment before anything untrusted exists, claims a range of uids, finds the control
 * groups, removes what an earlier start left in them, builds the tree the programs see and moves into it (from then
 * on it has no path to the host's files), builds the filter, says HELLO, and waits in one poll() for the executor and
 * for the death of a slot. It runs no program and reads no byte that came from one.
 *
 * An ordinary user may start it too. Then it enters a user namespace first, in which it is root (userns.c); without control groups that were
 * delegated to it each slot counts itself (cgroup_polled.c, meter.c). HELLO says which it came to. Whether a slot can be made at all depends on
 * the machine there, so one is tried before.
 *
 * Slot: FREE -> LIVE (SLOT_OPEN) -> DYING (SLOT_CLOSE: SIGKILL to its pid 1; the kernel kills the rest and lets
 * us reap pid 1 only when all are gone; one that counts itself is asked first, as its figures would die with it) -> counters read, SLOT_GONE -> REMOVING (rmdir may be early by a moment) -> FREE.
 * A pid 1 that dies by itself goes the same way, and SLOT_GONE says so.
 *
 * EOF on the control socket is the end of the executor, however it died: every slot is killed and removed. Our own
 * death kills the zygotes by PDEATHSIG and leaves control groups, which the next start sweeps.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/sched.h>

#include "proc/box/cgroup.h"
#include "proc/box/helper/claim.h"
#include "proc/box/helper/filter.h"
#include "proc/box/helper/root.h"
#include "proc/box/helper/userns.h"
#include "proc/box/helper/zygote.h"
#include "proc/box/wire.h"

#define CONTROL_FD 3
#define REMOVE_RETRY_MS 1
#define REMOVE_TRIES 10000
#define END_MS 10000
#define STOP_MS 2000 /* until a slot that was asked to stop is killed */

enum slot_state { SLOT_FREE, SLOT_LIVE, SLOT_DYING, SLOT_REMOVING };

struct slot {
	enum slot_state state;
	uint64_t id; /* the executor's name for it */
	int pidfd;
	int stop;           /* write end: closing it asks pid 1 to stop; -1 */
	int64_t kill_at_ms; /* when it was asked: our patience ends */
	unsigned tries;     /* of removing */
	struct cgroup_leaf leaf;
};

struct helper {
	struct userns userns;
	struct claim claim;
	unsigned first_id; /* of slot 0, in our numbers, where those differ from the claim's */
	struct cgroup cgroup;
	struct sock_fprog filter;
	char no_groups[CGROUP_WHY_MAX]; /* why slots count themselves; "" = they do not */
	int life[2];                    /* pipe: its write end is open as long as we live */
	bool ending;
	struct slot slots[CLAIM_SLOTS];
};

static void complain(const char *what, int error)
{
	fprintf(stderr, "conclave-box: %s: %s\n", what, strerror(-error));
}

static void tell(struct helper *h, const struct wire *message, const int *fds, unsigned n_fds)
{
	int error = wire_send(CONTROL_FD, message, fds, n_fds);

	if (error < 0 && error != -EPIPE && error != -ECONNRESET && !h->ending)
		complain("the executor does not listen", error);
	if (error < 0)
		h->ending = true;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void close_stop(struct slot *slot)
{
	if (slot->stop >= 0)
		close(slot->stop);
	slot->stop = -1;
}

/* --- making a slot ------------------------------------------------------------------------------------ */

static pid_t clone_zygote(int *pidfd)
{
	struct clone_args args = {
		.flags = CLONE_PIDFD | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
			 CLONE_NEWUTS | CLONE_NEWCGROUP,
		.pidfd = (uint64_t)(uintptr_t)pidfd,
		.exit_signal = SIGCHLD,
	};

	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

/* The slot's id in our numbers. */
static uid_t outer_id(const struct helper *h, uid_t id)
{
	if (!h->userns.entered)
		return id;
	return h->userns.n_ids == 0 ? 0 : id - h->claim.uid_base + h->first_id;
}

static int start_zygote(struct helper *h, struct slot *slot, int socket)
{
	const uid_t id = h->claim.uid_base + (uid_t)(slot - h->slots);
	int stop[2] = {-1, -1};
	pid_t pid;

	if (slot->leaf.meter >= 0 && pipe2(stop, O_CLOEXEC) < 0)
		return -errno;
	struct zygote zygote = {.socket = socket,
		.life = h->life[0],
		.stop = stop[0],
		.id = id,
		.outer_id = outer_id(h, id),
		.user = h->userns.entered,
		.one_id = h->userns.entered && h->userns.n_ids == 0,
		.cgroup = h->cgroup.ops,
		.leaf = slot->leaf,
		.filter = h->filter};
	pid = clone_zygote(&slot->pidfd);
	if (pid == 0)
		zygote_main(&zygote);
	slot->stop = stop[1];
	if (stop[0] >= 0)
		close(stop[0]);
	if (pid < 0)
		close_stop(slot);
	return pid < 0 ? -errno : 0;
}

static struct slot *find_slot(struct helper *h, enum slot_state state, uint64_t id)
{
	for (unsigned i = 0; i < CLAIM_SLOTS; i++) {
		struct slot *slot = &h->slots[i];
		if (slot->state == state && (state == SLOT_FREE || slot->id == id))
			return slot;
	}
	return NULL;
}

/* Passes the executor its end of the slot's socket and those counters the kernel has, in order. */
static void announce(struct helper *h, struct slot *slot, int socket)
{
	struct wire message = {.magic = WIRE_MAGIC, .type = WIRE_SLOT_MADE, .id = slot->id};
	int fds[1 + CGROUP_READINGS];
	unsigned n = 0;

	fds[n++] = socket;
	for (unsigned i = 0; i < CGROUP_READINGS; i++) {
		if (slot->leaf.readings[i] < 0)
			continue;
		message.made.readings |= 1u << i;
		fds[n++] = slot->leaf.readings[i];
	}
	tell(h, &message, fds, n);
}

static void refuse_slot(struct helper *h, uint64_t id, const char *what, int error)
{
	struct wire message = {
		.magic = WIRE_MAGIC, .type = WIRE_SLOT_MADE, .id = id, .error = error};

	snprintf(message.text, sizeof(message.text), "cannot make a slot: %s: %s", what,
		strerror(-error));
	tell(h, &message, NULL, 0);
}

static void open_slot(struct helper *h, uint64_t id)
{
	struct slot *slot = find_slot(h, SLOT_FREE, 0);
	int pair[2];
	int error;

	if (!slot) {
		refuse_slot(h, id, "all are in use", -EAGAIN);
		return;
	}
	error = cgroup_leaf_open(&h->cgroup, (unsigned)(slot - h->slots), &slot->leaf);
	if (error < 0) {
		refuse_slot(h, id, "control groups", error);
		return;
	}
	slot->id = id;
	slot->tries = 0;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		refuse_slot(h, id, "socketpair", -errno);
		slot->state = SLOT_REMOVING;
		cgroup_leaf_close(&slot->leaf);
		return;
	}
	error = start_zygote(h, slot, pair[1]);
	close(pair[1]);
	if (error < 0) {
		refuse_slot(h, id, "clone", error);
		slot->state = SLOT_REMOVING;
		cgroup_leaf_close(&slot->leaf);
	} else {
		slot->state = SLOT_LIVE;
		announce(h, slot, pair[0]);
	}
	close(pair[0]);
}

/* --- removing one ------------------------------------------------------------------------------------- */

static void kill_slot(struct slot *slot)
{
	if (syscall(SYS_pidfd_send_signal, slot->pidfd, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
		complain("killing a slot", -errno);
	slot->state = SLOT_DYING;
	slot->kill_at_ms = 0;
}

static void close_slot(struct helper *h, uint64_t id)
{
	struct slot *slot = find_slot(h, SLOT_LIVE, id);

	if (!slot) /* it died by itself, and SLOT_GONE is on its way */
		return;
	if (slot->stop < 0) {
		kill_slot(slot);
		return;
	}
	close_stop(slot);
	slot->state = SLOT_DYING;
	slot->kill_at_ms = now_ms() + STOP_MS;
}

/* Kills who was asked in vain; else how long there is still patience, at most timeout_ms (-1: for ever). */
static int kill_if_late(struct slot *slot, int timeout_ms)
{
	int64_t left;

	if (slot->kill_at_ms == 0)
		return timeout_ms;
	left = slot->kill_at_ms - now_ms();
	if (left <= 0) {
		kill_slot(slot);
		return timeout_ms;
	}
	return timeout_ms < 0 || left < timeout_ms ? (int)left : timeout_ms;
}

static void remove_slot(struct helper *h, struct slot *slot)
{
	int error = cgroup_leaf_remove(&h->cgroup, (unsigned)(slot - h->slots));

	if (error == 0) {
		slot->state = SLOT_FREE;
	} else if (++slot->tries == REMOVE_TRIES) {
		/* Its number is not used again; the next start tries once more. */
		complain("removing a slot's control groups", error);
	}
}

/* pid 1 is dead, and with it all of the slot. */
static void on_slot_death(struct helper *h, struct slot *slot)
{
	struct wire message = {.magic = WIRE_MAGIC, .type = WIRE_SLOT_GONE, .id = slot->id};
	siginfo_t info = {0};

	if (waitid(P_PIDFD, (id_t)slot->pidfd, &info, WEXITED) < 0)
		complain("waiting for a slot", -errno);
	if (slot->state == SLOT_LIVE) {
		message.error = -ECHILD;
		snprintf(message.text, sizeof(message.text),
			info.si_code == CLD_EXITED ? "the slot's pid 1 ended with status %d"
						   : "the slot's pid 1 was killed by signal %d",
			info.si_status);
	}
	if (cgroup_sample(h->cgroup.ops, slot->leaf.readings, &message.sample) < 0 &&
		!message.error)
		message.error = -EIO;
	close(slot->pidfd);
	close_stop(slot);
	slot->kill_at_ms = 0;
	cgroup_leaf_close(&slot->leaf);
	slot->state = SLOT_REMOVING;
	tell(h, &message, NULL, 0);
	remove_slot(h, slot);
}

/* --- the loop ----------------------------------------------------------------------------------------- */

static void on_message(struct helper *h)
{
	struct wire message;
	int fds[WIRE_FDS_MAX];
	unsigned n_fds;
	int error = wire_receive(CONTROL_FD, &message, fds, &n_fds);

	if (error < 0) {
		if (error != -ECONNRESET)
			complain("reading from the executor", error);
		h->ending = true;
		return;
	}
	wire_close_fds(fds, n_fds);
	if (message.type == WIRE_SLOT_OPEN)
		open_slot(h, message.id);
	else if (message.type == WIRE_SLOT_CLOSE)
		close_slot(h, message.id);
}

/* One turn: the deaths first, so that numbers come free. False when nothing happened for all of timeout_ms. */
static bool turn(struct helper *h, int timeout_ms)
{
	struct pollfd polled[CLAIM_SLOTS + 1];
	struct slot *of[CLAIM_SLOTS + 1];
	const int given_ms = timeout_ms;
	nfds_t n = 0;

	for (unsigned i = 0; i < CLAIM_SLOTS; i++) {
		struct slot *slot = &h->slots[i];
		if (slot->state == SLOT_REMOVING && slot->tries < REMOVE_TRIES) {
			remove_slot(h, slot);
			if (slot->state == SLOT_REMOVING)
				timeout_ms = REMOVE_RETRY_MS;
		}
		if (slot->state == SLOT_DYING)
			timeout_ms = kill_if_late(slot, timeout_ms);
		if (slot->state == SLOT_LIVE || slot->state == SLOT_DYING) {
			of[n] = slot;
			polled[n++] = (struct pollfd){.fd = slot->pidfd, .events = POLLIN};
		}
	}
	of[n] = NULL;
	polled[n++] = (struct pollfd){.fd = h->ending ? -1 : CONTROL_FD, .events = POLLIN};
	if (poll(polled, n, timeout_ms) <= 0)
		return timeout_ms != given_ms;
	for (nfds_t i = 0; i < n; i++) {
		if (polled[i].revents && of[i])
			on_slot_death(h, of[i]);
		else if (polled[i].revents)
			on_message(h);
	}
	return true;
}

static bool all_gone(const struct helper *h)
{
	for (unsigned i = 0; i < CLAIM_SLOTS; i++) {
		if (h->slots[i].state != SLOT_FREE)
			return false;
	}
	return true;
}

static void end(struct helper *h)
{
	for (unsigned i = 0; i < CLAIM_SLOTS; i++) {
		if (h->slots[i].state == SLOT_LIVE)
			kill_slot(&h->slots[i]);
	}
	while (!all_gone(h) && turn(h, END_MS))
		continue;
	cgroup_close(&h->cgroup);
}

/* --- start -------------------------------------------------------------------------------------------- */

static void prepare_process(void)
{
	struct rlimit files;

	/* The executor's end is what ends us, not a terminal or a service manager's group-wide signal. */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	fcntl(CONTROL_FD, F_SETFD, FD_CLOEXEC);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* a dozen descriptors a slot */
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
}

static int claim(struct helper *h, const char *run_dir, char why[CGROUP_WHY_MAX])
{
	int error;

	if (!h->userns.entered)
		return claim_open(&h->claim, run_dir, why);
	error = claim_open_user(
		&h->claim, run_dir, h->userns.uid, h->userns.n_ids / CLAIM_SLOTS, why);
	h->first_id = 1 + h->claim.range * CLAIM_SLOTS;
	return error;
}

/* Root must have them. An ordinary user can do without: h->no_groups says why he must. */
static int open_groups(struct helper *h, char why[CGROUP_WHY_MAX])
{
	int error = cgroup_open(&h->cgroup, h->claim.group, why);

	if (error == 0 || !h->userns.entered)
		return error;
	snprintf(h->no_groups, sizeof(h->no_groups), "no control group is ours to write (%.250s)",
		why);
	cgroup_open_polled(&h->cgroup);
	return 0;
}

/* Everything root has a right to and a user may not have: a network, a proc and mounts of a slot's own. */
static int try_slot(struct helper *h, char why[CGROUP_WHY_MAX])
{
	char text[ROOT_WHY_MAX] = "no slot can be made";
	int ends[2], pidfd = -1, proc_fd;
	pid_t pid;

	if (!h->userns.entered)
		return 0;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	pid = clone_zygote(&pidfd);
	if (pid == 0) {
		int error = root_finish_slot(true, &proc_fd, text);
		_exit(error == 0 || write(ends[1], text, sizeof(text)) < 0 ? 0 : 1);
	}
	if (pid < 0)
		snprintf(
			text, sizeof(text), "cannot make a slot's namespaces: %s", strerror(errno));
	close(ends[1]);
	if (pid > 0 && read(ends[0], text, sizeof(text)) == 0)
		text[0] = '\0'; /* nothing to complain about */
	close(ends[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	if (pidfd >= 0)
		close(pidfd);
	snprintf(why, CGROUP_WHY_MAX, "%.*s", ROOT_WHY_MAX - 1, text);
	return text[0] ? -EPERM : 0;
}

static int open_all(struct helper *h, const char *run_dir, char why[CGROUP_WHY_MAX])
{
	int error;

	if (pipe2(h->life, O_CLOEXEC) < 0)
		return -errno;
	error = userns_enter(&h->userns, why);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (error == 0)
		error = claim(h, run_dir, why);
	if (error == 0)
		error = open_groups(h, why);
	if (error == 0)
		error = root_enter(h->userns.entered ? run_dir : NULL, h->userns.entered,
			h->claim.uid_base, CLAIM_SLOTS, why);
	if (error == 0)
		error = try_slot(h, why);
	if (error == 0) {
		error = filter_build(h->cgroup.ops == &cgroup_polled, &h->filter);
		if (error < 0)
			snprintf(why, CGROUP_WHY_MAX, "cannot build the system call filter: %s",
				strerror(-error));
	}
	return error;
}

static void say_tier(const struct helper *h, struct wire *hello)
{
	const char *one_id = h->userns.why_one_id, *groups = h->no_groups;

	hello->cgroup_row = cgroup_row_index(h->cgroup.ops);
	hello->tier = !h->userns.entered    ? WIRE_TIER_ROOT
		      : h->userns.n_ids > 0 ? WIRE_TIER_IDS
					    : WIRE_TIER_ONE_ID;
	if (h->userns.entered)
		snprintf(hello->text, sizeof(hello->text), "%.150s%s%.330s", one_id,
			one_id[0] && groups[0] ? "\n" : "", groups);
}

int main(int argc, char **argv)
{
	struct helper *h = calloc(1, sizeof(*h));
	struct wire hello = {.magic = WIRE_MAGIC, .type = WIRE_HELLO};
	char why[CGROUP_WHY_MAX] = "out of memory or descriptors";

	if (argc != 2 || fcntl(CONTROL_FD, F_GETFD) < 0) {
		fprintf(stderr, "usage: conclave-box RUN_DIR, by the executor, with its socket as "
				"descriptor 3\n");
		return 2;
	}
	if (!h)
		return 1;
	prepare_process();
	hello.error = open_all(h, argv[1], why);
	if (hello.error < 0) {
		snprintf(hello.text, sizeof(hello.text), "%.250s", why);
		tell(h, &hello, NULL, 0);
		return 1;
	}
	say_tier(h, &hello);
	tell(h, &hello, NULL, 0);
	while (!h->ending)
		turn(h, -1);
	end(h);
	return 0;
}
