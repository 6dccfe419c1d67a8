/* SPDX-License-Identifier: BSD-3-Clause */
/* Driving the state of a rank: deliver messages, end operations, start those that are ready. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "goal/sched/private.h"

#define READY_BATCH 4096u /* operations started in a row before the rings are polled again */

/* ---- claim ------------------------------------------------------------------------------- */

bool state_try_claim(struct sched_driver *d)
{
	uint32_t none = 0;

	if (atomic_load_explicit(&d->st->claim, memory_order_relaxed))
		return false;
	if (!atomic_compare_exchange_strong_explicit(
		    &d->st->claim, &none, 1 + (uint32_t)d->g->rank, memory_order_acquire,
		    memory_order_relaxed)) /* partner: state_release */
		return false;
	if (base_likely(!atomic_load_explicit(&d->st->broken, memory_order_relaxed)))
		return true;
	state_release(d);
	return false;
}

void state_release(struct sched_driver *d)
{
	atomic_store_explicit(&d->st->claim, 0,
			      memory_order_release); /* partner: state_try_claim */
}

/* ---- operations -------------------------------------------------------------------------- */

static void op_ready(struct sched_driver *d, struct sched_inst *s, uint32_t i)
{
	s->ops[i].state = OP_READY;
	list_push(d, &d->st->ready, opref_of(s->slot, i), &s->ops[i]);
}

static void release(struct sched_driver *d, struct sched_inst *s, uint32_t next, uint32_t count)
{
	const uint32_t *list = goal_adjacency(s->block) + next;

	for (uint32_t k = 0; k < count; k++)
		if (!--s->ops[list[k]].waits)
			op_ready(d, s, list[k]);
}

uint64_t run_time(const struct sched_inst *s) { return os_now_ns() - s->body->start_ns; }

void op_ended(struct sched_driver *d, struct sched_inst *s, uint32_t i)
{
	const struct goal_op *op = inst_goal(s, i);
	uint32_t remaining = atomic_load_explicit(&s->body->remaining, memory_order_relaxed) -
			     1; /* only the holder of the claim writes it */

	if (base_unlikely(s->times))
		s->times[i].end_ns = run_time(s);
	s->ops[i].state = OP_ENDED;
	atomic_store_explicit(&s->body->remaining, remaining, memory_order_relaxed);
	if (op->next_count)
		release(d, s, op->next, op->next_count);
	if (!remaining)
		run_finish(d, s, RUN_DONE);
}

/* Copies a short message from its record to its destination. Returns: false when this process does
 * not map the destination. */
static bool scatter(const struct sched_inst *s, const struct goal_op *op, const char *from)
{
	const struct goal_segment *l = goal_segments(s->block) + op->segment;
	char *to;

	if (!op->segment_count) {
		to = inst_addr(s, op->mem, op->off, op->bytes);
		if (to)
			memcpy(to, from, op->bytes);
		return to;
	}
	for (uint32_t k = 0; k < op->segment_count; k++)
		if (!inst_addr(s, l[k].mem, l[k].off, l[k].bytes))
			return false;
	for (uint32_t k = 0; k < op->segment_count; from += l[k++].bytes)
		memcpy(inst_addr(s, l[k].mem, l[k].off, l[k].bytes), from, l[k].bytes);
	return true;
}

void op_receive(struct sched_driver *d, struct sched_inst *s, uint32_t i, struct sched_msg *m,
		sched_ref ref)
{
	const struct goal_op *op = inst_goal(s, i);
	struct sched_abort why = { s->body->ctx, -EREMOTEIO, (int)m->src, d->rank, i };

	if (m->bytes != op->bytes) {
		base_log(BASE_LOG_ERROR, "sched",
			 "%s: rank %d receives %llu bytes, rank %u sent %llu under tag %u",
			 d->own ? s->name : "a schedule", d->rank, (unsigned long long)op->bytes,
			 m->src, (unsigned long long)m->bytes, m->tag);
		run_fail(d, s, &why);
		return;
	}
	if (!op->bytes || (m->kind != SCHED_ANNOUNCED && ref_at(d->g, ref, sizeof *m + op->bytes) &&
			   scatter(s, op, (const char *)(m + 1)))) {
		msg_release(d, m, ref);
		op_ended(d, s, i);
		return;
	}
	s->ops[i].msg = ref;
	job_for_recv(d, s, i, m);
}

static bool has_trouble(const struct sched_driver *d)
{
	return atomic_load_explicit(&d->st->trouble_handled, memory_order_relaxed);
}

static void start_recv(struct sched_driver *d, struct sched_inst *s, uint32_t i)
{
	sched_ref ref = 0;
	struct sched_msg *m = d->st->unexpected.head
				      ? match_message(d, s->body->ctx, inst_goal(s, i), &ref)
				      : NULL;

	if (m) {
		op_receive(d, s, i, m, ref);
		return;
	}
	match_post(d, s, i);
	if (base_unlikely(has_trouble(d)))
		trouble_check_op(d, s, i);
}

static void start_send(struct sched_driver *d, struct sched_inst *s, uint32_t i)
{
	uint32_t dst = inst_goal(s, i)->peer;
	struct sched_list *backlog = &d->peers[dst].backlog;

	if (base_unlikely(has_trouble(d)) && trouble_check_op(d, s, i))
		return;
	/* messages keep their order: none overtakes the backlog */
	if (base_likely(!backlog->head && ring_has_room(d, dst))) {
		ring_send(d, s, i);
		return;
	}
	s->ops[i].state = OP_BACKLOG;
	list_push(d, backlog, opref_of(s->slot, i), &s->ops[i]);
	d->st->backlogged++;
	state_mark_computing(&d->g->drivers[dst]); /* its driver makes room */
}

static void note_timer(struct sched_driver *d, uint64_t end_ns)
{
	uint64_t first = atomic_load_explicit(&d->st->timer_ns, memory_order_relaxed);

	if (!first || end_ns < first)
		atomic_store_explicit(&d->st->timer_ns, end_ns, memory_order_relaxed);
}

static void start_calc(struct sched_driver *d, struct sched_inst *s, uint32_t i)
{
	const struct goal_op *op = inst_goal(s, i);
	uint64_t *free_ns = &d->st->cpu_free_ns[op->cpu % SCHED_TIMERS];

	if (!op->bytes) {
		op_ended(d, s, i);
		return;
	}
	*free_ns = base_max_u64(*free_ns, os_now_ns()) +
		   op->bytes; /* a CPU of the schedule computes one thing at a time */
	s->ops[i].msg = *free_ns;
	s->ops[i].state = OP_TIMER;
	note_timer(d, *free_ns);
	list_push(d, &d->st->timers, opref_of(s->slot, i), &s->ops[i]);
}

static void start_stamp(struct sched_driver *d, struct sched_inst *s, uint32_t i)
{
	const struct goal_op *op = inst_goal(s, i);
	uint64_t now = run_time(s);
	char *to = inst_addr(s, op->mem, op->off, sizeof now);

	if (!to) {
		job_for_local(d, s, i);
		return;
	}
	memcpy(to, &now, sizeof now);
	op_ended(d, s, i);
}

static void start(struct sched_driver *d, struct sched_inst *s, uint32_t i)
{
	const struct goal_op *op = inst_goal(s, i);
	uint32_t inext = op->inext, inext_count = op->inext_count;

	if (base_unlikely(s->times))
		s->times[i].begin_ns = run_time(s);
	/* first: the operation, and the run with it, may end below */
	if (inext_count)
		release(d, s, inext, inext_count);
	switch (op->type) {
	case GOAL_NOP:
		op_ended(d, s, i);
		break;
	case GOAL_SEND:
		start_send(d, s, i);
		break;
	case GOAL_RECV:
		start_recv(d, s, i);
		break;
	case GOAL_CALC:
		start_calc(d, s, i);
		break;
	case GOAL_STAMP:
		start_stamp(d, s, i);
		break;
	default:
		job_for_local(d, s, i);
	}
}

static bool start_ready(struct sched_driver *d)
{
	struct sched_inst *s;
	sched_opref ref;
	uint32_t n = 0;

	for (; n < READY_BATCH && (ref = list_pop(d, &d->st->ready)) != 0; n++)
		if (op_at(d, ref, &s))
			start(d, s, (uint32_t)ref);
	return n;
}

/* ---- runs -------------------------------------------------------------------------------- */

static void link_run(struct sched_driver *d, struct sched_inst *s)
{
	uint32_t head = atomic_load_explicit(&d->st->runs, memory_order_relaxed);
	struct sched_inst *first = head ? inst_at(d, head - 1) : NULL;

	s->body->prev_run = 0;
	s->body->next_run = head;
	if (first)
		first->body->prev_run = s->slot + 1;
	atomic_store_explicit(&d->st->runs, s->slot + 1, memory_order_relaxed);
}

static void unlink_run(struct sched_driver *d, struct sched_inst *s)
{
	struct sched_inst *prev = s->body->prev_run ? inst_at(d, s->body->prev_run - 1) : NULL;
	struct sched_inst *next = s->body->next_run ? inst_at(d, s->body->next_run - 1) : NULL;

	if (prev)
		prev->body->next_run = s->body->next_run;
	else
		atomic_store_explicit(&d->st->runs, s->body->next_run, memory_order_relaxed);
	if (next)
		next->body->prev_run = s->body->prev_run;
}

void run_finish(struct sched_driver *d, struct sched_inst *s, enum run_phase phase)
{
	unlink_run(d, s);
	/* the body belongs to its owner from here on */
	atomic_store_explicit(&s->body->phase, phase,
			      memory_order_release); /* partner: sched_test */
	if (!d->own)
		node_wake(d->g->node, d->rank);
}

/* By the driver, whose cache may hold the operations since it drove the last run. */
static void reset(struct sched_inst *s)
{
	const struct goal_op *ops = goal_ops_const(s->block);
	uint32_t n = s->block->op_count;

	for (uint32_t i = 0; i < n; i++) {
		s->ops[i].waits = ops[i].requires;
		s->ops[i].state = OP_BLOCKED;
	}
	atomic_store_explicit(&s->body->remaining, n, memory_order_relaxed);
}

static void start_run(struct sched_driver *d, struct sched_inst *s)
{
	reset(s);
	/* Counted even when this rank has no message in the run: run numbers of all ranks stay
	 * equal. */
	s->body->ctx = ctx_of(s->body->channel, s->runs ? s->runs->count++ : 0);
	link_run(d, s);
	if (!s->block->op_count) {
		run_finish(d, s, RUN_DONE);
		return;
	}
	/* Operations that become ready together start in order. When no others are ready they start
	 * directly, without the list: the run cannot end before the last of them has started. */
	if (d->st->ready.head) {
		for (uint32_t i = 0; i < s->block->ready_count; i++)
			op_ready(d, s, i);
		return;
	}
	for (uint32_t i = 0, n = s->block->ready_count; i < n; i++) {
		start(d, s, i);
		/* The phase is not read after the last one: the run may have ended, and another
		 * thread may have started it again. */
		if (i + 1 < n &&
		    atomic_load_explicit(&s->body->phase, memory_order_relaxed) != RUN_GOING)
			return;
	}
}

/* Can this process drive all runs that a peer has pushed? If not, it never drives that rank. */
static bool maps_starts(struct sched_driver *d, sched_opref ref)
{
	struct sched_inst *s;

	for (; ref; ref = s->body->next_start) {
		s = inst_at(d, (uint32_t)(ref >> 32) - 1);
		if (!s) {
			inst_refuse(d);
			return false;
		}
	}
	return true;
}

/* Starts the runs that threads of the rank have pushed, in the order of the pushes. */
static bool pop_starts(struct sched_driver *d)
{
	sched_opref ref = atomic_load_explicit(&d->st->starts, memory_order_acquire);
	sched_opref next, in_order = 0;
	struct sched_inst *s;

	if (base_likely(!ref))
		return false;
	do
		if (!d->own && !maps_starts(d, ref))
			return false; /* their owner starts them */
	while (!atomic_compare_exchange_weak_explicit(&d->st->starts, &ref, 0, memory_order_acquire,
						      memory_order_acquire));
	/* partner: push_start */
	for (; ref; ref = next) {
		s = inst_at(d, (uint32_t)(ref >> 32) - 1);
		if (!s)
			break;
		next = s->body->next_start;
		s->body->next_start = in_order;
		in_order = ref;
	}
	for (; in_order; in_order = next) {
		s = inst_at(d, (uint32_t)(in_order >> 32) - 1);
		if (!s)
			break;
		next = s->body->next_start;
		start_run(d, s);
	}
	return true;
}

bool state_end_sends(struct sched_driver *d)
{
	struct sched_inst *s;
	sched_ref ref;

	if (base_likely(!atomic_load_explicit(&d->st->ended, memory_order_relaxed)))
		return false;
	ref = atomic_exchange_explicit(&d->st->ended, 0,
				       memory_order_acquire); /* partner: msg_release */
	while (ref) {
		struct sched_msg *m = ref_at(d->g, ref, sizeof *m);
		sched_opref op;

		if (!m)
			break;
		ref = m->ended_next;
		op = m->op;
		if (op_at(d, op, &s) && s->ops[(uint32_t)op].state == OP_SENT)
			op_ended(d, s, (uint32_t)op);
	}
	return true;
}

static bool send_backlog(struct sched_driver *d)
{
	bool progress = false;

	for (int dst = 0; d->st->backlogged && dst < d->g->size; dst++) {
		struct sched_list *l = &d->peers[dst].backlog;
		struct sched_inst *s;
		sched_opref ref;

		while (l->head && ring_has_room(d, (uint32_t)dst) && (ref = list_pop(d, l)) != 0) {
			d->st->backlogged--;
			if (op_at(d, ref, &s))
				ring_send(d, s, (uint32_t)ref);
			progress = true;
		}
	}
	return progress;
}

static uint64_t timer_ns_of(struct sched_driver *d)
{
	return atomic_load_explicit(&d->st->timer_ns, memory_order_relaxed);
}

static bool end_timers(struct sched_driver *d)
{
	uint64_t now = os_now_ns();
	bool progress = false;
	struct sched_inst *s;
	struct sched_op *op;
	sched_opref next;

	if (now < timer_ns_of(d))
		return false;
	atomic_store_explicit(&d->st->timer_ns, 0, memory_order_relaxed);
	for (sched_opref ref = d->st->timers.head; ref && (op = op_at(d, ref, &s)) != NULL;
	     ref = next) {
		next = op->next;
		if (op->msg > now) {
			note_timer(d, op->msg);
			continue;
		}
		list_remove(d, &d->st->timers, op);
		op_ended(d, s, (uint32_t)ref);
		progress = true;
	}
	return progress;
}

/* ---- a step ------------------------------------------------------------------------------ */

bool state_step(struct sched_driver *d)
{
	struct sched_state *st = d->st;
	bool progress = false, more;

	if (base_unlikely(atomic_load_explicit(d->g->trouble, memory_order_acquire) !=
			  atomic_load_explicit(&st->trouble_handled, memory_order_relaxed)))
		trouble_handle(d);
	do {
		more = pop_starts(d);
		more |= state_end_sends(d);
		more |= ring_poll(d);
		if (st->open_jobs)
			more |= job_reap(d);
		if (st->timers.head)
			more |= end_timers(d);
		if (st->backlogged)
			more |= send_backlog(d);
		if (st->ready.head)
			more |= start_ready(d);
		progress |= more;
	} while (st->ready.head);
	return progress;
}

void state_start_run(struct sched_driver *d, struct sched_inst *s)
{
	pop_starts(d); /* runs that were pushed before */
	start_run(d, s);
}

void state_wake_peers(struct sched_driver *d)
{
	if (!d->st->wake_due)
		return;
	d->st->wake_due = 0;
	for (int r = 0; r < d->g->size; r++) {
		if (!d->peers[r].wake_due)
			continue;
		d->peers[r].wake_due = 0;
		node_wake(d->g->node, r);
	}
}

/* Allocates the table of a peer's schedules at first use. Context: under the claim. */
static bool can_drive(struct sched_driver *d)
{
	if (base_unlikely(!d->insts) && !d->refused) {
		d->insts = calloc(SCHED_INSTS, sizeof *d->insts);
		if (!d->insts)
			inst_refuse(d);
	}
	return !d->refused;
}

/* Would state_step() change the state? */
static bool has_work(struct sched_driver *d)
{
	const struct sched_state *st = d->st;

	return atomic_load_explicit(&st->starts, memory_order_relaxed) ||
	       atomic_load_explicit(&st->ended, memory_order_relaxed) || st->open_jobs ||
	       (st->timers.head && os_now_ns() >= timer_ns_of(d)) || st->backlogged ||
	       st->ready.head || st->wake_due ||
	       atomic_load_explicit(d->g->trouble, memory_order_relaxed) !=
		       atomic_load_explicit(&st->trouble_handled, memory_order_relaxed) ||
	       ring_has_message(d);
}

/* A step for another rank. A process that dies before it changes anything leaves the state whole:
 * break_states() tells by `changing`. The kernel ends a process between two instructions, so only
 * the compiler must keep the order of the stores. */
static bool step_for_peer(struct sched_driver *d)
{
	bool progress;

	if (!has_work(d))
		return false;
	atomic_store_explicit(&d->st->changing, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	progress = state_step(d);
	state_wake_peers(d);
	atomic_store_explicit(&d->st->changing, 0, memory_order_release);
	return progress;
}

bool state_drive_claimed(struct sched_driver *d, bool *progress)
{
	bool can = can_drive(d);

	if (can) {
		if (base_unlikely(atomic_load_explicit(&d->st->again, memory_order_relaxed)))
			atomic_exchange_explicit(&d->st->again, 0, memory_order_seq_cst);
		if (d->own) {
			*progress |= state_step(d);
			state_wake_peers(d);
		} else {
			*progress |= step_for_peer(d);
		}
	}
	state_release(d);
	return can;
}

bool state_drive(struct sched_driver *d)
{
	bool progress = false;

	do {
		if (!state_try_claim(d) || !state_drive_claimed(d, &progress))
			return progress;
		if (!d->own)
			atomic_thread_fence(memory_order_seq_cst); /* partner: push_start */
		/* the owner may have pushed a run while this process held the claim */
	} while (base_unlikely(state_has_starts(d)));
	return progress;
}
