/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that share an address space (sluice run --endpoints=N). A program that knows it can hand
 * out pointers instead of copies, and give its processor to a rank that has work.
 *
 * All functions may be called from program start to end, with Sluice or without it: without Sluice,
 * without --endpoints, or where the rank had to stay a process, it is alone. No library has to be
 * linked.
 *
 * Threads: any thread may call any function at any time. They take no locks; all but
 * sluice_endpoints_yield() are async-signal-safe.
 */
#ifndef SLUICE_ENDPOINTS_API_H
#define SLUICE_ENDPOINTS_API_H

#include <stddef.h>
#include <sched.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sluice_endpoints_calls {
	int (*here)(int *ranks, int cap);
	int (*yield)(void);
	void (*offer)(void *pointer);
	void *(*pointer)(int rank);
};
#if defined(__GNUC__) && !defined(SLUICE_STRONG)
__attribute__((weak))
#endif
const struct sluice_endpoints_calls *sluice_endpoints(void);

#ifndef SLUICE_STRONG

/*
 * Writes which other ranks share the address space of this one, by their ranks in MPI_COMM_WORLD,
 * at most cap of them. Complete once MPI_Init has returned; ranks that have ended are not there.
 * Returns: how many there are, which may exceed cap; 0: this rank is alone.
 */
static inline int sluice_endpoints_here(int *ranks, int cap)
{
	return sluice_endpoints ? sluice_endpoints()->here(ranks, cap) : 0;
}

/*
 * Gives the processor to ranks that are ready, as a rank does that waits in an MPI function. For
 * loops that wait for another rank by other means: a flag in memory, for example.
 */
static inline void sluice_endpoints_yield(void)
{
	if (sluice_endpoints)
		sluice_endpoints()->yield();
	else
		sched_yield();
}

/*
 * Offers a pointer to the ranks that share this address space; NULL takes it back. What was
 * written before is visible to who gets the pointer. The memory is the rank's own: the program has
 * to see to it that it stays while others use it, and only its owner may free() it.
 */
static inline void sluice_endpoints_offer(void *pointer)
{
	if (sluice_endpoints)
		sluice_endpoints()->offer(pointer);
}

/*
 * Returns: what the rank in MPI_COMM_WORLD offers, which this one may read and write directly;
 * NULL: it is in another address space, has ended, or offers nothing (yet).
 */
static inline void *sluice_endpoints_pointer(int rank)
{
	return sluice_endpoints ? sluice_endpoints()->pointer(rank) : NULL;
}

#endif
#ifdef __cplusplus
}
#endif

#endif
