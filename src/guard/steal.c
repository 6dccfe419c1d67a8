/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guarding by moving page tables away: mremap(MREMAP_DONTUNMAP) takes whole tables, not entries,
 * and leaves the mapping itself behind, empty, which is then protected at no cost. It is never
 * unmapped, so nobody can take its place, and as it maps the same file, access can be given back
 * without the tables.
 *
 *   program's address   |....|######|....|   mapping, no tables, PROT_NONE (PROT_READ: pages come
 * back one by one as they are read; writes fault) reservation         -----|######|-----   shadow:
 * the tables; same place modulo 2 MiB
 *
 * Small ranges are protected instead, and so are those for which that takes less time: ranges of
 * huge pages, and large ones while other threads run, each of which hears of every table that is
 * moved (doc/adr/0009). Both ways are tried and timed.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "guard/private.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1u
#endif

enum {
	FEW_PAGES = 160, /* below, protecting is cheaper in any case */
	SEEN = 64,
	KEPT_MAX = 8,
	TRIES = 2,       /* of each way: what takes long once may have been interrupted */
	TRY_AGAIN = 256  /* uses: other threads may run now, which makes moving dear */
};

static struct {
	uintptr_t raw, base;
	uint64_t raw_bytes;
} space;

/* ---- what is known about ranges that were armed before, under the lock ------------------- */

enum way { MOVE, PROTECT, WAYS };

struct seen {
	uintptr_t start, end;
	uint32_t uses, tries[WAYS];
	uint64_t least_ns[WAYS];
};
static struct seen seen_table[SEEN];

static struct seen *seen_of(const struct guard_range *r)
{
	struct seen *s = &seen_table[(r->start / OS_PAGE * 0x9e3779b97f4a7c15ull >> 32) % SEEN];

	if (s->start != r->start || s->end != r->end || s->uses == TRY_AGAIN)
		*s = (struct seen){ .start = r->start, .end = r->end,
				    .least_ns = { UINT64_MAX, UINT64_MAX } };
	s->uses++;
	return s;
}

static enum way way_of(const struct seen *s)
{
	for (enum way w = MOVE; w < WAYS; w++)
		if (s->tries[w] < TRIES)
			return w;
	return s->least_ns[MOVE] <= s->least_ns[PROTECT] ? MOVE : PROTECT;
}

/* ---- moving ------------------------------------------------------------------------------ */

static long anonymous_at(uintptr_t at, uint64_t bytes, int flags)
{
	return sud_syscall(SYS_mmap, at, bytes, (long)PROT_NONE,
			   (long)(MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags), -1L, 0L);
}

static long move(uintptr_t to, uintptr_t from, uint64_t bytes)
{
	return sud_syscall(SYS_mremap, from, bytes, bytes,
			   (long)(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP), to);
}

/*
 * What stays at the shadow when all has been returned is a mapping without tables. The next range
 * in this slot, mostly the same again, replaces it: doing so now would free tables, of which every
 * CPU that has seen this process hears. Not more than KEPT_MAX such mappings stay, and none is cut
 * in two.
 */
static struct { uintptr_t start, end; } kept[KEPT_MAX];

static void kept_add(uintptr_t start, uintptr_t end)
{
	for (int i = 0; i < KEPT_MAX; i++) {
		if (kept[i].end)
			continue;
		kept[i].start = start;
		kept[i].end = end;
		return;
	}
	anonymous_at(start, end - start, MAP_FIXED);
}

/* [start, end) is about to be replaced. */
static void kept_remove(uintptr_t start, uintptr_t end)
{
	for (int i = 0; i < KEPT_MAX; i++) {
		uintptr_t from = kept[i].start, to = kept[i].end;

		if (from >= end || to <= start)
			continue;
		if (from < start || to > end)
			anonymous_at(from, to - from, MAP_FIXED);
		kept[i].end = kept[i].start = 0;
	}
}

int shadow_move_out(struct guard_range *r)
{
	uintptr_t shadow = space.base + r->slot + r->start % OS_HUGE;
	uint64_t bytes = r->end - r->start;
	long got;

	kept_remove(shadow, shadow + bytes);
	got = base_fault("guard_mremap") ? -ENOMEM : move(shadow, r->start, bytes);
	if (got == (long)shadow) {
		r->shadow = shadow;
		return 0;
	}
	/* the reservation may have been unmapped before it failed; what is still there stays */
	if (anonymous_at(shadow, bytes, MAP_FIXED_NOREPLACE) == -EEXIST)
		kept_add(shadow, shadow + bytes);
	return (int)got;
}

int shadow_move_back(struct guard_range *r, uintptr_t start, uintptr_t end)
{
	long got = move(start, r->shadow + (start - r->start), end - start);

	return got == (long)start ? 0 : (int)got;
}

void shadow_end(struct guard_range *r)
{
	if (r->shadow)
		kept_add(r->shadow, r->shadow + (r->end - r->start));
	r->shadow = 0;
}

static int take_and_protect(struct guard_range *r)
{
	int ret = shadow_move_out(r);

	if (ret)
		return ret;
	ret = (int)sud_syscall(SYS_mprotect, r->start, r->end - r->start,
			       (long)(r->access == GUARD_READ_ONLY ? PROT_READ : PROT_NONE));
	if (!ret)
		return 0;
	/* Readable and writable as before, with or without its tables. */
	shadow_move_back(r, r->start, r->end);
	shadow_end(r);
	return ret;
}

static int kind_arm(struct guard_range *r)
{
	struct seen *s;
	enum way way;
	uint64_t ns;
	int ret;

	if ((r->end - r->start) / OS_PAGE < FEW_PAGES)
		return mprotect_close(r);
	s = seen_of(r);
	way = way_of(s);
	ns = os_now_ns();
	ret = way == MOVE ? take_and_protect(r) : mprotect_close(r);
	s->tries[way]++;
	s->least_ns[way] = base_min_u64(s->least_ns[way], os_now_ns() - ns);
	return ret;
}

static int kind_release(struct guard_range *r, uintptr_t start, uintptr_t end)
{
	if (r->shadow && !shadow_move_back(r, start, end))
		return 0;
	/* no tables were taken, or they cannot be had back: pages come back as they are touched */
	return mprotect_open(start, end);
}

/* ---- reservation ------------------------------------------------------------------------- */

int shadow_reserve(char *reason, size_t cap)
{
	uint64_t bytes = ranges_bytes() + OS_HUGE;
	long p;

	if (space.base)
		return 0;
	p = anonymous_at(0, bytes, 0);
	if (p < 0 && p > -(long)OS_PAGE) {
		snprintf(reason, cap, "no address space for page tables: %s", strerror((int)-p));
		return (int)p;
	}
	space.raw = (uintptr_t)p;
	space.raw_bytes = bytes;
	space.base = base_round_up(space.raw, OS_HUGE);
	return 0;
}

bool shadow_is_reserved(void) { return space.base; }

void guard_shadows(uintptr_t *out_start, uintptr_t *out_end)
{
	*out_start = space.raw;
	*out_end = space.raw + space.raw_bytes;
}

void shadow_unreserve(void)
{
	if (space.base)
		sud_syscall(SYS_munmap, space.raw, space.raw_bytes);
	space.raw = space.base = space.raw_bytes = 0;
	memset(kept, 0, sizeof kept);
}

/* ---- trial ------------------------------------------------------------------------------- */

enum { TRIAL_BYTES = 4 * OS_PAGE };

static int trial_of(const struct guard_kind *kind, volatile char *p)
{
	struct guard_range r = { .start = (uintptr_t)p, .end = (uintptr_t)p + TRIAL_BYTES };
	int ret;

	for (uint64_t i = 0; i < TRIAL_BYTES; i += OS_PAGE)
		p[i] = (char)(i / OS_PAGE + 1);
	ret = kind->arm(&r);
	if (ret)
		return ret;
	ret = kind->release(&r, r.start + OS_PAGE, r.start + 2 * OS_PAGE);
	if (!ret)
		ret = kind->release(&r, r.start, r.start + OS_PAGE);
	if (!ret)
		ret = kind->release(&r, r.start + 2 * OS_PAGE, r.end);
	kind->end(&r);
	for (uint64_t i = 0; !ret && i < TRIAL_BYTES; i += OS_PAGE)
		if (p[i] != (char)(i / OS_PAGE + 1))
			ret = -EIO;
	return ret;
}

int shadow_trial(const struct guard_kind *kind, char *reason, size_t cap)
{
	long fd = sud_syscall(SYS_memfd_create, "sluice", (long)MFD_CLOEXEC), p;
	int ret = (int)fd;

	if (fd < 0) {
		snprintf(reason, cap, "memfd_create: %s", strerror((int)-fd));
		return ret;
	}
	ret = (int)sud_syscall(SYS_ftruncate, fd, (long)TRIAL_BYTES);
	p = ret ? ret
		: sud_syscall(SYS_mmap, NULL, (long)TRIAL_BYTES, (long)(PROT_READ | PROT_WRITE),
			      (long)MAP_SHARED, fd, 0L);
	sud_syscall(SYS_close, fd);
	if (p < 0 && p > -(long)OS_PAGE) {
		ret = (int)p;
	} else {
		ret = trial_of(kind, (volatile char *)p);
		sud_syscall(SYS_munmap, p, (long)TRIAL_BYTES);
	}
	if (ret)
		snprintf(reason, cap, "page tables cannot be moved: %s", strerror(-ret));
	return ret;
}

/* As the kind does with large ranges. */
static const struct guard_kind always = { .arm = take_and_protect,
					  .release = kind_release,
					  .end = shadow_end };

static int kind_open(char *reason, size_t cap)
{
	int ret = shadow_reserve(reason, cap);

	return ret ? ret : shadow_trial(&always, reason, cap);
}

const struct guard_kind guard_mremap = {
	.name = "steal",
	.by_signal = true,
	.open = kind_open,
	.close = shadow_unreserve,
	.arm = kind_arm,
	.release = kind_release,
	.end = shadow_end,
};
