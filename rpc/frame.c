/* SPDX-License-Identifier: Apache-2.0 */
/* The NUL is found by looking at the JSON text only, which is short where bytes go along. */
#include "rpc/frame.h"

void frame_add(struct buf *body, struct str bytes)
{
	if (!bytes.n)
		return;
	buf_add_char(body, '\0');
	buf_add_str(body, bytes);
}

void frame_split(struct str body, struct str *json, struct str *bytes)
{
	const char *nul = body.n ? memchr(body.p, '\0', body.n) : NULL;

	*json = body;
	*bytes = STR_NULL;
	if (!nul)
		return;
	json->n = (size_t)(nul - body.p);
	*bytes = (struct str){nul + 1, body.n - json->n - 1};
}
