/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a place in the program did with its buffers after the last early returns. A try that was not
 * worth its cost is followed by 4 calls that complete as usual, the next such by 8, and so on up to
 * 1024; one that was ends the doubt. All of it is a hint: a lost update costs time only.
 */
#include "rt/private.h"

enum { SITES = 512, PROBES = 8, BACKOFF_MIN = 4, BACKOFF_MAX = 1024 };

static struct site sites[SITES];

struct site *site_of(const void *address, bool is_root, uint64_t bytes)
{
	/* sizes of one power of two behave alike */
	uintptr_t key = ((uintptr_t)address << 7 |
			 (uintptr_t)(63 - __builtin_clzll(bytes | 1)) << 1 | is_root) |
			1ull << 63;
	uintptr_t at = key * 0x9e3779b97f4a7c15ull >> 40;

	for (int i = 0; i < PROBES; i++) {
		struct site *s = &sites[(at + (uintptr_t)i) % SITES];
		uintptr_t none = 0;

		if (atomic_load_explicit(&s->key, memory_order_relaxed) == key ||
		    atomic_compare_exchange_strong_explicit(
			    &s->key, &none, key, memory_order_relaxed, memory_order_relaxed) ||
		    none == key)
			return s;
	}
	return &sites[at % SITES];
}

bool site_may_try(struct site *s)
{
	uint32_t skip = atomic_load_explicit(&s->skip, memory_order_relaxed);

	if (!skip)
		return true;
	atomic_store_explicit(&s->skip, skip - 1, memory_order_relaxed);
	return false;
}

void site_learn(struct site *s, uint64_t free_ns, uint64_t cost_ns)
{
	uint32_t backoff = atomic_load_explicit(&s->backoff, memory_order_relaxed);

	atomic_fetch_add_explicit(&s->tries, 1, memory_order_relaxed);
	if (policy_was_worth(free_ns, cost_ns)) {
		atomic_fetch_add_explicit(&s->wins, 1, memory_order_relaxed);
		atomic_store_explicit(&s->backoff, 0, memory_order_relaxed);
		return;
	}
	backoff = backoff ? base_min_u64(backoff * 2, BACKOFF_MAX) : BACKOFF_MIN;
	atomic_store_explicit(&s->backoff, backoff, memory_order_relaxed);
	atomic_store_explicit(&s->skip, backoff, memory_order_relaxed);
}
