/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes that die, and runs that fail.
 *
 * A process that fails a run appends the run to the aborts of its rank's state and increments the
 * group's `trouble`. Every driver compares that word at each step. When it has changed, the driver
 * first delivers what was sent before, then fails those of its runs that need what will not come.
 * So a failure reaches the runs that depend on it, and no others.
 */
#include <errno.h>
#include <sched.h>

#include "goal/sched/private.h"

#define CHECK_PEERS_NS 100000000ull
#define SETTLE_NS 2000000000ull

/* ---- noticing ---------------------------------------------------------------------------- */

static void wake_all(struct sched_group *g)
{
	atomic_fetch_add_explicit(g->trouble, 1, memory_order_acq_rel); /* partner: state_step */
	for (int r = 0; r < g->size; r++)
		if (r != g->rank)
			node_wake(g->node, r);
}

/* Did the process that holds the claim change the state? `was` holds the claim for ever once it is
 * dead, unless a process that has asked this releases it: then another one may change the state. */
static bool was_changing(struct sched_state *st, uint32_t was)
{
	bool changing = atomic_load_explicit(&st->changing, memory_order_acquire);

	return changing && atomic_load_explicit(&st->claim, memory_order_acquire) == was;
}

/* A process that died while it changed a state leaves that state undefined; otherwise its claim is
 * released. */
static bool break_states(struct sched_group *g, int dead)
{
	bool broke = false;

	for (int r = 0; r < g->size; r++) {
		struct sched_state *st = g->drivers[r].st;
		uint32_t none = 0, was = 1 + (uint32_t)dead;

		if (r == dead || atomic_load_explicit(&st->claim, memory_order_acquire) != was)
			continue;
		if (was_changing(st, was))
			broke |= atomic_compare_exchange_strong_explicit(
				&st->broken, &none, 1 + (uint32_t)dead, memory_order_acq_rel,
				memory_order_relaxed);
		else
			atomic_compare_exchange_strong_explicit(&st->claim, &was, 0,
								memory_order_acq_rel,
								memory_order_relaxed);
	}
	return broke;
}

/* A watcher that has died drives nobody. */
static void relieve_watcher(struct sched_group *g, int dead)
{
	uint32_t was = atomic_load_explicit(g->watcher, memory_order_relaxed);

	if ((was & ~(WATCHER_THREAD | WATCHER_HOOK)) == 1 + (uint32_t)dead)
		atomic_compare_exchange_strong_explicit(g->watcher, &was, 0, memory_order_relaxed,
							memory_order_relaxed);
}

/* The state of this rank is undefined: the owner fails its runs by itself. */
static void fail_own_runs(struct sched_group *g)
{
	struct sched_driver *d = &g->drivers[g->rank];
	uint32_t culprit = atomic_load_explicit(&d->st->broken, memory_order_acquire);

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

void trouble_check_peers(struct sched_group *g)
{
	uint64_t now = os_now_ns(),
		 last = atomic_load_explicit(&g->checked_ns, memory_order_relaxed);
	bool found = false;

	if (now - last < CHECK_PEERS_NS ||
	    !atomic_compare_exchange_strong_explicit(&g->checked_ns, &last, now,
						     memory_order_relaxed, memory_order_relaxed))
		return;
	for (int r = 0; r < g->size; r++) {
		struct sched_state *st = g->drivers[r].st;

		if (r == g->rank || atomic_load_explicit(&st->departed, memory_order_acquire))
			continue;
		if (!atomic_load_explicit(&st->dead, memory_order_relaxed)) {
			if (!node_is_dead(g->node, r))
				continue;
			found |= !atomic_exchange_explicit(&st->dead, 1, memory_order_acq_rel);
		}
		relieve_watcher(g, r);
		found |= break_states(g, r);
	}
	if (found)
		wake_all(g);
	fail_own_runs(g);
}

/* ---- failing ----------------------------------------------------------------------------- */

static void drop_op(struct sched_driver *d, struct sched_inst *s, uint32_t i)
{
	struct sched_op *op = &s->ops[i];
	struct sched_msg *m;

	switch (op->state) {
	case OP_READY:
		list_remove(d, &d->st->ready, op);
		break;
	case OP_BACKLOG:
		list_remove(d, &d->peers[inst_goal(s, i)->peer].backlog, op);
		d->st->backlogged--;
		break;
	case OP_POSTED:
		match_unpost(d, s, i);
		break;
	case OP_TIMER:
		list_remove(d, &d->st->timers, op);
		if (!d->st->timers.head)
			atomic_store_explicit(&d->st->timer_ns, 0, memory_order_relaxed);
		break;
	case OP_WAITS_JOB:
		list_remove(d, &d->st->waits_job, op);
		/* fall through */
	case OP_IN_JOB:
		m = inst_goal(s, i)->type == GOAL_RECV ? ref_at(d->g, op->msg, sizeof *m) : NULL;
		if (m && m->kind != SCHED_ANNOUNCED)
			msg_release(d, m, op->msg);
		break;
	default:
		break;
	}
}

void run_fail(struct sched_driver *d, struct sched_inst *s, const struct sched_abort *why)
{
	uint32_t n = atomic_load_explicit(&d->st->abort_count, memory_order_relaxed);
	struct sched_body *b = s->body;

	if (atomic_load_explicit(&b->phase, memory_order_relaxed) != RUN_GOING)
		return;
	if (why->error == -ETIMEDOUT)
		run_log_stuck(s);
	d->st->aborts[n % SCHED_ABORTS] = *why;
	d->st->aborts[n % SCHED_ABORTS].ctx = b->ctx;
	atomic_store_explicit(&d->st->abort_count, n + 1,
			      memory_order_release); /* partner: handle_aborts */
	job_cancel(d, s);
	for (uint32_t i = 0; i < s->block->op_count; i++)
		drop_op(d, s, i);
	b->error = why->error;
	b->error_rank = why->rank;
	b->error_at = why->at;
	b->error_op = why->op;
	run_finish(d, s, RUN_FAILED);
	wake_all(d->g);
}

/* ---- hearing of it ----------------------------------------------------------------------- */

/* Returns: the first operation that cannot end when rank r neither sends nor receives any more.
 * any: receives from any rank count as well. */
static uint32_t depends_on(struct sched_driver *d, const struct sched_inst *s, int r, bool any)
{
	for (uint32_t i = 0; i < s->block->op_count; i++) {
		const struct goal_op *op = inst_goal(s, i);
		uint8_t state = s->ops[i].state;
		const struct sched_msg *m;

		if (state == OP_BLOCKED || state == OP_READY || state == OP_ENDED ||
		    !goal_is_transfer(op))
			continue; /* checked when it starts: its message may have come already */
		if (op->type == GOAL_RECV && (state == OP_IN_JOB || state == OP_WAITS_JOB)) {
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

/* Fails the runs that depend on rank r. ctx NULL: in any context. */
static void end_dependent(struct sched_driver *d, int r, const uint64_t *ctx,
			  const struct sched_abort *why)
{
	uint32_t slot = atomic_load_explicit(&d->st->runs, memory_order_relaxed), next;

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
					-EPIPE); /* a rank that left has sent everything before */
		if (op == GOAL_NONE)
			continue;
		if (!ctx) {
			mine.at = d->rank;
			mine.op = op;
		}
		run_fail(d, s, &mine);
	}
}

/* Returns: 1 + the rank to blame when nothing more comes from rank r; 0 when r is well. */
static uint32_t find_culprit(struct sched_group *g, int r, int *out_error)
{
	const struct sched_state *st = g->drivers[r].st;
	uint32_t broken = atomic_load_explicit(&st->broken, memory_order_acquire);

	*out_error = -EOWNERDEAD;
	if (broken)
		return broken;
	if (atomic_load_explicit(&st->dead, memory_order_acquire))
		return 1 + (uint32_t)r;
	*out_error = -EPIPE;
	return atomic_load_explicit(&st->departed, memory_order_acquire) ? 1 + (uint32_t)r : 0;
}

static void fail_dependents(struct sched_driver *d, int r)
{
	struct sched_abort why = { .at = d->rank };
	uint32_t culprit = find_culprit(d->g, r, &why.error);

	why.rank = (int)culprit - 1;
	end_dependent(d, r, NULL, &why);
}

static void handle_aborts(struct sched_driver *d, int r)
{
	const struct sched_state *st = d->g->drivers[r].st;
	uint32_t count = d->peers[r].aborts_count, *handled = &d->peers[r].aborts_handled;

	if (count - *handled >
	    SCHED_ABORTS / 2) { /* aborts may be overwritten: no run of that rank is certain */
		struct sched_abort lost = { .error = -EIO, .rank = r, .at = r, .op = GOAL_NONE };

		d->peers[r].aborts_lost = 1;
		end_dependent(d, r, NULL, &lost);
		*handled = count;
	}
	for (; *handled != count; ++*handled) {
		struct sched_abort why = st->aborts[*handled % SCHED_ABORTS];

		end_dependent(d, r, &why.ctx, &why);
		match_drop(d, why.ctx, (uint32_t)r);
	}
}

/*
 * The order matters: first note deaths and aborts, then deliver what was sent before them, then
 * fail the runs that depend on them. A rank that left or died may have sent and received all that a
 * run of ours needs.
 */
void trouble_handle(struct sched_driver *d)
{
	uint32_t trouble =
		atomic_load_explicit(d->g->trouble, memory_order_acquire); /* partner: wake_all */
	int error;

	for (int r = 0; r < d->g->size; r++) {
		struct sched_peer *p = &d->peers[r];

		/* partner: run_fail */
		p->aborts_count = atomic_load_explicit(&d->g->drivers[r].st->abort_count,
						       memory_order_acquire);
		p->culprit = r == d->rank ? 0 : find_culprit(d->g, r, &error);
	}
	ring_poll(d);
	state_end_sends(d);
	if (d->st->open_jobs)
		job_reap(d);
	for (int r = 0; r < d->g->size; r++) {
		if (r == d->rank)
			continue;
		handle_aborts(d, r);
		if (d->peers[r].culprit)
			fail_dependents(d, r);
	}
	atomic_store_explicit(&d->st->trouble_handled, trouble,
			      memory_order_release); /* partner: trouble_settle */
}

/* Returns: false when nothing is known against rank r in this context. */
static bool has_failed(struct sched_driver *d, int r, uint64_t ctx, struct sched_abort *out)
{
	const struct sched_state *st = d->g->drivers[r].st;
	uint32_t handled = d->peers[r].aborts_handled;
	uint32_t n = handled < SCHED_ABORTS ? handled : SCHED_ABORTS;

	/* the newest last: an abort of the run precedes the departure */
	for (uint32_t k = handled - n; k != handled; k++) {
		if (st->aborts[k % SCHED_ABORTS].ctx != ctx)
			continue;
		*out = st->aborts[k % SCHED_ABORTS];
		return true;
	}
	*out = (struct sched_abort){ .error = -EIO, .rank = r, .at = r, .op = GOAL_NONE };
	if (!d->peers[r].culprit)
		return d->peers[r].aborts_lost;
	find_culprit(d->g, r, &out->error);
	out->rank = (int)d->peers[r].culprit - 1;
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

		while ((int32_t)(trouble - atomic_load_explicit(&d->st->trouble_handled,
								memory_order_acquire)) > 0 &&
		       !atomic_load_explicit(&d->st->dead, memory_order_relaxed) &&
		       !atomic_load_explicit(&d->st->broken, memory_order_relaxed) &&
		       !atomic_load_explicit(&d->st->departed, memory_order_relaxed) &&
		       os_now_ns() < stop) {
			state_drive(d);
			trouble_check_peers(g);
			sched_yield();
		}
	}
}
