/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who uses which region. A pin is taken under the lock and given back without it: a guard's handler
 * gives pins back on top of whatever a thread was doing, a system call of ours under the lock included.
 *
 * A slot a region: its number, whether it ends with its last pin, and how many pins there are. Numbers
 * are given out in sequence, so a slot is used again after thousands of adoptions only.
 */
#include <errno.h>

#include "region/private.h"

#define DOOMED (1ull << 31)
#define COUNT (DOOMED - 1)

static _Atomic uint64_t *slots; /* TABLE_MAX of address space; a slot of zero is free */
static _Atomic bool unsettled;  /* a doomed region has lost its last pin */
static uint32_t last_id;

static _Atomic uint64_t *slot_of(uint32_t id) { return &slots[id % TABLE_MAX]; }

static uint64_t word_of(const struct region *r)
{
	/* acquire, partner: region_release; what was done with the region has been done */
	return r->id ? atomic_load_explicit(slot_of(r->id), memory_order_acquire) : 0;
}

int pins_ready_locked(void)
{
	void *p;

	if (slots)
		return 0;
	p = region_os.mmap(NULL, TABLE_MAX * sizeof *slots, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	slots = p;
	return 0;
}

uint32_t pins_open_locked(void)
{
	do /* there are as many slots as places in the table */
		last_id++;
	while (!last_id || atomic_load_explicit(slot_of(last_id), memory_order_relaxed));
	atomic_store_explicit(slot_of(last_id), (uint64_t)last_id << 32, memory_order_relaxed);
	return last_id;
}

void pins_close_locked(uint32_t id)
{
	if (id) /* who still has a pin will find another number here, or none */
		atomic_store_explicit(slot_of(id), 0, memory_order_relaxed);
}

/* In a forked child: what was in use there is not here. */
void pins_reset_locked(void)
{
	if (slots)
		region_os.madvise((void *)slots, TABLE_MAX * sizeof *slots, MADV_DONTNEED);
	atomic_store_explicit(&unsettled, false, memory_order_relaxed);
}

void pins_add_locked(struct region *r) { atomic_fetch_add_explicit(slot_of(r->id), 1, memory_order_relaxed); }
uint32_t pins_of(const struct region *r) { return word_of(r) & COUNT; }
bool pins_is_doomed(const struct region *r) { return word_of(r) & DOOMED; }

bool pins_doom_locked(struct region *r)
{
	uint64_t word = word_of(r);

	while (word & COUNT)
		if (atomic_compare_exchange_weak_explicit(slot_of(r->id), &word, word | DOOMED,
							  memory_order_acq_rel, memory_order_acquire))
			return true;
	return false;
}

bool pins_drop(uint32_t id)
{
	uint64_t word, less;

	if (!id || !slots)
		return false;
	word = atomic_load_explicit(slot_of(id), memory_order_relaxed);
	do {
		if (word >> 32 != id || !(word & COUNT))
			return false;
		less = word - 1;
		/* release, partner: word_of */
	} while (!atomic_compare_exchange_weak_explicit(slot_of(id), &word, less, memory_order_acq_rel,
							memory_order_relaxed));
	return (less & DOOMED) && !(less & COUNT);
}

void region_release(const struct region_desc *d)
{
	if (!pins_drop(d->id))
		return;
	atomic_store_explicit(&unsettled, true, memory_order_release); /* partner: pins_settle_locked */
	if (region_is_locked_here())
		return; /* we are on top of a thread that holds it, and sees to it */
	region_lock();
	region_unlock();
}

void pins_settle_locked(void)
{
	if (base_likely(!atomic_load_explicit(&unsettled, memory_order_acquire)))
		return;
	atomic_store_explicit(&unsettled, false, memory_order_relaxed);
	for (uint32_t i = 0; i < region_table.n; i++) {
		struct region *r = &region_table.at[i];

		if (r->state == REGION_ACTIVE && pins_is_doomed(r) && !pins_of(r))
			ends_make_private(r);
	}
}
