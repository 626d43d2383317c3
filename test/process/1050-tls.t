#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A gateway that speaks TLS: what is wrong with its files stops the start; curl and conclave come in by https, and only when they can
# believe it; plain HTTP is told so; SIGHUP takes a renewed certificate, also when only root can read it, and a wrong one changes nothing.
# All of it holds for each web worker, also for one that is started anew.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

pem=$DIR/pem
WORKERS="gateway.1 gateway.2 gateway.3"
mkdir "$pem"

ec=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)

# authority NAME
authority()
{
	openssl req -x509 "${ec[@]}" -keyout "$pem/$1.key" -out "$pem/$1.pem" -subj "/CN=$1" -days 30 2>>"$DIR/openssl.log"
}

# certified NAME AUTHORITY : for 127.0.0.1 and localhost.
certified()
{
	printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\n' >"$pem/$1.ext"
	openssl req "${ec[@]}" -keyout "$pem/$1.key" -out "$pem/$1.csr" -subj "/CN=$1" 2>>"$DIR/openssl.log" &&
		openssl x509 -req -in "$pem/$1.csr" -CA "$pem/$2.pem" -CAkey "$pem/$2.key" -CAcreateserial -days 30 \
			-extfile "$pem/$1.ext" -out "$pem/$1.pem" 2>>"$DIR/openssl.log"
	chmod 600 "$pem/$1.key"
}

# The files that the gateway reads, replaced as renewals do it.
install_pair()
{
	cp "$pem/$1.pem" "$pem/new.pem" && install -m 600 "$pem/${2:-$1}.key" "$pem/new.key" &&
		mv "$pem/new.pem" "$pem/gateway.pem" && mv "$pem/new.key" "$pem/gateway.key"
}

authority ca
authority other
certified one ca
certified two ca
check "the certificates are made" [ -s "$pem/one.pem" -a -s "$pem/two.pem" ] || finish

# is_answered STATUS CURL-ARGUMENT... URL : the body is in a file.
is_answered()
{
	local want=$1 code
	shift
	code=$(curl -sS --max-time 30 -o "$DIR/body" -w '%{http_code}' "$@") || code="curl $?, status $code"
	[ "$code" = "$want" ] && return
	echo "status $code"
	return 1
}

# shown_is NAME WORKER... : the certificate that each of them shows now.
shown_is()
{
	local want worker
	want=$(openssl x509 -in "$pem/$1.pem" -outform DER | sha256sum)
	for worker in "${@:2}"; do
		[ "$(python3 "${0%/*}/crowd.py" shown "$gateway_port" "$(pid_in "$run/$worker.pid")")" = "${want%% *}" ] || {
			echo "not by $worker"
			return 1
		}
	done
}

# fails_with CODE COMMAND... : its words are in a file.
fails_with()
{
	local want=$1 code=0
	shift
	"$@" >"$DIR/words" 2>&1 </dev/null || code=$?
	[ $code = "$want" ] && return
	echo "exit code $code"
	cat "$DIR/words"
	return 1
}

says()
{
	grep -q -e "$1" "$DIR/words" && return
	cat "$DIR/words"
	return 1
}

# --- files that are wrong ----------------------------------------------------------------------------------------
free_port && judicator_port=$port
free_port && gateway_port=$port
url=https://127.0.0.1:$gateway_port
tls=(--gateway.tls_certificate="$pem/gateway.pem" --gateway.tls_key="$pem/gateway.key" --gateway.workers=3)
alone=("$BIN/gateway" --check --dir "$DIR/alone" --gateway.addresses="127.0.0.1:$gateway_port")
fails_with 2 "${alone[@]}" --gateway.tls_key="$pem/one.key"
check "a key alone is refused" says 'gateway.tls_certificate: is missing'
fails_with 2 "${alone[@]}" --gateway.tls_certificate="$pem/one.pem"
check "a certificate alone too" says 'gateway.tls_key: is missing'
fails_with 2 "${alone[@]}" --gateway.tls_certificate=one.pem --gateway.tls_key="$pem/one.key"
check "and a relative path" says 'one.pem: is not an absolute path'

install_pair one two
judge_again "${tls[@]}"
check "the key of another certificate stops the gateway" wait_until "$START_S" logged boot "the key is not the certificate's"
judge_stop
install_pair one
chmod 644 "$pem/gateway.key"
judge_again "${tls[@]}"
check "so does a key that others can read" wait_until "$START_S" logged boot 'gateway.key" problem="others may read or write it: chmod 600"'
judge_stop

# --- https -------------------------------------------------------------------------------------------------------
install_pair one
judge_again "${tls[@]}"
api() # for offers()
{
	local path=$1
	shift
	curl -sS --fail-with-body --max-time "$ANSWER_S" --cacert "$pem/ca.pem" "$@" "$url/api/v1/$path"
}
check "the judge is up" wait_until "$START_S" offers c || finish
check "curl sees it by name as well" is_answered 200 --cacert "$pem/ca.pem" "https://localhost:$gateway_port/healthz"
check "TLS 1.3" is_answered 200 --cacert "$pem/ca.pem" --tlsv1.3 "$url/healthz"
check "TLS 1.2" is_answered 200 --cacert "$pem/ca.pem" --tls-max 1.2 "$url/healthz"
check "nothing older" not is_answered 200 --cacert "$pem/ca.pem" --tls-max 1.1 "$url/healthz"
check "another authority is no proof" not is_answered 200 --cacert "$pem/other.pem" "$url/healthz"
check "plain HTTP is told so" is_answered 400 "http://127.0.0.1:$gateway_port/healthz"
check "in words" jq -e '.code == "https_expected" and (.detail | contains("https://"))' "$DIR/body"
check "and counted" eval 'curl -sS --cacert "$pem/ca.pem" "$url/metrics" | grep -q "route=\"other\",status=\"400\"} [1-9]"'
check "a task is judged over it" eval 'api "tasks?wait=60000" -H "Content-Type: application/json" \
	--data-binary '"'"'{"language": "c", "source": "int main(void) { return 0; }"}'"'"' | jq -e ".verdict == \"accepted\""'
check "a megabyte comes whole" is_answered 422 --cacert "$pem/ca.pem" -H 'Content-Type: application/json' \
	--data-binary "$(printf '{"cases": [%s]}' "$(head -c 100000 /dev/zero | tr '\0' ' ')")" "$url/api/v1/tasks"

# --- conclave ----------------------------------------------------------------------------------------------------
printf 'int main(void)\n{\n\treturn 0;\n}\n' >"$DIR/right.c"
printf 'int main(void)\n{\n\treturn 1;\n}\n' >"$DIR/wrong.c"
ours=(--cacert "$pem/ca.pem" --url "$url")
check "conclave submits by https" fails_with 0 "$BIN/conclave" submit "${ours[@]}" --wait "$DIR/right.c"
check "and hears another verdict" fails_with 1 "$BIN/conclave" submit "${ours[@]}" --wait "$DIR/wrong.c"
check "by name too" fails_with 0 "$BIN/conclave" list --cacert "$pem/ca.pem" --url "https://localhost:$gateway_port"
check "it believes no other authority" fails_with 3 "$BIN/conclave" list --url "$url" --cacert "$pem/other.pem"
check "and says what is wrong" says 'not to be trusted.*certificate'
check "nor the system's, which do not know this one" fails_with 3 "$BIN/conclave" list --url "$url"
check "and says what to do" says '--cacert FILE'
check "plain HTTP is told by it, too" fails_with 2 "$BIN/conclave" list --url "http://127.0.0.1:$gateway_port"
check "with advice" says 'say https://'
check "https where plain HTTP is spoken is told" fails_with 3 "$BIN/conclave" list --url "https://127.0.0.1:$judicator_port" --cacert "$pem/ca.pem"
check "without having sent anything" says 'nothing was sent'
check "--cacert without https is a mistake" fails_with 2 "$BIN/conclave" list --url http://127.0.0.1:1 --cacert "$pem/ca.pem"
check "so is a file that is none" fails_with 2 "$BIN/conclave" list --url "$url" --cacert "$DIR/right.c"

# --- renewals ------------------------------------------------------------------------------------------------------
check "three workers serve" wait_until "$START_S" all_serving "$run"
check "each shows the first certificate" shown_is one $WORKERS
install_pair two # root's alone, where we are root: the workers cannot read it
kill -HUP "${started[boot]}"
check "SIGHUP: the new one is shown by each" wait_until "$START_S" shown_is two $WORKERS
check "and believed" is_answered 200 --cacert "$pem/ca.pem" "$url/healthz"

# restarted WORKER : killed, and another process serves in its place.
restarted()
{
	local old
	old=$(pid_in "$run/$1.pid")
	kill -KILL "$old" && wait_until "$START_S" is_new "$run" "$1" "$old"
}
check "a worker is killed and is back" restarted gateway.2
check "with the new one" wait_until "$START_S" shown_is two gateway.2
check "as its siblings" shown_is two gateway.1 gateway.3

install_pair one two
kill -HUP "${started[boot]}"
check "SIGHUP with a wrong one is an error in the log" wait_until "$START_S" logged boot 'the certificate of before stays'
check "and changes nothing" shown_is two $WORKERS
check "whoever comes is served" is_answered 200 --cacert "$pem/ca.pem" "$url/healthz"
check "a worker is killed now" restarted gateway.1
check "and has the last good one" wait_until "$START_S" shown_is two gateway.1
install_pair one
kill -HUP "${started[boot]}"
check "SIGHUP with a good one: shown by each, also by those started anew" wait_until "$START_S" shown_is one $WORKERS
check "whoever comes is served again" is_answered 200 --cacert "$pem/ca.pem" "$url/healthz"
check "no key is in a log" not grep -q 'PRIVATE KEY' "$DIR/boot.log"
judge_stop
finish
