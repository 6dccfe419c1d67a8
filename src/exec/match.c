/* SPDX-License-Identifier: BSD-3-Clause */
/* The layout of slots, and the matching of sends and receives. */
#include <errno.h>

#include "exec/private.h"

static char *area_of(const struct exec_comm *e, int rank)
{
	return e->area + (uint64_t)rank * e->area_bytes;
}

struct exec_slot *slot_of(const struct exec_comm *e, int rank, uint64_t op)
{
	return (struct exec_slot *)(area_of(e, rank) + op % e->slots * e->slot_bytes);
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

bool slot_is_complete(const struct exec_slot *s, uint64_t op)
{
	return atomic_load_explicit(&s->completed, memory_order_acquire) >= op;
}

void slot_note_waiting(const struct exec_run *r, const struct node_wait *w)
{
	_Atomic uint64_t *since = &r->slot->waits_since_ns;

	if (base_unlikely(atomic_load_explicit(since, memory_order_relaxed) != w->since_ns))
		atomic_store_explicit(since, w->since_ns, memory_order_relaxed);
}

void slot_note_working(const struct exec_run *r)
{
	slot_note_waiting(r, &(struct node_wait){ 0 });
}

struct slot_op *slot_ops(struct exec_slot *s) { return (struct slot_op *)(s + 1); }

uint32_t slot_op_count(const struct exec_comm *e, const struct exec_slot *s)
{
	return s->op_count < e->op_cap ? s->op_count : e->op_cap;
}

struct xfer *slot_copied(const struct exec_comm *e, struct exec_slot *s)
{
	return (struct xfer *)((char *)s + e->xfers_off);
}

struct xfer *slot_xfer(const struct exec_comm *e, struct exec_slot *s, uint32_t recv)
{
	return slot_copied(e, s) + 1 + recv;
}

char *slot_send_edges(const struct exec_comm *e, struct exec_slot *s)
{
	return (char *)s + e->edges_off;
}

char *slot_edge_buf(const struct exec_comm *e, struct exec_slot *s)
{
	return (char *)s + e->edges_off + 2 * XFER_EDGE_BYTES;
}

struct layout *slot_layouts(const struct exec_comm *e, struct exec_slot *s)
{
	return (struct layout *)((char *)s + e->layouts_off);
}

struct layout slot_layout(const struct exec_comm *e, struct exec_slot *s, uint32_t index)
{
	if (!index)
		return (struct layout){ 0 };
	if (index > layouts_max(e->size))
		return layout_block(-1, 1);
	return slot_layouts(e, s)[index - 1];
}

char *ring_of(const struct exec_comm *e, int rank)
{
	return area_of(e, rank) + e->ring_off;
}

static bool is_match(const struct slot_op *recv, int src, const struct slot_op *send)
{
	return recv->type == OP_RECV && recv->peer == (uint32_t)src && recv->tag == send->tag;
}

/*
 * The sender's hint gives the place of the receive, unless parts without bytes shift it: then
 * search.
 */
const struct slot_op *find_recv(const struct exec_comm *e, struct exec_slot *s, int src,
				const struct slot_op *send)
{
	uint32_t n = slot_op_count(e, s), hint = send->match;
	const struct slot_op *ops = slot_ops(s);

	n = n < e->recv_cap ? n : e->recv_cap;
	if (hint < n && is_match(&ops[hint], src, send))
		return &ops[hint];
	for (uint32_t i = 0; i < n; i++)
		if (is_match(&ops[i], src, send))
			return &ops[i];
	return NULL;
}

/*
 * Sends follow the receives, ordered by receiving rank: search downwards from the place that a
 * schedule without empty parts would give.
 */
const struct slot_op *find_send(const struct exec_comm *e, struct exec_slot *s, int dst,
				const struct slot_op *recv)
{
	const struct slot_op *ops = slot_ops(s);
	uint32_t n = slot_op_count(e, s), i = s->recv_count + (uint32_t)dst;

	i = i < n ? i : n - 1;
	for (uint32_t k = 0; k < n; k++, i = i ? i - 1 : n - 1)
		if (ops[i].type == OP_SEND && ops[i].peer == (uint32_t)dst &&
		    ops[i].tag == recv->tag)
			return &ops[i];
	return NULL;
}

uint32_t recv_number(struct exec_slot *s, const struct slot_op *recv)
{
	return (uint32_t)(recv - slot_ops(s));
}

int match_view(struct exec_comm *e, uint64_t op, int src, const struct slot_op *send, int dst,
	       const struct slot_op *recv, enum xfer_view_mode mode, struct xfer_view *v)
{
	struct exec_slot *ss = slot_of(e, src, op), *ds = slot_of(e, dst, op);
	uint64_t send_bytes = send->bytes, recv_bytes = recv->bytes;
	struct xfer_reach reach = {
		.can_read = node_can_read(e->group, dst, src),
		.can_write = node_can_write(e->group, src, dst),
		.prefer_vm = ss->prefer_vm && ds->prefer_vm,
	};

	v->x = slot_xfer(e, ds, recv_number(ds, recv));
	v->tag = op;
	v->group = e->group;
	v->src = (struct xfer_end){ ss->desc[send->buf], send->off, src,
				    .edges = slot_send_edges(e, ss),
				    .layout = slot_layout(e, ss, send->layout) };
	v->dst = (struct xfer_end){ ds->desc[recv->buf], recv->off, dst,
				    .edges = ds->is_nonblocking ? slot_edge_buf(e, ds) : NULL,
				    .layout = slot_layout(e, ds, recv->layout) };
	/*
	 * A late sender or helper may read a slot while its owner rewrites it, so the data read
	 * counts only if both slots still belong to this collective. Mapping and claiming are safe
	 * after that: a transfer cannot end, and so its slot cannot change, while one of its
	 * fragments is claimed.
	 */
	if (!slot_is_still(ss, op) || !slot_is_still(ds, op))
		return -EAGAIN;
	if (send_bytes != recv_bytes || !xfer_end_is_valid(&v->src, send_bytes) ||
	    !xfer_end_is_valid(&v->dst, send_bytes))
		return -EREMOTEIO;
	xfer_plan(&v->src, &v->dst, send_bytes, &reach, &v->plan);
	xfer_view_init(v, mode);
	return 0;
}

/*
 * A receiver needs only what its sender has published, so the receiver may receive and reuse its
 * slot before the sender tries to match: the sender gets -ESTALE.
 */
int match_op(struct exec_run *r, uint32_t i, enum xfer_view_mode mode, struct xfer_view *v)
{
	const struct slot_op *op = run_op(r, i), *other;
	struct exec_comm *e = r->comm;
	struct exec_slot *peer = slot_of(e, (int)op->peer, r->op);
	int ret;

	if (slot_has_passed(peer, r->op))
		return -ESTALE;
	if (!slot_is_published(peer, r->op))
		return -EAGAIN;
	if (op->type == OP_SEND) {
		other = find_recv(e, peer, e->rank, op);
		ret = !other ? -EREMOTEIO :
			       match_view(e, r->op, e->rank, op, (int)op->peer, other, mode, v);
	} else {
		other = find_send(e, peer, e->rank, op);
		ret = !other ? -EREMOTEIO :
			       match_view(e, r->op, (int)op->peer, other, e->rank, op, mode, v);
	}
	if (!ret || slot_is_still(peer, r->op))
		return ret;
	return -EAGAIN; /* the peer passed on meanwhile */
}

static bool is_first_copy(struct exec_slot *s, const struct slot_op *copy)
{
	const struct slot_op *op = slot_ops(s);

	while (op < copy && op->type != OP_COPY)
		op++;
	return op == copy;
}

int match_copy_in(struct exec_comm *e, struct exec_slot *s, int rank, uint64_t op,
		  const struct slot_op *copy, enum xfer_view_mode mode, struct xfer_view *v)
{
	v->x = slot_copied(e, s);
	v->tag = op;
	v->group = e->group;
	v->src = (struct xfer_end){ s->desc[copy->src_buf], copy->src_off, rank,
				    .edges = s->is_nonblocking ? slot_send_edges(e, s) : NULL,
				    .layout = slot_layout(e, s, copy->src_layout) };
	v->dst = (struct xfer_end){ s->desc[copy->buf], copy->off, rank,
				    .edges = s->is_nonblocking ? slot_edge_buf(e, s) : NULL,
				    .layout = slot_layout(e, s, copy->layout) };
	if (!slot_is_still(s, op)) /* before what was read is mapped: see match_view() */
		return -EAGAIN;
	if (!(v->src.desc.flags & v->dst.desc.flags & REGION_DESC_MAPPED) ||
	    !xfer_end_is_valid(&v->src, copy->bytes) || !xfer_end_is_valid(&v->dst, copy->bytes) ||
	    !is_first_copy(s, copy))
		return -EINVAL;
	xfer_plan(&v->src, &v->dst, copy->bytes, &(struct xfer_reach){ 0 }, &v->plan);
	if (v->plan.way != XFER_DIRECT || !v->plan.fragments)
		return -EINVAL;
	xfer_view_init(v, mode);
	return 0;
}

int match_copy(struct exec_run *r, uint32_t i, enum xfer_view_mode mode, struct xfer_view *v)
{
	int ret = match_copy_in(r->comm, r->slot, r->comm->rank, r->op, run_op(r, i), mode, v);

	if (!ret && !r->has_copied) {
		xfer_open(slot_copied(r->comm, r->slot), r->op);
		r->has_copied = true;
	}
	return ret;
}
