# SPDX-License-Identifier: Apache-2.0
"""bad_input PORT GROUP - the rows of 1011-bad-input.t: bytes at a gateway, and what each must bring (see raw.py).

GROUP is `body` (what is in a task), `framing` (where a message ends), `time` (who is slow; the gateway's read timeout is short), `leave`
(who goes away; takes the id of a task that does not end) or `many` (submissions at once; takes how many, and a file for their ids).
"""
import json
import sys
import time

from raw import CLOSE, Connection, Suite, Wrong, expect

BODY_MAX = 1 << 20  # gateway.body_max of the test
ID = "0123456789abcdef01234567"
GOOD = b'{"language": "c", "source": "int main(void) { return 0; }"}'
TASKS = "/api/v1/tasks"


def task(fields):
    return b'{"language": "c", "source": "", ' + fields + b"}"


def body(suite):
    def row(description, text, status, code, pointer=""):
        suite.row(description, suite.post(text), status, code, pointer, closes=False)

    deep = 100_000
    row("100 000 arrays inside each other", b"[" * deep, 400, "json_depth")
    row("100 000 arrays, all closed", b"[" * deep + b"]" * deep, 400, "json_depth")
    row("100 000 objects inside each other", b'{"a":' * deep + b"1" + b"}" * deep, 400, "json_depth")
    row("100 000 arrays in a field", task(b'"labels": ' + b"[" * deep + b"]" * deep), 400, "json_depth")
    row("100 000 closing brackets", b"]" * deep, 400, "json_syntax")
    row("a million empty objects", task(b'"cases": [' + b",".join([b"{}"] * 300_000) + b"]"), 422, "out_of_range", "/cases")

    # Numbers: each where a whole number stands, and where any number may.
    whole, real = "/limits/cpu_ms", "/checker/abs"
    for text in (b"1e400", b"-1e400", b"1e99999999999999999999"):
        row(f"{text.decode()} as a limit", task(b'"limits": {"cpu_ms": ' + text + b"}"), 422, "out_of_range", whole)
        row(f"{text.decode()} as a tolerance", task(b'"checker": {"kind": "float", "abs": ' + text + b"}"), 422, "out_of_range", real)
    for text in (b"NaN", b"nan", b"Infinity", b"-Infinity", b"+1", b"01", b"1.", b".5", b"0x10", b"1e", b"--1"):
        row(f"{text.decode()} as a limit", task(b'"limits": {"cpu_ms": ' + text + b"}"), 400, "json_syntax")
    for text in (b"18446744073709551616", b"-18446744073709551616", b"9223372036854775808", b"1" * 5000):
        row(f"{text.decode()[:24]} as a limit", task(b'"limits": {"cpu_ms": ' + text + b"}"), 422, "out_of_range", whole)
    for text in (b"9223372036854775807", b"-9223372036854775808", b"-1", b"-0"):
        row(f"{text.decode()} as a limit", task(b'"limits": {"cpu_ms": ' + text + b"}"), 422, "out_of_range", whole)
    row("2^64 as the priority", task(b'"priority": 18446744073709551616'), 422, "out_of_range", "/priority")
    row("a fraction as the priority", task(b'"priority": 0.5'), 400, "wrong_type", "/priority")
    row("NaN as a string", task(b'"priority": "NaN"'), 400, "wrong_type", "/priority")

    row("a key twice", task(b'"language": "cpp"'), 400, "json_duplicate_key")
    row("a key twice, once escaped", task(b'"\\u006canguage": "cpp"'), 400, "json_duplicate_key")
    row("a key twice, deep inside", task(b'"cases": [{"input": "", "input": ""}]'), 400, "json_duplicate_key", None)
    row("an unknown key twice", b'{"a": 1, "a": 1}', 400, "json_duplicate_key", None)

    row("a body of nothing", b"", 400, "json_syntax")
    row("a body of NULs", b"\0" * 1000, 400, "json_syntax")
    row("a NUL behind the task", GOOD + b"\0", 400, "json_syntax")
    row("two tasks", GOOD + GOOD, 400, "json_syntax")
    row("UTF-16", GOOD.decode().encode("utf-16"), 400, None)
    row("a byte order mark", b"\xef\xbb\xbf" + GOOD, 400, None)
    row("half a surrogate pair", task(b'"user": "\\ud800"'), 400, None)
    row("a NUL in a name", task(b'"user": "a\\u0000b"'), 422, "nul_byte", "/user")
    row("a comment", b"/* */" + GOOD, 400, "json_syntax")
    row("a string that does not end", b'"' + b"a" * 500_000, 400, "json_syntax")

    for kind in (None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp",
                 "application/json+x", "text/json", "application/json2; charset=utf-8", "json", ";", "application / json"):
        suite.row(f"Content-Type: {kind}", suite.post(GOOD, content_type=kind), 415, "unsupported_type", "")
    suite.row("two of it", suite.post(GOOD, ["Content-Type: text/plain"]), 415, "unsupported_type", "")
    for kind in ("gzip", "deflate", "br", "gzip, identity", "x"):
        suite.row(f"Content-Encoding: {kind}", suite.post(GOOD, [f"Content-Encoding: {kind}"]), 415, "unsupported_encoding", "")

    for name in ("evil.example", f"evil.example:{suite.port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1:99999", "", f"x@{suite.host}",
                 f"{suite.host}.evil.example", f"{suite.host} ,x", f"[::1]:{suite.port}", f"127.0.0.2:{suite.port}"):
        suite.row(f"GET for the host \"{name}\"", suite.head("GET", TASKS, host=name), 400, "bad_host", "")
        suite.row(f"POST for the host \"{name}\"", suite.head("POST", TASKS, ["Content-Type: application/json",
            f"Content-Length: {len(GOOD)}"], host=name) + GOOD, 400, "bad_host", "")


def framing(suite):
    def row(description, headers, data, status, code=None, **how):
        head = suite.head("POST", TASKS, ["Content-Type: application/json", *headers])
        suite.row(description, head + data, status, code, **how)

    n = len(GOOD)
    chunk = b"%x\r\n%s\r\n" % (n, GOOD)
    chunked = "Transfer-Encoding: chunked"
    length = f"Content-Length: {n}"

    row("two Content-Length, different", [length, "Content-Length: 2"], GOOD, 400, "content_length_twice", closes=True)
    row("two Content-Length, alike", [length, length], GOOD, 400, "content_length_twice", closes=True)
    row("two Content-Length, one in lower case", [length, length.lower()], GOOD, 400, "content_length_twice", closes=True)
    row("a list as Content-Length", [f"Content-Length: {n}, {n}"], GOOD, CLOSE)
    row("Content-Length and Transfer-Encoding", [length, chunked], chunk + b"0\r\n\r\n", 400, "framing_ambiguous", closes=True)
    row("Transfer-Encoding and Content-Length", [chunked, length], chunk + b"0\r\n\r\n", 400, "framing_ambiguous", closes=True)
    row("both, the body as the length says", [length, chunked], GOOD, 400, "framing_ambiguous", closes=True)
    row("two Transfer-Encoding", [chunked, chunked], chunk + b"0\r\n\r\n", 501, "transfer_encoding_unknown", closes=True)
    for word in ("gzip", "identity", "gzip, chunked", "chunked, gzip", "xchunked", "chunked;q=1"):
        row(f"Transfer-Encoding: {word}", [f"Transfer-Encoding: {word}"], chunk + b"0\r\n\r\n", 501, "transfer_encoding_unknown", closes=True)
    for word in ("-1", "-9223372036854775808", "99999999999999999999999", "18446744073709551616", "0x10", "1e3", "5 5", "five", "+5", "1.0"):
        row(f"Content-Length: {word}", [f"Content-Length: {word}"], b"", CLOSE)
    row("Content-Length: 18446744073709551615", ["Content-Length: 18446744073709551615"], b"", 400, "content_length_invalid", closes=True)
    row("Content-Length: 9223372036854775808", ["Content-Length: 9223372036854775808"], b"", 400, "content_length_invalid", closes=True)
    row("an empty Content-Length", ["Content-Length:"], GOOD, 400, "content_length_invalid", closes=True)
    for word in ("Content-Length ", "Content-Length\t", "Transfer-Encoding ", " Content-Length", "X(Y)"):
        row(f"a name that is none: {word!r}", [f"{word}: 5"], b"hello", 400, "header_name_invalid", closes=True)
    # The parser stops at the NUL, so it sees no length and no body: what comes is behind the message.
    row("a NUL in a name", ["Content-Length\0: 5"], b"hello", 400, "json_syntax", closes=True)

    row("413 by Content-Length, nothing sent", [f"Content-Length: {BODY_MAX + 1}"], b"", 413, "body_too_large", closes=True)
    row("413 by Content-Length, all sent", [f"Content-Length: {4 * BODY_MAX}"], b" " * 4 * BODY_MAX, 413, "body_too_large", closes=True)
    row("413 by Content-Length of 2^63 - 1", ["Content-Length: 9223372036854775807"], b"", 413, "body_too_large", closes=True)
    row("413 without Content-Length", [chunked], (b"10000\r\n" + b" " * 65536 + b"\r\n") * 64 + b"0\r\n\r\n", 413, "body_too_large", closes=True)
    row("413 in one chunk", [chunked], b"%x\r\n" % (4 * BODY_MAX) + b" " * 4 * BODY_MAX + b"\r\n0\r\n\r\n", 413, "body_too_large", closes=True)
    row("413 in chunks that never end", [chunked], (b"10000\r\n" + b" " * 65536 + b"\r\n") * 32, 413, "body_too_large", closes=True)
    row("413 instead of 100", [f"Content-Length: {BODY_MAX + 1}", "Expect: 100-continue"], b"", 413, "body_too_large", closes=True)
    row("a body of exactly the maximum", [f"Content-Length: {BODY_MAX}"], b" " * BODY_MAX, 400, "json_syntax", closes=False)

    row("a body larger than announced", ["Content-Length: 2"], b"{}" + b"x" * 5000, 422, "missing_command", closes=True)
    row("a body larger than announced by a request", ["Content-Length: 2"], b"{}" + suite.head("GET", "/metrics"), 422, "missing_command", closes=True)
    row("a body smaller than announced, then a half-close", [f"Content-Length: {n + 1}"], GOOD, CLOSE, half_close=True)
    row("chunks without an end, then a half-close", [chunked], chunk, CLOSE, half_close=True)
    for text in (b"zz\r\n", b"-1\r\n", b"5;x=" + b"y" * 20_000, b"\r\n\r\n", b"2\r\n{}xx"):
        row(f"a chunk that begins {text[:12]!r}", [chunked], text, CLOSE, may_reset=len(text) > 1000)
    row("ten thousand chunks of a byte", [chunked], b"1\r\n \r\n" * 10_000 + b"0\r\n\r\n", 400, "json_syntax", closes=False)

    # Heads.
    def raw(description, data, status, code=None, **how):
        suite.row(description, data, status, code, **how)

    get = f"GET /healthz HTTP/1.1\r\nHost: {suite.host}\r\n".encode()
    # What still comes when the limit is reached is not read: where it has arrived, the system resets.
    raw("10 000 headers", get + b"".join(b"X-%d: y\r\n" % i for i in range(10_000)) + b"\r\n", CLOSE, may_reset=True)
    raw("10 000 headers on a POST", suite.post(GOOD, [f"X-{i}: y" for i in range(10_000)]), CLOSE, may_reset=True)
    raw("101 headers", get + b"X: y\r\n" * 100 + b"\r\n", CLOSE)
    raw("100 headers", get + b"X: y\r\n" * 99 + b"\r\n", 200)
    raw("a header of a megabyte", get + b"X: " + b"y" * (1 << 20) + b"\r\n\r\n", CLOSE, may_reset=True)
    raw("a header's name of a megabyte", get + b"X" * (1 << 20) + b": y\r\n\r\n", CLOSE, may_reset=True)
    raw("a path of a megabyte", b"GET /" + b"x" * (1 << 20) + b" HTTP/1.1\r\n\r\n", CLOSE, may_reset=True)
    raw("a query of 7000 bytes", suite.head("GET", TASKS + "?limit=" + "1" * 7000), 400, "bad_parameter")
    raw("a folded header", get + b"X: y\r\n z\r\n\r\n", CLOSE)
    raw("no Host", b"GET /healthz HTTP/1.1\r\n\r\n", 400, "host_missing", closes=True)
    raw("two Hosts", get + f"Host: {suite.host}\r\n\r\n".encode(), 400, "host_missing", closes=True)
    raw("HTTP/2's preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", CLOSE)
    raw("HTTP/9.9", get.replace(b"1.1", b"9.9") + b"\r\n", 505, "version_unsupported", closes=True)
    raw("a TLS hello", bytes.fromhex("16030100c8010000c40303") + bytes(200), CLOSE, may_reset=True)
    raw("bytes that are no text", bytes(range(256)) * 16, CLOSE, may_reset=True)
    raw("an unknown method", suite.head("BREW", TASKS), 405, "method_not_allowed")
    raw("CONNECT", suite.head("CONNECT", "evil.example:80"), 405, "method_not_allowed")
    raw("another site in the target", suite.head("GET", f"http://evil.example{TASKS}", host="evil.example"), 400, "bad_host")
    raw("blanks in the target", suite.head("GET", "/a b"), CLOSE)
    raw("../../x as a path", suite.head("GET", "/../../x"), 404, "not_found")
    raw("../../x as an id", suite.head("GET", TASKS + "/..%2f..%2fx"), 400, "bad_id")
    raw("%00 in an id", suite.head("GET", TASKS + "/%00"), 400, "bad_id")

    # Overlapping.
    gets = suite.head("GET", "/healthz")
    raw("three requests at once get one answer", gets * 3, 200, closes=True)
    raw("two submissions at once get one answer", suite.post(b"{}") * 2, 422, "missing_command", closes=True)
    raw("a hundred thousand requests at once", gets * 100_000, 200, closes=True)

    raw("a half-close behind a GET", suite.head("GET", "/"), 200, half_close=True)
    # Whoever waits has left by it: whether it comes before the judicator's answer is chance.
    raw("a half-close behind a GET that asks the judicator", gets, 200, half_close=True, or_close=True)
    raw("a half-close behind a POST", suite.post(b"{}"), 422, "missing_command", half_close=True)
    raw("a half-close behind nothing", b"", CLOSE, half_close=True)
    raw("a half-close in a header", get, CLOSE, half_close=True)
    suite.case("100 is sent before the answer where it was asked for", lambda: hundred(suite))
    raw("blank lines before the request", b"\r\n\r\n" + gets, 200, closes=False)


def hundred(suite):
    connection = Connection(suite.port)
    connection.send(suite.head("POST", TASKS, ["Content-Type: application/json", "Content-Length: 2", "Expect: 100-continue"]))
    answer = connection.answer()
    expect(answer.status == 100, f"status {answer.status} where 100 was asked for")
    connection.send(b"{}")
    suite.check(connection.answer(), 422, "missing_command", None)
    connection.close()


def slow(suite):
    head = suite.head("POST", TASKS, ["Content-Type: application/json", "Content-Length: 100000"])
    chunked = suite.head("POST", TASKS, ["Content-Type: application/json", "Transfer-Encoding: chunked"])
    suite.row("a header that stops", head[:60], CLOSE)
    # A byte that is on its way when the server closes makes the kernel say reset.
    suite.row("a header that dribbles", head[:40] + b"X" * 1000, CLOSE, dribble=0.01, may_reset=True)
    for piece in (b"G", b"GET /heal", b"GET /healthz\r\n", b"\r\n\r\n"):
        suite.row(f"a request line that stops: {piece!r}", piece, CLOSE)
    suite.row("a body that does not come", head, 408, "request_timeout", "", closes=True)
    suite.row("a body that stops", head + GOOD, 408, "request_timeout", "", closes=True)
    suite.row("a body that dribbles", head + b" " * 1000, 408, "request_timeout", "", dribble=0.01, at_once=len(head), closes=True)
    suite.row("chunks that stop", chunked + b"5\r\nhello\r\n", 408, "request_timeout", "", closes=True)
    suite.row("a chunk that stops", chunked + b"500\r\nhello", 408, "request_timeout", "", closes=True)
    suite.row("a chunk that is announced with 68 bits", chunked + b"f" * 17 + b"\r\nhello", 408, "request_timeout", "", closes=True)
    suite.row("chunks that dribble", chunked + b"1\r\nx\r\n" * 200, 408, "request_timeout", "", dribble=0.01, at_once=len(chunked), closes=True)
    suite.row("a body of which not all is announced", suite.post(GOOD)[:-3], 408, "request_timeout", "", closes=True)
    suite.case("a hundred at once that send nothing do not stop others", lambda: crowd(suite, b""))
    suite.case("a hundred at once that stop in the body get their 408", lambda: crowd(suite, head + b"x" * 1000, 408))


def crowd(suite, data, status=None):
    connections = [Connection(suite.port) for _ in range(100)]
    for connection in connections:
        connection.send(data)
        connection.send_all()
    suite.is_healthy()
    for connection in connections if status else []:
        suite.check(connection.answer(), status, None, None)
        connection.end()
    for connection in connections:
        connection.close()


def metric(suite, name):
    connection = Connection(suite.port)
    connection.send(suite.head("GET", "/metrics", ["Connection: close"]))
    text = connection.answer().body.decode()
    connection.close()
    return sum(float(line.split()[1]) for line in text.splitlines() if line.split()[0] == name)


def wait_for(suite, name, value):
    deadline = time.monotonic() + 60
    while metric(suite, name) != value:
        if time.monotonic() > deadline:
            raise Wrong(f"{name} is {metric(suite, name)}, not {value}")


WAITING = "conclave_gateway_waiting_clients"


def waiting(suite, task_id, go):
    before = metric(suite, WAITING)
    connections = [Connection(suite.port) for _ in range(50)]
    for connection in connections:
        connection.send(suite.head("GET", f"{TASKS}/{task_id}?wait=300000"))
        connection.send_all()
    wait_for(suite, WAITING, before + 50)
    for connection in connections:
        go(connection)
    wait_for(suite, WAITING, before)
    for connection in connections:
        connection.close()


def leave(suite, task_id):
    def ask_and_close(connection):
        connection.send(suite.head("GET", "/healthz"))
        connection.send_all()
        connection.close()

    ways = {"close": Connection.close, "reset": Connection.abort, "half-close": Connection.half_close,
            "send a next request and close": ask_and_close}
    for name, go in ways.items():
        suite.case(f"fifty that {name} while they wait are noticed", lambda go=go: waiting(suite, task_id, go))
    suite.case("a submission is kept though its client leaves at once", lambda: submit_and_leave(suite))


def submit_and_leave(suite):
    """It is added, its client waits and goes: it is done all the same, once."""
    text = json.dumps({"language": None, "execute": {"command": ["sleep", "1"]}, "labels": ["left"]}).encode()
    before = metric(suite, WAITING)
    connection = Connection(suite.port)
    connection.send(suite.post(text, target=TASKS + "?wait=300000"))
    connection.send_all()
    wait_for(suite, WAITING, before + 1)
    connection.abort()
    wait_for(suite, WAITING, before)
    deadline = time.monotonic() + 60
    while True:
        connection = Connection(suite.port)
        connection.send(suite.head("GET", TASKS + "?label=left", ["Connection: close"]))
        tasks = connection.answer().json()["tasks"]
        expect(len(tasks) == 1, f"there are {len(tasks)} of it")
        if tasks[0]["done"]:
            expect(tasks[0]["verdict"] == "accepted" and tasks[0]["attempt"] == 1, str(tasks[0]))
            return
        expect(time.monotonic() < deadline, "it is not done")


def crowd_of_submissions(suite, count):
    """So many connections that are open at the same time and submit one task each; the ids."""
    text = json.dumps({"language": None, "execute": {"command": "true"}}).encode()
    request = suite.post(text)
    connections = [Connection(suite.port) for _ in range(count)]
    for connection in connections:
        connection.send(request)
        connection.step()
    ids = set()
    for connection in connections:
        answer = connection.answer()
        suite.check(answer, 201, None, None)
        expect(answer.header("Location") == f"{TASKS}/{answer.json()['id']}", "another Location")
        ids.add(answer.json()["id"])
        suite.check_end(connection, answer, False, False)
        connection.close()
    expect(len(ids) == count, f"{len(ids)} ids for {count} submissions")
    return ids


def many(suite, count, path):
    def submit():
        ids = crowd_of_submissions(suite, int(count))
        with open(path, "w", encoding="ascii") as file:
            file.writelines(f"{task_id}\n" for task_id in sorted(ids))

    suite.case(f"{count} submissions at once are all answered, with as many ids", submit)


GROUPS = {"body": body, "many": many, "framing": framing, "time": slow, "leave": leave}

if __name__ == "__main__":
    tests = Suite(int(sys.argv[1]))
    GROUPS[sys.argv[2]](tests, *sys.argv[3:])
    sys.exit(tests.run())
