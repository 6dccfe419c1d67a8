/* SPDX-License-Identifier: BSD-3-Clause */
/* The queue of a channel, described in sw.h. test/unit/test_engine_queue.c runs it in every
 * interleaving. */
#include <errno.h>

#include "engine/sw/sw.h"

void sw_queue_init(struct sw_queue *q, uint64_t slots)
{
	atomic_store_explicit(&q->ready, 0, memory_order_relaxed);
	atomic_store_explicit(&q->post_next, 0, memory_order_relaxed);
	atomic_store_explicit(&q->claim_next, 0, memory_order_relaxed);
	/* release: the stores above; partner: sw_queue_post */
	atomic_store_explicit(&q->free, slots, memory_order_release);
}

/* Returns: the first set bit at or after `from`, cyclically. */
static int pick(uint64_t mask, uint32_t from)
{
	uint64_t above = mask >> from << from;

	return __builtin_ctzll(above ? above : mask);
}

int sw_queue_post(struct sw_queue *q, struct engine_copy *c)
{
	uint64_t free = atomic_load_explicit(&q->free, memory_order_relaxed);
	uint32_t from = atomic_load_explicit(&q->post_next, memory_order_relaxed);
	int slot;

	do {
		if (free & SW_QUEUE_CLOSED)
			return -ESHUTDOWN;
		if (!free)
			return -EAGAIN;
		slot = pick(free, from);
		/* acquire: the last taker is done with the slot; partner: sw_queue_release */
	} while (!atomic_compare_exchange_weak_explicit(
		&q->free, &free, free & ~((uint64_t)1 << slot), memory_order_acquire,
		memory_order_relaxed));
	atomic_store_explicit(&q->post_next, (uint32_t)(slot + 1) % SW_DEPTH, memory_order_relaxed);
	atomic_store_explicit(&q->slots[slot], (uintptr_t)c, memory_order_relaxed);
	/* release: item and slot; partner: sw_queue_claim */
	atomic_fetch_or_explicit(&q->ready, (uint64_t)1 << slot, memory_order_release);
	return 0;
}

struct engine_copy *sw_queue_claim(struct sw_queue *q, int *out_slot)
{
	uint64_t ready = atomic_load_explicit(&q->ready, memory_order_relaxed);
	uint32_t from;
	int slot;

	if (!ready)
		return NULL;
	from = atomic_load_explicit(&q->claim_next, memory_order_relaxed);
	do {
		if (!ready)
			return NULL;
		slot = pick(ready, from);
		/* acquire: item and slot; partner: sw_queue_post */
	} while (!atomic_compare_exchange_weak_explicit(
		&q->ready, &ready, ready & ~((uint64_t)1 << slot), memory_order_acquire,
		memory_order_relaxed));
	atomic_store_explicit(&q->claim_next, (uint32_t)(slot + 1) % SW_DEPTH,
			      memory_order_relaxed);
	*out_slot = slot;
	return (struct engine_copy *)atomic_load_explicit(&q->slots[slot], memory_order_relaxed);
}

static bool is_in(struct sw_queue *q, int slot, const void *from, size_t bytes)
{
	return atomic_load_explicit(&q->slots[slot], memory_order_relaxed) - (uintptr_t)from <
	       bytes;
}

struct engine_copy *sw_queue_claim_in(struct sw_queue *q, const void *from, size_t bytes,
				      int *out_slot)
{
	/* acquire: item and slot; partner: sw_queue_post */
	uint64_t ready = atomic_load_explicit(&q->ready, memory_order_acquire);

	for (; ready; ready &= ready - 1) {
		uint64_t bit = ready & -ready;
		int slot = __builtin_ctzll(bit);

		if (!is_in(q, slot, from, bytes) ||
		    !(atomic_fetch_and_explicit(&q->ready, ~bit, memory_order_acquire) & bit))
			continue;
		if (is_in(q, slot, from, bytes)) {
			*out_slot = slot;
			return (struct engine_copy *)atomic_load_explicit(&q->slots[slot],
									  memory_order_relaxed);
		}
		/* another item had come into the slot; release as in sw_queue_post */
		atomic_fetch_or_explicit(&q->ready, bit, memory_order_release);
	}
	return NULL;
}

void sw_queue_release(struct sw_queue *q, int slot)
{
	/* release: partners: sw_queue_post, sw_queue_is_drained */
	atomic_fetch_or_explicit(&q->free, (uint64_t)1 << slot, memory_order_release);
}

void sw_queue_close(struct sw_queue *q)
{
	atomic_fetch_or_explicit(&q->free, SW_QUEUE_CLOSED, memory_order_relaxed);
}

bool sw_queue_is_drained(struct sw_queue *q, uint64_t slots)
{
	return atomic_load_explicit(&q->free, memory_order_acquire) == (slots | SW_QUEUE_CLOSED);
}
