/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Steps: one small piece of work each, so that a rank serves all its operations and peers evenly.
 */
#include <errno.h>

#include "exec/private.h"
#include "trace/trace.h"

#define COPY_NOW_BYTES 8192u

static void op_done(struct exec_run *r, uint32_t i)
{
	r->ops[i].state = EXEC_DONE;
	r->remaining--;
}

static char *local_address(struct exec_run *r, uint8_t buf, uint64_t off)
{
	return (char *)r->call.user[buf] + off;
}

/* The operation's data is complete: copy the bytes that movers stored in this rank's slot. */
static void copy_edge_buf(struct exec_run *r, const struct slot_op *op)
{
	const struct xfer_end to = { r->call.desc[op->buf], op->off, r->comm->rank,
				     .edges = slot_edge_buf(r->comm, r->slot),
				     .layout = slot_layout(r->comm, r->slot, op->layout) };

	xfer_copy_edge_buf(&to, r->call.user[op->buf], op->bytes);
}

/* First the bytes outside the mapped pages of a buffer, which only this thread can copy. */
static int step_copy_transfer(struct exec_run *r, uint32_t i, bool copy)
{
	struct xfer_view *v = &r->ops[i].view;
	uint64_t edges = v->plan.total & ~xfer_bits(v->plan.fragments);
	int ret = 0;

	if (!v->edges_done)
		ret = xfer_move_edges(v);
	else if (!r->call.is_nonblocking && !xfer_is_done(v->x, v->tag, edges))
		ret = xfer_move(v, v->plan.fragments);
	else if (copy)
		ret = xfer_move(v, XFER_ANY);
	if (!ret && xfer_is_done(v->x, v->tag, v->plan.total)) {
		if (v->plan.fills_edge_buf)
			copy_edge_buf(r, run_op(r, i));
		op_done(r, i);
		return 1;
	}
	return ret;
}

/* A rank about to detach copies by itself when telling others costs as much. */
static bool is_worth_sharing(const struct exec_run *r, const struct slot_op *copy)
{
	return !r->call.is_nonblocking || copy->bytes > COPY_NOW_BYTES;
}

static void copy_typed(struct exec_run *r, const struct slot_op *op, enum base_copy_kernel kernel)
{
	struct layout_end to, from;
	struct layout dst = slot_layout(r->comm, r->slot, op->layout),
		      src = slot_layout(r->comm, r->slot, op->src_layout);

	to = (struct layout_end){ r->call.user[op->buf], op->layout ? &dst : NULL, op->off };
	from = (struct layout_end){ r->call.user[op->src_buf], op->src_layout ? &src : NULL,
				    op->src_off };
	layout_copy(&to, &from, op->bytes, kernel);
}

static int step_copy(struct exec_run *r, uint32_t i, bool copy)
{
	const struct slot_op *op = run_op(r, i);
	enum base_copy_kernel kernel;
	uint64_t since;

	if (r->ops[i].state == EXEC_MATCHED)
		return step_copy_transfer(r, i, copy);
	if (!copy && is_worth_sharing(r, op) && !r->has_copied &&
	    !match_copy(r, i, XFER_VIEW_NORMAL, &r->ops[i].view)) {
		r->ops[i].state = EXEC_MATCHED;
		return 1;
	}
	since = trace_transfer_begin(op->bytes);
	kernel = os_copy_pick(op->bytes, op->bytes);
	if (op->layout || op->src_layout)
		copy_typed(r, op, kernel);
	else
		os_copy(local_address(r, op->buf, op->off),
			local_address(r, op->src_buf, op->src_off), op->bytes, kernel);
	trace_copied(since, .bytes = op->bytes, .op = r->op, .group = r->comm->group_id,
		     .src = r->comm->rank, .dst = r->comm->rank, .by = r->comm->rank,
		     .mover = TRACE_CPU);
	op_done(r, i);
	return 1;
}

/* ---- matching ---------------------------------------------------------------------------- */

static int step_match(struct exec_run *r, uint32_t i)
{
	const struct slot_op *op = run_op(r, i);
	struct exec_op *o = &r->ops[i];
	int ret = match_op(r, i, XFER_VIEW_NORMAL, &o->view);

	if (ret == -ESTALE) {
		if (op->type == OP_RECV && r->call.is_nonblocking)
			copy_edge_buf(r, op);
		op_done(r, i);
		return 1;
	}
	if (ret)
		return ret == -EAGAIN ? 0 : ret;
	o->staged = o->view.plan.way == XFER_STAGED;
	if (o->staged && op->type == OP_SEND) {
		r->stage_src = local_address(r, op->buf, op->off);
		r->stage_bytes = op->bytes;
		/* the peer may have polled before an earlier chunk was filled, and gone to sleep */
		node_wake(r->comm->group, (int)op->peer);
	}
	o->state = EXEC_MATCHED;
	return 1;
}

/* ---- moving ------------------------------------------------------------------------------ */

static bool is_same_range(const struct slot_op *a, const struct slot_op *b)
{
	return a->type == OP_SEND && a->buf == b->buf && a->off == b->off &&
	       a->bytes == b->bytes;
}

/* The extent that holds send i for its receiver: sends of the same bytes share a place. */
static int repair_place(struct exec_run *r, uint32_t i, struct region_extent *out)
{
	const struct slot_op *ops = slot_ops(r->slot);
	struct exec_comm *e = r->comm;
	uint64_t at = 0, all = 0;

	for (uint32_t k = 0; k < r->op_count; k++) {
		uint32_t first = 0;

		while (!is_same_range(&ops[first], &ops[k]) && first < k)
			first++;
		if (ops[k].type != OP_SEND || first < k)
			continue;
		if (is_same_range(&ops[k], &ops[i]))
			at = all;
		all += base_round_up(ops[k].bytes, OS_PAGE);
	}
	if (e->repair.bytes < all) { /* never while a receiver of this collective may read it */
		if (e->repair.bytes)
			region_extent_put(&e->repair);
		e->repair.bytes = 0;
		if (region_extent_get(all, false, &e->repair))
			return -ENOSPC;
	}
	*out = (struct region_extent){ e->repair.offset + at, ops[i].bytes };
	return 0;
}

static int step_send(struct exec_run *r, uint32_t i, bool copy)
{
	struct exec_op *o = &r->ops[i];
	struct region_extent place;
	int ret = o->staged || !copy ? 0 : xfer_move(&o->view, XFER_ANY);

	if (ret)
		return ret;
	if (xfer_is_done(o->view.x, r->op, o->view.plan.total)) {
		op_done(r, i);
		return 1;
	}
	if (!o->staged && base_unlikely(xfer_needs_repair(&o->view))) {
		ret = repair_place(r, i, &place);
		return ret ? ret : xfer_repair_send(&o->view, &place);
	}
	return 0;
}

static int step_recv(struct exec_run *r, uint32_t i, bool copy)
{
	struct exec_op *o = &r->ops[i];
	int ret = 0;

	if (o->staged) {
		struct exec_slot *peer = slot_of(r->comm, o->view.src.rank, r->op);

		ret = xfer_stage_drain(&o->view, &peer->filled, ring_of(r->comm, o->view.src.rank));
	} else if (!o->view.edges_done) {
		ret = xfer_move_edges(&o->view);
	} else if (copy) {
		ret = xfer_move(&o->view, XFER_ANY);
	}
	if (ret)
		return ret;
	if (xfer_is_done(o->view.x, r->op, o->view.plan.total)) {
		if (o->view.plan.fills_edge_buf)
			copy_edge_buf(r, run_op(r, i));
		op_done(r, i);
		return 1;
	}
	return o->staged ? 0 : xfer_repair_receive(&o->view);
}

int step_op(struct exec_run *r, uint32_t i, enum exec_copy copy)
{
	uint16_t type = run_op(r, i)->type;
	struct exec_op *o = &r->ops[i];

	if (o->state == EXEC_DONE)
		return 0;
	if (type == OP_COPY)
		return step_copy(r, i, copy != EXEC_COPY_NOTHING);
	if (o->state == EXEC_ACTIVE)
		return step_match(r, i);
	return type == OP_SEND ? step_send(r, i, copy == EXEC_COPY_ALL)
				 : step_recv(r, i, copy == EXEC_COPY_ALL);
}

/* ---- staging: one stream for all receivers of it ----------------------------------------- */

int step_stage(struct exec_run *r)
{
	const struct slot_op *ops = slot_ops(r->slot);
	struct exec_comm *e = r->comm;
	uint64_t consumed = UINT64_MAX;
	int ret;

	if (!r->stage_src)
		return 0;
	for (uint32_t i = 0; i < r->op_count; i++) {
		const struct exec_op *o = &r->ops[i];

		if (ops[i].type != OP_SEND || o->state == EXEC_DONE)
			continue;
		if (o->state != EXEC_MATCHED)
			consumed = 0; /* the receive may be staged as well */
		else if (o->staged)
			consumed = base_min_u64(consumed, xfer_stage_consumed(o->view.x, r->op));
	}
	if (consumed == UINT64_MAX)
		return 0;
	ret = xfer_stage_fill(&r->slot->filled, r->op, ring_of(e, e->rank), r->stage_src,
			      r->stage_bytes, consumed);
	for (uint32_t i = 0; ret && i < r->op_count; i++)
		if (ops[i].type == OP_SEND && r->ops[i].staged &&
		    r->ops[i].state == EXEC_MATCHED)
			node_wake(e->group, (int)ops[i].peer);
	return ret;
}

/* ---- helping ----------------------------------------------------------------------------- */

#define HELP_TRIES                                                                                 \
	64u /* transfers checked per pass: an idle rank soon makes another pass */

/* Can this rank help with the receive? HELP_READY, HELP_COMPLETE, or HELP_UNKNOWN: not yet. */
static int classify_help(struct exec_run *r, int rank, const struct slot_op *recv,
			 struct xfer_view *v)
{
	struct exec_comm *e = r->comm;
	const struct slot_op *send;
	struct exec_slot *ss;
	int ret;

	if (recv->type != OP_RECV || recv->peer == (uint32_t)e->rank ||
	    recv->peer >= (uint32_t)e->size)
		return HELP_COMPLETE;
	ss = slot_of(e, (int)recv->peer, r->op);
	if (!slot_is_published(ss, r->op))
		return slot_has_passed(ss, r->op) ? HELP_COMPLETE : HELP_UNKNOWN;
	send = find_send(e, ss, rank, recv);
	ret = send ? match_view(e, r->op, (int)recv->peer, send, rank, recv, XFER_VIEW_NORMAL, v)
		   : -EREMOTEIO;
	if (ret == -EAGAIN)
		return HELP_UNKNOWN;
	return !ret && v->plan.others_move && v->can_move ? HELP_READY : HELP_COMPLETE;
}

/* Find the next receive of rank `rank` that this rank can help with. */
static void find_help(struct exec_run *r, int rank, uint32_t *tries)
{
	struct exec_comm *e = r->comm;
	struct exec_slot *ds = slot_of(e, rank, r->op);
	struct exec_help *h = &e->help[rank];

	if (!slot_is_published(ds, r->op)) {
		if (slot_has_passed(ds, r->op))
			h->state = HELP_COMPLETE;
		return;
	}
	for (; h->next < slot_op_count(e, ds) && *tries; h->next++, --*tries) {
		h->state = classify_help(r, rank, &slot_ops(ds)[h->next], &h->view);
		if (h->state == HELP_READY) {
			--*tries;
			return;
		}
		h->is_missed |= h->state == HELP_UNKNOWN;
	}
	h->state = HELP_UNKNOWN;
	if (!*tries)
		return;
	h->state = h->is_missed ? HELP_UNKNOWN : HELP_COMPLETE;
	h->is_missed = false;
	h->next = 0;
}

static void help_begin(struct exec_run *r)
{
	struct exec_comm *e = r->comm;

	e->help_op = r->op;
	for (int k = 0; k < e->size; k++) {
		e->help[k].state = k == e->rank ? HELP_COMPLETE : HELP_UNKNOWN;
		e->help[k].next = 0;
		e->help[k].is_missed = false;
	}
}

/* Move one fragment that rank `rank` receives. */
static int help_rank(struct exec_run *r, int rank, uint32_t *tries)
{
	struct exec_help *h = &r->comm->help[rank];
	int ret = 0;

	while (!ret && h->state != HELP_COMPLETE && *tries) {
		if (h->state == HELP_UNKNOWN)
			find_help(r, rank, tries);
		if (h->state != HELP_READY)
			break;
		ret = xfer_move(&h->view, XFER_ANY);
		if (!ret) { /* every fragment is claimed */
			h->state = HELP_UNKNOWN;
			h->next++;
		}
	}
	return ret;
}

int step_help(struct exec_run *r)
{
	struct exec_comm *e = r->comm;
	uint32_t tries = HELP_TRIES;

	if (!base_opt.xfer_help || e->size < 3)
		return 0;
	if (e->help_op != r->op)
		help_begin(r);
	for (int k = 0; k < e->size; k++) {
		int rank = (int)((r->next_help + (uint32_t)k) % (uint32_t)e->size);
		int ret = help_rank(r, rank, &tries);

		if (ret || !tries) {
			r->next_help = (uint32_t)rank;
			return ret;
		}
	}
	return 0;
}
