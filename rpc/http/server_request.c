/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_request - what a handler asks of a request: views of what the library has parsed. Nothing is decoded but query parameters.
 */
#include "rpc/http/server_int.h"

#include <stdio.h>

enum http_method http_request_method(const struct http_request *request)
{
	static const enum http_method map[] = {
		[htp_method_GET] = HTTP_GET,
		[htp_method_HEAD] = HTTP_HEAD,
		[htp_method_POST] = HTTP_POST,
		[htp_method_PUT] = HTTP_PUT,
		[htp_method_DELETE] = HTTP_DELETE,
		[htp_method_OPTIONS] = HTTP_OPTIONS,
	};
	htp_method method = request->ev->method;

	if (method == htp_method_GET)
		return HTTP_GET;
	return method < (htp_method)ARRAY_SIZE(map) && map[method] ? map[method] : HTTP_OTHER;
}

const char *http_request_method_name(const struct http_request *request)
{
	const char *name = htparser_get_methodstr_m(request->ev->method);

	return name ? name : "?";
}

struct str http_request_path(const struct http_request *request)
{
	const evhtp_uri_t *uri = request->ev->uri;

	return uri && uri->path && uri->path->full ? str_from(uri->path->full) : STR("");
}

struct str http_request_query(const struct http_request *request)
{
	const evhtp_uri_t *uri = request->ev->uri;

	return uri ? str_from((const char *)uri->query_raw) : STR_NULL;
}

struct str http_request_header(const struct http_request *request, const char *name)
{
	return str_from(evhtp_header_find(request->ev->headers_in, name));
}

struct str http_request_body(const struct http_request *request)
{
	return request->body_len ? (struct str){request->body, request->body_len} : STR("");
}

void http_request_drop_body(struct http_request *request)
{
	body_drop(container_of(request, struct conn, request));
}

void http_request_drop_headers(struct http_request *request)
{
	evhtp_headers_t *headers = request->ev->headers_in;

	while (headers->tqh_first)
		evhtp_header_rm_and_free(headers, headers->tqh_first);
}

void *http_request_body_arg(const struct http_request *request)
{
	return request->piece ? request->piece_arg : NULL;
}

const char *http_request_peer(const struct http_request *request)
{
	return container_of(request, struct conn, request)->peer;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Percent-decodes s into out; false when malformed, too long or with a NUL. */
static bool decode_param(struct str s, char *out, size_t cap)
{
	size_t n = 0;

	for (size_t i = 0; i < s.n; i++) {
		int c = s.p[i] == '+' ? ' ' : (unsigned char)s.p[i];

		if (c == '%') {
			int high = i + 2 < s.n ? hex_digit(s.p[i + 1]) : -1;
			int low = i + 2 < s.n ? hex_digit(s.p[i + 2]) : -1;

			if (high < 0 || low < 0)
				return false;
			c = high * 16 + low;
			i += 2;
		}
		if (!c || n + 1 >= cap)
			return false;
		out[n++] = (char)c;
	}
	out[n] = '\0';
	return true;
}

bool http_request_param(const struct http_request *request, const char *name, char *out, size_t cap)
{
	struct str rest = http_request_query(request), value, key;

	while (str_cut(&rest, '&', &value)) {
		if (!str_cut(&value, '=', &key) || !str_is(key, name))
			continue;
		return decode_param(value.p ? value : STR(""), out, cap);
	}
	return false;
}

void http_request_add_header(struct http_request *request, const char *name, const char *value)
{
	struct buf *extra = &request->extra;
	size_t start;

	buf_addf(extra, "%s: ", name);
	start = extra->len;
	buf_addf(extra, "%s", value);
	for (size_t i = start; i < extra->len; i++) {
		if ((unsigned char)extra->data[i] < ' ')
			extra->data[i] = ' '; /* a value never starts a new header */
	}
	buf_add_str(extra, STR("\r\n"));
}

void http_request_on_gone(struct http_request *request, http_gone_fn *fn, void *arg)
{
	request->gone = fn;
	request->gone_arg = arg;
}

const char *http_status_text(int status)
{
	static const struct {
		int status;
		const char *text;
	} rows[] = {
		{200, "OK"},
		{201, "Created"},
		{202, "Accepted"},
		{204, "No Content"},
		{206, "Partial Content"},
		{301, "Moved Permanently"},
		{302, "Found"},
		{303, "See Other"},
		{304, "Not Modified"},
		{307, "Temporary Redirect"},
		{308, "Permanent Redirect"},
		{400, "Bad Request"},
		{401, "Unauthorized"},
		{403, "Forbidden"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{406, "Not Acceptable"},
		{408, "Request Timeout"},
		{409, "Conflict"},
		{410, "Gone"},
		{411, "Length Required"},
		{412, "Precondition Failed"},
		{413, "Content Too Large"},
		{414, "URI Too Long"},
		{415, "Unsupported Media Type"},
		{416, "Range Not Satisfiable"},
		{421, "Misdirected Request"},
		{422, "Unprocessable Content"},
		{429, "Too Many Requests"},
		{431, "Request Header Fields Too Large"},
		{500, "Internal Server Error"},
		{501, "Not Implemented"},
		{502, "Bad Gateway"},
		{503, "Service Unavailable"},
		{504, "Gateway Timeout"},
		{505, "HTTP Version Not Supported"},
		{507, "Insufficient Storage"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].status == status)
			return rows[i].text;
	}
	return "Status";
}
