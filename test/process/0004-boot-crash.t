#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# boot is SIGKILLed: no orphan keeps running, and the next start recovers.
. "${0%/*}/lib.sh"
state=$DIR/state run=$DIR/state/run

# As root with the real sandbox, whose helper keeps root and must go all the same.
[ "$(id -u)" = 0 ] && box=ns || box=none
has_helper()
{
	[ "$box" = none ] || pgrep -f "conclave-box $run/executor"
}

standalone first "$state" --executor.box=$box
check "all services start" wait_until 20 all_serving "$run" || finish
check "the sandbox helper runs" wait_until 10 has_helper
stop first KILL
check "boot is dead" [ "$status" = 137 ]
check "no orphan within 2 s" wait_until 2 has_no_process "$run"
check "the crash left a pid behind" [ "$(pid_in "$run/executor.pid")" != -1 ]

standalone second "$state" --executor.box=$box
check "the next start is not refused" wait_until 20 all_serving "$run" || finish

# Stopped processes get SIGKILL too, and one that has lost its boot in the middle of a restart is no exception.
kill -STOP "$(pid_in "$run/gateway.pid")"
kill -KILL "$(pid_in "$run/executor.pid")"
stop second KILL
check "no orphan within 2 s, even if one was stopped" wait_until 2 has_no_process "$run"
standalone third "$state" --executor.box=$box
check "it recovers again" wait_until 20 all_serving "$run" || finish
stop third
check "and stops cleanly" [ "$status" = 0 ]
check "no process is left" has_no_process "$run"
finish
