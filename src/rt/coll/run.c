/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/coll/run.h"

#include <errno.h>
#include <string.h>

static void complete_pending(const struct coll_side *side)
{
	if (side->count && !side->buf.pack)
		rt_complete_range(side->buf.addr, side->buf.bytes);
	else if (side->count && side->buf.layouts) /* whole pages: see find_pages() */
		rt_complete_range((char *)side->buf.hull - OS_PAGE,
				  side->buf.hull_bytes + 2 * OS_PAGE);
	else if (side->count)
		rt_complete_all();
}

void call_enter(const struct coll_call *call)
{
	host_call_begin();
	if (!rt_has_pending())
		return;
	rt_reap();
	complete_pending(&call->send);
	complete_pending(&call->recv);
}

/* ---- describing a run -------------------------------------------------------------------- */

struct exec_call run_describe(const struct rt_comm *c, const struct coll_call *call,
			      const struct buffer *send, const struct buffer *recv)
{
	return (struct exec_call){
		.user = { send->addr, recv->addr },
		.desc = { [COLL_SEND] = send->desc, [COLL_RECV] = recv->desc },
		.prefer_vm = c->prefer_vm,
		.name = call->name,
		.origin = { .kind = 1 + (uint32_t)call->kind,
			    .root = call->root,
			    .bytes = call->bytes,
			    .site = (uintptr_t)call->site },
	};
}

struct exec_shape run_shape(const struct coll_call *call)
{
	return (struct exec_shape){
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

/* The input lies in the receive buffer. A reduce-scatter in place copies it, as the results are
 * inputs of other ranks. */
static bool reduces_in_place(const struct coll_call *call)
{
	return call->in_place && coll_pattern(call->kind) != COLL_REDUCE_SCATTER;
}

struct exec_reduce run_reduction(const struct coll_call *call, const struct buffers *b,
				 uint64_t send_at, uint64_t recv_at, uint64_t bytes)
{
	bool in_place = reduces_in_place(call);

	return (struct exec_reduce){
		.kind = coll_pattern(call->kind),
		.root = call->root,
		.type = call->reduce.op,
		.dtype = call->reduce.type,
		.count = bytes / call->reduce.element_bytes,
		.element_bytes = call->reduce.element_bytes,
		.in_place = in_place,
		.in_off = buffer_is_copy(in_place ? &b->recv : &b->send) ? 0
			  : in_place					 ? recv_at
									 : send_at,
		.out_off = buffer_is_copy(&b->recv) ? 0 : recv_at,
		.combine = call->reduce.combine,
		.ctx = call->reduce.ctx,
		.is_commutative = call->reduce.commutes,
		.float_modes = call->reduce.float_modes,
	};
}

void run_starts(const struct coll_call *call, uint64_t at, uint64_t bytes, uint64_t *starts)
{
	const struct coll_side *send = &call->send;

	for (int r = 0; r < send->count; r++) {
		uint64_t start = base_max_u64(send->parts[r].off, at);

		starts[r] = base_min_u64(start - at, bytes) / call->reduce.element_bytes;
	}
	starts[send->count] = bytes / call->reduce.element_bytes;
}

/* Sets the starts for bytes [at, at + bytes) of a reduce-scatter's vector. Returns: how many of
 * them are this rank's result. *out_recv_at: where in its receive buffer they begin. */
static uint64_t cut_result(struct rt_comm *c, const struct coll_call *call, uint64_t at,
			   uint64_t bytes, uint64_t *out_recv_at)
{
	const struct coll_part *own = &call->send.parts[c->rank];

	run_starts(call, at, bytes, c->starts);
	*out_recv_at = base_min_u64(at > own->off ? at - own->off : 0, own->bytes);
	return (c->starts[c->rank + 1] - c->starts[c->rank]) * call->reduce.element_bytes;
}

bool run_own_part_fits(const struct coll_call *call, int rank)
{
	const struct coll_side *send = &call->send, *recv = &call->recv;

	return call->in_place || call->kind == COLL_BCAST ||
	       call->kind >= COLL_NEIGHBOR_ALLGATHER || !send->count || !recv->count ||
	       send->parts[send->count > 1 ? rank : 0].bytes ==
		       recv->parts[recv->count > 1 ? rank : 0].bytes;
}

/* ---- running it -------------------------------------------------------------------------- */

int run_begin(struct rt_comm *c, const struct exec_call *call, struct exec_run **out)
{
	int ret;

	requests_before_blocking(c);
	ret = exec_begin(c->exec, call, out);
	while (ret == -EBUSY) {
		pending_complete_run(*out);
		requests_make_room(c);
		ret = exec_begin(c->exec, call, out);
	}
	return ret;
}

static int run(struct rt_comm *c, const struct exec_call *call, struct buffer *send,
	       struct buffer *recv, struct detach *d)
{
	struct exec_run *r;
	int ret = run_begin(c, call, &r);

	if (ret || !d || !d->is_allowed)
		return ret ? ret : exec_wait(r);
	d->descs[0] = &send->desc;
	d->descs[1] = &recv->desc;
	return detach_or_wait(c, r, d);
}

int run_parts(struct rt_comm *c, const struct exec_shape *shape, const struct coll_call *call,
	      struct buffer *send, struct buffer *recv, struct detach *d)
{
	struct exec_call e = run_describe(c, call, send, recv);

	e.shape = shape;
	return run(c, &e, send, recv, d);
}

int run_reduce(struct rt_comm *c, const struct coll_call *call, struct buffers *b, uint64_t send_at,
	       uint64_t recv_at, uint64_t bytes, struct detach *d)
{
	bool is_scatter = coll_pattern(call->kind) == COLL_REDUCE_SCATTER;
	uint64_t got = is_scatter ? cut_result(c, call, send_at, bytes, &recv_at) : bytes;
	struct exec_reduce reduce = run_reduction(call, b, send_at, recv_at, bytes);
	struct exec_call e = run_describe(c, call, &b->send, &b->recv);
	bool gets = call->kind != COLL_EXSCAN || c->rank;
	int ret = reduce.in_place ? buffer_pack_range(&b->recv, recv_at, bytes)
				  : buffer_pack_range(&b->send, send_at, bytes);

	e.reduce = &reduce;
	if (is_scatter)
		reduce.starts = c->starts;
	if (!ret)
		ret = run(c, &e, &b->send, &b->recv, d);
	return !ret && gets ? buffer_unpack_range(&b->recv, recv_at, got) : ret;
}

const char *rt_error_text(int error)
{
	return error == -EREMOTEIO ? "the sizes of ranks, or of both sides of this rank, differ"
				   : strerror(-error);
}

/* The communicator is of no more use to Sluice, and no peer may wait for this rank. */
void rt_abandon(struct rt_comm *c, const char *name, int error)
{
	if (error != -EOWNERDEAD && !exec_is_reported(c->exec))
		base_log(BASE_LOG_ERROR, "rt", "%s: %s", name, rt_error_text(error));
	exec_abandon(c->exec, error);
}
