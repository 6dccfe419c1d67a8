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
#include "policy/gate.h"
#include "rt/rt.h"

/* Which calls are admitted: one load and one compare for a small call. */
extern struct coll_gate rt_gates[COLL_FORMS][COLL_COUNT];
/* The options in force that decide this. */
struct policy_options rt_policy_options(void);

/*
 * Collective: is this call rt_collective()'s, or the library's? All ranks come to the same, by kind
 * and size, and by whether they use their buffers again. `call`: NULL where this rank cannot
 * prepare it. 1, 0, or -errno as of rt_collective().
 */
int rt_takes(struct rt_comm *c, enum coll kind, uint64_t bytes, const struct coll_call *call);
/*
 * Collective. Returns 0; -EOWNERDEAD when a peer died (message already on stderr); -EREMOTEIO when
 * peers disagree about a byte count; other -errno for failures after which data is undefined.
 */
int rt_collective(struct rt_comm *c, const struct coll_call *call);
/* This rank cannot take part after all: the others get an error, not a hang. */
void rt_abandon(struct rt_comm *c, const struct coll_call *call, int error);

#endif
