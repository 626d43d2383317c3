#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Bytes that no well-behaved client sends, at a real gateway: each brings exactly one whole answer (or, where the parser allows no more, a
# clean close), and then the server is healthy. The rows are in bad_input.py, the strict reading is in raw.py; test/README.md has the
# list of what is covered where.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

tasks_are()
{
	api "tasks?limit=1000" >"$answer" && shows ".tasks | length == $1"
}

judge_start --gateway.body_max=1MiB
rows body
rows framing
check "nothing of all that became a task" tasks_are 0

id=$(post "$(task '{language: null, execute: {command: ["sleep", "100"], limits: {wall_ms: 100000}}}')" | jq -r .id)
check "a task does not end" [ "${#id}" = 24 ]
rows leave "$id"
check "it has outlived them all" eval 'api "tasks/$id" >"$answer" && shows ".done | not"'
check "and is cancelled" api "tasks/$id" -X DELETE
check "no client that left has left a second task" tasks_are 2

judge_stop

# Who is slow is cut off by the read timeout, which nothing above should meet.
judge_start --gateway.body_max=1MiB --gateway.read_timeout=1s
rows time
check "the tasks are still there" tasks_are 2
judge_stop
check "the library complained about nothing" not grep -q ODDITY "$DIR/boot.log"
finish
