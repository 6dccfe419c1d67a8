/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moving page tables away: mremap(MREMAP_DONTUNMAP) moves whole page tables, not their entries, and
 * leaves the mapping behind, empty. It is never unmapped, so no other mapping can take its place;
 * and as it maps the same file, access can be given back without the tables.
 *
 *   program's address   |....|######|....|   mapping without tables: protected, or registered
 *   reservation         -----|######|-----   shadow: the tables; same address modulo 2 MiB
 *
 * All functions but reserve, unreserve and trial run under the guard's lock.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "guard/private.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

enum { IDLE_MAX = 8 };

static struct {
	uintptr_t raw, base;
	uint64_t raw_bytes;
} space;

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
 * When all tables have been moved back an empty mapping is left at the shadow. The next range in
 * this slot, mostly the same range, replaces it. Unmapping it at once would free tables, which
 * interrupts every CPU that has run this process. At most IDLE_MAX such mappings stay, and none is
 * split.
 */
static struct { uintptr_t start, end; } idle[IDLE_MAX];

static void idle_add(uintptr_t start, uintptr_t end)
{
	for (int i = 0; i < IDLE_MAX; i++) {
		if (idle[i].end)
			continue;
		idle[i].start = start;
		idle[i].end = end;
		return;
	}
	anonymous_at(start, end - start, MAP_FIXED);
}

/* [start, end) is about to be replaced. */
static void idle_remove(uintptr_t start, uintptr_t end)
{
	for (int i = 0; i < IDLE_MAX; i++) {
		uintptr_t from = idle[i].start, to = idle[i].end;

		if (from >= end || to <= start)
			continue;
		if (from < start || to > end)
			anonymous_at(from, to - from, MAP_FIXED);
		idle[i].end = idle[i].start = 0;
	}
}

int shadow_move_out(struct guard_range *r)
{
	uintptr_t shadow = space.base + r->slot + r->start % OS_HUGE;
	uint64_t bytes = r->end - r->start;
	long got;

	idle_remove(shadow, shadow + bytes);
	got = base_fault("guard_mremap") ? -ENOMEM : move(shadow, r->start, bytes);
	if (got == (long)shadow) {
		r->shadow = shadow;
		return 0;
	}
	/* a failed mremap may have unmapped the reservation first; a mapping that is still there
	 * stays */
	if (anonymous_at(shadow, bytes, MAP_FIXED_NOREPLACE) == -EEXIST)
		idle_add(shadow, shadow + bytes);
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
		idle_add(r->shadow, r->shadow + (r->end - r->start));
	r->shadow = 0;
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
	memset(idle, 0, sizeof idle);
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
