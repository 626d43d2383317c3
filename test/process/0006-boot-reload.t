#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SIGHUP: reloadable options reach the running services; what needs a restart is named; errors change nothing.
. "${0%/*}/lib.sh"
state=$DIR/state run=$DIR/state/run

printf '[log]\nlevel = info\n' >"$DIR/c.conf"
standalone boot "$state" -c "$DIR/c.conf"
check "all services start" wait_until 20 all_serving "$run" || finish
pids=$(cat "$run"/*.pid)

printf '[log]\nlevel = debug\n[judicator]\nmax_retries = 5\n' >"$DIR/c.conf"
kill -HUP "${started[boot]}"
for role in $SERVICES; do
	check "$role takes the new level" \
		wait_until 5 grep -qE "role=$role event=reloaded changed=1" "$DIR/boot.log"
done
check "what needs a restart is named" logged boot 'needs_restart="judicator.max_retries"'
check "the generated file has the new level" grep -qx "level = debug" "$run/executor.conf"

printf '[log]\nlevel = loud\n' >"$DIR/c.conf"
kill -HUP "${started[boot]}"
check "an error is logged with its place" wait_until 5 grep -qE "event=reload-failed .*c.conf:2.*loud" "$DIR/boot.log"
check "and the files stay as they were" grep -qx "level = debug" "$run/executor.conf"
check "nothing was restarted" [ "$(cat "$run"/*.pid)" = "$pids" ]
stop boot
check "it stops with status 0" [ "$status" = 0 ]
finish
