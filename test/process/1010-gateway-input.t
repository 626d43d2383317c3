#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a careless or hostile client sends to the gateway: each gets the problem document that says what is wrong, and the
# gateway goes on. No executor is needed to say no, so none is waited for.
. "${0%/*}/lib.sh"

ID=0123456789abcdef01234567
json=(-H 'Content-Type: application/json')
state=$DIR/state

# request CURL-ARGUMENT... PATH : $code is the status; headers and body in files.
request()
{
	local path=${*: -1}
	code=$(curl -sS --max-time 30 -o "$DIR/body" -D "$DIR/head" -w '%{http_code}' "${@:1:$#-1}" \
		"http://127.0.0.1:$gateway_port$path") || code="curl $?, status $code"
}

# refuses STATUS CODE CURL-ARGUMENT... PATH
refuses()
{
	local status=$1 word=$2
	shift 2
	request "$@"
	[ "$code" = "$status" ] && grep -qi '^content-type: application/problem+json' "$DIR/head" &&
		jq -e --arg code "$word" --argjson status "$status" \
			'.code == $code and .status == $status and (.detail | length > 0) and has("pointer")' "$DIR/body" && return
	echo "status $code"
	cat "$DIR/head" "$DIR/body"
	return 1
}

# answers STATUS FILTER CURL-ARGUMENT... PATH
answers()
{
	local status=$1 filter=$2
	shift 2
	request "$@"
	[ "$code" = "$status" ] && jq -e "$filter" "$DIR/body" && return
	echo "status $code"
	cat "$DIR/head" "$DIR/body"
	return 1
}

is_healthy()
{
	request /healthz
	[ "$code" = 200 ]
}

# says_405 METHOD : with what would be allowed.
says_405()
{
	refuses 405 method_not_allowed -X "$1" /api/v1/tasks && grep -qi '^allow: GET, HEAD, POST' "$DIR/head"
}

says_retry_later()
{
	refuses 503 "$@" && grep -qi '^retry-after: [0-9]' "$DIR/head"
}

judicator_and_gateway()
{
	standalone boot "$state" --gateway.body_max=64KiB --log.level=info
}

judicator_and_gateway
check "the gateway finds its judicator" wait_until 60 is_healthy || finish

# --- the body ------------------------------------------------------------------------------------------------
while IFS='|' read -r description status word pointer body; do
	printf '%b' "$body" >"$DIR/in"
	check "POST: $description" refuses "$status" "$word" "${json[@]}" --data-binary "@$DIR/in" /api/v1/tasks
	check "POST: $description: pointer \"$pointer\"" [ "$(jq -r .pointer "$DIR/body")" = "$pointer" ]
done <<'ROWS'
no body|400|json_syntax||
not JSON|400|json_syntax||language=c&source=x
cut short|400|json_syntax||{"language": "c", "source": "
raw bytes that are not UTF-8|400|json_utf8||{"language": "c", "source": "\xff\xfe"}
a key twice|400|json_duplicate_key||{"language": "c", "language": "c", "source": ""}
not an object|400|wrong_type||["c"]
a field of a wrong type|400|wrong_type|/source|{"language": "c", "source": 7}
an unknown field|400|unknown_field|/sauce|{"language": "c", "source": "", "sauce": ""}
an unknown field deep inside|400|unknown_field|/cases/0/out|{"language": "c", "source": "", "cases": [{"out": ""}]}
an unknown language|422|unknown_language|/language|{"language": "klingon", "source": ""}
a limit of zero|422|out_of_range|/limits/cpu_ms|{"language": "c", "source": "", "limits": {"cpu_ms": 0}}
a limit over the maximum|422|out_of_range|/limits/wall_ms|{"language": "c", "source": "", "limits": {"wall_ms": 300001}}
a limit that is no whole number|400|wrong_type|/limits/cpu_ms|{"language": "c", "source": "", "limits": {"cpu_ms": 1.5}}
an empty command|422|empty_command|/execute/command|{"execute": {"command": []}}
ROWS
check "POST: no source" refuses 422 missing_source "${json[@]}" -d '{"language": "c"}' /api/v1/tasks
head -c 70000 /dev/zero | tr '\0' ' ' >"$DIR/large"
check "POST: a body over the limit" refuses 413 body_too_large "${json[@]}" --data-binary "@$DIR/large" /api/v1/tasks
check "POST: a chunked body over the limit" refuses 413 body_too_large "${json[@]}" -H 'Transfer-Encoding: chunked' \
	--data-binary "@$DIR/large" /api/v1/tasks
printf '[%.0s' {1..2000} >"$DIR/deep"
check "POST: two thousand arrays inside each other" refuses 400 json_depth "${json[@]}" --data-binary "@$DIR/deep" /api/v1/tasks

# --- headers ----------------------------------------------------------------------------------------------------
good='{"language": "c", "source": "int main(void) { return 0; }"}'
check "no content type" refuses 415 unsupported_type -H 'Content-Type:' -d "$good" /api/v1/tasks
check "a form" refuses 415 unsupported_type -d "$good" /api/v1/tasks
check "a compressed body" refuses 415 unsupported_encoding "${json[@]}" -H 'Content-Encoding: gzip' -d "$good" /api/v1/tasks
check "another site's name" refuses 400 bad_host -H 'Host: evil.example' /api/v1/tasks
check "another port" refuses 400 bad_host -H 'Host: 127.0.0.1:1' /api/v1/tasks
check "localhost is fine" answers 200 .tasks -H "Host: localhost:$gateway_port" /api/v1/tasks

# --- paths, methods, parameters -----------------------------------------------------------------------------------
check "an unknown path" refuses 404 not_found /api/v1/nothing
check "an unknown task" refuses 404 task_unknown "/api/v1/tasks/$ID"
check "an unknown task, waiting" refuses 404 task_unknown "/api/v1/tasks/$ID?wait=20000"
check "cancel of an unknown task" refuses 404 task_unknown -X DELETE "/api/v1/tasks/$ID"
check "a short id" refuses 400 bad_id /api/v1/tasks/12
check "an id that climbs" refuses 400 bad_id --path-as-is /api/v1/tasks/..%2f..%2fetc%2fpasswd
check "an id in upper case" refuses 400 bad_id "/api/v1/tasks/${ID^^}"
for query in 'wait=0' 'wait=300001' 'wait=soon' 'wait='; do
	check "$query" refuses 400 bad_parameter "/api/v1/tasks/$ID?$query"
done
for query in 'limit=0' 'limit=1001' 'order=up' 'status=odd' 'after=x' 'user=%ff'; do
	check "$query" refuses 400 bad_parameter "/api/v1/tasks?$query"
done
check "an unknown parameter" refuses 400 unknown_parameter "/api/v1/tasks?weight=1"
check "a parameter twice" refuses 400 repeated_parameter "/api/v1/tasks?limit=1&limit=2"
for method in PUT OPTIONS PATCH; do
	check "$method is 405" says_405 "$method"
done

# --- what is right is right, after all that ---------------------------------------------------------------------------
check "a good submission is taken" answers 201 '.id | length == 24' "${json[@]}" -H 'Idempotency-Key: k' -d "$good" /api/v1/tasks
id=$(jq -r .id "$DIR/body")
check "where it says it is" grep -qi "^location: /api/v1/tasks/$id" "$DIR/head"
check "repeated with its key it is the same task" answers 200 ".id == \"$id\"" "${json[@]}" -H 'Idempotency-Key: k' -d "$good" \
	/api/v1/tasks
check "another one with that key is a conflict" refuses 409 task_conflict "${json[@]}" -H 'Idempotency-Key: k' \
	-d '{"language": "c", "source": "int x;"}' /api/v1/tasks
check "the task can be read once it is done" answers 200 .done "/api/v1/tasks/$id?wait=30000"
check "a task that is done cannot be cancelled" refuses 409 task_done -X DELETE "/api/v1/tasks/$id"
check "only one task was added" answers 200 '.tasks | length == 1' /api/v1/tasks
check "there is a page" request / && check "and it names the interface" grep -qF 'href="openapi.json"' "$DIR/body"

# --- no judicator -----------------------------------------------------------------------------------------------------
stop boot
check "the judge stops with status 0" [ "$status" = 0 ]
cp -p "$state/secret" "$DIR/secret" # with its owner, to whom services drop
free_port && gateway_port=$port
start gateway "$BIN/gateway" --dir "$DIR/alone" --gateway.addresses="127.0.0.1:$gateway_port" \
	--judicator.addresses="127.0.0.1:$judicator_port" --rpc.secret_file="$DIR/secret"
says_unhealthy()
{
	request /healthz
	[ "$code" = 503 ]
}
check "a gateway without judicators serves" wait_until 30 says_unhealthy
check "and is not healthy" says_retry_later no_judicator /healthz
check "it tells a client to come again" says_retry_later no_judicator "${json[@]}" -d "$good" /api/v1/tasks
stop gateway
check "it stops with status 0" [ "$status" = 0 ]
open=(--dir "$DIR/open" --gateway.addresses="127.0.0.1:1, 0.0.0.0:$gateway_port" --rpc.secret_file="$DIR/secret"
	--judicator.addresses="127.0.0.1:$judicator_port")
start open "$BIN/gateway" "${open[@]}"
reap open
check "beyond loopback it does not start" [ "$status" = 2 ]
check "and says which address, and why" logged open "0.0.0.0:$gateway_port: beyond loopback a gateway needs tokens"
check "nothing was made for it" [ ! -e "$DIR/open" ]
"$BIN/gateway" --check "${open[@]}" 2>"$DIR/checked.log"
check "--check says so too" [ $? = 2 ]
check "in the same words" logged checked 'beyond loopback a gateway needs tokens'
"$BIN/judicator" --check --standalone --gateway.addresses=0.0.0.0:1 2>"$DIR/standalone.log"
check "and of --standalone" [ $? = 2 ]
check "which has a gateway" logged standalone 'beyond loopback a gateway needs tokens'
check "but a judicator alone has none" "$BIN/judicator" --check --dir "$DIR/open"
finish
