/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * take: a collective that the program calls, whichever function it came by, and what it takes to
 * hand it to rt.
 *
 *   wrapper (collectives.h, generated)  --struct take-->  coll_execute()        blocking
 *
 *   coll_admit()      all that is local: would the library refuse this? Is it large enough?
 *   comm_state_connect()   collective; from here on only what all ranks know decides
 *   coll_prepare()   sides.c, reduce.c: struct coll_call, packed forms
 *   rt_collective()
 *   coll_complete()  what is still held goes back; errors as the program is to see them
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

#define coll_execute     ABI_NAME(coll_execute)
#define coll_passed   ABI_NAME(coll_passed)
#define coll_admit     ABI_NAME(coll_admit)
#define coll_prepare  ABI_NAME(coll_prepare)
#define coll_complete ABI_NAME(coll_complete)
#define coll_complete_turn ABI_NAME(coll_complete_turn)
#define coll_count_decision    ABI_NAME(coll_count_decision)
#define bufrefs_init    ABI_NAME(bufrefs_init)
#define bufrefs_check    ABI_NAME(bufrefs_check)
#define bufrefs_open ABI_NAME(bufrefs_open)
#define bufrefs_flush   ABI_NAME(bufrefs_flush)
#define bufrefs_close  ABI_NAME(bufrefs_close)
#define args_message     ABI_NAME(args_message)
#define args_message_bytes    ABI_NAME(args_message_bytes)
#define reduce_check    ABI_NAME(reduce_check)
#define reduce_prepare ABI_NAME(reduce_prepare)

/* What functions.table says about a buffer. */
enum arg_form {
	ARG_NONE,
	ARG_BUF,   /* count elements */
	ARG_EACH,  /* as many for each of `who` */
	ARG_PART,  /* counts and displacements in elements */
	ARG_PARTS, /* in bytes, with types */
	ARG_SUM,   /* the sum of their counts */
};

struct arg_buf {
	const void *at;
	MPI_Count count;
	MPI_Datatype type;
	const MPI_Datatype *types;
	struct list counts, displs;
	enum arg_form form;
	enum front_who who;
	bool at_root; /* means something at the root only */
};

#define ARG_INIT_BUF(at_, count_, type_) .form = ARG_BUF, .at = at_, .count = count_, .type = type_
#define ARG_INIT_EACH(at_, count_, type_, who_) \
	.form = ARG_EACH, .at = at_, .count = count_, .type = type_, .who = who_
#define ARG_INIT_PART(at_, counts_, displs_, type_, who_)                                              \
	.form = ARG_PART, .at = at_, .counts = WIDE(counts_), .displs = WIDE(displs_),         \
	.type = type_, .who = who_
#define ARG_INIT_PARTS(at_, counts_, displs_, types_, who_)                                            \
	.form = ARG_PARTS, .at = at_, .counts = WIDE(counts_), .displs = WIDE(displs_),        \
	.types = types_, .who = who_
#define ARG_INIT_SUM(at_, counts_, type_, who_) \
	.form = ARG_SUM, .at = at_, .counts = WIDE(counts_), .type = type_, .who = who_

/* The arguments of a collective. */
struct take {
	enum coll kind;
	const char *name;   /* "MPI_Bcast" */
	const void *caller; /* where it returns to */
	MPI_Comm comm;
	int root;           /* -1: it has none */
	MPI_Op op;          /* of reductions */
	struct arg_buf send, recv; /* a broadcast's buffer is what is sent */
	struct traced traced;
};

#define BUFREF_PARTS_INLINE 16 /* more are allocated */

/* One side while the call is ours. */
struct bufref {
	const struct arg_buf *given;
	bool is_there;             /* it means something on this rank */
	int n;                     /* how many it is for: ranks, or neighbours */
	struct types_shape shape;  /* of given->type */
	struct pack pack;          /* one datatype, gaps */
	struct packs {             /* several pieces with gaps, one after the other */
		struct pack *of;
		const struct coll_part *parts; /* their places in the packed form */
		int n;
	} packs;
	struct coll_part *parts, kept[BUFREF_PARTS_INLINE];
};

/* What a reduction computes; for the library, where rt does not know it: by reduce_check(). */
struct reduce_args {
	MPI_Op op;
	MPI_Datatype type;
	uint64_t element_bytes;
	enum goal_type known_op;
	enum goal_dtype known_type;
};

/* A call that is being taken. Addresses in it lead into it: it stays where it is until
 * coll_complete(). */
struct taken {
	struct take take;
	struct comm_state *lc;
	bool is_root, in_place;
	bool is_odd; /* a gather's root: its own part does not fit its place; a wrong program */
	uint64_t bytes; /* one rank's message, as all know it; 0: they do not */
	struct bufref send, recv;
	struct reduce_args reduce;
	int *neighbours; /* allocated: those that send, then those that receive */
	struct coll_call call; /* for rt; from coll_prepare() on */
};

/*
 * The whole of a blocking call. True: it is done, and *rc is what it returns. False: the library's,
 * whose result is to be given to coll_passed().
 */
bool coll_execute(struct take *take, int *rc);
int coll_passed(const struct take *take, int rc); /* returns rc */

/*
 * The same in steps. coll_admit(): may it be taken, being as long as `window` says, as far as this
 * rank can see? Copies *take; false: no, or, with *rc set, the library has reported an error
 * already. coll_prepare(): 0 or -errno, and coll_complete() is due in any case, with what rt said;
 * it returns what the program is to get, and the communicator's error handler has been called.
 */
bool coll_admit(struct taken *t, const struct take *take, const struct coll_gate *gate, int *rc);
int coll_prepare(struct taken *t);
int coll_complete(struct taken *t, int err);
/* The same, where it will be done again as it was prepared. */
int coll_complete_turn(struct taken *t, int err);
/* For the counters. */
void coll_count_decision(enum coll kind, bool is_taken);

/* ---- sides.c ----------------------------------------------------------------------------- */

/* Which sides there are, and t->bytes; t->lc, is_root and in_place are known. False: pass on. */
bool bufrefs_init(struct taken *t);
/* Would the library accept the rest? False: pass on. */
bool bufrefs_check(struct taken *t);
/* t->call.send and recv. 0 or -errno; bufrefs_close() in any case: 0 or -errno. */
int bufrefs_open(struct taken *t);
int bufrefs_close(struct taken *t);
/* What is still held is in the program's memory, and what is there is looked at anew. 0 or -errno.
 */
int bufrefs_flush(struct taken *t);
/* The side that says how long one rank's message is, on this rank. */
const struct arg_buf *args_message(const struct take *take);
/* For the trace: bytes of one rank's message as far as this rank alone can tell, else 0. */
uint64_t args_message_bytes(const struct take *take);

/* ---- reduce.c ---------------------------------------------------------------------------- */

/* Would the library compute this? False: pass on. */
bool reduce_check(struct taken *t);
int reduce_prepare(struct taken *t); /* t->call.reduce; 0 or -errno */
static inline bool coll_is_neighborhood(enum coll kind)
{
	return kind >= COLL_NEIGHBOR_ALLGATHER;
}

#endif
