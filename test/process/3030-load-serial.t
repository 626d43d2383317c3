#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The acceptance mix in small: all languages and hostile submissions, 16 clients at the same time. None lost, none double, none blamed
# on the judge, each with the verdict it deserves. (In large: bench/load URL --clients 64 --count 10000 --mix bench/mixes/all.jsonl)
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

CLIENTS=16 COUNT=200
mix=$SOURCE/bench/mixes/all.jsonl
grep -v '^#' "$mix" >"$DIR/mix"

judge_start
languages=$(jq -r '.task.language // empty' "$DIR/mix" | sort -u)
check "the mix has all languages there are" \
	[ "$languages" = "$(basename -s .ini "$SOURCE"/cfg/languages/*.ini | sort)" ]
check "each of its submissions has an expected verdict" jq -se 'all(.expect != null)' "$DIR/mix"
# shellcheck disable=SC2086
check "the judge offers them all" wait_until "$START_S" offers $languages
load_start "$url" --clients "$CLIENTS" --count "$COUNT" --mix "$mix" --ids "$DIR/ids" --deadline 300
check "the clients are answered" load_ended 400
load_reap
grep -E '^(clients|accepted|attempts|lost)' "$DIR/load.log" | diag
check "bench-load says: none lost, none double, none unexpected" [ "$status" = 0 ]
check "and counted: no system_error" grep -qx 'lost 0  double 0  unexpected 0  system_error 0' "$DIR/load.log"
check "the clients hold $COUNT ids, all different" [ "$(sort -u "$DIR/ids" | wc -l)" = "$COUNT" ]
api "tasks?limit=1000" >"$answer"
check "the judge has exactly those" [ "$(jq -r '.tasks[].id' "$answer" | sort)" = "$(sort "$DIR/ids")" ]
check "each was executed once" shows 'all(.tasks[]; .attempt == 1 and .retries == 0)'

judge_stop
finish
