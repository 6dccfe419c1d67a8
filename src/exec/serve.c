/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The worker process as a mover: it moves every transfer whose two ends are published and mapped.
 * It may be killed at any moment, so it records each claim.
 */
#include <errno.h>

#include "exec/private.h"

#define UNIT_BITS 6u
#define TAG_BITS 24u
#define INDEX_BITS 12u
#define RANK_BITS 12u

/* group | receiver | its transfer: that of receive n, recv_cap for the copy's | tag | unit */
static uint64_t name_of(uint64_t group, int rank, uint32_t index, uint64_t tag)
{
	uint64_t name = group;

	name = name << RANK_BITS | (uint64_t)rank;
	name = name << INDEX_BITS | index;
	name = name << TAG_BITS | (tag & XFER_TAG_MASK);
	return name << UNIT_BITS;
}

static uint64_t cut(uint64_t *name, unsigned bits)
{
	uint64_t low = *name & ((1ull << bits) - 1);

	*name >>= bits;
	return low;
}

uint32_t exec_name_group(uint64_t name)
{
	return (uint32_t)(name >> (UNIT_BITS + TAG_BITS + INDEX_BITS + RANK_BITS));
}

/* ---- moving ------------------------------------------------------------------------------ */

/* Claim a unit of at most `bytes` bytes and record the claim. Returns: false: none is free. */
static bool claim(const struct exec_mover *m, struct xfer *x, uint64_t tag, uint32_t units,
		  uint64_t bytes, uint64_t name, uint32_t *out_unit)
{
	uint32_t i;

	if (atomic_load_explicit(m->stop, memory_order_relaxed))
		return false;
	m->lock(m->arg);
	i = xfer_claim_marked(x, tag, units, m->intent, name);
	if (i != XFER_NONE) {
		m->began(m->arg, name | i, bytes);
		xfer_unmark(x);
		atomic_store_explicit(m->intent, 0, memory_order_release);
	}
	m->unlock(m->arg);
	*out_unit = i;
	return i != XFER_NONE;
}

static uint64_t unit_bytes(const struct xfer_plan *p, uint32_t unit)
{
	uint64_t at, n;

	if (unit == p->fragments)
		return 0; /* edges count as no bytes here */
	xfer_fragment_range(p, unit, &at, &n);
	return n;
}

/* Returns: false: the owner has not opened the transfer, or the transfer is over. */
static bool serve_view(const struct exec_mover *m, struct xfer_view *v, int rank, uint32_t index)
{
	uint64_t name = name_of(m->group, rank, index, v->tag);
	uint64_t most = base_min_u64(v->plan.bytes, v->plan.large_bytes);
	uint32_t unit;

	if (!v->can_move || !v->src.addr || !v->dst.addr)
		return true;
	while (claim(m, v->x, v->tag, v->units, most, name, &unit)) {
		uint64_t bytes = unit_bytes(&v->plan, unit);

		if (xfer_copy_unit(v, unit)) { /* cannot fail: both ends are mapped */
			xfer_unclaim(v->x, unit);
			node_wake(v->group, v->dst.rank);
			bytes = 0;
		}
		m->ended(m->arg, bytes);
	}
	return xfer_is_tag(atomic_load_explicit(&v->x->claimed, memory_order_relaxed), v->tag);
}

static bool serve_recv(struct exec_comm *e, uint64_t op, int rank, const struct slot_op *recv,
		       const struct exec_mover *m)
{
	struct exec_slot *ss = slot_of(e, (int)recv->peer, op);
	uint32_t index = recv_number(slot_of(e, rank, op), recv);
	const struct slot_op *send;
	struct xfer_view v;

	if (recv->peer >= (uint32_t)e->size || !slot_is_published(ss, op))
		return false;
	send = find_send(e, ss, rank, recv);
	return send &&
	       !match_view(e, op, (int)recv->peer, send, rank, recv, XFER_VIEW_ALIASED, &v) &&
	       serve_view(m, &v, rank, index);
}

static bool serve_copy(struct exec_comm *e, uint64_t op, int rank, const struct slot_op *copy,
		       const struct exec_mover *m)
{
	struct exec_slot *s = slot_of(e, rank, op);
	struct xfer_view v;

	return !match_copy_in(e, s, rank, op, copy, XFER_VIEW_ALIASED, &v) &&
	       serve_view(m, &v, rank, e->recv_cap);
}

/* Like serve_recv(), for a reduction. */
static bool serve_reduce(struct exec_comm *e, uint64_t op, const struct exec_mover *m)
{
	struct slot_reduce at = { e, op };
	struct reduce_view v;
	int ret = slot_reduce_view(&at, &v);
	bool all = true;

	for (uint32_t s = 0; !ret && s < v.shape.ranks; s++) {
		uint64_t name = name_of(m->group, (int)s, 0, op),
			 bytes = v.cut.unit_elements * v.shape.element_bytes;
		struct xfer *x = v.words(v.ctx, s);
		uint32_t unit;

		while (claim(m, x, op, reduce_units(&v.shape, &v.cut, s), bytes * v.shape.ranks,
			     name, &unit)) {
			reduce_do_unit(&v, s, unit); /* cannot fail: no operation of the program */
			m->ended(m->arg, bytes);
		}
		all &= xfer_is_tag(atomic_load_explicit(&x->claimed, memory_order_relaxed), op);
	}
	return ret != -EAGAIN && all;
}

bool exec_serve(struct exec_comm *e, uint64_t tag, const struct exec_mover *m)
{
	bool all = true;

	for (int rank = 0; rank < e->size; rank++) {
		struct exec_slot *s = slot_of(e, rank, tag);
		uint64_t op = atomic_load_explicit(&s->op, memory_order_acquire);

		if (!op || (op & XFER_TAG_MASK) != tag) {
			all = false;
			continue;
		}
		if (s->is_reduce) { /* one reduction for all ranks */
			all &= serve_reduce(e, op, m);
			break;
		}
		for (uint32_t i = 0; i < slot_op_count(e, s); i++) {
			const struct slot_op *o = &slot_ops(s)[i];

			if (o->type == OP_RECV)
				all &= serve_recv(e, op, rank, o, m);
			else if (o->type == OP_COPY)
				all &= serve_copy(e, op, rank, o, m);
		}
	}
	return all && !atomic_load_explicit(m->stop, memory_order_relaxed);
}

/* ---- after the death of the worker process ------------------------------------------------ */

/* The transfer and the unit of a name; NULL when the name is invalid. */
static struct xfer *find_named(const struct exec_comm *e, uint64_t name, uint64_t *out_tag,
			       uint32_t *out_unit)
{
	struct exec_slot *s;
	uint32_t index, rank;

	*out_unit = (uint32_t)cut(&name, UNIT_BITS);
	*out_tag = cut(&name, TAG_BITS);
	index = (uint32_t)cut(&name, INDEX_BITS);
	rank = (uint32_t)cut(&name, RANK_BITS);
	if (rank >= (uint32_t)e->size || index > e->recv_cap || *out_unit >= XFER_UNITS_MAX)
		return NULL;
	s = slot_of(e, (int)rank, *out_tag);
	return index == e->recv_cap ? slot_copied(e, s) : slot_xfer(e, s, index);
}

void exec_reclaim(struct exec_comm *e, uint64_t name, bool is_intent)
{
	uint64_t tag;
	uint32_t unit;
	struct xfer *x = find_named(e, name, &tag, &unit);

	if (!x || (is_intent && !xfer_was_claimed(x, tag, unit)))
		return;
	/* The mover may have died after the copy, before removing its record. */
	if (xfer_is_done(x, tag, xfer_bit(unit)))
		return;
	xfer_unclaim(x, unit);
	for (int r = 0; r < e->size; r++)
		node_wake(e->group, r);
}
