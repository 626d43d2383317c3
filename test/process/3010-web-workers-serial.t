#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Web workers: all of them serve; kill -9 of one under load fails what it had accepted and nothing else, and it is back at once; the
# counters are about all and never go back; a held worker is missed by nobody; the port is not shared with strangers.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

CLIENTS=32 KILLS=10
crowd()
{
	python3 "${0%/*}/crowd.py" "$@"
}

# of NAME : sums up the samples of a metric that begin so.
of()
{
	curl -sS --max-time 30 "$url/metrics" | awk -v name="$1" 'index($0, name) == 1 {sum += $NF} END {printf "%d\n", sum}'
}

is()
{
	[ "$1" = "$2" ] || { echo "got '$1', expected '$2'"; return 1; }
}

descriptors_of()
{
	set -- "/proc/$1/fd"/*
	echo $#
}

# has_lived PID : for more than a second: the next death is followed by a restart at once.
has_lived()
{
	awk -v hz="$(getconf CLK_TCK)" 'NR == FNR {up = $1; next} {sub(/.*\) /, ""); exit !(up - $20 / hz > 1.05)}' \
		/proc/uptime "/proc/$1/stat"
}

is_stopped()
{
	grep -q '^State:[[:space:]]*T' "/proc/$1/status"
}

accepts()
{
	[ -n "$(crowd accepted "$gateway_port" "$1")" ]
}

queues()
{
	[ "$(crowd queued "$gateway_port" "$1")" -gt 0 ]
}

workers_are()
{
	[ "$(of conclave_gateway_workers)" = "$1" ]
}

judge_start
check "two workers serve" wait_until "$START_S" workers_are 2
start crowd python3 "${0%/*}/crowd.py" run "$gateway_port" "$CLIENTS"
for worker in $WORKERS; do
	check "$worker has connections" wait_until 20 accepts "$(pid_in "$run/$worker.pid")"
done

# --- killed under load ----------------------------------------------------------------------------------------------
# A worker is stopped first: what it has accepted is now certain, and what comes meanwhile waits in its queue.
descriptors=$(descriptors_of "$(pid_in "$run/gateway.pid")")
killed=0 queued=0 before=0 backwards=0
: >"$DIR/victims"
for ((i = 0; i < KILLS; i++)); do
	worker=gateway.$((1 + i % 2))
	wait_until "$START_S" is_serving "$run" "$worker" >/dev/null || break
	pid=$(pid_in "$run/$worker.pid")
	wait_until "$START_S" has_lived "$pid" >/dev/null && wait_until 20 accepts "$pid" >/dev/null || break
	kill -STOP "$pid" && wait_until 10 is_stopped "$pid" >/dev/null || break
	crowd accepted "$gateway_port" "$pid" >>"$DIR/victims"
	wait_until 10 queues "$pid" >/dev/null && queued=$((queued + 1))
	kill -KILL "$pid" && killed=$((killed + 1))
	wait_until "$START_S" is_new "$run" "$worker" "$pid" >/dev/null || break
	now=$(of conclave_gateway_requests_total)
	[ "$now" -ge "$before" ] || backwards=$((backwards + 1))
	before=$now
done
check "$KILLS kills" is "$killed" "$KILLS"
check "connections waited at each of the dead" is "$queued" "$KILLS"
check "counters never go back" is "$backwards" 0
check "two workers serve again" wait_until "$START_S" workers_are 2
check "the service has as many descriptors as before" wait_until 10 \
	eval 'is "$(descriptors_of "$(pid_in "$run/gateway.pid")")" "$descriptors"'
check "restarts are counted" is "$(of conclave_gateway_worker_restarts_total)" "$KILLS"
stop crowd
check "the clients end by themselves" is "$status" 0
grep -E '^(answered|failed|slowest_ms) [0-9]+ *$' "$DIR/crowd.log" | diag
answered=$(awk '/^answered/ {print $2}' "$DIR/crowd.log")
failed=$(grep -c '^failed [0-9]* [^ ]' "$DIR/crowd.log")
check "they were answered" [ "${answered:-0}" -gt 1000 ]
check "the kills met requests" [ "$failed" -gt 0 ]
check "only what a dead worker had accepted has failed" \
	is_empty "$(sed -n 's/^failed \([0-9]*\) [^ ].*/\1/p' "$DIR/crowd.log" | grep -vxFf "$DIR/victims")"
check "no answer was slow" [ "$(awk '/^slowest_ms/ {print $2}' "$DIR/crowd.log")" -lt 20000 ]
counted=0
for route in /healthz /api/v1/tasks /api/v1/languages; do
	counted=$((counted + $(of "conclave_gateway_requests_total{method=\"GET\",route=\"$route\"")))
done
check "each answer is counted, whoever gave it ($counted)" [ "$counted" -ge "${answered:-0}" ]

# From the death to the successor's "serving", in ms.
awk '
function ms(ts, t) { split(substr(ts, 15), t, "[:TZ]"); return (t[1] * 3600 + t[2] * 60 + t[3]) * 1000 }
/ role=gateway event=service-exited service=gateway\.[0-9]+ .* signal=9 / {
	worker = $5; sub("service=", "", worker); died[worker] = ms($1)
}
/ event=serving / {
	worker = $3; sub("role=", "", worker)
	if (worker in died) { print (ms($1) - died[worker] + 86400000) % 86400000; delete died[worker] }
}' "$DIR/boot.log" | sort -n >"$DIR/back"
echo "# back after: $(tr '\n' ' ' <"$DIR/back")ms"
check "each is back" is "$(wc -l <"$DIR/back")" "$KILLS"
check "within 2 s" [ "$(tail -n 1 "$DIR/back")" -le 2000 ]
check "within 200 ms, as far as it is ours" [ "$(head -n 1 "$DIR/back")" -le 200 ]
check "nobody backed off" not logged boot event=service-backoff

# --- held ----------------------------------------------------------------------------------------------------------------
all_answered()
{
	local i
	for i in {1..40}; do
		curl -sS --fail --max-time 10 -o /dev/null "$url/healthz" || return 1
	done
}
start hold "$BIN/conclave" hold gateway.1 --dir "$state"
check "hold says so" wait_until "$ANSWER_S" logged hold 'gateway.1 is held'
pid=$(pid_in "$run/gateway.1.pid")
kill -KILL "$pid"
check "it stays down" wait_until "$ANSWER_S" logged boot 'event=service-held service=gateway.1'
check "one worker serves" wait_until "$START_S" workers_are 1
check "and is sent everything" all_answered
stop hold
check "released, it serves" wait_until "$START_S" is_new "$run" gateway.1 "$pid"
check "two workers" wait_until "$START_S" workers_are 2

# Told to stop, it ends in order and comes again.
pid=$(pid_in "$run/gateway.2.pid")
wait_until "$START_S" has_lived "$pid" >/dev/null
kill -TERM "$pid"
check "a stopped worker is started again" wait_until "$START_S" is_new "$run" gateway.2 "$pid"
check "it had ended by itself" wait_until 5 logged boot "service=gateway.2 pid=$pid exit_code=0"

# --- the service, and strangers -------------------------------------------------------------------------------------------
start other "$BIN/gateway" --dir "$DIR/other" --gateway.addresses="127.0.0.1:$gateway_port" \
	--judicator.addresses="127.0.0.1:$judicator_port"
check "the port is not shared" wait_until "$START_S" logged other \
	"event=listen_failed address=127.0.0.1:$gateway_port why=\"Address already in use\" fix="
stop other
check "and the other has never served" not logged other event=serving
pid=$(pid_in "$run/gateway.pid") orphans=$(pid_in "$run/gateway.1.pid")
kill -KILL "$pid"
check "the service is killed and comes back" wait_until "$START_S" is_new "$run" gateway "$pid"
check "its workers have gone with it" not has_argument "$orphans" "$run/gateway.conf"
check "others serve" wait_until "$START_S" workers_are 2
judged "a task is judged" "$(task '{language: "python", source: "print(3)", expected: "3\n"}')" 'ended("success"; "accepted")'
check "the port was not contended for" not logged boot event=listen_failed
judge_stop
finish
