/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes that die, and runs that fail.
 *
 * A failed run is written into its engine's list of aborts, and the group's `trouble` grows. Every
 * engine compares that word at each step; when it has changed it takes first what the others had
 * sent before, and then ends those of its runs that need what will not come. So a failure travels
 * along what depends on it, and no further.
 */
#include <errno.h>
#include <sched.h>

#include "sched/private.h"

#define LOOK_NS 100000000ull
#define SETTLE_NS 2000000000ull

/* ---- noticing ---------------------------------------------------------------------------- */

static void tell_all(struct sched_group *g)
{
	atomic_fetch_add_explicit(g->trouble, 1, memory_order_acq_rel); /* partner: engine_step */
	for (int r = 0; r < g->size; r++)
		if (r != g->rank)
			node_wake(g->node, r);
}

/* Was somebody driving an engine when he died? Then nobody knows what state it is in. */
static bool break_engines(struct sched_group *g, int dead)
{
	bool broke = false;

	for (int r = 0; r < g->size; r++) {
		struct sched_engine *e = g->drivers[r].e;
		uint32_t none = 0;

		if (r != dead &&
		    atomic_load_explicit(&e->claim, memory_order_relaxed) == 1 + (uint32_t)dead)
			broke |= atomic_compare_exchange_strong_explicit(
				&e->broken, &none, 1 + (uint32_t)dead, memory_order_acq_rel,
				memory_order_relaxed);
	}
	return broke;
}

/* The own engine is lost: the runs in it end here, by hand. */
static void end_broken(struct sched_group *g)
{
	struct sched_driver *d = &g->drivers[g->rank];
	uint32_t culprit = atomic_load_explicit(&d->e->broken, memory_order_acquire);

	if (!culprit)
		return;
	pthread_mutex_lock(&g->lock);
	for (struct sched_inst *s = g->instances; s; s = s->next) {
		if (atomic_load_explicit(&s->body->phase, memory_order_relaxed) != RUN_GOING)
			continue;
		job_cancel(d, s);
		s->body->error = -EOWNERDEAD;
		s->body->error_rank = (int)culprit - 1;
		s->body->error_at = g->rank;
		s->body->error_op = GOAL_NONE;
		atomic_store_explicit(&s->body->phase, RUN_FAILED, memory_order_release);
	}
	pthread_mutex_unlock(&g->lock);
}

void trouble_look(struct sched_group *g)
{
	uint64_t now = os_now_ns(),
		 last = atomic_load_explicit(&g->checked_ns, memory_order_relaxed);
	bool found = false;

	if (now - last < LOOK_NS ||
	    !atomic_compare_exchange_strong_explicit(&g->checked_ns, &last, now,
						     memory_order_relaxed, memory_order_relaxed))
		return;
	for (int r = 0; r < g->size; r++) {
		struct sched_engine *e = g->drivers[r].e;

		if (r == g->rank || atomic_load_explicit(&e->left, memory_order_acquire))
			continue;
		if (!atomic_load_explicit(&e->dead, memory_order_relaxed)) {
			if (!node_is_dead(g->node, r))
				continue;
			found |= !atomic_exchange_explicit(&e->dead, 1, memory_order_acq_rel);
		}
		found |= break_engines(g, r);
	}
	if (found)
		tell_all(g);
	end_broken(g);
}

/* ---- failing ----------------------------------------------------------------------------- */

static void drop_op(struct sched_driver *d, struct sched_inst *s, uint32_t i)
{
	struct sched_op *op = &s->ops[i];
	sched_opref ref = opref_of(s->slot, i);
	struct sched_msg *m;

	switch (op->state) {
	case SCHED_READY:
		list_remove(d, &d->e->ready, ref, op);
		break;
	case SCHED_BACKLOG:
		list_remove(d, &d->peers[inst_goal(s, i)->peer].backlog, ref, op);
		d->e->backlogged--;
		break;
	case SCHED_POSTED:
		match_unpost(d, s, i);
		break;
	case SCHED_TIMER:
		list_remove(d, &d->e->timers, ref, op);
		break;
	case SCHED_WAITS_JOB:
		list_remove(d, &d->e->waits_job, ref, op);
		/* fall through */
	case SCHED_IN_JOB:
		m = inst_goal(s, i)->type == GOAL_RECV ? ref_at(d->g, op->msg, sizeof *m) : NULL;
		if (m && m->kind != SCHED_ANNOUNCED && m->src < (uint32_t)d->g->size)
			msg_release(d, m, op->msg);
		break;
	default:
		break;
	}
}

void run_fail(struct sched_driver *d, struct sched_inst *s, const struct sched_abort *why)
{
	uint32_t n = atomic_load_explicit(&d->e->abort_count, memory_order_relaxed);
	struct sched_body *b = s->body;

	if (atomic_load_explicit(&b->phase, memory_order_relaxed) != RUN_GOING)
		return;
	if (why->error == -ETIMEDOUT)
		run_tell_stuck(s);
	d->e->aborts[n % SCHED_ABORTS] = *why;
	d->e->aborts[n % SCHED_ABORTS].ctx = b->ctx;
	atomic_store_explicit(&d->e->abort_count, n + 1,
			      memory_order_release); /* partner: see_aborts */
	job_cancel(d, s);
	for (uint32_t i = 0; i < s->block->op_count; i++)
		drop_op(d, s, i);
	b->error = why->error;
	b->error_rank = why->rank;
	b->error_at = why->at;
	b->error_op = why->op;
	run_finish(d, s, RUN_FAILED);
	tell_all(d->g);
}

/* ---- hearing of it ----------------------------------------------------------------------- */

/* The first operation that cannot end any more when nothing comes from, or goes to, rank r. any:
 * nor may a receive from anyone, who may have meant r. */
static uint32_t depends_on(struct sched_driver *d, const struct sched_inst *s, int r, bool any)
{
	for (uint32_t i = 0; i < s->block->op_count; i++) {
		const struct goal_op *op = inst_goal(s, i);
		uint8_t state = s->ops[i].state;
		const struct sched_msg *m;

		if (state == SCHED_BLOCKED || state == SCHED_READY || state == SCHED_ENDED ||
		    !goal_is_transfer(op))
			continue; /* asked again when it starts: its message may be there already */
		if (op->type == GOAL_RECV && (state == SCHED_IN_JOB || state == SCHED_WAITS_JOB)) {
			m = ref_at(d->g, s->ops[i].msg, sizeof *m);
			if (m && m->src == (uint32_t)r && m->kind == SCHED_ANNOUNCED)
				return i;
			continue;
		}
		if (op->peer == (uint32_t)r || (any && op->peer == GOAL_ANY))
			return i;
	}
	return job_is_orphan(d, s, r) ? 0 : GOAL_NONE;
}

/* ctx NULL: all runs. */
static void end_dependent(struct sched_driver *d, int r, const uint64_t *ctx,
			  const struct sched_abort *why)
{
	uint32_t slot = d->e->runs, next;

	for (; slot; slot = next) {
		struct sched_inst *s = inst_at(d, slot - 1);
		struct sched_abort mine = *why;
		uint32_t op;

		if (!s)
			return;
		next = s->body->next_run;
		if (ctx && s->body->ctx != *ctx)
			continue;
		op = depends_on(d, s, r,
				why->error !=
					-EPIPE); /* who has left had sent what it had to send */
		if (op == GOAL_NONE)
			continue;
		if (!ctx) {
			mine.at = d->rank;
			mine.op = op;
		}
		run_fail(d, s, &mine);
	}
}

/* 1 + who is to blame when nothing will come from this rank any more; 0: it is well. */
static uint32_t is_gone(struct sched_group *g, int r, int *out_error)
{
	const struct sched_engine *e = g->drivers[r].e;
	uint32_t broken = atomic_load_explicit(&e->broken, memory_order_acquire);

	*out_error = -EOWNERDEAD;
	if (broken)
		return broken;
	if (atomic_load_explicit(&e->dead, memory_order_acquire))
		return 1 + (uint32_t)r;
	*out_error = -EPIPE;
	return atomic_load_explicit(&e->left, memory_order_acquire) ? 1 + (uint32_t)r : 0;
}

static void see_gone(struct sched_driver *d, int r)
{
	struct sched_abort why = { .at = d->rank };
	uint32_t culprit = is_gone(d->g, r, &why.error);

	why.rank = (int)culprit - 1;
	end_dependent(d, r, NULL, &why);
}

static void see_aborts(struct sched_driver *d, int r)
{
	const struct sched_engine *e = d->g->drivers[r].e;
	uint32_t count = d->peers[r].aborts_to, *seen = &d->peers[r].aborts_seen;

	if (count - *seen >
	    SCHED_ABORTS / 2) { /* some may be lost: none of its runs can be relied on */
		struct sched_abort lost = { .error = -EIO, .rank = r, .at = r, .op = GOAL_NONE };

		d->peers[r].lost = 1;
		end_dependent(d, r, NULL, &lost);
		*seen = count;
	}
	for (; *seen != count; ++*seen) {
		struct sched_abort why = e->aborts[*seen % SCHED_ABORTS];

		end_dependent(d, r, &why.ctx, &why);
		match_drop(d, why.ctx, (uint32_t)r);
	}
}

/*
 * In this order: what has happened; then everything that came before it; then whom it concerns.
 * Somebody who has left, or died, had perhaps sent and taken all that a run of ours needs.
 */
void trouble_handle(struct sched_driver *d)
{
	uint32_t trouble =
		atomic_load_explicit(d->g->trouble, memory_order_acquire); /* partner: tell_all */
	int error;

	for (int r = 0; r < d->g->size; r++) {
		struct sched_peer *p = &d->peers[r];

		/* partner: run_fail */
		p->aborts_to = atomic_load_explicit(&d->g->drivers[r].e->abort_count,
						    memory_order_acquire);
		p->gone = r == d->rank ? 0 : is_gone(d->g, r, &error);
	}
	ring_poll(d);
	engine_take_ended(d);
	if (d->e->open_jobs)
		job_reap(d);
	for (int r = 0; r < d->g->size; r++) {
		if (r == d->rank)
			continue;
		see_aborts(d, r);
		if (d->peers[r].gone)
			see_gone(d, r);
	}
	atomic_store_explicit(&d->e->trouble_seen, trouble,
			      memory_order_release); /* partner: trouble_settle */
}

/* 0: nothing is known against rank r in this context. */
static bool has_failed(struct sched_driver *d, int r, uint64_t ctx, struct sched_abort *out)
{
	const struct sched_engine *e = d->g->drivers[r].e;
	uint32_t seen = d->peers[r].aborts_seen, n = seen < SCHED_ABORTS ? seen : SCHED_ABORTS;

	for (uint32_t k = seen - n; k != seen; k++) { /* the cause, before that it has left since */
		if (e->aborts[k % SCHED_ABORTS].ctx != ctx)
			continue;
		*out = e->aborts[k % SCHED_ABORTS];
		return true;
	}
	*out = (struct sched_abort){ .error = -EIO, .rank = r, .at = r, .op = GOAL_NONE };
	if (!d->peers[r].gone)
		return d->peers[r].lost;
	is_gone(d->g, r, &out->error);
	out->rank = (int)d->peers[r].gone - 1;
	out->at = d->rank;
	return true;
}

bool trouble_check_op(struct sched_driver *d, struct sched_inst *s, uint32_t i)
{
	const struct goal_op *op = inst_goal(s, i);

	for (int r = 0; r < d->g->size; r++) {
		struct sched_abort why = { .at = d->rank, .op = i };

		if (r == d->rank || (op->peer != (uint32_t)r && op->peer != GOAL_ANY))
			continue;
		if (!has_failed(d, r, s->body->ctx, &why) ||
		    (op->peer == GOAL_ANY && why.error == -EPIPE))
			continue;
		if (why.op == GOAL_NONE && why.at == d->rank)
			why.op = i;
		run_fail(d, s, &why);
		return true;
	}
	return false;
}

void trouble_settle(struct sched_group *g)
{
	uint32_t trouble = atomic_load_explicit(g->trouble, memory_order_acquire);
	uint64_t stop = os_now_ns() + SETTLE_NS;

	for (int r = 0; r < g->size; r++) {
		struct sched_driver *d = &g->drivers[r];

		while ((int32_t)(trouble - atomic_load_explicit(&d->e->trouble_seen,
								memory_order_acquire)) > 0 &&
		       !atomic_load_explicit(&d->e->dead, memory_order_relaxed) &&
		       !atomic_load_explicit(&d->e->broken, memory_order_relaxed) &&
		       !atomic_load_explicit(&d->e->left, memory_order_relaxed) &&
		       os_now_ns() < stop) {
			engine_drive(d);
			trouble_look(g);
			sched_yield();
		}
	}
}
