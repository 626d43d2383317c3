#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Blobs through the real programs: uploaded once, referred to wherever content may stand, judged right, and never in anybody's memory as a
# whole; another user's hash is worth nothing; a judicator that is killed in the middle of an upload leaves nothing; the executor keeps
# what it has, within its bounds; and what nobody refers to goes.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

MIB=1048576
tokens=$DIR/tokens

# user NAME : a token, and a directory for curl that sends it.
user()
{
	printf '%s submit %s\n' "$1" "$(printf 'token-of-%s' "$1" | sha256sum | cut -d ' ' -f 1)" >>"$tokens"
	mkdir "$DIR/$1"
	printf 'header = "Authorization: Bearer token-of-%s"\n' "$1" >"$DIR/$1/.curlrc"
}

sha()
{
	sha256sum <"$1" | cut -d ' ' -f 1
}

# put FILE STATUS [NAME [CURL-ARGUMENT...]] : uploads it under its hash, or another name; the answer is in $answer.
put()
{
	local file=$1 want=$2 name=${3:-$(sha "$1")} code
	code=$(curl -sS --max-time "$ANSWER_S" -o "$answer" -w '%{http_code}' -T "$file" "${@:4}" "$url/api/v1/blobs/$name") ||
		code="curl $?, status $code"
	[ "$code" = "$want" ] || { echo "status $code"; cat "$answer"; return 1; }
}

# refused TASK CODE POINTER
refused()
{
	post "$1" >"$answer" && { echo "it was taken"; return 1; }
	shows '.code == "'"$2"'" and .pointer == "'"$3"'"'
}

has_bytes()
{
	[ "$(api "blobs/$1" | sha256sum | cut -d ' ' -f 1)" = "$1" ]
}

has_length()
{
	api "blobs/$1" -I | tr -d '\r' | grep -qx "Content-Length: $2"
}

is_unknown()
{
	[ "$(curl -sS --max-time 30 -o /dev/null -w '%{http_code}' "$url/api/v1/blobs/$1")" = 404 ]
}

# fetched SHA N : the executor has fetched it so often.
fetched()
{
	local n
	n=$(grep -c "event=blob_fetched blob=$1" "$DIR/boot.log")
	[ "$n" = "$2" ] || { echo "fetched $n times"; return 1; }
}

# kept_files : how many blobs the store has.
kept_files()
{
	find "$state/judicator/blobs" -type f -not -path '*/new/*' | wc -l
}

has_an_upload()
{
	[ -n "$(find "$state/judicator/blobs/new" -type f -size +1M 2>/dev/null)" ]
}

# memory_of_all : the most that any service has ever had, in KiB.
memory_of_all()
{
	local pid most=0 now
	for pid in $(processes_of "$run/"); do
		now=$(awk '/^VmHWM:/ {print $2}' "/proc/$pid/status" 2>/dev/null)
		[ "${now:-0}" -gt "$most" ] && most=$now
	done
	echo "$most"
}

: >"$tokens"
chmod 600 "$tokens"
user alice
user bob
[ "$(id -u)" = 0 ] && chown nobody "$tokens"
export CURL_HOME=$DIR/alice
options=(--gateway.tokens="$tokens" --gateway.blob_max=128MiB --executor.blob_cache_bytes=150MiB)
slots=1
judge_start "${options[@]}"

# --- uploaded once, used often ------------------------------------------------------------------------------------
head -c $((100 * MIB)) /dev/urandom >"$DIR/big"
big=$(sha "$DIR/big") sum=$(md5sum <"$DIR/big" | cut -d ' ' -f 1)
check "100 MiB are uploaded" put "$DIR/big" 201
check "and again, which changes nothing" put "$DIR/big" 200
check "they come back as they went" has_bytes "$big"
check "HEAD says how many" has_length "$big" $((100 * MIB))
summed=$(task '{language: "bash", source: "md5sum | cut -d \" \" -f 1", input: {blob: $big}, expected: $sum}' big "$big" sum "$sum")
judged "a program reads them all as its input" "$summed" 'ended("success"; "accepted")'
judged "and another one" "$summed" 'ended("success"; "accepted")'
check "the executor has fetched them once" fetched "$big" 1
if ! grep -q __asan_init "$BIN/judicator"; then
	most=$(memory_of_all)
	check "no service had a large part of them in memory ($most KiB at most)" [ "$most" -lt 65536 ]
fi

seq 300000 >"$DIR/more"
printf 'import sys\nprint(sum(1 for line in sys.stdin))\n' >"$DIR/lines.py"
echo 300000 >"$DIR/lines"
export CONCLAVE_URL=$url CONCLAVE_TOKEN="token-of-alice"
check "conclave uploads a large input by itself" \
	"$BIN/conclave" submit "$DIR/lines.py" --input "$DIR/more" --expect "$DIR/lines" --wait
check "which is a blob of its own" has_bytes "$(sha "$DIR/more")"
unset CONCLAVE_URL CONCLAVE_TOKEN

# --- wherever content may stand --------------------------------------------------------------------------------------
seq 300000 >"$DIR/numbers"
printf 'import helper, sys\nhelper.count(int(sys.stdin.readline()))\n' >"$DIR/main"
printf 'def count(n):\n    print("\\n".join(str(i + 1) for i in range(n)))\n' >"$DIR/helper"
echo 300000 >"$DIR/count"
for file in numbers main helper count; do
	check "$file is uploaded" put "$DIR/$file" $([ $file = numbers ] && echo 200 || echo 201)
done
judged "source, input and expected output" \
	"$(task '{language: "bash", $source, input: {blob: $n}, expected: {blob: $e}, limits: {output_bytes: 8388608}}' \
		source 'read n; seq $n' n "$(sha "$DIR/count")" e "$(sha "$DIR/numbers")")" 'ended("success"; "accepted")'
judged "a wrong answer is found in them" \
	"$(task '{language: "bash", $source, input: {blob: $n}, expected: {blob: $e}, limits: {output_bytes: 8388608}}' \
		source 'read n; seq $((n - 1))' n "$(sha "$DIR/count")" e "$(sha "$DIR/numbers")")" 'ended("success"; "wrong_answer")'
judged "files of the compiler and of the run" \
	"$(task '{compile: {files: [{name: "main.py", content: {blob: $main}}]}, execute: {command: "python3 main.py",
		files: [{name: "helper.py", content: {blob: $helper}}], limits: {output_bytes: 8388608}},
		cases: [{input: {blob: $n}, expected: {blob: $e}}]}' \
		main "$(sha "$DIR/main")" helper "$(sha "$DIR/helper")" n "$(sha "$DIR/count")" e "$(sha "$DIR/numbers")")" \
	'ended("success"; "accepted")'
python3 - "$DIR/zip" <<'END'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as z: z.writestr("data", "from the archive\n")
END
check "an archive is uploaded" put "$DIR/zip" 201
judged "an archive" "$(task '{language: "bash", source: "cat data", execute: {archive: {blob: $zip}, expected: "from the archive"}}' \
	zip "$(sha "$DIR/zip")")" 'ended("success"; "accepted")'
judged "what is no archive is a compile error" \
	"$(task '{language: "bash", source: "cat data", execute: {archive: {blob: $zip}}}' zip "$(sha "$DIR/main")")" \
	'ended("compile_failed"; "compile_error") and (.compile.message | startswith("execute.archive: "))'
: >"$DIR/nothing"
check "no bytes are uploaded" put "$DIR/nothing" 201
judged "no bytes are an input and an expected output" \
	"$(task '{language: "bash", source: "cat", input: {blob: $e}, expected: {blob: $e}}' e "$(sha "$DIR/nothing")")" \
	'ended("success"; "accepted")'

# --- whose they are ----------------------------------------------------------------------------------------------------
CURL_HOME=$DIR/bob check "another user's hash is no blob" refused "$summed" blob_missing /input
CURL_HOME=$DIR/bob check "nor can it be read" is_unknown "$big"
CURL_HOME=$DIR/bob check "nor be had for other bytes" put "$DIR/main" 422 "$big"
check "which is said" shows '.code == "blob_mismatch"'
CURL_HOME=$DIR/bob check "and nothing has come of it" refused "$summed" blob_missing /input
CURL_HOME=$DIR/bob check "who has the bytes may use them" put "$DIR/count" 200
check "nobody's hash is said, with its place" refused \
	"$(task '{language: "bash", source: "cat", cases: [{}, {expected: {blob: $no}}]}' no "${big/?/x}")" bad_blob /cases/1/expected/blob
check "an unknown one too" refused \
	"$(task '{language: "bash", source: "cat", cases: [{}, {expected: {blob: $no}}]}' no "$(echo no | sha256sum | cut -d ' ' -f 1)")" \
	blob_missing /cases/1/expected
truncate -s $((129 * MIB)) "$DIR/sparse"
check "too much is refused" put "$DIR/sparse" 413 "$big"
check "a name that is none is refused" put "$DIR/main" 422 "${big^^}"
check "JSON is no blob" put "$DIR/main" 415 "$(sha "$DIR/main")" -H 'Content-Type: application/json'

# --- large content in a submission ---------------------------------------------------------------------------------------
before=$(kept_files)
head -c 3000000 "$DIR/big" | base64 -w 0 >"$DIR/text"
inline=$(jq -nc --rawfile text "$DIR/text" '{language: "bash", source: "wc -c", input: $text, expected: "4000000"}')
judged "4 MB inside a submission" "$inline" 'ended("success"; "accepted")'
id=$(jq -r .id "$answer")
judged "and again" "$inline" 'ended("success"; "accepted")'
check "are kept once" [ "$(kept_files)" = $((before + 1)) ]
check "and can be had as they came" cmp -s "$DIR/text" <(api "tasks/$id/files/cases/0/input")
first=$(api tasks -H 'Content-Type: application/json' -H 'Idempotency-Key: k' --data-binary @- <<<"$inline" | jq -r .id)
again=$(api tasks -H 'Content-Type: application/json' -H 'Idempotency-Key: k' --data-binary @- <<<"$inline" | jq -r .id)
check "repeated with a key it is the same task" [ -n "$first" -a "$first" = "$again" ]
api tasks -H 'Content-Type: application/json' -H 'Idempotency-Key: k' --data-binary @- <<<"${inline/4000000/4000001}" >"$answer"
check "and with other content a conflict" shows '.code == "task_conflict"'

# --- the executor's cache -------------------------------------------------------------------------------------------------
head -c $((100 * MIB)) /dev/urandom >"$DIR/other"
other=$(sha "$DIR/other")
check "another 100 MiB are uploaded" put "$DIR/other" 201
judged "and read" "$(task '{language: "bash", source: "wc -c", input: {blob: $other}, expected: "104857600"}' other "$other")" \
	'ended("success"; "accepted")'
check "both do not fit: the first has gone" logged boot "event=blob_evicted blob=$big"
check "the cache is within its bound" [ "$(du -sm "$state/executor/blobs" | cut -f 1)" -le 150 ]
judged "it is fetched again when it is needed" "$summed" 'ended("success"; "accepted")'
check "a second time" fetched "$big" 2
truncate -s 5 "$state/executor/blobs/$big"
judged "a file that was cut is not believed" "$summed" 'ended("success"; "accepted")'
check "but fetched a third time" fetched "$big" 3

# --- a death in the middle --------------------------------------------------------------------------------------------------
head -c $((100 * MIB)) /dev/urandom >"$DIR/third"
third=$(sha "$DIR/third")
put "$DIR/third" 503 "$third" --limit-rate 20M >"$DIR/killed" &
uploading=$!
check "an upload is under way" wait_until 30 has_an_upload
pid=$(pid_in "$run/judicator.pid")
kill -KILL "$pid"
wait "$uploading"
check "who uploads is told to try again" [ $? = 0 ]
check "the judicator is back" wait_until 30 is_new "$run" judicator "$pid"
check "it serves" wait_until 30 api judicators
check "nothing is left of the upload" not has_an_upload
check "half a blob is none" wait_until 30 is_unknown "$third"
check "whole ones are still there" has_bytes "$other"
check "it can be uploaded" put "$DIR/third" 201

# --- what nobody needs ------------------------------------------------------------------------------------------------------
stop boot
judge_again "${options[@]}" --judicator.blob_age=1s
check "the judge starts with a short age" wait_until "$START_S" offers bash
check "what nothing refers to goes" wait_until 30 is_unknown "$third"
check "which is logged" logged boot event=blobs_collected
check "what a task refers to stays" has_bytes "$other"
judged "and is still in the executor's cache" "$summed" 'ended("success"; "accepted")'
check "after a restart too" fetched "$big" 3
judge_stop
finish
