#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The wall clock is set back and forward a day, by a shim under every program of the judge, while tasks run, wait and are waited for. Nothing
# notices but the times that are shown: verdicts, limits, waits and the life of executors count another clock, the queue keeps its order.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

DAY=86400
clock=$DIR/clock
slots=1 # so that tasks end in the order in which they are taken

# set_clock SECONDS : off by so many.
set_clock()
{
	python3 -c 'import struct, sys; f = open(sys.argv[1], "r+b"); f.write(struct.pack("=q", int(sys.argv[2]) * 1000000))' "$clock" "$1"
}

# gateway_is_off SECONDS : the Date of its answers says so, give or take two minutes.
gateway_is_off()
{
	local date
	date=$(curl -sS --max-time "$ANSWER_S" -o /dev/null -D - "$url/" | tr -d '\r' | sed -n 's/^Date: //p')
	[ -n "$date" ] && awk -v off="$(($(date -d "$date" +%s) - $(date +%s) - $1))" 'BEGIN { exit off < -120 || off > 120 }'
}

add()
{
	post "$1" >"$answer" || { cat "$answer"; return 1; }
	jq -r .id "$answer" >>"$DIR/ids"
}

# add_two COMMENT : that run at once when it is their turn.
add_two()
{
	add "$(task '{language: "bash", source: ("true # " + $at)}' at "$1.1")" &&
		add "$(task '{language: "bash", source: ("true # " + $at)}' at "$1.2")"
}

id_at()
{
	sed -n "${1}p" "$DIR/ids"
}

is_running()
{
	api "tasks/$1" >"$answer" && shows '.status == "running"'
}

is_added_off()
{
	api "tasks/$1" >"$answer" &&
		shows "(.add_time | sub(\"[.][0-9]+Z\"; \"Z\") | fromdate) - (now + $2) | . > -600 and . < 600"
}

all_done()
{
	api "tasks?limit=1000" >"$answer" && shows "(.tasks | length == $1) and all(.tasks[]; .done)"
}

# The list, two at a time, oldest first: every task once, in the order of adding, with times that increase.
paging_is_sane()
{
	local after= page
	: >"$DIR/paged"
	for page in {1..100}; do
		api "tasks?limit=2&order=asc$after" >"$answer" || return 1
		jq -r '.tasks[] | .id + " " + .add_time' "$answer" >>"$DIR/paged"
		after=$(jq -r '.next // empty | "&after=" + .' "$answer")
		[ -n "$after" ] || break
	done
	cut -d' ' -f1 "$DIR/paged" | diff - "$DIR/ids" && cut -d' ' -f2 "$DIR/paged" | sort -c
}

python3 -c 'import sys; open(sys.argv[1], "wb").write(bytes(8))' "$clock"
chmod 644 "$clock"
export CONCLAVE_TEST_CLOCK=$clock LD_PRELOAD=$TOOLS/clock_shim.so
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0 # of the shim and ASan's runtime
free_port && judicator_port=$port
free_port && gateway_port=$port
url=http://127.0.0.1:$gateway_port
judge_again
unset LD_PRELOAD
check "the judge is up" wait_until "$START_S" offers bash || finish

# --- while one runs and others wait ------------------------------------------------------------------------------
check "a task runs for eight seconds" add "$(task '{language: "bash", source: "sleep 8", limits: {wall_ms: 60000}}')"
first=$(id_at 1)
check "it is running" wait_until "$ANSWER_S" is_running "$first"
start waiter curl -sS --max-time 300 -o "$DIR/waited" -w '%{http_code} %{time_total}' "$url/api/v1/tasks/$first?wait=200000"
start hurried curl -sS --max-time 300 -o "$DIR/hurried" -w '%{http_code} %{time_total}' "$url/api/v1/tasks/$first?wait=3000"
check "two wait behind it" add_two now
set_clock -$DAY
check "the clock is set back a day" wait_until "$ANSWER_S" gateway_is_off -$DAY
check "two more are added, yesterday" add_two yesterday
set_clock $DAY
check "the clock is set forward two days" wait_until "$ANSWER_S" gateway_is_off $DAY
check "two more are added, tomorrow" add_two tomorrow
check "which is when they were added" is_added_off "$(id_at 7)" $DAY
set_clock 0
check "the clock is set right" wait_until "$ANSWER_S" gateway_is_off 0
check "two more are added" add_two again
check "behind those of tomorrow" is_added_off "$(id_at 9)" $DAY
reap hurried
check "who waited three seconds got what there was then" eval \
	'awk "{ exit !(\$1 == 200 && \$2 >= 2.9 && \$2 < 60) }" "$DIR/hurried.log" && jq -e ".done == false" "$DIR/hurried"'
reap waiter
check "who waited for the end got it" jq -e '.verdict == "accepted" and .attempt == 1' "$DIR/waited"
check "its wall time is what it was" jq -e '.cases[0].wall_us | . >= 8000000 and . < 60000000' "$DIR/waited"
check "all end" wait_until "$ANSWER_S" all_done 9
check "all were accepted, at the first attempt" shows 'all(.tasks[]; .verdict == "accepted" and .attempt == 1 and .retries == 0)'
check "in the order in which they were added" eval \
	'sed -n "s/.* role=executor event=task_done id=\([0-9a-f]*\) .*/\1/p" "$DIR/boot.log" | diff - "$DIR/ids"'
check "pages bring each task once, in that order" paging_is_sane

# --- limits --------------------------------------------------------------------------------------------------------
for off in $DAY -$DAY; do
	check "a task that will be too long" add "$(task '{language: "bash", source: "sleep 1000", limits: {wall_ms: 4000}}')"
	id=$(tail -n 1 "$DIR/ids")
	check "is running" wait_until "$ANSWER_S" is_running "$id"
	set_clock "$off"
	check "the clock is off by $off s" wait_until "$ANSWER_S" gateway_is_off "$off"
	api "tasks/$id?wait=100000" >"$answer"
	check "it has met its own limit, and not before its time" shows \
		'.verdict == "wall_limit" and .attempt == 1 and (.cases[0].limit | .name == "wall_ms" and .allowed == 4000 and .measured >= 4000 and .measured < 6000)'
done

# --- a day ahead for good: what starts now starts behind what it was -----------------------------------------------------
check "the executor is alive, and its first self" eval \
	'api executors >"$answer" && shows "[.executors[] | select(.alive)] | length == 1" && ! logged boot event=lose && ! logged boot event=fenced'
set_clock -$DAY
old=$(pid_in "$run/judicator.pid")
kill -KILL "$old"
check "the judicator starts anew, yesterday" wait_until "$START_S" is_new "$run" judicator "$old"
check "two are added to those of tomorrow" wait_until "$START_S" add_two restarted
check "all end" wait_until "$ANSWER_S" all_done "$(wc -l <"$DIR/ids")"
check "pages bring each task once, in the order of adding" paging_is_sane
judge_stop
finish
