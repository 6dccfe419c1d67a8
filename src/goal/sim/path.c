/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The critical path. Each occupation of a CPU leaves a record with the number of the record that
 * determined its beginning. The ring of records overwrites the oldest: of a simulation too long for
 * its memory the last part of the path is known.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "private.h"

#define RECORDS_OF_OP 2u /* at most: a message is announced, and received */

int sim_log_init(struct sim_log *l, size_t bytes, uint64_t ops)
{
	uint64_t cap = bytes / sizeof(struct sim_record);

	*l = (struct sim_log){ .next = 1, .slot = 1 };
	if (cap / RECORDS_OF_OP > ops + 1)
		cap = (ops + 1) * RECORDS_OF_OP;
	if (cap < 2)
		return 0;
	cap = cap < UINT32_MAX / 2 ? cap : UINT32_MAX / 2;
	/* pages without records are never touched */
	l->records = mmap(NULL, cap * sizeof(struct sim_record), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (l->records == MAP_FAILED) {
		l->records = NULL;
		return -ENOMEM;
	}
	madvise(l->records, cap * sizeof(struct sim_record),
		MADV_HUGEPAGE); /* huge pages are optional */
	l->cap = (uint32_t)cap;
	l->end = UINT32_MAX / l->cap * l->cap;
	return 0;
}

void sim_log_fini(struct sim_log *l)
{
	if (l->records)
		munmap(l->records, l->cap * sizeof(struct sim_record));
	*l = (struct sim_log){ .records = NULL };
}

/* Returns: NULL: none, or overwritten. */
static const struct sim_record *record_of(const struct sim_log *l, uint32_t number)
{
	uint32_t age = l->next >= number ? l->next - number : l->end - number + l->next;

	return number && l->cap && age < l->cap ? &l->records[number % l->cap] : NULL;
}

static void fill_step(const struct sim *s, const struct sim_record *r, struct sim_step *out)
{
	const struct sim_op *op = sim_op_of(s, sim_rank_of(s, r->rank), r->op);
	uint32_t peer = op->kind == SIM_LOCAL ? r->rank : sim_peer(s, r->rank, op);
	bool is_receive = r->kind == SIM_RECEIVE;

	*out = (struct sim_step){
		.kind = r->kind,
		.cause = r->cause,
		.op = r->op,
		.rank = is_receive ? peer : r->rank,
		.peer = is_receive ? r->rank : peer,
		.tag = op->kind == SIM_LOCAL ? 0 : op->tag,
		.type = op->type,
		.bytes = op->bytes,
		.begin_ps = r->begin,
		.end_ps = sim_busy_until(s, is_receive ? peer : r->rank, r->begin,
					 sim_cost(s, r->kind, r->rank, op, r->others)),
	};
}

static uint64_t spend(uint64_t *remaining, uint64_t at_most)
{
	uint64_t spent = *remaining < at_most ? *remaining : at_most;

	*remaining -= spent;
	return spent;
}

static uint64_t noise_of(const struct sim *s, const struct sim_record *r, const struct sim_op *op)
{
	uint32_t rank = r->kind == SIM_RECEIVE ? sim_peer(s, r->rank, op) : r->rank;
	uint64_t cost = sim_cost(s, r->kind, r->rank, op, r->others);

	return sim_busy_until(s, rank, r->begin, cost) - r->begin - cost;
}

/* Attributes the time between r and the record that determined its beginning. */
static void account(const struct sim *s, const struct sim_record *r, uint64_t until,
		    enum sim_cause cause, struct sim_path_sum *sum)
{
	const struct sim_op *op = sim_op_of(s, sim_rank_of(s, r->rank), r->op);
	const struct sim_costs *p = sim_costs_of(s, op->bytes);
	const struct sim_node *node = &s->config.params.node;
	uint64_t remaining = until - r->begin;
	bool is_node = r->kind != SIM_LOCAL && sim_is_node(s, r->rank, sim_peer(s, r->rank, op));

	if (sim_is_one_sided(op)) {
		sum->overhead_ps += spend(&remaining, p->overhead_ps);
		sum->latency_ps += spend(&remaining, p->latency_ps);
	} else if (r->kind == SIM_LOCAL) {
		sum->local_ps += spend(&remaining, sim_cost(s, SIM_LOCAL, r->rank, op, 0));
	} else if (cause == SIM_NIC) {
		sum->gap_ps += spend(&remaining, p->gap_ps);
		sum->byte_ps += spend(&remaining, sim_byte_cost(p->gap_byte, op->bytes));
	} else if (s->config.params.model == SIM_ATLAHS) {
		sum->overhead_ps += spend(&remaining, p->overhead_ps);
		sum->overhead_byte_ps +=
			spend(&remaining, sim_byte_cost(p->overhead_byte, op->bytes));
		if (r->kind == SIM_RECEIVE)
			sum->gap_ps += spend(&remaining, p->gap_ps);
		if (cause == SIM_WIRE) {
			sum->latency_ps += spend(&remaining, p->latency_ps);
			sum->byte_ps += spend(&remaining, sim_byte_cost(p->gap_byte, op->bytes));
		}
	} else if (is_node) {
		uint64_t rest = sim_cost(s, r->kind, r->rank, op, r->others) - node->overhead_ps;

		sum->overhead_ps += spend(&remaining, node->overhead_ps);
		sum->byte_ps += spend(&remaining, rest);
		if (cause == SIM_WIRE)
			sum->latency_ps += spend(&remaining, node->latency_ps);
	} else {
		uint64_t rest = sim_cost(s, r->kind, r->rank, op, 0) - p->overhead_ps;

		sum->overhead_ps += spend(&remaining, p->overhead_ps);
		if (cause == SIM_WIRE)
			sum->latency_ps += spend(&remaining, p->latency_ps);
		else if (rest > sim_byte_cost(p->overhead_byte, op->bytes))
			sum->byte_ps += spend(&remaining, rest);
		else
			sum->overhead_byte_ps += spend(&remaining, rest);
	}
	if (s->detours.count)
		sum->noise_ps += spend(&remaining, noise_of(s, r, op));
	sum->other_ps += remaining;
	sum->messages += r->kind == SIM_SEND && cause == SIM_WIRE;
}

static uint32_t last_record(const struct sim *s)
{
	const struct sim_cpu *cpu = &sim_rank_of(s, s->stats.last_rank)->unit.cpu;
	const struct sim_neighbour *n =
		s->neighbours ? &s->neighbours[s->stats.last_rank] : NULL;

	return n && n->sent_until > cpu->free ? n->sent_last : cpu->last;
}

void sim_path(const struct sim *s, void (*visit)(void *ctx, const struct sim_step *step), void *ctx,
	      struct sim_path_sum *sum)
{
	struct sim_path_sum total = { .total_ps = s->stats.end_ps };
	uint64_t until = s->stats.end_ps;
	enum sim_cause cause = SIM_CPU;
	const struct sim_record *r;

	for (uint32_t i = last_record(s); (r = record_of(&s->log, i)); i = r->from) {
		struct sim_step step;

		fill_step(s, r, &step);
		if (visit)
			visit(ctx, &step);
		account(s, r, until, cause, &total);
		total.steps++;
		until = r->begin;
		cause = r->cause;
	}
	total.before_ps = until;
	if (sum)
		*sum = total;
}
