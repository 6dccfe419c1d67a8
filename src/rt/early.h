/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * early: operations that the program believes to be finished while their data is still moving.
 *
 *   rt_bcast ... -> exec_begin, settle -> [policy: early] -> guard armed, run detached -> returns
 *                                          later: touch / overlapping call / complete-all ->
 * retired
 *
 * mpi/ asks before each call that could observe a pending operation. All of it costs one relaxed
 * load while nothing is pending.
 */
#ifndef SLUICE_RT_EARLY_H
#define SLUICE_RT_EARLY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reasons to intercept MPI calls: pending operations, requests, open questions. While it is 0 the
 * trampolines lead straight to the host MPI. */
extern _Atomic uint32_t rt_intercept_refs;
static inline bool rt_is_intercepting(void)
{
	return __builtin_expect(atomic_load_explicit(&rt_intercept_refs, memory_order_relaxed) != 0,
				0);
}
/* Adds a reason; rt_intercept_unref() removes one. */
static inline void rt_intercept_ref(void)
{
	atomic_fetch_add_explicit(&rt_intercept_refs, 1, memory_order_release);
}
static inline void rt_intercept_unref(void)
{
	atomic_fetch_sub_explicit(&rt_intercept_refs, 1, memory_order_release);
}
/* Number of pending operations: the call has returned, and the operation is not retired. */
extern _Atomic uint32_t rt_pending;
static inline bool rt_has_pending(void)
{
	return __builtin_expect(atomic_load_explicit(&rt_pending, memory_order_relaxed) != 0, 0);
}

/* Complete every pending operation whose buffer (all bytes, not pages) overlaps [addr, addr +
 * bytes). A reader only needs what is being written; a writer everything. Returns when they are.
 * Blocks as the collective would have. Context: not in signal handlers, not inside the host MPI. */
void rt_complete_range(const void *addr, uint64_t bytes);
/* Completes every pending operation. */
void rt_complete_all(void);
/* Retires some completed operations; never waits. For MPI calls that complete nothing. */
void rt_reap(void);

/* Around a call of the host MPI that is made while something is pending: its system calls are not
 * looked at (they cannot meet guarded memory: overlapping operations were completed first). */
void rt_host_begin(void);
void rt_host_end(void);

#endif
