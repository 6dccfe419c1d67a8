/* SPDX-License-Identifier: BSD-3-Clause */
/* Claiming and completing. Nothing but atomics, so that tests can run every interleaving of it. */
#include "xfer/xfer.h"

void xfer_open(struct xfer *x, uint64_t tag)
{
	atomic_store_explicit(&x->consumed, xfer_word(tag, 0), memory_order_relaxed);
	atomic_store_explicit(&x->failed, 0, memory_order_relaxed);
	atomic_store_explicit(&x->repaired, 0, memory_order_relaxed);
	/* before cursor: a fragment can be completed as soon as it can be claimed */
	atomic_store_explicit(&x->done, xfer_word(tag, 0), memory_order_relaxed);
	atomic_store_explicit(&x->cursor, xfer_word(tag, 0), memory_order_release); /* partner: claim */
}

uint64_t xfer_claim(struct xfer *x, uint64_t tag, uint64_t fragments)
{
	uint64_t word = atomic_load_explicit(&x->cursor, memory_order_relaxed);

	while (xfer_is_tag(word, tag) && (word & XFER_VALUE_MASK) < fragments)
		if (atomic_compare_exchange_weak_explicit(&x->cursor, &word, word + 1, memory_order_acq_rel,
							  memory_order_relaxed))
			return word & XFER_VALUE_MASK;
	return XFER_NONE;
}

bool xfer_complete(struct xfer *x, uint64_t tag, uint64_t units, uint64_t total)
{
	/* release: my bytes are seen by whoever sees the total; acquire: the last one speaks for all */
	uint64_t word = atomic_fetch_add_explicit(&x->done, units, memory_order_acq_rel);

	return (word & XFER_VALUE_MASK) + units == total;
}

bool xfer_is_done(struct xfer *x, uint64_t tag, uint64_t total)
{
	uint64_t word = atomic_load_explicit(&x->done, memory_order_acquire);

	return !xfer_is_tag(word, tag) || (word & XFER_VALUE_MASK) == total;
}

bool xfer_is_claimed_up(struct xfer *x, uint64_t tag, uint64_t fragments)
{
	uint64_t word = atomic_load_explicit(&x->cursor, memory_order_relaxed);

	return !xfer_is_tag(word, tag) || (word & XFER_VALUE_MASK) >= fragments;
}
