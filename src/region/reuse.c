/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which buffers are worth adopting. Adopting costs about as much as several copies, so a buffer is
 * adopted after enough uses (SLUICE_REGION_ADOPT_AFTER). Each time that its region ends after few
 * uses, it needs twice as many uses the next time. So a program that allocates, broadcasts and
 * frees in a loop is not adopted in vain; when the hooks report its allocations, never.
 *
 * Called at every use of a buffer that is not adopted, so without the folder's lock, which costs
 * two system calls. All of it is a hint: a caller that finds another thread in here (or, in a
 * signal handler, the interrupted one) leaves the table unchanged.
 */
#include "base/backoff.h"
#include "region/private.h"

#define REUSE_SETS 256
#define REUSE_WAYS 4
#define REUSE_INTERVAL_MAX 4096 /* times as many uses as for a new buffer */
#define REUSE_SMALL_BYTES ((uint64_t)256 << 10)
#define LIFETIME_USES_MIN 6 /* after so many uses adopting has paid off */

struct use_count {
	uintptr_t start; /* page number of the first whole page, 0: free */
	uint64_t bytes;
	uint32_t uses, interval; /* interval: as struct backoff has it */
	uint64_t last;
};
static struct use_count counts[REUSE_SETS][REUSE_WAYS];
static uint64_t use_clock;
static _Atomic bool is_busy;

static bool table_try_begin(void)
{
	return !atomic_exchange_explicit(&is_busy, true,
					 memory_order_acquire); /* partner: table_end */
}

static void table_end(void) { atomic_store_explicit(&is_busy, false, memory_order_release); }

static struct use_count *set_of(uintptr_t page)
{
	return counts[(page * 0x9e3779b97f4a7c15ull) >> 56];
}

static struct use_count *count_find(uintptr_t start)
{
	uintptr_t page = start / OS_PAGE;
	struct use_count *set = set_of(page), *victim = set;

	for (int i = 0; i < REUSE_WAYS; i++) {
		if (set[i].start == page)
			return &set[i];
		if (set[i].last < victim->last)
			victim = &set[i];
	}
	*victim = (struct use_count){ .start = page };
	return victim;
}

/* Counts a use. Returns: whether there were enough. */
static bool count_use(struct use_count *s, uint64_t bytes)
{
	uint64_t needed = (uint64_t)base_opt.region_adopt_after;

	s->last = ++use_clock;
	/* a longer buffer at the same address is another buffer; a shorter one is contained */
	if (bytes > s->bytes)
		s->uses = 0;
	s->bytes = base_max_u64(s->bytes, bytes);
	s->uses++;
	/* the gain of a use shrinks with the size, the cost of the system calls does not */
	if (bytes < REUSE_SMALL_BYTES)
		needed *= REUSE_SMALL_BYTES / base_max_u64(bytes, OS_PAGE);
	return s->uses > needed * base_max_u64(s->interval, 1);
}

bool reuse_count(uintptr_t start, uint64_t bytes, bool is_spent)
{
	struct use_count *s;
	bool earned;

	if (!table_try_begin())
		return false;
	s = count_find(start);
	earned = count_use(s, bytes);
	if (earned && is_spent)
		s->uses = 0;
	table_end();
	return earned;
}

void reuse_forget(uintptr_t start)
{
	uintptr_t page = start / OS_PAGE;
	struct use_count *set = set_of(page);

	if (!table_try_begin())
		return;
	for (int i = 0; i < REUSE_WAYS; i++)
		if (set[i].start == page)
			set[i].uses = 0;
	table_end();
}

void reuse_note_lifetime(uintptr_t start, uint64_t uses)
{
	struct use_count *s;

	if (!table_try_begin())
		return;
	s = count_find(start);
	s->last = ++use_clock;
	s->uses = 0;
	s->interval = uses < LIFETIME_USES_MIN ?
			      backoff_longer(s->interval, 2, REUSE_INTERVAL_MAX) : 0;
	table_end();
}
