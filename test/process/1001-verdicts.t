#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a class sends: each language, each way to be right or wrong, cases, files and bytes; exactly the verdict named.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

# has_version LANGUAGE : offered, with a version text of an executor.
has_version()
{
	local version='test("[0-9]+[.][0-9]+")'
	api executors >"$answer" && shows ".executors[0].toolchains.$1 | $version" && api languages >"$answer" &&
		shows "[.languages[] | select(.name == \"$1\")] | length == 1 and (.[0].executors[0].version | $version)"
}

# same_again : a GET says what the POST has answered.
same_again()
{
	local again
	again=$(api "tasks/$(jq -r .id "$answer")") && [ "$(jq -S . <<<"$again")" = "$(jq -S . "$answer")" ] ||
		{ echo "$again"; cat "$answer"; return 1; }
}

judge_start

# --- languages: a missing compiler or a failed probe fails here -----------------------------------------
for language in bash c cpp python; do
	check "$language is offered with its version" has_version "$language"
done

sum_c='#include <stdio.h>
int main(void) { int a, b; scanf("%d %d", &a, &b); printf("%d\n", a + b); return 0; }'
sum_cpp='#include <iostream>
int main() { int a, b; std::cin >> a >> b; std::cout << a + b << std::endl; }'
sum_python='a, b = map(int, input().split())
print(a + b)'
sum_bash='read -r a b
echo $((a + b))'

for language in bash c cpp python; do
	source=sum_$language
	judged "$language: right is accepted" \
		"$(task '{$language, $source, input: "1 2\n", expected: "3\n"}' language "$language" source "${!source}")" \
		'ended("success"; "accepted") and fits and .cases[0].stdout == "3\n" and .cases[0].stdout_bytes == 2 and
		.score == 1 and .compile.exit_code == 0'
	judged "$language: wrong output is wrong_answer" \
		"$(task '{$language, $source, input: "1 2\n", expected: "4\n"}' language "$language" source "${!source}")" \
		'ended("success"; "wrong_answer") and fits and .cases[0].stdout == "3\n" and .score == 0 and
		.cases[0].verdict == "wrong_answer"'
done

# --- programs that do not compile or end badly ------------------------------------------------------------
compile_error='ended("compile_failed"; "compile_error") and .compile.exit_code != 0 and .compile.limit == null and .cases == []'
judged "C: a syntax error is compile_error, with gcc's text" \
	"$(task '{language: "c", source: "int main(void) { return oops }\n"}')" \
	"$compile_error and (.compile.stderr | test(\"main.c:1:.*error\"; \"s\") and contains(\"oops\"))"
judged "C++: a syntax error is compile_error, with g++'s text" \
	"$(task '{language: "cpp", source: "int main() { std::cout << 1; }\n"}')" \
	"$compile_error and (.compile.stderr | test(\"main.cpp:1:.*error\"; \"s\"))"
judged "Python: a syntax error is compile_error, with its text" \
	"$(task '{language: "python", source: "print(1\n"}')" \
	"$compile_error and (.compile.stderr | contains(\"SyntaxError\"))"
judged "Bash: a syntax error is compile_error, with its text" \
	"$(task '{language: "bash", source: "if true; then echo 1\n"}')" \
	"$compile_error and (.compile.stderr | contains(\"syntax error\"))"

judged "C: exit 3 is runtime_error with the code" \
	"$(task '{language: "c", source: "#include <stdlib.h>\nint main(void) { exit(3); }\n", expected: ""}')" \
	'ended("run_failed"; "runtime_error") and (.cases[0] | .exit_code == 3 and .signal == null and .limit == null)'
judged "C: SIGSEGV is runtime_error with the signal" \
	"$(task '{language: "c", source: "int main(void) { *(volatile int *)0 = 1; }\n"}')" \
	'ended("run_failed"; "runtime_error") and (.cases[0] | .exit_code == null and .signal == 11 and .limit == null)'
judged "C: abort is runtime_error with the signal" \
	"$(task '{language: "c", source: "#include <stdlib.h>\nint main(void) { abort(); }\n"}')" \
	'ended("run_failed"; "runtime_error") and (.cases[0] | .exit_code == null and .signal == 6 and .limit == null)'
judged "Python: an exception is runtime_error with its trace" \
	"$(task '{language: "python", source: "raise ValueError(42)\n"}')" \
	'ended("run_failed"; "runtime_error") and (.cases[0] | .exit_code == 1 and (.stderr | contains("ValueError: 42")))'

# --- checkers ---------------------------------------------------------------------------------------------
untidy='{language: "bash", source: "printf \"1  2 \\n3\\n\\n\"", expected: "1  2\n3\n"'
judged "lines: blanks at the end do not count" "$(task "$untidy}")" 'ended("success"; "accepted")'
judged "exact: they do" "$(task "$untidy, checker: {kind: \"exact\"}}")" 'ended("success"; "wrong_answer")'
judged "tokens: nor do those between" \
	"$(task '{language: "bash", source: "printf \"1  2 \\n3\"", expected: "1 2 3\n", checker: {kind: "tokens"}}')" \
	'ended("success"; "accepted")'
judged "nothing expected: any output is right" "$(task '{language: "bash", source: "echo anything"}')" 'ended("success"; "accepted")'

# --- cases ------------------------------------------------------------------------------------------------
by_input='import sys, time
what = sys.stdin.read().strip()
if what == "big":
    kept = bytearray(200 << 20)
elif what == "slow":
    time.sleep(100)
print(what)'
cases='[{input: "fine\n", expected: "fine\n", points: 2, limits: {cpu_ms: 900}},
	{input: "big\n", expected: "big\n", points: 3, limits: {memory_bytes: 67108864}},
	{input: "slow\n", expected: "slow\n", points: 5, limits: {wall_ms: 400}}]'
judged "three cases with limits of their own: three results in order" \
	"$(task "{language: \"python\", \$source, cases: $cases}" source "$by_input")" \
	'ended("run_failed"; "memory_limit") and [.cases[].verdict] == ["accepted", "memory_limit", "wall_limit"] and
	.cases[0].limit == null and (.cases[1] | limit("memory_bytes"; 67108864)) and (.cases[2] | limit("wall_ms"; 400)) and
	.score == 2 and .max_score == 10'
judged "stop_on_failure: nothing behind the first that failed is run" \
	"$(task "{language: \"python\", \$source, cases: $cases, stop_on_failure: true}" source "$by_input")" \
	'ended("run_failed"; "memory_limit") and [.cases[].verdict] == ["accepted", "memory_limit"] and .score == 2 and .max_score == 10'
judged "stop_on_failure: all are run while nothing fails" \
	"$(task '{language: "bash", source: "cat", stop_on_failure: true,
		cases: [{input: "a", expected: "a"}, {input: "b", expected: "b"}, {input: "c", expected: "c"}]}')" \
	'ended("success"; "accepted") and [.cases[].stdout] == ["a", "b", "c"] and .score == 3'
judged "a wrong answer before a crash: the verdict is the first that is not accepted" \
	"$(task '{language: "bash", source: "read -r x; echo $x; exit $x",
		cases: [{input: "0\n", expected: "1\n"}, {input: "3\n", expected: "3\n"}]}')" \
	'.done and .verdict == "wrong_answer" and [.cases[].verdict] == ["wrong_answer", "runtime_error"] and .cases[1].exit_code == 3'

# --- raw commands and files -----------------------------------------------------------------------------------
judged "a raw command" \
	"$(task '{language: null, execute: {command: ["/bin/echo", "a b", "c"], expected: "a b c\n"}}')" \
	'ended("success"; "accepted") and fits and .language == null and .compile == null and .cases[0].stdout == "a b c\n"'
judged "a raw command in one string, quoted as for a shell but read by none" \
	"$(task '{language: null, execute: {$command, $expected}}' command "printf '%s|' 'a b' \$HOME * \"c;d\"" expected 'a b|$HOME|*|c;d|')" \
	'ended("success"; "accepted")'
judged "a command that is not there is runtime_error" \
	"$(task '{language: null, execute: {command: ["/no/such/program"]}}')" \
	'.done and .verdict == "runtime_error" and .cases[0].exit_code != 0'

sum_main='#include <stdio.h>
#include "lib/sum.h"
int main(void) { int a, b; scanf("%d %d", &a, &b); printf("%d\n", sum(a, b)); return 0; }'
files='[{name: "main.c", content: $main},
	{name: "lib/sum.h", content: "int sum(int a, int b);\n"},
	{name: "lib/sum.c", content: "#include \"sum.h\"\nint sum(int a, int b) { return a + b; }\n"}]'
judged "files in compile, with a command of their own" \
	"$(task "{language: null, compile: {files: $files, command: \"cc -O2 -o main main.c lib/sum.c\"},
		execute: {command: [\"./main\"]}, cases: [{input: \"1 2\\n\", expected: \"3\\n\"}], checker: {kind: \"tokens\"}}" main "$sum_main")" \
	'ended("success"; "accepted") and .compile.exit_code == 0'
judged "files in compile, in a language" \
	"$(task '{language: "python", compile: {files: [{name: "main.py", content: "import other\nprint(other.x)\n"},
		{name: "other.py", content: "x = 41 + 1\n"}]}, execute: {expected: "42\n"}}')" \
	'ended("success"; "accepted")'
judged "files in compile that are not enough" \
	"$(task "{language: null, compile: {files: $files, command: \"cc -O2 -o main main.c\"}, execute: {command: [\"./main\"]}}" main "$sum_main")" \
	"$compile_error and (.compile.stderr | contains(\"undefined reference\"))"
judged "files beside the program, one of them executable" \
	"$(task '{language: "bash", compile: {source: "cat data/in; ./tool"}, execute: {expected: "data\ntool\n", files: [
		{name: "data/in", content: "data\n"}, {name: "tool", content: "#!/bin/sh\necho tool\n", executable: true}]}}')" \
	'ended("success"; "accepted")'

# --- bytes ----------------------------------------------------------------------------------------------------
bytes=$(printf '\000\001a\377\376\200\r\n\000' | base64)
judged "input and output with NUL and invalid UTF-8 come through unchanged" \
	"$(task '{language: "python", source: "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())\n",
		input: {base64: $bytes}, expected: {base64: $bytes}, checker: {kind: "exact"}}' bytes "$bytes")" \
	"ended(\"success\"; \"accepted\") and .cases[0].stdout == {base64: \"$bytes\"} and .cases[0].stdout_bytes == 9"
judged "and one byte less is seen" \
	"$(task '{language: "python", source: "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read()[:-1])\n",
		input: {base64: $bytes}, expected: {base64: $bytes}, checker: {kind: "exact"}}' bytes "$bytes")" \
	'ended("success"; "wrong_answer") and .cases[0].stdout_bytes == 8'
judged "NUL in valid UTF-8 needs no base64" \
	"$(task '{language: "bash", source: "cat", input: "a\u0000\u00e9b", expected: "a\u0000\u00e9b", checker: {kind: "exact"}}')" \
	'ended("success"; "accepted") and .cases[0].stdout == "a\u0000\u00e9b" and .cases[0].stdout_bytes == 5'
judged "stderr may be any bytes" \
	"$(task '{language: "bash", source: "printf \"\\377\\000\" >&2"}')" \
	'ended("success"; "accepted") and .cases[0].stderr == {base64: "/wA="} and .cases[0].stderr_bytes == 2'
# A string literal of the bytes ff 00 (a NUL as itself in the file) c3 28.
source=$(printf '#include <stdio.h>\nint main(void) { fwrite("\377\303(", 1, 3, stdout); return 0; }\n// \000 \200\n' | base64 -w 0)
judged "source with NUL and invalid UTF-8" \
	"$(task '{language: "c", source: {base64: $source}, expected: {base64: "/8Mo"}, checker: {kind: "exact"}}' source "$source")" \
	'ended("success"; "accepted") and .cases[0].stdout == {base64: "/8Mo"}'
judged "a GET of what printed bytes" "$(task '{language: "bash", source: "printf \"\\200\""}')" 'ended("success"; "accepted")'
check "answers the same again" same_again

judge_stop
finish
