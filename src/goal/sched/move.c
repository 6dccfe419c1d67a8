/* SPDX-License-Identifier: BSD-3-Clause */
/* Executing jobs, without a claim: copies between memory of any two processes by loads and stores
 * or by system call, and local operations. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "goal/local.h"
#include "goal/sched/private.h"

uint64_t work_bits(const struct sched_work *w) { return xfer_bits(w->units); }

/* ---- one piece of memory ----------------------------------------------------------------- */

struct side {
	char *local;     /* NULL: this process does not map it */
	uint64_t remote; /* its address in the process that owns it */
	uint64_t bytes;  /* length of the contiguous piece */
};

static struct sched_inst *own_inst(struct sched_group *g, const struct sched_end *e)
{
	if (e->rank != g->rank || e->slot >= SCHED_INSTS)
		return NULL;
	return atomic_load_explicit(&g->drivers[g->rank].insts[e->slot], memory_order_acquire);
}

static int side_of_desc(struct sched_group *g, const struct sched_end *e,
			const struct region_desc *d, uint64_t off, uint64_t n, struct side *out)
{
	*out = (struct side){ .remote = d->addr + off, .bytes = n };
	if (off > d->bytes || n > d->bytes - off || (uint64_t)d->head + d->tail > d->bytes)
		return -EINVAL;
	if (!(d->flags & REGION_DESC_MAPPED))
		return 0;
	if (off < d->head) {
		out->bytes = base_min_u64(n, d->head - off);
	} else if (off < d->bytes - d->tail) {
		out->bytes = base_min_u64(n, d->bytes - d->tail - off);
		out->local = arena_at(g, e->rank, d->arena_off + off - d->head, out->bytes);
		if (!out->local)
			return -EINVAL;
	}
	return 0;
}

/* A cursor over the pieces of one end of a transfer. */
struct walk {
	struct sched_group *g;
	const struct sched_end *e;
	struct sched_inst *own; /* NULL: the end belongs to another process and body describes it */
	const struct sched_body *body;
	/* the piece that begins at byte `piece_at`; `remaining` counts it and those behind it */
	const struct goal_segment *l;
	uint32_t remaining;
	uint64_t piece_at;
};

static int walk_init(struct walk *w, struct sched_group *g, const struct sched_end *e)
{
	const struct sched_body *b = e->body ? ref_at(g, e->body, sizeof *b) : NULL;

	*w = (struct walk){
		.g = g, .e = e, .own = own_inst(g, e), .body = b, .remaining = e->segment_count
	};
	if (!e->segment_count)
		return 0;
	if (!w->own)
		w->l = b ? segments_at(g, b, e) : NULL;
	else if ((uint64_t)e->segment + e->segment_count <= w->own->block->segment_count)
		w->l = goal_segments(w->own->block) + e->segment;
	return w->l ? 0 : -EINVAL;
}

/* Memory of another process: everything that its body says is checked. */
static int side_of_body(const struct walk *w, const struct goal_segment *piece, struct side *out)
{
	const struct sched_body *b = w->body;

	if (piece->mem >= b->mem_count ||
	    !ref_at(w->g, w->e->body, sizeof *b + (piece->mem + 1) * sizeof b->mem[0]))
		return -EINVAL;
	return side_of_desc(w->g, w->e, &b->mem[piece->mem], piece->off, piece->bytes, out);
}

/* Bytes [at, at + n) of an end, at most to the end of their piece. at never decreases. */
static int side_of(struct walk *w, uint64_t at, uint64_t n, struct side *out)
{
	struct goal_segment piece = { .mem = w->e->mem, .off = w->e->off + at, .bytes = n };

	if (w->l) {
		for (; w->remaining && at - w->piece_at >= w->l->bytes; w->remaining--)
			w->piece_at += w->l++->bytes;
		if (!w->remaining)
			return -EINVAL;
		piece = *w->l;
		at -= w->piece_at;
		if (at >= piece.bytes) /* the list has changed since it was described */
			return -EINVAL;
		piece.off += at;
		piece.bytes = base_min_u64(n, piece.bytes - at);
	}
	if (w->own) {
		if (piece.mem >= w->own->mem_count)
			return -EINVAL;
		*out = (struct side){ .local = inst_addr(w->own, piece.mem, piece.off, piece.bytes),
				      .bytes = piece.bytes };
		return out->local ? 0 : -EINVAL;
	}
	return w->l ? side_of_body(w, &piece, out) :
		      side_of_desc(w->g, w->e, &w->e->desc, piece.off, piece.bytes, out);
}

static int side_at(struct sched_group *g, const struct sched_end *e, uint64_t at, uint64_t n,
		   struct side *out)
{
	struct walk w;
	int ret = walk_init(&w, g, e);

	return ret ? ret : side_of(&w, at, n, out);
}

/* ---- work -------------------------------------------------------------------------------- */

static int copy(struct sched_group *g, const struct sched_work *w, const struct side *dst,
		const struct side *src, uint64_t n, uint64_t *direct)
{
	if (dst->local && src->local) {
		if (n == sizeof(uint64_t)) /* columns of a matrix are lists of single numbers */
			memcpy(dst->local, src->local, sizeof(uint64_t));
		else if (n < OS_PAGE)
			memcpy(dst->local, src->local, n);
		else
			os_copy(dst->local, src->local, n, os_copy_pick(n, w->bytes));
		*direct += n;
		return 0;
	}
	base_count(BASE_CTR_BYTES_CMA, n);
	if (dst->local && g->use_vm)
		return node_vm_read(g->node, w->src.rank, dst->local, src->remote, n);
	if (src->local && g->use_vm)
		return node_vm_write(g->node, w->dst.rank, dst->remote, src->local, n);
	return -EPERM;
}

static int transfer(struct sched_group *g, const struct sched_work *w, uint64_t at, uint64_t n)
{
	uint64_t direct = 0;
	struct walk to, from;
	int ret = walk_init(&to, g, &w->dst);

	if (!ret)
		ret = walk_init(&from, g, &w->src);
	while (!ret && n) {
		struct side dst, src;

		ret = side_of(&to, at, n, &dst);
		if (!ret)
			ret = side_of(&from, at, dst.bytes, &src);
		if (!ret)
			ret = copy(g, w, &dst, &src, src.bytes, &direct);
		if (ret)
			break;
		at += src.bytes;
		n -= src.bytes;
	}
	base_count(BASE_CTR_BYTES_DIRECT, direct);
	return ret;
}

static bool is_kernel(uint32_t type, uint32_t dtype)
{
	return type >= GOAL_ADD && type <= (goal_dtype_is_float(dtype) ? GOAL_MIN : GOAL_XOR) &&
	       goal_dtype_bytes(dtype);
}

static int compute(struct sched_group *g, const struct sched_work *w, uint64_t at, uint64_t n)
{
	struct side dst, a, b;
	int ret = side_at(g, &w->dst, at, n, &dst);

	if (!ret)
		ret = side_at(g, &w->src, at, n, &a);
	if (!ret)
		ret = side_at(g, &w->src2, at, n, &b);
	if (ret)
		return ret;
	if (!dst.local || !a.local || !b.local || dst.bytes < n || a.bytes < n || b.bytes < n ||
	    !is_kernel(w->type, w->dtype))
		return -EINVAL;
	goal_local((enum goal_isa)os_simd(), w->type, w->dtype, dst.local, a.local, b.local, n);
	return 0;
}

/* By the rank itself: whoever drove it does not map the memory. */
static int stamp(struct sched_group *g, const struct sched_work *w)
{
	struct side dst;
	int ret = side_at(g, &w->dst, 0, sizeof w->stamp_ns, &dst);

	if (!ret && !dst.local)
		ret = -EINVAL;
	if (!ret)
		memcpy(dst.local, &w->stamp_ns, sizeof w->stamp_ns);
	return ret;
}

int work_do(struct sched_group *g, const struct sched_work *w, uint64_t at, uint64_t n)
{
	if (w->type == GOAL_STAMP)
		return stamp(g, w);
	return w->type == GOAL_RECV || w->type == GOAL_COPY ? transfer(g, w, at, n)
							    : compute(g, w, at, n);
}

static bool is_here(const struct sched_group *g, int rank, bool mapped)
{
	return mapped || rank == g->rank;
}

bool work_is_here(const struct sched_group *g, const struct sched_work *w)
{
	return is_here(g, w->dst.rank, w->dst.mapped) && is_here(g, w->src.rank, w->src.mapped) &&
	       (w->type == GOAL_RECV || is_here(g, w->src2.rank, w->src2.mapped));
}

static bool can_reach(const struct sched_group *g, const struct sched_brief *b)
{
	bool dst = is_here(g, b->dst, b->dst_mapped), src = is_here(g, b->src, b->src_mapped);

	if (dst && src)
		return true;
	return g->use_vm && ((dst && node_can_read(g->node, g->rank, b->src)) ||
			     (src && node_can_write(g->node, g->rank, b->dst)));
}

/* ---- staging: nobody can reach both ends ------------------------------------------------- */

void stages_sweep(struct sched_group *g)
{
	struct sched_stage *first, **link = &first, *t;

	pthread_mutex_lock(&g->lock);
	first = atomic_load_explicit(&g->stages, memory_order_relaxed);
	while ((t = *link) != NULL) {
		if (!xfer_is_done(&t->job->x, t->tag, t->bits)) {
			link = &t->next;
			continue;
		}
		*link = t->next;
		pool_put(g->pool, t->memory);
		free(t);
	}
	atomic_store_explicit(&g->stages, first, memory_order_relaxed);
	pthread_mutex_unlock(&g->lock);
}

/* The sender's process packs the whole message into the arena. It holds a claimed fragment: the job
 * cannot be reused meanwhile. */
static void make_stage(struct sched_group *g, struct sched_job *j, uint64_t tag,
		       const struct sched_work *w)
{
	uint32_t wanted = STAGE_WANTED; /* one thread wins */
	struct sched_stage *t;
	struct walk from;
	uint64_t at = 0;
	int ret;

	if (w->src.rank != g->rank ||
	    !atomic_compare_exchange_strong_explicit(&j->stage, &wanted, STAGE_MAKING,
						     memory_order_acq_rel, memory_order_relaxed))
		return;
	t = calloc(1, sizeof *t);
	if (t)
		t->memory = pool_get(g->pool, w->bytes);
	if (!t || !t->memory) {
		free(t);
		atomic_store_explicit(&j->error, -ENOMEM, memory_order_relaxed);
		return;
	}
	ret = walk_init(&from, g, &w->src);
	while (!ret && at < w->bytes) {
		struct side src;

		ret = side_of(&from, at, w->bytes - at, &src);
		if (!ret && !src.local)
			ret = -EINVAL;
		if (ret)
			break;
		memcpy((char *)t->memory + at, src.local, src.bytes);
		at += src.bytes;
	}
	if (ret) {
		pool_put(g->pool, t->memory);
		free(t);
		atomic_store_explicit(&j->error, ret, memory_order_relaxed);
		return;
	}
	base_count(BASE_CTR_BYTES_STAGED, at);
	t->job = j;
	t->tag = tag;
	t->bits = work_bits(w);
	pthread_mutex_lock(&g->lock);
	t->next = atomic_load_explicit(&g->stages, memory_order_relaxed);
	atomic_store_explicit(&g->stages, t, memory_order_relaxed);
	pthread_mutex_unlock(&g->lock);
	j->stage_off = (uint64_t)((char *)t->memory - (char *)region_arena_base());
	atomic_store_explicit(&j->stage, STAGE_READY,
			      memory_order_release); /* partner: find_bytes */
}

/* Follows a staged message to the arena. Returns: true when w->src is where the bytes are and this
 * process can copy them. Context: holds a claimed fragment. */
static bool find_bytes(struct sched_group *g, struct sched_job *j, uint64_t tag,
		       struct sched_work *w)
{
	uint32_t stage = atomic_load_explicit(&j->stage, memory_order_acquire);

	if (base_likely(stage == STAGE_NO))
		return true;
	if (stage == STAGE_WANTED)
		make_stage(g, j, tag, w);
	if (atomic_load_explicit(&j->stage, memory_order_acquire) != STAGE_READY)
		return false;
	w->src = (struct sched_end){ .rank = w->src.rank, .slot = UINT32_MAX, .mapped = true };
	w->src.desc = (struct region_desc){ .bytes = w->bytes, .arena_off = j->stage_off,
					    .flags = REGION_DESC_MAPPED };
	return is_here(g, w->dst.rank, w->dst.mapped);
}

/* ---- jobs -------------------------------------------------------------------------------- */

static void fail_unit(struct sched_group *g, struct sched_job *j, const struct sched_work *w,
		      uint32_t unit, int ret)
{
	uint32_t no = STAGE_NO;
	int none = 0;

	/* the kernel refuses what worked when the group was made: the sender packs the message */
	if (w->type == GOAL_RECV && ret != -EOWNERDEAD && ret != -EINVAL &&
	    w->src.slot != UINT32_MAX &&
	    atomic_compare_exchange_strong_explicit(&j->stage, &no, STAGE_WANTED,
						    memory_order_acq_rel, memory_order_relaxed))
		node_wake(g->node, w->src.rank);
	else if (no == STAGE_NO)
		atomic_compare_exchange_strong_explicit(&j->error, &none, ret, memory_order_acq_rel,
							memory_order_relaxed);
	xfer_unclaim(&j->x, unit);
	node_wake(g->node, w->dst.rank);
}

/* Could this process execute a fragment? A hint: the job may change before the claim. */
static bool may_help(const struct sched_group *g, struct sched_job *j, const struct sched_brief *b)
{
	switch (atomic_load_explicit(&j->stage, memory_order_relaxed)) {
	case STAGE_NO:
		return can_reach(g, b);
	case STAGE_WANTED:
		return b->src == g->rank;
	case STAGE_READY:
		return is_here(g, b->dst, b->dst_mapped);
	default:
		return false;
	}
}

static bool move_unit(struct sched_group *g, struct sched_job *j, const struct sched_brief *b)
{
	struct xfer_plan p = { 0 };
	struct sched_work w;
	uint64_t at, n;
	uint32_t unit;
	int ret = -EINVAL;

	if (!may_help(g, j, b))
		return false;
	/* the receiver begins with the first half, all others with the second */
	unit = xfer_claim(&j->x, b->tag, b->units, b->dst == g->rank ? 0 : (b->units + 1) / 2);
	if (unit == XFER_NONE)
		return false;
	atomic_store_explicit(&j->owner[unit], (uint16_t)(1 + g->rank), memory_order_relaxed);
	/* valid from the claim on: before it the job may be another one that is being written */
	w = j->work;
	w.dst.rank = b->dst; /* of the brief, which was checked */
	w.src.rank = b->src;
	w.units = b->units;
	if (!find_bytes(g, j, b->tag, &w)) {
		xfer_unclaim(&j->x, unit);
		node_wake(g->node, w.dst.rank);
		return false;
	}
	p.hi = w.bytes;
	xfer_cut(&p);
	if (unit < p.fragments) {
		xfer_fragment_range(&p, unit, &at, &n);
		ret = work_do(g, &w, at, n);
	}
	if (ret) {
		fail_unit(g, j, &w, unit, ret);
		return false;
	}
	if (w.dst.rank != g->rank)
		base_count(BASE_CTR_BYTES_HELPED, n);
	if (xfer_complete(&j->x, xfer_bit(unit), work_bits(&w)) && w.dst.rank != g->rank)
		node_wake(g->node, w.dst.rank);
	return true;
}

/* Reads the brief of a job. Returns: false when the job is not open or has no fragment to claim. */
static bool read_brief(const struct sched_group *g, struct sched_job *j, struct sched_brief *out)
{
	uint64_t word =
		atomic_load_explicit(&j->x.claimed, memory_order_acquire); /* partner: xfer_open */
	uint64_t brief = atomic_load_explicit(&j->brief, memory_order_relaxed);

	*out = (struct sched_brief){ .tag = brief >> 40,
				     .units = brief >> 34 & 63,
				     .dst = brief >> 18 & 0xffff,
				     .src = brief >> 2 & 0xffff,
				     .dst_mapped = brief >> 1 & 1,
				     .src_mapped = brief & 1 };
	/* The brief may be that of a later job, with another number of fragments. */
	if (!xfer_is_tag(word, out->tag) || out->units > XFER_FRAGMENTS_MAX ||
	    out->dst >= g->size || out->src >= g->size)
		return false;
	return (word & xfer_bits(out->units)) != xfer_bits(out->units);
}

bool job_work(struct sched_group *g, int rank)
{
	struct sched_state *st = g->drivers[rank].st;
	uint64_t jobs = atomic_load_explicit(&st->jobs,
					     memory_order_acquire); /* partner: publish in job.c */

	for (; jobs; jobs &= jobs - 1) {
		struct sched_job *j = &st->job[__builtin_ctzll(jobs)];
		struct sched_brief b;

		if (read_brief(g, j, &b) && move_unit(g, j, &b))
			return true;
	}
	return false;
}
