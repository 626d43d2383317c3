/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http/address - parsed here and not by evutil_parse_sockaddr_port(), which refuses port 0 and takes a missing port.
 */
#include "rpc/http/address.h"

#include <arpa/inet.h>

#include "reactor/base/str.h"

static bool split(const char *text, struct str *host, struct str *port, bool *is_v6)
{
	const char *colon = strrchr(text, ':');

	if (!colon)
		return false;
	*host = (struct str){text, (size_t)(colon - text)};
	*port = str_from(colon + 1);
	*is_v6 = host->n >= 2 && text[0] == '[' && colon[-1] == ']';
	if (*is_v6)
		*host = (struct str){text + 1, host->n - 2};
	return port->n > 0;
}

bool http_address_parse(const char *text, struct http_address *out)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&out->sockaddr;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&out->sockaddr;
	struct str host, port;
	int64_t number;
	bool is_v6;

	*out = (struct http_address){0};
	if (!split(text, &host, &port, &is_v6) || host.n >= sizeof(out->host))
		return false;
	if (!str_to_i64(port, &number) || number < 0 || number > 65535)
		return false;
	memcpy(out->host, host.p, host.n);
	out->port = (unsigned)number;
	out->len = is_v6 ? sizeof(*in6) : sizeof(*in);
	out->sockaddr.ss_family = is_v6 ? AF_INET6 : AF_INET;
	if (is_v6)
		in6->sin6_port = htons((uint16_t)number);
	else
		in->sin_port = htons((uint16_t)number);
	return inet_pton(out->sockaddr.ss_family, out->host,
		       is_v6 ? (void *)&in6->sin6_addr : (void *)&in->sin_addr) == 1;
}
