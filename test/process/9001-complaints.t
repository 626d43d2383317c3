#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What users of other judges complain about most, where no other test has the answer already: each complaint, and what happens here.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

slots=1 # so that each task follows another in the same slot
judge_start

# --- limits --------------------------------------------------------------------------------------------------------
# "Limits only to whole seconds: 10 ms runs for 1 s."
spin_c='int main(void) { for (;;) ; }'
timed "10 ms of CPU time are 10 ms" "$(task '{language: "c", $source, limits: {cpu_ms: 10}}' source "$spin_c")" \
	'ended("run_failed"; "time_limit") and (.cases[0] | limit("cpu_ms"; 10))' '.cases[0].cpu_us | within(10000; 30000)'
timed "10 ms of wall time too" "$(task '{language: null, execute: {command: ["sleep", "10"], limits: {wall_ms: 10}}}')" \
	'ended("run_failed"; "wall_limit") and (.cases[0] | limit("wall_ms"; 10))' '.cases[0].wall_us | within(10000; 100000)'
# "The user sees CPU 2 s, but the limit was wall: unclear which one fired."
judged "who sleeps is told that it was the wall" "$(task '{language: "bash", source: "sleep 10", limits: {cpu_ms: 200, wall_ms: 300}}')" \
	'ended("run_failed"; "wall_limit") and (.cases[0] | limit("wall_ms"; 300) and .cpu_us < 200000 and .limit.measured >= 300)'
# "Memory is not reset between runs in one box."
judged "a task takes 100 MB" "$(task '{language: "python", source: "print(len(bytearray(100 << 20)))"}')" \
	'ended("success"; "accepted") and .cases[0].memory_bytes > 100000000'
judged "the next one in its slot is not charged for them" "$(task '{language: null, execute: {command: "true"}}')" \
	'ended("success"; "accepted") and .cases[0].memory_bytes < 10000000'
judged "nor is the second case of a task for its first" \
	"$(task '{language: "python", source: "n = int(input()); print(len(bytearray(n)))", cases: [{input: "100000000"}, {input: "1"}]}')" \
	'ended("success"; "accepted") and .cases[0].memory_bytes > 100000000 and .cases[1].memory_bytes < 50000000'

# --- output ----------------------------------------------------------------------------------------------------------
# "Endless empty lines block the judge", which looks for the end of what does not count.
for checker in lines tokens exact float; do
	judged "endless empty lines are output_limit ($checker)" \
		"$(task '{language: null, execute: {command: ["yes", ""], expected: "", limits: {output_bytes: 8388608}}, checker: {kind: $checker}}' \
			checker "$checker")" \
		'ended("run_failed"; "output_limit") and (.cases[0] | limit("output_bytes"; 8388608) and .wall_us < 30000000)'
done
judged "and the next task runs" "$(task '{language: null, execute: {command: "echo 1", expected: "1"}}')" 'ended("success"; "accepted")'
# "Chunks decoded one by one split characters": what is kept of too much may be cut within one; no GET fails by it.
for shift in "" x xx; do
	judged "megabytes of three-byte characters, ${#shift} bytes shifted" \
		"$(task '{language: "python", source: ("print(\"" + $shift + "\" + \"\u6f22\" * 1000000)"), limits: {output_bytes: 8388608}}' shift "$shift")" \
		"ended(\"success\"; \"accepted\") and (.cases[0] | .stdout_truncated and .stdout_bytes == 3000001 + ${#shift} and
			(.stdout | type == \"string\" or has(\"base64\")))"
done
# "SIGPIPE is blamed on the contestant": who leaves its input unread, or has what it printed cut off by a pipe of its own.
judged "eight megabytes of input may stay unread" \
	"$(task '{language: null, execute: {command: "true", input: ("12345678" * 1048576)}}')" 'ended("success"; "accepted") and fits'
judged "a pipe that its reader leaves is the program's own affair" \
	"$(task '{language: "bash", source: "yes | head -n 1", expected: "y"}')" 'ended("success"; "accepted") and fits'

# --- what is sent ------------------------------------------------------------------------------------------------------
# "Newlines in base64 are refused", which base64(1) puts there.
text=$(head -c 200 /dev/zero | tr '\0' a)
judged "base64 as base64(1) prints it" \
	"$(task '{language: null, execute: {command: "cat", input: {$base64}, expected: $text}}' base64 "$(base64 -w 20 <<<"$text")" text "$text")" \
	'ended("success"; "accepted")'
judged "and with the line ends of another system" \
	"$(task '{language: null, execute: {command: "cat", input: {base64: ($base64 | gsub("\n"; "\r\n"))}, expected: $text}}' \
		base64 "$(base64 -w 20 <<<"$text")" text "$text")" 'ended("success"; "accepted")'

# --- compilers and runtimes --------------------------------------------------------------------------------------------
# "Recompiled for each test."
judged "five cases are compiled once" \
	"$(task '{language: null, compile: {files: [{name: "f", content: ""}], command: ["sh", "-c", "od -An -tx8 -N16 /dev/urandom >built"]},
		execute: {command: "cat built"}, cases: [range(5) | {input: ""}]}')" \
	'ended("success"; "accepted") and ([.cases[].stdout] | length == 5 and (unique | length == 1) and (.[0] | length > 30))'
# "A file-size limit gives an internal compiler error." Not by default; and whoever sets a low one is told so by the compiler's text (what one of its
# processes died of is seen by its driver only).
judged "a program of 32 MB compiles" "$(task '{language: "c", source: "char a[32 << 20] = {1}; int main(void) { return !a[0]; }"}')" \
	'ended("success"; "accepted")'
judged "a compiler that meets a low limit of its own is compile_error, with its text" \
	"$(task '{language: "c", compile: {source: "char a[8 << 20] = {1}; int main(void) { return 0; }", limits: {file_bytes: 1048576}}}')" \
	'ended("compile_failed"; "compile_error") and (.compile.stderr | test("File size limit exceeded|File too large"))'
# "Insufficient memory for the JVM", and a negative heap below 128 MB.
java_hello='public class Main { public static void main(String[] a) { System.out.println("hello " + Runtime.getRuntime().maxMemory() / 1048576); } }'
for mib in 16 64 100; do
	judged "Java runs at $mib MiB" \
		"$(task "{language: \"java\", \$source, limits: {memory_bytes: ($mib * 1048576)}}" source "$java_hello")" \
		'ended("success"; "accepted") and (.cases[0].stdout | test("^hello [1-9][0-9]*\n$"))'
done
# "Go needs eventfd2: runtime error until a release." Runtimes that poll, sleep and start threads.
judged "Go sleeps, and waits for a thousand goroutines" \
	"$(task '{language: "go", $source, expected: "1000"}' source 'package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	r, w, _ := os.Pipe()
	done := make(chan int)
	for i := 0; i < 1000; i++ {
		go func() { time.Sleep(time.Millisecond); done <- 1 }()
	}
	n := 0
	for i := 0; i < 1000; i++ {
		n += <-done
	}
	go func() { fmt.Fprint(w, n); w.Close() }()
	fmt.Fscan(r, &n)
	fmt.Println(n)
}')" 'ended("success"; "accepted")'
judged "JavaScript waits for a timer and a thread of its pool" \
	"$(task '{language: "javascript", $source, expected: "1"}' \
		source 'require("fs").readFile("main.js", () => setTimeout(() => console.log(1), 5));')" '.done and .verdict == "accepted"'

# --- the end -------------------------------------------------------------------------------------------------------------
# "An abort after the last case leaves a full score."
id=$(post "$(task '{language: "bash", source: "read x; echo 1; [ \"$x\" = 1 ] || sleep 1000",
	cases: [{input: "1", expected: "1"}, {input: "2", expected: "1"}], limits: {wall_ms: 100000}}')" | jq -r .id)
is_in_second_case()
{
	api "tasks/$id" >"$answer" && shows '.status == "running" and .case == 1'
}
check "a task is in its second case" wait_until "$ANSWER_S" is_in_second_case
check "it is cancelled there" api "tasks/$id" -X DELETE
api "tasks/$id" >"$answer"
check "and has no score" shows '.done and .verdict == "cancelled" and .score == null'

judge_stop
finish
