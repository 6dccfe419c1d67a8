/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators that span nodes: inside each node by rt, between nodes by the library's own
 * messages (doc/adr/0027).
 *
 *   MPI_Init        span_meet()      who runs Sluice where, once a job
 *   first call      span_create()    collective: a communicator for our messages, the node's own
 * group each call       span_serve()     span_bcast.c ...: the schedule that span/ lays out
 *
 * SLUICE_SPAN=on promises that every rank of the job runs Sluice: no rank can find out whether one
 * on another node does, and asking one that does not would disturb it.
 *
 * What is sent in one call is sent in any case: a rank that has failed goes on with the messages
 * that others wait for, and a last one tells whether what came before is right. So nobody waits for
 * what will never come, unless the library does.
 */
#ifndef SLUICE_MPI_SPAN_H
#define SLUICE_MPI_SPAN_H

#include "mpi/take.h"
#include "rt/pieces.h"
#include "span/span.h"

#define span_meet     ABI_NAME(span_meet)
#define span_spans    ABI_NAME(span_spans)
#define span_create   ABI_NAME(span_create)
#define span_destroy  ABI_NAME(span_destroy)
#define span_close    ABI_NAME(span_close)
#define span_serve    ABI_NAME(span_serve)
#define span_bcast    ABI_NAME(span_bcast)
#define span_fold     ABI_NAME(span_fold)
#define span_allgather ABI_NAME(span_allgather)
#define span_gather   ABI_NAME(span_gather)
#define span_scatter  ABI_NAME(span_scatter)
#define span_barrier  ABI_NAME(span_barrier)
#define span_alltoall ABI_NAME(span_alltoall)
#define span_scattered ABI_NAME(span_scattered)
#define span_window   ABI_NAME(span_window)
#define plain_begin   ABI_NAME(plain_begin)
#define plain_end     ABI_NAME(plain_end)
#define plain_copy_own ABI_NAME(plain_copy_own)
#define flow_fail     ABI_NAME(flow_fail)
#define flow_send     ABI_NAME(flow_send)
#define flow_recv     ABI_NAME(flow_recv)
#define flow_wait     ABI_NAME(flow_wait)
#define flow_wait_any ABI_NAME(flow_wait_any)
#define flow_run      ABI_NAME(flow_run)
#define flow_exchange ABI_NAME(flow_exchange)
#define flow_status   ABI_NAME(flow_status)
#define span_suits    ABI_NAME(span_suits)
#define span_work     ABI_NAME(span_work)
#define span_thread_create ABI_NAME(span_thread_create)
#define span_thread_end ABI_NAME(span_thread_end)
#define span_thread_pause ABI_NAME(span_thread_pause)
#define span_takes_requests ABI_NAME(span_takes_requests)
#define span_start    ABI_NAME(span_start)
#define span_give_up  ABI_NAME(span_give_up)
#define span_next_done ABI_NAME(span_next_done)
#define span_wait_idle ABI_NAME(span_wait_idle)
#define span_end      ABI_NAME(span_end)
#define flow_meet     ABI_NAME(flow_meet)

struct flow;

/* ---- span.c ------------------------------------------------------------------------------ */

/* Of a communicator. */
struct spanning {
	struct life_comm *lc;
	struct span_layout *layout;
	MPI_Comm wire;          /* all its ranks, for our messages alone */
	MPI_Comm near;          /* those of this node, while its group is made */
	struct rt_comm *local;  /* NULL: no other rank here */
	char *window;           /* kept from call to call */
	uint64_t window_bytes;
	uint64_t segment_bytes;
	char *spare;            /* a segment of no meaning, for a call that has failed here */
	struct post *posts;     /* SPAN_SLOTS for each rank */
	struct span_thread *thread; /* that does nonblocking ones; NULL: they are the library's, on
				       every rank */
	bool has_failed;        /* some message may still be on its way */
};

/* After MPI_Init, if SLUICE_SPAN is on: collective over MPI_COMM_WORLD. */
void span_meet(void);
/* Is it one of several nodes that may be served? The same answer on every rank. */
bool span_spans(const struct life_comm *lc);
/* Collective; NULL on every rank when it cannot be. */
struct spanning *span_create(struct life_comm *lc);
/* It is not used any more: what goes back without calls of the library's. NULL: nothing happens. */
void span_close(struct spanning *s);
void span_destroy(struct spanning *s);
/* Memory of at least so many bytes, until the next call; NULL: there is none. */
char *span_window(struct spanning *s, uint64_t bytes);

/* ---- span_plain.c: buffers without gaps -------------------------------------------------- */

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

/* ---- span_flow.c: one call --------------------------------------------------------------- */

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
	struct taken *t;
	struct spanning *s;
	const struct span_layout *l;
	struct span_cut cut;
	int node;               /* this rank's */
	int acting;             /* the rank that acts for it */
	bool acts;              /* ... it is this one */
	int parent, children[SPAN_CHILDREN],
		child_count;    /* ranks that act for others, of the tree; -1: none */
	int code;               /* the library's error, or 0 */
	int err;                /* the first: -errno */
	struct span_thread *by; /* the thread whose call this is; NULL: the program's */
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
bool span_serve(struct taken *t, int *rc);
/* Is it one of those that are served? By what all ranks know. */
bool span_suits(const struct taken *t);
/* The whole of one that has been prepared, if err is 0. 0 or -errno; take_conclude() is due. */
int span_work(struct taken *t, int err, struct span_thread *by);

/* ---- span_request.c: nonblocking ones ---------------------------------------------------- */

/* Local. 0 or -errno. */
int span_thread_create(struct span_thread **out);
/* It has nothing to do any more. NULL: nothing happens. */
void span_thread_end(struct span_thread *t);
/* Nothing has come, or something has: until the next look. False: it is not to be waited for any
 * longer. */
bool span_thread_pause(struct span_thread *t, bool has_moved);

/* May a nonblocking call be ours? By what all ranks know. */
bool span_takes_requests(const struct taken *t);
/* In the order of the calls on the communicator; taken: prepared, if err is 0, and kept until it is
 * handed out. 0, or -errno: it is over. */
int span_start(struct taken *t, int err, void *owner);
/* This rank cannot take part in it after all. 0 or -errno. */
int span_give_up(struct taken *t);
/* The owner of one that is over, with its result, as rt_request_next_done(). What is in flight goes
 * faster for it. */
void *span_next_done(int *out_result);
/* Until none is in flight. */
void span_wait_idle(struct spanning *s);
/* The same at the end, when those that others never start are given up. False: the communicator
 * must be left as it is. */
bool span_end(struct spanning *s);

/* ---- the kinds, a file each -------------------------------------------------------------- */

void span_bcast(struct flow *f);
void span_fold(struct flow *f);
void span_allgather(struct flow *f);
void span_gather(struct flow *f); /* span_rooted.c */
void span_scatter(struct flow *f);
void span_alltoall(struct flow *f);
void span_barrier(struct flow *f);
void span_scattered(struct flow *f); /* reductions whose result is scattered */

#endif
