/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between ranks of one node, and local operations there, as sched/ executes them: a short
 * message is copied into a record by the sender and out of it by the receiver; a longer one is
 * announced, and copied once when its receive is posted. How long that takes was measured, by
 * length, with one message at a time and with one to each CPU at once.
 */
#include "private.h"

bool sim_is_node(const struct sim *s, uint32_t rank, uint32_t peer)
{
	uint32_t ranks = s->config.params.node.ranks;

	return ranks && rank / ranks == peer / ranks;
}

/* Linear between rows; beyond the last one in proportion. column: of struct sim_node_row. */
static uint64_t between_rows(const struct sim_node *n, uint64_t bytes, unsigned column)
{
	const struct sim_node_row *row = n->rows, *last = n->rows + n->row_count - 1;
	unsigned __int128 ps;

	if (bytes <= row->bytes)
		return row->ps[column];
	while (row < last && row[1].bytes < bytes)
		row++;
	if (row == last) {
		ps = (unsigned __int128)last->ps[column] * bytes / last->bytes;
		return ps > SIM_TIME_MAX ? SIM_TIME_MAX : (uint64_t)ps;
	}
	ps = (unsigned __int128)row[1].ps[column] * (bytes - row->bytes) +
	     (unsigned __int128)row->ps[column] * (row[1].bytes - bytes);
	return (uint64_t)(ps / (row[1].bytes - row->bytes));
}

/* Returns: the cost of a short message's bytes for its sender, and for its receiver. */
static uint64_t record_copy(const struct sim_node *n, uint64_t bytes)
{
	uint64_t all = between_rows(n, bytes, SIM_NODE_ALONE);

	return all > n->rows->ps[SIM_NODE_ALONE] ? (all - n->rows->ps[SIM_NODE_ALONE]) / 2 : 0;
}

uint64_t sim_node_send(const struct sim *s, uint64_t bytes)
{
	const struct sim_node *n = &s->config.params.node;

	return n->overhead_ps + (bytes <= n->eager_bytes ? record_copy(n, bytes) : 0);
}

uint64_t sim_node_receive(const struct sim *s, uint64_t bytes, uint16_t others)
{
	const struct sim_node *n = &s->config.params.node;
	uint64_t alone = between_rows(n, bytes, SIM_NODE_ALONE),
		 together = between_rows(n, bytes, SIM_NODE_TOGETHER),
		 before = n->overhead_ps + n->latency_ps;
	unsigned __int128 all;

	if (others == SIM_NODE_ANNOUNCED)
		return n->overhead_ps;
	if (bytes <= n->eager_bytes)
		return n->overhead_ps + record_copy(n, bytes);
	all = alone;
	if (together > alone && n->cpus > 1)
		all += (unsigned __int128)(together - alone) * others / (n->cpus - 1);
	if (all > SIM_TIME_MAX)
		return SIM_TIME_MAX;
	return (uint64_t)all > before + n->overhead_ps ? (uint64_t)all - before : n->overhead_ps;
}

uint64_t sim_node_local(const struct sim *s, const struct sim_op *op)
{
	return between_rows(&s->config.params.node, op->bytes,
			    op->type == GOAL_COPY ? SIM_NODE_COPY : SIM_NODE_ADD);
}

uint16_t sim_node_others(const struct sim *s, uint32_t rank, uint64_t now)
{
	uint32_t ranks = s->config.params.node.ranks, first = rank / ranks * ranks, others = 0;

	for (uint32_t r = first; r < s->config.ranks && r - first < ranks; r++)
		others += r != rank && s->neighbours[r].copying_until > now;
	return (uint16_t)(others < SIM_NODE_ANNOUNCED ? others : SIM_NODE_ANNOUNCED - 1);
}
