/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of fields.def as tables for the codec. */
#include "rpc/task/result.h"
#include "rpc/task/task.h"

#define OPTIONAL (CODEC_NULLABLE | CODEC_OMIT)

#define RECORD(record, tag, prose) static const struct codec_field record##_fields[] = {
#define FIELD(tag, field, kind, member, min, max, flags, preset, prose)                            \
	{#field, CODEC_##kind, offsetof(struct tag, member), min, max, flags, NULL, prose, preset},
#define NESTED(tag, field, kind, member, nested, max, flags, prose)                                \
	{#field, CODEC_##kind, offsetof(struct tag, member), 0, max, flags, &nested##_table,       \
		prose, 0},
#define END(record, tag)                                                                           \
	}                                                                                          \
	;                                                                                          \
	static const struct codec_record record##_table = {                                        \
		#record, sizeof(struct tag), record##_fields, ARRAY_SIZE(record##_fields)};
#include "rpc/task/fields.def"
#undef RECORD
#undef FIELD
#undef NESTED
#undef END

const struct codec_record task_record = {
	"task", sizeof(struct task), task_fields, ARRAY_SIZE(task_fields)};
const struct codec_record result_record = {
	"result", sizeof(struct result), result_fields, ARRAY_SIZE(result_fields)};

const struct codec_record *task_record_at(size_t i)
{
	static const struct codec_record *const records[] = {
#define RECORD(record, tag, prose) &record##_table,
#define FIELD(...)
#define NESTED(...)
#define END(record, tag)
#include "rpc/task/fields.def"
	};

	return i < ARRAY_SIZE(records) ? records[i] : NULL;
}
