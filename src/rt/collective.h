/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * collective: a collective as mpi/ describes it: what this rank brings, what it wants, from whom
 * and for whom.
 *
 *   mpi/ --struct rt_call--> rt_collective()   blocking; may return early (rt/early.h)
 *
 * A call is taken or not by facts that all ranks share; everything else about it (memory that
 * cannot be mapped, types with gaps) is dealt with inside.
 */
#ifndef SLUICE_RT_COLLECTIVE_H
#define SLUICE_RT_COLLECTIVE_H

#include "rt/rt.h"

/* id, family: its option and counters (barriers: nonblocking ones only); is_local: ranks do not
 * know each other's counts. */
#define RT_COLLECTIVES(X)                                 \
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

enum rt_kind {
#define X(id, family, is_local) RT_##id,
	RT_COLLECTIVES(X)
#undef X
	RT_KINDS
};

static inline bool rt_is_local(enum rt_kind kind)
{
	static const bool is_local[RT_KINDS] = {
#define X(id, family, is_local) is_local,
		RT_COLLECTIVES(X)
#undef X
	};

	return is_local[kind];
}

/* Is something computed, or only moved? */
static inline bool rt_is_reduce(enum rt_kind kind) { return kind >= RT_REDUCE && kind <= RT_EXSCAN; }

/*
 * Smallest message in bytes (of one rank, or for one rank, as all of them know it) that is taken;
 * UINT64_MAX while off or for a kind that is switched off. Kinds whose counts ranks do not share
 * are taken or not, whatever their size: 0 or UINT64_MAX. One load: small calls must cost nothing.
 */
extern uint64_t rt_threshold_bytes[RT_KINDS];
/* Smaller ones go to the library without another look: the same, but 0 while calls are traced. */
extern uint64_t rt_gate_bytes[RT_KINDS];
static inline bool rt_is_off(enum rt_kind kind) { return rt_threshold_bytes[kind] == UINT64_MAX; }

/* What goes to, or comes from, one partner. */
struct rt_part {
	uint64_t off, bytes; /* off: in the buffer; in its packed form where it is packed */
};

/* What a rank brings, or what it wants. */
struct rt_side {
	struct rt_buf buf; /* contiguous: all the memory that the parts lie in; else their packed
			    * form, in order and without gaps */
	const struct rt_part
		*parts; /* by rank or by neighbour; one where all get or give the same */
	int count;                    /* 0: this rank has no such side */
};

/* What is computed, element by element. */
enum rt_op { RT_OP_OTHER, RT_SUM, RT_PROD, RT_MAX, RT_MIN, RT_AND, RT_OR, RT_XOR };
enum rt_type {
	RT_TYPE_OTHER,
	RT_I8,
	RT_I16,
	RT_I32,
	RT_I64,
	RT_U8,
	RT_U16,
	RT_U32,
	RT_U64,
	RT_F32,
	RT_F64
};

struct rt_reduce {
	enum rt_op
		op; /* both RT_..._OTHER: by combine() only, and inside this process's calls only */
	enum rt_type type;
	uint64_t element_bytes; /* packed */
	/* inout[i] = in[i] op inout[i], for so many packed elements; 0 or -errno */
	int (*combine)(void *ctx, const void *in, void *inout, uint64_t count);
	void *ctx;
	bool commutes;
};

struct rt_call {
	enum rt_kind kind;
	int root;                  /* -1: none */
	struct rt_side send, recv; /* of a broadcast: send only, on every rank. A root-only side:
				      count 0 elsewhere */
	/* The own part is where it belongs. Gather, allgather: there is no send side; scatter: no
	 * receive side, at the root. All-to-all, reductions: both sides are the same memory. */
	bool in_place;
	uint64_t bytes;            /* one rank's message as all ranks know it; 0: they do not */
	struct rt_reduce reduce;
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
int rt_takes(struct rt_comm *c, enum rt_kind kind, uint64_t bytes, const struct rt_call *call);
/* By kind and size alone? Before there is a communicator. */
extern uint64_t rt_always_bytes[RT_KINDS];
static inline bool rt_takes_always(enum rt_kind kind, uint64_t bytes)
{
	return bytes >= rt_always_bytes[kind];
}

/*
 * Collective. Returns 0; -EOWNERDEAD when a peer died (message already on stderr); -EREMOTEIO when
 * peers disagree about a byte count; other -errno for failures after which data is undefined.
 */
int rt_collective(struct rt_comm *c, const struct rt_call *call);
/* This rank cannot take part after all: the others get an error, not a hang. */
void rt_abandon(struct rt_comm *c, const struct rt_call *call, int error);

#endif
