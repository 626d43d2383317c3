#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each limit fires, is named, and is measured as exactly as promised. Runs with no other test beside it: wall time is its subject.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

judge_start

# --- CPU time -----------------------------------------------------------------------------------------------
cpu='ended("run_failed"; "time_limit") and (.cases[0] | limit("cpu_ms"; 1000) and .exit_code == null and .cpu_us > 1000000 and
	.limit.measured == (.cpu_us / 1000 | ceil))'
cpu_exact='.cases[0] | (.limit.measured | within(1000; 1010)) and (.cpu_us | within(1000000; 1010000))'
timed "C: for(;;); at 1 s is time_limit at 1000 to 1010 ms" \
	"$(task '{language: "c", source: "int main(void) { for (;;); }\n", limits: {cpu_ms: 1000, wall_ms: 20000}}')" "$cpu" "$cpu_exact"
timed "Python: the same" \
	"$(task '{language: "python", source: "while True: pass\n", limits: {cpu_ms: 1000, wall_ms: 20000}}')" "$cpu" "$cpu_exact"
timed "C: time of a child counts" \
	"$(task '{language: "c", limits: {cpu_ms: 1000, wall_ms: 20000},
		source: "#include <unistd.h>\n#include <sys/wait.h>\nint main(void) { if (!fork()) for (;;); wait(0); return 0; }\n"}')" \
	"$cpu" "$cpu_exact"
timed "C: CPU time below the limit is accepted and shown" \
	"$(task '{language: "c", limits: {cpu_ms: 1000, wall_ms: 20000},
		source: "#include <time.h>\nint main(void) { while (clock() < CLOCKS_PER_SEC / 2); return 0; }\n"}')" \
	'ended("success"; "accepted") and fits' '.cases[0].cpu_us | within(500000; 520000)'

# --- wall time ----------------------------------------------------------------------------------------------
timed "sleep 100 at 2 s is wall_limit within 20 ms" \
	"$(task '{language: null, execute: {command: ["sleep", "100"], limits: {wall_ms: 2000}}}')" \
	'ended("run_failed"; "wall_limit") and (.cases[0] | limit("wall_ms"; 2000) and .wall_us > 2000000 and .cpu_us < 100000 and
	.limit.measured == (.wall_us / 1000 | ceil))' '.cases[0] | .wall_us <= 2020000 and .limit.measured <= 2020'
timed "a stopped program too" \
	"$(task '{language: "bash", source: "kill -STOP $$", limits: {wall_ms: 500}}')" \
	'ended("run_failed"; "wall_limit") and (.cases[0] | limit("wall_ms"; 500))' '.cases[0].wall_us | within(500000; 520000)'
timed "a compiler that sleeps is compile_error with the limit" \
	"$(task '{language: null, compile: {command: ["sleep", "100"], files: [{name: "x", content: ""}], limits: {wall_ms: 500}},
		execute: {command: ["true"]}}')" \
	'ended("compile_failed"; "compile_error") and (.compile | limit("wall_ms"; 500)) and .cases == []' \
	'.compile.wall_us | within(500000; 520000)'

# --- memory -------------------------------------------------------------------------------------------------
touch_c='#include <stdlib.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
	size_t mib;
	if (scanf("%zu", &mib) != 1)
		return 9;
	for (size_t i = 0; i < mib; i++)
		memset(malloc(1 << 20), 1, 1 << 20);
	puts("touched");
	return 0;
}'
judged "touching 1 GB at 64 MB is memory_limit" \
	"$(task '{language: "c", $source, input: "1024", limits: {memory_bytes: 67108864}}' source "$touch_c")" \
	'ended("run_failed"; "memory_limit") and (.cases[0] | limit("memory_bytes"; 67108864) and
	(.limit.measured | over_memory(67108864)) and .stdout == "" and .exit_code == null and .signal == 9)'
judged "touching 48 MB at 64 MB is accepted and shown" \
	"$(task '{language: "c", $source, input: "48", limits: {memory_bytes: 67108864}}' source "$touch_c")" \
	'ended("success"; "accepted") and fits and (.cases[0].memory_bytes | within(50331648; 56623104))'

# --- output and files ----------------------------------------------------------------------------------------
judged "yes is output_limit, exact to the byte" \
	"$(task '{language: null, execute: {command: ["yes"], limits: {output_bytes: 1000001}}}')" \
	'ended("run_failed"; "output_limit") and (.cases[0] | limit("output_bytes"; 1000001) and .limit.measured == 1000002 and
	.stdout_bytes == 1000001 and .stdout_truncated and (.stdout | startswith("y\ny\n") and endswith("\ny\ny") and length < 66000))'
judged "what is kept whole is kept exactly" \
	"$(task '{language: null, execute: {command: ["yes"], limits: {output_bytes: 65535}}}')" \
	'ended("run_failed"; "output_limit") and (.cases[0] | .limit.measured == 65536 and .stdout_bytes == 65535 and
	(.stdout_truncated | not) and .stdout == ("y\n" * 32767 + "y"))'
judged "as much as allowed is accepted" \
	"$(task '{language: null, execute: {command: ["head", "-c", "1000001", "/dev/zero"], limits: {output_bytes: 1000001}}}')" \
	'ended("success"; "accepted") and fits and .cases[0].stdout_bytes == 1000001'
judged "one byte more is not" \
	"$(task '{language: null, execute: {command: ["head", "-c", "1000002", "/dev/zero"], limits: {output_bytes: 1000001}}}')" \
	'ended("run_failed"; "output_limit") and (.cases[0] | .stdout_bytes == 1000001 and .limit.measured == 1000002)'
judged "stderr has no limit, and is counted" \
	"$(task '{language: "bash", source: "head -c 5000000 /dev/zero >&2", limits: {output_bytes: 1000}}')" \
	'ended("success"; "accepted") and fits and (.cases[0] | .stderr_bytes == 5000000 and .stderr_truncated)'
judged "a file over file_bytes is output_limit" \
	"$(task '{language: null, execute: {command: ["dd", "if=/dev/zero", "of=/tmp/file", "bs=64K", "count=100"],
		limits: {file_bytes: 1048576}}}')" \
	'ended("run_failed"; "output_limit") and (.cases[0] | limit("file_bytes"; 1048576))'

# --- processes ------------------------------------------------------------------------------------------------
# The bomb says its uid first; nothing of that uid, zombie or not, may be there when the answer is.
bomb_c='#include <stdio.h>
#include <unistd.h>
int main(void)
{
	printf("%d\n", (int)getuid());
	fflush(stdout);
	for (;;)
		fork();
}'
word=bomb-$$-$RANDOM
check "a fork bomb is answered" submit \
	"$(task '{language: "c", compile: {$source}, execute: {command: ["./main", $word],
		limits: {cpu_ms: 2000, wall_ms: 3000, processes: 64}}}' source "$bomb_c" word "$word")"
left=$(processes_of "$word")
uid=$(jq -r '.cases[0].stdout' "$answer" | head -n 1)
left_of_uid=$(processes_of_uid "${uid:-none}")
check "its verdict is time_limit, wall_limit or runtime_error, within the wall limit" shows \
	'.done and .status == "run_failed" and ([.verdict] | inside(["time_limit", "wall_limit", "runtime_error"])) and .attempt == 1 and
	.cases[0].wall_us <= 3500000'
check "it has told its uid" [ "${uid:-0}" -gt 0 ]
check "none of its processes is left" is_empty "$left"
check "nor any of its uid" is_empty "$left_of_uid"
judged "C: threads count as processes" \
	"$(task '{language: "python", limits: {processes: 8}, source:
		"import threading, time\nfor i in range(20): threading.Thread(target=time.sleep, args=(0.2,)).start()\n"}')" \
	'ended("run_failed"; "runtime_error") and (.cases[0] | limit("processes"; 8) and .exit_code == 1)'
judged "the judge is as it was" "$(task '{language: "bash", source: "echo 1", expected: "1\n"}')" 'ended("success"; "accepted") and fits'

judge_stop
finish
