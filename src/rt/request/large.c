/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests by exec/: every rank publishes its side in a slot, and waiting ranks move the data. This
 * rank may be computing meanwhile, so peers must reach its memory by themselves: the program's own
 * where it is mapped, in place or typed, else a copy, filled at the start and copied back at the
 * collection.
 */
#include <errno.h>
#include <stdlib.h>

#include "rt/coll/run.h"
#include "rt/request/request.h"

static int create_starts(struct rt_request *r)
{
	if (!request_is(r, COLL_REDUCE_SCATTER))
		return 0;
	r->starts = calloc((size_t)r->call->send.count + 1, sizeof *r->starts);
	if (!r->starts)
		return -ENOMEM;
	run_starts(r->call, 0, r->call->send.buf.bytes, r->starts);
	return 0;
}

/* Makes room for the parts of typed buffers: each part has a packed form of its own. */
static int create_parts(struct rt_request *r)
{
	const struct coll_side *send = &r->call->send, *recv = &r->call->recv;
	size_t n = (size_t)send->count + (size_t)recv->count;

	if (!(send->count && send->buf.layouts) && !(recv->count && recv->buf.layouts))
		return 0;
	r->typed_parts[0] = calloc(n, sizeof *r->typed_parts[0]);
	if (!r->typed_parts[0])
		return -ENOMEM;
	r->typed_parts[1] = r->typed_parts[0] + send->count;
	for (int i = 0; i < send->count; i++)
		r->typed_parts[0][i].bytes = send->parts[i].bytes;
	for (int i = 0; i < recv->count; i++)
		r->typed_parts[1][i].bytes = recv->parts[i].bytes;
	return 0;
}

static void destroy(struct rt_request *r)
{
	free(r->starts);
	free(r->typed_parts[0]);
	r->starts = NULL;
	r->typed_parts[0] = NULL;
}

static int create(struct rt_request *r)
{
	int ret = create_starts(r);

	if (!ret)
		ret = create_parts(r);
	if (ret)
		destroy(r);
	return ret;
}

/* ---- the memory -------------------------------------------------------------------------- */

static int open_filled(struct buffer *b, const struct coll_side *side, enum buffer_memory memory,
		       bool has_input)
{
	int ret = buffer_open_typed(b, side, side->buf.bytes, memory);

	return ret || !has_input ? ret : buffer_pack_range(b, 0, side->buf.bytes);
}

static bool is_bcast_leaf(const struct rt_request *r)
{
	return r->call->kind == COLL_BCAST && r->comm->rank != r->call->root;
}

static int open_buffers(struct rt_request *r)
{
	const struct coll_call *call = r->call;
	static const struct coll_side none;
	struct buffers *b = &r->buffers;
	/* the results in place are inputs of other ranks: the input is a copy */
	bool is_copied = call->in_place &&
			 (request_is(r, COLL_ALLTOALL) || request_is(r, COLL_REDUCE_SCATTER));
	bool has_send = is_copied || !call->in_place || !request_is_reduce(r);
	int ret;

	*b = (struct buffers){ 0 };
	ret = open_filled(&b->send, has_send ? &call->send : &none,
			  is_copied ? BUFFER_COPY : BUFFER_MAPPED, !is_bcast_leaf(r));
	if (!ret)
		ret = open_filled(&b->recv, &call->recv, BUFFER_MAPPED, call->in_place);
	policy_reuse_count(r->reuse, !b->send.is_unmapped && !b->recv.is_unmapped);
	return ret;
}

static int close_buffer(struct rt_request *r, struct buffer *b, bool has_output)
{
	int ret = has_output ? buffer_unpack(b, 0, NULL, -1, r->call->sources) : 0;

	buffer_close(b, r->result ? r->comm : NULL);
	return ret;
}

static int close_buffers(struct rt_request *r, bool is_good)
{
	bool gets = r->call->kind != COLL_EXSCAN || r->comm->rank;
	int ret = close_buffer(r, &r->buffers.send, is_good && is_bcast_leaf(r));
	int err = close_buffer(r, &r->buffers.recv, is_good && gets);

	return ret ? ret : err;
}

/* ---- one run ----------------------------------------------------------------------------- */

static struct exec_shape shape_of(const struct rt_request *r)
{
	struct exec_shape shape = run_shape(r->call);

	shape.send_layouts = buffer_layouts(&r->buffers.send);
	shape.recv_layouts = buffer_layouts(&r->buffers.recv);
	if (shape.send_layouts)
		shape.send = r->typed_parts[0];
	if (shape.recv_layouts)
		shape.recv = r->typed_parts[1];
	return shape;
}

/* The worker process only: channels serve calls that returned early. */
static void announce(struct rt_request *r)
{
	struct progress_facts f = { .has_waiters = exec_is_waited_for(r->run) };

	offload_facts(r->comm, DETACH_TO_WORKER, &f);
	offload_announce(r->comm, r->run, &f);
}

static int begin(struct rt_request *r)
{
	const struct coll_call *call = r->call;
	const struct buffers *b = &r->buffers;
	/* an allgather in place has one buffer only */
	bool one_buffer = call->in_place && request_is(r, COLL_ALLGATHER);
	struct exec_call e = run_describe(r->comm, call, one_buffer ? &b->recv : &b->send,
					  &b->recv);
	const struct exec_shape shape = shape_of(r);
	struct exec_reduce reduce;
	struct exec_run *run;
	int ret;

	e.is_nonblocking = true;
	e.number = request_number(r);
	if (request_is_reduce(r)) {
		reduce = run_reduction(call, b, 0, 0, call->send.buf.bytes);
		reduce.starts = r->starts;
		e.reduce = &reduce;
	} else {
		e.shape = &shape;
	}
	ret = exec_begin(r->comm->exec, &e, &run);
	if (ret == -EBUSY && pending_retire_run(run)) /* of a call that returned early */
		ret = exec_begin(r->comm->exec, &e, &run);
	r->comm->requests.behind = ret == -EBUSY ? run : NULL;
	if (ret)
		return ret;
	r->run = run;
	request_set_traced(r, exec_number(run));
	return 0;
}

static int step(struct rt_request *r, enum exec_copy copy, bool *out_ended)
{
	return exec_step(r->run, copy, out_ended);
}

static int check(struct rt_request *r)
{
	return r->state == REQUEST_ACTIVE ? exec_check(r->run) : 0;
}

const struct request_ops request_large = {
	.way = REQUEST_BY_EXEC,
	.create = create,
	.destroy = destroy,
	.open = open_buffers,
	.begin = begin,
	.active = announce,
	.step = step,
	.check = check,
	.close = close_buffers,
};
