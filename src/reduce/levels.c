/* SPDX-License-Identifier: BSD-3-Clause */
/* Two levels: which steps a slice has, which of them may be done now, and claiming their units. */
#include "reduce/private.h"

static uint32_t size_of(const struct reduce_domains *m, uint32_t domain)
{
	return (uint32_t)(m->first[domain + 1] - m->first[domain]);
}

bool reduce_can_have_levels(uint32_t kind, uint32_t type, const struct reduce_domains *m)
{
	return m && m->count > 1 && type != GOAL_NOP && kind <= COLL_REDUCE_SCATTER;
}

bool reduce_keeps_parts(const struct reduce_shape *s, const struct reduce_domains *m, uint32_t rank)
{
	int d = m->of[rank];

	return s->kind != COLL_ALLREDUCE && size_of(m, (uint32_t)d) > 1 &&
	       (s->kind != COLL_REDUCE || d != m->of[s->root]);
}

/* ---- what there is ----------------------------------------------------------------------- */

/* The rank that gets this element. */
static uint32_t owner(const struct reduce_view *v, uint64_t element)
{
	uint32_t lo = 0, hi = v->shape.ranks; /* starts[lo] <= element < starts[hi] */

	while (hi - lo > 1) {
		uint32_t mid = (lo + hi) / 2;

		if (v->starts[mid] <= element)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

/* Where the result is wanted, most of it at least; where all want it the domains take turns. */
uint32_t reduce_home(const struct reduce_view *v, uint32_t slice)
{
	uint64_t middle = slice * v->cut.slice_elements + v->cut.slice_elements / 2;
	uint32_t rank = slice;

	if (v->shape.kind == COLL_REDUCE)
		rank = v->shape.root;
	else if (v->shape.kind == COLL_REDUCE_SCATTER && v->shape.count)
		rank = owner(v, base_min_u64(middle, v->shape.count - 1));
	return (uint32_t)v->domains->of[rank];
}

uint32_t reduce_entry(const struct reduce_view *v, uint32_t domain, uint32_t slice)
{
	const struct reduce_domains *m = v->domains;

	return (uint32_t)m
		->members[(uint32_t)m->first[domain] + (uint32_t)m->at[slice] % size_of(m, domain)];
}

bool reduce_has_step(const struct reduce_view *v, const struct reduce_step *st)
{
	bool is_home = reduce_home(v, st->slice) == st->domain;

	if (st->level == REDUCE_RESULT)
		return is_home;
	return !is_home && size_of(v->domains, st->domain) > 1 &&
	       (st->level == REDUCE_PART || v->shape.kind == COLL_ALLREDUCE);
}

struct xfer *reduce_step_words(const struct reduce_view *v, const struct reduce_step *st)
{
	struct xfer *w = v->words(v->ctx, st->slice);

	return st->level == REDUCE_RESULT
		       ? w
		       : w + 1 + st->domain + (st->level == REDUCE_SPREAD ? v->shape.domains : 0);
}

/* ---- what is done ------------------------------------------------------------------------ */

static uint64_t total_of(const struct reduce_view *v, uint32_t slice)
{
	return xfer_bits(reduce_units(&v->shape, &v->cut, slice));
}

static bool is_done(const struct reduce_view *v, const struct reduce_step *st)
{
	return xfer_is_done(reduce_step_words(v, st), v->tag, total_of(v, st->slice));
}

/* Is that level of the slice done in every domain that has it? */
static bool is_level_done(const struct reduce_view *v, enum reduce_level level, uint32_t slice)
{
	for (uint32_t d = 0; d < v->domains->count; d++) {
		const struct reduce_step st = { level, d, slice };

		if (reduce_has_step(v, &st) && !is_done(v, &st))
			return false;
	}
	return true;
}

bool reduce_steps_are_done(struct reduce_view *v, uint32_t slice)
{
	return is_level_done(v, REDUCE_RESULT, slice) && is_level_done(v, REDUCE_SPREAD, slice);
}

static bool is_ready(const struct reduce_view *v, const struct reduce_step *st)
{
	return st->level == REDUCE_PART ||
	       is_level_done(v, st->level == REDUCE_RESULT ? REDUCE_PART : REDUCE_RESULT, st->slice);
}

/* ---- doing it ---------------------------------------------------------------------------- */

static bool claim(const struct reduce_view *v, const struct reduce_step *st, bool is_own,
		  uint32_t *out_unit)
{
	uint32_t units = reduce_units(&v->shape, &v->cut, st->slice), unit;

	if (!reduce_has_step(v, st) || !is_ready(v, st))
		return false;
	unit = xfer_claim(reduce_step_words(v, st), v->tag, units, is_own ? 0 : units / 2);
	*out_unit = unit;
	return unit != XFER_NONE;
}

/* Of the slices of every domain the members take turns: k is how many turns before its own each is.
 */
static bool claim_level(const struct reduce_view *v, uint32_t rank, struct reduce_step *st,
			uint32_t *out_unit)
{
	const struct reduce_domains *m = v->domains;
	uint32_t size = size_of(m, st->domain), own = (uint32_t)m->at[rank];

	for (uint32_t k = 0; k < size; k++)
		for (uint32_t d = 0; d < m->count; d++)
			for (uint32_t i = (own + k) % size; i < size_of(m, d); i += size) {
				st->slice = (uint32_t)m->members[(uint32_t)m->first[d] + i];
				if (claim(v, st, !k, out_unit))
					return true;
			}
	return false;
}

bool reduce_claim_step(const struct reduce_view *v, uint32_t rank, struct reduce_step *out,
		     uint32_t *out_unit)
{
	static const enum reduce_level levels[] = { REDUCE_PART, REDUCE_RESULT, REDUCE_SPREAD };

	for (size_t i = 0; i < BASE_ARRAY_LEN(levels); i++) {
		*out = (struct reduce_step){ levels[i], (uint32_t)v->domains->of[rank], 0 };
		if (claim_level(v, rank, out, out_unit))
			return true;
	}
	return false;
}

/* Of a part only those wait for it now who go on with it. */
static void finish(struct reduce_view *v, const struct reduce_step *st, uint32_t unit)
{
	int home = (int)reduce_home(v, st->slice);

	if (!xfer_complete(reduce_step_words(v, st), v->tag, xfer_bit(unit), total_of(v, st->slice)))
		return;
	for (int r = 0; r < node_size(v->group); r++)
		if (r != node_rank(v->group) &&
		    (st->level != REDUCE_PART || v->domains->of[r] == home))
			node_wake(v->group, r);
}

int reduce_move_step(struct reduce_view *v, uint32_t rank)
{
	uint64_t first, n, since;
	struct reduce_step st;
	uint32_t unit;

	if (!reduce_claim_step(v, rank, &st, &unit))
		return 0;
	reduce_unit_range(&v->shape, &v->cut, st.slice, unit, &first, &n);
	since = reduce_trace_begin(v, st.slice, n);
	reduce_combine(v, &st, first, n); /* cannot fail: no operation of the program */
	if (st.level == REDUCE_RESULT)
		reduce_count(v, st.slice, unit, first, n, since);
	finish(v, &st, unit);
	return 1;
}
