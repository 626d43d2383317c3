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

# What services take is what clients see.
# posts STATUS BYTES : a task of so many bytes is answered with that status.
posts()
{
	local code
	code=$(printf '{"language": "c", "source": "%*s"}' "$2" '' |
		curl -sS --max-time 30 -o "$DIR/body" -w '%{http_code}' -H 'Content-Type: application/json' \
			--data-binary @- "http://127.0.0.1:$gateway_port/api/v1/tasks")
	[ "$code" = "$1" ] && return
	echo "status $code"
	cat "$DIR/body"
	return 1
}

# cuts_off : a header that does not end is not waited for.
cuts_off()
{
	local rest
	exec 9<>"/dev/tcp/127.0.0.1/$gateway_port" && printf 'GET / HTTP/1.1\r\n' >&9 &&
		timeout 5 cat <&9
	rest=$?
	exec 9>&-
	return "$rest"
}

check "a large task is taken" posts 201 5000
printf '[log]\nlevel = debug\n[gateway]\nbody_max = 2KiB\nread_timeout = 200ms\n[judicator]\nmax_retries = 5\nreserve = 1024GiB\n' \
	>"$DIR/c.conf"
kill -HUP "${started[boot]}"
check "gateway.body_max is taken" wait_until 10 posts 413 5000
check "gateway.read_timeout is taken" wait_until 10 cuts_off
if [ "$(df -B1G --output=avail "$state" | tail -n 1)" -lt 1024 ]; then
	check "judicator.reserve is taken" wait_until 10 posts 503 10
	check "and is the reason" grep -q '"disk_full"' "$DIR/body"
fi
printf '[log]\nlevel = debug\n[judicator]\nmax_retries = 5\n' >"$DIR/c.conf"
kill -HUP "${started[boot]}"
check "and all of it back" wait_until 10 posts 201 5000

printf '[log]\nlevel = loud\n' >"$DIR/c.conf"
kill -HUP "${started[boot]}"
check "an error is logged with its place" wait_until 5 grep -qE "event=reload-failed .*c.conf:2.*loud" "$DIR/boot.log"
check "and the files stay as they were" grep -qx "level = debug" "$run/executor.conf"
check "nothing was restarted" [ "$(cat "$run"/*.pid)" = "$pids" ]
stop boot
check "it stops with status 0" [ "$status" = 0 ]
finish
