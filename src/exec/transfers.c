/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs of transfers, whose operations are matched with those of the peers. Nothing here writes to a
 * detached run: each caller matches an operation whose peer has published since on its own stack.
 */
#include <errno.h>
#include <string.h>

#include "exec/private.h"

/* ---- publishing -------------------------------------------------------------------------- */

static void publish(struct exec_run *r)
{
	const struct exec_call *call = &r->call;
	struct exec_slot *s = r->slot;

	if (slot_build(s, call->shape, r->comm->rank, r->comm->size))
		xfer_fill_edges(&s->desc[COLL_SEND], call->user[COLL_SEND], s->edges);
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
				.edges = op->type == OP_SEND ? r->slot->edges : NULL };
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

/* View of operation i. Returns: 0; -ESTALE: it is complete; -EAGAIN: the peer has not published. */
static int view_of(struct exec_run *r, uint32_t i, struct xfer_view *out)
{
	if (r->ops[i].state == EXEC_DONE)
		return -ESTALE;
	if (r->ops[i].state != EXEC_MATCHED)
		return match_op(r, i, XFER_VIEW_ALIASED, out);
	*out = r->ops[i].view;
	return 0;
}

/*
 * The program's addresses of operation i's bytes. Side 1 is the source of a copy inside this rank.
 * Returns: false: there is no such side.
 */
static bool local_range(const struct exec_run *r, uint32_t i, int side, uintptr_t *lo,
			uintptr_t *hi)
{
	const struct slot_op *op = run_op(r, i);

	if (side && op->type != OP_COPY)
		return false;
	*lo = side ? r->call.desc[op->src_buf].addr + op->src_off
		   : r->call.desc[op->buf].addr + op->off;
	*hi = *lo + op->bytes;
	return true;
}

static int advance_op(struct exec_run *r, uint32_t i, const uint64_t *offset)
{
	struct xfer_view v;
	int ret = view_of(r, i, &v);

	if (ret)
		return ret == -ESTALE || ret == -EAGAIN ? 0 : ret;
	return xfer_move(&v, offset ? xfer_fragment_of(&v.plan, *offset) : XFER_ANY);
}

static int advance(struct exec_run *r, uintptr_t addr)
{
	uintptr_t lo, hi;
	int ret = 0;

	for (uint32_t i = 0; addr && !ret && i < r->op_count; i++)
		for (int side = 0; side < 2 && !ret && local_range(r, i, side, &lo, &hi); side++)
			if (addr >= lo && addr < hi)
				ret = advance_op(r, i, &(uint64_t){ addr - lo });
	for (uint32_t i = 0; !ret && i < r->op_count; i++)
		ret = advance_op(r, i, NULL);
	return ret;
}

static bool is_part_complete(struct exec_run *r, uint32_t i, uint64_t at, uint64_t bytes)
{
	struct xfer_view v;
	int ret = view_of(r, i, &v);

	return ret == -ESTALE || (!ret && xfer_is_range_done(&v, at, bytes));
}

static bool is_range_complete(struct exec_run *r, uintptr_t start, uintptr_t end)
{
	uintptr_t lo, hi;

	for (uint32_t i = 0; i < r->op_count; i++) {
		for (int side = 0; side < 2 && local_range(r, i, side, &lo, &hi); side++) {
			uintptr_t from = lo > start ? lo : start, to = hi < end ? hi : end;

			if (from < to && !is_part_complete(r, i, from - lo, to - from))
				return false;
		}
	}
	return true;
}

static bool is_op_complete(struct exec_run *r, uint32_t i)
{
	struct xfer_view v;
	int ret = view_of(r, i, &v);

	return ret == -ESTALE || (!ret && xfer_is_done(v.x, r->op, v.plan.total));
}

static bool is_complete(struct exec_run *r)
{
	for (uint32_t i = 0; i < r->op_count; i++)
		if (!is_op_complete(r, i))
			return false;
	return true;
}

static bool is_claimed(struct exec_run *r)
{
	for (uint32_t i = 0; i < r->op_count; i++) {
		struct xfer_view v;
		int ret = view_of(r, i, &v);

		if (ret != -ESTALE && (ret || !transfer_is_claimed(&v)))
			return false;
	}
	return true;
}

static bool is_matched(struct exec_run *r)
{
	for (uint32_t i = 0; i < r->op_count; i++) {
		const struct slot_op *op = run_op(r, i);
		struct exec_slot *s =
			op->type == OP_COPY ? NULL : slot_of(r->comm, (int)op->peer, r->op);

		if (s && !slot_is_published(s, r->op) && !slot_has_passed(s, r->op))
			return false;
	}
	return true;
}

/*
 * Is every fragment claimed, and one not in place? A busy mover holds it, or a channel of the other
 * end, whose fragments only its own process may take back because the channel may still write. exec
 * then wakes that process, which may be computing.
 */
bool transfer_may_be_held(struct exec_run *r, uint32_t i)
{
	struct xfer_view v;

	return run_op(r, i)->type != OP_COPY && !view_of(r, i, &v) &&
	       v.plan.way == XFER_DIRECT && transfer_is_claimed(&v) &&
	       !xfer_is_done(v.x, r->op, v.plan.total);
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
	.is_range_complete = is_range_complete,
	.is_complete = is_complete,
	.is_claimed = is_claimed,
	.is_matched = is_matched,
	.work_bytes = work_bytes,
};
