/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of guard/ only.
 *
 *   guard.c     the armed ranges, sorted by address, under one lock
 *   choice.c    which kind; init and fini
 *   steal.c     a kind each: how the pages of a range are closed and opened
 *   mprotect.c
 *   uffd.c
 *   fault.c     SIGSEGV
 *   (signals.c dispatch.c threads.c: system.h)
 *
 * Functions whose name ends in _sig may run in a signal handler of ours: every signal is blocked,
 * the thread may have been interrupted anywhere, except where it held the lock of this folder or
 * was between sud_enter() and sud_exit().
 */
#ifndef SLUICE_GUARD_PRIVATE_H
#define SLUICE_GUARD_PRIVATE_H

#include <signal.h>

#include "guard/guard.h"
#include "sud/handler.h"

/* ---- guard.c: for the handlers of SIGSEGV and SIGSYS, and the uffd threads --------------- */

/* Is any byte of [start, end) out of reach for this kind of access? Takes the lock. What it says
 * may be out of date a moment later: ranges are only armed by calls of the program's. */
bool guard_overlaps_sig(uintptr_t start, uintptr_t end, bool write);
/*
 * Each armed range of which a page of [start, start + bytes) is out of reach for this kind of
 * access gets hold() under the lock and then touched(), once. Returns whether there was one.
 * Context: as touched().
 */
bool guard_touch_sig(uintptr_t start, size_t bytes, bool write);
/* Someone reads an armed page of a GUARD_READ_ONLY range: let() is called under the lock for it and
 * those that follow. What it returns, or -ENOENT when it is not such a page. */
int guard_read_sig(uintptr_t addr, int (*let)(uintptr_t start, uintptr_t end));
/* The whole of the range of which this page is armed. False: there is none. */
bool guard_bounds_sig(uintptr_t page, uintptr_t *out_start, uintptr_t *out_end);
/* The owner's complete_all(), if anything is armed at all. */
void guard_complete_all_sig(void);
/* The owner's tidy(), if it has one. */
void guard_tidy_sig(void);
/* Was this address ever part of a range? And how many times pages have been released so far: a
 * fault at such an address, of which no page is armed now, may be one of a page released meanwhile.
 */
bool guard_was_armed_sig(uintptr_t addr);
uint64_t guard_release_count_sig(void);

/* ---- guard.c: for choice.c --------------------------------------------------------------- */

struct guard_kind;

/* Bits and places for ranges of `bytes` in all; at most once. Shadows lie from `base` on (0: there
 * are none). */
int ranges_open(uint64_t bytes);
void ranges_use(const struct guard_ops *ops,
		const struct guard_kind *kind); /* NULL: nothing is armed any more */
/* Another kind from now on. False: something is armed, or nothing can be. */
bool ranges_switch(const struct guard_kind *to);
uint64_t ranges_bytes(void);
void ranges_after_fork_child(void);
uint32_t ranges_armed(void); /* how many are armed */
uint64_t ranges_ever(void);  /* ... and were armed so far */

/* ---- kinds ------------------------------------------------------------------------------- */

/* All but open and close: with the lock held and every signal blocked, system calls by
 * sud_syscall(). */
struct guard_kind {
	const char *name;
	bool by_signal; /* needs SIGSEGV and Syscall User Dispatch */
	/* Tries the real thing. 0, or -errno with a sentence. */
	int (*open)(char *reason, size_t cap);
	void (*close)(void);
	/* 0, or -errno and all is as it was. */
	int (*arm)(struct guard_range *r);
	/* Whole pages of r, all of them armed. 0, or -errno and they are still. */
	int (*release)(struct guard_range *r, uintptr_t start, uintptr_t end);
	/* All pages have been released. May be NULL. */
	void (*end)(struct guard_range *r);
};
extern const struct guard_kind guard_mprotect, guard_mremap, guard_uffd;

/* ---- mprotect.c -------------------------------------------------------------------------- */

int mprotect_close(struct guard_range *r);
int mprotect_open(uintptr_t start, uintptr_t end);

/* ---- steal.c ----------------------------------------------------------------------------- */

/* A reservation for shadows; idempotent. */
int shadow_reserve(char *reason, size_t cap);
bool shadow_is_reserved(void);
void shadow_unreserve(void);
/* Page tables of r move to r->shadow, or to where they were; the mapping stays, empty. The first
 * sets r->shadow. 0 or -errno and nothing has changed. */
int shadow_move_out(struct guard_range *r);
int shadow_move_back(struct guard_range *r, uintptr_t start, uintptr_t end);
void shadow_end(struct guard_range *r);
/* Does it work with memory like the arena's? Arms and releases some. 0, or -errno with a sentence.
 */
int shadow_trial(const struct guard_kind *kind, char *reason, size_t cap);

/* ---- uffd.c ------------------------------------------------------------------------------ */

/* As its open(), but without threads: uffd_has_threads() has them come. Nothing is armed meanwhile.
 */
int uffd_open(char *reason, size_t cap);
/*
 * Called by guard_wait_begin(). In a thread that serves faults: another one takes over reading them
 * while this one waits; true. In others false.
 */
bool uffd_wait_begin(void);
/* Enough threads for so many ranges at a time; false: more could not be had. */
bool uffd_has_threads(uint32_t ranges);
void uffd_after_fork_child(void);

/* ---- fault.c ----------------------------------------------------------------------------- */

void fault_segv_sig(int signo, siginfo_t *si, void *ucontext);

#endif
