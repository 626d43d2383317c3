#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A thousand submissions at once, each on a connection of its own: all are answered, none is lost, none is done twice.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

COUNT=1000
slots=4

all_done()
{
	api "tasks?limit=1000&status=pending" >"$answer" && shows '.tasks == []' &&
		api "tasks?limit=1000" >"$answer" && shows "(.tasks | length == $COUNT) and all(.tasks[]; .done)"
}

ulimit -n 4096
judge_start
rows many "$COUNT" "$DIR/ids"
check "all of them end" wait_until 150 all_done
check "all were accepted" shows 'all(.tasks[]; .status == "success" and .verdict == "accepted" and .attempt == 1)'
check "they are the ones that were answered" eval 'jq -r ".tasks[].id" "$answer" | sort | diff - "$DIR/ids"'
check "each was done once" eval \
	'sed -n "s/.* role=judicator event=task id=\([0-9a-f]*\) to=success .*/\1/p" "$DIR/boot.log" | sort | diff - "$DIR/ids"'
check "each ran once" eval \
	'sed -n "s/.* role=executor event=task_done id=\([0-9a-f]*\) .*/\1/p" "$DIR/boot.log" | sort | diff - "$DIR/ids"'
judge_stop
finish
