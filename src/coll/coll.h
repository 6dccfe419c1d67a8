/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * coll: describes one collective: its kind, one rank's call, and one rank's flat operations. Pure.
 *
 *   struct coll_call   (mpi/ fills it)   --coll_build-->   struct coll_schedule   (exec/ runs it)
 *
 * Inside a node every collective is flat: each rank sends each other rank's part directly to it,
 * and copies its own part. No operation waits for another, so any mover can move any byte at any
 * time (doc/adr/0020-flat-collectives.md). Offsets are relative to a rank's own buffers; only the
 * byte counts must agree between ranks.
 *
 * Reductions have no flat operations: see reduce/.
 */
#ifndef SLUICE_COLL_H
#define SLUICE_COLL_H

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

/* ---- one rank's call --------------------------------------------------------------------- */

/* Bytes of a buffer that one partner gets or gives; 0 bytes: no transfer. */
struct coll_part {
	uint64_t off, bytes; /* off: in the buffer, or in its packed form */
};

/*
 * A buffer of the program: `bytes` of packed data, at addr when contiguous. Otherwise mpi/
 * converts: pack() writes bytes [off, off+len) of the packed form to out, unpack() is its inverse.
 * Both return 0 or -errno.
 */
struct coll_buf {
	void *addr;
	uint64_t bytes;
	bool is_shared; /* the bytes between the parts may change meanwhile */
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

/* ---- flat operations --------------------------------------------------------------------- */

/*
 * The buffers of a rank. A single buffer, as in a broadcast or an allgather in place, is COLL_SEND
 * on every rank.
 */
enum coll_buffer { COLL_SEND, COLL_RECV, COLL_BUFFERS };

enum coll_op_type { COLL_OP_NONE, COLL_OP_RECV, COLL_OP_SEND, COLL_OP_COPY };

/* In shared memory once exec/ has published it: fixed width, no padding. */
struct coll_flat_op {
	uint8_t type, buf; /* buf: the one sent from, received into, or copied to */
	uint8_t src_buf;   /* copy */
	uint8_t unused;
	uint32_t peer;
	uint32_t tag;   /* a send matches the receive of its peer with the same tag */
	uint32_t match; /* send: index of that receive among the peer's operations, a hint */
	uint64_t off, bytes;
	uint64_t src_off; /* copy */
};

/*
 * Receives first, ordered by sending rank, then sends, ordered by receiving rank, then a copy: each
 * end of a transfer can estimate the other's index.
 */
struct coll_schedule {
	struct coll_flat_op *ops;
	uint32_t count, recv_count;
};

/*
 * send, recv: the parts that this rank sends and receives.
 *
 *   kind                send                 recv                   in_place
 *   bcast               [1], of every rank   -                      -
 *   gather              [1]                  [ranks], of the root   the root's part is in place
 *   scatter             [ranks], of the root [1]                    the root's part stays
 *   allgather           [1]; not in place    [ranks]                recv[rank] is sent; all of it
 *                                                                   in COLL_SEND
 *   alltoall            [ranks]              [ranks]                the own part is in place
 *                                                                   (send: a copy)
 *   neighbor_allgather  [1]                  [source_count]         -
 *   neighbor_alltoall   [target_count]       [source_count]         -
 */
struct coll_shape {
	enum coll kind; /* not a reduction */
	int rank, ranks, root;
	const struct coll_part *send, *recv;
	bool in_place;
	/*
	 * neighbours, in the order of their parts; negative: none. The k-th send to a rank matches
	 * its k-th receive from this one.
	 */
	const int *sources, *targets;
	int source_count, target_count;
};

/* Most operations of a rank in a collective without neighbours; with them, one per neighbour. */
static inline uint32_t coll_ops_max(int ranks) { return 2 * (uint32_t)ranks; }

/* Fill ops[cap] and *out, which refers to ops. Returns: 0 or -E2BIG. */
int coll_build(const struct coll_shape *s, struct coll_flat_op *ops, uint32_t cap,
	       struct coll_schedule *out);

#endif
