/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * collective: a collective as mpi/ describes it: what this rank brings, what it wants, from whom
 * and for whom.
 *
 *   mpi/ --struct coll_call--> rt_collective()   blocking; may return early (rt/early.h)
 *
 * A call is taken or not by facts that all ranks share; everything else about it (memory that
 * cannot be mapped, types with gaps) is dealt with inside.
 */
#ifndef SLUICE_RT_COLLECTIVE_H
#define SLUICE_RT_COLLECTIVE_H

#include "coll/coll.h"
#include "rt/rt.h"

/*
 * Smallest message in bytes (of one rank, or for one rank, as all of them know it) that is taken;
 * UINT64_MAX while off or for a kind that is switched off. Kinds whose counts ranks do not share
 * are taken or not, whatever their size: 0 or UINT64_MAX. One load: small calls must cost nothing.
 */
extern uint64_t rt_threshold_bytes[COLL_COUNT];
/* Smaller ones go to the library without another look: the same, but 0 while calls are traced. */
extern uint64_t rt_gate_bytes[COLL_COUNT];
static inline bool rt_is_off(enum coll kind) { return rt_threshold_bytes[kind] == UINT64_MAX; }

/*
 * Collective: is this call rt_collective()'s, or the library's? All ranks come to the same, by kind
 * and size, and by whether they use their buffers again. `call`: NULL where this rank cannot
 * prepare it. 1, 0, or -errno as of rt_collective().
 */
int rt_takes(struct rt_comm *c, enum coll kind, uint64_t bytes, const struct coll_call *call);
/* By kind and size alone? Before there is a communicator. */
extern uint64_t rt_always_bytes[COLL_COUNT];
static inline bool rt_takes_always(enum coll kind, uint64_t bytes)
{
	return bytes >= rt_always_bytes[kind];
}

/*
 * Collective. Returns 0; -EOWNERDEAD when a peer died (message already on stderr); -EREMOTEIO when
 * peers disagree about a byte count; other -errno for failures after which data is undefined.
 */
int rt_collective(struct rt_comm *c, const struct coll_call *call);
/* This rank cannot take part after all: the others get an error, not a hang. */
void rt_abandon(struct rt_comm *c, const struct coll_call *call, int error);

#endif
