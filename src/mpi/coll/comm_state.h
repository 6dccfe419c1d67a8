/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm_state: the session (start at MPI_Init, stop inside MPI_Finalize) and the state that Sluice
 * attaches to each communicator as an attribute.
 *
 *   comm_state_get()      local, at the first call on a communicator
 *   comm_state_connect()  collective, at the first call that Sluice may execute: the node group
 *   comm_state_ref()      requests keep the state beyond MPI_Comm_free
 *
 * A nonblocking call must not wait for other ranks, so it cannot connect. It adds credit instead.
 * With enough credit the next blocking collective, which all ranks call, connects
 * (comm_state_sync()).
 */
#ifndef SLUICE_MPI_COLL_COMM_STATE_H
#define SLUICE_MPI_COLL_COMM_STATE_H

#include "mpi/abi/abi.h"

struct hier_comm;
struct coll_op;

struct comm_state {
	struct comm_state *next; /* list of all states, under the session's lock, for
				    MPI_Finalize */
	MPI_Comm comm;
	int rank, size;
	bool is_inter;
	bool is_decided;       /* connected or refused: rt and multinode are final */
	struct rt_comm *rt;    /* NULL: no node group serves the communicator */
	bool is_lanes_decided; /* `lanes` is final */
	struct rt_comm *lanes; /* for persistent requests; NULL: the host MPI executes them */
	struct hier_comm *multinode; /* of a communicator that spans nodes; else NULL */
	bool has_neighbours;   /* every rank has a topology that rt can serve */
	uint32_t short_calls;  /* short ones before connecting, where ranks take turns */
	uint32_t passed_calls; /* calls, before connecting, that rt would admit if more follow */
	/* in ns; equal on all ranks at a blocking call. No lock: collectives of a communicator
	 * start in one thread at a time */
	uint64_t connect_credit;
	uint64_t timed_since_ns, timed_credit; /* of the call that is timed now: payment.c */
	uint64_t host_percent; /* least time of a timed call, in percent of its credit; 0: none */
	uint64_t next_price_question; /* credit at which the ranks agree again; equal on them */
	uint32_t timed_calls;
	uint32_t exchanges, next_question; /* calls whose sizes ranks do not share: payment.c */
	/* the host MPI has executed nonblocking reductions whose bits depend on the executor */
	bool has_passed_inexact;
	bool is_connect_due;   /* the next blocking collective connects */
	bool is_freed;         /* the program has freed it; requests still hold the state */
	int refs;              /* requests that hold the state; under the session's lock */
	int64_t words[]; /* one a rank: memory for any agreement */
};

/* Starts the runtime if MPI is initialised; MPI_Finalize will stop it. Idempotent. */
void session_start(void);
bool session_is_thread_multiple(void); /* MPI_THREAD_MULTIPLE is provided */
bool session_may_have_threads(void);   /* or an MPI session may provide it */

/* Finds the state of a communicator. Local. Returns: 0, with *out NULL where the runtime is not on,
 * or an MPI error code that the host MPI has already reported. */
int comm_state_get(MPI_Comm comm, struct comm_state **out);
/* As comm_state_get(), by a few loads where the thread asked for the same communicator before. */
int comm_state_find(MPI_Comm comm, struct comm_state **out);
/* Connects a communicator at its first call; then collective. Returns: whether rt serves the
 * communicator. */
bool comm_state_connect(struct comm_state *cs);
/* Returns: what connecting takes, as far as this process has measured. */
uint64_t comm_state_price_ns(const struct comm_state *cs);
/* As comm_state_connect(), for the lanes of persistent requests on a communicator that rt
 * serves. */
bool comm_state_connect_lanes(struct comm_state *cs);
/* Returns: rt's means of asking all ranks, valid as long as cs. */
struct node_oob comm_state_oob(struct comm_state *cs);
/* Computes the minimum of all ranks' values. Collective over the communicator. Returns: 0 or
 * -errno. */
int comm_state_agree(struct comm_state *cs, int64_t mine, int64_t *out);
/* As comm_state_agree(), before the communicator is connected. Returns -ENOTSUP where members may
 * run without Sluice. */
int comm_state_ask(struct comm_state *cs, int64_t mine, int64_t *out);
/* Makes the host MPI progress all its messages; it may free a communicator that the program has
 * freed. */
void comm_state_progress(void *unused);
/* Holds the state for a request, which may be active when the program frees the communicator. */
void comm_state_ref(struct comm_state *cs);
void comm_state_unref(struct comm_state *cs);
bool comm_state_is_freed(struct comm_state *cs);
/* Adds the credit of a call that Sluice would admit. Returns: whether connecting is due: at once
 * for a blocking call, else in the next blocking collective. */
bool comm_state_pay(struct comm_state *cs, enum coll kind, uint64_t bytes);
void comm_state_add_credit(struct comm_state *cs, enum coll kind, uint64_t bytes);
/* Runs at a blocking collective: connects if that is due, and runs rt's agreements among all
 * ranks. */
void comm_state_sync(MPI_Comm comm);

/* Completes active requests that have ended and forgets persistent ones, at the end, when
 * progress stops. In request/request.c. */
void request_stop_all(void);

/* Functions of hier/, which sets them inside MPI_Init; NULL: SLUICE_HIER is off. */
struct multinode_ops {
	/* Returns: whether the communicator spans nodes that hier can serve; equal on every
	 * rank. */
	bool (*spans)(const struct comm_state *cs);
	/* Collective. Returns: NULL on every rank when it fails on one. */
	struct hier_comm *(*create)(struct comm_state *cs);
	/* Frees the resources that need no call of the host MPI. */
	void (*close)(struct hier_comm *h);
	void (*destroy)(struct hier_comm *h);
	/* Waits at the end until no request is active, and gives up requests that other ranks
	 * never start. Returns: false when the communicator must not be freed. */
	bool (*end)(struct hier_comm *h);
	/* Executes a blocking call. Returns: true, and *rc for the program; false on every rank:
	 * the host MPI executes the call. */
	bool (*execute)(struct coll_op *op, int *rc);
	/* Returns: whether hier admits a nonblocking call; equal on every rank. */
	bool (*admits_request)(const struct coll_op *op);
	/* Starts a nonblocking call, in the order of calls on the communicator; err: result of
	 * the preparation. Returns: 0, or -errno: the call has ended. Owner: hier keeps op until
	 * next_done() returns its owner. */
	int (*start)(struct coll_op *op, int err, void *owner);
	/* Gives up a call that this rank cannot execute. */
	int (*abandon)(struct coll_op *op);
	/* Returns: owner of a call that has ended, and its result; NULL: none. */
	void *(*next_done)(int *out_result);
};
extern const struct multinode_ops *multinode;

#endif
