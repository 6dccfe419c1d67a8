/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hier: collectives on communicators that span nodes (doc/adr/0027). rt moves bytes inside a node;
 * messages of the host MPI move bytes between nodes.
 *
 *   MPI_Init        hier_bootstrap()      the ranks of the job tell each other their nodes
 *   first call      hier_create()    collective: message communicator, node group
 *   each call       hier_serve()     bcast.c ...: executes the schedule of layout.h
 *
 * SLUICE_HIER=on promises that every rank of the job runs Sluice. A rank cannot ask a rank on
 * another node whether it does: the question would disturb a rank that does not.
 *
 * A call sends the same messages whether or not it fails. A rank that fails keeps sending the
 * messages that its partners expect, and the last message of each link tells whether the data is
 * valid. A rank therefore waits for ever only if the host MPI does.
 *
 * Threads: the program's thread executes blocking calls, a thread per communicator (request.c) the
 * nonblocking ones.
 */
#ifndef SLUICE_HIER_H
#define SLUICE_HIER_H

#include "mpi/coll/coll_op.h"
#include "rt/pieces.h"
#include "hier/layout.h"


struct flow;

/* ---- multinode.c ------------------------------------------------------------------------- */

/* State of one communicator that spans nodes. */
struct hier_comm {
	struct comm_state *cs;
	struct hier_layout *layout;
	MPI_Comm wire;          /* all ranks; carries messages of Sluice only */
	MPI_Comm near;          /* ranks of this node; exists while the node group is made */
	struct rt_comm *local;  /* NULL: this rank is alone on its node */
	char *staging;          /* memory reused by every call */
	uint64_t staging_bytes;
	uint64_t segment_bytes;
	char *dummy;            /* one segment; buffer of the messages of a failed call */
	struct post *posts;     /* HIER_SLOTS for each rank */
	struct hier_thread *thread; /* executes nonblocking calls; NULL on every rank: the host
				       MPI executes them */
	bool has_failed;        /* messages may still be in flight */
};

/* Exchanges the node of every rank, if SLUICE_HIER is on. Context: collective over
 * MPI_COMM_WORLD, after MPI_Init. */
void hier_bootstrap(void);
/* Returns: at least `bytes` bytes of staging memory, valid until the next call; NULL: out of
 * memory. */
char *hier_staging(struct hier_comm *s, uint64_t bytes);

/* ---- flow.c: one call -------------------------------------------------------------------- */

#define HIER_SLOTS 4 /* segments in flight over one link */

/* A message in flight. */
struct post {
	MPI_Request request;
	uint64_t segment;
	bool is_active;
};

enum flow_tag { FLOW_DOWN = 1, FLOW_UP, FLOW_STATUS };

/* The buffers of a call without gaps: the program's own, or packed copies. The parts keep their
 * offsets. */
struct flow_bufs {
	char *send, *recv; /* NULL: the rank has no such buffer, or the call has failed */
	uint64_t send_bytes, recv_bytes;
	char *more;        /* further staging memory */
};

/* One call on this rank. */
struct flow {
	struct coll_op *t;
	struct hier_comm *s;
	const struct hier_layout *l;
	struct hier_cut cut;
	int node;               /* node of this rank */
	int acting;             /* acting rank of that node */
	bool acts;              /* this rank is the acting rank */
	int parent, children[HIER_CHILDREN],
		child_count;    /* acting ranks of the tree; -1: none */
	int code;               /* error code of the host MPI, or 0 */
	int err;                /* first error, -errno; or 0 */
	struct hier_thread *by; /* the thread that executes the call; NULL: the program's */
	struct flow_bufs bufs;
	struct rt_pieces *inside; /* steps inside the node; NULL: this rank is alone there */
	struct coll_call near;    /* of exchanges inside the node */
	int *partners;            /* of one exchange: ranks, and the part of each */
	struct coll_part *parts;
};

/* Records the first error of the call and tells the other ranks of the node. 0 is no error. */
void flow_note_error(struct flow *f, int err);
/* Starts to send or receive one message. The caller has waited for the previous message of the
 * post. */
void flow_send(struct flow *f, struct post *p, const void *at, uint64_t bytes, int to,
	       enum flow_tag tag);
void flow_recv(struct flow *f, struct post *p, void *at, uint64_t bytes, int from,
	       enum flow_tag tag);
void flow_wait(struct flow *f, struct post *p); /* returns at once when nothing is in flight */
/* Waits until one of two messages is complete. NULL counts as complete. */
void flow_wait_any(struct flow *f, struct post *a, struct post *b);
/* Ends the links: receives the status of every rank in `from`, and sends the combined status to
 * every rank in `to`. */
void flow_status(struct flow *f, const int *from, int from_count, const int *to, int to_count);
/* Combines the status of all acting ranks. Each acting rank learns whether any rank failed. */
void flow_agree(struct flow *f);

/* Executes a blocking call. Returns: true, and *rc for the program; false on every rank: the
 * host MPI executes the call. */
bool hier_serve(struct coll_op *t, int *rc);
/* Returns: whether hier admits the call. All ranks get the same answer. */
bool hier_suits(const struct coll_op *t);
/* Executes a prepared call; err: result of the preparation. coll_complete() must follow.
 * Returns: 0 or -errno. */
int hier_work(struct coll_op *t, int err, struct hier_thread *by);

/* ---- buffers.c --------------------------------------------------------------------------- */

/* Opens the buffers of the call, with more_bytes bytes of further memory. copies_send: the send
 * buffer is copied because the receive buffer may overlap it. Returns: 0 or -errno. */
int flow_open(struct flow *f, bool copies_send, uint64_t more_bytes);
/* Copies the rank's own part from send to recv. Returns: 0, or -EREMOTEIO when the lengths
 * differ. */
int flow_copy_own(const struct flow *f);
/* Ends the steps inside the node, and unpacks the received parts into the program's buffer. A
 * failed call unpacks nothing. */
void flow_close(struct flow *f);
/* Returns: a collective inside the node, without buffers; the acting rank is its root. */
struct coll_call flow_call(const struct flow *f, enum coll kind);
/* Returns: a side of one part, *part, which must live as long. */
struct coll_side flow_side(void *addr, uint64_t bytes, struct coll_part *part);
/* Runs one step of a collective inside the node. After an error it does nothing. */
void flow_run(struct flow *f, struct rt_pieces *p, uint64_t send_at, uint64_t recv_at,
	      uint64_t bytes);
/* Opens f->inside for exchanges between parts of two buffers; longest_bytes: as of
 * rt_exchanges_begin(). Returns: 0 or -errno. */
int flow_open_exchanges(struct flow *f, struct coll_buf send, struct coll_buf recv,
			uint64_t longest_bytes);
/* Runs one exchange. After an error it does nothing. */
void flow_exchange(struct flow *f, const struct rt_exchange *x);
/* Runs an exchange in which this rank sends (or receives) the first n f->parts to (from)
 * f->partners. */
void flow_move(struct flow *f, bool is_sender, int n);

/* ---- request.c: nonblocking calls -------------------------------------------------------- */

/* Starts the thread of a communicator. Local. Returns: 0 or -errno. */
int hier_thread_create(struct hier_thread **out);
/* Ends an idle thread. Accepts NULL. */
void hier_thread_end(struct hier_thread *t);
/* Pauses between two polls; has_moved: the last poll found an event. Returns: false when the
 * thread must give up. */
bool hier_thread_pause(struct hier_thread *t, bool has_moved);

/* Returns: whether hier admits the nonblocking call. All ranks get the same answer. */
bool hier_admits_request(const struct coll_op *t);
/* Queues a call in the order of calls on the communicator; err: result of the preparation.
 * Returns: 0, or -errno: the call has ended. Owner: hier keeps t until hier_next_done() returns
 * its owner. */
int hier_start(struct coll_op *t, int err, void *owner);
/* Gives up a queued call that this rank cannot execute. Returns: 0 or -errno. */
int hier_give_up(struct coll_op *t);
/* Returns: owner of a call that has ended, and its result, as rt_request_next_done(). The thread
 * polls more often afterwards. */
void *hier_next_done(int *out_result);
/* Waits until no call is queued or active. */
void hier_wait_idle(struct hier_comm *s);
/* Waits at the end of the job, and gives up calls that other ranks never start. Returns: false
 * when the communicator must not be freed. */
bool hier_end(struct hier_comm *s);

/* ---- collectives, one file each ---------------------------------------------------------- */

void hier_bcast(struct flow *f);
void hier_reduce(struct flow *f);
void hier_allgather(struct flow *f);
void hier_gather(struct flow *f); /* rooted.c */
void hier_scatter(struct flow *f);
void hier_alltoall(struct flow *f);
void hier_barrier(struct flow *f);
void hier_scattered(struct flow *f); /* scattered.c: reduce_scatter and reduce_scatter_block */

#endif
