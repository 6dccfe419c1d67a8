/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions as runs: publishing, stepping, and polling a detached one. When all ranks have
 * published, any mover can combine any fragment; only rank r can run an operation of the program,
 * on slice r.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "exec/private.h"

#define ROOM_BYTES (32u << 10) /* work memory per piece, for operations of the program */

/* ---- publishing --------------------------------------------------------------------------- */

static uint64_t *slot_starts(const struct exec_comm *e, struct exec_slot *s)
{
	return (uint64_t *)((char *)s + e->starts_off);
}

static struct reduce_side side_of(void *ctx, uint32_t rank)
{
	const struct slot_reduce *at = ctx;
	struct exec_slot *s = slot_of(at->comm, (int)rank, at->op);

	return (struct reduce_side){
		.in = &s->desc[s->is_in_place ? COLL_RECV : COLL_SEND],
		.out = &s->desc[COLL_RECV],
		.in_off = s->is_in_place ? s->reduce_out_off : s->reduce_in_off,
		.out_off = s->reduce_out_off,
		.in_edges = slot_send_edges(at->comm, s),
		.out_edges = slot_edge_buf(at->comm, s),
		.float_modes = s->reduce_float_modes,
	};
}

static struct xfer *words_of(void *ctx, uint32_t slice)
{
	const struct slot_reduce *at = ctx;

	return slot_xfer(at->comm, slot_of(at->comm, (int)slice, at->op), 0);
}

static void view_init(struct reduce_view *v, struct slot_reduce *at,
		      const struct reduce_shape *shape, const uint64_t *starts)
{
	*v = (struct reduce_view){
		.shape = *shape,
		.starts = starts,
		.group = at->comm->group,
		.tag = at->op,
		.mode = XFER_VIEW_ALIASED,
		.ctx = at,
		.side = side_of,
		.words = words_of,
	};
	reduce_cut(shape, &v->cut);
}

/* Starts ascend from 0 to the number of elements. */
static bool are_starts(const struct exec_reduce *f, int ranks)
{
	if (f->kind != COLL_REDUCE_SCATTER)
		return true;
	if (!f->starts || f->in_place || f->starts[0] || f->starts[ranks] != f->count)
		return false;
	for (int r = 0; r < ranks; r++)
		if (f->starts[r] > f->starts[r + 1])
			return false;
	return true;
}

static bool is_operation(const struct exec_reduce *f)
{
	const struct goal_op op = { .type = (uint8_t)f->type };

	if (f->type == GOAL_NOP)
		return f->combine && f->element_bytes;
	return goal_is_arithmetic(&op) && goal_dtype_bytes(f->dtype) == f->element_bytes &&
	       f->element_bytes && !(f->type >= GOAL_AND && goal_dtype_is_float(f->dtype));
}

static int get_room(struct exec_comm *e, uint64_t element_bytes)
{
	uint64_t bytes = base_round_up(base_max_u64(element_bytes, ROOM_BYTES), BASE_CACHE_LINE);
	char *p;

	if (e->room.bytes >= bytes)
		return 0;
	p = aligned_alloc(BASE_CACHE_LINE, reduce_pieces((uint32_t)e->size) * bytes);
	if (!p)
		return -ENOMEM;
	free(e->room.at);
	e->room = (struct reduce_room){ p, bytes };
	return 0;
}

int reduction_begin(struct exec_run *r)
{
	const struct exec_reduce *f = r->call.reduce;
	const struct reduce_shape shape = {
		.kind = f->kind,
		.ranks = (uint32_t)r->comm->size,
		.root = f->kind == COLL_REDUCE ? (uint32_t)f->root : 0,
		.type = f->type,
		.dtype = f->type == GOAL_NOP ? 0 : f->dtype,
		.is_commutative = f->type != GOAL_NOP || f->is_commutative,
		.count = f->count,
		.element_bytes = f->element_bytes,
		.starts_sum = f->kind == COLL_REDUCE_SCATTER && f->starts ?
				      reduce_starts_sum(f->starts, (uint32_t)r->comm->size) : 0,
	};

	if (!is_operation(f) || !are_starts(f, r->comm->size) || shape.root >= shape.ranks ||
	    f->count > UINT64_MAX / f->element_bytes)
		return -EINVAL;
	/* this rank's own collective, until the slot's next one */
	r->reduce_at = (struct slot_reduce){ r->comm, r->op };
	view_init(&r->reduce, &r->reduce_at, &shape, slot_starts(r->comm, r->slot));
	r->reduce.mode = XFER_VIEW_NORMAL;
	if (f->type != GOAL_NOP)
		return 0;
	r->reduce.combine = f->combine;
	r->reduce.combine_ctx = f->ctx;
	r->reduce.room = &r->comm->room;
	return get_room(r->comm, f->element_bytes);
}

static void publish(struct exec_run *r)
{
	const struct exec_reduce *f = r->call.reduce;
	struct exec_slot *s = r->slot;
	enum coll_buffer in = f->in_place ? COLL_RECV : COLL_SEND;

	r->remaining = 1;
	s->op_count = s->recv_count = 0;
	s->reduce = r->reduce.shape;
	s->reduce_in_off = f->in_off;
	s->reduce_out_off = f->out_off;
	s->is_in_place = f->in_place;
	s->reduce_float_modes = f->float_modes;
	if (f->kind == COLL_REDUCE_SCATTER)
		memcpy(slot_starts(r->comm, s), f->starts,
		       ((size_t)r->comm->size + 1) * sizeof f->starts[0]);
	xfer_fill_edges(&s->desc[in], r->call.user[in], slot_send_edges(r->comm, s));
	xfer_open(slot_xfer(r->comm, s, 0), r->op);
	r->has_reduce_edges = !reduce_has_edges(&r->reduce, (uint32_t)r->comm->rank);
}

/* ---- arrivals ------------------------------------------------------------------------------ */

/*
 * Returns: 0: all ranks have published and agree; -EAGAIN: not yet; -ESTALE: one has ended the
 * reduction, so it is complete; -EREMOTEIO: they disagree.
 */
static int check_arrivals(const struct exec_run *r)
{
	for (int k = 0; k < r->comm->size; k++) {
		struct exec_slot *s = slot_of(r->comm, k, r->op);
		bool is_alike;

		if (slot_has_passed(s, r->op))
			return -ESTALE;
		if (!slot_is_published(s, r->op))
			return -EAGAIN;
		is_alike = s->is_reduce && !memcmp(&s->reduce, &r->reduce.shape, sizeof s->reduce);
		if (!slot_is_still(s, r->op))
			return -ESTALE;
		if (!is_alike)
			return -EREMOTEIO;
	}
	return 0;
}

/* Like check_arrivals(), and checks that all memory is reachable. Serves detached runs too. */
static int check_all(const struct exec_run *r)
{
	struct reduce_view v = r->reduce;
	int ret = r->has_matched ? 0 : check_arrivals(r);

	if (ret || r->has_matched || reduce_can_reach(&v))
		return ret;
	ret = check_arrivals(r); /* the data read may belong to a later collective */
	return ret ? ret : -EREMOTEIO;
}

static int match(struct exec_run *r)
{
	int ret = check_all(r);

	r->has_matched |= !ret;
	return ret;
}

int slot_reduce_view(struct slot_reduce *at, struct reduce_view *v)
{
	struct exec_comm *e = at->comm;
	struct exec_slot *first = slot_of(e, 0, at->op);
	struct reduce_shape shape = first->reduce;
	bool may = shape.type != GOAL_NOP;

	for (int pass = 0; pass < 2; pass++) { /* the second pass validates the first */
		for (int k = 0; k < e->size; k++) {
			struct exec_slot *s = slot_of(e, k, at->op);
			bool is_alike;

			if (!slot_is_published(s, at->op))
				return -EAGAIN;
			is_alike = s->is_reduce && !memcmp(&s->reduce, &shape, sizeof shape);
			/* a mover killed within a fragment may have overwritten inputs of it */
			may &= !s->is_in_place;
			if (!slot_is_still(s, at->op) || !is_alike)
				return -EAGAIN;
		}
		if (!pass && may) {
			view_init(v, at, &shape, slot_starts(e, first));
			may = reduce_can_reach(v);
		}
	}
	return may ? 0 : -EPERM;
}

/* ---- moving ------------------------------------------------------------------------------- */

/*
 * Combine a fragment of any slice, this rank's own first. Owners begin at the front, helpers in the
 * middle.
 */
static int move_any(struct reduce_view *v, int rank)
{
	for (uint32_t k = 0; k < v->shape.ranks; k++) {
		uint32_t slice = ((uint32_t)rank + k) % v->shape.ranks;
		int ret =
			reduce_move(v, slice, k ? reduce_units(&v->shape, &v->cut, slice) / 2 : 0);

		if (ret)
			return ret;
	}
	return 0;
}

static int work(struct exec_run *r, enum exec_copy copy)
{
	uint32_t rank = (uint32_t)r->comm->rank;

	if (r->reduce.combine)
		return reduce_move(&r->reduce, rank, 0);
	if (copy == EXEC_COPY_ALL)
		return move_any(&r->reduce, r->comm->rank);
	return r->has_reduce_edges || r->call.is_nonblocking ? 0
							     : reduce_move_edges(&r->reduce, rank);
}

static bool copy_edge_buf(struct exec_run *r)
{
	uint32_t rank = (uint32_t)r->comm->rank;

	if (r->has_reduce_edges || !reduce_are_edges_done(&r->reduce, rank))
		return false;
	reduce_copy_edge_buf(&r->reduce, rank, r->call.user[1]);
	r->has_reduce_edges = true;
	return true;
}

static bool is_done(struct exec_run *r)
{
	uint32_t ranks = r->reduce.shape.ranks;

	while (r->reduce_done < ranks &&
	       reduce_is_done(&r->reduce, ((uint32_t)r->comm->rank + r->reduce_done) % ranks))
		r->reduce_done++;
	return r->reduce_done == ranks;
}

static int step(struct exec_run *r, enum exec_copy copy)
{
	int ret = match(r);

	if (ret == -EAGAIN)
		return 0;
	if (ret && ret != -ESTALE)
		return ret;
	if (!ret)
		ret = work(r, copy);
	if (ret == 1 || (ret < 0 && ret != -ESTALE))
		return ret;
	if (ret == -ESTALE && !r->has_reduce_edges) {
		reduce_copy_edge_buf(&r->reduce, (uint32_t)r->comm->rank, r->call.user[1]);
		r->has_reduce_edges = true;
	}
	if (ret == -ESTALE || (is_done(r) && (r->has_reduce_edges || copy_edge_buf(r)))) {
		r->remaining = 0;
		return 1;
	}
	return copy_edge_buf(r);
}

/* ---- detached runs ------------------------------------------------------------------------- */

static enum run_need need(const struct exec_run *r, bool all_come)
{
	struct reduce_view v = r->reduce;
	bool is_needed = !r->has_reduce_edges;

	if (!r->has_matched)
		is_needed |= all_come || v.combine;
	else
		is_needed |= v.combine && !reduce_is_done(&v, (uint32_t)r->comm->rank);
	return is_needed ? NEEDED_NOW : NOT_NEEDED;
}

/* A range of a user buffer: the rank's input or its result; 0 bytes: no result. */
struct range { enum coll_buffer mem; uint64_t off, bytes; };

static struct range input_range(const struct exec_run *r)
{
	struct reduce_side s = side_of(r->reduce.ctx, (uint32_t)r->comm->rank);

	return (struct range){ r->slot->is_in_place ? COLL_RECV : COLL_SEND, s.in_off,
			       r->reduce.shape.count * r->reduce.shape.element_bytes };
}

static struct range output_range(const struct exec_run *r, uint64_t *out_first)
{
	uint64_t n;

	reduce_result(&r->reduce.shape, r->reduce.starts, (uint32_t)r->comm->rank, out_first, &n);
	return (struct range){ COLL_RECV, r->slot->reduce_out_off,
			       n * r->reduce.shape.element_bytes };
}

static void each_range(const struct exec_run *r, exec_visit *visit, void *arg)
{
	uint64_t first;
	struct range in = input_range(r), out = output_range(r, &first);

	if (in.mem != out.mem || !out.bytes)
		visit(arg, &r->call.desc[in.mem], in.off, in.bytes, false);
	if (out.bytes)
		visit(arg, &r->call.desc[out.mem], out.off, out.bytes, true);
}

/*
 * The elements of the vector, [*first, *first + n), that the program's bytes [start, end) hold of a
 * range, whose first element is `base`.
 */
static uint64_t elements_in(const struct exec_run *r, const struct range *in, uint64_t base,
			    uintptr_t start, uintptr_t end, uint64_t *first)
{
	uint64_t es = r->reduce.shape.element_bytes, lo = r->call.desc[in->mem].addr + in->off,
		 hi = lo + in->bytes;

	if (start >= hi || end <= lo)
		return 0;
	start = start > lo ? start - lo : 0;
	end = base_min_u64(end, hi) - lo;
	*first = base + start / es;
	return (end + es - 1) / es - start / es;
}

/* Are the elements complete whose inputs or results lie in the range? *at: the first of them. */
static bool is_in_place(const struct exec_run *r, uintptr_t start, uintptr_t end, uint64_t *at)
{
	struct reduce_view v = r->reduce;
	uint64_t first, n;
	struct range in = input_range(r), out = output_range(r, &first);

	n = elements_in(r, &in, 0, start, end, at);
	if (n && !reduce_is_range_done(&v, *at, n))
		return false;
	n = elements_in(r, &out, first, start, end, at);
	return !n || reduce_is_range_done(&v, *at, n);
}

static int fetch(struct exec_run *r, uintptr_t start, uintptr_t end, bool *out_is_complete)
{
	struct reduce_view v = r->reduce;
	int ret = check_all(r);
	uint64_t at;

	*out_is_complete = ret == -ESTALE;
	if (ret)
		return ret == -EREMOTEIO ? ret : 0;
	while (!(*out_is_complete = is_in_place(r, start, end, &at))) {
		ret = v.combine ? 0 : start ? reduce_move_at(&v, at) : 0;
		if (!ret && !v.combine)
			ret = move_any(&v, r->comm->rank);
		if (ret <= 0)
			break;
	}
	return ret;
}

static int advance(struct exec_run *r)
{
	struct reduce_view v = r->reduce;
	int ret = check_all(r);

	if (ret || v.combine)
		return ret == -EREMOTEIO ? ret : 0;
	return move_any(&v, r->comm->rank);
}

static bool are_all_claimed(const struct exec_run *r)
{
	struct reduce_view v = r->reduce;

	for (uint32_t s = 0; s < v.shape.ranks; s++)
		if (!reduce_is_all_claimed(&v, s))
			return false;
	return true;
}

static unsigned poll_facts(struct exec_run *r, uintptr_t start, uintptr_t end, unsigned facts)
{
	int ret = check_all(r);
	uint64_t at;

	if (ret)
		return ret == -ESTALE ? facts : 0;
	if (facts & EXEC_IS_CLAIMED && !are_all_claimed(r))
		facts &= ~(unsigned)EXEC_IS_CLAIMED;
	if (facts & EXEC_IS_COMPLETE && !is_in_place(r, start, end, &at))
		facts &= ~(unsigned)EXEC_IS_COMPLETE;
	return facts;
}

static uint64_t work_bytes(const struct exec_run *r)
{
	struct slot_reduce at = { r->comm, r->op };
	const struct reduce_shape *s = &r->reduce.shape;
	struct reduce_view v;

	if (!r->has_matched || are_all_claimed(r) || slot_reduce_view(&at, &v))
		return 0;
	return base_max_u64(s->count * s->element_bytes * s->ranks, 1);
}

/* Every other rank; this rank is -1. */
static uint32_t peer_count(const struct exec_run *r) { return (uint32_t)r->comm->size; }

static int peer_at(const struct exec_run *r, uint32_t i)
{
	return (int)i == r->comm->rank ? -1 : (int)i;
}

static int help(struct exec_run *r) { return 0; /* every step helps */ }

const struct run_ops reduction_ops = {
	.publish = publish,
	.peer_count = peer_count,
	.peer_at = peer_at,
	.step = step,
	.help = help,
	.need = need,
	.each_range = each_range,
	.advance = advance,
	.fetch = fetch,
	.poll = poll_facts,
	.work_bytes = work_bytes,
};
