#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Archives in both phases, as python's zipfile makes them, through the real programs: good ones are judged, bad ones get the
# problem document that says why, and one that is damaged inside is a compile error. And the checker `float`.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

# zip NAME PYTHON : makes $DIR/NAME; the python fills the archive `z`, with `file(name, mode)` for an entry of a unix mode.
zip()
{
	python3 - "$DIR/$1" "$2" <<'END'
import sys, warnings, zipfile
warnings.simplefilter("ignore")
def file(name, mode):
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr, info.compress_type = 3, mode << 16, zipfile.ZIP_DEFLATED
    return info
with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as z:
    exec(sys.argv[2])
END
}

# with NAME FILTER : the task of the filter, where $zip is the archive.
with()
{
	base64 -w 0 "$DIR/$1" >"$DIR/base64"
	jq -nc --rawfile base64 "$DIR/base64" '{$base64} as $zip | '"$2"
}

# refuses NAME POINTER REASON : in the phase that the pointer names.
refuses()
{
	local code task
	task=$(with "$1" '{language: "bash", source: "true"} * {execute: {archive: $zip}}')
	[ "$2" = /compile/archive ] && task=$(with "$1" '{language: "bash", compile: {archive: $zip}}')
	code=$(curl -sS --max-time "$ANSWER_S" -o "$answer" -w '%{http_code}' -H 'Content-Type: application/json' \
		--data-binary @- "$url/api/v1/tasks" <<<"$task")
	[ "$code" = 422 ] && jq -e --arg pointer "$2" --arg reason "$3" \
		'.code == "bad_archive" and .pointer == $pointer and (.detail | contains($reason))' "$answer" && return
	echo "status $code"
	cat "$answer"
	return 1
}

# refused DESCRIPTION NAME REASON : one test point, both phases.
refused()
{
	check "$1 (compile)" refuses "$2" /compile/archive "$3"
	check "$1 (execute)" refuses "$2" /execute/archive "$3"
}

judge_start --gateway.body_max=128MiB # for the largest of them, in base64

zip c 'z.writestr("src/main.c", "#include \"../inc/x y.h\"\nint main(void) { puts(TEXT); }\n")
z.writestr(file("inc/", 0o40755), "")
z.writestr("inc/x y.h", "#include <stdio.h>\n#define TEXT \"\u00e9\"\n")'
judged "a C program is compiled from an archive" \
	"$(with c '{compile: {archive: $zip, command: "cc -o main src/main.c"}, execute: {command: "./main", expected: "é"}}')" \
	'ended("success"; "accepted")'

zip data 'z.writestr(file("tool", 0o100755), "#!/bin/bash\ncat \"d/\u00fc 1.txt\"\n")
z.writestr("d/\u00fc 1.txt", "from the archive\n" * 1000)
z.writestr("plain", "")'
judged "a run has the files of its archive, executable where it says so" \
	"$(with data '{language: "bash", source: "./tool | sort -u; test -x plain || echo plain", execute: {archive: $zip, expected: "from the archive\nplain"}}')" \
	'ended("success"; "accepted")'

# Through a pipe: sizes and checksums stand behind the data.
python3 -c 'import sys, zipfile
with zipfile.ZipFile(sys.stdout.buffer, "w", zipfile.ZIP_DEFLATED) as z: z.writestr("data", "streamed")' | cat >"$DIR/streamed"
judged "an archive that was written to a pipe is read" \
	"$(with streamed '{language: "bash", source: "cat data", execute: {archive: $zip, expected: "streamed"}}')" \
	'ended("success"; "accepted")'

zip nested 'z.writestr("inner.zip", b"PK\5\6" + bytes(18))'
judged "an archive in the archive is only a file" \
	"$(with nested '{language: "bash", source: "wc -c <inner.zip", execute: {archive: $zip, expected: "22"}}')" \
	'ended("success"; "accepted")'

zip damaged 'z.writestr("data", "some text that is packed")'
python3 - "$DIR/damaged" <<'END'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[40] ^= 0xff
open(sys.argv[1], "wb").write(data)
END
judged "a damaged archive is a compile error that says so" \
	"$(with damaged '{language: "bash", source: "true", execute: {archive: $zip}}')" \
	'ended("compile_failed"; "compile_error") and (.compile.message | startswith("execute.archive: \"data\" "))'

echo 'not a zip' >"$DIR/text"
refused "what is no zip is refused" text "no zip archive"
head -c -30 "$DIR/data" >"$DIR/cut"
refused "an archive that is cut off is refused" cut "no zip archive"
zip slip 'z.writestr("../../x", "x")'
refused "../../x is refused" slip "../../x"
zip absolute 'z.writestr("/etc/x", "x")'
refused "an absolute name is refused" absolute "/etc/x"
zip backslash 'z.writestr("a\\b", "x")'
refused "a backslash is refused" backslash "backslash"
zip newline 'z.writestr("a\nb", "x")'
refused "a newline in a name is refused" newline "control"
zip link 'z.writestr(file("l", 0o120777), "/etc/passwd")'
refused "a symbolic link is refused" link "no regular file"
zip device 'z.writestr(file("d", 0o20666), "")'
refused "a device is refused" device "no regular file"
zip twice 'z.writestr("a", "x"); z.writestr("a", "y")'
refused "two files of one name are refused" twice "twice"
zip empty 'pass'
refused "an archive without files is refused" empty "no files"
zip bomb 'z.writestr("zeros", bytes(32 << 20))'
refused "a bomb is refused" bomb "times its size"
zip big 'z.writestr("zeros", bytes(65 << 20))'
refused "what unpacks to more than files may have is refused" big "64 MiB"
zip many 'for i in range(2000): z.writestr(str(i), "")'
refused "too many entries are refused" many "2000 entries"
zip zip64 'for i in range(70000): z.writestr(str(i), "")'
refused "more entries than a plain zip can have need zip64, which is refused" zip64 "zip64"

# million SAID : a directory of a million entries, all of the one file there is; its end says so many (in 16 bits, so never a million).
# The task goes from a file: it is larger than what fits into an argument.
million()
{
	local code
	python3 - "$1" >"$DIR/million" <<'END'
import base64, struct, sys
local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 0, 0, 0, 0, 1, 0) + b"x"
entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"x"
entries = entry * 1_000_000
end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, int(sys.argv[1]), int(sys.argv[1]), len(entries), len(local), 0)
text = base64.b64encode(local + entries + end).decode()
sys.stdout.write('{"language": "bash", "source": "true", "execute": {"archive": {"base64": "' + text + '"}}}')
END
	code=$(curl -sS --max-time "$ANSWER_S" -o "$answer" -w '%{http_code}' -H 'Content-Type: application/json' --data-binary "@$DIR/million" \
		"$url/api/v1/tasks")
	[ "$code" = 422 ] && jq -e '.code == "bad_archive" and .pointer == "/execute/archive"' "$answer" && return
	echo "status $code"
	cat "$answer"
	return 1
}
check "a million entries, as many said as fit, are refused" million $((1000000 % 65536))
check "a million entries of which one is said are refused" million 1

judged "a float within the default tolerance is accepted" \
	"$(task '{language: "bash", source: "echo 0.3333333 1e3 yes", expected: "0.33333333 1000 yes", checker: {kind: "float"}}')" \
	'ended("success"; "accepted")'
judged "one that is not is a wrong answer that shows both" \
	"$(task '{language: "bash", source: "echo 0.33", expected: "0.3333", checker: {kind: "float", abs: 0.001, rel: 0}}')" \
	'ended("success"; "wrong_answer") and (.cases[0].message | contains("expected \"0.3333\", got \"0.33\""))'
judged "with a wider tolerance it is accepted" \
	"$(task '{language: "bash", source: "echo 0.33", expected: "0.3333", checker: {kind: "float", abs: 0.01}}')" \
	'ended("success"; "accepted")'

check "the gateway is healthy" curl -fsS --max-time "$ANSWER_S" -o "$DIR/health" "$url/healthz"
judge_stop
finish
