/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fork: parent and child both have the memory of this moment, and neither sees later stores of the
 * other. So every region becomes private in the parent first. A pinned region, which a transfer
 * uses, becomes private in the child, before fork() returns there.
 */

#include "region/private.h"

enum { PIN_WAITS = 200, PIN_WAIT_NS = 1000000 };

static bool has_pins(void)
{
	for (uint32_t i = 0; i < region_table.head->n; i++)
		if (pins_of(&region_table.head->at[i]) > region_table.head->at[i].has_gpu_pin)
			return true;
	return false;
}

/* A mapping of the arena by us, or of a region that the table has. */
static bool is_in_use(const struct os_vma *v)
{
	uintptr_t base = (uintptr_t)region_arena_base();
	uint32_t i = table_find(v->start);

	if (base && v->start < base + region_arena_bytes() && v->end > base)
		return true;
	if (arena_is_own_mapping_locked(v))
		return true;
	return i < region_table.head->n && region_table.head->at[i].start < v->end;
}

/*
 * Visits mappings of arena pages that the table does not have: moved by a raw system call, or, in a
 * child, all inherited ones. Shared ones become private; the table then has them as returned
 * regions.
 */
static bool collect(const struct os_vma *v, void *arg)
{
	struct region r = { .start = v->start,
			    .end = v->end,
			    .first = v->start,
			    .last = v->end,
			    .offset = v->offset,
			    .inode = v->inode,
			    .state = REGION_RETURNED,
			    .retired = true };
	bool copied;

	if (!arena_is_known(v) || is_in_use(v))
		return true;
	if (v->shared && pages_make_private(v->start, v->end - v->start, v->offset,
					    mapping_prot(v), NULL, &copied))
		base_log(BASE_LOG_ERROR, "region", "a forked child shares memory with its parent");
	if (region_table.head->n < TABLE_MAX)
		table_insert(&r);
	return true;
}

void fork_prepare(void)
{
	_Atomic uint32_t nobody = 0;
	bool alone;

	region_lock();
	region_table.forks++; /* no adoption and no pins from here on */
	region_unlock();
	region_before_change(0, UINTPTR_MAX);
	registered_ask(0, UINTPTR_MAX, REGISTERED_ASK);
	region_lock();
	for (int i = 0; i < PIN_WAITS && has_pins(); i++) {
		region_unlock();
		os_futex_wait(&nobody, 0, PIN_WAIT_NS); /* usleep would be a cancellation point */
		region_lock();
	}
	alone = table_is_unread();
	for (uint32_t i = region_table.head->n; i-- > 0;) {
		struct region *r = &region_table.head->at[i];

		if (pins_of(r))
			r->retired = true; /* the child reads its pages until it has copied them */
		else if (r->state != REGION_ACTIVE || r->ticket)
			continue;
		else if (!alone || ends_make_anonymous(i))
			ends_make_private(r);
	}
	if (region_table.lost) {
		region_table.lost = false;
		os_vma_each(collect, NULL);
	}
	/* not held across fork(): fork handlers of others may wait for threads that free memory */
	region_unlock();
}

void fork_parent(void)
{
	region_lock();
	region_table.forks--;
	region_unlock();
}

void fork_child(void)
{
	bool any = region_lo < region_hi;

	/* the table was in the arena, and half written perhaps: build it anew from the mappings */
	region_lock_reset();
	region_lock();
	region_table.forks = 0;
	region_table.is_read = false;
	pins_reset_locked();
	table_forget_threads();
	if (any)
		os_vma_each(collect, NULL);
	table_publish_bounds();
	arena_after_fork_child();
	region_unlock();
}
