#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kill -9 of judicator, executor, gateway and a web worker, a hundred times each (ten where a sanitizer makes everything slow), with tasks
# open all the time: as many restarts, each at once; boot loses no descriptor, nobody is left behind, and each task ends once.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

KILLS=100 COUNT=100 CLIENTS=100
grep -aqE '__(asan|tsan|ubsan)_' "$BIN/judicator" && KILLS=10
slots=4
KILLED="gateway.1 judicator executor gateway" # the worker before its service

is()
{
	[ "$1" = "$2" ] || { echo "got '$1', expected '$2'"; return 1; }
}

# count_is N TEXT : boot's log has so many lines with it. A worker's come by way of its service, and may take a moment.
count_is()
{
	is "$(grep -cF -- "$2" "$DIR/boot.log")" "$1"
}

# has_lived PID : for more than a second: the next death is followed by a restart at once.
has_lived()
{
	awk -v hz="$(getconf CLK_TCK)" 'NR == FNR {up = $1; next} {sub(/.*\) /, ""); exit !(up - $20 / hz > 1.05)}' \
		/proc/uptime "/proc/$1/stat"
}

# ready_to_die SERVICE : it serves, and would be restarted at once.
ready_to_die()
{
	is_serving "$run" "$1" && has_lived "$(pid_in "$run/$1.pid")"
}

all_ready_to_die()
{
	local service
	for service in $KILLED; do
		ready_to_die "$service" || return 1
	done
}

descriptors_of()
{
	set -- "/proc/$1/fd"/*
	echo $#
}

zombies_of()
{
	ps -o stat= --ppid "$1" | grep -c '^Z'
}

has_no_zombie()
{
	[ "$(zombies_of "$1")" = 0 ]
}

# The programs of this judge, by name and number; of its sandbox's helper there are several processes.
census()
{
	local pid
	for pid in $(processes_of "$run/"); do
		tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | head -n 1 | sed 's,.*/,,'
	done | sort | uniq -c
}

census_is()
{
	is "$(census)" "$1"
}

# The control groups of the executor's sandbox have the number of the range of uids that its helper has locked.
ranges()
{
	local pid
	for pid in $(pgrep -f "conclave-box $run/executor"); do
		ls -l "/proc/$pid/fd" 2>/dev/null
	done | grep -oE 'range-[0-9]+\.lock' | sort -u
}

groups_of()
{
	find /sys/fs/cgroup -type d -name "conclave-box-${1//[!0-9]/}" 2>/dev/null
}

# Whoever has locked the range since has made its group again.
groups_left()
{
	local range
	while IFS= read -r range; do
		flock -n "/run/conclave-box/$range" true 2>/dev/null && groups_of "$range"
	done < <(sort -u "$DIR/ranges")
}

judge_start --judicator.max_retries=100
boot=${started[boot]}
check "all serve, and have for a second" wait_until "$START_S" all_ready_to_die || finish
people=$(census)
descriptors=$(descriptors_of "$boot")
ranges >"$DIR/ranges"
check "the sandbox has a range of uids" [ -s "$DIR/ranges" ]
check "and a control group" [ -n "$(groups_of "$(head -n 1 "$DIR/ranges")")" ]

nap=0.3000$$ # the tasks are known from outside by their argument
task '{expect: "accepted", task: {language: null, execute: {command: ["sleep", $nap]}}}' nap "$nap" >"$DIR/mix"
load_start "$url" --clients "$CLIENTS" --count "$COUNT" --mix "$DIR/mix" --ids "$DIR/ids" --deadline 500
open_tasks()
{
	api "tasks?status=pending&limit=1000" | jq -e --argjson n "$1" '.tasks | length >= $n'
}
check "$COUNT tasks are open" wait_until "$START_S" open_tasks $((COUNT * 8 / 10))

declare -A killed=([judicator]=0 [executor]=0 [gateway]=0 [gateway.1]=0)
for ((i = 0; i < KILLS; i++)); do
	wait_until "$START_S" all_ready_to_die >/dev/null || break
	for service in $KILLED; do
		pid=$(pid_in "$run/$service.pid")
		kill -KILL "$pid" || break 2
		killed[$service]=$((killed[$service] + 1))
		[ "$service" != gateway.1 ] || wait_until "$START_S" is_new "$run" "$service" "$pid" >/dev/null || break 2
	done
	ranges >>"$DIR/ranges"
done
check "all serve after the last kill" wait_until "$START_S" all_ready_to_die
for service in $KILLED; do
	check "$service was killed $KILLS times" is "${killed[$service]}" "$KILLS"
	check "and has died as often, of nothing else" wait_until 5 count_is "$KILLS" "event=service-exited service=$service "
done
# A worker starts with its service too.
for service in judicator executor gateway; do
	check "$service was restarted $KILLS times" count_is $((KILLS + 1)) "event=service-started service=$service "
done
check "gateway.1 was, and with its service" wait_until 5 count_is $((2 * KILLS + 1)) "event=service-started service=gateway.1 "
check "each at once" not logged boot event=service-backoff

# --- what is left of it -------------------------------------------------------------------------------------------------
check "boot is the same" is "$(pid_in "$run/boot.lock")" "$boot"
check "boot has as many descriptors as before" wait_until 20 eval 'is "$(descriptors_of "$boot")" "$descriptors"'
check "the clients are answered" load_ended 300
load_reap
grep -E '^(clients|accepted|attempts|lost)' "$DIR/load.log" | diag
check "bench-load says: none lost, none double, none unexpected" is "$status" 0
api "tasks?limit=1000" >"$answer"
check "the judge has exactly those tasks, all accepted" eval \
	'is "$(jq -r ".tasks[] | select(.verdict == \"accepted\") | .id" "$answer" | sort)" "$(sort -u "$DIR/ids")"'
check "$COUNT of them" shows ".tasks | length == $COUNT"
check "as many processes as before, and no others" wait_until 20 census_is "$people"
check "boot has reaped its children" wait_until 20 has_no_zombie "$boot"
judge_stop
check "nor any of the tasks" has_no_process "$nap"

check "nor any control group" is_empty "$(groups_left)"
finish
