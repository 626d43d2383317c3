/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A packet is either taken whole, with all its descriptors, or refused and its descriptors closed: no half
 * states. Received descriptors are close-on-exec from the first moment.
 */
#include "proc/box/wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
	struct cmsghdr header;
	char space[CMSG_SPACE(sizeof(int) * WIRE_FDS_MAX)];
};

int wire_send(int socket, const struct wire *message, const int *fds, unsigned n_fds)
{
	struct iovec iov = {(void *)(uintptr_t)message, sizeof(*message)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	union control control;
	ssize_t n;

	if (n_fds > WIRE_FDS_MAX)
		return -EINVAL;
	if (n_fds > 0) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = control.space;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
	}
	do {
		n = sendmsg(socket, &msg, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return n == (ssize_t)sizeof(*message) ? 0 : -EPROTO;
}

static void take_fds(struct msghdr *msg, int fds[WIRE_FDS_MAX], unsigned *n_fds)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(c),
			n * sizeof(int)); /* the buffer holds no more than the maximum */
		*n_fds = (unsigned)n;
	}
}

int wire_receive(int socket, struct wire *message, int fds[WIRE_FDS_MAX], unsigned *n_fds)
{
	struct iovec iov = {message, sizeof(*message)};
	union control control;
	struct msghdr msg = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.space,
		.msg_controllen = sizeof(control.space)};
	ssize_t n;

	*n_fds = 0;
	do {
		n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	take_fds(&msg, fds, n_fds);
	if (n == 0 && *n_fds == 0)
		return -ECONNRESET;
	if (n == (ssize_t)sizeof(*message) && !(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
		message->magic == WIRE_MAGIC) {
		message->text[WIRE_TEXT_MAX - 1] = '\0';
		return 0;
	}
	wire_close_fds(fds, *n_fds);
	*n_fds = 0;
	return -EPROTO;
}

void wire_close_fds(int *fds, unsigned n_fds)
{
	for (unsigned i = 0; i < n_fds; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}
