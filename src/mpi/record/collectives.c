/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes that a rank sends and receives in a collective: one size for all ranks, or a list of
 * parts. A rank's part for itself is no message. */
#include <stdlib.h>

#include "mpi/record/record.h"

struct parts {
	struct messages_part *all;
	uint32_t count, cap;
	bool failed;
};

static uint64_t type_bytes(MPI_Datatype type)
{
	MPI_Count size = 0;

	return !type || host.Type_size_x(type, &size) || size < 0 ? 0 : (uint64_t)size;
}

/* Returns: bytes of the i-th part. */
static uint64_t part_bytes(const struct record_side *side, int i)
{
	MPI_Count n = side->counts.at ? list_get(side->counts, i) : side->count;
	MPI_Datatype type = side->types ? abi_handle_get(side->types, i) : side->type;

	return n > 0 ? (uint64_t)n * type_bytes(type) : 0;
}

static void add(struct parts *p, int32_t peer, bool is_recv, uint64_t bytes)
{
	if (peer < 0 || !bytes)
		return;
	if (p->count == p->cap) {
		uint32_t cap = p->cap ? 2 * p->cap : 16;
		struct messages_part *more = realloc(p->all, cap * sizeof *more);

		if (!more) {
			p->failed = true;
			return;
		}
		p->all = more;
		p->cap = cap;
	}
	p->all[p->count++] = (struct messages_part){ peer, is_recv, bytes };
}

/* ---- parts of the ranks ------------------------------------------------------------------ */

static void list_ranks(const struct record_coll *call, const struct record_comm *c,
		       struct parts *out)
{
	const struct record_side *send = &call->send, *recv = &call->recv;
	bool is_root = call->root == c->rank;

	for (int i = 0; i < c->size; i++) {
		int32_t peer = c->world[i];

		if (i == c->rank)
			continue;
		switch (call->kind) {
		case COLL_GATHERV:
			if (is_root)
				add(out, peer, true, part_bytes(recv, i));
			else if (i == call->root)
				add(out, peer, false, part_bytes(send, 0));
			break;
		case COLL_SCATTERV:
			if (is_root)
				add(out, peer, false, part_bytes(send, i));
			else if (i == call->root)
				add(out, peer, true, part_bytes(recv, 0));
			break;
		case COLL_ALLGATHERV:
			add(out, peer, false, part_bytes(recv, c->rank));
			add(out, peer, true, part_bytes(recv, i));
			break;
		case COLL_REDUCE_SCATTER:
			add(out, peer, false, part_bytes(recv, i));
			add(out, peer, true, part_bytes(recv, c->rank));
			break;
		default: /* Alltoallv, Alltoallw */
			if (send->at == abi.in_place)
				send = recv;
			add(out, peer, false, part_bytes(send, i));
			add(out, peer, true, part_bytes(recv, i));
		}
	}
}

static bool list_neighbours(const struct record_coll *call, const struct record_comm *c,
			    struct parts *out)
{
	int n = members_count(call->comm, MEMBERS_SOURCES);
	int m = members_count(call->comm, MEMBERS_TARGETS);
	int *ranks = n >= 0 && m >= 0 ? malloc(((size_t)n + (size_t)m + 1) * sizeof *ranks) : NULL;
	bool ok = ranks && topology_neighbors(call->comm, ranks, n, ranks + n, m);

	for (int i = 0; ok && i < n; i++)
		if (ranks[i] != c->rank)
			add(out, record_world_rank(c, ranks[i]), true, part_bytes(&call->recv, i));
	for (int i = 0; ok && i < m; i++)
		if (ranks[n + i] != c->rank)
			add(out, record_world_rank(c, ranks[n + i]), false,
			    part_bytes(&call->send, i));
	free(ranks);
	return ok;
}

/* ---- kinds ------------------------------------------------------------------------------- */

static const uint8_t collectives[COLL_COUNT] = {
	[COLL_BCAST] = MESSAGES_BCAST, [COLL_GATHER] = MESSAGES_GATHER,
	[COLL_GATHERV] = MESSAGES_EXCHANGE, [COLL_SCATTER] = MESSAGES_SCATTER,
	[COLL_SCATTERV] = MESSAGES_EXCHANGE, [COLL_ALLGATHER] = MESSAGES_ALLGATHER,
	[COLL_ALLGATHERV] = MESSAGES_EXCHANGE, [COLL_ALLTOALL] = MESSAGES_ALLTOALL,
	[COLL_ALLTOALLV] = MESSAGES_EXCHANGE, [COLL_ALLTOALLW] = MESSAGES_EXCHANGE,
	[COLL_REDUCE] = MESSAGES_REDUCE, [COLL_ALLREDUCE] = MESSAGES_ALLREDUCE,
	[COLL_REDUCE_SCATTER] = MESSAGES_EXCHANGE,
	[COLL_REDUCE_SCATTER_BLOCK] = MESSAGES_REDUCE_SCATTER,
	[COLL_SCAN] = MESSAGES_SCAN, [COLL_EXSCAN] = MESSAGES_EXSCAN,
	[COLL_BARRIER] = MESSAGES_BARRIER,
	[COLL_NEIGHBOR_ALLGATHER] = MESSAGES_EXCHANGE,
	[COLL_NEIGHBOR_ALLGATHERV] = MESSAGES_EXCHANGE,
	[COLL_NEIGHBOR_ALLTOALL] = MESSAGES_EXCHANGE,
	[COLL_NEIGHBOR_ALLTOALLV] = MESSAGES_EXCHANGE,
	[COLL_NEIGHBOR_ALLTOALLW] = MESSAGES_EXCHANGE,
};

/* Returns: the bytes that all ranks of a regular collective agree on. */
static uint64_t common_bytes(const struct record_coll *call, bool is_root)
{
	switch (call->kind) {
	case COLL_GATHER:
		return part_bytes(is_root ? &call->recv : &call->send, 0);
	case COLL_SCATTER:
		return part_bytes(is_root ? &call->send : &call->recv, 0);
	case COLL_ALLGATHER:
	case COLL_ALLTOALL:
	case COLL_REDUCE_SCATTER_BLOCK:
		return part_bytes(&call->recv, 0);
	default:
		return part_bytes(&call->send, 0);
	}
}

/* A persistent collective is put at each start. */
static void keep(const struct record_coll *call, struct record_comm *c, struct messages_record *r,
		 struct parts *parts)
{
	struct record_request *q = record_request_add(call->request, RECORD_OTHER);

	r->tag = (int32_t)++c->channels;
	if (!q) {
		record_lost();
		return;
	}
	q->is_persistent = true;
	q->start = *r;
	q->parts = parts->all;
	parts->all = NULL;
}

static void put(const struct record_coll *call, struct record_comm *c, struct parts *parts)
{
	bool is_root = call->root == c->rank;
	struct messages_record r = { .type = MESSAGES_COLL, .collective = collectives[call->kind],
				     .comm = c->number, .peer = call->root < 0 ? 0 : call->root };
	bool ok = true;

	if (r.collective != MESSAGES_EXCHANGE)
		r.bytes = common_bytes(call, is_root);
	else if (coll_pattern(call->kind) == COLL_NEIGHBOR_ALLGATHER ||
		 coll_pattern(call->kind) == COLL_NEIGHBOR_ALLTOALL)
		ok = list_neighbours(call, c, parts);
	else
		list_ranks(call, c, parts);
	if (!ok || parts->failed) {
		record_lost();
		return;
	}
	r.count = parts->count;
	if (call->is_persistent) {
		keep(call, c, &r, parts);
		return;
	}
	r.id = call->request ? record_request_id(call->request, RECORD_OTHER) : 0;
	record_put(&r, parts->all, parts->count * sizeof *parts->all);
}

void record_coll(const struct record_coll *call)
{
	struct record_comm *c;
	struct parts parts = { NULL };

	record_lock();
	c = record_comm_of(call->comm);
	if (c && !c->is_inter)
		put(call, c, &parts);
	else
		record_lost();
	record_unlock();
	free(parts.all);
}
