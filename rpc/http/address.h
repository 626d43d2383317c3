/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http/address - "IP:PORT" and "[IPV6]:PORT". Names are refused: resolving them would block the loop.
 */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

struct http_address {
	struct sockaddr_storage sockaddr;
	socklen_t len;
	char host[INET6_ADDRSTRLEN]; /* without brackets */
	unsigned port;
};

/* False when text is neither form, or the port is not 0..65535. */
bool http_address_parse(const char *text, struct http_address *out);
