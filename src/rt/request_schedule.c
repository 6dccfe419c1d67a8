/* SPDX-License-Identifier: BSD-3-Clause */
/* What of a request is made once, however often it is started: its schedule. */
#include <errno.h>
#include <stdlib.h>

#include "rt/request.h"

static const enum coll_kind kinds[RT_KINDS] = {
	[RT_BCAST] = COLL_BCAST,
	[RT_GATHER] = COLL_GATHER,
	[RT_GATHERV] = COLL_GATHER,
	[RT_SCATTER] = COLL_SCATTER,
	[RT_SCATTERV] = COLL_SCATTER,
	[RT_ALLGATHER] = COLL_ALLGATHER,
	[RT_ALLGATHERV] = COLL_ALLGATHER,
	[RT_ALLTOALL] = COLL_ALLTOALL,
	[RT_ALLTOALLV] = COLL_ALLTOALL,
	[RT_ALLTOALLW] = COLL_ALLTOALL,
};

bool rt_request_can(enum rt_kind kind) { return kinds[kind] || kind == RT_BCAST; }

bool request_is_exchange(const struct rt_request *r) { return kinds[r->call->kind] == COLL_ALLTOALL; }

bool request_is_allgather(const struct rt_request *r) { return kinds[r->call->kind] == COLL_ALLGATHER; }

_Static_assert(sizeof(struct rt_part) == sizeof(struct coll_part) &&
	       offsetof(struct rt_part, bytes) == offsetof(struct coll_part, bytes), "the same to both");

static const struct coll_part *parts(const struct rt_side *s) { return (const struct coll_part *)s->parts; }

static void build(const struct rt_request *r, struct goal_build *b)
{
	const struct rt_call *call = r->call;
	struct coll_shape shape = {
		.kind = kinds[call->kind],
		.rank = node_rank(r->comm->group),
		.ranks = node_size(r->comm->group),
		.root = call->root,
		.send = parts(&call->send),
		.recv = parts(&call->recv),
		.in_place = call->in_place,
	};

	coll_build(b, &shape);
}

int request_schedule(struct rt_request *r)
{
	uint32_t cap = exec_ops_max(node_size(r->comm->group));
	struct goal_op *ops = calloc(cap, sizeof(*ops));
	struct goal_edge *edges = calloc(cap, sizeof(*edges));
	size_t bytes = goal_block_bytes(cap, cap, 0);
	struct goal_build b;
	int ret = -ENOMEM;

	r->block = malloc(bytes);
	if (ops && edges && r->block) {
		goal_build_init(&b, ops, cap, edges, cap);
		build(r, &b);
		ret = goal_compile(&b, r->block, bytes);
	}
	free(ops);
	free(edges);
	if (ret) {
		free(r->block);
		r->block = NULL;
	}
	return ret;
}
