/* SPDX-License-Identifier: BSD-3-Clause */
/* Copying fragments: by loads and stores where both ends are mapped here, by system call elsewhere. */
#include <errno.h>
#include <string.h>

#include "xfer/xfer.h"

/* Where this process sees byte 0 of an end, or NULL. By system call a transfer moves whole, so that
 * the mapped middle of a peer's buffer does not do. */
static char *map_end(struct node_group *g, const struct xfer_end *e, enum xfer_way way)
{
	const struct region_desc *d = &e->desc;
	uint64_t middle = d->bytes - d->head - d->tail;
	char *p;

	if (e->rank == node_rank(g))
		return (char *)(uintptr_t)d->addr + e->off;
	if (way == XFER_VM || !(d->flags & REGION_DESC_MAPPED))
		return NULL;
	p = node_map(g, e->rank, d->arena_off, middle);
	if (!p)
		return NULL;
	node_premap(g, e->rank, d->id, p, middle);
	return p - d->head + e->off;
}

static uint64_t sub_floor(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* Which transfer bytes the sender's inline edges hold. */
static void set_edges(struct xfer_view *v, const struct xfer_end *src, const char *edges)
{
	const struct region_desc *d = &src->desc;
	bool mapped = d->flags & REGION_DESC_MAPPED;
	uint64_t n = base_min_u64(XFER_EDGE_BYTES, d->bytes);
	uint64_t head = mapped ? d->head : n, tail = mapped ? d->tail : n;

	v->edge_tail_begin = v->plan.bytes;
	if (!edges)
		return;
	v->edge_head = edges + src->off; /* of transfer byte 0; used below edge_head_end only */
	v->edge_head_end = base_min_u64(sub_floor(head, src->off), v->plan.bytes);
	v->edge_tail_begin = base_min_u64(sub_floor(d->bytes - tail, src->off), v->plan.bytes);
	v->edge_tail = edges + XFER_EDGE_BYTES + (src->off + v->edge_tail_begin - (d->bytes - tail));
}

void xfer_view_init(struct xfer_view *v, struct xfer *x, uint64_t tag, struct node_group *g,
		    const struct xfer_end *src, const struct xfer_end *dst, const struct xfer_plan *plan,
		    const char *edges)
{
	int me = node_rank(g);

	*v = (struct xfer_view){ .x = x, .plan = *plan, .tag = tag, .group = g,
				 .src_rank = src->rank, .dst_rank = dst->rank };
	v->src = map_end(g, src, plan->way);
	v->dst = map_end(g, dst, plan->way);
	v->src_remote = src->desc.addr + src->off;
	v->dst_remote = dst->desc.addr + dst->off;
	if (src->rank == me) {
		v->src_hi = plan->bytes;
	} else if (v->src) {
		v->src_lo = base_min_u64(sub_floor(src->desc.head, src->off), plan->bytes);
		v->src_hi = base_min_u64(sub_floor(src->desc.bytes - src->desc.tail, src->off), plan->bytes);
	}
	set_edges(v, src, edges);
	if (v->src && v->dst)
		v->can_move = true;
	else if (dst->rank == me)
		v->can_move = plan->receiver_moves && node_can_read(g, me, src->rank);
	else if (src->rank == me)
		v->can_move = plan->sender_moves && node_can_write(g, me, dst->rank);
	if (plan->way == XFER_STAGED)
		v->can_move = false;
}

void xfer_fill_edges(const struct region_desc *d, const void *buf, char *edges)
{
	uint64_t n = base_min_u64(XFER_EDGE_BYTES, d->bytes);
	bool mapped = d->flags & REGION_DESC_MAPPED;
	uint64_t head = mapped ? d->head : n, tail = mapped ? d->tail : n;

	memcpy(edges, buf, head);
	memcpy(edges + XFER_EDGE_BYTES, (const char *)buf + d->bytes - tail, tail);
}

/* ---- fragments -------------------------------------------------------------------------------- */

static int copy_range(struct xfer_view *v, uint64_t at, uint64_t n)
{
	int ret;

	if (v->src && v->dst) {
		host_copy(v->dst + at, v->src + at, n, host_copy_pick(n, v->plan.hi - v->plan.lo));
		base_count(BASE_CTR_BYTES_DIRECT, n);
		return 0;
	}
	if (v->dst)
		ret = node_vm_read(v->group, v->src_rank, v->dst + at, v->src_remote + at, n);
	else
		ret = node_vm_write(v->group, v->dst_rank, v->dst_remote + at, v->src + at, n);
	if (!ret)
		base_count(BASE_CTR_BYTES_CMA, n);
	return ret;
}

void xfer_finish(struct xfer_view *v, uint64_t units)
{
	if (!xfer_complete(v->x, v->tag, units, v->plan.total))
		return;
	if (v->dst_rank != node_rank(v->group))
		node_ring(v->group, v->dst_rank);
	if (v->src_rank != node_rank(v->group))
		node_ring(v->group, v->src_rank);
}

int xfer_move(struct xfer_view *v)
{
	int me = node_rank(v->group), ret;
	uint64_t i, at, n;

	if (!v->can_move)
		return 0;
	i = xfer_claim(v->x, v->tag, v->plan.fragments);
	if (i == XFER_NONE)
		return 0;
	at = v->plan.lo + i * v->plan.fragment_bytes;
	n = base_min_u64(v->plan.fragment_bytes, v->plan.hi - at);
	ret = copy_range(v, at, n);
	if (ret == -EOWNERDEAD)
		return ret;
	if (ret) {
		/* the kernel refused although the trial had worked: leave it to the two ends */
		atomic_fetch_or_explicit(&v->x->failed, 1ull << i, memory_order_release);
		node_ring(v->group, me == v->src_rank ? v->dst_rank : v->src_rank);
		return 1;
	}
	if (me != v->dst_rank)
		base_count(BASE_CTR_BYTES_HELPED, n);
	xfer_finish(v, n);
	return 1;
}

/* ---- edges -------------------------------------------------------------------------------------- */

/* Copy source bytes [from, to) to their place, from wherever they can be had. */
static int take_range(struct xfer_view *v, uint64_t from, uint64_t to)
{
	while (from < to) {
		uint64_t end = to;
		int ret = 0;

		if (v->src && from >= v->src_lo && from < v->src_hi) {
			end = base_min_u64(end, v->src_hi);
			memcpy(v->dst + from, v->src + from, end - from);
		} else if (from < v->edge_head_end) {
			end = base_min_u64(end, v->edge_head_end);
			memcpy(v->dst + from, v->edge_head + from, end - from);
		} else if (v->edge_tail && from >= v->edge_tail_begin) {
			memcpy(v->dst + from, v->edge_tail + (from - v->edge_tail_begin), end - from);
		} else {
			/* only where the plan was made knowing that this works */
			if (from < v->edge_tail_begin)
				end = base_min_u64(end, v->edge_tail_begin);
			ret = node_vm_read(v->group, v->src_rank, v->dst + from, v->src_remote + from, end - from);
		}
		if (ret)
			return ret;
		base_count(BASE_CTR_BYTES_EDGE, end - from);
		from = end;
	}
	return 0;
}

int xfer_move_edges(struct xfer_view *v)
{
	int ret = take_range(v, 0, v->plan.lo);

	if (!ret)
		ret = take_range(v, v->plan.hi, v->plan.bytes);
	if (ret)
		return ret;
	v->edges_done = true;
	xfer_finish(v, 1);
	return 1;
}

/* ---- repair --------------------------------------------------------------------------------------- */

bool xfer_needs_repair(const struct xfer_view *v)
{
	return atomic_load_explicit(&v->x->failed, memory_order_acquire) !=
	       atomic_load_explicit(&v->x->repaired, memory_order_relaxed);
}

static void fragment_range(const struct xfer_view *v, uint64_t i, uint64_t *at, uint64_t *n)
{
	*at = v->plan.lo + i * v->plan.fragment_bytes;
	*n = base_min_u64(v->plan.fragment_bytes, v->plan.hi - *at);
}

int xfer_repair_send(struct xfer_view *v, const struct region_extent *scratch)
{
	uint64_t todo = atomic_load_explicit(&v->x->failed, memory_order_acquire) &
			~atomic_load_explicit(&v->x->repaired, memory_order_relaxed);
	char *to = (char *)region_arena_base() + scratch->offset;
	uint64_t at, n;

	if (!todo)
		return 0;
	for (uint64_t i = 0; i < v->plan.fragments; i++) {
		if (!(todo >> i & 1))
			continue;
		fragment_range(v, i, &at, &n);
		memcpy(to + at, v->src + at, n);
	}
	v->x->repair_off = scratch->offset;
	atomic_fetch_or_explicit(&v->x->repaired, todo, memory_order_release); /* partner: repair_receive */
	node_ring(v->group, v->dst_rank);
	return 1;
}

int xfer_repair_receive(struct xfer_view *v)
{
	uint64_t ready = atomic_load_explicit(&v->x->repaired, memory_order_acquire) & ~v->repaired;
	uint64_t at, n, units = 0;
	char *from;

	if (!ready)
		return 0;
	from = node_map(v->group, v->src_rank, v->x->repair_off, v->plan.bytes);
	if (!from)
		return -EPROTO;
	for (uint64_t i = 0; i < v->plan.fragments; i++) {
		if (!(ready >> i & 1))
			continue;
		fragment_range(v, i, &at, &n);
		memcpy(v->dst + at, from + at, n);
		units += n;
	}
	v->repaired |= ready;
	xfer_finish(v, units);
	return 1;
}
