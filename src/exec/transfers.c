/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs of transfers, whose operations are matched with those of the peers. Nothing here writes to a
 * detached run: each caller matches an operation whose peer has published since on its own stack.
 */
#include <errno.h>

#include "exec/private.h"

/* ---- publishing -------------------------------------------------------------------------- */

static void publish(struct exec_run *r)
{
	const struct exec_call *call = &r->call;
	struct exec_slot *s = r->slot;

	if (slot_build(s, slot_layouts(r->comm, s), call->shape, r->comm->rank, r->comm->size))
		xfer_fill_edges(&s->desc[COLL_SEND], call->user[COLL_SEND],
				slot_send_edges(r->comm, s));
	/* the copy's is opened when it is shared: until then no word of 2^24 collectives before */
	atomic_store_explicit(&slot_copied(r->comm, s)->claimed, xfer_word(r->op - 1, 0),
			      memory_order_relaxed);
	for (uint32_t i = 0; i < s->recv_count; i++)
		xfer_open(slot_xfer(r->comm, s, i), r->op);
	r->op_count = r->remaining = s->op_count;
	for (uint32_t i = 0; i < r->op_count; i++) {
		r->ops[i].state = EXEC_ACTIVE;
		r->ops[i].staged = false;
	}
}

static uint32_t peer_count(const struct exec_run *r) { return r->op_count; }

static int peer_at(const struct exec_run *r, uint32_t i)
{
	return run_op(r, i)->type == OP_COPY ? -1 : (int)run_op(r, i)->peer;
}

/* ---- stepping ---------------------------------------------------------------------------- */

static int step(struct exec_run *r, enum exec_copy copy)
{
	int progress = 0, ret;

	for (uint32_t i = 0; i < r->op_count; i++) {
		ret = step_op(r, i, copy);
		if (ret < 0)
			return ret;
		progress |= ret;
	}
	ret = step_stage(r);
	return ret < 0 ? ret : progress | ret;
}

/* ---- may the call return? ---------------------------------------------------------------- */

static enum run_need unmatched_need(const struct exec_run *r, const struct slot_op *op)
{
	struct xfer_end end = { r->call.desc[op->buf], op->off, r->comm->rank,
				.edges = op->type == OP_SEND ? slot_send_edges(r->comm, r->slot)
							     : NULL,
				.layout = slot_layout(r->comm, r->slot, op->layout) };
	bool may = op->type == OP_SEND ? xfer_sender_may_detach(&end, op->bytes) :
		   op->type == OP_RECV && xfer_receiver_may_detach(&end, op->bytes);

	return may ? NOT_NEEDED : NEEDED_NOW;
}

static enum run_need matched_need(const struct slot_op *op, const struct exec_op *o)
{
	const struct xfer_plan *p = &o->view.plan;

	if (p->way != XFER_DIRECT)
		return NEEDED_ALWAYS;
	if (op->type == OP_COPY)
		return xfer_is_done(o->view.x, o->view.tag, p->total & ~xfer_bits(p->fragments))
			       ? NOT_NEEDED
			       : NEEDED_NOW;
	if (!xfer_needs_me(&o->view))
		return NOT_NEEDED;
	/*
	 * the receiver's edges need this rank only now; fragments that no other rank can copy
	 * always do
	 */
	return op->type == OP_RECV && !o->view.edges_done ? NEEDED_NOW : NEEDED_ALWAYS;
}

static enum run_need need(const struct exec_run *r, bool all_come)
{
	enum run_need worst = NOT_NEEDED, n;

	for (uint32_t i = 0; i < r->op_count; i++) {
		const struct exec_op *o = &r->ops[i];

		if (o->state == EXEC_DONE)
			continue;
		n = o->state == EXEC_MATCHED ? matched_need(run_op(r, i), o) :
		    all_come		     ? NEEDED_NOW :
					       unmatched_need(r, run_op(r, i));
		if (n > worst)
			worst = n;
	}
	return worst;
}

static void each_range(const struct exec_run *r, exec_visit *visit, void *arg)
{
	for (uint32_t i = 0; i < r->op_count; i++) {
		const struct slot_op *op = run_op(r, i);

		if (r->ops[i].state == EXEC_DONE)
			continue;
		visit(arg, &r->call.desc[op->buf], op->off, op->bytes, op->type != OP_SEND);
		if (op->type == OP_COPY)
			visit(arg, &r->call.desc[op->src_buf], op->src_off, op->bytes, false);
	}
}

/* ---- a detached run ---------------------------------------------------------------------- */

bool transfer_is_claimed(const struct xfer_view *v)
{
	return xfer_is_all_claimed(v->x, v->tag, v->plan.units);
}

/*
 * The view of operation i, in `room` unless this rank has matched it before.
 * Returns: 0; -ESTALE: it is complete; -EAGAIN: the peer has not published; -EREMOTEIO.
 */
static int view_of(struct exec_run *r, uint32_t i, struct xfer_view *room,
		   const struct xfer_view **out)
{
	struct exec_op *o = &r->ops[i];

	*out = o->state == EXEC_MATCHED ? &o->view : room;
	return o->state == EXEC_DONE	? -ESTALE :
	       o->state == EXEC_MATCHED ? 0 :
					  match_op(r, i, XFER_VIEW_ALIASED, room);
}

/*
 * The part of operation i's bytes that lies at the program's addresses [start, end), from *at on.
 * Side 1 is the source of a copy inside this rank.
 * Returns: bytes; 0: there are none.
 */
static uint64_t part_in(const struct exec_run *r, uint32_t i, int side, uintptr_t start,
			uintptr_t end, uint64_t *at)
{
	const struct slot_op *op = run_op(r, i);
	uintptr_t lo = side ? r->call.desc[op->src_buf].addr + op->src_off :
			      r->call.desc[op->buf].addr + op->off,
		  hi = lo + op->bytes;

	if ((side && op->type != OP_COPY) || start >= hi || end <= lo)
		return 0;
	*at = start > lo ? start - lo : 0;
	return base_min_u64(end, hi) - lo - *at;
}

static bool is_in_range(const struct exec_run *r, uint32_t i, uintptr_t start, uintptr_t end)
{
	uint64_t at;

	return part_in(r, i, 0, start, end, &at) || part_in(r, i, 1, start, end, &at);
}

static bool is_part_complete(const struct exec_run *r, uint32_t i, const struct xfer_view *v,
			     uintptr_t start, uintptr_t end)
{
	for (int side = 0; side < 2; side++) {
		uint64_t at, bytes = part_in(r, i, side, start, end, &at);

		if (bytes && !xfer_is_range_done(v, at, bytes))
			return false;
	}
	return true;
}

static int advance(struct exec_run *r)
{
	const struct xfer_view *v;
	struct xfer_view mine;
	int ret = 0;

	for (uint32_t i = 0; !ret && i < r->op_count; i++) {
		ret = view_of(r, i, &mine, &v);
		if (!ret) {
			mine = *v;
			ret = xfer_move(&mine, XFER_ANY);
		}
		ret = ret == -ESTALE || ret == -EAGAIN ? 0 : ret;
	}
	return ret;
}

/* exec_fetch() for operation i alone. */
static int fetch_op(struct exec_run *r, uint32_t i, uintptr_t start, uintptr_t end,
		    bool *out_is_complete)
{
	const struct xfer_view *v;
	struct xfer_view mine;
	uint64_t at = 0;
	int ret;

	*out_is_complete = true;
	if (!part_in(r, i, 0, start, end, &at) && !part_in(r, i, 1, start, end, &at))
		return 0;
	ret = view_of(r, i, &mine, &v);
	if (ret) {
		*out_is_complete = ret == -ESTALE;
		return ret == -EREMOTEIO ? ret : 0;
	}
	mine = *v;
	while (!(*out_is_complete = is_part_complete(r, i, &mine, start, end))) {
		ret = xfer_move(&mine, start ? xfer_fragment_of(&mine.plan, at) : XFER_ANY);
		if (ret <= 0)
			break;
	}
	return ret;
}

static int fetch(struct exec_run *r, uintptr_t start, uintptr_t end, bool *out_is_complete)
{
	int ret = 0;

	*out_is_complete = true;
	for (uint32_t i = 0; ret >= 0 && i < r->op_count; i++) {
		bool is_complete;

		ret = fetch_op(r, i, start, end, &is_complete);
		*out_is_complete &= is_complete;
	}
	return ret < 0 || *out_is_complete ? ret : advance(r);
}

static unsigned poll_facts(struct exec_run *r, uintptr_t start, uintptr_t end, unsigned facts)
{
	for (uint32_t i = 0; facts && i < r->op_count; i++) {
		const struct xfer_view *v;
		struct xfer_view room;
		int ret;

		if (facts == EXEC_IS_COMPLETE && !is_in_range(r, i, start, end))
			continue;
		ret = view_of(r, i, &room, &v);
		if (ret == -ESTALE)
			continue;
		if (ret == -EAGAIN)
			facts &= ~(unsigned)EXEC_IS_MATCHED;
		if (facts & EXEC_IS_CLAIMED && (ret || !transfer_is_claimed(v)))
			facts &= ~(unsigned)EXEC_IS_CLAIMED;
		if (facts & EXEC_IS_COMPLETE &&
		    (ret ? is_in_range(r, i, start, end) : !is_part_complete(r, i, v, start, end)))
			facts &= ~(unsigned)EXEC_IS_COMPLETE;
	}
	return facts;
}

/*
 * Is every fragment claimed, and one not in place? A busy mover holds it, or a channel of the other
 * end, whose fragments only its own process may take back because the channel may still write. exec
 * then wakes that process, which may be computing.
 */
bool transfer_may_be_held(struct exec_run *r, uint32_t i)
{
	const struct xfer_view *v;
	struct xfer_view room;

	return run_op(r, i)->type != OP_COPY && !view_of(r, i, &room, &v) &&
	       v->plan.way == XFER_DIRECT && transfer_is_claimed(v) &&
	       !xfer_is_done(v->x, r->op, v->plan.total);
}

static uint64_t work_bytes(const struct exec_run *r)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < r->op_count; i++) {
		const struct exec_op *o = &r->ops[i];

		if (o->state == EXEC_MATCHED && o->view.plan.others_move &&
		    !transfer_is_claimed(&o->view))
			bytes += o->view.plan.bytes;
	}
	return bytes;
}

const struct run_ops transfers_ops = {
	.publish = publish,
	.peer_count = peer_count,
	.peer_at = peer_at,
	.step = step,
	.help = step_help,
	.need = need,
	.each_range = each_range,
	.advance = advance,
	.fetch = fetch,
	.poll = poll_facts,
	.work_bytes = work_bytes,
};
