/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * backoff: fewer tries after failures. Each failure doubles the interval, up to a maximum.
 *
 * Context: any thread. All accesses are relaxed: a lost update costs time only.
 */
#ifndef SLUICE_BASE_BACKOFF_H
#define SLUICE_BASE_BACKOFF_H

#include "base/base.h"

/* Zeroed memory is the initial state: a try is due. */
struct backoff {
	_Atomic uint32_t interval;  /* 0: no failure so far, or since the last reset */
	_Atomic uint32_t remaining; /* calls to skip before the next try */
};

/* The interval that follows `interval`. */
static inline uint32_t backoff_longer(uint32_t interval, uint32_t first, uint32_t max)
{
	return interval ? (uint32_t)base_min_u64(2 * (uint64_t)interval, max) : first;
}

static inline uint32_t backoff_interval(const struct backoff *b)
{
	return atomic_load_explicit(&b->interval, memory_order_relaxed);
}

static inline void backoff_skip(struct backoff *b, uint32_t calls)
{
	atomic_store_explicit(&b->remaining, calls, memory_order_relaxed);
}

static inline void backoff_set(struct backoff *b, uint32_t interval)
{
	atomic_store_explicit(&b->interval, interval, memory_order_relaxed);
}

/* Counts a call. Returns: whether a try is due. */
static inline bool backoff_is_due(struct backoff *b)
{
	uint32_t remaining = atomic_load_explicit(&b->remaining, memory_order_relaxed);

	if (remaining)
		backoff_skip(b, remaining - 1);
	return !remaining;
}

#endif
