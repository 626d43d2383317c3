#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The command-line client against a real judge: each command, and what each exit code stands for.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

slots=1
judge_start
export CONCLAVE_URL=$url
out=$DIR/out err=$DIR/err

# cli CODE ARGUMENT... : conclave ends with that code; its output is in $out and $err.
cli()
{
	local code=$1 got
	shift
	timeout "$ANSWER_S" "$BIN/conclave" "$@" >"$out" 2>"$err" </dev/null
	got=$?
	[ "$got" = "$code" ] && return 0
	echo "exit code $got, not $code, of: conclave $*"
	cat "$out" "$err"
	return 1
}

# says CODE PATTERN ARGUMENT... : and a line of either output matches.
says()
{
	local code=$1 pattern=$2
	shift 2
	cli "$code" "$@" || return 1
	grep -qE -- "$pattern" "$out" "$err" && return 0
	echo "nothing like $pattern in:"
	cat "$out" "$err"
	return 1
}

cd "$DIR" || exit 1
printf '1 2\n' >in
printf '3\n' >three
printf '4\n' >four
printf 'print(sum(map(int, input().split())))\n' >sum.py
printf '#include "add.h"\n#include <stdio.h>\nint main(void) { int a, b; scanf("%%d %%d", &a, &b); printf("%%d\\n", add(a, b)); }\n' >main.c

# --- submit -----------------------------------------------------------------------------------------------
check "what is right is accepted, 0" says 0 '^accepted  [0-9a-f]{24}$' submit sum.py --input in --expect three --wait
check "and says how much it took" grep -qE '^case 1 +accepted +[0-9.]+ m?s +[0-9.]+ m?s +[0-9.]+ [KM]iB' "$out"
check "no colours for a file" not grep -q $'\033' "$out"
check "colours when asked for" eval 'cli 0 submit sum.py -i in -e three -w --color always && grep -q $'"'\033\\[32maccepted'"' "$out"'
check "what is wrong is not, 1" says 1 'wrong_answer .*got "3"' submit sum.py -i in -e four --wait
check "cases, with a failure that stops" says 1 '^case 2 +wrong_answer' submit sum.py --case in:three --case in:four --case in:three \
	--stop-on-failure --wait
check "which limit fired" says 1 'limit cpu_ms: [0-9]+ measured, 200 allowed' submit --language python --command 'python3 -c "while True: pass"' \
	sum.py --limit cpu_ms=200 --wait
mkdir -p project/lib
cp main.c project/main.c
printf 'int add(int a, int b);\n' >project/add.h
printf '#include "add.h"\nint add(int a, int b) { return a + b; }\n' >project/lib/add.c
check "a directory with a command of its own" says 0 '^accepted' submit project --wait -i in -e three \
	--command ./sum --compile-command '/usr/bin/gcc -I. -o sum main.c lib/add.c'
printf 'int add(int a, int b) { return a + b; }\n' >project/add.h
check "a directory whose main source tells the language" says 0 '^accepted' submit project --wait -i in -e three
check "a compiler's complaint is shown" says 1 '^compiler stderr:' submit main.c --wait
check "what a program prints does not reach the terminal" says 0 '^  \\x1b\[2J' submit --command "printf '\\033[2J'" sum.py --wait
check "without a terminal it does not wait" says 0 '^[0-9a-f]{24}$' submit sum.py -i in -e three --key k1 --user alice --label hw1
id=$(cat "$out")
check "the same key is the same task" eval 'cli 0 submit sum.py -i in -e three --key k1 --user alice --label hw1 && [ "$(cat "$out")" = "$id" ]'
check "another task under it is refused, 2" says 2 'task_conflict.*|take a new one' submit sum.py --key k1 --user alice
# script(1) gives it a terminal.
on_terminal()
{
	script -qec "'$BIN/conclave' submit sum.py -i in -e three" /dev/null >"$out" </dev/null &&
		grep -q $'\033\\[K[0-9a-f]\{24\}: success' "$out" && grep -q $'\033\\[32maccepted' "$out"
}
check "on a terminal it waits, with progress and colours" on_terminal
check "raw JSON" eval 'cli 0 submit sum.py -i in -e three --wait --json && jq -e ".done and .verdict == \"accepted\"" "$out"'
check "what the judge refuses is explained, 2" says 2 '/execute/limits/cpu_ms' submit sum.py --limit cpu_ms=0 --wait
check "an unknown extension too, 2" says 2 'give --language' submit in

# --- looking -----------------------------------------------------------------------------------------------
check "watch ends with the verdict" says 0 '^accepted' watch "$id"
check "get shows it" says 0 '^  user +alice' get "$id"
check "get as JSON" eval 'cli 0 get "$id" --json && jq -e ".id == \"$id\"" "$out"'
check "no such task, 2" says 2 'task_unknown' get 000000000000000000000000
check "a list with filters" eval 'says 0 "$id +success +accepted +python +alice" list --user alice --label hw1 && [ "$(wc -l <"$out")" = 2 ]'
check "a page says that there is more" says 0 'there are more: --all' list --count 2
check "all pages" eval 'cli 0 list --count 2 --all && [ "$(grep -cE "^[0-9a-f]{24} " "$out")" -ge 8 ]'
check "a wrong filter, 2" says 2 'bad_parameter|unknown_parameter' list --filter 'colour=a b&c'
check "executors" says 0 'alive +0/1 +full' executors
check "judicators" says 0 'leads +sqlite' judicators
check "languages" says 0 '^python +Python.*\.py' languages

# --- cancel, watch and ^C ----------------------------------------------------------------------------------------
word=client-$$-$RANDOM
printf 'exec -a %s sleep 250\n' "$word" >sleep.sh
cli 0 submit sleep.sh --limit wall_ms=300000 --no-wait
id=$(cat "$out")
start watch "$BIN/conclave" watch "$id"
check "watch shows it running" wait_until "$ANSWER_S" logged watch 'running'
# A background process of a script ignores SIGINT; SIGTERM goes the same way.
stop watch TERM
check "interrupted, 130" [ "$status" = 130 ]
check "and says how to go on" logged watch "conclave watch $id"
check "the task runs on" not has_no_process "$word"
start watch "$BIN/conclave" watch "$id" --json
check "cancel" says 0 "^cancelled  $id" cancel "$id"
reap watch
check "who watches learns of it, 1" [ "$status" = 1 ]
check "its process ends" wait_until "$ANSWER_S" has_no_process "$word"
check "cancelled again" cli 0 cancel "$id"
cli 0 submit sum.py -i in --wait
check "what is done cannot be, 2" says 2 'task_done' cancel "$(sed -n '1s/.*  //p' "$out")"

# --- this machine ----------------------------------------------------------------------------------------------------
check "services" says 0 '^gateway +running +[0-9]+' services --dir "$state"
check "services as JSON" eval 'cli 0 services --dir "$state" --json && jq -e "[.services[] | select(.state == \"running\")] | length == 6" "$out"'
start hold "$BIN/conclave" hold gateway --dir "$state"
check "hold says so" wait_until "$ANSWER_S" logged hold 'gateway is held'
gateway=$(pid_in "$run/gateway.pid")
kill -KILL "$gateway"
check "a held service stays down" wait_until "$ANSWER_S" says 1 '^gateway +held' services --dir "$state"
check "nobody else can hold it, 1" says 1 'somebody else holds it' hold gateway --dir "$state"
check "without a gateway, 3" says 3 'nobody listens there' list
stop hold TERM
check "released, 0" [ "$status" = 0 ]
check "and started again" wait_until "$ANSWER_S" is_new "$run" gateway "$gateway"
check "it answers" wait_until "$ANSWER_S" cli 0 list
check "doctor finds a judge and a sandbox that work" says 0 '^ok +sandbox +a program ran in it' doctor --dir "$state"
check "and that the judge answers" grep -qE '^ok +judge .*answers: version' "$out"
check "doctor as JSON" eval 'cli 0 doctor --json && jq -e ".checks | length > 8" "$out"'
check "a daemon is not disturbed by the client's variables" eval 'CONCLAVE_TOKEN=x "$BIN/judicator" --check --standalone'

# --- texts ---------------------------------------------------------------------------------------------------------
completes() # WORDS... : the last is completed
{
	bash -c 'source <("$1" completion bash); shift; COMP_WORDS=(conclave "$@"); COMP_CWORD=$#; _conclave; echo "${COMPREPLY[@]}"' \
		- "$BIN/conclave" "$@" >"$out"
}
check "commands are completed" eval 'completes exec && [ "$(cat "$out")" = executors ]'
check "flags are completed" eval 'completes submit --exp && [ "$(cat "$out")" = --expect ]'
check "the manual is one" eval '"$BIN/conclave" --man | grep -q "^.Sh EXIT STATUS"'

# --- tokens ----------------------------------------------------------------------------------------------------------
stop boot
token=ab12-$RANDOM-of-the-test-0123456789
printf 'root admin %s\n' "$(printf %s "$token" | sha256sum | cut -d ' ' -f 1)" >"$DIR/tokens"
chmod 600 "$DIR/tokens"
printf '%s\n' "$token" >"$DIR/token"
judge_again --gateway.tokens="$DIR/tokens"
check "with the token of a file" wait_until "$START_S" cli 0 list --token-file "$DIR/token"
check "with that of the environment" eval 'CONCLAVE_TOKEN=$token cli 0 list'
check "with none it is refused, 2, and says what to do" says 2 'set CONCLAVE_TOKEN, or give --token-file' list
check "with a wrong one too" eval 'CONCLAVE_TOKEN=wrong says 2 token_unknown list'

judge_stop
finish
