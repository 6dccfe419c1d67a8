/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between ranks of one node, and local operations there, as sched/ executes them: a short
 * message is copied into a record by the sender and out of it by the receiver; a longer one is
 * announced, and copied once when its receive is posted. How long that takes was measured, by
 * length, with one message at a time and with one to each CPU at once.
 *
 * A schedule finds in the caches what its ranks have left there: bytes cost at least what they cost
 * where the measured schedule touched as much memory as this one. What an operation has just
 * written is near for one that requires it: half of that one's bytes cost what was measured.
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

/* ---- memory that a schedule touches ------------------------------------------------------- */

static uint64_t sum(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

static void touch(uint64_t *touched, uint32_t mem, uint64_t bytes)
{
	if (mem < GOAL_SPACES_MAX)
		touched[mem] = sum(touched[mem], bytes);
}

/* Each byte of a space counts once: at most what lies up to the last one. */
static uint64_t footprint_of(const struct goal_block *b)
{
	uint64_t touched[GOAL_SPACES_MAX] = { 0 }, extents[GOAL_SPACES_MAX], all = 0;
	const struct goal_segment *l = goal_segments(b);

	goal_extents(b, extents);
	for (uint32_t i = 0; i < b->op_count; i++) {
		const struct goal_op *op = &goal_ops_const(b)[i];
		bool is_local = op->type == GOAL_COPY || goal_is_arithmetic(op);

		if (is_local || (goal_is_transfer(op) && !op->segment_count))
			touch(touched, op->mem, op->bytes);
		if (is_local)
			touch(touched, op->src_mem, op->bytes);
		if (goal_is_arithmetic(op))
			touch(touched, op->src2_mem, op->bytes);
	}
	for (uint32_t k = 0; k < b->segment_count; k++)
		touch(touched, l[k].mem, l[k].bytes);
	for (uint32_t m = 0; m < GOAL_SPACES_MAX; m++)
		all = sum(all, touched[m] < extents[m] ? touched[m] : extents[m]);
	return all;
}

/* The first rank of the node of `rank` keeps the sum of all. */
static uint64_t *footprint_at(const struct sim *s, uint32_t rank)
{
	return &s->neighbours[rank / s->config.params.node.ranks * s->config.params.node.ranks]
			.footprint;
}

void sim_node_add(struct sim *s, uint32_t rank, const struct goal_block *b)
{
	uint64_t *all;

	if (!s->neighbours)
		return;
	all = footprint_at(s, rank);
	*all = sum(*all, footprint_of(b));
}

/* Returns: what the bytes of an operation cost. column: of struct sim_node_row. */
static uint64_t cost_of(const struct sim *s, uint32_t rank, const struct sim_op *op,
			unsigned column)
{
	uint64_t bytes = op->bytes;
	const struct sim_node *n = &s->config.params.node;
	/* buffers of a row's length in the schedules that were measured */
	const uint64_t buffers[SIM_NODE_COLUMNS] = { 2, 2 * n->cpus, 2 * n->cpus, 3 * n->cpus };
	uint64_t as = *footprint_at(s, rank) / buffers[column],
		 cost = between_rows(n, bytes, column), far;

	if (as <= bytes)
		return cost;
	far = (uint64_t)((unsigned __int128)between_rows(n, as, column) * bytes / as);
	if (far <= cost)
		return cost;
	return op->is_fresh ? cost + (far - cost) / 2 : far;
}

/* ---- costs -------------------------------------------------------------------------------- */

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

uint64_t sim_node_receive(const struct sim *s, uint32_t rank, const struct sim_op *send,
			  uint16_t others)
{
	const struct sim_node *n = &s->config.params.node;
	uint64_t bytes = send->bytes, alone = cost_of(s, rank, send, SIM_NODE_ALONE),
		 together = cost_of(s, rank, send, SIM_NODE_TOGETHER),
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

uint64_t sim_node_local(const struct sim *s, uint32_t rank, const struct sim_op *op)
{
	return cost_of(s, rank, op, op->type == GOAL_COPY ? SIM_NODE_COPY : SIM_NODE_ADD);
}

uint16_t sim_node_others(const struct sim *s, uint32_t rank, uint64_t now)
{
	uint32_t ranks = s->config.params.node.ranks, first = rank / ranks * ranks, others = 0;

	for (uint32_t r = first; r < s->config.ranks && r - first < ranks; r++)
		others += r != rank && s->neighbours[r].copying_until > now;
	return (uint16_t)(others < SIM_NODE_ANNOUNCED ? others : SIM_NODE_ANNOUNCED - 1);
}
