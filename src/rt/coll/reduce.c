/* SPDX-License-Identifier: BSD-3-Clause */
/* A blocking reduction: elements are combined straight out of the memory of the ranks (reduce/), or
 * out of packed copies of buffers that peers cannot reach. */
#include <errno.h>
#include <string.h>

#include "rt/private.h"
#include "rt/coll/sides.h"

/* Returns: bytes of each rank's vector that one run combines. */
static uint64_t piece_bytes(const struct coll_call *call, uint64_t bytes)
{
	uint64_t piece = base_fault("piece") ? base_min_u64(bytes, 5 * OS_PAGE + 123)
					     : policy_piece_bytes(bytes, 1);

	if (coll_pattern(call->kind) == COLL_REDUCE_SCATTER)
		return bytes;
	return base_max_u64(piece - piece % call->reduce.element_bytes, call->reduce.element_bytes);
}

static void set_starts(const struct rt_comm *c, const struct coll_call *call, uint64_t count)
{
	for (int r = 0; r < call->send.count; r++)
		c->starts[r] = call->send.parts[r].off / call->reduce.element_bytes;
	c->starts[call->send.count] = count;
}

void reduce_describe(const struct coll_call *call, uint64_t bytes, struct exec_reduce *out)
{
	*out = (struct exec_reduce){
		.kind = coll_pattern(call->kind),
		.root = call->root,
		.type = call->reduce.op,
		.dtype = call->reduce.type,
		.count = bytes / call->reduce.element_bytes,
		.element_bytes = call->reduce.element_bytes,
		.in_place = call->in_place && coll_pattern(call->kind) != COLL_REDUCE_SCATTER,
		.combine = call->reduce.combine,
		.ctx = call->reduce.ctx,
		.is_commutative = call->reduce.commutes,
	};
}

static int run(struct rt_comm *c, const struct coll_call *call, struct sides *s, uint64_t at,
	       uint64_t bytes, struct ending *end)
{
	struct exec_reduce reduce;
	struct exec_call e = {
		.reduce = &reduce,
		.user = { s->send.addr, s->recv.addr },
		.desc = { [COLL_SEND] = s->send.desc, [COLL_RECV] = s->recv.desc },
		.prefer_vm = c->prefer_vm,
		.name = call->name,
	};
	struct exec_run *r;
	int ret;

	reduce_describe(call, bytes, &reduce);
	if (reduce.kind == COLL_REDUCE_SCATTER)
		reduce.starts = c->starts;
	reduce.in_off = (reduce.in_place ? s->recv : s->send).is_packed ? 0 : at;
	reduce.out_off = s->recv.is_packed ? 0 : at;
	ret = run_begin(c, &e, &r);
	return ret ? ret : ending_run(c, r, end, &s->send.desc, &s->recv.desc);
}

static int run_piece(struct rt_comm *c, const struct coll_call *call, struct sides *s, uint64_t at,
		     uint64_t n, struct ending *end)
{
	bool in_place = call->in_place && coll_pattern(call->kind) != COLL_REDUCE_SCATTER;
	bool gets = call->kind != COLL_EXSCAN || node_rank(c->group);
	uint64_t result = n;
	int ret = side_pack_range(in_place ? &s->recv : &s->send, at, n);

	if (!ret)
		ret = run(c, call, s, at, n, end);
	if (coll_pattern(call->kind) == COLL_REDUCE_SCATTER)
		result = call->recv.parts[0].bytes;
	return !ret && gets ? side_unpack_range(&s->recv, at, result) : ret;
}

static int begin_sides(struct rt_comm *c, const struct coll_call *call, struct sides *s,
		       uint64_t piece)
{
	bool is_scatter = coll_pattern(call->kind) == COLL_REDUCE_SCATTER;
	static const struct coll_side none;
	int ret;

	s->recv = (struct side){ .of = &call->recv };
	/* where results are others' inputs still, in place means a copy */
	ret = side_begin(&s->send, call->in_place && !is_scatter ? &none : &call->send,
			 &c->scratch[0], piece, call->in_place ? SIDE_COPY : SIDE_MAPPED);
	if (ret)
		return ret;
	return side_begin(&s->recv, &call->recv, &c->scratch[1],
			  is_scatter ? call->recv.parts[0].bytes : piece, SIDE_MAPPED);
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
	uint64_t bytes = call->send.buf.bytes, piece = piece_bytes(call, bytes);
	struct ending end;
	struct sides s;
	int ret = begin_sides(c, call, &s, piece);

	ending_begin(&end, c, call, &s, piece >= bytes);
	end.detach.movers = movers_of(call);
	end.detach.copy_bytes = end.detach.partner_copy_bytes = cost_bytes(call, bytes);
	if (coll_pattern(call->kind) == COLL_REDUCE_SCATTER)
		set_starts(c, call, bytes / call->reduce.element_bytes);
	reuse_note(c, !s.send.is_unmapped && !s.recv.is_unmapped);
	trace_admitted(side_region(&s.send), call->root, node_rank(c->group) == call->root);
	for (uint64_t at = 0; at < bytes && !ret; at += piece)
		ret = run_piece(c, call, &s, at, base_min_u64(piece, bytes - at), &end);
	side_end(&s.send);
	side_end(&s.recv);
	return ret;
}
