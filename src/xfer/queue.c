/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Feeding a channel from the virtual queue of transfers, a few fragments at a time. Each thread in
 * here (in start(), or in done() of a copy) is a user of the queue; the last one to leave calls
 * drained(). Posts are bits of a mask, so nothing is allocated or locked.
 */
#include <errno.h>

#include "trace/trace.h"
#include "xfer/xfer.h"

/*
 * Post long fragments piece by piece, so that a switch to CPU mode need not wait for a whole one;
 * for engines without a better size.
 */
#define PIECE_BYTES (128u << 10)

void xfer_queue_init(struct xfer_queue *q)
{
	atomic_store_explicit(&q->users, 0, memory_order_relaxed);
	atomic_store_explicit(&q->is_stopped, false, memory_order_relaxed);
	atomic_store_explicit(&q->is_retired, false, memory_order_relaxed);
}

bool xfer_queue_is_stopped(const struct xfer_queue *q)
{
	return atomic_load_explicit(&q->is_stopped, memory_order_relaxed);
}

/* Unclaim the unit and wake both ends, which may copy it now. */
static void give_back(const struct xfer_view *v, uint32_t unit)
{
	struct node_group *g = v->group;
	int src = v->src.rank, dst = v->dst.rank;

	xfer_unclaim(v->x, unit);
	node_wake(g, dst);
	node_wake(g, src);
}

static void by_cpu(struct xfer_view *v, uint32_t unit)
{
	if (xfer_copy_unit(v, unit)) /* cannot fail: both ends are mapped */
		give_back(v, unit);
}

/* ---- what a channel can copy --------------------------------------------------------------- */

/*
 * Is this end addressed through an arena? Only such addresses are good while a guard closes or
 * moves the program's own mapping. A peer's end always is.
 */
static bool is_window(const struct xfer_view *v, const struct xfer_end *e)
{
	uintptr_t at = (uintptr_t)e->addr + v->plan.lo, arena = (uintptr_t)region_arena_base();

	return e->addr && (e->rank != node_rank(v->group) ||
			   (at >= arena && at - arena < region_arena_bytes()));
}

static bool is_announced(struct xfer_queue *q, const struct xfer_view *v, const struct xfer_end *e)
{
	return !engine_memory(q->chan, e->addr + v->plan.lo, v->plan.hi - v->plan.lo, e->desc.id);
}

/* Can the channel copy any bytes of this transfer? */
static bool fits(struct xfer_queue *q, const struct xfer_view *v)
{
	if (!q->piece_bytes || !v->can_move || !is_window(v, &v->src) || !is_window(v, &v->dst) ||
	    xfer_is_typed(&v->src) || xfer_is_typed(&v->dst))
		return false;
	return ((uintptr_t)v->src.addr + v->plan.lo) % q->align_bytes == 0 &&
	       ((uintptr_t)v->dst.addr + v->plan.lo) % q->align_bytes == 0 &&
	       is_announced(q, v, &v->src) && is_announced(q, v, &v->dst);
}

/* ---- posting ----------------------------------------------------------------------------- */

static void post_done(struct engine_copy *c, int result);

/* Returns: a post that nobody uses. There are as many as the channel may hold fragments. */
static struct xfer_post *get_post(struct xfer_queue *q)
{
	uint64_t all = atomic_load_explicit(&q->free_posts, memory_order_relaxed);

	/* acquire: the last user has read it; partner: put_post */
	while (!atomic_compare_exchange_weak_explicit(&q->free_posts, &all, all & (all - 1),
						      memory_order_acquire, memory_order_relaxed))
		;
	return &q->posts[__builtin_ctzll(all)];
}

static void put_post(struct xfer_queue *q, const struct xfer_post *p)
{
	atomic_fetch_or_explicit(&q->free_posts, (uint64_t)1 << (p - q->posts),
				 memory_order_release);
}

/* Post the piece of p that begins at p->at. Returns: 0, or -errno of engine_post(). */
static int post_piece(struct xfer_queue *q, struct xfer_post *p)
{
	const struct xfer_view *v = p->view;
	uint64_t n = base_min_u64(p->end - p->at, q->piece_bytes);

	if (n == p->end - p->at)
		/* the CPU copies the unaligned last bytes */
		n = base_round_down(n, q->align_bytes);
	p->copy = (struct engine_copy){
		.dst = v->dst.addr + p->at,
		.src = v->src.addr + p->at,
		.bytes = n,
		.done = post_done,
		.arg = q,
		.total_bytes = v->plan.hi - v->plan.lo,
	};
	p->since = trace_copy_begin(n);
	return n ? engine_post(q->chan, &p->copy) : -EINVAL;
}

/* Post a fragment that this thread has claimed. Returns: false when the channel refuses it. */
static bool post_fragment(struct xfer_queue *q, struct xfer_view *v, uint32_t i)
{
	struct xfer_post *p = get_post(q);
	uint64_t n;

	p->view = v;
	p->fragment = i;
	xfer_fragment_range(&v->plan, i, &p->at, &n);
	p->end = p->at + n;
	if (!post_piece(q, p))
		return true;
	put_post(q, p);
	give_back(v, i);
	return false;
}

/*
 * The first transfer from number i on of which the channel may copy bytes; NULL: none. out_i: its
 * number, or that of the end.
 */
static struct xfer_view *view_from(struct xfer_queue *q, uint32_t i, uint32_t *out_i)
{
	struct xfer_view *v = NULL;

	for (; i < q->count; i++) {
		v = q->at(q->arg, i);
		if (v && fits(q, v))
			break;
		v = NULL;
	}
	*out_i = i;
	return v;
}

/*
 * Claim and post one fragment more: of the present transfer, or of the next that has any. Threads
 * that find a transfer claimed move on from it once, together.
 * Returns: false: no fragment is free, or the channel refuses it.
 */
static bool post_next(struct xfer_queue *q)
{
	/* acquire: what the engine has noted about the transfer's memory; partner: below */
	uint32_t at = atomic_load_explicit(&q->present, memory_order_acquire), next, i;

	while (!xfer_queue_is_stopped(q) && at < q->count) {
		struct xfer_view *v = q->at(q->arg, at);

		/* programs mostly touch the beginning first */
		i = v ? xfer_claim(v->x, v->tag, v->units, 0) : XFER_NONE;
		if (i == XFER_NONE) {
			view_from(q, at + 1, &next);
			if (atomic_compare_exchange_strong_explicit(&q->present, &at, next,
								    memory_order_acq_rel,
								    memory_order_acquire))
				at = next;
		} else if (i == v->plan.fragments) {
			by_cpu(v, i);
		} else {
			return post_fragment(q, v, i);
		}
	}
	return false;
}

/* ---- ends of copies ---------------------------------------------------------------------- */

static void put_user(struct xfer_queue *q)
{
	void (*drained)(void *) = q->drained;
	void *arg = q->arg;

	/*
	 * release: this user's stores come before the next use of q; partner: is_idle, and the last
	 * user
	 */
	if (atomic_fetch_sub_explicit(&q->users, 1, memory_order_acq_rel) == 1)
		drained(arg);
}

/* The copy of a piece has failed, or was cancelled. */
static void piece_failed(struct xfer_queue *q, struct xfer_post *p, int result)
{
	if (result != -ECANCELED)
		base_count(BASE_CTR_ENGINE_ERRORS, 1);
	/*
	 * A waiting thread copies faster than a thread of an engine, which may run at idle
	 * priority.
	 */
	if (xfer_queue_is_stopped(q))
		give_back(p->view, p->fragment);
	else
		by_cpu(p->view, p->fragment);
}

/* Returns true when the next piece of the fragment is in the channel. */
static bool piece_ended(struct xfer_queue *q, struct xfer_post *p)
{
	struct xfer_view *v = p->view;

	base_count(BASE_CTR_BYTES_ENGINE, p->copy.bytes);
	trace_copied(p->since, .bytes = p->copy.bytes, .op = v->tag, .group = node_id(v->group),
		     .unit = p->fragment, .src = v->src.rank, .dst = v->dst.rank,
		     .by = node_rank(v->group), .mover = TRACE_CHANNEL);
	p->at += p->copy.bytes;
	if (p->end - p->at < q->align_bytes) {
		if (p->at < p->end)
			os_copy(v->dst.addr + p->at, v->src.addr + p->at, p->end - p->at,
				BASE_COPY_PLAIN);
		xfer_finish(v, xfer_bit(p->fragment));
		return false;
	}
	if (xfer_queue_is_stopped(q)) {
		give_back(v, p->fragment);
		return false;
	}
	if (!post_piece(q, p))
		return true;
	by_cpu(v, p->fragment);
	return false;
}

static void post_done(struct engine_copy *c, int result)
{
	struct xfer_post *p = (struct xfer_post *)c;
	struct xfer_queue *q = c->arg;
	struct engine_chan *chan = q->chan;
	bool posted = false;

	atomic_store_explicit(&q->moved_ns, os_now_ns(), memory_order_relaxed);
	if (result)
		piece_failed(q, p, result);
	else
		posted = piece_ended(q, p);
	if (!posted)
		put_post(q, p);
	if (posted || post_next(q))
		engine_flush(chan);
	else
		put_user(q);
}

/* ---- the owner --------------------------------------------------------------------------- */

static void set_pieces(struct xfer_queue *q)
{
	struct engine_caps caps;
	uint64_t piece;

	q->chan->ops->caps(q->chan, &caps);
	piece = caps.piece_bytes ? caps.piece_bytes : PIECE_BYTES;
	q->align_bytes = base_max_u64(caps.align_bytes, 1);
	q->piece_bytes = base_round_down(base_min_u64(piece, caps.max_copy_bytes), q->align_bytes);
}

bool xfer_queue_start(struct xfer_queue *q, xfer_view_at *at, uint32_t count,
		      struct engine_chan *chan, uint32_t depth, void (*drained)(void *arg),
		      void *arg)
{
	uint32_t posted = 0, first;

	if (q->chan != chan) /* a late thread in rescue() may still read it */
		q->chan = chan;
	if (xfer_queue_is_stopped(q))
		return false;
	q->at = at;
	q->count = count;
	q->drained = drained;
	q->arg = arg;
	set_pieces(q);
	if (!view_from(q, 0, &first))
		return false;
	depth = (uint32_t)base_min_u64(depth, XFER_POSTS);
	atomic_store_explicit(&q->free_posts, xfer_bits(XFER_POSTS), memory_order_relaxed);
	atomic_store_explicit(&q->present, first, memory_order_relaxed);
	atomic_store_explicit(&q->moved_ns, os_now_ns(), memory_order_relaxed);
	/*
	 * release: all stores above; partner: is_idle, in rescue. (done() is ordered by the post.)
	 */
	atomic_store_explicit(&q->users, 1, memory_order_release);
	while (posted < depth) {
		atomic_fetch_add_explicit(&q->users, 1, memory_order_relaxed);
		if (!post_next(q)) {
			atomic_fetch_sub_explicit(&q->users, 1,
						  /* never the last: start() is a user */
						  memory_order_relaxed);
			break;
		}
		posted++;
	}
	if (posted)
		engine_flush(chan);
	/* acquire: the caller may use q again when all fragments have come back meanwhile */
	return atomic_fetch_sub_explicit(&q->users, 1, memory_order_acq_rel) != 1;
}

/* Becomes a user of a queue that has some, so that it stays in use. */
static bool get_user(struct xfer_queue *q)
{
	uint32_t users = atomic_load_explicit(&q->users, memory_order_relaxed);

	do {
		if (!users)
			return false;
		/* acquire: the stores of start() */
	} while (!atomic_compare_exchange_weak_explicit(
		&q->users, &users, users + 1, memory_order_acquire, memory_order_relaxed));
	return true;
}

void xfer_queue_stop(struct xfer_queue *q)
{
	/* release: before what is cancelled comes back; partner: piece_failed */
	if (atomic_exchange_explicit(&q->is_stopped, true, memory_order_release))
		return;
	atomic_store_explicit(&q->moved_ns, os_now_ns(), memory_order_relaxed);
	if (!get_user(q))
		return;
	engine_cancel(q->chan, q->posts, sizeof(q->posts));
	put_user(q);
}

bool xfer_queue_is_idle(const struct xfer_queue *q)
{
	return !atomic_load_explicit(&q->users, memory_order_acquire); /* partner: put_user */
}

uint64_t xfer_queue_due_ns(const struct xfer_queue *q)
{
	return atomic_load_explicit(&q->moved_ns, memory_order_relaxed) +
	       (uint64_t)base_opt.engine_timeout_ms * 1000000u;
}

bool xfer_queue_rescue(struct xfer_queue *q, uint64_t now_ns)
{
	if (xfer_queue_is_idle(q))
		return false;
	if (engine_poll(q->chan) > 0)
		return true;
	if (now_ns < xfer_queue_due_ns(q))
		return false;
	if (!atomic_exchange_explicit(&q->is_retired, true, memory_order_relaxed))
		base_count(BASE_CTR_ENGINE_RETIRED, 1);
	q->chan->ops->retire(q->chan);
	return true;
}
