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

/* A table at one moment. */
struct view {
	const struct region_head *head; /* its memory is never unmapped */
	uint64_t version;
};

static struct view view_of(const struct region_head *head)
{
	/* acquire, partner: region_unlock */
	return (struct view){ head, atomic_load_explicit(&head->version, memory_order_acquire) };
}

RACY static struct view peek_begin(void)
{
	return view_of(*(struct region_head *volatile *)&region_table.head);
}

static bool peek_is_valid(const struct view *v)
{
	region_fence(); /* partner: region_lock */
	return !(v->version & 1) &&
	       atomic_load_explicit(&v->head->version, memory_order_seq_cst) == v->version;
}

/* The first region that ends above addr. */
RACY static bool peek_find(const struct view *v, uintptr_t addr, struct region *out)
{
	const volatile struct region *at = v->head->at;
	uint32_t n = *(const volatile uint32_t *)&v->head->n, lo = 0,
		 hi = base_min_u64(n, TABLE_MAX);

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
	struct view v = peek_begin();
	struct region r;
	bool any = peek_find(&v, start, &r) && r.start < end;

	return any || !peek_is_valid(&v);
}

bool peek_covers(uintptr_t start, uintptr_t end)
{
	struct view v = peek_begin();
	struct region r;

	return peek_find(&v, start, &r) && r.start <= start && r.end >= end &&
	       r.state == REGION_ACTIVE && peek_is_valid(&v);
}

bool region_may_hold(uintptr_t addr) { return peek_covers(addr, addr + 1); }

uint64_t peek_prefix(uintptr_t start, uintptr_t end)
{
	struct view v = peek_begin();
	struct region r;

	return peek_find(&v, start, &r) && r.start <= start && r.end < end ? r.end - start : 0;
}

/* A thread is about to fork: no region may be pinned. */
RACY static bool is_forking(void) { return *(volatile int *)&region_table.forks; }

bool peek_region(uintptr_t start, uintptr_t end, struct region *out)
{
	struct view v = peek_begin();

	if (!peek_find(&v, start, out) || out->start > start || out->end < end ||
	    out->state != REGION_ACTIVE || out->ticket || out->suspect || is_forking() ||
	    !peek_is_valid(&v) || !pins_add(out->id))
		return false;
	if (peek_is_valid(&v) &&
	    (!os_vma_query_is_cheap() || ends_is_mapped(out, start, end)))
		return true;
	pins_release(out->id);
	return false;
}

/* ---- the regions of a peer ---------------------------------------------------------------- */

#define TRIES 16 /* the owner holds its lock for a microsecond mostly */

static const struct region_head *head_of(const void *arena)
{
	return (const void *)((const char *)arena + OS_PAGE);
}

uint64_t region_peer_version(const void *arena)
{
	return atomic_load_explicit(&head_of(arena)->version, memory_order_relaxed);
}

bool region_peer_find(const void *arena, uintptr_t addr, struct region_range *out)
{
	const struct region_head *head = head_of(arena);
	struct region r;

	*out = (struct region_range){ .start = UINTPTR_MAX };
	for (int i = 0; i < TRIES; i++) {
		struct view v = view_of(head);
		bool any = !(v.version & 1) && peek_find(&v, addr, &r);

		if (!peek_is_valid(&v)) {
			os_cpu_relax();
			continue;
		}
		if (any)
			*out = (struct region_range){ .start = r.start,
						     .end = r.end,
						     .arena_off = r.offset,
						     .version = v.version,
						     .id = r.id };
		return any && r.start <= addr && r.state == REGION_ACTIVE && !r.ticket &&
		       !r.suspect;
	}
	return false;
}

/* Numbers are given under the lock, each after at most TABLE_MAX that are in use: the changes of so
 * many versions cannot have given all 2^32. */
#define VERSIONS_MAX 65536

bool region_peer_has(const void *arena, const struct region_range *s, uintptr_t start,
		     uintptr_t end)
{
	const struct region_head *head = head_of(arena);
	struct region_range now;

	region_fence(); /* the copy, then the version; partner: region_lock */
	if (atomic_load_explicit(&head->version, memory_order_seq_cst) == s->version)
		return true;
	return region_peer_find(arena, start, &now) && now.id == s->id && end <= now.end &&
	       now.version - s->version < VERSIONS_MAX &&
	       now.arena_off - now.start == s->arena_off - s->start;
}
