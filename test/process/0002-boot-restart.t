#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A service that dies is started again; one whose pid file is held is not, until it is released.
. "${0%/*}/lib.sh"
state=$DIR/state run=$DIR/state/run

standalone boot "$state"
check "all services start" wait_until 20 all_serving "$run" || finish
boot=${started[boot]}

for service in $SERVICES $WORKERS; do
	old=$(pid_in "$run/$service.pid")
	kill -KILL "$old"
	check "$service comes back with a new pid" wait_until 5 is_new "$run" "$service" "$old"
	check "its death was logged" wait_until 5 logged boot "event=service-exited service=$service "
done

# Held: whoever has the lock keeps boot, or the service whose worker it is, from starting it.
for service in $SERVICES gateway.2; do
	other=judicator
	[ "$service" = judicator ] && other=executor
	check "all serve" wait_until 5 all_serving "$run"
	coproc HOLD { exec "$TOOLS/hold" "$run/$service.pid"; }
	holder=$HOLD_PID
	exec {holding}>&"${HOLD[1]}"
	check "the lock of a running $service is free" read -r -t 15 -u "${HOLD[0]}"
	check "holding does not disturb the $service" is_serving "$run" "$service"
	kill -KILL "$(pid_in "$run/$service.pid")"
	check "it is seen that $service is held" wait_until 5 logged boot "event=service-held service=$service "
	check "the pid file says that it is down" [ "$(pid_in "$run/$service.pid")" = -1 ]
	old=$(pid_in "$run/$other.pid")
	kill -KILL "$old"
	check "others are restarted meanwhile" wait_until 5 is_new "$run" "$other" "$old"
	check "the held $service is still down" not is_serving "$run" "$service"
	exec {holding}>&- {HOLD[1]}>&-
	wait "$holder"
	check "released, $service is started" wait_until 5 is_serving "$run" "$service"
done
check "boot was the same all the time" [ "$(pid_in "$run/boot.lock")" = "$boot" ]
check "boot runs" kill -0 "$boot"
finish
