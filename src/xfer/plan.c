/* SPDX-License-Identifier: BSD-3-Clause */
/* Planning a transfer: a pure function of the data that both ends have published. */
#include "xfer/xfer.h"

struct bounds { uint64_t lo, hi; };

static uint64_t clamp_sub(uint64_t a, uint64_t b, uint64_t max)
{
	return a <= b ? 0 : base_min_u64(a - b, max);
}

static bool is_mapped(const struct xfer_end *e) { return e->desc.flags & REGION_DESC_MAPPED; }

/* The transfer bytes in the mapped middle of an end. */
static struct bounds mapped_bounds(const struct xfer_end *e, uint64_t bytes)
{
	const struct region_desc *d = &e->desc;
	struct bounds s = { 0, 0 };

	if (!is_mapped(e))
		return s;
	if (xfer_is_typed(e))
		return (struct bounds){ 0, bytes };
	s.lo = clamp_sub(d->head, e->off, bytes);
	s.hi = clamp_sub(d->bytes - d->tail, e->off, bytes);
	if (s.hi < s.lo)
		s.hi = s.lo;
	return s;
}

static bool is_whole(struct bounds s, uint64_t bytes) { return s.lo == 0 && s.hi == bytes; }

/* Do the inline edges of an unmapped source cover the bytes that the receiver needs from them? */
static bool edges_cover(const struct xfer_end *src, struct bounds needed, uint64_t bytes)
{
	uint64_t n = base_min_u64(XFER_EDGE_BYTES, src->desc.bytes);

	if (needed.lo && !(src->edges && src->off + needed.lo <= n))
		return false;
	return needed.hi == bytes || (src->edges && src->off + needed.hi >= src->desc.bytes - n);
}

static void choose_way(struct xfer_plan *p, const struct xfer_end *src, const struct xfer_end *dst,
		       const struct xfer_reach *reach)
{
	struct bounds s = mapped_bounds(src, p->bytes), d = mapped_bounds(dst, p->bytes);
	/* can the receiver get the bytes of a mapped source outside its pages? */
	bool whole = reach->can_read || src->edges || is_whole(s, p->bytes);

	if (is_mapped(src) && is_mapped(dst) && (whole || is_whole(d, p->bytes))) {
		p->lo = base_max_u64(s.lo, d.lo);
		p->hi = base_max_u64(p->lo, base_min_u64(s.hi, d.hi));
		p->receiver_moves = p->sender_moves = p->others_move = true;
	} else if (is_mapped(src) && whole) {
		p->lo = s.lo;
		p->hi = s.hi;
		p->receiver_moves = true;
		p->sender_moves = reach->can_write;
	} else if (!is_mapped(src) && is_mapped(dst) &&
		   (reach->can_read || edges_cover(src, d, p->bytes))) {
		p->lo = d.lo;
		p->hi = d.hi;
		p->sender_moves = true;
		p->receiver_moves = reach->can_read;
	} else if (reach->prefer_vm && (reach->can_read || reach->can_write)) {
		p->way = XFER_VM;
		p->hi = p->bytes;
		p->receiver_moves = reach->can_read;
		p->sender_moves = reach->can_write;
	} else {
		p->way = XFER_STAGED;
	}
}

bool xfer_end_is_valid(const struct xfer_end *e, uint64_t bytes)
{
	const struct region_desc *d = &e->desc;

	return !xfer_is_typed(e) || (is_mapped(e) && !d->head && !d->tail &&
				     layout_fits(&e->layout, e->off, bytes, d->bytes));
}

void xfer_plan(const struct xfer_end *src, const struct xfer_end *dst, uint64_t bytes,
	       const struct xfer_reach *reach, struct xfer_plan *p)
{
	bool dst_whole = xfer_receiver_may_detach(dst, bytes), edges, anybody;

	/* a system call copies one range */
	static const struct xfer_reach no_calls;

	*p = (struct xfer_plan){ .way = XFER_DIRECT, .bytes = bytes };
	choose_way(p, src, dst, xfer_is_typed(src) || xfer_is_typed(dst) ? &no_calls : reach);
	if (p->way == XFER_STAGED) {
		p->total = 1;
		p->receiver_needed = p->sender_needed = true;
		return;
	}
	xfer_cut(p);
	edges = p->lo > 0 || p->hi < bytes;
	/* both ends are mapped, or their slots carry the remaining bytes */
	anybody = p->way == XFER_DIRECT && is_mapped(dst) && xfer_sender_may_detach(src, bytes) &&
		  (dst_whole || dst->edges);
	p->fills_edge_buf = anybody && !dst_whole;
	if (edges)
		p->edges = anybody   ? XFER_EDGES_ALL :
			   dst_whole ? XFER_EDGES_ENDS :
				       XFER_EDGES_RECEIVER;
	p->units = p->fragments + (p->edges >= XFER_EDGES_ENDS);
	p->total = xfer_bits(p->fragments + edges);
	p->dst_mapped = p->way == XFER_DIRECT && is_mapped(dst);
	p->receiver_needed = p->way != XFER_DIRECT || !(dst_whole || p->fills_edge_buf);
	p->sender_needed = p->way != XFER_DIRECT || !xfer_sender_may_detach(src, bytes);
}

bool xfer_sender_may_detach(const struct xfer_end *src, uint64_t bytes)
{
	return is_mapped(src) && (src->edges || is_whole(mapped_bounds(src, bytes), bytes));
}

bool xfer_receiver_may_detach(const struct xfer_end *dst, uint64_t bytes)
{
	return is_mapped(dst) && is_whole(mapped_bounds(dst, bytes), bytes);
}
