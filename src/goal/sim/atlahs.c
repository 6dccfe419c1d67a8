/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving in the model of ATLAHS's LogGOPSim (spcl/atlahs, 2025), rule by rule, also where a rule
 * is surprising: results are to be equal to its own. What it shares with LogGOPSim is in run.c.
 */
#include "private.h"

/* The receive, or the message, that came second at `now` occupies CPU and NIC from now on. */
static void occupy(struct sim *s, uint32_t rank, struct sim_cpu *cpu, struct sim_nic *nic,
		       uint64_t nic_free, uint64_t now, uint64_t bytes)
{
	const struct sim_costs *p = sim_costs_of(s, bytes);

	nic->free_recv = sim_later(nic_free, now) + p->gap_ps;
	cpu->free = sim_occupy(s, rank, nic->free_recv,
			       p->overhead_ps + sim_byte_cost(p->overhead_byte, bytes));
}

/* A rendezvous ends at its sender with its receive, and occupies a CPU and a NIC there until then:
 * those of the operation that came second. */
static int end_at_sender(struct sim *s, uint32_t sender, const struct sim_op *send,
			 const struct sim_op *second, const struct sim_cpu *receiver,
			 const struct sim_nic *receiving)
{
	bool is_known = second->kind == SIM_SEND || second->peer != GOAL_ANY;
	struct sim_cpu *cpu = is_known ? sim_cpu_of(s, sender, second->cpu) : NULL;
	struct sim_nic *nic = is_known ? sim_nic_of(s, sender, second->nic) : NULL;

	s->stats.rendezvous++;
	if (cpu && cpu->free < receiver->free) {
		cpu->free = receiver->free;
		cpu->last = receiver->last;
	}
	if (nic && nic->free_send < receiving->free_recv) {
		nic->free_send = receiving->free_recv;
		nic->last_send = receiver->last;
	}
	return sim_end_op(s, 1, sender, send, receiver->free, receiver->last);
}

static int end_both(struct sim *s, uint32_t rank, const struct sim_op *recv,
		    const struct sim_cpu *cpu, uint32_t sender)
{
	int rc = sim_end_op(s, 0, rank, recv, cpu->free, cpu->last);

	return rc ? rc : sim_push_both(s, rank, sender);
}

/* A receive whose message has come takes it at once, also from a CPU that is busy, and after what
 * the NIC sends. */
int sim_atlahs_receive(struct sim *s, struct sim_event *e)
{
	const struct sim_op *op = sim_op_of(s, sim_rank_of(s, e->rank), e->op), *send;
	struct sim_cpu *cpu = sim_cpu_of(s, e->rank, op->cpu);
	struct sim_nic *nic = sim_nic_of(s, e->rank, op->nic);
	struct sim_event message = *e;
	struct sim_arrived a;
	int rc = sim_release(s, 0, e->rank, op, false, e->time, e->from);

	if (rc)
		return rc;
	if (!sim_match_arrived(s, e->rank, op, &a)) {
		rc = sim_post(s, e->rank, e->op, e->from);
		return rc ? rc : sim_push_freed(s, 0, e->rank);
	}
	s->stats.unexpected_ps += e->time - a.end;
	send = sim_op_of(s, sim_rank_of(s, a.rank), a.op);
	message.rank = a.rank;
	message.op = a.op;
	cpu->last = nic->last_recv = sim_log_add(&s->log, SIM_RECEIVE, &message, 0);
	occupy(s, e->rank, cpu, nic, nic->free_send, e->time, op->bytes);
	sim_watch(s, SIM_RECEIVE, e->rank, &message, a.rank, send, cpu->free);
	if (op->bytes > s->config.params.eager_bytes)
		rc = end_at_sender(s, a.rank, send, op, cpu, nic);
	return rc ? rc : end_both(s, e->rank, op, cpu, a.rank);
}

/* The CPU is that of the receive, the NIC that of the send. While one is busy both wait, the
 * receive behind others of its kind. */
int sim_atlahs_message(struct sim *s, struct sim_event *e)
{
	const struct sim_op *send = sim_op_of(s, sim_rank_of(s, e->rank), e->op), *recv;
	uint32_t rank = sim_peer(s, e->rank, send);
	struct sim_nic *nic = sim_nic_of(s, rank, send->nic);
	struct sim_posted posted;
	struct sim_cpu *cpu;
	int rc = 0;

	if (!sim_match_posted(s, rank, e->rank, send->tag, &posted))
		return sim_arrive(s, rank,
				  &(struct sim_arrived){ .rank = e->rank,
							 .op = e->op,
							 .end = e->time,
							 .from = e->from });
	recv = sim_op_of(s, sim_rank_of(s, rank), posted.op);
	cpu = sim_cpu_of(s, rank, recv->cpu);
	if (sim_later(cpu->free, nic->free_recv) > e->time) {
		e->time = sim_later(cpu->free, nic->free_recv);
		e->cause = cpu->free >= nic->free_recv ? SIM_CPU : SIM_NIC;
		e->from = cpu->free >= nic->free_recv ? cpu->last : nic->last_recv;
		rc = sim_post(s, rank, posted.op, posted.from);
		return rc ? rc : sim_queue_push(&s->queue, e);
	}
	cpu->last = nic->last_recv = sim_log_add(&s->log, SIM_RECEIVE, e, 0);
	occupy(s, rank, cpu, nic, nic->free_recv, e->time, send->bytes);
	sim_watch(s, SIM_RECEIVE, rank, e, e->rank, send, cpu->free);
	if (send->bytes > s->config.params.eager_bytes)
		rc = end_at_sender(s, e->rank, send, send, cpu, nic);
	return rc ? rc : end_both(s, rank, recv, cpu, e->rank);
}
