/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * collective: blocking collectives. struct coll_call describes the arguments of one rank.
 *
 *   mpi/ --struct coll_call--> rt_collective()   blocking; may return early (rt/early.h)
 *
 * Ranks admit a call by facts that all of them share. rt_collective() handles memory that cannot be
 * mapped and types with gaps.
 */
#ifndef SLUICE_RT_COLLECTIVE_H
#define SLUICE_RT_COLLECTIVE_H

#include "coll/coll.h"
#include "policy/gate.h"
#include "rt/rt.h"

/* The gates decide by size which calls are admitted. */
extern struct coll_gate rt_gates[COLL_FORMS][COLL_COUNT];
/* Returns: the options in force that set the gates. */
struct policy_options rt_policy_options(void);

/*
 * Decides whether rt_collective() or the host MPI executes a call. All ranks decide alike, by kind
 * and size and by whether ranks reuse their buffers. `call`: NULL where this rank cannot prepare
 * the call.
 * Returns: 1 (rt_collective()), 0 (host MPI), or -errno as rt_collective().
 * Context: collective.
 */
int rt_admit(struct rt_comm *c, enum coll kind, uint64_t bytes, const struct coll_call *call);
/*
 * Executes the call.
 * Returns: 0; -EOWNERDEAD when a peer died (a message is on stderr); -EREMOTEIO when peers disagree
 * about a byte count; another -errno when the data is undefined.
 * Context: collective.
 */
int rt_collective(struct rt_comm *c, const struct coll_call *call);
/* Withdraws this rank from an admitted call: the other ranks get an error instead of a hang. */
void rt_abandon(struct rt_comm *c, const struct coll_call *call, int error);

#endif
