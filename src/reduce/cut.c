/* SPDX-License-Identifier: BSD-3-Clause */
/* The elements of slices and fragments. Pure. */
#include "reduce/reduce.h"

/* bytes of one rank; for fewer a claim costs more than sharing gains */
#define UNIT_MIN (16u << 10)
#define UNIT_GOOD (128u << 10) /* longer fragments are combined no faster */
#define UNITS_FEW 4u          /* fewest fragments of a slice that movers can share evenly */

uint64_t reduce_starts_sum(const uint64_t *starts, uint32_t ranks)
{
	uint64_t sum = 0xcbf29ce484222325u;

	for (uint32_t i = 0; i <= ranks; i++)
		sum = (sum ^ starts[i]) * 0x100000001b3u;
	return sum;
}

/* Elements in a page when a page holds whole elements, else 1. */
static uint64_t page_elements(const struct reduce_shape *s)
{
	return OS_PAGE % s->element_bytes ? 1 : OS_PAGE / s->element_bytes;
}

void reduce_cut(const struct reduce_shape *s, struct reduce_cut *out)
{
	uint64_t grain = page_elements(s), slice, bytes, unit;

	slice = base_round_up(base_divide_up(s->count, s->ranks), grain);
	bytes = slice * s->element_bytes;
	unit = base_max_u64(base_divide_up(bytes, REDUCE_UNITS_MAX),
			    base_min_u64(UNIT_GOOD, bytes / UNITS_FEW));
	unit = base_max_u64(unit, UNIT_MIN);
	out->slice_elements = slice;
	out->unit_elements = base_round_up(base_divide_up(unit, s->element_bytes), grain);
}

/* The elements of a slice: [*first, *end). */
static void slice_range(const struct reduce_shape *s, const struct reduce_cut *c, uint32_t slice,
			uint64_t *first, uint64_t *end)
{
	*first = base_min_u64(slice * c->slice_elements, s->count);
	*end = base_min_u64(*first + c->slice_elements, s->count);
}

uint32_t reduce_units(const struct reduce_shape *s, const struct reduce_cut *c, uint32_t slice)
{
	uint64_t first, end;

	slice_range(s, c, slice, &first, &end);
	return (uint32_t)base_divide_up(end - first, c->unit_elements);
}

void reduce_unit_range(const struct reduce_shape *s, const struct reduce_cut *c, uint32_t slice,
		     uint32_t unit, uint64_t *out_first, uint64_t *out_n)
{
	uint64_t first, end;

	slice_range(s, c, slice, &first, &end);
	first += unit * c->unit_elements;
	*out_n = base_min_u64(c->unit_elements, end - first);
	*out_first = first;
}

uint64_t reduce_units_of(const struct reduce_shape *s, const struct reduce_cut *c, uint32_t slice,
		       uint64_t first, uint64_t n)
{
	uint64_t lo, hi, end = first + n;

	slice_range(s, c, slice, &lo, &hi);
	first = base_max_u64(first, lo);
	end = base_min_u64(end, hi);
	if (first >= end)
		return 0;
	return xfer_bits((uint32_t)((end - 1 - lo) / c->unit_elements) + 1) &
	       ~xfer_bits((uint32_t)((first - lo) / c->unit_elements));
}

void reduce_result(const struct reduce_shape *s, const uint64_t *starts, uint32_t rank,
		 uint64_t *out_first, uint64_t *out_n)
{
	bool gets_all = s->kind == COLL_ALLREDUCE || s->kind == COLL_SCAN ||
			(s->kind == COLL_EXSCAN && rank) ||
			(s->kind == COLL_REDUCE && rank == s->root);

	*out_first = s->kind == COLL_REDUCE_SCATTER ? starts[rank] : 0;
	*out_n = s->kind == COLL_REDUCE_SCATTER ? starts[rank + 1] - starts[rank]
		 : gets_all                     ? s->count
						: 0;
}
