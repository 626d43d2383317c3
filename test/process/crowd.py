#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that read from a gateway without pause, and what can be seen of its workers' sockets.

    crowd.py run PORT CLIENTS      until SIGTERM; a line `failed LOCAL-PORT WHY` for each request without a whole answer, and
                                   at the end `answered N`, `failed N`, `slowest_ms N`
    crowd.py accepted PORT PID     the clients' ports of the connections that the process has accepted
    crowd.py queued PORT PID       how many connections wait at its listening socket
    crowd.py shown PORT PID        the SHA-256 of the certificate that this process shows, of those that share the port
"""
import asyncio
import hashlib
import os
import re
import signal
import socket
import ssl
import sys
import time

PATHS = ("/healthz", "/api/v1/tasks?limit=5", "/api/v1/languages")
A_CONNECTION = 10  # requests
ANSWER_S = 60
TRIES = 200  # connections, until one is accepted by a certain process


class Crowd:
    def __init__(self, port):
        self.port = port
        self.stopped = False
        self.answered = self.failed = 0
        self.slowest = 0.0

    def fail(self, port, why):
        self.failed += 1
        print("failed", port, why, flush=True)

    async def ask(self, reader, writer, path):
        began = time.monotonic()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"\r\nContent-Length: (\d+)\r\n", head)[1])
        await reader.readexactly(length)
        # 503: the judicator is away; that is an answer.
        if head.split(b" ")[1] not in (b"200", b"503"):
            raise ValueError(head.split(b"\r\n")[0].decode())
        self.answered += 1
        self.slowest = max(self.slowest, time.monotonic() - began)

    async def one_connection(self, number):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError as error:
            self.fail(0, repr(error))
            return
        port = writer.get_extra_info("sockname")[1]
        try:
            for i in range(A_CONNECTION):
                if not self.stopped:
                    await asyncio.wait_for(self.ask(reader, writer, PATHS[(number + i) % len(PATHS)]), ANSWER_S)
        except (OSError, EOFError, ValueError, asyncio.TimeoutError) as error:
            self.fail(port, repr(error))
        writer.close()

    async def client(self, number):
        while not self.stopped:
            await self.one_connection(number)

    def stop(self):
        self.stopped = True

    async def run(self, clients):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stop)
        await asyncio.gather(*(self.client(i) for i in range(clients)))
        print("answered", self.answered, "\nfailed", self.failed, "\nslowest_ms", int(self.slowest * 1000), flush=True)


def sockets(port, pid):
    """Rows of /proc/net/tcp that are the process's and at this port: (state, the other's port, queued)."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            continue
        if found:
            inodes.add(found[1])
    with open("/proc/net/tcp") as table:
        next(table)
        for line in table:
            f = line.split()
            if f[9] in inodes and int(f[1].split(":")[1], 16) == port:
                yield f[3], int(f[2].split(":")[1], 16), int(f[4].split(":")[1], 16)


def shown(port, pid):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for _ in range(TRIES):
        with socket.create_connection(("127.0.0.1", port), ANSWER_S) as plain, context.wrap_socket(plain) as tls:
            mine = tls.getsockname()[1]
            if any(peer == mine and state != "0A" for state, peer, _ in sockets(port, pid)):
                return hashlib.sha256(tls.getpeercert(binary_form=True)).hexdigest()
    sys.exit(f"{pid} accepted none of {TRIES} connections")


def main():
    what, port, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if what == "run":
        asyncio.run(Crowd(port).run(number))
    elif what == "accepted":
        for state, peer, _ in sockets(port, number):
            if state != "0A":
                print(peer)
    elif what == "queued":
        print(sum(n for state, _, n in sockets(port, number) if state == "0A"))
    elif what == "shown":
        print(shown(port, number))
    else:
        sys.exit(__doc__)


main()
