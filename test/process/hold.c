/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hold FILE - takes the pid file's lock (asking for ten seconds at most), says "held", and keeps it until its standard
 * input ends. What an administrator's `hold` does, for tests.
 */
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "proc/pidfile.h"

#define TRIES 1000
#define PAUSE_MS 10

int main(int argc, char **argv)
{
	int fd, error = PIDFILE_E_LOCKED;
	char bytes[64];

	if (argc != 2) {
		fprintf(stderr, "usage: hold FILE\n");
		return 2;
	}
	for (int i = 0; i < TRIES && error == PIDFILE_E_LOCKED; i++) {
		error = pidfile_lock(argv[1], &fd);
		if (error == PIDFILE_E_LOCKED)
			poll(NULL, 0, PAUSE_MS);
	}
	if (error) {
		fprintf(stderr, "hold: %s: not locked (%d)\n", argv[1], error);
		return 1;
	}
	puts("held");
	fflush(stdout);
	while (read(STDIN_FILENO, bytes, sizeof(bytes)) > 0)
		;
	pidfile_unlock(&fd);
	return 0;
}
