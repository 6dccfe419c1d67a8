/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The results of the last early returns of each call site. After an early return that was not worth
 * its cost, 4 calls complete before they return; 8 after the next such early return, and so on up
 * to 1024. An early return that was worth its cost resets the back-off. A lost update costs time
 * only.
 */
#include "policy/policy.h"

enum { SITES = 512, PROBES = 8, BACKOFF_MIN = 4, BACKOFF_MAX = 1024 };

static struct policy_site sites[SITES];

struct policy_site *policy_site(const void *address, bool is_root, uint64_t bytes)
{
	/* sizes of one power of two behave alike */
	uintptr_t key = ((uintptr_t)address << 7 |
			 (uintptr_t)(63 - __builtin_clzll(bytes | 1)) << 1 | is_root) |
			1ull << 63;
	uintptr_t at = key * 0x9e3779b97f4a7c15ull >> 40;

	for (int i = 0; i < PROBES; i++) {
		struct policy_site *s = &sites[(at + (uintptr_t)i) % SITES];
		uintptr_t none = 0;

		if (atomic_load_explicit(&s->key, memory_order_relaxed) == key ||
		    atomic_compare_exchange_strong_explicit(
			    &s->key, &none, key, memory_order_relaxed, memory_order_relaxed) ||
		    none == key)
			return s;
	}
	return &sites[at % SITES];
}

bool policy_site_may_try(struct policy_site *s) { return backoff_is_due(&s->backoff); }

void policy_site_learn(struct policy_site *s, uint64_t free_ns, uint64_t cost_ns)
{
	uint32_t interval;

	if (policy_was_worth(free_ns, cost_ns)) {
		backoff_set(&s->backoff, 0);
		return;
	}
	interval = backoff_longer(backoff_interval(&s->backoff), BACKOFF_MIN, BACKOFF_MAX);
	backoff_set(&s->backoff, interval);
	backoff_skip(&s->backoff, interval);
}
