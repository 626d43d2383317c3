#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same limits, kept and measured without control groups.
CONCLAVE_TEST_ROOTLESS=1
. "${0%/*}/1002-limits-serial.t"
