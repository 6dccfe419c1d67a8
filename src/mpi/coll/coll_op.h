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
 *   device.c      memory of GPUs      layouts.c   where datatypes with gaps lie
 */
#ifndef SLUICE_MPI_COLL_H
#define SLUICE_MPI_COLL_H

#include "mpi/abi/abi.h"
#include "mpi/coll/comm_state.h"
#include "rt/collective.h"
#include "rt/requests.h"

/* Form of a buffer in functions.table. */
enum arg_form {
	ARG_NONE,
	ARG_BUF,   /* count elements */
	ARG_EACH,  /* count elements for each of `which` */
	ARG_PART,  /* counts and displacements in elements */
	ARG_PARTS, /* counts, displacements in bytes, datatypes */
	ARG_SUM,   /* one run of as many elements as all counts together */
};

struct arg_buf {
	const void *at;
	MPI_Count count;
	MPI_Datatype type;
	const void *types; /* handles in the program's memory */
	struct list counts, displs;
	enum arg_form form;
	enum members which;
	bool at_root; /* significant at the root only */
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

enum call_form { CALL_BLOCKING, CALL_NONBLOCKING, CALL_PERSISTENT };

/* The arguments of a collective. */
struct coll_args {
	enum coll kind;
	enum call_form form;
	const char *name;   /* "MPI_Bcast" */
	const void *caller; /* return address of the call */
	MPI_Comm comm;
	int root;           /* -1: the collective has no root */
	MPI_Op op;          /* operation of a reduction */
	struct arg_buf send, recv; /* a broadcast's buffer is `send` */
	uint64_t traced_since; /* start of a small call that the trace times; else 0 */
	bool is_traced;        /* the trace records the call */
	bool is_foreign;       /* not the program's: see abi_is_program_call() */
	bool is_hosted;        /* host_bracket_begin() has been called */
	struct rt_comm *timed; /* a trial takes the time of the host MPI's call */
	struct comm_state *unpaid; /* so does the payment of a communicator */
};

#define BUFREF_PARTS_INLINE 16 /* further parts are allocated */

/* One buffer of a call that Sluice executes. */
struct bufref {
	const struct arg_buf *given;
	bool is_used;              /* significant on this rank */
	int n;                     /* parts: one a rank, or one a neighbour */
	struct types_shape shape;  /* of given->type */
	struct pack pack;          /* for one datatype with gaps */
	struct packs {             /* for several parts with gaps, one after the other */
		struct pack *of;
		const struct coll_part *parts; /* their places in the packed form */
		int n;
	} packs;
	struct coll_part *parts, inline_parts[BUFREF_PARTS_INLINE];
	struct layout *layouts;    /* by part, allocated; NULL: none */
};

/* The computation of a reduction, by reduce_check(); GOAL_NOP: the host MPI computes it. */
struct reduce_args {
	MPI_Op op;
	MPI_Datatype type;
	uint64_t element_bytes;
	enum goal_type known_op;
	enum goal_dtype known_type;
	bool is_exact; /* policy_is_exact() */
};

/* A call that Sluice executes. It points to its own members and must not move until
 * coll_complete(). */
struct coll_op {
	struct coll_args args;
	struct comm_state *cs;
	bool is_root, in_place;
	bool has_root_mismatch; /* at a gather's root: its own part does not fit its place (a
				   wrong program) */
	uint64_t bytes; /* of one rank's message, as all ranks know it; 0: unknown */
	struct bufref send, recv;
	struct reduce_args reduce;
	int *neighbours; /* allocated: those that send, then those that receive */
	struct coll_call call; /* for rt; from coll_prepare() on */
};

/* Executes a blocking call. Returns: true, and *rc for the program; false: the caller calls the
 * host MPI and gives its result to coll_passed(). */
bool coll_execute(struct coll_args *args, int *rc);
int coll_passed(const struct coll_args *args, int rc); /* returns rc */

/* Begins the call for the trace. coll_trace_end() must follow. Returns: true: the call is below the
 * gate's sizes and goes to the host MPI without another check (never when the trace is off). */
bool coll_trace_begin(struct coll_args *args, const struct coll_gate *gate);
int coll_trace_end(const struct coll_args *args, int rc); /* returns rc, the result of the call */

/* Decides as far as this rank can tell whether Sluice may execute the call, and copies *args.
 * Returns: false: no, or, with *rc set, the host MPI has already reported an error. */
bool coll_admit(struct coll_op *op, const struct coll_args *args, const struct coll_gate *gate,
		int *rc);
/* Returns: 0 or -errno. coll_complete() must follow in both cases. */
int coll_prepare(struct coll_op *op);
/* Returns: the program's result, after the communicator's error handler has run. */
int coll_complete(struct coll_op *op, int err);
/* Its result alone: no resource goes back, no error handler is called. */
int coll_result(const struct coll_op *op, int err);
/* Counts a decision. */
void coll_count_decision(enum coll kind, bool is_admitted);

static inline bool coll_is_neighborhood(enum coll kind)
{
	return kind >= COLL_NEIGHBOR_ALLGATHER;
}

/* ---- payment.c --------------------------------------------------------------------------- */

/* Returns: why the communicator is not to be connected for this call; NULL: it is, or has been. A
 * call that gains only when its buffers are used again may never be repeated. Context: may be
 * collective, on all ranks alike. */
const char *coll_delays_connecting(struct coll_op *op);
/* Returns: why Sluice executes no call on the communicator; NULL: it may. */
const char *coll_comm_refusal(const struct comm_state *cs);
/* Returns: whether coll_passes_early() asks the trials. False: they are asked after the checks. */
bool coll_asks_early(const struct coll_args *args, const struct comm_state *cs);
/* Decides by a few loads where that is possible. Equal on all ranks. Returns: why the host MPI
 * executes the call, or, with *rc set, it has already reported an error; NULL: not decided. */
const char *coll_passes_early(struct coll_args *args, int *rc);
/* The host MPI has executed a call that coll_passes_early() times. */
void coll_time_passed(struct comm_state *cs);

/* ---- device.c ---------------------------------------------------------------------------- */

/* Executes the call if it is on memory of GPUs. Returns: enum rt_device, or -errno. */
int coll_on_device(struct coll_op *op);

/* ---- bufrefs.c --------------------------------------------------------------------------- */

/* Finds the buffers and op->bytes from op->cs, is_root and in_place. Returns: false: pass the
 * call on. */
bool bufrefs_init(struct coll_op *op);
/* Returns: whether the host MPI would accept the remaining arguments. False: pass the call on. */
bool bufrefs_check(struct coll_op *op);
/* Fills op->call.send and recv. bufrefs_close() must follow. Returns: 0 or -errno. */
int bufrefs_open(struct coll_op *op);
void bufrefs_close(struct coll_op *op);
/* Returns: the buffer that determines the length of one rank's message on this rank, or NULL. */
const struct arg_buf *args_message(const struct coll_args *args);
/* Returns: bytes of the rank's message in a valid call; where ranks share no size, of all that the
 * rank sends (of a scatter: receives); 0: unknown. */
uint64_t args_own_bytes(const struct coll_args *args);

/* Part i of a list. Returns: 0 or -errno. */
struct bufref_piece {
	MPI_Count count;
	__int128 at; /* bytes from the buffer's address to the first element */
	MPI_Datatype type;
	struct types_shape shape;
};
int bufref_piece(const struct bufref *s, int i, struct bufref_piece *out);

/* ---- layouts.c --------------------------------------------------------------------------- */

/* Adds the layouts of all parts, from the first page of their hull on, to a packed form. Without
 * memory for them, or when a part has none, the buffer has a packed form only. */
void bufref_add_layouts(struct bufref *s, struct coll_side *out);

/* ---- reduce.c ---------------------------------------------------------------------------- */

/* Returns: whether the host MPI would compute this reduction. False: pass the call on. */
bool reduce_check(struct coll_op *op);
/* Returns: whether Sluice and the host MPI give equal bits: collectives that only move data, and
 * reductions by policy_is_exact(). Valid from coll_admit() on, equal on all ranks. */
static inline bool reduce_is_exact(const struct coll_op *op)
{
	return !coll_is_reduce(op->args.kind) || op->reduce.is_exact;
}
/* Returns: whether equal calls may be admitted at one time of a run and passed on at another time
 * (SLUICE_SUMS). */
static inline bool reduce_may_change(const struct coll_op *op)
{
	return base_opt.sums == BASE_SUMS_ANY || reduce_is_exact(op);
}
/* As reduce_may_change(), from a few loads, before the checks. REDUCE_UNKNOWN: the checks tell. */
enum reduce_change { REDUCE_UNKNOWN, REDUCE_STAYS, REDUCE_CHANGES };
enum reduce_change reduce_change_of(const struct coll_args *args, int ranks);
/* Fills op->call.reduce. Returns: 0 or -errno. */
int reduce_prepare(struct coll_op *op);

#endif
