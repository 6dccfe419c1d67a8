/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rt: the runtime of a process: start and end, communicators, collectives, requests, pending
 * operations. rt/ is the only folder that knows all others. mpi/ calls rt/; rt/ calls MPI only
 * through the struct node_oob of mpi/.
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
 * Loads the options and decides whether Sluice runs in this process. Rank 0, or an unknown rank,
 * reports each wrong option in one line. world_rank: for messages; -1: not known yet. world_size:
 * of MPI_COMM_WORLD; fewer ranks than the launcher started are reported.
 * Returns: whether rt_stop() must follow: rt_is_on(), or calls are traced.
 * Context: any thread; idempotent.
 */
bool rt_start(int world_rank, int world_size);
/*
 * Tells the job's other processes that Sluice runs here, right before the host MPI's MPI_Init.
 * prefer_pmix: PMIx starts the host MPI (Open MPI); library_version: text of
 * MPI_Get_library_version ("": none), which selects the tune file (tune/).
 */
void rt_announce(bool prefer_pmix, const char *library_version);
/* Returns: whether all these ranks of MPI_COMM_WORLD run Sluice on this machine with the same
 * options; the same on every rank. Context: before rt_comm_create(), which is collective. */
bool rt_are_all_present(const int *world_ranks, int n);
/* Identity of this rank for other machines. agreed: hash of all values that ranks must agree on;
 * 0: Sluice is off. */
struct rt_identity { uint64_t node, agreed; };
void rt_identity(struct rt_identity *out);
/* Reports counters; Sluice passes on every later call. Context: in MPI_Finalize. */
void rt_stop(void);

/* Whether messages are served or collectives may be admitted; rt/collective.h selects those. */
extern bool rt_on;
static inline bool rt_is_on(void) { return rt_on; }

/*
 * Creates the node group when all ranks share the machine and reach each other. Otherwise *out is
 * NULL on all ranks, and the log has the reason at level info.
 * Returns: 0 with *out set or NULL; -errno only when a call of oob fails. Context: collective.
 */
int rt_comm_create(const struct node_oob *oob, struct rt_comm **out);
/* Creates a second communicator of these ranks, for persistent requests (rt_lane_allocate()). */
int rt_comm_create_lanes(const struct node_oob *oob, struct rt_comm **out);
void rt_comm_destroy(struct rt_comm *c);
bool rt_comm_is_crowded(
	const struct rt_comm *c); /* ranks share CPUs; the same on every rank */

/*
 * Excludes memory from adoption, and returns adopted pages: the host MPI or a device knows this
 * memory for longer than one call (MPI_Win_create, MPI_Win_attach ...).
 */
void rt_memory_keep_out(const void *addr, uint64_t bytes);

#endif
