#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""events.py URL [LAST-EVENT-ID] : follows a stream of server-sent events, as a browser reads it; a line "NAME ID DATA" an event.

Ends with the stream: 0 when it was whole, 1 when it broke, 3 when the answer was 204, 4 another status. CONCLAVE_TOKEN is sent.
"""
import http.client
import json
import os
import sys
import urllib.parse

url = urllib.parse.urlsplit(sys.argv[1])
headers = {"Accept": "text/event-stream"}
if len(sys.argv) > 2:
    headers["Last-Event-ID"] = sys.argv[2]
if os.environ.get("CONCLAVE_TOKEN"):
    headers["Authorization"] = "Bearer " + os.environ["CONCLAVE_TOKEN"]
connection = http.client.HTTPConnection(url.netloc, timeout=120)
connection.request("GET", url.path, headers=headers)
answer = connection.getresponse()
if answer.status != 200:
    sys.stderr.write(f"{answer.status} {answer.read()!r}\n")
    sys.exit(3 if answer.status == 204 else 4)
assert answer.headers["Content-Type"] == "text/event-stream", answer.headers["Content-Type"]
assert answer.headers["Transfer-Encoding"] == "chunked"


def pieces():
    """The chunks; http.client takes a connection that breaks between two of them for the end."""
    while True:
        size = answer.fp.readline()
        if not size.endswith(b"\r\n"):
            sys.exit(1)
        piece = answer.fp.read(int(size, 16) + 2)
        if not piece.endswith(b"\r\n"):
            sys.exit(1)
        if len(piece) == 2:
            return
        yield piece[:-2]


def lines():
    rest = b""
    for piece in pieces():
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    assert rest == b""


event = {}
try:
    for line in lines():
        line = line.decode("utf-8")
        if line == "":
            if "data" in event:
                json.loads(event["data"])
                print(event["event"], event["id"], event["data"], flush=True)
            event = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = value
except OSError as e:
    sys.stderr.write(f"broken: {e}\n")
    sys.exit(1)
