/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pins: the users of each region. A pin is released without the lock: a handler of the guard does
 * so on top of any instruction, also of a thread that holds the lock.
 *
 * A region has a slot: its number, whether the region is doomed (returned with its last pin), and
 * the count of pins. Numbers are given in sequence, so a slot is reused after thousands of
 * adoptions only.
 */
#include "region/private.h"

#define DOOMED (1ull << 31)
#define COUNT (DOOMED - 1)

struct slot {
	_Atomic uint64_t word; /* number << 32 | DOOMED | pins; 0: free */
	_Atomic uint64_t uses, last_use;
};

static struct slot *_Atomic slots; /* TABLE_MAX of address space */
static _Atomic uint64_t all_uses;  /* uses of all regions */
static _Atomic bool unsettled;     /* a doomed region has lost its last pin */

static struct slot *slot_of(uint32_t id)
{
	return atomic_load_explicit(&slots, memory_order_relaxed) + id % TABLE_MAX;
}

static uint64_t word_of(const struct region *r)
{
	/* acquire, partner: pins_drop; all use of the region happened before */
	return r->id ? atomic_load_explicit(&slot_of(r->id)->word, memory_order_acquire) : 0;
}

size_t pins_bytes(void) { return TABLE_MAX * sizeof *slots; }

void pins_init_locked(void *memory)
{
	atomic_store_explicit(&slots, memory,
			      memory_order_release); /* partner: every look-up of a region */
}

uint32_t pins_open_locked(void)
{
	struct slot *s;
	uint32_t id;

	do { /* as many slots as table entries: one is free */
		id = ++region_table.last_id;
		s = slot_of(id);
	} while (!id || atomic_load_explicit(&s->word, memory_order_relaxed));
	atomic_store_explicit(&s->uses, 0, memory_order_relaxed);
	atomic_store_explicit(&s->last_use, 0, memory_order_relaxed);
	atomic_store_explicit(&s->word, (uint64_t)id << 32, memory_order_relaxed);
	return id;
}

void pins_close_locked(uint32_t id)
{
	if (id) /* a holder of a stale pin will find another number */
		atomic_store_explicit(&slot_of(id)->word, 0, memory_order_relaxed);
}

/* In a forked child no region is pinned. */
void pins_reset_locked(void)
{
	if (slots)
		region_os.madvise(slots, pins_bytes(), MADV_DONTNEED);
	atomic_store_explicit(&unsettled, false, memory_order_relaxed);
}

bool pins_add(uint32_t id)
{
	struct slot *s = slot_of(id);
	uint64_t word = atomic_load_explicit(&s->word, memory_order_relaxed);

	do {
		if (word >> 32 != id || (word & DOOMED))
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
		&s->word, &word, word + 1, memory_order_seq_cst, memory_order_relaxed));
	return true;
}

void pins_note_use(uint32_t id)
{
	struct slot *s = slot_of(id);
	uint64_t now = atomic_fetch_add_explicit(&all_uses, 1, memory_order_relaxed) + 1;

	atomic_fetch_add_explicit(&s->uses, 1, memory_order_relaxed);
	atomic_store_explicit(&s->last_use, now, memory_order_relaxed);
}

uint64_t pins_clock(void) { return atomic_load_explicit(&all_uses, memory_order_relaxed); }

uint64_t pins_uses(const struct region *r)
{
	return r->id ? atomic_load_explicit(&slot_of(r->id)->uses, memory_order_relaxed) : 0;
}

uint64_t pins_last_use(const struct region *r)
{
	return r->id ? atomic_load_explicit(&slot_of(r->id)->last_use, memory_order_relaxed) : 0;
}

uint32_t pins_of(const struct region *r) { return word_of(r) & COUNT; }
bool pins_is_doomed(const struct region *r) { return word_of(r) & DOOMED; }

bool pins_doom_locked(struct region *r)
{
	uint64_t word = word_of(r);

	while (word & COUNT)
		if (atomic_compare_exchange_weak_explicit(&slot_of(r->id)->word, &word,
							  word | DOOMED, memory_order_acq_rel,
							  memory_order_acquire))
			return true;
	return false;
}

bool pins_drop(uint32_t id)
{
	struct slot *s = slot_of(id);
	uint64_t word = atomic_load_explicit(&s->word, memory_order_relaxed), less;

	do {
		if (word >> 32 != id || !(word & COUNT))
			return false;
		less = word - 1;
		/* release, partner: word_of */
	} while (!atomic_compare_exchange_weak_explicit(&s->word, &word, less, memory_order_acq_rel,
							memory_order_relaxed));
	return (less & DOOMED) && !(less & COUNT);
}

void pins_release(uint32_t id)
{
	if (!pins_drop(id))
		return;
	atomic_store_explicit(&unsettled, true,
			      memory_order_release); /* partner: pins_return_doomed_locked */
	if (region_is_locked_here())
		return; /* the holder, which this handler interrupted, does it in region_unlock() */
	region_lock();
	region_unlock();
}

void region_release(const struct region_desc *d)
{
	if (d->id)
		pins_release(d->id);
}

void pins_return_doomed_locked(void)
{
	if (base_likely(!atomic_load_explicit(&unsettled, memory_order_acquire)))
		return;
	atomic_store_explicit(&unsettled, false, memory_order_relaxed);
	for (uint32_t i = 0; i < region_table.head->n; i++) {
		struct region *r = &region_table.head->at[i];

		if (r->state == REGION_ACTIVE && pins_is_doomed(r) && !pins_of(r))
			ends_make_private(r);
	}
}
