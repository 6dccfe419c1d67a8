/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * coll: which schedule a collective is. Pure: builds goal/ schedules from ranks, root and sizes.
 *
 * coll_build() adds one rank's side. Inside a node all of them are flat: each rank sends to each
 * other what that one gets from it, and copies its own part; no operation requires another, so that
 * anyone can move any byte at any time (doc/adr/0020-flat-collectives.md). Offsets are relative to
 * that rank's own buffers; only the byte counts must agree between ranks. Send buffers are
 * COLL_SEND, receive buffers COLL_RECV; where there is one buffer only, a broadcast's and that of
 * an allgather in place, it is COLL_SEND on every rank.
 *
 * What is combined (MPI_Reduce and the like) is no schedule of transfers: reduce/.
 *
 * Ranks of a machine with several memory domains (NUMA nodes, shared caches) may have a second
 * level: what each rank of a domain gets alike, a broadcast's data and an allgather's blocks,
 * enters the domain once, and one of its ranks sends it on to the others there
 * (doc/adr/0028-numa-levels-removed.md). Those sends require its receive.
 */
#ifndef SLUICE_COLL_H
#define SLUICE_COLL_H

#include "goal/goal.h"

#define COLL_SEND GOAL_USER
#define COLL_RECV (GOAL_USER + 1)

enum coll {
	COLL_BCAST,
	COLL_GATHER,
	COLL_SCATTER,
	COLL_ALLGATHER,
	COLL_ALLTOALL,
	COLL_NEIGHBOR_ALLGATHER,
	COLL_NEIGHBOR_ALLTOALL,
	COLL_COUNT
};

/* Which ranks share a memory domain. Domains count from 0 in the order of their first rank. */
struct coll_domains {
	int count;    /* 1: flat */
	bool is_even; /* no rank would send more than in a flat allgather, but for one */
	int *of;      /* [ranks] the rank's domain */
	int *members; /* [ranks] domain by domain, in the order of ranks */
	int *first;   /* [count + 1] of each domain in members */
	int *at;      /* [ranks] which member of its domain the rank is */
};

static inline int coll_domains_words(int ranks) { return 4 * ranks + 1; }
/*
 * words: coll_domains_words() of them, kept as long as *out. number_of: [ranks] any numbers, equal
 * for ranks of one domain. Where nothing is gained by a second level, as each rank has a domain of
 * its own or all share one, count is 1.
 */
void coll_domains_init(struct coll_domains *out, int *words, int ranks, const int *number_of);
/* The rank through which data of rank `from` enters domain d: the members take turns. */
int coll_domains_entry(const struct coll_domains *m, int d, int from);

/* What goes to one partner, or comes from it. No bytes: no transfer. */
struct coll_part { uint64_t off, bytes; };

/*
 * send, recv: what this rank sends and receives.
 *
 *   kind               send                     recv                  in_place
 *   bcast              [1], of every rank       -                     -
 *   gather             [1]                      [ranks], of the root  the root's part is where it
 * belongs scatter            [ranks], of the root     [1]                   the root's part stays
 * where it is allgather          [1]; not when in place   [ranks]               recv[rank] is what
 * is sent; all of it in COLL_SEND alltoall           [ranks]                  [ranks] the own part
 * is there already (send: a copy) neighbor_allgather [1]                      [source_count] -
 *   neighbor_alltoall  [target_count]           [source_count]        -
 */
struct coll_shape {
	enum coll kind;
	int rank, ranks, root;
	const struct coll_part *send, *recv;
	bool in_place;
	/* neighbours, in the order of their parts; negative: nobody. The k-th send to a rank
	 * belongs to its k-th receive from this one. */
	const int *sources, *targets;
	int source_count, target_count;
	const struct coll_domains *domains; /* NULL: flat */
};

/* Operations that a rank's side of a collective without neighbours can have; with them, one for
 * each. Likewise requirements, which only those with domains have. */
static inline uint32_t coll_ops_max(int ranks) { return 2 * (uint32_t)ranks; }

void coll_build(struct goal_build *b, const struct coll_shape *s);

#endif
