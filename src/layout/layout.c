/* SPDX-License-Identifier: BSD-3-Clause */
/* Building and checking layouts. */
#include "layout/layout.h"

#include <errno.h>

struct layout layout_block(int64_t base, uint64_t bytes)
{
	return (struct layout){ .base = base, .block_bytes = bytes };
}

/* Returns: false when the product overflows, or is no length of memory. */
static bool bytes_of(const struct layout *l, uint64_t *out)
{
	uint64_t bytes = l->block_bytes;

	for (uint32_t i = 0; i < l->level_count; i++)
		if (__builtin_mul_overflow(bytes, l->level[i].count, &bytes))
			return false;
	*out = bytes;
	return bytes <= INT64_MAX;
}

uint64_t layout_bytes(const struct layout *l)
{
	uint64_t bytes;

	return bytes_of(l, &bytes) ? bytes : 0;
}

/* Where repetition `count` would begin. Returns: false when that overflows. */
static bool end_of(uint64_t count, int64_t stride, int64_t *out)
{
	return count <= INT64_MAX && !__builtin_mul_overflow((int64_t)count, stride, out);
}

int layout_repeat(struct layout *l, uint64_t count, int64_t stride)
{
	struct layout_level *top = l->level_count ? &l->level[l->level_count - 1] : NULL;
	struct layout longer = *l;
	uint64_t bytes;
	int64_t end;

	if (count == 1 || !l->block_bytes)
		return 0;
	if (!count) {
		*l = layout_block(l->base, 0);
		return 0;
	}
	if (!top && stride >= 0 && (uint64_t)stride == l->block_bytes) {
		if (__builtin_mul_overflow(l->block_bytes, count, &longer.block_bytes))
			return -E2BIG;
	} else if (top && end_of(top->count, top->stride, &end) && end == stride) {
		if (__builtin_mul_overflow(top->count, count,
					   &longer.level[l->level_count - 1].count))
			return -E2BIG;
	} else if (l->level_count < LAYOUT_LEVELS) {
		longer.level[longer.level_count++] = (struct layout_level){ count, stride };
	} else {
		return -E2BIG;
	}
	if (!bytes_of(&longer, &bytes))
		return -E2BIG;
	*l = longer;
	return 0;
}

int layout_bounds(const struct layout *l, int64_t *out_lo, int64_t *out_hi)
{
	int64_t lo = l->base, hi, reach;

	if (l->block_bytes > INT64_MAX ||
	    __builtin_add_overflow(lo, (int64_t)l->block_bytes, &hi))
		return -E2BIG;
	for (uint32_t i = 0; i < l->level_count; i++) {
		const struct layout_level *v = &l->level[i];

		if (!v->count || !end_of(v->count - 1, v->stride, &reach) ||
		    __builtin_add_overflow(reach < 0 ? lo : hi, reach, reach < 0 ? &lo : &hi))
			return -E2BIG;
	}
	*out_lo = lo;
	*out_hi = hi;
	return 0;
}

bool layout_fits(const struct layout *l, uint64_t off, uint64_t bytes, uint64_t buffer_bytes)
{
	uint64_t all, end;
	int64_t lo, hi;

	if (l->level_count > LAYOUT_LEVELS || !l->block_bytes || !bytes_of(l, &all) ||
	    layout_bounds(l, &lo, &hi))
		return false;
	return !__builtin_add_overflow(off, bytes, &end) && end <= all && lo >= 0 &&
	       (uint64_t)hi <= buffer_bytes;
}

/* ---- which bytes several layouts name together ------------------------------------------- */

static bool is_repeated_alike(const struct layout *a, const struct layout *b)
{
	for (uint32_t i = 0; i < a->level_count && i < b->level_count; i++)
		if (a->level[i].count != b->level[i].count ||
		    a->level[i].stride != b->level[i].stride)
			return false;
	return a->level_count == b->level_count;
}

bool layout_join(struct layout *l, const struct layout *next)
{
	struct layout all = layout_block(l->base, l->block_bytes + next->block_bytes);

	if (!is_repeated_alike(l, next) || next->base != l->base + (int64_t)l->block_bytes)
		return false;
	for (uint32_t i = 0; i < l->level_count; i++)
		if (layout_repeat(&all, l->level[i].count, l->level[i].stride))
			return false;
	*l = all;
	return true;
}

struct layout layout_sorted(const struct layout *l)
{
	struct layout sorted = layout_block(l->base, l->block_bytes);
	struct layout_level level[LAYOUT_LEVELS];

	for (uint32_t i = 0; i < l->level_count; i++) {
		struct layout_level v = l->level[i];
		uint32_t k = i;

		if (v.stride < 0) {
			sorted.base += (int64_t)(v.count - 1) * v.stride;
			v.stride = -v.stride;
		}
		for (; k && level[k - 1].stride > v.stride; k--)
			level[k] = level[k - 1];
		level[k] = v;
	}
	for (uint32_t i = 0; i < l->level_count; i++) /* fits: no more levels than before */
		layout_repeat(&sorted, level[i].count, level[i].stride);
	return sorted;
}

bool layout_is_dense(const struct layout *l) { return !l->level_count; }
