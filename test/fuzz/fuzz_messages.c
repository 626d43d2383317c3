/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the body of an RPC: the first byte chooses the method and the direction. What decodes is encoded, and the text decodes
 * to what encodes the same; what does not is a problem.
 */
#include "rpc/messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct record *record cleanup(record_freep) = NULL, *again cleanup(record_freep) = NULL;
	struct buf first cleanup(buf_fini) = BUF_INIT, second cleanup(buf_fini) = BUF_INIT;
	const struct rpc_method_row *row;
	const struct codec_record *type;
	struct problem problem;

	if (!size)
		return 0;
	row = &rpc_methods[data[0] / 2 % RPC_METHOD_N];
	type = data[0] % 2 ? row->reply : row->request;
	if (codec_decode_text(type, (struct str){(const char *)data + 1, size - 1}, NULL, &record,
		    &problem)) {
		CHECK(problem.status >= 400 && problem.status < 500 && problem.code[0]);
		return 0;
	}
	codec_encode_text(type, record_data(record), &first);
	CHECK(codec_decode_text(type, buf_str(&first), NULL, &again, &problem) == 0);
	codec_encode_text(type, record_data(again), &second);
	CHECK(str_eq(buf_str(&first), buf_str(&second)));
	return 0;
}
