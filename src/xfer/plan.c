/* SPDX-License-Identifier: BSD-3-Clause */
/* How the bytes of a transfer travel: a pure function of what both ends have published. */
#include "xfer/xfer.h"

#define FRAGMENT_MIN (16u << 10) /* below, a claim costs more than it shares */
#define FRAGMENT_GOOD (64u << 10) /* from here on longer fragments are copied no faster */
#define FRAGMENT_MAX (256u << 10)
#define FRAGMENTS_FEW 4u         /* the fewest that two unequal movers can share evenly */
#define FRAGMENTS_MANY 16u       /* more would only be more claims */

uint64_t xfer_fragment_bytes(uint64_t bytes)
{
	uint64_t f = base_opt.xfer_fragment_bytes, few = base_round_up(bytes / FRAGMENTS_FEW, HOST_PAGE);

	if (!f) {
		f = base_round_up(bytes / FRAGMENTS_MANY, HOST_PAGE);
		f = base_max_u64(f, base_min_u64(few, FRAGMENT_GOOD));
		f = base_min_u64(base_max_u64(f, FRAGMENT_MIN), FRAGMENT_MAX);
	}
	return base_max_u64(f, HOST_PAGE);
}

struct span { uint64_t lo, hi; };

static uint64_t clamp_sub(uint64_t a, uint64_t b, uint64_t max) { return a <= b ? 0 : base_min_u64(a - b, max); }

/* The bytes of the transfer that lie in the mapped middle of an end. */
static struct span mapped_span(const struct xfer_end *e, uint64_t bytes)
{
	const struct region_desc *d = &e->desc;
	struct span s = { 0, 0 };

	if (!(d->flags & REGION_DESC_MAPPED))
		return s;
	s.lo = clamp_sub(d->head, e->off, bytes);
	s.hi = clamp_sub(d->bytes - d->tail, e->off, bytes);
	if (s.hi < s.lo)
		s.hi = s.lo;
	return s;
}

/* Do the inline edges of an unmapped source cover what the receiver must take from them? */
static bool edges_cover(const struct xfer_end *src, struct span want, uint64_t bytes, bool inline_edges)
{
	uint64_t n = base_min_u64(XFER_EDGE_BYTES, src->desc.bytes);

	if (want.lo && !(inline_edges && src->off + want.lo <= n))
		return false;
	return want.hi == bytes || (inline_edges && src->off + want.hi >= src->desc.bytes - n);
}

static bool is_mapped(const struct xfer_end *e) { return e->desc.flags & REGION_DESC_MAPPED; }

void xfer_plan(const struct xfer_end *src, const struct xfer_end *dst, uint64_t bytes,
	       const struct xfer_reach *reach, bool inline_edges, struct xfer_plan *out)
{
	struct span s = mapped_span(src, bytes), d = mapped_span(dst, bytes);
	struct xfer_plan p = { .way = XFER_DIRECT, .bytes = bytes };
	/* can the receiver have the bytes of a mapped source that lie outside its pages? */
	bool whole = reach->can_read || inline_edges || (s.lo == 0 && s.hi == bytes);

	if (is_mapped(src) && is_mapped(dst) && whole) {
		p.lo = base_max_u64(s.lo, d.lo);
		p.hi = base_max_u64(p.lo, base_min_u64(s.hi, d.hi));
		p.receiver_moves = p.sender_moves = p.others_move = true;
	} else if (is_mapped(src) && whole) {
		p.lo = s.lo;
		p.hi = s.hi;
		p.receiver_moves = true;
		p.sender_moves = reach->can_write;
	} else if (!is_mapped(src) && is_mapped(dst) &&
		   (reach->can_read || edges_cover(src, d, bytes, inline_edges))) {
		p.lo = d.lo;
		p.hi = d.hi;
		p.sender_moves = true;
		p.receiver_moves = reach->can_read;
	} else if (reach->prefer_vm && (reach->can_read || reach->can_write)) {
		p.way = XFER_VM;
		p.hi = bytes;
		p.receiver_moves = reach->can_read;
		p.sender_moves = reach->can_write;
	} else {
		p.way = XFER_STAGED;
	}
	p.fragment_bytes = xfer_fragment_bytes(p.hi - p.lo);
	if (!p.others_move && p.way != XFER_STAGED) /* a refused fragment must have its bit in `failed` */
		p.fragment_bytes = base_max_u64(p.fragment_bytes,
						base_round_up((p.hi - p.lo + XFER_REPAIR_FRAGMENTS - 1) /
								      XFER_REPAIR_FRAGMENTS,
							      HOST_PAGE));
	p.fragments = (p.hi - p.lo + p.fragment_bytes - 1) / p.fragment_bytes;
	p.total = p.hi - p.lo + 1;
	*out = p;
}
