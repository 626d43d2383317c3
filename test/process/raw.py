# SPDX-License-Identifier: Apache-2.0
"""raw - bytes to a socket, and what comes back read strictly: for tests of what no well-behaved client sends.

An exchange is one connection. What it must bring is one whole answer and nothing else: a status line, headers, exactly the body that
Content-Length or chunks announce. Behind an answer with `Connection: close` comes the end of the connection; behind any other the
same connection must answer GET /healthz. Interim answers (100) are kept apart. After each exchange a new connection must find the server healthy.

A test is a program that fills a Suite and calls run(): one line a case, "ok DESCRIPTION" or "not ok DESCRIPTION: WHY".
"""
import json
import re
import select
import socket
import time

DEADLINE_S = 60
CLOSE = 0  # a clean close without an answer: all that the parser allows


class Wrong(Exception):
    """What came is not what had to come."""


def expect(condition, why):
    if not condition:
        raise Wrong(why)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def header(self, name):
        values = [value for key, value in self.headers if key == name.lower()]
        expect(len(values) <= 1, f"{len(values)} headers {name}")
        return values[0] if values else None

    def json(self):
        return json.loads(self.body.decode("utf-8"), parse_constant=lambda word: expect(False, f"{word} in JSON"))


class Partial(Exception):
    """The bytes so far are the beginning of an answer."""


def cut(data, separator):
    at = data.find(separator)
    if at < 0:
        raise Partial()
    return data[:at], data[at + len(separator):]


def parse_chunks(data):
    body = b""
    while True:
        size, data = cut(data, b"\r\n")
        expect(re.fullmatch(rb"[0-9a-fA-F]{1,8}", size), f"chunk size {size[:40]!r}")
        n = int(size, 16)
        if len(data) < n + 2:
            raise Partial()
        expect(data[n:n + 2] == b"\r\n", "a chunk does not end where it says")
        body, data = body + data[:n], data[n + 2:]
        if n == 0:
            return body, data


def parse_answer(data, is_head=False):
    """(Answer, what follows it); Partial when it is not whole yet; Wrong when it is none."""
    head, rest = cut(data, b"\r\n\r\n")
    lines = head.split(b"\r\n")
    match = re.fullmatch(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [ -~]+", lines[0])
    expect(match, f"status line {lines[0][:80]!r}")
    headers = []
    for line in lines[1:]:
        field = re.fullmatch(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([ -~]*)", line)
        expect(field, f"header {line[:80]!r}")
        headers.append((field[1].decode().lower(), field[2].decode()))
    answer = Answer(int(match[1]), headers, b"")
    if answer.status < 200 or answer.status in (204, 304) or is_head:
        return answer, rest
    length, encoding = answer.header("Content-Length"), answer.header("Transfer-Encoding")
    expect((length is None) != (encoding is None), "neither or both of Content-Length and Transfer-Encoding")
    if encoding is not None:
        expect(encoding == "chunked", f"Transfer-Encoding {encoding}")
        answer.body, rest = parse_chunks(rest)
        return answer, rest
    n = int(length)
    if len(rest) < n:
        raise Partial()
    answer.body = rest[:n]
    return answer, rest[n:]


class Connection:
    """Sends while it reads, so that neither side can block the other."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self.socket.setblocking(False)
        self.deadline = time.monotonic() + DEADLINE_S
        self.data = b""
        self.ended = self.reset = False
        self.output = b""

    def send(self, data):
        self.output += data

    def step(self, dribble=0):
        """What can be sent is sent, what can be read is read; with dribble, a byte in so many seconds."""
        left = self.deadline - time.monotonic()
        expect(left > 0, f"nothing more came within {DEADLINE_S} s; so far {self.data[:200]!r}")
        want = [self.socket] if self.output and not dribble else []
        readable, writable, _ = select.select([self.socket], want, [], dribble or left)
        try:
            if writable or (dribble and self.output and not readable):
                n = self.socket.send(self.output[:1] if dribble else self.output[:1 << 20])
                self.output = self.output[n:]
        except (BrokenPipeError, ConnectionResetError):
            self.output = b""  # it has ended; what it said before is still there to be read
        if readable:
            self.receive()

    def receive(self):
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionResetError:
            self.reset = self.ended = True
            return
        self.data += data
        self.ended = not data

    def send_all(self):
        while self.output and not self.ended:
            self.step()

    def half_close(self):
        self.send_all()
        self.socket.shutdown(socket.SHUT_WR)

    def answer(self, dribble=0, is_head=False):
        """The next whole answer, or None when the connection ends without a byte of one."""
        while True:
            try:
                found, self.data = parse_answer(self.data, is_head)
                return found
            except Partial:
                pass
            if self.ended:
                expect(not self.data, f"an answer that is cut off: {self.data[:200]!r}")
                return None
            self.step(dribble)

    def end(self):
        """Reads to the end, which must bring nothing more."""
        while not self.ended:
            expect(not self.data, f"bytes behind the answer: {self.data[:200]!r}")
            self.step()
        expect(not self.data, f"bytes behind the answer: {self.data[:200]!r}")

    def close(self):
        self.socket.close()

    def abort(self):
        """A reset instead of an end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()


class Suite:
    def __init__(self, port):
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self.cases = []

    def head(self, method, target, headers=(), host=None):
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self.host if host is None else host}", *headers]
        return "".join(line + "\r\n" for line in lines).encode() + b"\r\n"

    def post(self, body, headers=(), target="/api/v1/tasks", content_type="application/json"):
        lines = [f"Content-Length: {len(body)}", *headers]
        if content_type is not None:
            lines.append(f"Content-Type: {content_type}")
        return self.head("POST", target, lines) + body

    def case(self, description, function):
        self.cases.append((description, function))

    def row(self, description, data, status, code=None, pointer=None, **how):
        """One exchange: these bytes bring this status, with this code of a problem document. See exchange()."""
        self.case(description, lambda: self.exchange(data, status, code, pointer, **how))

    # --- one exchange -------------------------------------------------------------------------------------------

    def exchange(self, data, status, code=None, pointer=None, half_close=False, dribble=0, at_once=0, may_reset=False, closes=None,
                 or_close=False):
        """half_close shuts our side behind the data; dribble sends what is behind the first at_once bytes a byte at a time, one in so many
        seconds; may_reset: a close may be a reset, where the server stops reading; closes: whether the answer says so; or_close: a clean
        close without an answer will do as well."""
        connection = Connection(self.port)
        try:
            connection.send(data[:at_once])
            connection.send_all()
            connection.send(data[at_once:])
            if half_close:
                connection.half_close()
            answer = connection.answer(dribble)
            if status == CLOSE or (or_close and answer is None):
                expect(answer is None, f"status {answer.status}: {answer.body[:200]!r}" if answer else "")
                expect(may_reset or not connection.reset, "the connection was reset, not closed")
                return None
            expect(answer is not None, "closed without an answer")
            self.check(answer, status, code, pointer)
            self.check_end(connection, answer, half_close, closes)
            return answer
        finally:
            connection.close()

    @staticmethod
    def check(answer, status, code, pointer):
        shown = f"status {answer.status}: {answer.body[:300]!r}"
        expect(answer.status == status, shown)
        expect(answer.header("Date"), "no Date")
        if status < 400:
            return
        expect(answer.header("Content-Type") == "application/problem+json", f"Content-Type {answer.header('Content-Type')}")
        problem = answer.json()
        expect(problem["status"] == status and problem["detail"] and problem["title"] and "pointer" in problem, shown)
        expect(code is None or problem["code"] == code, shown)
        expect(pointer is None or problem["pointer"] == pointer, shown)

    def check_end(self, connection, answer, half_close, closes):
        is_closing = answer.header("Connection") == "close"
        expect(closes is None or is_closing == closes, f"Connection: {answer.header('Connection')}")
        if is_closing or half_close:
            connection.end()
            return
        connection.send(self.head("GET", "/healthz"))
        again = connection.answer()
        expect(again is not None and again.status == 200, "the connection does not go on")
        expect(not connection.data, f"bytes behind the answer: {connection.data[:200]!r}")

    def is_healthy(self):
        connection = Connection(self.port)
        try:
            connection.send(self.head("GET", "/healthz", ["Connection: close"]))
            answer = connection.answer()
            expect(answer is not None and answer.status == 200, "the server is not healthy afterwards")
            connection.end()
        finally:
            connection.close()

    def run(self):
        failures = 0
        for description, function in self.cases:
            try:
                function()
                self.is_healthy()
                print(f"ok {description}", flush=True)
            except (Wrong, OSError, KeyError, ValueError) as error:
                failures += 1
                print(f"not ok {description}: {type(error).__name__}: {error}", flush=True)
        return 1 if failures else 0
