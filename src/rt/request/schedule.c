/* SPDX-License-Identifier: BSD-3-Clause */
/* How exec/ sees a request. */
#include <errno.h>
#include <stdlib.h>

#include "rt/request/request.h"
#include "rt/coll/sides.h"

bool request_is_reduce(const struct rt_request *r) { return coll_is_reduce(r->call->kind); }

bool request_is_reduce_scatter(const struct rt_request *r)
{
	return coll_pattern(r->call->kind) == COLL_REDUCE_SCATTER;
}

bool request_is_alltoall(const struct rt_request *r)
{
	return coll_pattern(r->call->kind) == COLL_ALLTOALL;
}

bool request_is_allgather(const struct rt_request *r)
{
	return coll_pattern(r->call->kind) == COLL_ALLGATHER;
}

void request_shape(const struct rt_request *r, struct exec_shape *out)
{
	const struct coll_call *call = r->call;

	*out = (struct exec_shape){
		.kind = call->kind,
		.root = call->root,
		.send = call->send.parts,
		.recv = call->recv.parts,
		.in_place = call->in_place,
		.sources = call->sources,
		.targets = call->targets,
		.source_count = call->recv.count,
		.target_count = call->target_count,
	};
}

/* ---- reductions -------------------------------------------------------------------------- */

int request_make_starts(struct rt_request *r)
{
	const struct coll_side *send = &r->call->send;

	if (!request_is_reduce_scatter(r))
		return 0;
	r->starts = calloc((size_t)send->count + 1, sizeof(*r->starts));
	if (!r->starts)
		return -ENOMEM;
	for (int i = 0; i < send->count; i++)
		r->starts[i] = send->parts[i].off / r->call->reduce.element_bytes;
	r->starts[send->count] = send->buf.bytes / r->call->reduce.element_bytes;
	return 0;
}

void request_free_starts(struct rt_request *r)
{
	free(r->starts);
	r->starts = NULL;
}

void request_reduce(const struct rt_request *r, struct exec_reduce *out)
{
	const struct coll_call *call = r->call;

	reduce_describe(call, call->send.buf.bytes, out);
	out->starts = r->starts;
}
