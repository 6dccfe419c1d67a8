/* SPDX-License-Identifier: BSD-3-Clause */
/* Claiming and completing units. Atomics only, so that tests can run every interleaving. */
#include "xfer/xfer.h"

void xfer_open(struct xfer *x, uint64_t tag)
{
	atomic_store_explicit(&x->consumed, xfer_word(tag, 0), memory_order_relaxed);
	atomic_store_explicit(&x->failed, 0, memory_order_relaxed);
	atomic_store_explicit(&x->repaired, 0, memory_order_relaxed);
	/* before `claimed`: a unit may be completed as soon as it can be claimed */
	atomic_store_explicit(&x->done, xfer_word(tag, 0), memory_order_relaxed);
	atomic_store_explicit(&x->claimed, xfer_word(tag, 0),
			      memory_order_release); /* partner: claim */
}

uint32_t xfer_claim(struct xfer *x, uint64_t tag, uint32_t units, uint32_t start)
{
	uint64_t word = atomic_load_explicit(&x->claimed, memory_order_relaxed);

	while (xfer_is_tag(word, tag)) {
		uint64_t free = ~word & xfer_bits(units), later = free >> start << start;
		uint32_t i;

		if (!free)
			break;
		i = (uint32_t)__builtin_ctzll(later ? later : free);
		if (atomic_compare_exchange_weak_explicit(&x->claimed, &word, word | xfer_bit(i),
							  memory_order_acq_rel,
							  memory_order_relaxed))
			return i;
	}
	return XFER_NONE;
}

uint32_t xfer_claim_marked(struct xfer *x, uint64_t tag, uint32_t units, _Atomic uint64_t *intent,
			   uint64_t name)
{
	uint64_t word = atomic_load_explicit(&x->claimed, memory_order_relaxed);

	while (xfer_is_tag(word, tag)) {
		uint64_t free = ~word & xfer_bits(units);
		uint32_t i;

		if (!free)
			break;
		i = (uint32_t)__builtin_ctzll(free);
		atomic_store_explicit(intent, name | i, memory_order_relaxed);
		/* release: a reader of the mark sees the intent; partner: was_claimed */
		if (atomic_compare_exchange_weak_explicit(
			    &x->claimed, &word, word | xfer_bit(i) | XFER_MARK,
			    memory_order_acq_rel, memory_order_relaxed))
			return i;
	}
	atomic_store_explicit(intent, 0, memory_order_relaxed);
	return XFER_NONE;
}

void xfer_unmark(struct xfer *x)
{
	/* release: the caller's record comes first; partner: was_claimed */
	atomic_fetch_and_explicit(&x->claimed, ~XFER_MARK, memory_order_release);
}

bool xfer_was_claimed(struct xfer *x, uint64_t tag, uint32_t unit)
{
	uint64_t word = atomic_load_explicit(&x->claimed, memory_order_acquire);

	if (!xfer_is_tag(word, tag) || !(word & XFER_MARK))
		return false;
	atomic_fetch_and_explicit(&x->claimed, ~XFER_MARK, memory_order_relaxed);
	return word & xfer_bit(unit);
}

void xfer_unclaim(struct xfer *x, uint32_t unit)
{
	/* release: this mover's stores come before those of the next claimer */
	atomic_fetch_and_explicit(&x->claimed, ~xfer_bit(unit),
				  memory_order_release); /* partner: claim */
}

bool xfer_complete(struct xfer *x, uint64_t bits, uint64_t total)
{
	/*
	 * release: a reader of the total sees this mover's bytes; acquire: the last mover has seen
	 * the bytes of all
	 */
	uint64_t word = atomic_fetch_or_explicit(&x->done, bits, memory_order_acq_rel);

	return (word & total) != total && ((word | bits) & total) == total;
}

bool xfer_is_done(struct xfer *x, uint64_t tag, uint64_t bits)
{
	uint64_t word = atomic_load_explicit(&x->done, memory_order_acquire);

	return !xfer_is_tag(word, tag) || (word & bits) == bits;
}

bool xfer_is_all_claimed(struct xfer *x, uint64_t tag, uint32_t units)
{
	uint64_t word = atomic_load_explicit(&x->claimed, memory_order_relaxed);

	return !xfer_is_tag(word, tag) || (word & xfer_bits(units)) == xfer_bits(units);
}
