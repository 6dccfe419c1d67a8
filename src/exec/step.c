/* SPDX-License-Identifier: BSD-3-Clause */
/* One small piece of work at a time, so that a rank serves all its operations and its peers evenly. */
#include <errno.h>

#include "exec/private.h"

static void op_done(struct exec_comm *e, uint32_t i)
{
	const struct goal_op *op = &goal_ops_const(e->block)[i];
	const uint32_t *next = goal_adjacency(e->block) + op->next;

	e->ops[i].state = EXEC_DONE;
	e->left--;
	for (uint32_t k = 0; k < op->next_count; k++) {
		if (--e->ops[next[k]].waits)
			continue;
		e->ops[next[k]].state = EXEC_ACTIVE;
		slot_start(e, next[k]);
	}
}

static char *local_address(struct exec_comm *e, uint16_t mem, uint64_t off)
{
	if (mem == GOAL_SCRATCH)
		return (char *)(uintptr_t)e->call->desc[GOAL_SCRATCH].addr + off;
	return (char *)e->call->user[mem - GOAL_USER] + off;
}

static int step_copy(struct exec_comm *e, uint32_t i)
{
	const struct goal_op *op = &goal_ops_const(e->block)[i];

	host_copy(local_address(e, op->mem, op->off), local_address(e, op->src_mem, op->src_off), op->bytes,
		  host_copy_pick(op->bytes, op->bytes));
	op_done(e, i);
	return 1;
}

/* ---- matching ---------------------------------------------------------------------------------- */

/*
 * A receiver needs nothing of its sender but what the sender has published: it may have received, and
 * have used its slot for later collectives, before we look at it.
 */
static int match_send(struct exec_comm *e, uint32_t i)
{
	const struct goal_op *op = &goal_ops_const(e->block)[i], *recv;
	struct exec_slot *peer = slot_of(e, (int)op->peer, e->op);
	struct exec_op *o = &e->ops[i];
	int ret;

	if (slot_has_passed(peer, e->op)) {
		op_done(e, i);
		return 1;
	}
	if (!slot_is_published(peer, e->op))
		return 0;
	recv = find_recv(e, peer, e->rank, op);
	ret = recv ? match_view(e, e->rank, op, (int)op->peer, recv, &o->view) : -EREMOTEIO;
	if (ret)
		return ret == -EAGAIN || !slot_is_still(peer, e->op) ? 0 : ret;
	o->staged = o->view.plan.way == XFER_STAGED;
	if (o->staged) {
		e->stage_src = local_address(e, op->mem, op->off);
		e->stage_bytes = op->bytes;
		/* it may have looked, and gone to sleep, before a chunk that was filled before we met */
		node_ring(e->group, (int)op->peer);
	}
	o->state = EXEC_MATCHED;
	return 1;
}

static int match_recv(struct exec_comm *e, uint32_t i)
{
	const struct goal_op *op = &goal_ops_const(e->block)[i], *send;
	struct exec_slot *peer = slot_of(e, (int)op->peer, e->op);
	struct exec_op *o = &e->ops[i];
	int ret;

	if (!slot_is_published(peer, e->op))
		return 0;
	send = find_send(peer, e->rank, op);
	if (!send)
		return -EREMOTEIO;
	ret = match_view(e, (int)op->peer, send, e->rank, op, &o->view);
	if (ret)
		return ret == -EAGAIN ? 0 : ret;
	o->staged = o->view.plan.way == XFER_STAGED;
	o->state = EXEC_MATCHED;
	return 1;
}

/* ---- moving -------------------------------------------------------------------------------------- */

static bool is_same_range(const struct goal_op *a, const struct goal_op *b)
{
	return a->type == GOAL_SEND && a->mem == b->mem && a->off == b->off && a->bytes == b->bytes;
}

/* Where send i is laid out for its receiver: sends of the same bytes share a place. */
static int repair_place(struct exec_comm *e, uint32_t i, struct region_extent *out)
{
	const struct goal_op *ops = goal_ops_const(e->block);
	uint64_t at = 0, all = 0;

	for (uint32_t k = 0; k < e->block->op_count; k++) {
		uint32_t first = 0;

		while (!is_same_range(&ops[first], &ops[k]) && first < k)
			first++;
		if (ops[k].type != GOAL_SEND || first < k)
			continue;
		if (is_same_range(&ops[k], &ops[i]))
			at = all;
		all += base_round_up(ops[k].bytes, HOST_PAGE);
	}
	if (e->repair.bytes < all) { /* not while a receiver of this collective may read it */
		if (e->repair.bytes)
			region_extent_put(&e->repair);
		e->repair.bytes = 0;
		if (region_extent_get(all, false, &e->repair))
			return -ENOSPC;
	}
	*out = (struct region_extent){ e->repair.offset + at, ops[i].bytes };
	return 0;
}

static int step_send(struct exec_comm *e, uint32_t i)
{
	struct exec_op *o = &e->ops[i];
	struct region_extent place;
	int ret = o->staged ? 0 : xfer_move(&o->view);

	if (ret)
		return ret;
	if (xfer_is_done(o->view.x, e->op, o->view.plan.total)) {
		op_done(e, i);
		return 1;
	}
	if (!o->staged && base_unlikely(xfer_needs_repair(&o->view))) {
		ret = repair_place(e, i, &place);
		return ret ? ret : xfer_repair_send(&o->view, &place);
	}
	return 0;
}

static int step_recv(struct exec_comm *e, uint32_t i)
{
	struct exec_op *o = &e->ops[i];
	int ret;

	if (o->staged) {
		struct exec_slot *peer = slot_of(e, o->view.src_rank, e->op);

		ret = xfer_stage_take(&o->view, &peer->filled, ring_of(e, o->view.src_rank));
	} else if (!o->view.edges_done) {
		ret = xfer_move_edges(&o->view);
	} else {
		ret = xfer_move(&o->view);
	}
	if (ret)
		return ret;
	if (xfer_is_done(o->view.x, e->op, o->view.plan.total)) {
		op_done(e, i);
		return 1;
	}
	return o->staged ? 0 : xfer_repair_receive(&o->view);
}

int step_op(struct exec_comm *e, uint32_t i)
{
	uint16_t type = goal_ops_const(e->block)[i].type;
	struct exec_op *o = &e->ops[i];

	if (o->state == EXEC_BLOCKED || o->state == EXEC_DONE)
		return 0;
	if (type == GOAL_COPY)
		return step_copy(e, i);
	if (o->state == EXEC_ACTIVE)
		return type == GOAL_SEND ? match_send(e, i) : match_recv(e, i);
	return type == GOAL_SEND ? step_send(e, i) : step_recv(e, i);
}

/* ---- staging: one stream for all receivers of it ---------------------------------------------------- */

int step_stage(struct exec_comm *e)
{
	const struct goal_op *ops = goal_ops_const(e->block);
	uint64_t consumed = UINT64_MAX;
	int ret;

	if (!e->stage_src)
		return 0;
	for (uint32_t i = 0; i < e->block->op_count; i++) {
		const struct exec_op *o = &e->ops[i];

		if (ops[i].type != GOAL_SEND || o->state == EXEC_DONE)
			continue;
		if (o->state != EXEC_MATCHED)
			consumed = 0; /* may turn out to be staged as well */
		else if (o->staged)
			consumed = base_min_u64(consumed, xfer_stage_consumed(o->view.x, e->op));
	}
	if (consumed == UINT64_MAX)
		return 0;
	ret = xfer_stage_fill(&e->slot->filled, e->op, ring_of(e, e->rank), e->stage_src, e->stage_bytes, consumed);
	for (uint32_t i = 0; ret && i < e->block->op_count; i++)
		if (ops[i].type == GOAL_SEND && e->ops[i].staged && e->ops[i].state == EXEC_MATCHED)
			node_ring(e->group, (int)ops[i].peer);
	return ret;
}

/* ---- helping ------------------------------------------------------------------------------------------- */

/* Prepare to help with what rank r receives, once both its ends are published. */
static void find_help(struct exec_comm *e, int r)
{
	struct exec_slot *ds = slot_of(e, r, e->op), *ss;
	struct exec_help *h = &e->help[r];
	const struct goal_op *recv, *send;
	int ret;

	if (!slot_is_published(ds, e->op))
		return;
	h->state = HELP_OVER;
	recv = goal_ops_const(slot_schedule(ds));
	/* flat trees: a rank other than the root receives once; a root is helped by its own senders */
	if (slot_schedule(ds)->recv_count != 1 || recv->type != GOAL_RECV || recv->peer == (uint32_t)e->rank)
		return;
	ss = slot_of(e, (int)recv->peer, e->op);
	if (!slot_is_published(ss, e->op)) {
		h->state = HELP_UNKNOWN;
		return;
	}
	send = find_send(ss, r, recv);
	ret = send ? match_view(e, (int)recv->peer, send, r, recv, &h->view) : -EREMOTEIO;
	if (ret == -EAGAIN)
		h->state = HELP_UNKNOWN;
	else if (!ret && h->view.plan.others_move && h->view.can_move)
		h->state = HELP_READY;
}

int step_help(struct exec_comm *e)
{
	for (int k = 0; k < e->size; k++) {
		int r = (int)((e->next_help + (uint32_t)k) % (uint32_t)e->size);
		struct exec_help *h = &e->help[r];
		int ret;

		if (r == e->rank || h->state == HELP_OVER)
			continue;
		if (h->state == HELP_UNKNOWN)
			find_help(e, r);
		if (h->state != HELP_READY)
			continue;
		ret = xfer_move(&h->view);
		if (ret) {
			e->next_help = (uint32_t)r;
			return ret;
		}
		h->state = HELP_OVER;
	}
	return 0;
}
