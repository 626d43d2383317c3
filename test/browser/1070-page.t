#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The web page in Chromium, against a real judge.
. "${0%/*}/../process/lib.sh"
. "${0%/*}/../process/judge.sh"
. "${0%/*}/browser.sh"
slots=1
judge_start
browse page.mjs "$run"
judge_stop
finish
