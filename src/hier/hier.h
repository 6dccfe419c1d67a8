/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators that span nodes: inside each node by rt, between nodes by the library's own
 * messages (doc/adr/0027).
 *
 *   MPI_Init        hier_meet()      who runs Sluice where, once a job
 *   first call      hier_create()    collective: a communicator for our messages, the node's own
 * group each call       hier_serve()     hier_bcast.c ...: the schedule that span/ lays out
 *
 * SLUICE_HIER=on promises that every rank of the job runs Sluice: no rank can find out whether one
 * on another node does, and asking one that does not would disturb it.
 *
 * What is sent in one call is sent in any case: a rank that has failed goes on with the messages
 * that others wait for, and a last one tells whether what came before is right. So nobody waits for
 * what will never come, unless the library does.
 */
#ifndef SLUICE_HIER_H
#define SLUICE_HIER_H

#include "mpi/coll/coll_op.h"
#include "rt/pieces.h"
#include "hier/layout.h"


struct flow;

/* ---- span.c ------------------------------------------------------------------------------ */

/* Of a communicator. */
struct hier_comm {
	struct comm_state *cs;
	struct hier_layout *layout;
	MPI_Comm wire;          /* all its ranks, for our messages alone */
	MPI_Comm near;          /* those of this node, while its group is made */
	struct rt_comm *local;  /* NULL: no other rank here */
	char *window;           /* kept from call to call */
	uint64_t window_bytes;
	uint64_t segment_bytes;
	char *spare;            /* a segment of no meaning, for a call that has failed here */
	struct post *posts;     /* SPAN_SLOTS for each rank */
	struct hier_thread *thread; /* that does nonblocking ones; NULL: they are the library's, on
				       every rank */
	bool has_failed;        /* some message may still be on its way */
};

/* After MPI_Init, if SLUICE_HIER is on: collective over MPI_COMM_WORLD. */
void hier_meet(void);
/* Memory of at least so many bytes, until the next call; NULL: there is none. */
char *hier_window(struct hier_comm *s, uint64_t bytes);

/* ---- hier_plain.c: buffers without gaps -------------------------------------------------- */

/* A call's buffers as messages can use them: as they are, or their packed forms. Parts are where
 * the call says. */
struct plain {
	char *send, *recv; /* NULL: there is none, or the call has failed */
	uint64_t send_bytes, recv_bytes;
	char *more;        /* room for other things */
};

/* copies_send: what is sent must not change although what is received lies there. 0 or -errno. */
int plain_begin(struct flow *f, bool copies_send, uint64_t more_bytes, struct plain *out);
/* The program gets what has been received, but for part `but` (-1: all of it), unless the call has
 * failed. */
void plain_end(struct flow *f, const struct plain *p, int but);
/* What a rank brings for itself; 0 or -errno: it does not fit. */
int plain_copy_own(const struct flow *f, const struct plain *p);

/* ---- hier_flow.c: one call --------------------------------------------------------------- */

#define SPAN_SLOTS 4 /* segments that are on their way over one link */

/* A message on its way. */
struct post {
	MPI_Request request;
	uint64_t segment;
	bool is_there;
};

enum flow_tag { FLOW_DOWN = 1, FLOW_UP, FLOW_STATUS };

/* One call on this rank. */
struct flow {
	struct coll_op *t;
	struct hier_comm *s;
	const struct hier_layout *l;
	struct hier_cut cut;
	int node;               /* this rank's */
	int acting;             /* the rank that acts for it */
	bool acts;              /* ... it is this one */
	int parent, children[SPAN_CHILDREN],
		child_count;    /* ranks that act for others, of the tree; -1: none */
	int code;               /* the library's error, or 0 */
	int err;                /* the first: -errno */
	struct hier_thread *by; /* the thread whose call this is; NULL: the program's */
	struct rt_pieces *inside; /* the node's broadcast, if there are others here */
};

/* The call fails: the node's other ranks hear of it at once. */
void flow_fail(struct flow *f, int err);
/* Segment k of a message; the post must have been waited for. */
void flow_send(struct flow *f, struct post *p, const void *at, uint64_t bytes, int to,
	       enum flow_tag tag);
void flow_recv(struct flow *f, struct post *p, void *at, uint64_t bytes, int from,
	       enum flow_tag tag);
void flow_wait(struct flow *f, struct post *p); /* nothing on its way: nothing happens */
/* The same for one of two, of which NULL counts as none. */
void flow_wait_any(struct flow *f, struct post *a, struct post *b);
/* A piece of what runs inside the node; nothing after an error. */
void flow_run(struct flow *f, struct rt_pieces *p, uint64_t send_at, uint64_t recv_at,
	      uint64_t bytes);
void flow_exchange(struct flow *f, struct rt_pieces *p, const struct rt_exchange *x);
/* The last message of a link: is all that came before right? To all that follow, from all that went
 * before. */
void flow_status(struct flow *f, const int *from, int from_count, const int *to, int to_count);
/* The last messages where all get something from all: between the ranks that act, each way. */
void flow_meet(struct flow *f);

/* True: served, and *rc is what the program gets. False: the library's, on every rank. */
bool hier_serve(struct coll_op *t, int *rc);
/* Is it one of those that are served? By what all ranks know. */
bool hier_suits(const struct coll_op *t);
/* The whole of one that has been prepared, if err is 0. 0 or -errno; coll_complete() is due. */
int hier_work(struct coll_op *t, int err, struct hier_thread *by);

/* ---- hier_request.c: nonblocking ones ---------------------------------------------------- */

/* Local. 0 or -errno. */
int hier_thread_create(struct hier_thread **out);
/* It has nothing to do any more. NULL: nothing happens. */
void hier_thread_end(struct hier_thread *t);
/* Nothing has come, or something has: until the next look. False: it is not to be waited for any
 * longer. */
bool hier_thread_pause(struct hier_thread *t, bool has_moved);

/* May a nonblocking call be ours? By what all ranks know. */
bool hier_takes_requests(const struct coll_op *t);
/* In the order of the calls on the communicator; taken: prepared, if err is 0, and kept until it is
 * handed out. 0, or -errno: it is over. */
int hier_start(struct coll_op *t, int err, void *owner);
/* This rank cannot take part in it after all. 0 or -errno. */
int hier_give_up(struct coll_op *t);
/* The owner of one that is over, with its result, as rt_request_next_done(). What is in flight goes
 * faster for it. */
void *hier_next_done(int *out_result);
/* Until none is in flight. */
void hier_wait_idle(struct hier_comm *s);
/* The same at the end, when those that others never start are given up. False: the communicator
 * must be left as it is. */
bool hier_end(struct hier_comm *s);

/* ---- the kinds, a file each -------------------------------------------------------------- */

void hier_bcast(struct flow *f);
void hier_reduce(struct flow *f);
void hier_allgather(struct flow *f);
void hier_gather(struct flow *f); /* hier_rooted.c */
void hier_scatter(struct flow *f);
void hier_alltoall(struct flow *f);
void hier_barrier(struct flow *f);
void hier_scattered(struct flow *f); /* reductions whose result is scattered */

#endif
