#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kill -9 under 500 open submissions: judicator, executor and gateway ten times each, then boot ten times, at seeded moments and
# while at least 100 tasks are open. Every task is accepted; none is lost, none is done twice. CONCLAVE_TEST_SEED=N replays.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

COUNT=500 KILLS=10 OPEN_MIN=100
slots=4
# A task may by chance be the one that runs at more than three of the twenty deaths of executors; whether that is one too many
# is not the question here.
options=(--judicator.max_retries=100)

judge_start "${options[@]}"
seed=${CONCLAVE_TEST_SEED:-$((RANDOM * 32768 + RANDOM))}
echo "# CONCLAVE_TEST_SEED=$seed"
RANDOM=$seed # from here on only for the moments

# The tasks are known from outside by their argument.
nap=0.2000$$
task '{expect: "accepted", task: {language: null, execute: {command: ["sleep", $nap]}}}' nap "$nap" >"$DIR/mix"
load_start "$url" --clients "$COUNT" --count "$COUNT" --mix "$DIR/mix" --ids "$DIR/ids" --deadline 300

# count_open : sets $open to the number of tasks that wait.
open=0
count_open()
{
	local list
	list=$(api "tasks?status=pending&limit=1000") && open=$(jq '.tasks | length' <<<"$list") && [ "${open:-0}" -ge "$1" ]
}

# wait_open N : as wait_until, but in this shell.
wait_open()
{
	local deadline=$((SECONDS + START_S))
	until count_open "$1" 2>/dev/null; do
		[ "$SECONDS" -lt "$deadline" ] || return 1
		sleep 0.02
	done
}

# moment MS : passes up to so many milliseconds, from the seed.
moment()
{
	local ms=$((RANDOM % $1))
	sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
}

check "all $COUNT are open" wait_until "$START_S" count_open $((COUNT * 9 / 10))

declare -A killed=([judicator]=0 [executor]=0 [gateway]=0 [boot]=0)
fewest=$COUNT

# kill_one SERVICE MS : asks how many are open, lets a moment pass in which at most a few end, and kills. Where work goes faster
# than thought the moments get short, so that enough is left for the last of them.
kill_one()
{
	local pid ms=$2
	wait_open $((OPEN_MIN + 20)) || return 1
	[ "$open" -gt $((OPEN_MIN + 100)) ] || ms=100
	moment "$ms"
	pid=$(pid_in "$run/$1.pid")
	[ "$1" != boot ] || pid=${started[boot]}
	kill -KILL "$pid" || return 1
	killed[$1]=$((killed[$1] + 1))
	[ "$open" -ge "$fewest" ] || fewest=$open
}

# Only a service that is there can be killed.
kill_service()
{
	wait_until "$START_S" is_serving "$run" "$1" >/dev/null && kill_one "$1" 500
}

services=(judicator executor gateway)
for ((i = 0; i < KILLS; i++)); do
	first=$((RANDOM % 3)) step=$((1 + RANDOM % 2))
	for ((j = 0; j < 3; j++)); do
		kill_service "${services[(first + j * step) % 3]}" || break 2
	done
done
for ((i = 0; i < KILLS; i++)); do
	kill_one boot 1800 || break
	reap boot
	judge_again "${options[@]}"
done
for name in judicator executor gateway boot; do
	check "$name was killed $KILLS times" [ "${killed[$name]}" = "$KILLS" ]
done
check "each time at least $OPEN_MIN were open (fewest: $fewest)" [ "$fewest" -ge "$OPEN_MIN" ]

# --- what came of them ------------------------------------------------------------------------------------
check "the clients are answered" load_ended 300
load_reap
grep -E '^(clients|accepted|attempts|lost)' "$DIR/load.log" | diag
check "bench-load says: none lost, none double, none unexpected" [ "$status" = 0 ]
sort -u "$DIR/ids" >"$DIR/ids.sorted"
check "the clients hold $COUNT ids, all different" \
	[ "$(wc -l <"$DIR/ids") $(wc -l <"$DIR/ids.sorted")" = "$COUNT $COUNT" ]
api "tasks?limit=1000" >"$answer"
check "the judge has exactly those tasks, all accepted" eval \
	'[ "$(jq -r ".tasks[] | select(.verdict == \"accepted\" and .status == \"success\") | .id" "$answer" | sort)" = "$(<"$DIR/ids.sorted")" ]'
check "and no other" shows ".tasks | length == $COUNT"

# One transition to done each. A judicator killed between its commit and its line would leave a hole, so a restarted one repeats the
# lines of what was done lately: the same line is the same transition.
awk '/ event=task / {
	split("", f)
	for (i = 1; i <= NF; i++) if (n = index($i, "=")) f[substr($i, 1, n - 1)] = substr($i, n + 1)
	if (f["done_us"] > 0) print f["id"], f["to"], f["done_us"]
}' "$DIR/boot.log" | sort -u >"$DIR/transitions"
check "the logs have $COUNT transitions to done" [ "$(wc -l <"$DIR/transitions")" = "$COUNT" ]
check "each to success" [ "$(grep -c ' success ' "$DIR/transitions")" = "$COUNT" ]
check "one of each id" [ "$(cut -d' ' -f1 "$DIR/transitions")" = "$(<"$DIR/ids.sorted")" ]

# What ran when an executor died, or was claimed when its judicator did, runs again; a gateway's death costs nothing.
extra=$(jq '[.tasks[].attempt - 1] | add' "$answer")
bound=$(((killed[judicator] + killed[executor] + killed[boot]) * slots))
echo "# extra executions: $extra, at most $bound"
check "executions are repeated at most kills x slots times" [ "${extra:-$((bound + 1))}" -le "$bound" ]

stop boot
check "the judge stops with status 0" [ "$status" = 0 ]
check "no process is left" has_no_process "$run"
check "nor any of the tasks" has_no_process "$nap"
check "nothing was reported by a sanitizer" not grep -qE 'ERROR: (Address|Leak)Sanitizer|runtime error:' "$DIR/boot.log"
finish
