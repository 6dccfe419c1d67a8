/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cutting a transfer into fragments.
 *
 *   |  L  |  L  |  L  | s | s | s |  L  |  L  |  L  | s | s | s |     both halves are cut alike
 *   receiver ->                     sender ->
 *
 * Two movers begin half a transfer apart and meet where fragments are small, so that neither waits
 * long for the other's last fragment. doc/adr/0012-virtual-queues.md
 */
#include "xfer/xfer.h"

#define FRAGMENT_MIN (16u << 10) /* for fewer bytes a claim costs more than sharing gains */
#define FRAGMENT_GOOD (64u << 10) /* longer fragments are copied no faster */
#define FRAGMENT_MAX (256u << 10)
#define FRAGMENTS_FEW 4u         /* fewest fragments that two unequal movers can share evenly */
#define FRAGMENTS_MANY 16u       /* more fragments would only cost more claims */
#define HALF_MAX (XFER_FRAGMENTS_MAX / 2)
/* Small fragments in a half when FRAGMENT_MAX allows too many; the others are large. */
#define SMALLS 8u
#define LARGE_PARTS 4u           /* small fragments per large one */

/* The fragment size of a transfer that is cut evenly. */
static uint64_t good_bytes(uint64_t bytes)
{
	uint64_t few = base_round_up(bytes / FRAGMENTS_FEW, OS_PAGE);
	uint64_t f = base_round_up(bytes / FRAGMENTS_MANY, OS_PAGE);

	f = base_max_u64(f, base_min_u64(few, FRAGMENT_GOOD));
	return base_min_u64(base_max_u64(f, FRAGMENT_MIN), FRAGMENT_MAX);
}

static uint32_t count_in(const struct xfer_plan *p, uint64_t bytes)
{
	uint64_t larges = p->larges * p->large_bytes;

	if (bytes <= larges)
		return (uint32_t)base_divide_up(bytes, p->large_bytes);
	return p->larges + (uint32_t)base_divide_up(bytes - larges, p->small_bytes);
}

void xfer_cut(struct xfer_plan *p)
{
	uint64_t bytes = p->hi - p->lo,
		 wanted = base_round_up(base_opt.xfer_fragment_bytes, OS_PAGE);
	const uint64_t smalls_in_all = (HALF_MAX - SMALLS) * LARGE_PARTS + SMALLS;

	p->small_bytes = p->large_bytes = wanted ? wanted : good_bytes(bytes);
	p->larges = 0;
	p->half_bytes = base_round_up(base_divide_up(bytes, 2), OS_PAGE);
	if (bytes <= p->small_bytes)
		p->half_bytes = bytes;
	if (count_in(p, p->half_bytes) > HALF_MAX) {
		p->small_bytes =
			base_round_up(base_divide_up(p->half_bytes, smalls_in_all), OS_PAGE);
		p->large_bytes = p->small_bytes * LARGE_PARTS;
		p->larges = (uint32_t)base_divide_up(
			p->half_bytes - base_min_u64(p->half_bytes, SMALLS * p->small_bytes),
			p->large_bytes);
	}
	p->in_half = count_in(p, p->half_bytes);
	p->fragments = p->in_half + count_in(p, bytes - p->half_bytes);
}

void xfer_fragment_range(const struct xfer_plan *p, uint32_t i, uint64_t *out_at, uint64_t *out_n)
{
	uint64_t at = p->lo, end = p->lo + p->half_bytes, larges;

	if (i >= p->in_half) {
		i -= p->in_half;
		at = end;
		end = p->hi;
	}
	larges = base_min_u64(i, p->larges);
	at += larges * p->large_bytes + (i - larges) * p->small_bytes;
	*out_n = base_min_u64(i < p->larges ? p->large_bytes : p->small_bytes, end - at);
	*out_at = at;
}

uint32_t xfer_fragment_of(const struct xfer_plan *p, uint64_t at)
{
	uint64_t larges = p->larges * p->large_bytes;
	uint32_t first = 0;

	if (at < p->lo || at >= p->hi)
		return p->fragments;
	at -= p->lo;
	if (at >= p->half_bytes) {
		at -= p->half_bytes;
		first = p->in_half;
	}
	return first + (uint32_t)(at < larges ? at / p->large_bytes
					      : p->larges + (at - larges) / p->small_bytes);
}

uint64_t xfer_units_of(const struct xfer_plan *p, uint64_t at, uint64_t n)
{
	uint64_t end = at + n, lo = base_max_u64(at, p->lo), hi = base_min_u64(end, p->hi),
		 bits = 0;

	if (!n)
		return 0;
	if (lo < hi)
		bits = xfer_bits(xfer_fragment_of(p, hi - 1) + 1) &
		       ~xfer_bits(xfer_fragment_of(p, lo));
	if (at < p->lo || end > p->hi)
		bits |= xfer_bit(p->fragments);
	return bits;
}
