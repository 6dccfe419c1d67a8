/* SPDX-License-Identifier: BSD-3-Clause */
/* Copying fragments: by loads and stores where both ends are mapped here, else by system call. */
#include <errno.h>
#include <string.h>

#include "trace/trace.h"
#include "xfer/xfer.h"

/*
 * Map this rank's own end through the arena, and fill its page tables at once, as for a peer
 * mapping. One table per process; relaxed: a lost entry costs only time.
 */
static char *map_alias(struct node_group *g, const struct region_desc *d, uint64_t middle)
{
	static _Atomic uint32_t filled[64];
	char *p = node_map(g, node_rank(g), d->arena_off, middle);
	_Atomic uint32_t *slot = &filled[d->id % BASE_ARRAY_LEN(filled)];

	if (!p || !d->id || atomic_load_explicit(slot, memory_order_relaxed) == d->id)
		return p;
	atomic_store_explicit(slot, d->id, memory_order_relaxed);
	os_populate(p, middle);
	return p;
}

static uint64_t sub_floor(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/*
 * Find byte 0 of an end here. A system call moves a transfer as a whole, so the mapped middle of a
 * peer's buffer is not enough for it.
 */
static void map_end(const struct xfer_view *v, struct xfer_end *e, enum xfer_view_mode mode)
{
	const struct region_desc *d = &e->desc;
	uint64_t middle = d->bytes - d->head - d->tail;
	bool own = e->rank == node_rank(v->group);
	char *p;

	e->addr = NULL;
	e->lo = e->hi = 0;
	uint64_t off = xfer_is_typed(e) ? 0 : e->off;

	if (own && mode == XFER_VIEW_NORMAL) {
		e->addr = (char *)(uintptr_t)d->addr + off;
		e->hi = v->plan.bytes;
		return;
	}
	if (v->plan.way != XFER_DIRECT || !(d->flags & REGION_DESC_MAPPED))
		return;
	p = own ? map_alias(v->group, d, middle) :
		  node_map(v->group, e->rank, d->arena_off, middle);
	if (!p)
		return;
	if (!own)
		node_premap(v->group, e->rank, d->id, p, middle);
	e->addr = p - d->head + off;
	e->hi = v->plan.bytes;
	if (xfer_is_typed(e))
		return;
	e->lo = base_min_u64(sub_floor(d->head, e->off), v->plan.bytes);
	e->hi = base_min_u64(sub_floor(d->bytes - d->tail, e->off), v->plan.bytes);
}

static bool is_typed(const struct xfer_view *v)
{
	return xfer_is_typed(&v->src) || xfer_is_typed(&v->dst);
}

/* Can this process copy the edges too? */
static bool can_move_edges(const struct xfer_view *v, bool src_is_normal, bool dst_is_normal)
{
	if (v->plan.edges == XFER_EDGES_ALL)
		return true;
	return v->plan.edges == XFER_EDGES_ENDS &&
	       (src_is_normal ||
		(dst_is_normal && !is_typed(v) &&
		 node_can_read(v->group, v->dst.rank, v->src.rank)));
}

static bool may_move(const struct xfer_view *v, bool is_src, bool is_dst)
{
	const struct xfer_plan *p = &v->plan;

	if (!(is_dst ? p->receiver_moves : is_src ? p->sender_moves : p->others_move))
		return false;
	if ((v->src.addr && v->dst.addr) || is_typed(v))
		return v->src.addr && v->dst.addr;
	return (is_dst && v->dst.addr && node_can_read(v->group, v->dst.rank, v->src.rank)) ||
	       (is_src && v->src.addr && node_can_write(v->group, v->src.rank, v->dst.rank));
}

void xfer_view_init(struct xfer_view *v, enum xfer_view_mode mode)
{
	bool is_src = v->src.rank == node_rank(v->group),
	     is_dst = v->dst.rank == node_rank(v->group), normal = mode == XFER_VIEW_NORMAL;

	map_end(v, &v->src, mode);
	map_end(v, &v->dst, mode);
	v->repaired = 0;
	v->edges_done = v->plan.edges != XFER_EDGES_RECEIVER;
	v->can_move = v->plan.way != XFER_STAGED && may_move(v, is_src, is_dst);
	v->start = is_dst ? 0 : v->plan.in_half;
	v->units = can_move_edges(v, is_src && normal, is_dst && normal) ? v->plan.units :
									   v->plan.fragments;
}

bool xfer_is_range_done(const struct xfer_view *v, uint64_t at, uint64_t n)
{
	return xfer_is_done(v->x, v->tag,
			    v->plan.way == XFER_STAGED ? v->plan.total
						       : xfer_units_of(&v->plan, at, n));
}

bool xfer_needs_me(const struct xfer_view *v)
{
	uint64_t failed = atomic_load_explicit(&v->x->failed, memory_order_acquire);

	if (v->dst.rank != node_rank(v->group))
		return v->plan.sender_needed ||
		       failed != atomic_load_explicit(&v->x->repaired, memory_order_relaxed);
	if (failed != v->repaired)
		return true;
	/* the receiver of a mapped buffer itself must do only the edges */
	return v->plan.receiver_needed && !(v->plan.dst_mapped && v->edges_done);
}

/* Bytes at each end of a buffer that its slot carries: all outside its pages that fit. */
static void edge_sizes(const struct region_desc *d, uint64_t *out_head, uint64_t *out_tail)
{
	bool mapped = d->flags & REGION_DESC_MAPPED;
	uint64_t n = base_min_u64(XFER_EDGE_BYTES, d->bytes);

	*out_head = mapped ? d->head : n;
	*out_tail = mapped ? d->tail : n;
}

void xfer_fill_edges(const struct region_desc *d, const void *buf, char *edges)
{
	uint64_t head, tail;

	edge_sizes(d, &head, &tail);
	memcpy(edges, buf, head);
	memcpy(edges + XFER_EDGE_BYTES, (const char *)buf + d->bytes - tail, tail);
}

/*
 * Byte `at` in the edges of an end, or NULL. *end becomes at most the end of the bytes from `at` on
 * that lie in the same place.
 */
static char *in_edges(const struct xfer_end *e, uint64_t at, uint64_t *end)
{
	uint64_t head, tail, tail_at;

	if (!e->edges)
		return NULL;
	edge_sizes(&e->desc, &head, &tail);
	tail_at = e->desc.bytes - tail;
	if (e->off + at < head) {
		*end = base_min_u64(*end, head - e->off);
		return e->edges + e->off + at;
	}
	if (e->off + at >= tail_at)
		return e->edges + XFER_EDGE_BYTES + (e->off + at - tail_at);
	*end = base_min_u64(*end, tail_at - e->off);
	return NULL;
}

/* ---- fragments --------------------------------------------------------------------------- */

/* Byte 0 of an end in the address space of its rank. */
static uint64_t owner_addr(const struct xfer_end *e) { return e->desc.addr + e->off; }

/* Bytes of an end from `at` on, in memory. */
static struct layout_end bytes_of(const struct xfer_end *e, uint64_t at)
{
	if (xfer_is_typed(e))
		return (struct layout_end){ e->addr, &e->layout, e->off + at };
	return (struct layout_end){ e->addr, NULL, at };
}

static int copy_range(struct xfer_view *v, uint64_t at, uint64_t n)
{
	enum base_copy_kernel kernel = os_copy_pick(n, v->plan.hi - v->plan.lo);
	int ret;

	if (v->src.addr && v->dst.addr) {
		if (is_typed(v)) {
			struct layout_end to = bytes_of(&v->dst, at), from = bytes_of(&v->src, at);

			layout_copy(&to, &from, n, kernel);
		} else {
			os_copy(v->dst.addr + at, v->src.addr + at, n, kernel);
		}
		base_count(BASE_CTR_BYTES_DIRECT, n);
		return 0;
	}
	if (v->dst.addr)
		ret = node_vm_read(v->group, v->src.rank, v->dst.addr + at,
				   owner_addr(&v->src) + at, n);
	else
		ret = node_vm_write(v->group, v->dst.rank, owner_addr(&v->dst) + at,
				    v->src.addr + at, n);
	if (!ret)
		base_count(BASE_CTR_BYTES_CMA, n);
	return ret;
}

void xfer_finish(struct xfer_view *v, uint64_t bits)
{
	if (!xfer_complete(v->x, bits, v->plan.total))
		return;
	if (v->dst.rank != node_rank(v->group))
		node_wake(v->group, v->dst.rank);
	if (v->src.rank != node_rank(v->group))
		node_wake(v->group, v->src.rank);
}

/* ---- edges ------------------------------------------------------------------------------- */

/*
 * Copy source bytes [from, to) to their destination, from memory, from the sender's slot or by
 * system call. Movers store bytes outside the receiver's pages in its slot, and so does the
 * receiver, because the end of the transfer does not tell which mover copied them.
 */
static int copy_edges_range(struct xfer_view *v, uint64_t from, uint64_t to)
{
	while (from < to) {
		uint64_t end = to;
		char *in_slot = v->plan.fills_edge_buf ? in_edges(&v->dst, from, &end) : NULL, *src;
		struct layout_end dst = in_slot ? (struct layout_end){ .addr = in_slot } :
						  bytes_of(&v->dst, from);
		int ret = 0;

		if (v->src.addr && from >= v->src.lo && from < v->src.hi) {
			struct layout_end in_memory = bytes_of(&v->src, from);

			end = base_min_u64(end, v->src.hi);
			layout_copy(&dst, &in_memory, end - from, BASE_COPY_PLAIN);
		} else if ((src = in_edges(&v->src, from, &end))) {
			layout_copy(&dst, &(struct layout_end){ .addr = src }, end - from,
				    BASE_COPY_PLAIN);
		} else if (is_typed(v)) {
			ret = -EPROTO; /* a peer's arena could not be mapped */
		} else {
			/* the plan has made sure that this works */
			ret = node_vm_read(v->group, v->src.rank, dst.addr + dst.at,
					   owner_addr(&v->src) + from, end - from);
		}
		if (ret)
			return ret;
		base_count(BASE_CTR_BYTES_EDGE, end - from);
		from = end;
	}
	return 0;
}

void xfer_copy_edge_buf(const struct xfer_end *dst, void *buf, uint64_t bytes)
{
	char *to = (char *)buf + dst->off;
	const char *from;

	if (!(dst->desc.flags & REGION_DESC_MAPPED) || xfer_is_typed(dst))
		return;
	for (uint64_t at = 0, end; at < bytes; at = end) {
		end = bytes;
		from = in_edges(dst, at, &end);
		if (from)
			memcpy(to + at, from, end - at);
	}
}

static int copy_edges(struct xfer_view *v)
{
	int ret = copy_edges_range(v, 0, v->plan.lo);

	return ret ? ret : copy_edges_range(v, v->plan.hi, v->plan.bytes);
}

static uint64_t unit_bytes(const struct xfer_view *v, uint32_t unit)
{
	uint64_t at, n = v->plan.lo + v->plan.bytes - v->plan.hi;

	if (unit != v->plan.fragments)
		xfer_fragment_range(&v->plan, unit, &at, &n);
	return n;
}

static void note_copy(const struct xfer_view *v, uint32_t unit, uint64_t bytes, uint64_t since,
		      enum trace_mover mover)
{
	trace_copied(since, .bytes = bytes, .op = v->tag, .group = node_id(v->group), .unit = unit,
		     .src = v->src.rank, .dst = v->dst.rank, .by = node_rank(v->group),
		     .mover = mover, .row = mover == TRACE_CPU ? v->x : NULL,
		     .is_last = since && xfer_is_all_claimed(v->x, v->tag, v->units));
}

/* The kernel refused although the trial had worked: the two ends repair the unit. */
__attribute__((cold)) static void await_repair(struct xfer_view *v, uint32_t unit)
{
	bool is_src = v->src.rank == node_rank(v->group);

	atomic_fetch_or_explicit(&v->x->failed, xfer_bit(unit), memory_order_release);
	node_wake(v->group, is_src ? v->dst.rank : v->src.rank);
}

int xfer_move_edges(struct xfer_view *v)
{
	int ret = copy_edges(v);

	if (ret == -EOWNERDEAD || (ret && is_typed(v)))
		return ret;
	v->edges_done = true;
	if (ret) {
		await_repair(v, v->plan.fragments);
		return 1;
	}
	note_copy(v, v->plan.fragments, unit_bytes(v, v->plan.fragments), 0, TRACE_EDGES);
	xfer_finish(v, xfer_bit(v->plan.fragments));
	return 1;
}

/* ---- units ------------------------------------------------------------------------------- */

int xfer_copy_unit(struct xfer_view *v, uint32_t unit)
{
	bool is_edges = unit == v->plan.fragments;
	uint64_t at, n = unit_bytes(v, unit), since = 0;
	bool is_worker = node_rank(v->group) < 0;
	int ret;

	os_peer_memory_use();
	if (is_edges) {
		ret = copy_edges(v);
	} else {
		/*
		 * the time of a worker's copy matters: the worker copies while the program computes
		 */
		since = is_worker ? trace_copy_begin(n)
				  : trace_row_begin(v->x, v->tag, v->plan.bytes);
		xfer_fragment_range(&v->plan, unit, &at, &n);
		ret = copy_range(v, at, n);
		if (!ret && node_rank(v->group) != v->dst.rank)
			base_count(BASE_CTR_BYTES_HELPED, n);
	}
	if (ret)
		return ret;
	if (since || is_worker)
		note_copy(v, unit, n, since, is_worker ? TRACE_WORKER : TRACE_CPU);
	xfer_finish(v, xfer_bit(unit));
	if (!since && !is_worker) /* no clock is read: the record may follow the completion */
		note_copy(v, unit, n, 0, is_edges ? TRACE_EDGES : TRACE_CPU);
	return 0;
}

int xfer_move(struct xfer_view *v, uint32_t start)
{
	int me = node_rank(v->group), ret;
	uint32_t i;

	if (!v->can_move)
		return 0;
	i = xfer_claim(v->x, v->tag, v->units, start == XFER_ANY ? v->start : start);
	if (i == XFER_NONE) {
		trace_row_end(v->x);
		return 0;
	}
	ret = xfer_copy_unit(v, i);
	if (ret == -EOWNERDEAD)
		return ret;
	if (ret && me == v->src.rank && v->plan.receiver_moves) {
		/*
		 * leave the unit to the receiver, perhaps the only one who can copy it: a sender
		 * that has left its call repairs nothing
		 */
		v->can_move = false;
		xfer_unclaim(v->x, i);
		node_wake(v->group, v->dst.rank);
		return 0;
	}
	if (ret)
		await_repair(v, i);
	return 1;
}

/* ---- repair ------------------------------------------------------------------------------ */

bool xfer_needs_repair(const struct xfer_view *v)
{
	return atomic_load_explicit(&v->x->failed, memory_order_acquire) !=
	       atomic_load_explicit(&v->x->repaired, memory_order_relaxed);
}

/* Copy the bytes of one unit between two buffers that each hold the whole transfer. */
static void lay_out(const struct xfer_plan *p, uint32_t unit, char *to, const char *from)
{
	uint64_t at, n;

	if (unit == p->fragments) {
		memcpy(to, from, p->lo);
		memcpy(to + p->hi, from + p->hi, p->bytes - p->hi);
		return;
	}
	xfer_fragment_range(p, unit, &at, &n);
	memcpy(to + at, from + at, n);
}

int xfer_repair_send(struct xfer_view *v, const struct region_extent *scratch)
{
	uint64_t todo = atomic_load_explicit(&v->x->failed, memory_order_acquire) &
			~atomic_load_explicit(&v->x->repaired, memory_order_relaxed);
	char *to = (char *)region_arena_base() + scratch->offset;

	if (!todo)
		return 0;
	for (uint32_t i = 0; i <= v->plan.fragments; i++)
		if (todo & xfer_bit(i))
			lay_out(&v->plan, i, to, v->src.addr);
	v->x->repair_off = scratch->offset;
	atomic_fetch_or_explicit(&v->x->repaired, todo,
				 memory_order_release); /* partner: repair_receive */
	node_wake(v->group, v->dst.rank);
	return 1;
}

int xfer_repair_receive(struct xfer_view *v)
{
	uint64_t ready = atomic_load_explicit(&v->x->repaired, memory_order_acquire) & ~v->repaired;
	char *from;

	if (!ready)
		return 0;
	from = node_map(v->group, v->src.rank, v->x->repair_off, v->plan.bytes);
	if (!from)
		return -EPROTO;
	for (uint32_t i = 0; i <= v->plan.fragments; i++) {
		if (!(ready & xfer_bit(i)))
			continue;
		lay_out(&v->plan, i, v->dst.addr, from);
		note_copy(v, i, unit_bytes(v, i), 0, TRACE_CPU);
	}
	v->repaired |= ready;
	xfer_finish(v, ready);
	return 1;
}
