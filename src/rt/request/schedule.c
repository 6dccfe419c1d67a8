/* SPDX-License-Identifier: BSD-3-Clause */
/* The schedule of a request, made once for all its starts. */
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

static struct coll_shape shape_of(const struct rt_request *r)
{
	const struct coll_call *call = r->call;
	return (struct coll_shape){
		.kind = call->kind,
		.rank = node_rank(r->comm->group),
		.ranks = node_size(r->comm->group),
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

/* ---- what combines ----------------------------------------------------------------------- */

static int find_starts(struct rt_request *r)
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

void request_reduce(const struct rt_request *r, struct exec_reduce *out)
{
	const struct coll_call *call = r->call;

	reduce_describe(call, call->send.buf.bytes, out);
	out->starts = r->starts;
}

/* ---- all of them ------------------------------------------------------------------------- */

void request_unschedule(struct rt_request *r)
{
	free(r->schedule.ops);
	free(r->starts);
	r->schedule = (struct coll_schedule){ 0 };
	r->starts = NULL;
}

static int build(struct rt_request *r)
{
	uint32_t cap = exec_ops_max(node_size(r->comm->group));
	const struct coll_shape shape = shape_of(r);
	struct coll_flat_op *ops = calloc(cap, sizeof(*ops));
	int ret = ops ? coll_build(&shape, ops, cap, &r->schedule) : -ENOMEM;

	if (ret) {
		free(ops);
		r->schedule = (struct coll_schedule){ 0 };
	}
	return ret;
}

int request_schedule(struct rt_request *r)
{
	return request_is_reduce(r) ? find_starts(r) : build(r);
}
