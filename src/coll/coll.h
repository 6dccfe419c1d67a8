/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * coll: the types that describe a collective, from the MPI call to its execution: the kind, the
 * parts of a buffer, one rank's call. Types only, no functions but tables of the kinds.
 *
 *   mpi/ fills a struct coll_call -> rt/ opens its buffers -> exec/ publishes and runs it
 */
#ifndef SLUICE_COLL_H
#define SLUICE_COLL_H

#include "base/base.h"
#include "goal/goal.h"

/*
 * Every MPI collective that Sluice knows. X(id, pattern, family, is_local):
 * pattern   the collective that moves data between the same ranks: the one without v or w
 * family    the family whose option and counters apply (enum base_family)
 * is_local  a rank does not know the counts of the others
 */
#define COLL_LIST(X)                                                       \
	X(BCAST, BCAST, BCAST, false)                                      \
	X(GATHER, GATHER, GATHER, false)                                   \
	X(GATHERV, GATHER, GATHER, true)                                   \
	X(SCATTER, SCATTER, SCATTER, false)                                \
	X(SCATTERV, SCATTER, SCATTER, true)                                \
	X(ALLGATHER, ALLGATHER, ALLGATHER, false)                          \
	X(ALLGATHERV, ALLGATHER, ALLGATHER, false)                         \
	X(ALLTOALL, ALLTOALL, ALLTOALL, false)                             \
	X(ALLTOALLV, ALLTOALL, ALLTOALL, true)                             \
	X(ALLTOALLW, ALLTOALL, ALLTOALL, true)                             \
	X(REDUCE, REDUCE, REDUCE, false)                                   \
	X(ALLREDUCE, ALLREDUCE, ALLREDUCE, false)                          \
	X(REDUCE_SCATTER, REDUCE_SCATTER, REDUCE_SCATTER, false)           \
	X(REDUCE_SCATTER_BLOCK, REDUCE_SCATTER, REDUCE_SCATTER, false)     \
	X(SCAN, SCAN, SCAN, false)                                         \
	X(EXSCAN, EXSCAN, SCAN, false)                                     \
	X(BARRIER, BARRIER, BARRIER, false)                                \
	X(NEIGHBOR_ALLGATHER, NEIGHBOR_ALLGATHER, NEIGHBOR, true)          \
	X(NEIGHBOR_ALLGATHERV, NEIGHBOR_ALLGATHER, NEIGHBOR, true)         \
	X(NEIGHBOR_ALLTOALL, NEIGHBOR_ALLTOALL, NEIGHBOR, true)            \
	X(NEIGHBOR_ALLTOALLV, NEIGHBOR_ALLTOALL, NEIGHBOR, true)           \
	X(NEIGHBOR_ALLTOALLW, NEIGHBOR_ALLTOALL, NEIGHBOR, true)

enum coll {
#define X(id, pattern, family, is_local) COLL_##id,
	COLL_LIST(X)
#undef X
	COLL_COUNT
};

static inline enum coll coll_pattern(enum coll kind)
{
	static const uint8_t patterns[COLL_COUNT] = {
#define X(id, pattern, family, is_local) COLL_##pattern,
		COLL_LIST(X)
#undef X
	};

	return (enum coll)patterns[kind];
}

static inline enum base_family coll_family(enum coll kind)
{
	static const uint8_t families[COLL_COUNT] = {
#define X(id, pattern, family, is_local) BASE_FAMILY_##family,
		COLL_LIST(X)
#undef X
	};

	return (enum base_family)families[kind];
}

static inline bool coll_is_local(enum coll kind)
{
	static const bool is_local[COLL_COUNT] = {
#define X(id, pattern, family, is_local) is_local,
		COLL_LIST(X)
#undef X
	};

	return is_local[kind];
}

/* Does the collective combine elements, or only move them? */
static inline bool coll_is_reduce(enum coll kind)
{
	return kind >= COLL_REDUCE && kind <= COLL_EXSCAN;
}

/* Does each rank get the combination of the ranks up to itself? */
static inline bool coll_is_prefix(enum coll kind)
{
	return kind == COLL_SCAN || kind == COLL_EXSCAN;
}

/*
 * The buffers of a rank. A single buffer, as in a broadcast or an allgather in place, is COLL_SEND
 * on every rank.
 */
enum coll_buffer { COLL_SEND, COLL_RECV, COLL_BUFFERS };

/* ---- one rank's call --------------------------------------------------------------------- */

struct layout; /* layout/layout.h */

/* Bytes of a buffer that one partner gets or gives; 0 bytes: no transfer. */
struct coll_part {
	uint64_t off, bytes; /* off: in the buffer, or in its packed form */
};

/*
 * A buffer of the program: `bytes` of packed data, at addr when contiguous. Otherwise mpi/
 * converts: pack() writes bytes [off, off+len) of the packed form to out, unpack() is its inverse.
 * Both return 0 or -errno. A buffer with gaps may have a layout for each part besides.
 */
struct coll_buf {
	void *addr;
	uint64_t bytes;
	bool is_shared; /* the bytes between the parts may change meanwhile */
	/* by part: where its bytes lie, from the first page of the hull on; NULL: unknown */
	const struct layout *layouts;
	void *hull; /* memory that holds all parts and their gaps */
	uint64_t hull_bytes;
	int (*pack)(void *ctx, uint64_t off, uint64_t len, void *out);
	int (*unpack)(void *ctx, uint64_t off, uint64_t len, const void *in);
	void *ctx;
};

/* One rank's send side or receive side. */
struct coll_side {
	/*
	 * contiguous: the memory that holds all parts; else their packed form, in order, without
	 * gaps
	 */
	struct coll_buf buf;
	const struct coll_part
		*parts; /* by rank or by neighbour; one when all partners get or give the same */
	int count;      /* 0: this rank has no such side */
};

/*
 * The order in which the values of the ranks are combined, except in prefix reductions: that of
 * recursive doubling, which most host MPIs have for most sizes of MPI_Allreduce. With q the largest
 * power of two up to the number of ranks, the first ranks are combined in pairs until q values
 * remain, and these as a balanced tree:
 *
 *   4 ranks  (0 1) (2 3)        5 ranks  ((0 1) 2) (3 4)        7 ranks  ((0 1) (2 3)) ((4 5) 6)
 *
 * A stack evaluates the order: push each rank, then combine the two topmost values as often as
 * coll_combines_after() says. The stack is at most coll_combine_depth() high.
 */
static inline uint32_t coll_combines_after(uint32_t ranks, uint32_t rank)
{
	uint32_t power = 1u << (31 - __builtin_clz(ranks)), paired = 2 * (ranks - power);

	if (rank >= paired)
		return (uint32_t)__builtin_ctz(~(rank - paired / 2));
	return rank % 2 ? 1 + (uint32_t)__builtin_ctz(~(rank / 2)) : 0;
}

static inline uint32_t coll_combine_depth(uint32_t ranks)
{
	return 32 - (uint32_t)__builtin_clz(ranks);
}

/* The operation that combines elements. */
struct coll_reduce {
	/*
	 * GOAL_ADD ... GOAL_XOR on elements of `type`; GOAL_NOP: only combine(), only inside calls
	 * of this process
	 */
	enum goal_type op;
	enum goal_dtype type;
	uint64_t element_bytes; /* packed */
	/* inout[i] = in[i] op inout[i], for `count` packed elements; 0 or -errno */
	int (*combine)(void *ctx, const void *in, void *inout, uint64_t count);
	void *ctx;
	bool commutes;
	uint32_t float_modes; /* of the thread that made the call: os_float_modes() */
};

/* One rank's arguments of a collective. */
struct coll_call {
	enum coll kind;
	int root;                    /* -1: none */
	/*
	 * a broadcast: send only, on every rank. A side that only the root has: count 0 elsewhere
	 */
	struct coll_side send, recv;
	/*
	 * This rank's own part is in place. Gather and allgather then have no send side, scatter no
	 * receive side, at the root. In all-to-all and reductions both sides are the same memory.
	 */
	bool in_place;
	uint64_t bytes;              /* one rank's message when all ranks know its size, else 0 */
	struct coll_reduce reduce;
	/* neighbours, one per received part and one per sent part; negative: none */
	const int *sources, *targets;
	int target_count;
	const char *name;            /* "MPI_Bcast"; static */
	/*
	 * Return address of the MPI call, which identifies the call site for policy and messages;
	 * NULL: unknown.
	 */
	const void *site;
};

#endif
