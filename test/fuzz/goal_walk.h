/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The strictest interpreter of a block that goal_verify() has accepted: it checks every index;
 * every operation must start once, and all must end.
 */
#ifndef SLUICE_TEST_GOAL_WALK_H
#define SLUICE_TEST_GOAL_WALK_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "goal/goal.h"

static inline bool goal_walk_inside(const struct goal_limits *l, uint32_t mem, uint64_t off,
				    uint64_t bytes)
{
	return mem < l->mems && bytes <= l->mem_bytes[mem] && off <= l->mem_bytes[mem] - bytes;
}

/* dst and a source are equal or disjoint. */
static inline bool goal_walk_apart(uint32_t mem_a, uint64_t a, uint32_t mem_b, uint64_t b,
				   uint64_t bytes)
{
	return mem_a != mem_b || a == b || a + bytes <= b || b + bytes <= a;
}

static inline const char *goal_walk_list(const struct goal_block *b, const struct goal_op *op,
					 const struct goal_limits *l)
{
	uint64_t sum = 0;

	if ((uint64_t)op->segment + op->segment_count > b->segment_count)
		return "pieces outside of the block";
	for (uint32_t k = 0; k < op->segment_count; k++) {
		const struct goal_segment *s = &goal_segments(b)[op->segment + k];

		if (!goal_walk_inside(l, s->mem, s->off, s->bytes))
			return "a piece outside of its space";
		if (__builtin_add_overflow(sum, s->bytes, &sum))
			return "a list without end";
	}
	return sum == op->bytes ? NULL : "a list of other pieces";
}

static inline const char *goal_walk_transfer(const struct goal_block *b, const struct goal_op *op,
					     const struct goal_limits *l)
{
	bool is_recv = op->type == GOAL_RECV;

	if (op->peer >= l->ranks && !(is_recv && op->peer == GOAL_ANY))
		return "a peer outside of the group";
	if (is_recv && op->match >= b->recv_count)
		return "a receive without a number";
	if (!is_recv && op->tag == GOAL_ANY)
		return "a send under any tag";
	if (op->segment_count)
		return goal_walk_list(b, op, l);
	if (op->mem == GOAL_NOWHERE && l->nowhere)
		return NULL;
	return goal_walk_inside(l, op->mem, op->off, op->bytes) ? NULL :
								  "memory outside of its space";
}

static inline const char *goal_walk_local(const struct goal_op *op, const struct goal_limits *l)
{
	bool two = goal_is_arithmetic(op);

	if (op->type == GOAL_NOP || op->type == GOAL_CALC)
		return NULL;
	if (!goal_walk_inside(l, op->mem, op->off, op->bytes))
		return "memory outside of its space";
	if (op->type == GOAL_STAMP)
		return op->bytes == 8 ? NULL : "a time stamp that is not one";
	if (!goal_walk_inside(l, op->src_mem, op->src_off, op->bytes) ||
	    (two && !goal_walk_inside(l, op->src2_mem, op->src2_off, op->bytes)))
		return "a source outside of its space";
	if (!goal_walk_apart(op->mem, op->off, op->src_mem, op->src_off, op->bytes) ||
	    (two && !goal_walk_apart(op->mem, op->off, op->src2_mem, op->src2_off, op->bytes)))
		return "a source that is overwritten";
	if (two && (!goal_dtype_bytes(op->dtype) || op->bytes % goal_dtype_bytes(op->dtype)))
		return "a part of an element";
	return NULL;
}

static inline const char *goal_walk_one_sided(const struct goal_op *op, const struct goal_limits *l)
{
	bool append = op->type == GOAL_APPEND || op->type == GOAL_TAPPEND;

	if (!l->nowhere || op->mem != GOAL_NOWHERE)
		return "a one-sided operation where it would run";
	if (op->type == GOAL_TEST)
		return op->when ? NULL : "a test of nothing";
	if (op->peer >= l->ranks && !(append && op->peer == GOAL_ANY))
		return "a peer outside of the group";
	return append || op->tag != GOAL_ANY ? NULL : "a put under any tag";
}

static inline const char *goal_walk_op(const struct goal_block *b, uint32_t i,
				       const struct goal_limits *l)
{
	const struct goal_op *op = &goal_ops_const(b)[i];

	if (op->type >= GOAL_TYPES)
		return "a type that there is not";
	if ((uint64_t)op->next + op->next_count > b->adjacency_count ||
	    (uint64_t)op->inext + op->inext_count > b->adjacency_count)
		return "a list outside of the block";
	if (goal_is_one_sided(op))
		return goal_walk_one_sided(op, l);
	return goal_is_transfer(op) ? goal_walk_transfer(b, op, l) : goal_walk_local(op, l);
}

static inline const char *goal_walk_release(const struct goal_block *b, uint32_t *waits,
					    uint32_t first, uint32_t count)
{
	for (uint32_t k = 0; k < count; k++) {
		uint32_t next = goal_adjacency(b)[first + k];

		if (next >= b->op_count)
			return "an operation that there is not";
		if (!waits[next] || waits[next] == UINT32_MAX)
			return "an operation that is released too often";
		waits[next]--;
	}
	return NULL;
}

static inline const char *goal_walk_run(const struct goal_block *b, uint32_t *waits, uint8_t *used)
{
	const struct goal_op *ops = goal_ops_const(b);
	const char *wrong = NULL;
	uint32_t done = 0;

	for (uint32_t i = 0; i < b->op_count; i++) {
		waits[i] = ops[i].requires;
		if (ops[i].type == GOAL_RECV && used[ops[i].match]++)
			return "two receives of one number";
	}
	for (uint32_t round = 0; round <= b->op_count && done < b->op_count; round++) {
		for (uint32_t i = 0; i < b->op_count && !wrong; i++) {
			if (waits[i])
				continue;
			waits[i] = UINT32_MAX; /* started */
			done++;
			wrong = goal_walk_release(b, waits, ops[i].inext, ops[i].inext_count);
			if (!wrong)
				wrong = goal_walk_release(b, waits, ops[i].next, ops[i].next_count);
		}
	}
	return wrong ? wrong : done == b->op_count ? NULL : "operations that never start";
}

/* Returns: NULL, or the mistake of the accepted block. */
static inline const char *goal_walk(const struct goal_block *b, size_t bytes,
				    const struct goal_limits *l)
{
	const char *wrong = NULL;
	uint32_t *waits;
	uint8_t *used;

	if (b->bytes > bytes || b->scratch_bytes > l->mem_bytes[GOAL_SCRATCH] ||
	    (const char *)(goal_segments(b) + b->segment_count) > (const char *)b + bytes)
		return "parts outside of the block";
	for (uint32_t i = 0; i < b->op_count && !wrong; i++)
		wrong = goal_walk_op(b, i, l);
	if (wrong)
		return wrong;
	waits = calloc(b->op_count + 1u, sizeof *waits);
	used = calloc(b->recv_count + 1u, 1);
	wrong = waits && used ? goal_walk_run(b, waits, used) : NULL;
	free(waits);
	free(used);
	return wrong;
}

#endif
