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

#include "rt/rt.h"

/* id, family: its option and counters (barriers: nonblocking ones only); is_local: ranks do not
 * know each other's counts. */
#define COLL_LIST(X)                                 \
	X(BCAST, BCAST, false)                            \
	X(GATHER, GATHER, false)                          \
	X(GATHERV, GATHER, true)                          \
	X(SCATTER, SCATTER, false)                        \
	X(SCATTERV, SCATTER, true)                        \
	X(ALLGATHER, ALLGATHER, false)                    \
	X(ALLGATHERV, ALLGATHER, false)                   \
	X(ALLTOALL, ALLTOALL, false)                      \
	X(ALLTOALLV, ALLTOALL, true)                      \
	X(ALLTOALLW, ALLTOALL, true)                      \
	X(REDUCE, REDUCE, false)                          \
	X(ALLREDUCE, ALLREDUCE, false)                    \
	X(REDUCE_SCATTER, REDUCE_SCATTER, false)          \
	X(REDUCE_SCATTER_BLOCK, REDUCE_SCATTER, false)    \
	X(SCAN, SCAN, false)                              \
	X(EXSCAN, SCAN, false)                            \
	X(BARRIER, BARRIER, false)                        \
	X(NEIGHBOR_ALLGATHER, NEIGHBOR, true)             \
	X(NEIGHBOR_ALLGATHERV, NEIGHBOR, true)            \
	X(NEIGHBOR_ALLTOALL, NEIGHBOR, true)              \
	X(NEIGHBOR_ALLTOALLV, NEIGHBOR, true)             \
	X(NEIGHBOR_ALLTOALLW, NEIGHBOR, true)

enum coll {
#define X(id, family, is_local) RT_##id,
	COLL_LIST(X)
#undef X
	COLL_COUNT
};

static inline bool coll_is_local(enum coll kind)
{
	static const bool is_local[COLL_COUNT] = {
#define X(id, family, is_local) is_local,
		COLL_LIST(X)
#undef X
	};

	return is_local[kind];
}

/* Is something computed, or only moved? */
static inline bool coll_is_reduce(enum coll kind) { return kind >= COLL_REDUCE && kind <= COLL_EXSCAN; }

/*
 * Smallest message in bytes (of one rank, or for one rank, as all of them know it) that is taken;
 * UINT64_MAX while off or for a kind that is switched off. Kinds whose counts ranks do not share
 * are taken or not, whatever their size: 0 or UINT64_MAX. One load: small calls must cost nothing.
 */
extern uint64_t rt_threshold_bytes[COLL_COUNT];
/* Smaller ones go to the library without another look: the same, but 0 while calls are traced. */
extern uint64_t rt_gate_bytes[COLL_COUNT];
static inline bool rt_is_off(enum coll kind) { return rt_threshold_bytes[kind] == UINT64_MAX; }

/* What goes to, or comes from, one partner. */
struct coll_part {
	uint64_t off, bytes; /* off: in the buffer; in its packed form where it is packed */
};

/* What a rank brings, or what it wants. */
struct coll_side {
	struct coll_buf buf; /* contiguous: all the memory that the parts lie in; else their packed
			    * form, in order and without gaps */
	const struct coll_part
		*parts; /* by rank or by neighbour; one where all get or give the same */
	int count;                    /* 0: this rank has no such side */
};

/* What is computed, element by element. */
enum goal_type { GOAL_NOP, GOAL_ADD, GOAL_MUL, GOAL_MAX, GOAL_MIN, GOAL_AND, GOAL_OR, GOAL_XOR };
enum goal_dtype {
	GOAL_DTYPE_COUNT,
	GOAL_I8,
	GOAL_I16,
	GOAL_I32,
	GOAL_I64,
	GOAL_U8,
	GOAL_U16,
	GOAL_U32,
	GOAL_U64,
	GOAL_F32,
	GOAL_F64
};

struct coll_reduce {
	enum goal_type
		op; /* both RT_..._OTHER: by combine() only, and inside this process's calls only */
	enum goal_dtype type;
	uint64_t element_bytes; /* packed */
	/* inout[i] = in[i] op inout[i], for so many packed elements; 0 or -errno */
	int (*combine)(void *ctx, const void *in, void *inout, uint64_t count);
	void *ctx;
	bool commutes;
};

struct coll_call {
	enum coll kind;
	int root;                  /* -1: none */
	struct coll_side send, recv; /* of a broadcast: send only, on every rank. A root-only side:
				      count 0 elsewhere */
	/* The own part is where it belongs. Gather, allgather: there is no send side; scatter: no
	 * receive side, at the root. All-to-all, reductions: both sides are the same memory. */
	bool in_place;
	uint64_t bytes;            /* one rank's message as all ranks know it; 0: they do not */
	struct coll_reduce reduce;
	const int *sources, *targets; /* neighbours, for each part received, and for each that gets
					 one; negative: nobody */
	int target_count;
	const char *name;          /* "MPI_Bcast"; static */
	/* tells one place in the program from another, for policy and messages: where the MPI call
	 * returns to; NULL: not known */
	const void *site;
};

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
