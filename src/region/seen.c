/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which buffers have earned adoption. Adopting costs about as much as several copies, so a buffer
 * is adopted when it has been used often enough (SLUICE_REGION_ADOPT_AFTER), and one whose regions
 * died young must be used twice as often each time: a program that allocates, broadcasts and frees
 * in a loop soon stops being adopted for nothing. Where the hooks see it allocate, it is never.
 *
 * Asked at every use of what is not adopted, so without the folder's lock, whose price is two
 * system calls. All of it is a hint: who finds another thread (or, in a signal handler, the thread
 * below it) in here leaves the table as it is.
 */
#include "region/private.h"

#define SEEN_SETS 256
#define SEEN_WAYS 4
#define SEEN_BACKOFF_MAX 12
#define SEEN_SMALL_BYTES ((uint64_t)256 << 10)
#define SEEN_OLD_ENOUGH_USES 6 /* a region that lived this long has paid for itself */

struct seen {
	uintptr_t start; /* page number of the first whole page, 0: free */
	uint64_t bytes;
	uint32_t uses, backoff;
	uint64_t last;
};
static struct seen seen_table[SEEN_SETS][SEEN_WAYS];
static uint64_t seen_clock;
static _Atomic bool seen_busy;

static bool seen_try_begin(void)
{
	return !atomic_exchange_explicit(&seen_busy, true,
					 memory_order_acquire); /* partner: seen_end */
}

static void seen_end(void) { atomic_store_explicit(&seen_busy, false, memory_order_release); }

static struct seen *set_of(uintptr_t page)
{
	return seen_table[(page * 0x9e3779b97f4a7c15ull) >> 56];
}

static struct seen *seen_find(uintptr_t start)
{
	uintptr_t page = start / OS_PAGE;
	struct seen *set = set_of(page), *victim = set;

	for (int i = 0; i < SEEN_WAYS; i++) {
		if (set[i].start == page)
			return &set[i];
		if (set[i].last < victim->last)
			victim = &set[i];
	}
	*victim = (struct seen){ .start = page };
	return victim;
}

/* One use more: are they enough? */
static bool count_use(struct seen *s, uint64_t bytes)
{
	s->last = ++seen_clock;
	/* a longer buffer at the same place is another buffer; a shorter one profits as well */
	if (bytes > s->bytes)
		s->uses = 0;
	s->bytes = base_max_u64(s->bytes, bytes);
	s->uses++;
	/* the gain of a call shrinks with the size, the cost of the system calls does not */
	return s->uses >
	       (uint64_t)base_opt.region_adopt_after *
			       (bytes < SEEN_SMALL_BYTES
					? SEEN_SMALL_BYTES / base_max_u64(bytes, OS_PAGE)
					: 1)
		       << s->backoff;
}

bool reuse_count(uintptr_t start, uint64_t bytes, bool is_spent)
{
	struct seen *s;
	bool earned;

	if (!seen_try_begin())
		return false;
	s = seen_find(start);
	earned = count_use(s, bytes);
	if (earned && is_spent)
		s->uses = 0;
	seen_end();
	return earned;
}

void reuse_forget(uintptr_t start)
{
	uintptr_t page = start / OS_PAGE;
	struct seen *set = set_of(page);

	if (!seen_try_begin())
		return;
	for (int i = 0; i < SEEN_WAYS; i++)
		if (set[i].start == page)
			set[i].uses = 0;
	seen_end();
}

void reuse_note_lifetime(uintptr_t start, uint64_t uses)
{
	struct seen *s;

	if (!seen_try_begin())
		return;
	s = seen_find(start);
	s->last = ++seen_clock;
	s->uses = 0;
	if (uses >= SEEN_OLD_ENOUGH_USES)
		s->backoff = 0;
	else if (s->backoff < SEEN_BACKOFF_MAX)
		s->backoff++;
	seen_end();
}
