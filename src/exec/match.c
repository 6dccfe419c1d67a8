/* SPDX-License-Identifier: BSD-3-Clause */
/* Where things lie in the slots, and which receive belongs to which send. */
#include <errno.h>

#include "exec/private.h"

struct exec_slot *slot_of(const struct exec_comm *e, int rank, uint64_t op)
{
	char *area = node_area(e->group, rank);

	return (struct exec_slot *)(area + op % EXEC_SLOTS * e->slot_bytes);
}

bool slot_is_published(const struct exec_slot *s, uint64_t op)
{
	return atomic_load_explicit(&s->op, memory_order_acquire) == op;
}

bool slot_is_still(const struct exec_slot *s, uint64_t op)
{
	atomic_thread_fence(memory_order_acquire); /* partner: the fence in publish */
	return atomic_load_explicit(&s->op, memory_order_relaxed) == op;
}

bool slot_has_passed(const struct exec_slot *s, uint64_t op)
{
	return atomic_load_explicit(&s->op, memory_order_acquire) > op;
}

bool slot_is_over(const struct exec_slot *s, uint64_t op)
{
	return atomic_load_explicit(&s->over, memory_order_acquire) >= op;
}

struct goal_block *slot_schedule(struct exec_slot *s) { return (struct goal_block *)(s + 1); }

struct xfer *slot_xfer(const struct exec_comm *e, struct exec_slot *s, uint32_t recv)
{
	return (struct xfer *)((char *)s + e->xfers_off) + recv;
}

static _Atomic uint64_t *slot_started(const struct exec_comm *e, const struct exec_slot *s, uint32_t i)
{
	return (_Atomic uint64_t *)((char *)s + e->started_off) + i;
}

void slot_start(const struct exec_comm *e, uint32_t i)
{
	const struct goal_op *op = &goal_ops_const(e->block)[i];

	if (op->type == GOAL_COPY)
		return;
	atomic_store_explicit(slot_started(e, e->slot, i), e->op, memory_order_release); /* partner: has_started */
	node_ring(e->group, (int)op->peer);
}

/* op: of the schedule in slot s */
static bool has_started(const struct exec_comm *e, struct exec_slot *s, const struct goal_op *op)
{
	uint32_t i = (uint32_t)(op - goal_ops_const(slot_schedule(s)));

	return !op->requires || atomic_load_explicit(slot_started(e, s, i), memory_order_acquire) == e->op;
}

char *ring_of(const struct exec_comm *e, int rank) { return (char *)node_area(e->group, rank) + e->ring_off; }

static bool is_match(const struct goal_op *recv, int src, const struct goal_op *send)
{
	return recv->type == GOAL_RECV && recv->peer == (uint32_t)src && recv->tag == send->tag;
}

/* The sender's hint saves the search: the number of the receive, which mostly is its index too. */
const struct goal_op *find_recv(const struct exec_comm *e, struct exec_slot *s, int src, const struct goal_op *send)
{
	const struct goal_block *b = slot_schedule(s);
	const struct goal_op *ops = goal_ops_const(b);

	if (send->match < b->op_count && ops[send->match].match == send->match && is_match(&ops[send->match], src, send))
		return &ops[send->match];
	for (uint32_t i = 0; i < b->op_count; i++)
		if (is_match(&ops[i], src, send))
			return &ops[i];
	return NULL;
}

const struct goal_op *find_send(struct exec_slot *s, int dst, const struct goal_op *recv)
{
	const struct goal_block *b = slot_schedule(s);
	const struct goal_op *ops = goal_ops_const(b);

	for (uint32_t i = 0; i < b->op_count; i++)
		if (ops[i].type == GOAL_SEND && ops[i].peer == (uint32_t)dst && ops[i].tag == recv->tag)
			return &ops[i];
	return NULL;
}

int match_view(struct exec_comm *e, int src, const struct goal_op *send, int dst, const struct goal_op *recv,
	       struct xfer_view *v)
{
	struct exec_slot *ss = slot_of(e, src, e->op), *ds = slot_of(e, dst, e->op);
	struct xfer_end from = { ss->desc[send->mem], send->off, src };
	struct xfer_end to = { ds->desc[recv->mem], recv->off, dst };
	struct xfer_reach reach = {
		.can_read = node_can_read(e->group, dst, src),
		.can_write = node_can_write(e->group, src, dst),
		.prefer_vm = ss->prefer_vm && ds->prefer_vm,
	};
	bool edges = ss->has_edges && has_inline_edges(send);
	bool can_start = has_started(e, ss, send) && has_started(e, ds, recv);
	struct xfer_plan plan;

	uint64_t send_bytes = send->bytes, recv_bytes = recv->bytes;
	uint32_t number = recv->match;

	/* A sender or a helper may be so late that an owner is rewriting its slot: what was read counts
	 * only if both slots are still those of this collective. (What it maps and claims then is safe:
	 * a transfer cannot end, and so a slot cannot change, while one of its fragments is claimed.) */
	if (!slot_is_still(ss, e->op) || !slot_is_still(ds, e->op) || !can_start)
		return -EAGAIN;
	if (send_bytes != recv_bytes)
		return -EREMOTEIO;
	xfer_plan(&from, &to, send_bytes, &reach, edges, &plan);
	xfer_view_init(v, slot_xfer(e, ds, number), e->op, e->group, &from, &to, &plan,
		       edges ? ss->edges : NULL);
	return 0;
}
