#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Three programs with addresses of their own and two executors, one of which has Python only: a task goes only where its language is.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

free_port && judicator_port=$port
free_port && gateway_port=$port
url=http://127.0.0.1:$gateway_port
mkdir "$DIR/python-only"
cp "$SOURCE/cfg/languages/python.ini" "$DIR/python-only/"

# program NAME PROGRAM LINE... : writes its file and starts it; the state directory, and so the secret, is common.
program()
{
	local name=$1 program=$2
	shift 2
	printf '%s\n' "[boot]" "dir = $state" "run_dir = $DIR/run-$name" "$@" >"$DIR/$name.conf"
	start "$name" "$BIN/$program" -c "$DIR/$name.conf"
}

executor()
{
	local name=$1
	shift
	program "$name" executor "[executor]" "name = $name" "slots = 1" "box = ns" "$@" \
		"[judicator]" "addresses = 127.0.0.1:$judicator_port"
}

# has_executors FILTER : so is the list of executors.
has_executors()
{
	local list
	list=$(api executors) && jq -e "$1" <<<"$list"
}

# is_at ID FILTER : so is the task now.
is_at()
{
	api "tasks/$1" >"$answer" && shows "$2"
}

program judicator judicator "[judicator]" "name = j1" "address = 127.0.0.1:$judicator_port"
check "the judicator starts" wait_until "$START_S" is_serving "$DIR/run-judicator" main || finish
program gateway gateway "[gateway]" "addresses = 127.0.0.1:$gateway_port" "[judicator]" "addresses = 127.0.0.1:$judicator_port"
executor e1
executor e2 "languages = $DIR/python-only"
check "both executors come" wait_until "$START_S" has_executors '[.executors[] | select(.alive) | .name] == ["e1", "e2"]' || finish
all=$({ echo raw; basename -s .ini "$SOURCE"/cfg/languages/*.ini; } | jq -nRc '[inputs] | sort')
check "e1 offers all, e2 Python and raw commands" has_executors \
	"[.executors[].languages | sort] == [$all, [\"python\", \"raw\"]]"
check "the judicator is shown" eval 'api judicators >"$answer" && shows "[.judicators[] | [.name, .leading, .store]] == [[\"j1\", true, \"sqlite\"]]"'
check "the languages say who offers them" eval 'api languages >"$answer" && shows \
	"[.languages[] | select(.name == \"c\" or .name == \"python\") | [.executors[].name]] == [[\"e1\"], [\"e1\", \"e2\"]]"'

c=$(task '{language: "c", source: "int main(void) { return 0; }\n"}')
bash=$(task '{language: "bash", source: "true"}')
python=$(task '{language: "python", source: "print(1)\n", expected: "1\n"}')
blocker=$(task '{language: "bash", source: "sleep 250", limits: {wall_ms: 300000}}')

# e1 has one slot and is busy; the next C task waits for it although e2 is idle and e2 takes what comes later.
blocker_id=$(post "$blocker" | jq -r .id)
check "a Bash task runs on e1" wait_until "$ANSWER_S" is_at "$blocker_id" '.status == "running" and .executor == "e1"'
c_id=$(post "$c" | jq -r .id)
judged "a Python task goes past the waiting C task to e2" "$python" 'ended("success"; "accepted") and .executor == "e2"'
judged "and another" "$python" 'ended("success"; "accepted") and .executor == "e2"'
check "the C task has waited" is_at "$c_id" '.status == "pending" and .attempt == 0 and .executor == null'
check "e1's task is cancelled" api "tasks/$blocker_id" -X DELETE
check "the C task runs on e1" wait_until "$ANSWER_S" is_at "$c_id" 'ended("success"; "accepted") and .executor == "e1"'

# Many at once.
ids=()
for i in 1 2 3 4 5; do
	for text in "$c" "$bash" "$python"; do
		ids+=("$(post "$text" | jq -r .id)")
	done
done
all_accepted()
{
	local id
	for id in "${ids[@]}"; do
		is_at "$id" 'ended("success"; "accepted") and (.executor == "e1" or (.executor == "e2" and .language == "python"))' || return 1
	done
}
wait_until "$ANSWER_S" all_accepted >/dev/null
check "of fifteen tasks at once each ran where its language is" all_accepted

# Nobody has the language: the task waits, and runs when somebody has.
stop e1
check "e1 stops cleanly" [ "$status" = 0 ]
c_id=$(post "$c" | jq -r .id)
judged "Python still runs" "$python" 'ended("success"; "accepted") and .executor == "e2"'
check "C waits" is_at "$c_id" '.status == "pending" and .attempt == 0'
executor e1
check "until e1 is back" wait_until "$ANSWER_S" is_at "$c_id" 'ended("success"; "accepted") and .executor == "e1"'

for name in gateway e1 e2 judicator; do
	stop "$name"
	check "$name stops with status 0" [ "$status" = 0 ]
	check "nothing was reported by a sanitizer in $name" not grep -qE 'ERROR: (Address|Leak)Sanitizer|runtime error:' "$DIR/$name.log"
done
check "no process is left" has_no_process "$DIR/run-"
finish
