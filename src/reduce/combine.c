/* SPDX-License-Identifier: BSD-3-Clause */
/* Combining chunk by chunk: read from all ranks, combine, store to each result. */
#include <string.h>

#include "reduce/private.h"
#include "goal/local.h"

enum { REDUCE_PIECES_MAX = 32 };

/* One chunk: elements [first, first + n). */
struct chunk {
	struct reduce_view *v;
	uint64_t first, n, bytes;
	char *piece[REDUCE_PIECES_MAX]; /* work memory */
	enum base_copy_kernel store; /* the kernel that stores results */
};

/* ---- memory of a rank -------------------------------------------------------------------- */

/* Address of byte 0 of a described buffer here; valid from d->head to d->bytes - d->tail. */
static char *map_side(const struct reduce_view *v, uint32_t rank, const struct region_desc *d)
{
	uint64_t middle = d->bytes - d->head - d->tail;

	if ((int)rank == node_rank(v->group) && v->mode == XFER_VIEW_NORMAL)
		return (char *)(uintptr_t)d->addr;
	return (char *)node_map(v->group, (int)rank, d->arena_off, middle) - d->head;
}

static void premap_side(const struct reduce_view *v, uint32_t rank, const struct region_desc *d)
{
	if ((int)rank != node_rank(v->group) && d->id)
		node_premap(v->group, (int)rank, d->id, map_side(v, rank, d) + d->head,
			    d->bytes - d->head - d->tail);
}

/* Fill page tables at once rather than by a fault per page of each rank's memory. */
static void premap(const struct reduce_view *v)
{
	for (uint32_t r = 0; r < v->shape.ranks; r++) {
		struct reduce_side s = v->side(v->ctx, r);

		premap_side(v, r, s.in);
		premap_side(v, r, s.out);
	}
}

/* Input bytes [at, at + n) of a rank: in its memory, or assembled in `room`. */
static const char *input_at(const struct reduce_view *v, uint32_t rank, const struct reduce_side *s,
			    uint64_t at, uint64_t n, char *room)
{
	const struct region_desc *d = s->in;
	uint64_t lo = d->head, hi = d->bytes - d->tail, end = at + n;
	const char *p = map_side(v, rank, d);

	if (base_likely(at >= lo && end <= hi))
		return p + at;
	for (uint64_t from = at, to; from < end; from = to) {
		const char *src = from < lo   ? s->in_edges + from
				  : from < hi ? p + from
					      : s->in_edges + XFER_EDGE_BYTES + (from - hi);

		to = base_min_u64(end, from < lo ? lo : from < hi ? hi : end);
		memcpy(room + (from - at), src, to - from);
	}
	return room;
}

static bool is_reachable(const struct reduce_view *v, uint32_t rank, const struct region_desc *d,
			 uint64_t off, uint64_t bytes)
{
	return d->flags & REGION_DESC_MAPPED && (uint64_t)d->head + d->tail <= d->bytes &&
	       off <= d->bytes && bytes <= d->bytes - off &&
	       node_map(v->group, (int)rank, d->arena_off, d->bytes - d->head - d->tail);
}

bool reduce_can_reach(struct reduce_view *v)
{
	uint64_t es = v->shape.element_bytes, first, n;

	for (uint32_t r = 0; r < v->shape.ranks; r++) {
		struct reduce_side s = v->side(v->ctx, r);

		if (!is_reachable(v, r, s.in, s.in_off, v->shape.count * es))
			return false;
		reduce_result(&v->shape, v->starts, r, &first, &n);
		if (n && !is_reachable(v, r, s.out, s.out_off, n * es))
			return false;
	}
	return true;
}

static const char *input(const struct chunk *c, uint32_t rank, char *room)
{
	struct reduce_side s = c->v->side(c->v->ctx, rank);

	return input_at(c->v, rank, &s, s.in_off + c->first * c->v->shape.element_bytes, c->bytes,
			room);
}

static void output_at(const struct reduce_view *v, uint32_t rank, const struct reduce_side *s,
		      uint64_t at, const char *from, uint64_t n, enum base_copy_kernel store)
{
	const struct region_desc *d = s->out;
	uint64_t lo = d->head, hi = d->bytes - d->tail, end = at + n, to;
	char *p = map_side(v, rank, d);

	for (; at < end; from += to - at, at = to) {
		char *dst = at < lo   ? s->out_edges + at
			    : at < hi ? p + at
				      : s->out_edges + XFER_EDGE_BYTES + (at - hi);

		to = base_min_u64(end, at < lo ? lo : at < hi ? hi : end);
		os_copy(dst, from, to - at, at >= lo && at < hi ? store : BASE_COPY_PLAIN);
	}
}

/* Store the part of the chunk at `from` that belongs to the rank's result. */
static void output(const struct chunk *c, uint32_t rank, const char *from)
{
	const struct reduce_view *v = c->v;
	uint64_t es = v->shape.element_bytes, first, n, lo, hi;
	struct reduce_side s;

	reduce_result(&v->shape, v->starts, rank, &first, &n);
	lo = base_max_u64(first, c->first);
	hi = base_min_u64(first + n, c->first + c->n);
	if (lo >= hi)
		return;
	s = v->side(v->ctx, rank);
	output_at(v, rank, &s, s.out_off + (lo - first) * es, from + (lo - c->first) * es,
		  (hi - lo) * es, c->store);
}

/* ---- combining --------------------------------------------------------------------------- */

static void local(const struct chunk *c, void *to, const void *a, const void *b)
{
	goal_local((enum goal_isa)os_simd(), c->v->shape.type, c->v->shape.dtype, to, a, b,
		   c->bytes);
}

/* inout = in op inout */
static int own_op(const struct chunk *c, const void *in, void *inout)
{
	return c->v->combine(c->v->combine_ctx, in, inout, c->n);
}

static void swap(char **a, char **b)
{
	char *p = *a;

	*a = *b;
	*b = p;
}

/*
 * Combine two values at places k and k + 1 of the stack: values[k] becomes piece[k]. The program's
 * operation overwrites its right operand.
 */
static int combine_two(struct chunk *c, const char **values, uint32_t k)
{
	int ret = 0;

	if (!c->v->combine) {
		local(c, c->piece[k], values[k], values[k + 1]);
	} else {
		if (values[k + 1] != c->piece[k + 1])
			memcpy(c->piece[k + 1], values[k + 1], c->bytes);
		ret = own_op(c, values[k], c->piece[k + 1]);
		swap(&c->piece[k], &c->piece[k + 1]);
	}
	values[k] = c->piece[k];
	return ret;
}

/* piece[k] is the room of the value at place k of the stack. */
static int reduce(struct chunk *c)
{
	const char *values[REDUCE_PIECES_MAX];
	uint32_t ranks = c->v->shape.ranks, n = 0;
	int ret = 0;

	for (uint32_t r = 0; r < ranks; r++) {
		values[n] = input(c, r, c->piece[n]);
		n++;
		for (uint32_t k = coll_combines_after(ranks, r); k && !ret; k--, n--)
			ret = combine_two(c, values, n - 2);
		if (ret)
			return ret;
	}
	for (uint32_t r = 0; r < ranks; r++)
		output(c, r, values[0]);
	return 0;
}

/* Combine rank r into piece[0]; piece[1] becomes the previous piece[0]. */
static int scan_one(struct chunk *c, uint32_t r)
{
	const char *in = input(c, r, c->piece[2]);
	int ret = 0;

	if (c->v->combine) {
		memcpy(c->piece[1], in, c->bytes);
		ret = own_op(c, c->piece[0], c->piece[1]);
	} else {
		local(c, c->piece[1], c->piece[0], in);
	}
	swap(&c->piece[0], &c->piece[1]);
	return ret;
}

/* Read each rank's input before storing its result: both may be the same memory. */
static int scan(struct chunk *c)
{
	bool is_exclusive = c->v->shape.kind == COLL_EXSCAN;
	int ret = 0;

	memcpy(c->piece[0], input(c, 0, c->piece[2]), c->bytes);
	if (!is_exclusive)
		output(c, 0, c->piece[0]);
	for (uint32_t r = 1; r < c->v->shape.ranks && !ret; r++) {
		ret = scan_one(c, r);
		if (!ret)
			output(c, r, c->piece[is_exclusive]);
	}
	return ret;
}

static int combine_chunk(struct chunk *c)
{
	if (coll_is_prefix(c->v->shape.kind))
		return scan(c);
	return reduce(c);
}

uint32_t reduce_pieces(uint32_t ranks)
{
	uint32_t depth = coll_combine_depth(ranks);

	return depth > 3 ? depth : 3; /* a scan needs 3 */
}

/* ---- chunk by chunk ---------------------------------------------------------------------- */

/*
 * Plain copies for results that need no streaming stores: no other kernel is faster from the
 * first-level cache (doc/adr/0020-flat-collectives.md).
 */
static enum base_copy_kernel pick_store(const struct reduce_view *v)
{
	uint64_t one = v->shape.count * v->shape.element_bytes;
	bool is_for_one = v->shape.kind == COLL_REDUCE || v->shape.kind == COLL_REDUCE_SCATTER;
	uint64_t vectors = v->shape.ranks + (is_for_one ? 1 : v->shape.ranks);

	if (base_opt.xfer_copy != BASE_COPY_AUTO)
		return os_copy_pick(one, one);
	return os_copy_is_past_cache(one * vectors) && os_copy_has(BASE_COPY_NONTEMPORAL)
		       ? BASE_COPY_NONTEMPORAL
		       : BASE_COPY_PLAIN;
}

static int combine_with(struct reduce_view *v, const struct reduce_room *room, uint64_t first,
			uint64_t n)
{
	uint64_t es = v->shape.element_bytes, most = room->bytes / es, end = first + n;
	struct chunk c = { .v = v, .store = pick_store(v) };
	int ret = 0;

	premap(v);
	for (; first < end && !ret; first += c.n) {
		for (uint32_t k = 0; k < reduce_pieces(v->shape.ranks); k++)
			c.piece[k] = room->at + k * room->bytes;
		c.first = first;
		c.n = base_min_u64(most, end - first);
		c.bytes = c.n * es;
		ret = combine_chunk(&c);
	}
	return ret;
}

int reduce_combine(struct reduce_view *v, uint64_t first, uint64_t n)
{
	_Alignas(BASE_CACHE_LINE) char memory[REDUCE_ROOM_BYTES];
	uint64_t bytes = REDUCE_ROOM_BYTES / reduce_pieces(v->shape.ranks);
	const struct reduce_room room = { memory, bytes - bytes % BASE_CACHE_LINE };
	uint32_t modes;
	int ret;

	if (v->combine)
		return combine_with(v, v->room, first, n);
	modes = os_float_modes_set(v->side(v->ctx, 0).float_modes);
	ret = combine_with(v, &room, first, n);
	os_float_modes_set(modes);
	return ret;
}

/* ---- edges ------------------------------------------------------------------------------- */

/*
 * The elements of the rank's result that have bytes before the mapped pages (head), or behind them;
 * none when all its bytes are mapped.
 */
static uint64_t edge_elements(struct reduce_view *v, uint32_t rank, bool head, uint64_t *first)
{
	struct reduce_side s = v->side(v->ctx, rank);
	uint64_t es = v->shape.element_bytes, n, at, end, lo, hi;

	reduce_result(&v->shape, v->starts, rank, first, &n);
	if (!n)
		return 0;
	at = s.out_off;
	end = at + n * es;
	lo = s.out->head;
	hi = s.out->bytes - s.out->tail;
	if (head)
		return at < lo ? (base_min_u64(lo, end) - at + es - 1) / es : 0;
	if (end <= hi)
		return 0;
	hi = base_max_u64(hi, at);
	*first += (hi - at) / es;
	return n - (hi - at) / es;
}

bool reduce_has_edges(struct reduce_view *v, uint32_t rank)
{
	uint64_t first;

	return edge_elements(v, rank, true, &first) || edge_elements(v, rank, false, &first);
}

bool reduce_are_edges_done(struct reduce_view *v, uint32_t rank)
{
	uint64_t first, n = edge_elements(v, rank, true, &first);

	if (n && !reduce_is_range_done(v, first, n))
		return false;
	n = edge_elements(v, rank, false, &first);
	return !n || reduce_is_range_done(v, first, n);
}

int reduce_move_edges(struct reduce_view *v, uint32_t rank)
{
	uint64_t first, n = edge_elements(v, rank, true, &first);
	int ret = n && !reduce_is_range_done(v, first, n) ? reduce_move_at(v, first) : 0;

	if (ret)
		return ret;
	n = edge_elements(v, rank, false, &first);
	return n && !reduce_is_range_done(v, first, n) ? reduce_move_at(v, first + n - 1) : 0;
}

void reduce_copy_edge_buf(struct reduce_view *v, uint32_t rank, char *to)
{
	struct reduce_side s = v->side(v->ctx, rank);
	struct xfer_end end = { *s.out, s.out_off, (int)rank, .edges = s.out_edges };
	uint64_t first, n;

	reduce_result(&v->shape, v->starts, rank, &first, &n);
	xfer_copy_edge_buf(&end, to, n * v->shape.element_bytes);
}
