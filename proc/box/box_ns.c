/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box_ns - the executor's side of the real sandbox.
 *
 * Theory of operation.
 *
 *   us --control socket--> conclave-box: SLOT_OPEN, SLOT_CLOSE / SLOT_MADE, SLOT_GONE
 *   us --slot socket-----> pid 1 of each slot: RUN / READY, STARTED, ENDED, COLLECTED, FAILED
 *
 * conclave-box is started by open(), as root, before the process drops to an ordinary user, or as the ordinary user we always were; from
 * then on we need no privilege: it passes us sockets and read-only descriptors of counters.
 *
 * Slot:  ORDERED -SLOT_MADE-> BUILDING -READY-> READY -slot_run-> BUSY -ENDED-> [COLLECTING -COLLECTED->] OVER
 *        any, when slot_kill or slot_close asks for it: SLOT_CLOSE sent -> SLOT_GONE. A slot leaves `slots` and is
 *        freed when both hold: the owner has closed it, and it is gone (or was never made).
 *
 * Two sockets, so two orders: SLOT_GONE may overtake an ENDED that is still in the slot's socket. Before acting on GONE
 * the slot's socket is read dry; how a program ended by itself is thus never lost to a kill that came too late.
 *
 * Counters are read here on ENDED (all processes are dead, the leaf still exists), and by conclave-box when it
 * killed the slot (the leaf is about to go): SLOT_GONE brings them.
 *
 * When conclave-box dies its slots die with it. Each running slot ends with a failure; slots that were ready are
 * stale; then, if we still may start one like it and know its path, the next slot_open() starts it again (HELLO comes
 * through the loop), else slot_open() says -EPIPE for ever. So it does when RESTARTS_MAX starts in a row brought no HELLO.
 *
 * A SLOT_CLOSE is a kill, so none may be lost. The socket has room for every message about every slot there can be; should it
 * be full nevertheless, the close stays with its slot (`close_waits`) and goes out when the socket can be written again.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proc/box/box.h"
#include "proc/box/bundle.h"
#include "proc/box/cgroup.h"
#include "proc/box/wire.h"
#include "proc/spawn.h"
#include "reactor/base/clock.h"
#include "reactor/base/list.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "reactor/io.h"
#include "reactor/loop.h"
#include "reactor/timer.h"

#define HELLO_MS 15000 /* sweeping what a crash left may take some seconds */
#define STEP_US (10 * US_PER_S)
#define CLOSE_MS 10000
#define REAP_MS 1000
#define SLOTS_MAX                                                                                  \
	200 /* not gone yet; conclave-box has room for some more, whose control groups are being removed */

/* SLOT_OPEN and SLOT_CLOSE of all slots, twice over. */
#define CONTROL_BYTES ((int)(4 * SLOTS_MAX * sizeof(struct wire)))
#define RESTARTS_MAX 3

static const char *const fixed_env[] = {
	"PATH=/usr/local/bin:/usr/bin:/bin",
	"LANG=C.UTF-8",
	"HOME=/w",
};

struct box {
	struct loop *loop;
	struct log *log;
	char *helper, *run_dir;
	int control; /* -1 = conclave-box is dead */
	bool greeted;
	unsigned restarts; /* since the last HELLO */
	struct io_watch *watch;
	struct timer hello;
	int helper_pidfd; /* -1 when somebody else started it */
	const struct cgroup_ops *cgroup;
	enum wire_tier tier;
	char *shortfall; /* why the tier is no better */
	uint64_t next_id;
	struct list slots; /* not gone yet */
	unsigned n_slots;
};

enum slot_state { SLOT_ORDERED, SLOT_BUILDING, SLOT_READY, SLOT_BUSY, SLOT_COLLECTING, SLOT_OVER };

struct box_slot {
	struct list link;
	struct box *box;
	uint64_t id;
	enum slot_state state;
	bool gone;    /* SLOT_GONE, or never made */
	bool closing; /* SLOT_CLOSE was sent, or waits to be */
	bool close_waits;
	bool closed; /* by its owner: no callbacks any more */
	bool released;
	struct op op;
	void (*on_ready)(void *arg, struct box_slot *slot, const char *why);
	const struct box_slot_events *events;
	void *arg;
	int socket;
	struct io_watch *watch;
	int readings[CGROUP_READINGS];
	struct timer deadline; /* of making it, and of its going */
	int64_t started_us;    /* 0 = not yet */
	int64_t own_cpu_us;    /* of the launcher, in the counter before the program's */
	struct box_slot_end end;
	uint64_t collect_max;
	int collect_fd;
};

/* --- conclave-box itself ------------------------------------------------------------------------------ */

static void kill_by_pidfd(int pidfd)
{
	syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0); /* ESRCH when it is dead already */
}

static void on_control(void *arg, unsigned events);
static void lose_helper(struct box *box, const char *why);

/* Root has the right to FORCE it past net.core.wmem_max; anybody else gets what he gets, and waits for room. */
static void make_room(int control)
{
	int bytes = CONTROL_BYTES;

	if (setsockopt(control, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) < 0)
		setsockopt(control, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

/* Starts it; *out is our end of the control socket. */
static int start_helper(struct box *box, char **why)
{
	const char *argv[] = {box->helper, box->run_dir, NULL};
	struct spawn_spec spec = {.argv = (char *const *)argv, .new_session = true};
	struct spawned child;
	int pair[2];
	int error;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	spec.fds[spec.n_fds++] = (struct spawn_fd){pair[1], 3};
	spec.fds[spec.n_fds++] = (struct spawn_fd){2, 2};
	error = spawn(&spec, &child);
	close(pair[1]);
	if (error < 0) {
		if (why)
			*why = mem_printf("cannot start %s: %s: %s", box->helper, child.step,
				strerror(-error));
		close(pair[0]);
		return error;
	}
	make_room(pair[0]);
	box->control = pair[0];
	box->helper_pidfd = child.pidfd;
	box->greeted = false;
	return 0;
}

static const char *ns_describe(const struct box *box, const char **why)
{
	static const char *const by_tier[WIRE_TIERS][2] = {
		[WIRE_TIER_ROOT] = {"full", "full"},
		[WIRE_TIER_IDS] = {"rootless", "rootless, limits polled"},
		[WIRE_TIER_ONE_ID] = {"rootless, one uid", "rootless, one uid, limits polled"},
	};

	*why = box->shortfall ? box->shortfall : "";
	return by_tier[box->tier][box->cgroup == &cgroup_polled];
}

/* 0, or -errno with *why. */
static int take_hello(struct box *box, const struct wire *message, char **why)
{
	const char *ignored;

	if (message->type != WIRE_HELLO ||
		(message->error == 0 &&
			(!cgroup_row(message->cgroup_row) || message->tier >= WIRE_TIERS))) {
		*why = mem_strdup("conclave-box is of another version");
		return -EPROTO;
	}
	if (message->error < 0) {
		*why = mem_strdup(message->text);
		return message->error;
	}
	box->cgroup = cgroup_row(message->cgroup_row);
	box->tier = message->tier;
	free(box->shortfall);
	box->shortfall = mem_strdup(message->text);
	box->greeted = true;
	box->restarts = 0;
	log_info(box->log, "box_helper", "cgroup=%s isolation=\"%s\"", box->cgroup->name,
		ns_describe(box, &ignored));
	return 0;
}

static int wait_hello(struct box *box, char **why)
{
	struct pollfd p = {.fd = box->control, .events = POLLIN};
	struct wire message;
	int fds[WIRE_FDS_MAX];
	unsigned n_fds;
	int error;

	if (poll(&p, 1, HELLO_MS) != 1) {
		*why = mem_strdup("conclave-box did not answer in time");
		return -ETIMEDOUT;
	}
	error = wire_receive(box->control, &message, fds, &n_fds);
	if (error < 0) {
		*why = mem_printf("conclave-box ended at start: %s", strerror(-error));
		return error;
	}
	wire_close_fds(fds, n_fds);
	return take_hello(box, &message, why);
}

static void watch_control(struct box *box)
{
	box->watch = io_new(box->loop, box->control, IO_READ, on_control, box);
}

/* It is dead or, since its socket has closed, about to be. */
static void reap_helper(struct box *box)
{
	struct pollfd p = {.fd = box->helper_pidfd, .events = POLLIN};
	siginfo_t info;

	if (box->helper_pidfd < 0)
		return;
	if (poll(&p, 1, REAP_MS) != 1 ||
		waitid(P_PIDFD, (id_t)box->helper_pidfd, &info, WEXITED) < 0)
		log_warn(box->log, "box_helper", "action=left_to_init");
	close(box->helper_pidfd);
	box->helper_pidfd = -1;
}

static void on_hello_late(void *arg)
{
	struct box *box = arg;

	if (box->helper_pidfd >= 0)
		kill_by_pidfd(box->helper_pidfd);
	lose_helper(box, "conclave-box did not answer in time");
}

/* Root makes all of it again; an ordinary user too, unless he has given up newuidmap since. */
static bool can_restart(const struct box *box)
{
	bool may = geteuid() == 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0;

	return box->helper && may && box->restarts < RESTARTS_MAX;
}

static int restart_helper(struct box *box)
{
	int error;

	box->restarts++;
	error = start_helper(box, NULL);

	if (error < 0)
		return error;
	error = io_set_nonblocking(box->control);
	if (error < 0)
		return error;
	log_warn(
		box->log, "box_helper", "action=restart try=%u of=%d", box->restarts, RESTARTS_MAX);
	watch_control(box);
	timer_start(&box->hello, HELLO_MS * US_PER_MS);
	return -EAGAIN;
}

/* --- a slot's end ------------------------------------------------------------------------------------- */

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void slot_free(void *p)
{
	free(p);
}

static void slot_hang_up(struct box_slot *slot)
{
	io_free(slot->watch);
	slot->watch = NULL;
	close_fd(&slot->socket);
	for (unsigned i = 0; i < CGROUP_READINGS; i++)
		close_fd(&slot->readings[i]);
}

static void slot_release(struct box_slot *slot)
{
	if (slot->released) /* its owner closed it from the callback that said it had ended */
		return;
	slot->released = true;
	slot->box->n_slots--;
	slot_hang_up(slot);
	close_fd(&slot->collect_fd);
	timer_stop(&slot->deadline);
	list_del(&slot->link);
	loop_free_later(slot->box->loop, slot_free, slot);
}

/* Tells the owner, once. */
static void slot_end(struct box_slot *slot)
{
	if (slot->state == SLOT_OVER)
		return;
	slot->state = SLOT_OVER;
	timer_stop(&slot->deadline);
	if (slot->closed) {
		close_fd(&slot->end.files_fd);
		return;
	}
	slot->events->on_ended(slot->arg, &slot->end);
}

static void slot_fail(struct box_slot *slot, const char *why)
{
	close_fd(&slot->end.files_fd);
	slot->end = (struct box_slot_end){.failure = why, .status = -1, .files_fd = -1};
	slot_end(slot);
}

/* It will not become ready. */
static void slot_stillborn(struct box_slot *slot, const char *why)
{
	bool closed = slot->closed;
	void (*on_ready)(void *, struct box_slot *, const char *) = slot->on_ready;
	void *arg = slot->arg;

	slot->closed = true;
	slot->state = SLOT_OVER;
	if (slot->gone)
		slot_release(slot);
	if (!closed)
		on_ready(arg, NULL, why);
}

static bool is_young(const struct box_slot *slot)
{
	return slot->state == SLOT_ORDERED || slot->state == SLOT_BUILDING;
}

static bool is_running(const struct box_slot *slot)
{
	return slot->state == SLOT_BUSY || slot->state == SLOT_COLLECTING;
}

/* False when the socket is full. */
static bool try_close(struct box_slot *slot)
{
	struct wire message = {.magic = WIRE_MAGIC, .type = WIRE_SLOT_CLOSE, .id = slot->id};
	int error = wire_send(slot->box->control, &message, NULL, 0);

	slot->close_waits = error == -EAGAIN || error == -ENOBUFS;
	if (error < 0 && !slot->close_waits) /* conclave-box is dying, and its slots with it */
		log_error(slot->box->log, "box_slot", "id=%llu close_error=%d",
			(unsigned long long)slot->id, error);
	return !slot->close_waits;
}

static void send_close(struct box_slot *slot)
{
	struct box *box = slot->box;

	if (slot->closing || slot->gone || box->control < 0)
		return;
	slot->closing = true;
	timer_start(&slot->deadline, STEP_US);
	if (try_close(slot))
		return;
	log_warn(box->log, "box_slot", "id=%llu close=waits", (unsigned long long)slot->id);
	if (box->watch)
		io_set(box->watch, IO_READ | IO_WRITE);
}

/* The control socket has room again. */
static void send_waiting_closes(struct box *box)
{
	list_each (it, &box->slots) {
		struct box_slot *slot = list_entry(it, struct box_slot, link);

		if (!slot->close_waits || slot->gone)
			continue;
		if (!try_close(slot))
			return;
		timer_start(&slot->deadline, STEP_US);
	}
	io_set(box->watch, IO_READ);
}

static int64_t without_launcher(const struct box_slot *slot, int64_t cpu_us)
{
	return cpu_us > slot->own_cpu_us ? cpu_us - slot->own_cpu_us : 0;
}

static void take_sample(struct box_slot *slot, const struct cgroup_sample *sample)
{
	struct box_slot_end *end = &slot->end;

	end->cpu_us = without_launcher(slot, sample->cpu_us);
	end->memory_bytes = sample->memory_bytes;
	end->oom_kills = sample->oom_kills;
	end->limit_ooms = sample->limit_ooms;
	end->has_limit_ooms = sample->has_limit_ooms;
	end->pids_refused = sample->pids_refused;
}

static void on_slot_socket(void *arg, unsigned events);

static void on_gone(struct box_slot *slot, const struct wire *message)
{
	bool running;

	if (slot->socket >= 0)
		on_slot_socket(slot, IO_READ);
	slot->gone = true;
	timer_stop(&slot->deadline);
	if (is_young(slot)) {
		slot_stillborn(slot, message->error ? message->text : "the slot ended");
		return;
	}
	running = is_running(slot);
	slot_hang_up(slot);
	if (running)
		slot->end.status =
			-1; /* collecting too: it was killed before all it should give was there */
	if (running && slot->state == SLOT_BUSY) {
		slot->end.wall_us = slot->started_us == 0
					    ? 0
					    : loop_now_exact_us(slot->box->loop) - slot->started_us;
		take_sample(slot, &message->sample);
	}
	if (running && message->error < 0)
		slot_fail(slot,
			message->text[0] ? message->text : "the slot's counters cannot be read");
	else if (running)
		slot_end(slot);
	if (slot->closed)
		slot_release(slot);
}

static void on_slot_deadline(void *arg)
{
	struct box_slot *slot = arg;

	if (is_young(slot)) {
		log_error(slot->box->log, "box_slot", "id=%llu late=make",
			(unsigned long long)slot->id);
		send_close(slot);
		slot_stillborn(slot, "a slot was not ready in time");
		return;
	}
	log_error(slot->box->log, "box_slot", "id=%llu late=gone action=%s",
		(unsigned long long)slot->id, slot->close_waits ? "keep_asking" : "abandon");
	/* Nobody may think it gone who has not even been able to ask for it: the request stays. */
	slot->gone = !slot->close_waits;
	if (is_running(slot))
		slot_fail(slot, "the slot's processes did not die in time");
	if (slot->closed && slot->gone)
		slot_release(slot);
}

/* --- messages of a slot ------------------------------------------------------------------------------- */

static void on_ready(struct box_slot *slot)
{
	void (*ready)(void *, struct box_slot *, const char *) = slot->on_ready;

	if (!slot->closing)
		timer_stop(&slot->deadline);
	slot->state = SLOT_READY;
	slot->on_ready = NULL;
	if (!slot->closed)
		ready(slot->arg, slot, NULL);
}

static void on_started(struct box_slot *slot, const struct wire *message)
{
	slot->own_cpu_us = message->own_cpu_us;
	slot->started_us = loop_now_exact_us(slot->box->loop);
	if (!slot->closed)
		slot->events->on_started(slot->arg);
}

static bool expects_files(const struct box_slot *slot)
{
	int status = slot->end.status;

	return slot->collect_fd >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void on_ended(struct box_slot *slot, const struct wire *message)
{
	struct cgroup_sample sample;
	int error = cgroup_sample(slot->box->cgroup, slot->readings, &sample);

	/* Killed meanwhile, and its groups are removed already: SLOT_GONE brings what they counted. */
	if (error < 0 && slot->closing)
		return;
	if (error < 0) {
		slot_fail(slot, "the slot's counters cannot be read");
		return;
	}
	take_sample(slot, &sample);
	slot->end.status = message->ended.status;
	slot->end.wall_us = message->ended.wall_us;
	if (!expects_files(slot)) {
		slot_end(slot);
		return;
	}
	slot->state = SLOT_COLLECTING;
	if (!slot->closed)
		slot->events->on_dead(slot->arg);
}

static void on_collected(struct box_slot *slot, const struct wire *message)
{
	struct bundle bundle;
	int error = message->error;

	if (error == 0)
		error = bundle_seal(slot->collect_fd);
	if (error == 0)
		error = bundle_open(slot->collect_fd, slot->collect_max, &bundle);
	if (error == 0) {
		bundle_close(&bundle);
		slot->end.files_fd = slot->collect_fd;
		slot->collect_fd = -1;
	}
	slot->end.files_refused = error == -EFBIG;
	if (error < 0 && error != -EFBIG)
		slot_fail(slot, "the files the program left cannot be collected");
	else
		slot_end(slot);
}

static void on_slot_message(struct box_slot *slot, const struct wire *message)
{
	if (message->type == WIRE_READY && slot->state == SLOT_BUILDING) {
		on_ready(slot);
	} else if (message->type == WIRE_STARTED && slot->state == SLOT_BUSY) {
		on_started(slot, message);
	} else if (message->type == WIRE_ENDED && slot->state == SLOT_BUSY) {
		on_ended(slot, message);
	} else if (message->type == WIRE_COLLECTED && slot->state == SLOT_COLLECTING) {
		on_collected(slot, message);
	} else if (message->type == WIRE_FAILED && is_running(slot)) {
		log_error(slot->box->log, "box_slot", "id=%llu failed=\"%s\"",
			(unsigned long long)slot->id, message->text);
		slot_fail(slot, message->text);
	} else if (message->type == WIRE_FAILED && is_young(slot)) {
		send_close(slot);
		slot_stillborn(slot, message->text);
	}
}

/* Reads the socket dry. A hang-up is no news: SLOT_GONE follows with the reason. */
static void on_slot_socket(void *arg, unsigned events)
{
	struct box_slot *slot = arg;
	struct wire message;
	int fds[WIRE_FDS_MAX];
	unsigned n_fds;

	while (slot->socket >= 0) {
		int error = wire_receive(slot->socket, &message, fds, &n_fds);
		if (error == -EAGAIN)
			return;
		if (error < 0) {
			io_free(slot->watch);
			slot->watch = NULL;
			close_fd(&slot->socket);
			return;
		}
		wire_close_fds(fds, n_fds);
		on_slot_message(slot, &message);
	}
}

/* --- messages of conclave-box ------------------------------------------------------------------------- */

static struct box_slot *find_slot(struct box *box, uint64_t id)
{
	list_each (it, &box->slots) {
		struct box_slot *slot = list_entry(it, struct box_slot, link);
		if (slot->id == id)
			return slot;
	}
	return NULL;
}

static bool take_slot_fds(struct box_slot *slot, uint32_t readings, int *fds, unsigned n_fds)
{
	unsigned next = 1;

	if (n_fds == 0)
		return false;
	slot->socket = fds[0];
	fds[0] = -1;
	for (unsigned i = 0; i < CGROUP_READINGS; i++) {
		if (!(readings & 1u << i))
			continue;
		if (next == n_fds)
			return false;
		slot->readings[i] = fds[next];
		fds[next++] = -1;
	}
	return next == n_fds && io_set_nonblocking(slot->socket) == 0;
}

static void on_made(struct box_slot *slot, const struct wire *message, int *fds, unsigned n_fds)
{
	if (slot->state != SLOT_ORDERED)
		return; /* given up meanwhile; the close is on its way */
	if (message->error < 0) {
		slot->gone = true;
		slot_stillborn(slot, message->text);
		return;
	}
	slot->state = SLOT_BUILDING;
	if (!take_slot_fds(slot, message->made.readings, fds, n_fds)) {
		send_close(slot);
		slot_stillborn(slot, "conclave-box sent a malformed message");
		return;
	}
	slot->watch = io_new(slot->box->loop, slot->socket, IO_READ, on_slot_socket, slot);
}

static void on_helper_message(struct box *box, const struct wire *message, int *fds, unsigned n_fds)
{
	struct box_slot *slot;
	char *why cleanup(mem_freep) = NULL;

	if (!box->greeted) {
		timer_stop(&box->hello);
		if (take_hello(box, message, &why) < 0)
			lose_helper(box, why);
		return;
	}
	slot = find_slot(box, message->id);
	if (!slot)
		return;
	if (message->type == WIRE_SLOT_MADE)
		on_made(slot, message, fds, n_fds);
	else if (message->type == WIRE_SLOT_GONE)
		on_gone(slot, message);
}

static void on_control(void *arg, unsigned events)
{
	struct box *box = arg;
	struct wire message;
	int fds[WIRE_FDS_MAX];
	unsigned n_fds;

	if (events & IO_WRITE)
		send_waiting_closes(box);
	while (box->control >= 0) {
		int error = wire_receive(box->control, &message, fds, &n_fds);
		if (error == -EAGAIN)
			return;
		if (error < 0) {
			lose_helper(box, "conclave-box died");
			return;
		}
		on_helper_message(box, &message, fds, n_fds);
		wire_close_fds(fds, n_fds);
	}
}

static void lose_helper(struct box *box, const char *why)
{
	log_error(box->log, "box_helper", "lost=\"%s\"", why);
	timer_stop(&box->hello);
	io_free(box->watch);
	box->watch = NULL;
	close_fd(&box->control);
	reap_helper(box);
	box->greeted = false;
	list_each_safe (it, &box->slots) {
		struct box_slot *slot = list_entry(it, struct box_slot, link);
		slot->gone = true;
		if (is_young(slot)) {
			slot_stillborn(slot, why);
			continue;
		}
		slot_hang_up(slot);
		if (is_running(slot))
			slot_fail(slot, why);
		if (slot->closed)
			slot_release(slot);
	}
}

/* --- the row: box ------------------------------------------------------------------------------------- */

static int open_helper(struct box *box, const struct box_options *options, char **why)
{
	int error;

	if (!options->helper && options->helper_fd >= 0) {
		box->control = options->helper_fd;
	} else if (!options->helper || !options->run_dir) {
		*why = mem_strdup("no conclave-box was given");
		return -EINVAL;
	} else {
		error = start_helper(box, why);
		if (error < 0)
			return error;
	}
	error = wait_hello(box, why);
	return error < 0 ? error : io_set_nonblocking(box->control);
}

static void box_free(struct box *box)
{
	close_fd(&box->control);
	reap_helper(box);
	free(box->helper);
	free(box->run_dir);
	free(box->shortfall);
	free(box);
}

static int ns_open(
	struct loop *loop, const struct box_options *options, struct box **out, char **why)
{
	struct box *box = mem_alloc(sizeof(*box));
	int error;

	*out = NULL;
	box->loop = loop;
	box->log = options->log;
	box->helper = mem_strdup(options->helper);
	box->run_dir = mem_strdup(options->run_dir);
	box->control = box->helper_pidfd = -1;
	list_init(&box->slots);
	timer_init(&box->hello, loop, on_hello_late, box);
	error = open_helper(box, options, why);
	if (error < 0) {
		box_free(box);
		return error;
	}
	watch_control(box);
	*out = box;
	return 0;
}

/* EOF tells conclave-box to kill and remove everything; it exits when that is done. */
static void ns_close(struct box *box)
{
	struct pollfd p;

	timer_stop(&box->hello);
	io_free(box->watch);
	list_each_safe (it, &box->slots) {
		slot_release(list_entry(it, struct box_slot, link));
	}
	if (box->control >= 0)
		shutdown(box->control, SHUT_WR);
	p = (struct pollfd){
		.fd = box->helper_pidfd >= 0 ? box->helper_pidfd : box->control, .events = POLLIN};
	while (p.fd >= 0 && poll(&p, 1, CLOSE_MS) == 1 && box->helper_pidfd < 0) {
		char drop[sizeof(struct wire)];
		if (recv(box->control, drop, sizeof(drop), MSG_DONTWAIT) <= 0)
			break;
	}
	if (box->helper_pidfd >= 0)
		kill_by_pidfd(box->helper_pidfd); /* past its time; no effect when it is done */
	box_free(box);
}

/* --- the row: slots ----------------------------------------------------------------------------------- */

static void cancel_open(struct op *op)
{
	struct box_slot *slot = container_of(op, struct box_slot, op);

	slot->closed = true;
	send_close(slot);
}

static int ns_slot_open(struct box *box,
	void (*ready)(void *arg, struct box_slot *slot, const char *why), void *arg, struct op **op)
{
	struct wire message = {.magic = WIRE_MAGIC, .type = WIRE_SLOT_OPEN};
	struct box_slot *slot;
	int error;

	if (box->control < 0)
		return can_restart(box) ? restart_helper(box) : -EPIPE;
	if (!box->greeted || box->n_slots >= SLOTS_MAX)
		return -EAGAIN;
	message.id = ++box->next_id;
	error = wire_send(box->control, &message, NULL, 0);
	if (error < 0)
		return error == -EAGAIN ? -EAGAIN : -EIO;
	slot = mem_alloc(sizeof(*slot));
	slot->box = box;
	slot->id = message.id;
	slot->on_ready = ready;
	slot->arg = arg;
	slot->socket = slot->collect_fd = slot->end.files_fd = -1;
	for (unsigned i = 0; i < CGROUP_READINGS; i++)
		slot->readings[i] = -1;
	timer_init(&slot->deadline, box->loop, on_slot_deadline, slot);
	timer_start(&slot->deadline, STEP_US);
	list_add_tail(&box->slots, &slot->link);
	box->n_slots++;
	slot->op.cancel = cancel_open;
	*op = &slot->op;
	return 0;
}

static bool is_named(const char *entry, const char *like)
{
	size_t n = strcspn(like, "=");

	return strncmp(entry, like, n) == 0 && entry[n] == '=';
}

static bool is_overridden(const char *fixed, char *const *env)
{
	for (; env && *env; env++) {
		if (is_named(*env, fixed))
			return true;
	}
	return false;
}

static void add_string(struct buf *payload, const char *s, uint32_t *n)
{
	buf_add(payload, s, strlen(s) + 1);
	(*n)++;
}

/* argv and environment in a memfd: they may be larger than a packet. */
static int make_payload(const struct box_spec *spec, struct wire_run *run)
{
	struct buf payload cleanup(buf_fini) = BUF_INIT;
	int fd;

	for (char *const *s = spec->argv; *s; s++)
		add_string(&payload, *s, &run->n_argv);
	for (size_t i = 0; i < ARRAY_SIZE(fixed_env); i++) {
		if (!is_overridden(fixed_env[i], spec->env))
			add_string(&payload, fixed_env[i], &run->n_env);
	}
	for (char *const *s = spec->env; s && *s; s++)
		add_string(&payload, *s, &run->n_env);
	if (payload.len > WIRE_PAYLOAD_MAX)
		return -E2BIG;
	run->payload_size = (uint32_t)payload.len;
	fd = memfd_create("payload", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (pwrite(fd, payload.data, payload.len, 0) != (ssize_t)payload.len) {
		close(fd);
		return -EIO;
	}
	return fd;
}

static int send_run(
	struct box_slot *slot, const struct box_start *start, int payload_fd, struct wire *message)
{
	const struct box_spec *spec = start->spec;
	struct wire_run *run = &message->run;
	int fds[WIRE_FDS_MAX] = {payload_fd, start->stdout_fd, start->stderr_fd};
	unsigned n = 3;

	run->collect_max = spec->collect_max;
	run->cpu_us = spec->limits.cpu_us;
	run->memory_bytes = spec->limits.memory_bytes;
	run->file_bytes = spec->limits.file_bytes;
	run->processes = spec->limits.processes;
	run->stack_bytes = spec->limits.stack_bytes;
	if (start->stdin_fd >= 0) {
		run->flags |= WIRE_RUN_STDIN;
		fds[n++] = start->stdin_fd;
	}
	if (spec->files_fd >= 0) {
		run->flags |= WIRE_RUN_FILES;
		fds[n++] = spec->files_fd;
	}
	if (spec->collect) {
		run->flags |= WIRE_RUN_COLLECT;
		fds[n++] = slot->collect_fd;
	}
	if (spec->files_read_only)
		run->flags |= WIRE_RUN_READ_ONLY;
	return wire_send(slot->socket, message, fds, n);
}

static int ns_slot_run(struct box_slot *slot, const struct box_start *start,
	const struct box_slot_events *events, void *arg)
{
	struct wire message = {.magic = WIRE_MAGIC, .type = WIRE_RUN};
	int payload_fd, error;

	CHECK(slot->state == SLOT_READY);
	if (slot->gone || slot->socket < 0)
		return -ESTALE;
	if (start->spec->collect) {
		error = bundle_create(&slot->collect_fd);
		if (error < 0)
			return error;
		slot->collect_max = start->spec->collect_max;
	}
	payload_fd = make_payload(start->spec, &message.run);
	if (payload_fd < 0)
		return payload_fd;
	error = send_run(slot, start, payload_fd, &message);
	close(payload_fd);
	if (error == -EPIPE || error == -ECONNRESET)
		return -ESTALE;
	if (error < 0)
		return error;
	slot->state = SLOT_BUSY;
	slot->events = events;
	slot->arg = arg;
	return 0;
}

static void ns_slot_kill(struct box_slot *slot)
{
	send_close(slot);
}

static bool ns_slot_reset(struct box_slot *slot)
{
	return false; /* single use: fresh for every run */
}

static void ns_slot_close(struct box_slot *slot)
{
	slot->closed = true;
	if (slot->gone)
		slot_release(slot);
	else
		send_close(slot);
}

static int64_t ns_slot_cpu_us(struct box_slot *slot)
{
	int64_t us;
	int error = cgroup_cpu_us(slot->box->cgroup, slot->readings[CGROUP_CPU], &us);

	return error < 0 ? error : without_launcher(slot, us);
}

const struct box_ops box_ns = {
	.name = "ns",
	.isolation = "full",
	.describe = ns_describe,
	.open = ns_open,
	.close = ns_close,
	.slot_open = ns_slot_open,
	.slot_run = ns_slot_run,
	.slot_kill = ns_slot_kill,
	.slot_reset = ns_slot_reset,
	.slot_close = ns_slot_close,
	.slot_cpu_us = ns_slot_cpu_us,
};
