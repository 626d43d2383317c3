#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The web page in Chromium, when the judge wants tokens.
. "${0%/*}/../process/lib.sh"
. "${0%/*}/../process/judge.sh"
. "${0%/*}/browser.sh"

digest()
{
	printf %s "$1" | sha256sum | cut -d ' ' -f 1
}

printf '%s\n' "alice submit $(digest hush-alice) open=1" "carol read $(digest hush-carol)" \
	"dave submit $(digest hush-dave) rate=6/m" >"$DIR/tokens"
chmod 600 "$DIR/tokens"
# Asks as carol.
curl()
{
	command curl -H 'Authorization: Bearer hush-carol' "$@"
}

judge_start --gateway.tokens="$DIR/tokens"
browse token.mjs hush-alice hush-carol hush-dave
check "no token is in the log" not grep -q hush- "$DIR/boot.log"
judge_stop
finish
