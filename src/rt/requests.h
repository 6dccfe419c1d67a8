/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * requests: collectives that go on while the program does something else, until it asks for them.
 *
 *   create -> start -> (progress ... next_done) -> destroy
 *   create -> set_lane -> start -> (progress ... next_done) -> start ... -> destroy
 *
 * A request is created from a struct coll_call, which stays as it is until the request is
 * destroyed, and started once, or, where it has a lane, again whenever it was handed out. From the
 * moment at which its collective is published everybody can move its data: a rank that waits, the
 * worker process, a channel. More than EXEC_SLOTS of a communicator wait their turn here; whoever
 * needs one of them calls this process, where a sleeping thread publishes it.
 *
 * Whoever starts, progresses or waits moves what can be moved of all requests of the process. What
 * is over is handed out by rt_request_next_done(), in whichever thread asks first.
 *
 * Threads: any, any number at once, but create and start of one communicator one at a time, as MPI
 * has it. Context: in calls of the program to MPI, never in signal handlers.
 */
#ifndef SLUICE_RT_REQUESTS_H
#define SLUICE_RT_REQUESTS_H

#include <stdatomic.h>

#include "rt/collective.h"
#include "trace/trace.h"

struct rt_request;

/* Started, and not handed out yet; 0: nothing here has to be called. */
extern _Atomic uint32_t rt_requests;
static inline bool rt_has_requests(void)
{
	return __builtin_expect(atomic_load_explicit(&rt_requests, memory_order_relaxed) != 0, 0);
}

/*
 * 0 with *out, or -ENOMEM: then this rank cannot take part, and says so to the others. owner: what
 * next_done() returns. `call` is not copied.
 */
int rt_request_create(struct rt_comm *c, const struct coll_call *call, void *owner,
		      struct rt_request **out);
/* Begins, in the order of the calls on the communicator. Never waits for others. What goes wrong is
 * the result of the request. */
void rt_request_start(struct rt_request *r);
/* For the trace: which collective it is; group 0: none yet. */
struct trace_op rt_request_op(const struct rt_request *r);
/* It was handed out, or never started. */
void rt_request_destroy(struct rt_request *r);

/*
 * Collective, of a communicator of rt_comm_create_lanes(): a lane, the same on all ranks; -1 on
 * all: none is free, or a rank does not ask for one. 0 or -errno of oob's. set_lane: before it is
 * started; destroying gives it back.
 */
int rt_lane_allocate(struct rt_comm *c, const struct node_oob *oob, bool asks, int *out_lane);
void rt_request_set_lane(struct rt_request *r, int lane);

/* One pass over everything that is in flight. True: something has moved. */
bool rt_requests_progress(void);
/* The owner of a request that is over, with its result (0 or -errno): the program's memory has what
 * it receives. NULL: none at the moment. */
void *rt_request_next_done(int *out_result);

/* Before rt_comm_destroy(): what is in flight ends. Not for ever: what a peer has never started,
 * nor ever will, is given up, with -ECANCELED. */
void rt_requests_end(struct rt_comm *c);
/*
 * Another of them, whose call is prepared (NULL: this rank cannot): is it taken? By what ranks
 * agreed on in the last blocking collective of the communicator, as a nonblocking one must not wait
 * for others. Says now and then that they should agree anew: at the next one, in which
 * rt_requests_agree() is collective wherever rt_requests_disagree().
 */
bool rt_request_takes(struct rt_comm *c, enum coll kind, uint64_t bytes,
		      const struct coll_call *call);
bool rt_requests_disagree(const struct rt_comm *c);
void rt_requests_agree(struct rt_comm *c);
/* Is the communicator, by what all its ranks know, one whose requests are to be taken? */
bool rt_request_suits(const struct rt_comm *c);
/* Credit above which a communicator is connected for its nonblocking calls. */
uint32_t rt_connect_threshold(void);

/* One a waiting thread; zeroed at the beginning. */
struct rt_nap {
	struct rt_comm *comm;
	uint64_t wait[6]; /* struct node_wait */
};
/* Nothing moves: lets the host MPI progress, and waits a moment. */
void rt_requests_nap(struct rt_nap *nap);
/* Something has moved, or the wait is over. */
void rt_requests_woke(struct rt_nap *nap);
/* A program that tests and does not wait has looked once more, after a pass. It needs what waiting
 * ones ask of others, too. */
void rt_requests_tested(bool any);

#endif
