#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same hostile submissions, whose programs have the judge's own uid here.
CONCLAVE_TEST_ROOTLESS=1
. "${0%/*}/1003-hostile.t"
