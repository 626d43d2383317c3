#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Names of files with blanks, UTF-8, quotes, newlines and what only looks dangerous go through every door (JSON, the command line; for archives see
# 1040) and are there for the compiler and the run; those that climb or cannot be are refused, and the answer says which.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

odd='a  b/ü 漢字 😀/$(x) `y` "z" '"'q'"' *?[]{};&|<>!#~%5c..txt'

# refuses POINTER NAME
refuses()
{
	local code
	code=$(task '{language: null, execute: {command: "true", files: [{name: "fine", content: ""}, {name: $name, content: "x"}]}}' name "$2" |
		curl -sS --max-time "$ANSWER_S" -o "$answer" -w '%{http_code}' -H 'Content-Type: application/json' --data-binary @- "$url/api/v1/tasks")
	[ "$code" = 422 ] && jq -e --arg pointer "$1" '.pointer == $pointer and (.detail | length > 0)' "$answer" && return
	echo "status $code"
	cat "$answer"
	return 1
}

judge_start

judged "a run finds its file of an odd name" \
	"$(task '{language: null, execute: {command: ["cat", $name], files: [{name: $name, content: "here"}], expected: "here"}}' name "$odd")" \
	'ended("success"; "accepted")'
judged "and one with newlines and other control characters" \
	"$(task '{language: null, execute: {command: ["cat", $name], files: [{name: $name, content: "here"}], expected: "here"}}' \
		name $'a\nb/\n\t\x01\x7f\r')" 'ended("success"; "accepted")'
judged "a name of 255 bytes in UTF-8" \
	"$(task '{language: null, execute: {command: ["cat", $name], files: [{name: $name, content: "here"}], expected: "here"}}' \
		name "$(printf 'ü%.0s' {1..127})x")" 'ended("success"; "accepted")'
judged "a compiler includes a header of an odd name" \
	"$(task '{language: "c", compile: {files: [{name: "main.c", content: "#include \"a b/\u00fc \u6f22.h\"\nint main(void) { return N; }"},
		{name: "a b/\u00fc \u6f22.h", content: "#define N 0"}]}}')" 'ended("success"; "accepted")'
judged "what it builds may have such a name" \
	"$(task '{language: null, compile: {files: [{name: "f", content: ""}], command: ["sh", "-c", "mkdir -p \"$1\" && echo built >\"$1/out\"", "-", $name]},
		execute: {command: ["cat", ($name + "/out")], expected: "built"}}' name "$odd")" 'ended("success"; "accepted")'
judged "what it builds under a name with a newline, or that is no UTF-8, does no harm" \
	"$(task '{language: null, compile: {files: [{name: "make.sh", content: $make}], command: "bash make.sh"},
		execute: {command: "cat -- -rf", expected: "x"}}' make "echo x >\$'a\\nb'; echo x >\$'\\xff'; echo x >-rf")" \
	'ended("success"; "accepted")'
judged "a name that begins with a minus is only a name" \
	"$(task '{language: null, execute: {command: ["cat", "--", "-n"], files: [{name: "-n", content: "here"}], expected: "here"}}')" \
	'ended("success"; "accepted")'

pointer=/execute/files/1/name
for name in '../x' '../../x' 'a/../../x' 'a/../x' '/etc/x' '' '.' '..' 'a/' 'a//b' './a' 'a/.' fine \
	fine/below "$(printf 'x%.0s' {1..256})"; do
	check "$(printf 'the name %q is refused' "${name:0:40}")" refuses "$pointer" "$name"
done

# --- the command line ------------------------------------------------------------------------------------------------
export CONCLAVE_URL=$url
mkdir -p "$DIR/my project/a b"
printf '#include "a b/\xc3\xbc \xe6\xbc\xa2.h"\nint main(void) { puts(TEXT); }\n' >"$DIR/my project/main.c"
printf '#include <stdio.h>\n#define TEXT "from here"\n' >"$DIR/my project/a b/"$'ü 漢.h'
printf 'from here\n' >"$DIR/what is expected – ü"
check "conclave submits a directory with odd names" "$BIN/conclave" submit "$DIR/my project" --language c --expect "$DIR/what is expected – ü" --wait
cp "$DIR/my project/main.c" "$DIR/"$'ein \n name.c'
sed -i 1d "$DIR/"$'ein \n name.c'
sed -i '1i #include <stdio.h>\n#define TEXT "from here"' "$DIR/"$'ein \n name.c'
check "and a file whose name has a newline" "$BIN/conclave" submit "$DIR/"$'ein \n name.c' --expect "$DIR/what is expected – ü" --wait
touch "$DIR/my project/"$'odd\nname'
check "and a directory in which one has" "$BIN/conclave" submit "$DIR/my project" --language c --expect "$DIR/what is expected – ü" --wait

judge_stop
finish
