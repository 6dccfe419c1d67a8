/* SPDX-License-Identifier: BSD-3-Clause */
/* Processing events: an operation may begin; the first byte of a message has arrived. */
#include <errno.h>

#include "private.h"

#define PROGRESS_EVENTS 0xffffu /* events, less one, between two calls of progress() */
#define AHEAD 6u                /* events ahead whose ranks are prefetched */

static uint64_t calc_cost(const struct sim_op *op)
{
	return op->bytes > SIM_TIME_MAX / SIM_PS_PER_NS ? SIM_TIME_MAX : op->bytes * SIM_PS_PER_NS;
}

static uint64_t local_cost(const struct sim *s, uint32_t rank, const struct sim_op *op)
{
	if (sim_is_one_sided(op))
		return sim_costs_of(s, op->bytes)->overhead_ps;
	if (op->type == GOAL_CALC)
		return calc_cost(op);
	if (op->type == GOAL_NOP || op->type == GOAL_STAMP || !op->bytes)
		return 0;
	if (s->config.params.node.ranks)
		return sim_node_local(s, rank, op);
	return sim_byte_cost(s->config.params.local_byte,
			     op->bytes < SIM_TIME_MAX ? op->bytes + 1 : op->bytes);
}

uint64_t sim_cost(const struct sim *s, enum sim_kind kind, uint32_t rank, const struct sim_op *op,
		  uint16_t others)
{
	const struct sim_costs *p = sim_costs_of(s, op->bytes);
	uint64_t cpu = sim_byte_cost(p->overhead_byte, op->bytes);

	if (kind == SIM_LOCAL)
		return local_cost(s, rank, op);
	if (sim_is_node(s, rank, sim_peer(s, rank, op)))
		return kind == SIM_SEND ? sim_node_send(s, op->bytes)
					: sim_node_receive(s, rank, op, others);
	if (kind == SIM_SEND)
		return p->overhead_ps + cpu;
	if (s->config.params.model == SIM_ATLAHS)
		return p->gap_ps + p->overhead_ps + cpu;
	/* the receiver's CPU is occupied until the last byte has come */
	return p->overhead_ps + sim_later(cpu, sim_byte_cost(p->gap_byte, op->bytes));
}

/* ---- what an end or a begin sets free ---------------------------------------------------- */

static int note_freed(struct sim *s, unsigned side, uint32_t op, uint64_t ready, uint32_t from)
{
	if (goal_grow(&s->freed[side], &s->freed_cap[side], s->freed_count[side] + 1ull,
		      sizeof(*s->freed[side])))
		return -ENOMEM;
	s->freed[side][s->freed_count[side]++] = (struct sim_freed){ op, from, ready };
	return 0;
}

/* Only later operations require the beginning of one (verify.c), so there is a next one. */
static uint32_t inext_count(const struct sim_op *op)
{
	return op->has_inext ? op[1].next - op->next - op->next_count : 0;
}

int sim_release(struct sim *s, unsigned side, uint32_t rank, const struct sim_op *op, bool ended,
		uint64_t ready, uint32_t from)
{
	const struct sim_shape *shape = sim_shape_at(s, sim_rank_of(s, rank));
	const uint32_t *next =
		s->shapes.edges + shape->first_edge + op->next + (ended ? 0 : op->next_count);
	uint32_t count = ended ? op->next_count : inext_count(op);

	for (uint32_t i = 0; i < count; i++) {
		const struct sim_op *to = s->shapes.ops + shape->first_op + next[i];
		uint64_t when = ready;
		uint32_t why = from;
		int rc =
			sim_partial_release(&s->partials, rank, next[i], to->requires, &when, &why);

		if (rc > 0)
			rc = note_freed(s, side, next[i], when, why);
		if (rc)
			return rc;
	}
	return 0;
}

int sim_end_op(struct sim *s, unsigned side, uint32_t rank, const struct sim_op *op,
	       uint64_t ready, uint32_t from)
{
	sim_rank_of(s, rank)->remaining--;
	s->stats.ops_done++;
	return sim_release(s, side, rank, op, true, ready, from);
}

/* The operation may begin at `ready`, or when its CPU or NIC is free. */
static int push_op(struct sim *s, uint32_t rank, uint32_t index, uint64_t ready, uint32_t from)
{
	const struct sim_op *op = sim_op_of(s, sim_rank_of(s, rank), index);
	const struct sim_cpu *cpu = sim_cpu_of(s, rank, op->cpu);
	const struct sim_nic *nic = sim_nic_of(s, rank, op->nic);
	struct sim_event e = { .time = ready,
			       .seq = s->seq++,
			       .rank = rank,
			       .op = index,
			       .from = from,
			       .kind = SIM_EVENT_OP,
			       .cause = from ? SIM_REQUIRED : SIM_FIRST };

	bool needs_cpu = op->kind == SIM_LOCAL || s->config.params.model != SIM_ATLAHS;

	if (needs_cpu && cpu->free > e.time) {
		e.time = cpu->free;
		e.from = cpu->last;
		e.cause = SIM_CPU;
	}
	if (op->kind == SIM_SEND && nic->free_send > e.time &&
	    !sim_is_node(s, rank, sim_peer(s, rank, op))) {
		e.time = nic->free_send;
		e.from = nic->last_send;
		e.cause = SIM_NIC;
	}
	return sim_queue_push(&s->queue, &e);
}

/* Sends first, then receives, then the others; each in the order in which they became ready. */
int sim_push_freed(struct sim *s, unsigned side, uint32_t rank)
{
	int rc = 0;

	for (int kind = SIM_SEND; kind <= SIM_LOCAL && s->freed_count[side]; kind++)
		for (uint32_t i = 0; i < s->freed_count[side] && !rc; i++) {
			const struct sim_freed *f = &s->freed[side][i];

			if (sim_op_of(s, sim_rank_of(s, rank), f->op)->kind == kind)
				rc = push_op(s, rank, f->op, f->ready, f->from);
		}
	s->freed_count[side] = 0;
	return rc;
}

/* ---- the events -------------------------------------------------------------------------- */

void sim_watch(struct sim *s, enum sim_kind kind, uint32_t rank, const struct sim_event *e,
	       uint32_t peer, const struct sim_op *op, uint64_t end)
{
	struct sim_interval interval;

	if (!s->config.watch || rank < s->config.watch_first || rank >= s->config.watch_end)
		return;
	interval = (struct sim_interval){ .kind = kind,
					  .rank = rank,
					  .op = e->op,
					  .peer = peer,
					  .tag = op->kind == SIM_LOCAL ? 0 : op->tag,
					  .cpu = op->cpu,
					  .nic = op->nic,
					  .type = op->type,
					  .bytes = op->bytes,
					  .begin_ps = e->time,
					  .end_ps = end };
	s->config.watch(s->config.ctx, &interval);
}

/* Puts the event into the line of its CPU, or of its NIC, when that is busy. Returns: true when it
 * waits. */
static bool must_wait(struct sim_event *e, const struct sim_cpu *cpu, uint64_t nic_free,
		      uint32_t nic_last, uint64_t *when)
{
	if (cpu->free <= e->time && nic_free <= e->time)
		return false;
	*when = sim_later(cpu->free, nic_free);
	e->cause = cpu->free >= nic_free ? SIM_CPU : SIM_NIC;
	e->from = cpu->free >= nic_free ? cpu->last : nic_last;
	return true;
}

static int advance_line(struct sim *s, struct sim_line line, const struct sim_event *e,
			const struct sim_cpu *cpu, uint64_t nic_free)
{
	return sim_line_advance(s, line, e, sim_later(cpu->free, nic_free), cpu->last,
				cpu->free >= nic_free ? SIM_CPU : SIM_NIC);
}

static int do_local(struct sim *s, struct sim_event *e)
{
	struct sim_rank *r = sim_rank_of(s, e->rank);
	const struct sim_op *op = sim_op_of(s, r, e->op);
	struct sim_cpu *cpu = sim_cpu_of(s, e->rank, op->cpu);
	struct sim_line line = sim_line_of(s, e->rank, SIM_LOCAL, op->cpu, 0);
	uint64_t when, begin = e->time;
	int rc;

	if (must_wait(e, cpu, 0, 0, &when))
		return sim_line_wait(s, line, e, when);
	cpu->last = sim_log_add(&s->log, SIM_LOCAL, e, 0);
	cpu->free = sim_occupy(s, e->rank, begin, sim_cost(s, SIM_LOCAL, e->rank, op, 0));
	if (s->neighbours && op->type != GOAL_CALC)
		s->neighbours[e->rank].copying_until = cpu->free;
	sim_watch(s, SIM_LOCAL, e->rank, e, e->rank, op, cpu->free);
	rc = sim_release(s, 0, e->rank, op, false, begin, cpu->last);
	if (!rc && op->type != GOAL_TEST)
		rc = sim_end_op(s, 0, e->rank, op, cpu->free, cpu->last);
	if (!rc)
		rc = sim_push_freed(s, 0, e->rank);
	if (!rc && sim_is_one_sided(op))
		rc = sim_card_begin(s, e->rank, e->op, op, cpu->free, cpu->last);
	return rc ? rc : advance_line(s, line, e, cpu, 0);
}

int sim_end_test(struct sim *s, uint32_t rank, const struct sim_op *op, uint64_t now, uint32_t from)
{
	struct sim_cpu *cpu = sim_cpu_of(s, rank, op->cpu);
	int rc;

	if (cpu->free < now) {
		cpu->free = now;
		cpu->last = from;
	}
	rc = sim_end_op(s, 0, rank, op, now, from);
	return rc ? rc : sim_push_freed(s, 0, rank);
}

/* The message of a send that e began. */
static struct sim_event message_of(struct sim *s, const struct sim_event *e, uint64_t bytes,
				   uint64_t cpu_end, uint32_t from, bool is_node)
{
	const struct sim_costs *p = sim_costs_of(s, bytes);
	struct sim_event message = *e;

	if (is_node) /* it is complete in memory */
		message.time = cpu_end + s->config.params.node.latency_ps;
	else if (s->config.params.model == SIM_ATLAHS) /* its last byte arrives */
		message.time = cpu_end + p->latency_ps + sim_byte_cost(p->gap_byte, bytes);
	else
		message.time = sim_busy_until(s, e->rank, e->time, p->overhead_ps) + p->latency_ps;
	message.seq = s->seq++;
	message.from = from;
	message.kind = SIM_EVENT_MESSAGE;
	message.cause = SIM_WIRE;
	return message;
}

static int do_send(struct sim *s, struct sim_event *e)
{
	const struct sim_op *op = sim_op_of(s, sim_rank_of(s, e->rank), e->op);
	const struct sim_costs *p = sim_costs_of(s, op->bytes);
	struct sim_cpu *cpu = sim_cpu_of(s, e->rank, op->cpu);
	struct sim_nic *nic = sim_nic_of(s, e->rank, op->nic);
	struct sim_line line = sim_line_of(s, e->rank, SIM_SEND, op->cpu, op->nic);
	bool is_node = sim_is_node(s, e->rank, sim_peer(s, e->rank, op));
	uint64_t when;
	struct sim_event message;
	int rc;

	if (must_wait(e, cpu, is_node ? 0 : nic->free_send, nic->last_send, &when))
		return sim_line_wait(s, line, e, when);
	cpu->last = sim_log_add(&s->log, SIM_SEND, e, 0);
	cpu->free = sim_occupy(s, e->rank, e->time, sim_cost(s, SIM_SEND, e->rank, op, 0));
	if (!is_node) {
		nic->last_send = cpu->last;
		nic->free_send = e->time + p->gap_ps + sim_byte_cost(p->gap_byte, op->bytes);
	}
	sim_watch(s, SIM_SEND, e->rank, e, sim_peer(s, e->rank, op), op, cpu->free);
	message = message_of(s, e, op->bytes, cpu->free, cpu->last, is_node);
	s->stats.messages++;
	s->stats.message_bytes += op->bytes;
	rc = sim_queue_push(&s->queue, &message);
	if (!rc)
		rc = sim_release(s, 0, e->rank, op, false, e->time, cpu->last);
	if (!rc && sim_is_eager(s, op, is_node))
		rc = sim_end_op(s, 0, e->rank, op, cpu->free, cpu->last);
	if (!rc)
		rc = sim_push_freed(s, 0, e->rank);
	return rc ? rc : advance_line(s, line, e, cpu, is_node ? 0 : nic->free_send);
}

/* A message has met its receive at `now`, so the sender's operation may end; inside a node when the
 * receiver has copied it, at `copied`. */
static int end_rendezvous(struct sim *s, uint32_t sender, const struct sim_op *op, uint64_t now,
			  uint64_t copied, uint32_t from)
{
	bool is_node = sim_is_node(s, sender, sim_peer(s, sender, op));
	struct sim_cpu *cpu = sim_cpu_of(s, sender, op->cpu);
	struct sim_nic *nic = sim_nic_of(s, sender, op->nic);

	if (sim_is_eager(s, op, is_node))
		return 0;
	s->stats.rendezvous++;
	if (is_node) {
		if (copied >= s->neighbours[sender].sent_until) {
			s->neighbours[sender].sent_until = copied;
			s->neighbours[sender].sent_last = from;
		}
		return sim_end_op(s, 1, sender, op, copied, from);
	}
	if (cpu->free < now) {
		cpu->free = now;
		cpu->last = from;
	}
	if (nic->free_send < now) {
		nic->free_send = now;
		nic->last_send = from;
	}
	return sim_end_op(s, 1, sender, op, now, from);
}

int sim_push_both(struct sim *s, uint32_t rank, uint32_t sender)
{
	int rc = 0;

	if (s->freed_count[1] && sender < rank)
		rc = sim_push_freed(s, 1, sender);
	if (!rc)
		rc = sim_push_freed(s, 0, rank);
	if (!rc && s->freed_count[1])
		rc = sim_push_freed(s, 1, sender);
	return rc;
}

/* A long message inside a node, whose receive is posted now, is copied when the CPU is free. */
static int copy_announced(struct sim *s, struct sim_event *e, const struct sim_arrived *a)
{
	struct sim_event message = { .time = sim_later(e->time, a->end),
				     .seq = s->seq++,
				     .rank = a->rank,
				     .op = a->op,
				     .from = a->end > e->time ? a->from : e->from,
				     .kind = SIM_EVENT_MESSAGE,
				     .cause = a->end > e->time ? SIM_CPU : SIM_REQUIRED };
	int rc = sim_post(s, e->rank, e->op, e->from);

	if (!rc)
		rc = sim_push_freed(s, 0, e->rank);
	return rc ? rc : sim_queue_push(&s->queue, &message);
}

static int do_receive(struct sim *s, struct sim_event *e)
{
	const struct sim_op *op = sim_op_of(s, sim_rank_of(s, e->rank), e->op), *send;
	struct sim_arrived a;
	int rc = sim_release(s, 0, e->rank, op, false, e->time, e->from);

	if (rc)
		return rc;
	if (!sim_match_arrived(s, e->rank, op, &a)) {
		rc = sim_post(s, e->rank, e->op, e->from);
		return rc ? rc : sim_push_freed(s, 0, e->rank);
	}
	s->stats.unexpected_ps += e->time > a.end ? e->time - a.end : 0;
	send = sim_op_of(s, sim_rank_of(s, a.rank), a.op);
	if (sim_is_node(s, a.rank, e->rank) && !sim_is_eager(s, send, true))
		return copy_announced(s, e, &a);
	rc = end_rendezvous(s, a.rank, send, e->time, e->time, e->from);
	if (!rc)
		rc = sim_end_op(s, 0, e->rank, op, sim_later(e->time, a.end),
			    a.end > e->time ? a.from : e->from);
	return rc ? rc : sim_push_both(s, e->rank, a.rank);
}

/* The receiver's CPU takes a message, with `posted` its receive; NULL: none is posted. */
static void occupy_receiver(struct sim *s, const struct sim_event *e, const struct sim_op *op,
			 uint32_t rank, const struct sim_posted *posted)
{
	const struct sim_costs *p = sim_costs_of(s, op->bytes);
	struct sim_cpu *cpu = sim_cpu_of(s, rank, op->cpu);
	struct sim_nic *nic = sim_nic_of(s, rank, op->nic);
	bool is_node = sim_is_node(s, e->rank, rank);
	uint16_t others = 0;

	if (is_node && !sim_is_eager(s, op, true))
		others = posted ? sim_node_others(s, rank, e->time) : SIM_NODE_ANNOUNCED;
	cpu->last = sim_log_add(&s->log, SIM_RECEIVE, e, others);
	cpu->free =
		sim_occupy(s, rank, e->time, sim_cost(s, SIM_RECEIVE, e->rank, op, others));
	if (!is_node) {
		nic->last_recv = cpu->last;
		nic->free_recv = e->time + p->gap_ps + sim_byte_cost(p->gap_byte, op->bytes);
	} else if (posted) {
		s->neighbours[rank].copying_until = cpu->free;
	}
	sim_watch(s, SIM_RECEIVE, rank, e, e->rank, op, cpu->free);
}

static int do_message(struct sim *s, struct sim_event *e)
{
	const struct sim_op *op = sim_op_of(s, sim_rank_of(s, e->rank), e->op);
	uint32_t rank = sim_peer(s, e->rank, op);
	struct sim_line line = sim_line_of(s, rank, SIM_RECEIVE, op->cpu, op->nic);
	struct sim_rank *r = sim_rank_of(s, rank);
	struct sim_cpu *cpu = sim_cpu_of(s, rank, op->cpu);
	struct sim_nic *nic = sim_nic_of(s, rank, op->nic);
	bool is_node = sim_is_node(s, e->rank, rank), is_posted;
	struct sim_posted posted;
	uint64_t when;
	int rc;

	if (must_wait(e, cpu, is_node ? 0 : nic->free_recv, nic->last_recv, &when))
		return sim_line_wait(s, line, e, when);
	is_posted = sim_match_posted(s, rank, e->rank, op->tag, &posted);
	occupy_receiver(s, e, op, rank, is_posted ? &posted : NULL);
	if (!is_posted) {
		rc = sim_arrive(s, rank,
				&(struct sim_arrived){ .rank = e->rank,
						       .op = e->op,
						       .end = cpu->free,
						       .from = cpu->last });
	} else {
		rc = end_rendezvous(s, e->rank, op, e->time, cpu->free, cpu->last);
		if (!rc)
			rc = sim_end_op(s, 0, rank, sim_op_of(s, r, posted.op), cpu->free,
					cpu->last);
		if (!rc)
			rc = sim_push_both(s, rank, e->rank);
	}
	return rc ? rc : advance_line(s, line, e, cpu, is_node ? 0 : nic->free_recv);
}

static int happen(struct sim *s, struct sim_event *e)
{
	bool is_atlahs = s->config.params.model == SIM_ATLAHS;

	if (e->time > SIM_TIME_MAX)
		return -EOVERFLOW;
	switch (e->kind) {
	case SIM_EVENT_MESSAGE:
		return is_atlahs ? sim_atlahs_message(s, e) : do_message(s, e);
	case SIM_EVENT_CARD:
		return sim_card_send(s, e);
	case SIM_EVENT_ARRIVAL:
		return sim_card_arrival(s, e);
	case SIM_EVENT_ANSWER:
		return sim_card_answer(s, e);
	case SIM_EVENT_COUNT:
		return sim_card_count(s, e);
	}
	switch (sim_op_of(s, sim_rank_of(s, e->rank), e->op)->kind) {
	case SIM_SEND:
		return do_send(s, e);
	case SIM_RECEIVE:
		return is_atlahs ? sim_atlahs_receive(s, e) : do_receive(s, e);
	default:
		return do_local(s, e);
	}
}

/* Prefetches the ranks of coming events: each event touches another rank, far away in memory. */
static void fetch_ahead(const struct sim *s)
{
	const struct sim_event *e = sim_queue_peek(&s->queue, AHEAD);
	uint32_t rank;

	if (!e)
		return;
	rank = e->rank;
	if (e->kind == SIM_EVENT_MESSAGE)
		rank = sim_peer(s, rank, sim_op_of(s, sim_rank_of(s, rank), e->op));
	__builtin_prefetch(sim_rank_of(s, rank), 1);
	__builtin_prefetch((const char *)sim_rank_of(s, rank) + 64, 1);
}

static int run_events(struct sim *s)
{
	struct sim_event e;
	int rc;

	while ((rc = sim_queue_pop(&s->queue, &e)) > 0) {
		fetch_ahead(s);
		s->stats.now_ps = e.time;
		rc = happen(s, &e);
		if (rc)
			return rc;
		if ((++s->stats.events & PROGRESS_EVENTS) == 0 && s->config.progress &&
		    s->config.progress(s->config.ctx, s->stats.ops_done, s->stats.ops,
				       s->stats.now_ps))
			return -ECANCELED;
	}
	return rc;
}

static int push_first(struct sim *s)
{
	const struct sim_node *node = &s->config.params.node;
	uint64_t start = node->ranks ? node->start_ps : 0;
	int rc = 0;

	for (uint32_t rank = 0; rank < s->config.ranks && !rc; rank++) {
		uint32_t ready = sim_shape_at(s, sim_rank_of(s, rank))->ready_count;

		for (uint32_t i = 0; i < ready && !rc; i++)
			rc = note_freed(s, 0, i, start, 0);
		if (!rc)
			rc = sim_push_freed(s, 0, rank);
	}
	return rc;
}

int sim_run(struct sim *s)
{
	int rc = s->log.records ? 0 : sim_log_init(&s->log, s->config.path_bytes, s->stats.ops);
	bool is_stuck = false;

	if (!rc)
		rc = push_first(s);
	if (!rc)
		rc = run_events(s);
	sim_units_end(s);
	for (uint32_t rank = 0; rank < s->config.ranks; rank++) {
		uint64_t end = sim_rank_end(s, rank);

		is_stuck |= sim_rank_of(s, rank)->remaining || sim_rank_of(s, rank)->arrived.count;
		if (end > s->stats.end_ps) {
			s->stats.end_ps = end;
			s->stats.last_rank = rank;
		}
	}
	if (!rc && s->stats.end_ps > SIM_TIME_MAX)
		return -EOVERFLOW;
	return !rc && is_stuck ? -EDEADLK : rc;
}
