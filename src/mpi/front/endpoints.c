/* SPDX-License-Identifier: BSD-3-Clause */
/* The preloaded library's part of sluice/endpoints.h. */
#include <sched.h>
#include <stdatomic.h>

#include "os/endpoint.h"
#define SLUICE_STRONG /* defined here */
#include "sluice/endpoints.h"

/* Returns: the next rank of this address space at or after *i that has not ended, or NULL. */
static struct endpoint_rank *next_rank(uint32_t *i)
{
	struct endpoint_space *s = endpoint_space;
	uint32_t count = s ? atomic_load_explicit(&s->count, memory_order_acquire) : 0;

	while (*i < count) {
		struct endpoint_rank *r = &s->rank[(*i)++];

		if (atomic_load_explicit(&r->pid, memory_order_relaxed))
			return r;
	}
	return NULL;
}

static int here(int *ranks, int cap)
{
	struct endpoint_rank *r;
	int count = 0;

	for (uint32_t i = 0; (r = next_rank(&i));) {
		if (r == endpoint_image->entry)
			continue;
		if (count < cap)
			ranks[count] = r->rank;
		count++;
	}
	return count;
}

static void offer(void *pointer)
{
	if (endpoint_image)
		atomic_store_explicit(&endpoint_image->entry->offer, pointer, memory_order_release);
}

static void *pointer(int rank)
{
	struct endpoint_rank *r;

	for (uint32_t i = 0; rank >= 0 && (r = next_rank(&i));)
		if (r->rank == rank)
			return atomic_load_explicit(&r->offer, memory_order_acquire);
	return NULL;
}

__attribute__((visibility("default"))) const struct sluice_endpoints_calls *sluice_endpoints(void)
{
	static const struct sluice_endpoints_calls calls = {
		.here = here, .yield = sched_yield, .offer = offer, .pointer = pointer
	};

	return &calls;
}
