#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tokens: a file that is wrong stops the start and says every reason; with tokens a gateway serves beyond loopback; SIGHUP reads the
# file again, and a wrong one leaves those of before; no token is ever in a log. And what the gateway says of itself.
. "${0%/*}/lib.sh"

tokens=$DIR/tokens
ADMIN=hush-admin-0001 ALICE=hush-alice-0002 CAROL=hush-carol-0003

digest()
{
	printf %s "$1" | sha256sum | cut -d ' ' -f 1
}

# is_answered STATUS TOKEN CURL-ARGUMENT... PATH : TOKEN may be empty; the body is in a file.
is_answered()
{
	local want=$1 token=$2 code
	shift 2
	code=$(curl -sS --max-time 30 -o "$DIR/body" -D "$DIR/head" -w '%{http_code}' ${token:+-H "Authorization: Bearer $token"} \
		"${@:1:$#-1}" "http://127.0.0.1:$gateway_port${*: -1}") || code="curl $?, status $code"
	[ "$code" = "$want" ] && return
	echo "status $code"
	cat "$DIR/head" "$DIR/body"
	return 1
}

says()
{
	jq -e "$1" "$DIR/body"
}

# --- a file that is wrong --------------------------------------------------------------------------------------
printf 'root owner %s\nalice submit\n' "$(digest $ADMIN)" >"$tokens"
chmod 600 "$tokens"
free_port && gateway_port=$port
free_port && judicator_port=$port
printf '0123456789abcdef0123456789abcdef' >"$DIR/secret"
chmod 600 "$DIR/secret"
[ "$(id -u)" = 0 ] && chown nobody "$DIR/secret" "$tokens"
alone=(--dir "$DIR/alone" --gateway.addresses="0.0.0.0:$gateway_port" --rpc.secret_file="$DIR/secret" --boot.user=nobody
	--judicator.addresses="127.0.0.1:$judicator_port")
[ "$(id -u)" = 0 ] || alone=("${alone[@]/--boot.user=nobody/--boot.user=$(id -un)}")
"$BIN/gateway" --check "${alone[@]}" --gateway.tokens=tokens 2>"$DIR/relative.log"
check "a relative path is refused" logged relative 'tokens: is not an absolute path'
start wrong "$BIN/gateway" "${alone[@]}" --gateway.tokens="$tokens"
check "a wrong file is told, its first line" wait_until 30 logged wrong "$tokens:1: expected the roles"
check "and its second" wait_until 30 logged wrong "$tokens:2: expected the token's SHA-256"
stop wrong

# --- tokens ------------------------------------------------------------------------------------------------------
printf 'root admin %s\nalice submit %s open=1 # a pupil\n' "$(digest $ADMIN)" "$(digest $ALICE)" >"$tokens"
start boot "$BIN/judicator" --standalone --dir "$DIR/state" --judicator.address="127.0.0.1:$judicator_port" \
	--gateway.addresses="0.0.0.0:$gateway_port" --gateway.hosts="127.0.0.1:$gateway_port" --gateway.tokens="$tokens" \
	--executor.box=none --log.level=debug
check "with tokens it serves beyond loopback" wait_until 60 is_answered 200 '' /healthz || finish
json=(-H 'Content-Type: application/json')
good='{"language": "c", "source": "int main(void) { for (;;); }", "limits": {"cpu_ms": 60000}}'
check "nobody is refused" is_answered 401 '' /api/v1/tasks
check "with a problem" says '.code == "token_unknown"'
check "and told how to come" grep -qi '^www-authenticate: bearer' "$DIR/head"
check "a wrong token is refused" is_answered 401 "x$ALICE" /api/v1/tasks
check "a right one submits" is_answered 201 $ALICE "${json[@]}" -d "$good" /api/v1/tasks
check "as its user" says '.user == "alice"'
id=$(jq -r .id "$DIR/body")
check "not as another" is_answered 403 $ALICE "${json[@]}" -d '{"user": "bob", "language": "c", "source": ""}' /api/v1/tasks
check "with a pointer" says '.code == "user_forbidden" and .pointer == "/user"'
check "not more than it may have open" is_answered 429 $ALICE "${json[@]}" -d "$good" /api/v1/tasks
check "which has a code" says '.code == "too_many_open"'
check "and a time to come again" grep -qi '^retry-after: [0-9]' "$DIR/head"
check "it does not see the counters" is_answered 403 $ALICE /metrics
check "it cancels its own" is_answered 200 $ALICE -X DELETE "/api/v1/tasks/$id"
check "admin sees it" is_answered 200 $ADMIN "/api/v1/tasks/$id"

# --- SIGHUP --------------------------------------------------------------------------------------------------------
echo "carol read $(digest $CAROL) rate=2/h" >>"$tokens"
check "a new token is not known yet" is_answered 401 $CAROL "/api/v1/tasks/$id"
kill -HUP "${started[boot]}"
check "after SIGHUP it is" wait_until 30 is_answered 200 $CAROL "/api/v1/tasks/$id"
check "it reads" is_answered 200 $CAROL "/api/v1/tasks/$id"
check "as often as its rate allows" is_answered 429 $CAROL "/api/v1/tasks/$id"
check "which has a code" says '.code == "rate_exceeded"'
echo 'dave read 12' >>"$tokens"
kill -HUP "${started[boot]}"
check "a wrong file is told" wait_until 30 logged boot "$tokens:4: expected the token's SHA-256"
check "and those of before stay" is_answered 200 $ADMIN "/api/v1/tasks/$id"

# --- what the gateway says of itself --------------------------------------------------------------------------------
check "the counters" is_answered 200 $ADMIN /metrics
check "count requests" grep -q '^conclave_gateway_requests_total{method="POST",route="/api/v1/tasks",status="201"} 1$' "$DIR/body"
check "ask the judicator" grep -q '^conclave_judicator_up 1$' "$DIR/body"
check "each sample is of Prometheus's grammar" \
	not grep -vE '^(# (HELP|TYPE) |[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [-+0-9.e]+$)' "$DIR/body"
check "the description needs no token" is_answered 200 '' /openapi.json
check "is one" says '.openapi == "3.1.0" and (.paths | has("/api/v1/tasks/{id}")) and .components.schemas.limits.properties.cpu_ms'
stop boot
check "it stops with status 0" [ "$status" = 0 ]
check "no token is in a log" not grep -rq hush- "$DIR"/boot.log "$DIR"/wrong.log
finish
