#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What cmake --install and the Debian package put on a machine: it runs from there and judges, the units say what they must, the
# manual pages are right and complete, the package's scripts make the user and start nothing.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"
build=$(cd "$BIN/.." && pwd)
PROGRAMS="judicator executor gateway"
UNITS="standalone judicator executor gateway"

# quietly COMMAND... : its output is of interest only when it fails.
quietly()
{
	"$@" >"$DIR/command.out" 2>&1 || { cat "$DIR/command.out"; return 1; }
}

# accepted WHERE : a task through every installed part.
accepted()
{
	judged "$1 judges C" "$(task '{language: "c", source: "int main(void) { return 0; }\n"}')" 'ended("success"; "accepted")'
	judged "$1 judges Python" "$(task '{language: "python", source: "print(6 * 7)\n", expected: "42\n"}')" \
		'ended("success"; "accepted")'
}

# --- cmake --install ---------------------------------------------------------------------------------------
inst=$DIR/inst
umask 022
install_there()
{
	quietly cmake --install "$build" --prefix "$inst"
}
check "cmake --install" install_there || finish
for file in bin/{judicator,executor,gateway,conclave-box} share/conclave/languages/{c,cpp,python,bash}.ini \
	share/conclave/monitoring/{grafana.json,prometheus-rules.yml} \
	share/doc/conclave/{README.md,INSTALL.md,methods.md,copyright} share/man/man8/{judicator,executor,gateway}.8 \
	share/man/man5/conclave-{options,log}.5 lib/sysusers.d/conclave.conf etc/conclave/{standalone,judicator,executor,gateway}.conf \
	lib/systemd/system/conclave-{standalone,judicator,executor,gateway}.service; do
	[ -f "$inst/$file" ] || missing="${missing:-} $file"
done
check "everything is there" is_empty "${missing:-}"
if [ -x "$build/bin/conclave" ]; then
	check "conclave is there" quietly "$inst/bin/conclave" --version
	check "with its manual page" mandoc -Tlint -W error "$inst/share/man/man1/conclave.1"
	check "with its completion" bash -n "$inst/share/bash-completion/completions/conclave"
fi
check "every language profile is there" diff <(cd "$SOURCE/cfg/languages" && ls) <(cd "$inst/share/conclave/languages" && ls)
check "others may read all of it" is_empty "$(find "$inst" -mindepth 1 \( -type d ! -perm -755 -o -type f ! -perm -644 \))"
check "nobody else may write there" is_empty "$(find "$inst" -perm /022)"
check "nothing is setuid" is_empty "$(find "$inst" -perm /6000)"

echo '# mine' >>"$inst/etc/conclave/gateway.conf"
check "installing again" install_there
check "keeps an edited configuration file" grep -qx '# mine' "$inst/etc/conclave/gateway.conf"
for name in $PROGRAMS standalone; do
	program=${name/standalone/judicator}
	check "$name.conf has the packaged user" grep -qx 'user = conclave' "$inst/etc/conclave/$name.conf"
	check "$name.conf is a right configuration" quietly "$inst/bin/$program" --check -c "$inst/etc/conclave/$name.conf" \
		--boot.user=nobody --dir "$DIR/never"
done

# --- units --------------------------------------------------------------------------------------------------
# says UNIT KEY=VALUE : a line of it.
says()
{
	grep -qxF -- "$2" "$inst/lib/systemd/system/conclave-$1.service"
}

# names UNIT KEY : a line with that key.
names()
{
	grep -q -- "^$2=" "$inst/lib/systemd/system/conclave-$1.service"
}

value_of()
{
	sed -n "s/^$2=//p" "$inst/lib/systemd/system/conclave-$1.service"
}

# is_well_formed UNIT : sections with their keys, each line of a known form, nothing left to be replaced.
is_well_formed()
{
	local file=$inst/lib/systemd/system/conclave-$1.service
	[ "$(grep '^\[' "$file" | tr -d '\n')" = '[Unit][Service][Install]' ] &&
		not grep -vE '^(#.*|\[[A-Za-z]+\]|[A-Z][A-Za-z]*=[^ ].*|)$' "$file" && not grep '@' <(grep -v '^SystemCallFilter=@' "$file")
}

# starts_what_is_there UNIT : program and configuration of ExecStart are the installed ones, and the program takes the arguments.
starts_what_is_there()
{
	local words
	read -ra words <<<"$(value_of "$1" ExecStart)"
	[[ ${words[0]} == "$inst/bin/"* && -f ${words[-1]} ]] && quietly "${words[@]}" --check --boot.user=nobody --dir "$DIR/never"
}

# The default of boot.stop_timeout, which boot grants each service in turn.
stop_s=$(sed -n 's/^OPTION(boot, stop_timeout, DURATION, "\([0-9]*\)s".*/\1/p' "$SOURCE/cfg/options.def")
has_time_to_stop()
{
	local stop unit=$1 services=1
	[ "$unit" = standalone ] && services=3
	stop=$(value_of "$unit" TimeoutStopSec)
	[ "${stop%s}" -gt $((services * stop_s)) ]
}

is_common()
{
	local line
	for line in Type=exec Restart=on-failure RestartPreventExitStatus=2 KillMode=mixed 'ExecReload=/bin/kill -HUP $MAINPID' \
		StateDirectory=conclave StateDirectoryMode=0755 NoNewPrivileges=yes WantedBy=multi-user.target; do
		says "$1" "$line" || { echo "conclave-$1.service: no $line"; return 1; }
	done
	not names "$1" User && not names "$1" DynamicUser # the state directory must be root's
}

for unit in $UNITS; do
	check "conclave-$unit.service is well formed" is_well_formed "$unit"
	check "conclave-$unit.service starts what is there" starts_what_is_there "$unit"
	check "conclave-$unit.service leaves boot its time to stop" has_time_to_stop "$unit"
	check "conclave-$unit.service says what all must" is_common "$unit"
done
for unit in judicator gateway; do
	for line in ProtectSystem=strict PrivateDevices=yes RestrictNamespaces=yes MemoryDenyWriteExecute=yes \
		SystemCallFilter=@system-service 'RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX'; do
		check "conclave-$unit.service: $line" says "$unit" "$line"
	done
done
for unit in standalone executor; do
	for line in Delegate=yes OOMPolicy=continue TasksMax=infinity; do
		check "conclave-$unit.service: $line" says "$unit" "$line"
	done
	for key in RestrictNamespaces ProtectControlGroups ProtectHostname PrivateDevices MemoryDenyWriteExecute SystemCallFilter \
		CapabilityBoundingSet ProtectKernelTunables RestrictSUIDSGID; do
		check "conclave-$unit.service has no $key, which sandboxes would notice" not names "$unit" "$key"
	done
done

# --- manual pages -------------------------------------------------------------------------------------------
pages=("$inst"/share/man/man[58]/*)
check "there are manual pages" [ ${#pages[@]} -ge 5 ]
for page in "${pages[@]}"; do
	check "${page##*/} is right mdoc" mandoc -Tlint -W warning "$page"
done
for option in $(sed -n 's/^OPTION(\([a-z]*\), \([a-z_]*\),.*/\1.\2/p' "$SOURCE/cfg/options.def"); do
	grep -qx ".It Cm $option" "$inst/share/man/man5/conclave-options.5" || undocumented="${undocumented:-} $option"
done
check "conclave-options(5) has every option" is_empty "${undocumented:-}"

# --- an installed judge ----------------------------------------------------------------------------------------
BIN=$inst/bin
judge_start -c "$inst/etc/conclave/standalone.conf" --boot.user=nobody --log.level=debug
accepted "the installed judicator"
judge_stop
check "it ran the installed conclave-box and nothing of the tree" not grep -qF "$build" "$DIR/boot.log"
undocumented=
for event in $(grep -oE '^ts=[^ ]* level=[a-z]* role=[a-z]* event=[A-Za-z_-]*' "$DIR/boot.log" | sed 's/.*=//' | sort -u); do
	grep -qx ".It Cm $event" "$inst/share/man/man5/conclave-log.5" || undocumented="$undocumented $event"
done
check "conclave-log(5) has every event it logged" is_empty "$undocumented"
check "and those it did not, with their fields" grep -qx '.Cm slots .' <(sed -n '/^.It Cm start$/,/^.It/p' "$inst/share/man/man5/conclave-log.5")

# --- what the strong units leave to root is enough -----------------------------------------------------------------
# confined PROGRAM ARGUMENT... : started with the capabilities of its unit and no more.
confined()
{
	local program=$1 capability bounding=-all
	shift
	for capability in $(value_of "$program" CapabilityBoundingSet); do
		bounding=$bounding,+${capability#CAP_}
	done
	start "$program" setpriv --bounding-set "${bounding,,}" --no-new-privs "$inst/bin/$program" \
		-c "$inst/etc/conclave/$program.conf" --boot.user=nobody --boot.dir="$DIR/state3" --boot.run_dir="$DIR/run-$program" "$@"
}
# finds_the_judicator : the gateway asked it, with the secret they share.
finds_the_judicator()
{
	api judicators >"$answer" && jq -e '[.judicators[] | .leading] == [true]' "$answer"
}
free_port && judicator_port=$port
free_port && gateway_port=$port
url=http://127.0.0.1:$gateway_port
confined judicator --judicator.address="127.0.0.1:$judicator_port"
check "the confined judicator serves" wait_until "$START_S" is_serving "$DIR/run-judicator" main
confined gateway --judicator.addresses="127.0.0.1:$judicator_port" --gateway.addresses="127.0.0.1:$gateway_port"
check "the confined gateway finds it" wait_until "$START_S" finds_the_judicator
for program in gateway judicator; do
	stop "$program"
	check "the confined $program stops its service" [ "$status" = 0 ]
	check "with SIGTERM" not logged "$program" event=service-killed
done

# --- the Debian package ------------------------------------------------------------------------------------------
pack()
{
	(umask 077 && quietly cpack --config "$build/CPackConfig.cmake" -B "$DIR/pack")
}
check "CPack makes a package, whatever the umask" pack || finish
deb=$(ls "$DIR"/pack/conclave_*.deb)
dpkg-deb --contents "$deb" >"$DIR/contents"
contains()
{
	grep -qE "^$1 root/root .* \./$2$" "$DIR/contents"
}
check "its directories are open to all" not grep -qE '^d' <(grep -v '^drwxr-xr-x root/root ' "$DIR/contents")
for program in $PROGRAMS conclave-box; do
	check "the package has /usr/bin/$program" contains -rwxr-xr-x "usr/bin/$program"
done
for name in $UNITS; do
	check "and /etc/conclave/$name.conf" contains -rw-r--r-- "etc/conclave/$name.conf"
	check "which dpkg knows as configuration" grep -qx "/etc/conclave/$name.conf" <(dpkg-deb --info "$deb" conffiles)
	check "and conclave-$name.service" contains -rw-r--r-- "usr/lib/systemd/system/conclave-$name.service"
done
check "and nothing of where it was built" not grep -qE "usr/local|home|tmp" "$DIR/contents"
for library in libc6 libevent libevhtp libsqlite3 libssl libyajl; do
	check "it depends on $library" grep -q "$library" <(dpkg-deb --field "$deb" Depends)
done
check "it recommends compilers, and does not need them" [ "$(dpkg-deb --field "$deb" Recommends)" = "gcc, g++, python3" ]

root=$DIR/root
check "it unpacks" quietly dpkg-deb -x "$deb" "$root"
chmod 755 "$root"
check "its units name the real paths" grep -qx 'ExecStart=/usr/bin/judicator --standalone -c /etc/conclave/standalone.conf' \
	"$root/usr/lib/systemd/system/conclave-standalone.service"

# The scripts, with every command that would change the machine replaced by one that takes a note.
mkdir "$DIR/stubs"
for command in systemctl systemd-sysusers useradd; do
	printf '#!/bin/sh\necho "${0##*/} $*" >>%s\n' "$DIR/notes" >"$DIR/stubs/$command"
done
printf '#!/bin/sh\nexit 2\n' >"$DIR/stubs/getent" # there is no such user
chmod 755 "$DIR"/stubs/*
script()
{
	local name=$1
	shift
	: >"$DIR/notes"
	dpkg-deb --info "$deb" "$name" >"$DIR/$name" && PATH=$DIR/stubs:$PATH sh -e "$DIR/$name" "$@" >"$DIR/$name.out"
}
check "postinst runs" script postinst configure
check "it makes the user" grep -qx 'systemd-sysusers conclave.conf' "$DIR/notes"
check "it says what to type" grep -q 'systemctl enable --now conclave-standalone' "$DIR/postinst.out"
check "it enables and starts nothing" not grep -qE 'enable|start' "$DIR/notes"
check "an upgrade is silent" script postinst configure 0.0.1
check "and says nothing of a start" is_empty "$(cat "$DIR/postinst.out")"
check "prerm runs" script prerm remove
check "postrm runs" script postrm purge
check "the user of the package is the user of the files" grep -q '^u conclave ' "$root/usr/lib/sysusers.d/conclave.conf"

BIN=$root/usr/bin state=$DIR/state2 run=$DIR/state2/run
: >"$DIR/boot.log"
judge_start -c "$root/etc/conclave/standalone.conf" --boot.user=nobody
accepted "the packaged judicator"
judge_stop
finish
