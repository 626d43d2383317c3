#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The programs and their language profiles are where only root may go (a clone in /root, an installation under umask 077), while the
# services run as boot.user: what is read there is read before the privileges are dropped.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

check "the test runs as root" [ "$(id -u)" = 0 ] || finish
clone=$DIR/clone
(
	umask 077
	mkdir -p "$clone/build/private" "$clone/cfg" &&
		cp -R "$BIN" "$clone/build/private/bin" && cp -R "$SOURCE/cfg/languages" "$clone/cfg/languages"
) || finish
check "nobody else may enter the clone" [ "$(stat -c '%a %u' "$clone")" = "700 0" ]
check "or read a profile" [ "$(stat -c '%a %u' "$clone/cfg/languages/c.ini")" = "600 0" ]

BIN=$clone/build/private/bin
judge_start
for service in judicator executor $WORKERS; do
	check "$service runs as boot.user" not grep -q '^Uid:[[:space:]]*0' "/proc/$(pid_in "$run/$service.pid")/status"
done
judged "a task is judged" \
	"$(task '{language: "c", source: "#include <stdio.h>\nint main(void) { puts(\"3\"); return 0; }", expected: "3\n"}')" \
	'ended("success"; "accepted")'
languages=$(api languages)
check "the gateway knows the languages" jq -e '[.languages[].name] | contains(["bash", "c", "cpp", "python"])' <<<"$languages"
check "no service had to be started again" not logged boot event=service-exited
judge_stop
finish
