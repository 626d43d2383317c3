/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports are numbered as they arrive (a test under duplication sees both copies). A report's request is taken over, so it
 * can be looked at after its answer.
 */
#include "test/fake/judge.h"

#include <string.h>

#include "reactor/loop.h"

static void on_register(void *arg, struct rpc_call *call)
{
	struct judge *judge = arg;
	const struct msg_register_request *request = rpc_call_request(call);
	struct msg_register_reply reply = {.epoch = judge->epoch};

	judge->n_registers++;
	if (request->base == judge->epoch)
		reply.epoch = ++judge->epoch;
	else
		reply.conflict = true;
	if (judge->ignore) {
		judge->ignore--;
		return;
	}
	rpc_call_reply(call, &reply);
}

static void on_gone(void *arg)
{
	struct judged *report = arg;

	report->call = NULL;
	report->gone = true;
}

/* A held poll with a lower number is answered, empty. */
static void answer_older(struct judge *judge, int64_t seq)
{
	for (unsigned i = 0; i < judge->n_reports; i++) {
		struct judged *older = &judge->reports[i];

		if (older->call && older->request->seq < seq)
			judge_answer(judge, older, (struct msg_report_reply){.seq = 0});
	}
}

static void on_report(void *arg, struct rpc_call *call)
{
	struct judge *judge = arg;
	struct judged *report = &judge->reports[judge->n_reports++];

	CHECK(judge->n_reports <= JUDGE_REPORTS_MAX);
	report->call = call;
	report->at_us = loop_now_us(judge->loop);
	report->record = rpc_call_take_request(call);
	report->request = record_data(report->record);
	rpc_call_on_gone(call, on_gone, report);
	if (!judge->hold_all)
		answer_older(judge, report->request->seq);
}

void judge_open(
	struct judge *judge, struct loop *loop, struct transport *transport, const char *address)
{
	static rpc_handler_fn *const handlers[RPC_METHOD_N] = {
		[RPC_register] = on_register, [RPC_report] = on_report};

	memset(judge, 0, sizeof(*judge));
	judge->loop = loop;
	CHECK(rpc_server_new(loop, NULL, transport, address, handlers, judge, &judge->server) == 0);
}

void judge_close(struct judge *judge)
{
	if (!judge->server)
		return;
	rpc_server_free(judge->server);
	judge->server = NULL;
	for (unsigned i = 0; i < judge->n_reports; i++)
		record_free(judge->reports[i].record);
	judge->n_reports = 0;
}

struct judged *judge_last(struct judge *judge)
{
	CHECK(judge->n_reports > 0);
	return &judge->reports[judge->n_reports - 1];
}

unsigned judge_open_reports(const struct judge *judge)
{
	unsigned n = 0;

	for (unsigned i = 0; i < judge->n_reports; i++)
		n += judge->reports[i].call != NULL;
	return n;
}

void judge_answer(struct judge *judge, struct judged *report, struct msg_report_reply reply)
{
	struct rpc_call *call = report->call;

	CHECK(call);
	report->call = NULL;
	if (!reply.seq)
		reply.seq = report->request->seq;
	rpc_call_reply(call, &reply);
}

const struct msg_executing_item *judge_executing(const struct judged *report, const char *id)
{
	for (size_t i = 0; i < report->request->executing.count; i++) {
		const struct msg_executing_item *item =
			codec_item(report->request->executing, struct msg_executing_item, i);

		if (strcmp(item->id.hex, id) == 0)
			return item;
	}
	return NULL;
}

const struct msg_complete_item *judge_complete(const struct judged *report, const char *id)
{
	for (size_t i = 0; i < report->request->complete.count; i++) {
		const struct msg_complete_item *item =
			codec_item(report->request->complete, struct msg_complete_item, i);

		if (strcmp(item->id.hex, id) == 0)
			return item;
	}
	return NULL;
}
