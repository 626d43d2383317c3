#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A full disk under the judicator's data, for real: a small file system of its own, in a mount namespace that nobody else sees. New tasks are
# refused in time, what was accepted still ends and is stored, a judicator that is killed finds it all again; and to the last byte,
# where nothing can be stored any more, nothing is lost either.
[ -n "${CONCLAVE_TEST_UNSHARED:-}" ] || exec env CONCLAVE_TEST_UNSHARED=1 unshare --mount --propagation private bash "$0"
unset CONCLAVE_TEST_UNSHARED
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

COUNT=24 OUTPUT=60000 # bytes each, which must still fit
disk=$DIR/disk
mkdir "$disk" && mount -t tmpfs -o size=64m,mode=755 conclave-disk "$disk" || exit 1
data=$disk/data filler=$disk/filler
options=(--judicator.data_dir="$data" --judicator.reserve=24MiB)

free_kib()
{
	stat -f -c '%a %S' "$disk" | awk '{print int($1 * $2 / 1024)}'
}

# fill KIB : leaves so much, or a little less.
fill()
{
	local kib
	kib=$(($(free_kib) - $1))
	[ "$kib" -le 0 ] || head -c "${kib}K" /dev/zero >>"$filler"
	[ "$(free_kib)" -le "$1" ]
}

add()
{
	post "$(task '{language: "bash", source: ("sleep " + $nap + "; head -c " + $n + " /dev/zero | tr \"\\0\" x"),
		limits: {wall_ms: 60000}}' n "$OUTPUT" nap "$1")"
}

add_many()
{
	local i
	for ((i = 0; i < $1; i++)); do
		add "$2" >"$answer" || { cat "$answer"; return 1; }
		jq -r .id "$answer" >>"$DIR/ids"
	done
}

# add_says STATUS CODE
add_says()
{
	local status
	status=$(curl -sS --max-time "$ANSWER_S" -o "$answer" -D "$DIR/head" -w '%{http_code}' -H 'Content-Type: application/json' \
		-d '{"language": "bash", "source": "true"}' "$url/api/v1/tasks")
	[ "$status" = "$1" ] && jq -e --arg code "$2" '.code == $code and (.detail | length > 0)' "$answer" &&
		grep -qi '^retry-after: [0-9]' "$DIR/head" && return
	echo "status $status"
	cat "$answer"
	return 1
}

count_done()
{
	api "tasks?limit=1000" >"$answer" && shows "[.tasks[] | select(.done)] | length == $1"
}

# all_are_there : as many as were accepted, by their ids, each done once, with all of its output.
all_are_there()
{
	local id
	api "tasks?limit=1000" >"$answer" || return 1
	[ "$(jq -r '.tasks[].id' "$answer" | sort)" = "$(sort "$DIR/ids")" ] || { echo "other ids"; return 1; }
	for id in $(<"$DIR/ids"); do
		api "tasks/$id" >"$answer" &&
			shows ".status == \"success\" and .verdict == \"accepted\" and (.cases[0].stdout | length == $OUTPUT)" || return 1
	done
}

kill_judicator()
{
	local old
	old=$(pid_in "$run/judicator.pid")
	kill -KILL "$old" && wait_until "$START_S" is_new "$run" judicator "$old"
}

serves()
{
	api tasks >"$answer"
}

judge_start "${options[@]}"
check "its data is on the small disk" eval 'ls "$data" | grep -q .'

# --- below the reserve ---------------------------------------------------------------------------------------
check "$COUNT tasks are accepted" add_many "$COUNT" 2
check "the disk is filled, but for a part of the reserve" fill 16384
api "tasks?status=pending" >"$answer"
check "while some of them have not begun" shows ".tasks | length >= 4"
check "a new task is refused as disk_full" wait_until "$START_S" add_says 503 disk_full
check "the gateway is healthy all the same" curl -fsS --max-time "$ANSWER_S" "$url/healthz"
check "what is there can be read" serves
check "what was accepted ends, all of it" wait_until "$ANSWER_S" count_done "$COUNT"
check "and is stored with all its output" all_are_there
check "the disk is as full as before" [ "$(free_kib)" -le 16384 ]
check "the judicator is killed and comes back" kill_judicator
check "and serves" wait_until "$START_S" serves
check "everything is there" all_are_there
check "new tasks are refused still" wait_until "$START_S" add_says 503 disk_full
rm "$filler"
check "with room again a new task is accepted" wait_until "$START_S" add_many 1 0
check "and ends" wait_until "$ANSWER_S" count_done $((COUNT + 1))

# --- to the last byte -----------------------------------------------------------------------------------------
check "four more are accepted" add_many 4 8
head -c 100M /dev/zero >>"$filler" 2>/dev/null
check "not a block is left" [ "$(free_kib)" -lt 8 ]
api "tasks?limit=4" >"$answer"
check "while some of them are not done" shows 'any(.tasks[]; .done | not)'
check "a new task is refused" wait_until "$START_S" add_says 503 disk_full
check "the judge says that it cannot store" wait_until "$ANSWER_S" logged boot event=store_failed
check "the judicator is killed there" kill -KILL "$(pid_in "$run/judicator.pid")"
rm "$filler"
check "with room again it serves" wait_until "$START_S" serves
check "nothing was lost" wait_until "$ANSWER_S" count_done $((COUNT + 5))
check "and everything is whole" all_are_there
check "new tasks are accepted" wait_until "$START_S" add_many 1 0
check "and end" wait_until "$ANSWER_S" count_done $((COUNT + 6))

judge_stop
umount "$disk"
finish
