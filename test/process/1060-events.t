#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Clients that follow tasks, through the real programs: each step and the end, tokens, a gateway that stops, and one that dies.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

judge_start --boot.stop_timeout=6s --gateway.workers=2
reader=$SOURCE/test/process/events.py

# follow NAME ID [LAST] : in the background; its events go to $DIR/NAME.log.
follow()
{
	local name=$1 id=$2
	shift 2
	start "$name" env CONCLAVE_TOKEN="${token:-}" python3 "$reader" "$url/api/v1/tasks/$id/events" "$@"
}

# has NAME PATTERN : the events have a line of it.
has()
{
	grep -qE -- "$2" "$DIR/$1.log"
}

# A program that runs until it is told to end by nobody: its time limit is far away.
waits='import time
time.sleep(100)'
slow=$(task '{language: "python", source: $source, limits: {wall_ms: 120000}}' source "$waits")
two=$(task '{language: "python", source: "print(input())", cases: [{input: "1", expected: "1\n"}, {input: "2", expected: "2\n"}]}')

id=$(post "$two" | jq -r .id)
follow two "$id"
reap two
check "a stream ends whole" [ "$status" = 0 ]
check "its last event is the whole task" eval 'tail -n 1 "$DIR/two.log" | cut -d " " -f 3- >"$answer" &&
	shows ".done and .verdict == \"accepted\" and (.cases | length) == 2" && tail -n 1 "$DIR/two.log" | grep -q "^done success[.]1[.]"'
check "there is one end" [ "$(grep -c ^done "$DIR/two.log")" = 1 ]
last=$(tail -n 1 "$DIR/two.log" | cut -d ' ' -f 2)
follow again "$id" "$last"
reap again
check "who has the end is told not to come again" [ "$status" = 3 ]
follow again "$id" running.1.0
reap again
check "who has not is told it" has again '^done success'

id=$(post "$slow" | jq -r .id)
follow slow "$id"
check "a task that runs is shown running" wait_until "$ANSWER_S" has slow '^task running[.]1[.]0 .*"executor":"'
follow cut "$id" running.1.0
for name in a b c d e; do
	follow "$name" "$id"
done
for name in a b c d e; do
	check "each of many is told ($name)" wait_until "$ANSWER_S" has "$name" '^task running[.]1[.]0 '
done
check "what was known is not repeated" not has cut .
curl -sS -X DELETE "$url/api/v1/tasks/$id" >/dev/null
for name in slow cut a b c d e; do
	reap "$name"
	check "cancelling ends it ($name)" eval '[ "$status" = 0 ] && has "$name" "^done cancelled"'
done

# A client that leaves is not kept.
waiting()
{
	curl -sS "$url/metrics" | grep -qx "conclave_gateway_waiting_clients $1"
}
id=$(post "$slow" | jq -r .id)
follow leaver "$id"
check "one follows" wait_until "$ANSWER_S" has leaver '^task running'
check "and is counted" wait_until 5 waiting 1
stop leaver KILL
check "one who leaves is dropped" wait_until 5 waiting 0

# conclave watch follows likewise.
start watch "$BIN/conclave" --url "$url" watch "$id" --json
check "conclave watch shows it running" wait_until "$ANSWER_S" grep -q '"status":"running"' "$DIR/watch.log"

# A worker that is killed breaks its streams, and clients come again without a repeated event.
follow killed "$id"
check "one follows again" wait_until "$ANSWER_S" has killed '^task running[.]1[.]0'
for file in "$run"/gateway*.pid "$run"/web*.pid; do
	[ -f "$file" ] && pid=$(pid_in "$file") && [ "$pid" -gt 1 ] && kill -KILL "$pid"
done
reap killed
check "its stream is seen to be cut" [ "$status" = 1 ]
follows_again()
{
	[ -n "${started[back]:-}" ] && stop back KILL
	follow back "$id" running.1.0
	wait_until 10 waiting 2 # conclave watch is one
}
wait_until "$ANSWER_S" follows_again # not inside check: that is a subshell
check "it is followed again" waiting 2

# conclave watch has come again too, and shows the end once.
curl -sS -X DELETE "$url/api/v1/tasks/$id" >/dev/null
reap watch
check "conclave watch tells the end" eval '[ "$status" = 1 ] && [ "$(grep -c "\"done\":true" "$DIR/watch.log")" = 1 ]'
check "and nothing twice" [ "$(grep -c '"status":"running"' "$DIR/watch.log")" = 1 ]
reap back
check "the other reader too" eval '[ "$status" = 0 ] && has back "^done cancelled"'

# A judge that stops ends its streams whole.
id=$(post "$slow" | jq -r .id)
follow last "$id"
check "one follows at the end" wait_until "$ANSWER_S" has last '^task running[.]1[.]0'
stop boot
check "the judge stops" [ "$status" = 0 ]
reap last
check "its streams end whole" eval '[ "$status" = 0 ] && ! has last ^done'
finish
