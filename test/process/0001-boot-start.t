#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A start from nothing: directories, secret, pid files and generated files as documented; a second boot is refused.
. "${0%/*}/lib.sh"
state=$DIR/state run=$DIR/state/run

mode()
{
	stat -c %a "$1"
}

# uids_are PID UID : real, effective and saved.
uids_are()
{
	is "$(awk '/^Uid/ {print $2, $3, $4}' "/proc/$1/status")" "$2 $2 $2"
}

is()
{
	[ "$1" = "$2" ] || { echo "got '$1', expected '$2'"; return 1; }
}

standalone boot "$state"
check "all services start" wait_until 20 all_serving "$run" || finish
boot=${started[boot]}
check "boot.lock names boot" is "$(pid_in "$run/boot.lock")" "$boot"
for service in $SERVICES; do
	pid=$(pid_in "$run/$service.pid")
	check "$service is boot's child" is "$(awk '/^PPid/ {print $2}' "/proc/$pid/status")" "$boot"
	check "$service has a session of its own" is "$(ps -o sid= -p "$pid" | tr -d ' ')" "$pid"
	if [ "$(id -u)" = 0 ]; then
		check "$service.conf is root's, readable by the service's group" \
			is "$(stat -c '%a %u %g' "$run/$service.conf")" "640 0 $(id -g nobody)"
	else
		check "$service.conf is private" is "$(mode "$run/$service.conf")" 600
	fi
	check "$service.pid is private" is "$(mode "$run/$service.pid")" 600
	check "$service has its run directory" is "$(mode "$run/$service")" 700
	check "$service may gain no privileges" grep -q '^NoNewPrivs:[[:space:]]*1' "/proc/$pid/status"
	if [ "$(id -u)" = 0 ] && [ "$service" != gateway ]; then # which only starts its workers
		check "$service has dropped root" uids_are "$pid" "$(id -u nobody)"
	fi
done
for worker in $WORKERS; do
	pid=$(pid_in "$run/$worker.pid")
	check "$worker is the gateway's child" \
		is "$(awk '/^PPid/ {print $2}' "/proc/$pid/status")" "$(pid_in "$run/gateway.pid")"
	check "$worker.pid is private" is "$(mode "$run/$worker.pid")" 600
	check "$worker may gain no privileges" grep -q '^NoNewPrivs:[[:space:]]*1' "/proc/$pid/status"
	if [ "$(id -u)" = 0 ]; then
		check "$worker has dropped root" uids_are "$pid" "$(id -u nobody)"
	fi
done
check "the secret is private" is "$(mode "$state/secret")" 600
check "DIR and RUN are whose who started it" is "$(stat -c '%a %u' "$state" "$run" | sort -u)" "755 $(id -u)"
check "the secret is 64 hex digits" grep -qxE '[0-9a-f]{64}' "$state/secret"
secret=$(cat "$state/secret")

"$BIN/judicator" --standalone --dir "$state" >"$DIR/second.log" 2>&1
check "a second boot is refused with status 1" is $? 1
check "it names the first" grep -q "pid=$boot .*another boot runs on this run directory" "$DIR/second.log"
check "it says what to do" grep -q "stop process $boot, or give this one its own --dir" "$DIR/second.log"
check "the first is unharmed" all_serving "$run"
check "no service had to be started twice" not logged boot "event=service-exited"
check "the first still owns boot.lock" is "$(pid_in "$run/boot.lock")" "$boot"

stop boot
check "it stops with status 0" is "$status" 0
standalone boot "$state"
check "it starts again" wait_until 20 all_serving "$run" || finish
check "the secret has stayed" is "$(cat "$state/secret")" "$secret"
finish
