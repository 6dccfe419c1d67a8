/* SPDX-License-Identifier: BSD-3-Clause */
/* Claiming and completing fragments. */
#include "reduce/private.h"
#include "trace/trace.h"

static uint64_t total_of(const struct reduce_view *v, uint32_t slice)
{
	return xfer_bits(reduce_units(&v->shape, &v->cut, slice));
}

static void finish(struct reduce_view *v, uint32_t slice, uint32_t unit)
{
	if (!xfer_complete(v->words(v->ctx, slice), xfer_bit(unit), total_of(v, slice)))
		return;
	for (int r = 0; r < node_size(v->group); r++) /* each rank waits for all slices */
		if (r != node_rank(v->group))
			node_wake(v->group, r);
}

/* Does one trace row describe a fragment? Not when it holds results of several ranks. */
static bool has_rows(const struct reduce_view *v)
{
	return v->shape.kind != COLL_REDUCE_SCATTER;
}

/* Trace n combined elements of a fragment, stored for `dst`. */
static void note(struct reduce_view *v, uint32_t slice, uint32_t unit, uint64_t n, int dst,
		 uint64_t since)
{
	int by = node_rank(v->group);
	bool is_row = since && by >= 0 && has_rows(v);

	trace_copied(since, .bytes = n * v->shape.element_bytes, .op = v->tag,
		     .group = node_id(v->group), .unit = unit, .src = TRACE_FROM_ALL, .dst = dst,
		     .by = by, .mover = by < 0 ? TRACE_WORKER : TRACE_CPU,
		     .row = is_row ? v->words(v->ctx, slice) : NULL,
		     .is_last = is_row && reduce_is_all_claimed(v, slice));
}

/* One trace record for all ranks that get the same elements. */
static void note_all(struct reduce_view *v, uint32_t slice, uint32_t unit, uint64_t first,
		     uint64_t n, uint64_t since)
{
	int kind = (int)v->shape.kind;

	if (kind != COLL_REDUCE_SCATTER) {
		note(v, slice, unit, n,
		     kind == COLL_REDUCE   ? (int)v->shape.root
		     : kind == COLL_EXSCAN ? (int)TRACE_TO_EACH_BUT_FIRST
					   : (int)TRACE_TO_EACH,
		     since);
		return;
	}
	for (uint32_t r = 0; r < v->shape.ranks; r++) {
		uint64_t lo = base_max_u64(first, v->starts[r]),
			 hi = base_min_u64(first + n, v->starts[r + 1]);

		if (lo < hi)
			note(v, slice, unit, hi - lo, (int)r, since);
	}
}

static uint64_t trace_begin(const struct reduce_view *v, uint32_t slice, uint64_t n)
{
	const struct reduce_shape *s = &v->shape;

	if (node_rank(v->group) < 0 || !has_rows(v))
		return trace_copy_begin(n * s->element_bytes);
	return trace_row_begin(v->words(v->ctx, slice), v->tag, s->count * s->element_bytes);
}

static void count(struct reduce_view *v, uint32_t slice, uint32_t unit, uint64_t first, uint64_t n,
		  uint64_t since)
{
	if (trace_is_on())
		note_all(v, slice, unit, first, n, since);
	base_count(BASE_CTR_BYTES_REDUCED, n * v->shape.element_bytes);
	if ((int)slice != node_rank(v->group))
		base_count(BASE_CTR_BYTES_HELPED, n * v->shape.element_bytes);
}

int reduce_do_unit(struct reduce_view *v, uint32_t slice, uint32_t unit)
{
	uint64_t first, n, since;
	int ret;

	reduce_unit_range(&v->shape, &v->cut, slice, unit, &first, &n);
	since = trace_begin(v, slice, n);
	ret = reduce_combine(v, first, n);
	if (ret)
		return ret;
	count(v, slice, unit, first, n, since);
	finish(v, slice, unit);
	return 0;
}

int reduce_move(struct reduce_view *v, uint32_t slice, uint32_t start)
{
	uint32_t unit = xfer_claim(v->words(v->ctx, slice), v->tag,
				   reduce_units(&v->shape, &v->cut, slice), start);
	int ret;

	if (unit == XFER_NONE) {
		trace_row_end(v->words(v->ctx, slice));
		return 0;
	}
	ret = reduce_do_unit(v, slice, unit);
	return ret ? ret : 1;
}

int reduce_move_at(struct reduce_view *v, uint64_t element)
{
	uint64_t slice = element / v->cut.slice_elements;

	return reduce_move(
		v, (uint32_t)slice,
		(uint32_t)((element - slice * v->cut.slice_elements) / v->cut.unit_elements));
}

bool reduce_is_done(struct reduce_view *v, uint32_t slice)
{
	return xfer_is_done(v->words(v->ctx, slice), v->tag, total_of(v, slice));
}

bool reduce_is_all_claimed(struct reduce_view *v, uint32_t slice)
{
	return xfer_is_all_claimed(v->words(v->ctx, slice), v->tag,
				  reduce_units(&v->shape, &v->cut, slice));
}

bool reduce_is_range_done(struct reduce_view *v, uint64_t first, uint64_t n)
{
	for (uint32_t s = 0; s < v->shape.ranks; s++) {
		uint64_t bits = reduce_units_of(&v->shape, &v->cut, s, first, n);

		if (bits && !xfer_is_done(v->words(v->ctx, s), v->tag, bits))
			return false;
	}
	return true;
}
