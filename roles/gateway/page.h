/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page - the files of the web page as the build made a table of them (page/embed), by name.
 */
#pragma once

#include <stddef.h>

struct page_asset {
	const char *name; /* "index.html": the one at "/" */
	const char *type;
	const char *etag; /* quoted, from the content */
	const unsigned char *bytes;
	size_t n;
};

extern const struct page_asset page_assets[];
extern const unsigned page_n_assets;
