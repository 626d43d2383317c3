/* SPDX-License-Identifier: Apache-2.0 */
/*
 * messages - the structures of messages.def (struct msg_NAME), their records (msg_NAME_record), and the methods' rows.
 */
#pragma once

#include "rpc/blob.h"
#include "rpc/codec.h"

#define MSG_C_BOOL bool
#define MSG_C_I64 int64_t
#define MSG_C_TEXT struct str
#define MSG_C_BYTES struct str
#define MSG_C_ID struct id
#define MSG_C_JSON struct codec_json
#define MSG_C_TEXTS struct codec_list
#define MSG_C_LIST struct codec_list
#define MSG_C_RECORD void *

#define MESSAGE(name, prose) struct msg_##name {
#define F(message, kind, field, min, max, flags, prose) MSG_C_##kind field;
#define R(message, kind, field, nested, min, max, flags, prose) MSG_C_##kind field;
#define END(name)                                                                                  \
	}                                                                                          \
	;                                                                                          \
	extern const struct codec_record msg_##name##_record;
#include "rpc/messages.def"
#undef MESSAGE
#undef F
#undef R
#undef END

enum rpc_method {
#define METHOD(name, request, reply, timeout_ms, prose) RPC_##name,
#include "rpc/methods.def"
#undef METHOD
	RPC_METHOD_N
};

struct rpc_method_row {
	const char *name;
	const struct codec_record *request, *reply;
	int64_t timeout_us;
	const char *prose;
};

extern const struct rpc_method_row rpc_methods[RPC_METHOD_N];

/* Index by name, or -1. */
int rpc_method_find(struct str name);
/* Bytes may stand behind its request and its reply (frame.h). */
bool rpc_method_carries(enum rpc_method method);
/* The whole of methods.md. */
void rpc_methods_doc(struct buf *out);
