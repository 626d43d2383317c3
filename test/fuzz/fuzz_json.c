/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as JSON: what is accepted is written, and what is written reads back as the same text. What is refused
 * says where, in words that are valid UTF-8. Numbers and pointers of every node are asked for on the way.
 */
#include "reactor/base/check.h"
#include "rpc/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ask_every_node(const struct json *node, struct buf *pointer)
{
	int64_t whole = 0;
	double real = 0;

	buf_clear(pointer);
	json_pointer(node, pointer);
	CHECK(str_is_utf8(buf_str(pointer)));
	if (json_i64(node, &whole))
		CHECK(json_double(node, &real) && real == (double)whole);
	for (const struct json *child = node->first; child; child = child->next) {
		CHECK(child->parent == node);
		ask_every_node(child, pointer);
	}
}

static void write_tree(const struct json_tree *tree, bool pretty, struct buf *out)
{
	struct json_writer *w = json_writer_new(out, pretty);

	json_node(w, json_root(tree));
	json_writer_free(w);
}

static void reread(struct buf *text, struct buf *out)
{
	struct json_tree *tree cleanup(json_freep) = NULL;
	struct json_error error;

	CHECK(json_parse(buf_str(text), NULL, &tree, &error) == 0);
	write_tree(tree, false, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct json_tree *tree cleanup(json_freep) = NULL;
	struct buf first cleanup(buf_fini) = BUF_INIT, second cleanup(buf_fini) = BUF_INIT;
	struct buf pretty cleanup(buf_fini) = BUF_INIT, third cleanup(buf_fini) = BUF_INIT;
	struct json_error error;

	if (json_parse((struct str){(const char *)data, size}, NULL, &tree, &error)) {
		CHECK(error.offset <= size);
		CHECK(str_is_utf8(str_from(error.detail)));
		return 0;
	}
	ask_every_node(json_root(tree), &pretty);
	buf_clear(&pretty);
	write_tree(tree, false, &first);
	write_tree(tree, true, &pretty);
	reread(&first, &second);
	reread(&pretty, &third);
	CHECK(str_eq(buf_str(&first), buf_str(&second)));
	CHECK(str_eq(buf_str(&first), buf_str(&third)));
	return 0;
}
