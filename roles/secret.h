/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secret - the shared secret of judicators, executors and gateways: a file that boot makes at its first start.
 */
#pragma once

struct role_env;
struct transport;

/* The http transport with the secret of rpc.secret_file (default DIR/secret), or NULL after logging what to do. */
struct transport *secret_transport(const struct role_env *env);
