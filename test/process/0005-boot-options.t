#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All errors of file, environment and command line at once, each with its place; --check, --help, --sample, --version.
. "${0%/*}/lib.sh"

cat >"$DIR/bad.conf" <<'CONF'
[executor]
slots = many
speed = 9

[nonsense]
key = 1
CONF
printf '[executor]\nslots = 2\n' >"$DIR/good.conf"

CONCLAVE_LOG_LEVEL=loud "$BIN/executor" -c "$DIR/bad.conf" --boot.stop_timeout=soon --frobnicate \
	--dir "$DIR/never" >"$DIR/bad.out" 2>"$DIR/bad.log"
check "errors end with status 2" [ $? = 2 ]
check "a bad value in the file, with its line" grep -q "bad.conf:2: .*many" "$DIR/bad.log"
check "an unknown key, with its line" grep -q "bad.conf:3: .*speed" "$DIR/bad.log"
check "an unknown section, with its line" grep -qE "bad.conf:[56]: .*nonsense" "$DIR/bad.log"
check "the environment" grep -q "CONCLAVE_LOG_LEVEL: .*loud" "$DIR/bad.log"
check "an option on the command line" grep -q -e "--boot.stop_timeout: .*soon" "$DIR/bad.log"
check "an unknown argument, and what to do" grep -q -e "--frobnicate: .*--help" "$DIR/bad.log"
check "the number of errors" grep -q "^executor: 6 errors; nothing was started" "$DIR/bad.log"
check "nothing on standard output" [ ! -s "$DIR/bad.out" ]
check "nothing was made" [ ! -e "$DIR/never" ]

"$BIN/executor" --check -c "$DIR/bad.conf" >/dev/null 2>"$DIR/check.log"
check "--check of a bad file: status 2" [ $? = 2 ]
check "--check reports all of it" grep -q "^executor: 3 errors" "$DIR/check.log"
check "--check of a good file" "$BIN/executor" --check -c "$DIR/good.conf" --dir "$DIR/never"
check "--check makes nothing" [ ! -e "$DIR/never" ]
"$BIN/executor" -c "$DIR/missing.conf" >/dev/null 2>"$DIR/missing.log"
check "a missing file: status 2" [ $? = 2 ]
check "a missing file is named" grep -q "missing.conf: .*No such file" "$DIR/missing.log"
"$BIN/gateway" --standalone >/dev/null 2>"$DIR/gateway.log"
check "--standalone is the judicator's alone" [ $? = 2 ]
"$BIN/judicator" --service main >/dev/null 2>"$DIR/service.log"
check "--service without its file: status 2" [ $? = 2 ]

# Every row of the table that concerns a program is in its --help and --sample.
options_of()
{
	grep -E '^OPTION\(' "$SOURCE/cfg/options.def" -A1 | tr '\n' ' ' | sed 's/OPTION(/\n/g' |
		grep -E "CFG_(ALL|BOOT|$1)" | sed -E 's/^([a-z]+), ([a-z_]+),.*/\1.\2/'
}
for program in judicator executor gateway; do
	"$BIN/$program" --help >"$DIR/$program.help"
	check "$program --help: status 0" [ $? = 0 ]
	"$BIN/$program" --sample >"$DIR/$program.sample"
	check "$program --sample is a right configuration" \
		"$BIN/$program" --check -c "$DIR/$program.sample" --dir "$DIR/never"
	count=0 missing=
	for option in $(options_of "${program^^}"); do
		count=$((count + 1))
		grep -qF -- "--$option=" "$DIR/$program.help" || missing="$missing help:$option"
		grep -q "^#${option#*.} =" "$DIR/$program.sample" || missing="$missing sample:$option"
	done
	check "$program: --help and --sample have all its options" [ "$missing" = "" -a "$count" -gt 8 ]
	check "$program --version" grep -qx "$program [0-9]*\.[0-9]*\.[0-9]*" <("$BIN/$program" --version)
done
finish
