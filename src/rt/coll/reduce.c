/* SPDX-License-Identifier: BSD-3-Clause */
/* A blocking reduction: elements are combined straight out of the memory of the ranks (reduce/), or
 * out of packed copies of buffers that peers cannot reach. */
#include "rt/coll/run.h"
#include "rt/trials.h"

/* Returns: bytes of each rank's vector that one run combines; the same on all ranks. */
static uint64_t piece_bytes(const struct rt_comm *c, const struct coll_call *call, uint64_t bytes)
{
	uint64_t most = c->packs_in_pieces ? POLICY_PIECE_PACKED : UINT64_MAX;
	uint64_t piece = base_min_u64(most, policy_piece_bytes(bytes, 1, c->piece_most));

	if (base_fault("piece"))
		piece = base_min_u64(bytes, 5 * OS_PAGE + 123);
	return base_max_u64(piece - piece % call->reduce.element_bytes, call->reduce.element_bytes);
}

static int open_buffers(const struct coll_call *call, struct buffers *b, uint64_t piece)
{
	bool is_scatter = coll_pattern(call->kind) == COLL_REDUCE_SCATTER;
	static const struct coll_side none;
	int ret;

	/* a reduce-scatter in place copies its input: its results are inputs of other ranks */
	ret = buffer_open(&b->send, call->in_place && !is_scatter ? &none : &call->send, piece,
			  call->in_place ? BUFFER_COPY : BUFFER_MAPPED);
	return ret ? ret
		   : buffer_open(&b->recv, &call->recv,
				 base_min_u64(call->recv.buf.bytes, piece), BUFFER_MAPPED);
}

/* Cost as bytes of a plain copy: every rank reads all inputs, and one rank or all of them store
 * results. */
static uint64_t cost_bytes(const struct coll_call *call, uint64_t bytes)
{
	bool is_for_one = coll_pattern(call->kind) == COLL_REDUCE ||
			  coll_pattern(call->kind) == COLL_REDUCE_SCATTER;

	return is_for_one ? bytes + bytes / 2 : 2 * bytes;
}

/* A reduction in place cannot be repeated by another mover when the worker process is killed in the
 * middle (doc/adr/0020-flat-collectives.md). */
static enum detach_movers movers_of(const struct coll_call *call)
{
	bool for_ranks = call->reduce.op == GOAL_NOP ||
			 (call->in_place && coll_pattern(call->kind) != COLL_REDUCE_SCATTER);

	return for_ranks ? DETACH_TO_RANKS : DETACH_TO_WORKER;
}

int reduce_collective(struct rt_comm *c, const struct coll_call *call)
{
	uint64_t bytes = call->send.buf.bytes, piece = piece_bytes(c, call, bytes);
	struct buffers b = { .send.side = &call->send, .recv.side = &call->recv };
	int ret = open_buffers(call, &b, piece);
	struct detach d = detach_describe(c, call, &b, piece >= bytes);

	d.movers = movers_of(call);
	d.copy_bytes = d.partner_copy_bytes = cost_bytes(call, bytes);
	trials_count(c, !b.send.is_unmapped && !b.recv.is_unmapped);
	trace_admitted(buffers_region(&b), call->root, c->rank == call->root);
	for (uint64_t at = 0; at < bytes && !ret; at += piece)
		ret = run_reduce(c, call, &b, at, at, base_min_u64(piece, bytes - at), &d);
	buffer_close(&b.send, ret ? c : NULL);
	buffer_close(&b.recv, ret ? c : NULL);
	return ret;
}
