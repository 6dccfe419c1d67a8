/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of guard/ only.
 *
 * Functions whose name ends in _sig may run in a handler of SIGSEGV or SIGSYS: handlers of the
 * program are deferred, and the thread may have been interrupted anywhere, except with this
 * folder's lock or between sud_enter() and sud_exit().
 */
#ifndef SLUICE_GUARD_PRIVATE_H
#define SLUICE_GUARD_PRIVATE_H

#include "guard/guard.h"

/* ---- guard.c: for the handlers of SIGSEGV and SIGSYS, and the uffd threads --------------- */

/* Is a byte of [start, end) closed for this kind of access? Takes the lock. Ranges are armed only
 * inside MPI calls of the program, so the answer may be out of date for other threads. */
bool guard_overlaps_sig(uintptr_t start, uintptr_t end, bool write);
/*
 * For each range with a page of [start, start + bytes) that is closed for this kind of access:
 * calls hold() under the lock, then touched() once. Returns: whether there was one. Context: as
 * touched(), with handlers of the program deferred already.
 */
bool guard_touch_sig(uintptr_t start, size_t bytes, bool write);
/* A thread reads a closed page of a GUARD_READ_ONLY range: calls let() under the lock for this page
 * and the closed pages behind it. Returns: let()'s result, -ENOENT for any other page. */
int guard_read_sig(uintptr_t addr, int (*let)(uintptr_t start, uintptr_t end));
/* The range with this closed page. Returns: false when there is none. */
bool guard_bounds_sig(uintptr_t page, uintptr_t *out_start, uintptr_t *out_end);
/* Calls the owner's complete_all(), if a range is armed. */
void guard_complete_all_sig(void);
/* Calls the owner's tidy(), if it has one. */
void guard_tidy_sig(void);
/* Returns: 0 when addr lies outside the bounds of all ranges that were ever armed; else 1 and the
 * number of releases so far. */
uint64_t guard_openings_sig(uintptr_t addr);

/* ---- guard.c: for choice.c --------------------------------------------------------------- */

struct guard_kind;

/* Allocates bits and slots for ranges of `bytes` in all. Idempotent. Returns: 0 or -errno. */
int ranges_open(uint64_t bytes);
void ranges_use(const struct guard_ops *ops,
		const struct guard_kind *kind); /* NULL: no range can be armed */
/* Changes the kind. Returns: false while a range is armed, or without a kind. */
bool ranges_switch(const struct guard_kind *to);
uint64_t ranges_bytes(void);
void ranges_after_fork_child(void);
uint32_t ranges_armed(void); /* how many are armed */
uint64_t ranges_ever(void);  /* how many have been armed so far */

/* ---- kinds ------------------------------------------------------------------------------- */

/* arm, release and end run under the lock, with handlers of the program deferred, and make system
 * calls by sud_syscall() only. */
struct guard_kind {
	const char *name;
	bool by_signal; /* needs SIGSEGV and Syscall User Dispatch */
	/* Tries the kind on memory of its own. NULL: works everywhere. Returns: 0, or -errno with a
	 * sentence. */
	int (*open)(char *reason, size_t cap);
	void (*close)(void); /* may be NULL */
	/* Closes the range. Returns: 0, or -errno and nothing has changed. */
	int (*arm)(struct guard_range *r);
	/* Opens pages of r that are all closed. Returns: 0, or -errno and they are still closed. */
	int (*release)(struct guard_range *r, uintptr_t start, uintptr_t end);
	/* All pages are open. May be NULL. */
	void (*end)(struct guard_range *r);
};
extern const struct guard_kind guard_mprotect, guard_mremap, guard_uffd;

/* ---- mprotect.c -------------------------------------------------------------------------- */

int mprotect_close(struct guard_range *r);
int mprotect_open(uintptr_t start, uintptr_t end);

/* ---- shadow.c ---------------------------------------------------------------------------- */

/* Reserves addresses for shadows. Idempotent. Returns: 0, or -errno with a sentence. */
int shadow_reserve(char *reason, size_t cap);
bool shadow_is_reserved(void);
void shadow_unreserve(void);
/* Moves the page tables of r to its shadow and sets r->shadow; or those of a part of r back. The
 * mapping that they leave stays, empty. Returns: 0, or -errno and nothing has changed. */
int shadow_move_out(struct guard_range *r);
int shadow_move_back(struct guard_range *r, uintptr_t start, uintptr_t end);
/* All tables of r are back, or abandoned. */
void shadow_end(struct guard_range *r);
/* Arms and releases memory like the arena's. Returns: 0, or -errno with a sentence. */
int shadow_trial(const struct guard_kind *kind, char *reason, size_t cap);

/* ---- uffd.c ------------------------------------------------------------------------------ */

/* guard_uffd.open() without its threads: uffd_has_threads() starts them. */
__attribute__((cold))
int uffd_open(char *reason, size_t cap);
/*
 * For guard_wait_begin(): in a thread that serves faults another one takes over reading them.
 * Returns: whether this is such a thread.
 */
bool uffd_wait_begin(void);
/* Starts enough threads for so many armed ranges. Returns: false when one could not be started. */
bool uffd_has_threads(uint32_t ranges);
void uffd_after_fork_child(void);

#endif
