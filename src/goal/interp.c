/* SPDX-License-Identifier: BSD-3-Clause */
#include "goal/interp.h"

void goal_state_init(const struct goal_block *b, struct goal_state *s)
{
	const struct goal_op *ops = goal_ops_const(b);

	atomic_store_explicit(&s->remaining, b->op_count, memory_order_relaxed);
	atomic_store_explicit(&s->freed, b->ready_count, memory_order_relaxed);
	atomic_store_explicit(&s->claimed, 0, memory_order_relaxed);
	for (uint32_t i = 0; i < b->op_count; i++) {
		atomic_store_explicit(&s->words[i], ops[i].requires, memory_order_relaxed);
		atomic_store_explicit(&s->words[(size_t)b->op_count + i],
				      i < b->ready_count ? i + 1 : 0, memory_order_relaxed);
	}
}
