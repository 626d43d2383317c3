#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A service that dies is started again; one whose pid file is held is not, until it is released.
. "${0%/*}/lib.sh"
state=$DIR/state run=$DIR/state/run

standalone boot "$state"
check "all services start" wait_until 20 all_serving "$run" || finish
boot=${started[boot]}

for service in $SERVICES; do
	old=$(pid_in "$run/$service.pid")
	kill -KILL "$old"
	check "$service comes back with a new pid" wait_until 5 is_new "$run" "$service" "$old"
done
check "its death was logged" logged boot "event=service-exited service=executor"

# Held: whoever has the lock keeps boot from starting the service.
coproc HOLD { exec "$TOOLS/hold" "$run/executor.pid"; }
exec {holding}>&"${HOLD[1]}"
check "the lock of a running service is free" read -r -t 15 -u "${HOLD[0]}"
check "holding does not disturb the service" is_serving "$run" executor
kill -KILL "$(pid_in "$run/executor.pid")"
check "boot sees that it is held" wait_until 5 logged boot "event=service-held service=executor"
check "the pid file says that it is down" [ "$(pid_in "$run/executor.pid")" = -1 ]
other=$(pid_in "$run/gateway.pid")
kill -KILL "$other"
check "others are restarted meanwhile" wait_until 5 is_new "$run" gateway "$other"
check "the held one is still down" not is_serving "$run" executor
exec {holding}>&- {HOLD[1]}>&-
check "released, it is started" wait_until 5 is_serving "$run" executor
check "boot was the same all the time" [ "$(pid_in "$run/boot.lock")" = "$boot" ]
check "boot runs" kill -0 "$boot"
finish
