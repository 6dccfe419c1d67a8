/* SPDX-License-Identifier: BSD-3-Clause */
/* A blocking collective that moves data: opens the buffers, and runs it piece by piece. */
#include <errno.h>

#include "rt/coll/run.h"
#include "rt/trials.h"

/* Does a rank send the same bytes to all, or all to one? */
static bool sends_one_range(enum coll kind)
{
	return kind == COLL_BCAST || coll_pattern(kind) == COLL_GATHER;
}

/* Returns: this rank's part of the receive side, which does not change; -1: all parts arrive. */
static int own_part(const struct coll_call *call, int rank)
{
	return call->in_place && call->kind != COLL_SCATTER && call->kind != COLL_SCATTERV &&
	       coll_pattern(call->kind) != COLL_ALLTOALL && call->recv.count ? rank : -1;
}

/* Bytes of one rank that one run moves. The fault point cuts small messages. */
static uint64_t piece_bytes(const struct rt_comm *c, const struct coll_call *call)
{
	bool is_uniform = !coll_is_local(call->kind) && call->kind != COLL_ALLGATHERV;

	if (!is_uniform)
		return UINT64_MAX;
	return base_fault("piece")
		       ? base_min_u64(call->bytes, 5 * OS_PAGE + 123)
		       : policy_piece_bytes(call->bytes, call->kind == COLL_BCAST ? 1 : c->size,
					    c->piece_most);
}

static int run_piece(struct rt_comm *c, const struct coll_call *call, struct buffers *b,
		     uint64_t at, uint64_t n, struct detach *d)
{
	int rank = c->rank, own = own_part(call, rank), ret = 0;
	bool one_buffer = own >= 0 && coll_pattern(call->kind) == COLL_ALLGATHER;
	bool is_leaf = call->kind == COLL_BCAST && rank != call->root;
	struct exec_shape shape = run_shape(call);
	struct buffer none = { 0 };

	shape.send = c->parts[0];
	shape.recv = c->parts[1];
	shape.send_layouts = buffer_layouts(&b->send);
	shape.recv_layouts = buffer_layouts(&b->recv);
	buffer_cut(&b->send, at, n, c->parts[0]);
	buffer_cut(&b->recv, at, n, c->parts[1]);
	if (!is_leaf)
		ret = buffer_pack(&b->send, at, c->parts[0], -1);
	if (!ret && one_buffer)
		ret = buffer_pack(&b->recv, at, c->parts[1], own);
	if (!ret)
		ret = run_parts(c, &shape, call, one_buffer ? &b->recv : &b->send,
				one_buffer ? &none : &b->recv, d);
	if (!ret && is_leaf)
		ret = buffer_unpack(&b->send, at, c->parts[0], -1, NULL);
	return ret ? ret
		   : buffer_unpack(&b->recv, at, c->parts[1], call->in_place ? rank : -1,
				   call->sources);
}

/*
 * Peers reach memory that is not mapped by a system call or by staging. Without the system call a
 * rank stages one range only (exec/exec.h): a rank that sends several ranges copies them first.
 */
static enum buffer_memory memory_of(const struct rt_comm *c, const struct coll_call *call,
				    const struct coll_side *side)
{
	/* an allgather in place sends from its receive buffer */
	bool is_sent = side == &call->send ||
		       (call->in_place && coll_pattern(call->kind) == COLL_ALLGATHER);

	if (call->in_place && coll_pattern(call->kind) == COLL_ALLTOALL && side == &call->send)
		return BUFFER_COPY;
	return is_sent && !c->prefer_vm && !sends_one_range(call->kind) ? BUFFER_MAPPED
									: BUFFER_ANY;
}

static int open_buffers(struct rt_comm *c, const struct coll_call *call, struct buffers *b,
			uint64_t piece)
{
	uint64_t send = side_bytes(&call->send), recv = side_bytes(&call->recv);
	int ret;

	if (piece < call->bytes) {
		send = piece * (uint64_t)call->send.count;
		recv = piece * (uint64_t)call->recv.count;
	}
	ret = buffer_open_typed(&b->send, &call->send, send, memory_of(c, call, &call->send));
	return ret ? ret
		   : buffer_open_typed(&b->recv, &call->recv, recv,
				       memory_of(c, call, &call->recv));
}

static int move_collective(struct rt_comm *c, const struct coll_call *call)
{
	struct buffers b = { .send.side = &call->send, .recv.side = &call->recv };
	uint64_t piece = piece_bytes(c, call);
	int rank = c->rank, ret = -EREMOTEIO;
	struct detach d;

	if (run_own_part_fits(call, rank))
		ret = open_buffers(c, call, &b, piece);
	d = detach_describe(c, call, &b, piece >= call->bytes);
	trials_count(c, !b.send.is_unmapped && !b.recv.is_unmapped);
	trace_admitted(buffers_region(&b), call->root, rank == call->root);
	/* a call that is not cut runs once, also when this rank has nothing to move */
	for (uint64_t at = 0; !ret && (!at || at < call->bytes); at += piece) {
		ret = run_piece(c, call, &b, at, base_min_u64(piece, UINT64_MAX - at), &d);
		if (piece == UINT64_MAX)
			break;
	}
	buffer_close(&b.send, ret ? c : NULL);
	buffer_close(&b.recv, ret ? c : NULL);
	return ret;
}

int rt_collective(struct rt_comm *c, const struct coll_call *call)
{
	int ret;

	call_enter(call);
	requests_enter_blocking(c);
	ret = coll_is_reduce(call->kind) ? reduce_collective(c, call) : move_collective(c, call);
	requests_exit_blocking(c);
	call_exit();
	if (ret)
		rt_abandon(c, call->name, ret);
	return ret;
}
