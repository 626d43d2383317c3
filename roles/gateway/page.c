/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page - serves the web page: "/" is page/index.html, "/page/NAME" any other file of that folder. They are compiled in, so they are those of
 * this gateway's version and need no directory.
 *
 * A browser keeps them but asks each time (no-cache): with the ETag of what it has, the answer is 304 and a few bytes. Names that
 * carry a version were rejected: a page of the last version, left open, would ask the new gateway for names it does not have.
 *
 * What the page shows was written by strangers. It never makes markup of it; should it ever, the policy below leaves such markup nothing to
 * do: no script but ours, no style but ours, no request elsewhere, no form, no frame around us.
 */
#include "roles/gateway/page.h"

#include "roles/gateway/gateway_int.h"

static const struct {
	const char *name, *value;
} headers[] = {
	{"Cache-Control", "no-cache"},
	{"Content-Security-Policy",
		"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
		"img-src 'self' data:; base-uri 'none'; form-action 'none'; "
		"frame-ancestors 'none'"},
	{"Cross-Origin-Resource-Policy", "same-origin"},
	{"Referrer-Policy", "no-referrer"},
	{"X-Content-Type-Options", "nosniff"},
};

static const struct page_asset *find(struct str name)
{
	for (unsigned i = 0; i < page_n_assets; i++) {
		if (str_is(name, page_assets[i].name))
			return &page_assets[i];
	}
	return NULL;
}

/* If-None-Match: a list of tags, perhaps weak ones, or "*". */
static bool has_it(const struct http_request *http, const struct page_asset *asset)
{
	struct str rest = http_request_header(http, "If-None-Match"), tag;

	while (str_cut(&rest, ',', &tag)) {
		tag = str_trim(tag);
		if (tag.n > 2 && tag.p[0] == 'W' && tag.p[1] == '/')
			tag = (struct str){tag.p + 2, tag.n - 2};
		if (str_is(tag, "*") || str_is(tag, asset->etag))
			return true;
	}
	return false;
}

static void answer(
	const struct route_match *match, struct http_request *http, const struct page_asset *asset)
{
	struct visit *v = visit_new(match->arg, http);

	if (!v)
		return;
	if (!asset) {
		visit_fail(v, 404, "not_found", "The page has no such file; it is at /.");
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(headers); i++)
		http_request_add_header(http, headers[i].name, headers[i].value);
	http_request_add_header(http, "ETag", asset->etag);
	if (has_it(http, asset))
		visit_reply(v, 304, NULL, STR(""));
	else
		visit_reply(
			v, 200, asset->type, (struct str){(const char *)asset->bytes, asset->n});
}

void page_on_root(const struct route_match *match, struct http_request *http)
{
	answer(match, http, find(STR("index.html")));
}

void page_on_file(const struct route_match *match, struct http_request *http)
{
	answer(match, http, find(match->params[0]));
}
