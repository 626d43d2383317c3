#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What belongs to a task, byte for byte through the real programs: sources, files with odd names, archives, inputs, outputs that are no text.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

# file ID NAME : its bytes, into $DIR/got.
file()
{
	curl -sS --path-as-is --fail-with-body --max-time 20 -D "$DIR/head" -o "$DIR/got" "$url/api/v1/tasks/$1/files/$2"
}

# is_file ID NAME EXPECTED : the file has the bytes of the file EXPECTED.
is_file()
{
	file "$1" "$2" && cmp "$DIR/got" "$3"
}

judge_start
head -c 3000 /dev/urandom >"$DIR/bytes"
printf '' >"$DIR/empty"
base64 -w 0 "$DIR/bytes" >"$DIR/base64"

# Its own input comes back as its output, and what is no text stays what it is.
program='import sys
data = sys.stdin.buffer.read()
sys.stdout.buffer.write(data)
sys.stderr.buffer.write(data[::-1])
'
printf %s "$program" >"$DIR/program"
rev='import sys; sys.stdout.buffer.write(open(sys.argv[1], "rb").read()[::-1])'
python3 -c "$rev" "$DIR/bytes" >"$DIR/reversed"
submitted=$(jq -nc --rawfile base64 "$DIR/base64" --rawfile program "$DIR/program" \
	'{language: "python", source: $program, cases: [{input: {$base64}, expected: {$base64}}, {input: "x"}],
	execute: {files: [{name: "a b/ä\n.bin", content: {$base64}}]}}')
check "a task with bytes is accepted" submit_and_show "$submitted" '.done and .verdict == "accepted"' || finish
id=$(jq -r .id "$answer")
check "the source" is_file "$id" compile/main.py "$DIR/program"
check "a file with an odd name" is_file "$id" 'execute/a%20b/%C3%A4%0A.bin' "$DIR/bytes"
check "its name is told" grep -qiF "filename*=UTF-8''%C3%A4%0A.bin" "$DIR/head"
check "an input" is_file "$id" cases/0/input "$DIR/bytes"
check "what was expected" is_file "$id" cases/0/expected "$DIR/bytes"
check "an output" is_file "$id" cases/0/stdout "$DIR/bytes"
check "the other output" is_file "$id" cases/0/stderr "$DIR/reversed"
check "the type is bytes" grep -qi '^content-type: application/octet-stream' "$DIR/head"
check "the next case's output" [ "$(curl -s "$url/api/v1/tasks/$id/files/cases/1/stdout")" = x ]
for name in cases/1/expected cases/2/input compile/main.c ../../../etc/passwd ..%2f..%2f..%2fetc%2fpasswd cases cases/0/stdout/; do
	check "$name is 404" eval '! file "$id" "$name" && jq -e ".code == \"file_unknown\"" "$DIR/got"'
done

# What is too large to stand in a submission is kept elsewhere, and is the same here.
head -c 400000 /dev/urandom >"$DIR/large"
base64 -w 0 "$DIR/large" >"$DIR/base64"
submitted=$(jq -nc --rawfile base64 "$DIR/base64" '{language: "python", source: "import sys; print(len(sys.stdin.buffer.read()))",
	input: {$base64}, expected: "400000"}')
check "a large input is accepted" submit_and_show "$submitted" '.done and .verdict == "accepted"'
id=$(jq -r .id "$answer")
check "the large input" is_file "$id" cases/0/input "$DIR/large"
check "its type and name" eval 'grep -qi "^content-type: application/octet-stream" "$DIR/head" &&
	grep -qi "^content-disposition: attachment" "$DIR/head"'

# An archive is there as it came, and a compiler's words are.
python3 - "$DIR/a.zip" <<'END'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.writestr("main.c", "int main(void) { return undeclared; }\n")
END
base64 -w 0 "$DIR/a.zip" >"$DIR/base64"
submitted=$(jq -nc --rawfile base64 "$DIR/base64" '{language: "c", compile: {archive: {$base64}}}')
check "an archive that does not compile" submit_and_show "$submitted" '.done and .verdict == "compile_error"'
id=$(jq -r .id "$answer")
check "the archive" is_file "$id" compile/archive.zip "$DIR/a.zip"
check "the compiler's words" eval 'file "$id" compile/stderr && grep -q undeclared "$DIR/got"'
finish
