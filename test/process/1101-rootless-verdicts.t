#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same verdicts from a judge that an ordinary user has started.
CONCLAVE_TEST_ROOTLESS=1
. "${0%/*}/1001-verdicts.t"
