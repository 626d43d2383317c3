/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge - a judicator played by hand: it serves `register` by the protocol's rule on its own and keeps every report until
 * the test answers it, so a test plays one exact exchange with an executor or a session.
 */
#pragma once

#include "rpc/rpc_server.h"

#define JUDGE_REPORTS_MAX 512

struct judged {                /* one report */
	struct rpc_call *call; /* NULL = answered or gone */
	bool gone;             /* the executor closed it before the answer */
	struct record *record; /* owns request */
	const struct msg_report_request *request;
	int64_t at_us;
};

struct judge {
	struct loop *loop;
	struct rpc_server *server;
	int64_t epoch;        /* of the one executor: raised by register */
	unsigned n_registers; /* asked for */
	bool hold_all; /* else a report makes those before it be answered, empty, as the protocol says */
	unsigned ignore; /* so many registers are taken but never answered */
	struct judged reports[JUDGE_REPORTS_MAX];
	unsigned n_reports;
};

void judge_open(
	struct judge *judge, struct loop *loop, struct transport *transport, const char *address);
void judge_close(struct judge *judge); /* idempotent */
/* The newest report. */
struct judged *judge_last(struct judge *judge);
/* Reports not answered and not gone. */
unsigned judge_open_reports(const struct judge *judge);
/* seq is filled in when 0. */
void judge_answer(struct judge *judge, struct judged *report, struct msg_report_reply reply);
/* Is the claim among those listed as executing; and its status? NULL when not. */
const struct msg_executing_item *judge_executing(const struct judged *report, const char *id);
const struct msg_complete_item *judge_complete(const struct judged *report, const char *id);
