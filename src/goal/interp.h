/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The core of an interpreter: which operation may start now. Any number of threads, processes or
 * kernel contexts may run one schedule together; they share a goal_state and never wait for each
 * other.
 *
 *   goal_state_init                                  once, before the state is shared
 *   while ((op = goal_claim(b, s)) != GOAL_NONE)      each operation is handed out once
 *           start it; goal_begin(b, s, op)           those that required its beginning may start
 *           ... its effects are in place ...
 *           goal_end(b, s, op)                       those that required its end may start
 *
 * goal_claim() returns GOAL_NONE when it has returned all operations that may start, also while
 * some of them have not ended: the next operation then waits for a goal_begin() or goal_end(), or
 * all have ended. Of the goal_end() calls of a schedule exactly one returns true, and no thread
 * touches the state after it: the caller may reuse or free the state.
 *
 * An operation ends when its effects are in place; a send, when its memory may be written again.
 * Data written before goal_begin() or goal_end() is visible to the thread that takes an operation
 * that required it. goal_begin() precedes goal_end(); operations whose beginning nothing requires
 * need no goal_begin().
 *
 * The block must have been verified, in memory that cannot change. The state is not trusted with
 * memory safety: an index read from it is compared with the block's size, so that a member gone
 * wild can stop or spoil a schedule, and no more.
 */
#ifndef SLUICE_GOAL_INTERP_H
#define SLUICE_GOAL_INTERP_H

#include <stdatomic.h>

#include "goal/goal.h"

/* Aligned to 4 bytes. words: unmet requirements [op_count], then 1 + operation in the order in
 * which they became free to start [op_count]; 0: not written yet. */
struct goal_state {
	_Atomic uint32_t remaining; /* operations that have not ended */
	/* numbers of operations that were written as free, and handed out */
	_Atomic uint32_t freed, claimed;
	_Atomic uint32_t words[];
};

static inline uint64_t goal_state_bytes(uint32_t ops)
{
	return sizeof(struct goal_state) + 2 * (uint64_t)ops * sizeof(uint32_t);
}

/* Context: before the state is shared. */
void goal_state_init(const struct goal_block *b, struct goal_state *s);

static inline bool goal_is_complete(const struct goal_state *s)
{
	return !atomic_load_explicit(&s->remaining, memory_order_acquire); /* partner: goal_end */
}

/* Returns: an operation that may start, to exactly one caller; GOAL_NONE: none at present. */
static inline uint32_t goal_claim(const struct goal_block *b, struct goal_state *s)
{
	uint32_t at = atomic_load_explicit(&s->claimed, memory_order_relaxed), op;

	do {
		if (at >= b->op_count)
			return GOAL_NONE;
		/* partner: goal_release */
		op = atomic_load_explicit(&s->words[(size_t)b->op_count + at],
					  memory_order_acquire);
		if (!op || op > b->op_count)
			return GOAL_NONE;
	} while (!atomic_compare_exchange_weak_explicit(
		&s->claimed, &at, at + 1, memory_order_relaxed, memory_order_relaxed));
	return op - 1;
}

/* Meets one requirement of `op`; the last one frees it to start. */
static inline void goal_release(const struct goal_block *b, struct goal_state *s, uint32_t op)
{
	uint32_t at;

	/* release: results of this requirement; acquire: results of the others, for the next
	 * taker */
	if (atomic_fetch_add_explicit(&s->words[op], UINT32_MAX, memory_order_acq_rel) != 1)
		return;
	at = atomic_fetch_add_explicit(&s->freed, 1, memory_order_relaxed);
	if (at < b->op_count)
		atomic_store_explicit(&s->words[(size_t)b->op_count + at], op + 1,
				      memory_order_release); /* partner: goal_claim */
}

static inline void goal_begin(const struct goal_block *b, struct goal_state *s, uint32_t op)
{
	const struct goal_op *o = &goal_ops_const(b)[op];

	for (uint32_t k = 0; k < o->inext_count; k++)
		goal_release(b, s, goal_adjacency(b)[o->inext + k]);
}

/* Returns: true for exactly one operation of the schedule: all have ended. */
static inline bool goal_end(const struct goal_block *b, struct goal_state *s, uint32_t op)
{
	const struct goal_op *o = &goal_ops_const(b)[op];

	for (uint32_t k = 0; k < o->next_count; k++)
		goal_release(b, s, goal_adjacency(b)[o->next + k]);
	/* partner: itself, at the last operation; goal_is_complete */
	return atomic_fetch_add_explicit(&s->remaining, UINT32_MAX, memory_order_acq_rel) == 1;
}

#endif
