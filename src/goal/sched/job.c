/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs: copies and computations of a rank's schedules. Any process of the group executes fragments
 * of a job. Context: under the claim of the rank's state. */
#include <errno.h>
#include <sched.h>

#include "goal/sched/private.h"

#define CANCEL_NS 2000000000ull

static bool is_all_mapped(const struct region_desc *d)
{
	return (d->flags & REGION_DESC_MAPPED) && !d->head && !d->tail;
}

/* ---- ends -------------------------------------------------------------------------------- */

static void end_of_space(const struct sched_inst *s, uint32_t mem, uint64_t off,
			 struct sched_end *out)
{
	*out = (struct sched_end){ .rank = s->rank,
				   .slot = s->slot,
				   .mem = mem,
				   .off = off,
				   .body = s->ref,
				   .desc = s->body->mem[mem] };
	out->mapped = is_all_mapped(&out->desc);
}

static void end_of_recv(const struct sched_inst *s, const struct goal_op *op, struct sched_end *out)
{
	const struct goal_segment *l = goal_segments(s->block) + op->segment;

	end_of_space(s, op->segment_count ? l->mem : op->mem, op->off, out);
	out->segment = op->segment;
	out->segment_count = op->segment_count;
	for (uint32_t k = 0; k < op->segment_count; k++)
		out->mapped &= is_all_mapped(&s->body->mem[l[k].mem]);
}

/* The source of a receive, from the sender's message. Returns: false when the message is not
 * valid. */
static bool end_of_send(struct sched_driver *d, const struct sched_msg *shared,
			struct sched_end *out)
{
	const struct sched_msg m = *shared; /* checks and uses see the same values */
	const struct sched_body *b = ref_at(d->g, m.body, sizeof *b);
	const uint32_t mem_count = b ? b->mem_count : 0;
	const struct goal_segment *l;

	if (ref_rank(m.body) != (int)m.src || mem_count > GOAL_SPACES_MAX || m.mem >= mem_count ||
	    !ref_at(d->g, m.body, sizeof *b + mem_count * sizeof b->mem[0]))
		return false;
	*out = (struct sched_end){ .rank = (int)m.src,
				   .slot = (uint32_t)(m.op >> 32) - 1,
				   .mem = m.mem,
				   .off = m.off,
				   .segment = m.segment,
				   .segment_count = m.segment_count,
				   .body = m.body,
				   .desc = b->mem[m.mem] };
	out->mapped = is_all_mapped(&out->desc);
	l = segments_at(d->g, b, out);
	if (!l)
		return false;
	if (m.segment_count)
		out->mapped = true;
	for (uint32_t k = 0; k < m.segment_count; k++) {
		uint32_t mem = l[k].mem;

		if (mem >= mem_count)
			return false;
		out->mapped &= is_all_mapped(&b->mem[mem]);
	}
	return true;
}

/* The source of a receive whose bytes lie in an eager or inline record, in the arena of rank 0. */
static void end_of_record(const struct sched_msg *m, sched_ref ref, struct sched_end *out)
{
	*out = (struct sched_end){ .rank = 0, .slot = UINT32_MAX, .mapped = true };
	out->desc = (struct region_desc){ .bytes = m->bytes, .flags = REGION_DESC_MAPPED,
					  .arena_off = ref_off(ref) + sizeof *m };
}

/* ---- opening ----------------------------------------------------------------------------- */

/* Can any process reach both ends? */
static bool is_possible(const struct sched_group *g, const struct sched_work *w)
{
	const struct sched_end *d = &w->dst, *s = &w->src;

	if (s->mapped || d->mapped || s->rank == d->rank)
		return true;
	return g->use_vm && (node_can_read(g->node, d->rank, s->rank) ||
			     node_can_write(g->node, s->rank, d->rank));
}

static bool has_short_pieces(const struct sched_end *e, uint64_t bytes)
{
	return e->segment_count && bytes / e->segment_count < SCHED_PACK_BYTES;
}

/* The kernel looks up the pages of each piece of a list. Packing by the sender is faster when
 * pieces are short. */
static bool is_better_packed(const struct sched_work *w)
{
	return !w->src.mapped && w->src.rank != w->dst.rank &&
	       (has_short_pieces(&w->src, w->bytes) || has_short_pieces(&w->dst, w->bytes));
}

static void publish(struct sched_driver *d, uint64_t open)
{
	d->st->open_jobs = open;
	atomic_store_explicit(&d->st->jobs, open, memory_order_release); /* partner: job_work */
}

static void open_job(struct sched_driver *d, struct sched_inst *s, uint32_t i,
		     const struct sched_work *w)
{
	uint32_t n = (uint32_t)__builtin_ctzll(~d->st->open_jobs);
	struct sched_job *j = &d->st->job[n];
	bool staged = !is_possible(d->g, w) || is_better_packed(w);

	j->tag = (j->tag + 1) & XFER_TAG_MASK;
	j->op = opref_of(s->slot, i);
	j->work = *w;
	/* a reader that sees this tag sees this brief or a later one; partner: xfer_open() */
	atomic_store_explicit(&j->brief, job_brief(j->tag, w), memory_order_relaxed);
	atomic_store_explicit(&j->stage, staged ? STAGE_WANTED : STAGE_NO, memory_order_relaxed);
	atomic_store_explicit(&j->error, 0, memory_order_relaxed);
	for (uint32_t u = 0; u < w->units; u++)
		atomic_store_explicit(&j->owner[u], 0, memory_order_relaxed);
	xfer_open(&j->x, j->tag);
	s->ops[i].state = OP_IN_JOB;
	publish(d, d->st->open_jobs | 1ull << n);
	if (w->src.rank != d->rank)
		node_wake(d->g->node, w->src.rank);
	if (!d->own)
		node_wake(d->g->node, d->rank);
}

static bool has_free_job(const struct sched_driver *d) { return ~d->st->open_jobs; }

static void wait_for_job(struct sched_driver *d, struct sched_inst *s, uint32_t i)
{
	s->ops[i].state = OP_WAITS_JOB;
	list_push(d, &d->st->waits_job, opref_of(s->slot, i), &s->ops[i]);
}

uint32_t job_fragments(uint64_t bytes)
{
	struct xfer_plan p = { .hi = bytes };

	xfer_cut(&p);
	return p.fragments;
}

void job_for_recv(struct sched_driver *d, struct sched_inst *s, uint32_t i, struct sched_msg *m)
{
	const struct goal_op *op = inst_goal(s, i);
	struct sched_work w = { .bytes = op->bytes,
				.type = GOAL_RECV,
				.units = job_fragments(op->bytes) };

	if (!has_free_job(d)) {
		wait_for_job(d, s, i);
		return;
	}
	end_of_recv(s, op, &w.dst);
	if (m->kind != SCHED_ANNOUNCED) {
		end_of_record(m, s->ops[i].msg, &w.src);
	} else if (!end_of_send(d, m, &w.src)) {
		run_fail(d, s,
			 &(struct sched_abort){ s->body->ctx, -EPROTO, (int)m->src, d->rank, i });
		return;
	}
	open_job(d, s, i, &w);
}

void job_for_local(struct sched_driver *d, struct sched_inst *s, uint32_t i)
{
	const struct goal_op *op = inst_goal(s, i);
	struct sched_work w = {
		.bytes = op->bytes, .type = op->type, .dtype = op->dtype, .units = 1
	};

	end_of_space(s, op->mem, op->off, &w.dst);
	w.src = w.src2 = w.dst;
	if (op->type == GOAL_STAMP) {
		w.stamp_ns = run_time(s);
	} else {
		end_of_space(s, op->src_mem, op->src_off, &w.src);
		end_of_space(s, op->src2_mem, op->src2_off, &w.src2);
		w.units = job_fragments(op->bytes);
	}
	if (!op->bytes ||
	    (op->bytes <= SCHED_EAGER_BYTES && op->type != GOAL_STAMP && work_is_here(d->g, &w))) {
		if (op->bytes)
			work_do(d->g, &w, 0, op->bytes);
		op_ended(d, s, i);
	} else if (has_free_job(d)) {
		open_job(d, s, i, &w);
	} else {
		wait_for_job(d, s, i);
	}
}

/* ---- ends -------------------------------------------------------------------------------- */

static void serve_waiting(struct sched_driver *d)
{
	struct sched_inst *s;
	sched_opref ref;

	while (d->st->waits_job.head && has_free_job(d) &&
	       (ref = list_pop(d, &d->st->waits_job)) != 0) {
		uint32_t i = (uint32_t)ref;
		struct sched_msg *m;

		if (!op_at(d, ref, &s))
			continue;
		if (inst_goal(s, i)->type != GOAL_RECV) {
			job_for_local(d, s, i);
			continue;
		}
		m = ref_at(d->g, s->ops[i].msg, sizeof *m);
		if (m)
			job_for_recv(d, s, i, m);
	}
}

static void end_job(struct sched_driver *d, uint32_t n)
{
	sched_opref ref = d->st->job[n].op;
	uint32_t i = (uint32_t)ref;
	struct sched_inst *s;
	struct sched_msg *m;

	publish(d, d->st->open_jobs & ~(1ull << n));
	if (!op_at(d, ref, &s))
		return;
	if (inst_goal(s, i)->type == GOAL_RECV) {
		m = ref_at(d->g, s->ops[i].msg, sizeof *m);
		if (m)
			msg_release(d, m, s->ops[i].msg);
	}
	op_ended(d, s, i);
}

static void fail_job(struct sched_driver *d, const struct sched_job *j, int error)
{
	struct sched_abort why = { 0, error, j->work.src.rank, d->rank, (uint32_t)j->op };
	struct sched_inst *s;

	if (!op_at(d, j->op, &s))
		return;
	why.ctx = s->body->ctx;
	run_fail(d, s, &why);
}

bool job_reap(struct sched_driver *d)
{
	bool progress = false;

	for (uint64_t jobs = d->st->open_jobs; jobs; jobs &= jobs - 1) {
		uint32_t n = (uint32_t)__builtin_ctzll(jobs);
		struct sched_job *j = &d->st->job[n];
		int error = atomic_load_explicit(&j->error, memory_order_relaxed);

		if (!(d->st->open_jobs & 1ull << n))
			continue; /* fail_job() has closed it */
		if (error)
			fail_job(d, j, error);
		else if (xfer_is_done(&j->x, j->tag, work_bits(&j->work)))
			end_job(d, n);
		else
			continue;
		progress = true;
	}
	if (progress)
		serve_waiting(d);
	return progress;
}

/* ---- giving up --------------------------------------------------------------------------- */

bool job_is_orphan(struct sched_driver *d, const struct sched_inst *s, int dead)
{
	for (uint64_t jobs = d->st->open_jobs; jobs; jobs &= jobs - 1) {
		struct sched_job *j = &d->st->job[__builtin_ctzll(jobs)];
		uint64_t open = atomic_load_explicit(&j->x.claimed, memory_order_relaxed) &
				~atomic_load_explicit(&j->x.done, memory_order_acquire) &
				work_bits(&j->work);

		if ((uint32_t)(j->op >> 32) - 1 != s->slot)
			continue;
		for (; open; open &= open - 1) {
			uint32_t owner = atomic_load_explicit(&j->owner[__builtin_ctzll(open)],
							      memory_order_relaxed);

			/* A process that dies between xfer_claim() and this store looks like one
			 * that is about to store: the question is repeated later. */
			if (owner == 1 + (uint32_t)dead)
				return true;
		}
	}
	return false;
}

static bool are_owners_dead(struct sched_driver *d, struct sched_job *j, uint64_t open)
{
	for (; open; open &= open - 1) {
		uint32_t owner = atomic_load_explicit(&j->owner[__builtin_ctzll(open)],
						      memory_order_relaxed);

		if (!owner || owner > (uint32_t)d->g->size ||
		    !node_is_dead(d->g->node, (int)owner - 1))
			return false;
	}
	return true;
}

static void cancel_one(struct sched_driver *d, uint32_t n)
{
	struct sched_job *j = &d->st->job[n];
	uint64_t give_up = os_now_ns() + CANCEL_NS, all = work_bits(&j->work), mine = 0, open;
	uint32_t unit;

	while ((unit = xfer_claim(&j->x, j->tag, j->work.units, 0)) != XFER_NONE)
		mine |= xfer_bit(unit);
	for (;;) {
		open = all & ~mine & ~atomic_load_explicit(&j->x.done, memory_order_acquire);
		if (!open || os_now_ns() > give_up || are_owners_dead(d, j, open))
			break;
		sched_yield();
	}
	xfer_complete(&j->x, mine, all);
	publish(d, d->st->open_jobs & ~(1ull << n));
}

void job_cancel(struct sched_driver *d, const struct sched_inst *s)
{
	for (uint64_t jobs = d->st->open_jobs; jobs; jobs &= jobs - 1) {
		uint32_t n = (uint32_t)__builtin_ctzll(jobs);

		if ((uint32_t)(d->st->job[n].op >> 32) - 1 == s->slot)
			cancel_one(d, n);
	}
}
