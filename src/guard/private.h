/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of guard/ only.
 *
 *   guard.c     the armed ranges, sorted by address, under one lock; choice of the kind
 *   steal.c     a kind each: how the pages of a range are closed and opened
 *   mprotect.c
 *   uffd.c
 *   fault.c     SIGSEGV
 *   (signals.c dispatch.c threads.c: system.h)
 *
 * Functions whose name ends in _sig may run in a signal handler of ours: every signal is blocked, the
 * thread may have been interrupted anywhere, except where it held the lock of this folder or was between
 * guard_enter() and guard_leave().
 */
#ifndef SLUICE_GUARD_PRIVATE_H
#define SLUICE_GUARD_PRIVATE_H

#include "guard/guard.h"

/* ---- for the handlers of SIGSEGV and SIGSYS, and the uffd threads ---------------------------------- */

/* Is any byte of [start, end) out of reach for this kind of access? Takes the lock. What it says may be
 * out of date a moment later: ranges are only armed by calls of the program's. */
bool guard_find_sig(uintptr_t start, uintptr_t end, bool write);
/*
 * Nothing of [start, start + bytes) is out of reach for this kind of access when it returns: each armed
 * range that overlaps gets hold() under the lock and then touched(). Returns whether there was one.
 * Context: as touched().
 */
bool guard_touch_sig(uintptr_t start, size_t bytes, bool write);
/* Nothing is armed when it returns: the owner's complete_all(), if anything is armed at all. */
void guard_complete_all_sig(void);

#endif
