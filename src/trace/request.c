/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives that continue after their call: when the program wanted them, how long it waited,
 * which collective it was. */
#include "trace/private.h"

void trace_request_on(struct trace_request *b)
{
	*b = (struct trace_request){ .call = trace_call_name_on(), .since = trace_ticks() };
	trace_current.is_begun = true;
}

void trace_request_poll(struct trace_request *b, uint64_t now)
{
	if (!b->since)
		return;
	b->wanted = b->wanted ? b->wanted : now;
	b->asking = now;
	b->asked++;
}

/* The time until `now` that no other request has accounted for: one call may wait for many
 * requests, but waits once. */
static uint64_t waited_until(const struct trace_request *b, uint64_t now)
{
	static __thread uint64_t counted __attribute__((tls_model("initial-exec")));
	uint64_t from = base_max_u64(b->asking, counted);

	if (!b->asking || now <= from)
		return 0;
	counted = now;
	return now - from;
}

void trace_request_poll_end(struct trace_request *b, uint64_t now)
{
	b->waited += waited_until(b, now);
	b->asking = 0;
}

void trace_request_end_on(const struct trace_request *b, const struct trace_op *op)
{
	struct trace_record *r = record_begin();

	if (!r)
		return;
	r->begin = b->since;
	r->end = trace_ticks();
	r->detached.wanted = b->wanted;
	r->detached.waited = b->waited + waited_until(b, r->end);
	r->detached.touches = b->asked;
	r->detached.id = b->call.id;
	r->detached.caller = b->call.thread;
	r->detached.op = op->op;
	r->detached.group = op->group;
	r->rank = op->rank;
	r->ranks = op->ranks;
	record_end(r, TRACE_DETACHED, TRACE_BY_CALL);
}
