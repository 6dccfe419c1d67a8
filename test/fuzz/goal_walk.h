/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an interpreter may do with a block that goal_verify() has accepted, done as strictly as can
 * be: every index is checked, every operation must start once, and all must end.
 */
#ifndef SLUICE_TEST_GOAL_WALK_H
#define SLUICE_TEST_GOAL_WALK_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "goal/goal.h"

/* NULL, or what is wrong with the accepted block. */
static inline const char *goal_walk_op(const struct goal_block *b, uint32_t i, uint32_t ranks,
				       const uint64_t *mem_bytes)
{
	const struct goal_op *op = &goal_ops_const(b)[i];

	if (op->type >= GOAL_TYPES)
		return "a type that there is not";
	if (op->type != GOAL_COPY && op->peer >= ranks)
		return "a peer outside of the group";
	if (op->mem >= GOAL_MEMS || op->bytes > mem_bytes[op->mem] ||
	    op->off > mem_bytes[op->mem] - op->bytes)
		return "memory outside of its space";
	if (op->type == GOAL_COPY &&
	    (op->src_mem >= GOAL_MEMS || op->bytes > mem_bytes[op->src_mem] ||
	     op->src_off > mem_bytes[op->src_mem] - op->bytes))
		return "a source outside of its space";
	if (op->type == GOAL_RECV && op->match >= b->recv_count)
		return "a receive without a transfer";
	if ((uint64_t)op->next + op->next_count > b->adjacency_count)
		return "a list outside of the block";
	return NULL;
}

static inline const char *goal_walk_run(const struct goal_block *b, uint32_t *waits, uint8_t *used)
{
	const struct goal_op *ops = goal_ops_const(b);
	uint32_t done = 0;

	for (uint32_t i = 0; i < b->op_count; i++) {
		waits[i] = ops[i].requires;
		if (ops[i].type == GOAL_RECV && used[ops[i].match]++)
			return "two receives of one number";
	}
	for (uint32_t round = 0; round <= b->op_count && done < b->op_count; round++) {
		for (uint32_t i = 0; i < b->op_count; i++) {
			if (waits[i])
				continue;
			waits[i] = UINT32_MAX; /* started */
			done++;
			for (uint32_t k = 0; k < ops[i].next_count; k++) {
				uint32_t next = goal_adjacency(b)[ops[i].next + k];

				if (next >= b->op_count)
					return "an operation that there is not";
				if (!waits[next] || waits[next] == UINT32_MAX)
					return "an operation that is released too often";
				waits[next]--;
			}
		}
	}
	return done == b->op_count ? NULL : "operations that never start";
}

static inline const char *goal_walk(const struct goal_block *b, size_t bytes, uint32_t ranks,
				    const uint64_t *mem_bytes)
{
	const char *wrong = NULL;
	uint32_t *waits;
	uint8_t *used;

	if (b->bytes > bytes || b->adjacency_off > bytes || b->adjacency_off % sizeof(uint32_t) ||
	    (bytes - b->adjacency_off) / sizeof(uint32_t) < b->adjacency_count ||
	    (bytes - sizeof *b) / sizeof(struct goal_op) < b->op_count)
		return "parts outside of the block";
	for (uint32_t i = 0; i < b->op_count && !wrong; i++)
		wrong = goal_walk_op(b, i, ranks, mem_bytes);
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
