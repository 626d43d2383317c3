/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http/router - which row of a table a request belongs to.
 *
 * Paths are compared segment by segment, exactly, as sent: "/tasks" is neither "/tasks/" nor "/tasksX", and "%2e" is not a
 * dot. A {name} takes one whole segment that is not empty, a {name*} at the end of a row all that is left, if there is something. Rows are tried in order, so a literal row stands before the
 * {name} it would also match. If some row has the path but none the method, the answer is 405 with every method that would do.
 */
#include "rpc/http/router.h"

#include "reactor/base/buf.h"
#include "rpc/codec.h"

const char *http_method_name(enum http_method method)
{
	static const char *const names[] = {
		[HTTP_GET] = "GET",
		[HTTP_HEAD] = "HEAD",
		[HTTP_POST] = "POST",
		[HTTP_PUT] = "PUT",
		[HTTP_DELETE] = "DELETE",
		[HTTP_OPTIONS] = "OPTIONS",
		[HTTP_OTHER] = "?",
	};

	return names[method];
}

static bool segment_is_param(struct str segment)
{
	return segment.n >= 2 && segment.p[0] == '{' && segment.p[segment.n - 1] == '}';
}

static bool segment_is_rest(struct str segment)
{
	return segment_is_param(segment) && segment.p[segment.n - 2] == '*';
}

static bool path_matches(const char *pattern, struct str path, struct route_match *match)
{
	struct str rest = str_from(pattern), want, have;
	unsigned n = 0;

	while (str_cut(&rest, '/', &want)) {
		CHECK(n < ROUTE_PARAMS_MAX);
		if (segment_is_rest(want)) {
			CHECK(!rest.p);
			match->params[n] = path;
			return path.n > 0;
		}
		if (!str_cut(&path, '/', &have))
			return false;
		if (segment_is_param(want)) {
			if (!have.n)
				return false;
			match->params[n++] = have;
		} else if (!str_eq(want, have)) {
			return false;
		}
	}
	return !path.p;
}

static void answer_wrong_method(struct http_request *request, unsigned allowed)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct problem problem = {0};

	if (allowed & 1u << HTTP_GET)
		allowed |= 1u << HTTP_HEAD;
	for (unsigned method = HTTP_GET; method < HTTP_OTHER; method++) {
		if (allowed & 1u << method)
			buf_addf(&text, "%s%s", text.len ? ", " : "", http_method_name(method));
	}
	http_request_add_header(request, "Allow", text.data);
	problem_set(&problem, 405, "method_not_allowed", "", "allowed here: %s", text.data);
	http_request_problem(request, &problem);
}

int router_dispatch(const struct route *routes, unsigned n, void *arg, struct http_request *request)
{
	enum http_method method = http_request_method(request);
	struct problem problem = {0};
	unsigned allowed = 0;

	if (method == HTTP_HEAD)
		method = HTTP_GET;
	for (unsigned i = 0; i < n; i++) {
		struct route_match match = {.route = &routes[i], .arg = arg};

		if (!path_matches(routes[i].path, http_request_path(request), &match))
			continue;
		if (routes[i].method == method) {
			routes[i].handle(&match, request);
			return 0;
		}
		allowed |= 1u << routes[i].method;
	}
	if (allowed) {
		answer_wrong_method(request, allowed);
		return 405;
	}
	problem_set(&problem, 404, "not_found", "", "nothing is at this path");
	http_request_problem(request, &problem);
	return 404;
}

void http_request_problem(struct http_request *request, const struct problem *problem)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;

	problem_write(problem, &text);
	http_request_reply(request, problem->status, "application/problem+json", buf_str(&text));
}
