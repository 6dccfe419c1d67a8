/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Look-ups at every use of a buffer and in every hook, without the lock, which costs two system
 * calls. The table may change while it is read; the result counts only if the version shows that no
 * thread has held the lock meanwhile. A pin is added first and the version checked afterwards:
 * either the holder of the lock sees the pin, or this thread sees the version.
 */
#include "region/private.h"

/* The reads may race with writes under the lock; a result that raced is not used. */
#if defined(__SANITIZE_THREAD__)
#define RACY __attribute__((no_sanitize_thread, noinline))
#else
#define RACY
#endif

static uint32_t peek_begin(void)
{
	return atomic_load_explicit(&region_version,
				    memory_order_acquire); /* partner: region_unlock */
}

static bool peek_is_valid(uint32_t version)
{
	region_fence(); /* partner: region_lock */
	return !(version & 1) &&
	       atomic_load_explicit(&region_version, memory_order_seq_cst) == version;
}

/* The first region that ends above addr. The table's memory is never unmapped. */
RACY static bool peek_find(uintptr_t addr, struct region *out)
{
	const volatile struct region *at = *(struct region *volatile *)&region_table.at;
	uint32_t n = *(volatile uint32_t *)&region_table.n, lo = 0, hi = base_min_u64(n, TABLE_MAX);

	if (!at)
		return false;
	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (at[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo >= n || lo >= TABLE_MAX)
		return false;
	at += lo;
	*out = (struct region){ .start = at->start,
				.end = at->end,
				.first = at->first,
				.last = at->last,
				.offset = at->offset,
				.inode = at->inode,
				.id = at->id,
				.ticket = at->ticket,
				.state = at->state,
				.suspect = at->suspect };
	return true;
}

bool peek_overlaps(uintptr_t start, uintptr_t end)
{
	uint32_t version = peek_begin();
	struct region r;
	bool any = peek_find(start, &r) && r.start < end;

	return any || !peek_is_valid(version);
}

bool peek_covers(uintptr_t start, uintptr_t end)
{
	uint32_t version = peek_begin();
	struct region r;

	return peek_find(start, &r) && r.start <= start && r.end >= end &&
	       r.state == REGION_ACTIVE && peek_is_valid(version);
}

uint64_t peek_prefix(uintptr_t start, uintptr_t end)
{
	struct region r;

	return peek_find(start, &r) && r.start <= start && r.end < end ? r.end - start : 0;
}

/* A thread is about to fork: no region may be pinned. */
RACY static bool is_forking(void) { return *(volatile int *)&region_table.forks; }

bool peek_region(uintptr_t start, uintptr_t end, struct region *out)
{
	uint32_t version = peek_begin();

	if (!peek_find(start, out) || out->start > start || out->end < end ||
	    out->state != REGION_ACTIVE || out->ticket || out->suspect || is_forking() ||
	    !peek_is_valid(version) || !pins_add(out->id))
		return false;
	if (peek_is_valid(version) &&
	    (!os_vma_query_is_cheap() || ends_is_mapped(out, start, end)))
		return true;
	pins_release(out->id);
	return false;
}
