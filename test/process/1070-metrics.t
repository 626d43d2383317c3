#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the programs tell Prometheus: judicator and executor at addresses of their own, and dashboard and rules ask for nothing else.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

free_port && judicator_metrics=$port
free_port && executor_metrics=$port

# page PORT FILE : a page of metrics.
page()
{
	curl -sS --fail-with-body --max-time 20 "http://127.0.0.1:$1/metrics" >"$2"
}

# says FILE LINE : the page has exactly this line.
says()
{
	grep -qxF -- "$2" "$1" && return 0
	echo "expected: $2"
	grep -F -- "${2%%[ \{]*}" "$1"
	return 1
}

status_of()
{
	curl -s -o /dev/null -w '%{http_code}' --max-time 20 "$@"
}

judge_start --judicator.metrics_address="127.0.0.1:$judicator_metrics" \
	--executor.metrics_address="127.0.0.1:$executor_metrics"
judged "a task is accepted" "$(task '{language: "python", source: "print(1)", expected: "1\n"}')" \
	'ended("success"; "accepted")'
judged "one is wrong" "$(task '{language: "python", source: "print(2)", expected: "1\n"}')" \
	'ended("success"; "wrong_answer")'
# Content of this size is fetched once.
submitted=$(task '{language: "python", source: "print(len(input()))", input: ("x" * 100000), expected: "100000"}')
for time in first second; do
	judged "a large input, for the $time time" "$submitted" 'ended("success"; "accepted")'
done

J=$DIR/judicator.page E=$DIR/executor.page G=$DIR/gateway.page
check "the judicator has a page" page "$judicator_metrics" "$J"
check "the executor has a page" page "$executor_metrics" "$E"
check "the gateway has a page" page "$gateway_port" "$G"
for line in 'conclave_executors{state="alive"} 1' 'conclave_judicator_added_total 4' \
	'conclave_judicator_ended_total{verdict="accepted"} 3' 'conclave_judicator_ended_total{verdict="wrong_answer"} 1' \
	'conclave_judicator_leading 1' 'conclave_judicator_rpc_calls_total{method="add",result="ok"} 4' \
	'conclave_judicator_store_failed_total 0' 'conclave_judicator_store_up 1' "conclave_slots $slots" \
	'conclave_tasks_oldest_seconds 0' 'conclave_tasks_pending 0' 'conclave_tasks_running 0'; do
	check "judicator: $line" says "$J" "$line"
done
for line in 'conclave_executor_box_up{isolation="full"} 1' "conclave_executor_slots $slots" 'conclave_executor_registered 1' \
	'conclave_executor_held{state="running"} 0' 'conclave_executor_tasks_total{verdict="accepted"} 3' \
	'conclave_executor_judicator_calls_total{method="register",result="ok"} 1' 'conclave_executor_system_failures_total 0' \
	'conclave_executor_blobs_total{result="hit"} 1' 'conclave_executor_blobs_total{result="fetched"} 1' \
	'conclave_executor_blob_cache_bytes 100000' 'conclave_executor_blob_evictions_total 0'; do
	check "executor: $line" says "$E" "$line"
done

# started FILE : when the process of the page was started is within the last minutes.
started_lately()
{
	local at now
	at=$(sed -n 's/^process_start_time_seconds \([0-9]*\).*/\1/p' "$1")
	now=$(date +%s)
	[ "$at" -le "$((now + 1))" ] && [ "$at" -gt "$((now - 600))" ]
}
check "the judicator's start is told" started_lately "$J"
resident=$(sed -n 's/^process_resident_memory_bytes //p' "$J")
check "its memory is told" [ "${resident%.*}" -gt 1000000 ]
open=$(sed -n 's/^process_open_fds //p' "$J")
check "its descriptors are told" [ "$open" -gt 5 ]

check "another path is 404" [ "$(status_of "http://127.0.0.1:$judicator_metrics/")" = 404 ]
check "another method is 405" [ "$(status_of -X POST -d '' "http://127.0.0.1:$executor_metrics/metrics")" = 405 ]
check "a foreign Host is refused" [ "$(status_of -H 'Host: evil.example' "http://127.0.0.1:$judicator_metrics/metrics")" = 400 ]
check "localhost is not" [ "$(status_of -H "Host: localhost:$judicator_metrics" "http://127.0.0.1:$judicator_metrics/metrics")" = 200 ]

check "dashboard and rules ask for what is served" python3 "$SOURCE/test/process/monitoring.py" \
	"$SOURCE/cfg/dist/prometheus-rules.yml" "$SOURCE/cfg/dist/grafana.json" "$J" "$E" "$G"

# A restart is seen: the time of the start is another.
before=$(grep '^process_start_time_seconds ' "$E")
old=$(pid_in "$run/executor.pid")
kill -KILL "$old"
is_restarted()
{
	is_new "$run" executor "$old" && page "$executor_metrics" "$E" &&
		[ "$(grep '^process_start_time_seconds ' "$E")" != "$before" ]
}
check "a restart is seen" wait_until "$START_S" is_restarted

# The last hour is the store's: it outlives the judicator, however that ends.
hour_is_whole()
{
	api stats >"$answer" && shows '(.added | add) == 4 and (.done | add) == 4 and (.accepted | add) == 3 and
		([.added, .done, .accepted, .pending, .running] | map(length) | unique) == [60] and .step_s == 60 and
		.pending[0] == 0 and .pending[59] == 0 and .running[59] == 0 and .now.pending == 0 and .now.oldest == null and
		.now.executors == {alive: 1, dead: 0} and .now.slots == '"$slots"
}
check "the last hour" hour_is_whole
old=$(pid_in "$run/judicator.pid")
kill -KILL "$old"
check "the judicator is back" wait_until "$START_S" is_new "$run" judicator "$old"
check "and so is the last hour" wait_until "$START_S" hour_is_whole

stop boot
check "it ends well" [ "$status" = 0 ]

# Without the options nobody listens.
judge_start
check "the last hour is there after a stop" hour_is_whole
check "the judicator serves no page" not page "$judicator_metrics" "$J"
check "the executor serves no page" not page "$executor_metrics" "$E"
finish
