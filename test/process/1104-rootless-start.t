#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An ordinary user's judge: where it keeps its things, what it says of itself, what it becomes when more is allowed, and what it does
# where user namespaces are off.
CONCLAVE_TEST_ROOTLESS=1
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"
out=$DIR/out

free_port && judicator_port=$port
free_port && gateway_port=$port
url=http://127.0.0.1:$gateway_port
addresses=(--judicator.address="127.0.0.1:$judicator_port" --gateway.addresses="127.0.0.1:$gateway_port" --executor.slots=1)
home=$DIR/home
mkdir -m 700 "$DIR/xdg" && chown "$user:$user" "$DIR/xdg"

# says PATTERN COMMAND... : a line of its output matches, whatever its exit code.
says()
{
	local pattern=$1
	shift
	"$@" >"$out" 2>&1
	grep -qE -- "$pattern" "$out" || { cat "$out"; return 1; }
}

# is_private DIRECTORY : the user's, and nobody else may look in.
is_private()
{
	[ "$(stat -c '%U %a' "$1")" = "$user 700" ] || { ls -la "$1"; return 1; }
}

isolation_is()
{
	api executors | jq -e --arg want "$1" '.executors[] | select(.alive) | .isolation == $want' >/dev/null
}

# runs_alone ISOLATION [PREFIX...] : a judge started by the user, behind the prefix, offers bash in that isolation, judges, and stops.
runs_alone()
{
	local want=$1
	shift
	start boot "$@" "${as[@]}" "$BIN/judicator" --standalone --dir "$state" "${addresses[@]}"
	check "$want: offers bash" wait_until "$START_S" offers bash
	check "$want: is what it names" isolation_is "$want"
	isolation=$want
	check "$want: and what the result names" submit_and_isolated
	stop boot
	check "$want: stops with status 0" [ "$status" = 0 ]
	check "$want: nothing is left" has_no_process "$run"
}

submit_and_isolated()
{
	submit "$(task '{language: "bash", source: "echo $((6 * 7)); id -u", expected: "42\n"}')" &&
		jq -e --arg want "$isolation" '.done and .isolation == $want and .verdict == "wrong_answer"' "$answer" >/dev/null &&
		jq -e '.cases[0].stdout | split("\n") | .[0] == "42" and (.[1] | tonumber) > 0' "$answer" >/dev/null || { cat "$answer"; return 1; }
}

# --- without any directory named ------------------------------------------------------------------------------
start boot "${as[@]}" XDG_RUNTIME_DIR="$DIR/xdg" "$BIN/judicator" --standalone "${addresses[@]}"
check "it comes up in the user's own directories" wait_until "$START_S" offers bash c cpp python
check "state is below \$HOME" is_private "$home/.local/state/conclave/judicator"
check "the secret too, for his eyes only" [ "$(stat -c '%U %a' "$home/.local/state/conclave/secret")" = "$user 600" ]
check "the run directory is below XDG_RUNTIME_DIR" is_serving "$DIR/xdg/conclave/judicator" executor
check "the log says why it is not better" logged boot 'isolation="rootless, one uid, limits polled" why="no subordinate ids: '
check "doctor names the sandbox" says '^ok +sandbox .*isolation: rootless, one uid, limits polled' "${as[@]}" "$BIN/conclave" doctor
check "what to type for ids of its own" grep -qE "^ +-> sudo usermod --add-subuids [0-9]+-[0-9]+ --add-subgids [0-9]+-[0-9]+ $user\$" "$out"
check "what it means that memory is looked at" grep -qE '^warn sandbox +limits polled: ' "$out"
check "and what to type for a control group" grep -qE '^ +-> .*(sudo chown|Delegate=yes)' "$out"
# The executor dies, its sandbox with it; boot starts the next, which is as good.
old=$(pid_in "$DIR/xdg/conclave/judicator/executor.pid")
kill -KILL "$old"
check "a killed executor is replaced" wait_until "$START_S" is_new "$DIR/xdg/conclave/judicator" executor "$old"
check "by one that works" wait_until "$START_S" submit_and_isolated
stop boot
check "it stops with status 0" [ "$status" = 0 ]
check "no process is left" has_no_process "$DIR/xdg"

# --- with what doctor says --------------------------------------------------------------------------------------
# Subordinate ids as usermod would give them; a mount namespace keeps the file to us.
cat >"$DIR/with-ids" <<END
echo $user:1879048192:65536 >"$DIR/ids" && touch /etc/subuid /etc/subgid &&
	mount --bind "$DIR/ids" /etc/subuid && mount --bind "$DIR/ids" /etc/subgid && exec "\$@"
END
runs_alone "rootless, limits polled" unshare -m bash "$DIR/with-ids"

# --- where there are no user namespaces ---------------------------------------------------------------------------
# In a namespace of ours that allows no more of them.
unshare -U sleep 600 &
holder=$!
started[holder]=$holder
in_own_namespace()
{
	[ "$(readlink "/proc/$holder/ns/user")" != "$(readlink /proc/self/ns/user)" ]
}
check "there is a namespace to switch them off in" wait_until 10 in_own_namespace
echo "0 0 65536" >"/proc/$holder/uid_map" && echo "0 0 65536" >"/proc/$holder/gid_map"
without=(nsenter -t "$holder" -U -S 0 -G 0 sh -c 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"' sh)

start none "${without[@]}" "${as[@]}" "$BIN/judicator" --standalone --dir "$state" "${addresses[@]}"
check "the executor does not start" wait_until "$START_S" logged none 'role=executor event=box kind=ns'
check "it says what to type" logged none 'As root, one of: sysctl -w user.max_user_namespaces'
check "and what works without" logged none 'executor.box = none needs nothing, and isolates nothing'
stop none
check "doctor fails, and says so too" says '^fail sandbox +no program can run in it: cannot make a user namespace' \
	"${without[@]}" "${as[@]}" "$BIN/conclave" doctor
check "with the line to type" grep -qF -- '-> sudo sysctl -w user.max_user_namespaces=' "$out"
start none "${without[@]}" "${as[@]}" "$BIN/judicator" --standalone --dir "$state" "${addresses[@]}" --executor.box=none
check "with box none it starts" wait_until "$START_S" offers bash
check "and says that it isolates nothing" isolation_is none
stop none
check "that one stops with status 0" [ "$status" = 0 ]
stop holder

finish
