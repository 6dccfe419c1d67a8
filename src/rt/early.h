/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * early: pending operations. The call has returned to the program, and data still moves.
 *
 *   rt_collective() -> exec_begin, settle -> [policy: early] -> guard armed, run detached
 *                 -> returns; later: touch, overlapping call or complete-all -> retired
 *
 * mpi/ completes pending operations before each call that could observe one. A check costs one
 * relaxed load while nothing is pending.
 */
#ifndef SLUICE_RT_EARLY_H
#define SLUICE_RT_EARLY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Number of reasons to intercept MPI calls: pending operations, requests, open questions. At 0 the
 * trampolines jump straight to the host MPI. */
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
/* Number of these reasons for which a blocking collective looks at its communicator first:
 * comm_state_sync(). */
extern _Atomic uint32_t rt_sync_refs;
static inline bool rt_is_syncing(void)
{
	return atomic_load_explicit(&rt_sync_refs, memory_order_relaxed) != 0;
}
static inline void rt_sync_ref(void)
{
	atomic_fetch_add_explicit(&rt_sync_refs, 1, memory_order_relaxed);
	rt_intercept_ref();
}
static inline void rt_sync_unref(void)
{
	atomic_fetch_sub_explicit(&rt_sync_refs, 1, memory_order_relaxed);
	rt_intercept_unref();
}
/* Several threads may be in MPI although the communicators were made without
 * MPI_THREAD_MULTIPLE. */
extern _Atomic bool rt_expects_threads;
static inline void rt_expect_threads(void)
{
	atomic_store_explicit(&rt_expects_threads, true, memory_order_relaxed);
}
/* Number of pending operations: the call has returned, and the operation is not retired. */
extern _Atomic uint32_t rt_pending;
static inline bool rt_has_pending(void)
{
	return __builtin_expect(atomic_load_explicit(&rt_pending, memory_order_relaxed) != 0, 0);
}

/* Completes every pending operation whose buffer (bytes, not pages) overlaps [addr, addr + bytes).
 * Context: not in signal handlers, not inside the host MPI; blocks as the collective would have. */
void rt_complete_range(const void *addr, uint64_t bytes);
/* Completes every pending operation. */
void rt_complete_all(void);
/* Retires some completed operations, for MPI calls that complete nothing. Context: never waits. */
void rt_reap(void);

/* Enclose a call of the host MPI while an operation is pending. The guard does not check system
 * calls in between: mpi/ has completed overlapping operations, so no system call meets guarded
 * memory. */
void rt_host_begin(void);
void rt_host_end(void);

#endif
