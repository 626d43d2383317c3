#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From pending to done and the ways to leave early: waiting, order, cancel at each stage, and a stop of the judge in between.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

slots=1
judge_start

# A task that is known from outside by its word and runs until it is killed.
sleeper()
{
	task '{language: "bash", source: ("exec -a " + $word + " sleep 250"), limits: {wall_ms: 300000}}' word "$1"
}

is_at()
{
	api "tasks/$1" >"$answer" && shows "$2"
}

# add TASK : sets $id. The answer is that of a POST without wait.
add()
{
	post "$1" >"$answer" && id=$(jq -r .id "$answer")
}

cancelled='.done and .status == "cancelled" and .verdict == "cancelled"'
quick=$(task '{language: "bash", source: "echo 1", expected: "1\n"}')

# --- waiting ----------------------------------------------------------------------------------------------
word=sleeper-$$-$RANDOM
add "$(sleeper "$word")"
running=$id
check "a POST without wait answers at once" shows '(.done | not) and .verdict == null and .attempt == 0 and .cases == null'
check "it gets to run" wait_until "$ANSWER_S" is_at "$running" '.status == "running" and .attempt == 1 and .start_time != null'
check "its process is there" not has_no_process "$word"
check "a wait that is over says so" eval 'api "tasks/$running?wait=200" >"$answer" && shows ".status == \"running\" and (.done | not)"'
add "$quick"
pending=$id
check "a POST waits no longer than it was told" eval 'post "$quick" "?wait=200" >"$answer" && shows ".status == \"pending\" and (.done | not)"'
last=$(jq -r .id "$answer")
for i in 1 2 3; do
	start "waiter$i" api "tasks/$pending?wait=60000"
done

# --- cancel -------------------------------------------------------------------------------------------------
add "$quick"
check "a pending task is cancelled" eval 'api "tasks/$id" -X DELETE >"$answer" && shows "$cancelled and .attempt == 0"'
never=$id
check "the one that runs is cancelled" eval 'api "tasks/$running" -X DELETE >"$answer" && shows "$cancelled and .attempt == 1"'
check "its process ends" wait_until "$ANSWER_S" has_no_process "$word"
check "the next ones run" eval 'api "tasks/$last?wait=60000" >"$answer" && shows "ended(\"success\"; \"accepted\")"'
for i in 1 2 3; do
	reap "waiter$i"
	cp "$DIR/waiter$i.log" "$answer"
	check "waiter $i has the whole answer" shows "ended(\"success\"; \"accepted\") and .id == \"$pending\" and .cases[0].stdout == \"1\n\""
done
check "what was cancelled stays so" eval 'is_at "$running" "$cancelled and .attempt == 1" && is_at "$never" "$cancelled and .attempt == 0"'

# Cancelled while it compiles: the compiler is the sleeper.
word=compiler-$$-$RANDOM
add "$(task '{language: null, compile: {files: [{name: "x", content: ""}], command: ["bash", "-c", ("exec -a " + $word + " sleep 250")],
	limits: {wall_ms: 300000}}, execute: {command: ["true"]}}' word "$word")"
check "a task compiles" wait_until "$ANSWER_S" is_at "$id" '.status == "compiling"'
check "its compiler is there" wait_until "$ANSWER_S" not has_no_process "$word"
check "it is cancelled" eval 'api "tasks/$id" -X DELETE >"$answer" && shows "$cancelled"'
check "its compiler ends" wait_until "$ANSWER_S" has_no_process "$word"

# --- order --------------------------------------------------------------------------------------------------
word=blocker-$$-$RANDOM
add "$(sleeper "$word")"
blocker=$id
check "a task takes the only slot" wait_until "$ANSWER_S" is_at "$blocker" '.status == "running"'
declare -a order=()
for priority in 0 -5 10 0; do
	add "$(jq -c ".priority = $priority" <<<"$quick")"
	order+=("$id")
done
api "tasks/$blocker" -X DELETE >/dev/null
for id in "${order[@]}"; do
	api "tasks/$id?wait=60000" >/dev/null
done
api "tasks?limit=4" >"$answer"
check "higher priority first, then as they came" shows \
	"[.tasks | sort_by(.start_time)[] | .id] == [\"${order[2]}\", \"${order[0]}\", \"${order[3]}\", \"${order[1]}\"]"

# --- a stop in between ----------------------------------------------------------------------------------------
word=nap-$$-$RANDOM
add "$(task '{language: "bash", source: ("exec -a " + $word + " sleep 1"), limits: {wall_ms: 60000}}' word "$word")"
first=$id
add "$quick"
second=$id
check "one runs, one waits" wait_until "$ANSWER_S" is_at "$first" '.status == "running"'
stop boot
check "the judge stops with status 0" [ "$status" = 0 ]
check "no process is left" has_no_process "$run"
check "nor of the task" has_no_process "$word"
judge_again
check "it is up again" wait_until "$START_S" offers bash
for id in "$first" "$second"; do
	check "the task is accepted" eval 'api "tasks/$id?wait=60000" >"$answer" && shows ".done and .verdict == \"accepted\" and .attempt <= 2"'
done
check "what was done before is as it was" is_at "$never" "$cancelled and .attempt == 0"

judge_stop
finish
