/* SPDX-License-Identifier: Apache-2.0 */
/*
 * messages - the tables of messages.def and methods.def, unfolded.
 *
 * Every message is one const array of fields and one const record; every method one row. Nothing here is
 * written by hand twice: the C structure (messages.h), the decoder's table, the encoder's table and methods.md
 * come from the same rows, so they cannot disagree. A row that names an unknown message does not link.
 */
#include "rpc/messages.h"

#include <inttypes.h>
#include <limits.h>

#include "reactor/base/clock.h"

/* Prose is for the documentation only and comes from the second unfolding below. */
#define MESSAGE(name, prose) static const struct codec_field name##_fields[] = {
#define F(message, kind, field, min, max, flags, prose)                                            \
	{#field, CODEC_##kind, offsetof(struct msg_##message, field), min, max, flags, NULL, prose},
#define R(message, kind, field, nested, min, max, flags, prose)                                    \
	{#field, CODEC_##kind, offsetof(struct msg_##message, field), min, max, flags,             \
		&msg_##nested##_record, prose},
#define END(name)                                                                                  \
	}                                                                                          \
	;                                                                                          \
	const struct codec_record msg_##name##_record = {                                          \
		#name, sizeof(struct msg_##name), name##_fields, ARRAY_SIZE(name##_fields)};
#include "rpc/messages.def"
#undef MESSAGE
#undef F
#undef R
#undef END

#define METHOD(name, request, reply, timeout_ms, prose)                                            \
	[RPC_##name] = {#name, &msg_##request##_record, &msg_##reply##_record,                     \
		(timeout_ms)*US_PER_MS, prose},
const struct rpc_method_row rpc_methods[RPC_METHOD_N] = {
#include "rpc/methods.def"
};
#undef METHOD

struct message_row {
	const struct codec_record *record;
	const char *prose;
};

static const struct message_row messages[] = {
#define MESSAGE(name, prose) {&msg_##name##_record, prose},
#define F(message, kind, field, min, max, flags, prose)
#define R(message, kind, field, nested, min, max, flags, prose)
#define END(name)
#include "rpc/messages.def"
#undef MESSAGE
#undef F
#undef R
#undef END
};

int rpc_method_find(struct str name)
{
	for (int i = 0; i < RPC_METHOD_N; i++) {
		if (str_is(name, rpc_methods[i].name))
			return i;
	}
	return -1;
}

bool rpc_method_carries(enum rpc_method method)
{
	return method == RPC_blob_get || method == RPC_blob_put;
}

static const char *prose_of(const struct codec_record *record)
{
	for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
		if (messages[i].record == record)
			return messages[i].prose;
	}
	return "";
}

static void doc_message(const struct codec_record *record, struct buf *out)
{
	const char *prose = prose_of(record);

	if (*prose)
		buf_addf(out, "%s\n\n", prose);
	codec_doc(record, out);
	buf_add_char(out, '\n');
}

static void doc_method(const struct rpc_method_row *row, struct buf *out)
{
	buf_addf(out, "## %s\n\n%s\n\n", row->name, row->prose);
	buf_addf(out,
		"`POST /rpc/%s`, answered within %" PRId64
		" ms (plus `wait_ms` where there is one).\n\n",
		row->name, row->timeout_us / US_PER_MS);
	buf_addf(out, "Request `%s`:\n\n", row->request->name);
	doc_message(row->request, out);
	buf_addf(out, "Reply `%s`:\n\n", row->reply->name);
	doc_message(row->reply, out);
}

static bool is_part(const struct codec_record *record)
{
	for (int i = 0; i < RPC_METHOD_N; i++) {
		if (rpc_methods[i].request == record || rpc_methods[i].reply == record)
			return false;
	}
	return true;
}

void rpc_methods_doc(struct buf *out)
{
	buf_add_str(
		out, STR("<!-- Generated from rpc/methods.def and rpc/messages.def: do not edit.\n"
			 "     `test_messages --write` writes it anew. -->\n"
			 "# Methods between roles\n\n"
			 "JSON over persistent HTTP/1.1: one POST a call, every method is safe to "
			 "repeat. Requests carry\n"
			 "`Authorization: Bearer SECRET`. A refusal is a problem document (RFC "
			 "9457) with a stable `code`;\n"
			 "503 is temporary, 4xx is final.\n\n"));
	for (int i = 0; i < RPC_METHOD_N; i++)
		doc_method(&rpc_methods[i], out);
	buf_add_str(out, STR("# Parts of messages\n\n"));
	for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
		if (!is_part(messages[i].record))
			continue;
		buf_addf(out, "## %s\n\n", messages[i].record->name);
		doc_message(messages[i].record, out);
	}
	/* One newline at the end of the file, not two. */
	if (out->len && out->data[out->len - 1] == '\n')
		out->len--;
	out->data[out->len] = '\0';
}
