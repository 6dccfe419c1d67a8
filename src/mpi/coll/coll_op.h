/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi/coll: one collective of the program, from its arguments to rt and back.
 *
 *   wrapper (collectives.h, generated)  --struct coll_args-->  coll_execute()   blocking
 *                                                         \--> request/         the others
 *
 *   coll_admit()          local checks: would the host MPI refuse the call? Is it large enough?
 *   comm_state_connect()  collective; from here on only facts that all ranks share decide
 *   coll_prepare()        bufrefs.c, reduce.c: struct coll_call, packed forms
 *   rt_collective()
 *   coll_complete()       resources go back; errors reach the communicator's error handler
 *
 * Checks are ordered from cheap to expensive. A check that fails passes the call on with its
 * arguments as they came: the host MPI then reports what is wrong with them.
 *
 *   admit.c       the steps above     bufrefs.c   what a rank sends and receives
 *   comm_state.c  communicators       reduce.c    what a reduction computes
 *   traced.c      which calls the trace records one by one
 */
#ifndef SLUICE_MPI_COLL_H
#define SLUICE_MPI_COLL_H

#include "mpi/abi/abi.h"
#include "mpi/coll/comm_state.h"
#include "mpi/coll/traced.h"
#include "rt/collective.h"
#include "rt/requests.h"

/* What functions.table says about a buffer. */
enum arg_form {
	ARG_NONE,
	ARG_BUF,   /* count elements */
	ARG_EACH,  /* as many for each of `which` */
	ARG_PART,  /* counts and displacements in elements */
	ARG_PARTS, /* in bytes, with types */
	ARG_SUM,   /* the sum of their counts */
};

struct arg_buf {
	const void *at;
	MPI_Count count;
	MPI_Datatype type;
	const void *types; /* handles in the program's memory */
	struct list counts, displs;
	enum arg_form form;
	enum members which;
	bool at_root; /* means something at the root only */
};

#define ARG_INIT_BUF(at_, count_, type_)                                                           \
	.form = ARG_BUF, .at = at_, .count = count_, .type = CANONICAL_OF(type_)
#define ARG_INIT_EACH(at_, count_, type_, which_)                                                  \
	.form = ARG_EACH, .at = at_, .count = count_, .type = CANONICAL_OF(type_), .which = which_
#define ARG_INIT_PART(at_, counts_, displs_, type_, which_)                                        \
	.form = ARG_PART, .at = at_, .counts = WIDE(counts_), .displs = WIDE(displs_),             \
	.type = CANONICAL_OF(type_), .which = which_
#define ARG_INIT_PARTS(at_, counts_, displs_, types_, which_)                                      \
	.form = ARG_PARTS, .at = at_, .counts = WIDE(counts_), .displs = WIDE(displs_),            \
	.types = types_, .which = which_
#define ARG_INIT_SUM(at_, counts_, type_, which_)                                                  \
	.form = ARG_SUM, .at = at_, .counts = WIDE(counts_), .type = CANONICAL_OF(type_),          \
	.which = which_

/* The arguments of a collective. */
struct coll_args {
	enum coll kind;
	const char *name;   /* "MPI_Bcast" */
	const void *caller; /* return address of the call */
	MPI_Comm comm;
	int root;           /* -1: it has none */
	MPI_Op op;          /* of reductions */
	struct arg_buf send, recv; /* a broadcast's buffer is `send` */
	struct traced traced;
};

#define BUFREF_PARTS_INLINE 16 /* more are allocated */

/* One buffer of a call that Sluice executes. */
struct bufref {
	const struct arg_buf *given;
	bool is_used;              /* it means something on this rank */
	int n;                     /* parts: one a rank, or one a neighbour */
	struct types_shape shape;  /* of given->type */
	struct pack pack;          /* one datatype, gaps */
	struct packs {             /* several pieces with gaps, one after the other */
		struct pack *of;
		const struct coll_part *parts; /* their places in the packed form */
		int n;
	} packs;
	struct coll_part *parts, inline_parts[BUFREF_PARTS_INLINE];
};

/* What a reduction computes, by reduce_check(); GOAL_NOP: the host MPI computes it. */
struct reduce_args {
	MPI_Op op;
	MPI_Datatype type;
	uint64_t element_bytes;
	enum goal_type known_op;
	enum goal_dtype known_type;
};

/* A call that Sluice executes. It has addresses of its own members, so that it stays where it is
 * until coll_complete(). */
struct coll_op {
	struct coll_args args;
	struct comm_state *cs;
	bool is_root, in_place;
	bool has_root_mismatch; /* a gather's root: its own part does not fit its place; a wrong
				   program */
	uint64_t bytes; /* one rank's message, as all ranks know it; 0: they do not */
	struct bufref send, recv;
	struct reduce_args reduce;
	int *neighbours; /* allocated: those that send, then those that receive */
	struct coll_call call; /* for rt; from coll_prepare() on */
};

/* The whole of a blocking call. True: executed, and *rc is what it returns. False: the host MPI's,
 * whose result coll_passed() is to get. */
bool coll_execute(struct coll_args *args, int *rc);
int coll_passed(const struct coll_args *args, int rc); /* returns rc */

/* May Sluice execute a call of these sizes, as far as this rank can see? Copies *args. False: no,
 * or, with *rc set, the host MPI has already reported an error. */
bool coll_admit(struct coll_op *op, const struct coll_args *args, const struct coll_gate *gate,
		int *rc);
/* Returns: 0 or -errno; coll_complete() is due in any case, with rt's result. */
int coll_prepare(struct coll_op *op);
/* Returns: what the program is to get; the communicator's error handler has been called. */
int coll_complete(struct coll_op *op, int err);
/* The same, where it will be executed again as it was prepared. */
int coll_complete_turn(struct coll_op *op, int err);
/* For the counters. */
void coll_count_decision(enum coll kind, bool is_admitted);

static inline bool coll_is_neighborhood(enum coll kind)
{
	return kind >= COLL_NEIGHBOR_ALLGATHER;
}

/* ---- bufrefs.c --------------------------------------------------------------------------- */

/* Which buffers there are, and op->bytes; op->cs, is_root and in_place are known. False: pass on.
 */
bool bufrefs_init(struct coll_op *op);
/* Would the host MPI accept the rest? False: pass on. */
bool bufrefs_check(struct coll_op *op);
/* op->call.send and recv. Returns: 0 or -errno; bufrefs_close() is due in any case. */
int bufrefs_open(struct coll_op *op);
/* Returns: 0 or -errno. */
int bufrefs_close(struct coll_op *op);
/* Writes held elements to the program's memory, and reads them anew next time. Returns: 0 or
 * -errno. */
int bufrefs_flush(struct coll_op *op);
/* The buffer that says how long one rank's message is, on this rank; NULL: none does. */
const struct arg_buf *args_message(const struct coll_args *args);
/* For the trace: bytes of one rank's message as far as this rank alone can tell, else 0. */
uint64_t args_message_bytes(const struct coll_args *args);

/* ---- reduce.c ---------------------------------------------------------------------------- */

/* Would the host MPI compute this? False: pass on. */
bool reduce_check(struct coll_op *op);
/* op->call.reduce. Returns: 0 or -errno. */
int reduce_prepare(struct coll_op *op);

#endif
