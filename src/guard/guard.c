/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The armed ranges, in one list by address and one by slot, under one spin lock.
 *
 * A slot is a run of 2 MiB units in a space as large as all memory that may be armed at a time. It
 * gives a range one bit a page (released or not) and the address of its shadow.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "guard/private.h"

enum { SPINS = 100, YIELDS = 20, READ_AROUND_PAGES = 16 };

_Atomic uintptr_t guard_lo = UINTPTR_MAX, guard_hi;

static _Atomic uint32_t lock_word;
static struct {
	const struct guard_ops *ops;
	const struct guard_kind *kind; /* NULL: nothing can be armed */
	struct guard_range *first, *first_slot;
	_Atomic uint32_t armed; /* how many ranges; written under the lock */
	uint64_t *bits;
	uint64_t bytes;               /* of the space of slots */
	_Atomic uintptr_t ever_lo, ever_hi; /* bounds of all ranges that were ever armed */
	_Atomic uint64_t releases, ever; /* how many so far: releases, armed ranges */
} ranges = { .ever_lo = UINTPTR_MAX };

/* ---- lock: held for microseconds, inside sud_enter() ------------------------------------- */

/* The holder may be a thread of idle priority, which runs only when a waiting thread sleeps. */
static void lock_sig(void)
{
	static const struct timespec a_moment = { .tv_nsec = 20000 };

	/* Acquire: pairs with the release in unlock_sig(). */
	for (uint32_t n = 0; atomic_exchange_explicit(&lock_word, 1, memory_order_acquire); n++) {
		if (n < SPINS)
			os_cpu_relax();
		else if (n < SPINS + YIELDS)
			sud_syscall(SYS_sched_yield);
		else
			sud_syscall(SYS_nanosleep, &a_moment, NULL);
	}
}

static void unlock_sig(void)
{
	/* Release: pairs with the acquire in lock_sig(). */
	atomic_store_explicit(&lock_word, 0, memory_order_release);
}

static void enter_locked(void)
{
	sud_enter();
	lock_sig();
}

static void exit_unlocked(void)
{
	unlock_sig();
	sud_exit();
}

/* ---- slots and bits ---------------------------------------------------------------------- */

static uint64_t slot_bytes(const struct guard_range *r)
{
	return base_round_up(r->end, OS_HUGE) - base_round_down(r->start, OS_HUGE);
}

/* First fit; inserts r into the list of slots. */
static int slot_get(struct guard_range *r)
{
	uint64_t needed = slot_bytes(r), at = 0;
	struct guard_range **link = &ranges.first_slot;

	for (; *link && (*link)->slot - at < needed; link = &(*link)->next_slot)
		at = (*link)->slot + slot_bytes(*link);
	if (at + needed > ranges.bytes)
		return -ENOSPC;
	r->slot = at;
	r->next_slot = *link;
	*link = r;
	r->released = ranges.bits + at / OS_PAGE / 64;
	memset(r->released, 0, needed / OS_PAGE / 8);
	return 0;
}

static void slot_put(struct guard_range *r)
{
	struct guard_range **link = &ranges.first_slot;

	while (*link != r)
		link = &(*link)->next_slot;
	*link = r->next_slot;
}

static uint64_t bit_of(const struct guard_range *r, uintptr_t addr)
{
	return (addr - base_round_down(r->start, OS_HUGE)) / OS_PAGE;
}

/* First page of [from, end) whose bit is `value`, or end. */
static uintptr_t bit_next(const struct guard_range *r, uintptr_t from, uintptr_t end, bool value)
{
	uint64_t i = bit_of(r, from), n = bit_of(r, end);

	while (i < n) {
		uint64_t word = r->released[i / 64] ^ (value ? 0 : ~0ull);

		word &= ~0ull << i % 64;
		if (word) {
			i = i / 64 * 64 + (uint64_t)__builtin_ctzll(word);
			break;
		}
		i = (i / 64 + 1) * 64;
	}
	return i < n ? base_round_down(r->start, OS_HUGE) + i * OS_PAGE : end;
}

static void bits_set(struct guard_range *r, uintptr_t from, uintptr_t end)
{
	for (uint64_t i = bit_of(r, from), n = bit_of(r, end); i < n;) {
		uint64_t k = base_min_u64(64 - i % 64, n - i);

		r->released[i / 64] |= (k == 64 ? ~0ull : (1ull << k) - 1) << i % 64;
		i += k;
	}
}

/* ---- list by address --------------------------------------------------------------------- */

static void publish_bounds(void)
{
	struct guard_range *last = ranges.first;

	while (last && last->next)
		last = last->next;
	/* Relaxed: a thread that may touch the range has synchronised with the arming thread. */
	atomic_store_explicit(&guard_lo, last ? ranges.first->start : UINTPTR_MAX,
			      memory_order_relaxed);
	atomic_store_explicit(&guard_hi, last ? last->end : 0, memory_order_relaxed);
}

static int list_insert(struct guard_range *r)
{
	struct guard_range **link = &ranges.first;
	int ret;

	for (; *link && (*link)->end <= r->start; link = &(*link)->next)
		;
	if (*link && (*link)->start < r->end)
		return -EEXIST;
	ret = slot_get(r);
	if (ret)
		return ret;
	r->next = *link;
	*link = r;
	return 0;
}

static void list_remove(struct guard_range *r)
{
	struct guard_range **link = &ranges.first;

	while (*link != r)
		link = &(*link)->next;
	*link = r->next;
	slot_put(r);
}

/* First range with a closed page in [start, end); *out_addr: an address in that page. */
static struct guard_range *find(uintptr_t start, uintptr_t end, bool write, uintptr_t *out_addr)
{
	for (struct guard_range *r = ranges.first; r && r->start < end; r = r->next) {
		uintptr_t from = base_max_u64(start, r->start), to = base_min_u64(end, r->end), at;

		if (from >= to ||
		    (r->access == GUARD_READ_ONLY && !write && ranges.kind->by_signal))
			continue;
		at = bit_next(r, base_round_down(from, OS_PAGE), base_round_up(to, OS_PAGE), false);
		if (at < to) {
			*out_addr = base_max_u64(at, from);
			return r;
		}
	}
	return NULL;
}

/* ---- arm and release --------------------------------------------------------------------- */

static void widen_ever(const struct guard_range *r)
{
	/* written under the lock only; handlers read them after the range was armed */
	if (r->start < atomic_load_explicit(&ranges.ever_lo, memory_order_relaxed))
		atomic_store_explicit(&ranges.ever_lo, r->start, memory_order_relaxed);
	if (r->end > atomic_load_explicit(&ranges.ever_hi, memory_order_relaxed))
		atomic_store_explicit(&ranges.ever_hi, r->end, memory_order_relaxed);
}

uint32_t ranges_armed(void) { return atomic_load_explicit(&ranges.armed, memory_order_relaxed); }

uint64_t ranges_ever(void) { return atomic_load_explicit(&ranges.ever, memory_order_relaxed); }

static void set_armed(uint32_t n) { atomic_store_explicit(&ranges.armed, n, memory_order_relaxed); }

static int arm_locked(struct guard_range *r)
{
	int ret;

	if (!ranges.kind)
		return -ENOTSUP;
	if (ranges.kind->by_signal && !ranges_armed() && !sud_enable_self())
		return -EAGAIN;
	ret = list_insert(r);
	if (ret)
		return ret;
	/* before the first page is closed; and off again after the last page was opened */
	if (!ranges_armed() && ranges.kind->by_signal)
		sud_set_armed(true);
	widen_ever(r);
	ret = ranges.kind->arm(r);
	if (ret) {
		list_remove(r);
		if (!ranges_armed() && ranges.kind->by_signal)
			sud_set_armed(false);
		return ret;
	}
	set_armed(ranges_armed() + 1);
	atomic_fetch_add_explicit(&ranges.ever, 1, memory_order_relaxed);
	publish_bounds();
	/* Release: pairs with the acquire in guard_is_armed(). */
	atomic_store_explicit(&r->armed_pages, (uint32_t)((r->end - r->start) / OS_PAGE),
			      memory_order_release);
	return 0;
}

int guard_arm(struct guard_range *r)
{
	int ret;

	if (r->start >= r->end || r->start % OS_PAGE || r->end % OS_PAGE || guard_is_armed(r))
		return -EINVAL;
	if (base_fault("guard_arm"))
		return -ENOMEM;
	enter_locked();
	ret = arm_locked(r);
	exit_unlocked();
	return ret;
}

void guard_cancel_ready(void)
{
	enter_locked();
	if (ranges.kind && ranges.kind->by_signal && !ranges_armed())
		sud_set_armed(false);
	exit_unlocked();
}

static _Noreturn void release_failed(void)
{
	static const char text[] = "sluice: guard: cannot give memory back to the program\n";

	sud_syscall(SYS_write, 2L, text, sizeof(text) - 1); /* base_log() is not for handlers */
	__builtin_trap();
}

/* Opens each run of closed pages. Returns: how many pages were opened. */
static uint32_t open_runs(struct guard_range *r, uintptr_t start, uintptr_t end, int *out_error)
{
	uint32_t pages = 0;

	*out_error = 0;
	for (uintptr_t at = bit_next(r, start, end, false), to; at < end;
	     at = bit_next(r, to, end, false)) {
		int ret;

		to = bit_next(r, at, end, true);
		ret = ranges.kind->release(r, at, to);
		if (ret) {
			*out_error = ret;
			continue;
		}
		bits_set(r, at, to);
		pages += (uint32_t)((to - at) / OS_PAGE);
	}
	return pages;
}

/* Returns: how many pages of r are still closed. */
static uint32_t release_locked(struct guard_range *r, uintptr_t start, uintptr_t end)
{
	uint32_t remaining = atomic_load_explicit(&r->armed_pages, memory_order_relaxed);
	bool whole = start == r->start && end == r->end;
	int error;

	remaining -= open_runs(r, start, end, &error);
	/* a second try: merging with open neighbours needs fewer mappings */
	if (error && whole)
		remaining -= open_runs(r, start, end, &error);
	if (error && whole)
		release_failed();
	/* Release: pairs with the acquire in guard_openings_sig(). */
	atomic_fetch_add_explicit(&ranges.releases, 1, memory_order_release);
	if (!remaining) {
		if (ranges.kind->end)
			ranges.kind->end(r);
		list_remove(r);
		publish_bounds();
		set_armed(ranges_armed() - 1);
		if (!ranges_armed() && ranges.kind->by_signal)
			sud_set_armed(false);
	}
	/* Release, and last: pairs with the acquire in guard_is_armed(), after which r may be
	 * freed. */
	atomic_store_explicit(&r->armed_pages, remaining, memory_order_release);
	return remaining;
}

bool guard_release(struct guard_range *r, uintptr_t start, uintptr_t end)
{
	uint32_t remaining;

	if (!guard_is_armed(r))
		return true;
	enter_locked();
	/* another thread may release it as well; once all is released r may be freed */
	remaining = atomic_load_explicit(&r->armed_pages, memory_order_relaxed);
	if (remaining) {
		start = base_round_up(base_max_u64(start, r->start), OS_PAGE);
		end = base_round_down(base_min_u64(end, r->end), OS_PAGE);
		if (start < end)
			remaining = release_locked(r, start, end);
	}
	exit_unlocked();
	return !remaining;
}

/* ---- for handlers ------------------------------------------------------------------------ */

bool guard_overlaps_sig(uintptr_t start, uintptr_t end, bool write)
{
	uintptr_t at;
	bool found;

	if (start >= end || !guard_may_touch(start, end))
		return false;
	enter_locked();
	found = find(start, end, write, &at) != NULL;
	exit_unlocked();
	return found;
}

bool guard_touch_sig(uintptr_t start, size_t bytes, bool write)
{
	uintptr_t end = start + bytes < start ? UINTPTR_MAX : start + bytes;
	bool found = false;

	while (start < end) {
		struct guard_range *r;
		uintptr_t at = 0, to = end;
		void *arg = NULL;

		lock_sig();
		r = find(start, end, write, &at);
		if (r) {
			to = base_min_u64(end, r->end);
			arg = r->arg;
			ranges.ops->hold(arg);
		}
		unlock_sig();
		if (!r)
			break;
		found = true;
		ranges.ops->touched(arg, at, to - at, write);
		start = to;
	}
	return found;
}

int guard_read_sig(uintptr_t addr, int (*let)(uintptr_t start, uintptr_t end))
{
	uintptr_t page = base_round_down(addr, OS_PAGE), at, end;
	struct guard_range *r;
	int ret = -ENOENT;

	lock_sig();
	r = find(page, page + OS_PAGE, true, &at);
	if (r && r->access == GUARD_READ_ONLY) {
		end = base_min_u64(r->end, page + READ_AROUND_PAGES * OS_PAGE);
		ret = let(page, bit_next(r, page, end, true));
	}
	unlock_sig();
	return ret;
}

bool guard_bounds_sig(uintptr_t page, uintptr_t *out_start, uintptr_t *out_end)
{
	struct guard_range *r;
	uintptr_t at;

	lock_sig();
	r = find(page, page + OS_PAGE, true, &at);
	if (r) {
		*out_start = r->start;
		*out_end = r->end;
	}
	unlock_sig();
	return r != NULL;
}

void guard_complete_all_sig(void)
{
	if (atomic_load_explicit(&guard_hi, memory_order_relaxed))
		ranges.ops->complete_all();
}

void guard_tidy_sig(void)
{
	if (ranges.ops->tidy)
		ranges.ops->tidy();
}

uint64_t guard_openings_sig(uintptr_t addr)
{
	if (addr < atomic_load_explicit(&ranges.ever_lo, memory_order_relaxed) ||
	    addr >= atomic_load_explicit(&ranges.ever_hi, memory_order_relaxed))
		return 0;
	/* Acquire: pairs with the release in release_locked(). A handler that finds no closed page
	 * sees the release of that page. */
	return 1 + atomic_load_explicit(&ranges.releases, memory_order_acquire);
}

/* ---- for rt/ and preload/ ---------------------------------------------------------------- */

void guard_wait_begin(void)
{
	if (!uffd_wait_begin())
		sud_wait_begin();
}

void guard_complete(void)
{
	if (base_likely(!atomic_load_explicit(&guard_hi, memory_order_relaxed)) || sud_is_vforked())
		return;
	sud_enter();
	guard_complete_all_sig();
	sud_exit();
}

void guard_open(uintptr_t start, uintptr_t end)
{
	if (base_likely(!guard_may_touch(start, end)))
		return;
	sud_enter();
	guard_touch_sig(start, end - start, true);
	sud_exit();
}

void guard_exec_begin(void)
{
	guard_complete();
	sud_exec_begin();
}

void guard_exec_end(void) { sud_exec_end(); }

/* ---- for choice.c ------------------------------------------------------------------------ */

uint64_t ranges_bytes(void) { return ranges.bytes; }

int ranges_open(uint64_t bytes)
{
	long p;

	if (ranges.bits)
		return 0;
	bytes = base_round_down(bytes, OS_HUGE);
	p = sud_syscall(SYS_mmap, NULL, bytes / OS_PAGE / 8, (long)(PROT_READ | PROT_WRITE),
			(long)(MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE), -1L, 0L);
	if (p < 0 && p > -(long)OS_PAGE)
		return (int)p;
	ranges.bits = (uint64_t *)p;
	ranges.bytes = bytes;
	return 0;
}

void ranges_use(const struct guard_ops *ops, const struct guard_kind *kind)
{
	enter_locked();
	ranges.ops = ops;
	ranges.kind = kind;
	exit_unlocked();
}

bool ranges_switch(const struct guard_kind *to)
{
	bool can;

	enter_locked();
	can = !ranges_armed() && ranges.kind;
	if (can)
		ranges.kind = to;
	exit_unlocked();
	return can;
}

void ranges_after_fork_child(void)
{
	atomic_store_explicit(&lock_word, 0, memory_order_relaxed); /* no other thread exists */
	ranges.kind = NULL;
	ranges.first = ranges.first_slot = NULL;
	set_armed(0);
	publish_bounds();
}
