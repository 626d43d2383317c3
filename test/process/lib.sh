# SPDX-License-Identifier: Apache-2.0
# lib.sh - what every process test starts with: `. "${0%/*}/lib.sh"`.
#
# A test is a bash script that speaks TAP: `check DESCRIPTION COMMAND...` is one test point, `finish` prints the plan and
# ends. Each test owns a directory ($DIR) and its ports; whatever it started with `start` is stopped when it ends, however
# it ends. Nothing waits for a time: `wait_until SECONDS COMMAND...` waits for a fact, with a deadline.
#
# From the environment: CONCLAVE_TEST_BIN (the programs), CONCLAVE_TEST_TOOLS (the tests' own); CONCLAVE_TEST_ROOTLESS: what is started with
# `as` runs as an ordinary user, at home in $DIR/home (the 11xx tests set it). By hand:
#   CONCLAVE_TEST_BIN=build/dev/bin CONCLAVE_TEST_TOOLS=build/dev/test prove -e bash test/process/
set -u
BIN=${CONCLAVE_TEST_BIN:?is not set: the directory of the programs}
TOOLS=${CONCLAVE_TEST_TOOLS:?is not set: the directory of the tests\' own tools}
SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BIN=$(cd "$BIN" && pwd) || exit 1
TOOLS=$(cd "$TOOLS" && pwd) || exit 1

# Services started as root drop to another user, who must be able to come here.
DIR=$(mktemp -d "${TMPDIR:-/tmp}/conclave-test.XXXXXX") && chmod 755 "$DIR" || exit 1

as=() # what makes a command an ordinary user's: start boot "${as[@]}" COMMAND...
if [ -n "${CONCLAVE_TEST_ROOTLESS:-}" ]; then
	[ "$(id -u)" = 0 ] || { echo "Bail out! the tests of an ordinary user become one, from root"; exit 1; }
	# Not nobody: other tests' services are, and box_none counts all processes of its user.
	user=games
	as=(setpriv --reuid="$user" --regid="$user" --clear-groups env -u XDG_STATE_HOME -u XDG_RUNTIME_DIR HOME="$DIR/home")
	# The tree may be somebody's own.
	mkdir -p -m 755 "$DIR/bin" "$DIR/home" "$DIR/share/conclave" && cp -r "$SOURCE/cfg/languages" "$DIR/share/conclave" &&
		cp "$BIN/judicator" "$BIN/conclave-box" "$BIN/conclave" "$DIR/bin" || exit 1
	chown "$user:$user" "$DIR" "$DIR/home" && BIN=$DIR/bin || exit 1
fi

points=0 failures=0
declare -A started=() # name -> pid
declare -a ports=()

diag()
{
	sed 's/^/# /'
}

# check DESCRIPTION COMMAND... : one test point; the command's output is shown when it fails.
check()
{
	local description=$1 output
	shift
	points=$((points + 1))
	if output=$("$@" 2>&1); then
		echo "ok $points - $description"
		return 0
	fi
	failures=$((failures + 1))
	echo "not ok $points - $description"
	printf '%s\n' "failed: $*" "$output" | diag
	return 1
}

# The end of a test: the plan, and the logs when something failed.
finish()
{
	local log
	echo "1..$points"
	if [ "$failures" -gt 0 ]; then
		for log in "$DIR"/*.log; do
			[ -f "$log" ] && { echo "--- $log"; tail -n 60 "$log"; } | diag
		done
		exit 1
	fi
	exit 0
}

# wait_until SECONDS COMMAND... : true as soon as the command is, false when the time is over.
wait_until()
{
	local deadline=$((SECONDS + $1 + 1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$deadline" ] || { echo "not within the time: $*"; return 1; }
		sleep 0.02
	done
}

not()
{
	! "$@"
}

# free_port : sets $port to a TCP port of 127.0.0.1 that nobody listens on and no other test was given. The range is below
# the kernel's ephemeral ports, so that no outgoing connection takes it meanwhile. Not for $(...): it records the port.
free_port()
{
	local i
	for i in {1..200}; do
		port=$((10000 + (RANDOM * 32768 + RANDOM) % 22000))
		mkdir "${TMPDIR:-/tmp}/conclave-test-port-$port" 2>/dev/null || continue
		ports+=("$port")
		(: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 0
	done
	echo "Bail out! no free port"
	exit 1
}

# kill -SIGNAL PID... : the builtin, for single processes only. The pid file of a service that is down says -1, and as root
# `kill -KILL -1` is for everything on the machine.
kill()
{
	local pid
	for pid in "${@:2}"; do
		if ! [[ $pid =~ ^[0-9]+$ ]] || [ "$pid" -le 1 ]; then
			echo "refused: kill $*" >&2
			return 1
		fi
	done
	builtin kill "$@"
}

# start NAME COMMAND... : in the background, output to $DIR/NAME.log; its pid is ${started[NAME]}.
start()
{
	local name=$1
	shift
	"$@" >>"$DIR/$name.log" 2>&1 </dev/null &
	started[$name]=$!
}

has_ended()
{
	! kill -0 "$1" 2>/dev/null
}

# stop NAME [SIGNAL] : sends the signal (TERM), waits for the end; the exit status is in $status.
stop()
{
	kill -"${2:-TERM}" "${started[$1]}" 2>/dev/null
	reap "$1"
}

# reap NAME : waits at most 30 s for the end of what was started, kills it then; the exit status is in $status.
reap()
{
	local pid=${started[$1]}
	if ! wait_until 30 has_ended "$pid"; then
		kill -KILL "$pid"
	fi
	wait "$pid" 2>/dev/null
	status=$?
	unset "started[$1]"
}

cleanup()
{
	local name port
	for name in "${!started[@]}"; do
		stop "$name"
	done
	for port in "${ports[@]}"; do
		rmdir "${TMPDIR:-/tmp}/conclave-test-port-$port" 2>/dev/null
	done
	rm -rf "$DIR"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

# --- boot and its services -----------------------------------------------------------------------------

# pid_in FILE : the number in a pid file.
pid_in()
{
	local pid=-1
	read -r pid 2>/dev/null <"$1"
	echo "$pid"
}

# has_argument PID WORD : a living process (a zombie has no arguments) with exactly this argument.
has_argument()
{
	tr '\0' '\n' 2>/dev/null <"/proc/$1/cmdline" | grep -qxF -- "$2"
}

# is_serving RUN SERVICE : the pid file names a living process, it is that service's, and it has come so far that it
# heeds signals and has dropped its privileges. NAME.N is worker N of the service.
is_serving()
{
	local pid
	pid=$(pid_in "$1/$2.pid")
	[ "$pid" -gt 1 ] && has_argument "$pid" "$1/${2%%.*}.conf" &&
		grep -q '^NoNewPrivs:[[:space:]]*1' "/proc/$pid/status"
}

# is_new RUN SERVICE OLD : serving, by another process than OLD.
is_new()
{
	is_serving "$1" "$2" && [ "$(pid_in "$1/$2.pid")" != "$3" ]
}

# processes_of WORD : pids of the processes that have it in an argument.
processes_of()
{
	local file
	for file in /proc/[0-9]*/cmdline; do
		if { tr '\0' '\n' <"$file" | grep -qF -- "$1"; } 2>/dev/null; then
			file=${file%/cmdline}
			echo "${file##*/}"
		fi
	done
}

has_no_process()
{
	[ -z "$(processes_of "$1")" ]
}

logged()
{
	grep -qF -- "$2" "$DIR/$1.log"
}

# standalone NAME STATE [ARGUMENT...] : starts `judicator --standalone` on STATE with ports of its own. The sandbox is not
# what these tests are about, so they do without. Sets $judicator_port and $gateway_port at the first call.
standalone()
{
	local name=$1 state=$2
	shift 2
	if [ -z "${judicator_port:-}" ]; then
		free_port && judicator_port=$port
		free_port && gateway_port=$port
	fi
	start "$name" "$BIN/judicator" --standalone --dir "$state" \
		--judicator.address="127.0.0.1:$judicator_port" \
		--gateway.addresses="127.0.0.1:$gateway_port" --gateway.workers=2 --executor.box=none "$@"
}

SERVICES="judicator executor gateway" # of standalone, in start order
WORKERS="gateway.1 gateway.2"         # of the gateway

all_serving()
{
	local service
	for service in $SERVICES $WORKERS; do
		is_serving "$1" "$service" || return 1
	done
}
