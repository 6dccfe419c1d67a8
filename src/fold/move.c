/* SPDX-License-Identifier: BSD-3-Clause */
/* Claiming units; what is done when the last one is. */
#include "fold/private.h"

static uint64_t total_of(const struct fold_view *v, uint32_t slice)
{
	return xfer_bits(fold_units(&v->shape, &v->cut, slice));
}

void fold_finish(struct fold_view *v, uint32_t slice, uint32_t unit)
{
	if (!xfer_complete(v->words(v->ctx, slice), v->tag, xfer_bit(unit), total_of(v, slice)))
		return;
	for (int r = 0; r < node_size(v->group); r++) /* each waits for all slices */
		if (r != node_rank(v->group))
			node_ring(v->group, r);
}

int fold_do_unit(struct fold_view *v, uint32_t slice, uint32_t unit)
{
	uint64_t first, n;
	int ret;

	fold_unit_range(&v->shape, &v->cut, slice, unit, &first, &n);
	ret = fold_combine(v, first, n);
	if (ret)
		return ret;
	base_count(BASE_CTR_BYTES_FOLDED, n * v->shape.element_bytes);
	if ((int)slice != node_rank(v->group))
		base_count(BASE_CTR_BYTES_HELPED, n * v->shape.element_bytes);
	fold_finish(v, slice, unit);
	return 0;
}

int fold_move(struct fold_view *v, uint32_t slice, uint32_t start)
{
	uint32_t unit = xfer_claim(v->words(v->ctx, slice), v->tag, fold_units(&v->shape, &v->cut, slice), start);
	int ret;

	if (unit == XFER_NONE)
		return 0;
	ret = fold_do_unit(v, slice, unit);
	return ret ? ret : 1;
}

int fold_move_at(struct fold_view *v, uint64_t element)
{
	uint64_t slice = element / v->cut.slice_elements;

	return fold_move(v, (uint32_t)slice,
			 (uint32_t)((element - slice * v->cut.slice_elements) / v->cut.unit_elements));
}

bool fold_is_done(struct fold_view *v, uint32_t slice)
{
	return xfer_is_done(v->words(v->ctx, slice), v->tag, total_of(v, slice));
}

bool fold_is_claimed_up(struct fold_view *v, uint32_t slice)
{
	return xfer_is_claimed_up(v->words(v->ctx, slice), v->tag, fold_units(&v->shape, &v->cut, slice));
}

bool fold_is_there(struct fold_view *v, uint64_t first, uint64_t n)
{
	for (uint32_t s = 0; s < v->shape.ranks; s++) {
		uint64_t bits = fold_units_of(&v->shape, &v->cut, s, first, n);

		if (bits && !xfer_is_done(v->words(v->ctx, s), v->tag, bits))
			return false;
	}
	return true;
}
