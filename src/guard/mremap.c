/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kind mremap: page tables are moved away (shadow.c) and the empty mapping is protected, at no
 * cost. After PROT_READ pages come back one by one as they are read, and writes fault.
 *
 * Small ranges are protected with their tables. So are ranges for which that takes less time:
 * ranges of huge pages, and large ranges while other threads run, each of which is interrupted for
 * every table that is moved (doc/adr/0009-guarding-memory.md). Both ways are tried and timed.
 */
#include <sys/mman.h>
#include <sys/syscall.h>

#include "guard/private.h"

enum {
	FEW_PAGES = 160,  /* below, protecting is cheaper in any case */
	TIMINGS = 64,
	TRIES = 2,        /* of each way: one try may have been interrupted */
	TIME_AGAIN = 256  /* uses: other threads may run by then, which makes moving dear */
};

/* ---- times of ranges that were armed before, under the lock ------------------------------ */

enum way { MOVE, PROTECT, WAYS };

struct timing {
	uintptr_t start, end;
	uint32_t uses, tries[WAYS];
	uint64_t least_ns[WAYS];
};
static struct timing timings[TIMINGS];

static struct timing *timing_of(const struct guard_range *r)
{
	struct timing *s = &timings[(r->start / OS_PAGE * 0x9e3779b97f4a7c15ull >> 32) % TIMINGS];

	if (s->start != r->start || s->end != r->end || s->uses == TIME_AGAIN)
		*s = (struct timing){ .start = r->start, .end = r->end,
				    .least_ns = { UINT64_MAX, UINT64_MAX } };
	s->uses++;
	return s;
}

static enum way choose_way(const struct timing *s)
{
	for (enum way w = MOVE; w < WAYS; w++)
		if (s->tries[w] < TRIES)
			return w;
	return s->least_ns[MOVE] <= s->least_ns[PROTECT] ? MOVE : PROTECT;
}

static int move_and_protect(struct guard_range *r)
{
	int ret = shadow_move_out(r);

	if (ret)
		return ret;
	ret = (int)sud_syscall(SYS_mprotect, r->start, r->end - r->start,
			       (long)(r->access == GUARD_READ_ONLY ? PROT_READ : PROT_NONE));
	if (!ret)
		return 0;
	/* readable and writable as before, whether or not the tables come back */
	shadow_move_back(r, r->start, r->end);
	shadow_end(r);
	return ret;
}

static int kind_arm(struct guard_range *r)
{
	struct timing *s;
	enum way way;
	uint64_t ns;
	int ret;

	if ((r->end - r->start) / OS_PAGE < FEW_PAGES)
		return mprotect_close(r);
	s = timing_of(r);
	way = choose_way(s);
	ns = os_now_ns();
	ret = way == MOVE ? move_and_protect(r) : mprotect_close(r);
	s->tries[way]++;
	s->least_ns[way] = base_min_u64(s->least_ns[way], os_now_ns() - ns);
	return ret;
}

static int kind_release(struct guard_range *r, uintptr_t start, uintptr_t end)
{
	if (r->shadow && !shadow_move_back(r, start, end))
		return 0;
	/* no tables were moved, or the kernel refuses to move them back: accesses fault pages in */
	return mprotect_open(start, end);
}

/* For the trial: what the kind does with large ranges. */
static const struct guard_kind always_moves = { .arm = move_and_protect,
					  .release = kind_release,
					  .end = shadow_end };

static int kind_open(char *reason, size_t cap)
{
	int ret = shadow_reserve(reason, cap);

	return ret ? ret : shadow_trial(&always_moves, reason, cap);
}

const struct guard_kind guard_mremap = {
	.name = "mremap",
	.by_signal = true,
	.open = kind_open,
	.close = shadow_unreserve,
	.arm = kind_arm,
	.release = kind_release,
	.end = shadow_end,
};
