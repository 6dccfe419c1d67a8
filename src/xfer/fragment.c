/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the fragments of a transfer begin and end. */
#include "xfer/xfer.h"

#define FRAGMENT_MIN (16u << 10) /* below, a claim costs more than it shares */
#define FRAGMENT_GOOD (64u << 10) /* from here on longer fragments are copied no faster */
#define FRAGMENT_MAX (256u << 10)
#define FRAGMENTS_FEW 4u         /* the fewest that two unequal movers can share evenly */
#define FRAGMENTS_MANY 16u       /* more would only be more claims */
/* Too many of FRAGMENT_MAX: large ones, and at the end small ones, so that all movers end together. */
#define SMALLS 16u
#define LARGE_PARTS 4u           /* a large fragment is so many small ones */

static uint64_t equal_bytes(uint64_t bytes)
{
	uint64_t f = base_round_up(base_opt.xfer_fragment_bytes, HOST_PAGE);
	uint64_t few = base_round_up(bytes / FRAGMENTS_FEW, HOST_PAGE);

	if (f)
		return f;
	f = base_round_up(bytes / FRAGMENTS_MANY, HOST_PAGE);
	f = base_max_u64(f, base_min_u64(few, FRAGMENT_GOOD));
	return base_min_u64(base_max_u64(f, FRAGMENT_MIN), FRAGMENT_MAX);
}

static uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

void xfer_cut(struct xfer_plan *p)
{
	const uint64_t smalls_in_all = (XFER_FRAGMENTS_MAX - SMALLS) * LARGE_PARTS + SMALLS;
	uint64_t bytes = p->hi - p->lo, tail;

	p->small_bytes = p->large_bytes = equal_bytes(bytes);
	p->larges = 0;
	if (divide_up(bytes, p->small_bytes) > XFER_FRAGMENTS_MAX) {
		p->small_bytes = base_round_up(divide_up(bytes, smalls_in_all), HOST_PAGE);
		p->large_bytes = p->small_bytes * LARGE_PARTS;
		tail = base_min_u64(bytes, SMALLS * p->small_bytes);
		p->larges = (uint32_t)divide_up(bytes - tail, p->large_bytes);
	}
	bytes -= base_min_u64(bytes, p->larges * p->large_bytes);
	p->fragments = p->larges + (uint32_t)divide_up(bytes, p->small_bytes);
}

void xfer_fragment_range(const struct xfer_plan *p, uint32_t i, uint64_t *out_at, uint64_t *out_n)
{
	uint64_t larges = base_min_u64(i, p->larges);
	uint64_t at = p->lo + larges * p->large_bytes + (i - larges) * p->small_bytes;

	*out_n = base_min_u64(i < p->larges ? p->large_bytes : p->small_bytes, p->hi - at);
	*out_at = at;
}

uint32_t xfer_fragment_of(const struct xfer_plan *p, uint64_t at)
{
	uint64_t larges = p->larges * p->large_bytes;

	if (at < p->lo || at >= p->hi)
		return p->fragments;
	at -= p->lo;
	return (uint32_t)(at < larges ? at / p->large_bytes : p->larges + (at - larges) / p->small_bytes);
}

uint64_t xfer_units_of(const struct xfer_plan *p, uint64_t at, uint64_t n)
{
	uint64_t end = at + n, lo = base_max_u64(at, p->lo), hi = base_min_u64(end, p->hi), bits = 0;

	if (!n)
		return 0;
	if (lo < hi)
		bits = xfer_bits(xfer_fragment_of(p, hi - 1) + 1) & ~xfer_bits(xfer_fragment_of(p, lo));
	if (at < p->lo || end > p->hi)
		bits |= xfer_bit(p->fragments);
	return bits;
}
