#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Submissions that reach out of the sandbox: they find nothing there, and nothing of them stays.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

secret=conclave-private-$RANDOM$RANDOM
export PRIVATE_TOKEN=$secret # the judge's environment
judge_start

# --- daemons ------------------------------------------------------------------------------------------------
# Two processes leave their session and their parent; the main process ends well once both beat. One keeps stdout, one has closed
# everything. They are known by the word in their arguments, which can be looked up from outside.
daemon_c='#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
static volatile int *beats;
static void lead(int own)
{
	if (fork())
		return;
	setsid();
	if (fork())
		_exit(0);
	for (int i = 1; i < 32; i++)
		signal(i, SIG_IGN);
	if (!own)
		for (int i = 0; i < 100; i++)
			close(i);
	for (;;) {
		beats[own]++;
		usleep(1000);
	}
}
int main(void)
{
	beats = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	lead(0);
	lead(1);
	while (beats[0] < 3 || beats[1] < 3)
		usleep(1000);
	printf("%d\n", (int)getuid());
	return 0;
}'
word=daemon-$$-$RANDOM
check "a program that leaves two daemons is answered" submit \
	"$(task '{language: "c", compile: {$source}, execute: {command: ["./main", $word], limits: {wall_ms: 60000}}}' \
		source "$daemon_c" word "$word")"
left=$(processes_of "$word")
uid=$(jq -r '.cases[0].stdout' "$answer")
left_of_uid=$(processes_of_uid "${uid:-none}")
check "it is accepted" shows 'ended("success"; "accepted") and fits'
check "it did see its daemons" [ "${uid:-0}" -gt 0 ]
check "the daemons are dead before the answer" is_empty "$left"
check "and nothing of their uid is left" is_empty "$left_of_uid"

check "daemons of a program that is killed are answered" submit \
	"$(task '{language: "c", compile: {source: ($source | sub("return 0"; "for (;;)"))},
		execute: {command: ["./main", $word], limits: {cpu_ms: 300, wall_ms: 60000}}}' source "$daemon_c" word "$word")"
left=$(processes_of "$word")
check "it is time_limit" shows 'ended("run_failed"; "time_limit")'
check "and they are dead too" is_empty "$left"

# --- the network ----------------------------------------------------------------------------------------------
connect_py='import errno, socket, sys
for family, kind, where in (
        (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(sys.stdin.readline()))),
        (socket.AF_INET, socket.SOCK_STREAM, ("1.1.1.1", 80)),
        (socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80)),
        (socket.AF_INET, socket.SOCK_DGRAM, ("8.8.8.8", 53)),
        (socket.AF_INET6, socket.SOCK_STREAM, ("2606:4700:4700::1111", 80))):
    try:
        socket.socket(family, kind).connect(where)
        print("connected", where)
    except OSError as e:
        print(errno.errorcode[e.errno])'
judged "connect() says ENETUNREACH: the judge itself, the world, metadata, DNS, IPv6" \
	"$(task '{language: "python", $source, $input}' source "$connect_py" input "$gateway_port")" \
	'ended("success"; "accepted") and (.cases[0].stdout | startswith("ENETUNREACH\n" * 4)) and
	(.cases[0].stdout | split("\n")[4] | . == "ENETUNREACH" or . == "EADDRNOTAVAIL")'
judged "the judge's sockets by name are not there" \
	"$(task '{language: "bash", compile: {source: "exec 3<>/dev/tcp/127.0.0.1/$1"}, execute: {command: ["bash", "main.sh", $input]}}' \
		input "$judicator_port")" \
	'ended("run_failed"; "runtime_error") and (.cases[0].stderr | contains("Network is unreachable"))'

# --- files of the host -----------------------------------------------------------------------------------------
look_py='import os, sys
for path in sys.stdin.read().split():
    try:
        print("open", path, os.open(path, os.O_RDONLY))
    except OSError as e:
        print(e.__class__.__name__)'
paths="/etc/shadow $state/secret $state $DIR $SOURCE /root /home /var /sys /run /boot"
judged "/etc/shadow, the secret, the judge's and the host's directories are not there" \
	"$(task '{language: "python", $source, $input}' source "$look_py" input "$paths")" \
	'ended("success"; "accepted") and .cases[0].stdout == ("FileNotFoundError\n" * 11)'
judged "other processes cannot be looked at" \
	"$(task '{language: "bash", source: "ls /proc | grep -E \"^[0-9]+$\"; cat /proc/1/environ /proc/1/maps; ls -l /proc/1/fd /proc/1/root"}')" \
	".done and (.cases[0] | .stdout | length < 100 and (contains(\"/\") | not))"
judged "the judge's environment is not there" \
	"$(task '{language: "bash", source: "env; set; cat /proc/*/environ"}')" \
	".done and (.cases[0] | (.stdout + .stderr | tostring | contains(\"$secret\") | not) and (.stdout | tostring | test(\"PATH=\")) and
	(.stdout | tostring | contains(\"CONCLAVE\") | not))"
judged "what runs has three descriptors" \
	"$(task '{language: "python", source: "import os\nprint([f for f in range(1000) if os.path.exists(\"/proc/self/fd/%d\" % f)])\n"}')" \
	'ended("success"; "accepted") and .cases[0].stdout == "[0, 1, 2]\n"'
judged "the system is read-only and setuid gives nothing" \
	"$(task '{language: "bash",
		source: "touch /usr/x /etc/x /x /dev/x /proc/x 2>&1 | grep -c .; grep -E \"^(CapEff|NoNewPrivs)\" /proc/self/status | tr -s \"\\t\" \" \""}')" \
	'ended("success"; "accepted") and .cases[0].stdout == "5\nCapEff: 0000000000000000\nNoNewPrivs: 1\n"'

# --- the compiler -----------------------------------------------------------------------------------------------
leaks='ended("compile_failed"; "compile_error") and (tostring | test("root:[^\"]*:") | not)'
for path in /etc/shadow "$state/secret"; do
	judged "#include \"$path\" leaks nothing" \
		"$(task '{language: "c", $source}' source "#include \"$path\"
int main(void) { return 0; }")" "$leaks and (tostring | contains(\"$(cat "$state/secret")\") | not)"
done
judged ".incbin of /etc/shadow leaks nothing" \
	"$(task '{language: "c", source: "__asm__(\".incbin \\\"/etc/shadow\\\"\");\nint main(void) { return 0; }\n"}')" "$leaks"
judged "#include \"/proc/self/environ\" shows nothing of the judge" \
	"$(task '{language: "c", source: "#include \"/proc/self/environ\"\nint main(void) { return 0; }\n"}')" \
	".done and ([.verdict] | inside([\"accepted\", \"compile_error\"])) and (tostring | contains(\"$secret\") | not)"
judged "#include \"/dev/zero\" ends within the limits of the compiler" \
	"$(task '{language: "c", compile: {source: "#include \"/dev/zero\"\n", limits: {cpu_ms: 1000, memory_bytes: 268435456}}}')" \
	'ended("compile_failed"; "compile_error")'
judged "a compiler that leaves daemons, links and pipes behind hands on regular files only" \
	"$(task '{language: null, compile: {command: ["bash", "make.sh"], files: [{name: "make.sh", content:
		"echo out >out; ln -s /etc/shadow link; mkfifo pipe; setsid sleep 1000 & exit 0"}]},
		execute: {command: ["bash", "-c", "ls -A; cat out"]}}')" \
	'ended("success"; "accepted") and .cases[0].stdout == "make.sh\nout\nout\n"'

# --- other tasks ---------------------------------------------------------------------------------------------------
# What a task writes wherever it may, none of the next ones finds, in whichever slot they run.
mark=mark-$$-$RANDOM
write_py='import os, sys
n = 0
for d in (".", "/tmp", "/var/tmp", "/dev/shm", "/w", "/dev/mqueue", "/run"):
    try:
        open(os.path.join(d, sys.argv[1]), "w").write(sys.argv[1])
        n += 1
    except OSError:
        pass
print(n)'
find_py='import os
for top in ("/w", "/tmp", "/dev", "/etc", "/run", "/var", "/mnt", "/home", "/srv", "/opt"):
    for at, dirs, files in os.walk(top):
        for name in dirs + files:
            if name.startswith("mark-"):
                print(os.path.join(at, name))'
for i in 1 2 3 4; do
	judged "task $i writes its mark where it can" \
		"$(task '{language: "python", compile: {$source}, execute: {command: ["python3", "main.py", $mark]}}' \
			source "$write_py" mark "$mark")" \
		'ended("success"; "accepted") and (.cases[0].stdout | tonumber) >= 2'
	judged "the task behind it does not find it" \
		"$(task '{language: "python", $source, expected: ""}' source "$find_py")" 'ended("success"; "accepted")'
done
signal_py='import os
print(sum(n.isdigit() for n in os.listdir("/proc")))
if os.getpid() > 1000:
    raise SystemExit("not isolated: no signals are sent from here")
try:
    os.kill(-1, 9)
except OSError as e:
    print(e.__class__.__name__)'
# And beside one that runs: it writes, then waits for a line that never comes.
holder=$(post "$(task '{language: "bash", source: ("echo x >/tmp/" + $mark + "; echo x >/dev/shm/" + $mark + "; exec -a " + $mark + " sleep 50"),
	limits: {wall_ms: 60000}}' mark "$mark")" | jq -r .id)
check "a task runs and has written" wait_until "$ANSWER_S" not has_no_process "$mark"
judged "the task beside it does not find what it wrote" \
	"$(task '{language: "python", $source, expected: ""}' source "$find_py")" 'ended("success"; "accepted")'
judged "nor sees it running, nor can signal it" "$(task '{language: "python", $source}' source "$signal_py")" \
	'ended("success"; "accepted") and (.cases[0].stdout | . == "1\nProcessLookupError\n" or . == "2\nProcessLookupError\n")'
check "it still runs" not has_no_process "$mark"
check "it is cancelled" api "tasks/$holder" -X DELETE
check "and its processes end" wait_until "$ANSWER_S" has_no_process "$mark"

judge_stop
finish
