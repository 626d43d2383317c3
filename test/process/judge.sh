# SPDX-License-Identifier: Apache-2.0
# judge.sh - what the tests that submit tasks share, after lib.sh: a judge on ports of its own, and tasks by curl and jq.
#
#   judge_start                             a standalone judge with the real sandbox; $url is its gateway
#   judged "C is accepted" "$(task '{language: "c", $source}' source "$text")" 'ended("success"; "accepted")'
#
# The last answer is in the file $answer.
answer=$DIR/answer.json
state=$DIR/state run=$DIR/state/run

# Seen from here a judge is slow where it is built with sanitizers; nothing below waits this long when all is well.
START_S=60
ANSWER_S=120

# What the sandbox must come to. An ordinary user has no subordinate ids and no control group here: his memory is looked at every few
# milliseconds, so a limit on it is measured a little late, and more so on a busy machine.
isolation=full late_bytes=0
[ ${#as[@]} -gt 0 ] && isolation="rootless, one uid, limits polled" late_bytes=67108864

# What filters may use: the task ended so, in the first attempt and in the real sandbox; a limit of that name fired; memory was measured
# over a limit as exactly as this sandbox can.
PRELUDE='
def ended($status; $verdict): .done and .status == $status and .verdict == $verdict and .attempt == 1 and .isolation == "'$isolation'";
def within($low; $high): . >= $low and . <= $high;
def over_memory($allowed): if '$late_bytes' > 0 then within($allowed + 1; $allowed + '$late_bytes') else within($allowed - 1048576; $allowed) end;
def limit($name; $allowed): .limit != null and .limit.name == $name and .limit.allowed == $allowed;
def fits: .cases[0].limit == null and .cases[0].exit_code == 0 and .cases[0].signal == null;
'

# judge_start [ARGUMENT...] : returns once it offers every language.
judge_start()
{
	free_port && judicator_port=$port
	free_port && gateway_port=$port
	url=http://127.0.0.1:$gateway_port
	judge_again "$@"
	check "the judge is up and offers bash, c, cpp and python" wait_until "$START_S" offers bash c cpp python ||
		finish
}

slots=2 # of the executor: set it before the start

# judge_again [ARGUMENT...] : starts boot on the same directory and ports, and does not wait.
judge_again()
{
	start boot "${as[@]}" "$BIN/judicator" --standalone --dir "$state" --judicator.address="127.0.0.1:$judicator_port" \
		--gateway.addresses="127.0.0.1:$gateway_port" --gateway.workers=2 --executor.box=ns --executor.slots="$slots" "$@"
}

# api PATH [CURL-ARGUMENT...] : the body; fails on a status that is not 2xx.
api()
{
	local path=$1
	shift
	curl -sS --fail-with-body --max-time "$ANSWER_S" "$@" "$url/api/v1/$path"
}

# offers LANGUAGE... : the living executors offer all of them.
offers()
{
	local list
	list=$(api executors) &&
		jq -e '[.executors[] | select(.alive) | .languages[]] as $have | $ARGS.positional - $have == []' --args "$@" <<<"$list"
}

# task FILTER [NAME VALUE]... : the JSON of the jq filter, with the names bound to the texts.
task()
{
	local filter=$1 names=()
	shift
	while [ $# -ge 2 ]; do
		names+=(--arg "$1" "$2")
		shift 2
	done
	jq -nc "${names[@]}" "$filter"
}

# post TASK [QUERY] : submits it; the answer is printed.
post()
{
	api "tasks${2:-}" -H 'Content-Type: application/json' --data-binary @- <<<"$1"
}

is_done()
{
	jq -e '.done == true' "$answer" >/dev/null
}

# submit TASK : returns when it is done; the answer is in $answer.
submit()
{
	local deadline=$((SECONDS + ANSWER_S)) id
	post "$1" '?wait=60000' >"$answer" || { cat "$answer"; return 1; }
	until is_done; do
		id=$(jq -r .id "$answer")
		[ "$SECONDS" -lt "$deadline" ] || { echo "not done in time:"; cat "$answer"; return 1; }
		api "tasks/$id?wait=20000" >"$answer" || { cat "$answer"; return 1; }
	done
}

# shows FILTER : what jq says of the last answer is true.
shows()
{
	jq -e "$PRELUDE $1" "$answer" >/dev/null && return 0
	echo "expected: $1"
	jq -c . "$answer" | cut -c -4000
	return 1
}

submit_and_show()
{
	submit "$1" && shows "$2"
}

# judged DESCRIPTION TASK FILTER : one test point.
judged()
{
	check "$1" submit_and_show "$2" "$3"
}

# processes_of_uid UID : pids, zombies too.
processes_of_uid()
{
	awk -v uid="$1" '/^Uid:/ && $2 == uid {split(FILENAME, part, "/"); print part[3]}' /proc/[0-9]*/status 2>/dev/null
}

# submit_and_time TASK FILTER TIMING : FILTER holds each time, TIMING in one of five: what a busy machine adds to a time is not
# ours, what we add is there every time.
submit_and_time()
{
	local i
	for i in 1 2 3 4 5; do
		submit_and_show "$1" "$2" || return 1
		shows "$3" && return 0
	done
	return 1
}

# timed DESCRIPTION TASK FILTER TIMING : one test point.
timed()
{
	check "$1" submit_and_time "$2" "$3" "$4"
}

is_empty()
{
	[ -z "$1" ] || { printf 'there is: %s\n' "$1"; return 1; }
}

# rows GROUP [ARGUMENT...] : one test point a row of bad_input.py.
rows()
{
	local line why
	python3 "$SOURCE/test/process/bad_input.py" "$gateway_port" "$@" >"$DIR/rows" 2>"$DIR/rows-error"
	check "$1: there are rows" grep -q '^ok' "$DIR/rows"
	check "$1: the client did not fail" eval '! grep . "$DIR/rows-error"'
	while IFS= read -r line; do
		why=${line#not ok }
		check "$1: ${line#*ok }" [ "$why" = "$line" ]
	done <"$DIR/rows"
}

# judge_stop : the end of every test: nothing is left, and the judge blamed nothing on itself.
judge_stop()
{
	stop boot
	check "the judge stops with status 0" [ "$status" = 0 ]
	check "no process is left" has_no_process "$run"
	check "the sandbox has failed nowhere" not logged boot event=system_failure
	check "nothing was reported by a sanitizer" not grep -qE 'ERROR: (Address|Leak)Sanitizer|runtime error:' "$DIR/boot.log"
}

# load_start ARGUMENTS... : bench-load in the background; load_ended SECONDS : waits for its end; load_reap : its exit status is in $status. It
# goes by a file, for it may have ended long ago: bash forgets the status of a child when its number becomes another's.
load_start()
{
	start load bash -c '"$@"; echo $? >"$0"' "$DIR/load.status" "$BIN/bench-load" "$@"
}

load_ended()
{
	wait_until "$1" [ -s "$DIR/load.status" ]
}

load_reap()
{
	status=$(cat "$DIR/load.status" 2>/dev/null) || return 1
	wait "${started[load]}" 2>/dev/null
	unset "started[load]"
}
