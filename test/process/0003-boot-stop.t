#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SIGTERM and SIGINT stop the services in reverse order and leave nothing behind; a second signal is no crash.
. "${0%/*}/lib.sh"
state=$DIR/state run=$DIR/state/run

# The order in which the services ended, out of boot's log.
ends()
{
	grep -oE 'role=boot event=service-exited service=[a-z]+' "$DIR/$1.log" | sed 's/.*=//' | tr '\n' ' '
}

for signal in TERM INT; do
	# An interrupt is ignored by background jobs of a script; boot must have its own handler.
	standalone "$signal" "$state"
	check "all services start" wait_until 20 all_serving "$run" || finish
	boot=${started[$signal]}
	kill "-$signal" "$boot"
	kill "-$signal" "$boot" 2>/dev/null
	stop "$signal" "$signal"
	check "SIG$signal, more than once: exit status 0" [ "$status" = 0 ]
	check "SIG$signal: reverse order" [ "$(ends "$signal")" = "gateway executor judicator " ]
	check "SIG$signal: all ended by themselves, workers too, with status 0" \
		[ "$(grep -c 'event=service-exited .* exit_code=0 ' "$DIR/$signal.log")" = 5 ]
	check "SIG$signal: no process is left" has_no_process "$run"
	for service in $SERVICES $WORKERS; do
		check "SIG$signal: $service.pid says -1" [ "$(pid_in "$run/$service.pid")" = -1 ]
	done
	check "SIG$signal: boot.lock says -1" [ "$(pid_in "$run/boot.lock")" = -1 ]
done

# A service that cannot answer is killed after stop_timeout.
standalone stuck "$state" --boot.stop_timeout=300ms
check "all services start" wait_until 20 all_serving "$run" || finish
kill -STOP "$(pid_in "$run/executor.pid")"
stop stuck
check "a stuck service does not hold up the stop" [ "$status" = 0 ]
check "it was killed" logged stuck "event=service-killed service=executor reason=stop_timeout"
check "the order is kept" [ "$(ends stuck)" = "gateway executor judicator " ]
check "no process is left" has_no_process "$run"
finish
