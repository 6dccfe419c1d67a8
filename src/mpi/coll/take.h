/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * take: a collective that the program calls, whichever function it came by, and what it takes to
 * hand it to rt.
 *
 *   wrapper (collectives.h, generated)  --struct take-->  take_call()        blocking
 *
 *   take_look()      all that is local: would the library refuse this? Is it large enough?
 *   life_connect()   collective; from here on only what all ranks know decides
 *   take_prepare()   sides.c, reduce.c: struct coll_call, packed forms
 *   rt_collective()
 *   take_conclude()  what is still held goes back; errors as the program is to see them
 *
 * Checks go from cheap to dear, and each that fails passes the call on with its arguments as they
 * came: what is wrong is then reported by the library, in its own words.
 */
#ifndef SLUICE_MPI_TAKE_H
#define SLUICE_MPI_TAKE_H

#include "mpi/abi/abi.h"
#include "mpi/coll/traced.h"
#include "rt/collective.h"
#include "rt/requests.h"

#define take_call     ABI_NAME(take_call)
#define take_passed   ABI_NAME(take_passed)
#define take_look     ABI_NAME(take_look)
#define take_prepare  ABI_NAME(take_prepare)
#define take_conclude ABI_NAME(take_conclude)
#define take_conclude_turn ABI_NAME(take_conclude_turn)
#define take_count    ABI_NAME(take_count)
#define sides_size    ABI_NAME(sides_size)
#define sides_look    ABI_NAME(sides_look)
#define sides_prepare ABI_NAME(sides_prepare)
#define sides_flush   ABI_NAME(sides_flush)
#define sides_finish  ABI_NAME(sides_finish)
#define sides_own     ABI_NAME(sides_own)
#define sides_told    ABI_NAME(sides_told)
#define reduce_look    ABI_NAME(reduce_look)
#define reduce_prepare ABI_NAME(reduce_prepare)

/* What functions.table says about a buffer. */
enum take_form {
	TAKE_IS_NOTHING,
	TAKE_IS_BUF,   /* count elements */
	TAKE_IS_EACH,  /* as many for each of `who` */
	TAKE_IS_PART,  /* counts and displacements in elements */
	TAKE_IS_PARTS, /* in bytes, with types */
	TAKE_IS_SUM,   /* the sum of their counts */
};

struct take_side {
	const void *at;
	MPI_Count count;
	MPI_Datatype type;
	const MPI_Datatype *types;
	struct list counts, displs;
	enum take_form form;
	enum front_who who;
	bool at_root; /* means something at the root only */
};

#define TAKE_BUF(at_, count_, type_) .form = TAKE_IS_BUF, .at = at_, .count = count_, .type = type_
#define TAKE_EACH(at_, count_, type_, who_) \
	.form = TAKE_IS_EACH, .at = at_, .count = count_, .type = type_, .who = who_
#define TAKE_PART(at_, counts_, displs_, type_, who_)                                              \
	.form = TAKE_IS_PART, .at = at_, .counts = WIDE(counts_), .displs = WIDE(displs_),         \
	.type = type_, .who = who_
#define TAKE_PARTS(at_, counts_, displs_, types_, who_)                                            \
	.form = TAKE_IS_PARTS, .at = at_, .counts = WIDE(counts_), .displs = WIDE(displs_),        \
	.types = types_, .who = who_
#define TAKE_SUM(at_, counts_, type_, who_) \
	.form = TAKE_IS_SUM, .at = at_, .counts = WIDE(counts_), .type = type_, .who = who_

/* The arguments of a collective. */
struct take {
	enum coll kind;
	const char *name;   /* "MPI_Bcast" */
	const void *caller; /* where it returns to */
	MPI_Comm comm;
	int root;           /* -1: it has none */
	MPI_Op op;          /* of reductions */
	struct take_side send, recv; /* a broadcast's buffer is what is sent */
	struct traced traced;
};

#define TAKE_PARTS_KEPT 16 /* more are allocated */

/* One side while the call is ours. */
struct taken_side {
	const struct take_side *given;
	bool is_there;             /* it means something on this rank */
	int n;                     /* how many it is for: ranks, or neighbours */
	struct types_shape shape;  /* of given->type */
	struct pack pack;          /* one datatype, gaps */
	struct packs {             /* several pieces with gaps, one after the other */
		struct pack *of;
		const struct coll_part *parts; /* their places in the packed form */
		int n;
	} packs;
	struct coll_part *parts, kept[TAKE_PARTS_KEPT];
};

/* What a reduction computes; for the library, where rt does not know it: by reduce_look(). */
struct taken_reduce {
	MPI_Op op;
	MPI_Datatype type;
	uint64_t element_bytes;
	enum goal_type known_op;
	enum goal_dtype known_type;
};

/* A call that is being taken. Addresses in it lead into it: it stays where it is until
 * take_conclude(). */
struct taken {
	struct take take;
	struct life_comm *lc;
	bool is_root, in_place;
	bool is_odd; /* a gather's root: its own part does not fit its place; a wrong program */
	uint64_t bytes; /* one rank's message, as all know it; 0: they do not */
	struct taken_side send, recv;
	struct taken_reduce reduce;
	int *neighbours; /* allocated: those that send, then those that receive */
	struct coll_call call; /* for rt; from take_prepare() on */
};

/*
 * The whole of a blocking call. True: it is done, and *rc is what it returns. False: the library's,
 * whose result is to be given to take_passed().
 */
bool take_call(struct take *take, int *rc);
int take_passed(const struct take *take, int rc); /* returns rc */

/*
 * The same in steps. take_look(): may it be taken, being as long as `window` says, as far as this
 * rank can see? Copies *take; false: no, or, with *rc set, the library has reported an error
 * already. take_prepare(): 0 or -errno, and take_conclude() is due in any case, with what rt said;
 * it returns what the program is to get, and the communicator's error handler has been called.
 */
bool take_look(struct taken *t, const struct take *take, const struct coll_gate *gate, int *rc);
int take_prepare(struct taken *t);
int take_conclude(struct taken *t, int err);
/* The same, where it will be done again as it was prepared. */
int take_conclude_turn(struct taken *t, int err);
/* For the counters. */
void take_count(enum coll kind, bool is_taken);

/* ---- sides.c ----------------------------------------------------------------------------- */

/* Which sides there are, and t->bytes; t->lc, is_root and in_place are known. False: pass on. */
bool sides_size(struct taken *t);
/* Would the library accept the rest? False: pass on. */
bool sides_look(struct taken *t);
/* t->call.send and recv. 0 or -errno; sides_finish() in any case: 0 or -errno. */
int sides_prepare(struct taken *t);
int sides_finish(struct taken *t);
/* What is still held is in the program's memory, and what is there is looked at anew. 0 or -errno.
 */
int sides_flush(struct taken *t);
/* The side that says how long one rank's message is, on this rank. */
const struct take_side *sides_own(const struct take *take);
/* For the trace: bytes of one rank's message as far as this rank alone can tell, else 0. */
uint64_t sides_told(const struct take *take);

/* ---- reduce.c ---------------------------------------------------------------------------- */

/* Would the library compute this? False: pass on. */
bool reduce_look(struct taken *t);
int reduce_prepare(struct taken *t); /* t->call.reduce; 0 or -errno */
static inline bool take_is_neighbours(enum coll kind)
{
	return kind >= COLL_NEIGHBOR_ALLGATHER;
}

#endif
