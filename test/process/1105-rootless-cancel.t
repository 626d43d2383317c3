#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tasks of an ordinary user's judge are cancelled in every state; what was used by then is told, though no control group has counted it.
CONCLAVE_TEST_ROOTLESS=1
. "${0%/*}/1005-cancel.t"
