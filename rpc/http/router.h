/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http/router - a table of routes -> handlers: exact path segments, {name} parameters, and {name*} for the rest of a path; the right 404 and 405 (with Allow). HEAD is served by GET's
 * row. Dispatch by row: a new route is a row.
 */
#pragma once

#include "rpc/http/server.h"

#define ROUTE_PARAMS_MAX 4

struct route;

struct route_match {
	struct str params
		[ROUTE_PARAMS_MAX]; /* in order of their {name}s, as sent, percent-decoding not applied */
	const struct route *route; /* the row */
	void *arg;
};

struct route {
	enum http_method method;
	const char *path; /* "/api/v1/tasks/{id}" */
	void (*handle)(const struct route_match *match, struct http_request *request);
};

/* Finds the row and calls it: 0. Or answers 404 "not_found" / 405 "method_not_allowed" as a problem document: that status. */
int router_dispatch(
	const struct route *routes, unsigned n, void *arg, struct http_request *request);
const char *http_method_name(enum http_method method); /* "GET"; "?" for HTTP_OTHER */
/* Answers with a problem document (rpc/codec.h). */
struct problem;
void http_request_problem(struct http_request *request, const struct problem *problem);
