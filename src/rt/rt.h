/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rt: the runtime of a process: start and end, communicators, collectives, requests, pending
 * operations. It is the only folder that knows all others. mpi/ calls it; it calls MPI only through
 * struct node_oob, which mpi/ gives at creation.
 *
 *   mpi/  --rt_start-->  --rt_comm_create-->  --rt_collective-->  --rt_comm_destroy-->  --rt_stop
 *                                             (rt/collective.h)
 *
 *   comm/     process.c, comm.c, worker_setup.c
 *   coll/     blocking collectives; pieces.h: piece by piece
 *   request/  nonblocking and persistent collectives; requests.h
 *   early/    returning before data is in place: detach, pending operations; early.h
 *   offload/  movers for work that no rank waits for
 *
 * Threads: calls on different communicators may run at the same time; calls on one communicator are
 * serialised by the rules of MPI. Context: not in signal handlers.
 */
#ifndef SLUICE_RT_H
#define SLUICE_RT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "node/node.h"

struct rt_comm;

/*
 * Load the options and decide whether Sluice runs in this process. Idempotent and thread-safe.
 * `world_rank` is for messages, -1 when not known yet. Rank 0 (or an unknown rank) reports wrong
 * options in one line each. Returns true when collectives may be taken.
 */
bool rt_start(int world_rank);
/*
 * To be called right before the real MPI_Init: lets the job's other processes know that Sluice runs
 * here. prefer_pmix: the MPI is one that is started by PMIx (Open MPI); library_version: what it
 * says of itself ("": nothing), by which the file of what was measured with it is found (tune/).
 */
void rt_announce(bool prefer_pmix, const char *library_version);
/* Do all these ranks of MPI_COMM_WORLD run Sluice on this machine with the same options? The same
 * answer on every rank that asks; to be asked before rt_comm_create(), which is collective. */
bool rt_are_all_present(const int *world_ranks, int n);
/* Identity of a rank for ranks on other machines. agreed: hash of everything that ranks must agree
 * on; 0: Sluice is off. */
struct rt_identity { uint64_t node, agreed; };
void rt_identity(struct rt_identity *out);
/* After it everything is passed on. Reports counters. Called from MPI_Finalize. */
void rt_stop(void);

/* Are collectives taken at all? Which: rt/collective.h. */
extern bool rt_on;
static inline bool rt_is_on(void) { return rt_on; }

/*
 * Collective over the communicator. Creates the node group when every rank shares the machine and
 * can reach the others; otherwise *out is NULL on every rank (agreed by all) and the reason is
 * logged at info level. Returns 0 with *out set or NULL; -errno only when the oob calls fail.
 * `name` is for messages ("communicator of 4 ranks").
 */
int rt_comm_create(const struct node_oob *oob, struct rt_comm **out);
/* A second communicator of the same ranks, for persistent requests (rt_lane_allocate). */
int rt_comm_create_lanes(const struct node_oob *oob, struct rt_comm **out);
void rt_comm_destroy(struct rt_comm *c);
bool rt_comm_is_crowded(
	const struct rt_comm *c); /* fewer CPUs than ranks; the same on every rank */

/*
 * The program has told the host MPI (or a device) about this memory for longer than one call
 * (MPI_Win_create, MPI_Win_attach ...): never adopt it, and give it back if it is adopted.
 */
void rt_memory_keep_out(const void *addr, uint64_t bytes);

#endif
