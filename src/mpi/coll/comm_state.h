/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm_state: the session (start at MPI_Init, stop inside MPI_Finalize) and what Sluice keeps with
 * each communicator, as an attribute of it.
 *
 *   comm_state_get()      local, at first sight of a communicator
 *   comm_state_connect()  collective, at its first call that Sluice may execute: the node group
 *   comm_state_ref()      requests keep the state beyond MPI_Comm_free
 *
 * A nonblocking call must not wait for other ranks, so it cannot connect. It adds credit instead;
 * with enough of it the next blocking collective, which all ranks call, connects
 * (comm_state_sync()).
 */
#ifndef SLUICE_MPI_COLL_COMM_STATE_H
#define SLUICE_MPI_COLL_COMM_STATE_H

#include "mpi/abi/abi.h"

struct hier_comm;
struct coll_op;

struct comm_state {
	struct comm_state *next; /* of all, under the session's lock: MPI_Finalize destroys them */
	MPI_Comm comm;
	int rank, size;
	bool is_inter;
	bool is_decided;       /* connected, or refused: rt and multinode are what they will be */
	struct rt_comm *rt;    /* NULL: not served by a node group */
	bool is_lanes_decided; /* the same of `lanes` */
	struct rt_comm *lanes; /* of persistent requests; NULL: they are the host MPI's */
	struct hier_comm *multinode; /* of one that spans nodes; else NULL */
	bool has_neighbours;   /* a topology that rt can serve, on every rank */
	uint32_t passed_calls; /* that rt may want if more follow, before it is connected */
	uint32_t connect_credit; /* of nonblocking calls; the same on all ranks at a blocking one */
	bool is_connect_due;   /* the next blocking collective connects it */
	bool is_freed;         /* by the program; requests still hold it */
	int refs;              /* requests that hold it; under the session's lock */
	bool has_progress_request;
	MPI_Request progress_request; /* never completes; testing it makes the host MPI progress */
	int64_t words[]; /* one a rank: whoever has the state can take part in any agreement */
};

/* Starts the runtime if MPI is initialised; MPI_Finalize will stop it. Idempotent. */
void session_start(void);
bool session_is_thread_multiple(void); /* MPI_THREAD_MULTIPLE is provided */

/* State of a communicator. Local. Returns: 0, or an MPI error code, which the host MPI has already
 * reported. */
int comm_state_get(MPI_Comm comm, struct comm_state **out);
/* Collective over the communicator at its first call. Returns: does rt serve it? */
bool comm_state_connect(struct comm_state *cs);
/* The same for the lanes of persistent requests, on a communicator that rt serves. */
bool comm_state_connect_lanes(struct comm_state *cs);
/* For what rt asks all ranks. Valid as long as cs. */
struct node_oob comm_state_oob(struct comm_state *cs);
/* Smallest of all ranks' values: collective over the communicator. Returns: 0 or -errno. */
int comm_state_agree(struct comm_state *cs, int64_t mine, int64_t *out);
/* The host MPI makes progress on all its messages. */
void comm_state_progress(struct comm_state *cs);
/* A request names it, and may be active when the program frees the communicator. */
void comm_state_ref(struct comm_state *cs);
void comm_state_unref(struct comm_state *cs);
bool comm_state_is_freed(struct comm_state *cs);
void comm_state_add_credit(struct comm_state *cs, uint32_t credit);
/* A blocking collective: connects if that is due, and rt's agreements among all ranks. */
void comm_state_sync(MPI_Comm comm);

/* Completes active requests that have ended and forgets persistent ones: at the end, when nothing
 * progresses any more. In request/request.c. */
void request_stop_all(void);

/* Collectives over several nodes, where they are switched on. hier/ sets it inside MPI_Init; NULL:
 * off. */
struct multinode_ops {
	/* Does the communicator span nodes that may be served? The same answer on every rank. */
	bool (*spans)(const struct comm_state *cs);
	/* Collective; NULL on every rank when it cannot be. */
	struct hier_comm *(*create)(struct comm_state *cs);
	/* Gives back what needs no call of the host MPI. */
	void (*close)(struct hier_comm *h);
	void (*destroy)(struct hier_comm *h);
	/* Waits at the end until no request is active, gives up those that other ranks never
	 * start. False: the communicator must be left as it is. */
	bool (*end)(struct hier_comm *h);
	/* A blocking call. True: executed, *rc is what the program gets. False: the host MPI's, on
	 * every rank. */
	bool (*execute)(struct coll_op *op, int *rc);
	/* May a nonblocking call be executed? By what all ranks know. */
	bool (*admits_request)(const struct coll_op *op);
	/* Starts a nonblocking call, in the order of calls on the communicator; prepared if err is
	 * 0, and kept until next_done() returns its owner. Returns: 0, or -errno: it has ended. */
	int (*start)(struct coll_op *op, int err, void *owner);
	/* This rank cannot take part in it. */
	int (*abandon)(struct coll_op *op);
	/* Owner of one that has ended, with its result; NULL: none. */
	void *(*next_done)(int *out_result);
};
extern const struct multinode_ops *multinode;

#endif
